//! The paper's table and its plots, of a record of `onrush-lab measure`.

use crate::plot::{Chart, Drawing, SERIES_MAX, Unit as PlotUnit, Value};
use crate::primitives::{Curve, Entry, Group, MeasureRecord, Predictions, Row, Series, Unit};
use crate::stats::Summary;
use crate::table::{self, Cell, Column, Report, Table, Verdict};

/// Everything the record says, by group: rows, then curves; then what is missing.
#[must_use]
pub fn report(record: &MeasureRecord) -> Report {
    let mut report = Report::new("What the operating system costs");
    for entry in &record.runs {
        match entry {
            Entry::Note(note) if note.is_warning => report.warn([&note.text]),
            Entry::Note(note) => report.text(&note.text),
            _ => {}
        }
    }
    if let Some(told) = predicted_told(record) {
        report.text(told);
    }
    let changed = predictions(record).filter(|it| !it.are_unchanged());
    report.warn(changed.map(|_| "the predictions are not those whose hash was told"));
    for group in Group::ALL {
        report.add([table(record, group)]);
        let mut marks = Table::new(
            "What the program found on the curves",
            [
                Column::key("curve"),
                Column::key("what"),
                Column::text("where"),
            ],
        );
        for entry in &record.runs {
            let Entry::Curve(curve) = entry else { continue };
            if curve.group == group {
                report.add(pictures(curve));
                for mark in &curve.marks {
                    let place = curve.x_unit.told(mark.x);
                    let (curve, mark) = (curve.title.as_str(), mark.name.as_str());
                    marks.row([curve.into(), mark.into(), place.into()]);
                }
            }
        }
        report.add([marks]);
    }
    for entry in &record.runs {
        match entry {
            Entry::Missing(it) => report.warn([format!("missing: {}: {}", it.id, it.why)]),
            Entry::Row(row) => {
                let void = row.void.as_ref();
                report.add(void.map(|why| Verdict::void(&row.operation, why)));
            }
            _ => {}
        }
    }
    report
}

fn predictions(record: &MeasureRecord) -> Option<&Predictions> {
    record.runs.iter().find_map(|entry| match entry {
        Entry::Predictions(predictions) => Some(predictions),
        _ => None,
    })
}

/// How many of the rows that were predicted before the first probe came near; nothing of records
/// from before, whose predictions had a part of what was measured.
fn predicted_told(record: &MeasureRecord) -> Option<String> {
    let predictions = predictions(record)?;
    let rows = record.runs.iter().filter_map(|entry| match entry {
        Entry::Row(row) if row.void.is_none() => Some(row),
        _ => None,
    });
    let off = rows.filter_map(|row| {
        let predicted = predictions.estimate(&row.id)?.predicted?;
        (predicted > 0.0).then(|| row.measured.median / predicted)
    });
    let off: Vec<f64> = off.collect();
    let within = |factor: f64| {
        let near = off
            .iter()
            .filter(|&&off| off <= factor && off >= 1.0 / factor);
        near.count()
    };
    Some(format!(
        "{} rows were predicted before the first probe (SHA-256 {}…), from what vendors and books \
         state: {} came within 25 %, {} within a factor of two.",
        off.len(),
        predictions.sha256.get(..16).unwrap_or_default(),
        within(1.25),
        within(2.0)
    ))
}

/// The paper's summary table: a row of figures, and below each why it is what it is.
fn table(record: &MeasureRecord, group: Group) -> Table {
    let mut table = Table::new(
        format!(
            "{}: medians; the interval holds the true one with 95 % or more",
            heading(group)
        ),
        [
            Column::key("operation"),
            Column::number("hardware", PlotUnit::Count),
            Column::number("software adds", PlotUnit::Count),
            Column::number("predicted", PlotUnit::Count),
            Column::number("measured", PlotUnit::Count),
            Column::number("it lies in", PlotUnit::Count),
        ],
    );
    for entry in &record.runs {
        let Entry::Row(row) = entry else { continue };
        if row.group == group {
            add_row(&mut table, row);
        }
    }
    table
}

fn add_row(table: &mut Table, row: &Row) {
    let told = |value: Option<f64>| Cell::from(value.map(|value| row.unit.told(value)));
    let (low, high) = row.measured.interval;
    let measured = match row.void {
        Some(_) => Cell::Void,
        None => {
            let figure = table::Figure {
                name: String::new(),
                unit: unit(row.unit),
                better: row.better,
                samples: row.measured.medians(),
            };
            Cell::Printed(row.unit.told(row.measured.median), figure)
        }
    };
    let added = table.row([
        row.operation.as_str().into(),
        told(row.estimate.base),
        told(row.estimate.overhead),
        told(row.estimate.predicted),
        measured,
        format!("{} to {}", row.unit.told(low), row.unit.told(high)).into(),
    ]);
    let why = Some(&row.explanation).filter(|why| !why.is_empty());
    let paper = Some(&row.paper).filter(|paper| !paper.is_empty());
    let paper = paper.map(|paper| format!("The paper's machine: {paper}."));
    let warnings = row
        .warnings
        .iter()
        .map(|warning| format!("Warning: {warning}"));
    let notes = why.cloned().into_iter().chain(paper).chain(warnings);
    notes.for_each(|note| added.note(note));
}

fn heading(group: Group) -> &'static str {
    match group {
        Group::Cpu => "Processor, processes and system calls",
        Group::Memory => "Memory",
        Group::Network => "Network",
        Group::File => "Files",
    }
}

/// The curve, in as many pictures as its series need to be told apart.
fn pictures(curve: &Curve) -> Vec<Drawing> {
    let pictures = curve.series.chunks(SERIES_MAX);
    let numbered = pictures.enumerate().map(|(number, series)| {
        let file = format!("{}-{}.svg", curve.id, number + 1);
        Drawing::new(file, chart(curve, series))
    });
    numbered.collect()
}

fn chart(curve: &Curve, series: &[Series]) -> Chart {
    let is_positive = |x: f64| x > 0.0;
    let mut points = series.iter().flat_map(|series| &series.points);
    let log_x = curve.x_is_logarithmic && points.all(|point| is_positive(point.x));
    let mut points = series.iter().flat_map(|series| &series.points);
    let log_y =
        curve.y_is_logarithmic && points.all(|point| point.samples.iter().all(|&y| is_positive(y)));
    let mut chart = Chart::lines(&curve.title)
        .x(&curve.x_name, unit(curve.x_unit))
        .y(&curve.y_name, unit(curve.y_unit));
    if log_x {
        chart = chart.log_x(if curve.x_unit == Unit::Bytes { 2 } else { 10 });
    }
    if log_y {
        chart = chart.log_y(10);
    }
    for mark in curve
        .marks
        .iter()
        .filter(|mark| !log_x || is_positive(mark.x))
    {
        chart = chart.mark_x(mark.x, &mark.name);
    }
    for series in series {
        let points = series
            .points
            .iter()
            .map(|point| (point.x, Value::from(Summary::of(&point.samples))));
        chart = chart.series(&series.name, points);
    }
    chart
}

fn unit(unit: Unit) -> PlotUnit {
    match unit {
        Unit::Ns => PlotUnit::Nanoseconds,
        Unit::Bytes => PlotUnit::Bytes,
        Unit::BytesPerSecond => PlotUnit::BytesPerSecond,
        Unit::Hertz => PlotUnit::Named("Hz"),
        Unit::One => PlotUnit::Count,
    }
}
