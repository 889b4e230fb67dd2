//! `onrush-lab bench cluster`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_cli::units::{Rate, Time};
use onrush_measure::cluster::{self, ClusterRecord, NODES_MAX, Settings};

use crate::frame::{Output, VERSION, bar_of_part, settings};
use crate::server_program::server_program;

/// Three real nodes of a cluster beside the same three simulated
///
/// The simulation (onrush-lab simulate cluster) says who comes when, asks which node for which
/// film, and stays for how long; then as many viewers do so with real nodes and a server of NATS,
/// over RTSP and through redirects, and a sink counts what they are sent. The busiest node is to
/// play no more than 1.15 times the mean, a viewer to be sent on once at the most, and what the
/// simulation says of this is to be true to a tenth. Takes four minutes, --quick one. Needs root,
/// nats-server, and an onrush with clusters beside this program (cargo build --release -p onrush
/// --features cluster).
#[derive(Args, Debug)]
#[command(mut_arg("from", |from| from.conflicts_with_all(MEASURED)))]
pub(crate) struct Cluster {
    /// Sixty viewers for each node, for half a minute
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// Nodes
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u32>,

    /// Viewers at once, of all nodes together
    #[arg(short = 'n', long, value_name = "N")]
    viewers: Option<u32>,

    /// Films
    #[arg(long, value_name = "N")]
    films: Option<u32>,

    /// A film's rate
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// How long viewers stay, on average
    #[arg(long, value_name = "TIME")]
    stay: Option<Time>,

    /// How long it is counted
    #[arg(long, value_name = "TIME")]
    time: Option<Time>,

    /// What random numbers begin with
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Runs, each with other viewers
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
}

/// What says how to measure, and nothing of a record.
const MEASURED: &[&str] = &[
    "quick", "nodes", "viewers", "films", "rate", "stay", "time", "seed", "repeats",
];

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Cluster, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let measure = |command: &str| -> anyhow::Result<ClusterRecord> {
        let (settings, onrush) = (arguments.settings(), server_program()?);
        let progress = bar_of_part();
        Ok(cluster::run(
            &settings, &onrush, VERSION, command, progress,
        )?)
    };
    arguments
        .output
        .of(cluster::NAME, measure, cluster::report, out)
}

impl Cluster {
    fn settings(&self) -> Settings {
        let mut settings = settings(self.quick, Settings::quick, Settings::full);
        let simulated = &mut settings.simulated;
        let seconds = |time: Time| u32::try_from(time.0.as_secs()).unwrap_or(u32::MAX);
        simulated.films = self.films.unwrap_or(simulated.films);
        simulated.rate_bps = self.rate.map_or(simulated.rate_bps, |rate| rate.0);
        simulated.stay_s = self.stay.map_or(simulated.stay_s, seconds);
        simulated.observe_s = self.time.map_or(simulated.observe_s, seconds);
        simulated.seed = self.seed.unwrap_or(simulated.seed);
        let nodes = self.nodes.unwrap_or(simulated.nodes);
        let viewers = self.viewers.unwrap_or(simulated.viewers);
        settings.have(nodes, viewers);
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings
    }
}
