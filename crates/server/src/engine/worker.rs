//! The loop of one core.
//!
//! Each turn: take commands, take from the wheel what is due in this tick, turn it into trains,
//! hand all of them over and sleep in the same crossing, and on waking take the completions. While
//! streams play nothing here allocates, waits for a lock or logs; all memory for that is taken in
//! [`Worker::open`]. What happens seldom may: when a stream begins or ends, the task that waits for
//! it is woken, which takes locks that are held for a moment; and a path that is given up costs the
//! memory of the next.

mod completing;
mod demotion;
mod sending;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onrush_sys::path::{IN_FLIGHT_TRAINS_MAX, Path, PathError, PathName, Vectored};
use onrush_sys::pool::{HeaderSlab, Pin};
use onrush_wire::pace::Wheel;
use onrush_wire::rtp::Numbering;
use tracing::error;

use super::admission::{Account, Demand};
use super::flights::Flights;
use super::moving::PendingMove;
use super::numbering::{RtpHeaders, jumped};
use super::reader::Reader;
use super::shared::{State, StreamShared, bump, drop_one};
use super::shedding::Shedding;
use super::{Command, EngineConfig, OpenPath, PAUSE_TIME_MAX, Play, Remote, STREAM_RATE_MAX};
use crate::faults::Faults;
use crate::store;
#[cfg(test)]
pub(super) use completing::REFUSED_PAUSE_NS;
use demotion::{open_from, prepare};
use sending::BURSTS_PER_TICK_MAX;

/// Ticks in a burst. A tick is what a burst may be early by, and what bounds the number of
/// crossings.
pub(super) const TICKS_PER_BURST: u64 = 4;

/// Slots of the wheel: at the default burst it turns in 2.5 s.
const WHEEL_SLOTS: u32 = 512;

/// How long a command waits at the most, however long a burst is.
const COMMAND_WAIT_NS_MAX: u64 = 100_000_000;

/// How often the worker's processor time is read.
const CPU_COUNT_NS: u64 = 1_000_000_000;

pub(super) struct Worker {
    pub(super) path: Box<dyn Path>,
    /// A path that was given up while trains were in flight on it.
    retired: Option<Box<dyn Path>>,
    open_path: Arc<OpenPath>,
    pub(super) store: Arc<store::Shared>,
    pub(super) remote: Arc<Remote>,
    pub(super) wheel: Wheel,
    pub(super) streams: Box<[Option<Stream>]>,
    /// Streams below this number have their sockets in the path's table, and no descriptor.
    places: u32,
    flights: Flights,
    /// Room for headers of streams' own.
    slab: Option<HeaderSlab>,
    /// Whether numbers go on after a jump.
    renumbers: bool,
    /// Stream and due time of the bursts in the batch that is being put together.
    batch: Vec<(u32, i64)>,
    pub(super) due: Vec<u32>,
    tick_ns: u64,
    /// When it meant to wake; never, if for a command.
    wakes_ns: u64,
    /// Until then it joins bursts, because it was behind.
    joins_until_ns: u64,
    /// A burst that is due before then leaves with the one before, in the same train.
    join_before_ns: i64,
    /// Chunks that a stream may send from in one tick; bursts end at the ends of chunks.
    chunks_per_tick_max: u64,
    lag_ns_max: i64,
    refused_ns_max: u64,
    counted: Account,
    trains_per_stream_max: u32,
    /// Streams that were opened so far.
    opened: u64,
    /// Whom to leave out when all are late.
    pub(super) shedding: Shedding,
    stopping: bool,
    faults: Faults,
    bursts: u64,
}

/// A stream as its worker sees it.
pub(super) struct Stream {
    pub(super) shared: Arc<StreamShared>,
    /// The RTP socket, unless the path keeps it.
    pub(super) socket: Option<UdpSocket>,
    /// Trains that are queued or whose memory the kernel has not released.
    pub(super) trains: u32,
    /// Control has let go of it. It leaves with its last train: until then its number and its
    /// socket are taken, so that no train meets a successor's.
    closing: bool,
    /// It goes to another engine, likewise with its last train.
    pub(super) leaving: Option<Box<PendingMove>>,
    pub(super) playing: bool,
    /// It plays, but is not sent: see [`shedding`](super::shedding).
    pub(super) is_shed: bool,
    /// Until when it waited for its chunk or for the device: what was due before is not late
    /// because of this worker.
    waited_until_ns: i64,
    /// What it asks for.
    pub(super) demand: Demand,
    /// How many were opened before it.
    pub(super) order: u64,
    /// All is queued; the end is told at the next tick, when it has left.
    finishing: bool,
    /// It has waited for its file to grow: what was due meanwhile is due when it comes.
    waited_for_growth: bool,
    pub(super) reader: Reader,
    /// When media time 0 was due.
    pub(super) epoch_ns: i64,
    /// Of the movements of a clock that it shares, what is in `epoch_ns`.
    pub(super) moved_ns: i64,
    /// No burst leaves before.
    pub(super) hold_until_ns: i64,
    /// Since when the kernel has refused every train; 0 if the last was taken.
    refused_since_ns: u64,
    /// How its packets are numbered.
    pub(super) numbering: Numbering,
    /// It was told to pause, and the kernel holds trains of it: until when that is waited for.
    pausing_until_ns: Option<u64>,
}

/// Of one stream: its own, and its places on the wheel (24 bytes) and in the list of those that are
/// due.
#[cfg(test)]
pub(super) const BYTES_PER_STREAM: usize = size_of::<Option<Stream>>() + 24 + size_of::<u32>();

impl Worker {
    pub(super) fn open(
        config: &EngineConfig,
        store: Arc<store::Shared>,
        remote: Arc<Remote>,
        mut demoted: impl FnMut(PathName, PathError),
    ) -> Self {
        let open_path = Arc::clone(&config.open_path);
        let mut path = open_from(config.path, |name| {
            let opened = open_path(name, store.pool(), &remote.waker);
            let failed = |error| {
                bump(&remote.shared.demotions, 1);
                demoted(name, error);
            };
            opened.map_err(failed).ok()
        });
        remote.shared.set_path(path.name());
        let places = path.register_files(config.streams_max);
        remote.shared.places.store(places, Ordering::Relaxed);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        remote
            .shared
            .thread
            .store(thread.unsigned_abs(), Ordering::Relaxed);
        let now_ns = remote.clock.now_ns();
        let tick_ns = tick_ns(config);
        let tick_bytes_max = (STREAM_RATE_MAX / 8).saturating_mul(tick_ns) / 1_000_000_000;
        let chunk_bytes = store.pool().chunk_bytes() as u64;
        let streams_max = config.streams_max as usize;
        let slab = HeaderSlab::take_from(store.pool());
        let has_own_headers = &remote.shared.has_own_headers;
        has_own_headers.store(slab.is_some(), Ordering::Relaxed);
        let is_zero_copy = path.vectored() == Vectored::ZeroCopy;
        let zero_copy = &remote.shared.own_headers_zero_copy;
        zero_copy.store(is_zero_copy, Ordering::Relaxed);
        Self {
            renumbers: slab.is_some() && config.headers != RtpHeaders::Shared,
            slab,
            path,
            retired: None,
            open_path,
            wheel: Wheel::new(config.streams_max, WHEEL_SLOTS, tick_ns, now_ns),
            streams: (0..streams_max).map(|_| None).collect(),
            places,
            flights: Flights::new(),
            // Two bursts may be one train.
            batch: Vec::with_capacity(2 * IN_FLIGHT_TRAINS_MAX),
            due: Vec::with_capacity(streams_max),
            tick_ns,
            wakes_ns: u64::MAX,
            joins_until_ns: 0,
            join_before_ns: 0,
            chunks_per_tick_max: BURSTS_PER_TICK_MAX + tick_bytes_max / chunk_bytes,
            lag_ns_max: signed(nanos(config.lag_max)),
            refused_ns_max: nanos(config.refused_time_max),
            counted: Account {
                at_ns: now_ns,
                cpu_ns: remote.clock.cpu_ns(),
                ..Account::default()
            },
            trains_per_stream_max: config.trains_per_stream_max,
            opened: 0,
            shedding: Shedding::new(config.load_max_permille),
            stopping: false,
            faults: config.faults,
            bursts: 0,
            store,
            remote,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            self.take_commands();
            if self.stopping {
                break;
            }
            let now_ns = self.now_ns();
            self.send_due(now_ns);
            self.count_cpu(now_ns);
            let deadline_ns = self.deadline(now_ns);
            self.wakes_ns = deadline_ns.unwrap_or(u64::MAX);
            self.hand_over(|path| path.submit_and_sleep(deadline_ns));
            bump(&self.remote.shared.ticks, 1);
            self.publish();
        }
        self.wind_up();
    }

    fn take_commands(&mut self) {
        while let Some(command) = self.remote.commands.pop() {
            match command {
                Command::Open {
                    stream,
                    shared,
                    socket,
                } => self.open_stream(stream, shared, socket),
                Command::Play { stream, play, pin } => self.play(stream, play, pin),
                Command::Pause { stream } => self.pause(stream),
                Command::StopBefore { stream, packet } => self.stop_before(stream, packet),
                Command::Close { stream } => self.close(stream),
                Command::Leave { stream, leaving } => self.leave(stream, leaving),
                Command::Stop => self.stopping = true,
            }
        }
    }

    fn open_stream(&mut self, number: u32, shared: Arc<StreamShared>, socket: UdpSocket) {
        let place = &mut self.streams[number as usize];
        assert!(place.is_none(), "a stream number belongs to one stream");
        // It was made ready for the path of a moment ago.
        if !self.path.name().segments() {
            prepare(self.path.name(), &socket, shared.segment_bytes);
        }
        let is_kept =
            number < self.places && self.path.install_file(number, socket.as_fd()).is_ok();
        let socket = (!is_kept).then_some(socket);
        *place = Some(Stream::new(shared, socket, self.opened));
        self.opened += 1;
    }

    fn play(&mut self, number: u32, play: Play, pin: Option<Pin>) {
        let Some(stream) = self.streams[number as usize].as_mut() else {
            if let Some(pin) = pin {
                self.store.pool().unpin(pin);
            }
            return;
        };
        stream.reader.start(
            &stream.shared,
            &self.store,
            play.from,
            play.stop_before,
            pin,
        );
        if !std::mem::replace(&mut stream.playing, true) {
            bump(&self.remote.shared.playing, 1);
            stream.demand = stream.shared.demand();
            self.shedding.asked += stream.demand.work();
        }
        if self.renumbers {
            stream.renumber(&play);
        }
        stream.pausing_until_ns = None;
        stream.finishing = false;
        stream.refused_since_ns = 0;
        // A burst that a seek cuts was due before the first of its packets that is sent.
        stream.hold_until_ns = signed(play.start_ns);
        (stream.epoch_ns, stream.moved_ns) = (play.epoch_ns, play.moved_ns);
        stream
            .shared
            .epoch_ns
            .store(stream.epoch_ns, Ordering::Relaxed);
        stream
            .shared
            .next_packet
            .store(play.from, Ordering::Relaxed);
        stream.shared.take_play();
        self.wheel.insert(number, play.start_ns);
    }

    /// Stops a stream. That it is paused is said once the kernel has let go of its last train.
    fn pause(&mut self, number: u32) {
        let until_ns = self.now_ns() + nanos(PAUSE_TIME_MAX);
        let Some(stream) = self.streams[number as usize].as_mut().filter(|s| s.playing) else {
            return;
        };
        if stream.trains == 0 {
            return self.end(number, State::Paused);
        }
        stream.playing = false;
        stream.pausing_until_ns = Some(until_ns);
        stream.reader.put_down(&self.store);
        self.shedding.gone(stream, &self.remote.shared);
        drop_one(&self.remote.shared.playing);
        // Looked at again soon, so that the worker wakes.
        self.wheel
            .insert(number, self.now_ns() + self.pause_look_ns());
    }

    /// Says that a stream is paused, if the kernel holds nothing of it or has held it for too long.
    pub(super) fn look_at_paused(&mut self, number: u32) {
        let now_ns = self.now_ns();
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        let Some(until_ns) = stream.pausing_until_ns else {
            return;
        };
        if stream.trains == 0 || now_ns >= until_ns {
            stream.tell_paused();
            self.wheel.remove(number);
        } else {
            self.wheel.insert(number, now_ns + self.pause_look_ns());
        }
    }

    fn pause_look_ns(&self) -> u64 {
        self.tick_ns.min(COMMAND_WAIT_NS_MAX)
    }

    pub(super) fn end(&mut self, number: u32, state: State) {
        self.wheel.remove(number);
        if let Some(stream) = self.streams[number as usize].as_mut()
            && std::mem::take(&mut stream.playing)
        {
            stream.reader.put_down(&self.store);
            self.shedding.gone(stream, &self.remote.shared);
            stream.shared.set_state(state);
            drop_one(&self.remote.shared.playing);
        }
    }

    fn stop_before(&mut self, number: u32, packet: u64) {
        if let Some(stream) = self.streams[number as usize].as_mut() {
            stream.reader.set_stop_before(packet);
            stream.finishing = false;
        }
    }

    fn close(&mut self, number: u32) {
        self.wheel.remove(number);
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        stream.reader.put_down(&self.store);
        stream.closing = true;
        if std::mem::take(&mut stream.playing) {
            self.shedding.gone(stream, &self.remote.shared);
            drop_one(&self.remote.shared.playing);
        }
        if stream.trains == 0 {
            self.forget(number);
        }
    }

    /// Once a second, because it enters the kernel.
    fn count_cpu(&mut self, now_ns: u64) {
        if now_ns - self.counted.at_ns < CPU_COUNT_NS {
            return;
        }
        let shared = &self.remote.shared;
        let account = Account {
            at_ns: now_ns,
            cpu_ns: self.remote.clock.cpu_ns(),
            trains: shared.trains.load(Ordering::Relaxed),
            packets: shared.packets.load(Ordering::Relaxed),
            bursts: shared.bursts.load(Ordering::Relaxed),
            bursts_late: shared.bursts_late.load(Ordering::Relaxed),
            bursts_joined: shared.bursts_joined.load(Ordering::Relaxed),
            bursts_held_up: self.shedding.held_up,
        };
        shared.cpu_ns.store(account.cpu_ns, Ordering::Relaxed);
        shared.admission.tell(self.counted, account);
        let before = std::mem::replace(&mut self.counted, account);
        self.relieve(before, account);
    }

    fn now_ns(&self) -> u64 {
        self.remote.clock.now_ns()
    }

    fn publish(&self) {
        let (shared, counters) = (&self.remote.shared, self.path.counters());
        shared
            .crossings
            .store(counters.crossings, Ordering::Relaxed);
        shared.trains.store(counters.trains, Ordering::Relaxed);
        shared
            .trains_zero_copy
            .store(counters.trains_zero_copy, Ordering::Relaxed);
        shared
            .trains_copied
            .store(counters.trains_copied, Ordering::Relaxed);
        shared
            .trains_single
            .store(counters.trains_single, Ordering::Relaxed);
        shared
            .trains_own_headers
            .store(counters.trains_own_headers, Ordering::Relaxed);
        shared
            .in_flight
            .store(self.flights.in_flight() as u64, Ordering::Relaxed);
    }

    /// When to wake: for the next tick with work, but soon enough for commands, which do not end a
    /// sleep with a deadline. Without any work, only for a command or a completion.
    fn deadline(&self, now_ns: u64) -> Option<u64> {
        let commands_ns = now_ns + (self.tick_ns * TICKS_PER_BURST).min(COMMAND_WAIT_NS_MAX);
        // A retired path has no sleep of its own to end when its last trains come back.
        let retired_ns = self.retired.as_ref().map(|_| commands_ns);
        self.wheel
            .next_ns()
            .or(retired_ns)
            .map(|next_ns| next_ns.min(commands_ns))
    }

    /// Puts all streams down and waits, not for ever, until the kernel has let go of the memory.
    fn wind_up(&mut self) {
        for stream in self.streams.iter_mut().flatten() {
            stream.playing = false;
            stream.reader.put_down(&self.store);
        }
        self.remote.shared.playing.store(0, Ordering::Relaxed);
        for _ in 0..100 {
            if self.flights.in_flight() == 0 {
                break;
            }
            let soon_ns = self.now_ns() + 10_000_000;
            self.hand_over(|path| path.submit_and_sleep(Some(soon_ns)));
        }
        self.remote
            .shared
            .cpu_ns
            .store(self.remote.clock.cpu_ns(), Ordering::Relaxed);
        self.publish();
    }
}

impl Drop for Worker {
    /// Also when the worker panics: nobody shall wait for a stream that nobody sends. Chunks in
    /// flight stay pinned then, because the kernel may be reading them.
    fn drop(&mut self) {
        if std::thread::panicking() {
            error!("an engine has panicked: its sessions end, and it takes no more");
        }
        self.remote.stop();
        for stream in self.streams.iter_mut().flatten() {
            stream.reader.put_down(&self.store);
            stream.shared.set_state(State::Stopped);
        }
        while let Some(command) = self.remote.commands.pop() {
            match command {
                Command::Open { shared, .. } => shared.set_state(State::Stopped),
                Command::Play { pin: Some(pin), .. } => self.store.pool().unpin(pin),
                _ => {}
            }
        }
    }
}

impl Stream {
    fn new(shared: Arc<StreamShared>, socket: Option<UdpSocket>, order: u64) -> Self {
        let (demand, numbering) = (shared.demand(), shared.numbering.get());
        Self {
            shared,
            socket,
            demand,
            numbering,
            pausing_until_ns: None,
            order,
            is_shed: false,
            waited_until_ns: i64::MIN,
            trains: 0,
            closing: false,
            leaving: None,
            playing: false,
            finishing: false,
            waited_for_growth: false,
            reader: Reader::default(),
            epoch_ns: 0,
            moved_ns: 0,
            hold_until_ns: i64::MIN,
            refused_since_ns: 0,
        }
    }

    /// Before it plays from packet `from`: its numbers go on where they were.
    fn renumber(&mut self, play: &Play) {
        let shared = &self.shared;
        if shared.has_been_taken() {
            let (source, from) = (&shared.source, play.from);
            let end = shared.next_packet.load(Ordering::Relaxed);
            self.numbering = match source.try_plan() {
                Some(plan) => jumped(self.numbering, source, &plan, end, from),
                // A longer one is being published. What was foretold is the same, but for a stream
                // that was not paused before.
                None => play.numbering,
            };
            shared.numbering.set(self.numbering);
        }
    }

    /// Says that it is paused, if it was told to pause and has not said so.
    pub(super) fn tell_paused(&mut self) {
        if self.pausing_until_ns.take().is_some() {
            self.shared.set_state(State::Paused);
        }
    }

    fn set_errno(&self, errno: i32) {
        let errno = errno.unsigned_abs();
        self.shared.errno.store(errno, Ordering::Relaxed);
    }
}

/// Length of a tick.
pub(super) fn tick_ns(config: &EngineConfig) -> u64 {
    (nanos(config.burst) / TICKS_PER_BURST).max(1)
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Times are below 2^63 ns (292 years) in practice; beyond, they are as far away as can be said.
pub(super) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or(0)
}
