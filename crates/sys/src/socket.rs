//! What a socket knows and the standard library does not ask.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// The path MTU towards the address `socket` is connected to, in bytes, IP header included: the route's, or
/// less once a router has said so.
///
/// # Errors
///
/// ENOTCONN if it is not connected.
pub fn path_mtu(socket: &UdpSocket) -> io::Result<u32> {
    let (level, option) = match socket.local_addr()?.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_MTU),
        false => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu_bytes: libc::c_int = 0;
    let mut value_bytes: libc::socklen_t = 4;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the value is a c_int, whose four
    // bytes are writable as `value_bytes` says, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut mtu_bytes).cast(),
            &raw mut value_bytes,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(mtu_bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_mtu_in_both_families() {
        let device = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let device: u32 = device.trim().parse().unwrap();
        // No IPv4 packet is longer than 65,535 bytes, whatever the device would take.
        for (ip, mtu_bytes) in [("127.0.0.1", device.min(65_535)), ("::1", device)] {
            let Ok(socket) = UdpSocket::bind((ip, 0)) else {
                // A kernel without IPv6.
                assert_eq!(ip, "::1");
                continue;
            };
            let unconnected = path_mtu(&socket).unwrap_err();
            assert_eq!(unconnected.raw_os_error(), Some(libc::ENOTCONN));
            socket.connect((ip, 9)).unwrap();
            assert_eq!(path_mtu(&socket).unwrap(), mtu_bytes);
        }
    }
}
