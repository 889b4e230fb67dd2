//! When samples are decoded and shown, by the stamps of PES packets.
//!
//! Stamps start again every 26.5 hours and jump where a recording was cut. Where one stream's do,
//! those of the others of its program do so soon, to the same times: so the jump is closed up once,
//! and the streams stay in step.

use super::pes::Stamps;

/// Stamps a second.
pub(super) const STAMPS_HZ: u32 = 90_000;

/// Steps of a stream's stamps that are none of a jump, and how far apart streams of a program are.
const STEP_TICKS_MAX: i64 = 10 * STAMPS_HZ as i64;
const STEP_BACK_TICKS_MAX: i64 = STAMPS_HZ as i64;

/// The clock of a program: what the stamps of its streams are on a time line without jumps.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Counts the jumps.
    epoch: u64,
    /// The last stamp since the last jump, and what it is on the time line.
    latest: Option<(u64, i64)>,
}

/// Where a stream is on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    epoch: u64,
    last: Option<(u64, i64)>,
}

impl Clock {
    /// Ticks of the time line at which a unit of a stream is decoded, and how much later it is
    /// shown. `step` is how long the unit in front lasts: what a jump becomes.
    pub(super) fn take(&mut self, place: &mut Place, stamps: Stamps, step: i64) -> (i64, i64) {
        let stamp = stamps.decoded;
        let ticks = self.ticks(place, stamp, step);
        if place.epoch == self.epoch {
            self.latest = Some((stamp, ticks));
        }
        place.last = Some((stamp, ticks));
        let later = between(stamp, stamps.shown);
        let is_likely = later.abs() <= STEP_TICKS_MAX;
        (ticks, if is_likely { later } else { 0 })
    }

    /// How often the stamps of its streams have jumped.
    pub(super) fn jumps(&self) -> u64 {
        self.epoch
    }

    fn ticks(&mut self, place: &mut Place, stamp: u64, step: i64) -> i64 {
        if let Some((last, ticks)) = place.last {
            let passed = between(last, stamp);
            if (-STEP_BACK_TICKS_MAX..=STEP_TICKS_MAX).contains(&passed) {
                return ticks + passed;
            }
        }
        let Some((latest, latest_ticks)) = self.latest else {
            return 0;
        };
        let passed = between(latest, stamp);
        let at = latest_ticks + passed;
        // One that has come along with all jumps and would go back is the first to jump.
        let goes_back = |(_, ticks): (u64, i64)| at - ticks < -STEP_BACK_TICKS_MAX;
        let is_first = place.epoch == self.epoch && place.last.is_some_and(goes_back);
        if passed.abs() <= STEP_TICKS_MAX && !is_first {
            // Another stream has jumped before, or this one begins, or has paused.
            place.epoch = self.epoch;
            return at;
        }
        self.epoch += 1;
        place.epoch = self.epoch;
        place.last.map_or(latest_ticks, |(_, ticks)| ticks + step)
    }
}

/// From one stamp to another; negative if that is before.
fn between(from: u64, to: u64) -> i64 {
    const WRAP: i64 = 1 << 33;
    let signed = |stamp: u64| i64::try_from(stamp).unwrap_or(0);
    let passed = (signed(to) - signed(from)).rem_euclid(WRAP);
    match passed > WRAP / 2 {
        true => passed - WRAP,
        false => passed,
    }
}
