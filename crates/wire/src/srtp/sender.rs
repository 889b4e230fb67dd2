//! The packets of one SSRC that come from elsewhere, as they come: numbered, encrypted, and no
//! index used twice.

use super::keys::MasterKey;
use super::rtp::{RtpKeys, header_of, index_of};
use super::tags::CompressEach;
use super::{ReplayWindow, SrtpError};
use crate::rtp::{HEADER_BYTES, Header, Numbering, Position, ticks_of};

/// Encrypts the packets of a live stream, under an SSRC that nobody else has with that key.
///
/// Whoever sends them decides their numbers, and may send one number twice with other bytes, begin
/// anew anywhere, or be replaced by another sender. So each packet gets an index by its place among
/// those before, and one whose index was used is refused: a key stream is never used for two
/// packets (RFC 3711, section 9.1). Where the numbers of a source begin anew (two in a row that are
/// too old, RFC 3550, appendix A.1), or the source is another, they go on behind the highest.
#[derive(Clone, Debug)]
pub struct RtpSender {
    keys: RtpKeys,
    ssrc: u32,
    /// The index of the first packet.
    first: u64,
    /// The SSRC that packets come with.
    source: Option<u32>,
    numbering: Numbering,
    used: ReplayWindow,
    /// The timestamp of the packet with the highest index, and when it came.
    newest: Option<(u32, u64)>,
    /// The number behind one that was too old.
    behind_old: Option<u16>,
    refused: u64,
}

/// When a packet has come, and ticks a second of its timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// By a monotonic clock.
    pub ns: u64,
    /// Ticks a second.
    pub clock_hz: u32,
}

/// So far below the highest it is known which indexes are used, as receivers know it.
const WINDOW: i64 = 64;

impl RtpSender {
    /// Under an SSRC that is its alone with that key; the first packet has that index.
    #[must_use]
    pub fn new(master: &MasterKey, ssrc: u32, first: u64) -> Self {
        Self {
            keys: RtpKeys::new(master),
            ssrc,
            first,
            source: None,
            numbering: Numbering::own(Position::default(), ssrc),
            used: ReplayWindow::default(),
            newest: None,
            behind_old: None,
            refused: 0,
        }
    }

    /// The SSRC of what it encrypts.
    #[must_use]
    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Packets that it has refused: their index was used, or they are no RTP packets.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// How often sequence numbers have wrapped at a packet that has been encrypted lately and has
    /// that number now; of none at the next.
    #[must_use]
    pub fn rollover(&self, sequence: Option<u16>) -> u32 {
        let next = self
            .used
            .highest()
            .map_or(self.first, |highest| highest + 1);
        let index = sequence.map_or(next, |sequence| index_of(sequence, next));
        u32::try_from(index >> 16).unwrap_or(u32::MAX)
    }

    /// The numbers that a packet with these has when it is encrypted, as far as is known.
    #[must_use]
    pub fn position(&self, source: Position) -> Position {
        self.numbering.position(source)
    }

    /// What comes next goes on behind the highest index, whatever its numbers.
    pub fn begin_anew(&mut self) {
        self.source = None;
    }

    /// The numbers that a packet with this header will have if it is the next.
    pub fn expect(&mut self, header: &Header, at: Arrival) -> Position {
        if self.source != Some(header.ssrc) {
            self.adopt(header, at);
        }
        self.position(position_of(header))
    }

    /// Encrypts a packet: with its tag behind it; `None` if it is refused.
    pub fn protect(&mut self, packet: &[u8], at: Arrival) -> Option<Vec<u8>> {
        let (index, mut sealed) = self.number(packet, at)?;
        let protected = self.keys.protect(index, &mut sealed);
        self.refused += u64::from(protected.is_err());
        protected.ok().map(|()| sealed)
    }

    /// As [`Self::protect`], of several that follow each other; tags are made together by
    /// `compress` ([`RtpKeys::protect_each`]).
    ///
    /// # Errors
    ///
    /// [`SrtpError::KeyUsedUp`] beyond 2^48 packets.
    pub fn protect_each<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a [u8]>,
        at: Arrival,
        compress: CompressEach,
    ) -> Result<Vec<Vec<u8>>, SrtpError> {
        let numbered = packets.filter_map(|packet| self.number(packet, at));
        let (indexes, mut sealed): (Vec<_>, Vec<_>) = numbered.unzip();
        let lent = sealed.iter_mut().map(Vec::as_mut_slice);
        let mut lent: Vec<(u64, &mut [u8])> = indexes.into_iter().zip(lent).collect();
        let protected = self.keys.protect_each(&mut lent, compress);
        protected.map(|()| sealed)
    }

    /// A packet with the numbers that it gets and room for its tag, and its index, which is used
    /// from now on.
    fn number(&mut self, packet: &[u8], at: Arrival) -> Option<(u64, Vec<u8>)> {
        let numbered = self.number_whole(packet, at);
        self.refused += u64::from(numbered.is_none());
        numbered
    }

    fn number_whole(&mut self, packet: &[u8], at: Arrival) -> Option<(u64, Vec<u8>)> {
        header_of(packet).ok()?;
        let header = Header::read(packet)?;
        let position = self.expect(&header, at);
        let (index, position) = match self.place_of(position.sequence) {
            Place::Free(index) => (index, position),
            Place::Used => return None,
            Place::Old => {
                let next = header.sequence.wrapping_add(1);
                let is_meant = self.behind_old.replace(next) == Some(header.sequence);
                // What was expected never came: nothing was sent that this could be older than.
                if !is_meant && self.used.highest().is_some() {
                    return None;
                }
                self.adopt(&header, at);
                let position = self.position(position_of(&header));
                let Place::Free(index) = self.place_of(position.sequence) else {
                    return None;
                };
                (index, position)
            }
        };
        self.behind_old = None;
        if self.used.highest().is_none_or(|highest| highest < index) {
            self.newest = Some((position.timestamp, at.ns));
        }
        self.used.insert(index);
        let (head, rest) = packet.split_first_chunk::<HEADER_BYTES>()?;
        let mut sealed = Vec::with_capacity(packet.len() + self.keys.tag_bytes());
        sealed.extend_from_slice(&self.numbering.header(head));
        sealed.extend_from_slice(rest);
        sealed.resize(packet.len() + self.keys.tag_bytes(), 0);
        Some((index, sealed))
    }

    /// Numbers on from the highest index for a source whose next packet has this header.
    fn adopt(&mut self, header: &Header, at: Arrival) {
        let next = self
            .used
            .highest()
            .map_or(self.first, |highest| highest + 1);
        let [.., high, low] = next.to_be_bytes();
        let timestamp = self.newest.map_or(header.timestamp, |(newest, came_ns)| {
            let passed_ns = at.ns.saturating_sub(came_ns);
            newest.wrapping_add(ticks_of(passed_ns, at.clock_hz.into()).max(1))
        });
        let offset = Position {
            sequence: u16::from_be_bytes([high, low]).wrapping_sub(header.sequence),
            timestamp: timestamp.wrapping_sub(header.timestamp),
        };
        self.numbering = Numbering::own(offset, self.ssrc);
        self.source = Some(header.ssrc);
    }

    fn place_of(&self, sequence: u16) -> Place {
        let near = self.used.highest().unwrap_or(self.first);
        let [.., high, low] = near.to_be_bytes();
        let ahead = sequence.wrapping_sub(u16::from_be_bytes([high, low]));
        let ahead = i64::from(ahead.cast_signed());
        let index = near.checked_add_signed(ahead);
        match index.filter(|index| *index >= self.first) {
            _ if ahead <= -WINDOW => Place::Old,
            Some(index) if self.used.is_new(index) => Place::Free(index),
            _ => Place::Used,
        }
    }
}

/// What is known of an index.
enum Place {
    Free(u64),
    /// It is used, or comes before the first.
    Used,
    /// So far below the highest that nobody knows.
    Old,
}

fn position_of(header: &Header) -> Position {
    Position {
        sequence: header.sequence,
        timestamp: header.timestamp,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::{RtpReceiver, Suite, compress_one_by_one};
    use super::*;

    const AT: Arrival = Arrival {
        ns: 0,
        clock_hz: 90_000,
    };

    fn master(suite: Suite) -> MasterKey {
        MasterKey::new(suite, &vec![9; suite.master_bytes()]).unwrap()
    }

    fn sender(first: u64) -> RtpSender {
        RtpSender::new(&master(Suite::default()), 77, first)
    }

    fn packet(ssrc: u32, sequence: u16, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence,
            timestamp: 1000,
            ssrc,
        };
        [&header.to_bytes()[..], payload].concat()
    }

    fn index(sender: &mut RtpSender, ssrc: u32, sequence: u16) -> Option<u64> {
        let numbered = sender.number(&packet(ssrc, sequence, b"payload"), AT);
        numbered.map(|(index, _)| index)
    }

    #[test]
    fn what_comes_in_order_is_what_a_receiver_reads() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let mut sender = RtpSender::new(&master(suite), 77, 65_530);
            let mut together = sender.clone();
            let mut receiver = RtpReceiver::new(&master(suite));
            let packets: Vec<_> = (0..20).map(|n| packet(5, 40_000 + n, b"payload")).collect();
            let each = packets.iter().map(Vec::as_slice);
            let each = together.protect_each(each, AT, compress_one_by_one);
            for (n, (packet, same)) in (0_u16..).zip(packets.iter().zip(each.unwrap())) {
                let mut sealed = sender.protect(packet, AT).unwrap();
                assert_eq!(sealed, same);
                let opened = receiver.unprotect(&mut sealed).unwrap();
                assert!(opened.ends_with(b"payload"));
                let header = Header::read(opened).unwrap();
                assert_eq!((header.ssrc, header.timestamp), (77, 1000));
                assert_eq!(header.sequence, 65_530_u16.wrapping_add(n), "over the wrap");
            }
            assert_eq!(
                (sender.rollover(None), sender.rollover(Some(65_531))),
                (1, 0)
            );
            assert_eq!(sender.refused() + together.refused(), 0);
        }
    }

    #[test]
    fn a_number_is_not_used_for_other_bytes() {
        let mut sender = sender(100);
        assert!(sender.protect(&packet(5, 7, b"one"), AT).is_some());
        assert!(sender.protect(&packet(5, 7, b"two"), AT).is_none());
        // Out of order, within what receivers take; before the first there is nothing.
        assert_eq!(index(&mut sender, 5, 9), Some(102));
        assert_eq!(index(&mut sender, 5, 8), Some(101));
        assert_eq!(index(&mut sender, 5, 8), None);
        assert_eq!(index(&mut sender, 5, 6), None);
        assert_eq!(index(&mut sender, 5, 10), Some(103));
        assert!(sender.protect(b"short", AT).is_none());
        let truncated = [&[0x8f][..], &packet(5, 11, b"")[1..]].concat();
        assert!(
            sender.protect(&truncated, AT).is_none(),
            "CSRCs are missing"
        );
        assert_eq!(sender.refused(), 5);
    }

    #[test]
    fn a_source_that_begins_anew_goes_on() {
        let mut sender = sender(1 << 16 | 5);
        assert_eq!(sender.rollover(None), 1);
        assert_eq!(index(&mut sender, 5, 30_000), Some(1 << 16 | 5));
        // Below by more than what is remembered: the second says that it is meant so.
        assert_eq!(index(&mut sender, 5, 20_000), None);
        assert_eq!(index(&mut sender, 5, 30_001), Some(1 << 16 | 6));
        assert_eq!(index(&mut sender, 5, 20_001), None);
        assert_eq!(index(&mut sender, 5, 20_002), Some(1 << 16 | 7));
        assert_eq!(index(&mut sender, 5, 20_003), Some(1 << 16 | 8));
        // Another source, and the first once more with the numbers that it had.
        let later = Arrival {
            ns: 2_000_000_000,
            ..AT
        };
        let (number, sealed) = sender.number(&packet(6, 1, b""), later).unwrap();
        assert_eq!(number, 1 << 16 | 9);
        let header = Header::read(&sealed).unwrap();
        // A tick later where it began anew, and by two seconds now.
        assert_eq!((header.ssrc, header.timestamp), (77, 1001 + 180_000));
        assert_eq!(index(&mut sender, 5, 30_000), Some(1 << 16 | 10));
        sender.begin_anew();
        assert_eq!(index(&mut sender, 5, 30_000), Some(1 << 16 | 11));
        assert_eq!(index(&mut sender, 5, 30_001), Some(1 << 16 | 12));
    }

    #[test]
    fn the_first_numbers_are_foretold() {
        let mut sender = sender(3 << 16 | 40);
        let first = packet(5, 999, b"payload");
        let foretold = sender.expect(&Header::read(&first).unwrap(), AT);
        assert_eq!((foretold.sequence, foretold.timestamp), (40, 1000));
        let sealed = sender.protect(&first, AT).unwrap();
        assert_eq!(position_of(&Header::read(&sealed).unwrap()), foretold);
        assert_eq!(sender.rollover(Some(40)), 3);
    }

    #[test]
    fn the_first_may_be_far_from_what_was_foretold() {
        for far in [999 + 40_000, 999_u16.wrapping_sub(100)] {
            let mut sender = sender(40);
            let foretold = packet(5, 999, b"payload");
            sender.expect(&Header::read(&foretold).unwrap(), AT);
            assert_eq!(index(&mut sender, 5, far), Some(40));
            assert_eq!(index(&mut sender, 5, far.wrapping_add(1)), Some(41));
        }
    }

    proptest! {
        /// Whatever comes, of whomever: no index is used twice, and none below the first.
        #[test]
        fn no_index_is_used_twice(
            first in 0_u64..200_000,
            steps in proptest::collection::vec(
                (0_u32..3, prop_oneof![0_u16..100, any::<u16>()], any::<bool>(), 0_u8..50), 0..400),
        ) {
            let (mut sender, mut used, mut last) = (sender(first), HashSet::new(), 0_u16);
            for (ssrc, number, goes_on, anew) in steps {
                last = if goes_on { last.wrapping_add(number % 5) } else { number };
                if anew == 0 {
                    sender.begin_anew();
                }
                if let Some(index) = index(&mut sender, ssrc, last) {
                    prop_assert!(index >= first && used.insert(index), "{index}");
                }
            }
        }
    }
}
