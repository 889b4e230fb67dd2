//! The clocks of a stream's media, as its worker and control see them.

use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};

use onrush_wire::pace::{MediaClock, Speed};

/// Who writes a clock or a numbering, which the other reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    /// The worker: of the play that it has taken up.
    Worker,
    /// Control: of the play that it has asked for last.
    Control,
}

/// Two clocks, of which each side writes one and reads the other.
///
/// The two numbers of a clock are not written at once. But a speed is of a play, and control, which
/// asks for the next, reads of each play only what was written before it was asked for or
/// [taken up](super::shared::StreamShared::is_taken); while it plays the epoch alone moves.
///
/// The clocks lie together because there are two for each viewer, and apart each would have six
/// bytes that nobody uses.
#[derive(Debug)]
pub(crate) struct SharedClocks {
    epochs_ns: [AtomicI64; 2],
    speeds_thousandths: [AtomicU16; 2],
}

impl SharedClocks {
    /// The worker's clock is `clock`; nothing was asked for yet.
    pub(super) fn new(clock: MediaClock) -> Self {
        let asked = MediaClock::default();
        let clocks = [clock, asked];
        Self {
            epochs_ns: clocks.map(|it| it.epoch_ns().into()),
            speeds_thousandths: clocks.map(|it| it.speed().thousandths().into()),
        }
    }

    pub(super) fn set(&self, side: Side, clock: MediaClock) {
        let (at, thousandths) = (side as usize, clock.speed().thousandths());
        self.speeds_thousandths[at].store(thousandths, Ordering::Relaxed);
        self.epochs_ns[at].store(clock.epoch_ns(), Ordering::Relaxed);
    }

    pub(super) fn get(&self, side: Side) -> MediaClock {
        let at = side as usize;
        let thousandths = self.speeds_thousandths[at].load(Ordering::Relaxed);
        let speed = Speed::of_thousandths(thousandths);
        MediaClock::new(self.epochs_ns[at].load(Ordering::Relaxed), speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reads_back_as_its_side_has_written_it() {
        let other = MediaClock::new(-7, Speed::FASTEST);
        let shared = SharedClocks::new(other);
        assert_eq!(shared.get(Side::Worker), other);
        assert_eq!(shared.get(Side::Control), MediaClock::default());
        for clock in [
            MediaClock::new(5, Speed::FASTEST),
            MediaClock::new(i64::MAX, Speed::SLOWEST),
        ] {
            shared.set(Side::Control, clock);
            assert_eq!(shared.get(Side::Control), clock);
            assert_eq!(shared.get(Side::Worker), other);
        }
    }
}
