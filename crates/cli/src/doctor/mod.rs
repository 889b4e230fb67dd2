//! `onrush doctor`: what this machine can do, what a lack costs, and how to mend it.
//!
//! The kernel is asked by [`onrush_sys::probe`]; here its answers become rows for people and for
//! programs. Ratios of cost were measured on another machine; they say which lack matters, not what
//! this one will do.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueHint};
use onrush_lock::memory::Area;
use onrush_sys::path::{self, PathName, Vectored};
use onrush_sys::pool::Pool;
use onrush_sys::probe::Facts;
use onrush_sys::wake::Waker;
use serde::Serialize;

mod later;
mod rows;
mod sandbox;
mod saved;

use crate::state::{StateOption, default_state};
use crate::units::indented;
use rows::{Row, rows};

/// Say what this machine can do, and what a lack costs
///
/// Tries every feature of the kernel that Onrush uses, once, on loopback, and says what was found,
/// what a missing one costs, and how to get it; then which data path the server will take and why.
/// Ends with 1 if that is not the best one.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Try direct reads on this directory's file system
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    media_dir: PathBuf,

    /// Look for saved indexes here [default: as onrush serve]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    state: Option<StateOption>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// List the bounds on everything that can grow
    #[arg(long)]
    pub(crate) limits: bool,
}

/// The data path that the server will take, by its name in the catalogue.
#[derive(Serialize)]
struct Choice {
    name: &'static str,
    /// The better ones that are not available here.
    passed_over: Vec<PassedOver>,
}

/// A data path that is not available here.
#[derive(Serialize)]
struct PassedOver {
    name: &'static str,
    why: String,
}

pub(crate) fn run(arguments: &Doctor, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let facts = Facts::gather(Some(&arguments.media_dir));
    let mut rows = rows(&facts);
    let named = arguments.state.as_ref();
    let state = named.map_or_else(default_state, |it| it.directory().map(Into::into));
    rows.push(saved::row(state.as_deref()));
    rows.extend(sandbox::rows(&facts));
    let (choice, vectored) = choose()?;
    rows.extend(later::rows(&facts, vectored));
    if arguments.json {
        print_json(&rows, &choice, out)?;
    } else {
        print_text(&rows, &choice, out)?;
    }
    Ok(if choice.passed_over.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn print_text(rows: &[Row], choice: &Choice, out: &mut dyn Write) -> anyhow::Result<()> {
    for row in rows {
        writeln!(
            out,
            "{:<5} {:<18} {}",
            row.state.word(),
            row.what,
            indented(&row.found, 25)
        )?;
        if !row.means.is_empty() {
            writeln!(out, "{:24} means: {}", "", indented(row.means, 32))?;
        }
        if !row.remedy.is_empty() {
            writeln!(out, "{:24} do:    {}", "", indented(&row.remedy, 32))?;
        }
    }
    let best = if choice.passed_over.is_empty() {
        " (the best)"
    } else {
        ""
    };
    writeln!(out, "\ndata path: {}{best}", choice.name)?;
    for PassedOver { name, why } in &choice.passed_over {
        writeln!(out, "  not {}", indented(&format!("{name}: {why}"), 6))?;
    }
    if rows.iter().any(|row| row.means.contains("times")) {
        writeln!(
            out,
            "Costs are typical: they were measured on another machine."
        )?;
    }
    Ok(())
}

fn print_json(rows: &[Row], choice: &Choice, out: &mut dyn Write) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema_version: u32,
        version: &'static str,
        data_path: &'a Choice,
        rows: &'a [Row],
    }
    let version = env!("ONRUSH_VERSION");
    let document = Document {
        schema_version: 1,
        version,
        data_path: choice,
        rows,
    };
    writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
    Ok(())
}

/// Opens the path that the server would open here, and keeps the reasons against better ones.
fn choose() -> anyhow::Result<(Choice, Vectored)> {
    let pool = Arc::new(Pool::new(Area::map(TRIAL_BYTES)?, TRIAL_BYTES));
    let waker = Arc::new(Waker::new()?);
    let mut passed_over = Vec::new();
    let path = path::open_best(PathName::ALL[0], &pool, &waker, |name, error| {
        passed_over.push(PassedOver {
            name: name.as_str(),
            why: error.to_string(),
        });
    });
    let choice = Choice {
        name: path.name().as_str(),
        passed_over,
    };
    Ok((choice, path.vectored()))
}

/// A memory area large enough to open a path on.
const TRIAL_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_names_every_better_path() {
        let (choice, _) = choose().unwrap();
        let all: Vec<_> = PathName::ALL.iter().map(|name| name.as_str()).collect();
        let passed_over: Vec<_> = choice.passed_over.iter().map(|path| path.name).collect();
        assert_eq!(
            [passed_over, vec![choice.name]].concat(),
            all[..choice.passed_over.len() + 1]
        );
    }
}
