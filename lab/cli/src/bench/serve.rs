//! `onrush-lab bench serve`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use onrush_measure::serve::report::{Lateness, Report, Row, Verdict};
use onrush_measure::serve::{self, Contestant, Progress, ServeError, ServeRecord, Settings};
use onrush_measure::stats::Summary;
use onrush_testkit::testbed::Mode;

use crate::frame::{
    Modes, Samples, VERSION, bar_of_runs, command, head_with, machine, outcome, with_rights,
};
use onrush_cli::units::{Rate, Time};

/// CPU per packet of stored streams sent on time
///
/// Sends the same sessions in real time by the engine, on each of its data paths, and by a plain
/// loop of read and send, turn about on the same processor. A sink counts what arrives, and how
/// late. The engine is to cost 8 times less than the loop in mode uso and 3 times less in
/// software-gso, by the median of the runs. Takes about six minutes; --quick about one. Needs root
/// and two processors, and is worth as much as the machine is quiet: what else went on is told
/// below the table.
#[derive(Args, Debug)]
#[command(mut_arg("from", |from| from.exclusive(true)))]
pub(crate) struct Serve {
    /// Only what is judged, shorter and fewer runs
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    samples: Samples,

    /// Sessions at once
    #[arg(long, value_name = "N", default_value_t = Settings::default().sessions)]
    sessions: u32,

    /// Rate of each
    #[arg(long, value_name = "RATE", default_value_t = Rate(Settings::default().rate_bps))]
    rate: Rate,

    /// Length of a burst
    #[arg(long, value_name = "TIME",
          default_value_t = Time(Duration::from_nanos(Settings::default().burst_ns)))]
    burst: Time,

    /// Runs of each in each mode [default: 5; quick: 3]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// How long each is measured [default: 6s; quick: 3s]
    #[arg(long, value_name = "TIME")]
    time: Option<Time>,

    /// Let the sender's processor rest
    ///
    /// A thread of idle priority keeps it awake otherwise: a processor that rests between two
    /// bursts wakes with a low clock and empty caches, and a virtual one may have to be waited for.
    /// What that costs changes from second to second, and it is not the senders' doing.
    #[arg(long)]
    let_idle: bool,

    /// Who cuts trains: uso, software-gso or both
    ///
    /// uso: the device does, as network cards with UDP segmentation offload do; software-gso: the
    /// kernel does.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "both",
        hide_possible_values = true
    )]
    mode: Modes,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Serve, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: ServeRecord = arguments
        .samples
        .record(serve::NAME, || measure(&arguments.settings()))?;
    let report = Report::of(&record);
    print(&record, &report, out)?;
    Ok(outcome(report.passed()))
}

impl Serve {
    fn settings(&self) -> Settings {
        let mut settings = Settings {
            sessions: self.sessions,
            rate_bps: self.rate.0,
            burst_ns: self.burst.nanos(),
            keep_awake: !self.let_idle,
            modes: self.mode.modes(),
            ..Settings::default()
        };
        if self.quick {
            settings.repeats = 3;
            settings.measured_ns = 3_000_000_000;
            settings.warm_up_ns = 1_000_000_000;
            settings.contestants = vec![Contestant::ENGINE, Contestant::ReadSendLoop];
        }
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings.measured_ns = self.time.map_or(settings.measured_ns, |time| time.nanos());
        settings
    }
}

fn measure(settings: &Settings) -> anyhow::Result<ServeRecord> {
    let bar = bar_of_runs();
    let progress = move |progress: Progress| {
        let next = progress.next.map(|(mode, contestant, repeat)| {
            format!("{} {contestant}, run {}", mode.name(), repeat + 1)
        });
        bar(
            progress.runs_done.into(),
            progress.runs.into(),
            &next.unwrap_or_default(),
        );
    };
    with_rights(
        serve::run(settings, VERSION, &command(), progress),
        ServeError::needs_root,
        "the experiment makes network namespaces, attaches an eBPF program and pins a thread",
    )
}

fn print(record: &ServeRecord, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let settings = &record.settings;
    let environment = &record.environment;
    let time = |ns| Time(Duration::from_nanos(ns));
    writeln!(
        out,
        "{} sessions of {}, bursts of {}; {} runs of {} each; the sender's processor {}",
        settings.sessions,
        Rate(settings.rate_bps),
        time(settings.burst_ns),
        settings.repeats,
        time(settings.measured_ns),
        if settings.keep_awake {
            "kept awake"
        } else {
            "free to rest"
        }
    )?;
    let machine = machine(environment, "no virtual machine");
    head_with(environment, &format!(", {machine}"), out)?;
    for &mode in &settings.modes {
        print_mode(mode, report, out)?;
    }
    print_notes(report, out)?;
    for verdict in &report.verdicts {
        writeln!(out, "{}", told(verdict))?;
    }
    Ok(())
}

fn print_mode(mode: Mode, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let rows: Vec<_> = report.rows.iter().filter(|row| row.mode == mode).collect();
    writeln!(
        out,
        "\n{:<20} {:>20}  {:>8}  {:>6}  {:>9}  {:>14}",
        mode.name(),
        "CPU ns/packet",
        "core's",
        "times",
        "crossings",
        "packets in a"
    )?;
    writeln!(
        out,
        "{:<20} {:>20}  {:>8}  {:>6}  {:>9}  {:>8} {:>5}",
        "", "median (min..max)", "busy ns", "engine", "a second", "crossing", "train"
    )?;
    for row in &rows {
        print_cost(row, out)?;
    }
    writeln!(
        out,
        "{:<20} {:>18} {:>33}",
        "late by, ms", "arrived", "handed over"
    )?;
    let columns = format!("{:>7} {:>7} {:>7} {:>7}", "p50", "p99", "p99.9", "max");
    writeln!(out, "{:<20} {columns} {columns}", "")?;
    for row in rows.iter().filter(|row| row.cpu_ns.is_some()) {
        let (arrival, own) = (milliseconds(row.arrival), milliseconds(row.lateness));
        writeln!(out, "{:<20} {arrival} {own}", row.contestant.name())?;
    }
    Ok(())
}

fn print_cost(row: &Row, out: &mut dyn Write) -> anyhow::Result<()> {
    let name = row.contestant.name();
    let Some(cpu_ns) = &row.cpu_ns else {
        return Ok(writeln!(out, "{name:<20} {:>20}", "void")?);
    };
    let median = |summary: &Option<Summary>, digits: usize| {
        summary
            .as_ref()
            .map_or_else(|| "-".to_owned(), |s| format!("{:.digits$}", s.median))
    };
    let is_large = row
        .packets_a_crossing
        .as_ref()
        .is_some_and(|s| s.median >= 10.0);
    Ok(writeln!(
        out,
        "{name:<20} {:>20}  {:>8}  {:>6}  {:>9}  {:>8} {:>5}",
        cpu_ns.told(0),
        median(&row.core_ns, 0),
        median(&row.times_engine, 1),
        median(&row.crossings_a_second, 0),
        median(&row.packets_a_crossing, usize::from(!is_large)),
        median(&row.packets_a_train, 1),
    )?)
}

fn milliseconds(lateness: Lateness) -> String {
    let Lateness {
        p50_ns,
        p99_ns,
        p999_ns,
        max_ns,
    } = lateness;
    [p50_ns, p99_ns, p999_ns, max_ns]
        .map(|ns| format!("{:>7.1}", ns / 1e6))
        .join(" ")
}

fn print_notes(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let images: Vec<_> = report
        .rows
        .iter()
        .filter_map(|row| row.image_ns.as_ref())
        .collect();
    if let Some(image_ns) = Summary::of(&images.iter().map(|s| s.median).collect::<Vec<_>>()) {
        writeln!(
            out,
            "\nOn another processor the engine's images cost {:.0} ns each to write, once for all \
             sessions.",
            image_ns.median
        )?;
    }
    writeln!(out, "{EXPECTED}")?;
    let noise = &report.noise;
    let percent = |part: f64| part * 100.0;
    if let Some(yardstick_ns) = &noise.yardstick_ns {
        writeln!(
            out,
            "Noise: a fixed piece of work took {:.1} ms ({:.1}..{:.1}). In the worst run a sender \
             waited for its\n\
             processor {:.1} % of the time, others used {:.1} % of that, the host took {:.1} %; \
             {:.1} other processors\nwere busy on average.",
            yardstick_ns.median / 1e6,
            yardstick_ns.min / 1e6,
            yardstick_ns.max / 1e6,
            percent(noise.waited_part_max),
            percent(noise.foreign_part_max),
            percent(noise.stolen_part_max),
            noise.others_busy
        )?;
    }
    report
        .warnings
        .iter()
        .try_for_each(|warning| writeln!(out, "warning: {warning}"))?;
    Ok(writeln!(out)?)
}

fn told(verdict: &Verdict) -> String {
    let (mode, wanted) = (verdict.mode.name(), verdict.wanted);
    let Some(ratio) = &verdict.ratio else {
        return format!("{mode}: VOID, no run of the engine could be compared");
    };
    let word = if verdict.passed() { "kept" } else { "MISSED" };
    let void = match verdict.void_pairs {
        0 => String::new(),
        pairs => format!("; {pairs} of the pairs stayed void"),
    };
    format!(
        "{mode}: the engine costs {:.1} times less than the loop ({:.1}..{:.1}, {} pairs{void}); \
         at least {wanted} times was to be: {word}",
        ratio.median, ratio.min, ratio.max, ratio.samples
    )
}

/// What the design foretold, for a reader to compare.
const EXPECTED: &str = "\
Expected (another machine, sending as fast as it could): read and send 3400 ns a packet, trains of 8
packets from registered memory 220 ns, of 44 packets 40 ns. Halvorsen, Dalseng and Griwodz found
27 % less CPU time for RTP sent within the kernel than for the best of the existing ways.";
