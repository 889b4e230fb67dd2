//! Room for whole packets that one sender writes for itself, in the same memory as the chunks: for
//! those that are encrypted for one client alone.
//!
//! It takes chunks of the pool as they are needed, and keeps them, but never so many that little is
//! left for what all read. Each is cut into slots of [`PACKETS_BYTES`]; the packets of one train
//! take one slot until the kernel has let go of the train.

use std::sync::Arc;

use super::Pool;

/// Bytes of a slot: eleven packets that fit an Ethernet frame, which are 20 ms of about 6 Mbit/s.
pub const PACKETS_BYTES: usize = 16 << 10;

/// Of a pool's chunks, all slabs together may keep one in so many.
const SHARE: usize = 8;

/// One sender's slots.
#[derive(Debug)]
pub struct PacketSlab {
    pool: Arc<Pool>,
    chunks_max: usize,
    /// Senders that have one each of this pool.
    slabs: usize,
    chunks: usize,
    /// Where those start in the area that nobody has.
    free: Vec<usize>,
}

/// A slot that holds the packets of one train. It must be given back with [`PacketSlab::give_back`]
/// once the kernel has let go of the train; one that is forgotten is lost to its slab.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a slot that is not given back is lost to its slab"]
pub struct PacketSlot {
    offset: usize,
}

impl PacketSlab {
    /// One of so many `slabs` that the pool's senders have: it takes so many bytes of chunks at
    /// most, and of a small pool less; but one chunk in any case. None yet.
    #[must_use]
    pub fn new(pool: &Arc<Pool>, bytes_max: usize, slabs: usize) -> Self {
        Self {
            pool: Arc::clone(pool),
            chunks_max: bytes_max / pool.chunk_bytes(),
            slabs: slabs.max(1),
            chunks: 0,
            free: Vec::new(),
        }
    }

    /// Chunks that it may have by now: a pool may stay as small as it is.
    fn chunks_max(&self) -> usize {
        let share = self.pool.chunks() / SHARE / self.slabs;
        self.chunks_max.min(share).max(1)
    }

    /// Slots of one chunk: there are as many at least, if there are any.
    #[must_use]
    pub fn slots_of_chunk(&self) -> usize {
        self.pool.chunk_bytes() / PACKETS_BYTES
    }

    /// How many slots are free, after an attempt to have so many. It takes one chunk at most, if
    /// the pool has one to give.
    pub fn room_for(&mut self, slots: usize) -> usize {
        if self.free.len() < slots
            && self.chunks < self.chunks_max()
            && self.slots_of_chunk() > 0
            && let Some(claim) = self.pool.claim()
        {
            let start = self.pool.offset_of(claim.chunk());
            // It stays claimed: nobody else reads or writes it, as long as there is a pool.
            std::mem::forget(claim);
            self.chunks += 1;
            let slots = (0..self.slots_of_chunk()).rev();
            self.free
                .extend(slots.map(|slot| start + slot * PACKETS_BYTES));
        }
        self.free.len()
    }

    /// A slot, filled by `write`.
    ///
    /// # Panics
    /// If there is no room: the caller has seen that there is.
    pub fn take(&mut self, write: impl FnOnce(&mut [u8; PACKETS_BYTES])) -> PacketSlot {
        let offset = self.free.pop();
        let offset = offset.expect("the caller has seen that there is room");
        let start = self.pool.area.base().as_ptr().wrapping_add(offset);
        // SAFETY: the slot lies within a chunk, and so within the area, which `self.pool` keeps.
        // The chunk was claimed by `room_for` and is never given back, so no pin and no other claim
        // refers to it. Slots do not overlap, this one was free, so the kernel has let go of it,
        // and `&mut self` keeps other calls out. Any byte is a valid u8, and an array of them needs
        // no alignment.
        write(unsafe { &mut *start.cast::<[u8; PACKETS_BYTES]>() });
        PacketSlot { offset }
    }

    /// Takes a slot back whose train the kernel has let go of.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "taking the slot away is what it is for"
    )]
    pub fn give_back(&mut self, slot: PacketSlot) {
        debug_assert!(!self.free.contains(&slot.offset), "a slot comes back once");
        self.free.push(slot.offset);
    }
}

impl PacketSlot {
    /// Where it starts in the pool's area.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use onrush_lock::memory::Area;

    use super::*;

    fn pool(chunks: usize, chunk_bytes: usize) -> Arc<Pool> {
        let area = Area::map_base(chunks * chunk_bytes).expect("a little memory");
        Arc::new(Pool::new(area, chunk_bytes))
    }

    #[test]
    fn slots_are_of_chunks_that_nobody_else_gets() {
        let pool = pool(24, 64 << 10);
        let mut slab = PacketSlab::new(&pool, 128 << 10, 1);
        assert_eq!(pool.chunks_in_use(), 0, "none before it is needed");
        let mut held: Vec<PacketSlot> = Vec::new();
        for number in 0..8u8 {
            assert!(slab.room_for(1) > 0);
            let slot = slab.take(|bytes| bytes.fill(number));
            assert!(held.iter().all(|other| other.offset() != slot.offset()));
            assert_eq!(slot.offset() % PACKETS_BYTES, 0);
            held.push(slot);
        }
        assert_eq!(slab.room_for(1), 0, "it takes no more than it may");
        assert_eq!(pool.chunks_in_use(), 2);
        let others: Vec<_> = std::iter::from_fn(|| pool.claim()).collect();
        assert_eq!(others.len(), 22);
        slab.give_back(held.remove(3));
        assert_eq!(slab.room_for(1), 1);
    }

    #[test]
    fn most_of_a_small_pool_is_left_to_others() {
        for (chunks, slabs, kept) in [(16, 1, 2), (15, 1, 1), (32, 2, 2), (32, 9, 1), (1, 1, 1)] {
            let pool = pool(chunks, 64 << 10);
            let mut slab = PacketSlab::new(&pool, 1 << 30, slabs);
            while slab.room_for(1) > 0 {
                drop(slab.take(|_| ()));
            }
            assert_eq!(pool.chunks_in_use(), kept, "{chunks} for {slabs}");
        }
    }

    #[test]
    fn a_pool_without_a_free_chunk_gives_no_room() {
        let pool = pool(1, 64 << 10);
        let claim = pool.claim().expect("the one");
        let mut slab = PacketSlab::new(&pool, 1 << 20, 1);
        assert_eq!(slab.room_for(1), 0);
        drop(claim);
        assert_eq!(slab.room_for(1), 4);
        // Chunks smaller than a slot have none.
        let mut slab = PacketSlab::new(&self::pool(2, 4096), 1 << 20, 1);
        assert_eq!(slab.room_for(1), 0);
    }

    #[test]
    #[should_panic(expected = "there is room")]
    fn one_slot_more_than_there_is_is_our_own_bug() {
        let mut slab = PacketSlab::new(&pool(1, 64 << 10), 1 << 20, 1);
        drop(slab.take(|_| ()));
    }
}
