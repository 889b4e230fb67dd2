//! The sequence header (AV1 Bitstream & Decoding Process Specification, section 5.5): what a
//! decoder is told beforehand, where nothing but the stream tells it.

use super::obu::broken;
use crate::media::codec::bits::Bits;
use crate::media::colour::VideoRange;
use crate::media::packetizer::CodecError;

/// `SELECT_SCREEN_CONTENT_TOOLS`.
const SELECT: u32 = 2;

/// What is wanted of a sequence header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::media) struct Sequence {
    profile: u8,
    /// `seq_level_idx` and `seq_tier` of the first operating point.
    level: u8,
    is_high_tier: bool,
    is_deep: bool,
    has_twelve_bits: bool,
    is_monochrome: bool,
    /// Whether colour is halved in width and height, and where it is to brightness.
    halved: (bool, bool),
    chroma_position: u8,
    /// Pixels, at the most.
    pub(in crate::media) dimensions: (u32, u32),
    /// If it is told.
    pub(super) video_range: Option<VideoRange>,
}

/// Lengths of fields that the decoder's model has.
#[derive(Clone, Copy, Debug)]
struct DecoderModel {
    delay_bits: u32,
}

impl Sequence {
    /// Reads the payload of the OBU.
    ///
    /// # Errors
    ///
    /// If it ends too early.
    pub(in crate::media) fn read(payload: &[u8]) -> Result<Self, CodecError> {
        let read = Self::parse(&mut Bits::new(payload));
        read.ok_or_else(|| broken("a sequence header that ends too early"))
    }

    fn parse(bits: &mut Bits<'_>) -> Option<Self> {
        let profile = byte(bits.number(3)?);
        let _is_still = bits.flag()?;
        let is_reduced = bits.flag()?;
        let (level, is_high_tier) = match is_reduced {
            true => (byte(bits.number(5)?), false),
            false => operating_points(bits)?,
        };
        let (width_bits, height_bits) = (bits.number(4)? + 1, bits.number(4)? + 1);
        let dimensions = (bits.number(width_bits)? + 1, bits.number(height_bits)? + 1);
        if !is_reduced && bits.flag()? {
            // Lengths of frame IDs.
            bits.skip(4 + 3)?;
        }
        // Superblocks, filters within pictures.
        bits.skip(3)?;
        if !is_reduced {
            tools_between_pictures(bits)?;
        }
        // Super-resolution, CDEF, restoration.
        bits.skip(3)?;
        let mut read = Self {
            profile,
            level,
            is_high_tier,
            is_deep: bits.flag()?,
            has_twelve_bits: false,
            is_monochrome: false,
            halved: (true, true),
            chroma_position: 0,
            dimensions,
            video_range: None,
        };
        read.colour(bits)?;
        Some(read)
    }

    /// The rest of `color_config` (section 5.5.2).
    fn colour(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        const BT_709: u32 = 1;
        const SRGB: u32 = 13;
        const IDENTITY: u32 = 0;
        self.has_twelve_bits = self.profile == 2 && self.is_deep && bits.flag()?;
        self.is_monochrome = self.profile != 1 && bits.flag()?;
        let described = match bits.flag()? {
            true => (bits.number(8)?, bits.number(8)?, bits.number(8)?),
            false => (2, 2, 2),
        };
        self.video_range = VideoRange::of_transfer(byte(described.1));
        if self.is_monochrome {
            return bits.skip(1);
        }
        if described == (BT_709, SRGB, IDENTITY) {
            self.halved = (false, false);
            return Some(());
        }
        bits.skip(1)?;
        self.halved = match self.profile {
            0 => (true, true),
            1 => (false, false),
            _ if self.has_twelve_bits => {
                let in_width = bits.flag()?;
                (in_width, in_width && bits.flag()?)
            }
            _ => (true, false),
        };
        if self.halved == (true, true) {
            self.chroma_position = byte(bits.number(2)?);
        }
        Some(())
    }

    /// The body of an `av1C` ("AV1 Codec ISO Media File Format Binding", section 2.3.3), with this
    /// sequence header, an OBU that has its size.
    pub(in crate::media) fn av1c(&self, obu: &[u8]) -> Vec<u8> {
        let flags = [
            self.is_high_tier,
            self.is_deep,
            self.has_twelve_bits,
            self.is_monochrome,
            self.halved.0,
            self.halved.1,
        ];
        let flags = flags.iter().fold(0, |all, &it| all << 1 | u8::from(it));
        let third = flags << 2 | self.chroma_position;
        [&[0x81, self.profile << 5 | self.level, third, 0], obu].concat()
    }
}

/// Level and tier of the first operating point, behind the timing that stands in front of them.
fn operating_points(bits: &mut Bits<'_>) -> Option<(u8, bool)> {
    let mut model = None;
    // `timing_info_present_flag`.
    if bits.flag()? {
        bits.skip(32 + 32)?;
        if bits.flag()? {
            bits.unsigned()?;
        }
        // `decoder_model_info_present_flag`.
        if bits.flag()? {
            let delay_bits = bits.number(5)? + 1;
            bits.skip(32 + 5 + 5)?;
            model = Some(DecoderModel { delay_bits });
        }
    }
    let has_display_delays = bits.flag()?;
    let count = bits.number(5)? + 1;
    let mut first = None;
    for _ in 0..count {
        bits.skip(12)?;
        let level = bits.number(5)?;
        let is_high_tier = level > 7 && bits.flag()?;
        first = first.or_else(|| Some((byte(level), is_high_tier)));
        if let Some(DecoderModel { delay_bits }) = model
            && bits.flag()?
        {
            bits.skip(2 * delay_bits as usize + 1)?;
        }
        if has_display_delays && bits.flag()? {
            bits.skip(4)?;
        }
    }
    first
}

/// What only sequences of several pictures have.
fn tools_between_pictures(bits: &mut Bits<'_>) -> Option<()> {
    // Compounds of pictures, warped motion, filters in both directions.
    bits.skip(4)?;
    let has_order = bits.flag()?;
    if has_order {
        bits.skip(2)?;
    }
    let screen_content = match bits.flag()? {
        true => SELECT,
        false => bits.number(1)?,
    };
    if screen_content > 0 && !bits.flag()? {
        bits.skip(1)?;
    }
    if has_order {
        bits.skip(3)?;
    }
    Some(())
}

fn byte(bits: u32) -> u8 {
    u8::try_from(bits).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::codec::testing;

    /// Each `av1C` as an encoder has written it, and its pixels.
    const WRITTEN: [(&[u8], (u32, u32)); 3] = [
        (
            &[
                0x81, 0x00, 0x0c, 0x00, 0x0a, 0x0a, 0x00, 0x00, 0x00, 0x02, 0xaf, 0xff, 0x80, 0x5f,
                0x00, 0x08,
            ],
            (64, 64),
        ),
        (
            &[
                0x81, 0x01, 0x0c, 0x00, 0x0a, 0x0b, 0x00, 0x00, 0x00, 0x0c, 0xc4, 0xff, 0x67, 0x00,
                0xbe, 0x00, 0x10,
            ],
            (640, 360),
        ),
        (
            &[
                0x81, 0x00, 0x0c, 0x00, 0x0a, 0x0b, 0x00, 0x00, 0x00, 0x04, 0x3c, 0xfe, 0xcc, 0x02,
                0xf8, 0x00, 0x40,
            ],
            (320, 180),
        ),
    ];

    #[test]
    fn configurations_are_those_that_encoders_write() {
        for (written, dimensions) in WRITTEN {
            let obu = &written[4..];
            let read = Sequence::read(&obu[2..]).unwrap();
            assert_eq!(read.dimensions, dimensions);
            assert_eq!(read.av1c(obu), written);
            testing::break_configuration(&obu[2..], |broken| drop(Sequence::read(broken)));
        }
    }

    /// Fields of so many bits, one behind the other.
    fn joined(fields: &[(u64, u32)]) -> Vec<u8> {
        let bits = fields.iter().flat_map(|&(value, count)| {
            (0..count)
                .rev()
                .map(move |bit| u8::from(value >> bit & 1 == 1))
        });
        let bits: Vec<_> = bits.collect();
        let byte = |bits: &[u8]| {
            bits.iter()
                .enumerate()
                .fold(0, |all, (at, bit)| all | bit << (7 - at))
        };
        bits.chunks(8).map(byte).collect()
    }

    /// By section 5.5: with a decoder's model, two operating points, and the high tier; and a still
    /// picture.
    #[test]
    fn what_may_stand_in_front_is_passed_over() {
        let timing = [(1, 1), (1, 32), (50, 32), (1, 1), (0b011, 3), (1, 1)];
        let model = [(9, 5), (7, 32), (3, 5), (4, 5), (1, 1), (1, 5)];
        let first = [
            (0x101, 12),
            (13, 5),
            (1, 1),
            (1, 1),
            (0x3ff, 10),
            (1, 10),
            (0, 1),
            (1, 1),
            (5, 4),
        ];
        let second = [(0x100, 12), (4, 5), (0, 1), (0, 1)];
        let size = [
            (10, 4),
            (10, 4),
            (1919, 11),
            (1079, 11),
            (1, 1),
            (0, 7),
            (7, 3),
        ];
        let tools = [
            (15, 4),
            (1, 1),
            (3, 2),
            (0, 1),
            (1, 1),
            (0, 1),
            (1, 1),
            (6, 3),
            (7, 3),
        ];
        // Profile 2, of twelve bits, 4:2:2.
        let colour = [
            (1, 1),
            (1, 1),
            (0, 1),
            (1, 1),
            (9, 8),
            (16, 8),
            (9, 8),
            (0, 1),
            (1, 1),
            (0, 1),
        ];
        let all = [
            &[(2, 3), (0, 1), (0, 1)][..],
            &timing,
            &model,
            &first,
            &second,
            &size,
            &tools,
            &colour,
        ];
        let read = Sequence::read(&joined(&all.concat())).unwrap();
        assert_eq!(read.dimensions, (1920, 1080));
        assert_eq!(read.av1c(&[]), [0x81, 2 << 5 | 13, 0b1110_1000, 0]);
        assert_eq!(read.video_range, Some(VideoRange::Pq));
        // A still picture of 4:4:4 by sRGB.
        let still = [
            (1, 3),
            (1, 1),
            (1, 1),
            (5, 5),
            (5, 4),
            (5, 4),
            (63, 6),
            (31, 6),
            (0, 3),
            (0, 3),
        ];
        let colour = [(0, 1), (1, 1), (1, 8), (13, 8), (0, 8)];
        let read = Sequence::read(&joined(&[&still[..], &colour].concat())).unwrap();
        assert_eq!(read.dimensions, (64, 32));
        assert_eq!(read.av1c(&[]), [0x81, 1 << 5 | 5, 0, 0]);
        assert_eq!(read.video_range, Some(VideoRange::Sdr));
    }
}
