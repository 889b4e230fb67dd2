//! What belongs to this process and not to a child that was forked from it.
//!
//! One word in a page that the kernel wipes in a forked child (MADV_WIPEONFORK, Linux 4.14). Comparing it
//! costs a load, enters no kernel, and can not be got round by forking past libc.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::Manager;
use crate::memory::page_bytes;

/// The manager of the process that calls.
pub(super) fn manager() -> &'static Manager {
    let word = word();
    let known = word.load(Ordering::Acquire);
    // SAFETY: the word is null or points to a manager that was leaked, by this process.
    if let Some(manager) = unsafe { known.as_ref() } {
        return manager;
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

fn word() -> &'static AtomicPtr<Manager> {
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
        // SAFETY: the page is zeroed, aligned, never unmapped, and used only as this type; zero is null.
        unsafe { AtomicPtr::from_ptr(page.cast()) }
    })
}
