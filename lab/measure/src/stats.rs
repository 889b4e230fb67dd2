//! What a handful of samples says: the median, how sure it is, and which samples stand apart.
//!
//! Nothing assumes a distribution. The interval of a median comes from order statistics, outliers
//! from the distance to the median; both are shown, and nothing is ever dropped.

use std::borrow::Borrow;
use std::f64::consts::LN_2;

/// Confidence that an interval aims at.
const COVERAGE_WANTED: f64 = 0.95;

/// A sample further from the median than this many robust standard deviations stands apart
/// (Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993).
const OUTLIER_DEVIATIONS: f64 = 3.5;

/// What turns a median distance into the standard deviation of a normal distribution.
const DEVIATION_PER_MEDIAN_DISTANCE: f64 = 1.4826;

/// Spread (largest less smallest, over the median) from which on samples are noisy.
const SPREAD_NOISY: f64 = 0.25;

/// Samples below which a median has no interval worth the name: with five, smallest and largest
/// enclose it with a probability of 94 %.
const SAMPLES_FEW: usize = 5;

/// A summary of samples that were taken in the order given.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many.
    pub samples: usize,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Two samples that enclose the true median with a probability of [`Self::coverage`].
    pub interval: (f64, f64),
    /// At least 0.95 where there are enough samples (six); below, what smallest and largest give.
    pub coverage: f64,
    /// Which samples stand apart, counted from 0.
    pub outliers: Vec<usize>,
}

impl Summary {
    /// Summarises `samples`; `None` without any, or if one is not a number.
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<Self> {
        let samples: Vec<f64> = samples.into_iter().map(|x| *x.borrow()).collect();
        if samples.is_empty() || samples.iter().any(|x| x.is_nan()) {
            return None;
        }
        let sorted = sorted(&samples);
        let median = middle(&sorted);
        let (low, coverage) = interval(sorted.len());
        Some(Self {
            samples: sorted.len(),
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            interval: (sorted[low], sorted[sorted.len() - 1 - low]),
            coverage,
            outliers: outliers(&samples, median),
        })
    }

    /// Largest less smallest, over the median; 0 if that is 0.
    #[must_use]
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.max - self.min) / self.median.abs()
        }
    }

    /// The median with smallest and largest behind it, to so many decimals.
    #[must_use]
    pub fn told(&self, digits: usize) -> String {
        let Self {
            median, min, max, ..
        } = self;
        format!("{median:.digits$} ({min:.digits$}..{max:.digits$})")
    }

    /// What a reader must know before believing the samples, in words with what to do next. `what`
    /// names them.
    #[must_use]
    pub fn warnings(&self, what: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.samples < SAMPLES_FEW {
            warnings.push(format!(
                "{what}: {} samples are few; their range holds the true median with {:.0} %. Take \
                 more (--repeats {SAMPLES_FEW})",
                self.samples,
                self.coverage * 100.0
            ));
        }
        if self.spread() > SPREAD_NOISY {
            warnings.push(format!(
                "{what}: the samples spread over {:.0} % of their median; something else was at \
                 work. Run it again on a quiet machine",
                self.spread() * 100.0
            ));
        }
        if self.outliers == [0] {
            warnings.push(format!(
                "{what}: the first sample stands apart from the others; a longer warm-up would \
                 tell why"
            ));
        } else if !self.outliers.is_empty() {
            let numbers: Vec<_> = self.outliers.iter().map(|i| (i + 1).to_string()).collect();
            warnings.push(format!(
                "{what}: samples {} of {} stand apart; they are counted all the same",
                numbers.join(", "),
                self.samples
            ));
        }
        warnings
    }
}

/// The median of `samples`, or `None` without any.
#[must_use]
pub fn median(samples: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.median)
}

/// How likely two sets of samples of the same thing differ at least so much by chance alone: the
/// two-sided rank sum test of Wilcoxon, Mann and Whitney. Assumes nothing of how samples are
/// spread. `None` without samples on both sides, or if one is not a number.
///
/// Exact, equal samples included, for up to [`EXACT_MAX`] samples together; above by the normal
/// distribution.
#[must_use]
pub fn p_value(a: &[f64], b: &[f64]) -> Option<f64> {
    let both: Vec<f64> = a.iter().chain(b).copied().collect();
    if a.is_empty() || b.is_empty() || both.iter().any(|x| x.is_nan()) {
        return None;
    }
    let ranks = doubled_ranks(&both);
    let sum: usize = ranks[..a.len()].iter().sum();
    // Doubled, the mean of the sum is a whole number.
    let mean = a.len() * (both.len() + 1);
    let distance = sum.abs_diff(mean);
    if both.len() <= EXACT_MAX {
        return Some(exact(&ranks, a.len(), mean, distance));
    }
    let (n, m, all) = (to_f64(a.len()), to_f64(b.len()), to_f64(both.len()));
    let squares: f64 = ranks
        .iter()
        .map(|&r| (to_f64(r) / 2.0 - (all + 1.0) / 2.0).powi(2))
        .sum();
    let deviation = (n * m * squares / (all * (all - 1.0))).sqrt();
    if deviation == 0.0 {
        return Some(1.0);
    }
    Some(libm::erfc(
        (to_f64(distance) / 2.0 / deviation) / 2.0_f64.sqrt(),
    ))
}

/// Samples, of both sides together, up to which [`p_value`] counts all ways to share them out.
pub const EXACT_MAX: usize = 60;

/// The rank of each sample, twice: equal ones share the middle of their ranks.
fn doubled_ranks(samples: &[f64]) -> Vec<usize> {
    let mut ascending: Vec<_> = (0..samples.len()).collect();
    ascending.sort_unstable_by(|&a, &b| samples[a].total_cmp(&samples[b]));
    let (mut ranks, mut below) = (vec![0; samples.len()], 0);
    for equal in ascending.chunk_by(|&a, &b| samples[a] == samples[b]) {
        for &place in equal {
            ranks[place] = 2 * below + equal.len() + 1;
        }
        below += equal.len();
    }
    ranks
}

/// The part of all ways to take `taken` of the ranks whose sum is at least `distance` from `mean`.
fn exact(ranks: &[usize], taken: usize, mean: usize, distance: usize) -> f64 {
    let sum_max: usize = ranks.iter().sum();
    // How many ways there are to take so many with such a sum.
    let mut ways = vec![vec![0.0; sum_max + 1]; taken + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for count in (0..taken).rev() {
            let (fewer, more) = ways.split_at_mut(count + 1);
            for (sum, many) in fewer[count]
                .iter()
                .enumerate()
                .filter(|(_, many)| **many > 0.0)
            {
                more[0][sum + rank] += many;
            }
        }
    }
    let all: f64 = ways[taken].iter().sum();
    let far = ways[taken]
        .iter()
        .enumerate()
        .filter(|(sum, _)| sum.abs_diff(mean) >= distance);
    far.map(|(_, many)| many).sum::<f64>() / all
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[half - 1], sorted[half])
    } else {
        sorted[half]
    }
}

/// How many of the smallest (and of the largest) samples lie outside the narrowest interval that
/// encloses the true median as surely as wanted, and how surely it does.
///
/// Each sample lies below the true median with probability 1/2, so the number of those that do is
/// binomial.
fn interval(samples: usize) -> (usize, f64) {
    // The logarithm of P(exactly k below), from k = 0 up: from 1075 samples on 0.5^n is less than
    // a number can be.
    let mut log_exactly = -LN_2 * to_f64(samples);
    let mut outside = 0.0;
    let mut best = None;
    for low in 0..samples.div_ceil(2) {
        outside += 2.0 * log_exactly.exp();
        let coverage = 1.0 - outside;
        if best.is_some() && coverage < COVERAGE_WANTED {
            break;
        }
        best = Some((low, coverage.max(0.0)));
        log_exactly += (to_f64(samples - low) / to_f64(low + 1)).ln();
    }
    best.unwrap_or((0, 0.0))
}

fn outliers(samples: &[f64], median: f64) -> Vec<usize> {
    let distances: Vec<_> = samples.iter().map(|x| (x - median).abs()).collect();
    let bound = middle(&sorted(&distances)) * DEVIATION_PER_MEDIAN_DISTANCE * OUTLIER_DEVIATIONS;
    // Samples that are mostly equal have no distance to measure others by.
    if bound == 0.0 {
        return Vec::new();
    }
    (0..samples.len())
        .filter(|&i| distances[i] > bound)
        .collect()
}

/// What is counted, timed or worked out, as a number to calculate with; exact up to 2^53.
pub trait Number {
    /// That number.
    fn number(self) -> f64;
}

macro_rules! numbers {
    ($($kind:ty)+) => {$(
        impl Number for $kind {
            #[allow(
                clippy::cast_precision_loss,
                clippy::cast_lossless,
                reason = "no count and no time in ns here comes near 2^53"
            )]
            fn number(self) -> f64 {
                self as f64
            }
        }
    )+};
}

numbers!(f64 i32 i64 u16 u32 u64 usize);

/// See [`Number`].
#[must_use]
pub(crate) fn to_f64(number: impl Number) -> f64 {
    number.number()
}

/// A part of a whole.
#[must_use]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    to_f64(part) / to_f64(whole)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_median_is_the_middle_one_or_between_the_middle_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([0.0; 0]), None);
        assert_eq!(median([1.0, f64::NAN]), None);
    }

    #[test]
    fn an_interval_is_as_sure_as_the_binomial_distribution_says() {
        // Table of the sign test: n, how many are cut off each side, 1 - 2 * B(cut - 1).
        for (samples, low, coverage) in [
            (1, 0, 0.0),
            (3, 0, 0.75),
            (5, 0, 0.9375),
            (6, 0, 0.968_75),
            (8, 0, 0.992_187_5),
            (9, 1, 0.960_937_5),
            (15, 3, 0.964_843_75),
            (20, 5, 0.958_610_534_667_968_8),
            // By exact fractions: 0.5^n is a number, none any more, and far from one.
            (1074, 504, 0.952_728_117_567_383),
            (1075, 504, 0.955_933_520_620_151_4),
            (5000, 2430, 0.950_684_141_895_827_8),
        ] {
            let (found, sure) = interval(samples);
            assert_eq!(found, low, "{samples}");
            assert!((sure - coverage).abs() < 1e-10, "{samples}: {sure}");
        }
        let samples: Vec<_> = (0..9).map(f64::from).collect();
        assert_eq!(Summary::of(&samples).unwrap().interval, (1.0, 7.0));
    }

    #[test]
    fn outliers_are_named_and_counted_all_the_same() {
        let summary = Summary::of([10.0, 11.0, 10.5, 40.0, 9.5]).unwrap();
        assert_eq!(summary.outliers, [3]);
        assert_eq!((summary.min, summary.max), (9.5, 40.0));
        let text = summary.warnings("x").join("\n");
        assert!(text.contains("samples 4 of 5 stand apart"), "{text}");
        assert!(text.contains("spread over 290 %"), "{text}");
        assert_eq!(summary.told(1), "10.5 (9.5..40.0)");
    }

    #[test]
    fn the_chance_of_a_difference_is_that_of_the_tables() {
        let from =
            |start: u32, count: u32| (start..start + count).map(f64::from).collect::<Vec<_>>();
        // Apart altogether: 2 ways of (n over k).
        let p = p_value(&from(0, 5), &from(5, 5)).unwrap();
        assert!((p - 2.0 / 252.0).abs() < 1e-12, "{p}");
        assert_eq!(p_value(&from(5, 5), &from(0, 5)), Some(p));
        let p = p_value(&from(0, 3), &from(3, 3)).unwrap();
        assert!((p - 0.1).abs() < 1e-12, "{p}");
        // U = 1 of 4 and 4: (1 + 1 and 1 + 1) of 70.
        let p = p_value(&[1.0, 2.0, 3.0, 5.0], &[4.0, 6.0, 7.0, 8.0]).unwrap();
        assert!((p - 4.0 / 70.0).abs() < 1e-12, "{p}");
        assert_eq!(p_value(&[1.0; 4], &[1.0; 4]), Some(1.0));
        assert_eq!(p_value(&[], &[1.0]), None);
        assert_eq!(p_value(&[f64::NAN], &[1.0]), None);
        // Equal samples count half each way: of 1 1 | 1 2 nothing can be said.
        assert_eq!(p_value(&[1.0, 1.0], &[1.0, 2.0]), Some(1.0));
    }

    #[test]
    fn many_samples_are_judged_like_few() {
        let from =
            |start: f64, count: u32| (0..count).map(|i| start + f64::from(i)).collect::<Vec<_>>();
        let exact = p_value(&from(0.0, 30), &from(8.5, 30)).unwrap();
        let normal = p_value(&from(0.0, 31), &from(9.01, 30)).unwrap();
        assert!(
            exact > 1e-4 && exact < 0.05 && normal < exact * 2.0 && normal > exact / 2.0,
            "{exact} {normal}"
        );
        let far = p_value(&from(0.0, 100), &from(1000.0, 100)).unwrap();
        assert!(far < 1e-20, "{far}");
        assert_eq!(p_value(&[1.0; 40], &[1.0; 40]), Some(1.0));
    }

    #[test]
    fn equal_samples_share_the_middle_of_their_ranks() {
        let samples = [3.0, -1.0, 3.0, 0.0, -0.0, 7.0, 3.0, f64::INFINITY];
        // Ranks 1; 2 and 3; 4, 5 and 6; 7; 8.
        assert_eq!(doubled_ranks(&samples), [10, 2, 10, 5, 5, 14, 10, 16]);
        assert_eq!(doubled_ranks(&[]), [0; 0]);
    }

    #[test]
    fn a_hundred_thousand_samples_are_judged_at_once() {
        let from = |start: u32| {
            (start..start + 100_000)
                .rev()
                .map(|i| f64::from(i % 90_000))
        };
        let begin = Instant::now();
        let p = p_value(&from(0).collect::<Vec<_>>(), &from(7).collect::<Vec<_>>());
        assert!(p.is_some_and(|p| p > 0.5), "{p:?}");
        // Comparing each with each other took minutes.
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_slow_first_sample_and_few_samples_are_told() {
        let first = Summary::of([30.0, 10.0, 10.2, 10.1, 9.9]).unwrap();
        let text = first.warnings("x").join("\n");
        assert!(text.contains("the first sample stands apart"), "{text}");
        let few = Summary::of([1.0, 1.0, 1.0]).unwrap();
        let text = few.warnings("x").join("\n");
        assert!(text.contains("3 samples are few"), "{text}");
        assert!(text.contains("with 75 %"), "{text}");
        let quiet = Summary::of([1.0; 5]).unwrap();
        assert_eq!(quiet.warnings("x"), [""; 0]);
    }
}
