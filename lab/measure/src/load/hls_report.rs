//! What a load of players of HLS says of the server: the figures of a table, and the verdict.

use super::hls::{HlsRecord, HlsRun, HlsSettings};
use super::report::{failed, known, millis, own, reasons, start_up};
use crate::error::what_is;
use crate::plot::Unit;
use crate::stats::ratio;
use crate::table::{Block, Column, Report, Table, Verdict, table};

/// What a record says.
#[must_use]
pub fn hls_report(record: &HlsRecord) -> Report {
    let settings = &record.settings;
    let mut report = Report::new("What players of HLS saw");
    for run in &record.runs {
        report.add([Table::of_names("What players saw", rows(settings, run))]);
        report.add([Block::Folded(
            "Figures".to_owned(),
            vec![compared(run).into()],
        )]);
        report.add([Verdict::unless(
            "all played without standing still",
            &missed(settings, run),
        )]);
    }
    report
}

/// What a comparison takes.
fn compared(run: &HlsRun) -> Table {
    table! {
        "Figures", for of in ["players"];
        Column::key("of") => of,
        Column::count("stalls", 0).less() => vec![run.stalls],
        Column::ms("start-up", 1).less() => run.start_up_ns.clone(),
        Column::ms("behind the live edge", 1).less() => run.latency_ns.clone(),
        Column::number("together", Unit::BitsPerSecond).more() => vec![bits_a_second(run)],
    }
}

/// The table of a run: names and values, for people.
fn rows(settings: &HlsSettings, run: &HlsRun) -> impl Iterator<Item = (String, String)> {
    let players = format!(
        "{} wanted, {} playing at the end; {} visits, {} failed",
        settings.clients,
        run.playing,
        run.visits,
        failed(&run.failures)
    );
    let stalls = format!(
        "{} in {} visits, {:.1} s together",
        run.stalls,
        run.stalled_visits,
        millis(run.stalled_ns) / 1000.0
    );
    let of_all = |ns: &[u64], what: &str| {
        let [p50, p99, max] = start_up(ns)?.map(millis);
        Some(format!(
            "p50 {p50:.1}, p99 {p99:.1}, max {max:.1} ms {what}"
        ))
    };
    let fetched = format!(
        "{} requests: {} segments, {} parts, {:.1} MB",
        run.requests,
        run.segments,
        run.parts,
        ratio(run.bytes, 1_000_000)
    );
    let together = format!("{:.1} Mbit a second together", bits_a_second(run) / 1e6);
    let server = run.server.map(|usage| {
        let percent = ratio(usage.cpu_ns, run.wall_ns) * 100.0;
        let mib = usage.memory_bytes >> 20;
        format!("{percent:.1} % of a processor, {mib} MiB of memory")
    });
    known([
        ("players", Some(players)),
        ("stalls", Some(stalls)),
        (
            "start-up",
            of_all(&run.start_up_ns, "after the first request"),
        ),
        (
            "live edge",
            of_all(&run.latency_ns, "behind what is recorded"),
        ),
        ("fetched", Some(fetched)),
        ("throughput", Some(together)),
        ("server", server),
        (
            "load generator",
            Some(own(ratio(run.own_cpu_ns, run.wall_ns))),
        ),
    ])
}

fn bits_a_second(run: &HlsRun) -> f64 {
    ratio(run.bytes_steady * 8, run.wall_ns) * 1e9
}

fn missed(settings: &HlsSettings, run: &HlsRun) -> Vec<String> {
    let p99 = |ns: &[u64]| start_up(ns).map_or(0, |[_, p99, _]| p99);
    let (begun, behind) = (p99(&run.start_up_ns), p99(&run.latency_ns));
    let begun_max = settings.start_up_ns_max.unwrap_or(u64::MAX);
    let behind_max = settings.latency_ns_max.unwrap_or(u64::MAX);
    let mut missed = what_is! {
        run.stalls > 0 => "players stood still {} times", run.stalls;
        run.playing < settings.clients
            => "{} of {} players played at the end", run.playing, settings.clients;
        begun > begun_max
            => "1 in 100 players began after more than {:.1} ms; {:.1} ms are allowed",
                millis(begun), millis(begun_max);
        behind > behind_max
            => "1 in 100 players was {:.1} ms behind or more; {:.1} ms are allowed",
                millis(behind), millis(behind_max);
        settings.latency_ns_max.is_some() && run.latency_ns.is_empty()
            => "no playlist told when what it names was recorded";
    };
    missed.extend(reasons(&run.failures));
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> (HlsSettings, HlsRun) {
        let settings = HlsSettings {
            start_up_ns_max: Some(5_000_000),
            latency_ns_max: Some(2_000_000_000),
            ..HlsSettings::new(vec!["hls://h/x".to_owned()], 2)
        };
        let run = HlsRun {
            wall_ns: 2_000_000_000,
            visits: 2,
            playing: 2,
            start_up_ns: vec![3_000_000, 5_000_000],
            latency_ns: vec![1_000_000_000, 2_000_000_000],
            bytes_steady: 1_000_000,
            ..HlsRun::default()
        };
        (settings, run)
    }

    #[test]
    fn every_kind_of_trouble_is_told() {
        type Change = fn(&mut HlsSettings, &mut HlsRun);
        let (settings, run) = good();
        assert_eq!(missed(&settings, &run), [""; 0]);
        assert!((bits_a_second(&run) - 4e6).abs() < 1e-3);
        let wrong: [(Change, &str); 6] = [
            (|_, r| r.stalls = 3, "stood still 3 times"),
            (|_, r| r.playing = 1, "1 of 2 players"),
            (|s, _| s.start_up_ns_max = Some(2_999_999), "began after"),
            (|s, _| s.latency_ns_max = Some(1), "ms behind"),
            (|_, r| r.latency_ns.clear(), "no playlist told"),
            (
                |_, r| r.failures.push(("GET was answered 404".to_owned(), 3)),
                "3 times: GET was answered 404",
            ),
        ];
        for (change, said) in wrong {
            let (mut settings, mut run) = good();
            change(&mut settings, &mut run);
            let missed = missed(&settings, &run);
            assert_eq!(missed.len(), 1, "{missed:?}");
            assert!(missed[0].contains(said), "{missed:?}");
        }
    }
}
