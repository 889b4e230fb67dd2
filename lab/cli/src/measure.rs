//! `onrush-lab measure`: what every primitive of the operating system costs here.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
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

    /// Make and read files here
    ///
    /// On the file system that is to be measured; up to 1 GiB is written and removed again.
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
    /// A directory of a mounted remote file system; up to 85 MiB are written and removed again.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    mounted: Option<PathBuf>,

    /// Be the host that --remote measures to
    ///
    /// Listens at ADDRESS:PORT for connections and datagrams until it is interrupted: it echoes,
    /// swallows, and reads a file of its own making to whoever asks, 16 connections at once.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = PEER_ADDRESS,
          conflicts_with_all = ["quick", "only", "json", "from", "remote", "mounted"])]
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
          conflicts_with_all = ["only", "json", "from", "remote", "mounted", "peer"])]
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
    let measure = |command: &str| primitives::run(&settings, VERSION, command, bar_of_parts());
    let ended = arguments
        .output
        .of(primitives::NAME, measure, report, out)?;
    if is_empty.get() {
        out.flush()?;
        bail!("nothing could be measured; what is missing above says what would help");
    }
    Ok(ended)
}

impl Measure {
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
