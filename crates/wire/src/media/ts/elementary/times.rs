//! When samples are decoded and shown, by the stamps of PES packets.
//!
//! Stamps start again every 26.5 hours and jump where a recording was cut. Where one stream's do,
//! those of the others of its program do so soon, to the same times: so the jump is closed up once,
//! and the streams stay in step. One stamp that jumps alone is wrong, and what was made of it is
//! taken back.

use super::pes::Stamps;

/// Stamps a second.
pub(super) const STAMPS_HZ: u32 = 90_000;

/// Steps of a stream's stamps that are none of a jump, and how far apart streams of a program are.
const STEP_TICKS_MAX: i64 = 10 * STAMPS_HZ as i64;
pub(super) const STEP_BACK_TICKS_MAX: i64 = STAMPS_HZ as i64;

/// The clock of a program: what the stamps of its streams are on a time line without jumps.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Counts the jumps.
    epoch: u64,
    /// The last stamp since the last jump, and what it is on the time line.
    latest: Option<(u64, i64)>,
    /// Whether another stream than the one that jumped first has come along.
    is_followed: bool,
}

/// Where a stream is on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    epoch: u64,
    last: Option<(u64, i64)>,
    /// From the stamp in front of it to the last.
    step: i64,
    /// How all was before the last stamp, if that is far from the one in front of it.
    before: Option<Before>,
}

/// Where a stream and its clock were before a stamp that may be wrong.
#[derive(Clone, Debug)]
struct Before {
    clock: Clock,
    epoch: u64,
    last: (u64, i64),
    step: i64,
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
        if let Some(ticks) = self.take_back(place, stamp) {
            return ticks;
        }
        if let Some((last, ticks)) = place.last {
            let passed = between(last, stamp);
            place.before = (passed.abs() > STEP_BACK_TICKS_MAX).then(|| Before {
                clock: self.clone(),
                epoch: place.epoch,
                last: (last, ticks),
                step: place.step,
            });
            if (-STEP_BACK_TICKS_MAX..=STEP_TICKS_MAX).contains(&passed) {
                place.step = passed;
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
            self.is_followed = true;
            return at;
        }
        self.epoch += 1;
        self.is_followed = false;
        place.epoch = self.epoch;
        place.last.map_or(latest_ticks, |(_, ticks)| ticks + step)
    }

    /// Ticks of a stamp that goes on from the last but one: the one in between was wrong, and so
    /// was the jump that was made of it.
    fn take_back(&mut self, place: &mut Place, stamp: u64) -> Option<i64> {
        let before = place.before.take()?;
        let (last, ticks) = before.last;
        let passed = between(last, stamp);
        let wrong = place.last.map_or(0, |(wrong, _)| between(last, wrong));
        // Two steps, and some more. One that lies between the two is right.
        let most = STEP_BACK_TICKS_MAX.max(3 * before.step);
        if !(0..=most).contains(&passed) || (0..=passed).contains(&wrong) {
            return None;
        }
        // Where others have jumped as well it was none by mistake.
        let has_jumped = place.epoch > before.clock.epoch;
        let has_followed = !has_jumped && place.epoch != before.epoch;
        let is_followed =
            self.epoch > place.epoch.max(before.clock.epoch) || has_jumped && self.is_followed;
        if has_followed || is_followed {
            return None;
        }
        if has_jumped {
            *self = before.clock;
        }
        (place.epoch, place.step) = (before.epoch, before.step);
        Some(ticks + passed)
    }
}

/// Ticks of one scale in another.
pub(super) fn rescaled(ticks: i64, from_hz: u32, to_hz: u32) -> i64 {
    let scaled = i128::from(ticks) * i128::from(to_hz);
    let ticks = scaled.div_euclid(i128::from(from_hz.max(1)));
    i64::try_from(ticks).unwrap_or(if ticks < 0 { i64::MIN } else { i64::MAX })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// From stamp to stamp of pictures, of sound, and of sound that has few; some stamps of sound
    /// have none of pictures between them.
    const STEPS: [u64; 3] = [3600, 1920, 60_000];

    /// When the first unit is decoded, and from there on when the one with a wrong stamp is: all
    /// streams have one then.
    const START: u64 = 400_000_000;
    const WRONG_AT: u64 = 720_000;

    fn take(clock: &mut Clock, place: &mut Place, stamp: u64, step: u64) -> i64 {
        let stamps = Stamps {
            shown: stamp,
            decoded: stamp,
        };
        clock.take(place, stamps, i64::try_from(step).unwrap()).0
    }

    /// Twenty seconds of all in the order of their times, of which one stamp is off by `wrong`.
    fn play(wrong_stream: usize, wrong: i64) {
        let all = (0..STEPS.len()).flat_map(|stream| {
            let numbers = 0..20 * u64::from(STAMPS_HZ) / STEPS[stream];
            numbers.map(move |number| (number * STEPS[stream], stream))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        let (mut clock, mut places) = (Clock::default(), STEPS.map(|_| Place::default()));
        for (time, stream) in all {
            let is_wrong = (time, stream) == (WRONG_AT, wrong_stream);
            let off = if is_wrong { wrong } else { 0 };
            let stamp = (START + time).checked_add_signed(off).unwrap();
            let ticks = take(&mut clock, &mut places[stream], stamp, STEPS[stream]);
            let expected = i64::try_from(time).unwrap();
            assert!(
                is_wrong || ticks == expected,
                "{wrong} in stream {wrong_stream}: {ticks} at {time} of {stream}"
            );
        }
        assert_eq!(clock.jumps(), 0, "{wrong} in stream {wrong_stream}");
    }

    #[test]
    fn one_wrong_stamp_moves_no_other() {
        for seconds in [-3600, -9, -5, -2, 2, 5, 9, 3600] {
            for stream in 0..STEPS.len() {
                play(stream, seconds * i64::from(STAMPS_HZ));
            }
        }
    }

    /// Back by 3.5 seconds, behind which the other stream's stamps are soon where they were.
    #[test]
    fn a_stream_of_few_stamps_stays_with_a_cut() {
        let (cut, back) = (450_000, 315_000);
        for few in [
            // The second behind the cut goes on from the last in front of it; the first does from
            // the last but one.
            [0, 432_000, 486_000, 748_800],
            [180_000, 360_000, 540_000, 720_000],
        ] {
            let mut clock = Clock::default();
            let mut places = [Place::default(), Place::default()];
            for time in (0..900_000).step_by(3600) {
                let stamp = START + time - if time < cut { 0 } else { back };
                for (stream, place) in places.iter_mut().enumerate() {
                    if stream == 0 || few.contains(&time) {
                        let ticks = take(&mut clock, place, stamp, 3600);
                        assert_eq!(ticks, i64::try_from(time).unwrap(), "{stream} of {few:?}");
                    }
                }
            }
            assert_eq!(clock.jumps(), 1);
        }
    }
}
