//! What is compared of experiments whose reports have no samples yet.

mod known;

use crate::experiment::AnyRecord;
pub(crate) use crate::table::{Better, Figure};

/// All figures of a record, by name.
#[must_use]
pub fn of(record: &AnyRecord) -> Vec<Figure> {
    known::of(record).unwrap_or_default()
}
