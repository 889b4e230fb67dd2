//! A saved index as bytes of a file: what it is of, and a checksum over all.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`VERSION`] |
//! | 8 | [`SAVED_INDEX_MEANING`] of the build that wrote it |
//! | 8 | the checksum of what follows |
//! | [`KEY_BYTES`] | of which file |
//! | the rest | the index, as [`Index::save`](onrush_wire::media::Index::save) writes it |
//!
//! Numbers have their lowest byte first. Who changes this counts [`VERSION`] up.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use onrush_wire::media::SAVED_INDEX_MEANING;
use thiserror::Error;

use crate::library::identity::Identity;

/// What such a file begins with.
const MAGIC: [u8; 8] = *b"onrushIX";

/// The form of such a file.
const VERSION: u32 = 1;

const KEY_BYTES: usize = 64;

const HEAD_BYTES: usize = 8 + 4 + 8 + 8;

/// What an index is of. Of a file that has the same, the index is the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Key {
    pub(super) identity: Identity,
    /// When anything about the file changed last, in ns since 1970 (`st_ctime`): also its name, its
    /// owner, or its times, which tools put back where they were.
    pub(super) changed_ns: i128,
    /// The rate of a stream without a clock, by which its times were reckoned.
    pub(super) fallback_bitrate: u64,
}

/// Why bytes are no saved index.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(super) enum EntryError {
    /// They are not what was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Another version of the server has written them.
    #[error("another build has written it")]
    OtherBuild,
}

impl Key {
    /// That of an open file.
    pub(super) fn of(metadata: &Metadata, fallback_bitrate: u64) -> Self {
        let seconds = i128::from(metadata.ctime()) * 1_000_000_000;
        Self {
            identity: Identity::of(metadata),
            changed_ns: seconds + i128::from(metadata.ctime_nsec()),
            fallback_bitrate,
        }
    }

    fn to_bytes(self) -> [u8; KEY_BYTES] {
        let Identity {
            device,
            inode,
            file_bytes,
            modified_ns,
        } = self.identity;
        let mut bytes = [0; KEY_BYTES];
        let words = [device, inode, file_bytes, self.fallback_bitrate];
        let wide = [modified_ns, self.changed_ns];
        let (of_words, of_wide) = bytes.split_at_mut(32);
        for (place, word) in of_words.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        for (place, ns) in of_wide.as_chunks_mut().0.iter_mut().zip(wide) {
            *place = ns.to_le_bytes();
        }
        bytes
    }

    fn of_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let (words, wide) = bytes.split_at(32);
        let word = |at: usize| {
            words
                .as_chunks()
                .0
                .get(at)
                .map_or(0, |it| u64::from_le_bytes(*it))
        };
        let ns = |at: usize| {
            wide.as_chunks()
                .0
                .get(at)
                .map_or(0, |it| i128::from_le_bytes(*it))
        };
        Self {
            identity: Identity {
                device: word(0),
                inode: word(1),
                file_bytes: word(2),
                modified_ns: ns(0),
            },
            changed_ns: ns(1),
            fallback_bitrate: word(3),
        }
    }
}

/// The bytes of the file that has this index.
pub(super) fn to_bytes(key: Key, index: &[u8]) -> Vec<u8> {
    let body = [&key.to_bytes()[..], index].concat();
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(SAVED_INDEX_MEANING.to_le_bytes());
    bytes.extend(checksum(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// What the bytes of such a file are of, and the index in them.
///
/// # Errors
///
/// If they are not as they were written, or were written by another build.
pub(super) fn read(bytes: &[u8]) -> Result<(Key, &[u8]), EntryError> {
    let damaged = |what| move || EntryError::Damaged(what);
    let bytes = bytes.strip_prefix(&MAGIC);
    let bytes = bytes.ok_or_else(damaged("it does not begin as such a file does"))?;
    let short = damaged("it is too short");
    let (version, bytes) = bytes.split_first_chunk().ok_or_else(short)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(EntryError::OtherBuild);
    }
    let (meaning, bytes) = bytes.split_first_chunk().ok_or_else(short)?;
    if u64::from_le_bytes(*meaning) != SAVED_INDEX_MEANING {
        return Err(EntryError::OtherBuild);
    }
    let (sum, body) = bytes.split_first_chunk().ok_or_else(short)?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return Err(EntryError::Damaged("its checksum is another"));
    }
    let (key, index) = body.split_first_chunk().ok_or_else(short)?;
    Ok((Key::of_bytes(key), index))
}

/// A sum that no change of one byte leaves as it is, since each step is reversible: FNV-1a by
/// words, turned so that the upper bits count too. Against accidents, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|&byte| u64::from(byte));
    let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    let length = bytes.len() as u64;
    words
        .chain(rest)
        .chain([length])
        .fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        Key {
            identity: Identity {
                device: 0xfd00,
                inode: 77,
                file_bytes: 1 << 40,
                modified_ns: -1,
            },
            changed_ns: i128::MAX,
            fallback_bitrate: 4_000_000,
        }
    }

    proptest! {
        #[test]
        fn no_changed_byte_goes_unseen(
            index in prop::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
            change in 1..=255_u8,
        ) {
            let mut bytes = to_bytes(key(), &index);
            prop_assert_eq!(read(&bytes), Ok((key(), &index[..])));
            let at = at.index(bytes.len());
            prop_assert!(read(&bytes[..at]).is_err(), "cut at {}", at);
            bytes[at] ^= change;
            prop_assert!(read(&bytes).is_err(), "changed at {}", at);
            bytes[at] ^= change;
            bytes.push(change);
            prop_assert!(read(&bytes).is_err(), "longer");
        }
    }

    #[test]
    fn what_another_build_wrote_is_told_from_damage() {
        let bytes = to_bytes(key(), b"index");
        let changed = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            read(&bytes).map(|_| ()).unwrap_err()
        };
        assert!(matches!(changed(0), EntryError::Damaged(_)), "foreign");
        assert_eq!(changed(8), EntryError::OtherBuild, "version");
        assert_eq!(changed(12), EntryError::OtherBuild, "meaning");
        assert!(matches!(changed(20), EntryError::Damaged(_)), "checksum");
        assert!(matches!(read(b""), Err(EntryError::Damaged(_))));
    }
}
