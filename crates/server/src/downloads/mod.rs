//! Downloads: what HTTP and FTP share, on one thread of their own.
//!
//! That thread is the transfer engine: connections are tasks on it, bodies go by
//! [`crate::transfer`], and no request crosses to another thread unless a disk must be waited for.
//! RTSP's control has its own thread, so that a flood of downloads delays no PLAY. Files come from
//! `files`, which opens nothing outside the libraries.
//!
//! [`http`] and [`ftp`] stand on all other files here; those know neither.

mod admission;
mod clock;
pub(crate) mod config;
mod files;
mod folder;
pub mod ftp;
pub mod http;
mod log;
mod memory;
mod receive;
mod send;
mod spare;
mod uploads;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_sys::clock::monotonic_ns;
use onrush_sys::thread::raise_open_files_limit;
use onrush_wire::pace::schedule::Rate;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

use self::admission::{Admission, Protocol, of_address};
use self::clock::Clock;
pub use self::config::{
    AccessLog, DownloadLimits, Downloads, LogTarget, UploadSync, UploadsConfig,
};
use self::files::Files;
pub use self::files::OPEN_TIME_MAX;
pub use self::folder::{FOLDER_ENTRIES_MAX, FOLDER_NAMES_MAX};
pub use self::http::{
    ANSWER_WAIT_MAX, FIRST_SEGMENT_WAIT_MAX, GATHERED_AT_ONCE_MAX, HTTP2_CONTROL_BYTES_MAX,
    HTTP2_ERRORS_MAX, HTTP2_RESETS_MAX, INDEX_WAIT_MAX, KEPT_SEGMENTS_MAX, LIVE_FILES_MAX,
    RENDITION_FILES_MAX, RENDITIONS_BYTES_MAX, SEGMENT_CACHE_BYTES_MAX,
};
use self::log::Log;
use self::memory::MadeBytes;
pub use self::memory::{CONNECTION_MADE_BYTES_MAX, CONNECTION_MADE_BYTES_MIN, MADE_BYTES_MAX};
use self::uploads::Uploads;
use crate::drain::Drain;
use crate::engine::shared::{bump, drop_one};
use crate::hls_live::LiveHls;
use crate::library::{Library, Places};
use crate::listening::Draining;
use crate::random::random;
use crate::statistics::Statistics;
use crate::tls::Tls;
use crate::transfer;
use crate::transfer::{Settings, Transfers};
use crate::tunnelling::Tunnels;
use crate::users::Authorizer;

/// So long a player may take to ask for its next segment: one lasts six seconds as a rule, and it
/// has some ahead.
const NEXT_SEGMENT_NS: u64 = 30_000_000_000;

/// How long those are waited for who are told that the server stops.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) settings: Downloads,
    /// Where files lie.
    pub(crate) places: Arc<Places>,
    pub(crate) files: Files,
    /// What is played of the same files.
    pub(crate) library: Arc<Library>,
    pub(crate) transfers: Rc<Transfers>,
    /// Files of subtitles that were found beside films lately.
    pub(crate) text_names: http::TextNames,
    /// Segments of films that were computed lately.
    pub(crate) segments: http::SegmentCache,
    /// Those that were asked for again, whole.
    pub(crate) segment_files: Rc<http::SegmentFiles>,
    /// Those of channels, while many ask for them.
    pub(crate) live_files: http::LiveFiles,
    /// What answers hold of memory.
    pub(crate) made_bytes: MadeBytes,
    pub(crate) admission: Admission,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) log: Log,
    /// Where files are taken.
    pub(crate) uploads: Option<Rc<Uploads>>,
    pub(crate) clock: Clock,
    /// Separates the parts of a multipart answer.
    pub(crate) boundary: String,
    /// Where RTSP plays the same files.
    pub(crate) rtsp_port: Option<u16>,
    /// Where connections go that turn out to speak RTSP.
    pub(crate) tunnels: Tunnels,
    /// Live channels.
    pub(crate) live: Arc<LiveHls>,
    /// When the server was started, in seconds since 1970.
    pub(crate) started_s: i64,
    /// What there is of everything in this process.
    pub(crate) statistics: Arc<Statistics>,
    /// Files that this process may have open.
    files_max: u64,
    /// Whether nobody more is to come: connections end with the answer that is under way.
    pub(crate) draining: Draining,
    /// Whether the server stops. Who hears of it still has something to say.
    pub(crate) stopping: watch::Sender<bool>,
}

/// What the thread of downloads tells the others: written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) http_connections: AtomicU64,
    pub(crate) ftp_connections: AtomicU64,
    /// Connections that found no place.
    pub(crate) refused: AtomicU64,
    /// Requests and commands that are carried out, also those for which nothing moves yet.
    under_way: AtomicU64,
    /// When somebody asked last for what only a film's playlist names, by the steady clock; 0 for
    /// never.
    segment_asked_ns: AtomicU64,
    /// Answered requests of HTTP by the first digit of their status, from 1 to 5.
    pub(crate) http_answers: [AtomicU64; 5],
    /// Uploads that go on.
    pub(crate) uploads: AtomicU64,
    /// Files that were stored whole.
    pub(crate) uploaded: AtomicU64,
    /// Uploads that were refused for want of a place or of room.
    pub(crate) uploads_refused: AtomicU64,
    /// Uploads that were broken off.
    pub(crate) uploads_broken: AtomicU64,
    pub(crate) transfers: Arc<transfer::Stats>,
    pub(crate) segments: Arc<http::SegmentStats>,
}

/// A request or a command that is carried out, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Stats>);

/// The thread, and where it listens. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) stats: Arc<Stats>,
    pub(crate) http_addresses: Vec<SocketAddr>,
    pub(crate) https_addresses: Vec<SocketAddr>,
    pub(crate) ftp_addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Sockets that listen already, so that a port in use is known before anything else is started.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) http: Vec<TcpListener>,
    pub(crate) https: Vec<TcpListener>,
    /// What the latter are served with, and clients of FTP that ask for it.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) ftp: Vec<TcpListener>,
    /// Where connections go that turn out to speak RTSP.
    pub(crate) tunnels: Tunnels,
    /// Whether nobody more is to come.
    pub(crate) draining: Draining,
}

impl Running {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had, or the access log cannot be written.
    pub(crate) fn start(
        settings: Downloads,
        library: Arc<Library>,
        (rtsp_port, live): (Option<u16>, Arc<LiveHls>),
        shared: (Arc<Statistics>, Arc<Authorizer>),
        listening: Listening,
    ) -> io::Result<Self> {
        let addresses = |listeners: &[TcpListener]| {
            let addresses = listeners.iter().map(TcpListener::local_addr);
            addresses.collect::<io::Result<Vec<_>>>()
        };
        let http_addresses = addresses(&listening.http)?;
        let https_addresses = addresses(&listening.https)?;
        let ftp_addresses = addresses(&listening.ftp)?;
        let log = Log::open(settings.access_log.as_ref())?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let stats = Arc::new(Stats::default());
        let of_thread = Arc::clone(&stats);
        let run = move || {
            // In here, because nothing of it may leave the thread.
            let live = (rtsp_port, live, listening.tunnels.clone());
            let ends = (log, listening.draining.clone());
            let site = Site::new(settings, library, live, shared, ends, of_thread);
            serve(&runtime, site, listening, stopped);
            // Only a read of a disk can be left.
            runtime.shutdown_timeout(Duration::from_secs(1));
        };
        let thread = thread::Builder::new().name("onrush-http".to_owned());
        Ok(Self {
            stats,
            http_addresses,
            https_addresses,
            ftp_addresses,
            stop: Some(stop),
            thread: Some(thread.spawn(run)?),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            // What the thread died of is not lost, and not thrown over another panic.
            if !thread::panicking() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Stats {
    /// Of that protocol, those that are open.
    fn connections(&self, protocol: Protocol) -> &AtomicU64 {
        match protocol {
            Protocol::Http => &self.http_connections,
            Protocol::Ftp => &self.ftp_connections,
        }
    }

    /// Connections that are open.
    pub(crate) fn open_connections(&self) -> u64 {
        let of = |protocol| self.connections(protocol).load(Ordering::Relaxed);
        of(Protocol::Http) + of(Protocol::Ftp)
    }

    /// Requests and commands that are carried out now. While clients are sent on to another server
    /// one more for those who watch a film by HLS or DASH: what its playlist names they have from
    /// here, and between two segments they ask for nothing.
    pub(crate) fn left(&self, drain: &Drain) -> u64 {
        let is_watched = drain.redirection().is_some() && self.is_watched_at(monotonic_ns());
        self.under_way.load(Ordering::Relaxed) + u64::from(is_watched)
    }

    /// Somebody has asked for what only a film's playlist names.
    pub(crate) fn segment_asked(&self) {
        let asked_ns = &self.segment_asked_ns;
        asked_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    fn is_watched_at(&self, now_ns: u64) -> bool {
        let asked_ns = self.segment_asked_ns.load(Ordering::Relaxed);
        asked_ns > 0 && now_ns.saturating_sub(asked_ns) < NEXT_SEGMENT_NS
    }

    /// A request of HTTP was answered so.
    pub(crate) fn count_answer(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        bump(&self.http_answers[class - 1], 1);
    }
}

impl UnderWay {
    /// Counts one that has come: it is to be answered before the server ends.
    pub(crate) fn begin(site: &Site) -> Self {
        bump(&site.stats.under_way, 1);
        Self(Arc::clone(&site.stats))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        drop_one(&self.0.under_way);
    }
}

impl Site {
    fn new(
        settings: Downloads,
        library: Arc<Library>,
        (rtsp_port, live, tunnels): (Option<u16>, Arc<LiveHls>, Tunnels),
        (statistics, authorizer): (Arc<Statistics>, Arc<Authorizer>),
        (log, draining): (Log, Draining),
        stats: Arc<Stats>,
    ) -> Rc<Self> {
        let files_max = raise_open_files_limit();
        // What is kept open for whoever asks next is no client's, and no more than an eighth of
        // all.
        let kept_max = usize::try_from(files_max / 8).unwrap_or(usize::MAX);
        let kept_max = settings.limits.download_files_max.min(kept_max);
        let held = &statistics.download_files;
        held.fetch_add(kept_max, Ordering::Relaxed);
        let of_transfers = Settings {
            rate_max: settings.rate_max.map(rate),
            left_to_others: settings.left_to_others,
            stall_time_max: settings.limits.download_stall_time_max,
        };
        let transfers = Transfers::with_stats(of_transfers, Arc::clone(&stats.transfers));
        let of_client = of_address(&settings.limits, MADE_BYTES_MAX);
        let segments_max = settings.limits.download_segments_bytes_max;
        // What is sent of channels now is little, and soon goes.
        let live_max = segments_max / 8;
        let segment_files = http::SegmentFiles::new(segments_max, Arc::clone(&stats.segments));
        let places = library.places();
        // Nothing says into which of several libraries.
        let uploads = settings.uploads.zip(places.only_folder());
        let uploads = uploads.map(|(it, root)| Rc::new(Uploads::new(Arc::clone(root), it)));
        Rc::new(Self {
            files: Files::new(Arc::clone(&places), kept_max),
            places,
            library,
            transfers,
            segments: http::SegmentCache::default(),
            text_names: http::TextNames::default(),
            segment_files,
            live_files: http::LiveFiles::new(live_max),
            made_bytes: MadeBytes::new(of_client, &statistics.hls),
            admission: Admission::default(),
            authorizer,
            stats,
            log,
            uploads,
            clock: Clock::default(),
            boundary: boundary(),
            rtsp_port,
            live,
            tunnels,
            started_s: started_s(),
            statistics,
            files_max,
            draining,
            stopping: watch::Sender::new(false),
            settings,
        })
    }

    /// Once a second: what nobody uses any more is let go.
    async fn housekeeping(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.files.sweep();
            self.admission.sweep();
            self.transfers.sweep();
            self.segment_files.sweep();
            self.live_files.sweep();
            self.live.sweep();
            if self.live.is_always() {
                self.live.start_all();
            }
            self.log.flush();
        }
    }
}

/// A rate with room for what leaves in a tenth of a second, so that a socket is filled now and then
/// and not drop by drop.
pub(crate) fn rate(bytes_a_second: u64) -> Rate {
    Rate {
        bytes_a_second,
        burst_bytes: (bytes_a_second / 10).max(16 << 10),
    }
}

fn serve(runtime: &Runtime, site: Rc<Site>, listening: Listening, stopped: oneshot::Receiver<()>) {
    let tasks = LocalSet::new();
    tasks.block_on(runtime, async {
        let mut taking = JoinSet::new();
        for listener in listening.http {
            taking.spawn_local(http::accept(Rc::clone(&site), in_runtime(listener), None));
        }
        for listener in listening.https {
            let (site, tls) = (Rc::clone(&site), listening.tls.clone());
            taking.spawn_local(http::accept(site, in_runtime(listener), tls));
        }
        for listener in listening.ftp {
            let tls = listening.tls.clone();
            taking.spawn_local(ftp::accept(Rc::clone(&site), in_runtime(listener), tls));
        }
        let mut accepting = JoinSet::new();
        accepting.spawn_local(async move {
            listening.draining.begins().await;
            taking.shutdown().await;
        });
        accepting.spawn_local(Rc::clone(&site).housekeeping());
        if let Some(uploads) = &site.uploads {
            accepting.spawn_local(Rc::clone(uploads).sweeping());
        }
        // A sender that was dropped asks for the same as one that sent.
        stopped.await.unwrap_or_default();
        accepting.shutdown().await;
        site.stopping.send_replace(true);
        let told = timeout(GOODBYE_TIME_MAX, site.stopping.closed());
        told.await.unwrap_or_default();
    });
    // Connections are cut: a client that resumes loses nothing.
    drop(tasks);
    site.log.flush();
}

fn in_runtime(listener: TcpListener) -> tokio::net::TcpListener {
    tokio::net::TcpListener::from_std(listener).expect("a runtime with I/O")
}

/// Now, in seconds since 1970.
fn started_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

/// Not to be guessed by whoever writes the files.
fn boundary() -> String {
    format!("onrush-{:032x}", u128::from_be_bytes(random()))
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_in_segments_is_left_between_two() {
        let (stats, drain) = (Stats::default(), Drain::default());
        drain.begin(Some("rtsp://b/".parse().unwrap()));
        assert_eq!(stats.left(&drain), 0, "nobody has asked");
        stats.segment_asked();
        assert_eq!(stats.left(&drain), 1);
        let asked_ns = stats.segment_asked_ns.load(Ordering::Relaxed);
        assert!(stats.is_watched_at(asked_ns + NEXT_SEGMENT_NS - 1));
        assert!(!stats.is_watched_at(asked_ns + NEXT_SEGMENT_NS));
        drain.end();
        assert_eq!(stats.left(&drain), 0, "nobody is sent on");
    }
}
