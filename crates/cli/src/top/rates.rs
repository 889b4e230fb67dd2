//! What happened between two looks at a server.

use onrush_server::admin::status::{Channel, Engine, Histogram, Status};
use onrush_server::channels::ChannelState;
use serde::Serialize;

/// What happened in an interval; in JSON, these names with these units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// How long the interval was.
    pub(crate) seconds: f64,
    /// RTSP sessions at its end.
    pub(crate) sessions: u64,
    /// Streams that played then.
    pub(crate) playing: u64,
    pub(crate) sessions_a_second: f64,
    /// Requests answered 453.
    pub(crate) refused_a_second: f64,
    pub(crate) packets_a_second: f64,
    /// RTP, headers included.
    pub(crate) mbit_a_second: f64,
    pub(crate) packets_refused_a_second: f64,
    /// When bursts left minus when they were due; none if there were none, negative if early.
    pub(crate) late_p50_ms: Option<f64>,
    pub(crate) late_p999_ms: Option<f64>,
    /// Bursts handed over in a crossing, on average.
    pub(crate) batch_bursts: Option<f64>,
    /// Of all bursts, those that left with the one before, because the engine was behind, as a
    /// part.
    pub(crate) joined: Option<f64>,
    pub(crate) crossings_a_second: f64,
    pub(crate) packets_a_crossing: Option<f64>,
    /// Processor time of the engines, as processors.
    pub(crate) engines_cpu: f64,
    /// Of the whole process.
    pub(crate) process_cpu: f64,
    /// Of the engines, for a stream that plays.
    pub(crate) stream_cpu: Option<f64>,
    /// Chunks read that nobody had to build, as a part of all.
    pub(crate) cache_hits: Option<f64>,
    pub(crate) file_mbyte_a_second: f64,
    pub(crate) underruns_a_second: f64,
    pub(crate) lags_a_second: f64,
    /// What HTTP and FTP send.
    pub(crate) download_mbit_a_second: f64,
    pub(crate) engines: Vec<EngineRates>,
    pub(crate) channels: Vec<ChannelRates>,
}

/// The same of one engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EngineRates {
    pub(crate) core: usize,
    pub(crate) path: String,
    pub(crate) playing: u64,
    pub(crate) cpu: f64,
    pub(crate) packets_a_second: f64,
    pub(crate) mbit_a_second: f64,
    pub(crate) batch_bursts: Option<f64>,
    pub(crate) late_p50_ms: Option<f64>,
    pub(crate) late_p999_ms: Option<f64>,
    pub(crate) in_flight: u64,
    /// How busy the engine will be with the streams that it has, as reckoned, and how busy it may
    /// be.
    pub(crate) load_promised: f64,
    pub(crate) load_max: Option<f64>,
}

/// What happened in a live channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ChannelRates {
    pub(crate) name: String,
    pub(crate) state: ChannelState,
    pub(crate) members: u64,
    pub(crate) players: u64,
    pub(crate) datagrams_a_second: f64,
    pub(crate) missing_a_second: f64,
    /// How unevenly packets of a publisher arrive.
    pub(crate) jitter_ms: f64,
    /// How much later than the most punctual ones.
    pub(crate) lag_ms: f64,
    /// Each packet counts once for each receiver.
    pub(crate) packets_a_second: f64,
    pub(crate) mbit_a_second: f64,
    pub(crate) packets_refused_a_second: f64,
}

impl Rates {
    /// The heading of [`Self::line`].
    pub(crate) const HEAD: &str =
        "sessions playing  packets/s   Mbit/s  late p50  p99.9 ms  batch  CPU %  hits %  453/s";

    /// What happened between two looks; `None` if they are of two servers, or of one that was
    /// started anew.
    pub(crate) fn between(from: &Status, to: &Status) -> Option<Self> {
        let is_same = from.process.started_s == to.process.started_s
            && from.engines.len() == to.engines.len()
            && from.channels.len() == to.channels.len()
            && from.at_ns < to.at_ns;
        if !is_same {
            return None;
        }
        let happened = to.since(from);
        let seconds = float(happened.at_ns) / 1e9;
        let rate = |count: u64| float(count) / seconds;
        let sessions = &happened.sessions;
        let cache = happened.cache.clone().unwrap_or_default();
        let engines = happened.engines.iter();
        let all = engines.fold(Engine::default(), |all, engine| all.and(engine));
        let engines_cpu = rate(all.cpu_ns) / 1e9;
        let (read, built) = (float(cache.chunks_read), float(cache.chunks_built));
        let transferred = happened.downloads.as_ref().map_or(0, |d| d.bytes);
        let downloads = transferred + happened.hls.sent_bytes;
        Some(Self {
            seconds,
            sessions: sessions.now,
            playing: all.playing,
            sessions_a_second: rate(sessions.total),
            refused_a_second: rate(sessions.refused),
            packets_a_second: rate(all.packets),
            mbit_a_second: rate(all.bytes) * 8.0 / 1e6,
            packets_refused_a_second: rate(all.packets_refused),
            late_p50_ms: late_ms(&all.lateness, 0.5),
            late_p999_ms: late_ms(&all.lateness, 0.999),
            batch_bursts: mean(&all.batches),
            joined: part(float(all.bursts_joined), float(all.lateness.count())),
            crossings_a_second: rate(all.crossings),
            packets_a_crossing: part(float(all.packets), float(all.crossings)),
            engines_cpu,
            process_cpu: rate(happened.process.cpu_ns) / 1e9,
            stream_cpu: part(engines_cpu, float(all.playing)),
            // What was built ahead is read later: less than none is none.
            cache_hits: part(read - built, read).map(|hits| hits.max(0.0)),
            file_mbyte_a_second: rate(cache.bytes_read) / 1e6,
            underruns_a_second: rate(all.underruns),
            lags_a_second: rate(all.lags),
            download_mbit_a_second: rate(downloads) * 8.0 / 1e6,
            engines: happened
                .engines
                .iter()
                .map(|engine| EngineRates::of(engine, seconds))
                .collect(),
            channels: happened
                .channels
                .iter()
                .map(|channel| ChannelRates::of(channel, seconds))
                .collect(),
        })
    }

    /// In a line, beneath [`Self::HEAD`].
    pub(crate) fn line(&self) -> String {
        let or_dash = |value: Option<f64>, scale: f64, decimals| {
            value.map_or_else(|| "-".to_owned(), |v| format!("{:.decimals$}", v * scale))
        };
        format!(
            "{:>8} {:>7} {:>10.0} {:>8.1} {:>9} {:>9} {:>6} {:>6.1} {:>7} {:>6.1}",
            self.sessions,
            self.playing,
            self.packets_a_second,
            self.mbit_a_second,
            or_dash(self.late_p50_ms, 1.0, 1),
            or_dash(self.late_p999_ms, 1.0, 1),
            or_dash(self.batch_bursts, 1.0, 1),
            self.process_cpu * 100.0,
            or_dash(self.cache_hits, 100.0, 1),
            self.refused_a_second,
        )
    }
}

impl EngineRates {
    /// Of what happened in so many seconds.
    fn of(happened: &Engine, seconds: f64) -> Self {
        let rate = |count: u64| float(count) / seconds;
        Self {
            core: happened.core,
            path: happened.path.clone(),
            playing: happened.playing,
            cpu: rate(happened.cpu_ns) / 1e9,
            packets_a_second: rate(happened.packets),
            mbit_a_second: rate(happened.bytes) * 8.0 / 1e6,
            batch_bursts: mean(&happened.batches),
            late_p50_ms: late_ms(&happened.lateness, 0.5),
            late_p999_ms: late_ms(&happened.lateness, 0.999),
            in_flight: happened.in_flight,
            load_promised: happened.admission.load_promised,
            load_max: happened.admission.load_max,
        }
    }
}

impl ChannelRates {
    /// Of what happened in so many seconds.
    fn of(happened: &Channel, seconds: f64) -> Self {
        let rate = |count: u64| float(count) / seconds;
        let (received, sent) = (&happened.received, &happened.sent);
        Self {
            name: happened.name.clone(),
            state: happened.state,
            members: happened.members,
            players: happened.players,
            datagrams_a_second: rate(received.datagrams),
            missing_a_second: rate(received.missing),
            jitter_ms: float(received.jitter_ns) / 1e6,
            lag_ms: float(received.lag_ns) / 1e6,
            packets_a_second: rate(sent.packets),
            mbit_a_second: rate(sent.bytes) * 8.0 / 1e6,
            packets_refused_a_second: rate(sent.refused),
        }
    }
}

/// In ms; what is beyond the last bucket's beginning, as that.
fn late_ms(lateness: &Histogram, part: f64) -> Option<f64> {
    let late_ns = lateness.quantile(part)?.min(LATE_NS_MAX);
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    Some(late_ns as f64 / 1e6)
}

/// Bursts for each crossing. The sum counts each burst once.
fn mean(batches: &Histogram) -> Option<f64> {
    part(float(batches.sum), float(batches.count()))
}

fn part(of: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| of / whole)
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn float(number: u64) -> f64 {
    number as f64
}

/// More is not told apart.
const LATE_NS_MAX: i64 = 154_700_000;
