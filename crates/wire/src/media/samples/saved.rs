//! Whether a table of samples that was saved is one: all that [`Samples::push`] asks of samples.
//!
//! Its columns have [looked after themselves](super::column::saved) by then.

use super::column::Column;
use super::{PLACE_MAX, SAMPLES_MAX, SPREAD_BYTES_MAX, Samples, count};
use crate::media::packetizer::{PARTS_MAX, SAMPLE_BYTES_MAX};

type Check = fn(&Samples) -> bool;

impl Samples {
    /// What is wrong with a table that was read back; `None` if it could have been filled by
    /// [`Self::push`] and [`Self::push_parts`].
    pub(in crate::media) fn fault(&self) -> Option<&'static str> {
        // In this order: those that follow reckon with what those before have said.
        let checks: [(Check, &str); 6] = [
            (Self::has_sizes, "sizes of samples"),
            (Self::has_times_in_order, "times of samples"),
            (Self::lies_in_a_file, "places of samples"),
            (Self::has_syncs_in_order, "sync samples"),
            (Self::has_entries_in_order, "sample entries"),
            (Self::has_whole_parts, "parts of samples"),
        ];
        let mut checks = checks.into_iter();
        checks.find(|(holds, _)| !holds(self)).map(|(_, what)| what)
    }

    fn has_sizes(&self) -> bool {
        self.len() <= SAMPLES_MAX && within(&self.sizes, 1, SAMPLE_BYTES_MAX.into())
    }

    fn has_times_in_order(&self) -> bool {
        let counts = [&self.durations, &self.compositions].map(Column::len);
        let limit = i64::try_from(PLACE_MAX).unwrap_or(i64::MAX);
        let first = self.durations.iter_from(0).next().unwrap_or(0);
        let last_ticks = self.last_decode_ticks();
        let lasts = self.end_ticks.checked_sub(last_ticks);
        counts == [self.len(); 2]
            && self.durations.iter_from(1).all(|it| it >= 0)
            && within(&self.compositions, -limit, limit)
            && first >= -limit
            && last_ticks <= limit
            && lasts.is_some_and(|it| u32::try_from(it).is_ok())
    }

    /// Whether its runs have all samples, and lie where a file can have them.
    fn lies_in_a_file(&self) -> bool {
        if self.len() == 0 {
            return *self == Self::default();
        }
        let reaches = self.sizes.iter_from(0).zip(self.spreads.iter_from(0));
        let mut reaches = reaches.map(|(bytes, spread)| bytes + spread);
        if self.spreads.len() != self.len()
            || !reaches.all(|it| (1..=SPREAD_BYTES_MAX.into()).contains(&it))
        {
            return false;
        }
        let in_runs = usize::try_from(self.run_samples.sum()).unwrap_or(usize::MAX);
        let is_each_one = self.run_samples.iter_from(0).all(|it| it > 0);
        if !is_each_one || in_runs >= self.len() || self.open_run != in_runs {
            return false;
        }
        if self.run_gaps.len() != self.run_samples.len() + 1 {
            return false;
        }
        let (mut first, mut offset) = (0, 0_i64);
        for (run, gap) in self.run_gaps.iter_from(0).enumerate() {
            let end = match run < self.run_samples.len() {
                true => first + usize::try_from(self.run_samples.get(run)).unwrap_or(0),
                false => self.len(),
            };
            // A place is below 2^47, and so are gaps; 2^24 samples reach over less than 2^50 bytes.
            offset += gap;
            let before_last = self.file_bytes_before(end - 1) - self.file_bytes_before(first);
            if offset < 0 || (offset + before_last).unsigned_abs() > PLACE_MAX {
                return false;
            }
            offset += self.file_bytes_before(end) - self.file_bytes_before(first);
            first = end;
        }
        u64::try_from(offset) == Ok(self.end_offset)
    }

    /// Whether each sample lies in the file in one piece.
    pub(in crate::media) fn lie_in_one_piece(&self) -> bool {
        within(&self.spreads, 0, 0)
    }

    fn has_syncs_in_order(&self) -> bool {
        let mut steps = self.sync_steps.iter_from(0);
        let is_any = steps.next().is_none_or(|first| first >= 0);
        let last = usize::try_from(self.sync_steps.sum());
        let is_sample = self.sync_steps.len() == 0 || last.is_ok_and(|last| last < self.len());
        is_any && steps.all(|step| step > 0) && is_sample
    }

    fn has_entries_in_order(&self) -> bool {
        let last = self.entries.last().map(|&(first, _)| first);
        self.entries.is_sorted_by(|one, next| one.0 < next.0)
            && last.is_none_or(|last| last < self.len())
    }

    fn has_whole_parts(&self) -> bool {
        let counted = usize::try_from(self.part_counts.sum()).unwrap_or(usize::MAX);
        self.check_parts(0).is_ok()
            && self.part_counts.len() <= self.len()
            && within(&self.part_counts, 0, count(PARTS_MAX))
            && counted == self.parts.len()
            && within(&self.parts, 0, u32::MAX.into())
    }
}

/// Whether all numbers are between these two, both included.
fn within(column: &Column, least: i64, most: i64) -> bool {
    column.iter_from(0).all(|it| (least..=most).contains(&it))
}
