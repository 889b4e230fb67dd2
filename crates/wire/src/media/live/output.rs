//! What a live cutter tells.

use std::sync::Arc;

use crate::media::colour::VideoRange;
use crate::media::segments::Format;
use crate::media::track::Medium;

/// A rendition that is made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LiveRendition {
    /// `video`, `audio`, or `stream` of a transport stream.
    pub name: &'static str,
    /// What it is for.
    pub medium: Medium,
    /// How its segments are made.
    pub format: Format,
}

/// What all segments have in common until something else is told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct InitSegment {
    /// The initialization segment; of a transport stream nothing.
    pub bytes: Arc<[u8]>,
    /// As in RFC 6381, where it is known.
    pub codec: Option<String>,
    /// Pixels of pictures.
    pub dimensions: Option<(u32, u32)>,
    /// The dynamic range of pictures; of a transport stream `None`.
    pub video_range: Option<VideoRange>,
    /// Channels of sound.
    pub channels: Option<u8>,
    /// Ticks a second of the times in its segments; 0 of a transport stream.
    pub timescale: u32,
}

/// A part of a segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PartOf {
    /// All of it. What parts have one behind the other is their segment.
    pub bytes: Arc<[u8]>,
    /// How long it lasts, in us, so that roundings do not add up.
    pub lasts_us: u64,
    /// When it begins to be shown, in ns since 1970.
    pub starts_unix_ns: i64,
    /// The same in ticks, as its samples say it: of [`InitSegment::timescale`], of a transport
    /// stream in us.
    pub starts_ticks: i64,
    /// How long it lasts, likewise.
    pub ticks: i64,
    /// Whether a decoder can start in it.
    pub is_independent: bool,
    /// Whether it can where it begins.
    pub begins_with_sync: bool,
    /// Samples of it, for the frame rate.
    pub samples: u32,
}

/// What a cutter tells, in this order for each rendition: `Parts`, then for each segment perhaps
/// `Break`, perhaps `Init`, its parts, and its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Parts are not longer than so many us; of all renditions, once, before everything else.
    PartTarget(u64),
    /// Segments are not longer than so many seconds, rounded; once, with the first segment's end.
    Target(u64),
    /// What follows does not go on where that before has ended.
    Break {
        /// The rendition's number.
        rendition: usize,
        /// How many of the channel's breaks that is: more than one, if between them nothing came of
        /// this rendition. Where the renditions of a channel are at the same time, they have had as
        /// many.
        breaks: u64,
    },
    /// What follows is described so.
    Init {
        /// The rendition's number.
        rendition: usize,
        /// How.
        init: Arc<InitSegment>,
    },
    /// A part is complete.
    Part {
        /// The rendition's number.
        rendition: usize,
        /// It.
        part: PartOf,
    },
    /// The segment that its last part belongs to is complete.
    SegmentEnd {
        /// The rendition's number.
        rendition: usize,
    },
}
