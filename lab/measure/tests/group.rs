//! Experiments on groups, small: that they come to their end, and that the program at the device
//! made up what was counted.

use onrush_measure::game::{self, WAYS};
use onrush_measure::group::many::Many;
use onrush_measure::group::{self, Change, GroupRun, Load, Run, Settings};
use onrush_testkit::require_root;
use onrush_testkit::testbed::Mode;

#[test]
fn many_groups_are_sent_to_and_others_pass() {
    require_root!();
    let settings = Settings {
        members: Vec::new(),
        many: vec![Many::new(5, 4), Many::new(1, 20)],
        loads: vec![Load::new(1, 100)],
        modes: vec![Mode::Uso],
        sends: 10,
        repeats: 1,
        sliced_bytes: Vec::new(),
        ..Settings::quick()
    };
    let record = group::run(&settings, "test", "onrush-lab bench group", |_| {}).unwrap();
    for many in settings.many {
        let by_program = record.runs.iter().filter_map(|run| match run {
            Run::Many(run) if run.many == many && run.void.is_empty() => Some(run),
            _ => None,
        });
        let mut by_program = by_program.filter(|run| run.way == "kernel");
        let run = by_program.next().expect("one run that counts");
        assert_eq!((run.rounds, run.arrived, run.clones), (10, 200, 200));
    }
    let past = record.runs.iter().filter_map(|run| match run {
        Run::Foreign(run) => Some(run.groups),
        _ => None,
    });
    let past: Vec<_> = past.collect();
    assert!(
        [0, 1, 5].iter().all(|groups| past.contains(groups)),
        "{past:?}"
    );
    assert_eq!(group::report(&record).verdicts().count(), 2);
}

#[test]
fn a_game_is_played_by_every_way() {
    require_root!();
    let settings = game::Settings {
        rates_hz: vec![30],
        players: vec![40],
        players_max: 100,
        ticks: 10,
        repeats: 1,
        ..game::Settings::quick()
    };
    let record = game::run(&settings, "test", "onrush-lab bench game", |_| {}).unwrap();
    for way in WAYS {
        let of_way = record.runs.iter().filter(|run| run.way == way.as_str());
        let rows: Vec<_> = of_way.filter(|run| !run.is_search).collect();
        assert_eq!(rows.len(), 1);
        // Each player was told something in each tick.
        assert!(rows[0].arrived >= 400, "{:?}", rows[0]);
        assert_eq!(rows[0].void, "");
    }
    assert!(record.runs.iter().any(|run| run.is_search));
    assert_eq!(game::report(&record).verdicts().count(), 1);
}

#[test]
fn a_socket_with_the_option_sends_beside_groups() {
    require_root!();
    let settings = Settings {
        // More than a page of addresses takes.
        members: vec![1, 100, 300],
        ways: vec!["kernel".to_owned(), group::SENDGRP.to_owned()],
        changes: vec![Change::None, Change::All],
        loads: vec![Load::new(1, 100), Load::new(8, 1328)],
        sends: 10,
        repeats: 1,
        sliced_bytes: Vec::new(),
        many: Vec::new(),
        ..Settings::default()
    };
    let record = group::run(&settings, "test", "onrush-lab bench group", |_| {}).unwrap();
    for &mode in &settings.modes {
        for &load in &settings.loads {
            for (members, change, calls) in [
                (1, Change::None, 1.0),
                (1, Change::All, 2.0),
                (100, Change::All, 2.0),
                (300, Change::None, 1.0),
                (300, Change::All, 3.0),
            ] {
                let runs = record.runs.iter().filter_map(|run| match run {
                    Run::Group(run) if run.way == group::SENDGRP => Some(run),
                    _ => None,
                });
                let case = (mode, load, members, change);
                let of_case =
                    |run: &&GroupRun| (run.mode, run.load, run.members, run.change) == case;
                let runs: Vec<_> = runs.filter(of_case).collect();
                // More than a device takes at once.
                if mode == Mode::SoftwareGso && load.packets * usize::from(members) > 1000 {
                    assert!(runs.is_empty(), "{runs:?}");
                    continue;
                }
                let run = runs.last().expect("a run");
                assert_eq!(run.void, "", "{runs:?}");
                assert!((run.crossings - calls).abs() < f64::EPSILON, "{run:?}");
                let packets = 10 * u64::from(members) * load.packets as u64;
                assert_eq!(run.arrived, packets, "{run:?}");
            }
        }
    }
    let printed = group::report(&record).to_string();
    assert!(printed.contains("sendgrp"), "{printed}");
}
