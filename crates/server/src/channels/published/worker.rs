//! The thread of a published channel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::live::{Heard, Note, SyncRule};
use onrush_wire::rtcp::{SenderLine, sender_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use tracing::{info, warn};

use super::channel::{Command, Line, PublishedChannel};
use super::intake::Intake;
use super::receiving::Input;
use crate::channels::Stats;
use crate::channels::audience::{Audience, AudienceSettings};
use crate::channels::tap::{Tap, Tapped};
use crate::channels::viewing::ViewerCommand;

/// How all published channels are taken in and sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) silence_ns: u64,
    pub(super) audience: AudienceSettings,
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
    /// By track.
    intakes: Vec<Intake>,
    audience: Audience,
    taps: Vec<Arc<Tap>>,
    /// Packets leave as they come, and do not wait for others.
    is_prompt: bool,
    /// What is to be added to the publisher's clock to make it ours, once it has reported.
    clock_offset_ns: Option<i128>,
    is_held: bool,
    /// Anomalies that are logged once a second at the most.
    missing: u64,
    logged_ns: u64,
    stats: Stats,
}

impl Worker {
    pub(super) fn new(channel: Arc<PublishedChannel>, settings: Settings) -> Self {
        let tracks = channel.tracks().iter().enumerate();
        let intake =
            |(number, track)| Intake::new(track, channel.ssrc(number), settings.silence_ns);
        let intakes = tracks.clone().map(intake).collect();
        let audience = Audience::new(
            tracks.map(|(number, track)| {
                let given = Arc::clone(&channel.facts[number].given);
                (SyncRule::of(track), track.clock_hz, given)
            }),
            settings.audience,
        );
        Self {
            inputs: Vec::new(),
            reported_ns: 0,
            core: Core {
                intakes,
                audience,
                taps: Vec::new(),
                is_prompt: settings.audience.delay_ns == 0,
                channel,
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
            // First: who brings something after that wakes the thread once more.
            self.core.channel.waker.clear();
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
            self.core.audience.flush_due(monotonic_ns());
            self.core.audience.send_backlogs(monotonic_ns());
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
            Command::Viewer(command) => self.core.apply(command),
            Command::Tap(tap) => self.core.tap(tap),
            Command::Stop => {}
        }
    }

    /// Tells the publisher how its packets arrive, where it sends to sockets.
    fn report(&mut self, now_ns: u64) {
        for (number, intake) in self.core.intakes.iter().enumerate() {
            self.core.channel.set_reception(number, intake.reception());
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
        if self.core.is_prompt {
            self.core.audience.flush();
        }
        received > 0
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let now_ns = monotonic_ns();
        let due_ns = self.core.audience.due_in_ns(now_ns);
        let wait_ns = due_ns.unwrap_or(WAIT_NS_MAX).min(WAIT_NS_MAX);
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
        self.intakes.iter_mut().for_each(Intake::begin);
        self.audience.forget();
        self.taps.iter().for_each(|tap| tap.push(Tapped::Begin));
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
        let Some(taken) = self.intakes[track].take(from, packet, now_ns, note) else {
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
        for tap in &self.taps {
            tap.push(Tapped::Packet(track, Arc::clone(&taken.bytes), now_ns));
        }
        if !self.audience.give(track, taken.bytes, (now_ns, now_ns)) {
            self.stats.too_long += 1;
        }
    }

    /// Does what is asked for viewers.
    fn apply(&mut self, command: ViewerCommand) {
        match command {
            ViewerCommand::Open(ports) => {
                let (path, number) = (self.channel.path(), ports.track + 1);
                match self.audience.open(ports) {
                    Ok((way, reason)) => {
                        info!("channel {path} track{number}: sends by {way} ({reason})");
                    }
                    Err(error) => warn!("channel {path}: {error}"),
                }
            }
            ViewerCommand::Prepare(id, tracks, answer) => {
                let starts = self.audience.prepare(id, tracks, monotonic_ns());
                // Who asked may be gone.
                drop(answer.send(starts));
            }
            ViewerCommand::Start(id) => self.audience.start(id),
            ViewerCommand::Leave(id) => self.audience.leave(id),
        }
    }

    /// A report of the publisher's: the first of all tracks says how its clock and ours differ.
    fn report(&mut self, track: usize, line: SenderLine, now_ns: u64) {
        let Some(timestamp) = self.intakes[track].report(line, now_ns) else {
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
        tap.push_kept(self.audience.kept().collect(), monotonic_ns());
        self.taps.push(tap);
    }

    /// Notes silences, and logs what is missing.
    fn look(&mut self, now_ns: u64) {
        self.taps.retain(|tap| !tap.is_closed());
        let path = self.channel.path();
        for (number, intake) in (1..).zip(&mut self.intakes) {
            if let Some(note) = intake.look(now_ns) {
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
        (stats.trains, stats.passing_ns) = (0, 0);
        (stats.jitter_ns, stats.lag_ns) = (0, 0);
        stats.is_heard = false;
        for intake in &self.intakes {
            heard = heard.and(&intake.heard());
            counts.0 += intake.counts.unannounced;
            counts.1 += intake.counts.foreign;
            stats.jitter_ns = stats.jitter_ns.max(intake.jitter_ns());
            stats.lag_ns = stats.lag_ns.max(intake.lag_ns());
            stats.is_heard |= intake.is_heard();
            let from = intake.from().filter(|from| *from != BY_FRAME);
            stats.from = from.or(stats.from);
        }
        for lane in self.audience.lanes() {
            let counts = lane.counts();
            stats.packets += counts.packets;
            stats.bytes += counts.bytes;
            stats.refused += counts.refused;
            stats.crossings += counts.crossings;
            stats.trains += lane.trains;
            stats.passing_ns += lane.passing_ns.0;
            stats.passing_ns_max = stats.passing_ns_max.max(lane.passing_ns.1);
        }
        stats.played = self.audience.played();
        [stats.encrypted, stats.unencrypted] = self.audience.encrypted();
        stats.heard = heard;
        (stats.unannounced, stats.foreign) = counts;
        let sockets = inputs
            .iter()
            .map(|input| u64::from(input.receiver.overflows()));
        stats.overflows = sockets.sum::<u64>() + self.channel.frames_dropped();
        stats.players = self.audience.watching();
        (stats.dropped, stats.stalled_out) = (self.audience.dropped, self.audience.stalled_out);
        self.channel.publish(stats);
    }
}

/// What came as a frame has no address of its own.
const BY_FRAME: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Batches of a round.
const ROUNDS_MAX: usize = 64;

/// How long the thread waits at the most.
const WAIT_NS_MAX: u64 = 250_000_000;

/// What a line of arrivals is renewed after, and by how much a report may be off.
const LINE_NS_MAX: u64 = 5_000_000_000;
const REPORT_NS_MAX: u64 = 60_000_000_000;

/// Receiver reports leave so often.
const REPORT_EVERY_NS: u64 = 5_000_000_000;

/// Anomalies are logged so often.
const LOG_EVERY_NS: u64 = 1_000_000_000;
