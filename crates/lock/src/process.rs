//! What belongs to this process and not to a child that was forked from it.
//!
//! One word in a page that the kernel wipes in a forked child (MADV_WIPEONFORK, Linux 4.14).
//! Comparing it costs a load, enters no kernel, and cannot be got round by forking past libc.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use super::Manager;
use crate::memory::page_bytes;

/// Tables of pinned buffers that one process can have at a time: those of the manager and one for
/// each [`Cache`](super::Cache). The watcher of the caches counts as one more.
pub const TABLES_MAX: usize = 4096;

/// The manager of the process that calls.
pub(super) fn manager() -> &'static Manager {
    let word = word();
    let known = word.load(Ordering::Acquire);
    // SAFETY: the word is null or points to a manager that was leaked, by this process.
    if let Some(manager) = unsafe { known.as_ref() } {
        return manager;
    }
    let kept_by = KEPT_BY.load(Ordering::Relaxed);
    if kept_by != 0 && kept_by != std::process::id() {
        // Made by a `clone` past libc, which calls no handler: this is the first that we hear of
        // it.
        close_in_child();
    }
    // The parent's manager, if there was one, stays where it is for the handles that name it.
    let fresh = Box::into_raw(Box::new(Manager::new()));
    match word.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was just leaked.
        Ok(_) => unsafe { &*fresh },
        Err(theirs) => {
            // SAFETY: nobody else has seen it; another thread was faster.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: as above, what the word holds has been leaked.
            unsafe { &*theirs }
        }
    }
}

/// Where the manager of the process that looks is: null in a child that has none yet.
pub(super) fn word() -> &'static AtomicPtr<Manager> {
    static WORD: OnceLock<&'static AtomicPtr<Manager>> = OnceLock::new();
    WORD.get_or_init(|| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let bytes = page_bytes();
        // SAFETY: a new private anonymous mapping touches nothing of ours.
        let page = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED, "there is a page of memory");
        // SAFETY: the page was just mapped; the advice concerns children only.
        let wiped = unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) };
        assert_eq!(
            wiped, 0,
            "Linux 4.14 wipes private anonymous memory on fork"
        );
        // SAFETY: the page is zeroed, aligned, never unmapped, and used only as this type; zero is
        // null.
        unsafe { AtomicPtr::from_ptr(page.cast()) }
    })
}

/// A descriptor that a forked child closes at once.
///
/// Until the last copy of a ring's descriptor is closed, its registrations pin their pages; a child
/// that lives longer than its parent would keep them all.
#[derive(Debug)]
pub(super) struct KeptFd {
    fd: RawFd,
    place: usize,
    kept: u64,
}

impl KeptFd {
    /// `None` if [`TABLES_MAX`] are kept already.
    pub(super) fn new(fd: OwnedFd) -> Option<Self> {
        static HANDLER: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // SAFETY: the handler only exchanges atomics and closes descriptors, both allowed in a
        // forked child.
        HANDLER.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(close_in_child));
        });
        KEPT_BY.store(std::process::id(), Ordering::Relaxed);
        let number = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let kept = number << 32 | u64::from(fd.as_raw_fd().unsigned_abs());
        let place = KEPT.iter().position(|place| {
            place
                .compare_exchange(NONE, kept, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })?;
        let fd = fd.into_raw_fd();
        Some(Self { fd, place, kept })
    }
}

impl AsRawFd for KeptFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl Drop for KeptFd {
    fn drop(&mut self) {
        // A child of fork has closed it already; its number may be somebody else's by now.
        let place = &KEPT[self.place];
        let kept = place.compare_exchange(self.kept, NONE, Ordering::AcqRel, Ordering::Relaxed);
        if kept.is_ok() {
            // SAFETY: the exchange took the descriptor out of the place that owned it.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }
}

/// The descriptors that are kept: [`NONE`], or the descriptor below a number that never comes
/// again, so that one is not taken for a later one with the same descriptor.
static KEPT: [AtomicU64; TABLES_MAX] = [const { AtomicU64::new(NONE) }; TABLES_MAX];

/// The process that keeps them.
static KEPT_BY: AtomicU32 = AtomicU32::new(0);

const NONE: u64 = u64::MAX;

extern "C" fn close_in_child() {
    for place in &KEPT {
        // Only looked at, as most are: each page that a child writes is copied for it.
        if place.load(Ordering::Relaxed) == NONE {
            continue;
        }
        let kept = place.swap(NONE, Ordering::AcqRel);
        if kept != NONE {
            let fd = RawFd::try_from(kept & u64::from(u32::MAX)).unwrap_or(-1);
            // SAFETY: the place owned the descriptor, and nobody in the child can use it any more.
            unsafe { libc::close(fd) };
        }
    }
}
