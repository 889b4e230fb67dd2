//! Sends over connections by sendmsg(2), for paths without a ring: what a socket does not take
//! waits here, and is tried again with every submission.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::RawFd;

use super::stream::STREAM_PACKETS_MAX;
use super::{Completion, Sent, StreamData, StreamSend};
use crate::pool::Pool;

const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Sends of all connections, those of one in their order.
#[derive(Debug, Default)]
pub(super) struct StreamQueue {
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    send: StreamSend,
    /// Bytes of it that the kernel has taken.
    taken: usize,
}

impl StreamQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, send: StreamSend, pool: &Pool) {
        if let StreamData::Packets(packets) = &send.data {
            packets.check(pool);
        }
        self.waiting.push_back(Waiting { send, taken: 0 });
    }

    /// Sends what the sockets take, and tells `answer` of what is done. How often it entered the
    /// kernel.
    pub(super) fn advance(&mut self, pool: &Pool, mut answer: impl FnMut(Completion)) -> u64 {
        let mut crossings = 0;
        let (mut full, mut failed): (Vec<RawFd>, Vec<RawFd>) = (Vec::new(), Vec::new());
        for _ in 0..self.waiting.len() {
            let mut waiting = self.waiting.pop_front().expect("they were counted");
            let fd = waiting.send.fd;
            let errno = if full.contains(&fd) {
                libc::EAGAIN
            } else if failed.contains(&fd) {
                libc::ECANCELED
            } else {
                waiting.send_rest(pool, &mut crossings)
            };
            if errno == libc::EAGAIN {
                full.push(fd);
                self.waiting.push_back(waiting);
                continue;
            }
            if errno != 0 {
                failed.push(fd);
            }
            if !waiting.send.is_followed {
                failed.retain(|&other| other != fd);
            }
            answer(Completion {
                token: waiting.send.token,
                sent: Some(Sent {
                    bytes: u32::try_from(waiting.taken).unwrap_or(u32::MAX),
                    errno,
                }),
                released: true,
                referred: None,
            });
        }
        crossings
    }
}

impl Waiting {
    /// Sends its rest: the errno of what the kernel did not take, or 0.
    fn send_rest(&mut self, pool: &Pool, crossings: &mut u64) -> i32 {
        let bytes_total = self.send.wire_bytes();
        while self.taken < bytes_total {
            // SAFETY: an iovec is an address and a length, for which all zeroes is valid (and
            // empty).
            let mut pieces: [libc::iovec; 2 * STREAM_PACKETS_MAX] = unsafe { mem::zeroed() };
            let count = match &self.send.data {
                StreamData::Packets(packets) => {
                    packets.gather(pool.area().base().as_ptr(), &mut pieces)
                }
                StreamData::Bytes(bytes) => {
                    pieces[0].iov_base = bytes.as_ptr().cast_mut().cast();
                    pieces[0].iov_len = bytes.len();
                    1
                }
            };
            let rest = skip(&mut pieces[..count], self.taken);
            // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid (and
            // empty).
            let mut message: libc::msghdr = unsafe { mem::zeroed() };
            message.msg_iov = rest.as_mut_ptr();
            message.msg_iovlen = rest.len() as _;
            *crossings += 1;
            // SAFETY: the message points to pieces that live until the call returns, and those into
            // the pool's area (`check` has seen that), where the caller's pin keeps others from
            // writing, or to the bytes that `self` holds; they are only read.
            let sent = unsafe { libc::sendmsg(self.send.fd, &raw const message, SEND_FLAGS) };
            match usize::try_from(sent) {
                Ok(sent) => self.taken += sent,
                Err(_) => match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => {}
                    errno => return errno.unwrap_or(libc::EIO),
                },
            }
        }
        0
    }
}

/// The pieces without so many bytes at their beginning.
fn skip(pieces: &mut [libc::iovec], mut bytes: usize) -> &mut [libc::iovec] {
    let mut first = 0;
    while first < pieces.len() && bytes >= pieces[first].iov_len {
        bytes -= pieces[first].iov_len;
        first += 1;
    }
    let rest = &mut pieces[first..];
    if let Some(piece) = rest.first_mut() {
        piece.iov_base = piece.iov_base.wrapping_byte_add(bytes);
        piece.iov_len -= bytes;
    }
    rest
}
