//! What a record of the experiment says: tables, verdicts, and what to think of the machine.

use onrush_testkit::testbed::Mode;

use super::record::{Contestant, Run, ServeRecord};
use crate::histogram::Histogram;
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{Summary, ratio};
use crate::table::{Cell, Column, Outcome, Report, Table, Verdict};

/// A sender that waited for its processor longer than this part of a run was disturbed.
const WAITED_PART_MAX: f64 = 0.01;

/// What other processes may take of the sender's processor, beside what the sender itself takes of
/// it.
const FOREIGN_PART_MAX: f64 = 0.05;

/// What the design foretold, for a reader to compare.
const EXPECTED: &str = "Expected (another machine, sending as fast as it could): read and send \
                        3400 ns a packet, trains of 8 packets from registered memory 220 ns, of \
                        44 packets 40 ns. Halvorsen, Dalseng and Griwodz found 27 % less CPU time \
                        for RTP sent within the kernel than for the best of the existing ways.";

/// How many times less than the plain loop the engine is to cost, in `mode`.
const fn ratio_wanted(mode: Mode) -> f64 {
    match mode {
        Mode::Uso => 8.0,
        Mode::SoftwareGso => 3.0,
    }
}

/// What a record says.
#[must_use]
pub fn report(record: &ServeRecord) -> Report {
    let settings = &record.settings;
    let time = |ns: u64| Unit::Nanoseconds.tell(ratio(ns, 1));
    let rest = if settings.keep_awake {
        "kept awake"
    } else {
        "free to rest"
    };
    let mut report = Report::new("What serving costs");
    report.text(format!(
        "{} sessions of {}, bursts of {}; {} runs of {} each; the sender's processor {rest}",
        settings.sessions,
        Unit::BitsPerSecond.tell(ratio(settings.rate_bps, 1)),
        time(settings.burst_ns),
        settings.repeats,
        time(settings.measured_ns),
    ));
    report.add([chart(record)]);
    report.add([costs(record), lateness(record)]);
    report.text(EXPECTED);
    report.text(noise(&record.runs));
    report.warn(warnings(record));
    report.add(verdicts(record));
    report
}

/// Each contestant in each mode.
fn rows(record: &ServeRecord) -> impl Iterator<Item = (Mode, Contestant)> {
    let modes = record.settings.modes.iter();
    modes.flat_map(|&mode| {
        record
            .settings
            .contestants
            .iter()
            .map(move |&who| (mode, who))
    })
}

/// The valid runs of a contestant.
fn valid(record: &ServeRecord, row: (Mode, Contestant)) -> Vec<&Run> {
    let is_it = |run: &&Run| (run.mode, run.contestant) == row && run.void.is_empty();
    record.runs.iter().filter(is_it).collect()
}

fn chart(record: &ServeRecord) -> Drawing {
    let settings = &record.settings;
    let mut chart = Chart::bars("Processor time of the sending thread")
        .categories(settings.contestants.iter().map(|who| who.name()))
        .y("CPU per packet", Unit::Nanoseconds);
    for &mode in &settings.modes {
        let costs = settings.contestants.iter().map(|&who| {
            let runs = valid(record, (mode, who));
            Summary::of(
                &runs
                    .iter()
                    .map(|run| run.cpu_ns_a_packet())
                    .collect::<Vec<_>>(),
            )
        });
        let costs: Vec<_> = costs.collect();
        chart = chart.values(mode.name(), costs.iter().map(Option::as_ref));
    }
    Drawing::new("serve.svg", chart)
}

/// What a packet costs, and how it leaves.
fn costs(record: &ServeRecord) -> Table {
    let mut table = Table::new(
        "Medians of the runs, with the smallest and the largest",
        [
            Column::key("mode"),
            Column::key("who"),
            Column::ns("CPU per packet", 0).with_range().less(),
            Column::ns("core's time", 0).less(),
            Column::count("times the engine", 1),
            Column::count("crossings/s", 0),
            Column::count("packets in each", 1),
            Column::count("in a train", 1),
        ],
    );
    for (mode, who) in rows(record) {
        let runs = valid(record, (mode, who));
        let cell = |value: &dyn Fn(&Run) -> f64| -> Cell {
            runs.iter().map(|run| value(run)).collect::<Vec<_>>().into()
        };
        let cost = match runs.is_empty() {
            true => Cell::Void,
            false => cell(&Run::cpu_ns_a_packet),
        };
        let packets = |run: &Run| run.interval.counts.packets;
        let a_train = who
            .segments()
            .then(|| cell(&|run| ratio(packets(run), run.interval.counts.trains)));
        table.row([
            mode.name().into(),
            who.name().into(),
            cost,
            cell(&|run| ratio(run.interval.core_busy_ns, packets(run))),
            ratios(record, mode, who, Contestant::ENGINE).0.into(),
            cell(&|run| ratio(run.interval.counts.crossings, run.interval.wall_ns) * 1e9),
            cell(&|run| ratio(packets(run), run.interval.counts.crossings)),
            a_train.unwrap_or_default(),
        ]);
    }
    let built = record
        .runs
        .iter()
        .filter(|run| run.void.is_empty() && run.images_built > 0);
    let image_ns = built.map(|run| ratio(run.builder_cpu_ns, run.images_built));
    if let Some(image_ns) = Summary::of(&image_ns.collect::<Vec<_>>()) {
        table.note(format!(
            "On another processor the engine's images cost {:.0} ns each to write, once for all \
             sessions.",
            image_ns.median
        ));
    }
    table
}

/// How late packets arrived, against their RTP timestamps, and how late bursts were handed over.
fn lateness(record: &ServeRecord) -> Table {
    let parts = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
    let of = |what: &str| {
        parts.map(|(name, _)| {
            Column::number(&format!("{what} {name}"), Unit::Nanoseconds).fixed("", 1e6, 1)
        })
    };
    let [arrived, handed] = [of("arrived"), of("sent")];
    let keys = [Column::key("mode"), Column::key("who")];
    let columns: Vec<_> = keys.into_iter().chain(arrived).chain(handed).collect();
    let mut table = Table::new(
        "Late by, in ms, when it arrived and when it was handed over: medians, and the most of all",
        columns,
    );
    for (mode, who) in rows(record) {
        let runs = valid(record, (mode, who));
        let told = |histogram: fn(&Run) -> &Histogram| {
            parts.map(|(_, part)| {
                let late_ns = runs
                    .iter()
                    .filter_map(|run| histogram(run).quantile_ns(part));
                #[allow(
                    clippy::cast_precision_loss,
                    reason = "below 2^53 ns, which is 104 days"
                )]
                let late_ns: Vec<_> = late_ns.map(|ns| ns as f64).collect();
                match part < 1.0 {
                    true => Cell::from(late_ns),
                    false => late_ns.into_iter().reduce(f64::max).into(),
                }
            })
        };
        let names = [mode.name().into(), who.name().into()];
        let arrived = told(|run| &run.interval.arrival_lateness);
        let handed = told(|run| &run.interval.counts.lateness);
        table.row(
            names
                .into_iter()
                .chain(arrived)
                .chain(handed)
                .collect::<Vec<_>>(),
        );
    }
    table
}

impl Run {
    /// Processor time of the sending thread for a packet.
    #[must_use]
    pub fn cpu_ns_a_packet(&self) -> f64 {
        ratio(self.interval.cpu_ns, self.interval.counts.packets)
    }
}

/// Whether the engine is as much cheaper as it has to be, by runs that followed each other; and
/// whether each contestant has a run that counts.
fn verdicts(record: &ServeRecord) -> Vec<Verdict> {
    let settings = &record.settings;
    let nobody = rows(record).filter(|&row| valid(record, row).is_empty());
    let void = nobody.map(|(mode, who)| {
        Verdict::void(
            format!("{} {who}", mode.name()),
            "all of its runs were void",
        )
    });
    let both = [Contestant::ENGINE, Contestant::ReadSendLoop];
    let is_judged = both.iter().all(|who| settings.contestants.contains(who));
    let judged = settings.modes.iter().filter(|_| is_judged).map(|&mode| {
        let (ratios, void_pairs) = ratios(record, mode, both[1], both[0]);
        let what = format!("{}: the loop's cost over the engine's", mode.name());
        let mut verdict = Verdict::at_least(what, &ratios, ratio_wanted(mode), 1);
        if void_pairs > 0 {
            verdict.outcome = Outcome::Void;
            verdict.found += &format!("; {void_pairs} of the pairs stayed void");
        }
        verdict
    });
    judged.chain(void).collect()
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

/// The largest of a part of their time over all runs.
fn worst(runs: &[Run], part_ns: fn(&Run) -> u64) -> f64 {
    let parts = runs
        .iter()
        .map(|run| ratio(part_ns(run), run.interval.wall_ns));
    parts.fold(0.0, f64::max)
}

/// How long a run was disturbed, which part of its time that may be, and what it is.
type Disturbance = (fn(&Run) -> u64, f64, &'static str);

/// What may have disturbed a sender: as part of its time it waited for its processor, others used
/// that, and the host took it away.
const DISTURBANCES: [Disturbance; 3] = [
    (
        |run| run.interval.waited_ns,
        WAITED_PART_MAX,
        "of the time a sender waited for its processor",
    ),
    (
        |run| {
            run.interval
                .core_busy_ns
                .saturating_sub(run.interval.cpu_ns)
        },
        FOREIGN_PART_MAX,
        "of the sender's processor others used",
    ),
    (
        |run| run.interval.stolen_ns,
        FOREIGN_PART_MAX,
        "of the processors the host took away",
    ),
];

/// How quiet the machine was.
fn noise(runs: &[Run]) -> String {
    let medians = |value: fn(&Run) -> f64| {
        Summary::of(&runs.iter().map(value).collect::<Vec<_>>()).map(|s| [s.median, s.min, s.max])
    };
    let [median, min, max] = medians(|run| ratio(run.yardstick_ns, 1_000_000)).unwrap_or_default();
    let others = medians(|run| ratio(run.interval.other_cores_busy_ns, run.interval.wall_ns));
    let parts = DISTURBANCES
        .map(|(part_ns, _, what)| format!("{:.1} % {what}", worst(runs, part_ns) * 100.0));
    format!(
        "Noise: a fixed piece of work took {median:.1} ms ({min:.1}..{max:.1}). In the worst run \
         {}. {:.1} other processors were busy on average.",
        parts.join(", "),
        others.unwrap_or_default()[0]
    )
}

fn warnings(record: &ServeRecord) -> Vec<String> {
    let mut warnings = Vec::new();
    for run in record.runs.iter().filter(|run| !run.void.is_empty()) {
        let (mode, reasons) = (run.mode.name(), run.void.join("; "));
        let (who, number) = (run.contestant, run.repeat + 1);
        warnings.push(format!("void: {mode} {who}, run {number}: {reasons}"));
    }
    for (number, (mode, who)) in rows(record).enumerate() {
        let costs = valid(record, (mode, who))
            .into_iter()
            .map(Run::cpu_ns_a_packet);
        let summary = Summary::of(&costs.collect::<Vec<_>>());
        let told = summary.map(|summary| summary.warnings(&format!("{} {who}", mode.name())));
        // That samples are few is said once.
        let is_new = |warning: &String| number == 0 || !warning.contains("are few");
        warnings.extend(told.unwrap_or_default().into_iter().filter(is_new));
    }
    let underruns = record.runs.iter().map(|run| run.interval.counts.underruns);
    match underruns.sum::<u64>() {
        0 => {}
        underruns => warnings.push(format!(
            "{underruns} bursts waited for packet images: the builders had no time"
        )),
    }
    for (part_ns, max, what) in DISTURBANCES {
        let part = worst(&record.runs, part_ns);
        if part > max {
            let percent = part * 100.0;
            warnings.push(format!(
                "{percent:.0} % {what} in the worst run; run it again on a quiet machine"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::serve::record::tests::run;
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
        let environment = Environment::here("1", "onrush-lab bench serve");
        let mut record = Record::new(NAME, environment, settings);
        for (repeat, ns) in (0..).zip(plain_ns) {
            let runs = [(Contestant::ENGINE, 1_000_000), (PLAIN, ns * 1000)];
            record
                .runs
                .extend(runs.map(|(who, ns)| run(Mode::Uso, who, repeat, ns)));
        }
        record
    }

    fn outcomes(record: &ServeRecord) -> Vec<Outcome> {
        verdicts(record)
            .iter()
            .map(|verdict| verdict.outcome)
            .collect()
    }

    #[test]
    fn the_bound_is_kept_by_the_median_of_the_pairs() {
        let kept = record([2000, 8000, 9000]);
        assert_eq!(verdicts(&kept)[0].found, "8.0 (2.0..9.0), bound at least 8");
        assert_eq!(outcomes(&kept), [Outcome::Kept]);
        assert_eq!(outcomes(&record([2000, 7999, 9000])), [Outcome::Missed]);
    }

    #[test]
    fn a_void_run_is_told_and_a_valid_repeat_replaces_it() {
        let mut record = record([9000; 3]);
        record.runs[2].void = vec!["2 packets went astray".to_owned()];
        assert_eq!(outcomes(&record), [Outcome::Void], "a pair stayed void");
        assert!(verdicts(&record)[0].found.contains("1 of the pairs"));
        assert_eq!(valid(&record, (Mode::Uso, Contestant::ENGINE)).len(), 2);
        let told = "void: uso uring_registered_zc, run 2: 2 packets went astray";
        assert!(warnings(&record).contains(&told.to_owned()));
        let mut again = run(Mode::Uso, Contestant::ENGINE, 1, 1_000_000);
        again.attempt = 1;
        record.runs.push(again);
        assert_eq!(outcomes(&record), [Outcome::Kept]);
        for run in record.runs.iter_mut().filter(|run| run.contestant == PLAIN) {
            run.void = vec!["astray".to_owned()];
        }
        assert_eq!(outcomes(&record), [Outcome::Void; 2]);
    }

    #[test]
    fn rows_say_what_a_packet_costs_and_how_it_left() {
        let table = costs(&record([8000, 9000, 10_000]));
        let told = |row: usize| -> Vec<String> {
            let cells = table.cells(&table.rows[row]).skip(2);
            cells.map(|(column, cell)| column.tell(cell)).collect()
        };
        let engine = ["1000 (1000..1000)", "1000", "1.0", "200", "5.0", "8.0"];
        assert_eq!(told(0), engine);
        let plain = told(1);
        assert_eq!(
            [&plain[0], &plain[2], &plain[5]],
            ["9000 (8000..10000)", "9.0", ""]
        );
    }

    #[test]
    fn a_noisy_machine_is_told_of() {
        let mut record = record([9000; 3]);
        let quiet = warnings(&record).join("\n");
        let interval = &mut record.runs[0].interval;
        interval.waited_ns = interval.wall_ns / 10;
        interval.core_busy_ns += 200_000_000;
        interval.stolen_ns = 70_000_000;
        let noisy = warnings(&record).join("\n");
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
