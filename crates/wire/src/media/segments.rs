//! Films cut into segments, as HLS (RFC 8216bis) and DASH (ISO/IEC 23009-1) want them.
//!
//! A film of samples becomes a [`Rendition`] for each of its tracks, in CMAF; a transport stream is
//! one rendition, of which each segment is a range of packets with the program's tables in front.
//! Segments begin where a decoder can start, and all of a film's renditions are cut at the same
//! times, those of its pictures. The one idea: a segment is a few bytes that are computed and
//! pieces of the file that are sent as they lie ([`Segment`]), so that a film costs a number for
//! each of its segments, and nothing is repackaged.
//!
//! Nothing here knows URLs or playlists: these are in [`hls`](crate::hls) and
//! [`dash`](crate::dash).

mod cut;
mod rates;
mod sampled;
mod ts;

use std::ops::Range;

use thiserror::Error;

pub use rates::Rates;

use super::colour::VideoRange;
use super::container::Index;
use super::sampled::LeftOut;
use super::track::Medium;

/// How long segments are to be. They are longer where decoders can start at fewer places, and
/// where there would be more than [`SEGMENTS_MAX`].
pub const TARGET_NS: u64 = 6_000_000_000;

/// Segments of a rendition, at the most: 100 hours of segments of six seconds. Of longer films they
/// are longer.
pub const SEGMENTS_MAX: usize = 60_000;

/// Samples of a segment at the most: where decoders can start at no more than one place in six
/// hours, segments begin at others, too.
pub const SEGMENT_SAMPLES_MAX: usize = 1 << 19;

/// The least distance of pictures that are listed to be shown alone.
pub const PICTURE_NS: u64 = 1_000_000_000;

/// Why a film has no segments.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SegmentsError {
    /// None of its tracks can be cut.
    #[error("no track of it can be had in segments{0}")]
    Nothing(String),
    /// Its packets do not lie one behind the other, and a segment has too many.
    #[error(
        "its packets of 188 bytes have others between them (M2TS, or a Reed-Solomon code), and a \
         segment has more than {SEGMENT_SAMPLES_MAX} of them; ffmpeg -i IN -c copy OUT.ts takes \
         away what is between them"
    )]
    Stride,
    /// No program has been found in a transport stream.
    #[error("no program tables have been found in it")]
    NoProgram,
    /// It would have to be cut at too many places.
    #[error("it changes how it is coded at more than {SEGMENTS_MAX} places")]
    TooMany,
}

/// A film that is cut into segments.
#[derive(Clone, Debug)]
pub struct Segmented {
    /// Its renditions: pictures first. At least one.
    pub renditions: Vec<Rendition>,
    /// Tracks that are in none, and why.
    pub left_out: Vec<LeftOut>,
    /// Whether nothing can follow on the last segment.
    pub is_complete: bool,
}

/// One of the tracks of a film, or a transport stream with all it has.
#[derive(Clone, Debug)]
pub struct Rendition {
    /// What it is called in URLs: `video`, `audio`, `audio-2`, `stream`.
    pub name: String,
    /// What it is for.
    pub medium: Medium,
    /// How it is coded (RFC 6381), if that is known.
    pub codec: Option<String>,
    /// Pixels, as they are shown, turned as they are to be.
    pub dimensions: Option<(u32, u32)>,
    /// The dynamic range of pictures; of a transport stream that of the first, `None` if that does
    /// not tell it.
    pub video_range: Option<VideoRange>,
    /// Pictures a second, as a mean.
    pub frame_rate: Option<f64>,
    /// Channels of sound.
    pub channels: Option<u32>,
    /// Moments of sound a second.
    pub sample_rate_hz: Option<u32>,
    /// Its language, as the container spells it.
    pub language: Option<String>,
    /// Its name for people, as the container has it.
    pub label: Option<String>,
    /// Whether the file would have it played where nobody chooses among those of its kind.
    pub is_default: bool,
    /// Ticks a second of its times. Not 0.
    pub timescale: u32,
    /// Whether every segment begins where a decoder can start.
    pub is_independent: bool,
    /// What it takes to send it.
    pub rates: Rates,
    /// The same of its pictures alone. Each request for a playlist asks for it.
    picture_rates: Option<Rates>,
    /// Where each segment begins.
    starts: Vec<Start>,
    /// When the last one ends, in ticks.
    end_ticks: i64,
    /// The first of them that is not listed, because it may become longer.
    listed: usize,
    source: Source,
}

/// Where a segment begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Start {
    /// Its first sample, or packet.
    first: u64,
    /// When that is shown, in ticks from the beginning of the film. Ascending.
    ticks: i64,
}

#[derive(Clone, Debug)]
enum Source {
    Samples(sampled::Samples),
    Packets(ts::Packets),
}

/// How a rendition's segments are made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// CMAF: movie fragments (ISO/IEC 23000-19), with an initialization segment in front.
    Cmaf,
    /// MPEG transport stream (ISO/IEC 13818-1).
    Ts,
}

/// What is sent for a segment: bytes that are computed, and behind them pieces of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Segment {
    /// What is in front.
    pub head: Vec<u8>,
    /// Pieces of the file, in this order. None is empty.
    pub pieces: Vec<Range<u64>>,
}

/// A picture that can be shown without others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Picture {
    /// Its number, from 1 on.
    pub number: u64,
    /// Until the next one that is listed, in ticks.
    pub lasts_ticks: i64,
    /// Where it is, if it is no segment of its own: in a transport stream.
    pub part: Option<PicturePart>,
}

/// The part of a segment that has a picture, and perhaps other streams' packets between.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PicturePart {
    /// The number of the segment, from 1 on.
    pub segment: u64,
    /// Where in it the part begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

impl Segmented {
    /// Cuts a film into segments. If not all of the file is read, or it grows, `is_whole` is
    /// `false`: what is cut then stays as it is, and more may follow. Goes through all of the
    /// film's samples once. `read` gives the bytes of a part of the file, a few, where a decoder
    /// has to be told what the container does not say.
    ///
    /// # Errors
    ///
    /// If it has no segments.
    pub fn new(
        index: &Index,
        is_whole: bool,
        mut read: impl FnMut(Range<u64>) -> Option<Vec<u8>>,
    ) -> Result<Self, SegmentsError> {
        match index.as_sampled() {
            Some(of) => sampled::segmented(of, is_whole, &mut read),
            None => ts::segmented(index, is_whole, &mut read),
        }
    }

    /// The rendition of that name.
    #[must_use]
    pub fn rendition(&self, name: &str) -> Option<&Rendition> {
        self.renditions.iter().find(|it| it.name == name)
    }

    /// How long it is, in ns: its longest rendition.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let ends = self.renditions.iter().map(Rendition::duration_ns);
        ends.max().unwrap_or(0)
    }
}

impl Rendition {
    /// How its segments are made.
    #[must_use]
    pub fn format(&self) -> Format {
        match &self.source {
            Source::Samples(_) => Format::Cmaf,
            Source::Packets(_) => Format::Ts,
        }
    }

    /// How many segments it has that do not change any more. They are numbered from 1 on.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.listed
    }

    /// The numbers of the segments, from 1 on and in order, in front of which the time base of what
    /// they carry changes: decoders are told that times jump there (RFC 8216, section 4.3.2.3).
    /// Only transport streams have some, [`BREAKS_MAX`](super::ts::clock::BREAKS_MAX) at the most;
    /// of those beyond nothing is known.
    #[must_use]
    pub fn breaks(&self) -> &[u64] {
        match &self.source {
            Source::Samples(_) => &[],
            Source::Packets(packets) => packets.breaks(),
        }
    }

    /// Of each segment when it begins and how long it lasts, in ticks. The first begins at 0 or
    /// later.
    pub fn times(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        let ends = self.starts.iter().skip(1).map(|it| it.ticks);
        let times = self.starts.iter().zip(ends.chain([self.end_ticks]));
        let times = times.map(|(start, end)| (start.ticks, end - start.ticks));
        times.take(self.listed)
    }

    /// How long a player's time line of it is, in ns: from 0 to the end of the last segment; 0
    /// while there is none.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let end = match self.listed {
            0 => 0,
            listed => self
                .starts
                .get(listed)
                .map_or(self.end_ticks, |it| it.ticks),
        };
        ns(end, self.timescale)
    }

    /// The longest that a segment lasts, in ns; the first one counts from 0 on.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        let lengths = self
            .times()
            .enumerate()
            .map(|(at, (start, lasts))| match at {
                0 => start + lasts,
                _ => lasts,
            });
        ns(lengths.max().unwrap_or(0), self.timescale)
    }

    /// What a decoder is told in front of all segments; `None` if that is in each of them.
    #[must_use]
    pub fn init_segment(&self) -> Option<Vec<u8>> {
        match &self.source {
            Source::Samples(samples) => Some(samples.init_segment()),
            Source::Packets(_) => None,
        }
    }

    /// Segment number `number`, from 1 on, if there is one that does not change any more.
    #[must_use]
    pub fn segment(&self, number: u64) -> Option<Segment> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let start = self.starts.get(at).filter(|_| at < self.listed)?;
        let end = self.starts.get(at + 1).map(|it| it.first);
        let number = u32::try_from(number).ok()?;
        Some(match &self.source {
            Source::Samples(samples) => samples.segment(start.first, end, number),
            Source::Packets(packets) => packets.segment(start.first, end),
        })
    }

    /// How many samples, or packets, a segment has: what it takes to make it.
    #[must_use]
    pub fn weight(&self, number: u64) -> u64 {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let first = |at: usize| self.starts.get(at).map(|it| it.first);
        let start = at.checked_sub(1).and_then(first);
        let all = match &self.source {
            Source::Samples(samples) => samples.len(),
            // Its head is the same however many there are, and so are its ranges as a rule.
            Source::Packets(packets) => match packets.ranges() {
                Some(all) => all,
                None => return 0,
            },
        };
        start.map_or(0, |start| first(at).unwrap_or(all).saturating_sub(start))
    }

    /// How many bytes in front of each segment tell a decoder what all have in common, where that
    /// is not an [initialization segment](Self::init_segment).
    #[must_use]
    pub fn init_bytes(&self) -> Option<u64> {
        match &self.source {
            Source::Samples(_) => None,
            Source::Packets(packets) => Some(packets.init_bytes()),
        }
    }

    /// The pictures that can be shown alone, at least [`PICTURE_NS`] apart; none of sound.
    #[must_use]
    pub fn pictures(&self) -> Vec<Picture> {
        match &self.source {
            Source::Samples(samples) if self.medium == Medium::Video => samples.pictures(self),
            Source::Samples(_) => Vec::new(),
            Source::Packets(packets) => packets.pictures(self),
        }
    }

    /// A picture of [`Self::pictures`], or another that a decoder can start at, as a segment of
    /// its own: number `number`, from 1 on. `None` of those that are a [part](Picture::part) of
    /// one.
    #[must_use]
    pub fn picture(&self, number: u64) -> Option<Segment> {
        match &self.source {
            Source::Samples(samples) if self.medium == Medium::Video => samples.picture(number),
            _ => None,
        }
    }
}

impl Rendition {
    /// What it takes to send its [pictures](Self::pictures) alone; `None` if it has none.
    #[must_use]
    pub fn picture_rates(&self) -> Option<Rates> {
        self.picture_rates
    }

    /// The same, once it is known where it is cut.
    fn rates_of_pictures(&self) -> Option<Rates> {
        let pictures = self.pictures();
        if pictures.is_empty() {
            return None;
        }
        let bytes: Vec<_> = match &self.source {
            Source::Samples(samples) => samples.picture_bytes(&pictures),
            Source::Packets(_) => {
                let parts = pictures.iter().filter_map(|it| it.part);
                parts.map(|it| it.bytes).collect()
            }
        };
        let lasts = pictures.iter().map(|it| ns(it.lasts_ticks, self.timescale));
        let sizes: Vec<_> = bytes.into_iter().zip(lasts).collect();
        Some(Rates::of(&sizes))
    }
}

impl Segment {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.file_bytes()
    }

    /// Bytes of it that are in the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.pieces
            .iter()
            .map(|piece| piece.end - piece.start)
            .sum()
    }

    /// A part of it: what is computed, and pieces of the file. What is beyond its end is left out.
    #[must_use]
    pub fn part(&self, part: Range<u64>) -> (&[u8], Vec<Range<u64>>) {
        let head_bytes = self.head.len() as u64;
        let of_head = |at: u64| usize::try_from(at.min(head_bytes)).unwrap_or(usize::MAX);
        let head = &self.head[of_head(part.start)..of_head(part.end.max(part.start))];
        let mut pieces = Vec::new();
        let mut at = head_bytes;
        for piece in &self.pieces {
            let end = at + (piece.end - piece.start);
            let (from, to) = (part.start.max(at), part.end.min(end));
            if from < to {
                pieces.push(piece.start + (from - at)..piece.start + (to - at));
            }
            at = end;
        }
        (head, pieces)
    }
}

/// So many ticks in ns; 0 for what is negative.
fn ns(ticks: i64, timescale: u32) -> u64 {
    let ticks = u128::try_from(ticks.max(0)).unwrap_or(0);
    let ns = ticks * 1_000_000_000 / u128::from(timescale.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// How long segments of a film of that duration are to be.
fn target_ns(duration_ns: u64) -> u64 {
    TARGET_NS.max(duration_ns / SEGMENTS_MAX as u64)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
