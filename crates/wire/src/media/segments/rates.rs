//! What it takes to send segments: the rates that multivariant playlists tell.

/// Bits a second that it takes to send a rendition.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rates {
    /// The peak: the most that any segments in a row have which together last between half and one
    /// and a half of the longest segment's duration, rounded to seconds (RFC 8216bis, section
    /// 4.4.6.2, BANDWIDTH).
    pub peak_bps: u64,
    /// The mean of all segments.
    pub mean_bps: u64,
}

impl Rates {
    /// Those of segments of which each has so many bytes and lasts so many ns.
    pub(super) fn of(segments: &[(u64, u64)]) -> Self {
        let longest_ns = segments.iter().map(|it| it.1).max().unwrap_or(0);
        let target_ns = u128::from(longest_ns.saturating_add(500_000_000) / 1_000_000_000).max(1)
            * 1_000_000_000;
        let (bytes, lasts) = segments
            .iter()
            .fold((0_u128, 0_u128), |(bytes, lasts), it| {
                (bytes + u128::from(it.0), lasts + u128::from(it.1))
            });
        let mean_bps = rate(bytes, lasts);
        let (mut peak_bps, mut first, mut of) = (0, 0, (0_u128, 0_u128));
        for &(bytes, lasts_ns) in segments {
            of = (of.0 + u128::from(bytes), of.1 + u128::from(lasts_ns));
            // No longer than they may be together; and of those all that are long enough.
            while of.1 * 2 > target_ns * 3 {
                let (bytes, lasts_ns) = segments[first];
                of = (of.0 - u128::from(bytes), of.1 - u128::from(lasts_ns));
                first += 1;
            }
            let mut rest = of;
            for &(bytes, lasts_ns) in &segments[first..] {
                if rest.1 * 2 < target_ns || rest.1 == 0 {
                    break;
                }
                peak_bps = peak_bps.max(rate(rest.0, rest.1));
                rest = (rest.0 - u128::from(bytes), rest.1 - u128::from(lasts_ns));
            }
        }
        Self {
            peak_bps: peak_bps.max(mean_bps),
            mean_bps,
        }
    }

    /// What it takes to send both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            peak_bps: self.peak_bps.saturating_add(other.peak_bps),
            mean_bps: self.mean_bps.saturating_add(other.mean_bps),
        }
    }
}

/// Bits a second, rounded up.
fn rate(bytes: u128, lasts_ns: u128) -> u64 {
    let bits = bytes * 8 * 1_000_000_000;
    let rate = bits.div_ceil(lasts_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_peak_is_that_of_segments_of_about_the_target() {
        // 8 kbit/s, but 16 kbit/s in one segment of 6 s.
        let rates = Rates::of(&[(6000, 6 * S), (12_000, 6 * S), (6000, 6 * S)]);
        assert_eq!((rates.peak_bps, rates.mean_bps), (16_000, 10_667));
        // A last segment that is very short does not count alone.
        let rates = Rates::of(&[(6000, 6 * S), (6000, 6 * S), (1000, S / 10)]);
        assert_eq!(rates.peak_bps, (7000_u64 * 8 * 10).div_ceil(61));
        // Nor do two that are too long together.
        let rates = Rates::of(&[(0, 6 * S), (9000, 4 * S), (9000, 6 * S)]);
        assert_eq!(rates.peak_bps, 18_000);
        assert_eq!(Rates::of(&[]), Rates::default());
        assert_eq!(Rates::of(&[(10, 0)]).mean_bps, 80 * S);
    }

    proptest! {
        /// By trying all segments in a row.
        #[test]
        fn the_peak_is_what_the_rule_says(
            segments in prop::collection::vec((0..99_999_u64, 1..9 * S), 1..20),
        ) {
            let longest = segments.iter().map(|it| it.1).max().unwrap();
            let target = ((longest + S / 2) / S).max(1) * S;
            let mut peak = 0;
            for from in 0..segments.len() {
                for to in from + 1..=segments.len() {
                    let bytes: u64 = segments[from..to].iter().map(|it| it.0).sum();
                    let lasts: u64 = segments[from..to].iter().map(|it| it.1).sum();
                    if 2 * lasts >= target && 2 * lasts <= 3 * target {
                        peak = peak.max(rate(bytes.into(), lasts.into()));
                    }
                }
            }
            let rates = Rates::of(&segments);
            prop_assert_eq!(rates.peak_bps, peak.max(rates.mean_bps));
        }
    }
}
