//! What the samples say, and whether the bounds were kept.

use std::fmt;

use super::{LockRecord, Memory, Run, Way};
use crate::stats::Summary;

/// Bytes from which on a lock is compared by its part, below by its difference.
const LARGE_BYTES: usize = 64 << 10;
/// What the manager may add to a large registration and its release.
const ADDED_PART_MAX: f64 = 0.10;
/// What it may add to a small one, in ns.
const ADDED_NS_MAX: f64 = 1000.0;
/// What a hit may take, in ns.
const HIT_NS_MAX: f64 = 60.0;
/// How many times slower a call may be with the most areas than with the fewest.
const CROWDED_MAX: f64 = 3.0;

/// The tables, and what was to be kept.
#[derive(Clone, Debug)]
pub struct Report {
    tables: Vec<Table>,
    lines: Vec<String>,
    /// What was judged.
    pub verdicts: Vec<Verdict>,
}

/// One bound.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was to be kept, and what was found.
    pub text: String,
    /// Whether it was.
    pub passed: bool,
}

#[derive(Clone, Debug)]
struct Table {
    memory: Memory,
    /// By size, then in the order of [`Way::ALL`]: to lock and to unlock, in us.
    rows: Vec<(usize, Vec<Cell>)>,
}

pub(super) type Cell = Option<(f64, f64)>;

impl Report {
    /// Reads the record.
    #[must_use]
    pub fn of(record: &LockRecord) -> Self {
        let table = |memory| Table {
            memory,
            rows: record
                .settings
                .sizes_bytes
                .iter()
                .map(|&bytes| {
                    let cell = |way| cost(record, memory, way, bytes);
                    (bytes, Way::ALL.into_iter().map(cell).collect())
                })
                .collect(),
        };
        let mut report = Self {
            tables: Memory::ALL.into_iter().map(table).collect(),
            lines: Vec::new(),
            verdicts: Vec::new(),
        };
        for memory in Memory::ALL {
            report.judge_cost(record, memory);
        }
        report.judge_crowd(record);
        report.judge_hits(record);
        let left_out = record.settings.left_out.iter();
        report
            .lines
            .extend(left_out.map(|what| format!("left out: {what}")));
        report
    }

    /// Whether all bounds were kept.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.passed)
    }

    /// The manager against the bare registration, repeat by repeat.
    fn judge_cost(&mut self, record: &LockRecord, memory: Memory) {
        let mut worst: [Option<(f64, usize)>; 2] = [None, None];
        for &bytes in &record.settings.sizes_bytes {
            let pairs = pairs(record, memory, bytes);
            let is_large = bytes >= LARGE_BYTES;
            let added: Vec<f64> = pairs
                .iter()
                .map(|(bare, ours)| {
                    if is_large {
                        ours / bare - 1.0
                    } else {
                        ours - bare
                    }
                })
                .collect();
            let Some(added) = Summary::of(&added) else {
                continue;
            };
            let slot = &mut worst[usize::from(is_large)];
            if slot.is_none_or(|(most, _)| added.median > most) {
                *slot = Some((added.median, bytes));
            }
        }
        let [small, large] = worst;
        if let Some((added_ns, bytes)) = small {
            self.verdicts.push(Verdict {
                text: format!(
                    "{}: the manager adds at most {added_ns:.0} ns ({}) to a small registration \
                     and its release; {ADDED_NS_MAX:.0} ns were allowed",
                    memory.name(),
                    size(bytes)
                ),
                passed: added_ns <= ADDED_NS_MAX,
            });
        }
        if let Some((part, bytes)) = large {
            self.verdicts.push(Verdict {
                text: format!(
                    "{}: the manager adds at most {:.1} % ({}) to a large one; {:.0} % were \
                     allowed",
                    memory.name(),
                    part * 100.0,
                    size(bytes),
                    ADDED_PART_MAX * 100.0
                ),
                passed: part <= ADDED_PART_MAX,
            });
        }
    }

    fn judge_crowd(&mut self, record: &LockRecord) {
        let areas = &record.settings.areas;
        let (Some(&few), Some(&many)) = (areas.iter().min(), areas.iter().max()) else {
            return;
        };
        if few == many {
            return;
        }
        for way in [Way::Pinned, Way::Resident] {
            for (call, of) in [("lock", 0), ("unlock", 1)] {
                let median = |count| {
                    let samples = record.runs.iter().filter_map(|run| match run {
                        Run::Many {
                            areas,
                            way: w,
                            lock_ns,
                            unlock_ns,
                            ..
                        } if *areas == count && *w == way => Some([*lock_ns, *unlock_ns][of]),
                        _ => None,
                    });
                    Summary::of(&samples.collect::<Vec<_>>()).map_or(f64::NAN, |s| s.median)
                };
                let (with_few, with_many) = (median(few), median(many));
                let times = with_many / with_few;
                self.verdicts.push(Verdict {
                    text: format!(
                        "{} {call}: {with_few:.0} ns among {few} areas, {with_many:.0} ns among \
                         {many}, {times:.1} times; {CROWDED_MAX:.0} were allowed",
                        way.name()
                    ),
                    passed: times <= CROWDED_MAX,
                });
            }
        }
    }

    fn judge_hits(&mut self, record: &LockRecord) {
        for &count in &record.settings.kept {
            let samples = record.runs.iter().filter_map(|run| match run {
                Run::Hit { kept, hit_ns, .. } if *kept == count => Some(*hit_ns),
                _ => None,
            });
            let Some(summary) = Summary::of(&samples.collect::<Vec<_>>()) else {
                continue;
            };
            self.verdicts.push(Verdict {
                text: format!(
                    "a cache hit and its return: {} ns with {count} registrations kept; \
                     {HIT_NS_MAX:.0} ns were allowed",
                    summary.told(1)
                ),
                passed: summary.median <= HIT_NS_MAX,
            });
            self.lines
                .extend(summary.warnings(&format!("hits among {count}")));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in &self.tables {
            write!(f, "\n{:<15}", table.memory.name())?;
            for way in Way::ALL {
                write!(f, " {:>17}", way.name())?;
            }
            writeln!(f)?;
            for (bytes, cells) in &table.rows {
                write!(f, "{:>15}", size(*bytes))?;
                for cell in cells {
                    let told = cell.map_or_else(String::new, |(lock, unlock)| {
                        format!("{:.2} + {:.2}", lock / 1e3, unlock / 1e3)
                    });
                    write!(f, " {told:>17}")?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "us to lock + to unlock, medians\n")?;
        for line in &self.lines {
            writeln!(f, "warning: {line}")?;
        }
        for verdict in &self.verdicts {
            let word = if verdict.passed { "kept" } else { "MISSED" };
            writeln!(f, "{}: {word}", verdict.text)?;
        }
        Ok(())
    }
}

/// Medians to lock and to unlock, in ns.
pub(super) fn cost(record: &LockRecord, memory: Memory, way: Way, bytes: usize) -> Cell {
    let samples: Vec<_> = samples(record, memory, way, bytes).collect();
    let locks: Vec<_> = samples.iter().map(|s| s.0).collect();
    let unlocks: Vec<_> = samples.iter().map(|s| s.1).collect();
    Some((Summary::of(&locks)?.median, Summary::of(&unlocks)?.median))
}

fn samples(
    record: &LockRecord,
    memory: Memory,
    way: Way,
    bytes: usize,
) -> impl Iterator<Item = (f64, f64)> {
    record.runs.iter().filter_map(move |run| match run {
        Run::Cost {
            memory: m,
            way: w,
            bytes: b,
            lock_ns,
            unlock_ns,
            ..
        } if (*m, *w, *b) == (memory, way, bytes) => Some((*lock_ns, *unlock_ns)),
        _ => None,
    })
}

/// Lock and unlock together, bare and by the manager, of the same repeat.
fn pairs(record: &LockRecord, memory: Memory, bytes: usize) -> Vec<(f64, f64)> {
    let both = |way| samples(record, memory, way, bytes).map(|(lock, unlock)| lock + unlock);
    both(Way::Ring).zip(both(Way::Pinned)).collect()
}

fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::lock::{NAME, Settings};

    fn record(added: f64, hit_ns: f64, crowded: f64) -> LockRecord {
        let settings = Settings {
            sizes_bytes: vec![4096, 1 << 20],
            repeats: 1,
            areas: vec![100, 100_000],
            kept: vec![10],
            left_out: Vec::new(),
        };
        let mut record = Record::new(NAME, Environment::here("1", "c"), settings);
        for bytes in [4096, 1 << 20] {
            for (way, total) in [(Way::Ring, 10_000.0), (Way::Pinned, 10_000.0 + added)] {
                record.runs.push(Run::Cost {
                    memory: Memory::PrivateAgain,
                    way,
                    bytes,
                    repeat: 0,
                    lock_ns: total / 2.0,
                    unlock_ns: total / 2.0,
                });
            }
        }
        for way in [Way::Pinned, Way::Resident] {
            for (areas, lock_ns) in [(100, 1000.0), (100_000, 1000.0 * crowded)] {
                record.runs.push(Run::Many {
                    areas,
                    way,
                    repeat: 0,
                    lock_ns,
                    unlock_ns: 1000.0,
                });
            }
        }
        let repeat = 0;
        record.runs.push(Run::Hit {
            kept: 10,
            repeat,
            hit_ns,
        });
        record
    }

    #[test]
    fn every_bound_is_judged_at_its_edge() {
        assert!(Report::of(&record(999.9, 60.0, 3.0)).passed());
        let missed = |record: &LockRecord| -> Vec<String> {
            let report = Report::of(record);
            let missed = report.verdicts.into_iter().filter(|v| !v.passed);
            missed.map(|v| v.text).collect()
        };
        // At 10 us one microsecond is a tenth: both bounds are passed at once.
        assert_eq!(missed(&record(1000.1, 60.0, 3.0)).len(), 2);
        let slow = missed(&record(0.0, 60.1, 3.0));
        assert!(slow.len() == 1 && slow[0].contains("cache hit"), "{slow:?}");
        let crowded = missed(&record(0.0, 60.0, 3.1));
        assert_eq!(crowded.len(), 2, "{crowded:?}");
        let text = Report::of(&record(0.0, 61.0, 1.0)).to_string();
        assert!(
            text.contains("5.00 + 5.00") && text.contains("MISSED"),
            "{text}"
        );
    }

    #[test]
    fn a_call_that_was_not_measured_is_not_good() {
        let mut record = record(0.0, 1.0, 1.0);
        record.runs.retain(|run| !matches!(run, Run::Many { .. }));
        assert!(!Report::of(&record).passed());
    }
}
