//! What the commands `onrush` and `onrush-lab` have in common: numbers with units, and how a
//! program ends.

pub mod outcome;
pub mod units;
