//! What is due in a tick becomes trains: each stream's bursts, one or two, and its turn for the
//! next.

use std::sync::atomic::Ordering;

use onrush_wire::media::JOINED_NS_MAX;

use super::super::clock::TICKS_PER_BURST;
use super::super::reader::NotReady;
use super::super::shared::{State, bump};
use super::connections::Gate;
use super::{Worker, signed, unsigned};
use crate::experiments::Fault;
use crate::store::layout::Images;

/// Bursts of one stream in one tick, whole or what a chunk's end has left of them: one that is due,
/// and one to catch up.
pub(super) const BURSTS_PER_TICK_MAX: u64 = 2;

/// With fewer streams due than this it is not for its work that the worker is behind, and bursts
/// are not joined.
const JOIN_DUE_MIN: usize = 100;

/// For so long after it was behind bursts are joined.
const JOIN_NS: u64 = 1_000_000_000;

/// So many streams before its turn a stream's memory is asked for: what it takes to queue these is
/// about what memory takes to answer.
const AHEAD: usize = 4;

/// With planted faults: every so many bursts.
const FAULT_EVERY: u64 = 20;

/// What happened to a stream when it was its turn.
enum Turn {
    /// Images are queued.
    Queued(Queued),
    /// Come back at that time.
    Later(i64),
    /// It is over.
    Over(State),
    /// It was paused or closed by what happened since its turn came.
    Gone,
}

/// What was queued last of a stream in a tick.
#[derive(Clone, Copy)]
struct Queued {
    /// When it was due. What is due at the same media time belongs to the same burst.
    due_ns: u64,
    /// What is due at that media time or later may not leave in the same tick.
    media_end_ns: u64,
}

impl Worker {
    /// Queues all that is due in the tick that begins now.
    pub(super) fn send_due(&mut self, now_ns: u64) {
        let mut due = std::mem::take(&mut self.due);
        self.streams.take_due(now_ns, &mut due);
        let tick_end_ns = signed((now_ns / self.tick_ns + 1) * self.tick_ns);
        let ahead_ns = self.join_ahead_ns(now_ns, due.len());
        self.join_before_ns = tick_end_ns.saturating_add(ahead_ns);
        for (turn, &number) in due.iter().enumerate() {
            if let Some(&ahead) = due.get(turn + 2 * AHEAD) {
                self.streams.prefetch(ahead);
            }
            if let Some(&ahead) = due.get(turn + AHEAD) {
                self.streams.prefetch_shared(ahead);
            }
            self.send_stream(number, signed(now_ns), tick_end_ns);
        }
        due.clear();
        self.due = due;
    }

    /// How much of what is due after this tick may leave in it: nothing, but for a second after the
    /// worker was behind by more than a tick with many `due`. Then a burst, or a picture if that is
    /// longer, because a train of two costs hardly more than a train of one, and who was sent two
    /// asks for nothing during one. So what is too much leaves in larger pieces before it is late.
    fn join_ahead_ns(&mut self, now_ns: u64, due: usize) -> i64 {
        let is_behind = now_ns.saturating_sub(self.wakes_ns) > self.tick_ns;
        if is_behind && due >= JOIN_DUE_MIN {
            self.joins_until_ns = now_ns + JOIN_NS;
        }
        match now_ns < self.joins_until_ns {
            true => signed((self.tick_ns * TICKS_PER_BURST).max(JOINED_NS_MAX)),
            false => 0,
        }
    }

    /// Queues what this stream owes, and puts it back on the wheel for the next.
    fn send_stream(&mut self, number: u32, now_ns: i64, tick_end_ns: i64) {
        match self.streams.get(number) {
            Some(stream) if stream.is_shed && !stream.is_to_be_heard() => {
                return self.skip(number, now_ns);
            }
            Some(stream) if !stream.playing => return self.look_at_paused(number),
            _ => {}
        }
        let (mut queued, mut bursts) = (None, 0);
        loop {
            match self.send_burst(number, now_ns, tick_end_ns, queued) {
                Turn::Queued(now) => {
                    bursts += u64::from(queued.is_none_or(|before| before.due_ns != now.due_ns));
                    let is_last = bursts >= self.chunks_per_tick_max;
                    // Of the last burst, all.
                    let media_end_ns = match is_last {
                        true => now.media_end_ns.min(now.due_ns + 1),
                        false => now.media_end_ns,
                    };
                    queued = Some(Queued {
                        media_end_ns,
                        ..now
                    });
                }
                Turn::Later(due_ns) => return self.streams.wake_at(number, unsigned(due_ns)),
                // What was queued has left by the next tick, and counts.
                Turn::Over(_) if queued.is_some() => {
                    return self.streams.wake_at(number, unsigned(tick_end_ns));
                }
                Turn::Over(state) => return self.streams.end(number, state),
                Turn::Gone => return,
            }
        }
    }

    /// Queues the next images, if they are due in this tick and may leave in it after what was
    /// queued `before`.
    fn send_burst(
        &mut self,
        number: u32,
        now_ns: i64,
        tick_end_ns: i64,
        before: Option<Queued>,
    ) -> Turn {
        let media_end_ns = before.map_or(u64::MAX, |before| before.media_end_ns);
        let (burst, due_ns) = match self.next_burst(number, now_ns, tick_end_ns) {
            Ok(next) => next,
            Err(turn) => return turn,
        };
        if due_ns >= tick_end_ns || burst.due_ns >= media_end_ns {
            return Turn::Later(due_ns);
        }
        if let Some(turn) = self.wait_for_client(number, &burst, now_ns, tick_end_ns) {
            return turn;
        }
        let Some(stream) = self.streams.playing_mut(number) else {
            return Turn::Gone;
        };
        let waited_for_client = std::mem::take(&mut stream.waited_for_client);
        let late_ns = now_ns - due_ns;
        if late_ns > self.lag_ns_max {
            // Too much to catch up with in small steps: the client's clock moves on instead.
            stream.move_clock(late_ns);
            let shared = &self.remote.shared;
            match waited_for_client {
                true => bump(&shared.stalls, 1),
                false => bump(&shared.lags, 1),
            }
        }
        let burst_ns = TICKS_PER_BURST * self.tick_ns;
        let last_ns = (burst.due_ns / burst_ns + BURSTS_PER_TICK_MAX).saturating_mul(burst_ns);
        // What is sent first of a stream takes the next with it wherever that is, and no more.
        let joined_end_ns = media_end_ns;
        let media_end_ns = media_end_ns.min(last_ns);
        let joined = stream.joined(&burst, &self.store, self.join_before_ns, joined_end_ns);
        let images = joined.map_or(burst, |(joined, _)| joined);
        let is_last = stream.ends_its_burst(&burst, &self.store);
        // What is left of a burst that is too long for all slots there are goes next.
        let images = images.take(self.images_max(number, &images));
        if !self.make_room(number, &images) {
            bump(&self.remote.shared.flights_full, 1);
            if let Some(stream) = self.streams.get_mut(number) {
                stream.waited_until_ns = now_ns;
            }
            return Turn::Later(tick_end_ns);
        }
        // Making room may have handed over what was queued before for the same connection.
        if let Some(turn) = self.wait_for_client(number, &burst, now_ns, tick_end_ns) {
            return turn;
        }
        let queued = self.queue(number, images);
        if queued == 0 {
            return Turn::Gone;
        }
        let joined = joined.map(|(joined, due_ns)| (joined.count, due_ns));
        self.count_queued(number, queued, (burst.count, due_ns, is_last), joined);
        Turn::Queued(Queued {
            due_ns: burst.due_ns,
            media_end_ns,
        })
    }

    /// What a stream is to send next, and when that is due; or what becomes of it, if there is
    /// nothing yet or no more.
    fn next_burst(
        &mut self,
        number: u32,
        now_ns: i64,
        tick_end_ns: i64,
    ) -> Result<(Images, i64), Turn> {
        let stream = self.streams.playing_mut(number).ok_or(Turn::Gone)?;
        let burst = match stream.reader.burst(&stream.shared, &self.store) {
            Ok(Some(burst)) => burst,
            // All is queued. What was queued last has left by the next tick, and lasts until what
            // would follow it is due.
            Ok(None) if std::mem::replace(&mut stream.finishing, true) => {
                return Err(Turn::Over(State::Finished));
            }
            Ok(None) => return Err(Turn::Later(stream.end_ns().max(tick_end_ns))),
            Err(NotReady::Grows) => {
                stream.wait_for_growth(now_ns);
                let burst_ns = signed(TICKS_PER_BURST * self.tick_ns);
                return Err(Turn::Later(now_ns.saturating_add(burst_ns)));
            }
            Err(NotReady::Never) => return Err(Turn::Over(State::MediaFailed)),
            Err(NotReady::Yet) => {
                stream.waited_until_ns = now_ns;
                stream.shared.underruns.fetch_add(1, Ordering::Relaxed);
                bump(&self.remote.shared.underruns, 1);
                return Err(Turn::Later(tick_end_ns));
            }
        };
        stream.set_clock(burst.due_ns, now_ns);
        Ok((burst, stream.due_ns(burst.due_ns)))
    }

    /// When a stream that leaves on a connection is to come back, if its client has not taken
    /// enough yet of what was sent before, or those of others have not.
    fn wait_for_client(
        &mut self,
        number: u32,
        burst: &Images,
        now_ns: i64,
        tick_end_ns: i64,
    ) -> Option<Turn> {
        let stream = self.streams.get(number)?;
        let connection = stream.framing()?.connection;
        let offset = stream.reader.offset(&self.store, burst);
        match self.transmitter.gate(connection, offset, burst) {
            Gate::Open => None,
            Gate::Full => {
                bump(&self.remote.shared.flights_full, 1);
                self.streams.get_mut(number)?.waited_until_ns = now_ns;
                Some(Turn::Later(tick_end_ns))
            }
            Gate::Shut => {
                let stream = self.streams.get_mut(number)?;
                stream.waited_until_ns = now_ns;
                stream.waited_for_client = true;
                Some(Turn::Later(tick_end_ns))
            }
            Gate::Stalled => {
                bump(&self.remote.shared.stalled_out, 1);
                self.fail_connection(connection, libc::ETIMEDOUT);
                Some(Turn::Gone)
            }
            Gate::Failed => Some(Turn::Over(State::SendFailed)),
        }
    }

    /// Counts the bursts of which the last image is among those `queued`, each given by how many
    /// images there are up to its end and when it was due, and the first by whether it ends there.
    /// So one that leaves in parts counts with the last of them.
    fn count_queued(
        &mut self,
        number: u32,
        queued: u32,
        (images, due_ns, is_last): (u32, i64, bool),
        joined: Option<(u32, i64)>,
    ) {
        if is_last && queued >= images {
            self.batch.push((number, due_ns));
        }
        if let Some((images, due_ns)) = joined
            && queued >= images
        {
            self.batch.push((number, due_ns));
            bump(&self.remote.shared.bursts_joined, u64::from(is_last));
        }
    }

    /// How many of these images a stream can send at once, at most.
    fn images_max(&self, number: u32, images: &Images) -> u32 {
        let Some(stream) = self.streams.get(number) else {
            return u32::MAX;
        };
        self.transmitter
            .own_trains_max(stream)
            .map_or(u32::MAX, |trains_max| {
                // One is kept for a fault that repeats a packet.
                let trains = u32::try_from((trains_max - 1).max(1)).unwrap_or(u32::MAX);
                trains.saturating_mul(stream.train_images_least(images))
            })
    }

    /// Whether these images can be queued whole, if need be after a crossing.
    fn make_room(&mut self, number: u32, images: &Images) -> bool {
        let Some(stream) = self.streams.get(number) else {
            return false;
        };
        let offset = stream.reader.offset(&self.store, images);
        let trains = images.count.div_ceil(stream.train_images_least(images));
        // Whether the kernel holds so few trains of the stream that these may go as well. A burst
        // that is longer than a stream's share goes alone.
        if stream.trains > 0 && stream.trains + trains > self.trains_per_stream_max {
            return false;
        }
        // One more, for a fault that repeats a packet.
        let trains = trains as usize + 1;
        let sends_singly = stream.sends_singly();
        if self.transmitter.room(stream, offset, trains) < trains {
            self.hand_over(|path| path.submit());
        }
        let stream = self.streams.get(number);
        // If it sends singly since then, there are more trains than were counted.
        let Some(stream) = stream.filter(|it| it.sends_singly() == sends_singly) else {
            return false;
        };
        let trains_max = self.transmitter.own_trains_max(stream).unwrap_or(trains);
        self.transmitter.room(stream, offset, trains) >= trains.min(trains_max)
    }

    /// Queues a burst as trains: how many images of it, which are all or, if the stream has ended,
    /// none.
    fn queue(&mut self, number: u32, images: Images) -> u32 {
        self.bursts += 1;
        let faulty = |fault| self.faults.has(fault) && self.bursts.is_multiple_of(FAULT_EVERY);
        // Making room may have ended the stream.
        let Some(stream) = self.streams.playing_mut(number) else {
            return 0;
        };
        let dropped = u32::from(faulty(Fault::DropPacket) && images.count > 1);
        let repeated = u32::from(faulty(Fault::RepeatPacket));
        let transmitter = &mut self.transmitter;
        transmitter.queue(stream, number, images.take(images.count - dropped));
        transmitter.queue(stream, number, images.skip(images.count - repeated));
        stream.advance(&images);
        if faulty(Fault::LateBurst) {
            stream.hold_until_ns = signed(self.remote.clock.now_ns()).saturating_add(200_000_000);
        }
        images.count
    }
}
