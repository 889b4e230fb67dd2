//! `onrush-lab bench trains`: what a train costs, and what may make it cheaper.
//!
//! A bare sender, without timers, sessions and a cache: a ring, thousands of receivers with a
//! socket each, and trains of images from registered memory. Each attempt changes one thing; all
//! take turns in rounds, and each turn is compared with the server's way in the same round, by
//! processor time and, where the processor shows them, by instructions and misses. The sink at the
//! far end counts every packet; a turn that lost one, or in which the kernel copied what was to go
//! by reference, is void.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use onrush_primitives::hardware::HardwareCounters;
use onrush_primitives::named;
use onrush_primitives::packet::{RingKind, TrainRing, TrainSockets, TrainWay};
use onrush_sys::clock::thread_cpu_ns;
use onrush_sys::path::{PathName, prepare_socket};
use onrush_sys::thread::raise_open_files_limit;
use onrush_testkit::sink::{Look, Sink};
use onrush_testkit::testbed::{Mode, Options, RCV_DEVICE, RCV_IPV4, SND_IPV4, Testbed};
use serde::{Deserialize, Serialize};

use crate::error::{ExperimentError, bounds, refuse, what_is};
use crate::experiment::{Environment, Record};
use crate::machine::{Awake, SenderClock, cpu_ns_of_all, threads_named};
use crate::random::Random;
use crate::setup::{network, on_core, system, two_cores};
use crate::stats::{Summary, ratio};
use crate::table::{Cell, Column, Report, Table, table};

/// Its name on the command line and in files.
pub const NAME: &str = "trains";

/// What is measured.
pub type TrainsRecord = Record<Settings, Run>;

/// Receivers at the most: as many sockets as most systems let open, and as many ports as are free.
pub const RECEIVERS_MAX: u32 = 8192;

/// The first receiver's port; the others follow.
const PORT_FIRST: u16 = 20_000;

/// Registered memory, which no cache holds.
const AREA_BYTES: usize = 128 << 20;

/// Trains in a crossing, as many as a server's engine has on average when it has much to do.
const BATCH: usize = 256;

/// Rounds below which nothing is said of an attempt: the interval of fewer holds too little.
const ROUNDS_JUDGED_MIN: usize = 6;

/// An attempt is a gain if it costs this part less than the server's way, and no less than so in
/// the interval.
const GAIN_PART: f64 = 0.97;

named! {
    /// What is changed.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Attempt {
        /// Nothing: connected sockets in the ring's table, receivers in no order.
        Base = "as the server",
        /// Receivers in the order of their sockets in memory.
        InOrder = "in the order of sockets",
        /// One socket for all that is not connected, an address with each send.
        Unconnected = "one unconnected socket",
        /// Sockets by descriptor instead of by place in the ring's table.
        Descriptors = "sockets by descriptor",
        /// The kernel does not say whether it copied.
        Untold = "no report of copies",
        /// Smaller batches.
        Batch32 = "32 trains a crossing",
        /// Larger batches.
        Batch1024 = "1024 trains a crossing",
        /// Two bursts as one train, half as many sends: what joining always would give.
        Joined = "two bursts as one train",
        /// Copied: one answer for a train in place of two.
        Copied = "copied, one answer",
        /// Copied, and nothing is said when it succeeds.
        Silent = "copied, no answer",
        /// A ring without deferred task work and single issuer.
        PlainRing = "a plain ring",
        /// A thread of the kernel on the same processor takes the entries.
        Polled = "a thread of the kernel polls",
        /// Four lines of each receiver's record are touched in place of one.
        WideRecords = "records of four lines",
        /// Those, fetched eight receivers ahead.
        Prefetched = "records of four lines, ahead",
    }
}

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Receivers, each with a socket.
    pub receivers: u32,
    /// Packets in a train.
    pub packets: u32,
    /// Bytes of a packet.
    pub packet_bytes: u16,
    /// How often each attempt has its turn in each mode.
    pub rounds: u32,
    /// Trains of a turn.
    pub trains: u32,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// What is tried; the server's way is always.
    pub attempts: Vec<Attempt>,
    /// What orders are drawn from.
    pub seed: u64,
}

/// One turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Who cut trains.
    pub mode: Mode,
    /// What was tried.
    pub attempt: Attempt,
    /// In which round, from 0.
    pub round: u32,
    /// Trains that were sent, and packets of all of them.
    pub trains: u64,
    /// All packets.
    pub packets: u64,
    /// Processor time of the sender, of the softirq thread and of the ring's, in ns.
    pub cpu_ns: u64,
    /// Entries into the kernel.
    pub crossings: u64,
    /// Instructions of the sender, where the processor counts them.
    #[serde(default)]
    pub instructions: Option<u64>,
    /// Misses of the last cache, likewise.
    #[serde(default)]
    pub misses: Option<u64>,
    /// Why it counts for nothing.
    pub void: Vec<String>,
}

impl Settings {
    /// Shorter.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            rounds: 7,
            trains: 16_384,
            modes: vec![Mode::Uso],
            ..Self::default()
        }
    }

    /// Refuses what cannot be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Settings`].
    pub fn check(&self) -> Result<(), ExperimentError> {
        let train_bytes = self.packets.saturating_mul(self.packet_bytes.into());
        bounds! {
            self.receivers, 1..=RECEIVERS_MAX, Count, "receivers";
            self.packets, 2..=20, Count, "packets in a train";
            self.rounds, 1..=1000, Count, "rounds";
            self.trains, 1024..=10_000_000, Count, "trains of a turn";
        }
        refuse! { ExperimentError::Settings;
            self.modes.is_empty() => "nothing to do: ask for a mode";
            !(100..=1472).contains(&self.packet_bytes)
                => "packets of {} bytes: ask for 100 to 1472", self.packet_bytes;
            // Two are joined.
            2 * train_bytes > 65_507 => "{train_bytes} bytes are a train too long to join two";
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            receivers: 8000,
            packets: 8,
            packet_bytes: 1328,
            rounds: 25,
            trains: 40_960,
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            attempts: Attempt::ALL.to_vec(),
            seed: 1,
        }
    }
}

impl Attempt {
    /// How it sends trains of so many bytes.
    fn way(self, bytes: u32) -> TrainWay {
        let base = TrainWay {
            batch: BATCH,
            bytes,
            is_fixed: true,
            is_connected: true,
            is_in_order: false,
            is_zero_copy: true,
            tells_usage: true,
            is_silent: false,
            record_lines: 1,
            is_prefetched: false,
        };
        match self {
            Self::Base | Self::PlainRing | Self::Polled => base,
            Self::InOrder => TrainWay {
                is_in_order: true,
                ..base
            },
            Self::Unconnected => TrainWay {
                is_connected: false,
                ..base
            },
            Self::Descriptors => TrainWay {
                is_fixed: false,
                ..base
            },
            Self::Untold => TrainWay {
                tells_usage: false,
                ..base
            },
            Self::Batch32 => TrainWay { batch: 32, ..base },
            Self::Batch1024 => TrainWay {
                batch: 1024,
                ..base
            },
            Self::Joined => TrainWay {
                bytes: 2 * bytes,
                ..base
            },
            Self::Copied => TrainWay {
                is_zero_copy: false,
                ..base
            },
            Self::Silent => TrainWay {
                is_zero_copy: false,
                is_silent: true,
                ..base
            },
            Self::WideRecords => TrainWay {
                record_lines: 4,
                ..base
            },
            Self::Prefetched => TrainWay {
                record_lines: 4,
                is_prefetched: true,
                ..base
            },
        }
    }

    /// Bursts that one of its trains carries.
    fn bursts(self) -> u64 {
        if self == Self::Joined { 2 } else { 1 }
    }

    /// What it is compared with.
    fn beside(self) -> Self {
        match self {
            Self::Prefetched => Self::WideRecords,
            _ => Self::Base,
        }
    }

    fn ring(self, core: u32) -> RingKind {
        match self {
            Self::PlainRing => RingKind::Plain,
            Self::Polled => RingKind::Polled(core),
            _ => RingKind::Deferred,
        }
    }
}

/// What all turns share.
struct Bench<'a> {
    settings: &'a Settings,
    core: usize,
    sink: Sink,
    sockets: Arc<TrainSockets>,
    order: Vec<usize>,
    rings: BTreeMap<&'static str, TrainRing>,
    counters: Option<HardwareCounters>,
}

/// Carries the experiment out. `progress` hears before every turn which part is done and what comes
/// next.
///
/// # Errors
///
/// If it could not be carried out.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64, &str) + Send,
) -> Result<TrainsRecord, ExperimentError> {
    settings.check()?;
    let (_, core) = two_cores("the sender")?;
    let mut environment = Environment::here(version, command);
    raise_open_files_limit();
    on_core(core, || {
        let mut testbed = Testbed::new(Options::default())?;
        environment.network = network(&testbed, &["tx-", "generic-seg"])?;
        let mut bench = Bench::set_up(settings, &testbed, core)?;
        let mut record = Record::new(NAME, environment, settings.clone());
        let _awake = Awake::keep(core).map_err(system("keep a processor awake"))?;
        let mut random = Random::new(settings.seed + 1);
        let mut done = 0_u32;
        for round in 0..settings.rounds {
            for &mode in &settings.modes {
                testbed.set_mode(mode)?;
                let mut turns = settings.attempts();
                for last in (1..turns.len()).rev() {
                    turns.swap(last, random.index(last + 1));
                }
                for attempt in turns {
                    let all =
                        settings.rounds * to_u32(settings.modes.len() * settings.attempts().len());
                    let next = format!("{} {attempt}, round {}", mode.name(), round + 1);
                    progress(f64::from(done) / f64::from(all), &next);
                    done += 1;
                    record.runs.push(bench.turn((mode, attempt, round))?);
                }
            }
        }
        Ok(record)
    })
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Settings {
    /// What is tried, the server's way first and each once.
    fn attempts(&self) -> Vec<Attempt> {
        let beside = self.attempts.iter().map(|attempt| attempt.beside());
        let all = [Attempt::Base].into_iter().chain(beside);
        let mut all: Vec<_> = all.chain(self.attempts.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl<'a> Bench<'a> {
    fn set_up(
        settings: &'a Settings,
        testbed: &Testbed,
        core: usize,
    ) -> Result<Self, ExperimentError> {
        let receivers = u16::try_from(settings.receivers).expect("checked against the most");
        let look = Look {
            every: 13,
            ..Look::default()
        };
        let ports = PORT_FIRST..=PORT_FIRST + (receivers - 1);
        let sink = Sink::attach_looking(&testbed.rcv, RCV_DEVICE, ports, look)?;
        let sockets = testbed.snd.run(|| -> io::Result<TrainSockets> {
            let ready = |socket: UdpSocket| -> io::Result<UdpSocket> {
                let (path, stride) = (PathName::UringRegisteredZc, settings.packet_bytes);
                prepare_socket(path, socket.as_raw_fd(), stride)?;
                Ok(socket)
            };
            let connected = (0..receivers).map(|number| {
                let socket = UdpSocket::bind((SND_IPV4, 0))?;
                socket.connect((RCV_IPV4, PORT_FIRST + number))?;
                ready(socket)
            });
            let addresses =
                (0..receivers).map(|number| SocketAddrV4::new(RCV_IPV4, PORT_FIRST + number));
            Ok(TrainSockets {
                connected: connected.collect::<Result<_, _>>()?,
                unconnected: ready(UdpSocket::bind((SND_IPV4, 0))?)?,
                addresses: addresses.collect(),
            })
        });
        let sockets = sockets.map_err(system("open a socket for each receiver (see ulimit -n)"))?;
        let mut random = Random::new(settings.seed);
        let mut order: Vec<usize> = (0..settings.receivers as usize).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.index(last + 1));
        }
        Ok(Self {
            settings,
            core,
            sink,
            sockets: Arc::new(sockets),
            order,
            rings: BTreeMap::new(),
            counters: HardwareCounters::open().ok(),
        })
    }

    fn turn(
        &mut self,
        (mode, attempt, round): (Mode, Attempt, u32),
    ) -> Result<Run, ExperimentError> {
        let settings = self.settings;
        let kind = attempt.ring(to_u32(self.core));
        let name = match kind {
            RingKind::Deferred => "deferred",
            RingKind::Plain => "plain",
            RingKind::Polled(_) => "polled",
        };
        if !self.rings.contains_key(name) {
            let (sockets, order) = (Arc::clone(&self.sockets), self.order.clone());
            let ring = TrainRing::new(kind, AREA_BYTES, sockets, order);
            self.rings
                .insert(name, ring.map_err(system("set up a ring"))?);
        }
        let ring = self.rings.get_mut(name).expect("it was just made");
        let way = attempt.way(settings.packets * u32::from(settings.packet_bytes));
        let batches = u64::from(settings.trains) / (attempt.bursts() * way.batch as u64);
        let send = |ring: &mut TrainRing, batches| {
            let sent = ring.send(&way, batches);
            sent.map_err(system("send a batch of trains by the ring"))
        };
        // What the turn before left in caches is nobody's advantage.
        send(ring, 1.max(batches / 16))?;
        self.sink.reset()?;
        let clock = Clock::new(self.core, kind);
        let counted = |counters: &Option<HardwareCounters>| counters.as_ref()?.read().ok();
        let (before, begin) = (counted(&self.counters), clock.now_ns());
        let sent = send(ring, batches.max(1))?;
        let (after, end) = (counted(&self.counters), clock.now_ns());
        let packets = sent.trains * attempt.bursts() * u64::from(settings.packets);
        let arrived = self.sink.totals()?;
        let trains = if mode == Mode::Uso { sent.trains } else { 0 };
        let copied = sent.copied;
        let both = before.zip(after);
        Ok(Run {
            mode,
            attempt,
            round,
            trains: sent.trains,
            packets,
            cpu_ns: end - begin,
            crossings: sent.crossings,
            instructions: both.map(|(from, to)| to.instructions - from.instructions),
            misses: both.map(|(from, to)| to.misses - from.misses),
            void: what_is! {
                arrived.packets != packets
                    => "{packets} packets were sent, {} arrived", arrived.packets;
                arrived.trains != trains
                    => "{} trains arrived whole, in mode {}", arrived.trains, mode.name();
                copied > 0 => "the kernel copied {copied} trains";
            },
        })
    }
}

/// What a turn costs the processor: the sender, the softirq thread, and the ring's own.
struct Clock {
    sender: SenderClock,
    threads: Vec<u32>,
}

impl Clock {
    fn new(core: usize, kind: RingKind) -> Self {
        let threads = match kind {
            RingKind::Polled(_) => threads_named("iou-sqp-"),
            _ => Vec::new(),
        };
        Self {
            sender: SenderClock::bound_to(core),
            threads,
        }
    }

    fn now_ns(&self) -> u64 {
        self.sender.softirq_ns() + thread_cpu_ns() + cpu_ns_of_all(&self.threads)
    }
}

/// What a record says.
#[must_use]
pub fn report(record: &TrainsRecord) -> Report {
    let settings = &record.settings;
    let mut report = Report::new("What may make a train cheaper");
    report.text(format!(
        "{} receivers, a socket each; trains of {} packets of {} bytes from registered memory, \
         {} in a crossing; each turn {} bursts, {} rounds, attempts in an order that is drawn",
        settings.receivers,
        settings.packets,
        settings.packet_bytes,
        BATCH,
        settings.trains,
        settings.rounds,
    ));
    for &mode in &settings.modes {
        report.add([attempts(record, mode)]);
    }
    let void = record
        .runs
        .iter()
        .filter(|run| !run.void.is_empty())
        .count();
    report.void_runs(void, record.runs.len());
    report.warn(record.runs.iter().flat_map(|run| {
        let name = format!(
            "{} {}, round {}",
            run.mode.name(),
            run.attempt,
            run.round + 1
        );
        let why = run.void.iter().map(move |why| format!("{name}: {why}"));
        why.take(1)
    }));
    report
}

/// Of a turn, what a burst cost.
type Cost = fn(&Run) -> Option<f64>;

impl Run {
    fn bursts(&self) -> u64 {
        self.trains * self.attempt.bursts()
    }

    fn ns(&self) -> Option<f64> {
        Some(ratio(self.cpu_ns, self.bursts().max(1)))
    }

    fn instructions(&self) -> Option<f64> {
        Some(ratio(self.instructions?, self.bursts().max(1)))
    }

    fn misses(&self) -> Option<f64> {
        Some(ratio(self.misses?, self.bursts().max(1)))
    }
}

fn attempts(record: &TrainsRecord, mode: Mode) -> Table {
    let all = record.settings.attempts();
    let has_counters = record.runs.iter().any(|run| run.instructions.is_some());
    let costs = |attempt: Attempt, cost: Cost| -> Vec<f64> {
        valid(record, mode, attempt).filter_map(cost).collect()
    };
    let mut table = table! {
        format!("A burst of one receiver, {}: in the order of what it costs", mode.name()),
        for attempt in by_cost(record, mode, &all),
        let parts = parts(record, mode, attempt, Run::ns),
        let part = Summary::of(&parts);
        Column::key("attempt") => attempt.name(),
        Column::ns("CPU a burst", 0).with_range().less() => Cell::or_void(costs(attempt, Run::ns)),
        Column::count("of the server's way", 3) => part.as_ref().map(|part| part.median),
        Column::text("it lies in") => part.as_ref().map(|part| {
            format!("{:.3} to {:.3}", part.interval.0, part.interval.1)
        }),
        Column::count("instructions", 0).less() => costs(attempt, Run::instructions),
        Column::count("misses", 1).less() => costs(attempt, Run::misses),
        Column::count("crossings", 4) => costs(attempt, |run| {
            Some(ratio(run.crossings, run.bursts().max(1)))
        }),
        Column::text("verdict") => verdict(attempt, part.as_ref());
        notes (attempt.beside() != Attempt::Base).then(|| {
            format!("compared with: {}", attempt.beside())
        })
    };
    table.note(
        "Parts are medians of turns over the server's way in the same round, and the interval that \
         the true median lies in. A thread that polls is charged with what it does.",
    );
    if !has_counters {
        table.note("This machine shows no counters of instructions and misses (perf_event_open).");
    }
    table.prefixed(mode.name())
}

fn valid(record: &TrainsRecord, mode: Mode, attempt: Attempt) -> impl Iterator<Item = &Run> {
    let is_it = move |run: &&Run| run.mode == mode && run.attempt == attempt && run.void.is_empty();
    record.runs.iter().filter(is_it)
}

/// Each turn over what it is compared with, of the same round.
fn parts(record: &TrainsRecord, mode: Mode, attempt: Attempt, cost: Cost) -> Vec<f64> {
    let beside = attempt.beside();
    let parts = valid(record, mode, attempt).filter_map(|run| {
        let mut others = valid(record, mode, beside);
        let other = others.find(|other| other.round == run.round)?;
        Some(cost(run)? / cost(other)?)
    });
    parts.collect()
}

fn by_cost(record: &TrainsRecord, mode: Mode, all: &[Attempt]) -> Vec<Attempt> {
    let cost = |attempt: Attempt| {
        let costs: Vec<_> = valid(record, mode, attempt).filter_map(Run::ns).collect();
        Summary::of(&costs).map_or(f64::MAX, |summary| summary.median)
    };
    let mut all: Vec<_> = all
        .iter()
        .map(|&attempt| (cost(attempt), attempt))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, attempt)| attempt).collect()
}

fn verdict(attempt: Attempt, part: Option<&Summary>) -> &'static str {
    let Some(part) = part else {
        return "no turn counts";
    };
    match part.interval {
        _ if attempt == Attempt::Base => "",
        _ if part.samples < ROUNDS_JUDGED_MIN => "too few rounds",
        (_, high) if high <= GAIN_PART => "gains",
        (low, _) if low >= 1.0 / GAIN_PART => "loses",
        (low, high) if low >= GAIN_PART && high <= 1.0 / GAIN_PART => "makes no difference",
        _ => "not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(attempt: Attempt, round: u32, cpu_ns: u64) -> Run {
        Run {
            mode: Mode::Uso,
            attempt,
            round,
            trains: 1000 / attempt.bursts(),
            packets: 8000,
            cpu_ns,
            crossings: 4,
            instructions: None,
            misses: None,
            void: Vec::new(),
        }
    }

    fn record(attempts: &[(Attempt, u64)]) -> TrainsRecord {
        let settings = Settings {
            attempts: attempts.iter().map(|(attempt, _)| *attempt).collect(),
            modes: vec![Mode::Uso],
            ..Settings::default()
        };
        let mut record = Record::new(NAME, Environment::here("1", "c"), settings);
        for round in 0..9 {
            // What drifts hits all of a round alike.
            let drift = 100 + u64::from(round) * 10;
            let of = attempts
                .iter()
                .map(|&(attempt, cost)| run(attempt, round, cost * drift));
            record.runs.extend(of);
        }
        record
    }

    fn told(record: &TrainsRecord) -> Vec<Vec<String>> {
        let table = attempts(record, Mode::Uso);
        let rows = table.rows.iter();
        let rows = rows.map(|row| {
            let cells = table.cells(row);
            cells.map(|(column, cell)| column.tell(cell)).collect()
        });
        rows.collect()
    }

    #[test]
    fn attempts_are_judged_within_each_round() {
        let record = record(&[
            (Attempt::Base, 10_000),
            (Attempt::InOrder, 8000),
            (Attempt::Copied, 30_000),
            (Attempt::Untold, 10_100),
            (Attempt::Joined, 6000),
        ]);
        let told = told(&record);
        let of = |name: &str| {
            let row = told.iter().find(|row| row[0] == name).unwrap();
            (row[2].clone(), row.last().unwrap().clone())
        };
        let as_told = |part: &str, verdict: &str| (part.to_owned(), verdict.to_owned());
        assert_eq!(of("in the order of sockets"), as_told("0.800", "gains"));
        assert_eq!(of("copied, one answer"), as_told("3.000", "loses"));
        assert_eq!(
            of("no report of copies"),
            as_told("1.010", "makes no difference")
        );
        // Half as many trains carry the same bursts.
        assert_eq!(of("two bursts as one train"), as_told("0.600", "gains"));
        assert_eq!(told[0][0], "two bursts as one train");
        assert!(report(&record).passed());
    }

    #[test]
    fn what_is_void_or_alone_says_nothing() {
        let mut record = record(&[(Attempt::Base, 10_000), (Attempt::Prefetched, 9000)]);
        // What it is compared with was never measured here.
        let row = told(&record)
            .into_iter()
            .find(|row| row[0].ends_with("ahead"))
            .unwrap();
        assert_eq!(row.last().unwrap(), "no turn counts");
        for run in &mut record.runs {
            run.void.push("lost".to_owned());
        }
        let has_figures = |row: &Vec<String>| row[1].contains(|c: char| c.is_ascii_digit());
        assert!(!told(&record).iter().any(has_figures));
        let wanted = record.settings.attempts();
        assert_eq!(
            wanted,
            [Attempt::Base, Attempt::WideRecords, Attempt::Prefetched]
        );
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        Settings::default().check().unwrap();
        Settings::quick().check().unwrap();
        type Change = fn(&mut Settings);
        let bad: [Change; 7] = [
            |s| s.receivers = 0,
            |s| s.receivers = RECEIVERS_MAX + 1,
            |s| s.packets = 1,
            |s| s.packets = 25,
            |s| s.packet_bytes = 1473,
            |s| s.trains = 1023,
            |s| s.modes.clear(),
        ];
        for (number, change) in bad.into_iter().enumerate() {
            let mut settings = Settings::default();
            change(&mut settings);
            assert!(settings.check().is_err(), "change {number}");
        }
    }
}
