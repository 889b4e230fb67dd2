//! What viewers want, when they come, and how long they stay.

use fastrand::Rng;

use crate::Settings;

/// Draws films and times.
#[derive(Debug)]
pub(crate) struct Audience {
    random: Rng,
    /// For each film what part of requests is for it or a more popular one.
    cumulated: Box<[f64]>,
    stay_s: f64,
}

impl Audience {
    pub(crate) fn new(settings: &Settings) -> Self {
        let weight = |rank: u32| f64::from(rank).powf(-settings.zipf);
        let mut sum = 0.0;
        let mut cumulated: Box<[f64]> = (1..=settings.films)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        cumulated.iter_mut().for_each(|part| *part /= sum);
        Self {
            random: Rng::with_seed(settings.seed),
            cumulated,
            stay_s: settings.stay_s.into(),
        }
    }

    /// What somebody asks for: a film's rank, from 0.
    pub(crate) fn film(&mut self) -> u32 {
        let drawn = self.random.f64();
        let film = self.cumulated.partition_point(|&part| part <= drawn);
        u32::try_from(film.min(self.cumulated.len() - 1)).expect("films are numbered by u32")
    }

    /// One of so many.
    pub(crate) fn one_of(&mut self, count: usize) -> usize {
        self.random.usize(..count)
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.random.u64(..)
    }

    /// For how many seconds somebody stays who comes now: 1 at least.
    pub(crate) fn stay_s(&mut self) -> usize {
        self.exponential(self.stay_s)
    }

    /// Between 1 and `most_s` seconds.
    pub(crate) fn within_s(&mut self, most_s: u32) -> usize {
        self.random.u32(1..=most_s.max(1)) as usize
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds"
    )]
    fn exponential(&mut self, mean: f64) -> usize {
        (-(1.0 - self.random.f64()).ln() * mean).ceil().max(1.0) as usize
    }

    /// How many of many independent events of that mean happen (Poisson).
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count"
    )]
    pub(crate) fn count(&mut self, mean: f64) -> u32 {
        if mean > 50.0 {
            // Nearly normal: Box and Muller.
            let radius = (-2.0 * (1.0 - self.random.f64()).ln()).sqrt();
            let normal = radius * (self.random.f64() * std::f64::consts::TAU).cos();
            return (mean + normal * mean.sqrt()).round().max(0.0) as u32;
        }
        // Knuth's: as many as it takes for the product to fall below.
        let (below, mut product, mut count) = ((-mean).exp(), self.random.f64(), 0);
        while product > below {
            product *= self.random.f64();
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audience(films: u32) -> Audience {
        Audience::new(&Settings {
            films,
            ..Settings::quick()
        })
    }

    #[test]
    fn films_are_asked_for_by_their_rank() {
        let mut audience = audience(1000);
        let mut asked = vec![0_u32; 1000];
        for _ in 0..200_000 {
            asked[audience.film() as usize] += 1;
        }
        // The sum of k^-0.8 for k to 1000.
        let sum: f64 = (1..=1000).map(|k| f64::from(k).powf(-0.8)).sum();
        for rank in [1_u32, 2, 10, 100] {
            let due = 200_000.0 * f64::from(rank).powf(-0.8) / sum;
            let found = f64::from(asked[rank as usize - 1]);
            assert!(
                (found - due).abs() < 5.0 * due.sqrt(),
                "{rank}: {found} of {due}"
            );
        }
    }

    #[test]
    fn times_and_counts_have_their_means() {
        let mut audience = audience(1);
        let mean = |mut of: Box<dyn FnMut() -> f64 + '_>| {
            (0..20_000).map(|_| of()).sum::<f64>() / 20_000.0
        };
        let stay = mean(Box::new(|| audience.stay_s() as f64));
        assert!((stay - 1800.5).abs() < 65.0, "{stay}");
        for due in [0.5, 20.0, 49.0, 51.0, 5000.0] {
            let found = mean(Box::new(|| audience.count(due).into()));
            assert!(
                (found - due).abs() < 5.0 * (due / 20_000.0).sqrt(),
                "{found} of {due}"
            );
        }
    }
}
