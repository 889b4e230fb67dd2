//! The clock that an engine lives by: the system's, or one that is set by hand, so that a test of
//! what is due, late or too much asks the engine and not the machine it runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onrush_sys::clock::{monotonic_ns, thread_cpu_ns};

/// Ticks in a burst. A tick is what a burst may be early by, and what bounds the number of
/// crossings.
pub(super) const TICKS_PER_BURST: u64 = 4;

/// Where an engine reads what time it is. Its path's deadlines are of the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<ByHand>);

#[derive(Clone, Debug)]
struct ByHand {
    now_ns: Arc<AtomicU64>,
    cpu_ns: Arc<AtomicU64>,
}

impl Clock {
    /// One that shows what is written there, in ns: the time, and how much of it a processor
    /// worked.
    #[must_use]
    pub const fn by_hand(now_ns: Arc<AtomicU64>, cpu_ns: Arc<AtomicU64>) -> Self {
        Self(Some(ByHand { now_ns, cpu_ns }))
    }

    /// Nanoseconds of CLOCK_MONOTONIC, unless it is set by hand.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            None => monotonic_ns(),
            Some(hand) => hand.now_ns.load(Ordering::Acquire),
        }
    }

    /// Processor time of the calling thread, unless it is set by hand.
    #[must_use]
    pub(super) fn cpu_ns(&self) -> u64 {
        match &self.0 {
            None => thread_cpu_ns(),
            Some(hand) => hand.cpu_ns.load(Ordering::Acquire),
        }
    }
}
