//! Bars that lie: a row for each category, its name to the left, each value at the end of its bar.

use plotters::coord::ranged1d::Ranged;
use plotters::style::text_anchor::{HPos, VPos};

use super::draw::{Canvas, Frame, LETTER, PAD, WIDTH, width};
use super::style::{self, FAINT, GRID, TEXT};
use super::{Chart, Kind, PlotError, Value};

const BAR: i32 = 32;
/// Between the bars of a category, and between categories.
const GAP: i32 = 4;
const GAP_BETWEEN: i32 = 22;
/// What names of categories may take of the width.
const NAMES_MAX: i32 = WIDTH * 2 / 5;

/// Left and right end of the picture, and its height.
pub(super) fn extent(chart: &Chart) -> (i32, i32, i32) {
    let widths = chart.categories.iter().map(|name| width(name, LETTER));
    let names = widths.max().unwrap_or(0).min(NAMES_MAX);
    let values = chart.series.iter().flat_map(|series| &series.points);
    let told = values
        .filter_map(|(_, value)| value.at)
        .map(|at| chart.y.unit.tell(at));
    let told = told.map(|told| width(&told, LETTER)).max().unwrap_or(0);
    let count = i32::try_from(chart.categories.len().max(1)).unwrap_or(i32::MAX);
    let height = count.saturating_mul(row(chart) + GAP_BETWEEN);
    (
        PAD + names + 16,
        WIDTH - PAD - told - 24,
        height + GAP_BETWEEN,
    )
}

pub(super) fn draw(chart: &Chart, frame: &Frame, canvas: &mut Canvas<'_>) -> Result<(), PlotError> {
    let axis = chart.y_axis();
    let place = |value: f64| axis.map(&value, (frame.left, frame.right));
    for &tick in &axis.ticks {
        let x = place(tick);
        canvas.line((x, frame.top), (x, frame.bottom), GRID, 2)?;
        let at = (x, frame.bottom + 12);
        canvas.text(
            &axis.told(tick),
            at,
            LETTER,
            TEXT,
            (HPos::Center, VPos::Top),
        )?;
    }
    let mut y = frame.top + GAP_BETWEEN;
    for (i, name) in chart.categories.iter().enumerate() {
        let at = (frame.left - 16, y + row(chart) / 2);
        canvas.text(&cut(name), at, LETTER, TEXT, (HPos::Right, VPos::Center))?;
        let values: Vec<_> = chart
            .series
            .iter()
            .map(|series| series.points[i].1)
            .collect();
        match chart.kind {
            Kind::Stacked => stack(chart, &values, y, place, canvas)?,
            _ => group(chart, &values, y, place, canvas)?,
        }
        y += row(chart) + GAP_BETWEEN;
    }
    let zero = place(0.0);
    canvas.line((zero, frame.top), (zero, frame.bottom), FAINT, 3)
}

fn group(
    chart: &Chart,
    values: &[Value],
    top: i32,
    place: impl Fn(f64) -> i32,
    canvas: &mut Canvas<'_>,
) -> Result<(), PlotError> {
    for (index, (y, value)) in (top..).step_by(step()).zip(values).enumerate() {
        let Some(at) = value.at else {
            let beside = (place(0.0) + 12, y + BAR / 2);
            canvas.text("-", beside, LETTER, FAINT, (HPos::Left, VPos::Center))?;
            continue;
        };
        let (zero, end) = (place(0.0), place(at));
        canvas.rect(
            (zero.min(end), y),
            (zero.max(end), y + BAR),
            style::series(index),
        )?;
        let mut right = zero.max(end);
        if let Some((low, high)) = value.interval {
            let (low, high, middle) = (place(low), place(high), y + BAR / 2);
            right = right.max(high);
            canvas.line((low, middle), (high, middle), TEXT, 3)?;
            for x in [low, high] {
                canvas.line((x, middle - 8), (x, middle + 8), TEXT, 3)?;
            }
        }
        tell(chart, at, (right, y + BAR / 2), canvas)?;
    }
    Ok(())
}

fn stack(
    chart: &Chart,
    values: &[Value],
    y: i32,
    place: impl Fn(f64) -> i32,
    canvas: &mut Canvas<'_>,
) -> Result<(), PlotError> {
    let mut sum = 0.0;
    for (index, value) in values.iter().enumerate() {
        let part = value.at.unwrap_or(0.0);
        let (from, to) = (place(sum), place(sum + part));
        if to > from {
            // A unit of ground between two parts, so that they are told apart without colours.
            let gap = i32::from(index > 0 && to - from > 4);
            canvas.rect((from + 2 * gap, y), (to, y + BAR), style::series(index))?;
        }
        sum += part;
    }
    tell(chart, sum, (place(sum), y + BAR / 2), canvas)
}

fn tell(
    chart: &Chart,
    value: f64,
    (x, y): (i32, i32),
    canvas: &mut Canvas<'_>,
) -> Result<(), PlotError> {
    let told = chart.y.unit.tell(value);
    canvas.text(&told, (x + 12, y), LETTER, TEXT, (HPos::Left, VPos::Center))
}

/// The height of a category's bars.
fn row(chart: &Chart) -> i32 {
    let bars = match chart.kind {
        Kind::Stacked => 1,
        _ => i32::try_from(chart.series.len().max(1)).unwrap_or(i32::MAX),
    };
    bars * (BAR + GAP) - GAP
}

fn step() -> usize {
    usize::try_from(BAR + GAP).unwrap_or(1)
}

/// The name, cut where it takes too much room; the description has all of it.
fn cut(name: &str) -> String {
    let mut cut = name.to_owned();
    while width(&cut, LETTER) > NAMES_MAX {
        cut.pop();
        cut.pop();
        cut.push('\u{2026}');
    }
    cut
}
