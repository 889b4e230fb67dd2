//! A train that its caller sends by itself and at once: sendmsg(2) with UDP_SEGMENT (udp(7)).
//!
//! It is for what is written for one receiver and needs no room in a ring. The kernel copies it.

use std::io;
use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::SockAddr;

use super::segment_control::SegmentControl;

const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Sends packets of `segment_bytes`, which lie one behind the other in `train` and of which the
/// last may be shorter, to that address: in one send, or one by one where the device or the way to
/// it takes no trains. `train` has at most [`TRAIN_BYTES_MAX`](super::TRAIN_BYTES_MAX) bytes and
/// [`TRAIN_PACKETS_MAX`](super::TRAIN_PACKETS_MAX) packets. Returns how many of its bytes were
/// taken: fewer than all if the socket was full behind some packets.
///
/// # Errors
///
/// The kernel's, about the first packet; `WouldBlock` if the socket is full.
///
/// # Panics
///
/// If `segment_bytes` is 0.
pub fn send_train_to(
    socket: &UdpSocket,
    to: SocketAddr,
    train: &[u8],
    segment_bytes: u16,
) -> io::Result<usize> {
    match send_whole(socket, to, train, segment_bytes) {
        // Without checksums of the device, behind a tunnel that encrypts, beyond the MTU (net/ipv4/
        // udp.c, udp_send_skb).
        Err(error)
            if train.len() > segment_bytes.into()
                && matches!(
                    error.raw_os_error(),
                    Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)
                ) =>
        {
            send_each(socket, to, train, segment_bytes)
        }
        sent => sent,
    }
}

fn send_whole(
    socket: &UdpSocket,
    to: SocketAddr,
    train: &[u8],
    segment_bytes: u16,
) -> io::Result<usize> {
    let name = SockAddr::from(to);
    let mut control = SegmentControl::new(segment_bytes);
    let mut part = libc::iovec {
        iov_base: train.as_ptr().cast_mut().cast(),
        iov_len: train.len(),
    };
    // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid (and empty).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = name.as_ptr().cast_mut().cast();
    message.msg_namelen = name.len();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if train.len() > segment_bytes.into() {
        control.attach_to(&mut message);
    }
    // SAFETY: the descriptor is open for as long as `socket` is borrowed. The message names an
    // address, one part and at most one control message, which live in `name`, `train`, `part` and
    // `control` until the call returns; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, SEND_FLAGS) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn send_each(
    socket: &UdpSocket,
    to: SocketAddr,
    train: &[u8],
    segment_bytes: u16,
) -> io::Result<usize> {
    let mut taken_bytes = 0;
    for packet in train.chunks(segment_bytes.into()) {
        match send_whole(socket, to, packet, segment_bytes) {
            Ok(_) => taken_bytes += packet.len(),
            Err(error) if taken_bytes == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(taken_bytes)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::set_option;
    use super::*;
    use crate::receive::{Message, Receiver};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn sockets() -> (UdpSocket, UdpSocket) {
        let [sender, receiver] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("loopback"));
        receiver.set_read_timeout(Some(PATIENCE)).expect("set");
        (sender, receiver)
    }

    fn train() -> Vec<u8> {
        (0..25).flat_map(|byte| [byte; 100]).collect()
    }

    #[test]
    fn a_train_is_one_send() {
        let (sender, receiver) = sockets();
        let to = receiver.local_addr().expect("bound");
        // Whoever joins what arrives sees it whole.
        let mut joining = Receiver::new(receiver).expect("a socket");
        let train = train();
        assert_eq!(send_train_to(&sender, to, &train, 1000).unwrap(), 2500);
        let (give_up, mut messages) = (Instant::now() + PATIENCE, Vec::new());
        while messages.is_empty() {
            assert!(Instant::now() < give_up, "it comes");
            let mut keep = |message: Message<'_>| {
                messages.push((message.bytes.to_vec(), message.segment_bytes))
            };
            joining.receive(&mut keep).expect("received");
        }
        let lengths: Vec<_> = messages
            .iter()
            .map(|(all, each)| (all.len(), *each))
            .collect();
        assert_eq!(
            lengths,
            [(2500, 1000)],
            "bytes of each message and of its packets"
        );
        assert!(messages[0].0 == train);
    }

    #[test]
    fn where_trains_are_refused_packets_leave_one_by_one() {
        let (sender, receiver) = sockets();
        let to = receiver.local_addr().expect("bound");
        // Without checksums nothing is segmented: EINVAL.
        let fd = sender.as_raw_fd();
        set_option(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).expect("set");
        let train = train();
        let refused = send_whole(&sender, to, &train, 1000).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(send_train_to(&sender, to, &train, 1000).unwrap(), 2500);
        for packet in train.chunks(1000) {
            let mut received = [0; 2048];
            let bytes = receiver.recv(&mut received).expect("it came");
            assert!(received[..bytes] == *packet);
        }
    }

    #[test]
    fn what_the_kernel_says_of_the_first_packet_is_told() {
        let (sender, receiver) = sockets();
        let port = receiver.local_addr().expect("bound").port();
        let broadcast = ([255, 255, 255, 255], port).into();
        let error = send_train_to(&sender, broadcast, &train(), 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
