//! A part of a file, mapped: what the paths of the `mmap` kind send from.
//!
//! Only the kernel reads the memory, on behalf of a send, unless the data is to be touched. So a
//! file that becomes shorter meanwhile is an EFAULT from the send, not a signal; who touches it may
//! get one.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;

use super::kernel::Calls;
use super::plan::Piece;
use super::touch::Pass;
use onrush_lock::memory::page_bytes;

/// A mapping, gone when dropped.
#[derive(Debug)]
pub(super) struct Map {
    base: *mut libc::c_void,
    bytes: usize,
    /// What of the file is at `base`.
    file_offset: u64,
    /// Whether it may be written to.
    is_changed: bool,
}

impl Map {
    /// Maps `range` of the file, for reading; or to be changed, a copy of each page as it is, of
    /// which the file knows nothing.
    pub(super) fn new(
        calls: &mut Calls,
        file: &File,
        range: &Range<u64>,
        is_changed: bool,
    ) -> io::Result<Self> {
        let page = page_bytes() as u64;
        let file_offset = range.start / page * page;
        let bytes = usize::try_from(range.end - file_offset).map_err(io::Error::other)?;
        let offset = libc::off_t::try_from(file_offset).map_err(io::Error::other)?;
        let mut base = libc::MAP_FAILED;
        calls.make(None, || {
            let (access, kind) = match is_changed {
                true => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
                false => (libc::PROT_READ, libc::MAP_SHARED),
            };
            let fd = file.as_raw_fd();
            // SAFETY: at an address of the kernel's choice, so it touches no memory that exists.
            base = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, fd, offset) };
            if base == libc::MAP_FAILED { -1 } else { 0 }
        })?;
        Ok(Self {
            base,
            bytes,
            file_offset,
            is_changed,
        })
    }

    /// Where these bytes are in memory.
    ///
    /// # Panics
    ///
    /// If they are not within the range.
    pub(super) fn place(&self, piece: Piece) -> libc::iovec {
        let at = piece.offset.checked_sub(self.file_offset);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let at = at.expect("the piece lies within the mapping");
        let iov_len = piece.bytes as usize;
        assert!(
            at + iov_len <= self.bytes,
            "the piece lies within the mapping"
        );
        libc::iovec {
            iov_base: self.base.wrapping_byte_add(at),
            iov_len,
        }
    }

    /// Takes a pass over these bytes. The file must be as long as the plan says, and nobody may
    /// write it.
    pub(super) fn touch(&self, piece: Piece, pass: &mut Pass<'_>) {
        let libc::iovec { iov_base, iov_len } = self.place(piece);
        let at: *mut u8 = iov_base.cast();
        if self.is_changed {
            // SAFETY: within a mapping of ours that is readable and writable and backed by a file
            // as long; the only reference to it, which ends here. What the kernel has of it by
            // reference are other packets' bytes.
            pass.go(unsafe { std::slice::from_raw_parts_mut(at, iov_len) });
        } else {
            // SAFETY: as above; only read, and written by nobody.
            pass.read(unsafe { std::slice::from_raw_parts(at, iov_len) });
        }
    }

    /// Unmaps it, as a counted call.
    pub(super) fn unmap(self, calls: &mut Calls) {
        calls.counters.crossings += 1;
        drop(self);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left. What the kernel still sends
        // from it has references of its own to the pages.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}
