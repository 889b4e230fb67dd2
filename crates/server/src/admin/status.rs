//! What the server does, at one moment.
//!
//! Everything here is read from counters that others keep anyway: nobody is asked, stopped or locked out for it.
//! Each counter is exact; together they are of almost the same moment. The JSON of `/status` is [`Status`] as it
//! stands here, so that whoever reads it knows each field's meaning and unit.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use onrush_lock::Manager;
use onrush_sys::clock::{cpu_ns_of, cpu_ns_of_process, monotonic_ns};
use onrush_sys::thread::open_files_limit;
use serde::{Deserialize, Serialize};

use crate::downloads;
use crate::engine::Remote;
use crate::engine::admission::LOAD_UNLIMITED;
use crate::engine::shared::{
    BATCH_BUCKETS, LATENESS_BUCKET_NS, LATENESS_BUCKETS, LATENESS_FIRST_NS,
};
use crate::rtsp::Statistics;
use crate::store;

/// The form of [`Status`]. A new field leaves it as it is; another meaning makes it another number.
pub const SCHEMA_VERSION: u32 = 1;

/// Seconds over which [`Status::stream_cpu_ratio`] is taken.
const WINDOW_S: usize = 10;

/// The whole server.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Status {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The server's version.
    pub version: String,
    /// When this was true, in ns of the machine's monotonic clock.
    pub at_ns: u64,
    /// RTSP.
    pub sessions: Sessions,
    /// A thread that sends each.
    pub engines: Vec<Engine>,
    /// Processor time of the engines for a playing stream, as a part of one processor, over the last ten seconds;
    /// `None` while nothing plays.
    pub stream_cpu_ratio: Option<f64>,
    /// Packets that are ready to be sent.
    pub cache: Cache,
    /// Memory that may not be swapped out.
    pub locked: Locked,
    /// HTTP and FTP, if they are served.
    pub downloads: Option<Downloads>,
    /// The process.
    pub process: Process,
}

/// RTSP.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sessions {
    /// Sessions that exist.
    pub now: u64,
    /// Those that were set up, so far.
    pub total: u64,
    /// Requests that were answered 453 Not Enough Bandwidth.
    pub refused: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Answers by the first digit of their status, from 1 to 5.
    pub answers: [u64; 5],
}

/// A thread that sends. The counters are those of [`WorkerShared`](crate::engine::shared::WorkerShared).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs, reason = "each says what its original says")]
pub struct Engine {
    /// Its processor.
    pub core: usize,
    /// The data path it sends by, as in the catalogue.
    pub path: String,
    /// Streams that exist.
    pub streams: u64,
    pub playing: u64,
    pub packets: u64,
    pub bytes: u64,
    pub packets_refused: u64,
    pub crossings: u64,
    pub ticks: u64,
    pub trains: u64,
    pub trains_zero_copy: u64,
    pub trains_copied: u64,
    pub trains_single: u64,
    #[serde(default)]
    pub trains_own_headers: u64,
    /// How trains with headers of a session's own leave, after it has jumped.
    #[serde(default)]
    pub own_headers_path: String,
    pub in_flight: u64,
    pub flights_full: u64,
    pub underruns: u64,
    #[serde(default)]
    pub bursts_joined: u64,
    pub lags: u64,
    #[serde(default)]
    pub moved: u64,
    #[serde(default)]
    pub shed: u64,
    #[serde(default)]
    pub sheds: u64,
    #[serde(default)]
    pub packets_skipped: u64,
    pub demotions: u64,
    pub cpu_ns: u64,
    /// What it has promised, and what it can keep.
    #[serde(default)]
    pub admission: Admission,
    /// Bursts by lateness in ns; negative is early. Its sum is of those that were late.
    pub lateness: Histogram,
    /// Crossings by the number of bursts handed over.
    pub batches: Histogram,
}

/// By what a new session is let in or not; see [`admission`](crate::engine::admission).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Admission {
    /// How busy the engine will be with all streams that it has, as reckoned, as a part of a processor.
    pub load_promised: f64,
    /// How busy it was in the last second.
    pub load_measured: f64,
    /// How busy it may be; `None`: as busy as it gets.
    pub load_max: Option<f64>,
    /// What a train costs it, in ns, as far as is known.
    pub train_ns: u64,
    /// Too many bursts have been late for seconds, other than because others held the engine up, so that nobody is let in.
    pub is_late: bool,
}

/// How often what happened.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Histogram {
    /// The upper end of each bucket that is not empty, ascending (none: it has no end), and how many fell there.
    pub buckets: Vec<(Option<i64>, u64)>,
    /// All values added up; negative ones as 0.
    pub sum: u64,
}

/// Packets that are ready to be sent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cache {
    /// Its size.
    pub bytes: u64,
    /// That of a chunk.
    pub chunk_bytes: u64,
    /// Chunks.
    pub chunks: u64,
    /// Those that are being read, sent or built.
    pub chunks_in_use: u64,
    /// Chunks that streams began to send from.
    pub chunks_read: u64,
    /// Chunks that were built.
    pub chunks_built: u64,
    /// Chunks that were not built because all others were in use.
    pub full: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Of them, past the page cache.
    pub bytes_read_direct: u64,
}

/// Memory that may not be swapped out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Locked {
    /// Memory that stays where it is.
    pub pinned_bytes: u64,
    /// Memory that stays in memory.
    pub resident_bytes: u64,
}

/// HTTP and FTP.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Downloads {
    /// Connections of HTTP that are open.
    pub http_connections: u64,
    /// Those of FTP.
    pub ftp_connections: u64,
    /// Connections that found no place.
    pub refused: u64,
    /// Answers of HTTP by the first digit of their status, from 1 to 5.
    pub http_answers: [u64; 5],
    /// Transfers that run.
    pub active: u64,
    /// Transfers that were begun.
    pub transfers: u64,
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// `sendfile` calls.
    pub steps: u64,
    /// Waits for a client.
    pub full: u64,
    /// Waits for the disk.
    pub cold: u64,
}

/// The process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Process {
    /// Processor time of all threads.
    pub cpu_ns: u64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Open files and sockets; 0 where the kernel does not tell (before Linux 6.2).
    pub files: u64,
    /// Those that there may be.
    pub files_max: u64,
    /// When it was started, in seconds since 1970.
    pub started_s: u64,
}

/// Where all this is read.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) statistics: Arc<Statistics>,
    /// With the processor of each.
    pub(crate) engines: Vec<(usize, Arc<Remote>)>,
    pub(crate) store: Arc<store::Shared>,
    pub(crate) downloads: Option<Arc<downloads::Stats>>,
    pub(crate) started: SystemTime,
}

/// What streams cost lately.
#[derive(Debug, Default)]
pub(crate) struct Window(VecDeque<Moment>);

#[derive(Clone, Copy, Debug)]
struct Moment {
    at_ns: u64,
    cpu_ns: u64,
    playing: u64,
}

impl Watched {
    pub(crate) fn status(&self, stream_cpu_ratio: Option<f64>) -> Status {
        let totals = Manager::of_process().totals();
        Status {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at_ns: monotonic_ns(),
            sessions: Sessions::of(&self.statistics),
            engines: self
                .engines
                .iter()
                .map(|(core, remote)| Engine::of(*core, remote))
                .collect(),
            stream_cpu_ratio,
            cache: Cache::of(&self.store),
            locked: Locked {
                pinned_bytes: totals.pinned_bytes as u64,
                resident_bytes: totals.resident_bytes as u64,
            },
            downloads: self.downloads.as_deref().map(Downloads::of),
            process: Process::here(self.started),
        }
    }

    /// Once a second: what there is now.
    pub(crate) fn look(&self, window: &mut Window) {
        let sum = |counter: fn(&Remote) -> u64| self.engines.iter().map(|(_, e)| counter(e)).sum();
        window.push(Moment {
            at_ns: monotonic_ns(),
            cpu_ns: sum(cpu_ns),
            playing: sum(|remote| read(&remote.shared.playing)),
        });
    }
}

impl Window {
    fn push(&mut self, moment: Moment) {
        if self.0.len() > WINDOW_S {
            self.0.pop_front();
        }
        self.0.push_back(moment);
    }

    /// Processor time over the time that streams played.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn stream_cpu_ratio(&self) -> Option<f64> {
        let (first, last) = (self.0.front()?, self.0.back()?);
        let moments = self.0.iter().zip(self.0.iter().skip(1));
        let played_ns: f64 = moments
            .map(|(from, to)| {
                (to.at_ns - from.at_ns) as f64 * (from.playing + to.playing) as f64 / 2.0
            })
            .sum();
        let cpu_ns = last.cpu_ns.saturating_sub(first.cpu_ns) as f64;
        (played_ns > 0.0).then(|| cpu_ns / played_ns)
    }
}

impl Sessions {
    fn of(statistics: &Statistics) -> Self {
        Self {
            now: statistics.sessions.load(Ordering::Relaxed) as u64,
            total: read(&statistics.sessions_total),
            refused: read(&statistics.refused),
            connections: statistics.connections.load(Ordering::Relaxed) as u64,
            answers: statistics.answers.each_ref().map(read),
        }
    }
}

impl Engine {
    fn of(core: usize, remote: &Remote) -> Self {
        let shared = &remote.shared;
        Self {
            core,
            path: shared.path().as_str().to_owned(),
            streams: remote.streams() as u64,
            playing: read(&shared.playing),
            packets: read(&shared.packets),
            bytes: read(&shared.bytes),
            packets_refused: read(&shared.packets_refused),
            crossings: read(&shared.crossings),
            ticks: read(&shared.ticks),
            trains: read(&shared.trains),
            trains_zero_copy: read(&shared.trains_zero_copy),
            trains_copied: read(&shared.trains_copied),
            trains_single: read(&shared.trains_single),
            trains_own_headers: read(&shared.trains_own_headers),
            own_headers_path: shared.own_headers_path().to_owned(),
            in_flight: read(&shared.in_flight),
            flights_full: read(&shared.flights_full),
            underruns: read(&shared.underruns),
            bursts_joined: read(&shared.bursts_joined),
            lags: read(&shared.lags),
            moved: read(&shared.moved),
            shed: read(&shared.shed),
            sheds: read(&shared.sheds),
            packets_skipped: read(&shared.packets_skipped),
            demotions: read(&shared.demotions),
            cpu_ns: cpu_ns(remote),
            admission: Admission::of(remote),
            lateness: Histogram {
                buckets: filled(&shared.lateness, lateness_end_ns),
                sum: read(&shared.lateness_sum_ns),
            },
            batches: Histogram {
                buckets: filled(&shared.batches, batch_end),
                // Each burst counts once in each.
                sum: shared.lateness.iter().map(read).sum(),
            },
        }
    }
}

impl Admission {
    #[allow(clippy::cast_precision_loss, reason = "a part")]
    fn of(remote: &Remote) -> Self {
        let admission = &remote.shared.admission;
        let part = |permille: u64| permille as f64 / 1000.0;
        let load_max = remote.load_max_permille;
        Self {
            load_promised: part(admission.load_promised()),
            load_measured: part(admission.load_measured()),
            load_max: (load_max != LOAD_UNLIMITED).then(|| part(load_max)),
            train_ns: admission.train_ns(),
            is_late: admission.is_late(),
        }
    }
}

/// The buckets that are not empty.
fn filled(buckets: &[AtomicU64], end: fn(usize) -> Option<i64>) -> Vec<(Option<i64>, u64)> {
    let counts = buckets.iter().map(read).enumerate();
    let counts = counts.filter(|&(_, count)| count > 0);
    counts.map(|(i, count)| (end(i), count)).collect()
}

fn lateness_end_ns(bucket: usize) -> Option<i64> {
    let buckets = i64::try_from(bucket + 1).ok()?;
    (bucket < LATENESS_BUCKETS - 1).then_some(LATENESS_FIRST_NS + buckets * LATENESS_BUCKET_NS)
}

fn batch_end(bucket: usize) -> Option<i64> {
    (bucket < BATCH_BUCKETS - 1).then_some(1 << bucket)
}

impl Histogram {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// How many were not above `end`, which is the end of a bucket.
    #[must_use]
    pub fn up_to(&self, end: i64) -> u64 {
        let below = self
            .buckets
            .iter()
            .take_while(|(bucket, _)| bucket.is_some_and(|bucket| bucket <= end));
        below.map(|(_, count)| count).sum()
    }

    /// What `part` of all were not above, as the end of a bucket; [`i64::MAX`] if that has none. `None` if there
    /// were none.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a count is a count"
    )]
    pub fn quantile(&self, part: f64) -> Option<i64> {
        let rank = ((self.count() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|&(end, count)| {
            seen += count;
            (seen >= rank).then(|| end.unwrap_or(i64::MAX))
        })
    }

    /// What happened since `earlier`, of the same server.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |end| earlier.buckets.iter().find(|&&(e, _)| e == end);
        let buckets = self.buckets.iter().map(|&(end, count)| {
            let before = before(end).map_or(0, |&(_, count)| count);
            (end, count.saturating_sub(before))
        });
        Self {
            buckets: buckets.filter(|&(_, count)| count > 0).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for &(end, count) in &other.buckets {
            // What has no end is the largest.
            let key = |end: Option<i64>| end.unwrap_or(i64::MAX);
            match self
                .buckets
                .binary_search_by_key(&key(end), |&(end, _)| key(end))
            {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (end, count)),
            }
        }
        self.sum += other.sum;
        self
    }
}

impl Cache {
    fn of(store: &store::Shared) -> Self {
        let (pool, counters) = (store.pool(), store.counters());
        Self {
            bytes: pool.area().bytes_total() as u64,
            chunk_bytes: pool.chunk_bytes() as u64,
            chunks: pool.chunks() as u64,
            chunks_in_use: pool.chunks_in_use() as u64,
            chunks_read: read(&counters.chunks_read),
            chunks_built: read(&counters.chunks_built),
            full: read(&counters.pool_full),
            bytes_read: read(&counters.bytes_read),
            bytes_read_direct: read(&counters.bytes_read_direct),
        }
    }
}

impl Downloads {
    fn of(told: &downloads::Stats) -> Self {
        let counters = told.transfers.counters();
        Self {
            http_connections: read(&told.http_connections),
            ftp_connections: read(&told.ftp_connections),
            refused: read(&told.refused),
            http_answers: told.http_answers.each_ref().map(read),
            active: told.transfers.active(),
            transfers: counters.transfers,
            bytes: counters.sent_bytes,
            steps: counters.steps,
            full: counters.full,
            cold: counters.cold,
        }
    }
}

impl Process {
    fn here(started: SystemTime) -> Self {
        // proc_pid_statm(5): the second number is what is in memory, in pages.
        let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            cpu_ns: cpu_ns_of_process(std::process::id()).unwrap_or(0),
            resident_bytes: pages.unwrap_or(0_u64) * rustix::param::page_size() as u64,
            // Since Linux 6.2 the directory's size is their number (fs/proc/fd.c, proc_fd_getattr), so that
            // twenty thousand need not be listed.
            files: fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len()),
            files_max: open_files_limit(),
            started_s: since.as_secs(),
        }
    }
}

/// Processor time of the engine's thread: as of now, as long as it runs.
fn cpu_ns(remote: &Remote) -> u64 {
    let thread = remote.shared.thread.load(Ordering::Relaxed);
    cpu_ns_of(thread).unwrap_or_else(|| read(&remote.shared.cpu_ns))
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(buckets: &[(Option<i64>, u64)]) -> Histogram {
        Histogram {
            buckets: buckets.to_vec(),
            sum: 7,
        }
    }

    #[test]
    fn buckets_end_where_the_engine_says() {
        assert_eq!(lateness_end_ns(0), Some(-49_900_000));
        assert_eq!(lateness_end_ns(499), Some(0));
        assert_eq!(lateness_end_ns(LATENESS_BUCKETS - 2), Some(154_700_000));
        assert_eq!(lateness_end_ns(LATENESS_BUCKETS - 1), None);
        assert_eq!(batch_end(0), Some(1));
        assert_eq!(batch_end(BATCH_BUCKETS - 2), Some(1 << 14));
        assert_eq!(batch_end(BATCH_BUCKETS - 1), None);
    }

    #[test]
    fn histograms_are_read_added_and_subtracted() {
        let some = histogram(&[(Some(-5), 1), (Some(0), 97), (Some(9), 1), (None, 1)]);
        assert_eq!((some.count(), some.up_to(0), some.up_to(8)), (100, 98, 98));
        assert_eq!(some.up_to(9), 99);
        assert_eq!(some.quantile(0.0), Some(-5));
        assert_eq!(some.quantile(0.98), Some(0));
        assert_eq!(some.quantile(0.99), Some(9));
        assert_eq!(some.quantile(1.0), Some(i64::MAX));
        assert_eq!(Histogram::default().quantile(0.5), None);
        let more = some.clone().and(&histogram(&[(Some(3), 2), (None, 1)]));
        assert_eq!(
            more.buckets,
            [
                (Some(-5), 1),
                (Some(0), 97),
                (Some(3), 2),
                (Some(9), 1),
                (None, 2)
            ]
        );
        assert_eq!(more.sum, 14);
        assert_eq!(more.since(&some), histogram(&[(Some(3), 2), (None, 1)]));
    }

    #[test]
    fn a_stream_costs_what_engines_used_while_it_played() {
        let mut window = Window::default();
        assert_eq!(window.stream_cpu_ratio(), None);
        for second in 0..30 {
            window.push(Moment {
                at_ns: second * 1_000_000_000,
                cpu_ns: second * 100_000_000,
                playing: if second < 15 { 0 } else { 10 },
            });
            let ratio = window.stream_cpu_ratio();
            assert_eq!(ratio.is_some(), second >= 15, "second {second}: {ratio:?}");
        }
        assert_eq!(window.0.len(), WINDOW_S + 1);
        let ratio = window.stream_cpu_ratio().unwrap();
        assert!((ratio - 0.01).abs() < 1e-12, "{ratio}");
    }
}
