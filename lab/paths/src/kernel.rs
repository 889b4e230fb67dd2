//! The system calls that the paths make, each counted, interrupted ones made again, full sockets
//! waited for.
//!
//! Nothing here decides what to send. An address handed to the kernel is only read by it: one that
//! is not mapped, or whose file became shorter, is EFAULT and no more.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::Counters;

/// How long a path waits for room in a socket that does not block, or for the kernel to let go of
/// memory.
pub const WAIT_MS_MAX: i32 = 60_000;

/// As much as one `sendfile` moves (linux/fs.h, MAX_RW_COUNT).
pub(super) const SENDFILE_BYTES_MAX: u64 = 0x7fff_f000;

/// The calls of one path, and what it has done so far.
#[derive(Debug, Default)]
pub struct Calls {
    pub(super) counters: Counters,
    /// Pieces are being appended to a datagram, which a failed call undoes: such are not made again
    /// alone.
    pub(super) is_corked: bool,
}

impl Calls {
    /// Makes a call until it is done or fails: again when a signal interrupted it, and when there
    /// is no room in `waits_for`, a socket, after waiting for that.
    pub(super) fn make(
        &mut self,
        waits_for: Option<RawFd>,
        mut call: impl FnMut() -> isize,
    ) -> io::Result<usize> {
        loop {
            self.counters.crossings += 1;
            let planted = plant::errno(waits_for.is_some());
            if let Ok(result) = usize::try_from(planted.unwrap_or_else(&mut call)) {
                return Ok(result);
            }
            let error = io::Error::last_os_error();
            match (error.raw_os_error(), waits_for) {
                _ if self.is_corked => return Err(error),
                (Some(libc::EINTR), _) => {}
                (Some(libc::EAGAIN), Some(socket)) => self.wait(socket, libc::POLLOUT)?,
                _ => return Err(error),
            }
        }
    }

    /// Waits until a socket has room (POLLOUT) or something in its error queue (0).
    pub(super) fn wait(&mut self, socket: RawFd, events: libc::c_short) -> io::Result<()> {
        self.counters.waits += 1;
        let mut poll = libc::pollfd {
            fd: socket,
            events,
            revents: 0,
        };
        let ready = self.make(None, || {
            // SAFETY: `poll` is one valid pollfd, alive during the call.
            unsafe { libc::poll(&raw mut poll, 1, WAIT_MS_MAX) as isize }
        })?;
        if ready == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Fills `buffer` from the file.
    pub(super) fn read(&mut self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            let (at, bytes) = (rest.as_mut_ptr(), plant::short(rest.len()));
            let offset = position(offset + done as u64)?;
            let count = self.make(None, || {
                // SAFETY: `rest` is writable for `bytes` and borrowed for the whole call.
                unsafe { libc::pread(file.as_raw_fd(), at.cast(), bytes, offset) }
            })?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += count;
        }
        Ok(())
    }

    /// Reads into these places, in order, from one place of the file; bytes read.
    ///
    /// # Safety
    ///
    /// Each place is writable memory that nobody else reads or writes during the call.
    pub(super) unsafe fn read_scattered(
        &mut self,
        file: &File,
        places: &[libc::iovec],
        offset: u64,
    ) -> io::Result<usize> {
        let count = c_int(places.len());
        let offset = position(offset)?;
        self.make(None, || {
            // SAFETY: by this function's condition the places are ours to write to.
            unsafe { libc::preadv(file.as_raw_fd(), places.as_ptr(), count, offset) }
        })
    }

    /// `send`; bytes taken, which over TCP may be fewer.
    pub(super) fn send(
        &mut self,
        socket: RawFd,
        bytes: libc::iovec,
        flags: i32,
    ) -> io::Result<usize> {
        self.make(Some(socket), || {
            // SAFETY: the kernel only reads the bytes; see the module.
            unsafe {
                libc::send(
                    socket,
                    bytes.iov_base,
                    bytes.iov_len,
                    flags | libc::MSG_NOSIGNAL,
                )
            }
        })
    }

    /// `write`s all of it to a stream, or sends it as one datagram.
    pub(super) fn write_all(&mut self, socket: RawFd, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let bytes = self.stream_limit(socket, rest.len());
            let count = self.make(Some(socket), || {
                // SAFETY: `rest` is readable for `bytes` during the call.
                unsafe { libc::write(socket, rest.as_ptr().cast(), bytes) }
            })?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// `send`s all of it to a stream, or as one datagram.
    pub(super) fn send_all(&mut self, socket: RawFd, mut bytes: libc::iovec) -> io::Result<()> {
        while bytes.iov_len > 0 {
            let part = libc::iovec {
                iov_len: self.stream_limit(socket, bytes.iov_len),
                ..bytes
            };
            let count = self.send(socket, part, 0)?;
            bytes.iov_base = bytes.iov_base.wrapping_byte_add(count);
            bytes.iov_len -= count;
        }
        Ok(())
    }

    /// `sendmsg` of these pieces together, as one datagram or train.
    pub(super) fn send_pieces(
        &mut self,
        socket: RawFd,
        pieces: &[libc::iovec],
        flags: i32,
    ) -> io::Result<usize> {
        let message = message(pieces);
        self.make(Some(socket), || {
            // SAFETY: the message names `pieces`, alive during the call; the kernel only reads what
            // they name.
            unsafe { libc::sendmsg(socket, &raw const message, flags | libc::MSG_NOSIGNAL) }
        })
    }

    /// `writev`, as one datagram.
    pub(super) fn write_pieces(
        &mut self,
        socket: RawFd,
        pieces: &[libc::iovec],
    ) -> io::Result<usize> {
        let count = c_int(pieces.len());
        self.make(Some(socket), || {
            // SAFETY: the pieces are alive during the call; the kernel only reads what they name.
            unsafe { libc::writev(socket, pieces.as_ptr(), count) }
        })
    }

    /// `sendfile`: bytes moved, fewer over TCP when the socket is full.
    pub(super) fn send_file(
        &mut self,
        socket: RawFd,
        file: RawFd,
        offset: u64,
        bytes: u64,
    ) -> io::Result<usize> {
        let bytes = usize::try_from(bytes.min(SENDFILE_BYTES_MAX)).unwrap_or(usize::MAX);
        let bytes = self.stream_limit(socket, bytes);
        let start = position(offset)?;
        let count = self.make(Some(socket), || {
            let mut from = start;
            // SAFETY: `from` is writable during the call; the descriptors are the caller's.
            unsafe { libc::sendfile(socket, file, &raw mut from, bytes) }
        })?;
        match count {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }

    /// Lends these bytes to the pipe, by reference.
    pub(super) fn lend(&mut self, pipe: &Pipe, bytes: libc::iovec) -> io::Result<usize> {
        self.make(None, || {
            // SAFETY: one piece, alive during the call; the kernel takes references to the pages it
            // names.
            unsafe { libc::vmsplice(pipe.write.as_raw_fd(), &raw const bytes, 1, 0) }
        })
    }

    /// Moves what is in the pipe to the socket.
    pub(super) fn drain(&mut self, pipe: &Pipe, socket: RawFd, bytes: usize) -> io::Result<usize> {
        self.make(Some(socket), || {
            // SAFETY: no offsets are given, as a pipe and a socket have none.
            unsafe {
                libc::splice(
                    pipe.read.as_raw_fd(),
                    ptr::null_mut(),
                    socket,
                    ptr::null_mut(),
                    bytes,
                    0,
                )
            }
        })
    }

    /// Sets an option that is a number.
    pub(super) fn set(
        &mut self,
        socket: RawFd,
        level: i32,
        option: i32,
        value: i32,
    ) -> io::Result<()> {
        self.make(None, || {
            let length = INT_BYTES;
            // SAFETY: `value` is readable for the length given.
            unsafe {
                libc::setsockopt(socket, level, option, (&raw const value).cast(), length) as isize
            }
        })
        .map(drop)
    }

    /// Cuts what is sent from now on into packets of `bytes`; 0 ends that.
    pub(super) fn segment(&mut self, socket: RawFd, bytes: usize) -> io::Result<()> {
        self.set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, c_int(bytes))
    }

    /// Holds what is sent back, or lets it go as one datagram.
    pub(super) fn cork(&mut self, socket: RawFd, is_held: bool) -> io::Result<()> {
        self.set(socket, libc::SOL_UDP, libc::UDP_CORK, is_held.into())
    }

    /// Lets the socket have as much under way as may be: see
    /// [`onrush_sys::path::widen_send_buffer`].
    pub(super) fn widen(&mut self, socket: RawFd) -> io::Result<()> {
        let bytes = onrush_sys::path::SEND_BUFFER_BYTES;
        self.set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
            .or_else(|_| self.set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))
    }

    /// Whether it is TCP, as far as can be told.
    pub(super) fn is_stream(&mut self, socket: RawFd) -> bool {
        self.counters.crossings += 1;
        is_stream(socket)
    }

    /// Bytes of a UDP payload that fit the path MTU that a connected socket knows; 0 if it knows
    /// none.
    pub(super) fn whole_bytes_max(&mut self, socket: RawFd) -> usize {
        let (level, name, overhead_bytes) =
            match self.ask(socket, libc::SOL_SOCKET, libc::SO_DOMAIN) {
                Some(libc::AF_INET) => (libc::IPPROTO_IP, libc::IP_MTU, 28),
                _ => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 48),
            };
        let mtu = self.ask(socket, level, name).unwrap_or(0);
        usize::try_from(mtu).map_or(0, |mtu| mtu.saturating_sub(overhead_bytes))
    }

    /// Whether what is sent is cut into packets (UDP_SEGMENT), by whoever used the socket before.
    pub(super) fn is_segmented(&mut self, socket: RawFd) -> bool {
        let bytes = self.ask(socket, libc::SOL_UDP, libc::UDP_SEGMENT);
        bytes.is_some_and(|bytes| bytes > 0)
    }

    fn ask(&mut self, socket: RawFd, level: i32, name: i32) -> Option<i32> {
        self.counters.crossings += 1;
        option(socket, level, name)
    }

    /// How much of `bytes` to hand over: tests of streams ask for less at times.
    fn stream_limit(&self, socket: RawFd, bytes: usize) -> usize {
        if cfg!(test) && is_stream(socket) {
            plant::short(bytes)
        } else {
            bytes
        }
    }
}

/// A pipe, for moving pages by reference.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// A pipe with room for the pages of the largest packet, so that lending it one never waits.
    pub(super) fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and nobody else's.
        let read = unsafe { OwnedFd::from_raw_fd(ends[0]) };
        // SAFETY: just opened, and nobody else's.
        let write = unsafe { OwnedFd::from_raw_fd(ends[1]) };
        // SAFETY: F_SETPIPE_SZ takes a number.
        if unsafe { libc::fcntl(ends[1], libc::F_SETPIPE_SZ, PIPE_BYTES) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { read, write })
    }
}

/// Bytes of the value of an option that is a number.
const INT_BYTES: libc::socklen_t = 4;

/// 32 pages; a packet touches 17 at the most.
const PIPE_BYTES: i32 = 128 << 10;

/// Whether it is TCP, as far as can be told. Not counted: for those who send nothing.
pub(super) fn is_stream(socket: RawFd) -> bool {
    option(socket, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

fn option(socket: RawFd, level: i32, name: i32) -> Option<i32> {
    let mut value = 0i32;
    let mut length = INT_BYTES;
    let at = (&raw mut value).cast();
    // SAFETY: `value` is writable for the length given, which is writable itself.
    let result = unsafe { libc::getsockopt(socket, level, name, at, &raw mut length) };
    (result == 0).then_some(value)
}

/// A message of these pieces, without address or control data.
pub(super) fn message(pieces: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid (and empty).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len();
    message
}

pub(super) fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

pub(super) fn c_int(count: usize) -> i32 {
    i32::try_from(count).expect("the limits on packets and trains are far below 2^31")
}

/// Troubles that tests plant: an errno instead of every so many calls, and fewer bytes than asked
/// for.
#[cfg(not(test))]
pub(super) mod plant {
    #[inline]
    pub(crate) fn errno(_waits: bool) -> Option<isize> {
        None
    }

    #[inline]
    pub(crate) fn refusal() -> i32 {
        0
    }

    #[inline]
    pub(crate) fn short(bytes: usize) -> usize {
        bytes
    }
}

#[cfg(test)]
pub(super) mod plant {
    use std::cell::Cell;

    thread_local! {
        static ERRNO: Cell<(i32, u32, u64)> = const { Cell::new((0, 0, 0)) };
        static SHORT: Cell<bool> = const { Cell::new(false) };
    }

    /// On this thread one in `every` calls answers `errno`, by chance, but the same each time; 0
    /// ends that.
    pub(crate) fn every(every: u32, errno: i32) {
        ERRNO.set((errno, every, 1));
    }

    /// On this thread streams and reads get fewer bytes than they asked for, or no longer.
    pub(crate) fn shorten(is_short: bool) {
        SHORT.set(is_short);
    }

    /// What the next call answers instead of being made. Only calls that wait for room can lack it.
    pub(crate) fn errno(waits: bool) -> Option<isize> {
        let (errno, every, mut state) = ERRNO.get();
        if every == 0 || (errno == libc::EAGAIN && !waits) {
            return None;
        }
        // Not by counting: what is begun anew could fail at the same place for ever.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ERRNO.set((errno, every, state));
        if !state.is_multiple_of(every.into()) {
            return None;
        }
        // SAFETY: no conditions.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: the calling thread's own errno.
        unsafe { place.write(errno) };
        Some(-1)
    }

    /// What the next entry of a ring is answered instead of being carried out; 0 for nothing.
    pub(crate) fn refusal() -> i32 {
        match errno(true) {
            Some(_) => ERRNO.get().0,
            None => 0,
        }
    }

    pub(crate) fn short(bytes: usize) -> usize {
        if SHORT.get() {
            bytes.div_ceil(3)
        } else {
            bytes
        }
    }
}
