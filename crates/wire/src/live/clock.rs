//! A publisher's clock, as its reports tell it, beside ours.
//!
//! Reports say what the publisher's clock shows, of whatever beginning, and come as late as the way
//! makes them. The first one sets by how much the two differ; each after it moves that by a small
//! part of what it is off. So a report that comes late moves it little, and a clock that is fast or
//! slow is followed for as long as it runs: 100 ppm are 8.6 s a day.
//!
//! A clock that was set is taken anew. Set forward, its reports seem to come before they were sent,
//! as none does; set back, they seem late, and all by as much.
//!
//! Of a publisher whose reports say nothing, or that has none, the arrival of packets is all that
//! is known. They come late too, and never early: the most punctual ones of some seconds say where
//! timestamps are.

use super::lag::Least;

/// What is to be added to a publisher's clock to make it ours, for all of its tracks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderClock {
    offset_ns: Option<i128>,
    /// The last reports, if they are far off, and alike.
    alike: Option<Alike>,
}

/// Reports one behind the other that say the same of both clocks.
#[derive(Clone, Copy, Debug)]
struct Alike {
    /// What the first one said, and when it was sent.
    seen_ns: i128,
    sent_ns: i128,
    reports: u32,
}

impl SenderClock {
    /// Takes a report that came at `now_ns` of a steady clock, and says which time of that clock
    /// its `ntp` ([`crate::rtcp::ntp`]) is. Nothing where the sender knows no time, and so says 0
    /// (RFC 3550, section 6.4.1).
    pub fn time_ns(&mut self, ntp: u64, now_ns: u64) -> Option<u64> {
        if ntp == 0 {
            return None;
        }
        let ntp_ns = i128::from(ntp >> 32) * 1_000_000_000
            + ((i128::from(ntp & 0xffff_ffff) * 1_000_000_000) >> 32);
        let seen_ns = i128::from(now_ns) - ntp_ns;
        let offset_ns = self.offset_ns.unwrap_or(seen_ns);
        let error_ns = seen_ns - offset_ns;
        let agree = self.agree(error_ns, seen_ns, ntp_ns);
        // A clock that was set, or one that lies.
        let is_set = !(-OFF_NS_MAX..=ERROR_NS_MAX).contains(&error_ns) || agree;
        let offset_ns = match is_set {
            true => seen_ns,
            false => offset_ns + (error_ns / ERROR_PARTS).clamp(-STEP_NS_MAX, STEP_NS_MAX),
        };
        self.offset_ns = Some(offset_ns);
        Some(u64::try_from(ntp_ns + offset_ns).unwrap_or(now_ns))
    }

    /// Takes a report that is off by `error_ns`: whether it seems far too late, and those before it
    /// did by as much. Reports that were held up are late by different times, unless they were sent
    /// together.
    fn agree(&mut self, error_ns: i128, seen_ns: i128, sent_ns: i128) -> bool {
        if error_ns <= OFF_NS_MAX {
            self.alike = None;
            return false;
        }
        let is_like = |it: &Alike| (seen_ns - it.seen_ns).abs() <= ALIKE_NS_MAX;
        let first = Alike {
            seen_ns,
            sent_ns,
            reports: 0,
        };
        let mut alike = self.alike.filter(is_like).unwrap_or(first);
        alike.reports = alike.reports.saturating_add(1);
        let agree = alike.reports >= ALIKE_MIN && sent_ns - alike.sent_ns > 2 * ALIKE_NS_MAX;
        self.alike = Some(alike).filter(|_| !agree);
        agree
    }
}

/// Where the timestamps of a track are by when its packets come.
///
/// Players place what they show by what they are told of it, so that moves by a little at a time:
/// not by a packet that is held up on its way.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArrivalClock {
    arrivals: Option<Arrivals>,
}

/// Since it was taken anew by a packet.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    /// When that packet came.
    since_ns: u64,
    /// The last packet's timestamp, and the sum of what timestamps have grown by.
    timestamp: u32,
    ticks: i64,
    /// By how much later than that packet others come by their timestamps, at the least.
    least: Least,
    /// What is told of that, and when it was told last.
    late_ns: i64,
    told_ns: u64,
}

impl ArrivalClock {
    /// Takes a packet of that timestamp, which came at `now_ns` of a steady clock, and says which
    /// time of that clock the timestamp is; nothing where that need not be told again yet.
    pub fn time_ns(&mut self, timestamp: u32, now_ns: u64, clock_hz: u32) -> Option<u64> {
        let arrivals = self.arrivals.as_mut();
        if let Some(told) = arrivals.and_then(|it| it.take(timestamp, now_ns, clock_hz)) {
            return told;
        }
        self.arrivals = Some(Arrivals {
            since_ns: now_ns,
            timestamp,
            ticks: 0,
            least: Least::default(),
            late_ns: 0,
            told_ns: now_ns,
        });
        Some(now_ns)
    }
}

impl Arrivals {
    /// What [`ArrivalClock::time_ns`] says; nothing if it is to be taken anew.
    fn take(&mut self, timestamp: u32, now_ns: u64, clock_hz: u32) -> Option<Option<u64>> {
        let step = timestamp.wrapping_sub(self.timestamp).cast_signed();
        self.timestamp = timestamp;
        self.ticks = self.ticks.saturating_add(step.into());
        let media_ns = i128::from(self.ticks) * 1_000_000_000 / i128::from(clock_hz.max(1));
        let media_ns = i64::try_from(media_ns).unwrap_or(i64::MAX);
        let passed_ns = i64::try_from(now_ns.saturating_sub(self.since_ns)).unwrap_or(i64::MAX);
        let late_ns = passed_ns.saturating_sub(media_ns);
        // The first packets may have come late, and the first of all most.
        let early_ns_max = match passed_ns < SETTLING_NS {
            true => EARLY_NS_MAX,
            false => UNPUNCTUAL_NS_MAX,
        };
        let off_ns = late_ns.saturating_sub(self.late_ns);
        if !(-early_ns_max..=HELD_UP_NS_MAX).contains(&off_ns) {
            return None;
        }
        self.least.note(late_ns, now_ns, LEAST_NS);
        if now_ns.saturating_sub(self.told_ns) < TOLD_EVERY_NS {
            return Some(None);
        }
        let least_ns = self.least.get().unwrap_or(late_ns);
        let error_ns = least_ns.saturating_sub(self.late_ns);
        if error_ns > UNPUNCTUAL_NS_MAX {
            return None;
        }
        self.told_ns = now_ns;
        self.late_ns += (error_ns / ARRIVAL_PARTS).clamp(-ARRIVAL_STEP_NS_MAX, ARRIVAL_STEP_NS_MAX);
        let since_ns = media_ns.saturating_add(self.late_ns);
        Some(Some(self.since_ns.saturating_add_signed(since_ns)))
    }
}

/// How often it is told where timestamps are, if nothing is odd.
const TOLD_EVERY_NS: u64 = 5_000_000_000;

/// Each time such a part is made good of what it is off, and so much at the most: less than
/// anybody sees or hears.
const ARRIVAL_PARTS: i64 = 4;
const ARRIVAL_STEP_NS_MAX: i64 = 4_000_000;

/// The most punctual packet is remembered for so long, and as long again at the most.
const LEAST_NS: u64 = 5_000_000_000;

/// Packets that come sooner than they are said to, by more than the first of these, say that it was
/// taken from one that was held up; in the beginning alone.
const EARLY_NS_MAX: i64 = 100_000_000;
const SETTLING_NS: i64 = 10_000_000_000;

/// It is taken anew where all packets are off by more, as those of a clock that has another rate
/// than it says.
const UNPUNCTUAL_NS_MAX: i64 = 500_000_000;

/// No packet is held up for longer: timestamps stand still, or go back.
const HELD_UP_NS_MAX: i64 = 10_000_000_000;

/// Each report makes good such a part of what it is off.
const ERROR_PARTS: i128 = 64;

/// What a report moves the offset by at the most: less than anybody sees or hears.
const STEP_NS_MAX: i128 = 4_000_000;

/// A report may be late by so much; if it is by more, the offset is taken anew.
const ERROR_NS_MAX: i128 = 60_000_000_000;

/// What is off by more is far off. No report is early, but for as much as the one was late by which
/// the offset was taken.
const OFF_NS_MAX: i128 = 1_000_000_000;

/// The offset is taken anew where so many reports that are far off differ by no more than this.
const ALIKE_MIN: u32 = 3;
const ALIKE_NS_MAX: i128 = 500_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rtcp::ntp;

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;

    /// The time of a report that is sent at `sent_ns` by a clock that makes so many more seconds a
    /// million, and comes `late_ns` later.
    fn heard(clock: &mut SenderClock, ppm: u64, sent_ns: u64, late_ns: u64) -> u64 {
        let shown_ns = sent_ns + sent_ns / 1_000_000 * ppm;
        let unix = Duration::from_secs(1_700_000_000) + Duration::from_nanos(shown_ns);
        clock.time_ns(ntp(unix), sent_ns + late_ns).unwrap()
    }

    #[test]
    fn a_clock_that_is_too_fast_is_followed_for_days() {
        let mut clock = SenderClock::default();
        for sent_ns in (0..3 * DAY).step_by(5_000_000_000) {
            let time_ns = heard(&mut clock, 100, sent_ns, 0);
            assert!(
                time_ns.abs_diff(sent_ns) < 40_000_000,
                "{time_ns} {sent_ns}"
            );
        }
    }

    #[test]
    fn reports_that_come_late_move_it_little() {
        let mut clock = SenderClock::default();
        heard(&mut clock, 0, 0, 0);
        for (sent_ns, late) in (5 * SECOND..DAY)
            .step_by(5_000_000_000)
            .zip([3, 30, 0, 7].into_iter().cycle())
        {
            // By 10 ms, which most of them are late, and by half a millisecond at a time.
            let time_ns = heard(&mut clock, 0, sent_ns, late * 1_000_000);
            assert!(
                (sent_ns..sent_ns + 11_000_000).contains(&time_ns),
                "{time_ns} {sent_ns}"
            );
        }
        let before = heard(&mut clock, 0, DAY, 10_000_000) - DAY;
        let after = heard(&mut clock, 0, DAY + SECOND, 2 * SECOND) - DAY - SECOND;
        assert!(after - before <= 4_000_001, "{before} {after}");
    }

    #[test]
    fn a_clock_that_was_set_is_taken_anew() {
        let mut clock = SenderClock::default();
        heard(&mut clock, 0, SECOND, 0);
        let unix = Duration::from_secs(1_600_000_000);
        assert_eq!(clock.time_ns(ntp(unix), 7 * SECOND), Some(7 * SECOND));
    }

    /// The time of a report that is sent at `sent_ns` by a clock that was set by so many ms, and
    /// comes `late_ns` later.
    fn heard_of_set(clock: &mut SenderClock, set_ms: i64, sent_ns: u64, late_ns: u64) -> u64 {
        let set_ns = i128::from(set_ms) * 1_000_000;
        let shown_ns = u64::try_from(i128::from(sent_ns) + set_ns).unwrap();
        let unix = Duration::from_secs(1_700_000_000) + Duration::from_nanos(shown_ns);
        clock.time_ns(ntp(unix), sent_ns + late_ns).unwrap()
    }

    /// By less than a minute, too: the reports of two tracks every five seconds.
    #[test]
    fn a_clock_that_was_set_by_seconds_is_taken_anew() {
        for set_ms in [-59_000, -5000, -1200, 1200, 5000, 59_000] {
            let mut clock = SenderClock::default();
            let mut off_ns = 0;
            for (sent_s, set_ms) in [
                (100, 0),
                (100, 0),
                (105, 0),
                (110, set_ms),
                (110, set_ms),
                (115, set_ms),
                (115, set_ms),
            ] {
                let sent_ns = sent_s * SECOND;
                off_ns = heard_of_set(&mut clock, set_ms, sent_ns, 0).abs_diff(sent_ns);
            }
            assert!(off_ns < 1000, "{set_ms}: {off_ns}");
        }
    }

    #[test]
    fn reports_that_are_held_up_together_set_no_clock() {
        let mut clock = SenderClock::default();
        heard_of_set(&mut clock, 0, 100 * SECOND, 0);
        // Those of four tracks, and then those of ten seconds, all at once.
        for _ in 0..4 {
            heard_of_set(&mut clock, 0, 105 * SECOND, 6 * SECOND);
        }
        for sent_s in [115, 120, 125] {
            heard_of_set(&mut clock, 0, sent_s * SECOND, (130 - sent_s) * SECOND);
        }
        let sent_ns = 135 * SECOND;
        let off_ns = heard_of_set(&mut clock, 0, sent_ns, 0).abs_diff(sent_ns);
        assert!(off_ns < 40_000_000, "{off_ns}");
    }

    /// The steps, in ns, between what is told of one picture after another, of 40 ms by their
    /// timestamps, that come then; with what they are off in the end.
    fn steps(arrivals: impl Iterator<Item = u64>) -> (Vec<i64>, i64) {
        let (mut clock, mut steps, mut off_ns) = (ArrivalClock::default(), Vec::new(), None);
        for (number, now_ns) in (0..).zip(arrivals) {
            // Timestamps that wrap.
            let timestamp = (number * 3600_u32).wrapping_sub(900_000);
            if let Some(told_ns) = clock.time_ns(timestamp, now_ns, 90_000) {
                let sent_ns = u64::from(number) * PICTURE_NS;
                let now = told_ns.cast_signed() - sent_ns.cast_signed();
                steps.extend(off_ns.replace(now).map(|before: i64| now - before));
            }
        }
        (steps, off_ns.unwrap())
    }

    const PICTURE_NS: u64 = 40_000_000;
    const MS: u64 = 1_000_000;

    /// Of two minutes, over Wi-Fi, by TCP: what is held up holds up what is behind it.
    #[test]
    fn arrivals_that_shake_or_stand_still_move_it_little() {
        let (mut state, mut before_ns) = (1_u64, 0);
        let arrivals = (0..3000).map(|number: u64| {
            let sent_ns = number * PICTURE_NS;
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Up to 225 ms, and rarely so much.
            let shaken = (state >> 33) % 16 * ((state >> 40) % 16);
            // Nothing comes for 1.4 s when the line is to be told again.
            let is_held = (20 * SECOND..=21 * SECOND + 400 * MS).contains(&sent_ns);
            let held_ns = if is_held { 21 * SECOND + 400 * MS } else { 0 };
            before_ns = (sent_ns + shaken * MS).max(held_ns).max(before_ns);
            10 * SECOND + before_ns
        });
        let (steps, off_ns) = steps(arrivals);
        assert!(steps.len() >= 20, "{steps:?}");
        let is_little = |step: &i64| step.abs() <= 4_000_001;
        assert!(steps.iter().all(is_little), "{steps:?}");
        let late_ns = off_ns - (10 * SECOND).cast_signed();
        assert!((0..60_000_000).contains(&late_ns), "{late_ns}");
    }

    #[test]
    fn what_comes_late_first_is_made_good_at_once() {
        let first_ns = 2 * SECOND;
        let arrivals = (0..500).map(|number: u64| (number * PICTURE_NS).max(first_ns));
        let (_, off_ns) = steps(arrivals);
        assert!(off_ns < 101_000_000, "{off_ns}");
    }

    #[test]
    fn a_clock_of_another_rate_is_followed() {
        // 24 pictures a second, of a camera that says 25; and all timestamps are alike.
        let slow = (0..7200).map(|number: u64| number * SECOND / 24);
        let (_, off_ns) = steps(slow);
        let really_ns = 7199 * (SECOND / 24 - PICTURE_NS);
        let late_ns = really_ns.cast_signed() - off_ns;
        assert!(late_ns < 2 * SECOND.cast_signed(), "{late_ns}");
        let mut clock = ArrivalClock::default();
        let told = (0..10_000).filter_map(|at| clock.time_ns(7, at * PICTURE_NS, 90_000));
        let last_ns = told.max().unwrap();
        assert!(last_ns > 9999 * PICTURE_NS - 11 * SECOND, "{last_ns}");
    }

    #[test]
    fn no_arrival_overflows() {
        let mut clock = ArrivalClock::default();
        for (timestamp, now_ns) in [(0, u64::MAX), (u32::MAX, 0), (1 << 31, u64::MAX), (7, 1)] {
            clock.time_ns(timestamp, now_ns, 0);
        }
    }

    #[test]
    fn who_knows_no_time_is_not_asked() {
        let mut clock = SenderClock::default();
        assert_eq!(clock.time_ns(0, SECOND), None);
        let first = heard(&mut clock, 0, 2 * SECOND, 0);
        assert!(first.abs_diff(2 * SECOND) <= 1, "{first}");
        assert_eq!(clock.time_ns(0, 9 * SECOND), None);
    }
}
