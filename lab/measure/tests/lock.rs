//! The lock experiment, small: that it runs, counts, and survives its file. Nothing here looks at
//! times.

use onrush_measure::experiment::Record;
use onrush_measure::lock::{self, LockRecord, Memory, Run, Settings, Way};

#[test]
fn every_way_and_memory_has_its_turn() {
    let settings = Settings {
        sizes_bytes: vec![4 << 10, 64 << 10],
        repeats: 2,
        areas: vec![10, 100],
        kept: vec![10],
        left_out: Vec::new(),
    };
    let mut reported = Vec::new();
    let record = lock::run(&settings, "test", "onrush-lab bench lock", |p| {
        reported.push(p)
    })
    .unwrap();
    assert_eq!(reported, [0.5, 1.0]);
    for memory in Memory::ALL {
        for way in Way::ALL {
            let of = |run: &&Run| {
                matches!(run, Run::Cost { memory: m, way: w, lock_ns, unlock_ns, .. }
                    if (*m, *w) == (memory, way) && *lock_ns > 0.0 && *unlock_ns > 0.0)
            };
            let is_asked = way != Way::Miss || memory == Memory::PrivateAgain;
            let turns = if is_asked { 4 } else { 0 };
            let name = (memory.name(), way.name());
            assert_eq!(record.runs.iter().filter(of).count(), turns, "{name:?}");
        }
    }
    let count = |of: fn(&&Run) -> bool| record.runs.iter().filter(of).count();
    assert_eq!(count(|run| matches!(run, Run::Many { .. })), 8);
    assert_eq!(count(|run| matches!(run, Run::Hit { .. })), 2);

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
    assert_eq!(report.verdicts().count(), 8 + 4 + 1);
    let mut figures = report
        .drawings()
        .filter(|it| it.file.starts_with("figure-"));
    assert!(figures.all(|it| it.chart.render().unwrap().contains("with mlock")));
}
