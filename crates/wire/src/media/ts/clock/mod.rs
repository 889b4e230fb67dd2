//! When each packet is due: a piecewise linear function from packet numbers to media time.
//!
//! Media time starts at 0 with packet 0 and never goes back, whatever the file's own clock does.
//! The points come from that clock (`pcr`); here they are looked up, in both directions.

mod breaks;
mod pcr;
mod saved;
mod times;

use serde::{Deserialize, Serialize};

pub use breaks::BREAKS_MAX;
pub(crate) use breaks::Break;
pub(crate) use pcr::ClockBuilder;
pub use pcr::{PCR_HZ, PCR_INTERVAL_TICKS_MAX, PCR_JUMP_TICKS_MAX, PCR_WRAP, PcrQuality, RATE_MAX};
use saved::SavedClock;
pub use times::CLOCK_RATIO_MAX;
pub(crate) use times::{StreamTimes, TIMED_STREAMS_MAX, Verdict};

/// Points of one clock that was learned at once, at the most. At this number every other point goes
/// and the spacing doubles.
pub const CLOCK_POINTS_MAX: usize = 131_072;

/// A clock whose last two intervals are no longer than this tells its end well enough: packets that
/// no reference follows go on at the rate of those before.
const END_NS_MAX: u64 = 500_000_000;

/// Points of a clock that goes on with a growing file, at the most: those of a day. What was
/// published of it keeps its times until then.
pub const GROWN_POINTS_MAX: usize = 16 * CLOCK_POINTS_MAX;

/// Media time as a function of the packet number.
///
/// Holds at least two points; the first is packet 0 at time 0, the last is the end of the file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(into = "SavedClock", try_from = "SavedClock")]
pub(crate) struct Clock {
    points: Vec<Point>,
    /// Where the time base of what it was learned from changes, in order.
    breaks: Vec<Break>,
}

/// Media time at the start of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Point {
    packet: u64,
    time_ns: u64,
}

/// A place in a clock's points, for looking up rising packet numbers without searching.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor(usize);

impl Clock {
    /// A clock of constant rate, for streams that carry none. `bitrate` in bit/s, not 0.
    pub(crate) fn constant(packets: u64, bitrate: u64) -> Self {
        let end_ns = scale(packets, 188 * 8 * 1_000_000_000, bitrate.max(1));
        Self {
            points: vec![
                Point {
                    packet: 0,
                    time_ns: 0,
                },
                Point {
                    packet: packets,
                    time_ns: end_ns,
                },
            ],
            breaks: Vec::new(),
        }
    }

    /// Moves the end to `end_ns`, if the references tell it badly: where a picture lasts seconds,
    /// the few packets behind the last reference say nothing about how long that one is shown.
    pub(crate) fn set_end(&mut self, end_ns: u64) {
        let [.., before, end] = self.points.as_mut_slice() else {
            return;
        };
        let (before, tail_ns) = (*before, end.time_ns - before.time_ns);
        let interval_ns = match self.points.as_slice() {
            [.., earlier, _, _] => before.time_ns - earlier.time_ns,
            _ => 0,
        };
        if tail_ns.max(interval_ns) > END_NS_MAX
            && let Some(end) = self.points.last_mut()
        {
            end.time_ns = end_ns.max(before.time_ns);
        }
    }

    /// Where the time base changes, in order.
    pub(crate) fn breaks(&self) -> &[Break] {
        &self.breaks
    }

    /// The packet after the last that it knows.
    pub(crate) fn packets(&self) -> u64 {
        self.points[self.points.len() - 1].packet
    }

    /// This clock for what comes after the end of `old`, which was learned from less of the same
    /// file, and `old` before: what has been said about a packet stays true, whatever was learned
    /// since.
    pub(crate) fn continuing(mut self, old: &Self) -> Self {
        if self.points.starts_with(&old.points) {
            return self;
        }
        let end = old.points[old.points.len() - 1];
        let own_end_ns = self.time_ns(end.packet);
        let after = self
            .points
            .partition_point(|point| point.packet <= end.packet);
        let shifted = self
            .points
            .drain(after..)
            .map(|Point { packet, time_ns }| Point {
                packet,
                time_ns: end.time_ns.saturating_add(time_ns - own_end_ns),
            });
        let mut points = Vec::with_capacity(old.points.len() + shifted.len());
        points.extend_from_slice(&old.points);
        points.extend(shifted);
        if points.len() > GROWN_POINTS_MAX {
            let last = points.len() - 1;
            let mut i = 0..;
            points.retain(|_| i.next().is_some_and(|i| i % 2 == 0 || i == last));
        }
        let breaks = breaks::continuing(&old.breaks, &self.breaks, end.packet);
        Self { points, breaks }
    }

    /// Media time at the start of `packet`, in ns.
    pub(crate) fn time_ns(&self, packet: u64) -> u64 {
        let mut cursor = self.cursor(packet);
        self.time_ns_from(&mut cursor, packet)
    }

    /// A cursor for packets from `packet` on.
    pub(crate) fn cursor(&self, packet: u64) -> Cursor {
        Cursor(
            self.points
                .partition_point(|point| point.packet <= packet)
                .saturating_sub(1),
        )
    }

    /// As [`Self::time_ns`]; `packet` must not be less than in the calls before with this cursor.
    pub(crate) fn time_ns_from(&self, cursor: &mut Cursor, packet: u64) -> u64 {
        while self
            .points
            .get(cursor.0 + 1)
            .is_some_and(|next| next.packet <= packet)
        {
            cursor.0 += 1;
        }
        let left = self.points[cursor.0];
        let Some(right) = self.points.get(cursor.0 + 1) else {
            return left.time_ns;
        };
        let span_ns = right.time_ns - left.time_ns;
        left.time_ns + scale(packet - left.packet, span_ns, right.packet - left.packet)
    }

    /// The first packet due at `time_ns` or later; the number of packets if there is none.
    pub(crate) fn packet_at(&self, time_ns: u64) -> u64 {
        let right = self.points.partition_point(|point| point.time_ns < time_ns);
        let Some(&Point {
            packet: mut high, ..
        }) = self.points.get(right)
        else {
            return self.points[self.points.len() - 1].packet;
        };
        let Some(left) = right.checked_sub(1) else {
            return 0;
        };
        let mut low = self.points[left].packet;
        // Bisection rather than the inverse of the line, which would have to round the same way.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time_ns_from(&mut Cursor(left), middle) < time_ns {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The most packets that are due within any one second.
    pub(crate) fn packets_per_second_max(&self) -> u64 {
        let second = 1_000_000_000;
        let end_ns = self.points[self.points.len() - 1].time_ns;
        // The busiest window of a piecewise linear function starts or ends at one of its points.
        let from = self.points.iter().map(|point| point.time_ns);
        let to = self
            .points
            .iter()
            .filter_map(|point| point.time_ns.checked_sub(second));
        from.chain(to)
            .filter(|start_ns| start_ns.saturating_add(second) <= end_ns || *start_ns == 0)
            .map(|start_ns| {
                self.packet_at(start_ns.saturating_add(second)) - self.packet_at(start_ns)
            })
            .max()
            .unwrap_or(0)
    }
}

/// `value * numerator / denominator`, rounded down, at most `u64::MAX`. The denominator is not 0.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    match value.checked_mul(numerator) {
        Some(product) => product / denominator,
        None => {
            let wide = u128::from(value) * u128::from(numerator) / u128::from(denominator);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_moves_where_references_are_far_apart() {
        const MS: u64 = 1_000_000;
        let end_of = |times_ms: &[u64], end_ms: u64| {
            let point = |(packet, time_ms): (u64, &u64)| Point {
                packet,
                time_ns: time_ms * MS,
            };
            let points = (0..).zip(times_ms).map(point).collect();
            let mut clock = Clock {
                points,
                breaks: Vec::new(),
            };
            clock.set_end(end_ms * MS);
            clock.points.last().unwrap().time_ns / MS
        };
        assert_eq!(end_of(&[0, 40, 80, 120], 900), 120);
        assert_eq!(end_of(&[0, 500, 1000], 900), 1000);
        assert_eq!(end_of(&[0, 501, 1000], 900), 900);
        assert_eq!(end_of(&[0, 500, 1001], 2900), 2900);
        // Not before what was sent.
        assert_eq!(end_of(&[0, 4000, 17_500], 3900), 4000);
        assert_eq!(end_of(&[0, 4000], 8000), 8000);
    }

    #[test]
    fn what_goes_on_after_another_rate_leaves_out_no_time() {
        let old = Clock::constant(1000, 1504 * 1000);
        assert_eq!(old.time_ns(1000), 1_000_000_000);
        let new = Clock::constant(3000, 1504 * 500).continuing(&old);
        assert_eq!(
            (new.time_ns(500), new.time_ns(1000)),
            (500_000_000, 1_000_000_000)
        );
        assert_eq!(
            (new.time_ns(1500), new.time_ns(3000)),
            (2_000_000_000, 5_000_000_000)
        );
        // And on, from what is not its own time any more.
        let newer = Clock::constant(4000, 1504 * 500).continuing(&new);
        assert_eq!(
            (newer.time_ns(1500), newer.time_ns(4000)),
            (2_000_000_000, 7_000_000_000)
        );
    }

    #[test]
    fn points_of_a_day_stay_and_then_every_other_one() {
        let of = |points: usize| Clock {
            breaks: Vec::new(),
            points: (0..points as u64)
                .map(|i| Point {
                    packet: i,
                    time_ns: i * i,
                })
                .collect(),
        };
        // One of the newer clock's, and all of the older.
        let grown = |points| {
            let mut new = of(points + 1);
            new.points
                .retain(|point| point.packet % 3 == 0 || point.packet >= points as u64);
            new.continuing(&of(points)).points.len()
        };
        assert_eq!(grown(GROWN_POINTS_MAX - 1), GROWN_POINTS_MAX);
        assert_eq!(grown(GROWN_POINTS_MAX), GROWN_POINTS_MAX / 2 + 1);
    }

    #[test]
    fn a_constant_rate_is_exact_at_both_ends() {
        let clock = Clock::constant(1_000_000_007, 4_000_000);
        assert_eq!(
            (clock.time_ns(0), clock.time_ns(2_000_000)),
            (0, 752_000_000_000)
        );
        assert_eq!(clock.time_ns(1_000_000_007), 376_000_002_632_000);
        assert_eq!(clock.time_ns(u64::MAX), 376_000_002_632_000);
    }

    /// References every 20 packets, a millisecond each: of each piece how many, where it begins,
    /// and whether that is flagged.
    fn clock_of(pieces: &[(u64, u64, bool)]) -> Clock {
        let mut builder = ClockBuilder::default();
        let mut packet = 0;
        for (references, ticks, flagged) in pieces {
            for number in 0..*references {
                let ticks = ticks + number * 20 * PCR_HZ / 1000;
                builder.observe(packet, ticks, *flagged && number == 0);
                packet += 20;
            }
        }
        builder.finish(packet).0.expect("a usable clock")
    }

    const HOUR: u64 = 3600 * PCR_HZ;

    #[test]
    fn a_new_time_base_is_a_break_at_its_first_reference() {
        let told = |ticks, flagged| {
            let clock = clock_of(&[(50, HOUR, false), (50, ticks, flagged)]);
            let breaks = clock.breaks().iter();
            breaks.map(|it| (it.after, it.packet)).collect::<Vec<_>>()
        };
        let (here, none) = (vec![(980, 1000)], Vec::new());
        let last = HOUR + 980 * PCR_HZ / 1000;
        assert_eq!(told(0, false), here, "back");
        assert_eq!(told(2 * HOUR, false), here, "on");
        assert_eq!(told(last + PCR_JUMP_TICKS_MAX + 1, false), here);
        assert_eq!(told(last + PCR_JUMP_TICKS_MAX, false), none, "may be time");
        assert_eq!(told(last + PCR_JUMP_TICKS_MAX, true), here, "is told");
        assert_eq!(told(last - PCR_INTERVAL_TICKS_MAX, false), none, "as none");
        assert_eq!(told(last - PCR_INTERVAL_TICKS_MAX - 1, false), here);
    }

    #[test]
    fn a_wrap_or_wrong_references_are_no_break() {
        let none = |pieces: &[_]| assert!(clock_of(pieces).breaks().is_empty());
        none(&[(100, PCR_WRAP - PCR_HZ, false)]);
        let after = |ms: u64| HOUR + ms * PCR_HZ / 1000;
        none(&[(50, HOUR, false), (1, 7, false), (50, after(1020), false)]);
        none(&[(1, 7, false), (50, HOUR, false)]);
        // But two of another are a time base, and so is what comes behind.
        let two = clock_of(&[(50, HOUR, false), (2, 7, false), (50, after(1040), false)]);
        assert_eq!(two.breaks().len(), 2);
    }

    #[test]
    fn breaks_are_saved_and_stay_when_more_is_read() {
        let pieces = [(50, HOUR, false), (50, 0, false), (50, 2 * HOUR, false)];
        let whole = clock_of(&pieces);
        let saved = Clock::try_from(SavedClock::from(whole.clone())).unwrap();
        assert_eq!((saved.breaks(), whole.breaks().len()), (whole.breaks(), 2));
        let early = clock_of(&pieces[..2]);
        let packets = |it: &Clock| it.breaks().iter().map(|it| it.packet).collect::<Vec<_>>();
        assert_eq!(packets(&whole.clone().continuing(&early)), [1000, 2000]);
        // From other points, too.
        let mut other = early.clone();
        other.points.insert(
            1,
            Point {
                packet: 1,
                time_ns: 1,
            },
        );
        assert_eq!(packets(&whole.clone().continuing(&other)), [1000, 2000]);
        for spoil in [
            |it: &mut Vec<Break>| it.reverse(),
            |it: &mut Vec<Break>| it[0].after = it[0].packet,
            |it: &mut Vec<Break>| it[1].after = it[0].packet - 1,
            |it: &mut Vec<Break>| {
                let many = 0..=BREAKS_MAX as u64;
                *it = many
                    .map(|at| Break {
                        after: 2 * at,
                        packet: 2 * at + 1,
                    })
                    .collect();
            },
        ] {
            let mut broken = whole.clone();
            spoil(&mut broken.breaks);
            assert!(Clock::try_from(SavedClock::from(broken)).is_err());
        }
    }

    #[test]
    fn the_first_breaks_are_remembered() {
        let bases = |count: usize| {
            let piece = |number: u64| (3, number % 2 * HOUR, false);
            let pieces: Vec<_> = (0..count as u64).map(piece).collect();
            clock_of(&pieces).breaks().to_vec()
        };
        let most = bases(BREAKS_MAX + 1);
        assert_eq!(most.len(), BREAKS_MAX);
        assert_eq!(bases(BREAKS_MAX + 2), most);
    }
}
