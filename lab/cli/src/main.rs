//! The `onrush-lab` command: measures what Onrush and the operating system do, predicts it, and
//! compares.
//!
//! Results go to stdout, everything else to stderr. It ends with 0 when it did what it was asked, 1
//! when it checked something and found it wanting, 2 when it could not run.

mod args;
mod bench;
mod beside;
mod choose;
mod compare;
mod frame;
mod load;
mod measure;
mod predict;
mod report;
mod server_program;
mod simulate;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use onrush_cli::outcome::exit_code;

use args::{Arguments, Command};

fn main() -> ExitCode {
    exit_code("onrush-lab", run(&Arguments::parse().command))
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let outcome = match command {
        Command::Load(arguments) => load::run(arguments, &mut out)?,
        Command::Bench(arguments) => bench::run(arguments, &mut out)?,
        Command::Measure(arguments) => measure::run(arguments, &mut out)?,
        Command::Report(arguments) => report::run(arguments, &mut out)?,
        Command::Predict(arguments) => predict::run(arguments, &mut out)?,
        Command::Compare(arguments) => compare::run(arguments, &mut out)?,
        Command::Simulate(arguments) => simulate::run(arguments, &mut out)?,
        Command::Choose(arguments) => choose::run(arguments, &mut out)?,
        Command::Completions { shell } => {
            // Into memory first: the generator panics when it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "onrush-lab", &mut script);
            out.write_all(&script)?;
            ExitCode::SUCCESS
        }
    };
    out.flush()?;
    Ok(outcome)
}
