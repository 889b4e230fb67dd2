//! When each packet is due: a piecewise linear function from packet numbers to media time.
//!
//! Media time starts at 0 with packet 0 and never goes back, whatever the file's own clock does. The points
//! come from that clock (`pcr`); here they are looked up, in both directions.

mod pcr;

pub(crate) use pcr::ClockBuilder;
pub use pcr::{PCR_HZ, PCR_INTERVAL_TICKS_MAX, PCR_JUMP_TICKS_MAX, PCR_WRAP, PcrQuality, RATE_MAX};

/// Points of one clock at the most. At this number every other point goes and the spacing doubles.
pub const CLOCK_POINTS_MAX: usize = 131_072;

/// Media time as a function of the packet number.
///
/// Holds at least two points; the first is packet 0 at time 0, the last is the end of the file.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    points: Vec<Point>,
}

/// Media time at the start of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Point {
    packet: u64,
    time_ns: u64,
}

/// A place in a clock's points, for looking up rising packet numbers without searching.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor(usize);

impl Clock {
    /// A clock of constant rate, for streams that carry none. `bitrate` in bit/s, not 0.
    pub(crate) fn constant(packets: u64, bitrate: u64) -> Self {
        let end_ns = scale(packets, 188 * 8 * 1_000_000_000, bitrate.max(1));
        Self {
            points: vec![
                Point {
                    packet: 0,
                    time_ns: 0,
                },
                Point {
                    packet: packets,
                    time_ns: end_ns,
                },
            ],
        }
    }

    /// Media time at the start of `packet`, in ns.
    pub(crate) fn time_ns(&self, packet: u64) -> u64 {
        let mut cursor = self.cursor(packet);
        self.time_ns_from(&mut cursor, packet)
    }

    /// A cursor for packets from `packet` on.
    pub(crate) fn cursor(&self, packet: u64) -> Cursor {
        Cursor(
            self.points
                .partition_point(|point| point.packet <= packet)
                .saturating_sub(1),
        )
    }

    /// As [`Self::time_ns`]; `packet` must not be less than in the calls before with this cursor.
    pub(crate) fn time_ns_from(&self, cursor: &mut Cursor, packet: u64) -> u64 {
        while self
            .points
            .get(cursor.0 + 1)
            .is_some_and(|next| next.packet <= packet)
        {
            cursor.0 += 1;
        }
        let left = self.points[cursor.0];
        let Some(right) = self.points.get(cursor.0 + 1) else {
            return left.time_ns;
        };
        let span_ns = right.time_ns - left.time_ns;
        left.time_ns + scale(packet - left.packet, span_ns, right.packet - left.packet)
    }

    /// The first packet due at `time_ns` or later; the number of packets if there is none.
    pub(crate) fn packet_at(&self, time_ns: u64) -> u64 {
        let right = self.points.partition_point(|point| point.time_ns < time_ns);
        let Some(&Point {
            packet: mut high, ..
        }) = self.points.get(right)
        else {
            return self.points[self.points.len() - 1].packet;
        };
        let Some(left) = right.checked_sub(1) else {
            return 0;
        };
        let mut low = self.points[left].packet;
        // Bisection rather than the inverse of the line, which would have to round the same way.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time_ns_from(&mut Cursor(left), middle) < time_ns {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The most packets that are due within any one second.
    pub(crate) fn packets_per_second_max(&self) -> u64 {
        let second = 1_000_000_000;
        let end_ns = self.points[self.points.len() - 1].time_ns;
        // The busiest window of a piecewise linear function starts or ends at one of its points.
        let from = self.points.iter().map(|point| point.time_ns);
        let to = self
            .points
            .iter()
            .filter_map(|point| point.time_ns.checked_sub(second));
        from.chain(to)
            .filter(|start_ns| start_ns.saturating_add(second) <= end_ns || *start_ns == 0)
            .map(|start_ns| {
                self.packet_at(start_ns.saturating_add(second)) - self.packet_at(start_ns)
            })
            .max()
            .unwrap_or(0)
    }
}

/// `value * numerator / denominator`, rounded down, at most `u64::MAX`. The denominator is not 0.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    match value.checked_mul(numerator) {
        Some(product) => product / denominator,
        None => {
            let wide = u128::from(value) * u128::from(numerator) / u128::from(denominator);
            u64::try_from(wide).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_is_exact_at_both_ends() {
        let clock = Clock::constant(1_000_000_007, 4_000_000);
        assert_eq!(
            (clock.time_ns(0), clock.time_ns(2_000_000)),
            (0, 752_000_000_000)
        );
        assert_eq!(clock.time_ns(1_000_000_007), 376_000_002_632_000);
        assert_eq!(clock.time_ns(u64::MAX), 376_000_002_632_000);
    }
}
