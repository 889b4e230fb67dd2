//! `onrush-lab bench mechanisms`: how many timely viewers each way of sending holds.
//!
//! Halvorsen, Dalseng and Griwodz compared ways to hand a file to a socket by what they cost, and
//! left to others how many clients each serves in time. Here each paces real sessions on one
//! processor: the paper's paths a packet at a time, by loops as good as they can be written, and
//! the server's engine by its data paths. The number of sessions doubles until one viewer in a
//! thousand would have had to buffer more than two bursts and 20 ms, a packet was not sent that was
//! due, or the kernel refused one, and is then bisected. All ways take turns at each step, so that
//! what drifts hits all alike.
//!
//! Its files: `record` (what is kept), `search`, `report`. What a run is is [`crate::serve`]'s.

mod record;
mod report;
mod search;

use crate::error::ExperimentError;
use crate::experiment::{Environment, Keep, Record};
use crate::setup::{on_core, two_cores};
pub use record::{Films, MechanismsRecord, NAME, Run, Settings};
pub use report::report;

/// Carries the experiment out. `progress` hears before every run which part is done at the least,
/// and what comes next; `keep` has the record after each.
///
/// # Errors
///
/// If it could not be carried out.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl FnMut(f64, &str) + Send,
    keep: Keep<'_, Settings, Run>,
) -> Result<MechanismsRecord, ExperimentError> {
    settings.check()?;
    let (rest, core) = two_cores("the sender")?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    on_core(rest, || search::all(&mut record, core, progress, keep))?;
    Ok(record)
}
