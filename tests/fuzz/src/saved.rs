//! Saved indexes: that of a film is the film's, and one that was changed, or is none, does no harm.

use onrush_wire::media::{Index, ScanOptions, Scanner};

use crate::file;
use crate::memory::bounded;
use crate::plan;
use crate::random::Random;
use crate::segments;

/// What an index of some bytes may hold beside some times as many.
const MEMORY_BYTES: usize = 1 << 20;
const MEMORY_TIMES: usize = 64;

/// How many changed copies of a film's saved index are tried.
const CHANGED: usize = 4;

/// Restores an index of what may be one; else of what a film's would be, and of changed copies of
/// that.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    if restored(input, &mut random) {
        return;
    }
    for is_elementary in [false, true] {
        let mut scanner = Scanner::new(ScanOptions {
            is_elementary,
            ..ScanOptions::default()
        });
        let index = scanner.read(input).and_then(|()| scanner.finish());
        let Ok(index) = index else { continue };
        let Some(saved) = index.save() else { continue };
        let same = Index::restore(&saved).expect("what was saved is restored");
        plan::assert_same(&index, &same, input);
        assert!(same.save().is_some_and(|again| again == saved));
        for _ in 0..CHANGED {
            let mut changed = saved.clone();
            for _ in 0..=random.below(3) {
                crate::mutate::bytes(&mut changed, &mut random);
            }
            restored(&changed, &mut random);
        }
    }
}

/// Whether the bytes make an index, which then keeps what those of films keep. There is no film
/// that its packets could be made of.
fn restored(saved: &[u8], random: &mut Random) -> bool {
    let memory_max = MEMORY_BYTES + MEMORY_TIMES * saved.len();
    let Ok(index) = bounded(memory_max, || Index::restore(saved)) else {
        return false;
    };
    file::check_tracks(&index);
    for track in 0..index.tracks().len() {
        plan::check(&index, track, &[], random);
    }
    segments::check(&index, &[], random);
    let again = index.save().expect("what was saved can be saved");
    assert!(Index::restore(&again).is_ok());
    true
}
