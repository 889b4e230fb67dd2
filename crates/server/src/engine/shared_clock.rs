//! The clock of a stream's media, as its worker and control see it.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};

use onrush_wire::pace::{MediaClock, Speed};

/// A clock that one side writes and the other reads.
///
/// Its two numbers are not written at once. But a speed is of a play, and control, which asks for
/// the next, reads of each play only what was written before it was asked for or
/// [taken up](super::shared::StreamShared::is_taken); while it plays the epoch alone moves.
#[derive(Debug)]
pub(crate) struct SharedClock {
    epoch_ns: AtomicI64,
    speed_thousandths: AtomicU16,
}

impl SharedClock {
    pub(super) fn new(clock: MediaClock) -> Self {
        Self {
            epoch_ns: clock.epoch_ns().into(),
            speed_thousandths: clock.speed().thousandths().into(),
        }
    }

    pub(super) fn set(&self, clock: MediaClock) {
        let thousandths = clock.speed().thousandths();
        self.speed_thousandths.store(thousandths, Ordering::Relaxed);
        self.epoch_ns.store(clock.epoch_ns(), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> MediaClock {
        let thousandths = self.speed_thousandths.load(Ordering::Relaxed);
        let speed = Speed::of_thousandths(thousandths);
        MediaClock::new(self.epoch_ns.load(Ordering::Relaxed), speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reads_back_as_it_was_written() {
        let shared = SharedClock::new(MediaClock::default());
        assert_eq!(shared.get(), MediaClock::default());
        for clock in [
            MediaClock::new(-7, Speed::FASTEST),
            MediaClock::new(i64::MAX, Speed::SLOWEST),
        ] {
            shared.set(clock);
            assert_eq!(shared.get(), clock);
        }
    }
}
