//! The RTP fixed header (RFC 3550, section 5.1), as Onrush writes it: no padding, extension or CSRC.

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 12;

/// The static payload type of MPEG-2 transport streams (RFC 3551, table 5; RFC 2250).
pub const PAYLOAD_TYPE_MP2T: u8 = 33;

/// Ticks a second of the MP2T timestamp (RFC 2250, section 2).
pub const CLOCK_HZ: u64 = 90_000;

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

    /// What `payload_type` means; `None` for those that every session defines for itself, and for old speech codecs.
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
