//! What control knows of an engine, and how it tells it what to do.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_queue::ArrayQueue;
use onrush_sys::pool::Pin;
use onrush_sys::wake::Waker;
use onrush_wire::pace::MediaClock;
use onrush_wire::rtp::Numbering;

use super::clock::Clock;
use super::moving::PendingMove;
use super::phase::Phase;
use super::shared::{StreamShared, WorkerShared};
use super::{EngineConfig, EngineError, worker};

/// Commands that may wait for one engine. A stream has at most a few under way.
pub const COMMANDS_MAX: usize = 8192;

/// What control knows of one engine.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) commands: ArrayQueue<Command>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) shared: WorkerShared,
    /// Stream numbers that are free. The worker never takes this lock: it gives numbers back
    /// through `closed`, and control moves them over.
    free: Mutex<Vec<u32>>,
    pub(crate) closed: ArrayQueue<u32>,
    streams: AtomicUsize,
    pub(super) streams_max: u32,
    pub(super) phase: Phase,
    pub(crate) clock: Clock,
    pub(super) tick_ns: u64,
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
        socket: OwnedFd,
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
    Stop,
}

/// From where to where to play, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) from: u64,
    pub(crate) stop_before: u64,
    /// When the first packet is due.
    pub(crate) start_ns: u64,
    /// When media is due; see [`StreamShared::line`].
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

    pub(super) fn take_number(&self) -> Result<u32, EngineError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(std::iter::from_fn(|| self.closed.pop()));
        let number = free.pop().ok_or(EngineError::Full {
            streams_max: self.streams_max,
        })?;
        self.streams.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// For a number whose stream the worker never saw.
    pub(super) fn give_back(&self, number: u32) {
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
