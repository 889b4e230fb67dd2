//! Groups over real devices: who gets what, with which checksum, and what is left when they go.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use aya::maps::{HashOfMaps, Map, MapData, MapInfo};
use aya::programs::{ProgramInfo, SchedClassifier, TcAttachType};
use onrush_group::{Group, Options, Way};
use onrush_testkit::netns::Netns;
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{
    self, Mode, RCV_DEVICE, RCV_IPV4, RCV_IPV6, RCV_MAC, SND_DEVICE, SND_IPV4, SND_IPV6, Testbed,
};

const STRIDE: usize = 1328;
const LONG: Duration = Duration::from_secs(60);

struct Rig {
    testbed: Testbed,
    receivers: Vec<UdpSocket>,
    addresses: Vec<SocketAddr>,
}

/// A testbed with receivers at several addresses behind `v1`.
fn rig(addresses: &[IpAddr], each: usize) -> Rig {
    // Datagrams are looked for in their order.
    testbed::stay_on_one_processor();
    let testbed = Testbed::new(testbed::Options::default()).unwrap();
    // Else veth vouches for every checksum, and nobody looks.
    testbed
        .rcv
        .tool("ethtool", ["-K", RCV_DEVICE, "rx", "off"])
        .unwrap();
    let mut receivers = Vec::new();
    for &ip in addresses {
        if ip != RCV_IPV4 && ip != RCV_IPV6 {
            let bits = if ip.is_ipv4() { 24 } else { 64 };
            tool(
                &testbed.rcv,
                &format!("addr add {ip}/{bits} dev {RCV_DEVICE}"),
            );
            know(&testbed.snd, ip);
        }
        receivers.extend((0..each).map(|_| receiver(&testbed.rcv, ip)));
    }
    let addresses = receivers.iter().map(|r| r.local_addr().unwrap()).collect();
    Rig {
        testbed,
        receivers,
        addresses,
    }
}

fn tool(netns: &Netns, command: &str) {
    netns.tool("ip", command.split(' ')).unwrap();
}

fn know(netns: &Netns, ip: IpAddr) {
    tool(
        netns,
        &format!("neigh replace {ip} lladdr {RCV_MAC} dev {SND_DEVICE} nud permanent"),
    );
}

fn receiver(netns: &Netns, ip: IpAddr) -> UdpSocket {
    // An IPv6 address is tentative for a second or two.
    let give_up = Instant::now() + LONG;
    let socket = loop {
        match netns.run(|| UdpSocket::bind((ip, 0))) {
            Ok(socket) => break socket,
            Err(error) => assert!(Instant::now() < give_up, "{ip}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

impl Rig {
    fn group(&self, way: Way, from: IpAddr) -> Group {
        open(&self.testbed, way, from)
    }

    /// Sends a datagram and a train of three; every receiver gets just that.
    fn exchange(&self, group: &mut Group, to: &[usize], what: &str) {
        let seed = group.counters().sends;
        let (single, train) = (pattern(100, seed), pattern(2 * STRIDE + 7, seed + 1));
        let sent = group.send(&single).unwrap();
        assert_eq!((sent.packets, sent.refused), (to.len() as u64, 0), "{what}");
        let sent = group.send_train(&train, STRIDE).unwrap();
        assert_eq!(
            (sent.packets, sent.refused),
            (3 * to.len() as u64, 0),
            "{what}"
        );
        let mut bytes = [0; 2000];
        for &i in to {
            for packet in std::iter::once(&single[..]).chain(train.chunks(STRIDE)) {
                let address = self.addresses[i];
                let length = self.receivers[i].recv(&mut bytes);
                let length = length.unwrap_or_else(|error| panic!("{what}: {address}: {error}"));
                assert!(bytes[..length] == *packet, "{what}: {address}");
            }
        }
    }

    fn expect_silence(&self) {
        for receiver in &self.receivers {
            receiver.set_nonblocking(true).unwrap();
            assert!(
                receiver.recv(&mut [0; 1]).is_err(),
                "nobody gets anything twice"
            );
            receiver.set_nonblocking(false).unwrap();
        }
    }
}

fn open(testbed: &Testbed, way: Way, from: IpAddr) -> Group {
    let socket = testbed.snd.run(|| UdpSocket::bind((from, 0))).unwrap();
    open_on(socket, way)
}

fn open_on(socket: UdpSocket, way: Way) -> Group {
    let options = Options {
        way: Some(way),
        members_max: 20_000,
        area_bytes: 0,
    };
    Group::open(socket, &options).unwrap()
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let byte = |i: u64| u8::try_from((i * 7 + seed * 13 + i / 1328) % 251).unwrap();
    (0..bytes as u64).map(byte).collect()
}

/// UDP's counters of a namespace: `UdpInCsumErrors`, `Udp6InCsumErrors` and so on.
fn udp_counters(netns: &Netns) -> HashMap<String, u64> {
    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let (snmp, snmp6) = netns.run(|| (read("snmp"), read("snmp6")));
    let lines: Vec<_> = snmp
        .lines()
        .filter(|line| line.starts_with("Udp:"))
        .collect();
    let old = lines[0].split(' ').zip(lines[1].split(' ')).skip(1);
    let old = old.map(|(name, value)| (format!("Udp{name}"), value.parse().unwrap()));
    let new = snmp6
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace));
    let new = new.map(|(name, value)| (name.to_owned(), value.trim().parse().unwrap()));
    old.chain(new).collect()
}

const MANY_IPV4: [IpAddr; 3] = [
    IpAddr::V4(RCV_IPV4),
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 99)),
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 254)),
];
const MANY_IPV6: [IpAddr; 3] = [
    IpAddr::V6(RCV_IPV6),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0xffff, 0xfffe, 0xabcd, 0x99)),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0xffff, 0xffff)),
];

/// What the sending device does, less and less of it.
const OFFLOADS: [&[&str]; 3] = [
    &["tx", "on", "sg", "on", "tx-udp-segmentation", "on"],
    &["tx-udp-segmentation", "off"],
    &["tx", "off", "sg", "off"],
];

/// All ways, both families, each way a device may offload: the checksum means something else in
/// each.
// SPECIFICATION.md: 54
#[test]
fn every_member_gets_every_datagram_with_a_right_checksum() {
    onrush_testkit::require_root!();
    let rig = rig(&[MANY_IPV4, MANY_IPV6].concat(), 4);
    for offload in OFFLOADS {
        let features = ["-K", SND_DEVICE].iter().chain(offload);
        rig.testbed.snd.tool("ethtool", features).unwrap();
        for way in Way::ALL {
            for (from, first) in [(IpAddr::from(SND_IPV4), 0), (SND_IPV6.into(), 12)] {
                let what = format!("{way} from {from} with {offload:?}");
                let before = udp_counters(&rig.testbed.rcv);
                let mut group = rig.group(way, from);
                group
                    .set_members(&rig.addresses[first..first + 12])
                    .unwrap();
                let to: Vec<usize> = (first..first + 12).collect();
                for _ in 0..20 {
                    rig.exchange(&mut group, &to, &what);
                }
                rig.expect_silence();
                let after = udp_counters(&rig.testbed.rcv);
                for name in [
                    "UdpInCsumErrors",
                    "Udp6InCsumErrors",
                    "UdpInErrors",
                    "Udp6InErrors",
                ] {
                    assert_eq!(after[name], before[name], "{what}: {name}");
                }
                if way == Way::Kernel {
                    let counters = group.counters();
                    assert_eq!(
                        (counters.members_in_lanes, counters.passes),
                        (12, 40),
                        "{what}"
                    );
                    assert_eq!(
                        (counters.clones, counters.passes_missed),
                        (40 * 12, 0),
                        "{what}"
                    );
                }
                for &i in &to {
                    let counters = group.member_counters(rig.addresses[i]).unwrap();
                    assert_eq!((counters.packets, counters.refused), (80, 0), "{what}");
                }
            }
        }
    }
}

/// A hundred replacements for every second that ONRUSH_GROUP_SECONDS says, one second's without it,
/// by each way and over each IP version, while devices offload less and less.
#[test]
fn groups_may_change_under_fire() {
    onrush_testkit::require_root!();
    let rig = rig(&[MANY_IPV4, MANY_IPV6].concat(), 8);
    let seconds = std::env::var("ONRUSH_GROUP_SECONDS").map_or(1, |s| s.parse().unwrap());
    let before = udp_counters(&rig.testbed.rcv);
    for way in Way::ALL {
        for (from, first) in [(IpAddr::from(SND_IPV4), 0), (SND_IPV6.into(), 24)] {
            let mut group = rig.group(way, from);
            for (third, offload) in (0..).zip(OFFLOADS) {
                let features = ["-K", SND_DEVICE].iter().chain(offload);
                rig.testbed.snd.tool("ethtool", features).unwrap();
                let what = format!("{way} from {from} with {offload:?}");
                change_under_fire(&rig, &mut group, first, seconds * 34, third, &what);
            }
            if way == Way::Kernel {
                assert_eq!(group.counters().passes_missed, 0);
                assert!(group.counters().clones > 0);
            }
        }
    }
    let after = udp_counters(&rig.testbed.rcv);
    for name in ["UdpInCsumErrors", "Udp6InCsumErrors"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}

/// Replaces the group, and then changes it once more, before each exchange.
fn change_under_fire(
    rig: &Rig,
    group: &mut Group,
    first: usize,
    changes: u64,
    seed: u64,
    what: &str,
) {
    let mut random = 88_172_645_463_325_252_u64 ^ seed;
    for change in 0..changes {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut members: Vec<_> = (0..24).filter(|i| random >> (i + 8) & 1 == 1).collect();
        members.iter_mut().for_each(|i| *i += first);
        let addresses: Vec<_> = members.iter().map(|&i| rig.addresses[i]).collect();
        group.set_members(&addresses).unwrap();
        let i = first + usize::try_from(random % 24).unwrap();
        let was_member = members.contains(&i);
        members.retain(|&member| member != i);
        if change % 2 == 0 {
            assert_eq!(group.remove(rig.addresses[i]), was_member, "{what}");
        } else {
            assert_eq!(group.add(rig.addresses[i]).unwrap(), !was_member, "{what}");
            members.push(i);
        }
        rig.exchange(group, &members, &format!("{what}, change {change}"));
    }
    rig.expect_silence();
}

/// Two devices, a gateway, loopback, both families, from a socket that is bound to none.
#[test]
fn members_may_be_anywhere() {
    onrush_testkit::require_root!();
    let mut rig = rig(&[RCV_IPV4.into(), RCV_IPV6.into()], 3);
    let (snd, rcv) = (&rig.testbed.snd, &rig.testbed.rcv);
    let peer = rcv.path();
    tool(
        snd,
        &format!(
            "link add w0 type veth peer name w1 netns {}",
            peer.display()
        ),
    );
    // The sender's last: with somebody at the other end it may send as soon as it is up.
    for (netns, device, ip) in [(rcv, "w1", "10.78.0.2/24"), (snd, "w0", "10.78.0.1/24")] {
        tool(netns, &format!("addr add {ip} dev {device}"));
        tool(netns, &format!("link set {device} up"));
    }
    tool(rcv, "addr add 10.79.0.2/32 dev lo");
    tool(snd, &format!("route add 10.79.0.0/24 via {RCV_IPV4}"));
    let more = [
        (rcv, "10.78.0.2"),
        (rcv, "10.79.0.2"),
        (snd, "127.0.0.1"),
        (snd, "127.0.0.7"),
        (snd, "::1"),
    ];
    let more = more.map(|(netns, ip)| [0, 1].map(|_| receiver(netns, ip.parse().unwrap())));
    let more: Vec<_> = more.into_iter().flatten().collect();
    rig.addresses
        .extend(more.iter().map(|r| r.local_addr().unwrap()));
    rig.receivers.extend(more);
    let all: Vec<_> = (0..rig.addresses.len()).collect();
    let mut group = rig.group(Way::Kernel, Ipv6Addr::UNSPECIFIED.into());
    group.set_members(&rig.addresses).unwrap();
    // The neighbour behind the second device is not known at first; the news of it brings its
    // members into a lane.
    assert_eq!(group.counters().members_in_lanes, all.len() - 2);
    let give_up = Instant::now() + LONG;
    while group.counters().members_in_lanes < all.len() && Instant::now() < give_up {
        rig.exchange(&mut group, &all, "everywhere");
    }
    assert_eq!(group.counters().members_in_lanes, all.len());
    let before = group.counters();
    rig.exchange(&mut group, &all, "everywhere");
    rig.expect_silence();
    // Lanes: the first device and loopback in each family, the second device in one.
    let after = group.counters();
    assert_eq!(after.passes_missed, 0);
    assert!(after.passes - before.passes >= 2 * 5, "{after:?}");
}

/// A device that goes down and comes back.
#[test]
fn the_network_may_change_between_two_sends() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into()], 4);
    let mut group = rig.group(Way::Kernel, Ipv4Addr::UNSPECIFIED.into());
    group.set_members(&rig.addresses).unwrap();
    rig.exchange(&mut group, &[0, 1, 2, 3], "before");
    assert_eq!(group.counters().members_in_lanes, 4);
    tool(&rig.testbed.snd, &format!("link set {SND_DEVICE} down"));
    let give_up = Instant::now() + LONG;
    while group.counters().members_in_lanes > 0 && Instant::now() < give_up {
        group.send(b"lost").unwrap();
    }
    let sent = group.send(b"lost").unwrap();
    assert_eq!((sent.packets, sent.refused), (0, 4), "no route is left");
    tool(&rig.testbed.snd, &format!("link set {SND_DEVICE} up"));
    know(&rig.testbed.snd, RCV_IPV4.into());
    while group.counters().members_in_lanes < 4 && Instant::now() < give_up {
        group.send(b"found again").unwrap();
    }
    assert_eq!(group.counters().members_in_lanes, 4);
    for receiver in &rig.receivers {
        // What was sent meanwhile comes first.
        receiver.set_nonblocking(true).unwrap();
        while receiver.recv(&mut [0; 100]).is_ok() {}
        receiver.set_nonblocking(false).unwrap();
    }
    rig.exchange(&mut group, &[0, 1, 2, 3], "after");
}

/// The device is renamed, goes to another namespace and comes back, and is taken away at last:
/// members get all while there is a way to them, and are counted as refused while there is none.
#[test]
fn a_device_may_be_renamed_moved_and_removed() {
    onrush_testkit::require_root!();
    // So that what was sent last comes last.
    testbed::stay_on_one_processor();
    let rig = rig(&[RCV_IPV4.into()], 3);
    let snd = &rig.testbed.snd;
    let elsewhere = Netns::new().unwrap();
    let mut group = rig.group(Way::Kernel, Ipv4Addr::UNSPECIFIED.into());
    group.set_members(&rig.addresses).unwrap();
    let all = [0, 1, 2];
    rig.exchange(&mut group, &all, "before");
    assert_eq!(group.counters().members_in_lanes, 3);
    let until = |group: &mut Group, reached: bool, what: &str| {
        let give_up = Instant::now() + LONG;
        while (group.send(b"try").unwrap().refused == 0) != reached {
            assert!(Instant::now() < give_up, "{what}");
            // Not more than receivers have room for.
            std::thread::sleep(Duration::from_millis(5));
        }
        if reached {
            assert_eq!(group.send(b"reached").unwrap().refused, 0, "{what}");
            rig.receivers.iter().for_each(|receiver| {
                let mut bytes = [0; 100];
                while receiver.recv(&mut bytes).unwrap() != b"reached".len() {}
            });
        }
    };
    let come_back = |device: &str| {
        let lladdr = format!("lladdr {RCV_MAC} dev {device} nud permanent");
        tool(snd, &format!("link set {device} up"));
        tool(snd, &format!("neigh replace {RCV_IPV4} {lladdr}"));
    };
    tool(snd, &format!("link set {SND_DEVICE} down"));
    until(&mut group, false, "it is down");
    tool(snd, &format!("link set {SND_DEVICE} name other0"));
    come_back("other0");
    until(&mut group, true, "it is renamed");
    rig.exchange(&mut group, &all, "renamed");

    let other = elsewhere.path().display().to_string();
    tool(snd, &format!("link set other0 netns {other}"));
    until(&mut group, false, "it is elsewhere");
    let here = snd.path().display().to_string();
    tool(&elsewhere, &format!("link set other0 netns {here}"));
    tool(snd, &format!("addr add {SND_IPV4}/24 dev other0"));
    come_back("other0");
    until(&mut group, true, "it is here again");
    rig.exchange(&mut group, &all, "here again");

    tool(snd, "link del other0");
    until(&mut group, false, "it is gone");
    let sent = group.send(b"nobody").unwrap();
    assert_eq!((sent.packets, sent.refused), (0, 3));
}

/// More members than veth's far end queues packets in one pass, in both modes, and two groups on
/// one device.
#[test]
fn thousands_of_members_are_reached_whole() {
    onrush_testkit::require_root!();
    const FIRST: u16 = 20_000;
    const MEMBERS: u16 = 20_000;
    let mut testbed = Testbed::new(testbed::Options::default()).unwrap();
    let ports = FIRST..=FIRST + (MEMBERS - 1);
    let mut sink = Sink::attach(&testbed.rcv, RCV_DEVICE, ports.clone()).unwrap();
    let members: Vec<_> = ports
        .map(|port| SocketAddr::from((RCV_IPV4, port)))
        .collect();
    for mode in [Mode::Uso, Mode::SoftwareGso] {
        testbed.set_mode(mode).unwrap();
        sink.reset().unwrap();
        let mut groups = [0, 1].map(|_| open(&testbed, Way::Kernel, SND_IPV4.into()));
        for group in &mut groups {
            group.set_members(&members).unwrap();
        }
        let mut refused = 0;
        for group in &mut groups {
            group.send(&pattern(100, 1)).unwrap();
            group.send_train(&pattern(4 * 500, 1), 500).unwrap();
            let counters = group.counters();
            assert_eq!(counters.passes_missed, 0);
            assert!(counters.passes >= 2 * u64::from(MEMBERS) / 1000);
            // On a processor that others load too a queue may be full; seldom, and not unseen.
            assert!(counters.refused < u64::from(MEMBERS), "{counters:?}");
            refused += counters.refused;
        }
        let expected = 2 * 5 * u64::from(MEMBERS) - refused;
        let give_up = Instant::now() + LONG;
        let arrived = || sink.totals().unwrap().packets;
        while arrived() < expected && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(arrived(), expected);
    }
}

/// What the device's queue has dropped is what the members were refused, whoever was the last of a
/// pass.
#[test]
fn a_full_queue_is_seen_for_every_member() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into()], 3);
    let mut group = rig.group(Way::Kernel, SND_IPV4.into());
    group.set_members(&rig.addresses).unwrap();
    let before = udp_counters(&rig.testbed.snd)["UdpSndbufErrors"];
    let queue = "qdisc add dev DEVICE root tbf rate 8kbit burst 1600 limit 4000";
    let queue = queue.replace("DEVICE", SND_DEVICE);
    rig.testbed.snd.tool("tc", queue.split(' ')).unwrap();
    const SENDS: u64 = 100;
    for seed in 0..SENDS {
        group.send(&pattern(100, seed)).unwrap();
    }
    let shown = ["-s", "qdisc", "show", "dev", SND_DEVICE];
    let shown = rig.testbed.snd.tool("tc", shown).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let dropped = shown.split("dropped ").nth(1).unwrap();
    let dropped: u64 = dropped.split(',').next().unwrap().parse().unwrap();
    let counters = group.counters();
    assert_eq!((counters.passes, counters.passes_missed), (SENDS, 0));
    assert!(dropped > SENDS, "the queue is too long: {shown}");
    assert_eq!(counters.refused, dropped);
    assert_eq!(counters.packets + counters.refused, 3 * SENDS);
    let members = rig.addresses.iter().map(|&at| group.member_counters(at));
    let members: Vec<_> = members.flatten().collect();
    assert_eq!(members.iter().map(|it| it.refused).sum::<u64>(), dropped);
    for member in members {
        assert_eq!(member.packets + member.refused, SENDS);
        assert_eq!(member.errno_last, libc::ENOBUFS, "{member:?}");
    }
    // The socket has nothing to do with it.
    let after = udp_counters(&rig.testbed.snd)["UdpSndbufErrors"];
    assert_eq!(after, before);
}

/// Whoever has one receiver pays for no program, and nobody else at the device does.
#[test]
fn a_group_of_one_has_no_program_at_the_device() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into()], 3);
    let mut group = rig.group(Way::Kernel, SND_IPV4.into());
    group.set_members(&rig.addresses[..1]).unwrap();
    rig.exchange(&mut group, &[0], "one");
    assert_eq!(attached(&rig.testbed).len(), 0);
    group.set_members(&rig.addresses[..2]).unwrap();
    rig.exchange(&mut group, &[0, 1], "two");
    assert_eq!(attached(&rig.testbed).len(), 1);
    assert_eq!(group.counters().passes, 2);
    group.remove(rig.addresses[0]);
    rig.exchange(&mut group, &[1], "the other one");
    group.set_members(&rig.addresses[2..]).unwrap();
    rig.exchange(&mut group, &[2], "a third");
    rig.expect_silence();
    assert_eq!(group.counters().passes, 2);
    // A datagram and a train of three in each exchange, to each member of then.
    assert_eq!(group.counters().packets, 5 * 4);
    let counters = group.member_counters(rig.addresses[2]).unwrap();
    assert_eq!((counters.packets, counters.refused), (4, 0));
}

/// Entering a group at a device takes the kernel some milliseconds, and a tick would be missed.
/// It is done beside the sends, and they are whole before, meanwhile and after.
#[test]
fn who_joins_does_not_wait_for_the_device() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into(), RCV_IPV6.into()], 2);
    let mut group = rig.group(Way::Kernel, Ipv6Addr::UNSPECIFIED.into());
    let all: Vec<_> = (0..rig.addresses.len()).collect();
    for (number, &address) in rig.addresses.iter().enumerate() {
        group.add(address).unwrap();
        // What was being made is taken by a send.
        assert_eq!(group.counters().members_in_lanes, 0, "{number}");
    }
    // A lane for each IP version, one after the other.
    let give_up = Instant::now() + LONG;
    while group.counters().members_in_lanes < all.len() {
        assert!(Instant::now() < give_up, "{:?}", group.counters());
        rig.exchange(&mut group, &all, "meanwhile");
    }
    let before = group.counters();
    rig.exchange(&mut group, &all, "by lanes");
    rig.expect_silence();
    let after = group.counters();
    assert_eq!((after.passes - before.passes, after.passes_missed), (4, 0));
    for &address in &rig.addresses {
        let counters = group.member_counters(address).unwrap();
        assert_eq!(counters.packets, 2 * after.sends, "{address}");
    }
    // Whoever waits for one that is being made waits no more when the group goes.
    let mut group = rig.group(Way::Kernel, SND_IPV4.into());
    for &address in &rig.addresses[..2] {
        group.add(address).unwrap();
    }
    group.set_members(&rig.addresses[..2]).unwrap();
    assert_eq!(group.counters().members_in_lanes, 2);
    drop(group);
    let mut group = rig.group(Way::Kernel, SND_IPV4.into());
    for &address in &rig.addresses[..2] {
        group.add(address).unwrap();
    }
    drop(group);
    assert!(comes(|| entries(&rig.testbed) == 1), "nobody waits for it");
}

/// It may be closed while it is being entered at the device.
#[test]
fn a_closed_group_takes_nothing_of_the_next_on_its_socket() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into()], 2);
    let bind = || UdpSocket::bind((SND_IPV4, 0));
    let socket = rig.testbed.snd.run(bind).unwrap();
    for round in 0..10 {
        let open = || open_on(socket.try_clone().unwrap(), Way::Kernel);
        let mut closed = open();
        for &address in &rig.addresses {
            closed.add(address).unwrap();
        }
        drop(closed);
        let mut group = open();
        group.set_members(&rig.addresses).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        rig.exchange(&mut group, &[0, 1], "again");
        let counters = group.counters();
        let passes = (counters.passes, counters.passes_missed);
        assert_eq!(passes, (2, 0), "{round}");
    }
}

/// Datagrams that have to be fragmented go another way, and arrive all the same.
#[test]
fn what_exceeds_the_mtu_is_sent_directly() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into()], 3);
    let mut group = rig.group(Way::Kernel, SND_IPV4.into());
    group.set_members(&rig.addresses).unwrap();
    for (bytes, passes) in [(1472, 1), (1473, 1), (4000, 1)] {
        let datagram = pattern(bytes, 5);
        assert_eq!(group.send(&datagram).unwrap().packets, 3);
        assert_eq!(group.counters().passes, passes, "{bytes}");
        for receiver in &rig.receivers {
            let mut got = [0; 5000];
            let length = receiver.recv(&mut got).unwrap();
            assert!(got[..length] == datagram[..], "{bytes}");
        }
    }
}

/// The checker of all this: a planted wrong checksum is seen by the counter that is asked.
#[test]
fn a_wrong_checksum_is_noticed() {
    onrush_testkit::require_root!();
    let rig = rig(&[RCV_IPV4.into()], 1);
    let before = udp_counters(&rig.testbed.rcv)["UdpInCsumErrors"];
    let port = rig.addresses[0].port().to_be_bytes();
    let datagram = [0x30, 0x39, port[0], port[1], 0, 12, 0x12, 0x34, 1, 2, 3, 4];
    let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::RAW);
    rig.testbed.snd.run(|| {
        let raw = socket2::Socket::new(domain, kind, Some(socket2::Protocol::UDP)).unwrap();
        raw.send_to(&datagram, &SocketAddr::from((RCV_IPV4, 0)).into())
            .unwrap();
    });
    // Nobody sums it before somebody reads.
    rig.receivers[0].set_nonblocking(true).unwrap();
    let counted = || {
        assert!(rig.receivers[0].recv(&mut [0; 100]).is_err());
        udp_counters(&rig.testbed.rcv)["UdpInCsumErrors"] - before
    };
    assert!(comes(|| counted() == 1));
}

/// A process that is killed leaves no program behind, and those of others stay.
/// Programs at the sender's device: each group's is the same one.
fn attached(testbed: &Testbed) -> Vec<ProgramInfo> {
    let query = || SchedClassifier::query_tcx(SND_DEVICE, TcAttachType::Egress);
    testbed.snd.run(query).unwrap().1
}

/// Sockets that the program at the sender's device finds a group for.
fn entries(testbed: &Testbed) -> usize {
    let programs = attached(testbed);
    let ids = programs[0].map_ids().unwrap().unwrap();
    let maps = ids.into_iter().map(|id| MapInfo::from_id(id).unwrap());
    let passes = maps
        .into_iter()
        .find(|it| it.name_as_str() == Some("passes"));
    let passes = MapData::from_id(passes.unwrap().id()).unwrap();
    let passes: HashOfMaps<_, u64> = Map::from_map_data(passes).unwrap().try_into().unwrap();
    passes.keys().map(Result::unwrap).count()
}

#[test]
fn one_program_serves_all_groups_of_a_device() {
    onrush_testkit::require_root!();
    // More than programs fit a device, which are 63.
    const GROUPS: usize = 100;
    let rig = rig(&[RCV_IPV4.into(), RCV_IPV6.into()], 2);
    let mut groups: Vec<_> = (0..GROUPS)
        .map(|i| rig.group(Way::Kernel, [SND_IPV4.into(), SND_IPV6.into()][i % 2]))
        .collect();
    for (i, group) in groups.iter_mut().enumerate() {
        let to = [[0, 1], [2, 3]][i % 2];
        let members = to.map(|at| rig.addresses[at]);
        group.set_members(&members).unwrap();
        rig.exchange(group, &to, &format!("group {i}"));
        let counters = group.counters();
        assert_eq!(
            (counters.passes, counters.passes_missed),
            (2, 0),
            "group {i}"
        );
        assert_eq!(counters.clones, 4, "group {i}");
    }
    assert_eq!(attached(&rig.testbed).len(), 1);
    assert_eq!(entries(&rig.testbed), GROUPS);
    groups.truncate(1);
    assert_eq!(entries(&rig.testbed), 1);
    rig.exchange(&mut groups[0], &[0, 1], "the last one");
    rig.expect_silence();
    drop(groups);
    assert!(comes(|| attached(&rig.testbed).is_empty()));
}

// SPECIFICATION.md: 55
#[test]
fn sigkill_leaves_nothing() {
    onrush_testkit::require_root!();
    if std::env::var_os("ONRUSH_GROUP_VICTIM").is_some() {
        be_the_victim();
        return;
    }
    let rig = rig(&[RCV_IPV4.into()], 2);
    let first = victim(&rig.testbed);
    let id = attached(&rig.testbed)[0].id();
    let mut group = rig.group(Way::Kernel, SND_IPV4.into());
    group.set_members(&rig.addresses).unwrap();
    let is_same = || attached(&rig.testbed).iter().map(ProgramInfo::id).eq([id]);
    assert!(is_same(), "both processes have one program");
    assert_eq!(entries(&rig.testbed), 2);
    kill(first);
    rig.exchange(&mut group, &[0, 1], "who attached it is gone");
    assert_eq!(group.counters().passes_missed, 0);
    // Who comes next takes out what was left.
    let second = victim(&rig.testbed);
    assert!(is_same());
    assert_eq!(entries(&rig.testbed), 2);
    rig.exchange(&mut group, &[0, 1], "a living one's is left alone");
    assert_eq!(group.counters().passes_missed, 0);
    let show = ["qdisc", "show", "dev", SND_DEVICE];
    let qdiscs = rig.testbed.snd.tool("tc", show).unwrap().stdout;
    assert!(!String::from_utf8_lossy(&qdiscs).contains("clsact"));
    drop(group);
    assert!(is_same(), "it is the other's, too");
    kill(second);
    // A link goes with its last descriptor, and a command that another test is about to run has a
    // copy of each of ours from its fork to its exec.
    assert!(comes(|| attached(&rig.testbed).is_empty()));
}

/// A process with a group, in the sender's namespace: the test of that name, run again.
fn victim(testbed: &Testbed) -> Child {
    let mut command = testbed.snd.command(std::env::current_exe().unwrap());
    command.args(["--exact", "sigkill_leaves_nothing", "--nocapture"]);
    command
        .env("ONRUSH_GROUP_VICTIM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    victim
}

fn kill(mut victim: Child) {
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// Whether `is_so` becomes true within [`LONG`].
fn comes(is_so: impl Fn() -> bool) -> bool {
    let give_up = Instant::now() + LONG;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn be_the_victim() {
    let socket = UdpSocket::bind((SND_IPV4, 0)).unwrap();
    let options = Options {
        way: Some(Way::Kernel),
        ..Options::default()
    };
    let mut group = Group::open(socket, &options).unwrap();
    let members = [1, 2].map(|port| SocketAddr::from((RCV_IPV4, port)));
    group.set_members(&members).unwrap();
    group.send(b"alive").unwrap();
    assert_eq!(group.counters().clones, 2);
    std::io::stdout().write_all(b"\nready\n").unwrap();
    // Until it is killed; or, should the other be killed first, until its end of the pipe is
    // closed.
    drop(std::io::stdin().read(&mut [0]));
}
