//! The capacity experiment: how many streams a server holds on time, on one processor that sends.
//!
//! A server, ours or another, is started anew in the testbed for each number of viewers, and
//! watched by the [load generator](crate::load) with the counting sink. The number doubles until a
//! budget is missed and is then bisected. Whoever is faster than the box that the experiment shares
//! with it is told by the accounts of all processors beside the result.

mod files;
mod host;
mod report;
mod search;
mod settings;
pub mod soak;
mod soak_report;
mod status;
mod trial;

use std::path::Path;

use onrush_server::engine::phase::Phase;
use onrush_testkit::netns::NetnsError;
use onrush_testkit::testbed::{Mode, TestbedError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experiment::{Environment, Record};
pub use crate::load::account::{self, Account};
use crate::load::{self, LoadError};
use crate::setup::{CoresError, SystemError, on_core, system, two_cores};
pub use files::FileSet;
use files::Films;
pub use report::report;
use search::{START_TIME_MAX, Search, testbed};
pub use settings::{Peer, Settings};

/// Its name on the command line and in files.
pub const NAME: &str = "capacity";

/// What is measured.
pub type CapacityRecord = Record<Settings, Run>;

/// One server, watched by one number of viewers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// `onrush`, or the peer's command.
    pub server: String,
    /// Who cut trains.
    pub mode: Mode,
    /// Length of a burst; 0 for a peer.
    pub burst_ns: u64,
    /// When within a burst's time streams began.
    #[serde(default)]
    pub phase: Phase,
    /// Viewers.
    pub clients: u32,
    /// Of them, so many of a hundred jump.
    #[serde(default)]
    pub jumping_percent: u32,
    /// What they saw, without the streams one by one.
    pub load: load::Run,
    /// Whose time it took while all watched.
    #[serde(default)]
    pub account: Account,
    /// The same while they came.
    #[serde(default)]
    pub account_coming: Account,
    /// What each who came took of the thread that sets viewers up, in ns of processor time; none of
    /// a peer, whose threads are its own affair.
    #[serde(default)]
    pub set_up_ns: Option<u64>,
    /// Of our server's bursts, the part that left with the one before, because its engine was
    /// behind.
    #[serde(default)]
    pub joined: Option<f64>,
    /// What our server counted that should not be; in older records, warnings of its log.
    #[serde(default)]
    pub trouble: Vec<String>,
    /// Why it does not count as held; empty if it does.
    pub missed: Vec<String>,
    /// Whether the next one is the same again, and counts in its place.
    #[serde(default)]
    pub is_repeated: bool,
}

/// A run that is about to begin.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The server.
    pub server: String,
    /// Who cuts trains.
    pub mode: Mode,
    /// Viewers.
    pub clients: u32,
    /// Of them, so many of a hundred jump.
    pub jumping_percent: u32,
    /// The most that were held so far, and the least that were not.
    pub between: (u32, Option<u32>),
    /// How often as many have been tried already, in vain.
    pub again: u32,
}

/// Why the experiment could not be carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// A setting is out of bounds.
    #[error("{0}")]
    Settings(String),
    /// There is nothing to leave the rest of the work to.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// No network to send on.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The server did not begin to listen.
    #[error("{server} did not listen within {START_TIME_MAX:?}; it said: {said}")]
    Server {
        /// Which.
        server: String,
        /// The end of its log.
        said: String,
    },
    /// No load could be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Carries the experiment out. `onrush` is the program to measure.
///
/// # Errors
///
/// If it could not be carried out; see [`CapacityError::needs_root`].
pub fn run(
    settings: &Settings,
    onrush: &Path,
    version: &str,
    command: &str,
    progress: impl FnMut(Progress) + Send,
) -> Result<CapacityRecord, CapacityError> {
    settings.check()?;
    let (rest, core) = two_cores("the server")?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    // It moves between namespaces.
    on_core(rest, || {
        let films = Films::make(settings).map_err(system("write the films"))?;
        let testbed = testbed()?;
        record.environment.network = "veth pair, sink at tc ingress of its far end".to_owned();
        let mut search = Search {
            settings,
            onrush,
            films,
            testbed,
            core,
            progress,
            runs: &mut record.runs,
        };
        search.all()
    })?;
    Ok(record)
}

impl CapacityError {
    /// Whether it would go with more rights.
    #[must_use]
    pub fn needs_root(&self) -> bool {
        matches!(self, Self::Testbed(error) if error.is_not_permitted())
    }
}
