//! Whether pinned rows stayed and unlocked ones moved.

use super::{Hold, Memory, ReliabilityRecord, Row};
use crate::table::{Column, Report, Verdict, table};

/// Judges a record: pinned rows have not moved, and unlocked rows have.
#[must_use]
pub fn report(record: &ReliabilityRecord) -> Report {
    let mut report = Report::new("Whether locked memory stays");
    report.add([table! {
        "Pages that moved", for row in &record.runs;
        Column::key("memory") => row.memory.name(),
        Column::key("held by") => row.hold.name(),
        Column::key("processes") => row.processes.to_string(),
        Column::count("pages", 0) => row.pages,
        Column::count("by compaction", 0) => row.moved_by_compaction,
        Column::count("by swapping", 0) => row.moved_by_swapping,
        Column::count("by fork and write", 0) => row.moved_by_fork,
    }]);
    report.add(verdicts(record));
    report
}

fn verdicts(record: &ReliabilityRecord) -> Vec<Verdict> {
    let mut failures: Vec<_> = record.runs.iter().filter_map(failure).collect();
    if record.runs.iter().all(|row| row.moved_by_compaction == 0) {
        let why = "moved nothing, so it proves nothing; run it again with less memory free";
        failures.push(Verdict::void("compaction", why));
    }
    for memory in Memory::ALL {
        let is_there = |hold| {
            let mut rows = record.runs.iter();
            rows.any(|row| row.memory == memory && row.hold == hold)
        };
        if !is_there(Hold::Pinned) || !is_there(Hold::Unlocked) {
            failures.push(Verdict::void(memory.name(), "not measured"));
        }
    }
    match failures.is_empty() {
        false => failures,
        true => vec![Verdict::new(
            "no pinned page has moved, and unlocked ones have",
            "",
            true,
        )],
    }
}

fn failure(row: &Row) -> Option<Verdict> {
    let moved = row.moved_by_compaction + row.moved_by_swapping + row.moved_by_fork.unwrap_or(0);
    let (memory, hold, processes) = (row.memory.name(), row.hold.name(), row.processes);
    let what = format!("{memory}, {hold}, {processes} processes");
    if row.hold.is_pinned() && moved > 0 {
        let found = format!("{moved} of {} pages moved, none may", row.pages);
        return Some(Verdict::new(what, found, false));
    }
    let proves_nothing = row.hold == Hold::Unlocked && moved == 0;
    proves_nothing.then(|| Verdict::void(what, "nothing moved, so the run proves nothing"))
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
        assert!(report(&record(0, 1)).passed());
        let moved = report(&record(1, 1));
        assert!(moved.verdicts().count() == 4 && moved.to_string().contains("none may"));
        assert!(report(&record(0, 0)).to_string().contains("VOID"));
        let mut still = record(0, 1);
        still
            .runs
            .iter_mut()
            .for_each(|row| row.moved_by_compaction = 0);
        let still = report(&still);
        assert!(still.verdicts().count() == 1 && !still.passed());
        let mut half = record(0, 1);
        half.runs.retain(|row| row.memory != Memory::Memfd);
        assert!(
            report(&half)
                .to_string()
                .contains("VOID: memfd: not measured")
        );
    }
}
