//! Once through: the simulation, and then what it said with real nodes.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onrush_server::admin::status::Status;
use onrush_simulate::{Arrival, run_with_arrivals};
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{Options, RCV_DEVICE, Testbed};

use super::nodes::Nodes;
use super::record::{ClusterRecord, NAME, Run, Second, Settings, VIEWERS_MAX};
use super::viewers::{Audience, Outcome, PORT_FIRST};
use crate::error::{ExperimentError, bounds};
use crate::experiment::{Environment, Record};
use crate::setup::network;
use crate::stats::ratio;

/// The sink looks at the RTP header of every so many socket buffers of a viewer.
const LOOK_EVERY: u16 = 7;
const SECOND_NS: u64 = 1_000_000_000;

/// Carries the experiment out with the program `onrush`; `progress` hears of the part that is done.
///
/// # Errors
///
/// If it could not be carried out; see [`ExperimentError::needs_root`].
pub fn run(
    settings: &Settings,
    onrush: &Path,
    version: &str,
    command: &str,
    progress: impl Fn(f64),
) -> Result<ClusterRecord, ExperimentError> {
    settings.check()?;
    let mut record = Record::new(NAME, Environment::here(version, command), settings.clone());
    for repeat in 0..settings.repeats {
        let mut settings = settings.clone();
        settings.simulated.seed += u64::from(repeat);
        let part = |part| progress((ratio(repeat.into(), 1) + part) / f64::from(settings.repeats));
        let testbed = Testbed::new(Options::default())?;
        record.environment.network = network(&testbed, &["tx-udp"])?;
        record.runs.push(once(&settings, onrush, &testbed, &part)?);
    }
    Ok(record)
}

fn once(
    settings: &Settings,
    onrush: &Path,
    testbed: &Testbed,
    progress: &dyn Fn(f64),
) -> Result<Run, ExperimentError> {
    let simulated = run_with_arrivals(&settings.simulated);
    let (simulated, arrivals) =
        simulated.map_err(|error| ExperimentError::Settings(error.to_string()))?;
    bounds! { arrivals.len() as u64, 1..=VIEWERS_MAX as u64, Count, "viewers who come in all"; }
    let last = usize::from(PORT_FIRST) + arrivals.len() * 2 - 1;
    let last = u16::try_from(last).expect("checked against VIEWERS_MAX");
    let sink =
        Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, PORT_FIRST..=last, LOOK_EVERY)?;
    let nodes = Nodes::start(testbed, onrush, settings)?;
    let (outcome, seconds) = watch(settings, &arrivals, testbed, &nodes, progress)?;
    let statuses = settled(testbed, &nodes)?;
    let totals = sink.totals()?;
    let mut packets_sunk = 0;
    // RTCP, at the odd ports, is no stream.
    for port in (PORT_FIRST..=last).step_by(2) {
        packets_sunk += sink.port(port)?.counts.packets;
    }
    let sum = |of: fn(&Status) -> u64| statuses.iter().map(of).sum();
    let mut visits = outcome.visits;
    visits.sort_by_key(|&(place, _)| place);
    Ok(Run {
        simulated,
        visits: visits.into_iter().map(|(_, visit)| visit).collect(),
        seconds,
        sent_on: sum(|it| it.cluster.as_ref().map_or(0, |it| it.rtsp_sent_on)),
        sessions: sum(|it| it.sessions.total),
        refused: sum(|it| it.sessions.refused),
        packets_sent: sum(packets),
        packets_sunk,
        sequence_missing: totals.sequence_missing,
        read_bytes: sum(|it| it.cache.as_ref().map_or(0, |it| it.bytes_read)),
        failed: outcome.failed,
        failures: outcome.failures,
    })
}

/// Everybody comes, watches and leaves; what nodes played meanwhile.
fn watch(
    settings: &Settings,
    arrivals: &[Arrival],
    testbed: &Testbed,
    nodes: &Nodes,
    progress: &dyn Fn(f64),
) -> Result<(Outcome, Vec<Second>), ExperimentError> {
    let (is_over, warm) = (AtomicBool::new(false), Mutex::new(HashSet::new()));
    let audience = Audience {
        settings,
        arrivals,
        begin_ns: monotonic_ns() + SECOND_NS,
        is_over: &is_over,
        warm: &warm,
    };
    thread::scope(|scope| {
        let audience = &audience;
        let watch = |first| scope.spawn(move || testbed.rcv.run(|| audience.watch(first)));
        let askers: Vec<_> = (0..settings.askers as usize).map(watch).collect();
        let seconds = count(audience, testbed, nodes, progress);
        is_over.store(true, Ordering::Relaxed);
        let mut outcome = Outcome::default();
        for asker in askers {
            outcome.add(asker.join().expect("watching does not panic"));
        }
        Ok((outcome, seconds?))
    })
}

/// What nodes play at the end of each second that counts.
fn count(
    audience: &Audience<'_>,
    testbed: &Testbed,
    nodes: &Nodes,
    progress: &dyn Fn(f64),
) -> Result<Vec<Second>, ExperimentError> {
    let (settings, begin_ns) = (audience.settings, audience.begin_ns);
    let from_s = settings.counted_from_s();
    let lasts_s = from_s + settings.simulated.observe_s;
    let mut seconds = Vec::new();
    for at_s in 1..=lasts_s {
        sleep_until_ns(begin_ns + u64::from(at_s) * SECOND_NS);
        progress(f64::from(at_s) / f64::from(lasts_s));
        if at_s > from_s {
            let playing = |status: &Status| status.engines.iter().map(|it| it.playing).sum();
            let playing = nodes.statuses(testbed)?.iter().map(playing).collect();
            let is_there = |it: &&Arrival| it.at_s <= at_s && at_s < it.at_s + it.stay_s;
            let due = audience.arrivals.iter().filter(is_there).count() as u64;
            seconds.push(Second { at_s, due, playing });
        }
    }
    Ok(seconds)
}

/// What nodes counted in all, once they send no more.
fn settled(testbed: &Testbed, nodes: &Nodes) -> Result<Vec<Status>, ExperimentError> {
    let mut before = nodes.statuses(testbed)?;
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(200));
        let now = nodes.statuses(testbed)?;
        let is_same = now.iter().map(packets).eq(before.iter().map(packets));
        before = now;
        if is_same {
            break;
        }
    }
    Ok(before)
}

fn packets(status: &Status) -> u64 {
    status.engines.iter().map(|engine| engine.packets).sum()
}
