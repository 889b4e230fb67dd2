//! The paper's table and its plots, of a record of `onrush-lab measure`.

use super::legacy::words;
use crate::plot::{Chart, Drawing, SERIES_MAX, Unit as PlotUnit, Value};
use crate::primitives::{Curve, Entry, Group, MeasureRecord, Row, Series, Unit};
use crate::stats::Summary;
use crate::table::Block;

/// Everything the record says, by group: rows, then curves, what is missing, what must be known.
pub(super) fn blocks(record: &MeasureRecord) -> Vec<Block> {
    let mut blocks = Vec::new();
    for entry in &record.runs {
        match entry {
            Entry::Note(note) if note.is_warning => blocks.push(Block::Warning(note.text.clone())),
            Entry::Note(note) => blocks.push(Block::Text(note.text.clone())),
            _ => {}
        }
    }
    for group in Group::ALL {
        let rows = record.runs.iter().filter_map(|entry| match entry {
            Entry::Row(row) if row.group == group => Some(row),
            _ => None,
        });
        let curves = record.runs.iter().filter_map(|entry| match entry {
            Entry::Curve(curve) if curve.group == group => Some(curve),
            _ => None,
        });
        let rows: Vec<_> = rows.collect();
        let curves: Vec<_> = curves.collect();
        if rows.is_empty() && curves.is_empty() {
            continue;
        }
        blocks.push(Block::Heading(heading(group).to_owned()));
        if !rows.is_empty() {
            blocks.push(table(&rows));
        }
        for curve in curves {
            blocks.extend(pictures(curve));
        }
    }
    let missing: Vec<_> = record.runs.iter().filter_map(missing).collect();
    if !missing.is_empty() {
        blocks.push(Block::Heading("Not measured here".to_owned()));
        let caption = "What could not be measured, and why";
        blocks.push(words(caption, &["what", "why"], missing));
    }
    blocks
}

fn heading(group: Group) -> &'static str {
    match group {
        Group::Cpu => "Processor, processes and system calls",
        Group::Memory => "Memory",
        Group::Network => "Network",
        Group::File => "Files",
    }
}

fn missing(entry: &Entry) -> Option<Vec<String>> {
    match entry {
        Entry::Missing(missing) => Some(vec![missing.id.clone(), missing.why.clone()]),
        _ => None,
    }
}

/// The paper's summary table: a row of figures, and below each why it is what it is.
fn table(rows: &[&Row]) -> Block {
    let mut cells = Vec::new();
    for row in rows {
        let told = |value: Option<f64>| value.map_or_else(String::new, |v| row.unit.told(v));
        let (low, high) = row.measured.interval;
        let measured = match row.void {
            None => row.unit.told(row.measured.median),
            Some(_) => "void".to_owned(),
        };
        cells.push(vec![
            row.operation.clone(),
            told(row.estimate.base),
            told(row.estimate.overhead),
            told(row.estimate.predicted),
            measured,
            format!("{} to {}", row.unit.told(low), row.unit.told(high)),
            row.paper.clone(),
        ]);
        let notes = row
            .void
            .iter()
            .chain(Some(&row.explanation))
            .chain(&row.warnings);
        let notes: Vec<_> = notes.filter(|note| !note.is_empty()).cloned().collect();
        if !notes.is_empty() {
            cells.push(vec![notes.join(" ")]);
        }
    }
    let head = [
        "operation",
        "hardware",
        "software adds",
        "predicted",
        "measured",
        "it lies in",
        "the paper's machine",
    ];
    let caption = "Medians; the interval holds the true one with 95 % or more";
    words(caption, &head, cells)
}

/// The curve, in as many pictures as its series need to be told apart.
fn pictures(curve: &Curve) -> Vec<Block> {
    let charts = curve
        .series
        .chunks(SERIES_MAX)
        .map(|series| Drawing::new("", chart(curve, series)).into());
    charts.collect()
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
        let points = series.points.iter().map(|point| {
            let summary = Summary::of(&point.samples);
            (point.x, Value::from(summary.as_ref()))
        });
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
