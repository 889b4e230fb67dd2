//! What a file of blocks is of, and which blocks are in it: the index that lies beside it.
//!
//! An index has a header and, for each block, a slot of the block's checksum and of when it was
//! used last. Header and slots have a checksum each, so that one that was written in part counts as
//! none. A slot is no promise that its block is whole: nothing is ever flushed to the disk, in no
//! order, and who has not written a block itself compares it with its checksum first.

use std::ops::Range;

use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 24;

/// Bytes that an index may have: of an object of ten TiB.
pub(crate) const INDEX_BYTES_MAX: u64 = 256 << 20;

/// What an index begins with; another number for another form.
const MAGIC: &[u8; 8] = b"onrush-1";

/// The magic, the length of what identifies the version, and a checksum of that.
const HEAD_BYTES: usize = MAGIC.len() + 4 + 8;

/// What one version of an object is known by. In order, the versions of one object are neighbours.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Identity {
    /// Where the bucket is, and which it is.
    pub(crate) store: String,
    pub(crate) path: String,
    pub(crate) etag: String,
    pub(crate) file_bytes: u64,
}

/// What there is to be known of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    pub(crate) checksum: u64,
    /// Larger for what was used later.
    pub(crate) used: u64,
}

impl Identity {
    pub(crate) fn blocks(&self) -> u64 {
        self.file_bytes.div_ceil(BLOCK_BYTES)
    }

    /// What the names of its files begin with.
    pub(crate) fn stem(&self) -> String {
        let object = checksum(&encoded(&(&self.store, &self.path)));
        let version = checksum(&encoded(&(&self.etag, self.file_bytes)));
        format!("{object:016x}{version:016x}")
    }

    /// The header of its index.
    pub(crate) fn header(&self) -> Vec<u8> {
        let body = encoded(self);
        let length = u32::try_from(body.len()).expect("a store's names are shorter");
        let head = [
            &MAGIC[..],
            &length.to_le_bytes(),
            &checksum(&body).to_le_bytes(),
        ];
        [&head.concat(), &*body].concat()
    }

    /// Where in its index a block's slot is.
    pub(crate) fn slot_offset(&self, block: u64) -> u64 {
        (HEAD_BYTES + encoded(self).len()) as u64 + block * SLOT_BYTES as u64
    }

    /// A slot as it is written; of a block that is not there all of it is 0.
    pub(crate) fn slot_bytes(&self, block: u64, slot: Option<Slot>) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        if let Some(slot) = slot {
            bytes[..8].copy_from_slice(&slot.checksum.to_le_bytes());
            bytes[8..16].copy_from_slice(&slot.used.to_le_bytes());
            let check = check(block, &bytes[..16]);
            bytes[16..].copy_from_slice(&check.to_le_bytes());
        }
        bytes
    }
}

impl Slot {
    /// A slot as it was written, if all of it was, and for this block.
    pub(crate) fn read(block: u64, bytes: &[u8; SLOT_BYTES]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let is_whole = number(16) == check(block, &bytes[..16]);
        is_whole.then(|| Self {
            checksum: number(0),
            used: number(8),
        })
    }
}

/// What an index is of, and the slots of the blocks that are there; `None` if it is torn.
pub(crate) fn read(bytes: &[u8]) -> Option<(Identity, Vec<(u64, Slot)>)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (body, slots) = rest.split_at_checked(length)?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return None;
    }
    let identity: Identity = postcard::from_bytes(body).ok()?;
    let slots = (0..identity.blocks()).zip(slots.as_chunks().0);
    let slots = slots.filter_map(|(block, bytes)| Some((block, Slot::read(block, bytes)?)));
    let slots = slots.collect();
    Some((identity, slots))
}

/// The bytes of a block of a file that is so long.
pub(crate) fn block_range(block: u64, file_bytes: u64) -> Range<u64> {
    let start = block * BLOCK_BYTES;
    start..(start + BLOCK_BYTES).min(file_bytes)
}

/// CRC-64/NVME, which finds each damage of up to 64 bits in a row.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Of a slot: also of which block it is, so that one in another's place is none.
fn check(block: u64, slot: &[u8]) -> u64 {
    checksum(&[slot, &block.to_le_bytes()].concat())
}

fn encoded(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("texts and numbers can be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            store: "http://127.0.0.1:9000/films".to_owned(),
            path: "cinema/film.mp4".to_owned(),
            etag: "\"0123\"".to_owned(),
            file_bytes: 2 * BLOCK_BYTES + 1,
        }
    }

    fn index() -> Vec<u8> {
        let identity = identity();
        let slot = |checksum| Some(Slot { checksum, used: 9 });
        let mut bytes = identity.header();
        assert_eq!(bytes.len() as u64, identity.slot_offset(0));
        bytes.extend(identity.slot_bytes(0, slot(5)));
        bytes.extend(identity.slot_bytes(1, None));
        bytes.extend(identity.slot_bytes(2, slot(7)));
        bytes
    }

    #[test]
    fn an_index_is_read_as_it_was_written() {
        let (of, slots) = read(&index()).unwrap();
        assert_eq!(of, identity());
        let slot = |checksum| Slot { checksum, used: 9 };
        assert_eq!(slots, [(0, slot(5)), (2, slot(7))]);
        let last = block_range(2, of.file_bytes);
        assert_eq!(last, 2 * BLOCK_BYTES..2 * BLOCK_BYTES + 1);
        assert_eq!(of.stem().len(), 32);
    }

    #[test]
    fn a_torn_index_has_less_and_nothing_else() {
        let whole = index();
        let (_, all) = read(&whole).unwrap();
        for length in 0..whole.len() {
            let slots = read(&whole[..length]).map(|it| it.1).unwrap_or_default();
            assert!(all.starts_with(&slots), "{length}: {slots:?}");
            assert!(slots.len() < all.len(), "{length}");
        }
        for place in 0..whole.len() {
            let mut spoilt = whole.clone();
            spoilt[place] ^= 4;
            let Some((of, slots)) = read(&spoilt) else {
                continue;
            };
            assert_eq!(of, identity(), "{place}");
            assert!(slots.iter().all(|slot| all.contains(slot)), "{place}");
        }
    }

    #[test]
    fn a_slot_in_anothers_place_is_none() {
        let slot = Slot {
            checksum: 5,
            used: 9,
        };
        let bytes = identity().slot_bytes(3, Some(slot));
        assert_eq!(Slot::read(3, &bytes), Some(slot));
        assert_eq!(Slot::read(2, &bytes), None);
        assert_eq!(Slot::read(0, &[0; SLOT_BYTES]), None);
    }
}
