//! The thread that takes a stream in and gives it to its members.
//!
//! One round: sleep until something has come, a train is due or there is a command; receive all
//! that has come, in batches; send the trains that are due. While a train is sent to many members
//! the next packets arrive, and leave together: under load trains form without a delay.

use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use onrush_group::{GroupError, Way};
use onrush_sys::clock::monotonic_ns;
use onrush_sys::receive::Receiver;
use onrush_wire::live::{Follower, Kind, Note, Stamper, SyncRule};
use onrush_wire::rtp::{Header, payload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use tracing::{info, warn};

use super::audience::{Audience, AudienceSettings};
use super::channel::{CLOCK_HZ, Channel, Command, Playable, Stats};
use super::config::ChannelsConfig;
use super::lane::Lane;
use super::outlet::{Outlet, unspecified, wildcard};
use super::renewal::Renewal;
use super::tap::{Tap, Tapped};
use super::viewing::ViewerCommand;

/// Receives a stream and sends it to its members.
#[derive(Debug)]
pub(super) struct Worker {
    channel: Arc<Channel>,
    receiver: Receiver,
    way: Option<Way>,
    delay_ns: u64,
    silence_ns: u64,
    follower: Follower,
    stamper: Stamper,
    /// What came, as it came.
    plain: Lane,
    /// Those who get the same as RTP.
    players: Audience,
    /// Where transport packets go, too.
    taps: Vec<Arc<Tap>>,
    playable: Option<Playable>,
    anomalies: Anomalies,
    stats: Stats,
    /// What arrives is still another process's, until [`Command::Receive`].
    is_held: bool,
    /// When nothing was there to be taken, last.
    empty_ns: u64,
    renewal: Renewal,
}

/// What is odd about a stream, logged once a second at the most.
#[derive(Debug, Default)]
struct Anomalies {
    missing: u64,
    behind: u64,
    last: Option<Note>,
    logged_ns: u64,
}

/// Why the thread could not do what it was asked to. It goes on.
#[derive(Debug, Error)]
enum WorkerError {
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error("no socket to send from: {0}")]
    Socket(#[from] io::Error),
}

impl Worker {
    pub(super) fn new(
        channel: Arc<Channel>,
        receiver: Receiver,
        stamper: Stamper,
        config: &ChannelsConfig,
        audience: AudienceSettings,
    ) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let silence_ns = nanos(config.silence);
        let follower = match config.sender_kept_ns(channel.input()) {
            0 => Follower::new(silence_ns),
            kept_ns => Follower::new(silence_ns).keeping_sender(kept_ns),
        };
        let track = (SyncRule::Every, CLOCK_HZ, Arc::clone(&channel.given));
        let mut renewal = Renewal::default();
        renewal.rest(monotonic_ns());
        Self {
            channel,
            receiver,
            way: config.way,
            delay_ns: nanos(config.delay),
            silence_ns,
            follower,
            stamper,
            plain: Lane::new(),
            players: Audience::new([track].into_iter(), audience),
            taps: Vec::new(),
            playable: None,
            anomalies: Anomalies::default(),
            stats: Stats::default(),
            is_held: false,
            empty_ns: monotonic_ns(),
            renewal,
        }
    }

    /// The same, and it leaves its socket alone until [`Command::Receive`] if it `is_held`.
    pub(super) fn holding(self, is_held: bool) -> Self {
        Self { is_held, ..self }
    }

    /// Runs until [`Command::Stop`].
    pub(super) fn run(mut self) {
        loop {
            let commands = self.channel.commands();
            if !self.apply_all(commands) {
                break;
            }
            self.check_silence(monotonic_ns());
            self.publish();
            self.wait();
            // As long as there is something: what keeps coming must not keep commands waiting.
            for _ in 0..ROUNDS_MAX {
                if self.is_held || !self.receive() {
                    break;
                }
            }
            self.send_due(monotonic_ns());
            self.players.send_backlogs(monotonic_ns());
        }
        self.plain.flush();
        self.players.flush();
        self.update_stats();
        self.channel.publish_last(&self.stats);
    }

    /// Receives a batch; whether there may be more.
    fn receive(&mut self) -> bool {
        let now_ns = monotonic_ns();
        // As early as it may have been: what came while a train was sent has waited since then.
        let arrived_ns = self.empty_ns;
        let Self {
            channel,
            receiver,
            follower,
            stamper,
            plain,
            players,
            playable,
            taps,
            anomalies,
            stats,
            ..
        } = self;
        let received = receiver.receive(|message| {
            let note = |note| anomalies.note(channel.name(), note);
            let times_ns = (arrived_ns, now_ns);
            if !follower.admit(message.from, message.datagrams(), times_ns, note) {
                return;
            }
            for datagram in message.datagrams() {
                let mut note = |note| anomalies.note(channel.name(), note);
                let kind = follower.follow(message.from, datagram, now_ns, &mut note);
                if !plain.push(&[], datagram, arrived_ns) {
                    stats.too_long += u64::from(!datagram.is_empty());
                }
                let mut pass = |packet: Arc<[u8]>, packets: Option<&[u8]>| {
                    if let Some(header) = Header::read(&packet) {
                        follow(channel, playable, players, (&header, now_ns));
                    }
                    let packets = packets.or_else(|| transport_packets(channel, &packet));
                    if let Some(packets) = packets {
                        give(taps, packets, now_ns);
                    }
                    players.give(0, packet, (arrived_ns, now_ns));
                };
                let mut stamped = |packets: &[u8]| {
                    let packet = [&stamper.stamp(now_ns), packets].concat();
                    pass(packet.into(), Some(packets));
                };
                match kind {
                    Kind::TransportStream => stamped(datagram),
                    Kind::Cut => follower.align(datagram, note, stamped),
                    Kind::Rtp(_) => pass(datagram.into(), None),
                    Kind::Other => {}
                }
            }
        });
        let received = received.unwrap_or_else(|error| {
            // An ICMP message about something else, or memory that is short for a moment.
            warn!("{}: receiving: {error}", channel.name());
            0
        });
        if received == 0 {
            self.empty_ns = now_ns;
        }
        if self.delay_ns == 0 {
            self.plain.flush();
            self.players.flush();
        } else {
            self.send_due(monotonic_ns());
        }
        received > 0
    }

    fn send_due(&mut self, now_ns: u64) {
        let since_ns = self.plain.builder.waiting_since_ns();
        if since_ns.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(self.delay_ns)) {
            self.plain.flush();
        }
        self.players.flush_due(now_ns);
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) {
        let now_ns = monotonic_ns();
        let since_ns = self.plain.builder.waiting_since_ns();
        let plain_ns = since_ns.map(|since_ns| {
            let due_ns = since_ns.saturating_add(self.delay_ns);
            due_ns.saturating_sub(now_ns)
        });
        let due_in_ns = [plain_ns, self.players.due_in_ns(now_ns)];
        let wait_ns = match due_in_ns.into_iter().flatten().min() {
            Some(due_in_ns) => due_in_ns,
            None => WAIT_NS_MAX.min(self.silence_ns / 4),
        };
        let timeout = Timespec {
            tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(1),
            tv_nsec: i64::try_from(wait_ns % 1_000_000_000).unwrap_or(0),
        };
        let waker = self.channel.waker().as_fd();
        let arrivals = match self.is_held {
            true => PollFlags::empty(),
            false => PollFlags::IN,
        };
        let mut awaited = [
            PollFd::from_borrowed_fd(self.receiver.as_fd(), arrivals),
            PollFd::from_borrowed_fd(waker, PollFlags::IN),
        ];
        // A signal only makes the round come early.
        poll(&mut awaited, Some(&timeout)).ok();
        let woken_ns = monotonic_ns();
        // If it slept there was nothing, until just now; or until it was to wake, if it was kept
        // from that.
        if woken_ns - now_ns > SLEPT_NS {
            self.empty_ns = woken_ns.min(now_ns.saturating_add(wait_ns));
        }
    }

    /// Notes a silence, sees whether there is a reason for it here, and logs anomalies.
    fn check_silence(&mut self, now_ns: u64) {
        let name = self.channel.name();
        if let Some(note) = self.follower.look(now_ns) {
            self.anomalies.note(name, note);
        }
        if self.is_held || self.follower.is_heard() {
            self.renewal.rest(now_ns);
        } else {
            let arrival = (self.channel.input(), self.receiver.socket());
            self.renewal.look(name, arrival, now_ns);
        }
        self.anomalies.log(name, now_ns);
        self.taps.retain(|tap| !tap.is_closed());
    }

    /// Does what was asked; `false` to end.
    fn apply_all(&mut self, commands: Vec<Command>) -> bool {
        for command in commands {
            if matches!(command, Command::Stop) {
                return false;
            }
            if let Err(error) = self.apply(command) {
                warn!("source {}: {error}", self.channel.name());
            }
        }
        true
    }

    fn apply(&mut self, command: Command) -> Result<(), WorkerError> {
        match command {
            Command::SetMembers(members) => {
                let (v4, v6): (Vec<_>, Vec<_>) = members.iter().partition(|m| m.is_ipv4());
                for (is_ipv4, members) in [(true, v4), (false, v6)] {
                    // No members now, and none before: nothing to do.
                    let is_open = self.plain.outlets.contains_key(&unspecified(is_ipv4));
                    if is_open || !members.is_empty() {
                        self.outlet(is_ipv4)?.set(&members)?;
                    }
                }
            }
            Command::AddMembers(members) => {
                for member in members {
                    self.outlet(member.is_ipv4())?.add(member)?;
                }
            }
            Command::RemoveMembers(members) => {
                for member in members {
                    self.outlet(member.is_ipv4())?.remove(member);
                }
            }
            Command::Viewer(ViewerCommand::Open(ports)) => {
                self.players.open(ports)?;
            }
            Command::Viewer(ViewerCommand::Prepare(id, tracks, answer)) => {
                // Who asked may be gone.
                drop(answer.send(self.players.prepare(id, tracks, monotonic_ns())));
            }
            Command::Viewer(ViewerCommand::Start(id)) => self.players.start(id),
            Command::Viewer(ViewerCommand::Leave(id)) => self.players.leave(id, monotonic_ns()),
            Command::Tap(tap) => self.taps.push(tap),
            Command::CountMembers(answer) => {
                let outlets = self.plain.outlets.values();
                // Who asked may be gone.
                drop(answer.send(outlets.flat_map(Outlet::count_members).collect()));
            }
            // Who asked may be gone.
            Command::Settle(answer) => answer.send(()).unwrap_or_default(),
            Command::Receive => {
                self.is_held = false;
                if let Some(sender) = self.channel.sender_before() {
                    self.follower.keep(sender, monotonic_ns());
                }
            }
            Command::Stop => {}
        }
        Ok(())
    }

    /// The outlet for members of an IP version, opened with the first of them.
    fn outlet(&mut self, is_ipv4: bool) -> Result<&mut Outlet, WorkerError> {
        match self.plain.outlets.entry(unspecified(is_ipv4)) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let outlet = Outlet::open(wildcard(is_ipv4)?, self.way)?;
                let (way, reason) = outlet.way();
                info!("source {}: sends by {way} ({reason})", self.channel.name());
                Ok(entry.insert(outlet))
            }
        }
    }

    fn publish(&mut self) {
        self.update_stats();
        self.channel.publish(&self.stats);
    }

    fn update_stats(&mut self) {
        let stats = &mut self.stats;
        stats.heard = self.follower.heard();
        stats.is_heard = self.follower.is_heard();
        stats.from = self.follower.from();
        stats.playable = self.playable;
        let overflows = u64::from(self.receiver.overflows());
        stats.overflows = overflows.saturating_sub(self.channel.overflows_before());
        let alone = self.players.alone;
        (stats.packets, stats.bytes) = (alone.packets, alone.bytes);
        (stats.refused, stats.crossings) = (0, 0);
        (stats.trains, stats.passing_ns, stats.passing_ns_max) = (0, 0, 0);
        for lane in self.players.lanes().chain([&self.plain]) {
            let counts = lane.counts();
            stats.packets += counts.packets;
            stats.bytes += counts.bytes;
            stats.refused += counts.refused;
            stats.crossings += counts.crossings;
            stats.trains += lane.trains;
            stats.passing_ns += lane.passing_ns.0;
            stats.passing_ns_max = stats.passing_ns_max.max(lane.passing_ns.1);
        }
        stats.played = self.channel.given.played();
        (stats.dropped, stats.stalled_out) = (self.players.dropped, self.players.stalled_out);
        [stats.encrypted, stats.unencrypted] = self.players.encrypted();
        stats.members = self.plain.receivers();
        stats.players = self.players.watching();
    }
}

impl Anomalies {
    /// Logs changes at once; adds up what may come many times a second.
    fn note(&mut self, name: &str, note: Note) {
        match note {
            Note::Missing { packets } => self.missing += u64::from(packets),
            Note::Behind { .. } => self.behind += 1,
            Note::Began { .. } | Note::Resumed { .. } => info!("source {name} {note}"),
            Note::Silent { .. } => warn!("source {name} is {note}"),
            Note::Refused { .. } => warn!("source {name} {note}; {ANYBODY}"),
            // Two who send to one port alternate with every packet.
            Note::Cut
            | Note::SourceChanged { .. }
            | Note::SsrcChanged { .. }
            | Note::Restarted { .. } => self.last = Some(note),
        }
    }

    fn log(&mut self, name: &str, now_ns: u64) {
        if now_ns.saturating_sub(self.logged_ns) < LOG_EVERY_NS {
            return;
        }
        if let Some(note) = self.last.take() {
            warn!("source {name} {note}");
            self.logged_ns = now_ns;
        }
        if self.missing + self.behind > 0 {
            let (missing, behind) = (self.missing, self.behind);
            warn!(
                "source {name}: {missing} packets are missing, {behind} came again or out of order"
            );
            (self.missing, self.behind, self.logged_ns) = (0, 0, now_ns);
        }
    }
}

/// Notes what players get. What was kept of another stream is of no use to a decoder.
fn follow(
    channel: &Channel,
    playable: &mut Option<Playable>,
    players: &mut Audience,
    (header, now_ns): (&Header, u64),
) {
    let packet = (header.payload_type, header.ssrc, header.timestamp);
    let now = channel.playable(packet, now_ns);
    let before = playable.replace(now);
    let is_same =
        |before: Playable| (before.ssrc, before.payload_type) == (now.ssrc, now.payload_type);
    if !before.is_some_and(is_same) {
        let track = channel.track(now.payload_type);
        let rule = track.map_or(SyncRule::Every, |track| SyncRule::of(&track));
        players.change(0, rule, now.clock_hz);
    }
}

fn give(taps: &[Arc<Tap>], packets: &[u8], now_ns: u64) {
    if !taps.is_empty() {
        let packets = Arc::<[u8]>::from(packets);
        let tapped = Tapped::Transport(packets, now_ns);
        taps.iter().for_each(|tap| tap.push(tapped.clone()));
    }
}

/// The transport packets that a packet of RTP carries, if it does.
fn transport_packets<'a>(channel: &Channel, packet: &'a [u8]) -> Option<&'a [u8]> {
    let header = Header::read(packet)?;
    let packets = payload(packet)?;
    channel.is_transport(header.payload_type).then_some(packets)
}

/// Batches of a round.
const ROUNDS_MAX: usize = 64;

/// Longer than it takes to see that there is no need to sleep.
const SLEPT_NS: u64 = 50_000;

/// How long a thread waits at the most.
const WAIT_NS_MAX: u64 = 500_000_000;

/// Anomalies are logged so often.
const LOG_EVERY_NS: u64 = 1_000_000_000;

/// How a refused sender can be taken.
pub(super) const ANYBODY: &str = "a channel can be set to take from anybody";

#[cfg(test)]
mod tests {
    use onrush_wire::media::Track;
    use onrush_wire::rtp::StaticPayload;

    use super::super::cycles::Deliveries;
    use super::super::input::Input;
    use super::*;

    fn channel(described: Option<Track>) -> Channel {
        let input: Input = "127.0.0.1:5004".parse().unwrap();
        let inputs = vec![("tv".to_owned(), input.clone())];
        let deliveries = Arc::new(Deliveries::new(inputs, || Ok(Vec::new())));
        Channel::new("tv".to_owned(), input, (deliveries, 0), false, described).unwrap()
    }

    #[test]
    fn transport_streams_of_any_payload_type_and_no_others_are_cut() {
        let described = |encoding: &'static str| Track {
            payload_type: 96,
            encoding: encoding.into(),
            ..StaticPayload::MP2T.into()
        };
        for (described, expected, reason) in [
            (None, [true, false], None),
            (Some(described("mp2t")), [true, true], None),
            (
                Some(described("H264")),
                [true, false],
                Some("H264 is not made into segments"),
            ),
        ] {
            let channel = channel(described);
            let found = [33, 96].map(|payload_type| {
                let header = Header {
                    marker: false,
                    payload_type,
                    sequence: 7,
                    timestamp: 0,
                    ssrc: 7,
                };
                let packet = [&header.to_bytes()[..], &[0x47; 188]].concat();
                transport_packets(&channel, &packet) == Some(&[0x47; 188][..])
            });
            assert_eq!(found, expected);
            assert_eq!(channel.is_not_cut().as_deref(), reason);
        }
    }
}
