//! Taking samples out of the transport packets that carry them.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::pes::Reader;
use super::start_codes::with_lengths;
use crate::media::codec::latm;
use crate::media::sampled::Carriage;
use crate::media::ts::index::{SyncRun, TS_PACKET_BYTES};

/// The samples of one elementary stream in its file.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) pid: u16,
    /// Where in the file packets are.
    pub(super) runs: Arc<[SyncRun]>,
    pub(super) form: Form,
}

/// What a sample is of its stream's bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum Form {
    /// The same.
    Plain,
    /// NAL units: it has their lengths where the stream has start codes.
    Nals,
    /// The access unit of an element of LATM.
    Latm,
}

impl Carried {
    /// Where the packet begins that has byte `at` of the file.
    fn packet_of(&self, at: u64) -> Option<u64> {
        let run = self.runs.partition_point(|run| run.file_offset <= at);
        let run = &self.runs[run.checked_sub(1)?];
        let stride = u64::from(run.packet_stride);
        let number = (at - run.file_offset) / stride;
        Some(run.file_offset + number * stride)
    }

    /// Where packets begin, from the one at `from` on to `end`.
    fn packets(&self, from: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        let first = self.runs.partition_point(|run| run.file_offset <= from);
        let runs = self.runs.get(first.saturating_sub(1)..).unwrap_or_default();
        let runs = runs.iter().take_while(move |run| run.file_offset < end);
        runs.flat_map(move |run| {
            let stride = u64::from(run.packet_stride);
            let skipped = from.saturating_sub(run.file_offset).div_ceil(stride);
            let run_end = run.file_offset + run.packets * stride;
            let start = run.file_offset + skipped * stride;
            (start..run_end.min(end)).step_by(run.packet_stride.into())
        })
    }

    /// The stream's bytes in that part of the file.
    fn bytes(&self, part: Range<u64>, file: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let whole = self.whole(part.clone());
        let mut bytes = Vec::with_capacity(bytes_max.min(file.len()));
        let mut reader = None;
        for at in self.packets(whole.start, whole.end) {
            let start = usize::try_from(at - whole.start).ok()?;
            let packet: &[u8; TS_PACKET_BYTES] = file.get(start..)?.first_chunk()?;
            let from = match &mut reader {
                None => {
                    reader = Some(Reader::inside(self.pid, *packet));
                    usize::try_from(part.start.checked_sub(at)?).ok()
                }
                Some(reader) => reader.packet(packet).map(|brought| brought.start),
            };
            let end = usize::try_from(part.end.saturating_sub(at)).unwrap_or(usize::MAX);
            let Some(from) = from else { continue };
            bytes.extend_from_slice(packet.get(from..end.min(TS_PACKET_BYTES)).unwrap_or(&[]));
        }
        Some(bytes)
    }
}

impl Carriage for Carried {
    fn whole(&self, part: Range<u64>) -> Range<u64> {
        let start = self.packet_of(part.start).unwrap_or(part.start);
        let last = part.end.saturating_sub(1);
        let last = self.packet_of(last).unwrap_or(last);
        start..last + TS_PACKET_BYTES as u64
    }

    fn take_out(&self, part: Range<u64>, file: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let bytes = self.bytes(part, file, bytes_max)?;
        match self.form {
            Form::Plain => Some(bytes),
            Form::Nals => with_lengths(&bytes, bytes_max),
            Form::Latm => latm::Frame::unit(&bytes, bytes_max),
        }
    }
}
