//! A source's table: for each chunk, where it may be found. It grows with its file.
//!
//! It is made of segments, each twice as long as the one before, so that an entry never moves:
//! whoever reads it needs no lock, and whoever makes it longer disturbs nobody.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use super::ABSENT;

/// Entries of the first segment.
const FIRST_ENTRIES: u64 = 64;

/// Segments of a table of [`CHUNKS_MAX`](super::CHUNKS_MAX) entries.
const SEGMENTS_MAX: usize = 26;

#[derive(Debug, Default)]
pub(super) struct Table {
    segments: [OnceLock<Box<[AtomicU32]>>; SEGMENTS_MAX],
}

impl Table {
    /// Makes sure that there are so many entries, which are not more than `CHUNKS_MAX`.
    pub(super) fn grow(&self, entries: u64) {
        let mut start = 0;
        for (segment, length) in self.segments.iter().zip(lengths()) {
            if start >= entries {
                break;
            }
            segment.get_or_init(|| (0..length).map(|_| AtomicU32::new(ABSENT)).collect());
            start += length;
        }
    }

    /// The entry of a chunk.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn entry(&self, chunk: u32) -> &AtomicU32 {
        let segment = (u64::from(chunk) / FIRST_ENTRIES + 1).ilog2();
        let start = ((1 << segment) - 1) * FIRST_ENTRIES;
        let entries = self.segments[segment as usize].get();
        let at = usize::try_from(u64::from(chunk) - start).expect("a segment is in memory");
        &entries.expect("the source has such a chunk")[at]
    }
}

fn lengths() -> impl Iterator<Item = u64> {
    (0..SEGMENTS_MAX).map(|segment| FIRST_ENTRIES << segment)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::CHUNKS_MAX;
    use super::*;

    #[test]
    fn entries_stay_where_they_are_as_it_grows() {
        let table = Table::default();
        table.grow(1);
        let first = std::ptr::from_ref(table.entry(0));
        for entries in [64, 65, 192, 193, 10_000_u32] {
            table.grow(entries.into());
            table.entry(entries - 1).store(entries, Ordering::Relaxed);
        }
        assert!(std::ptr::eq(first, table.entry(0)));
        for entries in [64, 65, 192, 193, 10_000] {
            let entry = table.entry(entries - 1).load(Ordering::Relaxed);
            assert_eq!(entry, entries);
        }
        let absent = (0..10_000).filter(|&i| table.entry(i).load(Ordering::Relaxed) == ABSENT);
        assert_eq!(absent.count(), 10_000 - 5, "no two share a place");
    }

    #[test]
    fn there_is_room_for_as_many_as_there_may_be() {
        assert!(lengths().sum::<u64>() >= CHUNKS_MAX);
        assert!(lengths().take(SEGMENTS_MAX - 1).sum::<u64>() < CHUNKS_MAX);
    }

    #[test]
    #[should_panic(expected = "has such a chunk")]
    fn beyond_its_end_there_is_nothing() {
        let table = Table::default();
        table.grow(64);
        table.entry(64);
    }
}
