//! The model against the paths: each moves a file, in the session in which the probes were taken.

use std::error::Error;
use std::fs::File;
use std::net::UdpSocket;
use std::sync::Arc;

use onrush_paths::{Mover, Name, Plan, Source};
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Mode, Testbed};

use super::cost::Costs;
use super::formula::{Formula, Load, NotPredicted, over_tcp, path};
use super::probe::{ModelRecord, Of, Run};
use super::stream::Stream;
use super::turn::connected;
use crate::error::ExperimentError;
use crate::machine::SenderClock;
use crate::setup::system;
use crate::stats::{Summary, ratio};

/// Bytes of the file that is moved: more than a processor's cache has.
const FILE_BYTES: u64 = 64 << 20;
/// Packets that are written to a connection one by one.
const STREAM_PACKETS: u64 = 4096;
/// How far a prediction may be off.
pub const ERROR_MAX: f64 = 0.20;
/// What part of the catalogue is to be predicted so well.
pub const PREDICTED_MIN: f64 = 0.80;

/// One path, predicted and measured.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Its name, and what was sent where that is not the same for all.
    pub path: String,
    /// Who cut trains.
    pub mode: Mode,
    /// What the model says, in ns a packet; or why it does not.
    pub predicted_ns: Result<f64, NotPredicted>,
    /// What it took; or why there is no figure.
    pub measured_ns: Result<Summary, String>,
}

/// What the paths of a record took, beside what its probes predict.
#[must_use]
pub fn checked(record: &ModelRecord) -> Vec<Checked> {
    let mut all = Vec::new();
    for &mode in &record.settings.modes {
        let costs = Costs::of(record, mode);
        let of_mode = with_formulas(record, mode, costs.as_ref()).into_iter();
        all.extend(of_mode.map(|(_, checked)| checked));
    }
    all
}

/// Each path of each size, with its formula if it has one.
pub(super) fn with_formulas(
    record: &ModelRecord,
    mode: Mode,
    costs: Option<&Costs>,
) -> Vec<(Option<Formula>, Checked)> {
    let settings = &record.settings;
    let mut all = Vec::new();
    for packet_bytes in settings.each_packet_bytes() {
        let size = (packet_bytes != settings.packet_bytes).then_some(packet_bytes);
        for (name, is_tcp) in with_transports() {
            let path = shown(name, is_tcp);
            let is_it = |run: &&Run| {
                let is_path = run.mode == mode && run.of == Of::Path(path.clone());
                is_path && run.packet_bytes == size
            };
            let runs: Vec<_> = record.runs.iter().filter(is_it).collect();
            if runs.is_empty() {
                continue;
            }
            let formula = of_path(name, is_tcp, packet_bytes);
            let valid = runs.iter().filter(|run| run.void.is_none());
            let valid: Vec<_> = valid.map(|run| run.cost_ns).collect();
            let why = runs.iter().find_map(|run| run.void.clone());
            let shown = match size {
                Some(bytes) => format!("{path}, {bytes} B"),
                None => path.clone(),
            };
            let known = formula.as_ref().ok().cloned();
            let samples = (valid.as_slice(), why.unwrap_or_default());
            all.push((known, Checked::new(shown, mode, formula, costs, samples)));
        }
    }
    all
}

/// What a packet costs by a path; `packet_bytes` with the header that the path takes.
pub(super) fn of_path(
    name: Name,
    is_tcp: bool,
    packet_bytes: u32,
) -> Result<Formula, NotPredicted> {
    let formula = if is_tcp { over_tcp } else { path };
    formula(name.as_str(), &load(name, packet_bytes))
}

/// All paths, and whether they are sent over TCP: those over UDP, then those over TCP.
fn with_transports() -> impl Iterator<Item = (Name, bool)> {
    let names = |is_tcp: bool| Name::ALL.into_iter().map(move |name| (name, is_tcp));
    let all = names(false).chain(names(true));
    all.filter(|(name, is_tcp)| {
        if *is_tcp {
            name.takes_tcp()
        } else {
            name.takes_udp()
        }
    })
}

/// A path's name, with its transport where it has two and goes by TCP.
pub(super) fn shown(name: Name, is_tcp: bool) -> String {
    match is_tcp && name.takes_udp() {
        true => format!("{name}, tcp"),
        false => name.to_string(),
    }
}

impl Checked {
    /// A formula beside samples, or why there are none.
    pub(super) fn new(
        path: String,
        mode: Mode,
        formula: Result<Formula, NotPredicted>,
        costs: Option<&Costs>,
        (samples, why): (&[f64], String),
    ) -> Self {
        Self {
            path,
            mode,
            predicted_ns: formula.and_then(|it| it.predict(costs.ok_or(NotPredicted::Probes)?)),
            measured_ns: Summary::of(samples).ok_or(why),
        }
    }

    /// How far the prediction is off, as a part of what was measured; `None` if either is missing.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let measured_ns = self.measured_ns.as_ref().ok()?.median;
        Some(self.predicted_ns.as_ref().ok()? / measured_ns - 1.0)
    }

    /// Whether the prediction is good enough.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        self.error().is_some_and(|error| error.abs() <= ERROR_MAX)
    }
}

/// One round of all paths.
pub(super) fn round(
    testbed: &Testbed,
    sink: &mut Sink,
    (file, (core, rest)): (&File, (usize, usize)),
    (round, packet_bytes, is_usual): (u32, u32, bool),
    runs: &mut Vec<Run>,
) -> Result<(), ExperimentError> {
    for (name, is_tcp) in with_transports() {
        let file = file.try_clone().map_err(system("open a file again"))?;
        let clock = match name {
            Name::UringSqpoll => SenderClock::of_sleeper(),
            _ => SenderClock::bound_to(core),
        };
        let moved = if is_tcp {
            let stream = Stream::open(testbed, rest).map_err(system("connect by TCP"))?;
            by_stream(name, file, packet_bytes, &stream, clock)
        } else {
            let socket = connected(testbed).map_err(system("open a socket"))?;
            let moved = by_datagrams(name, file, packet_bytes, (&socket, &clock), sink);
            let arrived = sink.totals()?.packets;
            moved.map(|(packets, taken_ns)| {
                let void = format!("{packets} packets were sent, {arrived} arrived");
                (packets, taken_ns, (packets != arrived).then_some(void))
            })
        };
        let (times, taken_ns, void) = moved.unwrap_or_else(|error| (0, 0, Some(error)));
        runs.push(Run {
            mode: testbed.mode(),
            of: Of::Path(shown(name, is_tcp)),
            round,
            times,
            cost_ns: ratio(taken_ns, times.max(1)),
            packet_bytes: (!is_usual).then_some(packet_bytes),
            void,
        });
    }
    Ok(())
}

/// Moves a part of the file by TCP, all of it or what takes some ten milliseconds if each packet is
/// a write: packets, what they cost this thread, and why that counts for nothing.
fn by_stream(
    name: Name,
    file: File,
    packet_bytes: u32,
    stream: &Stream,
    clock: SenderClock,
) -> Result<(u64, u64, Option<String>), String> {
    let bytes = match name {
        Name::SendfileTcp => FILE_BYTES,
        _ => STREAM_PACKETS * u64::from(packet_bytes),
    };
    let before = stream.arrived();
    let held = stream.hold(before);
    let moved = || -> Result<(u64, u64), Box<dyn Error>> {
        let plan = Plan::regular(bytes, packet_bytes)?;
        let packets = plan.packets();
        let mut mover = Mover::open(name, &Arc::new(Source { file, plan }), 0)?;
        let begin = clock.now_ns();
        mover.send(&stream.socket, 0..packets)?;
        Ok((packets as u64, clock.now_ns() - begin))
    };
    let moved = moved();
    drop(held);
    let arrived = stream.arrived_at_last(before + bytes) - before;
    let (packets, taken_ns) = moved.map_err(|error| error.to_string())?;
    let void = format!("{bytes} bytes were sent, {arrived} arrived");
    Ok((packets, taken_ns, (arrived != bytes).then_some(void)))
}

/// Moves the file by a path over UDP: packets, and what they cost this thread.
fn by_datagrams(
    name: Name,
    file: File,
    packet_bytes: u32,
    (socket, clock): (&UdpSocket, &SenderClock),
    sink: &mut Sink,
) -> Result<(u64, u64), String> {
    let moved = || -> Result<(u64, u64), Box<dyn Error>> {
        let header_bytes = header_bytes(name);
        let mut plan = Plan::regular(FILE_BYTES, packet_bytes - header_bytes)?;
        let packets = plan.packets();
        if header_bytes > 0 {
            let bytes = header_bytes as usize;
            plan = plan.with_headers(bytes, vec![0x80; packets * bytes])?;
        }
        let images = packets * packet_bytes as usize;
        let mut mover = Mover::open(name, &Arc::new(Source { file, plan }), images)?;
        mover.prepare(0..packets)?;
        // What a path takes once (memory of its ring, room of its socket) is not a packet's.
        mover.send(socket, 0..packets / 8)?;
        sink.reset()?;
        let begin = clock.now_ns();
        mover.send(socket, 0..packets)?;
        Ok((packets as u64, clock.now_ns() - begin))
    };
    moved().map_err(|error| error.to_string())
}

/// Bytes of the header that a path takes: RTP's or none.
fn header_bytes(name: Name) -> u32 {
    if name.takes_headers(true) { 12 } else { 0 }
}

fn load(name: Name, packet_bytes: u32) -> Load {
    let header_bytes = header_bytes(name);
    Load {
        payload_bytes: f64::from(packet_bytes - header_bytes),
        header_bytes: header_bytes.into(),
        burst_packets: f64::INFINITY,
    }
}
