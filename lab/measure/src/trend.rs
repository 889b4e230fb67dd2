//! Whether something grows: the slope of samples over time, and how sure it is.
//!
//! The slope is the median of the slopes between all pairs of samples (Sen, *Estimates of the
//! Regression Coefficient Based on Kendall's Tau*, 1968): a few samples far off do not move it, and
//! nothing assumes a distribution. Samples that follow each other closely are more alike than it
//! reckons, so its interval is rather too narrow.

use crate::stats::to_f64;

/// Samples below which nothing is said.
pub const SAMPLES_MIN: usize = 6;

/// What a normal distribution exceeds on either side in one case of a hundred together.
const DEVIATIONS_OF_99_PERCENT: f64 = 2.576;

/// By how much something grows for each unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// The median slope; negative if it shrinks.
    pub slope: f64,
    /// Two slopes that enclose the true one with a probability of 99 %, if samples do not depend on
    /// each other.
    pub interval: (f64, f64),
}

impl Trend {
    /// Of samples `(when, how much)`; `None` for fewer than [`SAMPLES_MIN`] at different times.
    #[must_use]
    pub fn of(samples: &[(f64, f64)]) -> Option<Self> {
        let mut slopes = slopes(samples);
        if samples.len() < SAMPLES_MIN || slopes.is_empty() {
            return None;
        }
        slopes.sort_by(f64::total_cmp);
        let n = to_f64(samples.len());
        // The standard deviation of Kendall's S without ties.
        let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
        let all = to_f64(slopes.len());
        let aside = (all - DEVIATIONS_OF_99_PERCENT * deviation) / 2.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place among the slopes"
        )]
        let aside = aside.max(0.0) as usize;
        Some(Self {
            slope: slopes[slopes.len() / 2],
            interval: (slopes[aside], slopes[slopes.len() - 1 - aside]),
        })
    }

    /// Whether it grows, and not by chance.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.interval.0 > 0.0
    }
}

/// The slopes between all pairs of samples, each with those that come later.
pub(crate) fn slopes(samples: &[(f64, f64)]) -> Vec<f64> {
    let mut slopes = Vec::with_capacity(samples.len() * samples.len() / 2);
    for (i, &(from, low)) in samples.iter().enumerate() {
        let later = samples[i + 1..].iter().filter(|&&(to, _)| to > from);
        slopes.extend(later.map(|&(to, high)| (high - low) / (to - from)));
    }
    slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between 0 and 1 in no order.
    fn noise(i: u32) -> f64 {
        f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 65_536.0
    }

    fn samples(count: u32, value: impl Fn(u32) -> f64) -> Vec<(f64, f64)> {
        (0..count).map(|i| (f64::from(i), value(i))).collect()
    }

    #[test]
    fn growth_is_seen_through_noise_and_noise_is_none() {
        let growing = Trend::of(&samples(60, |i| f64::from(i) * 0.1 + noise(i))).unwrap();
        assert!(growing.grows(), "{growing:?}");
        assert!((growing.slope - 0.1).abs() < 0.02, "{growing:?}");
        let steady = Trend::of(&samples(60, noise)).unwrap();
        assert!(!steady.grows() && steady.interval.1 > 0.0, "{steady:?}");
        let shrinking = Trend::of(&samples(60, |i| -f64::from(i))).unwrap();
        assert!(!shrinking.grows() && shrinking.slope == -1.0);
        let flat = Trend::of(&samples(60, |_| 5.0)).unwrap();
        assert!(!flat.grows() && flat.interval == (0.0, 0.0));
    }

    #[test]
    fn one_sample_far_off_moves_nothing() {
        let spike = |i| if i == 30 { 1e9 } else { f64::from(i) };
        let trend = Trend::of(&samples(60, spike)).unwrap();
        assert!((trend.slope - 1.0).abs() < 1e-9, "{trend:?}");
    }

    #[test]
    fn few_samples_say_nothing() {
        assert_eq!(Trend::of(&samples(5, noise)), None);
        assert!(Trend::of(&samples(6, noise)).is_some());
        assert_eq!(Trend::of(&[(1.0, 1.0); 9]), None);
    }
}
