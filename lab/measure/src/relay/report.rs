//! What a record says: what each case cost, how late it was, and whether it held its receivers.

use super::record::{Case, IN_KERNEL, RelayRecord, Run};
use crate::counters::{self, Did};
use crate::plot::Unit;
use crate::stats::{median, ratio, to_f64};
use crate::table::{Column, Report, Table, Verdict, table};

/// What a record says.
#[must_use]
pub fn report(record: &RelayRecord) -> Report {
    let settings = &record.settings;
    let mut report = Report::new("What relaying costs");
    report.text(format!(
        "one stream of {}, a packet at a time; {} runs of {} each; {}",
        Unit::BitsPerSecond.tell(ratio(settings.rate_bps, 1)),
        settings.repeats,
        Unit::Nanoseconds.tell(ratio(settings.measured_ns, 1)),
        settings.mode.name()
    ));
    report.add([cases(record)]);
    report.add(counted(record));
    let judged = (0..)
        .zip(&settings.cases)
        .filter(|(_, case)| case.is_judged);
    report.add(judged.map(|(number, case)| {
        let (held, all) = (held(record, number), runs(record, number).count());
        Verdict::new(
            case.told(),
            format!("held in {held} of {all} runs"),
            held * 2 > all,
        )
    }));
    report.add(in_kernel(record));
    report
}

/// The runs of a case.
fn runs(record: &RelayRecord, number: usize) -> impl Iterator<Item = &Run> {
    record.runs.iter().filter(move |run| run.case == number)
}

/// In how many of them all receivers were held on time.
fn held(record: &RelayRecord, number: usize) -> usize {
    let case = &record.settings.cases[number];
    runs(record, number)
        .filter(|run| run.faults(case).is_empty())
        .count()
}

fn cases(record: &RelayRecord) -> Table {
    let cases = record.settings.cases.iter().enumerate();
    table! {
        "Medians of the runs",
        for (number, case) in cases,
        let of = |value: &dyn Fn(&Run) -> f64| runs(record, number).map(value).collect::<Vec<_>>(),
        let late = |part: f64| of(&|run| to_f64(run.lateness.quantile_ns(part).unwrap_or(0))),
        let faults = runs(record, number).flat_map(|run| {
            let faults = run.faults(case).into_iter();
            faults.map(|fault| format!("run {}: {fault}", run.repeat + 1))
        });
        Column::key("way and receivers, delay") => case.told(),
        Column::text("runs held")
            => format!("{} of {}", held(record, number), runs(record, number).count()),
        Column::ns("processor's time per packet", 0).with_range().less()
            => of(&Run::busy_ns_a_packet),
        Column::percent("busy", 0) => of(&|run| ratio(run.core_busy_ns, run.wall_ns)),
        Column::count("packets a train", 1)
            => of(&|run| ratio(run.received_packets, run.trains.max(1))),
        Column::count("packets at the sink", 0) => of(&|run| to_f64(run.arrived_packets)),
        Column::ms("late, half", 1) => late(0.5),
        Column::ms("late, 999 of 1000", 1).less() => late(0.999),
        Column::ms("late, all", 1) => late(1.0);
        notes faults
    }
}

/// What the processor counted, for each packet that arrived and each send to the whole group.
fn counted(record: &RelayRecord) -> Vec<Table> {
    let did = record.runs.iter().filter_map(|run| {
        // Sends are told of the whole run, and what was counted of a part of it.
        let sends = run.trains * run.measured_packets / run.arrived_packets.max(1);
        Some(Did {
            name: record.settings.cases[run.case].told(),
            counted: run.counted?,
            units: vec![run.measured_packets, sends],
        })
    });
    counters::tables(&["a packet", "a send"], did)
}

/// Whether replicating in the kernel costs less than in a process without a delay, where both were
/// tried.
fn in_kernel(record: &RelayRecord) -> Vec<Verdict> {
    let cases = &record.settings.cases;
    let busy_ns = |receivers, way: Option<&str>| {
        let of_case = |run: &&Run| {
            let case = &cases[run.case];
            let is_steady = case.delay_ns == 0 && case.changes_per_s == 0;
            is_steady && (case.receivers, case.way.as_deref()) == (receivers, way)
        };
        median(
            record
                .runs
                .iter()
                .filter(of_case)
                .map(Run::busy_ns_a_packet),
        )
    };
    let verdict = |case: &Case| {
        let inside = busy_ns(case.receivers, Some(IN_KERNEL))?;
        let part = inside / busy_ns(case.receivers, None)?;
        let what = format!(
            "{} receivers: time in the kernel over that of a process",
            case.receivers
        );
        Some(Verdict::new(
            what,
            format!("{part:.2}, bound below 1"),
            part < 1.0,
        ))
    };
    let judged = cases
        .iter()
        .filter(|case| case.is_judged && case.way.is_none() && case.changes_per_s == 0);
    judged.filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::relay::record::tests::held;
    use crate::relay::{NAME, Settings};
    use crate::table::Outcome;

    /// Three runs in a process, which cost 100 ns a packet, and three in the kernel.
    fn record(in_kernel_ns: u64, held_of_three: usize) -> RelayRecord {
        let (mut run, case) = held();
        (run.measured_packets, run.core_busy_ns) = (1, 100);
        let case = Case {
            delay_ns: 0,
            ..case
        };
        let inside = Case {
            way: Some(IN_KERNEL.to_owned()),
            ..case.clone()
        };
        let settings = Settings {
            cases: vec![case, inside],
            ..Settings::quick()
        };
        let mut record = Record::new(
            NAME,
            Environment::here("1", "onrush-lab bench relay"),
            settings,
        );
        for repeat in 0..3 {
            let mut run = Run {
                case: 0,
                repeat,
                ..run.clone()
            };
            run.lateness = crate::histogram::Histogram::default();
            run.lateness.count(0, 1);
            run.sequence_missing = u64::from(repeat as usize >= held_of_three);
            record.runs.push(run.clone());
            record.runs.push(Run {
                case: 1,
                core_busy_ns: in_kernel_ns,
                sequence_missing: 0,
                ..run
            });
        }
        record
    }

    #[test]
    fn most_runs_are_held_and_the_kernel_costs_less() {
        use Outcome::{Kept, Missed};
        for (ns, held, expected) in [
            (99, 2, [Kept, Kept, Kept]),
            (100, 2, [Kept, Kept, Missed]),
            (99, 1, [Missed, Kept, Kept]),
        ] {
            let report = report(&record(ns, held));
            let outcomes: Vec<_> = report.verdicts().map(|verdict| verdict.outcome).collect();
            assert_eq!(outcomes, expected, "{ns} {held}");
        }
        let told = report(&record(99, 2)).to_string();
        assert!(
            told.contains("run 3: 1 sequence numbers were missing"),
            "{told}"
        );
    }
}
