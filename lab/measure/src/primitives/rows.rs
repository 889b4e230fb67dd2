//! What was found, as the paper's table: predicted, measured, explained. Nothing is measured here.

mod cpu;
mod file;
mod memory;
mod network;

use super::method::{Basics, Found, Method};
use super::{
    Better, Curve, Entry, Estimate, Group, Mark, Measured, Missing, Point, Prediction, Predictions,
    Row, Series, Settings, Unit,
};
use crate::stats::{Summary, to_f64};

/// No time of the table but those that wait is as long.
const SECOND_NS: f64 = 1e9;

/// What is to be expected of each row, before anything was measured: a row whose prediction would
/// need another row's figure has none.
pub(super) fn predictions(settings: &Settings) -> Predictions {
    let (found, basics) = (Found::default(), Basics::stated());
    let mut rows = Vec::new();
    for &group in &settings.groups {
        let mut sheet = Sheet::new(group, &found, basics);
        sheet.predicted = Predicted::Asked(Vec::new());
        sheet.fill();
        if let Predicted::Asked(mut of_group) = sheet.predicted {
            rows.append(&mut of_group);
        }
    }
    Predictions::of(rows)
}

/// Everything that the record says, in the order of the report.
pub(super) fn entries(
    settings: &Settings,
    method: &Method,
    found: &Found,
    predictions: &Predictions,
) -> Vec<Entry> {
    let mut entries = vec![Entry::Predictions(predictions.clone())];
    let basics = method.basics();
    for &group in &settings.groups {
        let mut sheet = Sheet::new(group, found, basics);
        sheet.predicted = Predicted::Known(predictions);
        sheet.fill();
        entries.append(&mut sheet.entries);
    }
    entries.extend(found.all_missing().map(|(id, why)| {
        Entry::Missing(Missing {
            id: id.clone(),
            why: why.clone(),
        })
    }));
    entries
}

/// The part of the table that is being filled in.
pub(super) struct Sheet<'f> {
    group: Group,
    found: &'f Found,
    basics: Basics,
    predicted: Predicted<'f>,
    entries: Vec<Entry>,
}

/// Whether rows are predicted, or were.
enum Predicted<'f> {
    /// Rows are asked what is expected of them: nothing was measured yet.
    Asked(Vec<Prediction>),
    /// They were asked before.
    Known(&'f Predictions),
}

/// A row before it is known what was found.
struct Plan<'p> {
    id: &'p str,
    operation: &'p str,
    unit: Unit,
    better: Better,
    /// What the hardware alone would take.
    base: Option<f64>,
    /// What software adds.
    overhead: Option<f64>,
    /// What no machine can be below or above: a figure outside is void.
    possible: (f64, f64),
    /// The paper's figure.
    paper: &'p str,
}

/// Rows of a sheet: each plan, and the sentence that is made of its median.
macro_rules! rows {
    ($sheet:ident; $($plan:expr => |$median:pat_param| $told:expr;)+) => {
        $($sheet.row(&$plan, |$median| $told.into());)+
    };
}
use rows;

impl<'p> Plan<'p> {
    /// A time in ns, the less the better, of at most a second.
    fn time(id: &'p str, operation: &'p str) -> Self {
        Self {
            id,
            operation,
            unit: Unit::Ns,
            better: Better::Less,
            base: None,
            overhead: None,
            possible: (0.0, SECOND_NS),
            paper: "",
        }
    }

    /// The same of what waits for disks or for others: at most ten seconds.
    fn long_time(id: &'p str, operation: &'p str) -> Self {
        Self::time(id, operation).within(0.0, 10.0 * SECOND_NS)
    }

    /// What the hardware alone would take, if that is known.
    fn base(mut self, base: impl Into<Option<f64>>) -> Self {
        self.base = base.into();
        self
    }

    /// What software adds to it.
    fn adds(mut self, overhead: impl Into<Option<f64>>) -> Self {
        self.overhead = overhead.into();
        self
    }

    /// What the paper found.
    fn paper(mut self, paper: &'p str) -> Self {
        self.paper = paper;
        self
    }

    /// In another unit than ns, where less is not better.
    fn of(mut self, unit: Unit, better: Better) -> Self {
        (self.unit, self.better) = (unit, better);
        self
    }

    /// What is expected, if anything is.
    fn prediction(&self) -> Option<Prediction> {
        let both = self.base.zip(self.overhead);
        let both = both.map(|(base, overhead)| base + overhead);
        let predicted = both.or(self.base).or(self.overhead)?;
        Some(Prediction {
            id: self.id.to_owned(),
            estimate: Estimate {
                base: self.base,
                overhead: self.overhead,
                predicted: Some(predicted),
            },
        })
    }

    /// What is possible at all.
    fn within(mut self, least: f64, most: f64) -> Self {
        self.possible = (least, most);
        self
    }
}

impl<'f> Sheet<'f> {
    fn new(group: Group, found: &'f Found, basics: Basics) -> Self {
        Self {
            group,
            found,
            basics,
            predicted: Predicted::Asked(Vec::new()),
            entries: Vec::new(),
        }
    }

    fn fill(&mut self) {
        match self.group {
            Group::Cpu => cpu::fill(self),
            Group::Memory => memory::fill(self),
            Group::Network => network::fill(self),
            Group::File => file::fill(self),
        }
    }

    /// Adds a row, if it was measured; `explain` is given the measured median.
    fn row(&mut self, plan: &Plan<'_>, explain: impl FnOnce(f64) -> String) {
        let estimate = match &mut self.predicted {
            Predicted::Asked(asked) => {
                asked.extend(plan.prediction());
                return;
            }
            Predicted::Known(known) => known.estimate(plan.id).unwrap_or_default(),
        };
        let Some(measured) = self.found.measured(plan.id) else {
            return;
        };
        let verdict = verdict(estimate.predicted, measured.median);
        let explanation = format!("{}{verdict}", explain(measured.median));
        self.entries.push(Entry::Row(Row {
            id: plan.id.to_owned(),
            group: self.group,
            operation: plan.operation.to_owned(),
            unit: plan.unit,
            better: plan.better,
            estimate,
            warnings: warnings(&measured),
            void: void(self.found, plan, measured.median),
            measured,
            explanation,
            paper: plan.paper.to_owned(),
        }));
    }

    /// Adds a curve, if any of it was measured.
    fn curve(
        &mut self,
        (id, title): (&str, &str),
        x: (&str, Unit, Scale),
        y: (&str, Unit, Scale),
        marks: impl IntoIterator<Item = (String, f64)>,
    ) {
        let point = |(x, samples): (u64, &[f64])| Point {
            x: to_f64(x),
            samples: samples.to_vec(),
        };
        let mark = |(name, x)| Mark { name, x };
        let lines = self.found.curve(id).into_iter();
        let series: Vec<Series> = lines
            .map(|(name, points)| Series {
                name: name.to_owned(),
                points: points.into_iter().map(point).collect(),
            })
            .collect();
        if series.is_empty() {
            return;
        }
        self.entries.push(Entry::Curve(Curve {
            id: id.to_owned(),
            group: self.group,
            title: title.to_owned(),
            x_name: x.0.to_owned(),
            x_unit: x.1,
            x_is_logarithmic: x.2 == Scale::Doubles,
            y_name: y.0.to_owned(),
            y_unit: y.1,
            y_is_logarithmic: y.2 == Scale::Doubles,
            series,
            marks: marks.into_iter().map(mark).collect(),
        }));
    }
}

/// How what a curve shows changes: that is how it is best drawn.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Scale {
    Grows,
    Doubles,
}

/// What a solid state disk takes for 4 KB, as its makers state it.
const DISK_READ_NS: f64 = 80_000.0;

/// How the measured compares with the predicted, as the end of a sentence.
fn verdict(predicted: Option<f64>, measured: f64) -> String {
    let Some(predicted) = predicted.filter(|&predicted| predicted > 0.0) else {
        return ".".to_owned();
    };
    match measured / predicted {
        ratio if (0.8..=1.25).contains(&ratio) => "; as predicted.".to_owned(),
        ratio if ratio > 1.0 => format!("; {ratio:.1} times the prediction."),
        ratio => format!("; {:.0} % of the prediction.", ratio * 100.0),
    }
}

/// Noise and doubt, of the rounds.
pub(super) fn warnings(measured: &Measured) -> Vec<String> {
    let Some(summary) = Summary::of(measured.medians()) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    let spread = summary.spread();
    if spread > SPREAD_UNSTABLE {
        warnings.push(format!(
            "no stable value: the rounds differ by {:.0} % of their median; run it again when \
             nothing else runs",
            spread * 100.0
        ));
    }
    if summary.samples < ROUNDS_FEW && summary.samples > 1 {
        warnings.push(format!(
            "{} rounds hold the true median with {:.0} % only; a full run takes more",
            summary.samples,
            summary.coverage * 100.0
        ));
    }
    warnings
}

/// Rounds that differ by more than this part of their median have found no value.
const SPREAD_UNSTABLE: f64 = 0.25;
const ROUNDS_FEW: usize = 5;

fn void(found: &Found, plan: &Plan<'_>, median: f64) -> Option<String> {
    let (least, most) = plan.possible;
    let outside = || {
        format!(
            "{} is impossible: it can only be from {} to {}; this is an error of the probe or of \
             the clock",
            plan.unit.told(median),
            plan.unit.told(least),
            plan.unit.told(most)
        )
    };
    let is_possible = (least..=most).contains(&median);
    found
        .voided(plan.id)
        .cloned()
        .or_else(|| (!is_possible).then(outside))
}

/// Nanoseconds in cycles, for people.
fn cycles(ns: f64, basics: Basics) -> String {
    match basics.cycle_ns {
        cycle if cycle > 0.0 => format!("{:.1} cycles", ns / cycle),
        _ => "an unknown number of cycles".to_owned(),
    }
}
