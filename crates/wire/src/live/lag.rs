//! How far a stream is behind itself: by how much later packets come now, by their timestamps, than
//! the most punctual ones came.
//!
//! Neither clock is known to be right, so it is a difference. What it is taken from is forgotten
//! after some minutes, so that two clocks that drift apart do not add up to a lag.

/// How late packets come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    last: Option<Last>,
    /// By a clock that begins anywhere: how long packets have been on their way, at the least.
    recent: Least,
    base: Least,
}

/// A packet, and the sum of what timestamps have grown by.
#[derive(Clone, Copy, Debug)]
struct Last {
    now_ns: u64,
    timestamp: u32,
    media_ns: i64,
    passed_ns: i64,
}

/// The least value of the span of time that runs and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Least {
    since_ns: u64,
    now: Option<i64>,
    before: Option<i64>,
}

impl Lag {
    /// Notes a packet of that timestamp, which arrived at `now_ns` of a steady clock.
    pub fn note(&mut self, timestamp: u32, now_ns: u64, clock_hz: u32) {
        let last = self.last.unwrap_or(Last {
            now_ns,
            timestamp,
            media_ns: 0,
            passed_ns: 0,
        });
        let ticks = timestamp.wrapping_sub(last.timestamp).cast_signed();
        let stamped_ns = i64::from(ticks) * SECOND_NS / i64::from(clock_hz.max(1));
        let passed_ns = i64::try_from(now_ns.saturating_sub(last.now_ns)).unwrap_or(i64::MAX);
        if passed_ns.saturating_sub(stamped_ns).saturating_abs() > JUMP_NS {
            *self = Self::default();
            self.note(timestamp, now_ns, clock_hz);
            return;
        }
        let now = Last {
            now_ns,
            timestamp,
            media_ns: last.media_ns.saturating_add(stamped_ns),
            passed_ns: last.passed_ns.saturating_add(passed_ns),
        };
        self.last = Some(now);
        let delay_ns = now.passed_ns.saturating_sub(now.media_ns);
        self.recent.note(delay_ns, now_ns, RECENT_NS);
        self.base.note(delay_ns, now_ns, BASE_NS);
    }

    /// In ns: pictures that are sent in another order than they are shown in count as the most
    /// punctual of a second.
    #[must_use]
    pub fn ns(&self) -> u64 {
        let lag = self.recent.get().zip(self.base.get());
        lag.map_or(0, |(recent, base)| {
            recent.saturating_sub(base).max(0).cast_unsigned()
        })
    }
}

impl Least {
    pub(super) fn note(&mut self, value: i64, now_ns: u64, span_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if self.now.is_none() || passed_ns >= span_ns {
            self.before = self.now.filter(|_| passed_ns < 2 * span_ns);
            (self.since_ns, self.now) = (now_ns, Some(value));
        }
        self.now = self.now.map(|now| now.min(value));
    }

    pub(super) fn get(&self) -> Option<i64> {
        let least = |before: i64| self.now.map_or(before, |now| now.min(before));
        self.before.map(least).or(self.now)
    }
}

const SECOND_NS: i64 = 1_000_000_000;

/// Timestamps and arrivals that differ by more began anew.
const JUMP_NS: i64 = 10 * SECOND_NS;

/// What is called now.
const RECENT_NS: u64 = 1_000_000_000;

/// How long the most punctual packet is remembered, and as long again at the most: in that time
/// clocks that differ by 100 in a million drift by 30 ms.
const BASE_NS: u64 = 300 * RECENT_NS;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Pictures of 40 ms, from one number to another, so late.
    fn pictures(lag: &mut Lag, numbers: std::ops::Range<u32>, late_ns: impl Fn(u32) -> u64) {
        for number in numbers {
            // Begins where timestamps wrap.
            let timestamp = (number * 3600).wrapping_sub(90_000);
            let at_ns = u64::from(number) * 40 * MS + late_ns(number);
            let before_ns = lag.last.map_or(0, |last| last.now_ns);
            lag.note(timestamp, at_ns.max(before_ns), 90_000);
        }
    }

    #[test]
    fn a_lag_is_what_stays_and_not_what_shakes() {
        let mut lag = Lag::default();
        pictures(&mut lag, 0..100, |_| 0);
        assert_eq!(lag.ns(), 0);
        pictures(&mut lag, 100..200, |number| u64::from(number % 2) * 10 * MS);
        assert_eq!(lag.ns(), 0, "it is jitter");
        pictures(&mut lag, 200..300, |number| {
            (700 + u64::from(number % 2)) * MS
        });
        assert_eq!(lag.ns(), 700 * MS);
        pictures(&mut lag, 300..400, |_| 0);
        assert_eq!(lag.ns(), 0, "it has caught up");
    }

    #[test]
    fn pictures_out_of_order_have_none() {
        let mut lag = Lag::default();
        for number in 0..200_u32 {
            // I P B B: shown in another order than they come.
            let shown = [0, 3, 1, 2][number as usize % 4] + number / 4 * 4;
            lag.note(shown * 3600, u64::from(number) * 40 * MS, 90_000);
        }
        assert_eq!(lag.ns(), 0);
    }

    #[test]
    fn clocks_that_drift_apart_add_up_to_little() {
        let mut lag = Lag::default();
        // A camera's clock that is slow by 100 in a million, for an hour.
        pictures(&mut lag, 0..90_000, |number| u64::from(number) * 4000);
        assert!((20..=60).contains(&(lag.ns() / MS)), "{}", lag.ns());
    }

    #[test]
    fn a_jump_begins_anew_and_no_numbers_overflow() {
        let mut lag = Lag::default();
        pictures(&mut lag, 0..50, |_| 0);
        pictures(&mut lag, 50..60, |_| 500 * MS);
        lag.note(0x8000_0000, 3000 * MS, 90_000);
        assert_eq!(lag.ns(), 0);
        lag.note(0, u64::MAX, 0);
        lag.note(u32::MAX, 0, 1);
        assert_eq!(lag.ns(), 0);
    }
}
