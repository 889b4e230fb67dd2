//! What is read off runs.

use onrush_wire::pace::schedule::jain;

use super::{Cell, Run, ScanRecord, Set, State};
use crate::cue::Contestant;
use crate::stats::{median, ratio};
use crate::table::ratios;

/// What is compared of runs.
pub(super) type Value = fn(&Run) -> Option<f64>;

pub(super) fn of_cell(record: &ScanRecord, cell: Cell) -> impl Iterator<Item = &Run> {
    let good = record.runs.iter().filter(|run| run.void.is_none());
    good.filter(move |run| run.cell == cell)
}

pub(super) fn samples(record: &ScanRecord, cell: &Cell, value: Value) -> Vec<f64> {
    of_cell(record, *cell).filter_map(value).collect()
}

/// What metering processes do with the processor for themselves.
pub(super) fn alone(record: &ScanRecord, meterings: u32) -> Option<f64> {
    let cell = Cell {
        set: Set::Schedules,
        contestant: Contestant::Nobody,
        transfers: 0,
        meterings,
        state: State::Warm,
    };
    median(samples(record, &cell, calls_a_second))
}

/// One over another, each run with that of its repeat.
pub(super) fn turns(record: &ScanRecord, [above, below]: [Cell; 2], value: Value) -> Vec<f64> {
    let of = |cell: Cell| {
        let runs = of_cell(record, cell);
        runs.filter_map(move |run| Some((run.repeat, value(run)?)))
    };
    ratios(of(above), of(below))
}

pub(super) fn megabytes(run: &Run) -> f64 {
    ratio(run.total_bytes.1, 1_000_000)
}

pub(super) fn bytes_a_second(run: &Run) -> Option<f64> {
    (run.wall_ns > 0).then(|| megabytes(run) * 1e15 / ratio(run.wall_ns, 1))
}

fn a_mb(run: &Run, count: u64) -> Option<f64> {
    (megabytes(run) > 0.0).then(|| ratio(count, 1) / megabytes(run))
}

/// `None` of vsftpd, whose processes are not counted.
fn cpu_ns_a_mb(run: &Run, cpu_ns: u64) -> Option<f64> {
    let is_counted = !matches!(run.cell.contestant, Contestant::Vsftpd { .. });
    a_mb(run, cpu_ns).filter(|_| is_counted)
}

pub(super) fn user_ns_a_mb(run: &Run) -> Option<f64> {
    cpu_ns_a_mb(run, run.cpu_ns.0)
}

pub(super) fn system_ns_a_mb(run: &Run) -> Option<f64> {
    cpu_ns_a_mb(run, run.cpu_ns.1)
}

/// `None` where they are not counted.
pub(super) fn of_switches(run: &Run, count: u64) -> Option<f64> {
    a_mb(run, count).filter(|_| run.cell.set != Set::Ftp)
}

pub(super) fn involuntary(run: &Run) -> Option<f64> {
    let (voluntary, involuntary) = run.switches;
    let all = voluntary + involuntary;
    (all > 0).then(|| ratio(involuntary, all))
}

/// `None` without metering processes.
pub(super) fn calls_a_second(run: &Run) -> Option<f64> {
    let (calls, ns) = run.calls;
    (run.cell.meterings > 0 && ns > 0).then(|| ratio(calls, ns) * 1e9)
}

pub(super) fn evenness(run: &Run) -> Option<f64> {
    let is_of_all = run.done_ns.len() == run.cell.transfers as usize;
    // All have as many bytes to send, so that rates are to each other as their times are not.
    let rates = run.done_ns.iter().map(|&ns| 1.0 / ratio(ns.max(1), 1));
    (is_of_all && run.done_ns.len() > 1).then(|| jain(rates))
}
