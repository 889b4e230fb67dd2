//! Which pages are locked, and how often: an ordered map of intervals with equal counts.
//!
//! The paper's list of locked memory areas as a balanced tree. A call touches the intervals that
//! its range meets and no others: O(log n + touched). An interval is cut where a range begins or
//! ends inside it, and joined with its neighbour again as soon as both have the same counts; so
//! there are never more intervals than twice the handles that are out, whatever happened before.
//! `docs/locking.md` has the measurement that decided for joining, which the paper left open.
//!
//! Nothing here knows an address, a byte or the kernel: numbers of pages in, numbers of pages out.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Kind;

/// How many handles hold each page of an interval, by kind.
///
/// ```
/// use onrush_lock::{Counts, Kind, Manager, pages_around};
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// let buffer = vec![0u8; 8192];
/// let manager = Manager::of_process();
/// let _resident = manager.lock(pages_around(&buffer), Kind::Resident)?;
/// let _pinned = manager.lock(pages_around(&buffer), Kind::Pinned)?;
/// let counts = Counts { resident: 1, on_fault: 0, pinned: 1 };
/// assert_eq!(manager.areas()[0].counts, counts);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Handles of [`Kind::Resident`].
    pub resident: u32,
    /// Handles of [`Kind::OnFault`].
    pub on_fault: u32,
    /// Handles of [`Kind::Pinned`].
    pub pinned: u32,
}

/// What `mlock2` is to do for an interval with such counts, the least first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Residency {
    Unlocked,
    OnFault,
    Resident,
}

/// The intervals of one process, in numbers of pages. `MERGE` is off only where its worth is
/// measured.
#[derive(Debug, Default)]
pub(super) struct Intervals<const MERGE: bool = true> {
    /// By first page. No two overlap, none is empty, and the counts of none are all zero.
    map: BTreeMap<usize, Interval>,
    /// The interval of the last lock, if it meets and touches none of the map. Most locks are given
    /// back before the next is taken: they never see the map, which would be half of the manager's
    /// time.
    youngest: Option<(usize, Interval)>,
    resident_pages: usize,
    pinned_pages: usize,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    end: usize,
    counts: Counts,
}

impl<const MERGE: bool> Intervals<MERGE> {
    /// Counts one more handle of `kind` on every page of `pages`.
    pub(super) fn add(&mut self, pages: Range<usize>, kind: Kind) {
        self.settle();
        if self.is_alone(&pages) {
            let mut counts = Counts::default();
            *counts.of(kind) = 1;
            self.count_pages(Counts::default(), counts, pages.len());
            let end = pages.end;
            self.youngest = Some((pages.start, Interval { end, counts }));
            return;
        }
        self.change(&pages, |counts| *counts.of(kind) += 1);
    }

    /// Counts one handle less. The pages must have been added with the same kind.
    pub(super) fn remove(&mut self, pages: Range<usize>, kind: Kind) {
        let pages = planted(pages);
        if self.remove_youngest(&pages, kind) {
            return;
        }
        self.settle();
        self.change(&pages, |counts| {
            assert!(
                *counts.of(kind) > 0,
                "a handle's pages are counted as long as it lives"
            );
            *counts.of(kind) -= 1;
        });
    }

    /// All intervals, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<usize>, Counts)> + '_ {
        let youngest = self
            .youngest
            .as_ref()
            .map(|(start, interval)| (start, interval));
        let at = youngest.map_or(0, |(&start, _)| start);
        let (before, after) = (self.map.range(..at), self.map.range(at..));
        let all = before.chain(youngest).chain(after);
        all.map(|(&start, i)| (start..i.end, i.counts))
    }

    /// The parts of `pages` with what each is to be, gaps included, in order; neighbours differ.
    pub(super) fn residency(&mut self, pages: Range<usize>) -> Vec<(Range<usize>, Residency)> {
        self.settle();
        let mut runs: Vec<(Range<usize>, Residency)> = Vec::new();
        let mut push = |part: Range<usize>, is: Residency| match runs.last_mut() {
            Some((run, same)) if *same == is => run.end = part.end,
            _ if part.is_empty() => {}
            _ => runs.push((part, is)),
        };
        let mut at = pages.start;
        let first = self
            .map
            .range(..=at)
            .next_back()
            .map_or(at, |(&start, _)| start);
        for (&start, interval) in self.map.range(first..pages.end) {
            let (start, end) = (start.max(at), interval.end.min(pages.end));
            if start < end {
                push(at..start, Residency::Unlocked);
                push(start..end, interval.counts.residency());
                at = end;
            }
        }
        push(at..pages.end, Residency::Unlocked);
        runs
    }

    /// Pages that a handle of any resident kind holds.
    pub(super) fn resident_pages(&self) -> usize {
        self.resident_pages
    }

    /// Pages that a pinned handle holds.
    pub(super) fn pinned_pages(&self) -> usize {
        self.pinned_pages
    }

    /// Whether no interval of the map meets or touches `pages`.
    fn is_alone(&self, pages: &Range<usize>) -> bool {
        let last = self.map.range(..=pages.end).next_back();
        last.is_none_or(|(_, interval)| interval.end < pages.start)
    }

    /// If the youngest interval is exactly `pages`, held once in this way, it ends.
    fn remove_youngest(&mut self, pages: &Range<usize>, kind: Kind) -> bool {
        let mut counts = Counts::default();
        *counts.of(kind) = 1;
        let is_it = self.youngest.is_some_and(|(start, interval)| {
            (start, interval.end, interval.counts) == (pages.start, pages.end, counts)
        });
        if is_it {
            self.youngest = None;
            self.count_pages(counts, Counts::default(), pages.len());
        }
        is_it
    }

    /// Puts the youngest interval into the map.
    fn settle(&mut self) {
        if let Some((start, interval)) = self.youngest.take() {
            self.map.insert(start, interval);
        }
    }

    /// Changes the counts of `pages`, of gaps from zero.
    fn change(&mut self, pages: &Range<usize>, change: impl Fn(&mut Counts)) {
        if self.change_within_one(pages, &change) {
            return;
        }
        self.cut(pages.start);
        self.cut(pages.end);
        let mut at = pages.start;
        while at < pages.end {
            let next = self.map.range_mut(at..pages.end).next();
            let (end, before, after) = match next {
                Some((&start, Interval { end, counts })) if start == at => {
                    let before = *counts;
                    change(counts);
                    (*end, before, *counts)
                }
                gap_end => {
                    let end = gap_end.map_or(pages.end, |(&start, _)| start);
                    let mut counts = Counts::default();
                    change(&mut counts);
                    self.map.insert(at, Interval { end, counts });
                    (end, Counts::default(), counts)
                }
            };
            if after == Counts::default() {
                self.map.remove(&at);
            }
            self.count_pages(before, after, end - at);
            at = end;
        }
        self.join(pages.start);
        self.join(pages.end);
    }

    /// Changes the counts of `pages` if they lie in one interval, the other common case. False if
    /// they do not.
    fn change_within_one(&mut self, pages: &Range<usize>, change: impl Fn(&mut Counts)) -> bool {
        let Some((&start, interval)) = self.map.range_mut(..pages.end).next_back() else {
            return false;
        };
        let Interval {
            end,
            counts: before,
        } = *interval;
        if start > pages.start || end < pages.end {
            return false;
        }
        let mut after = before;
        change(&mut after);
        let is_left = after != Counts::default();
        let changed = Interval {
            end: pages.end,
            counts: after,
        };
        if start < pages.start {
            interval.end = pages.start;
            if is_left {
                self.map.insert(pages.start, changed);
            }
        } else if is_left {
            *interval = changed;
        } else {
            self.map.remove(&start);
        }
        if end > pages.end {
            let rest = Interval {
                end,
                counts: before,
            };
            self.map.insert(pages.end, rest);
        }
        self.count_pages(before, after, pages.len());
        // What was cut off differs from what was changed: only old neighbours can have become
        // equal.
        if is_left && start == pages.start {
            self.join(pages.start);
        }
        if is_left && end == pages.end {
            self.join(pages.end);
        }
        true
    }

    fn count_pages(&mut self, before: Counts, after: Counts, pages: usize) {
        self.resident_pages += after.grown(before, Counts::is_resident) * pages;
        self.resident_pages -= before.grown(after, Counts::is_resident) * pages;
        self.pinned_pages += after.grown(before, Counts::is_pinned) * pages;
        self.pinned_pages -= before.grown(after, Counts::is_pinned) * pages;
    }

    /// Makes `page` the beginning of an interval if it lies inside one.
    fn cut(&mut self, page: usize) {
        if let Some((_, left)) = self.map.range_mut(..page).next_back()
            && left.end > page
        {
            let right = *left;
            left.end = page;
            self.map.insert(page, right);
        }
    }

    /// Joins the intervals that meet at `page` if their counts are equal. Only the ends of a
    /// changed range can need it: inside, neighbours that differed still do.
    fn join(&mut self, page: usize) {
        if !MERGE {
            return;
        }
        let mut back = self.map.range_mut(..=page);
        let (Some((&start, &mut right)), Some((_, left))) = (back.next_back(), back.next_back())
        else {
            return;
        };
        if start == page && left.end == page && left.counts == right.counts {
            left.end = right.end;
            self.map.remove(&page);
        }
    }
}

impl Counts {
    fn of(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Resident => &mut self.resident,
            Kind::OnFault => &mut self.on_fault,
            Kind::Pinned => &mut self.pinned,
        }
    }

    fn is_resident(self) -> bool {
        self.resident > 0 || self.on_fault > 0
    }

    fn is_pinned(self) -> bool {
        self.pinned > 0
    }

    fn residency(self) -> Residency {
        match self {
            Self { resident: 1.., .. } => Residency::Resident,
            Self { on_fault: 1.., .. } => Residency::OnFault,
            _ => Residency::Unlocked,
        }
    }

    /// 1 if this has the property and `other` has not.
    fn grown(self, other: Self, has: fn(Self) -> bool) -> usize {
        usize::from(has(self) && !has(other))
    }
}

#[cfg(not(test))]
fn planted(pages: Range<usize>) -> Range<usize> {
    pages
}

/// In a test that asks for it, forgets the last page of a range: the model must notice.
#[cfg(test)]
fn planted(pages: Range<usize>) -> Range<usize> {
    if tests::OFF_BY_ONE.get() && pages.len() > 1 {
        pages.start..pages.end - 1
    } else {
        pages
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        pub(super) static OFF_BY_ONE: Cell<bool> = const { Cell::new(false) };
    }

    const KINDS: [Kind; 3] = [Kind::Resident, Kind::OnFault, Kind::Pinned];
    const PAGES: usize = 96;

    /// Intervals beside a count for every page, and the handles that are out.
    struct Pair {
        intervals: Intervals,
        pages: Vec<Counts>,
        out: Vec<(Range<usize>, Kind)>,
    }

    impl Pair {
        fn new() -> Self {
            Self {
                intervals: Intervals::default(),
                pages: vec![Counts::default(); PAGES],
                out: Vec::new(),
            }
        }

        fn lock(&mut self, pages: Range<usize>, kind: Kind) {
            self.intervals.add(pages.clone(), kind);
            for page in pages.clone() {
                *self.pages[page].of(kind) += 1;
            }
            self.out.push((pages, kind));
        }

        fn unlock(&mut self, at: usize) {
            let at = at % self.out.len();
            let (pages, kind) = self.out.swap_remove(at);
            self.intervals.remove(pages.clone(), kind);
            for page in pages {
                *self.pages[page].of(kind) -= 1;
            }
        }

        /// The first difference between the two, or a broken promise about the intervals' form.
        fn difference(&self) -> Option<String> {
            let mut expanded = vec![Counts::default(); PAGES];
            let mut last: Option<(Range<usize>, Counts)> = None;
            for (pages, counts) in self.intervals.iter() {
                if pages.is_empty() || counts == Counts::default() {
                    return Some(format!("{pages:?} is no interval: {counts:?}"));
                }
                if let Some((before, same)) = last
                    && (before.end > pages.start || (before.end == pages.start && same == counts))
                {
                    return Some(format!("{before:?} and {pages:?} overlap or are one"));
                }
                expanded[pages.clone()].fill(counts);
                last = Some((pages, counts));
            }
            if let Some(page) = (0..PAGES).find(|&p| expanded[p] != self.pages[p]) {
                let (is, should) = (expanded[page], self.pages[page]);
                return Some(format!("page {page} has {is:?} instead of {should:?}"));
            }
            let count = |has: fn(Counts) -> bool| self.pages.iter().filter(|c| has(**c)).count();
            let totals = (count(Counts::is_resident), count(Counts::is_pinned));
            if totals != (self.intervals.resident_pages, self.intervals.pinned_pages) {
                return Some(format!("the totals are not {totals:?}"));
            }
            if self.intervals.iter().count() > 2 * self.out.len() {
                return Some("more intervals than ends of handles".to_owned());
            }
            None
        }

        fn residency_difference(&mut self, pages: Range<usize>) -> Option<String> {
            let runs = self.intervals.residency(pages.clone());
            let paged: Vec<Residency> = runs
                .iter()
                .flat_map(|(run, is)| run.clone().map(|_| *is))
                .collect();
            let should: Vec<Residency> = self.pages[pages].iter().map(|c| c.residency()).collect();
            let normal = runs.windows(2).all(|w| w[0].1 != w[1].1);
            (paged != should || !normal).then(|| format!("{runs:?} for {should:?}"))
        }
    }

    /// Every way in which a new range can lie to an interval: the paper's five intersections (it
    /// reaches over the beginning, over the end, lies within, covers, is equal), with and without
    /// common ends, and the ways that do not intersect.
    fn relations(to: &Range<usize>) -> Vec<Range<usize>> {
        let points = [
            to.start - 8,
            to.start - 1,
            to.start,
            to.start + 1,
            (to.start + to.end) / 2,
            to.end - 1,
            to.end,
            to.end + 1,
            to.end + 8,
        ];
        let pairs = points
            .iter()
            .flat_map(|&a| points.iter().map(move |&b| a..b));
        pairs.filter(|r| !r.is_empty()).collect()
    }

    #[test]
    fn every_intersection_counts_as_the_model_does() {
        let old = 40..56;
        let mut seen = 0;
        for new in relations(&old) {
            for third in relations(&old) {
                for order in [[0, 0, 0], [2, 1, 0], [1, 1, 0]] {
                    let mut pair = Pair::new();
                    for pages in [&old, &new, &third] {
                        pair.lock(pages.clone(), Kind::Resident);
                        assert_eq!(pair.difference(), None, "{old:?} {new:?} {third:?}");
                    }
                    for at in order {
                        pair.unlock(at);
                        assert_eq!(
                            pair.difference(),
                            None,
                            "{old:?} {new:?} {third:?} {order:?}"
                        );
                    }
                    assert_eq!(pair.intervals.iter().next(), None);
                    seen += 1;
                }
            }
        }
        assert!(seen > 3000, "{seen} sequences");
    }

    /// Runs `steps` random operations on the pair and returns the first difference.
    fn wander(seed: u64, steps: usize) -> Option<String> {
        let mut pair = Pair::new();
        let mut random = Random(seed);
        for step in 0..steps {
            if pair.out.is_empty() || (pair.out.len() < 24 && random.below(2) == 0) {
                let start = random.below(PAGES);
                let end = start + 1 + random.below(PAGES - start);
                pair.lock(start..end, KINDS[random.below(3)]);
            } else {
                pair.unlock(random.below(64));
            }
            let start = random.below(PAGES);
            let part = start..start + random.below(PAGES - start);
            let difference = pair
                .difference()
                .or_else(|| pair.residency_difference(part));
            if let Some(difference) = difference {
                return Some(format!("seed {seed}, step {step}: {difference}"));
            }
        }
        None
    }

    #[test]
    fn a_hundred_thousand_random_operations_agree_with_the_model() {
        assert_eq!(wander(3, 100_000), None);
    }

    #[test]
    fn the_model_notices_an_off_by_one_page() {
        OFF_BY_ONE.set(true);
        let found = wander(3, 100);
        OFF_BY_ONE.set(false);
        let found = found.expect("a forgotten page is a difference");
        assert!(found.contains("page"), "{found}");
    }

    proptest! {
        #[test]
        fn any_sequence_agrees_with_the_model(
            steps in prop::collection::vec((any::<bool>(), 0..PAGES, 0..PAGES, 0..3usize), 1..60)
        ) {
            let mut pair = Pair::new();
            for (lock, a, b, kind) in steps {
                if lock || pair.out.is_empty() {
                    pair.lock(a.min(b)..a.max(b) + 1, KINDS[kind]);
                } else {
                    pair.unlock(a);
                }
                prop_assert_eq!(pair.difference(), None);
            }
        }
    }

    /// What decided for joining. For the times in docs/locking.md:
    /// `ONRUSH_JOINING_STEPS=1000000 cargo test --release -p onrush-sys -- --nocapture joined`
    #[test]
    #[allow(clippy::print_stdout, reason = "its times are for people")]
    fn only_joined_intervals_become_few_again() {
        let steps = std::env::var("ONRUSH_JOINING_STEPS").map_or(20_000, |n| n.parse().unwrap());
        let sizes = if steps > 100_000 {
            &[100, 10_000, 100_000][..]
        } else {
            &[100, 10_000]
        };
        for &areas in sizes {
            let joined = churn::<true>(areas, steps);
            let unjoined = churn::<false>(areas, steps);
            println!(
                "{areas:>7} areas: joined {joined:?}, not joined {unjoined:?} (ns/pair, intervals)"
            );
            assert!(joined.1 <= 2 * areas + 1 && joined.1 < unjoined.1);
            assert!(joined.2 == 1 && unjoined.2 > areas);
        }
    }

    /// One long-lived lock over everything, `areas` short ones held at a time; afterwards only the
    /// first.
    fn churn<const MERGE: bool>(areas: usize, steps: usize) -> (u128, usize, usize) {
        let mut intervals = Intervals::<MERGE>::default();
        let span = areas * 16;
        intervals.add(0..span, Kind::Resident);
        let mut random = Random(7);
        let mut range = || {
            let start = random.below(span - 16);
            start..start + 1 + random.below(16)
        };
        let mut out: Vec<_> = (0..areas).map(|_| range()).collect();
        for pages in &out {
            intervals.add(pages.clone(), Kind::Resident);
        }
        let started = std::time::Instant::now();
        for step in 0..steps {
            let slot = step % areas;
            intervals.remove(out[slot].clone(), Kind::Resident);
            out[slot] = range();
            intervals.add(out[slot].clone(), Kind::Resident);
        }
        let pair_ns = started.elapsed().as_nanos() / steps as u128;
        let busy = intervals.iter().count();
        for pages in out {
            intervals.remove(pages, Kind::Resident);
        }
        (pair_ns, busy, intervals.iter().count())
    }

    /// xorshift64*: reproducible, and good enough to pick ranges.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
            usize::try_from(high).expect("31 bits") % limit
        }
    }
}
