//! MP4 files.

use std::ops::Range;

use thiserror::Error;

use super::sampled::SampledIndex;

/// Why a file cannot be indexed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum Mp4Error {
    /// Nothing in it can be played.
    #[error("nothing in it can be played")]
    Nothing,
}

/// Whether a file that begins with these bytes is one.
pub(super) fn is_one(_first: &[u8]) -> bool {
    false
}

/// Reads such a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner;

impl Scanner {
    pub(super) fn wants(&self, _file_bytes: u64) -> Option<Range<u64>> {
        None
    }

    pub(super) fn push(&mut self, _bytes: &[u8]) -> Result<(), Mp4Error> {
        Ok(())
    }

    pub(super) fn settled(&self) -> Result<SampledIndex, Mp4Error> {
        Err(Mp4Error::Nothing)
    }

    pub(super) fn finish(self) -> Result<SampledIndex, Mp4Error> {
        self.settled()
    }
}
