//! Room for headers that one sender writes for itself, in the same memory as the chunks.
//!
//! A vectored send from registered memory needs all of its pieces inside one registered buffer
//! (io_uring/rsrc.c, `io_import_reg_vec`, Linux 6.15). So each registered buffer of the area begins
//! with slots of [`SLOT_BYTES`] for each slab; a train's headers take one slot until the kernel has
//! let go of the train. All of it is laid out when the pool is made; taking and giving back
//! allocates nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Pool;
use onrush_lock::memory::Area;

/// Bytes of a slot: eight headers of up to 16 bytes. A divisor of the page size, so that no header
/// crosses a page, which would make it two pieces of a send.
pub const SLOT_BYTES: usize = 128;

/// Slots of one slab in one registered buffer, at most: 512 KiB.
pub const SLOTS_MAX: usize = 4096;

/// Of a registered buffer, one part in so many may be slots.
const SHARE: usize = 16;

const _: () = assert!(4096 % SLOT_BYTES == 0);

/// How much of a pool's memory is set aside for headers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Layout {
    slabs: usize,
    /// Of one slab in one registered buffer.
    slots: usize,
}

impl Layout {
    /// For so many slabs in this area.
    pub(super) fn of(slabs: usize, area: &Area) -> Self {
        Self::new(slabs, area.bytes_total().min(area.buffer_bytes()))
    }

    /// For so many slabs in registered buffers of so many bytes.
    fn new(slabs: usize, buffer_bytes: usize) -> Self {
        let slots = buffer_bytes / SHARE / SLOT_BYTES / slabs.max(1);
        Self {
            slabs,
            slots: slots.min(SLOTS_MAX),
        }
    }

    /// Bytes at the beginning of each registered buffer that are no chunks, in whole pages.
    pub(super) fn bytes(self) -> usize {
        (self.slabs * self.slots * SLOT_BYTES).next_multiple_of(4096)
    }

    /// Whether nothing is set aside.
    pub(super) fn is_empty(self) -> bool {
        self.slabs * self.slots == 0
    }
}

/// One sender's slots.
#[derive(Debug)]
pub struct HeaderSlab {
    pool: Arc<Pool>,
    slots: usize,
    /// Where its slots begin in a registered buffer.
    first: usize,
    free: Box<[Free]>,
    /// A bit for each slot of each registered buffer: set if it is free. A list would take many
    /// times the memory, for areas of thousands of buffers.
    bits: Box<[u64]>,
}

/// The free slots of one registered buffer.
#[derive(Clone, Copy, Debug)]
struct Free {
    slots: u16,
    /// No word of its bits before this one has a free slot.
    word: u16,
}

/// A slot that holds the headers of one train. It must be given back with [`HeaderSlab::give_back`]
/// once the kernel has let go of the train; one that is forgotten is lost to its slab.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a slot that is not given back is lost to its slab"]
pub struct HeaderSlot {
    offset: usize,
}

impl HeaderSlab {
    /// The next of the pool's slabs that nobody has taken; `None` if all are taken or the pool has
    /// none.
    #[must_use]
    pub fn take_from(pool: &Arc<Pool>) -> Option<Self> {
        let layout = pool.layout;
        if layout.is_empty() {
            return None;
        }
        let taken = &pool.slabs_taken;
        let number = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < layout.slabs).then_some(taken + 1)
        });
        let number = number.ok()?;
        let slots = layout.slots;
        let buffers = pool.area.buffers();
        // The last buffer may be too short for slots, and then has no chunks either.
        let buffers = buffers
            .filter(|bytes| bytes.len() >= layout.bytes())
            .count();
        let all = Free {
            slots: u16::try_from(slots).expect("at most SLOTS_MAX"),
            word: 0,
        };
        let mut bits = vec![u64::MAX; buffers * words(slots)].into_boxed_slice();
        if !slots.is_multiple_of(64) {
            let last = bits.iter_mut().skip(words(slots) - 1).step_by(words(slots));
            last.for_each(|word| *word = (1 << (slots % 64)) - 1);
        }
        Some(Self {
            pool: Arc::clone(pool),
            slots,
            first: number * slots * SLOT_BYTES,
            free: vec![all; buffers].into_boxed_slice(),
            bits,
        })
    }

    /// Slots in each registered buffer.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Free slots in the registered buffer that holds the area's byte `near`.
    #[must_use]
    pub fn room(&self, near: usize) -> usize {
        let free = self.free.get(self.pool.buffer_at(near));
        free.map_or(0, |free| usize::from(free.slots))
    }

    /// A slot in the registered buffer that holds the area's byte `near`, filled by `write`.
    ///
    /// # Panics
    /// If there is no room: the caller has seen that there is.
    pub fn take(&mut self, near: usize, write: impl FnOnce(&mut [u8; SLOT_BYTES])) -> HeaderSlot {
        let buffer = self.pool.buffer_at(near);
        let words = words(self.slots);
        let free = &mut self.free[buffer];
        assert!(free.slots > 0, "the caller has seen that there is room");
        let bits = &mut self.bits[buffer * words..][..words];
        while bits[usize::from(free.word)] == 0 {
            free.word += 1;
        }
        let word = usize::from(free.word);
        let slot = word * 64 + bits[word].trailing_zeros() as usize;
        bits[word] &= bits[word] - 1;
        free.slots -= 1;
        let offset = (buffer << self.pool.buffer_shift) + self.first + slot * SLOT_BYTES;
        let start = self.pool.area.base().as_ptr().wrapping_add(offset);
        // SAFETY: the slot lies within the area, which `self.pool` keeps, at the front of a
        // registered buffer where no chunk is (`Layout::bytes`), so no pin and no claim refers to
        // it. It is this slab's alone (`take_from` gives each slab once) and was free, so the
        // kernel has let go of it, and `&mut self` keeps other calls out. Any byte is a valid u8,
        // and an array of them needs no alignment.
        write(unsafe { &mut *start.cast::<[u8; SLOT_BYTES]>() });
        HeaderSlot { offset }
    }

    /// Takes a slot back whose train the kernel has let go of.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "taking the slot away is what it is for"
    )]
    pub fn give_back(&mut self, slot: HeaderSlot) {
        let buffer = self.pool.buffer_at(slot.offset);
        let start = (buffer << self.pool.buffer_shift) + self.first;
        let number = (slot.offset - start) / SLOT_BYTES;
        let (word, bit) = (number / 64, 1 << (number % 64));
        let bits = &mut self.bits[buffer * words(self.slots) + word];
        assert_eq!(*bits & bit, 0, "a slot comes back once");
        *bits |= bit;
        let free = &mut self.free[buffer];
        free.slots += 1;
        free.word = free
            .word
            .min(u16::try_from(word).expect("at most 64 words"));
    }
}

impl HeaderSlot {
    /// Where it starts in the pool's area.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// Words that have a bit for each of so many slots.
const fn words(slots: usize) -> usize {
    slots.div_ceil(64)
}

#[cfg(test)]
mod tests {
    use onrush_lock::BUFFER_BYTES_MAX;
    use onrush_lock::memory::PIECE_BYTES;

    use super::*;

    #[test]
    fn slots_are_outside_chunks_and_no_slab_has_anothers() {
        let area = Area::map_base(1 << 20).expect("a little memory");
        let pool = Arc::new(Pool::with_slabs(area, 64 << 10, 2));
        let mut slabs: Vec<_> = (0..2)
            .map(|_| HeaderSlab::take_from(&pool).expect("one each"))
            .collect();
        assert!(HeaderSlab::take_from(&pool).is_none(), "two and no more");
        // A sixteenth of the area: 64 KiB, 256 slots each.
        assert_eq!(slabs[0].slots(), 256);
        let mut seen = vec![false; 512];
        let mut held = Vec::new();
        for slab in &mut slabs {
            while slab.room(0) > 0 {
                let slot = slab.take(0, |bytes| bytes.fill(7));
                let place = slot.offset() / SLOT_BYTES;
                assert!(!std::mem::replace(&mut seen[place], true), "{place} twice");
                held.push(slot);
            }
        }
        assert!(seen.iter().all(|&taken| taken));
        assert_eq!(pool.chunks(), 15, "a sixteenth is not chunks");
        let pin = pool.claim().expect("empty").publish(1);
        assert!(pool.offset(&pin) >= 64 << 10);
        pool.unpin(pin);
        for slot in held.drain(256..) {
            slabs[1].give_back(slot);
        }
        assert_eq!((slabs[0].room(0), slabs[1].room(0)), (0, 256));
        // Beyond the area there is no buffer.
        assert_eq!(slabs[1].room(BUFFER_BYTES_MAX), 0);
    }

    #[test]
    fn each_piece_of_a_growing_area_begins_with_slots() {
        // The last piece is too short for any.
        let bytes = 2 * PIECE_BYTES + (128 << 10);
        let area = Area::reserve(bytes, false, None).expect("64 MiB");
        let grow = || area.grow(|| false).expect("a piece");
        assert_eq!(
            (grow(), grow(), grow()),
            (PIECE_BYTES, 2 * PIECE_BYTES, bytes)
        );
        let pool = Arc::new(Pool::with_slabs(area, 256 << 10, 3));
        let mut slabs: Vec<_> = (0..3)
            .map(|_| HeaderSlab::take_from(&pool).expect("one each"))
            .collect();
        let set_aside = 3 * SLOTS_MAX * SLOT_BYTES;
        assert_eq!(pool.chunks(), 2 * ((PIECE_BYTES - set_aside) >> 18));
        for (number, slab) in slabs.iter_mut().enumerate() {
            for piece in [0, PIECE_BYTES] {
                assert_eq!(slab.room(piece + PIECE_BYTES - 1), SLOTS_MAX);
                let held: Vec<_> = (0..SLOTS_MAX).map(|_| slab.take(piece, |_| ())).collect();
                assert_eq!(slab.room(piece), 0);
                let first = piece + number * SLOTS_MAX * SLOT_BYTES;
                let expected = (0..SLOTS_MAX).map(|slot| first + slot * SLOT_BYTES);
                assert!(held.iter().map(HeaderSlot::offset).eq(expected));
                held.into_iter().for_each(|slot| slab.give_back(slot));
            }
            assert_eq!(slab.room(2 * PIECE_BYTES), 0);
        }
        let pins: Vec<_> = (0..pool.chunks() as u64)
            .map(|key| pool.claim().expect("free").publish(key))
            .collect();
        for pin in pins {
            let offset = pool.offset(&pin);
            assert!(offset % PIECE_BYTES >= set_aside && offset < 2 * PIECE_BYTES);
            pool.unpin(pin);
        }
    }

    #[test]
    #[should_panic(expected = "comes back once")]
    fn a_slot_that_comes_back_twice_is_our_own_bug() {
        let area = Area::map_base(1 << 16).expect("a little memory");
        let pool = Arc::new(Pool::with_slabs(area, 4 << 10, 1));
        let mut slab = HeaderSlab::take_from(&pool).expect("one");
        let slot = slab.take(0, |_| ());
        let again = HeaderSlot { ..slot };
        slab.give_back(slot);
        slab.give_back(again);
    }

    #[test]
    #[should_panic(expected = "there is room")]
    fn one_slot_more_than_there_is_is_our_own_bug() {
        let area = Area::map_base(1 << 16).expect("a little memory");
        let pool = Arc::new(Pool::with_slabs(area, 4 << 10, 1));
        let mut slab = HeaderSlab::take_from(&pool).expect("one");
        for _ in 0..=slab.slots() {
            let _lost = slab.take(0, |_| ());
        }
    }

    #[test]
    fn a_slab_has_at_most_slots_max_and_a_pool_may_have_none() {
        assert_eq!(Layout::new(1, 1 << 30).slots, SLOTS_MAX);
        assert_eq!(Layout::new(1, 1 << 40).slots, SLOTS_MAX);
        assert_eq!(Layout::new(64, 1 << 20).slots, 8);
        assert!(Layout::new(0, 1 << 30).is_empty());
        let area = Area::map_base(1 << 16).expect("a little memory");
        let pool = Arc::new(Pool::new(area, 4 << 10));
        assert!(HeaderSlab::take_from(&pool).is_none());
        assert_eq!(pool.chunks(), 16);
    }
}
