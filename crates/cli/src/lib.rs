//! The `onrush` command: serves, and tells what it serves and what the machine offers.
//!
//! Results go to stdout, everything else to stderr. It ends with 0 when it did what it was asked, 1
//! when it checked something and found it wanting, 2 when it could not run.
//!
//! What others use of it: [`units`] and [`outcome`] (`onrush-lab` is a command, too), and
//! [`embed`], which reads a configuration as `onrush serve` does.

#![warn(clippy::missing_errors_doc)]

mod addresses;
mod args;
mod channels;
mod cluster;
mod cluster_command;
mod cluster_options;
mod configuration;
mod cores;
mod ctl;
mod doctor;
mod downloads;
mod drain_options;
pub mod embed;
mod group;
mod hls_options;
mod inspect;
mod libraries;
mod limit_options;
mod limits;
mod log_queue;
mod manual;
mod multicast_options;
mod objects;
pub mod outcome;
mod published_options;
mod relay;
mod remedy;
mod sandbox;
mod sandbox_options;
mod serve;
mod serve_options;
mod service_manager;
mod sign;
mod signals;
mod state;
mod status_at_exit;
mod successor;
mod tls_options;
mod top;
pub mod units;
mod upload_options;
mod user;
mod user_options;
mod values;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Arguments, Command};
use outcome::exit_code;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let words = configuration::merged(env::args_os().collect(), |name| env::var_os(name));
    let result = words.and_then(run);
    log_queue::LOG_QUEUE.flush();
    exit_code("onrush", result)
}

fn run(words: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let outcome = match &Arguments::parse_from(&words).command {
        Command::Doctor(arguments) if arguments.limits => limits::print(arguments, &mut out)?,
        Command::Doctor(arguments) => doctor::run(arguments, &mut out)?,
        Command::Serve(arguments) => serve::run(arguments, words, &mut out)?,
        Command::Relay(arguments) => relay::run(arguments, &mut out)?,
        Command::Group(arguments) => group::run(arguments, &mut out)?,
        Command::Top(arguments) => top::run(arguments, &mut out)?,
        Command::Inspect(arguments) => inspect::run(arguments, &mut out)?,
        Command::User(arguments) => user::run(arguments, &mut out)?,
        Command::Sign(arguments) => sign::run(arguments, &mut out)?,
        Command::Check(arguments) => configuration::check(arguments, &mut out)?,
        Command::Config(arguments) => configuration::print(arguments, &mut out)?,
        Command::Ctl(arguments) => ctl::run(arguments, &mut out)?,
        Command::Cluster(arguments) => cluster_command::run(arguments, &mut out)?,
        Command::Reload(arguments) => ctl::reload(arguments, &mut out)?,
        Command::LaunchSuccessors { arguments } => successor::launch(arguments)?,
        Command::Manual { folder } => manual::write(folder)?,
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
