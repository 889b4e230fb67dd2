//! Sealed memory: nobody can unmap it, replace it, move it or take its contents away, whoever tries
//! and however.
//!
//! It is a memory file, mapped once, and sealed twice. `mseal` (Linux 6.10) makes the kernel refuse
//! whatever would change the mapping: `munmap`, `mmap` and `shmat` over it, `mremap`, `mprotect`.
//! The file's own seals refuse whatever would change which pages the file has: cutting it and
//! punching holes, also by `MADV_REMOVE`; its descriptor is closed. Other discards (MADV_DONTNEED,
//! guards) only empty the page table: the next touch finds the same pages. So pinned frames stay
//! the memory's frames, and a [`Cache`](super::Cache) need not watch.
//!
//! The price is that it can never be given back. What is dropped is handed out again to the next
//! who wants the same size, as soon as no cache has it on loan: until then the kernel may still
//! send what is in it. A forked child does not have it.
//!
//! ```
//! use onrush_lock::Sealed;
//!
//! # fn main() -> Result<(), onrush_lock::SegmentError> {
//! let mut message = Sealed::map(10_000)?;
//! message[..5].copy_from_slice(b"hello");
//! assert_eq!(message.len() % 4096, 0);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Manager;
use super::segment::{SegmentError, check};
use crate::memory::page_bytes;

/// Pieces of sealed memory that a process can have made. More are refused: they would stay for
/// ever.
pub const SEALED_MAX: usize = 4096;

/// Sealed memory, zeroed at first. Dropped, it waits for the next who wants as much.
///
/// ```
/// use onrush_lock::{Kind, Manager, Sealed};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut frame = Sealed::map(64 << 10)?;
/// let lock = Manager::of_process().lock(frame.bytes(), Kind::Pinned)?;
/// frame.fill(7); // What the lock pins is what this writes, for as long as the process lives.
/// assert!(lock.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sealed {
    manager: &'static Manager,
    bytes: Range<usize>,
}

/// What this process has sealed.
#[derive(Debug, Default)]
pub(super) struct SealedMemory {
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// All, by their first addresses.
    all: BTreeMap<usize, Piece>,
    /// Those that nobody has. Some may be on loan.
    free: Vec<Range<usize>>,
}

#[derive(Debug)]
struct Piece {
    end: usize,
    lent: Lent,
}

/// How many registrations of caches have a loan out that reaches into a piece. As long as pieces
/// are: for ever.
pub(super) type Lent = &'static AtomicU32;

impl Sealed {
    /// Maps and seals `bytes_total`, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`SegmentError::Seal`] before Linux 6.10, [`SegmentError::Sealed`] if there are
    /// [`SEALED_MAX`] pieces, or what the system says.
    pub fn map(bytes_total: usize) -> Result<Self, SegmentError> {
        check(bytes_total)?;
        let bytes_total = bytes_total.next_multiple_of(page_bytes());
        let manager = Manager::of_process();
        let pieces = &manager.sealed.pieces;
        let mut pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = pieces.free_of(bytes_total) {
            let bytes = pieces.free.swap_remove(at);
            let mut again = Self { manager, bytes };
            again.fill(0);
            return Ok(again);
        }
        if pieces.all.len() >= SEALED_MAX {
            return Err(SegmentError::Sealed);
        }
        let bytes = map_sealed(bytes_total)?;
        let lent: Lent = Box::leak(Box::default());
        let end = bytes.end;
        pieces.all.insert(bytes.start, Piece { end, lent });
        Ok(Self { manager, bytes })
    }

    /// Its addresses, whole pages.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }
}

impl Deref for Sealed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = ptr::with_exposed_provenance(self.bytes.start);
        // SAFETY: the range is mapped readable, cannot be unmapped or forbidden, and is this
        // value's alone: no other process has the file, whose descriptor is closed. The kernel only
        // reads it for sends.
        unsafe { std::slice::from_raw_parts(start, self.bytes.len()) }
    }
}

impl DerefMut for Sealed {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = ptr::with_exposed_provenance_mut(self.bytes.start);
        // SAFETY: as above; it is mapped writable, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes.len()) }
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // A forked child has a copy of this value, not the memory.
        if ptr::eq(self.manager, Manager::of_process()) {
            let pieces = &self.manager.sealed.pieces;
            let mut pieces = pieces.lock().unwrap_or_else(PoisonError::into_inner);
            pieces.free.push(self.bytes.clone());
        }
    }
}

impl SealedMemory {
    /// Whether all of `bytes` is one sealed piece, or a part of one.
    pub(super) fn covers(&self, bytes: &Range<usize>) -> bool {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = pieces.all.range(..=bytes.start).next_back();
        piece.is_some_and(|(_, piece)| bytes.end <= piece.end)
    }

    /// The counts of loans of all pieces that `bytes` meet; mostly of none or one.
    pub(super) fn lent(&self, bytes: &Range<usize>) -> Vec<Lent> {
        let pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let below = pieces.all.range(..bytes.end).rev();
        let met = below.take_while(|(_, piece)| piece.end > bytes.start);
        met.map(|(_, piece)| piece.lent).collect()
    }
}

impl Pieces {
    /// Where there is a free one of this size that the kernel has no more to do with.
    fn free_of(&self, bytes_total: usize) -> Option<usize> {
        self.free.iter().position(|bytes| {
            // Acquire: whoever gave the last loan back has seen its operations end.
            let is_lent = |piece: &Piece| piece.lent.load(Ordering::Acquire) > 0;
            bytes.len() == bytes_total && !self.all.get(&bytes.start).is_some_and(is_lent)
        })
    }
}

/// Maps a file in memory and seals both.
fn map_sealed(bytes_total: usize) -> Result<Range<usize>, SegmentError> {
    let failed = |action| {
        move |source| SegmentError::File {
            action,
            bytes_total,
            source,
        }
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string; memfd_create has no other preconditions.
    let fd = checked(unsafe { libc::memfd_create(c"onrush-sealed".as_ptr(), flags) });
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let file = unsafe { File::from_raw_fd(fd.map_err(failed("make"))?) };
    file.set_len(bytes_total as u64)
        .map_err(failed("reserve"))?;
    let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes_total, protection, shared, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(failed("map")(io::Error::last_os_error()));
    }
    // A child that wrote to it would write to ours; and a core dump has no use for it.
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        // SAFETY: the range was just mapped; the advice changes no contents.
        unsafe { libc::madvise(base, bytes_total, advice) };
    }
    if let Err(source) = seal(&file, base, bytes_total) {
        // SAFETY: our own mapping, which nobody else knows of yet.
        unsafe { libc::munmap(base, bytes_total) };
        return Err(SegmentError::Seal {
            bytes_total,
            source,
        });
    }
    let start = base.expose_provenance();
    Ok(start..start + bytes_total)
}

/// The file first: until its mapping is sealed too, it can still be taken back.
fn seal(file: &File, base: *mut libc::c_void, bytes_total: usize) -> io::Result<()> {
    #[cfg(test)]
    if super::tests::SEALS_ARE_FORGOTTEN.load(Ordering::Relaxed) {
        return Ok(());
    }
    // FUTURE_WRITE leaves the mapping that exists writable, and forbids punching holes (mm/shmem.c,
    // shmem_fallocate).
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE;
    let seals = seals | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open; F_ADD_SEALS takes a number.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    // SAFETY: the range is our own mapping; sealing it changes no contents.
    let sealed = unsafe { libc::syscall(libc::SYS_mseal, base, bytes_total, 0) };
    checked(libc::c_int::try_from(sealed).unwrap_or(-1)).map(drop)
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
