//! Those who get a live channel's packets, by its tracks: a group of each, and single viewers.
//!
//! A viewer gets what has come since the last sync sample first, at a pace that its socket bears,
//! and is a member of the group from then on. One that has paused gets numbers of its own, which go
//! on where they have ended, and so all of its packets for itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use onrush_group::{self as group, GroupError};
use onrush_wire::live::{Recent, RecentPacket, SyncRule};
use onrush_wire::rtp::{Header, Position};

use super::config::ChannelsConfig;
use super::lane::Lane;
use super::outlet::Outlet;
use super::viewer::{Bounds, RECENT_BYTES_MAX, RECENT_PACKETS_MAX, Sent, Viewer, Watched, newer};
use super::viewing::{Given, Start, ViewerTrack, Way};
use crate::config::Limits;

/// How all viewers of a channel are sent to.
#[derive(Clone, Copy, Debug)]
pub(super) struct AudienceSettings {
    pub(super) way: Option<group::Way>,
    /// How long a packet may wait for others to leave with it.
    pub(super) delay_ns: u64,
    /// Viewers wait for the next sync sample, and do not get the last.
    pub(super) is_next_awaited: bool,
    pub(super) bounds: Bounds,
}

impl AudienceSettings {
    /// Those of all channels of a process.
    pub(super) fn new(config: &ChannelsConfig, limits: &Limits) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            way: config.way,
            delay_ns: nanos(config.delay),
            is_next_awaited: config.is_next_sync_awaited,
            bounds: Bounds {
                backlog_bytes_max: limits.unacknowledged_bytes_max,
                stall_ns_max: nanos(limits.stall_time_max),
            },
        }
    }
}

/// Who gets a channel.
#[derive(Debug)]
pub(super) struct Audience {
    settings: AudienceSettings,
    tracks: Vec<TrackAudience>,
    viewers: Vec<Viewer>,
    /// The next packet's number among all.
    order: u64,
    /// Packets that were dropped for viewers who were slow.
    pub(super) dropped: u64,
    /// Viewers who took nothing for too long.
    pub(super) stalled_out: u64,
}

/// Who gets a track.
#[derive(Debug)]
pub(super) struct TrackAudience {
    recent: Recent,
    pub(super) lane: Lane,
    given: Arc<Given>,
    clock_hz: u32,
    /// To send to single viewers from, by address of ours.
    single: BTreeMap<IpAddr, UdpSocket>,
    /// Where the last sync sample begins.
    sync: Option<u64>,
    /// The highest numbers that the group was given, and whose they are.
    newest: Option<(Position, u32)>,
}

impl Audience {
    /// Of tracks that begin nowhere else than their rules say; each with ticks a second and what
    /// counts for its group.
    pub(super) fn new(
        tracks: impl Iterator<Item = (SyncRule, u32, Arc<Given>)>,
        settings: AudienceSettings,
    ) -> Self {
        let tracks = tracks.map(|(rule, clock_hz, given)| TrackAudience {
            recent: Recent::new(rule, RECENT_PACKETS_MAX, RECENT_BYTES_MAX),
            lane: Lane::new(),
            given,
            clock_hz,
            single: BTreeMap::new(),
            sync: None,
            newest: None,
        });
        Self {
            settings,
            tracks: tracks.collect(),
            viewers: Vec::new(),
            order: 0,
            dropped: 0,
            stalled_out: 0,
        }
    }

    /// What came before cannot be decoded with what comes.
    pub(super) fn forget(&mut self) {
        for track in &mut self.tracks {
            track.recent.clear();
            track.sync = None;
        }
    }

    /// What a track holds is something else from now on.
    pub(super) fn change(&mut self, track: usize, rule: SyncRule, clock_hz: u32) {
        let track = &mut self.tracks[track];
        track.recent = Recent::new(rule, RECENT_PACKETS_MAX, RECENT_BYTES_MAX);
        (track.clock_hz, track.sync) = (clock_hz, None);
    }

    /// Gives a packet to all who watch its track. `false` if it is too long for the group.
    pub(super) fn give(
        &mut self,
        track: usize,
        bytes: Arc<[u8]>,
        (arrived_ns, now_ns): (u64, u64),
    ) -> bool {
        let packet = RecentPacket {
            order: self.order,
            bytes,
        };
        self.order += 1;
        let state = &mut self.tracks[track];
        let begun = state.recent.push(packet.clone());
        if begun.is_some() {
            state.sync = begun;
        }
        let is_everywhere = state.is_everywhere();
        if let Some(header) = Header::read(&packet.bytes) {
            let newest = state.newest.filter(|(_, ssrc)| *ssrc == header.ssrc);
            let newest = newest.map(|(position, _)| position);
            state.newest = Some((newer(newest, &header), header.ssrc));
        }
        let bounds = self.settings.bounds;
        let recent = begun.and_then(|_| state.recent.packets());
        let watching = self
            .viewers
            .iter_mut()
            .flat_map(|viewer| &mut viewer.tracks);
        for watched in watching.filter(|watched| watched.track == track) {
            let dropped = watched.take(&packet, recent, (is_everywhere, bounds, now_ns));
            self.dropped += dropped;
        }
        state.given.count(packet.bytes.len());
        let fits = state.lane.push(&[], &packet.bytes, arrived_ns);
        if begun.is_some() || state.recent.rule().is_everywhere() {
            self.cut();
        }
        fits
    }

    /// What each track keeps for those who join, in the order in which it came.
    pub(super) fn kept(&self) -> impl Iterator<Item = Option<&VecDeque<RecentPacket>>> {
        self.tracks.iter().map(|track| track.recent.packets())
    }

    /// Tracks without sync samples keep what came since those with some begin.
    fn cut(&mut self) {
        let with_sync = |track: &&TrackAudience| !track.recent.rule().is_everywhere();
        let begun = self.tracks.iter().filter(with_sync);
        let is_alone = begun.clone().next().is_none();
        let first = match is_alone {
            true => Some(self.order),
            false => begun.filter_map(|track| track.sync).min(),
        };
        if let Some(first) = first {
            let others = self.tracks.iter_mut();
            let others = others.filter(|track| track.recent.rule().is_everywhere());
            others.for_each(|track| track.recent.cut_before(first));
        }
    }

    /// Opens a track for viewers that come to `local`. How it is sent, and why so.
    pub(super) fn open(
        &mut self,
        track: usize,
        local: IpAddr,
        [of_group, single]: [UdpSocket; 2],
    ) -> Result<(group::Way, String), GroupError> {
        let outlet = Outlet::open(of_group, self.settings.way)?;
        let (way, reason) = outlet.way();
        let reason = reason.to_owned();
        self.tracks[track].lane.outlets.insert(local, outlet);
        self.tracks[track].single.insert(local, single);
        Ok((way, reason))
    }

    /// Makes ready to send tracks to a viewer: where each begins, if that is known.
    pub(super) fn prepare(&mut self, id: u64, tracks: Vec<ViewerTrack>, now_ns: u64) -> Vec<Start> {
        self.leave(id);
        let tracks = tracks.into_iter().map(|wanted| {
            let ViewerTrack {
                track,
                way,
                viewing,
            } = wanted;
            let state = &self.tracks[track];
            let is_everywhere = state.is_everywhere();
            let is_next = self.settings.is_next_awaited && !is_everywhere;
            let recent = state.recent.packets().filter(|_| !is_next);
            let awaits = (recent.is_none() && !is_everywhere).then_some(now_ns);
            Watched::new((track, way, viewing), recent, (awaits, now_ns))
        });
        let mut viewer = Viewer::new(id, tracks.collect());
        viewer.settle(|track| self.tracks[track].clock_hz);
        let starts = viewer.tracks.iter().map(Watched::start).collect();
        self.viewers.push(viewer);
        starts
    }

    /// Begins to send.
    pub(super) fn start(&mut self, id: u64) {
        let mut viewers = self.viewers.iter_mut();
        if let Some(viewer) = viewers.find(|viewer| viewer.id == id) {
            viewer.is_held = false;
        }
    }

    /// Ceases to.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(at) = self.viewers.iter().position(|viewer| viewer.id == id) else {
            return;
        };
        for watched in self.viewers.swap_remove(at).tracks {
            self.part(&watched);
        }
    }

    fn part(&mut self, watched: &Watched) {
        let track = &mut self.tracks[watched.track];
        if let (true, Way::Datagrams(local, to)) = (watched.is_member, &watched.way) {
            // All that counts as sent leaves before it goes.
            track.lane.flush();
            let is_shared = self.viewers.iter().flat_map(|viewer| &viewer.tracks);
            let mut is_shared = is_shared.filter(|other| other.is_member);
            // A player that died and came back at the same port has two sessions for a while.
            let is_shared = is_shared.any(|other| {
                let own = (watched.track, local, to);
                matches!(&other.way, Way::Datagrams(l, t) if (other.track, l, t) == own)
            });
            if let (false, Some(outlet)) = (is_shared, track.lane.outlets.get_mut(local)) {
                outlet.remove(*to);
            }
            watched.viewing.part(&track.given);
            watched.remember(track.newest);
        } else {
            watched.remember(watched.newest);
        }
    }

    /// Sends what viewers have not been sent yet, and makes those members who have everything.
    pub(super) fn send_backlogs(&mut self, now_ns: u64) {
        let bounds = self.settings.bounds;
        let mut stalled = Vec::new();
        for viewer in self.viewers.iter_mut().filter(|viewer| !viewer.is_held) {
            viewer.settle(|track| self.tracks[track].clock_hz);
            for watched in viewer.tracks.iter_mut().filter(|it| !it.is_member) {
                let sent = send_backlog(&mut self.tracks[watched.track], watched, bounds, now_ns);
                if sent == Sent::Stalled {
                    watched
                        .viewing
                        .set_end("its client takes nothing of what is sent");
                    stalled.push(viewer.id);
                }
            }
        }
        // Once, though several of its tracks may say so.
        stalled.dedup();
        for id in stalled {
            self.stalled_out += 1;
            self.leave(id);
        }
    }

    pub(super) fn flush(&mut self) {
        self.tracks.iter_mut().for_each(|track| track.lane.flush());
    }

    /// Sends trains that have waited for others long enough.
    pub(super) fn flush_due(&mut self, now_ns: u64) {
        for track in &mut self.tracks {
            let since_ns = track.lane.builder.waiting_since_ns();
            let due_ns = since_ns.map(|ns| ns.saturating_add(self.settings.delay_ns));
            if due_ns.is_some_and(|due_ns| now_ns >= due_ns) {
                track.lane.flush();
            }
        }
    }

    /// How long until there is something to be sent, if that is known.
    pub(super) fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let lanes = self.tracks.iter().map(|track| &track.lane);
        let waiting = lanes.filter_map(|lane| lane.builder.waiting_since_ns());
        let due_ns = waiting.map(|ns| ns.saturating_add(self.settings.delay_ns));
        let due_ns = due_ns.min().map(|due_ns| due_ns.saturating_sub(now_ns));
        let mut playing = self.viewers.iter().filter(|viewer| !viewer.is_held);
        match playing.any(|viewer| viewer.tracks.iter().any(Watched::is_due)) {
            true => Some(due_ns.unwrap_or(u64::MAX).min(STEP_NS)),
            false => due_ns,
        }
    }

    /// By track, what leaves to its group.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.tracks.iter().map(|track| &track.lane)
    }

    /// Who watches now.
    pub(super) fn watching(&self) -> usize {
        self.viewers.iter().filter(|viewer| !viewer.is_held).count()
    }
}

impl TrackAudience {
    /// Whether a decoder can start at any packet, as far as is known: a transport stream need not
    /// say where.
    fn is_everywhere(&self) -> bool {
        let rule = self.recent.rule();
        rule.is_everywhere() || rule == SyncRule::TransportStream && self.sync.is_none()
    }
}

fn send_backlog(
    state: &mut TrackAudience,
    watched: &mut Watched,
    bounds: Bounds,
    now_ns: u64,
) -> Sent {
    let (local, to) = match watched.way.clone() {
        Way::Frames(connection, channel) => {
            return watched.send_frames(&connection, channel, bounds, now_ns);
        }
        Way::Datagrams(local, to) => (local, to),
    };
    let Some(socket) = state.single.get(&local) else {
        return Sent::Some;
    };
    let sent = watched.send_datagrams(socket, to);
    if sent == Sent::All && watched.may_join() {
        // All that it has been sent already leaves before it joins.
        state.lane.flush();
        let outlet = state.lane.outlets.get_mut(&local);
        let added = outlet.map(|outlet| outlet.add(to));
        watched.is_member = matches!(added, Some(Ok(())));
        if watched.is_member {
            watched.viewing.join(&state.given);
        }
    }
    sent
}

/// How long the thread waits while a viewer catches up.
const STEP_NS: u64 = 2_000_000;
