//! Pictures of figures: one self-contained SVG each, for documents, reports and browsers.
//!
//! A [`Chart`] is told what it shows and lays itself out: title, legend, picture, source, one below
//! the other, so that nothing ever covers data. Series differ in colour, marker and dash (bars: in
//! colour and hatching), so that they can be told apart by the colour-blind and in grey. Colours
//! follow the reader's choice of light or dark. Linear axes that can begin at zero do, bars always.
//!
//! It draws what it is given and computes nothing; what samples say is the business of
//! [`crate::stats`].
//!
//! ```
//! use onrush_measure::plot::{Chart, Unit};
//!
//! let svg = Chart::lines("What a send costs")
//!     .x("packet size", Unit::Bytes)
//!     .log_x(2)
//!     .y("CPU per packet", Unit::Nanoseconds)
//!     .series("sendto", [(128.0, 1510.0), (1024.0, 1580.0)])
//!     .series("sendmmsg", [(128.0, 1320.0), (1024.0, 1390.0)])
//!     .render()?;
//! assert!(svg.starts_with("<svg "));
//! # Ok::<(), onrush_measure::plot::PlotError>(())
//! ```

mod axis;
mod bars;
mod draw;
mod style;
mod unit;

use thiserror::Error;

pub use unit::Unit;

use crate::experiment::Environment;
use crate::stats::Summary;
use axis::{Axis, Scale};

/// Series that lines or steps can be told apart by: each has a marker of its own, or another
/// colour.
pub const SERIES_MAX: usize = 16;

/// Series of bars that can be told apart: each has a colour and a hatching.
pub const BAR_SERIES_MAX: usize = 8;

/// A chart that is being described; [`Chart::render`] draws it.
#[derive(Clone, Debug)]
pub struct Chart {
    kind: Kind,
    title: String,
    x: Side,
    y: Side,
    categories: Vec<String>,
    series: Vec<Series>,
    marks: Vec<(f64, String)>,
    source: Vec<String>,
}

/// A chart, and the file it goes to.
#[derive(Clone, Debug)]
pub struct Drawing {
    /// The file's name, without a folder.
    pub file: String,
    /// The chart.
    pub chart: Chart,
}

/// A value, perhaps unknown, perhaps with the interval that it is believed to lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Value {
    /// The value; `None` leaves a gap.
    pub at: Option<f64>,
    /// From where to where it may be; drawn as a bar of uncertainty.
    pub interval: Option<(f64, f64)>,
}

/// Why there is no picture.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum PlotError {
    /// A value that can be nowhere in a picture.
    #[error(
        "{series}: {value} cannot be drawn; leave out what was not measured (Value::default())"
    )]
    NotFinite {
        /// The series it is in.
        series: String,
        /// NaN, or an infinity.
        value: f64,
    },
    /// Zero, or less, on a logarithmic axis.
    #[error("{series}: {value} has no place on a logarithmic axis; draw it on a linear one")]
    NoLogarithm {
        /// The series it is in.
        series: String,
        /// The value.
        value: f64,
    },
    /// Bars on a logarithmic axis begin nowhere, so that their length says nothing.
    #[error("bars need an axis that begins at zero; draw lines on a logarithmic one")]
    LogarithmicBars,
    /// More series than can be told apart.
    #[error("{count} series cannot be told apart, {max} can; draw two charts")]
    Crowded {
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// Values and categories do not belong together.
    #[error("{series}: {values} values for {categories} categories; give one for each")]
    Mismatch {
        /// The series.
        series: String,
        /// How many values it has.
        values: usize,
        /// How many categories there are.
        categories: usize,
    },
    /// The library that writes SVG refused.
    #[error("cannot draw: {0}")]
    Draw(String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Lines,
    Steps,
    Bars,
    Stacked,
}

/// What is known of an axis before the data are.
#[derive(Clone, Debug)]
struct Side {
    name: String,
    unit: Unit,
    scale: Scale,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    points: Vec<(f64, Value)>,
}

impl Chart {
    /// Points joined by lines, with markers.
    #[must_use]
    pub fn lines(title: &str) -> Self {
        Self::new(Kind::Lines, title)
    }

    /// Steps: a value holds until the next point. For histograms and distributions.
    #[must_use]
    pub fn steps(title: &str) -> Self {
        Self::new(Kind::Steps, title)
    }

    /// Bars, a group for each category, side by side; they lie, so that long names can be read.
    #[must_use]
    pub fn bars(title: &str) -> Self {
        Self::new(Kind::Bars, title)
    }

    /// One bar for each category, of the series' values end to end.
    #[must_use]
    pub fn stacked(title: &str) -> Self {
        Self::new(Kind::Stacked, title)
    }

    fn new(kind: Kind, title: &str) -> Self {
        let side = || Side {
            name: String::new(),
            unit: Unit::Count,
            scale: Scale::Linear,
        };
        Self {
            kind,
            title: title.to_owned(),
            x: side(),
            y: side(),
            categories: Vec::new(),
            series: Vec::new(),
            marks: Vec::new(),
            source: Vec::new(),
        }
    }

    /// What goes to the right. Bars have categories instead.
    #[must_use]
    pub fn x(mut self, name: &str, unit: Unit) -> Self {
        (self.x.name, self.x.unit) = (name.to_owned(), unit);
        self
    }

    /// What is shown: it goes up, with bars to the right.
    #[must_use]
    pub fn y(mut self, name: &str, unit: Unit) -> Self {
        (self.y.name, self.y.unit) = (name.to_owned(), unit);
        self
    }

    /// Makes the x axis logarithmic; `base` (2 or 10, say) sets where its lines are.
    #[must_use]
    pub fn log_x(mut self, base: u32) -> Self {
        self.x.scale = Scale::Log { base };
        self
    }

    /// As [`Self::log_x`].
    #[must_use]
    pub fn log_y(mut self, base: u32) -> Self {
        self.y.scale = Scale::Log { base };
        self
    }

    /// The categories of bars, from the top down.
    #[must_use]
    pub fn categories<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.categories = names.into_iter().map(Into::into).collect();
        self
    }

    /// A series of lines or steps: x, and a number, a [`Summary`] (median and interval) or a
    /// [`Value`] each.
    #[must_use]
    pub fn series<V: Into<Value>>(
        mut self,
        name: &str,
        points: impl IntoIterator<Item = (f64, V)>,
    ) -> Self {
        self.series.push(Series {
            name: name.to_owned(),
            points: points.into_iter().map(|(x, y)| (x, y.into())).collect(),
        });
        self
    }

    /// A series of bars: a value for each category.
    #[must_use]
    pub fn values<V: Into<Value>>(self, name: &str, values: impl IntoIterator<Item = V>) -> Self {
        let numbered = (0_u32..).map(f64::from).zip(values);
        self.series(name, numbered)
    }

    /// A line from top to bottom at `x`, with its name above the picture: a cache's size, a bound.
    #[must_use]
    pub fn mark_x(mut self, x: f64, name: &str) -> Self {
        self.marks.push((x, name.to_owned()));
        self
    }

    /// Where the figures are from, at the foot: command, machine, date.
    #[must_use]
    pub fn source(mut self, environment: &Environment) -> Self {
        let machine = match &environment.virtual_machine {
            Some(host) => format!("virtual machine ({host})"),
            None => "metal".to_owned(),
        };
        self.source.push(environment.command.clone());
        self.source.push(format!(
            "{}, {} processors, {machine}; Linux {}; onrush {}; {}",
            environment.cpu,
            environment.cores.len(),
            environment.kernel,
            environment.version,
            environment.date
        ));
        self
    }

    /// A further line at the foot.
    #[must_use]
    pub fn note(mut self, text: &str) -> Self {
        self.source.push(text.to_owned());
        self
    }

    /// Draws it: an SVG document that needs nothing else.
    ///
    /// # Errors
    ///
    /// If a value has no place in it, or it would show what nobody can read.
    pub fn render(&self) -> Result<String, PlotError> {
        self.check()?;
        draw::svg(self, true)
    }

    /// As [`Self::render`], for a page that has [`styles`] of its own.
    ///
    /// # Errors
    ///
    /// As [`Self::render`].
    pub fn render_inline(&self) -> Result<String, PlotError> {
        self.check()?;
        draw::svg(self, false)
    }

    /// Its title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its figures as a table, head and rows, for those who cannot see it.
    #[must_use]
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let first = match self.is_bars() {
            true => String::new(),
            false => self.x.label(),
        };
        let head = [first]
            .into_iter()
            .chain(self.series.iter().map(|series| series.name.clone()));
        let mut xs: Vec<f64> = self
            .series
            .iter()
            .flat_map(|series| &series.points)
            .map(|(x, _)| *x)
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let rows = xs.iter().enumerate().map(|(i, x)| {
            let name = match self.is_bars() {
                true => self.categories[i].clone(),
                false => self.x.unit.tell(*x),
            };
            let cell = |series: &Series| {
                let value = series
                    .points
                    .iter()
                    .find(|(at, _)| at == x)
                    .and_then(|(_, v)| v.at);
                value.map_or_else(String::new, |value| self.y.unit.tell(value))
            };
            [name]
                .into_iter()
                .chain(self.series.iter().map(cell))
                .collect()
        });
        (head.collect(), rows.collect())
    }

    fn check(&self) -> Result<(), PlotError> {
        let max = if self.is_bars() {
            BAR_SERIES_MAX
        } else {
            SERIES_MAX
        };
        let count = self.series.len();
        if count > max {
            return Err(PlotError::Crowded { count, max });
        }
        if self.is_bars() && self.y.scale != Scale::Linear {
            return Err(PlotError::LogarithmicBars);
        }
        for (x, name) in &self.marks {
            check(name, self.x.scale, [*x])?;
        }
        self.series
            .iter()
            .try_for_each(|series| self.check_series(series))
    }

    fn check_series(&self, series: &Series) -> Result<(), PlotError> {
        let (values, categories) = (series.points.len(), self.categories.len());
        if self.is_bars() && values != categories {
            return Err(PlotError::Mismatch {
                series: series.name.clone(),
                values,
                categories,
            });
        }
        let Series { name, points } = series;
        if !self.is_bars() {
            check(name, self.x.scale, points.iter().map(|(x, _)| *x))?;
        }
        let values = points.iter().flat_map(|(_, value)| value.reach());
        check(name, self.y.scale, values)
    }

    fn is_bars(&self) -> bool {
        matches!(self.kind, Kind::Bars | Kind::Stacked)
    }

    /// The axis to the right of lines and steps.
    fn x_axis(&self) -> Axis {
        let marks = self.marks.iter().map(|(x, _)| *x);
        let points = self.series.iter().flat_map(|series| &series.points);
        let xs: Vec<_> = points.map(|(x, _)| *x).chain(marks).collect();
        Axis::over(&xs, self.x.scale, self.x.unit, false)
    }

    /// The axis of values.
    fn y_axis(&self) -> Axis {
        let reach = |series: &Series| -> Vec<f64> {
            let values = series.points.iter().flat_map(|(_, value)| value.reach());
            values.collect()
        };
        let ys: Vec<f64> = match self.kind {
            Kind::Stacked => (0..self.categories.len())
                .map(|i| self.series.iter().filter_map(|s| s.points[i].1.at).sum())
                .collect(),
            _ => self.series.iter().flat_map(reach).collect(),
        };
        Axis::over(&ys, self.y.scale, self.y.unit, true)
    }

    /// What the picture shows, in words.
    fn description(&self) -> String {
        let kind = match self.kind {
            Kind::Lines => "Lines",
            Kind::Steps => "Steps",
            Kind::Bars => "Bars",
            Kind::Stacked => "Stacked bars",
        };
        let mut words = match self.is_bars() {
            true => format!(
                "{kind}: {} for {}.",
                self.y.label(),
                self.categories.join(", ")
            ),
            false => format!("{kind}: {} over {}.", self.y.label(), self.x.label()),
        };
        for series in &self.series {
            let values: Vec<_> = series.points.iter().filter_map(|(_, v)| v.at).collect();
            let told = match (
                values.iter().copied().reduce(f64::min),
                values.iter().copied().reduce(f64::max),
            ) {
                (Some(low), Some(high)) => {
                    format!("{} to {}", self.y.unit.tell(low), self.y.unit.tell(high))
                }
                _ => NO_DATA.to_owned(),
            };
            words += &format!(" {}: {told}.", series.name);
        }
        words
    }
}

/// The style sheet for pages that hold pictures of [`Chart::render_inline`].
#[must_use]
pub fn styles() -> String {
    style::sheet()
}

impl Drawing {
    /// A chart that goes to such a file.
    #[must_use]
    pub fn new(file: impl Into<String>, chart: Chart) -> Self {
        Self {
            file: file.into(),
            chart,
        }
    }
}

impl Value {
    /// All numbers that have to be in the picture.
    fn reach(&self) -> impl Iterator<Item = f64> + use<> {
        let (low, high) = self.interval.unzip();
        [self.at, low, high].into_iter().flatten()
    }
}

impl Side {
    fn label(&self) -> String {
        match self.unit.name() {
            "" => self.name.clone(),
            unit => format!("{} ({unit})", self.name),
        }
    }
}

impl From<f64> for Value {
    fn from(at: f64) -> Self {
        Self {
            at: Some(at),
            interval: None,
        }
    }
}

impl From<Option<f64>> for Value {
    fn from(at: Option<f64>) -> Self {
        Self { at, interval: None }
    }
}

impl From<&Summary> for Value {
    /// The median, in the interval that it lies in.
    fn from(summary: &Summary) -> Self {
        Self {
            at: Some(summary.median),
            interval: Some(summary.interval),
        }
    }
}

impl From<Option<&Summary>> for Value {
    fn from(summary: Option<&Summary>) -> Self {
        summary.map_or_else(Self::default, Self::from)
    }
}

const NO_DATA: &str = "no data";

fn check(
    series: &str,
    scale: Scale,
    values: impl IntoIterator<Item = f64>,
) -> Result<(), PlotError> {
    let series = || series.to_owned();
    for value in values {
        if !value.is_finite() {
            return Err(PlotError::NotFinite {
                series: series(),
                value,
            });
        }
        if scale != Scale::Linear && value <= 0.0 {
            return Err(PlotError::NoLogarithm {
                series: series(),
                value,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
