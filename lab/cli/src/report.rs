//! `onrush-lab report`: all measurements of a directory on one page.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use onrush_measure::report;

use crate::frame::write;

/// Join the results of measurements into one page
///
/// Looks for files that --json wrote, and for pictures (SVG), in DIR and the directories below, and
/// writes one file of HTML with their tables and plots. It needs no network to be read, follows the
/// reader's choice of light or dark, and fits a phone and a printed sheet.
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Where the results are
    #[arg(value_hint = ValueHint::DirPath)]
    dir: PathBuf,

    /// Write the page to this file [default: stdout]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// Writes the page of a directory.
pub(crate) fn run(arguments: &Report, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let page = report::of_folder(&arguments.dir)?;
    match &arguments.html {
        Some(file) => write(file, &page.render())?,
        None => out.write_all(page.render().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
