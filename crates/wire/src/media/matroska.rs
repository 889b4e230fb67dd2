//! Matroska and WebM files (RFC 9559).
//!
//! `walk` goes from one block's head to the next, which is a few bytes in each; of the frames it
//! reads no more than tells where packets may be cut in them. `tracks` and `codecs` say what
//! the file has, `block` where the frames of a block lie, `times` when they are decoded, which
//! the file does not say, and `playing` makes tables of samples of all this. Cues are not needed:
//! which frames one can start at, blocks say themselves. `group` reads what stands behind a block
//! of subtitles, once somebody asks for these.
//!
//! The parser is our own. `matroska-demuxer` (0.8) reads by `Read + Seek` from the start to the end
//! of a file that is complete, gives frames as copies without saying where they lie, and says of
//! blocks in groups nothing about sync; `ebml-iterable` (0.7) and `mkv-element` (0.4) hold whole
//! elements in memory, as large as the file says. Here bytes come as they are asked for, files
//! grow, and frames stay where they are.
//!
//! Not played: what is encrypted or compressed (but by leaving out what frames begin with), and all
//! that is neither picture nor sound. Chapters and editions are not followed: the file is played as
//! it lies. What `DiscardPadding` and `SeekPreRoll` say concerns decoders, and is not told.

mod block;
mod codecs;
mod ebml;
mod group;
mod notes;
mod playing;
mod segment;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod times;
mod tracks;
mod walk;

use std::ops::Range;

use thiserror::Error;

use super::sampled::SampledIndex;
pub(in crate::media) use group::GroupRest;
use playing::Playing;
use walk::Walk;

/// Why a file cannot be indexed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MatroskaError {
    /// It begins with no EBML header that can be read.
    #[error("a Matroska file that cannot be read: {0}")]
    Header(String),
    /// What describes it is broken.
    #[error("byte {offset} of the Matroska file is not the start of any element")]
    Damaged {
        /// Where in the file.
        offset: u64,
    },
    /// What describes it is too large.
    #[error("a Matroska file that is described in {bytes} bytes, more than 4 MiB")]
    Large {
        /// So large.
        bytes: u64,
    },
    /// There is no description of the tracks in front of the first cluster.
    #[error("a Matroska file without tracks in front of its clusters, or where its SeekHead says")]
    TracksLate,
    /// None of its tracks can be played.
    #[error("nothing in the Matroska file can be played: {reasons}")]
    Nothing {
        /// What the tracks are, and why.
        reasons: String,
    },
    /// There is nothing yet of what can be played.
    #[error("a Matroska file without a block of its tracks so far")]
    Empty,
}

/// Whether a file that begins with these bytes is one.
pub(super) fn is_one(first: &[u8]) -> bool {
    first.starts_with(&[0x1a, 0x45, 0xdf, 0xa3])
}

/// Reads such a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner(Walk);

impl Scanner {
    pub(super) fn wants(&mut self, file_bytes: u64) -> Option<Range<u64>> {
        self.0.wants(file_bytes)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), MatroskaError> {
        self.0.push(bytes)
    }

    pub(super) fn settled(&self) -> Result<SampledIndex, MatroskaError> {
        if self.0.is_complete() {
            return self.clone().finish();
        }
        let has_begun = self.0.playing().is_some_and(Playing::has_begun);
        let index = self.0.index().filter(|_| has_begun);
        index.ok_or(MatroskaError::Empty)
    }

    pub(super) fn finish(mut self) -> Result<SampledIndex, MatroskaError> {
        self.0.finish();
        let playing = self.0.playing().ok_or(MatroskaError::Empty)?;
        if let Some(reasons) = playing.refusal() {
            return Err(MatroskaError::Nothing { reasons });
        }
        let has_samples = playing.has_samples();
        let index = self.0.index().filter(|_| has_samples);
        let mut index = index.ok_or(MatroskaError::Empty)?;
        // All is known: it is as long as its samples.
        index.told_duration_ns = None;
        index.is_partial = false;
        Ok(index)
    }
}
