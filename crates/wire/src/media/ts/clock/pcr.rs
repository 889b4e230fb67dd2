//! A clock learned from program clock references (PCR, ISO/IEC 13818-1, section 2.4.2.2).
//!
//! A builder is shown those of one pid in file order. Between two of them time runs linearly, as
//! the standard says it does. Before the first, after the last and across a change of time base
//! there is nothing to interpolate between; there the rate of the neighbouring second goes on.

use serde::{Deserialize, Serialize};

use super::breaks::{BREAKS_MAX, Break};
use super::{CLOCK_POINTS_MAX, Clock, Point, scale};

/// PCR ticks a second.
pub const PCR_HZ: u64 = 27_000_000;

/// Where the PCR wraps: 33 bits of 90 kHz, 300 ticks each.
pub const PCR_WRAP: u64 = (1 << 33) * 300;

/// A PCR this much after the one before is a new time base, flagged or not; so is any that goes
/// back. Slide shows of one picture in several seconds exist, hence not the 100 ms of the standard.
pub const PCR_JUMP_TICKS_MAX: u64 = 10 * PCR_HZ;

/// The longest interval the standard allows between PCRs. A flagged discontinuity that moves the
/// clock by no more moves nothing worth correcting.
pub const PCR_INTERVAL_TICKS_MAX: u64 = PCR_HZ / 10;

/// PCRs that imply more than this many bit/s are wrong: no transport stream is that fast.
pub const RATE_MAX: u64 = 10_000_000_000;

/// PCRs closer than this to the last point make no new one: less than a burst, more than jitter.
const SPACING_TICKS_MIN: u64 = PCR_HZ / 200;

/// How far back the neighbouring rate is measured.
const NEIGHBOUR_NS: u64 = 1_000_000_000;
const NEIGHBOUR_POINTS_MAX: usize = 64;

/// How well a pid's PCRs keep the rules.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PcrQuality {
    /// PCRs seen.
    pub count: u64,
    /// Changes of time base: flagged ones that moved the clock, and jumps that nothing announced.
    pub discontinuities: u64,
    /// Times the clock wrapped in step.
    pub wraps: u64,
    /// Mean distance of PCRs that follow one another, in ns.
    pub interval_mean_ns: u64,
    /// The largest such distance, in ns. The standard allows 100 ms.
    pub interval_max_ns: u64,
    /// How far PCRs lie from the line between their neighbours, on average, in ns: jitter in a
    /// stream of constant rate; in one of variable rate also its variation.
    pub jitter_mean_ns: u64,
    /// The largest such deviation, in ns.
    pub jitter_max_ns: u64,
}

/// Turns PCRs in file order into a [`Clock`].
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockBuilder {
    points: Vec<Point>,
    /// The first packet of the newest time base that has points.
    base_first: u64,
    base: Option<Base>,
    /// The last PCR of the newest time base that has points and is over.
    believed: Option<Pcr>,
    breaks: Vec<Break>,
    thinnings: u32,
    sums: Sums,
}

/// One unbroken time base.
#[derive(Clone, Debug)]
struct Base {
    first: Pcr,
    /// The last PCR of the base before it stands there, and by how much at the most this one may
    /// have stepped to go on with that.
    after: u64,
    step_ticks_max: u64,
    latest: Pcr,
    /// The PCR before `latest`, if there is one in this base.
    before: Option<Pcr>,
    /// From `first` to `latest`.
    elapsed_ticks: u64,
    /// The newest point made in this base: its packet and `elapsed_ticks` then.
    kept: (u64, u64),
    /// Media time at `first`, once two PCRs have fixed the rate.
    start_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Pcr {
    packet: u64,
    ticks: u64,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    quality: PcrQuality,
    intervals: u64,
    interval_ticks: u64,
    deviations: u64,
    deviation_ticks: u64,
}

impl ClockBuilder {
    /// Takes the next PCR of this pid. `flagged` says that a discontinuity was announced since the
    /// last.
    pub(crate) fn observe(&mut self, packet: u64, ticks: u64, flagged: bool) {
        let pcr = Pcr {
            packet,
            ticks: ticks % PCR_WRAP,
        };
        self.sums.quality.count += 1;
        let Some(base) = &mut self.base else {
            self.base = Some(Base::new(pcr, 0, PCR_JUMP_TICKS_MAX));
            return;
        };
        let step = pcr.since(base.latest);
        let step_ticks_max = match flagged {
            true => PCR_INTERVAL_TICKS_MAX,
            false => PCR_JUMP_TICKS_MAX,
        };
        if step > step_ticks_max {
            self.break_base(pcr, step_ticks_max);
            return;
        }
        self.sums.observe(base, pcr, step);
        base.before = Some(base.latest);
        base.latest = pcr;
        base.elapsed_ticks = base.elapsed_ticks.saturating_add(step);
        let (kept_packet, kept_ticks) = base.kept;
        let ticks_since = base.elapsed_ticks - kept_ticks;
        if ticks_since < SPACING_TICKS_MIN << self.thinnings.min(32) {
            return;
        }
        if scale(packet - kept_packet, 188 * 8 * PCR_HZ, ticks_since) > RATE_MAX {
            self.break_base(pcr, PCR_JUMP_TICKS_MAX);
            return;
        }
        self.keep();
    }

    /// Up to which packet the times are what they will be however the file goes on; 0 before two
    /// good PCRs.
    pub(crate) fn settled(&self) -> u64 {
        self.points.last().map_or(0, |point| point.packet)
    }

    /// The clock of a file of `packets` packets, or `None` if there were not two good PCRs.
    pub(crate) fn finish(mut self, packets: u64) -> (Option<Clock>, PcrQuality) {
        let quality = self.sums.finish();
        let Some(last) = self.points.last().copied() else {
            return (None, quality);
        };
        if last.packet < packets {
            let time_ns = self.extrapolate(packets);
            self.points.push(Point {
                packet: packets,
                time_ns,
            });
        }
        self.points.shrink_to_fit();
        (
            Some(Clock {
                points: self.points,
                breaks: self.breaks,
            }),
            quality,
        )
    }

    /// Makes a point of the base's latest PCR.
    fn keep(&mut self) {
        let Some(base) = &self.base else { return };
        let (packet, elapsed_ticks) = (base.latest.packet, base.elapsed_ticks);
        let first = base.first.packet;
        let elapsed_ns = ns(elapsed_ticks);
        let start_ns = base.start_ns.unwrap_or_else(|| {
            if self.points.is_empty() {
                scale(first, elapsed_ns, packet - first)
            } else {
                self.extrapolate(first)
            }
        });
        if base.start_ns.is_none() {
            let change = self.believed.and_then(|before| base.change_from(before));
            self.breaks
                .extend(change.filter(|_| self.breaks.len() < BREAKS_MAX));
            if self.points.is_empty() && first > 0 {
                self.push(Point {
                    packet: 0,
                    time_ns: 0,
                });
            }
            self.push(Point {
                packet: first,
                time_ns: start_ns,
            });
            self.base_first = first;
        }
        self.push(Point {
            packet,
            time_ns: start_ns.saturating_add(elapsed_ns),
        });
        if let Some(base) = &mut self.base {
            base.start_ns = Some(start_ns);
            base.kept = (packet, elapsed_ticks);
        }
    }

    /// Starts a new time base. One of a single PCR leaves no trace: it says nothing about the rate.
    fn break_base(&mut self, pcr: Pcr, step_ticks_max: u64) {
        self.sums.quality.discontinuities += 1;
        let Some(base) = &mut self.base else { return };
        if base.start_ns.is_some() {
            self.believed = Some(base.latest);
        }
        *base = Base::new(pcr, base.latest.packet, step_ticks_max);
    }

    /// Media time at `packet`, which lies after all points, at the rate of the last second before.
    fn extrapolate(&self, packet: u64) -> u64 {
        let last = self.points[self.points.len() - 1];
        let near = self.points[..self.points.len() - 1]
            .iter()
            .rev()
            .take(NEIGHBOUR_POINTS_MAX)
            .take_while(|point| {
                point.packet >= self.base_first && last.time_ns - point.time_ns <= NEIGHBOUR_NS
            })
            .last()
            // A single interval of more than a second, or thinned out: then the one there is.
            .or_else(|| self.points.iter().rev().nth(1));
        let Some(near) = near else {
            return last.time_ns;
        };
        let span_ns = last.time_ns - near.time_ns;
        last.time_ns.saturating_add(scale(
            packet - last.packet,
            span_ns,
            last.packet - near.packet,
        ))
    }

    fn push(&mut self, point: Point) {
        if self.points.len() == CLOCK_POINTS_MAX {
            let mut i = 0;
            self.points.retain(|_| {
                i += 1;
                // The first and the newest stay: the one is the origin, from the other time goes
                // on.
                i % 2 == 1 || i == CLOCK_POINTS_MAX
            });
            self.thinnings += 1;
        }
        self.points.push(point);
    }
}

impl Base {
    fn new(pcr: Pcr, after: u64, step_ticks_max: u64) -> Self {
        Self {
            first: pcr,
            after,
            step_ticks_max,
            latest: pcr,
            before: None,
            elapsed_ticks: 0,
            kept: (pcr.packet, 0),
            start_ns: None,
        }
    }

    /// The change of time base from one that has ended with that PCR; none if this goes on with it,
    /// because what lies between the two was wrong.
    fn change_from(&self, before: Pcr) -> Option<Break> {
        let goes_on = self.first.since(before) <= self.step_ticks_max
            || before.since(self.first) <= PCR_INTERVAL_TICKS_MAX;
        let packet = self.first.packet;
        (!goes_on).then(|| Break {
            after: self.after.min(packet.saturating_sub(1)),
            packet,
        })
    }
}

impl Pcr {
    /// Ticks from `earlier` to this, modulo the wrap.
    fn since(self, earlier: Self) -> u64 {
        (self.ticks + PCR_WRAP - earlier.ticks) % PCR_WRAP
    }
}

impl Sums {
    fn observe(&mut self, base: &Base, pcr: Pcr, step: u64) {
        self.quality.wraps += u64::from(pcr.ticks < base.latest.ticks);
        self.intervals += 1;
        self.interval_ticks = self.interval_ticks.saturating_add(step);
        self.quality.interval_max_ns = self.quality.interval_max_ns.max(ns(step));
        if let Some(before) = base.before {
            let middle = base.latest.since(before);
            let line = scale(
                base.latest.packet - before.packet,
                middle + step,
                pcr.packet - before.packet,
            );
            let deviation = line.abs_diff(middle);
            self.deviations += 1;
            self.deviation_ticks += deviation;
            self.quality.jitter_max_ns = self.quality.jitter_max_ns.max(ns(deviation));
        }
    }

    fn finish(&self) -> PcrQuality {
        PcrQuality {
            interval_mean_ns: ns(self.interval_ticks.checked_div(self.intervals).unwrap_or(0)),
            jitter_mean_ns: ns(self
                .deviation_ticks
                .checked_div(self.deviations)
                .unwrap_or(0)),
            ..self.quality.clone()
        }
    }
}

/// PCR ticks as nanoseconds.
pub(super) fn ns(ticks: u64) -> u64 {
    scale(ticks, 1000, 27)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1 ms in ticks; packets in these tests last that long, unless they say otherwise.
    const MS: u64 = 27_000;

    /// A clock of `(packet, ticks, flagged)`, for a file of `packets`.
    fn clock(
        packets: u64,
        seen: impl IntoIterator<Item = (u64, u64, bool)>,
    ) -> (Clock, PcrQuality) {
        let mut builder = ClockBuilder::default();
        for (packet, ticks, flagged) in seen {
            builder.observe(packet, ticks, flagged);
        }
        let (clock, quality) = builder.finish(packets);
        (clock.expect("a usable clock"), quality)
    }

    /// PCRs every 20 packets from `packets.start` on, the first of `ticks`, at the given rate.
    fn steady(
        packets: std::ops::Range<u64>,
        ticks: u64,
        packet_ticks: u64,
    ) -> Vec<(u64, u64, bool)> {
        let start = packets.start;
        let pcr = |packet| (ticks + (packet - start) * packet_ticks) % PCR_WRAP;
        packets
            .step_by(20)
            .map(|packet| (packet, pcr(packet), false))
            .collect()
    }

    /// Asserts that packet `i` of a clock is due at `i` ms, for all of `packets`.
    fn assert_keeps_pace(clock: &Clock, packets: u64) {
        for packet in 0..=packets {
            assert!(
                clock.time_ns(packet).abs_diff(packet * 1_000_000) <= 2,
                "{packet}"
            );
        }
    }

    #[test]
    fn time_runs_linearly_between_references_and_beyond_them() {
        // The first reference is in packet 7, the last in packet 987 of 1100.
        let (clock, quality) = clock(1100, steady(7..1000, 12345, MS));
        assert_keeps_pace(&clock, 1100);
        assert_eq!(
            (quality.count, quality.discontinuities, quality.wraps),
            (50, 0, 0)
        );
        assert_eq!(
            (quality.interval_mean_ns, quality.interval_max_ns),
            (20_000_000, 20_000_000)
        );
        assert_eq!(quality.jitter_max_ns, 0);
    }

    #[test]
    fn a_wrap_is_no_break() {
        let (clock, quality) = clock(1000, steady(0..1000, PCR_WRAP - 500 * MS, MS));
        assert_keeps_pace(&clock, 1000);
        assert_eq!((quality.wraps, quality.discontinuities), (1, 0));
    }

    #[test]
    fn a_new_time_base_goes_on_at_the_rate_before() {
        let hour = 3600 * PCR_HZ;
        let beyond = 500 * MS + PCR_JUMP_TICKS_MAX;
        // Back an hour, on an hour, and just beyond the limit; none of them flagged.
        for ticks in [9 * hour, 11 * hour, 10 * hour + beyond] {
            let mut seen = steady(0..500, 10 * hour, MS);
            seen.extend(steady(500..1000, ticks, MS));
            let (clock, quality) = clock(1000, seen);
            assert_keeps_pace(&clock, 1000);
            assert_eq!(quality.discontinuities, 1, "{ticks}");
        }
    }

    #[test]
    fn a_jump_is_time_up_to_its_limit_unless_it_is_flagged() {
        let with = |step: u64, flagged: bool| {
            let mut seen = steady(0..100, 0, MS);
            let mut after = steady(100..200, 80 * MS + step, MS);
            after[0].2 = flagged;
            seen.extend(after);
            let (clock, quality) = clock(200, seen);
            (
                clock.time_ns(100) - clock.time_ns(80),
                quality.discontinuities,
            )
        };
        assert_eq!(with(PCR_JUMP_TICKS_MAX, false), (10_000_000_000, 0));
        assert_eq!(with(PCR_JUMP_TICKS_MAX + 1, false), (20_000_000, 1));
        assert_eq!(with(PCR_INTERVAL_TICKS_MAX, true), (100_000_000, 0));
        assert_eq!(with(PCR_INTERVAL_TICKS_MAX + 1, true), (20_000_000, 1));
    }

    #[test]
    fn one_wild_reference_leaves_no_trace_in_time() {
        let mut seen = steady(0..1000, 0, MS);
        seen[25].1 = 12_345_678_901;
        let (clock, quality) = clock(1000, seen);
        assert_keeps_pace(&clock, 1000);
        // There and back.
        assert_eq!(quality.discontinuities, 2);
    }

    #[test]
    fn across_a_break_the_rate_is_that_of_the_second_before() {
        // A packet every 2 ms, then a second of one every ms; then a break of 100 packets.
        let mut seen = steady(0..3000, 0, 2 * MS);
        seen.extend(steady(3000..4020, 6000 * MS, MS));
        seen.extend(steady(4100..6000, 99 * PCR_HZ, MS / 2));
        let (clock, _) = clock(6100, seen);
        assert_eq!(clock.time_ns(4100) - clock.time_ns(4000), 100_000_000);
        assert_eq!(clock.time_ns(6100) - clock.time_ns(5980), 60_000_000);
    }

    #[test]
    fn impossible_rates_are_not_believed() {
        // A million packets in 5 ms, between two honest halves.
        let mut seen = steady(0..1000, 0, MS);
        let crawl = (0..=100).map(|i| (1000 + i * 10_000, 980 * MS + i * MS / 20, false));
        seen.extend(crawl);
        let (clock, quality) = clock(1_001_000, seen);
        assert_eq!(quality.discontinuities, 1);
        assert!(
            clock.time_ns(1_001_000) >= 1_000_000_000_000,
            "{}",
            clock.time_ns(1_001_000)
        );
    }

    #[test]
    fn a_clock_that_stands_still_is_none() {
        for seen in [vec![], vec![(5, 1, false)], vec![(5, 1, false); 10]] {
            let mut builder = ClockBuilder::default();
            for (i, (packet, ticks, flagged)) in seen.into_iter().enumerate() {
                builder.observe(packet + i as u64, ticks, flagged);
            }
            assert!(builder.finish(100).0.is_none());
        }
    }

    #[test]
    fn jitter_is_the_distance_from_the_line_between_the_neighbours() {
        let mut seen = steady(0..100, 0, MS);
        // The middle one 3 us late: its own deviation is 3 us, each neighbour's half of that.
        seen[2].1 += 81;
        let (_, quality) = clock(100, seen);
        assert_eq!(quality.jitter_max_ns, 3000);
        // (40 + 81 + 40) ticks over three triples.
        assert_eq!(quality.jitter_mean_ns, 53 * 1000 / 27);
    }

    #[test]
    fn points_thin_out_at_their_limit_and_keep_the_pace() {
        let of = |points: usize| {
            // One point every 5 ms, which is the closest they come.
            let (clock, _) = clock(
                points as u64 * 5,
                (0..points as u64).map(|i| (i * 5, i * 5 * MS, false)),
            );
            clock
        };
        // The end of the file is a point of its own.
        assert_eq!(of(CLOCK_POINTS_MAX).points.len(), CLOCK_POINTS_MAX + 1);
        let thinned = of(CLOCK_POINTS_MAX + 1);
        assert_eq!(thinned.points.len(), CLOCK_POINTS_MAX / 2 + 3);
        assert_keeps_pace(&thinned, 100_000);
        let many = of(4 * CLOCK_POINTS_MAX);
        assert!(many.points.len() <= CLOCK_POINTS_MAX + 1);
        assert_keeps_pace(&many, 100_000);
    }

    #[test]
    fn the_busiest_second_is_found_wherever_it_starts() {
        // 100 packets a second, but from 2.3 s to 3.3 s 1000, and half a second of 800 after 5 s.
        let mut seen = vec![(0, 0, false)];
        let mut at = (0, 0);
        for (packets, ms) in [
            (230, 2300),
            (1000, 1000),
            (170, 1700),
            (400, 500),
            (450, 4500),
        ] {
            for _ in 0..ms / 100 {
                at = (at.0 + packets * 100 / ms, at.1 + 100 * MS);
                seen.push((at.0, at.1, false));
            }
        }
        let (clock, _) = clock(at.0, seen);
        assert_eq!(clock.packets_per_second_max(), 1000);
        // It ends at a reference here, but starts at none: 100 packets and 500.
        let seen = [(0, 0), (400, 2000), (900, 2500), (1150, 5000)];
        let (clock, _) = self::clock(1150, seen.map(|(packet, ms)| (packet, ms * MS, false)));
        assert_eq!(clock.packets_per_second_max(), 600);
        assert_eq!(
            Clock::constant(10_000, 1504 * 250).packets_per_second_max(),
            250
        );
    }

    proptest! {
        #[test]
        fn time_never_goes_back_whatever_the_references_say(
            steps in prop::collection::vec(
                (
                    prop_oneof![1_u64..50, 1_u64..1_000_000],
                    prop_oneof![0_u64..100 * MS, any::<u64>(), Just(0), Just(PCR_WRAP - 1)],
                    any::<bool>(),
                ),
                0..200,
            ),
        ) {
            let mut builder = ClockBuilder::default();
            let (mut packet, mut ticks) = (0, 0_u64);
            for (packets, step, flagged) in steps {
                packet += packets;
                ticks = ticks.wrapping_add(step);
                builder.observe(packet, ticks, flagged);
            }
            let Some(clock) = builder.finish(packet + 10).0 else { return Ok(()) };
            prop_assert_eq!(clock.points[0], Point { packet: 0, time_ns: 0 });
            prop_assert!(clock.points.is_sorted_by(|a, b| a.packet < b.packet));
            prop_assert!(clock.points.is_sorted_by_key(|point| point.time_ns));
            let mut cursor = clock.cursor(0);
            for packet in (0..packet + 20).step_by(usize::try_from(packet / 500 + 1).unwrap()) {
                let time_ns = clock.time_ns(packet);
                prop_assert_eq!(clock.time_ns_from(&mut cursor, packet), time_ns);
                // The first packet due then, or later.
                let at = clock.packet_at(time_ns);
                prop_assert!(at <= packet && clock.time_ns(at) >= time_ns);
                prop_assert!(at == 0 || clock.time_ns(at - 1) < time_ns);
            }
        }
    }
}
