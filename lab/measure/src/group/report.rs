//! What the samples say: the time of a send, where it goes, table 1, and the bounds.

use onrush_testkit::testbed::Mode;

use super::many;
use super::slicing::{ClonePoint, Point};
use super::{Change, GroupRecord, GroupRun, Load, PLAIN, Run};
use crate::counters::{self, Did};
use crate::plot::{Chart, Drawing, Unit, Value};
use crate::stats::to_f64;
use crate::table::{Column, Mean, Report, Table, Verdict, gather, table};

/// Everything that was measured turn about.
type Case = (Mode, Load, u16, Change);

/// The time of each send in ns, by case and way.
type Sends = Vec<((Case, String), Vec<f64>)>;

/// The time to each point of a datagram's way in ns, by the datagram's size.
type Slices = Vec<((usize, Point), Vec<f64>)>;

/// A frame at 30 a second.
const FRAME_MS: f64 = 1000.0 / 30.0;

/// Table 1 of the paper: members, and the factor by which a server could have more (400 MHz Pentium
/// II, FreeBSD 5.2.1).
pub(crate) const PAPER: [(u16, f64); 5] = [
    (40, 1.06),
    (120, 1.24),
    (240, 1.63),
    (360, 2.39),
    (480, 4.52),
];

/// What a record says.
#[must_use]
pub fn report(record: &GroupRecord) -> Report {
    let groups = record.runs.iter().filter_map(|run| match run {
        Run::Group(run) => Some(run),
        _ => None,
    });
    let counting = groups.filter(|run| run.void.is_empty());
    let void = record.runs.iter().filter(|run| run.is_void()).count();
    let sends: Sends = gather(counting.map(|run| {
        let case = (run.mode, run.load, run.members, run.change);
        ((case, run.way.clone()), run.send_ns)
    }));
    let slices: Slices = gather(record.runs.iter().filter_map(|run| match run {
        Run::Slice {
            point,
            bytes,
            send_ns,
            ..
        } => Some(((*bytes, *point), *send_ns)),
        _ => None,
    }));
    let mut report = Report::new("What sends to groups cost");
    report.add(charts(record, &sends));
    report.add([sends_told(&sends)]);
    report.add(slices_chart(&slices));
    report.add([slices_told(&slices), normalised_told(&slices)]);
    report.add([counted_told(record)]);
    report.add(processors_told(record));
    report.add([clones_told(record, &slices), players_told(&sends)]);
    report.add([many::groups_told(record), many::foreign_told(record)]);
    report.void_runs(void, record.runs.len());
    if !record.settings.members.is_empty() {
        report.add(verdicts(&sends));
    }
    report.add(many::verdicts(record));
    report
}

/// What the processor counted of the sending thread, for each send and each packet.
fn processors_told(record: &GroupRecord) -> Vec<Table> {
    let did = record.runs.iter().filter_map(|run| {
        let Run::Group(run) = run else { return None };
        let GroupRun {
            mode,
            load,
            members,
            change,
            way,
            ..
        } = run;
        let (mode, load, change) = (mode.name(), load.told(), change.name());
        Some(Did {
            name: format!("{mode}, {load}, {members}, {change}, {way}"),
            counted: run.counted.filter(|_| run.void.is_empty())?,
            units: vec![run.sends.into(), run.arrived],
        })
    });
    counters::tables(&["a send", "a packet"], did)
}

fn sends_told(sends: &Sends) -> Table {
    table! {
        "Means, with what holds the true one with 99.9 %",
        for (((mode, load, members, change), way), send_ns) in sends,
        let packets = to_f64(load.packets) * f64::from(*members);
        Column::key("mode") => mode.name(),
        Column::key("load") => load.told(),
        Column::key("members") => members.to_string(),
        Column::key("changed") => change.name(),
        Column::key("way") => way.as_str(),
        Column::us("a send", 1).as_mean().less() => send_ns.clone(),
        Column::ns("a packet", 1) => Mean::of(send_ns).map(|send| send.mean / packets),
    }
}

fn slices_told(slices: &Slices) -> Table {
    table! {
        "Where the time of a sendto goes: means, with what holds the true one with 99.9 %",
        for ((bytes, point), send_ns) in slices;
        Column::key("datagram") => format!("{bytes} B"),
        Column::key("from one point to the next") => point.layer(has_copy(slices)),
        Column::ns("a send that ends there", 0).as_mean().less() => send_ns.clone(),
        Column::ns("between the points", 0) => layer_ns(slices, *bytes, *point),
    }
}

/// The time to a point, in ns.
fn point_ns(slices: &Slices, bytes: usize, point: Point) -> Option<f64> {
    let slice = slices.iter().find(|(key, _)| *key == (bytes, point))?;
    Some(Mean::of(&slice.1)?.mean)
}

/// What lies between the point before and this one, in ns.
fn layer_ns(slices: &Slices, bytes: usize, point: Point) -> f64 {
    let to = |point: &Point| point_ns(slices, bytes, *point);
    let before = Point::ALL.iter().take_while(|&&p| p != point);
    let before = before.filter_map(to).last();
    // Noise may make a thin layer negative, which cannot be drawn.
    (to(&point).unwrap_or(0.0) - before.unwrap_or(0.0)).max(0.0)
}

/// Whether the copy was told apart.
fn has_copy(slices: &Slices) -> bool {
    slices
        .iter()
        .any(|((_, point), _)| *point == Point::AfterCopy)
}

/// Figure 5 as the paper has it: in parts of the time to the device.
fn normalised_told(slices: &Slices) -> Table {
    let at = |bytes: usize, point: Point| point_ns(slices, bytes, point);
    let copied = slices
        .iter()
        .filter(|((_, point), _)| *point == Point::AfterCopy);
    let sizes = copied.map(|((bytes, _), _)| *bytes);
    table! {
        "Figure 5: parts of the time to the device, in %; the copy is what grows with the datagram",
        for bytes in sizes,
        let device = at(bytes, Point::BeforeDevice),
        let part = |ns: Option<f64>| ns.zip(device).map(|(ns, device)| ns * 100.0 / device),
        let copied = at(bytes, Point::AfterCopy),
        let copy = copied.zip(at(0, Point::AfterCopy)).map(|(whole, empty)| whole - empty),
        let sent = at(bytes, Point::FarEnd);
        Column::key("datagram") => format!("{bytes} B"),
        Column::count("to the socket, %", 0) => part(at(bytes, Point::Socket)),
        Column::count("to the copy's end, %", 0) => part(copied),
        Column::count("of it the copy, %", 0) => part(copy),
        Column::count("through UDP and IP, %", 0) => part(at(bytes, Point::AfterIp)),
        Column::count("sent, %", 0) => part(sent),
        Column::count("copy of all that is sent, %", 0)
            => copy.zip(sent).map(|(copy, sent)| copy * 100.0 / sent),
    }
}

/// What a processor that shows it counted of the same sends.
fn counted_told(record: &GroupRecord) -> Table {
    let counted = gather(record.runs.iter().filter_map(|run| match run {
        Run::Slice {
            point,
            bytes,
            counted: Some(counted),
            ..
        } => Some(((*bytes, *point), *counted)),
        _ => None,
    }));
    table! {
        "Where the instructions of a sendto go: means of a send that ends there",
        for ((bytes, point), counted) in &counted,
        let instructions = counted.iter().map(|it| it.instructions).collect::<Vec<_>>(),
        let misses = counted.iter().map(|it| it.misses).collect::<Vec<_>>();
        Column::key("datagram") => format!("{bytes} B"),
        Column::key("from one point to the next") => point.layer(true),
        Column::count("instructions", 0).as_mean().less() => instructions,
        Column::count("misses of the last cache", 1).as_mean() => misses,
    }
}

/// Where the time of a send by `kernel` goes, for each member.
fn clones_told(record: &GroupRecord, slices: &Slices) -> Table {
    let sends = gather(record.runs.iter().filter_map(|run| match *run {
        Run::Clones {
            point,
            bytes,
            members,
            send_ns,
            ..
        } => Some(((bytes, members, point), send_ns)),
        _ => None,
    }));
    let at = |bytes, members, point| {
        let send = sends
            .iter()
            .find(|(key, _)| *key == (bytes, members, point))?;
        Some(Mean::of(&send.1)?.mean / f64::from(members))
    };
    let whole = sends
        .iter()
        .filter(|((.., point), _)| *point == ClonePoint::FarEnd);
    table! {
        "Where the time of a send by kernel goes, for each member: means",
        for ((bytes, members, _), _) in whole,
        let (bytes, members) = (*bytes, *members),
        let once = point_ns(slices, bytes, Point::BeforeDevice),
        let once = once.map(|ns| ns / f64::from(members)),
        let cloned = at(bytes, members, ClonePoint::BeforeDevice),
        let sent = at(bytes, members, ClonePoint::FarEnd);
        Column::key("datagram") => format!("{bytes} B"),
        Column::key("members") => members.to_string(),
        Column::ns("to the device, once for all", 1) => once,
        Column::ns("clone, address, back to the device", 1)
            => cloned.zip(once).map(|(cloned, once)| cloned - once),
        Column::ns("device and far end", 1)
            => sent.zip(cloned).map(|(sent, cloned)| sent - cloned),
        Column::ns("all", 1) => sent,
    }
}

/// Table 1: a server that spends a frame of 33.33 ms on sending to N players, and on other work
/// that grows with N, could serve N' = N x 33.33 / (send' + 33.33 - send) of them.
fn players_told(sends: &Sends) -> Table {
    let rows = sends.iter().filter_map(|((case, way), by_loop)| {
        let (mode, load, members, change) = *case;
        let is_base = way == "loop" && load == Load::new(1, 100);
        let is_steady = mode == Mode::Uso && change == Change::None;
        let send = Mean::of(by_loop)?.mean / 1e6;
        let sends = mean(sends, "kernel", *case)? / 1e6;
        (is_base && is_steady && members >= 40).then_some((members, send, sends))
    });
    table! {
        "Table 1: players at 30 updates a second of 100 B, N' = N x 33.33 / (send' + other)",
        for (members, send, sends) in rows,
        let other = FRAME_MS - send,
        let factor = FRAME_MS / (sends + other);
        Column::key("N") => members.to_string(),
        Column::count("send, ms", 3) => send,
        Column::count("other, ms", 3) => other,
        Column::count("send', ms", 3) => sends,
        Column::count("total, ms", 3) => sends + other,
        Column::count("factor", 3) => factor,
        Column::count("N'", 0) => f64::from(members) * factor,
        Column::count("paper's factor", 2)
            => PAPER.iter().find(|paper| paper.0 == members).map(|paper| paper.1),
    }
}

/// The time of a send in that case, in ns.
fn mean(sends: &Sends, way: &str, case: Case) -> Option<f64> {
    let of = |((c, w), _): &&((Case, String), Vec<f64>)| *c == case && w == way;
    Some(Mean::of(&sends.iter().find(of)?.1)?.mean)
}

/// Each a ratio of times that may be so large at most.
fn verdicts(sends: &Sends) -> Vec<Verdict> {
    let of = |way: &str, load: Load, members: u16, change: Change| {
        mean(sends, way, (Mode::Uso, load, members, change))
    };
    let judge = |what: String, [over, under]: [Option<f64>; 2], most: f64| {
        let ratio = over.zip(under).map(|(over, under)| over / under);
        Verdict::at_most(format!("uso, {what}"), ratio, most, 3)
    };
    let (small, large, train) = (Load::new(1, 100), Load::new(1, 1000), Load::new(40, 1328));
    let mut verdicts = Vec::new();
    for (load, way, most) in [
        (small, "loop", 1.0 / 3.0),
        (small, "sendmmsg", 0.5),
        (large, "loop", 1.0 / 3.0),
        (large, "sendmmsg", 0.5),
        (train, "loop", 1.0 / 40.0),
    ] {
        let pair = ["kernel", way].map(|way| of(way, load, 480, Change::None));
        verdicts.push(judge(
            format!("{}: kernel / {way}", load.told()),
            pair,
            most,
        ));
    }
    for load in [small, large, train] {
        let pair = [Change::All, Change::None].map(|change| of("kernel", load, 480, change));
        let what = format!("{}: kernel, replaced / not", load.told());
        verdicts.push(judge(what, pair, 1.05));
    }
    for load in [small, large] {
        let pair = ["kernel", PLAIN].map(|way| of(way, load, 1, Change::None));
        let what = format!("{}, one member: kernel / {PLAIN}", load.told());
        verdicts.push(judge(what, pair, 1.1));
    }
    verdicts
}

/// A send over the number of members.
fn charts(record: &GroupRecord, sends: &Sends) -> Vec<Drawing> {
    let mut drawings = Vec::new();
    for &mode in &record.settings.modes {
        for &load in &record.settings.loads {
            let title = format!("A group send of {}, {}", load.told(), mode.name());
            let mut chart = Chart::lines(&title)
                .x("members", Unit::Count)
                .log_x(10)
                .y("time of a send", Unit::Nanoseconds)
                .log_y(10);
            for way in &record.settings.ways {
                // The paper's third curve: replacing matters where sends are cheap.
                let kept = (Change::None, way.clone());
                let replaced = (Change::All, format!("{way}, replaced"));
                for (change, name) in [kept]
                    .into_iter()
                    .chain((way == "kernel").then_some(replaced))
                {
                    let points = sends.iter().filter(|((case, w), _)| {
                        w == way && (case.0, case.1, case.3) == (mode, load, change)
                    });
                    let points: Vec<_> = points
                        .map(|((case, _), ns)| (f64::from(case.2), value(ns)))
                        .collect();
                    if !points.is_empty() {
                        chart = chart.series(&name, points);
                    }
                }
            }
            let file = format!("send-{}x{}-{}.svg", load.packets, load.bytes, mode.name());
            drawings.push(Drawing::new(file, chart));
        }
    }
    drawings
}

/// Where the time of a datagram goes.
fn slices_chart(slices: &Slices) -> Option<Drawing> {
    let mut sizes: Vec<_> = slices.iter().map(|((bytes, _), _)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut chart = Chart::stacked("Where the time of a sendto goes")
        .y("time of a send", Unit::Nanoseconds)
        .categories(sizes.iter().map(|bytes| format!("{bytes} B")));
    let is_sliced = |point: &Point| slices.iter().any(|((_, it), _)| it == point);
    for point in Point::ALL.into_iter().filter(is_sliced) {
        let layers = sizes.iter().map(|&bytes| layer_ns(slices, bytes, point));
        chart = chart.values(point.layer(has_copy(slices)), layers);
    }
    (!sizes.is_empty()).then(|| Drawing::new("slices.svg", chart))
}

fn value(send_ns: &[f64]) -> Value {
    let Some(Mean { mean, half }) = Mean::of(send_ns) else {
        return Value::default();
    };
    Value {
        at: Some(mean),
        // On a logarithmic axis nothing is below zero.
        interval: (half.is_finite()).then(|| ((mean - half).max(mean / 10.0), mean + half)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Outcome;

    #[test]
    fn a_bound_is_kept_at_it_and_missed_beyond() {
        let row = |way: &str, send_ns: f64| {
            let case = (Mode::Uso, Load::new(1, 100), 480, Change::None);
            ((case, way.to_owned()), vec![send_ns])
        };
        let first = |sends: &Sends| verdicts(sends)[0].outcome;
        let judged = |kernel_ns| first(&vec![row("kernel", kernel_ns), row("loop", 300.0)]);
        assert_eq!(judged(100.0), Outcome::Kept);
        assert_eq!(judged(100.1), Outcome::Missed);
        assert_eq!(first(&vec![row("kernel", 1.0)]), Outcome::Void);
    }
}
