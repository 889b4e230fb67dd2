//! Where the server is that experiments start.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, ensure};

/// The program `onrush` beside this one.
///
/// # Errors
///
/// If it is not there, with how to come by it.
pub(crate) fn server_program() -> anyhow::Result<PathBuf> {
    let program = env::current_exe()
        .context("find this program")?
        .with_file_name("onrush");
    ensure!(
        program.is_file(),
        "{} is not there; build it (cargo build --release -p onrush), or copy it beside onrush-lab",
        program.display()
    );
    Ok(program)
}
