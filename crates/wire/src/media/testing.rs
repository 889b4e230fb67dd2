//! A container for tests: any number of tracks, whose packets are of any size, and lie scattered
//! and between each other.
//!
//! It is what the seam between media and the rest is tried with, and no format of anybody's: a
//! [`write()`]r's packets come out of the [plans](super::Plan) as they went in. No product is built
//! with it.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

pub use super::codec::testing::fuzz::packetize;
use super::container::{Container, Continued, Index, Probe};
use super::frame_rate::FrameRate;
use super::grouping::{BurstLengths, Rule, group_bursts};
use super::plan::{Burst, FilePiece, ImageError, Packets, RtpOrigin, SeekPoint};
use super::scale::Timeline;
use super::track::{Cut, Medium, TRACKS_MAX, Track};
use crate::rtp::{HEADER_BYTES, Header, ticks_of};

/// What such a file begins with.
pub(super) const MAGIC: &[u8; 8] = b"onrtest\n";

/// Bytes before the first packet: the magic, and each track's payload type and clock.
const FILE_HEADER_BYTES: usize = MAGIC.len() + 5 * TRACKS_MAX;

/// Bytes before the payload of a packet.
const RECORD_BYTES: usize = 13;

/// Bytes in the middle of a split packet that are not of it.
const GAP: [u8; 5] = [0xee; 5];

/// Bytes of a packet that are not in the file: its number.
const NUMBER_BYTES: usize = 4;

/// How long the last packet of a track lasts.
const LAST_NS: u64 = 40_000_000;

/// A packet as it is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Packet {
    /// The number of its track, from 0 on.
    pub track: usize,
    /// When it is due; not before the packet before of its track.
    pub due_ns: u64,
    /// By how many ms what it belongs to is shown later than it is due, as a picture is that others
    /// refer to which are shown before it.
    pub shown_later_ms: u8,
    /// Whether its RTP header has the marker: it ends a sample.
    pub marker: bool,
    /// Whether one can start here: a sync sample begins, which goes to the next marker. Where one
    /// starts, the first track says.
    pub is_sync: bool,
    /// Whether it lies in the file in two parts.
    pub is_split: bool,
    /// Its bytes in the file; at least one.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// What is behind its RTP header, where it has that number in its track.
    #[must_use]
    pub fn payload(&self, number: u32) -> Vec<u8> {
        [&number.to_be_bytes()[..], &self.bytes].concat()
    }
}

/// A file of tracks with these payload types and clocks, with these packets.
#[must_use]
pub fn write(tracks: &[(u8, u32)], packets: &[Packet]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    for number in 0..TRACKS_MAX {
        let (payload_type, clock_hz) = tracks.get(number).copied().unwrap_or_default();
        file.push(payload_type);
        file.extend(clock_hz.to_be_bytes());
    }
    for packet in packets {
        let flags = [packet.marker, packet.is_sync, packet.is_split];
        let flags = flags
            .iter()
            .rev()
            .fold(0, |bits, &is| bits << 1 | u8::from(is));
        let length = u16::try_from(packet.bytes.len()).expect("a packet is below 64 KiB");
        file.push(u8::try_from(packet.track).expect("there are eight tracks at most"));
        file.push(flags);
        file.extend(length.to_be_bytes());
        file.extend(packet.due_ns.to_be_bytes());
        file.push(packet.shown_later_ms);
        let (front, back) = packet.bytes.split_at(packet.bytes.len() / 2);
        file.extend(front);
        if packet.is_split {
            file.extend(GAP);
        }
        file.extend(back);
    }
    file
}

/// Reads such a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    carry: Vec<u8>,
    /// Where in the file that begins.
    offset: u64,
    tracks: Vec<Track>,
    packets: Vec<Vec<Record>>,
}

/// A packet of a track.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Record {
    /// Its number in its track.
    number: u32,
    due_ns: u64,
    shown_later_ms: u8,
    /// Where its first byte is.
    offset: u64,
    bytes: u16,
    marker: bool,
    is_sync: bool,
    is_split: bool,
    sample: u32,
}

impl Record {
    fn shown_ns(&self) -> u64 {
        self.due_ns + u64::from(self.shown_later_ms) * 1_000_000
    }

    fn payload_bytes(&self) -> usize {
        NUMBER_BYTES + usize::from(self.bytes)
    }

    fn pieces(&self) -> Vec<Range<u64>> {
        let (bytes, half) = (u64::from(self.bytes), u64::from(self.bytes) / 2);
        let whole = self.offset..self.offset + bytes;
        if !self.is_split {
            return vec![whole];
        }
        let back = whole.start + half + GAP.len() as u64;
        let pieces = [whole.start..whole.start + half, back..back + bytes - half];
        pieces.into_iter().filter(|it| !it.is_empty()).collect()
    }

    fn end(&self) -> u64 {
        let gap = if self.is_split { GAP.len() } else { 0 };
        self.offset + u64::from(self.bytes) + gap as u64
    }
}

impl Scanner {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.carry.extend_from_slice(bytes);
        let carry = std::mem::take(&mut self.carry);
        let mut left = &carry[..];
        if self.offset == 0 {
            let Some((header, rest)) = left.split_first_chunk::<FILE_HEADER_BYTES>() else {
                self.carry = carry;
                return;
            };
            self.tracks = header[MAGIC.len()..].chunks(5).filter_map(track).collect();
            self.packets = vec![Vec::new(); self.tracks.len()];
            left = rest;
        }
        while let Some((track, record, rest)) = self.record(left, (carry.len(), self.offset)) {
            let records = &mut self.packets[track];
            let number = u32::try_from(records.len()).unwrap_or(u32::MAX);
            records.push(Record { number, ..record });
            left = rest;
        }
        self.offset += (carry.len() - left.len()) as u64;
        self.carry = left.to_vec();
    }

    /// The packet that `left` begins with, if all of it is there; `carried` are bytes that end
    /// where that does, and where in the file they begin.
    fn record<'a>(
        &self,
        left: &'a [u8],
        (carried, start): (usize, u64),
    ) -> Option<(usize, Record, &'a [u8])> {
        let (head, payload) = left.split_first_chunk::<RECORD_BYTES>()?;
        let [track, flags, b0, b1, due_ns @ .., shown_later_ms] = *head;
        let mut record = Record {
            number: 0,
            due_ns: u64::from_be_bytes(due_ns),
            shown_later_ms,
            offset: start + (carried - payload.len()) as u64,
            bytes: u16::from_be_bytes([b0, b1]),
            marker: flags & 1 != 0,
            is_sync: flags & 2 != 0,
            is_split: flags & 4 != 0,
            sample: 0,
        };
        let length = usize::try_from(record.end() - record.offset).ok()?;
        let (bytes, rest) = payload.split_at_checked(length)?;
        record.sample = sample(bytes)?;
        let track = usize::from(track);
        (track < self.tracks.len()).then_some((track, record, rest))
    }

    pub(super) fn pushed_bytes(&self) -> u64 {
        self.offset + self.carry.len() as u64
    }

    pub(super) fn index(self) -> Option<Index> {
        if self.packets.first().is_none_or(Vec::is_empty) {
            return None;
        }
        let packets = self.packets.into_iter().map(Arc::from).collect();
        Some(Index::of(TestIndex {
            tracks: self.tracks,
            packets,
        }))
    }
}

/// What a track of that payload type and clock is; video with an even payload type, else audio.
fn track(bytes: &[u8]) -> Option<Track> {
    let &[payload_type, a, b, c, d] = bytes else {
        return None;
    };
    let is_video = payload_type % 2 == 0;
    (payload_type > 0).then(|| Track {
        medium: if is_video {
            Medium::Video
        } else {
            Medium::Audio
        },
        payload_type,
        encoding: "X-ONRUSH-TEST".into(),
        clock_hz: u32::from_be_bytes([a, b, c, d]),
        channels: None,
        format_parameters: Some(format!("kind={payload_type}")),
    })
}

/// FNV-1a.
fn sample(bytes: &[u8]) -> Option<u32> {
    let mix = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    (!bytes.is_empty()).then(|| bytes.iter().fold(0x811c_9dc5, mix))
}

#[derive(Debug)]
struct TestIndex {
    tracks: Vec<Track>,
    packets: Vec<Arc<[Record]>>,
}

fn end_ns(records: &[Record]) -> u64 {
    records.last().map_or(0, |last| last.due_ns + LAST_NS)
}

impl Container for TestIndex {
    fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    fn duration_ns(&self) -> u64 {
        let ends = self.packets.iter().map(|records| end_ns(records));
        ends.max().unwrap_or(0)
    }

    fn seek(&self, time_ns: u64) -> SeekPoint {
        let before = |record: &&Record| record.is_sync && record.due_ns <= time_ns;
        let found = self.packets[0].iter().rfind(before);
        let time_ns = found.map_or(0, |record| record.due_ns);
        SeekPoint {
            time_ns,
            place: time_ns,
        }
    }

    fn time_of_stamp_ns(&self, stamp_ns: u64) -> u64 {
        stamp_ns
    }

    fn probes(&self, probes_max: usize) -> Vec<Probe> {
        let records = &self.packets[0];
        let step = records.len().div_ceil(probes_max.max(1)).max(1);
        let probe = |record: &Record| Probe {
            part: record.offset..record.end(),
            sampled: record.sample,
            sample,
        };
        records
            .iter()
            .step_by(step)
            .map(probe)
            .take(probes_max)
            .collect()
    }

    /// As it is written, or not at all.
    fn cut(&self, track: usize, payload_bytes_max: usize) -> Option<Cut> {
        let largest = self.packets[track].iter().map(Record::payload_bytes).max();
        let largest = largest.unwrap_or(1);
        (largest <= payload_bytes_max).then_some(Cut {
            number: 0,
            payload_bytes_max: u16::try_from(largest).ok()?,
        })
    }

    fn packets(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        burst_ns: u64,
        _grows: bool,
    ) -> Box<dyn Packets> {
        let records = Arc::clone(&self.packets[track]);
        let end_ns = end_ns(&records);
        let track = self.tracks[track].clone();
        Box::new(TestPlan::new(track, records, end_ns, cut, burst_ns))
    }

    fn trick(
        self: Arc<Self>,
        track: usize,
        cut: Cut,
        burst_ns: u64,
        timeline: Timeline,
    ) -> Option<Box<dyn Packets>> {
        let records = &self.packets[track];
        let starts = (0..records.len()).filter(|&at| records[at].is_sync);
        let sample = |start: usize| {
            let rest = &records[start..];
            let last = rest.iter().position(|record| record.marker);
            // A sample may be cut short by the next.
            let next = rest.iter().skip(1).position(|record| record.is_sync);
            let count = last.into_iter().chain(next).min();
            let due_ns = timeline.due_ns(rest[0].due_ns);
            let count = count.map_or(rest.len(), |last| last + 1);
            rest[..count].iter().map(move |&record| Record {
                due_ns,
                shown_later_ms: 0,
                ..record
            })
        };
        let records: Arc<[Record]> = match timeline.scale().is_reverse() {
            true => starts.rev().flat_map(sample).collect(),
            false => starts.flat_map(sample).collect(),
        };
        let end_ns = timeline.due_ns(self.duration_ns());
        let end_ns = end_ns.max(timeline.due_ns(0));
        let track = self.tracks[track].clone();
        let plan = TestPlan::new(track, records, end_ns, cut, burst_ns);
        (plan.count() > 0).then(|| Box::new(plan) as Box<dyn Packets>)
    }

    /// That of the first track's samples, if one is as long as the other, in whole frames a second.
    fn frame_rate(&self) -> Option<FrameRate> {
        let ends = self.packets[0].iter().filter(|record| record.marker);
        let due_ns: Vec<_> = ends.map(|record| record.due_ns).collect();
        let step_ns = due_ns.get(1)?.checked_sub(due_ns[0]).filter(|&ns| ns > 0)?;
        let is_constant = due_ns.windows(2).all(|two| two[1] - two[0] == step_ns);
        let is_whole = 1_000_000_000 % step_ns == 0;
        let frames = u32::try_from(1_000_000_000 / step_ns).ok()?;
        FrameRate::new(frames, 1).filter(|_| is_constant && is_whole)
    }

    fn continuing(self: Arc<Self>, old: &dyn Any) -> Continued {
        let Some(old) = old
            .downcast_ref::<Self>()
            .filter(|old| old.tracks == self.tracks)
        else {
            return Continued::Other;
        };
        let mut pairs = self.packets.iter().zip(&old.packets);
        if pairs.all(|(new, old)| new.starts_with(old)) {
            return Continued::More(Index(self));
        }
        Continued::Other
    }
}

#[derive(Debug)]
struct TestPlan {
    track: Track,
    records: Arc<[Record]>,
    /// Before each packet's image, and after the last, the bytes of all before.
    ends: Vec<u64>,
    /// When the track is over.
    end_ns: u64,
    payload_bytes_max: usize,
    burst_ns: u64,
    lengths: BurstLengths,
}

impl TestPlan {
    fn new(track: Track, records: Arc<[Record]>, end_ns: u64, cut: Cut, burst_ns: u64) -> Self {
        let images = records
            .iter()
            .map(|record| HEADER_BYTES + record.payload_bytes());
        let mut ends = vec![0];
        ends.extend(images.scan(0, |end, bytes| {
            *end += bytes as u64;
            Some(*end)
        }));
        let mut plan = Self {
            lengths: BurstLengths::default(),
            track,
            records,
            ends,
            end_ns,
            payload_bytes_max: cut.payload_bytes_max(),
            burst_ns,
        };
        let mut bursts = Vec::new();
        plan.bursts(0..plan.count(), &mut bursts);
        bursts.iter().for_each(|burst| plan.lengths.count(burst));
        plan
    }

    fn record(&self, packet: u64) -> Option<&Record> {
        self.records.get(usize::try_from(packet).ok()?)
    }

    /// Those of these packets that there are.
    fn within(&self, packets: Range<u64>) -> Range<usize> {
        let at = |packet: u64| usize::try_from(packet.min(self.count())).unwrap_or(usize::MAX);
        at(packets.start)..at(packets.end)
    }
}

impl Packets for TestPlan {
    fn count(&self) -> u64 {
        self.records.len() as u64
    }

    fn due_ns(&self, packet: u64) -> u64 {
        let record = self.record(packet);
        record.map_or(self.end_ns, |record| record.due_ns)
    }

    fn packet_at(&self, time_ns: u64) -> u64 {
        self.records
            .partition_point(|record| record.due_ns < time_ns) as u64
    }

    fn packet_from(&self, point: SeekPoint) -> u64 {
        self.packet_at(point.place)
    }

    fn ticks(&self, packet: u64) -> u32 {
        let record = self.record(packet);
        let shown_ns = record.map_or(self.end_ns, Record::shown_ns);
        ticks_of(shown_ns, self.track.clock_hz.into())
    }

    fn payload_bytes(&self, packet: u64) -> usize {
        self.record(packet).map_or(0, Record::payload_bytes)
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn images_bytes(&self, packets: Range<u64>) -> u64 {
        let Range { start, end } = self.within(packets);
        self.ends[end] - self.ends[start.min(end)]
    }

    fn sends(&self, packets_max: u32) -> Option<u64> {
        Some(self.lengths.sends(packets_max))
    }

    fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        let records = &self.records[self.within(packets)];
        // Backwards the first packet may be the last in the file.
        let start = records.iter().map(|record| record.offset).min();
        let end = records.iter().map(Record::end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    fn file_pieces(&self, packet: u64) -> Vec<Range<u64>> {
        self.record(packet).map_or_else(Vec::new, Record::pieces)
    }

    fn packets_in(&self, part: Range<u64>) -> Range<u64> {
        let is_there = |record: &Record| record.offset < part.end && part.start < record.end();
        let first = self.records.iter().position(is_there);
        let first = first.unwrap_or(self.records.len()) as u64;
        let end = match part.end {
            u64::MAX => u64::MAX,
            _ => {
                let last = self.records.iter().rposition(is_there);
                last.map_or(first, |last| last as u64 + 1)
            }
        };
        first..end
    }

    fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        let first = packets.start;
        let packets = self.records[self.within(packets)].iter();
        let packets = packets.map(|it| (it.due_ns, HEADER_BYTES + it.payload_bytes()));
        let rule = Rule {
            burst_ns: self.burst_ns,
            reach_ns: 0,
        };
        group_bursts(first, packets, rule, out);
    }

    fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        mut out: &mut [u8],
    ) -> Result<(), ImageError> {
        let (Range { start, end }, out_bytes) = (packets.clone(), out.len());
        if end > self.count() || self.images_bytes(packets.clone()) > out_bytes as u64 {
            let rtp_packets = self.count();
            return Err(ImageError::Room {
                start,
                end,
                rtp_packets,
                out_bytes,
            });
        }
        for packet in packets {
            let record = self.record(packet).expect("counted above");
            let header = Header {
                marker: record.marker,
                payload_type: self.track.payload_type,
                sequence: origin.sequence_of(packet),
                timestamp: origin.timestamp.wrapping_add(self.ticks(packet)),
                ssrc: origin.ssrc,
            };
            let image;
            (image, out) = out.split_at_mut(HEADER_BYTES + record.payload_bytes());
            image[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
            let (place, mut payload) = image[HEADER_BYTES..].split_at_mut(NUMBER_BYTES);
            place.copy_from_slice(&record.number.to_be_bytes());
            for part in record.pieces() {
                let found = bytes_at(pieces, &part);
                let file_offset = part.start;
                let found = found.ok_or(ImageError::Bytes { file_offset })?;
                let now;
                (now, payload) = payload.split_at_mut(found.len());
                now.copy_from_slice(found);
            }
        }
        Ok(())
    }
}

/// That part of the file, if it is whole in one of these pieces.
fn bytes_at<'a>(pieces: &[FilePiece<'a>], part: &Range<u64>) -> Option<&'a [u8]> {
    pieces.iter().find_map(|piece| {
        let start = usize::try_from(part.start.checked_sub(piece.offset)?).ok()?;
        let length = usize::try_from(part.end - part.start).ok()?;
        piece.bytes.get(start..start.checked_add(length)?)
    })
}

#[cfg(test)]
mod tests;
