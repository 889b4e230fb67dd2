//! What control knows of an engine, and how it tells it what to do.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use onrush_sys::pool::Pin;
use onrush_sys::wake::Waker;
use onrush_wire::pace::MediaClock;
use onrush_wire::rtp::Numbering;

use super::clock::Clock;
use super::connection_shared::{ConnectionShared, Message};
use super::moving::PendingMove;
use super::numbers::Numbers;
use super::phase::Phase;
use super::shared::{StreamShared, WorkerShared};
use super::{EngineConfig, EngineError, worker};
use crate::tls::record::Sealer;

/// Commands that may wait for one engine. A stream has at most a few under way; half of them may be
/// messages of live channels, whose viewers wait beyond that.
pub const COMMANDS_MAX: usize = 8192;

/// What control knows of one engine.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) commands: ArrayQueue<Command>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) shared: WorkerShared,
    pub(crate) streams: Numbers,
    pub(crate) connections: Numbers,
    pub(super) streams_max: u32,
    pub(super) phase: Phase,
    pub(crate) clock: Clock,
    pub(super) tick_ns: u64,
    /// How long a stream waits for its first chunk.
    pub(super) first_chunk_time_max: Duration,
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
        outlet: Outlet,
    },
    /// With the first chunk, if it was prepared.
    Play {
        stream: u32,
        play: Play,
        pin: Option<Pin>,
    },
    /// To send what `shared` says from now on, once it plays again: it must not play now.
    ChangeSource {
        stream: u32,
        shared: Arc<StreamShared>,
    },
    Pause {
        stream: u32,
    },
    /// To end what plays before that packet, or at once if it has come so far.
    StopBefore {
        stream: u32,
        packet: u64,
    },
    Close {
        stream: u32,
    },
    /// To another engine.
    Leave {
        stream: u32,
        leaving: Box<PendingMove>,
    },
    OpenConnection {
        connection: u32,
        shared: Arc<ConnectionShared>,
        socket: Arc<OwnedFd>,
        /// What all that leaves on it is sealed with, if it is.
        sealer: Option<Box<Sealer>>,
    },
    /// To be sent on a connection, whole.
    Message {
        connection: u32,
        message: Message,
    },
    CloseConnection {
        connection: u32,
    },
    Stop,
}

/// Where a stream's packets leave.
#[derive(Debug)]
pub(crate) enum Outlet {
    /// As datagrams.
    Socket(OwnedFd),
    /// As frames of a connection.
    Interleaved(Framing),
}

/// On which of an engine's connections frames leave, and what they are marked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framing {
    pub(crate) connection: u32,
    pub(crate) channel: u8,
}

/// From where to where to play, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) from: u64,
    pub(crate) stop_before: u64,
    /// When the first packet is due.
    pub(crate) start_ns: u64,
    /// When media is due; see [`StreamShared::lines`].
    pub(crate) line: MediaClock,
    /// How much of the movements of a clock that its tracks share is in `line`; see
    /// [`TrackClock`].
    ///
    /// [`TrackClock`]: super::shared::TrackClock
    pub(crate) moved_ns: i64,
    /// How control has foretold that its packets are numbered. The worker finds it again when it
    /// takes the play up, because only then it is sure which packet was the last before.
    pub(crate) numbering: Numbering,
}

impl Remote {
    pub(super) fn new(config: &EngineConfig, waker: Arc<Waker>) -> Self {
        let streams_max = config.streams_max;
        Self {
            commands: ArrayQueue::new(COMMANDS_MAX),
            waker,
            shared: WorkerShared::default(),
            streams: Numbers::below(streams_max),
            connections: Numbers::below(streams_max),
            streams_max,
            phase: config.phase,
            clock: config.clock.clone(),
            tick_ns: worker::tick_ns(config),
            first_chunk_time_max: config.first_chunk_time_max,
            load_max_permille: config.load_max_permille,
            stopped: AtomicBool::new(false),
        }
    }

    /// For the worker: it takes no more commands.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub(super) fn send(&self, command: Command) -> Result<(), EngineError> {
        self.push(command).map_err(|_| EngineError::Busy)
    }

    /// Gives the command back if the queue is full.
    pub(super) fn push(&self, command: Command) -> Result<(), Command> {
        let pushed = self.commands.push(command);
        self.waker.wake();
        pushed
    }

    /// Gives a command however long that takes. A full queue empties within a tick, unless nobody
    /// empties it any more.
    pub(super) fn push_surely(&self, mut command: Command) {
        while !self.has_stopped() {
            match self.push(command) {
                Ok(()) => return,
                Err(unsent) => command = unsent,
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub(super) fn take_number(&self) -> Result<u32, EngineError> {
        self.streams.take().ok_or(EngineError::Full {
            streams_max: self.streams_max,
        })
    }
}
