//! Decoder configurations that a container does not have, made of what a track's first frame says.

use super::bit_reader::BitReader;
use super::{ac3, eac3};
use crate::media::colour::{Colour, UNSPECIFIED};
use crate::media::packetizer::CodecError;

/// Bytes of a first frame that are enough for all of these.
pub(in crate::media) const FIRST_BYTES: u64 = 32;

/// Of each level of VP9 its number, and the samples a second and in a picture that it allows ("VP9
/// Levels", the WebM project).
const VP9_LEVELS: [(u8, u64, u64); 14] = [
    (10, 829_440, 36_864),
    (11, 2_764_800, 73_728),
    (20, 4_608_000, 122_880),
    (21, 9_216_000, 245_760),
    (30, 20_736_000, 552_960),
    (31, 36_864_000, 983_040),
    (40, 83_558_400, 2_228_224),
    (41, 160_432_128, 2_228_224),
    (50, 311_951_360, 8_912_896),
    (51, 588_251_136, 8_912_896),
    (52, 1_176_502_272, 8_912_896),
    (60, 1_176_502_272, 35_651_584),
    (61, 2_353_004_544, 35_651_584),
    (62, 4_706_009_088, 35_651_584),
];

/// What the first bytes of a key frame of VP9 tell (the VP9 bitstream specification, section 6.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct Vp9KeyFrame {
    profile: u8,
    bit_depth: u8,
    /// `color_space`.
    space: u32,
    is_full_range: bool,
    /// As `vpcC` has it: 4:2:0 where the colour is beside the upper left sample, 4:2:2, 4:4:4.
    chroma: u8,
    /// Pixels.
    pub(in crate::media) dimensions: (u32, u32),
}

/// Bytes of a key frame of VP9 that tell all of this.
pub(in crate::media) const VP9_KEY_FRAME_BYTES: usize = 10;

impl Vp9KeyFrame {
    /// Reads the beginning of a frame.
    ///
    /// # Errors
    ///
    /// If it is no key frame.
    pub(in crate::media) fn read(frame: &[u8]) -> Result<Self, CodecError> {
        const RGB: u32 = 7;
        let mut bits = BitReader::new("VP9", frame);
        let is_vp9 = bits.take(2)? == 2;
        let profile = bits.take(1)? | bits.take(1)? << 1;
        if profile == 3 {
            bits.skip(1)?;
        }
        let is_shown_again = bits.flag()?;
        let is_key = !bits.flag()?;
        bits.skip(2)?;
        if !is_vp9 || is_shown_again || !is_key || bits.take(24)? != 0x49_8342 {
            return Err(bits.error("the first frame is no key frame"));
        }
        let depth = match profile {
            0 | 1 => 8,
            _ => 10 + 2 * bits.take(1)?,
        };
        let space = bits.take(3)?;
        let is_odd = profile & 1 == 1;
        let (is_full_range, halved) = match space {
            RGB => (true, (false, false)),
            _ => (
                bits.flag()?,
                match is_odd {
                    true => (bits.flag()?, bits.flag()?),
                    false => (true, true),
                },
            ),
        };
        if is_odd {
            bits.skip(1)?;
        }
        let byte = |bits: u32| u8::try_from(bits).unwrap_or(0);
        Ok(Self {
            profile: byte(profile),
            bit_depth: byte(depth),
            space,
            is_full_range,
            chroma: match halved {
                (true, true) => 1,
                (true, false) => 2,
                _ => 3,
            },
            dimensions: (bits.take(16)? + 1, bits.take(16)? + 1),
        })
    }

    /// The body of a `vpcC` ("VP Codec ISO Media File Format Binding"), with its version and flags,
    /// for so many pictures a second. What a container tells of colours is in `colour`: no frame
    /// tells which are meant, and by which curve.
    pub(in crate::media) fn vpcc(&self, a_second: u64, colour: Colour) -> Vec<u8> {
        let (width, height) = self.dimensions;
        let pixels = u64::from(width) * u64::from(height);
        let samples_a_second = pixels.saturating_mul(a_second);
        let level = VP9_LEVELS
            .iter()
            .find(|it| samples_a_second <= it.1 && pixels <= it.2)
            .map_or(62, |it| it.0);
        let is_full_range = self.is_full_range || colour.is_full_range;
        let depth_and_more = self.bit_depth << 4 | self.chroma << 1 | u8::from(is_full_range);
        let matrix = match vp9_matrix(self.space) {
            UNSPECIFIED => colour.matrix,
            told => told,
        };
        let mut vpcc = vec![1, 0, 0, 0, self.profile, level, depth_and_more];
        vpcc.extend([colour.primaries, colour.transfer, matrix, 0, 0]);
        vpcc
    }
}

/// The matrix coefficients (ISO/IEC 23091-2) of a colour space of VP9.
fn vp9_matrix(space: u32) -> u8 {
    match space {
        1 | 3 => 6,
        2 => 1,
        4 => 7,
        5 => 9,
        7 => 0,
        _ => UNSPECIFIED,
    }
}

/// The body of a `dac3` (ETSI TS 102 366, section F.4) for sound of which `frame` is the first
/// (section 4.3).
///
/// # Errors
///
/// If it is none of AC-3.
pub(in crate::media) fn ac3(frame: &[u8]) -> Result<Vec<u8>, CodecError> {
    ac3::FrameHeader::parse(frame)?;
    let mut bits = ac3::after_sync_word("AC-3", frame)?;
    bits.skip(16)?;
    let (rate, size) = (bits.take(2)?, bits.take(6)?);
    let (id, mode, channels) = (bits.take(5)?, bits.take(3)?, bits.take(3)?);
    if channels & 1 == 1 && channels != 1 {
        bits.skip(2)?;
    }
    if channels & 4 != 0 {
        bits.skip(2)?;
    }
    if channels == 2 {
        bits.skip(2)?;
    }
    let low = bits.take(1)?;
    let packed = [
        (rate, 2),
        (id, 5),
        (mode, 3),
        (channels, 3),
        (low, 1),
        (size >> 1, 5),
        (0, 5),
    ];
    Ok(joined(&packed))
}

/// The body of a `dec3` (ETSI TS 102 366, section F.6) for sound of which `frame` is the first
/// (section E.2.2), of one substream.
///
/// # Errors
///
/// If it is none of E-AC-3.
pub(in crate::media) fn eac3(frame: &[u8], rate_hz: u32) -> Result<Vec<u8>, CodecError> {
    const BLOCKS: [u32; 4] = [1, 2, 3, 6];
    eac3::FrameHeader::parse(frame)?;
    let mut bits = ac3::after_sync_word("E-AC-3", frame)?;
    bits.skip(5)?;
    let (size, rate, blocks) = (bits.take(11)?, bits.take(2)?, bits.take(2)?);
    let (channels, low, id) = (bits.take(3)?, bits.take(1)?, bits.take(5)?);
    if rate == 3 {
        return Err(bits.error("frames of half a sampling frequency have no configuration"));
    }
    let blocks = BLOCKS[blocks as usize];
    let kbps = (size + 1) * 16 * (rate_hz / 100) / (blocks * 256 * 10);
    let packed = [
        (kbps.min(0x1fff), 13),
        (0, 3),
        (rate, 2),
        (id, 5),
        (0, 2),
        (0, 3),
        (channels, 3),
        (low, 1),
        (0, 3),
        (0, 4),
        (0, 1),
    ];
    Ok(joined(&packed))
}

/// Numbers of so many bits each, one behind the other, in whole bytes.
fn joined(fields: &[(u32, u32)]) -> Vec<u8> {
    let (mut all, mut count) = (0_u64, 0);
    for &(value, bits) in fields {
        all = all << bits | u64::from(value);
        count += bits;
    }
    let bytes = (all << (64 - count)).to_be_bytes();
    bytes[..count.div_ceil(8) as usize].to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::media::colour::VideoRange;

    #[test]
    fn a_key_frame_of_vp9_tells_its_configuration() {
        let read = |frame: &[u8]| Vp9KeyFrame::read(frame);
        // Profile 0, shown, BT.709, studio range, 320x180.
        let frame = [0x82, 0x49, 0x83, 0x42, 0x40, 0x13, 0xf0, 0x0b, 0x30];
        let told = read(&frame).unwrap();
        assert_eq!(told.dimensions, (320, 180));
        let vpcc = told.vpcc(25, Colour::default());
        assert_eq!(vpcc, [1, 0, 0, 0, 0, 11, 0x82, 2, 2, 1, 0, 0]);
        let codec = super::super::vp9::codec(Some(&vpcc)).unwrap();
        assert_eq!(codec.codec_string, "vp09.00.11.08");
        // Profile 2, of ten bits; full range.
        let deep = [0x92, 0x49, 0x83, 0x42, 0x58, 0x77, 0xf8, 0x43, 0x78];
        let told = read(&deep).unwrap();
        assert_eq!(told.dimensions, (3840, 2160));
        assert_eq!(told.vpcc(50, Colour::default())[4..7], [2, 51, 0xa3]);
        // Profile 3, of twelve bits, 4:4:4.
        let most = [0xb0, 0x24, 0xc1, 0xa1, 0x48, 0x00, 0x00, 0x40, 0x00, 0x80];
        let told = read(&most).unwrap();
        assert_eq!((told.profile, told.bit_depth, told.chroma), (3, 12, 3));
        assert!(read(&most[..VP9_KEY_FRAME_BYTES - 1]).is_err());
        assert!(
            read(&[0x86, 0x49, 0x83, 0x42, 0x40]).is_err(),
            "no key frame"
        );
        testing::break_configuration(&frame, |broken| drop(read(broken)));
    }

    /// The first frame of what libvpx has made of BT.2020 and PQ, and the `vpcC` that ffmpeg has
    /// written of it.
    #[test]
    fn a_container_tells_the_curve_of_vp9() {
        let frame = [0x92, 0x49, 0x83, 0x42, 0x50, 0x09, 0xf8, 0x05, 0x9b, 0x03];
        let told = Vp9KeyFrame::read(&frame).unwrap();
        assert_eq!(told.dimensions, (320, 180));
        let mut colour = Colour {
            primaries: 9,
            transfer: 16,
            matrix: 9,
            is_full_range: false,
        };
        let vpcc = told.vpcc(25, colour);
        assert_eq!(vpcc, [1, 0, 0, 0, 2, 11, 0xa2, 9, 16, 9, 0, 0]);
        let codec = super::super::vp9::codec(Some(&vpcc)).unwrap();
        assert_eq!(codec.video_range, Some(VideoRange::Pq));
        colour.is_full_range = true;
        assert_eq!(told.vpcc(25, colour)[6], 0xa3);
    }

    /// As ffmpeg writes the beginning of a frame of 48 kHz, 2 channels and 192 kbit/s, and its
    /// `dac3`.
    #[test]
    fn a_frame_of_ac3_tells_its_configuration() {
        let frame = [0x0b, 0x77, 0, 0, 0x14, 0x40, 0x43, 0xe1, 0];
        assert_eq!(ac3(&frame).unwrap(), [0x10, 0x11, 0x40]);
        assert!(ac3(&[0; 9]).is_err());
        // A sampling frequency and a size that no frame has.
        for reserved in [0xd4, 38] {
            let mut frame = frame;
            frame[4] = reserved;
            assert!(ac3(&frame).is_err(), "{reserved:#x}");
        }
        testing::break_configuration(&frame, |broken| drop(ac3(broken)));
    }

    /// The same of E-AC-3: 768 bytes of six blocks.
    #[test]
    fn a_frame_of_eac3_tells_its_configuration() {
        let frame = [0x0b, 0x77, 0x01, 0x7f, 0x34, 0x86, 0xff, 0];
        assert_eq!(
            eac3(&frame, 48_000).unwrap(),
            [0x06, 0x00, 0x20, 0x04, 0x00]
        );
        assert!(eac3(&[0; 9], 48_000).is_err());
        // Of half a frequency, and of none.
        for reserved in [0xc6, 0xf6] {
            let mut frame = frame;
            frame[4] = reserved;
            assert!(eac3(&frame, 48_000).is_err(), "{reserved:#x}");
        }
        testing::break_configuration(&frame, |broken| drop(eac3(broken, 48_000)));
    }
}
