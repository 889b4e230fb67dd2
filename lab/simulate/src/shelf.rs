//! What a node keeps of films.

use std::num::NonZeroUsize;

use lru::LruCache;

/// The films that a node has, in memory or on its disk; the one that was asked for least recently
/// goes first.
#[derive(Debug)]
pub(crate) struct Shelf(LruCache<u32, ()>);

impl Shelf {
    pub(crate) fn new(films_max: u64) -> Self {
        let most = usize::try_from(films_max).ok().and_then(NonZeroUsize::new);
        Self(LruCache::new(most.unwrap_or(NonZeroUsize::MIN)))
    }

    /// Whether it had the film that somebody asks for; it has from now on.
    pub(crate) fn asked(&mut self, film: u32) -> bool {
        let had = self.0.get(&film).is_some();
        if !had {
            self.0.put(film, ());
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_least_recently_goes() {
        let mut shelf = Shelf::new(2);
        assert_eq!(
            [1, 2, 1, 3, 1, 2].map(|film| shelf.asked(film)),
            [false, false, true, false, true, false]
        );
    }
}
