//! The names of published channels, and who publishes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_sys::thread::pin_to;
use onrush_wire::media::Track;
use thiserror::Error;
use tracing::{info, warn};

use super::channel::{Command, PublishedChannel};
use super::pull_state::PullState;
use super::receiving::TrackSockets;
use super::worker::{Settings, Worker};
use super::{PUBLISHED_MAX, PUBLISHER_AWAITED_MAX};
use crate::channels::ChannelsConfig;
use crate::channels::audience::AudienceSettings;
use crate::channels::config::is_source_name;
use crate::config::Limits;
use crate::random::random;

/// The published channels of a process. Stop them in the end.
#[derive(Debug)]
pub(crate) struct PublishedChannels {
    settings: Settings,
    core: Option<usize>,
    names: Mutex<Names>,
    pulled: Mutex<Vec<Arc<PullState>>>,
}

#[derive(Debug, Default)]
struct Names {
    taken: BTreeMap<String, Entry>,
    /// Threads of channels that have ended.
    ended: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Entry {
    channel: Arc<PublishedChannel>,
    thread: JoinHandle<()>,
    /// Since when nobody publishes, if so.
    gone: Option<Instant>,
}

/// The right to publish under a name, held by one. Dropping it gives it back; viewers wait then.
#[derive(Debug)]
pub(crate) struct Lease {
    channels: Arc<PublishedChannels>,
    channel: Arc<PublishedChannel>,
}

/// Why a name cannot be had.
#[derive(Debug, Error)]
pub(crate) enum PublishError {
    #[error(
        "a channel's name has up to 8 parts of 64 letters, digits, '.', '-' and '_', and no track's"
    )]
    Name,
    #[error("somebody else publishes under this name")]
    Taken,
    #[error("{PUBLISHED_MAX} channels are published, which is the most")]
    TooMany,
    #[error("no thread for it: {0}")]
    Thread(#[from] std::io::Error),
}

impl PublishedChannels {
    pub(crate) fn new(config: &ChannelsConfig, limits: &Limits) -> Arc<Self> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(Self {
            settings: Settings {
                silence_ns: nanos(config.silence),
                audience: AudienceSettings::new(config, limits),
            },
            core: config.core,
            names: Mutex::default(),
            pulled: Mutex::default(),
        })
    }

    /// The channel that can be watched under that name.
    pub(crate) fn find(&self, path: &str) -> Option<Arc<PublishedChannel>> {
        let names = self.names();
        let channel = &names.taken.get(path)?.channel;
        channel.has_begun().then(|| Arc::clone(channel))
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<PublishedChannel>> {
        let names = self.names();
        let entries = names.taken.values();
        entries.map(|entry| Arc::clone(&entry.channel)).collect()
    }

    /// Those that are pulled, whether their sources have answered or not.
    pub(crate) fn pulled(&self) -> Vec<Arc<PullState>> {
        let pulled = self.pulled.lock();
        pulled.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more is pulled.
    pub(super) fn add_pulled(&self, state: Arc<PullState>) {
        let pulled = self.pulled.lock();
        pulled.unwrap_or_else(PoisonError::into_inner).push(state);
    }

    /// One is pulled no more: its viewers end, too.
    pub(super) fn remove_pulled(&self, path: &str) {
        let pulled = self.pulled.lock();
        let mut pulled = pulled.unwrap_or_else(PoisonError::into_inner);
        pulled.retain(|state| state.path() != path);
        drop(pulled);
        self.names().end(path, "it is pulled no more");
    }

    /// One of another node is pulled no more: its viewers wait for the next publisher.
    pub(super) fn forget_pulled(&self, state: &Arc<PullState>) {
        let pulled = self.pulled.lock();
        let mut pulled = pulled.unwrap_or_else(PoisonError::into_inner);
        pulled.retain(|it| !Arc::ptr_eq(it, state));
    }

    /// Those that nobody publishes, and whose viewers wait.
    pub(super) fn awaited(&self) -> Vec<String> {
        let names = self.names();
        let entries = names.taken.iter();
        let awaited = entries.filter(|(_, it)| it.gone.is_some() && it.channel.has_viewers());
        awaited.map(|(path, _)| path.clone()).collect()
    }

    /// Takes a name for a publisher of these tracks. If its viewers wait for one of the same tracks
    /// they go on; if the tracks are others they end.
    ///
    /// # Errors
    ///
    /// See [`PublishError`].
    pub(crate) fn announce(
        self: &Arc<Self>,
        path: &str,
        tracks: Vec<Track>,
    ) -> Result<Lease, PublishError> {
        let is_fit = path.split('/').all(is_source_name) && path.split('/').count() <= PARTS_MAX;
        if !is_fit || onrush_wire::rtsp::track(path).is_some() {
            return Err(PublishError::Name);
        }
        let mut names = self.names();
        if let Some(entry) = names.taken.get_mut(path) {
            if entry.gone.is_none() {
                return Err(PublishError::Taken);
            }
            if entry.channel.tracks() == tracks {
                entry.gone = None;
                entry.channel.dismiss(false);
                return Ok(self.lease(&entry.channel));
            }
            names.end(path, "another publisher has come, with other tracks");
        }
        if names.taken.len() >= PUBLISHED_MAX {
            return Err(PublishError::TooMany);
        }
        let ssrc = || u32::from_ne_bytes(random());
        let channel = Arc::new(PublishedChannel::new(path.to_owned(), tracks, ssrc)?);
        let entry = Entry {
            thread: self.spawn(&channel)?,
            channel: Arc::clone(&channel),
            gone: None,
        };
        names.taken.insert(path.to_owned(), entry);
        Ok(self.lease(&channel))
    }

    /// Lets the publisher of that name go, as soon as something comes from it or nothing does for
    /// too long; whether there is one. Its viewers wait for the next, which may be the same.
    pub(crate) fn dismiss(&self, path: &str) -> bool {
        let names = self.names();
        let entry = names.taken.get(path).filter(|it| it.gone.is_none());
        if let Some(entry) = entry {
            entry.channel.dismiss(true);
        }
        entry.is_some()
    }

    /// Ends channels that nobody publishes and nobody waits for any more.
    pub(crate) fn sweep(&self) {
        let mut names = self.names();
        let is_over = |entry: &&Entry| {
            entry.gone.is_some_and(|gone| {
                !entry.channel.has_viewers() || gone.elapsed() >= PUBLISHER_AWAITED_MAX
            })
        };
        let over = names.taken.values().filter(is_over);
        let over: Vec<_> = over.map(|entry| entry.channel.path().to_owned()).collect();
        for path in over {
            names.end(&path, "its publisher has gone and not come back");
        }
        let (finished, running) = std::mem::take(&mut names.ended)
            .into_iter()
            .partition(|thread: &JoinHandle<()>| thread.is_finished());
        names.ended = running;
        drop(names);
        join(finished);
    }

    /// Ends all of them, and waits.
    pub(crate) fn stop(&self) {
        let mut names = self.names();
        let all: Vec<_> = names.taken.keys().cloned().collect();
        for path in all {
            names.end(&path, "the server stops");
        }
        let ended = std::mem::take(&mut names.ended);
        drop(names);
        join(ended);
    }

    fn lease(self: &Arc<Self>, channel: &Arc<PublishedChannel>) -> Lease {
        Lease {
            channels: Arc::clone(self),
            channel: Arc::clone(channel),
        }
    }

    fn spawn(&self, channel: &Arc<PublishedChannel>) -> std::io::Result<JoinHandle<()>> {
        let worker = Worker::new(Arc::clone(channel), self.settings);
        let core = self.core;
        let run = move || {
            if let Some(Err(error)) = core.map(pin_to) {
                warn!("a channel's thread stays free: {error}");
            }
            worker.run();
        };
        thread::Builder::new()
            .name(crate::channels::THREAD_NAME.to_owned())
            .spawn(run)
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn end(&mut self, path: &str, why: &str) {
        if let Some(Entry {
            channel, thread, ..
        }) = self.taken.remove(path)
        {
            info!("channel {path} ends: {why}");
            channel.retire(why);
            self.ended.push(thread);
        }
    }
}

impl Lease {
    /// The channel that is published.
    pub(crate) fn channel(&self) -> &Arc<PublishedChannel> {
        &self.channel
    }

    /// The publisher sends from now on: to these sockets, or as [frames](Self::frame).
    pub(crate) fn begin(&self, sockets: Vec<TrackSockets>) {
        self.channel.begin(sockets);
    }

    /// What it sends is passed over, or no longer.
    pub(crate) fn hold(&self, is_held: bool) {
        self.channel.send(Command::Hold(is_held));
    }

    /// What it sent as a frame, of that track.
    pub(crate) fn frame(&self, track: u8, is_rtcp: bool, packet: Vec<u8>) {
        self.channel.frame(track, is_rtcp, packet);
    }

    /// It sent something on a channel that nobody set up.
    pub(crate) fn stray(&self) {
        self.channel.stray();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut names = self.channels.names();
        let own = names.taken.get_mut(self.channel.path());
        if let Some(entry) = own.filter(|entry| Arc::ptr_eq(&entry.channel, &self.channel)) {
            entry.gone = Some(Instant::now());
            self.channel.send(Command::EndPublisher);
        }
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if let (Err(panic), false) = (thread.join(), thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Parts of a path.
const PARTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use onrush_wire::rtp::StaticPayload;

    use super::*;
    use crate::channels::viewing::LiveChannel;

    fn channels() -> Arc<PublishedChannels> {
        PublishedChannels::new(&ChannelsConfig::default(), &Limits::default())
    }

    fn tracks() -> Vec<Track> {
        vec![StaticPayload::MP2T.into()]
    }

    #[test]
    fn a_name_has_one_publisher_until_it_goes() {
        let channels = channels();
        let lease = channels.announce("live/a", tracks()).unwrap();
        assert!(channels.find("live/a").is_none(), "nothing is sent yet");
        lease.begin(Vec::new());
        let channel = channels.find("live/a").unwrap();
        let second = channels.announce("live/a", tracks());
        assert!(matches!(second, Err(PublishError::Taken)));
        channel.count_viewer(true);
        drop(lease);
        channels.sweep();
        let lease = channels.announce("live/a", tracks()).unwrap();
        assert!(Arc::ptr_eq(lease.channel(), &channel), "its viewers go on");
        drop(lease);
        let other = StaticPayload::of(0).unwrap().into();
        let lease = channels.announce("live/a", vec![other]).unwrap();
        assert!(!Arc::ptr_eq(lease.channel(), &channel));
        assert!(channel.end().unwrap().contains("other tracks"));
        drop(lease);
        channels.sweep();
        assert!(channels.all().is_empty(), "nobody watches");
        channels.stop();
    }

    #[test]
    fn names_are_as_many_as_may_be_and_no_more() {
        let channels = channels();
        let take = |n: usize| channels.announce(&format!("live/{n}"), tracks());
        let all: Vec<_> = (0..PUBLISHED_MAX).map(|n| take(n).unwrap()).collect();
        assert!(matches!(take(PUBLISHED_MAX), Err(PublishError::TooMany)));
        drop(all);
        channels.sweep();
        assert!(take(PUBLISHED_MAX).is_ok());
        channels.stop();
    }

    #[test]
    fn names_are_short_and_no_tracks() {
        let channels = channels();
        let long = "x/".repeat(PARTS_MAX);
        for path in ["", "a b", "a//b", "a/track1", &format!("{long}x"), "a\n"] {
            let refused = channels.announce(path, tracks());
            assert!(matches!(refused, Err(PublishError::Name)), "{path}");
        }
        assert!(
            channels
                .announce(long.trim_end_matches('/'), tracks())
                .is_ok()
        );
        channels.stop();
    }
}
