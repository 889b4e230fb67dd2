//! One client's stream, as control sees it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onrush_sys::pool::{Pin, Pool};
use onrush_wire::pace::{MediaClock, Speed};
use onrush_wire::rtp::{Numbering, Position};

use super::admission::Demand;
use super::interleaved::InterleavedConnection;
use super::numbering::{changed, jumped, position_of};
use super::remote::{Command, Play, Remote};
use super::shared::{State, StreamShared, TrackClock};
use super::srtp::StreamSrtp;
use super::worker::signed;
use super::{EngineError, Engines};
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
    /// Their bytes, RTP headers included, padding (RFC 3550, section 5.1) not.
    pub bytes: u64,
    /// Packets the kernel refused.
    pub packets_refused: u64,
    /// Bursts that waited for a chunk that was not built in time.
    pub underruns: u64,
    /// The plan's number of the next RTP packet to send.
    pub next_packet: u64,
    /// How its packets are numbered.
    pub numbering: Numbering,
    /// Media time that is due now, in ns, while playing; that of the next packet otherwise.
    pub position_ns: u64,
    /// Mean lateness of the bursts in ns: when they left minus when they were due; negative is
    /// early.
    pub lateness_mean_ns: i64,
    /// The latest burst's lateness in ns; negative is early, 0 before the first.
    pub lateness_max_ns: i64,
}

/// One client's stream, as control sees it. Dropping it stops the sending and frees all it held.
#[derive(Debug)]
pub struct Stream {
    /// The engine that has it; none while it moves.
    pub(super) slot: Mutex<Option<EngineSlot>>,
    pub(super) store: Arc<store::Shared>,
    /// Another once it has changed its source.
    pub(super) shared: Mutex<Arc<StreamShared>>,
    /// Whether packets have numbers of its own after a jump.
    pub(super) renumbers: bool,
    /// What it leaves on, and which outlives it, if that is no socket of its own.
    pub(super) connection: Option<Arc<InterleavedConnection>>,
    /// The first packet of the next play, and the chunk that holds it.
    pub(super) prepared: Mutex<Option<(u64, Pin)>>,
}

/// When a play begins, and by which clock: one for all tracks of a session.
#[derive(Clone, Copy, Debug)]
pub struct PlayMoment {
    /// No packet leaves before.
    start_ns: u64,
    /// When media is due.
    line: MediaClock,
    /// How much of the movements of a shared clock is in it.
    moved_ns: i64,
}

impl PlayMoment {
    /// When media time 0 is due by its clock.
    #[must_use]
    pub fn zero_ns(&self) -> i64 {
        self.line.epoch_ns()
    }
}

/// A stream's engine, and its number there.
#[derive(Clone, Debug)]
pub(crate) struct EngineSlot {
    pub(super) remote: Arc<Remote>,
    pub(super) number: u32,
}

impl Stream {
    /// Makes sure that what `from` needs is in the cache, so that [`Self::play`] starts without a
    /// wait, and that a file that cannot be read or a cache that is full is known before anything
    /// is promised.
    ///
    /// It holds the first chunk, no more. A reader has the next one, too, while it sends from one,
    /// if the cache has room; if not, it gives the one back that it has sent and waits for the
    /// next, which makes a pause at each chunk's end but loses nothing.
    ///
    /// # Errors
    ///
    /// [`EngineError::Media`] if the file cannot be read there, [`EngineError::CacheFull`] if all
    /// chunks are in use, [`EngineError::Slow`] if it was not read in time, [`EngineError::Busy`]
    /// if it is moving.
    pub async fn prepare(&self, from: u64) -> Result<(), EngineError> {
        let source = &self.source();
        if from >= source.rtp_packets() {
            return Ok(());
        }
        let EngineSlot { remote, .. } = self.slot().ok_or(EngineError::Busy)?;
        let Some(pin) = self
            .store
            .fetch_for(source, from, remote.first_chunk_time_max)
            .await
        else {
            let pool = self.store.pool();
            let reason = source.failure();
            return Err(match reason {
                Some(reason) => EngineError::Media { reason },
                None if pool.chunks_in_use() == pool.chunks() => cache_full(pool),
                None => EngineError::Slow,
            });
        };
        self.hold(from, Some(pin));
        Ok(())
    }

    /// Plays from RTP packet `from` of the plan; its burst is due `delay` from now. `stop_before`
    /// ends the stream before that packet. At the end of a file that grows it waits for more. A
    /// stream that plays already goes on from the new place at once.
    ///
    /// # Errors
    ///
    /// [`EngineError::Busy`] if too many commands wait for the engine, or the stream is moving.
    pub fn play(
        &self,
        from: u64,
        stop_before: Option<u64>,
        delay: Duration,
    ) -> Result<(), EngineError> {
        let media_ns = self.source().plan().due_ns(from);
        let moment = self.moment(media_ns, delay, Speed::NORMAL)?;
        self.play_at(from, stop_before, moment)
    }

    /// The moment `delay` from now at which media time `media_ns` is to be due, and from which on
    /// media is delivered at `speed`, for this stream and for the tracks that are played with it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Busy`] while it changes its engine.
    pub fn moment(
        &self,
        media_ns: u64,
        delay: Duration,
        speed: Speed,
    ) -> Result<PlayMoment, EngineError> {
        self.moment_of(delay, |start_ns| {
            MediaClock::through(signed(start_ns), signed(media_ns), speed)
        })
    }

    /// A moment now, from which on media is delivered at `speed`, by the clock that the last play
    /// had until then: what was due is due, and what was not is not.
    ///
    /// # Errors
    ///
    /// As [`Self::moment`].
    pub fn moment_turned(&self, speed: Speed) -> Result<PlayMoment, EngineError> {
        let line = self.shared().line_asked();
        self.moment_of(Duration::ZERO, |start_ns| {
            line.turned(signed(start_ns), speed)
        })
    }

    fn moment_of(
        &self,
        delay: Duration,
        line: impl FnOnce(u64) -> MediaClock,
    ) -> Result<PlayMoment, EngineError> {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let EngineSlot { remote, number } = self.slot().ok_or(EngineError::Busy)?;
        let from_ns = remote.clock.now_ns().saturating_add(delay_ns);
        let start_ns = remote.phase.start_ns(from_ns, number, remote.tick_ns);
        let clock = self.clock();
        Ok(PlayMoment {
            start_ns,
            line: line(start_ns),
            moved_ns: clock.map_or(0, |clock| clock.moved_ns()),
        })
    }

    /// As [`Self::play`], by a clock that was set before. Nothing is sent before its moment.
    ///
    /// # Errors
    ///
    /// Those of [`Self::play`].
    pub fn play_at(
        &self,
        from: u64,
        stop_before: Option<u64>,
        moment: PlayMoment,
    ) -> Result<(), EngineError> {
        // Without an end it goes on as far as the file does.
        let stop_before = stop_before.unwrap_or(u64::MAX);
        let EngineSlot { remote, number } = self.slot().ok_or(EngineError::Busy)?;
        let numbering = self.numbering_from(from);
        if !numbering.is_shared() {
            self.ask_for_own_headers(&remote, moment.line.speed());
        }
        let play = Play {
            from,
            stop_before,
            start_ns: moment.start_ns,
            line: moment.line,
            moved_ns: moment.moved_ns,
            numbering,
        };
        let (pin, shared) = (self.prepared(from), self.shared());
        shared.ask_play(&play);
        let busy = || {
            shared.unask_play();
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

    /// If packet `from` of the plan is played next: the number that it will have, and the timestamp
    /// of what is due at `due_ns`, in the plan, whether or not a packet is. Exact while the stream
    /// does not play.
    #[must_use]
    pub fn position_from(&self, from: u64, due_ns: u64) -> Position {
        let source = &self.source();
        let plan = source.plan();
        let position = Position {
            timestamp: plan.timestamp_of(due_ns, source.origin()),
            ..position_of(source, &plan, from)
        };
        self.numbering_from(from).position(position)
    }

    /// Whether packets have numbers of its own after a jump. Those of encrypted images cannot: it
    /// [leaves](Self::leave_shared_images) these first.
    fn renumbers(&self, shared: &StreamShared) -> bool {
        let is_plain = shared.source.film_key().is_none();
        shared.srtp.is_some() || is_plain && self.renumbers
    }

    /// Its SSRC, if that is not its source's.
    #[must_use]
    pub fn own_ssrc(&self) -> Option<u32> {
        let (numbering, _) = self.shared().numbered_until();
        numbering.own_ssrc()
    }

    /// Whether it may play on from packet `from` of the encrypted images that it shares: numbers go
    /// on without a gap, or begin where a client knows without being told that they have not
    /// wrapped yet (RFC 3711, section 3.3.1). `false` if its source is another.
    #[must_use]
    pub fn may_share_from(&self, from: u64) -> bool {
        let shared = self.shared();
        let source = &shared.source;
        source.film_key().is_some()
            && match shared.has_played() {
                true => shared.numbered_until().1 == from,
                false => source.index_of(from) < 1 << 15,
            }
    }

    /// From its next play on it sends plain images of another source of its track, encrypted for
    /// its client alone, by `srtp`, and numbered anew under that SSRC. Stamps go on.
    ///
    /// # Errors
    ///
    /// As [`Self::change_source`].
    pub fn leave_shared_images(
        &self,
        source: &Arc<Source>,
        srtp: StreamSrtp,
        from: u64,
    ) -> Result<(), EngineError> {
        self.change(source, Some(Arc::new(srtp)), from)
    }

    fn numbering_from(&self, from: u64) -> Numbering {
        let shared = self.shared();
        let (numbering, end) = shared.numbered_until();
        match self.renumbers(&shared) && shared.has_played() {
            true => jumped(numbering, &shared.source, &shared.source.plan(), end, from),
            false => numbering,
        }
    }

    /// Sends from another source of the same track when it plays next, which does not play now, and
    /// from packet `from` of it, unless another is asked for then. Its packets are numbered and
    /// stamped on, and nothing of it is copied: what the sessions of that source share, it shares.
    ///
    /// # Errors
    ///
    /// [`EngineError::Busy`] if it plays or moves, or too many commands wait for the engine;
    /// [`EngineError::Media`] if the packets of `source` are larger than its socket was made ready
    /// for.
    pub fn change_source(&self, source: &Arc<Source>, from: u64) -> Result<(), EngineError> {
        match Arc::ptr_eq(&self.shared().source, source) {
            true => Ok(()),
            false => self.change(source, None, from),
        }
    }

    fn change(
        &self,
        source: &Arc<Source>,
        srtp: Option<Arc<StreamSrtp>>,
        from: u64,
    ) -> Result<(), EngineError> {
        let before = self.shared();
        let slot = self.slot();
        let EngineSlot { remote, number } = slot
            .filter(|_| before.state() != State::Playing)
            .ok_or(EngineError::Busy)?;
        let plan = source.plan();
        // Larger ones would be cut by the kernel.
        let leaves_shared = srtp.is_some();
        let srtp = srtp.or_else(|| before.srtp.clone());
        let tag_bytes = srtp.as_ref().map_or(0, |srtp| srtp.tag_bytes());
        if source.image_bytes_max() + usize::from(tag_bytes) > before.segment_bytes.into() {
            let reason = "its packets are larger than those of the track".to_owned();
            return Err(EngineError::Media { reason });
        }
        let (numbering, end) = before.numbered_until();
        let goes_on = before.has_played() && (leaves_shared || self.renumbers(&before));
        let mut numbering = match goes_on {
            true => changed(numbering, (&before.source, end), (source, from)),
            false => numbering,
        };
        if let Some(srtp) = srtp.as_ref().filter(|_| leaves_shared) {
            let timestamp = numbering.position(Position::default()).timestamp;
            numbering = srtp.numbering_at(source.origin().sequence_of(from), timestamp);
        }
        let demand = match numbering.is_shared() && self.connection.is_none() {
            true => Demand::of(&plan, plan.burst_ns()),
            false => Demand::of_own_headers(&plan, plan.burst_ns()),
        };
        let mut after = before.with_source(Arc::clone(source), numbering, from, demand);
        after.srtp = srtp;
        let after = Arc::new(after);
        remote.send(Command::ChangeSource {
            stream: number,
            shared: Arc::clone(&after),
        })?;
        remote.shared.admission.change(before.demand(), demand);
        // Asked after the command was given, as when a stream is opened.
        if remote.has_stopped() {
            after.set_state(State::Stopped);
        }
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = after;
        self.hold(0, None);
        before.changed.notify_waiters();
        Ok(())
    }

    /// Trains are shorter from now on. Nobody is refused a jump: what they cost more counts for
    /// those who come.
    fn ask_for_own_headers(&self, remote: &Remote, speed: Speed) {
        let (shared, plan) = (self.shared(), self.source().plan());
        let demand = Demand::of_own_headers(&plan, plan.burst_ns()).at(speed);
        let before = shared.set_demand(demand);
        remote.shared.admission.change(before, demand);
    }

    /// Makes room on its engine for playing from packet `from` at `speed`, until it is asked for
    /// another. Nobody is refused to play as the media was recorded, or slower: that takes as much
    /// as was promised when it was opened.
    ///
    /// # Errors
    ///
    /// [`EngineError::Overload`] or [`EngineError::Late`] if what a faster one takes more would
    /// cost those that play, and [`EngineError::Busy`] while it changes its engine. Then there is
    /// room for [`Speed::NORMAL`].
    pub fn make_room_for(&self, from: u64, speed: Speed) -> Result<(), EngineError> {
        let EngineSlot { remote, .. } = self.slot().ok_or(EngineError::Busy)?;
        let (shared, plan) = (self.shared(), self.source().plan());
        let normal = match self.numbering_from(from).is_shared() {
            true => Demand::of(&plan, plan.burst_ns()),
            false => Demand::of_own_headers(&plan, plan.burst_ns()),
        };
        let before = shared.set_demand(normal);
        remote.shared.admission.change(before, normal);
        let more = normal.at(speed).beyond(normal);
        if more.work() > 0 {
            Engines::admit(&remote, more)?;
            shared.set_demand(normal.at(speed));
        }
        Ok(())
    }

    /// Stops sending, and says the plan's number of the packet that would have been next. Nothing
    /// that was sent before arrives later: the kernel has let go of every train, or has held one
    /// for [`super::PAUSE_TIME_MAX`].
    ///
    /// # Errors
    ///
    /// [`EngineError::Busy`] if too many commands wait for the engine, or the stream is moving.
    pub async fn pause(&self) -> Result<u64, EngineError> {
        let shared = self.shared();
        loop {
            let changed = shared.changed.notified();
            if shared.state() != State::Playing {
                return Ok(shared.next_packet.load(Ordering::Relaxed));
            }
            let EngineSlot { remote, number } = self.slot().ok_or(EngineError::Busy)?;
            remote.send(Command::Pause { stream: number })?;
            changed.await;
        }
    }

    /// Ends what plays before that packet; at once if it has come so far, and nothing if it has
    /// ended already.
    ///
    /// # Errors
    ///
    /// [`EngineError::Busy`] if too many commands wait for the engine, or the stream is moving.
    pub fn stop_before(&self, packet: u64) -> Result<(), EngineError> {
        let packet = packet.min(self.source().plan().rtp_packets());
        let EngineSlot { remote, number } = self.slot().ok_or(EngineError::Busy)?;
        remote.send(Command::StopBefore {
            stream: number,
            packet,
        })
    }

    /// Waits until the stream stops by itself. Cancel-safe; answers at once if it has and was not
    /// played since.
    pub async fn ended(&self) -> EndReason {
        loop {
            let shared = self.shared();
            let changed = shared.changed.notified();
            if let Some(reason) = shared.end_reason() {
                return reason;
            }
            changed.await;
        }
    }

    /// Why the stream has stopped by itself, if it has and was not played since.
    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.shared().end_reason()
    }

    /// From now on [`Engines::ends`](super::Engines::ends) says this number when the stream stops
    /// by itself.
    pub(crate) fn belongs_to(&self, owner: u64) {
        self.shared().owner.store(owner, Ordering::Relaxed);
    }

    /// From its next play on it has one clock with all that are given the same. The first that it
    /// is given stays.
    pub fn share_clock(&self, clock: &Arc<TrackClock>) {
        self.shared().clock.get_or_init(|| Arc::clone(clock));
    }

    /// The clock that it shares, if it shares one.
    pub(crate) fn clock(&self) -> Option<Arc<TrackClock>> {
        self.shared().clock.get().cloned()
    }

    /// Whether it leaves as frames of a connection.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.connection.is_some()
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> StreamSnapshot {
        let clock = self.slot().map(|slot| slot.remote.clock.clone());
        self.shared().snapshot(clock.unwrap_or_default().now_ns())
    }

    /// What media time is due when, by CLOCK_MONOTONIC: the clock of the last play, also after its
    /// end. Before the play's own beginning it shows less. `None` if there was no play.
    pub(crate) fn line(&self) -> Option<MediaClock> {
        self.shared().line_played()
    }

    /// What it sends.
    #[must_use]
    pub fn source(&self) -> Arc<Source> {
        Arc::clone(&self.shared().source)
    }

    /// Bytes of a chunk of its sources.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.store.pool().chunk_bytes()
    }

    pub(super) fn shared(&self) -> Arc<StreamShared> {
        let shared = self.shared.lock();
        Arc::clone(&shared.unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn slot(&self) -> Option<EngineSlot> {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.clone()
    }

    pub(super) fn set_slot(&self, slot: Option<EngineSlot>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = slot;
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
        let Some(EngineSlot { remote, number }) = self.slot() else {
            return;
        };
        remote.shared.admission.give_back(self.shared().demand());
        remote.push_surely(Command::Close { stream: number });
    }
}

pub(super) fn cache_full(pool: &Pool) -> EngineError {
    let (ready_bytes, cache_bytes) = pool.bytes_ready_of();
    EngineError::CacheFull {
        ready_bytes,
        cache_bytes,
    }
}
