//! The `onrush` command: the only part of the project that prints.
//!
//! Results go to stdout, everything else to stderr. It ends with 0 when it did what it was asked, 1
//! when it checked something and found it wanting, 2 when it could not run.

mod args;
mod bench;
mod bench_capacity;
mod bench_cue;
mod bench_group;
mod bench_http;
mod bench_lock;
mod bench_paths;
mod bench_relay;
mod bench_serve;
mod bench_soak;
mod beside;
mod compare;
mod doctor;
mod downloads;
mod frame;
mod inspect;
mod limits;
mod load;
mod measure;
mod predict;
mod relay;
mod remedy;
mod report;
mod serve;
mod serve_options;
mod status_at_exit;
mod top;
mod units;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Arguments, Command};

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(outcome) => outcome,
        // Whoever read our output has seen enough of it.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // When stderr is gone too there is nobody left to tell.
            writeln!(io::stderr(), "onrush: {}", in_one_line(&error)).ok();
            ExitCode::from(2)
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let outcome = match command {
        Command::Doctor(arguments) if arguments.limits => limits::print(arguments, &mut out)?,
        Command::Doctor(arguments) => doctor::run(arguments, &mut out)?,
        Command::Serve(arguments) => serve::run(arguments, &mut out)?,
        Command::Relay(arguments) => relay::run(arguments, &mut out)?,
        Command::Top(arguments) => top::run(arguments, &mut out)?,
        Command::Inspect(arguments) => inspect::run(arguments, &mut out)?,
        Command::Load(arguments) => load::run(arguments, &mut out)?,
        Command::Bench(arguments) => bench::run(arguments, &mut out)?,
        Command::Measure(arguments) => measure::run(arguments, &mut out)?,
        Command::Report(arguments) => report::run(arguments, &mut out)?,
        Command::Predict(arguments) => predict::run(arguments, &mut out)?,
        Command::Compare(arguments) => compare::run(arguments, &mut out)?,
        Command::Completions { shell } => {
            // Into memory first: the generator panics when it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "onrush", &mut script);
            out.write_all(&script)?;
            ExitCode::SUCCESS
        }
    };
    out.flush()?;
    Ok(outcome)
}

/// The error and its causes, but none that an error before it has told already.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            let colon = if line.is_empty() { "" } else { ": " };
            line.extend([colon, &cause]);
        }
    }
    line.replace('\n', " ")
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once_and_on_one_line() {
        let system = io::Error::from_raw_os_error(libc::ENOENT).to_string();
        let error = |context: &str| {
            let cause = io::Error::from_raw_os_error(libc::ENOENT);
            in_one_line(&anyhow::Error::from(cause).context(context.to_owned()))
        };
        assert_eq!(error("media"), format!("media: {system}"));
        assert_eq!(
            error(&format!("media: {system}")),
            format!("media: {system}")
        );
        assert_eq!(error("two\nlines"), format!("two lines: {system}"));
    }
}
