//! Who may touch a chunk's bytes, and what they are. It knows no memory: [`Pool`](super::Pool) has
//! that.
//!
//! The tests read this file once more with atomics of which every order is tried
//! (`model_tests.rs`).

use super::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Pins of one chunk that may exist at once. One more is refused; far above every in-flight limit.
pub const PINS_MAX: u32 = 1 << 24;

/// Set in a chunk's state while it is claimed, or has never been published.
const CLAIMED: u32 = 1 << 31;

/// No chunk's key.
const NOTHING: u64 = u64::MAX;

/// What is known of a chunk. `in_use`, which all take, counts the chunks whose state is not 0. It
/// is written when a state leaves 0 or comes back to it, a few times a second for each reader.
#[derive(Debug)]
pub(super) struct Chunk {
    /// [`CLAIMED`], or the number of pins.
    state: AtomicU32,
    /// Whether it was pinned since the hand passed.
    recent: AtomicBool,
    /// What the chunk holds; meaningful while it is not claimed.
    key: AtomicU64,
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            recent: AtomicBool::new(false),
            key: AtomicU64::new(NOTHING),
        }
    }

    /// Claims it, if nobody has it and it has no second chance; that is taken away. Whoever claims
    /// it publishes it or gives it up.
    pub(super) fn claim(&self, in_use: &AtomicUsize) -> bool {
        if self.state.load(Ordering::Relaxed) != 0 || self.recent.swap(false, Ordering::Relaxed) {
            return false;
        }
        // Acquire: the reads of those who unpinned it come before the writes of the claimant.
        let claimed = self
            .state
            .compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_ok() {
            in_use.fetch_add(1, Ordering::Relaxed);
        }
        claimed.is_ok()
    }

    /// Lets all see it as `key`, with a pin for whoever has claimed it.
    ///
    /// # Panics
    /// If it was not claimed.
    pub(super) fn publish(&self, key: u64) {
        self.key.store(key, Ordering::Relaxed);
        self.recent.store(true, Ordering::Relaxed);
        // Release: the bytes and the key are seen by whoever pins it from now on.
        let before = self.state.swap(1, Ordering::Release);
        assert_eq!(before, CLAIMED, "a claimed chunk is nobody else's");
    }

    /// It is not claimed any more, and what it held is half overwritten: no key finds it.
    pub(super) fn give_up(&self, in_use: &AtomicUsize) {
        self.key.store(NOTHING, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
        in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Pins it, if it holds `key`, is not claimed, and has fewer than [`PINS_MAX`] pins.
    pub(super) fn pin(&self, key: u64, in_use: &AtomicUsize) -> bool {
        // Acquire: pairs with the release in `publish`, so that the claimant's writes are seen.
        let pinned = self
            .state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |pins| {
                (pins < PINS_MAX).then_some(pins + 1)
            });
        match pinned {
            Ok(0) => in_use.fetch_add(1, Ordering::Relaxed),
            Ok(_) => 0,
            Err(_) => return false,
        };
        // Only now is the key stable: a pinned chunk is not claimed, and only claimants write keys.
        if self.key.load(Ordering::Relaxed) != key {
            self.unpin(in_use);
            return false;
        }
        self.recent.store(true, Ordering::Relaxed);
        true
    }

    /// Pins it once more.
    ///
    /// # Panics
    /// If it is not pinned, or has [`PINS_MAX`] pins.
    pub(super) fn pin_again(&self) {
        let before = self.state.fetch_add(1, Ordering::Relaxed);
        assert!(
            (1..PINS_MAX).contains(&before),
            "a pinned chunk has 1 to PINS_MAX pins"
        );
    }

    /// Takes a pin away.
    ///
    /// # Panics
    /// If it has none.
    pub(super) fn unpin(&self, in_use: &AtomicUsize) {
        // Release: what was read through the pin was read before a claimant may write.
        let before = self.state.fetch_sub(1, Ordering::Release);
        assert!(
            (1..=PINS_MAX).contains(&before),
            "an unpinned chunk was pinned"
        );
        if before == 1 {
            in_use.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// As if it had so many pins.
    #[cfg(test)]
    #[allow(dead_code, reason = "the model has no use for it")]
    pub(super) fn set_pins(&self, pins: u32) {
        self.state.store(pins, Ordering::Relaxed);
    }

    /// Its key and its pins, of almost the same moment, if it holds something.
    pub(super) fn content(&self) -> Option<(u64, u32)> {
        let pins = self.state.load(Ordering::Relaxed);
        let key = self.key.load(Ordering::Relaxed);
        (pins <= PINS_MAX && key != NOTHING).then_some((key, pins))
    }
}
