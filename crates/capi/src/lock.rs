//! Locks: pages that stay in memory, or at their physical address.

use std::ffi::c_void;
use std::ptr;

use onrush_lock::memory::page_bytes;
use onrush_lock::{Kind, LockedArea, Manager, pages_in_memory};

use crate::arguments::{Out, fill, range};
use crate::error::{Failure, ONRUSH_ERROR_RANGE, guarded};
use crate::handle::{self, close, open, with};

/// All pages are in memory and stay there; the kernel may move them.
pub const ONRUSH_RESIDENT: i32 = 0;
/// Pages stay in memory from when they are first touched.
pub const ONRUSH_ON_FAULT: i32 = 1;
/// All pages are in memory and stay at their physical address.
pub const ONRUSH_PINNED: i32 = 2;

/// A lock on memory. 0 is none.
pub type onrush_lock_t = u64;

/// Consecutive frames of physical memory: one entry of a scatter/gather map.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_block_t {
    /// The number of the first frame.
    pub frame: u64,
    /// How many there are.
    pub frames: u64,
}

/// How much this process has locked.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct onrush_totals_t {
    /// Locks that are out.
    pub locks: u64,
    /// Bytes that are resident, by at least one lock.
    pub resident_bytes: u64,
    /// Bytes that are pinned, by at least one lock.
    pub pinned_bytes: u64,
}

impl handle::Kind for LockedArea {
    const NAME: &'static str = "lock";
    const NUMBER: u64 = 1;
}

/// The whole pages that `bytes` bytes at `address` lie in: what can be locked of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_pages_around(
    address: *const c_void,
    bytes: usize,
    pages: *mut *mut c_void,
    pages_bytes: *mut usize,
) -> i32 {
    guarded(|| {
        let memory = range(address, bytes, "address")?;
        // SAFETY: of the library's rules for pointers.
        let start = unsafe { Out::new(pages, "pages") }?;
        // SAFETY: as above.
        let length = unsafe { Out::new(pages_bytes, "pages_bytes") }?;
        let first = memory.start / page_bytes() * page_bytes();
        let end = memory.end.checked_next_multiple_of(page_bytes());
        let end = end.ok_or_else(|| Failure::new(ONRUSH_ERROR_RANGE, "no page ends there"))?;
        start.set(ptr::without_provenance_mut(first));
        length.set(end - first);
        Ok(())
    })
}

/// Locks `bytes` bytes at `address`, whole pages, until `onrush_unlock`. Locks nest and overlap: a
/// page stays locked, in the way asked for, until the last lock on it is gone. `kind` is
/// ONRUSH_RESIDENT, ONRUSH_ON_FAULT or ONRUSH_PINNED. RLIMIT_MEMLOCK counts what is pinned once for
/// each lock, and all of each huge page that it touches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_lock(
    address: *const c_void,
    bytes: usize,
    kind: i32,
    lock: *mut onrush_lock_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let lock = unsafe { Out::new(lock, "lock") }?;
        let bytes = range(address, bytes, "address")?;
        let kind = match kind {
            ONRUSH_RESIDENT => Kind::Resident,
            ONRUSH_ON_FAULT => Kind::OnFault,
            ONRUSH_PINNED => Kind::Pinned,
            other => {
                return Err(Failure::argument(format_args!(
                    "{other} is no kind of lock; use ONRUSH_RESIDENT, ONRUSH_ON_FAULT or \
                     ONRUSH_PINNED"
                )));
            }
        };
        lock.set(open(Manager::of_process().lock(bytes, kind)?)?);
        Ok(())
    })
}

/// Gives a lock back.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_unlock(lock: onrush_lock_t) -> i32 {
    guarded(|| close::<LockedArea>(lock, |_| Ok(())).map(drop))
}

/// Writes the physical frame behind each page, in order, as many as `room` says, and to `count` how
/// many pages there are. They are those of what lies at the address now: only if a pinned range was
/// neither unmapped nor moved nor discarded since, they are what is pinned, and stay so. Needs
/// CAP_SYS_ADMIN. `frames` may be NULL if `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_lock_pages(
    lock: onrush_lock_t,
    frames: *mut u64,
    room: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let count = unsafe { Out::new(count, "count") }?;
        let found = with::<LockedArea, _>(lock, |area| Ok(area.pages()?))?;
        // SAFETY: as above.
        unsafe { fill(&found, (frames, room), count, "frames") }
    })
}

/// The same as runs of consecutive frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_lock_blocks(
    lock: onrush_lock_t,
    blocks: *mut onrush_block_t,
    room: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let count = unsafe { Out::new(count, "count") }?;
        let found = with::<LockedArea, _>(lock, |area| Ok(area.blocks()?))?;
        let found = found.into_iter().map(|block| onrush_block_t {
            frame: block.frame,
            frames: block.frames as u64,
        });
        // SAFETY: as above.
        unsafe { fill(&found.collect::<Vec<_>>(), (blocks, room), count, "blocks") }
    })
}

/// How many of the pages of a range, whole pages, are in memory now, locked or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_pages_in_memory(
    address: *const c_void,
    bytes: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let count = unsafe { Out::new(count, "count") }?;
        count.set(pages_in_memory(&range(address, bytes, "address")?)?);
        Ok(())
    })
}

/// How much this process has locked, by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_totals(totals: *mut onrush_totals_t) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(totals, "totals") }?;
        let totals = Manager::of_process().totals();
        to.set(onrush_totals_t {
            locks: totals.areas as u64,
            resident_bytes: totals.resident_bytes as u64,
            pinned_bytes: totals.pinned_bytes as u64,
        });
        Ok(())
    })
}
