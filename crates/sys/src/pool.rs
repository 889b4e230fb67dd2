//! A pool: an area cut into chunks that are written by one, then read by many.
//!
//! The one idea: a chunk's state is a single counter. Nobody but the holder of a [`Claim`] may
//! touch a claimed chunk; while anybody holds a [`Pin`] nobody can claim it. The kernel is a reader
//! like any other: a send in flight holds a pin until the kernel has said that it is done with the
//! memory.
//!
//! Pinning takes no lock and enters no kernel. Claiming takes a lock that only those who write
//! share.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use chunk::Chunk;
pub use chunk::PINS_MAX;
use growth::Growth;
pub use growth::{PoolUser, Taken};
use onrush_lock::memory::Area;
pub use packets::{PACKETS_BYTES, PacketSlab, PacketSlot};
pub use slab::{HeaderSlab, HeaderSlot, SLOT_BYTES, SLOTS_MAX};
use sync::{AtomicU32, AtomicUsize, Ordering};

mod chunk;
mod growth;
#[cfg(test)]
mod model_tests;
mod packets;
mod slab;

mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// Chunks of equal size, shared between threads.
pub struct Pool {
    area: Area,
    /// The area's registered buffers are of 2 to the power of this many bytes.
    buffer_shift: u32,
    chunk_bytes: usize,
    /// Those that there are to be; the first ones are ready.
    chunks: Box<[Chunk]>,
    growth: Growth,
    /// Chunks that are claimed or pinned.
    in_use: AtomicUsize,
    /// Where the search for a chunk to claim goes on: the hand of the clock algorithm.
    hand: Mutex<usize>,
    /// Tells this pool's pins from those of another.
    tag: u32,
    /// What is set aside for headers at the front of each registered buffer.
    layout: slab::Layout,
    slabs_taken: AtomicUsize,
}

/// The right to read one chunk. It must be given back with [`Pool::unpin`]; a pin that is forgotten
/// keeps its chunk for ever.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a pin that is not given back keeps its chunk for ever"]
pub struct Pin {
    chunk: u32,
    tag: u32,
}

/// The right to write one chunk, for one thread. Dropped without being published, the chunk is free
/// again.
#[must_use]
pub struct Claim<'a> {
    pool: &'a Pool,
    chunk: u32,
}

impl Pool {
    /// Cuts `area` into chunks of `chunk_bytes`; what is left over at its end stays unused.
    ///
    /// # Panics
    /// If `chunk_bytes` is zero, or if there would be 2^31 chunks or more.
    #[must_use]
    pub fn new(area: Area, chunk_bytes: usize) -> Self {
        Self::laid_out(area, chunk_bytes, slab::Layout::default())
    }

    /// The same, with room for `slabs` senders to write headers of their own; see [`HeaderSlab`].
    /// It is up to a sixteenth of the area.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn with_slabs(area: Area, chunk_bytes: usize, slabs: usize) -> Self {
        let layout = slab::Layout::of(slabs, &area);
        Self::laid_out(area, chunk_bytes, layout)
    }

    fn laid_out(area: Area, chunk_bytes: usize, layout: slab::Layout) -> Self {
        static NEXT_TAG: AtomicU32 = AtomicU32::new(0);
        assert!(chunk_bytes > 0, "chunks have a size");
        let count = chunks_in(&area, area.bytes_total(), chunk_bytes, layout);
        assert!(count < 1 << 31, "chunk numbers are 31 bits");
        let chunks = (0..count).map(|_| Chunk::new()).collect();
        let tag = NEXT_TAG.fetch_add(1, Ordering::Relaxed);
        let ready = chunks_in(&area, area.ready_bytes(), chunk_bytes, layout);
        assert!(area.buffer_bytes().is_power_of_two());
        Self {
            buffer_shift: area.buffer_bytes().trailing_zeros(),
            area,
            chunk_bytes,
            chunks,
            growth: Growth::new(ready, count),
            in_use: AtomicUsize::new(0),
            hand: Mutex::new(0),
            tag,
            layout,
            slabs_taken: AtomicUsize::new(0),
        }
    }

    /// A chunk to write: the first that nobody has pinned, those not pinned for longest first
    /// (clock, or second chance). What it held is lost. `None` if every chunk that is ready is
    /// pinned or claimed.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = self.chunks();
        // Twice around: the first turn takes the second chances away.
        for _ in 0..ready * 2 {
            let at = *hand;
            *hand = (at + 1) % ready;
            if self.chunks[at].claim(&self.in_use) {
                let chunk = u32::try_from(at).expect("a pool has fewer than 2^31 chunks");
                return Some(Claim { pool: self, chunk });
            }
        }
        None
    }

    /// Pins chunk number `chunk` if it holds `key`. `None` if it holds something else by now, is
    /// being written, does not exist, or has [`PINS_MAX`] pins.
    #[must_use]
    pub fn pin(&self, chunk: u32, key: u64) -> Option<Pin> {
        let is_pinned = self.chunks.get(chunk as usize)?.pin(key, &self.in_use);
        is_pinned.then_some(Pin {
            chunk,
            tag: self.tag,
        })
    }

    /// One more pin of the same chunk.
    ///
    /// # Panics
    /// If the pin is another pool's, or the chunk has [`PINS_MAX`] pins.
    pub fn pin_again(&self, pin: &Pin) -> Pin {
        self.chunk(pin).pin_again();
        Pin {
            chunk: pin.chunk,
            tag: pin.tag,
        }
    }

    /// Gives a pin back.
    ///
    /// # Panics
    /// If the pin is another pool's.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "taking the pin away is what it is for"
    )]
    pub fn unpin(&self, pin: Pin) {
        self.chunk(&pin).unpin(&self.in_use);
    }

    /// The pinned chunk's bytes.
    ///
    /// # Panics
    /// If the pin is another pool's.
    #[must_use]
    pub fn bytes<'a>(&'a self, pin: &'a Pin) -> &'a [u8] {
        let start = self.area.base().as_ptr().wrapping_add(self.offset(pin));
        // SAFETY: the chunk lies within the area, which lives as long as `self`. The pin, which is
        // borrowed as long as the slice and cannot be copied or made but by this pool, keeps the
        // chunk's state above zero, so no claim, and with it no `&mut` to these bytes, can exist
        // (`claim` needs a state of 0).
        unsafe { std::slice::from_raw_parts(start, self.chunk_bytes) }
    }

    /// Where the pinned chunk starts in the area.
    ///
    /// # Panics
    /// If the pin is another pool's.
    #[must_use]
    pub fn offset(&self, pin: &Pin) -> usize {
        assert_eq!(pin.tag, self.tag, "a pin belongs to the pool that gave it");
        self.offset_of(pin.chunk)
    }

    fn offset_of(&self, chunk: u32) -> usize {
        let chunk = chunk as usize;
        if self.layout.is_empty() {
            return chunk * self.chunk_bytes;
        }
        let set_aside = self.layout.bytes();
        let in_buffer = (self.area.buffer_bytes() - set_aside) / self.chunk_bytes;
        let (buffer, nth) = (chunk / in_buffer, chunk % in_buffer);
        (buffer << self.buffer_shift) + set_aside + nth * self.chunk_bytes
    }

    /// The number of the registered buffer that holds the area's byte `offset`.
    #[must_use]
    pub fn buffer_at(&self, offset: usize) -> usize {
        offset >> self.buffer_shift
    }

    /// The pinned chunk's number, by which it can be pinned again.
    ///
    /// # Panics
    /// If the pin is another pool's.
    #[must_use]
    pub fn chunk_number(&self, pin: &Pin) -> u32 {
        assert_eq!(pin.tag, self.tag, "a pin belongs to the pool that gave it");
        pin.chunk
    }

    /// The memory itself.
    #[must_use]
    pub fn area(&self) -> &Area {
        &self.area
    }

    /// Bytes of a chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Number of chunks that are ready: all, unless the area is still being made ready.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.growth.ready()
    }

    /// How many chunks are pinned or claimed at this moment.
    #[must_use]
    pub fn chunks_in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// The key of each chunk that holds something, and its pins: of almost the same moment, and
    /// nobody is stopped for it.
    pub fn contents(&self) -> impl Iterator<Item = (u64, u32)> {
        let ready = self.chunks[..self.chunks()].iter();
        ready.filter_map(Chunk::content)
    }

    fn chunk(&self, pin: &Pin) -> &Chunk {
        assert_eq!(pin.tag, self.tag, "a pin belongs to the pool that gave it");
        &self.chunks[pin.chunk as usize]
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chunks, chunk_bytes) = (self.chunks.len(), self.chunk_bytes);
        write!(
            f,
            "Pool {{ chunks: {chunks}, chunk_bytes: {chunk_bytes}, area: {:?} }}",
            self.area
        )
    }
}

impl Claim<'_> {
    /// The chunk's bytes, with whatever was left in them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let offset = self.pool.offset_of(self.chunk);
        let start = self.pool.area.base().as_ptr().wrapping_add(offset);
        // SAFETY: the chunk lies within the area, which outlives `self.pool`. Its state is CLAIMED
        // and only this claim holds it, so no pin and no other claim refers to these bytes; the
        // slice borrows the claim mutably.
        unsafe { std::slice::from_raw_parts_mut(start, self.pool.chunk_bytes) }
    }

    /// The chunk's number, by which it will be pinned.
    #[must_use]
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Lets all see the chunk as `key`, and pins it for the caller.
    pub fn publish(self, key: u64) -> Pin {
        self.pool.chunks[self.chunk as usize].publish(key);
        let pin = Pin {
            chunk: self.chunk,
            tag: self.pool.tag,
        };
        std::mem::forget(self);
        pin
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let chunk = &self.pool.chunks[self.chunk as usize];
        chunk.give_up(&self.pool.in_use);
    }
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim {{ chunk: {} }}", self.chunk)
    }
}

/// Chunks in the first `bytes` of an area, which end with a registered buffer.
fn chunks_in(area: &Area, bytes: usize, chunk_bytes: usize, layout: slab::Layout) -> usize {
    if layout.is_empty() {
        return bytes / chunk_bytes;
    }
    // No chunk lies across two registered buffers, each of which begins with headers.
    let buffers = area.buffers().take_while(|buffer| buffer.end <= bytes);
    buffers
        .map(|buffer| buffer.len().saturating_sub(layout.bytes()) / chunk_bytes)
        .sum()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn pool(chunks: usize) -> Pool {
        Pool::new(
            Area::map(chunks * 4096).expect("a few pages can be mapped"),
            4096,
        )
    }

    #[test]
    fn a_pinned_chunk_is_not_claimed_and_an_unpinned_one_is() {
        let pool = pool(2);
        let a = pool.claim().expect("empty").publish(1);
        let b = pool.claim().expect("one left").publish(2);
        assert!(pool.claim().is_none());
        let again = pool.pin_again(&a);
        pool.unpin(a);
        assert!(pool.claim().is_none(), "one pin of two is left");
        pool.unpin(again);
        let claim = pool.claim().expect("its last pin is gone");
        assert_eq!(claim.chunk(), 0);
        assert_eq!(pool.pin(0, 1), None, "claimed");
        drop(claim);
        assert_eq!(pool.pin(0, 1), None, "its content is lost");
        assert_eq!(pool.pin(1, 1), None, "another key");
        assert_eq!(pool.pin(2, 1), None, "no such chunk");
        pool.unpin(b);
    }

    #[test]
    fn chunks_not_used_for_longest_go_first() {
        let pool = pool(3);
        for key in 0..3 {
            let pin = pool.claim().expect("free").publish(key);
            pool.unpin(pin);
        }
        // The first search takes all second chances and then the first chunk.
        drop(pool.claim().expect("all unpinned"));
        let pin = pool.pin(1, 1).expect("still there");
        pool.unpin(pin);
        assert_eq!(pool.claim().expect("one").chunk(), 2, "1 was used since");
    }

    #[test]
    fn a_chunk_has_so_many_readers_and_no_more() {
        let pool = pool(1);
        let first = pool.claim().expect("empty").publish(1);
        // Not one by one: there are too many.
        pool.chunks[0].set_pins(PINS_MAX - 1);
        let last = pool.pin(0, 1).expect("one more may be");
        assert_eq!(pool.pin(0, 1), None);
        pool.unpin(last);
        let last = pool.pin_again(&first);
        let more =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.pin_again(&first)));
        assert!(more.is_err(), "our own bug");
        pool.chunks[0].set_pins(2);
        pool.unpin(last);
        pool.unpin(first);
        assert!(pool.claim().is_some());
    }

    #[test]
    #[should_panic(expected = "belongs to the pool")]
    fn a_pin_of_another_pool_is_refused() {
        let (one, other) = (pool(1), pool(1));
        let pin = one.claim().expect("empty").publish(1);
        assert!(!other.bytes(&pin).is_empty());
    }

    #[test]
    fn readers_never_see_a_chunk_being_written() {
        // Miri takes a thousand times as long, and is asked about memory, not about luck.
        let writes = if cfg!(miri) { 20 } else { 20_000 };
        let pool = Arc::new(pool(4));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let pool = Arc::clone(&pool);
                std::thread::spawn(move || {
                    let mut seen = 0u32;
                    for round in 0..writes * 10 {
                        let chunk = round % 4;
                        for key in 0..4u64 {
                            let Some(pin) = pool.pin(chunk, key) else {
                                continue;
                            };
                            let bytes = pool.bytes(&pin);
                            let expected = u8::try_from(key).expect("small");
                            assert!(bytes.iter().step_by(511).all(|&b| b == expected));
                            pool.unpin(pin);
                            seen += 1;
                        }
                    }
                    seen
                })
            })
            .collect();
        for round in 0..u64::from(writes) {
            let Some(mut claim) = pool.claim() else {
                continue;
            };
            let key = round % 4;
            claim.bytes_mut().fill(u8::try_from(key).expect("small"));
            let pin = claim.publish(key);
            pool.unpin(pin);
        }
        for reader in readers {
            reader.join().expect("no reader saw a mixture");
        }
        assert_eq!(pool.chunks_in_use(), 0);
    }

    proptest! {
        /// Any sequence of claims, pins and unpins agrees with a model that only counts.
        #[test]
        fn agrees_with_a_counting_model(steps in prop::collection::vec((0u8..4, 0u64..6), 1..300)) {
            let pool = pool(3);
            let mut pins: Vec<(u64, Pin)> = Vec::new();
            let mut holds: HashMap<u64, u32> = HashMap::new();
            for (step, key) in steps {
                match step {
                    0 => {
                        let pinned: std::collections::HashSet<u32> =
                            pins.iter().map(|(_, p)| p.chunk).collect();
                        match pool.claim() {
                            Some(claim) => {
                                prop_assert!(!pinned.contains(&claim.chunk()));
                                holds.retain(|_, chunk| *chunk != claim.chunk());
                                holds.insert(key, claim.chunk());
                                pins.push((key, claim.publish(key)));
                            }
                            None => prop_assert_eq!(pinned.len(), 3),
                        }
                    }
                    1 => if let Some(&chunk) = holds.get(&key) {
                        pins.push((key, pool.pin(chunk, key).expect("it holds the key")));
                    },
                    2 => if !pins.is_empty() {
                        let at = usize::try_from(key).unwrap() % pins.len();
                        let again = pool.pin_again(&pins[at].1);
                        pins.push((pins[at].0, again));
                    },
                    _ => if !pins.is_empty() {
                        let (_, pin) = pins.swap_remove(usize::try_from(key).unwrap() % pins.len());
                        pool.unpin(pin);
                    },
                }
                let in_use: std::collections::HashSet<u32> =
                    pins.iter().map(|(_, p)| p.chunk).collect();
                prop_assert_eq!(pool.chunks_in_use(), in_use.len());
            }
            for (_, pin) in pins {
                pool.unpin(pin);
            }
            prop_assert_eq!(pool.chunks_in_use(), 0);
        }
    }
}
