//! The schedule (k, t) taken literally: a whole file in one entry into the kernel.
//!
//! [`send`] writes the schedule down as one linked chain of the ring, `send k, wait t, send k, wait
//! t, ...`, hands it over in one entry into the kernel, and sleeps in a second until the last byte
//! was taken. It is the nearest that a stock kernel has to the paper's call: the caller sleeps, the
//! kernel keeps the schedule. The pauses are relative, as in the paper: each begins when the set
//! before it was taken, so that a slow peer never gets two sets at once.
//!
//! The bytes come from a mapping of the file, whose pages the kernel copies into the socket;
//! `sendfile` has no opcode, and a splice would go through a kernel thread for each set. A page
//! that is not in memory is waited for here, so this is for callers who have a thread to spare. It
//! is measured; the server does not use it.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, TimeoutFlags, Timespec};
use io_uring::{IoUring, opcode};
use thiserror::Error;

use super::page_bytes;

/// Sets that one chain may have: with a pause between each two they fill the largest ring
/// (io_uring/io_uring.h, `IORING_MAX_ENTRIES`: 32768).
pub const CHAIN_SETS_MAX: usize = 16_384;

/// A chain that has come to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chained {
    /// Sends of k blocks, or of what was left at the end.
    pub sets: usize,
    /// Entries into the kernel: one that hands over the schedule, one that sleeps, one more for
    /// each signal.
    pub crossings: u64,
}

/// Why a chain broke.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The file takes too many sets.
    #[error(
        "{sets} sets are more than the {CHAIN_SETS_MAX} of one chain; send more at a time, or a \
         part of the file"
    )]
    TooLong {
        /// How many it would be.
        sets: usize,
    },
    /// The socket does not wait.
    #[error("the socket is in non-blocking mode, in which a chain would break when it is full")]
    NonBlocking,
    /// The ring cannot be had.
    #[error(
        "io_uring is not available: {0} (Linux 5.16 for IORING_TIMEOUT_ETIME_SUCCESS; \
         kernel.io_uring_disabled=0)"
    )]
    Ring(#[source] io::Error),
    /// The file cannot be mapped.
    #[error(
        "cannot map the file: {0}; it has to be a regular file, and no longer than the address \
         space"
    )]
    Map(#[source] io::Error),
    /// A set was not taken: the peer has gone, or the file has become shorter (`EFAULT`).
    #[error("set {set} of {sets} was not taken: {source}")]
    Broken {
        /// Which, from 0.
        set: usize,
        /// Of how many.
        sets: usize,
        /// What the system said.
        source: io::Error,
    },
}

/// Sends a range of the file, `set_bytes` at a time with a pause after each, on a socket in
/// blocking mode. Sleeps until all of it was taken; a peer that takes nothing is waited for until
/// the socket is shut down.
///
/// # Errors
///
/// See [`ChainError`].
pub fn send(
    file: &File,
    range: Range<u64>,
    socket: BorrowedFd<'_>,
    set_bytes: u32,
    pause: Duration,
) -> Result<Chained, ChainError> {
    let bytes = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let sets = bytes.div_ceil(usize::try_from(set_bytes.max(1)).expect("32 bits"));
    if sets == 0 {
        return Ok(Chained { sets, crossings: 0 });
    }
    if sets > CHAIN_SETS_MAX {
        return Err(ChainError::TooLong { sets });
    }
    if is_non_blocking(socket) {
        return Err(ChainError::NonBlocking);
    }
    let mapping = Mapping::new(file, range.start, bytes).map_err(ChainError::Map)?;
    let links = u32::try_from(2 * sets - 1).expect("fewer than 2^15");
    let mut ring = IoUring::new(links.next_power_of_two()).map_err(ChainError::Ring)?;
    let pause = Timespec::from(pause);
    queue(&mut ring, &mapping, socket, set_bytes, &pause);
    let submitted = ring.submit().map_err(ChainError::Ring)?;
    if submitted < 2 * sets - 1 {
        end_all(&ring, mapping);
        return Err(ChainError::Ring(io::ErrorKind::OutOfMemory.into()));
    }
    let mut crossings = 1;
    let (set, result) = loop {
        // The last link answers if all went well, one before it if it failed; those after it never
        // began, and are not heard of (io_uring/io_uring.c, `REQ_F_SKIP_LINK_CQES`).
        if let Some(answer) = ring.completion().next() {
            let link = usize::try_from(answer.user_data()).expect("an index of a link");
            break (link / 2, answer.result());
        }
        crossings += 1;
        sleep_until_readable(ring.as_raw_fd());
    };
    let source = match u32::try_from(result) {
        Ok(taken) if taken == mapping.set(set, set_bytes).1 => {
            return Ok(Chained { sets, crossings });
        }
        // A part of it, and then nothing: the connection was shut down.
        Ok(_) => io::ErrorKind::ConnectionAborted.into(),
        Err(_) => io::Error::from_raw_os_error(-result),
    };
    Err(ChainError::Broken { set, sets, source })
}

/// Ends what the ring has begun. A ring that is closed does so by itself, but a moment later: until
/// then its sends read at the mapping's addresses, whatever lies there by then.
fn end_all(ring: &IoUring, mapping: Mapping) {
    let cancelled = ring
        .submitter()
        .register_sync_cancel(None, CancelBuilder::any());
    match cancelled {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        // Before Linux 6.0. The addresses are not given to others then.
        Err(_) => mem::forget(mapping),
    }
}

/// Writes the chain down. Link 2i sends set i, link 2i + 1 waits after it.
fn queue(
    ring: &mut IoUring,
    mapping: &Mapping,
    socket: BorrowedFd<'_>,
    set_bytes: u32,
    pause: &Timespec,
) {
    let sets = mapping.bytes.div_ceil(set_bytes as usize);
    let send = |set: usize| {
        let (begin, bytes) = mapping.set(set, set_bytes);
        // MSG_WAITALL: what the socket does not take at once is waited for, or the chain would
        // break.
        opcode::Send::new(Fd(socket.as_raw_fd()), begin, bytes)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .build()
    };
    let wait = || {
        // A time-out answers ETIME, which breaks a chain unless it counts as success.
        opcode::Timeout::new(pause)
            .flags(TimeoutFlags::ETIME_SUCCESS)
            .build()
    };
    // Only the last answers, and any that fails.
    let quiet = Flags::IO_LINK | Flags::SKIP_SUCCESS;
    let mut queue = ring.submission();
    for set in 0..sets {
        let is_last = set == sets - 1;
        let flags = if is_last { Flags::empty() } else { quiet };
        push(
            &mut queue,
            &send(set).flags(flags).user_data(2 * set as u64),
        );
        if !is_last {
            push(
                &mut queue,
                &wait().flags(quiet).user_data(2 * set as u64 + 1),
            );
        }
    }
}

/// Sleeps until the ring has an answer, or a signal comes. Not in the ring itself: that returns
/// whenever a time-out has fired (io_uring/io_uring.c, `io_should_wake`: `cq_timeouts`), so after
/// each pause. In `poll` the kernel does the links' work and goes back to sleep.
fn sleep_until_readable(fd: RawFd) {
    let mut asked = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `asked` is one valid pollfd. What it says does not matter: the caller looks for
    // itself.
    unsafe { libc::poll(&raw mut asked, 1, -1) };
}

fn push(queue: &mut io_uring::SubmissionQueue<'_>, link: &Entry) {
    // SAFETY: what the link points to has to live until it has answered or was cancelled. That is
    // the mapping and the pause, which `send` keeps until the last link has answered, and the
    // socket, which it borrows.
    let pushed = unsafe { queue.push(link) };
    pushed.expect("the ring was made for as many");
}

fn is_non_blocking(socket: BorrowedFd<'_>) -> bool {
    // SAFETY: the descriptor is open as long as it is borrowed; F_GETFL takes no pointers.
    let flags = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// A part of a file, where the kernel can read it.
struct Mapping {
    base: NonNull<libc::c_void>,
    mapped_bytes: usize,
    /// Where the range begins in the first page.
    skip: usize,
    bytes: usize,
}

impl Mapping {
    fn new(file: &File, offset: u64, bytes: usize) -> io::Result<Self> {
        let too_large = || io::Error::from_raw_os_error(libc::EOVERFLOW);
        let skip = offset % page_bytes();
        let at = libc::off_t::try_from(offset - skip).map_err(|_| too_large())?;
        let skip = usize::try_from(skip).expect("less than a page");
        let mapped_bytes = bytes.checked_add(skip).ok_or_else(too_large)?;
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours; the
        // descriptor is open as long as `file` is borrowed, and the mapping outlives it by itself.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped_bytes,
                read,
                shared,
                file.as_raw_fd(),
                at,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: NonNull::new(base).ok_or_else(too_large)?,
            mapped_bytes,
            skip,
            bytes,
        })
    }

    /// Where a set begins and how long it is. Only the kernel reads there: the file may have become
    /// shorter, and then a read of ours would be a SIGBUS.
    fn set(&self, set: usize, set_bytes: u32) -> (*const u8, u32) {
        let begin = set * set_bytes as usize;
        assert!(begin < self.bytes, "a set within the range");
        let left = u32::try_from(self.bytes - begin).unwrap_or(u32::MAX);
        let base = self.base.as_ptr().cast_const().cast::<u8>();
        (base.wrapping_add(self.skip + begin), left.min(set_bytes))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` made; nothing of ours points into it, and what the
        // kernel holds of it, pages in a socket's queue, it holds by itself.
        unsafe { libc::munmap(self.base.as_ptr(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn file(bytes: usize) -> (File, Vec<u8>) {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        let content: Vec<u8> = (0..bytes)
            .map(|at| u8::try_from((at / 7) % 251).unwrap())
            .collect();
        file.write_all(&content).unwrap();
        (file, content)
    }

    #[test]
    fn a_whole_file_and_its_pauses_are_two_crossings() {
        let (near, mut far) = pair();
        let (file, content) = file(500_000);
        let reading = thread::spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            received
        });
        let begin = Instant::now();
        let pause = Duration::from_millis(3);
        let chained = send(&file, 4097..499_999, near.as_fd(), 32_768, pause).unwrap();
        let expected = Chained {
            sets: 16,
            crossings: 2,
        };
        assert_eq!(chained, expected);
        // A pause may be longer, never shorter.
        assert!(begin.elapsed() >= 15 * pause);
        drop(near);
        assert!(reading.join().unwrap() == content[4097..499_999]);
    }

    #[test]
    fn a_full_socket_is_waited_for_and_a_dead_one_breaks_the_chain() {
        let (near, far) = pair();
        let (file, content) = file(16 << 20);
        let other = near.try_clone().unwrap();
        let sending =
            thread::spawn(move || send(&file, 0..16 << 20, other.as_fd(), 1 << 20, Duration::ZERO));
        let mut first = vec![0; 12 << 20];
        (&far).read_exact(&mut first).unwrap();
        assert!(first == content[..12 << 20]);
        // What the socket holds now it holds; the rest meets its end.
        near.shutdown(Shutdown::Both).unwrap();
        drop(far);
        let outcome = sending.join().unwrap();
        assert!(
            matches!(outcome, Ok(_) | Err(ChainError::Broken { sets: 16, .. })),
            "{outcome:?}"
        );
        let (file, _) = self::file(100);
        let broken = send(&file, 0..100, near.as_fd(), 10, Duration::ZERO).unwrap_err();
        let ChainError::Broken {
            set: 0,
            sets: 10,
            source,
        } = broken
        else {
            panic!("{broken:?}");
        };
        let errno = source.raw_os_error();
        assert!(
            matches!(errno, Some(libc::EPIPE | libc::ECONNRESET)),
            "{errno:?}"
        );
    }

    #[test]
    fn a_file_that_is_cut_breaks_the_chain_where_it_ends() {
        let (near, _far) = pair();
        let (file, _) = file(40_960);
        file.set_len(20_480).unwrap();
        let broken = send(&file, 0..40_960, near.as_fd(), 4096, Duration::ZERO).unwrap_err();
        let ChainError::Broken { set: 5, source, .. } = broken else {
            panic!("{broken:?}");
        };
        assert_eq!(source.raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn as_many_sets_as_fit_go_and_one_more_does_not() {
        let (near, mut far) = pair();
        let (file, _) = file(CHAIN_SETS_MAX + 1);
        let reading = thread::spawn(move || far.read_to_end(&mut Vec::new()).unwrap());
        let all = CHAIN_SETS_MAX as u64;
        let chained = send(&file, 0..all, near.as_fd(), 1, Duration::ZERO).unwrap();
        assert_eq!(chained.sets, CHAIN_SETS_MAX);
        let refused = send(&file, 0..all + 1, near.as_fd(), 1, Duration::ZERO);
        assert!(
            matches!(refused, Err(ChainError::TooLong { .. })),
            "{refused:?}"
        );
        assert_eq!(
            send(&file, 5..5, near.as_fd(), 1, Duration::ZERO)
                .unwrap()
                .sets,
            0
        );
        near.set_nonblocking(true).unwrap();
        let refused = send(&file, 0..1, near.as_fd(), 1, Duration::ZERO);
        assert!(
            matches!(refused, Err(ChainError::NonBlocking)),
            "{refused:?}"
        );
        drop(near);
        assert_eq!(reading.join().unwrap(), CHAIN_SETS_MAX);
    }
}
