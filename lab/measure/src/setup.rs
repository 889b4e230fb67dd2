//! What experiments stand on: a processor that the rest of the machine leaves alone, a thread that
//! stays on it, the device that is sent through, and what the system refused.

use std::{io, thread};

use onrush_sys::thread::{allowed_cores, pin_to};
use onrush_testkit::testbed::{Testbed, TestbedError};
use thiserror::Error;

/// What TCP leaves to the device where it cuts, as trains of datagrams are left to it.
pub(crate) const TCP_SEGMENTATION: [&str; 2] = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];

/// The system refused something that an experiment needs.
#[derive(Debug, Error)]
#[error("cannot {what}: {source}")]
pub struct SystemError {
    /// What was tried.
    pub what: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// There is nothing to leave the rest of the work to.
#[derive(Debug, Error)]
#[error("needs two processors, one for {alone} alone; this process may use {cores} (taskset -p)")]
pub struct CoresError {
    /// What is to have a processor for itself.
    pub alone: &'static str,
    /// How many this process may use.
    pub cores: usize,
}

/// Says what was tried when the system refused.
pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> SystemError {
    move |source| SystemError { what, source }
}

/// A processor for the rest of the work, and one that `alone` has for itself: the last, as
/// interrupts go to the first as a rule.
pub(crate) fn two_cores(alone: &'static str) -> Result<(usize, usize), CoresError> {
    match *allowed_cores() {
        [rest, .., core] => Ok((rest, core)),
        ref cores => Err(CoresError {
            alone,
            cores: cores.len(),
        }),
    }
}

/// Carries `experiment` out on a thread of its own, bound to `core`: all that it starts stays there
/// too, and the caller stays where it is.
pub(crate) fn on_core<T, E>(
    core: usize,
    experiment: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E>
where
    T: Send,
    E: From<SystemError> + Send,
{
    thread::scope(|scope| {
        let experiment = scope.spawn(|| {
            pin_to(core).map_err(system("pin the experiment to a processor"))?;
            experiment()
        });
        experiment
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// How often a turn that was void is repeated.
pub(crate) const REPEATS_OF_VOID_MAX: u32 = 2;

/// Carries a turn out, and again while it is not `valid`, but not for ever; `run` is told which
/// attempt it is. All are kept.
pub(crate) fn until_valid<R, E>(
    runs: &mut Vec<R>,
    is_valid: impl Fn(&R) -> bool,
    mut run: impl FnMut(u32) -> Result<R, E>,
) -> Result<(), E> {
    for attempt in 0..=REPEATS_OF_VOID_MAX {
        let run = run(attempt)?;
        let is_done = is_valid(&run);
        runs.push(run);
        if is_done {
            break;
        }
    }
    Ok(())
}

/// All of them, in a repeat beginning with the next: they take turns at being first, so that what
/// drifts hits all alike.
pub(crate) fn in_turn<T: Copy>(all: &[T], repeat: u32) -> impl Iterator<Item = T> {
    let first = repeat as usize % all.len().max(1);
    let (before, from) = all.split_at(first);
    from.iter().chain(before).copied()
}

/// The sending device and which features it has in hardware, or here in nobody's: those whose names
/// begin so.
pub(crate) fn network(testbed: &Testbed, prefixes: &[&str]) -> Result<String, TestbedError> {
    let features = testbed.features()?;
    let on = features
        .on()
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)));
    let on: Vec<_> = on.collect();
    Ok(format!(
        "veth pair, sink at tc ingress of its far end; {}",
        on.join(" ")
    ))
}
