//! `onrush-lab bench trains`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::trains::{self, Settings};

use crate::frame::{Modes, Output, VERSION, bar_of_parts, settings};

/// What a train costs, and what may make it cheaper
///
/// Sends trains to thousands of receivers, a socket each, by a bare ring, and changes one thing at
/// a time: the order of sockets, one unconnected socket, smaller and larger batches, no report of
/// copies, joined trains, copies with one answer or none, another kind of ring, records of more
/// cache lines, fetched ahead or not. All take turns in rounds. Takes about five minutes; --quick
/// about one. Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Trains {
    /// One mode, shorter
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// Receivers
    #[arg(long, value_name = "N", default_value_t = Settings::default().receivers)]
    receivers: u32,

    /// Packets in a train
    #[arg(long, value_name = "N", default_value_t = Settings::default().packets)]
    packets: u32,

    /// Turns of each [default: 25; quick: 7]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,

    /// Who cuts trains: uso, software-gso or both [default: both; quick: uso]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    mode: Option<Modes>,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Trains, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut all = settings(arguments.quick, Settings::quick, Settings::default);
    all.receivers = arguments.receivers;
    all.packets = arguments.packets;
    all.rounds = arguments.rounds.unwrap_or(all.rounds);
    if let Some(mode) = arguments.mode {
        all.modes = mode.modes();
    }
    let measure = |command: &str| trains::run(&all, VERSION, command, bar_of_parts());
    arguments
        .output
        .of(trains::NAME, measure, trains::report, out)
}
