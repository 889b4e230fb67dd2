//! That something has happened, said before it is known what.
//!
//! The tests read this file once more with atomics of which every order is tried
//! (`model_tests.rs`).

use super::sync::{AtomicU64, Ordering, yield_now};

/// How many there were, and how many of them are settled: what they were about is in the log.
#[derive(Debug)]
pub(super) struct Announcements {
    made: AtomicU64,
    settled: AtomicU64,
}

impl Announcements {
    pub(super) fn new() -> Self {
        Self {
            made: AtomicU64::new(0),
            settled: AtomicU64::new(0),
        }
    }

    /// Makes so many more, and says how many there are. For one thread, before it reads what they
    /// are about.
    pub(super) fn announce(&self, more: u64) -> u64 {
        self.made.fetch_add(more, Ordering::AcqRel) + more
    }

    /// What so many were about is in the log, whose lock the caller has.
    pub(super) fn settle(&self, made: u64) {
        self.settled.store(made, Ordering::Release);
    }

    /// How many are settled. By who has the log's lock, just those that the log knows of.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Whether there are no more than those. One load.
    #[inline]
    pub(super) fn are_none_since(&self, settled: u64) -> bool {
        self.made.load(Ordering::Acquire) == settled
    }

    /// Waits until all are settled that have been made so far.
    pub(super) fn wait_until_settled(&self) {
        let made = self.made.load(Ordering::Acquire);
        while self.settled.load(Ordering::Acquire) < made {
            // Who has announced is just reading, and will have logged in a moment.
            yield_now();
        }
    }
}
