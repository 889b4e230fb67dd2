//! Memory that processes share, and memory that nobody can take away.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::ptr;

use onrush_lock::{Sealed, Segment, memfd};

use crate::arguments::Out;
use crate::error::{Failure, guarded};
use crate::handle::{self, close, open, with};

/// A mapping of memory that other processes may map, too. 0 is none.
pub type onrush_segment_t = u64;

/// Memory that nobody can unmap, replace or move. 0 is none.
pub type onrush_sealed_t = u64;

impl handle::Kind for Segment {
    const NAME: &'static str = "segment";
    const NUMBER: u64 = 2;
}

impl handle::Kind for Sealed {
    const NAME: &'static str = "sealed memory";
    const NUMBER: u64 = 3;
}

/// Makes a System V segment and attaches it. It exists as long as somebody has it attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_segment_sysv(bytes: usize, segment: *mut onrush_segment_t) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(segment, "segment") }?;
        to.set(open(Segment::sysv(bytes)?)?);
        Ok(())
    })
}

/// Attaches the System V segment of this number, which another process has made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_segment_attach(
    sysv_id: c_int,
    segment: *mut onrush_segment_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(segment, "segment") }?;
        to.set(open(Segment::attach_sysv(sysv_id)?)?);
        Ok(())
    })
}

/// Makes a file in memory, maps it, and writes its descriptor, which is the caller's: whoever gets
/// it can map the same memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_segment_memfd(
    bytes: usize,
    segment: *mut onrush_segment_t,
    descriptor: *mut c_int,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(segment, "segment") }?;
        // SAFETY: as above.
        let descriptor = unsafe { Out::new(descriptor, "descriptor") }?;
        let file = memfd(bytes)?;
        to.set(open(Segment::map(&file, bytes)?)?);
        descriptor.set(file.into_raw_fd());
        Ok(())
    })
}

/// Maps the first `bytes` bytes of a file, shared and writable: of a memfd, of shm_open(3), or of a
/// disk. The descriptor stays the caller's and may be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_segment_map(
    descriptor: c_int,
    bytes: usize,
    segment: *mut onrush_segment_t,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(segment, "segment") }?;
        let file = borrowed(descriptor)?;
        let length = file.metadata().map_err(|error| {
            Failure::argument(format_args!(
                "descriptor {descriptor}: {error}; open it first"
            ))
        })?;
        if length.len() < bytes as u64 {
            return Err(Failure::argument(format_args!(
                "the file has {} bytes, {bytes} are to be mapped; make it longer (ftruncate)",
                length.len()
            )));
        }
        to.set(open(Segment::map(&file, bytes)?)?);
        Ok(())
    })
}

/// Writes where a segment is, how long it is in whole pages, and the number by which others attach
/// it: -1 if it is no System V segment. `bytes` and `sysv_id` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_segment_memory(
    segment: onrush_segment_t,
    address: *mut *mut c_void,
    bytes: *mut usize,
    sysv_id: *mut c_int,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { RangeOut::new(address, bytes) }?;
        // SAFETY: as above.
        let id_to = unsafe { Out::if_wanted(sysv_id, "sysv_id") }?;
        let (range, id) = with::<Segment, _>(segment, |it| Ok((it.bytes(), it.sysv_id())))?;
        to.set(&range);
        if let Some(to) = id_to {
            to.set(id.unwrap_or(-1));
        }
        Ok(())
    })
}

/// Detaches a segment: its addresses are nobody's from now on.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_segment_detach(segment: onrush_segment_t) -> i32 {
    guarded(|| close::<Segment>(segment, |_| Ok(())).map(drop))
}

/// Maps memory that nobody can unmap, replace, move or discard, so that a cache keeps its
/// registrations without watching (Linux 6.10). It is zeroed. `mapped_bytes` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_sealed_map(
    bytes: usize,
    sealed: *mut onrush_sealed_t,
    address: *mut *mut c_void,
    mapped_bytes: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(sealed, "sealed") }?;
        // SAFETY: as above.
        let memory_to = unsafe { RangeOut::new(address, mapped_bytes) }?;
        let memory = Sealed::map(bytes)?;
        let range = memory.bytes();
        to.set(open(memory)?);
        memory_to.set(&range);
        Ok(())
    })
}

/// Gives sealed memory back. It stays mapped and waits for the next who wants as much, which gets
/// it zeroed; but not before the last loan of it has been given back.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_sealed_release(sealed: onrush_sealed_t) -> i32 {
    guarded(|| close::<Sealed>(sealed, |_| Ok(())).map(drop))
}

/// Where a range is told.
struct RangeOut(Out<*mut c_void>, Option<Out<usize>>);

impl RangeOut {
    /// # Safety
    ///
    /// The pointers are null, unaligned, or may be written until the call ends.
    unsafe fn new(address: *mut *mut c_void, bytes: *mut usize) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let address = unsafe { Out::new(address, "address") }?;
        // SAFETY: as above.
        Ok(Self(address, unsafe { Out::if_wanted(bytes, "bytes") }?))
    }

    fn set(self, range: &Range<usize>) {
        self.0.set(ptr::with_exposed_provenance_mut(range.start));
        if let Some(bytes) = self.1 {
            bytes.set(range.len());
        }
    }
}

/// A file that stays the caller's.
fn borrowed(descriptor: c_int) -> Result<ManuallyDrop<File>, Failure> {
    if descriptor < 0 {
        return Err(Failure::argument(format_args!(
            "{descriptor} is no descriptor; open a file first"
        )));
    }
    // SAFETY: it is not closed here; one that is not open is refused by the first call for it.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) }))
}
