//! One channel that is cut.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::hls::Version;
use onrush_wire::hls::live::{Found, Window, WindowSettings};
use onrush_wire::http::Coding;
use onrush_wire::media::live::{LiveCutter, Output};
use serde::Serialize;
use tokio::sync::{OnceCell, watch};
use tracing::{error, info};

use super::LiveHlsConfig;
use super::stats::{HlsStats, add, subtract};
use super::store::{DiskStore, StoreFolder, Storing, Writer};
use super::wall::{Numbers, STEP_NS_MAX, WallOffset};
use crate::channels::published::PublishedChannel;
use crate::channels::tap::{Tap, Tapped};
use crate::channels::{Channel, LiveChannel};
use crate::random::random;

/// What is cut.
#[derive(Debug)]
pub(super) enum Source {
    Published(Arc<PublishedChannel>),
    Transport(Arc<Channel>),
}

/// A channel that is cut.
#[derive(Debug)]
pub(crate) struct LiveStream {
    tap: Arc<Tap>,
    window: Mutex<Window>,
    /// Counts what has changed.
    changed: watch::Sender<u64>,
    /// When somebody asked last, in ns of the monotonic clock.
    asked_ns: AtomicU64,
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Requests that found as many waiting, or as many of their address.
    refused: AtomicU64,
    store: Option<DiskStore>,
    stats: Arc<HlsStats>,
    thread: Mutex<Option<JoinHandle<()>>>,
    texts: Mutex<Vec<Text>>,
}

/// A playlist as it was written last, or is written now: which, and of how many changes at the
/// least.
#[derive(Debug)]
struct Text {
    key: (String, bool, Option<Coding>),
    changes: u64,
    sent: Arc<OnceCell<SentText>>,
}

/// A text as it is sent to all who ask: its bytes, as they are or compressed, and its entity tag, a
/// hash of all of them, which is not to be computed for each request.
#[derive(Clone, Debug)]
pub(crate) struct SentText {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) etag: Arc<str>,
}

/// What the dashboard shows of a channel.
#[derive(Debug, Serialize)]
pub(crate) struct LiveRow {
    path: String,
    /// Seconds that its playlists reach back, its listed segments and their parts in memory.
    window_s: f64,
    segments: usize,
    parts: usize,
    /// Bytes in memory and on a disk.
    bytes: usize,
    stored_bytes: u64,
    /// Requests that wait, and those that were not let wait.
    waiting: usize,
    refused: u64,
}

/// The bytes of a segment: in memory, or a part of a file.
#[derive(Debug)]
pub(crate) enum SegmentBytes {
    Shared(Vec<Arc<[u8]>>),
    Stored(Arc<File>, Range<u64>),
}

/// Breaks are counted from below here on. hls.js keeps an array of that length and walks through
/// it: with seconds since 1970 a page stood still for 40 s.
const BREAKS_BEGIN_BELOW: u64 = 1 << 16;

/// Texts of a channel that are kept. There are 28 at the most: its main playlist and those of two
/// renditions, each whole and as a delta, and its manifest; all of them plain, in two codings, and
/// as what those with credentials get is made from.
pub const LIVE_TEXTS_MAX: usize = 32;

/// The right to wait for what comes next. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    stream: &'a LiveStream,
    /// Whether who waited has its answer.
    is_over: bool,
}

impl Storing for LiveStream {
    fn store(&self) -> Option<&DiskStore> {
        self.store.as_ref()
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window()
    }

    fn has_changed(&self) {
        self.has_changed();
    }
}

impl LiveStream {
    /// Starts to cut.
    pub(super) fn start(
        path: &str,
        source: Source,
        (config, store): (&LiveHlsConfig, Option<&Arc<StoreFolder>>),
        stats: &Arc<HlsStats>,
        numbers: &Numbers,
    ) -> Result<Arc<Self>, String> {
        let offset = WallOffset::now();
        let since_1970_s = numbers.second(offset);
        let cutter = match &source {
            Source::Published(channel) => LiveCutter::new(channel.tracks(), offset.ns())?,
            Source::Transport(_) => LiveCutter::transport(offset.ns()),
        };
        let stored_max = DiskStore::segment_bytes_max(config.hls_stored_max);
        let settings = WindowSettings {
            window_us: u64::try_from(config.hls_window.as_micros()).unwrap_or(u64::MAX),
            bytes_max: config.hls_bytes_max,
            stored_bytes_max: store.map_or(0, |_| stored_max),
            first_number: since_1970_s,
            first_break: since_1970_s % BREAKS_BEGIN_BELOW,
            version: u64::from_ne_bytes(random()),
        };
        let window = Window::new(settings, cutter.renditions());
        let stream = Arc::new(Self::new(window, (config, store), stats));
        let no_thread = |error| format!("no thread for it: {error}");
        let cutting = Cutting {
            stream: Arc::clone(&stream),
            writer: Writer::start(&stream).map_err(no_thread)?,
            path: path.to_owned(),
            cutter,
            offset,
            idle_ns: match config.is_always {
                true => u64::MAX,
                false => u64::try_from(config.hls_idle_time_max.as_nanos()).unwrap_or(u64::MAX),
            },
            source,
            kept_bytes: 0,
            stored_bytes: 0,
        };
        cutting.begin();
        let thread = thread::Builder::new().name("onrush-hls".to_owned());
        let thread = thread.spawn(move || cutting.run());
        let thread = thread.map_err(no_thread)?;
        *lock(&stream.thread) = Some(thread);
        Ok(stream)
    }

    /// Of a window that nobody changes yet.
    fn new(
        window: Window,
        (config, store): (&LiveHlsConfig, Option<&Arc<StoreFolder>>),
        stats: &Arc<HlsStats>,
    ) -> Self {
        Self {
            tap: Arc::default(),
            window: Mutex::new(window),
            changed: watch::Sender::new(0),
            asked_ns: AtomicU64::new(monotonic_ns()),
            waiting: AtomicUsize::new(0),
            waiting_max: config.hls_waiting_max,
            refused: AtomicU64::new(0),
            store: store.map(|to| DiskStore::new(to, config.hls_stored_max, stats)),
            stats: Arc::clone(stats),
            thread: Mutex::default(),
            texts: Mutex::default(),
        }
    }

    /// Somebody asks for it.
    pub(crate) fn ask(&self) {
        self.asked_ns.store(monotonic_ns(), Ordering::Relaxed);
    }

    /// What is kept of it.
    pub(crate) fn window(&self) -> MutexGuard<'_, Window> {
        lock(&self.window)
    }

    /// The bytes of a segment, if it is there.
    pub(crate) fn segment(
        &self,
        rendition: &str,
        version: Version,
        number: u64,
    ) -> Option<SegmentBytes> {
        let window = self.window();
        match window.segment(rendition, version, number) {
            Found::Bytes(bytes) => Some(SegmentBytes::Shared(bytes)),
            Found::Stored(at) => {
                // Files are closed when the window has nothing in them: it is locked.
                let file = self.store.as_ref()?.file(at.file)?;
                Some(SegmentBytes::Stored(file, at.start..at.start + at.bytes))
            }
            Found::Awaited | Found::Nothing => None,
        }
    }

    /// What there is to say of it.
    pub(super) fn row(&self, path: String) -> LiveRow {
        let window = self.window();
        let (listed_us, segments, parts) = window.listed();
        LiveRow {
            path,
            window_s: Duration::from_micros(listed_us).as_secs_f64(),
            segments,
            parts,
            bytes: window.bytes(),
            stored_bytes: window.stored_bytes(),
            waiting: self.waiting.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Playlists say something else now.
    pub(crate) fn has_changed(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// How many there have been. What is written once that is known is of as many at the least.
    pub(crate) fn change_count(&self) -> u64 {
        *self.changed.borrow()
    }

    /// A place among those who wait, if there is one, and one for who `may_wait` there.
    pub(crate) fn wait(&self, may_wait: bool) -> Option<Waiting<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        if before >= self.waiting_max || !may_wait {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            add(&self.stats.waits_refused);
            add(&self.refused);
            return None;
        }
        add(&self.stats.waits);
        add(&self.stats.waiting);
        Some(Waiting {
            stream: self,
            is_over: false,
        })
    }

    pub(crate) fn stats(&self) -> &HlsStats {
        &self.stats
    }

    /// A playlist of so many changes or more, which `make` writes if there is none: its name,
    /// whether it is a delta, and whether it is compressed how say which. Who asks for it while it
    /// is written waits for that.
    pub(crate) async fn text<E>(
        &self,
        changes: u64,
        key: (&str, bool, Option<Coding>),
        make: impl Future<Output = Result<SentText, E>>,
    ) -> Result<SentText, E> {
        let sent = self.text_of(changes, key);
        sent.get_or_try_init(|| make).await.cloned()
    }

    fn text_of(&self, changes: u64, key: (&str, bool, Option<Coding>)) -> Arc<OnceCell<SentText>> {
        let mut texts = lock(&self.texts);
        let is_it = |text: &&mut Text| (&*text.key.0, text.key.1, text.key.2) == key;
        match texts.iter_mut().find(is_it) {
            Some(text) => {
                if text.changes < changes {
                    (text.sent, text.changes) = (Arc::default(), changes);
                }
                Arc::clone(&text.sent)
            }
            None => {
                let sent = Arc::default();
                // Which names there are is known to who calls, not here.
                if texts.len() < LIVE_TEXTS_MAX {
                    texts.push(Text {
                        key: (key.0.to_owned(), key.1, key.2),
                        changes,
                        sent: Arc::clone(&sent),
                    });
                }
                sent
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.tap.is_closed()
    }

    /// Ends it, and waits.
    pub(super) fn stop(&self) {
        self.tap.close();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

impl Waiting<'_> {
    /// Who waited has its answer.
    pub(crate) fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let stats = &self.stream.stats;
        self.stream.waiting.fetch_sub(1, Ordering::Relaxed);
        subtract(&stats.waiting);
        if !self.is_over {
            add(&stats.waits_left);
        }
    }
}

/// The thread of a channel. Dropping it, also by a panic, closes the channel.
struct Cutting {
    stream: Arc<LiveStream>,
    path: String,
    cutter: LiveCutter,
    /// What its dates were made with.
    offset: WallOffset,
    idle_ns: u64,
    source: Source,
    /// Bytes that its window has, in memory and stored, as they are counted.
    kept_bytes: u64,
    stored_bytes: u64,
    writer: Option<Writer>,
}

impl Cutting {
    /// What comes of the channel is given to it from now on.
    fn begin(&self) {
        info!("channel {}: segments are made of it", self.path);
        add(&self.stream.stats.channels);
        match &self.source {
            Source::Published(channel) => {
                // So that it is not taken for one that nobody watches.
                channel.count_viewer(true);
                channel.tap(Arc::clone(&self.stream.tap));
            }
            Source::Transport(channel) => channel.tap(Arc::clone(&self.stream.tap)),
        }
    }

    fn run(mut self) {
        let mut out = Vec::new();
        while !self.stream.is_closed() && !self.is_over() {
            let batch = self.stream.tap.take(LOOK_EVERY);
            if let Source::Published(channel) = &self.source {
                for track in 0..channel.tracks().len() {
                    if let Some((timestamp, at_ns, is_reported)) = channel.line_of(track) {
                        self.cutter.line(track, timestamp, at_ns, is_reported);
                    }
                }
            }
            for tapped in batch {
                match tapped {
                    Tapped::Begin => self.cutter.begin(&mut out),
                    Tapped::Packet(track, bytes, at_ns) => {
                        self.cutter.push(track, &bytes, at_ns, &mut out);
                    }
                    Tapped::Transport(bytes, at_ns) => {
                        self.cutter.push_transport(&bytes, at_ns, &mut out);
                    }
                }
                self.apply(&mut out);
            }
        }
    }

    fn apply(&mut self, out: &mut Vec<Output>) {
        if out.is_empty() {
            return;
        }
        let stream = Arc::clone(&self.stream);
        let mut window = stream.window();
        let mut is_changed = false;
        for output in out.drain(..) {
            match &output {
                Output::Part { part, .. } => {
                    let bytes = part.bytes.len() as u64;
                    add(&stream.stats.parts);
                    stream.stats.made_bytes.fetch_add(bytes, Ordering::Relaxed);
                }
                Output::SegmentEnd { .. } => add(&stream.stats.segments),
                _ => {}
            }
            is_changed |= window.apply(output);
        }
        self.count_kept(window.bytes() as u64, window.stored_bytes());
        stream.release(window, is_changed);
        if is_changed && let Some(writer) = &self.writer {
            writer.wake();
        }
    }

    /// From now on the window has so many bytes in memory, and so many stored.
    fn count_kept(&mut self, bytes: u64, stored_bytes: u64) {
        // Others add to it, and take away: what is more than before, or less.
        let change = |sum: &AtomicU64, before: &mut u64, now: u64| {
            sum.fetch_add(now.wrapping_sub(*before), Ordering::Relaxed);
            *before = now;
        };
        let stats = &self.stream.stats;
        change(&stats.kept_bytes, &mut self.kept_bytes, bytes);
        change(&stats.stored_bytes, &mut self.stored_bytes, stored_bytes);
    }

    fn is_over(&self) -> bool {
        let asked_ns = self.stream.asked_ns.load(Ordering::Relaxed);
        let is_idle = monotonic_ns().saturating_sub(asked_ns) > self.idle_ns
            && self.stream.waiting.load(Ordering::Relaxed) == 0;
        let has_ended = match &self.source {
            Source::Published(channel) => channel.end().is_some(),
            Source::Transport(_) => false,
        };
        is_idle || has_ended || self.has_wrong_dates()
    }

    /// Whether the time of day was set since the channel's dates were tied to it. Then another
    /// thread has to begin, as after a pause: players of DASH reckon with the time of day which
    /// segments there are.
    fn has_wrong_dates(&self) -> bool {
        let step_ns = self.offset.step_ns();
        let is_set = step_ns > STEP_NS_MAX;
        if is_set {
            info!(
                "channel {}: the clock was set by {} s; its segments begin anew",
                self.path,
                step_ns / 1_000_000_000
            );
        }
        is_set
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.stream.tap.close();
        drop(self.writer.take());
        subtract(&self.stream.stats.channels);
        self.count_kept(0, 0);
        // Who waits sees that it is closed.
        self.stream.has_changed();
        if let Source::Published(channel) = &self.source {
            channel.count_viewer(false);
        }
        let path = &self.path;
        match thread::panicking() {
            true => error!("channel {path}: a bug of the server; its segments begin anew"),
            false => info!("channel {path}: segments are made of it no longer"),
        }
    }
}

/// How often the thread looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
const SETTINGS: WindowSettings = WindowSettings {
    window_us: 60_000_000,
    bytes_max: 1 << 20,
    stored_bytes_max: 0,
    first_number: 0,
    first_break: 0,
    version: 0,
};

/// A window that has no rendition.
#[cfg(test)]
pub(super) fn empty_window() -> Window {
    Window::new(SETTINGS, Vec::new())
}

#[cfg(test)]
impl LiveStream {
    /// One that nobody cuts.
    pub(super) fn uncut() -> Arc<Self> {
        let config = (&LiveHlsConfig::default(), None);
        Arc::new(Self::new(empty_window(), config, &Arc::default()))
    }

    /// One that nobody cuts, with a whole segment of pictures.
    pub(crate) fn with_segment() -> Arc<Self> {
        use onrush_wire::media::live::{LiveRendition, PartOf};
        use onrush_wire::media::{Medium, segments::Format};
        let stream = Self::uncut();
        let pictures = LiveRendition {
            name: "video",
            medium: Medium::Video,
            format: Format::Cmaf,
        };
        let part = PartOf {
            bytes: Arc::from([0]),
            lasts_us: 1_000_000,
            starts_unix_ns: 0,
            starts_ticks: 0,
            ticks: 90_000,
            is_independent: true,
            begins_with_sync: true,
            samples: 25,
        };
        let (rendition, mut window) = (0, Window::new(SETTINGS, vec![pictures]));
        window.apply(Output::Part { rendition, part });
        window.apply(Output::SegmentEnd { rendition });
        window.apply(Output::Target(1));
        *stream.window() = window;
        stream
    }

    /// How many of its texts are kept.
    pub(crate) fn texts_kept(&self) -> usize {
        lock(&self.texts).len()
    }
}

#[cfg(test)]
mod tests;
