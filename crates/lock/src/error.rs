//! Why memory could not be locked, and what to do about it.
//!
//! The kernel says ENOMEM for a hole in the range, a limit, a missing right and a lack of memory
//! alike. After a failure, and only then, the mappings and limits of the process are read to tell
//! them apart.

use std::io;
use std::ops::Range;

use thiserror::Error;

use super::maps::{self, Mapping};
use super::{AREAS_MAX, Kind, TABLES_MAX};
use crate::memory::{may_lock_all, memlock_limit_bytes, page_bytes};

/// Why a range is not locked, or its frames not known. A failed lock has changed nothing.
///
/// ```
/// use onrush_lock::{Kind, LockError, Manager};
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// // Nothing is mapped at the first page.
/// match Manager::of_process().lock(0..4096, Kind::Resident) {
///     Err(error @ LockError::Unmapped { .. }) => {
///         assert!(error.to_string().contains("map memory there first"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Nothing to lock.
    #[error("the range at {address:#x} is empty; lock at least one page")]
    Empty {
        /// Where it begins.
        address: usize,
    },
    /// The end lies before the beginning.
    #[error(
        "the range from {start:#x} ends at {end:#x}, before it begins: address and length \
         overflow; check the length"
    )]
    Overflow {
        /// The beginning.
        start: usize,
        /// The end.
        end: usize,
    },
    /// Not whole pages.
    #[error(
        "{start:#x}..{end:#x} is not whole pages of {page_bytes} bytes; round it outwards \
         (lock::pages_around)"
    )]
    Alignment {
        /// The beginning.
        start: usize,
        /// The end.
        end: usize,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// No memory at all at these addresses.
    #[error("nothing is mapped at {start:#x}..{end:#x}; map memory there first")]
    Unmapped {
        /// The beginning of the range.
        start: usize,
        /// The end of the range.
        end: usize,
    },
    /// A hole in the range.
    #[error(
        "nothing is mapped at {start:#x}..{end:#x}, a part of the range; lock the parts around it \
         one by one"
    )]
    PartlyMapped {
        /// The beginning of the first hole.
        start: usize,
        /// The end of the first hole.
        end: usize,
    },
    /// PROT_NONE.
    #[error("the memory at {address:#x} may not be read (PROT_NONE); allow it with mprotect first")]
    NoAccess {
        /// The first such page.
        address: usize,
    },
    /// A pin is a pin for writing.
    #[error(
        "the memory at {address:#x} is read-only, and a ring pins for writing; map it writable or \
         lock it resident"
    )]
    ReadOnly {
        /// The first such page.
        address: usize,
    },
    /// A file system that does not let its pages be pinned for long, or the end of the file.
    #[error(
        "the pages of {path} at {address:#x} cannot be pinned: its file system forbids long-term \
         pins, or the file ends before; lock them resident, or copy them to anonymous memory or a \
         memfd"
    )]
    File {
        /// The beginning of the mapping.
        address: usize,
        /// What is mapped.
        path: String,
    },
    /// RLIMIT_MEMLOCK is used up.
    #[error(
        "{bytes} bytes more would exceed RLIMIT_MEMLOCK ({limit_bytes} bytes; pinned, a page of a \
         huge page counts as all of it): raise it (ulimit -l, LimitMEMLOCK=), grant CAP_IPC_LOCK, \
         unlock something, or do without huge pages (MADV_NOHUGEPAGE)"
    )]
    Limit {
        /// The size of the range.
        bytes: usize,
        /// The soft limit.
        limit_bytes: u64,
    },
    /// RLIMIT_MEMLOCK is zero and there is no CAP_IPC_LOCK.
    #[error("this process may lock nothing: grant CAP_IPC_LOCK, or raise RLIMIT_MEMLOCK from 0")]
    NotPermitted,
    /// The kernel would have to cut a mapping and may not.
    #[error(
        "locking a part of a mapping makes more mappings than vm.max_map_count ({mappings_max}) \
         allows; raise it, or lock larger parts"
    )]
    Mappings {
        /// The limit.
        mappings_max: usize,
    },
    /// As many handles as there may be.
    #[error(
        "{AREAS_MAX} areas are locked, the most there may be; unlock some, or lock larger ones"
    )]
    Areas,
    /// As many tables of pinned buffers as there may be.
    #[error(
        "this process has {TABLES_MAX} tables of pinned buffers, the most there may be, of which \
         each cache is one; close some caches"
    )]
    Tables,
    /// There is no ring to register memory with.
    #[error(
        "cannot open a ring to pin memory with: {source}; Linux 5.19 is needed, and \
         kernel.io_uring_disabled must allow it"
    )]
    Ring {
        /// What the system said.
        source: io::Error,
    },
    /// Anything else; usually the memory is used up or a file ends before its mapping does.
    #[error(
        "cannot lock {start:#x}..{end:#x}: {source}; free memory, and see that files are as long \
         as their mappings"
    )]
    Os {
        /// The beginning of the range.
        start: usize,
        /// The end of the range.
        end: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel shows frame numbers to the privileged only.
    #[error("frame numbers are hidden from this process; grant CAP_SYS_ADMIN")]
    FramesHidden,
    /// A page of an area could not be brought in.
    #[error(
        "the page at {address:#x} is not in memory; was the range unmapped or its file cut while \
         it was locked?"
    )]
    Absent {
        /// Its address.
        address: usize,
    },
    /// The page map cannot be read.
    #[error("cannot read /proc/self/pagemap: {source}; is /proc mounted?")]
    PageMap {
        /// What the system said.
        source: io::Error,
    },
    /// [`super::Manager::cleanup`] has unlocked the area.
    #[error("the area has been unlocked by a cleanup; lock the range again")]
    Released,
}

impl LockError {
    /// Whether a larger limit or more rights would have helped.
    ///
    /// ```
    /// use onrush_lock::LockError;
    ///
    /// assert!(LockError::NotPermitted.is_permission());
    /// assert!(!LockError::Empty { address: 4096 }.is_permission());
    /// ```
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(
            self,
            Self::Limit { .. } | Self::NotPermitted | Self::FramesHidden
        )
    }
}

/// Checks what can be known of a range without asking the kernel.
pub(super) fn check(bytes: &Range<usize>) -> Result<(), LockError> {
    let Range { start, end } = *bytes;
    if end < start {
        return Err(LockError::Overflow { start, end });
    }
    if start == end {
        return Err(LockError::Empty { address: start });
    }
    if (start | end) & (page_bytes() - 1) != 0 {
        return Err(LockError::Alignment {
            start,
            end,
            page_bytes: page_bytes(),
        });
    }
    Ok(())
}

/// Finds out why the kernel refused to lock `bytes`.
pub(super) fn diagnose(bytes: &Range<usize>, kind: Kind, source: io::Error) -> LockError {
    let mappings = maps::mappings(bytes).unwrap_or_default();
    if let Some(error) = bad_range(bytes, kind, &source, &mappings) {
        return error;
    }
    let refused = matches!(source.raw_os_error(), Some(libc::ENOMEM | libc::EPERM));
    if refused && !may_lock_all() {
        return match memlock_limit_bytes() {
            0 => LockError::NotPermitted,
            limit_bytes => LockError::Limit {
                bytes: bytes.len(),
                limit_bytes,
            },
        };
    }
    let mappings_max = mappings_max();
    // The call that failed would have added one or two.
    if kind != Kind::Pinned && maps::count().is_ok_and(|count| count + 2 >= mappings_max) {
        return LockError::Mappings { mappings_max };
    }
    LockError::Os {
        start: bytes.start,
        end: bytes.end,
        source,
    }
}

/// What is wrong with the range itself.
fn bad_range(
    bytes: &Range<usize>,
    kind: Kind,
    source: &io::Error,
    mappings: &[Mapping],
) -> Option<LockError> {
    if let Some(gap) = maps::first_gap(bytes, mappings) {
        let (start, end) = (gap.start, gap.end);
        return Some(if gap == *bytes {
            LockError::Unmapped { start, end }
        } else {
            LockError::PartlyMapped { start, end }
        });
    }
    let first = |bad: fn(&Mapping) -> bool| {
        let mapping = mappings.iter().find(|m| bad(m))?;
        Some((mapping.bytes.start.max(bytes.start), mapping))
    };
    if let Some((address, _)) = first(|m| m.permissions.starts_with("---")) {
        return Some(LockError::NoAccess { address });
    }
    if kind != Kind::Pinned || source.raw_os_error() != Some(libc::EFAULT) {
        return None;
    }
    if let Some((address, _)) = first(|m| !m.permissions.contains('w')) {
        return Some(LockError::ReadOnly { address });
    }
    first(|m| m.inode != 0).map(|(address, mapping)| LockError::File {
        address,
        path: mapping.path.clone(),
    })
}

fn mappings_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel counts all of a huge page, whatever part of it is pinned.
    #[test]
    fn a_limit_that_huge_pages_use_up_is_explained() {
        let error = LockError::Limit {
            bytes: 4096,
            limit_bytes: 3 << 20,
        };
        let told = error.to_string();
        for said in ["a huge page counts as all of it", "MADV_NOHUGEPAGE"] {
            assert!(told.contains(said), "{told}");
        }
    }
}
