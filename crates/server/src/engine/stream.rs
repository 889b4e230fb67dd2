//! One client's stream, as control sees it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onrush_sys::pool::{Pin, Pool};

use super::EngineError;
use super::admission::Demand;
use super::remote::{Command, Play, Remote};
use super::shared::{State, StreamShared};
use super::worker::signed;
use crate::store::{self, Source};

/// Why a stream stopped by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EndReason {
    /// All that was asked for was played.
    EndOfMedia,
    /// The file was truncated, replaced or cannot be read; the text says which.
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
    pub(super) seat: Mutex<Option<Seat>>,
    pub(super) store: Arc<store::Shared>,
    pub(super) shared: Arc<StreamShared>,
    pub(super) demand: Demand,
    pub(super) first_chunk_time_max: Duration,
    /// The first packet of the next play, and the chunk that holds it.
    pub(super) prepared: Mutex<Option<(u64, Pin)>>,
}

/// A stream's engine, and its number there.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(super) remote: Arc<Remote>,
    pub(super) number: u32,
}

impl Stream {
    /// Makes sure that what `from` needs is in the cache, so that [`Self::play`] starts without a wait, and
    /// that a file that cannot be read or a cache that is full is known before anything is promised.
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

    /// From now on [`Engines::bell`](super::Engines::bell) says this number when the stream stops by itself.
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

    pub(super) fn seat(&self) -> Option<Seat> {
        let seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        seat.clone()
    }

    pub(super) fn set_seat(&self, seat: Option<Seat>) {
        *self.seat.lock().unwrap_or_else(PoisonError::into_inner) = seat;
    }

    /// Keeps the chunk that packet `from` needs, in place of one kept before.
    pub(super) fn hold(&self, from: u64, pin: Option<Pin>) {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *prepared, pin.map(|pin| (from, pin)));
        if let Some((_, pin)) = old {
            self.store.pool().unpin(pin);
        }
    }

    /// The chunk kept for packet `from`, if it is that one.
    pub(super) fn prepared(&self, from: u64) -> Option<Pin> {
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

pub(super) fn cache_full(pool: &Pool) -> EngineError {
    EngineError::CacheFull {
        cache_bytes: pool.area().bytes_total(),
    }
}
