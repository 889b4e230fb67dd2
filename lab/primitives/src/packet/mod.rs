//! What sending is made of: one packet, a train, a piece that is appended, a page that is lent, an
//! entry of a ring, each by itself and many times.
//!
//! None of this moves a file to anybody. Packets are so small that their bytes cost nothing, or
//! have a size that the caller varies; files go to `/dev/null`. What a data path costs can be put
//! together from it.

mod ring;
mod trains;

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, pipe};
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

pub use ring::{CROSSING_ENTRIES_MAX, RingSend, RingSends};
pub use trains::{BATCH_TRAINS_MAX, RingKind, TrainRing, TrainSockets, TrainWay, TrainsSent};

/// Messages of a `sendmmsg`, and pieces of a `sendmsg`, at the most.
pub const CALL_PIECES_MAX: usize = 64;

/// Bytes that are lent at once, at the most: what fits a pipe that an account without rights may
/// have (pipe-max-size, pipe(7)).
pub const LENT_BYTES_MAX: usize = 1 << 20;

/// A connected socket to send by.
#[derive(Debug)]
pub struct Sends {
    socket: UdpSocket,
    null: File,
    pipe: (PipeReader, PipeWriter),
}

impl Sends {
    /// Sends by a connected socket.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let null = File::options().write(true).open("/dev/null")?;
        let sends = Self {
            socket,
            null,
            pipe: pipe()?,
        };
        sends.set(libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        let bytes = libc::c_int::try_from(LENT_BYTES_MAX).map_err(io::Error::other)?;
        // SAFETY: the pipe is open, and the size is an int.
        done(unsafe { libc::fcntl(sends.pipe.1.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } as isize)?;
        Ok(sends)
    }

    /// Cuts what is sent from now on into packets of `bytes`; 0 ends that.
    pub fn segment(&self, bytes: u16) -> io::Result<()> {
        segment(&self.socket, bytes)
    }

    /// `send`s the bytes.
    pub fn send(&self, bytes: &[u8], times: u64) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        (0..times).try_for_each(|_| {
            // SAFETY: the kernel reads `bytes`, which are borrowed for the call.
            done(unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), 0) })
        })
    }

    /// `sendmsg` of so many pieces of `piece`, as one.
    pub fn gather(&self, piece: &[u8], pieces: usize, times: u64) -> io::Result<()> {
        let pieces = vec![iovec(piece); pieces.min(CALL_PIECES_MAX)];
        let message = message(&pieces);
        let socket = self.socket.as_raw_fd();
        (0..times).try_for_each(|_| {
            // SAFETY: the message and its pieces are alive, and the kernel only reads them.
            done(unsafe { libc::sendmsg(socket, &raw const message, 0) })
        })
    }

    /// `sendmmsg` of so many messages of these bytes each.
    pub fn many(&self, bytes: &[u8], messages: usize, times: u64) -> io::Result<()> {
        let piece = [iovec(bytes)];
        let one = libc::mmsghdr {
            msg_hdr: message(&piece),
            msg_len: 0,
        };
        let mut messages = vec![one; messages.min(CALL_PIECES_MAX)];
        let (socket, count) = (self.socket.as_raw_fd(), messages.len());
        let wanted = libc::c_uint::try_from(count).map_err(io::Error::other)?;
        (0..times).try_for_each(|_| {
            // SAFETY: the messages and their piece are alive; the kernel writes their lengths only.
            let sent = unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), wanted, 0) };
            done(sent as isize)
        })
    }

    /// Holds back and lets go, with nothing to send: two calls.
    pub fn cork(&self, times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            self.set(libc::SOL_UDP, libc::UDP_CORK, 1)?;
            self.set(libc::SOL_UDP, libc::UDP_CORK, 0)
        })
    }

    /// Holds back, `send`s so many pieces, lets them go as one packet: two calls and one for each.
    pub fn append(&self, piece: &[u8], pieces: u64, times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            self.set(libc::SOL_UDP, libc::UDP_CORK, 1)?;
            self.send(piece, pieces)?;
            self.set(libc::SOL_UDP, libc::UDP_CORK, 0)
        })
    }

    /// `sendfile`s so many of the file's bytes to `/dev/null`, from `offset` on, one part after the
    /// other.
    pub fn discard(&self, file: &File, offset: u64, bytes: usize, times: u64) -> io::Result<()> {
        let (to, from) = (self.null.as_raw_fd(), file.as_raw_fd());
        (0..times).try_for_each(|nth| {
            let place = offset + nth * bytes as u64;
            let mut place = libc::off_t::try_from(place).map_err(io::Error::other)?;
            // SAFETY: the place is ours; the kernel reads and writes it only.
            let moved = unsafe { libc::sendfile(to, from, &raw mut place, bytes) };
            done(moved)?;
            // The file has ended: what would be nothing was not done.
            if moved == 0 {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(())
            }
        })
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Lends the bytes to a pipe and moves them on to `/dev/null`: two calls.
    pub fn lend(&self, bytes: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| self.lend_to(self.null.as_fd(), bytes, 0))
    }

    /// Lends the bytes to a pipe and moves them on to the socket, as one packet or train: two
    /// calls.
    pub fn lend_out(&self, bytes: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| self.lend_to(self.socket.as_fd(), bytes, 0))
    }

    /// Lends the bytes to a pipe and moves them on to a connection, more of which come if
    /// `is_more`: two calls.
    pub fn lend_on(&self, stream: BorrowedFd<'_>, bytes: &[u8], is_more: bool) -> io::Result<()> {
        let flags = if is_more { libc::SPLICE_F_MORE } else { 0 };
        self.lend_to(stream, bytes, flags)
    }

    /// No more bytes than a pipe holds, so that all of them go at once.
    fn lend_to(&self, to: BorrowedFd<'_>, bytes: &[u8], flags: libc::c_uint) -> io::Result<()> {
        let piece = iovec(bytes);
        let (from, into) = (self.pipe.0.as_raw_fd(), self.pipe.1.as_raw_fd());
        // SAFETY: the piece is alive; what the pipe refers to is drained below. A packet may refer
        // to it for longer, but only reads it: the most that a change could do is to change what
        // arrives.
        let lent = unsafe { libc::vmsplice(into, &raw const piece, 1, 0) };
        done(lent)?;
        let nowhere = ptr::null_mut();
        let to = to.as_raw_fd();
        // SAFETY: no offsets are passed.
        let moved = unsafe { libc::splice(from, nowhere, to, nowhere, bytes.len(), flags) };
        done(moved)?;
        if lent.unsigned_abs() != bytes.len() || moved != lent {
            let parts = format!(
                "of {} bytes {lent} were lent and {moved} moved",
                bytes.len()
            );
            return Err(io::Error::other(parts));
        }
        Ok(())
    }

    /// `sendmsg` of so many pieces of `piece` with MSG_ZEROCOPY; reads what the kernel says of it
    /// when it refuses more, and at the end.
    pub fn zero_copy(&self, piece: &[u8], pieces: usize, times: u64) -> io::Result<()> {
        let pieces = vec![iovec(piece); pieces.min(CALL_PIECES_MAX)];
        let message = message(&pieces);
        let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_ZEROCOPY);
        let mut sent = 0;
        while sent < times {
            // SAFETY: the pieces are borrowed until the notifications have been read; they never
            // change.
            match done(unsafe { libc::sendmsg(socket, &raw const message, flags) }) {
                Ok(()) => sent += 1,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.drain()?,
                Err(error) => return Err(error),
            }
        }
        self.drain()
    }

    /// Reads all that is in the error queue.
    fn drain(&self) -> io::Result<()> {
        let mut control = [0_u64; 32];
        loop {
            let mut message = message(&[]);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the message names `control`, which is writable and alive, and nothing else.
            match done(unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) }) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        set(&self.socket, level, option, value)
    }
}

/// Cuts what a socket sends from now on into packets of `bytes`; 0 ends that.
pub fn segment(socket: &UdpSocket, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) -> io::Result<()> {
    let bytes = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    let value = (&raw const value).cast();
    // SAFETY: the value is a live int of that size.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, bytes) };
    done(set as isize)
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn message(pieces: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid (and empty).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len();
    message
}

fn done(result: isize) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    pub(super) fn pair() -> (Sends, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (Sends::new(sender).unwrap(), receiver)
    }

    /// The sizes of all packets that arrive, at least so many: a busy kernel delivers them later.
    pub(super) fn sizes(receiver: &UdpSocket, count: usize) -> Vec<usize> {
        let mut buffer = vec![0; 65_536];
        let mut found: Vec<_> = (0..count)
            .map(|_| receiver.recv(&mut buffer).unwrap())
            .collect();
        receiver.set_nonblocking(true).unwrap();
        found.extend(std::iter::from_fn(|| receiver.recv(&mut buffer).ok()));
        receiver.set_nonblocking(false).unwrap();
        found
    }

    #[test]
    fn each_way_sends_what_it_says_as_often_as_it_says() {
        let (sends, receiver) = pair();
        sends.send(&[7; 20], 3).unwrap();
        assert_eq!(sizes(&receiver, 3), [20; 3]);
        sends.gather(&[7; 5], 4, 2).unwrap();
        assert_eq!(sizes(&receiver, 2), [20; 2]);
        sends.many(&[7; 9], 5, 2).unwrap();
        assert_eq!(sizes(&receiver, 10), [9; 10]);
        sends.cork(3).unwrap();
        assert_eq!(sizes(&receiver, 0), []);
        sends.append(&[7; 8], 3, 2).unwrap();
        assert_eq!(sizes(&receiver, 2), [24; 2]);
        sends.zero_copy(&[7; 15], 2, 2).unwrap();
        assert_eq!(sizes(&receiver, 2), [30; 2]);
        sends.segment(10).unwrap();
        sends.send(&[7; 35], 1).unwrap();
        assert_eq!(sizes(&receiver, 4), [10, 10, 10, 5]);
        sends.segment(0).unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        sends.discard(&file, 4096, 5000, 3).unwrap();
        sends.lend(&[7; 100], 3).unwrap();
        assert_eq!(sizes(&receiver, 0), []);
        let page = [7; 4096];
        sends.lend_out(&page[..100], 3).unwrap();
        assert_eq!(sizes(&receiver, 3), [100; 3]);
        sends.segment(1000).unwrap();
        sends.lend_out(&page, 1).unwrap();
        assert_eq!(sizes(&receiver, 5), [1000, 1000, 1000, 1000, 96]);
    }
}
