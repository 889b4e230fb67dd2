//! The thread of a published channel.

mod switching;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::live::{ArrivalClock, Heard, INGESTS_MAX, Lead, Note, SenderClock, SyncRule};
use onrush_wire::rtcp::{SenderLine, sender_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use tracing::{info, warn};

use super::channel::{Command, Line, PublishedChannel};
use super::ingest::{BY_FRAME, Publishing};
use super::intake::Intake;
use super::receiving::Input;
use super::refused::Refused;
use super::right::Right;
use crate::channels::Stats;
use crate::channels::audience::{Audience, AudienceSettings};
use crate::channels::tap::{Tap, Tapped};
use crate::channels::viewing::ViewerCommand;

/// How all published channels are taken in and sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) silence_ns: u64,
    pub(super) standby_after_ns: u64,
    pub(super) audience: AudienceSettings,
}

/// Takes publishers' packets and gives them to viewers.
#[derive(Debug)]
pub(super) struct Worker {
    /// By ingest.
    inputs: [Vec<Input>; INGESTS_MAX],
    /// When the publisher was told last how its packets arrive.
    reported_ns: u64,
    core: Core,
}

/// All but what is received from.
#[derive(Debug)]
struct Core {
    channel: Arc<PublishedChannel>,
    /// Those that have begun.
    ingests: [Option<Publishing>; INGESTS_MAX],
    /// The one that viewers get.
    active: Option<usize>,
    /// Since when there is none.
    idle_since_ns: u64,
    /// When it was looked how they stand in the cluster.
    tended_ns: u64,
    /// An active one that is silent for so long is replaced, if the other is not.
    standby_after_ns: u64,
    lead: Lead,
    switches: u64,
    /// By track.
    intakes: Vec<Intake>,
    audience: Audience,
    taps: Vec<Arc<Tap>>,
    /// Packets leave as they come, and do not wait for others.
    is_prompt: bool,
    /// The publisher's, by its reports of all tracks.
    clock: SenderClock,
    /// By track, of timestamps as viewers get them.
    arrivals: Vec<ArrivalClock>,
    /// What was none of a standby's packets, of those that have gone.
    unannounced: u64,
    /// Datagrams that found no room in sockets that are closed.
    overflows: u64,
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
            inputs: Default::default(),
            reported_ns: 0,
            core: Core {
                ingests: Default::default(),
                active: None,
                idle_since_ns: monotonic_ns(),
                tended_ns: 0,
                standby_after_ns: settings.standby_after_ns,
                lead: Lead::default(),
                switches: 0,
                intakes,
                audience,
                taps: Vec::new(),
                is_prompt: settings.audience.delay_ns == 0,
                clock: SenderClock::default(),
                arrivals: vec![ArrivalClock::default(); channel.tracks().len()],
                channel,
                unannounced: 0,
                overflows: 0,
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
            let mut ended = [false; INGESTS_MAX];
            for command in self.core.channel.commands() {
                if matches!(command, Command::Stop) {
                    self.core.channel.close();
                    return self.core.publish(&self.inputs);
                }
                self.apply(command, &mut ended);
            }
            let now_ns = monotonic_ns();
            self.core.choose(now_ns);
            for frame in frames {
                let place = (frame.ingest, frame.track.into());
                let packet = (BY_FRAME, &*frame.packet);
                self.core.take(place, frame.is_rtcp, packet, now_ns);
            }
            // Behind what they sent last.
            for ingest in (0..INGESTS_MAX).filter(|&ingest| ended[ingest]) {
                self.core.end(ingest);
            }
            for _ in 0..ROUNDS_MAX {
                if !self.receive() {
                    break;
                }
            }
            self.core.tend(monotonic_ns());
            self.core.choose(monotonic_ns());
            self.core.advance(monotonic_ns());
            self.core.audience.flush_due(monotonic_ns());
            self.core.audience.send_backlogs(monotonic_ns());
            self.core.look(monotonic_ns());
            self.report(monotonic_ns());
            self.core.publish(&self.inputs);
            self.wait();
        }
    }

    fn apply(&mut self, command: Command, ended: &mut [bool; INGESTS_MAX]) {
        match command {
            Command::Begin(ingest, sockets, right) => {
                self.close(ingest);
                ended[ingest] = false;
                for sockets in sockets {
                    match sockets.into_inputs() {
                        Ok(inputs) => self.inputs[ingest].extend(inputs),
                        Err(error) => warn!("{}: receiving: {error}", self.core.channel.path()),
                    }
                }
                self.core.begin(ingest, right, monotonic_ns());
            }
            Command::EndPublisher(ingest) => {
                self.close(ingest);
                ended[ingest] = true;
            }
            Command::Hold(ingest, is_held) => {
                if let Some(own) = &mut self.core.ingests[ingest] {
                    own.is_held = is_held;
                }
            }
            Command::Viewer(command) => self.core.apply(command),
            Command::Tap(tap) => self.core.tap(tap),
            Command::Stop => {}
        }
    }

    /// Receives of that ingest no more.
    fn close(&mut self, ingest: usize) {
        self.core.overflows += overflows(&self.inputs[ingest]);
        self.inputs[ingest].clear();
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
        let inputs = self.core.active.map(|ingest| self.inputs[ingest].iter());
        for input in inputs.into_iter().flatten().filter(|input| input.is_rtcp) {
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
        for (ingest, inputs) in self.inputs.iter_mut().enumerate() {
            for input in inputs {
                let (place, is_rtcp) = ((ingest, input.track), input.is_rtcp);
                let batch = input.receive(|message| {
                    for datagram in message.datagrams() {
                        self.core
                            .take(place, is_rtcp, (message.from, datagram), now_ns);
                    }
                });
                // An ICMP message about a report of ours, or memory that is short for a moment.
                received += batch.unwrap_or(0);
            }
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
        let wait_ns = due_ns.unwrap_or(WAIT_NS_MAX).min(self.core.wait_ns_max());
        let timeout = Timespec {
            tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(1),
            tv_nsec: i64::try_from(wait_ns % 1_000_000_000).unwrap_or(0),
        };
        let inputs = self.inputs.iter().flatten();
        let inputs = inputs.map(|input| input.receiver.as_fd());
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
    /// A publisher begins.
    fn begin(&mut self, ingest: usize, right: Right, now_ns: u64) {
        self.end(ingest);
        let channel = (self.channel.path(), self.channel.tracks());
        self.ingests[ingest] = Some(Publishing::new(channel, right, now_ns));
        self.tended_ns = 0;
        self.channel.set_arrived(ingest, now_ns);
    }

    /// A publisher has gone.
    fn end(&mut self, ingest: usize) {
        if let Some(gone) = self.ingests[ingest].take() {
            self.unannounced += gone.unannounced;
        }
        if self.active == Some(ingest) {
            (self.active, self.idle_since_ns) = (None, monotonic_ns());
            self.channel.set_active(None, self.switches);
        }
    }

    /// Takes what came of an ingest for a track.
    fn take(
        &mut self,
        (ingest, track): (usize, usize),
        is_rtcp: bool,
        (from, packet): (SocketAddr, &[u8]),
        now_ns: u64,
    ) {
        let own = self.ingests[ingest].as_mut().filter(|own| !own.is_held);
        let Some(own) = own else {
            return;
        };
        match (is_rtcp, own.is_live()) {
            (true, is_live) => match (sender_line(packet), is_live) {
                (Some(line), true) => self.report(track, line, now_ns),
                (Some(line), false) => own.keep_report(track, line, now_ns),
                (None, _) => {}
            },
            (false, true) => self.pass((ingest, track), (from, packet), now_ns),
            (false, false) => {
                if own.keep(track, (from, packet), now_ns) {
                    self.channel.set_arrived(ingest, now_ns);
                } else {
                    let counts = self.channel.refused_counts(ingest);
                    counts.add(Refused::UNANNOUNCED);
                }
            }
        }
    }

    /// Gives a packet of the active ingest, which came then, to viewers.
    fn pass(
        &mut self,
        (ingest, track): (usize, usize),
        (from, packet): (SocketAddr, &[u8]),
        arrived_ns: u64,
    ) {
        let (missing, path) = (&mut self.missing, self.channel.path());
        let note = |note| match note {
            Note::Missing { packets } => *missing += u64::from(packets),
            Note::Began { .. } | Note::Resumed { .. } => {
                info!("channel {path} track{}: {note}", track + 1);
            }
            _ => {}
        };
        let intake = &mut self.intakes[track];
        let before = intake.counts;
        let Some(taken) = intake.take(from, packet, arrived_ns, note) else {
            let counts = self.channel.refused_counts(ingest);
            return counts.add(intake.counts.since(before));
        };
        let own = self.ingests[ingest].as_mut();
        let kept_report = own.and_then(|own| {
            own.state.heard_ns = own.state.heard_ns.max(Some(arrived_ns));
            own.has_given_up = false;
            own.reports[track].take()
        });
        // Not reports: a server goes on with these when its own source is gone.
        self.channel.set_arrived(ingest, arrived_ns);
        if let Some(line) = taken.early {
            self.report(track, line, arrived_ns);
        }
        if let Some((line, at_ns)) = kept_report {
            self.report(track, line, at_ns);
        }
        // Of those that were kept some came before the last of the other publisher. Viewers that go
        // by reports are to see no step either: their timestamps stay on one line.
        let time_ns = arrived_ns.saturating_add(self.lead.ns);
        self.note_arrival(track, taken.timestamp, time_ns);
        for tap in &self.taps {
            tap.push(Tapped::Packet(track, Arc::clone(&taken.bytes), time_ns));
        }
        let now_ns = match self.lead.ns {
            0 => arrived_ns,
            _ => monotonic_ns(),
        };
        if !self.audience.give(track, taken.bytes, (now_ns, now_ns)) {
            self.stats.too_long += 1;
        }
    }

    /// A packet came: where no report is known, that says where timestamps are.
    fn note_arrival(&mut self, track: usize, timestamp: u32, time_ns: u64) {
        let clock_hz = self.channel.tracks()[track].clock_hz;
        let told_ns = self.arrivals[track].time_ns(timestamp, time_ns, clock_hz);
        let is_new = |line: Line| time_ns.abs_diff(line.at_ns) <= REPORT_NS_MAX;
        let line = self.channel.line(track).filter(|line| line.is_reported);
        if let (Some(at_ns), false) = (told_ns, line.is_some_and(is_new)) {
            let line = Line {
                timestamp,
                at_ns,
                is_reported: false,
            };
            self.channel.set_line(track, line);
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
            ViewerCommand::Leave(id) => self.audience.leave(id, monotonic_ns()),
        }
    }

    /// A report of the publisher's: those of all tracks say how its clock and ours differ.
    fn report(&mut self, track: usize, line: SenderLine, now_ns: u64) {
        let Some(timestamp) = self.intakes[track].report(line, now_ns) else {
            return;
        };
        // Of a publisher without a clock the arrival of packets is all that is known.
        let Some(at_ns) = self.clock.time_ns(line.ntp, now_ns) else {
            return;
        };
        let at_ns = at_ns.saturating_add(self.lead.ns);
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
            if intake.look_at_reports() {
                warn!(
                    "channel {path} track{number}: its sender reports are ignored: their \
                     timestamps are far from those of its packets"
                );
            }
        }
        if self.missing > 0 && now_ns.saturating_sub(self.logged_ns) > LOG_EVERY_NS {
            warn!("channel {path}: {} packets are missing", self.missing);
            (self.missing, self.logged_ns) = (0, now_ns);
        }
    }

    fn publish(&mut self, inputs: &[Vec<Input>]) {
        let stats = &mut self.stats;
        let (mut heard, mut counts) = (Heard::default(), (0, 0));
        let alone = self.audience.alone;
        (stats.packets, stats.bytes) = (alone.packets, alone.bytes);
        (stats.refused, stats.crossings) = (0, 0);
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
        let kept = self.ingests.iter().flatten();
        counts.0 += self.unannounced + kept.map(|it| it.unannounced).sum::<u64>();
        (stats.unannounced, stats.foreign) = counts;
        let sockets = inputs.iter().map(|inputs| overflows(inputs));
        stats.overflows = self.overflows + sockets.sum::<u64>() + self.channel.frames_dropped();
        stats.players = self.audience.watching();
        (stats.dropped, stats.stalled_out) = (self.audience.dropped, self.audience.stalled_out);
        self.channel.publish(stats);
    }
}

/// Datagrams that found no room.
fn overflows(inputs: &[Input]) -> u64 {
    let sockets = inputs.iter();
    sockets
        .map(|input| u64::from(input.receiver.overflows()))
        .sum()
}

/// Batches of a round.
const ROUNDS_MAX: usize = 64;

/// How long the thread waits at the most.
const WAIT_NS_MAX: u64 = 250_000_000;

/// By how much a report may be off.
const REPORT_NS_MAX: u64 = 60_000_000_000;

/// Receiver reports leave so often.
const REPORT_EVERY_NS: u64 = 5_000_000_000;

/// Anomalies are logged so often.
const LOG_EVERY_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
