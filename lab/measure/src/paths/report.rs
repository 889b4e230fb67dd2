//! What a record of the experiment says: the paper's table with our columns, its figures, its
//! claims and ours.

use onrush_paths::{Family, Name, Touch};

use super::{MTU_PACKET_BYTES, PathsRecord, Run, Sample, Transport};
use crate::counters::{self, Did};
use crate::plot::{Chart, Drawing, Unit};
use crate::setup::REPEATS_OF_VOID_MAX;
use crate::stats::{median, ratio, to_f64};
use crate::table::{Block, Cell, Column, Report, Table, Verdict, gather, ratios, table};

/// Void runs that are listed one by one.
const VOID_LISTED_MAX: usize = 20;

/// What must hold: which path takes at most which part of which other's time, where, and who says
/// so.
const CLAIMS: [(Transport, Name, Name, f64, &str); 12] = {
    use Name::{
        Krtpmsend, Krtpsendfile, MmapRtpmsend, ReadSendRtp, RtpSendfile, Rtpsendfile, Sendmmsg,
    };
    use Transport::{SoftwareGso, Uso};
    [
        (Uso, Krtpsendfile, RtpSendfile, 1.0 / 30.0, "ours"),
        (Uso, Krtpsendfile, Sendmmsg, 1.0 / 15.0, "ours"),
        (SoftwareGso, Krtpsendfile, RtpSendfile, 1.0 / 4.0, "ours"),
        (SoftwareGso, Krtpsendfile, Sendmmsg, 1.0 / 2.0, "ours"),
        (Uso, Krtpsendfile, RtpSendfile, 0.73, "paper"),
        (Uso, Rtpsendfile, RtpSendfile, 0.90, "paper"),
        (Uso, Krtpmsend, ReadSendRtp, 0.64, "paper"),
        (Uso, MmapRtpmsend, ReadSendRtp, 0.76, "paper"),
        (SoftwareGso, Krtpsendfile, RtpSendfile, 0.73, "paper"),
        (SoftwareGso, Rtpsendfile, RtpSendfile, 0.90, "paper"),
        (SoftwareGso, Krtpmsend, ReadSendRtp, 0.64, "paper"),
        (SoftwareGso, MmapRtpmsend, ReadSendRtp, 0.76, "paper"),
    ]
};

/// In which state the file was, and what was done to it on its way.
#[derive(Clone, Copy, Eq, PartialEq)]
struct Kind {
    touch: Touch,
    is_cold: bool,
}

/// What a record says.
#[must_use]
pub fn report(record: &PathsRecord) -> Report {
    let runs: Vec<&Run> = runs(record).collect();
    let mut report = Report::new("What data paths cost");
    report.add(charts(record));
    for transport in [Transport::Uso, Transport::SoftwareGso, Transport::Tcp] {
        let tables = kinds().map(|kind| table(&runs, transport, kind));
        report.add(tables.collect::<Vec<_>>());
    }
    let touches = record.settings.touches();
    if touches != [Touch::None] {
        report.add(compared(record, &touches));
    }
    let crossing = record.runs.iter().find_map(|sample| match sample {
        Sample::Crossing { ns } => Some(ns),
        _ => None,
    });
    if let Some(ns) = crossing {
        report.text(format!(
            "A system call that does nothing takes {ns:.0} ns; the paper's took 920."
        ));
    }
    let void: Vec<_> = unmended(&runs).collect();
    report.warn(void.iter().take(VOID_LISTED_MAX).map(|run| {
        let (transport, bytes, path) = (run.transport.name(), run.packet_bytes, &run.path);
        let (kind, why) = (run.kind().told(), run.void.join("; "));
        format!("void: {transport} {bytes} B {path}{kind}: {why}")
    }));
    let verdicts = verdicts(record);
    if !verdicts.is_empty() {
        report.text("Time of a packet that fills a frame, by one path over that by another:");
    }
    report.add(verdicts);
    if !void.is_empty() {
        let many = format!("{} have no valid run", void.len());
        report.add([Verdict::void("turns of a path", many)]);
    }
    report.add(counted(&runs));
    let every = vec![every_size(record).into(), yardsticks(record).into()];
    report.add([Block::Folded("Packets of every size".to_owned(), every)]);
    report
}

/// What the processor counted of the sender, for each packet that fills a frame and each send.
fn counted(runs: &[&Run]) -> Vec<Table> {
    let frames = runs
        .iter()
        .filter(|run| run.packet_bytes == MTU_PACKET_BYTES);
    let valid = frames.filter(|run| run.void.is_empty());
    let did = valid.filter_map(|run| {
        Some(Did {
            name: format!(
                "{}, {}{}",
                run.transport.name(),
                run.path,
                run.kind().told()
            ),
            counted: run.counted?,
            units: vec![run.packets, run.sends],
        })
    });
    counters::tables(&["a packet", "a send"], did)
}

/// The paper's table 1 with our columns: packets that fill a frame.
fn table(runs: &[&Run], transport: Transport, kind: Kind) -> Table {
    let with_byte = !kind.is_cold && transport != Transport::Tcp;
    let of_path = |name: Name| {
        let is_it = move |run: &&Run| {
            run.path == name.as_str() && (run.transport, run.kind()) == (transport, kind)
        };
        let runs: Vec<&Run> = runs.iter().copied().filter(is_it).collect();
        let is_there = runs.iter().any(|run| run.packet_bytes == MTU_PACKET_BYTES);
        is_there.then_some((name, runs))
    };
    table! {
        format!("{}{}: medians, ns a packet", transport.name(), kind.told()),
        for (name, runs) in Name::ALL.into_iter().filter_map(of_path),
        let facts = name.facts(),
        let cost_ns = of_size(&runs, MTU_PACKET_BYTES, &cpu_ns),
        let each = |value: fn(&Run) -> u64| {
            of_size(&runs, MTU_PACKET_BYTES, &|run| ratio(value(run), run.packets.max(1)))
        };
        Column::key("path") => name.as_str(),
        Column::text("paper: copies, switches") => match facts.family {
            Family::Modern => "-".to_owned(),
            _ => format!("{},{}", facts.paper.0, facts.paper.1),
        },
        Column::text("copies") => facts.copies,
        Column::count("crossings", 3) => each(|run| run.crossings),
        Column::count("CPU (range)", 0).with_range() => Cell::or_void(cost_ns.clone()),
        Column::count("user", 0) => each(|run| run.user_ns),
        Column::count("helper", 0) => each(|run| run.helper_ns),
        Column::count("busy", 0) => each(|run| run.machine_busy_ns),
        Column::count("images", 0) => each(|run| run.prepare_ns),
        Column::count("packets a send", 1)
            => of_size(&runs, MTU_PACKET_BYTES, &|run| ratio(run.packets, run.sends.max(1))),
        Column::count("ns/KB", 0) => with_byte.then(|| byte_ns(&runs)).flatten(),
        Column::number("rate", Unit::BitsPerSecond).fixed("Gbit/s", 1e9, 1)
            => median(&cost_ns).map(|ns| f64::from(MTU_PACKET_BYTES) * 8e9 / ns),
    }
}

/// What touching the data costs: packets that fill a frame, and the file in memory.
fn compared(record: &PathsRecord, touches: &[Touch]) -> Vec<Table> {
    let of = |transport: &Transport| {
        let mut columns = vec![Column::key("path")];
        let heading = |touch: &Touch| match touch {
            Touch::None => "as it is".to_owned(),
            touch => touch.name().to_owned(),
        };
        let column = |touch| Column::count(&heading(touch), 0).with_range();
        columns.extend(touches.iter().map(column));
        let caption = format!(
            "{}, what touching the data costs: medians, ns a packet",
            transport.name()
        );
        let mut table = Table::new(caption, columns);
        let is_asked = |name: &Name| record.settings.paths.iter().any(|n| n == name.as_str());
        let names = Name::ALL.into_iter().filter(is_asked);
        for name in names.filter(|name| transport.takes(*name)) {
            let cost = |&touch: &Touch| match name.cannot_touch(touch) {
                Some(_) => Cell::Text("cannot".to_owned()),
                None => {
                    let kind = Kind {
                        touch,
                        is_cold: false,
                    };
                    let runs = runs(record).filter(move |run| {
                        is_of(run, *transport, name, MTU_PACKET_BYTES, kind) && run.void.is_empty()
                    });
                    Cell::or_void(runs.map(cpu_ns).collect())
                }
            };
            let costs: Vec<Cell> = touches.iter().map(cost).collect();
            let key = std::iter::once(name.as_str().into());
            table.row(key.chain(costs).collect::<Vec<_>>());
        }
        table
    };
    record.settings.transports.iter().map(of).collect()
}

/// What valid runs with packets of that size say.
fn of_size(runs: &[&Run], bytes: u32, value: &dyn Fn(&Run) -> f64) -> Vec<f64> {
    let runs = runs.iter().copied();
    let valid = runs.filter(|run| run.packet_bytes == bytes && run.void.is_empty());
    valid.map(value).collect()
}

/// What 1024 bytes more in a packet cost, by the sizes that fit a frame.
fn byte_ns(runs: &[&Run]) -> Option<f64> {
    let cost = |bytes: u32| Some((f64::from(bytes), median(of_size(runs, bytes, &cpu_ns))?));
    let points = [512, 1024, MTU_PACKET_BYTES].into_iter().map(cost);
    Some(slope(&points.collect::<Option<Vec<_>>>()?) * 1024.0)
}

/// What a packet cost by each path, on each transport, in each size.
fn every_size(record: &PathsRecord) -> Table {
    let valid = runs(record).filter(|run| run.void.is_empty());
    let costs = gather(valid.map(|run| {
        let path = format!("{}{}", run.path, run.kind().told());
        ((run.transport, run.packet_bytes, path), cpu_ns(run))
    }));
    table! {
        "Medians", for ((transport, bytes, path), ns) in costs;
        Column::key("transport") => transport.name(),
        Column::key("packet") => format!("{bytes} B"),
        Column::key("path") => path,
        Column::ns("CPU per packet", 0).with_range().less() => ns,
    }
}

/// What a copy and a crossing take.
fn yardsticks(record: &PathsRecord) -> Table {
    let times = gather(record.runs.iter().filter_map(|sample| match sample {
        Sample::Copy { bytes, ns } => Some((format!("copy of {bytes} B"), *ns)),
        Sample::Crossing { ns } => Some(("system call".to_owned(), *ns)),
        Sample::Path(_) => None,
    }));
    table! {
        "What paths are made of", for (what, ns) in times;
        Column::key("what") => what,
        Column::ns("time", 1).less() => ns,
    }
}

/// Claims of the paper and of ours whose paths were measured.
fn verdicts(record: &PathsRecord) -> Vec<Verdict> {
    let is_asked = |name: Name| record.settings.paths.iter().any(|n| n == name.as_str());
    let claims = CLAIMS.iter().filter(|(transport, of, to, ..)| {
        record.settings.transports.contains(transport) && is_asked(*of) && is_asked(*to)
    });
    let judge = |&(transport, of, to, most, by): &(Transport, Name, Name, f64, &str)| {
        let costs = |name| {
            let runs = runs(record).filter(move |run| {
                is_of(run, transport, name, MTU_PACKET_BYTES, PLAIN) && run.void.is_empty()
            });
            runs.map(|run| (run.repeat, cpu_ns(run)))
        };
        let what = format!("{}, {of} / {to} ({by})", transport.name());
        Verdict::at_most(what, ratios(costs(of), costs(to)), most, 3)
    };
    claims.map(judge).collect()
}

/// Processor time of a packet, in ns.
fn cpu_ns(run: &Run) -> f64 {
    ratio(run.cpu_ns(), run.packets.max(1))
}

/// The paper's figures 2 to 5, and one of the modern paths.
fn charts(record: &PathsRecord) -> Vec<Drawing> {
    use Family::{Download, Enhanced, Modern, Rtp};
    let mut drawings = Vec::new();
    let transports = record.settings.transports.iter();
    let is_drawn = |kind: &Kind| *kind == PLAIN || has_sizes(record, *kind);
    let all = transports.flat_map(|transport| kinds().map(move |kind| (*transport, kind)));
    for (transport, kind) in all.filter(|(_, kind)| is_drawn(kind)) {
        let of = format!("{}{}", transport.name(), kind.told());
        let mut add = |number: &str, title: &str, families: &[Family], base: Option<Name>| {
            let title = match number {
                "modern" => format!("{title} ({of})"),
                _ => format!("{title} (figure {number}, {of})"),
            };
            let family = |wanted: &Family| {
                let all = Name::ALL.into_iter();
                all.filter(|n| n.facts().family == *wanted)
                    .collect::<Vec<_>>()
            };
            let names: Vec<_> = families.iter().flat_map(family).collect();
            let chart = figure(record, (transport, kind), &title, &names, base);
            let file = format!("figure-{number}-{}.svg", of.replace(", ", "-"));
            drawings.extend(chart.map(|chart| Drawing { file, chart }));
        };
        if transport == Transport::Tcp {
            add("3b", "Content download over TCP", &[Download], None);
            continue;
        }
        let beside = "RTP streaming beside read_writev";
        add("3a", "Content download over UDP", &[Download], None);
        add("4a", "RTP streaming, existing calls", &[Rtp], None);
        add("4b", "RTP streaming, enhanced calls", &[Enhanced], None);
        add("5", beside, &[Rtp, Enhanced], Some(Name::ReadWritev));
        add("modern", "RTP streaming, what came since", &[Modern], None);
    }
    let copies = record.runs.iter().filter_map(|sample| match sample {
        Sample::Copy { bytes, ns } => Some((f64::from(*bytes), *ns)),
        _ => None,
    });
    let chart = Chart::lines("Copying memory (figure 2)")
        .x("bytes copied", Unit::Bytes)
        .log_x(2)
        .y("time", Unit::Nanoseconds)
        .log_y(10)
        .series("memcpy", copies);
    drawings.push(Drawing::new("figure-2.svg", chart));
    drawings
}

/// Processor time over packet size of these paths, or their part of `base`'s.
fn figure(
    record: &PathsRecord,
    (transport, kind): (Transport, Kind),
    title: &str,
    names: &[Name],
    base: Option<Name>,
) -> Option<Chart> {
    let cost = |name: Name, bytes: u32| {
        let of = |run: &&Run| is_of(run, transport, name, bytes, kind) && run.void.is_empty();
        // For a gigabyte of what is sent, the paper's measure.
        let a_gigabyte = |run: &Run| ratio(run.cpu_ns(), run.arrived_bytes.max(1)) * 1e9;
        median(runs(record).filter(of).map(a_gigabyte))
    };
    let mut chart = Chart::lines(title).x("packet size", Unit::Bytes).log_x(2);
    chart = match base {
        Some(_) => chart.y("processor time, median; read_writev = 1", Unit::Count),
        None => chart
            .y("processor time for 1 GB, median", Unit::Nanoseconds)
            .log_y(10),
    };
    let mut drawn = 0;
    for &name in names {
        let points = record.settings.packet_bytes.iter().filter_map(|&bytes| {
            let base = base.map_or(Some(1.0), |base| cost(base, bytes))?;
            Some((f64::from(bytes), cost(name, bytes)? / base))
        });
        let points: Vec<_> = points.collect();
        if !points.is_empty() {
            drawn += 1;
            chart = chart.series(name.as_str(), points);
        }
    }
    let chart = match transport {
        Transport::Tcp => chart,
        _ => chart.mark_x(f64::from(MTU_PACKET_BYTES), "MTU"),
    };
    (drawn > 0).then_some(chart)
}

fn runs(record: &PathsRecord) -> impl Iterator<Item = &Run> {
    record.runs.iter().filter_map(|sample| match sample {
        Sample::Path(run) => Some(run),
        _ => None,
    })
}

fn is_of(run: &Run, transport: Transport, name: Name, packet_bytes: u32, kind: Kind) -> bool {
    (run.transport, run.packet_bytes, run.kind()) == (transport, packet_bytes, kind)
        && run.path == name.as_str()
}

/// Whether runs of that kind have packets of several sizes, as a line needs.
fn has_sizes(record: &PathsRecord, kind: Kind) -> bool {
    let mut sizes = runs(record)
        .filter(|run| run.kind() == kind)
        .map(|run| run.packet_bytes);
    let first = sizes.next();
    sizes.any(|bytes| Some(bytes) != first)
}

/// The file in memory, moved as it is.
const PLAIN: Kind = Kind {
    touch: Touch::None,
    is_cold: false,
};

/// All, in the order of tables.
fn kinds() -> impl Iterator<Item = Kind> {
    let of = |touch| [false, true].map(|is_cold| Kind { touch, is_cold });
    Touch::ALL.into_iter().flat_map(of)
}

impl Kind {
    /// What is to be added to a name; nothing if the data is moved as it is, from memory.
    fn told(self) -> String {
        let touch = match self.touch {
            Touch::None => String::new(),
            touch => format!(", {touch}"),
        };
        let state = if self.is_cold { ", cold" } else { "" };
        format!("{touch}{state}")
    }
}

impl Run {
    fn kind(&self) -> Kind {
        Kind {
            touch: self.touch.parse().unwrap_or_default(),
            is_cold: self.is_cold,
        }
    }
}

/// Void runs whose place no later attempt took.
fn unmended<'a>(runs: &'a [&Run]) -> impl Iterator<Item = &'a Run> {
    let place = |run: &Run| {
        (
            run.transport,
            run.packet_bytes,
            run.is_cold,
            run.repeat,
            (run.path.clone(), run.touch.clone()),
        )
    };
    runs.iter().copied().filter(move |run| {
        let is_mended = || {
            let mut valid = runs.iter().filter(|other| other.void.is_empty());
            valid.any(|other| place(other) == place(run))
        };
        run.attempt == REPEATS_OF_VOID_MAX && !run.void.is_empty() && !is_mended()
    })
}

/// The slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = to_f64(points.len());
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let up: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    up / points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum::<f64>()
}
