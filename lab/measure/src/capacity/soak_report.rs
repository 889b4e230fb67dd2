//! What a soak's record says: slice by slice, and what only time shows.

use super::host::{Host, packet_ns, stolen_part};
use super::soak::{Run, SoakRecord};
use crate::load::{Slice, report as load_report};
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{ratio, to_f64};
use crate::table::{Block, Column, Report, Table, table};

/// What a record says.
#[must_use]
pub fn soak_report(record: &SoakRecord) -> Report {
    let mut report = Report::new("A long time with many viewers");
    for run in &record.runs {
        report.add(drawings(run));
        report.add([slices_told(run)]);
        report.add(needed_told(run));
        report.add([Block::Folded(
            "Figures".to_owned(),
            vec![compared(run).into()],
        )]);
        report.add(words(run).into_iter().map(Block::Text));
        let load = record.settings.load(Vec::new(), 0);
        let buffer = load_report::buffer(&load, &run.load);
        report.add(buffer.map(|words| Block::Text(format!("buffers {words}"))));
        report.add([run.verdict(&record.settings)]);
    }
    report
}

/// A row for each slice; with what a packet cost and the host took, if that is in the record.
fn slices_told(run: &Run) -> Table {
    let mib = |heading| Column::number(heading, Unit::Bytes).fixed("MiB", 1_048_576.0, 0);
    let kib = |heading| Column::number(heading, Unit::Bytes).fixed("KiB", 1024.0, 0);
    let slices = &run.load.slices;
    let begins_ns = [0]
        .into_iter()
        .chain(slices.iter().map(|slice| slice.end_ns));
    table! {
        "Slice by slice",
        for (slice, begin_ns) in slices.iter().zip(begins_ns),
        let usage = slice.server.unwrap_or_default(),
        let memory = slice.memory.unwrap_or_default();
        Column::count("s", 0) => slice.end_ns / 1_000_000_000,
        Column::count("packets", 0) => slice.packets,
        Column::ms("p99.9", 1) => slice.lateness.p999_ns,
        mib("memory") => usage.memory_bytes,
        mib("packets") => memory.arena_bytes,
        kib("heap") => memory.heap_bytes,
        kib("tables") => memory.page_table_bytes,
        Column::count("files", 0) => memory.descriptors,
        Column::percent("CPU", 1) => ratio(usage.cpu_ns, (slice.end_ns - begin_ns).max(1)),
        Column::ns("a packet", 0) => packet_ns(slice),
        Column::percent("host took", 1) => stolen_part(slice),
    }
}

/// A row for each slice: what viewers would have had to buffer whose visits ended in it. `None` if
/// that was not followed.
fn needed_told(run: &Run) -> Option<Table> {
    let slices = run.load.slices.iter();
    let known = slices.filter_map(|slice| Some((slice.end_ns, slice.needed?)));
    let table = table! {
        "What viewers would have had to buffer whose visits ended in a slice",
        for (end_ns, needed) in known;
        Column::count("s", 0) => end_ns / 1_000_000_000,
        Column::count("viewers", 0) => needed.viewers,
        Column::ms("half", 1) => needed.p50_ns,
        Column::ms("99 of 100", 1) => needed.p99_ns,
        Column::ms("all", 1) => needed.max_ns,
        Column::count("due and not come", 0) => needed.missing,
    };
    (!table.rows.is_empty()).then_some(table)
}

/// What a comparison takes: a slice is a sample.
fn compared(run: &Run) -> Table {
    let slices = run.load.slices.iter();
    let cpu_ns = slices.clone().filter(|slice| slice.packets > 0);
    let cpu_ns = cpu_ns.filter_map(|slice| Some(ratio(slice.server?.cpu_ns, slice.packets)));
    let late_ns = slices.filter_map(|slice| slice.lateness.p999_ns);
    table! {
        "Figures",
        for (of, cpu_ns, late_ns) in [("slices", cpu_ns.collect::<Vec<_>>(), late_ns)];
        Column::key("of") => of,
        Column::ns("CPU per packet", 0).less() => cpu_ns,
        Column::ms("late, 999 of 1000", 1).less() => late_ns.collect::<Vec<_>>(),
    }
}

/// What viewers did, and what only time shows.
fn words(run: &Run) -> Vec<String> {
    let acts = run.load.acts;
    let mut words = vec![format!(
        "{} visits, {} jumps, {} pauses, {} left; {} films removed, {} added; sent {} packets, \
         sunk {}",
        run.load.visits,
        acts.seeks,
        acts.pauses,
        acts.leaves,
        run.films_removed,
        run.films_replaced,
        run.packets_sent.unwrap_or(0),
        run.load.packets_sunk.unwrap_or(0),
    )];
    let joined = run.joined.filter(|&joined| joined >= 0.01);
    words.extend(joined.map(|joined| {
        let percent = joined * 100.0;
        format!(
            "{percent:.1} % of the bursts left early, joined to the one before, because the server \
             was behind"
        )
    }));
    if let Some(trends) = run.trends() {
        let from_s = trends.from_ns / 1_000_000_000;
        let flat = if trends.memory_leaks() { "" } else { "flat: " };
        let memory = trends.memory_in_words();
        words.push(format!(
            "memory, after {from_s} s of warm-up: {flat}{memory}"
        ));
        let steady = match (trends.gets_later(), trends.lateness_grows()) {
            (true, _) => "",
            (false, true) => "harmless: ",
            (false, false) => "no trend: ",
        };
        let lateness = trends.lateness_in_words();
        words.push(format!("lateness, after {from_s} s: {steady}{lateness}"));
    }
    let waited = run.start_up.and_then(|start_up| start_up.waited_ns);
    words.extend(waited.map(|[p50, p99, max]| {
        let [p50, p99, max] = [p50, p99, max].map(|ns| ratio(ns, 1_000_000));
        format!("start-up: p50 {p50:.1}, p99 {p99:.1}, max {max:.1} ms to the first packet")
    }));
    let host = Host::of(&run.load.slices);
    words.extend(host.map(|host| format!("processor: {}", host.in_words())));
    let failures = run.load.failures.iter();
    words.extend(failures.map(|(reason, n)| format!("{n} viewers of replaced films: {reason}")));
    words
}

/// What changes over the time, and the host's part in it if it was looked at.
fn drawings(run: &Run) -> Vec<Drawing> {
    let over_time = |file: &str, title: &str, unit: &str, value: fn(&Slice) -> Option<f64>| {
        let minutes = |slice: &Slice| ratio(slice.end_ns, 60_000_000_000);
        let slices = run.load.slices.iter();
        let points = slices.filter_map(|slice| Some((minutes(slice), value(slice)?)));
        let chart = Chart::lines(title)
            .x("minutes", Unit::Count)
            .y(unit, Unit::Count)
            .series("server", points);
        Drawing::new(file, chart)
    };
    let mut drawings = vec![
        over_time(
            "lateness.svg",
            "How late 999 packets in 1000 were at most",
            "ms",
            |slice| Some(to_f64(slice.lateness.p999_ns?) / 1e6),
        ),
        over_time(
            "memory.svg",
            "What the server held beside packets",
            "MiB",
            |slice| {
                let memory = slice.memory?;
                let rest = memory.resident_bytes.saturating_sub(memory.arena_bytes);
                Some(ratio(rest, 1 << 20))
            },
        ),
    ];
    if Host::of(&run.load.slices).is_some() {
        drawings.push(over_time(
            "packet.svg",
            "What a packet cost the threads that send",
            "ns a packet",
            packet_ns,
        ));
        drawings.push(over_time(
            "host.svg",
            "What the host took of the server's processor",
            "%",
            |slice| Some(stolen_part(slice)? * 100.0),
        ));
    }
    drawings
}
