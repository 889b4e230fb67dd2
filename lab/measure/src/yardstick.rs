//! What the host gave meanwhile, as a number: fixed work beside an experiment, on the processor
//! that it measures, whenever nobody else wants that.
//!
//! Two kinds of work, because a host takes two kinds of things: additions that each wait for the
//! last (the clock of the processor, and what a neighbour on the same core takes of it), and loads
//! that miss the caches (what neighbours take of those and of memory). They are done by a thread
//! that runs only where the processor would rest (SCHED_IDLE), a fraction of a millisecond twenty
//! times a second, and timed by that thread's own processor time, so that those who go before it do
//! not count. The loads go over more memory than a cache has, but few at a time: they take some
//! lines of the cache from what is measured, and no more than 64 KiB a time.

use std::hint::black_box;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use onrush_sys::clock::thread_cpu_ns;
use onrush_sys::thread::{pin_to, run_when_idle};
use serde::{Deserialize, Serialize};

use crate::machine::Background;
use crate::random::Random;
use crate::stats::{Summary, to_f64};

/// Between two times.
const EVERY: Duration = Duration::from_millis(50);

/// Additions in one: about 50 us.
const ADDITIONS: u32 = 100_000;

/// Loads in one: about 100 us, and as many lines of 64 bytes.
const LOADS: u32 = 1000;

/// Words that the loads go over: 64 MiB, more than most caches have.
const WORDS: u32 = 16 << 20;

/// A line of 64 bytes has so many words.
const WORDS_A_LINE: u32 = 16;

/// Samples that are kept at the most: those of 15 minutes.
const SAMPLES_MAX: usize = 18_000;

/// What fixed work took while something was measured.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Yardstick {
    /// How often it had its turn: less often where the processor was busy.
    pub samples: u64,
    /// What an addition took that waits for the last, in ns: the fastest, the middle one, the
    /// slowest.
    pub addition_ns: [f64; 3],
    /// What a load took that missed the caches, likewise.
    pub miss_ns: [f64; 3],
}

/// Measures until it is asked what it has found.
#[derive(Debug)]
pub struct Measuring {
    background: Background,
    samples: Arc<Mutex<Vec<(f64, f64)>>>,
}

impl Measuring {
    /// Begins on processor `core`.
    ///
    /// # Errors
    ///
    /// If no thread can be made.
    pub fn start(core: usize) -> io::Result<Self> {
        // Once for all: it takes a while, and all the caches.
        static LINES: OnceLock<Vec<u32>> = OnceLock::new();
        let lines = LINES.get_or_init(|| cycle(WORDS / WORDS_A_LINE, &mut Random::new(1)));
        let samples = Arc::<Mutex<Vec<(f64, f64)>>>::default();
        let its_own = Arc::clone(&samples);
        let background = Background::start("yardstick", move |is_over| {
            // Elsewhere, or at an ordinary priority, it would do harm.
            if pin_to(core).and_then(|()| run_when_idle()).is_err() {
                return;
            }
            let mut place = 0;
            while !is_over.load(Ordering::Relaxed) {
                let sample = (
                    timed(ADDITIONS, || add(ADDITIONS)),
                    timed(LOADS, || place = follow(lines, place, LOADS)),
                );
                let mut samples = its_own.lock().unwrap_or_else(PoisonError::into_inner);
                if samples.len() < SAMPLES_MAX {
                    samples.push(sample);
                }
                drop(samples);
                thread::sleep(EVERY);
            }
        })?;
        Ok(Self {
            background,
            samples,
        })
    }

    /// Ends, and tells; `None` if it never had its turn.
    #[must_use]
    pub fn finish(self) -> Option<Yardstick> {
        drop(self.background);
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        Yardstick::of(&samples)
    }
}

impl Yardstick {
    fn of(samples: &[(f64, f64)]) -> Option<Self> {
        let three = |all: Summary| [all.min, all.median, all.max];
        let additions = Summary::of(samples.iter().map(|sample| sample.0))?;
        let misses = Summary::of(samples.iter().map(|sample| sample.1))?;
        Some(Self {
            samples: samples.len() as u64,
            addition_ns: three(additions),
            miss_ns: three(misses),
        })
    }

    /// For people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let ([_, addition, _], [_, miss, _]) = (self.addition_ns, self.miss_ns);
        format!("an addition took {addition:.3} ns and a load past the caches {miss:.0} ns")
    }
}

/// What one of so many took, in ns of this thread's processor time.
fn timed(count: u32, work: impl FnOnce()) -> f64 {
    let begin_ns = thread_cpu_ns();
    work();
    to_f64(thread_cpu_ns() - begin_ns) / f64::from(count)
}

/// Additions, of which none can begin before the last has ended.
fn add(count: u32) {
    let mut sum = 0_u64;
    for _ in 0..count {
        sum = black_box(sum.wrapping_add(1));
    }
    black_box(sum);
}

/// A way through so many lines of memory that comes by each once, in no order: at the beginning of
/// each line stands the next one's place.
fn cycle(lines: u32, random: &mut Random) -> Vec<u32> {
    let stride = WORDS_A_LINE as usize;
    let mut next: Vec<u32> = vec![0; lines as usize * stride];
    let mut order: Vec<u32> = (1..lines).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.index(last + 1));
    }
    let mut at = 0_usize;
    for line in order {
        next[at] = line * WORDS_A_LINE;
        at = line as usize * stride;
    }
    next[at] = 0;
    next
}

/// Goes so many places on from `place`.
fn follow(next: &[u32], mut place: u32, count: u32) -> u32 {
    for _ in 0..count {
        place = next[place as usize];
    }
    black_box(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_comes_by_each_line_once() {
        let lines = 1000;
        let next = cycle(lines, &mut Random::new(5));
        let (mut place, mut seen) = (0, vec![false; lines as usize]);
        for _ in 0..lines {
            let line = place / WORDS_A_LINE;
            assert!(!std::mem::replace(&mut seen[line as usize], true));
            place = follow(&next, place, 1);
        }
        assert_eq!(place, 0);
        assert_eq!(follow(&next, 0, lines), 0);
    }

    #[test]
    fn the_middle_and_the_extremes_are_told() {
        let samples = [(0.3, 80.0), (0.9, 90.0), (0.4, 300.0)];
        let yardstick = Yardstick::of(&samples).unwrap();
        assert_eq!(yardstick.samples, 3);
        assert_eq!(yardstick.addition_ns, [0.3, 0.4, 0.9]);
        assert_eq!(yardstick.miss_ns, [80.0, 90.0, 300.0]);
        assert_eq!(Yardstick::of(&[]), None);
        let words = "an addition took 0.400 ns and a load past the caches 90 ns";
        assert_eq!(yardstick.in_words(), words);
    }

    #[test]
    fn it_has_its_turn_and_a_miss_takes_longer_than_an_addition() {
        let core = *onrush_sys::thread::allowed_cores().last().unwrap();
        let measuring = Measuring::start(core).unwrap();
        // It gets what others leave; on a busy machine that may take a while.
        let count = || measuring.samples.lock().unwrap().len();
        let has_run = (0..6000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            count() >= 3
        });
        assert!(has_run);
        let yardstick = measuring.finish().unwrap();
        assert!(yardstick.samples >= 3);
        assert!(yardstick.addition_ns[0] > 0.0);
        assert!(
            yardstick.miss_ns[1] > yardstick.addition_ns[1],
            "{yardstick:?}"
        );
    }
}
