//! Going through samples in order, without looking each of them up.

use std::ops::Range;

use super::{Sample, Samples, count, first_at};

/// A sample, with how long it lasts in ticks of its track: until the next is decoded.
pub(in crate::media) type Step = (Sample, i64);

impl Samples {
    /// The samples of a range, in the order of decoding; none beyond the last.
    pub(in crate::media) fn walk(&self, range: Range<usize>) -> impl Iterator<Item = Step> + '_ {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        let first = self.get(start);
        let mut place = first.map_or(0, |first| first.offset);
        let mut decoded = first.map_or(0, |first| first.decode_ticks);
        let mut sizes = self.sizes.iter_from(start);
        let mut spreads = self.spreads.iter_from(start);
        let mut compositions = self.compositions.iter_from(start);
        let mut durations = self.durations.iter_from((start + 1).min(self.len()));
        let mut runs = Runs::at(self, start);
        let mut syncs = Syncs::at(self, start);
        (start..end).map(move |at| {
            if at > start
                && let Some(gap) = runs.gap(at)
            {
                place = place.saturating_add_signed(gap);
            }
            let bytes = sizes.next().unwrap_or(0);
            let lasts = durations.next().unwrap_or(self.end_ticks - decoded);
            let sample = Sample {
                offset: place,
                bytes: u32::try_from(bytes).expect("pushed as such"),
                decode_ticks: decoded,
                composition_ticks: compositions.next().unwrap_or(0),
                is_sync: syncs.is(at),
                entry: self.entry(at),
            };
            place += (bytes + spreads.next().unwrap_or(0)).unsigned_abs();
            decoded += lasts;
            (sample, lasts)
        })
    }

    /// Takes the parts of samples in order, from sample `from` on: each call appends what
    /// [`Self::parts`] appends of the next one.
    pub(in crate::media) fn walk_parts(&self, from: usize) -> impl FnMut(&mut Vec<u32>) + '_ {
        let first = usize::try_from(self.part_counts.before(from)).unwrap_or(0);
        let mut counts = self.part_counts.iter_from(from);
        let mut parts = self.parts.iter_from(first);
        move |out| {
            let of_sample = usize::try_from(counts.next().unwrap_or(0)).unwrap_or(0);
            let parts = parts.by_ref().take(of_sample);
            out.extend(parts.map(|part| u32::try_from(part).expect("pushed as such")));
        }
    }
}

/// Where runs of samples end that lie one behind the other.
struct Runs<'a> {
    samples: &'a Samples,
    /// The next run, and its first sample.
    next: usize,
    first: usize,
}

impl<'a> Runs<'a> {
    fn at(samples: &'a Samples, start: usize) -> Self {
        let run = samples.run_samples.find(count(start));
        let mut runs = Self {
            samples,
            next: run,
            first: usize::try_from(samples.run_samples.before(run)).unwrap_or(usize::MAX),
        };
        runs.advance();
        runs
    }

    fn advance(&mut self) {
        let runs = &self.samples.run_samples;
        self.first = match self.next < runs.len() {
            true => self.first + usize::try_from(runs.get(self.next)).unwrap_or(0),
            false => usize::MAX,
        };
        self.next += 1;
    }

    /// How far in front of sample `at` there is something else, if it begins a run.
    fn gap(&mut self, at: usize) -> Option<i64> {
        if at != self.first {
            return None;
        }
        let gap = self.samples.run_gaps.get(self.next);
        self.advance();
        Some(gap)
    }
}

/// Which samples are sync samples.
struct Syncs<'a> {
    samples: &'a Samples,
    /// The number of the next one, and which sample that is.
    number: usize,
    next: usize,
}

impl<'a> Syncs<'a> {
    fn at(samples: &'a Samples, start: usize) -> Self {
        let number = first_at(samples.syncs(), |it| samples.sync(it) >= start);
        let next = match number < samples.syncs() {
            true => samples.sync(number),
            false => usize::MAX,
        };
        Self {
            samples,
            number,
            next,
        }
    }

    fn is(&mut self, at: usize) -> bool {
        if at != self.next {
            return false;
        }
        self.number += 1;
        self.next = match self.number < self.samples.syncs() {
            true => at + usize::try_from(self.samples.sync_steps.get(self.number)).unwrap_or(0),
            false => usize::MAX,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_walk_tells_what_looking_up_tells(
            steps in prop::collection::vec((0..9_u32, 1..500_u32, 0..3_u64, -5..5_i64), 0..700),
            (from, to) in (0..700_usize, 0..720_usize),
            parts in prop::collection::vec(0..4_usize, 0..700),
        ) {
            let (mut samples, mut offset, mut ticks) = (Samples::default(), 40, 0);
            for (at, &(lasts, bytes, gap, composition)) in steps.iter().enumerate() {
                // Now and then it lies in front of the one before.
                offset = match gap {
                    2 => 1000_u64.saturating_sub(offset) + 7,
                    gap => offset + 100 * gap,
                };
                let sample = Sample {
                    offset,
                    bytes,
                    decode_ticks: ticks,
                    composition_ticks: composition,
                    is_sync: composition > 2 || at % 50 == 0,
                    entry: u16::from(at > 300),
                };
                samples.push(sample, lasts).unwrap();
                offset += u64::from(bytes);
                ticks += i64::from(lasts);
            }
            let walked: Vec<_> = samples.walk(from..to).collect();
            let looked_up: Vec<_> = (from..to.min(steps.len()))
                .map(|at| {
                    let sample = samples.get(at).unwrap();
                    (sample, samples.decode_ticks(at + 1) - sample.decode_ticks)
                })
                .collect();
            prop_assert_eq!(walked, looked_up);
            for (at, &parts) in parts.iter().take(steps.len()).enumerate() {
                let parts = (0..parts).map(|it| u32::try_from(at * 7 + it).unwrap());
                samples.push_parts(&parts.collect::<Vec<_>>());
            }
            let mut walk = samples.walk_parts(from);
            let (mut walked, mut looked_up) = (Vec::new(), Vec::new());
            for at in from..to.min(steps.len()) {
                walk(&mut walked);
                samples.parts(at, &mut looked_up);
                prop_assert_eq!(&walked, &looked_up, "{}", at);
            }
        }
    }
}
