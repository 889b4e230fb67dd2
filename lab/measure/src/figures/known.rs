//! What is worth comparing in the records of our own experiments.

use std::collections::BTreeMap;

use super::{Better, Figure};
use crate::capacity::{self, CapacityRecord, soak};
use crate::cue::{self, CueRecord};
use crate::experiment::AnyRecord;
use crate::http::{self, HttpRecord};
use crate::load::{self, LoadRecord};
use crate::paths::{self, PathsRecord, Sample};
use crate::plot::Unit;
use crate::primitives::{self, Entry, MeasureRecord};
use crate::relay::{self, RelayRecord};
use crate::serve::{self, ServeRecord};
use crate::stats::ratio;

/// The figures of a record of an experiment that is known; of others `None`.
pub(super) fn of(record: &AnyRecord) -> Option<Vec<Figure>> {
    let mut figures = Figures::default();
    match record.experiment.as_str() {
        serve::NAME => of_serve(&record.typed().ok()?, &mut figures),
        paths::NAME => of_paths(&record.typed().ok()?, &mut figures),
        cue::NAME => of_cue(&record.typed().ok()?, &mut figures),
        http::NAME => of_http(&record.typed().ok()?, &mut figures),
        relay::NAME => of_relay(&record.typed().ok()?, &mut figures),
        capacity::NAME => of_capacity(&record.typed().ok()?, &mut figures),
        soak::NAME => of_soak(&record.typed().ok()?, &mut figures),
        load::NAME => of_load(&record.typed().ok()?, &mut figures),
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

/// What a packet cost each contestant.
fn of_serve(record: &ServeRecord, figures: &mut Figures) {
    for run in record.runs.iter().filter(|run| run.void.is_empty()) {
        let packets = run.interval.counts.packets;
        if packets == 0 {
            continue;
        }
        let name = format!("{}, {}", run.mode.name(), run.contestant);
        let (cpu_ns, busy_ns) = (run.interval.cpu_ns, run.interval.core_busy_ns);
        figures.cost(format!("{name}: CPU per packet"), ratio(cpu_ns, packets));
        figures.cost(
            format!("{name}: core's time per packet"),
            ratio(busy_ns, packets),
        );
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

/// What a packet cost the relay's processor for each receiver, and how late it was.
fn of_relay(record: &RelayRecord, figures: &mut Figures) {
    for run in &record.runs {
        let Some(case) = record.settings.cases.get(run.case) else {
            continue;
        };
        let name = case.told();
        figures.cost(
            format!("{name}: processor's time per packet"),
            run.busy_ns_a_packet(),
        );
        if let Some(late_ns) = late_ns(&run.lateness) {
            figures.cost(format!("{name}: late, 999 of 1000"), late_ns);
        }
    }
}

/// How many viewers each server held, and what they cost it.
fn of_capacity(record: &CapacityRecord, figures: &mut Figures) {
    for row in record.rows() {
        let name = row.name();
        let held = row.held.map_or(0.0, |run| f64::from(run.clients));
        let held_name = format!("{name}: viewers held");
        figures.add(held_name, Unit::Count, Better::More, held);
        for run in &row.runs {
            let (name, cost) = (format!("{name}, {} viewers", run.clients), record.cost(run));
            figures.cost(format!("{name}: CPU per packet"), cost.packet_ns);
            if let Some(late_ns) = late_ns(&run.load.lateness) {
                figures.cost(format!("{name}: late, 999 of 1000"), late_ns);
            }
        }
    }
}

/// A slice is a sample: what packets cost and how late they were, all along.
fn of_soak(record: &soak::SoakRecord, figures: &mut Figures) {
    for slice in record.runs.iter().flat_map(|run| &run.load.slices) {
        let cpu_ns = slice.server.map(|usage| usage.cpu_ns);
        if let Some(cpu_ns) = cpu_ns.filter(|_| slice.packets > 0) {
            figures.cost("CPU per packet".to_owned(), ratio(cpu_ns, slice.packets));
        }
        if let Some(late_ns) = slice.lateness.p999_ns {
            figures.cost("late, 999 of 1000".to_owned(), to_f64(late_ns));
        }
    }
}

/// What viewers saw and the server spent.
fn of_load(record: &LoadRecord, figures: &mut Figures) {
    for run in &record.runs {
        let report = load::report::Report::of(&record.settings, run);
        if let Some(ns) = report.server_ns_a_packet {
            figures.cost("server's CPU per packet".to_owned(), ns);
        }
        if let Some(late_ns) = late_ns(&run.lateness) {
            figures.cost("late, 999 of 1000".to_owned(), late_ns);
        }
        let lost = ratio(run.totals.lost, 1);
        figures.add("packets lost".to_owned(), Unit::Count, Better::Less, lost);
        for &ns in &run.start_up_ns {
            figures.cost("time to the first packet".to_owned(), ratio(ns, 1));
        }
    }
}

fn late_ns(lateness: &crate::histogram::Histogram) -> Option<f64> {
    lateness.quantile_ns(0.999).map(to_f64)
}

#[allow(clippy::cast_precision_loss, reason = "times below 2^52 ns")]
fn to_f64(ns: i64) -> f64 {
    ns as f64
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
