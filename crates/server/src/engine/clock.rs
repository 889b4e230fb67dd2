//! The clock that an engine lives by: the system's, or one that is set by hand, so that a test of what is due, late or
//! too much asks the engine and not the machine it runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onrush_sys::clock::monotonic_ns;

/// Where an engine reads what time it is. Its path's deadlines are of the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// One that shows what is written there, in ns.
    #[must_use]
    pub const fn by_hand(now_ns: Arc<AtomicU64>) -> Self {
        Self(Some(now_ns))
    }

    /// Nanoseconds of CLOCK_MONOTONIC, unless it is set by hand.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            None => monotonic_ns(),
            Some(now_ns) => now_ns.load(Ordering::Acquire),
        }
    }
}
