//! `onrush-lab measure`: what every primitive of the operating system costs here; predicted,
//! measured, explained.
//!
//! The probes of four [`Group`]s run in rounds, one after the other and then all again,
//! so that what a machine does for a while falls on all of them alike. A probe gives raw samples to
//! a `Found`; all that is said about them is computed from there, afterwards, by `rows`: what the
//! hardware alone would take, what software adds, what follows from both, what was measured, and a
//! sentence about the difference.
//!
//! A figure that its own probe shows to be impossible is void. What this machine, this user or this
//! file system cannot do is [`Missing`], by name. Nothing is sent outside loopback and namespaces
//! of our own unless a remote is named.
//!
//! The files stand on each other in this order: `record` on none, `method` on it, `scratch` and
//! `peer` on none; `null_calls`, `staircase` and `blocks` on `method`, `fault` and `cache` on
//! `scratch`, `http` on `blocks`; then the groups `cpu`, `memory`, `network` and `file`; `rows`
//! and `notes` on what all of these have found. `join` makes one record of several.

mod blocks;
mod cache;
mod cpu;
mod fault;
mod file;
mod http;
mod join;
mod memory;
mod method;
mod network;
mod notes;
mod null_calls;
pub mod peer;
mod record;
mod rows;
mod scratch;
mod staircase;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::stats::to_f64;

pub use crate::table::Better;
pub use join::join;
use method::Found;
pub use null_calls::{Again, null_calls};
pub use record::{
    Curve, Entry, Estimate, Group, Mark, Measured, Missing, Note, Point, Prediction, Predictions,
    Row, Series, Unit,
};

/// Its name in files.
pub const NAME: &str = "measure";

/// What was measured: rows, curves, what is missing and what must be known, in the order of the
/// report.
pub type MeasureRecord = Record<Settings, Entry>;

/// How the primitives are measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Which groups.
    pub groups: Vec<Group>,
    /// Shorter and fewer.
    pub quick: bool,
    /// How often everything has its turn.
    pub rounds: u32,
    /// Where files are made and read.
    pub folder: PathBuf,
    /// Another machine that runs `onrush-lab measure --peer`, as `HOST:PORT`.
    pub remote: Option<String>,
    /// A directory of a mounted remote file system to read from as well.
    pub mounted: Option<PathBuf>,
    /// Reads CLOCK_MONOTONIC_RAW even if the processor has a counter.
    pub system_clock: bool,
    /// How this program is started again for what differs from process to process; if it is not,
    /// that is measured in this process alone.
    #[serde(skip)]
    pub null_calls: Option<Again>,
}

impl Settings {
    /// Whether the same is measured. How this program is started again is in no record.
    fn same_as(&self, other: &Self) -> bool {
        let of = |settings: &Self| Self {
            null_calls: None,
            ..settings.clone()
        };
        of(self) == of(other)
    }

    /// All groups, ten minutes at most.
    #[must_use]
    pub fn full() -> Self {
        Self {
            groups: Group::ALL.to_vec(),
            quick: false,
            rounds: 8,
            folder: "/var/tmp".into(),
            remote: None,
            mounted: None,
            system_clock: false,
            null_calls: None,
        }
    }

    /// All groups, a minute at most.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            quick: true,
            rounds: 5,
            ..Self::full()
        }
    }
}

/// Measures; `progress` is told how much is done, as a part of one, and what comes next.
///
/// # Errors
///
/// Only if nothing can be measured; what is missing otherwise is in the record.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl FnMut(f64, &str) + Send,
) -> Result<MeasureRecord, ExperimentError> {
    let mut record = Record::new(NAME, Environment::here(version, command), settings.clone());
    // On a thread of its own, which it binds to a processor: the caller's stays free.
    let measured = thread::scope(|scope| scope.spawn(|| all(settings, progress)).join());
    record.runs = measured.map_err(|_| failed())??;
    Ok(record)
}

fn all(
    settings: &Settings,
    mut progress: impl FnMut(f64, &str),
) -> Result<Vec<Entry>, ExperimentError> {
    let predictions = rows::predictions(settings);
    progress(
        0.0,
        &format!(
            "{} rows are predicted; SHA-256 {}",
            predictions.rows.len(),
            predictions.sha256
        ),
    );
    let method = method::Method::new(settings)?;
    let mut found = Found::default();
    let mut watch = notes::Watch::begin();
    let steps = f64::from(settings.rounds) * to_f64(settings.groups.len());
    let parts = if settings.quick { 1 } else { PARTS };
    let mut done = 0.0;
    // Each group twice, far apart: what changes with the minutes is in the samples of every row.
    for part in 0..parts {
        let rounds = settings.rounds * part / parts..settings.rounds * (part + 1) / parts;
        for group in &settings.groups {
            let mut memory = memory::Kept::default();
            let mut network = network::Kept::default();
            let mut file = file::Kept::default();
            for round in rounds.clone() {
                progress(
                    done / steps,
                    &format!("{}, round {}", group.name(), round + 1),
                );
                found.begin(round);
                match group {
                    Group::Cpu => cpu::measure(&method, &mut found),
                    Group::Memory => memory::measure(&method, &mut found, &mut memory),
                    Group::Network => network::measure(&method, &mut found, &mut network),
                    Group::File => file::measure(&method, &mut found, &mut file),
                }
                watch.look();
                done += 1.0;
            }
        }
    }
    let mut entries = rows::entries(settings, &method, &found, &predictions);
    entries.extend(watch.notes(&method, &found).into_iter().map(Entry::Note));
    Ok(entries)
}

/// A probe has failed in a way that it should not have.
fn failed() -> ExperimentError {
    let words = "a probe has failed; what it said is above. Leave its group out with --only";
    ExperimentError::subject(words)
}

/// Parts of a full run, in each of which every group has its turn.
const PARTS: u32 = 2;

/// The most that one wait for a partner, a peer or a disk may take.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
