//! Reading the parts of samples: which bytes of a file are wanted for it, and what they tell.
//!
//! Of a sample of NAL units only the few bytes in front of each are read. Tracks go side by side,
//! in the order of the file, so that the file is gone through once. Tables may tell of a sample
//! again and again: so what is read, and what is kept of it, is bounded by the file's bytes.

use std::ops::Range;

use super::SampledTrack;
use crate::media::packetizer::{CodecError, PARTS_MAX, Packetizer, Part, Parts, TRACK_PARTS_MAX};

/// Bytes that are looked at, at the most: so many times the file's, and these. The heads of parts
/// may reach over each other; parts do not, unless samples lie over each other.
const LOOKED_TIMES_MAX: u64 = 32;
const LOOKED_BYTES: u64 = 512 << 10;

/// The parts of one sample, as its bytes come.
#[derive(Clone, Debug)]
pub(in crate::media) struct SampleParts {
    /// Where in the file it begins.
    offset: u64,
    /// Its bytes, the track's prefix included, and how many of them are behind.
    bytes: u32,
    behind: u32,
    /// Its parts so far.
    numbers: Vec<u32>,
}

impl SampleParts {
    /// Those of a sample that has `bytes` in the file, behind a prefix that it has not.
    pub(in crate::media) fn new(offset: u64, bytes: u32, prefix: &[u8]) -> Self {
        let prefix_bytes = u32::try_from(prefix.len()).unwrap_or(u32::MAX);
        Self {
            offset,
            bytes: bytes.saturating_add(prefix_bytes),
            behind: 0,
            numbers: Vec::new(),
        }
    }

    /// Which bytes of the file say what the next part is; `None` if there is none. At least one,
    /// even if the prefix says it.
    pub(in crate::media) fn wants(
        &self,
        packetizer: &dyn Packetizer,
        prefix: &[u8],
    ) -> Option<Range<u64>> {
        let head = u64::from(self.behind)..u64::from(self.behind + self.head_bytes(packetizer)?);
        let in_file = |at: u64| at.saturating_sub(prefix.len() as u64);
        let (start, end) = (in_file(head.start), in_file(head.end));
        Some(self.offset + start..self.offset + end.max(start + 1))
    }

    fn head_bytes(&self, packetizer: &dyn Packetizer) -> Option<u32> {
        let left = self.bytes - self.behind;
        let bytes = match packetizer.parts() {
            Parts::Chained { head_bytes } => u32::try_from(head_bytes).unwrap_or(left).min(left),
            Parts::None | Parts::Searched => left,
        };
        (left > 0).then_some(bytes)
    }

    /// Takes the bytes that it [wants](Self::wants), all of them.
    ///
    /// # Errors
    ///
    /// If they are not as the codec wants them.
    pub(in crate::media) fn push(
        &mut self,
        packetizer: &dyn Packetizer,
        prefix: &[u8],
        bytes: &[u8],
    ) -> Result<(), CodecError> {
        let Some(head_bytes) = self.head_bytes(packetizer) else {
            return Ok(());
        };
        let joined;
        let mut rest = match prefix.get(self.behind as usize..) {
            None | Some([]) => bytes,
            Some(front) => {
                joined = [front, bytes].concat();
                &joined[..]
            }
        };
        rest = &rest[..rest.len().min(head_bytes as usize)];
        let whole = packetizer.parts() == Parts::Searched;
        loop {
            let left = self.bytes - self.behind;
            let head = &rest[..rest.len().min(left as usize)];
            let part = self.checked(packetizer.part(head, left)?, left)?;
            self.numbers.push(part.number);
            self.behind += part.bytes;
            if self.behind == self.bytes || !whole {
                return Ok(());
            }
            rest = rest.get(part.bytes as usize..).unwrap_or_default();
        }
    }

    fn checked(&self, part: Part, left: u32) -> Result<Part, CodecError> {
        if self.numbers.len() >= PARTS_MAX {
            return Err(CodecError::Parts);
        }
        match part.bytes {
            1.. if part.bytes <= left => Ok(part),
            _ => Err(CodecError::PartBeyondSample {
                bytes: part.bytes.into(),
                left: left.into(),
            }),
        }
    }

    /// The numbers of its parts, as a table wants them: none if it has the usual one.
    pub(in crate::media) fn numbers(&self, packetizer: &dyn Packetizer) -> &[u32] {
        match self.numbers[..] {
            [only] if packetizer.only_part(self.bytes) == Some(only) => &[],
            _ => &self.numbers,
        }
    }
}

/// How far the parts of a file's samples are known.
#[derive(Clone, Debug, Default)]
pub(in crate::media) struct PartReader {
    /// The track of the sample that is being read, and what is known of it.
    open: Option<(usize, SampleParts)>,
    /// What has come of the bytes that are wanted, if not all have.
    carry: Vec<u8>,
    /// The tracks with which something is wrong: they are read no further.
    ended: Vec<usize>,
    /// How long the file was last, bytes that were looked at, and parts that were found. Of a file
    /// that grows the bounds of these do, too.
    file_bytes: u64,
    looked_bytes: u64,
    parts: u64,
}

impl PartReader {
    /// Which bytes of the file it wants next. `None` if all that is in the tables is known, or lies
    /// beyond the end of a file of `file_bytes`.
    pub(in crate::media) fn wants(
        &mut self,
        tracks: &[SampledTrack],
        file_bytes: u64,
    ) -> Option<Range<u64>> {
        self.file_bytes = file_bytes;
        let next;
        let (track, parts) = match &self.open {
            Some(open) => open,
            None => {
                next = self.next(tracks)?;
                &next
            }
        };
        let track = &tracks[*track];
        let whole = parts.wants(&*track.codec.packetizer, &track.prefix)?;
        let start = whole.start + self.carry.len() as u64;
        (whole.end <= file_bytes).then_some(start..whole.end)
    }

    /// Whether something is wrong with a track, so that it is read no further.
    pub(in crate::media) fn has_ended(&self, track: usize) -> bool {
        self.ended.contains(&track)
    }

    /// Takes bytes from where [`Self::wants`] begins.
    ///
    /// # Errors
    ///
    /// The track's number, and why it is played no further than to this sample. The others go on.
    pub(in crate::media) fn push(
        &mut self,
        tracks: &mut [SampledTrack],
        bytes: &[u8],
    ) -> Result<(), (usize, CodecError)> {
        let open = self.open.take();
        let Some((number, mut parts)) = open.or_else(|| self.next(tracks)) else {
            return Ok(());
        };
        let track = &mut tracks[number];
        let packetizer = &*track.codec.packetizer;
        let Some(whole) = parts.wants(packetizer, &track.prefix) else {
            return Ok(());
        };
        let whole_bytes = usize::try_from(whole.end - whole.start).unwrap_or(usize::MAX);
        let carried;
        let bytes = match self.carry.is_empty() && bytes.len() >= whole_bytes {
            true => bytes,
            false => {
                self.carry.extend_from_slice(bytes);
                if self.carry.len() < whole_bytes {
                    self.open = Some((number, parts));
                    return Ok(());
                }
                carried = std::mem::take(&mut self.carry);
                &carried[..]
            }
        };
        match self.look(&mut parts, track, &bytes[..whole_bytes]) {
            Ok(false) => self.open = Some((number, parts)),
            Ok(true) => track.samples.push_parts(parts.numbers(packetizer)),
            Err(error) => {
                self.ended.push(number);
                return Err((number, error));
            }
        }
        Ok(())
    }

    /// Looks at the bytes that a sample wants. Whether all of its parts are known then.
    fn look(
        &mut self,
        parts: &mut SampleParts,
        track: &SampledTrack,
        bytes: &[u8],
    ) -> Result<bool, CodecError> {
        let packetizer = &*track.codec.packetizer;
        let of_file = self.file_bytes.saturating_mul(LOOKED_TIMES_MAX);
        self.looked_bytes += bytes.len() as u64;
        if self.looked_bytes > of_file.saturating_add(LOOKED_BYTES) {
            return Err(CodecError::Overlap);
        }
        parts.push(packetizer, &track.prefix, bytes)?;
        if parts.wants(packetizer, &track.prefix).is_some() {
            return Ok(false);
        }
        // Each begins at another byte, unless samples lie over each other.
        let parts_max = self.file_bytes.min(TRACK_PARTS_MAX as u64);
        self.parts += parts.numbers(packetizer).len() as u64;
        match self.parts <= parts_max {
            true => Ok(true),
            false => Err(CodecError::AllParts { parts_max }),
        }
    }

    /// The first sample whose parts are not known: its track, and where it lies.
    fn next(&self, tracks: &[SampledTrack]) -> Option<(usize, SampleParts)> {
        let next_of = |number: usize| {
            let track = &tracks[number];
            let is_open = track.codec.packetizer.parts() != Parts::None;
            let wanted = is_open && !self.ended.contains(&number);
            let sample = track.samples.get(track.samples.with_parts());
            sample.filter(|_| wanted)
        };
        let waiting = (0..tracks.len()).filter_map(|it| Some((it, next_of(it)?)));
        let (track, sample) = waiting.min_by_key(|(_, sample)| sample.offset)?;
        let parts = SampleParts::new(sample.offset, sample.bytes, &tracks[track].prefix);
        Some((track, parts))
    }
}
