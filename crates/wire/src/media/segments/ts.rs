//! The segments of transport streams: ranges of packets as they lie in the file. Where other bytes
//! lie between them (M2TS has four in front of each, a Reed-Solomon code 16 behind), each packet is
//! a range of its own.
//!
//! Receivers record one program with the table of all that are sent beside it. Segments have one
//! that names this program alone, and the file's own are left out: players would take another
//! program from them.

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
use crate::media::ts::psi::{Kind, PAT_PID, Program, association_of_one, in_packets};
use crate::media::ts::report::SeekKind;
use crate::media::ts::{self, SeekPoint, TS_PACKET_BYTES, elementary};

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
    /// The numbers of the segments whose times do not go on with those before.
    breaks: Arc<[u64]>,
}

/// Cuts a transport stream.
pub(super) fn segmented(
    index: &Index,
    is_whole: bool,
    read: &mut dyn FnMut(Range<u64>) -> Option<Vec<u8>>,
) -> Result<Segmented, SegmentsError> {
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
    let association = association_of_one(&streams.association, program.number, program.pmt_pid);
    let tables = [
        in_packets(PAT_PID, &association),
        in_packets(program.pmt_pid, &program.map),
    ];
    let tables: Arc<[u8]> = tables.concat().into();
    let (starts, breaks) = starts(of, is_whole);
    let is_long = |it: Range<u64>| it.end - it.start > SEGMENT_SAMPLES_MAX as u64;
    if !is_plain && packets(&starts, of).any(is_long) {
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
        video_range: elementary::video_range(of, read),
        frame_rate: None,
        channels: None,
        sample_rate_hz: None,
        language: None,
        label: None,
        is_default: false,
        timescale: TIMESCALE,
        is_independent: streams.seek_kind != SeekKind::None && are_seek_points(&starts, of),
        rates: Rates::default(),
        picture_rates: None,
        starts,
        end_ticks,
        listed,
        source: Source::Packets(Packets {
            index: index.clone(),
            tables: Arc::clone(&tables),
            is_plain,
            breaks: breaks.into(),
        }),
    };
    if listed == 0 {
        return Err(SegmentsError::Nothing(
            ": too little of it is known".to_owned(),
        ));
    }
    rendition.rates = Rates::of(&sizes(&rendition, of, &tables));
    rendition.picture_rates = rendition.rates_of_pictures();
    Ok(Segmented {
        renditions: vec![rendition],
        left_out: Vec::new(),
        is_complete: is_whole,
    })
}

/// Where segments begin, and the numbers of those, from 1 on, at which the time base changes.
fn starts(index: &ts::Index, is_whole: bool) -> (Vec<Start>, Vec<u64>) {
    let mut cutter = Cutter::new(target_ns(index.duration_ns()).max(TARGET_NS));
    let (mut starts, mut breaks): (Vec<Start>, Vec<u64>) = (Vec::new(), Vec::new());
    let points = index.seek_points().iter().map(|it| (*it, false));
    let changes = changes(index, is_whole).map(|it| (it, true));
    let mut places: Vec<_> = points.chain(changes).collect();
    places.sort_by_key(|(it, is_change)| (it.ts_packet, !is_change));
    for (place, is_change) in places {
        let ticks = i64::try_from(place.time_ns).unwrap_or(i64::MAX);
        let is_first = starts.is_empty();
        let is_later = starts.last().is_none_or(|it| it.first < place.ts_packet);
        if is_change {
            cutter.is_cut(place.time_ns);
            breaks.push(starts.len() as u64 + 1);
        }
        if is_first || is_later && (is_change || cutter.cuts(place.time_ns)) {
            starts.push(Start {
                first: place.ts_packet,
                ticks,
            });
        }
    }
    (starts, breaks)
}

/// Where the time base changes. References tell between which two of them; if a decoder can start
/// between these, it is there: what was put behind something else begins so, with its tables.
fn changes(index: &ts::Index, is_whole: bool) -> impl Iterator<Item = SeekPoint> + '_ {
    let points = index.seek_points();
    // Of what grows, more points may become known than there are up to its end.
    let known = match is_whole {
        true => index.ts_packets(),
        false => points.last().map_or(0, |it| it.ts_packet),
    };
    let breaks = index.clock.breaks().iter();
    breaks.filter(move |it| it.packet < known).map(|it| {
        let before = points.partition_point(|point| point.ts_packet <= it.packet);
        let near = points[..before].last();
        near.copied()
            .filter(|point| point.ts_packet > it.after)
            .unwrap_or_else(|| SeekPoint {
                ts_packet: it.packet,
                time_ns: index.due_ns(it.packet),
            })
    })
}

/// Whether a decoder can start at each of these.
fn are_seek_points(starts: &[Start], index: &ts::Index) -> bool {
    let points = index.seek_points();
    let is_one = |start: &Start| points.binary_search_by_key(&start.first, |it| it.ts_packet);
    starts.iter().all(|start| is_one(start).is_ok())
}

/// Of each segment the bytes, and how long it lasts in ns.
fn sizes(rendition: &Rendition, index: &ts::Index, tables: &[u8]) -> Vec<(u64, u64)> {
    let packets = packets(&rendition.starts, index);
    let bytes = packets.map(|it| bytes_of(index, it) + tables.len() as u64);
    let lasts = rendition.times().map(|it| it.1.unsigned_abs());
    bytes.zip(lasts).collect()
}

/// The packets of the file that each segment reaches over.
fn packets(starts: &[Start], index: &ts::Index) -> impl Iterator<Item = Range<u64>> {
    let starts = starts.iter().map(|it| it.first);
    let ends = starts.clone().skip(1).chain([index.ts_packets()]);
    starts.zip(ends).map(|(start, end)| start..end)
}

/// Which of these packets segments do not have: association tables of several programs.
fn left_out(index: &ts::Index, packets: Range<u64>) -> &[u32] {
    let all = &index.associations;
    let before = |packet: u64| all.partition_point(|it| u64::from(*it) < packet);
    let start = before(packets.start);
    &all[start..before(packets.end).max(start)]
}

/// What segments have of these packets: those between the ones that are left out.
fn kept(index: &ts::Index, packets: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let gaps = left_out(index, packets.clone()).iter();
    let gaps = gaps.map(|it| u64::from(*it));
    let behind = gaps.clone().map(|it| it + 1);
    let starts = [packets.start].into_iter().chain(behind);
    let ends = gaps.chain([packets.end]);
    starts.zip(ends).map(|(start, end)| start..end)
}

/// Bytes that these packets have in segments.
fn bytes_of(index: &ts::Index, packets: Range<u64>) -> u64 {
    let left_out = left_out(index, packets.clone()).len() as u64;
    (packets.end - packets.start - left_out) * TS_PACKET_BYTES as u64
}

impl Packets {
    /// How many packets there are, if each is a range of its own.
    pub(super) fn ranges(&self) -> Option<u64> {
        let index = self.index.as_ts().filter(|_| !self.is_plain)?;
        Some(index.ts_packets())
    }

    /// The numbers of the segments that begin behind a break, in order.
    pub(super) fn breaks(&self) -> &[u64] {
        &self.breaks
    }

    /// The number of the time base that a segment's times are of, from 0 on.
    fn base_of(&self, segment: u64) -> usize {
        self.breaks.partition_point(|first| *first <= segment)
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
            let Some(part) = part else { continue };
            match found.last() {
                None => {}
                // The first behind a break is there however near it is.
                Some((_, _, last)) if self.base_of(last.segment) != self.base_of(part.segment) => {
                    cutter.is_cut(point.time_ns);
                }
                Some(_) if cutter.cuts(point.time_ns) => {}
                Some(_) => continue,
            }
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
        let index = self.index.as_ts()?;
        let (first, end) = (point + u64::from(picture.ahead), picture.end(point));
        let starts = &rendition.starts;
        let segment = starts.partition_point(|start| start.first <= point);
        let start = starts[..rendition.listed.min(starts.len())].get(segment.checked_sub(1)?)?;
        let is_within = starts.get(segment).is_none_or(|next| end <= next.first);
        (picture.is_there() && is_within).then(|| PicturePart {
            segment: segment as u64,
            offset: self.init_bytes() + bytes_of(index, start.first..first),
            bytes: bytes_of(index, first..end),
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
                for packets in kept(index, packets) {
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
        }
        Segment {
            head: self.tables.to_vec(),
            pieces,
        }
    }
}
