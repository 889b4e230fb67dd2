//! What a file says of other clocks than its own: time codes, and the clock on the wall.
//!
//! A time code track says how its codes count frames. The clock on the wall is told by a producer
//! reference time (`prft`, ISO/IEC 14496-12, section 8.16.5), which names a moment by both clocks;
//! or else by the creation time of a movie box that was written before all media: that is when
//! recording began, to a second. The movie box of a file in one piece is written in the end. Some
//! writers put the beginning into it, others the end, or when the file was copied or converted; so
//! what it says is no place to seek by, and is not told.

use super::boxes::{Boxes, Fields};
use crate::media::frame_rate::FrameRate;

/// Bytes of a producer reference time.
pub(super) const PRFT_BYTES_MAX: u64 = 64;

/// From 1904, where times in these files begin, to 1970.
const UNIX_FROM_1904_S: u64 = 2_082_844_800;

/// From 1900, where NTP begins, to 1970.
const UNIX_FROM_1900_S: u64 = 2_208_988_800;

/// Of a time code's flags: it counts, and is no time.
const COUNTS: u32 = 8;

/// Of the flags of a producer reference time, that it is consistent, and that it is real.
const CONSISTENT: u32 = 8;
const REAL: u32 = 16;

/// A moment by two clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Reference {
    /// The number of the track whose clock it is.
    pub(super) id: u32,
    pub(super) ticks: i64,
    /// Since 1970.
    pub(super) unix_ns: u64,
}

impl Reference {
    /// What a producer reference time says, if it is of a clock on the wall.
    pub(super) fn read(prft: &[u8]) -> Option<Self> {
        let mut fields = Fields(prft);
        let (version, flags) = fields.version_and_flags()?;
        let id = fields.u32()?;
        let (seconds, fraction) = (u64::from(fields.u32()?), u64::from(fields.u32()?));
        let ticks = i64::try_from(fields.wide(version)?).ok()?;
        // Seconds of NTP begin anew in 2036.
        let seconds = match seconds < UNIX_FROM_1900_S {
            true => seconds + (1 << 32),
            false => seconds,
        };
        let fraction_ns = (fraction * 1_000_000_000) >> 32;
        let is_real = flags & CONSISTENT == 0 || flags & REAL != 0;
        is_real.then_some(Self {
            id,
            ticks,
            unix_ns: (seconds - UNIX_FROM_1900_S) * 1_000_000_000 + fraction_ns,
        })
    }
}

/// When a movie was made, in ns since 1970, as its header (`mvhd`) says.
pub(super) fn created_ns(mvhd: &[u8]) -> Option<u64> {
    let mut fields = Fields(mvhd);
    let (version, _) = fields.version_and_flags()?;
    let unix_s = fields.wide(version)?.checked_sub(UNIX_FROM_1904_S)?;
    // Many write 0 for what they do not know, and some that in seconds since 1970.
    unix_s.checked_mul(1_000_000_000).filter(|&ns| ns > 0)
}

/// How the codes of a time code track count frames, by its sample description (`stsd`).
pub(super) fn time_code_rate(stsd: &[u8]) -> Option<FrameRate> {
    let (_, entry) = Boxes(stsd.get(8..)?).find(|(name, _)| name == b"tmcd")?;
    let mut fields = Fields(entry.get(12..)?);
    let flags = fields.u32()?;
    let (timescale, duration) = (fields.u32()?, fields.u32()?);
    FrameRate::new(timescale, duration).filter(|_| flags & COUNTS == 0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::builder::numbers;
    use super::*;

    const NTP_2020: u32 = 3_786_825_600;
    const UNIX_2020_NS: u64 = 1_577_836_800_000_000_000;

    #[test]
    fn a_reference_time_names_a_moment_by_two_clocks() {
        let read = |fields: &[u32]| Reference::read(&numbers(fields));
        let of = |ticks, unix_ns| {
            Some(Reference {
                id: 7,
                ticks,
                unix_ns,
            })
        };
        let half = 1 << 31;
        let half_ns = 500_000_000;
        assert_eq!(
            read(&[0, 7, NTP_2020, half, 5]),
            of(5, UNIX_2020_NS + half_ns)
        );
        assert_eq!(read(&[24, 7, NTP_2020, 0, 5]), of(5, UNIX_2020_NS));
        assert_eq!(
            read(&[1 << 24, 7, NTP_2020, 0, 1, 0]),
            of(1 << 32, UNIX_2020_NS)
        );
        // After 2036.
        assert_eq!(read(&[0, 7, 1, 0, 5]), of(5, 2_085_978_497_000_000_000));
        // Consistent with itself alone; beyond all times; cut off.
        assert_eq!(read(&[8, 7, NTP_2020, 0, 5]), None);
        assert_eq!(read(&[1 << 24, 7, NTP_2020, 0, u32::MAX, 0]), None);
        assert_eq!(read(&[0, 7, NTP_2020, 0]), None);
    }

    #[test]
    fn a_creation_time_before_1970_is_none() {
        let read = |fields: &[u32]| created_ns(&numbers(fields));
        let of_2020 = 2_082_844_800 + 1_577_836_800;
        assert_eq!(read(&[0, of_2020, 0]), Some(UNIX_2020_NS));
        assert_eq!(read(&[1 << 24, 0, of_2020]), Some(UNIX_2020_NS));
        for none in [0, 1, 2_082_844_799, 2_082_844_800] {
            assert_eq!(read(&[0, none]), None, "{none}");
        }
        assert_eq!(read(&[1 << 24, u32::MAX, u32::MAX]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn time_codes_say_how_they_count() {
        let stsd = |flags: u32, timescale: u32, duration: u32| {
            let tail = numbers(&[flags, timescale, duration, 30 << 24]);
            let entry = [&numbers(&[36])[..], b"tmcd", &[0; 12], &tail].concat();
            [numbers(&[0, 1]), entry].concat()
        };
        assert_eq!(
            time_code_rate(&stsd(1, 30_000, 1001)),
            Some(FrameRate::NTSC)
        );
        assert_eq!(time_code_rate(&stsd(0, 600, 24)), Some(FrameRate::PAL));
        assert_eq!(time_code_rate(&stsd(8, 600, 24)), None);
        assert_eq!(time_code_rate(&stsd(0, 0, 24)), None);
        assert_eq!(time_code_rate(&stsd(0, 600, 0)), None);
        assert_eq!(time_code_rate(&stsd(0, 600, 24)[..30]), None);
    }
}
