//! `onrush-lab bench capacity`, on a terminal.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueHint};
use onrush_measure::capacity::report::Row;
use onrush_measure::capacity::{
    self, CapacityError, CapacityRecord, FileSet, Peer, Progress, Settings,
};
use onrush_measure::stats::{median, p_value};
use onrush_server::engine::phase::Phase;

use crate::frame::{
    Modes, Samples, VERSION, bar, command, draw_all, head_with, outcome, with_rights,
};
use crate::server_program::server_program;
use onrush_cli::units::{Rate, Size, Time, within};

/// How many streams a server holds on time
///
/// Starts the server anew in the testbed for each number of viewers, doubles the number until more
/// than one packet in 1000 is late, or one is lost, and bisects. The server's data has a processor
/// of its own; the viewers, the counting sink and the server's control share the rest. Takes some
/// minutes for each mode, burst and server. Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Capacity {
    /// One mode, one search, shorter
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    samples: Samples,

    /// Write cpu.svg, lateness.svg and memory.svg into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,

    /// Rate of each stream
    #[arg(long, value_name = "RATE", default_value_t = Rate(Settings::default().rate_bps))]
    rate: Rate,

    /// Length of a burst; repeatable
    #[arg(long, value_name = "TIME", default_values_t = [Time(Duration::from_millis(20))])]
    burst: Vec<Time>,

    /// When bursts leave: as-they-come, aligned or spread; repeatable
    #[arg(long, hide_short_help = true, value_name = "PHASE",
          default_values_t = [Phase::default()])]
    phase: Vec<Phase>,

    /// Search twice, in turn: while nobody jumps about in the film, and while so many of a hundred
    /// viewers do. Of those no fewer than 0.8 times as many shall be on time
    #[arg(long, value_name = "PERCENT", value_parser = within(1_u32, 100),
          conflicts_with_all = ["load_max", "stall"])]
    jumping: Option<u32>,

    /// How often each of those jumps, on average
    #[arg(long, hide_short_help = true, value_name = "TIME", requires = "jumping",
          default_value_t = Time(Duration::from_nanos(Settings::default().jump_every_ns)))]
    jump_every: Time,

    /// Let viewers in as serve does with this --load-max, in percent; others get 453. No search:
    /// --first viewers come, and those who are let in shall be on time
    #[arg(long, hide_short_help = true, value_name = "PERCENT")]
    load_max: Option<u32>,

    /// Stop the server (SIGSTOP) for so long while they watch. No search: --first viewers come, and
    /// nothing shall be lost, no stream send more than two bursts together, and its status tell it
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    stall: Option<Time>,

    /// Viewers that come in a second
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Settings::default().arrivals_per_second)]
    arrivals: u32,

    /// Try all of it so often, in turns
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1)]
    rounds: u32,

    /// Try a number again that was missed while the host of this virtual machine took more than 2 %
    /// of the server's processor, so often at the most: 0 to 10. The last try counts, all are kept
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Settings::default().again)]
    again: u32,

    /// One film, so many by Zipf's law (zipf:N), or so many dealt out in turn (even:N)
    #[arg(long, value_name = "FILES", default_value = "one", value_parser = file_set)]
    files: FileSet,

    /// The packet cache [default: a quarter of the films; 1GiB for one]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Size>,

    /// The number to begin with
    #[arg(long, value_name = "N", default_value_t = Settings::default().clients_first)]
    first: u32,

    /// The most that are tried
    #[arg(long, value_name = "N", default_value_t = Settings::default().clients_max)]
    max: u32,

    /// How long each number is watched
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)))]
    time: Time,

    /// Who cuts trains: uso, software-gso or both
    #[arg(
        long,
        value_name = "MODE",
        default_value = "both",
        hide_possible_values = true
    )]
    mode: Modes,

    /// Measure this server too: {dir} is the films' directory, {address} where to listen;
    /// repeatable
    #[arg(long, value_name = "COMMAND", requires = "peer_url")]
    peer: Vec<String>,

    /// Where its films are: an URL with {address} and {file}; one for each --peer
    #[arg(long, value_name = "URL", requires = "peer")]
    peer_url: Vec<String>,

    /// Measure the --peer only
    #[arg(long, requires = "peer")]
    peers_only: bool,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Capacity, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: CapacityRecord = arguments
        .samples
        .record(capacity::NAME, || measure(&arguments.settings()?))?;
    if let Some(folder) = &arguments.plots {
        draw_all(folder, &record.drawings())?;
    }
    print(&record, out)?;
    Ok(outcome(record.passed()))
}

impl Capacity {
    fn settings(&self) -> anyhow::Result<Settings> {
        if self.peer.len() != self.peer_url.len() {
            bail!(
                "{} --peer and {} --peer-url: give one for each",
                self.peer.len(),
                self.peer_url.len()
            );
        }
        let peers = self.peer.iter().zip(&self.peer_url);
        let mut settings = Settings {
            rate_bps: self.rate.0,
            bursts_ns: self.burst.iter().map(Time::nanos).collect(),
            phases: self.phase.clone(),
            jumping_percents: [0].into_iter().chain(self.jumping).collect(),
            jump_every_ns: self.jump_every.nanos(),
            rounds: self.rounds,
            again: self.again,
            arrivals_per_second: self.arrivals,
            load_max_percent: self.load_max,
            stall_ns: self.stall.map_or(0, |time| time.nanos()),
            files: self.files,
            cache_bytes: self.cache.map(|size| size.0),
            modes: self.mode.modes(),
            clients_first: self.first,
            clients_max: self.max,
            time_ns: self.time.nanos(),
            peers: peers
                .map(|(command, url)| Peer {
                    command: command.clone(),
                    url: url.clone(),
                })
                .collect(),
            ..Settings::default()
        };
        if settings.is_trial() {
            settings.clients_max = settings.clients_first;
        }
        if self.peers_only {
            settings.bursts_ns.clear();
        }
        if self.quick {
            settings.modes.truncate(1);
            settings.time_ns = settings.time_ns.min(3_000_000_000);
            settings.precision = 0.25;
        }
        Ok(settings)
    }
}

fn measure(settings: &Settings) -> anyhow::Result<CapacityRecord> {
    let bar = bar("{spinner} {msg}");
    let progress = move |progress: Progress| {
        let upper = progress
            .between
            .1
            .map_or_else(|| "?".to_owned(), |n| n.to_string());
        let again = match progress.again {
            0 => String::new(),
            again => format!(", again ({again}): the host was in the way"),
        };
        let jumping = match progress.jumping_percent {
            0 => String::new(),
            percent => format!(", {percent} % jump"),
        };
        bar.set_message(format!(
            "{}, {}: {} viewers{jumping} (between {} and {upper}){again}",
            progress.server,
            progress.mode.name(),
            progress.clients,
            progress.between.0
        ));
    };
    let onrush = server_program()?;
    with_rights(
        capacity::run(settings, &onrush, VERSION, &command(), progress),
        CapacityError::needs_root,
        "the experiment makes network namespaces and attaches an eBPF program",
    )
}

fn print(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    head_with(&record.environment, "", out)?;
    writeln!(out)?;
    let is_trial = record.settings.is_trial();
    let holds = if is_trial { "served" } else { "holds" };
    writeln!(
        out,
        "{:<34} {:>6} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7}",
        "server", holds, "server", "of it", "ns a", "core", "others", "memory", "late by"
    )?;
    writeln!(
        out,
        "{:<34} {:>6} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7}",
        "", "", "CPU", "sending", "packet", "busy", "busy", "MiB", "p99.9ms"
    )?;
    for row in record.rows() {
        let Some(held) = row.held else {
            writeln!(out, "{:<34} {:>6}", row.name(), "none")?;
            continue;
        };
        let cost = record.cost(held);
        writeln!(
            out,
            "{:<34} {:>6} {:>6.1} % {:>6.1} % {:>6.0} {:>4.0} % {:>4.0} % {:>6} {:>7.1}",
            row.name(),
            if is_trial {
                held.load.watching
            } else {
                held.clients
            },
            cost.server_cores * 100.0,
            cost.send_cores * 100.0,
            cost.packet_ns,
            cost.core_busy * 100.0,
            cost.other_cores_busy * 100.0,
            cost.memory_bytes >> 20,
            Duration::from_nanos(cost.lateness_ns.unsigned_abs()).as_secs_f64()
                * 1e3
                * if cost.lateness_ns < 0 { -1.0 } else { 1.0 },
        )?;
    }
    for note in record.thefts().into_iter().chain(record.repeats()) {
        writeln!(out, "{note}")?;
    }
    if record.settings.rounds > 1 {
        print_rounds(record, out)?;
    }
    print_arrivals(record, out)?;
    print_disk(record, out)?;
    print_joined(record, out)?;
    print_jumps(record, out)?;
    print_events(record, out)?;
    for row in record.rows() {
        if let Some(missed) = row.missed {
            let reasons = record.why_missed(missed);
            writeln!(out, "{} with {}: {reasons}", row.name(), missed.clients)?;
        }
    }
    for verdict in record.jump_verdicts() {
        writeln!(out, "{}", verdict.in_words())?;
    }
    Ok(())
}

/// How many have jumped, where that was asked for: their packets have headers of their own from
/// then on.
fn print_jumps(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    for run in record.runs.iter().filter(|run| run.jumping_percent > 0) {
        let acts = run.load.acts;
        writeln!(
            out,
            "{} watched: {} of them jumped, {} times in all",
            run.load.watching, acts.jumped, acts.seeks
        )?;
    }
    Ok(())
}

/// How soon viewers saw something, and what setting up took of control's processor.
fn print_arrivals(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    for run in &record.runs {
        let (mut start_up_ns, coming) = (run.load.start_up_ns.clone(), &run.account_coming);
        start_up_ns.sort_unstable();
        let last = start_up_ns.len().saturating_sub(1);
        let Some((middle, late)) = start_up_ns
            .get(last / 2)
            .zip(start_up_ns.get(last * 99 / 100))
        else {
            continue;
        };
        // Records from before it was among what was measured have what it is made of.
        let set_up_ns = run
            .set_up_ns
            .or_else(|| coming.set_up_ns(record.settings.arrivals_per_second));
        // What of another server sets up is not known.
        let control = set_up_ns
            .filter(|&ns| ns > 0)
            .map_or_else(String::new, |ns| {
                format!("; control took {} us for each", ns / 1000)
            });
        writeln!(
            out,
            "{} came, {} a second: the first packet after {:.1} ms, for 99 of 100 after {:.1} \
             ms{control}",
            run.clients,
            record.settings.arrivals_per_second,
            Duration::from_nanos(*middle).as_secs_f64() * 1e3,
            Duration::from_nanos(*late).as_secs_f64() * 1e3,
        )?;
    }
    Ok(())
}

/// What the disk gave for what was sent, where it had to. Of records from before this was counted
/// nothing is said.
fn print_disk(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    for run in &record.runs {
        let (read, sent) = (record.disk_bytes_a_second(run), record.bytes_a_second(run));
        if read >= 1e6 {
            writeln!(
                out,
                "{} watched: {:.0} MB/s were read from the disk for {:.0} MB/s sent; building took \
                 {:.1} % of a processor",
                run.clients,
                read / 1e6,
                sent / 1e6,
                record.build_cores(run) * 100.0,
            )?;
        }
    }
    Ok(())
}

/// Where longer bursts were what held so many. Some are joined in any run: when the first come at
/// once.
fn print_joined(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    for run in &record.runs {
        let percent = run.joined.unwrap_or(0.0) * 100.0;
        if percent >= 1.0 {
            writeln!(
                out,
                "{} watched: {percent:.1} % of the bursts left early, joined to the one before, \
                 because the server was behind",
                run.load.watching,
            )?;
        }
    }
    Ok(())
}

/// What happened in runs where more came than were let in, or the server was stopped.
fn print_events(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    let settings = &record.settings;
    if !settings.is_trial() {
        return Ok(());
    }
    for run in &record.runs {
        let (load, report) = (&run.load, capacity::report::seen(record, run));
        writeln!(
            out,
            "\n{} came, {} watched at the end; {:.3} % of their packets were late, {} lost; at \
             most {} packets of a stream together{}",
            run.clients,
            load.watching,
            report.late_part * 100.0,
            load.totals.lost,
            load.totals.burst_packets_max,
            if run.is_repeated { "; tried again" } else { "" },
        )?;
        for (reason, count) in &load.failures {
            writeln!(out, "{count} times: {reason}")?;
        }
        for line in &run.trouble {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(out)?;
    Ok(())
}

/// What was tried more than once, side by side: medians, and whether they differ by more than
/// chance.
fn print_rounds(record: &CapacityRecord, out: &mut dyn Write) -> anyhow::Result<()> {
    let rows = record.rows();
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let samples = |row: &Row<'_>| {
        let costs = row.runs.iter().map(|run| record.cost(run));
        costs
            .map(|cost| (cost.packet_ns, cost.lateness_ns as f64 / 1e6))
            .unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let Some(first) = rows.first().map(samples) else {
        return Ok(());
    };
    let told = |samples: &[f64], first: &[f64]| {
        let middle = median(samples).unwrap_or(0.0);
        let chance = p_value(first, samples).unwrap_or(1.0);
        format!("{middle:>8.1} {chance:>8.3}")
    };
    writeln!(
        out,
        "\n{:<46} {:>4} {:>8} {:>8} {:>8} {:>8}",
        "in turns, the median of all runs", "runs", "ns a", "by", "late by", "by"
    )?;
    writeln!(
        out,
        "{:<46} {:>4} {:>8} {:>8} {:>8} {:>8}",
        "", "", "packet", "chance", "p99.9ms", "chance"
    )?;
    for row in &rows {
        let (packet_ns, late_ms) = samples(row);
        writeln!(
            out,
            "{:<46} {:>4} {} {}",
            row.name(),
            row.runs.len(),
            told(&packet_ns, &first.0),
            told(&late_ms, &first.1)
        )?;
    }
    writeln!(
        out,
        "chance: of a difference from the first line where there is none\n"
    )?;
    Ok(())
}

fn file_set(text: &str) -> Result<FileSet, String> {
    let wrong = || "ask for one, zipf:N or even:N".to_owned();
    let files = |n: &str| n.parse().map_err(|_| wrong());
    match text.split_once(':') {
        None if text == "one" => Ok(FileSet::One),
        Some(("zipf", n)) => Ok(FileSet::Zipf { files: files(n)? }),
        Some(("even", n)) => Ok(FileSet::Even { files: files(n)? }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        capacity: Capacity,
    }

    fn settings(options: &[&str]) -> Result<Settings, String> {
        let command = ["capacity"].iter().chain(options);
        let parsed = Alone::try_parse_from(command).map_err(|error| error.to_string())?;
        let settings = parsed.capacity.settings();
        settings.map_err(|error| error.to_string())
    }

    #[test]
    fn viewers_that_jump_are_searched_for_beside_those_that_do_not() {
        assert_eq!(settings(&[]).unwrap(), Settings::default());
        let some = settings(&["--jumping", "30", "--jump-every", "5s"]).unwrap();
        assert_eq!(some.jumping_percents, [0, 30]);
        assert_eq!(some.jump_every_ns, 5_000_000_000);
        for percent in ["1", "100"] {
            assert!(settings(&["--jumping", percent]).is_ok());
        }
        for wrong in [
            &["--jumping", "0"][..],
            &["--jumping", "101"],
            &["--jump-every", "5s"],
            &["--jumping", "30", "--load-max", "90"],
            &["--jumping", "30", "--stall", "1s"],
        ] {
            assert!(settings(wrong).is_err(), "{wrong:?}");
        }
    }
}
