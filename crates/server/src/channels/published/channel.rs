//! A published channel, as all but its thread see it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Context};

use onrush_sys::clock::monotonic_ns;
use onrush_sys::wake::Waker;
use onrush_wire::live::INGESTS_MAX;
use onrush_wire::media::Track;
use onrush_wire::rtcp::{Receiving, lost_fraction};
use onrush_wire::rtp::ticks_of;

use super::FRAMES_WAITING_BYTES_MAX;
use super::intake::Reception;
use super::receiving::TrackSockets;
use super::refused::{Refused, RefusedCounts};
use super::right::{Right, Seat};
use crate::channels::Stats;
use crate::channels::srtp::ChannelKeysInUse;
use crate::channels::tap::{PACKET_COST, Tap};
use crate::channels::viewing::{Given, LiveChannel, ViewerCommand};

/// A channel of several tracks.
#[derive(Debug)]
pub(crate) struct PublishedChannel {
    /// Its name, as a path.
    path: String,
    tracks: Vec<Track>,
    pub(super) facts: Vec<TrackFacts>,
    /// Nothing once the thread has ended, so that nobody waits for it.
    commands: Mutex<Option<Vec<Command>>>,
    frames: Mutex<Frames>,
    pub(super) waker: Waker,
    stats: Mutex<Stats>,
    /// Packets on channels that nobody set up.
    strays: AtomicU64,
    /// By ingest, when its last packet arrived, in ns of the monotonic clock.
    arrived_ns: [AtomicU64; INGESTS_MAX],
    /// A publisher has begun to send.
    has_begun: AtomicBool,
    /// By ingest, whether its publisher is to be let go.
    is_dismissed: [AtomicBool; INGESTS_MAX],
    /// By ingest, the task that is woken then.
    publishers: Mutex<[Option<task::Waker>; INGESTS_MAX]>,
    /// By ingest, what came since it began and was not taken.
    refused: [RefusedCounts; INGESTS_MAX],
    ingests: Mutex<Ingests>,
    seat: Mutex<Seat>,
    viewers: AtomicUsize,
    shared_keys: ChannelKeysInUse,
    /// Why its viewers are to end, if they are.
    end: Mutex<Option<String>>,
}

/// What all know of a track.
#[derive(Debug)]
pub(super) struct TrackFacts {
    /// The SSRC that viewers get, whoever publishes.
    pub(super) ssrc: u32,
    /// Given to the group so far.
    pub(super) given: Arc<Given>,
    pub(super) line: Mutex<Option<Line>>,
    reception: Mutex<Option<Reception>>,
    /// What its publisher was told of that last.
    told: Mutex<Option<Reception>>,
}

/// A moment's timestamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) timestamp: u32,
    /// Of the monotonic clock, in ns.
    pub(super) at_ns: u64,
    /// By a report of the publisher's, which ties tracks together, and not by an arrival.
    pub(super) is_reported: bool,
}

/// Who publishes, for those who look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ingests {
    /// Whose packets viewers get.
    pub(crate) active: Option<usize>,
    /// Those that have begun.
    pub(crate) all: [Option<IngestSource>; INGESTS_MAX],
    /// How often viewers have got another one's from then on.
    pub(crate) switches: u64,
    /// All of them stand by for what another node has.
    pub(crate) is_elsewhere: bool,
}

impl Ingests {
    /// The one that viewers get.
    pub(crate) fn active(&self) -> Option<&IngestSource> {
        self.all[self.active?].as_ref()
    }

    /// One that viewers do not get.
    pub(crate) fn standby(&self) -> Option<&IngestSource> {
        let others = self.all.iter().enumerate();
        let mut others = others.filter(|(ingest, _)| Some(*ingest) != self.active);
        others.find_map(|(_, source)| source.as_ref())
    }
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct IngestSource {
    /// An address, or a URL without a password.
    pub(crate) from: String,
    /// When it began, in ns of the monotonic clock.
    pub(crate) since_ns: u64,
}

/// Frames that wait for the thread.
#[derive(Debug, Default)]
pub(super) struct Frames {
    all: Vec<Frame>,
    bytes: usize,
    dropped: u64,
}

/// What a publisher's connection brought.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) ingest: usize,
    pub(super) track: u8,
    pub(super) is_rtcp: bool,
    pub(super) packet: Vec<u8>,
}

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    /// This ingest begins, and sends to these sockets, or by [`PublishedChannel::frame`].
    Begin(usize, Vec<TrackSockets>, Right),
    /// What it sends is passed over, or no longer.
    Hold(usize, bool),
    /// It is gone.
    EndPublisher(usize),
    /// Something for viewers.
    Viewer(ViewerCommand),
    /// What comes goes there, too, and before it what is kept for those who join.
    Tap(Arc<Tap>),
    /// End.
    Stop,
}

impl PublishedChannel {
    pub(super) fn new(
        path: String,
        tracks: Vec<Track>,
        ssrc: impl Fn() -> u32,
    ) -> std::io::Result<Self> {
        let facts = tracks.iter().map(|_| TrackFacts {
            ssrc: ssrc(),
            given: Arc::default(),
            line: Mutex::default(),
            reception: Mutex::default(),
            told: Mutex::default(),
        });
        Ok(Self {
            facts: facts.collect(),
            path,
            tracks,
            commands: Mutex::new(Some(Vec::new())),
            frames: Mutex::default(),
            waker: Waker::new()?,
            stats: Mutex::default(),
            strays: AtomicU64::new(0),
            arrived_ns: Default::default(),
            has_begun: AtomicBool::new(false),
            is_dismissed: Default::default(),
            publishers: Mutex::default(),
            refused: Default::default(),
            ingests: Mutex::default(),
            seat: Mutex::default(),
            viewers: AtomicUsize::new(0),
            shared_keys: ChannelKeysInUse::default(),
            end: Mutex::default(),
        })
    }

    /// Its name, as a path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Its tracks, as they were announced.
    pub(crate) fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The SSRC that viewers of a track get.
    pub(crate) fn ssrc(&self, track: usize) -> u32 {
        self.facts[track].ssrc
    }

    /// What its thread published last.
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = *lock(&self.stats);
        stats.strays = self.strays.load(Ordering::Relaxed);
        stats
    }

    /// Who publishes now.
    pub(crate) fn ingests(&self) -> Ingests {
        lock(&self.ingests).clone()
    }

    /// When the last packet of an ingest arrived, in ns of the monotonic clock.
    pub(super) fn arrived_ns(&self, ingest: usize) -> u64 {
        self.arrived_ns[ingest].load(Ordering::Relaxed)
    }

    /// For the thread: a packet of that ingest has come.
    pub(super) fn set_arrived(&self, ingest: usize, now_ns: u64) {
        self.arrived_ns[ingest].store(now_ns, Ordering::Relaxed);
    }

    /// A publisher begins, from there.
    pub(super) fn begin(
        &self,
        ingest: usize,
        sockets: Vec<TrackSockets>,
        (from, right): (String, Right),
    ) {
        // What is left of the one before.
        lock(&self.frames).remove(ingest);
        let since_ns = monotonic_ns();
        // So that it is not silent before it has sent anything.
        self.set_arrived(ingest, since_ns);
        self.refused[ingest].clear();
        lock(&self.ingests).all[ingest] = Some(IngestSource { from, since_ns });
        let is_played = right.is_held(&self.path);
        self.send(Command::Begin(ingest, sockets, right));
        if is_played {
            self.set_begun();
        }
    }

    /// It can be watched from now on.
    pub(super) fn set_begun(&self) {
        self.has_begun.store(true, Ordering::Release);
        lock(&self.ingests).is_elsewhere = false;
    }

    /// For the thread: whether all that publish here stand by for another node.
    pub(super) fn set_elsewhere(&self, is_elsewhere: bool) {
        lock(&self.ingests).is_elsewhere = is_elsewhere;
    }

    /// The lease of a standby, which is kept for as long as one stands by.
    pub(super) fn seat(&self) -> MutexGuard<'_, Seat> {
        lock(&self.seat)
    }

    /// A publisher has gone.
    pub(super) fn end_publisher(&self, ingest: usize) {
        lock(&self.ingests).all[ingest] = None;
        lock(&self.publishers)[ingest] = None;
        self.send(Command::EndPublisher(ingest));
    }

    /// For the thread: viewers get that one's from now on.
    pub(super) fn set_active(&self, active: Option<usize>, switches: u64) {
        let mut ingests = lock(&self.ingests);
        (ingests.active, ingests.switches) = (active, switches);
    }

    /// Sets whether a publisher is to be let go.
    pub(super) fn dismiss(&self, ingest: usize, is_dismissed: bool) {
        self.is_dismissed[ingest].store(is_dismissed, Ordering::Relaxed);
        self.wake_publisher(ingest);
    }

    /// Whether a publisher is to be let go: it alone, or because the channel has ended, which takes
    /// nothing any more. If not, the task is woken once it is.
    pub(super) fn is_dismissed(&self, ingest: usize, context: Option<&Context<'_>>) -> bool {
        // First, so that what changes from here on wakes it.
        if let Some(context) = context {
            lock(&self.publishers)[ingest] = Some(context.waker().clone());
        }
        self.is_dismissed[ingest].load(Ordering::Relaxed) || lock(&self.end).is_some()
    }

    fn wake_publisher(&self, ingest: usize) {
        let waiting = lock(&self.publishers)[ingest].take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// What came of an ingest since it began and was not taken.
    pub(super) fn refused(&self, ingest: usize) -> Refused {
        self.refused[ingest].read()
    }

    /// For the thread: what is counted of an ingest.
    pub(super) fn refused_counts(&self, ingest: usize) -> &RefusedCounts {
        &self.refused[ingest]
    }

    /// Whether a publisher has ever sent, so that it can be watched.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// What a publisher sent as a frame; dropped if too much waits.
    pub(super) fn frame(&self, frame: Frame) {
        let mut frames = lock(&self.frames);
        let bytes = frame.bytes();
        if frames.bytes + bytes > FRAMES_WAITING_BYTES_MAX {
            frames.dropped += 1;
            return;
        }
        frames.bytes += bytes;
        frames.all.push(frame);
        // Else it has been woken, and has not looked yet.
        if frames.all.len() == 1 {
            self.waker.wake();
        }
    }

    /// A packet came on a channel that nobody set up.
    pub(super) fn stray(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    /// For the thread: the frames that have come.
    pub(super) fn take_frames(&self) -> Vec<Frame> {
        let mut frames = lock(&self.frames);
        frames.bytes = 0;
        std::mem::take(&mut frames.all)
    }

    /// For the thread: frames that found no room.
    pub(super) fn frames_dropped(&self) -> u64 {
        lock(&self.frames).dropped
    }

    pub(super) fn has_viewers(&self) -> bool {
        self.viewers.load(Ordering::Relaxed) > 0
    }

    /// Its viewers are to end, and so is its thread.
    pub(super) fn retire(&self, why: &str) {
        lock(&self.end).get_or_insert_with(|| why.to_owned());
        self.send(Command::Stop);
        (0..INGESTS_MAX).for_each(|ingest| self.wake_publisher(ingest));
    }

    pub(super) fn send(&self, command: Command) {
        if let Some(commands) = lock(&self.commands).as_mut() {
            commands.push(command);
            self.waker.wake();
        }
    }

    /// What comes goes to `tap`, too, until that is closed.
    pub(crate) fn tap(&self, tap: Arc<Tap>) {
        self.send(Command::Tap(tap));
    }

    /// For the thread: what it has been asked to do.
    pub(super) fn commands(&self) -> Vec<Command> {
        lock(&self.commands)
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// For the thread: it ends.
    pub(super) fn close(&self) {
        *lock(&self.commands) = None;
    }

    /// For the thread: publishes its counters.
    pub(super) fn publish(&self, now: &Stats) {
        *lock(&self.stats) = *now;
    }

    /// For the thread: where timestamps are.
    pub(super) fn set_line(&self, track: usize, line: Line) {
        *lock(&self.facts[track].line) = Some(line);
    }

    /// For the thread: how a track's packets arrive.
    pub(super) fn set_reception(&self, track: usize, reception: Option<Reception>) {
        *lock(&self.facts[track].reception) = reception;
    }

    /// What the publisher of a track is told of that, once packets have come: also what was lost
    /// since it was told last.
    pub(crate) fn reception_report(&self, track: usize) -> Option<Vec<u8>> {
        let facts = self.facts.get(track)?;
        let reception = (*lock(&facts.reception))?;
        let before = lock(&facts.told).replace(reception);
        let Reception {
            sender,
            lost,
            sequence_max,
            jitter,
            reported: (middle, at_ns),
        } = reception;
        let before = before.filter(|before| before.sender == sender);
        let lost_fraction = before.map_or(0, |before| {
            let expected = sequence_max.wrapping_sub(before.sequence_max);
            lost_fraction(expected, lost.saturating_sub(before.lost))
        });
        let since_ns = monotonic_ns().saturating_sub(at_ns);
        let since = match middle {
            0 => 0,
            _ => u32::try_from(u128::from(since_ns) * 65_536 / 1_000_000_000).unwrap_or(u32::MAX),
        };
        let receiving = Receiving {
            ssrc: facts.ssrc,
            cname: "onrush",
            sender,
            lost_fraction,
            lost,
            sequence_max,
            jitter,
            last_report: (middle, since),
        };
        Some(receiving.report())
    }

    pub(super) fn line(&self, track: usize) -> Option<Line> {
        *lock(&self.facts[track].line)
    }

    /// A timestamp of a track, and when that was by the monotonic clock, in ns; whether a report of
    /// the publisher's says so, or an arrival.
    pub(crate) fn line_of(&self, track: usize) -> Option<(u32, u64, bool)> {
        let line = self.line(track)?;
        Some((line.timestamp, line.at_ns, line.is_reported))
    }
}

impl Frames {
    fn remove(&mut self, ingest: usize) {
        self.all.retain(|frame| frame.ingest != ingest);
        self.bytes = self.all.iter().map(Frame::bytes).sum();
    }
}

impl Frame {
    /// Those that it takes while it waits.
    fn bytes(&self) -> usize {
        self.packet.len() + PACKET_COST
    }
}

impl LiveChannel for PublishedChannel {
    fn live_path(&self) -> String {
        self.path.clone()
    }

    fn command(&self, command: ViewerCommand) {
        self.send(Command::Viewer(command));
    }

    fn count_viewer(&self, is_there: bool) {
        match is_there {
            true => self.viewers.fetch_add(1, Ordering::Relaxed),
            false => self.viewers.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn clock_hz(&self, track: usize) -> u32 {
        self.tracks[track].clock_hz
    }

    fn ssrc_now(&self, track: usize) -> Option<u32> {
        Some(self.ssrc(track))
    }

    fn timestamp_at(&self, track: usize, now_ns: u64) -> Option<u32> {
        let (clock_hz, line) = (self.tracks[track].clock_hz, self.line(track)?);
        let ticks = |ns: u64| ticks_of(ns, clock_hz.into());
        Some(match now_ns.checked_sub(line.at_ns) {
            Some(since_ns) => line.timestamp.wrapping_add(ticks(since_ns)),
            None => line.timestamp.wrapping_sub(ticks(line.at_ns - now_ns)),
        })
    }

    fn given(&self, track: usize) -> &Given {
        &self.facts[track].given
    }

    fn end(&self) -> Option<String> {
        lock(&self.end).clone()
    }

    fn has_frames(&self) -> bool {
        true
    }

    fn shared_keys(&self) -> &ChannelKeysInUse {
        &self.shared_keys
    }

    fn is_permanent(&self) -> bool {
        false
    }
}

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use onrush_wire::rtp::StaticPayload;

    use super::*;

    /// While the thread is held up, `$`, a channel and the length 0 are four bytes of a peer's.
    #[test]
    fn empty_frames_that_wait_are_bounded() {
        let tracks = vec![StaticPayload::MP2T.into()];
        let channel = PublishedChannel::new("live/door".to_owned(), tracks, || 7).unwrap();
        let push = |count: usize| {
            (0..count).for_each(|_| {
                channel.frame(Frame {
                    ingest: 0,
                    track: 0,
                    is_rtcp: false,
                    packet: Vec::new(),
                });
            });
        };
        let most = FRAMES_WAITING_BYTES_MAX / PACKET_COST;
        push(most + 1);
        assert_eq!(channel.frames_dropped(), 1);
        assert_eq!(channel.take_frames().len(), most);
        push(most);
        assert_eq!(channel.frames_dropped(), 1, "there is room again");
        lock(&channel.frames).remove(0);
        push(most);
        assert_eq!(channel.frames_dropped(), 1, "and behind one that has gone");
    }
}
