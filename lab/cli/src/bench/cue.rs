//! `onrush-lab bench cue`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::cue::{self, CueRecord, Settings};
use onrush_measure::model::beside;

use crate::beside::Predicted;
use crate::frame::{Output, VERSION, bar_of_part, settings};

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
    output: Output,

    /// How often everything has its turn [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    repeats: Option<u32>,

    #[command(flatten)]
    predicted: Predicted,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Cue, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let predicted = arguments.predicted.model()?;
    let report = |record: &CueRecord| {
        let mut report = cue::report(record);
        report.add(predicted.told(|model| beside::cues(record, model)));
        report
    };
    let mut settings = settings(arguments.quick, Settings::quick, Settings::full);
    settings.repeats = arguments.repeats.unwrap_or(settings.repeats);
    let measure = |command: &str| cue::run(&settings, VERSION, command, bar_of_part());
    arguments.output.of(cue::NAME, measure, report, out)
}
