//! What a record says: what each case cost, how late it was, and whether it held its receivers.

use super::record::{Case, IN_KERNEL, RelayRecord, Run};
use crate::plot::Unit;
use crate::stats::{median, ratio};
use crate::table::{Cell, Column, Report, Table, Verdict};

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
    let mut table = Table::new(
        "Medians of the runs",
        [
            Column::key("way and receivers, delay"),
            Column::text("runs held"),
            Column::ns("processor's time per packet", 0)
                .with_range()
                .less(),
            Column::percent("busy", 0),
            Column::count("packets a train", 1),
            Column::count("packets at the sink", 0),
            Column::ms("late, half", 1),
            Column::ms("late, 999 of 1000", 1).less(),
            Column::ms("late, all", 1),
        ],
    );
    for (number, case) in record.settings.cases.iter().enumerate() {
        let of_runs = |value: &dyn Fn(&Run) -> f64| -> Cell {
            runs(record, number).map(value).collect::<Vec<_>>().into()
        };
        let late = |part: f64| {
            #[allow(
                clippy::cast_precision_loss,
                reason = "below 2^53 ns, which is 104 days"
            )]
            of_runs(&|run| run.lateness.quantile_ns(part).unwrap_or(0) as f64)
        };
        let row = table.row([
            case.told().into(),
            format!(
                "{} of {}",
                held(record, number),
                runs(record, number).count()
            )
            .into(),
            of_runs(&Run::busy_ns_a_packet),
            of_runs(&|run| ratio(run.core_busy_ns, run.wall_ns)),
            of_runs(&|run| ratio(run.received_packets, run.trains.max(1))),
            of_runs(&|run| ratio(run.arrived_packets, 1)),
            late(0.5),
            late(0.999),
            late(1.0),
        ]);
        for run in runs(record, number) {
            for fault in run.faults(case) {
                row.note(format!("run {}: {fault}", run.repeat + 1));
            }
        }
    }
    table
}

/// Whether replicating in the kernel costs less than in a process without a delay, where both were
/// tried.
fn in_kernel(record: &RelayRecord) -> Vec<Verdict> {
    let cases = &record.settings.cases;
    let busy_ns = |receivers, way: Option<&str>| {
        let of_case = |run: &&Run| {
            let case = &cases[run.case];
            (case.receivers, case.delay_ns, case.way.as_deref()) == (receivers, 0, way)
        };
        let runs = record.runs.iter().filter(of_case);
        median(&runs.map(Run::busy_ns_a_packet).collect::<Vec<_>>())
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
        .filter(|case| case.is_judged && case.way.is_none());
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
