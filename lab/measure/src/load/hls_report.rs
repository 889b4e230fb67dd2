//! What a load of players of HLS says of the server: the figures of a table, and the verdict.

use super::hls::{HlsRecord, HlsRun, HlsSettings};
use super::report::{LATE_NS_MAX, Late, failed, judged, known, millis, own, reasons, start_up};
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
        report.add([verdict(settings, run)]);
    }
    report
}

/// What a comparison takes.
fn compared(run: &HlsRun) -> Table {
    table! {
        "Figures", for of in ["players"];
        Column::key("of") => of,
        Column::count("stalls", 0).none() => vec![run.stalls],
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
    let ahead = clock_ahead(run).map_or_else(String::new, |told| format!("; {told}"));
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
            of_all(&run.latency_ns, "behind what is recorded").map(|told| told + &ahead),
        ),
        ("fetched", Some(fetched)),
        ("throughput", Some(together)),
        ("server", server),
        (
            "load generator",
            Some(own(
                ratio(run.own_cpu_ns, run.wall_ns),
                run.generator_late_ns_max,
            )),
        ),
    ])
}

fn bits_a_second(run: &HlsRun) -> f64 {
    ratio(run.bytes_steady * 8, run.wall_ns) * 1e9
}

/// By how much the server's clock is ahead, if it is known to be.
fn clock_ahead(run: &HlsRun) -> Option<String> {
    let ahead = millis(run.clock_ahead_ns_max);
    (run.clock_ahead_ns_max > 0).then(|| {
        format!("the server's clock is ahead of this machine's by {ahead:.1} ms at the least")
    })
}

/// Whether all played. How far behind a channel they are cannot be told by two clocks that differ;
/// who is too far behind by a clock that is ahead is even further.
fn verdict(settings: &HlsSettings, run: &HlsRun) -> Verdict {
    let what = "all played without standing still";
    let (late, failed) = (late(settings, run), failures(settings, run));
    let is_kept = late.is_empty() && failed.is_empty();
    if let Some(ahead) = clock_ahead(run)
        && is_kept
        && settings.latency_ns_max.is_some()
    {
        return Verdict::void(what, format!("{ahead}: set both alike"));
    }
    // Who never sleeps takes all of its processor, whatever it has to do.
    let own_cores = match settings.busy_poll {
        true => 0.0,
        false => ratio(run.own_cpu_ns, run.wall_ns.max(1)),
    };
    judged(what, late, failed, (own_cores, run.generator_late_ns_max))
}

/// What players missed in time.
fn late(settings: &HlsSettings, run: &HlsRun) -> Vec<Late> {
    let p99 = |ns: &[u64]| start_up(ns).map_or(0, |[_, p99, _]| p99);
    let (begun, behind) = (p99(&run.start_up_ns), p99(&run.latency_ns));
    let begun_max = settings.start_up_ns_max.unwrap_or(u64::MAX);
    let behind_max = settings.latency_ns_max.unwrap_or(u64::MAX);
    let still = what_is! {
        run.stalls > 0 => "players stood still {} times", run.stalls;
        run.playing < settings.clients
            => "{} of {} players played at the end", run.playing, settings.clients;
    };
    let begun = what_is! {
        begun > begun_max
            => "1 in 100 players began after more than {:.1} ms; {:.1} ms are allowed",
                millis(begun), millis(begun_max);
    };
    let behind = what_is! {
        behind > behind_max
            => "1 in 100 players was {:.1} ms behind or more; {:.1} ms are allowed",
                millis(behind), millis(behind_max);
    };
    let kinds = [
        (LATE_NS_MAX, still),
        (begun_max / 2, begun),
        (behind_max / 2, behind),
    ];
    let each = |(ns, words): (u64, Vec<String>)| words.into_iter().map(move |it| (ns, it));
    kinds.into_iter().flat_map(each).collect()
}

/// What went wrong otherwise.
fn failures(settings: &HlsSettings, run: &HlsRun) -> Vec<String> {
    let mut failures = what_is! {
        settings.latency_ns_max.is_some() && run.latency_ns.is_empty()
            => "no playlist told when what it names was recorded";
    };
    failures.extend(reasons(&run.failures));
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Outcome;

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

    fn judged(change: impl Fn(&mut HlsSettings, &mut HlsRun)) -> (Outcome, String) {
        let (mut settings, mut run) = good();
        change(&mut settings, &mut run);
        let verdict = verdict(&settings, &run);
        (verdict.outcome, verdict.found)
    }

    #[test]
    fn every_kind_of_trouble_is_told() {
        type Change = fn(&mut HlsSettings, &mut HlsRun);
        let (_, run) = good();
        assert_eq!(judged(|_, _| ()), (Outcome::Kept, String::new()));
        assert!((bits_a_second(&run) - 4e6).abs() < 1e-3);
        let wrong: [(Change, &str); 6] = [
            (|_, r| r.stalls = 3, "stood still 3 times"),
            (|_, r| r.playing = 1, "1 of 2 players"),
            (|s, _| s.start_up_ns_max = Some(4_999_999), "began after"),
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
            let missed = late(&settings, &run).len() + failures(&settings, &run).len();
            let (outcome, found) = judged(change);
            assert_eq!((outcome, missed), (Outcome::Missed, 1), "{found}");
            assert!(found.contains(said), "{found}");
        }
    }

    #[test]
    fn one_player_of_ten_may_not_be_far_behind() {
        let behind = |players: usize, far: usize| {
            judged(|_, run| {
                run.latency_ns = vec![1_000_000_000; players - far];
                run.latency_ns.extend(vec![60_000_000_000; far]);
            })
            .0
        };
        for (players, far, outcome) in [
            (2, 1, Outcome::Missed),
            (10, 1, Outcome::Missed),
            (99, 1, Outcome::Missed),
            (100, 1, Outcome::Kept),
            (150, 2, Outcome::Missed),
            (200, 2, Outcome::Kept),
        ] {
            assert_eq!(behind(players, far), outcome, "{far} of {players}");
        }
    }

    #[test]
    fn a_generator_that_stalls_voids_what_was_late_alone() {
        type Change = fn(&mut HlsSettings, &mut HlsRun);
        let own = |late_ns| move |run: &mut HlsRun| run.generator_late_ns_max = Some(late_ns);
        // What was late, and how late the generator may be itself.
        let late: [(Change, u64); 4] = [
            (|_, run| run.stalls = 3, 100_000_000),
            (|_, run| run.playing = 1, 100_000_000),
            (|_, run| run.start_up_ns[0] = 5_000_001, 2_500_000),
            (|_, run| run.latency_ns[0] += 2_000_000_000, 1_000_000_000),
        ];
        for (change, may_be_ns) in late {
            for (late_ns, outcome) in [(may_be_ns, Outcome::Missed), (may_be_ns + 1, Outcome::Void)]
            {
                let (was, found) = judged(|settings, run| {
                    change(settings, run);
                    own(late_ns)(run);
                });
                assert_eq!(was, outcome, "{found}");
                let is_said = found.contains("ms late itself");
                assert_eq!(is_said, outcome == Outcome::Void, "{found}");
            }
            // Nobody looked, then.
            assert_eq!(judged(change).0, Outcome::Missed);
        }
        let second_late = own(1_000_000_000);
        assert_eq!(judged(|_, run| second_late(run)).0, Outcome::Kept);
        let (outcome, _) = judged(|_, run| {
            (run.stalls, run.failures) = (3, vec![("GET was answered 404".to_owned(), 1)]);
            second_late(run);
        });
        assert_eq!(outcome, Outcome::Missed);
    }

    #[test]
    fn a_busy_generator_is_to_blame_unless_it_never_sleeps() {
        for (busy_poll, outcome) in [(false, Outcome::Void), (true, Outcome::Missed)] {
            let (was, found) = judged(|settings, run| {
                settings.busy_poll = busy_poll;
                (run.stalls, run.own_cpu_ns) = (3, run.wall_ns);
                run.generator_late_ns_max = Some(0);
            });
            assert_eq!(was, outcome, "{found}");
            let is_said = found.contains("took 100 % of its processor");
            assert_eq!(is_said, outcome == Outcome::Void, "{found}");
        }
    }

    #[test]
    fn how_far_behind_is_not_judged_by_two_clocks() {
        let ahead = |settings: &mut HlsSettings, run: &mut HlsRun| {
            run.latency_ns = vec![0; 2];
            run.clock_ahead_ns_max = 1_800_000_000;
            settings.latency_ns_max = Some(1);
        };
        let (outcome, found) = judged(ahead);
        assert_eq!(outcome, Outcome::Void);
        assert!(
            found.contains("ahead of this machine's by 1800.0 ms"),
            "{found}"
        );
        assert!(!found.contains("no playlist told"), "{found}");
        // What is missed all the same is missed, and who asks for nothing is told in the table.
        let (outcome, found) = judged(|settings, run| {
            ahead(settings, run);
            run.stalls = 1;
        });
        assert_eq!(
            (outcome, found.contains("still 1 times")),
            (Outcome::Missed, true)
        );
        let (outcome, _) = judged(|settings, run| {
            ahead(settings, run);
            settings.latency_ns_max = None;
        });
        assert_eq!(outcome, Outcome::Kept);
        let (mut settings, mut run) = good();
        ahead(&mut settings, &mut run);
        let told: Vec<_> = rows(&settings, &run).collect();
        let (_, edge) = told.iter().find(|(name, _)| name == "live edge").unwrap();
        assert!(edge.ends_with("by 1800.0 ms at the least"), "{edge}");
    }

    #[test]
    fn a_record_from_before_is_read() {
        let (_, run) = good();
        let mut old = serde_json::to_value(&run).unwrap();
        for name in ["generator_late_ns_max", "clock_ahead_ns_max"] {
            old.as_object_mut().unwrap().remove(name).expect(name);
        }
        assert_eq!(serde_json::from_value::<HlsRun>(old).unwrap(), run);
    }
}
