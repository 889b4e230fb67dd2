//! What one pass over a transport stream learned.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::facts::{ClockDoubt, Facts};
use super::picture::Picture;
use super::plan::{Packetisation, Plan, TS_PACKETS_PER_RTP_MAX};
use super::seek::SeekPoint;
use super::trick::TrickPlan;
use crate::media::container::{self, Container, Continued, Probe};
use crate::media::plan::Packets;
use crate::media::scale::Timeline;
use crate::media::track::{Cut, Medium, Track};
use crate::rtp;

/// Bytes of a transport packet (ISO/IEC 13818-1, section 2.4.3.2).
pub const TS_PACKET_BYTES: usize = 188;

/// What a transport stream is called.
pub(super) const FORMAT: &str = "MPEG-TS";

/// What every transport packet starts with.
pub const SYNC_BYTE: u8 = 0x47;

/// Of so many transport packets the bytes of one are remembered, to see later whether they are
/// still the same. A chunk of the smallest cache has at least one of them.
pub(crate) const SAMPLE_EVERY: u64 = 256;

/// What one pass over a transport stream learned.
#[derive(Clone, Debug)]
pub struct Index {
    pub(in crate::media) ts_packets: u64,
    pub(in crate::media) runs: Vec<SyncRun>,
    /// Of every [`SAMPLE_EVERY`]th packet, what its bytes amount to.
    pub(in crate::media) samples: Vec<u32>,
    pub(in crate::media) clock: Clock,
    pub(in crate::media) seek_points: Vec<SeekPoint>,
    /// Of each of them the picture that begins there.
    pub(in crate::media) pictures: Vec<Picture>,
    /// The packets of the first association table, each time it comes, if that names more than one
    /// program. Ascending.
    pub(in crate::media) associations: Vec<u32>,
    pub(in crate::media) facts: Facts,
}

/// A transport stream is one track, pictures and sound together (RFC 2250, section 2; RFC 3551,
/// table 5).
static TRACKS: [Track; 1] = [Track {
    medium: Medium::Video,
    payload_type: rtp::PAYLOAD_TYPE_MP2T,
    encoding: Cow::Borrowed("MP2T"),
    clock_hz: 90_000,
    channels: None,
    format_parameters: None,
}];

/// Transport packets that lie in the file one after the other at one stride.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SyncRun {
    /// Where in the file the first packet's sync byte is.
    pub file_offset: u64,
    /// The number of the first packet.
    pub first: u64,
    /// How many packets.
    pub packets: u64,
    /// Bytes from sync byte to sync byte: 188, 192 with the time stamps of M2TS, 204
    /// with a Reed-Solomon code.
    pub packet_stride: u16,
}

impl container::Index {
    /// The index of a transport stream, if it is one.
    #[must_use]
    pub fn as_ts(&self) -> Option<&Index> {
        let container: &dyn Any = &*self.0;
        container.downcast_ref()
    }

    /// Whether it is of a transport stream, as that is or as tracks of its elementary streams.
    #[must_use]
    pub fn is_transport_stream(&self) -> bool {
        let tracks = self.as_sampled();
        self.as_ts().is_some() || tracks.is_some_and(|tracks| tracks.format == FORMAT)
    }
}

impl Index {
    /// How many transport packets lie whole in the first `file_bytes` bytes of the file.
    #[must_use]
    pub fn ts_packets_within(&self, file_bytes: u64) -> u64 {
        self.ts_packets_before(file_bytes, TS_PACKET_BYTES as u64)
    }

    /// How many transport packets have their first so many bytes in the first `file_bytes` of the
    /// file.
    fn ts_packets_before(&self, file_bytes: u64, of_each: u64) -> u64 {
        let before = |run: &SyncRun| {
            let bytes = (file_bytes.saturating_add(run.packet_stride.into()))
                .saturating_sub(run.file_offset + of_each);
            (bytes / u64::from(run.packet_stride)).min(run.packets)
        };
        self.runs.iter().map(before).sum()
    }

    /// The transport packets that have bytes in a part of the file, and where it has no end those
    /// that are still to come.
    pub(super) fn ts_packets_in(&self, part: Range<u64>) -> Range<u64> {
        let end = match part.end {
            u64::MAX => u64::MAX,
            end => self.ts_packets_before(end, 1),
        };
        self.ts_packets_within(part.start)..end
    }

    /// This index, learned from more of a file than `old` was, with the same to say about all that
    /// `old` tells of: packets keep their numbers, places and times. `None` if they cannot,
    /// because the file has become another.
    #[must_use]
    pub fn continuing(mut self, old: &Self) -> Option<Self> {
        let [before @ .., last] = &old.runs[..] else {
            return None;
        };
        let same = self.runs.get(before.len()).is_some_and(|run| {
            (run.file_offset, run.first, run.packet_stride)
                == (last.file_offset, last.first, last.packet_stride)
                && run.packets >= last.packets
        });
        let is_more = self.ts_packets >= old.ts_packets;
        let samples = usize::try_from(old.ts_packets.div_ceil(SAMPLE_EVERY)).ok()?;
        let same_bytes = self.samples.get(..samples) == old.samples.get(..samples);
        if !same || !is_more || !same_bytes || self.runs[..before.len()] != *before {
            return None;
        }
        self.clock = self.clock.continuing(&old.clock);
        for point in &mut self.seek_points {
            point.time_ns = self.clock.time_ns(point.ts_packet);
        }
        Some(self)
    }

    /// The last random-access point at or before `time_ns`. The start of the file is one always.
    #[must_use]
    pub fn seek(&self, time_ns: u64) -> SeekPoint {
        let after = self
            .seek_points
            .partition_point(|point| point.time_ns <= time_ns);
        self.seek_points[after.saturating_sub(1)]
    }

    /// From the first transport packet to the end of the last, in ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.clock.time_ns(self.ts_packets)
    }

    /// The media time of a picture or sound whose own stamp (PTS, ISO/IEC 13818-1, section 2.4.3.7)
    /// is `stamp_ns`: some players name places in a file by its stamps, which seldom begin at 0. As
    /// near as the streams' buffers allow, which is a second or so; 0 for what is before the start.
    #[must_use]
    pub fn time_of_stamp_ns(&self, stamp_ns: u64) -> u64 {
        stamp_ns.saturating_sub(self.facts.streams.stamps_start_ns)
    }

    /// Transport packets in the file.
    #[must_use]
    pub fn ts_packets(&self) -> u64 {
        self.ts_packets
    }

    /// When transport packet `ts_packet` is due, in ns since the start of the media. Never less
    /// than for the packet before; [`Self::duration_ns`] for a packet beyond the last.
    #[must_use]
    pub fn due_ns(&self, ts_packet: u64) -> u64 {
        self.clock.time_ns(ts_packet)
    }

    /// The first transport packet that is due at `time_ns` or later; [`Self::ts_packets`] if none
    /// is.
    #[must_use]
    pub fn ts_packet_at(&self, time_ns: u64) -> u64 {
        self.clock.packet_at(time_ns)
    }

    /// All points where a decoder can start, in order. Never empty: the first is the start of the
    /// file.
    #[must_use]
    pub fn seek_points(&self) -> &[SeekPoint] {
        &self.seek_points
    }

    /// Where in the file the packets are. Never empty; each run starts where the one before ended,
    /// counted in packets.
    #[must_use]
    pub fn runs(&self) -> &[SyncRun] {
        &self.runs
    }

    /// Why its clock references are not believed, if they are not.
    #[must_use]
    pub fn clock_doubt(&self) -> Option<ClockDoubt> {
        self.facts.streams.doubt
    }
}

impl Index {
    /// The number of the run that holds `ts_packet`, which is one of the file's.
    pub(crate) fn run_of(&self, ts_packet: u64) -> usize {
        run_of(&self.runs, ts_packet)
    }
}

fn run_of(runs: &[SyncRun], ts_packet: u64) -> usize {
    runs.partition_point(|run| run.first <= ts_packet) - 1
}

/// The place of remembered packet `number`, whose bytes amounted to `sampled`.
pub(super) fn probe(runs: &[SyncRun], number: usize, sampled: u32) -> Probe {
    let ts_packet = number as u64 * SAMPLE_EVERY;
    probe_at(runs[run_of(runs, ts_packet)].offset_of(ts_packet), sampled)
}

/// The same of the packet that begins at that offset of the file.
pub(super) fn probe_at(file_offset: u64, sampled: u32) -> Probe {
    Probe {
        part: file_offset..file_offset.saturating_add(TS_PACKET_BYTES as u64),
        sampled,
        sample: |bytes| bytes.try_into().ok().map(sample),
    }
}

impl Container for Index {
    fn tracks(&self) -> &[Track] {
        &TRACKS
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns()
    }

    fn seek(&self, time_ns: u64) -> crate::media::plan::SeekPoint {
        let SeekPoint { ts_packet, time_ns } = self.seek(time_ns);
        crate::media::plan::SeekPoint {
            time_ns,
            place: ts_packet,
        }
    }

    fn time_of_stamp_ns(&self, stamp_ns: u64) -> u64 {
        self.time_of_stamp_ns(stamp_ns)
    }

    /// Of the transport packets that are remembered, the first, the last, and between them at equal
    /// distances.
    fn probes(&self, probes_max: usize) -> Vec<Probe> {
        let samples = usize::try_from(self.ts_packets.div_ceil(SAMPLE_EVERY))
            .unwrap_or(usize::MAX)
            .min(self.samples.len());
        let wanted = samples.min(probes_max);
        let last = samples.saturating_sub(1);
        let numbers = (0..wanted).map(|i| (i * last).checked_div(wanted - 1).unwrap_or(last));
        let probe = |number: usize| probe(&self.runs, number, self.samples[number]);
        numbers.map(probe).collect()
    }

    /// Whole transport packets, one to seven of them.
    fn cut(&self, _track: usize, payload_bytes_max: usize) -> Option<Cut> {
        let most = TS_PACKETS_PER_RTP_MAX.into();
        let ts_packets = (payload_bytes_max / TS_PACKET_BYTES).min(most);
        Some(Cut {
            number: u8::try_from(ts_packets.checked_sub(1)?).ok()?,
            payload_bytes_max: u16::try_from(ts_packets * TS_PACKET_BYTES).ok()?,
        })
    }

    fn packets(
        self: Arc<Self>,
        _track: usize,
        cut: Cut,
        burst_ns: u64,
        grows: bool,
    ) -> Box<dyn Packets> {
        let packetisation = Packetisation {
            ts_packets_per_rtp: cut.number + 1,
            burst_ns,
        };
        let make = if grows { Plan::unfinished } else { Plan::new };
        Box::new(make(self, packetisation))
    }

    fn trick(
        self: Arc<Self>,
        _track: usize,
        cut: Cut,
        burst_ns: u64,
        timeline: Timeline,
    ) -> Option<Box<dyn Packets>> {
        let plan = TrickPlan::new(self, cut.number + 1, burst_ns, timeline)?;
        Some(Box::new(plan))
    }

    fn doubt(&self) -> Option<String> {
        self.clock_doubt().map(|doubt| doubt.to_string())
    }

    fn continuing(self: Arc<Self>, old: &dyn Any) -> Continued {
        let Some(old) = old.downcast_ref::<Self>() else {
            return Continued::Other;
        };
        // Others may have it too, who save it.
        let new = Arc::unwrap_or_clone(self);
        if new.ts_packets < old.ts_packets {
            return Continued::NotYet;
        }
        new.continuing(old).map_or(Continued::Other, |index| {
            Continued::More(container::Index::of(index))
        })
    }
}

/// What is remembered of a packet's bytes.
pub(crate) fn sample(packet: &[u8; TS_PACKET_BYTES]) -> u32 {
    // FNV-1a, by words.
    let words = packet.chunks_exact(4).filter_map(|word| word.first_chunk());
    words.fold(0x811c_9dc5, |hash: u32, word| {
        (hash ^ u32::from_le_bytes(*word))
            .wrapping_mul(0x0100_0193)
            .rotate_left(5)
    })
}

impl SyncRun {
    /// Where in the file `ts_packet` of this run starts.
    pub(crate) fn offset_of(&self, ts_packet: u64) -> u64 {
        self.file_offset + (ts_packet - self.first) * u64::from(self.packet_stride)
    }

    /// The number of the first packet after this run.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.packets
    }
}

#[cfg(test)]
mod tests {
    use crate::media::ts::synth::constant_rate;
    use crate::media::{ScanOptions, Scanner};

    #[test]
    fn as_many_packets_as_fit_and_no_more_than_seven() {
        let mut scanner = Scanner::new(ScanOptions::default());
        scanner.push(&constant_rate(100, 0, 10_000)).unwrap();
        let index = scanner.finish().unwrap();
        for (payload_bytes_max, ts_packets) in [
            (usize::MAX, Some(7)),
            (1460, Some(7)),
            (7 * 188, Some(7)),
            (7 * 188 - 1, Some(6)),
            (188, Some(1)),
            (187, None),
            (0, None),
        ] {
            let cut = index.cut(0, payload_bytes_max);
            let bytes = cut.map(|cut| (cut.payload_bytes_max(), cut.number() + 1));
            assert_eq!(
                bytes,
                ts_packets.map(|n| (n * 188, n)),
                "{payload_bytes_max}"
            );
        }
    }
}
