//! Sends over connections, on every path: a client that reads late gets every byte in order, and
//! all that was queued is answered once.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use super::*;
use crate::clock::monotonic_ns;
use crate::pool::{HeaderSlab, HeaderSlot, Pin};
use onrush_lock::memory::Area;

const STRIDE: usize = 1328;
const HEAD_BYTES: usize = 16;
const REPLACED_BYTES: usize = 12;

struct Rig {
    path: Box<dyn Path>,
    pool: Arc<Pool>,
    slab: HeaderSlab,
    pin: Option<Pin>,
    sender: TcpStream,
    receiver: TcpStream,
    slots: Vec<HeaderSlot>,
    /// What is to arrive.
    expected: Vec<u8>,
}

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
    assert!(path.sends_streams(), "{name}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let sender = TcpStream::connect(address).expect("loopback");
    let (receiver, _) = listener.accept().expect("it has connected");
    sender.set_nodelay(true).expect("a TCP socket");
    Rig {
        path,
        pool,
        slab,
        pin,
        sender,
        receiver,
        slots: Vec::new(),
        expected: Vec::new(),
    }
}

impl Rig {
    /// Images from `first` on, `bytes` of them, each behind a head that the token tells.
    fn packets(&mut self, first: usize, bytes: usize, token: u32, is_followed: bool) -> StreamSend {
        let pin = self.pin.as_ref().expect("held");
        let offset = self.pool.offset(pin) + first * STRIDE;
        let head = |packet: usize| {
            std::array::from_fn::<u8, HEAD_BYTES, _>(|i| {
                u8::try_from((token as usize * 31 + packet * 5 + i) % 256).expect("a byte")
            })
        };
        let slot = self.slab.take(offset, |slot| {
            for (packet, place) in slot.chunks_exact_mut(HEAD_BYTES).enumerate() {
                place.copy_from_slice(&head(packet));
            }
        });
        let images = &self.pool.bytes(pin)[first * STRIDE..][..bytes];
        for (packet, image) in images.chunks(STRIDE).enumerate() {
            self.expected.extend(head(packet));
            self.expected.extend(&image[REPLACED_BYTES..]);
        }
        let packets = FramedPackets {
            offset,
            bytes: u32::try_from(bytes).expect("fits"),
            stride: 1328,
            heads_offset: slot.offset(),
            head_bytes: 16,
            replaced_bytes: 12,
        };
        self.slots.push(slot);
        StreamSend {
            fd: self.sender.as_raw_fd(),
            data: StreamData::Packets(packets),
            is_copied: false,
            is_followed,
            token,
        }
    }

    fn bytes(&mut self, length: usize, token: u32, is_followed: bool) -> StreamSend {
        let bytes = vec![u8::try_from(token % 256).expect("a byte"); length];
        self.expected.extend(&bytes);
        StreamSend {
            fd: self.sender.as_raw_fd(),
            data: StreamData::Bytes(bytes.into_boxed_slice()),
            is_copied: false,
            is_followed,
            token,
        }
    }

    /// Queues packets and bytes by turns, linked to each other: so many sends.
    fn queue_chain(&mut self, sends: u32) {
        for token in 0..sends {
            let is_followed = token + 1 < sends;
            let first = token as usize % 20;
            let send = match token % 4 {
                0 => self.bytes(300 + token as usize, token, is_followed),
                1 => self.packets(first, STRIDE - 300, token, is_followed),
                2 => self.packets(first, 8 * STRIDE, token, is_followed),
                _ => self.packets(first, 3 * STRIDE - 700, token, is_followed),
            };
            self.path.queue_stream(send);
        }
    }

    fn turn(&mut self, all: &mut Vec<Completion>) {
        let soon_ns = monotonic_ns() + 1_000_000;
        self.path.submit_and_sleep(Some(soon_ns)).expect("a sleep");
        all.extend(std::iter::from_fn(|| self.path.completion()));
    }

    /// Turns until nothing is in flight.
    fn reap(&mut self, all: &mut Vec<Completion>) {
        let end_ns = monotonic_ns() + 60_000_000_000;
        while self.path.in_flight() > 0 {
            assert!(monotonic_ns() < end_ns, "only {all:?} came back");
            self.turn(all);
        }
    }

    /// What was said of each of so many sends: the errno, and how often it was released.
    fn answers(all: &[Completion], sends: u32) -> Vec<(Sent, usize)> {
        let answers = (0..sends).map(|token| {
            let of: Vec<_> = all.iter().filter(|c| c.token == token).collect();
            let sent: Vec<_> = of.iter().filter_map(|c| c.sent).collect();
            assert_eq!(sent.len(), 1, "{token}: {of:?}");
            (sent[0], of.iter().filter(|c| c.released).count())
        });
        answers.collect()
    }

    fn put_down(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        slots.into_iter().for_each(|slot| self.slab.give_back(slot));
        self.pool.unpin(self.pin.take().expect("held"));
    }
}

fn areas() -> [Area; 2] {
    [
        Area::map_base(4 << 20).expect("a little memory"),
        Area::map(4 << 20).expect("a little memory"),
    ]
}

#[test]
fn what_a_full_connection_does_not_take_follows_in_order() {
    const SENDS: u32 = 201;
    for name in PathName::ALL {
        for area in areas() {
            let mut rig = rig(name, area);
            // Small enough that most sends meet a full socket.
            let fd = rig.sender.as_raw_fd();
            set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 32 << 10).expect("a TCP socket");
            rig.queue_chain(SENDS);
            let mut all = Vec::new();
            for _ in 0..20 {
                rig.turn(&mut all);
            }
            let answered = all.iter().filter(|c| c.sent.is_some()).count();
            assert!(answered < SENDS as usize / 2, "{name}: {answered}");
            let mut receiver = rig.receiver.try_clone().expect("a descriptor");
            let mut arrived = vec![0; rig.expected.len()];
            let reading = std::thread::spawn(move || {
                receiver.read_exact(&mut arrived).expect("all of it");
                arrived
            });
            rig.reap(&mut all);
            assert!(reading.join().expect("no panic") == rig.expected, "{name}");
            for (token, (sent, released)) in (0_u32..).zip(Rig::answers(&all, SENDS)) {
                assert_eq!((sent.errno, released), (0, 1), "{name}: {token}");
            }
            let sent: usize = all
                .iter()
                .filter_map(|c| c.sent)
                .map(|s| s.bytes as usize)
                .sum();
            assert_eq!(sent, rig.expected.len(), "{name}");
            let counters = rig.path.counters();
            assert_eq!(counters.trains_framed, 150, "{name}: {counters:?}");
            assert_eq!(counters.trains_own_headers, 0, "{name}: {counters:?}");
            rig.put_down();
        }
    }
}

#[test]
fn packets_are_copied_at_once_if_the_send_says_so() {
    let name = PathName::UringRegisteredZc;
    for area in areas() {
        let mut rig = rig(name, area);
        let refers = rig.path.vectored() == Vectored::ZeroCopy;
        let mut all = Vec::new();
        for (token, is_copied) in (0_u32..).zip([false, true]) {
            let mut send = rig.packets(0, 8 * STRIDE, token, false);
            send.is_copied = is_copied;
            rig.path.queue_stream(send);
            rig.reap(&mut all);
        }
        let released = all.iter().filter(|c| c.released);
        let told: Vec<_> = released.map(|c| (c.token, c.referred)).collect();
        // To this machine's own sockets the kernel copies in the end, and says so.
        let of_the_first = refers.then_some(false);
        assert_eq!(told, [(0, of_the_first), (1, None)]);
        let counters = rig.path.counters();
        assert_eq!(
            (counters.trains_framed, counters.trains_copied),
            (2, 2),
            "{counters:?}"
        );
        let mut arrived = vec![0; rig.expected.len()];
        rig.receiver.read_exact(&mut arrived).expect("all of it");
        assert!(arrived == rig.expected);
        rig.put_down();
    }
}

#[test]
fn what_was_queued_for_an_aborted_connection_is_answered() {
    const SENDS: u32 = 101;
    for name in PathName::ALL {
        for area in areas() {
            let mut rig = rig(name, area);
            prepare_stream(rig.sender.as_fd());
            set_option(
                rig.receiver.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                4096,
            )
            .expect("a TCP socket");
            set_option(rig.sender.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, 1)
                .expect("a TCP socket");
            rig.queue_chain(SENDS);
            let mut all = Vec::new();
            for _ in 0..10 {
                rig.turn(&mut all);
            }
            assert!(rig.path.in_flight() > 0, "{name}");
            abort_stream(rig.sender.as_fd());
            rig.reap(&mut all);
            // What a kernel says of memory that it never took would count against another send.
            for _ in 0..3 {
                rig.turn(&mut all);
            }
            let answers = Rig::answers(&all, SENDS);
            assert!(answers.iter().all(|&(_, released)| released == 1), "{name}");
            let (last, _) = answers.last().expect("there are sends");
            assert_ne!(last.errno, 0, "{name}");
            rig.put_down();
        }
    }
}
