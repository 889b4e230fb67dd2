//! One rendition in CMAF: samples become parts and segments.

use std::sync::Arc;

use super::output::{InitSegment, Output, PartOf};
use super::{PART_BYTES_MAX, SEGMENT_BYTES_MAX};
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
    rows: Vec<(Sample, i64)>,
    data: Vec<u8>,
    /// When the part that is written begins, and how long it lasts so far.
    part: (i64, i64),
    starts_shown: i64,
    /// How long the segment lasts whose parts are complete, and its bytes.
    segment_ticks: i64,
    segment_bytes: usize,
    has_parts: bool,
    sequence: u32,
    /// Breaks since the last sample.
    breaks: u64,
}

impl Lane {
    pub(super) fn new(number: usize, timescale: u32, unix_offset_ns: i64) -> Self {
        Self {
            number,
            timescale: timescale.max(1),
            unix_offset_ns,
            rows: Vec::new(),
            data: Vec::new(),
            part: (0, 0),
            starts_shown: 0,
            segment_ticks: 0,
            segment_bytes: 0,
            has_parts: false,
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

    /// So many ticks in ns.
    pub(super) fn ns(&self, ticks: i64) -> i64 {
        let ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.timescale);
        i64::try_from(ns).unwrap_or(if ticks < 0 { i64::MIN } else { i64::MAX })
    }
}
