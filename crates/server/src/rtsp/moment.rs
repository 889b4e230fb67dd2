//! A moment by two clocks: that of the day, which reports tell, and that by which engines send.
//!
//! A receiver draws a line through the pairs of time and timestamp that reports tell. What passes
//! between the readings of the two clocks moves a point off that line, so they are read close
//! together.

use std::time::{Duration, SystemTime};

use onrush_sys::clock::monotonic_ns;

/// Of so many pairs of readings the closest is taken: whoever reads may be held up between two.
const READINGS: usize = 4;

/// One moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Since 1970. A clock before that is wrong anyway.
    pub(super) unix: Duration,
    /// Of CLOCK_MONOTONIC.
    pub(super) monotonic_ns: u64,
}

impl Moment {
    pub(super) fn now() -> Self {
        let readings = (0..READINGS).map(|_| {
            let before_ns = monotonic_ns();
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let between_ns = monotonic_ns() - before_ns;
            let moment = Self {
                unix: unix.unwrap_or(Duration::ZERO),
                monotonic_ns: before_ns + between_ns / 2,
            };
            (between_ns, moment)
        });
        let closest = readings.min_by_key(|(between_ns, _)| *between_ns);
        closest.expect("it was read").1
    }
}
