//! A server that is one of many: what it tells the others, what it was told, and which of them a
//! viewer is sent to.
//!
//! What speaks with the registry is not here. It tells [`ClusterMember::told`] what all others
//! say; a viewer's request is decided by [`onrush_wire::route`] on a copy of that, on the thread
//! that has it, and waits for nobody. Without a registry, and while it cannot be reached for longer
//! than entries live, there are no others, and all is served here.
//!
//! Sent on are DESCRIBE and the first SETUP of RTSP, and of HTTP playlists and manifests that name
//! all others, and files. Segments are the same bytes everywhere and are served where they are
//! asked for, and so is who does not follow (`followers`).

mod channels;
mod feeding;
mod followers;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use onrush_wire::route::entry::{ENTRY_FILMS_MAX, ENTRY_FORMAT};
use onrush_wire::route::{
    Addresses, Asked, Bounds, Cluster, Decision, Entry, Film, Key, Puller, Scheme, Trace, WarmFilm,
};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

pub(crate) use self::channels::ChannelClaim;
pub use self::channels::{CLAIM_TIME_MAX, CLAIMS_MAX};
pub(crate) use self::feeding::{Feed, NotFed};
use self::followers::{Followers, Traces, Viewer};
pub use self::followers::{SENT_ON_MAX, TRACES_MAX};
use crate::peer_log::{Escaped, log_trace};
use crate::random::random;
use crate::users::Authorizer;

/// Keys of the registry that wait to be removed; one more is refused.
pub const FORGETS_MAX: usize = 4;

/// Nodes that a film's page may have the film from.
pub const ORIGIN_NODES_MAX: usize = 8;

/// What is signed for another node is good for so long: it is asked for at once, but clocks differ.
const SIGNED_FOR: Duration = Duration::from_secs(600);

/// What a processor that sends is taken to play where nothing is said, in bits a second: a fifth of
/// what one was measured to hold (docs/capacity.md), so that films are weighed alike by nodes whose
/// processors are.
const CORE_BPS: u64 = 10_000_000_000;

/// A server's part in a cluster, as it is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub name: String,
    /// This node's name: no other has it.
    pub node: String,
    /// The host by which viewers reach this node; the ports are those that it listens at.
    pub host: String,
    /// What it can play, in bits a second: by default 10 Gbit/s for each processor that sends. It
    /// is what films are given to nodes by, so it should say what the network carries.
    pub capacity_bps: Option<u64>,
    /// How many other nodes take one channel from this one at once, 1 or more; whoever else asks is
    /// sent on to one of these.
    pub pulls_max: usize,
}

/// How much a server has to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Of what admission lets it take, in thousandths: of the processors, sessions or connections
    /// whatever is used most.
    pub(crate) permille: u64,
    /// What is sent, in bits a second.
    pub(crate) sent_bps: u64,
    pub(crate) sessions: u64,
    /// Whether it takes sessions.
    pub(crate) accepts: bool,
}

type LoadNow = Box<dyn Fn() -> Load + Send + Sync>;

/// What is known of a node once the server runs.
struct Own {
    addresses: Addresses,
    capacity_bps: u64,
    load: LoadNow,
}

/// An entry of the registry that is not taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IgnoredEntry {
    /// Its key.
    pub key: String,
    /// Why.
    pub reason: String,
}

/// Somebody asks that the registry forgets a key.
#[derive(Debug)]
pub struct ForgetRequest {
    /// Which.
    pub key: String,
    /// Takes whether there was one, or why it could not be done.
    pub answer: oneshot::Sender<Result<bool, String>>,
}

/// All nodes, and what was made of it.
struct View {
    /// In the order of their names, this one among them.
    entries: Vec<Arc<Entry>>,
    own: usize,
    cluster: Cluster,
    /// What all nodes play of films that any of them names, by key, in bits a second.
    demand_bps: HashMap<u64, u64>,
    ignored: Vec<IgnoredEntry>,
}

/// A server as one of a cluster.
pub struct ClusterMember {
    config: ClusterConfig,
    /// Tells this process from another of the same name.
    instance: u64,
    own: OnceLock<Own>,
    /// What other nodes are asked with.
    authorizer: OnceLock<Arc<Authorizer>>,
    view: RwLock<Option<Arc<View>>>,
    /// What is played here, by film.
    films: Mutex<Vec<Film>>,
    followers: Mutex<Followers>,
    traces: Mutex<Traces>,
    channels: channels::Channels,
    feeding: feeding::Feeding,
    registry: RwLock<Result<(), String>>,
    forgets: (
        mpsc::Sender<ForgetRequest>,
        Mutex<Option<mpsc::Receiver<ForgetRequest>>>,
    ),
    pub(crate) stats: ClusterStats,
}

/// What became of viewers and entries.
#[derive(Debug, Default)]
pub(crate) struct ClusterStats {
    pub(crate) is_registered: AtomicBool,
    pub(crate) nodes: AtomicU64,
    pub(crate) rtsp_sent_on: AtomicU64,
    pub(crate) http_sent_on: AtomicU64,
    pub(crate) not_following: AtomicU64,
    pub(crate) ignored: AtomicU64,
    pub(crate) disconnects: AtomicU64,
    /// Channels that some node has, and those that this one has.
    pub(crate) channels: AtomicU64,
    pub(crate) channels_held: AtomicU64,
    /// Entries of channels that are ignored.
    pub(crate) channels_ignored: AtomicU64,
    /// Channels that are taken from another node.
    pub(crate) channels_pulled: AtomicU64,
    /// Nodes that take channels from here, each counted for each channel.
    pub(crate) pulls_fed: AtomicU64,
    /// Nodes that were sent on to others, because as many are fed here as may be.
    pub(crate) pulls_sent_on: AtomicU64,
    pub(crate) stepped_down: AtomicU64,
}

/// What a viewer asks, and who it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The film's path, decoded.
    pub(crate) film: &'a str,
    pub(crate) scheme: Scheme,
    pub(crate) peer: IpAddr,
    pub(crate) user_agent: &'a [u8],
    /// How often it was sent on before, and what it was called then.
    pub(crate) redirects: u8,
    pub(crate) trace: Option<Trace>,
}

/// Where a viewer is to ask instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Elsewhere {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// What the viewer is called there, and in the log.
    pub(crate) trace: Trace,
}

/// What a page shows of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeRow {
    pub(crate) entry: Arc<Entry>,
    pub(crate) is_this: bool,
}

impl fmt::Debug for ClusterMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterMember")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl ClusterMember {
    /// Of nobody but itself, until it is told of others.
    pub(crate) fn new(config: ClusterConfig) -> Arc<Self> {
        let (forget, forgotten) = mpsc::channel(FORGETS_MAX);
        Arc::new(Self {
            config,
            instance: u64::from_ne_bytes(random()),
            own: OnceLock::new(),
            authorizer: OnceLock::new(),
            view: RwLock::default(),
            films: Mutex::default(),
            followers: Mutex::default(),
            traces: Mutex::default(),
            channels: channels::Channels::default(),
            feeding: feeding::Feeding::default(),
            registry: RwLock::new(Err("not yet".to_owned())),
            forgets: (forget, Mutex::new(Some(forgotten))),
            stats: ClusterStats::default(),
        })
    }

    /// The server listens there, at the ports of RTSP, RTSP over TLS, HTTP and HTTPS, on so many
    /// processors.
    pub(crate) fn begin(&self, ports: [Option<u16>; 4], cores: usize, load: LoadNow) {
        let host = &self.config.host;
        let [rtsp, rtsps, http, https] = ports.map(|port| Some(format!("{host}:{}", port?)));
        let cores_bps = CORE_BPS.saturating_mul(cores.max(1) as u64);
        let own = Own {
            addresses: Addresses {
                rtsp,
                rtsps,
                http,
                https,
            },
            capacity_bps: self.config.capacity_bps.unwrap_or(cores_bps).max(1),
            load,
        };
        drop(self.own.set(own));
    }

    /// Other nodes know this one by the keys of URLs that all of them have.
    pub(crate) fn sign_by(&self, authorizer: &Arc<Authorizer>) {
        drop(self.authorizer.set(Arc::clone(authorizer)));
    }

    /// What another node is asked with for a channel, behind its URL; none without keys.
    pub(crate) fn sign(&self, channel: &str) -> Option<String> {
        let authorizer = self.authorizer.get()?;
        let grant = authorizer.sign_to_play(channel, SIGNED_FOR)?;
        let asked = (channel, self.config.node.as_str());
        let proof = authorizer.sign_as_node(asked, SIGNED_FOR)?;
        Some(format!("{grant}&{proof}"))
    }

    /// Whether who asks for a channel by that URL is the node that it says; without keys whoever
    /// says so is.
    pub(crate) fn is_asked_by(&self, puller: &Puller, channel: &str, uri: &str) -> bool {
        let authorizer = self.authorizer.get();
        authorizer.is_none_or(|it| it.is_of_node(uri, (channel, puller.node.as_str())))
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// What this node tells of itself now.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let (load, capacity_bps) = self.load();
        let (addresses, films) = match self.own.get() {
            Some(own) => (own.addresses.clone(), lock(&self.films).clone()),
            None => (Addresses::default(), Vec::new()),
        };
        Entry {
            format: ENTRY_FORMAT,
            node: self.config.node.clone(),
            instance: self.instance,
            software: env!("CARGO_PKG_VERSION").to_owned(),
            accepts: load.accepts,
            capacity_bps,
            load_bps: used_bps(load, capacity_bps),
            sessions: load.sessions,
            addresses,
            films: films.into_iter().map(WarmFilm::new).collect(),
        }
    }

    /// Takes what all other nodes told last, and which entries of the registry are none.
    pub fn told(&self, others: Vec<Arc<Entry>>, ignored: Vec<IgnoredEntry>) {
        let mut entries = others;
        let own = Arc::new(self.entry());
        let at = entries.binary_search_by(|other| other.node.as_str().cmp(&own.node));
        let at = match at {
            // Nobody else is this node.
            Ok(at) => {
                entries[at] = own;
                at
            }
            Err(at) => {
                entries.insert(at, own);
                at
            }
        };
        let mut demand_bps = HashMap::new();
        for film in entries.iter().flat_map(|entry| &entry.films) {
            let of_all: &mut u64 = demand_bps.entry(film.key).or_default();
            *of_all = of_all.saturating_add(film.bps);
        }
        let nodes = entries.iter().map(|entry| entry.node()).collect();
        self.stats
            .nodes
            .store(entries.len() as u64, Ordering::Relaxed);
        self.stats
            .ignored
            .store(ignored.len() as u64, Ordering::Relaxed);
        let view = View {
            cluster: Cluster::new(nodes, Bounds::default()),
            entries,
            own: at,
            demand_bps,
            ignored,
        };
        let mut current = self.view.write().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::new(view));
    }

    /// Takes whether the registry is reached, and if not, why.
    pub fn reached(&self, reached: Result<(), String>) {
        let mut registry = self
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if registry.is_ok() && reached.is_err() {
            self.stats.disconnects.fetch_add(1, Ordering::Relaxed);
        }
        self.stats
            .is_registered
            .store(reached.is_ok(), Ordering::Relaxed);
        self.channels_reached(reached.is_ok());
        *registry = reached;
    }

    /// Where it is heard that the registry is to forget something, once.
    pub fn forget_requests(&self) -> Option<mpsc::Receiver<ForgetRequest>> {
        lock(&self.forgets.1).take()
    }

    /// Has the registry forget a key: whether there was one.
    pub(crate) async fn forget(&self, key: String) -> Result<bool, String> {
        let (answer, answered) = oneshot::channel();
        let asked = self.forgets.0.try_send(ForgetRequest { key, answer });
        asked.map_err(|_| "too many are being forgotten; try again".to_owned())?;
        answered
            .await
            .unwrap_or_else(|_| Err("this server has no registry".to_owned()))
    }

    /// Takes what is played here now, by film.
    pub(crate) fn plays(&self, mut films: Vec<Film>) {
        let all_bps: u64 = films.iter().map(|film| film.demand_bps).sum();
        films.retain(|film| film.demand_bps >= all_bps.div_ceil(ENTRY_FILMS_MAX as u64).max(1));
        films.sort_unstable_by_key(|film| std::cmp::Reverse(film.demand_bps));
        films.truncate(ENTRY_FILMS_MAX);
        *lock(&self.films) = films;
    }

    /// Whether there are other nodes.
    pub(crate) fn has_others(&self) -> bool {
        self.stats.nodes.load(Ordering::Relaxed) > 1
    }

    /// Where a viewer is to ask instead. `None` if it is served here.
    pub(crate) fn elsewhere(&self, request: Request<'_>) -> Option<Elsewhere> {
        let there = self.home_of(request);
        if let (None, Some(trace)) = (&there, request.trace)
            && lock(&self.traces).is_new(trace)
        {
            let (peer, film) = (request.peer, Escaped(request.film));
            log_trace(
                trace,
                format_args!("{peer} was sent here for {film}, and is served here"),
            );
        }
        there
    }

    fn home_of(&self, request: Request<'_>) -> Option<Elsewhere> {
        let view = self.view()?;
        if view.entries.len() < 2 {
            return None;
        }
        let key = Key::of(request.film);
        let film = Film {
            key,
            demand_bps: *view.demand_bps.get(&key.to_bits()).unwrap_or(&0),
        };
        let (load, capacity_bps) = self.load();
        let asked = Asked {
            node: Some(view.own),
            load_bps: used_bps(load, capacity_bps),
            redirects: request.redirects,
            draw: u64::from_ne_bytes(random()),
        };
        let ranking = view.cluster.ranking(key, view.cluster.homes(film));
        let Decision::Redirect(home) = view.cluster.decide(asked, film, &ranking) else {
            return None;
        };
        let home = &view.entries[home];
        let address = home.addresses.of(request.scheme)?;
        let (peer, film) = (request.peer, Escaped(request.film));
        let viewer = Viewer::new(&request, key);
        if !lock(&self.followers).sends_on(viewer, Instant::now()) {
            self.stats.not_following.fetch_add(1, Ordering::Relaxed);
            debug!("{peer}: {film} is served here: who asks does not follow to {address}");
            return None;
        }
        let sent_on = match request.scheme {
            Scheme::Rtsp | Scheme::Rtsps => &self.stats.rtsp_sent_on,
            Scheme::Http | Scheme::Https => &self.stats.http_sent_on,
        };
        sent_on.fetch_add(1, Ordering::Relaxed);
        let trace = request.trace;
        let trace = trace.unwrap_or_else(|| Trace::new(u64::from_ne_bytes(random())));
        let node = &home.node;
        log_trace(
            trace,
            format_args!("{peer} is sent on for {film} to node {node}, {address}"),
        );
        Some(Elsewhere {
            address: address.to_owned(),
            trace,
        })
    }

    /// The origins of HTTP at which a page may have the film, beside its own: those of the nodes
    /// that want it most, which whoever asks here is sent to.
    pub(crate) fn origins(&self, film: &str) -> Vec<String> {
        let Some(view) = self.view() else {
            return Vec::new();
        };
        let ranked = view.cluster.ranking(Key::of(film), ORIGIN_NODES_MAX + 1);
        let nodes = ranked.places().filter(|node| *node != view.own);
        let nodes = nodes.take(ORIGIN_NODES_MAX);
        let origins = nodes.flat_map(|node| {
            let addresses = &view.entries[node].addresses;
            let of = |scheme: Scheme| {
                let address = addresses.of(scheme)?;
                Some(format!("{}://{address}", scheme.as_str()))
            };
            [of(Scheme::Http), of(Scheme::Https)].into_iter().flatten()
        });
        origins.collect()
    }

    /// All nodes that are known, this one among them; which entries are ignored; and why the
    /// registry is not reached, if it is not.
    pub(crate) fn rows(&self) -> (Vec<NodeRow>, Vec<IgnoredEntry>, Option<String>) {
        let mut rows = vec![NodeRow {
            entry: Arc::new(self.entry()),
            is_this: true,
        }];
        let mut ignored = Vec::new();
        if let Some(view) = self.view() {
            let others = view.entries.iter().enumerate();
            let others = others.filter(|(at, _)| *at != view.own);
            rows.extend(others.map(|(_, entry)| NodeRow {
                entry: Arc::clone(entry),
                is_this: false,
            }));
            ignored.clone_from(&view.ignored);
        }
        ignored.extend(self.channel_rows().1);
        rows.sort_by(|a, b| a.entry.node.cmp(&b.entry.node));
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        (rows, ignored, registry.clone().err())
    }

    fn view(&self) -> Option<Arc<View>> {
        let view = self.view.read();
        view.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn load(&self) -> (Load, u64) {
        match self.own.get() {
            Some(own) => ((own.load)(), own.capacity_bps),
            None => (Load::default(), 1),
        }
    }
}

/// What a node plays as a part of what it can, in bits a second: what its processors and sessions
/// amount to, or what it sends if that is more.
fn used_bps(load: Load, capacity_bps: u64) -> u64 {
    let part = u128::from(capacity_bps) * u128::from(load.permille) / 1000;
    u64::try_from(part).unwrap_or(u64::MAX).max(load.sent_bps)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
