//! The contract, run unchanged on every way: loopback, real sockets, every byte compared.

use std::time::Duration;

use std::io;

use onrush_lock::{Keep, Sealed};
use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use onrush_testkit::require_root;
use onrush_testkit::testbed::{self, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed};

use super::*;

const STRIDE: usize = 1328;
const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

/// Ways that this account can open here.
fn ways() -> Vec<Way> {
    Way::ALL
        .into_iter()
        .filter(|&way| open_way(&bind(LOOPBACKS[0]), way, &Options::default()).is_ok())
        .collect()
}

fn bind(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("loopback");
    let limit = Some(Duration::from_secs(60));
    socket.set_read_timeout(limit).expect("a time-out");
    socket
}

fn receivers(address: &str, count: usize) -> (Vec<UdpSocket>, Vec<SocketAddr>) {
    let sockets: Vec<_> = (0..count).map(|_| bind(address)).collect();
    let addresses = sockets.iter().map(address_of).collect();
    (sockets, addresses)
}

fn address_of(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("bound")
}

fn group(way: Way, address: &str) -> Group {
    let options = Options {
        way: Some(way),
        members_max: 64,
        area_bytes: 128 * 1024,
    };
    Group::open(bind(address), &options).expect("it opened before")
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| u8::try_from((i / STRIDE * 7 + i + seed) % 251).expect("below 251"))
        .collect()
}

/// The next packets that arrive are those of the train, and there are no more.
fn expect(receiver: &UdpSocket, train: &[u8], stride: usize) {
    let mut bytes = vec![0; 66_000];
    for (number, packet) in train.chunks(stride).enumerate() {
        let length = receiver.recv(&mut bytes).expect("a packet");
        assert!(bytes[..length] == *packet, "packet {number}");
    }
}

fn expect_nothing(receiver: &UdpSocket) {
    receiver.set_nonblocking(true).expect("a socket");
    let error = receiver.recv(&mut [0; 1]).expect_err("nothing more");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    receiver.set_nonblocking(false).expect("a socket");
}

#[test]
fn every_member_gets_every_datagram_once() {
    for way in ways() {
        for address in LOOPBACKS {
            let (sockets, addresses) = receivers(address, 9);
            let mut group = group(way, address);
            group.set_members(&addresses).expect("nine members");
            for bytes in [1, 100, 1000, 20_000] {
                let datagram = pattern(bytes, bytes);
                let sent = group.send(&datagram).expect("a datagram");
                assert_eq!((sent.packets, sent.refused), (9, 0), "{way} {address}");
                for socket in &sockets {
                    expect(socket, &datagram, bytes);
                }
            }
            sockets.iter().for_each(expect_nothing);
            for address in addresses {
                let counters = group.member_counters(address).expect("a member");
                assert_eq!((counters.packets, counters.refused), (4, 0));
            }
        }
    }
}

#[test]
fn trains_arrive_cut_from_memory_of_either_kind() {
    for way in ways() {
        for address in LOOPBACKS {
            let (sockets, addresses) = receivers(address, 3);
            let mut group = group(way, address);
            group.set_members(&addresses).expect("three members");
            // The last packet is shorter; trains and single packets take turns.
            let train = pattern(7 * STRIDE + 5, 3);
            for seed in 0..3 {
                let sent = group.send_train(&train, STRIDE).expect("a train");
                assert_eq!((sent.packets, sent.refused), (24, 0), "{way} {address}");
                let single = pattern(333, seed);
                group.send(&single).expect("a datagram");
                let registered = pattern(8 * STRIDE, seed + 9);
                let range = 4096..4096 + registered.len();
                let area = group.area_mut(range.clone()).expect("it is that large");
                area.copy_from_slice(&registered);
                group.send_registered(range, STRIDE).expect("a train");
                for socket in &sockets {
                    expect(socket, &train, STRIDE);
                    expect(socket, &single, 333);
                    expect(socket, &registered, STRIDE);
                }
            }
            sockets.iter().for_each(expect_nothing);
        }
    }
}

/// A message of two trains, which fits the receivers' buffers.
const MESSAGE_BYTES: usize = 52 * STRIDE + 7;

#[test]
fn a_message_of_any_length_leaves_from_where_it_lies() {
    for way in ways() {
        let (sockets, addresses) = receivers(LOOPBACKS[0], 3);
        let mut group = group(way, LOOPBACKS[0]);
        group.set_members(&addresses).expect("three members");
        let mut sealed = Sealed::map(MESSAGE_BYTES).expect("Linux 6.10");
        for (turn, is_sealed) in [(0, true), (1, true), (2, false), (3, false)] {
            let message = pattern(MESSAGE_BYTES, turn);
            let before = group.counters().crossings;
            let sent = if is_sealed {
                sealed[..MESSAGE_BYTES].copy_from_slice(&message);
                group.send_cached(&sealed[..MESSAGE_BYTES], STRIDE)
            } else {
                group.send_cached(&message, STRIDE)
            };
            let sent = sent.expect("it can be registered");
            assert_eq!((sent.packets, sent.refused), (3 * 53, 0), "{way}");
            if way == Way::Uring {
                // Both trains for all three at once.
                assert_eq!(group.counters().crossings - before, 1);
            }
            for socket in &sockets {
                expect(socket, &message, STRIDE);
            }
        }
        for bytes in [0, 1, STRIDE] {
            let short = pattern(bytes, 5);
            group.send_cached(&short, STRIDE).expect("one packet");
            for socket in &sockets {
                expect(socket, &short, STRIDE);
                if bytes == 0 {
                    assert_eq!(socket.recv(&mut [0; 9]).expect("an empty one"), 0);
                }
            }
        }
        sockets.iter().for_each(expect_nothing);
        let counters = group.cache_counters();
        let asked = (counters.hits, counters.misses, counters.uncached);
        // Sealed memory was found again; the rest was registered for its send alone.
        let expected = if way == Way::Uring {
            (1, 5, 4)
        } else {
            (0, 0, 0)
        };
        assert_eq!(asked, expected, "{way}");
        for stride in [0, TRAIN_BYTES_MAX + 1] {
            let refused = group.send_cached(b"no train", stride);
            assert!(matches!(refused, Err(GroupError::Train { .. })));
        }
    }
}

/// The danger of every cache: memory that goes and comes again at the same address, with others'
/// bytes in frames that nobody has registered.
#[test]
fn memory_that_was_mapped_anew_is_registered_anew() {
    if !ways().contains(&Way::Uring) {
        return;
    }
    let (sockets, addresses) = receivers(LOOPBACKS[0], 1);
    let mut group = group(Way::Uring, LOOPBACKS[0]);
    group.set_members(&addresses).expect("a member");
    let budget = |entries_max| Budget {
        keep: Keep::Watched,
        entries_max,
        bytes_max: 1 << 20,
    };
    for refused in [0, 16_385] {
        assert!(group.set_cache(budget(refused)).is_err());
    }
    group.set_cache(budget(4)).expect("a few are kept");
    let mut at: *mut libc::c_void = std::ptr::null_mut();
    for turn in 0..4 {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, and then over itself, when
        // nobody refers to it any more.
        at = unsafe { libc::mmap(at, MESSAGE_BYTES, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: mapped readable and writable for that length just now, and this test's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), MESSAGE_BYTES) };
        let message = pattern(MESSAGE_BYTES, turn);
        bytes.copy_from_slice(&message);
        for _ in 0..2 {
            group
                .send_cached(bytes, STRIDE)
                .expect("it can be registered");
            expect(&sockets[0], &message, STRIDE);
        }
    }
    let counters = group.cache_counters();
    assert_eq!((counters.hits, counters.misses), (4, 4));
    assert_eq!((counters.invalidations, counters.uncached), (3, 0));
    // SAFETY: what was mapped above, to which nobody refers any more.
    unsafe { libc::munmap(at, MESSAGE_BYTES) };
}

#[test]
fn an_empty_datagram_is_one() {
    for way in ways() {
        let (sockets, addresses) = receivers(LOOPBACKS[0], 2);
        let mut group = group(way, LOOPBACKS[0]);
        group.set_members(&addresses).expect("two members");
        assert_eq!(group.send(&[]).expect("a datagram").packets, 2, "{way}");
        for socket in &sockets {
            assert_eq!(socket.recv(&mut [0; 8]).expect("a packet"), 0);
            expect_nothing(socket);
        }
    }
}

#[test]
fn a_send_goes_to_who_is_a_member_then() {
    for way in ways() {
        let (sockets, addresses) = receivers(LOOPBACKS[0], 6);
        let mut group = group(way, LOOPBACKS[0]);
        let mut expected = [0; 6];
        let mut send = |group: &mut Group, to: &[usize]| {
            let sent = group.send(b"now").expect("a datagram");
            assert_eq!(sent.packets, to.len() as u64, "{way}");
            to.iter().for_each(|&i| expected[i] += 1);
        };
        send(&mut group, &[]);
        group.set_members(&addresses[..3]).expect("room");
        send(&mut group, &[0, 1, 2]);
        assert!(group.add(addresses[5]).expect("room"));
        assert!(!group.add(addresses[5]).expect("known"));
        assert!(group.remove(addresses[0]));
        assert!(!group.remove(addresses[0]));
        send(&mut group, &[1, 2, 5]);
        // The last took the slot of the first: both are still found.
        assert!(group.remove(addresses[5]));
        assert!(group.remove(addresses[2]));
        send(&mut group, &[1]);
        let twice = [addresses[4], addresses[3], addresses[4]];
        group.set_members(&twice).expect("room");
        assert_eq!(group.len(), 2);
        send(&mut group, &[3, 4]);
        for (socket, count) in sockets.iter().zip(expected) {
            (0..count).for_each(|_| expect(socket, b"now", 3));
            expect_nothing(socket);
        }
        // 0 + 3 + 3 + 1 + 2, though most have left.
        let counters = group.counters();
        assert_eq!((counters.sends, counters.packets), (5, 9), "{way}");
    }
}

#[test]
fn a_member_that_cannot_be_sent_to_keeps_nobody_waiting() {
    for way in ways() {
        let (sockets, addresses) = receivers(LOOPBACKS[0], 4);
        let mut group = group(way, LOOPBACKS[0]);
        // Broadcast needs SO_BROADCAST, which this socket has not: EACCES.
        let refused: SocketAddr = "255.255.255.255:9".parse().expect("an address");
        group.set_members(&addresses[..2]).expect("room");
        group.add(refused).expect("room");
        group.add(addresses[2]).expect("room");
        group.add(addresses[3]).expect("room");
        for train in [pattern(100, 1), pattern(4 * STRIDE, 2)] {
            let packets = train.len().div_ceil(STRIDE) as u64;
            let sent = group.send_train(&train, STRIDE).expect("a train");
            assert_eq!(
                (sent.packets, sent.refused),
                (4 * packets, packets),
                "{way}"
            );
            sockets.iter().for_each(|s| expect(s, &train, STRIDE));
        }
        let counters = group.member_counters(refused).expect("a member");
        assert_eq!((counters.packets, counters.refused), (0, 5));
        assert_eq!(counters.errno_last, libc::EACCES);
        assert_eq!(group.counters().refused, 5);
    }
}

/// Who sends may be a member, and so may another group's socket: it gets what is sent, as anybody
/// does, and sends nothing on.
#[test]
fn the_sender_and_other_groups_are_members_like_any() {
    for way in ways() {
        let (sockets, mut addresses) = receivers(LOOPBACKS[0], 1);
        let [mut group, mut other] = [(); 2].map(|()| group(way, LOOPBACKS[0]));
        addresses.extend([address_of(group.socket()), address_of(other.socket())]);
        // The other one's members are the first one, and the receiver.
        let others = [addresses[1], addresses[0]];
        other.set_members(&others).expect("room");
        group.set_members(&addresses).expect("room");
        let sent = group.send(b"round").expect("a datagram");
        assert_eq!((sent.packets, sent.refused), (3, 0), "{way}");
        for socket in [&sockets[0], group.socket(), other.socket()] {
            expect(socket, b"round", 5);
            expect_nothing(socket);
        }
    }
}

/// A group of hosts is one member: its packet is sent once, and they all get it.
#[test]
fn a_multicast_address_is_one_member() {
    let to: SocketAddr = "239.77.0.1:0".parse().expect("an address");
    for way in ways() {
        let (sockets, mut addresses) = receivers(LOOPBACKS[0], 1);
        let here = std::net::Ipv4Addr::LOCALHOST;
        let host = bind("0.0.0.0:0");
        let SocketAddr::V4(hosts) = to else {
            unreachable!("it is written above");
        };
        host.join_multicast_v4(hosts.ip(), &here).expect("loopback");
        addresses.push(SocketAddr::new(to.ip(), address_of(&host).port()));
        let socket = bind(LOOPBACKS[0]);
        let raw = socket2::SockRef::from(&socket);
        raw.set_multicast_if_v4(&here).expect("loopback");
        let options = Options {
            way: Some(way),
            ..Options::default()
        };
        let mut group = Group::open(socket, &options).expect("it opened before");
        group.set_members(&addresses).expect("room");
        let sent = group.send(b"to hosts").expect("a datagram");
        assert_eq!((sent.packets, sent.refused), (2, 0), "{way}");
        for socket in [&sockets[0], &host] {
            expect(socket, b"to hosts", 8);
            expect_nothing(socket);
        }
    }
}

/// The kernel wants SO_BROADCAST for it, and says so for that member alone.
#[test]
fn a_broadcast_address_is_refused_to_itself_alone() {
    for way in ways() {
        let (sockets, mut addresses) = receivers("127.0.0.1:0", 2);
        let broadcast = "127.255.255.255:9".parse().expect("an address");
        addresses.insert(1, broadcast);
        let mut group = group(way, "127.0.0.1:0");
        group.set_members(&addresses).expect("room");
        let sent = group.send(b"not for all").expect("a datagram");
        assert_eq!((sent.packets, sent.refused), (2, 1), "{way}");
        let counters = group.member_counters(broadcast).expect("a member");
        assert_eq!((counters.refused, counters.errno_last), (1, libc::EACCES));
        for socket in &sockets {
            expect(socket, b"not for all", STRIDE);
            expect_nothing(socket);
        }
    }
}

#[test]
fn a_million_adds_end_at_the_limit() {
    let ways = ways();
    let each = 1_000_000 / u32::try_from(ways.len()).expect("a few");
    for way in ways {
        let mut group = group(way, LOOPBACKS[0]);
        let mut added = 0;
        for number in 0..each {
            let ip = std::net::Ipv4Addr::from_bits(0x7f00_0001 + number);
            match group.add(SocketAddr::from((ip, 9))) {
                Ok(is_new) => added += u32::from(is_new),
                Err(GroupError::MembersMax { members_max: 64 }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((added, group.len()), (64, 64), "{way}");
    }
}

#[test]
fn a_socket_of_ipv6_reaches_both_families() {
    for way in ways() {
        let ((six, six_addresses), (four, four_addresses)) =
            (receivers(LOOPBACKS[1], 2), receivers(LOOPBACKS[0], 2));
        let mut group = group(way, "[::]:0");
        let all: Vec<_> = six_addresses.into_iter().chain(four_addresses).collect();
        group.set_members(&all).expect("room");
        assert_eq!(group.send(b"both").expect("a datagram").packets, 4, "{way}");
        for socket in six.iter().chain(&four) {
            expect(socket, b"both", 4);
            expect_nothing(socket);
        }
    }
}

#[test]
fn limits_hold_and_leave_the_group_as_it_was() {
    for way in ways() {
        let mut group = group(way, LOOPBACKS[0]);
        let addresses: Vec<_> = (1..=65)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect();
        group.set_members(&addresses[..64]).expect("64 fit");
        assert!(matches!(
            group.set_members(&addresses),
            Err(GroupError::MembersMax { members_max: 64 })
        ));
        assert!(matches!(
            group.add(addresses[64]),
            Err(GroupError::MembersMax { .. })
        ));
        assert_eq!(group.len(), 64);
        let mut repeated = addresses[..64].to_vec();
        repeated.push(addresses[0]);
        group.set_members(&repeated).expect("64 are distinct");
        let ipv6: SocketAddr = "[::1]:9".parse().expect("an address");
        assert!(matches!(
            group.set_members(&[ipv6]),
            Err(GroupError::Family { .. })
        ));
        assert_eq!(group.len(), 64);
        group.set_members(&[]).expect("nobody");
        assert!(group.is_empty());
        for (bytes, stride, fits) in [
            (TRAIN_BYTES_MAX, 1100, true),
            (TRAIN_BYTES_MAX + 1, 1100, false),
            (TRAIN_PACKETS_MAX * 10, 10, true),
            (TRAIN_PACKETS_MAX * 10 + 1, 10, false),
            (10, 0, false),
        ] {
            let sent = group.send_train(&vec![0; bytes], stride);
            assert_eq!(sent.is_ok(), fits, "{bytes} {stride}");
        }
        let end = 128 * 1024;
        group.area_mut(end - 1..end).expect("its last byte");
        assert!(matches!(
            group.area_mut(end..end + 1),
            Err(GroupError::Outside { .. })
        ));
        assert!(group.send_registered(end - 1..end + 1, 1).is_err());
    }
    for (members_max, fits) in [(MEMBERS_MAX, true), (MEMBERS_MAX + 1, false)] {
        let options = Options {
            way: Some(Way::Loop),
            members_max,
            area_bytes: 0,
        };
        assert_eq!(Group::open(bind(LOOPBACKS[0]), &options).is_ok(), fits);
    }
}

#[test]
fn crossings_are_what_the_way_promises() {
    for (way, single, train) in [(Way::Loop, 40, 320), (Way::Sendmmsg, 1, 1)] {
        let mut group = group(way, LOOPBACKS[0]);
        let (_sockets, addresses) = receivers(LOOPBACKS[0], 40);
        group.set_members(&addresses).expect("room");
        group.send(b"one").expect("a datagram");
        assert_eq!(group.counters().crossings, single, "{way}");
        group
            .send_train(&pattern(8 * 100, 1), 100)
            .expect("a train");
        assert_eq!(group.counters().crossings, single + train, "{way}");
    }
}

#[test]
fn a_way_has_one_name_and_the_choice_is_explained() {
    for way in Way::ALL {
        assert_eq!(way.as_str().parse(), Ok(way));
    }
    let error = "quick".parse::<Way>().expect_err("no such way");
    assert!(error.contains("kernel, uring, sendmmsg, loop"), "{error}");
    let group = Group::open(bind(LOOPBACKS[0]), &Options::default()).expect("always");
    assert!(!group.reason().is_empty());
}

#[test]
fn without_a_program_every_way_is_tried_and_no_packet_lost() {
    let (sockets, addresses) = receivers(LOOPBACKS[0], 5);
    let options = Options {
        area_bytes: 64 * 1024,
        ..Options::default()
    };
    let mut group =
        Group::open_by(bind(LOOPBACKS[0]), &options, choose_without_program).expect("always");
    assert!(group.reason().contains("measured"), "{}", group.reason());
    group.set_members(&addresses).expect("room");
    let is_ring = ways().contains(&Way::Uring);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let single = pattern(300, seed);
        let sent = group.send(&single).expect("a datagram");
        assert_eq!((sent.packets, sent.refused), (5, 0));
        seen.insert(group.way());
        // Bytes that the ring has registered, by whichever way.
        let train = pattern(3 * STRIDE, seed);
        let area = group.area_mut(0..train.len()).expect("it is that large");
        area.copy_from_slice(&train);
        let sent = group.send_registered(0..train.len(), STRIDE);
        assert_eq!(sent.expect("a train").packets, 15);
        for socket in &sockets {
            expect(socket, &single, 300);
            expect(socket, &train, STRIDE);
        }
    }
    sockets.iter().for_each(expect_nothing);
    assert_eq!(seen.contains(&Way::Uring), is_ring);
    assert!(
        seen.contains(&Way::Sendmmsg) && seen.contains(&Way::Loop),
        "{seen:?}"
    );
    let counters = group.counters();
    assert_eq!(counters.zero_copy + counters.copied > 0, is_ring);
    assert_eq!((counters.packets, counters.refused), (30 * 20, 0));
}

/// A group in a testbed, its receivers at the other end, and their addresses.
fn across_devices(way: Way) -> (Testbed, Group, Vec<UdpSocket>, Vec<SocketAddr>) {
    let testbed = Testbed::new(testbed::Options::default()).expect("root");
    let to = format!("{RCV_IPV4}:0");
    let (sockets, addresses) = testbed.rcv.run(|| receivers(&to, 2));
    let from = format!("{SND_IPV4}:0");
    let mut group = testbed.snd.run(|| group(way, &from));
    group.set_members(&addresses).expect("room");
    (testbed, group, sockets, addresses)
}

/// The kernel keeps what is for it until the address was asked for in vain, which takes seconds.
#[test]
fn a_member_that_does_not_resolve_is_not_waited_for() {
    require_root!();
    let (_testbed, mut group, sockets, _) = across_devices(Way::Uring);
    // On the link, and nobody's.
    group
        .add("10.77.0.200:9".parse().expect("an address"))
        .expect("room");
    for seed in 0..40 {
        let train = pattern(3 * STRIDE, seed);
        let sent = group.send_train(&train, STRIDE).expect("a train");
        assert_eq!((sent.packets, sent.refused), (9, 0), "train {seed}");
        sockets.iter().for_each(|it| expect(it, &train, STRIDE));
    }
    let Sender::Uring(uring) = &group.sender else {
        unreachable!("it was asked for");
    };
    // What found no copy free went without the ring.
    assert!(format!("{uring:?}").contains("waits: 0"), "{uring:?}");
}

#[test]
fn a_train_that_exceeds_a_path_leaves_as_packets() {
    require_root!();
    for way in [Way::Uring, Way::Sendmmsg] {
        let (testbed, mut group, sockets, addresses) = across_devices(way);
        let route = format!("route add {RCV_IPV4}/32 dev {SND_DEVICE} mtu 1000");
        testbed.snd.tool("ip", route.split(' ')).expect("a route");
        let train = pattern(3 * STRIDE, 1);
        for turn in 1..=2 {
            let sent = group.send_train(&train, STRIDE).expect("a train");
            assert_eq!((sent.packets, sent.refused), (6, 0), "{way}");
            assert_eq!(group.counters().trains_cut, 2 * turn, "{way}");
            sockets.iter().for_each(|it| expect(it, &train, STRIDE));
        }
        // A train that fits goes whole.
        let train = pattern(3 * 900, 2);
        group.send_train(&train, 900).expect("a train");
        assert_eq!(group.counters().trains_cut, 4, "{way}");
        sockets.iter().for_each(|it| expect(it, &train, 900));
        for address in addresses {
            let counters = group.member_counters(address).expect("a member");
            assert_eq!((counters.packets, counters.refused), (9, 0), "{way}");
        }
    }
}

/// Whoever has kept a descriptor of the socket sends by it as before.
#[test]
fn a_socket_is_as_it_was_when_its_group_goes() {
    let options_of = |socket: &UdpSocket| -> [i32; 2] {
        [
            network::option(socket, libc::SOL_UDP, libc::UDP_SEGMENT).expect("Linux 4.18"),
            network::option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF).expect("an option"),
        ]
    };
    for way in ways() {
        for segment in [0, 1000] {
            let socket = bind(LOOPBACKS[0]);
            let fd = socket.as_raw_fd();
            let set = onrush_sys::path::set_option;
            set(fd, libc::SOL_UDP, libc::UDP_SEGMENT, segment).expect("Linux 4.18");
            set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 50_000).expect("an option");
            let before = options_of(&socket);
            let (sockets, addresses) = receivers(LOOPBACKS[0], 2);
            let options = Options {
                way: Some(way),
                ..Options::default()
            };
            let kept = socket.try_clone().expect("a descriptor");
            let mut group = Group::open(socket, &options).expect("it opened before");
            group.set_members(&addresses).expect("room");
            // Not cut as the program wanted its own datagrams to be.
            let datagram = pattern(3000, 1);
            group.send(&datagram).expect("a datagram");
            group.send_train(&datagram, 500).expect("a train");
            for receiver in &sockets {
                expect(receiver, &datagram, 3000);
                expect(receiver, &datagram, 500);
            }
            drop(group);
            assert_eq!(options_of(&kept), before, "{way}, {segment}");
            kept.send_to(&datagram, addresses[0]).expect("a datagram");
            let of_program = if segment == 0 { 3000 } else { 1000 };
            expect(&sockets[0], &datagram, of_program);
        }
    }
}
