//! The status as Prometheus reads it: text, version 0.0.4 of its exposition format.
//!
//! A family is a name with its meaning, and a line for each engine or kind. Names end in their
//! unit; counters in `_total`. See
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. What is told stands in the
//! tables of [`status`](mod@super::status).

use std::fmt::{Display, Write};

use super::status::{
    Admission, Cache, Downloads, Engine, Histogram, Locked, Process, Sessions, Status,
};
use super::table::{Kind, Row, Samples};
use crate::engine::shared::BATCH_BUCKETS;

/// What a reader is told that this is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper ends of the lateness buckets, in ns; each a multiple of what the engine tells apart.
const LATENESS_ENDS_NS: [i64; 9] = [
    0,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    150_000_000,
];

/// The page.
#[must_use]
pub fn exposition(status: &Status) -> String {
    Page::of(status).text
}

/// What a metric is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// As Prometheus calls it: `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What tells its samples apart.
    pub labels: Vec<&'static str>,
    /// What it means.
    pub help: &'static str,
}

/// Every metric that there may be.
#[must_use]
pub fn metrics() -> Vec<Metric> {
    let all = Status {
        engines: vec![Engine::default()],
        downloads: Some(Downloads::default()),
        ..Status::default()
    };
    Page::of(&all).metrics
}

/// The label of an engine.
const CORE: &str = "core";

/// The page, and the metrics that it may have.
struct Page {
    text: String,
    metrics: Vec<Metric>,
}

impl Page {
    fn of(status: &Status) -> Self {
        let mut page = Self {
            text: String::with_capacity(16 << 10),
            metrics: Vec::new(),
        };
        let engines = || status.engines.iter();
        let admissions = || engines().map(|engine| (Some(engine.core), &engine.admission));
        page.group(Sessions::ROWS, &[(None, &status.sessions)]);
        page.group(
            Engine::ROWS,
            &engines()
                .map(|engine| (Some(engine.core), engine))
                .collect::<Vec<_>>(),
        );
        page.group(Admission::ROWS, &admissions().collect::<Vec<_>>());
        page.group(Status::ROWS, &[(None, status)]);
        page.group(Cache::ROWS, &[(None, &status.cache)]);
        page.group(Locked::ROWS, &[(None, &status.locked)]);
        if let Some(downloads) = &status.downloads {
            page.group(Downloads::ROWS, &[(None, downloads)]);
        }
        page.group(Process::ROWS, &[(None, &status.process)]);
        page
    }

    /// The metrics of a table, each of all that have it: the server, or engines by their
    /// processors.
    fn group<T>(&mut self, rows: &[Row<T>], all: &[(Option<usize>, &T)]) {
        for row in rows {
            let Some((name, label)) = row.metric else {
                continue;
            };
            let kind = match row.kind {
                Kind::Counter => "counter",
                Kind::Gauge | Kind::Info => "gauge",
                Kind::Histogram => "histogram",
            };
            let help = row.help();
            let core = all.iter().any(|(core, _)| core.is_some()).then_some(CORE);
            let end = (row.kind == Kind::Histogram).then_some("le");
            self.metrics.push(Metric {
                name,
                kind,
                labels: core.into_iter().chain(label).chain(end).collect(),
                help,
            });
            let samples_of = all.iter().map(|(core, of)| (*core, (row.samples)(of)));
            let samples_of: Vec<_> = samples_of
                .filter(|(_, samples)| !matches!(samples, Samples::None))
                .collect();
            if samples_of.is_empty() {
                continue;
            }
            self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            for (core, samples) in samples_of {
                self.samples(row, name, core, samples);
            }
        }
    }

    fn samples<T>(&mut self, row: &Row<T>, name: &str, core: Option<usize>, samples: Samples) {
        let core = core.as_ref().map(|core| (CORE, core as &dyn Display));
        let whole = match row.field.ends_with("_ns") {
            true => Value::Seconds,
            false => Value::Whole,
        };
        let label = row.metric.and_then(|(_, label)| label).unwrap_or_default();
        match samples {
            Samples::None => {}
            Samples::Whole(number) => self.sample(name, core, whole(number)),
            Samples::Part(part) => self.sample(name, core, Value::Part(part)),
            Samples::Labelled(values) => {
                for (of, number) in values {
                    let labels = core.into_iter().chain([(label, &of as &dyn Display)]);
                    self.sample(name, labels, whole(number));
                }
            }
            Samples::Histogram(histogram) if name.ends_with("_seconds") => {
                let up_to = |end_ns: i64| (end_ns.unsigned_abs(), histogram.up_to(end_ns));
                let ends = LATENESS_ENDS_NS.map(up_to);
                self.histogram(name, core, &ends, &histogram, Value::Seconds);
            }
            Samples::Histogram(histogram) => {
                let ends: [_; BATCH_BUCKETS - 1] =
                    std::array::from_fn(|exponent| (1 << exponent, histogram.up_to(1 << exponent)));
                self.histogram(name, core, &ends, &histogram, Value::Whole);
            }
        }
    }

    /// Cumulative buckets up to each of `ends`, and to the end of all.
    fn histogram(
        &mut self,
        name: &str,
        core: Option<Label<'_>>,
        ends: &[(u64, u64)],
        histogram: &Histogram,
        unit: fn(u64) -> Value,
    ) {
        let ends = ends
            .iter()
            .map(|&(end, up_to)| (unit(end).to_string(), up_to));
        let all = ("+Inf".to_owned(), histogram.count());
        let bucket = format!("{name}_bucket");
        for (end, up_to) in ends.chain([all]) {
            let labels = core.into_iter().chain([("le", &end as &dyn Display)]);
            self.sample(&bucket, labels, Value::Whole(up_to));
        }
        self.sample(&format!("{name}_sum"), core, unit(histogram.sum));
        self.sample(
            &format!("{name}_count"),
            core,
            Value::Whole(histogram.count()),
        );
    }

    /// No label of ours holds what would have to be escaped: numbers, names of paths, versions.
    fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = Label<'a>>,
        value: Value,
    ) {
        self.text.push_str(name);
        let mut before = '{';
        for (label, of) in labels {
            self.line(format_args!("{before}{label}=\"{of}\""));
            before = ',';
        }
        let after = if before == ',' { "}" } else { "" };
        self.line(format_args!("{after} {value}\n"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes all");
    }
}

/// A label, and its value.
type Label<'a> = (&'static str, &'a dyn Display);

/// A number, as it is written.
#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(u64),
    /// Given in ns, written in seconds.
    Seconds(u64),
    Part(f64),
}

impl Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Whole(number) => number.fmt(f),
            // In whole numbers: a float would lose ns after some months.
            Self::Seconds(ns) => {
                let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
                let decimals = format!("{rest:09}");
                match decimals.trim_end_matches('0') {
                    "" => write!(f, "{seconds}"),
                    decimals => write!(f, "{seconds}.{decimals}"),
                }
            }
            Self::Part(part) => part.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_to_the_ns_and_what_is_absent_has_no_family() {
        let mut status = Status::default();
        status.process.cpu_ns = 3_000_000_010;
        status.engines = vec![Engine::default()];
        let text = exposition(&status);
        assert!(text.contains("\nprocess_cpu_seconds_total 3.00000001\n"));
        assert!(text.contains("\nonrush_engine_train_cost_seconds{core=\"0\"} 0\n"));
        assert!(text.contains("\nonrush_burst_lateness_seconds_bucket{core=\"0\",le=\"0.02\"} 0"));
        for absent in ["onrush_engine_load_max_ratio", "onrush_transfers_total"] {
            assert!(!text.contains(absent), "{text}");
        }
    }
}
