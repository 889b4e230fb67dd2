//! One rendition in CMAF: samples become parts and segments.

use std::sync::Arc;

use super::output::{InitSegment, Output, PartOf};
use super::{
    PART_BYTES_MAX, PART_US, SEGMENT_BYTES_MAX, SEGMENT_US_MIN, part_target_us, segment_us_max,
};
use crate::media::cmaf::fragment_head;
use crate::media::samples::Sample;

/// Samples of a part at the most.
const PART_SAMPLES_MAX: usize = 4096;

/// A sample of which all is known but how long it lasts.
#[derive(Debug)]
pub(super) struct LiveSample {
    pub(super) data: Vec<u8>,
    pub(super) decoded: i64,
    pub(super) shown: i64,
    pub(super) is_sync: bool,
    /// What describes it, if that is not what described those before.
    pub(super) init: Option<Arc<InitSegment>>,
}

/// How long what is made may be, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) part: i64,
    pub(super) segment: i64,
}

/// A rendition.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) number: usize,
    pub(super) timescale: u32,
    /// What is to be added to ns of its times to have those since 1970.
    pub(super) unix_offset_ns: i64,
    /// A segment that begins with a sync sample may be so much longer than the target duration.
    rounded_us: u64,
    rows: Vec<(Sample, i64)>,
    data: Vec<u8>,
    /// When the part that is written begins, and how long it lasts so far.
    part: (i64, i64),
    starts_shown: i64,
    /// How long the segment lasts whose parts are complete, and its bytes.
    segment_ticks: i64,
    segment_bytes: usize,
    has_parts: bool,
    /// Whether it begins where a decoder can start.
    begins_with_sync: bool,
    sequence: u32,
    /// Breaks since the last sample.
    breaks: u64,
}

impl Lane {
    pub(super) fn new(number: usize, timescale: u32, rounded_us: u64) -> Self {
        Self {
            number,
            timescale: timescale.max(1),
            unix_offset_ns: 0,
            rounded_us,
            rows: Vec::new(),
            data: Vec::new(),
            part: (0, 0),
            starts_shown: 0,
            segment_ticks: 0,
            segment_bytes: 0,
            has_parts: false,
            begins_with_sync: false,
            sequence: 0,
            breaks: 0,
        }
    }

    /// How long the segment lasts so far, in ticks.
    pub(super) fn ticks(&self) -> i64 {
        self.segment_ticks + self.part.1
    }

    fn is_empty(&self) -> bool {
        !self.has_parts && self.rows.is_empty()
    }

    /// Whether a sync sample ends the segment. Behind one that begins with none it does at once, so
    /// that those which follow begin with one again.
    pub(super) fn may_end(&self) -> bool {
        !self.begins_with_sync || self.is_long()
    }

    /// Whether it is as long as segments are at the least.
    pub(super) fn is_long(&self) -> bool {
        self.ticks() >= self.ticks_of(SEGMENT_US_MIN)
    }

    /// The least target duration of which the segment is not too long.
    pub(super) fn target_s(&self) -> u64 {
        let us = u64::try_from(self.ns(self.ticks()) / 1000).unwrap_or(0);
        us.saturating_sub(self.rounded_us).div_ceil(1_000_000)
    }

    /// How long what is made may be.
    pub(super) fn lengths(&self, part_us: Option<u64>, target_s: Option<u64>) -> Lengths {
        let rounded_us = if self.begins_with_sync {
            self.rounded_us
        } else {
            0
        };
        Lengths {
            part: self.ticks_of(part_us.unwrap_or(PART_US)),
            segment: self.ticks_of(segment_us_max(target_s, rounded_us)),
        }
    }

    /// How long parts are, by when the first units are shown.
    pub(super) fn part_us(&self, shown: &[i64]) -> u64 {
        let mut sorted = shown.to_vec();
        sorted.sort_unstable();
        let steps = sorted.windows(2).map(|pair| self.ns(pair[1] - pair[0]));
        let longest_us = steps.max().unwrap_or(0).div_euclid(1000) + 1;
        part_target_us(u64::try_from(longest_us).unwrap_or(0))
    }

    /// Whether this sample may not be in the segment that is open.
    pub(super) fn must_end(&self, sample: &LiveSample, lasts: i64, lengths: Lengths) -> bool {
        let is_full = self.segment_bytes + self.data.len() + sample.data.len() > SEGMENT_BYTES_MAX;
        !self.is_empty() && (is_full || self.ticks().saturating_add(lasts) > lengths.segment)
    }

    /// What follows does not go on where this has ended.
    pub(super) fn break_off(&mut self) {
        self.breaks = self.breaks.saturating_add(1);
    }

    /// Takes a sample that lasts so long.
    pub(super) fn push(
        &mut self,
        sample: LiveSample,
        lasts: i64,
        lengths: Lengths,
        out: &mut Vec<Output>,
    ) {
        let is_long = self.part.1.saturating_add(lasts) > lengths.part;
        let is_large = self.data.len() + sample.data.len() > PART_BYTES_MAX;
        if !self.rows.is_empty() && (is_long || is_large || self.rows.len() >= PART_SAMPLES_MAX) {
            self.end_part(out);
        }
        if self.is_empty() {
            let breaks = std::mem::take(&mut self.breaks);
            if breaks > 0 {
                out.push(Output::Break {
                    rendition: self.number,
                    breaks,
                });
            }
            if let Some(init) = sample.init {
                out.push(Output::Init {
                    rendition: self.number,
                    init,
                });
            }
            self.begins_with_sync = sample.is_sync;
        }
        if self.rows.is_empty() {
            self.part = (sample.decoded, 0);
            self.starts_shown = sample.shown;
        }
        self.rows.push((
            Sample {
                offset: 0,
                bytes: u32::try_from(sample.data.len()).unwrap_or(u32::MAX),
                decode_ticks: sample.decoded,
                composition_ticks: sample.shown.saturating_sub(sample.decoded),
                is_sync: sample.is_sync,
                entry: 0,
            },
            lasts,
        ));
        self.starts_shown = self.starts_shown.min(sample.shown);
        self.part.1 = self.part.1.saturating_add(lasts);
        self.data.extend_from_slice(&sample.data);
    }

    /// Ends the part that is written, if there is one.
    pub(super) fn end_part(&mut self, out: &mut Vec<Output>) {
        if self.rows.is_empty() {
            return;
        }
        let (rows, data) = (
            std::mem::take(&mut self.rows),
            std::mem::take(&mut self.data),
        );
        self.sequence = self.sequence.wrapping_add(1);
        let (begins, ticks) = std::mem::take(&mut self.part);
        let (mut bytes, _) = fragment_head(|| rows.iter().copied(), begins.max(0), self.sequence);
        bytes.extend_from_slice(&data);
        self.segment_bytes += bytes.len();
        self.segment_ticks = self.segment_ticks.saturating_add(ticks);
        self.has_parts = true;
        let us = |ticks: i64| self.ns(ticks) / 1000;
        let lasts_us = us(begins.saturating_add(ticks)) - us(begins);
        out.push(Output::Part {
            rendition: self.number,
            part: PartOf {
                bytes: bytes.into(),
                lasts_us: u64::try_from(lasts_us).unwrap_or(0).max(1),
                starts_unix_ns: self
                    .ns(self.starts_shown)
                    .saturating_add(self.unix_offset_ns),
                starts_ticks: self.starts_shown,
                ticks,
                is_independent: rows.iter().any(|(row, _)| row.is_sync),
                begins_with_sync: rows[0].0.is_sync,
                samples: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            },
        });
    }

    /// Ends the segment, if there is one.
    pub(super) fn end_segment(&mut self, out: &mut Vec<Output>) {
        self.end_part(out);
        if self.has_parts {
            out.push(Output::SegmentEnd {
                rendition: self.number,
            });
        }
        (self.segment_ticks, self.segment_bytes, self.has_parts) = (0, 0, false);
    }

    /// So many us in ticks.
    fn ticks_of(&self, us: u64) -> i64 {
        let ticks = u128::from(us) * u128::from(self.timescale) / 1_000_000;
        i64::try_from(ticks).unwrap_or(i64::MAX)
    }

    /// So many ticks in ns.
    pub(super) fn ns(&self, ticks: i64) -> i64 {
        let ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.timescale);
        i64::try_from(ns).unwrap_or(if ticks < 0 { i64::MIN } else { i64::MAX })
    }
}
