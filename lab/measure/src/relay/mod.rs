//! `onrush-lab bench relay`: how many receivers of one live stream a processor holds on time.
//!
//! A source on another processor sends one stream, evenly paced, into a
//! [testbed](onrush_testkit::testbed); the relay of the server, on whose processor packets arrive
//! too, gives it to so many receivers across the veth pair, where the sink counts and drops. The
//! source's timestamps are the clock, so what the sink sees as lateness is the whole way from the
//! source's send to the receiver, and no packet's own is left out. Receivers are held on time if
//! every packet arrived once and 99.9 % of them within the delay that was allowed and [`BUDGET_NS`]
//! more. A run that is not held is no failure; it says where the end is.
//!
//! Its files, each on those before it: `record` (what is kept), `run` (one case, once), `report`.

mod record;
mod report;
mod run;

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::machine::Awake;
use crate::setup::{on_core, system, two_cores};
use crate::stats::ratio;
pub use record::{BUDGET_NS, Case, IN_KERNEL, NAME, RECEIVERS_MAX, RelayRecord, Run, Settings};
pub use report::report;

/// Carries the experiment out. `progress` hears of the part that is done.
///
/// # Errors
///
/// If it could not be carried out; see [`ExperimentError::needs_root`].
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64) + Send,
) -> Result<RelayRecord, ExperimentError> {
    settings.check()?;
    let (rest, core) = two_cores("the relay")?;
    let mut environment = Environment::here(version, command);
    environment.network = format!(
        "veth pair, arrivals by a thread of the kernel on the relay's processor, sink at tc \
         ingress; {}",
        settings.mode.name()
    );
    on_core(rest, || {
        let mut record = Record::new(NAME, environment, settings.clone());
        let turns = settings.repeats as usize * settings.cases.len();
        for turn in 0..turns {
            progress(ratio(turn as u64, turns as u64));
            let case = turn % settings.cases.len();
            let repeat = u32::try_from(turn / settings.cases.len()).unwrap_or(u32::MAX);
            // The kernel's own threads are of no session, and would have to share the processor
            // with whoever keeps it awake (sched(7), autogroups), however low his priority.
            let is_kept = settings.keep_awake && !settings.cases[case].is_in_kernel();
            let awake = is_kept.then(|| Awake::keep(core)).transpose();
            let awake = awake.map_err(system("start a thread"))?;
            let run = run::run(settings, case, repeat, core, awake.as_ref())?;
            record.runs.push(run);
        }
        Ok(record)
    })
}
