//! `onrush bench cue`, on a terminal.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use onrush_measure::cue::report::Report;
use onrush_measure::cue::{self, CueRecord, Settings, plots};
use onrush_measure::experiment::Record;

use crate::beside::{self, Predicted};

/// What moving files to sockets costs, and what it leaves to others
///
/// Moves files over loopback TCP: by threads that read and write, by a bare sendfile, and by Cue with
/// the paper's schedules, with equal shares and with one that arranges itself; one file or many at
/// once, in memory or not. On the same processor a metering thread makes system calls for as long as
/// it is let. At 64 transfers, as fast as they go and over a slow line, the adaptive schedule is to
/// leave it at least 1.2 times the calls that user-driven transfers do, at no less throughput; equal
/// transfers are to share evenly (Jain's index at least 0.99); and one large file is to cost at most
/// 1.05 times a bare sendfile. Takes about four minutes, --quick half a minute, and two processors;
/// writes 1 GiB to /var/tmp meanwhile.
#[derive(Args, Debug)]
pub(crate) struct Cue {
    /// Only what is judged, shorter
    #[arg(long)]
    quick: bool,

    /// Write every sample to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Print such a file's tables, measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["json", "quick", "repeats"])]
    from: Option<PathBuf>,

    /// Draw charts into this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,

    /// How often everything has its turn [default: 3]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    #[command(flatten)]
    predicted: Predicted,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Cue, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let model = arguments.predicted.model()?;
    let record: CueRecord = match &arguments.from {
        Some(file) => Record::read(file, cue::NAME)?,
        None => measure(arguments)?,
    };
    if let Some(file) = &arguments.json {
        record.write(file)?;
    }
    if let Some(folder) = &arguments.plots {
        fs::create_dir_all(folder).with_context(|| format!("can not make {}", folder.display()))?;
        for (name, svg) in plots::all(&record)? {
            let file = folder.join(name);
            fs::write(&file, svg).with_context(|| format!("can not write {}", file.display()))?;
        }
    }
    let environment = &record.environment;
    let on = match &environment.virtual_machine {
        Some(host) => format!("a virtual machine ({host})"),
        None => "metal".to_owned(),
    };
    writeln!(
        out,
        "{}, {} processors, on {on}, load {:.1}; Linux {}; onrush {}; {}",
        environment.cpu,
        environment.cores.len(),
        environment.load_before,
        environment.kernel,
        environment.version,
        environment.date
    )?;
    writeln!(out, "{}", environment.command)?;
    let report = Report::of(&record);
    write!(out, "{report}")?;
    let beside = |model: &_| onrush_measure::model::beside::cues(&record, model);
    beside::print(model.as_ref(), beside, out)?;
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn measure(arguments: &Cue) -> anyhow::Result<CueRecord> {
    let mut settings = if arguments.quick {
        Settings::quick()
    } else {
        Settings::full()
    };
    settings.repeats = arguments.repeats.unwrap_or(settings.repeats);
    let words: Vec<_> = std::env::args().skip(1).collect();
    let command = format!("onrush {}", words.join(" "));
    // Hidden by itself where stderr is no terminal.
    let bar = ProgressBar::new(1000).with_style(
        ProgressStyle::with_template("{bar:30} {percent} %  {elapsed}")
            .expect("a constant that has been seen to work"),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of one, in thousandths"
    )]
    let progress = |part: f64| bar.set_position((part * 1000.0) as u64);
    let record = cue::carry_out(&settings, env!("ONRUSH_VERSION"), &command, progress);
    bar.finish_and_clear();
    Ok(record?)
}
