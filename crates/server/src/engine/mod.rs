//! One pinned thread a core that turns all that is due into one batch of sends.
//!
//! Control opens a [`Stream`] and tells it to play, pause or go; the worker of its core does the
//! rest. Commands go through a bounded queue, counters and states come back as atomics
//! ([`shared`]); a lock is shared only by who tells of a change of state and who waits for it. A
//! worker wakes at ticks of a quarter burst, takes what is due within the tick from all of its
//! streams, and hands it to the kernel in one crossing, in which it also sleeps until the next
//! tick.

pub mod admission;
pub mod clock;
mod connection_shared;
mod error;
mod flights;
pub mod interleaved;
mod moving;
pub mod numbering;
mod numbers;
pub mod phase;
mod reader;
mod remote;
pub mod shared;
mod shared_clock;
mod srtp;
mod stream;
pub mod stream_end;
mod trains;
mod worker;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use onrush_sys::path::{self, Path, PathError, PathName};
use onrush_sys::pool::Pool;
use onrush_sys::thread::pin_to;
use onrush_sys::wake::Waker;
use onrush_wire::rtp::Numbering;
use tokio::time::timeout;

use crate::experiments::Faults;
use crate::store::{self, Source};
use admission::{Demand, LOAD_UNLIMITED};
use clock::Clock;
pub use error::{EngineError, EngineStartError};
pub(crate) use interleaved::Unwoken;
pub use interleaved::{Destination, InterleavedConnection};
pub(crate) use moving::Shift;
use numbering::RtpHeaders;
use numbers::Numbers;
use phase::Phase;
pub use remote::COMMANDS_MAX;
pub(crate) use remote::{Command, Framing, Outlet, Play, Remote};
use shared::{StreamShared, WorkerShared};
pub use srtp::StreamSrtp;
pub(crate) use stream::EngineSlot;
use stream::cache_full;
pub use stream::{EndReason, PlayMoment, Stream, StreamSnapshot};
use stream_end::StreamEndQueue;
use worker::Worker;

/// How often an engine with many commands to take is looked at again, and how long it is waited
/// for.
const READY_EVERY: Duration = Duration::from_millis(1);
const READY_TIME_MAX: Duration = Duration::from_secs(10);

/// What one stream may send in the long run, in bit/s, so that a file whose clock runs wild does
/// not keep the others waiting. Two chunks a tick it may send in any case.
pub const STREAM_RATE_MAX: u64 = 1_000_000_000;

/// How long the kernel may hold a train of a stream that is paused, before that is said all the
/// same: a device that sits on a packet does not keep a client from its answer.
pub const PAUSE_TIME_MAX: Duration = Duration::from_secs(1);

/// What a stream takes here, for the account of what a session does: what both sides see, the
/// worker's own, and its place on the wheel.
#[cfg(test)]
pub(crate) const BYTES_PER_STREAM: usize = size_of::<StreamShared>() + worker::BYTES_PER_STREAM;

/// Opens a data path on the thread that will use it. Tests put paths of their own here.
pub type OpenPath =
    dyn Fn(PathName, &Arc<Pool>, &Arc<Waker>) -> Result<Box<dyn Path>, PathError> + Send + Sync;

/// How the engines run.
#[derive(Clone)]
pub struct EngineConfig {
    /// One engine on each of these processors.
    pub cores: Vec<usize>,
    /// Streams of one engine. Memory for them is taken as they come.
    pub streams_max: u32,
    /// Of their sockets, so many need no descriptor where the path has a table for them; that takes
    /// memory from the start.
    pub files_max: u32,
    /// How much of a stream is handed over together; a tick is a quarter of it.
    pub burst: Duration,
    /// When within a burst's time streams begin.
    pub phase: Phase,
    /// How busy an engine may be with the streams that it has taken, of 1000; see [`admission`].
    pub load_max_permille: u64,
    /// Whose headers packets have.
    pub headers: RtpHeaders,
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
    /// Trains of one stream that the kernel may hold at once. A device that sits on a client's
    /// packets stops that client, and takes a small part of [`path::IN_FLIGHT_TRAINS_MAX`] from the
    /// others.
    pub trains_per_stream_max: u32,
    /// Bytes of packets on one connection that its client has not acknowledged; more wait.
    pub unacknowledged_bytes_max: usize,
    /// How long a client may take nothing of what waits for it on its connection.
    pub stall_time_max: Duration,
    /// Planted faults.
    pub faults: Faults,
}

/// All engines of a server.
#[derive(Debug)]
pub struct Engines {
    engines: Vec<Engine>,
    store: Arc<store::Shared>,
    ends: Arc<StreamEndQueue>,
    burst_ns: u64,
    headers: RtpHeaders,
}

#[derive(Debug)]
struct Engine {
    remote: Arc<Remote>,
    thread: Option<JoinHandle<()>>,
}

/// What a stream sends, and through what.
#[derive(Debug)]
pub struct StreamSpec {
    /// The file, cut to fit the path MTU.
    pub source: Arc<Source>,
    /// Where it sends.
    pub to: Destination,
}

impl Engines {
    /// Starts one engine on each core. `demoted` is told of every path that is not available, and
    /// why.
    ///
    /// # Errors
    ///
    /// See [`EngineStartError`]; then those that were started are stopped.
    pub fn start(
        config: &EngineConfig,
        store: &Arc<store::Shared>,
        mut demoted: impl FnMut(PathName, PathError),
    ) -> Result<Self, EngineStartError> {
        let mut engines = Self {
            engines: Vec::new(),
            store: Arc::clone(store),
            ends: Arc::default(),
            burst_ns: worker::nanos(config.burst),
            headers: config.headers,
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

    /// Opens a stream on the engine that has least to do; it is paused at packet 0.
    ///
    /// # Errors
    ///
    /// [`EngineError::Overload`], [`EngineError::Late`], [`EngineError::CacheFull`] or
    /// [`EngineError::Full`] if it would cost those that play; [`EngineError::Socket`] if the
    /// socket cannot be set up; [`EngineError::Busy`] or [`EngineError::Stopped`] if no engine
    /// takes it.
    pub fn open(&self, spec: StreamSpec) -> Result<Stream, EngineError> {
        let StreamSpec { source, to } = spec;
        let remote = &Arc::clone(match &to {
            Destination::Socket(_) | Destination::Encrypted { .. } => self.least_busy()?,
            Destination::Interleaved { connection, .. } => connection.remote(),
        });
        let plan = source.plan();
        let segment_bytes = u16::try_from(source.image_bytes_max());
        let mut segment_bytes = segment_bytes.expect("a packet is below 64 KiB");
        let (to, srtp) = match to {
            Destination::Encrypted { socket, srtp } => (Destination::Socket(socket), Some(srtp)),
            to => (to, None),
        };
        segment_bytes = segment_bytes.saturating_add(srtp.as_ref().map_or(0, |it| it.tag_bytes()));
        let own = srtp
            .as_ref()
            .map(|srtp| srtp.numbering(source.origin().sequence));
        let numbering = match remote.shared.has_own_headers.load(Ordering::Relaxed) {
            // Its packets have the numbers that they are encrypted with.
            _ if source.film_key().is_some() => Numbering::default(),
            true => own.unwrap_or_else(|| self.headers.start()),
            false => own.unwrap_or_default(),
        };
        let demand = match numbering.is_shared() && matches!(to, Destination::Socket(_)) {
            true => Demand::of(&plan, self.burst_ns),
            false => Demand::of_own_headers(&plan, self.burst_ns),
        };
        // As with the processor, whoever takes all takes these too.
        if remote.load_max_permille != LOAD_UNLIMITED && self.store.is_nearly_full() {
            return Err(cache_full(self.store.pool()));
        }
        Self::admit(remote, demand)?;
        let mut shared = StreamShared::new(
            source,
            segment_bytes,
            numbering,
            demand,
            Arc::clone(&self.ends),
        );
        shared.srtp = srtp;
        let opened = self.open_on(remote, Arc::new(shared), to);
        if opened.is_err() {
            remote.shared.admission.give_back(demand);
        }
        opened
    }

    /// The engine, of those that run, that has least to do: it has promised least, and has least
    /// connections, which live channels may leave on without a promise.
    fn least_busy(&self) -> Result<&Arc<Remote>, EngineError> {
        let running = self.engines.iter().filter(|e| !e.remote.has_stopped());
        let least = running.min_by_key(|e| {
            let connections = e.remote.connections.taken();
            e.remote.shared.admission.expected_ps(connections)
        });
        Ok(&least.ok_or(EngineError::Stopped)?.remote)
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
        shared: Arc<StreamShared>,
        to: Destination,
    ) -> Result<Stream, EngineError> {
        let (outlet, connection) = match to {
            Destination::Encrypted { socket, .. } | Destination::Socket(socket) => {
                let (path, fd) = (remote.shared.path(), socket.as_raw_fd());
                path::prepare_socket(path, fd, shared.segment_bytes)
                    .map_err(EngineError::Socket)?;
                (Outlet::Socket(socket), None)
            }
            Destination::Interleaved {
                connection,
                channel,
            } => {
                let framing = Framing {
                    connection: connection.number(),
                    channel,
                };
                (Outlet::Interleaved(framing), Some(connection))
            }
        };
        let number = remote.take_number()?;
        let open = Command::Open {
            stream: number,
            shared: Arc::clone(&shared),
            outlet,
        };
        if let Err(error) = remote.send(open) {
            remote.streams.put_back(number);
            return Err(error);
        }
        // Asked after the command was given: either the worker has seen it in its last moment, or
        // this sees that the worker is gone.
        if remote.has_stopped() {
            return Err(EngineError::Stopped);
        }
        // What one engine has room for, all have.
        let can_renumber = remote.shared.has_own_headers.load(Ordering::Relaxed);
        let renumbers = can_renumber && self.headers != RtpHeaders::Shared;
        let (remote, store) = (Arc::clone(remote), Arc::clone(&self.store));
        Ok(Stream {
            slot: Mutex::new(Some(EngineSlot { remote, number })),
            store,
            shared: Mutex::new(shared),
            renumbers,
            connection,
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

    /// Tells which streams stop by themselves, of those that [belong](Stream::belongs_to) to
    /// anybody.
    pub(crate) fn ends(&self) -> &StreamEndQueue {
        &self.ends
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
        self.engines.iter().map(|e| e.remote.streams.taken()).sum()
    }

    /// Connections that streams leave on. Each takes a descriptor.
    #[must_use]
    pub fn connections(&self) -> usize {
        let connections = self.engines.iter().map(|e| &e.remote.connections);
        connections.map(Numbers::taken).sum()
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
            files_max: 16_384,
            burst: Duration::from_millis(20),
            phase: Phase::default(),
            load_max_permille: 900,
            headers: RtpHeaders::default(),
            path: PathName::UringRegisteredZc,
            open_path: Arc::new(path::open),
            clock: Clock::default(),
            lag_max: Duration::from_millis(500),
            first_chunk_time_max: Duration::from_secs(10),
            refused_time_max: Duration::from_secs(30),
            trains_per_stream_max: 1024,
            unacknowledged_bytes_max: 512 << 10,
            stall_time_max: Duration::from_secs(10),
            faults: Faults::default(),
        }
    }
}

#[cfg(test)]
pub(crate) use worker::testing;

#[cfg(test)]
mod counting_tests;
#[cfg(test)]
mod numbering_tests;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod speed_tests;
#[cfg(test)]
mod srtp_tests;
#[cfg(test)]
mod test_paths;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod time_tests;
