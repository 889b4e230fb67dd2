//! What is shown of the experiments that are known.

use std::fmt::Display;

use super::{Block, Table, viewers};
use crate::capacity::{self, soak};
use crate::experiment::AnyRecord;
use crate::figures::Figure;
use crate::lock::{self, LockRecord, Run, Way, reliability};
use crate::model::{self, Costs, ModelRecord, Term};
use crate::plot::{Chart, Drawing, Unit};
use crate::serve::{self, report};
use crate::stats::Summary;
use crate::{cue, group, http, load, paths, primitives, relay};

/// What an experiment is called on a page.
pub(super) fn title(experiment: &str) -> String {
    let title = match experiment {
        serve::NAME => "What serving costs",
        lock::NAME => "What locking costs",
        reliability::NAME => "Whether locked memory stays",
        primitives::NAME => "What the operating system costs",
        paths::NAME => "What data paths cost",
        group::NAME => "What sends to groups cost",
        cue::NAME => "What transfers cost, and leave to others",
        http::NAME => "What downloads cost",
        relay::NAME => "What relaying costs",
        capacity::NAME => "How many viewers a core holds",
        soak::NAME => "A long time with many viewers",
        load::NAME => "What viewers saw",
        load::http::NAME => "What downloading clients saw",
        model::NAME => "What the parts of a path cost, and what that predicts",
        other => return format!("Experiment {other}"),
    };
    title.to_owned()
}

/// What the record says; nothing but the number of its runs if it is of an unknown experiment.
pub(super) fn blocks(record: &AnyRecord, figures: &[Figure]) -> Vec<Block> {
    of_known(record).unwrap_or_else(|| {
        let (runs, figures) = (record.runs.len(), figures.len());
        vec![Block::Text(format!("{runs} runs with {figures} figures."))]
    })
}

fn of_known(record: &AnyRecord) -> Option<Vec<Block>> {
    Some(match record.experiment.as_str() {
        serve::NAME => of_serve(&record.typed().ok()?),
        lock::NAME => of_lock(&record.typed().ok()?),
        primitives::NAME => super::primitives::blocks(&record.typed().ok()?),
        reliability::NAME => {
            let report = reliability::Report::of(&record.typed().ok()?);
            reported(Vec::new(), &report, report.passed())
        }
        paths::NAME => {
            let record = record.typed().ok()?;
            let report = paths::report::Report::of(&record);
            reported(paths::report::drawings(&record), &report, report.passed())
        }
        group::NAME => {
            let report = group::report::Report::of(&record.typed().ok()?);
            reported(report.drawings().to_vec(), &report, report.passed())
        }
        cue::NAME => {
            let record = record.typed().ok()?;
            let report = cue::report::Report::of(&record);
            reported(cue::plots::all(&record), &report, report.passed())
        }
        http::NAME => {
            let record = record.typed().ok()?;
            let report = http::report::Report::of(&record);
            reported(http::plots::all(&record), &report, report.passed())
        }
        relay::NAME => viewers::of_relay(&record.typed().ok()?),
        capacity::NAME => viewers::of_capacity(&record.typed().ok()?),
        soak::NAME => viewers::of_soak(&record.typed().ok()?),
        load::NAME => viewers::of_load(&record.typed().ok()?),
        load::http::NAME => viewers::of_load_http(&record.typed().ok()?),
        model::NAME => of_model(&record.typed().ok()?),
        _ => return None,
    })
}

/// What an experiment tells of itself: its pictures, its table, and its verdict.
fn reported(drawings: Vec<Drawing>, report: &impl Display, passed: bool) -> Vec<Block> {
    let mut blocks = charts(drawings);
    blocks.push(terminal(report));
    blocks.push(Block::Verdict(verdict(passed), passed));
    blocks
}

/// Charts, each in its place; one that cannot be drawn says why there, and costs the reader no
/// other.
pub(super) fn charts(drawings: impl IntoIterator<Item = Drawing>) -> Vec<Block> {
    let block = |drawing: Drawing| match drawing.chart.render_inline() {
        Ok(_) => Block::Chart(Box::new(drawing.chart)),
        Err(error) => Block::Warning(format!("{}: {error}", drawing.chart.title())),
    };
    drawings.into_iter().map(block).collect()
}

/// A table of names and values.
pub(super) fn rows_of_names(caption: &str, rows: Vec<(String, String)>) -> Block {
    Block::Table(Table {
        caption: caption.to_owned(),
        head: vec!["what".to_owned(), "measured".to_owned()],
        rows: rows
            .into_iter()
            .map(|(name, value)| vec![name, value])
            .collect(),
    })
}

fn of_serve(record: &serve::ServeRecord) -> Vec<Block> {
    let report = report::Report::of(record);
    let mut blocks = Vec::new();
    let contestants = record.settings.contestants.iter().map(ToString::to_string);
    let mut chart = Chart::bars("Processor time of the sending thread")
        .categories(contestants)
        .y("CPU per packet", Unit::Nanoseconds);
    for &mode in &record.settings.modes {
        let rows = report.rows.iter().filter(|row| row.mode == mode);
        chart = chart.values(mode.name(), rows.map(|row| row.cpu_ns.as_ref()));
    }
    blocks.push(Block::Chart(Box::new(chart)));
    let told = |summary: &Option<Summary>, digits| {
        summary
            .as_ref()
            .map_or_else(String::new, |s| s.told(digits))
    };
    let row = |row: &report::Row| {
        vec![
            format!("{}, {}", row.mode.name(), row.contestant),
            told(&row.cpu_ns, 0),
            told(&row.times_engine, 1),
            told(&row.packets_a_crossing, 1),
            told(&row.packets_a_train, 1),
            format!("{:.1}", row.arrival.p999_ns / 1e6),
            row.void.to_string(),
        ]
    };
    let head = [
        "who",
        "CPU, ns/packet",
        "times the engine",
        "packets a crossing",
        "packets a train",
        "99.9 % arrive within, ms",
        "void runs",
    ];
    blocks.push(Block::Table(Table {
        caption: "Medians of the runs, with the smallest and the largest".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: report.rows.iter().map(row).collect(),
    }));
    blocks.extend(report.warnings.iter().cloned().map(Block::Warning));
    for verdict in &report.verdicts {
        let ratio = verdict
            .ratio
            .as_ref()
            .map_or_else(|| "not known how many".to_owned(), |r| r.told(1));
        let words = format!(
            "{}: the engine costs {ratio} times less than a loop of read and send; at least {} was \
             to be",
            verdict.mode.name(),
            verdict.wanted
        );
        blocks.push(Block::Verdict(words, verdict.passed()));
    }
    blocks
}

fn of_lock(record: &LockRecord) -> Vec<Block> {
    let mut blocks = Vec::new();
    for memory in lock::Memory::ALL {
        let mut chart = Chart::lines(&format!("To lock and unlock: {}", memory.name()))
            .x("size", Unit::Bytes)
            .log_x(2)
            .y("both calls", Unit::Nanoseconds)
            .log_y(10);
        for way in Way::ALL {
            let points = record.settings.sizes_bytes.iter().filter_map(|&size| {
                let samples: Vec<_> = record
                    .runs
                    .iter()
                    .filter_map(|run| both(run, memory, way, size))
                    .collect();
                let summary = Summary::of(&samples)?;
                Some((
                    crate::stats::to_f64(size),
                    crate::plot::Value::from(&summary),
                ))
            });
            chart = chart.series(way.name(), points.collect::<Vec<_>>());
        }
        blocks.push(Block::Chart(Box::new(chart)));
    }
    let report = lock::report::Report::of(record);
    blocks.extend(reported(lock::plots::all(record), &report, report.passed()));
    blocks
}

fn both(run: &Run, memory: lock::Memory, way: Way, size: usize) -> Option<f64> {
    match run {
        Run::Cost {
            memory: m,
            way: w,
            bytes,
            lock_ns,
            unlock_ns,
            ..
        } if (*m, *w, *bytes) == (memory, way, size) => Some(lock_ns + unlock_ns),
        _ => None,
    }
}

/// What each part costs, and how well paths are predicted from that.
fn of_model(record: &ModelRecord) -> Vec<Block> {
    let mut blocks = Vec::new();
    let modes: Vec<_> = record.settings.modes.iter().collect();
    let costs: Vec<_> = modes.iter().map(|&&mode| Costs::of(record, mode)).collect();
    let told = |ns: f64| Unit::Nanoseconds.tell(ns);
    let part = |term: &Term| {
        let of_modes = costs.iter().map(|costs| {
            let ns = costs.as_ref().map(|costs| costs.ns(*term));
            ns.map_or_else(String::new, told)
        });
        std::iter::once(term.name().to_owned())
            .chain(of_modes)
            .collect()
    };
    let of_modes = modes.iter().map(|mode| mode.name().to_owned());
    blocks.push(Block::Table(Table {
        caption: "What each part of a path costs".to_owned(),
        head: std::iter::once("part".to_owned()).chain(of_modes).collect(),
        rows: Term::ALL.iter().map(part).collect(),
    }));
    let checked = model::check::checked(record);
    if checked.is_empty() {
        return blocks;
    }
    let row = |it: &model::check::Checked| {
        let measured = it.measured_ns.as_ref();
        vec![
            format!("{}, {}", it.path, it.mode.name()),
            it.predicted_ns
                .as_ref()
                .map_or_else(ToString::to_string, |ns| told(*ns)),
            measured.map_or_else(Clone::clone, |summary| told(summary.median)),
            it.error()
                .map_or_else(String::new, |error| format!("{:+.0} %", error * 100.0)),
        ]
    };
    let head = ["path", "predicted", "measured", "off by"];
    blocks.push(Block::Table(Table {
        caption: "A packet by each path: predicted from its parts, and measured".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: checked.iter().map(row).collect(),
    }));
    blocks
}

fn terminal(report: &impl Display) -> Block {
    Block::Terminal(report.to_string().trim_matches('\n').to_owned())
}

fn verdict(passed: bool) -> String {
    let words = match passed {
        true => "every bound that the experiment sets itself",
        false => "a bound that the experiment sets itself; the lines above say which",
    };
    words.to_owned()
}
