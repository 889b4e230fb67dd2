//! Cue the other way: what a socket has to a file, or to another socket, through a pipe and without
//! the bytes ever leaving the kernel.
//!
//! [`Pipe::fill`] takes what the socket has now and never waits (`splice`: pages are passed on, not
//! copied); [`Pipe::store`] moves it on to the file, which may wait for a disk and is to be called
//! where waiting harms nobody; and [`Pipe::send`] moves it to a socket that does not block.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes that a pipe holds, where the kernel lets it: what an ordinary account may ask for
/// (fs.pipe-max-size).
pub const PIPE_BYTES: usize = 1 << 20;

/// A pipe, whose ends are here.
#[derive(Debug)]
pub struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

/// How what is in a pipe got to a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moved {
    /// By the kernel.
    Spliced,
    /// Read and written, because the file system takes it in no other way.
    Copied,
}

impl Pipe {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn new() -> io::Result<Self> {
        Self::of_bytes(PIPE_BYTES)
    }

    /// One that holds so many bytes, or that many pages' worth of shorter parts of pages, if the
    /// kernel lets it.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn of_bytes(bytes: usize) -> io::Result<Self> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // With less than that each step moves less (pipe(7), pipe-user-pages-soft).
        fcntl_setpipe_size(&to, bytes).unwrap_or_default();
        Ok(Self { from, to })
    }

    /// The end that is written to.
    pub(super) fn input(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// Takes up to `bytes` bytes that the socket has, and that there is room for, and does not
    /// wait; 0 at the socket's end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket has nothing, or the pipe no room; else what the socket says.
    pub fn fill(&self, socket: BorrowedFd<'_>, bytes: u64) -> io::Result<u64> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(PIPE_BYTES);
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let filled = splice(socket, None, &self.to, None, bytes, flags)?;
        Ok(filled as u64)
    }

    /// Moves `bytes` bytes that are in it to the file, at that offset. May wait for a disk.
    ///
    /// # Errors
    ///
    /// What the file's system says. What is in the pipe then is undefined.
    pub fn store(&self, file: &File, offset: u64, bytes: u64) -> io::Result<Moved> {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            match splice(
                &self.from,
                None,
                file,
                Some(&mut at),
                left,
                SpliceFlags::MOVE,
            ) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Nothing can be spliced to a file there.
                Err(rustix::io::Errno::INVAL) if at == offset => {
                    return self.copy(file, offset, bytes);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Moved::Spliced)
    }

    fn copy(&self, file: &File, offset: u64, bytes: u64) -> io::Result<Moved> {
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(0)];
        let mut read = 0;
        while read < buffer.len() {
            match rustix::io::read(&self.from, &mut buffer[read..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                some => read += some,
            }
        }
        file.write_all_at(&buffer, offset)?;
        Ok(Moved::Copied)
    }

    /// Moves up to `bytes` bytes that are in it to a socket that does not block. If more follows at
    /// once, TCP waits for it to fill a packet.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is full; else what it says.
    pub fn send(&self, socket: BorrowedFd<'_>, bytes: u64, has_more: bool) -> io::Result<u64> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, has_more);
        Ok(splice(&self.from, None, socket, None, bytes, flags)? as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server)
    }

    /// Takes what comes, which may be on its way still.
    fn fill(pipe: &Pipe, socket: &TcpStream, bytes: u64) -> io::Result<u64> {
        for _ in 0..2000 {
            match pipe.fill(socket.as_fd(), bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                filled => return filled,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    #[test]
    fn a_socket_is_moved_to_a_file_and_to_another_socket() {
        let ((mut client, server), (out, mut viewer)) = (connected(), connected());
        viewer.set_nonblocking(false).unwrap();
        let pipe = Pipe::new().unwrap();
        let nothing = pipe.fill(server.as_fd(), 10).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"abcdefgh").unwrap();
        // No more than is asked for: what follows is another request's.
        assert_eq!(fill(&pipe, &server, 5).unwrap(), 5);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(pipe.store(&file, 3, 5).unwrap(), Moved::Spliced);
        drop(client);
        assert_eq!(fill(&pipe, &server, 10).unwrap(), 3);
        assert_eq!(pipe.send(out.as_fd(), 3, false).unwrap(), 3);
        assert_eq!(fill(&pipe, &server, 10).unwrap(), 0, "its end");
        let mut stored = [0; 8];
        file.read_exact_at(&mut stored, 0).unwrap();
        assert_eq!(&stored, b"\0\0\0abcde");
        let mut sent = [0; 3];
        viewer.read_exact(&mut sent).unwrap();
        assert_eq!(&sent, b"fgh");
    }

    #[test]
    fn a_file_that_takes_no_pages_gets_a_copy() {
        let (mut client, server) = connected();
        client.write_all(b"abc").unwrap();
        let pipe = Pipe::new().unwrap();
        assert_eq!(fill(&pipe, &server, 3).unwrap(), 3);
        // What is opened to append takes none (splice(2), EINVAL).
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let file = File::options().create(true).append(true).open(&path);
        assert_eq!(pipe.store(&file.unwrap(), 0, 3).unwrap(), Moved::Copied);
        assert_eq!(std::fs::read(path).unwrap(), b"abc");
    }
}
