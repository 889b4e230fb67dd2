//! Reading the parts of samples: which bytes of a file are wanted for it, and what they tell.
//!
//! Of a sample of NAL units only the few bytes in front of each are read. Tracks go side by side, in
//! the order of the file, so that the file is gone through once.

use std::ops::Range;

use super::SampledTrack;
use crate::media::packetizer::{CodecError, PARTS_MAX, Part, Parts};
use crate::media::samples::Sample;

/// How far the parts of a file's samples are known.
#[derive(Clone, Debug, Default)]
pub(in crate::media) struct PartReader {
    /// The track of the sample that is being read, and how many bytes of it are behind.
    open: Option<(usize, u32)>,
    /// Its parts so far.
    numbers: Vec<u32>,
    /// What has come of the bytes that are wanted, if not all have.
    carry: Vec<u8>,
    /// What is wrong with a track, which is read no further.
    ended: Vec<usize>,
}

impl PartReader {
    /// Which bytes of the file it wants next. `None` if all that is in the tables is known, or lies
    /// beyond the end of a file of `file_bytes`.
    pub(in crate::media) fn wants(
        &self,
        tracks: &[SampledTrack],
        file_bytes: u64,
    ) -> Option<Range<u64>> {
        let whole = self.whole(tracks)?;
        let start = whole.start + self.carry.len() as u64;
        (whole.end <= file_bytes).then_some(start..whole.end)
    }

    /// The bytes that say what the next part is.
    fn whole(&self, tracks: &[SampledTrack]) -> Option<Range<u64>> {
        let (track, sample, behind) = self.next(tracks)?;
        let left = sample.bytes - behind;
        let bytes = match tracks[track].codec.packetizer.parts() {
            Parts::Chained { head_bytes } => u32::try_from(head_bytes).unwrap_or(left).min(left),
            Parts::None | Parts::Searched => left,
        };
        let start = sample.offset + u64::from(behind);
        Some(start..start + u64::from(bytes))
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
        let next = self.next(tracks).zip(self.whole(tracks));
        let Some(((number, sample, behind), whole)) = next else {
            return Ok(());
        };
        let carried;
        let bytes = match self.carry.is_empty() && bytes.len() as u64 >= whole.end - whole.start {
            true => bytes,
            false => {
                self.carry.extend_from_slice(bytes);
                if (self.carry.len() as u64) < whole.end - whole.start {
                    return Ok(());
                }
                carried = std::mem::take(&mut self.carry);
                &carried[..]
            }
        };
        let track = &mut tracks[number];
        let packetizer = &track.codec.packetizer;
        let mut left = sample.bytes - behind;
        let mut rest = bytes;
        let whole = packetizer.parts() == Parts::Searched;
        loop {
            let head = &rest[..rest.len().min(left as usize)];
            let part = packetizer.part(head, left);
            let part = part.and_then(|part| self.checked(part, left));
            let Part {
                number: told,
                bytes,
            } = match part {
                Ok(part) => part,
                Err(error) => {
                    self.open = None;
                    self.numbers.clear();
                    self.ended.push(number);
                    return Err((number, error));
                }
            };
            self.numbers.push(told);
            left -= bytes;
            if left == 0 || !whole {
                break;
            }
            rest = rest.get(bytes as usize..).unwrap_or_default();
        }
        if left > 0 {
            self.open = Some((number, sample.bytes - left));
            return Ok(());
        }
        let usual = packetizer.only_part(sample.bytes);
        match self.numbers[..] {
            [only] if usual == Some(only) => track.samples.push_parts(&[]),
            _ => track.samples.push_parts(&self.numbers),
        }
        self.open = None;
        self.numbers.clear();
        Ok(())
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

    /// The sample whose parts are wanted next: its track, and how many of its bytes are behind.
    fn next(&self, tracks: &[SampledTrack]) -> Option<(usize, Sample, u32)> {
        let next_of = |number: usize| {
            let track = &tracks[number];
            let is_open = track.codec.packetizer.parts() != Parts::None;
            let wanted = is_open && !self.ended.contains(&number);
            let sample = track.samples.get(track.samples.with_parts());
            sample.filter(|_| wanted)
        };
        if let Some((track, behind)) = self.open {
            return Some((track, next_of(track)?, behind));
        }
        let waiting = (0..tracks.len()).filter_map(|it| Some((it, next_of(it)?)));
        let (track, sample) = waiting.min_by_key(|(_, sample)| sample.offset)?;
        Some((track, sample, 0))
    }
}
