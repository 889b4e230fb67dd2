//! What a load of downloads says of the server: the figures of a table, the verdict, and the
//! shares.

use onrush_wire::pace::schedule::jain;

use super::http::{HttpRecord, HttpRun, HttpSettings};
use super::report::{LATE_NS_MAX, Late, failed, judged, known, millis, own, reasons, start_up};
use crate::error::what_is;
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::ratio;
use crate::table::{Block, Column, Report, Table, Verdict, table};

/// What a record says.
#[must_use]
pub fn http_report(record: &HttpRecord) -> Report {
    let settings = &record.settings;
    let mut report = Report::new("What downloading clients saw");
    for run in &record.runs {
        let figures = Figures::of(settings, run);
        report.add([Drawing::new("shares.svg", chart(run))]);
        report.add([Table::of_names(
            "What clients saw",
            rows(settings, run, &figures),
        )]);
        report.add([Block::Folded(
            "Figures".to_owned(),
            vec![compared(run, &figures).into()],
        )]);
        report.add([figures.verdict]);
    }
    report
}

/// What a comparison takes.
fn compared(run: &HttpRun, figures: &Figures) -> Table {
    table! {
        "Figures", for of in ["clients"];
        Column::key("of") => of,
        Column::number("together", Unit::BitsPerSecond).more() => vec![figures.bits_a_second],
        Column::count("evenness", 4).more() => vec![figures.evenness],
        Column::ms("time to the first byte", 1).less() => run.first_byte_ns.clone(),
        Column::us("server's CPU per MiB", 1).less() => figures.server_ns_a_mib.map(|ns| vec![ns]),
    }
}

/// All that is to be told of a run.
#[derive(Clone, Debug)]
struct Figures {
    /// What all clients took together, in bit/s.
    bits_a_second: f64,
    /// What one client took, in bit/s: the least, the median, the most.
    client_bits_a_second: [f64; 3],
    /// How even the shares are: 1 if all are equal, 1/n if one of n has all (Jain's index).
    evenness: f64,
    /// Time to the first byte in ns: of half of the requests, of 99 in 100, of all; `None` without
    /// any.
    first_byte_ns: Option<[u64; 3]>,
    /// Processors that the server was busy on; `None` if nobody said which process it is.
    server_cores: Option<f64>,
    /// What the server spent on a MiB, in ns of processor time.
    server_ns_a_mib: Option<f64>,
    /// Processors that the load generator was busy on.
    own_cores: f64,
    /// Whether all came, and in time.
    verdict: Verdict,
}

impl Figures {
    /// What `run` says, by the budgets of `settings`.
    fn of(settings: &HttpSettings, run: &HttpRun) -> Self {
        let mut shares = bits_a_second(run);
        shares.sort_by(f64::total_cmp);
        let at = |place: usize| shares.get(place).copied().unwrap_or(0.0);
        let last = shares.len().saturating_sub(1);
        let evenness = jain(shares.iter().copied());
        let bytes: u64 = run.client_bytes.iter().sum();
        let cores = |cpu_ns: u64| ratio(cpu_ns, run.wall_ns);
        let first_byte_ns = start_up(&run.first_byte_ns);
        let own_cores = ratio(run.own_cpu_ns, run.wall_ns.max(1));
        Self {
            bits_a_second: shares.iter().sum(),
            client_bits_a_second: [at(0), at(last / 2), at(last)],
            evenness,
            first_byte_ns,
            server_cores: run.server.map(|usage| cores(usage.cpu_ns)),
            server_ns_a_mib: run
                .server
                .map(|usage| ratio(usage.cpu_ns, bytes) * f64::from(1 << 20)),
            own_cores,
            verdict: judged(
                "all that was asked for came",
                late(settings, evenness, first_byte_ns),
                failures(run),
                (own_cores, run.generator_late_ns_max),
            ),
        }
    }
}

/// The table of a run: names and values, for people.
fn rows(
    settings: &HttpSettings,
    run: &HttpRun,
    figures: &Figures,
) -> impl Iterator<Item = (String, String)> {
    let [least, median, most] = figures.client_bits_a_second.map(mbit);
    let first_byte = figures.first_byte_ns.map(|all| all.map(millis));
    let first_byte = first_byte.map(|[p50, p99, max]| {
        format!("p50 {p50:.1}, p99 {p99:.1}, max {max:.1} ms after the connection was begun")
    });
    let costs = figures.server_cores.zip(figures.server_ns_a_mib);
    let server = run.server.zip(costs).map(|(usage, (cores, mib_ns))| {
        let (percent, us, mib) = (cores * 100.0, mib_ns / 1000.0, usage.memory_bytes >> 20);
        format!("{percent:.1} % of a processor, {us:.1} us a MiB, {mib} MiB of memory")
    });
    let clients = format!(
        "{}; {} requests: {} downloads whole, {} broken off by the client, {} failed",
        settings.clients,
        run.requests,
        run.whole,
        run.broken_off,
        failed(&run.failures)
    );
    let together = format!("{:.1} Mbit a second together", mbit(figures.bits_a_second));
    let each = format!("least {least:.2}, median {median:.2}, most {most:.2} Mbit a second");
    let evenness = format!("{:.4} (Jain's index; 1: all alike)", figures.evenness);
    known([
        ("clients", Some(clients)),
        ("throughput", Some(together)),
        ("a client", Some(each)),
        ("evenness", Some(evenness)),
        ("first byte", first_byte),
        ("server", server),
        (
            "load generator",
            Some(own(figures.own_cores, run.generator_late_ns_max)),
        ),
    ])
}

/// What each client took, the slowest first.
fn chart(run: &HttpRun) -> Chart {
    let mut shares = bits_a_second(run);
    shares.sort_by(f64::total_cmp);
    let points = (1_u32..).zip(&shares);
    let points = points.map(|(number, &bits)| (f64::from(number), mbit(bits)));
    Chart::steps("What each client took, the slowest first")
        .x("client", Unit::Count)
        .y("Mbit a second", Unit::Count)
        .series("clients", points.collect::<Vec<_>>())
}

/// What each client took.
fn bits_a_second(run: &HttpRun) -> Vec<f64> {
    let bits = |&bytes: &u64| ratio(bytes * 8, run.wall_ns) * 1e9;
    run.client_bytes.iter().map(bits).collect()
}

/// What clients missed in time.
fn late(settings: &HttpSettings, evenness: f64, first_byte_ns: Option<[u64; 3]>) -> Vec<Late> {
    let budget_ns = settings.first_byte_ns_max.unwrap_or(u64::MAX);
    let p99 = first_byte_ns.map_or(0, |[_, p99, _]| p99);
    let (took, allowed) = (millis(p99), millis(budget_ns));
    let least = settings.evenness_min;
    let first = what_is! {
        p99 > budget_ns
            => "1 in 100 first bytes took longer than {took:.1} ms; {allowed:.1} ms are allowed";
    };
    let uneven = what_is! {
        evenness < least => "the shares' evenness is {evenness:.4}; at least {least} was to be";
    };
    let kinds = [(budget_ns / 2, first), (LATE_NS_MAX, uneven)];
    let each = |(ns, words): (u64, Vec<String>)| words.into_iter().map(move |it| (ns, it));
    kinds.into_iter().flat_map(each).collect()
}

/// What went wrong otherwise.
fn failures(run: &HttpRun) -> Vec<String> {
    let mut failures = what_is! {
        run.client_bytes.iter().sum::<u64>() == 0 => "nothing came";
    };
    failures.extend(reasons(&run.failures));
    failures
}

fn mbit(bits: f64) -> f64 {
    bits / 1e6
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::Usage;
    use super::*;
    use crate::table::Outcome;

    pub(crate) fn run() -> HttpRun {
        HttpRun {
            wall_ns: 2_000_000_000,
            requests: 3,
            whole: 2,
            broken_off: 1,
            failures: Vec::new(),
            bytes: 5 << 20,
            client_bytes: vec![3 << 20, 1 << 20],
            first_byte_ns: vec![5_000_000, 3_000_000],
            server: Some(Usage {
                cpu_ns: 1_000_000_000,
                memory_bytes: 64 << 20,
            }),
            own_cpu_ns: 500_000_000,
            generator_late_ns_max: None,
        }
    }

    fn settings() -> HttpSettings {
        HttpSettings {
            evenness_min: 0.79,
            first_byte_ns_max: Some(5_000_000),
            ..HttpSettings::new(vec!["http://h/<x>".to_owned()], 2)
        }
    }

    #[test]
    fn figures_are_those_of_the_run() {
        let figures = Figures::of(&settings(), &run());
        assert_eq!(figures.verdict.outcome, Outcome::Kept);
        let mib = f64::from(8 << 20) / 2.0;
        assert!((figures.bits_a_second - 4.0 * mib).abs() < 1e-6);
        for (share, expected) in figures.client_bits_a_second.iter().zip([1.0, 1.0, 3.0]) {
            assert!((share - expected * mib).abs() < 1e-6, "{share}");
        }
        // (3 + 1)^2 / (2 (9 + 1)).
        assert!((figures.evenness - 0.8).abs() < 1e-12);
        assert_eq!(
            figures.first_byte_ns,
            Some([3_000_000, 5_000_000, 5_000_000])
        );
        assert!((figures.server_cores.unwrap() - 0.5).abs() < 1e-12);
        assert!((figures.server_ns_a_mib.unwrap() - 250e6).abs() < 1e-3);
    }

    #[test]
    fn every_kind_of_trouble_is_told() {
        type Change = fn(&mut HttpSettings, &mut HttpRun);
        let wrong: [(Change, &str); 4] = [
            (
                |s, _| s.first_byte_ns_max = Some(4_999_999),
                "first bytes took",
            ),
            (|s, _| s.evenness_min = 0.81, "evenness is 0.8000"),
            (|_, r| r.client_bytes.clear(), "nothing came"),
            (
                |_, r| r.failures.push(("GET was answered 404".to_owned(), 3)),
                "3 times: GET was answered 404",
            ),
        ];
        for (change, said) in wrong {
            let (mut settings, mut run) = (settings(), run());
            change(&mut settings, &mut run);
            let Figures {
                evenness,
                first_byte_ns,
                verdict,
                ..
            } = Figures::of(&settings, &run);
            let missed = late(&settings, evenness, first_byte_ns).len() + failures(&run).len();
            assert_eq!(
                (verdict.outcome, missed),
                (Outcome::Missed, 1),
                "{verdict:?}"
            );
            assert!(verdict.found.contains(said), "{verdict:?}");
        }
    }

    #[test]
    fn a_generator_that_stalls_voids_what_was_late_alone() {
        type Change = fn(&mut HttpSettings, &mut HttpRun);
        let judged = |change: Change, own_late_ns: u64, own_cpu_ns: u64| {
            let (mut settings, mut run) = (settings(), run());
            change(&mut settings, &mut run);
            (run.generator_late_ns_max, run.own_cpu_ns) = (Some(own_late_ns), own_cpu_ns);
            Figures::of(&settings, &run).verdict.outcome
        };
        let busy_ns = run().wall_ns;
        let nothing: Change = |_, _| ();
        assert_eq!(judged(nothing, u64::MAX, busy_ns), Outcome::Kept);
        let slow: Change = |s, _| s.first_byte_ns_max = Some(4_000_000);
        assert_eq!(judged(slow, 2_000_000, 0), Outcome::Missed);
        assert_eq!(judged(slow, 2_000_001, 0), Outcome::Void);
        assert_eq!(judged(slow, 0, busy_ns), Outcome::Void);
        let uneven: Change = |s, _| s.evenness_min = 0.81;
        assert_eq!(judged(uneven, 100_000_000, 0), Outcome::Missed);
        assert_eq!(judged(uneven, 100_000_001, 0), Outcome::Void);
        // What is not there is not there, however late somebody asks.
        let failed: Change = |s, run| {
            s.evenness_min = 0.81;
            run.failures.push(("GET was answered 404".to_owned(), 3));
        };
        assert_eq!(judged(failed, u64::MAX, busy_ns), Outcome::Missed);
    }
}
