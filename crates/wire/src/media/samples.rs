//! The samples of a track: where each lies in the file, when it is decoded and shown, and where
//! packets may be cut inside of it; in a few bytes a sample.
//!
//! Containers fill it in the order of decoding, as they read their tables; what is in one never
//! changes, so that packets made of it keep their numbers. Parts of samples may follow later, as
//! the samples themselves are read.

pub(in crate::media) mod column;
mod saved;
mod walk;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::packetizer::{CodecError, PARTS_MAX, SAMPLE_BYTES_MAX, TRACK_PARTS_MAX};
use column::{Column, VALUE_MAX};

/// Samples of all tracks of a file at the most: two days of pictures and sound.
pub(in crate::media) const SAMPLES_MAX: usize = 1 << 24;

/// Bytes of the file that a sample may reach over, with what is not its own in between: it is read
/// whole to make packets of it.
pub(in crate::media) const SPREAD_BYTES_MAX: u32 = 32 << 20;
/// Places in files, and times in ticks, are at most this.
const PLACE_MAX: u64 = VALUE_MAX.unsigned_abs() / 2;
/// So many are compared with what was put in, where that is asserted.
const CHECKED_MAX: usize = 1 << 16;

/// One sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct Sample {
    /// Where in the file it begins.
    pub(in crate::media) offset: u64,
    /// Its bytes in the file.
    pub(in crate::media) bytes: u32,
    /// When it is decoded, in ticks of the track.
    pub(in crate::media) decode_ticks: i64,
    /// How much later it is shown; negative is earlier.
    pub(in crate::media) composition_ticks: i64,
    /// Whether a decoder can start here.
    pub(in crate::media) is_sync: bool,
    /// The number of its sample entry, from 0 on.
    pub(in crate::media) entry: u16,
}

/// Why a sample cannot be taken into a table.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub(in crate::media) enum SampleError {
    /// There are too many.
    #[error("more than {SAMPLES_MAX} samples")]
    Count,
    /// It, or a part of it, is too large.
    #[error("sample {number}: {reason}")]
    Codec {
        /// Its number in its track, from 0 on.
        number: u64,
        /// What is wrong with it.
        reason: CodecError,
    },
    /// It lies, or is due, beyond what any file has.
    #[error("sample {number}: {what} {value} is beyond all bounds")]
    Value {
        /// Its number in its track, from 0 on.
        number: u64,
        /// What is.
        what: &'static str,
        /// The number.
        value: i128,
    },
    /// It is to be decoded before the one in front of it.
    #[error("sample {number} is to be decoded {ticks} ticks before the one in front of it")]
    Backwards {
        /// Its number in its track, from 0 on.
        number: u64,
        /// By so much.
        ticks: i64,
    },
}

/// The samples of a track, in the order of decoding.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) struct Samples {
    sizes: Column,
    /// How many bytes of the file more than its own each reaches over, from its first to its last;
    /// negative is fewer. All are 0 where samples lie in one piece.
    spreads: Column,
    /// Runs of samples that lie one behind the other: how many samples each has, and how far in the
    /// file it begins behind the end of the run before.
    run_samples: Column,
    run_gaps: Column,
    /// Of the run that is still becoming longer: its first sample.
    open_run: usize,
    /// From the one before to each.
    durations: Column,
    compositions: Column,
    /// From the sync sample before to each.
    sync_steps: Column,
    /// The samples at which the entry changes, and what to.
    entries: Vec<(usize, u16)>,
    /// How many parts each sample has for which they are known; 0 if it is the usual one.
    part_counts: Column,
    parts: Column,
    /// When the last sample ends.
    end_ticks: i64,
    /// Where the last sample ends.
    end_offset: u64,
}

impl Samples {
    /// How many there are.
    pub(in crate::media) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes of all.
    pub(in crate::media) fn bytes(&self) -> u64 {
        self.sizes.sum().unsigned_abs()
    }

    /// When the last one ends, in ticks of the track.
    pub(in crate::media) fn end_ticks(&self) -> i64 {
        self.end_ticks
    }

    /// Bytes of memory that it takes, about.
    #[cfg(test)]
    pub(in crate::media) fn memory_bytes(&self) -> usize {
        let columns = [
            &self.sizes,
            &self.spreads,
            &self.run_samples,
            &self.run_gaps,
            &self.durations,
            &self.compositions,
            &self.sync_steps,
            &self.part_counts,
            &self.parts,
        ];
        columns.map(Column::memory_bytes).iter().sum()
    }

    /// Appends a sample that lasts for `duration_ticks`, as far as is known.
    ///
    /// # Errors
    ///
    /// If it cannot be served. What there is stays as it is.
    pub(in crate::media) fn push(
        &mut self,
        sample: Sample,
        duration_ticks: u32,
    ) -> Result<(), SampleError> {
        self.push_spread(sample, duration_ticks, sample.bytes)
    }

    /// The same of a sample that is made of what lies in `file_bytes` of the file, with other bytes
    /// in between.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    pub(in crate::media) fn push_spread(
        &mut self,
        sample: Sample,
        duration_ticks: u32,
        file_bytes: u32,
    ) -> Result<(), SampleError> {
        let at = self.len();
        self.check(&sample)?;
        if file_bytes == 0 || file_bytes > SPREAD_BYTES_MAX {
            let (what, value) = ("its spread", file_bytes.into());
            return Err(SampleError::Value {
                number: at as u64,
                what,
                value,
            });
        }
        let duration = sample.decode_ticks - self.last_decode_ticks();
        if self.end_offset != sample.offset || at == 0 {
            if at > 0 {
                self.run_samples.push(count(at - self.open_run));
            }
            self.open_run = at;
            let gap = i128::from(sample.offset) - i128::from(self.end_offset);
            self.run_gaps.push(i64::try_from(gap).unwrap_or(VALUE_MAX));
        }
        if sample.is_sync {
            let last = self.sync_steps.sum();
            self.sync_steps.push(count(at) - last);
        }
        if self.entries.last().map_or(0, |&(_, entry)| entry) != sample.entry {
            self.entries.push((at, sample.entry));
        }
        self.sizes.push(sample.bytes.into());
        self.spreads
            .push(i64::from(file_bytes) - i64::from(sample.bytes));
        self.durations.push(duration);
        self.compositions.push(sample.composition_ticks);
        self.end_ticks = sample.decode_ticks + i64::from(duration_ticks);
        self.end_offset = sample.offset + u64::from(file_bytes);
        // Of all samples of a file that lies it would take minutes.
        debug_assert!(at >= CHECKED_MAX || self.get(at) == Some(sample));
        Ok(())
    }

    fn check(&self, sample: &Sample) -> Result<(), SampleError> {
        let number = self.len() as u64;
        let beyond = |what, value: i128| SampleError::Value {
            number,
            what,
            value,
        };
        if self.len() >= SAMPLES_MAX {
            return Err(SampleError::Count);
        }
        if sample.bytes > SAMPLE_BYTES_MAX || sample.bytes == 0 {
            let bytes = sample.bytes.into();
            let reason = CodecError::Sample { bytes };
            return Err(SampleError::Codec { number, reason });
        }
        let limit = PLACE_MAX;
        if sample.offset > limit {
            return Err(beyond("its place", sample.offset.into()));
        }
        if sample.decode_ticks.unsigned_abs() > limit {
            return Err(beyond("its time", sample.decode_ticks.into()));
        }
        if sample.composition_ticks.unsigned_abs() > limit {
            return Err(beyond(
                "its composition offset",
                sample.composition_ticks.into(),
            ));
        }
        let last = self.last_decode_ticks();
        if self.len() > 0 && sample.decode_ticks < last {
            let ticks = last - sample.decode_ticks;
            return Err(SampleError::Backwards { number, ticks });
        }
        Ok(())
    }

    /// When the last sample is decoded; 0 before the first.
    pub(in crate::media) fn last_decode_ticks(&self) -> i64 {
        self.durations.sum()
    }

    /// Sample number `at`, if there are so many.
    pub(in crate::media) fn get(&self, at: usize) -> Option<Sample> {
        if at >= self.len() {
            return None;
        }
        let run = self.run_samples.find(count(at));
        let gaps = self.run_gaps.before(run + 1);
        let offset = self.file_bytes_before(at) + gaps;
        Some(Sample {
            offset: offset.unsigned_abs(),
            bytes: self.size(at),
            decode_ticks: self.decode_ticks(at),
            composition_ticks: self.compositions.get(at),
            is_sync: self.is_sync(at),
            entry: self.entry(at),
        })
    }

    /// Bytes of the file that the first `count` samples reach over, each for itself.
    fn file_bytes_before(&self, count: usize) -> i64 {
        self.sizes.before(count) + self.spreads.before(count)
    }

    /// The part of the file that sample `at` reaches over, if there are so many.
    pub(in crate::media) fn file_part(&self, at: usize) -> Option<Range<u64>> {
        let sample = self.get(at)?;
        let bytes = i64::from(sample.bytes) + self.spreads.get(at);
        Some(sample.offset..sample.offset + bytes.unsigned_abs())
    }

    /// Bytes of sample `at`, which there is.
    pub(in crate::media) fn size(&self, at: usize) -> u32 {
        u32::try_from(self.sizes.get(at)).expect("pushed as such")
    }

    /// When sample `at` is decoded; of one that there is not, when the last ends.
    pub(in crate::media) fn decode_ticks(&self, at: usize) -> i64 {
        match at < self.len() {
            true => self.durations.before(at + 1),
            false => self.end_ticks,
        }
    }

    /// When sample `at`, which there is, is shown.
    pub(in crate::media) fn shown_ticks(&self, at: usize) -> i64 {
        self.decode_ticks(at) + self.compositions.get(at)
    }

    /// When each sample is decoded, and its bytes, in order.
    pub(in crate::media) fn times_and_bytes(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let times = self.durations.iter_from(0).scan(0, |ticks, duration| {
            *ticks += duration;
            Some(*ticks)
        });
        let bytes = self.sizes.iter_from(0).map(i64::unsigned_abs);
        times.zip(bytes)
    }

    /// How many ticks lie between one sample and the next, if that are as many for all that are
    /// decoded, and for all that are shown. `None` of fewer than two.
    pub(in crate::media) fn period(&self) -> Option<u32> {
        let mut durations = self.durations.iter_from(1);
        let period = durations.next().filter(|&period| period > 0)?;
        let first = self.compositions.get(0);
        let mut compositions = self.compositions.iter_from(1);
        let is_constant = durations.all(|duration| duration == period)
            && compositions.all(|later| (later - first) % period == 0);
        u32::try_from(period).ok().filter(|_| is_constant)
    }

    /// When each sync sample is decoded, in order.
    pub(in crate::media) fn sync_times(&self) -> impl Iterator<Item = i64> + '_ {
        let mut times = self.times_and_bytes();
        let mut before = -1;
        self.sync_steps.iter_from(0).scan(0, move |at, step| {
            *at += step;
            let skipped = usize::try_from(*at - before - 1).unwrap_or(0);
            before = *at;
            times.nth(skipped).map(|(ticks, _)| ticks)
        })
    }

    /// The first sample that is decoded at `ticks` or later.
    pub(in crate::media) fn at_decode_ticks(&self, ticks: i64) -> usize {
        // The first is decoded at the first duration, whatever that is; from there on they ascend.
        match ticks <= self.decode_ticks(0) {
            true => 0,
            false => first_at(self.len(), |at| self.decode_ticks(at) >= ticks),
        }
    }

    /// Whether a decoder can start at sample `at`.
    pub(in crate::media) fn is_sync(&self, at: usize) -> bool {
        let number = first_at(self.sync_steps.len(), |it| self.sync(it) >= at);
        number < self.sync_steps.len() && self.sync(number) == at
    }

    /// How many sync samples there are.
    pub(in crate::media) fn syncs(&self) -> usize {
        self.sync_steps.len()
    }

    /// The sample that is sync sample number `number`, which there is.
    pub(in crate::media) fn sync(&self, number: usize) -> usize {
        usize::try_from(self.sync_steps.before(number + 1)).expect("pushed as such")
    }

    /// The last sync sample that is shown at `ticks` or before; the first sample if there is none.
    pub(in crate::media) fn sync_shown_at(&self, ticks: i64) -> usize {
        let after = first_at(self.syncs(), |it| self.shown_ticks(self.sync(it)) > ticks);
        match after.checked_sub(1) {
            Some(number) => self.sync(number),
            None => 0,
        }
    }

    /// The number of the sample entry that sample `at` has.
    pub(in crate::media) fn entry(&self, at: usize) -> u16 {
        let after = self.entries.partition_point(|&(first, _)| first <= at);
        after.checked_sub(1).map_or(0, |it| self.entries[it].1)
    }

    /// For how many samples, from the first on, the parts are known.
    pub(in crate::media) fn with_parts(&self) -> usize {
        self.part_counts.len()
    }

    /// Whether there is room for so many parts more.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(in crate::media) fn check_parts(&self, parts: usize) -> Result<(), CodecError> {
        let parts_max = TRACK_PARTS_MAX as u64;
        match self.parts.len() + parts <= TRACK_PARTS_MAX {
            true => Ok(()),
            false => Err(CodecError::AllParts { parts_max }),
        }
    }

    /// Says of the first sample whose parts are not known what they are; none if it has the one
    /// that samples of its size have as a rule.
    ///
    /// # Panics
    ///
    /// If there is no such sample, the parts are more than [`PARTS_MAX`], or there is
    /// [no room](Self::check_parts) for them.
    pub(in crate::media) fn push_parts(&mut self, parts: &[u32]) {
        assert!(self.with_parts() < self.len() && parts.len() <= PARTS_MAX);
        assert!(self.check_parts(parts.len()).is_ok(), "callers ask before");
        self.part_counts.push(count(parts.len()));
        parts.iter().for_each(|&part| self.parts.push(part.into()));
    }

    /// Appends the parts of sample `at` to `out`; nothing if it has the usual one.
    pub(in crate::media) fn parts(&self, at: usize, out: &mut Vec<u32>) {
        if at >= self.with_parts() {
            return;
        }
        let parts = usize::try_from(self.part_counts.get(at)).unwrap_or(0);
        if parts > 0 {
            let first = usize::try_from(self.part_counts.before(at)).unwrap_or(0);
            let parts = self.parts.iter_from(first).take(parts);
            out.extend(parts.map(|part| u32::try_from(part).expect("pushed as such")));
        }
    }

    /// The least range of the file that has all of these samples.
    pub(in crate::media) fn file_range(&self, samples: Range<usize>) -> Range<u64> {
        // Samples of one run lie in order; so the ends of runs are enough.
        let mut all: Option<Range<u64>> = None;
        let mut at = samples.start;
        while at < samples.end.min(self.len()) {
            let run = self.run_samples.find(count(at));
            let end = match run < self.run_samples.len() {
                true => usize::try_from(self.run_samples.before(run + 1)).unwrap_or(at + 1),
                false => self.len(),
            };
            let end = end.min(samples.end);
            let (Some(first), Some(last)) = (self.file_part(at), self.file_part(end - 1)) else {
                break;
            };
            let part = first.start..last.end;
            all = Some(match all {
                None => part,
                Some(all) => all.start.min(part.start)..all.end.max(part.end),
            });
            at = end;
        }
        all.unwrap_or(0..0)
    }

    /// From the first to the last sample of which a byte lies in that part of the file.
    pub(in crate::media) fn within(&self, part: &Range<u64>) -> Range<usize> {
        let (mut found, mut first, mut offset) = (None::<Range<usize>>, 0, 0_i64);
        for run in 0..self.run_gaps.len() {
            let end = match run < self.run_samples.len() {
                true => first + usize::try_from(self.run_samples.get(run)).unwrap_or(0),
                false => self.len(),
            };
            offset += self.run_gaps.get(run);
            let bytes = self.file_bytes_before(end) - self.file_bytes_before(first);
            let lies = offset.unsigned_abs()..(offset + bytes).unsigned_abs();
            offset += bytes;
            if lies.start < part.end && part.start < lies.end {
                let place = |at: usize| {
                    let before = self.file_bytes_before(first + at) - self.file_bytes_before(first);
                    lies.start + before.unsigned_abs()
                };
                let from = first_at(end - first, |at| place(at + 1) > part.start);
                let until = first_at(end - first, |at| place(at) >= part.end);
                let hit = first + from..first + until;
                found = Some(match found {
                    None => hit,
                    Some(found) => found.start.min(hit.start)..found.end.max(hit.end),
                });
            }
            first = end;
        }
        found.unwrap_or(self.len()..self.len())
    }

    /// The first `count` of them, with the parts that are known.
    pub(in crate::media) fn first(&self, count: usize) -> Self {
        let mut first = Self::default();
        // In order, because looking each of them up takes long, and this is done several times a
        // second of a film that is being copied.
        let walk = self.walk(0..count).zip(self.spreads.iter_from(0));
        for ((sample, ticks), spread) in walk {
            let duration = u32::try_from(ticks).unwrap_or(u32::MAX);
            let file_bytes = i64::from(sample.bytes) + spread;
            let file_bytes = u32::try_from(file_bytes).expect("pushed as such");
            first
                .push_spread(sample, duration, file_bytes)
                .expect("it was taken before");
        }
        let mut parts = self.parts.iter_from(0);
        for of_sample in self.part_counts.iter_from(0).take(first.len()) {
            first.part_counts.push(of_sample);
            let of_sample = usize::try_from(of_sample).unwrap_or(0);
            for part in parts.by_ref().take(of_sample) {
                first.parts.push(part);
            }
        }
        first
    }

    /// Whether it begins with the first `count` samples of `old`, as far as that has so many.
    pub(in crate::media) fn continues(&self, old: &Self, count: usize) -> bool {
        let count = count.min(old.len());
        let alike = |at: usize| at >= count || old.get(at) == self.get(at);
        let last = count.saturating_sub(1);
        count <= self.len() && [0, last / 2, last].into_iter().all(alike)
    }
}

/// The first of `0..count` for which `holds` is true, which it stays from there on; `count` if it
/// is of none.
fn first_at(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

fn count(count: usize) -> i64 {
    i64::try_from(count).expect("there are fewer than 2^24 samples")
}

#[cfg(test)]
mod tests;
