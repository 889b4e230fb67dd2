//! RTSP connections and sessions over TCP, and the RTCP beside each stream.
//!
//! All of it runs on one thread. A connection is a task that reads requests and carries out what
//! [`onrush_wire::rtsp::Intent`] lets pass; a session is a task that reports, listens to reports and ends
//! when there is reason to. Sessions stand in a table, not in a connection: a session may outlive the
//! connection that made it, and be used through another from the same address. What two tasks share is
//! counted by reference, never locked, and never borrowed across a wait.

mod balance;
pub(crate) mod connection;
mod flow;
mod listen;
mod ports;
mod presentation;
mod seat;
mod session;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onrush_sys::thread::raise_open_files_limit;
use onrush_wire::rtsp::{SessionId, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet, spawn_blocking, spawn_local};
use tracing::{error, info, warn};

pub(crate) use self::listen::bind;

use self::ports::Ports;
use self::seat::LivePorts;
use self::session::{End, Session};
use crate::config::{Config, files_suffice};
use crate::data::Data;
use crate::engine::admission::LATE_NS;
use crate::engine::shared::WorkerShared;
use crate::library::{Library, Media};
use crate::relay::Channel;

/// Clients of files at one pair of UDP ports. The kernel looks through all sockets of a port to bind one more, and,
/// before 6.13, to find whom an ICMP message is for.
pub const CLIENTS_PER_PAIR_MAX: usize = 128;

/// Datagrams and errors of its RTCP port that may wait for a session: a client reports every few seconds.
pub const REPORTS_WAITING_MAX: usize = 8;

/// What all connections and sessions share.
#[derive(Debug)]
pub(crate) struct Control {
    config: Config,
    content: Content,
    ports: Ports,
    live_ports: LivePorts,
    sessions: RefCell<HashMap<SessionId, Rc<Session>>>,
    connections: RefCell<HashMap<IpAddr, usize>>,
    /// Files that this process may have open.
    files: u64,
    /// Connections that are being told that there are too many.
    refusals: Cell<usize>,
    /// Sessions are on their way from one engine to another.
    balancing: Cell<bool>,
    /// No more sessions are to come.
    stopping: Cell<bool>,
    statistics: Arc<Statistics>,
}

/// What has been late so far.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    lags: u64,
    bursts: u64,
    bursts_late: u64,
    sheds: u64,
    /// How many are left out now.
    shed: u64,
}

/// What can be played.
#[derive(Debug)]
pub(crate) enum Content {
    /// Files, and what sends them.
    Stored { library: Arc<Library>, data: Data },
    /// Streams of a relay.
    Live(Vec<Arc<Channel>>),
}

/// What there is at the moment.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) sessions: AtomicUsize,
    /// Those that have been as well.
    pub(crate) sessions_total: AtomicU64,
    pub(crate) connections: AtomicUsize,
    /// Answers by the first digit of their status, from 1 to 5.
    pub(crate) answers: [AtomicU64; 5],
    /// Of them, 453 Not Enough Bandwidth.
    pub(crate) refused: AtomicU64,
    /// Files that downloads may have open.
    pub(crate) download_files: AtomicUsize,
    /// RTP sockets that take a descriptor, when they were counted last.
    pub(crate) rtp_files: AtomicUsize,
}

impl Statistics {
    /// A request was answered with this status.
    fn count_answer(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.answers[class - 1].fetch_add(1, Ordering::Relaxed);
        if status == u16::from(StatusCode::NotEnoughBandwidth) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Control {
    pub(crate) fn new(config: Config, content: Content, statistics: Arc<Statistics>) -> Rc<Self> {
        Rc::new(Self {
            ports: Ports::new(config.rtp_ports),
            live_ports: LivePorts::default(),
            config,
            content,
            sessions: RefCell::default(),
            connections: RefCell::default(),
            files: raise_open_files_limit(),
            refusals: Cell::new(0),
            balancing: Cell::new(false),
            stopping: Cell::new(false),
            statistics,
        })
    }

    /// Serves until `stop` fires or is dropped, then ends every session with its farewell.
    pub(crate) async fn run(
        self: Rc<Self>,
        listeners: Vec<TcpListener>,
        stop: oneshot::Receiver<()>,
    ) {
        let mut accepting = JoinSet::new();
        for listener in listeners {
            accepting.spawn_local(listen::accept(Rc::clone(&self), listener));
        }
        if let Content::Stored { library, .. } = &self.content {
            accepting.spawn_local(Rc::clone(&self).keep_house(Arc::clone(library)));
        }
        // A sender that was dropped asks for the same as one that sent.
        stop.await.unwrap_or_default();
        self.stopping.set(true);
        if let Content::Stored { library, .. } = &self.content {
            library.stop();
        }
        accepting.shutdown().await;
        let sessions: Vec<_> = self.sessions.borrow().values().cloned().collect();
        for session in &sessions {
            session.end(End::Stopped);
        }
        for session in &sessions {
            session.over().await;
        }
    }

    /// Looks after the files in use, once a second: one that was truncated or replaced ends its sessions.
    async fn keep_house(self: Rc<Self>, library: Arc<Library>) {
        let mut told = Trouble::default();
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            self.descriptors(0);
            if tick % 8 == 0 {
                let library = Arc::clone(&library);
                log_panic(
                    "sweeping the library",
                    spawn_blocking(move || library.sweep()).await,
                );
            }
            self.tell_trouble(&mut told);
            self.balance();
            let media: HashMap<*const Media, Arc<Media>> = {
                let sessions = self.sessions.borrow();
                let media = sessions.values().filter_map(|session| session.media());
                media
                    .map(|media| (Arc::as_ptr(media), Arc::clone(media)))
                    .collect()
            };
            for media in media.into_values() {
                self.check(media).await;
            }
        }
    }

    /// Says in the log what has become late since it was `told` last.
    fn tell_trouble(&self, told: &mut Trouble) {
        let now = Trouble {
            lags: self.sum(|engine| &engine.lags),
            bursts: self.sum(|engine| &engine.bursts),
            bursts_late: self.sum(|engine| &engine.bursts_late),
            sheds: self.sum(|engine| &engine.sheds),
            shed: self.sum(|engine| &engine.shed),
        };
        let then = std::mem::replace(told, now);
        if now.lags > then.lags {
            warn!(
                "{} times a stream was so far behind that its clock was moved: clients see a pause, and no flood \
                 after it",
                now.lags - then.lags
            );
        }
        if now.sheds > then.sheds {
            warn!(
                "all streams were late for seconds: the newest {} are not sent for a while, so that the others are \
                 on time; {} are left out now",
                now.sheds - then.sheds,
                now.shed
            );
        } else if now.shed < then.shed {
            let skipped = self.sum(|engine| &engine.packets_skipped);
            info!(
                "there is room again: {} streams fewer are left out, {} still are; {skipped} packets were not sent so far",
                then.shed - now.shed,
                now.shed
            );
        }
        let (bursts, late) = (now.bursts - then.bursts, now.bursts_late - then.bursts_late);
        if late * 100 > bursts {
            warn!(
                "{late} of {bursts} bursts left more than {} ms late: the engine is held up, or has too much to do",
                LATE_NS / 1_000_000
            );
        }
    }

    /// A counter of all engines together.
    fn sum(&self, counter: fn(&WorkerShared) -> &AtomicU64) -> u64 {
        let Content::Stored { data, .. } = &self.content else {
            return 0;
        };
        let counters = data.engines().counters().map(counter);
        counters
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    async fn check(&self, media: Arc<Media>) {
        let checked = Arc::clone(&media);
        let checked = spawn_blocking(move || checked.check()).await;
        let Some(Err(reason)) = log_panic("checking a file", checked) else {
            return;
        };
        media.fail(&reason);
        for session in self.sessions.borrow().values() {
            if session.presentation().is(&media) {
                session.end(End::Media(reason.clone()));
            }
        }
    }

    fn path_name(&self) -> &'static str {
        match &self.content {
            Content::Stored { data, .. } => data.path().as_str(),
            Content::Live(_) => "relay",
        }
    }

    /// The session of that name, if `peer` may use it: it must come from the address that made it.
    fn session(&self, id: SessionId, peer: IpAddr) -> Option<Rc<Session>> {
        let session = self.sessions.borrow().get(&id).cloned();
        session.filter(|session| session.peer_ip() == peer)
    }

    /// Why there can be no session more, if so.
    fn full(&self) -> Option<String> {
        let (sessions, most) = (
            self.sessions.borrow().len(),
            self.config.limits.sessions_max,
        );
        if sessions >= most {
            return Some(format!("all {most} sessions are taken"));
        }
        let connections = self.statistics.connections.load(Ordering::Relaxed);
        let files = self.files;
        (!files_suffice(files, connections, self.descriptors(1))).then(|| {
            format!("the server may open {files} files (RLIMIT_NOFILE), and all are taken")
        })
    }

    /// Descriptors that RTP sockets take, with `more` sessions than there are, and downloads.
    fn descriptors(&self, more: usize) -> usize {
        let of_downloads = self.statistics.download_files.load(Ordering::Relaxed);
        let of_sockets = match &self.content {
            Content::Stored { data, .. } => {
                let sessions = self.sessions.borrow().len() + more;
                sessions.saturating_sub(data.engines().places())
            }
            Content::Live(_) => 0,
        };
        self.statistics
            .rtp_files
            .store(of_sockets, Ordering::Relaxed);
        of_sockets + of_downloads
    }

    /// Waits until there is somebody to take what a request asks for.
    async fn ready(&self) {
        if let Content::Stored { data, .. } = &self.content {
            data.engines().ready().await;
        }
    }

    /// Says in the log what was done in all.
    pub(crate) fn log_total(&self) {
        let sessions = self.statistics.sessions_total.load(Ordering::Relaxed);
        if matches!(self.content, Content::Live(_)) {
            return info!("players served: {sessions}");
        }
        info!(
            "sessions served: {sessions}; {} packets in {} trains, {} of them without a copy, {} crossings, path {}",
            self.sum(|engine| &engine.packets),
            self.sum(|engine| &engine.trains),
            self.sum(|engine| &engine.trains_zero_copy),
            self.sum(|engine| &engine.crossings),
            self.path_name(),
        );
    }

    /// Puts a session into the table and starts its task.
    fn add(self: &Rc<Self>, session: &Rc<Session>) {
        let before = self
            .sessions
            .borrow_mut()
            .insert(session.id(), Rc::clone(session));
        assert!(before.is_none(), "128 random bits do not come twice");
        self.statistics
            .sessions
            .store(self.sessions.borrow().len(), Ordering::Relaxed);
        self.statistics
            .sessions_total
            .fetch_add(1, Ordering::Relaxed);
        let (control, session) = (Rc::clone(self), Rc::clone(session));
        drop(spawn_local(async move {
            session.run(&control).await;
            control.sessions.borrow_mut().remove(&session.id());
            control
                .statistics
                .sessions
                .store(control.sessions.borrow().len(), Ordering::Relaxed);
            session.set_over();
        }));
    }
}

/// A name that a peer chose, as a log shows it: on one line, with nothing that steers a terminal.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

fn log_panic<T>(what: &str, result: Result<T, JoinError>) -> Option<T> {
    result.map_err(|panic| error!("{what}: {panic}")).ok()
}

/// Random bytes from the kernel.
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("Linux has had random numbers for all since 3.17");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine;

    /// Bytes that a task takes beside its future: its header, its links and its trailer, on whole cache lines.
    const TASK_BYTES: usize = 128;

    /// Of the future that a function returns.
    fn bytes_of<A, F: Future>(_: impl Fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_session_takes_two_kilobytes_and_its_connection_one() {
        let task = bytes_of(
            |(control, session): (Rc<Control>, Rc<Session>)| async move {
                session.run(&control).await;
            },
        );
        let session = [
            ("task", task + TASK_BYTES),
            ("state", size_of::<Session>()),
            ("flow", size_of::<flow::Flow>()),
            ("inbox", ports::INBOX_BYTES),
            ("engine", engine::BYTES_PER_STREAM),
        ];
        let total: usize = session.iter().map(|(_, bytes)| bytes).sum();
        assert!(total <= 2048, "{total} of {session:?}");
        let connection =
            TASK_BYTES + bytes_of(|(connection, place)| listen::serve(connection, place));
        assert!(connection <= 1024, "{connection}");
    }
}
