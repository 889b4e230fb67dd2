//! Datagrams taken many at a time: `recvmmsg`, and with UDP_GRO whole trains.
//!
//! One crossing takes up to [`BATCH_MAX`] messages, and each message may be a train that the
//! sender's kernel, or ours, has put together: packets of equal size one after the other, the last
//! perhaps shorter. Memory is taken once. What did not fit into the socket's buffer is counted by
//! the kernel and told with the next message.

use std::fmt;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

/// Messages taken in one crossing.
pub const BATCH_MAX: usize = 32;

/// Bytes of a message at the most: of a UDP datagram over IPv6, rounded up.
const MESSAGE_BYTES_MAX: usize = 1 << 16;

/// Bytes for a message's two control messages, an `int` each.
const CONTROL_BYTES: usize = 64;

/// A socket, and the memory for what it receives.
pub struct Receiver {
    socket: UdpSocket,
    overflows: u32,
    bytes: Box<[u8]>,
    slots: Box<[Slot]>,
    headers: Box<[libc::mmsghdr]>,
    is_segmented: bool,
}

/// What belongs to one message, at an address that stays.
#[repr(C)]
struct Slot {
    control: Control,
    from: libc::sockaddr_storage,
    part: libc::iovec,
}

#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// One or more datagrams of one sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Message<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// All of it.
    pub bytes: &'a [u8],
    /// The size of each datagram but the last; never 0.
    pub segment_bytes: usize,
}

impl<'a> Message<'a> {
    /// The datagrams, in order. One that is empty is one.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let empty = self.bytes.is_empty().then_some(self.bytes);
        empty
            .into_iter()
            .chain(self.bytes.chunks(self.segment_bytes))
    }
}

impl Receiver {
    /// Takes a socket over and makes it non-blocking. A kernel without UDP_GRO (before 5.0) gives
    /// single datagrams.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made non-blocking, or does not count what it has no room for.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        set_flag(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL)?;
        let is_segmented = join_arrivals(&socket).is_ok();
        // SAFETY: all of a Slot is bytes, integers and pointers, for which zero is a value.
        let slots = (0..BATCH_MAX).map(|_| unsafe { mem::zeroed::<Slot>() });
        // SAFETY: an mmsghdr is integers and pointers, for which zero is a value.
        let headers = (0..BATCH_MAX).map(|_| unsafe { mem::zeroed::<libc::mmsghdr>() });
        Ok(Self {
            socket,
            overflows: 0,
            bytes: vec![0; BATCH_MAX * MESSAGE_BYTES_MAX].into(),
            slots: slots.collect(),
            headers: headers.collect(),
            is_segmented,
        })
    }

    /// Takes what is there, up to [`BATCH_MAX`] messages, and gives each to `take`. How many they
    /// were; 0 if there is nothing.
    ///
    /// # Errors
    ///
    /// What the kernel says, but for EAGAIN and EINTR.
    pub fn receive(&mut self, mut take: impl FnMut(Message<'_>)) -> io::Result<usize> {
        self.prepare();
        // SAFETY: the headers are BATCH_MAX valid ones, as `prepare` has just made them: each names
        // a part of `bytes`, an address and a control buffer in `slots`, all of which live as long
        // as `self` and are named by no other header. A non-blocking call needs no time-out.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len().try_into().expect("a batch is short"),
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        };
        for number in 0..received {
            let header = &self.headers[number];
            let bytes = (header.msg_len as usize).min(MESSAGE_BYTES_MAX);
            let (segment_bytes, overflows) = ancillary(&header.msg_hdr);
            self.overflows = overflows.unwrap_or(self.overflows);
            let Some(from) = address(&self.slots[number].from) else {
                continue;
            };
            let start = number * MESSAGE_BYTES_MAX;
            take(Message {
                from,
                bytes: &self.bytes[start..start + bytes],
                segment_bytes: segment_bytes.filter(|&b| b > 0).unwrap_or(bytes).max(1),
            });
        }
        Ok(received)
    }

    /// Messages that the socket's buffer had no room for, as far as told: with each that is
    /// received, modulo 2^32.
    #[must_use]
    pub const fn overflows(&self) -> u32 {
        self.overflows
    }

    /// Whether trains come whole.
    #[must_use]
    pub const fn is_segmented(&self) -> bool {
        self.is_segmented
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Points each header at its memory; the kernel writes lengths and flags over what was there.
    fn prepare(&mut self) {
        let parts = self.bytes.chunks_exact_mut(MESSAGE_BYTES_MAX);
        for ((header, slot), bytes) in self.headers.iter_mut().zip(&mut self.slots).zip(parts) {
            slot.part = libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut slot.from).cast();
            header.msg_namelen =
                libc::socklen_t::try_from(size_of::<libc::sockaddr_storage>()).unwrap_or(0);
            header.msg_iov = &raw mut slot.part;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut slot.control).cast();
            header.msg_controllen = CONTROL_BYTES;
            header.msg_flags = 0;
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("socket", &self.socket)
            .field("overflows", &self.overflows)
            .finish_non_exhaustive()
    }
}

// SAFETY: the pointers in `slots` and `headers` lead into the boxes of the same Receiver, which
// move with it and are reached through `&mut self` alone.
unsafe impl Send for Receiver {}

/// The size of a train's packets and the socket's losses, where a message's control messages tell
/// them.
fn ancillary(header: &libc::msghdr) -> (Option<usize>, Option<u32>) {
    let (mut segment_bytes, mut overflows) = (None, None);
    // SAFETY: the header is one the kernel has filled in; its control buffer is CONTROL_BYTES long
    // and aligned.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole header within the buffer.
        let found = unsafe { ptr::read_unaligned(control) };
        // SAFETY: as above; the data follow the header.
        let data = unsafe { libc::CMSG_DATA(control) };
        // SAFETY: both kinds that were switched on hold four bytes, and the kernel writes none that
        // does not fit.
        let value = || unsafe { ptr::read_unaligned(data.cast::<u32>()) };
        match (found.cmsg_level, found.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => segment_bytes = usize::try_from(value()).ok(),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => overflows = Some(value()),
            _ => {}
        }
        // SAFETY: both are as above.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    (segment_bytes, overflows)
}

pub(crate) fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place = ptr::from_ref(storage);
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: a sockaddr_storage is large and aligned enough for a sockaddr_in, which is
            // all integers.
            let v4 = unsafe { ptr::read(place.cast::<libc::sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: a sockaddr_storage is large and aligned enough for a sockaddr_in6, which is
            // all integers.
            let v6 = unsafe { ptr::read(place.cast::<libc::sockaddr_in6>()) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => (ip, port).into(),
                None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

/// Has the kernel join datagrams to trains where they arrive for this socket faster than they are
/// taken (UDP_GRO).
///
/// # Errors
///
/// If the kernel cannot: before Linux 5.0.
pub fn join_arrivals(socket: &UdpSocket) -> io::Result<()> {
    set_flag(socket, libc::SOL_UDP, libc::UDP_GRO)
}

fn set_flag(socket: &UdpSocket, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let one: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the value is a c_int of
    // the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const one).cast(),
            4,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ip: &str) -> (UdpSocket, Receiver) {
        let receiver = Receiver::new(UdpSocket::bind((ip, 0)).unwrap()).unwrap();
        let sender = UdpSocket::bind((ip, 0)).unwrap();
        sender
            .connect(receiver.socket().local_addr().unwrap())
            .unwrap();
        (sender, receiver)
    }

    fn take(receiver: &mut Receiver) -> Vec<(SocketAddr, Vec<Vec<u8>>)> {
        let mut messages = Vec::new();
        let keep = |message: Message<'_>| {
            let datagrams = message.datagrams().map(<[u8]>::to_vec).collect();
            messages.push((message.from, datagrams));
        };
        receiver.receive(keep).unwrap();
        messages
    }

    #[test]
    fn datagrams_come_whole_in_order_and_with_their_sender() {
        for ip in ["127.0.0.1", "::1"] {
            let (sender, mut receiver) = pair(ip);
            assert_eq!(take(&mut receiver), []);
            for datagram in [&b"one"[..], b"", &[7; 60_000]] {
                sender.send(datagram).unwrap();
            }
            let from = sender.local_addr().unwrap();
            let of = |bytes: &[u8]| (from, vec![bytes.to_vec()]);
            let expected = [of(b"one"), of(b""), of(&[7; 60_000])];
            assert_eq!(take(&mut receiver), expected);
        }
    }

    #[test]
    fn a_train_comes_whole_and_is_taken_apart() {
        let (sender, mut receiver) = pair("127.0.0.1");
        assert!(receiver.is_segmented());
        let segment: libc::c_int = 100;
        // SAFETY: the descriptor is open; the value is a c_int of the size given.
        let result = unsafe {
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const segment).cast(),
                4,
            )
        };
        assert_eq!(result, 0);
        let train: Vec<u8> = (0..=249).collect();
        sender.send(&train).unwrap();
        let messages = take(&mut receiver);
        assert_eq!(messages.len(), 1, "in one message");
        let datagrams: Vec<_> = train.chunks(100).map(<[u8]>::to_vec).collect();
        assert_eq!(messages[0].1, datagrams);
    }

    #[test]
    fn no_more_than_a_batch_at_once_and_what_found_no_room_is_told() {
        let (sender, mut receiver) = pair("127.0.0.1");
        for number in 0..=BATCH_MAX {
            sender.send(&[u8::try_from(number).unwrap()]).unwrap();
        }
        assert_eq!(take(&mut receiver).len(), BATCH_MAX);
        assert_eq!(take(&mut receiver).len(), 1);
        assert_eq!(receiver.overflows(), 0);
        // More than any default buffer takes.
        for _ in 0..20_000 {
            sender.send(&[0; 1000]).unwrap();
        }
        while !take(&mut receiver).is_empty() {}
        sender.send(&[1]).unwrap();
        assert_eq!(take(&mut receiver).len(), 1);
        assert!(receiver.overflows() > 0);
    }
}
