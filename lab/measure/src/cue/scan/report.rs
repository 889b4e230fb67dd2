//! What a scan says: each set beside the paper's figures, and what of its claims holds.

use super::cells::{YIELDED, today, yielding};
use super::claims::of_paper;
use super::values::{
    Value, alone, bytes_a_second, calls_a_second, evenness, of_switches, samples, system_ns_a_mb,
    turns, user_ns_a_mb,
};
use super::{Cell, ScanRecord, Set, State};
use crate::cue::{BLOCK_BYTES, BLOCK_BYTES_TODAY, Contestant};
use crate::plot::{self, Chart, Drawing, Unit};
use crate::stats::{Summary, median, to_f64};
use crate::table::{Column, Report, Table, Verdict, table};

/// What a schedule that yields may cost where nobody waits: its throughput, of that of fair.
const IDLE_MIN: f64 = 0.97;
/// What it leaves at least where somebody does: calls, of those beside the schedule itself. A
/// fiftieth is what looking costs.
const BUSY_MIN: f64 = 0.98;

/// What a record says.
#[must_use]
pub fn report(record: &ScanRecord) -> Report {
    let mut cells: Vec<Cell> = Vec::new();
    for run in &record.runs {
        if !cells.contains(&run.cell) && run.cell.contestant != Contestant::Nobody {
            cells.push(run.cell);
        }
    }
    cells.sort_by_key(|it| (it.set, it.state, it.meterings, it.transfers, it.contestant));
    let mut report = Report::new("What schedules cost and leave, set by set");
    report.add(charts(record));
    for set in Set::ALL {
        let of_set: Vec<_> = cells.iter().filter(|cell| cell.set == set).collect();
        if !of_set.is_empty() {
            report.add([table(record, set, &of_set)]);
        }
    }
    report.text(
        "Medians, with ranges; sigma: standard deviation of the throughput, of its mean. MB is \
         1e6 bytes; gave up, was taken: voluntary and involuntary switches a MB; calls: of all \
         metering processes together; left: of those they make alone; even: Jain's index of the \
         transfers' rates, each until it had sent all. Blocks are of 8 KiB unless they say \
         another size.",
    );
    let has_vsftpd = |cell: &Cell| matches!(cell.contestant, Contestant::Vsftpd { .. });
    let lacks_vsftpd = cells.iter().any(|it| it.set == Set::Ftp) && !cells.iter().any(has_vsftpd);
    report.warn(lacks_vsftpd.then_some(
        "vsftpd was not there, or not to be started by this account: apt install vsftpd, as root",
    ));
    report.warn(record.runs.iter().filter_map(|run| {
        let (cell, why) = (run.cell, run.void.as_ref()?);
        let Cell {
            set,
            contestant,
            transfers,
            ..
        } = cell;
        Some(format!(
            "{set}, {transfers} transfers, {contestant}: void, {why}"
        ))
    }));
    report.add(verdicts(record));
    report
}

fn table(record: &ScanRecord, set: Set, cells: &[&Cell]) -> Table {
    let told = table! {
        set.title(), for cell in cells,
        let of = |value: Value| samples(record, cell, value),
        let calls = of(calls_a_second);
        Column::key("at once") => cell.transfers.to_string(),
        Column::key("meters") => cell.meterings.to_string(),
        Column::key("who") => cell.contestant.to_string(),
        Column::key("files") => match cell.state {
            State::Warm => "warm",
            State::Cold => "cold",
        },
        Column::number("moved", Unit::BytesPerSecond).fixed("MB/s", 1e6, 1).more().with_range()
            => of(bytes_a_second),
        Column::percent("sigma", 1) => sigma(&of(bytes_a_second)),
        Column::us("user per MB", 1).less() => of(user_ns_a_mb),
        Column::us("system per MB", 1).less().with_range() => of(system_ns_a_mb),
        Column::count("gave up", 2) => of(|run| of_switches(run, run.switches.0)),
        Column::count("was taken", 2) => of(|run| of_switches(run, run.switches.1)),
        Column::count("calls", 0).fixed("k/s", 1e3, 0).more() => calls.clone(),
        Column::percent("left", 0)
            => median(calls).zip(alone(record, cell.meterings)).map(|(calls, alone)| calls / alone),
        Column::count("even", 4) => of(evenness),
    };
    let mut table = told.prefixed(set.name());
    if !set.paper().is_empty() {
        table.note(set.paper());
    }
    table
}

/// The standard deviation, of the mean.
fn sigma(samples: &[f64]) -> Option<f64> {
    let count = to_f64(samples.len());
    if samples.len() < 2 {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / count;
    let squares = samples.iter().map(|it| (it - mean) * (it - mean));
    Some((squares.sum::<f64>() / (count - 1.0)).sqrt() / mean)
}

fn charts(record: &ScanRecord) -> Vec<Drawing> {
    let (ks, ts) = &record.settings.schedules;
    let over_k = |file: &str, title: &str, (axis, unit): (&str, Unit), value: Value, of: f64| {
        let mut chart = Chart::lines(title)
            .x("k: blocks of 256 KiB", Unit::Count)
            .log_x(2)
            .y(axis, unit);
        for &t in ts {
            let point = |&k: &u32| {
                let cell = Cell {
                    set: Set::Schedules,
                    contestant: today((k, t)),
                    transfers: 1,
                    meterings: 1,
                    state: State::Warm,
                };
                let of_cell = samples(record, &cell, value).into_iter();
                let summary = Summary::of(of_cell.map(|it| it / of))?;
                Some((f64::from(k), plot::Value::from(&summary)))
            };
            chart = chart.series(&format!("t = {t} ms"), ks.iter().filter_map(point));
        }
        Drawing::new(file, chart)
    };
    let rate = ("throughput", Unit::BytesPerSecond);
    let part = ("of what it does alone", Unit::Percent);
    let percent = alone(record, 1).unwrap_or(f64::INFINITY) / 100.0;
    let mut ftp = Chart::lines("What an FTP client gets")
        .x("clients at once", Unit::Count)
        .y("throughput of each", Unit::BytesPerSecond);
    for contestant in [
        Contestant::Vsftpd { sendfile: false },
        Contestant::Vsftpd { sendfile: true },
        Contestant::Fair,
        FTP_IN_PROPORTION,
    ] {
        let clients = record.settings.ftp_clients.iter();
        let point = |&clients: &u32| {
            let of_cell = samples(record, &ftp_cell(contestant, clients), bytes_a_second);
            let of_each = of_cell.iter().map(|all| all / f64::from(clients));
            let summary = Summary::of(of_each)?;
            Some((f64::from(clients), plot::Value::from(&summary)))
        };
        ftp = ftp.series(&contestant.to_string(), clients.filter_map(point));
    }
    let mut drawings = Vec::new();
    if !record.settings.transfers.is_empty() {
        drawings.push(over_k(
            "scan-throughput.svg",
            "What one transfer moves beside a metering process",
            rate,
            bytes_a_second,
            1.0,
        ));
        drawings.push(over_k(
            "scan-left.svg",
            "What is left to the metering process",
            part,
            calls_a_second,
            percent,
        ));
    }
    if !record.settings.ftp_clients.is_empty() {
        drawings.push(Drawing::new("scan-ftp.svg", ftp));
    }
    drawings
}

/// (4,16) of the FTP server in the proportions of today.
const FTP_IN_PROPORTION: Contestant = Contestant::Fixed {
    block_bytes: BLOCK_BYTES,
    blocks: 2048,
    pause_ms: 1,
};

fn ftp_cell(contestant: Contestant, clients: u32) -> Cell {
    Cell {
        set: Set::Ftp,
        contestant,
        transfers: clients,
        meterings: 0,
        state: State::Warm,
    }
}

/// The paper's claims, each judged by its schedule in the proportions of today, and what the
/// schedule that yields promises.
fn verdicts(record: &ScanRecord) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if record.settings.sets {
        verdicts.extend(of_paper(record));
    }
    if let Some(&clients) = record.settings.ftp_clients.iter().max() {
        for (contestant, other) in [
            (FTP_IN_PROPORTION, Contestant::Vsftpd { sendfile: false }),
            (Contestant::Fair, Contestant::Vsftpd { sendfile: false }),
            (Contestant::Fair, Contestant::Vsftpd { sendfile: true }),
        ] {
            let pair = [contestant, other].map(|it| ftp_cell(it, clients));
            let what = format!("table 8, {clients} clients: throughput, {contestant} / {other}");
            let told = turns(record, pair, bytes_a_second);
            verdicts.push(Verdict::at_least(what, told, 1.0, 2));
        }
    }
    for &transfers in &record.settings.transfers {
        let cell = |contestant, meterings| Cell {
            set: Set::Schedules,
            contestant,
            transfers,
            meterings,
            state: State::Warm,
        };
        let idle = [yielding(YIELDED), Contestant::Fair].map(|it| cell(it, 0));
        let what = format!("{transfers} transfers, nobody waits: throughput, yielding / fair");
        let told = turns(record, idle, bytes_a_second);
        verdicts.push(Verdict::at_least(what, told, IDLE_MIN, 3));
        for &meterings in &record.settings.meterings {
            let busy = [yielding(YIELDED), today(YIELDED)].map(|it| cell(it, meterings));
            let what = format!(
                "{transfers} transfers, {meterings} metering: left to them, yielding / always \
                 pausing"
            );
            let told = turns(record, busy, calls_a_second);
            verdicts.push(Verdict::at_least(what, told, BUSY_MIN, 3));
        }
    }
    verdicts
}

const _: () = assert!(BLOCK_BYTES < BLOCK_BYTES_TODAY);

#[cfg(test)]
mod tests {
    use super::super::cells::in_proportion;
    use super::super::{NAME, Part, Run, Settings, cells};
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::table::Outcome;

    /// A record in which all bounds are just kept.
    fn record() -> ScanRecord {
        let environment = Environment::here("1", "onrush-lab bench cue --scan");
        let settings = Settings::quick();
        let mut record = Record::new(NAME, environment, settings.clone());
        for cell in cells::cells(&settings) {
            record.runs.push(Run {
                cell,
                repeat: 0,
                files: 60,
                file_bytes: 1_000_000,
                wall_ns: 1_000_000_000,
                done_ns: vec![1_000_000_000; cell.transfers as usize],
                cpu_ns: (100_000_000, 500_000_000),
                switches: (95, 5),
                calls: (1_000_000, 1_000_000_000),
                yields: 0,
                received_bytes: vec![1_000_000; cell.transfers as usize],
                total_bytes: (60_000_000, 60_000_000),
                void: None,
            });
        }
        record
    }

    fn missed(change: impl Fn(&mut Run)) -> Vec<String> {
        let mut record = record();
        record.runs.iter_mut().for_each(change);
        let report = report(&record);
        let missed = report.verdicts().filter(|it| it.outcome != Outcome::Kept);
        missed.map(|it| it.what.clone()).collect()
    }

    fn is(run: &Run, set: Set, contestant: Contestant) -> bool {
        (run.cell.set, run.cell.contestant) == (set, contestant)
    }

    #[test]
    fn each_bound_is_kept_at_its_value_and_missed_beyond() {
        assert_eq!(missed(|_| {}), [""; 0]);
        let fewer_calls = |run: &mut Run| {
            if is(run, Set::One, in_proportion((3, 2))) {
                run.calls.0 -= 10_000;
            }
        };
        assert_eq!(missed(fewer_calls).len(), 1);
        let involuntary = |run: &mut Run| {
            if is(run, Set::One, in_proportion((3, 2))) {
                run.switches = (94, 6);
            }
        };
        assert_eq!(missed(involuntary).len(), 1);
        for (set, schedule) in [
            (Set::Two, (4, 2)),
            (Set::Three, (1, 1)),
            (Set::Four, (1, 2)),
        ] {
            let dearer = |run: &mut Run| {
                if is(run, set, in_proportion(schedule)) {
                    run.cpu_ns.1 += 10_000_000;
                }
            };
            assert_eq!(missed(dearer).len(), 1, "{set}");
        }
        for set in [Set::Six, Set::Eight, Set::Nine] {
            let slower = |run: &mut Run| {
                if is(run, set, in_proportion((4, 1))) {
                    run.wall_ns += 10_000_000;
                }
            };
            assert_eq!(missed(slower).len(), 1, "{set}");
        }
        let slow = |run: &mut Run| {
            if is(run, Set::Ftp, Contestant::Fair) {
                run.wall_ns += 10_000_000;
            }
        };
        assert_eq!(missed(slow).len(), 2);
    }

    #[test]
    fn yielding_is_free_where_idle_and_leaves_as_much_where_busy() {
        let of = |run: &Run, meterings| {
            is(run, Set::Schedules, yielding(YIELDED)) && run.cell.meterings == meterings
        };
        let slower = |run: &mut Run| {
            if of(run, 0) {
                run.wall_ns += 32_000_000;
            }
        };
        // Of one transfer and of four; cold files are not judged.
        assert_eq!(missed(slower).len(), 2);
        let fewer = |run: &mut Run| {
            if of(run, 1) {
                run.calls.0 -= 20_001;
            }
        };
        assert_eq!(missed(fewer).len(), 2);
    }

    #[test]
    fn a_part_alone_is_told_and_judged_alone() {
        let of = |part| {
            let mut record = record();
            record.settings = record.settings.clone().only(part);
            let cells = cells::cells(&record.settings);
            record.runs.retain(|run| cells.contains(&run.cell));
            let report = report(&record);
            assert!(
                report.verdicts().all(|it| it.outcome == Outcome::Kept),
                "{part:?}"
            );
            (report.verdicts().count(), report.drawings().count())
        };
        assert_eq!(of(Part::Sets), (11, 0));
        assert_eq!(of(Part::Schedules), (4, 2));
        assert_eq!(of(Part::Ftp), (3, 1));
    }

    #[test]
    fn what_is_void_or_was_not_measured_is_not_good() {
        let wrong_count = |run: &mut Run| {
            run.void = (run.cell.set == Set::Nine).then(|| "60 bytes, 59 arrived".to_owned());
        };
        let missed_nine = missed(wrong_count);
        assert_eq!(missed_nine.len(), 1, "{missed_nine:?}");
        let mut record = record();
        record.runs.clear();
        let report = report(&record);
        assert!(report.verdicts().all(|it| it.outcome == Outcome::Void));
    }

    #[test]
    fn evenness_is_that_of_the_rates_of_all() {
        let mut run = record().runs.pop().unwrap();
        run.cell.transfers = 2;
        run.done_ns = vec![1_000_000, 1_000_000];
        assert_eq!(evenness(&run), Some(1.0));
        run.done_ns = vec![1_000_000, 3_000_000];
        let uneven = evenness(&run).unwrap();
        assert!((uneven - 0.8).abs() < 1e-9, "{uneven}");
        run.done_ns.pop();
        assert_eq!(evenness(&run), None, "one is missing");
    }

    #[test]
    fn the_spread_is_told_as_a_part_of_the_mean() {
        assert_eq!(sigma(&[1.0]), None);
        let told = sigma(&[9.0, 11.0]).unwrap();
        assert!((told - 2.0f64.sqrt() / 10.0).abs() < 1e-12, "{told}");
    }
}
