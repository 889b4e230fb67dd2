//! Where a stream is in its source: the chunk it sends from, the one it will need next, the next
//! burst.

use std::num::NonZeroU32;

use onrush_sys::pool::Pin;
use onrush_wire::rtp::HEADER_BYTES;

use super::shared::StreamShared;
use super::shared_clock::Side;
use crate::store::layout::{self, Images};
use crate::store::{self, Acquired, Source};

/// How long before it is due media is requested for the reader.
const AHEAD_NS: i64 = 500_000_000;

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
    /// It has all that there was, and what it waits for has only just come.
    is_at_edge: bool,
}

/// The chunk that is being sent from.
#[derive(Debug)]
struct Page {
    pin: Pin,
    first_packet: u64,
    /// Packets whose images are whole.
    packets: u32,
    /// Bytes of the last image, if it would be longer had the file gone on when it was built.
    partial_bytes: Option<NonZeroU32>,
    /// The next burst in its table.
    burst: u32,
    /// The chunk after is not there yet.
    awaits_next: bool,
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
    /// There is no more of the file yet.
    Grows,
    /// Its chunk cannot be built, or the file is another there by now.
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
        self.is_at_edge = false;
        self.ahead = pin.map(|pin| (shared.source.chunk_of(from), pin));
    }

    /// The next burst, from the next packet on; `None` at the end.
    pub(super) fn burst(
        &mut self,
        shared: &StreamShared,
        store: &store::Shared,
    ) -> Result<Option<Images>, NotReady> {
        let source = &shared.source;
        // Asked before how far the file goes: see `Source::publish`.
        let grows = source.grows();
        if self.next >= self.stop_before.min(source.rtp_packets()) {
            if !grows || self.next >= self.stop_before {
                return Ok(None);
            }
            self.is_at_edge = true;
            return Err(self.unless_changed(source, NotReady::Grows));
        }
        if source.is_changed(self.next) {
            return Err(NotReady::Never);
        }
        if let Some(page) = &mut self.page {
            page.leave_out_what_grew(source);
        }
        if self
            .page
            .as_ref()
            .is_none_or(|page| self.next >= page.end_packet())
        {
            self.turn_page(shared, store)?;
        }
        let page = self.page.as_mut().expect("the page was turned");
        // As soon as it is built: a cache that is nearly full would give it to others before it was
        // read once.
        if page.awaits_next
            && let Some(pin) = store.held(source, page.first_packet + source.packets_per_chunk())
        {
            page.awaits_next = false;
            self.ahead = Some((source.chunk_of(page.first_packet) + 1, pin));
        }
        let chunk = store.pool().bytes(&page.pin);
        let next =
            u32::try_from(self.next - page.first_packet).expect("the packet is of this chunk");
        loop {
            let burst = layout::burst(chunk, page.burst);
            let burst = burst.expect("a chunk's table covers its packets");
            if burst.end() <= next {
                // Sent, or skipped by a seek into the middle of the chunk.
                page.burst += 1;
                continue;
            }
            let left = self.stop_before.min(page.end_packet()) - self.next;
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            return Ok(Some(burst.skip(next - burst.first).take(left)));
        }
    }

    /// The burst after the one that was just read, as far as it is to be sent, if it is of the same
    /// page.
    pub(super) fn following(&self, store: &store::Shared) -> Option<Images> {
        let page = self.page.as_ref()?;
        let chunk = store.pool().bytes(&page.pin);
        let following = layout::burst(chunk, page.burst + 1)?;
        let first_packet = page.first_packet + u64::from(following.first);
        let end = self.stop_before.min(page.end_packet());
        let left = end.saturating_sub(first_packet);
        let following = u32::try_from(left).map_or(following, |left| following.take(left));
        (following.count > 0).then_some(following)
    }

    /// These images of the page, pinned once more.
    ///
    /// # Panics
    /// If there is no page: only a burst that was just read may be sent.
    pub(super) fn span(&self, store: &store::Shared, images: &Images) -> Span {
        let page = self.page.as_ref().expect("a burst is of a page");
        Span {
            pin: store.pool().pin_again(&page.pin),
            offset: store.pool().offset(&page.pin) + images.offset as usize,
            bytes: images.bytes,
        }
    }

    /// Where in the pool's area images of the page start.
    ///
    /// # Panics
    /// As [`Self::span`].
    pub(super) fn offset(&self, store: &store::Shared, images: &Images) -> usize {
        let page = self.page.as_ref().expect("a burst is of a page");
        store.pool().offset(&page.pin) + images.offset as usize
    }

    /// The headers of images of the page.
    ///
    /// # Panics
    /// As [`Self::span`].
    pub(super) fn headers<'a>(
        &'a self,
        store: &'a store::Shared,
        images: &Images,
    ) -> impl Iterator<Item = &'a [u8; HEADER_BYTES]> {
        self.images(store, images).map(|image| {
            image
                .first_chunk()
                .expect("an image begins with its header")
        })
    }

    /// The bytes of images of the page, one by one.
    ///
    /// # Panics
    /// As [`Self::span`].
    pub(super) fn images<'a>(
        &'a self,
        store: &'a store::Shared,
        images: &Images,
    ) -> impl Iterator<Item = &'a [u8]> {
        let page = self.page.as_ref().expect("a burst is of a page");
        let start = images.offset as usize;
        let bytes = &store.pool().bytes(&page.pin)[start..start + images.bytes as usize];
        bytes.chunks(usize::from(images.segment_bytes))
    }

    /// The images of the page before `image` are queued.
    pub(super) fn advance(&mut self, image: u32) {
        if let Some(page) = &self.page {
            self.next = page.first_packet + u64::from(image);
            // A packet that could have been longer is the last: should the file go on after all,
            // its rest would be missing.
            if self.next == page.end_packet() && page.partial_bytes.is_some() {
                self.stop_before = self.next;
            }
        }
    }

    /// Goes on from packet `next`, and holds no chunk until then. What was to stop before the place
    /// where it is stays there, and is at its end.
    pub(super) fn skip_to(&mut self, next: u64, store: &store::Shared) {
        self.put_down(store);
        self.next = next.min(self.stop_before).max(self.next);
    }

    /// Puts all down but the chunk that holds the next packet, which is the caller's now, if it is
    /// held.
    pub(super) fn hand_over(&mut self, store: &store::Shared) -> Option<Pin> {
        let next = self.next;
        let page = self
            .page
            .take_if(|page| next < page.end_packet())
            .map(|page| page.pin);
        // At the end of a page the next packet is the first of the chunk ahead.
        let pin = page.or_else(|| self.ahead.take().map(|(_, pin)| pin));
        self.put_down(store);
        pin
    }

    /// Whether there is nothing more to come.
    pub(super) fn is_at_end(&self, shared: &StreamShared) -> bool {
        let grows = shared.source.grows();
        self.next >= self.stop_before || !grows && self.next >= shared.source.rtp_packets()
    }

    /// It ends before that packet now, or before the next if that is later.
    pub(super) fn set_stop_before(&mut self, packet: u64) {
        self.stop_before = packet.max(self.next);
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

    /// `otherwise`, if the next packet could still come.
    fn unless_changed(&self, source: &Source, otherwise: NotReady) -> NotReady {
        match source.is_changed(self.next) {
            true => NotReady::Never,
            false => otherwise,
        }
    }

    /// Puts down the chunk that was read, and takes up the one that holds the next packet.
    fn turn_page(&mut self, shared: &StreamShared, store: &store::Shared) -> Result<(), NotReady> {
        let source = &shared.source;
        let number = source.chunk_of(self.next);
        if let Some(done) = self.page.take() {
            // The file went no further when it was built.
            self.is_at_edge |= self.next < done.first_packet + source.packets_per_chunk();
            store.pool().unpin(done.pin);
        }
        let pin = match self.ahead.take() {
            Some((ahead, pin)) if ahead == number && store.covers(source, &pin, self.next) => pin,
            other => {
                if let Some((_, pin)) = other {
                    store.pool().unpin(pin);
                }
                match store.acquire_for(source, self.next) {
                    Acquired::Ready(pin) => pin,
                    Acquired::Wait if self.is_at_edge => return Err(NotReady::Grows),
                    Acquired::Wait => return Err(NotReady::Yet),
                    Acquired::Failed => return Err(NotReady::Never),
                }
            }
        };
        store.count_read();
        self.is_at_edge = false;
        let contents = layout::contents(store.pool().bytes(&pin));
        let first_packet = source.first_of(number);
        let mut page = Page {
            pin,
            first_packet,
            packets: contents.images,
            partial_bytes: NonZeroU32::new(contents.last_image_bytes)
                .filter(|_| contents.is_last_partial),
            burst: 0,
            awaits_next: false,
        };
        page.leave_out_what_grew(source);
        let packets = source.packets_of(number);
        if page.end_packet() < packets.end {
            // The chunk is to have by the end what the file has by now.
            if let Some(pin) = store.prefetch_for(source, packets.end - 1) {
                store.pool().unpin(pin);
            }
            self.page = Some(page);
            return Ok(());
        }
        self.page = Some(page);
        self.look_ahead(number, contents.media_ns, shared, store);
        Ok(())
    }

    /// Has the chunks after `number` built that will be needed soon, and holds the very next.
    fn look_ahead(
        &mut self,
        number: u32,
        chunk_ns: u64,
        shared: &StreamShared,
        store: &store::Shared,
    ) {
        let source = &shared.source;
        let last = source.chunk_of(self.stop_before.min(source.rtp_packets()) - 1);
        if number >= last {
            return;
        }
        match (store.prefetch(source, number + 1), &mut self.page) {
            (Some(pin), _) => self.ahead = Some((number + 1, pin)),
            (None, Some(page)) => page.awaits_next = true,
            (None, None) => {}
        }
        let chunks_max = (store.pool().chunks() / AHEAD_POOL_SHARE) as u64;
        let ahead_ns = shared.lines.get(Side::Worker).speed().media_in(AHEAD_NS);
        let chunks = ahead_ns
            .unsigned_abs()
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

impl Page {
    /// After the last whose image is whole.
    fn end_packet(&self) -> u64 {
        self.first_packet + u64::from(self.packets)
    }

    /// If its last image was the file's last and has become longer since, it is to be had from the
    /// chunk as it is by now.
    fn leave_out_what_grew(&mut self, source: &Source) {
        let last = self.end_packet() - 1;
        if self
            .partial_bytes
            .take_if(|bytes| !source.ends_with(last, bytes.get()))
            .is_some()
        {
            self.packets -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use onrush_wire::media::ts::synth::constant_rate;

    use super::*;
    use crate::experiments::Faults;
    use crate::testing::{TestSource, block_on, store, wait_until};

    /// What a reader at the start of 300 Mbit/s has built in a store of so many chunks.
    fn built_ahead(chunks: usize, expected: u64) {
        let test = TestSource::of(constant_rate(160_000, 0, 135));
        let store = store(chunks, Faults::default());
        let shared = StreamShared::of_test(&test);
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

    /// A play that was to stop before it began is at its end wherever it is left out to.
    #[test]
    fn what_is_left_out_never_goes_back() {
        let test = TestSource::lasting(1000);
        let store = store(4, Faults::default());
        let shared = StreamShared::of_test(&test);
        let mut reader = Reader::default();
        for (stop_before, end) in [(50, 80), (90, 90), (u64::MAX, 100)] {
            reader.start(&shared, store.shared(), 80, stop_before, None);
            reader.skip_to(100, store.shared());
            assert_eq!(reader.next_packet(), end);
            assert_eq!(reader.is_at_end(&shared), stop_before <= 90);
        }
    }

    #[test]
    fn what_was_built_ahead_is_kept_until_it_is_read() {
        const CHUNKS: u32 = 4;
        let (test, other) = (TestSource::lasting(1000), TestSource::lasting(3000));
        assert!(test.source.chunks() > 2 && other.source.chunks() > 4 * CHUNKS);
        let store = store(CHUNKS as usize, Faults::default());
        let store = store.shared();
        let shared = StreamShared::of_test(&test);
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
        // Of each burst, how many images it has and how many the one that may join it, of so much
        // up to that packet.
        let pairs = |test: &TestSource, stop_before| {
            let shared = StreamShared::of_test(test);
            let mut reader = Reader::default();
            reader.start(&shared, store, 0, stop_before, None);
            wait_until("there is a burst", || reader.burst(&shared, store).is_ok());
            let mut pairs = Vec::new();
            while let Ok(Some(burst)) = reader.burst(&shared, store) {
                let following = reader.following(store);
                if let Some(following) = following {
                    assert_eq!(following.first, burst.end());
                }
                pairs.push((
                    burst.count,
                    following.map_or(0, |following| following.count),
                ));
                reader.advance(burst.end());
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
    fn after_a_short_packet_comes_nothing_even_if_the_file_goes_on() {
        let store = store(4, Faults::default());
        let store = store.shared();
        for grows_before in [false, true] {
            let test = TestSource::growing(constant_rate(700, 0, 10_152), 24);
            test.grow(24, false);
            let shared = StreamShared::of_test(&test);
            let mut reader = Reader::default();
            reader.start(&shared, store, 0, u64::MAX, None);
            let mut sent = Vec::new();
            let mut send = |reader: &mut Reader| {
                wait_until("there is an answer", || {
                    !matches!(
                        reader.burst(&shared, store),
                        Err(NotReady::Yet | NotReady::Grows)
                    )
                });
                let Ok(Some(burst)) = reader.burst(&shared, store) else {
                    return false;
                };
                // A packet at a time.
                let span = reader.span(store, &burst.take(1));
                sent.push(span.bytes);
                store.pool().unpin(span.pin);
                reader.advance(burst.first + 1);
                true
            };
            assert!((0..3).all(|_| send(&mut reader)));
            if grows_before {
                test.grow(50, true);
            }
            assert!(send(&mut reader));
            test.grow(70, false);
            let more = std::iter::from_fn(|| send(&mut reader).then_some(())).count();
            reader.put_down(store);
            match grows_before {
                true => assert_eq!((sent[3], more), (1328, 6), "all of it"),
                false => assert_eq!((sent[3], more), (12 + 3 * 188, 0), "it was the end"),
            }
        }
    }

    #[test]
    fn half_a_second_is_built_ahead_if_the_pool_has_room() {
        // 48 packets of 1316 bytes a chunk, 1.7 ms: half a second is 297 chunks.
        built_ahead(3000, 2 + 297);
        built_ahead(320, 2 + 320 / 8);
    }
}
