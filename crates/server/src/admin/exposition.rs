//! The status as Prometheus reads it: text, version 0.0.4 of its exposition format.
//!
//! A family is a name with its meaning, and a line for each engine, channel or kind. Names end in
//! their unit; counters in `_total`. See
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. What is told stands in the
//! tables of [`status`](mod@super::status).

use std::fmt::{Display, Write};

use super::status::{
    Admission, Cache, Channel, Cluster, Downloads, Engine, Handshakes, Histogram, Hls, Indexes,
    Locked, ObjectStore, Process, Publishers, Received, Sent, Sessions, Status, Users,
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
        channels: vec![Channel::default()],
        cache: Some(Cache::default()),
        indexes: Some(Indexes::default()),
        downloads: Some(Downloads::default()),
        cluster: Some(Cluster::default()),
        objects: Some(ObjectStore::default()),
        ..Status::default()
    };
    Page::of(&all).metrics
}

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
        let (engines, channels) = (&status.engines, &status.channels);
        page.group(Sessions::ROWS, &[(None, &status.sessions)]);
        page.group(Engine::ROWS, &each(engines, core, |engine| engine));
        page.group(
            Admission::ROWS,
            &each(engines, core, |engine| &engine.admission),
        );
        page.group(Status::ROWS, &[(None, status)]);
        if let Some(cache) = &status.cache {
            page.group(Cache::ROWS, &[(None, cache)]);
        }
        if let Some(indexes) = &status.indexes {
            page.group(Indexes::ROWS, &[(None, indexes)]);
        }
        page.group(Locked::ROWS, &[(None, &status.locked)]);
        page.group(Channel::ROWS, &each(channels, name, |channel| channel));
        page.group(
            Publishers::ROWS,
            &each(channels, name, |channel| &channel.publishers),
        );
        page.group(
            Received::ROWS,
            &each(channels, name, |channel| &channel.received),
        );
        page.group(Sent::ROWS, &each(channels, name, |channel| &channel.sent));
        if let Some(downloads) = &status.downloads {
            page.group(Downloads::ROWS, &[(None, downloads)]);
        }
        page.group(Hls::ROWS, &[(None, &status.hls)]);
        page.group(Users::ROWS, &[(None, &status.users)]);
        if let Some(cluster) = &status.cluster {
            page.group(Cluster::ROWS, &[(None, cluster)]);
        }
        if let Some(objects) = &status.objects {
            page.group(ObjectStore::ROWS, &[(None, objects)]);
        }
        page.group(Handshakes::ROWS, &[(None, &status.tls)]);
        page.group(Process::ROWS, &[(None, &status.process)]);
        page
    }

    /// The metrics of a table, each of all that have it: the server, or engines and channels by
    /// their labels.
    fn group<T>(&mut self, rows: &[Row<T>], all: &[(Option<Label<'_>>, &T)]) {
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
            let of = all.iter().find_map(|(of, _)| of.map(|(label, _)| label));
            let end = (row.kind == Kind::Histogram).then_some("le");
            self.metrics.push(Metric {
                name,
                kind,
                labels: of.into_iter().chain(label).chain(end).collect(),
                help,
            });
            let samples = all.iter().map(|(of, it)| (*of, (row.samples)(it)));
            let samples: Vec<_> = samples
                .filter(|(_, samples)| !matches!(samples, Samples::None))
                .collect();
            if samples.is_empty() {
                continue;
            }
            self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            for (of, samples) in samples {
                self.samples(row, name, of, samples);
            }
        }
    }

    fn samples<T>(&mut self, row: &Row<T>, name: &str, of: Option<Label<'_>>, samples: Samples) {
        let whole = match row.is_time() {
            true => Value::Seconds,
            false => Value::Whole,
        };
        let label = row.metric.and_then(|(_, label)| label).unwrap_or_default();
        match samples {
            Samples::None => {}
            Samples::Whole(number) => self.sample(name, of, whole(number)),
            Samples::Part(part) => self.sample(name, of, Value::Part(part)),
            Samples::Labelled(values) => {
                for (value, number) in values {
                    let labels = of.into_iter().chain([(label, &value as &dyn Display)]);
                    self.sample(name, labels, whole(number));
                }
            }
            Samples::Histogram(histogram) if name.ends_with("_seconds") => {
                let up_to = |end_ns: i64| (end_ns.unsigned_abs(), histogram.up_to(end_ns));
                let ends = LATENESS_ENDS_NS.map(up_to);
                self.histogram(name, of, &ends, &histogram, Value::Seconds);
            }
            Samples::Histogram(histogram) => {
                let ends: [_; BATCH_BUCKETS - 1] =
                    std::array::from_fn(|exponent| (1 << exponent, histogram.up_to(1 << exponent)));
                self.histogram(name, of, &ends, &histogram, Value::Whole);
            }
        }
    }

    /// Cumulative buckets up to each of `ends`, and to the end of all.
    fn histogram(
        &mut self,
        name: &str,
        of: Option<Label<'_>>,
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
            let labels = of.into_iter().chain([("le", &end as &dyn Display)]);
            self.sample(&bucket, labels, Value::Whole(up_to));
        }
        self.sample(&format!("{name}_sum"), of, unit(histogram.sum));
        self.sample(
            &format!("{name}_count"),
            of,
            Value::Whole(histogram.count()),
        );
    }

    /// No label of ours holds what would have to be escaped: numbers, versions, names of paths and
    /// of channels ([`is_source_name`](crate::channels::config::is_source_name)).
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

/// The label of an engine.
fn core(engine: &Engine) -> Label<'_> {
    ("core", &engine.core)
}

/// The label of a channel.
fn name(channel: &Channel) -> Label<'_> {
    ("channel", &channel.name)
}

/// A part of each of `all`, with its label.
fn each<'a, T, P>(
    all: &'a [T],
    label: fn(&'a T) -> Label<'a>,
    part: fn(&'a T) -> &'a P,
) -> Vec<(Option<Label<'a>>, &'a P)> {
    let with_label = |it| (Some(label(it)), part(it));
    all.iter().map(with_label).collect()
}

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
    use crate::channels::ChannelState;

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
        assert!(!text.contains("onrush_channel_"), "no channels: {text}");
    }

    /// They are counted once it is known how they left: a counter does not go down.
    #[test]
    fn trains_in_flight_left_in_no_way_yet() {
        let engine = Engine {
            trains: 9,
            trains_copied: 2,
            trains_other: 1,
            in_flight: 6,
            ..Engine::default()
        };
        let text = exposition(&Status {
            engines: vec![engine],
            ..Status::default()
        });
        for (how, trains) in [("zero_copy", 0), ("copied", 2), ("single", 0), ("other", 1)] {
            let line = format!("\nonrush_trains_total{{core=\"0\",how=\"{how}\"}} {trains}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    #[test]
    fn channels_are_told_apart_by_their_names() {
        let channel = |name: &str, state, packets| Channel {
            name: name.to_owned(),
            state,
            sent: Sent {
                packets,
                passing_ns_max: 1_500_000,
                ..Sent::default()
            },
            ..Channel::default()
        };
        let channels = vec![
            channel("tv", ChannelState::Live, 7),
            channel("news-1", ChannelState::Silent, 8),
        ];
        let text = exposition(&Status {
            channels,
            ..Status::default()
        });
        for line in [
            "onrush_channel_packets_total{channel=\"tv\"} 7",
            "onrush_channel_packets_total{channel=\"news-1\"} 8",
            "onrush_channel_passing_max_seconds{channel=\"tv\"} 0.0015",
            "onrush_channel_state{channel=\"tv\",state=\"live\"} 1",
            "onrush_channel_state{channel=\"tv\",state=\"silent\"} 0",
            "onrush_channel_state{channel=\"news-1\",state=\"silent\"} 1",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
    }
}
