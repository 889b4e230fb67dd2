//! Columns, which say how what stands in them is told, and the cells themselves.

use super::{Better, Figure, Mean};
use crate::plot::Unit;
use crate::stats::{Number, Summary};

/// What stands in one cell of each row.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name; of figures, what was measured.
    pub heading: String,
    /// What its samples are in.
    pub unit: Unit,
    kind: Kind,
    pub(super) better: Option<Better>,
    scale: Option<Scale>,
    spread: Spread,
}

/// What stands in one place of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// Nothing was measured.
    #[default]
    Empty,
    /// It was measured, and does not count.
    Void,
    /// Words.
    Text(String),
    /// A number that follows from others: a share, a sum. It is not compared.
    Number(f64),
    /// What was measured, in the order taken and in the column's unit.
    Samples(Vec<f64>),
    /// Words for samples in a unit of their own, which are compared by the row's name alone.
    Printed(String, Figure),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Words that are part of the row's name.
    Key,
    /// Other words.
    Text,
    Number,
}

/// How a column's numbers are printed: over a divisor, to so many decimals, in this unit.
#[derive(Clone, Copy, Debug)]
struct Scale {
    unit: &'static str,
    divisor: f64,
    digits: usize,
}

/// What is told beside the middle of samples.
#[derive(Clone, Copy, Debug)]
enum Spread {
    None,
    Range,
    Mean,
}

impl Column {
    /// Words that are part of the row's name.
    #[must_use]
    pub fn key(heading: &str) -> Self {
        Self::of(heading, Kind::Key, Unit::Count)
    }

    /// Other words.
    #[must_use]
    pub fn text(heading: &str) -> Self {
        Self::of(heading, Kind::Text, Unit::Count)
    }

    /// Numbers in `unit`, each told with it to three digits unless [`Self::fixed`] says otherwise.
    #[must_use]
    pub fn number(heading: &str, unit: Unit) -> Self {
        Self::of(heading, Kind::Number, unit)
    }

    /// Counts, or what has no unit, to so many decimals.
    #[must_use]
    pub fn count(heading: &str, digits: usize) -> Self {
        Self::number(heading, Unit::Count).fixed("", 1.0, digits)
    }

    /// Times in ns, told in ns to so many decimals.
    #[must_use]
    pub fn ns(heading: &str, digits: usize) -> Self {
        Self::number(heading, Unit::Nanoseconds).fixed("ns", 1.0, digits)
    }

    /// Times in ns, told in us to so many decimals.
    #[must_use]
    pub fn us(heading: &str, digits: usize) -> Self {
        Self::number(heading, Unit::Nanoseconds).fixed("us", 1e3, digits)
    }

    /// Times in ns, told in ms to so many decimals.
    #[must_use]
    pub fn ms(heading: &str, digits: usize) -> Self {
        Self::number(heading, Unit::Nanoseconds).fixed("ms", 1e6, digits)
    }

    /// Parts of one, told in percent to so many decimals.
    #[must_use]
    pub fn percent(heading: &str, digits: usize) -> Self {
        Self::count(heading, 0).fixed("%", 0.01, digits)
    }

    fn of(heading: &str, kind: Kind, unit: Unit) -> Self {
        Self {
            heading: heading.to_owned(),
            unit,
            kind,
            better: None,
            scale: None,
            spread: Spread::None,
        }
    }

    /// Tells all its numbers in one unit, which the heading names: over `divisor`, to so many
    /// decimals.
    #[must_use]
    pub fn fixed(mut self, unit: &'static str, divisor: f64, digits: usize) -> Self {
        self.scale = Some(Scale {
            unit,
            divisor,
            digits,
        });
        self
    }

    /// Compares its samples: less of it is better.
    #[must_use]
    pub fn less(self) -> Self {
        self.compared(Better::Less)
    }

    /// Compares its samples: more of it is better.
    #[must_use]
    pub fn more(self) -> Self {
        self.compared(Better::More)
    }

    /// Compares its samples: there is to be none of it.
    #[must_use]
    pub fn none(self) -> Self {
        self.compared(Better::None)
    }

    fn compared(mut self, better: Better) -> Self {
        self.better = Some(better);
        self
    }

    /// Tells the smallest and the largest sample beside the median.
    #[must_use]
    pub fn with_range(mut self) -> Self {
        self.spread = Spread::Range;
        self
    }

    /// Tells the mean instead of the median, and how far off it may be with 99.9 %.
    #[must_use]
    pub fn as_mean(mut self) -> Self {
        self.spread = Spread::Mean;
        self
    }

    /// Whether its words are part of the row's name.
    #[must_use]
    pub fn is_key(&self) -> bool {
        self.kind == Kind::Key
    }

    /// Whether it holds numbers, which are set to the right.
    #[must_use]
    pub fn is_number(&self) -> bool {
        self.kind == Kind::Number
    }

    /// The heading, with the unit where all its numbers have the same.
    #[must_use]
    pub fn label(&self) -> String {
        let unit = self.scale.map_or("", |scale| scale.unit);
        match unit {
            "" => self.heading.clone(),
            unit if self.heading.is_empty() => unit.to_owned(),
            unit => format!("{}, {unit}", self.heading),
        }
    }

    /// What a cell of it says; nothing if it is empty.
    #[must_use]
    pub fn tell(&self, cell: &Cell) -> String {
        match cell {
            Cell::Empty => String::new(),
            Cell::Void => "void".to_owned(),
            Cell::Text(text) | Cell::Printed(text, _) => text.clone(),
            Cell::Number(number) => self.number_told(*number),
            Cell::Samples(samples) => match (self.spread, Summary::of(samples)) {
                (_, None) => String::new(),
                (Spread::None, Some(summary)) => self.number_told(summary.median),
                (Spread::Range, Some(summary)) => {
                    let [median, min, max] =
                        [summary.median, summary.min, summary.max].map(|x| self.number_told(x));
                    format!("{median} ({min}..{max})")
                }
                (Spread::Mean, Some(_)) => Mean::of(samples).map_or_else(String::new, |mean| {
                    let [mean, half] = [mean.mean, mean.half].map(|x| self.number_told(x));
                    format!("{mean} +- {half}")
                }),
            },
        }
    }

    fn number_told(&self, number: f64) -> String {
        match self.scale {
            None => self.unit.tell(number),
            Some(Scale {
                divisor, digits, ..
            }) => format!("{:.digits$}", number / divisor),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<N: Number> From<N> for Cell {
    fn from(number: N) -> Self {
        Self::Number(number.number())
    }
}

impl<N: Number> From<Vec<N>> for Cell {
    fn from(samples: Vec<N>) -> Self {
        match samples.is_empty() {
            true => Self::Empty,
            false => Self::Samples(samples.into_iter().map(N::number).collect()),
        }
    }
}

impl Cell {
    /// Samples, which are void if there are none.
    #[must_use]
    pub fn or_void(samples: Vec<f64>) -> Self {
        match samples.is_empty() {
            true => Self::Void,
            false => Self::Samples(samples),
        }
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}
