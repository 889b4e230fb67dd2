//! What the samples say, and whether the bounds were kept.

use super::{LockRecord, Memory, Run, Way};
use crate::plot::{Chart, Drawing, Unit, Value};
use crate::stats::{Summary, median, to_f64};
use crate::table::{Block, Cell, Column, Report, Table, Verdict, gather, table};

/// Bytes from which on a lock is compared by its part, below by its difference.
const LARGE_BYTES: usize = 64 << 10;
/// What the manager may add to a large registration and its release, in percent.
const ADDED_PERCENT_MAX: f64 = 10.0;
/// What it may add to a small one, in ns.
const ADDED_NS_MAX: f64 = 1000.0;
/// What a hit may take, in ns.
const HIT_NS_MAX: f64 = 60.0;
/// How many times slower a call may be with the most areas than with the fewest.
const CROWDED_MAX: f64 = 3.0;

/// What a record says.
#[must_use]
pub fn report(record: &LockRecord) -> Report {
    let mut report = Report::new("What locking costs");
    report.add(charts(record));
    report.add(memories(record).map(|memory| table(record, memory)));
    if !record.settings.apart.is_empty() {
        report.add([with_mlock(record), apart(record)]);
    }
    let left_out = record.settings.left_out.iter();
    report.warn(left_out.map(|what| format!("left out: {what}")));
    report.warn(hits(record).iter().flat_map(|(kept, ns)| {
        let summary = Summary::of(ns).expect("a hit has a sample");
        summary.warnings(&format!("hits among {kept}"))
    }));
    for memory in memories(record) {
        report.add(cost_verdicts(record, memory));
    }
    report.add(crowd_verdicts(record));
    report.add(hits(record).into_iter().map(|(kept, ns)| {
        let what = format!("a cache hit and its return, {kept} registrations kept, ns");
        Verdict::at_most(what, &ns, HIT_NS_MAX, 1)
    }));
    report.add([Block::Folded("Every call".to_owned(), all_calls(record))]);
    report
}

/// What was measured: records of before have less.
fn memories(record: &LockRecord) -> impl Iterator<Item = Memory> + '_ {
    let is_there = |memory: &Memory| !ways(record, *memory).is_empty();
    Memory::ALL.into_iter().filter(is_there)
}

fn ways(record: &LockRecord, memory: Memory) -> Vec<Way> {
    let is_there = |way: &Way| {
        *way != Way::ShmLock && memory != Memory::SysvElsewhere
            || record.runs.iter().any(|run| {
                matches!(run, Run::Cost { memory: m, way: w, .. } if (*m, *w) == (memory, *way))
            })
    };
    Way::ALL.into_iter().filter(is_there).collect()
}

/// The ratio of figures 7 and 8: how many times as long a registration takes with the extra
/// `mlock`.
fn with_mlock(record: &LockRecord) -> Table {
    let rows = memories(record).flat_map(|memory| {
        let sizes = record.settings.sizes_bytes.iter();
        sizes.map(move |&bytes| (memory, bytes))
    });
    let lock_ns = |memory, way, bytes| {
        let calls = calls(record, memory, way, bytes);
        median(calls.iter().map(|call| call.0))
    };
    table! {
        "To register: with the extra mlock (figures 7 and 8), medians",
        for (memory, bytes) in rows,
        let pinned_ns = lock_ns(memory, Way::Pinned, bytes),
        let both_ns = lock_ns(memory, Way::ResidentAndPinned, bytes);
        Column::key("memory") => memory.name(),
        Column::key("size") => size(bytes),
        Column::us("without", 2) => pinned_ns,
        Column::us("with", 2) => both_ns,
        Column::count("times", 2) => both_ns.zip(pinned_ns).map(|(both, one)| both / one),
    }
}

/// A page among areas that do not touch.
fn apart(record: &LockRecord) -> Table {
    let calls = gather(record.runs.iter().filter_map(|run| match *run {
        Run::Apart {
            areas,
            is_first,
            lock_ns,
            unlock_ns,
            ..
        } => Some(((areas, is_first), (lock_ns, unlock_ns))),
        _ => None,
    }));
    table! {
        "A page pinned beside areas that touch none of each other: medians",
        for ((areas, is_first), calls) in calls,
        let (lock, unlock) = calls.into_iter().unzip::<_, _, Vec<f64>, Vec<f64>>();
        Column::key("intervals") => areas.to_string(),
        Column::key("the page") => if is_first { "first" } else { "again" },
        Column::us("lock", 2).with_range().less() => lock,
        Column::us("unlock", 2).with_range().less() => unlock,
    }
}

/// To lock and to unlock: a row for each size, a column for each way.
fn table(record: &LockRecord, memory: Memory) -> Table {
    let all = ways(record, memory);
    let ways = all
        .iter()
        .map(|way| Column::number(way.name(), Unit::Nanoseconds));
    let columns: Vec<_> = [Column::key("size")].into_iter().chain(ways).collect();
    let caption = format!("{}: us to lock + to unlock, medians", memory.name());
    let mut table = Table::new(caption, columns);
    for &bytes in &record.settings.sizes_bytes {
        let cell = |way| {
            let calls = calls(record, memory, way, bytes);
            let of = |call: fn(&(f64, f64)) -> f64| Some(median(calls.iter().map(call))? / 1e3);
            let (lock, unlock) = of(|call| call.0).zip(of(|call| call.1))?;
            Some(format!("{lock:.2} + {unlock:.2}"))
        };
        let cells = all.iter().map(|&way| cell(way).into());
        let cells = [size(bytes).into()].into_iter().chain(cells);
        table.row(cells.collect::<Vec<Cell>>());
    }
    table
}

/// The samples of all calls, for pages and comparisons.
fn all_calls(record: &LockRecord) -> Vec<Block> {
    let calls = gather(record.runs.iter().filter_map(|run| match *run {
        Run::Cost {
            memory,
            way,
            bytes,
            lock_ns,
            unlock_ns,
            ..
        } => Some(((memory.name(), size(bytes), way), (lock_ns, unlock_ns))),
        Run::Many {
            areas,
            way,
            lock_ns,
            unlock_ns,
            ..
        } => Some((
            ("a page", format!("among {areas} areas"), way),
            (lock_ns, unlock_ns),
        )),
        Run::Hit { .. } | Run::Apart { .. } => None,
    }));
    let each = table! {
        "Medians", for ((memory, size, way), calls) in calls,
        let (lock, unlock) = calls.into_iter().unzip::<_, _, Vec<f64>, Vec<f64>>();
        Column::key("memory") => memory,
        Column::key("size") => size,
        Column::key("way") => way.name(),
        Column::us("lock", 2).with_range().less() => lock,
        Column::us("unlock", 2).with_range().less() => unlock,
    };
    let cache = table! {
        "Medians", for (kept, hit_ns) in hits(record);
        Column::key("registrations kept") => format!("{kept} kept"),
        Column::ns("a cache hit and its return", 1).with_range().less() => hit_ns,
    };
    vec![each.into(), cache.into()]
}

/// What the manager adds to a bare registration, at the size where it adds most.
fn cost_verdicts(record: &LockRecord, memory: Memory) -> Vec<Verdict> {
    let added = |&bytes: &usize| {
        let both = |way| {
            calls(record, memory, way, bytes)
                .into_iter()
                .map(|(a, b)| a + b)
        };
        let pairs = both(Way::Ring).zip(both(Way::Pinned));
        let added: Vec<_> = match bytes >= LARGE_BYTES {
            true => pairs
                .map(|(bare, ours)| (ours / bare - 1.0) * 100.0)
                .collect(),
            false => pairs.map(|(bare, ours)| ours - bare).collect(),
        };
        Some((bytes, median(&added)?))
    };
    let added: Vec<_> = record
        .settings
        .sizes_bytes
        .iter()
        .filter_map(added)
        .collect();
    let judge = |is_large: bool, to: &str, unit: &str, most, digits| {
        let of_kind = added
            .iter()
            .filter(|(bytes, _)| (*bytes >= LARGE_BYTES) == is_large);
        let (bytes, worst) = of_kind.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let (memory, size) = (memory.name(), size(*bytes));
        let what = format!("{memory}: the manager adds to a {to}, most at {size}, {unit}");
        Some(Verdict::at_most(what, [*worst], most, digits))
    };
    let small = judge(
        false,
        "small registration and its release",
        "ns",
        ADDED_NS_MAX,
        0,
    );
    let large = judge(true, "large one", "%", ADDED_PERCENT_MAX, 1);
    small.into_iter().chain(large).collect()
}

/// A call among the most areas against one among the fewest.
fn crowd_verdicts(record: &LockRecord) -> Vec<Verdict> {
    let areas = &record.settings.areas;
    let (Some(&few), Some(&many)) = (areas.iter().min(), areas.iter().max()) else {
        return Vec::new();
    };
    let mut verdicts = Vec::new();
    for way in [Way::Pinned, Way::Resident] {
        for (call, of) in [("lock", 0), ("unlock", 1)] {
            let among = |count| {
                let samples = record.runs.iter().filter_map(|run| match run {
                    Run::Many {
                        areas,
                        way: w,
                        lock_ns,
                        unlock_ns,
                        ..
                    } if (*areas, *w) == (count, way) => Some([*lock_ns, *unlock_ns][of]),
                    _ => None,
                });
                median(samples)
            };
            let pair = among(many).zip(among(few));
            let told = pair.map_or_else(String::new, |(many, few)| {
                format!(", {many:.0} / {few:.0} ns")
            });
            let what = format!("{} {call}, among {many} areas / {few}{told}", way.name());
            let times = pair.map(|(many, few)| many / few);
            verdicts.push(Verdict::at_most(what, times, CROWDED_MAX, 1));
        }
    }
    match few == many {
        true => Vec::new(),
        false => verdicts,
    }
}

/// What a lock and an unlock took, each time, in ns.
fn calls(record: &LockRecord, memory: Memory, way: Way, bytes: usize) -> Vec<(f64, f64)> {
    let calls = record.runs.iter().filter_map(|run| match run {
        Run::Cost {
            memory: m,
            way: w,
            bytes: b,
            lock_ns,
            unlock_ns,
            ..
        } if (*m, *w, *b) == (memory, way, bytes) => Some((*lock_ns, *unlock_ns)),
        _ => None,
    });
    calls.collect()
}

/// What a hit took, in ns, by the registrations that are kept.
fn hits(record: &LockRecord) -> Vec<(usize, Vec<f64>)> {
    gather(record.runs.iter().filter_map(|run| match run {
        Run::Hit { kept, hit_ns, .. } => Some((*kept, *hit_ns)),
        _ => None,
    }))
}

/// The paper's figures 7 and 8, what the extra `mlock` adds to a registration; and all ways over
/// the size.
fn charts(record: &LockRecord) -> Vec<Drawing> {
    let draw = |file: &str, title: &str, axis: &str, series: &[(Memory, Way, String)], unlock| {
        let mut chart = Chart::lines(title)
            .x("size", Unit::Bytes)
            .log_x(2)
            .y(axis, Unit::Nanoseconds)
            .log_y(10);
        for (memory, way, name) in series {
            let points = record.settings.sizes_bytes.iter().filter_map(|&bytes| {
                let calls = calls(record, *memory, *way, bytes).into_iter();
                let summary = Summary::of(calls.map(|call| call.0 + unlock * call.1))?;
                Some((to_f64(bytes), Value::from(&summary)))
            });
            chart = chart.series(name, points);
        }
        Drawing::new(file, chart)
    };
    let figure = |number: u8, of: &str, memories: [Memory; 2]| {
        let title = format!("Registering {of} memory, with and without mlock (figure {number})");
        let series = memories.into_iter().flat_map(|memory| {
            let pinned = (memory, Way::Pinned, format!("{}: pinned", memory.name()));
            let mlock = format!("{}: with mlock", memory.name());
            [pinned, (memory, Way::ResidentAndPinned, mlock)]
        });
        // The baseline: the system call for whole segments.
        let baseline = memories
            .into_iter()
            .filter(|memory| number == 7 && ways(record, *memory).contains(&Way::ShmLock));
        let baseline = baseline.map(|memory| {
            let name = format!("{}: SHM_LOCK alone", memory.name());
            (memory, Way::ShmLock, name)
        });
        let series = series.chain(baseline);
        let (file, series) = (format!("figure-{number}.svg"), series.collect::<Vec<_>>());
        draw(&file, &title, "time to register", &series, 0.0)
    };
    let sysv = figure(7, "SysV", [Memory::SysvFirst, Memory::SysvAgain]);
    let private = figure(8, "private", [Memory::PrivateFirst, Memory::PrivateAgain]);
    let all = memories(record).map(|memory| {
        let series = ways(record, memory).into_iter();
        let series = series.map(|way| (memory, way, way.name().to_owned()));
        let series: Vec<_> = series.collect();
        let title = format!("To lock and unlock: {}", memory.name());
        let file = format!(
            "both-{}.svg",
            memory
                .name()
                .replace([',', ' '], "-")
                .replace("--", "-")
                .to_lowercase()
        );
        draw(&file, &title, "both calls", &series, 1.0)
    });
    [sysv, private].into_iter().chain(all).collect()
}

fn size(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::lock::{NAME, Settings};
    use crate::table::Outcome;

    fn record(added: f64, hit_ns: f64, crowded: f64) -> LockRecord {
        let settings = Settings {
            sizes_bytes: vec![4096, 1 << 20],
            repeats: 1,
            areas: vec![100, 100_000],
            apart: Vec::new(),
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
        assert!(report(&record(999.9, 60.0, 3.0)).passed());
        let missed = |record: &LockRecord| -> Vec<String> {
            let report = report(record);
            let missed = report.verdicts().filter(|it| it.outcome != Outcome::Kept);
            missed.map(ToString::to_string).collect()
        };
        // At 10 us one microsecond is a tenth: both bounds are passed at once.
        assert_eq!(missed(&record(1000.1, 60.0, 3.0)).len(), 2);
        let slow = missed(&record(0.0, 60.1, 3.0));
        assert!(slow.len() == 1 && slow[0].contains("cache hit"), "{slow:?}");
        let crowded = missed(&record(0.0, 60.0, 3.1));
        assert_eq!(crowded.len(), 2, "{crowded:?}");
        let text = report(&record(0.0, 61.0, 1.0)).to_string();
        assert!(
            text.contains("5.00 + 5.00") && text.contains("MISSED"),
            "{text}"
        );
    }

    #[test]
    fn a_call_that_was_not_measured_is_not_good() {
        let mut record = record(0.0, 1.0, 1.0);
        record.runs.retain(|run| !matches!(run, Run::Many { .. }));
        assert!(!report(&record).passed());
    }
}
