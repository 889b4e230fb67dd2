//! Delivery faster and slower than the media's own clock, to the tick, and what it asks for.

use std::net::UdpSocket;

use onrush_wire::pace::Speed;

use super::admission::Admission;
use super::tests::{Rig, config, make_room, receive};
use super::time_tests::{TICK, Time};
use super::worker::signed;
use super::*;
use crate::testing::{TestSource, block_on};

/// A burst is late by that at the most: time may pass before the engine takes a play up.
const TICK_NS: i64 = 5_000_000;

/// Media time that is due by a stream's clock.
fn media_ns(stream: &Stream, time: &Time) -> i64 {
    let line = stream.line().expect("it was played");
    line.media_ns(signed(time.now_ns()))
}

/// Lets a stream play on at a speed, from the packet that is next, as a session does.
fn turn(stream: &Stream, speed: Speed) {
    let next = block_on(stream.pause()).expect("paused");
    block_on(stream.prepare(next)).expect("its chunk");
    stream.make_room_for(next, speed).expect("room");
    let moment = stream.moment_turned(speed).expect("running");
    stream.play_at(next, None, moment).expect("played");
}

fn opened(rig: &Rig, test: &TestSource) -> (Stream, UdpSocket) {
    let (stream, receiver) = rig.open(test);
    make_room(&receiver);
    (stream, receiver)
}

#[test]
fn a_film_takes_as_long_as_its_speed_says() {
    let test = TestSource::lasting(2000);
    let images = test.images();
    for (speed, ticks) in [(0.5, 800), (0.8, 500), (1.0, 400), (2.0, 200), (4.0, 100)] {
        let speed = Speed::nearest(speed);
        let time = Time::new();
        let rig = time.rig(&test, config());
        let (stream, receiver) = opened(&rig, &test);
        let moment = stream.moment(0, Duration::ZERO, speed).expect("running");
        stream.play_at(0, None, moment).expect("played");
        // Half of it in half of the time, but for a burst.
        time.advance(TICK * (ticks / 2));
        let half = stream.snapshot().packets;
        let off = half.abs_diff(images.len() as u64 / 2);
        assert!(off <= 10, "{half} at {speed}");
        let due_ns = media_ns(&stream, &time);
        assert!(
            due_ns.abs_diff(1_000_000_000) < 30_000_000,
            "{due_ns} at {speed}"
        );
        assert!(stream.end_reason().is_none());
        time.advance(TICK * (ticks / 2 + 8));
        assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
        assert_eq!(receive(&receiver, images.len()), images, "{speed}");
        assert!(
            stream.snapshot().lateness_max_ns <= TICK_NS,
            "{:?}",
            stream.snapshot()
        );
    }
}

#[test]
fn a_change_of_speed_makes_no_step_and_sends_nothing_twice() {
    let test = TestSource::lasting(4000);
    let images = test.images();
    let time = Time::new();
    let rig = time.rig(&test, config());
    let (stream, receiver) = opened(&rig, &test);
    stream.play(0, None, Duration::ZERO).expect("played");
    let mut packets = Vec::new();
    for speed in [2.0, 0.5, 4.0, 0.75, 1.0] {
        time.advance(TICK * 41);
        let (before_ns, now_ns) = (media_ns(&stream, &time), time.now_ns());
        turn(&stream, Speed::nearest(speed));
        let line = stream.line().expect("it plays");
        let after_ns = line.media_ns(signed(now_ns));
        assert!(after_ns.abs_diff(before_ns) <= 4, "{before_ns} {after_ns}");
        packets.push(stream.snapshot().packets);
    }
    time.advance(Duration::from_secs(4));
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    assert_eq!(receive(&receiver, images.len()), images);
    receiver.set_nonblocking(true).expect("set");
    assert!(receiver.recv(&mut [0; 10]).is_err(), "nothing more");
    // 205 ms at 1, 2, 0.5, 4 and 0.75 are as many packets of 380 a second.
    let expected = [78, 156, 39, 312, 58];
    let before = [0].iter().chain(&packets);
    for ((after, before), expected) in packets.iter().zip(before).zip(expected) {
        assert!((after - before).abs_diff(expected) <= 17, "{packets:?}");
    }
    assert_eq!(rig.worker().lags.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_faster_asks_for_more_and_gives_it_back() {
    let test = TestSource::lasting(1000);
    let time = Time::new();
    let rig = time.rig(&test, config());
    let (stream, _receiver) = opened(&rig, &test);
    let admission = &rig.worker().admission;
    let normal = admission.work();
    for (speed, expected) in [
        (4.0, normal * 4),
        (1.5, normal * 3 / 2),
        (0.5, normal),
        (2.0, normal * 2),
        (1.0, normal),
        (3.0, normal * 3),
    ] {
        let speed = Speed::nearest(speed);
        stream.make_room_for(0, speed).expect("room");
        assert_eq!(admission.work(), expected, "{speed}");
    }
    drop(stream);
    assert_eq!(admission.work(), 0);
}

#[test]
fn a_speed_is_refused_where_others_would_be_late() {
    let test = TestSource::lasting(1000);
    let time = Time::new();
    // What each asks for at first, of 1000: so many have room.
    let load_max_permille = 1;
    let rig = time.rig(
        &test,
        EngineConfig {
            load_max_permille,
            ..config()
        },
    );
    let admission: &Admission = &rig.worker().admission;
    let mut streams = Vec::new();
    while let Ok((stream, _)) = rig.try_open(&test) {
        streams.push(stream);
    }
    assert!(streams.len() > 1, "{}", streams.len());
    let promised = admission.work();
    let first = &streams[0];
    for speed in [Speed::FASTEST, Speed::nearest(2.0)] {
        let refused = first.make_room_for(0, speed);
        assert!(
            matches!(refused, Err(EngineError::Overload { .. })),
            "{refused:?}"
        );
        assert_eq!(admission.work(), promised, "it has what it had");
    }
    first.make_room_for(0, Speed::SLOWEST).expect("always");
    // Those who leave make room.
    streams.truncate(streams.len() / 4);
    streams[0].make_room_for(0, Speed::FASTEST).expect("room");
}
