//! One run: a source feeds the relay while the sink counts, and everything that counts up is read
//! before and after.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onrush_group::Way;
use onrush_server::channels::members::Origin;
use onrush_server::channels::{Channel, ChannelsConfig, SourceConfig, THREAD_NAME};
use onrush_server::relay::{Relay, RelayConfig};
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_testkit::sink::{Sink, SinkError};
use onrush_testkit::testbed::{
    Options, RCV_DEVICE, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed, TestbedError,
};
use onrush_wire::rtp::{HEADER_BYTES, Header, PAYLOAD_TYPE_MP2T, ticks};

use super::record::{Case, Run, Settings};
use crate::counters::{Counted, Counting};
use crate::error::ExperimentError;
use crate::histogram::Histogram;
use crate::machine::{Awake, core_times, cpu_ns_of_all, threads_named};
use crate::setup::system;

/// Of the kernel's threads that take in what arrives at the relay's device.
const NAPI_NAME: &str = "napi/v0";

/// Seven transport packets.
const PAYLOAD_BYTES: usize = 7 * 188;
const INPUT_PORT: u16 = 5004;
/// The port of the first receiver; the others follow.
const PORT_FIRST: u16 = 10_000;
/// The sink looks at the RTP header of every so many socket buffers of a receiver.
const LOOK_EVERY: u16 = 7;

/// Case `number` of the settings, with the relay on processor `core`.
pub(super) fn run(
    settings: &Settings,
    number: usize,
    repeat: u32,
    core: usize,
    awake: Option<&Awake>,
) -> Result<Run, ExperimentError> {
    let case = &settings.cases[number];
    let testbed = Testbed::new(Options {
        mode: settings.mode,
        ..Options::default()
    })?;
    let last = u32::from(PORT_FIRST) + case.receivers - 1;
    let last = u16::try_from(last).expect("checked against RECEIVERS_MAX");
    let sink = Sink::attach_by_clock(&testbed.rcv, RCV_DEVICE, PORT_FIRST..=last, LOOK_EVERY)?;
    let taking_in = take_in_on(&testbed, core)?;
    gather_arrivals(&testbed, case)?;
    let relay = testbed.snd.run(|| start(case, core))?;
    let channel = &relay.channels()[0];
    let receivers: Vec<_> = (PORT_FIRST..=last)
        .map(|port| SocketAddr::from((RCV_IPV4, port)))
        .collect();
    channel
        .replace(Origin::Api, &receivers)
        .map_err(|error| ExperimentError::Settings(error.to_string()))?;
    let gap_ns = PAYLOAD_BYTES as u64 * 8 * 1_000_000_000 / settings.rate_bps;
    let warm_up_packets = settings.warm_up_ns / gap_ns;
    let packets = warm_up_packets + settings.measured_ns / gap_ns;
    wait_until(|| channel.stats().members == receivers.len());
    let source = source(&testbed)?;
    let guest = guest(&testbed)?;
    let is_over = AtomicBool::new(false);
    let (before, after) = thread::scope(|scope| {
        let source = scope.spawn(|| feed(&source, packets, gap_ns));
        let changes = scope.spawn(|| change(channel, &guest, case.changes_per_s, &is_over));
        thread::sleep(Duration::from_nanos(settings.warm_up_ns));
        let counting = counting(settings, taking_in);
        let before = Snapshot::take(&sink, core, awake, &counting);
        let sent = source.join().expect("the source does not panic");
        let after = Snapshot::take(&sink, core, awake, &counting);
        is_over.store(true, Ordering::Relaxed);
        changes.join().expect("joining does not panic")?;
        sent.map_err(system("send as the source"))?;
        Ok::<_, ExperimentError>((before?, after?))
    })?;
    let all = packets * u64::from(case.receivers);
    wait_until(|| sink.totals().is_ok_and(|totals| totals.packets >= all));
    // What the last trains were late by counts too.
    let lateness = Histogram::from(&sink.lateness()?).since(&before.lateness);
    relay_is_done(channel, packets);
    let stats = channel.stats();
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
        counted: Counted::between(before.counted, after.counted),
        core_busy_ns: (after.at_ns - before.at_ns).saturating_sub(after.idle_ns - before.idle_ns),
        measured_packets: after.packets - before.packets,
        lateness,
        ..Run::of(&stats)
    })
}

/// Somebody who comes and goes, at a port that the sink does not count; nobody reads what it gets.
fn guest(testbed: &Testbed) -> Result<UdpSocket, ExperimentError> {
    let guest = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0)));
    Ok(guest.map_err(system("open a receiver's socket"))?)
}

/// Counts what the relay's thread does from now on, and those of the kernel that take in, if that
/// is asked for.
fn counting(settings: &Settings, taking_in: Vec<u32>) -> Counting {
    let relaying = threads_named(THREAD_NAME).into_iter();
    let threads: Vec<_> = relaying.chain(taking_in).collect();
    Counting::of_threads(settings.counters, &threads)
}

/// A socket on the far side that sends to the relay.
fn source(testbed: &Testbed) -> Result<UdpSocket, ExperimentError> {
    let source = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0)));
    let source = source.map_err(system("open the source's socket"))?;
    source
        .connect((SND_IPV4, INPUT_PORT))
        .map_err(system("address the source's socket"))?;
    Ok(source)
}

/// A relay in the calling thread's namespace.
fn start(case: &Case, core: usize) -> Result<Relay, ExperimentError> {
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
        described: None,
    };
    Ok(Relay::start(RelayConfig {
        channels: ChannelsConfig {
            sources: vec![source],
            delay: Duration::from_nanos(case.delay_ns),
            core: Some(core),
            way: way.map_err(ExperimentError::Settings)?,
            in_kernel,
            ..ChannelsConfig::default()
        },
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

/// Has a guest join and leave by turns, so many times a second, until it is over.
fn change(
    channel: &Channel,
    guest: &UdpSocket,
    changes_per_s: u32,
    is_over: &AtomicBool,
) -> Result<(), ExperimentError> {
    let guest = guest.local_addr().map_err(system("ask for an address"))?;
    let Some(gap_ns) = 1_000_000_000_u64.checked_div(changes_per_s.into()) else {
        return Ok(());
    };
    let begin_ns = monotonic_ns();
    for number in 0_u64.. {
        sleep_until_ns(begin_ns + number * gap_ns);
        if is_over.load(Ordering::Relaxed) && number.is_multiple_of(2) {
            break;
        }
        let changed = match number % 2 {
            0 => channel.add(&[guest]),
            _ => channel.remove(&[guest]),
        };
        changed.map_err(|error| ExperimentError::Settings(error.to_string()))?;
    }
    Ok(())
}

/// Everything that counts up, at one moment.
struct Snapshot {
    at_ns: u64,
    cpu_ns: u64,
    idle_ns: u64,
    packets: u64,
    counted: Option<Counted>,
    lateness: Histogram,
}

impl Snapshot {
    fn take(
        sink: &Sink,
        core: usize,
        awake: Option<&Awake>,
        counting: &Counting,
    ) -> Result<Self, SinkError> {
        let idle_ns = core_times().get(core).map_or(0, |times| times.idle_ns);
        Ok(Self {
            at_ns: monotonic_ns(),
            cpu_ns: cpu_ns_of_all(&threads_named(THREAD_NAME)),
            // What keeps a processor awake is rest all the same.
            idle_ns: idle_ns + awake.map_or(0, Awake::cpu_ns),
            packets: sink.totals()?.packets,
            counted: counting.now(),
            lateness: Histogram::from(&sink.lateness()?),
        })
    }
}

/// Has packets arrive on this processor, as from a network card whose interrupts go there: a veth
/// pair delivers them on the sender's. The thread of the kernel that does so joins packets to
/// trains where it has fallen behind (GRO); which is told.
fn take_in_on(testbed: &Testbed, core: usize) -> Result<Vec<u32>, ExperimentError> {
    let tool = |program, arguments: &[&str]| {
        let done = testbed.snd.tool(program, arguments);
        done.map_err(TestbedError::from)
    };
    let before = kernel_threads(NAPI_NAME);
    testbed.switch(&["rx-gro", "rx-udp-gro-forwarding"], true)?;
    let command =
        format!("mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/{SND_DEVICE}/threaded");
    tool("unshare", &["--mount", "sh", "-c", &command])?;
    let now = kernel_threads(NAPI_NAME).into_iter();
    let started: Vec<_> = now.filter(|thread| !before.contains(thread)).collect();
    for thread in &started {
        tool("taskset", &["-pc", &core.to_string(), thread])?;
    }
    Ok(started
        .iter()
        .filter_map(|thread| thread.parse().ok())
        .collect())
}

/// Has the device keep what arrives for half of the delay at a time, where the kernel relays: what
/// came meanwhile is joined to a train (GRO) once it has been kept twice.
fn gather_arrivals(testbed: &Testbed, case: &Case) -> Result<(), ExperimentError> {
    if !case.is_in_kernel() || case.delay_ns == 0 {
        return Ok(());
    }
    let device = format!("/sys/class/net/{SND_DEVICE}");
    let command = format!(
        "mount -t sysfs sysfs /sys && echo {} > {device}/gro_flush_timeout && echo 1 > \
         {device}/napi_defer_hard_irqs",
        case.delay_ns / 2
    );
    let done = testbed
        .snd
        .tool("unshare", ["--mount", "sh", "-c", &command]);
    done.map(drop)
        .map_err(|error| TestbedError::from(error).into())
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
    wait_until(|| channel.stats().heard.datagrams >= packets);
    // It tells after each round, and once it rests.
    wait_until(|| {
        let stats = channel.stats();
        stats.packets + stats.refused >= packets * stats.members as u64
    });
}

/// Waits a few seconds for something that should have been; what is missing then is told by the
/// counts.
fn wait_until(is_so: impl Fn() -> bool) {
    let give_up_ns = monotonic_ns() + 3_000_000_000;
    while !is_so() && monotonic_ns() < give_up_ns {
        thread::sleep(Duration::from_millis(5));
    }
}
