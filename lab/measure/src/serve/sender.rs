//! What a contestant is: it sends what it is given, by itself, until it is stopped.

use super::film::Film;
use super::record::{Counts, Settings};
use crate::error::ExperimentError;

/// From when all is ready to the first packet.
pub(super) const LEAD_NS: u64 = 100_000_000;

/// A contestant that sends.
pub(super) trait Sender {
    /// What it has done so far.
    fn counts(&self) -> Counts;

    /// Ends it; what it has done in all, once nothing of it is under way any more.
    fn stop(self: Box<Self>) -> Result<Finished, ExperimentError>;
}

/// What is left of a sender.
#[derive(Default)]
pub(super) struct Finished {
    pub(super) counts: Counts,
    /// Processor time of the threads that write packet images.
    pub(super) builder_cpu_ns: u64,
    /// What they wrote.
    pub(super) images_built: u64,
    /// Why it did not do what it was asked to.
    pub(super) failed: Option<String>,
}

/// What it is given.
pub(super) struct Task {
    pub(super) settings: Settings,
    pub(super) film: Film,
    /// The sender's processor.
    pub(super) core: usize,
}
