//! Memory: latency by level, bandwidth by every way to read and write, and what a page fault costs.

use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use onrush_lock::memory::available_bytes;
use onrush_primitives::bandwidth::{WORDS, Way};
use onrush_primitives::map::{Memory, Pages};
use onrush_sys::thread::pin_to;

use super::Found;
use super::fault;
use super::method::{Method, six_digits};
use super::staircase::{self, Staircase};
use crate::stats::{median, to_f64};

/// What is kept from round to round.
#[derive(Debug, Default)]
pub(super) struct Kept {
    staircase: Option<Staircase>,
    sizes: Vec<(&'static str, Pages, usize)>,
    area: Option<Memory>,
    pub(super) fault: fault::Kept,
}

/// One round of all.
pub(super) fn measure(method: &Method, found: &mut Found, kept: &mut Kept) {
    latency(method, found, kept);
    bandwidth(method, found, kept);
    fault::measure(method, found, &mut kept.fault);
}

fn latency(method: &Method, found: &mut Found, kept: &mut Kept) {
    if kept.staircase.is_none() {
        kept.staircase = found.there(&["latency_memory"], Staircase::new(method));
    }
    let Some(staircase) = &mut kept.staircase else {
        return;
    };
    let begin = Instant::now();
    if found.round() < PASSES {
        staircase.pass(method, found);
    }
    if found.round() == 0 {
        staircase.strides(method, found);
        found.fact("huge_part", staircase.huge_part());
    }
    if kept.sizes.is_empty() {
        kept.sizes = levels(staircase.bytes_max(), &staircase::cache_steps(found));
    }
    let seconds = begin.elapsed().as_secs_f64() + found.known("staircase_seconds").unwrap_or(0.0);
    found.fact("staircase_seconds", seconds);
    for (id, pages, bytes) in &kept.sizes {
        found.fact(&format!("{id}_bytes"), to_f64(*bytes));
        found.samples(id, staircase.at(method, *pages, *bytes));
    }
    let base = found.latest("latency_memory_base");
    if let Some((huge, base)) = found.latest("latency_memory").zip(base) {
        found.samples("tlb_miss", vec![six_digits(base - huge)]);
    }
}

/// Passes over all sizes; the median of three tells a disturbed point apart.
const PASSES: usize = 3;

/// A size in the middle of each level, by the steps.
fn levels(bytes_max: usize, steps: &[staircase::Step]) -> Vec<(&'static str, Pages, usize)> {
    let names = ["latency_l1", "latency_l2", "latency_l3"];
    let mut from = 4096_u64;
    let mut found = Vec::new();
    for (name, step) in names.into_iter().zip(steps) {
        // The geometric middle: the ends are shared with the levels beside.
        let bytes = (from * step.edge_bytes).isqrt();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        found.push((name, Pages::Huge, bytes));
        from = step.edge_bytes;
    }
    found.push(("latency_memory", Pages::Huge, bytes_max));
    found.push(("latency_memory_base", Pages::Base, bytes_max));
    found
}

fn bandwidth(method: &Method, found: &mut Found, kept: &mut Kept) {
    let bytes = method.much(128 << 20, 256 << 20);
    if kept.area.is_none() {
        let area = share(bytes, available_bytes(), 1).and_then(touched);
        kept.area = found.there(&["bandwidth"], area);
    }
    let Some(area) = &mut kept.area else {
        return;
    };
    found.fact("bandwidth_bytes", to_f64(area.bytes()));
    for way in Way::ALL {
        let id = format!("bandwidth_{}", way.name());
        if way.is_here() {
            let samples = of_way(method, found, way, area.words_mut(), method.time(60));
            found.samples(&id, samples);
        } else {
            found.missing(&id, "this processor has no such instructions");
        }
    }
    if found.round() < 2 {
        over_size(method, found, area.words_mut());
    }
    for way in [Way::ReadSimd, Way::WriteNonTemporal, Way::CopyMemcpy] {
        let id = format!("bandwidth_all_{}", way.name());
        if way.is_here() {
            let all = of_all_cores(method.cores(), way, bytes / 2, method.time(90));
            found.try_samples(&id, all);
        }
    }
    found.fact("cores", to_f64(method.cores().len()));
    of_two_cores(method, found, bytes / 2);
}

/// Bytes per second of one way, each sample a few passes; its work is checked, and void if it was
/// not done.
fn of_way(
    method: &Method,
    found: &mut Found,
    way: Way,
    words: &mut [u64],
    time: Duration,
) -> Vec<f64> {
    const WORD: u64 = 0x0101_0101_0101_0101;
    let half = words.len() / 2;
    words.fill(WORD);
    words[half..].fill(0);
    let expected = WORD.wrapping_mul(half as u64);
    let mut value = 0;
    let mut is_done = true;
    let passes = method.per_act(time, |times| {
        for _ in 0..times {
            // Another each time, of equal bytes, as memset writes them.
            value = if value == WORD { 2 * WORD } else { WORD };
            let sum = black_box(way.go(words, value));
            // One look at each end and one between: a way that leaves words out is found.
            is_done &= match way.name().split_once('_').map(|(kind, _)| kind) {
                Some("read") => sum == expected,
                Some("write") => [0, half, words.len() - 1]
                    .iter()
                    .all(|&i| words[i] == value),
                _ => [half, half + half / 2, words.len() - 1]
                    .iter()
                    .all(|&i| words[i] == WORD),
            };
        }
    });
    if !is_done {
        let why = "its work was not done: sums or words are wrong".to_owned();
        found.void(&format!("bandwidth_{}", way.name()), why);
    }
    let moved_bytes = moved_bytes(way, words.len() * 8);
    passes
        .iter()
        .map(|ns| six_digits(moved_bytes / ns * 1e9))
        .collect()
}

/// What counts: each byte once, also a copied one.
fn moved_bytes(way: Way, bytes: usize) -> f64 {
    match way {
        Way::CopyMemcpy | Way::CopyRep => to_f64(bytes / 2),
        _ => to_f64(bytes),
    }
}

fn over_size(method: &Method, found: &mut Found, words: &mut [u64]) {
    let sizes = (12..=28).step_by(2).map(|bits| 1_usize << bits);
    let words_max = words.len();
    for bytes in sizes.filter(|bytes| bytes / 8 <= words_max) {
        let ways = [
            Way::ReadSimd,
            Way::WriteSimd,
            Way::WriteMemset,
            Way::CopyMemcpy,
        ];
        for way in ways.into_iter().filter(|way| way.is_here()) {
            let (part, time) = (&mut words[..bytes / 8], Duration::from_millis(4));
            let each = median(of_way(method, found, way, part, time)).unwrap_or(0.0);
            found.point("bandwidth_over_size", way.name(), bytes as u64, each);
        }
    }
    for bits in 6..=26 {
        let copied = 1_usize << bits;
        // Whole lines of both halves; the smallest copies have a length of their own.
        let (from, to) = words.split_at_mut((copied / 8).max(WORDS).min(words.len() / 2));
        let length = copied / 8;
        if length > from.len() || length > to.len() {
            continue;
        }
        let each = method.per_act(Duration::from_millis(3), |times| {
            for _ in 0..times {
                to[..length].copy_from_slice(black_box(&from[..length]));
                black_box(&mut *to);
            }
        });
        let ns = median(&each).unwrap_or(0.0);
        found.point("memcpy_over_size", "memcpy", copied as u64, ns);
    }
}

fn touched(bytes: usize) -> io::Result<Memory> {
    let mut memory = Memory::map(bytes, Pages::Huge)?;
    memory.touch(bytes);
    Ok(memory)
}

/// Memory for each of so many processors at once: `bytes`, but together no more than half of what
/// can be had. Who touches more than its control group may have is killed.
fn share(bytes: usize, available_bytes: u64, cores: usize) -> io::Result<usize> {
    let room = available_bytes / 2 / cores.max(1) as u64;
    let bytes = usize::try_from(room).map_or(bytes, |room| room.min(bytes)) >> 20 << 20;
    if bytes < SHARE_BYTES_MIN {
        return Err(io::Error::other(format!(
            "it needs {} MiB of memory, {} for each processor, and half of {} MiB can be taken \
             here; a higher limit of memory would help, or fewer processors (taskset -c)",
            (SHARE_BYTES_MIN >> 20) * cores,
            SHARE_BYTES_MIN >> 20,
            available_bytes >> 20
        )));
    }
    Ok(bytes)
}

/// Caches would hold less.
const SHARE_BYTES_MIN: usize = 8 << 20;

/// The paper's ways on two processors at once, as it cites them.
fn of_two_cores(method: &Method, found: &mut Found, bytes: usize) {
    let two = method.cores().last_chunk::<2>();
    for way in WAYS_OF_TWO.into_iter().filter(|way| way.is_here()) {
        let id = format!("bandwidth_two_{}", way.name());
        match two {
            Some(two) => {
                found.try_samples(&id, of_all_cores(two, way, bytes, method.time(60)));
            }
            None => found.missing(&id, "it needs two processors; this process may use one"),
        }
    }
}

/// What is measured on two processors.
pub(super) const WAYS_OF_TWO: [Way; 4] = [
    Way::ReadScalar,
    Way::ReadSimd,
    Way::WriteNonTemporal,
    Way::WriteMemset,
];

/// These processors at once, each with memory of its own; one sample.
fn of_all_cores(cores: &[usize], way: Way, bytes: usize, time: Duration) -> io::Result<Vec<f64>> {
    let bytes = share(bytes, available_bytes(), cores.len())?;
    let barrier = Barrier::new(cores.len());
    let each = thread::scope(|scope| {
        let barrier = &barrier;
        let start = |&core| scope.spawn(move || of_core(way, bytes, time, core, barrier));
        let threads: Vec<_> = cores.iter().map(start).collect();
        let failed = |_| Err(io::Error::other("a thread failed"));
        // All are joined, also after one that failed.
        let each = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(failed));
        each.collect::<Vec<_>>()
            .into_iter()
            .collect::<io::Result<Vec<f64>>>()
    })?;
    Ok(vec![six_digits(each.iter().sum())])
}

fn of_core(
    way: Way,
    bytes: usize,
    time: Duration,
    core: usize,
    barrier: &Barrier,
) -> io::Result<f64> {
    let prepared = pin_to(core).and_then(|()| touched(bytes));
    // Reached also by who has failed, or the others would wait for ever.
    barrier.wait();
    let mut memory = prepared?;
    let begin = Instant::now();
    let mut passes = 0;
    while begin.elapsed() < time || passes == 0 {
        black_box(way.go(memory.words_mut(), 7));
        passes += 1;
    }
    let words = memory.words_mut().len();
    Ok(moved_bytes(way, words * 8) * f64::from(passes) / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_share_half_of_what_can_be_had() {
        let mib = |available_mib: u64, cores| {
            let bytes = share(128 << 20, available_mib << 20, cores);
            bytes
                .map(|bytes| bytes >> 20)
                .map_err(|error| error.to_string())
        };
        assert_eq!(mib(1 << 20, 64), Ok(128));
        assert_eq!(mib(16 << 10, 64), Ok(128));
        assert_eq!(mib(4 << 10, 64), Ok(32));
        assert_eq!(mib(300, 1), Ok(128));
        assert_eq!(mib(1 << 10, 64), Ok(8));
        let refused = mib((1 << 10) - 1, 64).unwrap_err();
        assert!(
            refused.contains("512 MiB of memory, 8 for each"),
            "{refused}"
        );
        assert!(refused.contains("half of 1023 MiB"), "{refused}");
        assert_eq!(share(128 << 20, u64::MAX, 2).unwrap(), 128 << 20);
    }
}
