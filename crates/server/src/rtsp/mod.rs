//! RTSP connections and sessions over TCP, and the RTCP beside each stream.
//!
//! All of it runs on one thread. A connection is a task that reads requests and carries out what
//! [`onrush_wire::rtsp::Intent`] lets pass; a session is what they act on, and so do reports of its
//! client, the end of its stream, and time: one task for each of these looks after all sessions.
//! Sessions stand in a table, not in a connection: a session may outlive the connection that made
//! it, and be used through another from the same address. What two tasks share is counted by
//! reference, never locked, and never borrowed across a wait.

mod authorize;
mod balance;
mod choosing;
mod client;
pub(crate) mod connection;
mod connection_slot;
mod delivery;
mod end;
mod group;
mod group_socket;
mod groups;
mod interleaving;
mod listen;
mod live_player;
mod looks;
mod planning;
mod ports;
mod presentation;
mod publisher;
mod refusals;
mod report_clock;
mod reports;
mod roster;
mod sending;
mod session;
mod session_live;
mod session_places;
mod session_stored;
mod srtp;
mod summary;
mod track_session;
mod tracks;
mod tunnel;
mod uses;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onrush_sys::thread::raise_open_files_limit;
use onrush_wire::route::{Film, Key};
use onrush_wire::rtsp::{ELEMENTARY, SessionId, State};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{error, info, warn};

pub use self::group::GROUP_REPORT_SESSIONS_MAX;
use self::group::Group;
use self::groups::Groups;
pub(crate) use self::listen::accept_tunnelled;
pub use self::live_player::LIVE_ADDRESSES_MAX;
use self::live_player::LivePorts;
use self::looks::Looks;
use self::ports::{Hear, Ports};
pub(crate) use self::presentation::Content;
pub(crate) use self::sending::Sending;
use self::session::{End, Session};
pub use self::tunnel::TUNNEL_POSTS_WAITING_MAX;
use self::tunnel::Tunnels;
use crate::config::Config;
use crate::engine::admission::LATE_NS;
use crate::engine::shared::WorkerShared;
use crate::engine::stream_end::Ended;
use crate::library::{Library, Media, REFRESH_BYTES_MAX};
use crate::listening::Draining;
use crate::statistics::Statistics;
use crate::tls::Tls;
use crate::watching::WishQueue;

/// Clients of files at one pair of UDP ports. The kernel looks through all sockets of a port to
/// bind one more, and, before 6.13, to find whom an ICMP message is for.
pub const CLIENTS_PER_PAIR_MAX: usize = 128;

/// How often each session is asked whether something is due. A report may be so much later, or a
/// time-out.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What all connections and sessions share.
#[derive(Debug)]
pub(crate) struct Control {
    config: Config,
    content: Content,
    ports: Ports,
    live_ports: LivePorts,
    /// Of the keys of SRTP.
    secret: srtp::Secret,
    groups: Groups,
    /// By half of their names, so that the table is small.
    sessions: RefCell<HashMap<u64, Rc<Session>>>,
    /// How many of them each address has.
    sessions_by_address: RefCell<HashMap<IpAddr, usize>>,
    /// A session has left.
    left: Notify,
    connections: RefCell<HashMap<IpAddr, usize>>,
    tunnels: RefCell<Tunnels>,
    /// Files that this process may have open.
    files: u64,
    /// Connections that are being told that there are too many.
    refusals: Cell<usize>,
    /// Sessions are on their way from one engine to another.
    balancing: Cell<bool>,
    /// No more sessions are to come.
    stopping: Cell<bool>,
    /// Requests of the server's own, on all connections together.
    cseq: Cell<u32>,
    statistics: Arc<Statistics>,
}

/// What control hears of the rest of the server.
#[derive(Debug)]
pub(crate) struct Signals {
    /// It is to stop: fired, or dropped.
    stopped: oneshot::Receiver<()>,
    /// What dashboards and programs ask of it.
    wished: WishQueue,
    /// Nobody more is to come.
    pub(crate) draining: Draining,
}

impl Signals {
    /// What stops a control when it is fired or dropped, and what that control hears.
    pub(crate) fn new(wished: WishQueue, draining: Draining) -> (oneshot::Sender<()>, Self) {
        let (stop, stopped) = oneshot::channel();
        let signals = Self {
            stopped,
            wished,
            draining,
        };
        (stop, signals)
    }
}

/// What has been late so far.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    lags: u64,
    bursts: u64,
    bursts_late: u64,
    bursts_joined: u64,
    sheds: u64,
    /// How many are left out now.
    shed: u64,
}

impl Control {
    pub(crate) fn new(config: Config, content: Content, statistics: Arc<Statistics>) -> Rc<Self> {
        let multicast = &config.multicast;
        statistics.bounds.set(&config.limits);
        statistics.drain.configure(config.drain.clone());
        let group_ttl = (!multicast.ranges.is_empty()).then_some(multicast.ttl);
        Rc::new_cyclic(|control: &Weak<Self>| Self {
            ports: Ports::new(config.rtp_ports, group_ttl, hear(control)),
            groups: Groups::new(config.multicast.clone(), hear(control)),
            live_ports: LivePorts::default(),
            secret: srtp::Secret::new(),
            config,
            content,
            sessions: RefCell::default(),
            sessions_by_address: RefCell::default(),
            left: Notify::new(),
            connections: RefCell::default(),
            tunnels: RefCell::default(),
            files: raise_open_files_limit(),
            refusals: Cell::new(0),
            balancing: Cell::new(false),
            stopping: Cell::new(false),
            cseq: Cell::new(0),
            statistics,
        })
    }

    /// Serves until it is to stop, then ends every session with its farewell.
    pub(crate) async fn run(
        self: Rc<Self>,
        listeners: Vec<(TcpListener, Option<Arc<Tls>>)>,
        signals: Signals,
    ) {
        let Signals {
            mut stopped,
            wished,
            draining,
        } = signals;
        let mut accepting = JoinSet::new();
        accepting.spawn_local(roster::answer(Rc::clone(&self), wished));
        for (listener, tls) in listeners {
            accepting.spawn_local(listen::accept(
                Rc::clone(&self),
                listener,
                tls,
                draining.clone(),
            ));
        }
        accepting.spawn_local(Rc::clone(&self).drain(draining));
        accepting.spawn_local(Rc::clone(&self).keep_time());
        accepting.spawn_local(Rc::clone(&self).send_on());
        for path in self.config.multicast.always.clone() {
            accepting.spawn_local(groups::send_always(Rc::clone(&self), path));
        }
        if let Some(library) = &self.content.library {
            accepting.spawn_local(Rc::clone(&self).housekeeping(Arc::clone(library)));
            accepting.spawn_local(Rc::clone(&self).keep_ends());
        }
        loop {
            tokio::select! {
                // A sender that was dropped asks for the same as one that sent.
                _ = &mut stopped => break,
                Some(ended) = accepting.join_next() => {
                    log_panic("a task of RTSP's control", ended);
                }
            }
        }
        self.stopping.set(true);
        if let Some(library) = &self.content.library {
            library.stop();
        }
        accepting.shutdown().await;
        self.tell_all(|session| {
            session.end(End::Stopped);
        });
        self.groups.clear();
        while !self.sessions.borrow().is_empty() {
            self.left.notified().await;
        }
    }

    /// Sends away, once nobody more is to come, whom the server's successor can serve as well:
    /// publishers, and who watches what is live or on a group, to which nothing is sent any longer.
    /// They come again, and find it. Who plays a file plays on.
    async fn drain(self: Rc<Self>, draining: Draining) {
        draining.begins().await;
        self.tell_all(|session| {
            if session.media().is_none() || session.peer_ip().is_multicast() {
                session.end(End::Drained);
            }
        });
        self.groups.clear();
        let pulls = Arc::clone(&self.content.pulls);
        log_panic(
            "ending what is pulled",
            spawn_blocking(move || pulls.stop()).await,
        );
    }

    /// Wakes connections with packets when clients are to be sent on to another server. Others are
    /// seldom silent for long, and find out by themselves: what wakes them would take memory of
    /// each viewer.
    async fn send_on(self: Rc<Self>) {
        let drain = &self.statistics.drain;
        loop {
            let begun = drain.begun();
            // One that has begun before is seen now, and one from now on by that.
            self.tell_all(|session| {
                for track in session.tracks() {
                    track.wake_connection();
                }
            });
            begun.await;
        }
    }

    /// Looks after what is due in time.
    async fn keep_time(self: Rc<Self>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.statistics
                .control_turns
                .fetch_add(1, Ordering::Relaxed);
            self.tell_all(|session| session.look(now));
            if self.is_drained() {
                self.tell_all(|session| drop(session.end(End::Drained)));
            }
            self.content.published.sweep();
            self.groups.look(&self);
        }
    }

    /// Looks after streams that stop by themselves.
    async fn keep_ends(self: Rc<Self>) {
        let Some(data) = self.content.sending.get() else {
            return;
        };
        loop {
            match data.engines().ends().ended().await {
                Ended::Of(session) => self.tell(session, Session::stream_stopped),
                Ended::Many => self.tell_all(Session::stream_stopped),
            }
        }
    }

    /// Tells something to the session of that number, if it still exists.
    fn tell(&self, number: u64, what: impl FnOnce(&Rc<Session>)) {
        let session = self.sessions.borrow().get(&number).cloned();
        if let Some(session) = session {
            catch_panic(&session, what);
        }
    }

    /// Tells something to every session.
    fn tell_all(&self, what: impl Fn(&Rc<Session>)) {
        for session in self.sessions.borrow().values() {
            catch_panic(session, &what);
        }
    }

    /// Looks after the files in use, once a second: one that grows is read on, one that has changed
    /// is played up to there.
    async fn housekeeping(self: Rc<Self>, library: Arc<Library>) {
        let mut last = Trouble::default();
        let (folders, mut of_folders) = (library.folders(), Looks::default());
        let mut of_films = Looks::default();
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            self.descriptors(0);
            if tick % 8 == 4 {
                for (number, folder) in folders.iter().enumerate() {
                    let folder = Arc::clone(folder);
                    of_folders.begin(number, move || folder.renew()).await;
                }
            }
            self.log_overload(&mut last);
            self.balance();
            self.tell_cluster();
            self.content.pulls.want_awaited();
            if let Some(cluster) = self.statistics.cluster.get() {
                cluster.let_go_if_draining();
            }
            let mut films = self.films_played();
            let sweeps = tick % 8 == 0;
            if sweeps {
                for device in library.devices() {
                    films.entry(device).or_default();
                }
            }
            for (device, films) in films {
                let library = Arc::clone(&library);
                let look = move || {
                    if sweeps {
                        library.sweep(device);
                    }
                    for media in films {
                        media.refresh(Some(REFRESH_BYTES_MAX));
                    }
                };
                of_films.begin(device, look).await;
            }
        }
    }

    /// The films that sessions have, by the device that they lie on.
    fn films_played(&self) -> HashMap<u64, Vec<Arc<Media>>> {
        let sessions = self.sessions.borrow();
        let media = sessions.values().filter_map(|session| session.media());
        let media: HashMap<_, _> = media.map(|media| (Arc::as_ptr(media), media)).collect();
        let mut films = HashMap::<_, Vec<_>>::new();
        for media in media.into_values() {
            let device = media.identity().device;
            films.entry(device).or_default().push(Arc::clone(media));
        }
        films
    }

    /// Says in the log what has become late since it was `told` last.
    fn log_overload(&self, last: &mut Trouble) {
        let now = Trouble {
            lags: self.sum(|engine| &engine.lags),
            bursts: self.sum(|engine| &engine.bursts),
            bursts_late: self.sum(|engine| &engine.bursts_late),
            bursts_joined: self.sum(|engine| &engine.bursts_joined),
            sheds: self.sum(|engine| &engine.sheds),
            shed: self.sum(|engine| &engine.shed),
        };
        let then = std::mem::replace(last, now);
        if now.lags > then.lags {
            warn!(
                "{} times a stream was so far behind that its clock was moved: clients see a \
                 pause, and no flood after it",
                now.lags - then.lags
            );
        }
        if now.sheds > then.sheds {
            warn!(
                "all streams were late for seconds: the newest {} are not sent for a while, so \
                 that the others are on time; {} are left out now",
                now.sheds - then.sheds,
                now.shed
            );
        } else if now.shed < then.shed {
            let skipped = self.sum(|engine| &engine.packets_skipped);
            info!(
                "there is room again: {} streams fewer are left out, {} still are; {skipped} \
                 packets were not sent so far",
                then.shed - now.shed,
                now.shed
            );
        }
        let (bursts, late) = (now.bursts - then.bursts, now.bursts_late - then.bursts_late);
        let joined = now.bursts_joined - then.bursts_joined;
        if joined * 100 > bursts {
            info!(
                "{joined} of {bursts} bursts left early, joined to the one before: the engine was \
                 behind"
            );
        }
        if late * 100 > bursts {
            warn!(
                "{late} of {bursts} bursts left more than {} ms late: the engine is held up, or \
                 has too much to do",
                LATE_NS / 1_000_000
            );
        }
    }

    /// A counter of all engines together.
    fn sum(&self, counter: fn(&WorkerShared) -> &AtomicU64) -> u64 {
        let Some(data) = self.content.sending.get() else {
            return 0;
        };
        let counters = data.engines().counters().map(counter);
        counters
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    /// The data path by which files are sent.
    fn path_name(&self) -> &'static str {
        let data = self.content.sending.get();
        data.map_or("none", |data| data.path().as_str())
    }

    /// The session of that name, if `peer` may use it: it must come from the address that made it.
    fn session(&self, id: SessionId, peer: IpAddr) -> Option<Rc<Session>> {
        let session = self.sessions.borrow().get(&id.number()).cloned();
        session.filter(|session| session.id() == id && session.peer_ip() == peer)
    }

    /// The session that sends to a group, unless it has ended.
    fn leader(&self, group: &Group) -> Option<Rc<Session>> {
        let leader = self.sessions.borrow().get(&group.leader()).cloned();
        leader.filter(|leader| leader.state() != State::Init)
    }

    /// Whether who was sent on to another server and has not gone is to stay no longer.
    fn is_drained(&self) -> bool {
        let redirection = self.statistics.drain.redirection();
        redirection.is_some_and(|redirection| redirection.is_over())
    }

    /// The number of a request of the server's own.
    fn next_cseq(&self) -> u32 {
        let cseq = self.cseq.get().wrapping_add(1);
        self.cseq.set(cseq);
        cseq
    }

    /// Whether somebody publishes under that path here.
    fn is_published(&self, path: &str) -> bool {
        self.content
            .published
            .all()
            .iter()
            .any(|it| it.path() == path)
    }

    /// Tells the cluster what is played here, by film.
    fn tell_cluster(&self) {
        let Some(cluster) = self.statistics.cluster.get() else {
            return;
        };
        let mut by_film: HashMap<*const Media, (Arc<Media>, u64)> = HashMap::new();
        for session in self.sessions.borrow().values() {
            if let Some(media) = session.media() {
                let film = by_film.entry(Arc::as_ptr(media));
                film.or_insert_with(|| (Arc::clone(media), 0)).1 += 1;
            }
        }
        let films = by_film.into_values().map(|(media, sessions)| {
            let bits = media.identity().file_bytes.saturating_mul(8);
            let millis = (media.duration_ns() / 1_000_000).max(1);
            let name = media.name();
            Film {
                key: Key::of(name.strip_suffix(ELEMENTARY).unwrap_or(name)),
                demand_bps: (bits / millis)
                    .saturating_mul(1000)
                    .saturating_mul(sessions),
            }
        });
        cluster.plays(films.collect());
    }

    /// Waits until there is somebody to take what a request asks for.
    async fn ready(&self) {
        if let Some(data) = self.content.sending.get() {
            data.engines().ready().await;
        }
    }

    /// Says in the log what was done in all.
    pub(crate) fn log_total(&self) {
        let sessions = self.statistics.sessions_total.load(Ordering::Relaxed);
        if self.content.library.is_none() {
            return info!("players served: {sessions}");
        }
        info!(
            "sessions served: {sessions}; {} packets in {} bursts, {} of them joined, in {} \
             trains, {} of them without a copy, {} crossings, path {}",
            self.sum(|engine| &engine.packets),
            self.sum(|engine| &engine.bursts),
            self.sum(|engine| &engine.bursts_joined),
            self.sum(|engine| &engine.trains),
            self.sum(|engine| &engine.trains_zero_copy),
            self.sum(|engine| &engine.crossings),
            self.path_name(),
        );
    }
}

/// Tells sessions what is heard of them.
fn hear(control: &Weak<Control>) -> Rc<Hear> {
    let control = Weak::clone(control);
    Rc::new(move |session, said| {
        if let Some(control) = control.upgrade() {
            control.tell(session, |session| session.heard(said));
        }
    })
}

/// Tells something to a session. Should that show a bug of ours, it ends this session and no other.
fn catch_panic(session: &Rc<Session>, what: impl FnOnce(&Rc<Session>)) {
    if catch_unwind(AssertUnwindSafe(|| what(session))).is_err() {
        error!("session {}: a bug of the server", session.id().short());
        session.end(End::Bug);
    }
}

fn log_panic<T>(what: &str, result: Result<T, JoinError>) -> Option<T> {
    result.map_err(|panic| error!("{what}: {panic}")).ok()
}

#[cfg(test)]
mod publishing_tests;
#[cfg(test)]
mod refused_seek_tests;
#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod tests;
