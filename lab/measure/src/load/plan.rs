//! Who comes when, to see what, and what he does there: decided before anything is sent, from a
//! seed.

use serde::{Deserialize, Serialize};

use super::LoadError;
use crate::error::refuse;
pub(super) use crate::random::Random;

/// How clients come.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// Evenly over the ramp.
    Ramp,
    /// All at the first moment.
    AtOnce,
    /// As strangers do: independently of each other, on average as many a second as on a ramp.
    Poisson,
}

/// What a client does on average, in ns; 0: never.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Behaviour {
    /// Of all clients, so many do it, from 0 to 1; the others only watch.
    #[serde(default = "all")]
    pub active_part: f64,
    /// How long it watches before it jumps somewhere else.
    pub seek_every_ns: u64,
    /// How long it watches before it pauses, for a second.
    pub pause_every_ns: u64,
    /// How long it stays; another comes in its place.
    pub stay_ns: u64,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Act {
    Seek,
    Pause,
    Leave,
}

impl Arrival {
    /// When each of `clients` comes, counted from the start, in order.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a run"
    )]
    pub(super) fn times_ns(self, clients: u32, ramp_ns: u64, random: &mut Random) -> Vec<u64> {
        let gap_ns = ramp_ns / u64::from(clients.max(1));
        let mut at_ns = 0;
        (0..u64::from(clients))
            .map(|i| match self {
                Self::AtOnce => 0,
                Self::Ramp => i * gap_ns,
                Self::Poisson => {
                    at_ns += random.exponential_ns(gap_ns);
                    at_ns
                }
            })
            .collect()
    }
}

/// Draws URLs by Zipf's law: the k-th is asked for in proportion to 1/k^s; s = 0 asks for all
/// alike.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    /// Sums of the weights up to each, the last 1.
    cumulated: Vec<f64>,
}

impl Popularity {
    #[allow(clippy::cast_precision_loss, reason = "numbers of URLs")]
    pub(super) fn zipf(urls: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=urls).map(|k| {
            sum += (k as f64).powf(-exponent);
            sum
        });
        let sums: Vec<_> = sums.collect();
        let total = sums.last().copied().unwrap_or(1.0);
        Self {
            cumulated: sums.iter().map(|s| s / total).collect(),
        }
    }

    pub(super) fn draw(&self, random: &mut Random) -> usize {
        let at = random.unit();
        let place = self.cumulated.partition_point(|&sum| sum <= at);
        place.min(self.cumulated.len() - 1)
    }
}

const fn all() -> f64 {
    1.0
}

impl Default for Behaviour {
    /// All do nothing.
    fn default() -> Self {
        Self {
            active_part: all(),
            seek_every_ns: 0,
            pause_every_ns: 0,
            stay_ns: 0,
        }
    }
}

impl Behaviour {
    /// Refuses a part that is none, in words with the bound.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        refuse! { LoadError::Settings;
            !(0.0..=1.0).contains(&self.active_part)
                => "{} % of the clients do something: ask for 0 to 100 %", self.active_part * 100.0;
        }
        Ok(())
    }

    /// What one client does, and those who come in its place: this, or nothing. Nothing is drawn
    /// where all are alike.
    pub(super) fn of_one(self, random: &mut Random) -> Self {
        if self.active_part >= 1.0 || random.unit() < self.active_part {
            self
        } else {
            Self {
                active_part: 0.0,
                ..Self::default()
            }
        }
    }

    /// What a client does next and in how many ns, if anything.
    pub(super) fn next(self, random: &mut Random) -> Option<(u64, Act)> {
        let acts = [
            (self.seek_every_ns, Act::Seek),
            (self.pause_every_ns, Act::Pause),
            (self.stay_ns, Act::Leave),
        ];
        acts.into_iter()
            .filter(|&(mean_ns, _)| mean_ns > 0)
            .map(|(mean_ns, act)| (random.exponential_ns(mean_ns), act))
            .min_by_key(|&(in_ns, _)| in_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_in_order_and_as_many_as_asked_for() {
        for arrival in [Arrival::Ramp, Arrival::AtOnce, Arrival::Poisson] {
            let times = arrival.times_ns(1000, 1_000_000_000, &mut Random::new(1));
            assert_eq!(times.len(), 1000);
            assert!(times.is_sorted(), "{arrival:?}");
        }
        let ramp = Arrival::Ramp.times_ns(4, 400, &mut Random::new(1));
        assert_eq!(ramp, [0, 100, 200, 300]);
        let poisson = Arrival::Poisson.times_ns(10_000, 10_000_000_000, &mut Random::new(7));
        let last = *poisson.last().unwrap();
        // Ten standard deviations (a hundredth each) around the mean.
        assert!((9_000_000_000..11_000_000_000).contains(&last), "{last}");
    }

    #[test]
    fn the_popular_are_asked_for_more_often() {
        let popularity = Popularity::zipf(100, 1.0);
        let mut random = Random::new(3);
        let mut asked = [0_u32; 100];
        for _ in 0..100_000 {
            asked[popularity.draw(&mut random)] += 1;
        }
        // 1/H(100) = 19.3 % of all for the first, a tenth of it for the tenth.
        assert!((18_000..20_500).contains(&asked[0]), "{}", asked[0]);
        assert!((1_600..2_300).contains(&asked[9]), "{}", asked[9]);
        assert!(asked.iter().all(|&n| n > 0));
        let even = Popularity::zipf(2, 0.0);
        assert_eq!(even.cumulated, [0.5, 1.0]);
        assert_eq!(Popularity::zipf(1, 1.0).draw(&mut random), 0);
    }

    #[test]
    fn who_never_does_anything_does_nothing() {
        let mut random = Random::new(1);
        assert_eq!(Behaviour::default().next(&mut random), None);
        let leaving = Behaviour {
            stay_ns: 1,
            ..Behaviour::default()
        };
        assert!(matches!(leaving.next(&mut random), Some((_, Act::Leave))));
    }

    #[test]
    fn so_large_a_part_does_something_and_the_rest_nothing() {
        let active = |active_part, seed| {
            let behaviour = Behaviour {
                active_part,
                seek_every_ns: 1,
                stay_ns: 1,
                ..Behaviour::default()
            };
            let one = |i: u64| {
                let mut random = Random::new(seed + i);
                let one = behaviour.of_one(&mut random);
                let next = one.next(&mut random);
                assert_eq!(next.is_some(), one.seek_every_ns > 0);
                next.is_some()
            };
            (0..10_000).map(one).collect::<Vec<_>>()
        };
        let count = |part| active(part, 1).into_iter().filter(|&is| is).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        // Ten standard deviations (46 each).
        let some = count(0.3);
        assert!((2500..3500).contains(&some), "{some}");
        assert_eq!(active(0.3, 1), active(0.3, 1));
        assert_ne!(active(0.3, 1), active(0.3, 20_000));
    }

    #[test]
    fn where_all_are_active_choices_are_those_of_before() {
        let (mut random, mut untouched) = (Random::new(5), Random::new(5));
        Behaviour::default().of_one(&mut random);
        assert_eq!(random.next(), untouched.next());
    }

    #[test]
    fn a_part_is_from_nothing_to_all() {
        let of = |active_part| Behaviour {
            active_part,
            ..Behaviour::default()
        };
        for part in [0.0, 0.3, 1.0] {
            of(part).check().expect("a part");
        }
        for part in [-0.001, 1.001, f64::NAN] {
            assert!(of(part).check().is_err(), "{part}");
        }
        let refused = of(1.5).check().unwrap_err().to_string();
        assert_eq!(
            refused,
            "150 % of the clients do something: ask for 0 to 100 %"
        );
    }

    #[test]
    fn a_file_from_before_there_were_parts_is_of_all() {
        let old = r#"{"seek_every_ns":1,"pause_every_ns":2,"stay_ns":3}"#;
        let old: Behaviour = serde_json::from_str(old).unwrap();
        assert_eq!((old.active_part, old.stay_ns), (1.0, 3));
    }
}
