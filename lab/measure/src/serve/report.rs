//! What a record of the experiment says: rows of a table, verdicts, and what to think of the
//! machine.
//!
//! Computed from the record alone, so that a table in a document can be made again from its file.

use onrush_testkit::testbed::Mode;

use super::{Contestant, Run, ServeRecord};
use crate::histogram::Histogram;
use crate::stats::{Summary, ratio};

/// A sender that waited for its processor longer than this part of a run was disturbed.
const WAITED_PART_MAX: f64 = 0.01;

/// What other processes may take of the sender's processor, beside what the sender itself takes of
/// it.
const FOREIGN_PART_MAX: f64 = 0.05;

/// How many times less than the plain loop the engine is to cost, in `mode`.
#[must_use]
pub const fn ratio_wanted(mode: Mode) -> f64 {
    match mode {
        Mode::Uso => 8.0,
        Mode::SoftwareGso => 3.0,
    }
}

/// All that is to be told.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each mode and contestant, in the record's order.
    pub rows: Vec<Row>,
    /// One for each mode in which both the engine and the plain loop ran.
    pub verdicts: Vec<Verdict>,
    /// How quiet the machine was.
    pub noise: Noise,
    /// What a reader must know, in words.
    pub warnings: Vec<String>,
}

/// What one contestant did in one mode. Summaries are of its valid runs; `None` without any.
#[derive(Clone, Debug)]
pub struct Row {
    /// Who cut trains.
    pub mode: Mode,
    /// Who sent.
    pub contestant: Contestant,
    /// Runs that were void.
    pub void: usize,
    /// Processor time of the sending thread for a packet, in ns.
    pub cpu_ns: Option<Summary>,
    /// Time that the sender's processor was busy, for a packet, in ns.
    pub core_ns: Option<Summary>,
    /// How many times what the engine costs, of runs that followed each other.
    pub times_engine: Option<Summary>,
    /// Entries into the kernel in a second.
    pub crossings_a_second: Option<Summary>,
    /// Packets sent in an entry.
    pub packets_a_crossing: Option<Summary>,
    /// Packets sent in a train; `None` for those that send no trains.
    pub packets_a_train: Option<Summary>,
    /// How late bursts were handed over.
    pub lateness: Lateness,
    /// How late packets arrived, against their RTP timestamps.
    pub arrival: Lateness,
    /// What writing the packet images cost, for a packet image, in ns, on another processor.
    pub image_ns: Option<Summary>,
}

/// Lateness in ns: medians over the runs. Each is rounded up to the next 100 us.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// Of half of them.
    pub p50_ns: f64,
    /// Of 99 in 100.
    pub p99_ns: f64,
    /// Of 999 in 1000.
    pub p999_ns: f64,
    /// Of all, in all runs.
    pub max_ns: f64,
}

/// Whether the engine is as much cheaper as it has to be.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Who cut trains.
    pub mode: Mode,
    /// How many times less than the plain loop the engine costs, by runs that followed each other.
    pub ratio: Option<Summary>,
    /// How many times it has to be.
    pub wanted: f64,
    /// Pairs that could not be compared, because a run stayed void.
    pub void_pairs: u32,
}

/// What else the machine did.
#[derive(Clone, Debug)]
pub struct Noise {
    /// A fixed piece of work on the sender's processor, in ns.
    pub yardstick_ns: Option<Summary>,
    /// How long senders waited for their processor, as part of the run; the worst run.
    pub waited_part_max: f64,
    /// Busy time of the sender's processor that was not the sender's, as part of the whole; the
    /// worst run.
    pub foreign_part_max: f64,
    /// How many of the other processors were busy, on average.
    pub others_busy: f64,
    /// Time that the host took away, as part of the whole; the worst run.
    pub stolen_part_max: f64,
}

impl Report {
    /// What `record` says.
    #[must_use]
    pub fn of(record: &ServeRecord) -> Self {
        let mut rows = Vec::new();
        let mut verdicts = Vec::new();
        let settings = &record.settings;
        for &mode in &settings.modes {
            for &contestant in &settings.contestants {
                rows.push(Row::of(record, mode, contestant));
            }
            let both = [Contestant::ENGINE, Contestant::ReadSendLoop];
            if both.iter().all(|c| settings.contestants.contains(c)) {
                verdicts.push(Verdict::of(record, mode));
            }
        }
        let noise = Noise::of(&record.runs);
        let warnings = warnings(record, &rows, &verdicts, &noise);
        Self {
            rows,
            verdicts,
            noise,
            warnings,
        }
    }

    /// Whether every bound was kept and nothing stayed void.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(Verdict::passed)
            && self.rows.iter().all(|row| row.cpu_ns.is_some())
    }
}

impl Row {
    fn of(record: &ServeRecord, mode: Mode, contestant: Contestant) -> Self {
        let of_both = |run: &&Run| (run.mode, run.contestant) == (mode, contestant);
        let all: Vec<_> = record.runs.iter().filter(of_both).collect();
        let valid: Vec<_> = all
            .iter()
            .copied()
            .filter(|run| run.void.is_empty())
            .collect();
        let summary = |value: &dyn Fn(&Run) -> f64| {
            Summary::of(&valid.iter().map(|run| value(run)).collect::<Vec<_>>())
        };
        let a_second = |count: u64, run: &Run| ratio(count, run.interval.wall_ns) * 1e9;
        Self {
            mode,
            contestant,
            void: all.len() - valid.len(),
            cpu_ns: summary(&Run::cpu_ns_a_packet),
            core_ns: summary(&|run| ratio(run.interval.core_busy_ns, run.interval.counts.packets)),
            times_engine: Summary::of(&ratios(record, mode, contestant, Contestant::ENGINE).0),
            crossings_a_second: summary(&|run| a_second(run.interval.counts.crossings, run)),
            packets_a_crossing: summary(&|run| {
                ratio(run.interval.counts.packets, run.interval.counts.crossings)
            }),
            packets_a_train: summary(&|run| {
                ratio(run.interval.counts.packets, run.interval.counts.trains)
            })
            .filter(|_| contestant.segments()),
            lateness: Lateness::of(&valid, |run| &run.interval.counts.lateness),
            arrival: Lateness::of(&valid, |run| &run.interval.arrival_lateness),
            image_ns: summary(&|run| ratio(run.builder_cpu_ns, run.images_built))
                .filter(|_| contestant != Contestant::ReadSendLoop),
        }
    }
}

impl Run {
    /// Processor time of the sending thread for a packet.
    #[must_use]
    pub fn cpu_ns_a_packet(&self) -> f64 {
        ratio(self.interval.cpu_ns, self.interval.counts.packets)
    }
}

impl Lateness {
    fn of(runs: &[&Run], histogram: impl Fn(&Run) -> &Histogram) -> Self {
        let quantiles = |fraction: f64| -> Vec<f64> {
            let found = runs
                .iter()
                .filter_map(|run| histogram(run).quantile_ns(fraction));
            #[allow(
                clippy::cast_precision_loss,
                reason = "below 2^53 ns, which is 104 days"
            )]
            found.map(|ns| ns as f64).collect()
        };
        let median = |fraction| Summary::of(&quantiles(fraction)).map_or(0.0, |s| s.median);
        Self {
            p50_ns: median(0.5),
            p99_ns: median(0.99),
            p999_ns: median(0.999),
            max_ns: Summary::of(&quantiles(1.0)).map_or(0.0, |s| s.max),
        }
    }
}

impl Verdict {
    fn of(record: &ServeRecord, mode: Mode) -> Self {
        let (ratios, void_pairs) =
            ratios(record, mode, Contestant::ReadSendLoop, Contestant::ENGINE);
        Self {
            mode,
            ratio: Summary::of(&ratios),
            wanted: ratio_wanted(mode),
            void_pairs,
        }
    }

    /// Whether the bound was kept, by all pairs together, none of them void.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.void_pairs == 0 && self.ratio.as_ref().is_some_and(|r| r.median >= self.wanted)
    }
}

impl Noise {
    fn of(runs: &[Run]) -> Self {
        let worst = |value: &dyn Fn(&Run) -> f64| runs.iter().map(value).fold(0.0, f64::max);
        let yardsticks: Vec<_> = runs.iter().map(|run| ratio(run.yardstick_ns, 1)).collect();
        let others: Vec<_> = runs
            .iter()
            .map(|run| ratio(run.interval.other_cores_busy_ns, run.interval.wall_ns))
            .collect();
        Self {
            yardstick_ns: Summary::of(&yardsticks),
            waited_part_max: worst(&|run| ratio(run.interval.waited_ns, run.interval.wall_ns)),
            foreign_part_max: worst(&|run| {
                let foreign = run
                    .interval
                    .core_busy_ns
                    .saturating_sub(run.interval.cpu_ns);
                ratio(foreign, run.interval.wall_ns)
            }),
            others_busy: Summary::of(&others).map_or(0.0, |s| s.median),
            stolen_part_max: worst(&|run| ratio(run.interval.stolen_ns, run.interval.wall_ns)),
        }
    }
}

/// `of` over `to` in processor time for a packet, by repeats in which both have a valid run; and
/// how many repeats have not.
fn ratios(record: &ServeRecord, mode: Mode, of: Contestant, to: Contestant) -> (Vec<f64>, u32) {
    let cost = |contestant, repeat| {
        let wanted = |run: &&Run| {
            (run.mode, run.contestant, run.repeat) == (mode, contestant, repeat)
                && run.void.is_empty()
        };
        record.runs.iter().find(wanted).map(Run::cpu_ns_a_packet)
    };
    let mut void = 0;
    let pairs = (0..record.settings.repeats).filter_map(|repeat| {
        let pair = cost(of, repeat).zip(cost(to, repeat));
        void += u32::from(pair.is_none());
        pair.map(|(of, to)| of / to)
    });
    let ratios = pairs.collect();
    (ratios, void)
}

fn warnings(
    record: &ServeRecord,
    rows: &[Row],
    verdicts: &[Verdict],
    noise: &Noise,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for run in record.runs.iter().filter(|run| !run.void.is_empty()) {
        let (mode, reasons) = (run.mode.name(), run.void.join("; "));
        warnings.push(format!(
            "void: {mode} {}, run {}: {reasons}",
            run.contestant,
            run.repeat + 1
        ));
    }
    for verdict in verdicts {
        let what = format!("{} ratio", verdict.mode.name());
        warnings.extend(verdict.ratio.iter().flat_map(|ratio| ratio.warnings(&what)));
    }
    for row in rows {
        let what = format!("{} {}", row.mode.name(), row.contestant);
        // That samples are few was said of the ratio already.
        let cost = row.cpu_ns.iter().flat_map(|cost| cost.warnings(&what));
        warnings.extend(cost.filter(|warning| !warning.contains("are few")));
    }
    let underruns: u64 = record
        .runs
        .iter()
        .map(|run| run.interval.counts.underruns)
        .sum();
    if underruns > 0 {
        warnings.push(format!(
            "{underruns} bursts waited for packet images: the builders had no time"
        ));
    }
    for (part, max, what) in [
        (
            noise.waited_part_max,
            WAITED_PART_MAX,
            "of the time a sender waited for its processor",
        ),
        (
            noise.foreign_part_max,
            FOREIGN_PART_MAX,
            "of the sender's processor others used",
        ),
        (
            noise.stolen_part_max,
            FOREIGN_PART_MAX,
            "of the processors the host took away",
        ),
    ] {
        if part > max {
            warnings.push(format!(
                "{:.0} % {what} in the worst run; run it again on a quiet machine",
                part * 100.0
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::serve::tests::run;
    use crate::serve::{NAME, Settings};

    const PLAIN: Contestant = Contestant::ReadSendLoop;

    /// Three repeats in `uso`: the engine at 1000 ns a packet, and the loop at so many.
    fn record(plain_ns: [u64; 3]) -> ServeRecord {
        let settings = Settings {
            repeats: 3,
            modes: vec![Mode::Uso],
            contestants: vec![Contestant::ENGINE, PLAIN],
            ..Settings::default()
        };
        let mut record = Record::new(
            NAME,
            Environment::here("1", "onrush-lab bench serve"),
            settings,
        );
        for (repeat, ns) in (0..).zip(plain_ns) {
            record
                .runs
                .push(run(Mode::Uso, Contestant::ENGINE, repeat, 1_000_000));
            record.runs.push(run(Mode::Uso, PLAIN, repeat, ns * 1000));
        }
        record
    }

    #[test]
    fn the_bound_is_kept_by_the_median_of_the_pairs() {
        let kept = Report::of(&record([2000, 8000, 9000]));
        let ratio = kept.verdicts[0].ratio.as_ref().unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 8.0, 9.0));
        assert!(kept.passed());
        let missed = Report::of(&record([2000, 7999, 9000]));
        assert!(!missed.passed() && !missed.verdicts[0].passed());
    }

    #[test]
    fn a_void_run_is_told_and_a_valid_repeat_of_it_takes_its_place() {
        let mut record = record([9000; 3]);
        record.runs[2].void = vec!["2 packets went astray".to_owned()];
        let report = Report::of(&record);
        assert!(!report.passed(), "a pair stayed void");
        assert_eq!(report.verdicts[0].void_pairs, 1);
        assert_eq!(report.rows[0].void, 1);
        assert_eq!(report.rows[0].cpu_ns.as_ref().unwrap().samples, 2);
        let told = "void: uso uring_registered_zc, run 2: 2 packets went astray";
        assert!(
            report.warnings.contains(&told.to_owned()),
            "{:?}",
            report.warnings
        );
        let mut again = run(Mode::Uso, Contestant::ENGINE, 1, 1_000_000);
        again.attempt = 1;
        record.runs.push(again);
        let report = Report::of(&record);
        assert!(report.passed());
        assert_eq!(report.rows[0].cpu_ns.as_ref().unwrap().samples, 3);
    }

    #[test]
    fn rows_say_what_a_packet_costs_and_how_it_left() {
        let report = Report::of(&record([8000, 9000, 10_000]));
        let [engine, plain] = report.rows.as_slice() else {
            panic!("{:?}", report.rows)
        };
        let median = |summary: &Option<Summary>| summary.as_ref().map(|s| s.median);
        assert_eq!(
            (median(&engine.cpu_ns), median(&plain.cpu_ns)),
            (Some(1000.0), Some(9000.0))
        );
        assert_eq!(median(&plain.times_engine), Some(9.0));
        assert_eq!(median(&engine.packets_a_train), Some(8.0));
        assert_eq!(median(&plain.packets_a_train), None);
        assert_eq!(median(&engine.packets_a_crossing), Some(5.0));
        assert_eq!(median(&engine.crossings_a_second), Some(200.0));
    }

    #[test]
    fn a_noisy_machine_is_told_of() {
        let mut record = record([9000; 3]);
        let quiet = Report::of(&record).warnings.join("\n");
        assert!(!quiet.contains("%  of"), "{quiet}");
        let interval = &mut record.runs[0].interval;
        interval.waited_ns = interval.wall_ns / 10;
        interval.core_busy_ns += 200_000_000;
        interval.stolen_ns = 70_000_000;
        let noisy = Report::of(&record).warnings.join("\n");
        for told in [
            "10 % of the time a sender waited",
            "20 % of the sender's",
            "7 % of the proc",
        ] {
            assert!(noisy.contains(told), "{told} in {noisy}");
            assert!(!quiet.contains(told), "{told} in {quiet}");
        }
    }
}
