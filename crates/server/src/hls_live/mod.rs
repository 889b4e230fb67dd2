//! Live channels by HLS: segments that are made while somebody asks for them, and kept in memory
//! once for all who do.
//!
//! Of each channel that is asked for there is a thread, which takes its packets from a
//! `Tap` and cuts them ([`onrush_wire::media::live`]). It ends when
//! nobody has asked for a while. What HTTP says of it is [`crate::downloads`]'.

pub(crate) mod config;
mod stats;
pub(crate) mod store;
mod stream;
mod wall;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use onrush_wire::http::ListedChannel;
use onrush_wire::media::Medium;
use onrush_wire::media::live::LiveCutter;
use onrush_wire::media::segments::Format;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::channels::Channel;
use crate::channels::published::{PublishedChannels, Pulls, PullsFull};

pub use self::config::LiveHlsConfig;
pub(crate) use self::stats::{HlsStats, add};
use self::store::StoreFolder;
pub use self::stream::LIVE_TEXTS_MAX;
use self::stream::Source;
pub(crate) use self::stream::{LiveRow, LiveStream, SegmentBytes, SentText};
use self::wall::Numbers;

/// Live channels as HTTP finds them.
#[derive(Debug)]
pub(crate) struct LiveHls {
    config: LiveHlsConfig,
    /// Held for as long as the server runs, whether a channel is cut or not.
    store: Option<Arc<StoreFolder>>,
    is_in_kernel: bool,
    stats: Arc<HlsStats>,
    channels: OnceLock<LiveChannels>,
    running: Mutex<BTreeMap<String, Arc<LiveStream>>>,
    /// What windows begin to count with.
    numbers: Numbers,
}

/// Where channels are to be found.
#[derive(Debug)]
pub(crate) struct LiveChannels {
    channels: Vec<Arc<Channel>>,
    published: Arc<PublishedChannels>,
    pulls: Arc<Pulls>,
}

/// Why a channel that there is cannot be had.
#[derive(Debug)]
pub(crate) enum NotCut {
    /// It cannot be cut, in words.
    Never(String),
    /// It cannot be taken from another node now.
    Now(PullsFull),
    /// It is pulled, and its source does not answer now.
    Silent,
}

impl LiveChannels {
    pub(crate) fn new(
        channels: Vec<Arc<Channel>>,
        published: &Arc<PublishedChannels>,
        pulls: &Arc<Pulls>,
    ) -> Self {
        Self {
            channels,
            published: Arc::clone(published),
            pulls: Arc::clone(pulls),
        }
    }
}

impl LiveHls {
    pub(crate) fn new(
        config: LiveHlsConfig,
        is_in_kernel: bool,
        stats: &Arc<HlsStats>,
    ) -> Arc<Self> {
        let store = config.hls_store.as_deref().map(StoreFolder::new);
        Arc::new(Self {
            config,
            store: store.map(Arc::new),
            is_in_kernel,
            stats: Arc::clone(stats),
            channels: OnceLock::new(),
            running: Mutex::default(),
            numbers: Numbers::default(),
        })
    }

    /// From now on there are these.
    pub(crate) fn set_channels(&self, channels: LiveChannels) {
        // It is said once.
        drop(self.channels.set(channels));
    }

    /// Whether channels are cut that nobody has asked for.
    pub(crate) fn is_always(&self) -> bool {
        self.config.is_always
    }

    /// Starts to cut all channels that are there.
    pub(crate) fn start_all(&self) {
        for name in self.names() {
            if let Some(source) = self.source(&name) {
                // Why it is not cut, is told to who asks.
                drop(self.start(&name, source));
            }
        }
    }

    /// The names of all channels, as paths.
    pub(crate) fn names(&self) -> Vec<String> {
        let Some(all) = self.channels.get() else {
            return Vec::new();
        };
        let configured = all.channels.iter();
        let mut names: Vec<_> = configured
            .map(|it| format!("{FOLDER}{}", it.name()))
            .collect();
        let published = all.published.all();
        names.extend(published.iter().map(|it| it.path().to_owned()));
        names
    }

    /// All channels, as a page shows them.
    pub(crate) fn listed(&self) -> Vec<ListedChannel> {
        let all = self.channels.get();
        let has_pictures = |path: &str| {
            let channel = all?.published.find(path)?;
            let cutter = LiveCutter::new(channel.tracks(), 0).ok()?;
            let mut cut = cutter.renditions().into_iter();
            cut.find(|it| it.medium == Medium::Video && it.format == Format::Cmaf)
        };
        let names = self.names().into_iter();
        names
            .map(|path| ListedChannel {
                has_poster: has_pictures(&path).is_some(),
                path,
            })
            .collect()
    }

    /// The channel of that name, which is cut from now on if it was not; `None` if there is no such
    /// channel. One that is pulled is waited for.
    ///
    /// # Errors
    ///
    /// If it cannot be cut, or not be taken from where it is.
    pub(crate) async fn find(&self, path: &str) -> Option<Result<Arc<LiveStream>, NotCut>> {
        let give_up = Instant::now() + PULLED_TIME_MAX;
        loop {
            if let Some(stream) = self.running().get(path).filter(|it| !it.is_closed()) {
                stream.ask();
                return Some(Ok(Arc::clone(stream)));
            }
            if let Some(source) = self.source(path) {
                return Some(self.start(path, source).map_err(NotCut::Never));
            }
            let is_pulled = match self.channels.get()?.pulls.want(path) {
                Ok(is_pulled) => is_pulled,
                Err(full) => return Some(Err(NotCut::Now(full))),
            };
            if !is_pulled {
                return None;
            }
            if Instant::now() >= give_up {
                return Some(Err(NotCut::Silent));
            }
            sleep(PULLED_LOOK_EVERY).await;
        }
    }

    fn source(&self, path: &str) -> Option<Source> {
        let all = self.channels.get()?;
        if let Some(channel) = all.published.find(path) {
            return Some(Source::Published(channel));
        }
        let name = path.strip_prefix(FOLDER)?;
        let channel = all.channels.iter().find(|it| it.name() == name)?;
        Some(Source::Transport(Arc::clone(channel)))
    }

    fn start(&self, path: &str, source: Source) -> Result<Arc<LiveStream>, String> {
        if self.is_in_kernel && matches!(source, Source::Transport(_)) {
            return Err("channels that are replicated in the kernel are not cut".to_owned());
        }
        if let Source::Transport(channel) = &source
            && let Some(why) = channel.is_not_cut()
        {
            return Err(why);
        }
        let mut running = self.running();
        // Somebody else may have been quicker.
        if let Some(stream) = running.get(path).filter(|it| !it.is_closed()) {
            return Ok(Arc::clone(stream));
        }
        let left_out = match &source {
            Source::Published(channel) => LiveCutter::left_out(channel.tracks()),
            Source::Transport(_) => Vec::new(),
        };
        let settings = (&self.config, self.store.as_ref());
        let stream = LiveStream::start(path, source, settings, &self.stats, &self.numbers)?;
        for (track, why) in left_out {
            info!("channel {path} track{}: it is not cut: {why}", track + 1);
        }
        running.insert(path.to_owned(), Arc::clone(&stream));
        Ok(stream)
    }

    /// Lets go of what is cut no longer. To be called now and then.
    pub(crate) fn sweep(&self) {
        let mut gone = Vec::new();
        self.running().retain(|_, stream| {
            let is_closed = stream.is_closed();
            if is_closed {
                gone.push(Arc::clone(stream));
            }
            !is_closed
        });
        if !gone.is_empty() {
            // To free long files takes time.
            drop(spawn_blocking(move || drop(gone)));
        }
    }

    /// What there is to say of those that are cut.
    pub(crate) fn rows(&self) -> Vec<LiveRow> {
        let running: Vec<_> = {
            let all = self.running();
            let all = all.iter().filter(|(_, it)| !it.is_closed());
            all.map(|(path, it)| (path.clone(), Arc::clone(it)))
                .collect()
        };
        let row = |(path, stream): (String, Arc<LiveStream>)| stream.row(path);
        running.into_iter().map(row).collect()
    }

    /// Ends all of them.
    pub(crate) fn stop(&self) {
        let running = std::mem::take(&mut *self.running());
        running.values().for_each(|stream| stream.stop());
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveStream>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where channels with inputs of their own are.
const FOLDER: &str = "live/";

/// How long a client waits for a source that is asked for, and how often that is looked at.
const PULLED_TIME_MAX: Duration = Duration::from_secs(8);
const PULLED_LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// Its window, its texts and its files go, though nobody asks for another channel.
    #[tokio::test]
    async fn a_channel_that_is_cut_no_longer_is_let_go() {
        let hls = LiveHls::new(LiveHlsConfig::default(), false, &Arc::default());
        let [ended, cut] = ["ended", "cut"].map(|path| {
            let stream = LiveStream::uncut();
            hls.running().insert(path.to_owned(), Arc::clone(&stream));
            Arc::downgrade(&stream)
        });
        ended.upgrade().unwrap().stop();
        hls.sweep();
        let give_up = Instant::now() + Duration::from_secs(60);
        while ended.upgrade().is_some() {
            assert!(Instant::now() < give_up, "it is kept");
            sleep(Duration::from_millis(1)).await;
        }
        assert!(cut.upgrade().is_some());
    }
}
