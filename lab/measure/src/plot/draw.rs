//! Lays a chart out, one thing below the other, and writes it as SVG.
//!
//! Lengths are in units of which two make a pixel where the picture has its natural size: the
//! library that writes SVG knows whole units only.

use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{self, Colour, FAINT, GRID, GROUND, TEXT};
use super::{Chart, Kind, NO_DATA, PlotError, Series, bars};

pub(super) const WIDTH: i32 = 1440;
pub(super) const PAD: i32 = 28;
const TITLE: i32 = 36;
pub(super) const LETTER: i32 = 28;
const SMALL: i32 = 24;
/// From one line of text to the next, over its height.
const LEADING: f64 = 1.4;
const PICTURE_HEIGHT: i32 = 560;
const SWATCH: i32 = 64;
/// Points from which on only some have markers.
const MARKERS_MAX: usize = 40;

/// Where lines and bars are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
}

/// What is drawn on.
pub(super) struct Canvas<'a>(SVGBackend<'a>);

/// What stands above and below the picture.
struct Layout {
    title: Vec<String>,
    /// By row: which series, and where its entry begins.
    legend: Vec<Vec<(usize, i32)>>,
    source: Vec<String>,
    frame: Frame,
    height: i32,
}

pub(super) fn svg(chart: &Chart, with_styles: bool) -> Result<String, PlotError> {
    let layout = Layout::of(chart);
    let mut text = String::new();
    let size = (WIDTH.unsigned_abs(), layout.height.unsigned_abs());
    let mut canvas = Canvas(SVGBackend::with_string(&mut text, size));
    canvas.rect((0, 0), (WIDTH, layout.height), GROUND)?;
    layout.draw_words(chart, &mut canvas)?;
    match chart.is_bars() {
        true => bars::draw(chart, &layout.frame, &mut canvas)?,
        false => draw_lines(chart, &layout.frame, &mut canvas)?,
    }
    if chart
        .series
        .iter()
        .all(|series| series.points.iter().all(|(_, v)| v.at.is_none()))
    {
        let Frame {
            left,
            right,
            top,
            bottom,
        } = layout.frame;
        let middle = (i32::midpoint(left, right), i32::midpoint(top, bottom));
        canvas.text(NO_DATA, middle, LETTER, FAINT, (HPos::Center, VPos::Center))?;
    }
    canvas.0.present().map_err(refused)?;
    drop(canvas);
    Ok(finish(chart, &layout, &text, with_styles))
}

/// Takes out of the library's SVG what goes without saying, and adds what it lacks.
fn finish(chart: &Chart, layout: &Layout, text: &str, with_styles: bool) -> String {
    let body = text.split_once('\n').map_or("", |(_, body)| body);
    let body = body
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(" text-anchor=\"start\"", "")
        .replace(" \"/>", "\"/>");
    let style = match with_styles {
        true => format!("<style>{}</style>\n", style::sheet()),
        false => String::new(),
    };
    let hatches = match chart.is_bars() && chart.series.len() > 1 {
        true => style::hatches(chart.series.len()),
        false => String::new(),
    };
    let source = chart.source.join("; ");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" width=\"{}\" \
         height=\"{}\" viewBox=\"0 0 {WIDTH} {}\" font-family=\"system-ui, \
         sans-serif\">\n<title>{}</title>\n<desc>{}</desc>\n\
         {style}{hatches}{body}</svg>\n",
        WIDTH / 2,
        layout.height / 2,
        layout.height,
        escape(&chart.title),
        escape(&format!("{} {source}", chart.description())),
    )
    .replace("</svg>\n</svg>", "</svg>")
}

impl Layout {
    fn of(chart: &Chart) -> Self {
        let title = wrap(&chart.title, TITLE);
        let source: Vec<_> = chart
            .source
            .iter()
            .flat_map(|line| wrap(line, SMALL))
            .collect();
        let legend = legend(chart);
        let mut top = PAD + rows(title.len(), TITLE) + rows(legend.len(), LETTER);
        // The name of the values, and those of marks.
        top += rows(usize::from(!chart.is_bars()), LETTER) + mark_rows(chart) + 12;
        let (left, right, height) = match chart.is_bars() {
            true => bars::extent(chart),
            false => line_extent(chart),
        };
        let frame = Frame {
            left,
            right,
            top,
            bottom: top + height,
        };
        let below = rows(2, LETTER) + 16 + rows(source.len(), SMALL);
        let height = frame.bottom + below + PAD;
        Self {
            title,
            legend,
            source,
            frame,
            height,
        }
    }

    fn draw_words(&self, chart: &Chart, canvas: &mut Canvas<'_>) -> Result<(), PlotError> {
        let mut y = PAD;
        for line in &self.title {
            canvas.bold(line, (PAD, y))?;
            y += rows(1, TITLE);
        }
        for row in &self.legend {
            for &(index, x) in row {
                self.draw_entry(chart, index, (x, y + LETTER / 2), canvas)?;
            }
            y += rows(1, LETTER);
        }
        let Frame {
            left,
            right,
            bottom,
            ..
        } = self.frame;
        let at = match chart.is_bars() {
            true => {
                let label = chart.y.label();
                let at = (i32::midpoint(left, right), bottom + rows(1, LETTER) + 16);
                canvas.text(&label, at, LETTER, TEXT, (HPos::Center, VPos::Top))?;
                at.1
            }
            false => {
                canvas.text(
                    &chart.y.label(),
                    (PAD, y),
                    LETTER,
                    TEXT,
                    (HPos::Left, VPos::Top),
                )?;
                let at = (i32::midpoint(left, right), bottom + rows(1, LETTER) + 16);
                canvas.text(
                    &chart.x.label(),
                    at,
                    LETTER,
                    TEXT,
                    (HPos::Center, VPos::Top),
                )?;
                at.1
            }
        };
        let mut y = at + rows(1, LETTER);
        for line in &self.source {
            canvas.text(line, (PAD, y), SMALL, FAINT, (HPos::Left, VPos::Top))?;
            y += rows(1, SMALL);
        }
        Ok(())
    }

    fn draw_entry(
        &self,
        chart: &Chart,
        index: usize,
        (x, y): (i32, i32),
        canvas: &mut Canvas<'_>,
    ) -> Result<(), PlotError> {
        let colour = style::series(index);
        match chart.kind {
            Kind::Bars | Kind::Stacked => canvas.rect((x, y - 12), (x + 48, y + 12), colour)?,
            Kind::Lines | Kind::Steps => canvas.path(vec![(x, y), (x + SWATCH, y)], colour)?,
        }
        if chart.kind == Kind::Lines {
            canvas.marker(index, (x + SWATCH / 2, y))?;
        }
        let at = (x + SWATCH + 12, y);
        canvas.text(
            &entry(&chart.series[index]),
            at,
            LETTER,
            TEXT,
            (HPos::Left, VPos::Center),
        )
    }
}

fn draw_lines(chart: &Chart, frame: &Frame, canvas: &mut Canvas<'_>) -> Result<(), PlotError> {
    let (x, y) = (chart.x_axis(), chart.y_axis());
    let place_x = |value: f64| x.map(&value, (frame.left, frame.right));
    let place_y = |value: f64| y.map(&value, (frame.bottom, frame.top));
    for &tick in &y.ticks {
        let at = place_y(tick);
        canvas.line((frame.left, at), (frame.right, at), GRID, 2)?;
        let end = (HPos::Right, VPos::Center);
        canvas.text(&y.told(tick), (frame.left - 12, at), LETTER, TEXT, end)?;
    }
    for &tick in &x.ticks {
        let at = place_x(tick);
        canvas.line((at, frame.bottom), (at, frame.bottom + 10), FAINT, 2)?;
        let middle = (HPos::Center, VPos::Top);
        canvas.text(&x.told(tick), (at, frame.bottom + 16), LETTER, TEXT, middle)?;
    }
    canvas.line(
        (frame.left, frame.bottom),
        (frame.right, frame.bottom),
        FAINT,
        2,
    )?;
    draw_marks(chart, frame, place_x, canvas)?;
    for (index, series) in chart.series.iter().enumerate() {
        let place = |(at, value): &(f64, f64)| (place_x(*at), place_y(*value));
        for run in runs(series, chart.kind) {
            canvas.path(run.iter().map(place).collect(), style::series(index))?;
        }
        let every = if series.points.len() > MARKERS_MAX {
            series.points.len() / 12
        } else {
            1
        };
        for (i, (at, value)) in series.points.iter().enumerate() {
            if let Some((low, high)) = value.interval {
                canvas.whisker(
                    place_x(*at),
                    (place_y(low), place_y(high)),
                    style::series(index),
                )?;
            }
            if let Some(value) = value
                .at
                .filter(|_| chart.kind == Kind::Lines && i % every == 0)
            {
                canvas.marker(index, (place_x(*at), place_y(value)))?;
            }
        }
    }
    Ok(())
}

/// Left and right end of the picture, and its height.
fn line_extent(chart: &Chart) -> (i32, i32, i32) {
    let (x, y) = (chart.x_axis(), chart.y_axis());
    let widths = y.ticks.iter().map(|tick| width(&y.told(*tick), LETTER));
    let last = x
        .ticks
        .last()
        .map_or(0, |tick| width(&x.told(*tick), LETTER));
    let left = PAD + widths.max().unwrap_or(0) + 16;
    (left, WIDTH - PAD - last / 2, PICTURE_HEIGHT)
}

/// Names of neighbouring marks stand in two rows, so that they have room.
fn draw_marks(
    chart: &Chart,
    frame: &Frame,
    place_x: impl Fn(f64) -> i32,
    canvas: &mut Canvas<'_>,
) -> Result<(), PlotError> {
    for (i, (x, name)) in (0..).zip(&chart.marks) {
        let at = place_x(*x);
        let y = frame.top - 12 - (i % 2) * rows(1, SMALL);
        canvas.line((at, y), (at, frame.bottom), FAINT, 2)?;
        let room = width(name, SMALL) + 8;
        let side = if at + room > WIDTH {
            (HPos::Right, VPos::Bottom)
        } else {
            (HPos::Left, VPos::Bottom)
        };
        let beside = if at + room > WIDTH { at - 8 } else { at + 8 };
        canvas.text(name, (beside, y + 4), SMALL, TEXT, side)?;
    }
    Ok(())
}

/// The points of a series without its gaps; with their corners, if they are steps.
fn runs(series: &Series, kind: Kind) -> Vec<Vec<(f64, f64)>> {
    let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (x, value) in &series.points {
        let run = runs.last_mut().expect("there is one from the start");
        match (value.at, run.last().copied()) {
            (None, None) => {}
            (None, Some(_)) => runs.push(Vec::new()),
            (Some(y), Some((_, before))) if kind == Kind::Steps => {
                run.extend([(*x, before), (*x, y)]);
            }
            (Some(y), _) => run.push((*x, y)),
        }
    }
    runs.retain(|run| run.len() > 1);
    runs
}

/// The entries of the legend, in as many rows as they need. One series needs none: the title names
/// it.
fn legend(chart: &Chart) -> Vec<Vec<(usize, i32)>> {
    let mut rows: Vec<Vec<(usize, i32)>> = Vec::new();
    if chart.series.len() < 2 {
        return rows;
    }
    let mut x = WIDTH;
    for (index, series) in chart.series.iter().enumerate() {
        let room = SWATCH + 12 + width(&entry(series), LETTER) + 36;
        if x + room > WIDTH {
            rows.push(Vec::new());
            x = PAD;
        }
        if let Some(row) = rows.last_mut() {
            row.push((index, x));
        }
        x += room;
    }
    rows
}

fn entry(series: &Series) -> String {
    match series.points.iter().any(|(_, value)| value.at.is_some()) {
        true => series.name.clone(),
        false => format!("{} ({NO_DATA})", series.name),
    }
}

fn mark_rows(chart: &Chart) -> i32 {
    rows(chart.marks.len().min(2), SMALL)
}

impl Canvas<'_> {
    pub(super) fn line(
        &mut self,
        from: (i32, i32),
        to: (i32, i32),
        colour: Colour,
        width: u32,
    ) -> Result<(), PlotError> {
        let style = colour.light.stroke_width(width);
        self.0.draw_line(from, to, &style).map_err(refused)
    }

    /// A line of a series; it alone may have gaps.
    fn path(&mut self, points: Vec<(i32, i32)>, colour: Colour) -> Result<(), PlotError> {
        let style = colour.light.stroke_width(5);
        self.0.draw_path(points, &style).map_err(refused)
    }

    pub(super) fn rect(
        &mut self,
        from: (i32, i32),
        to: (i32, i32),
        colour: Colour,
    ) -> Result<(), PlotError> {
        self.0
            .draw_rect(from, to, &colour.light, true)
            .map_err(refused)
    }

    pub(super) fn text(
        &mut self,
        text: &str,
        at: (i32, i32),
        size: i32,
        colour: Colour,
        place: (HPos, VPos),
    ) -> Result<(), PlotError> {
        self.write(text, at, (size, FontStyle::Normal), colour, place)
    }

    fn bold(&mut self, text: &str, at: (i32, i32)) -> Result<(), PlotError> {
        self.write(
            text,
            at,
            (TITLE, FontStyle::Bold),
            TEXT,
            (HPos::Left, VPos::Top),
        )
    }

    fn write(
        &mut self,
        text: &str,
        at: (i32, i32),
        (size, font): (i32, FontStyle),
        colour: Colour,
        (h_pos, v_pos): (HPos, VPos),
    ) -> Result<(), PlotError> {
        // The library takes the height of a line with its leading, and writes that of a letter.
        let style = TextStyle::from(("sans-serif", f64::from(size) * 1.24, font).into_font())
            .color(&colour.light)
            .pos(Pos { h_pos, v_pos });
        self.0
            .draw_text(&printable(text), &style, at)
            .map_err(refused)
    }

    fn marker(&mut self, index: usize, (x, y): (i32, i32)) -> Result<(), PlotError> {
        let colour = style::series(index);
        let corners: &[(i32, i32)] = match style::marker(index) {
            0 => return self.circle((x, y), colour.light.filled()),
            1 => &[(-9, -9), (9, -9), (9, 9), (-9, 9)],
            2 => &[(0, -13), (12, 9), (-12, 9)],
            3 => &[(0, -13), (13, 0), (0, 13), (-13, 0)],
            4 => return self.circle((x, y), colour.light.stroke_width(4)),
            5 => {
                self.line((x - 9, y - 9), (x + 9, y + 9), colour, 5)?;
                return self.line((x - 9, y + 9), (x + 9, y - 9), colour, 5);
            }
            6 => &[(0, 13), (12, -9), (-12, -9)],
            _ => {
                self.line((x - 12, y), (x + 12, y), colour, 5)?;
                return self.line((x, y - 12), (x, y + 12), colour, 5);
            }
        };
        let corners: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        self.0.fill_polygon(corners, &colour.light).map_err(refused)
    }

    fn circle(&mut self, at: (i32, i32), style: ShapeStyle) -> Result<(), PlotError> {
        self.0
            .draw_circle(at, 10, &style, style.filled)
            .map_err(refused)
    }

    fn whisker(
        &mut self,
        x: i32,
        (low, high): (i32, i32),
        colour: Colour,
    ) -> Result<(), PlotError> {
        self.line((x, low), (x, high), colour, 3)?;
        self.line((x - 8, low), (x + 8, low), colour, 3)?;
        self.line((x - 8, high), (x + 8, high), colour, 3)
    }
}

/// How wide a text will be, about: readers' fonts differ, this is a wide one.
pub(super) fn width(text: &str, size: i32) -> i32 {
    let part = |c: char| match c {
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '\u{2026}' => 0.95,
        'i' | 'j' | 'l' | 'I' | ' ' | '.' | ',' | ':' | ';' | '|' | '\'' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '/' | '-' => 0.42,
        'A'..='Z' => 0.72,
        _ => 0.63,
    };
    scaled(size, text.chars().map(part).sum())
}

/// The height of so many lines of text.
pub(super) fn rows(count: usize, size: i32) -> i32 {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    count.saturating_mul(scaled(size, LEADING))
}

fn scaled(length: i32, factor: f64) -> i32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "saturates, and texts are short"
    )]
    {
        (f64::from(length) * factor).round() as i32
    }
}

/// Cuts a text into lines that fit, between words where there are any.
fn wrap(text: &str, size: i32) -> Vec<String> {
    let room = WIDTH - 2 * PAD;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Text as SVG may hold it.
fn escape(text: &str) -> String {
    printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Without the characters that no XML document may hold (XML 1.0, 2.2).
fn printable(text: &str) -> String {
    let is_bad = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_bad, "\u{fffd}")
}

fn refused(error: impl std::fmt::Display) -> PlotError {
    PlotError::Draw(error.to_string())
}
