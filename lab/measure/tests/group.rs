//! Experiments on groups, small: that they come to their end, and that the program at the device
//! made up what was counted.

use onrush_measure::game::{self, WAYS};
use onrush_measure::group::many::Many;
use onrush_measure::group::{self, Load, Run, Settings};
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
