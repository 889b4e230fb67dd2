//! What any record measured, as figures with names: for tables, and to compare two records.
//!
//! Of experiments that are known it is told what is worth comparing (`known`). Of others it is read
//! from the names of their fields (`fields`). Runs that are void have no figures.

mod fields;
mod known;

use crate::experiment::AnyRecord;
use crate::plot::Unit;

/// One thing that was measured, often.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is; the same in every record of the experiment.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// In the order taken.
    pub samples: Vec<f64>,
}

/// Which direction is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Better {
    /// Costs.
    Less,
    /// Rates.
    More,
    /// Neither.
    Neither,
}

/// All figures of a record, by name.
#[must_use]
pub fn of(record: &AnyRecord) -> Vec<Figure> {
    known::of(record).unwrap_or_else(|| fields::of(&record.runs))
}
