//! What any record measured, as figures with names: for tables, and to compare two records.
//!
//! Of experiments that are known it is told what is worth comparing (`known`). Of others it is read
//! from the names of their fields (`fields`). Runs that are void have no figures.

mod fields;
mod known;

use crate::experiment::AnyRecord;
pub(crate) use crate::table::{Better, Figure};

/// All figures of a record, by name.
#[must_use]
pub fn of(record: &AnyRecord) -> Vec<Figure> {
    known::of(record).unwrap_or_else(|| fields::of(&record.runs))
}
