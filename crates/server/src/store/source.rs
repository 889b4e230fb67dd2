//! A file cut one way: what images of it look like, where they may be found, and how far it goes by
//! now.
//!
//! A file may grow while it is played. Then whoever reads it publishes one plan after the other,
//! each of which has the packets of the one before and more. Engines do not look at plans: what
//! they ask for stands in atomics.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use onrush_wire::media::{Burst, Plan, RtpOrigin};

use super::film_key::{FilmKey, HeldRun, ImageCipher};
use super::table::Table;
use super::{Backing, CHUNKS_MAX, layout};

/// Packets behind its own of which a chunk may hold images, at the most: a train.
const HELD_BEYOND_MAX: u64 = 64;

/// A file cut one way: what images of it look like, and where they may be found.
#[derive(Debug)]
pub struct Source {
    id: u32,
    /// Not for engines, who wait for nobody.
    plan: RwLock<Arc<Plan>>,
    origin: RtpOrigin,
    /// What its images are encrypted with, if all who get them share a key.
    pub(super) cipher: Option<ImageCipher>,
    pub(super) backing: Arc<dyn Backing>,
    /// What `backing` lies on.
    device: u64,
    packets_per_chunk: u64,
    /// RTP packets in the plan, and bytes of the image of the last, as [`End`] says it in one
    /// number.
    end: AtomicU64,
    /// There may be more packets later than there are now.
    grows: AtomicBool,
    /// RTP packets whose bytes in the file are others by now, from and before.
    changed_from: AtomicU64,
    changed_before: AtomicU64,
    pub(super) table: Table,
    failure: Mutex<Option<String>>,
}

impl Source {
    /// A source for chunks of `chunk_bytes`. `None` if it would have more than [`CHUNKS_MAX`]
    /// chunks, or if not even one packet fits a chunk.
    #[must_use]
    pub fn new(
        plan: Arc<Plan>,
        origin: RtpOrigin,
        backing: Arc<dyn Backing>,
        chunk_bytes: usize,
    ) -> Option<Self> {
        Self::with((plan, origin), backing, chunk_bytes, None)
    }

    /// As [`Self::new`], with images that are encrypted and a tag longer (RFC 3711). The SSRC is
    /// one that the key of `cipher` has given for this source alone. Such a source does not grow.
    #[must_use]
    pub fn encrypted(
        of: (Arc<Plan>, RtpOrigin),
        backing: Arc<dyn Backing>,
        chunk_bytes: usize,
        cipher: ImageCipher,
    ) -> Option<Self> {
        Self::with(of, backing, chunk_bytes, Some(cipher))
    }

    fn with(
        (plan, origin): (Arc<Plan>, RtpOrigin),
        backing: Arc<dyn Backing>,
        chunk_bytes: usize,
        cipher: Option<ImageCipher>,
    ) -> Option<Self> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let (room_bytes, entry_bytes) = layout::room(chunk_bytes);
        let tag_bytes = cipher.as_ref().map_or(0, ImageCipher::tag_bytes);
        let packets_per_chunk = plan.packets_per_chunk(room_bytes, entry_bytes + tag_bytes);
        // A table counts the images of a burst in 16 bits.
        let packets_per_chunk = packets_per_chunk.min(u16::MAX.into());
        let packets_per_chunk = packets_per_chunk - overlap(packets_per_chunk);
        if packets_per_chunk == 0 {
            return None;
        }
        let chunks = chunks(plan.rtp_packets(), packets_per_chunk)?;
        let table = Table::default();
        table.grow(chunks);
        Some(Self {
            // Ids come back after 2^32 sources; by then the chunks of the first are long gone.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            end: AtomicU64::new(End::of(&plan).0),
            grows: AtomicBool::new(false),
            changed_from: AtomicU64::new(u64::MAX),
            changed_before: AtomicU64::new(0),
            plan: RwLock::new(plan),
            origin,
            cipher,
            device: backing.device(),
            backing,
            packets_per_chunk,
            table,
            failure: Mutex::default(),
        })
    }

    /// Goes on with `plan`, which has all packets of the one before, and says whether more are to
    /// come. Only the last packet may have been shorter before. Not for engines.
    ///
    /// A plan that has fewer packets, because what follows the last of them is not certain again,
    /// or more than fit [`CHUNKS_MAX`] chunks, is left out; the latter ends the growth.
    pub fn publish(&self, plan: Arc<Plan>, grows: bool) {
        let chunks = chunks(plan.rtp_packets(), self.packets_per_chunk);
        let grows = grows && chunks.is_some();
        // Whoever finds the last packet looks first whether more may come: so there is no moment at
        // which that was the end, unless it is.
        if grows {
            self.grows.store(true, Ordering::Release);
        }
        let end = End::of(&plan);
        if let Some(chunks) = chunks
            && end.0 >= self.end.load(Ordering::Relaxed)
        {
            self.table.grow(chunks);
            *self.plan.write().unwrap_or_else(PoisonError::into_inner) = plan;
            self.end.store(end.0, Ordering::Release);
        }
        self.grows.store(grows, Ordering::Release);
    }

    /// How the file is cut, as far as it goes by now. Not for engines.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same for engines: `None` while another is being published.
    pub(crate) fn try_plan(&self) -> Option<RwLockReadGuard<'_, Arc<Plan>>> {
        self.plan.try_read().ok()
    }

    /// What its RTP headers count from.
    #[must_use]
    pub fn origin(&self) -> RtpOrigin {
        self.origin
    }

    /// The key that all who get its images share, if they are encrypted.
    #[must_use]
    pub fn film_key(&self) -> Option<&Arc<FilmKey>> {
        self.cipher.as_ref().map(ImageCipher::key)
    }

    /// Bytes that each image is longer by than its packet, because it is encrypted.
    #[must_use]
    pub fn tag_bytes(&self) -> u16 {
        let tag_bytes = self.cipher.as_ref().map_or(0, ImageCipher::tag_bytes);
        u16::try_from(tag_bytes).expect("16 at most")
    }

    /// Bytes of the largest image that it may have, with its tag.
    #[must_use]
    pub fn image_bytes_max(&self) -> usize {
        self.plan().image_bytes_max() + usize::from(self.tag_bytes())
    }

    /// The index of a packet in SRTP (RFC 3711, section 3.3.1): its sequence number and how often
    /// those have wrapped since packet 0.
    #[must_use]
    pub fn index_of(&self, packet: u64) -> u64 {
        u64::from(self.origin.sequence) + packet
    }

    /// Whether there may be more packets later. To be asked before [`Self::rtp_packets`] by whoever
    /// is at the end.
    #[must_use]
    pub fn grows(&self) -> bool {
        self.grows.load(Ordering::Acquire)
    }

    /// RTP packets by now.
    #[must_use]
    pub fn rtp_packets(&self) -> u64 {
        End(self.end.load(Ordering::Acquire)).packets()
    }

    /// Whether `packet`, whose image has so many bytes in a chunk, is the last by now and has no
    /// more of them.
    pub(crate) fn ends_with(&self, packet: u64, image_bytes: u32) -> bool {
        self.end.load(Ordering::Acquire) == End::new(packet + 1, image_bytes).0
    }

    /// Number of chunks by now.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        let chunks = self.rtp_packets().div_ceil(self.packets_per_chunk);
        u32::try_from(chunks).expect("a source has fewer than 2^31 chunks")
    }

    /// The chunk that holds RTP packet `packet`.
    #[must_use]
    pub fn chunk_of(&self, packet: u64) -> u32 {
        u32::try_from(packet / self.packets_per_chunk).expect("a source has fewer than 2^31 chunks")
    }

    /// The RTP packets of a chunk by now.
    #[must_use]
    pub fn packets_of(&self, chunk: u32) -> Range<u64> {
        let first = self.first_of(chunk);
        first..(first + self.packets_per_chunk).min(self.rtp_packets())
    }

    /// The RTP packets of which a chunk of `chunk_bytes` holds images, and their `bursts`: its own
    /// and, as far as there is room, the rest of a burst that its end would cut in two. Those are
    /// in the next chunk, too: whoever reads on from this one sends the burst as one train.
    pub(super) fn held_in(
        &self,
        chunk: u32,
        plan: &Plan,
        chunk_bytes: usize,
        bursts: &mut Vec<Burst>,
    ) -> Range<u64> {
        let own = self.packets_of(chunk);
        let own = own.start..own.end.min(plan.rtp_packets());
        let most = own.end + HELD_BEYOND_MAX.min(self.packets_per_chunk);
        let most = match self.grows() {
            // What is the end of a file now is none of a burst.
            true => own.end,
            false => most.min(plan.rtp_packets()),
        };
        bursts.clear();
        plan.bursts(own.start..most, bursts);
        let ends = |burst: &Burst| burst.first + u64::from(burst.packets);
        // The last that was asked for may go on beyond.
        let is_whole = |burst: &&Burst| ends(burst) < most || most == plan.rtp_packets();
        let cut = bursts.iter().position(|burst| ends(burst) >= own.end);
        let whole = cut.filter(|&at| is_whole(&&bursts[at]));
        let (room_bytes, entry_bytes) = layout::room(chunk_bytes);
        if let Some(at) = whole {
            let end = ends(&bursts[at]);
            let tags_bytes = (end - own.start) * u64::from(self.tag_bytes());
            let images_bytes = bursts[at].offset + bursts[at].bytes + tags_bytes;
            if images_bytes + ((at + 1) * entry_bytes) as u64 <= room_bytes as u64 {
                bursts.truncate(at + 1);
                return own.start..end;
            }
        }
        bursts.clear();
        plan.bursts(own.clone(), bursts);
        own
    }

    /// The packets that a chunk holds, which are `held`, in runs: those that the chunk before holds
    /// too, those that are in this one alone, and those that the next has, too. No two chunks of a
    /// source share a part of a run, as long as its plan stays; that of encrypted images does.
    pub(super) fn runs_held(
        &self,
        chunk: u32,
        plan: &Plan,
        chunk_bytes: usize,
        held: &Range<u64>,
    ) -> Vec<HeldRun> {
        let before = chunk.checked_sub(1);
        let before = before.map(|it| self.held_in(it, plan, chunk_bytes, &mut Vec::new()).end);
        let own_end = self.packets_of(chunk).end.min(held.end);
        let cuts = [
            held.start,
            before.unwrap_or(held.start).clamp(held.start, own_end),
            own_end,
            held.end,
        ];
        let runs = cuts.windows(2).map(|ends| ends[0]..ends[1]);
        let runs = runs.filter(|packets| !packets.is_empty());
        let run = |packets: Range<u64>| HeldRun {
            images_bytes: plan.images_bytes(packets.clone()),
            packets,
        };
        runs.map(run).collect()
    }

    /// RTP packets of a chunk, but for the last.
    #[must_use]
    pub fn packets_per_chunk(&self) -> u64 {
        self.packets_per_chunk
    }

    /// The first RTP packet of a chunk.
    #[must_use]
    pub fn first_of(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.packets_per_chunk
    }

    /// Why the last chunk that could not be built could not, or why those that were built may no
    /// longer be sent.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says why a chunk cannot be built.
    pub(super) fn fail(&self, reason: String) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = Some(reason);
    }

    /// Lets none of these packets be sent any more: in the file there is something else by now.
    pub fn change(&self, packets: Range<u64>, reason: String) {
        self.fail(reason);
        self.changed_before
            .fetch_max(packets.end, Ordering::Release);
        self.changed_from
            .fetch_min(packets.start, Ordering::Release);
    }

    /// Whether there is something else in the file where this packet was.
    #[must_use]
    pub fn is_changed(&self, packet: u64) -> bool {
        packet >= self.changed_from.load(Ordering::Acquire)
            && packet < self.changed_before.load(Ordering::Acquire)
    }

    /// The number of the device that its file lies on.
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Its number, which no other source has.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn key(&self, chunk: u32) -> u64 {
        u64::from(self.id) << 32 | u64::from(chunk)
    }
}

/// The number of the source that a chunk with this key is of.
pub(super) fn of_key(key: u64) -> u32 {
    u32::try_from(key >> 32).unwrap_or(u32::MAX)
}

/// How far a plan goes: packets, and in the lowest 16 bits bytes of the last one's image. In one
/// number, so that engines see both at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct End(u64);

impl End {
    fn of(plan: &Plan) -> Self {
        let packets = plan.rtp_packets();
        let last_bytes = plan.image_bytes(packets.saturating_sub(1));
        let last_bytes = u32::try_from(last_bytes).expect("a packet is below 64 KiB");
        Self::new(packets, last_bytes)
    }

    fn new(packets: u64, last_image_bytes: u32) -> Self {
        Self(packets << 16 | u64::from(last_image_bytes))
    }

    fn packets(self) -> u64 {
        self.0 >> 16
    }
}

/// Of so many packets that fit a chunk, those whose place is kept for what is [held
/// beyond](Source::held_in) its own: of 256 KiB what a stream of 4 Mbit/s sends in 20 ms, which
/// takes a sixteenth more memory and spares two trains a second, of the fifty or less that there
/// are. A chunk that has few packets has none to spare.
fn overlap(packets_per_chunk: u64) -> u64 {
    match packets_per_chunk {
        128.. => packets_per_chunk / 16,
        _ => 0,
    }
}

/// How many chunks so many packets fill, if those are not too many.
pub(super) fn chunks(packets: u64, packets_per_chunk: u64) -> Option<u64> {
    Some(packets.div_ceil(packets_per_chunk)).filter(|&chunks| chunks <= CHUNKS_MAX)
}

#[cfg(test)]
mod tests {
    use onrush_wire::srtp::Suite;

    use super::*;
    use crate::data::CHUNK_BYTES;
    use crate::testing::TestSource;

    fn end(burst: &Burst) -> u64 {
        burst.first + u64::from(burst.packets)
    }

    /// The source of a test in chunks as the server has them.
    fn in_chunks(test: &TestSource) -> Source {
        let (plan, backing) = (test.source.plan(), Arc::clone(&test.backing) as _);
        Source::new(plan, test.source.origin(), backing, CHUNK_BYTES).expect("it has few chunks")
    }

    /// What each chunk holds, beside what is its own.
    fn held(source: &Source) -> Vec<(Range<u64>, Range<u64>)> {
        let (plan, mut bursts) = (source.plan(), Vec::new());
        let one = |chunk| {
            let own = source.packets_of(chunk);
            let held = source.held_in(chunk, &plan, CHUNK_BYTES, &mut bursts);
            assert_eq!(end(bursts.last().expect("a chunk has packets")), held.end);
            let (room_bytes, entry_bytes) = layout::room(CHUNK_BYTES);
            let images_bytes = plan.images_bytes(held.clone());
            assert!(images_bytes + (bursts.len() * entry_bytes) as u64 <= room_bytes as u64);
            (own, held)
        };
        (0..source.chunks()).map(one).collect()
    }

    #[test]
    fn a_chunk_holds_all_of_the_burst_at_its_end() {
        for test in [TestSource::lasting(3000), TestSource::film(450)] {
            for source in [in_chunks(&test), encrypted_in_chunks(&test)] {
                let (plan, mut bursts) = (source.plan(), Vec::new());
                plan.bursts(0..plan.rtp_packets(), &mut bursts);
                let chunks = held(&source);
                assert!(chunks.len() > 5, "{chunks:?}");
                for (own, held) in chunks {
                    // And no packet more.
                    let whole = bursts.iter().map(end).find(|&end| end >= own.end);
                    assert_eq!(Some(held), whole.map(|end| own.start..end));
                }
            }
        }
    }

    #[test]
    fn a_chunk_holds_its_own_where_the_burst_is_too_long() {
        let source = in_chunks(&TestSource::large_pictures(3, 600_000));
        let chunks = held(&source);
        assert!(chunks.len() > 5, "{chunks:?}");
        // Only at the end of a picture is there little left of it.
        let beyond = chunks.iter().filter(|(own, held)| own != held);
        assert!(beyond.count() < 3, "{chunks:?}");
    }

    #[test]
    fn a_chunk_of_a_file_that_grows_holds_its_own() {
        let source = in_chunks(&TestSource::lasting(3000));
        source.publish(source.plan(), true);
        assert!(held(&source).iter().all(|(own, held)| own == held));
    }

    /// The same, with images that are encrypted.
    fn encrypted_in_chunks(test: &TestSource) -> Source {
        let key = Arc::new(FilmKey::new(Suite::default()));
        let of = (test.source.plan(), test.source.origin());
        let (backing, cipher) = (Arc::clone(&test.backing) as _, ImageCipher::new(&key));
        let source = Source::encrypted(of, backing, CHUNK_BYTES, cipher);
        source.expect("it has few chunks")
    }

    /// What two chunks hold both is a run of its own in each, so that each sees what the other did.
    #[test]
    fn chunks_hold_the_same_runs_or_none_of_them() {
        for test in [TestSource::lasting(3000), TestSource::film(450)] {
            let source = encrypted_in_chunks(&test);
            let (plan, mut all) = (source.plan(), Vec::new());
            let (chunks, mut twice) = (held(&source), 0);
            for ((_, held), chunk) in chunks.iter().zip(0..) {
                let runs = source.runs_held(chunk, &plan, CHUNK_BYTES, held);
                let starts = runs.iter().map(|run| run.packets.start);
                let ends = runs.iter().map(|run| run.packets.end);
                let cuts: Vec<_> = starts.clone().skip(1).chain([held.end]).collect();
                assert_eq!(starts.min(), Some(held.start));
                assert_eq!(ends.collect::<Vec<_>>(), cuts, "one behind the other");
                let bytes: u64 = runs.iter().map(|run| run.images_bytes).sum();
                assert_eq!(bytes, plan.images_bytes(held.clone()));
                for run in runs {
                    match all.contains(&run) {
                        true => twice += 1,
                        false => all.push(run),
                    }
                }
            }
            // Each packet is of one run.
            assert_eq!(all[0].packets.start, 0);
            let touches = |two: &[HeldRun]| two[0].packets.end == two[1].packets.start;
            assert!(all.windows(2).all(touches), "{all:?}");
            assert_eq!(all.last().unwrap().packets.end, plan.rtp_packets());
            assert!(twice > 3, "{twice} of {}", all.len());
        }
    }
}
