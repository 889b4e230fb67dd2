//! What is worth comparing in the records of our own experiments.

use std::collections::BTreeMap;

use super::{Better, Figure};
use crate::cue::{self, CueRecord};
use crate::experiment::AnyRecord;
use crate::http::{self, HttpRecord};
use crate::paths::{self, PathsRecord, Sample};
use crate::plot::Unit;
use crate::primitives::{self, Entry, MeasureRecord};
use crate::stats::ratio;

/// The figures of a record of an experiment that is known; of others `None`.
pub(super) fn of(record: &AnyRecord) -> Option<Vec<Figure>> {
    let mut figures = Figures::default();
    match record.experiment.as_str() {
        paths::NAME => of_paths(&record.typed().ok()?, &mut figures),
        cue::NAME => of_cue(&record.typed().ok()?, &mut figures),
        http::NAME => of_http(&record.typed().ok()?, &mut figures),
        primitives::NAME => return Some(of_primitives(&record.typed().ok()?)),
        _ => return None,
    }
    Some(figures.0.into_values().collect())
}

/// Figures by name, as they are gathered from runs.
#[derive(Default)]
struct Figures(BTreeMap<String, Figure>);

impl Figures {
    fn add(&mut self, name: String, unit: Unit, better: Better, sample: f64) {
        let new = || Figure {
            name: name.clone(),
            unit,
            better,
            samples: Vec::new(),
        };
        let figure = self.0.entry(name.clone()).or_insert_with(new);
        figure.samples.push(sample);
    }

    /// A cost in ns.
    fn cost(&mut self, name: String, ns: f64) {
        self.add(name, Unit::Nanoseconds, Better::Less, ns);
    }
}

/// What a packet cost by each path, on each transport, in each size.
fn of_paths(record: &PathsRecord, figures: &mut Figures) {
    for sample in &record.runs {
        match sample {
            Sample::Path(run) if run.void.is_empty() => {
                let state = if run.is_cold { ", cold" } else { "" };
                let name = format!(
                    "{}, {} B, {}{state}: CPU per packet",
                    run.transport.name(),
                    run.packet_bytes,
                    run.path
                );
                figures.cost(name, ratio(run.cpu_ns(), run.packets.max(1)));
            }
            Sample::Path(_) => {}
            Sample::Copy { bytes, ns } => figures.cost(format!("copy of {bytes} B"), *ns),
            Sample::Crossing { ns } => figures.cost("system call".to_owned(), *ns),
        }
    }
}

/// What transfers moved, what a byte cost, and what was left to others.
fn of_cue(record: &CueRecord, figures: &mut Figures) {
    use cue::report::{cpu_us_a_mb, kilocalls, mb_a_second};

    for run in record.runs.iter().filter(|run| run.void.is_none()) {
        let cell = &run.cell;
        let beside = if cell.metered {
            ", beside the metering thread"
        } else {
            ""
        };
        let name = format!(
            "{}, {}, {} at once{beside}",
            cell.set.name(),
            cell.contestant,
            cell.transfers
        );
        if let Some(mb) = mb_a_second(run) {
            let name = format!("{name}: moved");
            figures.add(name, Unit::BytesPerSecond, Better::More, mb * 1e6);
        }
        if let Some(us) = cpu_us_a_mb(run) {
            figures.cost(format!("{name}: CPU per MB"), us * 1e3);
        }
        if let Some(kilocalls) = kilocalls(run).filter(|_| cell.metered) {
            let name = format!("{name}: rounds of the metering thread a second");
            figures.add(name, Unit::Count, Better::More, kilocalls * 1e3);
        }
    }
}

/// What a byte and a request cost each server.
fn of_http(record: &HttpRecord, figures: &mut Figures) {
    use http::report::{cpu_ms_a_gb, load_name, name, requests_a_second};

    for run in &record.runs {
        let name = format!("{}, {}", load_name(run.load), name(run.contestant));
        figures.cost(format!("{name}: CPU per GB"), cpu_ms_a_gb(run) * 1e6);
        let requests = requests_a_second(run);
        let name = format!("{name}: requests a second");
        figures.add(name, Unit::Count, Better::More, requests);
    }
}

/// The rows of the table, a sample a round: what was taken in one round was disturbed by the same.
fn of_primitives(record: &MeasureRecord) -> Vec<Figure> {
    let figure = |entry: &Entry| {
        let Entry::Row(row) = entry else {
            return None;
        };
        let unit = match row.unit {
            primitives::Unit::Ns => Unit::Nanoseconds,
            primitives::Unit::Bytes => Unit::Bytes,
            primitives::Unit::BytesPerSecond => Unit::BytesPerSecond,
            primitives::Unit::Hertz | primitives::Unit::One => Unit::Count,
        };
        let better = match row.better {
            primitives::Better::Less => Better::Less,
            primitives::Better::More => Better::More,
            primitives::Better::Neither => Better::Neither,
        };
        row.void.is_none().then(|| Figure {
            name: row.operation.clone(),
            unit,
            better,
            samples: row.measured.medians(),
        })
    };
    record.runs.iter().filter_map(figure).collect()
}
