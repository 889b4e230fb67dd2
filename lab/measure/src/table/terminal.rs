//! A report on a terminal: columns aligned, what is long broken into lines.

use std::fmt::{Display, Formatter, Result};

use super::{Block, Report, Table, Verdict};

/// What is broken into lines has so many columns at the most.
const COLUMNS: usize = 100;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut is_after_table = true;
        for block in &self.blocks {
            let is_line = matches!(
                block,
                Block::Text(_) | Block::Warning(_) | Block::Verdict(_)
            );
            if is_line && is_after_table {
                writeln!(f)?;
            }
            match block {
                Block::Heading(text) => writeln!(f, "\n{text}")?,
                Block::Text(text) => write_wrapped(f, "", text)?,
                Block::Warning(text) => writeln!(f, "warning: {text}")?,
                Block::Verdict(verdict) => writeln!(f, "{verdict}")?,
                Block::Table(table) if !table.rows.is_empty() => write!(f, "\n{table}")?,
                _ => continue,
            }
            is_after_table = !is_line;
        }
        Ok(())
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: {}", self.word(), self.told())
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if !self.caption.is_empty() {
            writeln!(f, "{}", self.caption)?;
        }
        let head: Vec<_> = self.columns.iter().map(super::Column::label).collect();
        let told = |(column, cell): (&super::Column, &super::Cell)| {
            let told = column.tell(cell).replace('\u{202f}', "");
            match told.is_empty() && column.is_number() {
                true => "-".to_owned(),
                false => told,
            }
        };
        let rows = self.rows.iter();
        let rows: Vec<Vec<_>> = rows
            .map(|row| self.cells(row).map(told).collect())
            .collect();
        let wide = |line: &Vec<String>, i: usize| line[i].chars().count();
        let width = |i: usize| rows.iter().chain([&head]).map(|line| wide(line, i)).max();
        let widths: Vec<_> = (0..head.len()).map(|i| width(i).unwrap_or(0)).collect();
        let write_line = |f: &mut Formatter<'_>, line: &[String]| {
            let mut text = String::new();
            for ((cell, column), width) in line.iter().zip(&self.columns).zip(&widths) {
                text += &match column.is_number() {
                    true => format!("{cell:>width$}  "),
                    false => format!("{cell:<width$}  "),
                };
            }
            writeln!(f, "{}", text.trim_end())
        };
        if head.iter().any(|heading| !heading.is_empty()) {
            write_line(f, &head)?;
        }
        for (line, row) in rows.iter().zip(&self.rows) {
            write_line(f, line)?;
            for note in &row.notes {
                write_wrapped(f, "    ", note)?;
            }
        }
        for note in &self.notes {
            write_wrapped(f, "", note)?;
        }
        Ok(())
    }
}

/// Breaks a paragraph into lines.
fn write_wrapped(f: &mut Formatter<'_>, indent: &str, text: &str) -> Result {
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_begun = line.len() > indent.len();
        if is_begun && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            writeln!(f, "{line}")?;
            indent.clone_into(&mut line);
        } else if is_begun {
            line.push(' ');
        }
        line += word;
    }
    writeln!(f, "{line}")
}
