//! Trains are handed over to the kernel, and its answers taken: what it sent, what it refused, what
//! it needs no longer.

use std::io;

use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_sys::path::{Completion, Path};
use tracing::warn;

use super::super::admission::LATE_NS;
use super::super::flights::Taken;
use super::super::shared::State;
use super::{Worker, signed};
use crate::faults::Fault;

/// How long the worker rests after a crossing that failed.
pub(in super::super) const REFUSED_PAUSE_NS: u64 = 5_000_000;

impl Worker {
    /// Hands over what is queued by `crossing`, and takes what has come back.
    pub(super) fn hand_over(&mut self, crossing: impl FnOnce(&mut dyn Path) -> io::Result<()>) {
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
            // Nothing of what we ask can fail but for a lack of memory, which does not pass at
            // once.
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

    pub(super) fn complete(&mut self, completion: Completion) {
        let Completion {
            token,
            sent,
            released,
            ..
        } = completion;
        let flight = self.flights.get(token);
        let number = flight.stream;
        let answer = sent.map(|sent| (flight.taken(sent), sent.errno));
        if (released || self.faults.has(Fault::ReleaseEarly))
            && let Some(pin) = flight.pin.take()
        {
            self.store.pool().unpin(pin);
        }
        if released
            && let Some(slot) = self.flights.give_back(token)
            && let Some(slab) = &mut self.slab
        {
            slab.give_back(slot);
        }
        if let Some((taken, errno)) = answer {
            self.answered(number, taken, errno);
        }
        if released {
            self.landed(number);
        }
    }

    /// The kernel has taken a train, a part of it, or nothing.
    fn answered(&mut self, number: u32, taken: Taken, errno: i32) {
        let all = &self.remote.shared;
        taken.count([&all.packets, &all.bytes, &all.packets_refused]);
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        let its = &stream.shared;
        taken.count([&its.packets, &its.bytes, &its.packets_refused]);
        if taken.packets > 0 {
            stream.refused_since_ns = 0;
        }
        if errno != 0 {
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
        } else {
            self.look_at_paused(number);
        }
    }

    /// The stream has gone, and its last train with it.
    pub(super) fn forget(&mut self, number: u32) {
        let stream = self.streams[number as usize].take();
        if stream.is_some_and(|stream| stream.socket.is_none()) {
            self.path.release_file(number);
        }
        self.remote.closed(number);
    }

    /// The kernel refused a train or its rest: that is this stream's trouble alone, unless it is
    /// the path's.
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
}
