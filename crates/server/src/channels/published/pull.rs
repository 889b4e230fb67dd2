//! A channel that is pulled from a camera or another server: a publisher of our own.
//!
//! A thread asks as a player does, by TCP, or by UDP where that is refused, and gives what comes to
//! a published channel. When it ends, for whatever reason, it is asked for again, after pauses that
//! grow; viewers wait meanwhile. A channel on demand is asked for while somebody watches.
//!
//! In a cluster one node asks the source, by its lease, and the others that node. There a channel
//! that nobody configured is pulled likewise, from the node that has it, for as long as it is
//! watched and somebody has it.

mod node;
mod sent_on;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_sys::clock::monotonic_ns;
use thiserror::Error;
use tracing::{debug, error, info, warn};

use self::node::{NodeWay, Origin};
use self::sent_on::{SentOn, find};
use super::lease::{Lease, PublishedChannels};
use super::pull_client::{PullClient, PullError, Track};
use super::pull_state::PullState;
use super::right::Right;
use super::{PUBLISHED_MAX, PUBLISHER_SILENCE_MAX};
use crate::channels::config::PullConfig;
use crate::channels::pull_url::PullUrl;
use crate::cluster::ClusterMember;
use crate::peer_log::{PEER_LOG_LINES_MAX, Throttle};

/// The longest pause between two attempts.
pub const PULL_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Channels that are taken from other nodes of a cluster at once; each has a thread.
pub const NODE_PULLS_MAX: usize = PUBLISHED_MAX;

/// How long a channel on demand is kept that nobody watches.
pub const UNWATCHED_TIME_MAX: Duration = Duration::from_secs(10);

/// What runs for pulled channels. Stop them in the end.
#[derive(Debug)]
pub(crate) struct Pulls {
    channels: Arc<PublishedChannels>,
    cluster: Option<Arc<ClusterMember>>,
    all: Mutex<Vec<Pull>>,
}

#[derive(Debug)]
struct Pull {
    /// None of a channel that another node has.
    config: Option<PullConfig>,
    path: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopping: AtomicBool,
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    /// Somebody asked for it, last then.
    last: Option<Instant>,
    /// Nobody does any more, and the thread has ended.
    is_over: bool,
}

/// Another node has a channel that cannot be taken from there.
#[derive(Debug, Error)]
#[error("no more channels can be taken from other nodes here; try another node, or later")]
pub(crate) struct PullsFull;

impl Pulls {
    /// Starts to pull channels, which are among `channels` then; in a cluster others when they are
    /// asked for.
    pub(crate) fn start(
        configs: &[PullConfig],
        channels: &Arc<PublishedChannels>,
        cluster: Option<&Arc<ClusterMember>>,
    ) -> Arc<Self> {
        let pulls = Arc::new(Self {
            channels: Arc::clone(channels),
            cluster: cluster.map(Arc::clone),
            all: Mutex::default(),
        });
        for config in configs {
            pulls.add(&mut pulls.all(), Some(config), &config.path());
        }
        pulls
    }

    /// Whether a channel of that name is pulled, or can be from another node; if so it is asked for
    /// now.
    ///
    /// # Errors
    ///
    /// If another node has it, and no more can be taken from others.
    pub(crate) fn want(&self, path: &str) -> Result<bool, PullsFull> {
        let mut pulls = self.all();
        let pull = pulls.iter().find(|pull| pull.path == path);
        if pull.is_some_and(|pull| pull.want()) {
            return Ok(true);
        }
        let cluster = self.cluster.as_ref();
        if cluster.is_none_or(|cluster| cluster.holder_of(path).is_none()) {
            return Ok(false);
        }
        pulls.retain(|pull| !pull.is_over());
        let of_nodes = pulls.iter().filter(|pull| pull.config.is_none());
        if of_nodes.count() >= NODE_PULLS_MAX {
            tell_full(path);
            return Err(PullsFull);
        }
        match self.add(&mut pulls, None, path) {
            true => Ok(true),
            false => Err(PullsFull),
        }
    }

    /// Whether a channel of that name is pulled because it is configured so; it is asked for then.
    pub(crate) fn has_configured(&self, path: &str) -> bool {
        let pulls = self.all();
        let mut configured = pulls.iter().filter(|pull| pull.config.is_some());
        let pull = configured.find(|pull| pull.path == path);
        pull.is_some_and(Pull::want)
    }

    /// Ends it if that channel is taken from another node, because it comes here by now; whether it
    /// was.
    pub(crate) fn leave(&self, path: &str) -> bool {
        let pulls = self.all();
        let mut of_nodes = pulls.iter().filter(|pull| pull.config.is_none());
        let pull = of_nodes.find(|pull| pull.path == path && !pull.is_over());
        pull.inspect(|pull| pull.tell_to_stop()).is_some()
    }

    /// Asks other nodes for the channels whose viewers wait here for a publisher.
    pub(crate) fn want_awaited(&self) {
        if self.cluster.is_some() {
            for path in self.channels.awaited() {
                // The log has it if there is no room; it is asked for again.
                self.want(&path).ok();
            }
        }
    }

    /// Pulls these channels from now on. One that is as before goes on, with its viewers.
    pub(crate) fn replace(&self, configs: &[PullConfig]) {
        let is_kept = |pull: &Pull| pull.config.as_ref().is_none_or(|it| configs.contains(it));
        let mut pulls = self.all();
        let (kept, mut gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *pulls).into_iter().partition(is_kept);
        let is_new = |config: &&PullConfig| {
            kept.iter()
                .all(|pull| pull.config.as_ref() != Some(*config))
        };
        let new: Vec<_> = configs.iter().filter(is_new).collect();
        *pulls = kept;
        drop(pulls);
        gone.iter().for_each(Pull::tell_to_stop);
        // Without the lock, which whoever asks for a channel takes: it may last.
        for pull in &mut gone {
            pull.wait();
            self.channels.remove_pulled(&pull.path);
        }
        for config in new {
            self.add(&mut self.all(), Some(config), &config.path());
        }
    }

    /// Ends all of them, and all other published channels, and waits.
    pub(crate) fn stop(&self) {
        let mut pulls = std::mem::take(&mut *self.all());
        pulls.iter().for_each(Pull::tell_to_stop);
        // First: publishers that are let go come again to whoever serves next, and sources that do
        // not answer last.
        self.channels.stop();
        pulls.iter_mut().for_each(Pull::wait);
    }

    /// Whether it could be started. It takes the place of one of that name from another node: the
    /// two would take the channel from each other for as long as anybody watches.
    fn add(&self, pulls: &mut Vec<Pull>, config: Option<&PullConfig>, path: &str) -> bool {
        let of = (&self.channels, self.cluster.as_ref());
        let is_of_node = |pull: &Pull| pull.config.is_none() && pull.path == path;
        let before = pulls.iter().position(is_of_node);
        let before = before.map(|at| pulls.swap_remove(at));
        before.iter().for_each(Pull::tell_to_stop);
        match Pull::start(config, path, of, |pulling| pulling.spawn(before)) {
            Ok(pull) => {
                pulls.push(pull);
                true
            }
            Err(error) => {
                warn!("channel {path}: no thread: {error}");
                false
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Pull>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pull {
    fn start(
        config: Option<&PullConfig>,
        path: &str,
        (channels, cluster): (&Arc<PublishedChannels>, Option<&Arc<ClusterMember>>),
        spawn: impl FnOnce(Pulling) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let source = config.map_or_else(|| "another node".to_owned(), |it| it.url.to_string());
        let state = Arc::new(PullState::new(path.to_owned(), source));
        channels.add_pulled(Arc::clone(&state));
        let pulling = Pulling {
            config: config.cloned(),
            path: path.to_owned(),
            // The other way round it would never be let go.
            channels: Arc::clone(channels),
            cluster: cluster.map(Arc::clone),
            shared: Arc::clone(&shared),
            state: Arc::clone(&state),
            sent_on: RefCell::default(),
        };
        let pull = Self {
            config: config.cloned(),
            path: path.to_owned(),
            shared,
            thread: None,
        };
        // Before the thread looks.
        pull.want_if(config.is_none());
        let spawned = spawn(pulling);
        let thread = spawned.inspect_err(|_| channels.forget_pulled(&state))?;
        Ok(Self {
            thread: Some(thread),
            ..pull
        })
    }

    fn want_if(&self, is_wanted: bool) {
        if is_wanted {
            self.want();
        }
    }

    /// Somebody asks for it; whether it is still there.
    fn want(&self) -> bool {
        let mut wanted = self.shared.wanted();
        wanted.last = Some(Instant::now());
        self.shared.changed.notify_all();
        !wanted.is_over
    }

    fn is_over(&self) -> bool {
        self.shared.wanted().is_over
    }

    fn tell_to_stop(&self) {
        {
            // Under the lock, so that it is not between a look and the wait that follows it.
            let _wanted = self.shared.wanted();
            self.shared.is_stopping.store(true, Ordering::Release);
        }
        self.shared.changed.notify_all();
    }

    /// Waits for its end.
    fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            // What it died of was said then, and the others are waited for, too.
            if thread.join().is_err() {
                error!("channel {}: a bug of the server", self.path);
            }
        }
    }
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says in the log that a channel is not taken from another node.
fn tell_full(path: &str) {
    static LINES: Throttle = Throttle::new(PEER_LOG_LINES_MAX);
    match LINES.admit() {
        Some(omitted) => warn!(
            "channel {path}: {NODE_PULLS_MAX} are taken from other nodes, which is the most\
             {omitted}"
        ),
        None => debug!("channel {path}: it is not taken from another node; too many are"),
    }
}

/// A source that has said what it has.
struct Source {
    client: PullClient,
    tracks: Vec<Track>,
    /// Where that is.
    url: PullUrl,
}

struct Pulling {
    config: Option<PullConfig>,
    path: String,
    channels: Arc<PublishedChannels>,
    cluster: Option<Arc<ClusterMember>>,
    shared: Arc<Shared>,
    state: Arc<PullState>,
    sent_on: RefCell<SentOn>,
}

/// What a source answers.
enum Asked {
    Source(Box<Source>),
    /// It sends us on to this URL.
    Moved(String),
}

/// Connects to a source, and asks what it has.
fn ask(url: PullUrl) -> Result<Asked, PullError> {
    let mut client = PullClient::connect(&url)?;
    match client.describe() {
        Ok(tracks) => Ok(Asked::Source(Box::new(Source {
            client,
            tracks,
            url,
        }))),
        Err(PullError::Moved(location)) => Ok(Asked::Moved(location)),
        Err(error) => Err(error),
    }
}

impl Pulling {
    /// It begins once `before` has ended, which has been told to.
    fn spawn(self, mut before: Option<Pull>) -> io::Result<JoinHandle<()>> {
        let thread = thread::Builder::new().name("onrush-pull".to_owned());
        thread.spawn(move || {
            before.iter_mut().for_each(Pull::wait);
            self.run();
        })
    }

    fn run(self) {
        let (mut pause, mut told, mut way) = (PAUSE_MIN, None, NodeWay::default());
        while self.wait_until_wanted() {
            let mut has_begun = false;
            self.state.set_asked(true);
            let attempt = || match self.origin(&mut way) {
                Ok(origin) => {
                    let from = origin.url.to_string();
                    (from, self.pull(&origin, &mut way, &mut has_begun))
                }
                Err(error) => ("the cluster".to_owned(), Err(error)),
            };
            // A bug that a source has shown is no reason never to ask it again. What a panic leaves
            // behind is let go: the connection, and the name of the channel.
            let ended = catch_unwind(AssertUnwindSafe(attempt));
            let bug = |_| (self.state.source(), Err(PullError::Bug));
            let (from, ended) = ended.unwrap_or_else(bug);
            if self.is_stopping() {
                break;
            }
            if has_begun {
                (pause, told) = (PAUSE_MIN, None);
            }
            let path = &self.path;
            let Err(error) = ended else {
                self.state.set_asked(false);
                info!("channel {path}: nobody watches; {from} is left");
                continue;
            };
            let is_elsewhere = matches!(error, PullError::Elsewhere(_));
            let error = error.to_string();
            // Once for each reason, however long it lasts.
            if told.as_ref() != Some(&error) {
                warn!("channel {path}: {from}: {error}; tried again");
            }
            self.state.set_error(Some(error.clone()));
            told = Some(error);
            match (is_elsewhere, &self.config) {
                (true, _) => self.rest(STEP),
                // The node is found anew each time, and viewers do not wait for long.
                (false, None) => self.rest(PAUSE_MIN),
                (false, Some(_)) if way.is_of_nodes() => self.rest(PAUSE_MIN),
                (false, Some(_)) => {
                    self.rest(pause);
                    pause = (2 * pause).min(PULL_PAUSE_MAX);
                }
            }
        }
        if self.config.is_none() {
            self.shared.wanted().is_over = true;
            self.channels.forget_pulled(&self.state);
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Acquire)
    }

    fn is_on_demand(&self) -> bool {
        self.config
            .as_ref()
            .is_none_or(|config| config.is_on_demand)
    }

    /// Whether it is to be asked for, once it is. A channel of another node is not waited for that
    /// nobody watches.
    fn wait_until_wanted(&self) -> bool {
        if self.is_here() {
            self.shared.wanted().is_over = true;
            return false;
        }
        while self.is_on_demand() && !self.is_stopping() && !self.is_watched() {
            let mut wanted = self.shared.wanted();
            let is_new = wanted
                .last
                .is_some_and(|it| it.elapsed() < UNWATCHED_TIME_MAX);
            if self.config.is_none() && !is_new {
                wanted.is_over = true;
                return false;
            }
            drop(wanted);
            self.rest(STEP);
        }
        !self.is_stopping()
    }

    /// Whether this node has by now what it took from another: its own standby goes on.
    fn is_here(&self) -> bool {
        let cluster = self.cluster.as_ref().filter(|_| self.config.is_none());
        cluster.is_some_and(|cluster| cluster.holds(&self.path))
    }

    /// Whether somebody watches, or has asked a moment ago.
    fn is_watched(&self) -> bool {
        let last = self.shared.wanted().last;
        let is_new = last.is_some_and(|wanted| wanted.elapsed() < UNWATCHED_TIME_MAX);
        let channel = self.channels.find(&self.path);
        is_new || channel.is_some_and(|channel| channel.has_viewers())
    }

    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut wanted = self.shared.wanted();
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
    fn pull(
        &self,
        origin: &Origin,
        way: &mut NodeWay,
        has_begun: &mut bool,
    ) -> Result<(), PullError> {
        if let Some(node) = &origin.node {
            return self.pull_from_node((origin, node), way, has_begun);
        }
        let mut source = find(&self.path, &origin.url, origin.url.clone())?;
        while let Some(next) = self.pull_from(source, origin, has_begun)? {
            source = next;
            // A source that does nothing else is not to keep us busy.
            self.rest(STEP);
        }
        Ok(())
    }

    /// Pulls until nobody watches any more, or there is another source to go on with.
    fn pull_from(
        &self,
        source: Source,
        origin: &Origin,
        has_begun: &mut bool,
    ) -> Result<Option<Source>, PullError> {
        let Source {
            mut client,
            tracks,
            url,
        } = source;
        let announced = tracks.iter().map(|track| track.track.clone()).collect();
        let lease = self.channels.announce(&self.path, announced)?;
        let sockets = client.set_up(&tracks)?;
        let how = if sockets.is_empty() { "TCP" } else { "UDP" };
        let right = match (&self.cluster, &self.config) {
            (Some(cluster), None) => Right::OfNode(Arc::clone(cluster)),
            _ => Right::Always,
        };
        lease.begin(sockets, url.to_string(), right);
        client.play()?;
        *has_begun = true;
        self.state.set_error(None);
        let path = &self.path;
        info!(
            "channel {path} is pulled from {url} over {how}, {} tracks",
            tracks.len()
        );
        let ended = self.follow(&mut client, &lease, (&tracks, origin));
        client.tear_down();
        ended
    }

    fn follow(
        &self,
        client: &mut PullClient,
        lease: &Lease,
        (tracks, origin): (&[Track], &Origin),
    ) -> Result<Option<Source>, PullError> {
        self.sent_on.borrow_mut().forget();
        let mut reported = Instant::now();
        let mut watched = Instant::now();
        loop {
            let sent_on = client.receive(STEP, |place, packet| match place {
                Some((track, is_report)) => lease.frame(track, is_report, packet),
                None => lease.stray(),
            })?;
            // A node that drains lets those go whom it is to feed no longer.
            let sent_on = sent_on.filter(|_| origin.node.is_none());
            if let Some(next) = self.next_source(origin, sent_on) {
                return Ok(Some(next));
            }
            client.keep_alive()?;
            if self.is_stopping() {
                return Ok(None);
            }
            if lease.is_dismissed(None) {
                return Err(PullError::LetGo);
            }
            self.check(origin)?;
            if self.is_on_demand() && lease.channel().has_viewers() {
                watched = Instant::now();
            }
            let is_idle = watched.elapsed() >= UNWATCHED_TIME_MAX && !self.is_watched();
            if self.is_on_demand() && is_idle {
                return Ok(None);
            }
            let silent_ns = monotonic_ns().saturating_sub(lease.arrived_ns());
            if u128::from(silent_ns) >= PUBLISHER_SILENCE_MAX.as_nanos() {
                return Err(PullError::Silent(lease.refused()));
            }
            if client.is_interleaved() && reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                for track in 0..tracks.len() {
                    if let Some(report) = lease.reception_report(track) {
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

/// The first pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// How long the thread waits before it looks at all again.
const STEP: Duration = Duration::from_millis(200);

/// Receiver reports over TCP leave so often; those over UDP are the channel's thread's.
const REPORT_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
