//! What a record says: real nodes and simulated ones, side by side.

use super::record::{ClusterRecord, Run, Second, Settings, Visit};
use crate::plot::Unit;
use crate::stats::{median, ratio};
use crate::table::{Column, Report, Table, Verdict, table};

/// What the busiest node may play, over the mean.
const SPREAD_MAX: f64 = 1.15;
/// How often a viewer may be sent on, on average.
const REDIRECTS_MAX: f64 = 1.0;
/// Of the viewers who are there so many are played to, at the least: some come and leave meanwhile.
const HELD_MIN: f64 = 0.97;
/// How far the simulation may be off.
const APART_MAX: f64 = 0.1;

/// Figures of one side.
struct Side {
    name: &'static str,
    joins: f64,
    warm: f64,
    spread: Vec<f64>,
    redirects: f64,
}

/// What a record says.
#[must_use]
pub fn report(record: &ClusterRecord) -> Report {
    let settings = &record.settings;
    let simulated = &settings.simulated;
    let mut report = Report::new("Real nodes and simulated ones");
    report.text(format!(
        "{} viewers at once of {} films at {} on {} nodes, who stay for {} s on average and ask \
         any node first; the same who come to the simulated nodes come to the real ones, in the \
         same seconds",
        simulated.viewers,
        simulated.films,
        Unit::BitsPerSecond.tell(ratio(simulated.rate_bps, 1)),
        simulated.nodes,
        simulated.stay_s,
    ));
    report.add([beside(record), served(record)]);
    for run in &record.runs {
        report.warn(run.failures.iter().cloned());
        report.add(verdicts(settings, run));
    }
    report
}

fn beside(record: &ClusterRecord) -> Table {
    let settings = &record.settings;
    let sides = record
        .runs
        .iter()
        .flat_map(|run| [real(settings, run), simulated(run)]);
    let mut table = table! {
        format!("While {} s go by", settings.simulated.observe_s), for side in sides;
        Column::key("nodes") => side.name.to_owned(),
        Column::count("came", 0) => vec![side.joins],
        Column::percent("film was there", 2).more() => vec![side.warm],
        Column::count("busiest over mean", 3).less() => Vec::from_iter(median(&side.spread)),
        Column::count("at the most", 3).less() => vec![most(&side.spread)],
        Column::count("redirects a viewer", 3).less() => vec![side.redirects],
    };
    table.note("busiest over mean: of each second, streams that nodes play");
    table
}

fn served(record: &ClusterRecord) -> Table {
    table! {
        "From the first viewer to the last, of the real nodes", for run in &record.runs;
        Column::count("viewers", 0) => vec![ratio(run.visits.len() as u64, 1)],
        Column::count("failed", 0).less() => vec![ratio(run.failed, 1)],
        Column::count("at once", 0) => Vec::from_iter(median(at_once(run))),
        Column::percent("where the simulation has them", 1) =>
            vec![ratio(alike(run), run.visits.len() as u64)],
        Column::ms("until played to", 1).less() => Vec::from_iter(median(joined(run))),
        Column::ms("came late", 1).less() => Vec::from_iter(median(late(run))),
        Column::count("RTP packets", 0) => vec![ratio(run.packets_sent, 1)],
        Column::number("read of films", Unit::Bytes) => vec![ratio(run.read_bytes, 1)],
    }
}

fn verdicts(settings: &Settings, run: &Run) -> Vec<Verdict> {
    let (real, simulated) = (real(settings, run), simulated(run));
    let followed: u64 = run.visits.iter().map(|it| u64::from(it.redirects)).sum();
    let played = run.visits.iter().filter(|it| it.served.is_some()).count() as u64;
    let counted = |what: &str, by_nodes: u64, by_viewers: u64| {
        let found = format!("{by_nodes} and {by_viewers}");
        Verdict::new(what, found, by_nodes == by_viewers)
    };
    vec![
        Verdict::at_most(
            "the busiest node in any second, over the mean",
            [most(&real.spread)],
            SPREAD_MAX,
            3,
        ),
        Verdict::at_most("redirects a viewer", [real.redirects], REDIRECTS_MAX, 3),
        Verdict::at_least(
            "viewers that nodes play to, of those who are there",
            [held(run)],
            HELD_MIN,
            3,
        ),
        Verdict::at_most(
            "viewers whom something went wrong for",
            [ratio(run.failed, 1)],
            0.0,
            0,
        ),
        Verdict::at_most(
            "packets that did not come",
            [ratio(run.sequence_missing, 1)],
            0.0,
            0,
        ),
        counted(
            "packets that nodes sent and viewers got",
            run.packets_sent,
            run.packets_sunk,
        ),
        counted(
            "redirects that nodes answered and viewers followed",
            run.sent_on,
            followed,
        ),
        counted(
            "sessions of nodes, and viewers who were played to",
            run.sessions,
            played,
        ),
        apart("film was there", real.warm, simulated.warm),
        apart(
            "busiest over mean",
            middle(&real.spread),
            middle(&simulated.spread),
        ),
        apart("redirects a viewer", real.redirects, simulated.redirects),
    ]
}

/// How far real nodes are from simulated ones, as a part of these.
fn apart(what: &str, real: f64, simulated: f64) -> Verdict {
    let what = format!("{what}: real from simulated, as a part");
    if simulated == 0.0 {
        return Verdict::void(what, "the simulation has none");
    }
    let apart = (real - simulated).abs() / simulated;
    Verdict::at_most(what, [apart], APART_MAX, 3)
}

fn real(settings: &Settings, run: &Run) -> Side {
    let counts = |it: &&Visit| it.at_s > settings.counted_from_s() && it.served.is_some();
    let visits: Vec<_> = run.visits.iter().filter(counts).collect();
    let joins = visits.len() as u64;
    let warm = visits.iter().filter(|it| it.is_warm).count() as u64;
    let redirects: u64 = visits.iter().map(|it| u64::from(it.redirects)).sum();
    Side {
        name: "real",
        joins: ratio(joins, 1),
        warm: ratio(warm, joins.max(1)),
        spread: run.seconds.iter().map(spread).collect(),
        redirects: ratio(redirects, joins.max(1)),
    }
}

fn simulated(run: &Run) -> Side {
    let it = &run.simulated;
    Side {
        name: "simulated",
        joins: ratio(it.joins, 1),
        warm: ratio(it.warm, it.joins.max(1)),
        spread: it.spread.clone(),
        redirects: ratio(it.redirects, it.joins.max(1)),
    }
}

fn spread(second: &Second) -> f64 {
    let all: u64 = second.playing.iter().sum();
    let most = second.playing.iter().copied().max().unwrap_or(0);
    ratio(most * second.playing.len() as u64, all.max(1))
}

fn at_once(run: &Run) -> Vec<f64> {
    let all = |it: &Second| ratio(it.playing.iter().sum(), 1);
    run.seconds.iter().map(all).collect()
}

/// Of the viewers who are there, the part that nodes play to.
fn held(run: &Run) -> f64 {
    let part = |it: &Second| ratio(it.playing.iter().sum(), it.due.max(1));
    middle(&Vec::from_iter(run.seconds.iter().map(part)))
}

fn alike(run: &Run) -> u64 {
    let is_alike = |it: &&Visit| it.served == Some(it.simulated);
    run.visits.iter().filter(is_alike).count() as u64
}

fn joined(run: &Run) -> Vec<f64> {
    run.visits.iter().map(|it| ratio(it.joined_ns, 1)).collect()
}

fn late(run: &Run) -> Vec<f64> {
    run.visits.iter().map(|it| ratio(it.late_ns, 1)).collect()
}

fn middle(of: &[f64]) -> f64 {
    median(of).unwrap_or(0.0)
}

fn most(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}
