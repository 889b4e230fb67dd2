//! The thread of a published channel.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_group as group;
use onrush_sys::clock::monotonic_ns;
use onrush_wire::live::{Heard, Note, Recent, RecentPacket, SyncRule};
use onrush_wire::rtcp::{SenderLine, sender_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use tracing::{info, warn};

use super::channel::{Command, Line, PublishedChannel, Start, ViewerTrack, Way};
use super::intake::Intake;
use super::receiving::Input;
use super::viewer::{Bounds, Sent, Viewer, Watched};
use super::{RECENT_BYTES_MAX, RECENT_PACKETS_MAX};
use crate::channels::lane::Lane;
use crate::channels::outlet::Outlet;
use crate::channels::tap::{Tap, Tapped};
use crate::channels::{Played, Stats};

/// What all published channels are sent by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) way: Option<group::Way>,
    pub(super) delay_ns: u64,
    pub(super) silence_ns: u64,
    /// Viewers wait for the next sync sample, and do not get the last.
    pub(super) is_next_awaited: bool,
    pub(super) backlog_bytes_max: usize,
    pub(super) stall_ns_max: u64,
}

/// Takes a publisher's packets and gives them to viewers.
#[derive(Debug)]
pub(super) struct Worker {
    inputs: Vec<Input>,
    /// When the publisher was told last how its packets arrive.
    reported_ns: u64,
    core: Core,
}

/// All but what is received from.
#[derive(Debug)]
struct Core {
    channel: Arc<PublishedChannel>,
    settings: Settings,
    tracks: Vec<TrackState>,
    viewers: Vec<Viewer>,
    taps: Vec<Arc<Tap>>,
    /// The next packet's number among all.
    order: u64,
    /// What is to be added to the publisher's clock to make it ours, once it has reported.
    clock_offset_ns: Option<i128>,
    is_held: bool,
    /// Anomalies that are logged once a second at the most.
    missing: u64,
    logged_ns: u64,
    stats: Stats,
}

/// A track, and who gets it.
#[derive(Debug)]
struct TrackState {
    intake: Intake,
    recent: Recent,
    lane: Lane,
    /// To send to single viewers from, by address of ours.
    single: BTreeMap<IpAddr, UdpSocket>,
    /// Where the last sync sample begins.
    sync: Option<u64>,
}

impl Worker {
    pub(super) fn new(channel: Arc<PublishedChannel>, settings: Settings) -> Self {
        let tracks = channel.tracks().iter().enumerate();
        let tracks = tracks.map(|(number, track)| TrackState {
            intake: Intake::new(track, channel.ssrc(number), settings.silence_ns),
            recent: Recent::new(SyncRule::of(track), RECENT_PACKETS_MAX, RECENT_BYTES_MAX),
            lane: Lane::new(),
            single: BTreeMap::new(),
            sync: None,
        });
        Self {
            inputs: Vec::new(),
            reported_ns: 0,
            core: Core {
                tracks: tracks.collect(),
                channel,
                settings,
                viewers: Vec::new(),
                taps: Vec::new(),
                order: 0,
                clock_offset_ns: None,
                is_held: false,
                missing: 0,
                logged_ns: 0,
                stats: Stats::default(),
            },
        }
    }

    /// Runs until [`Command::Stop`].
    pub(super) fn run(mut self) {
        loop {
            // Before commands: a publisher's frames come behind the command that it begins by.
            let frames = self.core.channel.take_frames();
            for command in self.core.channel.commands() {
                if matches!(command, Command::Stop) {
                    self.core.channel.close();
                    return self.core.publish(&self.inputs);
                }
                self.apply(command);
            }
            let now_ns = monotonic_ns();
            for (track, is_rtcp, packet) in frames {
                self.core
                    .take(track.into(), is_rtcp, (BY_FRAME, &packet), now_ns);
            }
            for _ in 0..ROUNDS_MAX {
                if !self.receive() {
                    break;
                }
            }
            self.core.flush_due(monotonic_ns());
            self.core.send_backlogs(monotonic_ns());
            self.core.look(monotonic_ns());
            self.report(monotonic_ns());
            self.core.publish(&self.inputs);
            self.wait();
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Begin(sockets) => {
                self.inputs.clear();
                for sockets in sockets {
                    match sockets.into_inputs() {
                        Ok(inputs) => self.inputs.extend(inputs),
                        Err(error) => warn!("{}: receiving: {error}", self.core.channel.path()),
                    }
                }
                self.core.begin();
            }
            Command::EndPublisher => self.inputs.clear(),
            Command::Hold(is_held) => self.core.is_held = is_held,
            Command::Open(track, local, sockets) => self.core.open(track, local, sockets),
            Command::Prepare(id, tracks, answer) => {
                let starts = self.core.prepare(id, tracks);
                // Who asked may be gone.
                drop(answer.send(starts));
            }
            Command::Tap(tap) => self.core.tap(tap),
            Command::Start(id) => {
                let mut viewers = self.core.viewers.iter_mut();
                if let Some(viewer) = viewers.find(|viewer| viewer.id == id) {
                    viewer.is_held = false;
                }
            }
            Command::Leave(id) => self.core.leave(id),
            Command::Stop => {}
        }
    }

    /// Tells the publisher how its packets arrive, where it sends to sockets.
    fn report(&mut self, now_ns: u64) {
        for (number, track) in self.core.tracks.iter().enumerate() {
            self.core
                .channel
                .set_reception(number, track.intake.reception());
        }
        if now_ns.saturating_sub(self.reported_ns) < REPORT_EVERY_NS {
            return;
        }
        self.reported_ns = now_ns;
        for input in self.inputs.iter().filter(|input| input.is_rtcp) {
            if let Some(report) = self.core.channel.reception_report(input.track) {
                // Who does not hear it does not need it.
                rustix::net::send(&input.receiver, &report, SendFlags::DONTWAIT).ok();
            }
        }
    }

    /// Receives a batch of each socket; whether there may be more.
    fn receive(&mut self) -> bool {
        let now_ns = monotonic_ns();
        let mut received = 0;
        for input in &mut self.inputs {
            let (track, is_rtcp) = (input.track, input.is_rtcp);
            let batch = input.receiver.receive(|message| {
                for datagram in message.datagrams() {
                    self.core
                        .take(track, is_rtcp, (message.from, datagram), now_ns);
                }
            });
            // An ICMP message about a report of ours, or memory that is short for a moment.
            received += batch.unwrap_or(0);
        }
        if self.core.settings.delay_ns == 0 {
            self.core.flush();
        }
        received > 0
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let now_ns = monotonic_ns();
        let wait_ns = self.core.wait_ns(now_ns);
        let timeout = Timespec {
            tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(1),
            tv_nsec: i64::try_from(wait_ns % 1_000_000_000).unwrap_or(0),
        };
        let inputs = self.inputs.iter().map(|input| input.receiver.as_fd());
        let waker = self.core.channel.waker.as_fd();
        let mut awaited: Vec<_> = inputs
            .chain([waker])
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // A signal only makes the round come early.
        poll(&mut awaited, Some(&timeout)).ok();
    }
}

impl Core {
    /// A publisher begins: its numbers and its clock are its own.
    fn begin(&mut self) {
        self.clock_offset_ns = None;
        self.is_held = false;
        self.taps.iter().for_each(|tap| tap.push(Tapped::Begin));
        for track in &mut self.tracks {
            track.intake.begin();
            // What was before cannot be decoded with what comes.
            track.recent.clear();
            track.sync = None;
        }
        self.channel
            .arrived_ns
            .store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Takes what came for a track.
    fn take(
        &mut self,
        track: usize,
        is_rtcp: bool,
        (from, packet): (SocketAddr, &[u8]),
        now_ns: u64,
    ) {
        if self.is_held {
            return;
        }
        if is_rtcp {
            if let Some(line) = sender_line(packet) {
                self.report(track, line, now_ns);
            }
            return;
        }
        let (missing, path) = (&mut self.missing, self.channel.path());
        let note = |note| match note {
            Note::Missing { packets } => *missing += u64::from(packets),
            Note::Began { .. } | Note::Resumed { .. } => {
                info!("channel {path} track{}: {note}", track + 1);
            }
            _ => {}
        };
        let state = &mut self.tracks[track];
        let Some(taken) = state.intake.take(from, packet, now_ns, note) else {
            return;
        };
        // Not reports: a server goes on with these when its own source is gone.
        self.channel.arrived_ns.store(now_ns, Ordering::Relaxed);
        if let Some(line) = taken.early {
            self.report(track, line, now_ns);
        }
        let line = self.channel.line(track);
        let is_old = |line: Line| {
            !line.is_reported && now_ns.saturating_sub(line.at_ns) > LINE_NS_MAX
                || now_ns.abs_diff(line.at_ns) > REPORT_NS_MAX
        };
        if line.is_none_or(is_old) {
            let line = Line {
                timestamp: taken.timestamp,
                at_ns: now_ns,
                is_reported: false,
            };
            self.channel.set_line(track, line);
        }
        self.give(track, taken.bytes, now_ns);
    }

    /// Gives a packet to all who watch its track.
    fn give(&mut self, track: usize, bytes: Arc<[u8]>, now_ns: u64) {
        let packet = RecentPacket {
            order: self.order,
            bytes,
        };
        self.order += 1;
        let state = &mut self.tracks[track];
        let begun = state.recent.push(packet.clone());
        let is_everywhere = state.recent.rule().is_everywhere();
        if begun.is_some() {
            state.sync = begun;
        }
        let bounds = self.settings.bounds();
        let recent = begun.and_then(|_| state.recent.packets());
        let watching = self
            .viewers
            .iter_mut()
            .flat_map(|viewer| &mut viewer.tracks);
        for watched in watching.filter(|watched| watched.track == track) {
            let dropped = watched.take(&packet, recent, (is_everywhere, bounds, now_ns));
            self.stats.dropped += dropped;
        }
        for tap in &self.taps {
            tap.push(Tapped::Packet(track, Arc::clone(&packet.bytes), now_ns));
        }
        self.channel.count(track, packet.bytes.len());
        let state = &mut self.tracks[track];
        if !state.lane.push(&[], &packet.bytes, now_ns) {
            self.stats.too_long += 1;
        }
        if begun.is_some() || is_everywhere {
            self.cut();
        }
    }

    /// Tracks without sync samples keep what came since those with some begin.
    fn cut(&mut self) {
        let with_sync = |track: &&TrackState| !track.recent.rule().is_everywhere();
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

    /// A report of the publisher's: the first of all tracks says how its clock and ours differ.
    fn report(&mut self, track: usize, line: SenderLine, now_ns: u64) {
        let Some(timestamp) = self.tracks[track].intake.report(line, now_ns) else {
            return;
        };
        let ntp_ns = i128::from(line.ntp >> 32) * 1_000_000_000
            + ((i128::from(line.ntp & 0xffff_ffff) * 1_000_000_000) >> 32);
        let offset_ns = self
            .clock_offset_ns
            .get_or_insert_with(|| i128::from(now_ns) - ntp_ns);
        // A clock that was set, or one that lies.
        if (ntp_ns + *offset_ns - i128::from(now_ns)).unsigned_abs() > REPORT_NS_MAX.into() {
            *offset_ns = i128::from(now_ns) - ntp_ns;
        }
        let at_ns = u64::try_from(ntp_ns + *offset_ns).unwrap_or(now_ns);
        let line = Line {
            timestamp,
            at_ns,
            is_reported: true,
        };
        self.channel.set_line(track, line);
    }

    /// Begins with what who joins is sent first.
    fn tap(&mut self, tap: Arc<Tap>) {
        let kept = self.tracks.iter().map(|track| track.recent.packets());
        tap.push_kept(kept.collect(), monotonic_ns());
        self.taps.push(tap);
    }

    fn open(&mut self, track: usize, local: IpAddr, [of_group, single]: [UdpSocket; 2]) {
        let path = self.channel.path();
        match Outlet::open(of_group, self.settings.way) {
            Ok(outlet) => {
                let (way, reason) = outlet.way();
                info!(
                    "channel {path} track{}: sends by {way} ({reason})",
                    track + 1
                );
                self.tracks[track].lane.outlets.insert(local, outlet);
                self.tracks[track].single.insert(local, single);
            }
            Err(error) => warn!("channel {path}: {error}"),
        }
    }

    fn prepare(&mut self, id: u64, tracks: Vec<ViewerTrack>) -> Vec<Start> {
        self.leave(id);
        let now_ns = monotonic_ns();
        let tracks = tracks.into_iter().map(|wanted| {
            let ViewerTrack {
                track,
                way,
                viewing,
            } = wanted;
            let recent = &self.tracks[track].recent;
            let is_next = self.settings.is_next_awaited && !recent.rule().is_everywhere();
            let recent = recent.packets().filter(|_| !is_next);
            Watched::new((track, way, viewing), recent, now_ns)
        });
        let tracks: Vec<_> = tracks.collect();
        let starts = tracks.iter().map(Watched::start).collect();
        self.viewers.push(Viewer {
            id,
            tracks,
            is_held: true,
        });
        starts
    }

    fn leave(&mut self, id: u64) {
        let Some(at) = self.viewers.iter().position(|viewer| viewer.id == id) else {
            return;
        };
        for watched in self.viewers.swap_remove(at).tracks {
            self.part(&watched);
        }
    }

    fn part(&mut self, watched: &Watched) {
        if let (true, Way::Datagrams(local, to)) = (watched.is_member, &watched.way) {
            let is_shared = self.viewers.iter().flat_map(|viewer| &viewer.tracks);
            let mut is_shared = is_shared.filter(|other| other.is_member);
            // A player that died and came back at the same port has two sessions for a while.
            let is_shared = is_shared.any(|other| {
                let own = (watched.track, local, to);
                matches!(&other.way, Way::Datagrams(l, t) if (other.track, l, t) == own)
            });
            let outlets = &mut self.tracks[watched.track].lane.outlets;
            if let (false, Some(outlet)) = (is_shared, outlets.get_mut(local)) {
                outlet.remove(*to);
            }
            self.channel.part(watched.track, &watched.viewing);
        }
    }

    /// Sends what viewers have not been sent yet, and makes those members who have everything.
    fn send_backlogs(&mut self, now_ns: u64) {
        let bounds = self.settings.bounds();
        let mut stalled = Vec::new();
        for viewer in self.viewers.iter_mut().filter(|viewer| !viewer.is_held) {
            for watched in viewer.tracks.iter_mut().filter(|it| !it.is_member) {
                let state = &mut self.tracks[watched.track];
                let sent = match watched.way.clone() {
                    Way::Frames(connection, channel) => {
                        watched.send_frames(&connection, channel, bounds, now_ns)
                    }
                    Way::Datagrams(local, to) => {
                        let Some(socket) = state.single.get(&local) else {
                            continue;
                        };
                        let sent = watched.send_datagrams(socket, to);
                        if sent == Sent::All && watched.may_join() {
                            // All that it has been sent already leaves before it joins.
                            state.lane.flush();
                            let outlet = state.lane.outlets.get_mut(&local);
                            let added = outlet.map(|outlet| outlet.add(to));
                            watched.is_member = matches!(added, Some(Ok(())));
                            if watched.is_member {
                                self.channel.join(watched.track, &watched.viewing);
                            }
                        }
                        sent
                    }
                };
                if sent == Sent::Stalled {
                    watched
                        .viewing
                        .set_end("its client takes nothing of what is sent");
                    stalled.push(viewer.id);
                }
            }
        }
        for id in stalled {
            self.stats.stalled_out += 1;
            self.leave(id);
        }
    }

    fn flush(&mut self) {
        self.tracks.iter_mut().for_each(|track| track.lane.flush());
    }

    fn flush_due(&mut self, now_ns: u64) {
        for track in &mut self.tracks {
            let since_ns = track.lane.builder.waiting_since_ns();
            let due_ns = since_ns.map(|ns| ns.saturating_add(self.settings.delay_ns));
            if due_ns.is_some_and(|due_ns| now_ns >= due_ns) {
                track.lane.flush();
            }
        }
    }

    fn wait_ns(&self, now_ns: u64) -> u64 {
        let lanes = self.tracks.iter().map(|track| &track.lane);
        let waiting = lanes
            .filter_map(|lane| lane.builder.waiting_since_ns())
            .min();
        let due_ns = waiting.map(|ns| ns.saturating_add(self.settings.delay_ns));
        let wait_ns = due_ns.map_or(WAIT_NS_MAX, |due_ns| due_ns.saturating_sub(now_ns));
        let mut playing = self.viewers.iter().filter(|viewer| !viewer.is_held);
        match playing.any(|viewer| viewer.tracks.iter().any(Watched::is_due)) {
            true => wait_ns.min(STEP_NS),
            false => wait_ns,
        }
    }

    /// Notes silences, and logs what is missing.
    fn look(&mut self, now_ns: u64) {
        self.taps.retain(|tap| !tap.is_closed());
        let path = self.channel.path();
        for (number, track) in (1..).zip(&mut self.tracks) {
            if let Some(note) = track.intake.look(now_ns) {
                warn!("channel {path} track{number} is {note}");
            }
        }
        if self.missing > 0 && now_ns.saturating_sub(self.logged_ns) > LOG_EVERY_NS {
            warn!("channel {path}: {} packets are missing", self.missing);
            (self.missing, self.logged_ns) = (0, now_ns);
        }
    }

    fn publish(&mut self, inputs: &[Input]) {
        let stats = &mut self.stats;
        let (mut heard, mut counts) = (Heard::default(), (0, 0));
        (stats.packets, stats.bytes, stats.refused, stats.crossings) = (0, 0, 0, 0);
        (stats.trains, stats.passing_ns, stats.jitter_ns) = (0, 0, 0);
        stats.is_heard = false;
        stats.played = Played::default();
        for track in &self.tracks {
            heard = heard.and(&track.intake.heard());
            counts.0 += track.intake.counts.unannounced;
            counts.1 += track.intake.counts.foreign;
            stats.jitter_ns = stats.jitter_ns.max(track.intake.jitter_ns());
            stats.is_heard |= track.intake.is_heard();
            let from = track.intake.from().filter(|from| *from != BY_FRAME);
            stats.from = from.or(stats.from);
            for outlet in track.lane.outlets.values() {
                let counts = outlet.counts();
                stats.packets += counts.packets;
                stats.bytes += counts.bytes;
                stats.refused += counts.refused;
                stats.crossings += counts.crossings;
            }
            stats.trains += track.lane.trains;
            stats.passing_ns += track.lane.passing_ns.0;
            stats.passing_ns_max = stats.passing_ns_max.max(track.lane.passing_ns.1);
            stats.played.packets += track.lane.packets;
            stats.played.payload_bytes += track.lane.bytes;
        }
        stats.heard = heard;
        (stats.unannounced, stats.foreign) = counts;
        let sockets = inputs
            .iter()
            .map(|input| u64::from(input.receiver.overflows()));
        stats.overflows = sockets.sum::<u64>() + self.channel.frames_dropped();
        stats.players = self.viewers.iter().filter(|viewer| !viewer.is_held).count();
        self.channel.publish(stats);
    }
}

impl Settings {
    fn bounds(self) -> Bounds {
        Bounds {
            backlog_bytes_max: self.backlog_bytes_max,
            stall_ns_max: self.stall_ns_max,
        }
    }
}

/// What came as a frame has no address of its own.
const BY_FRAME: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Batches of a round.
const ROUNDS_MAX: usize = 64;

/// How long the thread waits at the most, and while a viewer catches up.
const WAIT_NS_MAX: u64 = 250_000_000;
const STEP_NS: u64 = 2_000_000;

/// What a line of arrivals is renewed after, and by how much a report may be off.
const LINE_NS_MAX: u64 = 5_000_000_000;
const REPORT_NS_MAX: u64 = 60_000_000_000;

/// Receiver reports leave so often.
const REPORT_EVERY_NS: u64 = 5_000_000_000;

/// Anomalies are logged so often.
const LOG_EVERY_NS: u64 = 1_000_000_000;
