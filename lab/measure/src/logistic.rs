//! How the chance of holding a number of viewers falls with the number, from trials that held or
//! did not: a logistic curve of its logarithm, with intervals by profile likelihood.
//!
//! A single try near the limit says little: the same number is held now and not then. The curve is
//! 1 / (1 + (n / N50)^k): half of the trials hold N50 viewers, and 95 of 100 hold N95, which is
//! N50 / 19^(1/k). Both are found on a grid, which has no starting point to choose and no step that
//! diverges. Where no number was both held and missed, no k is too large for the likelihood: it is
//! bounded by `STEEPNESS`, and the interval tells what is not known.
//!
//! An interval holds all values that the likelihood ratio does not refuse at 5 % (Wilks 1938): of
//! many trials. That of N95 holds it less often where there are few, 88 times of 100 with 24.

use serde::{Deserialize, Serialize};

use crate::stats::to_f64;

/// Trials below which there is no curve.
pub const TRIALS_MIN: usize = 6;

/// How fast the chance may fall: at 2 over a factor of nineteen, from 95 to 5 %, and at 400 over
/// 1.5 %.
const STEEPNESS: (f64, f64) = (2.0, 400.0);
const STEEPNESS_STEPS: u32 = 24;

/// Numbers that are looked at, evenly by their logarithms.
const NUMBER_STEPS: u32 = 240;

/// How far beyond the numbers that were tried the curve is looked for.
const BEYOND: f64 = 1.5;

/// Half of the 95th percentile of chi squared with one degree of freedom.
const LIKELIHOOD_DROP: f64 = 1.920_729;

/// The odds of 95 in 100.
const ODDS_95: f64 = 19.0;

/// One trial.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Trial {
    /// So many were tried; more than 0.
    pub number: f64,
    /// Whether they were held.
    pub is_held: bool,
}

/// A number, and the interval that holds the true one with 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The likeliest.
    pub number: f64,
    /// The lowest that is not refused; `None` if none that was looked at is.
    pub low: Option<f64>,
    /// The highest, likewise.
    pub high: Option<f64>,
}

/// The curve that trials say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logistic {
    /// What half of the trials hold.
    pub n50: Estimate,
    /// What 95 of 100 hold.
    pub n95: Estimate,
}

impl Logistic {
    /// The curve of these trials; `None` if there are fewer than [`TRIALS_MIN`], or all held or all
    /// missed: then there is no limit among what was tried.
    #[must_use]
    pub fn of(trials: &[Trial]) -> Option<Self> {
        let held = trials.iter().filter(|trial| trial.is_held).count();
        let is_one_sided = held == 0 || held == trials.len();
        if trials.len() < TRIALS_MIN || is_one_sided {
            return None;
        }
        let logs = trials.iter().map(|trial| trial.number.ln());
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        let (low, high) = (low - BEYOND.ln(), high + BEYOND.ln());
        let n50 = profile(trials, (low, high), |log, _| log);
        // N95 lies below N50: further by as much as the flattest curve says.
        let low_95 = low - ODDS_95.ln() / STEEPNESS.0;
        let n95 = profile(trials, (low_95, high), |log, k| log + ODDS_95.ln() / k);
        Some(Self { n50, n95 })
    }
}

/// The likeliest value and its interval, of a parameter whose logarithm, with a steepness, gives
/// that of N50.
fn profile(
    trials: &[Trial],
    (low, high): (f64, f64),
    log_n50: impl Fn(f64, f64) -> f64,
) -> Estimate {
    let at = |step: u32| low + (high - low) * f64::from(step) / f64::from(NUMBER_STEPS);
    let best = |step: u32| {
        let each = steepnesses().map(|k| likelihood(trials, log_n50(at(step), k), k));
        each.fold(f64::MIN, f64::max)
    };
    let profile: Vec<_> = (0..=NUMBER_STEPS).map(best).collect();
    let most = profile.iter().copied().fold(f64::MIN, f64::max);
    // Of a plateau, as of trials that no number divides, the middle.
    let is_likeliest = |likelihood: &f64| most - likelihood < 1e-6;
    let is_kept = |likelihood: &f64| most - likelihood <= LIKELIHOOD_DROP;
    let first = |is: &dyn Fn(&f64) -> bool| profile.iter().position(is).unwrap_or(0);
    let last = |is: &dyn Fn(&f64) -> bool| profile.iter().rposition(is).unwrap_or(0);
    let log_of = |place: usize| at(u32::try_from(place).unwrap_or(NUMBER_STEPS));
    let (from, to) = (first(&is_kept), last(&is_kept));
    let middle = f64::midpoint(log_of(first(&is_likeliest)), log_of(last(&is_likeliest)));
    Estimate {
        number: middle.exp(),
        low: (from > 0).then(|| log_of(from).exp()),
        high: (to + 1 < profile.len()).then(|| log_of(to).exp()),
    }
}

fn steepnesses() -> impl Iterator<Item = f64> {
    let (low, high) = (STEEPNESS.0.ln(), STEEPNESS.1.ln());
    let step = (high - low) / f64::from(STEEPNESS_STEPS);
    (0..=STEEPNESS_STEPS).map(move |i| (low + step * f64::from(i)).exp())
}

/// The logarithm of the chance of what was seen.
fn likelihood(trials: &[Trial], log_n50: f64, k: f64) -> f64 {
    let each = trials.iter().map(|trial| {
        let x = k * (trial.number.ln() - log_n50);
        // The chance is 1 / (1 + e^x), of a miss 1 / (1 + e^-x); e^x may be more than there is.
        -ln_one_plus_exp(if trial.is_held { x } else { -x })
    });
    each.sum()
}

fn ln_one_plus_exp(x: f64) -> f64 {
    if x > 30.0 { x } else { x.exp().ln_1p() }
}

/// Where to try: so many numbers within this part of `about` on both sides, one from each of as
/// many equal pieces, drawn by `unit`, which gives 0 to 1.
#[must_use]
pub fn numbers_about(
    about: f64,
    part: f64,
    trials: u32,
    mut unit: impl FnMut() -> f64,
) -> Vec<f64> {
    let each = (0..trials).map(|i| {
        let place = (f64::from(i) + unit()) / f64::from(trials);
        about * (1.0 - part + 2.0 * part * place)
    });
    each.collect()
}

/// The part of the trials that held.
#[must_use]
pub fn part_held(trials: &[Trial]) -> f64 {
    let held = trials.iter().filter(|trial| trial.is_held).count();
    to_f64(held) / to_f64(trials.len().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Trials of a server whose curve is known.
    fn trials(n50: f64, k: f64, count: u32, seed: u64) -> Vec<Trial> {
        let mut random = Random::new(seed);
        let numbers = numbers_about(n50 * 1.05, 0.25, count, || random.unit());
        let mut random = Random::new(seed + 1000);
        let tried = numbers.into_iter().map(|number| Trial {
            number,
            is_held: random.unit() < 1.0 / (1.0 + (number / n50).powf(k)),
        });
        tried.collect()
    }

    fn holds(estimate: &Estimate, truth: f64) -> bool {
        estimate.low.is_none_or(|low| low <= truth)
            && estimate.high.is_none_or(|high| truth <= high)
    }

    #[test]
    fn known_curves_are_found_again() {
        for (n50, k) in [(8000.0, 30.0), (300.0, 12.0)] {
            let curve = Logistic::of(&trials(n50, k, 1000, 7)).unwrap();
            let n95 = n50 / 19_f64.powf(1.0 / k);
            assert!((curve.n50.number / n50 - 1.0).abs() < 0.02, "{curve:?}");
            assert!((curve.n95.number / n95 - 1.0).abs() < 0.03, "{curve:?}");
            let width = (curve.n50.high.unwrap() - curve.n50.low.unwrap()) / n50;
            assert!(width < 0.05, "{curve:?}");
        }
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let (n50, k) = (1000.0, 20.0);
        let n95 = n50 / 19_f64.powf(1.0 / k);
        let curves = (0..100).filter_map(|seed| Logistic::of(&trials(n50, k, 40, seed)));
        let curves: Vec<_> = curves.collect();
        assert!(curves.len() > 95);
        let part = |is_held: &dyn Fn(&&Logistic) -> bool| {
            to_f64(curves.iter().filter(is_held).count()) / to_f64(curves.len())
        };
        let of_n50 = part(&|curve| holds(&curve.n50, n50));
        let of_n95 = part(&|curve| holds(&curve.n95, n95));
        // 95 % by large samples; of a hundred curves of 40 trials each nearly so.
        assert!((0.89..=0.99).contains(&of_n50), "{of_n50}");
        assert!((0.88..=1.0).contains(&of_n95), "{of_n95}");
    }

    #[test]
    fn more_trials_make_intervals_narrower() {
        let width = |count| {
            let curve = Logistic::of(&trials(1000.0, 20.0, count, 3)).unwrap();
            curve.n50.high.unwrap() - curve.n50.low.unwrap()
        };
        assert!(width(400) < width(20) / 2.0, "{} {}", width(400), width(20));
    }

    #[test]
    fn a_clean_cut_lies_between_what_was_held_and_missed() {
        let cut = [90.0, 94.0, 98.0, 102.0, 106.0, 110.0];
        let cut = cut.map(|number| Trial {
            number,
            is_held: number < 100.0,
        });
        let curve = Logistic::of(&cut).unwrap();
        assert!((98.0..=102.0).contains(&curve.n50.number), "{curve:?}");
        assert!(curve.n95.number <= curve.n50.number);
        assert!(holds(&curve.n50, 99.0) && holds(&curve.n50, 101.0));
        assert!(!holds(&curve.n50, 150.0), "{curve:?}");
    }

    #[test]
    fn without_a_limit_there_is_no_curve() {
        let all = |is_held, count| {
            vec![
                Trial {
                    number: 5.0,
                    is_held
                };
                count
            ]
        };
        assert_eq!(Logistic::of(&all(true, 50)), None);
        assert_eq!(Logistic::of(&all(false, 50)), None);
        let mut few = all(true, TRIALS_MIN - 2);
        few.extend(all(false, 1));
        assert_eq!(Logistic::of(&few), None);
        few.extend(all(false, 1));
        assert!(Logistic::of(&few).is_some());
    }

    #[test]
    fn numbers_are_spread_over_the_whole_range() {
        let mut random = Random::new(1);
        let numbers = numbers_about(1000.0, 0.2, 10, || random.unit());
        for (place, number) in (0..).zip(&numbers) {
            let from = 800.0 + 40.0 * f64::from(place);
            assert!((from..from + 40.0).contains(number), "{numbers:?}");
        }
    }
}
