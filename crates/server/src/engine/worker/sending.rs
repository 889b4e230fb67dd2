//! What is due in a tick becomes trains: each stream's bursts, one or two, and their place on the wheel for the next.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use onrush_sys::path::{OwnHeaders, Path, To, Train};
use onrush_sys::pool::{HeaderSlab, HeaderSlot};
use onrush_wire::rtp::HEADER_BYTES;

use super::super::flights::{Flight, Flights};
use super::super::reader::{
    NotReady, OWN_HEADERS_PACKETS, OWN_HEADERS_PACKETS_LEAST, Span, images_per_train,
};
use super::super::shared::{State, bump};
use super::{Stream, TICKS_PER_BURST, Worker, signed, unsigned};
use crate::faults::Fault;
use crate::store;
use crate::store::layout::Images;

/// Bursts of one stream in one tick, whole or what a chunk's end has left of them: one that is due, and one to catch up.
pub(super) const BURSTS_PER_TICK_MAX: u64 = 2;

/// With fewer streams due than this it is not for its work that the worker is behind, and bursts are not joined.
const JOIN_DUE_MIN: usize = 100;

/// For so long after it was behind bursts are joined.
const JOIN_NS: u64 = 1_000_000_000;

/// Bytes of an RTP header.
const RTP_HEADER_BYTES: u8 = 12;

const _: () = assert!(RTP_HEADER_BYTES as usize == HEADER_BYTES);

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
        match &self.streams[number as usize] {
            Some(stream) if stream.is_shed => return self.skip(number, now_ns),
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
                Turn::Later(due_ns) => return self.wheel.insert(number, unsigned(due_ns)),
                Turn::Over(state) => return self.end(number, state),
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
        let Some(stream) = self.streams[number as usize].as_mut().filter(|s| s.playing) else {
            return Turn::Gone;
        };
        let burst = match stream.reader.burst(&stream.shared, &self.store) {
            Ok(Some(burst)) => burst,
            // All is queued. What was queued last has left by the next tick, and lasts until what
            // would follow it is due.
            Ok(None) if std::mem::replace(&mut stream.finishing, true) => {
                return Turn::Over(State::Finished);
            }
            Ok(None) => return Turn::Later(stream.end_ns().max(tick_end_ns)),
            Err(NotReady::Grows) => {
                stream.wait_for_growth(now_ns);
                let burst_ns = signed(TICKS_PER_BURST * self.tick_ns);
                return Turn::Later(now_ns.saturating_add(burst_ns));
            }
            Err(NotReady::Never) => return Turn::Over(State::MediaFailed),
            Err(NotReady::Yet) => {
                stream.waited_until_ns = now_ns;
                bump(&stream.shared.underruns, 1);
                bump(&self.remote.shared.underruns, 1);
                return Turn::Later(tick_end_ns);
            }
        };
        stream.set_clock(burst.due_ns, now_ns);
        let due_ns = stream.epoch_ns.saturating_add(signed(burst.due_ns));
        let due_ns = due_ns.max(stream.hold_until_ns);
        if due_ns >= tick_end_ns || burst.due_ns >= media_end_ns {
            return Turn::Later(due_ns);
        }
        let late_ns = now_ns - due_ns;
        if late_ns > self.lag_ns_max {
            // Too much to catch up with in small steps: the client's clock moves on instead.
            stream.move_clock(late_ns);
            bump(&self.remote.shared.lags, 1);
        }
        let burst_ns = TICKS_PER_BURST * self.tick_ns;
        let last_ns = (burst.due_ns / burst_ns + BURSTS_PER_TICK_MAX).saturating_mul(burst_ns);
        let media_end_ns = media_end_ns.min(last_ns);
        let joined = stream.joined(&burst, &self.store, self.join_before_ns, media_end_ns);
        let images = joined.map_or(burst, |(joined, _)| joined);
        // What is left of a burst that is too long for all slots there are goes next.
        let images = images.take(self.images_max(number, &images));
        if !self.make_room(number, &images) {
            bump(&self.remote.shared.flights_full, 1);
            if let Some(stream) = self.streams[number as usize].as_mut() {
                stream.waited_until_ns = now_ns;
            }
            return Turn::Later(tick_end_ns);
        }
        self.queue(number, images);
        let begins = before.is_none_or(|before| before.due_ns != burst.due_ns);
        self.batch.extend(begins.then_some((number, due_ns)));
        if let Some((_, due_ns)) = joined {
            self.batch.push((number, due_ns));
            bump(&self.remote.shared.bursts_joined, 1);
        }
        Turn::Queued(Queued {
            due_ns: burst.due_ns,
            media_end_ns,
        })
    }

    /// How many of these images a stream can send at once, at most.
    fn images_max(&self, number: u32, images: &Images) -> u32 {
        match (&self.streams[number as usize], &self.slab) {
            (Some(stream), Some(slab)) if !stream.numbering.is_shared() => {
                // One is kept for a fault that repeats a packet.
                let trains = u32::try_from((slab.slots() - 1).max(1)).unwrap_or(u32::MAX);
                trains.saturating_mul(stream.train_images_least(images))
            }
            _ => u32::MAX,
        }
    }

    /// Whether these images can be queued whole, if need be after a crossing.
    fn make_room(&mut self, number: u32, images: &Images) -> bool {
        let Some(stream) = self.streams[number as usize].as_ref() else {
            return false;
        };
        let is_own = !stream.numbering.is_shared();
        let least = stream.train_images_least(images);
        let offset = stream.reader.offset(&self.store, images);
        let trains = images.count.div_ceil(least) as usize;
        if !self.within_share(number, trains) {
            return false;
        }
        // One more, for a fault that repeats a packet.
        let trains = trains + 1;
        let room = |worker: &Self| {
            let room = worker.path.room().min(worker.flights.room());
            match &worker.slab {
                Some(slab) if is_own => room.min(slab.room(offset)),
                _ => room,
            }
        };
        if room(self) < trains {
            self.hand_over(|path| path.submit());
        }
        room(self) >= trains.min(self.slab.as_ref().map_or(trains, HeaderSlab::slots))
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
    fn queue(&mut self, number: u32, images: Images) {
        self.bursts += 1;
        let faulty = |fault| self.faults.has(fault) && self.bursts.is_multiple_of(FAULT_EVERY);
        // Making room may have ended the stream.
        let Some(stream) = self.streams[number as usize].as_mut().filter(|s| s.playing) else {
            return;
        };
        let dropped = u32::from(faulty(Fault::DropPacket) && images.count > 1);
        let repeated = u32::from(faulty(Fault::RepeatPacket));
        let mut trains = Trains {
            path: &mut *self.path,
            slab: &mut self.slab,
            flights: &mut self.flights,
            store: &self.store,
        };
        trains.queue(stream, number, images.take(images.count - dropped));
        trains.queue(stream, number, images.skip(images.count - repeated));
        stream.reader.advance(images.end());
        stream
            .shared
            .next_packet
            .store(stream.reader.next_packet(), Ordering::Relaxed);
        if faulty(Fault::LateBurst) {
            stream.hold_until_ns = signed(self.remote.clock.now_ns()).saturating_add(200_000_000);
        }
    }
}

/// What trains are made with.
struct Trains<'a> {
    path: &'a mut dyn Path,
    slab: &'a mut Option<HeaderSlab>,
    flights: &'a mut Flights,
    store: &'a store::Shared,
}

impl Trains<'_> {
    /// Queues these images of the page, in as few trains as may be.
    fn queue(&mut self, stream: &mut Stream, number: u32, mut left: Images) {
        while left.count > 0 {
            let images = left.take(self.train_images(stream, &left));
            let span = stream.reader.span(self.store, &images);
            let slot = self.headers(stream, &span, &images);
            let headers = slot.as_ref().map(|slot| OwnHeaders {
                offset: slot.offset(),
                bytes: RTP_HEADER_BYTES,
            });
            let to = stream.to(number);
            let token = self.flights.take(Flight {
                stream: number,
                packets: images.count,
                bytes: span.bytes,
                pin: Some(span.pin),
                headers: slot,
            });
            stream.trains += 1;
            self.path.queue(Train {
                to,
                offset: span.offset,
                bytes: span.bytes,
                stride: images.segment_bytes,
                headers,
                token,
            });
            left = left.skip(images.count);
        }
    }

    /// How many images a train that begins with the first of these may have.
    fn train_images(&self, stream: &Stream, images: &Images) -> u32 {
        if stream.numbering.is_shared() || !stream.is_segment(images) {
            return stream.train_images_most(images);
        }
        let offset = stream.reader.offset(self.store, images);
        let packets = self.path.own_headers_packets(offset, images.segment_bytes);
        u32::try_from(packets.max(1)).expect("at most eight")
    }

    /// The headers of a stream with numbers of its own: those of the images, with its numbers.
    fn headers(&mut self, stream: &Stream, span: &Span, images: &Images) -> Option<HeaderSlot> {
        if stream.numbering.is_shared() {
            return None;
        }
        let slab = self
            .slab
            .as_mut()
            .expect("only a slab gives numbers of its own");
        Some(slab.take(span.offset, |slot| {
            let places = slot.chunks_exact_mut(HEADER_BYTES);
            for (shared_header, place) in stream.reader.headers(self.store, images).zip(places) {
                place.copy_from_slice(&stream.numbering.header(shared_header));
            }
        }))
    }
}

impl Stream {
    /// There is no more of its file yet.
    fn wait_for_growth(&mut self, now_ns: i64) {
        self.finishing = false;
        self.waited_for_growth = true;
        self.waited_until_ns = now_ns;
    }

    /// There is a burst of it that is due at that media time. What was due while it waited for its
    /// file to grow is due now, and all else after it; and where a track beside it has moved their
    /// clock, later by as much.
    fn set_clock(&mut self, media_ns: u64, now_ns: i64) {
        self.follow_clock();
        self.finishing = false;
        let late_ns = now_ns.saturating_sub(self.epoch_ns.saturating_add(signed(media_ns)));
        if std::mem::take(&mut self.waited_for_growth) && late_ns > 0 {
            self.move_clock(late_ns);
        }
    }

    /// Moves its clock, and that of the tracks beside it.
    fn move_clock(&mut self, by_ns: i64) {
        match self.shared.clock.get() {
            Some(clock) => {
                clock.move_to(self.moved_ns.saturating_add(by_ns));
                self.follow_clock();
            }
            None => self.add_to_clock(by_ns),
        }
    }

    /// Takes over by how much a track beside it has moved their clock.
    fn follow_clock(&mut self) {
        if let Some(clock) = self.shared.clock.get() {
            let moved_ns = clock.moved_ns();
            let by_ns = moved_ns - std::mem::replace(&mut self.moved_ns, moved_ns);
            if by_ns != 0 {
                self.add_to_clock(by_ns);
            }
        }
    }

    fn add_to_clock(&mut self, by_ns: i64) {
        self.epoch_ns = self.epoch_ns.saturating_add(by_ns);
        let epoch = &self.shared.epoch_ns;
        epoch.store(self.epoch_ns, Ordering::Relaxed);
    }

    /// `burst` and the one after it, and when that is due, if the two are to leave in one train:
    /// before `before_ns`, and before `media_end_ns` of the media.
    fn joined(
        &self,
        burst: &Images,
        store: &store::Shared,
        before_ns: i64,
        media_end_ns: u64,
    ) -> Option<(Images, i64)> {
        let next = self.reader.following(store)?;
        let joined = burst.joined(next)?;
        let due_ns = self.epoch_ns.saturating_add(signed(next.due_ns));
        let due_ns = due_ns.max(self.hold_until_ns);
        let fits = joined.count <= self.train_images_most(&joined);
        (fits && due_ns < before_ns && next.due_ns < media_end_ns).then_some((joined, due_ns))
    }

    /// Whether these images are of the size that its socket cuts trains into.
    fn is_segment(&self, images: &Images) -> bool {
        images.segment_bytes == self.shared.segment_bytes
    }

    /// How many images a train of these has at the most. What the socket does not cut leaves
    /// singly.
    fn train_images_most(&self, images: &Images) -> u32 {
        match (self.is_segment(images), self.numbering.is_shared()) {
            (true, true) => images_per_train(images.segment_bytes),
            (true, false) => OWN_HEADERS_PACKETS,
            (false, _) => 1,
        }
    }

    /// How many images a train of these has room for in any case.
    fn train_images_least(&self, images: &Images) -> u32 {
        match (self.is_segment(images), self.numbering.is_shared()) {
            (true, false) => OWN_HEADERS_PACKETS_LEAST,
            _ => self.train_images_most(images),
        }
    }

    /// When what it was asked to play is over: when the packet before which it stops would be due,
    /// or all of the media is.
    pub(in crate::engine) fn end_ns(&self) -> i64 {
        let plan = self.shared.source.try_plan();
        // While a longer one is being published, for a moment, the end is that of the last packet.
        let media_ns = plan.map_or(0, |plan| plan.due_ns(self.reader.stop_before()));
        self.epoch_ns.saturating_add(signed(media_ns))
    }

    /// Where the trains of stream `number`, which this is, go.
    fn to(&self, number: u32) -> To {
        self.socket.as_ref().map_or(To::Place(number), |socket| {
            To::Descriptor(socket.as_raw_fd())
        })
    }
}
