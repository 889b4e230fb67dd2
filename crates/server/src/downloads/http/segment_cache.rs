//! Segments that were computed for somebody, for whoever asks next: their heads, where in the file
//! their pieces lie, and the bytes of those that are copied.
//!
//! They are called by their entity tags, which name the file's bytes, the track and the number; a
//! copy of the file has the same tags, and what is kept of the one is not sent of the other. What
//! was asked for lately is kept: when a generation is full, the one before it goes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use onrush_wire::media::segments::Segment;

use crate::library::Identity;

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
    young: HashMap<String, Kept>,
    /// Bytes of those.
    young_bytes: usize,
    old: HashMap<String, Kept>,
}

#[derive(Debug)]
struct Kept {
    /// The device and the inode of its film, which may grow meanwhile.
    film: (u64, u64),
    segment: Rc<Segment>,
}

impl SegmentCache {
    /// The segment of that tag, if it is kept and of this file.
    pub(super) fn get(&self, etag: &str, film: Identity) -> Option<Rc<Segment>> {
        let mut all = self.0.borrow_mut();
        let is_of_film = |it: &Kept| it.film == (film.device, film.inode);
        if let Some(kept) = all.young.get(etag) {
            return is_of_film(kept).then(|| Rc::clone(&kept.segment));
        }
        let (etag, kept) = all.old.remove_entry(etag)?;
        let segment = is_of_film(&kept).then(|| Rc::clone(&kept.segment));
        all.insert(etag, kept);
        segment
    }

    /// Keeps a segment, if it is not too long.
    pub(super) fn insert(&self, etag: &str, film: Identity, segment: &Rc<Segment>) {
        if bytes(etag, segment) <= KEPT_BYTES_MAX {
            let kept = Kept {
                film: (film.device, film.inode),
                segment: Rc::clone(segment),
            };
            self.0.borrow_mut().insert(etag.to_owned(), kept);
        }
    }
}

impl Generations {
    fn insert(&mut self, etag: String, kept: Kept) {
        let bytes = bytes(&etag, &kept.segment);
        if self.young_bytes + bytes > SEGMENT_CACHE_BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(etag, kept).is_none() {
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

    const FILM: Identity = Identity {
        device: 1,
        inode: 7,
        file_bytes: 1,
        modified_ns: 0,
    };

    fn segment(bytes: usize) -> Rc<Segment> {
        Rc::new(Segment {
            head: vec![7; bytes],
            pieces: vec![1..9, 20..30],
        })
    }

    fn kept_bytes(cache: &SegmentCache) -> usize {
        let all = cache.0.borrow();
        let both = all.young.iter().chain(&all.old);
        both.map(|(etag, kept)| bytes(etag, &kept.segment)).sum()
    }

    #[test]
    fn what_was_asked_for_lately_is_kept_within_the_bound() {
        let cache = SegmentCache::default();
        let first = segment(1000);
        cache.insert("first", FILM, &first);
        for number in 0..50_000 {
            cache.insert(&number.to_string(), FILM, &segment(1000));
            // Whoever asks for it keeps it here.
            let found = cache.get("first", FILM).unwrap();
            assert!(Rc::ptr_eq(&found, &first));
            if number % 1000 == 0 {
                assert!(kept_bytes(&cache) <= SEGMENT_CACHE_BYTES_MAX);
            }
        }
        assert!(kept_bytes(&cache) > SEGMENT_CACHE_BYTES_MAX / 4);
        assert!(cache.get("0", FILM).is_none(), "it is long ago");
        assert_eq!(cache.get("49999", FILM).unwrap().head, [7; 1000]);
    }

    #[test]
    fn a_long_one_pushes_out_nobody() {
        let cache = SegmentCache::default();
        cache.insert("short", FILM, &segment(10));
        cache.insert("long", FILM, &segment(KEPT_BYTES_MAX));
        assert!(cache.get("long", FILM).is_none() && cache.get("short", FILM).is_some());
        cache.insert("short", FILM, &segment(20));
        assert_eq!(kept_bytes(&cache), bytes("short", &segment(20)));
    }

    /// A copy has the same tags.
    #[test]
    fn what_is_of_one_file_is_not_sent_of_another() {
        let cache = SegmentCache::default();
        let copy = Identity { inode: 8, ..FILM };
        cache.insert("a", FILM, &segment(10));
        assert!(cache.get("a", copy).is_none());
        // Nor what lies in the older generation.
        let older = std::mem::take(&mut cache.0.borrow_mut().young);
        cache.0.borrow_mut().old = older;
        assert!(cache.get("a", copy).is_none());
        let grown = Identity {
            file_bytes: 2,
            ..FILM
        };
        assert!(cache.get("a", grown).is_some());
        cache.insert("a", copy, &segment(20));
        assert_eq!(cache.get("a", copy).unwrap().head, [7; 20]);
    }
}
