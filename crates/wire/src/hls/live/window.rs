//! What is kept of a live channel: segments and their parts, the newest last.
//!
//! A segment is listed while it, and what follows, last no longer than the window and have no more
//! than half of the bytes. It is kept for as long again, so that who has read of it in a playlist
//! finds it (section 6.2.2). What is given out is shared: nobody who reads makes it more.
//!
//! What memory is too small for may be put elsewhere: the window says which segment is to leave
//! ([`Window::leaving`]) and is told where it went ([`Window::has_stored`]), or that there is no
//! place for it, which makes the window shorter.

use std::collections::VecDeque;
use std::sync::Arc;

use super::pauses::{Beside, mark};
use super::segment::{BREAKS_TOLD_MAX, Found, Leaving, LivePoster, Segment, Stored};
use super::{BadReload, Reload};
use crate::hls::Version;
use crate::media::Medium;
use crate::media::live::{InitSegment, LiveRendition, Output, PartOf};
use crate::media::segments::Format;

/// Parts are listed of what is so many target durations from the end (section 4.4.4.9).
pub(super) const PARTS_TARGETS: u64 = 3;

/// Parts of a segment at the most; what is beyond makes a segment of its own.
const PARTS_MAX: usize = 1024;

/// Segments of a second of the window, and of what is kept behind it, at the most: shorter ones
/// count as if they lasted so long. They end where pictures are described anew and where clocks
/// jump, at each picture if a publisher likes; and all of them are walked through, and written
/// into playlists, again and again.
pub const SEGMENTS_PER_SECOND_MAX: u64 = 4;

/// So long does each count at the least, in us.
const SEGMENT_KEPT_US_MIN: u64 = 1_000_000 / SEGMENTS_PER_SECOND_MAX;

/// How much is kept, and how it is named.
#[derive(Clone, Copy, Debug)]
pub struct WindowSettings {
    /// How long a playlist is, in us.
    pub window_us: u64,
    /// Bytes of all that is kept in memory.
    pub bytes_max: usize,
    /// Bytes of segments that are put elsewhere; 0 if nothing is.
    pub stored_bytes_max: u64,
    /// The number of the first segment. Higher than those of a window before, for whoever goes on
    /// with its playlist: seconds since 1970.
    pub first_number: u64,
    /// The number of the first discontinuity: another than those of a window before, and small,
    /// because players keep something for each number from 0 on.
    pub first_break: u64,
    /// What versions in URLs begin with.
    pub version: u64,
}

/// A channel's segments.
#[derive(Debug)]
pub struct Window {
    pub(super) settings: WindowSettings,
    pub(super) renditions: Vec<Kept>,
    pub(super) part_us: u64,
    pub(super) target_s: Option<u64>,
    /// When the first part of all begins, in ms since 1970.
    pub(super) starts_unix_ms: Option<i64>,
    bytes: usize,
}

/// One rendition.
#[derive(Debug)]
pub struct Kept {
    /// What it is.
    pub of: LiveRendition,
    pub(super) segments: VecDeque<Segment>,
    /// How many at the front are kept and not listed.
    pub(super) unlisted: usize,
    first_number: u64,
    next_number: u64,
    /// Breaks in front of the next segment, and those that there were before it.
    next_breaks: u64,
    breaks: u64,
    /// How many there were before its first segment of all.
    first_break: u64,
    /// When the first segment since the last break begins, in ns since 1970.
    break_unix_ns: i64,
    version: Version,
    init: Arc<InitSegment>,
    /// Bytes of it in memory, and of what is stored.
    bytes: usize,
    stored_bytes: u64,
}

impl Window {
    /// An empty one of these renditions.
    #[must_use]
    pub fn new(settings: WindowSettings, renditions: Vec<LiveRendition>) -> Self {
        let kept = |of| Kept {
            of,
            segments: VecDeque::new(),
            unlisted: 0,
            first_number: settings.first_number,
            next_number: settings.first_number,
            next_breaks: 0,
            breaks: settings.first_break,
            first_break: settings.first_break,
            break_unix_ns: 0,
            version: Version(settings.version),
            init: Arc::default(),
            bytes: 0,
            stored_bytes: 0,
        };
        Self {
            settings,
            renditions: renditions.into_iter().map(kept).collect(),
            part_us: crate::media::live::PART_US,
            target_s: None,
            starts_unix_ms: None,
            bytes: 0,
        }
    }

    /// Takes what a cutter tells. Whether a playlist has changed by it.
    pub fn apply(&mut self, output: Output) -> bool {
        match output {
            Output::PartTarget(us) => self.part_us = us,
            Output::Target(seconds) => self.target_s = Some(seconds),
            Output::Break { rendition, breaks } => {
                if let Some(kept) = self.renditions.get_mut(rendition) {
                    kept.next_breaks = kept.next_breaks.saturating_add(breaks);
                }
            }
            Output::Init { rendition, init } => {
                if let Some(kept) = self.renditions.get_mut(rendition) {
                    kept.describe(init);
                }
            }
            Output::Part { rendition, part } => {
                let Some(kept) = self.renditions.get_mut(rendition) else {
                    return false;
                };
                let starts_ms = part.starts_unix_ns.div_euclid(1_000_000);
                self.starts_unix_ms.get_or_insert(starts_ms);
                self.bytes += kept.push(part);
                self.evict();
                return true;
            }
            Output::SegmentEnd { rendition } => {
                let others = self.renditions.iter().enumerate();
                let mut others = others.filter(|(number, _)| *number != rendition);
                let beside = others.find_map(|(_, it)| it.newest_whole().map(Beside::of));
                if let Some(kept) = self.renditions.get_mut(rendition) {
                    kept.end_segment(beside, self.target_s);
                }
                self.evict();
                return true;
            }
        }
        false
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are stored elsewhere.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.renditions.iter().map(|it| it.stored_bytes).sum()
    }

    /// What playlists of the first rendition list: how long that lasts in us, segments, and parts
    /// of theirs that are in memory.
    #[must_use]
    pub fn listed(&self) -> (u64, usize, usize) {
        let listed = self.renditions.first().map(|it| it.listed());
        listed.into_iter().flatten().fold((0, 0, 0), |sum, it| {
            (sum.0 + it.lasts_us, sum.1 + 1, sum.2 + it.parts.len())
        })
    }

    /// The number of the first file that has something of it.
    #[must_use]
    pub fn first_file(&self) -> Option<u64> {
        // The oldest leave memory first, and each file is newer than those before.
        let first = |kept: &Kept| kept.segments.iter().find_map(|it| Some(it.stored?.file));
        self.renditions.iter().filter_map(first).min()
    }

    /// The segment that is to leave memory next: the oldest there, of the rendition that has most
    /// above its share of half the bytes. What is so new that its parts are listed stays.
    #[must_use]
    pub fn leaving(&self) -> Option<Leaving> {
        if self.settings.stored_bytes_max == 0 || self.bytes <= self.settings.bytes_max / 2 {
            return None;
        }
        let new_us = PARTS_TARGETS * self.target_s? * 1_000_000;
        let share = self.settings.bytes_max / 2 / self.renditions.len().max(1);
        let of_most = self.renditions.iter().enumerate();
        let (rendition, kept) = of_most.max_by_key(|(_, it)| it.bytes.saturating_sub(share))?;
        let at = kept.segments.iter().position(|it| it.stored.is_none())?;
        let behind = kept.segments.iter().skip(at + 1).map(|it| it.lasts_us);
        let oldest = &kept.segments[at];
        let is_old = oldest.is_complete && behind.sum::<u64>() >= new_us;
        is_old.then(|| Leaving {
            rendition,
            number: oldest.number,
            parts: oldest
                .parts
                .iter()
                .map(|it| Arc::clone(&it.bytes))
                .collect(),
        })
    }

    /// A segment was put there; it leaves memory, if it is in the window still.
    pub fn has_stored(&mut self, leaving: &Leaving, stored: Stored) {
        let Some(kept) = self.renditions.get_mut(leaving.rendition) else {
            return;
        };
        let Some(segment) = kept.find_mut(leaving.number) else {
            return;
        };
        if segment.stored.replace(stored).is_none() {
            segment.parts = Vec::new();
            let bytes = segment.bytes;
            kept.bytes -= bytes;
            self.bytes -= bytes;
            kept.stored_bytes += stored.bytes;
        }
        self.evict();
    }

    /// Nothing can be stored now: a quarter of what is stored goes, so that there is room. Whether
    /// a playlist has changed by it.
    pub fn could_not_store(&mut self) -> bool {
        let before = self.stored_bytes();
        for kept in &mut self.renditions {
            let stored = kept.segments.iter().filter(|it| it.stored.is_some());
            let count = stored.count();
            self.bytes -= kept.drop_first(count.div_ceil(4));
        }
        self.stored_bytes() != before
    }

    /// Its renditions.
    #[must_use]
    pub fn renditions(&self) -> &[Kept] {
        &self.renditions
    }

    /// Whether each rendition has a whole segment, so that there are playlists; without those that
    /// have none while another has three.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // None is looked at: each request asks, and a window may have thousands.
        let complete = |kept: &Kept| kept.segments.len() - usize::from(kept.is_open());
        let most = self.renditions.iter().map(complete).max().unwrap_or(0);
        let is_ready = |kept: &Kept| kept.has_whole() || most >= 3;
        self.target_s.is_some() && most > 0 && self.renditions.iter().all(is_ready)
    }

    /// Seconds of the target duration, once it is known.
    #[must_use]
    pub fn target_s(&self) -> Option<u64> {
        self.target_s
    }

    /// Whether a playlist has what a reload waits for.
    ///
    /// # Errors
    ///
    /// [`BadReload::TooFar`].
    pub fn has(&self, rendition: &str, reload: &Reload) -> Result<bool, BadReload> {
        let Some((segment, part)) = reload.until else {
            return Ok(true);
        };
        let Some(kept) = self.kept(rendition) else {
            return Ok(true);
        };
        let newest = kept.newest_number();
        // "greater than the last Media Sequence Number ... plus two" (section 6.2.5.2).
        if segment > newest.saturating_add(2) {
            return Err(BadReload::TooFar);
        }
        let (open, parts) = kept.hint();
        Ok(match part {
            _ if segment > open => false,
            None => segment < open,
            Some(part) if segment == open => part < parts,
            // What is beyond a segment's last part is the first of the next one (section 6.2.5.2).
            Some(part) if segment + 1 == open => {
                let of = kept.find(segment).map_or(0, |it| it.parts.len() as u64);
                part < of || parts > 0
            }
            Some(_) => true,
        })
    }

    /// The initialization segment of that version.
    #[must_use]
    pub fn init(&self, rendition: &str, version: Version) -> Option<Arc<[u8]>> {
        let kept = self.kept(rendition)?;
        if kept.version == version && !kept.init.bytes.is_empty() {
            return Some(Arc::clone(&kept.init.bytes));
        }
        let of = kept.segments.iter().find(|it| it.version == version)?;
        Some(Arc::clone(&of.init.bytes)).filter(|bytes| !bytes.is_empty())
    }

    /// A whole segment.
    #[must_use]
    pub fn segment(&self, rendition: &str, version: Version, number: u64) -> Found {
        let found = self.kept(rendition).and_then(|kept| kept.find(number));
        match found {
            Some(it) if it.version == version && it.is_complete => {
                if let Some(stored) = it.stored {
                    return Found::Stored(stored);
                }
                Found::Bytes(it.parts.iter().map(|it| Arc::clone(&it.bytes)).collect())
            }
            _ => Found::Nothing,
        }
    }

    /// A part of one; the one that is hinted at is awaited.
    #[must_use]
    pub fn part(&self, rendition: &str, version: Version, number: u64, part: u64) -> Found {
        let Some(kept) = self.kept(rendition) else {
            return Found::Nothing;
        };
        if kept.version == version && kept.hint() == (number, part) {
            return Found::Awaited;
        }
        let segment = kept.find(number).filter(|it| it.version == version);
        let part = usize::try_from(part).ok();
        let found = segment.and_then(|it| it.parts.get(part?));
        found.map_or(Found::Nothing, |it| {
            Found::Bytes(vec![Arc::clone(&it.bytes)])
        })
    }

    /// Whether it has pictures that are shown as a film of their own.
    #[must_use]
    pub fn has_posters(&self) -> bool {
        self.pictures().is_some()
    }

    /// The newest segment that begins with a picture that can be shown alone: what describes it,
    /// and its first part. What is new has its parts in memory.
    #[must_use]
    pub fn poster(&self) -> Option<LivePoster> {
        let segments = self.pictures()?.segments.iter().rev();
        let mut begun = segments.filter_map(|it| Some((it, it.parts.first()?)));
        let (segment, first) = begun.find(|(segment, _)| segment.is_independent)?;
        Some(LivePoster {
            version: segment.version,
            number: segment.number,
            bytes: [Arc::clone(&segment.init.bytes), Arc::clone(&first.bytes)],
        })
    }

    fn pictures(&self) -> Option<&Kept> {
        let mut all = self.renditions.iter();
        all.find(|it| it.of.medium == Medium::Video && it.of.format == Format::Cmaf)
    }

    /// The rendition of that name.
    #[must_use]
    pub fn kept(&self, rendition: &str) -> Option<&Kept> {
        self.renditions.iter().find(|it| it.of.name == rendition)
    }

    fn evict(&mut self) {
        let WindowSettings {
            window_us,
            bytes_max,
            stored_bytes_max,
            ..
        } = self.settings;
        let renditions = self.renditions.len().max(1);
        let (share, stored_share) = (bytes_max / renditions, stored_bytes_max / renditions as u64);
        // A rendition of sound leaves the others what it does not need.
        let sizes = self.renditions.iter().map(|it| (it.bytes, it.stored_bytes));
        let sizes: Vec<_> = sizes.collect();
        for (number, kept) in self.renditions.iter_mut().enumerate() {
            let of_others = sizes.iter().enumerate().filter(|(at, _)| *at != number);
            let (others, stored) =
                of_others.fold((0, 0), |sum, (_, it)| (sum.0 + it.0, sum.1 + it.1));
            let own_max = bytes_max.saturating_sub(others).max(share);
            let stored_max = stored_bytes_max.saturating_sub(stored).max(stored_share);
            self.bytes -= kept.evict(window_us, own_max, stored_max);
        }
    }
}

impl Kept {
    fn describe(&mut self, init: Arc<InitSegment>) {
        if *self.init == *init {
            return;
        }
        if !self.init.bytes.is_empty() {
            self.version = Version(self.version.0.wrapping_add(1));
        }
        self.init = init;
    }

    /// The breaks in front of the segment that begins now, which are counted then. They are the
    /// same in all renditions of a channel (section 6.2.4), whichever has begun late or paused.
    fn take_breaks(&mut self) -> u64 {
        let new = std::mem::take(&mut self.next_breaks);
        self.breaks = self.breaks.saturating_add(new);
        if self.next_number == self.first_number {
            self.first_break = self.breaks;
            return 0;
        }
        if new > BREAKS_TOLD_MAX {
            self.unlisted = self.segments.len();
        }
        new
    }

    /// Takes a part: the bytes that are more in memory.
    fn push(&mut self, part: PartOf) -> usize {
        let mut bytes = part.bytes.len();
        if !self.is_open() {
            let new_breaks = self.take_breaks();
            if new_breaks > 0 || self.next_number == self.first_number {
                self.break_unix_ns = part.starts_unix_ns;
            }
            let last = self.segments.back();
            let init_bytes = match last {
                Some(last) if Arc::ptr_eq(&last.init, &self.init) => 0,
                _ => self.init.bytes.len(),
            };
            bytes += init_bytes;
            let period = last.filter(|it| it.breaks == self.breaks);
            let cut = period.and_then(|it| it.cut);
            self.segments.push_back(Segment {
                number: self.next_number,
                version: self.version,
                init: Arc::clone(&self.init),
                init_bytes,
                breaks: self.breaks,
                new_breaks,
                break_unix_ns: self.break_unix_ns,
                cut,
                starts_unix_ns: part.starts_unix_ns,
                starts_ticks: part.starts_ticks,
                ticks: 0,
                is_independent: part.begins_with_sync,
                parts: Vec::new(),
                is_complete: false,
                lasts_us: 0,
                samples: 0,
                bytes: 0,
                stored: None,
            });
            self.next_number += 1;
        }
        self.bytes += bytes;
        let Some(segment) = self.segments.back_mut() else {
            return bytes;
        };
        segment.bytes += part.bytes.len();
        segment.lasts_us += part.lasts_us;
        segment.samples += u64::from(part.samples);
        segment.ticks = segment.ticks.saturating_add(part.ticks);
        segment.parts.push(part);
        segment.is_complete = segment.parts.len() >= PARTS_MAX;
        bytes
    }

    /// Its last segment is whole, `beside` the newest of another rendition.
    fn end_segment(&mut self, beside: Option<Beside>, target_s: Option<u64>) {
        if let Some(last) = self.segments.back_mut() {
            last.is_complete = true;
        }
        if let Some(beside) = beside {
            let is_pictures = self.of.medium == Medium::Video;
            mark(&mut self.segments, is_pictures, beside, target_s);
        }
    }

    /// The bytes that went of memory.
    fn evict(&mut self, window_us: u64, bytes_max: usize, stored_max: u64) -> usize {
        let all_max = bytes_max as u64 + stored_max;
        // From the newest on: how many are listed, and how many are kept.
        let (mut us, mut bytes, mut stored, mut listed, mut kept) = (0_u64, 0, 0, 0, 0);
        for segment in self.segments.iter().rev() {
            bytes += segment.init_bytes;
            match segment.stored {
                Some(it) => stored += it.bytes,
                None => bytes += segment.bytes,
            }
            // What is written, and the last whole one, are always there.
            let is_needed = kept < 2;
            if us < window_us && bytes as u64 + stored <= all_max / 2 || is_needed {
                listed = kept + 1;
            }
            let has_room = bytes <= bytes_max && stored <= stored_max;
            let is_kept = us < window_us.saturating_mul(2) && has_room;
            if !is_kept && !is_needed {
                break;
            }
            kept += 1;
            us += segment.lasts_us.max(SEGMENT_KEPT_US_MIN);
        }
        // What was not listed any more does not come back.
        let before = self.segments.len();
        self.unlisted = self.unlisted.max(before.saturating_sub(listed));
        self.drop_first(before - kept)
    }

    /// Drops so many of the oldest: the bytes that went of memory.
    fn drop_first(&mut self, count: usize) -> usize {
        let (mut bytes, mut stored) = (0, 0);
        for segment in self.segments.drain(..count) {
            bytes += segment.init_bytes;
            match segment.stored {
                Some(it) => stored += it.bytes,
                None => bytes += segment.bytes,
            }
        }
        self.bytes -= bytes;
        self.stored_bytes -= stored;
        self.unlisted = self.unlisted.saturating_sub(count);
        bytes
    }

    /// Whether its newest segment is written still. All before it are whole.
    fn is_open(&self) -> bool {
        self.segments.back().is_some_and(|it| !it.is_complete)
    }

    /// Whether a segment of it is whole; what has none is in no playlist yet.
    pub(super) fn has_whole(&self) -> bool {
        self.newest_whole().is_some()
    }

    /// The newest of those.
    fn newest_whole(&self) -> Option<&Segment> {
        self.segments.iter().rev().find(|it| it.is_complete)
    }

    /// The number of its first segment of all.
    pub(super) fn first_number(&self) -> u64 {
        self.first_number
    }

    /// How many breaks there were before that.
    pub(super) fn first_break(&self) -> u64 {
        self.first_break
    }

    /// The number of the segment that is written, or of the last.
    pub(super) fn newest_number(&self) -> u64 {
        let last = self.segments.back().map(|it| it.number);
        last.unwrap_or_else(|| self.next_number.saturating_sub(1))
    }

    /// Segment and part that come next.
    pub(super) fn hint(&self) -> (u64, u64) {
        match self.segments.back().filter(|it| !it.is_complete) {
            Some(open) => (open.number, open.parts.len() as u64),
            None => (self.next_number, 0),
        }
    }

    /// What its next segment is described by.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// What its newest segment is described by.
    #[must_use]
    pub fn init(&self) -> &InitSegment {
        &self.init
    }

    /// The segments that playlists list.
    pub(super) fn listed(&self) -> impl DoubleEndedIterator<Item = &Segment> + Clone {
        self.segments.iter().skip(self.unlisted)
    }

    fn find(&self, number: u64) -> Option<&Segment> {
        self.segments.get(self.position(number)?)
    }

    fn find_mut(&mut self, number: u64) -> Option<&mut Segment> {
        let at = self.position(number)?;
        self.segments.get_mut(at)
    }

    fn position(&self, number: u64) -> Option<usize> {
        let first = self.segments.front()?.number;
        usize::try_from(number.checked_sub(first)?).ok()
    }
}
