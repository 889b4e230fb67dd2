//! `onrush manual`: the manual pages, made of what `--help` says.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::Arguments;

/// Writes `onrush.1` and a page for each command, as in `onrush-serve.1`, into a folder.
pub(crate) fn write(folder: &Path) -> anyhow::Result<ExitCode> {
    let cannot = || format!("cannot write manual pages into {}", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(cannot)?;
    Ok(ExitCode::SUCCESS)
}
