//! What is simulated.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Nodes, viewers and films, and how they behave.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Nodes at the beginning.
    pub nodes: u32,
    /// Viewers at once, on average.
    pub viewers: u32,
    /// Films that there are.
    pub films: u32,
    /// The film of rank k is asked for in proportion to k to the power of minus this (Zipf).
    pub zipf: f64,
    /// A stream's rate, in bits a second.
    pub rate_bps: u64,
    /// What a node holds, in bits a second: from the capacity that was measured.
    pub node_bps: u64,
    /// A film's bytes.
    pub film_bytes: u64,
    /// What a node keeps of films in memory and on its disk together, in bytes.
    pub node_bytes: u64,
    /// How long a viewer stays on average, in seconds; without memory.
    pub stay_s: u32,
    /// In this time viewers come until all are there, in seconds.
    pub fill_s: u32,
    /// Then for so long nothing is counted, in seconds: nodes get to have the films that they keep.
    pub settle_s: u32,
    /// Then all is counted for so long, in seconds.
    pub observe_s: u32,
    /// A node tells the registry its load when it has moved by this part of its capacity,
    pub tell_part: f64,
    /// or after so many seconds.
    pub tell_s: u32,
    /// So long after a node's last word the others take it for dead, in seconds.
    pub dead_s: u32,
    /// A viewer whose node died, or who was sent to a dead one, tries again within so many seconds.
    pub retry_s: u32,
    /// So many nodes die at once, then so many more, and so on. They do not come back.
    pub losses: Vec<u32>,
    /// After each loss nodes are watched for so long, in seconds.
    pub loss_s: u32,
    /// What random numbers begin with.
    pub seed: u64,
}

/// Settings that cannot be simulated.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{what} has to be {from} to {to}")]
pub struct SettingsError {
    /// Which one.
    pub what: &'static str,
    /// The least that it may be.
    pub from: u64,
    /// The most that it may be.
    pub to: u64,
}

/// Nodes that can be simulated.
pub const NODES_MAX: u32 = 10_000;
/// Viewers that can be simulated: some twenty bytes of memory each.
pub const VIEWERS_MAX: u32 = 50_000_000;
/// Films that can be simulated: some eighty bytes of memory each.
pub const FILMS_MAX: u32 = 10_000_000;

impl Settings {
    /// A national service: a thousand nodes and ten million viewers of a million films.
    #[must_use]
    pub fn full() -> Self {
        Self {
            nodes: 1000,
            viewers: 10_000_000,
            films: 1_000_000,
            zipf: 0.8,
            rate_bps: 4_000_000,
            node_bps: 15_500 * 4_000_000,
            film_bytes: 2_700_000_000,
            node_bytes: 8 << 40,
            stay_s: 1800,
            fill_s: 600,
            settle_s: 1800,
            observe_s: 600,
            tell_part: 0.005,
            tell_s: 10,
            dead_s: 5,
            retry_s: 5,
            losses: vec![1, 10, 100],
            loss_s: 180,
            seed: 1,
        }
    }

    /// The hundredth part of it: ten nodes, with a hundredth of the films.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            nodes: 10,
            viewers: 100_000,
            films: 10_000,
            losses: vec![1],
            ..Self::full()
        }
    }

    /// Viewers that a node holds.
    #[must_use]
    pub fn node_viewers(&self) -> u32 {
        let viewers = self.node_bps / self.rate_bps.max(1);
        u32::try_from(viewers).unwrap_or(u32::MAX)
    }

    /// Films that a node keeps.
    #[must_use]
    pub fn node_films(&self) -> u64 {
        self.node_bytes / self.film_bytes.max(1)
    }

    /// # Errors
    ///
    /// [`SettingsError`] tells the first that is out of its range.
    pub fn check(&self) -> Result<(), SettingsError> {
        let whole = u64::from(u32::MAX);
        let ranges = [
            (
                "the number of nodes",
                self.nodes.into(),
                1,
                NODES_MAX.into(),
            ),
            (
                "the number of viewers",
                self.viewers.into(),
                1,
                VIEWERS_MAX.into(),
            ),
            (
                "the number of films",
                self.films.into(),
                1,
                FILMS_MAX.into(),
            ),
            (
                "viewers that a node holds",
                self.node_viewers().into(),
                1,
                whole,
            ),
            ("films that a node keeps", self.node_films(), 1, 1 << 24),
            (
                "the time that a viewer stays, in s,",
                self.stay_s.into(),
                1,
                86_400,
            ),
            (
                "the time in which viewers come, in s,",
                self.fill_s.into(),
                1,
                86_400,
            ),
            (
                "the time that is counted, in s,",
                self.observe_s.into(),
                1,
                86_400,
            ),
            (
                "the time between tries, in s,",
                self.retry_s.into(),
                1,
                3600,
            ),
        ];
        for (what, value, from, to) in ranges {
            if !(from..=to).contains(&value) {
                return Err(SettingsError { what, from, to });
            }
        }
        let lost: u64 = self.losses.iter().copied().map(u64::from).sum();
        let (from, to) = (0, u64::from(self.nodes) - 1);
        if lost > to {
            let what = "the number of nodes that die";
            return Err(SettingsError { what, from, to });
        }
        Ok(())
    }
}
