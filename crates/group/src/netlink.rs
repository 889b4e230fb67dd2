//! Questions to rtnetlink(7), and its news.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A socket that asks one question at a time.
#[derive(Debug)]
pub(super) struct Questions {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// A socket that the kernel tells of changes.
#[derive(Debug)]
pub(super) struct News {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Questions {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            fd: socket(0)?,
            sequence: 0,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// The one message that answers `body`, without its header. ENOENT and its like are answers
    /// too.
    pub(super) fn ask(&mut self, kind: u16, body: &[u8]) -> io::Result<&[u8]> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        let length = u32::try_from(HEADER_BYTES + body.len()).expect("a question is short");
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(body);
        let (fd, bytes) = (self.fd.as_raw_fd(), message.as_ptr().cast());
        // SAFETY: the message is readable for its length.
        if unsafe { libc::send(fd, bytes, message.len(), 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Each datagram answers a question; an older one's answer may be left from a call that
        // failed.
        for _ in 0..8 {
            let got = receive(&self.fd, &mut self.buffer, 0)?;
            let Some(found) = Message::first(&self.buffer[..got]) else {
                break;
            };
            if found.sequence == self.sequence {
                if found.kind == NLMSG_ERROR {
                    return Err(io::Error::from_raw_os_error(-int(found.body, 0)));
                }
                // By its place, because the borrow checker does not let a loop return what it
                // borrowed.
                let length = found.body.len();
                return Ok(&self.buffer[HEADER_BYTES..HEADER_BYTES + length]);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl News {
    /// Subscribes to these RTMGRP_* groups.
    pub(super) fn open(groups: u32) -> io::Result<Self> {
        Ok(Self {
            fd: socket(groups)?,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Tells `hear` all that is new, by the message's kind and body; whether nothing was lost.
    pub(super) fn drain(&mut self, mut hear: impl FnMut(u16, &[u8])) -> bool {
        for _ in 0..NEWS_MAX {
            match receive(&self.fd, &mut self.buffer, libc::MSG_DONTWAIT) {
                Ok(got) => {
                    let mut rest = &self.buffer[..got];
                    while let Some(message) = Message::first(rest) {
                        hear(message.kind, message.body);
                        let length = (HEADER_BYTES + message.body.len()).next_multiple_of(4);
                        rest = rest.get(length..).unwrap_or(&[]);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                // ENOBUFS: more happened than the socket could hold.
                Err(_) => return false,
            }
        }
        false
    }
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let length = usize::try_from(word(bytes.get(..HEADER_BYTES)?, 0)).ok()?;
        Some(Self {
            kind: half(bytes, 4),
            sequence: word(bytes, 8),
            body: bytes.get(HEADER_BYTES..length)?,
        })
    }
}

/// The attributes of a message, by kind.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(half(bytes.get(..4)?, 0));
        let value = bytes.get(4..length)?;
        // The upper two bits are flags (nested, byte order).
        let kind = half(bytes, 2) & 0x3fff;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Appends an attribute.
pub(super) fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("an attribute of ours is short");
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    four.map_or(0, u32::from_ne_bytes)
}

pub(super) fn half(bytes: &[u8], at: usize) -> u16 {
    let two = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    two.map_or(0, u16::from_ne_bytes)
}

fn int(bytes: &[u8], at: usize) -> i32 {
    word(bytes, at).cast_signed()
}

fn socket(groups: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain integers, for which all zeroes is a value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = AF_NETLINK;
    address.nl_groups = groups;
    let length = libc::socklen_t::try_from(size_of_val(&address)).expect("twelve bytes");
    // SAFETY: the address is readable for its length.
    if unsafe { libc::bind(fd, (&raw const address).cast(), length) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

fn receive(fd: &OwnedFd, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    let (bytes, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the buffer is writable for its length.
    let got = unsafe { libc::recv(fd.as_raw_fd(), bytes, length, flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Larger than any message or answer that the kernel makes of ours.
const BUFFER_BYTES: usize = 32 << 10;
/// Datagrams read in one go; if there are more, all is asked anew.
const NEWS_MAX: usize = 4096;
const HEADER_BYTES: usize = size_of::<libc::nlmsghdr>();
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
#[allow(clippy::cast_possible_truncation, reason = "16")]
const AF_NETLINK: libc::sa_family_t = libc::AF_NETLINK as libc::sa_family_t;
