//! One pinned thread a core that turns all that is due into one batch of sends.
//!
//! Control opens a [`Stream`] and tells it to play, pause or go; the worker of its core does the rest.
//! The two share no lock: commands go through a bounded queue, counters and states come back as atomics
//! ([`shared`]). A worker wakes at ticks of a quarter burst, takes what is due within the tick from all of
//! its streams, and hands it to the kernel in one crossing, in which it also sleeps until the next tick.

pub mod admission;
pub mod bell;
pub mod clock;
mod flights;
mod moving;
pub mod phase;
mod reader;
pub mod shared;
mod shedding;
mod worker;

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use onrush_sys::path::{self, Path, PathError, PathName};
use onrush_sys::pool::{Pin, Pool};
use onrush_sys::thread::pin_to;
use onrush_sys::wake::Waker;
use thiserror::Error;
use tokio::time::timeout;

use crate::faults::Faults;
use crate::store::{self, Source};
use admission::{Demand, LOAD_UNLIMITED};
use bell::Bell;
use clock::Clock;
pub(crate) use moving::Shift;
use phase::Phase;
use shared::{State, StreamShared, WorkerShared};
use worker::{Worker, signed};

/// Commands that may wait for one engine. A stream has at most a few under way.
pub const COMMANDS_MAX: usize = 8192;

/// How often an engine with many commands to take is looked at again, and how long it is waited for.
const READY_EVERY: Duration = Duration::from_millis(1);
const READY_TIME_MAX: Duration = Duration::from_secs(10);

/// What one stream may send in the long run, in bit/s, so that a file whose clock runs wild does not keep the
/// others waiting. Two chunks a tick it may send in any case.
pub const STREAM_RATE_MAX: u64 = 1_000_000_000;

/// What a stream takes here, for the account of what a session does: what both sides see, the worker's own, and its
/// places on the wheel and among the numbers.
#[cfg(test)]
pub(crate) const BYTES_PER_STREAM: usize =
    size_of::<StreamShared>() + worker::BYTES_PER_STREAM + 2 * size_of::<u32>();

/// Opens a data path on the thread that will use it. Tests put paths of their own here.
pub type OpenPath =
    dyn Fn(PathName, &Arc<Pool>, &Arc<Waker>) -> Result<Box<dyn Path>, PathError> + Send + Sync;

/// How the engines run.
#[derive(Clone)]
pub struct EngineConfig {
    /// One engine on each of these processors.
    pub cores: Vec<usize>,
    /// Streams of one engine.
    pub streams_max: u32,
    /// How much of a stream is handed over together; a tick is a quarter of it.
    pub burst: Duration,
    /// When within a burst's time streams begin.
    pub phase: Phase,
    /// How busy an engine may be with the streams that it has taken, of 1000; see [`admission`].
    pub load_max_permille: u64,
    /// The best path to try; worse ones follow where it is not available.
    pub path: PathName,
    /// Opens a path.
    pub open_path: Arc<OpenPath>,
    /// What time it is. Tests put a clock of their own here.
    pub clock: Clock,
    /// How far a stream may fall behind before its clock is moved instead of catching up.
    pub lag_max: Duration,
    /// How long a stream waits for its first chunk: for a place in the cache, or for the disk.
    pub first_chunk_time_max: Duration,
    /// How long the kernel may refuse all of a stream's packets before the stream ends.
    pub refused_time_max: Duration,
    /// Trains of one stream that the kernel may hold at once. A device that sits on a client's packets stops
    /// that client, and takes a small part of [`path::IN_FLIGHT_TRAINS_MAX`] from the others.
    pub trains_per_stream_max: u32,
    /// Planted faults.
    pub faults: Faults,
}

/// All engines of a server.
#[derive(Debug)]
pub struct Engines {
    engines: Vec<Engine>,
    store: Arc<store::Shared>,
    bell: Arc<Bell>,
    first_chunk_time_max: Duration,
    burst_ns: u64,
}

#[derive(Debug)]
struct Engine {
    remote: Arc<Remote>,
    thread: Option<JoinHandle<()>>,
}

/// What control knows of one engine.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) commands: ArrayQueue<Command>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) shared: WorkerShared,
    /// Stream numbers that are free. The worker never takes this lock: it gives numbers back through
    /// `closed`, and control moves them over.
    free: Mutex<Vec<u32>>,
    pub(crate) closed: ArrayQueue<u32>,
    streams: AtomicUsize,
    streams_max: u32,
    phase: Phase,
    pub(crate) clock: Clock,
    tick_ns: u64,
    /// How busy the engine may be, of 1000.
    pub(crate) load_max_permille: u64,
    /// The worker is gone, and nobody takes commands any more.
    stopped: AtomicBool,
}

/// What control tells a worker.
#[derive(Debug)]
pub(crate) enum Command {
    Open {
        stream: u32,
        shared: Arc<StreamShared>,
        socket: UdpSocket,
        demand: Demand,
    },
    /// With the first chunk, if it was prepared.
    Play {
        stream: u32,
        play: Play,
        pin: Option<Pin>,
    },
    Pause {
        stream: u32,
    },
    Close {
        stream: u32,
    },
    /// To another engine.
    Leave {
        stream: u32,
        leaving: Box<moving::Leaving>,
    },
    Stop,
}

/// From where to where to play, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) from: u64,
    pub(crate) stop_before: u64,
    /// When the first packet is due.
    pub(crate) start_ns: u64,
    /// When media time 0 would have been; see [`StreamShared::epoch_ns`].
    pub(crate) epoch_ns: i64,
}

/// What a stream sends, and through what.
#[derive(Debug)]
pub struct StreamSpec {
    /// The file, cut to fit the path MTU.
    pub source: Arc<Source>,
    /// The RTP socket, bound and connected to the client. The engine sets its options and closes it.
    pub socket: UdpSocket,
}

/// Why no stream could be opened or played.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// `Limits::sessions_max` streams exist on every engine.
    #[error("all {streams_max} streams are taken; raise --sessions-max")]
    Full {
        /// The limit.
        streams_max: u32,
    },
    /// With one stream more, those that play would be late.
    #[error(
        "the engine would be busy for {} % of the time, of {} % that it may (now it is for {} %, and a train costs \
         {train_ns} ns); add processors (--cores), lengthen \
         bursts (--burst) or raise --load-max",
        load_permille / 10, load_max_permille / 10, measured_permille / 10
    )]
    Overload {
        /// How busy it would be.
        load_permille: u64,
        /// How busy it may be.
        load_max_permille: u64,
        /// How busy it was in the last second.
        measured_permille: u64,
        /// What a train was reckoned to cost, in ns.
        train_ns: u64,
    },
    /// Streams have been late for seconds, whatever the reason.
    #[error("the streams that play are late; try again")]
    Late,
    /// The cache can not hold the chunks that one more reader needs.
    #[error("the packet cache ({cache_bytes} bytes) is full of chunks in use; raise --cache")]
    CacheFull {
        /// The cache's size.
        cache_bytes: usize,
    },
    /// The file was truncated, replaced or can not be read.
    #[error("{reason}")]
    Media {
        /// What happened to it.
        reason: String,
    },
    /// The file could not be read in time.
    #[error("the disk has not given the file's packets in time; try again")]
    Slow,
    /// More commands wait for the engine than it has taken yet.
    #[error("the engine is busy: {COMMANDS_MAX} commands wait for it; try again")]
    Busy,
    /// No engine is left: each has panicked, and said so in the log.
    #[error("the engine has stopped because of a bug of the server; see its log, and restart it")]
    Stopped,
    /// The socket does not take the path's options.
    #[error("the RTP socket can not be set up: {0}")]
    Socket(#[source] io::Error),
}

/// Why the engines did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineStartError {
    /// The processor is not there, or not for this process.
    #[error("can not run on processor {core}: {source}; see the allowed ones with `taskset -p $$`")]
    Core {
        /// The processor asked for.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// No thread or no event descriptor is to be had.
    #[error("can not start an engine: {0}")]
    Thread(#[source] io::Error),
}

/// Why a stream stopped by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EndReason {
    /// All that was asked for was played.
    EndOfMedia,
    /// The file was truncated, replaced or can not be read; the text says which.
    Media(String),
    /// The kernel refused this client's packets for too long; the text says what it said.
    Send(String),
    /// The engine has stopped.
    Stopped,
}

/// A stream's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct StreamSnapshot {
    /// RTP packets handed to the kernel.
    pub packets: u64,
    /// Their bytes, RTP headers included.
    pub bytes: u64,
    /// Packets the kernel refused.
    pub packets_refused: u64,
    /// Bursts that waited for a chunk that was not built in time.
    pub underruns: u64,
    /// The plan's number of the next RTP packet to send.
    pub next_packet: u64,
    /// Media time that is due now, in ns, while playing; that of the next packet otherwise.
    pub position_ns: u64,
    /// Mean lateness of the bursts in ns: when they left minus when they were due; negative is early.
    pub lateness_mean_ns: i64,
    /// The latest burst's lateness in ns; negative is early, 0 before the first.
    pub lateness_max_ns: i64,
}

/// One client's stream, as control sees it. Dropping it stops the sending and frees all it held.
#[derive(Debug)]
pub struct Stream {
    /// The engine that has it; none while it moves.
    seat: Mutex<Option<Seat>>,
    store: Arc<store::Shared>,
    shared: Arc<StreamShared>,
    demand: Demand,
    first_chunk_time_max: Duration,
    /// The first packet of the next play, and the chunk that holds it.
    prepared: Mutex<Option<(u64, Pin)>>,
}

/// A stream's engine, and its number there.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    remote: Arc<Remote>,
    number: u32,
}

impl Engines {
    /// Starts one engine on each core. `demoted` is told of every path that is not available, and why.
    pub fn start(
        config: &EngineConfig,
        store: &Arc<store::Shared>,
        mut demoted: impl FnMut(PathName, PathError),
    ) -> Result<Self, EngineStartError> {
        let mut engines = Self {
            engines: Vec::new(),
            store: Arc::clone(store),
            bell: Arc::default(),
            first_chunk_time_max: config.first_chunk_time_max,
            burst_ns: worker::nanos(config.burst),
        };
        for &core in &config.cores {
            let waker = Arc::new(Waker::new().map_err(EngineStartError::Thread)?);
            let remote = Arc::new(Remote::new(config, waker));
            let (send, receive) = mpsc::channel();
            let thread = {
                let (config, store, remote) =
                    (config.clone(), Arc::clone(store), Arc::clone(&remote));
                std::thread::Builder::new()
                    .name(format!("onrush-send-{core}"))
                    .spawn(move || {
                        if let Err(error) = pin_to(core) {
                            drop(send.send(Started::Failed(error)));
                            return;
                        }
                        let worker = Worker::open(&config, store, remote, |name, error| {
                            drop(send.send(Started::Demoted(name, error)));
                        });
                        drop(send);
                        worker.run();
                    })
                    .map_err(EngineStartError::Thread)?
            };
            engines.engines.push(Engine {
                remote,
                thread: Some(thread),
            });
            for message in receive {
                match message {
                    Started::Demoted(name, error) => demoted(name, error),
                    Started::Failed(source) => return Err(EngineStartError::Core { core, source }),
                }
            }
        }
        Ok(engines)
    }

    /// Opens a stream on the engine that has promised least; it is paused at packet 0.
    pub fn open(&self, spec: StreamSpec) -> Result<Stream, EngineError> {
        let running = self.engines.iter().filter(|e| !e.remote.has_stopped());
        let least = running.min_by_key(|e| e.remote.shared.admission.promised_ps());
        let remote = &least.ok_or(EngineError::Stopped)?.remote;
        let StreamSpec { source, socket } = spec;
        let stride = u16::try_from(source.plan().stride()).expect("a packet is below 64 KiB");
        let demand = Demand::of(source.plan(), stride, self.burst_ns);
        // As with the processor, whoever takes all takes these too.
        if remote.load_max_permille != LOAD_UNLIMITED && self.store.is_nearly_full() {
            return Err(cache_full(self.store.pool()));
        }
        Self::admit(remote, demand)?;
        let opened = self.open_on(remote, source, socket, stride, demand);
        if opened.is_err() {
            remote.shared.admission.give_back(demand);
        }
        opened
    }

    fn admit(remote: &Remote, demand: Demand) -> Result<(), EngineError> {
        let (admission, load_max_permille) = (&remote.shared.admission, remote.load_max_permille);
        match admission.take(demand, load_max_permille) {
            Ok(_) => Ok(()),
            Err(load_permille) if load_permille > load_max_permille => Err(EngineError::Overload {
                load_permille,
                load_max_permille,
                measured_permille: admission.load_measured(),
                train_ns: admission.train_ns(),
            }),
            Err(_) => Err(EngineError::Late),
        }
    }

    fn open_on(
        &self,
        remote: &Arc<Remote>,
        source: Arc<Source>,
        socket: UdpSocket,
        stride: u16,
        demand: Demand,
    ) -> Result<Stream, EngineError> {
        path::prepare_socket(remote.shared.path(), socket.as_raw_fd(), stride)
            .map_err(EngineError::Socket)?;
        let number = remote.take_number()?;
        let shared = Arc::new(StreamShared::new(source, stride, Arc::clone(&self.bell)));
        let open = Command::Open {
            stream: number,
            shared: Arc::clone(&shared),
            socket,
            demand,
        };
        if let Err(error) = remote.send(open) {
            remote.give_back(number);
            return Err(error);
        }
        // Asked after the command was given: either the worker has seen it in its last moment, or this
        // sees that the worker is gone.
        if remote.has_stopped() {
            return Err(EngineError::Stopped);
        }
        let (remote, store) = (Arc::clone(remote), Arc::clone(&self.store));
        Ok(Stream {
            seat: Mutex::new(Some(Seat { remote, number })),
            store,
            shared,
            demand,
            first_chunk_time_max: self.first_chunk_time_max,
            prepared: Mutex::new(None),
        })
    }

    /// The name of the data path in use. Where the engines differ, the worst.
    #[must_use]
    pub fn path(&self) -> PathName {
        let paths = self.engines.iter().map(|e| e.remote.shared.path());
        paths.max().expect("there is an engine")
    }

    /// Waits, not for ever, until every engine has room for the commands of one more client.
    pub async fn ready(&self) {
        let is_ready =
            |remote: &Remote| remote.commands.len() < COMMANDS_MAX / 2 || remote.has_stopped();
        let ready = async {
            while !self.engines.iter().all(|engine| is_ready(&engine.remote)) {
                tokio::time::sleep(READY_EVERY).await;
            }
        };
        drop(timeout(READY_TIME_MAX, ready).await);
    }

    /// Tells which streams stop by themselves, of those that [belong](Stream::belongs_to) to anybody.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// How many streams need no descriptor; see [`WorkerShared::places`].
    #[must_use]
    pub fn places(&self) -> usize {
        let places = self.counters().map(|shared| &shared.places);
        places
            .map(|places| places.load(Ordering::Relaxed) as usize)
            .sum()
    }

    /// What each engine has done so far.
    pub fn counters(&self) -> impl Iterator<Item = &WorkerShared> {
        self.engines.iter().map(|e| &e.remote.shared)
    }

    /// What is known of each engine, for those who look on as long as they like.
    pub(crate) fn remotes(&self) -> Vec<Arc<Remote>> {
        self.engines
            .iter()
            .map(|engine| Arc::clone(&engine.remote))
            .collect()
    }

    /// Streams that exist.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.engines
            .iter()
            .map(|e| e.remote.streams.load(Ordering::Relaxed))
            .sum()
    }
}

enum Started {
    Demoted(PathName, PathError),
    Failed(io::Error),
}

impl Drop for Engines {
    fn drop(&mut self) {
        for engine in &self.engines {
            // A full queue empties within a tick, unless nobody empties it any more.
            while engine.remote.send(Command::Stop).is_err() {
                if engine.remote.has_stopped() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        for engine in &mut self.engines {
            if let Some(thread) = engine.thread.take() {
                // A worker that panicked has said so on its own; there is nothing to add.
                drop(thread.join());
            }
        }
    }
}

impl Stream {
    /// Makes sure that what `from` needs is in the cache, so that [`Self::play`] starts without a wait, and
    /// that a file that can not be read or a cache that is full is known before anything is promised.
    ///
    /// It holds the first chunk, no more. A reader has the next one, too, while it sends from one, if the cache
    /// has room; if not, it gives the one back that it has sent and waits for the next, which makes a pause at each
    /// chunk's end but loses nothing.
    pub async fn prepare(&self, from: u64) -> Result<(), EngineError> {
        let source = &self.shared.source;
        if from >= source.plan().rtp_packets() {
            return Ok(());
        }
        let chunk = source.chunk_of(from);
        let Some(pin) = self
            .store
            .fetch(source, chunk, self.first_chunk_time_max)
            .await
        else {
            let pool = self.store.pool();
            let reason = source.failure().map(str::to_owned);
            return Err(match reason {
                Some(reason) => EngineError::Media { reason },
                None if pool.chunks_in_use() == pool.chunks() => cache_full(pool),
                None => EngineError::Slow,
            });
        };
        self.hold(from, Some(pin));
        Ok(())
    }

    /// Plays from RTP packet `from` of the plan; its burst is due `delay` from now. `stop_before` ends the
    /// stream before that packet. A stream that plays already goes on from the new place at once.
    pub fn play(
        &self,
        from: u64,
        stop_before: Option<u64>,
        delay: Duration,
    ) -> Result<(), EngineError> {
        let plan = self.shared.source.plan();
        let stop_before = stop_before.unwrap_or(u64::MAX).min(plan.rtp_packets());
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let Seat { remote, number } = self.seat().ok_or(EngineError::Busy)?;
        let from_ns = remote.clock.now_ns().saturating_add(delay_ns);
        let start_ns = remote.phase.start_ns(from_ns, number, remote.tick_ns);
        let play = Play {
            from,
            stop_before,
            start_ns,
            epoch_ns: signed(start_ns).saturating_sub(signed(plan.due_ns(from))),
        };
        let pin = self.prepared(from);
        self.shared.ask_play(&play);
        let busy = || {
            self.shared.unask_play();
            Err(EngineError::Busy)
        };
        match remote.push(Command::Play {
            stream: number,
            play,
            pin,
        }) {
            Ok(()) => Ok(()),
            Err(Command::Play { pin, .. }) => {
                self.hold(from, pin);
                busy()
            }
            Err(_) => busy(),
        }
    }

    /// Stops sending, and says the plan's number of the packet that would have been next.
    pub async fn pause(&self) -> Result<u64, EngineError> {
        loop {
            let changed = self.shared.changed.notified();
            if self.shared.state() != State::Playing {
                return Ok(self.shared.next_packet.load(Ordering::Relaxed));
            }
            let Seat { remote, number } = self.seat().ok_or(EngineError::Busy)?;
            remote.send(Command::Pause { stream: number })?;
            changed.await;
        }
    }

    /// Waits until the stream stops by itself. Cancel-safe; answers at once if it has and was not played
    /// since.
    pub async fn ended(&self) -> EndReason {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(reason) = self.shared.end_reason() {
                return reason;
            }
            changed.await;
        }
    }

    /// Why the stream has stopped by itself, if it has and was not played since.
    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.shared.end_reason()
    }

    /// From now on [`Engines::bell`] says this number when the stream stops by itself.
    pub(crate) fn belongs_to(&self, owner: u64) {
        self.shared.owner.store(owner, Ordering::Relaxed);
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> StreamSnapshot {
        let clock = self.seat().map(|seat| seat.remote.clock.clone());
        self.shared.snapshot(clock.unwrap_or_default().now_ns())
    }

    /// What it sends.
    #[must_use]
    pub fn source(&self) -> &Arc<Source> {
        &self.shared.source
    }

    fn seat(&self) -> Option<Seat> {
        let seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        seat.clone()
    }

    fn set_seat(&self, seat: Option<Seat>) {
        *self.seat.lock().unwrap_or_else(PoisonError::into_inner) = seat;
    }

    /// Keeps the chunk that packet `from` needs, in place of one kept before.
    fn hold(&self, from: u64, pin: Option<Pin>) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *prepared, pin.map(|pin| (from, pin)));
        if let Some((_, pin)) = old {
            self.store.pool().unpin(pin);
        }
    }

    /// The chunk kept for packet `from`, if it is that one.
    fn prepared(&self, from: u64) -> Option<Pin> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared
            .take_if(|(kept, _)| *kept == from)
            .map(|(_, pin)| pin)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hold(0, None);
        let Some(Seat { remote, number }) = self.seat() else {
            return;
        };
        remote.shared.admission.give_back(self.demand);
        let mut close = Command::Close { stream: number };
        // A full queue empties within a tick, unless nobody empties it any more.
        while !remote.has_stopped() {
            match remote.push(close) {
                Ok(()) => return,
                Err(unsent) => close = unsent,
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Remote {
    fn new(config: &EngineConfig, waker: Arc<Waker>) -> Self {
        let streams_max = config.streams_max;
        Self {
            commands: ArrayQueue::new(COMMANDS_MAX),
            waker,
            shared: WorkerShared::default(),
            free: Mutex::new((0..streams_max).rev().collect()),
            closed: ArrayQueue::new((streams_max as usize).max(1)),
            streams: AtomicUsize::new(0),
            streams_max,
            phase: config.phase,
            clock: config.clock.clone(),
            tick_ns: worker::tick_ns(config),
            load_max_permille: config.load_max_permille,
            stopped: AtomicBool::new(false),
        }
    }

    /// For the worker: it takes no more commands.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Streams that exist.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn send(&self, command: Command) -> Result<(), EngineError> {
        self.push(command).map_err(|_| EngineError::Busy)
    }

    /// Gives the command back if the queue is full.
    fn push(&self, command: Command) -> Result<(), Command> {
        let pushed = self.commands.push(command);
        self.waker.wake();
        pushed
    }

    fn take_number(&self) -> Result<u32, EngineError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(std::iter::from_fn(|| self.closed.pop()));
        let number = free.pop().ok_or(EngineError::Full {
            streams_max: self.streams_max,
        })?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// For a number whose stream the worker never saw.
    fn give_back(&self, number: u32) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(number);
    }

    /// For the worker: the stream is gone.
    pub(crate) fn closed(&self, number: u32) {
        self.closed
            .push(number)
            .expect("there are as many places as numbers");
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

fn cache_full(pool: &Pool) -> EngineError {
    EngineError::CacheFull {
        cache_bytes: pool.area().bytes_total(),
    }
}

impl std::fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineConfig")
            .field("cores", &self.cores)
            .field("streams_max", &self.streams_max)
            .field("burst", &self.burst)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cores: onrush_sys::thread::allowed_cores()
                .last()
                .copied()
                .into_iter()
                .collect(),
            streams_max: 16_384,
            burst: Duration::from_millis(20),
            phase: Phase::default(),
            load_max_permille: 900,
            path: PathName::UringRegisteredZc,
            open_path: Arc::new(path::open),
            clock: Clock::default(),
            lag_max: Duration::from_millis(500),
            first_chunk_time_max: Duration::from_secs(10),
            refused_time_max: Duration::from_secs(10),
            trains_per_stream_max: 1024,
            faults: Faults::default(),
        }
    }
}

#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod test_paths;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod time_tests;
