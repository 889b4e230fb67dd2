//! What the samples say, beside what the paper's did, and whether the bounds were kept.

use std::fmt;

use onrush_wire::pace::schedule::jain;

use super::{Cell, Contestant, CueRecord, Run, Set, TRANSFERS_JUDGED};
use crate::stats::Summary;

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

/// The tables, and what was to be kept.
#[derive(Clone, Debug)]
pub struct Report {
    /// A row for each cell, in the order they were measured.
    pub rows: Vec<Row>,
    /// What a reader has to know.
    pub warnings: Vec<String>,
    /// What was judged.
    pub verdicts: Vec<Verdict>,
}

/// What was seen of a cell; of runs that were not void.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub cell: Cell,
    /// Millions of bytes a second.
    pub mb_a_second: Option<Summary>,
    /// Processor time of the senders for a million bytes, in us.
    pub cpu_us_a_mb: Option<Summary>,
    /// Voluntary switches for a million bytes.
    pub voluntary_a_mb: Option<Summary>,
    /// Involuntary ones.
    pub involuntary_a_mb: Option<Summary>,
    /// Calls of the metering thread, in thousands a second.
    pub kilocalls: Option<Summary>,
    /// The same as a part of what it makes alone.
    pub left: Option<f64>,
    /// How evenly the transfers shared.
    pub evenness: Option<Summary>,
}

/// One bound.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was to be kept, and what was found.
    pub text: String,
    /// Whether it was.
    pub passed: bool,
}

impl Report {
    /// Reads the record.
    #[must_use]
    pub fn of(record: &CueRecord) -> Self {
        let mut cells: Vec<Cell> = Vec::new();
        for run in &record.runs {
            if !cells.contains(&run.cell) {
                cells.push(run.cell);
            }
        }
        let alone = summary(record, cells.iter().find(|c| is_alone(c)), kilocalls);
        let row = |cell: &Cell| Row {
            cell: *cell,
            mb_a_second: summary(record, Some(cell), mb_a_second),
            cpu_us_a_mb: summary(record, Some(cell), cpu_us_a_mb),
            voluntary_a_mb: summary(record, Some(cell), |run| a_mb(run, run.voluntary)),
            involuntary_a_mb: summary(record, Some(cell), |run| a_mb(run, run.involuntary)),
            kilocalls: summary(record, Some(cell), kilocalls).filter(|_| cell.metered),
            left: summary(record, Some(cell), kilocalls)
                .filter(|_| cell.metered)
                .and_then(|calls| Some(calls.median / alone.as_ref()?.median)),
            evenness: summary(record, Some(cell), evenness),
        };
        let mut report = Self {
            rows: cells.iter().map(row).collect(),
            warnings: Vec::new(),
            verdicts: Vec::new(),
        };
        report.judge_left(record);
        report.judge_evenness();
        report.judge_bare(record);
        report.warn(record);
        report
    }

    /// Whether all bounds were kept.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.passed)
    }

    /// The row of a cell of that kind, if it was measured.
    #[must_use]
    pub fn row(&self, set: Set, contestant: Contestant, transfers: u32) -> Option<&Row> {
        self.rows.iter().find(|row| {
            let cell = &row.cell;
            (cell.set, cell.contestant, cell.transfers) == (set, contestant, transfers)
        })
    }

    /// Adaptive beside the paper's yardstick, repeat by repeat.
    fn judge_left(&mut self, record: &CueRecord) {
        let bounds = [(Set::Scaling, RATE_TIMES_MIN), (Set::Line, LINE_TIMES_MIN)];
        for (set, rate_times_min) in bounds {
            let of = |value: fn(&Run) -> Option<f64>| {
                let pair = [Contestant::Adaptive, Contestant::UserDriven];
                ratio(record, set, TRANSFERS_JUDGED, pair, value)
            };
            let (Some(calls), Some(rate)) = (of(kilocalls), of(mb_a_second)) else {
                self.missing(&format!(
                    "{TRANSFERS_JUDGED} transfers, adaptive and user-driven"
                ));
                continue;
            };
            let over = match set {
                Set::Line => " over a slow line",
                _ => "",
            };
            self.verdicts.push(Verdict {
                text: format!(
                    "{TRANSFERS_JUDGED} transfers{over}: adaptive leaves {} times the calls that \
                     user-driven does, at {} times its throughput; at least {LEFT_TIMES_MIN} at \
                     {rate_times_min} was to be",
                    calls.told(2),
                    rate.told(2)
                ),
                passed: calls.median >= LEFT_TIMES_MIN && rate.median >= rate_times_min,
            });
        }
    }

    fn judge_evenness(&mut self) {
        for contestant in [Contestant::Fair, Contestant::Adaptive] {
            let row = self.row(Set::Scaling, contestant, TRANSFERS_JUDGED);
            let Some(evenness) = row.and_then(|row| row.evenness.clone()) else {
                self.missing(&format!("{TRANSFERS_JUDGED} transfers, {contestant}"));
                continue;
            };
            self.verdicts.push(Verdict {
                text: format!(
                    "{TRANSFERS_JUDGED} transfers, {contestant}: evenness (Jain) {}; at least \
                     {EVENNESS_MIN} was to be",
                    evenness.told(4)
                ),
                passed: evenness.median >= EVENNESS_MIN,
            });
        }
    }

    fn judge_bare(&mut self, record: &CueRecord) {
        let pair = [Contestant::Fair, Contestant::SendfileLoop];
        let Some(times) = ratio(record, Set::Bare, 1, pair, cpu_us_a_mb) else {
            return self.missing("one large transfer");
        };
        self.verdicts.push(Verdict {
            text: format!(
                "one large transfer costs {} times the processor time of a bare sendfile; at most \
                 {BARE_TIMES_MAX} was to be",
                times.told(3)
            ),
            passed: times.median <= BARE_TIMES_MAX,
        });
        self.warnings.extend(times.warnings("one large transfer"));
    }

    /// What was not measured is not good.
    fn missing(&mut self, what: &str) {
        self.verdicts.push(Verdict {
            text: format!("{what}: VOID, nothing could be compared"),
            passed: false,
        });
    }

    fn warn(&mut self, record: &CueRecord) {
        for run in &record.runs {
            if let Some(void) = &run.void {
                let Cell {
                    contestant,
                    transfers,
                    ..
                } = run.cell;
                self.warnings
                    .push(format!("{transfers} transfers, {contestant}: void, {void}"));
            }
        }
        let noisy = |row: &&Row| {
            row.cpu_us_a_mb
                .as_ref()
                .is_some_and(|cpu| cpu.spread() > 0.25)
        };
        let noisy = self.rows.iter().filter(noisy).count();
        if noisy > 0 {
            self.warnings.push(format!(
                "in {noisy} of {} rows the processor time spreads over more than 25 % of its \
                 median; something else was at work. Run it again on a quiet machine",
                self.rows.len()
            ));
        }
    }
}

fn is_alone(cell: &Cell) -> bool {
    cell.contestant == Contestant::Nobody
}

fn good<'a>(record: &'a CueRecord, cell: &Cell) -> impl Iterator<Item = &'a Run> {
    let cell = *cell;
    let runs = record.runs.iter();
    runs.filter(move |run| run.cell == cell && run.void.is_none())
}

fn summary(
    record: &CueRecord,
    cell: Option<&Cell>,
    value: impl Fn(&Run) -> Option<f64>,
) -> Option<Summary> {
    Summary::of(&good(record, cell?).filter_map(value).collect::<Vec<_>>())
}

/// One contestant over another, each run with the next of its repeat.
fn ratio(
    record: &CueRecord,
    set: Set,
    transfers: u32,
    [above, below]: [Contestant; 2],
    value: impl Fn(&Run) -> Option<f64>,
) -> Option<Summary> {
    let of = |contestant: Contestant, repeat: u32| -> Vec<f64> {
        let runs = record.runs.iter().filter(|run| {
            let cell = &run.cell;
            (cell.set, cell.contestant, cell.transfers) == (set, contestant, transfers)
                && run.repeat == repeat
                && run.void.is_none()
        });
        runs.filter_map(&value).collect()
    };
    let ratios = (0..record.settings.repeats).flat_map(|repeat| {
        let pairs = of(above, repeat).into_iter().zip(of(below, repeat));
        pairs
            .map(|(above, below)| above / below)
            .collect::<Vec<_>>()
    });
    Summary::of(&ratios.collect::<Vec<_>>())
}

fn megabytes(run: &Run) -> f64 {
    float(run.received_bytes.iter().sum()) / 1e6
}

/// Millions of bytes a second; `None` if nobody sent.
pub(crate) fn mb_a_second(run: &Run) -> Option<f64> {
    (!run.received_bytes.is_empty()).then(|| megabytes(run) * 1e9 / float(run.wall_ns))
}

/// Processor time of the senders for a million bytes, in us; `None` if none were sent.
pub(crate) fn cpu_us_a_mb(run: &Run) -> Option<f64> {
    (megabytes(run) > 0.0).then(|| float(run.cpu_ns) / 1e3 / megabytes(run))
}

fn a_mb(run: &Run, count: u64) -> Option<f64> {
    (megabytes(run) > 0.0).then(|| float(count) / megabytes(run))
}

/// Rounds of the metering thread, in thousands a second; `None` if it had none.
pub(crate) fn kilocalls(run: &Run) -> Option<f64> {
    (run.calls > 0).then(|| float(run.calls) * 1e6 / float(run.wall_ns))
}

fn evenness(run: &Run) -> Option<f64> {
    let shares = run.received_bytes.iter().map(|&bytes| float(bytes));
    (run.received_bytes.len() > 1).then(|| jain(shares))
}

#[allow(clippy::cast_precision_loss, reason = "counts and times below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

impl Set {
    const ALL: [Self; 8] = [
        Self::One,
        Self::Two,
        Self::Parallel,
        Self::Scaling,
        Self::Line,
        Self::Bare,
        Self::Held,
        Self::Cold,
    ];

    /// What it is called in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one transfer",
            Self::Two => "two transfers",
            Self::Parallel => "in parallel",
            Self::Scaling => "many",
            Self::Line => "over a slow line",
            Self::Bare => "one large file",
            Self::Held => "while nobody reads",
            Self::Cold => "cold file",
        }
    }

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
                 39 % of the metering\nalone; (3,70) 5.27 s, 2.13 s, 48, 46 %; (4,70) 4.60 s, 2.17 \
                 s, 39, 41 %; (1,16) 3.85 s, 1.75 s, 132, 31 %;\n(1,20) 4.34 s, 1.75 s, 131, 33 %"
            }
            Self::Two => {
                "paper: user-driven 4.05 s/MB, 1.00 s system, 60 switches/MB, 10463 calls/s; \
                 (3,16) 4.46 s, 0.64 s, 157, 11571;\n(4,16) 3.17 s, 0.89 s, 97, 6032; without \
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for set in Set::ALL {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.cell.set == set).collect();
            if rows.is_empty() {
                continue;
            }
            writeln!(f, "\n{}", set.title())?;
            writeln!(
                f,
                "{:>3} {:<22} {:>8} {:>10} {:>9} {:>10} {:>11} {:>6} {:>7}",
                "", "", "MB/s", "CPU us/MB", "gave up", "was taken", "calls, k/s", "left", "even"
            )?;
            for row in rows {
                write_row(f, row)?;
            }
            if !set.paper().is_empty() {
                writeln!(f, "{}", set.paper())?;
            }
        }
        writeln!(
            f,
            "\nMedians. MB is 1e6 bytes; gave up, was taken: voluntary and involuntary switches a \
             MB; left: calls of the\nmetering thread, of those it makes alone; even: Jain's index \
             of the transfers.\n"
        )?;
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        for verdict in &self.verdicts {
            let word = if verdict.passed { "kept" } else { "MISSED" };
            writeln!(f, "{}: {word}", verdict.text)?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let told = |summary: &Option<Summary>, digits: usize| {
        summary
            .as_ref()
            .map_or_else(|| "-".to_owned(), |s| format!("{:.digits$}", s.median))
    };
    let alone = [Set::Bare, Set::Held, Set::Parallel];
    let beside = if row.cell.metered || alone.contains(&row.cell.set) {
        ""
    } else {
        ", alone"
    };
    writeln!(
        f,
        "{:>3} {:<22} {:>8} {:>10} {:>9} {:>10} {:>11} {:>6} {:>7}",
        row.cell.transfers,
        format!("{}{beside}", row.cell.contestant),
        told(&row.mb_a_second, 1),
        told(&row.cpu_us_a_mb, 0),
        told(&row.voluntary_a_mb, 2),
        told(&row.involuntary_a_mb, 2),
        told(&row.kilocalls, 0),
        row.left
            .map_or_else(|| "-".to_owned(), |left| format!("{:.0} %", left * 100.0)),
        told(&row.evenness, 4)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cue::{NAME, Settings};
    use crate::experiment::{Environment, Record};

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

    fn missed(change: impl Fn(&mut Run)) -> usize {
        let mut record = record();
        record.runs.iter_mut().for_each(change);
        let verdicts = Report::of(&record).verdicts;
        verdicts.iter().filter(|verdict| !verdict.passed).count()
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
        assert_eq!(missed(void), 3);
        let mut record = record();
        record.runs.clear();
        assert_eq!(
            Report::of(&record)
                .verdicts
                .iter()
                .filter(|v| !v.passed)
                .count(),
            5
        );
    }

    #[test]
    fn what_is_left_is_told_beside_what_there_was() {
        let report = Report::of(&record());
        let row = report
            .row(Set::Line, Contestant::Adaptive, TRANSFERS_JUDGED)
            .unwrap();
        assert!((row.left.unwrap() - 1.2).abs() < 1e-9);
        let text = report.to_string();
        assert!(
            text.contains("cue adaptive") && text.contains("120 %"),
            "{text}"
        );
    }
}
