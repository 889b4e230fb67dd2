//! Where the bytes of samples are, of containers that have other bytes in between.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::SampledTrack;
use crate::media::plan::{FilePiece, ImageError};

/// Bytes of a file that are asked for in one piece at the most. What reaches over more is read in
/// several, and put together.
pub(super) const PIECE_BYTES_MAX: u64 = 1 << 20;

/// Takes samples out of what carries them. What it makes of the same bytes is always the same.
pub(in crate::media) trait Carriage: Any + fmt::Debug + Send + Sync {
    /// The part of the file that is needed to take out samples that reach over `part`: with the
    /// heads of the packets at its ends.
    fn whole(&self, part: Range<u64>) -> Range<u64>;

    /// The sample that reaches over `part`, of the bytes of [`Self::whole`]; `None` if there is no
    /// such packet. Not more than `bytes_max`.
    fn take_out(&self, part: Range<u64>, bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>>;
}

impl SampledTrack {
    /// The part of the file that has to be read to have all of these samples.
    pub(super) fn file_range(&self, samples: Range<usize>) -> Range<u64> {
        self.whole(self.samples.file_range(samples))
    }

    /// The same of one sample, in pieces of [`PIECE_BYTES_MAX`].
    pub(super) fn file_pieces(&self, at: usize) -> impl Iterator<Item = Range<u64>> + use<> {
        let part = self.samples.file_part(at).map(|part| self.whole(part));
        let Range { start, end } = part.unwrap_or(0..0);
        let step = usize::try_from(PIECE_BYTES_MAX).expect("a MiB");
        let starts = (start..end).step_by(step);
        starts.map(move |start| start..end.min(start + PIECE_BYTES_MAX))
    }

    fn whole(&self, part: Range<u64>) -> Range<u64> {
        match &self.carriage {
            Some(carriage) if !part.is_empty() => carriage.whole(part),
            _ => part,
        }
    }

    /// The bytes of sample `at`, with the prefix that the file has not.
    ///
    /// # Errors
    ///
    /// If the pieces do not hold them, or hold others.
    pub(in crate::media) fn data<'a>(
        &self,
        at: usize,
        pieces: &[FilePiece<'a>],
    ) -> Result<Cow<'a, [u8]>, ImageError> {
        let part = self.samples.file_part(at).expect("units are of samples");
        let file_offset = part.start;
        let whole = bytes_at(pieces, self.whole(part.clone()));
        let whole = whole.ok_or(ImageError::Bytes { file_offset })?;
        let bytes = match &self.carriage {
            None => whole,
            Some(carriage) => {
                let bytes_max = self.samples.size(at) as usize;
                let taken = carriage.take_out(part, &whole, bytes_max);
                let taken = taken.filter(|taken| taken.len() == bytes_max);
                Cow::Owned(taken.ok_or(ImageError::Changed { file_offset })?)
            }
        };
        Ok(match self.prefix.is_empty() {
            true => bytes,
            false => Cow::Owned([&self.prefix[..], &bytes].concat()),
        })
    }
}

/// That part of the file, if these pieces have it: one of them, or several one behind the other.
fn bytes_at<'a>(pieces: &[FilePiece<'a>], part: Range<u64>) -> Option<Cow<'a, [u8]>> {
    let first = piece_at(pieces, part.start)?;
    let length = usize::try_from(part.end - part.start).ok()?;
    if let Some(bytes) = first.get(..length) {
        return Some(Cow::Borrowed(bytes));
    }
    let mut joined = Vec::with_capacity(length);
    while joined.len() < length {
        let next = piece_at(pieces, part.start + joined.len() as u64)?;
        let bytes = next.len().min(length - joined.len());
        joined.extend_from_slice(&next[..bytes]);
    }
    Some(Cow::Owned(joined))
}

/// What a piece has from `offset` on: of those that have that byte, the one that has most.
fn piece_at<'a>(pieces: &[FilePiece<'a>], offset: u64) -> Option<&'a [u8]> {
    let from = |piece: &FilePiece<'a>| {
        let start = usize::try_from(offset.checked_sub(piece.offset)?).ok()?;
        piece.bytes.get(start..).filter(|bytes| !bytes.is_empty())
    };
    pieces
        .iter()
        .filter_map(from)
        .max_by_key(|bytes| bytes.len())
}
