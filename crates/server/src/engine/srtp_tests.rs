//! What receivers see of images that are encrypted once for all, and what that takes of the pool.

use std::net::UdpSocket;

use onrush_wire::srtp::{RtpReceiver, Suite};

use super::numbering_tests::rig_of;
use super::reader::{NotReady, Reader};
use super::tests::{config, make_room, receive, sockets};
use super::*;
use crate::data;
use crate::experiments::Faults;
use crate::store::{FilmKey, ImageCipher};
use crate::testing::{CHUNK_BYTES, TestSource, block_on, store_of, wait_until};

/// The same film, encrypted with that key.
fn encrypted(test: &TestSource, key: &Arc<FilmKey>) -> Arc<Source> {
    encrypted_in(CHUNK_BYTES, test, key)
}

fn encrypted_in(chunk_bytes: usize, test: &TestSource, key: &Arc<FilmKey>) -> Arc<Source> {
    let backing = Arc::clone(&test.backing) as _;
    let of = (test.source.plan(), test.source.origin());
    let source = Source::encrypted(of, backing, chunk_bytes, ImageCipher::new(key));
    Arc::new(source.expect("it fits its chunks"))
}

/// Plays a part to its end, and takes what comes.
fn play(stream: &Stream, receiver: &UdpSocket, from: u64, to: u64) -> Vec<Vec<u8>> {
    block_on(stream.prepare(from)).expect("the chunk");
    let played = stream.play(from, Some(to), Duration::ZERO);
    played.expect("played");
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    receive(receiver, usize::try_from(to - from).expect("small"))
}

#[test]
fn shared_images_leave_as_they_are_until_a_jump() {
    let test = TestSource::lasting(1000);
    let images = test.images();
    for (path, jumps) in PathName::ALL
        .map(|path| [(path, false), (path, true)])
        .concat()
    {
        let rig = rig_of(&EngineConfig { path, ..config() }, 8 << 20, 1);
        let key = Arc::new(FilmKey::new(Suite::default()));
        let source = encrypted(&test, &key);
        let [one, two] = [0, 1].map(|_| {
            let (socket, receiver) = sockets();
            make_room(&receiver);
            let (source, to) = (Arc::clone(&source), socket.into());
            let stream = rig.engines.open(StreamSpec { source, to });
            (stream.expect("a stream"), receiver)
        });
        let first = play(&one.0, &one.1, 0, 200);
        assert!(
            first == play(&two.0, &two.1, 0, 200),
            "{path}: byte for byte"
        );
        let mut receiver = RtpReceiver::new(key.master());
        for (packet, image) in first.iter().zip(&images) {
            assert!(receiver.unprotect(&mut packet.clone()).expect("ours") == image);
        }
        let plain_bytes: usize = images[..200].iter().map(Vec::len).sum();
        assert_eq!(one.0.snapshot().bytes, plain_bytes as u64, "without tags");
        let worker = rig.worker();
        assert_eq!(
            worker.trains_own_headers.load(Ordering::Relaxed),
            0,
            "{path}"
        );
        assert!(one.0.may_share_from(200) && !one.0.may_share_from(199));
        // On, and then back.
        let packets = play(&one.0, &one.1, 200, 210);
        assert!(packets[0] != images[200] && packets[0][2..4] == images[200][2..4]);
        if jumps {
            jump(&one, &test, &key);
        }
        drop((one, two));
        // Copies lie in a chunk that stays taken, from the first on.
        wait_until("all chunks but that are free", || {
            rig.store.shared().pool().chunks_in_use() == usize::from(jumps)
        });
    }
}

/// Leaves the shared images, and plays from somewhere before.
fn jump((stream, receiver): &(Stream, UdpSocket), test: &TestSource, key: &FilmKey) {
    let images = test.images();
    let ssrc = key.take_ssrc().expect("one of many");
    let srtp = StreamSrtp::new(key.master(), ssrc);
    let left = stream.leave_shared_images(&test.source, srtp, 17);
    left.expect("it is paused");
    assert!(!stream.may_share_from(210) && stream.own_ssrc() == Some(ssrc));
    let foretold = stream.position_from(17, test.source.plan().due_ns(17));
    let mut decrypting = RtpReceiver::new(key.master());
    for (at, mut packet) in (17..).zip(play(stream, receiver, 17, 80)) {
        let packet = decrypting.unprotect(&mut packet).expect("ours");
        let header = onrush_wire::rtp::Header::read(packet).expect("RTP");
        assert_eq!(header.ssrc, ssrc);
        assert!(packet[12..] == images[at][12..], "{at}");
        if at == 17 {
            assert_eq!(header.sequence, foretold.sequence);
            assert!(header.sequence < 1 << 15, "it has not wrapped yet");
        }
    }
}

/// What a reader of all of a source is given at once, in packets: a train each, as none is longer.
/// Chunks are as long as the server's, so that their ends fall into bursts.
fn trains_of(source: &Arc<Source>) -> Vec<u32> {
    let store = store_of(data::CHUNK_BYTES, 8, Faults::default());
    let (store, mut reader) = (store.shared(), Reader::default());
    let demand = Demand::new(0);
    let numbering = Numbering::default();
    let shared = StreamShared::new(Arc::clone(source), 1400, numbering, demand, Arc::default());
    reader.start(&shared, store, 0, u64::MAX, None);
    let mut trains = Vec::new();
    loop {
        wait_until("the chunk is built", || {
            !matches!(reader.burst(&shared, store), Err(NotReady::Yet))
        });
        let Some(burst) = reader.burst(&shared, store).expect("it is there") else {
            break;
        };
        trains.push(burst.count);
        reader.advance(burst.end());
    }
    reader.put_down(store);
    trains
}

#[test]
fn shared_images_leave_in_trains_as_long_as_plain_ones() {
    for test in [TestSource::lasting(3000), TestSource::film(150)] {
        let (plan, origin) = (test.source.plan(), test.source.origin());
        let backing = Arc::clone(&test.backing) as _;
        let plain = Source::new(Arc::clone(&plan), origin, backing, data::CHUNK_BYTES);
        let plain = Arc::new(plain.expect("it has few chunks"));
        let key = Arc::new(FilmKey::new(Suite::default()));
        let encrypted = encrypted_in(data::CHUNK_BYTES, &test, &key);
        assert!(plain.chunks() > 3 && encrypted.chunks() > 3);
        let mut bursts = Vec::new();
        plan.bursts(0..plan.rtp_packets(), &mut bursts);
        let bursts: Vec<_> = bursts.iter().map(|burst| burst.packets).collect();
        assert_eq!(trains_of(&plain), bursts);
        assert_eq!(trains_of(&encrypted), bursts);
    }
}
