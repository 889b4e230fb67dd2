//! The loop of one core.
//!
//! Each turn: take commands, take the streams whose turn it is in this tick, make trains of what
//! they owe, hand all of them over and sleep in the same crossing, and on waking take what has come
//! back. While streams play nothing here allocates, waits for a lock or logs; all memory for that
//! is taken in [`Worker::open`], and as streams come. What happens seldom may: when a stream begins
//! or ends, the task that waits for it is woken, which takes locks that are held for a moment; and
//! a path that is given up costs the memory of the next.
//!
//! A worker has two halves that know nothing of each other: the [`StreamTable`] (who plays, what is
//! due when) and the [`Transmitter`] (the kernel's side). What is here and in the files that stand
//! on both ([`sending`], [`completing`], [`singly`], [`shedding`], [`leaving`]) goes between the
//! two.

mod completing;
mod connections;
mod encrypting;
mod entry;
mod framing;
mod leaving;
mod referring;
mod sealing;
mod sending;
mod shedding;
mod singly;
mod table;
mod transmitter;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onrush_sys::path::{IN_FLIGHT_TRAINS_MAX, PathError, PathName};
use onrush_sys::pool::Pin;
use onrush_wire::pace::LoadShedder;
use tracing::error;

use super::admission::Account;
use super::clock::TICKS_PER_BURST;
use super::numbering::RtpHeaders;
use super::shared::{State, StreamShared, bump};
use super::{Command, EngineConfig, Outlet, PAUSE_TIME_MAX, Play, Remote, STREAM_RATE_MAX};
use crate::experiments::Faults;
use crate::store;
use sending::BURSTS_PER_TICK_MAX;
use table::StreamTable;
use transmitter::Transmitter;

#[cfg(test)]
pub(super) use table::BYTES_PER_STREAM;
#[cfg(test)]
pub(super) use transmitter::REFUSED_PAUSE_NS;

/// How long a command waits at the most, however long a burst is.
const COMMAND_WAIT_NS_MAX: u64 = 100_000_000;

/// How often the worker's processor time is read.
const CPU_COUNT_NS: u64 = 1_000_000_000;

pub(super) struct Worker {
    streams: StreamTable,
    transmitter: Transmitter,
    store: Arc<store::Shared>,
    remote: Arc<Remote>,
    /// Stream and due time of the bursts that are queued and not handed over.
    batch: Vec<(u32, i64)>,
    /// Whose turn it is. Empty between ticks, and then room for any list of streams.
    due: Vec<u32>,
    /// Whether numbers go on after a jump.
    renumbers: bool,
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
    trains_per_stream_max: u32,
    counted: Account,
    /// Bursts that were late because of the worker.
    bursts_held_up: u64,
    /// How much to leave out when all are late.
    load_shedder: Option<LoadShedder>,
    stopping: bool,
    faults: Faults,
    /// Bursts that were queued so far: every so many a planted fault.
    bursts: u64,
}

impl Worker {
    pub(super) fn open(
        config: &EngineConfig,
        store: Arc<store::Shared>,
        remote: Arc<Remote>,
        demoted: impl FnMut(PathName, PathError),
    ) -> Self {
        let (its_store, its_remote) = (Arc::clone(&store), Arc::clone(&remote));
        let transmitter = Transmitter::open(config, its_store, its_remote, demoted);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        remote
            .shared
            .thread
            .store(thread.unsigned_abs(), Ordering::Relaxed);
        let now_ns = remote.clock.now_ns();
        let (its_store, its_remote) = (Arc::clone(&store), Arc::clone(&remote));
        let tick_ns = tick_ns(config);
        let tick_bytes_max = (STREAM_RATE_MAX / 8).saturating_mul(tick_ns) / 1_000_000_000;
        let chunk_bytes = store.pool().chunk_bytes() as u64;
        Self {
            renumbers: transmitter.has_slab() && config.headers != RtpHeaders::Shared,
            transmitter,
            streams: StreamTable::new(config, its_store, its_remote, now_ns),
            // Two bursts may be one train.
            batch: Vec::with_capacity(2 * IN_FLIGHT_TRAINS_MAX),
            due: Vec::new(),
            tick_ns,
            wakes_ns: u64::MAX,
            joins_until_ns: 0,
            join_before_ns: 0,
            chunks_per_tick_max: BURSTS_PER_TICK_MAX + tick_bytes_max / chunk_bytes,
            lag_ns_max: signed(nanos(config.lag_max)),
            refused_ns_max: nanos(config.refused_time_max),
            trains_per_stream_max: config.trains_per_stream_max,
            counted: Account {
                at_ns: now_ns,
                cpu_ns: remote.clock.cpu_ns(),
                ..Account::default()
            },
            bursts_held_up: 0,
            load_shedder: shedding::load_shedder(config.load_max_permille),
            stopping: false,
            faults: config.faults,
            bursts: 0,
            store,
            remote,
        }
    }

    pub(super) fn run(mut self) {
        while self.turn() {}
        self.wind_up();
    }

    /// Does what is due, and sleeps until more is. Whether it is to go on.
    fn turn(&mut self) -> bool {
        self.take_commands();
        let are_messages_left = self.transmitter.queue_messages();
        if self.stopping {
            return false;
        }
        let now_ns = self.now_ns();
        self.send_due(now_ns);
        self.count_cpu(now_ns);
        self.take_memory();
        if are_messages_left {
            self.send_messages_left(self.deadline(now_ns));
        }
        let deadline_ns = self.deadline(now_ns);
        // A crossing of this turn may have taken the wake of a command that came since it began.
        let is_told = !self.remote.commands.is_empty();
        let deadline_ns = deadline_ns.or_else(|| is_told.then_some(now_ns));
        self.wakes_ns = deadline_ns.unwrap_or(u64::MAX);
        self.hand_over(|path| path.submit_and_sleep(deadline_ns));
        bump(&self.remote.shared.ticks, 1);
        self.transmitter.publish();
        true
    }

    /// Sends the messages for which this turn's crossing has no room in crossings of their own, or
    /// each would wait for as long as it sleeps then; but no longer than until streams are due,
    /// when the next turn goes on with them. It ends, because each takes some of those that wait.
    fn send_messages_left(&mut self, deadline_ns: Option<u64>) {
        loop {
            self.hand_over(|path| path.submit());
            let is_due = deadline_ns.is_some_and(|deadline_ns| self.now_ns() >= deadline_ns);
            if is_due || !self.transmitter.queue_messages() {
                return;
            }
        }
    }

    /// Registers memory of the cache that has become ready: one piece a turn, after what is due has
    /// left.
    fn take_memory(&mut self) {
        if self.transmitter.has_memory_to_take() {
            self.hand_over(|path| path.submit());
            self.transmitter.take_memory();
        }
    }

    fn take_commands(&mut self) {
        while let Some(command) = self.remote.commands.pop() {
            match command {
                Command::Open {
                    stream,
                    shared,
                    outlet,
                } => self.open_stream(stream, shared, outlet),
                Command::Play { stream, play, pin } => {
                    self.streams.play(stream, &play, pin, self.renumbers);
                }
                Command::ChangeSource { stream, shared } => {
                    self.streams.change_source(stream, shared);
                }
                Command::Pause { stream } => self.pause(stream),
                Command::StopBefore { stream, packet } => self.stop_before(stream, packet),
                Command::Close { stream } => self.close(stream),
                Command::Leave { stream, leaving } => self.leave(stream, leaving),
                Command::OpenConnection {
                    connection,
                    shared,
                    socket,
                    sealer,
                } => {
                    let of = (socket, sealer);
                    self.transmitter.open_connection(connection, shared, of);
                }
                Command::Message {
                    connection,
                    message,
                } => self.transmitter.message(connection, message),
                Command::CloseConnection { connection } => {
                    self.transmitter.close_connection(connection);
                }
                Command::Stop => self.stopping = true,
            }
        }
    }

    fn open_stream(&mut self, number: u32, shared: Arc<StreamShared>, outlet: Outlet) {
        let segment_bytes = shared.segment_bytes;
        let outlet = match outlet {
            Outlet::Socket(socket) => self.transmitter.install(number, socket, segment_bytes),
            Outlet::Interleaved(framing) => self.transmitter.frame(number, framing),
        };
        self.streams.insert(number, shared, outlet);
        // It is empty, and no tick is to make it longer.
        self.due.reserve(self.streams.places());
    }

    /// Stops a stream. That it is paused is said once the kernel has let go of its last train; on a
    /// connection at once, because what is said there comes behind it.
    fn pause(&mut self, number: u32) {
        let now_ns = self.now_ns();
        let Some(stream) = self.streams.playing_mut(number) else {
            return;
        };
        if stream.trains == 0 || stream.framing().is_some() {
            return self.streams.end(number, State::Paused);
        }
        stream.pausing_until_ns = NonZeroU64::new(now_ns + nanos(PAUSE_TIME_MAX));
        self.streams.put_down(number);
        // Looked at again soon, so that the worker wakes.
        self.streams.wake_at(number, now_ns + self.pause_look_ns());
    }

    /// Says that a stream is paused, if the kernel holds nothing of it or has held it for too long.
    fn look_at_paused(&mut self, number: u32) {
        let now_ns = self.now_ns();
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        let Some(until_ns) = stream.pausing_until_ns else {
            return;
        };
        if stream.trains == 0 || now_ns >= until_ns.get() {
            stream.tell_paused();
            self.streams.cancel(number);
        } else {
            self.streams.wake_at(number, now_ns + self.pause_look_ns());
        }
    }

    fn pause_look_ns(&self) -> u64 {
        self.tick_ns.min(COMMAND_WAIT_NS_MAX)
    }

    fn stop_before(&mut self, number: u32, packet: u64) {
        if let Some(stream) = self.streams.get_mut(number) {
            stream.reader.set_stop_before(packet);
            stream.finishing = false;
        }
    }

    fn close(&mut self, number: u32) {
        self.streams.put_down(number);
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        stream.closing = true;
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
            bursts_held_up: self.bursts_held_up,
        };
        shared.cpu_ns.store(account.cpu_ns, Ordering::Relaxed);
        shared.admission.tell(self.counted, account);
        let before = std::mem::replace(&mut self.counted, account);
        self.shed_load(before, account);
    }

    fn now_ns(&self) -> u64 {
        self.remote.clock.now_ns()
    }

    /// When to wake: for the next tick with work, but soon enough for commands, which do not end a
    /// sleep with a deadline. Without any work, only for a command or a completion.
    fn deadline(&self, now_ns: u64) -> Option<u64> {
        let commands_ns = now_ns + (self.tick_ns * TICKS_PER_BURST).min(COMMAND_WAIT_NS_MAX);
        // A retired path has no sleep of its own to end when its last trains come back.
        let retired_ns = self.transmitter.is_draining().then_some(commands_ns);
        let next_ns = self.streams.next_ns().or(retired_ns);
        next_ns.map(|next_ns| next_ns.min(commands_ns))
    }

    /// Puts all streams down and waits, not for ever, until the kernel has let go of the memory.
    fn wind_up(&mut self) {
        self.streams.put_all_down();
        for _ in 0..100 {
            if self.transmitter.in_flight() == 0 {
                break;
            }
            let soon_ns = self.now_ns() + 10_000_000;
            self.hand_over(|path| path.submit_and_sleep(Some(soon_ns)));
        }
        let cpu_ns = &self.remote.shared.cpu_ns;
        cpu_ns.store(self.remote.clock.cpu_ns(), Ordering::Relaxed);
        self.transmitter.publish();
    }

    /// Gives back the chunk of a play that nobody takes up.
    fn give_back(&self, play: Option<(Play, Option<Pin>)>) {
        if let Some((_, Some(pin))) = play {
            self.store.pool().unpin(pin);
        }
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
        for (_, stream) in self.streams.iter_mut() {
            stream.reader.put_down(&self.store);
            stream.shared.set_state(State::Stopped);
        }
        while let Some(command) = self.remote.commands.pop() {
            match command {
                Command::Open { shared, .. } | Command::ChangeSource { shared, .. } => {
                    shared.set_state(State::Stopped);
                }
                Command::Play { play, pin, .. } => self.give_back(Some((play, pin))),
                _ => {}
            }
        }
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

#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
pub(crate) mod testing;
