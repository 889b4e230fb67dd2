//! What a UDP socket can do here.

use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use super::Refused;

/// What a UDP socket can do here.
#[derive(Debug)]
pub struct Udp {
    /// Whether the kernel cuts one send into many datagrams (`UDP_SEGMENT`), tried over loopback.
    pub train: Result<(), Refused>,
    /// The most datagrams in one train: 128, or 64 before Linux 6.9; 0 without `UDP_SEGMENT`.
    pub train_segments_max: u16,
    /// Whether one call sends many messages (`sendmmsg`).
    pub sendmmsg: Result<(), Refused>,
}

/// A connected pair of sockets on loopback.
pub(super) struct Pair {
    pub(super) sender: UdpSocket,
    pub(super) receiver: UdpSocket,
}

impl Udp {
    pub(super) fn probe() -> Self {
        let train = train();
        let takes = |segments: &&u16| train.is_ok() && train_of(**segments).is_ok();
        let train_segments_max = [128, 64].iter().find(takes).copied().unwrap_or(0);
        Self {
            train,
            train_segments_max,
            sendmmsg: sendmmsg(),
        }
    }
}

/// One send, four datagrams, the last shorter.
fn train() -> Result<(), Refused> {
    let pair = Pair::new()?;
    pair.set_segment_bytes(256)?;
    pair.sender
        .send(&[7; 900])
        .map_err(|error| Refused::new("send(UDP_SEGMENT)", error))?;
    pair.expect("send(UDP_SEGMENT)", &[256, 256, 256, 132])
}

fn train_of(segments: u16) -> Result<(), Refused> {
    const SEGMENT_BYTES: u16 = 16;
    let pair = Pair::new()?;
    pair.set_segment_bytes(SEGMENT_BYTES)?;
    let payload = vec![0; usize::from(segments * SEGMENT_BYTES)];
    pair.sender
        .send(&payload)
        .map_err(|error| Refused::new("send(UDP_SEGMENT)", error))?;
    Ok(())
}

/// Two messages, one call.
fn sendmmsg() -> Result<(), Refused> {
    let pair = Pair::new()?;
    let mut payload = [7_u8; 100];
    let mut piece = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: a message header is integers and pointers, for which all zeroes is a value.
    let mut messages: [libc::mmsghdr; 2] = unsafe { std::mem::zeroed() };
    for message in &mut messages {
        message.msg_hdr.msg_iov = &raw mut piece;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: two headers are passed and two are said; each points to one piece, which points to
    // `payload`, and all of them live until the call returns.
    let sent = unsafe { libc::sendmmsg(pair.sender.as_raw_fd(), messages.as_mut_ptr(), 2, 0) };
    match sent {
        2 => pair.expect("sendmmsg", &[100, 100]),
        0.. => Err(Refused::other(
            "sendmmsg",
            format!("sent {sent} of 2 messages"),
        )),
        _ => Err(Refused::last("sendmmsg")),
    }
}

impl Pair {
    pub(super) fn new() -> Result<Self, Refused> {
        Self::connect().map_err(|error| Refused::new("socket on loopback", error))
    }

    fn connect() -> io::Result<Self> {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        sender.connect(receiver.local_addr()?)?;
        // Loopback delivers before `send` returns; this bounds the wait for what was lost.
        receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
        Ok(Self { sender, receiver })
    }

    /// From now on the kernel cuts what is sent into datagrams of `bytes`.
    pub(super) fn set_segment_bytes(&self, bytes: u16) -> Result<(), Refused> {
        let value = libc::c_int::from(bytes);
        let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
        // SAFETY: the option's value is an int, alive during the call, and its size is what is
        // said.
        let result = unsafe {
            libc::setsockopt(
                self.sender.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                ptr::from_ref(&value).cast(),
                length,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(Refused::last("setsockopt(UDP_SEGMENT)")),
        }
    }

    /// Receives datagrams of exactly these sizes, or says what came instead.
    pub(super) fn expect(&self, call: &'static str, sizes: &[usize]) -> Result<(), Refused> {
        let mut got = Vec::new();
        let mut buffer = [0; 2048];
        while got.len() < sizes.len() {
            match self.receiver.recv(&mut buffer) {
                Ok(bytes) => got.push(bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if got == sizes {
            return Ok(());
        }
        Err(Refused::other(
            call,
            format!("datagrams of {sizes:?} bytes were due, {got:?} came"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_is_compared() {
        let pair = Pair::new().unwrap();
        pair.sender.send(&[0; 10]).unwrap();
        pair.sender.send(&[0; 11]).unwrap();
        pair.expect("send", &[10, 11]).unwrap();
        pair.sender.send(&[0; 12]).unwrap();
        let refused = pair.expect("send", &[13]).unwrap_err().to_string();
        assert_eq!(refused, "send: datagrams of [13] bytes were due, [12] came");
    }

    #[test]
    fn a_train_longer_than_the_most_is_refused() {
        let udp = Udp::probe();
        if udp.train.is_err() {
            assert_eq!(udp.train_segments_max, 0);
            return;
        }
        assert!(train_of(udp.train_segments_max).is_ok());
        assert!(train_of(udp.train_segments_max + 1).is_err());
    }
}
