//! The engine with real sockets on loopback, and with a path that watches the memory.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use onrush_testkit::rtsp_client::uninterrupted;

use onrush_wire::media::ts::synth::constant_rate;

use super::shared_clock::Side;
use super::test_paths::{
    Meddle, Meddled, meddled, secured, watchful, withholding, without_descriptors,
};
use super::worker::signed;
use super::*;
use crate::testing::{TestSource, block_on, store, wait_until};
use crate::tls::record::tests::almost_worn;

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Rig {
    pub(super) engines: Engines,
    pub(super) store: store::Store,
}

pub(super) fn rig(config: EngineConfig) -> Rig {
    rig_of(config, 64)
}

pub(super) fn rig_of(config: EngineConfig, chunks: usize) -> Rig {
    let store = store(chunks, config.faults);
    let engines = Engines::start(&config, store.shared(), |name, error| {
        panic!("{name} is available to these tests: {error}");
    });
    Rig {
        engines: engines.expect("engines start"),
        store,
    }
}

pub(super) fn config() -> EngineConfig {
    EngineConfig {
        streams_max: 300,
        ..EngineConfig::default()
    }
}

/// A connected pair: what the engine sends through, and where it arrives.
pub(super) fn sockets() -> (UdpSocket, UdpSocket) {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    receiver
        .set_read_timeout(Some(PATIENCE))
        .expect("a time-out");
    socket2::SockRef::from(&receiver)
        .set_recv_buffer_size(4 << 20)
        .expect("a large buffer");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("loopback");
    (sender, receiver)
}

/// Gives a receiver room for all that comes before somebody reads; others than root have less. Not
/// for receivers that many streams play to and nobody reads: what all sockets of a machine hold
/// together is bounded (udp_mem).
pub(super) fn make_room(receiver: &UdpSocket) {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(receiver, 4 << 20).ok();
}

impl Rig {
    pub(super) fn open(&self, source: &TestSource) -> (Stream, UdpSocket) {
        let (stream, receiver, _) = self.open_at(source);
        (stream, receiver)
    }

    /// The same, if there is room.
    pub(super) fn try_open(&self, source: &TestSource) -> Result<(Stream, UdpSocket), EngineError> {
        let (socket, receiver) = sockets();
        let spec = StreamSpec {
            source: Arc::clone(&source.source),
            to: socket.into(),
        };
        Ok((self.engines.open(spec)?, receiver))
    }

    /// The same, and what the sending socket's descriptor is or was.
    fn open_at(&self, source: &TestSource) -> (Stream, UdpSocket, i32) {
        let (socket, receiver) = sockets();
        let fd = socket.as_raw_fd();
        let spec = StreamSpec {
            source: Arc::clone(&source.source),
            to: socket.into(),
        };
        (self.engines.open(spec).expect("a stream"), receiver, fd)
    }

    pub(super) fn worker(&self) -> &WorkerShared {
        self.engines.counters().next().expect("one engine")
    }
}

pub(super) fn receive(receiver: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| {
            let mut packet = [0; 2048];
            let bytes = uninterrupted(|| receiver.recv(&mut packet))
                .unwrap_or_else(|e| panic!("packet {i}: {e}"));
            packet[..bytes].to_vec()
        })
        .collect()
}

#[test]
fn a_file_arrives_whole_on_every_path_and_leaves_nothing_behind() {
    let test = TestSource::lasting(700);
    let images = test.images();
    for path in PathName::ALL {
        let rig = rig(EngineConfig { path, ..config() });
        let (stream, receiver) = rig.open(&test);
        make_room(&receiver);
        block_on(stream.prepare(0)).expect("the first chunk");
        stream.play(0, None, Duration::ZERO).expect("played");
        assert_eq!(receive(&receiver, images.len()), images, "{path}");
        assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
        let after = stream.snapshot();
        assert_eq!(after.packets, images.len() as u64, "{path}");
        assert_eq!(
            after.bytes,
            images.iter().map(|i| i.len() as u64).sum::<u64>()
        );
        assert_eq!(
            (after.packets_refused, after.next_packet),
            (0, images.len() as u64)
        );
        drop(stream);
        wait_until("the stream is gone", || rig.engines.streams() == 0);
        wait_until("all chunks are free", || {
            rig.store.shared().pool().chunks_in_use() == 0
        });
        assert_eq!(rig.engines.path(), path);
    }
}

#[test]
fn streams_begin_in_the_tick_that_their_phase_says() {
    let test = TestSource::lasting(500);
    for (phase, slots) in [
        (Phase::Aligned, [0, 0, 0, 0]),
        (Phase::Spread, [0, 1, 2, 3]),
    ] {
        let rig = rig(EngineConfig { phase, ..config() });
        let tick_ns = signed(worker::tick_ns(&config()));
        let playing = [0, 1, 2, 3].map(|_| {
            let (stream, receiver) = rig.open(&test);
            stream.play(0, None, Duration::ZERO).expect("played");
            (stream, receiver)
        });
        let begun = playing.each_ref().map(|(stream, _)| {
            wait_until("it plays", || stream.shared().is_taken());
            let first_ns = signed(test.source.plan().due_ns(0));
            let start_ns = stream.shared().lines.get(Side::Worker).epoch_ns() + first_ns;
            assert_eq!(start_ns % tick_ns, 0, "{phase}");
            start_ns / tick_ns % 4
        });
        assert_eq!(begun, slots, "{phase}");
    }
}

/// As `prepare` says: one chunk is held for it, and a reader that gets no second one only pauses.
#[test]
fn a_cache_of_one_chunk_loses_nothing() {
    let test = TestSource::lasting(500);
    assert!(test.source.chunks() > 3, "it does not fit the cache");
    let images = test.images();
    let rig = rig_of(config(), 1);
    let (stream, receiver) = rig.open(&test);
    block_on(stream.prepare(0)).expect("the first chunk");
    stream.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(receive(&receiver, images.len()), images);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
}

#[test]
fn pause_and_resume_lose_and_repeat_nothing() {
    // Longer than the pauses take to be asked for.
    let test = TestSource::lasting(40_000);
    let images = test.images();
    let rig = rig(config());
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    let mut from = 0;
    for _ in 0..4 {
        stream.play(from, None, Duration::ZERO).expect("played");
        std::thread::sleep(Duration::from_millis(120));
        let next = block_on(stream.pause()).expect("paused");
        let count = usize::try_from(next - from).expect("some");
        let first = usize::try_from(from).expect("small");
        assert_eq!(receive(&receiver, count), images[first..first + count]);
        from = next;
    }
    assert!(from > 0, "something was played");
    receiver.set_nonblocking(true).expect("set");
    assert!(
        receiver.recv(&mut [0; 10]).is_err(),
        "nothing arrives after a pause"
    );
}

/// Commands take effect for whoever gave them at once, though the worker takes them up at its next
/// tick.
#[test]
fn a_play_counts_from_the_moment_it_is_asked_for() {
    let test = TestSource::lasting(200);
    let packets = test.source.plan().rtp_packets();
    let rig = rig(config());
    let (stream, receiver) = rig.open(&test);
    let soon = Duration::from_secs(5);
    for from in [7, 60, 3, 60, 0, 60, 59, 20] {
        stream.play(from, None, soon).expect("played");
        assert_eq!(stream.snapshot().next_packet, from);
        stream.play(from, None, Duration::ZERO).expect("played");
        let position_ns = stream.snapshot().position_ns;
        assert!(position_ns >= test.source.plan().due_ns(from), "{from}");
        stream.play(from, None, soon).expect("played");
        assert_eq!(block_on(stream.pause()).expect("paused"), from);
    }
    stream
        .play(packets - 1, None, Duration::ZERO)
        .expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    receive(&receiver, 1);
    for _ in 0..20 {
        // The end of the play before is not this one's.
        stream.play(0, None, soon).expect("played");
        let ended = async { timeout(Duration::from_millis(10), stream.ended()).await };
        block_on(ended).expect_err("it has not even begun");
        assert_eq!(block_on(stream.pause()).expect("paused"), 0);
    }
}

#[test]
fn play_goes_on_from_anywhere_and_stops_where_it_is_told() {
    let test = TestSource::lasting(1000);
    let images = test.images();
    let rig = rig(config());
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    // Into the middle of a chunk and of a burst, to the last packet, and to one chunk's end.
    let last = images.len() - 1;
    for (from, stop) in [
        (17, 60),
        (last, last + 1),
        (3, 49),
        (200, 201),
        (0, last + 1),
    ] {
        block_on(stream.prepare(from as u64)).expect("the chunk");
        stream
            .play(from as u64, Some(stop as u64), Duration::ZERO)
            .expect("played");
        assert_eq!(
            receive(&receiver, stop - from),
            images[from..stop],
            "{from}..{stop}"
        );
        assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    }
    stream
        .play(images.len() as u64, None, Duration::ZERO)
        .expect("played");
    assert_eq!(
        block_on(stream.ended()),
        EndReason::EndOfMedia,
        "the end is a place too"
    );
}

#[test]
fn a_seek_while_playing_takes_effect_at_once() {
    let test = TestSource::lasting(30_000);
    let images = test.images();
    let rig = rig(config());
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, Duration::ZERO).expect("played");
    receive(&receiver, 1);
    let to = images.len() - 20;
    stream
        .play(to as u64, None, Duration::ZERO)
        .expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let total = usize::try_from(stream.snapshot().packets).expect("few") - 1;
    let received = receive(&receiver, total);
    assert_eq!(received[received.len() - 20..], images[to..]);
    assert!(received.len() < images.len() / 2, "the middle was skipped");
}

#[test]
fn crossings_do_not_grow_with_the_number_of_streams() {
    let test = TestSource::lasting(1500);
    for streams in [8, 256] {
        let rig = rig(config());
        let open: Vec<_> = (0..streams).map(|_| rig.open(&test)).collect();
        for (i, (stream, receiver)) in (0..).zip(&open) {
            // Nobody reads it.
            socket2::SockRef::from(receiver)
                .set_recv_buffer_size(1)
                .expect("a small buffer");
            // Spread over the four ticks of a burst, however few.
            let delay = Duration::from_millis(50 + i % 4 * 5);
            stream.play(0, None, delay).expect("played");
        }
        let now = || {
            let WorkerShared {
                crossings, ticks, ..
            } = rig.worker();
            [crossings, ticks].map(|count| count.load(Ordering::Relaxed))
        };
        let (before, since) = (now(), Instant::now());
        block_on(open[0].0.ended());
        let [crossings, ticks] = [0, 1].map(|i| now()[i] - before[i]);
        // There are 200 ticks a second, fewer if some come late.
        let ticks_max = since.elapsed().as_millis() / 5 + 10;
        assert!(
            u128::from(ticks) <= ticks_max,
            "{ticks} of {ticks_max} ticks"
        );
        // One a tick, and one for each batch that what is caught up with fills, of 256 trains.
        let trains = rig.worker().trains.load(Ordering::Relaxed);
        let crossings_max = ticks + trains / 200 + 2;
        assert!(
            crossings <= crossings_max,
            "{crossings} in {ticks} ticks for {trains} trains"
        );
        // On a busy machine many are behind, and what leaves together is one train.
        let joined = rig.worker().bursts_joined.load(Ordering::Relaxed);
        assert!(
            trains + joined >= streams * 70,
            "{trains} trains, {joined} bursts joined, of {streams} streams"
        );
    }
}

#[test]
fn a_client_that_is_gone_ends_its_stream_and_no_other() {
    let test = TestSource::lasting(1200);
    let images = test.images();
    let rig = rig(EngineConfig {
        refused_time_max: Duration::from_millis(200),
        ..config()
    });
    let (good, receiver) = rig.open(&test);
    make_room(&receiver);
    let (bad, gone) = rig.open(&test);
    drop(gone);
    good.play(0, None, Duration::ZERO).expect("played");
    bad.play(0, None, Duration::ZERO).expect("played");
    // An ICMP error refuses every other send, so that the kernel is never silent for 200 ms: the
    // stream goes on. Whether such a client is gone for good is for its session to say.
    wait_until("refusals are counted", || {
        bad.snapshot().packets_refused > 0
    });
    assert_eq!(receive(&receiver, images.len()), images);
    assert_eq!(good.snapshot().packets_refused, 0);
}

#[test]
fn a_file_in_trouble_ends_its_stream_and_no_other() {
    let (bad, good) = (TestSource::lasting(2000), TestSource::lasting(1000));
    let images = good.images();
    let rig = rig_of(config(), 8);
    let (bad_stream, _bad_receiver) = rig.open(&bad);
    let (good_stream, receiver) = rig.open(&good);
    make_room(&receiver);
    bad_stream.play(0, None, Duration::ZERO).expect("played");
    good_stream.play(0, None, Duration::ZERO).expect("played");
    std::thread::sleep(Duration::from_millis(100));
    *bad.backing.trouble.lock().unwrap() = Some("the file was truncated".to_owned());
    let reason = block_on(bad_stream.ended());
    assert_eq!(
        reason,
        EndReason::Media("the file was truncated".to_owned())
    );
    assert_eq!(receive(&receiver, images.len()), images);
    assert!(matches!(
        block_on(bad_stream.prepare(bad.source.plan().rtp_packets() - 1)),
        Err(EngineError::Media { .. })
    ));
}

/// What a stream has sent by the time that it has waited for more for a while.
fn wait_for_more(stream: &Stream, test: &TestSource) {
    let packets = test.source.rtp_packets();
    wait_until("all there is was sent", || {
        stream.snapshot().packets == packets
    });
    std::thread::sleep(Duration::from_millis(50));
    let now = stream.snapshot();
    assert_eq!((now.packets, now.next_packet), (packets, packets));
    assert_eq!(stream.end_reason(), None, "it waits");
    let plan = test.source.plan();
    assert!(
        now.position_ns <= plan.due_ns(packets),
        "it is not ahead of the file"
    );
}

#[test]
fn a_stream_waits_at_the_end_of_what_grows_and_goes_on() {
    // Into the middle of a packet, of a burst and of a chunk; to a chunk's end, and by a packet
    // alone.
    let steps = [200, 201, 336, 337, 340, 343, 350, 1500, 1900];
    let test = TestSource::growing(constant_rate(2000, 0, 10_152), 120);
    let images = test.images();
    let rig = rig_of(config(), 8);
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    block_on(stream.prepare(0)).expect("the first chunk");
    stream.play(0, None, Duration::ZERO).expect("played");
    for ts_packets in steps {
        wait_for_more(&stream, &test);
        test.grow(ts_packets, true);
    }
    wait_for_more(&stream, &test);
    test.grow(2000, false);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    assert_eq!(receive(&receiver, images.len()), images);
    let waits = (
        stream.snapshot().underruns,
        rig.worker().lags.load(Ordering::Relaxed),
    );
    assert_eq!(waits, (0, 0), "to wait for more is not to be late");
    drop(stream);
    wait_until("all chunks are free", || {
        rig.store.shared().pool().chunks_in_use() == 0
    });
}

#[test]
fn a_stream_that_waits_ends_when_the_file_is_complete_or_cut() {
    let rig = rig(config());
    let test = TestSource::growing(constant_rate(300, 0, 10_152), 210);
    let (stream, _receiver) = rig.open(&test);
    stream.play(0, None, Duration::ZERO).expect("played");
    wait_for_more(&stream, &test);
    test.grow(210, false);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    assert_eq!(stream.snapshot().packets, 30);
    // It may wait where it is paused and played again, and it stops where it is told to.
    let test = TestSource::growing(constant_rate(300, 0, 10_152), 210);
    let (stream, _receiver) = rig.open(&test);
    stream.play(0, Some(20), Duration::ZERO).expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    assert_eq!(stream.snapshot().packets, 20);
    stream.play(20, None, Duration::ZERO).expect("played");
    wait_for_more(&stream, &test);
    assert_eq!(block_on(stream.pause()).expect("paused"), 30);
    block_on(stream.prepare(30)).expect("there is nothing to be had yet");
    stream.play(30, None, Duration::ZERO).expect("played");
    wait_for_more(&stream, &test);
    test.source.change(25..u64::MAX, "it was cut".to_owned());
    assert_eq!(
        block_on(stream.ended()),
        EndReason::Media("it was cut".to_owned())
    );
}

#[test]
fn what_was_changed_ends_those_who_come_to_it_and_no_others() {
    let rig = rig(config());
    let test = TestSource::lasting(1000);
    let packets = test.source.rtp_packets();
    let [reaches, before, after] = [(); 3].map(|()| rig.open(&test));
    test.source
        .change(200..250, "it was written over".to_owned());
    reaches.0.play(100, None, Duration::ZERO).expect("played");
    before
        .0
        .play(100, Some(200), Duration::ZERO)
        .expect("played");
    after.0.play(250, None, Duration::ZERO).expect("played");
    let reason = EndReason::Media("it was written over".to_owned());
    assert_eq!(block_on(reaches.0.ended()), reason);
    assert_eq!(block_on(before.0.ended()), EndReason::EndOfMedia);
    assert_eq!(block_on(after.0.ended()), EndReason::EndOfMedia);
    let sent = [&reaches, &before, &after].map(|(stream, _)| stream.snapshot().packets);
    // A burst may reach a little into it.
    assert!((100..110).contains(&sent[0]), "{sent:?}");
    assert_eq!(sent[1..], [100, packets - 250]);
}

#[test]
fn what_was_changed_is_not_joined_to_what_was_not() {
    let test = TestSource::lasting(1000);
    let reason = "it was written over";
    test.source.change(200..250, reason.to_owned());
    let ends = |rig: &Rig| {
        let ends = (100..120).step_by(3).map(|from| {
            let (stream, _receiver) = rig.open(&test);
            stream.play(from, None, Duration::ZERO).expect("played");
            let end = block_on(stream.ended());
            assert_eq!(end, EndReason::Media(reason.to_owned()));
            from + stream.snapshot().packets
        });
        ends.collect::<Vec<_>>()
    };
    // Behind by more than a burst at each send, so that two leave at a time.
    let held_up = meddled(|_| {
        std::thread::sleep(Duration::from_millis(30));
        Ok(())
    });
    let held_up = rig(held_up);
    assert_eq!(ends(&held_up), ends(&rig(config())));
    assert!(held_up.worker().bursts_joined.load(Ordering::Relaxed) > 0);
}

#[test]
fn one_stream_more_than_the_limit_is_refused_until_one_goes() {
    let test = TestSource::lasting(100);
    let rig = rig(EngineConfig {
        streams_max: 3,
        ..config()
    });
    let mut open: Vec<_> = (0..3).map(|_| rig.open(&test)).collect();
    let spec = || StreamSpec {
        source: Arc::clone(&test.source),
        to: sockets().0.into(),
    };
    assert!(matches!(
        rig.engines.open(spec()),
        Err(EngineError::Full { streams_max: 3 })
    ));
    open.pop();
    wait_until("the number is free again", || {
        rig.engines.open(spec()).is_ok()
    });
}

#[test]
fn who_would_take_chunks_from_others_is_not_let_in() {
    const CHUNKS: usize = 32;
    let (held, test) = (TestSource::lasting(8000), TestSource::lasting(500));
    for (load_max_permille, is_bounded) in [(900, true), (LOAD_UNLIMITED, false)] {
        let config = EngineConfig {
            load_max_permille,
            ..config()
        };
        let rig = rig_of(config, CHUNKS);
        let shared = rig.store.shared();
        let spec = || StreamSpec {
            source: Arc::clone(&test.source),
            to: sockets().0.into(),
        };
        let fetch = |chunk| block_on(shared.fetch(&held.source, chunk, PATIENCE)).expect("built");
        // One in sixteen is kept.
        let mut pins: Vec<_> = (0..30).map(fetch).collect();
        assert!(rig.engines.open(spec()).is_ok());
        pins.push(fetch(30));
        let opened = rig.engines.open(spec());
        let is_refused = matches!(opened, Err(EngineError::CacheFull { .. }));
        assert_eq!(is_refused, is_bounded);
        pins.into_iter().for_each(|pin| shared.pool().unpin(pin));
        assert!(rig.engines.open(spec()).is_ok());
    }
}

#[test]
fn a_full_cache_is_said_before_anything_is_promised() {
    let tests: Vec<_> = (0..3).map(|_| TestSource::lasting(3000)).collect();
    let first_chunk_time_max = Duration::from_millis(200);
    let rig = rig_of(
        EngineConfig {
            first_chunk_time_max,
            ..config()
        },
        2,
    );
    let held: Vec<_> = (0..2)
        .map(|i| {
            let source = &tests[i].source;
            block_on(rig.store.shared().fetch(source, 0, PATIENCE)).expect("built")
        })
        .collect();
    let (stream, _receiver) = rig.open(&tests[2]);
    let refused = block_on(stream.prepare(0));
    assert!(
        matches!(
            refused,
            Err(EngineError::CacheFull {
                ready_bytes: 131_072,
                cache_bytes: 131_072
            })
        ),
        "{refused:?}"
    );
    held.into_iter()
        .for_each(|pin| rig.store.shared().pool().unpin(pin));
    wait_until("there is room now", || block_on(stream.prepare(0)).is_ok());
    drop(stream);
    wait_until("the prepared chunk is free", || {
        rig.store.shared().pool().chunks_in_use() == 0
    });
}

#[test]
fn a_slow_disk_is_not_taken_for_a_full_cache() {
    let test = TestSource::lasting(500);
    let rig = rig(EngineConfig {
        first_chunk_time_max: Duration::from_millis(50),
        ..config()
    });
    let (stream, _receiver) = rig.open(&test);
    // The builder waits for what the test holds, as it would for a disk.
    let disk = test.backing.trouble.lock().unwrap();
    let refused = block_on(stream.prepare(0));
    assert!(matches!(refused, Err(EngineError::Slow)), "{refused:?}");
    drop(disk);
    wait_until("the disk has caught up", || {
        block_on(stream.prepare(0)).is_ok()
    });
}

#[test]
fn engines_that_stop_say_so_to_their_streams() {
    let test = TestSource::lasting(2000);
    let Rig { engines, store } = rig(config());
    let (socket, _receiver) = sockets();
    let spec = StreamSpec {
        source: Arc::clone(&test.source),
        to: socket.into(),
    };
    let stream = engines.open(spec).expect("a stream");
    stream.play(0, None, Duration::ZERO).expect("played");
    wait_until("it plays", || stream.snapshot().packets > 0);
    drop(engines);
    assert_eq!(block_on(stream.ended()), EndReason::Stopped);
    drop(stream);
    assert_eq!(store.shared().pool().chunks_in_use(), 0);
}

/// Whoever plays there is told, and nobody else is sent there.
#[test]
fn an_engine_that_panics_ends_its_streams_and_takes_no_more() {
    let test = TestSource::lasting(2000);
    let images = test.images();
    let panics = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&panics);
    let cores = onrush_sys::thread::allowed_cores();
    let rig = rig(EngineConfig {
        // Two engines, though they may have to share a processor.
        cores: vec![cores[0], cores[cores.len() - 1]],
        ..meddled(move |_| {
            assert!(!asked.swap(false, Ordering::Relaxed), "a planted panic");
            Ok(())
        })
    });
    let open: Vec<_> = (0..2).map(|_| rig.open(&test)).collect();
    for (stream, receiver) in &open {
        make_room(receiver);
        stream.play(0, None, Duration::ZERO).expect("played");
        wait_until("it plays", || stream.snapshot().packets > 0);
    }
    panics.store(true, Ordering::Relaxed);
    let either = async {
        tokio::select! {
            reason = open[0].0.ended() => (0, reason),
            reason = open[1].0.ended() => (1, reason),
        }
    };
    let (dead, reason) = block_on(either);
    assert_eq!(reason, EndReason::Stopped);
    let alive = 1 - dead;
    assert_eq!(receive(&open[alive].1, images.len()), images);
    for _ in 0..4 {
        let (stream, receiver) = rig.open(&test);
        stream.play(0, None, Duration::ZERO).expect("played");
        assert_eq!(
            receive(&receiver, 10),
            images[..10],
            "the other engine sends"
        );
    }
    assert_eq!(block_on(open[alive].0.ended()), EndReason::EndOfMedia);
    panics.store(true, Ordering::Relaxed);
    wait_until("it is gone too", || !panics.load(Ordering::Relaxed));
    let spec = || StreamSpec {
        source: Arc::clone(&test.source),
        to: sockets().0.into(),
    };
    wait_until("no engine is left", || {
        matches!(rig.engines.open(spec()), Err(EngineError::Stopped))
    });
}

#[test]
fn a_core_that_is_not_ours_is_refused_by_number() {
    let store = store(2, Faults::default());
    let config = EngineConfig {
        cores: vec![1023],
        ..config()
    };
    let refused = Engines::start(&config, store.shared(), |_, _| {});
    assert!(
        matches!(refused, Err(EngineStartError::Core { core: 1023, .. })),
        "{refused:?}"
    );
}

#[test]
fn streams_go_to_the_engine_that_has_promised_least() {
    let cores = onrush_sys::thread::allowed_cores();
    let rig = rig(EngineConfig {
        cores: vec![cores[0], cores[cores.len() - 1]],
        ..config()
    });
    let (slow, fast) = (
        TestSource::lasting(1000),
        TestSource::of(constant_rate(80_000, 0, 135)),
    );
    let streams = |engine: usize| rig.engines.engines[engine].remote.streams.taken();
    let open: Vec<_> = (0..10).map(|_| rig.open(&slow)).collect();
    assert_eq!((streams(0), streams(1)), (5, 5));
    // A stream of 300 Mbit/s is worth many of 4.
    let heavy = rig.open(&fast);
    let others: Vec<_> = (0..10).map(|_| rig.open(&slow)).collect();
    let fewer = streams(0).min(streams(1));
    assert_eq!((fewer, streams(0) + streams(1)), (6, 21));
    drop((open, heavy, others));
}

#[test]
fn commands_do_not_wait_for_a_long_burst() {
    let test = TestSource::lasting(100);
    let rig = rig(EngineConfig {
        burst: Duration::from_secs(30),
        ..config()
    });
    let (stream, _receiver) = rig.open(&test);
    let later = Duration::from_secs(600);
    for from in 0..3 {
        stream.play(from, None, later).expect("played");
        // The first wakes the engine, which slept without a deadline; then it has one.
        wait_until("it is taken", || stream.shared().is_taken());
    }
    assert_eq!(block_on(stream.pause()).expect("paused"), 2);
}

#[test]
fn so_many_commands_may_wait_for_an_engine_and_no_more() {
    let test = TestSource::lasting(100);
    let images = test.images();
    let gate = Arc::new(Mutex::new(()));
    let shut = Arc::clone(&gate);
    let rig = rig(meddled(move |_| {
        drop(shut.lock().unwrap());
        Ok(())
    }));
    let (stream, receiver) = rig.open(&test);
    block_on(stream.prepare(0)).expect("the first chunk");
    let closed = gate.lock().unwrap();
    let soon = Duration::from_secs(60);
    let queue = &rig.engines.engines[0].remote.commands;
    wait_until("the engine is at the gate and takes nothing", || {
        while stream.play(20, None, soon).is_ok() {}
        std::thread::sleep(Duration::from_millis(10));
        queue.is_full()
    });
    assert_eq!(queue.len(), COMMANDS_MAX);
    let busy = stream.play(0, None, Duration::ZERO);
    assert!(matches!(busy, Err(EngineError::Busy)), "{busy:?}");
    drop(closed);
    wait_until("commands are taken", || {
        stream.play(0, None, Duration::ZERO).is_ok()
    });
    assert_eq!(receive(&receiver, images.len()), images);
    drop(stream);
    wait_until("the chunk kept for a play that was refused is free", || {
        rig.store.shared().pool().chunks_in_use() == 0
    });
}

#[test]
fn a_batch_that_is_refused_is_tried_again_after_a_pause() {
    let test = TestSource::lasting(300);
    let images = test.images();
    let refused = Arc::new(AtomicUsize::new(0));
    let refusing = Arc::new(AtomicBool::new(true));
    let seen = (Arc::clone(&refused), Arc::clone(&refusing));
    let since = Instant::now();
    let rig = rig(meddled(move |_| {
        if !seen.1.load(Ordering::Relaxed) {
            return Ok(());
        }
        seen.0.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }));
    let (stream, receiver) = rig.open(&test);
    stream.play(0, None, Duration::ZERO).expect("played");
    wait_until("it was asked for long", || {
        since.elapsed() > Duration::from_millis(100) && refused.load(Ordering::Relaxed) > 1
    });
    let asked = refused.load(Ordering::Relaxed) as u128;
    let asked_max = since.elapsed().as_nanos() / u128::from(worker::REFUSED_PAUSE_NS) + 2;
    assert!((2..=asked_max).contains(&asked), "{asked} of {asked_max}");
    refusing.store(false, Ordering::Relaxed);
    assert_eq!(receive(&receiver, images.len()), images, "nothing is lost");
}

/// Descriptors of this process for the socket `named`, as /proc names it.
fn descriptors(named: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("procfs");
    all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|link| link == named)
        .count()
}

#[test]
fn streams_have_descriptors_only_where_the_path_needs_them() {
    let test = TestSource::lasting(1000);
    let images = test.images();
    let is_refusing = Arc::new(AtomicBool::new(false));
    let refusing = Arc::clone(&is_refusing);
    let meddle: Arc<Meddle> = Arc::new(|_| Ok(()));
    let open_path = move |name: PathName, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        let inner = path::open(name, pool, waker)?;
        let errno = if name.segments() { libc::EIO } else { 0 };
        let meddle = Arc::clone(&meddle);
        Ok(if refusing.load(Ordering::Relaxed) {
            Box::new(Meddled {
                inner,
                meddle,
                errno,
                lacks_descriptors: false,
            }) as Box<dyn Path>
        } else {
            inner
        })
    };
    let open_path: Arc<OpenPath> = Arc::new(open_path);
    for is_demoted in [false, true] {
        is_refusing.store(is_demoted, Ordering::Relaxed);
        let open_path = Arc::clone(&open_path);
        let rig = rig(EngineConfig {
            open_path,
            ..config()
        });
        let (socket, receiver) = sockets();
        make_room(&receiver);
        let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let named = std::fs::read_link(link).expect("it is open");
        let source = Arc::clone(&test.source);
        let stream = rig.engines.open(StreamSpec {
            source,
            to: socket.into(),
        });
        let stream = stream.expect("a stream");
        wait_until("the path keeps the socket", || descriptors(&named) == 0);
        assert_eq!(rig.engines.places(), 300);
        stream.play(0, None, Duration::ZERO).expect("played");
        // Loopback has taken those trains that were answered EIO.
        assert_eq!(receive(&receiver, images.len()), images, "{is_demoted}");
        assert_eq!(rig.engines.places(), if is_demoted { 0 } else { 300 });
        assert_eq!(descriptors(&named), usize::from(is_demoted));
        let address = receiver.local_addr().expect("bound");
        drop(stream);
        wait_until("it is gone", || rig.engines.streams() == 0);
        assert_eq!(descriptors(&named), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        sender.connect(address).expect("loopback");
    }
}

/// A client that comes while the path is given up gets a socket for the path of a moment ago.
#[test]
fn a_stream_opened_during_a_demotion_is_sent_singly_too() {
    let test = TestSource::lasting(500);
    let images = test.images();
    let gate = Arc::new(Mutex::new(()));
    let arrived = Arc::new(AtomicUsize::new(0));
    let (shut, seen) = (Arc::clone(&gate), Arc::clone(&arrived));
    let meddle: Arc<Meddle> = Arc::new(move |in_flight| {
        seen.fetch_add(in_flight, Ordering::Relaxed);
        if in_flight > 0 {
            drop(shut.lock().unwrap());
        }
        Ok(())
    });
    let open_path = move |name: PathName, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        let (inner, meddle) = (path::open(name, pool, waker)?, Arc::clone(&meddle));
        let errno = if name.segments() { libc::EIO } else { 0 };
        Ok(Box::new(Meddled {
            inner,
            meddle,
            errno,
            lacks_descriptors: false,
        }) as Box<dyn Path>)
    };
    let rig = rig(EngineConfig {
        open_path: Arc::new(open_path),
        ..config()
    });
    let (first, _receiver) = rig.open(&test);
    let closed = gate.lock().unwrap();
    first.play(0, None, Duration::ZERO).expect("played");
    wait_until("the first train is at the gate", || {
        arrived.load(Ordering::Relaxed) > 0
    });
    let (socket, receiver) = sockets();
    let kept = socket.try_clone().expect("a descriptor");
    let spec = StreamSpec {
        source: Arc::clone(&test.source),
        to: socket.into(),
    };
    let second = rig.engines.open(spec).expect("a stream");
    drop(closed);
    wait_until("it is demoted", || rig.engines.path() == PathName::Sendmmsg);
    second.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(receive(&receiver, images.len()), images);
    kept.send(&[0; 2000]).expect("loopback takes it");
    let bytes = receiver.recv(&mut [0; 4000]).expect("a packet");
    assert_eq!(bytes, 2000, "the socket cuts no trains any more");
}

/// The path that is given up has their sockets, and no more descriptors may be open.
#[test]
fn streams_whose_sockets_are_lost_end_and_no_others() {
    let test = TestSource::lasting(500);
    let images = test.images();
    let rig = rig(without_descriptors(libc::EIO));
    let (paused, _receiver) = rig.open(&test);
    let (playing, _receiver) = rig.open(&test);
    playing.play(0, None, Duration::ZERO).expect("played");
    let has_failed = |stream: &Stream| match stream.end_reason() {
        Some(EndReason::Send(why)) => why.contains("Too many open files"),
        _ => false,
    };
    for stream in [&playing, &paused] {
        wait_until("it has failed", || has_failed(stream));
    }
    // Who plays it all the same is told again.
    paused.play(0, None, Duration::ZERO).expect("it is asked");
    wait_until("it has failed again", || has_failed(&paused));
    let (later, receiver) = rig.open(&test);
    make_room(&receiver);
    later.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(receive(&receiver, images.len()), images);
    drop((paused, playing, later));
    wait_until("the streams are gone", || rig.engines.streams() == 0);
    wait_until("all chunks are free", || {
        rig.store.shared().pool().chunks_in_use() == 0
    });
}

#[test]
fn a_device_that_holds_a_clients_trains_stops_only_it() {
    let test = TestSource::lasting(700);
    let images = test.images();
    let (rig, withheld_fd) = withholding(4);
    let (stuck, _receiver, fd) = rig.open_at(&test);
    withheld_fd.store(fd, Ordering::Relaxed);
    stuck.play(0, None, Duration::ZERO).expect("played");
    wait_until("its share is full", || {
        rig.worker().flights_full.load(Ordering::Relaxed) > 0
    });
    assert_eq!(rig.worker().in_flight.load(Ordering::Relaxed), 4);
    let (other, receiver) = rig.open(&test);
    make_room(&receiver);
    other.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(receive(&receiver, images.len()), images);
    withheld_fd.store(-1, Ordering::Relaxed);
    assert_eq!(block_on(stuck.ended()), EndReason::EndOfMedia);
}

/// Its number and its socket are taken until then: a train names its socket by descriptor.
#[test]
fn a_stream_leaves_with_its_last_train() {
    let test = TestSource::lasting(700);
    let (rig, withheld_fd) = withholding(4);
    let (stream, _receiver, fd) = rig.open_at(&test);
    withheld_fd.store(fd, Ordering::Relaxed);
    stream.play(0, None, Duration::ZERO).expect("played");
    wait_until("trains are held", || {
        rig.worker().in_flight.load(Ordering::Relaxed) > 0
    });
    let socket = Arc::downgrade(&stream.shared());
    drop(stream);
    let (other, _receiver) = rig.open(&test);
    other.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(block_on(other.ended()), EndReason::EndOfMedia);
    assert_eq!(rig.engines.streams(), 2);
    assert!(socket.upgrade().is_some(), "its descriptor is not free");
    withheld_fd.store(-1, Ordering::Relaxed);
    wait_until("it is gone", || socket.upgrade().is_none());
    assert_eq!(rig.engines.streams(), 1);
}

fn trains_spoilt_in_flight(faults: Faults) -> usize {
    let test = TestSource::lasting(2500);
    let (rig, spoilt, _) = watchful(faults);
    let (stream, _receiver) = rig.open(&test);
    stream.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    drop(stream);
    drop(rig);
    spoilt.load(Ordering::Relaxed)
}

#[test]
fn no_chunk_is_used_again_before_the_kernel_has_let_go_of_it() {
    assert_eq!(trains_spoilt_in_flight(Faults::default()), 0);
}

#[cfg(feature = "experiments")]
#[test]
fn a_chunk_given_up_too_early_is_seen() {
    use crate::experiments::Fault;
    assert!(trains_spoilt_in_flight(Faults::planted(&[Fault::ReleaseEarly])) > 0);
}

#[test]
fn a_device_that_takes_no_trains_demotes_the_path_once() {
    let test = TestSource::lasting(1000);
    let images = test.images();
    let (rig, _, errno) = watchful(Faults::default());
    errno.store(libc::EIO, Ordering::Relaxed);
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, Duration::ZERO).expect("played");
    wait_until("it is demoted", || rig.engines.path() == PathName::Sendmmsg);
    // The trains that were answered EIO did leave here; what follows leaves singly, without a gap.
    assert_eq!(receive(&receiver, images.len()), images);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    drop(stream);
    wait_until("all chunks are free", || {
        rig.store.shared().pool().chunks_in_use() == 0
    });
}

/// As one of many is behind IPsec.
#[test]
fn a_client_that_takes_no_trains_costs_others_nothing() {
    let test = TestSource::lasting(1000);
    let images = test.images();
    let rig = rig(secured());
    let (near, receiver) = rig.open(&test);
    make_room(&receiver);
    let (socket, far_receiver) = sockets();
    make_room(&far_receiver);
    let kept = socket.try_clone().expect("a descriptor");
    let spec = StreamSpec {
        source: Arc::clone(&test.source),
        to: socket.into(),
    };
    let far = rig.engines.open(spec).expect("a stream");
    near.play(0, None, Duration::ZERO).expect("played");
    wait_until("trains are taken", || near.snapshot().packets > 30);
    far.play(0, None, Duration::ZERO).expect("played");
    // Its first trains, which were answered EIO, did leave here.
    assert_eq!(receive(&far_receiver, images.len()), images);
    assert_eq!(receive(&receiver, images.len()), images);
    for stream in [&near, &far] {
        assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    }
    assert_eq!(rig.engines.path(), PathName::UringRegisteredZc);
    assert_eq!(rig.worker().demotions.load(Ordering::Relaxed), 0);
    let refused = [&near, &far].map(|stream| stream.snapshot().packets_refused);
    assert_eq!(refused[0], 0);
    assert!((1..100).contains(&refused[1]), "{refused:?}");
    kept.send(&[0; 2000]).expect("loopback takes it");
    let bytes = far_receiver.recv(&mut [0; 4000]).expect("a packet");
    assert_eq!(bytes, 2000, "its socket cuts no trains any more");
}

#[test]
fn a_packet_too_large_for_the_route_ends_its_stream_at_once() {
    let test = TestSource::lasting(1000);
    let (rig, _, errno) = watchful(Faults::default());
    errno.store(libc::EMSGSIZE, Ordering::Relaxed);
    let (stream, _receiver) = rig.open(&test);
    stream.play(0, None, Duration::ZERO).expect("played");
    let reason = block_on(stream.ended());
    assert!(
        matches!(&reason, EndReason::Send(why) if why.contains("too long")),
        "{reason:?}"
    );
}

#[test]
fn a_kernel_that_refuses_for_long_ends_the_stream() {
    let test = TestSource::lasting(3000);
    let (rig, _, errno) = watchful(Faults::default());
    drop(rig);
    errno.store(libc::EPERM, Ordering::Relaxed);
    let (rig, _, errno) = watchful(Faults::default());
    errno.store(libc::EPERM, Ordering::Relaxed);
    let (stream, _receiver) = rig.open(&test);
    stream.play(0, None, Duration::ZERO).expect("played");
    std::thread::sleep(Duration::from_millis(300));
    wait_until("packets are refused", || {
        stream.snapshot().packets_refused > 0
    });
    assert_eq!(stream.snapshot().packets, 0);
    errno.store(0, Ordering::Relaxed);
    wait_until("it goes on as soon as it may", || {
        stream.snapshot().packets > 0
    });
}

/// What leaves on them may be live, and promised nothing.
#[test]
fn connections_without_films_are_shared_among_engines() {
    let cores = onrush_sys::thread::allowed_cores();
    let rig = rig(EngineConfig {
        // Two engines, though they may have to share a processor.
        cores: vec![cores[0], cores[cores.len() - 1]],
        ..config()
    });
    let remotes = || rig.engines.engines.iter().map(|engine| &engine.remote);
    for remote in remotes() {
        remote.shared.sends_streams.store(true, Ordering::Relaxed);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let open = || {
        let client = TcpStream::connect(address).expect("it listens");
        let (socket, _) = listener.accept().expect("it came");
        let connection = rig.engines.open_connection(socket.into(), &mut None);
        (connection.expect("a connection"), client)
    };
    let _opened: Vec<_> = (0..4).map(|_| open()).collect();
    let taken: Vec<_> = remotes().map(|it| it.connections.taken()).collect();
    assert_eq!(taken, [2, 2]);
}

/// A refusal is sealed by it.
#[test]
fn a_connection_that_no_engine_takes_keeps_its_key() {
    let rig = rig(config());
    let remote = &rig.engines.engines[0].remote;
    while remote.connections.take().is_some() {}
    remote.shared.sends_streams.store(true, Ordering::Relaxed);
    let (socket, _client) = UnixStream::pair().expect("a pair");
    let mut sealer = Some(almost_worn(2));
    let refused = rig.engines.open_connection(socket.into(), &mut sealer);
    assert!(
        matches!(refused, Err(EngineError::Full { .. })),
        "{refused:?}"
    );
    assert!(sealer.is_some());
}
