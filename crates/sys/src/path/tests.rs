//! The contract, run unchanged on every path: loopback, real sockets, every byte compared.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::*;
use crate::clock::monotonic_ns;
use onrush_lock::memory::Area;

const STRIDE: usize = 1328;

struct Rig {
    path: Box<dyn Path>,
    pool: Arc<Pool>,
    waker: Arc<Waker>,
    chunk: u32,
    sender: UdpSocket,
    receiver: UdpSocket,
}

/// A pool of one chunk that holds distinguishable images, and a pair of sockets.
fn rig(name: PathName) -> Rig {
    let area = Area::map(256 * 1024).expect("a little memory");
    let pool = Arc::new(Pool::new(area, 256 * 1024));
    let mut claim = pool.claim().expect("empty");
    for (i, byte) in claim.bytes_mut().iter_mut().enumerate() {
        *byte = u8::try_from((i / STRIDE * 7 + i) % 251).expect("below 251");
    }
    let chunk = claim.chunk();
    let pin = claim.publish(0);
    pool.unpin(pin);
    let waker = Arc::new(Waker::new().expect("an eventfd"));
    let path = open(name, &pool, &waker).expect("every path is available to these tests");
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    receiver
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    sender
        .connect(receiver.local_addr().expect("bound"))
        .expect("loopback");
    let stride = u16::try_from(STRIDE).expect("fits");
    prepare_socket(name, sender.as_raw_fd(), stride).expect("a UDP socket");
    Rig {
        path,
        pool,
        waker,
        chunk,
        sender,
        receiver,
    }
}

impl Rig {
    fn train(&self, first: usize, bytes: usize, token: u32) -> Train {
        Train {
            to: To::Descriptor(self.sender.as_raw_fd()),
            offset: first * STRIDE,
            bytes: u32::try_from(bytes).expect("fits"),
            stride: 1328,
            segments: Segments::OfSocket,
            headers: None,
            token,
        }
    }

    /// Completions until `count` trains are released, at most a minute.
    fn reap(&mut self, count: usize) -> Vec<Completion> {
        let mut all: Vec<Completion> = Vec::new();
        let end_ns = monotonic_ns() + 60_000_000_000;
        while all.iter().filter(|c| c.released).count() < count {
            assert!(monotonic_ns() < end_ns, "only {all:?} came back");
            self.path
                .submit_and_sleep(Some(monotonic_ns() + 1_000_000))
                .expect("a sleep");
            all.extend(std::iter::from_fn(|| self.path.completion()));
        }
        all
    }

    fn expect_images(&self, first: usize, bytes: usize) {
        let pin = self.pool.pin(self.chunk, 0).expect("published");
        let expected = &self.pool.bytes(&pin)[first * STRIDE..][..bytes];
        for image in expected.chunks(STRIDE) {
            let mut packet = [0; 2048];
            let length = self.receiver.recv(&mut packet).expect("a packet");
            assert_eq!(&packet[..length], image);
        }
        self.pool.unpin(pin);
    }
}

#[test]
fn trains_arrive_whole_and_in_order_and_come_back_once() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        let short = 3 * STRIDE - 500;
        rig.path.queue(rig.train(0, 8 * STRIDE, 1));
        rig.path.queue(rig.train(8, STRIDE, 2));
        rig.path.queue(rig.train(20, short, 3));
        let all = rig.reap(3);
        for (token, bytes) in [(1, 8 * STRIDE), (2, STRIDE), (3, short)] {
            let answers: Vec<_> = all.iter().filter(|c| c.token == token).collect();
            let sent: Vec<_> = answers.iter().filter_map(|c| c.sent).collect();
            let whole = Sent {
                bytes: u32::try_from(bytes).expect("fits"),
                errno: 0,
            };
            assert_eq!(sent, [whole], "{name}: one answer for train {token}");
            assert_eq!(answers.iter().filter(|c| c.released).count(), 1, "{name}");
            assert!(
                answers.last().expect("one").released,
                "{name}: released last"
            );
        }
        rig.expect_images(0, 8 * STRIDE);
        rig.expect_images(8, STRIDE);
        rig.expect_images(20, short);
        let counters = rig.path.counters();
        assert_eq!(counters.trains, 3, "{name}");
        // Loopback delivers to a socket, where the kernel copies zero-copy data; it must say so.
        // Only the ring tells a packet that it copies of its own accord.
        let single = u64::from(name == PathName::UringRegisteredZc);
        assert_eq!(counters.trains_single, single, "{name}: {counters:?}");
        assert_eq!(counters.trains_copied, 3 - single, "{name}: {counters:?}");
        assert_eq!(counters.trains_zero_copy, 0, "{name}: {counters:?}");
    }
}

/// Whether a path refuses the train as our own bug.
fn is_refused(rig: &mut Rig, train: Train) -> bool {
    let queue = std::panic::AssertUnwindSafe(|| rig.path.queue(train));
    std::panic::catch_unwind(queue).is_err()
}

#[test]
fn the_largest_train_leaves_as_one_and_a_larger_one_is_refused() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        rig.path.queue(rig.train(1, TRAIN_BYTES_MAX, 1));
        assert_eq!(rig.reap(1)[0].sent.expect("an answer").errno, 0, "{name}");
        rig.expect_images(1, TRAIN_BYTES_MAX);
        let larger = rig.train(0, TRAIN_BYTES_MAX + 1, 1);
        assert!(is_refused(&mut rig, larger), "{name}");
    }
}

#[test]
fn the_longest_train_leaves_as_one_and_a_longer_one_is_refused() {
    let stride = 200;
    let train = |rig: &Rig, packets: usize| Train {
        stride: 200,
        ..rig.train(0, packets * stride, 1)
    };
    for name in PathName::ALL {
        let mut rig = rig(name);
        prepare_socket(name, rig.sender.as_raw_fd(), 200).expect("a UDP socket");
        rig.path.queue(train(&rig, TRAIN_PACKETS_MAX));
        assert_eq!(rig.reap(1)[0].sent.expect("an answer").errno, 0, "{name}");
        for _ in 0..TRAIN_PACKETS_MAX {
            assert_eq!(rig.receiver.recv(&mut [0; 2048]).expect("a packet"), stride);
        }
        let longer = train(&rig, TRAIN_PACKETS_MAX + 1);
        assert!(is_refused(&mut rig, longer), "{name}");
    }
}

/// A train whose packets are not of the size that its socket was readied for.
fn train_of(rig: &Rig, stride: u16, bytes: u32, token: u32) -> Train {
    Train {
        bytes,
        stride,
        segments: Segments::OfSend,
        ..rig.train(0, STRIDE, token)
    }
}

#[test]
fn a_train_can_say_the_length_of_its_packets_itself() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        // Two and a shorter one; one alone; then the socket's own size, which stays what it was.
        rig.path.queue(train_of(&rig, 1000, 2300, 1));
        rig.path.queue(train_of(&rig, 700, 650, 2));
        rig.path.queue(rig.train(0, 2 * STRIDE, 3));
        let all = rig.reap(3);
        let sent = all.iter().filter_map(|c| c.sent);
        let mut sent: Vec<_> = sent.map(|sent| (sent.bytes, sent.errno)).collect();
        sent.sort_unstable();
        assert_eq!(sent, [(650, 0), (2300, 0), (2 * 1328, 0)], "{name}");
        for bytes in [1000, 1000, 300, 650, STRIDE, STRIDE] {
            let received = rig.receiver.recv(&mut [0; 2048]).expect("a packet");
            assert_eq!(received, bytes, "{name}");
        }
        let counters = rig.path.counters();
        assert_eq!(counters.trains, 3, "{name}");
        // A path that hands over packets has nothing to say.
        let own = u64::from(name.segments());
        assert_eq!(counters.trains_own_segments, own, "{name}: {counters:?}");
    }
}

#[test]
fn what_linked_sends_say_stays_until_they_are_answered() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        rig.path = open_ordered(name, &rig.pool, &rig.waker).expect("as before");
        for round in 0..10 {
            let strides = || (0..10).map(|i| 300 + (round * 10 + i) * 7);
            for (token, stride) in (0..).zip(strides()) {
                let bytes = u32::from(stride) + 100;
                rig.path.queue(train_of(&rig, stride, bytes, token));
                // In two parts, of which the first has not come back.
                if token == 4 {
                    rig.path.submit().expect("handed over");
                }
            }
            rig.reap(10);
            // What is linked waits for what is before it, and not what is handed over next.
            let received = (0..20).map(|_| rig.receiver.recv(&mut [0; 2048]).expect("a packet"));
            let mut received: Vec<_> = received.collect();
            received.sort_unstable();
            let expected = std::iter::repeat_n(100, 10).chain(strides().map(usize::from));
            assert!(
                expected.eq(received.iter().copied()),
                "{name}: {received:?}"
            );
        }
    }
}

#[test]
fn a_train_ends_where_the_area_does() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        let end = rig.pool.area().bytes_total();
        let train = |offset| Train {
            offset,
            ..rig.train(0, STRIDE, 1)
        };
        let (last, beyond) = (train(end - STRIDE), train(end - STRIDE + 1));
        rig.path.queue(last);
        assert_eq!(rig.reap(1)[0].sent.expect("an answer").errno, 0, "{name}");
        assert!(is_refused(&mut rig, beyond), "{name}");
        let wrapping = Train {
            offset: usize::MAX,
            ..last
        };
        assert!(is_refused(&mut rig, wrapping), "{name}");
    }
}

#[test]
fn a_batch_crosses_once_on_the_ring_and_has_a_limit() {
    let mut rig = rig(PathName::UringRegisteredZc);
    let before = rig.path.counters().crossings;
    for token in 0..u32::try_from(BATCH_TRAINS_MAX).expect("fits") {
        rig.path.queue(rig.train(0, STRIDE, token));
    }
    assert_eq!(rig.path.room(), 0);
    rig.path
        .submit_and_sleep(Some(monotonic_ns() + 1_000_000))
        .expect("a sleep");
    assert_eq!(rig.path.counters().crossings - before, 1);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for token in 0..=u32::try_from(BATCH_TRAINS_MAX).expect("fits") {
            rig.path.queue(rig.train(0, STRIDE, token));
        }
    }));
    assert!(refused.is_err(), "one more than a batch");
}

#[test]
fn a_refused_train_says_why_and_is_released() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        // Nobody listens there: the first send draws an ICMP error, a later one reports it. No port
        // that was left just now, which a process that another test forks may still have.
        rig.sender.connect("127.0.0.1:1").expect("loopback");
        let mut errors = Vec::new();
        for token in 0..3 {
            rig.path.queue(rig.train(0, STRIDE, token));
            let all = rig.reap(1);
            let refused = all.iter().filter_map(|c| c.sent).filter(|s| s.errno != 0);
            errors.extend(refused.map(|sent| (sent.errno, sent.bytes)));
        }
        assert!(
            errors.contains(&(libc::ECONNREFUSED, 0)),
            "{name}: {errors:?}"
        );
        let counters = rig.path.counters();
        let taken = counters.trains_zero_copy + counters.trains_copied + counters.trains_single;
        let told = taken + counters.trains_other;
        assert_eq!(told, 3, "{name}: each once: {counters:?}");
    }
}

/// Though the kernel says of a train that it refused that it was copied: nothing refers to it.
#[test]
fn a_refused_train_is_not_counted_as_copied() {
    let mut rig = rig(PathName::UringRegisteredZc);
    rig.sender.connect("127.0.0.1:1").expect("loopback");
    let end_ns = monotonic_ns() + 60_000_000_000;
    let (mut sent, mut refused) = (0, 0);
    while sent == 0 || refused == 0 {
        assert!(monotonic_ns() < end_ns, "{sent} sent, {refused} refused");
        rig.path.queue(rig.train(0, 2 * STRIDE, 1));
        let all = rig.reap(1);
        let answers = all.iter().filter_map(|c| c.sent);
        match answers.map(|sent| sent.errno).max() {
            Some(0) => sent += 1,
            _ => refused += 1,
        }
    }
    let counters = rig.path.counters();
    let taken = counters.trains_copied + counters.trains_zero_copy;
    assert_eq!(
        (taken, counters.trains_other),
        (sent, refused),
        "{counters:?}"
    );
}

#[test]
fn a_train_that_was_taken_in_part_says_how_much() {
    let mut rig = rig(PathName::Sendto);
    // The first packet draws an ICMP error, which the second reports.
    rig.sender.connect("127.0.0.1:1").expect("loopback");
    rig.path.queue(rig.train(0, 3 * STRIDE - 500, 1));
    let sent = rig.reap(1)[0].sent.expect("an answer");
    let part = Sent {
        bytes: 1328,
        errno: libc::ECONNREFUSED,
    };
    assert_eq!(sent, part);
    assert_eq!(sent.packets(3 * 1328 - 500, 1328), 1);
}

#[test]
fn only_whole_packets_are_counted_as_taken() {
    let packets = |bytes| Sent { bytes, errno: 0 }.packets(2500, 1000);
    assert_eq!([0, 999, 1000, 1999].map(packets), [0, 0, 1, 1]);
    assert_eq!([2000, 2499, 2500].map(packets), [2, 2, 3]);
}

#[test]
fn a_registered_socket_needs_no_descriptor() {
    let mut rig = rig(PathName::UringRegisteredZc);
    assert_eq!(rig.path.register_files(8), 8);
    rig.path
        .install_file(7, rig.sender.as_fd())
        .expect("a free place");
    let beyond = rig.path.install_file(8, rig.sender.as_fd()).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::EINVAL));
    let address = rig.sender.local_addr().expect("bound");
    let replaced = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    drop(std::mem::replace(&mut rig.sender, replaced));
    let kept = |train: Train| Train {
        to: To::RegisteredFile(7),
        ..train
    };
    rig.path.queue(kept(rig.train(0, 8 * STRIDE, 1)));
    rig.path.queue(kept(rig.train(8, STRIDE, 2)));
    let answers = rig.reap(2).into_iter().filter_map(|c| c.sent);
    let errnos: Vec<_> = answers.map(|sent| sent.errno).collect();
    assert_eq!(errnos, [0, 0]);
    rig.expect_images(0, 9 * STRIDE);
    // With a train under way, whose completions are not lost over it.
    rig.path.queue(kept(rig.train(9, 2 * STRIDE, 3)));
    let socket = UdpSocket::from(rig.path.descriptor(7).expect("Linux 6.8"));
    assert_eq!(socket.local_addr().expect("bound"), address);
    assert_eq!(rig.reap(1).last().expect("one").token, 3);
    rig.expect_images(9, 2 * STRIDE);
    rig.path.release_file(7);
    rig.path.queue(kept(rig.train(0, STRIDE, 4)));
    let gone = rig.reap(1)[0].sent.expect("an answer");
    assert_eq!(gone.errno, libc::EBADF, "the place is empty");
    drop(socket);
    // But a process that another test has forked meanwhile, for a moment.
    let end_ns = monotonic_ns() + 60_000_000_000;
    while let Err(error) = UdpSocket::bind(address) {
        assert!(monotonic_ns() < end_ns, "somebody has the address: {error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_path_without_a_table_says_so() {
    for name in PathName::ALL.into_iter().skip(1) {
        let mut rig = rig(name);
        assert_eq!(rig.path.register_files(8), 0, "{name}");
        assert!(
            rig.path.install_file(0, rig.sender.as_fd()).is_err(),
            "{name}"
        );
        assert!(rig.path.descriptor(0).is_err(), "{name}");
        let nowhere = Train {
            to: To::RegisteredFile(0),
            ..rig.train(0, STRIDE, 1)
        };
        assert!(is_refused(&mut rig, nowhere), "{name}");
    }
}

#[test]
fn the_waker_ends_a_sleep_without_a_deadline() {
    for name in PathName::ALL {
        let mut rig = rig(name);
        for _ in 0..3 {
            let waker = Arc::clone(&rig.waker);
            let other = std::thread::spawn(move || waker.wake());
            rig.path.submit_and_sleep(None).expect("woken");
            assert_eq!(rig.path.completion(), None, "{name}");
            other.join().expect("woke");
        }
    }
}

#[test]
fn the_best_path_is_chosen_and_each_demotion_is_told() {
    let rig = rig(PathName::Sendto);
    let mut demoted = Vec::new();
    let best = open_best(
        PathName::UringRegisteredZc,
        &rig.pool,
        &rig.waker,
        |name, _| demoted.push(name),
    );
    assert_eq!(best.name(), PathName::UringRegisteredZc);
    assert!(demoted.is_empty());
    assert_eq!("sendmmsg_gso".parse(), Ok(PathName::SendmmsgGso));
    assert!(
        "sendfile"
            .parse::<PathName>()
            .unwrap_err()
            .contains("sendmmsg_gso")
    );
}

/// Sixteen trains from huge pages are charged 32 MiB: with less, a fast stream's burst would not
/// fit.
#[test]
fn a_privileged_socket_has_room_for_many_trains_from_huge_pages() {
    let bytes = send_buffer_bytes().expect("loopback");
    if onrush_lock::memory::has_capability(onrush_lock::memory::CAP_NET_ADMIN) {
        assert!(bytes >= 512 << 20, "{bytes}");
    } else {
        assert!(bytes > 0);
    }
}
