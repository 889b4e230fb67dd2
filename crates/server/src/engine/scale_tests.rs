//! More than one engine: streams that move.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicU64;

use super::test_paths::without_descriptors;
use super::tests::{Rig, config, make_room, receive, rig};
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
fn a_stream_that_moves_to_and_fro_arrives_in_order() {
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

/// A socket of another kind takes no option of a path that cuts trains; one that cuts none does
/// not ask it to.
#[test]
fn a_move_that_fails_gives_back_what_was_promised() {
    let test = TestSource::lasting(300);
    let path = PathName::Sendmmsg;
    let rig = rig(EngineConfig {
        path,
        ..two_engines()
    });
    let (socket, _other) = UnixDatagram::pair().expect("a pair");
    let spec = StreamSpec {
        source: Arc::clone(&test.source),
        to: OwnedFd::from(socket).into(),
    };
    let stream = rig.engines.open(spec).expect("a stream");
    let here = (0..2).find(|&engine| stream.work_on(&rig.engines, engine).is_some());
    let (here, there) = (here.unwrap(), 1 - here.unwrap());
    let of = |engine: usize| &rig.engines.engines[engine].remote;
    of(there).shared.set_path(PathName::SendmmsgGso);
    let stays = block_on(stream.move_to(&rig.engines, there));
    assert!(matches!(stays, Err(EngineError::Socket(_))), "{stays:?}");
    for engine in [here, there] {
        assert_eq!(of(engine).shared.admission.work(), 0, "{engine} {here}");
    }
    wait_until("its numbers are free", || rig.engines.streams() == 0);
    drop(stream);
    assert_eq!(rig.engines.streams(), 0);
}

/// Its engine's path has its socket, and no more descriptors may be open.
#[test]
fn a_stream_without_a_descriptor_stays_and_plays_on() {
    let test = TestSource::lasting(1000);
    let images = test.images();
    let rig = rig(EngineConfig {
        cores: two_engines().cores,
        ..without_descriptors(0)
    });
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    let here = (0..2).find(|&engine| stream.work_on(&rig.engines, engine).is_some());
    let (here, there) = (here.unwrap(), 1 - here.unwrap());
    stream.play(0, None, Duration::ZERO).expect("played");
    for _ in 0..3 {
        let stays = block_on(stream.move_to(&rig.engines, there));
        assert!(matches!(stays, Err(EngineError::Socket(_))), "{stays:?}");
    }
    assert!(stream.work_on(&rig.engines, here).is_some());
    assert_eq!(receive(&receiver, images.len()), images);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let promised = [here, there].map(|engine| {
        let shared = &rig.engines.engines[engine].remote.shared;
        shared.admission.work() > 0
    });
    assert_eq!(promised, [true, false]);
    assert_eq!(of_engine(&rig, here, |shared| &shared.moved), 0);
    drop(stream);
    wait_until("it is gone", || rig.engines.streams() == 0);
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
        rig.engines.engines[here].remote.streams.put_back(number);
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
