//! `onrush-lab bench cue`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use onrush_measure::cue::scan::{self, Part};
use onrush_measure::cue::{self, CueRecord, Settings};
use onrush_measure::experiment::Keep;
use onrush_measure::model::beside;

use crate::beside::Predicted;
use crate::frame::{Counters, Output, VERSION, bar_of_part, settings};
use crate::server_program::server_program;

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
///
/// With --scan: the paper's sets 1 to 9 and its table 8 one by one, and schedules of all k and t,
/// beside one and two metering processes, of files in memory and not, and of blocks in no order:
/// sixty files of 12 MB each time, ten times over. Each of the paper's claims is judged by its
/// schedule in the proportions of a machine of today, and so is the schedule that yields only when
/// somebody waits: it is to cost nothing where nobody does, and else to leave what the same
/// schedule leaves that always pauses. Takes about three hours, which can be taken in parts (see
/// below), --quick a few minutes; what was measured so far is in the file of --json meanwhile.
/// Needs the program onrush beside this one, and vsftpd and root for a part of table 8.
#[derive(Args, Debug)]
pub(crate) struct Cue {
    /// Only what is judged, shorter
    #[arg(long, conflicts_with = "from")]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,

    /// How often everything has its turn [default: 3]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    repeats: Option<u32>,

    #[command(flatten)]
    predicted: Predicted,

    /// The paper's sets and all schedules instead, or a part of them
    #[arg(long, value_name = "PART", num_args = 0..=1, require_equals = true,
          default_missing_value = "all", conflicts_with_all = ["predict", "counters"])]
    scan: Option<Scan>,
}

/// What is scanned. Times are those of ten repeats.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scan {
    /// Everything, in three hours
    All,
    /// The paper's sets 1 to 9, in 40 minutes
    Sets,
    /// Every k by every t, and blocks in no order, in 80 minutes
    Schedules,
    /// The paper's table 8, in an hour
    Ftp,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Cue, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if arguments.scan.is_some() || arguments.output.experiment()?.as_deref() == Some(scan::NAME) {
        return scan(arguments, out);
    }
    let predicted = arguments.predicted.model()?;
    let report = |record: &CueRecord| {
        let mut report = cue::report(record);
        report.add(predicted.told(|model| beside::cues(record, model)));
        report
    };
    let mut settings = settings(arguments.quick, Settings::quick, Settings::full);
    settings.repeats = arguments.repeats.unwrap_or(settings.repeats);
    settings.counters = arguments.counters.are_asked()?;
    let measure = |command: &str| cue::run(&settings, VERSION, command, bar_of_part());
    arguments.output.of(cue::NAME, measure, report, out)
}

fn scan(arguments: &Cue, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (quick, full) = (scan::Settings::quick, scan::Settings::full);
    let settings = settings(arguments.quick, quick, full);
    let mut settings = match arguments.scan.unwrap_or(Scan::All) {
        Scan::All => settings,
        Scan::Sets => settings.only(Part::Sets),
        Scan::Schedules => settings.only(Part::Schedules),
        Scan::Ftp => settings.only(Part::Ftp),
    };
    settings.repeats = arguments.repeats.unwrap_or(settings.repeats);
    let measure = |command: &str, keep: Keep<'_, _, _>| {
        let program = server_program()?;
        let record = scan::run(&settings, &program, (VERSION, command), bar_of_part(), keep);
        anyhow::Ok(record?)
    };
    let output = &arguments.output;
    output.of_long(scan::NAME, measure, scan::report, out)
}
