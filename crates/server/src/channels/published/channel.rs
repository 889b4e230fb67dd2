//! A published channel, as all but its thread see it.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_sys::clock::monotonic_ns;
use onrush_sys::wake::Waker;
use onrush_wire::media::Track;
use onrush_wire::rtcp::Receiving;
use onrush_wire::rtp::{HEADER_BYTES, Position, ticks_of};
use tokio::sync::oneshot;

use super::FRAMES_WAITING_BYTES_MAX;
use super::intake::Reception;
use super::receiving::TrackSockets;
use crate::channels::{Played, Stats};
use crate::engine::InterleavedConnection;

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
    /// When the last packet of its publisher arrived, in ns of the monotonic clock.
    pub(super) arrived_ns: AtomicU64,
    /// A publisher has begun to send.
    has_begun: AtomicBool,
    /// Its publisher is to be let go.
    is_dismissed: AtomicBool,
    viewers: AtomicUsize,
    /// Why its viewers are to end, if they are.
    end: Mutex<Option<String>>,
}

/// What all know of a track.
#[derive(Debug)]
pub(super) struct TrackFacts {
    /// The SSRC that viewers get, whoever publishes.
    pub(super) ssrc: u32,
    /// Given to the group so far.
    pub(super) packets: AtomicU64,
    pub(super) payload_bytes: AtomicU64,
    pub(super) line: Mutex<Option<Line>>,
    reception: Mutex<Option<Reception>>,
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

/// Frames that wait for the thread: track, whether it is RTCP, packet.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) all: Vec<(u8, bool, Vec<u8>)>,
    bytes: usize,
    pub(super) dropped: u64,
}

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    /// A publisher begins, and sends to these sockets, or by [`PublishedChannel::frame`].
    Begin(Vec<TrackSockets>),
    /// What it sends is passed over, or no longer.
    Hold(bool),
    /// It is gone.
    EndPublisher,
    /// Viewers of a track that come to this address of ours are sent to from there: the first is
    /// the group's, from the second single ones are sent to.
    Open(usize, IpAddr, [UdpSocket; 2]),
    /// Somebody will watch.
    Prepare(u64, Vec<ViewerTrack>, oneshot::Sender<Vec<Start>>),
    /// It watches from now on.
    Start(u64),
    /// It watches no longer.
    Leave(u64),
    /// End.
    Stop,
}

/// Where the packets of a track begin for a viewer, if that is known.
pub(crate) type Start = Option<Position>;

/// A track that somebody will watch.
#[derive(Clone, Debug)]
pub(crate) struct ViewerTrack {
    /// Its number, from 0 on.
    pub(crate) track: usize,
    pub(crate) way: Way,
    pub(crate) viewing: Arc<Viewing>,
}

/// How packets go to a viewer.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// To that port, from that address of ours.
    Datagrams(IpAddr, SocketAddr),
    /// On that channel of its connection.
    Frames(Arc<InterleavedConnection>, u8),
}

/// One track on its way to one viewer.
#[derive(Debug, Default)]
pub(crate) struct Viewing {
    /// Sent to it alone.
    pub(super) packets: AtomicU64,
    pub(super) payload_bytes: AtomicU64,
    /// What the group had been given when it became a member.
    member_since: Mutex<Option<Played>>,
    /// Why it gets nothing any more, if so.
    end: Mutex<Option<String>>,
}

impl PublishedChannel {
    pub(super) fn new(
        path: String,
        tracks: Vec<Track>,
        ssrc: impl Fn() -> u32,
    ) -> std::io::Result<Self> {
        let facts = tracks.iter().map(|_| TrackFacts {
            ssrc: ssrc(),
            packets: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            line: Mutex::default(),
            reception: Mutex::default(),
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
            arrived_ns: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            is_dismissed: AtomicBool::new(false),
            viewers: AtomicUsize::new(0),
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

    /// When the last packet of its publisher arrived, in ns of the monotonic clock.
    pub(crate) fn arrived_ns(&self) -> u64 {
        self.arrived_ns.load(Ordering::Relaxed)
    }

    /// The timestamp that a track's packet would have that is of that moment of the monotonic
    /// clock.
    pub(crate) fn timestamp_at(&self, track: usize, now_ns: u64) -> u32 {
        let (clock_hz, line) = (self.tracks[track].clock_hz, *lock(&self.facts[track].line));
        line.map_or(0, |line| {
            let ticks = |ns: u64| ticks_of(ns, clock_hz.into());
            match now_ns.checked_sub(line.at_ns) {
                Some(since_ns) => line.timestamp.wrapping_add(ticks(since_ns)),
                None => line.timestamp.wrapping_sub(ticks(line.at_ns - now_ns)),
            }
        })
    }

    /// A publisher begins.
    pub(super) fn begin(&self, sockets: Vec<TrackSockets>) {
        // What is left of the one before.
        let dropped = lock(&self.frames).dropped;
        *lock(&self.frames) = Frames {
            dropped,
            ..Frames::default()
        };
        // So that it is not silent before it has sent anything.
        self.arrived_ns.store(monotonic_ns(), Ordering::Relaxed);
        self.send(Command::Begin(sockets));
        self.has_begun.store(true, Ordering::Release);
    }

    /// Sets whether its publisher is to be let go.
    pub(super) fn dismiss(&self, is_dismissed: bool) {
        self.is_dismissed.store(is_dismissed, Ordering::Relaxed);
    }

    /// Whether its publisher is to be let go.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.is_dismissed.load(Ordering::Relaxed)
    }

    /// Whether a publisher has ever sent, so that it can be watched.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// What its publisher sent as a frame; dropped if too much waits.
    pub(super) fn frame(&self, track: u8, is_rtcp: bool, packet: Vec<u8>) {
        let mut frames = lock(&self.frames);
        if frames.bytes + packet.len() > FRAMES_WAITING_BYTES_MAX {
            frames.dropped += 1;
            return;
        }
        frames.bytes += packet.len();
        frames.all.push((track, is_rtcp, packet));
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
    pub(super) fn take_frames(&self) -> Vec<(u8, bool, Vec<u8>)> {
        let mut frames = lock(&self.frames);
        frames.bytes = 0;
        std::mem::take(&mut frames.all)
    }

    /// For the thread: frames that found no room.
    pub(super) fn frames_dropped(&self) -> u64 {
        lock(&self.frames).dropped
    }

    /// Opens a track for viewers that come to `local`.
    pub(crate) fn open(&self, track: usize, local: IpAddr, sockets: [UdpSocket; 2]) {
        self.send(Command::Open(track, local, sockets));
    }

    /// Makes ready to send tracks to a viewer, in the order of which the answer is; `None` if the
    /// channel has ended.
    pub(crate) async fn prepare(
        &self,
        viewer: u64,
        tracks: Vec<ViewerTrack>,
    ) -> Option<Vec<Start>> {
        let (answer, starts) = oneshot::channel();
        self.send(Command::Prepare(viewer, tracks, answer));
        starts.await.ok()
    }

    /// Begins to send.
    pub(crate) fn start(&self, viewer: u64) {
        self.send(Command::Start(viewer));
    }

    /// Ceases to.
    pub(crate) fn leave(&self, viewer: u64) {
        self.send(Command::Leave(viewer));
    }

    /// Counts a track of a viewer in.
    pub(crate) fn count_in(&self) {
        self.viewers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts it out.
    pub(crate) fn count_out(&self) {
        self.viewers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn has_viewers(&self) -> bool {
        self.viewers.load(Ordering::Relaxed) > 0
    }

    /// Why its viewers are to end, if they are.
    pub(crate) fn end(&self) -> Option<String> {
        lock(&self.end).clone()
    }

    /// Its viewers are to end, and so is its thread.
    pub(super) fn retire(&self, why: &str) {
        lock(&self.end).get_or_insert_with(|| why.to_owned());
        self.send(Command::Stop);
    }

    pub(super) fn send(&self, command: Command) {
        if let Some(commands) = lock(&self.commands).as_mut() {
            commands.push(command);
            self.waker.wake();
        }
    }

    /// For the thread: what it has been asked to do.
    pub(super) fn commands(&self) -> Vec<Command> {
        self.waker.clear();
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

    /// What the group of a track has been given.
    fn played(&self, track: usize) -> Played {
        let facts = &self.facts[track];
        Played {
            packets: facts.packets.load(Ordering::Relaxed),
            payload_bytes: facts.payload_bytes.load(Ordering::Relaxed),
        }
    }

    /// What a viewer of a track was sent so far, as nearly as is known without counting for each.
    pub(crate) fn sent(&self, track: usize, viewing: &Viewing) -> Played {
        let mut sent = Played {
            packets: viewing.packets.load(Ordering::Relaxed),
            payload_bytes: viewing.payload_bytes.load(Ordering::Relaxed),
        };
        if let Some(then) = *lock(&viewing.member_since) {
            let now = self.played(track);
            sent.packets += now.packets.saturating_sub(then.packets);
            sent.payload_bytes += now.payload_bytes.saturating_sub(then.payload_bytes);
        }
        sent
    }

    /// For the thread: a viewer is a member of a track's group from now on.
    pub(super) fn join(&self, track: usize, viewing: &Viewing) {
        *lock(&viewing.member_since) = Some(self.played(track));
    }

    /// For the thread: it is no longer.
    pub(super) fn part(&self, track: usize, viewing: &Viewing) {
        let sent = self.sent(track, viewing);
        *lock(&viewing.member_since) = None;
        viewing.packets.store(sent.packets, Ordering::Relaxed);
        viewing
            .payload_bytes
            .store(sent.payload_bytes, Ordering::Relaxed);
    }

    /// For the thread: a packet was given to a track's group.
    pub(super) fn count(&self, track: usize, packet_bytes: usize) {
        let facts = &self.facts[track];
        facts.packets.fetch_add(1, Ordering::Relaxed);
        let payload_bytes = packet_bytes.saturating_sub(HEADER_BYTES) as u64;
        facts
            .payload_bytes
            .fetch_add(payload_bytes, Ordering::Relaxed);
    }

    /// For the thread: where timestamps are.
    pub(super) fn set_line(&self, track: usize, line: Line) {
        *lock(&self.facts[track].line) = Some(line);
    }

    /// For the thread: how a track's packets arrive.
    pub(super) fn set_reception(&self, track: usize, reception: Option<Reception>) {
        *lock(&self.facts[track].reception) = reception;
    }

    /// What the publisher of a track is told of that, once packets have come.
    pub(super) fn reception_report(&self, track: usize) -> Option<Vec<u8>> {
        let facts = self.facts.get(track)?;
        let Reception {
            sender,
            lost,
            sequence_max,
            jitter,
            reported: (middle, at_ns),
        } = (*lock(&facts.reception))?;
        let since_ns = monotonic_ns().saturating_sub(at_ns);
        let since = match middle {
            0 => 0,
            _ => u32::try_from(u128::from(since_ns) * 65_536 / 1_000_000_000).unwrap_or(u32::MAX),
        };
        let receiving = Receiving {
            ssrc: facts.ssrc,
            cname: "onrush",
            sender,
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
}

impl Viewing {
    /// Counts what was sent to it alone.
    pub(super) fn count(&self, packet_bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        let payload_bytes = packet_bytes.saturating_sub(HEADER_BYTES) as u64;
        self.payload_bytes
            .fetch_add(payload_bytes, Ordering::Relaxed);
    }

    /// Why it gets nothing any more, if so.
    pub(crate) fn end(&self) -> Option<String> {
        lock(&self.end).clone()
    }

    pub(super) fn set_end(&self, why: &str) {
        lock(&self.end).get_or_insert_with(|| why.to_owned());
    }
}

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
