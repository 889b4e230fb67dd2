//! `onrush bench paths`, on a terminal.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use onrush_measure::experiment::Record;
use onrush_measure::paths::report::{Report, figures};
use onrush_measure::paths::{self, PathsRecord, Road, Settings};

use crate::beside::{self, Predicted};
use crate::units::Size;

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

    /// Write every sample to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Print such a file's table, measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    from: Option<PathBuf>,

    /// Write the figures into this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    svg: Option<PathBuf>,

    /// Only this path; may be given several times
    #[arg(long = "path", value_name = "NAME")]
    paths: Vec<onrush_sys::path::catalogue::Name>,

    /// Bytes of the file [default: 256MiB; quick: 32MiB]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,

    /// Runs of each [default: 10; quick: 3]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// Bytes of a packet, RTP header included; may be given several times
    #[arg(long = "packet", value_name = "BYTES")]
    packets: Vec<u32>,

    /// Only over this road: uso, software-gso or tcp
    #[arg(long, value_name = "ROAD", hide_possible_values = true)]
    road: Option<RoadName>,

    /// Make the device copy behind the paths' backs, to see the runs turn void
    #[arg(long, hide = true)]
    plant_copies: bool,

    #[command(flatten)]
    predicted: Predicted,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoadName {
    Uso,
    SoftwareGso,
    Tcp,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Paths, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let model = arguments.predicted.model()?;
    let record: PathsRecord = match &arguments.from {
        Some(file) => Record::read(file, paths::NAME)?,
        None => measure(&arguments.settings())?,
    };
    if let Some(file) = &arguments.json {
        record.write(file)?;
    }
    if let Some(folder) = &arguments.svg {
        for figure in figures(&record)? {
            let file = folder.join(&figure.file);
            let svg = figure.chart.render()?;
            std::fs::write(&file, svg).with_context(|| format!("{}", file.display()))?;
        }
    }
    let report = Report::of(&record);
    let environment = &record.environment;
    writeln!(
        out,
        "{}, {} processors; Linux {}; onrush {}; {}\n{}",
        environment.cpu,
        environment.cores.len(),
        environment.kernel,
        environment.version,
        environment.date,
        environment.command
    )?;
    write!(out, "{report}")?;
    let beside = |model: &_| onrush_measure::model::beside::paths(&record, model);
    beside::print(model.as_ref(), beside, out)?;
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
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
        if let Some(road) = self.road {
            settings.roads = vec![match road {
                RoadName::Uso => Road::Uso,
                RoadName::SoftwareGso => Road::SoftwareGso,
                RoadName::Tcp => Road::Tcp,
            }];
        }
        settings
    }
}

fn measure(settings: &Settings) -> anyhow::Result<PathsRecord> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let command = format!("onrush {}", arguments.join(" "));
    // Hidden by itself where stderr is no terminal.
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}  {elapsed}")
            .expect("a constant that has been seen to work"),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    let progress = |done: usize, all: usize, next: &str| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(next.to_owned());
    };
    let measured = paths::carry_out(settings, env!("ONRUSH_VERSION"), &command, progress);
    bar.finish_and_clear();
    match measured {
        Err(error) if error.needs_root() => bail!(
            "{error}: the experiment makes network namespaces, attaches an eBPF program and pins a \
             thread; try: sudo {command}"
        ),
        measured => Ok(measured?),
    }
}
