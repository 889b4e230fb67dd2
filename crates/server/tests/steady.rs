//! The steady state allocates nothing: not in the engine, and with a warm cache not in the store
//! either.
//!
//! A test file of its own, because its allocator counts for the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onrush_server::config::Config;
use onrush_server::data::Data;
use onrush_server::library::Library;
use onrush_wire::media::ts::synth::constant_rate;

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

#[test]
fn streams_that_play_allocate_nothing() {
    const STREAMS: usize = 64;
    let root = tempfile::tempdir().expect("a directory");
    // Eight seconds at 4 Mbit/s.
    let file = constant_rate(8 * 2660, 0, 10_152);
    std::fs::write(root.path().join("steady.ts"), file).expect("a few MB of disk");
    onrush_testkit::media::age(&root.path().join("steady.ts")).expect("it is ours");
    let config = Config {
        media_root: root.path().to_owned(),
        cache_bytes: 64 << 20,
        ..Config::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let data = Data::start(&config).expect("a data plane");
    data.wait_until_ready();
    let library = Arc::new(Library::new(&config).expect("a library"));
    let media = runtime.block_on(library.open("steady.ts")).expect("media");

    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
            socket
                .connect(receiver.local_addr().expect("bound"))
                .expect("loopback");
            data.open(&media, 0, 7 * 188, socket.into())
                .expect("a stream")
        })
        .collect();
    // Every chunk of the file is built before the counting.
    let first = &streams[0];
    let plan = media.plan(0, 7 * 188).expect("packets of a frame");
    for packet in (0..plan.rtp_packets()).step_by(20) {
        runtime.block_on(first.prepare(packet)).expect("its chunk");
    }
    for (i, stream) in (0..).zip(&streams) {
        // At different places, so that every chunk is read from in turn.
        let from = i * 40;
        runtime.block_on(stream.prepare(from)).expect("its chunk");
        stream
            .play(from, None, Duration::from_millis(i % 20))
            .expect("played");
    }
    let wait_until = |is_so: &dyn Fn() -> bool| {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < give_up, "it does not play");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait_until(&|| streams.iter().all(|stream| stream.snapshot().packets > 100));

    let built = data.store().counters().chunks_built.load(Ordering::Relaxed);
    let (packets, allocations) = (first.snapshot().packets, ALLOCATIONS.load(Ordering::SeqCst));
    wait_until(&|| first.snapshot().packets > packets + 400);
    let allocated = ALLOCATIONS.load(Ordering::SeqCst) - allocations;
    let built = data.store().counters().chunks_built.load(Ordering::Relaxed) - built;
    assert_eq!(allocated, 0, "while {built} chunks were built");
}
