//! Two records of one experiment: what is better or worse now, beyond noise.
//!
//! A figure changed if chance alone would hardly part its samples so (see
//! [`crate::stats::p_value`]) and its median moved by more than a part that
//! the reader sets. The first guards against noise within a record, the second against what a
//! machine does from day to day.

use thiserror::Error;

use crate::experiment::{AnyRecord, Environment};
use crate::figures::{self, Better, Figure};
use crate::plot::Unit;
use crate::stats::{Summary, p_value};

/// A difference that chance makes more often than this proves nothing.
pub const CHANCE_MAX: f64 = 0.01;

/// The least samples that can prove anything, when there are as many on both sides: four apart from
/// four are chance in 3 of 100 cases, five from five in less than 1.
pub const SAMPLES_MIN: usize = 5;

/// What became of the figures.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Those that are in both records, the largest changes first.
    pub rows: Vec<Row>,
    /// Figures that only one of them has, and which.
    pub missing: Vec<(String, Side)>,
    /// What else is different: the machine, the kernel, the settings.
    pub differences: Vec<String>,
}

/// One figure, before and after.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// As it was.
    pub before: Summary,
    /// As it is.
    pub after: Summary,
    /// The median after over that before; not finite if that was 0.
    pub ratio: f64,
    /// How often chance alone would part them so.
    pub chance: f64,
    /// What that means.
    pub outcome: Outcome,
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It is worse.
    Worse,
    /// It is better.
    Better,
    /// It is different, and neither is good.
    Different,
    /// It is not known to be different.
    Same,
    /// There are too few samples to tell.
    Unknown,
}

/// One of the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The first.
    Before,
    /// The second.
    After,
}

/// Why two records cannot be compared.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CompareError {
    /// They are of different experiments.
    #[error("the first is of experiment {before:?}, the second of {after:?}; give two of the same")]
    Experiments {
        /// The first's.
        before: String,
        /// The second's.
        after: String,
    },
    /// They have no figure in common.
    #[error("the records have no figure in common; give two of the same settings")]
    Nothing,
}

/// Compares two records; medians that moved by less than the part `beyond` count as the same.
///
/// # Errors
///
/// If they have nothing in common.
pub fn compare(
    before: &AnyRecord,
    after: &AnyRecord,
    beyond: f64,
) -> Result<Comparison, CompareError> {
    if before.experiment != after.experiment {
        return Err(CompareError::Experiments {
            before: before.experiment.clone(),
            after: after.experiment.clone(),
        });
    }
    let (old, new) = (figures::of(before), figures::of(after));
    let of = |figures: &[Figure], name: &str| figures.iter().any(|figure| figure.name == name);
    let only = |these: &[Figure], those: &[Figure], side| {
        let alone = these.iter().filter(|figure| !of(those, &figure.name));
        alone
            .map(|figure| (figure.name.clone(), side))
            .collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = old
        .iter()
        .filter_map(|old| Row::of(old, new.iter().find(|new| new.name == old.name)?, beyond))
        .collect();
    if rows.is_empty() {
        return Err(CompareError::Nothing);
    }
    let size = |row: &Row| -row.ratio.ln().abs();
    rows.sort_by(|a, b| size(a).total_cmp(&size(b)));
    let mut missing = only(&old, &new, Side::Before);
    missing.extend(only(&new, &old, Side::After));
    let mut differences = environments(&before.environment, &after.environment);
    if before.settings != after.settings {
        differences.push("the settings are not the same".to_owned());
    }
    Ok(Comparison {
        rows,
        missing,
        differences,
    })
}

impl Comparison {
    /// The figures with that outcome.
    pub fn with(&self, outcome: Outcome) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.outcome == outcome)
    }

    /// How many figures would seem changed if nothing had changed but what chance parts.
    #[must_use]
    pub fn by_chance(&self) -> f64 {
        let judged = self
            .rows
            .iter()
            .filter(|row| row.outcome != Outcome::Unknown);
        crate::stats::to_f64(judged.count()) * CHANCE_MAX
    }
}

impl Row {
    fn of(before: &Figure, after: &Figure, beyond: f64) -> Option<Self> {
        let chance = p_value(&before.samples, &after.samples)?;
        let (name, unit, better) = (before.name.clone(), before.unit, before.better);
        let few = before.samples.len().min(after.samples.len()) < SAMPLES_MIN;
        let (before, after) = (Summary::of(&before.samples)?, Summary::of(&after.samples)?);
        let ratio = if before.median == after.median {
            1.0
        } else {
            after.median / before.median
        };
        let moved = ratio > 1.0 + beyond || ratio < 1.0 / (1.0 + beyond) || !ratio.is_finite();
        let outcome = match (chance <= CHANCE_MAX && moved, better) {
            (false, _) if few => Outcome::Unknown,
            (false, _) => Outcome::Same,
            (true, Better::Neither) => Outcome::Different,
            (true, Better::Less) if after.median > before.median => Outcome::Worse,
            (true, Better::More) if after.median < before.median => Outcome::Worse,
            (true, _) => Outcome::Better,
        };
        Some(Self {
            name,
            unit,
            before,
            after,
            ratio,
            chance,
            outcome,
        })
    }
}

fn environments(before: &Environment, after: &Environment) -> Vec<String> {
    let none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let pairs = [
        ("processor", before.cpu.clone(), after.cpu.clone()),
        (
            "processors",
            format!("{:?}", before.cores),
            format!("{:?}", after.cores),
        ),
        ("kernel", before.kernel.clone(), after.kernel.clone()),
        ("onrush", before.version.clone(), after.version.clone()),
        ("governor", none(&before.governor), none(&after.governor)),
        (
            "virtual machine",
            none(&before.virtual_machine),
            none(&after.virtual_machine),
        ),
        ("network", before.network.clone(), after.network.clone()),
    ];
    let different = pairs
        .into_iter()
        .filter(|(_, before, after)| before != after);
    different
        .map(|(name, before, after)| format!("{name}: {before}, then {after}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::experiment::Record;

    fn record(figures: &[(&str, f64, usize)]) -> AnyRecord {
        let mut record = Record::new("x", Environment::here("1", "c"), Value::Null);
        for (name, around, count) in figures {
            let samples = (0..*count).map(|i| around + 0.1 * crate::stats::to_f64(i));
            record
                .runs
                .extend(samples.map(|sample| json!({"what": name, "t_ns": sample})));
        }
        record
    }

    fn outcomes(before: &AnyRecord, after: &AnyRecord) -> Vec<(String, Outcome)> {
        let compared = compare(before, after, 0.05).unwrap();
        let mut rows: Vec<_> = compared
            .rows
            .into_iter()
            .map(|row| (row.name, row.outcome))
            .collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        rows
    }

    #[test]
    fn what_changed_is_told_from_what_did_not() {
        let before = record(&[
            ("a", 100.0, 5),
            ("b", 100.0, 5),
            ("c", 100.0, 5),
            ("d", 100.0, 4),
        ]);
        let after = record(&[
            ("a", 120.0, 5),
            ("b", 80.0, 5),
            ("c", 103.0, 5),
            ("d", 200.0, 4),
        ]);
        let named = |name: &str, outcome| (format!("{name}: t_ns"), outcome);
        assert_eq!(
            outcomes(&before, &after),
            [
                named("a", Outcome::Worse),
                named("b", Outcome::Better),
                // All apart, but by less than what counts.
                named("c", Outcome::Same),
                named("d", Outcome::Unknown),
            ]
        );
        let turned = outcomes(&after, &before);
        assert_eq!(turned[0].1, Outcome::Better);
        assert_eq!(turned[1].1, Outcome::Worse);
    }

    #[test]
    fn samples_that_overlap_are_no_change() {
        let spread = |samples: [f64; 5]| {
            let mut record = record(&[]);
            record.runs = samples.map(|s| json!({"what": "a", "t_ns": s})).to_vec();
            record
        };
        let before = spread([80.0, 90.0, 100.0, 110.0, 150.0]);
        let after = spread([95.0, 115.0, 120.0, 130.0, 170.0]);
        assert_eq!(outcomes(&before, &after)[0].1, Outcome::Same);
    }

    #[test]
    fn the_largest_change_comes_first_and_a_lower_rate_is_worse() {
        let of = |rate: f64, cost: f64| {
            let mut record = record(&[]);
            for i in 0..6 {
                let i = f64::from(i);
                record
                    .runs
                    .push(json!({"goodput_bps": rate + i, "t_ns": cost + i}));
            }
            record
        };
        let compared = compare(&of(1e6, 1e6), &of(5e5, 1.2e6), 0.05).unwrap();
        let told: Vec<_> = compared
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.outcome))
            .collect();
        assert_eq!(
            told,
            [
                (": goodput_bps", Outcome::Worse),
                (": t_ns", Outcome::Worse)
            ]
        );
        assert!((compared.by_chance() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let a = record(&[("a", 1.0, 5)]);
        let mut other = a.clone();
        other.experiment = "y".to_owned();
        let error = compare(&a, &other, 0.05).unwrap_err().to_string();
        assert!(
            error.contains("\"x\"") && error.contains("\"y\""),
            "{error}"
        );
        let b = record(&[("b", 1.0, 5)]);
        assert_eq!(compare(&a, &b, 0.05).unwrap_err(), CompareError::Nothing);
        let both = record(&[("a", 1.0, 5), ("b", 1.0, 5)]);
        let compared = compare(&a, &both, 0.05).unwrap();
        assert_eq!(compared.missing, [("b: t_ns".to_owned(), Side::After)]);
        let mut moved = a.clone();
        moved.environment.kernel = "7.0".to_owned();
        moved.settings = json!(1);
        let told = compare(&a, &moved, 0.05).unwrap().differences;
        assert!(told.len() == 2 && told[0].contains("then 7.0"), "{told:?}");
    }
}
