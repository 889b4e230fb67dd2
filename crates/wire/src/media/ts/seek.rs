//! Where a decoder can start: random-access points, stream by stream.
//!
//! A stream that flags them is believed, as long as it does. Where none is flagged, the first
//! packet of every picture is read far enough to see whether the picture needs another; sound
//! starts anywhere. A decoder needs the tables too: if they come shortly before, seeking starts
//! with them. Where tables put another stream in the place of one, its points follow.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::TS_PACKET_BYTES;
use super::clock::Clock;
use super::header::Header;
use super::picture::{PICTURE_PACKETS_MAX, Picture, SPAN_PACKETS_MAX, Step, Walk};
use super::psi::{Kind, Program, Stream};

/// Where to start reading for a wished-for time.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SeekPoint {
    /// The number of the transport packet.
    pub ts_packet: u64,
    /// Its media time in ns.
    pub time_ns: u64,
}

/// Random-access points of one stream at the most. At this number every other one goes, and of
/// those to come too.
pub(super) const SEEK_POINTS_MAX: usize = 65_536;

/// Replacements of streams that are followed; behind the last of these points are those of the
/// stream that was there.
pub(super) const REPLACEMENTS_MAX: usize = 64;

/// Pictures in a row that need no other and are not flagged: those behind them count as flagged.
/// The stream no longer flags any, as when a recording of another tool was put behind one.
pub(super) const UNFLAGGED_MAX: u32 = 8;

/// How long before a random-access point the tables may come that seeking to it starts with.
const TABLES_BEFORE_NS_MAX: u64 = 500_000_000;

/// What made a packet a place to start at.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SeekKind {
    /// The stream says so: `random_access_indicator`.
    Flagged,
    /// The stream never says so; pictures were found that need no other.
    Pictures,
    /// Sound only: it starts anywhere.
    Sound,
    /// None was found. Playing starts at the start of the file.
    None,
}

/// Random-access points of one elementary stream.
#[derive(Clone, Debug)]
pub(super) struct Seeker {
    stream_type: u8,
    kind: Kind,
    flagged: Starts,
    found: Starts,
    /// Whether the stream flags any, and how many pictures that need no other came since the last
    /// that it flags.
    has_flags: bool,
    unflagged: u32,
    /// The picture that began at the newest start and has not ended.
    open: Option<Open>,
}

/// A picture that is followed to its end.
#[derive(Clone, Debug)]
struct Open {
    /// Its first packet, and one after its last so far.
    access: u64,
    end: u64,
    packets: u32,
    walk: Walk,
}

/// From that packet on, tables have a stream in the place of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replacement {
    pub(super) packet: u64,
    /// The pids of both.
    pub(super) old: u16,
    pub(super) new: u16,
}

/// Places to start at, as many as fit.
#[derive(Clone, Debug, Default)]
struct Starts {
    list: Vec<Start>,
    seen: u64,
    thinnings: u32,
}

/// A random-access point, and the packet with which its tables start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) tables: u64,
    pub(super) access: u64,
    /// The picture that begins there, once it has ended.
    pub(super) picture: Picture,
}

/// Where playing can start, and what can be shown of it alone.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kind: SeekKind,
    /// In order, beginning with the start of the file.
    pub(super) points: Vec<SeekPoint>,
    /// Of each of them the picture that begins there.
    pub(super) pictures: Vec<Picture>,
    /// The pid that carries the pictures.
    pub(super) pid: Option<u16>,
}

impl Seeker {
    pub(super) fn new(stream: &Stream) -> Self {
        Self {
            stream_type: coded_type(stream),
            kind: stream.kind,
            flagged: Starts::default(),
            found: Starts::default(),
            has_flags: false,
            unflagged: 0,
            open: None,
        }
    }

    /// Takes packet `number`, which is one of the stream: it may belong to a picture that has begun
    /// before. Whether it is no more than one of its packets once more.
    pub(super) fn follow(&mut self, number: u64, packet: &[u8; TS_PACKET_BYTES]) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        match open.walk.packet(packet) {
            Step::Other => {}
            Step::Repeated => return true,
            Step::Taken => {
                open.packets += 1;
                open.end = number + 1;
                let is_long = open.end - open.access > SPAN_PACKETS_MAX.into();
                if is_long || open.packets > PICTURE_PACKETS_MAX {
                    self.open = None;
                }
            }
            Step::Ended => self.end(),
            Step::Broken => self.open = None,
        }
        false
    }

    /// What has begun has ended: nothing of it follows.
    pub(super) fn end(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        for starts in [&mut self.flagged, &mut self.found] {
            if let Some(start) = starts.list.last_mut()
                && start.access == open.access
            {
                start.picture = Picture {
                    ahead: 0,
                    span: u32::try_from(open.end - open.access).unwrap_or(0),
                    packets: open.packets,
                };
            }
        }
    }

    /// Takes a packet of the stream that starts a unit or is flagged, which was
    /// [followed](Self::follow).
    pub(super) fn observe(
        &mut self,
        start: Start,
        header: &Header,
        packet: &[u8; TS_PACKET_BYTES],
        payload: &[u8],
    ) {
        let before = (self.flagged.seen, self.found.seen);
        if header.random_access {
            (self.has_flags, self.unflagged) = (true, 0);
            self.flagged.push(start);
        } else if header.unit_start && begins_picture(self.stream_type, payload) {
            self.unflagged = self.unflagged.saturating_add(1);
            if self.unflagged > UNFLAGGED_MAX {
                self.flagged.push(start);
            }
        }
        if header.unit_start {
            let found = match self.kind {
                Kind::Video => starts_picture(self.stream_type, payload).unwrap_or(false),
                _ => payload.starts_with(&[0, 0, 1]),
            };
            if found {
                self.found.push(start);
            }
        }
        let is_start = before != (self.flagged.seen, self.found.seen);
        if is_start && self.kind == Kind::Video {
            self.open = Walk::begin(packet).map(|walk| Open {
                access: start.access,
                end: start.access + 1,
                packets: 1,
                walk,
            });
        }
    }

    /// Its points: those of pictures that it flags, or else those that were found.
    fn starts(&self) -> &[Start] {
        match self.is_flagged() {
            true => &self.flagged.list,
            false => &self.found.list,
        }
    }

    fn is_flagged(&self) -> bool {
        self.kind == Kind::Video && self.has_flags
    }
}

impl Starts {
    fn push(&mut self, start: Start) {
        let wanted = self.seen.is_multiple_of(1 << self.thinnings.min(63));
        self.seen += 1;
        if !wanted {
            return;
        }
        if self.list.len() == SEEK_POINTS_MAX {
            let mut i = 0;
            self.list.retain(|_| {
                i += 1;
                i % 2 == 1
            });
            self.thinnings += 1;
        }
        self.list.push(start);
    }
}

/// Where playing can start, up to the end of the clock. `seeker_of` knows who follows the stream of
/// a pid.
pub(super) fn points<'a>(
    programs: &[Program],
    replacements: &[Replacement],
    seeker_of: impl Fn(u16) -> Option<&'a Seeker>,
    clock: &Clock,
) -> Found {
    let chosen = choose(programs, &seeker_of);
    let kind = chosen.map_or(SeekKind::None, |(kind, _)| kind);
    let starts = chosen.map(|(_, pid)| in_turn(pid, replacements, seeker_of));
    let starts = starts.unwrap_or_default();
    let pictured = chosen.filter(|(kind, _)| *kind != SeekKind::Sound);
    let mut pictures = vec![Picture::default()];
    let mut points = vec![SeekPoint {
        ts_packet: 0,
        time_ns: 0,
    }];
    for (i, start) in starts.iter().enumerate() {
        let (tables_ns, access_ns) = (clock.time_ns(start.tables), clock.time_ns(start.access));
        let near = access_ns - tables_ns <= TABLES_BEFORE_NS_MAX;
        let (ts_packet, time_ns) = if near {
            (start.tables, tables_ns)
        } else {
            (start.access, access_ns)
        };
        // The first picture's tables come right after the start; one place to start at is enough.
        let is_start = i == 0 && access_ns <= TABLES_BEFORE_NS_MAX;
        if is_start {
            pictures[0] = start.picture_from(0);
        } else if points.last().is_some_and(|last| last.ts_packet < ts_packet) {
            points.push(SeekPoint { ts_packet, time_ns });
            pictures.push(start.picture_from(ts_packet));
        }
    }
    points.shrink_to_fit();
    pictures.shrink_to_fit();
    let mut found = Found {
        kind,
        points,
        pictures,
        pid: pictured.map(|(_, pid)| pid),
    };
    found.keep_before(clock.packets());
    found
}

impl Found {
    /// Leaves out what is not all before that packet, but for the start of the file.
    fn keep_before(&mut self, end: u64) {
        let kept = self.points.partition_point(|it| it.ts_packet < end).max(1);
        self.points.truncate(kept);
        self.pictures.truncate(kept);
        for (point, picture) in self.points.iter().zip(&mut self.pictures) {
            if picture.end(point.ts_packet) > end {
                *picture = Picture::default();
            }
        }
    }
}

impl Start {
    /// Its picture, as it lies behind that packet.
    fn picture_from(&self, ts_packet: u64) -> Picture {
        let ahead = u32::try_from(self.access - ts_packet);
        let placed = |ahead| Picture {
            ahead,
            ..self.picture
        };
        ahead.map_or_else(|_| Picture::default(), placed)
    }
}

/// The stream whose points to use: the first program's video, else that of the next program, else
/// sound.
fn choose<'a>(
    programs: &[Program],
    seeker_of: impl Fn(u16) -> Option<&'a Seeker>,
) -> Option<(SeekKind, u16)> {
    [Kind::Video, Kind::Audio].into_iter().find_map(|wanted| {
        let streams = programs.iter().flat_map(|program| &program.streams);
        let streams = streams.filter(|stream| stream.kind == wanted);
        let mut seekers = streams.filter_map(|stream| Some((stream.pid, seeker_of(stream.pid)?)));
        let (pid, seeker) = seekers.find(|(_, s)| s.kind == wanted && !s.starts().is_empty())?;
        let kind = match wanted {
            Kind::Video if seeker.is_flagged() => SeekKind::Flagged,
            Kind::Video => SeekKind::Pictures,
            _ => SeekKind::Sound,
        };
        Some((kind, pid))
    })
}

/// The points of a stream, and of those of its kind that come in its place one after the other.
fn in_turn<'a>(
    pid: u16,
    replacements: &[Replacement],
    seeker_of: impl Fn(u16) -> Option<&'a Seeker>,
) -> Vec<Start> {
    let kind = seeker_of(pid).map(|seeker| seeker.kind);
    let mut all: Vec<Start> = Vec::new();
    let mut take = |of: u16, part: Range<u64>| {
        let seeker = seeker_of(of).filter(|seeker| Some(seeker.kind) == kind);
        let starts = seeker.map_or(&[][..], Seeker::starts).iter();
        let starts = starts.filter(|start| part.contains(&start.access));
        all.extend(starts.map(|start| match of == pid {
            true => *start,
            // Pictures that are sent alone are those of one stream.
            false => Start {
                picture: Picture::default(),
                ..*start
            },
        }));
    };
    let (mut there, mut since) = (pid, 0);
    for it in replacements {
        if it.old == there {
            take(there, since..it.packet);
            (there, since) = (it.new, it.packet);
        }
    }
    take(there, since..u64::MAX);
    let step = all.len().div_ceil(SEEK_POINTS_MAX).max(1);
    all.into_iter().step_by(step).collect()
}

/// The `stream_type` that says how a stream is coded, also where it is private and a descriptor
/// does.
pub(in crate::media) fn coded_type(stream: &Stream) -> u8 {
    match (stream.stream_type, &*stream.codec) {
        (0x06, "HEVC") => 0x24,
        (0x06, "VC-1") => 0xea,
        (told, _) => told,
    }
}

/// Whether a picture that needs no other starts in this first packet of a PES packet; `None` if the
/// codec is not known here. Encoders write parameter sets or sequence headers right before such
/// pictures, so these count too: the picture itself may start in a later packet.
pub(in crate::media) fn starts_picture(stream_type: u8, payload: &[u8]) -> Option<bool> {
    let is_start: fn(u8) -> bool = match stream_type {
        // H.264, table 7-1: IDR slice, sequence parameter set.
        0x1b | 0x1f | 0x20 => |code| matches!(code & 0x1f, 5 | 7),
        // H.265, table 7-1: IRAP pictures, video and sequence parameter sets.
        0x24 | 0x25 => |code| matches!(code >> 1 & 0x3f, 16..=23 | 32 | 33),
        // H.262, table 6-1, and MPEG-1: sequence header.
        0x01 | 0x02 => |code| code == 0xb3,
        // MPEG-4 part 2, table 6-3: visual object sequence, group of pictures.
        0x10 => |code| matches!(code, 0xb0 | 0xb3),
        // SMPTE 421M: sequence header.
        0xea => |code| code == 0x0f,
        _ => return None,
    };
    let mut codes = coded(payload).windows(4);
    Some(codes.any(|bytes| bytes[..3] == [0, 0, 1] && is_start(bytes[3])))
}

/// Whether the first slice of a picture that needs no other begins in this first packet of a PES
/// packet. It is told by the slice itself: parameter sets may stand in front of any picture.
fn begins_picture(stream_type: u8, payload: &[u8]) -> bool {
    let is_first_slice: fn(&[u8]) -> bool = match stream_type {
        // H.264, sections 7.3.1 and 7.3.3: an IDR slice, of which `first_mb_in_slice` is 0.
        0x1b => |nal| nal[0] & 0x1f == 5 && nal[1] & 0x80 != 0,
        // H.265, sections 7.3.1.2 and 7.3.6.1: an IRAP picture, `first_slice_segment_in_pic_flag`.
        0x24 => |nal| matches!(nal[0] >> 1 & 0x3f, 16..=23) && nal[2] & 0x80 != 0,
        _ => return false,
    };
    let mut nals = coded(payload).windows(6);
    nals.any(|bytes| bytes[..3] == [0, 0, 1] && is_first_slice(&bytes[3..]))
}

/// What follows the header of a PES packet in its first packet; nothing if there is no header.
fn coded(payload: &[u8]) -> &[u8] {
    let [0, 0, 1, _, _, _, _, _, header_bytes, rest @ ..] = payload else {
        return &[];
    };
    rest.get(usize::from(*header_bytes)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_pictures_are_told_by_their_codec() {
        let pes =
            |code: &[u8]| [&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 2, 9, 9, 0, 0, 1][..], code].concat();
        for (stream_type, yes, no) in [
            (0x1b, [0x67, 0x65], [0x61, 0x06]),
            (0x24, [0x40, 0x26], [0x02, 0x46]),
            (0x02, [0xb3, 0xb3], [0xb5, 0x00]),
            (0x10, [0xb0, 0xb3], [0xb6, 0xb2]),
            (0xea, [0x0f, 0x0f], [0x0d, 0x0e]),
            (0x42, [0, 0], [0xb3, 0x65]),
        ] {
            let is_known = stream_type != 0x42;
            let found = |code| starts_picture(stream_type, &pes(&[code]));
            let no = no.map(found);
            assert_eq!(no, [is_known.then_some(false); 2], "{stream_type:#x}");
            let yes = yes.map(found);
            assert_eq!(yes, [is_known.then_some(true); 2], "{stream_type:#x}");
        }
        // Not in the header, not behind the end.
        let header = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 200, 0, 0, 1, 0x65];
        assert_eq!(starts_picture(0x1b, &header), Some(false));
        assert_eq!(starts_picture(0x1b, &pes(&[0x65])[..14]), Some(false));
    }

    #[test]
    fn places_to_start_thin_out_at_their_limit() {
        let mut starts = Starts::default();
        let start = |access| Start {
            tables: access,
            access,
            picture: Picture::default(),
        };
        let max = SEEK_POINTS_MAX as u64;
        (0..max).for_each(|i| starts.push(start(i)));
        assert_eq!(starts.list.len(), SEEK_POINTS_MAX);
        starts.push(start(max));
        assert_eq!(starts.list.len(), SEEK_POINTS_MAX / 2 + 1);
        (max + 1..5 * max).for_each(|i| starts.push(start(i)));
        assert!(starts.list.len() <= SEEK_POINTS_MAX);
        // Evenly, to the end.
        let distances = starts
            .list
            .windows(2)
            .map(|pair| pair[1].access - pair[0].access);
        assert!(
            distances.clone().all(|distance| distance == 8),
            "{:?}",
            distances.max()
        );
        assert_eq!(starts.list.last().unwrap().access, 5 * max - 8);
    }
}
