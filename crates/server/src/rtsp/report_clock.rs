//! The time of day that reports tell, beside timestamps that go by CLOCK_MONOTONIC.
//!
//! A receiver draws a line through the pairs of time and timestamp that reports tell, and places
//! what comes by it: where a pair lies off the line libavformat moves all that follows. So nobody
//! asks for the time of day anew. It is asked for once, when timestamps begin to count, and reports
//! tell what has passed since then by the clock that timestamps go by, whoever sets the time of day
//! meanwhile. It does not follow a time of day that was set: who begins then is told that one.

use std::num::{NonZeroI64, NonZeroU8};
use std::time::{Duration, SystemTime};

use onrush_sys::clock::monotonic_ns;
use onrush_wire::rtcp;

/// Of so many pairs of readings the closest is taken: whoever reads may be held up between two.
const READINGS: usize = 4;

/// By what the reports of a session tell the time: of all of its tracks, so that these stay
/// together. By default by the time of day as it is when a report is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportClock {
    /// When the zero of the clock was that timestamps go by, in ns since 1970. It is not 0: so
    /// there is room for none in its eight bytes, which each session has.
    zero_ns: Option<NonZeroI64>,
}

impl ReportClock {
    /// By a clock whose zero is at `zero_ns` of CLOCK_MONOTONIC.
    pub(super) fn of_zero(zero_ns: i64) -> Self {
        let unix_ns = monotonic_zero_ns().saturating_add(zero_ns);
        let zero_ns = NonZeroI64::new(unix_ns).unwrap_or_else(|| NonZeroU8::MIN.into());
        Self {
            zero_ns: Some(zero_ns),
        }
    }

    /// What a report tells of a moment, `at_ns` by CLOCK_MONOTONIC and `since_zero_ns` by the clock
    /// that timestamps go by, in the form of NTP.
    pub(super) fn ntp(self, at_ns: u64, since_zero_ns: i64) -> u64 {
        let unix_ns = match self.zero_ns {
            Some(zero_ns) => zero_ns.get().saturating_add(since_zero_ns),
            None => monotonic_zero_ns().saturating_add(signed(at_ns)),
        };
        rtcp::ntp(Duration::from_nanos(u64::try_from(unix_ns).unwrap_or(0)))
    }
}

/// A moment of CLOCK_MONOTONIC, or a time.
pub(super) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// When the zero of CLOCK_MONOTONIC was, in ns since 1970, by the time of day as it is now.
fn monotonic_zero_ns() -> i64 {
    let readings = (0..READINGS).map(|_| {
        let before_ns = monotonic_ns();
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let between_ns = monotonic_ns() - before_ns;
        // A clock before 1970 is wrong anyway.
        let unix_ns = i64::try_from(unix.unwrap_or_default().as_nanos()).unwrap_or(i64::MAX);
        let zero_ns = unix_ns.saturating_sub(signed(before_ns + between_ns / 2));
        (between_ns, zero_ns)
    });
    let closest = readings.min_by_key(|(between_ns, _)| *between_ns);
    closest.expect("it was read").1
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    /// Seconds since 1900, as a report tells them.
    fn seconds(ntp: u64) -> f64 {
        ntp as f64 / 4_294_967_296.0
    }

    #[test]
    fn a_clock_tells_what_has_passed_since_its_zero() {
        let at_ns = monotonic_ns();
        let now = seconds(ReportClock::default().ntp(at_ns, 0));
        for zero_ns in [0, SECOND_NS, signed(at_ns), -SECOND_NS] {
            let clock = ReportClock::of_zero(zero_ns);
            let told = |since_zero_ns| seconds(clock.ntp(0, since_zero_ns));
            // As long as nobody sets the clock of this machine.
            let off = told(signed(at_ns) - zero_ns) - now;
            assert!(off.abs() < 60.0, "{off} from zero {zero_ns}");
            let hour = told(3600 * SECOND_NS) - told(0);
            assert!((hour - 3600.0).abs() < 1e-5, "{hour} from zero {zero_ns}");
            // It is asked for once: the same is told of the same moment.
            assert_eq!(clock.ntp(0, 7), clock.ntp(at_ns, 7));
        }
    }

    #[test]
    fn a_clock_takes_no_more_than_its_zero() {
        assert_eq!(size_of::<ReportClock>(), size_of::<i64>());
        let first = ReportClock::of_zero(i64::MIN);
        assert_eq!(first.ntp(0, 0), rtcp::ntp(Duration::ZERO), "none is before");
        ReportClock::of_zero(i64::MAX).ntp(u64::MAX, i64::MAX);
    }
}
