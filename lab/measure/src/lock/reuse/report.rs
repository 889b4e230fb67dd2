//! Which way is cheapest at which size and use, and from where on a cache pays.

use super::{ReuseRecord, Run, Way};
use crate::plot::{Chart, Drawing, Unit, Value};
use crate::stats::{Summary, median, to_f64};
use crate::table::{Column, Report, Table, Verdict, gather, table};

/// What a record says.
#[must_use]
pub fn report(record: &ReuseRecord) -> Report {
    let mut report = Report::new("What a message costs that is sent from where it lies");
    report.add(charts(record));
    report.add([
        sends_told(record),
        crossovers_told(record),
        unmaps_told(record),
    ]);
    let void = record
        .runs
        .iter()
        .filter(|run| !run.void.is_empty())
        .count();
    report.void_runs(void, record.runs.len());
    report.add(verdicts(record));
    report
}

fn counting(record: &ReuseRecord) -> impl Iterator<Item = &Run> {
    record.runs.iter().filter(|run| run.void.is_empty())
}

fn sends_told(record: &ReuseRecord) -> Table {
    let sends = gather(counting(record).map(|run| ((run.bytes, run.uses, run.way), run.send_ns)));
    table! {
        "A send of a message whose memory is used so often: medians",
        for ((bytes, uses, way), send_ns) in sends;
        Column::key("message") => size(bytes),
        Column::key("uses") => uses.to_string(),
        Column::key("way") => way.name(),
        Column::us("a send", 2).with_range().less() => send_ns,
    }
}

/// The median time of a send.
fn send_ns(record: &ReuseRecord, way: Way, bytes: usize, uses: u32) -> Option<f64> {
    let is_it = |run: &&Run| (run.way, run.bytes, run.uses) == (way, bytes, uses);
    median(counting(record).filter(is_it).map(|run| run.send_ns))
}

/// The smallest message from which on a way costs less than a copy, at that size and at all larger
/// ones.
fn crossover(record: &ReuseRecord, way: Way, copy: Way, uses: u32) -> Option<usize> {
    let mut sizes = record.settings.sizes_bytes.clone();
    sizes.sort_unstable();
    let pays = |&&bytes: &&usize| {
        let pair = send_ns(record, way, bytes, uses).zip(send_ns(record, copy, bytes, uses));
        // What was left out says nothing.
        pair.is_none_or(|(cost, copied)| cost < copied)
    };
    let measured = |bytes: &&usize| send_ns(record, way, **bytes, uses).is_some();
    let from = sizes.iter().rev().take_while(pays);
    from.filter(measured).last().copied()
}

fn crossovers_told(record: &ReuseRecord) -> Table {
    let ways = [Way::Registered, Way::Watched, Way::Sealed];
    let uses = record.settings.uses.iter();
    let rows = uses.flat_map(|&uses| ways.map(|way| (uses, way)));
    let from = |way, copy, uses| {
        crossover(record, way, copy, uses).map_or_else(|| "never".to_owned(), size)
    };
    table! {
        "From which message on it costs less than a copy",
        for (uses, way) in rows;
        Column::key("uses") => uses.to_string(),
        Column::key("way") => way.name(),
        Column::text("than a copy to registered memory") => from(way, Way::Copy, uses),
        Column::text("than the kernel's copy") => from(way, Way::KernelCopy, uses),
    }
}

fn unmaps_told(record: &ReuseRecord) -> Table {
    let private = [Way::KernelCopy, Way::Registered, Way::Watched];
    let unmaps = counting(record).filter(|run| private.contains(&run.way));
    let unmaps = gather(unmaps.map(|run| ((run.bytes, run.way), run.unmap_ns)));
    table! {
        "To unmap the memory of a message: medians",
        for ((bytes, way), unmap_ns) in unmaps;
        Column::key("message") => size(bytes),
        Column::key("way") => way.name(),
        Column::us("munmap", 2).with_range().less() => unmap_ns,
    }
}

/// A cache that is used often is to be no dearer than a copy of a large message.
fn verdicts(record: &ReuseRecord) -> Vec<Verdict> {
    let judged = |way: Way| {
        let times = send_ns(record, way, JUDGED_BYTES, JUDGED_USES)
            .zip(send_ns(record, Way::Copy, JUDGED_BYTES, JUDGED_USES))
            .map(|(cost, copied)| cost / copied);
        let what = format!(
            "{} used {JUDGED_USES} times, {}: over a copy to registered memory",
            size(JUDGED_BYTES),
            way.name()
        );
        Verdict::at_most(what, times, 1.0, 2)
    };
    vec![judged(Way::Watched), judged(Way::Sealed)]
}

fn charts(record: &ReuseRecord) -> Vec<Drawing> {
    let draw = |&uses: &u32| {
        let title = format!("A send of a message whose memory is used {uses} times");
        let mut chart = Chart::lines(&title)
            .x("message", Unit::Bytes)
            .log_x(2)
            .y("time of a send", Unit::Nanoseconds)
            .log_y(10);
        for way in Way::ALL {
            let points = record.settings.sizes_bytes.iter().filter_map(|&bytes| {
                let is_it = |run: &&Run| (run.way, run.bytes, run.uses) == (way, bytes, uses);
                let sends = counting(record).filter(is_it).map(|run| run.send_ns);
                Some((to_f64(bytes), Value::from(&Summary::of(sends)?)))
            });
            chart = chart.series(way.name(), points);
        }
        Drawing::new(format!("reuse-{uses}.svg"), chart)
    };
    record.settings.uses.iter().map(draw).collect()
}

fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

const JUDGED_BYTES: usize = 1 << 20;
const JUDGED_USES: u32 = 100;

#[cfg(test)]
mod tests {
    use super::super::{NAME, Settings};
    use super::*;
    use crate::experiment::{Environment, Record};

    /// A copy of 1 ns a byte, against a registration of 10 us and 0.1 ns a byte that is shared by
    /// all uses.
    fn record() -> ReuseRecord {
        let settings = Settings {
            sizes_bytes: vec![4 << 10, 64 << 10, 1 << 20],
            uses: vec![1, 100],
            ..Settings::quick()
        };
        let mut record = Record::new(NAME, Environment::here("1", "c"), settings);
        for bytes in record.settings.sizes_bytes.clone() {
            for uses in [1, 100] {
                for way in Way::ALL {
                    let register_ns = 10_000.0 + to_f64(bytes) / 10.0;
                    let send_ns = match way {
                        Way::KernelCopy | Way::Copy => to_f64(bytes),
                        Way::Registered => register_ns,
                        Way::Watched | Way::Sealed => register_ns / f64::from(uses),
                    };
                    record.runs.push(Run {
                        way,
                        bytes,
                        uses,
                        repeat: 0,
                        messages: 1,
                        send_ns,
                        unmap_ns: 1.0,
                        void: String::new(),
                    });
                }
            }
        }
        record
    }

    #[test]
    fn a_cache_pays_from_where_it_does_at_all_larger_sizes() {
        let mut record = record();
        let from = |record: &ReuseRecord, way, uses| crossover(record, way, Way::Copy, uses);
        assert_eq!(from(&record, Way::Watched, 1), Some(64 << 10));
        assert_eq!(from(&record, Way::Watched, 100), Some(4 << 10));
        assert_eq!(from(&record, Way::Registered, 100), Some(64 << 10));
        assert!(report(&record).passed());
        // Dearer at the largest: it pays nowhere.
        for run in &mut record.runs {
            if run.way == Way::Watched && run.bytes == 1 << 20 {
                run.send_ns = 2e6;
            }
        }
        assert_eq!(from(&record, Way::Watched, 100), None);
        assert!(!report(&record).passed());
        assert!(report(&record).to_string().contains("never"));
        record.runs.clear();
        assert!(!report(&record).passed(), "nothing measured is not good");
    }
}
