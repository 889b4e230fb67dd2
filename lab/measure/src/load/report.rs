//! What a load says of the server: the figures of a table, the verdict, and packets by lateness.

use super::{Behaviour, LoadRecord, NOT_LET_IN, Receive, Run, Settings};
use crate::error::what_is;
use crate::histogram::STEP_NS;
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{Number, ratio, to_f64};
use crate::table::{Block, Column, Report, Table, Verdict, table};

/// Who does not look at what comes is to get so large a part of the bytes of those who do: films
/// begin at different moments, and are not of one rate at each.
const UNREAD_PART_MIN: f64 = 0.9;

/// A load generator that took more of its one processor than this could not have taken more.
const OWN_CORES_MAX: f64 = 0.95;

/// A load generator that is no later than this itself is not to blame for what its clients missed,
/// unless they may be late by less: players have more than this in their buffers.
pub(super) const LATE_NS_MAX: u64 = 100_000_000;

/// What came too late in words, behind how late a load generator may be itself and is not to blame
/// for it.
pub(super) type Late = (u64, String);

/// What a record says.
#[must_use]
pub fn report(record: &LoadRecord) -> Report {
    let settings = &record.settings;
    let mut report = Report::new("What viewers saw");
    for run in &record.runs {
        let figures = Figures::of(settings, run);
        report.add([Drawing::new("lateness.svg", chart(settings, run))]);
        report.add([Table::of_names(
            "What viewers saw",
            rows(settings, run, &figures),
        )]);
        report.add([Block::Folded(
            "Figures".to_owned(),
            vec![compared(settings, run, &figures).into()],
        )]);
        report.add([verdict(run, &figures)]);
    }
    report
}

/// Whether all was in time; void if packets came, and nobody can say when.
fn verdict(run: &Run, figures: &Figures) -> Verdict {
    let what = "on time, and nothing lost";
    let is_unseen = run.packets_steady > 0 && figures.lateness_ns.is_none();
    match is_unseen && figures.missed.is_empty() {
        true => Verdict::void(what, "of no packet that came is known when it was due"),
        false => figures.verdict(),
    }
}

/// What a comparison takes.
fn compared(settings: &Settings, run: &Run, figures: &Figures) -> Table {
    table! {
        "Figures", for of in ["viewers"];
        Column::key("of") => of,
        Column::key("transport") => settings.transport.name(),
        Column::ns("server's CPU per packet", 0).less()
            => figures.server_ns_a_packet.map(|ns| vec![ns]),
        Column::ms("late, 999 of 1000", 1).less()
            => figures.lateness_ns.map(|[_, _, late_ns, _]| vec![late_ns]),
        Column::count("packets lost", 0).none() => vec![run.totals.lost],
        Column::ms("time to the first packet", 1).less() => run.start_up_ns.clone(),
    }
}

/// All that is to be told of a run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Packets a second, while all watched.
    pub packets_a_second: f64,
    /// Payload a second in bit, in the mean over the whole run.
    pub bits_a_second: f64,
    /// Lateness in ns of half of the packets, of 99 in 100, of 999 in 1000, and of all; `None`
    /// without any.
    pub lateness_ns: Option<[i64; 4]>,
    /// The part of the packets that was late.
    pub late_part: f64,
    /// Time to the first packet in ns: of half of the visits, of 99 in 100, of all; `None` without
    /// any.
    pub start_up_ns: Option<[u64; 3]>,
    /// Processors that the server was busy on, on average; `None` if nobody said which process it
    /// is.
    pub server_cores: Option<f64>,
    /// What the server spent on a packet, in ns of processor time.
    pub server_ns_a_packet: Option<f64>,
    /// Processors that the load generator was busy on.
    pub own_cores: f64,
    /// What is wrong with what was seen, in words; empty if nothing is.
    pub missed: Vec<String>,
    /// Why that may be the load generator's fault, in words; empty if it is not.
    pub void: Vec<String>,
}

impl Figures {
    /// What `run` says, by the budget of `settings`.
    #[must_use]
    pub fn of(settings: &Settings, run: &Run) -> Self {
        let lateness = &run.lateness;
        let quantiles = [0.5, 0.99, 0.999, 1.0].map(|part| lateness.quantile_ns(part));
        let late_part = ratio(
            lateness.later_than(settings.lateness_ns_max),
            lateness.total(),
        );
        let a_second = |count: u64| ratio(count, run.wall_ns) * 1e9;
        let bytes_a_packet = ratio(run.totals.bytes, run.totals.packets);
        let cores = |cpu_ns: u64| ratio(cpu_ns, run.wall_ns);
        Self {
            packets_a_second: a_second(run.packets_of_all()),
            bits_a_second: a_second(run.packets_of_all()) * bytes_a_packet * 8.0,
            lateness_ns: (lateness.total() > 0).then(|| quantiles.map(Option::unwrap_or_default)),
            late_part,
            start_up_ns: start_up(&run.start_up_ns),
            server_cores: run.server.map(|usage| cores(usage.cpu_ns)),
            server_ns_a_packet: run
                .server
                .map(|usage| ratio(usage.cpu_ns, run.packets_of_all())),
            own_cores: cores(run.own_cpu_ns),
            missed: missed(settings, run, late_part),
            void: void(settings, run),
        }
    }

    /// Whether all was on time. What was missed while the load generator was late itself proves
    /// nothing; what was held then, was held.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        excused("on time, and nothing lost", &self.missed, &self.void)
    }
}

/// Whether all came that was to come, and in time. What was late proves nothing where the load
/// generator may be to blame for all of it, which took so much of its processor and was so late
/// itself; what failed did so whoever was late. In records from before nobody looked.
pub(super) fn judged(
    what: &str,
    late: Vec<Late>,
    failed: Vec<String>,
    (own_cores, own_late_ns): (f64, Option<u64>),
) -> Verdict {
    let may_be_late_ns = late.iter().map(|&(ns, _)| ns).max();
    let void = match own_late_ns.zip(may_be_late_ns) {
        Some((own_ns, may_ns)) if failed.is_empty() => to_blame(own_cores, own_ns, may_ns),
        _ => Vec::new(),
    };
    let late = late.into_iter().map(|(_, words)| words);
    excused(what, &late.chain(failed).collect::<Vec<_>>(), &void)
}

/// What was to be so is, unless something is said against it that nothing excuses.
fn excused(what: &str, missed: &[String], void: &[String]) -> Verdict {
    if missed.is_empty() || void.is_empty() {
        return Verdict::unless(what, missed);
    }
    let (missed, void) = (missed.join("; "), void.join("; "));
    Verdict::void(what, format!("{missed}; but {void}"))
}

/// What is said of a load generator that may be to blame.
fn to_blame(own_cores: f64, own_late_ns: u64, may_be_late_ns: u64) -> Vec<String> {
    let late = millis(own_late_ns);
    what_is! {
        own_cores > OWN_CORES_MAX
            => "the load generator took {:.0} % of its processor", own_cores * 100.0;
        own_late_ns > may_be_late_ns => "the load generator was {late:.0} ms late itself";
    }
}

/// The table of a run: names and values, for people.
fn rows(
    settings: &Settings,
    run: &Run,
    figures: &Figures,
) -> impl Iterator<Item = (String, String)> {
    let totals = &run.totals;
    let bits = bits(match totals.packets {
        0 => 0.0,
        _ => figures.bits_a_second,
    });
    let viewers = format!(
        "{} wanted, {} watching at the end; {} visits, {} failed",
        settings.clients,
        run.watching,
        run.visits,
        failed(&run.failures)
    );
    let packets = format!(
        "{} received, {} lost, {} out of order, {} twice; {:.0} and {bits} a second",
        totals.packets, totals.lost, totals.reordered, totals.repeated, figures.packets_a_second,
    );
    let late = figures.lateness_ns.map(|all| all.map(millis));
    let late = late.map(|[p50, p99, p999, max]| {
        let (percent, most) = (figures.late_part * 100.0, millis(settings.lateness_ns_max));
        format!(
            "p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1} ms; {percent:.4} % later \
             than {most} ms"
        )
    });
    let burst = format!("{} packets of a stream together", totals.burst_packets_max);
    let start_up = figures.start_up_ns.map(|all| all.map(millis));
    let start_up = start_up.map(|[p50, p99, max]| {
        format!("p50 {p50:.1}, p99 {p99:.1}, max {max:.1} ms to the first packet")
    });
    let costs = figures.server_cores.zip(figures.server_ns_a_packet);
    let server = run.server.zip(costs).map(|(usage, (cores, ns))| {
        let (percent, mib) = (cores * 100.0, usage.memory_bytes >> 20);
        format!("{percent:.1} % of a processor, {ns:.0} ns a packet, {mib} MiB")
    });
    known([
        ("transport", Some(transport(settings))),
        ("viewers", Some(viewers)),
        ("packets", Some(packets)),
        ("lateness", late),
        ("buffer", buffer(settings, run)),
        ("longest burst", Some(burst)),
        ("start-up", start_up),
        ("server", server),
        ("load generator", Some(generator(figures.own_cores, run))),
    ])
}

/// What players would have had to buffer; `None` if nobody followed that.
pub(crate) fn buffer(settings: &Settings, run: &Run) -> Option<String> {
    let (playouts, buffer_ns) = run.playouts.as_ref().zip(settings.buffer_ns)?;
    let [p50, p99, p999, worst] =
        [0.5, 0.99, 0.999, 1.0].map(|part| playouts.needed_ns(part).map_or(0.0, millis));
    let (viewers, beyond) = (playouts.viewers, playouts.beyond(buffer_ns));
    (viewers > 0).then(|| {
        format!(
            "for 999 of 1000 packets of each of {viewers} viewers: p50 {p50:.2}, p99 {p99:.2}, \
             p99.9 {p999:.2}, worst {worst:.2} ms; {beyond} need more than {} ms; {} packets due \
             did not come",
            millis(buffer_ns),
            playouts.missing,
        )
    })
}

/// How busy and how late the load generator was.
fn generator(cores: f64, run: &Run) -> String {
    let told = own(cores, run.generator.map(|it| it.late_ns_max));
    match run.generator.map(|it| millis(it.unread_ns_max)) {
        None => told,
        Some(unread) => format!("{told}, and packets lay unread {unread:.1} ms"),
    }
}

/// How packets came, and who looked at them.
fn transport(settings: &Settings) -> String {
    let (name, looking) = (settings.transport.name(), settings.inspected());
    match settings.transport.is_interleaved() {
        true => format!(
            "{name}; {looking} viewers look at packets, which are told of below; the others throw \
             away what comes"
        ),
        false => name.to_owned(),
    }
}

/// Of the bytes that each viewer gets who looks at them, the part that each of the others gets;
/// `None` if there are not both, or they may watch films of other rates.
fn unread_part(settings: &Settings, run: &Run) -> Option<f64> {
    let connections = run.connections?;
    let (looking, all) = (settings.inspected(), settings.clients);
    let is_alike = settings.urls.len() == 1 && settings.behaviour == Behaviour::default();
    let is_both = is_alike && connections.inspected_bytes > 0 && looking < all;
    let a_viewer = |bytes: u64, viewers: u32| to_f64(bytes) / f64::from(viewers);
    is_both.then(|| {
        a_viewer(connections.unread_bytes, all - looking)
            / a_viewer(connections.inspected_bytes, looking)
    })
}

/// What there is to be told, by name.
pub(super) fn known(
    rows: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> impl Iterator<Item = (String, String)> {
    let rows = rows.into_iter();
    rows.filter_map(|(name, told)| Some((name.to_owned(), told?)))
}

/// How busy whoever makes the load was, and how late its timers rang, if somebody looked.
pub(super) fn own(cores: f64, late_ns_max: Option<u64>) -> String {
    let busy = format!("{:.1} % of a processor", cores * 100.0);
    match late_ns_max.map(millis) {
        None => busy,
        Some(late) => format!("{busy}; its timers rang {late:.1} ms late at the most"),
    }
}

/// How often something else than a client ended what it did.
pub(super) fn failed(failures: &[(String, u64)]) -> u64 {
    failures.iter().map(|(_, count)| count).sum()
}

fn missed(settings: &Settings, run: &Run, late_part: f64) -> Vec<String> {
    let (lost, twice) = (run.totals.lost, run.totals.repeated);
    let (watching, clients) = (run.watching, settings.clients);
    let (budget, percent) = (millis(settings.lateness_ns_max), late_part * 100.0);
    let unread = unread_part(settings, run).unwrap_or(1.0);
    // Those who left of their own accord are on their way back.
    let is_all = settings.behaviour.stay_ns == 0;
    let wanted = settings.aim.unwrap_or(if is_all { clients } else { 0 });
    // Judged by what players would have had to buffer, where that was followed.
    let is_by_packet = run.playouts.is_none() || settings.buffer_ns.is_none();
    let mut missed = what_is! {
        is_by_packet && late_part > settings.late_part_max
            => "{percent:.3} % of the packets were later than {budget} ms; {} % may be",
                settings.late_part_max * 100.0;
        lost > 0 => "{lost} packets were lost";
        twice > 0 => "{twice} packets came twice";
        run.packets_steady == 0 => "no packet came";
        unread < UNREAD_PART_MIN
            => "viewers who do not look at what comes got {:.0} % of the bytes of those who do",
                unread * 100.0;
        watching < wanted
            => "{watching} of {wanted} viewers watched at the end";
    };
    missed.extend(too_late(settings, run));
    let is_room = |reason: &String| settings.aim.is_some() && reason.ends_with(NOT_LET_IN);
    missed.extend(reasons(&run.failures).filter(|reason| !is_room(reason)));
    missed
}

/// What viewers miss whose players buffer so much, and who wait so long for a first packet.
fn too_late(settings: &Settings, run: &Run) -> Vec<String> {
    let Some((playouts, buffer_ns)) = run.playouts.as_ref().zip(settings.buffer_ns) else {
        return Vec::new();
    };
    let (viewers, beyond, missing) = (
        playouts.viewers,
        playouts.beyond(buffer_ns),
        playouts.missing,
    );
    let worst = playouts.needed_ns(1.0).map_or(0.0, millis);
    let part_max = settings.late_part_max;
    let is_late = to_f64(beyond) > to_f64(viewers) * part_max;
    // Who still waits is the slowest of all.
    let slow = run
        .start_up_ns
        .iter()
        .filter(|&&ns| ns > settings.start_up_ns_max);
    let slow = slow.count() as u64 + run.unserved;
    let wanted = run.start_up_ns.len() as u64 + run.unserved;
    let is_slow = to_f64(slow) > to_f64(wanted) * part_max;
    what_is! {
        is_late
            => "{beyond} of {viewers} viewers would have had to buffer more than {} ms for 999 of \
                1000 packets, one of them {worst:.1} ms", millis(buffer_ns);
        missing > 0 && part_max < 1.0 => "{missing} packets were due and did not come";
        is_slow
            => "{slow} of {wanted} viewers waited more than {} s for a first packet, {} of them to \
                the end", millis(settings.start_up_ns_max) / 1e3, run.unserved;
    }
}

/// Why what was missed may be the load generator's fault. The sink and the kernel stamp datagrams
/// when they come; frames of connections are late when they are read late.
fn void(settings: &Settings, run: &Run) -> Vec<String> {
    let Some(own) = run.generator else {
        return Vec::new();
    };
    let own_cores = ratio(run.own_cpu_ns, run.wall_ns.max(1));
    let may_be_read_late_ns = match settings.transport.is_interleaved() {
        true => u64::try_from(settings.lateness_ns_max).unwrap_or(0),
        false => u64::MAX,
    };
    let may_be_late_ns = may_be_read_late_ns.min(settings.start_up_ns_max / 2);
    let mut void = what_is! {
        own.dropped > 0 && settings.receive == Receive::Sockets
            => "the load generator's sockets had no room for {} packets", own.dropped;
    };
    void.extend(to_blame(own_cores, own.late_ns_max, may_be_late_ns));
    void
}

/// How often something else than a client ended what it did, by reason.
pub(super) fn reasons(failures: &[(String, u64)]) -> impl Iterator<Item = String> {
    let failures = failures.iter();
    failures.map(|(reason, count)| format!("{count} times: {reason}"))
}

/// The least of these that half of them do not exceed, that 99 in 100 do not, and that none does;
/// `None` without any.
pub(super) fn start_up(samples: &[u64]) -> Option<[u64; 3]> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let within = |percent: usize| (sorted.len() * percent).div_ceil(100).checked_sub(1);
    let places = [within(50)?, within(99)?, within(100)?];
    Some(places.map(|place| sorted[place]))
}

/// Packets by lateness, and the budget.
fn chart(settings: &Settings, run: &Run) -> Chart {
    let total = run.lateness.total();
    let (mut points, mut end_ns) = (Vec::new(), None);
    for (edge_ns, count) in run.lateness.slots() {
        // Empty slots between two that hold something are zero, not bridged.
        if let Some(end_ns) = end_ns.filter(|&end_ns| end_ns < edge_ns) {
            points.push((millis(end_ns), 0.0));
        }
        points.push((millis(edge_ns), ratio(count, total) * 100.0));
        end_ns = Some(edge_ns + STEP_NS);
    }
    points.extend(end_ns.map(|end_ns| (millis(end_ns), 0.0)));
    Chart::steps("Packets by lateness")
        .x("later than due by, ms", Unit::Count)
        .y("packets", Unit::Percent)
        .series("packets", points)
        .mark_x(millis(settings.lateness_ns_max), "budget")
}

pub(super) fn millis(ns: impl Number) -> f64 {
    to_f64(ns) / 1e6
}

fn bits(a_second: f64) -> String {
    if a_second >= 1e9 {
        format!("{:.2} Gbit", a_second / 1e9)
    } else {
        format!("{:.1} Mbit", a_second / 1e6)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use onrush_testkit::playout::{Played, Playouts};

    use super::super::{Arrived, Connections, Generator, Stream, Transport, Usage};
    use super::*;
    use crate::histogram::Histogram;
    use crate::table::Outcome;

    pub(crate) fn run() -> Run {
        let mut lateness = Histogram::default();
        lateness.count(1_000_000, 999);
        lateness.count(30_000_000, 1);
        Run {
            wall_ns: 2_000_000_000,
            visits: 2,
            failures: Vec::new(),
            acts: crate::load::Acts::default(),
            played: 2,
            watching: 2,
            totals: Arrived {
                packets: 1500,
                bytes: 1500 * 1328,
                ..Arrived::default()
            },
            lateness,
            packets_steady: 1000,
            start_up_ns: vec![5_000_000, 3_000_000],
            unserved: 0,
            playouts: None,
            generator: None,
            server: Some(Usage {
                cpu_ns: 1_000_000_000,
                memory_bytes: 64 << 20,
            }),
            own_cpu_ns: 500_000_000,
            streams: vec![Stream {
                url: 0,
                begin_ns: 0,
                watched_ns: 1,
                arrived: Arrived::default(),
                played: None,
            }],
            packets_sunk: None,
            slices: Vec::new(),
            connections: None,
        }
    }

    fn settings() -> Settings {
        Settings::new(vec!["rtsp://h/<x>".to_owned()], 2)
    }

    #[test]
    fn figures_are_those_of_the_run() {
        let figures = Figures::of(&settings(), &run());
        assert_eq!(figures.missed, [""; 0]);
        assert!((figures.packets_a_second - 500.0).abs() < 1e-9);
        assert!((figures.bits_a_second - 500.0 * 1328.0 * 8.0).abs() < 1e-3);
        assert!((figures.late_part - 0.001).abs() < 1e-12);
        assert_eq!(figures.start_up_ns, Some([3_000_000, 5_000_000, 5_000_000]));
        assert!((figures.server_cores.unwrap() - 0.5).abs() < 1e-12);
        assert!((figures.server_ns_a_packet.unwrap() - 1e6).abs() < 1e-6);
        assert_eq!(figures.lateness_ns.unwrap()[2], 1_100_000);
    }

    #[test]
    fn one_of_a_hundred_may_be_beyond_and_no_part_of_one() {
        let of = |count: u64| start_up(&(1..=count).rev().collect::<Vec<_>>());
        assert_eq!((of(0), of(1)), (None, Some([1, 1, 1])));
        assert_eq!((of(2), of(3)), (Some([1, 2, 2]), Some([2, 3, 3])));
        assert_eq!((of(10), of(99)), (Some([5, 10, 10]), Some([50, 99, 99])));
        assert_eq!(of(100), Some([50, 99, 100]));
        assert_eq!(of(101), Some([51, 100, 101]));
        assert_eq!(of(200), Some([100, 198, 200]));
    }

    #[test]
    fn viewers_who_do_not_look_get_as_much_as_the_others() {
        let settings = Settings {
            transport: Transport::Tcp,
            inspected: 1,
            ..settings()
        };
        let missed = |unread_bytes| {
            let mut run = run();
            run.connections = Some(Connections {
                inspected_bytes: 1000,
                unread_bytes,
            });
            Figures::of(&settings, &run).missed
        };
        assert_eq!(missed(900), [""; 0]);
        assert!(missed(899)[0].contains("got 90 % of the bytes"));
        let all_look = Settings {
            inspected: 2,
            ..settings.clone()
        };
        assert_eq!(unread_part(&all_look, &run()), None);
    }

    #[test]
    fn with_an_aim_others_may_be_refused() {
        let aimed = |aim, watching| {
            let settings = Settings {
                aim: Some(aim),
                clients: 5,
                ..settings()
            };
            let mut run = run();
            run.watching = watching;
            run.failures.push((NOT_LET_IN.to_owned(), 3));
            Figures::of(&settings, &run).missed
        };
        assert_eq!(aimed(2, 2), [""; 0]);
        assert_eq!(aimed(3, 2), ["2 of 3 viewers watched at the end"]);
        let mut run = run();
        run.failures.push((NOT_LET_IN.to_owned(), 3));
        let without = Figures::of(&settings(), &run).missed;
        assert_eq!(without, [format!("3 times: {NOT_LET_IN}")]);
    }

    #[test]
    fn packets_that_nobody_looked_at_prove_nothing() {
        let outcome = |run: &Run| super::verdict(run, &Figures::of(&settings(), run)).outcome;
        let (mut unseen, seen) = (run(), run());
        assert_eq!(outcome(&seen), Outcome::Kept);
        unseen.lateness = Histogram::default();
        assert_eq!(outcome(&unseen), Outcome::Void);
        unseen.totals.lost = 1;
        assert_eq!(outcome(&unseen), Outcome::Missed);
    }

    #[test]
    fn every_kind_of_trouble_is_told() {
        type Change = fn(&mut Run);
        let wrong: [(Change, &str); 6] = [
            (|r| r.lateness.count(25_000_000, 1), "later than 20 ms"),
            (|r| r.totals.lost = 1, "lost"),
            (|r| r.totals.repeated = 1, "twice"),
            (|r| r.packets_steady = 0, "no packet"),
            (|r| r.watching = 1, "1 of 2 viewers"),
            (
                |r| r.failures.push(("PLAY was answered 453".to_owned(), 3)),
                "3 times: PLAY was answered 453",
            ),
        ];
        for (change, said) in wrong {
            let mut run = run();
            change(&mut run);
            let missed = Figures::of(&settings(), &run).missed;
            assert_eq!(missed.len(), 1, "{missed:?}");
            assert!(missed[0].contains(said), "{missed:?}");
        }
    }

    /// A run of a thousand viewers who needed no more than they have, and all came at once.
    fn thousand() -> Run {
        let mut playouts = Playouts::default();
        for _ in 0..1000 {
            playouts.add(Played {
                packets: 1000,
                needed_ns: 21_000_000,
                ..Played::default()
            });
        }
        Run {
            start_up_ns: vec![30_000_000; 1000],
            playouts: Some(playouts),
            generator: Some(Generator::default()),
            ..run()
        }
    }

    fn verdict(settings: &Settings, run: &Run) -> (Outcome, String) {
        let verdict = Figures::of(settings, run).verdict();
        (verdict.outcome, verdict.found)
    }

    fn outcome(change: impl Fn(&mut Run)) -> (Outcome, String) {
        let mut run = thousand();
        change(&mut run);
        verdict(&settings(), &run)
    }

    #[test]
    fn each_planted_unfairness_turns_the_verdict() {
        assert_eq!(outcome(|_| ()), (Outcome::Kept, String::new()));
        type Change = fn(&mut Run);
        let starved = |run: &mut Run| {
            let playouts = run.playouts.as_mut().unwrap();
            playouts.add(Played::starved(2_000_000_000));
        };
        let late = |run: &mut Run| {
            let playouts = run.playouts.as_mut().unwrap();
            for _ in 0..2 {
                playouts.add(Played {
                    needed_ns: 61_000_000,
                    ..Played::default()
                });
            }
        };
        let missed: [(Change, &str); 5] = [
            // One viewer among a thousand is starved: its packets were due.
            (starved, "1 packets were due and did not come"),
            (
                late,
                "2 of 1002 viewers would have had to buffer more than 60 ms",
            ),
            // A sink, or anybody else on the way, drops a packet.
            (|run| run.totals.lost = 1, "1 packets were lost"),
            // First packets are late.
            (
                |run| run.start_up_ns[..2].fill(5_000_000_001),
                "2 of 1000 viewers waited more than 5 s for a first packet, 0 of",
            ),
            // They were refused, came again, and were refused to the end.
            (
                |run| run.unserved = 2,
                "2 of 1002 viewers waited more than 5 s",
            ),
        ];
        for (change, said) in missed {
            let (outcome, found) = outcome(change);
            assert_eq!(outcome, Outcome::Missed, "{said}");
            assert!(found.contains(said), "{found}");
        }
        // One of a thousand may wait, and one of a thousand may need more.
        assert_eq!(
            outcome(|run| run.start_up_ns[0] = u64::MAX).0,
            Outcome::Kept
        );
    }

    #[test]
    fn a_generator_that_stalls_voids_what_was_missed_alone() {
        type Change = fn(&mut Generator);
        let over_tcp = Settings {
            transport: Transport::Tcp,
            ..settings()
        };
        let stalls: [(&Settings, Change, &str); 3] = [
            (
                &settings(),
                |own| own.dropped = 3,
                "had no room for 3 packets",
            ),
            (
                &settings(),
                |own| own.late_ns_max = 3_000_000_000,
                "3000 ms late itself",
            ),
            (
                &over_tcp,
                |own| own.late_ns_max = 20_000_001,
                "20 ms late itself",
            ),
        ];
        for (settings, change, said) in stalls {
            let mut run = thousand();
            change(run.generator.as_mut().unwrap());
            assert_eq!(verdict(settings, &run).0, Outcome::Kept);
            run.totals.lost = 3;
            let (outcome, found) = verdict(settings, &run);
            assert_eq!(outcome, Outcome::Void);
            assert!(found.contains("3 packets were lost; but"), "{found}");
            assert!(found.contains(said), "{found}");
        }
        let mut busy = thousand();
        (busy.own_cpu_ns, busy.totals.lost) = (busy.wall_ns, 1);
        assert!(
            verdict(&settings(), &busy)
                .1
                .contains("took 100 % of its processor")
        );
        // Datagrams count from when they came: that they are read late excuses nothing.
        let (outcome, _) = outcome(|run| {
            run.generator.as_mut().unwrap().late_ns_max = 100_000_000;
            run.totals.lost = 1;
        });
        assert_eq!(outcome, Outcome::Missed);
    }

    #[test]
    fn a_record_from_before_is_judged_as_it_was() {
        let mut settings = settings();
        settings.buffer_ns = None;
        let mut run = thousand();
        run.playouts = None;
        assert_eq!(verdict(&settings, &run).0, Outcome::Kept);
        run.lateness.count(25_000_000, 2);
        assert!(verdict(&settings, &run).1.contains("later than 20 ms"));
        let mut old = serde_json::to_value(&run).unwrap();
        for name in ["unserved", "playouts", "generator"] {
            old.as_object_mut().unwrap().remove(name).expect(name);
        }
        let old: Run = serde_json::from_value(old).unwrap();
        assert_eq!((old.playouts, old.generator, old.unserved), (None, None, 0));
        let kept: Run = serde_json::from_value(serde_json::to_value(thousand()).unwrap()).unwrap();
        assert_eq!(kept, thousand());
    }
}
