//! What a player would have had to buffer, from when packets came and when they were due.
//!
//! A packet's transit is when it arrived less its media time: its RTP timestamp, on the clock of
//! its stream. Zero is the least transit of a viewer's first second, its warm-up, and stays there:
//! what comes later than that by more than the player buffers comes too late to be shown. The first
//! packet may itself be early or late, and is not zero. Where the media clock of a stream is moved,
//! all that follows is late, for the player's clock was not.
//!
//! In the warm-up a packet is late by how much its transit is above the least of all: a film has no
//! reason to begin late and to catch up then. A channel has ([`Playout::of_channel`]): who joins it
//! is sent at once what came before, older than what is live. A player that starts with that has
//! all that follows early, so there a packet is late by how much it is above the least before it.
//!
//! The same account is kept by the [sink](crate::sink), in `playout` of sink.bpf.c, and by
//! receivers that have sockets, by [`Playout::train`]; a test feeds both the same packets and
//! compares all of it. [`Played`] says what one viewer would have needed, [`Playouts`] what all
//! would.
//!
//! Media time is when a packet is shown. Where pictures are sent in another order than they are
//! shown in (B frames), a viewer buffers for that, too.

use serde::{Deserialize, Serialize};

/// For so long after its first packet a viewer's zero is looked for; then it is frozen.
pub const WARM_UP_NS: u64 = 1_000_000_000;

/// Slots of the histogram of a stream: 250 us wide up to 4 ms, from there eight to an octave.
pub const SLOTS: usize = 96;

/// Width of the first sixteen.
const UNIT_NS: u64 = 250_000;

/// A train's packets are charged one by one, or in so many groups, each as its first.
const GROUPS_MAX: u32 = 16;

/// Viewers that are kept one by one: those who would have needed most.
pub const WORST_KEPT_MAX: usize = 16;

/// Of a viewer's packets the part that comes in time, and of viewers the part that this holds for.
pub const PART_IN_TIME: f64 = 0.999;

/// Below so many packets before the last that was looked at, a stream's rate is not known, and it
/// is taken to be as slow as it can be.
const RATE_PACKETS_MIN: u64 = 50;

/// The account of one stream of one viewer.
// `struct playout` of sink.bpf.c.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct Playout {
    /// When the first came since the clock was last started, CLOCK_MONOTONIC; 0: none yet.
    arrival_ns_first: u64,
    /// The least transit of the warm-up, less that of its first packet.
    base_ns: i64,
    /// The greatest, likewise.
    latest_ns: i64,
    /// How far the two were apart at the most, of clocks that ended.
    warm_up_ns_max: i64,
    /// How far a transit of a warm-up was above the least before it, at the most, of all clocks.
    risen_ns_max: i64,
    /// After a warm-up, the greatest transit less the least of the warm-up.
    late_ns_max: i64,
    /// Media time between two looks at the most.
    step_ns_max: u64,
    /// Packets before the first that was looked at since the clock was started, and before the
    /// last.
    packets_first: u64,
    packets_last: u64,
    /// Of clocks that ended: for how long packets had been due that had not come, at the most, and
    /// how many, together.
    starved_ns_max: u64,
    missing: u64,
    /// From the RTP timestamp of the first that was looked at to those of the last and of the one
    /// that was furthest ahead. The timestamps themselves wrap, at 90 kHz after 13 hours.
    ticks: i64,
    ticks_max: i64,
    /// The RTP timestamp of the last that was looked at.
    timestamp: u32,
    /// Ticks a second.
    clock_hz: u32,
    /// Packets after the warm-up that were looked at, by transit less the least of the warm-up.
    slots: [u32; SLOTS],
}

/// Packets that came together.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// RTP timestamps of the first and of the last.
    pub timestamps: (u32, u32),
    /// Ticks a second of them; not 0.
    pub clock_hz: u32,
    /// How many.
    pub packets: u32,
    /// How many of the stream came before.
    pub packets_before: u64,
    /// When, by CLOCK_MONOTONIC; not 0.
    pub arrival_ns: u64,
}

/// When a viewer stopped watching.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// That moment, by CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What its player buffers: what was due within that before need not have come.
    pub buffer_ns: u64,
}

/// What one viewer would have needed, of one stream or of all that it watches.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Played {
    /// Packets that were judged: of a sink that looks seldom, those looked at.
    pub packets: u64,
    /// In the warm-up, the greatest transit less the least; of a channel less the least before it,
    /// but in older records likewise.
    pub warm_up_ns: u64,
    /// What would have had to be buffered for 999 of 1000 packets, and for all of the warm-up.
    pub needed_ns: u64,
    /// For all packets.
    pub worst_ns: u64,
    /// For how long packets had been due that had not come when it stopped watching, if that is
    /// longer than its player buffers.
    pub starved_ns: u64,
    /// How many of those the player would have shown by then, by the rate of what had come; they
    /// count as late.
    pub missing: u64,
}

/// What all viewers would have needed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Playouts {
    /// Viewers that were judged.
    pub viewers: u64,
    /// Packets that were due to them and had not come.
    pub missing: u64,
    /// Viewers by what they needed, rounded up to these ns, ascending.
    pub needed: Vec<(u64, u64)>,
    /// Those who needed most, at most [`WORST_KEPT_MAX`].
    pub worst: Vec<Played>,
}

impl Playout {
    /// Takes packets that came together, whole or a single one.
    pub fn train(&mut self, train: &Train) {
        let (first, last) = train.timestamps;
        if self.arrival_ns_first == 0 {
            self.arrival_ns_first = train.arrival_ns;
            (self.base_ns, self.latest_ns) = (i64::MAX, i64::MIN);
            (self.ticks, self.ticks_max, self.timestamp) = (0, 0, first);
            self.packets_first = train.packets_before;
            self.clock_hz = train.clock_hz;
        }
        let since_ns = train.arrival_ns.wrapping_sub(self.arrival_ns_first);
        let ticks = self.ticks + ticks_between(self.timestamp, first);
        (self.ticks, self.timestamp) = (ticks, first);
        let transit_ns = |ticks: i64| since_ns.cast_signed() - ticks_to_ns(ticks, train.clock_hz);
        let of_first_ns = transit_ns(ticks);
        let of_last_ns = transit_ns(ticks + ticks_between(first, last));
        let ahead = ticks - self.ticks_max;
        if ahead > 0 {
            let step_ns = ticks_to_ns(ahead, train.clock_hz).unsigned_abs();
            self.step_ns_max = self.step_ns_max.max(step_ns);
            self.ticks_max = ticks;
        }
        self.packets_last = train.packets_before;
        if since_ns < WARM_UP_NS {
            for transit_ns in [of_first_ns, of_last_ns] {
                self.base_ns = self.base_ns.min(transit_ns);
                self.latest_ns = self.latest_ns.max(transit_ns);
                self.risen_ns_max = self.risen_ns_max.max(transit_ns - self.base_ns);
            }
            return;
        }
        // The later in a train, the later due, and so the less late.
        let spread_ns = of_first_ns - of_last_ns;
        let in_group = train.packets.div_ceil(GROUPS_MAX);
        for group in 0..GROUPS_MAX {
            let before = group * in_group;
            if before >= train.packets {
                break;
            }
            let part_ns = spread_ns.unsigned_abs() * u64::from(before)
                / u64::from((train.packets - 1).max(1));
            let part_ns = part_ns.cast_signed() * spread_ns.signum();
            let late_ns = of_first_ns - part_ns - self.base_ns;
            self.late_ns_max = self.late_ns_max.max(late_ns);
            self.slots[slot(late_ns)] += in_group.min(train.packets - before);
        }
    }

    /// Ends the clock: what comes next is measured anew. The viewer stopped watching when `packets`
    /// had come in all; `None`: the stream had ended by itself, and nothing more was due.
    pub fn restart(&mut self, ended: Option<Ended>, packets: u64) {
        if self.arrival_ns_first == 0 {
            return;
        }
        if let Some((starved_ns, missing)) = ended.and_then(|ended| self.starved(ended, packets)) {
            self.starved_ns_max = self.starved_ns_max.max(starved_ns);
            self.missing += missing;
        }
        self.warm_up_ns_max = self.warm_up_ns_max.max(self.latest_ns - self.base_ns);
        (self.arrival_ns_first, self.step_ns_max) = (0, 0);
        (self.base_ns, self.latest_ns) = (0, 0);
    }

    /// This account of a channel: what came before a viewer joined is sent at once, and not late.
    #[must_use]
    pub fn of_channel(self) -> Self {
        Self {
            latest_ns: self.base_ns,
            warm_up_ns_max: self.risen_ns_max,
            ..self
        }
    }

    /// For how long the next packet had been due, of a stream whose rate is known, and how many
    /// more the player would have shown. What may pass between two looks is not held against it.
    fn starved(&self, ended: Ended, packets: u64) -> Option<(u64, u64)> {
        let came = packets.checked_sub(self.packets_first)?;
        let known = self.packets_last.checked_sub(self.packets_first)?;
        if known == 0 || self.ticks_max == 0 {
            return None;
        }
        let media_ns = self.media_ns();
        // The media time of all that came, at the rate of what was looked at. Of few packets the
        // rate is not known: each of those that nobody looked at has brought as much as there was
        // between two looks, which is more than it has.
        let reached_ns = match known < RATE_PACKETS_MIN {
            true => {
                let unseen = u128::from(came.saturating_sub(known));
                u128::from(media_ns) + unseen * u128::from(self.step_ns_max)
            }
            false => u128::from(media_ns) * u128::from(came) / u128::from(known),
        };
        let reached_ns = i64::try_from(reached_ns).ok()?;
        let since_ns = ended
            .at_ns
            .checked_sub(self.arrival_ns_first)?
            .cast_signed();
        let open_ns = u64::try_from(since_ns - self.base_ns - reached_ns).ok()?;
        let starved_ns = open_ns.checked_sub(self.step_ns_max)?;
        let unseen_ns = starved_ns.checked_sub(ended.buffer_ns)?;
        let missing = u128::from(unseen_ns) * u128::from(known) / u128::from(media_ns.max(1));
        // However slow it is said to be, something was due.
        let least = u64::from(known < RATE_PACKETS_MIN && unseen_ns > 0);
        Some((
            starved_ns,
            u64::try_from(missing).unwrap_or(u64::MAX).max(least),
        ))
    }

    /// What the viewer would have needed, who stopped watching then, as for [`Self::restart`];
    /// `None` if nothing came.
    #[must_use]
    pub fn finish(mut self, ended: Option<Ended>, packets: u64) -> Option<Played> {
        self.restart(ended, packets);
        (self.clock_hz > 0).then(|| self.played())
    }

    fn played(&self) -> Played {
        let judged: u64 = self.slots.iter().copied().map(u64::from).sum();
        let warm_up_ns = self.warm_up_ns_max.max(0).unsigned_abs();
        let late_ns_max = self.late_ns_max.max(0).unsigned_abs();
        let worst_ns = late_ns_max.max(warm_up_ns).max(self.starved_ns_max);
        // Of those looked at so many stand for all; what is missing is later than any.
        let due = self.packets_last.max(1) + self.missing;
        let is_missing_late = self.missing * 1000 > due;
        let needed_ns = if is_missing_late {
            worst_ns
        } else {
            self.in_time_ns(judged).max(warm_up_ns)
        };
        Played {
            packets: judged,
            warm_up_ns,
            needed_ns,
            worst_ns,
            starved_ns: self.starved_ns_max,
            missing: self.missing,
        }
    }

    /// What would have been needed for 999 of 1000 of those after the warm-up, rounded up to the
    /// end of a slot, but to no more than was needed for all.
    fn in_time_ns(&self, judged: u64) -> u64 {
        let late_max = judged / 1000;
        let mut late = judged;
        let end = self.slots.iter().position(|&count| {
            late -= u64::from(count);
            late <= late_max
        });
        let end_ns = match end.filter(|_| judged > 0) {
            None => 0,
            // It has no end.
            Some(slot) if slot + 1 == SLOTS => u64::MAX,
            Some(slot) => edge_ns(slot + 1),
        };
        end_ns.min(self.late_ns_max.max(0).unsigned_abs())
    }

    /// Media time between the first and the last that were looked at.
    fn media_ns(&self) -> u64 {
        ticks_to_ns(self.ticks_max, self.clock_hz).unsigned_abs()
    }
}

impl Default for Playout {
    fn default() -> Self {
        Self {
            arrival_ns_first: 0,
            base_ns: 0,
            latest_ns: 0,
            warm_up_ns_max: 0,
            risen_ns_max: 0,
            late_ns_max: 0,
            step_ns_max: 0,
            packets_first: 0,
            packets_last: 0,
            starved_ns_max: 0,
            missing: 0,
            ticks: 0,
            ticks_max: 0,
            timestamp: 0,
            clock_hz: 0,
            slots: [0; SLOTS],
        }
    }
}

impl Played {
    /// Of a viewer to whom so little came that its rate is not known, and for so long nothing more.
    #[must_use]
    pub fn starved(starved_ns: u64) -> Self {
        Self {
            needed_ns: starved_ns,
            worst_ns: starved_ns,
            starved_ns,
            missing: 1,
            ..Self::default()
        }
    }

    /// Of a viewer with another stream beside: what the worse of both needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            warm_up_ns: self.warm_up_ns.max(other.warm_up_ns),
            needed_ns: self.needed_ns.max(other.needed_ns),
            worst_ns: self.worst_ns.max(other.worst_ns),
            starved_ns: self.starved_ns.max(other.starved_ns),
            missing: self.missing + other.missing,
        }
    }
}

impl Playouts {
    /// One viewer more.
    pub fn add(&mut self, played: Played) {
        self.viewers += 1;
        self.missing += played.missing;
        let up_to_ns = match played.needed_ns {
            0 => 0,
            needed_ns => edge_ns(slot(needed_ns.cast_signed() - 1) + 1).max(needed_ns),
        };
        match self.needed.binary_search_by_key(&up_to_ns, |&(ns, _)| ns) {
            Ok(place) => self.needed[place].1 += 1,
            Err(place) => self.needed.insert(place, (up_to_ns, 1)),
        }
        let place = self
            .worst
            .partition_point(|it| it.needed_ns >= played.needed_ns);
        self.worst.insert(place, played);
        self.worst.truncate(WORST_KEPT_MAX);
    }

    /// What that part of the viewers, 0 to 1, had enough with, rounded up; `None` without any.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a number of viewers"
    )]
    pub fn needed_ns(&self, part: f64) -> Option<u64> {
        let wanted = ((self.viewers as f64 * part.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        self.needed.iter().find_map(|&(ns, viewers)| {
            seen += viewers;
            (seen >= wanted).then_some(ns)
        })
    }

    /// Viewers that would have needed more. A bound within a slot counts as where that begins.
    #[must_use]
    pub fn beyond(&self, buffer_ns: u64) -> u64 {
        let beyond = self.needed.iter().filter(|&&(ns, _)| ns > buffer_ns);
        beyond.map(|&(_, viewers)| viewers).sum()
    }

    /// Whether so much was enough for 999 of 1000 viewers. That nothing is missing is another
    /// matter: one viewer of any number who is starved is one too many.
    #[must_use]
    pub fn is_in_time(&self, buffer_ns: u64) -> bool {
        self.beyond(buffer_ns) * 1000 <= self.viewers
    }
}

/// The slot of what is so late; what is not late is in the first.
fn slot(late_ns: i64) -> usize {
    let units = u64::try_from(late_ns).unwrap_or(0) / UNIT_NS;
    if units < 16 {
        return usize::try_from(units).unwrap_or(0);
    }
    // Eight to an octave: the four highest bits, of which the first is set.
    let octave = u64::from(units.ilog2());
    let place = 16 + (octave - 4) * 8 + ((units >> (octave - 3)) & 7);
    usize::try_from(place).unwrap_or(SLOTS).min(SLOTS - 1)
}

/// Where that slot begins.
fn edge_ns(slot: usize) -> u64 {
    let slot = slot as u64;
    match slot {
        0..16 => slot * UNIT_NS,
        _ => ((8 + (slot - 16) % 8) * UNIT_NS) << ((slot - 16) / 8 + 1),
    }
}

/// How far an RTP timestamp is ahead of another, over their wrap.
#[must_use]
pub fn ticks_between(earlier: u32, later: u32) -> i64 {
    i64::from(later.wrapping_sub(earlier).cast_signed())
}

/// How long so many ticks of an RTP clock last, at the most [`DURATION_NS_MAX`].
///
/// The BPF program divides likewise: without the sign.
#[must_use]
pub fn ticks_to_ns(ticks: i64, clock_hz: u32) -> i64 {
    let ns = u128::from(ticks.unsigned_abs()) * 1_000_000_000 / u128::from(clock_hz.max(1));
    let ns = i64::try_from(ns)
        .unwrap_or(DURATION_NS_MAX)
        .min(DURATION_NS_MAX);
    if ticks < 0 { -ns } else { ns }
}

/// 73 years: two of them can be taken off each other. Timestamps are what a server says.
pub const DURATION_NS_MAX: i64 = 1 << 61;

const _: () = assert!(size_of::<Playout>() == 13 * 8 + 2 * 4 + SLOTS * 4);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const BEGIN_NS: u64 = 5_000_000_000;

    /// A stream of a packet every 10 ms for three seconds, each later by what `late_ns` says of it,
    /// and how many packets it has.
    fn stream(seconds: u64, late_ns: impl Fn(u64) -> i64) -> (Playout, u64) {
        let mut playout = Playout::default();
        let packets = seconds * 100;
        for number in 0..packets {
            let due_ns = BEGIN_NS + number * 10 * MS.cast_unsigned();
            let timestamp = u32::try_from(number * 900).unwrap().wrapping_sub(7000);
            playout.train(&Train {
                timestamps: (timestamp, timestamp),
                clock_hz: 90_000,
                packets: 1,
                packets_before: number,
                arrival_ns: due_ns.checked_add_signed(late_ns(number)).unwrap(),
            });
        }
        (playout, packets)
    }

    /// What a viewer needs who stops as the last packet comes.
    fn played(seconds: u64, late_ns: impl Fn(u64) -> i64) -> Played {
        let (playout, packets) = stream(seconds, late_ns);
        playout.finish(ended(seconds * 1000), packets).unwrap()
    }

    /// So long after the first packet was due.
    fn ended(ms: u64) -> Option<Ended> {
        Some(Ended {
            at_ns: BEGIN_NS + ms * 1_000_000,
            buffer_ns: 40_000_000,
        })
    }

    #[test]
    fn slots_follow_each_other_and_hold_what_they_say() {
        for place in 0..SLOTS {
            let (begin, end) = (edge_ns(place), edge_ns(place + 1));
            assert!(begin < end);
            assert_eq!(slot(begin.cast_signed()), place);
            assert_eq!(slot(end.cast_signed() - 1), place);
            // Relative width beyond the first sixteen: an eighth at the most.
            assert!(place < 16 || (end - begin) * 8 <= begin);
        }
        assert_eq!(
            (slot(-1), slot(i64::MIN), slot(i64::MAX)),
            (0, 0, SLOTS - 1)
        );
        let edges: Vec<_> = (0..=SLOTS).map(edge_ns).collect();
        for buffer_ms in [1, 4, 20, 40, 80] {
            assert!(edges.contains(&(buffer_ms * 1_000_000)), "{buffer_ms}");
        }
        assert_eq!(edges[SLOTS], 4_096_000_000);
    }

    #[test]
    fn a_stream_on_time_needs_nothing() {
        let needed = played(3, |_| 0);
        let expected = Played {
            packets: 200,
            ..Played::default()
        };
        assert_eq!(needed, expected);
        assert_eq!(Playout::default().finish(ended(1), 0), None);
    }

    /// Packets of sound that last 64 ms each, of which two leave at once when the first of them is
    /// due. What comes first is the second of a pair if the viewer jumped to it.
    fn sound_in_pairs(begins_amid_a_pair: bool) -> Played {
        let mut playout = Playout::default();
        let packet_ns = 64_000_000;
        let arrived_ns = |pair: u64| BEGIN_NS + pair * 2 * packet_ns;
        let timestamp = |number: u64| u32::try_from(number * 3072).unwrap();
        let skipped = u64::from(begins_amid_a_pair);
        for pair in 0..100 {
            let first = if pair == 0 { skipped } else { 2 * pair };
            let last = 2 * pair + 1;
            playout.train(&Train {
                timestamps: (timestamp(first), timestamp(last)),
                clock_hz: 48_000,
                packets: u32::try_from(last + 1 - first).unwrap(),
                packets_before: first.saturating_sub(skipped),
                arrival_ns: arrived_ns(pair),
            });
        }
        let at_ns = arrived_ns(100);
        let buffer_ns = 160_000_000;
        playout
            .finish(Some(Ended { at_ns, buffer_ns }), 200 - skipped)
            .unwrap()
    }

    #[test]
    fn sound_from_amid_a_train_needs_no_more() {
        // Against the first packet, which is 64 ms early, the first of each pair is 64 ms late:
        // that is what the lateness of a soak's slices tells.
        let (whole, amid) = (sound_in_pairs(false), sound_in_pairs(true));
        assert_eq!(whole.worst_ns, 64_000_000);
        assert_eq!(
            (amid.needed_ns, amid.worst_ns, amid.missing),
            (whole.needed_ns, whole.worst_ns, 0)
        );
    }

    #[test]
    fn a_late_first_packet_is_not_zero() {
        // What comes later is 50 ms late too often; measured from the first, all is early.
        let late_ns = |number| match number {
            0 => 100 * MS,
            _ if number % 10 == 5 => 50 * MS,
            _ => 0,
        };
        let needed = played(10, late_ns);
        assert!(needed.needed_ns >= 50_000_000, "{needed:?}");
        assert_eq!(needed.warm_up_ns, 100_000_000);
        // Who starts a channel with it has to buffer nothing for it.
        let (playout, packets) = stream(10, late_ns);
        let needed = playout.of_channel().finish(ended(10_000), packets).unwrap();
        assert_eq!(needed.warm_up_ns, 50_000_000);
        // An early one is not excused either.
        let needed = played(10, |number| if number == 0 { -30 * MS } else { 0 });
        assert!(needed.needed_ns >= 30_000_000, "{needed:?}");
    }

    /// A live stream of a packet every 10 ms, of which the two seconds before come at once, each
    /// packet 100 us after the other, and each of those that follow by so much late; and how many
    /// packets it has.
    fn joined(late_ns: impl Fn(u64) -> i64) -> (Playout, u64) {
        let mut playout = Playout::default();
        let before = 200_u64;
        for number in 0..before + 500 {
            let live_ns = BEGIN_NS + number.saturating_sub(before) * 10_000_000;
            let arrival_ns = match number < before {
                true => BEGIN_NS - (before - number) * 100_000,
                false => live_ns
                    .checked_add_signed(late_ns(number - before))
                    .unwrap(),
            };
            let timestamp = u32::try_from(number * 900).unwrap();
            playout.train(&Train {
                timestamps: (timestamp, timestamp),
                clock_hz: 90_000,
                packets: 1,
                packets_before: number,
                arrival_ns,
            });
        }
        (playout, before + 500)
    }

    #[test]
    fn what_came_before_a_viewer_joined_is_not_late() {
        let channel = |late_ns: fn(u64) -> i64| {
            let (playout, packets) = joined(late_ns);
            let played = playout.of_channel().finish(ended(5000), packets);
            played.unwrap()
        };
        let needed = channel(|_| 0);
        assert_eq!((needed.worst_ns, needed.missing), (0, 0), "{needed:?}");
        // What is live is late by itself: in the first second, and later, alone.
        let early = channel(|number| if number == 10 { 70 * MS } else { 0 });
        let later = channel(|number| if number == 300 { 70 * MS } else { 0 });
        assert_eq!((early.worst_ns, later.worst_ns), (70_000_000, 70_000_000));
        // It is held against the live ones, however old what came first was.
        let needed = channel(|number| if number < 300 { 0 } else { 700 * MS });
        assert_eq!(needed.needed_ns, 700_000_000, "{needed:?}");
        // A film that begins so is late: the first packet by all that came at once.
        let (playout, packets) = joined(|_| 0);
        let needed = playout.finish(ended(5000), packets).unwrap();
        assert_eq!(needed.needed_ns, 1_980_000_000, "{needed:?}");
        // Where it was played before, each clock counts.
        let (mut playout, packets) = joined(|number| if number == 10 { 70 * MS } else { 0 });
        playout.restart(ended(5000), packets);
        let needed = playout.of_channel().finish(None, packets).unwrap();
        assert_eq!(needed.warm_up_ns, 70_000_000, "{needed:?}");
    }

    #[test]
    fn one_of_a_thousand_may_be_late_and_no_more() {
        let late = |late_packets: u64| {
            // Of 1100 a thousand come after the warm-up.
            let late_ns = move |number| {
                if number >= 1100 - late_packets {
                    60 * MS
                } else {
                    0
                }
            };
            played(11, late_ns)
        };
        // Rounded up to the end of a slot.
        assert_eq!((late(1).needed_ns, late(1).worst_ns), (250_000, 60_000_000));
        assert_eq!(late(2).needed_ns, 60_000_000);
    }

    #[test]
    fn a_clock_that_is_moved_is_late_to_the_end() {
        let needed = played(10, |number| if number >= 500 { 700 * MS } else { 0 });
        assert_eq!(needed.needed_ns, 700_000_000);
    }

    /// 32 bits of 90 kHz wrap after 13 hours, and have a sign for half of that.
    #[test]
    fn a_stream_of_ten_hours_is_on_time_to_its_end() {
        let mut playout = Playout::default();
        let hours = 10 * 3600;
        for second in 0..hours {
            let timestamp = u32::MAX - 7000;
            let timestamp = timestamp.wrapping_add(second * 90_000);
            playout.train(&Train {
                timestamps: (timestamp, timestamp.wrapping_add(900)),
                clock_hz: 90_000,
                packets: 2,
                packets_before: 2 * u64::from(second),
                arrival_ns: BEGIN_NS + u64::from(second) * 1_000_000_000,
            });
        }
        let (packets, hours_ms) = (2 * u64::from(hours), 1000 * u64::from(hours));
        let played = playout.finish(ended(hours_ms), packets).unwrap();
        assert_eq!((played.worst_ns, played.missing), (10_000_000, 0));
        // For an hour more nothing has come.
        let starved = playout.finish(ended(hours_ms + 3_600_000), packets);
        assert_eq!(starved.unwrap().starved_ns / 1_000_000_000, 3599);
    }

    #[test]
    fn no_timestamp_is_too_wild() {
        for clock_hz in [1, 90_000] {
            let mut playout = Playout::default();
            for number in 0..100_u32 {
                let timestamp = number.wrapping_mul(i32::MAX.unsigned_abs());
                playout.train(&Train {
                    timestamps: (timestamp, timestamp),
                    clock_hz,
                    packets: 1,
                    packets_before: number.into(),
                    arrival_ns: BEGIN_NS + u64::from(number) * 100_000_000,
                });
            }
            assert!(playout.finish(ended(20_000), 100).is_some());
        }
        assert_eq!(ticks_to_ns(i64::MIN, 1), -DURATION_NS_MAX);
        assert_eq!(ticks_to_ns(-90_000, 90_000), -1_000_000_000);
    }

    #[test]
    fn what_was_due_and_never_came_counts_as_late() {
        let (playout, packets) = stream(5, |_| 0);
        let of = |ended_ms| playout.finish(ended(ended_ms), packets).unwrap();
        assert_eq!((of(5000).missing, of(5000).needed_ns), (0, 0));
        // What may pass between two looks, and what a player buffers, need not have come.
        assert_eq!(
            (of(5050).missing, of(5059).missing, of(5060).missing),
            (0, 0, 1)
        );
        let starved = of(10_000);
        assert_eq!((starved.missing, starved.starved_ns), (495, 4_990_000_000));
        assert_eq!(starved.needed_ns, 4_990_000_000);
        // A film that is over owes nothing.
        assert_eq!(playout.finish(None, packets).unwrap().missing, 0);
    }

    #[test]
    fn a_viewer_who_got_hardly_anything_is_starved() {
        // Twenty packets, 200 ms of media, then nothing more.
        let few = |packets_in_all: u64, ended_ms| {
            let mut playout = Playout::default();
            for number in 0..20 {
                let timestamp = u32::try_from(number * 900).unwrap();
                playout.train(&Train {
                    timestamps: (timestamp, timestamp),
                    clock_hz: 90_000,
                    packets: 1,
                    packets_before: number,
                    arrival_ns: BEGIN_NS + number * 10_000_000,
                });
            }
            playout.finish(ended(ended_ms), packets_in_all).unwrap()
        };
        let starved = few(20, 2000);
        assert!(starved.missing > 150, "{starved:?}");
        assert!(starved.needed_ns > 1_700_000_000, "{starved:?}");
        // What it may have buffered is not missing, nor what nobody looked at.
        assert_eq!(few(20, 240).missing, 0);
        assert_eq!(few(200, 2000).missing, 0);
    }

    #[test]
    fn a_clock_that_starts_anew_keeps_what_was_late_before() {
        let (mut playout, packets) = stream(3, |number| if number >= 200 { 90 * MS } else { 0 });
        playout.restart(None, packets);
        let hour = 3600 * 90_000;
        for number in 0..200 {
            let timestamp = hour + number * 900;
            playout.train(&Train {
                timestamps: (timestamp, timestamp),
                clock_hz: 90_000,
                packets: 1,
                packets_before: packets + u64::from(number),
                arrival_ns: 2 * BEGIN_NS + u64::from(number) * 10_000_000,
            });
        }
        let needed = playout.finish(ended(7000), packets + 200).unwrap();
        assert_eq!((needed.packets, needed.missing), (200 + 100, 0));
        assert_eq!(needed.needed_ns, 90_000_000);
    }

    #[test]
    fn a_train_is_charged_by_packet_as_its_packets_alone() {
        let at = |playout: &mut Playout, (first, last), packets, arrival_ns| {
            playout.train(&Train {
                timestamps: (first, last),
                clock_hz: 90_000,
                packets,
                packets_before: 0,
                arrival_ns,
            });
        };
        let (mut whole, mut single) = (Playout::default(), Playout::default());
        // Eight packets of 2 ms each, twice, the second past the warm-up; then sixteen together,
        // of which the latter half comes early.
        for (first, packets, arrival_ms) in [(0, 8, 0), (99_000, 8, 1100), (100_440, 16, 1116)] {
            let arrival_ns = BEGIN_NS + arrival_ms * 1_000_000;
            at(
                &mut whole,
                (first, first + (packets - 1) * 180),
                packets,
                arrival_ns,
            );
            for number in 0..packets {
                let timestamp = first + number * 180;
                at(&mut single, (timestamp, timestamp), 1, arrival_ns);
            }
        }
        assert_eq!(whole.slots, single.slots);
        assert_eq!(
            (whole.base_ns, whole.late_ns_max),
            (single.base_ns, single.late_ns_max)
        );
        // The first of a burst waits for its last to be due, and no more.
        assert_eq!(whole.late_ns_max, 14 * MS);
    }

    #[test]
    fn one_late_viewer_of_a_thousand_is_allowed_and_two_are_not() {
        let fine = Played::default();
        let of = |starved: usize, viewers: usize| {
            let mut all = Playouts::default();
            for number in 0..viewers {
                all.add(if number < starved {
                    Played::starved(3_000_000_000)
                } else {
                    fine
                });
            }
            all
        };
        assert!(of(0, 999).is_in_time(0));
        assert!(!of(1, 999).is_in_time(40_000_000));
        assert!(of(1, 1000).is_in_time(40_000_000));
        assert!(!of(2, 1000).is_in_time(40_000_000));
        let all = of(2, 1000);
        assert_eq!(
            (all.viewers, all.missing, all.worst.len()),
            (1000, 2, WORST_KEPT_MAX)
        );
        assert_eq!(all.worst[1].starved_ns, 3_000_000_000);
        assert_eq!(all.needed_ns(0.99), Some(0));
        assert!(all.needed_ns(1.0).unwrap() >= 3_000_000_000);
        assert_eq!(Playouts::default().needed_ns(0.5), None);
    }

    #[test]
    fn a_buffer_at_an_edge_is_enough_for_what_needs_it() {
        let mut all = Playouts::default();
        let needs = |needed_ns| Played {
            needed_ns,
            ..Played::default()
        };
        all.add(needs(40_000_000));
        assert_eq!((all.beyond(40_000_000), all.beyond(39_999_999)), (0, 1));
        all.add(needs(40_000_001));
        assert_eq!(all.beyond(40_000_000), 1);
    }
}
