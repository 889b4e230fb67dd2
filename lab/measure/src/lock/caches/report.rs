//! What asking a cache takes, by itself and with the unmapping, and what each notices.

use super::{CachesRecord, Keeper, Run};
use crate::stats::median;
use crate::table::{Column, Report, Table, Verdict, gather, table};

/// What a record says.
#[must_use]
pub fn report(record: &CachesRecord) -> Report {
    let mut report = Report::new("What caches of registrations cost, and what they notice");
    let left_out = record.settings.left_out.iter();
    report.warn(left_out.map(|what| format!("left out: {what}")));
    report.add([uses_told(record), hits_told(record), changes_told(record)]);
    report.add(verdicts(record));
    report
}

type UseKey = (usize, u32, Keeper);

/// What a run of it took.
#[derive(Clone, Copy)]
struct Took {
    use_ns: f64,
    unmap_ns: f64,
    registrations: f64,
}

fn uses_told(record: &CachesRecord) -> Table {
    let uses: Vec<(UseKey, Vec<Took>)> = gather(record.runs.iter().filter_map(|run| match *run {
        Run::Use {
            keeper,
            bytes,
            uses,
            use_ns,
            unmap_ns,
            registrations,
            ..
        } => {
            let took = Took {
                use_ns,
                unmap_ns,
                registrations,
            };
            Some(((bytes, uses, keeper), took))
        }
        _ => None,
    }));
    table! {
        "Memory that is asked for and given back so often, and then unmapped: medians",
        for ((bytes, uses, keeper), runs) in &uses,
        let of = |of: fn(&Took) -> f64| runs.iter().map(of).collect::<Vec<_>>(),
        let use_ns = of(|run| run.use_ns),
        let unmap_ns = of(|run| run.unmap_ns),
        let pairs = use_ns.iter().zip(&unmap_ns),
        let whole = pairs.map(|(a, b)| a + b / f64::from(*uses)).collect::<Vec<_>>();
        Column::key("memory") => size(*bytes),
        Column::key("uses") => uses.to_string(),
        Column::key("kept by") => keeper.name(),
        Column::us("a use", 3).with_range().less() => use_ns,
        Column::us("munmap", 2).with_range().less() => unmap_ns,
        Column::us("a use and its part of munmap", 3).less() => whole,
        Column::count("registrations", 1) => median(of(|run| run.registrations)),
    }
}

fn hits_told(record: &CachesRecord) -> Table {
    let hits = gather(record.runs.iter().filter_map(|run| match *run {
        Run::Hit {
            keeper,
            kept,
            hit_ns,
            ..
        } => Some(((kept, keeper), hit_ns)),
        _ => None,
    }));
    table! {
        "A hit and its return: medians",
        for ((kept, keeper), hit_ns) in hits;
        Column::key("kept") => kept.to_string(),
        Column::key("by") => keeper.name(),
        Column::ns("a hit", 1).with_range().less() => hit_ns,
    }
}

fn changes_told(record: &CachesRecord) -> Table {
    let changes = record.runs.iter().filter_map(|run| match run {
        Run::Change {
            keeper,
            how,
            is_stale,
        } => Some((*keeper, how, *is_stale)),
        _ => None,
    });
    table! {
        "What is given out when the pages of what was kept are others",
        for (keeper, how, is_stale) in changes;
        Column::key("kept by") => keeper.name(),
        Column::key("memory is") => how.replace('-', " "),
        Column::text("then") => if is_stale { "the old registration" } else { "a new one" },
    }
}

/// No cache of ours may give out what is old. Of UCX's it is told.
fn verdicts(record: &CachesRecord) -> Option<Verdict> {
    let ours = record.runs.iter().filter_map(|run| match run {
        Run::Change {
            keeper: Keeper::Watched,
            is_stale,
            ..
        } => Some(f64::from(u8::from(*is_stale))),
        _ => None,
    });
    let ours: Vec<f64> = ours.collect();
    let stale = (!ours.is_empty()).then(|| ours.iter().sum::<f64>());
    let what = "changes after which the watched cache gives out an old registration";
    Some(Verdict::at_most(what, stale, 0.0, 0))
}

fn size(bytes: usize) -> String {
    match bytes {
        ..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NAME, Settings};
    use super::*;
    use crate::experiment::{Environment, Record};

    #[test]
    fn only_an_old_registration_of_ours_is_judged() {
        let change = |keeper, is_stale| Run::Change {
            keeper,
            how: "replaced-by-a-system-call".to_owned(),
            is_stale,
        };
        let told = |runs: Vec<Run>| {
            let here = Environment::here("1", "c");
            let mut record = Record::new(NAME, here, Settings::quick());
            record.runs = runs;
            report(&record)
        };
        let ours = |is_stale| change(Keeper::Watched, is_stale);
        let report = told(vec![ours(false), change(Keeper::Ucx, true)]);
        assert!(report.passed());
        let printed = report.to_string();
        assert!(printed.contains("replaced by a system call"), "{printed}");
        assert!(printed.contains("the old registration"), "{printed}");
        assert!(!told(vec![ours(false), ours(true)]).passed());
        assert!(!told(vec![]).passed(), "nothing tried is not good");
    }
}
