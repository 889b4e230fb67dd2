//! When pictures are decoded that come in the order of decoding and tell when they are shown.
//!
//! With a depth of n, a picture is decoded when the n-th before it in the order of showing is
//! shown: of all that have come, the smallest time that was not given yet. That needs no look
//! ahead, and no picture is shown before it is decoded. The depth is found, and grows if it was
//! too small.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pictures of reordering at the most (ITU-T H.264, section A.3.1: `MaxDpbFrames`).
const DEPTH_MAX: usize = 16;

/// Gives times of decoding.
#[derive(Clone, Debug, Default)]
pub(super) struct DecodeTimes {
    depth: usize,
    waiting: BinaryHeap<Reverse<i64>>,
    /// The first picture's time, and how long a picture lasts about.
    first: Option<i64>,
    step: i64,
    given: usize,
    last: Option<i64>,
    /// The greatest time that has come.
    newest: Option<i64>,
}

impl DecodeTimes {
    /// Of a stream whose first pictures are shown at these times.
    pub(super) fn new(shown: &[i64]) -> Self {
        let behind = |(at, time): (usize, &i64)| {
            let before = shown[..at].iter();
            before.filter(|it| *it > time).count()
        };
        let depth = shown.iter().enumerate().map(behind).max().unwrap_or(0);
        let mut sorted = shown.to_vec();
        sorted.sort_unstable();
        let steps = sorted.windows(2).map(|pair| pair[1] - pair[0]);
        Self {
            depth: depth.min(DEPTH_MAX),
            step: steps.filter(|&step| step > 0).min().unwrap_or(1),
            ..Self::default()
        }
    }

    /// When the picture is decoded that is shown at `shown`: later than the one before.
    pub(super) fn next(&mut self, shown: i64) -> i64 {
        let first = *self.first.get_or_insert(shown);
        let is_too_late = self.last.is_some_and(|last| shown <= last);
        if is_too_late && self.depth < DEPTH_MAX {
            self.depth += 1;
        }
        self.newest = self.newest.max(Some(shown));
        self.waiting.push(Reverse(shown));
        let ready = match self.waiting.len() > self.depth {
            true => self.waiting.pop().map(|Reverse(time)| time),
            false => None,
        };
        self.given += 1;
        let missing = i64::try_from((self.depth + 1).saturating_sub(self.given)).unwrap_or(0);
        let filled = first.saturating_sub(missing.saturating_mul(self.step));
        let decoded = match (ready, self.last) {
            (Some(time), _) => time,
            (None, None) => filled,
            (None, Some(last)) => last.saturating_add(1).max(filled.min(shown)),
        };
        let decoded = self
            .last
            .map_or(decoded, |last| decoded.max(last.saturating_add(1)));
        self.last = Some(decoded);
        decoded
    }

    /// The greatest time at which a picture is shown that has come.
    pub(super) fn newest(&self) -> Option<i64> {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(primed: usize, shown: &[i64]) -> Vec<i64> {
        let mut times = DecodeTimes::new(&shown[..primed.min(shown.len())]);
        shown.iter().map(|&time| times.next(time)).collect()
    }

    #[test]
    fn pictures_in_order_are_decoded_when_they_are_shown() {
        let shown: Vec<_> = (0..30).map(|n| n * 40).collect();
        assert_eq!(decoded(10, &shown), shown);
    }

    #[test]
    fn reordered_pictures_are_decoded_in_time_and_evenly() {
        // I P B B P B B: two B pictures between, one of them a reference.
        let shown = [0, 160, 80, 40, 120, 320, 240, 200, 280, 480, 400, 360, 440];
        let decoded = decoded(10, &shown);
        let expected: Vec<_> = (0..13).map(|n| n * 40 - 80).collect();
        assert_eq!(decoded, expected);
    }

    #[test]
    fn a_depth_that_was_too_small_grows() {
        let mut shown: Vec<_> = (0..5).map(|n| n * 40).collect();
        for n in 0..20 {
            shown.extend([280 + n * 120, 200 + n * 120, 240 + n * 120]);
        }
        let decoded = decoded(5, &shown);
        let late = decoded.iter().zip(&shown).filter(|(d, s)| d > s).count();
        assert_eq!(late, 2, "{decoded:?}");
    }

    proptest! {
        #[test]
        fn decoding_times_only_rise(shown in prop::collection::vec(-1000_i64..1000, 1..200)) {
            let decoded = decoded(10, &shown);
            prop_assert!(decoded.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
