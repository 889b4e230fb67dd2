//! Trains are handed over to the kernel, and its answers taken: what it sent, what it refused, what
//! it needs no longer.

use std::io;

use onrush_sys::path::Path;

use super::super::admission::LATE_NS;
use super::super::flights::Taken;
use super::super::shared::State;
use super::transmitter::Answer;
use super::{Worker, signed};

impl Worker {
    /// Hands over what is queued by `crossing`, and takes what has come back.
    pub(super) fn hand_over(&mut self, crossing: impl FnOnce(&mut dyn Path) -> io::Result<()>) {
        let left_ns = signed(self.now_ns());
        self.remote.shared.count_batch(self.batch.len());
        for (number, due_ns) in self.batch.drain(..) {
            let late_ns = left_ns - due_ns;
            self.remote.shared.count_lateness(late_ns);
            if let Some(stream) = self.streams.get_mut(number) {
                stream.shared.count_lateness(late_ns);
                let is_held_up = late_ns > LATE_NS && due_ns > stream.waited_until_ns;
                self.bursts_held_up += u64::from(is_held_up);
            }
        }
        self.transmitter.cross(crossing);
        while let Some(answer) = self.transmitter.answer() {
            self.take_answer(&answer);
        }
    }

    fn take_answer(&mut self, answer: &Answer) {
        let errno = answer.taken.map_or(0, |(_, errno)| errno);
        if let Some(connection) = answer.connection
            && errno != 0
        {
            self.fail_connection(connection, errno);
        }
        let Some(number) = answer.stream else {
            return;
        };
        if let Some((taken, _)) = answer.taken {
            self.count_taken(number, taken);
        }
        if errno != 0 && answer.connection.is_none() {
            self.refused(number, errno);
        }
        if answer.released {
            self.released(number);
        }
    }

    /// Nothing more leaves on a connection: what plays there has ended.
    pub(super) fn fail_connection(&mut self, connection: u32, errno: i32) {
        let streams = self.transmitter.fail_connection(connection, errno);
        for number in streams.into_iter().flatten() {
            if let Some(stream) = self.streams.get_mut(number) {
                stream.set_errno(errno);
            }
            self.streams.end(number, State::SendFailed);
        }
    }

    /// The kernel has taken a train, a part of it, or nothing.
    fn count_taken(&mut self, number: u32, taken: Taken) {
        let all = &self.remote.shared;
        taken.count([&all.packets, &all.bytes, &all.packets_refused]);
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        let its = &stream.shared;
        // What a sender report says.
        let taken = Taken {
            bytes: taken.bytes - taken.padding_bytes,
            ..taken
        };
        taken.count([&its.packets, &its.bytes, &its.packets_refused]);
        if taken.packets > 0 {
            stream.refused_since_ns = 0;
        }
    }

    /// One train of the stream less is in flight.
    fn released(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(number) else {
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
        if let Some(stream) = self.streams.get(number) {
            self.transmitter.release(number, stream);
        }
        self.streams.remove(number);
    }

    /// The kernel refused a train or its rest: that is this stream's trouble alone, unless it is
    /// the path's.
    fn refused(&mut self, number: u32, errno: i32) {
        if self.transmitter.is_refused_by_device(errno) {
            if !self.transmitter.takes_trains() {
                return self.demote();
            }
            if self.send_singly(number) {
                return;
            }
        }
        let (now_ns, refused_ns_max) = (self.now_ns(), self.refused_ns_max);
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        stream.set_errno(errno);
        if stream.refused_since_ns == 0 {
            stream.refused_since_ns = now_ns;
        }
        // A packet larger than the path's MTU by now stays larger for ever.
        let for_good = matches!(errno, libc::EMSGSIZE | libc::EINVAL);
        if for_good || now_ns - stream.refused_since_ns > refused_ns_max {
            self.streams.end(number, State::SendFailed);
        }
    }

    /// The path is given up for a lesser one, and every socket made ready for that.
    fn demote(&mut self) {
        if !self.transmitter.demote() {
            return;
        }
        let mut lost = Vec::new();
        for (number, stream) in self.streams.iter_mut() {
            self.transmitter.restore(number, stream);
            lost.extend(stream.lost().map(|errno| (number, errno)));
        }
        for (number, errno) in lost {
            self.streams.fail(number, errno);
        }
    }
}
