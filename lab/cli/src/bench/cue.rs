//! `onrush-lab bench cue`, on a terminal.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use onrush_measure::cue::report::Report;
use onrush_measure::cue::{self, CueRecord, Settings, plots};

use crate::beside::{self, Predicted};
use crate::frame::{Samples, VERSION, bar_of_part, command, draw_all, head, outcome};

/// What moving files to sockets costs, and what it leaves to others
///
/// Moves files over loopback TCP: by threads that read and write, by a bare sendfile, and by Cue
/// with the paper's schedules, with equal shares and with one that arranges itself; one file or
/// many at once, in memory or not. On the same processor a metering thread makes system calls for
/// as long as it is let. At 64 transfers, as fast as they go and over a slow line, the adaptive
/// schedule is to leave it at least 1.2 times the calls that user-driven transfers do, at no less
/// throughput; equal transfers are to share evenly (Jain's index at least 0.99); and one large file
/// is to cost at most 1.05 times a bare sendfile. Takes about four minutes, --quick half a minute,
/// and two processors; writes 1 GiB to /var/tmp meanwhile.
#[derive(Args, Debug)]
pub(crate) struct Cue {
    /// Only what is judged, shorter
    #[arg(long, conflicts_with = "from")]
    quick: bool,

    #[command(flatten)]
    samples: Samples,

    /// Draw charts into this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,

    /// How often everything has its turn [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    repeats: Option<u32>,

    #[command(flatten)]
    predicted: Predicted,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Cue, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let model = arguments.predicted.model()?;
    let record: CueRecord = arguments.samples.record(cue::NAME, || measure(arguments))?;
    if let Some(folder) = &arguments.plots {
        draw_all(folder, &plots::all(&record))?;
    }
    head(&record.environment, out)?;
    let report = Report::of(&record);
    write!(out, "{report}")?;
    let beside = |model: &_| onrush_measure::model::beside::cues(&record, model);
    beside::print(model.0.as_ref(), beside, out)?;
    Ok(outcome(report.passed()))
}

fn measure(arguments: &Cue) -> anyhow::Result<CueRecord> {
    let mut settings = if arguments.quick {
        Settings::quick()
    } else {
        Settings::full()
    };
    settings.repeats = arguments.repeats.unwrap_or(settings.repeats);
    Ok(cue::run(&settings, VERSION, &command(), bar_of_part())?)
}
