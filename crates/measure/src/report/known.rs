//! What is shown of the experiments that are known.

use std::fmt::Display;

use super::{Block, Table};
use crate::experiment::AnyRecord;
use crate::figures::Figure;
use crate::lock::{self, LockRecord, Run, Way, reliability};
use crate::plot::{Chart, Unit};
use crate::primitives;
use crate::serve::{self, report};
use crate::stats::Summary;

/// What an experiment is called on a page.
pub(super) fn title(experiment: &str) -> String {
    let title = match experiment {
        serve::NAME => "What serving costs",
        lock::NAME => "What locking costs",
        reliability::NAME => "Whether locked memory stays",
        primitives::NAME => "What the operating system costs",
        other => return format!("Experiment {other}"),
    };
    title.to_owned()
}

/// What the record says; nothing but the number of its runs if it is of an unknown experiment.
pub(super) fn blocks(record: &AnyRecord, figures: &[Figure]) -> Vec<Block> {
    let known = match record.experiment.as_str() {
        serve::NAME => record.typed().ok().map(|record| of_serve(&record)),
        lock::NAME => record.typed().ok().map(|record| of_lock(&record)),
        primitives::NAME => record
            .typed()
            .ok()
            .map(|record| super::primitives::blocks(&record)),
        reliability::NAME => record.typed().ok().map(|record| {
            let report = reliability::Report::of(&record);
            let words = verdict(report.passed());
            vec![terminal(&report), Block::Verdict(words, report.passed())]
        }),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let (runs, figures) = (record.runs.len(), figures.len());
        vec![Block::Text(format!("{runs} runs with {figures} figures."))]
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
            "{}: the engine costs {ratio} times less than a loop of read and send; at least {} was to be",
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
    blocks.push(terminal(&report));
    blocks.push(Block::Verdict(verdict(report.passed()), report.passed()));
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
