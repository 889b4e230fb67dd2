//! What was found in memory a moment ago, so that many transfers of one file do not all ask the
//! kernel again.
//!
//! To ask costs the kernel a walk over the pages, some 6 % of what sending them costs. Memory that
//! was there a quarter of a second ago is taken to be there still; if it was given up meanwhile,
//! one step waits for a disk.

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// How long what was found holds.
const HOLDS_NS: u64 = 250_000_000;

/// Stretches of files that are remembered. More than these just ask again.
const STRETCHES: usize = 4096;

/// Stretches begin at multiples of it.
pub(super) const STRETCH_BYTES: u64 = 2 << 20;

/// A table of fixed size; a stretch has one place in it, and takes it from whoever has it.
#[derive(Debug)]
pub(super) struct Resident {
    seen: RefCell<Box<[Seen]>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Where the open file is in memory. Another that takes its place there is mistaken for it for
    /// a moment.
    file: usize,
    from: u64,
    to: u64,
    until_ns: u64,
}

impl Default for Resident {
    fn default() -> Self {
        Self {
            seen: RefCell::new(vec![Seen::default(); STRETCHES].into()),
        }
    }
}

impl Resident {
    /// `range`, which lies within one stretch, was found in memory.
    pub(super) fn found(&self, file: &Arc<File>, range: &Range<u64>, now_ns: u64) {
        self.seen.borrow_mut()[place(file, range.start)] = Seen {
            file: address(file),
            from: range.start,
            to: range.end,
            until_ns: now_ns + HOLDS_NS,
        };
    }

    /// Whether it was a moment ago.
    pub(super) fn has(&self, file: &Arc<File>, range: &Range<u64>, now_ns: u64) -> bool {
        let seen = self.seen.borrow()[place(file, range.start)];
        seen.file == address(file)
            && seen.from <= range.start
            && range.end <= seen.to
            && now_ns < seen.until_ns
    }
}

fn address(file: &Arc<File>) -> usize {
    Arc::as_ptr(file).addr()
}

/// Neighbours have places beside each other, so that a file does not push out itself.
fn place(file: &Arc<File>, offset: u64) -> usize {
    let stretch = usize::try_from(offset / STRETCH_BYTES).unwrap_or(usize::MAX);
    // Fibonacci hashing: addresses are multiples of 16, and often close together.
    let begin = (address(file) >> 4).wrapping_mul(0x9e37_79b9) >> 8;
    begin.wrapping_add(stretch) % STRETCHES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_remembered_for_a_moment_and_only_that() {
        let file = || Arc::new(tempfile::tempfile().unwrap());
        let (file, other) = (file(), file());
        let resident = Resident::default();
        let far = 7 * STRETCH_BYTES;
        let range = far..far + STRETCH_BYTES;
        assert!(!resident.has(&file, &range, 5));
        resident.found(&file, &range, 5);
        assert!(resident.has(&file, &range, 4 + HOLDS_NS));
        assert!(resident.has(&file, &(far + 1..far + 2), 5));
        assert!(!resident.has(&file, &range, 5 + HOLDS_NS), "it is too old");
        assert!(!resident.has(&other, &range, 5), "another file");
        assert!(!resident.has(&file, &(0..1), 5), "another stretch");
        // A part says nothing of the rest.
        resident.found(&file, &(10..20), 5);
        assert!(resident.has(&file, &(10..20), 5));
        assert!(!resident.has(&file, &(9..20), 5) && !resident.has(&file, &(10..21), 5));
    }
}
