//! `onrush bench`: the experiments, on a terminal.
//!
//! The experiments are in [`onrush_measure`]; the modules beside this one give them their settings and print their
//! tables. What all of them have in common is in [`frame`](crate::frame).

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::bench_capacity::{self, Capacity};
use crate::bench_cue::{self, Cue};
use crate::bench_group::{self, Group};
use crate::bench_http::{self, Http};
use crate::bench_lock::{self, Lock};
use crate::bench_paths::{self, Paths};
use crate::bench_relay::{self, RelayBench};
use crate::bench_serve::{self, Serve};
use crate::bench_soak::{self, Soak};

/// Measure what Onrush does, and judge it
///
/// An experiment sends on loopback (cue, http) or in network namespaces that it makes for itself and
/// that go with it, which needs root; nowhere else. It ends with 0 when all bounds were kept, 1 when one
/// was missed or a figure is void, 2 when it could not run.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Serve(Serve),
    Capacity(Capacity),
    Soak(Soak),
    Lock(Lock),
    Relay(RelayBench),
    Cue(Cue),
    Group(Group),
    Http(Http),
    Paths(Paths),
}

/// Carries out an experiment, or prints one that was.
///
/// # Errors
///
/// If it could not run, with what it needs.
pub(crate) fn run(bench: &Bench, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &bench.experiment {
        Experiment::Capacity(arguments) => bench_capacity::run(arguments, out),
        Experiment::Soak(arguments) => bench_soak::run(arguments, out),
        Experiment::Serve(arguments) => bench_serve::run(arguments, out),
        Experiment::Lock(arguments) => bench_lock::run(arguments, out),
        Experiment::Relay(arguments) => bench_relay::run(arguments, out),
        Experiment::Cue(arguments) => bench_cue::run(arguments, out),
        Experiment::Group(arguments) => bench_group::run(arguments, out),
        Experiment::Http(arguments) => bench_http::run(arguments, out),
        Experiment::Paths(arguments) => bench_paths::run(arguments, out),
    }
}
