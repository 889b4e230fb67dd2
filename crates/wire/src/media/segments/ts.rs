//! The segments of transport streams: ranges of packets as they lie in the file. Where other bytes
//! lie between them (M2TS has four in front of each, a Reed-Solomon code 16 behind), each packet is
//! a range of its own.

use std::ops::Range;
use std::sync::Arc;

use super::cut::Cutter;
use super::{
    PICTURE_NS, Picture, PicturePart, Rates, Rendition, SEGMENT_SAMPLES_MAX, SEGMENTS_MAX, Segment,
    Segmented, SegmentsError, Source, Start, TARGET_NS, target_ns,
};
use crate::media::container::Index;
use crate::media::track::Medium;
use crate::media::ts::picture;
use crate::media::ts::psi::{Kind, PAT_PID, Program, in_packets};
use crate::media::ts::report::SeekKind;
use crate::media::ts::{self, TS_PACKET_BYTES};

/// Times here are in ns.
const TIMESCALE: u32 = 1_000_000_000;

/// The packets that a rendition is made of.
#[derive(Clone, Debug)]
pub(super) struct Packets {
    index: Index,
    /// The program's tables, in packets.
    tables: Arc<[u8]>,
    /// Whether no other bytes lie between packets.
    is_plain: bool,
}

/// Cuts a transport stream.
pub(super) fn segmented(index: &Index, is_whole: bool) -> Result<Segmented, SegmentsError> {
    let Some(of) = index.as_ts() else {
        let why = ": nothing is known of its samples".to_owned();
        return Err(SegmentsError::Nothing(why));
    };
    let mut strides = of.runs().iter().map(|run| usize::from(run.packet_stride));
    let is_plain = strides.all(|stride| stride == TS_PACKET_BYTES);
    let streams = &of.facts.streams;
    let mapped = || streams.programs.iter().filter(|it| !it.map.is_empty());
    let has_pictures = |it: &&Program| it.streams.iter().any(|it| it.kind == Kind::Video);
    let program = mapped().find(has_pictures).or_else(|| mapped().next());
    let program = program.ok_or(SegmentsError::NoProgram)?;
    let tables = [
        in_packets(PAT_PID, &streams.association),
        in_packets(program.pmt_pid, &program.map),
    ];
    let tables: Arc<[u8]> = tables.concat().into();
    let starts = starts(of);
    if !is_plain && packets(&starts, of).any(|it| it > SEGMENT_SAMPLES_MAX as u64) {
        return Err(SegmentsError::Stride);
    }
    let listed = starts.len() - usize::from(!is_whole);
    let duration_ns = i64::try_from(index.duration_ns()).unwrap_or(i64::MAX);
    let end_ticks = duration_ns.max(starts.last().map_or(0, |it| it.ticks) + 1);
    let mut rendition = Rendition {
        name: "stream".to_owned(),
        medium: Medium::Video,
        codec: None,
        dimensions: None,
        video_range: None,
        frame_rate: None,
        channels: None,
        sample_rate_hz: None,
        language: None,
        label: None,
        is_default: false,
        timescale: TIMESCALE,
        is_independent: streams.seek_kind != SeekKind::None,
        rates: Rates::default(),
        starts,
        end_ticks,
        listed,
        source: Source::Packets(Packets {
            index: index.clone(),
            tables: Arc::clone(&tables),
            is_plain,
        }),
    };
    if listed == 0 {
        return Err(SegmentsError::Nothing(
            ": too little of it is known".to_owned(),
        ));
    }
    rendition.rates = Rates::of(&sizes(&rendition, of, &tables));
    Ok(Segmented {
        renditions: vec![rendition],
        left_out: Vec::new(),
        is_complete: is_whole,
    })
}

fn starts(index: &ts::Index) -> Vec<Start> {
    let mut cutter = Cutter::new(target_ns(index.duration_ns()).max(TARGET_NS));
    let mut starts: Vec<Start> = Vec::new();
    for point in index.seek_points() {
        let ticks = i64::try_from(point.time_ns).unwrap_or(i64::MAX);
        let is_first = starts.is_empty();
        let is_later = starts.last().is_none_or(|it| it.first < point.ts_packet);
        if is_first || is_later && cutter.cuts(point.time_ns) {
            starts.push(Start {
                first: point.ts_packet,
                ticks,
            });
        }
    }
    starts
}

/// Of each segment the bytes, and how long it lasts in ns.
fn sizes(rendition: &Rendition, index: &ts::Index, tables: &[u8]) -> Vec<(u64, u64)> {
    let packets = packets(&rendition.starts, index);
    let bytes = packets.map(|it| it * TS_PACKET_BYTES as u64 + tables.len() as u64);
    let lasts = rendition.times().map(|it| it.1.unsigned_abs());
    bytes.zip(lasts).collect()
}

/// How many packets each segment has.
fn packets(starts: &[Start], index: &ts::Index) -> impl Iterator<Item = u64> {
    let starts = starts.iter().map(|it| it.first);
    let ends = starts.clone().skip(1).chain([index.ts_packets()]);
    starts.zip(ends).map(|(start, end)| end - start)
}

impl Packets {
    /// How many packets there are, if each is a range of its own.
    pub(super) fn ranges(&self) -> Option<u64> {
        let index = self.index.as_ts().filter(|_| !self.is_plain)?;
        Some(index.ts_packets())
    }

    /// Bytes of the tables in front of each segment.
    pub(super) fn init_bytes(&self) -> u64 {
        self.tables.len() as u64
    }

    /// The pictures that lie within segments that are listed.
    pub(super) fn pictures(&self, rendition: &Rendition) -> Vec<Picture> {
        let Some(index) = self.index.as_ts() else {
            return Vec::new();
        };
        let apart_ns = PICTURE_NS.max(rendition.duration_ns() / SEGMENTS_MAX as u64);
        let mut cutter = Cutter::new(apart_ns);
        let mut found: Vec<(u64, i64, PicturePart)> = Vec::new();
        let points = index.seek_points.iter().zip(&index.pictures);
        for (number, (point, picture)) in (1..).zip(points) {
            let part = self.picture_part(rendition, point.ts_packet, picture);
            let Some(part) = part.filter(|_| found.is_empty() || cutter.cuts(point.time_ns)) else {
                continue;
            };
            let ticks = i64::try_from(point.time_ns).unwrap_or(i64::MAX);
            found.push((number, ticks, part));
        }
        let listed_end = rendition.starts.get(rendition.listed);
        let end_ticks = listed_end.map_or(rendition.end_ticks, |it| it.ticks);
        let nexts = found.iter().skip(1).map(|it| it.1).chain([end_ticks]);
        let pictures = found.iter().zip(nexts);
        pictures
            .map(|(&(number, ticks, part), next)| Picture {
                number,
                lasts_ticks: (next - ticks).max(1),
                part: Some(part),
            })
            .collect()
    }

    /// Where in a listed segment a picture is that lies behind packet `point`; `None` if it is not
    /// whole in one.
    fn picture_part(
        &self,
        rendition: &Rendition,
        point: u64,
        picture: &picture::Picture,
    ) -> Option<PicturePart> {
        let (first, end) = (point + u64::from(picture.ahead), picture.end(point));
        let starts = &rendition.starts;
        let segment = starts.partition_point(|start| start.first <= point);
        let start = starts[..rendition.listed.min(starts.len())].get(segment.checked_sub(1)?)?;
        let is_within = starts.get(segment).is_none_or(|next| end <= next.first);
        (picture.is_there() && is_within).then(|| PicturePart {
            segment: segment as u64,
            offset: self.init_bytes() + (first - start.first) * TS_PACKET_BYTES as u64,
            bytes: (end - first) * TS_PACKET_BYTES as u64,
        })
    }

    /// The segment of the packets from `first` to `end`, or to the last.
    pub(super) fn segment(&self, first: u64, end: Option<u64>) -> Segment {
        let mut pieces: Vec<Range<u64>> = Vec::new();
        if let Some(index) = self.index.as_ts() {
            let end = end.unwrap_or_else(|| index.ts_packets());
            let runs = index.runs();
            let from = runs.partition_point(|run| run.first + run.packets <= first);
            for run in runs[from..].iter().take_while(|run| run.first < end) {
                let packets = first.max(run.first)..end.min(run.first + run.packets);
                let (stride, bytes) = (u64::from(run.packet_stride), TS_PACKET_BYTES as u64);
                let place = |packet: u64| run.file_offset + (packet - run.first) * stride;
                if stride != bytes {
                    pieces.extend(packets.map(|it| place(it)..place(it) + bytes));
                    continue;
                }
                let piece = place(packets.start)..place(packets.end);
                match pieces.last_mut() {
                    Some(last) if last.end == piece.start => last.end = piece.end,
                    _ if piece.is_empty() => {}
                    _ => pieces.push(piece),
                }
            }
        }
        Segment {
            head: self.tables.to_vec(),
            pieces,
        }
    }
}
