//! When all streams are late for seconds: some are left out for a while, so that the others are on
//! time.
//!
//! [`LoadShedder`] decides how much is to go, here it is decided who: those that were opened last,
//! so that whoever watches longest is disturbed last. A stream that is left out (*shed*) plays on
//! without being sent: its client sees whole bursts missing, and then what is due at that moment.
//! The oldest come back first. Nobody is left out where all may be let in ([`LOAD_UNLIMITED`]), or
//! where the engine has so little to do that others hold it up. Of images that are encrypted once
//! for all a burst is sent now and then all the same: see
//! [`StreamEntry::is_to_be_heard`](super::entry::StreamEntry::is_to_be_heard).

use std::cmp::Reverse;

use onrush_wire::pace::{LoadShedder, Second, Verdict};

use super::super::admission::{Account, LOAD_UNLIMITED, TRAIN_WORK};
use super::super::shared::{State, bump};
use super::{Worker, signed, unsigned};

/// Trains a second below which nobody is left out, of a hundred streams by default: a processor
/// that cannot send so few has other troubles.
const TRAINS_MIN: u64 = 5000;

/// How often at the least a stream that is left out is looked at: whether it has come to its end.
const LOOK_NS: i64 = 1_000_000_000;

/// Who decides how much to leave out; nobody where all may be let in.
pub(super) fn load_shedder(load_max_permille: u64) -> Option<LoadShedder> {
    let is_bounded = load_max_permille != LOAD_UNLIMITED;
    is_bounded.then(|| LoadShedder::new(TRAINS_MIN * TRAIN_WORK))
}

impl Worker {
    /// Once a second: leaves streams out or takes them back, by how it went from `then` to `now`.
    pub(super) fn shed_load(&mut self, then: Account, now: Account) {
        let Some(shedder) = &mut self.load_shedder else {
            return;
        };
        let verdict = shedder.after(Second {
            asked: self.streams.work_sent(),
            done: now.media_work_since(then),
            bursts: now.bursts - then.bursts,
            bursts_late: match self.remote.shared.admission.is_loaded() {
                true => now.bursts_held_up - then.bursts_held_up,
                // Others hold the engine up, and what it leaves out gives it nothing.
                false => 0,
            },
            left_out: self.streams.work_left_out(),
        });
        let now_ns = signed(now.at_ns);
        match verdict {
            Verdict::Keep => return,
            Verdict::LeaveOut(work) => self.leave_out(work, now_ns),
            Verdict::TakeBack(work) => self.take_back(work, now_ns),
        }
        let is_shedding = self.streams.work_left_out() > 0;
        self.remote.shared.admission.set_shedding(is_shedding);
    }

    /// Leaves streams of so much work out, the newest first.
    fn leave_out(&mut self, work: u64, now_ns: i64) {
        let mut candidates = self.candidates(false);
        candidates.sort_unstable_by_key(|&number| Reverse(self.order_of(number)));
        let mut left = work;
        for &number in &candidates {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(self.work_of(number));
            self.streams.leave_out(number);
            self.streams.wake_at(number, unsigned(now_ns + LOOK_NS));
        }
        candidates.clear();
        self.due = candidates;
    }

    /// Takes streams of so much work back, the oldest first.
    fn take_back(&mut self, work: u64, now_ns: i64) {
        let mut candidates = self.candidates(true);
        candidates.sort_unstable_by_key(|&number| self.order_of(number));
        let mut left = work;
        for &number in &candidates {
            if left == 0 {
                break;
            }
            // First where it would be by now; at its end there is nothing to come back for.
            self.skip(number, now_ns);
            if self.streams.get(number).is_none_or(|s| !s.is_shed) {
                continue;
            }
            left = left.saturating_sub(self.work_of(number));
            self.streams.take_back(number);
            self.streams.wake_at(number, unsigned(now_ns));
        }
        candidates.clear();
        self.due = candidates;
    }

    /// The streams that play and are left out, or are not; in the list of those that are due, which
    /// is empty between ticks, so that nothing is allocated.
    fn candidates(&mut self, is_shed: bool) -> Vec<u32> {
        let mut candidates = std::mem::take(&mut self.due);
        candidates.extend(self.streams.playing(is_shed));
        candidates
    }

    fn order_of(&self, number: u32) -> u64 {
        self.streams.get(number).map_or(0, |stream| stream.order)
    }

    fn work_of(&self, number: u32) -> u64 {
        let stream = self.streams.get(number);
        stream.map_or(0, |stream| stream.demand.work())
    }

    /// Moves a stream that is left out to where it would be if it were sent, at the beginning of a
    /// burst; ends it if that is its end. No further than to where it is to be heard.
    pub(super) fn skip(&mut self, number: u32, now_ns: i64) {
        let look_ns = now_ns + LOOK_NS;
        let Some(stream) = self.streams.get_mut(number) else {
            return;
        };
        let Some(plan) = stream.shared.source.try_plan() else {
            return self.streams.wake_at(number, unsigned(look_ns));
        };
        let heard_ns = stream.heard_from_ns(&plan);
        let media_ns = unsigned(stream.line().media_ns(now_ns)).min(heard_ns);
        let burst_end_ns = (media_ns / plan.burst_ns() + 1).saturating_mul(plan.burst_ns());
        // It may have been ahead, by a tick.
        let next = plan.rtp_packet_at(burst_end_ns);
        let next = next.max(stream.reader.next_packet());
        drop(plan);
        let skipped = stream.skip_to(next, &self.store);
        bump(&self.remote.shared.packets_skipped, skipped);
        let is_at_end = stream.reader.is_at_end(&stream.shared);
        let end_ns = if is_at_end { stream.end_ns() } else { i64::MAX };
        let look_ns = look_ns.min(end_ns).min(stream.line().due_ns(heard_ns));
        match now_ns >= end_ns {
            true => self.streams.end(number, State::Finished),
            false => self.streams.wake_at(number, unsigned(look_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use onrush_lock::memory::Area;
    use onrush_sys::pool::Pool;
    use onrush_wire::media::ts::synth::constant_rate;
    use onrush_wire::srtp::{Suite, index_of};

    use super::super::testing::{ManualEngine, Network};
    use super::*;
    use crate::engine::tests::sockets;
    use crate::engine::{EndReason, StreamSpec};
    use crate::experiments::Faults;
    use crate::store::testing::ManualBuilder;
    use crate::store::{FilmKey, ImageCipher, Source};
    use crate::testing::{CHUNK_BYTES, TestSource};

    const TICK_NS: u64 = 5_000_000;

    /// Two of 40 Mbit/s are left out for nine seconds, which are more packets than a receiver of
    /// SRTP may miss. The images of one are plain.
    #[test]
    fn what_is_encrypted_once_for_all_is_heard_now_and_then() {
        let test = TestSource::of(constant_rate(250_000, 0, 1015));
        let (plan, backing) = (test.source.plan(), Arc::clone(&test.backing) as _);
        let (of, key) = (
            (Arc::clone(&plan), test.source.origin()),
            Arc::new(FilmKey::new(Suite::default())),
        );
        let encrypted = Source::encrypted(of, backing, CHUNK_BYTES, ImageCipher::new(&key));
        let encrypted = Arc::new(encrypted.expect("it fits its chunks"));
        let area = Area::map(64 * CHUNK_BYTES).expect("a little memory");
        let pool = Arc::new(Pool::with_slabs(area, CHUNK_BYTES, 1));
        let mut builder = ManualBuilder::new(pool, Faults::default());
        let now_ns = Arc::new(AtomicU64::new(1_000_000_000_000));
        let network = Arc::<Network>::default();
        let (engines, mut engine) = ManualEngine::open(&now_ns, builder.shared(), &network);
        // Nobody else takes them back.
        engine.worker.load_shedder = None;
        let streams = [&test.source, &encrypted].map(|source| {
            let (socket, receiver) = sockets();
            let (source, to) = (Arc::clone(source), socket.into());
            let stream = engines.open(StreamSpec { source, to }).expect("a stream");
            stream.play(0, None, Duration::ZERO).expect("played");
            (stream, receiver)
        });
        let mut turns = |engine: &mut ManualEngine, count: u32| {
            for _ in 0..count {
                while let Some(reading) = builder.begin() {
                    builder.finish(reading);
                }
                engine.turn();
                now_ns.fetch_add(TICK_NS, Ordering::AcqRel);
            }
            now_ns.load(Ordering::Acquire)
        };
        let shed_ns = turns(&mut engine, 20);
        for (stream, _) in &streams {
            let number = stream.slot().expect("it moves nowhere").number;
            engine.worker.streams.leave_out(number);
            engine.worker.streams.wake_at(number, shed_ns);
        }
        let back_ns = turns(&mut engine, 1820);
        engine.worker.take_back(u64::MAX, signed(back_ns));
        turns(&mut engine, 100);
        let [plain, shared] = streams.each_ref().map(|(stream, receiver)| {
            assert_eq!(stream.end_reason(), Some(EndReason::EndOfMedia));
            network.numbers(receiver.local_addr().expect("bound"), 0)
        });
        let gaps = |numbers: &[u16]| {
            let pairs = numbers.windows(2);
            pairs.filter(|it| it[1] != it[0].wrapping_add(1)).count()
        };
        assert_eq!([gaps(&plain), gaps(&shared)], [1, 5]);
        // A burst has 76 packets.
        assert!(shared.len() < plain.len() + 1000, "{}", shared.len());
        // What a receiver takes for the index of the last is its index.
        let first = encrypted.index_of(0);
        let last = shared.iter().fold(first, |near, &it| index_of(it, near));
        assert_eq!(last, encrypted.index_of(plan.rtp_packets() - 1));
    }
}
