//! Sequence parameter sets (ISO/IEC 23008-2, section 7.3.2.2.1), as far as what they tell of
//! pictures.

use crate::media::codec::bits::{Bits, without_emulation_prevention};
use crate::media::codec::vui::Pictures;

/// Sets of pictures that others are predicted from, and pictures of one set before and after its
/// own, at the most (sections 7.4.3.2.1, 7.4.8: `sps_max_dec_pic_buffering_minus1` is below 16).
const REFERENCE_SETS_MAX: u32 = 64;
const REFERENCES_MAX: u32 = 16;

/// Long-term reference pictures that are told beforehand, at the most (section 7.4.3.2.1).
const LONG_TERM_MAX: u32 = 32;

/// What a sequence parameter set, a NAL unit with its header, tells of pictures; `None` if it does
/// not tell their size so that it can be understood.
pub(super) fn pictures(sps: &[u8]) -> Option<Pictures> {
    let bytes = without_emulation_prevention(sps.get(2..)?);
    let mut bits = Bits::new(&bytes);
    bits.skip(4)?;
    let sub_layers = bits.number(3)?;
    bits.skip(1)?;
    pass_profile(&mut bits, sub_layers)?;
    let mut pictures = Pictures::of(dimensions(&mut bits)?);
    let _end = pass_coding(&mut bits, sub_layers).and_then(|()| pictures.read(&mut bits));
    Some(pictures)
}

/// `profile_tier_level()`, section 7.3.3.
pub(super) fn pass_profile(bits: &mut Bits<'_>, sub_layers: u32) -> Option<()> {
    const PROFILE_BITS: usize = 88;
    const LEVEL_BITS: usize = 8;
    bits.skip(PROFILE_BITS + LEVEL_BITS)?;
    let mut told_bits = 0;
    for _ in 0..sub_layers {
        told_bits += if bits.flag()? { PROFILE_BITS } else { 0 };
        told_bits += if bits.flag()? { LEVEL_BITS } else { 0 };
    }
    if sub_layers > 0 {
        bits.skip((8 - sub_layers as usize) * 2)?;
    }
    bits.skip(told_bits)
}

fn dimensions(bits: &mut Bits<'_>) -> Option<(u32, u32)> {
    bits.unsigned()?;
    let mut chroma = bits.unsigned()?;
    if chroma == 3 && bits.flag()? {
        chroma = 0;
    }
    let (width, height) = (u64::from(bits.unsigned()?), u64::from(bits.unsigned()?));
    let (mut crop_width, mut crop_height) = (0, 0);
    if bits.flag()? {
        let mut edge = || bits.unsigned().map(u64::from);
        crop_width = (edge()? + edge()?) * if matches!(chroma, 1 | 2) { 2 } else { 1 };
        crop_height = (edge()? + edge()?) * if chroma == 1 { 2 } else { 1 };
    }
    let width = u32::try_from(width.checked_sub(crop_width)?).ok()?;
    let height = u32::try_from(height.checked_sub(crop_height)?).ok()?;
    (width > 0 && height > 0).then_some((width, height))
}

/// Passes over all that stands between the size and the usability information.
fn pass_coding(bits: &mut Bits<'_>, sub_layers: u32) -> Option<()> {
    let pass = |bits: &mut Bits<'_>, count| (0..count).try_for_each(|_| bits.unsigned().map(drop));
    // Bit depths.
    pass(bits, 2)?;
    let count_bits = bits.unsigned()?.checked_add(4).filter(|&it| it <= 16)?;
    // Of each sub-layer, or of all: pictures that a decoder keeps, that are reordered, latency.
    let ordered = if bits.flag()? { sub_layers + 1 } else { 1 };
    pass(bits, 3 * ordered)?;
    // Sizes of blocks, depths of transforms.
    pass(bits, 6)?;
    if bits.flag()? && bits.flag()? {
        pass_scaling_lists(bits)?;
    }
    // Asymmetric partitions, sample adaptive offsets.
    bits.skip(2)?;
    // PCM: bit depths, sizes of blocks, loop filter.
    if bits.flag()? {
        bits.skip(4 + 4)?;
        pass(bits, 2)?;
        bits.skip(1)?;
    }
    pass_reference_sets(bits)?;
    if bits.flag()? {
        let long_term = bits.unsigned().filter(|&it| it <= LONG_TERM_MAX)?;
        bits.skip(long_term as usize * (count_bits as usize + 1))?;
    }
    // Motion vectors of other pictures, smoothing.
    bits.skip(2)
}

/// `scaling_list_data()`, section 7.3.4.
fn pass_scaling_lists(bits: &mut Bits<'_>) -> Option<()> {
    // Of each size of blocks the lists, and the coefficients of one.
    for (lists, coefficients, has_first) in
        [(6, 16, false), (6, 64, false), (6, 64, true), (2, 64, true)]
    {
        for _ in 0..lists {
            match bits.flag()? {
                // It is that of another.
                false => drop(bits.unsigned()?),
                true => {
                    let all = coefficients + u32::from(has_first);
                    (0..all).try_for_each(|_| bits.signed().map(drop))?;
                }
            }
        }
    }
    Some(())
}

/// All `st_ref_pic_set()`, section 7.3.7.
fn pass_reference_sets(bits: &mut Bits<'_>) -> Option<()> {
    let count = bits.unsigned().filter(|&it| it <= REFERENCE_SETS_MAX)?;
    // Pictures of the set before.
    let mut pictures = 0;
    for number in 0..count {
        let is_predicted = number > 0 && bits.flag()?;
        pictures = match is_predicted {
            true => pass_predicted_set(bits, pictures)?,
            false => {
                let told = (bits.unsigned()?, bits.unsigned()?);
                if told.0 > REFERENCES_MAX || told.1 > REFERENCES_MAX {
                    return None;
                }
                for _ in 0..told.0 + told.1 {
                    bits.unsigned()?;
                    bits.skip(1)?;
                }
                told.0 + told.1
            }
        };
    }
    Some(())
}

/// A set that is told by that before it, which has so many pictures: how many it has. It has those
/// that are used, or at least kept, and may have the one that the set before is of.
fn pass_predicted_set(bits: &mut Bits<'_>, pictures: u32) -> Option<u32> {
    bits.skip(1)?;
    bits.unsigned()?;
    let mut kept = 0;
    for _ in 0..=pictures {
        let is_kept = bits.flag()? || bits.flag()?;
        kept += u32::from(is_kept);
    }
    (kept <= 2 * REFERENCES_MAX).then_some(kept)
}
