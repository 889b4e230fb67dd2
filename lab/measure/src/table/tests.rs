//! Tables on a terminal, their figures, and verdicts.

use super::*;

fn table() -> Table {
    let mut table = Table::new(
        "What a send costs",
        [
            Column::key("way"),
            Column::key("members"),
            Column::us("a send", 1).with_range().less(),
            Column::number("rate", Unit::BytesPerSecond).more(),
            Column::percent("part", 0),
            Column::text("paper"),
        ],
    );
    let samples = vec![2000.0, 1000.0, 3000.0];
    let row = table.row([
        "kernel".into(),
        "480".into(),
        samples.into(),
        vec![1.25e9].into(),
        0.5.into(),
        "4.52".into(),
    ]);
    row.note("It is new.");
    table.row(["loop".into(), "1".into(), Cell::Void]);
    table.note("The paper had a Pentium II.");
    table
}

#[test]
fn a_table_is_aligned_and_has_its_notes_below() {
    let told = "What a send costs\n\
                way     members      a send, us       rate  part, %  paper\n\
                kernel  480      2.0 (1.0..3.0)  1.25 GB/s       50  4.52\n\
                \u{20}   It is new.\n\
                loop    1                  void          -        -\n\
                The paper had a Pentium II.\n";
    assert_eq!(table().to_string(), told);
}

#[test]
fn figures_are_samples_by_row_and_column() {
    let mut report = Report::new("");
    let folded = vec![
        table().prefixed("uso").into(),
        table().prefixed("uso").into(),
    ];
    report.add([
        Block::from(table()),
        Block::Folded("more".to_owned(), folded),
    ]);
    let figures = report.figures();
    let told: Vec<_> = figures
        .iter()
        .map(|figure| (figure.name.as_str(), figure.better, figure.samples.len()))
        .collect();
    assert_eq!(
        told,
        [
            ("kernel, members 480: a send", Better::Less, 3),
            ("kernel, members 480: rate", Better::More, 1),
            ("uso, kernel, members 480: a send", Better::Less, 6),
            ("uso, kernel, members 480: rate", Better::More, 2),
        ]
    );
}

#[test]
fn a_bound_is_kept_missed_or_void() {
    let told = |verdict: Verdict| (verdict.to_string(), verdict.outcome);
    assert_eq!(
        told(Verdict::at_most("a / b", [1.0, 1.2, 1.3], 1.2, 2)),
        (
            "kept: a / b: 1.20 (1.00..1.30), bound at most 1.2".to_owned(),
            Outcome::Kept
        )
    );
    assert_eq!(
        told(Verdict::at_least("a", [0.9], 0.95, 2)),
        (
            "MISSED: a: 0.90, bound at least 0.95".to_owned(),
            Outcome::Missed
        )
    );
    let void = Verdict::at_most("a", [0.0; 0], 1.0, 2);
    assert_eq!(void.to_string(), "VOID: a: nothing to compare");
    let mut report = Report::new("");
    report.add([Verdict::new("x", "", true)]);
    assert!(report.passed());
    report.add([void]);
    assert!(!report.passed());
}

#[test]
fn long_paragraphs_are_broken_and_stand_apart_from_tables() {
    let mut report = Report::new("");
    report.add([table()]);
    report.text("word ".repeat(30));
    report.warn(["odd"]);
    let told = report.to_string();
    let after = told.split_once("Pentium II.\n").unwrap().1;
    let lines: Vec<_> = after.lines().collect();
    assert_eq!((lines[0], lines.len(), lines[3]), ("", 4, "warning: odd"));
    assert!(lines.iter().all(|line| line.len() <= 100), "{lines:?}");
}
