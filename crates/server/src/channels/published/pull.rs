//! A channel that is pulled from a camera or another server: a publisher of our own.
//!
//! A thread asks as a player does, by TCP, or by UDP where that is refused, and gives what comes to
//! a published channel. When it ends, for whatever reason, it is asked for again, after pauses that
//! grow; viewers wait meanwhile. A channel on demand is asked for while somebody watches.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_sys::clock::monotonic_ns;
use tracing::{info, warn};

use super::PUBLISHER_SILENCE_MAX;
use super::lease::{Lease, PublishedChannels};
use super::pull_client::{PullClient, PullError, Track};
use super::pull_state::PullState;
use crate::channels::config::PullConfig;
use crate::channels::pull_url::PullUrl;

/// The longest pause between two attempts.
pub const PULL_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a channel on demand is kept that nobody watches.
pub const UNWATCHED_TIME_MAX: Duration = Duration::from_secs(10);

/// What runs for pulled channels. Stop them in the end.
#[derive(Debug)]
pub(crate) struct Pulls {
    channels: Arc<PublishedChannels>,
    all: Mutex<Vec<Pull>>,
}

#[derive(Debug)]
struct Pull {
    config: PullConfig,
    path: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopping: AtomicBool,
    /// Somebody asked for it, last then.
    wanted: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Pulls {
    /// Starts to pull channels, which are among `channels` then.
    pub(crate) fn start(configs: &[PullConfig], channels: &Arc<PublishedChannels>) -> Arc<Self> {
        let start = |config: &PullConfig| match Pull::start(config, channels) {
            Ok(pull) => Some(pull),
            Err(error) => {
                warn!("channel live/{}: no thread: {error}", config.name);
                None
            }
        };
        Arc::new(Self {
            channels: Arc::clone(channels),
            all: Mutex::new(configs.iter().filter_map(start).collect()),
        })
    }

    /// Whether a channel of that name is pulled; if so it is asked for now.
    pub(crate) fn want(&self, path: &str) -> bool {
        let pulls = self.all();
        let pull = pulls.iter().find(|pull| pull.path == path);
        pull.inspect(|pull| pull.want()).is_some()
    }

    /// Pulls these channels from now on. One that is as before goes on, with its viewers.
    pub(crate) fn replace(&self, configs: &[PullConfig]) {
        let is_kept = |pull: &Pull| configs.contains(&pull.config);
        let mut pulls = self.all();
        let (kept, mut gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *pulls).into_iter().partition(is_kept);
        let is_new = |config: &&PullConfig| kept.iter().all(|pull| pull.config != **config);
        let new: Vec<_> = configs.iter().filter(is_new).collect();
        *pulls = kept;
        drop(pulls);
        // Without the lock, which whoever asks for a channel takes: it may last.
        for pull in &mut gone {
            pull.stop();
            self.channels.remove_pulled(&pull.path);
        }
        for config in new {
            match Pull::start(config, &self.channels) {
                Ok(pull) => self.all().push(pull),
                Err(error) => warn!("channel live/{}: no thread: {error}", config.name),
            }
        }
    }

    /// Ends all of them, then all other published channels, and waits.
    pub(crate) fn stop(&self) {
        let mut pulls = std::mem::take(&mut *self.all());
        pulls.iter_mut().for_each(Pull::stop);
        self.channels.stop();
    }

    fn all(&self) -> MutexGuard<'_, Vec<Pull>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pull {
    fn start(config: &PullConfig, channels: &Arc<PublishedChannels>) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let path = format!("live/{}", config.name);
        let state = Arc::new(PullState::new(path.clone(), config.url.to_string()));
        channels.add_pulled(Arc::clone(&state));
        let pulling = Pulling {
            config: config.clone(),
            path: path.clone(),
            // The other way round it would never be let go.
            channels: Arc::clone(channels),
            shared: Arc::clone(&shared),
            state,
        };
        let thread = thread::Builder::new().name("onrush-pull".to_owned());
        Ok(Self {
            config: config.clone(),
            path,
            shared,
            thread: Some(thread.spawn(move || pulling.run())?),
        })
    }

    /// Somebody asks for it.
    fn want(&self) {
        let wanted = self.shared.wanted.lock();
        *wanted.unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.shared.changed.notify_all();
    }

    /// Ends it, and waits.
    fn stop(&mut self) {
        {
            // Under the lock, so that it is not between a look and the wait that follows it.
            let wanted = self.shared.wanted.lock();
            let _wanted = wanted.unwrap_or_else(PoisonError::into_inner);
            self.shared.is_stopping.store(true, Ordering::Release);
        }
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A source that has said what it has.
type Source = (PullClient, Vec<Track>);

struct Pulling {
    config: PullConfig,
    path: String,
    channels: Arc<PublishedChannels>,
    shared: Arc<Shared>,
    state: Arc<PullState>,
}

impl Pulling {
    fn run(self) {
        let (path, url) = (&self.path, &self.config.url);
        let (mut pause, mut told) = (PAUSE_MIN, None);
        while self.wait_until_wanted() {
            let mut has_begun = false;
            self.state.set_asked(true);
            let ended = self.pull(&mut has_begun);
            if self.is_stopping() {
                return;
            }
            if has_begun {
                (pause, told) = (PAUSE_MIN, None);
            }
            let Err(error) = ended else {
                self.state.set_asked(false);
                info!("channel {path}: nobody watches; {url} is left");
                continue;
            };
            let error = error.to_string();
            // Once for each reason, however long it lasts.
            if told.as_ref() != Some(&error) {
                warn!("channel {path}: {url}: {error}; tried again");
            }
            self.state.set_error(Some(error.clone()));
            told = Some(error);
            self.rest(pause);
            pause = (2 * pause).min(PULL_PAUSE_MAX);
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Acquire)
    }

    /// Whether it is to be asked for, once it is.
    fn wait_until_wanted(&self) -> bool {
        while self.config.is_on_demand && !self.is_stopping() && !self.is_watched() {
            self.rest(STEP);
        }
        !self.is_stopping()
    }

    /// Whether somebody watches, or has asked a moment ago.
    fn is_watched(&self) -> bool {
        let wanted = self.shared.wanted.lock();
        let wanted = *wanted.unwrap_or_else(PoisonError::into_inner);
        let is_new = wanted.is_some_and(|wanted| wanted.elapsed() < UNWATCHED_TIME_MAX);
        let channel = self.channels.find(&self.path);
        is_new || channel.is_some_and(|channel| channel.has_viewers())
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut wanted = self
            .shared
            .wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_stopping() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(wanted, left);
            wanted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Pulls until nobody watches any more, from wherever the source sends its clients on to.
    fn pull(&self, has_begun: &mut bool) -> Result<(), PullError> {
        let mut source = self.describe(self.config.url.clone())?;
        while let Some(next) = self.pull_from(source, has_begun)? {
            source = next;
            // A source that does nothing else is not to keep us busy.
            self.rest(STEP);
        }
        Ok(())
    }

    /// Pulls until nobody watches any more, or there is another source to go on with.
    fn pull_from(
        &self,
        (mut client, tracks): Source,
        has_begun: &mut bool,
    ) -> Result<Option<Source>, PullError> {
        let announced = tracks.iter().map(|track| track.track.clone()).collect();
        let lease = self.channels.announce(&self.path, announced)?;
        let sockets = client.set_up(&tracks)?;
        let how = if sockets.is_empty() { "TCP" } else { "UDP" };
        lease.begin(sockets);
        client.play()?;
        *has_begun = true;
        self.state.set_error(None);
        let (path, url) = (&self.path, &self.config.url);
        info!(
            "channel {path} is pulled from {url} over {how}, {} tracks",
            tracks.len()
        );
        let ended = self.follow(&mut client, &lease, &tracks);
        client.tear_down();
        ended
    }

    /// What the source has, wherever it sends us on to (RFC 2326, section 11.3).
    fn describe(&self, mut url: PullUrl) -> Result<Source, PullError> {
        for _ in 0..MOVES_MAX {
            let mut client = PullClient::connect(&url)?;
            let location = match client.describe() {
                Err(PullError::Moved(location)) => location,
                described => return described.map(|tracks| (client, tracks)),
            };
            let moved = self.config.url.moved_to(&location);
            url = moved.map_err(|_| PullError::Moved(location))?;
            info!(
                "channel {}: {} is at {url} by now",
                self.path, self.config.url
            );
        }
        Err(PullError::Moved(url.to_string()))
    }

    /// Where the source sends its clients on to, if it is found there; else it is pulled as before
    /// while it lasts.
    fn next_source(&self, location: &str) -> Option<Source> {
        let (path, url) = (&self.path, &self.config.url);
        let there = url.moved_to(location).map_err(|error| error.to_string());
        let next = there.and_then(|there| self.describe(there).map_err(|it| it.to_string()));
        match &next {
            Ok(_) => info!("channel {path}: {url} sends its clients on to {location}"),
            Err(error) => {
                warn!("channel {path}: {url} sends its clients on to {location}: {error}")
            }
        }
        next.ok()
    }

    fn follow(
        &self,
        client: &mut PullClient,
        lease: &Lease,
        tracks: &[Track],
    ) -> Result<Option<Source>, PullError> {
        let mut reported = Instant::now();
        let mut watched = Instant::now();
        loop {
            let sent_on = client.receive(STEP, |place, packet| match place {
                Some((track, is_report)) => lease.frame(track, is_report, packet),
                None => lease.stray(),
            })?;
            if let Some(next) = sent_on.and_then(|location| self.next_source(&location)) {
                return Ok(Some(next));
            }
            client.keep_alive()?;
            if self.is_stopping() {
                return Ok(None);
            }
            if self.config.is_on_demand && lease.channel().has_viewers() {
                watched = Instant::now();
            }
            let is_idle = watched.elapsed() >= UNWATCHED_TIME_MAX && !self.is_watched();
            if self.config.is_on_demand && is_idle {
                return Ok(None);
            }
            let silent_ns = monotonic_ns().saturating_sub(lease.channel().arrived_ns());
            if u128::from(silent_ns) >= PUBLISHER_SILENCE_MAX.as_nanos() {
                return Err(PullError::Silent);
            }
            if client.is_interleaved() && reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                for track in 0..tracks.len() {
                    if let Some(report) = lease.channel().reception_report(track) {
                        client.send_report(track, &report)?;
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Pulling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulling")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Places that a source is asked for at, one after the other.
const MOVES_MAX: usize = 4;

/// The first pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// How long the thread waits before it looks at all again.
const STEP: Duration = Duration::from_millis(200);

/// Receiver reports over TCP leave so often; those over UDP are the channel's thread's.
const REPORT_EVERY: Duration = Duration::from_secs(5);
