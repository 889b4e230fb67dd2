//! What a receiver sees of a stream that jumps: one run of packets, with the payload of where it
//! is.

use std::net::UdpSocket;
use std::sync::atomic::AtomicU64;

use onrush_wire::rtp::{HEADER_BYTES, Header, Position};
use proptest::prelude::*;

use super::numbering::{RtpHeaders, position_of};
use super::tests::{Rig, config, make_room, receive, sockets};
use super::*;
use crate::testing::{TestSource, block_on, store_with_slabs, wait_until};

/// One engine with room for headers of its own: a slab, of so many in `bytes` of memory.
pub(super) fn rig_of(config: &EngineConfig, bytes: usize, slabs: usize) -> Rig {
    let store = store_with_slabs(bytes, slabs);
    let engines = Engines::start(config, store.shared(), |name, error| {
        panic!("{name} is available to these tests: {error}");
    });
    Rig {
        engines: engines.expect("engines start"),
        store,
    }
}

fn rig(config: &EngineConfig) -> Rig {
    rig_of(config, 8 << 20, config.cores.len())
}

/// What a client does, and what it must see.
struct Client {
    stream: Stream,
    receiver: UdpSocket,
    images: Vec<Vec<u8>>,
    /// The numbers that the next packet must have, once there was one.
    next: Option<Position>,
    ssrc: u32,
}

impl Client {
    fn new(rig: &Rig, test: &TestSource) -> Self {
        let (socket, receiver) = sockets();
        make_room(&receiver);
        let source = Arc::clone(&test.source);
        let stream = rig
            .engines
            .open(StreamSpec {
                source,
                to: socket.into(),
            })
            .expect("a stream");
        let ssrc = stream.snapshot().numbering.ssrc(7);
        Self {
            stream,
            receiver,
            images: test.images(),
            next: None,
            ssrc,
        }
    }

    /// Plays a part to its end.
    fn play(&mut self, from: usize, stop: usize) {
        self.start(from, Some(stop));
        assert_eq!(block_on(self.stream.ended()), EndReason::EndOfMedia);
        self.expect(from, stop - from);
    }

    /// Plays, and pauses before the end.
    fn play_and_pause(&mut self, from: usize, packets: u64) -> usize {
        let before = self.stream.snapshot().packets;
        self.start(from, None);
        wait_until("some packets are sent", || {
            self.stream.snapshot().packets >= before + packets
        });
        let next = block_on(self.stream.pause()).expect("paused");
        let next = usize::try_from(next).expect("small");
        self.expect(from, next - from);
        self.receiver.set_nonblocking(true).expect("set");
        let late = self.receiver.recv(&mut [0; 10]);
        self.receiver.set_nonblocking(false).expect("set");
        assert!(late.is_err(), "nothing arrives after a pause");
        next
    }

    fn start(&mut self, from: usize, stop: Option<usize>) {
        let from = from as u64;
        block_on(self.stream.prepare(from)).expect("the chunk");
        let due_ns = self.stream.source().plan().due_ns(from);
        let foretold = self.stream.position_from(from, due_ns);
        assert_eq!(*self.next.get_or_insert(foretold), foretold);
        let stop = stop.map(|stop| stop as u64);
        self.stream
            .play(from, stop, Duration::ZERO)
            .expect("played");
    }

    /// Has another source from now on.
    fn change(&mut self, test: &TestSource, from: usize) {
        let changed = self.stream.change_source(&test.source, from as u64);
        changed.expect("changed");
        self.images = test.images();
    }

    /// So many packets arrive, numbered and stamped without a break, with the payload of packet
    /// `from` on.
    fn expect(&mut self, from: usize, packets: usize) {
        let first = self.next.expect("it was played");
        let source = &self.stream.source();
        let plan = source.plan();
        let step = position_of(source, &plan, from as u64)
            .timestamp
            .wrapping_sub(first.timestamp);
        for (number, packet) in (from..).zip(receive(&self.receiver, packets)) {
            let header = Header::read(&packet).expect("RTP");
            let image = &self.images[number];
            assert_eq!(packet[HEADER_BYTES..], image[HEADER_BYTES..], "{number}");
            let next = self.next.as_mut().expect("it was played");
            assert_eq!(
                (header.sequence, header.ssrc),
                (next.sequence, self.ssrc),
                "{number}"
            );
            let of_image = Header::read(image).expect("RTP");
            assert_eq!(
                header.timestamp,
                of_image.timestamp.wrapping_sub(step),
                "{number}"
            );
            let ahead = header.timestamp.wrapping_sub(next.timestamp);
            assert!(ahead < 1 << 31, "{number}: a stamp steps back");
            *next = Position {
                sequence: header.sequence.wrapping_add(1),
                timestamp: header.timestamp,
            };
        }
        let end = position_of(source, &plan, (from + packets) as u64);
        let next = self.next.as_mut().expect("it was played");
        next.timestamp = end.timestamp.wrapping_sub(step);
    }
}

#[test]
fn numbers_go_on_over_every_jump_on_every_path() {
    let test = TestSource::lasting(1500);
    for path in PathName::ALL {
        for headers in [RtpHeaders::Auto, RtpHeaders::Own] {
            let rig = rig(&EngineConfig {
                path,
                headers,
                ..config()
            });
            let mut client = Client::new(&rig, &test);
            let last = client.images.len();
            client.play(17, 60);
            client.play(60, 80);
            // To and fro, to the end, and again from the start.
            client.play(400, 460);
            client.play(3, 49);
            client.play(last - 40, last);
            client.play(0, 30);
            let next = client.play_and_pause(100, 20);
            let next = client.play_and_pause(next, 20);
            client.play(next, next + 30);
            client.play(5, 6);
            let worker = rig.worker();
            wait_until("trains are counted", || {
                worker.trains_own_headers.load(Ordering::Relaxed) > 0
            });
            assert_eq!(worker.packets_refused.load(Ordering::Relaxed), 0, "{path}");
            drop(client);
            wait_until("all chunks are free", || {
                rig.store.shared().pool().chunks_in_use() == 0
            });
        }
    }
}

/// Another source is another place: numbers and stamps go on, counters too, and every chunk comes
/// back.
#[test]
fn numbers_go_on_over_changes_of_source_on_every_path() {
    let film = TestSource::lasting(1500);
    // Of another rate, and with a table of its own.
    let fast = TestSource::of(onrush_wire::media::ts::synth::constant_rate(
        4000, 100, 5000,
    ));
    for path in PathName::ALL {
        for headers in [RtpHeaders::Auto, RtpHeaders::Own] {
            let rig = rig(&EngineConfig {
                path,
                headers,
                ..config()
            });
            let mut client = Client::new(&rig, &film);
            // Before its first play it is no jump.
            client.change(&fast, 30);
            client.play(30, 90);
            if headers == RtpHeaders::Auto {
                assert_eq!(client.stream.snapshot().numbering, Numbering::default());
            }
            client.change(&film, 400);
            client.play(400, 430);
            client.change(&fast, 90);
            // Where it is said to go on, or elsewhere.
            client.play(90, 120);
            client.change(&film, 430);
            client.play(17, 50);
            // To and fro in a pause.
            client.change(&fast, 1);
            client.change(&film, 50);
            let next = client.play_and_pause(50, 20);
            let playing = client.stream.snapshot();
            assert_eq!(playing.packets, 60 + 30 + 30 + 33 + (next as u64 - 50));
            client.change(&fast, 500);
            let next = client.play_and_pause(500, 30);
            client.start(next, None);
            let busy = client.stream.change_source(&film.source, 0);
            assert!(matches!(busy, Err(EngineError::Busy)), "{busy:?}");
            block_on(client.stream.pause()).expect("paused");
            assert!(rig.worker().admission.work() > 0);
            drop(client);
            assert_eq!(rig.worker().admission.work(), 0);
            wait_until("all chunks are free", || {
                rig.store.shared().pool().chunks_in_use() == 0
            });
        }
    }
}

/// Until the first jump images are sent as they lie, and after it in trains of up to eight.
#[test]
fn only_a_session_that_has_jumped_has_headers_of_its_own() {
    let test = TestSource::lasting(1500);
    let rig = rig(&config());
    let worker = rig.worker();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut client = Client::new(&rig, &test);
    client.play(100, 200);
    client.play(200, 300);
    wait_until("its trains are counted", || count(&worker.trains) > 0);
    assert_eq!(count(&worker.trains_own_headers), 0);
    client.play(0, 300);
    wait_until("own trains are counted", || {
        count(&worker.trains_own_headers) >= 300 / 8
    });
    // 7.6 packets a burst: one train each, or two where a burst is cut or of nine.
    assert!(count(&worker.trains_own_headers) <= 2 * 41);
    let refused = (count(&worker.packets_refused), count(&worker.demotions));
    assert_eq!(refused, (0, 0));
}

#[test]
fn shared_headers_jump_with_the_file() {
    let test = TestSource::lasting(500);
    let rig = rig(&EngineConfig {
        headers: RtpHeaders::Shared,
        ..config()
    });
    let mut client = Client::new(&rig, &test);
    client.play(0, 20);
    client.next = None;
    client.play(100, 120);
    assert_eq!(rig.worker().trains_own_headers.load(Ordering::Relaxed), 0);
}

/// A burst that needs more slots than there are leaves in parts.
#[test]
fn a_burst_longer_than_all_slots_loses_nothing() {
    // 300 Mbit/s: 49 packets in a chunk of one burst, and eight slots.
    let test = TestSource::of(onrush_wire::media::ts::synth::constant_rate(40_000, 0, 135));
    let rig = rig_of(&config(), 1 << 20, 64);
    let slab = onrush_sys::pool::HeaderSlab::take_from(rig.store.shared().pool());
    assert_eq!(slab.expect("one of 64").slots(), 8);
    let mut client = Client::new(&rig, &test);
    client.play(0, 10);
    client.play(2000, 5000);
    client.play(100, 3000);
}

#[test]
fn a_stream_that_moves_keeps_its_numbers() {
    let cores = onrush_sys::thread::allowed_cores();
    let config = EngineConfig {
        cores: vec![cores[0], cores[cores.len() - 1]],
        ..config()
    };
    let rig = rig(&config);
    let test = TestSource::lasting(3000);
    let mut client = Client::new(&rig, &test);
    client.play(300, 340);
    client.start(20, None);
    for engine in [1, 0, 1] {
        block_on(client.stream.move_to(&rig.engines, engine)).expect("moved");
    }
    let next = block_on(client.stream.pause()).expect("paused");
    client.expect(20, usize::try_from(next).expect("small") - 20);
    client.play(700, 720);
}

/// Who asks for more of an engine is counted with it, and counted out as a whole.
#[test]
fn what_own_headers_cost_is_promised_and_given_back() {
    // 40 Mbit/s: 76 packets a burst, two trains, or ten with headers of its own.
    let test = TestSource::of(onrush_wire::media::ts::synth::constant_rate(
        40_000, 0, 1015,
    ));
    let rig = rig(&config());
    let promised = || rig.worker().admission.work();
    let mut client = Client::new(&rig, &test);
    let shared = promised();
    client.play(0, 10);
    assert_eq!(promised(), shared);
    client.play(50, 60);
    let own = promised();
    assert!(own > shared * 3 / 2, "{own} after {shared}");
    client.play(5, 60);
    assert_eq!(promised(), own, "once");
    drop(client);
    assert_eq!(promised(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_plays_are_one_run(
        own in any::<bool>(),
        plays in prop::collection::vec((0_usize..500, 1_usize..40, any::<bool>()), 1..12),
    ) {
        let test = TestSource::lasting(1500);
        let headers = if own { RtpHeaders::Own } else { RtpHeaders::Auto };
        let rig = rig(&EngineConfig { headers, ..config() });
        let mut client = Client::new(&rig, &test);
        for (from, packets, pauses) in plays {
            if pauses {
                client.play_and_pause(from, packets.min(8) as u64);
            } else {
                client.play(from, from + packets);
            }
        }
    }
}
