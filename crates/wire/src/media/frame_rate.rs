//! A constant frame rate, by which time codes name places (RFC 2326, section 3.5).

use serde::{Deserialize, Serialize};

/// So many frames in so many seconds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(into = "(u32, u32)", try_from = "(u32, u32)")]
pub struct FrameRate {
    /// Frames. Not 0.
    frames: u32,
    /// Seconds.
    seconds: u32,
}

impl FrameRate {
    /// 25 frames a second.
    pub const PAL: Self = Self {
        frames: 25,
        seconds: 1,
    };

    /// 29.97 frames a second.
    pub const NTSC: Self = Self {
        frames: 30_000,
        seconds: 1001,
    };

    /// So many frames in so many seconds, in lowest terms; `None` if either is 0.
    #[must_use]
    pub const fn new(frames: u32, seconds: u32) -> Option<Self> {
        if frames == 0 || seconds == 0 {
            return None;
        }
        let (mut a, mut b) = (frames, seconds);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Some(Self {
            frames: frames / a,
            seconds: seconds / a,
        })
    }

    /// When that many hundredths of a frame are over, in ns.
    #[must_use]
    pub fn time_ns(self, hundredths: u64) -> u64 {
        let ns = u128::from(hundredths) * u128::from(self.seconds) * 10_000_000;
        u64::try_from(ns / u128::from(self.frames)).unwrap_or(u64::MAX)
    }
}

impl From<FrameRate> for (u32, u32) {
    fn from(rate: FrameRate) -> Self {
        (rate.frames, rate.seconds)
    }
}

impl TryFrom<(u32, u32)> for FrameRate {
    type Error = &'static str;

    fn try_from((frames, seconds): (u32, u32)) -> Result<Self, Self::Error> {
        Self::new(frames, seconds).ok_or("no frames, or no seconds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_lowest_terms() {
        assert_eq!(FrameRate::new(50, 2), Some(FrameRate::PAL));
        assert_eq!(FrameRate::new(60_000, 2002), Some(FrameRate::NTSC));
        assert_eq!(FrameRate::new(0, 1), None);
        assert_eq!(FrameRate::new(1, 0), None);
        assert_eq!(FrameRate::PAL.time_ns(150), 60_000_000);
        assert_eq!(FrameRate::NTSC.time_ns(u64::MAX), u64::MAX);
    }
}
