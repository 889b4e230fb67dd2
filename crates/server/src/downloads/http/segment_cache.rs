//! Segments that were computed for somebody, for whoever asks next: their heads, where in the file
//! their pieces lie, and the bytes of those that are copied.
//!
//! They are called by their entity tags, which name the file's bytes, the track and the number.
//! What was asked for lately is kept: when a generation is full, the one before it goes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use onrush_wire::media::segments::Segment;

/// Bytes of segments that are kept, without what the kernel sends of files.
pub const SEGMENT_CACHE_BYTES_MAX: usize = 8 << 20;

/// Of one segment; longer ones are computed for each request.
const KEPT_BYTES_MAX: usize = SEGMENT_CACHE_BYTES_MAX / 8;

/// What an entry takes beside what is in it, about.
const ENTRY_BYTES: usize = 128;

/// What was computed lately.
#[derive(Debug, Default)]
pub(crate) struct SegmentCache(RefCell<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<String, Rc<Segment>>,
    /// Bytes of those.
    young_bytes: usize,
    old: HashMap<String, Rc<Segment>>,
}

impl SegmentCache {
    /// The segment of that tag, if it is kept.
    pub(super) fn get(&self, etag: &str) -> Option<Rc<Segment>> {
        let mut all = self.0.borrow_mut();
        if let Some(segment) = all.young.get(etag) {
            return Some(Rc::clone(segment));
        }
        let (etag, segment) = all.old.remove_entry(etag)?;
        all.insert(etag, Rc::clone(&segment));
        Some(segment)
    }

    /// Keeps a segment, if it is not too long.
    pub(super) fn insert(&self, etag: &str, segment: &Rc<Segment>) {
        if bytes(etag, segment) <= KEPT_BYTES_MAX {
            let mut all = self.0.borrow_mut();
            all.insert(etag.to_owned(), Rc::clone(segment));
        }
    }
}

impl Generations {
    fn insert(&mut self, etag: String, segment: Rc<Segment>) {
        let bytes = bytes(&etag, &segment);
        if self.young_bytes + bytes > SEGMENT_CACHE_BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(etag, segment).is_none() {
            self.young_bytes += bytes;
        }
    }
}

fn bytes(etag: &str, segment: &Segment) -> usize {
    etag.len() + memory_bytes(segment) + ENTRY_BYTES
}

/// What a segment holds of memory, without what the kernel sends of its file.
pub(super) fn memory_bytes(segment: &Segment) -> usize {
    let pieces = segment.pieces.capacity() * size_of_val(&(0..0_u64));
    segment.head.capacity() + pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(bytes: usize) -> Rc<Segment> {
        Rc::new(Segment {
            head: vec![7; bytes],
            pieces: vec![1..9, 20..30],
        })
    }

    fn kept_bytes(cache: &SegmentCache) -> usize {
        let all = cache.0.borrow();
        let both = all.young.iter().chain(&all.old);
        both.map(|(etag, segment)| bytes(etag, segment)).sum()
    }

    #[test]
    fn what_was_asked_for_lately_is_kept_within_the_bound() {
        let cache = SegmentCache::default();
        let first = segment(1000);
        cache.insert("first", &first);
        for number in 0..50_000 {
            cache.insert(&number.to_string(), &segment(1000));
            // Whoever asks for it keeps it here.
            let found = cache.get("first").unwrap();
            assert!(Rc::ptr_eq(&found, &first));
            if number % 1000 == 0 {
                assert!(kept_bytes(&cache) <= SEGMENT_CACHE_BYTES_MAX);
            }
        }
        assert!(kept_bytes(&cache) > SEGMENT_CACHE_BYTES_MAX / 4);
        assert!(cache.get("0").is_none(), "it is long ago");
        assert_eq!(cache.get("49999").unwrap().head, [7; 1000]);
    }

    #[test]
    fn a_long_one_pushes_out_nobody() {
        let cache = SegmentCache::default();
        cache.insert("short", &segment(10));
        cache.insert("long", &segment(KEPT_BYTES_MAX));
        assert!(cache.get("long").is_none() && cache.get("short").is_some());
        cache.insert("short", &segment(20));
        assert_eq!(kept_bytes(&cache), bytes("short", &segment(20)));
    }
}
