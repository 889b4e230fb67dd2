//! A publisher's clock, as its reports tell it, beside ours.
//!
//! Reports say what the publisher's clock shows, of whatever beginning, and come as late as the way
//! makes them. The first one sets by how much the two differ; each after it moves that by a small
//! part of what it is off. So a report that comes late moves it little, and a clock that is fast or
//! slow is followed for as long as it runs: 100 ppm are 8.6 s a day.
//!
//! A clock that was set is taken anew. Set forward, its reports seem to come before they were sent,
//! as none does; set back, they seem late, and all by as much.

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

    #[test]
    fn who_knows_no_time_is_not_asked() {
        let mut clock = SenderClock::default();
        assert_eq!(clock.time_ns(0, SECOND), None);
        let first = heard(&mut clock, 0, 2 * SECOND, 0);
        assert!(first.abs_diff(2 * SECOND) <= 1, "{first}");
        assert_eq!(clock.time_ns(0, 9 * SECOND), None);
    }
}
