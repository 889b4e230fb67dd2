//! A segment of a live channel as it is kept.

use std::sync::Arc;

use crate::hls::Version;
use crate::media::live::{InitSegment, PartOf};

/// Breaks that are told in front of a segment, at the most. Where there were more since the one
/// before, playlists begin with this one, and the number of breaks that have gone tells of them.
pub(super) const BREAKS_TOLD_MAX: u64 = 16;

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

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) version: Version,
    pub(super) init: Arc<InitSegment>,
    /// How many breaks there were before it, and how many of them are in front of it.
    pub(super) breaks: u64,
    pub(super) new_breaks: u64,
    /// When the first segment since the last break before it begins, in ns since 1970.
    pub(super) break_unix_ns: i64,
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
    /// How many breaks are told in front of it.
    pub(super) fn told_breaks(&self) -> u64 {
        match self.new_breaks {
            told @ ..=BREAKS_TOLD_MAX => told,
            _ => 0,
        }
    }
}
