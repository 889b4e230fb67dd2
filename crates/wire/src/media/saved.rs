//! Saved indexes: bytes of which an index is made again without reading the file.
//!
//! What is saved is what cannot be told from the rest; what is made of it has passed all that a
//! file's own tables are asked for, so that bytes from anywhere do no harm. Whether they are of
//! this file is for whoever keeps them to know. The bytes are those of `postcard`: numbers of
//! variable length, in the order of the fields, without names. It was chosen because it draws in
//! four small crates, takes no more memory than a multiple of what it reads, and has a format that
//! is written down.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::container::Index;
use super::{sampled, ts};

/// What the bytes of a saved index mean: another number for each state of the sources of
/// `wire::media`. Those that another build has made may mean something else, or would be made
/// otherwise today.
pub const SAVED_INDEX_MEANING: u64 = meaning(env!("ONRUSH_MEDIA_SOURCES"));

/// An index, as it is saved.
#[derive(Debug, Deserialize, Serialize)]
enum SavedIndex {
    Ts(Box<ts::saved::SavedIndex>),
    Sampled(sampled::saved::SavedIndex),
    Elementary(ts::elementary::saved::SavedIndex),
}

/// Bytes are no saved index.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RestoreError {
    /// They cannot be read.
    #[error("no saved index: {0}")]
    Bytes(String),
    /// They tell of something that no file has.
    #[error("no saved index: {0}")]
    Fault(String),
}

impl Index {
    /// Bytes that [`Self::restore`] makes the same index of. `None` if there are none: of a file of
    /// which not all is known yet.
    #[must_use]
    pub fn save(&self) -> Option<Vec<u8>> {
        let saved = match (self.as_ts(), self.as_sampled()) {
            (Some(ts), _) => SavedIndex::Ts(Box::new(ts::saved::SavedIndex::of(ts))),
            (_, Some(sampled)) => match sampled::saved::SavedIndex::of(sampled) {
                Some(saved) => SavedIndex::Sampled(saved),
                None => SavedIndex::Elementary(ts::elementary::saved::SavedIndex::of(sampled)?),
            },
            _ => return None,
        };
        postcard::to_allocvec(&saved).ok()
    }

    /// The index that these bytes were [saved](Self::save) of, by a build of the same
    /// [`SAVED_INDEX_MEANING`]. Memory that it takes is bounded by how many bytes there are.
    ///
    /// # Errors
    ///
    /// If they were not, as far as can be told.
    pub fn restore(bytes: &[u8]) -> Result<Self, RestoreError> {
        let read = postcard::take_from_bytes(bytes);
        let (saved, rest) = read.map_err(|error| RestoreError::Bytes(error.to_string()))?;
        if !rest.is_empty() {
            return Err(RestoreError::Bytes("more bytes than it has".to_owned()));
        }
        match saved {
            SavedIndex::Ts(ts) => ts.index().map(Self::of).map_err(str::to_owned),
            SavedIndex::Sampled(sampled) => sampled.index().map(Self::of),
            SavedIndex::Elementary(elementary) => elementary.index().map(Self::of),
        }
        .map_err(RestoreError::Fault)
    }
}

/// The number that these digits are.
const fn meaning(digits: &str) -> u64 {
    match u64::from_str_radix(digits, 10) {
        Ok(meaning) => meaning,
        Err(_) => panic!("the build script prints a number"),
    }
}

#[cfg(test)]
mod tests;
