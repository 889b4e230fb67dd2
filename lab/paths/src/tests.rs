//! The contract, run unchanged on every path: real sockets on loopback, every byte compared.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::*;
use kernel::plant;
use onrush_sys::path::{BATCH_TRAINS_MAX, TRAIN_PACKETS_MAX};

const HEADER_BYTES: usize = 12;
const PAYLOAD_BYTES: u32 = 1316;
/// What the receiver's buffer holds in any case, as the kernel counts.
const WINDOW_PACKETS: usize = 128;
const IMAGE_BYTES_MAX: usize = 1 << 30;

/// A file that repeats at no distance of a power of two, cut regularly.
fn source(bytes: usize, payload_bytes: u32, has_headers: bool) -> Arc<Source> {
    let mut content = vec![0; bytes];
    let mut state = 1u32;
    for word in content.chunks_mut(4) {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&content).expect("room for it");
    let plan = Plan::regular(bytes as u64, payload_bytes).expect("a size for packets");
    let plan = headed(plan, has_headers);
    Arc::new(Source { file, plan })
}

/// With a header of its own in front of each packet, or without any.
fn headed(plan: Plan, has_headers: bool) -> Plan {
    if !has_headers {
        return plan;
    }
    let header = |n: usize| (!(n as u128)).to_be_bytes()[16 - HEADER_BYTES..].to_vec();
    let headers = (0..plan.packets()).flat_map(header).collect();
    plan.with_headers(HEADER_BYTES, headers).expect("as many")
}

impl Source {
    fn content(&self) -> Vec<u8> {
        let mut content = Vec::new();
        let bytes = self.file.metadata().expect("a file").len();
        content.resize(usize::try_from(bytes).expect("small"), 0);
        self.file.read_exact_at(&mut content, 0).expect("written");
        content
    }

    fn image(&self, content: &[u8], number: usize) -> Vec<u8> {
        let packet = self.plan.packet(number);
        let mut image = packet.header.to_vec();
        for piece in packet.pieces {
            let at = usize::try_from(piece.offset).expect("small");
            image.extend(&content[at..][..piece.bytes as usize]);
        }
        image
    }
}

fn udp_names() -> impl Iterator<Item = Name> {
    Name::ALL.into_iter().filter(|name| name.takes_udp())
}

fn tcp_names() -> impl Iterator<Item = Name> {
    Name::ALL.into_iter().filter(|name| name.takes_tcp())
}

/// Plans with headers for those that take them.
fn has_headers(name: Name) -> bool {
    name.takes_headers(true)
}

fn open(name: Name, source: &Arc<Source>) -> Mover {
    Mover::open(name, source, IMAGE_BYTES_MAX).expect("every path is available to these tests")
}

fn udp_pair() -> (UdpSocket, UdpSocket) {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let patience = Some(Duration::from_secs(60));
    receiver.set_read_timeout(patience).expect("a time-out");
    let bytes = 64 << 20;
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // Without privileges as much as anybody gets.
        Calls::default()
            .set(receiver.as_raw_fd(), libc::SOL_SOCKET, option, bytes)
            .ok();
    }
    let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let to = receiver.local_addr().expect("bound");
    sender.connect(to).expect("loopback");
    (sender, receiver)
}

/// Sends these packets a window at a time, and compares what arrives.
fn send_and_compare(mover: &mut Mover, source: &Source, packets: Range<usize>) {
    let name = mover.name();
    let touch = mover.touched.touch();
    let toucher = Toucher::new(touch);
    let (sender, receiver) = udp_pair();
    let content = source.content();
    let mut packet = vec![0; 65_536];
    for first in packets.clone().step_by(WINDOW_PACKETS) {
        let window = first..packets.end.min(first + WINDOW_PACKETS);
        mover.send(&sender, window.clone()).expect("sent");
        for number in window {
            let length = receiver.recv(&mut packet).unwrap_or_else(|error| {
                panic!("{name}: packet {number} did not arrive: {error}");
            });
            let mut expected = source.image(&content, number);
            let payload = &mut expected[source.plan.header_bytes()..];
            let checksum = toucher.touch(number, payload);
            assert!(
                packet[..length] == expected,
                "{name}, {touch}: packet {number}, {length} bytes of {}",
                expected.len()
            );
            let told = mover.checksums().get(number - first).copied();
            assert_eq!(told, checksum, "{name}, {touch}: packet {number}");
        }
    }
    receiver.set_nonblocking(true).expect("an option");
    let more = receiver.recv(&mut packet);
    assert!(more.is_err(), "{name}: {more:?} more bytes arrived");
}

#[test]
fn every_path_sends_64_mb_whole_and_in_order_over_udp() {
    let bytes = 64 << 20;
    let sources = [false, true].map(|has| source(bytes, PAYLOAD_BYTES, has));
    for name in udp_names() {
        let source = &sources[usize::from(has_headers(name))];
        let mut mover = open(name, source);
        send_and_compare(&mut mover, source, 0..source.plan.packets());
        let counters = mover.counters();
        assert_eq!(counters.packets, source.plan.packets() as u64, "{name}");
        // Loopback delivers to a socket, where the kernel copies what it was not to copy; it must
        // say so.
        let is_reported = name.facts().payload == Payload::Reported;
        let accounted = counters.sends_copied + counters.sends_single;
        if is_reported {
            assert_eq!(accounted, counters.sends, "{name}: {counters:?}");
            assert_eq!(counters.sends_zero_copy, 0, "{name}: {counters:?}");
        }
    }
}

/// A receiver of a stream, which takes a little and then waits, at times.
fn drain(listener: TcpListener, bytes: usize) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut all = vec![0; bytes];
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + (512 << 10));
            stream.read_exact(&mut all[at..end]).expect("all of it");
            at = end;
            thread::yield_now();
        }
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0, "nothing more");
        all
    })
}

fn tcp_pair(bytes: usize, blocks: bool) -> (TcpStream, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = listener.local_addr().expect("bound");
    let receiving = drain(listener, bytes);
    let sender = TcpStream::connect(to).expect("loopback");
    sender.set_nonblocking(!blocks).expect("an option");
    if !blocks {
        Calls::default()
            .set(
                sender.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUF,
                16 << 10,
            )
            .expect("a small buffer");
    }
    (sender, receiving)
}

#[test]
fn every_path_sends_64_mb_whole_and_in_order_over_tcp() {
    let bytes = 64 << 20;
    let source = source(bytes, PAYLOAD_BYTES, false);
    let expected = source.content();
    for name in tcp_names() {
        for blocks in [true, false] {
            let (sender, receiving) = tcp_pair(bytes, blocks);
            let mut mover = open(name, &source);
            mover.send(&sender, 0..source.plan.packets()).expect("sent");
            drop(sender);
            assert!(receiving.join().expect("received") == expected, "{name}");
            let waits = mover.counters().waits;
            assert_eq!(waits == 0, blocks, "{name}: a small socket was full");
        }
    }
}

#[test]
fn crossings_are_as_many_as_the_catalogue_says() {
    let (n, trains, gathered) = (768u64, 16u64, 96u64);
    let sources = [false, true].map(|has| source(768 * 1316, PAYLOAD_BYTES, has));
    for name in udp_names() {
        let source = &sources[usize::from(has_headers(name))];
        let mut mover = open(name, source);
        mover.prepare(0..source.plan.packets()).expect("read");
        let (sender, _receiver) = udp_pair();
        let before = mover.counters();
        mover.send(&sender, 0..source.plan.packets()).expect("sent");
        let did = mover.counters().since(&before);
        assert_eq!(did.packets, n, "{name}");
        let expected = match name {
            Name::ReadWrite | Name::ReadSendRtp | Name::ReadWritev => 2 * n..=2 * n,
            Name::MmapSend | Name::MmapWritev => n + 2..=n + 2,
            Name::SendfileUdp => n..=n,
            Name::MmapMsend => n + 4..=n + n / 8,
            Name::MmapSendRtp => 4 * n + 2..=4 * n + 2,
            Name::RtpSendfile => 4 * n..=4 * n,
            Name::MmapSendMsend => 5 * n + 2..=5 * n + 2,
            Name::Rtpsendfile => 2 * n + 1 + 2 * n / 7..=2 * n + 1 + n,
            Name::MmapRtpmsend => gathered + 4..=2 * gathered,
            Name::Krtpmsend | Name::Kmsend => 4..=8,
            Name::Ksendfile | Name::Krtpsendfile | Name::UringVectoredZc => 3..=5,
            Name::Sendto => n + 2..=n + 2,
            Name::Sendmmsg | Name::SendmmsgGso => trains + 2..=trains + 2,
            Name::Gso => trains + 3..=trains + 3,
            Name::GsoSendfile => trains + 1..=trains + 1,
            Name::GsoZerocopy => trains + 3..=2 * trains,
            Name::Uring => n / 256 + 3..=n / 256 + 6,
            Name::UringZc | Name::UringRegistered => n / 256 + 1..=n / 256 + 6,
            Name::UringSqpoll => 2..=3,
            Name::SendfileTcp => unreachable!("it is not over UDP"),
        };
        // The socket is asked what it is, before.
        let asked = if name.facts().is_train { 3 } else { 4 };
        assert!(
            expected.contains(&(did.crossings - asked)),
            "{name}: {did:?}, not {expected:?} and {asked}"
        );
        assert_eq!(did.crossings_prepare, 0, "{name}: it was ready");
    }
    let source = &sources[0];
    for (name, crossings) in [
        (Name::ReadWrite, 2 * n),
        (Name::MmapSend, n + 2),
        (Name::SendfileTcp, 1),
    ] {
        let (sender, receiving) = tcp_pair(768 * 1316, true);
        let mut mover = open(name, source);
        mover.send(&sender, 0..source.plan.packets()).expect("sent");
        drop(sender);
        receiving.join().expect("received");
        assert_eq!(mover.counters().crossings, crossings + 1, "{name}");
    }
}

/// Each send has two answers, and who asks for one each is woken when half of them are there, then
/// when half of the rest are, and so on.
#[test]
fn who_waits_for_a_thread_of_the_kernel_waits_once_a_batch() {
    let batches = 4;
    let packets = batches * BATCH_TRAINS_MAX * TRAIN_PACKETS_MAX;
    let source = source(packets * 16, 16, false);
    let mut mover = open(Name::UringSqpoll, &source);
    mover.prepare(0..packets).expect("read");
    let (sender, _receiver) = udp_pair();
    let before = mover.counters();
    mover.send(&sender, 0..packets).expect("sent");
    let did = mover.counters().since(&before);
    assert_eq!(did.sends, (batches * BATCH_TRAINS_MAX) as u64, "{did:?}");
    // Four ask and set; the rest hands over and waits. Of two in a batch one was for nothing.
    let waits = did.crossings - 4;
    let batches = batches as u64;
    assert!((batches..=batches + 1).contains(&waits), "{waits}: {did:?}");
}

/// Each sort of trouble at every so many calls. Nothing may be lost, repeated or out of order.
#[test]
fn interrupted_and_short_calls_and_full_sockets_lose_nothing() {
    let bytes = 1 << 20;
    let sources = [false, true].map(|has| source(bytes, PAYLOAD_BYTES, has));
    let troubles = [(3, libc::EINTR), (3, libc::EAGAIN), (7, libc::EAGAIN)];
    for (every, errno) in troubles {
        for name in udp_names() {
            let source = &sources[usize::from(has_headers(name))];
            let mut mover = open(name, source);
            // So many calls in a row must go well for seven packets.
            let calls = if name == Name::Rtpsendfile { 31 } else { every };
            plant::every(calls, errno);
            plant::shorten(true);
            send_and_compare(&mut mover, source, 0..source.plan.packets());
            plant::every(0, 0);
            plant::shorten(false);
        }
        for name in tcp_names() {
            let (sender, receiving) = tcp_pair(bytes, true);
            let mut mover = open(name, &sources[0]);
            plant::every(every, errno);
            plant::shorten(true);
            let sent = mover.send(&sender, 0..sources[0].plan.packets());
            plant::every(0, 0);
            plant::shorten(false);
            sent.expect("sent");
            drop(sender);
            let received = receiving.join().expect("received");
            assert!(received == sources[0].content(), "{name}");
        }
    }
}

#[test]
fn a_receiver_that_goes_away_is_an_error_that_says_so() {
    let sources = [false, true].map(|has| source(1 << 20, PAYLOAD_BYTES, has));
    for name in udp_names() {
        let source = &sources[usize::from(has_headers(name))];
        let mut mover = open(name, source);
        let (sender, receiver) = udp_pair();
        mover.send(&sender, 0..100).expect("somebody listens");
        drop(receiver);
        // The first send draws an ICMP error, and a later one reports it; or much later, while a
        // process that another test has forked has the receiver too.
        let give_up = Instant::now() + Duration::from_secs(60);
        let error = loop {
            if let Err(error) = mover.send(&sender, 100..700) {
                break error;
            }
            assert!(Instant::now() < give_up, "{name}: no error");
        };
        assert!(error.is_receiver_gone(), "{name}: {error:?}");
        // It goes on with the next receiver.
        send_and_compare(&mut mover, source, 300..500);
    }
    let source = &source(16 << 20, PAYLOAD_BYTES, false);
    for name in tcp_names() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
        let receiving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody comes");
            stream.read_exact(&mut [0; 1000]).expect("a little");
        });
        let mut mover = open(name, source);
        let sent = mover.send(&sender, 0..source.plan.packets());
        receiving.join().expect("gone");
        let error = sent.expect_err("nobody takes 16 MB");
        assert!(error.is_receiver_gone(), "{name}: {error}");
    }
}

#[test]
fn packets_beyond_the_mtu_and_of_other_sizes_arrive() {
    let sizes = [9000, 9000, 30_000, 100, 9000, 9000, 9000, 1, 61_428, 9000];
    for name in udp_names() {
        let mut offset = 0;
        let pieces = sizes.map(|bytes| {
            let piece = Piece { offset, bytes };
            offset += u64::from(bytes);
            piece
        });
        let plan = Plan::new(pieces.to_vec(), Vec::new()).expect("sizes for packets");
        let content = source(usize::try_from(offset).expect("small"), 1000, false);
        let file = content.file.try_clone().expect("a descriptor");
        let plan = headed(plan, has_headers(name));
        let source = Arc::new(Source { file, plan });
        send_and_compare(&mut open(name, &source), &source, 0..sizes.len());
    }
}

/// As in M2TS, where each transport packet is preceded by four bytes that are not sent.
#[test]
fn packets_of_pieces_that_lie_apart_arrive_whole() {
    let packets = 40;
    let pieces = (0..7 * packets).map(|n: u64| Piece {
        offset: n * 192 + 4,
        bytes: 188,
    });
    let plan = Plan::new(pieces.collect(), (1..=40).map(|n| n * 7).collect()).expect("seven each");
    let content = source(192 * 7 * 40, 1000, false);
    for name in udp_names() {
        let plan = headed(plan.clone(), has_headers(name));
        let file = content.file.try_clone().expect("a descriptor");
        let source = Arc::new(Source { file, plan });
        send_and_compare(&mut open(name, &source), &source, 0..40);
    }
    for name in tcp_names() {
        let file = content.file.try_clone().expect("a descriptor");
        let plan = plan.clone();
        let source = Arc::new(Source { file, plan });
        let (sender, receiving) = tcp_pair(40 * 1316, true);
        open(name, &source).send(&sender, 0..40).expect("sent");
        drop(sender);
        let expected: Vec<_> = (0..40)
            .flat_map(|n| source.image(&source.content(), n))
            .collect();
        assert!(receiving.join().expect("received") == expected, "{name}");
    }
}

#[test]
fn images_that_do_not_fit_are_made_a_window_at_a_time() {
    let source = source(1 << 20, PAYLOAD_BYTES, true);
    for name in udp_names().filter(|n| n.facts().is_image && has_headers(*n)) {
        let mut mover = Mover::open(name, &source, 100 * 1328).expect("available");
        send_and_compare(&mut mover, &source, 0..source.plan.packets());
        assert!(mover.counters().crossings_prepare >= 7, "{name}");
        // Back at the beginning, and made anew after being forgotten.
        mover.forget();
        send_and_compare(&mut mover, &source, 0..10);
    }
}

#[test]
fn a_shorter_file_is_an_error_and_no_shorter_packet_leaves() {
    for name in udp_names() {
        let source = source(1 << 20, PAYLOAD_BYTES, has_headers(name));
        source.file.set_len(600_000).expect("shorter");
        let mut mover = open(name, &source);
        let (sender, receiver) = udp_pair();
        let sent = mover.send(&sender, 440..500);
        assert!(sent.is_err(), "{name}: {sent:?}");
        receiver.set_nonblocking(true).expect("an option");
        let mut packet = [0; 2000];
        while let Ok(length) = receiver.recv(&mut packet) {
            // One call is one datagram: how long it became is known afterwards.
            let is_cut = name == Name::SendfileUdp && length == 600_000 % 1316;
            assert!(
                is_cut || length == source.plan.packet_bytes(0),
                "{name}: {length}"
            );
        }
    }
}

#[test]
fn a_packet_through_a_pipe_has_so_many_bytes_and_no_more() {
    let packet = |bytes: usize| source(bytes, u32::try_from(bytes).expect("small"), false);
    let most = packet(PACKET_BYTES_SPLICED_MAX);
    send_and_compare(&mut open(Name::SendfileUdp, &most), &most, 0..1);
    let more = packet(PACKET_BYTES_SPLICED_MAX + 1);
    let refused = Mover::open(Name::SendfileUdp, &more, IMAGE_BYTES_MAX).unwrap_err();
    assert!(
        refused.to_string().contains("at most 61440 bytes"),
        "{refused}"
    );
    send_and_compare(&mut open(Name::MmapSend, &more), &more, 0..1);
}

#[test]
fn a_path_refuses_what_it_is_not_for() {
    let plain = source(1 << 16, 1000, false);
    let headed = source(1 << 16, 1000, true);
    for (name, source, said) in [
        (Name::ReadWrite, &headed, "read_write sends packets without"),
        (Name::RtpSendfile, &plain, "rtp_sendfile sends packets with"),
    ] {
        let refused = Mover::open(name, source, IMAGE_BYTES_MAX).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
    let (sender, _receiver) = udp_pair();
    let error = open(Name::SendfileTcp, &plain)
        .send(&sender, 0..1)
        .unwrap_err();
    assert!(
        matches!(error, SendError::Transport { is_tcp: false, .. }),
        "{error}"
    );
}

/// Those that a path takes, beside none.
fn touches_of(name: Name) -> impl Iterator<Item = Touch> {
    let all = Touch::ALL.into_iter();
    all.filter(move |touch| *touch != Touch::None && name.cannot_touch(*touch).is_none())
}

fn open_touching(name: Name, source: &Arc<Source>, touch: Touch) -> Mover {
    Mover::open_touching(name, source, IMAGE_BYTES_MAX, touch).expect("it touches so")
}

/// Twice, because what a send has changed the next one must have as it was; and the file too.
#[test]
fn every_path_touches_each_packet_once_over_udp() {
    // More than the images that are touched at a time.
    let bytes = 3 << 20;
    let sources = [false, true].map(|has| source(bytes, PAYLOAD_BYTES, has));
    let content = sources[0].content();
    for name in udp_names() {
        let source = &sources[usize::from(has_headers(name))];
        for touch in touches_of(name) {
            let mut mover = open_touching(name, source, touch);
            mover.prepare(0..source.plan.packets()).expect("read");
            send_and_compare(&mut mover, source, 0..source.plan.packets());
            send_and_compare(&mut mover, source, 500..900);
        }
    }
    for source in sources {
        assert!(source.content() == content, "a touch has changed the file");
    }
}

/// Each send pays for what it changes; what is only read stays as it is, and stays shared.
#[test]
fn images_that_are_changed_are_made_by_each_send() {
    let sources = [false, true].map(|has| source(1 << 17, PAYLOAD_BYTES, has));
    for name in udp_names().filter(|name| name.facts().is_image) {
        let source = &sources[usize::from(has_headers(name))];
        for touch in Touch::ALL {
            let mut mover = open_touching(name, source, touch);
            mover.prepare(0..source.plan.packets()).expect("read");
            send_and_compare(&mut mover, source, 0..90);
            let once = mover.counters().crossings_prepare;
            send_and_compare(&mut mover, source, 0..90);
            let again = mover.counters().crossings_prepare;
            assert_eq!(again > once, touch.changes(), "{name}, {touch}");
        }
    }
}

#[test]
fn every_path_touches_each_packet_once_over_tcp() {
    let bytes = 3 << 20;
    let source = source(bytes, PAYLOAD_BYTES, false);
    let content = source.content();
    let packets = source.plan.packets();
    for name in tcp_names() {
        for touch in touches_of(name) {
            let (sender, receiving) = tcp_pair(bytes, true);
            let mut mover = open_touching(name, &source, touch);
            mover.send(&sender, 0..packets).expect("sent");
            drop(sender);
            let mut received = receiving.join().expect("received");
            let toucher = Toucher::new(touch);
            let payloads = received.chunks_mut(PAYLOAD_BYTES as usize);
            let undo = |(number, payload)| toucher.touch(number, payload);
            let checksums: Vec<_> = payloads.enumerate().filter_map(undo).collect();
            assert!(received == content, "{name}, {touch}");
            assert_eq!(mover.checksums(), checksums, "{name}, {touch}");
        }
    }
}

/// What is tried again is not touched again.
#[test]
fn interrupted_calls_and_full_sockets_touch_nothing_twice() {
    let sources = [false, true].map(|has| source(1 << 20, PAYLOAD_BYTES, has));
    for name in udp_names() {
        let source = &sources[usize::from(has_headers(name))];
        for touch in touches_of(name) {
            let mut mover = open_touching(name, source, touch);
            let calls = if name == Name::Rtpsendfile { 31 } else { 7 };
            plant::every(calls, libc::EAGAIN);
            plant::shorten(true);
            send_and_compare(&mut mover, source, 0..source.plan.packets());
            plant::every(0, 0);
            plant::shorten(false);
        }
    }
}

#[test]
fn packets_of_pieces_that_lie_apart_are_touched_as_a_whole() {
    let pieces = (0..7 * 40).map(|n: u64| Piece {
        offset: n * 192 + 4,
        bytes: 188,
    });
    let plan = Plan::new(pieces.collect(), (1..=40).map(|n| n * 7).collect()).expect("seven each");
    let content = source(192 * 7 * 40, 1000, false);
    for name in udp_names() {
        let plan = headed(plan.clone(), has_headers(name));
        let file = content.file.try_clone().expect("a descriptor");
        let source = Arc::new(Source { file, plan });
        for touch in touches_of(name) {
            send_and_compare(&mut open_touching(name, &source, touch), &source, 0..40);
        }
    }
}

#[test]
fn who_cannot_touch_data_says_so() {
    let plain = source(1 << 16, 1000, false);
    for touch in [Touch::Filter, Touch::Encrypt] {
        for name in [Name::SendfileTcp, Name::SendfileUdp] {
            let refused = Mover::open_touching(name, &plain, IMAGE_BYTES_MAX, touch);
            let said = refused.expect_err("it has no copy").to_string();
            assert!(
                said.contains("cannot") && said.contains("own pages"),
                "{said}"
            );
        }
    }
    let twice = Plan::new(
        vec![
            Piece {
                offset: 0,
                bytes: 9
            };
            2
        ],
        Vec::new(),
    )
    .expect("two");
    let file = plain.file.try_clone().expect("a descriptor");
    let source = Arc::new(Source { file, plan: twice });
    let refused = Mover::open_touching(Name::MmapSend, &source, 1 << 20, Touch::Filter);
    let said = refused.expect_err("it would be marked twice").to_string();
    assert!(said.contains("share bytes"), "{said}");
}
