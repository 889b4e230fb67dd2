//! Experiments whose figures are still told apart from what is shown of them.

use super::viewers;
use crate::capacity::soak;
use crate::experiment::AnyRecord;
use crate::plot::{Chart, Drawing, Unit};
use crate::serve::{self, report};
use crate::stats::Summary;
use crate::table::{Block, Cell, Column, Figure, Report, Table, Verdict};
use crate::{capacity, figures, load, relay};

/// What an experiment is called on a page.
fn title(experiment: &str) -> Option<&'static str> {
    Some(match experiment {
        serve::NAME => "What serving costs",
        relay::NAME => "What relaying costs",
        capacity::NAME => "How many viewers a core holds",
        soak::NAME => "A long time with many viewers",
        load::NAME => "What viewers saw",
        load::http::NAME => "What downloading clients saw",
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
        serve::NAME => of_serve(&record.typed()?),
        relay::NAME => viewers::of_relay(&record.typed()?),
        capacity::NAME => viewers::of_capacity(&record.typed()?),
        soak::NAME => viewers::of_soak(&record.typed()?),
        load::NAME => viewers::of_load(&record.typed()?),
        _ => viewers::of_load_http(&record.typed()?),
    })
}

/// Charts, each in its place.
pub(super) fn charts(drawings: impl IntoIterator<Item = Drawing>) -> Vec<Block> {
    drawings.into_iter().map(Into::into).collect()
}

/// A table of names and values.
pub(super) fn rows_of_names(caption: &str, rows: Vec<(String, String)>) -> Block {
    Table::of_names(caption, rows).into()
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
    blocks.push(Drawing::new("", chart).into());
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
    blocks.push(words(
        "Medians of the runs, with the smallest and the largest",
        &head,
        report.rows.iter().map(row).collect(),
    ));
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
        blocks.push(Verdict::new(words, "", verdict.passed()).into());
    }
    blocks
}
