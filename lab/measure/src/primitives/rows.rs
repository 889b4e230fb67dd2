//! What was found, as the paper's table: predicted, measured, explained. Nothing is measured here.

mod cpu;
mod file;
mod memory;
mod network;

use super::method::{Basics, Found, Method};
use super::{
    Better, Curve, Entry, Estimate, Group, Mark, Measured, Missing, Point, Row, Series, Settings,
    Unit,
};
use crate::stats::{Summary, to_f64};

/// No time of the table but those that wait is as long.
const SECOND_NS: f64 = 1e9;

/// Everything that the record says, in the order of the report.
pub(super) fn entries(settings: &Settings, method: &Method, found: &Found) -> Vec<Entry> {
    let mut entries = Vec::new();
    let basics = method.basics();
    for &group in &settings.groups {
        let mut sheet = Sheet::new(group, found, basics);
        match group {
            Group::Cpu => cpu::fill(&mut sheet),
            Group::Memory => memory::fill(&mut sheet),
            Group::Network => network::fill(&mut sheet),
            Group::File => file::fill(&mut sheet),
        }
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
    entries: Vec<Entry>,
}

/// A row before it is known what was found.
pub(super) struct Plan<'p> {
    pub(super) id: &'p str,
    pub(super) operation: &'p str,
    pub(super) unit: Unit,
    pub(super) better: Better,
    /// What the hardware alone would take.
    pub(super) base: Option<f64>,
    /// What software adds.
    pub(super) overhead: Option<f64>,
    /// What no machine can be below or above: a figure outside is void.
    pub(super) possible: (f64, f64),
    /// The paper's figure.
    pub(super) paper: &'p str,
}

impl<'p> Plan<'p> {
    /// A time in ns, the less the better, of at most a second. `estimate` is base and overhead.
    fn time(
        id: &'p str,
        operation: &'p str,
        estimate: (Option<f64>, Option<f64>),
        paper: &'p str,
    ) -> Self {
        Self {
            id,
            operation,
            unit: Unit::Ns,
            better: Better::Less,
            base: estimate.0,
            overhead: estimate.1,
            possible: (0.0, SECOND_NS),
            paper,
        }
    }

    /// The same of what waits for disks or for others: at most ten seconds.
    fn long_time(
        id: &'p str,
        operation: &'p str,
        estimate: (Option<f64>, Option<f64>),
        paper: &'p str,
    ) -> Self {
        Self {
            possible: (0.0, 10.0 * SECOND_NS),
            ..Self::time(id, operation, estimate, paper)
        }
    }
}

impl<'f> Sheet<'f> {
    fn new(group: Group, found: &'f Found, basics: Basics) -> Self {
        Self {
            group,
            found,
            basics,
            entries: Vec::new(),
        }
    }

    /// Adds a row, if it was measured; `explain` is given the measured median.
    fn row(&mut self, plan: &Plan<'_>, explain: impl FnOnce(f64) -> String) {
        let Some(measured) = self.found.measured(plan.id) else {
            return;
        };
        let predicted = plan
            .base
            .zip(plan.overhead)
            .map(|(base, overhead)| base + overhead);
        let predicted = predicted.or(plan.base).or(plan.overhead);
        let verdict = verdict(predicted, measured.median);
        let explanation = format!("{}{verdict}", explain(measured.median));
        self.entries.push(Entry::Row(Row {
            id: plan.id.to_owned(),
            group: self.group,
            operation: plan.operation.to_owned(),
            unit: plan.unit,
            better: plan.better,
            estimate: Estimate {
                base: plan.base,
                overhead: plan.overhead,
                predicted,
            },
            warnings: warnings(&measured),
            void: void(self.found, plan, measured.median),
            measured,
            explanation,
            paper: plan.paper.to_owned(),
        }));
    }

    /// Adds a curve, if any of it was measured.
    #[allow(
        clippy::cast_precision_loss,
        reason = "sizes and counts are far below 2^53"
    )]
    fn curve(&mut self, id: &str, shape: &Shape<'_>, marks: Vec<Mark>) {
        let point = |(x, samples): (u64, &[f64])| Point {
            x: x as f64,
            samples: samples.to_vec(),
        };
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
            title: shape.title.to_owned(),
            x_name: shape.x.0.to_owned(),
            x_unit: shape.x.1,
            x_is_logarithmic: shape.x.2,
            y_name: shape.y.0.to_owned(),
            y_unit: shape.y.1,
            y_is_logarithmic: shape.y.2,
            series,
            marks,
        }));
    }
}

/// What a curve is about.
#[derive(Clone, Copy)]
pub(super) struct Shape<'s> {
    title: &'s str,
    /// Name, unit, whether it doubles rather than grows.
    x: (&'s str, Unit, bool),
    y: (&'s str, Unit, bool),
}

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

fn warnings(measured: &Measured) -> Vec<String> {
    let Some(summary) = Summary::of(&measured.medians()) else {
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

fn count(number: usize) -> f64 {
    to_f64(number)
}
