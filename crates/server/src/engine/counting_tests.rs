//! What the counters say is what has happened: also where only a part of what was due was sent.

use std::sync::atomic::AtomicU64;

use super::test_paths::{Refuses, refusing};
use super::tests::{make_room, receive, rig};
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
