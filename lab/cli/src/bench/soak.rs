//! `onrush-lab bench soak`, on a terminal.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use onrush_measure::capacity::CapacityError;
use onrush_measure::capacity::host::{Host, packet_ns, stolen_part};
use onrush_measure::capacity::soak::{self, Run, Settings, SoakRecord};
use onrush_measure::load::{Behaviour, Progress};

use crate::frame::{Samples, VERSION, bar_of_time, command, head, outcome, with_rights};
use crate::server_program::server_program;
use onrush_cli::units::Time;

/// A long day of viewers in a short time
///
/// Viewers arrive, jump, pause and leave at random, and films are replaced while they are watched.
/// The server's memory is to stay flat and its packets as punctual as they were, and each packet
/// that it says it has sent is to be counted at the other end. Takes twenty minutes, --quick two.
/// Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Soak {
    /// Two minutes
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    samples: Samples,

    /// Viewers at once
    #[arg(short = 'n', long, value_name = "N", default_value_t = Settings::default().clients)]
    clients: u32,

    /// How long [default: 20m]
    #[arg(long, value_name = "TIME")]
    time: Option<Time>,

    /// Leave after so long, on average; another comes
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(60)))]
    stay: Time,

    /// Jump to another place this often, on average
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(30)))]
    seek_every: Time,

    /// Films
    #[arg(long, value_name = "N", default_value_t = Settings::default().files)]
    files: u32,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Soak, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: SoakRecord = arguments
        .samples
        .record(soak::NAME, || measure(&arguments.settings()))?;
    head(&record.environment, out)?;
    let mut passed = true;
    for run in &record.runs {
        print_slices(run, out)?;
        let acts = run.load.acts;
        writeln!(
            out,
            "\n{} visits, {} jumps, {} pauses, {} left; {} films removed, {} added; sent {} \
             packets, sunk {}",
            run.load.visits,
            acts.seeks,
            acts.pauses,
            acts.leaves,
            run.films_removed,
            run.films_replaced,
            run.packets_sent.unwrap_or(0),
            run.load.packets_sunk.unwrap_or(0),
        )?;
        if let Some(joined) = run.joined.filter(|&joined| joined >= 0.01) {
            writeln!(
                out,
                "{:.1} % of the bursts left early, joined to the one before, because the server \
                 was behind",
                joined * 100.0
            )?;
        }
        if let Some(trends) = run.trends() {
            writeln!(
                out,
                "after {} s of warm-up:",
                trends.from_ns / 1_000_000_000
            )?;
            let flat = if trends.memory_leaks() { "" } else { "flat: " };
            writeln!(out, "memory     {flat}{}", trends.memory_in_words())?;
            let steady = match (trends.gets_later(), trends.lateness_grows()) {
                (true, _) => "",
                (false, true) => "harmless: ",
                (false, false) => "no trend: ",
            };
            writeln!(out, "lateness   {steady}{}", trends.lateness_in_words())?;
        }
        if let Some(host) = Host::of(run) {
            writeln!(out, "processor  {}", host.in_words())?;
        }
        for (reason, count) in &run.load.failures {
            writeln!(out, "{count} viewers of replaced films: {reason}")?;
        }
        let missed = run.missed(&record.settings);
        for missed in &missed {
            writeln!(out, "MISSED {missed}")?;
        }
        passed &= missed.is_empty();
    }
    Ok(outcome(passed))
}

/// A line for each slice; with what a packet cost and the host took, if that is in the record.
fn print_slices(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let (above, below) = match Host::of(run) {
        Some(_) => ("   ns a    host", " packet    took"),
        None => ("", ""),
    };
    writeln!(
        out,
        "\n     s    packets   late by  all MiB packets     heap  tables     files  \
         server{above}\n{:>26} {:>16} {:>8} {:>7} {:>16}{below}",
        "p99.9 ms", "MiB", "KiB", "KiB", "CPU"
    )?;
    let mut begin_ns = 0;
    for slice in &run.load.slices {
        let (usage, memory) = (
            slice.server.unwrap_or_default(),
            slice.memory.unwrap_or_default(),
        );
        let late_ns = slice.lateness.p999_ns.unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        write!(
            out,
            "{:>6} {:>10} {:>9.1} {:>8} {:>7} {:>8} {:>7} {:>9} {:>5.1} %",
            slice.end_ns / 1_000_000_000,
            slice.packets,
            late_ns as f64 / 1e6,
            usage.memory_bytes >> 20,
            memory.arena_bytes >> 20,
            memory.heap_bytes >> 10,
            memory.page_table_bytes >> 10,
            memory.descriptors,
            usage.cpu_ns as f64 / (slice.end_ns - begin_ns).max(1) as f64 * 100.0,
        )?;
        let host = packet_ns(slice).zip(stolen_part(slice));
        if let Some((packet_ns, part)) = host {
            write!(out, " {packet_ns:>6.0} {:>5.1} %", part * 100.0)?;
        }
        writeln!(out)?;
        begin_ns = slice.end_ns;
    }
    Ok(())
}

impl Soak {
    fn settings(&self) -> Settings {
        let default = Settings::default();
        let quick = self.quick.then_some(Time(Duration::from_secs(100)));
        let time_ns = self.time.or(quick);
        let time_ns = time_ns.map_or(default.time_ns, |time| time.nanos());
        Settings {
            clients: self.clients,
            time_ns,
            // At least sixty slices, of a second at least.
            slice_ns: default.slice_ns.min((time_ns / 60).max(1_000_000_000)),
            behaviour: Behaviour {
                stay_ns: self.stay.nanos(),
                seek_every_ns: self.seek_every.nanos(),
                ..default.behaviour
            },
            files: self.files,
            ..default
        }
    }
}

fn measure(settings: &Settings) -> anyhow::Result<SoakRecord> {
    let bar = bar_of_time();
    let progress = move |progress: Progress| {
        let watching = format!("{} watching", progress.watching);
        bar(progress.elapsed_ns, progress.total_ns, &watching);
    };
    let onrush = server_program()?;
    with_rights(
        soak::run(settings, &onrush, VERSION, &command(), progress),
        CapacityError::needs_root,
        "the experiment makes network namespaces and attaches an eBPF program",
    )
}
