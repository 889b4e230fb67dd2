//! Those who watch a live channel, as its thread sees them.
//!
//! What a viewer has not been sent yet is its backlog. Who gets datagrams becomes a member of the
//! group when its backlog is empty, so that it misses nothing and gets nothing twice; who gets
//! frames always has one, which is bounded.

mod progress;
mod sending;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::live::RecentPacket;
use onrush_wire::rtp::{HEADER_BYTES, Header, Numbering, Position, ticks_of};
use onrush_wire::srtp::Arrival;

use super::outlet::Counts;
use super::srtp::{ChannelKey, ViewerSrtp};
use super::tap::PACKET_COST;
use super::viewing::{Last, ViewerTrack, Viewing, Way};
use progress::Progress;
use sending::UnsentTrain;

/// Packets of a track, and their bytes, that are kept for those who join: some seconds of any
/// picture. A track with more between two sync samples has none kept.
pub const RECENT_PACKETS_MAX: usize = 16_384;
/// See [`RECENT_PACKETS_MAX`].
pub const RECENT_BYTES_MAX: usize = 16 << 20;

/// How long a viewer waits for a sync sample before it gets what comes.
pub const SYNC_AWAITED_MAX: Duration = Duration::from_secs(10);

/// Somebody who watches.
#[derive(Debug)]
pub(super) struct Viewer {
    pub(super) id: u64,
    pub(super) tracks: Vec<Watched>,
    /// It has not been told yet that it plays.
    pub(super) is_held: bool,
    /// By how much less time passes in its timestamps than in the channel's, since it has paused;
    /// nothing until that is known, or as long as it has not.
    cut_ns: Option<i64>,
}

/// One track of a viewer.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) track: usize,
    pub(super) way: Way,
    pub(super) viewing: Arc<Viewing>,
    /// What its packets are encrypted with, if they are. Those that are encrypted for all who share
    /// a key come so; others are encrypted as they leave.
    pub(super) srtp: Option<Arc<ViewerSrtp>>,
    backlog: VecDeque<RecentPacket>,
    backlog_bytes: usize,
    /// What its socket has not taken yet, with its own numbers and encryption if it has any.
    unsent: VecDeque<UnsentTrain>,
    /// Packets that were encrypted for it alone, and those whose numbers were used.
    pub(super) encrypted: [u64; 2],
    /// What it was sent alone.
    pub(super) alone: Counts,
    /// What comes is of use only from the next sync sample on; since when it waits.
    awaits_sync: Option<u64>,
    /// It gets everything from the group.
    pub(super) is_member: bool,
    /// The timestamp of the last packet that was sent or is still to be sent.
    last_timestamp: Option<u32>,
    /// The highest numbers that were sent, as the channel has them, and whose they are.
    pub(super) newest: Option<(Position, u32)>,
    /// What it was sent before it paused, as long as what comes has no numbers yet that go on.
    last: Option<Last>,
    /// What makes its numbers of the channel's.
    numbering: Numbering,
    /// Whether its client takes what it is sent on its connection.
    progress: Progress,
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    /// Nothing is left.
    All,
    /// Something is.
    Some,
    /// Its client has taken nothing for too long.
    Stalled,
}

/// Bounds on what a viewer holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) backlog_bytes_max: usize,
    pub(super) stall_ns_max: u64,
}

impl Viewer {
    pub(super) fn new(id: u64, tracks: Vec<Watched>) -> Self {
        Self {
            id,
            tracks,
            is_held: true,
            cut_ns: None,
        }
    }

    /// Gives tracks that have paused numbers that go on, once it is known what they begin with: the
    /// next sequence number, and timestamps of which all tracks leave out the same time, so that
    /// they stay together.
    pub(super) fn settle(&mut self, now_ns: u64, clock_hz: impl Fn(usize) -> u32) {
        let gap_ns = |watched: &Watched| {
            let (last, first) = (watched.last?, watched.first()?);
            Some(ns_between(&last, &first, clock_hz(watched.track), now_ns) - GAP_NS)
        };
        let Some(cut_ns) = self
            .cut_ns
            .or_else(|| self.tracks.iter().filter_map(gap_ns).min())
        else {
            return;
        };
        self.cut_ns = Some(cut_ns);
        for watched in &mut self.tracks {
            watched.go_on(cut_ns, clock_hz(watched.track), now_ns);
        }
    }
}

impl Watched {
    /// One that begins with `recent`, if that is there; else with what comes, or with the next sync
    /// sample if it `awaits` that from now on.
    pub(super) fn new(
        wanted: ViewerTrack,
        recent: Option<&VecDeque<RecentPacket>>,
        awaits_sync: Option<u64>,
    ) -> Self {
        let ViewerTrack {
            track,
            way,
            viewing,
            start: _,
            srtp,
        } = wanted;
        let mut watched = Self {
            track,
            way,
            viewing,
            srtp,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            unsent: VecDeque::new(),
            encrypted: [0; 2],
            alone: Counts::default(),
            awaits_sync,
            is_member: false,
            last_timestamp: None,
            newest: None,
            last: None,
            numbering: Numbering::default(),
            progress: Progress::default(),
        };
        watched.last = watched.viewing.last();
        watched.viewing.set_numbering(watched.numbering);
        if let Some(recent) = recent {
            watched.extend(recent);
        }
        watched
    }

    /// The numbers of its first packet, if that is known.
    pub(super) fn start(&self, at: Arrival) -> Option<Position> {
        let header = self.first()?;
        let position = self.numbering.position(Position {
            sequence: header.sequence,
            timestamp: header.timestamp,
        });
        let numbered = Header {
            sequence: position.sequence,
            timestamp: position.timestamp,
            ..header
        };
        let own = self.encrypts_alone();
        Some(own.map_or(position, |own| own.expect(&numbered, at)))
    }

    /// The key that it shares with others, if what it gets is encrypted for all of them.
    pub(super) fn shares(&self) -> Option<&Arc<ChannelKey>> {
        self.srtp.as_ref()?.shares()
    }

    /// What encrypts its packets for it alone, if something does.
    fn encrypts_alone(&self) -> Option<&Arc<ViewerSrtp>> {
        self.srtp.as_ref().filter(|srtp| srtp.shares().is_none())
    }

    /// Before its first packet, of those that are encrypted for all who share a key: it leaves them
    /// if it could not decrypt that, because numbers have wrapped.
    pub(super) fn check_first(&self, first: &RecentPacket) {
        let is_fresh = self.backlog.is_empty() && self.newest.is_none() && !self.is_member;
        if let (true, Some(srtp), Some(key)) = (is_fresh, &self.srtp, self.shares())
            && key.has_wrapped_at(first)
        {
            Self::leave_shared(&self.viewing, srtp);
        }
    }

    /// From now on it has an SSRC of its own.
    pub(super) fn leave_shared(viewing: &Viewing, srtp: &ViewerSrtp) {
        if !srtp.leave_shared() {
            viewing.set_end(KEY_USED_UP);
        }
    }

    /// The key from whose ports it is sent to, if not from those of who gets packets in the clear.
    pub(super) fn ports(&self) -> Option<&Arc<ChannelKey>> {
        self.srtp.as_ref()?.ports()
    }

    fn first(&self) -> Option<Header> {
        Header::read(&self.backlog.front()?.bytes)
    }

    /// Numbers its packets on from where they have ended, unless another stream has begun since.
    fn go_on(&mut self, cut_ns: i64, clock_hz: u32, now_ns: u64) {
        let Some((last, first)) = self.last.zip(self.first()) else {
            return;
        };
        self.last = None;
        if last.ssrc != first.ssrc {
            return;
        }
        let gap_ns = ns_between(&last, &first, clock_hz, now_ns) - cut_ns;
        let gap_ns = u64::try_from(gap_ns).unwrap_or(0);
        let ticks = ticks_of(gap_ns, clock_hz.into()).max(1);
        let end = Position {
            sequence: last.own.sequence.wrapping_add(1),
            timestamp: last.own.timestamp.wrapping_add(ticks),
        };
        let next = Position {
            sequence: first.sequence,
            timestamp: first.timestamp,
        };
        self.numbering = Numbering::default().continued(end, next);
        self.viewing.set_numbering(self.numbering);
    }

    /// It leaves: what it was sent last, as the channel has it.
    pub(super) fn remember(&self, newest: Option<(Position, u32)>, now_ns: u64) {
        if let Some((position, ssrc)) = newest {
            self.viewing.set_last(Last {
                own: self.numbering.position(position),
                timestamp: position.timestamp,
                ssrc,
                left_ns: now_ns,
            });
        }
    }

    /// A packet of its track has come; with what a decoder can start with now, if that begins with
    /// this packet's access unit. How many packets are dropped for it.
    pub(super) fn take(
        &mut self,
        packet: &RecentPacket,
        begun: Option<&VecDeque<RecentPacket>>,
        (is_everywhere, bounds, now_ns): (bool, Bounds, u64),
    ) -> u64 {
        if self.is_member {
            return 0;
        }
        if let Some(since_ns) = self.awaits_sync {
            let waited_ns = now_ns.saturating_sub(since_ns);
            if let Some(begun) = begun {
                self.awaits_sync = None;
                self.extend(begun);
            } else if u128::from(waited_ns) >= SYNC_AWAITED_MAX.as_nanos() {
                self.awaits_sync = None;
                self.push(packet);
            } else if self.is_of_last_unit(packet) {
                self.push(packet);
            }
        } else {
            self.push(packet);
        }
        let bytes_max = match self.way {
            Way::Datagrams(..) => RECENT_BYTES_MAX,
            // What a sync sample brings at once may be more, and is not dropped for that.
            Way::Frames(..) => bounds.backlog_bytes_max.max(RECENT_BYTES_MAX / 4),
        };
        // What is left of a unit that has been begun goes on to its end, if that comes.
        let most = match self.awaits_sync {
            Some(_) => bytes_max.max(RECENT_BYTES_MAX),
            None => bytes_max,
        };
        match self.held_bytes() > most {
            true => self.drop_backlog(is_everywhere, now_ns),
            false => 0,
        }
    }

    /// Bytes that its backlog takes. Of as many packets as are kept for those who join the bytes
    /// alone count, so that a sync sample is not dropped for what is about them.
    fn held_bytes(&self) -> usize {
        let more = self.backlog.len().saturating_sub(RECENT_PACKETS_MAX);
        self.backlog_bytes + more * PACKET_COST
    }

    /// Drops whole access units: what is left is the rest of the one that has been begun. If that
    /// is too long by itself, which is known when this comes again, nothing is left.
    fn drop_backlog(&mut self, is_everywhere: bool, now_ns: u64) -> u64 {
        let sent = self.last_timestamp;
        let is_begun = |packet: &RecentPacket| {
            Header::read(&packet.bytes).map(|header| header.timestamp) == sent
        };
        let kept = self.backlog.iter().take_while(|packet| is_begun(packet));
        let kept = match is_everywhere || self.awaits_sync.is_some() {
            true => 0,
            false => kept.count(),
        };
        let dropped = self.backlog.len() - kept;
        self.backlog.truncate(kept);
        self.backlog_bytes = self.backlog.iter().map(|packet| packet.bytes.len()).sum();
        if !is_everywhere {
            self.awaits_sync = Some(now_ns);
        }
        dropped as u64
    }

    fn is_of_last_unit(&self, packet: &RecentPacket) -> bool {
        let timestamp = Header::read(&packet.bytes).map(|header| header.timestamp);
        self.last_timestamp.is_some() && timestamp == self.last_timestamp
    }

    fn extend(&mut self, packets: &VecDeque<RecentPacket>) {
        packets.iter().for_each(|packet| self.push(packet));
    }

    fn push(&mut self, packet: &RecentPacket) {
        self.backlog_bytes += packet.bytes.len();
        self.backlog.push_back(packet.clone());
    }

    fn pop(&mut self) -> Option<RecentPacket> {
        let packet = self.backlog.pop_front()?;
        self.backlog_bytes -= packet.bytes.len();
        if let Some(header) = Header::read(&packet.bytes) {
            self.last_timestamp = Some(header.timestamp);
            let newest = self.newest.filter(|(_, ssrc)| *ssrc == header.ssrc);
            let newest = newer(newest.map(|(position, _)| position), &header);
            self.newest = Some((newest, header.ssrc));
        }
        self.viewing.count(packet.bytes.len());
        Some(packet)
    }

    /// Its packet's header, with its own numbers.
    fn header(&self, packet: &[u8]) -> Option<[u8; HEADER_BYTES]> {
        let head = packet.first_chunk::<HEADER_BYTES>()?;
        Some(self.numbering.header(head))
    }

    /// A packet with its own numbers.
    fn numbered(&self, packet: &[u8]) -> Vec<u8> {
        let head = self.header(packet).unwrap_or_default();
        [&head[..], packet.get(HEADER_BYTES..).unwrap_or_default()].concat()
    }

    /// How often the kernel was asked what its client has taken.
    #[cfg(test)]
    pub(super) fn looks(&self) -> usize {
        self.progress.looks
    }

    /// Bytes that have not been sent yet.
    #[cfg(test)]
    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes
    }

    /// How long until it is its turn, if something waits to be sent, or it may become a member: a
    /// step, or longer where it found no room.
    pub(super) fn due_in_ns(&self, step_ns: u64, now_ns: u64) -> Option<u64> {
        let waits = !self.backlog.is_empty() || !self.unsent.is_empty();
        let is_due = !self.is_member && (waits || self.may_join());
        is_due.then(|| step_ns.max(self.progress.held_ns(now_ns)))
    }

    /// Whether the group has all that is to come.
    pub(super) fn may_join(&self) -> bool {
        let is_datagrams = matches!(self.way, Way::Datagrams(..));
        // Its numbers are not the group's once it has paused.
        let is_shared = self.last.is_none() && self.numbering.is_shared();
        is_datagrams
            && is_shared
            && self.encrypts_alone().is_none()
            && !self.is_member
            && self.backlog.is_empty()
            && self.unsent.is_empty()
            && self.awaits_sync.is_none()
    }
}

/// The highest numbers so far, with a packet more.
pub(super) fn newer(before: Option<Position>, header: &Header) -> Position {
    let own = Position {
        sequence: header.sequence,
        timestamp: header.timestamp,
    };
    before.map_or(own, |before| Position {
        sequence: match own.sequence.wrapping_sub(before.sequence) < 1 << 15 {
            true => own.sequence,
            false => before.sequence,
        },
        timestamp: match own.timestamp.wrapping_sub(before.timestamp) < 1 << 31 {
            true => own.timestamp,
            false => before.timestamp,
        },
    })
}

/// The time from what a viewer was sent last to what it goes on with, which may be a little before
/// it: what is recent is not older than [`BEFORE_SECONDS_MAX`]. How often timestamps have wrapped
/// meanwhile, those of pictures after 13 hours, the time that has passed tells.
fn ns_between(last: &Last, first: &Header, clock_hz: u32, now_ns: u64) -> i64 {
    const TURN: i128 = 1 << 32;
    let before_max = clock_hz.max(1).saturating_mul(BEFORE_SECONDS_MAX);
    let ticks = first.timestamp.wrapping_sub(last.timestamp);
    let ticks = match last.timestamp.wrapping_sub(first.timestamp) {
        before if before <= before_max => -i128::from(before),
        _ => i128::from(ticks),
    };
    let hz = i128::from(clock_hz.max(1));
    let passed = i128::from(now_ns.saturating_sub(last.left_ns)) * hz / 1_000_000_000;
    let turns = ((passed - ticks + TURN / 2) / TURN).max(0);
    let ns = (ticks + turns * TURN) * 1_000_000_000 / hz;
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Why a viewer ends who shares a key that has no SSRC left for it.
const KEY_USED_UP: &str = "its key is used up: describe the channel anew";

/// How long a pause is at the least in the timestamps of a viewer that has paused: about a picture.
const GAP_NS: i64 = 40_000_000;

/// How much older than what a viewer was sent last it may be what it goes on with.
const BEFORE_SECONDS_MAX: u32 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        backlog_bytes_max: 0,
        stall_ns_max: 1,
    };

    const AT: Arrival = Arrival {
        ns: 0,
        clock_hz: 90_000,
    };

    fn packet(order: u64, timestamp: u32) -> RecentPacket {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: u16::try_from(order).unwrap(),
            timestamp,
            ssrc: 1,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(60_000, 0);
        RecentPacket {
            order,
            bytes: bytes.into(),
        }
    }

    fn watched(recent: Option<&VecDeque<RecentPacket>>) -> Watched {
        let way = Way::Datagrams(([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 9).into());
        let awaits = recent.is_none().then_some(0);
        let wanted = ViewerTrack {
            track: 0,
            way,
            viewing: Arc::default(),
            start: None,
            srtp: None,
        };
        Watched::new(wanted, recent, awaits)
    }

    fn orders(watched: &Watched) -> Vec<u64> {
        watched.backlog.iter().map(|packet| packet.order).collect()
    }

    #[test]
    fn a_viewer_begins_with_what_is_recent_and_misses_nothing() {
        let recent: VecDeque<_> = (0..3).map(|order| packet(order, 0)).collect();
        let mut viewer = watched(Some(&recent));
        assert_eq!(viewer.start(AT).unwrap().sequence, 0);
        viewer.take(&packet(3, 1), None, (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [0, 1, 2, 3]);
        assert!(!viewer.may_join());
        while viewer.pop().is_some() {}
        assert!(viewer.may_join());
    }

    #[test]
    fn without_a_sync_sample_it_waits_for_the_next_but_not_for_ever() {
        let mut viewer = watched(None);
        assert_eq!(viewer.start(AT), None);
        viewer.take(&packet(0, 0), None, (false, BOUNDS, 0));
        assert!(orders(&viewer).is_empty() && !viewer.may_join());
        let begun: VecDeque<_> = (1..3).map(|order| packet(order, 1)).collect();
        viewer.take(&packet(2, 1), Some(&begun), (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [1, 2]);
        let mut viewer = watched(None);
        let late_ns = u64::try_from(SYNC_AWAITED_MAX.as_nanos()).unwrap();
        viewer.take(&packet(0, 0), None, (false, BOUNDS, late_ns - 1));
        assert!(orders(&viewer).is_empty());
        viewer.take(&packet(1, 1), None, (false, BOUNDS, late_ns));
        assert_eq!(orders(&viewer), [1]);
    }

    /// Timestamps of pictures wrap after 13 hours, those of sound after a day.
    #[test]
    fn tracks_stay_together_over_a_pause_of_any_length() {
        const CLOCKS_HZ: [u32; 2] = [90_000, 48_000];
        for minutes in [1, 60, 790, 840, 1800, 10_000] {
            let passed_ns = minutes * 60 * 1_000_000_000;
            let tracks = [0, 1].map(|track| {
                let mut watched = watched(None);
                watched.track = track;
                let (sequence, timestamp) = (7, 1000);
                let newest = Position {
                    sequence,
                    timestamp,
                };
                watched.remember(Some((newest, 1)), 5);
                watched.last = watched.viewing.last();
                let ticks = ticks_of(passed_ns, CLOCKS_HZ[track].into());
                watched.push(&packet(90, timestamp.wrapping_add(ticks)));
                watched
            });
            let mut viewer = Viewer::new(1, tracks.into());
            viewer.settle(5 + passed_ns, |track| CLOCKS_HZ[track]);
            let starts = viewer.tracks.iter().map(|watched| watched.start(AT));
            let starts: Vec<_> = starts.flatten().collect();
            let timestamps: Vec<_> = starts.iter().map(|it| it.timestamp).collect();
            // 40 ms behind what it was sent last.
            assert_eq!(timestamps, [1000 + 3600, 1000 + 1920], "{minutes}");
            assert!(starts.iter().all(|it| it.sequence == 8));
        }
    }

    #[test]
    fn what_a_slow_viewer_loses_are_whole_access_units() {
        let mut viewer = watched(Some(&VecDeque::new()));
        // Of the first unit a packet has left.
        viewer.take(&packet(0, 0), None, (false, BOUNDS, 0));
        viewer.pop();
        let (mut order, mut dropped) = (1, 0);
        viewer.take(&packet(order, 0), None, (false, BOUNDS, 0));
        while dropped == 0 {
            order += 1;
            let timestamp = u32::try_from(order).unwrap();
            dropped = viewer.take(&packet(order, timestamp), None, (false, BOUNDS, 0));
        }
        assert!(viewer.backlog_bytes < RECENT_BYTES_MAX);
        assert_eq!((orders(&viewer), dropped), (vec![1], order - 1));
        // What is still to come of the unit that was begun goes on, what is not does not.
        viewer.take(&packet(order + 1, 0), None, (false, BOUNDS, 0));
        viewer.take(&packet(order + 2, 9999), None, (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [1, order + 1]);
        let begun = VecDeque::from([packet(order + 3, 10_000)]);
        viewer.take(&packet(order + 3, 10_000), Some(&begun), (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [1, order + 1, order + 3]);
    }

    /// Of a publisher that sends headers alone, or whose timestamps stand still, to somebody who
    /// takes nothing.
    #[test]
    fn a_backlog_is_bounded_whatever_its_packets_are() {
        let mut short = packet(0, 7);
        short.bytes = Arc::from(&short.bytes[..HEADER_BYTES]);
        let most = RECENT_BYTES_MAX / (HEADER_BYTES + PACKET_COST) + RECENT_PACKETS_MAX;
        for is_everywhere in [true, false] {
            let mut viewer = watched(Some(&VecDeque::new()));
            viewer.take(&short, None, (is_everywhere, BOUNDS, 0));
            viewer.pop();
            let mut dropped = 0;
            for _ in 0..2 * most {
                dropped += viewer.take(&short, None, (is_everywhere, BOUNDS, 0));
                let waiting = viewer.backlog.len();
                assert!(waiting <= most, "{waiting}");
            }
            assert!(dropped > 0, "{is_everywhere}");
        }
    }
}
