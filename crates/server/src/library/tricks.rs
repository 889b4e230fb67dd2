//! What is played of a file at other scales than as it was recorded: a source for each track, cut
//! and scale that somebody plays, shared by all who do.
//!
//! They are made on demand and bounded in number. One that nobody plays stays until its place is
//! needed. Each is of the file as it was known when it was made: should that go on to grow, who
//! plays it comes to the end that it had.

use std::sync::Arc;

use onrush_wire::media::{Index, Scale};

use crate::store::Source;

/// Such sources of one file at most. Whoever needs one more plays at scale 1.
pub const TRICKS_MAX: usize = 32;

/// Which it is: the track, the number of its cut, and the scale.
type Key = (usize, usize, Scale);

/// The sources of one file for other scales.
#[derive(Debug, Default)]
pub(super) struct Tricks(Vec<Trick>);

#[derive(Debug)]
struct Trick {
    key: Key,
    /// What it was made of.
    index: Arc<Index>,
    source: Arc<Source>,
}

impl Tricks {
    /// The source of that key and of that index, made if there is none yet; `None` if it cannot be
    /// made, or if [`TRICKS_MAX`] others are in use.
    pub(super) fn get_or_make(
        &mut self,
        index: &Arc<Index>,
        key: Key,
        make: impl FnOnce() -> Option<Arc<Source>>,
    ) -> Option<Arc<Source>> {
        let is_it = |trick: &&Trick| trick.key == key && Arc::ptr_eq(&trick.index, index);
        if let Some(trick) = self.0.iter().find(is_it) {
            return Some(Arc::clone(&trick.source));
        }
        if self.0.len() >= TRICKS_MAX {
            // Whoever plays one, or reads for it, has it too.
            self.0.retain(|trick| Arc::strong_count(&trick.source) > 1);
        }
        if self.0.len() >= TRICKS_MAX {
            return None;
        }
        let (index, source) = (Arc::clone(index), make()?);
        self.0.push(Trick {
            key,
            index,
            source: Arc::clone(&source),
        });
        Some(source)
    }

    /// All of them.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.0.iter().map(|trick| &trick.source)
    }

    /// Whether packets of any could not be made.
    pub(super) fn have_failed(&self) -> bool {
        self.sources().any(|source| source.failure().is_some())
    }
}

#[cfg(test)]
mod tests {
    use onrush_wire::media::ts::synth::constant_rate;
    use onrush_wire::media::{ScanOptions, Scanner};

    use super::*;
    use crate::testing::TestSource;

    fn index() -> Arc<Index> {
        let mut scanner = Scanner::new(ScanOptions::default());
        scanner.push(&constant_rate(100, 0, 10_152)).unwrap();
        Arc::new(scanner.finish().unwrap())
    }

    #[test]
    fn there_is_one_for_all_who_play_it() {
        let (mut tricks, index, scale) = (Tricks::default(), index(), Scale::nearest(2.0));
        let mut made = 0;
        let mut get = |index: &Arc<Index>, key| {
            let make = || {
                made += 1;
                Some(TestSource::lasting(10).source)
            };
            tricks.get_or_make(index, key, make).expect("there is room")
        };
        let first = get(&index, (0, 1, scale));
        assert!(Arc::ptr_eq(&first, &get(&index, (0, 1, scale))));
        for other in [
            get(&index, (1, 1, scale)),
            get(&index, (0, 0, scale)),
            get(&index, (0, 1, Scale::nearest(-2.0))),
            // Of the file as it was known later.
            get(&self::index(), (0, 1, scale)),
        ] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        assert_eq!(made, 5);
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let (mut tricks, index) = (Tricks::default(), index());
        let mut get = |track| {
            let key = (track, 0, Scale::nearest(2.0));
            tricks.get_or_make(&index, key, || Some(TestSource::lasting(10).source))
        };
        let mut played: Vec<_> = (0..TRICKS_MAX).map(&mut get).collect();
        assert!(played.iter().all(Option::is_some));
        assert!(get(TRICKS_MAX).is_none());
        assert!(get(0).is_some(), "those that there are stay");
        // The place of one that nobody plays is free.
        played[7] = None;
        let another = get(TRICKS_MAX);
        assert!(another.is_some());
        assert!(get(7).is_none());
    }
}
