//! How long a load takes, over how much memory it may be from: the staircase of caches, and its
//! steps.

use std::io;
use std::time::{Duration, Instant};

use onrush_lock::memory::available_bytes;
use onrush_primitives::latency::{Chain, LOADS, Order};
use onrush_primitives::map::{Memory, Pages};

use super::Found;
use super::method::{Method, six_digits};
use crate::stats::{median, to_f64};

/// The curve's name, and its lines'.
pub(super) const CURVE: &str = "latency_over_size";
pub(super) const HUGE: &str = "huge pages, random order";
pub(super) const BASE: &str = "4 KB pages, random order";
pub(super) const BY_PAGE: &str = "huge pages, a page at a time";
/// A load from each page, so that addresses are looked up and little is cached.
pub(super) const SPARSE: &str = "4 KB and a line apart, random order, huge pages";
/// The curve with other strides.
pub(super) const STRIDES: &str = "latency_over_stride";

/// Where a plateau ends, and how high it and the next one are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// The largest size that is still on the lower one.
    pub(super) edge_bytes: u64,
    /// Nanoseconds of a load on the lower one.
    pub(super) below_ns: f64,
}

/// The memory that is walked through, once of each kind of page.
#[derive(Debug)]
pub(super) struct Staircase {
    huge: Memory,
    base: Memory,
    bytes_max: usize,
}

impl Staircase {
    /// Takes the memory and touches it.
    pub(super) fn new(method: &Method) -> io::Result<Self> {
        let wanted = method.much(512 << 20, 1 << 30);
        let room = usize::try_from(available_bytes() / 4).unwrap_or(usize::MAX);
        let bytes_max = (wanted.min(room) >> 20 << 20).max(LINE_BYTES << 10);
        let mut huge = Memory::map(bytes_max, Pages::Huge)?;
        let mut base = Memory::map(bytes_max, Pages::Base)?;
        huge.touch(bytes_max);
        base.touch(bytes_max);
        Ok(Self {
            huge,
            base,
            bytes_max,
        })
    }

    /// How much of the memory that is meant to be huge pages is, as a part of one.
    pub(super) fn huge_part(&self) -> f64 {
        let bytes = self.huge.huge_bytes().unwrap_or(0);
        crate::stats::ratio(bytes, self.huge.bytes() as u64)
    }

    /// One pass over all sizes; stops early when its time is over, and says so.
    pub(super) fn pass(&mut self, method: &Method, found: &mut Found) {
        let deadline = Instant::now() + PASS_MAX;
        for bytes in sizes(self.bytes_max) {
            for (name, pages, order) in [
                (HUGE, Pages::Huge, Order::Random),
                (BASE, Pages::Base, Order::Random),
                (BY_PAGE, Pages::Huge, Order::ByPage),
            ] {
                if Instant::now() > deadline {
                    let why = "a pass over all sizes took longer than 5 s and was ended; the \
                               machine is busy";
                    return found.missing(CURVE, why);
                }
                let ns = load_ns(method, self.of(pages), bytes, LINE_BYTES, order);
                found.point(CURVE, name, bytes as u64, ns);
            }
        }
    }

    /// Other distances between loads, as they lie and mixed.
    pub(super) fn strides(&mut self, method: &Method, found: &mut Found) {
        for bytes in sizes(self.bytes_max.min(128 << 20)).filter(|bytes| bytes.is_power_of_two()) {
            let sparse = 4096 + LINE_BYTES;
            let (in_order, mixed) = (Order::Rising, Order::Random);
            for (name, memory, stride, order) in [
                ("16 B apart, in order", Pages::Base, 16, in_order),
                ("64 B apart, in order", Pages::Base, 64, in_order),
                ("256 B apart, in order", Pages::Base, 256, in_order),
                (
                    "4 KB and a line apart, in order",
                    Pages::Base,
                    sparse,
                    in_order,
                ),
                (
                    "4 KB and a line apart, random order",
                    Pages::Base,
                    sparse,
                    mixed,
                ),
                (SPARSE, Pages::Huge, sparse, mixed),
            ] {
                if bytes >= stride {
                    let ns = load_ns(method, self.of(memory), bytes, stride, order);
                    found.point(STRIDES, name, bytes as u64, ns);
                }
            }
        }
    }

    /// Samples of one size, for a row.
    pub(super) fn at(&mut self, method: &Method, pages: Pages, bytes: usize) -> Vec<f64> {
        let bytes = bytes.min(self.bytes_max).max(LINE_BYTES);
        walk(
            method,
            self.of(pages),
            bytes,
            LINE_BYTES,
            Order::Random,
            ROW_TIME,
        )
    }

    fn of(&mut self, pages: Pages) -> &mut Memory {
        match pages {
            Pages::Huge => &mut self.huge,
            Pages::Base => &mut self.base,
        }
    }

    /// The largest size.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

/// Sizes from 4 KB up, four to an octave, from 64 MB on two.
fn sizes(bytes_max: usize) -> impl Iterator<Item = usize> {
    let octaves = (12..usize::BITS - 1).map(|bits| 1_usize << bits);
    let quarters = octaves.flat_map(|octave| (4..8).map(move |quarter| octave / 4 * quarter));
    // Where a point takes long there are fewer.
    let fine = |bytes: usize| bytes <= 64 << 20 || (bytes >> (bytes.ilog2() - 2)).is_multiple_of(2);
    quarters
        .take_while(move |bytes| *bytes <= bytes_max)
        .filter(move |bytes| fine(*bytes))
}

fn load_ns(method: &Method, memory: &mut Memory, bytes: usize, stride: usize, order: Order) -> f64 {
    median(walk(method, memory, bytes, stride, order, POINT_TIME)).unwrap_or(f64::MAX)
}

fn walk(
    method: &Method,
    memory: &mut Memory,
    bytes: usize,
    stride: usize,
    order: Order,
    time: Duration,
) -> Vec<f64> {
    let mut chain = Chain::link(memory, bytes, stride, order);
    // Once round, so that what fits a cache is in it; linking has done that already for a long
    // ring.
    chain.walk((chain.nodes() / LOADS).clamp(1, WARM_TURNS_MAX));
    let turns = method.per_act(time, |turns| {
        chain.walk(usize::try_from(turns).unwrap_or(usize::MAX))
    });
    turns
        .iter()
        .map(|ns| six_digits(ns / to_f64(LOADS)))
        .collect()
}

const LINE_BYTES: usize = 64;
const WARM_TURNS_MAX: usize = 1 << 12;
const POINT_TIME: Duration = Duration::from_millis(2);
const ROW_TIME: Duration = Duration::from_millis(10);
/// Three passes are the staircase: together at most fifteen seconds.
const PASS_MAX: Duration = Duration::from_millis(4800);

/// The steps of caches: those of loads in random order, but for the end of the last cache, which is
/// that of loads a page at a time if they see it later. Looking up addresses only makes loads
/// slower, and so a cache look smaller.
pub(super) fn cache_steps(found: &Found) -> Vec<Step> {
    let mut all = steps(&found.line(CURVE, HUGE));
    let by_page = steps(&found.line(CURVE, BY_PAGE));
    if let (Some(last), Some(other)) = (all.last_mut(), by_page.last()) {
        last.edge_bytes = last.edge_bytes.max(other.edge_bytes);
    }
    all
}

/// Finds the steps of a staircase: sizes and nanoseconds of a load, by rising size.
///
/// The curve of logarithms is cut where the parts are flattest (least squares, exactly, by dynamic
/// programming), with a price for each part. Short parts are the slopes between plateaus. A plateau
/// ends at the last size from which half the rise to the next one, in octaves, is still to come:
/// caches do not forget in strict order, and so rise before they are full.
pub(super) fn steps(line: &[(u64, f64)]) -> Vec<Step> {
    let heights: Vec<f64> = line.iter().map(|(_, ns)| ns.max(1e-3).log2()).collect();
    let plateaus: Vec<Part> = parts(&heights)
        .into_iter()
        .filter(|part| part.end - part.begin >= PLATEAU_POINTS_MIN)
        .collect();
    let mut merged: Vec<Part> = Vec::new();
    for part in plateaus {
        match merged.last_mut() {
            Some(last) if part.height - last.height < STEP_MIN => last.end = part.end,
            _ => merged.push(part),
        }
    }
    let pairs = merged.windows(2);
    pairs
        .map(|pair| {
            let (low, high) = (pair[0].height.exp2(), pair[1].height.exp2());
            let bound = (low * high).sqrt();
            let slope = &line[pair[0].begin..pair[1].end];
            // Two in a row that are beyond: one alone was disturbed.
            let is_beyond = |at: usize| slope[at..].iter().take(2).all(|(_, ns)| *ns > bound);
            let end = (1..slope.len())
                .find(|&at| is_beyond(at))
                .unwrap_or(slope.len());
            let last = slope[..end].iter().rfind(|(_, ns)| *ns <= bound);
            Step {
                edge_bytes: last.map_or(line[pair[0].begin].0, |(bytes, _)| *bytes),
                below_ns: low,
            }
        })
        .collect()
}

/// Points from `begin` to before `end`, and their mean.
#[derive(Clone, Copy, Debug)]
struct Part {
    begin: usize,
    end: usize,
    height: f64,
}

fn parts(heights: &[f64]) -> Vec<Part> {
    let count = heights.len();
    // The cheapest way to cut the first n points, and where its last part begins.
    let mut best = vec![(0.0, 0); count + 1];
    for end in 1..=count {
        let (mut sum, mut squares) = (0.0, 0.0);
        best[end] = (f64::INFINITY, 0);
        for begin in (0..end).rev() {
            sum += heights[begin];
            squares += heights[begin] * heights[begin];
            let error = squares - sum * sum / to_f64(end - begin);
            let cost = best[begin].0 + error + PART_PRICE;
            if cost < best[end].0 {
                best[end] = (cost, begin);
            }
        }
    }
    let mut found = Vec::new();
    let mut end = count;
    while end > 0 {
        let begin = best[end].1;
        let height = heights[begin..end].iter().sum::<f64>() / to_f64(end - begin);
        found.push(Part { begin, end, height });
        end = begin;
    }
    found.reverse();
    found
}

/// What a part more must explain, in squared octaves of latency.
const PART_PRICE: f64 = 0.25;
const PLATEAU_POINTS_MIN: usize = 5;
/// Plateaus that are less than this apart, in octaves, are one.
const STEP_MIN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these caches: a size beyond one misses for all that does not fit.
    fn machine(caches: &[(u64, f64)], memory_ns: f64, noise: f64) -> Vec<(u64, f64)> {
        let mut state = 1_u32;
        let latency = |bytes: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let wobble = 1.0 + noise * (f64::from(state >> 16) / 65_536.0 - 0.5);
            let fits = caches.iter().find(|(cache, _)| bytes as u64 <= *cache);
            (bytes as u64, fits.map_or(memory_ns, |(_, ns)| *ns) * wobble)
        };
        sizes(1 << 30).map(latency).collect()
    }

    #[test]
    fn steps_are_found_where_they_are() {
        for caches in [
            vec![(48 << 10, 0.9), (1 << 20, 3.2), (32 << 20, 11.0)],
            vec![(32 << 10, 1.3), (256 << 10, 3.0), (3 << 20, 10.8)],
            vec![(64 << 10, 1.0), (512 << 10, 4.0)],
        ] {
            for noise in [0.0, 0.2] {
                let found = steps(&machine(&caches, 90.0, noise));
                let edges: Vec<u64> = found.iter().map(|step| step.edge_bytes).collect();
                let expected: Vec<u64> = caches.iter().map(|(bytes, _)| *bytes).collect();
                assert_eq!(edges, expected, "noise {noise}");
            }
        }
    }

    #[test]
    fn a_slope_between_plateaus_is_none() {
        let mut line = machine(&[(48 << 10, 1.0), (8 << 20, 4.0)], 64.0, 0.1);
        for (bytes, ns) in &mut line {
            if (8 << 20..24 << 20).contains(bytes) {
                *ns = 4.0 * (*bytes as f64 / (8 << 20) as f64).powf(2.5);
            }
        }
        let edges: Vec<u64> = steps(&line).iter().map(|step| step.edge_bytes).collect();
        assert_eq!(edges.len(), 2, "{edges:?}");
        assert_eq!(edges[0], 48 << 10);
        assert!((8 << 20..=16 << 20).contains(&edges[1]), "{edges:?}");
    }

    #[test]
    fn a_flat_line_has_no_steps() {
        assert_eq!(steps(&machine(&[], 5.0, 0.2)), []);
        assert_eq!(steps(&[]), []);
    }

    #[test]
    fn sizes_go_up_four_to_an_octave() {
        let found: Vec<usize> = sizes(16 << 10).collect();
        assert_eq!(
            found,
            [4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384]
        );
    }
}
