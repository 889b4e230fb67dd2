//! A simulation from its first viewer to the last loss.

use serde::{Deserialize, Serialize};

use crate::routing::Policy;
use crate::script::Arrival;
use crate::settings::{Settings, SettingsError};
use crate::world::{Counts, World};

/// What was seen of one policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Which.
    pub policy: Policy,
    /// Viewers who came while it was counted.
    pub joins: u64,
    /// Those whose node had their film.
    pub warm: u64,
    /// How often viewers were sent on.
    pub redirects: u64,
    /// Viewers whom no node had room for.
    pub refused: u64,
    /// Words of nodes to the registry. Each goes to all nodes.
    pub messages: u64,
    /// What nodes took from the object store, in bytes: a whole film for each viewer whose node did
    /// not have it.
    pub store_bytes: u64,
    /// Of each second what the busiest node played, over the mean.
    pub spread: Vec<f64>,
    /// What followed as nodes died.
    pub losses: Vec<Loss>,
}

/// What followed as nodes died.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Loss {
    /// So many, in addition to those before.
    pub nodes: u32,
    /// Viewers that they had.
    pub viewers: u64,
    /// After so many seconds 999 of 1000 of these were served again; `None`: not while it was
    /// watched.
    pub served_after_s: Option<u32>,
    /// From so many seconds on no node played more than [`EVEN`] times the mean; `None`: not while
    /// it was watched.
    pub even_after_s: Option<u32>,
    /// The most that a node played meanwhile, over the mean.
    pub spread_max: f64,
    /// Viewers whom no node had room for.
    pub refused: u64,
    /// What nodes took from the object store meanwhile, in bytes.
    pub store_bytes: u64,
}

/// Nodes are even where none plays more than so many times the mean.
pub const EVEN: f64 = 1.15;

/// Carries it out; `progress` is told which part of it is done, from 0 to 1.
///
/// # Errors
///
/// Settings that cannot be simulated.
pub fn run(
    policy: Policy,
    settings: &Settings,
    progress: &mut dyn FnMut(f64),
) -> Result<Run, SettingsError> {
    settings.check()?;
    let mut world = World::new(policy, settings);
    Ok(simulate(policy, settings, &mut world, progress))
}

/// The same by the product's rule, and who came, in their order: for real nodes that are to have
/// the same viewers.
///
/// # Errors
///
/// Settings that cannot be simulated.
pub fn run_with_arrivals(settings: &Settings) -> Result<(Run, Vec<Arrival>), SettingsError> {
    settings.check()?;
    let mut world = World::new(Policy::Route, settings);
    world.arrivals = Some(Vec::new());
    let run = simulate(Policy::Route, settings, &mut world, &mut |_| ());
    Ok((run, world.arrivals.take().unwrap_or_default()))
}

fn simulate(
    policy: Policy,
    settings: &Settings,
    world: &mut World,
    progress: &mut dyn FnMut(f64),
) -> Run {
    let losses = u32::try_from(settings.losses.len()).unwrap_or(u32::MAX);
    let lasts_s = settings.fill_s
        + settings.settle_s
        + settings.observe_s
        + losses.saturating_mul(settings.loss_s);
    let mut passed_s = 0;
    let mut seconds = |world: &mut World, count: u32, each: &mut dyn FnMut(&mut World, u32)| {
        let steady = f64::from(settings.viewers) / f64::from(settings.stay_s);
        for second in 1..=count {
            // While it fills those who come stand for those who have left, too.
            let due = f64::from(settings.viewers) / f64::from(settings.fill_s);
            let filling = passed_s < settings.fill_s;
            let left = f64::from(u32::try_from(world.served()).unwrap_or(u32::MAX));
            let comes = if filling {
                due + left / f64::from(settings.stay_s)
            } else {
                steady
            };
            world.second(comes);
            each(world, second);
            passed_s += 1;
            progress(f64::from(passed_s) / f64::from(lasts_s));
        }
    };
    let nothing: &mut dyn FnMut(&mut World, u32) = &mut |_, _| ();
    seconds(world, settings.fill_s + settings.settle_s, nothing);
    world.counts = Counts::default();
    let mut spread = Vec::new();
    seconds(world, settings.observe_s, &mut |world, _| {
        spread.push(world.spread())
    });
    let counts = std::mem::take(&mut world.counts);
    let losses = settings.losses.iter().map(|&nodes| {
        let mut loss = Watched::new(nodes, world.lose(nodes));
        seconds(world, settings.loss_s, &mut |world, second| {
            loss.second(world, second)
        });
        let counts = std::mem::take(&mut world.counts);
        loss.ended(&counts, settings)
    });
    let losses = losses.collect();
    Run {
        policy,
        joins: counts.joins,
        warm: counts.warm,
        redirects: counts.redirects,
        refused: counts.refused,
        messages: counts.messages,
        store_bytes: store_bytes(&counts, settings),
        spread,
        losses,
    }
}

/// Nodes that died, as it is watched what follows.
struct Watched {
    loss: Loss,
    /// The last second in which they were uneven.
    uneven_s: u32,
    watched_s: u32,
}

impl Watched {
    fn new(nodes: u32, viewers: u64) -> Self {
        let loss = Loss {
            nodes,
            viewers,
            served_after_s: None,
            even_after_s: None,
            spread_max: 0.0,
            refused: 0,
            store_bytes: 0,
        };
        Self {
            loss,
            uneven_s: 0,
            watched_s: 0,
        }
    }

    fn second(&mut self, world: &World, second: u32) {
        self.watched_s = second;
        let spread = world.spread();
        self.loss.spread_max = self.loss.spread_max.max(spread);
        if spread > EVEN {
            self.uneven_s = second;
        }
        let returned = world.counts.returned.saturating_mul(1000);
        if self.loss.served_after_s.is_none() && returned >= self.loss.viewers.saturating_mul(999) {
            self.loss.served_after_s = Some(second);
        }
    }

    fn ended(mut self, counts: &Counts, settings: &Settings) -> Loss {
        let is_even = self.uneven_s < self.watched_s;
        self.loss.even_after_s = is_even.then_some(self.uneven_s);
        self.loss.refused = counts.refused;
        self.loss.store_bytes = store_bytes(counts, settings);
        self.loss
    }
}

fn store_bytes(counts: &Counts, settings: &Settings) -> u64 {
    (counts.joins - counts.warm).saturating_mul(settings.film_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated(policy: Policy, settings: &Settings) -> Run {
        run(policy, settings, &mut |_| ()).unwrap()
    }

    fn small() -> Settings {
        Settings {
            viewers: 20_000,
            films: 2000,
            settle_s: 600,
            observe_s: 120,
            node_bps: 3100 * 4_000_000,
            ..Settings::quick()
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a part")]
    fn part(of: u64, all: u64) -> f64 {
        of as f64 / all as f64
    }

    #[test]
    fn one_seed_gives_one_result() {
        let settings = small();
        let once = simulated(Policy::Route, &settings);
        assert_eq!(once, simulated(Policy::Route, &settings));
        let other = Settings {
            seed: 2,
            ..settings
        };
        assert_ne!(once, simulated(Policy::Route, &other));
    }

    #[test]
    fn those_who_came_are_told_as_they_were_counted() {
        let settings = Settings {
            losses: Vec::new(),
            ..small()
        };
        let (run, arrivals) = run_with_arrivals(&settings).unwrap();
        assert_eq!(run, simulated(Policy::Route, &settings));
        let counted_from_s = settings.fill_s + settings.settle_s;
        let counted = arrivals.iter().filter(|it| it.at_s > counted_from_s);
        assert_eq!(counted.count() as u64, run.joins);
        let lasts_s = counted_from_s + settings.observe_s;
        assert!(arrivals.is_sorted_by_key(|it| it.at_s));
        for arrival in arrivals {
            assert!((1..=lasts_s).contains(&arrival.at_s), "{arrival:?}");
            assert!(arrival.asked < settings.nodes && arrival.served < settings.nodes);
        }
    }

    #[test]
    fn the_rule_of_the_product_is_warm_and_even() {
        let settings = small();
        let [route, ring, random] = Policy::ALL.map(|policy| simulated(policy, &settings));
        let worst = |run: &Run| run.spread.iter().copied().fold(0.0, f64::max);
        let warm = |run: &Run| part(run.warm, run.joins);
        assert!(worst(&route) <= EVEN, "{}", worst(&route));
        assert!(worst(&ring) > worst(&route), "{}", worst(&ring));
        assert!(
            warm(&route) > warm(&random),
            "{} {}",
            warm(&route),
            warm(&random)
        );
        assert!(part(route.redirects, route.joins) <= 1.0);
        for run in [&route, &ring, &random] {
            assert_eq!(run.refused, 0, "{}", run.policy);
        }
    }

    #[test]
    fn viewers_of_a_dead_node_are_served_again() {
        let settings = Settings {
            losses: vec![1, 2],
            ..small()
        };
        let run = simulated(Policy::Route, &settings);
        assert_eq!(run.losses.len(), 2);
        for loss in &run.losses {
            let due = u64::from(settings.viewers) / u64::from(settings.nodes);
            let (least, most) = (
                due / 2 * u64::from(loss.nodes),
                due * 3 * u64::from(loss.nodes),
            );
            assert!((least..most).contains(&loss.viewers), "{loss:?}");
            assert_eq!(loss.refused, 0, "{loss:?}");
            let after_s = loss.served_after_s.expect("they are served again");
            assert!(after_s <= 30, "{loss:?}");
        }
    }

    #[test]
    fn more_viewers_than_there_is_room_for_are_refused() {
        let settings = Settings {
            node_bps: 1500 * 4_000_000,
            losses: Vec::new(),
            ..small()
        };
        for policy in Policy::ALL {
            assert!(simulated(policy, &settings).refused > 0, "{policy}");
        }
    }

    #[test]
    fn what_cannot_be_simulated_is_told() {
        let tell = |settings: Settings| {
            let error = run(Policy::Route, &settings, &mut |_| ()).unwrap_err();
            error.to_string()
        };
        let no_nodes = Settings {
            nodes: 0,
            ..small()
        };
        assert_eq!(tell(no_nodes), "the number of nodes has to be 1 to 10000");
        let all_die = Settings {
            losses: vec![4, 6],
            ..small()
        };
        let told = tell(all_die);
        assert_eq!(told, "the number of nodes that die has to be 0 to 9");
    }
}
