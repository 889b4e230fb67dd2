//! What a measurement leaves behind, in files and for reports.

use onrush_primitives::named;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::stats::{Summary, median};
use crate::table::Better;

named! {
    /// What a probe belongs to: the sections of the paper's summary table.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Group {
        /// Processor, scheduling, services of the operating system.
        Cpu = "cpu",
        /// Memory.
        Memory = "memory",
        /// Network.
        Network = "network",
        /// File system.
        File = "file",
    }
}

/// One thing that the record says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// A row of the summary table.
    Row(Row),
    /// What depends on something, as a plot shows it.
    Curve(Curve),
    /// What could not be measured.
    Missing(Missing),
    /// What a reader must know before believing the rest.
    Note(Note),
    /// What was predicted of rows before anything was measured.
    Predictions(Predictions),
}

/// What was predicted of rows before the first probe, from what vendors and books state and from
/// nothing that this run measures.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Predictions {
    /// SHA-256 of them, in hexadecimal, as it was told before the first probe.
    pub sha256: String,
    /// Of each row, by its name.
    pub rows: Vec<Prediction>,
}

/// What was predicted of one row.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Prediction {
    /// The row's name.
    pub id: String,
    /// What is expected of it.
    pub estimate: Estimate,
}

/// A row of the summary table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// Its name, the same in every record.
    pub id: String,
    /// Where it belongs.
    pub group: Group,
    /// What was done, for people.
    pub operation: String,
    /// The unit of all its figures.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// What was to be expected, from other primitives and from what is known of the hardware.
    pub estimate: Estimate,
    /// What was found.
    pub measured: Measured,
    /// Why it is what it is, in a sentence computed from the figures.
    pub explanation: String,
    /// Noise and doubt, in words with what to do.
    pub warnings: Vec<String>,
    /// Why the figure is impossible and counts for nothing.
    pub void: Option<String>,
    /// The paper's figure on its machine (Shen, Wu, Zhou, section 6), as printed there; empty if it
    /// has none.
    pub paper: String,
}

/// What was to be expected.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Estimate {
    /// What the hardware alone would take, or give.
    pub base: Option<f64>,
    /// What software adds, or takes away (negative).
    pub overhead: Option<f64>,
    /// What follows from both.
    pub predicted: Option<f64>,
}

/// What was found.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// The median of the rounds' medians.
    pub median: f64,
    /// Two rounds' medians that enclose the true one.
    pub interval: (f64, f64),
    /// With this probability.
    pub coverage: f64,
    /// Every raw sample, by round, in the order taken.
    pub rounds: Vec<Vec<f64>>,
}

/// In what something is measured.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Unit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Cycles per second.
    #[serde(rename = "Hz")]
    Hertz,
    /// A count or a ratio.
    #[serde(rename = "1")]
    One,
}

/// What depends on something.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Curve {
    /// Its name, the same in every record.
    pub id: String,
    /// Where it belongs.
    pub group: Group,
    /// For people.
    pub title: String,
    /// What it depends on.
    pub x_name: String,
    /// In what.
    pub x_unit: Unit,
    /// Whether x doubles rather than grows.
    pub x_is_logarithmic: bool,
    /// What depends.
    pub y_name: String,
    /// In what.
    pub y_unit: Unit,
    /// Whether y is best shown by its logarithm.
    pub y_is_logarithmic: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// What the program found on it: an edge, a knee, a window.
    pub marks: Vec<Mark>,
}

/// One line of a curve.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Series {
    /// For people.
    pub name: String,
    /// By rising x.
    pub points: Vec<Point>,
}

/// One point of a line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// Every sample.
    pub samples: Vec<f64>,
}

/// Something on a curve.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Mark {
    /// For people.
    pub name: String,
    /// Where.
    pub x: f64,
}

/// What could not be measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Missing {
    /// Its name.
    pub id: String,
    /// Why, and what would help.
    pub why: String,
}

/// What a reader must know.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Note {
    /// In a sentence.
    pub text: String,
    /// Whether the figures are in doubt because of it.
    pub is_warning: bool,
}

impl Predictions {
    /// These, with their hash.
    #[must_use]
    pub fn of(rows: Vec<Prediction>) -> Self {
        let sha256 = hash(&rows);
        Self { sha256, rows }
    }

    /// Whether they are those of which the hash was told.
    #[must_use]
    pub fn are_unchanged(&self) -> bool {
        hash(&self.rows) == self.sha256
    }

    /// What was expected of a row.
    #[must_use]
    pub fn estimate(&self, id: &str) -> Option<Estimate> {
        let row = self.rows.iter().find(|row| row.id == id);
        row.map(|row| row.estimate)
    }
}

/// Of each row a line: its name and what is predicted, to six digits.
fn hash(rows: &[Prediction]) -> String {
    let mut hasher = Sha256::new();
    for row in rows {
        let predicted = row.estimate.predicted.unwrap_or(f64::NAN);
        hasher.update(format!("{} {predicted:.6e}\n", row.id));
    }
    let hexadecimal = |byte: &u8| format!("{byte:02x}");
    hasher.finalize().iter().map(hexadecimal).collect()
}

impl Measured {
    /// Of samples by round; `None` without any, or if one is not a number.
    #[must_use]
    pub fn of(rounds: &[Vec<f64>]) -> Option<Self> {
        let medians: Option<Vec<f64>> = rounds.iter().map(median).collect();
        let summary = Summary::of(&medians?)?;
        Some(Self {
            median: summary.median,
            interval: summary.interval,
            coverage: summary.coverage,
            rounds: rounds.to_vec(),
        })
    }

    /// The medians of the rounds.
    #[must_use]
    pub fn medians(&self) -> Vec<f64> {
        self.rounds.iter().filter_map(median).collect()
    }

    /// Whether two measurements may have the same true value: whether their intervals meet.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.interval.0 <= other.interval.1 && other.interval.0 <= self.interval.1
    }
}

impl Point {
    /// The median of its samples.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        median(&self.samples)
    }
}

impl Unit {
    /// A figure for people, with three digits and its unit.
    #[must_use]
    pub fn told(self, value: f64) -> String {
        let steps: &[(f64, &str)] = match self {
            Self::Ns => &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")],
            Self::Bytes => &[
                (1_073_741_824.0, "GiB"),
                (1_048_576.0, "MiB"),
                (1024.0, "KiB"),
                (1.0, "B"),
            ],
            Self::BytesPerSecond => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
            Self::Hertz => &[(1e9, "GHz"), (1e6, "MHz"), (1.0, "Hz")],
            Self::One => &[(1.0, "")],
        };
        let fits = steps.iter().find(|(factor, _)| value.abs() >= *factor);
        let (factor, name) = fits.or_else(|| steps.last()).copied().unwrap_or((1.0, ""));
        let scaled = value / factor;
        let digits = match scaled.abs() {
            x if x >= 99.95 || x == 0.0 => 0,
            x if x >= 9.995 => 1,
            _ => 2,
        };
        format!("{scaled:.digits$} {name}").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_rounds() {
        let rounds: Vec<Vec<f64>> = (1..=7)
            .map(|i| vec![f64::from(i), f64::from(i), 100.0])
            .collect();
        let measured = Measured::of(&rounds).unwrap();
        assert_eq!((measured.median, measured.interval), (4.0, (1.0, 7.0)));
        assert!(measured.coverage > 0.98);
        assert_eq!(Measured::of(&[]), None);
        assert_eq!(Measured::of(&[vec![]]), None);
    }

    #[test]
    fn measurements_agree_when_their_intervals_meet() {
        let of = |from: f64| Measured::of(&[vec![from], vec![from + 2.0]]).unwrap();
        assert!(of(1.0).agrees_with(&of(3.0)));
        assert!(of(3.0).agrees_with(&of(1.0)));
        assert!(!of(1.0).agrees_with(&of(3.1)));
    }

    #[test]
    fn figures_are_told_with_three_digits_and_their_unit() {
        for (unit, value, told) in [
            (Unit::Ns, 0.384, "0.38 ns"),
            (Unit::Ns, 38.44, "38.4 ns"),
            (Unit::Ns, 1234.0, "1.23 us"),
            (Unit::Ns, 0.0, "0 ns"),
            (Unit::Bytes, 49152.0, "48.0 KiB"),
            (Unit::BytesPerSecond, 13.3e9, "13.3 GB/s"),
            (Unit::Hertz, 4.1e9, "4.10 GHz"),
            (Unit::One, 1.5, "1.50"),
        ] {
            assert_eq!(unit.told(value), told);
        }
    }

    #[test]
    fn predictions_that_are_changed_afterwards_are_found_out() {
        let row = |id: &str, predicted| Prediction {
            id: id.to_owned(),
            estimate: Estimate {
                predicted,
                ..Estimate::default()
            },
        };
        let rows = vec![row("getppid", Some(60.0)), row("fork", None)];
        let mut predictions = Predictions::of(rows);
        assert_eq!(predictions.sha256.len(), 64);
        assert!(predictions.are_unchanged());
        assert_eq!(
            predictions.estimate("getppid").unwrap().predicted,
            Some(60.0)
        );
        assert_eq!(predictions.estimate("mmap"), None);
        predictions.rows[0].estimate.predicted = Some(61.0);
        assert!(!predictions.are_unchanged());
        predictions.rows[0].estimate.predicted = Some(60.0);
        predictions.rows.pop();
        assert!(!predictions.are_unchanged());
    }

    #[test]
    fn entries_keep_their_kind_in_json() {
        let entry = Entry::Missing(Missing {
            id: "x".to_owned(),
            why: "y".to_owned(),
        });
        let json = serde_json::to_string(&entry).unwrap();
        assert_eq!(json, r#"{"entry":"missing","id":"x","why":"y"}"#);
        assert_eq!(serde_json::from_str::<Entry>(&json).unwrap(), entry);
    }
}
