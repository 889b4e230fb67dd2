//! What the samples say, and whether the bounds were kept.

use std::fmt;

use super::{Contestant, HttpRecord, Load, Run};
use crate::stats::Summary;

/// Processor time of one large download, against the bare loop's.
const ONE_MAX: f64 = 1.05;
/// Processor time of many large downloads at once, against the peer's.
const PARALLEL_MAX: f64 = 1.0;
/// How even the shares of many large downloads are (Jain).
const EVENNESS_MIN: f64 = 0.99;
/// Requests a second for small files, against the peer's.
const SMALL_MIN: f64 = 0.9;

/// The table, and what was to be kept.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    /// What was judged.
    pub verdicts: Vec<Verdict>,
    yardstick: Option<Summary>,
}

/// One bound.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was to be kept, and what was found.
    pub text: String,
    /// Whether it was.
    pub passed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    load: Load,
    contestant: Contestant,
    pub(super) cpu_ms_a_gb: Summary,
    core_ms_a_gb: Summary,
    gb_a_second: Summary,
    pub(super) requests_a_second: Summary,
    busy_part: Summary,
    evenness: Summary,
}

impl Report {
    /// Reads the record.
    #[must_use]
    pub fn of(record: &HttpRecord) -> Self {
        let mut rows = Vec::new();
        for load in Load::ALL {
            for contestant in record.settings.contestants() {
                rows.extend(row(record, load, contestant));
            }
        }
        let verdicts = [
            judge(
                record,
                Load::One,
                Contestant::SendfileLoop,
                Bound::CpuAtMost(ONE_MAX),
            ),
            judge(
                record,
                Load::Parallel,
                Contestant::Nginx,
                Bound::CpuAtMost(PARALLEL_MAX),
            ),
            judge(
                record,
                Load::Small,
                Contestant::Nginx,
                Bound::RequestsAtLeast(SMALL_MIN),
            ),
            judge_evenness(&rows),
        ];
        let yardsticks: Vec<_> = record
            .runs
            .iter()
            .map(|run| float(run.yardstick_ns))
            .collect();
        Self {
            rows,
            verdicts: verdicts.into_iter().flatten().collect(),
            yardstick: Summary::of(&yardsticks),
        }
    }

    pub(super) fn row(&self, load: Load, contestant: Contestant) -> Option<&Row> {
        let wanted = |row: &&Row| (row.load, row.contestant) == (load, contestant);
        self.rows.iter().find(wanted)
    }

    /// Whether all bounds were kept, of those that could be judged.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.passed)
    }
}

#[derive(Clone, Copy)]
enum Bound {
    CpuAtMost(f64),
    RequestsAtLeast(f64),
}

fn judge(record: &HttpRecord, load: Load, other: Contestant, bound: Bound) -> Option<Verdict> {
    let of = |contestant, repeat| {
        let same =
            |run: &&Run| (run.load, run.contestant, run.repeat) == (load, contestant, repeat);
        record.runs.iter().find(same)
    };
    let pairs = (0..record.settings.repeats)
        .filter_map(|repeat| Some((of(Contestant::Onrush, repeat)?, of(other, repeat)?)));
    let ratio = |(ours, its): (&Run, &Run)| match bound {
        Bound::CpuAtMost(_) => cpu_ms_a_gb(ours) / cpu_ms_a_gb(its),
        Bound::RequestsAtLeast(_) => requests_a_second(ours) / requests_a_second(its),
    };
    let ratio = Summary::of(&pairs.map(ratio).collect::<Vec<_>>())?;
    let (what, wanted, passed) = match bound {
        Bound::CpuAtMost(most) => (
            "processor time a byte",
            format!("at most {most}"),
            ratio.median <= most,
        ),
        Bound::RequestsAtLeast(least) => (
            "requests a second",
            format!("at least {least}"),
            ratio.median >= least,
        ),
    };
    let (load, other) = (load_name(load), name(other));
    let word = if passed { "kept" } else { "MISSED" };
    let told = ratio.told(3);
    let text = format!("{load}: {what}, onrush to {other}: {told}; {wanted} was to be: {word}");
    Some(Verdict { text, passed })
}

fn judge_evenness(rows: &[Row]) -> Option<Verdict> {
    let ours = |row: &&Row| (row.load, row.contestant) == (Load::Parallel, Contestant::Onrush);
    let evenness = &rows.iter().find(ours)?.evenness;
    let passed = evenness.median >= EVENNESS_MIN;
    let word = if passed { "kept" } else { "MISSED" };
    let told = evenness.told(4);
    let text = format!(
        "many large: evenness (Jain) of onrush: {told}; at least {EVENNESS_MIN} was to be: {word}"
    );
    Some(Verdict { text, passed })
}

fn row(record: &HttpRecord, load: Load, contestant: Contestant) -> Option<Row> {
    let runs = record
        .runs
        .iter()
        .filter(|run| (run.load, run.contestant) == (load, contestant));
    let runs: Vec<_> = runs.collect();
    let summary =
        |of: &dyn Fn(&Run) -> f64| Summary::of(&runs.iter().map(|run| of(run)).collect::<Vec<_>>());
    Some(Row {
        load,
        contestant,
        cpu_ms_a_gb: summary(&cpu_ms_a_gb)?,
        core_ms_a_gb: summary(&|run| float(run.core_busy_ns) / float(run.bytes) * 1e3)?,
        gb_a_second: summary(&|run| float(run.bytes) / float(run.wall_ns))?,
        requests_a_second: summary(&requests_a_second)?,
        busy_part: summary(&|run| float(run.cpu_ns) / float(run.wall_ns))?,
        evenness: summary(&|run| run.evenness)?,
    })
}

/// Processor time of the server for 10^9 bytes, in ms.
pub(crate) fn cpu_ms_a_gb(run: &Run) -> f64 {
    // ns a byte is s a GB.
    float(run.cpu_ns) / float(run.bytes) * 1e3
}

/// Requests answered in a second.
pub(crate) fn requests_a_second(run: &Run) -> f64 {
    float(run.requests) / float(run.wall_ns) * 1e9
}

#[allow(
    clippy::cast_precision_loss,
    reason = "far fewer than 2^52 of anything"
)]
fn float(number: u64) -> f64 {
    number as f64
}

/// The name it has in every report.
pub(crate) const fn name(contestant: Contestant) -> &'static str {
    match contestant {
        Contestant::Onrush => "onrush",
        Contestant::Nginx => "nginx",
        Contestant::SendfileLoop => "sendfile loop",
    }
}

/// The name it has in every report.
pub(crate) const fn load_name(load: Load) -> &'static str {
    match load {
        Load::One => "one large",
        Load::Parallel => "many large",
        Load::Small => "small",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<11} {:<14} {:>22} {:>8} {:>6} {:>10} {:>6} {:>8}",
            "load",
            "server",
            "CPU ms/GB (min..max)",
            "core's",
            "GB/s",
            "requests/s",
            "busy",
            "Jain"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<11} {:<14} {:>22} {:>8.1} {:>6.2} {:>10.0} {:>6.2} {:>8.4}",
                load_name(row.load),
                name(row.contestant),
                row.cpu_ms_a_gb.told(1),
                row.core_ms_a_gb.median,
                row.gb_a_second.median,
                row.requests_a_second.median,
                row.busy_part.median,
                row.evenness.median
            )?;
        }
        if let Some(yardstick) = &self.yardstick {
            let (median, min, max) = (
                yardstick.median / 1e6,
                yardstick.min / 1e6,
                yardstick.max / 1e6,
            );
            writeln!(
                f,
                "\nNoise: a fixed piece of work took {median:.1} ms ({min:.1}..{max:.1}).\n"
            )?;
        }
        for verdict in &self.verdicts {
            writeln!(f, "{}", verdict.text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::http::{NAME, Settings};

    fn record(cpu_ns: [u64; 3], requests: [u64; 2]) -> HttpRecord {
        let settings = Settings {
            peer: Some("nginx".to_owned()),
            repeats: 1,
            ..Settings::quick()
        };
        let mut record = Record::new(
            NAME,
            Environment::here("1", "onrush-lab bench http"),
            settings,
        );
        let run = |contestant, load, cpu_ns, requests| Run {
            contestant,
            load,
            repeat: 0,
            yardstick_ns: 1,
            wall_ns: 1_000_000_000,
            cpu_ns,
            core_busy_ns: cpu_ns,
            bytes: 1_000_000_000,
            requests,
            evenness: 1.0,
        };
        use Contestant::{Nginx, Onrush, SendfileLoop};
        record.runs = vec![
            run(Onrush, Load::One, cpu_ns[0], 1),
            run(SendfileLoop, Load::One, cpu_ns[2], 1),
            run(Onrush, Load::Parallel, cpu_ns[0], 1),
            run(Nginx, Load::Parallel, cpu_ns[1], 1),
            run(Onrush, Load::Small, 1, requests[0]),
            run(Nginx, Load::Small, 1, requests[1]),
        ];
        record
    }

    #[test]
    fn bounds_are_judged_at_their_edges() {
        let judged = |cpu_ns, requests| {
            let report = Report::of(&record(cpu_ns, requests));
            report
                .verdicts
                .iter()
                .map(|verdict| verdict.passed)
                .collect::<Vec<_>>()
        };
        assert_eq!(judged([1050, 1050, 1000], [900, 1000]), [true; 4]);
        assert_eq!(
            judged([1051, 1050, 1000], [899, 1000]),
            [false, false, false, true]
        );
        let mut uneven = record([1; 3], [1; 2]);
        uneven.runs[2].evenness = 0.989;
        assert!(!Report::of(&uneven).passed());
    }

    #[test]
    fn the_table_has_a_row_for_each_who_took_part() {
        let text = Report::of(&record([100_000_000; 3], [900, 1000])).to_string();
        assert_eq!(
            text.lines().filter(|line| line.contains("100.0")).count(),
            4,
            "{text}"
        );
        assert!(
            text.contains("small: requests a second, onrush to nginx: 0.900"),
            "{text}"
        );
    }
}
