//! What the counters say is what has happened: also where only a part of what was due was sent.

use std::net::UdpSocket;
use std::sync::atomic::AtomicU64;

use onrush_wire::media::ts::synth::constant_rate;
use onrush_wire::rtp;

use super::numbering_tests::rig_of;
use super::test_paths::{Refuses, refusing};
use super::tests::{Rig, config, make_room, receive, rig};
use super::*;
use crate::testing::{TestSource, block_on};

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[test]
fn a_train_taken_in_part_counts_as_sent_in_part() {
    // Packets of a burst: seven or eight.
    const TAKEN: u64 = 3;
    let test = TestSource::lasting(700);
    let images = test.images();
    for errno in [libc::ENOBUFS, 0] {
        let rig = rig(refusing(Refuses::Behind(3), errno));
        let (stream, receiver) = rig.open(&test);
        make_room(&receiver);
        stream.play(0, None, Duration::ZERO).expect("played");
        assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
        let (all, after) = (images.len() as u64, stream.snapshot());
        assert_eq!(after.packets + after.packets_refused, all, "{errno}");
        assert!(after.packets < all, "{errno}");
        assert!(after.packets >= all / 9 * TAKEN, "{errno}: {after:?}");
        // What arrives is what a sender report says, and no packet more.
        let sent = usize::try_from(after.packets).expect("few");
        let arrived = receive(&receiver, sent);
        let bytes: u64 = arrived.iter().map(|packet| packet.len() as u64).sum();
        assert_eq!(after.bytes, bytes, "{errno}");
        receiver.set_nonblocking(true).expect("set");
        assert!(receiver.recv(&mut [0; 10]).is_err(), "{errno}: {after:?}");
        let worker = rig.worker();
        let counted = [&worker.packets, &worker.bytes, &worker.packets_refused];
        assert_eq!(
            counted.map(count),
            [after.packets, after.bytes, after.packets_refused]
        );
    }
}

/// Of a film whose every other picture is filled up.
#[test]
fn padding_is_counted_apart() {
    let test = TestSource::film(40);
    let images = test.images();
    let padding_bytes = |images: &[Vec<u8>]| -> u64 {
        let each = images
            .iter()
            .map(|image| u64::from(rtp::padding_bytes(image)));
        each.sum()
    };
    assert!(padding_bytes(&images) > 0, "it has some");
    let rig = rig_of(&config(), 8 << 20, 1);
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, Duration::ZERO).expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let after = stream.snapshot();
    let all_bytes = |images: &[Vec<u8>]| images.iter().map(|it| it.len() as u64).sum::<u64>();
    let bytes = all_bytes(&images);
    assert_eq!(after.bytes, bytes - padding_bytes(&images));
    let counted = rig.worker().bytes.load(Ordering::Relaxed);
    assert_eq!(counted, bytes, "with padding");
    // After a jump, with headers of its own.
    let pictures = 20 * 4;
    stream.play(pictures, None, Duration::ZERO).expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let twice = stream.snapshot().bytes - after.bytes;
    let again = &images[usize::try_from(pictures).expect("few")..];
    assert_eq!(twice, all_bytes(again) - padding_bytes(again));
}

/// An engine with so few slots for headers of a stream's own that a burst of [`fast`] leaves in
/// parts.
fn rig_of_eight_slots(config: &EngineConfig) -> Rig {
    rig_of(config, 1 << 20, 64)
}

/// 300 Mbit/s: a chunk is less than a burst.
fn fast() -> TestSource {
    TestSource::of(constant_rate(40_000, 0, 135))
}

/// A stream that has jumped, and so has headers of its own.
fn jumped(rig: &Rig, test: &TestSource) -> (Stream, UdpSocket) {
    let (stream, receiver) = rig.open(test);
    make_room(&receiver);
    stream.play(0, Some(10), Duration::ZERO).expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    (stream, receiver)
}

/// The bursts of these packets, as chunks cut them.
fn bursts_of(test: &TestSource, from: u64, stop: u64) -> usize {
    let (source, mut bursts) = (&test.source, Vec::new());
    for chunk in source.chunk_of(from)..=source.chunk_of(stop - 1) {
        let packets = source.packets_of(chunk);
        let packets = packets.start.max(from)..packets.end.min(stop);
        source.plan().bursts(packets, &mut bursts);
    }
    bursts.len()
}

#[test]
fn a_burst_that_leaves_in_parts_counts_once() {
    let test = fast();
    let rig = rig_of_eight_slots(&config());
    let (stream, _receiver) = jumped(&rig, &test);
    let before = count(&rig.worker().bursts);
    let trains = count(&rig.worker().trains);
    stream
        .play(2000, Some(3000), Duration::ZERO)
        .expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let bursts = bursts_of(&test, 2000, 3000) as u64;
    assert_eq!(count(&rig.worker().bursts) - before, bursts);
    let parts = count(&rig.worker().trains) - trains;
    assert!(parts > bursts * 6, "{parts} trains of {bursts} bursts");
}

#[test]
fn a_burst_whose_stream_ends_as_room_is_made_does_not_count() {
    let test = fast();
    let config = refusing(Refuses::MakingRoom, libc::EMSGSIZE);
    let rig = rig_of_eight_slots(&config);
    let (stream, _receiver) = jumped(&rig, &test);
    let before = count(&rig.worker().bursts);
    // The first part of a chunk takes all slots there are.
    let from = test.source.first_of(40);
    stream.play(from, None, Duration::ZERO).expect("played");
    let reason = block_on(stream.ended());
    assert!(matches!(reason, EndReason::Send(_)), "{reason:?}");
    drop(stream);
    let worker = rig.worker();
    assert_eq!(count(&worker.bursts), before, "no burst was queued whole");
    assert!(count(&worker.packets_refused) > 0);
}
