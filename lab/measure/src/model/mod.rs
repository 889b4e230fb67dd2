//! The cost model: what a data path will cost, put together from what its parts cost.
//!
//! A path is a sum of [`Term`]s, each so and so often for a packet: crossings, bytes that are
//! copied, packets that pass the stack alone, trains, pages that are pinned. What a term costs here
//! and now is found by [`probe`]: small things done often, none of which is a path and none of
//! which moves a file. The prediction is the sum. Where it is wrong, something is missing from the
//! model, and that is worth knowing.
//!
//! The processor time is that of the sending thread. What a path leaves to others (a polling
//! thread, a receiver) is not in the model.
//!
//! The files stand on each other in this order: `term` and `probe` on none, `cost` on both,
//! `formula` on `cost`, `stream` on none, `turn` on `stream` and `probe`, `check` on all of them,
//! `run`, `beside` and `halves` on `check`.

pub mod beside;
pub mod check;
mod cost;
mod formula;
pub mod halves;
pub mod probe;
mod run;
mod stream;
mod term;
mod turn;

pub use cost::Costs;
pub use formula::{Formula, Load, NotPredicted, group, of_many, over_loopback, over_tcp, path};
pub use probe::{ModelRecord, NAME, Of, Probe, Run, Settings};
pub use run::run;
pub use term::Term;

#[cfg(test)]
mod tests;
