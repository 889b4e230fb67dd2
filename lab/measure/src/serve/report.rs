//! What a record of the experiment says: tables, verdicts, and what to think of the machine.

use onrush_testkit::testbed::Mode;
use onrush_wire::srtp::Suite;

use super::record::{Contestant, Counts, Entrant, Run, ServeRecord, SrtpParts, Transport};
use crate::counters::{self, Did};
use crate::film_kind::FilmKind;
use crate::histogram::Histogram;
use crate::plot::{Chart, Drawing, Unit};
use crate::profile::Profile;
use crate::stats::{Summary, median, ratio};
use crate::table::{Cell, Column, Outcome, Report, Table, Verdict, table};

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

/// Of what a second of a transport stream costs the engine, the part that a second of another film
/// of the same rate may cost.
const PART_OF_TS_MAX: f64 = 0.8;

/// How many times less than a loop that writes frame by frame the engine is to cost, on
/// connections.
const FRAMED_RATIO_MIN: f64 = 3.0;

/// Of what a loop of rustls writes costs, the part that the engine may cost, on connections with
/// TLS.
const SEALED_PART_MAX: f64 = 1.2;

/// Of what a packet of plain RTP costs, the part that one may cost whose image was encrypted once
/// for all sessions.
const SRTP_SHARED_PART_MAX: f64 = 1.05;

/// Sessions of [`SRTP_RATE_BPS`] that a processor is to hold, by the time that they take, whose
/// packets are encrypted for each alone.
const SRTP_SESSIONS_MIN: f64 = 2000.0;
const SRTP_RATE_BPS: u64 = 4_000_000;

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
    report.add(buffers(record));
    report.add((record.settings.media.len() > 1).then(|| seconds(record)));
    report.add(encryption(record));
    report.add(accounts(record));
    report.add(counted(record));
    report.text(EXPECTED);
    report.text(noise(&record.runs));
    report.warn(warnings(record));
    report.add(verdicts(record));
    report
}

/// Each contestant in each mode, with each kind of film.
fn rows(record: &ServeRecord) -> impl Iterator<Item = (Mode, Entrant)> {
    let modes = record.settings.modes.iter();
    modes.flat_map(|&mode| record.settings.entrants().map(move |who| (mode, who)))
}

/// The valid runs of a contestant.
fn valid(record: &ServeRecord, row: (Mode, Entrant)) -> Vec<&Run> {
    let is_it = |run: &&Run| (run.mode, run.entrant()) == row && run.void.is_empty();
    record.runs.iter().filter(is_it).collect()
}

fn chart(record: &ServeRecord) -> Drawing {
    let settings = &record.settings;
    let mut chart = Chart::bars("Processor time of the sending thread")
        .categories(settings.entrants().map(|who| who.to_string()))
        .y("CPU per packet", Unit::Nanoseconds);
    for &mode in &settings.modes {
        let cost = |who| Summary::of(each(&valid(record, (mode, who)), Run::cpu_ns_a_packet));
        chart = chart.values(mode.name(), settings.entrants().map(cost));
    }
    Drawing::new("serve.svg", chart)
}

/// What the runs say, one by one.
fn each(runs: &[&Run], value: Value) -> Vec<f64> {
    runs.iter().map(|run| value(run)).collect()
}

/// What a packet costs, and how it leaves.
fn costs(record: &ServeRecord) -> Table {
    let per_second = |run: &Run| ratio(run.interval.counts.crossings, run.interval.wall_ns) * 1e9;
    let mut table = table! {
        "Medians of the runs, with the smallest and the largest",
        for (mode, who) in rows(record),
        let runs = valid(record, (mode, who)),
        let engine = Entrant { contestant: Contestant::ENGINE, ..who },
        let trains = who.contestant.segments().then_some(&runs);
        Column::key("mode") => mode.name(),
        Column::key("who") => who.to_string(),
        Column::ns("CPU per packet", 0).with_range().less()
            => Cell::or_void(each(&runs, Run::cpu_ns_a_packet)),
        Column::ns("core's time", 0).less()
            => each(&runs, |run| ratio(run.interval.core_busy_ns, run.interval.counts.packets)),
        Column::count("times the engine", 1)
            => ratios(record, mode, (who, engine), Run::cpu_ns_a_packet).0,
        Column::count("crossings/s", 0) => each(&runs, per_second),
        Column::count("packets in each", 1)
            => each(&runs, |run| ratio(run.interval.counts.packets, run.interval.counts.crossings)),
        Column::count("in a train", 1) => trains.map(|runs| {
            let counted = runs.iter().filter(|run| run.interval.counts.trains > 0);
            let counts = counted.map(|run| &run.interval.counts);
            counts.map(|counts| ratio(counts.packets, counts.trains)).collect::<Vec<_>>()
        }),
    };
    let runs = record.runs.iter();
    let built = runs.filter(|run| run.void.is_empty() && run.images_built > 0);
    if let Some(ns) = median(built.map(|run| ratio(run.builder_cpu_ns, run.images_built))) {
        table.note(format!(
            "On another processor the engine's images cost {ns:.0} ns each to write, once for all \
             sessions."
        ));
    }
    table
}

/// Where the time of a train goes, if that was looked at: of all valid runs together.
fn accounts(record: &ServeRecord) -> Vec<Table> {
    let tables = rows(record).filter_map(|(mode, who)| {
        let runs = valid(record, (mode, who));
        let (mut all, mut trains) = (Profile::default(), 0);
        for (run, profile) in runs
            .iter()
            .filter_map(|run| Some((run, run.profile.as_ref()?)))
        {
            all.add(profile);
            trains += run.interval.counts.sends();
        }
        let caption = format!("Where the time of a train goes: {who}, {}", mode.name());
        let prefix = format!("account, {}, {who}", mode.name());
        (trains > 0).then(|| all.told(caption, trains).prefixed(prefix))
    });
    tables.collect()
}

/// What a second of one stream costs, and in how many sends it leaves: of all its tracks.
fn seconds(record: &ServeRecord) -> Table {
    let sessions = f64::from(record.settings.sessions);
    let a_second = |runs: &[&Run], value: fn(&Run) -> u64| -> Vec<f64> {
        let a_second = |run: &&Run| ratio(value(run), run.interval.wall_ns) * 1e9 / sessions;
        runs.iter().map(a_second).collect()
    };
    table! {
        "A second of a stream, all its tracks together",
        for (mode, who) in rows(record),
        let runs = valid(record, (mode, who)),
        let ts = Entrant::of_ts(who.contestant);
        Column::key("mode") => mode.name(),
        Column::key("who") => who.to_string(),
        Column::us("CPU", 1).with_range().less()
            => Cell::or_void(a_second(&runs, |run| run.interval.cpu_ns)),
        Column::count("times the transport stream", 2)
            => ratios(record, mode, (who, ts), Run::cpu_part).0,
        Column::count("packets", 1) => a_second(&runs, |run| run.interval.counts.packets),
        Column::count("sends", 1) => a_second(&runs, |run| run.interval.counts.sends()),
        Column::count("of one packet", 1) => a_second(&runs, |run| run.interval.counts.singles()),
    }
}

/// What encryption adds to a packet, and what that is made of, each measured alone; of each way
/// that was measured.
fn encryption(record: &ServeRecord) -> Option<Table> {
    let rows = rows(record).filter(|(_, who)| who.contestant.suite().is_some());
    let rows: Vec<_> = rows.collect();
    let part = |runs: &[&Run], part: fn(&SrtpParts) -> f64| -> Vec<f64> {
        let parts = runs.iter().filter_map(|run| run.parts.as_ref());
        parts.map(part).collect()
    };
    let added = |runs: &[&Run], media| -> Vec<f64> {
        let contestant = Contestant::ENGINE;
        let added = runs.iter().filter_map(|run| {
            let plain = valid(record, (run.mode, Entrant { contestant, media }));
            let plain = plain.iter().find(|plain| plain.repeat == run.repeat)?;
            Some(run.cpu_ns_a_packet() - plain.cpu_ns_a_packet())
        });
        added.collect()
    };
    let built = |runs: &[&Run]| -> Vec<f64> {
        let built = runs.iter().filter(|run| run.images_built > 0);
        let built = built.map(|run| ratio(run.builder_cpu_ns, run.images_built));
        built.collect()
    };
    (!rows.is_empty()).then(|| {
        let mut table = table! {
            "What encryption adds to a packet",
            for (mode, who) in rows,
            let runs = valid(record, (mode, who)),
            // With a key that all share it is done once, where images are written.
            let is_once = who.contestant.own_key_suite().is_none();
            Column::key("mode") => mode.name(),
            Column::key("who") => who.to_string(),
            Column::key("by") => who.contestant.suite().map_or("", Suite::name),
            Column::ns("beside plain RTP", 0).with_range().less()
                => Cell::or_void(added(&runs, who.media)),
            Column::ns("copy alone", 0) => part(&runs, |parts| parts.copy_ns),
            Column::ns("cipher alone", 0) => part(&runs, |parts| parts.cipher_ns),
            Column::ns("to write an image", 0) => is_once.then(|| built(&runs)),
        };
        table.note(
            "With a shared key an image is encrypted once, when it is written, on another \
             processor.",
        );
        table
    })
}

/// What the processor counted of the sending thread, for each packet and each train.
fn counted(record: &ServeRecord) -> Vec<Table> {
    let did = |(mode, who): (Mode, Entrant)| {
        valid(record, (mode, who))
            .into_iter()
            .filter_map(move |run| {
                Some(Did {
                    name: format!("{}, {who}", mode.name()),
                    counted: run.interval.counted?,
                    units: vec![run.interval.counts.packets, run.interval.counts.sends()],
                })
            })
    };
    counters::tables(&["a packet", "a train"], rows(record).flat_map(did))
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
                match part < 1.0 {
                    true => Cell::from(late_ns.collect::<Vec<_>>()),
                    false => late_ns.max().into(),
                }
            })
        };
        let names = [mode.name().into(), who.to_string().into()];
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

/// What players of the sessions would have had to buffer, if that was followed.
fn buffers(record: &ServeRecord) -> Option<Table> {
    let parts = [
        ("p50", 0.5),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("worst", 1.0),
    ];
    let columns = parts.map(|(name, _)| {
        Column::number(&format!("sessions {name}"), Unit::Nanoseconds).fixed("", 1e6, 2)
    });
    let keys = [Column::key("mode"), Column::key("who")];
    let caption = "What a player would have had to buffer for 999 of 1000 packets, in ms: medians \
                   of runs, and the most of all";
    let columns: Vec<_> = keys.into_iter().chain(columns).collect();
    let mut table = Table::new(caption, columns);
    for (mode, who) in rows(record) {
        let runs = valid(record, (mode, who));
        let playouts: Vec<_> = runs
            .iter()
            .filter_map(|run| run.playouts.as_ref())
            .collect();
        if playouts.is_empty() {
            continue;
        }
        let cells = parts.map(|(_, part)| {
            let needed_ns = playouts.iter().filter_map(|it| it.needed_ns(part));
            match part < 1.0 {
                true => Cell::from(needed_ns.collect::<Vec<_>>()),
                false => needed_ns.max().into(),
            }
        });
        let names = [mode.name().into(), who.to_string().into()];
        table.row(names.into_iter().chain(cells).collect::<Vec<_>>());
    }
    (!table.rows.is_empty()).then_some(table)
}

impl Counts {
    /// Times that something was handed over to be sent; a path without trains does so packet by
    /// packet.
    fn sends(&self) -> u64 {
        match self.trains {
            0 => self.packets,
            trains => trains,
        }
    }

    /// Those of one packet.
    fn singles(&self) -> u64 {
        match self.trains {
            0 => self.packets,
            _ => self.trains_single,
        }
    }
}

impl Run {
    /// Who sent what.
    fn entrant(&self) -> Entrant {
        Entrant {
            contestant: self.contestant,
            media: self.media,
        }
    }

    /// Processor time of the sending thread, of the time that went by.
    fn cpu_part(&self) -> f64 {
        ratio(self.interval.cpu_ns, self.interval.wall_ns)
    }

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
    let judged = settings.modes.iter().flat_map(|&mode| {
        let of_loop = judge_loop(record, mode, Transport::Udp, ratio_wanted(mode));
        let others = settings.media.iter();
        let of_media = others.filter_map(move |&media| {
            let contestant = Contestant::ENGINE;
            let pair = (Entrant { contestant, media }, Entrant::of_ts(contestant));
            let what = format!("a second of {media} over a second of a transport stream");
            let bound = (Bound::AtMost(PART_OF_TS_MAX), Run::cpu_part as Value);
            (media != FilmKind::Ts).then(|| judge(record, mode, pair, what, bound))?
        });
        let others = of_other_transports(record, mode);
        let all = of_loop.into_iter().chain(of_media).chain(others);
        all.collect::<Vec<_>>()
    });
    judged.chain(void).collect()
}

/// What is judged of transports other than UDP.
fn of_other_transports(record: &ServeRecord, mode: Mode) -> impl Iterator<Item = Verdict> {
    let framed = judge_loop(record, mode, Transport::Tcp, FRAMED_RATIO_MIN);
    let at_most = |[who, yardstick]: [Contestant; 2], what: &str, part| {
        let pair = (Entrant::of_ts(who), Entrant::of_ts(yardstick));
        let bound = (Bound::AtMost(part), Run::cpu_ns_a_packet as Value);
        judge(record, mode, pair, what.to_owned(), bound)
    };
    let sealed = at_most(
        [Contestant::Sealed, Contestant::RustlsLoop],
        "the engine's cost with TLS over that of rustls writes",
        SEALED_PART_MAX,
    );
    let shared = at_most(
        [Contestant::SrtpShared, Contestant::ENGINE],
        "the cost of SRTP with a shared key over that of plain RTP",
        SRTP_SHARED_PART_MAX,
    );
    let own = Contestant::of_transport(Transport::Srtp).iter();
    let own = own.filter_map(move |&who| judge_own_keys(record, mode, who));
    let all = framed.into_iter().chain(sealed).chain(shared);
    all.chain(own)
}

/// Whether the loop of that transport costs at least so many times what the engine does.
fn judge_loop(
    record: &ServeRecord,
    mode: Mode,
    transport: Transport,
    ratio_min: f64,
) -> Option<Verdict> {
    let &[engine, its_loop] = Contestant::of_transport(transport) else {
        return None;
    };
    let [engine, its_loop] = [engine, its_loop].map(Entrant::of_ts);
    let over = match transport {
        Transport::Udp => String::new(),
        other => format!(" over {other}"),
    };
    let what = format!("the loop's cost over the engine's{over}");
    let bound = (Bound::AtLeast(ratio_min), Run::cpu_ns_a_packet as Value);
    judge(record, mode, (its_loop, engine), what, bound)
}

/// Whether a processor would hold as many sessions as it has to whose packets are encrypted for
/// each alone.
fn judge_own_keys(record: &ServeRecord, mode: Mode, who: Contestant) -> Option<Verdict> {
    let suite = who.own_key_suite()?;
    let settings = &record.settings;
    let runs = valid(record, (mode, Entrant::of_ts(who)));
    if settings.rate_bps != SRTP_RATE_BPS || runs.is_empty() {
        return None;
    }
    let sessions = f64::from(settings.sessions);
    let sessions: Vec<_> = runs.iter().map(|run| sessions / run.cpu_part()).collect();
    let (mode, suite) = (mode.name(), suite.name());
    let what =
        format!("{mode}: SRTP sessions with {suite} keys of their own in a processor's time");
    Some(Verdict::at_least(what, &sessions, SRTP_SESSIONS_MIN, 0))
}

/// What is compared of runs.
type Value = fn(&Run) -> f64;

/// What a ratio is to be.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Whether one costs as much more, or as little, as it has to, if both were measured.
fn judge(
    record: &ServeRecord,
    mode: Mode,
    (of, to): (Entrant, Entrant),
    what: String,
    (bound, value): (Bound, Value),
) -> Option<Verdict> {
    let has = |who| record.settings.entrants().any(|entrant| entrant == who);
    if !has(of) || !has(to) {
        return None;
    }
    let (ratios, void_pairs) = ratios(record, mode, (of, to), value);
    let what = format!("{}: {what}", mode.name());
    let mut verdict = match bound {
        Bound::AtLeast(bound) => Verdict::at_least(what, &ratios, bound, 1),
        Bound::AtMost(bound) => Verdict::at_most(what, &ratios, bound, 2),
    };
    if void_pairs > 0 {
        verdict.outcome = Outcome::Void;
        verdict.found += &format!("; {void_pairs} of the pairs stayed void");
    }
    Some(verdict)
}

/// `of` over `to` in what is compared, by repeats in which both have a valid run; and how many
/// repeats have not.
fn ratios(
    record: &ServeRecord,
    mode: Mode,
    (of, to): (Entrant, Entrant),
    value: Value,
) -> (Vec<f64>, u32) {
    let cost = |entrant, repeat| {
        let wanted = |run: &&Run| {
            (run.mode, run.entrant(), run.repeat) == (mode, entrant, repeat) && run.void.is_empty()
        };
        record.runs.iter().find(wanted).map(value)
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
    let medians =
        |value: Value| Summary::of(runs.iter().map(value)).map(|s| [s.median, s.min, s.max]);
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
        let (who, number) = (run.entrant(), run.repeat + 1);
        warnings.push(format!("void: {mode} {who}, run {number}: {reasons}"));
    }
    for (number, (mode, who)) in rows(record).enumerate() {
        let summary = Summary::of(each(&valid(record, (mode, who)), Run::cpu_ns_a_packet));
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

    /// The same with MP4, at so many parts of 100 of a transport stream's cost.
    fn record_of_mp4(percents: [u64; 3]) -> ServeRecord {
        let mut record = record([9000; 3]);
        record.settings.media.push(FilmKind::Mp4);
        record
            .runs
            .extend((0..).zip(percents).map(|(repeat, percent)| {
                let mut run = run(Mode::Uso, Contestant::ENGINE, repeat, percent * 10_000);
                run.media = FilmKind::Mp4;
                run.interval.counts.trains_single = 50;
                run
            }));
        record
    }

    #[test]
    fn a_second_of_mp4_costs_at_most_so_much_of_a_transport_stream() {
        let kept = record_of_mp4([70, 80, 90]);
        let told = &verdicts(&kept)[1];
        assert_eq!(
            told.what,
            "uso: a second of mp4 over a second of a transport stream"
        );
        assert_eq!(told.found, "0.80 (0.70..0.90), bound at most 0.8");
        assert_eq!(outcomes(&kept), [Outcome::Kept; 2]);
        let missed = record_of_mp4([70, 81, 90]);
        assert_eq!(outcomes(&missed), [Outcome::Kept, Outcome::Missed]);
        let mut void = record_of_mp4([70; 3]);
        void.runs[7].void = vec!["astray".to_owned()];
        assert_eq!(outcomes(&void), [Outcome::Kept, Outcome::Void]);
        let table = seconds(&kept);
        let told = |row: usize| -> Vec<String> {
            let cells = table.cells(&table.rows[row]).skip(1);
            cells.map(|(column, cell)| column.tell(cell)).collect()
        };
        // 1000 packets in a second of 256 sessions.
        let mp4 = [
            "uring_registered_zc mp4",
            "3.1 (2.7..3.5)",
            "0.80",
            "3.9",
            "0.5",
            "0.2",
        ];
        assert_eq!(told(1), mp4);
        assert_eq!(told(2)[4..], ["3.9", "3.9"]);
    }

    #[test]
    fn a_void_run_is_told_and_a_valid_repeat_replaces_it() {
        let mut record = record([9000; 3]);
        record.runs[2].void = vec!["2 packets went astray".to_owned()];
        assert_eq!(outcomes(&record), [Outcome::Void], "a pair stayed void");
        assert!(verdicts(&record)[0].found.contains("1 of the pairs"));
        assert_eq!(
            valid(&record, (Mode::Uso, Entrant::of_ts(Contestant::ENGINE))).len(),
            2
        );
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

    /// Three repeats of all over that transport, at so many ns a packet.
    fn record_over(transport: Transport, ns: &[u64]) -> ServeRecord {
        let contestants = Contestant::of_transport(transport);
        assert_eq!(ns.len(), contestants.len());
        let mut record = record([8000; 3]);
        record.settings.contestants = contestants.to_vec();
        record.runs = Vec::new();
        for repeat in 0..3 {
            for (&who, &ns) in contestants.iter().zip(ns) {
                let mut run = run(Mode::Uso, who, repeat, ns * 1000);
                run.parts = who.own_key_suite().map(|suite| SrtpParts {
                    copy_ns: 70.0,
                    cipher_ns: if suite == Suite::default() {
                        500.0
                    } else {
                        250.0
                    },
                });
                (run.builder_cpu_ns, run.images_built) = (600_000, 1000);
                record.runs.push(run);
            }
        }
        record
    }

    #[test]
    fn each_transport_is_held_against_its_yardstick() {
        for (transport, engine_ns, yardstick_ns, outcome) in [
            (Transport::Tcp, 1000, 3000, Outcome::Kept),
            (Transport::Tcp, 1000, 2999, Outcome::Missed),
            (Transport::Tls, 1200, 1000, Outcome::Kept),
            (Transport::Tls, 1210, 1000, Outcome::Missed),
        ] {
            let record = record_over(transport, &[engine_ns, yardstick_ns]);
            assert_eq!(outcomes(&record), [outcome], "{transport} {engine_ns}");
        }
    }

    #[test]
    fn each_way_of_srtp_is_judged_by_itself() {
        use Outcome::{Kept, Missed};
        // Both suites with keys of their own, the shared key, and plain RTP: 1000 packets of 256
        // sessions in a second.
        for (ns, shared, counter_mode, galois) in [
            ([128_000, 128_000, 105, 100], Kept, Kept, Kept),
            ([128_100, 128_000, 106, 100], Missed, Missed, Kept),
            ([128_000, 128_100, 105, 100], Kept, Kept, Missed),
        ] {
            let record = record_over(Transport::Srtp, &ns);
            assert_eq!(outcomes(&record), [shared, counter_mode, galois], "{ns:?}");
        }
        let told = verdicts(&record_over(Transport::Srtp, &[128_000, 64_000, 105, 100]));
        let told: Vec<_> = told
            .iter()
            .map(|it| (&it.what[..], &it.found[..]))
            .collect();
        assert_eq!(
            told,
            [
                (
                    "uso: the cost of SRTP with a shared key over that of plain RTP",
                    "1.05 (1.05..1.05), bound at most 1.05"
                ),
                (
                    "uso: SRTP sessions with AES_CM_128_HMAC_SHA1_80 keys of their own in a \
                     processor's time",
                    "2000 (2000..2000), bound at least 2000"
                ),
                (
                    "uso: SRTP sessions with AEAD_AES_128_GCM keys of their own in a processor's \
                     time",
                    "4000 (4000..4000), bound at least 2000"
                ),
            ]
        );
    }

    #[test]
    fn copy_and_cipher_are_told_apart_for_each_suite() {
        let table = encryption(&record_over(Transport::Srtp, &[900, 500, 205, 200])).unwrap();
        let rows = table.rows.iter().map(|row| {
            let cells = table.cells(row).skip(2);
            cells.map(|(column, cell)| column.tell(cell)).collect()
        });
        let rows: Vec<Vec<_>> = rows.collect();
        let (counter_mode, galois) = ("AES_CM_128_HMAC_SHA1_80", "AEAD_AES_128_GCM");
        assert_eq!(rows[0], [counter_mode, "700 (700..700)", "70", "500", ""]);
        assert_eq!(rows[1], [galois, "300 (300..300)", "70", "250", ""]);
        assert_eq!(rows[2], [counter_mode, "5 (5..5)", "", "", "600"]);
        assert_eq!(rows.len(), 3);
        assert!(encryption(&record([8000; 3])).is_none());
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
