//! How evenly packets arrive (RFC 3550, section 6.4.1 and appendix A.8).

/// The variation of packets' travel time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    last: Option<(u64, u32)>,
    /// In 16ths of a tick, as the RFC's code has it.
    sixteenths: u64,
}

impl Jitter {
    /// Notes a packet of that timestamp, which arrived at `now_ns` of a steady clock.
    pub fn note(&mut self, timestamp: u32, now_ns: u64, clock_hz: u32) {
        let Some((then_ns, before)) = self.last.replace((now_ns, timestamp)) else {
            return;
        };
        let passed = crate::rtp::ticks_of(now_ns.saturating_sub(then_ns), clock_hz.into());
        let stamped = timestamp.wrapping_sub(before);
        let difference = u64::from(passed.wrapping_sub(stamped).cast_signed().unsigned_abs());
        // Packets of one picture, and jumps of timestamps, say nothing about the way.
        if stamped == 0 || difference > u64::from(clock_hz) * JUMP_SECONDS {
            return;
        }
        self.sixteenths = self.sixteenths + difference - ((self.sixteenths + 8) >> 4);
    }

    /// In ticks of the timestamps' clock.
    #[must_use]
    pub fn ticks(&self) -> u32 {
        u32::try_from(self.sixteenths >> 4).unwrap_or(u32::MAX)
    }

    /// In ns, where the clock makes so many ticks a second.
    #[must_use]
    pub fn ns(&self, clock_hz: u32) -> u64 {
        u64::from(self.ticks()) * 1_000_000_000 / u64::from(clock_hz.max(1))
    }
}

/// Timestamps and arrivals that differ by more began anew.
const JUMP_SECONDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_have_none_and_late_ones_have_some() {
        let mut jitter = Jitter::default();
        for packet in 0..100_u32 {
            jitter.note(packet * 3600, u64::from(packet) * 40_000_000, 90_000);
        }
        assert_eq!(jitter.ticks(), 0);
        // Every other one 10 ms late: 900 ticks, again and again.
        for packet in 100..400_u32 {
            let late_ns = u64::from(packet % 2) * 10_000_000;
            jitter.note(
                packet * 3600,
                u64::from(packet) * 40_000_000 + late_ns,
                90_000,
            );
        }
        assert!((880..=900).contains(&jitter.ticks()), "{}", jitter.ticks());
        assert!((9_700_000..=10_000_000).contains(&jitter.ns(90_000)));
    }

    #[test]
    fn a_jump_of_timestamps_is_no_jitter() {
        let mut jitter = Jitter::default();
        jitter.note(0, 0, 90_000);
        jitter.note(u32::MAX / 2, 40_000_000, 90_000);
        jitter.note(u32::MAX / 2 + 3600, 80_000_000, 90_000);
        assert_eq!(jitter.ticks(), 0);
    }
}
