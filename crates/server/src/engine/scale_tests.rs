//! More than one engine can do: streams that move, and streams that are left out.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use onrush_wire::media::synth::constant_rate;

use super::tests::{Rig, config, make_room, meddled, receive, rig, sockets};
use super::*;
use crate::testing::{TestSource, block_on, wait_until};

fn two_engines() -> EngineConfig {
    let cores = onrush_sys::thread::allowed_cores();
    EngineConfig {
        cores: vec![cores[0], cores[cores.len() - 1]],
        ..config()
    }
}

fn of_engine(rig: &Rig, engine: usize, counter: fn(&WorkerShared) -> &AtomicU64) -> u64 {
    let shared = &rig.engines.engines[engine].remote.shared;
    counter(shared).load(Ordering::Relaxed)
}

#[test]
fn a_stream_that_moves_to_and_fro_loses_repeats_and_reorders_nothing() {
    const STREAMS: usize = 6;
    const MOVES: u64 = 24;
    let test = TestSource::lasting(2000);
    let images = test.images();
    for path in [PathName::UringRegisteredZc, PathName::Sendmmsg] {
        let rig = rig(EngineConfig {
            path,
            ..two_engines()
        });
        let open: Vec<_> = (0..STREAMS).map(|_| rig.open(&test)).collect();
        for (stream, receiver) in &open {
            // Nobody reads before all have moved.
            make_room(receiver);
            stream.play(0, None, Duration::ZERO).expect("played");
        }
        let mut moves = 0;
        for turn in 0..MOVES {
            for (i, (stream, _)) in open.iter().enumerate() {
                let to = (usize::try_from(turn).unwrap() + i) % 2;
                moves += u64::from(stream.work_on(&rig.engines, to).is_none());
                block_on(stream.move_to(&rig.engines, to)).expect("moved");
                assert!(stream.work_on(&rig.engines, to).is_some());
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        for (stream, receiver) in &open {
            assert_eq!(receive(receiver, images.len()), images, "{path}");
            assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
            let after = stream.snapshot();
            assert_eq!(
                (after.packets, after.packets_refused),
                (images.len() as u64, 0)
            );
        }
        let moved = [0, 1].map(|engine| of_engine(&rig, engine, |s| &s.moved));
        assert_eq!(moved[0] + moved[1], moves);
        assert!(moves >= MOVES, "{moves}");
        drop(open);
        wait_until("the streams are gone", || rig.engines.streams() == 0);
        wait_until("all chunks are free", || {
            rig.store.shared().pool().chunks_in_use() == 0
        });
        let promised = rig.engines.counters().map(|shared| shared.admission.work());
        assert_eq!(promised.collect::<Vec<_>>(), [0, 0], "{path}");
    }
}

#[test]
fn a_paused_stream_moves_and_one_that_finds_no_room_stays() {
    let test = TestSource::lasting(300);
    let images = test.images();
    let rig = rig(two_engines());
    let (stream, receiver) = rig.open(&test);
    let here = (0..2).find(|&engine| stream.work_on(&rig.engines, engine).is_some());
    let (here, there) = (here.unwrap(), 1 - here.unwrap());
    block_on(stream.move_to(&rig.engines, there)).expect("moved");
    stream.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(receive(&receiver, images.len()), images);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    // As many as an engine takes.
    let streams_max = config().streams_max;
    let taken = (0..streams_max).map(|_| rig.engines.engines[here].remote.take_number().unwrap());
    let taken: Vec<_> = taken.collect();
    let stays = block_on(stream.move_to(&rig.engines, here));
    assert!(matches!(stays, Err(EngineError::Full { .. })), "{stays:?}");
    stream.play(0, None, Duration::ZERO).expect("it plays on");
    assert_eq!(receive(&receiver, images.len()), images);
    for number in taken {
        rig.engines.engines[here].remote.give_back(number);
    }
    // An engine that has stopped takes nobody.
    rig.engines.engines[here]
        .remote
        .send(Command::Stop)
        .unwrap();
    wait_until("it has stopped", || {
        rig.engines.engines[here].remote.has_stopped()
    });
    let stays = block_on(stream.move_to(&rig.engines, here));
    assert!(matches!(stays, Err(EngineError::Stopped)), "{stays:?}");
    stream.play(0, None, Duration::ZERO).expect("it plays on");
    assert_eq!(receive(&receiver, images.len()), images);
}

/// A receiver that is read, and the sequence numbers of what came.
struct Watched {
    receiver: UdpSocket,
    seen: Vec<u16>,
}

impl Watched {
    fn read(&mut self) {
        self.receiver.set_nonblocking(true).expect("set");
        let mut packet = [0; 2048];
        while let Ok(bytes) = self.receiver.recv(&mut packet) {
            assert!(bytes > 12);
            self.seen.push(u16::from_be_bytes([packet[2], packet[3]]));
        }
    }

    /// Whether bursts are missing; nothing else may be.
    fn has_gaps(&self, stream: &Stream) -> bool {
        let (source, end) = (stream.source(), stream.snapshot());
        assert_eq!(self.seen.len() as u64, end.packets, "what was sent arrived");
        let first = source.origin().sequence_of(0);
        let numbers = self
            .seen
            .iter()
            .map(|seen| u64::from(seen.wrapping_sub(first)));
        let numbers: Vec<_> = numbers.collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "in order, and each once"
        );
        let mut bursts = Vec::new();
        source.plan().bursts(0..end.next_packet + 1000, &mut bursts);
        let firsts: BTreeSet<_> = bursts.iter().map(|burst| burst.first).collect();
        let mut gaps = numbers
            .windows(2)
            .filter(|pair| pair[1] != pair[0] + 1)
            .peekable();
        let has_gaps = gaps.peek().is_some();
        for gap in gaps {
            let is_whole = firsts.contains(&(gap[0] + 1)) && firsts.contains(&gap[1]);
            assert!(is_whole, "whole bursts: {gap:?}");
        }
        has_gaps
    }
}

/// An engine that needs so many ns for each train leaves streams out until the others are on time, the newest first,
/// and takes them back when it is faster.
#[test]
fn when_all_are_late_the_newest_are_left_out_and_come_back() {
    const STREAMS: usize = 300;
    const WATCHED_EVERY: usize = 10;
    const TRAIN_NS: u64 = 100_000;
    // 120 s of 1 Mbit/s.
    let test = TestSource::of(constant_rate(120 * 665, 0, 40_608));
    let train_ns = Arc::new(AtomicU64::new(TRAIN_NS));
    let slow = Arc::clone(&train_ns);
    let rig = rig(EngineConfig {
        path: PathName::SendmmsgGso,
        ..meddled(move |queued| {
            let train_ns = slow.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_nanos(queued as u64 * train_ns));
            Ok(())
        })
    });
    let counter =
        |counter: fn(&WorkerShared) -> &AtomicU64| counter(rig.worker()).load(Ordering::Relaxed);
    let shed = || counter(|shared| &shared.shed);
    let (_, crowd) = sockets();
    let mut watched = Vec::new();
    let streams = (0..STREAMS).map(|i| {
        let (socket, receiver) = sockets();
        if i % WATCHED_EVERY == WATCHED_EVERY - 1 {
            let seen = Vec::new();
            watched.push(Watched { receiver, seen });
        } else {
            let to = crowd.local_addr().expect("bound");
            socket.connect(to).expect("loopback");
        }
        let source = Arc::clone(&test.source);
        rig.engines
            .open(StreamSpec { source, socket })
            .expect("a stream")
    });
    let streams: Vec<_> = streams.collect();
    for stream in &streams {
        stream.play(0, None, Duration::ZERO).expect("played");
    }
    let (oldest, newest) = (&streams[0], &streams[STREAMS - 1]);
    let mut wait = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let begin = std::time::Instant::now();
        while !is_so() {
            assert!(
                begin.elapsed() < Duration::from_secs(80),
                "waited in vain until {what}"
            );
            watched.iter_mut().for_each(Watched::read);
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait("some are left out", &mut || shed() > 0);
    assert!(
        rig.worker().admission.is_late(),
        "nobody is let in meanwhile"
    );
    // As an engine reckons it: of five thousand bursts, a second's, not a tenth.
    let mut from = (0, 0);
    wait("the others are on time", &mut || {
        let (bursts, late) = (
            counter(|shared| &shared.bursts),
            counter(|shared| &shared.bursts_late),
        );
        let is_over = bursts > from.1 + 5000;
        let are_on_time = (late - from.0) * 10 < bursts - from.1;
        if is_over {
            from = (late, bursts);
        }
        is_over && are_on_time
    });
    let left_out = shed();
    assert!(
        left_out < STREAMS as u64 / 10 * 9,
        "{left_out} are left out"
    );
    let packets = [oldest, newest].map(|stream| stream.snapshot().packets);
    wait("the oldest plays on", &mut || {
        oldest.snapshot().packets > packets[0] + 20
    });
    assert_eq!(newest.snapshot().packets, packets[1], "the newest does not");
    train_ns.store(0, Ordering::Relaxed);
    wait("there are fewer", &mut || shed() < left_out / 2);
    for stream in &streams {
        block_on(stream.pause()).expect("paused");
    }
    wait("nothing is on its way", &mut || {
        counter(|shared| &shared.in_flight) == 0
    });
    watched.iter_mut().for_each(Watched::read);
    let theirs = streams
        .iter()
        .skip(WATCHED_EVERY - 1)
        .step_by(WATCHED_EVERY);
    let gaps: Vec<_> = watched
        .iter()
        .zip(theirs)
        .map(|(watched, stream)| watched.has_gaps(stream))
        .collect();
    assert!(!gaps[0], "the oldest missed nothing");
    assert!(gaps.contains(&true), "someone who was left out plays again");
    assert_eq!(
        (shed(), rig.worker().shed.load(Ordering::Relaxed)),
        (0, 0),
        "nobody plays"
    );
    assert!(counter(|shared| &shared.packets_skipped) > 0);
}

#[test]
fn whoever_may_take_all_leaves_nobody_out() {
    let test = TestSource::of(constant_rate(60 * 665, 0, 40_608));
    let rig = rig(EngineConfig {
        path: PathName::SendmmsgGso,
        load_max_permille: admission::LOAD_UNLIMITED,
        ..meddled(|queued| {
            std::thread::sleep(Duration::from_micros(queued as u64 * 100));
            Ok(())
        })
    });
    let open: Vec<_> = (0..300).map(|_| rig.open(&test)).collect();
    for (stream, _) in &open {
        stream.play(0, None, Duration::ZERO).expect("played");
    }
    wait_until("many are late", || {
        rig.worker().bursts_late.load(Ordering::Relaxed) > 10_000
    });
    assert_eq!(rig.worker().sheds.load(Ordering::Relaxed), 0);
}
