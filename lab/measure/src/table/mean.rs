//! Means with 99.9 % intervals.

use crate::stats::to_f64;

/// A mean, and how far the true one may be off with a probability of 99.9 %, by Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean of the samples.
    pub mean: f64,
    /// Half the width of its interval; infinite for a single sample.
    pub half: f64,
}

impl Mean {
    /// The mean of `samples`; `None` without any.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let count = to_f64(samples.len());
        if samples.is_empty() {
            return None;
        }
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|x| (x - mean).powi(2)).sum();
        let half = match samples.len() {
            1 => f64::INFINITY,
            n => t_quantile(n - 1) * (squares / (count - 1.0) / count).sqrt(),
        };
        Some(Self { mean, half })
    }
}

/// Student's t for so many degrees of freedom: 99.9 % lie between its negative and it (two-sided
/// tables).
fn t_quantile(freedom: usize) -> f64 {
    const TABLE: [f64; 20] = [
        636.619, 31.599, 12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781, 4.587, 4.437, 4.318,
        4.221, 4.140, 4.073, 4.015, 3.965, 3.922, 3.883, 3.850,
    ];
    // Beyond the table its last value is too wide rather than too narrow.
    TABLE[freedom.clamp(1, TABLE.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_student_s() {
        // Ten samples 1 to 10: mean 5.5, standard error 0.957427, t(9) = 4.781.
        let samples: Vec<_> = (1..=10).map(f64::from).collect();
        let Mean { mean, half } = Mean::of(&samples).unwrap();
        assert!((mean - 5.5).abs() < 1e-12);
        assert!((half - 4.781 * 0.957_427).abs() < 1e-4, "{half}");
        assert!(Mean::of(&[1.0]).unwrap().half.is_infinite());
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(t_quantile(1000), 3.850);
    }
}
