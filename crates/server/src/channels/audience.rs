//! Those who get a live channel's packets, by its tracks: a group of each, and single viewers.
//!
//! A viewer gets what has come since the last sync sample first, at a pace that its socket bears,
//! and is a member of the group from then on. One that has paused gets numbers of its own, which go
//! on where they have ended, and so all of its packets for itself.

mod viewers;

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use onrush_group::{self as group, GroupError};
use onrush_wire::live::{Recent, RecentPacket, SyncRule};
use onrush_wire::rtp::{Header, Position};
use onrush_wire::rtsp::LiveStart;
use onrush_wire::srtp::Arrival;

use super::config::ChannelsConfig;
use super::lane::Lane;
use super::outlet::{Counts, Outlet};
use super::shared_lane::SharedLane;
use super::srtp::ChannelKey;
use super::viewer::{
    Bounds, RECENT_BYTES_MAX, RECENT_PACKETS_MAX, SYNC_AWAITED_MAX, Sent, Viewer, Watched, newer,
};
use super::viewing::{Given, Played, Start, ViewerPorts, ViewerTrack, Way};
use crate::config::Limits;
use crate::engine::Unwoken;
use viewers::{Members, Turns, Viewers};

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
    viewers: Viewers,
    turns: Turns,
    members: Members,
    /// The next packet's number among all.
    order: u64,
    /// Packets that were dropped for viewers who were slow.
    pub(super) dropped: u64,
    /// Viewers who took nothing for too long.
    pub(super) stalled_out: u64,
    /// Packets that were encrypted for single viewers, and those whose numbers were used.
    encrypted: [u64; 2],
    /// What left to single viewers, over connections too.
    pub(super) alone: Counts,
}

/// Who gets a track.
#[derive(Debug)]
pub(super) struct TrackAudience {
    recent: Recent,
    pub(super) lane: Lane,
    /// What is encrypted for all who share a key: one for each suite, unless keys are worn.
    shared: Vec<SharedLane>,
    given: Arc<Given>,
    clock_hz: u32,
    /// To send to single viewers from, by address of ours.
    single: BTreeMap<SocketAddr, UdpSocket>,
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
            shared: Vec::new(),
            given,
            clock_hz,
            single: BTreeMap::new(),
            sync: None,
            newest: None,
        });
        Self {
            settings,
            tracks: tracks.collect(),
            viewers: Viewers::default(),
            turns: Turns::default(),
            members: Members::default(),
            order: 0,
            dropped: 0,
            stalled_out: 0,
            encrypted: [0; 2],
            alone: Counts::default(),
        }
    }

    /// What came before cannot be decoded with what comes.
    pub(super) fn forget(&mut self) {
        for track in &mut self.tracks {
            track.recent.clear();
            track.sync = None;
            track.shared.iter_mut().for_each(SharedLane::forget);
        }
    }

    /// What a track holds is something else from now on.
    pub(super) fn change(&mut self, track: usize, rule: SyncRule, clock_hz: u32) {
        let track = &mut self.tracks[track];
        track.recent = Recent::new(rule, RECENT_PACKETS_MAX, RECENT_BYTES_MAX);
        (track.clock_hz, track.sync) = (clock_hz, None);
        track.shared.iter_mut().for_each(SharedLane::forget);
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
        let at = state.at(now_ns);
        for shared in &mut state.shared {
            shared.give(&packet, &state.recent, (arrived_ns, at));
        }
        let begins = begun.is_some() && state.recent.packets().is_some();
        let watching = self.viewers.busy_mut();
        let watching = watching.flat_map(|viewer| &mut viewer.tracks);
        for watched in watching.filter(|watched| watched.track == track) {
            if let Some((packet, kept)) = state.form_for(watched, &packet, begins) {
                let kept = kept.filter(|_| begins);
                let dropped = watched.take(packet, kept, (is_everywhere, bounds, now_ns));
                self.dropped += dropped;
            }
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

    /// Opens a track for viewers. How it is sent, and why so.
    pub(super) fn open(&mut self, ports: ViewerPorts) -> Result<(group::Way, String), GroupError> {
        let [of_group, single_socket] = ports.sockets;
        let outlet = Outlet::open(of_group, self.settings.way)?;
        let (way, reason) = outlet.way();
        let reason = reason.to_owned();
        let (lane, single) = self.tracks[ports.track].lane_of(ports.shared.as_ref());
        if let Some(before) = lane.outlets.insert(ports.local, outlet) {
            lane.past += before.counts();
        }
        single.insert(ports.local, single_socket);
        Ok((way, reason))
    }

    /// Makes ready to send tracks to a viewer: where each begins, if that is known.
    pub(super) fn prepare(&mut self, id: u64, tracks: Vec<ViewerTrack>, now_ns: u64) -> Vec<Start> {
        self.leave(id, now_ns);
        // Sound from before the pictures that are waited for is of no use, and players that got it
        // would show these as late as it is old.
        let is_awaited = tracks.iter().any(|wanted| self.awaits_sync(wanted));
        // Nor is sound alone that was kept for pictures which do not come: it would be played as
        // late as it is old for the whole session.
        let is_everywhere = |wanted: &ViewerTrack| self.tracks[wanted.track].is_everywhere();
        let is_alone = tracks.iter().all(is_everywhere);
        let watched = tracks.into_iter().map(|wanted| {
            let awaits = self.awaits_sync(&wanted).then_some(now_ns);
            let state = &mut self.tracks[wanted.track];
            let is_late = is_awaited || is_alone && state.keeps_long();
            let begins_next = is_late && state.is_everywhere();
            state.prepare_shared(&wanted, begins_next, now_ns);
            let recent = state.kept_for(&wanted);
            let recent = recent.filter(|_| awaits.is_none() && !begins_next);
            Watched::new(wanted, recent, awaits)
        });
        let mut viewer = Viewer::new(id, watched.collect());
        viewer.settle(now_ns, |track| self.tracks[track].clock_hz);
        let tracks = viewer.tracks.iter();
        let starts = tracks.map(|watched| watched.start(self.tracks[watched.track].at(now_ns)));
        let starts = starts.collect();
        self.viewers.insert(viewer);
        self.rest_unused();
        starts
    }

    /// Whether a viewer waits for the next sync sample of a track: it wants to, or nothing is kept.
    fn awaits_sync(&self, wanted: &ViewerTrack) -> bool {
        let state = &self.tracks[wanted.track];
        let is_next_awaited = match wanted.start {
            None => self.settings.is_next_awaited,
            Some(start) => start == LiveStart::Next,
        };
        !state.is_everywhere() && (is_next_awaited || state.recent.packets().is_none())
    }

    /// Begins to send.
    pub(super) fn start(&mut self, id: u64) {
        self.viewers.start(id);
    }

    /// Ceases to.
    pub(super) fn leave(&mut self, id: u64, now_ns: u64) {
        let Some(viewer) = self.viewers.remove(id) else {
            return;
        };
        for watched in viewer.tracks {
            self.part(&watched, now_ns);
        }
        self.rest_unused();
    }

    /// Nothing is encrypted for all who share a key while nobody does.
    fn rest_unused(&mut self) {
        let watched = || self.viewers.busy().flat_map(|viewer| &viewer.tracks);
        for (number, track) in self.tracks.iter_mut().enumerate() {
            for shared in &mut track.shared {
                // Whoever is a member of its group shares it.
                if shared.rests() || shared.lane.receivers() > 0 {
                    continue;
                }
                let mut own = watched().filter(|watched| watched.track == number);
                if !own.any(|watched| watched.shares().is_some_and(|key| shared.is_of(key))) {
                    shared.rest();
                }
            }
            for left in track.shared.extract_if(.., |shared| shared.is_retired()) {
                track.lane.add_past(&left.lane);
                self.encrypted[0] += left.encrypted;
                self.encrypted[1] += left.unencrypted;
            }
        }
    }

    fn part(&mut self, watched: &Watched, now_ns: u64) {
        let track = &mut self.tracks[watched.track];
        if let (true, Way::Datagrams(local, to)) = (watched.is_member, &watched.way) {
            let (lane, _) = track.lane_of(watched.ports());
            // All that counts as sent leaves before it goes.
            lane.flush();
            let is_last = self.members.remove(watched);
            if let (true, Some(outlet)) = (is_last, lane.outlets.get_mut(local)) {
                outlet.remove(*to);
            }
            // A member to whom nothing came yet has what it was sent alone, if anything.
            let has_more = watched.viewing.part(&track.given);
            let newest = if has_more {
                track.newest
            } else {
                watched.newest
            };
            watched.remember(newest, now_ns);
        } else {
            watched.remember(watched.newest, now_ns);
        }
    }

    /// Sends what viewers have not been sent yet, and makes those members who have everything.
    pub(super) fn send_backlogs(&mut self, now_ns: u64) {
        let given = (self.settings.bounds, now_ns);
        let (mut stalled, mut has_joined) = (Vec::new(), false);
        let mut unwoken = Unwoken::default();
        let viewers = self.viewers.busy_mut();
        for viewer in viewers.filter(|it| !it.is_held && self.turns.takes(it)) {
            viewer.settle(now_ns, |track| self.tracks[track].clock_hz);
            let tracks = viewer.tracks.iter_mut();
            for watched in tracks.filter(|it| !it.is_member && it.is_served(given)) {
                let track = &mut self.tracks[watched.track];
                let sent = send_backlog(track, watched, given, &mut unwoken);
                let [encrypted, unencrypted] = std::mem::take(&mut watched.encrypted);
                self.encrypted[0] += encrypted;
                self.encrypted[1] += unencrypted;
                self.alone += std::mem::take(&mut watched.alone);
                if watched.is_member {
                    self.members.add(watched);
                    has_joined = true;
                }
                if sent == Sent::Stalled {
                    watched
                        .viewing
                        .set_end("its client takes nothing of what is sent");
                    stalled.push(viewer.id);
                }
            }
        }
        self.turns.end();
        if has_joined {
            self.viewers.set_apart();
        }
        // Once, though several of its tracks may say so.
        stalled.dedup();
        for id in stalled {
            self.stalled_out += 1;
            self.leave(id, now_ns);
        }
    }

    pub(super) fn flush(&mut self) {
        self.tracks
            .iter_mut()
            .flat_map(TrackAudience::all_lanes)
            .for_each(Lane::flush);
    }

    /// Sends trains that have waited for others long enough.
    pub(super) fn flush_due(&mut self, now_ns: u64) {
        for lane in self.tracks.iter_mut().flat_map(TrackAudience::all_lanes) {
            let since_ns = lane.builder.waiting_since_ns();
            let due_ns = since_ns.map(|ns| ns.saturating_add(self.settings.delay_ns));
            if due_ns.is_some_and(|due_ns| now_ns >= due_ns) {
                lane.flush();
            }
        }
    }

    /// How long until there is something to be sent, if that is known.
    pub(super) fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let waiting = self.lanes();
        let waiting = waiting.filter_map(|lane| lane.builder.waiting_since_ns());
        let due_ns = waiting.map(|ns| ns.saturating_add(self.settings.delay_ns));
        let due_ns = due_ns.min().map(|due_ns| due_ns.saturating_sub(now_ns));
        let playing = self.viewers.busy().filter(|viewer| !viewer.is_held);
        let playing = playing.flat_map(|viewer| &viewer.tracks);
        let steps_ns = playing.filter_map(|watched| watched.due_in_ns(STEP_NS, now_ns));
        due_ns.into_iter().chain(steps_ns).min()
    }

    /// What leaves to groups: of each track in the clear, and encrypted.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.tracks.iter().flat_map(|track| {
            let shared = track.shared.iter().map(|shared| &shared.lane);
            shared.chain([&track.lane])
        })
    }

    /// What all tracks have given to groups, each packet once.
    pub(super) fn played(&self) -> Played {
        let lanes = self.tracks.iter().map(|track| &track.lane);
        lanes.fold(Played::default(), |played, lane| Played {
            packets: played.packets + lane.packets,
            payload_bytes: played.payload_bytes + lane.bytes,
        })
    }

    /// Packets that were encrypted, and those that were not because their numbers were used.
    pub(super) fn encrypted(&self) -> [u64; 2] {
        let shared = self.tracks.iter().flat_map(|track| &track.shared);
        shared.fold(self.encrypted, |[encrypted, unencrypted], shared| {
            [
                encrypted + shared.encrypted,
                unencrypted + shared.unencrypted,
            ]
        })
    }

    /// Who watches now.
    pub(super) fn watching(&self) -> usize {
        self.viewers.playing()
    }
}

impl TrackAudience {
    /// Whether a decoder can start at any packet, as far as is known: a transport stream need not
    /// say where.
    fn is_everywhere(&self) -> bool {
        let rule = self.recent.rule();
        rule.is_everywhere() || rule == SyncRule::TransportStream && self.sync.is_none()
    }

    /// Whether what is kept goes back longer than anybody waits for a sync sample.
    fn keeps_long(&self) -> bool {
        let timestamp = |packet: &RecentPacket| Some(Header::read(&packet.bytes)?.timestamp);
        let packets = self.recent.packets();
        let first = packets.and_then(|it| timestamp(it.front()?));
        let last = packets.and_then(|it| timestamp(it.back()?));
        let ticks_max = SYNC_AWAITED_MAX.as_secs() * u64::from(self.clock_hz);
        let is_long = |(first, last): (u32, u32)| u64::from(last.wrapping_sub(first)) > ticks_max;
        first.zip(last).is_some_and(is_long)
    }

    fn at(&self, now_ns: u64) -> Arrival {
        Arrival {
            ns: now_ns,
            clock_hz: self.clock_hz,
        }
    }

    /// What leaves to those who share that key, or to those who get packets in the clear; and what
    /// single ones of them are sent from.
    fn lane_of(
        &mut self,
        key: Option<&Arc<ChannelKey>>,
    ) -> (&mut Lane, &mut BTreeMap<SocketAddr, UdpSocket>) {
        match key {
            None => (&mut self.lane, &mut self.single),
            Some(key) => {
                let shared = self.shared_lane(key);
                (&mut shared.lane, &mut shared.single)
            }
        }
    }

    fn shared_lane(&mut self, key: &Arc<ChannelKey>) -> &mut SharedLane {
        let at = self.shared.iter().position(|shared| shared.is_of(key));
        let at = at.unwrap_or_else(|| {
            self.shared.push(SharedLane::new(key));
            self.shared.len() - 1
        });
        &mut self.shared[at]
    }

    fn all_lanes(&mut self) -> impl Iterator<Item = &mut Lane> {
        let shared = self.shared.iter_mut().map(|shared| &mut shared.lane);
        shared.chain([&mut self.lane])
    }

    /// Encrypts from now on what all get who share its key, if it shares one. It leaves them if it
    /// was sent something before, because numbers would not go on, or numbers have wrapped where it
    /// begins: with what is kept, or with the next packet.
    fn prepare_shared(&mut self, wanted: &ViewerTrack, begins_next: bool, now_ns: u64) {
        let Some(srtp) = &wanted.srtp else {
            return;
        };
        let Some(key) = srtp.shares().map(Arc::clone) else {
            return;
        };
        let at = self.at(now_ns);
        self.shared_lane(&key);
        let mut shared = self.shared.iter_mut();
        if let Some(shared) = shared.find(|shared| shared.is_of(&key)) {
            shared.activate(&self.recent, at);
        }
        let has_watched = wanted.viewing.last().is_some();
        let has_wrapped = match begins_next {
            true => key.has_wrapped_next(),
            false => key.has_wrapped(),
        };
        if has_watched || has_wrapped {
            wanted.viewing.forget_last();
            Watched::leave_shared(&wanted.viewing, srtp);
        }
    }

    /// What is kept for a viewer to begin with, as it gets it.
    fn kept_for(&self, wanted: &ViewerTrack) -> Option<&VecDeque<RecentPacket>> {
        let kept = self.recent.packets()?;
        match wanted.srtp.as_ref().and_then(|srtp| srtp.shares()) {
            None => Some(kept),
            Some(key) => {
                let mut shared = self.shared.iter();
                shared.find(|it| it.is_of(key)).map(SharedLane::images)
            }
        }
    }

    /// A packet as a viewer gets it, if it does, and what is kept. It begins with this, or with
    /// what is kept where that `begins`, if it has been sent nothing yet.
    fn form_for<'a>(
        &'a self,
        watched: &Watched,
        packet: &'a RecentPacket,
        begins: bool,
    ) -> Option<(&'a RecentPacket, Option<&'a VecDeque<RecentPacket>>)> {
        let plain = Some((packet, self.recent.packets()));
        let Some(key) = watched.shares() else {
            return plain;
        };
        let shared = self.shared.iter().find(|shared| shared.is_of(key))?;
        let sealed = shared.newest()?;
        let first = shared.images().front().filter(|_| begins);
        watched.check_first(first.unwrap_or(sealed));
        match watched.shares() {
            Some(_) => Some((sealed, Some(shared.images()))),
            None => plain,
        }
    }
}

fn send_backlog(
    state: &mut TrackAudience,
    watched: &mut Watched,
    given @ (_, now_ns): (Bounds, u64),
    unwoken: &mut Unwoken,
) -> Sent {
    let (local, to) = match watched.way.clone() {
        Way::Frames(connection, channel) => {
            return watched.send_frames((&connection, channel), given, unwoken);
        }
        Way::Datagrams(local, to) => (local, to),
    };
    let at = state.at(now_ns);
    let (lane, single) = state.lane_of(watched.ports());
    let Some(socket) = single.get(&local) else {
        return Sent::Some;
    };
    let sent = watched.send_datagrams(socket, to, at);
    if sent == Sent::All && watched.may_join() {
        // All that it has been sent already leaves before it joins.
        lane.flush();
        let outlet = lane.outlets.get_mut(&local);
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

#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod tests;
