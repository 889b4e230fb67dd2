//! Dolby Vision, as far as containers have to tell of it: pictures in H.265 that no other decoder
//! shows in their colours ("Dolby Vision Streams Within the ISO Base Media File Format").
//!
//! What others can show, and a decoder of Dolby Vision better, is told as what the others know.

use serde::{Deserialize, Serialize};

/// Bytes of a `DOVIDecoderConfigurationRecord` (section 3.2).
const RECORD_BYTES: usize = 24;

/// The profile whose pictures are in colours of its own.
const PROFILE: u8 = 5;

/// The configuration of a track that only decoders of Dolby Vision can show.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) struct DolbyVision([u8; RECORD_BYTES]);

impl DolbyVision {
    /// That of a record (`dvcC`, `dvvC`); `None` of what others can show, too.
    pub(in crate::media) fn read(record: &[u8]) -> Option<Self> {
        let mut all = [0; RECORD_BYTES];
        for (byte, told) in all.iter_mut().zip(record) {
            *byte = *told;
        }
        let is_compatible = all[4] >> 4 != 0;
        (all[2] >> 1 == PROFILE && !is_compatible).then_some(Self(all))
    }

    /// The record.
    pub(in crate::media) fn record(&self) -> &[u8] {
        &self.0
    }

    /// As in RFC 6381; `is_in_band` if parameter sets may stand in samples.
    pub(in crate::media) fn codec_string(self, is_in_band: bool) -> String {
        let name = if is_in_band { "dvhe" } else { "dvh1" };
        let level = (self.0[2] & 1) << 5 | self.0[3] >> 3;
        format!("{name}.{PROFILE:02}.{level:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_show_is_told_as_theirs() {
        // Profile, level, which layers there are, and what shows it, too.
        let record = |profile: u8, level: u8, compatibility: u8| {
            let low = (level & 0x1f) << 3 | 5;
            DolbyVision::read(&[1, 0, profile << 1 | level >> 5, low, compatibility << 4])
        };
        let five = record(5, 6, 0).unwrap();
        assert_eq!(five.codec_string(false), "dvh1.05.06");
        assert_eq!(five.codec_string(true), "dvhe.05.06");
        assert_eq!(five.record().len(), RECORD_BYTES);
        assert_eq!(record(5, 33, 0).unwrap().codec_string(false), "dvh1.05.33");
        assert_eq!(record(8, 6, 1), None);
        assert_eq!(record(7, 6, 6), None);
        assert_eq!(DolbyVision::read(&[]), None);
    }
}
