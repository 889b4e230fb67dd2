//! The way through a file: from one element's head to the next.
//!
//! What a level below says of its size is believed as far as the level above has room for it; where
//! the bytes are none of the elements that may be there, the next cluster is searched for.

use std::ops::Range;

use super::MatroskaError;
use super::block;
use super::ebml::{self, Head, id};
use super::notes::Notes;
use super::playing::{Block, Playing};
use super::segment::{self, Info};
use crate::media::sampled::SampledIndex;

/// Bytes that are asked for where an element may begin: enough for the heads of it and of a block,
/// and for what stands before most first NAL units.
const HEAD_BYTES: usize = 32;

/// Bytes of an element that is read as a whole, at the most.
const BODY_BYTES_MAX: u64 = 4 << 20;

/// How far the next cluster is searched for.
const SEARCH_BYTES_MAX: u64 = 16 << 20;

/// Bytes that are searched at once.
const SEARCH_BYTES: usize = 64 << 10;

/// A file that begins later than this, by its first cluster, is of a time line that began before
/// it: its own start is taken for 0.
const BASE_NS: u64 = 1_000_000_000;

/// What is done with the next bytes.
#[derive(Clone, Debug)]
enum Reading {
    /// They are an element's head.
    Head,
    /// They are the body of such an element, of so many bytes.
    Body(u32, usize),
    /// They tell of the parts of a block's frames; the block ends there.
    Parts(Block, u64),
    /// A cluster is searched in them, from there on.
    Search(u64),
    /// Nothing: there is no more to know.
    Over,
}

/// What became of some bytes.
enum Step {
    /// The next bytes that matter are there.
    To(u64),
    /// So many are needed from where they begin, or as many as there are.
    More(usize),
}

/// A cluster that is being gone through.
#[derive(Clone, Debug)]
struct Cluster {
    /// Where it ends, if it says.
    end: Option<u64>,
    timestamp: Option<u64>,
}

/// A `BlockGroup` that is being gone through.
#[derive(Clone, Debug)]
struct Group {
    end: u64,
    block: Option<Block>,
    lasts: Option<u64>,
    has_reference: bool,
}

/// Goes through a file.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Where the next byte is that matters, what has come from there on, and how many bytes are
    /// needed from there on, at least and at most.
    at: u64,
    carry: Vec<u8>,
    need: Range<usize>,
    reading: Reading,
    /// A block that ends with the next byte. It is certain when that byte has come.
    ending: Option<Block>,
    format: Option<&'static str>,
    segment_start: Option<u64>,
    /// Where it ends, if it says.
    segment_end: Option<u64>,
    /// How long the file was when it was asked last.
    file_bytes: u64,
    cluster: Option<Cluster>,
    group: Option<Group>,
    info: Info,
    /// Where `SeekHead` says that `Tracks` is; and where to go on when that is read.
    tracks_at: Option<u64>,
    back_to: Option<u64>,
    playing: Option<Playing>,
    /// What is subtracted from times, in units of the file.
    base: Option<u64>,
    /// Memory that is used again.
    frames: Vec<Range<u64>>,
    notes: Notes,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            at: 0,
            carry: Vec::new(),
            need: 1..HEAD_BYTES,
            reading: Reading::Head,
            ending: None,
            format: None,
            segment_start: None,
            segment_end: None,
            file_bytes: 0,
            cluster: None,
            group: None,
            info: Info::default(),
            tracks_at: None,
            back_to: None,
            playing: None,
            base: None,
            frames: Vec::new(),
            notes: Notes::default(),
        }
    }
}

impl Walk {
    pub(super) fn wants(&mut self, file_bytes: u64) -> Option<Range<u64>> {
        self.file_bytes = file_bytes;
        let start = self.at + self.carry.len() as u64;
        let end = (self.at + self.need.end as u64).min(file_bytes);
        let wants = !matches!(self.reading, Reading::Over) && start < end;
        wants.then_some(start..end)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), MatroskaError> {
        let joined;
        let mut data = bytes;
        if !self.carry.is_empty() {
            self.carry.extend_from_slice(bytes);
            if self.carry.len() < self.need.start {
                return Ok(());
            }
            joined = std::mem::take(&mut self.carry);
            data = &joined;
        }
        loop {
            match self.step(data)? {
                Step::To(to) => {
                    let ahead = to.checked_sub(self.at);
                    let ahead = ahead.and_then(|ahead| usize::try_from(ahead).ok());
                    data = ahead.and_then(|it| data.get(it..)).unwrap_or_default();
                    self.at = to;
                }
                Step::More(need) => {
                    self.carry.extend_from_slice(&data[..data.len().min(need)]);
                    return Ok(());
                }
            }
        }
    }

    /// Does what can be done with the bytes from `self.at` on.
    fn step(&mut self, data: &[u8]) -> Result<Step, MatroskaError> {
        if let Some(block) = self.ending.take() {
            if data.is_empty() {
                self.ending = Some(block);
                return Ok(self.more(1, HEAD_BYTES));
            }
            match (&mut self.group, &mut self.playing) {
                (Some(group), _) => group.block = Some(block),
                (None, Some(playing)) => playing.add(block),
                (None, None) => {}
            }
            return Ok(Step::To(self.at + 1));
        }
        match &self.reading {
            Reading::Head => self.head(data),
            &Reading::Body(id, bytes) => match data.get(..bytes) {
                Some(body) => self.body(id, body),
                None => Ok(self.more(bytes, bytes)),
            },
            Reading::Parts(..) => Ok(self.parts(data)),
            &Reading::Search(from) => Ok(self.search(data, from)),
            Reading::Over => Ok(self.more(0, 0)),
        }
    }

    fn more(&mut self, least: usize, most: usize) -> Step {
        self.need = least..most;
        Step::More(most)
    }

    /// An element's head, or what is above it ends here.
    fn head(&mut self, data: &[u8]) -> Result<Step, MatroskaError> {
        if let Some(group) = self.group.take_if(|group| group.end <= self.at) {
            self.close(group);
        }
        self.cluster
            .take_if(|cluster| cluster.end.is_some_and(|end| end <= self.at));
        let is_past = self.segment_end.is_some_and(|end| end <= self.at)
            && self.back_to.is_none()
            && self.playing.is_some();
        let head = match ebml::head(data) {
            Ok(Some(head)) if !is_past || matches!(head.id, id::EBML | id::SEGMENT) => head,
            Ok(None) => return Ok(self.more(1, HEAD_BYTES)),
            // What was told of the end is all: whoever asked then was told that nothing follows.
            Ok(Some(_)) | Err(_) if is_past => {
                self.end("what follows its segment is not played");
                return Ok(Step::To(self.at));
            }
            Ok(Some(_)) | Err(_) => return self.damage(),
        };
        if self.back_to.is_some() && head.id != id::TRACKS {
            return Err(MatroskaError::TracksLate);
        }
        if self.group.is_some() {
            return self.in_group(head, data);
        }
        if let Some(cluster) = &self.cluster {
            if !ebml::is_of_segment(head.id) {
                let end = cluster.end;
                return self.in_cluster(head, end, data);
            }
            // It says nothing of its size, or what it says is not so.
            if self
                .cluster
                .take()
                .is_some_and(|cluster| cluster.end.is_some())
            {
                self.notes.damage(self.at);
            }
        }
        self.in_segment(head)
    }

    fn close(&mut self, group: Group) {
        if let (Some(mut block), Some(playing)) = (group.block, &mut self.playing) {
            block.lasts = group.lasts;
            block.is_sync |= !group.has_reference;
            playing.add(block);
        }
    }

    fn body_start(&self, head: Head) -> u64 {
        self.at + head.head_bytes as u64
    }

    fn in_segment(&mut self, head: Head) -> Result<Step, MatroskaError> {
        let start = self.body_start(head);
        if self.format.is_none() && head.id != id::EBML {
            return Err(MatroskaError::Header("no EBML header".into()));
        }
        let is_first = match head.id {
            id::EBML => self.format.is_none(),
            id::SEGMENT => self.segment_start.is_none(),
            _ => true,
        };
        if !is_first {
            self.end("only the first of its segments is played");
            return Ok(Step::To(start));
        }
        if head.id == id::SEGMENT {
            self.segment_start = Some(start);
            self.segment_end = head.body_bytes.map(|bytes| start + bytes);
            return Ok(Step::To(start));
        }
        if head.id == id::CLUSTER && self.segment_start.is_some() {
            return self.enter_cluster(head, start);
        }
        let Some(bytes) = head.body_bytes else {
            return self.damage();
        };
        let is_read = match head.id {
            id::EBML => true,
            id::SEEK_HEAD | id::INFO => self.playing.is_none() && bytes <= BODY_BYTES_MAX,
            id::TRACKS => self.playing.is_none(),
            id::CUES | id::CHAPTERS | id::ATTACHMENTS | id::TAGS | id::VOID | id::CRC_32 => false,
            _ => return self.damage(),
        };
        if !is_read {
            return Ok(Step::To(start + bytes));
        }
        match usize::try_from(bytes)
            .ok()
            .filter(|_| bytes <= BODY_BYTES_MAX)
        {
            Some(bytes) => self.reading = Reading::Body(head.id, bytes),
            None => return Err(MatroskaError::Large { bytes }),
        }
        Ok(Step::To(start))
    }

    fn enter_cluster(&mut self, head: Head, start: u64) -> Result<Step, MatroskaError> {
        if self.playing.is_none() {
            let tracks_at = self.tracks_at.take().ok_or(MatroskaError::TracksLate)?;
            self.back_to = Some(self.at);
            return Ok(Step::To(tracks_at));
        }
        self.cluster = Some(Cluster {
            end: head.body_bytes.map(|bytes| start + bytes),
            timestamp: None,
        });
        Ok(Step::To(start))
    }

    /// An element that was read as a whole.
    fn body(&mut self, id: u32, body: &[u8]) -> Result<Step, MatroskaError> {
        self.reading = Reading::Head;
        let end = self.at + body.len() as u64;
        match id {
            id::EBML => {
                let format = segment::format(body).map_err(MatroskaError::Header)?;
                self.format = Some(format);
            }
            id::SEEK_HEAD => self.tracks_at = self.tracks_at.or_else(|| self.sought(body)),
            id::INFO => self.info = Info::read(body),
            _ => {
                let playing = Playing::new(body, self.info.unit_ns);
                if let Some(reasons) = playing.refusal() {
                    return Err(MatroskaError::Nothing { reasons });
                }
                self.playing = Some(playing);
            }
        }
        Ok(Step::To(self.back_to.take().unwrap_or(end)))
    }

    /// Where `Tracks` is, if a `SeekHead` says so.
    fn sought(&self, seek_head: &[u8]) -> Option<u64> {
        let position = segment::tracks_position(seek_head)?;
        let place = self.segment_start?.checked_add(position)?;
        // It is asked for from there on.
        place.checked_add(BODY_BYTES_MAX).map(|_| place)
    }

    fn in_cluster(
        &mut self,
        head: Head,
        cluster_end: Option<u64>,
        data: &[u8],
    ) -> Result<Step, MatroskaError> {
        let start = self.body_start(head);
        let Some(end) = self.end_within(head, cluster_end) else {
            return self.damage();
        };
        match head.id {
            id::TIMESTAMP => {
                let Some(timestamp) = ebml::integer(head, data) else {
                    return Ok(self.more_of(head));
                };
                if let Some(cluster) = &mut self.cluster {
                    cluster.timestamp = timestamp;
                }
                let unit_ns = self.info.unit_ns;
                let is_late = |&at: &u64| at.saturating_mul(unit_ns) >= BASE_NS;
                self.base = self
                    .base
                    .or_else(|| Some(timestamp.filter(is_late).unwrap_or(0)));
            }
            id::SIMPLE_BLOCK => return Ok(self.block(head, data)),
            id::BLOCK_GROUP => {
                self.group = Some(Group {
                    end,
                    block: None,
                    lasts: None,
                    has_reference: false,
                });
                return Ok(Step::To(start));
            }
            id::ENCRYPTED_BLOCK => self.notes.broken_blocks += 1,
            id::VOID | id::CRC_32 | id::POSITION | id::PREV_SIZE | id::SILENT_TRACKS => {}
            _ if cluster_end.is_some() => {}
            _ => return self.damage(),
        }
        Ok(Step::To(end))
    }

    fn in_group(&mut self, head: Head, data: &[u8]) -> Result<Step, MatroskaError> {
        let limit = self.group.as_ref().map(|group| group.end);
        let Some(end) = self.end_within(head, limit) else {
            return self.damage();
        };
        match head.id {
            id::BLOCK => return Ok(self.block(head, data)),
            id::BLOCK_DURATION => {
                let Some(lasts) = ebml::integer(head, data) else {
                    return Ok(self.more_of(head));
                };
                if let Some(group) = &mut self.group {
                    group.lasts = lasts;
                }
            }
            id::REFERENCE_BLOCK => {
                if let Some(group) = &mut self.group {
                    group.has_reference = true;
                }
            }
            _ => {}
        }
        Ok(Step::To(end))
    }

    /// Where an element ends, if that is within what it is in.
    fn end_within(&self, head: Head, limit: Option<u64>) -> Option<u64> {
        let end = self.body_start(head) + head.body_bytes?;
        (end <= limit.unwrap_or(u64::MAX)).then_some(end)
    }

    fn more_of(&mut self, head: Head) -> Step {
        self.more(head.head_bytes + 1, HEAD_BYTES)
    }

    /// A block, of which `data` has the head.
    fn block(&mut self, head: Head, data: &[u8]) -> Step {
        let block_bytes = head.body_bytes.unwrap_or(0);
        let (start, after_head) = (self.body_start(head), &data[head.head_bytes..]);
        let in_block = usize::try_from(block_bytes).unwrap_or(usize::MAX);
        let after_head = &after_head[..after_head.len().min(in_block)];
        let is_all = after_head.len() == in_block;
        let mut frames = std::mem::take(&mut self.frames);
        let read = block::Head::read(after_head).and_then(|of| match of {
            Some(of) => Ok(of
                .frames(after_head, block_bytes, &mut frames)?
                .map(|()| of)),
            None => Ok(None),
        });
        let step = match read {
            Ok(None) if !is_all => {
                // Laces may be long.
                let least = data.len() + 1;
                self.more(least, HEAD_BYTES.max(least.next_power_of_two()))
            }
            Ok(Some(of)) => {
                self.notes
                    .block(self.at, &data[..head.head_bytes + after_head.len()]);
                self.open(of, start, start + block_bytes, &frames)
            }
            Ok(None) | Err(_) => {
                self.notes.broken_blocks += 1;
                Step::To(start + block_bytes)
            }
        };
        self.frames = frames;
        step
    }

    /// Begins a block whose frames lie so, from `start` on.
    fn open(&mut self, of: block::Head, start: u64, end: u64, frames: &[Range<u64>]) -> Step {
        let timestamp = self.cluster.as_ref().and_then(|cluster| cluster.timestamp);
        let timestamp = timestamp.and_then(|it| i64::try_from(it).ok());
        let base = self.base.and_then(|it| i64::try_from(it).ok()).unwrap_or(0);
        let units = timestamp.and_then(|it| it.checked_add(of.timestamp.into())?.checked_sub(base));
        let (Some(units), Some(playing)) = (units, &mut self.playing) else {
            self.notes.broken_blocks += 1;
            return Step::To(end);
        };
        let is_sync = self.group.is_none() && of.is_keyframe();
        let frames = frames.iter().map(|it| start + it.start..start + it.end);
        let track = playing.track(of.track);
        let block = track.and_then(|track| playing.open(track, units, is_sync, frames));
        match block {
            Some(block) => {
                self.reading = Reading::Parts(block, end);
                self.next_part()
            }
            None => Step::To(end),
        }
    }

    /// To the next bytes that tell of parts of the block that is being read, or to its last byte.
    fn next_part(&mut self) -> Step {
        let Reading::Parts(block, end) = &self.reading else {
            return Step::To(self.at);
        };
        let wanted = self.playing.as_ref().and_then(|it| it.wants(block));
        match wanted {
            Some(wanted) => Step::To(wanted.start),
            None => {
                let last = end - 1;
                if let Reading::Parts(block, _) =
                    std::mem::replace(&mut self.reading, Reading::Head)
                {
                    self.ending = Some(block);
                }
                Step::To(last)
            }
        }
    }

    fn parts(&mut self, data: &[u8]) -> Step {
        let (Reading::Parts(block, end), Some(playing)) = (&mut self.reading, &mut self.playing)
        else {
            return Step::To(self.at);
        };
        let Some(wanted) = playing.wants(block) else {
            return self.next_part();
        };
        let bytes = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
        let Some(bytes_of_part) = data.get(..bytes) else {
            return self.more(bytes, bytes);
        };
        if !playing.push_parts(block, bytes_of_part) {
            let end = *end;
            self.reading = Reading::Head;
            return Step::To(end);
        }
        self.next_part()
    }

    /// What is here is none of what may be.
    fn damage(&mut self) -> Result<Step, MatroskaError> {
        if self.playing.is_none() {
            return Err(MatroskaError::Damaged { offset: self.at });
        }
        self.notes.damage(self.at);
        (self.group, self.cluster) = (None, None);
        self.reading = Reading::Search(self.at + 1);
        Ok(Step::To(self.at + 1))
    }

    fn search(&mut self, data: &[u8], from: u64) -> Step {
        const CLUSTER: [u8; 4] = id::CLUSTER.to_be_bytes();
        if let Some(at) = data.windows(4).position(|it| it == CLUSTER) {
            self.reading = Reading::Head;
            return Step::To(self.at + at as u64);
        }
        if self.at - from >= SEARCH_BYTES_MAX {
            self.end("no cluster within 16 MiB of the damage");
            return Step::To(self.at);
        }
        match data.len().checked_sub(3) {
            None | Some(0) => self.more(4, SEARCH_BYTES),
            Some(searched) => Step::To(self.at + searched as u64),
        }
    }

    fn end(&mut self, reason: &str) {
        self.notes.end(self.at, reason);
        self.reading = Reading::Over;
    }

    /// The tracks, if they are known.
    pub(super) fn playing(&self) -> Option<&Playing> {
        self.playing.as_ref()
    }

    /// Takes so many samples for read, in tests of their limit.
    #[cfg(test)]
    pub(super) fn set_samples(&mut self, samples: usize) {
        self.playing.iter_mut().for_each(|it| it.samples = samples);
    }

    /// Whether all is known, and nothing can follow.
    pub(super) fn is_complete(&self) -> bool {
        match self.reading {
            Reading::Over => true,
            Reading::Head => {
                let is_past = |end: u64| end <= self.at;
                self.segment_end.is_some_and(is_past) && self.ending.is_none()
            }
            _ => false,
        }
    }

    /// The index of what is certain, as of a file of which no more is known.
    pub(super) fn index(&self) -> Option<SampledIndex> {
        let playing = self.playing.clone()?;
        let mut index = playing.index(self.notes.problems())?;
        index.format = self.format?;
        let base_ns = self.base.unwrap_or(0).saturating_mul(self.info.unit_ns);
        let info = self.info.on_line_of(base_ns);
        index.told_duration_ns = info.duration_ns.or_else(|| self.estimated_ns(&index));
        index.is_partial = true;
        index.wall_clock_start_ns = info.date_ns;
        index.probes.clone_from(&self.notes.probes);
        Some(index)
    }

    /// How long the file is if it goes on as it has begun.
    fn estimated_ns(&self, index: &SampledIndex) -> Option<u64> {
        let known_ns = index.sampled.iter().map(|track| track.end_ns()).max()?;
        let all_ns = u128::from(known_ns) * u128::from(self.file_bytes.max(self.at));
        u64::try_from(all_ns.checked_div(self.at.into())?).ok()
    }

    /// No bytes follow: what waits for more is complete, or is not.
    pub(super) fn finish(&mut self) {
        if let Some(group) = self.group.take_if(|group| group.end <= self.at) {
            self.close(group);
        }
        if let Some(playing) = &mut self.playing {
            playing.finish();
        }
    }
}
