//! The names of published channels, and who publishes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Context;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_sys::thread::pin_to;
use onrush_wire::auth::Pattern;
use onrush_wire::live::INGESTS_MAX;
use onrush_wire::media::Track;
use thiserror::Error;
use tracing::{error, info, warn};

use super::channel::{Command, Frame, PublishedChannel};
use super::pull_state::PullState;
use super::receiving::TrackSockets;
use super::refused::Refused;
use super::right::Right;
use super::worker::{Settings, Worker};
use super::{PUBLISHED_MAX, PUBLISHER_AWAITED_MAX};
use crate::channels::ChannelsConfig;
use crate::channels::audience::AudienceSettings;
use crate::channels::config::is_source_name;
use crate::cluster::ChannelClaim;
use crate::config::Limits;
use crate::random::random;

/// The published channels of a process. Stop them in the end.
#[derive(Debug)]
pub(crate) struct PublishedChannels {
    settings: Settings,
    core: Option<usize>,
    /// The channels that have a standby.
    standby: Vec<Pattern>,
    names: Mutex<Names>,
    pulled: Mutex<Vec<Arc<PullState>>>,
}

#[derive(Debug, Default)]
struct Names {
    taken: BTreeMap<String, Entry>,
    /// Threads of channels that have ended, with their names.
    ended: Vec<(String, JoinHandle<()>)>,
    /// There are to be no more.
    is_stopped: bool,
}

#[derive(Debug)]
struct Entry {
    channel: Arc<PublishedChannel>,
    thread: JoinHandle<()>,
    /// By ingest, whether somebody publishes, or has come to.
    held: [bool; INGESTS_MAX],
    /// Since when nobody publishes, if so.
    gone: Option<Instant>,
}

/// The right to publish under a name, held by one, and by another one who stands by. Dropping it
/// gives it back; viewers wait then, if there is no other.
#[derive(Debug)]
pub(crate) struct Lease {
    channels: Arc<PublishedChannels>,
    channel: Arc<PublishedChannel>,
    ingest: usize,
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
    #[error(
        "this channel has a publisher and a standby; a third is not taken until one of them ends"
    )]
    Full,
    #[error(
        "a standby has to have the tracks of the publisher that is there: {0}; set both encoders \
         alike"
    )]
    OtherTracks(String),
    #[error("{PUBLISHED_MAX} channels are published, which is the most")]
    TooMany,
    #[error("the server stops")]
    Stopped,
    #[error("no thread for it: {0}")]
    Thread(#[from] std::io::Error),
}

impl PublishedChannels {
    pub(crate) fn new(config: &ChannelsConfig, limits: &Limits) -> Arc<Self> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(Self {
            settings: Settings {
                silence_ns: nanos(config.silence),
                standby_after_ns: nanos(config.standby_after),
                audience: AudienceSettings::new(config, limits),
            },
            core: config.core,
            standby: config.standby.clone(),
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

    /// Those that nobody publishes, or who stands by for another node, and whose viewers wait.
    pub(super) fn awaited(&self) -> Vec<String> {
        let names = self.names();
        let entries = names.taken.iter();
        let awaited = entries.filter(|(path, it)| {
            let is_elsewhere = self.has_standby(path) && it.channel.ingests().is_elsewhere;
            let is_gone = it.gone.is_some() || is_elsewhere;
            is_gone && it.channel.has_viewers()
        });
        awaited.map(|(path, _)| path.clone()).collect()
    }

    /// Whether somebody has taken that name.
    pub(crate) fn is_held(&self, path: &str) -> bool {
        let names = self.names();
        names
            .taken
            .get(path)
            .is_some_and(|entry| entry.gone.is_none())
    }

    /// Whether a publisher of this node sends that channel.
    pub(crate) fn has_publisher(&self, path: &str) -> bool {
        let names = self.names();
        let pulled = self.pulled.lock();
        let pulled = pulled.unwrap_or_else(PoisonError::into_inner);
        let is_pulled = pulled.iter().any(|state| state.path() == path);
        let entry = names.taken.get(path);
        let held = entry.map_or(0, |it| it.held.iter().filter(|is_held| **is_held).count());
        held > usize::from(is_pulled)
    }

    /// Whether a channel of that name takes a second publisher, as a standby.
    pub(crate) fn has_standby(&self, path: &str) -> bool {
        self.standby.iter().any(|pattern| pattern.matches(path))
    }

    /// Takes a name for a publisher of these tracks. If its viewers wait for one of the same tracks
    /// they go on; if the tracks are others they end. Where somebody publishes it stands by, if the
    /// channel is to have a standby and has none.
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
        if names.is_stopped {
            return Err(PublishError::Stopped);
        }
        if let Some(entry) = names.taken.get_mut(path) {
            let is_there = entry.gone.is_none();
            if is_there && !self.has_standby(path) {
                return Err(PublishError::Taken);
            }
            let Some(ingest) = entry.held.iter().position(|is_held| !is_held) else {
                return Err(PublishError::Full);
            };
            if let Some(difference) = difference(entry.channel.tracks(), &tracks) {
                if is_there {
                    return Err(PublishError::OtherTracks(difference));
                }
            } else {
                (entry.gone, entry.held[ingest]) = (None, true);
                entry.channel.dismiss(ingest, false);
                return Ok(self.lease(&entry.channel, ingest));
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
            held: [true, false],
            gone: None,
        };
        names.taken.insert(path.to_owned(), entry);
        Ok(self.lease(&channel, 0))
    }

    /// Lets the publisher of that name go; whether there is one. Its viewers go on with the
    /// standby, or wait for the next publisher, which may be the same.
    pub(crate) fn dismiss(&self, path: &str) -> bool {
        let names = self.names();
        let Some(entry) = names.taken.get(path) else {
            return false;
        };
        let mut held = (0..INGESTS_MAX).filter(|&ingest| entry.held[ingest]);
        let active = entry.channel.ingests().active;
        let let_go = active.filter(|&it| entry.held[it]).or_else(|| held.next());
        if let Some(ingest) = let_go {
            entry.channel.dismiss(ingest, true);
        }
        let_go.is_some()
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
            .partition(|(_, thread): &(String, JoinHandle<()>)| thread.is_finished());
        names.ended = running;
        drop(names);
        for (path, thread) in finished {
            // What it died of was said then, and who sweeps has more to look after.
            if thread.join().is_err() {
                error!("channel {path}: a bug of the server");
            }
        }
    }

    /// Ends all of them, lets their publishers go, and waits. Nobody takes a name from then on.
    pub(crate) fn stop(&self) {
        let mut names = self.names();
        names.is_stopped = true;
        let all: Vec<_> = names.taken.keys().cloned().collect();
        for path in all {
            names.end(&path, "the server stops");
        }
        let ended = std::mem::take(&mut names.ended);
        drop(names);
        for (_, thread) in ended {
            if let (Err(panic), false) = (thread.join(), thread::panicking()) {
                std::panic::resume_unwind(panic);
            }
        }
    }

    fn lease(self: &Arc<Self>, channel: &Arc<PublishedChannel>, ingest: usize) -> Lease {
        Lease {
            channels: Arc::clone(self),
            channel: Arc::clone(channel),
            ingest,
        }
    }

    fn spawn(self: &Arc<Self>, channel: &Arc<PublishedChannel>) -> std::io::Result<JoinHandle<()>> {
        let worker = Worker::new(Arc::clone(channel), self.settings);
        let core = self.core;
        let guard = PanicGuard {
            channels: Arc::downgrade(self),
            channel: Arc::clone(channel),
        };
        let run = move || {
            let _guard = guard;
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
            self.ended.push((path.to_owned(), thread));
        }
    }
}

/// Of a channel's thread. If that panics the channel ends, and nobody waits for it any more: its
/// viewers and its publisher are told, and who publishes next under its name gets another.
struct PanicGuard {
    channels: Weak<PublishedChannels>,
    channel: Arc<PublishedChannel>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let channel = &self.channel;
        if let Some(channels) = self.channels.upgrade() {
            let mut names = channels.names();
            let own = names.taken.get(channel.path());
            if own.is_some_and(|entry| Arc::ptr_eq(&entry.channel, channel)) {
                names.end(channel.path(), "a bug of the server");
            }
        }
        // What it was asked for meanwhile is dropped, and so are the answers to that.
        channel.close();
    }
}

impl Lease {
    /// The channel that is published.
    pub(crate) fn channel(&self) -> &Arc<PublishedChannel> {
        &self.channel
    }

    /// The publisher sends from now on, from there: to these sockets, or as
    /// [frames](Self::frame).
    pub(crate) fn begin(&self, sockets: Vec<TrackSockets>, from: String, right: Right) {
        self.channel.begin(self.ingest, sockets, (from, right));
    }

    /// It stands by, by this lease of the cluster's.
    pub(crate) fn take_seat(&self, claim: ChannelClaim) {
        self.channel.seat().take(claim);
    }

    /// What it sends is passed over, or no longer.
    pub(crate) fn hold(&self, is_held: bool) {
        self.channel.send(Command::Hold(self.ingest, is_held));
    }

    /// What it sent as a frame, of that track.
    pub(crate) fn frame(&self, track: u8, is_rtcp: bool, packet: Vec<u8>) {
        self.channel.frame(Frame {
            ingest: self.ingest,
            track,
            is_rtcp,
            packet,
        });
    }

    /// It sent something on a channel that nobody set up.
    pub(crate) fn stray(&self) {
        self.channel.stray();
    }

    /// When its last packet arrived, in ns of the monotonic clock.
    pub(crate) fn arrived_ns(&self) -> u64 {
        self.channel.arrived_ns(self.ingest)
    }

    /// What it sent since it began that is not of its tracks.
    pub(crate) fn refused(&self) -> Refused {
        self.channel.refused(self.ingest)
    }

    /// Whether it is to be let go, also because its channel has ended; if not, the task is woken
    /// once it is.
    pub(crate) fn is_dismissed(&self, context: Option<&Context<'_>>) -> bool {
        self.channel.is_dismissed(self.ingest, context)
    }

    /// Whether viewers get what another publisher sends.
    pub(crate) fn is_standby(&self) -> bool {
        let ingests = self.channel.ingests();
        ingests.active.is_some_and(|active| active != self.ingest)
    }

    /// What it is told of how a track's packets arrive, once some have come that viewers get. Each
    /// report is of what came since the one before.
    pub(crate) fn reception_report(&self, track: usize) -> Option<Vec<u8>> {
        match self.is_standby() {
            true => None,
            false => self.channel.reception_report(track),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut names = self.channels.names();
        let own = names.taken.get_mut(self.channel.path());
        if let Some(entry) = own.filter(|entry| Arc::ptr_eq(&entry.channel, &self.channel)) {
            entry.held[self.ingest] = false;
            if !entry.held.contains(&true) {
                entry.gone = Some(Instant::now());
            }
            self.channel.end_publisher(self.ingest);
        }
    }
}

/// How other tracks differ from those that a channel has; nothing if they do not.
fn difference(own: &[Track], other: &[Track]) -> Option<String> {
    if own.len() != other.len() {
        return Some(format!("it has {} and not {}", other.len(), own.len()));
    }
    let mut pairs = (1..).zip(own.iter().zip(other));
    let (number, (own, other)) = pairs.find(|(_, (own, other))| own != other)?;
    let format = |it: &Track| {
        let Track { encoding, .. } = it;
        format!("{encoding}/{} as {}", it.clock_hz, it.payload_type)
    };
    Some(match format(own) == format(other) {
        true => {
            format!("the parameters of track {number} are others (a=fmtp, or sound's channels)")
        }
        false => format!(
            "track {number} is {} and not {}",
            format(other),
            format(own)
        ),
    })
}

/// Parts of a path.
const PARTS_MAX: usize = 8;

#[cfg(test)]
mod tests;
