//! `onrush bench relay`: how many receivers of one live stream a processor holds on time.
//!
//! A source on another processor sends one stream, evenly paced, into a [testbed](onrush_testkit::testbed); the relay
//! of the server, on whose processor packets arrive too, gives it to so many receivers across the veth pair, where the
//! sink counts and drops. The source's timestamps are the clock, so what the sink sees as lateness is the whole way from the source's
//! send to the receiver, and no packet's own is left out. Receivers are held on time if every packet arrived once and
//! 99.9 % of them within the delay that was allowed and [`BUDGET_NS`] more. A run that is not held is no failure; it
//! says where the end is.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use onrush_server::relay::members::Origin;
use onrush_server::relay::{
    Channel, Relay, RelayConfig, RelayError, SourceConfig, THREAD_NAME, Told,
};
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_sys::group::Way;
use onrush_testkit::sink::{Sink, SinkError};
use onrush_testkit::testbed::{
    Mode, Options, RCV_DEVICE, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed, TestbedError,
};
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T, ticks};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experiment::{Environment, Record};
use crate::histogram::Histogram;
use crate::machine::{Awake, core_times, cpu_ns_of_all, threads_named};
use crate::setup::{CoresError, SystemError, on_core, system, two_cores};
use crate::stats::ratio;

/// Its name on the command line and in files.
pub const NAME: &str = "relay";

/// How late a packet may be, beyond the delay that the relay was allowed, and still be on time.
pub const BUDGET_NS: u64 = 20_000_000;

/// The way of a case that is replicated at tc ingress.
pub const IN_KERNEL: &str = "in-kernel";

/// Receivers at the most: as many ports as the sink counts.
pub const RECEIVERS_MAX: u32 = 50_000;

/// What is measured.
pub type RelayRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// The stream's rate, without headers, in bit/s.
    pub rate_bps: u64,
    /// How long a run sends before it is measured.
    pub warm_up_ns: u64,
    /// How long it is measured.
    pub measured_ns: u64,
    /// How often each case is run, turn about.
    pub repeats: u32,
    /// Who cuts trains.
    pub mode: Mode,
    /// What is tried.
    pub cases: Vec<Case>,
    /// Whether the relay's processor is kept from resting, but where the kernel relays; see [`Awake`].
    pub keep_awake: bool,
}

/// One way to relay to so many.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Case {
    /// How many get the stream.
    pub receivers: u32,
    /// How long packets may wait for each other.
    pub delay_ns: u64,
    /// How the group replicates; `None` for the best there is, [`IN_KERNEL`] where packets arrive.
    pub way: Option<String>,
    /// Whether it is to be held on time, or just tried.
    pub is_judged: bool,
}

/// What one case did, once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Which case, from 0.
    pub case: usize,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Packets that the source sent, from the first to the last.
    pub source_packets: u64,
    /// Packets that the relay took in.
    pub received_packets: u64,
    /// Packets that the relay gave to receivers, as it says.
    pub sent_packets: u64,
    /// Packets that it says were refused.
    pub refused_packets: u64,
    /// Sends to the whole group.
    pub trains: u64,
    /// Entries into the kernel to send.
    pub crossings: u64,
    /// Packets that arrived, as the sink counted.
    pub arrived_packets: u64,
    /// Socket buffers that they arrived in.
    pub arrived_skbs: u64,
    /// RTP sequence numbers that the sink missed.
    pub sequence_missing: u64,
    /// RTP packets that came to the sink again, or too late.
    pub sequence_repeated: u64,
    /// The measured time.
    pub wall_ns: u64,
    /// Processor time of the relay's thread in it.
    pub cpu_ns: u64,
    /// How long its processor was busy in it, for whomever.
    pub core_busy_ns: u64,
    /// Packets that arrived in it.
    pub measured_packets: u64,
    /// How late those arrived that were looked at, from the source's send on.
    pub lateness: Histogram,
}

/// Why the experiment could not be carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RelayBenchError {
    /// A setting is out of bounds.
    #[error("{0}")]
    Settings(String),
    /// There is nothing to leave the rest of the work to.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// No network to send on.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// No counters at its end.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The relay did not start.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Carries the experiment out. `progress` hears of the part that is done.
///
/// # Errors
///
/// If it could not be carried out; see [`RelayBenchError::needs_root`].
pub fn carry_out(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64) + Send,
) -> Result<RelayRecord, RelayBenchError> {
    settings.check()?;
    let (rest, core) = two_cores("the relay")?;
    let mut environment = Environment::here(version, command);
    environment.network = format!(
        "veth pair, arrivals by a thread of the kernel on the relay's processor, sink at tc ingress; {}",
        settings.mode.name()
    );
    on_core(rest, || {
        let mut record = Record::new(NAME, environment, settings.clone());
        let turns = settings.repeats as usize * settings.cases.len();
        for turn in 0..turns {
            progress(ratio(turn as u64, turns as u64));
            let case = turn % settings.cases.len();
            let repeat = u32::try_from(turn / settings.cases.len()).unwrap_or(u32::MAX);
            // The kernel's own threads are of no session, and would have to share the processor with whoever keeps
            // it awake (sched(7), autogroups), however low his priority.
            let is_kept = settings.keep_awake && !settings.cases[case].is_in_kernel();
            let awake = is_kept.then(|| Awake::keep(core)).transpose();
            let awake = awake.map_err(system("start a thread"))?;
            let run = run(settings, case, repeat, core, awake.as_ref())?;
            record.runs.push(run);
        }
        Ok(record)
    })
}

fn run(
    settings: &Settings,
    number: usize,
    repeat: u32,
    core: usize,
    awake: Option<&Awake>,
) -> Result<Run, RelayBenchError> {
    let case = &settings.cases[number];
    let testbed = Testbed::new(Options {
        mode: settings.mode,
        ..Options::default()
    })?;
    let last = u32::from(PORT_FIRST) + case.receivers - 1;
    let last = u16::try_from(last).expect("checked against RECEIVERS_MAX");
    let sink = Sink::attach_by_clock(&testbed.rcv, RCV_DEVICE, PORT_FIRST..=last, LOOK_EVERY)?;
    take_in_on(&testbed, core)?;
    let relay = testbed.snd.run(|| start(case, core))?;
    let channel = &relay.channels()[0];
    let receivers: Vec<_> = (PORT_FIRST..=last)
        .map(|port| SocketAddr::from((RCV_IPV4, port)))
        .collect();
    channel
        .replace(Origin::Api, &receivers)
        .map_err(|error| RelayBenchError::Settings(error.to_string()))?;
    let gap_ns = PAYLOAD_BYTES as u64 * 8 * 1_000_000_000 / settings.rate_bps;
    let warm_up_packets = settings.warm_up_ns / gap_ns;
    let packets = warm_up_packets + settings.measured_ns / gap_ns;
    wait_until(|| channel.told().members == receivers.len());
    let source = source(&testbed)?;
    let (before, after) = thread::scope(|scope| {
        let source = scope.spawn(|| feed(&source, packets, gap_ns));
        thread::sleep(Duration::from_nanos(settings.warm_up_ns));
        let before = Snapshot::take(&sink, core, awake);
        let sent = source.join().expect("the source does not panic");
        let after = Snapshot::take(&sink, core, awake);
        sent.map_err(system("send as the source"))?;
        Ok::<_, RelayBenchError>((before?, after?))
    })?;
    let all = packets * u64::from(case.receivers);
    wait_until(|| sink.totals().is_ok_and(|totals| totals.packets >= all));
    // What the last trains were late by counts too.
    let lateness = Histogram::from(&sink.lateness()?).since(&before.lateness);
    relay_is_done(channel, packets);
    let told = channel.told();
    drop(relay);
    let totals = sink.totals()?;
    Ok(Run {
        case: number,
        repeat,
        source_packets: packets,
        arrived_packets: totals.packets,
        arrived_skbs: totals.skbs,
        sequence_missing: totals.sequence_missing,
        sequence_repeated: totals.sequence_repeated,
        wall_ns: after.at_ns - before.at_ns,
        cpu_ns: after.cpu_ns - before.cpu_ns,
        core_busy_ns: (after.at_ns - before.at_ns).saturating_sub(after.idle_ns - before.idle_ns),
        measured_packets: after.packets - before.packets,
        lateness,
        ..Run::of(&told)
    })
}

/// A socket on the far side that sends to the relay.
fn source(testbed: &Testbed) -> Result<UdpSocket, RelayBenchError> {
    let source = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0)));
    let source = source.map_err(system("open the source's socket"))?;
    source
        .connect((SND_IPV4, INPUT_PORT))
        .map_err(system("address the source's socket"))?;
    Ok(source)
}

/// A relay in the calling thread's namespace.
fn start(case: &Case, core: usize) -> Result<Relay, RelayBenchError> {
    let in_kernel = case.is_in_kernel();
    let way = case.way.as_deref().filter(|_| !in_kernel);
    let way = way.map(str::parse::<Way>).transpose();
    let source = SourceConfig {
        name: "bench".to_owned(),
        input: format!("{SND_IPV4}:{INPUT_PORT}")
            .parse()
            .expect("an address"),
        members: Vec::new(),
        members_file: None,
    };
    Ok(Relay::start(RelayConfig {
        sources: vec![source],
        delay: Duration::from_nanos(case.delay_ns),
        core: Some(core),
        way: way.map_err(RelayBenchError::Settings)?,
        in_kernel,
        ..RelayConfig::default()
    })?)
}

/// Sends so many packets, each when it is due and with that time in it.
fn feed(socket: &UdpSocket, packets: u64, gap_ns: u64) -> io::Result<()> {
    let mut packet = vec![0x47; HEADER_BYTES + PAYLOAD_BYTES];
    let begin_ns = monotonic_ns() + 10_000_000;
    for number in 0..packets {
        let due_ns = begin_ns + number * gap_ns;
        sleep_until_ns(due_ns);
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: u16::try_from(number % 65_536).unwrap_or(0),
            // Not when it leaves: a source that is held up by what it sets off would not be late.
            timestamp: ticks(due_ns),
            ssrc: 1,
        };
        packet[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        socket.send(&packet)?;
    }
    Ok(())
}

/// Everything that counts up, at one moment.
struct Snapshot {
    at_ns: u64,
    cpu_ns: u64,
    idle_ns: u64,
    packets: u64,
    lateness: Histogram,
}

impl Snapshot {
    fn take(sink: &Sink, core: usize, awake: Option<&Awake>) -> Result<Self, SinkError> {
        let idle_ns = core_times().get(core).map_or(0, |times| times.idle_ns);
        Ok(Self {
            at_ns: monotonic_ns(),
            cpu_ns: cpu_ns_of_all(&threads_named(THREAD_NAME)),
            // What keeps a processor awake is rest all the same.
            idle_ns: idle_ns + awake.map_or(0, Awake::cpu_ns),
            packets: sink.totals()?.packets,
            lateness: Histogram::from(&sink.lateness()?),
        })
    }
}

/// Has packets arrive on this processor, as from a network card whose interrupts go there: a veth pair delivers them on
/// the sender's. The thread of the kernel that does so joins packets to trains where it has fallen behind (GRO).
fn take_in_on(testbed: &Testbed, core: usize) -> Result<(), RelayBenchError> {
    let tool = |program, arguments: &[&str]| {
        let done = testbed.snd.tool(program, arguments);
        done.map_err(TestbedError::from)
    };
    let before = kernel_threads(NAPI_NAME);
    let join = ["gro", "on", "rx-udp-gro-forwarding", "on"];
    tool("ethtool", &[&["-K", SND_DEVICE], &join[..]].concat())?;
    let command =
        format!("mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/{SND_DEVICE}/threaded");
    tool("unshare", &["--mount", "sh", "-c", &command])?;
    for thread in kernel_threads(NAPI_NAME) {
        if !before.contains(&thread) {
            tool("taskset", &["-pc", &core.to_string(), &thread])?;
        }
    }
    Ok(())
}

/// Threads of that name, the kernel's among them.
fn kernel_threads(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = entries.filter(|entry| {
        let comm = fs::read_to_string(entry.path().join("comm"));
        comm.is_ok_and(|comm| comm.starts_with(prefix))
    });
    threads
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn relay_is_done(channel: &Channel, packets: u64) {
    wait_until(|| channel.told().heard.datagrams >= packets);
    // It tells after each round, and once it rests.
    wait_until(|| {
        let told = channel.told();
        told.packets + told.refused >= packets * told.members as u64
    });
}

/// Waits a few seconds for something that should have been; what is missing then is told by the counts.
fn wait_until(is_so: impl Fn() -> bool) {
    let give_up_ns = monotonic_ns() + 3_000_000_000;
    while !is_so() && monotonic_ns() < give_up_ns {
        thread::sleep(Duration::from_millis(5));
    }
}

impl Run {
    fn of(told: &Told) -> Self {
        Self {
            case: 0,
            repeat: 0,
            source_packets: 0,
            received_packets: told.heard.datagrams,
            sent_packets: told.packets,
            refused_packets: told.refused,
            trains: told.trains,
            crossings: told.crossings,
            arrived_packets: 0,
            arrived_skbs: 0,
            sequence_missing: 0,
            sequence_repeated: 0,
            wall_ns: 0,
            cpu_ns: 0,
            core_busy_ns: 0,
            measured_packets: 0,
            lateness: Histogram::default(),
        }
    }

    /// Why its receivers were not held on time; empty if they were.
    #[must_use]
    pub fn faults(&self, case: &Case) -> Vec<String> {
        let all = self.source_packets * u64::from(case.receivers);
        let mut faults = Vec::new();
        if self.arrived_packets != all || self.sent_packets != all {
            faults.push(format!(
                "{all} packets were due, {} were sent, {} arrived",
                self.sent_packets, self.arrived_packets
            ));
        }
        if self.sequence_missing + self.sequence_repeated > 0 {
            faults.push(format!(
                "{} sequence numbers were missing, {} came again",
                self.sequence_missing, self.sequence_repeated
            ));
        }
        let late_ns = self.lateness.quantile_ns(0.999).unwrap_or(i64::MAX);
        let allowed_ns = i64::try_from(case.delay_ns + BUDGET_NS).unwrap_or(i64::MAX);
        if late_ns > allowed_ns {
            faults.push(format!(
                "99.9 % arrived within {} ms only",
                late_ns / 1_000_000
            ));
        }
        faults
    }

    /// Processor time for each packet and receiver: of the processor, softirqs and all, in ns.
    #[must_use]
    pub fn busy_ns_a_packet(&self) -> f64 {
        ratio(self.core_busy_ns, self.measured_packets.max(1))
    }
}

impl Settings {
    /// The judged cases and the steps around them.
    #[must_use]
    pub fn full() -> Self {
        let steps = |way: Option<&str>, delay_ns, judged: u32, all: &[u32]| -> Vec<Case> {
            let case = |&receivers: &u32| Case {
                receivers,
                delay_ns,
                way: way.map(str::to_owned),
                is_judged: receivers == judged,
            };
            all.iter().map(case).collect()
        };
        let mut cases = steps(None, 0, 3000, &[100, 3000, 9000, 24_000]);
        let in_kernel = steps(Some(IN_KERNEL), 0, 3000, &[100, 3000, 9000, 12_000]);
        cases.extend(in_kernel);
        let delayed = steps(None, 20_000_000, 10_000, &[10_000, 15_000, 30_000]);
        cases.extend(delayed);
        Self {
            rate_bps: 4_000_000,
            warm_up_ns: 1_000_000_000,
            measured_ns: 4_000_000_000,
            repeats: 3,
            mode: Mode::Uso,
            cases,
            keep_awake: true,
        }
    }

    /// The judged cases alone, once, shorter.
    #[must_use]
    pub fn quick() -> Self {
        let mut settings = Self::full();
        settings.cases.retain(|case| case.is_judged);
        settings.measured_ns = 3_000_000_000;
        settings.repeats = 1;
        settings
    }

    /// Refuses what can not be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`RelayBenchError::Settings`].
    pub fn check(&self) -> Result<(), RelayBenchError> {
        let wrong = |text: String| Err(RelayBenchError::Settings(text));
        if self.cases.is_empty() || self.repeats == 0 {
            return wrong("nothing to do: ask for a case and a repeat".to_owned());
        }
        for case in &self.cases {
            if !(1..=RECEIVERS_MAX).contains(&case.receivers) {
                let receivers = case.receivers;
                return wrong(format!(
                    "{receivers} receivers: ask for 1 to {RECEIVERS_MAX}"
                ));
            }
        }
        if !(100_000..=100_000_000).contains(&self.rate_bps) {
            return wrong(format!(
                "{} bit/s: ask for 100 kbit/s to 100 Mbit/s",
                self.rate_bps
            ));
        }
        if !(100_000_000..=60_000_000_000).contains(&self.measured_ns) {
            return wrong(format!(
                "runs of {} ns: ask for 100 ms to 60 s",
                self.measured_ns
            ));
        }
        Ok(())
    }
}

impl RelayBenchError {
    /// Whether root is what is missing.
    #[must_use]
    pub fn needs_root(&self) -> bool {
        matches!(self, Self::Testbed(error) if error.is_not_permitted())
    }
}

impl Case {
    fn is_in_kernel(&self) -> bool {
        self.way.as_deref() == Some(IN_KERNEL)
    }
}

impl Case {
    /// What it is, in words: the same in every record.
    #[must_use]
    pub fn told(&self) -> String {
        let way = self.way.as_deref().unwrap_or("best");
        let delay_ms = self.delay_ns / 1_000_000;
        format!("{way} to {}, {delay_ms} ms", self.receivers)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = self.way.as_deref().unwrap_or("best");
        let delay_ms = self.delay_ns / 1_000_000;
        write!(f, "{:>6} {way:>9} {delay_ms:>3} ms", self.receivers)
    }
}

/// Of the kernel's threads that take in what arrives at the relay's device.
const NAPI_NAME: &str = "napi/v0";

/// Seven transport packets.
const PAYLOAD_BYTES: usize = 7 * 188;
const INPUT_PORT: u16 = 5004;
/// The port of the first receiver; the others follow.
const PORT_FIRST: u16 = 10_000;
/// The sink looks at the RTP header of every so many socket buffers of a receiver.
const LOOK_EVERY: u16 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> (Run, Case) {
        let case = Case {
            receivers: 10,
            delay_ns: 5_000_000,
            way: None,
            is_judged: true,
        };
        let mut run = Run::of(&Told::default());
        run.source_packets = 100;
        (run.sent_packets, run.arrived_packets) = (1000, 1000);
        run.lateness.count(24_900_000, 1000);
        (run, case)
    }

    #[test]
    fn receivers_are_held_up_to_the_budget_and_no_further() {
        let (run, case) = held();
        assert_eq!(run.faults(&case), [""; 0]);
        type Change = fn(&mut Run);
        let changes: [(&str, Change); 6] = [
            ("1000 packets were due", |run| run.arrived_packets -= 1),
            ("1000 packets were due", |run| run.arrived_packets += 1),
            ("1000 packets were due", |run| run.sent_packets -= 1),
            ("1 sequence numbers", |run| run.sequence_missing = 1),
            ("1 came again", |run| run.sequence_repeated = 1),
            ("within 25 ms only", |run| run.lateness.count(25_000_000, 3)),
        ];
        for (said, change) in changes {
            let (mut run, case) = held();
            change(&mut run);
            let faults = run.faults(&case).join("; ");
            assert!(faults.contains(said), "{said}: {faults}");
        }
        // One in a thousand may be later.
        let (mut run, case) = held();
        run.lateness.count(99_000_000, 1);
        assert_eq!(run.faults(&case), [""; 0]);
    }

    #[test]
    fn settings_are_bounded() {
        Settings::full().check().unwrap();
        Settings::quick().check().unwrap();
        let mut settings = Settings::quick();
        settings.cases[0].receivers = RECEIVERS_MAX;
        settings.check().unwrap();
        settings.cases[0].receivers += 1;
        assert!(settings.check().is_err());
        settings.cases.clear();
        assert!(settings.check().is_err());
    }
}
