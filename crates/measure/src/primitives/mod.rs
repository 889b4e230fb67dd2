//! `onrush measure`: what every primitive of the operating system costs here; predicted, measured, explained.
//!
//! The probes of four [`Group`]s are carried out in rounds, one after the other and then all again, so that
//! what a machine does for a while falls on all of them alike. A probe gives raw samples to a [`Found`]; all
//! that is said about them is computed from there, afterwards, by [`rows`]: what the hardware alone would take,
//! what software adds, what follows from both, what was measured, and a sentence about the difference.
//!
//! A figure that its own probe shows to be impossible is void. What this machine, this user or this file
//! system can not do is [`Missing`], by name. Nothing is sent outside loopback and namespaces of our own unless
//! a remote is named.

mod cpu;
mod method;
mod record;
mod rows;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experiment::{Environment, Record};

use method::Found;
pub use record::{
    Better, Curve, Entry, Estimate, Group, Mark, Measured, Missing, Note, Point, Row, Series, Unit,
};

/// Its name in files.
pub const NAME: &str = "measure";

/// What was measured: rows, curves, what is missing and what must be known, in the order of the report.
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
    /// Another machine that runs `onrush measure --peer`, as `HOST:PORT`.
    pub remote: Option<String>,
    /// A directory of a mounted remote file system to read from as well.
    pub mounted: Option<PathBuf>,
    /// Reads CLOCK_MONOTONIC_RAW even if the processor has a counter.
    pub system_clock: bool,
}

/// Why there is no result at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// This process may run on no processor that it can be bound to.
    #[error("can not bind to processor {core}: {source}; look at the cpuset of this process")]
    Pin {
        /// Which.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The clock stands still.
    #[error("the clock of this machine stands still; nothing can be measured")]
    Clock,
}

impl Settings {
    /// All groups, ten minutes at most.
    #[must_use]
    pub fn full() -> Self {
        Self {
            groups: Group::ALL.to_vec(),
            quick: false,
            rounds: 7,
            folder: "/var/tmp".into(),
            remote: None,
            mounted: None,
            system_clock: false,
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
pub fn carry_out(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64, &str),
) -> Result<MeasureRecord, MeasureError> {
    let mut record = Record::new(NAME, Environment::here(version, command), settings.clone());
    let method = method::Method::new(settings)?;
    let mut found = Found::default();
    let steps = f64::from(settings.rounds) * crate::stats::to_f64(settings.groups.len());
    let mut done = 0.0;
    for group in &settings.groups {
        for round in 0..settings.rounds {
            progress(
                done / steps,
                &format!("{}, round {}", group.name(), round + 1),
            );
            found.begin(round);
            match group {
                Group::Cpu => cpu::measure(&method, &mut found),
                _ => {}
            }
            done += 1.0;
        }
    }
    record.runs = rows::entries(settings, &method, &found);
    Ok(record)
}

/// The most that one wait for a partner, a peer or a disk may take.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
