//! `onrush-lab bench relay`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use onrush_group::Way;
use onrush_measure::relay::{
    self, BUDGET_NS, Case, IN_KERNEL, RelayBenchError, RelayRecord, Run, Settings,
};
use onrush_measure::stats::Summary;

use crate::frame::{Samples, VERSION, bar_of_part, command, head, outcome, with_rights};
use onrush_cli::units::{Rate, Time};

/// How many receivers of a live stream one processor holds on time
///
/// A source sends one stream of 4 Mbit/s, a packet at a time; the relay gives it to more and more
/// receivers, without a delay and with one of 20ms, on a processor where it also arrives. A sink
/// counts what arrives, and how late: from the source's send to the receiver. On time is a packet
/// that is no later than the delay and 20 ms; receivers are held if none of their packets is lost
/// and 99.9 % are on time. 3000 are to be held without a delay, in the kernel (for less than in a
/// process) and not, and 10,000 with 20ms. Takes about four minutes. Needs root and two processors,
/// and is worth as much as the machine is quiet.
#[derive(Args, Debug)]
#[command(mut_arg("from", |from| from.exclusive(true)))]
pub(crate) struct RelayBench {
    /// Only what is judged, shorter and once
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    samples: Samples,

    /// Try so many receivers instead; repeatable
    #[arg(long, value_name = "N")]
    receivers: Vec<u32>,

    /// With this delay [default: 0ms]
    #[arg(long, value_name = "TIME", requires = "receivers")]
    delay: Option<Time>,

    /// Replicated this way, or in-kernel; repeatable [default: the best]
    #[arg(long, value_name = "WAY", value_parser = way)]
    way: Vec<String>,

    /// Runs of each [default: 3; quick: 1]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &RelayBench, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: RelayRecord = arguments
        .samples
        .record(relay::NAME, || measure(&arguments.settings()))?;
    head(&record.environment, out)?;
    let is_held = print(&record, out)?;
    Ok(outcome(is_held))
}

impl RelayBench {
    fn settings(&self) -> Settings {
        let mut settings = if self.quick {
            Settings::quick()
        } else {
            Settings::full()
        };
        if !self.receivers.is_empty() {
            let delay = self.delay.map_or(Duration::ZERO, |time| time.0);
            let case = |&receivers| Case {
                receivers,
                delay_ns: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
                way: None,
                is_judged: false,
            };
            settings.cases = self.receivers.iter().map(case).collect();
        }
        if !self.way.is_empty() {
            let of_way = |way: &String| {
                let mut cases = settings.cases.clone();
                for case in &mut cases {
                    case.way = Some(way.clone());
                }
                cases
            };
            settings.cases = self.way.iter().flat_map(of_way).collect();
        }
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings
    }
}

fn way(text: &str) -> Result<String, String> {
    match text {
        IN_KERNEL => Ok(text.to_owned()),
        _ => text.parse::<Way>().map(|way| way.to_string()),
    }
}

fn measure(settings: &Settings) -> anyhow::Result<RelayRecord> {
    with_rights(
        relay::run(settings, VERSION, &command(), bar_of_part()),
        RelayBenchError::needs_root,
        "the experiment makes network namespaces and attaches an eBPF program",
    )
}

/// The table, and what is to be held; whether it was.
fn print(record: &RelayRecord, out: &mut dyn Write) -> anyhow::Result<bool> {
    let settings = &record.settings;
    writeln!(
        out,
        "one stream of {}, a packet at a time; {} runs of {} each; {}\n",
        Rate(settings.rate_bps),
        settings.repeats,
        Time(Duration::from_nanos(settings.measured_ns)),
        settings.mode.name()
    )?;
    writeln!(
        out,
        "{:>6} {:>9} {:>6} {:>5} {:>16} {:>6} {:>8} {:>11} {:>6} {:>6} {:>6}",
        "", "", "", "", "processor busy", "", "packets", "packets", "late,", "ms", ""
    )?;
    writeln!(
        out,
        "{:>6} {:>9} {:>6} {:>5} {:>16} {:>6} {:>8} {:>11} {:>6} {:>6} {:>6}",
        "to",
        "way",
        "delay",
        "held",
        "ns/packet",
        "%",
        "a train",
        "at the sink",
        "p50",
        "p99.9",
        "max"
    )?;
    let mut is_held = true;
    for (number, case) in settings.cases.iter().enumerate() {
        let runs: Vec<_> = record
            .runs
            .iter()
            .filter(|run| run.case == number)
            .collect();
        print_case(case, &runs, out)?;
    }
    writeln!(out)?;
    for (number, case) in settings.cases.iter().enumerate() {
        for run in record.runs.iter().filter(|run| run.case == number) {
            for fault in run.faults(case) {
                writeln!(out, "{case}, run {}: {fault}", run.repeat + 1)?;
            }
        }
    }
    for (number, case) in settings.cases.iter().enumerate() {
        if case.is_judged {
            let mut runs = record.runs.iter().filter(|run| run.case == number);
            let held = runs
                .clone()
                .filter(|run| run.faults(case).is_empty())
                .count();
            let is_most = held * 2 > runs.by_ref().count();
            let word = if is_most { "kept" } else { "MISSED" };
            writeln!(
                out,
                "{case}: held in {held} of {} runs: {word}",
                settings.repeats
            )?;
            is_held &= is_most;
        }
    }
    Ok(is_held & better(record, out)?)
}

/// Whether replicating in the kernel costs less than without a delay, where both were tried.
fn better(record: &RelayRecord, out: &mut dyn Write) -> anyhow::Result<bool> {
    let cases = &record.settings.cases;
    let busy_ns = |receivers, way: Option<&str>| {
        let of_case = |run: &&Run| {
            let case = &cases[run.case];
            (case.receivers, case.delay_ns, case.way.as_deref()) == (receivers, 0, way)
        };
        let runs = record.runs.iter().filter(of_case);
        let samples: Vec<_> = runs.map(Run::busy_ns_a_packet).collect();
        Summary::of(&samples).map(|summary| summary.median)
    };
    let mut is_better = true;
    for case in cases.iter().filter(|case| case.is_judged) {
        let both = busy_ns(case.receivers, Some(IN_KERNEL)).zip(busy_ns(case.receivers, None));
        if let (Some((inside, outside)), None) = (both, &case.way) {
            is_better &= inside < outside;
            let word = if inside < outside { "kept" } else { "MISSED" };
            writeln!(
                out,
                "{} receivers: in-kernel takes {:.2} of the time of a process; less was to be: \
                 {word}",
                case.receivers,
                inside / outside
            )?;
        }
    }
    Ok(is_better)
}

fn print_case(case: &Case, runs: &[&Run], out: &mut dyn Write) -> anyhow::Result<()> {
    let summary = |of: fn(&Run) -> f64| {
        let samples: Vec<_> = runs.iter().map(|run| of(run)).collect();
        Summary::of(&samples)
    };
    let median = |of| summary(of).map_or(0.0, |summary| summary.median);
    let busy = summary(Run::busy_ns_a_packet).map_or_else(String::new, |s| s.told(0));
    let held = runs
        .iter()
        .filter(|run| run.faults(case).is_empty())
        .count();
    let late = |run: &Run, part| run.lateness.quantile_ns(part).unwrap_or(0) as f64 / 1e6;
    let at = |part: f64| {
        let samples: Vec<_> = runs.iter().map(|run| late(run, part)).collect();
        Summary::of(&samples).map_or(0.0, |summary| summary.median)
    };
    writeln!(
        out,
        "{case} {:>5} {busy:>16} {:>6.0} {:>8.1} {:>11.0} {:>6.1} {:>6.1} {:>6.1}",
        format!("{held}/{}", runs.len()),
        median(|run| 100.0 * run.core_busy_ns as f64 / run.wall_ns as f64),
        median(|run| run.received_packets as f64 / run.trains.max(1) as f64),
        median(|run| run.arrived_packets as f64),
        at(0.5),
        at(0.999),
        at(1.0),
    )?;
    Ok(())
}

const _: () = assert!(BUDGET_NS == 20_000_000, "as the help says");
