//! What is shown of loads: of viewers and downloading clients, of servers under them, and of
//! relays.

use std::time::Duration;

use super::legacy::{charts, rows_of_names, words};
use crate::capacity::CapacityRecord;
use crate::capacity::host::{self, Host};
use crate::capacity::report::Row;
use crate::capacity::soak::{self, SoakRecord};
use crate::histogram::Histogram;
use crate::load::http::HttpRecord;
use crate::load::{LoadRecord, Slice, http_report, report as load_report};
use crate::plot::{Chart, Drawing, Unit};
use crate::relay::RelayRecord;
use crate::stats::{Summary, ratio};
use crate::table::{Block, Verdict};

/// What viewers saw: the verdict, packets by lateness, and the table.
pub(super) fn of_load(record: &LoadRecord) -> Vec<Block> {
    let mut blocks = Vec::new();
    for run in &record.runs {
        let report = load_report::Report::of(&record.settings, run);
        blocks.push(verdict("on time, and nothing lost", &report.missed));
        let chart = load_report::chart(&record.settings, run);
        blocks.extend(charts([Drawing::new("lateness.svg", chart)]));
        let rows = load_report::rows(&record.settings, run, &report);
        blocks.push(rows_of_names("What viewers saw", rows));
    }
    blocks
}

/// What downloading clients saw: the verdict, their shares, and the table.
pub(super) fn of_load_http(record: &HttpRecord) -> Vec<Block> {
    let mut blocks = Vec::new();
    for run in &record.runs {
        let report = http_report::HttpReport::of(&record.settings, run);
        blocks.push(verdict("all that was asked for came", &report.missed));
        blocks.extend(charts([Drawing::new(
            "shares.svg",
            http_report::http_chart(run),
        )]));
        let rows = http_report::http_rows(&record.settings, run, &report);
        blocks.push(rows_of_names("What clients saw", rows));
    }
    blocks
}

/// How many viewers each server held, and at what cost.
pub(super) fn of_capacity(record: &CapacityRecord) -> Vec<Block> {
    let mut blocks = charts(record.drawings());
    let rows = record.rows();
    let cells = rows.iter().flat_map(|row| {
        let Some(held) = row.held else {
            let mut cells = vec![row.name(), "none".to_owned()];
            cells.resize(HEAD_OF_CAPACITY.len(), String::new());
            return std::iter::once(cells).chain(why_missed(record, row));
        };
        let cost = record.cost(held);
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let cells = vec![
            row.name(),
            held.clients.to_string(),
            format!("{:.1} %", cost.server_cores * 100.0),
            format!("{:.0}", cost.packet_ns),
            percent(cost.core_busy),
            held.account.stolen_part().map_or_else(String::new, percent),
            (cost.memory_bytes >> 20).to_string(),
            millis(&held.load.lateness, 0.999),
        ];
        std::iter::once(cells).chain(why_missed(record, row))
    });
    blocks.push(words(
        "The most viewers that were held on time, and what they cost",
        &HEAD_OF_CAPACITY,
        cells.collect(),
    ));
    let verdicts = record.jump_verdicts();
    let verdicts = verdicts.iter().map(|verdict| verdict.in_words());
    blocks.extend(verdicts.chain(record.repeats()).map(Block::Text));
    blocks
}

const HEAD_OF_CAPACITY: [&str; 8] = [
    "server",
    "viewers held",
    "its CPU",
    "ns a packet",
    "core busy",
    "the host took",
    "its memory, MiB",
    "late, 999 of 1000, ms",
];

/// Why the next larger number was not held: a note below its row.
fn why_missed(record: &CapacityRecord, row: &Row<'_>) -> Option<Vec<String>> {
    let missed = row.missed?;
    let reasons = record.why_missed(missed);
    Some(vec![format!("With {}: {reasons}", missed.clients)])
}

/// A long time, slice by slice.
pub(super) fn of_soak(record: &SoakRecord) -> Vec<Block> {
    let mut blocks = Vec::new();
    for run in &record.runs {
        let missed = run.missed(&record.settings);
        let kept = "sent is what was sunk, nothing grows, nothing gets later";
        blocks.push(verdict(kept, &missed));
        if let Some(trends) = run.trends() {
            blocks.push(Block::Text(format!("Memory {}.", trends.memory_in_words())));
            blocks.push(Block::Text(format!(
                "Lateness: {}.",
                trends.lateness_in_words()
            )));
        }
        let mut drawings = vec![
            over_time(
                run,
                ("lateness.svg", "How late 999 packets in 1000 were at most"),
                ("packets", "ms"),
                |slice| slice.lateness.p999_ns.map(ns_to_ms),
            ),
            over_time(
                run,
                ("memory.svg", "What the server held beside packets"),
                ("server", "MiB"),
                |slice| {
                    let memory = slice.memory?;
                    let rest = memory.resident_bytes.saturating_sub(memory.arena_bytes);
                    Some(ratio(rest, 1 << 20))
                },
            ),
        ];
        if let Some(host) = Host::of(run) {
            blocks.push(Block::Text(format!("Processor: {}.", host.in_words())));
            drawings.push(over_time(
                run,
                ("packet.svg", "What a packet cost the threads that send"),
                ("server", "ns a packet"),
                host::packet_ns,
            ));
            drawings.push(over_time(
                run,
                ("host.svg", "What the host took of the server's processor"),
                ("host", "%"),
                |slice| Some(host::stolen_part(slice)? * 100.0),
            ));
        }
        blocks.extend(charts(drawings));
    }
    blocks
}

/// A picture of something over the time of a soak: its file and title, what has it and its unit,
/// and its value in a slice.
fn over_time(
    run: &soak::Run,
    (file, title): (&str, &str),
    (name, unit): (&str, &str),
    value: impl Fn(&Slice) -> Option<f64>,
) -> Drawing {
    let minutes = |slice: &Slice| ratio(slice.end_ns, 60_000_000_000);
    let slices = run.load.slices.iter();
    let points = slices.filter_map(|slice| Some((minutes(slice), value(slice)?)));
    let chart = Chart::lines(title)
        .x("minutes", Unit::Count)
        .y(unit, Unit::Count)
        .series(name, points);
    Drawing::new(file, chart)
}

/// What relaying to so many cost, case by case.
pub(super) fn of_relay(record: &RelayRecord) -> Vec<Block> {
    let row = |(number, case): (usize, &crate::relay::Case)| {
        let runs: Vec<_> = record.runs.iter().filter(|r| r.case == number).collect();
        let held = runs.iter().filter(|r| r.faults(case).is_empty()).count();
        let busy_ns: Vec<_> = runs.iter().map(|run| run.busy_ns_a_packet()).collect();
        let trains: Vec<_> = runs
            .iter()
            .map(|run| ratio(run.received_packets, run.trains.max(1)))
            .collect();
        let mut lateness = Histogram::default();
        for (late_ns, count) in runs.iter().flat_map(|run| run.lateness.slots()) {
            lateness.count(late_ns, count);
        }
        vec![
            case.told(),
            format!("{held} of {}", runs.len()),
            Summary::of(&busy_ns).map_or_else(String::new, |summary| summary.told(0)),
            Summary::of(&trains).map_or_else(String::new, |summary| summary.told(1)),
            millis(&lateness, 0.5),
            millis(&lateness, 0.999),
        ]
    };
    let head = [
        "way and receivers",
        "runs held",
        "processor's ns a packet",
        "packets a train",
        "late, half, ms",
        "late, 999 of 1000, ms",
    ];
    let rows = record.settings.cases.iter().enumerate().map(row).collect();
    vec![words("One stream to many", &head, rows)]
}

fn verdict(kept: &str, missed: &[String]) -> Block {
    Verdict::unless(kept, missed).into()
}

fn millis(lateness: &Histogram, part: f64) -> String {
    let ns = lateness.quantile_ns(part);
    ns.map_or_else(String::new, |ns| format!("{:.1}", ns_to_ms(ns)))
}

fn ns_to_ms(ns: i64) -> f64 {
    let ms = Duration::from_nanos(ns.unsigned_abs()).as_secs_f64() * 1e3;
    if ns < 0 { -ms } else { ms }
}
