//! What the samples say, and whether the bounds were kept.

use super::{Contestant, HttpRecord, Load, Run};
use crate::counters::{self, Did};
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{Summary, ratio};
use crate::table::{Column, Outcome, Report, Table, Verdict, ratios, table};

/// Processor time of one large download, against the bare loop's.
const ONE_MAX: f64 = 1.05;
/// Processor time of many large downloads at once, against the peer's.
const PARALLEL_MAX: f64 = 1.0;
/// How even the shares of many large downloads are (Jain).
const EVENNESS_MIN: f64 = 0.99;
/// Requests a second for small files and for segments, against the peer's.
const SMALL_MIN: f64 = 0.9;
/// Processor time of segments that are ranges of a file, against the peer's for files.
const TS_MAX: f64 = 1.1;
/// Of segments that are made of samples.
const CMAF_MAX: f64 = 1.3;
/// Of the same bytes over TLS.
const TLS_MAX: f64 = 1.1;

/// What a record says.
#[must_use]
pub fn report(record: &HttpRecord) -> Report {
    let mut report = Report::new("What downloads cost");
    let loads = record.settings.loads();
    let (of_requests, title) = match record.settings.hls {
        None => (vec![Load::Small], "Files of 100 KB from one processor"),
        Some(_) => (loads.clone(), "Segments of six seconds from one processor"),
    };
    let requests: Shown = (title, "requests a second", Unit::Count, requests_a_second);
    report.add([
        bars(record, "cost.svg", COST, &loads),
        bars(record, "requests.svg", requests, &of_requests),
    ]);
    report.add([table(record), modes(record)]);
    report.add(counted(record));
    let runs = record.runs.iter();
    if let Some(yardstick) = Summary::of(runs.map(|run| ratio(run.yardstick_ns, 1_000_000))) {
        let told = yardstick.told(1);
        report.text(format!("Noise: a fixed piece of work took {told} ms."));
    }
    let peer = record.settings.peer.as_deref().unwrap_or("none");
    report.text(format!("Peer: {peer}."));
    if let Some(congestion) = &record.settings.congestion {
        report.text(format!("Congestion control of TCP: {congestion}."));
    }
    if record.settings.computed {
        report.text("Of onrush no segment was in memory: each was sent from its film.");
    }
    report.add(verdicts(record));
    report
}

fn table(record: &HttpRecord) -> Table {
    table! {
        "Medians, with the smallest and the largest",
        for (load, contestant) in measured(record, &|_| true),
        let of = |value: &dyn Fn(&Run) -> f64| samples(record, load, contestant, value);
        Column::key("load") => load.name(),
        Column::key("server") => contestant.name(),
        Column::ms("CPU per GB", 1).with_range().less() => of(&cpu_ns_a_gb),
        Column::ms("core's", 1) => of(&|run| ratio(run.core_busy_ns, run.bytes) * 1e9),
        Column::number("rate", Unit::BytesPerSecond).fixed("GB/s", 1e9, 2)
            => of(&|run| ratio(run.bytes, run.wall_ns) * 1e9),
        Column::count("requests a second", 0).more() => of(&requests_a_second),
        Column::count("busy", 2) => of(&|run| ratio(run.cpu_ns, run.wall_ns)),
        Column::count("Jain", 4) => of(&|run| run.evenness),
    }
}

/// The same time by the mode that it was spent in, where that was told apart.
fn modes(record: &HttpRecord) -> Table {
    let of_mode = |run: &Run, mode: usize| {
        let ns = run.user_and_system_ns.map_or(0, |both| both[mode]);
        ratio(ns, run.bytes) * 1e9
    };
    table! {
        "CPU per GB by mode, told apart to a clock tick",
        for (load, contestant) in measured(record, &|run| run.user_and_system_ns.is_some()),
        let of = |value: &dyn Fn(&Run) -> f64| samples(record, load, contestant, value);
        Column::key("load") => load.name(),
        Column::key("server") => contestant.name(),
        Column::ms("user", 1).less() => of(&|run| of_mode(run, 0)),
        Column::ms("system", 1).less() => of(&|run| of_mode(run, 1)),
    }
}

/// What the processor counted of the server, for each MB and each request.
fn counted(record: &HttpRecord) -> Vec<Table> {
    let did = record.runs.iter().filter_map(|run| {
        Some(Did {
            name: format!("{}, {}", run.load.name(), run.contestant.name()),
            counted: run.counted?,
            units: vec![run.bytes / 1_000_000, run.requests],
        })
    });
    counters::tables(&["a MB", "a request"], did)
}

/// Each load with each contestant of which there are such runs.
fn measured(record: &HttpRecord, counts: &dyn Fn(&Run) -> bool) -> Vec<(Load, Contestant)> {
    let contestants = record.settings.contestants();
    let loads = record.settings.loads().into_iter();
    let all = loads.flat_map(|load| contestants.iter().map(move |&it| (load, it)));
    let has = |&(load, contestant): &(Load, Contestant)| {
        let mut runs = record.runs.iter();
        runs.any(|run| (run.load, run.contestant) == (load, contestant) && counts(run))
    };
    all.filter(has).collect()
}

/// A value of each run of a contestant, in the order of the repeats.
fn samples(
    record: &HttpRecord,
    load: Load,
    contestant: Contestant,
    value: &dyn Fn(&Run) -> f64,
) -> Vec<f64> {
    let runs = record.runs.iter();
    let runs = runs.filter(|run| (run.load, run.contestant) == (load, contestant));
    runs.map(value).collect()
}

/// Those of the bounds that can be judged.
fn verdicts(record: &HttpRecord) -> Vec<Verdict> {
    use Contestant::{Nginx, Onrush, SendfileLoop};

    let against = |load, other, value: &dyn Fn(&Run) -> f64| {
        let of = |contestant| {
            let runs = record.runs.iter();
            let runs = runs.filter(move |run| (run.load, run.contestant) == (load, contestant));
            runs.map(|run| (run.repeat, value(run))).collect::<Vec<_>>()
        };
        ratios(of(Onrush), of(other))
    };
    let what = |load: Load, what: &str, other: Contestant| {
        let (load, other) = (load.name(), other.name());
        format!("{load}: {what}, onrush / {other}")
    };
    let cost = |load, other, most| {
        let what = what(load, "processor time a byte", other);
        Verdict::at_most(what, against(load, other, &cpu_ns_a_gb), most, 3)
    };
    let requests = |load| {
        let found = against(load, Nginx, &requests_a_second);
        let what = what(load, "requests a second", Nginx);
        Verdict::at_least(what, &found, SMALL_MIN, 3)
    };
    let evenness = samples(record, Load::Parallel, Onrush, &|run| run.evenness);
    let verdicts = [
        cost(Load::One, SendfileLoop, ONE_MAX),
        cost(Load::Parallel, Nginx, PARALLEL_MAX),
        requests(Load::Small),
        Verdict::at_least(
            "many large: evenness (Jain) of onrush",
            &evenness,
            EVENNESS_MIN,
            4,
        ),
        cost(Load::Ts, Nginx, TS_MAX),
        requests(Load::Ts),
        cost(Load::Cmaf, Nginx, CMAF_MAX),
        requests(Load::Cmaf),
        cost(Load::OneTls, Nginx, TLS_MAX),
        cost(Load::TsTls, Nginx, TLS_MAX),
        cost(Load::CmafTls, Nginx, TLS_MAX),
    ];
    let is_judged = |verdict: &Verdict| verdict.outcome != Outcome::Void;
    verdicts.into_iter().filter(is_judged).collect()
}

/// A picture of something: title, axis, unit, and what it is of a run.
type Shown = (&'static str, &'static str, Unit, fn(&Run) -> f64);

const COST: Shown = (
    "Processor time of the server",
    "CPU per GB",
    Unit::Nanoseconds,
    cpu_ns_a_gb,
);

/// What each server took, or did, of each load.
fn bars(record: &HttpRecord, file: &str, shown: Shown, loads: &[Load]) -> Drawing {
    let (title, axis, unit, value) = shown;
    let names = loads.iter().map(|load| load.name());
    let mut chart = Chart::bars(title).categories(names).y(axis, unit);
    for contestant in record.settings.contestants() {
        let of = |&load: &Load| Summary::of(samples(record, load, contestant, &value));
        chart = chart.values(contestant.name(), loads.iter().map(of));
    }
    Drawing::new(file, chart)
}

/// Processor time of the server for 10^9 bytes.
fn cpu_ns_a_gb(run: &Run) -> f64 {
    ratio(run.cpu_ns, run.bytes) * 1e9
}

/// Requests answered in a second.
fn requests_a_second(run: &Run) -> f64 {
    ratio(run.requests, run.wall_ns) * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::http::{NAME, Settings};

    fn record(cpu_ns: [u64; 3], requests: [u64; 2]) -> HttpRecord {
        let settings = Settings {
            peer: Some("nginx".to_owned()),
            congestion: None,
            repeats: 1,
            ..Settings::quick()
        };
        let mut record = Record::new(NAME, Environment::here("1", "c"), settings);
        let run = |contestant, load, cpu_ns, requests| Run {
            counted: None,
            contestant,
            load,
            repeat: 0,
            yardstick_ns: 1,
            wall_ns: 1_000_000_000,
            cpu_ns,
            user_and_system_ns: None,
            core_busy_ns: cpu_ns,
            bytes: 1_000_000_000,
            requests,
            evenness: 1.0,
        };
        use Contestant::{Nginx, Onrush, SendfileLoop};
        record.runs = vec![
            run(Onrush, Load::One, cpu_ns[0], 1),
            run(SendfileLoop, Load::One, cpu_ns[2], 1),
            run(Onrush, Load::Parallel, cpu_ns[0], 1),
            run(Nginx, Load::Parallel, cpu_ns[1], 1),
            run(Onrush, Load::Small, 1, requests[0]),
            run(Nginx, Load::Small, 1, requests[1]),
        ];
        record
    }

    #[test]
    fn bounds_are_judged_at_their_edges() {
        let judged = |cpu_ns, requests| {
            let report = report(&record(cpu_ns, requests));
            let verdicts = report.verdicts();
            verdicts
                .map(|it| it.outcome == Outcome::Kept)
                .collect::<Vec<_>>()
        };
        assert_eq!(judged([1050, 1050, 1000], [900, 1000]), [true; 4]);
        assert_eq!(
            judged([1051, 1050, 1000], [899, 1000]),
            [false, false, false, true]
        );
        let mut uneven = record([1; 3], [1; 2]);
        uneven.runs[2].evenness = 0.989;
        assert!(!report(&uneven).passed());
        uneven.runs.clear();
        assert!(report(&uneven).passed(), "what cannot be judged is not");
    }

    #[test]
    fn segments_and_tls_have_bounds_of_their_own() {
        let judged = |load, cpu_ns, requests| {
            let mut record = record([1; 3], [1; 2]);
            record.settings = Settings {
                tls: true,
                ..record.settings.of_films()
            };
            record.runs.truncate(2);
            for (run, (cpu_ns, requests)) in record
                .runs
                .iter_mut()
                .zip([(cpu_ns, requests), (1000, 1000)])
            {
                (run.load, run.cpu_ns, run.requests) = (load, cpu_ns, requests);
                run.user_and_system_ns = Some([cpu_ns, 0]);
            }
            record.runs[1].contestant = Contestant::Nginx;
            report(&record).passed()
        };
        for (load, most, least) in [
            (Load::Ts, 1100, 900),
            (Load::Cmaf, 1300, 900),
            (Load::OneTls, 1100, 0),
            (Load::TsTls, 1100, 0),
            (Load::CmafTls, 1100, 0),
        ] {
            assert!(judged(load, most, least), "{load:?}");
            assert!(!judged(load, most + 1, least), "{load:?}");
            assert!(least == 0 || !judged(load, most, least - 1), "{load:?}");
        }
    }
}
