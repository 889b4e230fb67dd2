//! The model against the paths: each moves a file, in the session in which the probes were taken.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use onrush_paths::{Mover, Name, Plan, Source};
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Mode, Testbed};

use super::probe::{ModelError, Of, Run, system};
use super::stream::Stream;
use super::turn::connected;
use super::{Costs, Load, ModelRecord, NotPredicted, over_tcp, path};
use crate::machine::SenderClock;
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
        for (name, is_tcp) in both_roads() {
            let shown = shown(name, is_tcp);
            let is_it = |run: &&Run| run.mode == mode && run.of == Of::Path(shown.clone());
            let runs: Vec<_> = record.runs.iter().filter(is_it).collect();
            if runs.is_empty() {
                continue;
            }
            let valid = runs.iter().filter(|run| run.void.is_none());
            let valid: Vec<_> = valid.map(|run| run.cost_ns).collect();
            let why = || runs.iter().find_map(|run| run.void.clone());
            let load = load(name, record.settings.packet_bytes);
            let formula = if is_tcp { over_tcp } else { path };
            let predicted = formula(name.as_str(), &load).and_then(|formula| {
                let costs = costs.as_ref().ok_or(NotPredicted::Probes)?;
                formula.predict(costs)
            });
            all.push(Checked {
                path: shown,
                mode,
                predicted_ns: predicted,
                measured_ns: Summary::of(&valid).ok_or_else(|| why().unwrap_or_default()),
            });
        }
    }
    all
}

/// All paths, and how they are sent: over UDP, over TCP, or one after the other.
fn both_roads() -> impl Iterator<Item = (Name, bool)> {
    let over = |is_tcp: bool| {
        let takes = move |name: &Name| {
            if is_tcp {
                name.takes_tcp()
            } else {
                name.takes_udp()
            }
        };
        Name::ALL
            .into_iter()
            .filter(takes)
            .map(move |name| (name, is_tcp))
    };
    over(false).chain(over(true))
}

/// A path's name, with its transport where it has two and goes by TCP.
pub(super) fn shown(name: Name, is_tcp: bool) -> String {
    match is_tcp && name.takes_udp() {
        true => format!("{name}, tcp"),
        false => name.to_string(),
    }
}

impl Checked {
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
    (round, packet_bytes): (u32, u32),
    runs: &mut Vec<Run>,
) -> Result<(), ModelError> {
    let clock = SenderClock::bound_to(core);
    for name in Name::ALL.into_iter().filter(|name| name.takes_udp()) {
        let file = file.try_clone().map_err(system("open a file again"))?;
        let socket = connected(testbed).map_err(system("open a socket"))?;
        let clock = match name {
            Name::UringSqpoll => SenderClock::of_sleeper(),
            _ => clock,
        };
        let taken = take(name, file, packet_bytes, (&socket, &clock), sink);
        let arrived = sink.totals()?.packets;
        let (times, cost_ns, void) = match taken {
            Err(error) => (0, 0.0, Some(error)),
            Ok((packets, taken_ns)) => {
                let void = format!("{packets} packets were sent, {arrived} arrived");
                (
                    packets,
                    ratio(taken_ns, packets),
                    (packets != arrived).then_some(void),
                )
            }
        };
        let of = Of::Path(name.to_string());
        runs.push(Run {
            mode: testbed.mode(),
            of,
            round,
            times,
            cost_ns,
            void,
        });
    }
    for name in Name::ALL.into_iter().filter(|name| name.takes_tcp()) {
        let which = (round, packet_bytes, clock);
        let stream = Stream::open(testbed, rest).map_err(system("connect by TCP"))?;
        runs.push(by_stream(name, testbed.mode(), file, &stream, which)?);
    }
    Ok(())
}

/// A part of the file by TCP: all of it, or what takes some ten milliseconds if each packet is a
/// write.
fn by_stream(
    name: Name,
    mode: Mode,
    file: &File,
    stream: &Stream,
    (round, packet_bytes, clock): (u32, u32, SenderClock),
) -> Result<Run, ModelError> {
    let file = file.try_clone().map_err(system("open a file again"))?;
    let bytes = match name {
        Name::SendfileTcp => FILE_BYTES,
        _ => STREAM_PACKETS * u64::from(packet_bytes),
    };
    let before = stream.arrived();
    let held = stream.hold(before);
    let moved = || -> Result<(u64, u64), Box<dyn std::error::Error>> {
        let plan = Plan::regular(bytes, packet_bytes)?;
        let packets = plan.packets();
        let mut mover = Mover::open(name, &Arc::new(Source { file, plan }), 0)?;
        let begin = clock.now_ns();
        mover.send(&stream.socket, 0..packets)?;
        Ok((packets as u64, clock.now_ns() - begin))
    };
    let moved = moved().map_err(|error| error.to_string());
    drop(held);
    let arrived = stream.arrived_at_last(before + bytes) - before;
    let (times, cost_ns, void) = match moved {
        Err(error) => (0, 0.0, Some(error)),
        Ok((packets, taken_ns)) => {
            let void = format!("{bytes} bytes were sent, {arrived} arrived");
            let void = (arrived != bytes).then_some(void);
            (packets, ratio(taken_ns, packets), void)
        }
    };
    Ok(Run {
        mode,
        of: Of::Path(shown(name, true)),
        round,
        times,
        cost_ns,
        void,
    })
}

/// Moves the file by a path: packets, and what they cost this thread.
fn take(
    name: Name,
    file: File,
    packet_bytes: u32,
    (socket, clock): (&UdpSocket, &SenderClock),
    sink: &mut Sink,
) -> Result<(u64, u64), String> {
    let told = |error: &dyn std::error::Error| error.to_string();
    let load = load(name, packet_bytes);
    let payload = packet_bytes
        - if load.header_bytes > 0.0 {
            HEADER_BYTES
        } else {
            0
        };
    let mut plan = Plan::regular(FILE_BYTES, payload).map_err(|e| told(&e))?;
    let packets = plan.packets();
    if load.header_bytes > 0.0 {
        let bytes = HEADER_BYTES as usize;
        plan = plan
            .with_headers(bytes, vec![0x80; packets * bytes])
            .map_err(|e| told(&e))?;
    }
    let images = packets * packet_bytes as usize;
    let source = Arc::new(Source { file, plan });
    let mut mover = Mover::open(name, &source, images).map_err(|e| told(&e))?;
    mover.prepare(0..packets).map_err(|e: io::Error| told(&e))?;
    // What a path takes once (memory of its ring, room of its socket) is not a packet's.
    mover.send(socket, 0..packets / 8).map_err(|e| told(&e))?;
    sink.reset().map_err(|e| told(&e))?;
    let begin = clock.now_ns();
    mover.send(socket, 0..packets).map_err(|e| told(&e))?;
    Ok((packets as u64, clock.now_ns() - begin))
}

/// Of an RTP header.
const HEADER_BYTES: u32 = 12;

fn load(name: Name, packet_bytes: u32) -> Load {
    let header_bytes = if name.takes_headers(true) {
        HEADER_BYTES
    } else {
        0
    };
    Load {
        payload_bytes: f64::from(packet_bytes - header_bytes),
        header_bytes: header_bytes.into(),
        burst_packets: f64::INFINITY,
    }
}
