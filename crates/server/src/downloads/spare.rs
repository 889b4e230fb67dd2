//! How much may be held of the memory that is left beside the cache.
//!
//! The kernel cannot take back what is held: it ends a process that holds more than there is. In a
//! container of 512 MiB the fixed bounds of what is held would be more than that.

use std::cell::Cell;

use onrush_lock::memory::available_bytes;

/// How long what was read holds: it takes several files.
const AGAIN_NS: u64 = 1_000_000_000;

/// What one kind of thing may hold.
#[derive(Debug)]
pub(super) struct Spare {
    available_bytes: fn() -> u64,
    /// When it was read last, and what it was.
    read: Cell<Option<(u64, u64)>>,
}

impl Spare {
    /// Of the machine, and the control groups of this process.
    pub(super) fn new() -> Self {
        Self::of(available_bytes)
    }

    /// Of what this says is left.
    pub(super) fn of(available_bytes: fn() -> u64) -> Self {
        Self {
            available_bytes,
            read: Cell::new(None),
        }
    }

    /// How much may be held in all by who holds so much now: half of that and of what is left.
    pub(super) fn bytes_max(&self, held_bytes: u64, now_ns: u64) -> u64 {
        match self.read.get() {
            Some((at_ns, bytes)) if now_ns.saturating_sub(at_ns) < AGAIN_NS => bytes,
            _ => {
                let bytes = (self.available_bytes)().saturating_add(held_bytes) / 2;
                self.read.set(Some((now_ns, bytes)));
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_may_be_held_and_is_looked_at_again() {
        let spare = Spare::of(|| 100);
        assert_eq!(spare.bytes_max(0, 5), 50);
        assert_eq!(spare.bytes_max(20, 4 + AGAIN_NS), 50);
        assert_eq!(spare.bytes_max(20, 5 + AGAIN_NS), 60);
        assert_eq!(Spare::of(|| u64::MAX).bytes_max(7, 0), u64::MAX / 2);
    }
}
