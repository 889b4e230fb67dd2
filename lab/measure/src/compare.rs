//! Two records of one experiment: what is better or worse now, beyond noise.
//!
//! A figure changed if chance alone would hardly part its samples so (see
//! [`crate::stats::p_value`]) and its median moved by more than a part that
//! the reader sets. The first guards against noise within a record, the second against what a
//! machine does from day to day. What there is to be none of needs neither: any is worse than none.

use thiserror::Error;

use crate::experiment::{AnyRecord, Environment};
use crate::plot::Unit;
use crate::report::{self, ReportError};
use crate::stats::{Summary, p_value};
use crate::table::{Better, Figure};

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
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// One of them cannot be told.
    #[error(transparent)]
    Report(#[from] ReportError),
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
    let [old, new] = [report::of(before)?, report::of(after)?].map(|report| report.figures());
    let (rows, missing) = rows(&old, &new, beyond);
    if rows.is_empty() {
        return Err(CompareError::Nothing);
    }
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

/// The figures of both, the largest changes first, and those of only one.
fn rows(old: &[Figure], new: &[Figure], beyond: f64) -> (Vec<Row>, Vec<(String, Side)>) {
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
    let size = |row: &Row| -row.ratio.ln().abs();
    rows.sort_by(|a, b| size(a).total_cmp(&size(b)));
    let mut missing = only(old, new, Side::Before);
    missing.extend(only(new, old, Side::After));
    (rows, missing)
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
        let there = [before.max, after.max].map(|most| most > 0.0);
        let outcome = match (chance <= CHANCE_MAX && moved, better) {
            (_, Better::None) if there == [false, true] => Outcome::Worse,
            (_, Better::None) if there == [true, false] => Outcome::Better,
            (_, Better::None) if there == [false, false] => Outcome::Same,
            (false, _) if few => Outcome::Unknown,
            (false, _) => Outcome::Same,
            (true, Better::Neither) => Outcome::Different,
            (true, Better::Less | Better::None) if after.median > before.median => Outcome::Worse,
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
    use super::*;
    use crate::experiment::Record;
    use crate::group::{self, Settings};

    fn figure(name: &str, better: Better, samples: &[f64]) -> Figure {
        Figure {
            name: name.to_owned(),
            unit: Unit::Nanoseconds,
            better,
            samples: samples.to_vec(),
        }
    }

    /// So many samples around each of these.
    fn costs(figures: &[(&str, f64, usize)]) -> Vec<Figure> {
        let figure = |&(name, around, count): &(&str, f64, usize)| {
            let samples = (0..count).map(|i| around + 0.1 * crate::stats::to_f64(i));
            figure(name, Better::Less, &samples.collect::<Vec<_>>())
        };
        figures.iter().map(figure).collect()
    }

    fn outcomes(before: &[Figure], after: &[Figure]) -> Vec<(String, Outcome)> {
        let compared = rows(before, after, 0.05).0.into_iter();
        compared.map(|row| (row.name, row.outcome)).collect()
    }

    #[test]
    fn what_changed_is_told_from_what_did_not() {
        let before = costs(&[
            ("a", 100.0, 5),
            ("b", 100.0, 5),
            ("c", 100.0, 5),
            ("d", 100.0, 4),
        ]);
        let after = costs(&[
            ("a", 120.0, 5),
            ("b", 80.0, 5),
            ("c", 103.0, 5),
            ("d", 200.0, 4),
        ]);
        let named = |name: &str, outcome| (name.to_owned(), outcome);
        let expected = [
            named("d", Outcome::Unknown),
            named("b", Outcome::Better),
            named("a", Outcome::Worse),
            // All apart, but by less than what counts.
            named("c", Outcome::Same),
        ];
        assert_eq!(outcomes(&before, &after), expected, "the largest first");
        let turned = outcomes(&after, &before);
        assert_eq!(turned[1], named("b", Outcome::Worse));
        assert_eq!(turned[2], named("a", Outcome::Better));
    }

    #[test]
    fn any_of_what_there_is_to_be_none_of_is_worse() {
        let lost = |samples: &[f64]| [figure("lost", Better::None, samples)];
        let of = |before: &[f64], after: &[f64]| outcomes(&lost(before), &lost(after))[0].1;
        assert_eq!(of(&[0.0], &[9.0]), Outcome::Worse);
        assert_eq!(of(&[0.0; 5], &[0.0, 0.0, 0.0, 0.0, 1.0]), Outcome::Worse);
        assert_eq!(of(&[9.0], &[0.0]), Outcome::Better);
        assert_eq!(of(&[0.0], &[0.0]), Outcome::Same);
        // Of some and of more chance is asked as of anything else.
        assert_eq!(of(&[9.0], &[90.0]), Outcome::Unknown);
        assert_eq!(of(&[9.0; 5], &[90.0; 5]), Outcome::Worse);
        // A cost that was too small to be told is no bound that was missed.
        let cost = |samples: &[f64]| [figure("cost", Better::Less, samples)];
        assert_eq!(
            outcomes(&cost(&[0.0]), &cost(&[9.0]))[0].1,
            Outcome::Unknown
        );
    }

    #[test]
    fn samples_that_overlap_are_no_change() {
        let before = figure("a", Better::Less, &[80.0, 90.0, 100.0, 110.0, 150.0]);
        let after = figure("a", Better::Less, &[95.0, 115.0, 120.0, 130.0, 170.0]);
        assert_eq!(outcomes(&[before], &[after])[0].1, Outcome::Same);
    }

    #[test]
    fn a_rate_that_falls_is_worse() {
        let rate = |around: f64| {
            let samples: Vec<_> = (0..6).map(|i| around + f64::from(i)).collect();
            [figure("rate", Better::More, &samples)]
        };
        assert_eq!(outcomes(&rate(1e6), &rate(5e5))[0].1, Outcome::Worse);
        assert_eq!(outcomes(&rate(5e5), &rate(1e6))[0].1, Outcome::Better);
    }

    #[test]
    fn what_cannot_be_compared_is_told() {
        let environment = Environment::here("1", "c");
        let record = |experiment: &str| -> AnyRecord {
            let settings = serde_json::to_value(Settings::quick()).unwrap();
            Record::new(experiment, environment.clone(), settings)
        };
        let said = |before: &str, after: &str| {
            let error = compare(&record(before), &record(after), 0.05).unwrap_err();
            error.to_string()
        };
        assert!(said("x", "y").contains("\"x\", the second of \"y\""));
        assert!(
            said("x", "x").contains("\"x\" is not known"),
            "{}",
            said("x", "x")
        );
        assert!(said(group::NAME, group::NAME).contains("no figure in common"));
        let (a, both) = (
            costs(&[("a", 1.0, 5)]),
            costs(&[("a", 1.0, 5), ("b", 1.0, 5)]),
        );
        let missing = rows(&a, &both, 0.05).1;
        assert_eq!(missing, [("b".to_owned(), Side::After)]);
        let mut moved = environment.clone();
        moved.kernel = "7.0".to_owned();
        let told = environments(&environment, &moved);
        assert!(told.len() == 1 && told[0].contains("then 7.0"), "{told:?}");
    }
}
