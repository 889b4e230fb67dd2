//! Cue: a file to a stream socket, without the bytes ever leaving the kernel.
//!
//! [`step`] moves what the socket takes now (`sendfile`), [`is_resident`] tells whether that would
//! have to wait for a disk, and [`warm`] waits for the disk where waiting harms nobody. Together
//! they let one thread serve many: it never sleeps in a system call. Nothing here decides how much
//! is due, or when.
//!
//! `sendfile` and not the ring, because there is no such opcode: `IORING_OP_SPLICE` always runs on
//! a kernel worker (io_uring/splice.c, `io_splice`: `REQ_F_FORCE_ASYNC`), which costs a change of
//! thread for each block where `sendfile` costs a crossing. What the ring does better is a whole
//! schedule in one entry: [`chain`].

pub mod chain;
pub mod mapped;
pub mod pipe;

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes that one read-ahead call is sure to read: the kernel cuts longer ones to the device's
/// read-ahead, of which this is the default (mm/readahead.c, `force_page_cache_ra`;
/// VM_READAHEAD_PAGES).
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// The same on every architecture (include/uapi/asm-generic/unistd.h); the libc crate lacks it on
/// some.
const SYS_CACHESTAT: libc::c_long = 451;

/// What one step did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// Bytes that the socket took.
    pub sent_bytes: u64,
    /// Why it ended.
    pub end: StepEnd,
}

impl Step {
    /// A step that was not made.
    pub const NOTHING: Self = Self {
        sent_bytes: 0,
        end: StepEnd::Done,
    };

    /// A step that was not made, because nothing can be sent now.
    pub const FULL: Self = Self {
        sent_bytes: 0,
        end: StepEnd::Full,
    };
}

/// Why a step ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StepEnd {
    /// All that was asked for was taken.
    Done,
    /// The socket is full. An edge-triggered wait is sure to see it become writable.
    Full,
    /// The file ends here, before the bytes asked for.
    EndOfFile,
}

/// Moves up to `bytes` bytes at `offset` of the file to a socket that does not block. Blocks itself
/// only where the file's bytes are not in memory.
///
/// # Errors
///
/// What `sendfile` says: of the socket `EPIPE`, `ECONNRESET` and their like, of the file `EIO` and
/// others. What was moved before an error is told by the step that ends with it, not by the error:
/// the error is met again by the next step.
pub fn step(
    file: BorrowedFd<'_>,
    offset: u64,
    bytes: u64,
    socket: BorrowedFd<'_>,
) -> io::Result<Step> {
    let mut sent_bytes = 0;
    loop {
        let left = bytes - sent_bytes;
        if left == 0 {
            return Ok(Step {
                sent_bytes,
                end: StepEnd::Done,
            });
        }
        let end = match sendfile(file, offset + sent_bytes, left, socket) {
            Ok(0) => StepEnd::EndOfFile,
            // Less than asked for is a full socket most of the time, but the end of the file or a
            // signal may be behind it. Asking is cheaper than another try, which fills a pipe
            // before it fails, and it makes the kernel tell of the room to come (net/ipv4/tcp.c,
            // `tcp_poll`: SOCK_NOSPACE).
            Ok(sent) if sent < left => {
                sent_bytes += sent;
                if is_writable(socket)? {
                    continue;
                }
                StepEnd::Full
            }
            Ok(sent) => {
                sent_bytes += sent;
                StepEnd::Done
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => StepEnd::Full,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if sent_bytes > 0 => StepEnd::Done,
            Err(error) => return Err(error),
        };
        return Ok(Step { sent_bytes, end });
    }
}

/// Whether these bytes of the file are in memory, so that a step over them would not wait for a
/// disk. Never waits itself. `false` also where the kernel does not tell (`cachestat` is of Linux
/// 6.5, and since 6.14 refuses to tell of files that are somebody else's; not every file system
/// knows `RWF_NOWAIT`).
#[must_use]
pub fn is_resident(file: &File, offset: u64, bytes: u64) -> bool {
    let Some(last) = (offset + bytes).checked_sub(1) else {
        return true;
    };
    match cached_pages(file, offset, bytes) {
        Some(pages) if pages <= last / page_bytes() - offset / page_bytes() => false,
        // In the cache is not read yet: pages are put there when the disk is asked for them, and
        // are filled in order. So the last one speaks for all.
        Some(_) => matches!(
            probe(file, last, libc::RWF_NOWAIT),
            Ok(()) | Err(libc::EOPNOTSUPP)
        ),
        None => (offset..last)
            .step_by(usize::try_from(READ_AHEAD_BYTES).expect("128 KiB"))
            .chain([last])
            .all(|at| probe(file, at, libc::RWF_NOWAIT).is_ok()),
    }
}

/// Brings these bytes of the file into memory, and waits until they are there. To be called on a
/// thread that may wait. Ends early, and well, where the file does.
///
/// # Errors
///
/// What the disk says, `EIO` most likely.
pub fn warm(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset.saturating_add(bytes);
    // Ask for all of it before waiting for any, so that the disk always has something to do.
    for at in blocks(offset, end) {
        read_ahead(file, at, READ_AHEAD_BYTES.min(end - at));
    }
    for at in blocks(offset, end) {
        let last = (at + READ_AHEAD_BYTES).min(end) - 1;
        probe(file, last, 0).map_err(io::Error::from_raw_os_error)?;
    }
    Ok(())
}

/// Tells the kernel not to read ahead of a file by itself, whose thread would have to submit the
/// reads: [`warm`] does it instead. Holds for all that share the descriptor.
pub fn leave_reading_to_warm(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes no pointers.
    // Advice may be refused; then the kernel reads ahead as well.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

/// Bytes that the socket holds and its peer has not acknowledged yet (`SIOCOUTQ`); 0 if it does not
/// tell.
#[must_use]
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as it is borrowed; TIOCOUTQ, which is SIOCOUTQ, writes
    // an int.
    let r = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if r == 0 {
        u64::try_from(bytes).unwrap_or(0)
    } else {
        0
    }
}

fn blocks(offset: u64, end: u64) -> impl Iterator<Item = u64> {
    (offset..end).step_by(usize::try_from(READ_AHEAD_BYTES).expect("128 KiB"))
}

fn sendfile(
    file: BorrowedFd<'_>,
    offset: u64,
    bytes: u64,
    socket: BorrowedFd<'_>,
) -> io::Result<u64> {
    let mut offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: both descriptors are open as long as they are borrowed; `offset` is readable and
    // writable.
    let sent =
        unsafe { libc::sendfile(socket.as_raw_fd(), file.as_raw_fd(), &raw mut offset, bytes) };
    u64::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Whether a socket takes something now. If not, an edge-triggered wait is sure to see it become
/// writable (net/ipv4/tcp.c, `tcp_poll`: SOCK_NOSPACE).
///
/// # Errors
///
/// What `poll` says.
pub fn is_writable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut asked = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: `asked` is one valid pollfd; a time-out of 0 does not wait.
    match unsafe { libc::poll(&raw mut asked, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // Errors and hang-ups are writable: the next try tells of them.
        ready => Ok(ready > 0),
    }
}

/// How many pages of the range are in the cache, filled or not; `None` if the kernel does not tell.
fn cached_pages(file: &File, offset: u64, bytes: u64) -> Option<u64> {
    // include/uapi/linux/mman.h: cachestat_range and cachestat.
    let range = [offset, bytes];
    let mut counts = [0u64; 5];
    // SAFETY: `range` is two and `counts` five u64, as the two structures are; both outlive the
    // call. The descriptor is open as long as `file` is borrowed. No flags are defined.
    let r = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0,
        )
    };
    (r == 0).then_some(counts[0])
}

/// Reads the byte at `at`, if there is one. Errors: the errno; with `RWF_NOWAIT` `EAGAIN` if it is
/// not in memory.
fn probe(file: &File, at: u64, flags: i32) -> Result<(), i32> {
    let at = libc::off_t::try_from(at).map_err(|_| libc::EOVERFLOW)?;
    let mut byte = 0u8;
    let piece = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed; `piece` describes one
        // writable byte, and both outlive the call.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const piece, 1, at, flags) };
        if read >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            errno => return Err(errno.unwrap_or(libc::EIO)),
        }
    }
}

fn read_ahead(file: &File, offset: u64, bytes: u64) {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), usize::try_from(bytes)) else {
        return;
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes no pointers.
    // Where it is refused the reads that follow do all the work.
    unsafe { libc::readahead(file.as_raw_fd(), offset, bytes) };
}

fn page_bytes() -> u64 {
    // SAFETY: takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("every Linux has a page size")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::fs::advise_done;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// A file of so many bytes on a disk.
    fn file(bytes: usize) -> File {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn a_step_tells_done_full_and_end_apart() {
        let (near, far) = pair();
        let file = file(8 << 20);
        let done = step(file.as_fd(), 5, 1000, near.as_fd()).unwrap();
        let expected = Step {
            sent_bytes: 1000,
            end: StepEnd::Done,
        };
        assert_eq!(done, expected);
        let end = step(file.as_fd(), (8 << 20) - 10, 1000, near.as_fd()).unwrap();
        assert_eq!((end.sent_bytes, end.end), (10, StepEnd::EndOfFile));
        let full = std::iter::repeat_with(|| step(file.as_fd(), 0, 8 << 20, near.as_fd()).unwrap())
            .take(64)
            .find(|step| step.end == StepEnd::Full);
        assert!(full.is_some(), "nobody reads, and it never fills");
        assert!(unacknowledged_bytes(near.as_fd()) > 0);
        drop(far);
        // A process that another test has forked may have the far end for a moment.
        let refused = (0..2000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            step(file.as_fd(), 0, 1, near.as_fd()).err()
        });
        let errno = refused.and_then(|error| error.raw_os_error());
        assert!(
            matches!(errno, Some(libc::ECONNRESET | libc::EPIPE)),
            "{errno:?}"
        );
    }

    #[test]
    fn cold_is_told_from_resident_and_warming_mends_it() {
        let file = file(3 << 20);
        assert!(is_resident(&file, 0, 3 << 20));
        advise_done(&file, 0, 0);
        // The kernel may keep what somebody else holds just now, never all of it.
        assert!(!is_resident(&file, 0, 3 << 20), "still all in memory");
        warm(&file, 1 << 20, 1 << 20).unwrap();
        assert!(is_resident(&file, 1 << 20, 1 << 20));
        assert!(!is_resident(&file, 0, 3 << 20), "only what was asked for");
        // Both ends off the pages' bounds.
        warm(&file, 100, (1 << 20) + 1).unwrap();
        assert!(is_resident(&file, 4095, (1 << 20) - 4000));
        assert!(is_resident(&file, 7, 0));
        // Beyond the end there is nothing to wait for.
        warm(&file, 2 << 20, 9 << 20).unwrap();
        assert!(is_resident(&file, 0, 3 << 20));
    }

    #[test]
    fn where_the_cache_is_not_told_the_probes_tell_as_much() {
        let file = file(1 << 20);
        let probed = |file: &File| probe(file, (1 << 20) - 1, libc::RWF_NOWAIT);
        assert_eq!(probed(&file), Ok(()));
        leave_reading_to_warm(&file);
        // The kernel keeps what somebody else holds just now.
        let is_cold = (0..2000).any(|_| {
            advise_done(&file, 0, 0);
            std::thread::sleep(std::time::Duration::from_millis(1));
            probed(&file) == Err(libc::EAGAIN)
        });
        assert!(is_cold, "{:?}", probed(&file));
        warm(&file, 0, 1 << 20).unwrap();
        assert_eq!(probed(&file), Ok(()));
        assert_eq!(
            probe(&file, 5 << 20, libc::RWF_NOWAIT),
            Ok(()),
            "no byte, no wait"
        );
    }
}
