//! Experiments whose figures are still told apart from what is shown of them.

use std::fmt::Display;

use super::primitives;
use crate::experiment::AnyRecord;
use crate::lock::{self, LockRecord, Run, Way, reliability};
use crate::model::{self, Costs, ModelRecord, Term};
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::Summary;
use crate::table::{Block, Cell, Column, Figure, Report, Table, Verdict};
use crate::{cue, figures, http, paths, primitives as measure};

/// What an experiment is called on a page.
fn title(experiment: &str) -> Option<&'static str> {
    Some(match experiment {
        lock::NAME => "What locking costs",
        reliability::NAME => "Whether locked memory stays",
        measure::NAME => "What the operating system costs",
        paths::NAME => "What data paths cost",
        cue::NAME => "What transfers cost, and leave to others",
        http::NAME => "What downloads cost",
        model::NAME => "What the parts of a path cost, and what that predicts",
        _ => return None,
    })
}

/// What the record says, if its experiment is known.
pub(super) fn of(record: &AnyRecord) -> Option<serde_json::Result<Report>> {
    let title = title(&record.experiment)?;
    let told = blocks(record).map(|mut blocks| {
        blocks.push(figures_of(figures::of(record)));
        Report {
            title: title.to_owned(),
            blocks,
        }
    });
    Some(told)
}

/// Figures with their names, for comparisons.
fn figures_of(figures: Vec<Figure>) -> Block {
    let tables = figures.into_iter().map(|figure| {
        let samples = Column::number("", figure.unit).compared(figure.better);
        let mut table = Table::new("Figure", [Column::key("figure"), samples]);
        table.row([figure.name.into(), Cell::from(figure.samples)]);
        table.into()
    });
    Block::Folded("Figures".to_owned(), tables.collect())
}

/// A table of words.
pub(super) fn words(caption: &str, head: &[&str], rows: Vec<Vec<String>>) -> Block {
    let columns: Vec<_> = head.iter().map(|heading| Column::text(heading)).collect();
    let mut table = Table::new(caption, columns);
    for row in rows {
        match row.as_slice() {
            [note] if !table.rows.is_empty() => {
                table.rows.last_mut().expect("there is one").note(note);
            }
            _ => {
                table.row(row.into_iter().map(Cell::from).collect::<Vec<_>>());
            }
        }
    }
    table.into()
}

fn blocks(record: &AnyRecord) -> serde_json::Result<Vec<Block>> {
    Ok(match record.experiment.as_str() {
        lock::NAME => of_lock(&record.typed()?),
        measure::NAME => primitives::blocks(&record.typed()?),
        reliability::NAME => {
            let report = reliability::Report::of(&record.typed()?);
            reported(Vec::new(), &report, report.passed())
        }
        paths::NAME => {
            let record = record.typed()?;
            let report = paths::report::Report::of(&record);
            reported(paths::report::drawings(&record), &report, report.passed())
        }
        cue::NAME => {
            let record = record.typed()?;
            let report = cue::report::Report::of(&record);
            reported(cue::plots::all(&record), &report, report.passed())
        }
        http::NAME => {
            let record = record.typed()?;
            let report = http::report::Report::of(&record);
            reported(http::plots::all(&record), &report, report.passed())
        }
        _ => of_model(&record.typed()?),
    })
}

/// What an experiment tells of itself: its pictures, its table, and its verdict.
fn reported(drawings: Vec<Drawing>, report: &impl Display, passed: bool) -> Vec<Block> {
    let mut blocks = charts(drawings);
    blocks.push(terminal(report));
    blocks.push(Verdict::new(verdict(passed), "", passed).into());
    blocks
}

/// Charts, each in its place.
pub(super) fn charts(drawings: impl IntoIterator<Item = Drawing>) -> Vec<Block> {
    drawings.into_iter().map(Into::into).collect()
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
        blocks.push(Drawing::new("", chart).into());
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
    let of_modes = modes.iter().map(|mode| mode.name());
    let head: Vec<_> = std::iter::once("part").chain(of_modes).collect();
    let rows = Term::ALL.iter().map(part).collect();
    blocks.push(words("What each part of a path costs", &head, rows));
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
    let caption = "A packet by each path: predicted from its parts, and measured";
    blocks.push(words(caption, &head, checked.iter().map(row).collect()));
    blocks
}

fn terminal(report: &impl Display) -> Block {
    Block::Lines(report.to_string().trim_matches('\n').to_owned())
}

fn verdict(passed: bool) -> String {
    let words = match passed {
        true => "every bound that the experiment sets itself",
        false => "a bound that the experiment sets itself; the lines above say which",
    };
    words.to_owned()
}
