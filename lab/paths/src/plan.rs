//! What is to be moved: which bytes of a file make which packet, and the header in front of each.
//!
//! Plain numbers, so that those who know protocols can make them and this crate need not. A packet
//! is a header of the plan's constant length (none for downloads) and the bytes of one or more
//! pieces of the file; streams whose packets lie apart in the file (M2TS) have several.

use std::ops::Range;

use thiserror::Error;

/// Pieces of the file that one packet is made of, at the most.
pub const PIECES_MAX: usize = 8;

/// Bytes of a packet, header included, at the most: the largest UDP payload over IPv4 (udp(7)).
pub const PACKET_BYTES_MAX: usize = onrush_sys::path::TRAIN_BYTES_MAX;

/// Bytes that lie together in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Where in the file they start.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
}

/// One packet of a [`Plan`].
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// What goes in front; empty in a plan without headers.
    pub header: &'a [u8],
    /// What follows, in order.
    pub pieces: &'a [Piece],
}

/// A file cut into packets.
#[derive(Clone, Debug)]
pub struct Plan {
    pieces: Vec<Piece>,
    /// One after the last piece of each packet; empty if every packet has one.
    ends: Vec<usize>,
    headers: Vec<u8>,
    header_bytes: usize,
    packet_bytes_max: usize,
    /// Whether each piece starts where the one before ended, or later.
    is_forward: bool,
    /// Whether all packets are equally large, but for the last, which may be smaller: then nothing
    /// needs to be looked up to know the size of a train, 44 packets twice for each.
    is_even: bool,
}

/// Why there is no such plan.
#[derive(Debug, Error, Eq, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// A packet without bytes, or too large for a datagram.
    #[error("packet {packet} has {bytes} bytes; a packet has 1 to {PACKET_BYTES_MAX}")]
    Packet {
        /// Which.
        packet: usize,
        /// Its bytes, header included.
        bytes: usize,
    },
    /// A packet of no piece, or of too many.
    #[error("packet {packet} is made of {pieces} pieces; a packet has 1 to {PIECES_MAX}")]
    Pieces {
        /// Which.
        packet: usize,
        /// Its pieces.
        pieces: usize,
    },
    /// The headers are not as many as the packets.
    #[error("{bytes} bytes of headers are not {packets} headers of {header_bytes} bytes")]
    Headers {
        /// Bytes given.
        bytes: usize,
        /// Packets of the plan.
        packets: usize,
        /// Bytes of a header.
        header_bytes: usize,
    },
}

impl Plan {
    /// `bytes` of a file from its start, in packets of `payload_bytes`; the last may be shorter.
    ///
    /// # Errors
    ///
    /// If `payload_bytes` is no size for a packet.
    pub fn regular(bytes: u64, payload_bytes: u32) -> Result<Self, PlanError> {
        Self::of_range(0..bytes, payload_bytes)
    }

    /// The same of a range of the file.
    ///
    /// # Errors
    ///
    /// If `payload_bytes` is no size for a packet.
    pub fn of_range(range: Range<u64>, payload_bytes: u32) -> Result<Self, PlanError> {
        let step = usize::try_from(payload_bytes.max(1)).expect("32 bits");
        let pieces = range.clone().step_by(step).map(|offset| Piece {
            offset,
            bytes: u32::try_from(range.end - offset)
                .map_or(payload_bytes, |left| left.min(payload_bytes)),
        });
        Self::new(pieces.collect(), Vec::new())
    }

    /// Packets of these pieces. `ends` has, for each packet, the number of the piece after its
    /// last; empty means a piece a packet.
    ///
    /// # Errors
    ///
    /// If a packet is empty, too large, or in too many pieces.
    pub fn new(pieces: Vec<Piece>, ends: Vec<usize>) -> Result<Self, PlanError> {
        let mut plan = Self {
            pieces,
            ends,
            headers: Vec::new(),
            header_bytes: 0,
            packet_bytes_max: 0,
            is_forward: true,
            is_even: false,
        };
        plan.is_forward = plan
            .pieces
            .is_sorted_by(|a, b| a.offset + u64::from(a.bytes) <= b.offset);
        plan.check()?;
        let sizes = || (0..plan.packets()).map(|number| plan.packet_bytes(number));
        let is_full = |bytes: &usize| *bytes == plan.packet_bytes_max;
        plan.is_even = sizes().take_while(is_full).count() + 1 >= plan.packets();
        Ok(plan)
    }

    /// The same with headers of `header_bytes` each, one behind the other in `headers`.
    ///
    /// # Errors
    ///
    /// If they are not as many as the packets, or make one too large.
    pub fn with_headers(
        mut self,
        header_bytes: usize,
        headers: Vec<u8>,
    ) -> Result<Self, PlanError> {
        let packets = self.packets();
        if header_bytes.checked_mul(packets) != Some(headers.len()) {
            return Err(PlanError::Headers {
                bytes: headers.len(),
                packets,
                header_bytes,
            });
        }
        self.header_bytes = header_bytes;
        self.headers = headers;
        self.check()?;
        Ok(self)
    }

    /// How many packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        if self.ends.is_empty() {
            self.pieces.len()
        } else {
            self.ends.len()
        }
    }

    /// Bytes of a header; 0 in a plan without.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Bytes of the largest packet, header included: the stride of packet images.
    #[must_use]
    pub fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    /// Whether no two packets have a byte of the file in common, and they lie in it in their order.
    #[must_use]
    pub fn is_apart(&self) -> bool {
        self.is_forward
    }

    /// Packet `number`, counted from 0.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn packet(&self, number: usize) -> Packet<'_> {
        Packet {
            header: &self.headers[number * self.header_bytes..][..self.header_bytes],
            pieces: &self.pieces[self.pieces_of(number)],
        }
    }

    /// Bytes of packet `number`, header included.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn packet_bytes(&self, number: usize) -> usize {
        self.packet(number).bytes()
    }

    /// Bytes of these packets together, headers included.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    #[must_use]
    pub fn bytes(&self, packets: Range<usize>) -> u64 {
        if !self.is_even || packets.is_empty() {
            return packets.map(|n| self.packet_bytes(n) as u64).sum();
        }
        let full = (packets.len() - 1) as u64 * self.packet_bytes_max as u64;
        full + self.packet_bytes(packets.end - 1) as u64
    }

    /// The smallest range of the file that holds these packets; empty without packets.
    #[must_use]
    pub fn file_range(&self, packets: Range<usize>) -> Range<u64> {
        let of = |packets: Range<usize>| packets.flat_map(|n| self.packet(n).pieces);
        let (firsts, lasts) = match self.is_forward && !packets.is_empty() {
            true => (
                packets.start..packets.start + 1,
                packets.end - 1..packets.end,
            ),
            false => (packets.clone(), packets),
        };
        let start = of(firsts).map(|p| p.offset).min().unwrap_or(0);
        let end = of(lasts).map(|p| p.offset + u64::from(p.bytes)).max();
        start..end.unwrap_or(start)
    }

    /// How many of these packets, from the first, can leave as one train: equal in size but for the
    /// last, which may be shorter, and within `packets_max` and the bytes of a send.
    #[must_use]
    pub fn train(&self, packets: Range<usize>, packets_max: usize) -> usize {
        let Some(first) = packets.clone().next() else {
            return 0;
        };
        let stride = self.packet_bytes(first);
        let packets_max = packets_max.min(PACKET_BYTES_MAX / stride).max(1);
        if self.is_even {
            return packets.len().min(packets_max);
        }
        let mut count = 0;
        for number in packets.take(packets_max) {
            let bytes = self.packet_bytes(number);
            if bytes > stride {
                break;
            }
            count += 1;
            if bytes < stride {
                break;
            }
        }
        count
    }

    fn pieces_of(&self, number: usize) -> Range<usize> {
        if self.ends.is_empty() {
            return number..number + 1;
        }
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[number]
    }

    fn check(&mut self) -> Result<(), PlanError> {
        let mut before = 0;
        for (packet, &end) in self.ends.iter().enumerate() {
            let pieces = end.saturating_sub(before);
            if !(1..=PIECES_MAX).contains(&pieces) || end > self.pieces.len() {
                return Err(PlanError::Pieces { packet, pieces });
            }
            before = end;
        }
        for number in 0..self.packets() {
            let bytes = self.packet_bytes(number);
            let payload = bytes - self.header_bytes;
            if payload == 0 || bytes > PACKET_BYTES_MAX {
                let packet = number;
                return Err(PlanError::Packet { packet, bytes });
            }
            self.packet_bytes_max = self.packet_bytes_max.max(bytes);
        }
        Ok(())
    }
}

impl Packet<'_> {
    /// Bytes of the packet, header included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let payload = self.pieces.iter().map(|piece| piece.bytes as usize);
        self.header.len() + payload.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, bytes: u32) -> Piece {
        Piece { offset, bytes }
    }

    #[test]
    fn a_regular_plan_covers_every_byte_once() {
        let plan = Plan::regular(2500, 1000).unwrap();
        let pieces: Vec<_> = (0..3).map(|n| plan.packet(n).pieces[0]).collect();
        assert_eq!(
            pieces,
            [piece(0, 1000), piece(1000, 1000), piece(2000, 500)]
        );
        assert_eq!(plan.bytes(0..3), 2500);
        assert_eq!(plan.file_range(1..3), 1000..2500);
        assert_eq!(plan.file_range(1..1), 0..0);
        assert_eq!(Plan::regular(0, 1000).unwrap().packets(), 0);
        assert!(Plan::regular(1, 0).is_err());
    }

    #[test]
    fn headers_are_as_many_as_packets() {
        let plan = Plan::regular(30, 10).unwrap();
        let headers = (0..6).collect();
        let with = plan.clone().with_headers(2, headers).unwrap();
        assert_eq!(with.packet(1).header, [2, 3]);
        assert_eq!((with.packet_bytes(2), with.packet_bytes_max()), (12, 12));
        let wrong = plan.with_headers(2, vec![0; 5]).unwrap_err();
        assert!(wrong.to_string().contains("not 3 headers of 2"), "{wrong}");
    }

    #[test]
    fn a_packet_has_so_many_pieces_and_bytes_and_no_more() {
        let pieces = |count: usize| vec![piece(0, 1); count];
        assert!(Plan::new(pieces(PIECES_MAX), vec![PIECES_MAX]).is_ok());
        let more = PIECES_MAX + 1;
        let refused = Plan::new(pieces(more), vec![more]).unwrap_err();
        assert_eq!(
            refused,
            PlanError::Pieces {
                packet: 0,
                pieces: more
            }
        );
        assert!(Plan::new(pieces(2), vec![1, 1]).is_err(), "an empty packet");
        assert!(Plan::new(pieces(2), vec![1, 3]).is_err(), "no such piece");
        let max = u32::try_from(PACKET_BYTES_MAX).unwrap();
        assert!(Plan::regular(max.into(), max).is_ok());
        assert!(Plan::regular(u64::from(max) + 1, max + 1).is_err());
        let full = Plan::regular(max.into(), max).unwrap();
        assert!(full.with_headers(1, vec![0]).is_err());
    }

    /// Sizes, sums and trains of a plan, looked up packet by packet and not.
    #[test]
    fn an_even_plan_says_the_same_as_one_that_is_looked_up() {
        for last in [1000, 400] {
            let pieces = [1000, 1000, 1000, last]
                .map(|bytes| piece(0, bytes))
                .to_vec();
            let even = Plan::new(pieces.clone(), Vec::new()).unwrap();
            let even = even.with_headers(12, vec![0; 48]).unwrap();
            assert!(even.is_even);
            let mut looked_up = even.clone();
            looked_up.is_even = false;
            for (first, end) in (0..=4).flat_map(|first| (first..=4).map(move |end| (first, end))) {
                assert_eq!(even.bytes(first..end), looked_up.bytes(first..end));
                for most in [1, 3, 64] {
                    let trains = [&even, &looked_up].map(|plan| plan.train(first..end, most));
                    assert_eq!(trains[0], trains[1], "{first}..{end}, {most}");
                }
            }
        }
        for sizes in [vec![400, 1000], vec![1000, 400, 1000], vec![1000, 400, 400]] {
            let pieces = sizes.into_iter().map(|bytes| piece(0, bytes)).collect();
            assert!(!Plan::new(pieces, Vec::new()).unwrap().is_even);
        }
    }

    #[test]
    fn a_train_is_of_equal_packets_but_for_a_shorter_last() {
        let sizes = [100, 100, 60, 100, 100, 140, 100];
        let pieces = sizes.map(|bytes| piece(0, bytes)).to_vec();
        let plan = Plan::new(pieces, Vec::new()).unwrap();
        assert_eq!(plan.train(0..7, 64), 3, "a shorter one ends it");
        assert_eq!(plan.train(3..7, 64), 2, "a longer one is not in it");
        assert_eq!(plan.train(5..7, 64), 2);
        assert_eq!(plan.train(0..7, 2), 2);
        assert_eq!(plan.train(0..1, 64), 1);
        assert_eq!(plan.train(7..7, 64), 0);
        let large = Plan::regular(1 << 20, 30_000).unwrap();
        assert_eq!(large.train(0..30, 64), 2, "65,507 bytes a send");
    }
}
