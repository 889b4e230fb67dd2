//! The loop of one core.
//!
//! Each turn: take commands, take from the wheel what is due in this tick, turn it into trains, hand all of
//! them over and sleep in the same crossing, and on waking take the completions. Nothing here allocates,
//! locks or logs while streams play; all memory is taken in [`Worker::open`].

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onrush_sys::clock::{monotonic_ns, sleep_until_ns, thread_cpu_ns};
use onrush_sys::path::{
    Completion, IN_FLIGHT_TRAINS_MAX, Path, PathError, PathName, To, Train, prepare_socket,
};
use onrush_sys::pool::Pin;
use onrush_wire::pace::Wheel;
use tracing::{debug, error, warn};

use super::admission::{Account, Demand, LATE_NS};
use super::flights::{Flight, Flights};
use super::moving::Leaving;
use super::reader::{NotReady, Reader, images_per_train};
use super::shared::{State, StreamShared, bump, drop_one};
use super::shedding::Shedding;
use super::{Command, EngineConfig, OpenPath, Play, Remote, STREAM_RATE_MAX};
use crate::faults::{Fault, Faults};
use crate::store;
use crate::store::layout::ImageBurst;

/// Ticks in a burst. A tick is what a burst may be early by, and what bounds the number of crossings.
pub(super) const TICKS_PER_BURST: u64 = 4;

/// Slots of the wheel: at the default burst it turns in 2.5 s.
const WHEEL_SLOTS: u32 = 512;

/// Bursts of one stream in one tick, whole or what a chunk's end has left of them: one that is due, and one to catch up.
const BURSTS_PER_TICK_MAX: u64 = 2;

/// With fewer streams due than this it is not for its work that the worker is behind, and bursts are not joined.
const JOIN_DUE_MIN: usize = 100;

/// For so long after it was behind bursts are joined.
const JOIN_NS: u64 = 1_000_000_000;

/// How long a command waits at the most, however long a burst is.
const COMMAND_WAIT_NS_MAX: u64 = 100_000_000;

/// How long the worker rests after a crossing that failed.
pub(super) const REFUSED_PAUSE_NS: u64 = 5_000_000;

/// How often the worker's processor time is read.
const CPU_COUNT_NS: u64 = 1_000_000_000;

/// With planted faults: every so many bursts.
const FAULT_EVERY: u64 = 20;

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
    /// Control has let go of it. It leaves with its last train: until then its number and its socket are
    /// taken, so that no train meets a successor's.
    closing: bool,
    /// It goes to another engine, likewise with its last train.
    pub(super) leaving: Option<Box<Leaving>>,
    pub(super) playing: bool,
    /// It plays, but is not sent: see [`shedding`](super::shedding).
    pub(super) is_shed: bool,
    /// Until when it waited for its chunk or for the device: what was due before is not late because of this worker.
    waited_until_ns: i64,
    /// What it asks for.
    pub(super) demand: Demand,
    /// How many were opened before it.
    pub(super) order: u64,
    /// All is queued; the end is told at the next tick, when it has left.
    finishing: bool,
    pub(super) reader: Reader,
    /// When media time 0 was due.
    pub(super) epoch_ns: i64,
    /// No burst leaves before.
    pub(super) hold_until_ns: i64,
    /// Since when the kernel has refused every train; 0 if the last was taken.
    refused_since_ns: u64,
}

/// Of one stream: its own, and its places on the wheel (24 bytes) and in the list of those that are due.
#[cfg(test)]
pub(super) const BYTES_PER_STREAM: usize = size_of::<Option<Stream>>() + 24 + size_of::<u32>();

/// What happened to a stream when it was its turn.
enum Turn {
    /// A burst is queued. What is due at that media time or later may not leave in the same tick.
    Queued(u64),
    /// Come back at that time.
    Later(i64),
    /// It is over.
    Over(State),
    /// It was paused or closed by what happened since its turn came.
    Gone,
}

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
        let places = path.make_places(config.streams_max);
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
        Self {
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
                cpu_ns: thread_cpu_ns(),
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
                    demand,
                } => self.open_stream(stream, shared, socket, demand),
                Command::Play { stream, play, pin } => self.play(stream, play, pin),
                Command::Pause { stream } => self.end(stream, State::Paused),
                Command::Close { stream } => self.close(stream),
                Command::Leave { stream, leaving } => self.leave(stream, leaving),
                Command::Stop => self.stopping = true,
            }
        }
    }

    fn open_stream(
        &mut self,
        number: u32,
        shared: Arc<StreamShared>,
        socket: UdpSocket,
        demand: Demand,
    ) {
        let place = &mut self.streams[number as usize];
        assert!(place.is_none(), "a stream number belongs to one stream");
        // It was made ready for the path of a moment ago.
        if !self.path.name().segments() {
            prepare(self.path.name(), &socket, shared.stride);
        }
        let is_kept = number < self.places && self.path.keep(number, socket.as_fd()).is_ok();
        let socket = (!is_kept).then_some(socket);
        *place = Some(Stream::new(shared, socket, demand, self.opened));
        self.opened += 1;
    }

    /// Queues all that is due in the tick that begins now.
    fn send_due(&mut self, now_ns: u64) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.take_due(now_ns, &mut due);
        let tick_end_ns = signed((now_ns / self.tick_ns + 1) * self.tick_ns);
        let ahead_ns = self.join_ahead_ns(now_ns, due.len());
        self.join_before_ns = tick_end_ns.saturating_add(ahead_ns);
        for number in due.drain(..) {
            self.send_stream(number, signed(now_ns), tick_end_ns);
        }
        self.due = due;
    }

    /// How much of what is due after this tick may leave in it: nothing, but for a second after the worker was behind by
    /// more than a tick with many `due`. Then a burst, because a train of two costs hardly more than a train of one, and
    /// who was sent two bursts asks for nothing during one. So what is too much leaves in larger pieces before it is late.
    fn join_ahead_ns(&mut self, now_ns: u64, due: usize) -> i64 {
        let is_behind = now_ns.saturating_sub(self.wakes_ns) > self.tick_ns;
        if is_behind && due >= JOIN_DUE_MIN {
            self.joins_until_ns = now_ns + JOIN_NS;
        }
        match now_ns < self.joins_until_ns {
            true => signed(self.tick_ns * TICKS_PER_BURST),
            false => 0,
        }
    }

    /// Queues what this stream owes, and puts it back on the wheel for the next.
    fn send_stream(&mut self, number: u32, now_ns: i64, tick_end_ns: i64) {
        if self.streams[number as usize]
            .as_ref()
            .is_some_and(|s| s.is_shed)
        {
            return self.skip(number, now_ns);
        }
        let mut media_end_ns = u64::MAX;
        for _ in 0..self.chunks_per_tick_max {
            match self.send_burst(number, now_ns, tick_end_ns, media_end_ns) {
                Turn::Queued(end_ns) => media_end_ns = end_ns,
                Turn::Later(due_ns) => return self.wheel.insert(number, unsigned(due_ns)),
                Turn::Over(state) => return self.end(number, state),
                Turn::Gone => return,
            }
        }
        self.wheel.insert(number, unsigned(tick_end_ns));
    }

    /// Queues the next burst, if it is due in this tick and before `media_end_ns` of the media.
    fn send_burst(
        &mut self,
        number: u32,
        now_ns: i64,
        tick_end_ns: i64,
        media_end_ns: u64,
    ) -> Turn {
        let Some(stream) = self.streams[number as usize].as_mut().filter(|s| s.playing) else {
            return Turn::Gone;
        };
        let burst = match stream.reader.burst(&stream.shared, &self.store) {
            Ok(Some(burst)) => burst,
            // All is queued. What was queued last has left by the next tick.
            Ok(None) if std::mem::replace(&mut stream.finishing, true) => {
                return Turn::Over(State::Finished);
            }
            Ok(None) => return Turn::Later(tick_end_ns),
            Err(NotReady::Never) => return Turn::Over(State::MediaFailed),
            Err(NotReady::Yet) => {
                stream.waited_until_ns = now_ns;
                bump(&stream.shared.underruns, 1);
                bump(&self.remote.shared.underruns, 1);
                return Turn::Later(tick_end_ns);
            }
        };
        let mut due_ns = stream.epoch_ns.saturating_add(signed(burst.due_ns));
        due_ns = due_ns.max(stream.hold_until_ns);
        if due_ns >= tick_end_ns || burst.due_ns >= media_end_ns {
            return Turn::Later(due_ns);
        }
        let late_ns = now_ns - due_ns;
        if late_ns > self.lag_ns_max {
            // Too much to catch up with in small steps: the client's clock moves on instead.
            stream.epoch_ns = stream.epoch_ns.saturating_add(late_ns);
            stream
                .shared
                .epoch_ns
                .store(stream.epoch_ns, Ordering::Relaxed);
            bump(&self.remote.shared.lags, 1);
        }
        let burst_ns = TICKS_PER_BURST * self.tick_ns;
        let last_ns = (burst.due_ns / burst_ns + BURSTS_PER_TICK_MAX).saturating_mul(burst_ns);
        let media_end_ns = media_end_ns.min(last_ns);
        let joined = stream.joined(&burst, &self.store, self.join_before_ns, media_end_ns);
        let images = burst.images + joined.map_or(0, |joined| joined.images);
        if !self.make_room(number, images) {
            bump(&self.remote.shared.flights_full, 1);
            if let Some(stream) = self.streams[number as usize].as_mut() {
                stream.waited_until_ns = now_ns;
            }
            return Turn::Later(tick_end_ns);
        }
        self.queue(number, ImageBurst { images, ..burst });
        self.batch.push((number, due_ns));
        if let Some(joined) = joined {
            let later_ns = signed(joined.due_ns - burst.due_ns);
            self.batch.push((number, due_ns.saturating_add(later_ns)));
            bump(&self.remote.shared.bursts_joined, 1);
        }
        Turn::Queued(media_end_ns)
    }

    /// Whether a burst of that many images can be queued whole, if need be after a crossing.
    fn make_room(&mut self, number: u32, images: u32) -> bool {
        let stride = self.streams[number as usize]
            .as_ref()
            .map_or(1, |s| s.shared.stride);
        let trains = images.div_ceil(images_per_train(stride)) as usize;
        if !self.within_share(number, trains) {
            return false;
        }
        // One more, for a fault that repeats a packet.
        let trains = trains + 1;
        let room = |worker: &Self| worker.path.room().min(worker.flights.room());
        if room(self) < trains {
            self.hand_over(|path| path.submit());
        }
        room(self) >= trains
    }

    /// Whether the kernel holds so few trains of the stream that these may go as well. A burst that is longer
    /// than a stream's share goes alone.
    fn within_share(&self, number: u32, trains: usize) -> bool {
        let held = self.streams[number as usize]
            .as_ref()
            .map_or(0, |s| s.trains);
        held == 0 || held as usize + trains <= self.trains_per_stream_max as usize
    }

    /// Queues a burst as trains.
    fn queue(&mut self, number: u32, burst: ImageBurst) {
        self.bursts += 1;
        let faulty = |fault| self.faults.has(fault) && self.bursts.is_multiple_of(FAULT_EVERY);
        // Making room may have ended the stream.
        let Some(stream) = self.streams[number as usize].as_mut().filter(|s| s.playing) else {
            return;
        };
        let dropped = u32::from(faulty(Fault::DropPacket) && burst.images > 1);
        let repeated = faulty(Fault::RepeatPacket).then_some((burst.images - 1, 1));
        let pieces = train_pieces(
            burst.images - dropped,
            images_per_train(stream.shared.stride),
        );
        for (first, images) in pieces.chain(repeated) {
            let span =
                stream
                    .reader
                    .images(&stream.shared, &self.store, burst.first + first, images);
            let token = self.flights.take(Flight {
                stream: number,
                packets: images,
                bytes: span.bytes,
                pin: Some(span.pin),
            });
            stream.trains += 1;
            self.path.queue(Train {
                to: stream.to(number),
                offset: span.offset,
                bytes: span.bytes,
                stride: stream.shared.stride,
                token,
            });
        }
        stream.reader.advance(burst.first + burst.images);
        stream
            .shared
            .next_packet
            .store(stream.reader.next_packet(), Ordering::Relaxed);
        if faulty(Fault::LateBurst) {
            stream.hold_until_ns = signed(self.remote.clock.now_ns()).saturating_add(200_000_000);
        }
    }

    /// Hands over what is queued by `crossing`, and takes what has come back.
    fn hand_over(&mut self, crossing: impl FnOnce(&mut dyn Path) -> io::Result<()>) {
        let left_ns = signed(self.now_ns());
        self.remote.shared.count_batch(self.batch.len());
        for (number, due_ns) in self.batch.drain(..) {
            let late_ns = left_ns - due_ns;
            self.remote.shared.count_lateness(late_ns);
            if let Some(stream) = &mut self.streams[number as usize] {
                stream.shared.count_lateness(late_ns);
                let is_held_up = late_ns > LATE_NS && due_ns > stream.waited_until_ns;
                self.shedding.held_up += u64::from(is_held_up);
            }
        }
        if let Err(error) = crossing(&mut *self.path) {
            // Nothing of what we ask can fail but for a lack of memory, which does not pass at once.
            warn!(path = %self.path.name(), %error, "a batch was not handed over; trying again");
            sleep_until_ns(monotonic_ns() + REFUSED_PAUSE_NS);
        }
        while let Some(completion) = self.path.completion() {
            self.complete(completion);
        }
        if self.retired.is_some() {
            self.drain_retired();
        }
    }

    fn complete(&mut self, completion: Completion) {
        let Completion {
            token,
            sent,
            released,
            ..
        } = completion;
        let flight = self.flights.get(token);
        let number = flight.stream;
        let (packets, bytes) = (u64::from(flight.packets), u64::from(flight.bytes));
        if (released || self.faults.has(Fault::ReleaseEarly))
            && let Some(pin) = flight.pin.take()
        {
            self.store.pool().unpin(pin);
        }
        if released {
            self.flights.give_back(token);
        }
        if let Some(errno) = sent {
            self.answered(number, errno, packets, bytes);
        }
        if released {
            self.landed(number);
        }
    }

    /// The kernel has taken a train, or not.
    fn answered(&mut self, number: u32, errno: i32, packets: u64, bytes: u64) {
        let counters = &self.remote.shared;
        if errno == 0 {
            bump(&counters.packets, packets);
            bump(&counters.bytes, bytes);
        } else {
            bump(&counters.packets_refused, packets);
        }
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        if errno == 0 {
            bump(&stream.shared.packets, packets);
            bump(&stream.shared.bytes, bytes);
            stream.refused_since_ns = 0;
        } else {
            bump(&stream.shared.packets_refused, packets);
            self.refused(number, errno);
        }
    }

    /// One train of the stream less is in flight.
    fn landed(&mut self, number: u32) {
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        stream.trains -= 1;
        if stream.trains > 0 {
            return;
        }
        if stream.leaving.is_some() {
            self.depart(number);
        } else if stream.closing {
            self.forget(number);
        }
    }

    /// The stream has gone, and its last train with it.
    fn forget(&mut self, number: u32) {
        let stream = self.streams[number as usize].take();
        if stream.is_some_and(|stream| stream.socket.is_none()) {
            self.path.let_go(number);
        }
        self.remote.closed(number);
    }

    /// The kernel refused a train: that is this stream's trouble alone, unless it is the path's.
    fn refused(&mut self, number: u32, errno: i32) {
        if errno == libc::EIO && self.path.name().segments() {
            return self.demote();
        }
        let now_ns = self.now_ns();
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        stream.set_errno(errno);
        if stream.refused_since_ns == 0 {
            stream.refused_since_ns = now_ns;
        }
        // A packet larger than the path's MTU by now stays larger for ever.
        let for_good = matches!(errno, libc::EMSGSIZE | libc::EINVAL);
        if for_good || now_ns - stream.refused_since_ns > self.refused_ns_max {
            self.end(number, State::SendFailed);
        }
    }

    /// Goes on without trains: the device, or the way to it, does not take them (net/ipv4/udp.c,
    /// `udp_send_skb`: EIO). Out loud, and once.
    fn demote(&mut self) {
        if self.retired.is_some() {
            return;
        }
        let from = self.path.name();
        let path = open_from(PathName::Sendmmsg, |name| {
            (self.open_path)(name, self.store.pool(), &self.remote.waker).ok()
        });
        let to = path.name();
        warn!(%from, %to, "the device takes no trains (EIO): packets are sent singly from now on");
        let mut retired = std::mem::replace(&mut self.path, path);
        self.remote.shared.set_path(to);
        bump(&self.remote.shared.demotions, 1);
        self.places = 0;
        self.remote.shared.places.store(0, Ordering::Relaxed);
        for number in 0..u32::try_from(self.streams.len()).expect("streams have 32 bits") {
            self.take_back(number, &mut *retired);
        }
        self.retired = Some(retired);
    }

    /// Gives a stream's socket a descriptor again, if it has none, and readies it for the path of now.
    fn take_back(&mut self, number: u32, retired: &mut dyn Path) {
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        if stream.socket.is_none() {
            match retired.descriptor(number) {
                Ok(socket) => stream.socket = Some(socket.into()),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    stream.set_errno(errno);
                    return self.end(number, State::SendFailed);
                }
            }
        }
        if let Some(socket) = &stream.socket {
            prepare(self.path.name(), socket, stream.shared.stride);
        }
    }

    /// Takes what is still in flight on a path that was given up.
    fn drain_retired(&mut self) {
        let Some(mut retired) = self.retired.take() else {
            return;
        };
        if let Err(error) = retired.submit() {
            debug!(%error, "a retired path could not be entered");
        }
        let completions: Vec<_> = std::iter::from_fn(|| retired.completion()).collect();
        if retired.in_flight() > 0 {
            self.retired = Some(retired);
        }
        for completion in completions {
            self.complete(completion);
        }
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
            self.shedding.asked += stream.demand.work();
        }
        stream.finishing = false;
        stream.refused_since_ns = 0;
        // A burst that a seek cuts was due before the first of its packets that is sent.
        stream.hold_until_ns = signed(play.start_ns);
        stream.epoch_ns = play.epoch_ns;
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
            cpu_ns: thread_cpu_ns(),
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
            .in_flight
            .store(self.flights.in_flight() as u64, Ordering::Relaxed);
    }

    /// When to wake: for the next tick with work, but soon enough for commands, which do not end a sleep
    /// with a deadline. Without any work, only for a command or a completion.
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
            .store(thread_cpu_ns(), Ordering::Relaxed);
        self.publish();
    }
}

impl Drop for Worker {
    /// Also when the worker panics: nobody shall wait for a stream that nobody sends. Chunks in flight stay
    /// pinned then, because the kernel may be reading them.
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
    fn new(
        shared: Arc<StreamShared>,
        socket: Option<UdpSocket>,
        demand: Demand,
        order: u64,
    ) -> Self {
        Self {
            shared,
            socket,
            demand,
            order,
            is_shed: false,
            waited_until_ns: i64::MIN,
            trains: 0,
            closing: false,
            leaving: None,
            playing: false,
            finishing: false,
            reader: Reader::default(),
            epoch_ns: 0,
            hold_until_ns: i64::MIN,
            refused_since_ns: 0,
        }
    }

    /// The burst after `burst`, if the two are to leave in one train: it is due before `before_ns`, and before
    /// `media_end_ns` of the media.
    fn joined(
        &self,
        burst: &ImageBurst,
        store: &store::Shared,
        before_ns: i64,
        media_end_ns: u64,
    ) -> Option<ImageBurst> {
        let next = self.reader.following(&self.shared, store, burst)?;
        let due_ns = self.epoch_ns.saturating_add(signed(next.due_ns));
        (due_ns < before_ns && next.due_ns < media_end_ns).then_some(next)
    }

    /// Where the trains of stream `number`, which this is, go.
    fn to(&self, number: u32) -> To {
        self.socket.as_ref().map_or(To::Place(number), |socket| {
            To::Descriptor(socket.as_raw_fd())
        })
    }

    fn set_errno(&self, errno: i32) {
        let errno = errno.unsigned_abs();
        self.shared.errno.store(errno, Ordering::Relaxed);
    }
}

/// Readies a stream's socket once more, for another path.
fn prepare(path: PathName, socket: &UdpSocket, stride: u16) {
    if let Err(error) = prepare_socket(path, socket.as_raw_fd(), stride) {
        debug!(%error, "a socket kept its options");
    }
}

/// Opens the path `first`, or the best after it that `open` yields.
fn open_from(
    first: PathName,
    mut open: impl FnMut(PathName) -> Option<Box<dyn Path>>,
) -> Box<dyn Path> {
    let mut name = first;
    loop {
        if let Some(path) = open(name) {
            return path;
        }
        name = name
            .next()
            .expect("sendto needs nothing and is always available");
    }
}

/// `images` cut into trains: the first image of each, and how many.
fn train_pieces(images: u32, images_per_train: u32) -> impl Iterator<Item = (u32, u32)> {
    let firsts = (0..images).step_by(images_per_train as usize);
    firsts.map(move |first| (first, images_per_train.min(images - first)))
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
