//! When a request that has no answer yet is asked a second time, beside the first.
//!
//! After the time within which nearly all of those before were answered, so that few are asked
//! twice; and never more than a part of all, so that a store that is slow because it has too much
//! to do does not get twice as much of it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::HEDGES_MAX;

/// Answers that are remembered.
const SAMPLES: usize = 128;

/// With fewer than these there is no saying what nearly all are.
const SAMPLES_MIN: usize = 16;

/// Of a hundred answers, how many come within the time that is waited for.
const PERCENTILE: usize = 95;

/// The time that is waited for while there are too few, and the most at any time.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The least that is waited for: a shorter time would ask twice for what a busy machine is late
/// with.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// Of the requests, one in so many is asked twice at the most.
const SHARE: usize = 10;

/// How many may be asked twice one behind the other before that is kept.
const CREDIT_MAX: usize = 8 * SHARE;

/// What is known of requests so far.
#[derive(Debug, Default)]
pub(crate) struct Hedging(Mutex<State>);

#[derive(Debug)]
struct State {
    samples: VecDeque<Duration>,
    /// A request adds one, a second one takes [`SHARE`].
    credit: usize,
    under_way: usize,
}

/// A request that is asked a second time, until this is dropped.
#[derive(Debug)]
pub(crate) struct Hedge<'a>(&'a Hedging);

impl Default for State {
    fn default() -> Self {
        Self {
            samples: VecDeque::with_capacity(SAMPLES),
            credit: CREDIT_MAX,
            under_way: 0,
        }
    }
}

impl Hedging {
    /// A request begins. How long its answer is waited for alone.
    pub(crate) fn begin(&self) -> Duration {
        let mut state = self.lock();
        state.credit = (state.credit + 1).min(CREDIT_MAX);
        if state.samples.len() < SAMPLES_MIN {
            return WAIT_MAX;
        }
        let mut sorted: Vec<_> = state.samples.iter().copied().collect();
        let at = sorted.len() * PERCENTILE / 100;
        let (_, wait, _) = sorted.select_nth_unstable(at);
        (*wait).clamp(WAIT_MIN, WAIT_MAX)
    }

    /// An answer came after so long.
    pub(crate) fn answered(&self, after: Duration) {
        let mut state = self.lock();
        if state.samples.len() >= SAMPLES {
            state.samples.pop_front();
        }
        state.samples.push_back(after);
    }

    /// Whether one more may be asked a second time.
    pub(crate) fn again(&self) -> Option<Hedge<'_>> {
        let mut state = self.lock();
        if state.under_way >= HEDGES_MAX {
            return None;
        }
        state.credit = state.credit.checked_sub(SHARE)?;
        state.under_way += 1;
        Some(Hedge(self))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hedge<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nearly_all_take_is_waited_for() {
        let hedging = Hedging::default();
        assert_eq!(hedging.begin(), WAIT_MAX, "nothing is known");
        for ms in 0..100 {
            hedging.answered(Duration::from_millis(100 + ms));
        }
        assert_eq!(hedging.begin(), Duration::from_millis(195));
        for _ in 0..SAMPLES {
            hedging.answered(Duration::from_millis(1));
        }
        assert_eq!(hedging.begin(), WAIT_MIN);
        for _ in 0..SAMPLES {
            hedging.answered(Duration::from_secs(9));
        }
        assert_eq!(hedging.begin(), WAIT_MAX);
        assert_eq!(hedging.lock().samples.len(), SAMPLES);
    }

    #[test]
    fn one_in_ten_is_asked_twice_at_the_most() {
        let hedging = Hedging::default();
        let first = (0..1000).filter(|_| hedging.again().is_some()).count();
        assert_eq!(first, CREDIT_MAX / SHARE, "what there is at the start");
        let later = (0..1000).filter(|_| {
            hedging.begin();
            hedging.again().is_some()
        });
        assert_eq!(later.count(), 1000 / SHARE);
    }

    #[test]
    fn no_more_than_a_few_are_under_way_twice() {
        let hedging = Hedging::default();
        let mut held: Vec<_> = (0..100).map_while(|_| hedging.again()).collect();
        assert_eq!(held.len(), HEDGES_MAX);
        for _ in 0..CREDIT_MAX {
            hedging.begin();
        }
        assert!(hedging.again().is_none());
        held.pop();
        assert!(hedging.again().is_some());
    }
}
