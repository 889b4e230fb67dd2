//! What a record of the experiment says: the paper's table with our columns, its figures, its
//! claims and ours.
//!
//! Computed from the record alone, so that all of it can be made again from its file.

use std::fmt;

use onrush_paths::{Family, Name};

use super::{MTU_PACKET_BYTES, PathsRecord, Run, Sample, Transport};
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{Summary, ratio};

/// All that is to be told.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
    crossing_ns: Option<f64>,
    warnings: Vec<String>,
    void: usize,
}

/// What one path did on one transport with frames' packets.
#[derive(Clone, Debug)]
struct Row {
    transport: Transport,
    name: Name,
    is_cold: bool,
    cpu_ns: Option<Summary>,
    user_ns: f64,
    helper_ns: f64,
    busy_ns: f64,
    prepare_ns: f64,
    crossings: f64,
    packets_a_send: f64,
    /// What a further byte of a packet costs, by the sizes that fit a frame.
    byte_ns: Option<f64>,
}

/// A claim, of the issue or of the paper, beside what was measured.
#[derive(Clone, Debug)]
struct Verdict {
    transport: Transport,
    of: Name,
    to: Name,
    /// The part of `to`'s time that `of` may take at the most.
    part_max: f64,
    /// Whose claim.
    by: &'static str,
    part: Option<Summary>,
}

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

impl Report {
    /// Reads a record.
    #[must_use]
    pub fn of(record: &PathsRecord) -> Self {
        let runs: Vec<&Run> = runs(record).collect();
        let mut rows = Vec::new();
        for &transport in &record.settings.transports {
            for is_cold in [false, true] {
                let has = |name: &Name| {
                    runs.iter()
                        .any(|r| is_of(r, transport, *name, MTU_PACKET_BYTES, is_cold))
                };
                let names = Name::ALL.into_iter().filter(has);
                rows.extend(names.map(|name| Row::of(&runs, transport, name, is_cold)));
            }
        }
        let verdicts = CLAIMS
            .iter()
            .filter_map(|&(transport, of, to, part_max, by)| {
                let asked = |name: Name| record.settings.paths.iter().any(|n| n == name.as_str());
                (record.settings.transports.contains(&transport) && asked(of) && asked(to)).then(
                    || Verdict {
                        transport,
                        of,
                        to,
                        part_max,
                        by,
                        part: Summary::of(&parts(record, transport, of, to)),
                    },
                )
            });
        let void: Vec<_> = unmended(&runs).collect();
        let crossing_ns = record.runs.iter().find_map(|sample| match sample {
            Sample::Crossing { ns } => Some(*ns),
            _ => None,
        });
        Self {
            rows,
            verdicts: verdicts.collect(),
            crossing_ns,
            void: void.len(),
            warnings: void
                .iter()
                .map(|run| {
                    let (transport, bytes, path) =
                        (run.transport.name(), run.packet_bytes, &run.path);
                    format!(
                        "void: {transport} {bytes} B {path}: {}",
                        run.void.join("; ")
                    )
                })
                .collect(),
        }
    }

    /// Whether no figure is void and all bounds were kept.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.void == 0 && self.verdicts.iter().all(Verdict::passed)
    }
}

impl Row {
    fn of(runs: &[&Run], transport: Transport, name: Name, is_cold: bool) -> Self {
        let at = |bytes: u32| {
            let of = move |run: &&&Run| {
                is_of(run, transport, name, bytes, is_cold) && run.void.is_empty()
            };
            runs.iter().filter(of)
        };
        let median = |value: &dyn Fn(&Run) -> f64| {
            let values: Vec<f64> = at(MTU_PACKET_BYTES).map(|run| value(run)).collect();
            Summary::of(&values)
        };
        let each = |value: fn(&Run) -> u64| {
            median(&|run| ratio(value(run), run.packets.max(1))).map_or(0.0, |s| s.median)
        };
        let cost = |bytes: u32| {
            let costs: Vec<f64> = at(bytes)
                .map(|run| ratio(run.cpu_ns(), run.packets.max(1)))
                .collect();
            Some((f64::from(bytes), Summary::of(&costs)?.median))
        };
        Self {
            transport,
            name,
            is_cold,
            cpu_ns: median(&|run| ratio(run.cpu_ns(), run.packets.max(1))),
            user_ns: each(|run| run.user_ns),
            helper_ns: each(|run| run.helper_ns),
            busy_ns: each(|run| run.machine_busy_ns),
            prepare_ns: each(|run| run.prepare_ns),
            crossings: each(|run| run.crossings),
            packets_a_send: median(&|run| ratio(run.packets, run.sends.max(1)))
                .map_or(0.0, |s| s.median),
            byte_ns: [512, 1024, MTU_PACKET_BYTES]
                .into_iter()
                .map(cost)
                .collect::<Option<Vec<_>>>()
                .map(|points| slope(&points))
                .filter(|_| !is_cold && transport != Transport::Tcp),
        }
    }
}

impl Verdict {
    fn passed(&self) -> bool {
        self.part
            .as_ref()
            .is_some_and(|part| part.median <= self.part_max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for transport in [Transport::Uso, Transport::SoftwareGso, Transport::Tcp] {
            for is_cold in [false, true] {
                let rows = self
                    .rows
                    .iter()
                    .filter(|r| (r.transport, r.is_cold) == (transport, is_cold));
                let rows: Vec<_> = rows.collect();
                if !rows.is_empty() {
                    table(f, transport, is_cold, &rows)?;
                }
            }
        }
        if let Some(ns) = self.crossing_ns {
            writeln!(
                f,
                "\nA system call that does nothing takes {ns:.0} ns; the paper's took 920."
            )?;
        }
        for warning in self.warnings.iter().take(20) {
            writeln!(f, "warning: {warning}")?;
        }
        if self.warnings.len() > 20 {
            writeln!(
                f,
                "warning: and {} more void runs",
                self.warnings.len() - 20
            )?;
        }
        writeln!(
            f,
            "\n{:<13} {:<52} {:>9} {:>22}",
            "", "time taken, packets that fill a frame", "at most", "measured"
        )?;
        for verdict in &self.verdicts {
            let told = verdict.part.as_ref().map_or_else(
                || "VOID".to_owned(),
                |part| {
                    let percent = |x: f64| format!("{:.1}", x * 100.0);
                    format!(
                        "{} % ({}..{})",
                        percent(part.median),
                        percent(part.min),
                        percent(part.max)
                    )
                },
            );
            let what = format!("{} of {} ({})", verdict.of, verdict.to, verdict.by);
            let word = if verdict.passed() { "kept" } else { "MISSED" };
            let (transport, most) = (verdict.transport.name(), verdict.part_max * 100.0);
            writeln!(
                f,
                "{transport:<13} {what:<52} {most:>7.1} % {told:>22} {word}"
            )?;
        }
        Ok(())
    }
}

/// The paper's table 1 with our columns.
fn table(
    f: &mut fmt::Formatter<'_>,
    transport: Transport,
    is_cold: bool,
    rows: &[&Row],
) -> fmt::Result {
    let state = if is_cold { ", cold" } else { "" };
    writeln!(
        f,
        "\n{:<18} {:>11} {:>6} {:>7} {:>22} {:>5} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7}",
        format!("{}{state}", transport.name()),
        "paper: co,s",
        "copies",
        "cross.",
        "CPU ns/packet (range)",
        "user",
        "helper",
        "busy",
        "images",
        "pkt/snd",
        "ns/KB",
        "Gbit/s"
    )?;
    for row in rows {
        let facts = row.name.facts();
        let paper = match facts.family {
            Family::Modern => "-".to_owned(),
            _ => format!("{},{}", facts.paper.0, facts.paper.1),
        };
        let cost = row
            .cpu_ns
            .as_ref()
            .map_or_else(|| "void".to_owned(), |s| s.told(0));
        let median = row.cpu_ns.as_ref().map_or(f64::INFINITY, |s| s.median);
        let byte = row
            .byte_ns
            .map_or_else(|| "-".to_owned(), |ns| format!("{:.0}", ns * 1024.0));
        writeln!(
            f,
            "{:<18} {paper:>11} {:>6} {:>7.3} {cost:>22} {:>5.0} {:>6.0} {:>6.0} {:>7.0} {:>7.1} \
             {byte:>7} {:>7.1}",
            row.name.as_str(),
            facts.copies,
            row.crossings,
            row.user_ns,
            row.helper_ns,
            row.busy_ns,
            row.prepare_ns,
            row.packets_a_send,
            f64::from(MTU_PACKET_BYTES) * 8.0 / median
        )?;
    }
    Ok(())
}

/// The paper's figures 2 to 5, and one of the modern paths.
#[must_use]
pub fn drawings(record: &PathsRecord) -> Vec<Drawing> {
    let family = |wanted: Family| {
        Name::ALL
            .into_iter()
            .filter(move |n| n.facts().family == wanted)
    };
    let mut drawings = Vec::new();
    for &transport in &record.settings.transports {
        let mut add = |number: &str, title: &str, names: Vec<Name>, base: Option<Name>| {
            let title = match number {
                "modern" => format!("{title} ({})", transport.name()),
                _ => format!("{title} (figure {number}, {})", transport.name()),
            };
            let chart = figure(record, transport, &title, &names, base);
            let file = format!("figure-{number}-{}.svg", transport.name());
            drawings.extend(chart.map(|chart| Drawing { file, chart }));
        };
        if transport == Transport::Tcp {
            add(
                "3b",
                "Content download over TCP",
                family(Family::Download).collect(),
                None,
            );
            continue;
        }
        let rtp: Vec<_> = family(Family::Rtp).collect();
        let enhanced: Vec<_> = family(Family::Enhanced).collect();
        add(
            "3a",
            "Content download over UDP",
            family(Family::Download).collect(),
            None,
        );
        add("4a", "RTP streaming, existing calls", rtp.clone(), None);
        add(
            "4b",
            "RTP streaming, enhanced calls",
            enhanced.clone(),
            None,
        );
        let all = [rtp, enhanced].concat();
        add(
            "5",
            "RTP streaming beside read_writev",
            all,
            Some(Name::ReadWritev),
        );
        add(
            "modern",
            "RTP streaming, what came since",
            family(Family::Modern).collect(),
            None,
        );
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
        .series("memcpy", copies)
        .source(&record.environment);
    drawings.push(Drawing::new("figure-2.svg", chart));
    drawings
}

/// Processor time over packet size of these paths, or their part of `base`'s.
fn figure(
    record: &PathsRecord,
    transport: Transport,
    title: &str,
    names: &[Name],
    base: Option<Name>,
) -> Option<Chart> {
    let runs: Vec<&Run> = runs(record).collect();
    let cost = |name: Name, bytes: u32| {
        let of = |run: &&&Run| is_of(run, transport, name, bytes, false) && run.void.is_empty();
        // For a gigabyte of what is sent, the paper's measure.
        let costs = runs.iter().filter(of);
        let costs: Vec<_> = costs
            .map(|run| ratio(run.cpu_ns(), run.arrived_bytes.max(1)) * 1e9)
            .collect();
        Summary::of(&costs).map(|summary| summary.median)
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
        let points: Vec<(f64, f64)> = record
            .settings
            .packet_bytes
            .iter()
            .filter_map(|&bytes| {
                let base = base.map_or(Some(1.0), |base| cost(base, bytes))?;
                Some((f64::from(bytes), cost(name, bytes)? / base))
            })
            .collect();
        if !points.is_empty() {
            drawn += 1;
            chart = chart.series(name.as_str(), points);
        }
    }
    let chart = match transport {
        Transport::Tcp => chart,
        _ => chart.mark_x(f64::from(MTU_PACKET_BYTES), "MTU"),
    };
    (drawn > 0).then(|| chart.source(&record.environment))
}

fn runs(record: &PathsRecord) -> impl Iterator<Item = &Run> {
    record.runs.iter().filter_map(|sample| match sample {
        Sample::Path(run) => Some(run),
        _ => None,
    })
}

fn is_of(run: &Run, transport: Transport, name: Name, packet_bytes: u32, is_cold: bool) -> bool {
    (run.transport, run.packet_bytes, run.is_cold) == (transport, packet_bytes, is_cold)
        && run.path == name.as_str()
}

/// Void runs whose place no later attempt took.
fn unmended<'a>(runs: &'a [&Run]) -> impl Iterator<Item = &'a Run> {
    let place = |run: &Run| {
        (
            run.transport,
            run.packet_bytes,
            run.is_cold,
            run.repeat,
            run.path.clone(),
        )
    };
    runs.iter().copied().filter(move |run| {
        let is_mended = || {
            let mut valid = runs.iter().filter(|other| other.void.is_empty());
            valid.any(|other| place(other) == place(run))
        };
        run.attempt == super::REPEATS_OF_VOID_MAX && !run.void.is_empty() && !is_mended()
    })
}

/// `of`'s part of `to`'s time, by repeats that have both.
fn parts(record: &PathsRecord, transport: Transport, of: Name, to: Name) -> Vec<f64> {
    let cost = |name: Name, repeat: u32| {
        let wanted = |run: &&Run| {
            is_of(run, transport, name, MTU_PACKET_BYTES, false)
                && run.repeat == repeat
                && run.void.is_empty()
        };
        runs(record)
            .find(wanted)
            .map(|run| ratio(run.cpu_ns(), run.packets.max(1)))
    };
    let repeats = 0..record.settings.repeats;
    repeats
        .filter_map(|repeat| Some(cost(of, repeat)? / cost(to, repeat)?))
        .collect()
}

/// The slope of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = crate::stats::to_f64(points.len());
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let up: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    up / points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum::<f64>()
}
