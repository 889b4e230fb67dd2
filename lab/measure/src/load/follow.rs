//! What arrived of one RTP stream: complete, in order, on time?

use onrush_testkit::playout::{Ended, Played, Playout, Train, ticks_between, ticks_to_ns};
use serde::{Deserialize, Serialize};

/// How far behind the newest a packet is still told from one seen before.
const WINDOW: u16 = 64;

/// Packets that follow each other within this time are one burst.
pub(super) const BURST_GAP_NS: u64 = 1_000_000;

/// Counts of one stream.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Arrived {
    /// RTP packets.
    pub packets: u64,
    /// Their bytes, RTP headers included.
    pub bytes: u64,
    /// Numbers that never came.
    pub lost: u64,
    /// Packets that came after one with a higher number.
    pub reordered: u64,
    /// Packets that came again.
    pub repeated: u64,
    /// Earliest and latest, in ns: (arrival - first arrival) - (timestamp - first timestamp).
    pub lateness_ns_min: i64,
    /// The latest.
    pub lateness_ns_max: i64,
    /// Packets of the longest burst: of those that came without a pause of a millisecond.
    pub burst_packets_max: u64,
}

impl Arrived {
    /// Adds another account: sums, and the worse of the extremes.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.repeated += other.repeated;
        self.lateness_ns_min = self.lateness_ns_min.min(other.lateness_ns_min);
        self.lateness_ns_max = self.lateness_ns_max.max(other.lateness_ns_max);
        self.burst_packets_max = self.burst_packets_max.max(other.burst_packets_max);
    }
}

/// Follows one stream.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    pub(crate) arrived: Arrived,
    playout: Playout,
    /// Ticks a second of its RTP timestamps; not 0.
    clock_hz: u32,
    reference: Option<Reference>,
    /// Bit i: the packet `i` before the newest has come.
    seen: u64,
    newest: u16,
    arrival_ns_last: u64,
    burst_packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reference {
    arrival_ns: u64,
    /// From its timestamp to that of the last packet, and that: timestamps wrap.
    ticks: i64,
    timestamp: u32,
}

impl Follow {
    /// One whose RTP timestamps have so many ticks a second; not 0.
    pub(crate) fn new(clock_hz: u32) -> Self {
        Self {
            arrived: Arrived::default(),
            playout: Playout::default(),
            clock_hz,
            reference: None,
            seen: 0,
            newest: 0,
            arrival_ns_last: 0,
            burst_packets: 0,
        }
    }

    /// Takes a packet. How late it was, in ns; `None` if it is no RTP.
    pub(crate) fn packet(&mut self, packet: &[u8], now_ns: u64) -> Option<i64> {
        let [first, kind, s0, s1, t0, t1, t2, t3, ..] = *packet else {
            return None;
        };
        // RFC 5761, section 4: 192 to 223 is RTCP.
        if first >> 6 != 2 || (192..=223).contains(&kind) {
            return None;
        }
        let timestamp = u32::from_be_bytes([t0, t1, t2, t3]);
        self.playout.train(&Train {
            timestamps: (timestamp, timestamp),
            clock_hz: self.clock_hz,
            packets: 1,
            packets_before: self.arrived.packets,
            arrival_ns: now_ns.max(1),
        });
        self.count(u16::from_be_bytes([s0, s1]));
        self.arrived.bytes += packet.len() as u64;
        if now_ns - self.arrival_ns_last > BURST_GAP_NS {
            self.burst_packets = 0;
        }
        self.arrival_ns_last = now_ns;
        self.burst_packets += 1;
        let longest = self.arrived.burst_packets_max.max(self.burst_packets);
        self.arrived.burst_packets_max = longest;
        let reference = self.reference.get_or_insert(Reference {
            arrival_ns: now_ns,
            ticks: 0,
            timestamp,
        });
        reference.ticks += ticks_between(reference.timestamp, timestamp);
        reference.timestamp = timestamp;
        let since_ns = (now_ns - reference.arrival_ns).cast_signed();
        let lateness_ns = since_ns - ticks_to_ns(reference.ticks, self.clock_hz);
        self.arrived.lateness_ns_min = self.arrived.lateness_ns_min.min(lateness_ns);
        self.arrived.lateness_ns_max = self.arrived.lateness_ns_max.max(lateness_ns);
        Some(lateness_ns)
    }

    /// What comes next is measured from its own first packet. Numbers go on, whatever was jumped to
    /// (RFC 2326, appendix B): what is missing in between is lost.
    pub(super) fn restart_clock(&mut self, ended: Option<Ended>) {
        self.reference = None;
        self.playout.restart(ended, self.arrived.packets);
    }

    /// What a player would have had to buffer, of a channel if it is one; `None` if nothing came.
    pub(crate) fn played(&self, ended: Option<Ended>, is_channel: bool) -> Option<Played> {
        let playout = match is_channel {
            true => self.playout.of_channel(),
            false => self.playout,
        };
        playout.finish(ended, self.arrived.packets)
    }

    fn count(&mut self, sequence: u16) {
        self.arrived.packets += 1;
        let ahead = sequence.wrapping_sub(self.newest);
        if self.seen == 0 {
            (self.newest, self.seen) = (sequence, 1);
        } else if ahead != 0 && ahead < 0x8000 {
            self.arrived.lost += u64::from(ahead - 1);
            self.seen = self.seen.checked_shl(u32::from(ahead)).unwrap_or(0) | 1;
            self.newest = sequence;
        } else {
            let behind = self.newest.wrapping_sub(sequence);
            let bit = if behind < WINDOW { 1 << behind } else { 0 };
            if bit == 0 || self.seen & bit != 0 {
                self.arrived.repeated += 1;
            } else {
                self.seen |= bit;
                self.arrived.reordered += 1;
                self.arrived.lost = self.arrived.lost.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::load) fn packet(sequence: u16, timestamp: u32) -> [u8; 13] {
        let mut packet = [0x80; 13];
        packet[1] = 33;
        packet[2..4].copy_from_slice(&sequence.to_be_bytes());
        packet[4..8].copy_from_slice(&timestamp.to_be_bytes());
        packet
    }

    fn followed(sequences: &[u16]) -> Arrived {
        let mut follow = Follow::new(90_000);
        for &sequence in sequences {
            assert!(follow.packet(&packet(sequence, 0), 5_000_000).is_some());
        }
        follow.arrived
    }

    #[test]
    fn what_is_missing_late_or_twice_is_told_apart() {
        let counts = |sequences| {
            let a = followed(sequences);
            (a.packets, a.lost, a.reordered, a.repeated)
        };
        assert_eq!(counts(&[65_534, 65_535, 0, 1]), (4, 0, 0, 0));
        assert_eq!(counts(&[1, 2, 5]), (3, 2, 0, 0));
        assert_eq!(counts(&[1, 3, 2, 4]), (4, 0, 1, 0));
        assert_eq!(counts(&[1, 2, 2, 1, 3]), (5, 0, 0, 2));
        // The first may have been overtaken.
        assert_eq!(counts(&[7, 6, 8]), (3, 0, 1, 0));
        assert_eq!(counts(&[100, 300, 100]), (3, 199, 0, 1));
        assert_eq!(counts(&[100, 164, 101]), (3, 62, 1, 0));
    }

    #[test]
    fn lateness_is_against_the_first_packet() {
        let mut follow = Follow::new(90_000);
        let second_ns = 1_000_000_000;
        let ticks = u32::MAX - 45_000;
        assert_eq!(follow.packet(&packet(1, ticks), second_ns), Some(0));
        let half_later = packet(2, ticks.wrapping_add(45_000));
        let late = follow.packet(&half_later, second_ns * 3 / 2 + 7);
        assert_eq!(late, Some(7));
        let next = packet(3, ticks.wrapping_add(90_000));
        let early = follow.packet(&next, second_ns * 2 - 9);
        assert_eq!(early, Some(-9));
        let arrived = follow.arrived;
        assert_eq!((arrived.lateness_ns_min, arrived.lateness_ns_max), (-9, 7));
        assert_eq!(arrived.burst_packets_max, 1);
        follow.restart_clock(None);
        assert_eq!(follow.packet(&packet(4, 5), second_ns * 9), Some(0));
        assert_eq!((follow.arrived.lost, follow.arrived.repeated), (0, 0));
        assert_eq!(follow.arrived.bytes, 4 * 13);
    }

    #[test]
    fn lateness_is_by_the_clock_of_the_stream() {
        let mut follow = Follow::new(48_000);
        assert_eq!(follow.packet(&packet(1, 0), 1_000_000_000), Some(0));
        let second_later = packet(2, 48_000);
        assert_eq!(follow.packet(&second_later, 2_000_000_003), Some(3));
    }

    #[test]
    fn lateness_is_told_of_ten_hours_and_more() {
        for clock_hz in [90_000_u32, 48_000] {
            let mut follow = Follow::new(clock_hz);
            for (second, sequence) in (0..20 * 3600).zip((0..=u16::MAX).cycle()) {
                let timestamp = clock_hz.wrapping_mul(second);
                let now_ns = 1_000_000_000 * (1 + u64::from(second));
                let late = follow.packet(&packet(sequence, timestamp), now_ns);
                assert_eq!(late, Some(0), "{clock_hz} {second}");
            }
            assert_eq!((follow.arrived.lost, follow.arrived.repeated), (0, 0));
            assert_eq!(follow.played(None, false).unwrap().worst_ns, 0);
        }
    }

    #[test]
    fn numbers_that_jump_with_the_film_are_lost_or_repeated() {
        let jumped = |sequence| {
            let mut follow = Follow::new(90_000);
            follow.packet(&packet(100, 0), 5_000_000);
            follow.restart_clock(None);
            follow.packet(&packet(sequence, 0), 6_000_000);
            (follow.arrived.lost, follow.arrived.repeated)
        };
        assert_eq!(jumped(101), (0, 0));
        assert_eq!(jumped(900), (799, 0));
        assert_eq!(jumped(20), (0, 1));
    }

    #[test]
    fn what_is_no_rtp_counts_nothing() {
        let mut follow = Follow::new(90_000);
        assert_eq!(follow.packet(&[0x80, 200, 0, 1, 0, 0, 0, 0, 0], 1), None);
        assert_eq!(follow.packet(&[0x80, 33], 1), None);
        assert_eq!(follow.packet(b"GET / HTTP/1.1", 1), None);
        assert_eq!(follow.arrived, Arrived::default());
    }

    #[test]
    fn packets_without_a_pause_are_a_burst() {
        let mut follow = Follow::new(90_000);
        for (sequence, now_ns) in [
            (1, 5_000_000),
            (2, 5_100_000),
            (3, 5_200_000),
            (4, 9_000_000),
        ] {
            follow.packet(&packet(sequence, 0), now_ns);
        }
        assert_eq!(follow.arrived.burst_packets_max, 3);
    }
}
