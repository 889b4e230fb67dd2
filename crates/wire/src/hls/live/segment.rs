//! A segment of a live channel as it is kept.

use std::sync::Arc;

use crate::hls::Version;
use crate::media::live::{InitSegment, PartOf};

/// Breaks that are told in front of a segment, at the most. Where there were more since the one
/// before, playlists begin with this one, and the number of breaks that have gone tells of them.
pub(super) const BREAKS_TOLD_MAX: u64 = 16;

/// A segment that is to leave memory.
#[derive(Clone, Debug)]
pub struct Leaving {
    /// The number of its rendition.
    pub rendition: usize,
    /// Its own number.
    pub number: u64,
    /// Its bytes, one piece behind the other.
    pub parts: Vec<Arc<[u8]>>,
}

/// A picture of a channel, with what describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LivePoster {
    /// Of the segment that it begins.
    pub version: Version,
    /// Of the segment.
    pub number: u64,
    /// One behind the other.
    pub bytes: [Arc<[u8]>; 2],
}

/// What a path names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// These bytes, one behind the other.
    Bytes(Vec<Arc<[u8]>>),
    /// What was put there.
    Stored(Stored),
    /// It is to come next.
    Awaited,
    /// There is no such thing, or no more.
    Nothing,
}

/// Where a segment was put that memory was too small for. What the numbers mean, knows who put it
/// there; files have higher numbers than those before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stored {
    /// The number of a file.
    pub file: u64,
    /// Where in the file it begins.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Where a period of the manifest begins without a discontinuity: the other rendition has paused,
/// or is back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cut {
    /// When its first segment begins, in ns since 1970.
    pub(super) starts_ns: i64,
    /// Whether the other one has paused.
    pub(super) is_alone: bool,
}

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) version: Version,
    pub(super) init: Arc<InitSegment>,
    /// Bytes of that, if the segment before it was described otherwise: they count as its own.
    pub(super) init_bytes: usize,
    /// How many breaks there were before it, and how many of them are in front of it.
    pub(super) breaks: u64,
    pub(super) new_breaks: u64,
    /// When the first segment since the last break before it begins, in ns since 1970.
    pub(super) break_unix_ns: i64,
    /// Where its period begins, if that is not at the last break.
    pub(super) cut: Option<Cut>,
    /// When it begins itself: in ns since 1970, and in ticks of its media.
    pub(super) starts_unix_ns: i64,
    pub(super) starts_ticks: i64,
    /// How long it lasts, in ticks.
    pub(super) ticks: i64,
    /// Whether a decoder can start where it begins.
    pub(super) is_independent: bool,
    pub(super) parts: Vec<PartOf>,
    pub(super) is_complete: bool,
    pub(super) lasts_us: u64,
    pub(super) samples: u64,
    pub(super) bytes: usize,
    /// Where it is, if that is not in memory: then it has no parts.
    pub(super) stored: Option<Stored>,
}

impl Segment {
    /// When it ends, in ns since 1970.
    pub(super) fn ends_unix_ns(&self) -> i64 {
        let lasts_ns = i64::try_from(self.lasts_us.saturating_mul(1000)).unwrap_or(i64::MAX);
        self.starts_unix_ns.saturating_add(lasts_ns)
    }

    /// The middle of it.
    pub(super) fn middle_unix_ns(&self) -> i64 {
        self.starts_unix_ns / 2 + self.ends_unix_ns() / 2
    }

    /// How many breaks are told in front of it.
    pub(super) fn told_breaks(&self) -> u64 {
        match self.new_breaks {
            told @ ..=BREAKS_TOLD_MAX => told,
            _ => 0,
        }
    }
}
