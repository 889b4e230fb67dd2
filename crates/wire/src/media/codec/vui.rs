//! Video usability information: what sequence parameter sets of H.264 and H.265 tell of how
//! pictures are to be shown (ISO/IEC 14496-10 and 23008-2, annex E). Both begin alike, and no more
//! than that is wanted.

use super::bits::Bits;
use crate::media::colour::VideoRange;

/// By `aspect_ratio_idc`, the width of a pixel and its height (table E-1); the first is not told.
const PIXELS: [(u32, u32); 17] = [
    (0, 0),
    (1, 1),
    (12, 11),
    (10, 11),
    (16, 11),
    (40, 33),
    (24, 11),
    (20, 11),
    (32, 11),
    (80, 33),
    (18, 11),
    (15, 11),
    (64, 33),
    (160, 99),
    (4, 3),
    (3, 2),
    (2, 1),
];

/// Behind this one both follow.
const EXTENDED_SAR: u32 = 255;

/// What is wanted of a sequence parameter set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Pictures {
    /// Width and height in pixels; neither is 0.
    pub(super) dimensions: (u32, u32),
    /// The width of a pixel to its height, if that is told; neither is 0.
    pub(super) pixel: Option<(u32, u32)>,
    /// If it is told.
    pub(super) video_range: Option<VideoRange>,
}

impl Pictures {
    /// Those of that size, of which nothing else is told.
    pub(super) fn of(dimensions: (u32, u32)) -> Self {
        Self {
            dimensions,
            pixel: None,
            video_range: None,
        }
    }

    /// Takes what follows: whether there is such information, and it. `None` where that ends; what
    /// was in front of it is taken.
    pub(super) fn read(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        if !bits.flag()? {
            return None;
        }
        // `aspect_ratio_info_present_flag`.
        if bits.flag()? {
            let code = bits.number(8)?;
            let pixel = match code {
                EXTENDED_SAR => (bits.number(16)?, bits.number(16)?),
                _ => PIXELS.get(code as usize).copied().unwrap_or_default(),
            };
            self.pixel = Some(pixel).filter(|it| it.0 > 0 && it.1 > 0);
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
        self.video_range = VideoRange::of_transfer(transfer);
        Some(())
    }
}

/// The highest of what several sequence parameter sets tell: who shows one, shows them all.
pub(super) fn highest(told: impl Iterator<Item = Option<Pictures>>) -> Option<VideoRange> {
    told.filter_map(|it| it?.video_range).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With that code, and 32 bits behind it.
    fn pixel(code: u8, behind: u32) -> Option<(u32, u32)> {
        let told = 0b11_u64 << 40 | u64::from(code) << 32 | u64::from(behind);
        let bytes = (told << 22).to_be_bytes();
        let mut pictures = Pictures::of((1, 1));
        let _end = pictures.read(&mut Bits::new(&bytes));
        pictures.pixel
    }

    #[test]
    fn a_pixel_is_as_the_table_says_or_as_is_told() {
        for (code, expected) in [
            (0, None),
            (1, Some((1, 1))),
            (2, Some((12, 11))),
            (16, Some((2, 1))),
            (17, None),
            (254, None),
        ] {
            assert_eq!(pixel(code, u32::MAX), expected, "{code}");
        }
        assert_eq!(pixel(255, 64 << 16 | 45), Some((64, 45)));
        for none in [0, 45, 64 << 16] {
            assert_eq!(pixel(255, none), None, "{none}");
        }
    }
}
