//! What a record says, told once: sections of tables, verdicts, notes and pictures.
//!
//! An experiment makes one [`Report`] of its record. The terminal prints it
//! ([`Display`](std::fmt::Display)), a page shows it ([`crate::report`]), and a comparison takes
//! its figures from it ([`Report::figures`]), so that none of them can say something else. Cells
//! hold samples; how they are summarised and in which unit is the column's business.

mod column;
mod mean;
mod terminal;

use std::borrow::Borrow;
use std::iter;

use serde::{Deserialize, Serialize};

use crate::plot::{Drawing, Unit};
use crate::stats::Summary;

pub use column::{Cell, Column};
pub use mean::Mean;

/// All that is told of a record.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// In order.
    pub blocks: Vec<Block>,
}

/// What reports are made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// What a reader must know before believing the rest.
    Warning(String),
    /// A bound, and whether it was kept.
    Verdict(Verdict),
    /// A table; one without rows is left out.
    Table(Table),
    /// A picture that is drawn from the record. A terminal shows none; `--plots` writes its file.
    Chart(Box<Drawing>),
    /// A picture that was drawn before: what it shows in words, and its SVG. For pages only.
    Picture(String, String),
    /// Text that keeps its lines. For pages only.
    Lines(String),
    /// What only some want to see: pages show it below a line that can be opened, comparisons take
    /// its figures, terminals leave it out.
    Folded(String, Vec<Self>),
}

/// A bound, what was found, and whether that keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verdict {
    /// What is bounded.
    pub what: String,
    /// What was found and what the bound is, in words.
    pub found: String,
    /// Which of the three it is.
    pub outcome: Outcome,
}

/// What became of a bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It was kept.
    Kept,
    /// It was not.
    Missed,
    /// Nothing could be judged.
    Void,
}

/// Rows below a head.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// What its figures' names begin with, where other tables have rows of the same names.
    pub prefix: String,
    /// What stands in its rows.
    pub columns: Vec<Column>,
    /// One below the other.
    pub rows: Vec<Row>,
    /// What is said below it: the paper's figures, what words mean.
    pub notes: Vec<String>,
}

/// A row: a cell for each column.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// In the columns' order; what is missing at its end is empty.
    pub cells: Vec<Cell>,
    /// What is said about it.
    pub notes: Vec<String>,
}

/// Which direction is good.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Costs.
    Less,
    /// What there is to be none of, so that any is worse than none, whatever chance does.
    None,
    /// Rates.
    More,
    /// Neither.
    Neither,
}

/// One thing that was measured, often.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is: the row's name and the column's. The same in every record of the experiment.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// In the order taken.
    pub samples: Vec<f64>,
}

impl Report {
    /// A report without blocks.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            blocks: Vec::new(),
        }
    }

    /// Adds one block, or several.
    pub fn add<B: Into<Block>>(&mut self, blocks: impl IntoIterator<Item = B>) {
        self.blocks.extend(blocks.into_iter().map(Into::into));
    }

    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    /// Adds what a reader must know.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = impl Into<String>>) {
        let warnings = warnings.into_iter().map(|text| Block::Warning(text.into()));
        self.blocks.extend(warnings);
    }

    /// Says how many runs were void, if any were.
    pub fn void_runs(&mut self, void: usize, all: usize) {
        let words = || format!("{void} of {all} runs were void and do not count");
        self.warn((void > 0).then(words));
    }

    /// The bounds.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Verdict(verdict) => Some(verdict),
            _ => None,
        })
    }

    /// Whether every bound was kept. One that is void was not.
    #[must_use]
    pub fn passed(&self) -> bool {
        let mut verdicts = self.verdicts();
        verdicts.all(|verdict| verdict.outcome == Outcome::Kept)
    }

    /// The pictures, with their files.
    pub fn drawings(&self) -> impl Iterator<Item = &Drawing> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Chart(drawing) => Some(&**drawing),
            _ => None,
        })
    }

    /// What can be compared with another record of the experiment: the samples of all tables, those
    /// of one name together.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        self.blocks
            .iter()
            .for_each(|block| block.figures(&mut figures));
        figures
    }
}

/// A table told column by column: each beside what stands in it, for whatever the rows are of.
///
/// ```text
/// table! {
///     "Caption", for run in &record.runs, let cost = run.cost();
///     Column::key("who") => run.who.name(),
///     Column::ns("cost", 1).less() => cost.samples;
///     notes run.faults()
/// }
/// ```
macro_rules! table {
    (
        $caption:expr, for $row:pat in $rows:expr $(, let $name:pat = $value:expr)* ;
        $($column:expr => $cell:expr),+ $(,)? $(; notes $notes:expr)?
    ) => {{
        let mut table = $crate::table::Table::new($caption, [$($column),+]);
        for $row in $rows {
            $(let $name = $value;)*
            let _row = table.row([$($crate::table::Cell::from($cell)),+]);
            $(_row.notes.extend($notes);)?
        }
        table
    }};
}
pub(crate) use table;

/// A bound, without the zeros that no digit follows.
fn bound_told(bound: f64, digits: usize) -> String {
    let told = format!("{bound:.digits$}");
    match told.contains('.') {
        true => told.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => told,
    }
}

/// Values of one key together, keys in the order in which they came first.
pub(crate) fn gather<K: PartialEq, V>(
    values: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut gathered: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in values {
        match gathered.iter_mut().find(|(other, _)| *other == key) {
            Some((_, values)) => values.push(value),
            None => gathered.push((key, vec![value])),
        }
    }
    gathered
}

/// One value over another of the same key, each value once: what took turns is compared so.
pub(crate) fn ratios<K: PartialEq>(
    above: impl IntoIterator<Item = (K, f64)>,
    below: impl IntoIterator<Item = (K, f64)>,
) -> Vec<f64> {
    let mut below: Vec<_> = below.into_iter().collect();
    let ratio = |(key, above): (K, f64)| {
        let at = below.iter().position(|(other, _)| *other == key)?;
        Some(above / below.remove(at).1)
    };
    above.into_iter().filter_map(ratio).collect()
}

impl Block {
    fn figures(&self, figures: &mut Vec<Figure>) {
        match self {
            Self::Folded(_, blocks) => blocks.iter().for_each(|block| block.figures(figures)),
            Self::Table(table) => table.figures(figures),
            _ => {}
        }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Verdict> for Block {
    fn from(verdict: Verdict) -> Self {
        Self::Verdict(verdict)
    }
}

impl From<Drawing> for Block {
    fn from(drawing: Drawing) -> Self {
        Self::Chart(Box::new(drawing))
    }
}

impl Verdict {
    /// What was found may be so much at the most, told to so many decimals; a bound on nothing is
    /// void.
    #[must_use]
    pub fn at_most(
        what: impl Into<String>,
        found: impl IntoIterator<Item = impl Borrow<f64>>,
        most: f64,
        digits: usize,
    ) -> Self {
        Self::bound(what, found, (most, "at most"), digits, |x| x <= most)
    }

    /// What was found may be so much at the least.
    #[must_use]
    pub fn at_least(
        what: impl Into<String>,
        found: impl IntoIterator<Item = impl Borrow<f64>>,
        least: f64,
        digits: usize,
    ) -> Self {
        Self::bound(what, found, (least, "at least"), digits, |x| x >= least)
    }

    fn bound(
        what: impl Into<String>,
        found: impl IntoIterator<Item = impl Borrow<f64>>,
        (bound, side): (f64, &str),
        digits: usize,
        keeps: impl Fn(f64) -> bool,
    ) -> Self {
        let Some(summary) = Summary::of(found) else {
            return Self::void(what, "nothing to compare");
        };
        let told = match summary.samples {
            1 => format!("{:.digits$}", summary.median),
            _ => summary.told(digits),
        };
        Self::new(
            what,
            format!("{told}, bound {side} {}", bound_told(bound, digits)),
            keeps(summary.median),
        )
    }

    /// A bound in words: `kept`, or not.
    #[must_use]
    pub fn new(what: impl Into<String>, found: impl Into<String>, is_kept: bool) -> Self {
        let (what, found) = (what.into(), found.into());
        let outcome = match is_kept {
            true => Outcome::Kept,
            false => Outcome::Missed,
        };
        Self {
            what,
            found,
            outcome,
        }
    }

    /// What was to be so is, unless something is said against it.
    #[must_use]
    pub fn unless(what: impl Into<String>, missed: &[String]) -> Self {
        Self::new(what, missed.join("; "), missed.is_empty())
    }

    /// A bound that nothing was measured for.
    #[must_use]
    pub fn void(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            found: why.into(),
            outcome: Outcome::Void,
        }
    }

    /// `kept`, `MISSED` or `VOID`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Kept => "kept",
            Outcome::Missed => "MISSED",
            Outcome::Void => "VOID",
        }
    }

    /// What is bounded, what was found, and the bound.
    #[must_use]
    pub fn told(&self) -> String {
        match self.found.is_empty() {
            true => self.what.clone(),
            false => format!("{}: {}", self.what, self.found),
        }
    }
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(caption: impl Into<String>, columns: impl Into<Vec<Column>>) -> Self {
        Self {
            caption: caption.into(),
            columns: columns.into(),
            ..Self::default()
        }
    }

    /// A table of names and values.
    #[must_use]
    pub fn of_names(
        caption: impl Into<String>,
        rows: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let mut table = Self::new(caption, [Column::key("what"), Column::text("measured")]);
        for (name, value) in rows {
            table.row([name.into(), value.into()]);
        }
        table
    }

    /// Puts words before the names of its figures.
    #[must_use]
    pub fn prefixed(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) -> &mut Row {
        let (cells, notes) = (cells.into(), Vec::new());
        self.rows.push(Row { cells, notes });
        self.rows.last_mut().expect("the row just added")
    }

    /// Adds what is said below it.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// The columns with the cells of a row.
    pub fn cells<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = (&'a Column, &'a Cell)> {
        let missing = iter::repeat(&Cell::Empty);
        self.columns.iter().zip(row.cells.iter().chain(missing))
    }

    /// What a row is called: the words of its key columns; a bare number has its column's heading
    /// before it.
    #[must_use]
    pub fn name_of(&self, row: &Row) -> String {
        let keys = self.cells(row).filter(|(column, _)| column.is_key());
        let keys = keys.map(|(column, cell)| {
            let told = column.tell(cell);
            match told.parse::<f64>() {
                Ok(_) => format!("{} {told}", column.heading),
                Err(_) => told,
            }
        });
        let words = iter::once(self.prefix.clone()).chain(keys);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }

    fn figures(&self, figures: &mut Vec<Figure>) {
        for row in &self.rows {
            let name = self.name_of(row);
            for (column, cell) in self.cells(row) {
                let figure = match (cell, column.better) {
                    (Cell::Printed(_, figure), _) => Figure {
                        name: name.clone(),
                        ..figure.clone()
                    },
                    (Cell::Samples(samples), Some(better)) => Figure {
                        name: format!("{name}: {}", column.heading),
                        unit: column.unit,
                        better,
                        samples: samples.clone(),
                    },
                    _ => continue,
                };
                match figures.iter_mut().find(|other| other.name == figure.name) {
                    Some(other) => other.samples.extend(figure.samples),
                    None => figures.push(figure),
                }
            }
        }
    }
}

impl Row {
    /// Says something about it.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

#[cfg(test)]
mod tests;
