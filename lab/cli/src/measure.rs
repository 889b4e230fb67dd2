//! `onrush-lab measure`: what every primitive of the operating system costs here.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_cli::units::Time;
use onrush_measure::experiment::Record;
use onrush_measure::primitives::peer::Peer;
use onrush_measure::primitives::{self, Entry, Group, MeasureRecord, Settings};
use onrush_measure::report::primitives::report;

use crate::frame::{Output, VERSION, bar_of_parts, settings};

/// Measure what the operating system costs here
///
/// Measures every primitive that a data path is made of: the clock, procedure and system calls,
/// processes and threads, caches and memory, page faults, sockets, files. Prints a table with what
/// the hardware alone would take, what software adds, what follows from both, what was measured,
/// and why. Takes ten minutes at most; --quick one. Without root it measures what it can and names
/// what it can't. Ends with 1 if a figure is impossible and therefore void.
#[derive(Args, Debug)]
pub(crate) struct Measure {
    /// Shorter and fewer: a minute
    #[arg(long, conflicts_with = "from")]
    quick: bool,

    /// Only these groups: cpu, memory, network, file
    #[arg(
        long,
        value_name = "GROUP",
        value_delimiter = ',',
        conflicts_with = "from"
    )]
    only: Vec<Group>,

    #[command(flatten)]
    output: Output,

    /// Do all of it N times, each by a process of its own
    ///
    /// What differs from process to process is then in the intervals, and with --every what differs
    /// from hour to hour. Each is a round of the table. With --json FILE the record of each is kept
    /// as well, as FILE-1.json, FILE-2.json and so on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100),
          conflicts_with = "from")]
    times: Option<u32>,

    /// Begin one of them so often [default: when the one before has ended]
    #[arg(long, value_name = "TIME", requires = "times")]
    every: Option<Time>,

    /// Make one record of several that were taken, measure nothing
    #[arg(long, value_name = "FILE", num_args = 2.., value_hint = ValueHint::FilePath,
          conflicts_with_all = ["quick", "only", "from", "times"])]
    join: Vec<PathBuf>,

    /// Make and read files here
    ///
    /// On the file system that is to be measured; up to 1 GiB is written and removed again. What a
    /// run that is interrupted leaves there the next one removes.
    #[arg(long, value_name = "DIR", default_value_os_t = Settings::full().folder,
          value_hint = ValueHint::DirPath)]
    dir: PathBuf,

    /// Measure the network to this host, too
    ///
    /// HOST or HOST:PORT, where `onrush-lab measure --peer` runs.
    #[arg(long, value_name = "HOST")]
    remote: Option<String>,

    /// Read files here, too
    ///
    /// A directory of a mounted remote file system; up to 85 MiB are written and removed again, as
    /// in --dir.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    mounted: Option<PathBuf>,

    /// Be the host that --remote measures to
    ///
    /// Listens at ADDRESS:PORT for connections and datagrams until it is interrupted: it echoes,
    /// swallows, and reads a file of its own making to whoever asks, 16 connections at once.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = PEER_ADDRESS,
          conflicts_with_all = [
              "quick", "only", "json", "from", "join", "times", "remote", "mounted",
          ])]
    peer: Option<SocketAddr>,

    /// Tell the time by CLOCK_MONOTONIC_RAW
    ///
    /// Even if the processor has a counter of its own, which costs less to read.
    #[arg(long, conflicts_with = "from")]
    system_clock: bool,

    /// Take system calls only, and print what each thread had: what others start, several times
    ///
    /// With the nanoseconds of a tick, if they are known.
    #[arg(long, value_name = "NS", num_args = 0..=1, default_missing_value = "0", hide = true,
          conflicts_with_all = [
              "only", "json", "from", "join", "times", "remote", "mounted", "peer",
          ])]
    null_calls: Option<f64>,
}

/// Every address, IPv4 too.
const PEER_ADDRESS: &str = "[::]:7010";

/// Measures, or prints what was.
///
/// # Errors
///
/// If nothing can be measured, or a file not be written.
pub(crate) fn run(arguments: &Measure, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if let Some(address) = arguments.peer {
        let peer = Peer::listen(address).with_context(|| format!("cannot listen at {address}"))?;
        writeln!(out, "listening at {}", peer.address()?)?;
        out.flush()?;
        peer.serve();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(ns_per_tick) = arguments.null_calls {
        let calls = primitives::null_calls(&arguments.settings(), Some(ns_per_tick))?;
        writeln!(out, "{calls}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_empty = Cell::new(false);
    let report = |record: &MeasureRecord| {
        let is_row = |entry: &Entry| matches!(entry, Entry::Row(_));
        is_empty.set(!record.runs.iter().any(is_row));
        report(record)
    };
    let settings = arguments.settings();
    let measure = |command: &str| -> anyhow::Result<MeasureRecord> {
        if !arguments.join.is_empty() {
            let read = |file: &PathBuf| Record::read(file, primitives::NAME);
            let records: Result<Vec<_>, _> = arguments.join.iter().map(read).collect();
            return Ok(primitives::join(&records?, command)?);
        }
        match arguments.times {
            Some(times) => arguments.several(times, command),
            None => Ok(primitives::run(
                &settings,
                VERSION,
                command,
                bar_of_parts(),
            )?),
        }
    };
    let output = &arguments.output;
    let ended = output.of(primitives::NAME, measure, report, out)?;
    if is_empty.get() {
        out.flush()?;
        bail!("nothing could be measured; what is missing above says what would help");
    }
    Ok(ended)
}

impl Measure {
    /// Has this program measure so often, and joins what it found.
    fn several(&self, times: u32, command: &str) -> anyhow::Result<MeasureRecord> {
        let folder = tempfile::tempdir().context("cannot make a folder for records")?;
        let bar = bar_of_parts();
        let begin = Instant::now();
        let every = self.every.map_or(Duration::ZERO, |every| every.0);
        let mut records = Vec::new();
        for number in 1..=times {
            let part = f64::from(number - 1) / f64::from(times);
            let wait = (every * (number - 1)).saturating_sub(begin.elapsed());
            bar(part, &format!("run {number} of {times}"));
            thread::sleep(wait);
            let numbered = self.output.json_numbered(number);
            let file = numbered.unwrap_or_else(|| folder.path().join(format!("{number}.json")));
            self.one_of_several(&file).with_context(|| match records.len() {
                0 => format!("run {number} of {times} did not come to its end"),
                kept if self.output.json_numbered(number).is_some() => format!(
                    "run {number} of {times} did not come to its end; --join makes one record of \
                     the {kept} before it, which are in the files of --json"
                ),
                _ => format!(
                    "run {number} of {times} did not come to its end, and those before it are \
                     gone; --json keeps each"
                ),
            })?;
            records.push(Record::read(&file, primitives::NAME)?);
        }
        Ok(primitives::join(&records, command)?)
    }

    /// Measures by a process of its own, into this file.
    fn one_of_several(&self, file: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("measure").arg("--json").arg(file);
        command.args(self.quick.then_some("--quick"));
        command.args(self.system_clock.then_some("--system-clock"));
        command.arg("--dir").arg(&self.dir);
        let groups = self.only.iter().map(|group| group.name());
        command.args(groups.flat_map(|group| ["--only", group]));
        for (option, value) in [
            ("--remote", self.remote.as_ref().map(OsString::from)),
            ("--mounted", self.mounted.as_ref().map(OsString::from)),
        ] {
            command.args(
                value
                    .map(|value| [OsString::from(option), value])
                    .into_iter()
                    .flatten(),
            );
        }
        let ended = command.stdout(Stdio::null()).status();
        let ended = ended.context("cannot start this program again")?;
        // 1: a figure is impossible, which its record tells.
        match ended.code() {
            Some(0 | 1) => Ok(()),
            _ => bail!("it ended with {ended}; what it said is above"),
        }
    }

    fn settings(&self) -> Settings {
        let settings = settings(self.quick, Settings::quick, Settings::full);
        let is_wanted = |group: &Group| self.only.is_empty() || self.only.contains(group);
        Settings {
            groups: Group::ALL.into_iter().filter(is_wanted).collect(),
            folder: self.dir.clone(),
            remote: self.remote.clone(),
            mounted: self.mounted.clone(),
            system_clock: self.system_clock,
            null_calls: Some(
                ["/proc/self/exe", "measure", "--null-calls"]
                    .map(OsString::from)
                    .to_vec(),
            ),
            ..settings
        }
    }
}
