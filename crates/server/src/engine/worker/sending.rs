//! What is due in a tick becomes trains: each stream's bursts, one or two, and their place on the wheel for the next.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use onrush_sys::path::{To, Train};

use super::super::flights::Flight;
use super::super::reader::{NotReady, images_per_train};
use super::super::shared::{State, bump};
use super::{Stream, TICKS_PER_BURST, Worker, signed, unsigned};
use crate::faults::Fault;
use crate::store;
use crate::store::layout::ImageBurst;

/// Bursts of one stream in one tick, whole or what a chunk's end has left of them: one that is due, and one to catch up.
pub(super) const BURSTS_PER_TICK_MAX: u64 = 2;

/// With fewer streams due than this it is not for its work that the worker is behind, and bursts are not joined.
const JOIN_DUE_MIN: usize = 100;

/// For so long after it was behind bursts are joined.
const JOIN_NS: u64 = 1_000_000_000;

/// With planted faults: every so many bursts.
const FAULT_EVERY: u64 = 20;

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
    /// Queues all that is due in the tick that begins now.
    pub(super) fn send_due(&mut self, now_ns: u64) {
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
        let images = burst.images + joined.map_or(0, |(joined, _)| joined.images);
        if !self.make_room(number, images) {
            bump(&self.remote.shared.flights_full, 1);
            if let Some(stream) = self.streams[number as usize].as_mut() {
                stream.waited_until_ns = now_ns;
            }
            return Turn::Later(tick_end_ns);
        }
        self.queue(number, ImageBurst { images, ..burst });
        self.batch.push((number, due_ns));
        if let Some((_, due_ns)) = joined {
            self.batch.push((number, due_ns));
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
}

impl Stream {
    /// The burst after `burst` and when it is due, if the two are to leave in one train: before `before_ns`, and before
    /// `media_end_ns` of the media.
    fn joined(
        &self,
        burst: &ImageBurst,
        store: &store::Shared,
        before_ns: i64,
        media_end_ns: u64,
    ) -> Option<(ImageBurst, i64)> {
        let next = self.reader.following(&self.shared, store, burst)?;
        let due_ns = self.epoch_ns.saturating_add(signed(next.due_ns));
        let due_ns = due_ns.max(self.hold_until_ns);
        (due_ns < before_ns && next.due_ns < media_end_ns).then_some((next, due_ns))
    }

    /// Where the trains of stream `number`, which this is, go.
    fn to(&self, number: u32) -> To {
        self.socket.as_ref().map_or(To::Place(number), |socket| {
            To::Descriptor(socket.as_raw_fd())
        })
    }
}

/// `images` cut into trains: the first image of each, and how many.
fn train_pieces(images: u32, images_per_train: u32) -> impl Iterator<Item = (u32, u32)> {
    let firsts = (0..images).step_by(images_per_train as usize);
    firsts.map(move |first| (first, images_per_train.min(images - first)))
}
