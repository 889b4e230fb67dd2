//! The RTP fixed header (RFC 3550, section 5.1), as Onrush writes it: no extension or CSRC, and
//! padding only where a packet is filled up.

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 12;

/// Of a header's first byte, that the packet ends with padding, whose last byte is its length.
pub(crate) const PADDING_BIT: u8 = 0x20;

/// The static payload type of MPEG-2 transport streams (RFC 3551, table 5; RFC 2250).
pub const PAYLOAD_TYPE_MP2T: u8 = 33;

/// The first of the payload types that a session defines for itself (RFC 3551, section 6).
pub const PAYLOAD_TYPE_DYNAMIC: u8 = 96;

/// Ticks a second of the MP2T timestamp (RFC 2250, section 2).
pub const CLOCK_HZ: u64 = 90_000;

/// Packets by which one may come too late before the numbers are taken to have begun anew
/// (`MAX_MISORDER` of RFC 3550, appendix A.1).
pub(crate) const BEHIND_MAX: u16 = 100;

/// One RTP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Set where the timestamp is discontinuous (RFC 2250, section 2).
    pub marker: bool,
    /// Seven bits: what the payload is.
    pub payload_type: u8,
    /// One more than that of the packet before, modulo 65536.
    pub sequence: u16,
    /// When the first byte of the payload is due, in [`CLOCK_HZ`] ticks, modulo 2^32.
    pub timestamp: u32,
    /// The synchronisation source.
    pub ssrc: u32,
}

impl Header {
    /// Reads a header, or `None` if `bytes` is shorter than [`HEADER_BYTES`] or not RTP version 2.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        (b[0] >> 6 == 2).then_some(Self {
            marker: b[1] & 0x80 != 0,
            payload_type: b[1] & 0x7f,
            sequence: u16::from_be_bytes([b[2], b[3]]),
            timestamp: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
            ssrc: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
        })
    }

    /// The header as it is on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let sequence = self.sequence.to_be_bytes();
        let t = self.timestamp.to_be_bytes();
        let s = self.ssrc.to_be_bytes();
        let second = u8::from(self.marker) << 7 | (self.payload_type & 0x7f);
        [
            0x80,
            second,
            sequence[0],
            sequence[1],
            t[0],
            t[1],
            t[2],
            t[3],
            s[0],
            s[1],
            s[2],
            s[3],
        ]
    }
}

/// What a packet carries, behind CSRCs and extension and without padding (RFC 3550, sections 5.1
/// and 5.3.1); `None` if it is no RTP packet or says that more of these are there than it has
/// bytes.
#[must_use]
pub fn payload(packet: &[u8]) -> Option<&[u8]> {
    Header::read(packet)?;
    let mut start = HEADER_BYTES + 4 * usize::from(packet[0] & 0xf);
    if packet[0] & 0x10 != 0 {
        let length = packet.get(start + 2..start + 4)?;
        start += 4 + 4 * usize::from(u16::from_be_bytes([length[0], length[1]]));
    }
    let padding_bytes = usize::from(padding_bytes(packet));
    packet.get(start..packet.len().checked_sub(padding_bytes)?)
}

/// Tells packets that come late, or twice, from numbers that begin anew.
///
/// What is behind by more than 100 is late as well, unless one follows on it: a single packet may
/// come by any detour (`bad_seq` of RFC 3550, appendix A.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Stragglers {
    /// The number behind that of one that was too late, if that came last.
    restart: Option<u16>,
}

impl Stragglers {
    /// Whether a packet of that number comes late, where the newest, or the one that is next, is
    /// the other.
    #[must_use]
    pub fn is_late(&mut self, sequence: u16, other: u16) -> bool {
        let behind = other.wrapping_sub(sequence);
        if behind == 0 || behind > u16::MAX / 2 {
            self.restart = None;
            return false;
        }
        if behind <= BEHIND_MAX {
            return true;
        }
        let has_restarted = self.restart == Some(sequence);
        self.restart = match has_restarted {
            true => None,
            false => Some(sequence.wrapping_add(1)),
        };
        !has_restarted
    }
}

/// Bytes of padding at the end of a packet (RFC 3550, section 5.1), with the one that says how many
/// there are; 0 if its header says that it has none.
#[must_use]
pub fn padding_bytes(packet: &[u8]) -> u8 {
    match packet {
        [first, .., last] if first & PADDING_BIT != 0 => *last,
        _ => 0,
    }
}

/// How the numbers of one session differ from those in its source's packet images.
///
/// The packets of a session are numbered without a gap and stamped without a step back for as long
/// as it lives, whatever it jumps to (RFC 2326, appendix B): receivers drop what looks old. Until
/// its first jump a session has the numbers of the images, which all sessions of a file share.
///
/// ```
/// use onrush_wire::rtp::{Numbering, Position};
///
/// // Played from 10 to 15 s, then from 18 s: one unbroken run.
/// let end = Position { sequence: 750, timestamp: 15 * 90_000 };
/// let next = Position { sequence: 900, timestamp: 18 * 90_000 };
/// let numbering = Numbering::default().continued(end, next);
/// assert_eq!(numbering.position(next), end);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Numbering {
    /// Added to the sequence number, modulo 2^16.
    sequence: u16,
    /// Added to the timestamp, modulo 2^32.
    timestamp: u32,
    /// In place of the source's SSRC.
    ssrc: Option<u32>,
}

/// A sequence number and a timestamp that belong together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Position {
    /// The packet's sequence number.
    pub sequence: u16,
    /// The packet's timestamp, in ticks of the payload's clock.
    pub timestamp: u32,
}

impl Numbering {
    /// Adds `offset` to the numbers of the source, and has an SSRC of its own if there is one.
    #[must_use]
    pub const fn new(offset: Position, ssrc: Option<u32>) -> Self {
        Self {
            sequence: offset.sequence,
            timestamp: offset.timestamp,
            ssrc,
        }
    }

    /// Numbers of its own from the start: RFC 3550 wants them random (sections 5.1 and 8).
    #[must_use]
    pub const fn own(offset: Position, ssrc: u32) -> Self {
        Self::new(offset, Some(ssrc))
    }

    /// Its own SSRC, if it has one.
    #[must_use]
    pub const fn own_ssrc(&self) -> Option<u32> {
        self.ssrc
    }

    /// Whether packets have the numbers that they have in the images.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        *self == Self::default()
    }

    /// After a jump: the source's packet at `next` is numbered and stamped as the one at `end`
    /// would have been, which is the first that was not sent before the jump.
    #[must_use]
    pub const fn continued(self, end: Position, next: Position) -> Self {
        let sequence = end.sequence.wrapping_sub(next.sequence);
        let timestamp = end.timestamp.wrapping_sub(next.timestamp);
        Self {
            sequence: self.sequence.wrapping_add(sequence),
            timestamp: self.timestamp.wrapping_add(timestamp),
            ssrc: self.ssrc,
        }
    }

    /// What the packet has in this session that has these numbers in the images.
    #[must_use]
    pub const fn position(&self, source: Position) -> Position {
        Position {
            sequence: source.sequence.wrapping_add(self.sequence),
            timestamp: source.timestamp.wrapping_add(self.timestamp),
        }
    }

    /// The SSRC of the session, where the source's is `source`.
    #[must_use]
    pub fn ssrc(&self, source: u32) -> u32 {
        self.ssrc.unwrap_or(source)
    }

    /// The header in this session of a packet with this one in the images. What it says beside its
    /// numbers stays as it is.
    #[must_use]
    pub fn header(&self, source: &[u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
        let [b0, b1, s0, s1, t0, t1, t2, t3, ssrc @ ..] = *source;
        let position = self.position(Position {
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
        });
        let [s0, s1] = position.sequence.to_be_bytes();
        let [t0, t1, t2, t3] = position.timestamp.to_be_bytes();
        let [x0, x1, x2, x3] = self.ssrc.map_or(ssrc, u32::to_be_bytes);
        [b0, b1, s0, s1, t0, t1, t2, t3, x0, x1, x2, x3]
    }
}

/// What a payload type means everywhere (RFC 3551, tables 4 and 5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StaticPayload {
    /// The number in the header.
    pub payload_type: u8,
    /// Whether it is sound alone.
    pub is_audio: bool,
    /// Its name, as in `a=rtpmap`; with the number of channels, where there are two.
    pub encoding: (&'static str, Option<u8>),
    /// Ticks a second of its timestamps.
    pub clock_hz: u32,
}

impl StaticPayload {
    /// A transport stream.
    pub const MP2T: Self = Self {
        payload_type: PAYLOAD_TYPE_MP2T,
        is_audio: false,
        encoding: ("MP2T", None),
        clock_hz: 90_000,
    };

    /// What `payload_type` means; `None` for those that every session defines for itself, and for
    /// old speech codecs.
    #[must_use]
    pub fn of(payload_type: u8) -> Option<Self> {
        let (is_audio, encoding, clock_hz) = match payload_type {
            0 => (true, ("PCMU", None), 8000),
            8 => (true, ("PCMA", None), 8000),
            // 16 kHz of sound by 8 kHz of ticks: an error of RFC 1890 that was kept.
            9 => (true, ("G722", None), 8000),
            10 => (true, ("L16", Some(2)), 44_100),
            11 => (true, ("L16", None), 44_100),
            14 => (true, ("MPA", None), 90_000),
            26 => (false, ("JPEG", None), 90_000),
            31 => (false, ("H261", None), 90_000),
            32 => (false, ("MPV", None), 90_000),
            PAYLOAD_TYPE_MP2T => return Some(Self::MP2T),
            34 => (false, ("H263", None), 90_000),
            _ => return None,
        };
        Some(Self {
            payload_type,
            is_audio,
            encoding,
            clock_hz,
        })
    }
}

/// A media time in nanoseconds as RTP ticks since the start of the media, modulo 2^32.
#[must_use]
pub fn ticks(time_ns: u64) -> u32 {
    ticks_of(time_ns, CLOCK_HZ)
}

/// The same for a payload whose clock makes `clock_hz` ticks a second.
#[must_use]
pub fn ticks_of(time_ns: u64, clock_hz: u64) -> u32 {
    // Widened: 2^64 ns times 90,000 overflows u64 after 57 hours.
    let ticks = u128::from(time_ns) * u128::from(clock_hz) / 1_000_000_000;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "RTP timestamps are modulo 2^32"
    )]
    let wrapped = ticks as u32;
    wrapped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_reads_back_as_written() {
        let header = Header {
            marker: true,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: 0xfffe,
            timestamp: 0x8000_0001,
            ssrc: 0xdead_beef,
        };
        assert_eq!(Header::read(&header.to_bytes()), Some(header));
        assert_eq!(header.to_bytes()[..2], [0x80, 0xa1]);
        assert_eq!(Header::read(&header.to_bytes()[..11]), None);
        assert_eq!(Header::read(&[0x40; 12]), None);
    }

    #[test]
    fn a_header_of_its_own_differs_in_its_numbers_alone() {
        let source = Header {
            marker: true,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: 0xffff,
            timestamp: 0xffff_ff00,
            ssrc: 7,
        };
        let offset = Position {
            sequence: 2,
            timestamp: 0x101,
        };
        let shared = Numbering::default();
        assert_eq!(shared.header(&source.to_bytes()), source.to_bytes());
        let own = Header::read(&Numbering::own(offset, 9).header(&source.to_bytes()));
        let expected = Header {
            sequence: 1,
            timestamp: 1,
            ssrc: 9,
            ..source
        };
        assert_eq!(own, Some(expected));
    }

    #[test]
    fn a_payload_is_what_is_left_of_a_packet() {
        let packet = |first: u8, behind: &[u8]| {
            let mut packet = vec![0; HEADER_BYTES];
            packet[0] = first;
            packet.extend_from_slice(behind);
            payload(&packet).map(<[u8]>::to_vec)
        };
        assert_eq!(packet(0x80, b"abc"), Some(b"abc".to_vec()));
        assert_eq!(packet(0x81, b"csrcabc"), Some(b"abc".to_vec()));
        assert_eq!(
            packet(0x90, b"\xbe\xde\0\x01extnabc"),
            Some(b"abc".to_vec())
        );
        assert_eq!(packet(0xa0, b"abc\0\x02"), Some(b"abc".to_vec()));
        assert_eq!(packet(0xa0, b""), Some(Vec::new()));
        for (first, behind) in [
            (0x81, &b"abc"[..]),
            (0x90, b"\0\0\0\x01abc"),
            (0x90, b"\0\0"),
            (0xa0, b"abc\x05"),
            (0x40, b"abc"),
        ] {
            assert_eq!(packet(first, behind), None, "{first:x} {behind:?}");
        }
    }

    #[test]
    fn two_in_a_row_tell_that_numbers_begin_anew() {
        let mut stragglers = Stragglers::default();
        // What is next, what comes, and whether it is late.
        for (other, sequence, is_late) in [
            (20_000, 20_000, false),
            (20_001, 19_901, true),
            (20_001, 19_900, true),
            (20_001, 20_001, false),
            // Not in a row.
            (20_002, 19_901, true),
            (20_002, 52_769, false),
            (52_770, 30_000, true),
            // One in between that is late as usual.
            (52_770, 52_700, true),
            (52_770, 30_001, false),
            (30_002, 65_000, true),
            (30_002, 65_001, false),
            (65_002, 10, false),
        ] {
            let found = stragglers.is_late(sequence, other);
            assert_eq!(found, is_late, "{sequence} where {other} is next");
        }
    }

    proptest! {
        /// Any number of jumps in a source of one packet every `ticks`: what a receiver sees is one
        /// run.
        #[test]
        fn numbers_rise_by_one_and_stamps_never_step_back(
            ticks in 0_u32..90_000,
            own in any::<Option<u32>>(),
            plays in prop::collection::vec((0_u32..1_000_000, 0_u32..70_000), 1..20),
        ) {
            let source = |packet: u32| Position {
                sequence: (packet & 0xffff) as u16,
                timestamp: packet.wrapping_mul(ticks),
            };
            let mut numbering = own.map_or_else(Numbering::default, |ssrc| {
                Numbering::own(source(ssrc), ssrc)
            });
            let mut end: Option<(u32, Position)> = None;
            for (from, packets) in plays {
                if let Some((end, _)) = end {
                    numbering = numbering.continued(source(end), source(from));
                }
                let first = numbering.position(source(from));
                if let Some((_, expected)) = end {
                    prop_assert_eq!(first, expected);
                }
                let next = from + packets;
                let last = numbering.position(source(next));
                let (seq, played) = ((packets & 0xffff) as u16, packets.wrapping_mul(ticks));
                prop_assert_eq!(last.sequence, first.sequence.wrapping_add(seq));
                prop_assert_eq!(last.timestamp, first.timestamp.wrapping_add(played));
                prop_assert_eq!(numbering.ssrc(7), own.unwrap_or(7));
                end = Some((next, last));
            }
        }
    }

    #[test]
    fn static_payloads_are_known_and_dynamic_ones_are_not() {
        assert_eq!(StaticPayload::of(33), Some(StaticPayload::MP2T));
        let stereo = StaticPayload::of(10).unwrap();
        assert_eq!((stereo.clock_hz, stereo.encoding.1), (44_100, Some(2)));
        assert!(
            (0..=255)
                .filter_map(StaticPayload::of)
                .all(|p| p.payload_type < 35)
        );
        assert_eq!(StaticPayload::of(96), None);
    }

    #[test]
    fn ticks_wrap_and_do_not_overflow() {
        assert_eq!(ticks(1_000_000_000), 90_000);
        // 2^64 - 1 ns are 1,660,206,966,633,859 ticks; this is what is left of them modulo 2^32.
        assert_eq!(ticks(u64::MAX), 243266947);
        assert_eq!(ticks_of(2_000_000_000, 8000), 16_000);
    }
}
