//! When all streams are late for seconds: some are left out for a while, so that the others are on
//! time.
//!
//! [`LoadShedder`] decides how much is to go, here it is decided who: those that were opened last,
//! so that whoever watches longest is disturbed last. A stream that is left out (*shed*) plays on
//! without being sent: its client sees whole bursts missing, and then what is due at that moment.
//! The oldest come back first. Nobody is left out where all may be let in ([`LOAD_UNLIMITED`]), or
//! where the engine has so little to do that others hold it up.

use onrush_wire::pace::{LoadShedder, Second, Verdict};

use super::admission::{Account, LOAD_UNLIMITED, TRAIN_WORK};
use super::shared::{State, WorkerShared, bump, drop_one};
use super::worker::{Stream, Worker, signed, unsigned};

/// Trains a second below which nobody is left out, of a hundred streams by default: a processor
/// that cannot send so few has other troubles.
const TRAINS_MIN: u64 = 5000;

/// How often it is looked whether a stream that is left out has come to its end.
const LOOK_NS: i64 = 1_000_000_000;

/// Who is left out, and by what.
pub(super) struct Shedding {
    relief: Option<LoadShedder>,
    /// Work of the streams that play and are sent, and of those that are left out.
    pub(super) asked: u64,
    left_out: u64,
    /// Bursts that were late because of the worker.
    pub(super) held_up: u64,
}

impl Shedding {
    pub(super) fn new(load_max_permille: u64) -> Self {
        let is_bounded = load_max_permille != LOAD_UNLIMITED;
        Self {
            relief: is_bounded.then(|| LoadShedder::new(TRAINS_MIN * TRAIN_WORK)),
            asked: 0,
            left_out: 0,
            held_up: 0,
        }
    }

    /// The stream plays no longer.
    pub(super) fn gone(&mut self, stream: &mut Stream, shared: &WorkerShared) {
        if std::mem::take(&mut stream.is_shed) {
            self.left_out -= stream.demand.work();
            drop_one(&shared.shed);
        } else {
            self.asked -= stream.demand.work();
        }
    }

    fn leave_out(&mut self, stream: &mut Stream, shared: &WorkerShared) {
        stream.is_shed = true;
        self.asked -= stream.demand.work();
        self.left_out += stream.demand.work();
        bump(&shared.shed, 1);
        bump(&shared.sheds, 1);
    }

    fn take_back(&mut self, stream: &mut Stream, shared: &WorkerShared) {
        stream.is_shed = false;
        self.left_out -= stream.demand.work();
        self.asked += stream.demand.work();
        drop_one(&shared.shed);
    }
}

impl Worker {
    /// Once a second: leaves streams out or takes them back, by how it went from `then` to `now`.
    pub(super) fn relieve(&mut self, then: Account, now: Account) {
        let Some(relief) = &mut self.shedding.relief else {
            return;
        };
        let verdict = relief.after(Second {
            asked: self.shedding.asked,
            done: now.media_work_since(then),
            bursts: now.bursts - then.bursts,
            bursts_late: match self.remote.shared.admission.is_loaded() {
                true => now.bursts_held_up - then.bursts_held_up,
                // Others hold the engine up, and what it leaves out gives it nothing.
                false => 0,
            },
            left_out: self.shedding.left_out,
        });
        let now_ns = signed(now.at_ns);
        match verdict {
            Verdict::Keep => return,
            Verdict::LeaveOut(work) => self.leave_out(work, now_ns),
            Verdict::TakeBack(work) => self.take_in_again(work, now_ns),
        }
        let is_shedding = self.shedding.left_out > 0;
        self.remote.shared.admission.set_shedding(is_shedding);
    }

    /// Leaves streams of so much work out, the newest first.
    fn leave_out(&mut self, work: u64, now_ns: i64) {
        let mut candidates = self.candidates(false);
        candidates.sort_unstable_by_key(|&number| std::cmp::Reverse(self.order_of(number)));
        let mut left = work;
        for number in candidates.drain(..) {
            let Some(stream) = self.streams[number as usize].as_mut().filter(|_| left > 0) else {
                break;
            };
            left = left.saturating_sub(stream.demand.work());
            stream.reader.put_down(&self.store);
            self.shedding.leave_out(stream, &self.remote.shared);
            self.wheel.insert(number, unsigned(now_ns + LOOK_NS));
        }
        candidates.clear();
        self.due = candidates;
    }

    /// Takes streams of so much work back, the oldest first.
    fn take_in_again(&mut self, work: u64, now_ns: i64) {
        let mut candidates = self.candidates(true);
        candidates.sort_unstable_by_key(|&number| self.order_of(number));
        let mut left = work;
        for &number in &candidates {
            if left == 0 {
                break;
            }
            // First where it would be by now; at its end there is nothing to come back for.
            self.skip(number, now_ns);
            let stream = self.streams[number as usize].as_mut();
            let Some(stream) = stream.filter(|stream| stream.is_shed) else {
                continue;
            };
            left = left.saturating_sub(stream.demand.work());
            self.shedding.take_back(stream, &self.remote.shared);
            self.wheel.insert(number, unsigned(now_ns));
        }
        candidates.clear();
        self.due = candidates;
    }

    /// The streams that play and are left out, or are not; in the list of those that are due, which
    /// is empty between ticks, so that nothing is allocated.
    fn candidates(&mut self, is_shed: bool) -> Vec<u32> {
        let mut candidates = std::mem::take(&mut self.due);
        let streams = (0..).zip(&self.streams);
        let those = streams.filter_map(|(number, stream)| {
            let stream = stream.as_ref()?;
            (stream.playing && stream.is_shed == is_shed).then_some(number)
        });
        candidates.extend(those);
        candidates
    }

    fn order_of(&self, number: u32) -> u64 {
        self.streams[number as usize]
            .as_ref()
            .map_or(0, |stream| stream.order)
    }

    /// Moves a stream that is left out to where it would be if it were sent, at the beginning of a
    /// burst; ends it if that is its end.
    pub(super) fn skip(&mut self, number: u32, now_ns: i64) {
        let Some(stream) = self.streams[number as usize].as_mut() else {
            return;
        };
        let source = &stream.shared.source;
        let Some(plan) = source.try_plan() else {
            return self.wheel.insert(number, unsigned(now_ns + LOOK_NS));
        };
        let media_ns = unsigned(now_ns.saturating_sub(stream.epoch_ns));
        let burst_end_ns = (media_ns / plan.burst_ns() + 1).saturating_mul(plan.burst_ns());
        let before = stream.reader.next_packet();
        // It may have been ahead, by a tick.
        let next = plan.rtp_packet_at(burst_end_ns).max(before);
        drop(plan);
        stream.reader.skip_to(next, &self.store);
        let next = stream.reader.next_packet();
        bump(&self.remote.shared.packets_skipped, next - before);
        let at = &stream.shared.next_packet;
        at.store(next, std::sync::atomic::Ordering::Relaxed);
        let mut look_ns = now_ns + LOOK_NS;
        if stream.reader.is_at_end(&stream.shared) {
            let end_ns = stream.end_ns();
            if now_ns >= end_ns {
                return self.end(number, State::Finished);
            }
            look_ns = look_ns.min(end_ns);
        }
        self.wheel.insert(number, unsigned(look_ns));
    }
}
