//! Lays a chart out, one thing below the other, and writes it as SVG.
//!
//! The light colours stand at each group of elements, so that a picture is right without any style
//! sheet; the sheet exchanges them for the dark, by the group's class.

use maud::{Markup, PreEscaped, html};

use super::chart::{Chart, Kind, NO_DATA, PlotError, Series, Value};
use crate::stats::to_f64;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 280.0;
const PAD: f64 = 14.0;
/// Sizes of letters: of the title, of the source, and of all else.
const TITLE: f64 = 18.0;
const SMALL: f64 = 12.0;
const LETTER: f64 = 14.0;
/// From one line of text to the next, over its height.
const LEADING: f64 = 1.4;
const SWATCH: f64 = 32.0;
const BAR: f64 = 16.0;
/// From a bar to the next of its category, and between categories.
const BAR_STEP: f64 = 18.0;
const BAR_GAP: f64 = 11.0;
/// Points from which on only some have markers.
const MARKERS_MAX: usize = 40;

/// A class of elements, its colour on light ground, and its colour on dark ground.
type Colour = (&'static str, &'static str, &'static str);

const GROUND: Colour = ("ground", "#FFFFFF", "#14181D");
const TEXT: Colour = ("text", "#1F2328", "#E6EAF0");
const FAINT: Colour = ("faint", "#57606A", "#A4ADB8");
const GRID: Colour = ("grid", "#D8DEE4", "#333A43");

/// One for each series. Each is at least three times as light, or as dark, as the ground.
const SERIES: [Colour; 10] = [
    ("s0", "#005FA8", "#6BB5F0"),
    ("s1", "#C44E00", "#FF9A55"),
    ("s2", "#007F5C", "#45D3A6"),
    ("s3", "#A83E86", "#F09BCB"),
    ("s4", "#836800", "#E3C44A"),
    ("s5", "#454B52", "#CFD6DD"),
    ("s6", "#1482B8", "#9CE0F7"),
    ("s7", "#6E3AA0", "#C79BEA"),
    ("s8", "#A01C1C", "#FF8A80"),
    ("s9", "#2E6E12", "#9BD86A"),
];

/// Drawn and left out of each series' lines; of the first all is drawn.
const DASHES: [&str; 10] = [
    "none",
    "11 5",
    "3 4",
    "11 4 3 4",
    "6 4",
    "none",
    "17 5",
    "3 3 3 7",
    "15 3 3 3 3 3",
    "2 3",
];

/// Markers: how they are drawn around a point, and what fills them.
const MARKERS: [(&str, &str); 8] = [
    ("m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", FULL),
    ("m-3.5-3.5h7v7h-7z", FULL),
    ("m0-5l4.5 8.5h-9z", FULL),
    ("m0-5l5 5l-5 5l-5-5z", FULL),
    ("m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "none"),
    ("m-4.5-4.5l9 9m-9 0l9-9", "none"),
    ("m0 5l4.5-8.5h-9z", FULL),
    ("m-6 0h12m-6-6v12", "none"),
];
const FULL: &str = "currentColor";

/// What is drawn over the colours of bars, on a tile of eight units.
const HATCHES: [&str; 8] = [
    "",
    "M-2 2 2-2M0 8 8 0M6 10 10 6",
    "M0 2h8M0 6h8",
    "M2 0v8M6 0v8",
    "M-2 6 2 10M0 0 8 8M6-2 10 2",
    "M0 4h8M4 0v8",
    "M0 4h8",
    "M-2 2 2-2M0 8 8 0M6 10 10 6M-2 6 2 10M0 0 8 8M6-2 10 2",
];

impl Chart {
    /// Draws it: an SVG document that needs nothing else.
    ///
    /// # Errors
    ///
    /// If a value has no place in it, or it would show what nobody can read.
    pub fn render(&self) -> Result<String, PlotError> {
        self.check()?;
        Ok(svg(self, &html! { style { (PreEscaped(styles())) } }).into_string())
    }

    /// As [`Self::render`], for a page that has [`styles`] of its own.
    ///
    /// # Errors
    ///
    /// As [`Self::render`].
    pub fn render_inline(&self) -> Result<String, PlotError> {
        self.check()?;
        Ok(svg(self, &html! {}).into_string())
    }
}

/// The style sheet for pages that hold pictures of [`Chart::render_inline`].
#[must_use]
pub fn styles() -> String {
    let colours = [GROUND, TEXT, FAINT, GRID].into_iter().chain(SERIES);
    let dark = colours.map(|(class, _, dark)| format!(".plot .{class}{{color:{dark}}}"));
    let dark: String = dark.collect();
    format!("@media screen and (prefers-color-scheme:dark){{{dark}}}")
}

fn svg(chart: &Chart, style: &Markup) -> Markup {
    let mut sheet = Sheet {
        y: PAD,
        parts: Vec::new(),
    };
    sheet.write(&chart.title, TITLE, TEXT);
    // The title names a single series.
    if chart.series.len() > 1 {
        sheet.legend(chart);
    }
    match chart.is_bars() {
        true => sheet.bars(chart),
        false => sheet.lines(chart),
    }
    for line in &chart.source {
        sheet.write(line, SMALL, FAINT);
    }
    let height = round(sheet.y + PAD);
    let hatches = chart.series.len() * usize::from(chart.is_bars());
    let description = format!("{} {}", chart.description(), chart.source.join("; "));
    html! {
        svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" width=(WIDTH)
            height=(height) viewBox=(format!("0 0 {WIDTH} {height}"))
            font-family="system-ui, sans-serif" {
            title { (printable(&chart.title)) }
            desc { (printable(&description)) }
            (style)
            @if hatches > 1 { defs { @for index in 1..hatches { (hatch(index)) } } }
            (coloured(GROUND, &html! { rect width=(WIDTH) height=(height) {} }))
            @for part in &sheet.parts { "\n" (part) }
        }
        "\n"
    }
}

/// A picture that is filled from the top down.
struct Sheet {
    y: f64,
    parts: Vec<Markup>,
}

impl Sheet {
    fn draw(&mut self, colour: Colour, content: &Markup) {
        self.parts.push(coloured(colour, content));
    }

    /// A text, in as many lines as it needs.
    fn write(&mut self, words: &str, size: f64, colour: Colour) {
        let mut line = String::new();
        for word in words.split_whitespace() {
            if !line.is_empty() && width(&line, size) + width(word, size) > WIDTH - 3.0 * PAD {
                self.line_of_text(&line, size, colour);
                line.clear();
            }
            line = format!("{line} {word}");
        }
        self.line_of_text(&line, size, colour);
    }

    fn line_of_text(&mut self, line: &str, size: f64, colour: Colour) {
        self.text(
            "start",
            size,
            colour,
            (PAD, self.y + size / 2.0),
            line.trim(),
        );
        self.y += size * LEADING;
    }

    /// A text that begins, ends or has its middle at a place.
    fn text(&mut self, anchor: &str, size: f64, colour: Colour, (x, y): (f64, f64), words: &str) {
        let (x, y) = (round(x), round(y + size * 0.35));
        let weight = (size == TITLE).then_some("bold");
        let text = html! {
            text x=(x) y=(y) font-size=(size) font-weight=[weight] text-anchor=(anchor) {
                (printable(words))
            }
        };
        self.draw(colour, &text);
    }

    /// What most texts are.
    fn label(&mut self, anchor: &str, at: (f64, f64), words: &str) {
        self.text(anchor, LETTER, TEXT, at, words);
    }

    fn straight(&mut self, colour: Colour, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(round);
        let line = html! { line x1=(x1) y1=(y1) x2=(x2) y2=(y2) stroke="currentColor" {} };
        self.draw(colour, &line);
    }

    fn legend(&mut self, chart: &Chart) {
        let mut x = PAD;
        for (index, series) in chart.series.iter().enumerate() {
            let is_empty = series.points.iter().all(|(_, value)| value.at.is_none());
            let none = format!("{} ({NO_DATA})", series.name);
            let name = if is_empty { &none } else { &series.name };
            let room = SWATCH + 6.0 + width(name, LETTER) + 16.0;
            if x > PAD && x + room > WIDTH {
                (x, self.y) = (PAD, self.y + LETTER * LEADING);
            }
            let y = self.y + LETTER / 2.0;
            let swatch = match chart.is_bars() {
                true => bar(index, x, x + 24.0, y - 6.0, 12.0),
                false => html! {
                    (line(index, [(x, y), (x + SWATCH, y)]))
                    @if chart.kind == Kind::Lines { (marker(index, x + SWATCH / 2.0, y)) }
                },
            };
            self.draw(colour(index), &swatch);
            self.label("start", (x + SWATCH + 6.0, y), name);
            x += room;
        }
        self.y += LETTER * LEADING;
    }

    fn lines(&mut self, chart: &Chart) {
        let (x, y) = (chart.x_axis(), chart.y_axis());
        self.write(&chart.y.label(), LETTER, TEXT);
        self.y += SMALL * LEADING * to_f64(chart.marks.len().min(2)) + 6.0;
        let (top, bottom) = (self.y, self.y + HEIGHT);
        let x_name = |tick: f64| chart.x.unit.tell(tick);
        let y_name = |tick: f64| chart.y.unit.tell(tick);
        let left = PAD + 10.0 + widest(y.ticks.iter().map(|&tick| y_name(tick)));
        let right = WIDTH - PAD - width(&x_name(x.high), LETTER) / 2.0;
        let place_x = |value: f64| x.place(value, left, right);
        let place_y = |value: f64| y.place(value, bottom, top);
        for &tick in &y.ticks {
            let at = place_y(tick);
            self.straight(GRID, (left, at), (right, at));
            self.label("end", (left - 9.0, at), &y_name(tick));
        }
        let mut free = 0.0;
        for &tick in &x.ticks {
            let (at, name) = (place_x(tick), x_name(tick));
            let half = width(&name, LETTER) / 2.0;
            self.straight(FAINT, (at, bottom), (at, bottom + 5.0));
            // A name that would run into the one before is left out.
            if at - half >= free {
                self.label("middle", (at, bottom + 15.0), &name);
                free = at + half;
            }
        }
        self.straight(FAINT, (left, bottom), (right, bottom));
        // Names of neighbouring marks stand in two rows, so that they have room.
        for ((at, name), row) in chart.marks.iter().zip([0.5, 1.9].into_iter().cycle()) {
            let at = place_x(*at);
            let end = top - SMALL * row;
            self.straight(FAINT, (at, end), (at, bottom));
            let (anchor, beside) = match at + width(name, SMALL) > WIDTH - PAD {
                true => ("end", at - 4.0),
                false => ("start", at + 4.0),
            };
            self.text(anchor, SMALL, TEXT, (beside, end), name);
        }
        for (index, series) in chart.series.iter().enumerate() {
            let every = match series.points.len() {
                many @ MARKERS_MAX.. => many / 12,
                _ => 1,
            };
            let runs = runs(series, chart.kind);
            let runs = runs
                .iter()
                .map(|run| run.iter().map(|(x, y)| (place_x(*x), place_y(*y))));
            let has_marker = |i: usize| chart.kind == Kind::Lines && i.is_multiple_of(every);
            let content = html! {
                @for run in runs { (line(index, run)) }
                @for (i, (x, value)) in series.points.iter().enumerate() {
                    @if let Some((low, high)) = value.interval {
                        (whisker((place_x(*x), place_y(low)), (place_x(*x), place_y(high))))
                    }
                    @if let Some(y) = value.at.filter(|_| has_marker(i)) {
                        (marker(index, place_x(*x), place_y(y)))
                    }
                }
            };
            self.draw(colour(index), &content);
        }
        self.finish(chart, &chart.x.label(), (left, right), (top, bottom));
    }

    fn bars(&mut self, chart: &Chart) {
        let axis = chart.y_axis();
        let tell = |value: f64| chart.y.unit.tell(value);
        let names: Vec<_> = chart.categories.iter().map(|name| cut(name)).collect();
        let left = PAD + 8.0 + widest(names.iter().cloned());
        let values = chart.points().filter_map(|(_, value)| value.at.map(tell));
        let right = WIDTH - PAD - 12.0 - widest(values);
        let rows = match chart.kind {
            Kind::Stacked => 1,
            _ => chart.series.len().max(1),
        };
        let row = BAR_STEP * to_f64(rows) + BAR_GAP;
        let top = self.y + 6.0;
        let bottom = top + row * to_f64(names.len().max(1)) + BAR_GAP;
        let place = |value: f64| axis.place(value, left, right);
        for &tick in &axis.ticks {
            self.straight(GRID, (place(tick), top), (place(tick), bottom));
            self.label("middle", (place(tick), bottom + 15.0), &tell(tick));
        }
        let tops = std::iter::successors(Some(top + BAR_GAP), |y| Some(y + row));
        for ((i, name), mut y) in names.iter().enumerate().zip(tops) {
            let middle = y + (row - BAR_GAP) / 2.0;
            self.label("end", (left - 8.0, middle), name);
            let mut from = 0.0;
            for (index, series) in chart.series.iter().enumerate() {
                let Value { at, interval } = series.points[i].1;
                let to = from + at.unwrap_or(0.0);
                self.draw(colour(index), &bar(index, place(from), place(to), y, BAR));
                let is_stacked = chart.kind == Kind::Stacked;
                if !is_stacked || index + 1 == chart.series.len() {
                    let middle = y + BAR / 2.0;
                    let (low, high) = interval.unwrap_or((to, to));
                    if low < high {
                        self.draw(TEXT, &whisker((place(low), middle), (place(high), middle)));
                    }
                    let beside = place(to.max(high).max(0.0)) + 6.0;
                    let told = if is_stacked { Some(to) } else { at };
                    let told = told.map_or_else(|| "-".to_owned(), tell);
                    self.label("start", (beside, middle), &told);
                }
                match is_stacked {
                    true => from = to,
                    false => y += BAR_STEP,
                }
            }
        }
        self.straight(FAINT, (place(0.0), top), (place(0.0), bottom));
        self.finish(chart, &chart.y.label(), (left, right), (top, bottom));
    }

    /// What stands in the middle of a picture and below it.
    fn finish(&mut self, chart: &Chart, label: &str, x: (f64, f64), y: (f64, f64)) {
        let middle = f64::midpoint(x.0, x.1);
        if chart.points().all(|(_, value)| value.at.is_none()) {
            let at = f64::midpoint(y.0, y.1);
            self.text("middle", LETTER, FAINT, (middle, at), NO_DATA);
        }
        self.label("middle", (middle, y.1 + 35.0), label);
        self.y = y.1 + 46.0;
    }
}

/// The points of a series without its gaps; with their corners, if they are steps.
fn runs(series: &Series, kind: Kind) -> Vec<Vec<(f64, f64)>> {
    let runs = series
        .points
        .split(|(_, value)| value.at.is_none())
        .filter(|run| run.len() > 1);
    let corners = |run: &[(f64, Value)]| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for &(x, value) in run {
            let before = points.last().filter(|_| kind == Kind::Steps);
            points.extend(before.map(|&(_, y)| (x, y)));
            points.extend(value.at.map(|y| (x, y)));
        }
        points
    };
    runs.map(corners).collect()
}

/// The colour of a series; after the tenth they come again.
fn colour(index: usize) -> Colour {
    SERIES[index % SERIES.len()]
}

fn coloured((class, light, _): Colour, content: &Markup) -> Markup {
    html! { g class=(class) color=(light) fill="currentColor" { (content) } }
}

fn line(index: usize, points: impl IntoIterator<Item = (f64, f64)>) -> Markup {
    let points = points
        .into_iter()
        .map(|(x, y)| format!("{},{}", round(x), round(y)));
    html! {
        polyline points=(points.collect::<Vec<_>>().join(" ")) fill="none" stroke="currentColor"
            stroke-width="2.5" stroke-linejoin="round" stroke-dasharray=(DASHES[index % 10]) {}
    }
}

fn bar(index: usize, from: f64, to: f64, y: f64, height: f64) -> Markup {
    let fill = (index > 0).then(|| format!("url(#hatch{index})"));
    html! {
        rect x=(round(from.min(to))) y=(round(y)) width=(round((to - from).abs()))
            height=(height) fill=[fill] {}
    }
}

fn hatch(index: usize) -> Markup {
    html! {
        pattern id=(format!("hatch{index}")) width="8" height="8" patternUnits="userSpaceOnUse" {
            (coloured(SERIES[index], &html! { rect width="8" height="8" {} }))
            (coloured(GROUND, &html! {
                path d=(HATCHES[index]) fill="none" stroke="currentColor" stroke-width="1.2" {}
            }))
        }
    }
}

/// Which of the markers a series has: another than the one of the same colour.
fn marker_of(index: usize) -> usize {
    (index + index / 8 * 4) % 8
}

fn marker(index: usize, x: f64, y: f64) -> Markup {
    let (shape, fill) = MARKERS[marker_of(index)];
    let d = format!("M{} {}{shape}", round(x), round(y));
    html! { path d=(d) fill=(fill) stroke="currentColor" stroke-width="2" {} }
}

/// An interval: a line with a stroke across each end.
fn whisker(from: (f64, f64), to: (f64, f64)) -> Markup {
    let across = if from.0 == to.0 { "m-4 0h8" } else { "m0-4v8" };
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(round);
    let d = format!("M{x1} {y1}L{x2} {y2}{across}M{x1} {y1}{across}");
    html! { path d=(d) fill="none" stroke="currentColor" {} }
}

/// How wide a text will be, about: readers' fonts differ.
fn width(text: &str, size: f64) -> f64 {
    size * 0.63 * to_f64(text.chars().count())
}

fn widest(texts: impl Iterator<Item = String>) -> f64 {
    texts.map(|text| width(&text, LETTER)).fold(0.0, f64::max)
}

/// A category's name, cut where it takes too much room; the description has all of it.
fn cut(name: &str) -> String {
    match name.chars().count() {
        0..=34 => name.to_owned(),
        _ => name.chars().take(33).chain(['\u{2026}']).collect(),
    }
}

/// To a tenth of a unit, which nobody sees.
fn round(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// Without the characters that no XML document may hold (XML 1.0, 2.2).
fn printable(text: &str) -> String {
    let is_bad = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_bad, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::plot::{BAR_SERIES_MAX, SERIES_MAX};

    /// The contrast of two colours, 1 to 21 (WCAG 2.2, relative luminance).
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |colour: &str| {
            let linear = |at: usize| {
                let part = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
                match f64::from(part) / 255.0 {
                    part if part <= 0.040_45 => part / 12.92,
                    part => ((part + 0.055) / 1.055).powf(2.4),
                }
            };
            0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5) + 0.05
        };
        let ratio = luminance(a) / luminance(b);
        ratio.max(1.0 / ratio)
    }

    #[test]
    fn everything_stands_out_from_its_ground() {
        let texts = [TEXT, FAINT].map(|text| (text, 4.5));
        for ((_, light, dark), least) in texts.into_iter().chain(SERIES.map(|s| (s, 3.0))) {
            assert!(contrast(light, GROUND.1) >= least, "{light}");
            assert!(contrast(dark, GROUND.2) >= least, "{dark}");
        }
    }

    #[test]
    fn no_two_series_look_alike() {
        let looks = |i: usize| (colour(i), marker_of(i));
        assert_eq!(
            (0..SERIES_MAX).map(looks).collect::<HashSet<_>>().len(),
            SERIES_MAX
        );
        let hatches: HashSet<_> = HATCHES.into_iter().collect();
        assert_eq!(hatches.len(), BAR_SERIES_MAX);
    }
}
