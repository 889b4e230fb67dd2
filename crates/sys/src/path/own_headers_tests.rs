//! Trains with headers of their own, on every path: loopback, real sockets, every byte compared.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;
use crate::clock::monotonic_ns;
use crate::pool::{HeaderSlab, HeaderSlot, Pin};
use onrush_lock::Kind;
use onrush_lock::memory::{Area, PIECE_BYTES, Pages};

const STRIDE: usize = 1328;
const HEADER_BYTES: usize = 12;

struct Rig {
    path: Box<dyn Path>,
    pool: Arc<Pool>,
    slab: HeaderSlab,
    pin: Option<Pin>,
    sender: UdpSocket,
    receiver: UdpSocket,
}

/// A pool with one chunk of distinguishable images.
fn rig(name: PathName, area: Area) -> Rig {
    let pool = Arc::new(Pool::with_slabs(area, 256 * 1024, 1));
    let slab = HeaderSlab::take_from(&pool).expect("one");
    let mut claim = pool.claim().expect("empty");
    for (i, byte) in claim.bytes_mut().iter_mut().enumerate() {
        *byte = u8::try_from((i / STRIDE * 7 + i) % 251).expect("below 251");
    }
    let pin = Some(claim.publish(0));
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
        slab,
        pin,
        sender,
        receiver,
    }
}

/// Of base pages, and of huge ones.
fn areas() -> [Area; 2] {
    [
        Area::map_base(4 << 20).expect("a little memory"),
        Area::map(4 << 20).expect("a little memory"),
    ]
}

fn header(token: u32, packet: usize) -> [u8; HEADER_BYTES] {
    std::array::from_fn(|i| {
        u8::try_from((token as usize * 31 + packet * 5 + i) % 256).expect("byte")
    })
}

impl Rig {
    /// Images from `first` on, `bytes` of them, with headers that the token tells.
    fn train(&mut self, first: usize, bytes: usize, token: u32) -> (Train, HeaderSlot) {
        let offset = self.pool.offset(self.pin.as_ref().expect("held")) + first * STRIDE;
        let slot = self.slab.take(offset, |slot| {
            for (packet, place) in slot.chunks_exact_mut(HEADER_BYTES).enumerate() {
                place.copy_from_slice(&header(token, packet));
            }
        });
        let train = Train {
            to: To::Descriptor(self.sender.as_raw_fd()),
            offset,
            bytes: u32::try_from(bytes).expect("fits"),
            stride: 1328,
            segments: Segments::OfSocket,
            headers: Some(OwnHeaders {
                offset: slot.offset(),
                bytes: 12,
            }),
            token,
        };
        (train, slot)
    }

    /// Has a chunk of the second piece from now on; those that were claimed before are the
    /// caller's.
    fn go_to_second_piece(&mut self) -> Vec<Pin> {
        let mut others: Vec<_> = self.pin.take().into_iter().collect();
        loop {
            let mut claim = self.pool.claim().expect("there is a second piece");
            claim.bytes_mut().fill(99);
            let pin = claim.publish(1);
            if self.pool.offset(&pin) > PIECE_BYTES {
                self.pin = Some(pin);
                return others;
            }
            others.push(pin);
        }
    }

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

    fn expect(&self, first: usize, bytes: usize, token: u32) {
        let images = &self.pool.bytes(self.pin.as_ref().expect("held"))[first * STRIDE..][..bytes];
        for (number, image) in images.chunks(STRIDE).enumerate() {
            let mut packet = [0; 2048];
            let length = self.receiver.recv(&mut packet).expect("a packet");
            assert_eq!(packet[..HEADER_BYTES], header(token, number));
            assert_eq!(packet[HEADER_BYTES..length], image[HEADER_BYTES..]);
        }
    }
}

#[test]
fn own_headers_arrive_in_place_of_the_images_own() {
    for name in PathName::ALL {
        for area in areas() {
            own_headers_arrive(rig(name, area), name, Segments::OfSocket);
        }
        // Its socket is ready for another size.
        let rig = rig(name, Area::map(4 << 20).expect("a little memory"));
        prepare_socket(name, rig.sender.as_raw_fd(), 1400).expect("a UDP socket");
        own_headers_arrive(rig, name, Segments::OfSend);
    }
}

fn own_headers_arrive(mut rig: Rig, name: PathName, segments: Segments) {
    let most = rig.path.own_headers_packets(rig.slab.slots() * 128, 1328);
    assert!((OWN_HEADERS_PACKETS_MIN..=OWN_HEADERS_PACKETS_MAX).contains(&most));
    let sizes = [most * STRIDE, STRIDE, 3 * STRIDE - 500, STRIDE - 800];
    let mut slots = Vec::new();
    let mut first = 0;
    for (token, bytes) in (1..).zip(sizes) {
        let (train, slot) = rig.train(first, bytes, token);
        rig.path.queue(Train { segments, ..train });
        slots.push(slot);
        first += 10;
    }
    let all = rig.reap(sizes.len());
    for (token, bytes) in (1..).zip(sizes) {
        let answers: Vec<_> = all.iter().filter(|c| c.token == token).collect();
        let sent: Vec<_> = answers.iter().filter_map(|c| c.sent).collect();
        let whole = Sent {
            bytes: u32::try_from(bytes).expect("fits"),
            errno: 0,
        };
        assert_eq!(sent, [whole], "{name}: one answer for train {token}");
        assert_eq!(answers.iter().filter(|c| c.released).count(), 1, "{name}");
    }
    let mut first = 0;
    for (token, bytes) in (1..).zip(sizes) {
        rig.expect(first, bytes, token);
        first += 10;
    }
    for slot in slots {
        rig.slab.give_back(slot);
    }
    let counters = rig.path.counters();
    assert_eq!(counters.trains_own_headers, 4, "{name}: {counters:?}");
    // Two have several packets.
    let own = 2 * u64::from(segments == Segments::OfSend && name.segments());
    assert_eq!(counters.trains_own_segments, own, "{name}: {counters:?}");
    // To a socket on this machine the kernel copies zero-copy data; two are copied on
    // purpose.
    let single = 2 * u64::from(name == PathName::UringRegisteredZc);
    assert_eq!(counters.trains_single, single, "{name}: {counters:?}");
    assert_eq!(counters.trains_copied, 4 - single, "{name}: {counters:?}");
    let pin = rig.pin.take().expect("held");
    rig.pool.unpin(pin);
}

/// Linux 6.15 and later, which these tests are for, send them without a copy: eight a train from
/// huge pages.
#[test]
fn the_ring_refers_to_headers_and_payloads_where_it_can() {
    for (area, packets) in areas().into_iter().zip([6..=7, 8..=8]) {
        let pages = area.pages();
        let rig = rig(PathName::UringRegisteredZc, area);
        assert_eq!(rig.path.vectored(), Vectored::ZeroCopy);
        let most = rig.path.own_headers_packets(64 << 10, 1328);
        assert!(packets.contains(&most), "{most} from {pages:?}");
    }
}

#[test]
fn a_train_of_nine_with_own_headers_is_our_own_bug() {
    let mut rig = rig(PathName::Sendmmsg, Area::map_base(1 << 20).expect("memory"));
    let (train, _slot) = rig.train(0, 9 * STRIDE, 1);
    let queue = std::panic::AssertUnwindSafe(|| rig.path.queue(train));
    assert!(std::panic::catch_unwind(queue).is_err());
    let (train, _slot) = rig.train(0, 8 * STRIDE, 1);
    let apart = Train {
        headers: train.headers.map(|headers| OwnHeaders {
            offset: 1 << 20,
            ..headers
        }),
        ..train
    };
    let queue = std::panic::AssertUnwindSafe(|| rig.path.queue(apart));
    assert!(std::panic::catch_unwind(queue).is_err(), "outside the area");
}

#[test]
fn each_piece_is_sent_from_once_it_is_taken() {
    // Pinned by the manager, and by the ring for itself.
    for kind in [Kind::Pinned, Kind::Resident] {
        let area = Area::reserve(2 * PIECE_BYTES, true, Some(kind)).expect("64 MiB");
        area.grow(|| false).expect("32 MiB");
        let mut rig = rig(PathName::UringRegisteredZc, area);
        assert!(!rig.path.has_memory_to_take());
        rig.pool.grow(|| false).expect("32 MiB");
        assert!(rig.path.has_memory_to_take());
        // Nobody sends from it yet: the ring does not know it.
        let early = Train {
            to: To::Descriptor(rig.sender.as_raw_fd()),
            offset: PIECE_BYTES + (4 << 20),
            bytes: 2 * 1328,
            stride: 1328,
            segments: Segments::OfSocket,
            headers: None,
            token: 1,
        };
        rig.path.queue(early);
        let sent: Vec<_> = rig.reap(1).iter().filter_map(|c| c.sent).collect();
        assert_eq!(sent[0].errno, libc::EFAULT, "{kind:?}");
        // Another test of this process may be locking memory at the moment.
        while rig.path.has_memory_to_take() {
            rig.path.take_memory();
        }
        rig.pool.publish();
        let others = rig.go_to_second_piece();
        let packets = rig.path.own_headers_packets(PIECE_BYTES, 1328);
        let (train, slot) = rig.train(0, packets * STRIDE, 2);
        assert!(
            slot.offset() >= PIECE_BYTES,
            "in the same registered buffer"
        );
        rig.path.queue(train);
        let sent: Vec<_> = rig.reap(1).iter().filter_map(|c| c.sent).collect();
        assert_eq!(
            (sent[0].errno, sent[0].bytes as usize),
            (0, packets * STRIDE)
        );
        rig.expect(0, packets * STRIDE, 2);
        rig.slab.give_back(slot);
        others
            .into_iter()
            .chain(rig.pin.take())
            .for_each(|pin| rig.pool.unpin(pin));
    }
}

/// A machine may run out of huge pages while the cache grows, and of base pages fewer packets fit a
/// send.
#[test]
fn what_pages_a_piece_has_is_found_when_it_is_taken() {
    let area = Area::reserve(2 * PIECE_BYTES, true, Some(Kind::Pinned)).expect("64 MiB");
    // Of those that are set aside no piece gets others.
    if area.pages() == Pages::HugeReserved {
        return;
    }
    area.grow(|| false).expect("32 MiB");
    let second = area.base().as_ptr().wrapping_add(PIECE_BYTES);
    // SAFETY: the range is the area's second piece, of which nothing is used yet; the advice is
    // about the pages that it gets.
    let advised = unsafe { libc::madvise(second.cast(), PIECE_BYTES, libc::MADV_NOHUGEPAGE) };
    assert_eq!(advised, 0);
    let mut rig = rig(PathName::UringRegisteredZc, area);
    rig.pool.grow(|| false).expect("32 MiB");
    // A train that is under way meanwhile comes back all the same.
    let (train, slot) = rig.train(0, 2 * STRIDE, 1);
    rig.path.queue(train);
    rig.path.submit().expect("it is handed over");
    while rig.path.has_memory_to_take() {
        rig.path.take_memory();
    }
    assert_eq!(rig.reap(1)[0].token, 1);
    rig.slab.give_back(slot);
    rig.pool.publish();
    let others = rig.go_to_second_piece();
    let offset = rig.pool.offset(rig.pin.as_ref().expect("held"));
    let packets = rig.path.own_headers_packets(offset, 1328);
    assert!((6..=7).contains(&packets), "{packets}");
    let (train, slot) = rig.train(0, packets * STRIDE, 2);
    rig.path.queue(train);
    let sent: Vec<_> = rig.reap(1).iter().filter_map(|c| c.sent).collect();
    assert_eq!(
        (sent[0].errno, sent[0].bytes as usize),
        (0, packets * STRIDE)
    );
    rig.slab.give_back(slot);
    let pins = others.into_iter().chain(rig.pin.take());
    pins.for_each(|pin| rig.pool.unpin(pin));
}
