//! `onrush-lab bench`: the experiments, on a terminal.
//!
//! The experiments are in [`onrush_measure`]; the modules beside this one give them their settings
//! and print their tables. What all of them have in common is in [`frame`](crate::frame).

mod capacity;
mod cluster;
mod cue;
mod game;
mod group;
mod http;
mod lock;
mod mechanisms;
mod paths;
mod relay;
mod serve;
mod soak;
mod trains;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use capacity::Capacity;
use cluster::Cluster;
use cue::Cue;
use game::Game;
use group::Group;
use http::Http;
use lock::Lock;
use mechanisms::Mechanisms;
use paths::Paths;
use relay::RelayBench;
use serve::Serve;
use soak::Soak;
use trains::Trains;

/// Measure what Onrush does, and judge it
///
/// An experiment sends on loopback (cue, http) or in network namespaces that it makes for itself
/// and that go with it, which needs root; nowhere else. It ends with 0 when all bounds were kept, 1
/// when one was missed or a figure is void, 2 when it could not run.
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
    Mechanisms(Mechanisms),
    Relay(RelayBench),
    Cue(Cue),
    Group(Group),
    Game(Game),
    Http(Http),
    Paths(Paths),
    Trains(Trains),
    Cluster(Cluster),
}

/// Carries out an experiment, or prints one that was.
///
/// # Errors
///
/// If it could not run, with what it needs.
pub(crate) fn run(bench: &Bench, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &bench.experiment {
        Experiment::Capacity(arguments) => capacity::run(arguments, out),
        Experiment::Soak(arguments) => soak::run(arguments, out),
        Experiment::Serve(arguments) => serve::run(arguments, out),
        Experiment::Lock(arguments) => lock::run(arguments, out),
        Experiment::Mechanisms(arguments) => mechanisms::run(arguments, out),
        Experiment::Relay(arguments) => relay::run(arguments, out),
        Experiment::Cue(arguments) => cue::run(arguments, out),
        Experiment::Group(arguments) => group::run(arguments, out),
        Experiment::Game(arguments) => game::run(arguments, out),
        Experiment::Http(arguments) => http::run(arguments, out),
        Experiment::Paths(arguments) => paths::run(arguments, out),
        Experiment::Trains(arguments) => trains::run(arguments, out),
        Experiment::Cluster(arguments) => cluster::run(arguments, out),
    }
}
