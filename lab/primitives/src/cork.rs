//! Datagrams that are held back until they are whole.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Holds what is sent on a UDP socket back, or lets it go as one datagram (UDP_CORK).
///
/// # Errors
///
/// What the system says; of what was held back, too, when it is let go.
pub fn cork(socket: &impl AsFd, is_held: bool) -> io::Result<()> {
    let value = libc::c_int::from(is_held);
    let bytes = libc::socklen_t::try_from(size_of_val(&value)).expect("a few bytes");
    // SAFETY: `value` is readable for as many bytes as are given.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_CORK,
            (&raw const value).cast(),
            bytes,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn what_is_held_back_leaves_as_one_datagram() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver.local_addr().unwrap()).unwrap();
        cork(&socket, true).unwrap();
        socket.send(b"head").unwrap();
        socket.send(b"body").unwrap();
        cork(&socket, false).unwrap();
        let mut datagram = [0; 20];
        let bytes = receiver.recv(&mut datagram).unwrap();
        assert_eq!(&datagram[..bytes], b"headbody");
        assert!(cork(&std::fs::File::open("/dev/null").unwrap(), true).is_err());
    }
}
