//! `onrush-lab bench serve`: what a packet costs the processor when stored streams are sent on
//! time.
//!
//! Many sessions of one rate are paced in real time through a [testbed](onrush_testkit::testbed),
//! by our engine and by a plain loop of `read` and `send`, turn about on the same processor. Every
//! session has its own socket, port and place in the film, and its own phase within a burst, as if
//! its viewer had come at any time. The sink counts; a run in which it did not count exactly what
//! was sent, or in which the engine did not send the way it is said to, is void.
//!
//! Beside UDP it compares what else a session can be sent by: frames of connections, with TLS and
//! without, beside loops that write them; and encrypted packets (SRTP) beside plain ones. What
//! comes on connections is received whole, and each frame looked at.
//!
//! Its files, each on those before it: `record` (what is kept), `film` (what is sent), `sender`
//! (what a contestant is), `receiver` and `pairs` (the other ends), `engine`, and `plain`,
//! `file_ways` and `framed` on `pacing` (the contestants), `parts`, `run` (watches one), `report`.

mod engine;
mod file_ways;
mod film;
mod framed;
mod pacing;
mod pairs;
mod parts;
mod plain;
mod receiver;
mod record;
mod report;
mod run;
mod sender;

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::setup::{on_core, two_cores};
pub(crate) use film::own_films_bytes;
#[cfg(test)]
pub(crate) use record::tests;
pub use record::{
    Arrived, Contestant, Counts, Entrant, Interval, NAME, Run, SESSIONS_MAX, ServeRecord, Settings,
    SrtpParts, Transport, Turn,
};
pub use report::report;
pub(crate) use run::Bench;

/// Carries the experiment out. `version` and `command` go into the record. `progress` hears before
/// every turn which part is done and what comes next.
///
/// # Errors
///
/// If it could not be carried out. Runs that prove nothing are no error: they are in the record,
/// with the reason.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl FnMut(f64, &str) + Send,
) -> Result<ServeRecord, ExperimentError> {
    settings.check()?;
    let (rest, core) = two_cores("the sender")?;
    let mut environment = Environment::here(version, command);
    on_core(rest, || {
        let mut bench = Bench::set_up(settings, core)?;
        environment.network = bench.network()?;
        let mut record = Record::new(NAME, environment, settings.clone());
        bench.run_all(&mut record.runs, progress)?;
        Ok(record)
    })
}
