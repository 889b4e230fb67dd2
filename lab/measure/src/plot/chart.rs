//! What a picture shows: series of values, checked, and told in words and as a table.

use thiserror::Error;

use super::axis::{Axis, Scale};
use super::unit::Unit;
use crate::stats::Summary;

/// Series that lines or steps can be told apart by: each has a marker of its own, or another
/// colour.
pub const SERIES_MAX: usize = 16;

/// Series of bars that can be told apart: each has a colour and a hatching.
pub const BAR_SERIES_MAX: usize = 8;

pub(super) const NO_DATA: &str = "no data";

/// A chart that is being described; [`Chart::render`] draws it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Chart {
    pub(super) kind: Kind,
    pub(super) title: String,
    pub(super) x: Side,
    pub(super) y: Side,
    pub(super) categories: Vec<String>,
    pub(super) series: Vec<Series>,
    pub(super) marks: Vec<(f64, String)>,
    pub(super) source: Vec<String>,
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
    /// NaN or an infinity.
    #[error("{0}: {1} cannot be drawn; leave out what was not measured (Value::default())")]
    NotFinite(String, f64),
    /// Zero, or less, on a logarithmic axis.
    #[error("{0}: {1} has no place on a logarithmic axis; draw it on a linear one")]
    NoLogarithm(String, f64),
    /// More series than can be told apart.
    #[error("{0} series cannot be told apart, {1} can; draw two charts")]
    Crowded(usize, usize),
    /// Values and categories do not belong together.
    #[error("{0}: {1} values for {2} categories; give one for each")]
    Mismatch(String, usize, usize),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Lines,
    Steps,
    Bars,
    Stacked,
}

/// What is known of an axis before the data are.
#[derive(Clone, Debug)]
pub(super) struct Side {
    name: String,
    pub(super) unit: Unit,
    scale: Scale,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, Value)>,
}

impl Chart {
    /// Points joined by lines, with markers.
    pub fn lines(title: &str) -> Self {
        Self::new(Kind::Lines, title)
    }

    /// Steps: a value holds until the next point. For histograms and distributions.
    pub fn steps(title: &str) -> Self {
        Self::new(Kind::Steps, title)
    }

    /// Bars, a group for each category, side by side; they lie, so that long names can be read.
    pub fn bars(title: &str) -> Self {
        Self::new(Kind::Bars, title)
    }

    /// One bar for each category, of the series' values end to end.
    pub fn stacked(title: &str) -> Self {
        Self::new(Kind::Stacked, title)
    }

    fn new(kind: Kind, title: &str) -> Self {
        let side = Side {
            name: String::new(),
            unit: Unit::Count,
            scale: Scale::Linear,
        };
        Self {
            kind,
            title: title.to_owned(),
            x: side.clone(),
            y: side,
            categories: Vec::new(),
            series: Vec::new(),
            marks: Vec::new(),
            source: Vec::new(),
        }
    }

    /// What goes to the right. Bars have categories instead.
    pub fn x(mut self, name: &str, unit: Unit) -> Self {
        (self.x.name, self.x.unit) = (name.to_owned(), unit);
        self
    }

    /// What is shown: it goes up, with bars to the right.
    pub fn y(mut self, name: &str, unit: Unit) -> Self {
        (self.y.name, self.y.unit) = (name.to_owned(), unit);
        self
    }

    /// Makes the x axis logarithmic; `base` (2 or 10, say) sets where its lines are.
    pub fn log_x(mut self, base: u32) -> Self {
        self.x.scale = Scale::Log { base };
        self
    }

    /// As [`Self::log_x`]; bars begin at zero all the same, or their length would say nothing.
    pub fn log_y(mut self, base: u32) -> Self {
        if !self.is_bars() {
            self.y.scale = Scale::Log { base };
        }
        self
    }

    /// The categories of bars, from the top down.
    pub fn categories<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.categories = names.into_iter().map(Into::into).collect();
        self
    }

    /// A series of lines or steps: x, and a number, a [`Summary`] (median and interval) or a
    /// [`Value`] each.
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
    pub fn values<V: Into<Value>>(self, name: &str, values: impl IntoIterator<Item = V>) -> Self {
        self.series(name, (0_u32..).map(f64::from).zip(values))
    }

    /// A line from top to bottom at `x`, with its name above the picture: a cache's size, a bound.
    pub fn mark_x(mut self, x: f64, name: &str) -> Self {
        self.marks.push((x, name.to_owned()));
        self
    }

    /// Where the figures are from, at the foot: lines of command, machine, date.
    pub fn source(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.source.extend(lines);
        self
    }

    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its figures as a table, head and rows, for those who cannot see it.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let mut xs: Vec<f64> = self.points().map(|(x, _)| *x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let (first, names): (_, Vec<_>) = match self.is_bars() {
            true => (String::new(), self.categories.clone()),
            false => (
                self.x.label(),
                xs.iter().map(|&x| self.x.unit.tell(x)).collect(),
            ),
        };
        let names_of_series = self.series.iter().map(|series| series.name.clone());
        let head = [first].into_iter().chain(names_of_series).collect();
        let row = |(x, name): (&f64, String)| {
            let cell = |series: &Series| {
                let point = series.points.iter().find(|(at, _)| at == x);
                let value = point.and_then(|(_, value)| value.at);
                value.map_or_else(String::new, |value| self.y.unit.tell(value))
            };
            [name]
                .into_iter()
                .chain(self.series.iter().map(cell))
                .collect()
        };
        (head, xs.iter().zip(names).map(row).collect())
    }

    /// What the picture shows, in words.
    pub(super) fn description(&self) -> String {
        let over = match self.is_bars() {
            true => format!("for {}", self.categories.join(", ")),
            false => format!("over {}", self.x.label()),
        };
        let mut words = format!("{:?}: {} {over}.", self.kind, self.y.label());
        for series in &self.series {
            let values = || series.points.iter().filter_map(|(_, value)| value.at);
            let ends = values().reduce(f64::min).zip(values().reduce(f64::max));
            let told = ends.map_or_else(
                || NO_DATA.to_owned(),
                |(low, high)| format!("{} to {}", self.y.unit.tell(low), self.y.unit.tell(high)),
            );
            words += &format!(" {}: {told}.", series.name);
        }
        words
    }

    /// Whether all has a place, and can be told apart.
    pub(super) fn check(&self) -> Result<(), PlotError> {
        let max = if self.is_bars() {
            BAR_SERIES_MAX
        } else {
            SERIES_MAX
        };
        if self.series.len() > max {
            return Err(PlotError::Crowded(self.series.len(), max));
        }
        for (x, name) in &self.marks {
            self.x.check(name, *x)?;
        }
        for Series { name, points } in &self.series {
            if self.is_bars() && points.len() != self.categories.len() {
                let (values, categories) = (points.len(), self.categories.len());
                return Err(PlotError::Mismatch(name.clone(), values, categories));
            }
            for (x, value) in points {
                self.x.check(name, *x)?;
                value.reach().try_for_each(|y| self.y.check(name, y))?;
            }
        }
        Ok(())
    }

    pub(super) fn is_bars(&self) -> bool {
        matches!(self.kind, Kind::Bars | Kind::Stacked)
    }

    pub(super) fn points(&self) -> impl Iterator<Item = &(f64, Value)> {
        self.series.iter().flat_map(|series| &series.points)
    }

    /// The axis to the right of lines and steps.
    pub(super) fn x_axis(&self) -> Axis {
        let marks = self.marks.iter().map(|(x, _)| *x);
        let xs: Vec<_> = self.points().map(|(x, _)| *x).chain(marks).collect();
        Axis::over(&xs, self.x.scale, self.x.unit, false)
    }

    /// The axis of values.
    pub(super) fn y_axis(&self) -> Axis {
        let ys: Vec<f64> = match self.kind {
            Kind::Stacked => (0..self.categories.len())
                .map(|i| {
                    self.series
                        .iter()
                        .filter_map(|series| series.points[i].1.at)
                        .sum()
                })
                .collect(),
            _ => self.points().flat_map(|(_, value)| value.reach()).collect(),
        };
        Axis::over(&ys, self.y.scale, self.y.unit, true)
    }
}

impl Drawing {
    /// A chart that goes to such a file.
    pub fn new(file: impl Into<String>, chart: Chart) -> Self {
        let file = file.into();
        Self { file, chart }
    }
}

impl Value {
    /// All numbers that have to be in the picture.
    fn reach(self) -> impl Iterator<Item = f64> {
        let (low, high) = self.interval.unzip();
        [self.at, low, high].into_iter().flatten()
    }
}

impl Side {
    /// Its name, with the unit unless each number tells it.
    pub(super) fn label(&self) -> String {
        match self.unit {
            Unit::Named(unit) => format!("{} ({unit})", self.name),
            _ => self.name.clone(),
        }
    }

    fn check(&self, series: &str, value: f64) -> Result<(), PlotError> {
        match value {
            _ if !value.is_finite() => Err(PlotError::NotFinite(series.to_owned(), value)),
            _ if self.scale != Scale::Linear && value <= 0.0 => {
                Err(PlotError::NoLogarithm(series.to_owned(), value))
            }
            _ => Ok(()),
        }
    }
}

impl From<f64> for Value {
    fn from(at: f64) -> Self {
        Some(at).into()
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

impl From<Option<Summary>> for Value {
    fn from(summary: Option<Summary>) -> Self {
        summary.as_ref().map_or_else(Self::default, Self::from)
    }
}
