//! What the samples say, beside what the paper's did, and whether the bounds were kept.

use onrush_wire::pace::schedule::jain;

use super::{Cell, Contestant, CueRecord, Run, Set, TRANSFERS_JUDGED};
use crate::counters::{self, Did};
use crate::plot::{self, Chart, Drawing, Unit};
use crate::stats::{Summary, median, ratio};
use crate::table::{Column, Report, Table, Verdict, ratios, table};

/// What the adaptive schedule leaves to the metering thread at least, in times of what user-driven
/// transfers do.
const LEFT_TIMES_MIN: f64 = 1.2;
/// The evenness of equal transfers at least.
const EVENNESS_MIN: f64 = 0.99;
/// What a byte of one large transfer may cost, in times of what it costs a bare sendfile.
const BARE_TIMES_MAX: f64 = 1.05;
/// The throughput of the adaptive schedule at least, in times of that of user-driven transfers;
/// over a line that all fill, a hundredth less is the same.
const RATE_TIMES_MIN: f64 = 1.0;
const LINE_TIMES_MIN: f64 = 0.99;

/// Who is drawn over the number of transfers.
const DRAWN: [Contestant; 4] = [
    Contestant::UserDriven,
    Contestant::UserLoop,
    Contestant::Fair,
    Contestant::Adaptive,
];

/// What a record says.
#[must_use]
pub fn report(record: &CueRecord) -> Report {
    let mut cells: Vec<Cell> = Vec::new();
    for run in &record.runs {
        if !cells.contains(&run.cell) {
            cells.push(run.cell);
        }
    }
    let mut all = cells.iter();
    let alone = all.find(|cell| cell.contestant == Contestant::Nobody);
    let alone = alone.and_then(|cell| median(samples(record, cell, calls_a_second)));
    let mut report = Report::new("What transfers cost, and leave to others");
    report.add(charts(record, alone));
    for set in Set::ALL {
        let of_set: Vec<_> = cells.iter().filter(|cell| cell.set == set).collect();
        if !of_set.is_empty() {
            report.add([table(record, set, &of_set, alone)]);
        }
    }
    report.add(counted(record));
    report.text(
        "Medians. MB is 1e6 bytes; gave up, was taken: voluntary and involuntary switches a MB; \
         left: calls of the metering thread, of those it makes alone; even: Jain's index of the \
         transfers.",
    );
    report.warn(record.runs.iter().filter_map(|run| {
        let (transfers, contestant) = (run.cell.transfers, run.cell.contestant);
        let why = run.void.as_ref()?;
        Some(format!("{transfers} transfers, {contestant}: void, {why}"))
    }));
    let is_noisy = |cell: &&Cell| {
        let cpu = Summary::of(samples(record, cell, cpu_ns_a_mb));
        cpu.is_some_and(|cpu| cpu.spread() > 0.25)
    };
    let noisy = cells.iter().filter(is_noisy).count();
    report.warn((noisy > 0).then(|| {
        format!(
            "in {noisy} of {} rows the processor time spreads over more than 25 % of its median; \
             something else was at work. Run it again on a quiet machine",
            cells.len()
        )
    }));
    report.add(verdicts(record));
    report
}

fn table(record: &CueRecord, set: Set, cells: &[&Cell], alone: Option<f64>) -> Table {
    let with_nobody = [Set::Bare, Set::Held, Set::Parallel].contains(&set);
    let beside = |cell: &Cell| {
        if cell.metered || with_nobody {
            ""
        } else {
            ", alone"
        }
    };
    let told = table! {
        set.title(), for cell in cells,
        let of = |value: fn(&Run) -> Option<f64>| samples(record, cell, value),
        // Without the thread there is nothing that it was left.
        let calls = if cell.metered { of(calls_a_second) } else { Vec::new() };
        Column::key("at once") => cell.transfers.to_string(),
        Column::key("who") => format!("{}{}", cell.contestant, beside(cell)),
        Column::number("moved", Unit::BytesPerSecond).fixed("MB/s", 1e6, 1).more()
            => of(bytes_a_second),
        Column::us("CPU per MB", 0).less() => of(cpu_ns_a_mb),
        Column::count("gave up", 2) => of(|run| a_mb(run, run.voluntary)),
        Column::count("was taken", 2) => of(|run| a_mb(run, run.involuntary)),
        Column::count("calls", 0).fixed("k/s", 1e3, 0).more() => calls.clone(),
        Column::percent("left", 0)
            => median(calls).zip(alone).map(|(calls, alone)| calls / alone),
        Column::count("even", 4) => of(evenness),
    };
    let mut table = told.prefixed(set.name());
    if !set.paper().is_empty() {
        table.note(set.paper());
    }
    table
}

/// What the processor counted of the senders, for each MB.
fn counted(record: &CueRecord) -> Vec<Table> {
    let did = record.runs.iter().filter_map(|run| {
        let Cell {
            set,
            contestant,
            transfers,
            metered,
        } = run.cell;
        let beside = if metered { "" } else { ", alone" };
        let bytes: u64 = run.received_bytes.iter().sum();
        Some(Did {
            name: format!("{}, {transfers}, {contestant}{beside}", set.title()),
            counted: run.counted.filter(|_| run.void.is_none())?,
            units: vec![bytes / 1_000_000],
        })
    });
    counters::tables(&["a MB"], did)
}

fn charts(record: &CueRecord, alone: Option<f64>) -> [Drawing; 3] {
    let draw = |file: &str, title: &str, (axis, unit): (&str, Unit), value: Value, of: f64| {
        let mut chart = Chart::lines(title)
            .x("transfers at once", Unit::Count)
            .log_x(2)
            .y(axis, unit);
        for contestant in DRAWN {
            let point = |&transfers: &u32| {
                let cell = Cell {
                    set: Set::Scaling,
                    contestant,
                    transfers,
                    metered: true,
                };
                let samples = samples(record, &cell, value).into_iter();
                let summary = Summary::of(samples.map(|sample| sample / of))?;
                Some((f64::from(transfers), plot::Value::from(&summary)))
            };
            let points = record.settings.scaling.iter().filter_map(point);
            chart = chart.series(&contestant.to_string(), points);
        }
        Drawing::new(file, chart)
    };
    let percent = alone.unwrap_or(f64::INFINITY) / 100.0;
    let moved = "What is moved beside a metering thread";
    let left = "What is left to the metering thread";
    let cost = "Processor time of the senders";
    let rate = ("throughput", Unit::BytesPerSecond);
    let part = ("of what it does alone", Unit::Percent);
    let cpu = ("CPU per MB", Unit::Nanoseconds);
    [
        draw("throughput.svg", moved, rate, bytes_a_second, 1.0),
        draw("left.svg", left, part, calls_a_second, percent),
        draw("cost.svg", cost, cpu, cpu_ns_a_mb, 1.0),
    ]
}

/// What is compared of runs.
type Value = fn(&Run) -> Option<f64>;

/// What was to be kept. What was not measured is void.
fn verdicts(record: &CueRecord) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (set, over, rate_times_min) in [
        (Set::Scaling, "", RATE_TIMES_MIN),
        (Set::Line, " over a slow line", LINE_TIMES_MIN),
    ] {
        let of = |value: fn(&Run) -> Option<f64>| {
            let pair = [Contestant::Adaptive, Contestant::UserDriven];
            turns(record, set, TRANSFERS_JUDGED, pair, value)
        };
        let what = format!("{TRANSFERS_JUDGED} transfers{over}, adaptive / user-driven");
        let (left, rate) = (
            format!("{what}: left to others"),
            format!("{what}: throughput"),
        );
        verdicts.extend([
            Verdict::at_least(left, of(calls_a_second), LEFT_TIMES_MIN, 2),
            Verdict::at_least(rate, of(bytes_a_second), rate_times_min, 2),
        ]);
    }
    for contestant in [Contestant::Fair, Contestant::Adaptive] {
        let runs = of_kind(record, Set::Scaling, contestant, TRANSFERS_JUDGED);
        let what = format!("{TRANSFERS_JUDGED} transfers, {contestant}: evenness (Jain)");
        let evenness = runs.filter_map(evenness);
        verdicts.push(Verdict::at_least(what, evenness, EVENNESS_MIN, 4));
    }
    let pair = [Contestant::Fair, Contestant::SendfileLoop];
    let times = turns(record, Set::Bare, 1, pair, cpu_ns_a_mb);
    let what = "one large transfer: processor time, cue / bare sendfile";
    verdicts.push(Verdict::at_most(what, &times, BARE_TIMES_MAX, 3));
    verdicts
}

fn good(record: &CueRecord) -> impl Iterator<Item = &Run> {
    record.runs.iter().filter(|run| run.void.is_none())
}

fn samples(record: &CueRecord, cell: &Cell, value: fn(&Run) -> Option<f64>) -> Vec<f64> {
    let runs = good(record).filter(|run| run.cell == *cell);
    runs.filter_map(value).collect()
}

fn of_kind(
    record: &CueRecord,
    set: Set,
    contestant: Contestant,
    transfers: u32,
) -> impl Iterator<Item = &Run> {
    let wanted = (set, contestant, transfers);
    good(record).filter(move |run| {
        let cell = &run.cell;
        (cell.set, cell.contestant, cell.transfers) == wanted
    })
}

/// One contestant over another, each run with the next of its repeat.
fn turns(
    record: &CueRecord,
    set: Set,
    transfers: u32,
    [above, below]: [Contestant; 2],
    value: fn(&Run) -> Option<f64>,
) -> Vec<f64> {
    let of = |contestant| {
        let runs = of_kind(record, set, contestant, transfers);
        runs.filter_map(move |run| Some((run.repeat, value(run)?)))
    };
    ratios(of(above), of(below))
}

fn megabytes(run: &Run) -> f64 {
    ratio(run.received_bytes.iter().sum(), 1_000_000)
}

/// `None` if nobody sent.
fn bytes_a_second(run: &Run) -> Option<f64> {
    (!run.received_bytes.is_empty()).then(|| megabytes(run) * 1e15 / ratio(run.wall_ns, 1))
}

/// Processor time of the senders for a million bytes, in ns; `None` if none were sent.
fn cpu_ns_a_mb(run: &Run) -> Option<f64> {
    a_mb(run, run.cpu_ns)
}

fn a_mb(run: &Run, count: u64) -> Option<f64> {
    (megabytes(run) > 0.0).then(|| ratio(count, 1) / megabytes(run))
}

/// Rounds of the metering thread; `None` if it had none.
fn calls_a_second(run: &Run) -> Option<f64> {
    (run.calls > 0).then(|| ratio(run.calls, run.wall_ns) * 1e9)
}

fn evenness(run: &Run) -> Option<f64> {
    let shares = run.received_bytes.iter().map(|&bytes| ratio(bytes, 1));
    (run.received_bytes.len() > 1).then(|| jain(shares))
}

impl Set {
    fn title(self) -> &'static str {
        match self {
            Self::One => "Sets 1 to 4, tables 1 to 5: one transfer beside the metering thread",
            Self::Two => "Sets 5 and 6, table 6: two transfers",
            Self::Parallel => "Sets 6, 8 and 9, table 7: with nobody beside them",
            Self::Scaling => "Many transfers beside the metering thread",
            Self::Line => "The same over a line that is slower than they are",
            Self::Bare => "One large file, as fast as it goes",
            Self::Held => "A part of it, that nobody reads before all of it was sent",
            Self::Cold => "A file that is not in memory, each transfer a part of it",
        }
    }

    fn paper(self) -> &'static str {
        match self {
            Self::One => {
                "paper: user-driven 4.53 s/MB, 2.25 s system, 30 switches/MB (73 % involuntary), \
                 39 % of the metering alone; (3,70) 5.27 s, 2.13 s, 48, 46 %; (4,70) 4.60 s, 2.17 \
                 s, 39, 41 %; (1,16) 3.85 s, 1.75 s, 132, 31 %; (1,20) 4.34 s, 1.75 s, 131, 33 %"
            }
            Self::Two => {
                "paper: user-driven 4.05 s/MB, 1.00 s system, 60 switches/MB, 10463 calls/s; \
                 (3,16) 4.46 s, 0.64 s, 157, 11571; (4,16) 3.17 s, 0.89 s, 97, 6032; without \
                 metering 3.13 s, 0.88 s, 97"
            }
            Self::Parallel => {
                "paper: s/MB at 2, 3, 4 transfers: user-driven 7.40, 13.32, 18.97; (4,16) 3.13, \
                 3.42, 3.23"
            }
            Self::Scaling | Self::Line | Self::Bare | Self::Held | Self::Cold => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cue::{NAME, Settings};
    use crate::experiment::{Environment, Record};
    use crate::table::Outcome;

    fn run(set: Set, contestant: Contestant, transfers: u32) -> Run {
        Run {
            cell: Cell {
                set,
                contestant,
                transfers,
                metered: true,
            },
            repeat: 0,
            wall_ns: 1_000_000_000,
            counted: None,
            cpu_ns: 500_000_000,
            voluntary: 1000,
            involuntary: 0,
            calls: 1_000_000,
            received_bytes: vec![10_000_000; transfers as usize],
            total_bytes: (1, 1),
            void: None,
        }
    }

    /// A record in which all bounds are just kept.
    fn record() -> CueRecord {
        let mut record = Record::new(
            NAME,
            Environment::here("1", "onrush-lab bench cue"),
            Settings::quick(),
        );
        record.runs.push(run(Set::One, Contestant::Nobody, 0));
        for set in [Set::Scaling, Set::Line] {
            for contestant in [
                Contestant::UserDriven,
                Contestant::Fair,
                Contestant::Adaptive,
            ] {
                record.runs.push(run(set, contestant, TRANSFERS_JUDGED));
            }
        }
        for run in &mut record.runs {
            if run.cell.contestant == Contestant::Adaptive {
                run.calls = 1_200_000;
            }
        }
        record
            .runs
            .push(run(Set::Bare, Contestant::SendfileLoop, 1));
        let mut ours = run(Set::Bare, Contestant::Fair, 1);
        ours.cpu_ns = 525_000_000;
        record.runs.push(ours);
        record
    }

    fn count_missed(record: &CueRecord) -> usize {
        let report = report(record);
        let missed = report.verdicts().filter(|it| it.outcome != Outcome::Kept);
        missed.count()
    }

    fn missed(change: impl Fn(&mut Run)) -> usize {
        let mut record = record();
        record.runs.iter_mut().for_each(change);
        count_missed(&record)
    }

    #[test]
    fn each_bound_is_kept_at_its_value_and_missed_beyond() {
        let of =
            |run: &Run, set, contestant| run.cell.set == set && run.cell.contestant == contestant;
        assert_eq!(missed(|_| {}), 0);
        for set in [Set::Scaling, Set::Line] {
            let fewer_calls = |run: &mut Run| {
                if of(run, set, Contestant::Adaptive) {
                    run.calls -= 1000;
                }
            };
            assert_eq!(missed(fewer_calls), 1, "{set:?}");
            let slower = |run: &mut Run| {
                if of(run, set, Contestant::Adaptive) {
                    run.wall_ns += 20_000_000;
                    run.calls += 100_000;
                }
            };
            assert_eq!(missed(slower), 1, "{set:?}");
        }
        let dearer = |run: &mut Run| {
            if of(run, Set::Bare, Contestant::Fair) {
                run.cpu_ns += 1_000_000;
            }
        };
        assert_eq!(missed(dearer), 1);
        let uneven = |run: &mut Run| {
            if of(run, Set::Scaling, Contestant::Fair) {
                run.received_bytes[0] *= 10;
            }
        };
        assert_eq!(missed(uneven), 1);
    }

    #[test]
    fn what_is_void_or_was_not_measured_is_not_good() {
        let void = |run: &mut Run| {
            if run.cell.contestant == Contestant::Adaptive {
                run.void = Some("nothing arrived".to_owned());
            }
        };
        assert_eq!(missed(void), 5);
        let mut record = record();
        record.runs.clear();
        assert_eq!(count_missed(&record), 7);
    }

    #[test]
    fn what_is_left_is_told_beside_what_there_was() {
        let text = report(&record()).to_string();
        let is_adaptive = |line: &str| line.contains("cue adaptive") && line.contains("120");
        assert!(text.lines().any(is_adaptive), "{text}");
    }
}
