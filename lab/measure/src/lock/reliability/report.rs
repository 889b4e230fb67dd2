//! Whether pinned rows stayed and unlocked ones moved.

use std::fmt;

use super::{Hold, Memory, ReliabilityRecord, Row};

/// What the rows say.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    /// What was to be so and is not; empty if all is.
    pub failures: Vec<String>,
}

impl Report {
    /// Judges the record: pinned rows have not moved, and unlocked rows have.
    #[must_use]
    pub fn of(record: &ReliabilityRecord) -> Self {
        let mut failures = Vec::new();
        for row in &record.runs {
            let moved =
                row.moved_by_compaction + row.moved_by_swapping + row.moved_by_fork.unwrap_or(0);
            let (memory, hold) = (row.memory.name(), row.hold.name());
            let (pages, processes) = (row.pages, row.processes);
            if row.hold.is_pinned() && moved > 0 {
                failures.push(format!(
                    "{memory}, {hold}, {processes} processes: {moved} of {pages} pages moved, none \
                     may"
                ));
            }
            if row.hold == Hold::Unlocked && moved == 0 {
                failures.push(format!(
                    "{memory}, {hold}: nothing moved, so the run proves nothing (VOID)"
                ));
            }
        }
        if record.runs.iter().all(|row| row.moved_by_compaction == 0) {
            failures.push(
                "compaction moved nothing, so it proves nothing (VOID); run it again with less \
                 memory free"
                    .to_owned(),
            );
        }
        for memory in Memory::ALL {
            let is_there = |hold| {
                let mut rows = record.runs.iter();
                rows.any(|row| row.memory == memory && row.hold == hold)
            };
            if !is_there(Hold::Pinned) || !is_there(Hold::Unlocked) {
                failures.push(format!("{}: not measured (VOID)", memory.name()));
            }
        }
        Self {
            rows: record.runs.clone(),
            failures,
        }
    }

    /// Whether all was as it is to be.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<8} {:<18} {:>9} {:>7}   moved by: {:>10} {:>8} {:>14}",
            "memory", "held by", "processes", "pages", "compaction", "swapping", "fork and write"
        )?;
        for row in &self.rows {
            let fork = row
                .moved_by_fork
                .map_or_else(|| "-".to_owned(), |n| n.to_string());
            writeln!(
                f,
                "{:<8} {:<18} {:>9} {:>7}             {:>10} {:>8} {:>14}",
                row.memory.name(),
                row.hold.name(),
                row.processes,
                row.pages,
                row.moved_by_compaction,
                row.moved_by_swapping,
                fork
            )?;
        }
        writeln!(f)?;
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        if self.passed() {
            writeln!(f, "no pinned page has moved, and unlocked ones have: kept")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NAME, Settings};
    use super::*;
    use crate::experiment::{Environment, Record};

    fn record(pinned: usize, unlocked: usize) -> ReliabilityRecord {
        let mut record = Record::new(NAME, Environment::here("1", "c"), Settings::quick());
        for memory in Memory::ALL {
            for (hold, moved) in [(Hold::Pinned, pinned), (Hold::Unlocked, unlocked)] {
                record.runs.push(Row {
                    memory,
                    hold,
                    processes: 1,
                    pages: 9,
                    moved_by_compaction: moved,
                    moved_by_swapping: moved,
                    moved_by_fork: None,
                });
            }
        }
        record
    }

    #[test]
    fn pinned_pages_that_move_and_unlocked_rows_that_stay_fail() {
        assert!(Report::of(&record(0, 1)).passed());
        let moved = Report::of(&record(1, 1));
        assert!(moved.failures.len() == 4 && moved.to_string().contains("none may"));
        assert!(Report::of(&record(0, 0)).to_string().contains("VOID"));
        let mut still = record(0, 1);
        still
            .runs
            .iter_mut()
            .for_each(|row| row.moved_by_compaction = 0);
        assert_eq!(Report::of(&still).failures.len(), 1);
        let mut half = record(0, 1);
        half.runs.retain(|row| row.memory != Memory::Memfd);
        assert_eq!(Report::of(&half).failures, ["memfd: not measured (VOID)"]);
    }
}
