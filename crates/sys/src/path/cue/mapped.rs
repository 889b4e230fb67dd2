//! Short pieces of a file to a stream socket: copied by the kernel from a mapping of the file, many
//! by one call.
//!
//! A `sendfile` looks at the page cache, fills a pipe and empties it into the socket, whatever it
//! moves, and TCP then has a fragment for each page of each piece. From a mapping the kernel copies
//! each byte once, into fragments of its own that are full.
//!
//! The mapping is read by the kernel alone. Where the file has become shorter, or its disk fails,
//! the kernel says `EFAULT`; nothing is signalled.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::pipe::Pipe;

/// Pieces that are sent by one call; the kernel takes 1024 (`UIO_MAXIOV`).
pub const MAPPED_PIECES_MAX: usize = 256;

/// A range of a file that is mapped, to be sent from.
#[derive(Debug)]
pub struct MappedRange {
    address: *mut libc::c_void,
    range: Range<u64>,
}

impl MappedRange {
    /// Maps `range` of a file, which begins at a multiple of the page size. It may reach beyond the
    /// file's end.
    ///
    /// # Errors
    ///
    /// What `mmap` says: `ENODEV` of files that cannot be mapped, `ENOMEM` where there are too many
    /// mappings.
    pub fn new(file: &File, range: Range<u64>) -> io::Result<Self> {
        let overflow = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
        let offset = libc::off_t::try_from(range.start).map_err(overflow)?;
        let bytes = length(&range);
        // SAFETY: a new mapping takes no memory of anybody; the descriptor is open as long as
        // `file` is borrowed, and need not be afterwards.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        match address {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            address => Ok(Self { address, range }),
        }
    }

    /// What is mapped.
    #[must_use]
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Gives a socket that does not block the first [`MAPPED_PIECES_MAX`] of these pieces of the
    /// file, which have to lie in the range; how many bytes it took. What lies in the page of the
    /// file's end behind that is zero.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the first piece is not in the file or cannot be read, `EINVAL` if a piece is not
    /// in the range; and what `sendmsg` says of the socket.
    pub fn send(&self, pieces: &[Range<u64>], socket: BorrowedFd<'_>) -> io::Result<usize> {
        let (mut parts, count) = self.parts(pieces)?;
        // SAFETY: a msghdr of zeroes is one without address, pieces and control messages.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = count;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the message and its parts outlive the call, which only reads what they point to:
        // memory within the mapping, which is there as long as `self` is. What of it is not in the
        // file makes the call fail.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Puts the pages of the first [`MAPPED_PIECES_MAX`] of these pieces of the file, which have to
    /// lie in the range, into a pipe, and of those as many as there is room for; how many bytes
    /// they have. Nothing is copied: whoever gets them has the file's own pages, as by `sendfile`.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and `WouldBlock` if the pipe has no room.
    pub fn lend(&self, pieces: &[Range<u64>], pipe: &Pipe) -> io::Result<usize> {
        let (parts, count) = self.parts(pieces)?;
        let to = pipe.input().as_raw_fd();
        // SAFETY: the parts outlive the call, which only reads what they point to and takes
        // references to its pages: memory within the mapping, which is there as long as `self` is.
        // What of it is not in the file makes the call fail. The pipe's end is open while it is
        // borrowed.
        let lent = unsafe { libc::vmsplice(to, parts.as_ptr(), count, libc::SPLICE_F_NONBLOCK) };
        usize::try_from(lent).map_err(|_| io::Error::last_os_error())
    }

    /// Where in memory these pieces are, and how many of them that are.
    fn parts(
        &self,
        pieces: &[Range<u64>],
    ) -> io::Result<([libc::iovec; MAPPED_PIECES_MAX], usize)> {
        let nothing = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let mut parts = [nothing; MAPPED_PIECES_MAX];
        let mut count = 0;
        for (part, piece) in parts.iter_mut().zip(pieces) {
            let is_within = self.range.start <= piece.start
                && piece.start <= piece.end
                && piece.end <= self.range.end;
            if !is_within {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            let at = length(&(self.range.start..piece.start));
            *part = libc::iovec {
                iov_base: self.address.wrapping_byte_add(at),
                iov_len: length(piece),
            };
            count += 1;
        }
        Ok((parts, count))
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has an address in it.
        unsafe { libc::munmap(self.address, length(&self.range)) };
    }
}

/// A length in memory: what is mapped is no longer than the address space.
fn length(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    const MAPPED: Range<u64> = 0x1000..0x9000;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn file(bytes: usize) -> (File, Vec<u8>) {
        let content: Vec<u8> = (0..bytes)
            .map(|at| u8::try_from((at % 251 + at / 4096) % 256).unwrap())
            .collect();
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(&content).unwrap();
        (file, content)
    }

    fn received(near: TcpStream, mut far: TcpStream) -> Vec<u8> {
        drop(near);
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn pieces_arrive_in_their_order_and_none_from_outside() {
        let (file, content) = file(0x9000);
        let mapped = MappedRange::new(&file, MAPPED).unwrap();
        let (near, far) = pair();
        let many: Vec<_> = (0..300).map(|at| 0x1000 + at..0x1002 + at).collect();
        let sent = mapped.send(&many, near.as_fd()).unwrap();
        assert_eq!(sent, 2 * MAPPED_PIECES_MAX);
        let two = [0x8fff..0x9000, 0x1000..0x3001];
        assert_eq!(mapped.send(&two, near.as_fd()).unwrap(), 0x2002);
        let backwards = Range {
            start: 0x3000,
            end: 0x2000,
        };
        for wrong in [0xfff..0x2000, 0x8fff..0x9001, backwards] {
            let refused = mapped.send(&[wrong], near.as_fd()).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        }
        let of = |piece: &Range<u64>| {
            content[usize::try_from(piece.start).unwrap()..usize::try_from(piece.end).unwrap()]
                .to_vec()
        };
        let expected = many[..MAPPED_PIECES_MAX].iter().chain(&two);
        assert!(received(near, far) == expected.flat_map(of).collect::<Vec<_>>());
    }

    /// The kernel copies up to the page of the file's end, and then says so; nothing is signalled.
    #[test]
    fn what_a_file_has_no_longer_is_an_error_and_no_signal() {
        let (file, _) = file(0x9000);
        let mapped = MappedRange::new(&file, MAPPED).unwrap();
        file.set_len(0x2800).unwrap();
        let (near, far) = pair();
        let send = |piece: Range<u64>| mapped.send(&[piece], near.as_fd());
        let beyond = send(0x3000..0x3001).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT));
        // Nothing, or what there is.
        let sent = send(0x2000..0x8000).unwrap_or(0);
        assert!(sent <= 0x1000, "{sent}");
        drop(file);
        assert_eq!(send(0x1000..0x1010).unwrap(), 16);
        assert_eq!(received(near, far).len(), sent + 16);
        let pipe = io::pipe().unwrap().0;
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        MappedRange::new(&pipe, MAPPED).unwrap_err();
    }

    /// What is written to a file shows in what was lent of it and is on its way, and does not in
    /// what was copied.
    #[test]
    fn pages_that_are_lent_are_the_files_own() {
        let (file, content) = file(0x9000);
        let mapped = MappedRange::new(&file, MAPPED).unwrap();
        let pipe = Pipe::new().unwrap();
        let (near, far) = pair();
        let pieces = [0x8fff..0x9000, 0x1001..0x3001];
        assert_eq!(mapped.send(&pieces, near.as_fd()).unwrap(), 0x2001);
        assert_eq!(mapped.lend(&pieces, &pipe).unwrap(), 0x2001);
        assert_eq!(pipe.send(near.as_fd(), 0x2001, false).unwrap(), 0x2001);
        file.write_all_at(&[255; 0x9000], 0).unwrap();
        let copied = [&content[0x8fff..], &content[0x1001..0x3001]].concat();
        let expected = [copied, vec![255; 0x2001]].concat();
        assert!(received(near, far) == expected);
    }

    #[test]
    fn no_more_is_lent_than_a_pipe_has_room_for_or_a_file_has() {
        let (file, _) = file(0x9000);
        let mapped = MappedRange::new(&file, MAPPED).unwrap();
        let pipe = Pipe::of_bytes(0x4000).unwrap();
        // Each takes a page of it, however short.
        let parts = [
            0x1000..0x1001,
            0x2000..0x2002,
            0x3000..0x3004,
            0x1000..0x5000,
        ];
        assert_eq!(mapped.lend(&parts, &pipe).unwrap(), 0x1007);
        let full = mapped.lend(&parts, &pipe).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        file.set_len(0x2800).unwrap();
        let pipe = Pipe::new().unwrap();
        let lend = |piece: Range<u64>| mapped.lend(&[piece], &pipe);
        let beyond = lend(0x3000..0x3001).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EFAULT));
        let outside = lend(0xfff..0x2000).unwrap_err();
        assert_eq!(outside.raw_os_error(), Some(libc::EINVAL));
    }
}
