//! The store against plain reading: every chunk, once, shared, and given up only when nobody reads
//! it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use onrush_lock::memory::Area;
use onrush_wire::media::ts::synth::constant_rate;

use super::builder::READ_BYTES_MAX;
use super::source::chunks;
use super::testing::ManualBuilder;
use super::*;
use crate::testing::{CHUNK_BYTES, TestFile, TestSource, block_on, store, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

fn counter(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The images in a chunk.
fn images(shared: &Shared, source: &Source, chunk: u32, pin: &Pin) -> Vec<Vec<u8>> {
    let packets = source.packets_of(chunk);
    let mut bytes = shared.pool().bytes(pin);
    packets
        .map(|packet| {
            let (image, rest) = bytes.split_at(12 + source.plan().payload_bytes(packet));
            bytes = rest;
            image.to_vec()
        })
        .collect()
}

#[test]
fn every_chunk_holds_its_packets_images_and_bursts() {
    let test = TestSource::lasting(2000);
    let store = store(4, Faults::default());
    let (shared, source) = (store.shared(), &test.source);
    let expected = test.images();
    assert!(source.chunks() > 8, "it does not fit the cache");
    for chunk in 0..source.chunks() {
        let pin = block_on(shared.fetch(source, chunk, PATIENCE)).expect("built");
        let packets = source.packets_of(chunk);
        let range = usize::try_from(packets.start).unwrap()..usize::try_from(packets.end).unwrap();
        assert_eq!(images(shared, source, chunk, &pin), expected[range]);
        let bytes = shared.pool().bytes(&pin);
        // And those behind that complete a burst.
        let held = u64::from(layout::contents(bytes).images);
        assert!(held >= packets.end - packets.start);
        let mut bursts = Vec::new();
        let held = packets.start..packets.start + held;
        source.plan().bursts(held, &mut bursts);
        for (number, burst) in (0..).zip(&bursts) {
            let read = layout::burst(bytes, number).expect("in the table");
            assert_eq!(u64::from(read.first) + packets.start, burst.first);
            assert_eq!((read.count, read.due_ns), (burst.packets, burst.due_ns));
        }
        shared.pool().unpin(pin);
    }
    let counters = shared.counters();
    assert_eq!(counter(&counters.chunks_built), u64::from(source.chunks()));
    assert_eq!(shared.pool().chunks_in_use(), 0);
}

#[test]
fn a_chunk_is_built_once_however_many_ask() {
    let test = TestSource::lasting(500);
    let store = store(8, Faults::default());
    let shared = store.shared();
    let pins: Vec<_> = (0..50)
        .map(|_| block_on(shared.fetch(&test.source, 1, PATIENCE)).expect("built"))
        .collect();
    assert_eq!(counter(&shared.counters().chunks_built), 1);
    pins.into_iter().for_each(|pin| shared.pool().unpin(pin));
}

/// Somebody who waits, and how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What has come of it for somebody who waits, if anything has.
fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>, woken: &Arc<Woken>) -> Option<T> {
    let waker = Waker::from(Arc::clone(woken));
    match future.poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A crowd that comes after a restart waits for as many chunks, and is not looked at for each.
#[test]
fn a_chunk_that_is_built_wakes_those_who_wait_for_it() {
    let test = TestSource::lasting(2000);
    let area = Area::map(64 * CHUNK_BYTES).expect("a little memory");
    let mut builder = ManualBuilder::new(Arc::new(Pool::new(area, CHUNK_BYTES)), Faults::default());
    let shared = Arc::clone(builder.shared());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    // Nobody drives its clock: only a chunk wakes anybody.
    let _entered = runtime.enter();
    let chunks = test.source.chunks();
    assert!(chunks > 8, "{chunks}");
    let ask = |chunk| {
        let mut fetch = Box::pin(shared.fetch(&test.source, chunk, PATIENCE));
        let woken = Arc::<Woken>::default();
        assert_eq!(poll(fetch.as_mut(), &woken), None);
        (fetch, woken)
    };
    let (mut waiting, mut polls): (Vec<_>, _) = ((0..chunks).map(ask).collect(), 0);
    while let Some(reading) = builder.begin() {
        builder.finish(reading);
        waiting.retain_mut(|(fetch, woken)| {
            if woken.0.swap(0, Ordering::Relaxed) == 0 {
                return true;
            }
            polls += 1;
            let Some(pin) = poll(fetch.as_mut(), woken) else {
                return true;
            };
            shared.pool().unpin(pin.expect("built"));
            false
        });
    }
    assert!(waiting.is_empty(), "all were woken");
    assert_eq!(polls, chunks, "each for its own");
}

#[test]
fn a_chunk_that_was_given_up_is_prefetched_again() {
    let test = TestSource::lasting(1000);
    let store = store(2, Faults::default());
    let (shared, source) = (store.shared(), &test.source);
    for chunk in 0..4 {
        let pin = block_on(shared.fetch(source, chunk, PATIENCE)).expect("built");
        shared.pool().unpin(pin);
    }
    for _ in 0..2 {
        if let Some(pin) = shared.prefetch(source, 0) {
            shared.pool().unpin(pin);
        }
        wait_until("it is there again", || {
            counter(&shared.counters().chunks_built) == 5
        });
    }
    assert_eq!(shared.pool().chunks_in_use(), 0, "nobody holds it");
}

#[test]
fn a_full_pool_makes_readers_wait_until_a_chunk_is_given_back() {
    let test = TestSource::lasting(1000);
    let store = store(2, Faults::default());
    let (shared, source) = (store.shared(), &test.source);
    let zero = block_on(shared.fetch(source, 0, PATIENCE)).expect("built");
    let one = block_on(shared.fetch(source, 1, PATIENCE)).expect("built");
    let refused = block_on(shared.fetch(source, 2, Duration::from_millis(50)));
    assert_eq!(refused, None);
    assert!(counter(&shared.counters().pool_full) > 0);
    assert_eq!(source.failure(), None, "a full pool is nobody's fault");
    shared.pool().unpin(zero);
    let two = block_on(shared.fetch(source, 2, PATIENCE)).expect("there is room now");
    shared.pool().unpin(one);
    shared.pool().unpin(two);
}

/// Asking again at once would only keep the processors busy.
#[test]
fn a_full_pool_is_not_asked_in_a_spin() {
    let test = TestSource::lasting(1000);
    let store = store(1, Faults::default());
    let (shared, source) = (store.shared(), &test.source);
    let held = block_on(shared.fetch(source, 0, PATIENCE)).expect("built");
    let since = Instant::now();
    let refused = block_on(shared.fetch(source, 1, Duration::from_millis(50)));
    let asked = u128::from(counter(&shared.counters().pool_full));
    let asked_max = BUILDERS as u128 * (since.elapsed().as_millis() + 1);
    assert_eq!(refused, None);
    assert!(asked <= asked_max, "{asked} times of {asked_max}");
    shared.pool().unpin(held);
}

/// A file that shows a bug of ours.
#[derive(Debug)]
struct Cursed(Arc<TestFile>);

impl Backing for Cursed {
    fn file(&self) -> &File {
        self.0.file()
    }

    fn check(&self) -> Result<(), String> {
        panic!("it is cursed");
    }
}

// SPECIFICATION.md: 37
#[test]
fn a_builder_that_panics_fails_that_file_and_serves_others() {
    let test = TestSource::lasting(500);
    let store = store(4, Faults::default());
    for _ in 0..=BUILDERS {
        let plan = test.source.plan();
        let backing = Arc::new(Cursed(Arc::clone(&test.backing)));
        let source = Source::new(plan, test.source.origin(), backing, CHUNK_BYTES);
        let source = Arc::new(source.expect("it fits"));
        assert_eq!(block_on(store.shared().fetch(&source, 0, PATIENCE)), None);
        let reason = source.failure().expect("it failed");
        assert!(reason.contains("bug"), "{reason}");
    }
    let pin = block_on(store.shared().fetch(&test.source, 0, PATIENCE)).expect("built");
    store.shared().pool().unpin(pin);
    assert_eq!(store.shared().pool().chunks_in_use(), 0);
}

#[test]
fn a_file_in_trouble_fails_that_chunk_and_no_other() {
    let (bad, good) = (TestSource::lasting(500), TestSource::lasting(500));
    let store = store(8, Faults::default());
    let shared = store.shared();
    let held = block_on(shared.fetch(&bad.source, 0, PATIENCE)).expect("built");
    *bad.backing.trouble.lock().unwrap() = Some("the file was replaced".to_owned());
    assert_eq!(block_on(shared.fetch(&bad.source, 1, PATIENCE)), None);
    assert_eq!(
        bad.source.failure().as_deref(),
        Some("the file was replaced")
    );
    let again = shared.acquire(&bad.source, 0);
    assert!(
        matches!(again, Acquired::Ready(_)),
        "what was built before can be played: {again:?}"
    );
    if let Acquired::Ready(pin) = again {
        shared.pool().unpin(pin);
    }
    shared.pool().unpin(held);
    assert!(matches!(shared.acquire(&bad.source, 1), Acquired::Failed));
    assert_eq!(shared.prefetch(&bad.source, 1), None);
    *bad.backing.trouble.lock().unwrap() = None;
    assert!(
        matches!(shared.acquire(&bad.source, 1), Acquired::Failed),
        "for good"
    );
    for (source, chunk) in [(&bad.source, 2), (&good.source, 1)] {
        let pin = block_on(shared.fetch(source, chunk, PATIENCE)).expect("nothing to do with it");
        shared.pool().unpin(pin);
    }
}

#[test]
fn a_truncated_or_overwritten_file_fails_with_the_place() {
    let truncated = TestSource::lasting(1000);
    truncated.backing.file().set_len(100_000).expect("shorter");
    let overwritten = TestSource::lasting(1000);
    {
        use std::os::unix::fs::FileExt;
        overwritten
            .backing
            .file()
            .write_all_at(&[0; 4096], 8192)
            .expect("written");
    }
    let store = store(8, Faults::default());
    let last = truncated.source.chunks() - 1;
    assert_eq!(
        block_on(store.shared().fetch(&truncated.source, last, PATIENCE)),
        None
    );
    assert!(
        truncated
            .source
            .failure()
            .expect("failed")
            .contains("truncated")
    );
    assert_eq!(
        block_on(store.shared().fetch(&overwritten.source, 0, PATIENCE)),
        None
    );
    assert!(
        overwritten
            .source
            .failure()
            .expect("failed")
            .contains("changed")
    );
    assert_eq!(
        store.shared().pool().chunks_in_use(),
        0,
        "half-built chunks are free again"
    );
}

/// The images of a source by now.
fn images_by_now(test: &TestSource) -> Vec<Vec<u8>> {
    let count = usize::try_from(test.source.rtp_packets()).unwrap();
    test.images()[..count].to_vec()
}

#[test]
fn a_chunk_is_built_anew_as_its_file_grows() {
    let test = TestSource::growing(constant_rate(3000, 0, 10_152), 20 * 7 + 3);
    let store = store(8, Faults::default());
    let (shared, source) = (store.shared(), &test.source);
    let old = block_on(shared.fetch(source, 0, PATIENCE)).expect("built");
    assert_eq!(source.rtp_packets(), 20, "no partial packet");
    assert_eq!(images(shared, source, 0, &old), images_by_now(&test));
    test.grow(30 * 7, true);
    // Whoever wants no more is served by what there is, and whoever does is not.
    let same = shared.held(source, 19).expect("it holds that packet");
    assert_eq!(shared.pool().offset(&same), shared.pool().offset(&old));
    assert_eq!(shared.held(source, 20), None);
    let new = block_on(shared.fetch_for(source, 20, PATIENCE)).expect("built");
    assert_eq!(images(shared, source, 0, &new), images_by_now(&test));
    let contents = |pin: &Pin| layout::contents(shared.pool().bytes(pin));
    assert_eq!((contents(&old).images, contents(&new).images), (20, 30));
    let again = shared.held(source, 0).expect("the new one is found");
    assert_eq!(shared.pool().offset(&again), shared.pool().offset(&new));
    for pin in [old, same, new, again] {
        shared.pool().unpin(pin);
    }
    // To its end, which is in the middle of a packet, and of another chunk than it was in.
    test.grow(3000, true);
    assert!((source.grows(), source.rtp_packets()) == (true, 428));
    test.grow(3000, false);
    assert!((source.grows(), source.rtp_packets()) == (false, 429));
    let expected = test.images();
    for chunk in 0..source.chunks() {
        let packets = source.packets_of(chunk);
        let last = block_on(shared.fetch_for(source, packets.end - 1, PATIENCE)).expect("built");
        let range = usize::try_from(packets.start).unwrap()..usize::try_from(packets.end).unwrap();
        assert_eq!(images(shared, source, chunk, &last), expected[range]);
        shared.pool().unpin(last);
    }
    assert_eq!(source.failure(), None);
    assert_eq!(shared.pool().chunks_in_use(), 0);
}

#[test]
fn a_last_packet_that_was_short_is_made_again_when_it_is_longer() {
    let test = TestSource::growing(constant_rate(700, 0, 10_152), 24);
    let store = store(8, Faults::default());
    let (shared, source) = (store.shared(), &test.source);
    test.grow(24, false);
    assert_eq!(
        (source.rtp_packets(), source.plan().image_bytes(3)),
        (4, 12 + 3 * 188)
    );
    let short = block_on(shared.fetch_for(source, 3, PATIENCE)).expect("built");
    assert_eq!(
        layout::contents(shared.pool().bytes(&short)).last_image_bytes,
        12 + 3 * 188
    );
    // It goes on after all, but by too little to know more: nothing is taken back.
    test.grow(26, true);
    assert!(
        (
            source.grows(),
            source.rtp_packets(),
            source.plan().image_bytes(3)
        ) == (true, 4, 12 + 3 * 188)
    );
    test.grow(30, true);
    assert_eq!(
        (source.rtp_packets(), source.plan().image_bytes(3)),
        (4, 1328)
    );
    assert_eq!(shared.held(source, 3), None);
    let whole = block_on(shared.fetch_for(source, 3, PATIENCE)).expect("built");
    assert_eq!(images(shared, source, 0, &whole), images_by_now(&test));
    shared.pool().unpin(short);
    shared.pool().unpin(whole);
}

#[test]
fn what_was_written_over_fails_the_chunks_that_have_it() {
    use std::os::unix::fs::FileExt;
    let test = TestSource::lasting(1000);
    let store = store(16, Faults::default());
    // Transport packets all, but of another film.
    let other = constant_rate(336, 5000, 10_152);
    let range = test.source.plan().file_range(test.source.packets_of(2));
    test.backing
        .file()
        .write_all_at(&other, range.start)
        .expect("written");
    for chunk in 0..test.source.chunks() {
        let pin = block_on(store.shared().fetch(&test.source, chunk, PATIENCE));
        assert_eq!(pin.is_some(), chunk != 2, "{chunk}");
        pin.into_iter()
            .for_each(|pin| store.shared().pool().unpin(pin));
    }
    let reason = test.source.failure().expect("it failed");
    assert!(reason.contains("was changed"), "{reason}");
}

#[test]
fn packets_with_garbage_between_them_are_read_in_pieces() {
    let mut bytes = constant_rate(4000, 0, 10_152);
    // Garbage larger than one read, between two RTP packets and inside of one.
    for at in [2003, 700] {
        let garbage = vec![0u8; 3 << 20];
        bytes.splice(at * 188..at * 188, garbage);
    }
    let test = TestSource::of(bytes);
    let store = store(8, Faults::default());
    let expected = test.images();
    let source = &test.source;
    for chunk in 0..source.chunks() {
        let pin = block_on(store.shared().fetch(source, chunk, PATIENCE)).expect("built");
        let first = usize::try_from(source.packets_of(chunk).start).unwrap();
        let built = images(store.shared(), source, chunk, &pin);
        assert_eq!(built, expected[first..first + built.len()]);
        store.shared().pool().unpin(pin);
    }
}

/// A picture of more than is read at once: each of its packets needs all of it.
#[test]
fn a_sample_larger_than_a_read_is_put_together() {
    let test = TestSource::large_pictures(3, READ_BYTES_MAX * 3 / 2);
    let store = store(8, Faults::default());
    let expected = test.images();
    let source = &test.source;
    assert!(expected.len() > 3000 && source.chunks() > 50);
    let mut last_read = 0;
    for chunk in 0..source.chunks() {
        let pin = block_on(store.shared().fetch(source, chunk, PATIENCE)).expect("built");
        let first = usize::try_from(source.packets_of(chunk).start).unwrap();
        let built = images(store.shared(), source, chunk, &pin);
        assert_eq!(built, expected[first..first + built.len()]);
        store.shared().pool().unpin(pin);
        // Once for all of a chunk's packets, which are of two pictures at the most.
        let read = counter(&store.shared().counters().bytes_read);
        assert!(
            read - last_read < 4 * READ_BYTES_MAX as u64,
            "{}",
            read - last_read
        );
        last_read = read;
    }
}

/// Pictures lie between sound; they are not read with it where they are much.
#[test]
fn what_lies_between_is_read_only_where_it_is_little() {
    for (apart, times_max) in [(16, 2), (3000, 2)] {
        let test = TestSource::sound_apart(30, apart);
        let store = store(8, Faults::default());
        let expected = test.images();
        let source = &test.source;
        assert!(source.chunks() > 4);
        for chunk in 0..source.chunks() {
            let pin = block_on(store.shared().fetch(source, chunk, PATIENCE)).expect("built");
            let first = usize::try_from(source.packets_of(chunk).start).unwrap();
            let built = images(store.shared(), source, chunk, &pin);
            assert_eq!(built, expected[first..first + built.len()]);
            store.shared().pool().unpin(pin);
        }
        let read = counter(&store.shared().counters().bytes_read);
        let made: usize = expected.iter().map(Vec::len).sum();
        assert!(
            read < times_max * made as u64,
            "{read} bytes for {made}, {apart} apart"
        );
    }
}

/// Reading less than the whole is how it shows that a chunk was read in halves: the garbage between
/// is left out.
#[test]
fn a_chunk_is_read_at_once_up_to_the_limit_and_in_halves_beyond() {
    let front = 4095; // The worst place for direct input.
    for (beyond, in_one) in [(0, true), (1, false)] {
        // One chunk of packets, garbage in its middle.
        let mut bytes = constant_rate(48 * 7, 0, 10_152);
        let garbage = READ_BYTES_MAX + beyond - bytes.len();
        bytes.splice(24 * 7 * 188..24 * 7 * 188, vec![0; garbage]);
        bytes.splice(0..0, vec![0; front]);
        let test = TestSource::of(bytes);
        let range = test.source.plan().file_range(0..48);
        assert_eq!(range.end - range.start, (READ_BYTES_MAX + beyond) as u64);
        let store = store(1, Faults::default());
        let pin = block_on(store.shared().fetch(&test.source, 0, PATIENCE)).expect("built");
        assert_eq!(images(store.shared(), &test.source, 0, &pin), test.images());
        store.shared().pool().unpin(pin);
        let read = counter(&store.shared().counters().bytes_read);
        assert_eq!(read >= READ_BYTES_MAX as u64, in_one, "{read} bytes read");
    }
}

#[test]
fn a_source_has_so_many_chunks_and_no_more() {
    assert_eq!(chunks(CHUNKS_MAX * 48, 48), Some(CHUNKS_MAX));
    assert_eq!(chunks(CHUNKS_MAX * 48 + 1, 48), None);
    assert_eq!(chunks(u64::MAX, 1), None);
}

/// A file that can be looked at only while its gate is open.
#[derive(Debug)]
struct Gated {
    file: Arc<TestFile>,
    gate: Mutex<()>,
}

impl Backing for Gated {
    fn file(&self) -> &File {
        self.file.file()
    }

    fn check(&self) -> Result<(), String> {
        drop(self.gate.lock().unwrap());
        Ok(())
    }
}

#[test]
fn a_request_beyond_the_limit_is_made_again_later() {
    let chunk_bytes = 4096;
    let chunks = u32::try_from(DEVICE_BUILDERS_MAX + REQUESTS_MAX + 1).unwrap();
    let test = TestSource::of(constant_rate(u64::from(chunks) * 21, 0, 10_152));
    let gated = Arc::new(Gated {
        file: Arc::clone(&test.backing),
        gate: Mutex::new(()),
    });
    let area = Area::map(8 * chunk_bytes).expect("a little memory");
    let pool = Arc::new(Pool::new(area, chunk_bytes));
    let store = Store::start(pool, &[], Faults::default()).expect("threads");
    let (plan, backing) = (test.source.plan(), Arc::clone(&gated) as _);
    let source = Source::new(plan, test.source.origin(), backing, chunk_bytes);
    let source = Arc::new(source.expect("it fits its chunks"));
    assert_eq!(source.chunks(), chunks, "three packets in each");
    let shared = store.shared();
    let is_requested = |chunk: u32| source.table.entry(chunk).load(Ordering::Relaxed) == AHEAD;
    let shut = gated.gate.lock().unwrap();
    let builders = u32::try_from(DEVICE_BUILDERS_MAX).unwrap();
    for all in [0..builders, builders..chunks] {
        for chunk in all {
            assert_eq!(shared.prefetch(&source, chunk), None);
        }
        wait_until("each has its place", || shared.ahead.is_empty());
    }
    wait_until("the last has none", || !is_requested(chunks - 1));
    assert!((0..chunks - 1).all(is_requested));
    drop(shut);
    let pin = block_on(shared.fetch(&source, chunks - 1, PATIENCE)).expect("built after all");
    shared.pool().unpin(pin);
}

/// A file that is looked at behind a gate, and remembers who was.
#[derive(Debug)]
struct Noted {
    gated: Gated,
    name: u32,
    seen: Arc<Mutex<Vec<u32>>>,
}

impl Backing for Noted {
    fn file(&self) -> &File {
        self.gated.file()
    }

    fn check(&self) -> Result<(), String> {
        self.gated.check()?;
        self.seen.lock().unwrap().push(self.name);
        Ok(())
    }
}

#[test]
fn what_is_waited_for_is_built_first_and_once() {
    let test = TestSource::lasting(2000);
    let store = store(64, Faults::default());
    let shared = store.shared();
    let seen = Arc::<Mutex<Vec<u32>>>::default();
    let sources = [0, 1].map(|name| {
        let gated = Gated {
            file: Arc::clone(&test.backing),
            gate: Mutex::new(()),
        };
        let seen = Arc::clone(&seen);
        let backing = Arc::new(Noted { gated, name, seen });
        let (plan, origin) = (test.source.plan(), test.source.origin());
        let source = Source::new(plan, origin, Arc::clone(&backing) as _, CHUNK_BYTES);
        (Arc::new(source.expect("it fits")), backing)
    });
    let [(later, later_backing), (now, _)] = &sources;
    let shut = later_backing.gated.gate.lock().unwrap();
    let builders = u32::try_from(DEVICE_BUILDERS_MAX).unwrap();
    let chunks = later.chunks().min(12);
    for chunk in 0..builders {
        assert_eq!(shared.prefetch(later, chunk), None);
    }
    wait_until("the builders are at the gate", || shared.ahead.is_empty());
    for chunk in builders..chunks {
        assert_eq!(shared.prefetch(later, chunk), None);
    }
    // The last of these is wanted at once after all; and then comes another file.
    assert!(matches!(shared.acquire(later, chunks - 1), Acquired::Wait));
    assert!(matches!(shared.acquire(now, 0), Acquired::Wait));
    drop(shut);
    let pin = block_on(shared.fetch(now, 0, PATIENCE)).expect("built");
    shared.pool().unpin(pin);
    let built = || counter(&shared.counters().chunks_built);
    wait_until("all is built", || {
        built() > u64::from(chunks) && shared.ahead.is_empty()
    });
    // Whoever is popped first may be noted a moment later than the other builder's next.
    let seen = seen.lock().unwrap();
    let place = seen.iter().position(|&name| name == 1).unwrap();
    assert!(place <= 2 * DEVICE_BUILDERS_MAX, "{seen:?}");
    assert_eq!(seen.len(), chunks as usize + 1, "each once: {seen:?}");
}

/// A file on a disk of its own, behind a gate.
#[derive(Debug)]
struct Elsewhere {
    gated: Gated,
    device: u64,
}

impl Backing for Elsewhere {
    fn file(&self) -> &File {
        self.gated.file()
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn check(&self) -> Result<(), String> {
        self.gated.check()
    }
}

/// A source on that disk, with what it reads from.
fn elsewhere(test: &TestSource, device: u64) -> (Arc<Source>, Arc<Elsewhere>) {
    let file = Arc::clone(&test.backing);
    let gate = Mutex::new(());
    let gated = Gated { file, gate };
    let backing = Arc::new(Elsewhere { gated, device });
    let (plan, origin) = (test.source.plan(), test.source.origin());
    let source = Source::new(plan, origin, Arc::clone(&backing) as _, CHUNK_BYTES);
    (Arc::new(source.expect("it fits")), backing)
}

/// A disk that takes half a minute for each read, or has gone with its server: whoever reads from
/// it waits, whoever reads from another does not.
#[test]
fn disks_that_hang_delay_no_other() {
    let test = TestSource::lasting(2000);
    let store = store(64, Faults::default());
    let shared = store.shared();
    let [one, two, good] = [1, 2, 3].map(|device| elsewhere(&test, device));
    let chunks = test.source.chunks();
    assert!(chunks as usize > 2 * BUILDERS);
    let shut = [&one, &two].map(|(_, backing)| backing.gated.gate.lock().unwrap());
    for (source, _) in [&one, &two] {
        for chunk in 0..chunks {
            assert!(matches!(shared.acquire(source, chunk), Acquired::Wait));
        }
        wait_until("builders wait for it", || shared.needed.is_empty());
    }
    for chunk in 0..chunks {
        let pin = block_on(shared.fetch(&good.0, chunk, PATIENCE)).expect("built");
        shared.pool().unpin(pin);
    }
    assert_eq!(counter(&shared.counters().chunks_built), u64::from(chunks));
    drop(shut);
    for (source, _) in [&one, &two] {
        for chunk in 0..chunks {
            let pin = block_on(shared.fetch(source, chunk, PATIENCE)).expect("built at last");
            shared.pool().unpin(pin);
        }
    }
}

/// What came while a disk had all builders that it may have waits for one of them. The last may go
/// to another disk first, and hang there.
#[test]
fn a_builder_that_rests_serves_a_disk_that_lost_its_last() {
    let test = TestSource::lasting(2000);
    let store = store(64, Faults::default());
    let shared = store.shared();
    let [one, same, two, three] = [1, 1, 2, 3].map(|device| elsewhere(&test, device));
    let shut = [&one, &same, &two, &three];
    let shut = shut.map(|(_, backing)| backing.gated.gate.lock().unwrap());
    let [shut_one, shut_same, _shut_two, _shut_three] = shut;
    let ask = |source: &Arc<Source>, chunk| {
        assert!(matches!(shared.acquire(source, chunk), Acquired::Wait));
    };
    let wait = || wait_until("builders have all", || shared.needed.is_empty());
    ask(&one.0, 0);
    ask(&same.0, 0);
    wait();
    assert_eq!(shared.prefetch(&one.0, 1), None);
    wait_until("it waits for its disk", || shared.ahead.is_empty());
    for (source, _) in [&two, &three] {
        ask(source, 0);
        wait();
    }
    ask(&two.0, 1);
    // Nobody is left for a disk that has one builder: the first of these rests, and the second,
    // with whom there are two, takes what the other disk needs.
    drop(shut_one);
    let is_resting = || shared.resting.load(Ordering::Relaxed) != 0;
    wait_until("a builder rests", is_resting);
    drop(shut_same);
    let entry = || one.0.table.entry(1).load(Ordering::Relaxed);
    wait_until("what waited is built", || entry() >= FOUND);
}

#[test]
fn a_chunk_too_small_for_a_packet_makes_no_source() {
    let test = TestSource::lasting(100);
    let plan = test.source.plan();
    let backing: Arc<dyn Backing> = Arc::clone(&test.backing) as _;
    let origin = test.source.origin();
    assert!(Source::new(Arc::clone(&plan), origin, Arc::clone(&backing), 1000).is_none());
    assert!(Source::new(plan, origin, backing, CHUNK_BYTES).is_some());
}

#[cfg(feature = "experiments")]
#[test]
fn a_planted_wrong_byte_is_in_the_images() {
    use crate::experiments::Fault;
    let test = TestSource::lasting(200);
    let store = store(4, Faults::planted(&[Fault::WrongByte]));
    let pin = block_on(store.shared().fetch(&test.source, 0, PATIENCE)).expect("built");
    assert_ne!(
        images(store.shared(), &test.source, 0, &pin)[0],
        test.images()[0]
    );
    store.shared().pool().unpin(pin);
}
