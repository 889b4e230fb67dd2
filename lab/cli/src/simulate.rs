//! `onrush-lab simulate`: many machines, on paper.

use std::io::Write;
use std::process::ExitCode;

use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand};
use onrush_cli::units::{Rate, Size, Time, within};
use onrush_measure::simulate::{self, NAME};
use onrush_simulate::{FILMS_MAX, NODES_MAX, Settings, VIEWERS_MAX};

use crate::frame::{Output, VERSION, bar_of_part};

/// Simulate more machines than there are here
#[derive(Args, Debug)]
pub(crate) struct Simulate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Cluster(Cluster),
}

/// A service of many nodes and millions of viewers
///
/// Lets viewers come, be sent to a node, and leave, under a virtual clock: by the rule that the
/// product has for it, by a plain ring of consistent hashing, and at random. Tells how often a
/// node had the film that was asked for, how evenly nodes are used, how often viewers are sent on,
/// what goes through the registry and out of the object store, and what follows as nodes die.
/// Sends nothing, needs no rights, and takes a minute, --quick a second.
#[derive(Args, Debug)]
struct Cluster {
    /// Ten nodes and 100,000 viewers
    #[arg(long)]
    quick: bool,

    /// Nodes
    #[arg(long, value_name = "N", value_parser = up_to(NODES_MAX))]
    nodes: Option<u32>,

    /// Viewers at once
    #[arg(long, value_name = "N", value_parser = up_to(VIEWERS_MAX))]
    viewers: Option<u32>,

    /// Films
    #[arg(long, value_name = "N", value_parser = up_to(FILMS_MAX))]
    films: Option<u32>,

    /// How unevenly films are asked for: the k-th by k to the power of minus this
    #[arg(long, value_name = "EXPONENT", value_parser = exponent)]
    zipf: Option<f64>,

    /// What a node sends at the most
    #[arg(long, value_name = "RATE",
          value_parser = within(Rate(1_000_000), Rate(10_000_000_000_000)))]
    node_rate: Option<Rate>,

    /// What a node keeps of films, in memory and on its disk
    #[arg(long, value_name = "SIZE", value_parser = within(Size(1 << 30), Size(1 << 50)))]
    node_store: Option<Size>,

    /// How long a viewer stays, on average
    #[arg(long, value_name = "TIME")]
    stay: Option<Time>,

    /// Nodes that die at once, one number after the other
    #[arg(long, value_name = "N", value_delimiter = ',')]
    lose: Option<Vec<u32>>,

    /// What random numbers begin with
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    #[command(flatten)]
    output: Output,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Simulate, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let What::Cluster(cluster) = &arguments.what;
    let settings = cluster.settings();
    let simulate = |command: &str| simulate::run(&settings, VERSION, command, bar_of_part());
    cluster.output.of(NAME, simulate, simulate::report, out)
}

impl Cluster {
    fn settings(&self) -> Settings {
        let of = match self.quick {
            true => Settings::quick(),
            false => Settings::full(),
        };
        let nodes = self.nodes.unwrap_or(of.nodes);
        let losses = of.losses.iter().copied();
        // Those that there are, with one left.
        let mut left = nodes.saturating_sub(1);
        let possible = losses.take_while(|&lost| {
            let is_possible = lost <= left;
            left = left.saturating_sub(lost);
            is_possible
        });
        Settings {
            nodes,
            viewers: self.viewers.unwrap_or(of.viewers),
            films: self.films.unwrap_or(of.films),
            zipf: self.zipf.unwrap_or(of.zipf),
            node_bps: self.node_rate.map_or(of.node_bps, |rate| rate.0),
            node_bytes: self.node_store.map_or(of.node_bytes, |size| size.0),
            stay_s: self.stay.map_or(of.stay_s, |time| {
                u32::try_from(time.0.as_secs()).unwrap_or(u32::MAX)
            }),
            losses: self.lose.clone().unwrap_or_else(|| possible.collect()),
            seed: self.seed.unwrap_or(of.seed),
            ..of
        }
    }
}

/// A number from 1.
fn up_to(most: u32) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(most))
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent: f64 = text
        .parse()
        .map_err(|_| "write a number, as 0.8".to_owned())?;
    match (0.0..=3.0).contains(&exponent) {
        true => Ok(exponent),
        false => Err("write a number from 0 (all films alike) to 3".to_owned()),
    }
}
