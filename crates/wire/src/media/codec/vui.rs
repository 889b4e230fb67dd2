//! Video usability information: what sequence parameter sets of H.264 and H.265 tell of how
//! pictures are to be shown (ISO/IEC 14496-10 and 23008-2, annex E). Both begin alike, and no more
//! than that is wanted.

use super::bits::Bits;
use crate::media::colour::VideoRange;

/// What is wanted of a sequence parameter set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Pictures {
    /// Width and height in pixels; neither is 0.
    pub(super) dimensions: (u32, u32),
    /// If it is told.
    pub(super) video_range: Option<VideoRange>,
}

/// The dynamic range of pictures, by what follows: whether there is such information, and it.
pub(super) fn video_range(bits: &mut Bits<'_>) -> Option<VideoRange> {
    /// `aspect_ratio_idc`: width and height of a pixel follow.
    const EXTENDED_SAR: u32 = 255;
    if !bits.flag()? {
        return None;
    }
    if bits.flag()? && bits.number(8)? == EXTENDED_SAR {
        bits.skip(16 + 16)?;
    }
    // Overscan.
    if bits.flag()? {
        bits.skip(1)?;
    }
    // `video_signal_type_present_flag`; the format and the range; then
    // `colour_description_present_flag`.
    if !bits.flag()? {
        return None;
    }
    bits.skip(3 + 1)?;
    if !bits.flag()? {
        return None;
    }
    bits.skip(8)?;
    let transfer = u8::try_from(bits.number(8)?).ok()?;
    VideoRange::of_transfer(transfer)
}

/// The highest of what several sequence parameter sets tell: who shows one, shows them all.
pub(super) fn highest(told: impl Iterator<Item = Option<Pictures>>) -> Option<VideoRange> {
    told.filter_map(|it| it?.video_range).max()
}
