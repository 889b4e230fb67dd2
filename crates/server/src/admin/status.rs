//! What the server does, at one moment: the table of all counters.
//!
//! Everything here is read from counters that others keep anyway: nobody is asked, stopped or
//! locked out for it. Each counter is exact; together they are of almost the same moment. The JSON
//! of `/status` is [`Status`] as it stands here; the metrics, `onrush top` and the document come
//! from the same rows.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use onrush_lock::{Manager, Totals};
use onrush_sys::clock::{cpu_ns_of, cpu_ns_of_process, monotonic_ns};
use onrush_sys::thread::open_files_limit;
use serde::{Deserialize, Serialize};

pub use super::channel::{Channel, Publishers, Received, Sent};
pub use super::cluster::Cluster;
pub use super::downloads::Downloads;
pub use super::histogram::Histogram;
use super::histogram::{batch_end, filled, lateness_end_ns};
pub use super::hls::Hls;
pub use super::objects::ObjectStore;
use super::table::{Field, Kind, Row, Samples, read, table};
use crate::channels::published::PublishedChannels;
use crate::downloads;
use crate::engine::Remote;
use crate::engine::admission::LOAD_UNLIMITED;
use crate::engine::shared::WorkerShared;
use crate::hls_live::LiveHls;
use crate::statistics::Statistics;
use crate::tls::TlsStats;
use crate::{channels, library, store, users};

/// The form of [`Status`]. A new field leaves it as it is; another meaning makes it another number.
pub const SCHEMA_VERSION: u32 = 1;

/// Seconds over which [`Status::stream_cpu_ratio`] is taken.
const WINDOW_S: usize = 10;

table! {
    /// The whole server.
    #[serde(default)]
    pub struct Status from (watched: &Watched, stream_cpu_ratio: Option<f64>) {
        /// [`SCHEMA_VERSION`].
        schema_version: u32 = SCHEMA_VERSION, Info;
        /// 1, with the server's version.
        version: String = env!("CARGO_PKG_VERSION").to_owned(),
            Info "onrush_build_info" by "version";
        /// When this was true, in ns of the machine's monotonic clock.
        at_ns: u64 = monotonic_ns(), Counter;
        /// RTSP.
        sessions: Sessions = Sessions::of(&watched.statistics), Counter;
        /// A thread that sends each.
        engines: Vec<Engine> = watched.engines(), Counter;
        /// Processor time of the engines for a playing stream, as a part of one processor, over the
        /// last ten seconds; absent while nothing plays.
        stream_cpu_ratio: Option<f64> = stream_cpu_ratio, Gauge "onrush_stream_cpu_ratio";
        /// Packets that are ready to be sent; absent where no files are served.
        cache: Option<Cache> = watched.cache(), Counter;
        /// What is known of files; absent where none are served.
        indexes: Option<Indexes> = watched.indexes(), Counter;
        /// Memory that may not be swapped out.
        locked: Locked = Locked::of(&Manager::of_process().totals()), Gauge;
        /// Live channels, in the order of the configuration.
        channels: Vec<Channel> = watched.channels(), Counter;
        /// HTTP and FTP, if they are served.
        downloads: Option<Downloads> = watched.downloads(), Counter;
        /// Live channels by HLS.
        hls: Hls = Hls::now(&watched.statistics.hls), Counter;
        /// Who was allowed and refused what; where there are no users, nobody is asked.
        users: Users = Users::of(&watched.statistics.users), Counter;
        /// Its part in a cluster; absent where it is in none.
        cluster: Option<Cluster> = watched.statistics.cluster.get().map(|it| Cluster::now(it)),
            Counter;
        /// The object stores that films are in; absent where all are in folders.
        objects: Option<ObjectStore> = ObjectStore::now(&watched.statistics), Counter;
        /// Handshakes of TLS.
        tls: Handshakes = Handshakes::of(&watched.statistics.tls), Counter;
        /// The process.
        process: Process = Process::of(watched.started), Counter;
    }
    metrics {}
}

table! {
    /// RTSP.
    pub struct Sessions from (statistics: &Statistics) {
        /// RTSP sessions that exist.
        now: u64 = statistics.sessions.load(Ordering::Relaxed) as u64,
            Gauge "onrush_sessions_open";
        /// RTSP sessions that were set up.
        total: u64 = read(&statistics.sessions_total), Counter "onrush_sessions_total";
        /// Requests that were answered 453 Not Enough Bandwidth.
        refused: u64 = read(&statistics.refused), Counter "onrush_sessions_refused_total";
        /// RTSP connections that are open.
        connections: u64 = statistics.connections.load(Ordering::Relaxed) as u64,
            Gauge "onrush_rtsp_connections";
        /// RTSP requests that were answered, by the class of the status: 1xx to 5xx.
        answers: [u64; 5] = statistics.answers.each_ref().map(read),
            Counter "onrush_rtsp_requests_total" by "code";
    }
    metrics {}
}

table! {
    /// A thread that sends.
    #[serde(default)]
    pub struct Engine from (core: usize, remote: &Remote, shared: &WorkerShared) {
        /// Its processor.
        core: usize = core, Info;
        /// 1 for the data path that the engine sends by, as in the catalogue.
        path: String = shared.path().as_str().to_owned(), Info "onrush_path_info" by "path";
        /// Streams that exist, playing or not.
        streams: u64 = remote.streams.taken() as u64, Gauge "onrush_streams";
        /// Streams that play.
        playing: u64 = read(&shared.playing), Gauge "onrush_streams_playing";
        /// RTP packets that the kernel took.
        packets: u64 = read(&shared.packets), Counter "onrush_packets_total";
        /// Bytes of those packets, RTP headers included, UDP's and lower ones not.
        bytes: u64 = read(&shared.bytes), Counter "onrush_sent_bytes_total";
        /// RTP packets that the kernel refused: no route, a full send buffer, a firewall.
        packets_refused: u64 = read(&shared.packets_refused),
            Counter "onrush_packets_refused_total";
        /// Entries into the kernel to send, to wait, or both at once.
        crossings: u64 = read(&shared.crossings), Counter "onrush_crossings_total";
        /// Times the engine woke to see what is due.
        ticks: u64 = read(&shared.ticks), Counter "onrush_ticks_total";
        /// Trains handed over.
        trains: u64 = read(&shared.trains), Counter;
        /// Of those, sent without a copy, as the kernel reported.
        trains_zero_copy: u64 = read(&shared.trains_zero_copy), Counter;
        /// Of those, copied by the kernel.
        trains_copied: u64 = read(&shared.trains_copied), Counter;
        /// Of those, of one packet and so copied on purpose, on a zero-copy path.
        trains_single: u64 = read(&shared.trains_single), Counter;
        /// Of those, on a zero-copy path, refused by the kernel, or sent without it telling how.
        trains_other: u64 = read(&shared.trains_other), Counter;
        /// Trains with RTP headers of a session's own, because it has jumped.
        trains_own_headers: u64 = read(&shared.trains_own_headers),
            Counter "onrush_trains_own_headers_total";
        /// Trains sent over RTSP connections (interleaved).
        trains_framed: u64 = read(&shared.trains_framed),
            Counter "onrush_trains_framed_total";
        /// RTSP connections that carry RTP.
        connections: u64 = read(&shared.connections), Gauge "onrush_interleaved_connections";
        /// Times a stream's clock was moved because its client did not take what was sent over its
        /// connection.
        stalls: u64 = read(&shared.stalls), Counter "onrush_stalls_total";
        /// Connections that were ended because their clients took nothing for too long.
        stalled_out: u64 = read(&shared.stalled_out),
            Counter "onrush_connections_stalled_out_total";
        /// How trains with headers of a session's own leave, after it has jumped.
        own_headers_path: String = shared.own_headers_path().to_owned(), Info;
        /// Trains whose memory the kernel still needs.
        in_flight: u64 = read(&shared.in_flight), Gauge "onrush_trains_in_flight";
        /// Bursts put off to the next tick because too many trains were in flight, also where
        /// others hold the share of a connection.
        flights_full: u64 = read(&shared.flights_full), Counter "onrush_trains_put_off_total";
        /// Bursts put off to the next tick because their chunk was not in the cache yet.
        underruns: u64 = read(&shared.underruns), Counter "onrush_underruns_total";
        /// Bursts that left in one train with the burst before, because the engine was behind.
        bursts_joined: u64 = read(&shared.bursts_joined), Counter "onrush_bursts_joined_total";
        /// Times a stream was so late that its clock was moved instead of catching up.
        lags: u64 = read(&shared.lags), Counter "onrush_lags_total";
        /// Streams that went from this engine to another.
        moved: u64 = read(&shared.moved), Counter "onrush_streams_moved_total";
        /// Streams that play but are left out, because all were late for seconds.
        shed: u64 = read(&shared.shed), Gauge "onrush_streams_shed";
        /// Times a stream was left out.
        sheds: u64 = read(&shared.sheds), Counter "onrush_sheds_total";
        /// RTP packets that such streams were not sent.
        packets_skipped: u64 = read(&shared.packets_skipped),
            Counter "onrush_packets_skipped_total";
        /// Times a better data path was not to be had, or was given up.
        demotions: u64 = read(&shared.demotions), Counter "onrush_demotions_total";
        /// Processor time of the engine's thread.
        cpu_ns: u64 = cpu_ns(remote), Counter "onrush_engine_cpu_seconds_total";
        /// What it has promised, and what it can keep.
        admission: Admission = Admission::of(remote, &shared.admission), Info;
        /// When bursts left minus when they were due; early ones count as 0. Told apart to 0.1 ms.
        lateness: Histogram = Histogram {
            buckets: filled(&shared.lateness, lateness_end_ns),
            sum: read(&shared.lateness_sum_ns),
        }, Histogram "onrush_burst_lateness_seconds";
        /// Bursts that were handed to the kernel in one crossing.
        batches: Histogram = Histogram {
            buckets: filled(&shared.batches, batch_end),
            // Each burst counts once in each.
            sum: shared.lateness.iter().map(read).sum(),
        }, Histogram "onrush_batch_bursts";
    }
    metrics {
        /// Trains (sends) by how the kernel took them: zero_copy and copied as it reported, single
        /// ones of one packet that are copied on purpose, other ones that it refused or of which
        /// it does not tell, each once it has let go of them; on a path that copies all are copied.
        Counter "onrush_trains_total" by "how" = |engine| vec![
            ("zero_copy", engine.trains_zero_copy),
            ("copied", engine.trains_copied),
            ("single", engine.trains_single),
            ("other", engine.trains_other),
        ];
    }
}

table! {
    /// By what a new session is let in or not; see [`admission`](crate::engine::admission).
    #[derive(Copy)]
    #[serde(default)]
    pub struct Admission from (remote: &Remote, promised: &crate::engine::admission::Admission) {
        /// How busy the engine will be with all streams that it has, playing or not, as reckoned,
        /// as a part of a processor.
        load_promised: f64 = part(promised.load_promised()),
            Gauge "onrush_engine_load_promised_ratio";
        /// How busy it was in the last second.
        load_measured: f64 = part(promised.load_measured()), Gauge "onrush_engine_load_ratio";
        /// How busy it may be: a session that would make it busier is refused; absent without such
        /// a limit.
        load_max: Option<f64> = (remote.load_max_permille != LOAD_UNLIMITED)
            .then(|| part(remote.load_max_permille)),
            Gauge "onrush_engine_load_max_ratio";
        /// Processor time of a train, as it is reckoned for new sessions: what trains cost in the
        /// last second.
        train_ns: u64 = promised.train_ns(), Gauge "onrush_engine_train_cost_seconds";
        /// 1 while nobody is let in because bursts have been late for seconds, other than because
        /// others held the engine up.
        is_late: bool = promised.is_late(), Gauge "onrush_engine_closed";
    }
    metrics {}
}

table! {
    /// Packets that are ready to be sent.
    #[serde(default)]
    pub struct Cache from (store: &store::Shared, counters: &store::Counters) {
        /// Memory for packets that are ready to be sent: what there is, or will be, as far as is
        /// known.
        bytes: u64 = store.pool().bytes_ready_of().1 as u64, Gauge "onrush_cache_bytes";
        /// Of that, touched, locked and registered, so that packets can be put there; all of it a
        /// while after the start.
        bytes_ready: u64 = store.pool().bytes_ready_of().0 as u64,
            Gauge "onrush_cache_ready_bytes";
        /// Bytes of one of its chunks.
        chunk_bytes: u64 = store.pool().chunk_bytes() as u64, Gauge "onrush_cache_chunk_bytes";
        /// Its chunks that are ready.
        chunks: u64 = store.pool().chunks() as u64, Gauge "onrush_cache_chunks";
        /// Chunks that are being read, sent or built.
        chunks_in_use: u64 = store.pool().chunks_in_use() as u64,
            Gauge "onrush_cache_chunks_in_use";
        /// Chunks that streams began to send from; those that were not built for it were hits.
        chunks_read: u64 = read(&counters.chunks_read), Counter "onrush_cache_chunk_reads_total";
        /// Chunks that were built from files.
        chunks_built: u64 = read(&counters.chunks_built),
            Counter "onrush_cache_chunks_built_total";
        /// Chunks that were not built because all others were in use.
        full: u64 = read(&counters.pool_full), Counter "onrush_cache_full_total";
        /// Bytes that were read from files to build chunks.
        bytes_read: u64 = read(&counters.bytes_read), Counter "onrush_file_read_bytes_total";
        /// Of those, read past the page cache (O_DIRECT).
        bytes_read_direct: u64 = read(&counters.bytes_read_direct),
            Counter "onrush_file_read_direct_bytes_total";
    }
    metrics {}
}

table! {
    /// What is known of files, which is made by reading them, and outlives the server where it has
    /// a state directory.
    #[serde(default)]
    pub struct Indexes from (library: &library::Counters, saved: &library::SavedCounters) {
        /// Bytes that were read from files to index them.
        bytes_read: u64 = read(&library.bytes_read), Counter "onrush_index_read_bytes_total";
        /// Saved indexes that were found, so that the file was not read.
        restored: u64 = read(&saved.restored), Counter "onrush_saved_indexes_restored_total";
        /// Saved indexes that were looked for and not found.
        missed: u64 = read(&saved.missed), Counter "onrush_saved_indexes_missed_total";
        /// Saved indexes that were thrown away: damaged, or of another build of the server.
        thrown_away: u64 = read(&saved.thrown_away),
            Counter "onrush_saved_indexes_thrown_away_total";
        /// Indexes that were saved.
        saved: u64 = read(&saved.saved), Counter "onrush_saved_indexes_written_total";
        /// Indexes that were not saved: no room, too many at once, or an error.
        unsaved: u64 = read(&saved.unsaved), Counter "onrush_saved_indexes_unwritten_total";
        /// Saved indexes that were removed to make room.
        removed: u64 = read(&saved.removed), Counter "onrush_saved_indexes_removed_total";
        /// Bytes of saved indexes on the disk.
        saved_bytes: u64 = read(&saved.bytes), Gauge "onrush_saved_indexes_bytes";
    }
    metrics {}
}

table! {
    /// Memory that may not be swapped out.
    pub struct Locked from (totals: &Totals) {
        /// Memory that stays where it is.
        pinned_bytes: u64 = totals.pinned_bytes as u64, Gauge;
        /// Memory that stays in memory.
        resident_bytes: u64 = totals.resident_bytes as u64, Gauge;
    }
    metrics {
        /// Memory that this process has locked: resident may move, pinned does not.
        Gauge "onrush_locked_bytes" by "kind" = |locked| vec![
            ("pinned", locked.pinned_bytes),
            ("resident", locked.resident_bytes),
        ];
    }
}

table! {
    /// Users.
    #[derive(Copy)]
    #[serde(default)]
    pub struct Users from (stats: &users::Stats) {
        /// Requests of RTSP, HTTP and FTP that users were allowed, or everybody, where not
        /// everything is everybody's.
        allowed: u64 = read(&stats.allowed), Counter "onrush_auth_allowed_total";
        /// Those that came without a password, or with what nobody takes, and were asked for one.
        challenged: u64 = read(&stats.challenged), Counter;
        /// Those whose nonce was too old or had been used before.
        stale: u64 = read(&stats.stale), Counter;
        /// Those with a wrong user, password or signature.
        wrong: u64 = read(&stats.wrong), Counter;
        /// Those that were not looked at because too many from their address were wrong.
        slowed: u64 = read(&stats.slowed), Counter;
        /// Those of users who may not do that.
        forbidden: u64 = read(&stats.forbidden), Counter;
        /// Those about which nobody could say in time.
        unanswered: u64 = read(&stats.unanswered), Counter;
    }
    metrics {
        /// Requests that were refused for want of rights, by why: challenged ones came without a
        /// password, stale ones with an old nonce, wrong ones with a wrong user, password or
        /// signature, slowed ones after too many of those, forbidden ones of users who may not, and
        /// unanswered ones when nobody could say in time.
        Counter "onrush_auth_refusals_total" by "reason" = |users| vec![
            ("challenged", users.challenged),
            ("stale", users.stale),
            ("wrong", users.wrong),
            ("slowed", users.slowed),
            ("forbidden", users.forbidden),
            ("unanswered", users.unanswered),
        ];
    }
}

table! {
    /// Handshakes of TLS.
    #[derive(Copy)]
    #[serde(default)]
    pub struct Handshakes from (stats: &TlsStats) {
        /// Handshakes that were begun.
        begun: u64 = read(&stats.handshakes), Counter "onrush_tls_handshakes_total";
        /// Those that came to nothing: clients that trust nobody, speak no TLS, or say nothing.
        failed: u64 = read(&stats.failed), Counter "onrush_tls_handshakes_failed_total";
        /// Connections that were closed because too many were at it.
        refused: u64 = read(&stats.refused), Counter "onrush_tls_handshakes_refused_total";
        /// Those under way.
        in_progress: u64 = read(&stats.in_progress), Gauge "onrush_tls_handshakes_in_progress";
        /// Connections whose sending the kernel encrypts since their first long body; all others
        /// the server does.
        kernel: u64 = read(&stats.kernel), Counter "onrush_tls_kernel_connections_total";
        /// Connections for which the kernel was asked to, and refused.
        kernel_refused: u64 = read(&stats.kernel_refused),
            Counter "onrush_tls_kernel_refused_total";
        /// Bytes of files that the kernel has encrypted while it sent them.
        kernel_bytes: u64 = read(&stats.kernel_bytes), Counter "onrush_tls_kernel_bytes_total";
    }
    metrics {}
}

table! {
    /// The process.
    #[serde(default)]
    pub struct Process from (started: (SystemTime, Instant)) {
        /// Processor time of all threads.
        cpu_ns: u64 = cpu_ns_of_process(std::process::id()).unwrap_or(0),
            Counter "process_cpu_seconds_total";
        /// Memory in use, the cache included.
        resident_bytes: u64 = resident_bytes(), Gauge "process_resident_memory_bytes";
        // Since Linux 6.2 the directory's size is their number (fs/proc/fd.c, proc_fd_getattr), so
        // that twenty thousand need not be listed.
        /// Open files and sockets; 0 before Linux 6.2, which does not tell.
        files: u64 = fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len()),
            Gauge "process_open_fds";
        /// Open files and sockets that there may be.
        files_max: u64 = open_files_limit(), Gauge "process_max_fds";
        /// When the server was started, in seconds since 1970, by the clock as it was then.
        started_s: u64 = started.0.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            Gauge "process_start_time_seconds";
        /// How long it has run since, whoever set the clock meanwhile.
        up_ns: u64 = u64::try_from(started.1.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Gauge "onrush_up_seconds";
    }
    metrics {}
}

/// Where all this is read.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) statistics: Arc<Statistics>,
    /// With the processor of each.
    pub(crate) engines: Vec<(usize, Arc<Remote>)>,
    pub(crate) store: Option<Arc<store::Shared>>,
    pub(crate) library: Option<Arc<library::Counters>>,
    pub(crate) channels: Vec<Arc<channels::Channel>>,
    pub(crate) published: Arc<PublishedChannels>,
    pub(crate) downloads: Option<Arc<downloads::Stats>>,
    pub(crate) live: Option<Arc<LiveHls>>,
    /// By the clock that may be set, and by the one that goes on.
    pub(crate) started: (SystemTime, Instant),
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
        Status::of(self, stream_cpu_ratio)
    }

    fn engines(&self) -> Vec<Engine> {
        let engines = self.engines.iter();
        engines
            .map(|(core, remote)| Engine::of(*core, remote, &remote.shared))
            .collect()
    }

    fn cache(&self) -> Option<Cache> {
        let store = self.store.as_deref()?;
        Some(Cache::of(store, store.counters()))
    }

    fn indexes(&self) -> Option<Indexes> {
        let library = self.library.as_deref()?;
        Some(Indexes::of(library, &library.saved))
    }

    fn channels(&self) -> Vec<Channel> {
        let mut pulled = self.published.pulled();
        let mut rows: Vec<_> = self.channels.iter().map(|it| Channel::now(it)).collect();
        for channel in self.published.all() {
            let at = pulled.iter().position(|it| it.path() == channel.path());
            let state = at.map(|at| pulled.remove(at));
            rows.push(Channel::published(&channel, state.as_deref()));
        }
        rows.extend(pulled.iter().map(|state| Channel::pulled(state)));
        rows
    }

    fn downloads(&self) -> Option<Downloads> {
        let stats = self.downloads.as_deref()?;
        Some(Downloads::now(stats))
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

/// Processor time of the engine's thread: as of now, as long as it runs.
fn cpu_ns(remote: &Remote) -> u64 {
    let thread = remote.shared.thread.load(Ordering::Relaxed);
    cpu_ns_of(thread).unwrap_or_else(|| read(&remote.shared.cpu_ns))
}

/// A part of a processor.
#[allow(clippy::cast_precision_loss, reason = "a part")]
fn part(permille: u64) -> f64 {
    permille as f64 / 1000.0
}

fn resident_bytes() -> u64 {
    // proc_pid_statm(5): the second number is what is in memory, in pages.
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_subtracted_and_gauges_stay() {
        let status = |packets, playing| Status {
            engines: vec![Engine {
                packets,
                playing,
                ..Engine::default()
            }],
            channels: vec![Channel {
                players: playing,
                sent: Sent {
                    packets,
                    ..Sent::default()
                },
                ..Channel::default()
            }],
            downloads: Some(Downloads {
                http_answers: [0, packets, 0, 0, 0],
                ..Downloads::default()
            }),
            ..Status::default()
        };
        assert_eq!(status(9, 2).since(&status(4, 7)), status(5, 2));
        let both = status(9, 2).engines[0].and(&status(4, 7).engines[0]);
        assert_eq!(both, status(13, 9).engines[0]);
        let new = Status {
            downloads: None,
            ..status(9, 2)
        };
        assert_eq!(new.since(&status(4, 7)).downloads, None);
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
