//! Where a stream is in its source: the chunk it sends from, the one it will need next, the next burst.

use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use onrush_sys::pool::Pin;

use super::shared::StreamShared;
use crate::store::layout::{self, ImageBurst};
use crate::store::{self, Acquired};

/// How much media is requested ahead of the reader.
const AHEAD_NS: u64 = 500_000_000;

/// Of the pool's chunks, so much of one stream may be requested ahead at the most: one in eight.
const AHEAD_POOL_SHARE: usize = 8;

/// A position, and the chunks held for it.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The next RTP packet of the plan.
    next: u64,
    stop_before: u64,
    page: Option<Page>,
    /// The chunk after, held so that it cannot be taken away before it is needed.
    ahead: Option<(u32, Pin)>,
}

/// The chunk that is being sent from.
#[derive(Debug)]
struct Page {
    pin: Pin,
    first_packet: u64,
    end_packet: u64,
    /// The next burst in its table.
    burst: u32,
    /// The chunk after, while it is not there yet.
    awaited: Option<u32>,
}

/// Images in memory that leave together.
#[derive(Debug)]
pub(super) struct Span {
    /// Keeps the memory.
    pub(super) pin: Pin,
    /// Where it starts in the pool's area.
    pub(super) offset: usize,
    pub(super) bytes: u32,
}

/// Why there is no burst.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NotReady {
    /// Its chunk is being built.
    Yet,
    /// Its chunk cannot be built.
    Never,
}

impl Reader {
    /// Goes to packet `from`. `pin` is the chunk that holds it, if the caller has it already.
    pub(super) fn start(
        &mut self,
        shared: &StreamShared,
        store: &store::Shared,
        from: u64,
        stop_before: u64,
        pin: Option<Pin>,
    ) {
        self.put_down(store);
        (self.next, self.stop_before) = (from, stop_before);
        self.ahead = pin.map(|pin| (shared.source.chunk_of(from), pin));
    }

    /// The next burst, from the next packet on; `None` at the end.
    pub(super) fn burst(
        &mut self,
        shared: &StreamShared,
        store: &store::Shared,
    ) -> Result<Option<ImageBurst>, NotReady> {
        if self.next >= self.stop_before {
            return Ok(None);
        }
        if self
            .page
            .as_ref()
            .is_none_or(|page| self.next >= page.end_packet)
        {
            self.turn_page(shared, store)?;
        }
        let page = self.page.as_mut().expect("the page was turned");
        // As soon as it is built: a cache that is nearly full would give it to others before it was read once.
        if let Some(number) = page.awaited
            && let Some(pin) = store.held(&shared.source, number)
        {
            page.awaited = None;
            self.ahead = Some((number, pin));
        }
        let chunk = store.pool().bytes(&page.pin);
        let next =
            u32::try_from(self.next - page.first_packet).expect("the packet is of this chunk");
        loop {
            let burst = layout::burst(chunk, usize::from(shared.stride), page.burst);
            let mut burst = burst.expect("a chunk's table covers its packets");
            let end = burst.first + burst.images;
            if end <= next {
                // Sent, or skipped by a seek into the middle of the chunk.
                page.burst += 1;
                continue;
            }
            let left = u32::try_from(self.stop_before - self.next).unwrap_or(u32::MAX);
            burst.first = next;
            burst.images = (end - next).min(left);
            return Ok(Some(burst));
        }
    }

    /// The burst after `burst`, which was just read, if it is of the same page and the two are one train.
    pub(super) fn following(
        &self,
        shared: &StreamShared,
        store: &store::Shared,
        burst: &ImageBurst,
    ) -> Option<ImageBurst> {
        let page = self.page.as_ref()?;
        let chunk = store.pool().bytes(&page.pin);
        let mut following = layout::burst(chunk, usize::from(shared.stride), page.burst + 1)?;
        let first_packet = page.first_packet + u64::from(following.first);
        let left = self.stop_before.saturating_sub(first_packet);
        following.images =
            u32::try_from(left).map_or(following.images, |n| n.min(following.images));
        let images = burst.images + following.images;
        (following.images > 0 && images <= images_per_train(shared.stride)).then_some(following)
    }

    /// These images of the page, pinned once more.
    ///
    /// # Panics
    /// If there is no page: only a burst that was just read may be sent.
    pub(super) fn images(
        &self,
        shared: &StreamShared,
        store: &store::Shared,
        first: u32,
        images: u32,
    ) -> Span {
        let page = self.page.as_ref().expect("a burst is of a page");
        let stride = u32::from(shared.stride);
        let last_packet = page.first_packet + u64::from(first + images - 1);
        Span {
            pin: store.pool().pin_again(&page.pin),
            offset: store.pool().offset(&page.pin) + (first * stride) as usize,
            bytes: (images - 1) * stride + shared.image_bytes(last_packet),
        }
    }

    /// The images of the page before `image` are queued.
    pub(super) fn advance(&mut self, image: u32) {
        if let Some(page) = &self.page {
            self.next = page.first_packet + u64::from(image);
        }
    }

    /// Goes on from packet `next`, and holds no chunk until then.
    pub(super) fn skip_to(&mut self, next: u64, store: &store::Shared) {
        self.put_down(store);
        self.next = next.min(self.stop_before);
    }

    /// Puts all down but the chunk that holds the next packet, which is the caller's now, if it is held.
    pub(super) fn hand_over(&mut self, store: &store::Shared) -> Option<Pin> {
        let next = self.next;
        let page = self
            .page
            .take_if(|page| next < page.end_packet)
            .map(|page| page.pin);
        // At the end of a page the next packet is the first of the chunk ahead.
        let pin = page.or_else(|| self.ahead.take().map(|(_, pin)| pin));
        self.put_down(store);
        pin
    }

    /// The packet before which it ends.
    pub(super) fn stop_before(&self) -> u64 {
        self.stop_before
    }

    /// The plan's number of the next packet.
    pub(super) fn next_packet(&self) -> u64 {
        self.next
    }

    /// Gives back the chunks it holds. What is in flight holds its own.
    pub(super) fn put_down(&mut self, store: &store::Shared) {
        let page = self.page.take().map(|page| page.pin);
        let ahead = self.ahead.take().map(|(_, pin)| pin);
        for pin in page.into_iter().chain(ahead) {
            store.pool().unpin(pin);
        }
    }

    /// Puts down the chunk that was read, and takes up the one that holds the next packet.
    fn turn_page(&mut self, shared: &StreamShared, store: &store::Shared) -> Result<(), NotReady> {
        let source = &shared.source;
        let number = source.chunk_of(self.next);
        if let Some(done) = self.page.take() {
            store.pool().unpin(done.pin);
        }
        let pin = match self.ahead.take() {
            Some((ahead, pin)) if ahead == number => pin,
            other => {
                if let Some((_, pin)) = other {
                    store.pool().unpin(pin);
                }
                match store.acquire(source, number) {
                    Acquired::Ready(pin) => pin,
                    Acquired::Wait => return Err(NotReady::Yet),
                    Acquired::Failed => return Err(NotReady::Never),
                }
            }
        };
        store.count_read();
        let packets = source.packets_of(number);
        self.page = Some(Page {
            pin,
            first_packet: packets.start,
            end_packet: packets.end,
            burst: 0,
            awaited: None,
        });
        self.look_ahead(number, shared, store);
        Ok(())
    }

    /// Has the chunks after `number` built that will be needed soon, and holds the very next.
    fn look_ahead(&mut self, number: u32, shared: &StreamShared, store: &store::Shared) {
        let source = &shared.source;
        let last = source.chunk_of(self.stop_before - 1);
        if number >= last {
            return;
        }
        match (store.prefetch(source, number + 1), &mut self.page) {
            (Some(pin), _) => self.ahead = Some((number + 1, pin)),
            (None, Some(page)) => page.awaited = Some(number + 1),
            (None, None) => {}
        }
        let (plan, packets) = (source.plan(), source.packets_of(number));
        let chunk_ns = plan.due_ns(packets.end) - plan.due_ns(packets.start);
        let chunks_max = (store.pool().chunks() / AHEAD_POOL_SHARE) as u64;
        let chunks = AHEAD_NS
            .checked_div(chunk_ns)
            .map_or(chunks_max, |n| n.min(chunks_max));
        let chunks = u32::try_from(chunks).expect("a pool has fewer than 2^31 chunks");
        for ahead in number + 2..=last.min(number.saturating_add(1 + chunks)) {
            if let Some(pin) = store.prefetch(source, ahead) {
                store.pool().unpin(pin);
            }
        }
    }
}

/// Images of one train: as many as the kernel cuts, and as fit the largest datagram.
pub(super) fn images_per_train(stride: u16) -> u32 {
    let images = (TRAIN_BYTES_MAX / usize::from(stride)).min(TRAIN_PACKETS_MAX);
    u32::try_from(images).expect("at most 64")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use onrush_wire::media::synth::constant_rate;

    use super::*;
    use crate::faults::Faults;
    use crate::testing::{TestSource, block_on, store, wait_until};

    /// What a reader at the start of 300 Mbit/s has built in a store of so many chunks.
    fn built_ahead(chunks: usize, expected: u64) {
        let test = TestSource::of(constant_rate(160_000, 0, 135));
        let store = store(chunks, Faults::default());
        let shared = StreamShared::new(Arc::clone(&test.source), 1328, Arc::default());
        let mut reader = Reader::default();
        let packets = test.source.plan().rtp_packets();
        reader.start(&shared, store.shared(), 0, packets, None);
        wait_until("there is a burst", || {
            reader.burst(&shared, store.shared()).is_ok()
        });
        // Asked for after all of these, it is built after them.
        let last = test.source.chunks() - 1;
        let pin = block_on(
            store
                .shared()
                .fetch(&test.source, last, Duration::from_secs(60)),
        );
        store.shared().pool().unpin(pin.expect("built"));
        let counters = store.shared().counters();
        let built = || counters.chunks_built.load(Ordering::Relaxed);
        wait_until("all is built", || built() > expected);
        assert_eq!(built(), expected + 1);
        reader.put_down(store.shared());
    }

    #[test]
    fn what_was_built_ahead_is_kept_until_it_is_read() {
        const CHUNKS: u32 = 4;
        let (test, other) = (TestSource::lasting(1000), TestSource::lasting(3000));
        assert!(test.source.chunks() > 2 && other.source.chunks() > 4 * CHUNKS);
        let store = store(CHUNKS as usize, Faults::default());
        let store = store.shared();
        let shared = StreamShared::new(Arc::clone(&test.source), 1328, Arc::default());
        let mut reader = Reader::default();
        let packets = test.source.plan().rtp_packets();
        reader.start(&shared, store, 0, packets, None);
        wait_until("there is a burst", || reader.burst(&shared, store).is_ok());
        let built = || store.counters().chunks_built.load(Ordering::Relaxed);
        wait_until("the next chunk is built", || built() == 2);
        // It may be that much before its hint is written.
        wait_until("both are held", || {
            reader.burst(&shared, store).expect("of the page");
            store.pool().chunks_in_use() == 2
        });
        for chunk in 0..4 * CHUNKS {
            let pin = block_on(store.fetch(&other.source, chunk, Duration::from_secs(60)));
            store.pool().unpin(pin.expect("built"));
        }
        let page = test.source.packets_of(0);
        reader.advance(u32::try_from(page.end).unwrap());
        let burst = reader.burst(&shared, store).expect("it is there");
        assert_eq!(burst.expect("not the end").first, 0);
        reader.put_down(store);
        wait_until("all is given back", || store.pool().chunks_in_use() == 0);
    }

    #[test]
    fn a_burst_is_joined_by_the_next_of_its_chunk_before_the_end() {
        let store = store(4, Faults::default());
        let store = store.shared();
        // Of each burst, how many images it has and how many the one that may join it, of so much up to that packet.
        let pairs = |test: &TestSource, stop_before| {
            let shared = StreamShared::new(Arc::clone(&test.source), 1328, Arc::default());
            let mut reader = Reader::default();
            reader.start(&shared, store, 0, stop_before, None);
            wait_until("there is a burst", || reader.burst(&shared, store).is_ok());
            let mut pairs = Vec::new();
            while let Ok(Some(burst)) = reader.burst(&shared, store) {
                let following = reader.following(&shared, store, &burst);
                if let Some(following) = following {
                    assert_eq!(following.first, burst.first + burst.images);
                }
                pairs.push((
                    burst.images,
                    following.map_or(0, |following| following.images),
                ));
                reader.advance(burst.first + burst.images);
                if reader.next_packet() >= test.source.packets_of(0).end {
                    break;
                }
            }
            reader.put_down(store);
            pairs
        };
        let test = TestSource::lasting(1000);
        let page = test.source.packets_of(0).end;
        let whole = pairs(&test, test.source.plan().rtp_packets());
        assert!(whole.len() > 2, "{whole:?}");
        assert!(
            whole.windows(2).all(|two| two[0].1 == two[1].0),
            "{whole:?}"
        );
        assert_eq!(whole[whole.len() - 1].1, 0, "the chunk ends: {whole:?}");
        // One packet less than there is, which is the last burst's; then that burst is not there.
        let (last, _) = whole[whole.len() - 1];
        let cut = pairs(&test, page - 1);
        assert_eq!(cut[cut.len() - 2].1, last - 1, "{cut:?}");
        let without = pairs(&test, page - u64::from(last));
        assert_eq!(without[without.len() - 1].1, 0, "{without:?}");
    }

    #[test]
    fn half_a_second_is_built_ahead_however_fast_if_the_pool_has_room() {
        // 48 packets of 1316 bytes a chunk, 1.7 ms: half a second is 297 chunks.
        built_ahead(3000, 2 + 297);
        built_ahead(320, 2 + 320 / 8);
    }
}
