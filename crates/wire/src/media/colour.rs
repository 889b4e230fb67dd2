//! How colours and brightness of pictures are coded (ISO/IEC 23091-2: code points that codecs and
//! containers share).

use serde::{Deserialize, Serialize};

/// The code point of all three fields that says nothing.
pub(in crate::media) const UNSPECIFIED: u8 = 2;

/// What is told of a track's colours, by code points.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) struct Colour {
    /// `ColourPrimaries`.
    pub(in crate::media) primaries: u8,
    /// `TransferCharacteristics`.
    pub(in crate::media) transfer: u8,
    /// `MatrixCoefficients`.
    pub(in crate::media) matrix: u8,
    /// `VideoFullRangeFlag`.
    pub(in crate::media) is_full_range: bool,
}

impl Default for Colour {
    fn default() -> Self {
        Self {
            primaries: UNSPECIFIED,
            transfer: UNSPECIFIED,
            matrix: UNSPECIFIED,
            is_full_range: false,
        }
    }
}

impl Colour {
    /// The range that its transfer function makes, if it has one.
    pub(in crate::media) fn video_range(self) -> Option<VideoRange> {
        VideoRange::of_transfer(self.transfer)
    }
}

/// The dynamic range of pictures (RFC 8216bis, section 4.4.6.2: VIDEO-RANGE). The later ones may
/// have pictures of those before among theirs.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum VideoRange {
    /// Standard: what is meant where nothing is told.
    #[default]
    Sdr,
    /// High, by hybrid log-gamma (transfer characteristics 18).
    Hlg,
    /// High, by the perceptual quantizer (transfer characteristics 16: SMPTE ST 2084).
    Pq,
}

impl VideoRange {
    /// That of pictures with these transfer characteristics; `None` if they say nothing.
    pub(in crate::media) fn of_transfer(transfer: u8) -> Option<Self> {
        match transfer {
            // Reserved, and unspecified.
            0 | UNSPECIFIED | 3 => None,
            16 => Some(Self::Pq),
            18 => Some(Self::Hlg),
            _ => Some(Self::Sdr),
        }
    }

    /// The transfer characteristics that make it, of high ranges.
    #[must_use]
    pub fn transfer(self) -> Option<u8> {
        match self {
            Self::Sdr => None,
            Self::Hlg => Some(18),
            Self::Pq => Some(16),
        }
    }

    /// Whether it is a high one.
    #[must_use]
    pub fn is_high(self) -> bool {
        self != Self::Sdr
    }

    /// As VIDEO-RANGE has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sdr => "SDR",
            Self::Hlg => "HLG",
            Self::Pq => "PQ",
        }
    }
}
