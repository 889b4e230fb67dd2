//! The capacity experiment: how many streams a server holds on time, on one processor that sends.
//!
//! A server, ours or another, is started anew in the testbed for each number of viewers, and
//! watched by the [load generator](crate::load) with the counting sink. The number doubles until a
//! budget is missed and is then bisected. Whoever is faster than the box that the experiment shares
//! with it is told by the accounts of all processors beside the result.
//!
//! Its files, each on those before it: `files` (the films), `settings`, `record` (what is kept),
//! `status` (what our server counted), `trial` (what a single number is judged by), `search` (one
//! server for each number), `report`, `curve` (what trials around a limit say); `host` (what the
//! host did), `soak` and its `soak_report`.

mod curve;
mod files;
mod host;
mod record;
mod report;
mod search;
mod settings;
pub mod soak;
mod soak_report;
mod status;
mod trial;

use std::path::Path;

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::setup::{on_core, system, two_cores};
pub use files::FileSet;
use files::Films;
pub use record::{CapacityRecord, NAME, Run};
pub use report::report;
use search::{Search, testbed};
pub use settings::{Peer, Settings};
pub use soak_report::soak_report;

/// Carries the experiment out. `onrush` is the program to measure; `progress` hears before every
/// trial what is tried.
///
/// # Errors
///
/// If it could not be carried out; see [`ExperimentError::needs_root`].
pub fn run(
    settings: &Settings,
    onrush: &Path,
    version: &str,
    command: &str,
    progress: impl FnMut(&str) + Send,
) -> Result<CapacityRecord, ExperimentError> {
    settings.check()?;
    let (rest, core) = two_cores("the server")?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    // It moves between namespaces.
    on_core(rest, || {
        let films = settings.media.iter();
        let films = films.map(|&kind| Films::make(settings.files, settings.rate_bps, &[kind]));
        let films = films
            .collect::<Result<_, _>>()
            .map_err(system("write the films"))?;
        let testbed = testbed()?;
        record.environment.network = match settings.transport.is_interleaved() {
            false => "veth pair, sink at tc ingress of its far end".to_owned(),
            true => {
                testbed.receive_on_one_processor()?;
                "veth pair, received on the other processor".to_owned()
            }
        };
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
