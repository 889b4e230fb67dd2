//! Residency: `mlock2` and `munlock`, so that the kernel's one bit for a page says what all handles
//! want of it.

use std::io;
use std::ops::Range;

use super::error::{self, LockError};
use super::intervals::{Intervals, Residency};
use super::{Kind, addresses, maps, page_numbers, pointer};

/// Makes `bytes` resident in the way of `kind`, or leaves everything as `intervals` say it is.
pub(super) fn make_resident(
    intervals: &mut Intervals,
    bytes: &Range<usize>,
    kind: Kind,
) -> Result<(), LockError> {
    // Never skipped for pages that are counted already: the range may have been mapped anew since,
    // and for what is locked the kernel has little to do.
    let result = match kind {
        Kind::OnFault => intervals
            .residency(page_numbers(bytes))
            .into_iter()
            // On fault over resident would be less than the resident handle was promised.
            .map(|(run, now)| (addresses(&run), now.max(Residency::OnFault)))
            .try_for_each(|(run, wanted)| mlock2(&run, wanted)),
        _ => mlock2(bytes, Residency::Resident),
    };
    let Err(source) = result else {
        return Ok(());
    };
    let error = error::diagnose(bytes, kind, source);
    // `mlock2` may have locked what lies before the page it failed at.
    for (run, residency) in intervals.residency(page_numbers(bytes)) {
        let run = addresses(&run);
        if residency == Residency::Unlocked {
            munlock(&run);
        } else if let Err(error) = mlock2(&run, residency) {
            tracing::debug!(?run, %error, "locked memory has been unmapped");
        }
    }
    Err(error)
}

pub(super) fn mlock2(bytes: &Range<usize>, residency: Residency) -> io::Result<()> {
    let flags = match residency {
        Residency::OnFault => MLOCK_ONFAULT,
        Residency::Unlocked | Residency::Resident => 0,
    };
    // SAFETY: mlock2 takes any range, changes no contents, and reports what is not mapped.
    let result = unsafe { libc::mlock2(pointer(bytes).cast(), bytes.len(), flags) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Unlocks what is mapped of `bytes`.
pub(super) fn munlock(bytes: &Range<usize>) {
    // SAFETY: munlock takes any range, changes no contents, and reports what is not mapped.
    let unlock = |b: &Range<usize>| unsafe { libc::munlock(pointer(b).cast(), b.len()) };
    if unlock(bytes) == 0 {
        return;
    }
    // It stops at a hole. Whoever unmapped a part of a locked area has unlocked that part.
    for mapping in maps::mappings(bytes).unwrap_or_default() {
        let part = mapping.bytes.start.max(bytes.start)..mapping.bytes.end.min(bytes.end);
        if unlock(&part) != 0 {
            let error = io::Error::last_os_error();
            tracing::warn!(?part, %error, "memory stays locked");
        }
    }
}

/// `mlock2`: lock pages as they are faulted in (Linux 4.4).
const MLOCK_ONFAULT: libc::c_uint = 1;
