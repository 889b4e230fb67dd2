//! How long a file of fragments is, before all of them are read.
//!
//! Two tables say where the last fragment lies: a segment index (`sidx`, ISO/IEC 14496-12, section
//! 8.16.3) in front of the fragments, and `mfra` (section 8.8.9) at the end of the file. Of both
//! only the place is taken: what counts is when the fragment that is there says to end, and whether
//! the file ends behind it. So a table that lies costs a few reads, and is found out. Without a
//! table the file is as long as it lets expect that has been read of it.
//!
//! Nothing else is taken from these tables. Where one can start, in a part that is not read yet,
//! they do say; but how the packets there are numbered only all samples before them do.

use std::ops::Range;

use super::MOOF_BYTES_MAX;
use super::boxes::{Boxes, Fields, HEADER_BYTES_MAX, Header};
use super::movie::Movie;

/// Bytes of `mfra` at the most: two tracks of a day in fragments of a second have 3.3 MB.
const MFRA_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a segment index at the most: it has no more than 65,535 rows of twelve bytes.
pub(super) const SIDX_BYTES_MAX: u64 = 1 << 20;

/// Boxes that are looked at on the way to the end of the file, at the most.
pub(super) const LOOKS_MAX: u32 = 64;

/// Bytes of `mfro`, with which `mfra` ends and which says how long that is.
const MFRO_BYTES: u64 = 16;

/// What a movie box says of the duration counts unless what was read lets expect so many times as
/// much, or as little.
const LIKELY: u128 = 16;

/// Looks for the last fragment of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    looking: Looking,
    /// Where begins what is looked at, what has come of it, and how many bytes of it are needed:
    /// more than have come.
    at: u64,
    carry: Vec<u8>,
    need: u64,
    looks: u32,
    /// Where the first fragment begins.
    start: u64,
    /// Where a segment index says that the last of its parts begins.
    index: Option<u64>,
    /// What was found: up to which byte of the file the media goes to which time.
    found: Option<Known>,
}

/// So much of a file lasts so long.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Known {
    pub(super) bytes: u64,
    pub(super) ns: u64,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Looking {
    /// Nothing yet: no fragment was read.
    #[default]
    NotYet,
    /// The end of the file, which may say where `mfra` begins.
    Offset,
    /// `mfra`.
    Table,
    /// A box on the way to the end.
    Box,
    /// Nothing more.
    Over,
}

impl Ending {
    /// Whether a segment index is of use to it: one in front of all fragments.
    pub(super) fn takes_index(&self) -> bool {
        self.looking == Looking::NotYet && self.index.is_none()
    }

    /// Takes what is in a segment index that ends at `end` in the file.
    pub(super) fn add_index(&mut self, sidx: &[u8], end: u64) {
        self.index = last_of_index(sidx, end);
    }

    /// A fragment that begins at `at` was read of a file of so many bytes: after the first it is
    /// looked at the end.
    pub(super) fn begin(&mut self, at: u64, file_bytes: u64) {
        if self.looking == Looking::NotYet {
            self.start = at;
            match file_bytes.checked_sub(MFRO_BYTES) {
                Some(at) => self.look_at(Looking::Offset, at, MFRO_BYTES),
                None => self.looking = Looking::Over,
            }
        }
    }

    /// Which bytes it wants of a file that has so many.
    pub(super) fn wants(&mut self, file_bytes: u64) -> Option<Range<u64>> {
        if matches!(self.looking, Looking::NotYet | Looking::Over) {
            return None;
        }
        let start = self.at + self.carry.len() as u64;
        let end = self.at.checked_add(self.need);
        let end = end.filter(|&end| end <= file_bytes);
        if end.is_none() {
            // What follows is not there, or is no box.
            self.stop();
        }
        end.map(|end| start..end)
    }

    /// Takes bytes from where it wants them; of more than it wants the first.
    pub(super) fn push(&mut self, movie: &Movie, bytes: &[u8]) {
        let missing = self.need - self.carry.len() as u64;
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        self.carry
            .extend_from_slice(&bytes[..bytes.len().min(missing)]);
        if bytes.len() < missing {
            return;
        }
        let carry = std::mem::take(&mut self.carry);
        match self.looking {
            Looking::NotYet | Looking::Over => {}
            Looking::Offset => self.take_offset(&carry),
            Looking::Table => {
                let of_file = self.at + carry.len() as u64;
                let last = Boxes(&carry).first(b"mfra");
                let last = last.and_then(|mfra| last_of_table(mfra, movie));
                let last = last.filter(|&at| at < of_file);
                self.follow(last.or(self.index));
            }
            Looking::Box => self.take_box(movie, carry),
        }
    }

    /// How long a file of `file_bytes` is of which so much is read, and which says itself that it
    /// lasts `told_ns`, if it says so.
    pub(super) fn duration_ns(&self, told_ns: Option<u64>, read: Known, file_bytes: u64) -> u64 {
        let known = self.found.map_or(read, |found| found.max(read));
        let since = |bytes: u64| u128::from(bytes.saturating_sub(self.start).max(1));
        let expected = u128::from(known.ns) * since(file_bytes.max(known.bytes));
        let expected = expected / since(known.bytes);
        let is_likely = |&told: &u64| {
            let told = u128::from(told);
            told <= expected.saturating_mul(LIKELY) && expected <= told.saturating_mul(LIKELY)
        };
        // Nothing is left to be told where the end was seen.
        let told_ns = told_ns.filter(|_| known.bytes < file_bytes);
        let expected_ns = u64::try_from(expected).unwrap_or(u64::MAX);
        told_ns.filter(is_likely).unwrap_or(expected_ns)
    }

    fn look_at(&mut self, looking: Looking, at: u64, need: u64) {
        (self.looking, self.at, self.need) = (looking, at, need);
    }

    fn stop(&mut self) {
        (self.looking, self.carry) = (Looking::Over, Vec::new());
    }

    /// Looks at the box at `at`, if one is told of.
    fn follow(&mut self, at: Option<u64>) {
        self.looks += 1;
        match at.filter(|_| self.looks <= LOOKS_MAX) {
            Some(at) => self.look_at(Looking::Box, at, 8),
            None => self.stop(),
        }
    }

    /// What are perhaps the last bytes of `mfra`.
    fn take_offset(&mut self, mfro: &[u8]) {
        let end = self.at + MFRO_BYTES;
        let bytes = Boxes(mfro).first(b"mfro").and_then(|it| {
            let mut fields = Fields(it);
            fields.version_and_flags()?;
            fields.u32().map(u64::from)
        });
        let bytes = bytes.filter(|bytes| (MFRO_BYTES..=MFRA_BYTES_MAX).contains(bytes));
        match bytes.and_then(|bytes| Some((end.checked_sub(bytes)?, bytes))) {
            Some((at, bytes)) => self.look_at(Looking::Table, at, bytes),
            None => self.follow(self.index),
        }
    }

    /// A box, or as much of one as was needed to see which it is.
    fn take_box(&mut self, movie: &Movie, carry: Vec<u8>) {
        let has = carry.len() as u64;
        let header = match Header::read(&carry) {
            None => {
                // Its length is a long one.
                (self.carry, self.need) = (carry, HEADER_BYTES_MAX as u64);
                return;
            }
            Some(Ok(header)) => header,
            Some(Err(_)) => return self.stop(),
        };
        let Some(bytes) = header.bytes else {
            return self.stop();
        };
        let end = self.at.saturating_add(bytes);
        let bytes_max = match &header.name {
            b"moof" => MOOF_BYTES_MAX,
            b"sidx" => SIDX_BYTES_MAX,
            b"mfra" => {
                // All before it was seen.
                self.found = self.found.map(|found| Known {
                    bytes: u64::MAX,
                    ..found
                });
                return self.stop();
            }
            _ => has,
        };
        let is_read = matches!(&header.name, b"moof" | b"sidx");
        if is_read && bytes > bytes_max {
            return self.stop();
        }
        if is_read && bytes > has {
            (self.carry, self.need) = (carry, bytes);
            return;
        }
        let inside = carry.get(header.header_bytes.into()..).unwrap_or_default();
        let mut next = end;
        match &header.name {
            b"moof" => {
                let ends_ns = movie.fragment_end_ns(inside);
                let ns = ends_ns.max(self.found.map(|found| found.ns));
                self.found = ns.map(|ns| Known { bytes: end, ns });
            }
            // Of an index of indexes, to the last of those.
            b"sidx" => next = last_of_index(inside, end).unwrap_or(end),
            _ => {}
        }
        if let Some(found) = &mut self.found {
            found.bytes = end;
        }
        self.follow(Some(next));
    }
}

/// Where the last of the parts begins that a segment index tells of which ends at `end` in the
/// file.
fn last_of_index(sidx: &[u8], end: u64) -> Option<u64> {
    let mut fields = Fields(sidx);
    let (version, _) = fields.version_and_flags()?;
    fields.bytes(8)?;
    fields.wide(version)?;
    let mut at = end.checked_add(fields.wide(version)?)?;
    fields.u16()?;
    let told = fields.u16()?;
    let mut last = None;
    for _ in 0..told {
        let Some(row) = fields.bytes(12) else {
            break;
        };
        last = Some(at);
        // The highest bit says whether it is an index, too.
        let bytes = Fields(row).u32()? & 0x7fff_ffff;
        at = at.checked_add(bytes.into())?;
    }
    last
}

/// Where the last fragment begins that `mfra` tells of for tracks that are played.
fn last_of_table(mfra: &[u8], movie: &Movie) -> Option<u64> {
    let tables = Boxes(mfra).filter(|(name, _)| name == b"tfra");
    let last = tables.filter_map(|(_, tfra)| {
        let mut fields = Fields(tfra);
        let (version, _) = fields.version_and_flags()?;
        let id = fields.u32()?;
        movie.fillers.iter().find(|it| it.id == id)?;
        let widths = fields.u32()?;
        let told = fields.u32()? as usize;
        let width = |shift: u32| (widths >> shift & 3) as usize + 1;
        let place = if version == 0 { 8 } else { 16 };
        let row = place + width(4) + width(2) + width(0);
        let last = told.min(fields.0.len() / row).checked_sub(1)?;
        fields.bytes(last * row)?;
        fields.wide(version)?;
        fields.wide(version)
    });
    last.max()
}
