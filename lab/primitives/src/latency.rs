//! Loads that depend on each other, in an order that no prefetcher guesses.
//!
//! A [`Chain`] is a ring of pointers through the first part of some memory, one for each stride.
//! Each load's address is what the load before it brought, so that nothing overlaps: time over
//! loads is the latency of wherever the memory is just now.

use super::map::Memory;

/// The order in which the nodes are visited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// As they lie.
    Rising,
    /// Mixed, the same each time.
    Random,
    /// Mixed pages, and mixed places in each, a page after the other: an address is looked up once
    /// for all of a page's loads, so that caches are left.
    ByPage,
}

/// A ring of pointers in some memory.
#[derive(Debug)]
pub struct Chain<'m> {
    /// A node of the ring. It lives in `memory`, which nobody else can reach meanwhile.
    at: *const Node,
    nodes: usize,
    memory: &'m Memory,
}

/// Points to the next.
#[derive(Debug)]
#[repr(transparent)]
struct Node(*const Self);

/// Nodes of a ring; with more places than that, they are spread over all of the memory. Enough for
/// 32 MB of cache lines, of which a walk that begins where linking did finds none in a cache.
pub const NODES_MAX: usize = 1 << 20;

/// Loads in one turn of [`Chain::walk`].
pub const LOADS: usize = 8;

impl<'m> Chain<'m> {
    /// Links the first `bytes` of `memory`, a node each `stride` bytes.
    ///
    /// # Panics
    ///
    /// If the memory is smaller, or a stride is no multiple of a pointer.
    pub fn link(memory: &'m mut Memory, bytes: usize, stride: usize, order: Order) -> Self {
        let is_aligned = stride > 0 && stride.is_multiple_of(size_of::<Node>());
        assert!(
            is_aligned && (stride..=memory.bytes()).contains(&bytes),
            "{bytes} {stride}"
        );
        let places = bytes / stride;
        let nodes = places.min(NODES_MAX);
        let base = memory.base().as_ptr();
        let mut mixed = Mixed::new(places);
        let mut by_page = ByPage::new(bytes, stride);
        let mut place = |index: usize| {
            let place = match order {
                Order::Rising => index * (places / nodes),
                Order::Random => mixed.next(),
                Order::ByPage => by_page.next(),
            };
            // SAFETY: `place` is below `places`, so this is at least a stride before the memory's
            // end.
            unsafe { base.add(place * stride) }.cast::<Node>()
        };
        let first = place(0);
        let mut at = first;
        for index in 1..=nodes {
            let next = if index == nodes { first } else { place(index) };
            // SAFETY: inside the memory, which is ours alone (`&mut`); strides are multiples of a
            // pointer and the memory begins at a page, so it is aligned.
            unsafe { at.write(Node(next)) };
            at = next;
        }
        Self {
            at: first,
            nodes,
            memory,
        }
    }

    /// Goes `turns` times [`LOADS`] nodes further.
    #[inline(never)]
    pub fn walk(&mut self, turns: usize) {
        let mut at = self.at;
        for _ in 0..turns {
            at = next(next(next(next(next(next(next(next(at))))))));
        }
        // Kept, so that no load can be left out.
        self.at = at;
    }

    /// Nodes in the ring.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Where in the memory the walk is, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at.addr() - self.memory.base().addr().get()
    }
}

#[inline]
fn next(at: *const Node) -> *const Node {
    // SAFETY: every node of a ring points to a node of the ring (`Chain::link`), in memory that the
    // chain borrows. Volatile, so that none is kept from an earlier round.
    unsafe { at.read_volatile() }.0
}

/// Every number below a bound, once, mixed: a bijection on the next power of two, less what is
/// beyond.
#[derive(Debug)]
struct Mixed {
    bound: u64,
    bits: u32,
    index: u64,
}

impl Mixed {
    fn new(bound: usize) -> Self {
        let bound = bound as u64;
        let bits = bound.next_power_of_two().trailing_zeros().max(2);
        Self {
            bound,
            bits,
            index: 0,
        }
    }

    fn next(&mut self) -> usize {
        loop {
            let mask = (1 << self.bits) - 1;
            // Each step can be undone: adding, multiplying by an odd number, xor with a part
            // further up.
            let mut x = self.index & mask;
            self.index += 1;
            for factor in [
                0x9e37_79b9_7f4a_7c15_u64,
                0xbf58_476d_1ce4_e5b9,
                0x94d0_49bb_1331_11eb,
            ] {
                x = x.wrapping_add(0x6a09_e667).wrapping_mul(factor) & mask;
                x ^= x >> (self.bits / 2);
            }
            if x < self.bound {
                return usize::try_from(x).expect("below a bound that is a usize");
            }
        }
    }
}

/// Places by page: the pages mixed, and the places in each, in an order of its own.
struct ByPage {
    pages: Mixed,
    page: usize,
    places: Mixed,
    places_each: usize,
    left: usize,
}

impl ByPage {
    fn new(bytes: usize, stride: usize) -> Self {
        let places_each = (PAGE_BYTES / stride).max(1);
        let pages = (bytes / stride).div_ceil(places_each);
        Self {
            pages: Mixed::new(pages),
            page: 0,
            places: Mixed::new(places_each),
            places_each,
            left: 0,
        }
    }

    fn next(&mut self) -> usize {
        if self.left == 0 {
            self.page = self.pages.next();
            self.places = Mixed::new(self.places_each);
            self.left = self.places_each;
        }
        self.left -= 1;
        // The same order turned by the page's number: no two neighbours are alike.
        let turned = (self.places.next() + self.page * 29) % self.places_each;
        self.page * self.places_each + turned
    }
}

const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::map::Pages;

    #[test]
    fn a_ring_visits_each_place_once_and_comes_back() {
        let mut memory = Memory::map(1 << 20, Pages::Base).unwrap();
        let whole = [(4096, 64), (48 << 10, 64), (1 << 20, 4096), (1 << 20, 8192)];
        for (bytes, stride) in whole.into_iter().chain([(100_032, 64)]) {
            for order in [Order::Rising, Order::Random, Order::ByPage] {
                if order == Order::ByPage && bytes % 4096 != 0 {
                    continue;
                }
                let mut chain = Chain::link(&mut memory, bytes, stride, order);
                assert_eq!(chain.nodes(), bytes / stride);
                let first = chain.offset();
                let mut seen = HashSet::new();
                for _ in 0..chain.nodes() {
                    assert!(chain.offset() < bytes && chain.offset().is_multiple_of(stride));
                    assert!(seen.insert(chain.offset()), "{bytes} {stride} {order:?}");
                    chain.at = next(chain.at);
                }
                assert_eq!(chain.offset(), first);
                chain.walk(chain.nodes());
                assert_eq!(chain.offset(), first, "{LOADS} times round");
            }
        }
    }

    #[test]
    fn a_ring_by_page_leaves_a_page_when_it_is_through() {
        let mut memory = Memory::map(1 << 20, Pages::Base).unwrap();
        let mut chain = Chain::link(&mut memory, 1 << 20, 64, Order::ByPage);
        let mut pages = Vec::new();
        let mut orders = HashSet::new();
        for _ in 0..256 {
            let offsets: Vec<usize> = (0..64)
                .map(|_| {
                    let offset = chain.offset();
                    chain.at = next(chain.at);
                    offset
                })
                .collect();
            assert!(
                offsets
                    .iter()
                    .all(|offset| offset / 4096 == offsets[0] / 4096)
            );
            pages.push(offsets[0] / 4096);
            orders.insert(
                offsets
                    .iter()
                    .map(|offset| offset % 4096)
                    .collect::<Vec<_>>(),
            );
        }
        assert!(!pages.is_sorted(), "{pages:?}");
        assert!(orders.len() > 32, "{} orders", orders.len());
    }

    #[test]
    fn a_random_ring_does_not_rise() {
        let mut memory = Memory::map(1 << 20, Pages::Base).unwrap();
        let mut chain = Chain::link(&mut memory, 1 << 20, 64, Order::Random);
        let mut distances = HashSet::new();
        for _ in 0..1000 {
            let before = chain.offset();
            chain.at = next(chain.at);
            distances.insert(chain.offset().wrapping_sub(before));
        }
        assert!(distances.len() > 900, "{}", distances.len());
    }
}
