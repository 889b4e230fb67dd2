//! The steady state allocates nothing: not in the engine, and with a warm cache not in the store
//! either.
//!
//! A test file of its own, because its allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onrush_server::config::Config;
use onrush_server::data::Data;
use onrush_server::library::Library;
use onrush_testkit::film::{Container, film};
use onrush_testkit::require_programs;
use onrush_wire::media::Scale;
use onrush_wire::media::ts::synth::constant_rate;
use onrush_wire::pace::Speed;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above; the block came from the system allocator.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Streams that play at once, and so many packets of the first while which is counted.
const STREAMS: u64 = 64;

/// Asserts that streams of a file allocate nothing while they play, once all of its chunks are
/// built: of each of its tracks, or of the first by its sync samples alone.
fn assert_steady(file: &Path, (scale, speed): (Scale, Speed), packets_counted: u64) {
    let root = tempfile::tempdir().expect("a directory");
    let name = file.file_name().expect("it has a name");
    let path = root.path().join(name);
    std::fs::copy(file, &path).expect("a few MB of disk");
    onrush_testkit::media::age(&path).expect("it is ours");
    let config = Config {
        media_root: root.path().to_owned(),
        cache_bytes: 128 << 20,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let data = Data::start(&config).expect("a data plane");
    data.wait_until_ready();
    let library = Arc::new(Library::new(&config).expect("a library"));
    let name = name.to_str().expect("a name");
    let media = runtime.block_on(library.open(name)).expect("media");

    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let chunk_bytes = data.store().pool().chunk_bytes();
    let open = |number: u64| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        socket
            .connect(receiver.local_addr().expect("bound"))
            .expect("loopback");
        let tracks = if scale.is_normal() { media.tracks() } else { 1 };
        let track = usize::try_from(number).expect("few") % tracks;
        let stream = data.open(&media, track, PAYLOAD_BYTES, socket.into());
        let stream = stream.expect("a stream");
        if !scale.is_normal() {
            let trick = media.trick(track, PAYLOAD_BYTES, chunk_bytes, scale);
            let trick = trick.expect("it can be played so");
            stream.change_source(&trick, 0).expect("it does not play");
        }
        stream
    };
    let streams: Vec<_> = (0..STREAMS).map(open).collect();
    // Every chunk of the file is built before the counting.
    for stream in &streams[..media.tracks()] {
        let packets = stream.source().plan().rtp_packets();
        for packet in (0..packets).step_by(20) {
            runtime.block_on(stream.prepare(packet)).expect("its chunk");
        }
    }
    for (number, stream) in (0..).zip(&streams) {
        // At different places, so that every chunk is read from in turn.
        let from = stream.source().plan().rtp_packets() / 3 * number / STREAMS;
        runtime.block_on(stream.prepare(from)).expect("its chunk");
        let due_ns = stream.source().plan().due_ns(from);
        let delay = Duration::from_millis(number % 20);
        let moment = stream.moment(due_ns, delay, speed).expect("an engine");
        stream.play_at(from, None, moment).expect("played");
    }
    let wait_until = |is_so: &dyn Fn() -> bool| {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < give_up, "it does not play");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait_until(&|| streams.iter().all(|stream| stream.snapshot().packets > 5));

    let first = &streams[0];
    let built = data.store().counters().chunks_built.load(Ordering::Relaxed);
    let (packets, allocations) = (first.snapshot().packets, ALLOCATIONS.load(Ordering::SeqCst));
    wait_until(&|| first.snapshot().packets > packets + packets_counted);
    let allocated = ALLOCATIONS.load(Ordering::SeqCst) - allocations;
    let built = data.store().counters().chunks_built.load(Ordering::Relaxed) - built;
    assert_eq!(allocated, 0, "{name}: while {built} chunks were built");
}

/// Bytes behind the RTP header in a frame of Ethernet.
const PAYLOAD_BYTES: usize = 1460;

/// One test, since its allocator counts for the whole process.
// SPECIFICATION.md: 14
#[test]
fn streams_that_play_allocate_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    // Eight seconds at 4 Mbit/s.
    let ts = folder.path().join("steady.ts");
    std::fs::write(&ts, constant_rate(8 * 2660, 0, 10_152)).expect("a few MB of disk");
    let normal = (Scale::NORMAL, Speed::NORMAL);
    assert_steady(&ts, normal, 400);
    assert_steady(&ts, (Scale::NORMAL, Speed::nearest(2.0)), 400);
    require_programs!("ffmpeg");
    let mp4 = film(Container::Mp4, 4_000_000, 24).expect("a film");
    assert_steady(&mp4, normal, 400);
    assert_steady(&mp4, (Scale::nearest(4.0), Speed::NORMAL), 300);
}
