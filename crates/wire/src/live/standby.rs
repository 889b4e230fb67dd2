//! A channel that two publishers send: which of them viewers get, and what is kept of the other.
//!
//! One ingest is active, the other stands by: of that a [`Reserve`] has what came since its last
//! sync sample. [`active_ingest`] says which of the two it is to be; a [`Lead`] how the timestamps
//! of the other go on where those of the first have ended, by all tracks alike; a [`CatchUp`] how
//! fast what was kept is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Recent, RecentPacket, SyncRule};
use crate::rtp::Header;

/// Ingests of one channel at once: the active one, and a standby.
pub const INGESTS_MAX: usize = 2;

/// One of the ingests of a channel, as it is now. Times are of a steady clock, in ns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ingest {
    /// When it began.
    pub begun_ns: u64,
    /// When a packet of it came last, if one has.
    pub heard_ns: Option<u64>,
    /// Whether viewers of all nodes are to get it: in a cluster not while another node has the
    /// channel's lease.
    pub has_right: bool,
}

impl Ingest {
    /// Whether a packet has come within `time_ns`.
    #[must_use]
    pub fn is_heard(&self, now_ns: u64, time_ns: u64) -> bool {
        let heard = self.heard_ns;
        heard.is_some_and(|heard_ns| now_ns.saturating_sub(heard_ns) < time_ns)
    }

    /// Whether nothing has come for `time_ns` or longer, since it began.
    #[must_use]
    pub fn is_silent(&self, now_ns: u64, time_ns: u64) -> bool {
        let last_ns = self.heard_ns.unwrap_or(0).max(self.begun_ns);
        now_ns.saturating_sub(last_ns) >= time_ns
    }
}

/// Which ingest viewers are to get now; none if there is none that may be.
///
/// The active one stays for as long as something comes of it: one that comes back stands by. It
/// is replaced when it is silent for `silence_ns` and the other is not, or when the other has the
/// right and it has not. An ingest without the right goes to viewers of this node alone, where
/// some wait (`is_awaited`) and nothing else has come for `silence_ns`; `since_ns` is when there
/// ceased to be an active one.
#[must_use]
pub fn active_ingest(
    active: Option<usize>,
    ingests: [Option<Ingest>; INGESTS_MAX],
    (now_ns, silence_ns): (u64, u64),
    (since_ns, is_awaited): (u64, bool),
) -> Option<usize> {
    let all = ingests.iter().enumerate();
    let there = all.filter_map(|(slot, ingest)| Some((slot, (*ingest)?)));
    let current = active.and_then(|slot| Some((slot, ingests[slot]?)));
    if let Some((slot, own)) = current {
        let mut others = there.filter(|(it, _)| *it != slot);
        let next = others.find(|(_, it)| {
            let is_better = it.has_right && !own.has_right;
            let may_replace = it.has_right || !own.has_right || is_awaited;
            let is_silent = own.is_silent(now_ns, silence_ns);
            it.is_heard(now_ns, silence_ns) && (is_better || is_silent && may_replace)
        });
        return Some(next.map_or(slot, |(next, _)| next));
    }
    let is_due = is_awaited && now_ns.saturating_sub(since_ns) >= silence_ns;
    let able = there.filter(|(_, it)| it.has_right || is_due);
    // The one that is heard before one that is not.
    let best = able.max_by_key(|(slot, it)| {
        let is_heard = it.is_heard(now_ns, silence_ns);
        (it.has_right, is_heard, INGESTS_MAX - slot)
    });
    best.map(|(slot, _)| slot)
}

/// By how much the timestamps that viewers get are ahead of when their packets came.
///
/// A standby begins with a sync sample that came before the last packet of the other one. Time does
/// not go back for viewers, so it goes on behind that: what is ahead then is made good when
/// the next one begins later than the other has ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lead {
    /// In ns.
    pub ns: u64,
}

impl Lead {
    /// That of an ingest whose first packet came at `begins_ns`, if the last one that viewers got
    /// came at `ended_ns`, of any track.
    #[must_use]
    pub fn then(self, ended_ns: Option<u64>, begins_ns: u64) -> Self {
        let end_ns = ended_ns.map_or(0, |ns| ns.saturating_add(self.ns + PICTURE_NS));
        Self {
            ns: end_ns.saturating_sub(begins_ns),
        }
    }

    /// Whether viewers get a channel as late as they may.
    #[must_use]
    pub const fn is_bounded(self) -> bool {
        Duration::from_nanos(self.ns).as_nanos() <= LEAD_MAX.as_nanos()
    }

    /// How much time passes for viewers beside what has passed, in ns: less than none where what is
    /// ahead is made good.
    #[must_use]
    pub fn gain_ns(self, before: Self) -> i64 {
        let signed = |ns| i64::try_from(ns).unwrap_or(i64::MAX);
        signed(self.ns) - signed(before.ns)
    }
}

/// A packet of an ingest that viewers have not got.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// Its track.
    pub track: usize,
    /// As it came.
    pub bytes: Arc<[u8]>,
    /// When it came, in ns of a steady clock.
    pub arrived_ns: u64,
}

/// What has come of a standby since its last sync sample, within bounds.
#[derive(Debug)]
pub struct Reserve {
    tracks: Vec<ReserveTrack>,
    /// The last packet's number: when it came, or more where several came at once.
    order: u64,
}

#[derive(Debug)]
struct ReserveTrack {
    payload_type: u8,
    recent: Recent,
    ssrc: Option<u32>,
    /// Where its last sync sample begins.
    sync: Option<u64>,
    /// A sync sample has come: a transport stream need not say where any is.
    has_sync: bool,
}

impl Reserve {
    /// An empty one of tracks with these rules and payload types, each within these bounds.
    #[must_use]
    pub fn new(
        tracks: impl Iterator<Item = (SyncRule, u8)>,
        packets_max: usize,
        bytes_max: usize,
    ) -> Self {
        let tracks = tracks.map(|(rule, payload_type)| ReserveTrack {
            payload_type,
            recent: Recent::new(rule, packets_max, bytes_max),
            ssrc: None,
            sync: None,
            has_sync: false,
        });
        Self {
            tracks: tracks.collect(),
            order: 0,
        }
    }

    /// Takes what came of a track at `now_ns`; whether it is a packet of that.
    pub fn push(&mut self, track: usize, bytes: &[u8], now_ns: u64) -> bool {
        let Some(own) = self.tracks.get_mut(track) else {
            return false;
        };
        let header = Header::read(bytes).filter(|it| it.payload_type == own.payload_type);
        let Some(header) = header else {
            return false;
        };
        if own.ssrc.is_some_and(|ssrc| ssrc != header.ssrc) {
            own.forget();
        }
        own.ssrc = Some(header.ssrc);
        self.order = now_ns.max(self.order + 1);
        let begun = own.recent.push(RecentPacket {
            order: self.order,
            bytes: bytes.into(),
        });
        own.has_sync |= begun.is_some();
        match own.recent.packets() {
            // A bound was reached.
            None => own.sync = None,
            Some(_) => own.sync = begun.or(own.sync),
        }
        if let Some(first) = self.begins() {
            let others = self.tracks.iter_mut();
            let others = others.filter(|it| it.recent.rule().is_everywhere());
            others.for_each(|it| it.recent.cut_before(first));
        }
        true
    }

    /// When what a decoder can start with came, if all tracks with sync samples have some of that.
    #[must_use]
    pub fn begins_ns(&self) -> Option<u64> {
        let with_sync = self.with_sync();
        let is_whole = with_sync.clone().all(|it| it.sync.is_some());
        let is_empty = with_sync.clone().next().is_none();
        match is_empty {
            // Sound alone begins with what comes next.
            true => Some(self.order + 1),
            false => self.begins().filter(|_| is_whole),
        }
    }

    /// What is kept, in the order in which it came; nothing is from then on.
    pub fn take(&mut self) -> VecDeque<Kept> {
        let tracks = self.tracks.iter().enumerate();
        let all = tracks.flat_map(|(track, own)| {
            let packets = own.recent.packets().into_iter().flatten();
            packets.map(move |packet| Kept {
                track,
                bytes: Arc::clone(&packet.bytes),
                arrived_ns: packet.order,
            })
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|kept| kept.arrived_ns);
        self.clear();
        all.into()
    }

    /// Forgets all until the next sync sample.
    pub fn clear(&mut self) {
        self.tracks.iter_mut().for_each(ReserveTrack::forget);
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tracks.iter().map(|track| track.recent.bytes()).sum()
    }

    /// Where what is kept begins: the earliest of the tracks' last sync samples. Without any all
    /// is kept, until there is one.
    fn begins(&self) -> Option<u64> {
        match self.with_sync().next() {
            None => Some(self.order + 1),
            Some(_) => self.with_sync().filter_map(|track| track.sync).min(),
        }
    }

    fn with_sync(&self) -> impl Iterator<Item = &ReserveTrack> + Clone {
        let tracks = self.tracks.iter();
        tracks.filter(|track| !track.is_everywhere())
    }
}

impl ReserveTrack {
    /// Whether a decoder can start at any packet, as far as is known.
    fn is_everywhere(&self) -> bool {
        let rule = self.recent.rule();
        rule.is_everywhere() || rule == SyncRule::TransportStream && !self.has_sync
    }

    fn forget(&mut self) {
        self.recent.clear();
        self.sync = None;
    }
}

/// Sends what was kept sooner than it came, and what comes meanwhile behind it.
#[derive(Debug)]
pub struct CatchUp {
    packets: VecDeque<Kept>,
    bytes: usize,
    bytes_max: usize,
    /// When the first one came, and when it was sent.
    first_ns: u64,
    began_ns: u64,
}

impl CatchUp {
    /// Begins at `now_ns`, and holds so many bytes at the most: with more all is sent at once.
    #[must_use]
    pub fn new(packets: VecDeque<Kept>, bytes_max: usize, now_ns: u64) -> Self {
        Self {
            bytes: packets.iter().map(|packet| packet.bytes.len()).sum(),
            first_ns: packets.front().map_or(now_ns, |first| first.arrived_ns),
            began_ns: now_ns,
            packets,
            bytes_max,
        }
    }

    /// Puts one behind the others.
    pub fn push(&mut self, packet: Kept) {
        self.bytes += packet.bytes.len();
        self.packets.push_back(packet);
    }

    /// The next one that is to be sent by now: they go [`CATCH_UP_SPEED`] times as fast as they
    /// came.
    pub fn next_due(&mut self, now_ns: u64) -> Option<Kept> {
        let passed_ns = now_ns.saturating_sub(self.began_ns);
        let until_ns = self.first_ns + passed_ns.saturating_mul(CATCH_UP_SPEED);
        let is_due = |first: &Kept| first.arrived_ns <= until_ns;
        if !self.packets.front().is_some_and(is_due) && self.bytes <= self.bytes_max {
            return None;
        }
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes.len();
        Some(packet)
    }

    /// Whether everything has been sent.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.packets.is_empty()
    }
}

/// How many times as fast as it came what was kept is sent.
pub const CATCH_UP_SPEED: u64 = 4;

/// A standby begins with what is kept of it if viewers get it no later than this for that; else
/// with its next sync sample.
pub const LEAD_MAX: Duration = Duration::from_secs(4);

/// What time passes for viewers from the last packet of one ingest to the first of the other, at
/// the least: that of a picture.
const PICTURE_NS: u64 = 40_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TIMES: (u64, u64) = (100 * SECOND, 2 * SECOND);

    /// One that was heard so many seconds before.
    fn heard(seconds: u64) -> Option<Ingest> {
        Some(Ingest {
            begun_ns: 10 * SECOND,
            heard_ns: Some((100 - seconds) * SECOND),
            has_right: true,
        })
    }

    fn without_right(seconds: u64) -> Option<Ingest> {
        let has_right = false;
        heard(seconds).map(|it| Ingest { has_right, ..it })
    }

    fn of(active: Option<usize>, ingests: [Option<Ingest>; 2]) -> Option<usize> {
        active_ingest(active, ingests, TIMES, (0, true))
    }

    #[test]
    fn the_active_one_stays_until_it_ends_or_is_silent() {
        assert_eq!(of(None, [None, None]), None);
        assert_eq!(of(None, [heard(0), None]), Some(0));
        assert_eq!(of(Some(0), [heard(1), heard(0)]), Some(0));
        assert_eq!(of(Some(0), [heard(2), heard(0)]), Some(1), "silent");
        assert_eq!(of(Some(1), [heard(0), heard(1)]), Some(1), "it is back");
        assert_eq!(
            of(Some(0), [heard(5), heard(3)]),
            Some(0),
            "so is the other"
        );
        assert_eq!(of(Some(0), [heard(5), None]), Some(0));
        assert_eq!(of(Some(0), [None, heard(1)]), Some(1), "it has ended");
        assert_eq!(of(Some(0), [None, heard(50)]), Some(1), "there is no other");
    }

    #[test]
    fn one_that_has_just_begun_is_not_silent_and_not_heard() {
        let new = Some(Ingest {
            begun_ns: 99 * SECOND,
            heard_ns: None,
            has_right: true,
        });
        assert_eq!(of(Some(0), [new, heard(0)]), Some(0));
        assert_eq!(of(Some(1), [new, heard(5)]), Some(1));
        assert_eq!(of(None, [new, heard(0)]), Some(1));
    }

    #[test]
    fn another_nodes_channel_goes_before_a_standby_of_this_one() {
        // Viewers of this node wait, and nothing has come from there for too long.
        assert_eq!(of(Some(0), [heard(2), without_right(0)]), Some(1));
        assert_eq!(of(Some(1), [heard(0), without_right(0)]), Some(0));
        assert_eq!(of(Some(1), [heard(3), without_right(0)]), Some(1));
        assert_eq!(of(Some(0), [heard(1), without_right(0)]), Some(0));
        // It has the right from now on, the other no longer.
        assert_eq!(of(Some(0), [without_right(0), heard(0)]), Some(1));
        let choose = |since_ns, is_awaited| {
            let ingests = [None, without_right(0)];
            active_ingest(None, ingests, TIMES, (since_ns, is_awaited))
        };
        assert_eq!(choose(98 * SECOND, true), Some(1));
        assert_eq!(choose(99 * SECOND, true), None, "the lease may be had soon");
        assert_eq!(choose(98 * SECOND, false), None, "nobody watches");
    }

    #[test]
    fn a_lead_is_made_good() {
        let none = Lead::default();
        assert_eq!(none.then(None, 5), none);
        // It begins two seconds before the other has ended.
        let lead = none.then(Some(10 * SECOND), 8 * SECOND);
        assert_eq!(lead.ns, 2 * SECOND + PICTURE_NS);
        assert_eq!(lead.gain_ns(none), 2_040_000_000);
        // The next one a second later.
        let next = lead.then(Some(20 * SECOND), 21 * SECOND);
        assert_eq!(next.ns, SECOND + 2 * PICTURE_NS);
        assert!(next.gain_ns(lead) < 0 && next.is_bounded());
        assert!(!lead.then(Some(30 * SECOND), 27 * SECOND).is_bounded());
        assert_eq!(next.then(Some(40 * SECOND), 45 * SECOND), none);
    }

    fn packet(ssrc: u32, timestamp: u32, nal: u8) -> Vec<u8> {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: 0,
            timestamp,
            ssrc,
        };
        [&header.to_bytes()[..], &[nal, 0, 0, 0]].concat()
    }

    fn reserve() -> Reserve {
        let rules = [(SyncRule::H264, 96), (SyncRule::Every, 96)];
        Reserve::new(rules.into_iter(), 5, 1000)
    }

    fn arrivals(packets: &VecDeque<Kept>) -> Vec<(usize, u64)> {
        let each = packets.iter();
        each.map(|it| (it.track, it.arrived_ns)).collect()
    }

    #[test]
    fn a_reserve_begins_with_the_last_sync_sample() {
        let mut reserve = reserve();
        assert!(!reserve.push(0, b"no packet", 1));
        assert!(!reserve.push(2, &packet(1, 0, 0x65), 1), "no such track");
        reserve.push(0, &packet(1, 0, 0x41), 10);
        reserve.push(1, &packet(2, 0, 0), 11);
        assert_eq!(reserve.begins_ns(), None);
        reserve.push(0, &packet(1, 1, 0x65), 20);
        reserve.push(1, &packet(2, 1, 0), 21);
        reserve.push(1, &packet(2, 2, 0), 21);
        reserve.push(0, &packet(1, 2, 0x41), 30);
        assert_eq!(reserve.begins_ns(), Some(20));
        let taken = reserve.take();
        assert_eq!(arrivals(&taken), [(0, 20), (1, 21), (1, 22), (0, 30)]);
        assert_eq!((reserve.begins_ns(), reserve.bytes()), (None, 0));
    }

    #[test]
    fn a_reserve_is_bounded_and_of_one_source() {
        let mut reserve = reserve();
        reserve.push(0, &packet(1, 0, 0x65), 10);
        assert_eq!(reserve.begins_ns(), Some(10));
        reserve.push(0, &packet(9, 1, 0x41), 11);
        assert_eq!(reserve.begins_ns(), None, "it came of another source");
        reserve.push(0, &packet(9, 2, 0x65), 12);
        for at in 13..17 {
            reserve.push(0, &packet(9, 3, 0x41), at);
        }
        assert_eq!(reserve.begins_ns(), Some(12), "as many as may be");
        reserve.push(0, &packet(9, 3, 0x41), 17);
        assert_eq!((reserve.begins_ns(), reserve.bytes()), (None, 0));
        let sound = [(SyncRule::Every, 96)].into_iter();
        let mut reserve = Reserve::new(sound, 5, 1000);
        reserve.push(0, &packet(1, 0, 0), 10);
        assert_eq!(
            reserve.begins_ns(),
            Some(11),
            "sound begins with what comes"
        );
        assert!(reserve.take().is_empty());
    }

    #[test]
    fn what_was_kept_goes_faster_than_it_came() {
        let kept = |arrived_ns| Kept {
            track: 0,
            bytes: [0; 10][..].into(),
            arrived_ns,
        };
        let packets = [kept(10), kept(14), kept(18)].into_iter().collect();
        let mut catch_up = CatchUp::new(packets, 40, 100);
        let due = |it: &mut CatchUp, now_ns| {
            let mut due = Vec::new();
            while let Some(packet) = it.next_due(now_ns) {
                due.push(packet.arrived_ns);
            }
            due
        };
        assert_eq!(due(&mut catch_up, 100), [10]);
        assert_eq!(due(&mut catch_up, 101), [14]);
        catch_up.push(kept(102));
        assert_eq!(due(&mut catch_up, 110), [18]);
        assert!(!catch_up.is_over());
        for arrived_ns in 103..107 {
            catch_up.push(kept(arrived_ns));
        }
        assert_eq!(due(&mut catch_up, 110), [102], "more than it may hold");
        assert_eq!(due(&mut catch_up, 125), [103, 104, 105, 106]);
        assert!(catch_up.is_over());
    }

    proptest! {
        /// An ingest is replaced only by one that is heard, and never while it is heard itself and
        /// has the right.
        #[test]
        fn no_switch_without_need(
            heard_s in prop::array::uniform2(prop::option::of(0..6_u64)),
            rights in prop::array::uniform2(any::<bool>()),
            active in 0..2_usize,
            is_awaited in any::<bool>(),
        ) {
            let ingests = [0, 1].map(|slot| heard_s[slot].map(|seconds| Ingest {
                begun_ns: 0,
                heard_ns: Some((100 - seconds) * SECOND),
                has_right: rights[slot],
            }));
            let next = active_ingest(Some(active), ingests, TIMES, (0, is_awaited));
            prop_assert!(next.is_none_or(|slot| ingests[slot].is_some()));
            let (Some(own), Some(next)) = (ingests[active], next) else { return Ok(()) };
            if next != active {
                prop_assert!(ingests[next].unwrap().is_heard(TIMES.0, TIMES.1));
                prop_assert!(!own.is_heard(TIMES.0, TIMES.1) || !own.has_right);
                // And not back again at once.
                let again = active_ingest(Some(next), ingests, TIMES, (0, is_awaited));
                prop_assert_eq!(again, Some(next));
            }
        }
    }
}
