//! What the samples say: means with 99.9 % intervals, the bounds, table 1, and the figures.

use std::fmt;

use onrush_testkit::testbed::Mode;

use super::slicing::Point;
use super::{Change, GroupRecord, GroupRun, Load, PLAIN, Run};
use crate::plot::{Chart, Drawing, Unit, Value};
use crate::stats::to_f64;

/// Everything that is told of a record.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    slices: Vec<(usize, Point, Mean)>,
    verdicts: Vec<Verdict>,
    void: usize,
    drawings: Vec<Drawing>,
}

/// A mean, and how far the true one may be off with a probability of 99.9 %, by Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean of the samples.
    pub mean: f64,
    /// Half the width of its interval; infinite for a single sample.
    pub half: f64,
}

/// Everything that was measured turn about, but for the way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    mode: Mode,
    load: Load,
    members: u16,
    change: Change,
}

#[derive(Clone, Debug)]
struct Row {
    case: Case,
    way: String,
    /// Time of a send, in ns, of each run that counts.
    send_ns: Vec<f64>,
    mean: Mean,
}

/// A bound, and whether it was kept.
#[derive(Clone, Debug)]
struct Verdict {
    what: String,
    /// The ratio that was found; `None` if nothing could be compared.
    found: Option<f64>,
    wanted_max: f64,
}

impl Mean {
    /// The mean of `samples`; `None` without any.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let count = to_f64(samples.len());
        if samples.is_empty() {
            return None;
        }
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
        let half = match samples.len() {
            1 => f64::INFINITY,
            n => t_quantile(n - 1) * (squares / (count - 1.0) / count).sqrt(),
        };
        Some(Self { mean, half })
    }
}

/// Student's t for so many degrees of freedom: 99.9 % lie between its negative and it (two-sided
/// tables).
fn t_quantile(freedom: usize) -> f64 {
    const TABLE: [f64; 20] = [
        636.619, 31.599, 12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587, 4.437, 4.318,
        4.221, 4.140, 4.073, 4.015, 3.965, 3.922, 3.883, 3.850,
    ];
    // Beyond the table its last value is too wide rather than too narrow.
    TABLE[freedom.clamp(1, TABLE.len()) - 1]
}

impl Report {
    /// The report of a record.
    #[must_use]
    pub fn of(record: &GroupRecord) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        let (mut slices, mut void) = (Vec::<(usize, Point, Vec<f64>)>::new(), 0);
        for run in &record.runs {
            match run {
                Run::Group(run) if !run.void.is_empty() => void += 1,
                Run::Group(run) => count(&mut rows, run),
                Run::Slice {
                    point,
                    bytes,
                    send_ns,
                    ..
                } => match slices.iter_mut().find(|s| (s.0, s.1) == (*bytes, *point)) {
                    Some(slice) => slice.2.push(*send_ns),
                    None => slices.push((*bytes, *point, vec![*send_ns])),
                },
            }
        }
        for row in &mut rows {
            row.mean = Mean::of(&row.send_ns).expect("a row has a sample");
        }
        let slices = slices.into_iter();
        let slices = slices.filter_map(|(bytes, point, ns)| Some((bytes, point, Mean::of(&ns)?)));
        let mut report = Self {
            verdicts: verdicts(&rows),
            rows,
            slices: slices.collect(),
            void,
            drawings: Vec::new(),
        };
        report.drawings = report.draw(record);
        report
    }

    /// Whether all bounds that could be judged were kept, and there were some.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.verdicts.is_empty() && self.verdicts.iter().all(Verdict::passed)
    }

    /// A send over the number of members, and where the time of a datagram goes.
    #[must_use]
    pub fn drawings(&self) -> &[Drawing] {
        &self.drawings
    }

    fn draw(&self, record: &GroupRecord) -> Vec<Drawing> {
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
                    for change in [Change::None, Change::All] {
                        // The paper's third curve: replacing matters where sends are cheap.
                        if change == Change::All && way != "kernel" {
                            continue;
                        }
                        let rows = self.rows.iter().filter(|row| {
                            row.way == *way
                                && (row.case.mode, row.case.load) == (mode, load)
                                && row.case.change == change
                        });
                        let points: Vec<_> = rows
                            .map(|row| (f64::from(row.case.members), value(row.mean)))
                            .collect();
                        let name = if change == Change::All {
                            format!("{way}, replaced")
                        } else {
                            way.clone()
                        };
                        if !points.is_empty() {
                            chart = chart.series(&name, points);
                        }
                    }
                }
                let name = format!("send-{}x{}-{}.svg", load.packets, load.bytes, mode.name());
                drawings.push(Drawing::new(name, chart.source(&record.environment)));
            }
        }
        if let Some(chart) = self.draw_slices() {
            let chart = chart.source(&record.environment);
            drawings.push(Drawing::new("slices.svg", chart));
        }
        drawings
    }

    fn draw_slices(&self) -> Option<Chart> {
        let mut sizes: Vec<_> = self.slices.iter().map(|slice| slice.0).collect();
        sizes.dedup();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            return None;
        }
        let mut chart = Chart::stacked("Where the time of a sendto goes")
            .y("time of a send", Unit::Nanoseconds)
            .categories(sizes.iter().map(|bytes| format!("{bytes} B")));
        for point in Point::ALL {
            let layers: Vec<_> = sizes
                .iter()
                .map(|&bytes| self.layer_ns(bytes, point))
                .collect();
            chart = chart.values(point.layer(), layers);
        }
        Some(chart)
    }

    /// What lies between the point before and this one, in ns.
    fn layer_ns(&self, bytes: usize, point: Point) -> f64 {
        let to = |point: Point| {
            let slice = self.slices.iter().find(|s| (s.0, s.1) == (bytes, point));
            slice.map_or(0.0, |slice| slice.2.mean)
        };
        let before = Point::ALL.iter().take_while(|&&p| p != point).last();
        // Noise may make a thin layer negative, which cannot be drawn.
        (to(point) - before.map_or(0.0, |&before| to(before))).max(0.0)
    }
}

fn count(rows: &mut Vec<Row>, run: &GroupRun) {
    let case = Case {
        mode: run.mode,
        load: run.load,
        members: run.members,
        change: run.change,
    };
    match rows
        .iter_mut()
        .find(|row| row.case == case && row.way == run.way)
    {
        Some(row) => row.send_ns.push(run.send_ns),
        None => rows.push(Row {
            case,
            way: run.way.clone(),
            send_ns: vec![run.send_ns],
            mean: Mean {
                mean: 0.0,
                half: 0.0,
            },
        }),
    }
}

fn value(mean: Mean) -> Value {
    let interval = mean.half.is_finite();
    Value {
        at: Some(mean.mean),
        // On a logarithmic axis nothing is below zero.
        interval: interval.then(|| {
            (
                (mean.mean - mean.half).max(mean.mean / 10.0),
                mean.mean + mean.half,
            )
        }),
    }
}

/// The bounds, each as a ratio of times that may be so large at most.
fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let of = |way: &str, load: Load, members: u16, change: Change| {
        let case = Case {
            mode: Mode::Uso,
            load,
            members,
            change,
        };
        let row = rows.iter().find(|row| row.way == way && row.case == case);
        row.map(|row| row.mean.mean)
    };
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let mut verdicts = Vec::new();
    let mut judge = |what: String, found, wanted_max| {
        verdicts.push(Verdict {
            what,
            found,
            wanted_max,
        });
    };
    let (small, large, train) = (Load::new(1, 100), Load::new(1, 1000), Load::new(40, 1328));
    for load in [small, large] {
        let kernel = of("kernel", load, 480, Change::None);
        let told = load.told();
        judge(
            format!("{told}: kernel / loop"),
            ratio(kernel, of("loop", load, 480, Change::None)),
            1.0 / 3.0,
        );
        let sendmmsg = of("sendmmsg", load, 480, Change::None);
        judge(
            format!("{told}: kernel / sendmmsg"),
            ratio(kernel, sendmmsg),
            0.5,
        );
    }
    let (kernel, by_loop) = (
        of("kernel", train, 480, Change::None),
        of("loop", train, 480, Change::None),
    );
    judge(
        format!("{}: kernel / loop", train.told()),
        ratio(kernel, by_loop),
        1.0 / 40.0,
    );
    for load in [small, large, train] {
        let (replaced, kept) = (
            of("kernel", load, 480, Change::All),
            of("kernel", load, 480, Change::None),
        );
        judge(
            format!("{}: kernel, replaced / not", load.told()),
            ratio(replaced, kept),
            1.05,
        );
    }
    for load in [small, large] {
        let one = of("kernel", load, 1, Change::None);
        judge(
            format!("{}, one member: kernel / {PLAIN}", load.told()),
            ratio(one, of(PLAIN, load, 1, Change::None)),
            1.1,
        );
    }
    verdicts
}

impl Verdict {
    fn passed(&self) -> bool {
        self.found.is_some_and(|found| found <= self.wanted_max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<13} {:<11} {:>7}  {:<8} {:<8} {:>19} {:>11}",
            "mode", "load", "members", "changed", "way", "us a send (99.9 %)", "ns a packet"
        )?;
        for row in &self.rows {
            let Case {
                mode,
                load,
                members,
                change,
            } = row.case;
            let packets = to_f64(load.packets) * f64::from(members);
            let told = format!("{:.1} +- {:.1}", row.mean.mean / 1e3, row.mean.half / 1e3);
            writeln!(
                f,
                "{:<13} {:<11} {members:>7}  {:<8} {:<8} {told:>19} {:>11.1}",
                mode.name(),
                load.told(),
                change.name(),
                row.way,
                row.mean.mean / packets
            )?;
        }
        self.tell_slices(f)?;
        self.tell_players(f)?;
        writeln!(f)?;
        if self.void > 0 {
            writeln!(f, "warning: {} runs were void and do not count", self.void)?;
        }
        self.verdicts
            .iter()
            .try_for_each(|verdict| writeln!(f, "{verdict}"))
    }
}

impl Report {
    fn tell_slices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.slices.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nWhere the time of a sendto goes, ns to each point (99.9 %)"
        )?;
        for (bytes, point, mean) in &self.slices {
            let layer = self.layer_ns(*bytes, *point);
            let (layer_name, Mean { mean, half }) = (point.layer(), mean);
            writeln!(
                f,
                "{bytes:>6} B {layer_name:<24} {mean:>8.0} +- {half:<6.0} {layer:>7.0}"
            )?;
        }
        Ok(())
    }

    /// Table 1: a server that spends a frame of 33.33 ms on sending to N players, and on other work
    /// that grows with N, could serve N' = N x 33.33 / (send' + 33.33 - send) of them.
    fn tell_players(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nTable 1: players at 30 updates a second of 100 B, N' = N x 33.33 / (send' + other)\n\
             {:>5} {:>9} {:>9} {:>9} {:>9} {:>7} {:>6}   paper's factor",
            "N", "send ms", "other ms", "send' ms", "total ms", "factor", "N'"
        )?;
        for row in &self.rows {
            let is_base = row.way == "loop" && row.case.load == Load::new(1, 100);
            let is_steady = row.case.mode == Mode::Uso && row.case.change == Change::None;
            if !is_base || !is_steady || row.case.members < 40 {
                continue;
            }
            let mut rows = self.rows.iter();
            let Some(kernel) = rows.find(|other| other.case == row.case && other.way == "kernel")
            else {
                continue;
            };
            let (send, sends) = (row.mean.mean / 1e6, kernel.mean.mean / 1e6);
            let other = FRAME_MS - send;
            let (total, members) = (sends + other, f64::from(row.case.members));
            let factor = FRAME_MS / total;
            let paper = PAPER.iter().find(|paper| paper.0 == row.case.members);
            let paper = paper.map_or_else(|| "-".to_owned(), |paper| format!("{:.2}", paper.1));
            writeln!(
                f,
                "{members:>5} {send:>9.3} {other:>9.3} {sends:>9.3} {total:>9.3} {factor:>7.3} \
                 {:>6.0}   {paper}",
                members * factor
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, wanted) = (&self.what, self.wanted_max);
        let Some(found) = self.found else {
            return write!(f, "uso, {what}: VOID, nothing to compare");
        };
        let word = if self.passed() { "kept" } else { "MISSED" };
        write!(
            f,
            "uso, {what}: {found:.3}; at most {wanted:.3} was to be: {word}"
        )
    }
}

/// A frame at 30 a second.
const FRAME_MS: f64 = 1000.0 / 30.0;

/// Table 1 of the paper: members, and the factor by which a server could have more (400 MHz Pentium
/// II, FreeBSD 5.2.1).
const PAPER: [(u16, f64); 5] = [
    (40, 1.06),
    (120, 1.24),
    (240, 1.63),
    (360, 2.39),
    (480, 4.52),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_student_s() {
        // Ten samples 1 to 10: mean 5.5, standard error 0.957427, t(9) = 4.781.
        let samples: Vec<_> = (1..=10).map(f64::from).collect();
        let Mean { mean, half } = Mean::of(&samples).unwrap();
        assert!((mean - 5.5).abs() < 1e-12);
        assert!((half - 4.781 * 0.957_427).abs() < 1e-4, "{half}");
        assert!(Mean::of(&[1.0]).unwrap().half.is_infinite());
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(t_quantile(1000), 3.850);
    }

    #[test]
    fn a_bound_is_kept_at_it_and_missed_beyond() {
        let row = |way: &str, send_ns: f64| Row {
            case: Case {
                mode: Mode::Uso,
                load: Load::new(1, 100),
                members: 480,
                change: Change::None,
            },
            way: way.to_owned(),
            send_ns: vec![send_ns],
            mean: Mean {
                mean: send_ns,
                half: 0.0,
            },
        };
        let first = |rows: &[Row]| verdicts(rows)[0].clone();
        assert!(first(&[row("kernel", 100.0), row("loop", 300.0)]).passed());
        let missed = first(&[row("kernel", 100.1), row("loop", 300.0)]);
        assert!(!missed.passed() && missed.to_string().ends_with("MISSED"));
        assert!(first(&[row("kernel", 1.0)]).to_string().contains("VOID"));
    }
}
