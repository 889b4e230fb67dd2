//! The watcher: hears, before the caller goes on, that memory was unmapped, moved or discarded.
//!
//! Userfaultfd tells its reader of `munmap`, `mmap` over a mapping, `mremap`, `brk`, MADV_DONTNEED
//! and MADV_FREE of a registered range (UFFD_FEATURE_EVENT_*), whoever called them and however, and
//! lets the caller go on only when the event has been read. Ranges are registered for write
//! protection and nothing is ever protected, so that no page fault is intercepted and no privilege
//! is needed.
//!
//! The one idea: the watcher *announces* before it reads. Whoever returns from a call that changed
//! a mapping finds the announcement made, though its meaning may still be on the way to the log. So
//! a look at one counter is enough to know that nothing has happened, and only somebody who sees it
//! changed has to wait.
//!
//! The watcher never waits for anybody and never allocates: the thread that it keeps waiting may be
//! inside the allocator.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use announcements::Announcements;

use super::error::LockError;
use super::intervals::{Intervals, Residency};
use super::process::KeptFd;
use super::{Kind, addresses, page_numbers};

mod announcements;
#[cfg(test)]
mod model_tests;

mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::thread::yield_now;
}

/// Events that can be logged and not yet taken in by a cache. One that lags further forgets
/// everything.
pub const EVENTS_MAX: usize = 1024;

/// What has happened to watched memory, for any number of readers.
pub(super) struct Watch {
    fd: KeptFd,
    /// Registration does not nest either: how many watch each page.
    watched: Mutex<Intervals>,
    /// Made before events are read, and settled when these have been logged.
    announcements: Announcements,
    log: Mutex<Log>,
}

struct Log {
    /// Events ever logged; the last [`EVENTS_MAX`] are in `ranges`, at their number modulo its
    /// length.
    events: u64,
    ranges: [Change; EVENTS_MAX],
}

/// What became of some addresses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Change {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The kernel tells of a discard before it does it, of everything else when it is done.
    pub(super) is_ahead: bool,
}

/// How far a reader has read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    settled: u64,
    events: u64,
}

/// What a reader has missed.
pub(super) enum News {
    /// These addresses are not what they were.
    Changes(Vec<Change>),
    /// Too much to tell.
    Everything,
}

impl Watch {
    /// Starts the watcher of this process.
    pub(super) fn start() -> io::Result<&'static Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: userfaultfd has no preconditions.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = KeptFd::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let fd = fd.ok_or_else(|| io::Error::other(LockError::Tables))?;
        let mut api = Api {
            api: API,
            features: EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP,
            ioctls: 0,
        };
        // SAFETY: UFFDIO_API reads and writes a `struct uffdio_api`, which `api` is.
        unsafe { control(&fd, UFFDIO_API, &mut api) }?;
        let watch: &'static Self = Box::leak(Box::new(Self {
            fd,
            watched: Mutex::default(),
            announcements: Announcements::new(),
            log: Mutex::new(Log {
                events: 0,
                ranges: [Change::default(); EVENTS_MAX],
            }),
        }));
        let started = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&started);
        // A thread inherits what is blocked: no signal ever finds it in between.
        let blocked = BlockedSignals::all();
        let thread = thread::Builder::new()
            .name("onrush-watch".to_owned())
            .stack_size(64 << 10)
            .spawn(move || {
                theirs.wait();
                watch.listen();
            });
        drop(blocked);
        thread?;
        // A thread maps memory when it starts. From here on it leaves the process's mappings alone.
        started.wait();
        Ok(watch)
    }

    /// Watches `bytes`, whole pages, once more. Only anonymous memory and memory files can be.
    pub(super) fn watch(&self, bytes: &Range<usize>) -> io::Result<()> {
        let mut watched = lock(&self.watched);
        let mut argument = Register {
            range: UffdRange::of(bytes),
            mode: MODE_WRITE_PROTECT,
            ioctls: 0,
        };
        // Always, not only for what is not watched yet: the range may have been mapped anew.
        // SAFETY: UFFDIO_REGISTER reads and writes a `struct uffdio_register`, which `argument` is.
        // Nothing is write-protected, so the range behaves as before.
        unsafe { control(&self.fd, UFFDIO_REGISTER, &mut argument) }?;
        watched.add(page_numbers(bytes), Kind::Resident);
        Ok(())
    }

    /// Watches `bytes` once less.
    pub(super) fn unwatch(&self, bytes: &Range<usize>) {
        let mut watched = lock(&self.watched);
        let pages = page_numbers(bytes);
        watched.remove(pages.clone(), Kind::Resident);
        for (run, residency) in watched.residency(pages) {
            if residency == Residency::Unlocked {
                let mut range = UffdRange::of(&addresses(&run));
                // What is no longer mapped is no longer watched either: an error means nothing is
                // left to do. SAFETY: UFFDIO_UNREGISTER reads a `struct uffdio_range`, which
                // `range` is.
                drop(unsafe { control(&self.fd, UFFDIO_UNREGISTER, &mut range) });
            }
        }
    }

    /// Here and now, for a reader that knows nothing yet.
    pub(super) fn position(&self) -> Position {
        let log = lock(&self.log);
        Position {
            settled: self.announcements.settled(),
            events: log.events,
        }
    }

    /// Whether nothing has happened since `position`. One load.
    #[inline]
    pub(super) fn is_quiet(&self, position: Position) -> bool {
        self.announcements.are_none_since(position.settled)
    }

    /// What has happened since `position`, which moves on.
    pub(super) fn news(&self, position: &mut Position) -> News {
        self.announcements.wait_until_settled();
        let mut missed = [Change::default(); EVENTS_MAX];
        let (before, settled, now) = {
            // No allocation while the watcher may want the log.
            let log = lock(&self.log);
            missed.copy_from_slice(&log.ranges);
            (position.events, self.announcements.settled(), log.events)
        };
        *position = Position {
            settled,
            events: now,
        };
        if now - before > EVENTS_MAX as u64 {
            return News::Everything;
        }
        News::Changes((before..now).map(|n| missed[place(n)]).collect())
    }

    /// The watcher's thread. It ends with the process.
    fn listen(&self) {
        loop {
            let mut poll = libc::pollfd {
                fd: self.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: `poll` is one valid pollfd.
            unsafe { libc::poll(&raw mut poll, 1, -1) };
            let announced = self.announce();
            let mut messages = [Message::default(); 16];
            // SAFETY: the kernel writes at most the size of `messages`, whole messages of that
            // layout.
            let read = unsafe {
                libc::read(
                    self.fd.as_raw_fd(),
                    messages.as_mut_ptr().cast(),
                    size_of_val(&messages),
                )
            };
            let count = usize::try_from(read).unwrap_or(0) / size_of::<Message>();
            {
                let mut log = lock(&self.log);
                for message in &messages[..count] {
                    log.push(message.change());
                }
                // Within the log's lock, so that a reader that sees it sees the events too, and
                // only these.
                self.announcements.settle(announced);
            }
        }
    }

    #[cfg(not(test))]
    fn announce(&self) -> u64 {
        self.announcements.announce(1)
    }

    /// In a test that asks for it the watcher reads and tells nobody: the sends must notice.
    #[cfg(test)]
    fn announce(&self) -> u64 {
        let deaf = super::tests::WATCHER_IS_DEAF.load(Ordering::Relaxed);
        self.announcements.announce(u64::from(!deaf))
    }
}

/// All signals, which this thread does not get as long as this lives.
///
/// The watcher gets none at all. A handler of the program's that ran on it, and unmapped watched
/// memory there, would wait for the watcher, which it is.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        // SAFETY: all zeros is a valid value of this plain C structure.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: it writes a set to its argument.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: it reads the first set and writes the second; SIG_BLOCK is a way that there is,
        // so that it cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
        Self { before }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: it reads the set that this thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

impl Log {
    fn push(&mut self, change: Change) {
        if change.start < change.end {
            self.ranges[place(self.events)] = change;
            self.events += 1;
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("announcements", &self.announcements)
            .finish_non_exhaustive()
    }
}

fn place(event: u64) -> usize {
    usize::try_from(event % EVENTS_MAX as u64).expect("a small number")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct UffdRange {
    start: u64,
    len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: UffdRange,
    mode: u64,
    ioctls: u64,
}

/// `struct uffd_msg`: three words of arguments behind the event's number.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    arguments: [u64; 3],
}

const _: () = assert!(size_of::<Message>() == 32);

impl Message {
    /// The addresses that are not what they were, or none.
    fn change(&self) -> Change {
        let [first, second, third] = self.arguments.map(|a| usize::try_from(a).unwrap_or(0));
        let (start, end) = match self.event {
            // From, to, length. What lay at the new place was reported as unmapped.
            EVENT_NUMBER_REMAP => (first, first.saturating_add(third)),
            EVENT_NUMBER_REMOVE | EVENT_NUMBER_UNMAP => (first, second),
            _ => (0, 0),
        };
        Change {
            start,
            end,
            is_ahead: self.event == EVENT_NUMBER_REMOVE,
        }
    }
}

impl UffdRange {
    fn of(bytes: &Range<usize>) -> Self {
        Self {
            start: bytes.start as u64,
            len: bytes.len() as u64,
        }
    }
}

// include/uapi/linux/userfaultfd.h
const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xAA;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
const MODE_WRITE_PROTECT: u64 = 1 << 1;
const EVENT_NUMBER_REMAP: u8 = 0x14;
const EVENT_NUMBER_REMOVE: u8 = 0x15;
const EVENT_NUMBER_UNMAP: u8 = 0x16;
const UFFDIO_API: libc::Ioctl = read_write::<Api>(0x3F);
const UFFDIO_REGISTER: libc::Ioctl = read_write::<Register>(0x00);
/// `_IOR`: the kernel's name for what it reads from us.
const UFFDIO_UNREGISTER: libc::Ioctl = request::<UffdRange>(2, 0x01);

const fn read_write<T>(number: libc::Ioctl) -> libc::Ioctl {
    request::<T>(3, number)
}

const fn request<T>(direction: libc::Ioctl, number: libc::Ioctl) -> libc::Ioctl {
    direction << 30 | (size_of::<T>() as libc::Ioctl) << 16 | 0xAA << 8 | number
}

/// # Safety
///
/// `argument` must be what the request reads and writes.
unsafe fn control<T>(fd: &KeptFd, request: libc::Ioctl, argument: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise; the argument is valid for the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut *argument) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
