//! What is kept of the experiment.

use onrush_simulate::Settings as Simulated;
use serde::{Deserialize, Serialize};

use crate::error::{ExperimentError, bounds};
use crate::experiment::Record;

/// Its name on the command line and in files.
pub const NAME: &str = "cluster";

/// Nodes that can be started.
pub const NODES_MAX: u32 = 16;
/// Viewers who come in all: each has two ports of his own.
pub const VIEWERS_MAX: usize = 25_000;
/// Films that are written to the disk.
const FILMS_MAX: u32 = 1000;

/// Settings and runs in one file.
pub type ClusterRecord = Record<Settings, Run>;

/// What is started and who watches.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Nodes, viewers and films, here and in the simulation.
    pub simulated: Simulated,
    /// How long a film is, in seconds. A viewer who has seen it begins again.
    pub film_s: u32,
    /// So many viewers ask at once.
    pub askers: u32,
    /// How often it is done, each time with other viewers.
    pub repeats: u32,
}

impl Settings {
    /// Two thousand viewers for each of three nodes, at 1 Mbit/s.
    #[must_use]
    pub fn full() -> Self {
        Self::of(2000, [60, 60, 30, 60])
    }

    /// Sixty for each.
    #[must_use]
    pub fn quick() -> Self {
        Self::of(60, [20, 10, 5, 15])
    }

    fn of(viewers: u32, [stay_s, fill_s, settle_s, observe_s]: [u32; 4]) -> Self {
        let mut settings = Self {
            simulated: Simulated {
                films: 40,
                rate_bps: 1_000_000,
                // None of them goes while it is watched.
                node_bytes: 1 << 40,
                stay_s,
                fill_s,
                settle_s,
                observe_s,
                // Nodes write three times in the life of an entry, and not when their load moves.
                tell_part: 2.0,
                tell_s: 2,
                losses: Vec::new(),
                ..Simulated::quick()
            },
            film_s: 60,
            askers: 8,
            repeats: 1,
        };
        settings.have(3, viewers * 3);
        settings
    }

    /// So many nodes for so many viewers, each of which holds half as many again as its part.
    pub fn have(&mut self, nodes: u32, viewers: u32) {
        let simulated = &mut self.simulated;
        (simulated.nodes, simulated.viewers) = (nodes, viewers);
        let part = u64::from(viewers.div_ceil(nodes.max(1)));
        simulated.node_bps = part * simulated.rate_bps * 3 / 2;
        simulated.film_bytes = simulated.rate_bps / 8 * u64::from(self.film_s);
    }

    /// Refuses what cannot be carried out.
    pub(super) fn check(&self) -> Result<(), ExperimentError> {
        bounds! {
            self.simulated.nodes, 1..=NODES_MAX, Count, "nodes";
            self.simulated.films, 1..=FILMS_MAX, Count, "films";
            self.simulated.rate_bps, 100_000..=100_000_000, BitsPerSecond, "to each";
            self.film_s, 10..=3600, Count, "seconds of a film";
            self.askers, 1..=64, Count, "viewers who ask at once";
            self.repeats, 1..=100, Count, "repeats";
        }
        let checked = self.simulated.check();
        checked.map_err(|error| ExperimentError::Settings(error.to_string()))
    }

    /// From this second on all is counted.
    pub(super) fn counted_from_s(&self) -> u32 {
        self.simulated.fill_s + self.simulated.settle_s
    }
}

/// Once through.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// What the simulation says of these viewers.
    pub simulated: onrush_simulate::Run,
    /// All who came, in the order in which they were to.
    pub visits: Vec<Visit>,
    /// What nodes played, of each second that counts.
    pub seconds: Vec<Second>,
    /// Requests that nodes answered by sending the viewer on, as they counted them.
    pub sent_on: u64,
    /// Sessions that were set up, as nodes counted them.
    pub sessions: u64,
    /// Viewers whom a node refused, as nodes counted them.
    pub refused: u64,
    /// RTP packets that nodes sent.
    pub packets_sent: u64,
    /// Of these, those that came to viewers.
    pub packets_sunk: u64,
    /// Numbers that never came.
    pub sequence_missing: u64,
    /// Bytes that nodes read of films to play them.
    pub read_bytes: u64,
    /// Viewers whom something went wrong for.
    pub failed: u64,
    /// The first of what went wrong.
    pub failures: Vec<String>,
}

/// A viewer who came.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Visit {
    /// In which second it was to come.
    pub at_s: u32,
    /// So much later it came, in ns.
    pub late_ns: u64,
    /// From asking to being played to, in ns.
    pub joined_ns: u64,
    /// The film's rank.
    pub film: u32,
    /// The node that was asked first.
    pub asked: u32,
    /// The node that served it; `None` if something went wrong.
    pub served: Option<u32>,
    /// The node that serves it in the simulation.
    pub simulated: u32,
    /// How often it was sent on.
    pub redirects: u32,
    /// Whether that node had served this film before.
    pub is_warm: bool,
}

/// What nodes did in a second.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Second {
    /// Which.
    pub at_s: u32,
    /// Viewers who had come and not left, if all had been on time.
    pub due: u64,
    /// By node, the streams that it played.
    pub playing: Vec<u64>,
}
