//! What a worker and control see of each other: atomics, written by one side each.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use onrush_sys::path::PathName;
use onrush_wire::pace::MediaClock;
use onrush_wire::rtp::Numbering;
use tokio::sync::Notify;

use super::admission::{Admission, Demand, LATE_NS};
use super::numbering::SharedNumbering;
use super::shared_clock::{SharedClocks, Side};
use super::srtp::StreamSrtp;
use super::stream_end::StreamEndQueue;
use super::{EndReason, Play, StreamSnapshot};
use crate::store::Source;

/// What a stream is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum State {
    /// Nothing: it was opened or paused.
    Paused = 0,
    /// Sending.
    Playing = 1,
    /// It has sent all that was asked for.
    Finished = 2,
    /// Its file failed; the source says why.
    MediaFailed = 3,
    /// The kernel refused its packets; the errno says why.
    SendFailed = 4,
    /// The engine stopped.
    Stopped = 5,
}

/// What the tracks of one session have in common: by how much their clock was moved since the
/// session began, because one of them was too late to catch up. The others follow before their next
/// burst, so that none runs ahead of it.
#[derive(Debug, Default)]
pub struct TrackClock {
    moved_ns: AtomicI64,
}

impl TrackClock {
    pub(super) fn moved_ns(&self) -> i64 {
        self.moved_ns.load(Ordering::Relaxed)
    }

    /// It is moved by so much in all at the least.
    pub(super) fn move_to(&self, moved_ns: i64) {
        self.moved_ns.fetch_max(moved_ns, Ordering::Relaxed);
    }
}

/// One stream, as both sides see it.
#[derive(Debug)]
pub struct StreamShared {
    pub(crate) source: Arc<Source>,
    /// What its socket cuts trains into: bytes of the largest image, and of a tag behind it.
    pub(crate) segment_bytes: u16,
    /// What its packets are encrypted with, if its client alone reads them.
    pub(crate) srtp: Option<Arc<StreamSrtp>>,
    /// The way to its client takes no trains: each packet is handed over by itself, and its socket
    /// cuts nothing. Written by the worker that has it.
    pub(super) sends_singly: AtomicBool,
    /// Told of every change of state by the worker. That takes locks: of the list of waiters, and
    /// of the runtime that wakes them. So it is not told of anything while the stream plays.
    pub(crate) changed: Notify,
    /// Told of the owner when the stream stops by itself.
    ends: Arc<StreamEndQueue>,
    pub(crate) owner: AtomicU64,
    state: AtomicU8,
    /// Plays that control has asked for, and those that the worker has taken up: between the two,
    /// what the worker says is about the play before.
    plays_asked: AtomicU32,
    plays_taken: AtomicU32,
    /// Of the play asked for last, what `next_packet` will be. Written by control.
    asked_packet: AtomicU64,
    /// How its packets are numbered, by the worker that has it and by control.
    pub(crate) numbering: SharedNumbering,
    /// What it asks of an engine, in thousandths of a train a second. Written by control.
    demand: AtomicU32,
    pub(crate) errno: AtomicU32,
    /// When media is due, in ns of CLOCK_MONOTONIC, by the worker that has it and by control.
    pub(crate) lines: SharedClocks,
    /// The clock that it shares with the other tracks of its session, if it has any.
    pub(crate) clock: OnceLock<Arc<TrackClock>>,
    pub(crate) next_packet: AtomicU64,
    pub(crate) packets: AtomicU64,
    /// Without padding.
    pub(crate) bytes: AtomicU64,
    pub(crate) packets_refused: AtomicU64,
    pub(crate) underruns: AtomicU32,
    pub(crate) bursts: AtomicU64,
    pub(crate) lateness_sum_ns: AtomicI64,
    pub(crate) lateness_max_ns: AtomicI64,
}

/// Buckets of the lateness histogram.
pub const LATENESS_BUCKETS: usize = 2048;

/// Width of a bucket.
pub const LATENESS_BUCKET_NS: i64 = 100_000;

/// The lower edge of the first bucket; what is earlier counts there too, as what is later than the
/// last bucket counts in the last.
pub const LATENESS_FIRST_NS: i64 = -50_000_000;

/// Buckets of the sizes of batches: one burst, 2, 3 to 4, 5 to 8, and so on; what is larger counts
/// in the last.
pub const BATCH_BUCKETS: usize = 16;

/// What a worker has done so far.
#[derive(Debug)]
pub struct WorkerShared {
    path: AtomicU8,
    /// Whether there is room for headers of sessions' own.
    pub(crate) has_own_headers: AtomicBool,
    /// Whether they leave without a copy.
    pub(super) own_headers_zero_copy: AtomicBool,
    /// Streams that need no descriptor, because the path keeps their sockets in a table of its own.
    pub places: AtomicU32,
    /// Entries into the kernel.
    pub crossings: AtomicU64,
    /// Times the worker woke to see what is due.
    pub ticks: AtomicU64,
    /// Trains handed over.
    pub trains: AtomicU64,
    /// Of those, sent without a copy, as the kernel reported.
    pub trains_zero_copy: AtomicU64,
    /// Of those, copied by the kernel.
    pub trains_copied: AtomicU64,
    /// Of those, of one packet and so copied on purpose, on a zero-copy path.
    pub trains_single: AtomicU64,
    /// Of those, on a zero-copy path, refused by the kernel, or not told of.
    pub trains_other: AtomicU64,
    /// Of those, with headers of the session's own, because it has jumped.
    pub trains_own_headers: AtomicU64,
    /// Of those, sent over connections.
    pub trains_framed: AtomicU64,
    /// Whether streams can be sent over connections.
    pub(super) sends_streams: AtomicBool,
    /// Connections that streams are sent over.
    pub connections: AtomicU64,
    /// Times a stream's clock was moved because its client did not take what was sent over its
    /// connection.
    pub stalls: AtomicU64,
    /// Connections that were ended because their clients took nothing for too long.
    pub stalled_out: AtomicU64,
    /// RTP packets handed over.
    pub packets: AtomicU64,
    /// Their bytes, RTP headers included.
    pub bytes: AtomicU64,
    /// Packets the kernel refused.
    pub packets_refused: AtomicU64,
    /// Streams that play.
    pub playing: AtomicU64,
    /// Times a better path was not to be had, or was given up.
    pub demotions: AtomicU64,
    /// Bursts that waited for a chunk.
    pub underruns: AtomicU64,
    /// Times a stream was so late that its clock was moved.
    pub lags: AtomicU64,
    /// Streams that went to another engine.
    pub moved: AtomicU64,
    /// Streams that are left out, so that the others are on time.
    pub shed: AtomicU64,
    /// Times a stream was.
    pub sheds: AtomicU64,
    /// Packets that such streams were not sent: whole bursts.
    pub packets_skipped: AtomicU64,
    /// Trains put off because too many were in flight.
    pub flights_full: AtomicU64,
    /// Trains whose memory the kernel still needs.
    pub in_flight: AtomicU64,
    /// Processor time of the worker's thread, in ns, as of its last housekeeping.
    pub cpu_ns: AtomicU64,
    /// The worker's thread, for whoever wants to know that time as of now.
    pub thread: AtomicU32,
    /// Bursts by lateness.
    pub lateness: Box<[AtomicU64]>,
    /// Lateness of all bursts that were late, added up.
    pub lateness_sum_ns: AtomicU64,
    /// Batches by the number of bursts that were handed over together.
    pub batches: [AtomicU64; BATCH_BUCKETS],
    /// Bursts, and of them those that were [late](super::admission::LATE_NS).
    pub bursts: AtomicU64,
    /// Those that were late.
    pub bursts_late: AtomicU64,
    /// Those that left in one train with the burst before, because the worker was behind.
    pub bursts_joined: AtomicU64,
    /// What it has promised, and what that costs.
    pub admission: Admission,
}

impl StreamShared {
    pub(super) fn new(
        source: Arc<Source>,
        segment_bytes: u16,
        numbering: Numbering,
        demand: Demand,
        ends: Arc<StreamEndQueue>,
    ) -> Self {
        Self {
            source,
            segment_bytes,
            srtp: None,
            sends_singly: AtomicBool::new(false),
            changed: Notify::new(),
            ends,
            owner: AtomicU64::new(0),
            state: AtomicU8::new(State::Paused as u8),
            plays_asked: AtomicU32::new(0),
            plays_taken: AtomicU32::new(0),
            asked_packet: AtomicU64::new(0),
            numbering: SharedNumbering::new(numbering),
            demand: AtomicU32::new(demand.thousandths()),
            errno: AtomicU32::new(0),
            lines: SharedClocks::new(MediaClock::default()),
            clock: OnceLock::new(),
            next_packet: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            packets_refused: AtomicU64::new(0),
            underruns: AtomicU32::new(0),
            bursts: AtomicU64::new(0),
            lateness_sum_ns: AtomicI64::new(0),
            lateness_max_ns: AtomicI64::new(i64::MIN),
        }
    }

    /// The same stream, paused, with another source, of which it would send packet `next_packet`
    /// next, numbered so. By its clock that is due when what it would have sent is due now.
    pub(super) fn with_source(
        &self,
        source: Arc<Source>,
        numbering: Numbering,
        next_packet: u64,
        demand: Demand,
    ) -> Self {
        let (_, end) = self.numbered_until();
        let media_ns = signed(source.plan().due_ns(next_packet));
        let before = self.lines.get(Side::Worker);
        let at_ns = before.due_ns(self.source.plan().due_ns(end));
        let line = MediaClock::through(at_ns, media_ns, before.speed());
        let ends = Arc::clone(&self.ends);
        let mut new = Self::new(source, self.segment_bytes, numbering, demand, ends);
        new.srtp.clone_from(&self.srtp);
        new.owner = AtomicU64::new(self.owner.load(Ordering::Relaxed));
        new.plays_asked = AtomicU32::new(self.has_played().into());
        new.plays_taken = AtomicU32::new(self.has_played().into());
        new.lines = SharedClocks::new(line);
        new.next_packet = AtomicU64::new(next_packet);
        new.clock.clone_from(&self.clock);
        new.count_on_from(self);
        new
    }

    /// Counts on where `before` has come to, which was the same stream, on the same socket.
    pub(super) fn count_on_from(&self, before: &Self) {
        for (counter, before) in [
            (&self.packets, &before.packets),
            (&self.bytes, &before.bytes),
            (&self.packets_refused, &before.packets_refused),
            (&self.bursts, &before.bursts),
        ] {
            counter.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let sends_singly = before.sends_singly.load(Ordering::Relaxed);
        self.sends_singly.store(sends_singly, Ordering::Relaxed);
        let underruns = before.underruns.load(Ordering::Relaxed);
        self.underruns.store(underruns, Ordering::Relaxed);
        for (lateness_ns, before_ns) in [
            (&self.lateness_sum_ns, &before.lateness_sum_ns),
            (&self.lateness_max_ns, &before.lateness_max_ns),
        ] {
            lateness_ns.store(before_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// A stream of a test's file.
    #[cfg(test)]
    pub(super) fn of_test(test: &crate::testing::TestSource) -> Self {
        let (source, demand) = (Arc::clone(&test.source), Demand::new(0));
        Self::new(source, 1328, Numbering::default(), demand, Arc::default())
    }

    /// What it does for whoever asked: a play that the worker has not taken up yet counts as
    /// playing.
    pub(super) fn state(&self) -> State {
        // First whether it is taken and then the state, which the worker writes the other way
        // round: so the state of a play that was taken up is not that of the one before.
        let is_taken = self.is_taken();
        match self.worker_state() {
            State::Stopped => State::Stopped,
            state if is_taken => state,
            _ => State::Playing,
        }
    }

    /// Whether the worker has taken up the last play that was asked for.
    pub(super) fn is_taken(&self) -> bool {
        self.plays_taken.load(Ordering::Acquire) == self.plays_asked.load(Ordering::Acquire)
    }

    /// What the worker does with it.
    fn worker_state(&self) -> State {
        // Acquire: the counters written before a change of state are seen with it.
        match self.state.load(Ordering::Acquire) {
            0 => State::Paused,
            1 => State::Playing,
            2 => State::Finished,
            3 => State::MediaFailed,
            4 => State::SendFailed,
            _ => State::Stopped,
        }
    }

    /// For control: a play is asked for (before its command is given), or could not be after all.
    pub(super) fn ask_play(&self, play: &Play) {
        self.asked_packet.store(play.from, Ordering::Relaxed);
        self.lines.set(Side::Control, play.line);
        self.numbering.set(Side::Control, play.numbering);
        self.plays_asked.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn unask_play(&self) {
        self.plays_asked.fetch_sub(1, Ordering::AcqRel);
    }

    /// For the worker: it plays what was asked for.
    pub(super) fn take_play(&self) {
        self.set_state(State::Playing);
        self.plays_taken.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
        self.changed.notify_waiters();
        if !matches!(state, State::Paused | State::Playing) {
            self.ends.push(self.owner.load(Ordering::Relaxed));
        }
    }

    /// What it asks of an engine.
    pub(super) fn demand(&self) -> Demand {
        Demand::new(self.demand.load(Ordering::Relaxed))
    }

    /// It asks for something else from now on. Returns what it asked for.
    pub(super) fn set_demand(&self, demand: Demand) -> Demand {
        let demand = demand.thousandths();
        Demand::new(self.demand.swap(demand, Ordering::Relaxed))
    }

    /// Whether it was ever told to play.
    pub(super) fn has_played(&self) -> bool {
        self.plays_asked.load(Ordering::Relaxed) > 0
    }

    /// For the worker: whether it has ever played.
    pub(super) fn has_been_taken(&self) -> bool {
        self.plays_taken.load(Ordering::Relaxed) > 0
    }

    /// How its packets are numbered up to the one that would be next, and that one's number in the
    /// plan.
    pub(super) fn numbered_until(&self) -> (Numbering, u64) {
        let side = self.decider();
        (self.numbering.get(side), self.packet_of(side))
    }

    /// Whose word counts: of a play that the worker has not taken up yet, control's.
    fn decider(&self) -> Side {
        match self.is_taken() {
            true => Side::Worker,
            false => Side::Control,
        }
    }

    /// The plan's number of the packet that is next, as that side says it.
    fn packet_of(&self, side: Side) -> u64 {
        let packet = match side {
            Side::Worker => &self.next_packet,
            Side::Control => &self.asked_packet,
        };
        packet.load(Ordering::Relaxed)
    }

    pub(super) fn count_lateness(&self, lateness_ns: i64) {
        bump(&self.bursts, 1);
        let sum_ns = self
            .lateness_sum_ns
            .load(Ordering::Relaxed)
            .saturating_add(lateness_ns);
        self.lateness_sum_ns.store(sum_ns, Ordering::Relaxed);
        let max_ns = self
            .lateness_max_ns
            .load(Ordering::Relaxed)
            .max(lateness_ns);
        self.lateness_max_ns.store(max_ns, Ordering::Relaxed);
    }

    pub(super) fn end_reason(&self) -> Option<EndReason> {
        match self.state() {
            State::Paused | State::Playing => None,
            State::Finished => Some(EndReason::EndOfMedia),
            State::MediaFailed => {
                let reason = self.source.failure();
                let reason = reason.unwrap_or_else(|| "cannot be read".to_owned());
                Some(EndReason::Media(reason))
            }
            State::SendFailed => {
                let errno = i32::try_from(self.errno.load(Ordering::Relaxed)).unwrap_or(0);
                Some(EndReason::Send(match errno {
                    libc::ETIMEDOUT => "its client takes nothing".to_owned(),
                    libc::EKEYEXPIRED => "its key of TLS 1.2 has sealed all it may".to_owned(),
                    errno => std::io::Error::from_raw_os_error(errno).to_string(),
                }))
            }
            State::Stopped => Some(EndReason::Stopped),
        }
    }

    /// The clock of the play that was asked for last, whether it goes on or has stopped. `None` if
    /// there was none.
    pub(super) fn line_played(&self) -> Option<MediaClock> {
        let has_played = self.plays_asked.load(Ordering::Acquire) > 0;
        has_played.then(|| self.line_asked())
    }

    /// The clock of the play that was asked for last.
    pub(super) fn line_asked(&self) -> MediaClock {
        self.lines.get(self.decider())
    }

    pub(super) fn snapshot(&self, now_ns: u64) -> StreamSnapshot {
        // A play that is not taken up yet is told of all the same: it is what whoever asks has
        // asked for.
        let side = self.decider();
        let (line, numbering) = (self.lines.get(side), self.numbering.get(side));
        let playing = self.state() == State::Playing;
        let next_packet = self.packet_of(side);
        let bursts = self.bursts.load(Ordering::Relaxed);
        let max = self.lateness_max_ns.load(Ordering::Relaxed);
        let playing_ns = line.media_ns(signed(now_ns));
        let plan = self.source.plan();
        StreamSnapshot {
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            packets_refused: self.packets_refused.load(Ordering::Relaxed),
            underruns: self.underruns.load(Ordering::Relaxed).into(),
            next_packet,
            numbering,
            position_ns: if playing {
                // At the end of a file that grows it waits.
                let end_ns = plan.due_ns(plan.rtp_packets());
                u64::try_from(playing_ns).unwrap_or(0).min(end_ns)
            } else {
                plan.due_ns(next_packet)
            },
            lateness_mean_ns: i64::try_from(bursts)
                .ok()
                .and_then(|bursts| {
                    self.lateness_sum_ns
                        .load(Ordering::Relaxed)
                        .checked_div(bursts)
                })
                .unwrap_or(0),
            lateness_max_ns: if max == i64::MIN { 0 } else { max },
        }
    }
}

impl WorkerShared {
    /// The path this worker sends by.
    #[must_use]
    pub fn path(&self) -> PathName {
        PathName::ALL[usize::from(self.path.load(Ordering::Acquire)) % PathName::ALL.len()]
    }

    /// How trains with headers of a session's own leave: without a copy, gathered by the ring with
    /// one, or as the path in use sends all. `none` where sessions have the numbers of the file
    /// always.
    #[must_use]
    pub fn own_headers_path(&self) -> &'static str {
        if !self.has_own_headers.load(Ordering::Relaxed) {
            return "none";
        }
        match (
            self.path(),
            self.own_headers_zero_copy.load(Ordering::Relaxed),
        ) {
            (PathName::UringRegisteredZc, true) => "uring_vectored_zc",
            (PathName::UringRegisteredZc, false) => "uring",
            (path, _) => path.as_str(),
        }
    }

    pub(super) fn set_path(&self, path: PathName) {
        let number = PathName::ALL.iter().position(|&p| p == path).unwrap_or(0);
        self.path
            .store(u8::try_from(number).unwrap_or(0), Ordering::Release);
    }

    pub(super) fn count_lateness(&self, lateness_ns: i64) {
        let from_first = lateness_ns.saturating_sub(LATENESS_FIRST_NS).max(0) / LATENESS_BUCKET_NS;
        let bucket = usize::try_from(from_first)
            .unwrap_or(0)
            .min(LATENESS_BUCKETS - 1);
        bump(&self.lateness[bucket], 1);
        bump(
            &self.lateness_sum_ns,
            u64::try_from(lateness_ns).unwrap_or(0),
        );
        bump(&self.bursts, 1);
        if lateness_ns > LATE_NS {
            bump(&self.bursts_late, 1);
        }
    }

    pub(super) fn count_batch(&self, bursts: usize) {
        if bursts > 0 {
            let bucket = bursts.next_power_of_two().trailing_zeros() as usize;
            bump(&self.batches[bucket.min(BATCH_BUCKETS - 1)], 1);
        }
    }
}

impl Default for WorkerShared {
    fn default() -> Self {
        Self {
            path: AtomicU8::new(0),
            has_own_headers: AtomicBool::new(false),
            own_headers_zero_copy: AtomicBool::new(false),
            places: AtomicU32::new(0),
            crossings: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            trains: AtomicU64::new(0),
            trains_zero_copy: AtomicU64::new(0),
            trains_copied: AtomicU64::new(0),
            trains_single: AtomicU64::new(0),
            trains_other: AtomicU64::new(0),
            trains_own_headers: AtomicU64::new(0),
            trains_framed: AtomicU64::new(0),
            sends_streams: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            stalled_out: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            packets_refused: AtomicU64::new(0),
            playing: AtomicU64::new(0),
            demotions: AtomicU64::new(0),
            underruns: AtomicU64::new(0),
            lags: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            sheds: AtomicU64::new(0),
            packets_skipped: AtomicU64::new(0),
            flights_full: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            thread: AtomicU32::new(0),
            lateness: (0..LATENESS_BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            lateness_sum_ns: AtomicU64::new(0),
            batches: Default::default(),
            bursts: AtomicU64::new(0),
            bursts_late: AtomicU64::new(0),
            bursts_joined: AtomicU64::new(0),
            admission: Admission::default(),
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Adds to a counter that only this thread writes: a load and a store, no locked instruction.
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// As [`bump`], the other way: one of those that are counted is gone.
pub(crate) fn drop_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
}
