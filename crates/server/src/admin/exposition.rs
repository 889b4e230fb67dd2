//! The status as Prometheus reads it: text, version 0.0.4 of its exposition format.
//!
//! A family is a name with its meaning, and a line for each engine or kind. Names end in their unit; counters in
//! `_total`. See <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{Display, Write};

use super::status::{Admission, Engine, Histogram, Status};
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
    let mut page = Page(String::with_capacity(16 << 10));
    sessions(&mut page, status);
    for (name, kind, help, value) in ENGINE {
        page.family(name, kind, help);
        for engine in &status.engines {
            page.sample(name, &[("core", &engine.core)], value(engine));
        }
    }
    trains(&mut page, status);
    admission(&mut page, status);
    histograms(&mut page, status);
    cache(&mut page, status);
    downloads(&mut page, status);
    process(&mut page, status);
    page.0
}

/// What a metric is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It only grows.
    Counter,
    /// It comes and goes.
    Gauge,
}

type OfEngine = (&'static str, Kind, &'static str, fn(&Engine) -> Value);

/// A line for each engine.
const ENGINE: [OfEngine; 19] = [
    (
        "onrush_streams",
        Kind::Gauge,
        "Streams that exist, playing or not.",
        |e| Value::Whole(e.streams),
    ),
    (
        "onrush_streams_playing",
        Kind::Gauge,
        "Streams that play.",
        |e| Value::Whole(e.playing),
    ),
    (
        "onrush_packets_total",
        Kind::Counter,
        "RTP packets that the kernel took.",
        |e| Value::Whole(e.packets),
    ),
    (
        "onrush_sent_bytes_total",
        Kind::Counter,
        "Bytes of those packets, RTP headers included, UDP's and lower ones not.",
        |e| Value::Whole(e.bytes),
    ),
    (
        "onrush_packets_refused_total",
        Kind::Counter,
        "RTP packets that the kernel refused.",
        |e| Value::Whole(e.packets_refused),
    ),
    (
        "onrush_crossings_total",
        Kind::Counter,
        "Entries into the kernel to send, to wait, or both at once.",
        |e| Value::Whole(e.crossings),
    ),
    (
        "onrush_ticks_total",
        Kind::Counter,
        "Times the engine woke to see what is due.",
        |e| Value::Whole(e.ticks),
    ),
    (
        "onrush_trains_in_flight",
        Kind::Gauge,
        "Trains whose memory the kernel still needs.",
        |e| Value::Whole(e.in_flight),
    ),
    (
        "onrush_trains_own_headers_total",
        Kind::Counter,
        "Trains with RTP headers of a session's own, because it has jumped.",
        |e| Value::Whole(e.trains_own_headers),
    ),
    (
        "onrush_trains_put_off_total",
        Kind::Counter,
        "Bursts put off to the next tick because too many trains were in flight.",
        |e| Value::Whole(e.flights_full),
    ),
    (
        "onrush_underruns_total",
        Kind::Counter,
        "Bursts put off to the next tick because their chunk was not in the cache yet.",
        |e| Value::Whole(e.underruns),
    ),
    (
        "onrush_bursts_joined_total",
        Kind::Counter,
        "Bursts that left in one train with the burst before, because the engine was behind.",
        |e| Value::Whole(e.bursts_joined),
    ),
    (
        "onrush_lags_total",
        Kind::Counter,
        "Times a stream was so late that its clock was moved instead of catching up.",
        |e| Value::Whole(e.lags),
    ),
    (
        "onrush_streams_moved_total",
        Kind::Counter,
        "Streams that went from this engine to another.",
        |e| Value::Whole(e.moved),
    ),
    (
        "onrush_streams_shed",
        Kind::Gauge,
        "Streams that play but are left out, because all were late for seconds.",
        |e| Value::Whole(e.shed),
    ),
    (
        "onrush_sheds_total",
        Kind::Counter,
        "Times a stream was left out.",
        |e| Value::Whole(e.sheds),
    ),
    (
        "onrush_packets_skipped_total",
        Kind::Counter,
        "RTP packets that such streams were not sent.",
        |e| Value::Whole(e.packets_skipped),
    ),
    (
        "onrush_demotions_total",
        Kind::Counter,
        "Times a better data path was not to be had, or was given up.",
        |e| Value::Whole(e.demotions),
    ),
    (
        "onrush_engine_cpu_seconds_total",
        Kind::Counter,
        "Processor time of the engine's thread.",
        |e| Value::Seconds(e.cpu_ns),
    ),
];

fn sessions(page: &mut Page, status: &Status) {
    let sessions = &status.sessions;
    page.gauge(
        "onrush_sessions_open",
        "RTSP sessions that exist.",
        sessions.now,
    );
    page.counter(
        "onrush_sessions_total",
        "RTSP sessions that were set up.",
        sessions.total,
    );
    page.counter(
        "onrush_sessions_refused_total",
        "Requests that were answered 453 Not Enough Bandwidth.",
        sessions.refused,
    );
    page.gauge(
        "onrush_rtsp_connections",
        "RTSP connections that are open.",
        sessions.connections,
    );
    let name = "onrush_rtsp_requests_total";
    page.family(
        name,
        Kind::Counter,
        "RTSP requests that were answered, by the class of the status.",
    );
    page.classes(name, &sessions.answers);
}

fn trains(page: &mut Page, status: &Status) {
    let name = "onrush_trains_total";
    page.family(
        name,
        Kind::Counter,
        "Trains (sends) by how the kernel took them: zero_copy and copied as it reported, single ones of one packet \
         that are copied on purpose, other where the path does not tell.",
    );
    for engine in &status.engines {
        let told = [
            ("zero_copy", engine.trains_zero_copy),
            ("copied", engine.trains_copied),
            ("single", engine.trains_single),
        ];
        let known: u64 = told.iter().map(|(_, trains)| trains).sum();
        let other = engine.trains.saturating_sub(known);
        for (kind, trains) in told.into_iter().chain([("other", other)]) {
            let labels: Labels<'_> = &[("core", &engine.core), ("how", &kind)];
            page.sample(name, labels, Value::Whole(trains));
        }
    }
    let name = "onrush_path_info";
    page.family(
        name,
        Kind::Gauge,
        "1 for the data path that the engine sends by.",
    );
    for engine in &status.engines {
        let labels: Labels<'_> = &[("core", &engine.core), ("path", &engine.path)];
        page.sample(name, labels, Value::Whole(1));
    }
    if let Some(part) = status.stream_cpu_ratio {
        page.family(
            "onrush_stream_cpu_ratio",
            Kind::Gauge,
            "Processor time of the engines for a playing stream, as a part of one processor, over the last ten \
             seconds; absent while nothing plays.",
        );
        page.sample("onrush_stream_cpu_ratio", &[], Value::Part(part));
    }
}

fn admission(page: &mut Page, status: &Status) {
    type OfAdmission = (&'static str, &'static str, fn(&Admission) -> Option<Value>);
    const ADMISSION: [OfAdmission; 5] = [
        (
            "onrush_engine_load_promised_ratio",
            "How busy the engine will be with all streams that it has, as reckoned, as a part of a processor.",
            |a| Some(Value::Part(a.load_promised)),
        ),
        (
            "onrush_engine_load_ratio",
            "How busy it was in the last second.",
            |a| Some(Value::Part(a.load_measured)),
        ),
        (
            "onrush_engine_load_max_ratio",
            "How busy it may be: a session that would make it busier is refused; absent with --load-max 0.",
            |a| a.load_max.map(Value::Part),
        ),
        (
            "onrush_engine_train_cost_seconds",
            "Processor time of a train, as it is reckoned for new sessions.",
            |a| Some(Value::Seconds(a.train_ns)),
        ),
        (
            "onrush_engine_closed",
            "1 while nobody is let in because bursts have been late for seconds, other than because others held the engine up.",
            |a| Some(Value::Whole(u64::from(a.is_late))),
        ),
    ];
    for (name, help, value) in ADMISSION {
        let told = status.engines.iter();
        let told = told.filter_map(|engine| Some((engine.core, value(&engine.admission)?)));
        let mut told = told.peekable();
        if told.peek().is_some() {
            page.family(name, Kind::Gauge, help);
        }
        for (core, value) in told {
            page.sample(name, &[("core", &core)], value);
        }
    }
}

fn histograms(page: &mut Page, status: &Status) {
    let name = "onrush_burst_lateness_seconds";
    page.histogram_family(
        name,
        "When bursts left minus when they were due; early ones count as 0.",
    );
    for engine in &status.engines {
        let lateness = &engine.lateness;
        let ends = LATENESS_ENDS_NS.map(|end_ns| (end_ns.unsigned_abs(), lateness.up_to(end_ns)));
        page.histogram(name, engine.core, &ends, lateness, Value::Seconds);
    }
    let name = "onrush_batch_bursts";
    page.histogram_family(
        name,
        "Bursts that were handed to the kernel in one crossing.",
    );
    for engine in &status.engines {
        let batches = &engine.batches;
        let ends: [_; BATCH_BUCKETS - 1] =
            std::array::from_fn(|exponent| (1 << exponent, batches.up_to(1 << exponent)));
        page.histogram(name, engine.core, &ends, batches, Value::Whole);
    }
}

fn cache(page: &mut Page, status: &Status) {
    let cache = &status.cache;
    page.gauge(
        "onrush_cache_bytes",
        "Memory for packets that are ready to be sent.",
        cache.bytes,
    );
    page.gauge(
        "onrush_cache_chunk_bytes",
        "Bytes of one of its chunks.",
        cache.chunk_bytes,
    );
    page.gauge("onrush_cache_chunks", "Its chunks.", cache.chunks);
    page.gauge(
        "onrush_cache_chunks_in_use",
        "Chunks that are being read, sent or built.",
        cache.chunks_in_use,
    );
    page.counter(
        "onrush_cache_chunk_reads_total",
        "Chunks that streams began to send from; those that were not built for it were hits.",
        cache.chunks_read,
    );
    page.counter(
        "onrush_cache_chunks_built_total",
        "Chunks that were built from files.",
        cache.chunks_built,
    );
    page.counter(
        "onrush_cache_full_total",
        "Chunks that were not built because all others were in use.",
        cache.full,
    );
    page.counter(
        "onrush_file_read_bytes_total",
        "Bytes that were read from files to build chunks.",
        cache.bytes_read,
    );
    page.counter(
        "onrush_file_read_direct_bytes_total",
        "Of those, read past the page cache (O_DIRECT).",
        cache.bytes_read_direct,
    );
    let name = "onrush_locked_bytes";
    page.family(
        name,
        Kind::Gauge,
        "Memory that this process has locked: resident may move, pinned does not.",
    );
    let locked = &status.locked;
    for (kind, bytes) in [
        ("pinned", locked.pinned_bytes),
        ("resident", locked.resident_bytes),
    ] {
        page.sample(name, &[("kind", &kind)], Value::Whole(bytes));
    }
}

fn downloads(page: &mut Page, status: &Status) {
    let Some(downloads) = &status.downloads else {
        return;
    };
    let name = "onrush_download_connections";
    page.family(
        name,
        Kind::Gauge,
        "Connections of HTTP and FTP that are open.",
    );
    for (protocol, connections) in [
        ("http", downloads.http_connections),
        ("ftp", downloads.ftp_connections),
    ] {
        page.sample(name, &[("protocol", &protocol)], Value::Whole(connections));
    }
    page.counter(
        "onrush_download_connections_refused_total",
        "Connections of HTTP and FTP that found no place.",
        downloads.refused,
    );
    let name = "onrush_http_requests_total";
    page.family(
        name,
        Kind::Counter,
        "HTTP requests that were answered, by the class of the status.",
    );
    page.classes(name, &downloads.http_answers);
    page.gauge(
        "onrush_transfers_running",
        "Transfers of files that run.",
        downloads.active,
    );
    page.counter(
        "onrush_transfers_total",
        "Transfers of files that were begun.",
        downloads.transfers,
    );
    page.counter(
        "onrush_transfer_bytes_total",
        "Bytes of files that the kernel took for HTTP and FTP.",
        downloads.bytes,
    );
    page.counter(
        "onrush_transfer_steps_total",
        "sendfile calls that moved them.",
        downloads.steps,
    );
    let name = "onrush_transfer_waits_total";
    page.family(
        name,
        Kind::Counter,
        "How often a transfer waited: for its client (socket) or for the disk.",
    );
    for (what, waits) in [("socket", downloads.full), ("disk", downloads.cold)] {
        page.sample(name, &[("for", &what)], Value::Whole(waits));
    }
}

fn process(page: &mut Page, status: &Status) {
    let process = &status.process;
    let name = "onrush_build_info";
    page.family(name, Kind::Gauge, "1, with the server's version.");
    page.sample(name, &[("version", &status.version)], Value::Whole(1));
    let name = "process_cpu_seconds_total";
    page.family(name, Kind::Counter, "Processor time of all threads.");
    page.sample(name, &[], Value::Seconds(process.cpu_ns));
    page.gauge(
        "process_resident_memory_bytes",
        "Memory in use, the cache included.",
        process.resident_bytes,
    );
    page.gauge("process_open_fds", "Open files and sockets.", process.files);
    page.gauge(
        "process_max_fds",
        "Open files and sockets that there may be.",
        process.files_max,
    );
    page.gauge(
        "process_start_time_seconds",
        "When the server was started, in seconds since 1970.",
        process.started_s,
    );
}

type Labels<'a> = &'a [(&'static str, &'a dyn Display)];

/// A number, as it is written.
#[derive(Clone, Copy, Debug)]
enum Value {
    Whole(u64),
    /// Given in ns, written in seconds.
    Seconds(u64),
    Part(f64),
}

struct Page(String);

impl Page {
    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Kind::Gauge, help);
        self.sample(name, &[], Value::Whole(value));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Kind::Counter, help);
        self.sample(name, &[], Value::Whole(value));
    }

    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn histogram_family(&mut self, name: &str, help: &str) {
        self.line(format_args!(
            "# HELP {name} {help}\n# TYPE {name} histogram\n"
        ));
    }

    /// Cumulative buckets up to each of `ends`, and to the end of all.
    fn histogram(
        &mut self,
        name: &str,
        core: usize,
        ends: &[(u64, u64)],
        histogram: &Histogram,
        unit: fn(u64) -> Value,
    ) {
        let count = histogram.count();
        for &(end, up_to) in ends {
            self.line(format_args!(
                "{name}_bucket{{core=\"{core}\",le=\"{}\"}} {up_to}\n",
                unit(end)
            ));
        }
        self.line(format_args!(
            "{name}_bucket{{core=\"{core}\",le=\"+Inf\"}} {count}\n"
        ));
        let sum = unit(histogram.sum);
        self.line(format_args!("{name}_sum{{core=\"{core}\"}} {sum}\n"));
        self.line(format_args!("{name}_count{{core=\"{core}\"}} {count}\n"));
    }

    fn classes(&mut self, name: &str, answers: &[u64; 5]) {
        for (class, &answers) in (1..).zip(answers) {
            let class = format!("{class}xx");
            self.sample(name, &[("code", &class)], Value::Whole(answers));
        }
    }

    /// No label of ours holds what would have to be escaped: numbers, names of paths, versions.
    fn sample(&mut self, name: &str, labels: Labels<'_>, value: Value) {
        self.0.push_str(name);
        for (i, (label, of)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            self.line(format_args!("{before}{label}=\"{of}\""));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.line(format_args!("{after} {value}\n"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes all");
    }
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
