//! Simulations: random numbers from a seed, as many seeds as fit the time, and what to type to have
//! one again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Seeds that run in any case.
const SEEDS_MIN: u64 = 8;

/// Random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("small")
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Runs the seed that `ONRUSH_SIMULATION_SEED` names, or as many as fit
/// `ONRUSH_SIMULATION_SECONDS`, from `ONRUSH_SIMULATION_FIRST_SEED` on. How many there were.
pub(crate) fn run_seeds(mut run: impl FnMut(u64)) -> u64 {
    if let Some(seed) = setting("ONRUSH_SIMULATION_SEED") {
        run_seed(seed, run);
        return 1;
    }
    let lasts = Duration::from_secs(setting("ONRUSH_SIMULATION_SECONDS").unwrap_or(0));
    let first = setting("ONRUSH_SIMULATION_FIRST_SEED").unwrap_or(1);
    let (begin, mut seed) = (Instant::now(), first);
    while seed < first + SEEDS_MIN || begin.elapsed() < lasts {
        run_seed(seed, &mut run);
        seed += 1;
    }
    seed - first
}

/// Runs a seed; if it fails, says how to repeat it.
#[allow(
    clippy::print_stderr,
    reason = "it is what a developer is to type next"
)]
pub(crate) fn run_seed<T>(seed: u64, run: impl FnOnce(u64) -> T) -> T {
    catch_unwind(AssertUnwindSafe(|| run(seed))).unwrap_or_else(|panic| {
        eprintln!(
            "to repeat it: ONRUSH_SIMULATION_SEED={seed} cargo test -p onrush-server --lib \
             simulation"
        );
        resume_unwind(panic)
    })
}

/// Tells what seeds came to: it is to be seen where they run for hours.
#[allow(clippy::print_stderr, reason = "nobody else tells")]
pub(crate) fn tell(seeds: u64, virtual_ns: u64, outcome: &impl std::fmt::Debug) {
    let hours = Duration::from_nanos(virtual_ns).as_secs_f64() / 3600.0;
    eprintln!("{seeds} seeds, {hours:.2} virtual hours: {outcome:?}");
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}
