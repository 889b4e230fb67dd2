//! A receiver that believes in sequence numbers, as the strictest of players do.
//!
//! It keeps the number it expects, and what is older than that by 16-bit arithmetic it throws away,
//! for ever: a server whose numbers jump is one that such a player does not hear. For a packet that
//! is missing it waits 100 ms. live555, on which VLC plays, does the same (`ReorderingPacketBuffer`
//! of MultiFramedRTPSource.cpp). Beside that it keeps the books of which receivers report (RFC
//! 3550, appendix A.1 and A.3).
//!
//! It works on what a [`receiver`](crate::receiver) has captured, by the times of arrival, so that
//! a slow test is no slow player. It does not look into payloads: that is the
//! [`checker`](crate::checker)'s part.

use std::collections::VecDeque;
use std::fmt;

use onrush_wire::rtp::Header;

use crate::checker::Datagram;

/// What became of all packets, in the receiver's own words.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// The packets that reached the decoder, as places in what arrived.
    pub delivered: Vec<usize>,
    /// Packets that were older than the expected one.
    pub old: u64,
    /// Packets that were there already.
    pub repeated: u64,
    /// Gaps that were given up after [`REORDER_NS_MAX`], or that were waited for in vain at the
    /// end.
    pub gaps: u64,
    /// Packets that came in order, or could be put in order.
    pub books: Books,
}

/// A source as RFC 3550, appendix A.1, follows it; without probation, since SETUP has told its
/// SSRC.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Books {
    /// Packets that were counted.
    pub received: u64,
    /// Times the source seemed to have begun anew: two packets in a row of another place.
    pub restarts: u64,
    /// Packets that were not counted, because of a large jump.
    pub bad: u64,
    base: u32,
    highest: u16,
    cycles: u32,
    bad_next: Option<u16>,
    /// Lost before the last restart.
    lost_before: i64,
}

/// Hears packets in order of arrival. What is no RTP packet is passed over.
#[must_use]
pub fn hear(arrived: &[Datagram]) -> Heard {
    let mut heard = Heard::default();
    let mut next = None;
    // In rising order of their numbers: number, place, arrival.
    let mut queue: VecDeque<(u16, usize, u64)> = VecDeque::new();
    for (place, datagram) in arrived.iter().enumerate() {
        let Some(header) = Header::read(&datagram.bytes) else {
            continue;
        };
        let now_ns = datagram.arrival_ns;
        heard.books.count(header.sequence);
        // What waited too long is given out before anybody looks at what comes now.
        heard.give_out(&mut queue, &mut next, |arrival_ns| {
            now_ns.saturating_sub(arrival_ns) > REORDER_NS_MAX
        });
        let sequence = header.sequence;
        let expected = *next.get_or_insert(sequence);
        if is_older(sequence, expected) {
            heard.old += 1;
            continue;
        }
        let at = queue.partition_point(|&(queued, ..)| is_older(queued, sequence));
        if queue
            .get(at)
            .is_some_and(|&(queued, ..)| queued == sequence)
        {
            heard.repeated += 1;
            continue;
        }
        queue.insert(at, (sequence, place, now_ns));
        heard.give_out(&mut queue, &mut next, |_| false);
    }
    heard.give_out(&mut queue, &mut next, |_| true);
    heard
}

impl Heard {
    /// How much a strict player misses or minds; 0 if each packet was delivered and nothing is
    /// missing in any book.
    #[must_use]
    pub fn faults(&self) -> u64 {
        let books = self.books.lost().unsigned_abs() + self.books.restarts + self.books.bad;
        self.old + self.repeated + self.gaps + books
    }

    /// Gives out the head of the queue as long as it is expected or its `patience` is over.
    fn give_out(
        &mut self,
        queue: &mut VecDeque<(u16, usize, u64)>,
        next: &mut Option<u16>,
        patience_is_over: impl Fn(u64) -> bool,
    ) {
        while let Some(&(sequence, place, arrival_ns)) = queue.front() {
            let in_order = *next == Some(sequence);
            if !in_order && !patience_is_over(arrival_ns) {
                return;
            }
            self.gaps += u64::from(!in_order);
            self.delivered.push(place);
            *next = Some(sequence.wrapping_add(1));
            queue.pop_front();
        }
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            old,
            repeated,
            gaps,
            books,
            delivered,
        } = self;
        let (lost, restarts, delivered) = (books.lost(), books.restarts, delivered.len());
        write!(
            f,
            "{delivered} packets delivered, {old} thrown away as old, {repeated} as repeated, \
             {gaps} gaps, {lost} reported lost, {restarts} restarts"
        )
    }
}

impl Books {
    /// Packets that a receiver report would call lost (RFC 3550, appendix A.3), restarts or not.
    #[must_use]
    pub fn lost(&self) -> i64 {
        self.lost_before + self.lost_since()
    }

    /// The extended highest sequence number.
    #[must_use]
    pub fn highest(&self) -> u32 {
        self.cycles + u32::from(self.highest)
    }

    fn lost_since(&self) -> i64 {
        match self.received {
            0 => 0,
            received => {
                let expected = i64::from(self.highest()) - i64::from(self.base) + 1;
                expected - i64::try_from(received).unwrap_or(i64::MAX)
            }
        }
    }

    /// `update_seq`.
    fn count(&mut self, sequence: u16) {
        if self.received == 0 {
            return self.begin(sequence);
        }
        let delta = sequence.wrapping_sub(self.highest);
        if delta < DROPOUT_MAX {
            if sequence < self.highest {
                self.cycles += 1 << 16;
            }
            self.highest = sequence;
        } else if delta <= MISORDER_MIN {
            if self.bad_next != Some(sequence) {
                self.bad_next = Some(sequence.wrapping_add(1));
                self.bad += 1;
                return;
            }
            self.lost_before = self.lost();
            self.restarts += 1;
            return self.begin(sequence);
        }
        self.received += 1;
    }

    /// `init_seq`.
    fn begin(&mut self, sequence: u16) {
        self.base = u32::from(sequence);
        self.highest = sequence;
        self.cycles = 0;
        self.bad_next = None;
        self.received = 1;
    }
}

/// As `seqNumLT` of live555 has it: half of all numbers are older than any.
const fn is_older(sequence: u16, than: u16) -> bool {
    sequence.wrapping_sub(than) >= 0x8000
}

/// How long a missing packet is waited for; live555's default.
pub const REORDER_NS_MAX: u64 = 100_000_000;
/// `MAX_DROPOUT` of RFC 3550.
const DROPOUT_MAX: u16 = 3000;
/// `RTP_SEQ_MOD - MAX_MISORDER` of RFC 3550.
const MISORDER_MIN: u16 = u16::MAX - 99;

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of these numbers, one each 10 ms.
    fn arrived(sequences: impl IntoIterator<Item = u16>) -> Vec<Datagram> {
        let datagram = |(at, sequence): (u64, u16)| Datagram {
            arrival_ns: at * 10_000_000,
            bytes: Header {
                marker: false,
                payload_type: 33,
                sequence,
                timestamp: 0,
                ssrc: 7,
            }
            .to_bytes()
            .to_vec(),
        };
        (0..).zip(sequences).map(datagram).collect()
    }

    fn heard(sequences: impl IntoIterator<Item = u16>) -> Heard {
        hear(&arrived(sequences))
    }

    #[test]
    fn what_rises_by_one_is_passed_on_also_across_the_wrap() {
        let heard = heard((0..200).map(|n: u16| n.wrapping_add(65_436)));
        assert_eq!(heard.delivered, (0..200).collect::<Vec<_>>());
        assert_eq!(heard.books.highest(), 65_536 + 99);
        assert_eq!(heard.faults(), 0);
    }

    #[test]
    fn a_packet_that_comes_late_but_within_the_wait_is_put_in_order() {
        let heard = heard([1, 2, 4, 5, 3, 6]);
        assert_eq!(heard.delivered, [0, 1, 4, 2, 3, 5]);
        assert_eq!(heard.faults(), 0);
    }

    #[test]
    fn a_missing_packet_is_waited_for_and_then_missing() {
        let numbers = [1, 2].into_iter().chain(4..30);
        let heard = heard(numbers.chain([3]));
        assert_eq!(heard.delivered, (0..28).collect::<Vec<_>>());
        // It came, but 100 ms after it was waited for: thrown away as old, and not lost to the
        // books.
        assert_eq!((heard.gaps, heard.old, heard.books.lost()), (1, 1, 0));
    }

    #[test]
    fn a_packet_that_never_comes_is_lost() {
        let heard = heard((1..100).filter(|&n| n != 50));
        assert_eq!((heard.gaps, heard.old, heard.books.lost()), (1, 0, 1));
    }

    #[test]
    fn a_jump_back_is_silence() {
        let heard = heard((20_000..20_100).chain(10_000..10_100));
        assert_eq!(heard.delivered, (0..100).collect::<Vec<_>>());
        assert_eq!((heard.old, heard.gaps), (100, 0));
        // The first of the new place is thrown away by the books, the second begins them anew.
        assert_eq!((heard.books.bad, heard.books.restarts), (1, 1));
    }

    #[test]
    fn a_jump_ahead_by_more_than_half_of_all_numbers_is_silence_too() {
        let heard = heard((0..100).chain(32_868..32_900));
        assert_eq!((heard.old, heard.gaps), (32, 0));
    }

    #[test]
    fn a_jump_ahead_is_a_gap_and_loss() {
        let heard = heard((0..100).chain(1100..1200));
        assert_eq!(heard.delivered.len(), 200);
        assert_eq!((heard.gaps, heard.old, heard.books.lost()), (1, 0, 1000));
    }

    #[test]
    fn what_is_there_already_is_passed_over() {
        let waiting = heard([1, 2, 4, 4, 3, 5]);
        assert_eq!((waiting.repeated, waiting.old), (1, 0));
        assert_eq!(waiting.delivered, [0, 1, 4, 2, 5]);
        assert_eq!(heard([1, 2, 2, 3]).old, 1);
    }

    #[test]
    fn what_is_not_whole_is_said() {
        let heard = heard([1, 2, 2, 3]);
        assert_eq!(heard.faults(), 2);
        assert_eq!(
            heard.to_string(),
            "3 packets delivered, 1 thrown away as old, 0 as repeated, 0 gaps, -1 reported lost, \
             0 restarts"
        );
    }
}
