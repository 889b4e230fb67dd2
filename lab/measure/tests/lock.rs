//! The lock experiment, small: that it runs, counts, and survives its file. Nothing here looks at
//! times.

use std::process::Command;

use onrush_measure::experiment::Record;
use onrush_measure::lock::caches::{self, Keeper};
use onrush_measure::lock::reliability::{self, Task};
use onrush_measure::lock::{self, LockRecord, Memory, Run, Settings, Way};

/// Says that this is the other process, and what it attaches.
const WORKER: &str = "ONRUSH_BENCH_LOCK_WORKER";

#[test]
fn every_way_and_memory_has_its_turn() {
    if let Ok(address) = std::env::var(WORKER) {
        return reliability::work(&address, Task::Hold, 0, || ()).unwrap();
    }
    let program = std::env::current_exe().unwrap();
    let worker = |address: &str, task: Task, _seed: u64| {
        assert_eq!(task, Task::Hold);
        let mut command = Command::new(&program);
        command.args(["--exact", "every_way_and_memory_has_its_turn"]);
        command.env(WORKER, address);
        command
    };
    let settings = Settings {
        sizes_bytes: vec![4 << 10, 64 << 10],
        repeats: 2,
        areas: vec![10, 100],
        apart: vec![10],
        kept: vec![10],
        left_out: Vec::new(),
    };
    let mut reported = Vec::new();
    let command = "onrush-lab bench lock";
    let record = lock::run(&settings, "test", command, Some(&worker), |p| {
        reported.push(p);
    });
    let record = record.unwrap();
    assert_eq!(reported, [0.5, 1.0]);
    for memory in Memory::ALL {
        for way in Way::ALL {
            let of = |run: &&Run| {
                matches!(run, Run::Cost { memory: m, way: w, lock_ns, unlock_ns, .. }
                    if (*m, *w) == (memory, way) && *lock_ns > 0.0 && *unlock_ns > 0.0)
            };
            let is_sysv = !matches!(memory, Memory::PrivateFirst | Memory::PrivateAgain);
            let is_asked = match way {
                Way::Miss => memory == Memory::PrivateAgain,
                Way::ShmLock => is_sysv,
                _ => true,
            };
            let turns = if is_asked { 4 } else { 0 };
            let name = (memory.name(), way.name());
            assert_eq!(record.runs.iter().filter(of).count(), turns, "{name:?}");
        }
    }
    let count = |of: fn(&&Run) -> bool| record.runs.iter().filter(of).count();
    assert_eq!(count(|run| matches!(run, Run::Many { .. })), 8);
    assert_eq!(count(|run| matches!(run, Run::Hit { .. })), 2);
    // First and again.
    assert_eq!(count(|run| matches!(run, Run::Apart { .. })), 4);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lock.json");
    record.write(&file).unwrap();
    let back: LockRecord = Record::read(&file, lock::NAME).unwrap();
    // Not the times: the last digit of some is another.
    assert_eq!(
        (&back.settings, back.runs.len()),
        (&record.settings, record.runs.len())
    );
    // Two bounds for each memory, four for the crowd, one for the hits.
    let report = lock::report(&back);
    assert_eq!(report.verdicts().count(), 10 + 4 + 1);
    let mut figures = report
        .drawings()
        .filter(|it| it.file.starts_with("figure-"));
    assert!(figures.all(|it| it.chart.render().unwrap().contains("with mlock")));
}

#[test]
fn caches_are_asked_and_ours_notice_what_changes() {
    let settings = caches::Settings {
        sizes_bytes: vec![4 << 10, 64 << 10],
        uses: vec![1, 10],
        requests: 20,
        kept: vec![10, 100],
        hits: 1000,
        repeats: 2,
        ..caches::Settings::quick()
    };
    let record = caches::run(&settings, "test", "onrush-lab bench lock --caches", |_| {});
    let record = record.unwrap();
    let has_ucx = record.settings.left_out.is_empty();
    for keeper in Keeper::ALL
        .into_iter()
        .filter(|&it| it != Keeper::Ucx || has_ucx)
    {
        let uses = record.runs.iter().filter_map(|run| match run {
            caches::Run::Use {
                keeper: it,
                uses,
                registrations,
                use_ns,
                ..
            } if *it == keeper => {
                assert!(*use_ns > 0.0);
                Some((*uses, *registrations))
            }
            _ => None,
        });
        let uses: Vec<_> = uses.collect();
        assert_eq!(uses.len(), 8, "{keeper}");
        for (uses, registrations) in uses {
            // Each mapping is registered once, or for each use.
            let expected = match keeper {
                Keeper::Nobody => f64::from(uses),
                Keeper::Watched | Keeper::Ucx => 1.0,
                // Memory that is given back is the next mapping's, and still registered.
                Keeper::Sealed => registrations.min(1.0),
            };
            assert!(
                (registrations - expected).abs() < 1e-9,
                "{keeper}: {registrations}"
            );
        }
    }
    let changes = record.runs.iter().filter_map(|run| match run {
        caches::Run::Change {
            keeper: Keeper::Watched,
            how,
            is_stale,
        } => Some((how, *is_stale)),
        _ => None,
    });
    let changes: Vec<_> = changes.collect();
    assert_eq!(changes.len(), 4);
    assert!(changes.iter().all(|(_, is_stale)| !is_stale), "{changes:?}");
    assert!(caches::report(&record).passed());
}
