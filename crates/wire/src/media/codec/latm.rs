//! LATM (ISO/IEC 14496-3, section 1.7) as transport streams have it: `AudioSyncStream`, a sync
//! word and a length in front of each `AudioMuxElement`, which has an access unit of AAC and now
//! and then the configuration.
//!
//! An access unit begins at any bit. It is taken out and sent as RFC 3640 wants it, like all other
//! AAC: RFC 6416 has a format for whole elements, but players take it only with the configuration
//! outside of these. Where somebody publishes so, as GStreamer does, an access unit begins at a
//! whole byte.
//!
//! Not here: several programs, layers or access units in an element, and what is no AAC.

use std::sync::Arc;

use super::super::packetizer::CodecError;
use super::aac;
use super::bit_reader::BitReader;

const NAME: &str = "LATM";

/// Bytes in front of an element: 11 bits of sync word and 13 of its length.
pub(in crate::media) const SYNC_BYTES: usize = 3;

const SYNC_WORD: u32 = 0x2b7;

/// What is said of the access units.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::media) struct Config {
    /// What [`aac::codec`] wants.
    pub(in crate::media) audio_specific_config: Box<[u8]>,
    /// PCM samples a second of the coded signal.
    pub(in crate::media) rate_hz: u32,
    /// PCM samples of a channel in an access unit.
    pub(in crate::media) unit_ticks: u32,
}

/// An element with its sync word.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::media) struct Frame {
    /// Bytes from this sync word to the next.
    pub(in crate::media) frame_bytes: usize,
    /// Where in the frame its access unit begins.
    unit_bit: usize,
    /// Bytes of the access unit; at least one.
    pub(in crate::media) unit_bytes: u32,
    /// What it says of the access units; `None` if that is what was said last.
    pub(in crate::media) config: Option<Arc<Config>>,
}

impl Frame {
    /// Bytes from a sync word to the next, of the first [`SYNC_BYTES`].
    ///
    /// # Errors
    ///
    /// If they do not begin with one.
    pub(in crate::media) fn bytes(head: &[u8]) -> Result<usize, CodecError> {
        let mut bits = BitReader::new(NAME, head);
        if bits.take(11)? != SYNC_WORD {
            return Err(bits.error("a frame does not begin with its sync word"));
        }
        Ok(SYNC_BYTES + bits.take(13)? as usize)
    }

    /// Reads a whole frame, whatever follows it.
    ///
    /// # Errors
    ///
    /// If it is none, or has more than one access unit of AAC.
    pub(in crate::media) fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let frame_bytes = Self::bytes(bytes)?;
        let mut bits = BitReader::new(NAME, &bytes[..frame_bytes.min(bytes.len())]);
        bits.skip(SYNC_BYTES * 8)?;
        let config = match bits.flag()? {
            true => None,
            false => Some(Arc::new(take_config(&mut bits, bytes)?)),
        };
        let mut unit_bytes = 0;
        loop {
            let more = bits.take(8)?;
            unit_bytes += more;
            if more < 255 {
                break;
            }
        }
        let unit_bit = bits.at();
        bits.skip(unit_bytes as usize * 8)?;
        if unit_bytes == 0 {
            return Err(bits.error("an element without an access unit"));
        }
        Ok(Self {
            frame_bytes,
            unit_bit,
            unit_bytes,
            config,
        })
    }

    /// The access unit of the frame that these bytes are, if it is no longer than `bytes_max`.
    pub(in crate::media) fn unit(bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let frame = Self::parse(bytes).ok()?;
        let unit_bytes = frame.unit_bytes as usize;
        let is_short = unit_bytes <= bytes_max;
        is_short.then(|| aligned(bytes, frame.unit_bit, unit_bytes))
    }
}

/// The `AudioSpecificConfig` of a `StreamMuxConfig` that is told outside of elements: `config` of
/// RFC 6416, section 7.3.
///
/// What stands behind it is not read. GStreamer has nothing there, but what tells decoders of SBR,
/// which is a part of it.
///
/// # Errors
///
/// If it is broken, or its elements have more than one access unit of AAC.
pub(in crate::media) fn outside_config(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut bits = BitReader::new(NAME, bytes);
    let told_bits = take_begin(&mut bits)?;
    let (start, left) = (bits.at(), bits.left());
    bits.skip(told_bits.unwrap_or(left))?;
    let all = cut(bytes, start, told_bits.unwrap_or(left));
    let mut own = BitReader::new(NAME, &all);
    aac::take_config(&mut own)?;
    let config_bits = own.at();
    let is_extended = own.take(11).is_ok_and(|it| it == aac::SYNC_EXTENSION);
    Ok(match told_bits.is_some() || is_extended {
        true => all,
        false => cut(bytes, start, config_bits),
    })
}

/// The access unit of an element whose configuration is told outside of it: behind its length,
/// `PayloadLengthInfo` (ISO/IEC 14496-3, table 1.44).
pub(in crate::media) fn unit_of(element: &[u8]) -> Option<&[u8]> {
    let full = element.iter().take_while(|&&byte| byte == 255).count();
    let (&last, rest) = element.get(full..)?.split_first()?;
    let unit = rest.get(..255 * full + usize::from(last))?;
    (!unit.is_empty()).then_some(unit)
}

/// What a `StreamMuxConfig` (ISO/IEC 14496-3, table 1.42) begins with: how many bits the
/// configuration of AAC has that follows, if it tells.
fn take_begin(bits: &mut BitReader<'_>) -> Result<Option<usize>, CodecError> {
    let version = bits.take(1)?;
    if version == 1 {
        if bits.flag()? {
            return Err(bits.error("a version that is reserved"));
        }
        // taraBufferFullness.
        take_value(bits)?;
    }
    let has_same_framing = bits.flag()?;
    // numSubFrames, numProgram, numLayer: one less than there are.
    if !has_same_framing || bits.take(6 + 4 + 3)? != 0 {
        return Err(bits.error("several access units in an element"));
    }
    Ok(match version {
        0 => None,
        _ => Some(take_value(bits)? as usize),
    })
}

/// `StreamMuxConfig` of the frame `bytes`.
fn take_config(bits: &mut BitReader<'_>, bytes: &[u8]) -> Result<Config, CodecError> {
    let told_bits = take_begin(bits)?;
    // Fields within are aligned to its own first bit.
    let start = bits.at();
    let own = aligned(bytes, start, bytes.len().min(aac::CONFIG_BYTES_MAX));
    let mut own = BitReader::new(NAME, &own);
    let of_aac = aac::take_config(&mut own)?;
    let config_bits = own.at();
    bits.skip(config_bits)?;
    if let Some(told) = told_bits {
        // What is told beyond is filled up, or extends the configuration.
        let rest = told.checked_sub(config_bits);
        let rest = rest.ok_or_else(|| bits.error("a configuration longer than it says"))?;
        bits.skip(rest)?;
    }
    if bits.take(3)? != 0 {
        return Err(bits.error("access units without a length"));
    }
    // latmBufferFullness, and data of others: version 0 counts these in bytes of digits.
    bits.skip(8)?;
    if bits.flag()? {
        match told_bits {
            None => while bits.take(9)? & 0x100 != 0 {},
            Some(_) => drop(take_value(bits)?),
        }
    }
    if bits.flag()? {
        bits.skip(8)?;
    }
    Ok(Config {
        audio_specific_config: cut(bytes, start, told_bits.unwrap_or(config_bits)).into(),
        rate_hz: of_aac.rate_hz,
        unit_ticks: of_aac.unit_ticks,
    })
}

/// `LatmGetValue()`: a number of one to four bytes.
fn take_value(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    let bytes = bits.take(2)? + 1;
    bits.take(8 * bytes)
}

/// So many bits that begin at a bit of others, in whole bytes: those behind the last, which are of
/// something else, are 0.
fn cut(bytes: &[u8], bit: usize, bits: usize) -> Vec<u8> {
    let count = bits.div_ceil(8);
    let mut cut = aligned(bytes, bit, count);
    if let Some(last) = cut.last_mut() {
        *last &= 0xff << (count * 8 - bits);
    }
    cut
}

/// So many bytes that begin at a bit of others. What is beyond these is 0.
fn aligned(bytes: &[u8], bit: usize, count: usize) -> Vec<u8> {
    let (first, shift) = (bit / 8, bit % 8);
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    let shifted = |at: usize| {
        let both = byte(first + at) << 8 | byte(first + at + 1);
        (both << shift).to_be_bytes()[0]
    };
    (0..count).map(shifted).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::break_configuration;
    use super::*;

    /// Bits, the most significant of each number first.
    fn packed(fields: &[(u32, usize)]) -> Vec<u8> {
        let of = |&(number, count): &(u32, usize)| {
            (0..count).rev().map(move |at| (number >> at & 1) as u8)
        };
        let bits: Vec<u8> = fields.iter().flat_map(of).collect();
        let byte = |eight: &[u8]| {
            let number = eight.iter().fold(0, |number, bit| number << 1 | bit);
            number << (8 - eight.len())
        };
        bits.chunks(8).map(byte).collect()
    }

    fn frame(front: &[(u32, usize)], unit: &[u8]) -> Vec<u8> {
        let mut fields = front.to_vec();
        let mut left = unit.len();
        while left >= 255 {
            fields.push((255, 8));
            left -= 255;
        }
        fields.push((u32::try_from(left).unwrap(), 8));
        fields.extend(unit.iter().map(|&byte| (byte.into(), 8)));
        let element = packed(&fields);
        let length = u32::try_from(element.len()).unwrap();
        [packed(&[(SYNC_WORD, 11), (length, 13)]), element].concat()
    }

    /// AAC-LC, 48 kHz, two channels: as ffmpeg says it.
    const CONFIG: [(u32, usize); 10] = [
        (0, 1),
        (0, 1),
        (1, 1),
        (0, 6 + 4 + 3),
        (0x1190, 16),
        (0, 3),
        (0xff, 8),
        (0, 1),
        (0, 1),
        (0, 0),
    ];

    proptest! {
        #[test]
        fn access_units_begin_at_any_bit(unit in prop::collection::vec(any::<u8>(), 1..900)) {
            for front in [&[(1, 1)][..], &CONFIG] {
                let bytes = frame(front, &unit);
                let read = Frame::parse(&bytes).unwrap();
                prop_assert_eq!(read.frame_bytes, bytes.len());
                prop_assert_eq!(read.unit_bytes as usize, unit.len());
                prop_assert_eq!(read.config.is_some(), front.len() > 1);
                prop_assert_eq!(&Frame::unit(&bytes, unit.len()).unwrap(), &unit);
                prop_assert_eq!(Frame::unit(&bytes, unit.len() - 1), None);
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            drop(Frame::parse(&bytes));
            drop(Frame::parse(&[&[0x56, 0xe0, 60][..], &bytes].concat()));
        }
    }

    #[test]
    fn both_versions_tell_their_configuration() {
        // With a version, a length, what fills it up, and what others add.
        let later = [
            (0b010, 3),
            (0, 2 + 8),
            (1, 1),
            (0, 6 + 4 + 3),
            (0, 2),
            (19, 8),
            (0x1190, 16),
            (0b101, 3),
            (0, 3),
            (0xff, 8),
            (1, 1),
            (0, 2),
            (16, 8),
            (1, 1),
            (7, 8),
        ];
        for (front, expected) in [
            (&CONFIG[..], &[0x11, 0x90][..]),
            (&later, &[0x11, 0x90, 0xa0]),
        ] {
            let read = Frame::parse(&frame(front, b"unit")).unwrap();
            let config = read.config.unwrap();
            assert_eq!(*config.audio_specific_config, *expected);
            assert_eq!((config.rate_hz, config.unit_ticks), (48_000, 1024));
            assert!(aac::codec(&config.audio_specific_config).is_ok());
        }
        break_configuration(&frame(&CONFIG, b"unit"), |it| drop(Frame::parse(it)));
    }

    #[test]
    fn configurations_are_told_outside_of_elements() {
        let later = packed(&[
            (0b10, 2),
            (0, 2 + 8),
            (1, 1),
            (0, 6 + 4 + 3),
            (0, 2),
            (19, 8),
            (0x1190, 16),
            (0b101, 3),
            (0, 3),
            (0xff, 8),
        ]);
        let cases: [(&[u8], &[u8]); 5] = [
            // As ffmpeg says it, and GStreamer, which leaves out what follows.
            (&[0x40, 0, 0x23, 0x20, 0x3f, 0xc0], &[0x11, 0x90]),
            (&[0x40, 0, 0x23, 0x20], &[0x11, 0x90]),
            // With what is said of SBR: that there is none.
            (
                &[0x40, 0, 0x23, 0x20, 0xad, 0xca, 0],
                &[0x11, 0x90, 0x56, 0xe5, 0, 0],
            ),
            // SBR in front, which makes 25 bits.
            (
                &[0x40, 0, 0x56, 0x23, 0x10, 0x1f, 0xe0],
                &[0x2b, 0x11, 0x88, 0],
            ),
            (&later, &[0x11, 0x90, 0xa0]),
        ];
        for (told, expected) in cases {
            let config = outside_config(told).unwrap();
            assert_eq!(config, expected, "{told:x?}");
            assert!(aac::codec(&config).is_ok(), "{told:x?}");
            break_configuration(told, |it| drop(outside_config(it)));
        }
        let error = outside_config(&[0x41, 0, 0x23, 0x20, 0x3f, 0xc0]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "LATM: several access units in an element"
        );
    }

    #[test]
    fn elements_without_a_configuration_begin_with_a_length() {
        for length in [1, 254, 255, 256, 510, 700] {
            let unit = vec![7_u8; length];
            let mut element = vec![255; length / 255];
            element.push(u8::try_from(length % 255).unwrap());
            element.extend(&unit);
            assert_eq!(unit_of(&element), Some(&unit[..]));
            assert_eq!(unit_of(&element[..element.len() - 1]), None);
            // What others add.
            element.push(1);
            assert_eq!(unit_of(&element), Some(&unit[..]));
        }
        assert_eq!([&b""[..], b"\0", b"\xff"].map(unit_of), [None; 3]);
    }

    #[test]
    fn what_is_not_taken_apart_is_refused_in_words() {
        let of = |at: usize, field: (u32, usize)| {
            let mut front = CONFIG;
            front[at] = field;
            Frame::parse(&frame(&front, b"unit"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(of(1, (0b11, 2)), "LATM: a version that is reserved");
        assert_eq!(of(3, (1, 13)), "LATM: several access units in an element");
        assert_eq!(of(2, (0, 1)), "LATM: several access units in an element");
        assert_eq!(of(5, (1, 3)), "LATM: access units without a length");
        let none = Frame::parse(&frame(&[(1, 1)], b"")).unwrap_err();
        assert_eq!(none.to_string(), "LATM: an element without an access unit");
        let cut = frame(&CONFIG, b"unit");
        let cut = Frame::parse(&cut[..cut.len() - 1]).unwrap_err().to_string();
        assert!(cut.ends_with("too few for what they begin with"), "{cut}");
    }
}
