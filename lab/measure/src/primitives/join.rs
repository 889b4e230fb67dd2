//! Runs of several processes as one record.
//!
//! Rounds of one process have in common what that process was given: where its memory lies, how the
//! kernel laid out its code, what the host did in that minute. Their interval says nothing of the
//! next process. So each process counts as one round of the whole, and what differs between
//! processes, and between hours if they are hours apart, is in the intervals.

use super::rows::warnings;
use super::{Curve, Entry, MeasureRecord, Measured, Missing, NAME, Note, Point, Row, Series, Unit};
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::stats::ratio;

/// The record of all `records`, each of which is a round of it; `command` is how it was made.
///
/// # Errors
///
/// If they are fewer than two, or not of one machine, one program and the same settings.
pub fn join(records: &[MeasureRecord], command: &str) -> Result<MeasureRecord, ExperimentError> {
    let Some((first, others)) = records
        .split_first()
        .filter(|(_, others)| !others.is_empty())
    else {
        let words = "one run is not to be joined; give two records or more";
        return Err(ExperimentError::Settings(words.to_owned()));
    };
    for other in others {
        if let Some(what) = difference(first, other) {
            return Err(ExperimentError::Settings(what));
        }
    }
    let last = others.last().unwrap_or(first);
    let environment = Environment {
        command: command.to_owned(),
        ..first.environment.clone()
    };
    let mut joined = Record::new(NAME, environment, first.settings.clone());
    let told = format!(
        "{} runs, each by a process of its own, begun from {} to {}; each is a round of what \
         follows",
        records.len(),
        first.environment.date,
        last.environment.date
    );
    joined.runs.push(note(told, false));
    joined.runs.extend(records.iter().flat_map(warned));
    for entry in &first.runs {
        joined.runs.extend(match entry {
            Entry::Row(row) => Some(Entry::Row(row_of_all(row, records))),
            Entry::Curve(curve) => Some(Entry::Curve(curve_of_all(curve, records))),
            Entry::Note(note) if note.is_warning => None,
            Entry::Missing(missing) if is_elsewhere(missing, others) => None,
            other => Some(other.clone()),
        });
    }
    joined.runs.extend(only_later(first, records));
    Ok(joined)
}

/// Why two records cannot be joined.
fn difference(first: &MeasureRecord, other: &MeasureRecord) -> Option<String> {
    let (a, b) = (&first.environment, &other.environment);
    let host = |it: &Environment| {
        it.virtual_machine
            .clone()
            .unwrap_or_else(|| "metal".to_owned())
    };
    let cores = |it: &Environment| format!("{:?}", it.cores);
    let memory = |it: &Environment| Unit::Bytes.told(ratio(it.memory_bytes, 1));
    let pairs = [
        ("processor", a.cpu.clone(), b.cpu.clone()),
        ("host", host(a), host(b)),
        ("processors that may be used", cores(a), cores(b)),
        ("kernel", a.kernel.clone(), b.kernel.clone()),
        ("program", a.version.clone(), b.version.clone()),
    ];
    let differs = pairs.into_iter().find(|(_, a, b)| a != b);
    // What a kernel takes of it at its start is not the same each time.
    let memory_apart = a.memory_bytes.abs_diff(b.memory_bytes);
    let has_other = memory_apart > a.memory_bytes.max(b.memory_bytes) / 16;
    let differs = differs.or_else(|| has_other.then(|| ("memory", memory(a), memory(b))));
    let told = differs.map(|(what, a, b)| format!("{what}: {a}, and {b}"));
    let of_settings = || {
        let is_same = first.settings.same_as(&other.settings);
        let what = "what was asked for: one quick, of other groups, or with another --dir, \
                    --remote or --mounted";
        (!is_same).then(|| what.to_owned())
    };
    let told = told.or_else(of_settings)?;
    Some(format!(
        "runs are joined of one machine, by one program, with the same settings; these differ in \
         {told}. onrush-lab compare tells what changed between them"
    ))
}

/// A record's warnings, with when it was taken.
fn warned(record: &MeasureRecord) -> Vec<Entry> {
    let date = &record.environment.date;
    let entries = record.runs.iter().filter_map(|entry| match entry {
        Entry::Note(it) if it.is_warning => Some(note(format!("{date}: {}", it.text), true)),
        _ => None,
    });
    entries.collect()
}

fn note(text: String, is_warning: bool) -> Entry {
    Entry::Note(Note { text, is_warning })
}

fn row<'a>(record: &'a MeasureRecord, id: &str) -> Option<&'a Row> {
    record.runs.iter().find_map(|entry| match entry {
        Entry::Row(row) if row.id == id => Some(row),
        _ => None,
    })
}

/// A row with the rounds' medians of each process as one round. Its words are those of the process
/// whose figure is nearest to that of all.
fn row_of_all(of_first: &Row, records: &[MeasureRecord]) -> Row {
    let rows: Vec<_> = records
        .iter()
        .filter_map(|it| row(it, &of_first.id))
        .collect();
    let valid = || rows.iter().filter(|row| row.void.is_none());
    let rounds: Vec<_> = valid().map(|row| row.measured.medians()).collect();
    let Some(measured) = Measured::of(&rounds) else {
        return of_first.clone();
    };
    let distance = |row: &&&Row| (row.measured.median - measured.median).abs();
    let nearest = valid().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut warnings = warnings(&measured);
    let absent = records.len() - rounds.len();
    if absent > 0 {
        let all = records.len();
        warnings.push(format!(
            "{absent} of {all} runs do not have it, or found it void"
        ));
    }
    Row {
        explanation: nearest.map_or_else(String::new, |row| row.explanation.clone()),
        measured,
        warnings,
        void: None,
        ..of_first.clone()
    }
}

/// A curve with the samples of all.
fn curve_of_all(of_first: &Curve, records: &[MeasureRecord]) -> Curve {
    let curves = || {
        records.iter().filter_map(|record| {
            record.runs.iter().find_map(|entry| match entry {
                Entry::Curve(curve) if curve.id == of_first.id => Some(curve),
                _ => None,
            })
        })
    };
    let point = |series: &Series, point: &Point| {
        let same = |it: &&Series| it.name == series.name;
        let of_all = curves().flat_map(|curve| curve.series.iter().filter(same));
        let points = of_all.flat_map(|it| it.points.iter().filter(|it| it.x == point.x));
        Point {
            x: point.x,
            samples: points.flat_map(|it| it.samples.clone()).collect(),
        }
    };
    let series = of_first.series.iter().map(|series| Series {
        name: series.name.clone(),
        points: series.points.iter().map(|it| point(series, it)).collect(),
    });
    Curve {
        series: series.collect(),
        ..of_first.clone()
    }
}

/// Whether another run has what the first could not measure.
fn is_elsewhere(missing: &Missing, others: &[MeasureRecord]) -> bool {
    others
        .iter()
        .any(|record| row(record, &missing.id).is_some())
}

/// Rows that the first of all runs does not have.
fn only_later(first: &MeasureRecord, records: &[MeasureRecord]) -> Vec<Entry> {
    let mut found: Vec<Row> = Vec::new();
    let rows = records.iter().flat_map(|record| &record.runs);
    for entry in rows {
        let Entry::Row(later) = entry else { continue };
        let is_known = found.iter().any(|row| row.id == later.id);
        if row(first, &later.id).is_none() && !is_known {
            found.push(row_of_all(later, records));
        }
    }
    found.into_iter().map(Entry::Row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitives::{Better, Estimate, Group, Settings};

    fn measured_row(id: &str, medians: &[f64]) -> Row {
        let rounds: Vec<_> = medians.iter().map(|&median| vec![median]).collect();
        Row {
            id: id.to_owned(),
            group: Group::Cpu,
            operation: id.to_owned(),
            unit: Unit::Ns,
            better: Better::Less,
            estimate: Estimate::default(),
            measured: Measured::of(&rounds).unwrap(),
            explanation: format!("{medians:?}"),
            warnings: Vec::new(),
            void: None,
            paper: String::new(),
        }
    }

    fn record(date: &str, rows: &[Row]) -> MeasureRecord {
        let environment = Environment {
            date: date.to_owned(),
            ..Environment::here("1", "onrush-lab measure")
        };
        let mut record = Record::new(NAME, environment, Settings::full());
        record.runs = rows.iter().cloned().map(Entry::Row).collect();
        let warning = "the machine was busy".to_owned();
        record.runs.push(note(warning, true));
        record
    }

    /// Processes that agree with themselves and not with each other: each alone is sure, and all
    /// together are not.
    #[test]
    fn what_differs_between_processes_is_in_the_interval() {
        let runs: Vec<_> = [100.0, 120.0, 140.0, 110.0, 130.0, 125.0]
            .into_iter()
            .map(|at| record("then", &[measured_row("call", &[at - 1.0, at, at + 1.0])]))
            .collect();
        let alone = row(&runs[0], "call").unwrap();
        assert_eq!(alone.measured.interval, (99.0, 101.0));
        let joined = join(&runs, "join").unwrap();
        let of_all = row(&joined, "call").unwrap();
        assert_eq!(of_all.measured.rounds.len(), 6);
        assert_eq!(of_all.measured.median, 122.5);
        assert_eq!(of_all.measured.interval, (100.0, 140.0));
        assert_eq!(of_all.explanation, "[119.0, 120.0, 121.0]");
        assert!(of_all.warnings[0].contains("no stable value"), "{of_all:?}");
        let warnings = joined.runs.iter().filter(|it| matches!(it, Entry::Note(_)));
        assert_eq!(warnings.count(), 7);
        assert_eq!(joined.environment.command, "join");
    }

    #[test]
    fn what_some_runs_do_not_have_is_told() {
        let void = Row {
            void: Some("impossible".to_owned()),
            ..measured_row("call", &[1.0])
        };
        let runs = [
            record("a", &[void]),
            record(
                "b",
                &[measured_row("call", &[5.0]), measured_row("late", &[7.0])],
            ),
            record("c", &[measured_row("call", &[6.0])]),
        ];
        let joined = join(&runs, "join").unwrap();
        let call = row(&joined, "call").unwrap();
        assert_eq!((call.measured.rounds.len(), call.void.as_ref()), (2, None));
        assert!(
            call.warnings.iter().any(|it| it.starts_with("1 of 3 runs")),
            "{call:?}"
        );
        // The first run counts among those without it.
        let late = row(&joined, "late").unwrap();
        assert!(
            late.warnings.iter().any(|it| it.starts_with("2 of 3 runs")),
            "{late:?}"
        );
    }

    type Change = fn(&mut MeasureRecord);

    #[test]
    fn what_is_not_the_same_is_not_joined() {
        let run = record("a", &[measured_row("call", &[5.0])]);
        let refused =
            |other: MeasureRecord| join(&[run.clone(), other], "join").unwrap_err().to_string();
        let changes: [(&str, Change); 9] = [
            ("kernel", |it| it.environment.kernel = "9.9".to_owned()),
            ("processor: ", |it| it.environment.cpu += " II"),
            ("host", |it| {
                it.environment.virtual_machine = Some("of another".to_owned())
            }),
            ("processors that", |it| it.environment.cores.push(4096)),
            ("memory", |it| it.environment.memory_bytes *= 2),
            ("what was asked for", |it| it.settings.quick = true),
            ("what was asked for", |it| {
                it.settings.folder = "/srv".into()
            }),
            ("what was asked for", |it| {
                it.settings.remote = Some("h".to_owned())
            }),
            ("what was asked for", |it| {
                it.settings.mounted = Some("/mnt".into())
            }),
        ];
        for (what, change) in changes {
            let mut other = run.clone();
            change(&mut other);
            let refused = refused(other);
            assert!(refused.contains(&format!("differ in {what}")), "{refused}");
        }
        let mut rebooted = run.clone();
        rebooted.environment.memory_bytes -= 1 << 20;
        assert!(join(&[run.clone(), rebooted], "join").is_ok());
        let alone = join(std::slice::from_ref(&run), "join").unwrap_err();
        assert!(alone.to_string().contains("two records or more"), "{alone}");
    }
}
