//! `onrush-lab bench paths`, on a terminal.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum, ValueHint};
use onrush_measure::paths::report::{Report, drawings};
use onrush_measure::paths::{self, PathsError, PathsRecord, Settings, Transport};

use crate::beside::{self, Predicted};
use crate::frame::{
    Samples, VERSION, bar_of_runs, command, draw_all, head_with, outcome, with_rights,
};
use onrush_cli::units::Size;

/// CPU to move a file by each data path
///
/// Sends a file once by every path of the catalogue, turn about on one processor, in packets of 256
/// bytes to 8 KB: over UDP to a sink that counts, where the device cuts trains (uso) or the kernel
/// does (software-gso), and over TCP to a receiver that drains. Prints the table of Halvorsen,
/// Dalseng and Griwodz with our columns, and their claims beside what was measured. Takes some
/// twenty minutes; --quick less than one. Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Paths {
    /// A smaller file, three sizes of packets, three runs
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    samples: Samples,

    /// Draw the paper's figures into this folder
    #[arg(long, alias = "svg", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,

    /// Only this path; may be given several times
    #[arg(long = "path", value_name = "NAME")]
    paths: Vec<onrush_paths::Name>,

    /// Bytes of the file [default: 256MiB; quick: 32MiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,

    /// Runs of each [default: 10; quick: 3]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// Bytes of a packet, RTP header included; may be given several times
    #[arg(long = "packet", value_name = "BYTES")]
    packets: Vec<u32>,

    /// Only over this transport: uso, software-gso or tcp
    #[arg(
        long,
        alias = "road",
        value_name = "TRANSPORT",
        hide_possible_values = true
    )]
    transport: Option<TransportName>,

    /// Make the device copy behind the paths' backs, to see the runs turn void
    #[arg(long, hide = true)]
    plant_copies: bool,

    #[command(flatten)]
    predicted: Predicted,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TransportName {
    Uso,
    SoftwareGso,
    Tcp,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Paths, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let model = arguments.predicted.model()?;
    let record: PathsRecord = arguments
        .samples
        .record(paths::NAME, || measure(&arguments.settings()))?;
    if let Some(folder) = &arguments.plots {
        draw_all(folder, &drawings(&record))?;
    }
    let report = Report::of(&record);
    head_with(&record.environment, "", out)?;
    write!(out, "{report}")?;
    let beside = |model: &_| onrush_measure::model::beside::paths(&record, model);
    beside::print(model.0.as_ref(), beside, out)?;
    Ok(outcome(report.passed()))
}

impl Paths {
    fn settings(&self) -> Settings {
        let mut settings = if self.quick {
            Settings::quick()
        } else {
            Settings::full()
        };
        settings.file_bytes = self.size.map_or(settings.file_bytes, |size| size.0);
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings.planted_copies = self.plant_copies;
        if !self.paths.is_empty() {
            let names = self.paths.iter().map(|name| name.as_str().to_owned());
            settings.paths = names.collect();
        }
        if !self.packets.is_empty() {
            settings.packet_bytes.clone_from(&self.packets);
        }
        if let Some(transport) = self.transport {
            settings.transports = vec![match transport {
                TransportName::Uso => Transport::Uso,
                TransportName::SoftwareGso => Transport::SoftwareGso,
                TransportName::Tcp => Transport::Tcp,
            }];
        }
        settings
    }
}

fn measure(settings: &Settings) -> anyhow::Result<PathsRecord> {
    let bar = bar_of_runs();
    let progress = move |done: usize, all: usize, next: &str| bar(done as u64, all as u64, next);
    with_rights(
        paths::run(settings, VERSION, &command(), progress),
        PathsError::needs_root,
        "the experiment makes network namespaces, attaches an eBPF program and pins a thread",
    )
}
