//! How the time of day lies to the monotonic clock, and whether somebody has set it since.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use onrush_sys::clock::monotonic_ns;

/// Dates that are wrong by no more, in ns, are right enough.
pub(super) const STEP_NS_MAX: u64 = 1_000_000_000;

/// What is to be added to the monotonic clock to have ns since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallOffset(i64);

/// The time of day, and the monotonic clock just before and behind it: threads may be kept waiting
/// between them.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before_ns: i64,
    unix_ns: i64,
    after_ns: i64,
}

/// Seconds since 1970 that never go back while the server runs, though the time of day may be set
/// back. Holds the greatest offset of all, in ns.
#[derive(Debug)]
pub(super) struct Numbers(AtomicI64);

impl WallOffset {
    /// As it is now.
    pub(super) fn now() -> Self {
        Self::of(Reading::now())
    }

    fn of(reading: Reading) -> Self {
        let between_ns = (reading.after_ns - reading.before_ns) / 2;
        Self(
            reading
                .unix_ns
                .saturating_sub(reading.before_ns + between_ns),
        )
    }

    /// In ns.
    pub(super) fn ns(self) -> i64 {
        self.0
    }

    /// By how much the time of day has been set since, in ns.
    pub(super) fn step_ns(self) -> u64 {
        self.step_ns_at(Reading::now())
    }

    fn step_ns_at(self, reading: Reading) -> u64 {
        let least = reading.unix_ns.saturating_sub(reading.after_ns);
        let most = reading.unix_ns.saturating_sub(reading.before_ns);
        self.0.abs_diff(self.0.clamp(least, most.max(least)))
    }
}

impl Reading {
    fn now() -> Self {
        let monotonic = || i64::try_from(monotonic_ns()).unwrap_or(i64::MAX);
        let before_ns = monotonic();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = since_1970.unwrap_or_default().as_nanos();
        Self {
            before_ns,
            unix_ns: i64::try_from(unix_ns).unwrap_or(i64::MAX),
            after_ns: monotonic(),
        }
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Numbers {
    /// The second of now.
    pub(super) fn second(&self, offset: WallOffset) -> u64 {
        self.second_at(offset, monotonic_ns())
    }

    fn second_at(&self, offset: WallOffset, now_ns: u64) -> u64 {
        let greatest = self.0.fetch_max(offset.0, Ordering::Relaxed).max(offset.0);
        let now_ns = i64::try_from(now_ns).unwrap_or(i64::MAX);
        let unix_ns = u64::try_from(greatest.saturating_add(now_ns)).unwrap_or(0);
        unix_ns / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn reading(before_ns: i64, unix_ns: i64, after_ns: i64) -> Reading {
        Reading {
            before_ns,
            unix_ns,
            after_ns,
        }
    }

    #[test]
    fn a_clock_that_is_set_is_seen_and_a_thread_that_waits_is_not() {
        let between = WallOffset::of(reading(10 * SECOND, 100 * SECOND, 10 * SECOND + 2));
        assert_eq!(between.ns(), 90 * SECOND - 1);
        let offset = WallOffset(90 * SECOND);
        let step = |before, unix, after| offset.step_ns_at(reading(before, unix, after));
        let (now, unix) = (50 * SECOND, 140 * SECOND);
        assert_eq!(step(now, unix, now), 0);
        assert_eq!(step(now - 9 * SECOND, unix, now), 0, "the clock came late");
        assert_eq!(step(now, unix, now + 9 * SECOND), 0, "and the other");
        let hour = 3600 * SECOND;
        for set in [-hour, hour] {
            assert_eq!(step(now, unix + set, now), hour.unsigned_abs());
        }
        assert!(hour.unsigned_abs() > STEP_NS_MAX);
        let farthest = i64::MAX.unsigned_abs() + (90 * SECOND).unsigned_abs();
        assert_eq!(step(i64::MAX, 0, i64::MAX), farthest);
        assert!(WallOffset::now().step_ns() < STEP_NS_MAX);
    }

    #[test]
    fn numbers_do_not_go_back_with_the_clock() {
        let numbers = Numbers::default();
        let second = |offset_s: i64, now_s: u64| {
            numbers.second_at(WallOffset(offset_s * SECOND), now_s * 1_000_000_000)
        };
        assert_eq!(second(1_000_000, 5), 1_000_005);
        assert_eq!(second(996_400, 9), 1_000_009, "set back an hour");
        assert_eq!(second(1_003_600, 10), 1_003_610, "and on");
    }
}
