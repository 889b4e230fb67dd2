//! When the kernel had a datagram, whenever it is read: SO_TIMESTAMPNS and SO_RXQ_OVFL, socket(7).
//!
//! Whoever measures others must not charge them for its own lateness. The stamp is of
//! CLOCK_REALTIME, which may be set meanwhile; so what is told is how long ago it was at the time
//! of reading, which is taken off a clock that nobody sets.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes for a message's two control messages: a `timespec` and an `int`.
const CONTROL_BYTES: usize = 64;

/// A stamp that is older was taken before the clock was set, and is not used.
const AGE_NS_MAX: u64 = 60_000_000_000;

/// A datagram that was read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Arrival {
    /// Its bytes.
    pub bytes: usize,
    /// How long ago the kernel had it, in ns; `None` where it does not say.
    pub age_ns: Option<u64>,
    /// Datagrams that the socket has had no room for so far, modulo 2^32; `None` where the kernel
    /// does not say, which it does not before there is one.
    pub overflows: Option<u32>,
}

#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Has the kernel stamp what arrives at `socket`, and count what it has no room for.
///
/// # Errors
///
/// Those of setsockopt(2).
pub fn stamp(socket: &impl AsFd) -> io::Result<()> {
    for option in [libc::SO_TIMESTAMPNS, libc::SO_RXQ_OVFL] {
        let one: libc::c_int = 1;
        // SAFETY: the descriptor is open for as long as `socket` is borrowed; the value is a c_int
        // of the size given, and outlives the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const one).cast(),
                4,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Reads a datagram without waiting, into `bytes`; what has no room there is cut off.
///
/// # Errors
///
/// Those of recvmsg(2); `WouldBlock` if there is nothing.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Arrival> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a msghdr is integers and pointers, for which zero is a value.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the header names `bytes`
    // and `control`, both writable for as long as it says and alive beyond the call.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let Ok(read) = usize::try_from(read) else {
        return Err(io::Error::last_os_error());
    };
    let mut arrival = Arrival {
        bytes: read,
        ..Arrival::default()
    };
    // SAFETY: the header is as recvmsg has filled it in, and `control` is still there, aligned and
    // CONTROL_BYTES long.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a whole header within the buffer.
        let found = unsafe { ptr::read_unaligned(next) };
        // SAFETY: as above; the data follow the header.
        let data = unsafe { libc::CMSG_DATA(next) };
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SO_TIMESTAMPNS {
            // SAFETY: a message of this type holds a timespec, and the kernel writes none that does
            // not fit.
            let stamp = unsafe { ptr::read_unaligned(data.cast::<libc::timespec>()) };
            arrival.age_ns = age_ns(stamp);
        } else if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SO_RXQ_OVFL {
            // SAFETY: a message of this type holds a u32, likewise.
            arrival.overflows = Some(unsafe { ptr::read_unaligned(data.cast::<u32>()) });
        }
        // SAFETY: both are as above.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok(arrival)
}

/// How long ago that was; `None` if the clock was set meanwhile.
fn age_ns(stamp: libc::timespec) -> Option<u64> {
    let now_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()?
        .as_nanos();
    let seconds = u128::try_from(stamp.tv_sec).ok()?;
    let stamp_ns = seconds * 1_000_000_000 + u128::try_from(stamp.tv_nsec).ok()?;
    let age_ns = u64::try_from(now_ns.checked_sub(stamp_ns)?).ok()?;
    (age_ns <= AGE_NS_MAX).then_some(age_ns)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        stamp(&receiver).unwrap();
        let sender = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn who_reads_late_is_told_when_it_came() {
        let (sender, receiver) = pair();
        let mut bytes = [0; 8];
        let nothing = receive(receiver.as_fd(), &mut bytes).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let late = |bytes: &mut [u8]| {
            let before = Instant::now();
            sender.send(b"datagram").unwrap();
            // On loopback it has arrived when the send returns.
            thread::sleep(Duration::from_millis(300));
            (receive(receiver.as_fd(), bytes).unwrap(), before)
        };
        let is_stamped = |arrival: &Arrival| arrival.age_ns.is_some_and(|age| age > 1_000_000);
        // The kernel begins to stamp some time after it was asked to (net_enable_timestamp in
        // net/core/dev.c); what came before that is stamped when it is read.
        let mut tries = (0..20).map(|_| late(&mut bytes));
        let (arrival, before) = tries.find(|(it, _)| is_stamped(it)).expect("a stamp");
        drop(tries);
        let age_ns = u128::from(arrival.age_ns.unwrap());
        assert_eq!((arrival.bytes, &bytes), (8, b"datagram"));
        assert!(age_ns >= 250_000_000 && age_ns <= before.elapsed().as_nanos() + 50_000_000);
    }

    #[test]
    fn what_found_no_room_is_counted() {
        let (sender, receiver) = pair();
        // More than any default buffer takes.
        for _ in 0..20_000 {
            sender.send(&[0; 1000]).unwrap();
        }
        let mut bytes = [0; 1000];
        let read = |bytes: &mut [u8]| receive(receiver.as_fd(), bytes).ok();
        while read(&mut bytes).is_some() {}
        sender.send(&[1]).unwrap();
        assert!(read(&mut bytes).unwrap().overflows.unwrap() > 0);
    }

    #[test]
    fn a_stamp_from_before_the_clock_was_set_is_not_used() {
        let stamp = |tv_sec| libc::timespec { tv_sec, tv_nsec: 0 };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        assert_eq!(age_ns(stamp(now + 3600)), None);
        assert_eq!(age_ns(stamp(now - 3600)), None);
        assert!(age_ns(stamp(now - 5)).unwrap() >= 5_000_000_000);
    }
}
