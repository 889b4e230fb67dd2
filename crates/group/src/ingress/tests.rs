//! The program at loopback: who joins, leaves, and is placed anew.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use onrush_testkit::netns::Netns;
use onrush_testkit::require_root;
use onrush_testkit::sink::{Look, Sink};
use onrush_testkit::testbed::{
    self, RCV_DEVICE, RCV_IPV4, RCV_IPV6, RCV_MAC, SND_DEVICE, SND_IPV4, SND_IPV6, Testbed,
};

use super::*;
use crate::lane_key::MTU_LANES_MAX;

#[test]
fn a_join_does_not_wait_for_a_packet_on_its_way() {
    require_root!();
    let netns = Netns::new().unwrap();
    netns.tool("ip", ["link", "set", "lo", "up"]).unwrap();
    let (mut ingress, socket) = netns.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        (open_at_loopback(16), socket)
    });
    let outlet = ingress.outlet(socket).unwrap();
    ingress.poll();
    let (left, begin) = (1 - ingress.half, Instant::now());
    for port in 1..=100 {
        // As the program says that a packet is in the half that was left.
        let mut running = ingress.tables.runnings.read(0);
        (running.head, running.tail, running.half) = (0, 1, narrow(left));
        running.at_ns = monotonic_ns();
        ingress.tables.runnings.write(0, running);
        ingress.left = Some(left);
        ingress.add(outlet, SocketAddr::from(([127, 0, 0, 1], port)));
        ingress.poll();
        assert_eq!((ingress.half, ingress.is_stale), (1 - left, true));
    }
    // It used to be a fifth of a second for each.
    assert!(begin.elapsed() < Duration::from_secs(15));
    let mut running = ingress.tables.runnings.read(0);
    running.head = running.tail;
    ingress.tables.runnings.write(0, running);
    ingress.poll();
    assert_eq!((ingress.half, ingress.is_stale), (left, false));
    assert_eq!(ingress.left, None);
    // Room is for 16; the others are told as refused.
    let placed = &ingress.placed[ingress.half];
    assert_eq!((placed.slots.len(), placed.unplaced.len()), (16, 84));
}

#[test]
fn who_joins_or_leaves_alone_moves_nobody() {
    require_root!();
    let netns = Netns::new().unwrap();
    netns.tool("ip", ["link", "set", "lo", "up"]).unwrap();
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut ingress = netns.run(|| open_at_loopback(100));
    let outlet = ingress.outlet(netns.run(bind)).unwrap();
    let receivers: Vec<_> = (0..4).map(|_| netns.run(bind)).collect();
    let members: Vec<_> = receivers
        .iter()
        .map(|it| it.local_addr().unwrap())
        .collect();
    let source = netns.run(bind);
    let tell = |datagram: &[u8], who: &[usize]| {
        source.send_to(datagram, "127.0.0.1:5004").unwrap();
        for (number, receiver) in receivers.iter().enumerate() {
            let is_member = who.contains(&number);
            receiver.set_nonblocking(!is_member).unwrap();
            let limit = Some(Duration::from_secs(60));
            receiver.set_read_timeout(limit).unwrap();
            let mut bytes = [0; 100];
            let got = receiver
                .recv(&mut bytes)
                .ok()
                .map(|length| &bytes[..length]);
            assert_eq!(got, is_member.then_some(datagram), "receiver {number}");
        }
    };
    ingress.set_members(outlet, members[..2].iter().copied());
    ingress.poll();
    tell(b"two", &[0, 1]);
    ingress.add(outlet, members[2]);
    tell(b"a third", &[0, 1, 2]);
    ingress.remove(outlet, members[0]);
    tell(b"without the first", &[1, 2]);
    // In the first one's place.
    ingress.add(outlet, members[3]);
    tell(b"another", &[1, 2, 3]);
    assert_eq!(ingress.tables.lanes.read(ingress.half * LANES_MAX).count, 3);
    let counted = |ingress: &Ingress| {
        let counters = ingress.member_counters(outlet).into_iter();
        let counters: HashMap<_, _> = counters.collect();
        members
            .iter()
            .map(|it| counters.get(it).map(|it| (it.packets, it.refused)))
            .collect()
    };
    let expected = [None, Some((4, 0)), Some((3, 0)), Some((1, 0))];
    let first: Vec<_> = counted(&ingress);
    assert_eq!(first, expected);
    // Who comes back begins anew.
    ingress.add(outlet, members[0]);
    tell(b"all", &[0, 1, 2, 3]);
    let all: Vec<_> = counted(&ingress);
    assert_eq!(all[0], Some((1, 0)));
    ingress.poll();
    assert_eq!((ingress.placings(), ingress.is_stale), (1, false));
    // A list replaces all.
    ingress.set_members(outlet, members[1..].iter().copied());
    ingress.poll();
    tell(b"a list", &[1, 2, 3]);
    assert_eq!(ingress.placings(), 2);
    let last: Vec<_> = counted(&ingress);
    assert_eq!(last, [None, Some((6, 0)), Some((5, 0)), Some((3, 0))]);
}

/// Whoever is sent to can say what the MTU of the way to him is.
#[test]
fn mtus_of_routes_leave_room_for_others() {
    const MTUS: u8 = 70;
    require_root!();
    let testbed = Testbed::new(testbed::Options::default()).unwrap();
    let neighbour = format!("neigh replace {RCV_IPV4} lladdr {RCV_MAC} dev {SND_DEVICE}");
    let tool = |command: &str| testbed.snd.tool("ip", command.split(' ')).unwrap();
    tool(&format!("{neighbour} nud permanent"));
    for number in 1..=MTUS {
        let mtu = 1300 + u32::from(number);
        tool(&format!(
            "route add 10.78.1.{number} via {RCV_IPV4} mtu {mtu}"
        ));
    }
    tool(&format!("route add 10.78.2.0/24 via {RCV_IPV4}"));
    let taken = Taken {
        address: (SND_IPV4, 5004).into(),
        sender: None,
        sender_kept_ns: 0,
    };
    let member = |net: u8, number: u8| SocketAddr::from(([10, 78, net, number], 6000));
    let (mut ingress, outlets) = testbed.snd.run(|| {
        let mut ingress = Ingress::open(&taken, Some(SND_DEVICE), 1000).unwrap();
        let outlets = [(); 2].map(|()| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let outlet = ingress.outlet(socket).unwrap();
            let members = (1..=MTUS).map(|number| member(1, number));
            ingress.set_members(outlet, members.chain([member(2, 1)]));
            outlet
        });
        (ingress, outlets)
    });
    let unplaced = |ingress: &Ingress| {
        let placed = &ingress.placed[ingress.half];
        let ordinary = outlets.map(|outlet| placed.slots.contains_key(&(outlet, member(2, 1))));
        (placed.unplaced.len(), ordinary)
    };
    // A lane for some of the MTUs, and one for all others of each outlet.
    let expected = (2 * usize::from(MTUS) - MTU_LANES_MAX, [true; 2]);
    // Routes are asked for some at a time.
    let give_up = Instant::now() + Duration::from_secs(20);
    while unplaced(&ingress) != expected && Instant::now() < give_up {
        ingress.poll();
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(unplaced(&ingress), expected);
    // Nor is all written anew for one more.
    ingress.remove(outlets[0], member(1, MTUS));
    ingress.add(outlets[0], member(1, MTUS));
    assert!(!ingress.is_stale);
    assert_eq!(unplaced(&ingress), expected);
}

#[test]
fn a_lane_of_which_most_have_left_is_written_anew() {
    require_root!();
    let netns = Netns::new().unwrap();
    netns.tool("ip", ["link", "set", "lo", "up"]).unwrap();
    let mut ingress = netns.run(|| open_at_loopback(1000));
    let socket = netns.run(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let outlet = ingress.outlet(socket).unwrap();
    let member = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    ingress.set_members(outlet, (1..=200).map(member));
    ingress.poll();
    for port in 1..=100 {
        ingress.remove(outlet, member(port));
    }
    ingress.poll();
    assert_eq!(ingress.placings(), 1);
    ingress.remove(outlet, member(101));
    ingress.poll();
    assert_eq!(ingress.placings(), 2);
    let lane = ingress.tables.lanes.read(ingress.half * LANES_MAX);
    assert_eq!((lane.count, lane.members), (99, 99));
}

/// One program after the other takes a stream to more members than one slice has, while packets
/// are on their way: each member gets each packet, once.
#[test]
fn programs_follow_upon_each_other_in_the_middle_of_packets() {
    const MEMBERS: u16 = 1000;
    const PACKETS: u32 = 2000;
    const PROGRAMS: usize = 12;
    const GAP: Duration = Duration::from_millis(2);
    require_root!();
    let testbed = Testbed::new(testbed::Options::default()).unwrap();
    let first_port = 10_000;
    let ports = first_port..=first_port + (MEMBERS - 1);
    let sink = Sink::attach_looking(&testbed.rcv, RCV_DEVICE, ports, Look::default()).unwrap();
    let taken = Taken {
        address: (SND_IPV4, 5004).into(),
        sender: None,
        sender_kept_ns: 0,
    };
    let open = || {
        let mut ingress = Ingress::open(&taken, Some(SND_DEVICE), MEMBERS.into()).unwrap();
        let socket = UdpSocket::bind((SND_IPV4, 0)).unwrap();
        let outlet = ingress.outlet(socket).unwrap();
        let members = (0..MEMBERS).map(|i| SocketAddr::from((RCV_IPV4, first_port + i)));
        ingress.set_members(outlet, members);
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            ingress.poll();
            if ingress.is_settled() && ingress.placed[ingress.half].unplaced.is_empty() {
                break;
            }
            assert!(Instant::now() < give_up, "the way to members is found");
            thread::sleep(Duration::from_millis(1));
        }
        ingress
    };
    // Each is attached behind the one before, and gets nothing until that one goes.
    let mut programs: Vec<_> = (0..PROGRAMS).map(|_| testbed.snd.run(open)).collect();
    let source = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0))).unwrap();
    source.connect((SND_IPV4, 5004)).unwrap();
    thread::scope(|scope| {
        let sent = scope.spawn(move || {
            // What two processors send across veth may pass each other.
            testbed::stay_on_one_processor();
            let mut packet = [0x47; 1200];
            for number in 0..PACKETS {
                packet[..2].copy_from_slice(&[0x80, 33]);
                packet[2..4].copy_from_slice(&number.to_be_bytes()[2..]);
                packet[4..12].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 7]);
                source.send(&packet).unwrap();
                thread::sleep(GAP);
            }
        });
        for program in &mut programs[..PROGRAMS - 1] {
            thread::sleep(Duration::from_millis(150));
            let give_up = Instant::now() + Duration::from_secs(60);
            while program.heard().unwrap().datagrams == 0 && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(1));
            }
            program.detach();
        }
        sent.join().unwrap();
    });
    let heard: Vec<_> = programs.iter().map(|it| it.heard().unwrap()).collect();
    let datagrams: u64 = heard.iter().map(|it| it.datagrams).sum();
    assert_eq!(datagrams, u64::from(PACKETS), "{heard:?}");
    let have_part = heard.iter().all(|it| it.datagrams > 0 && it.refused == 0);
    assert!(have_part, "{heard:?}");
    let all = u64::from(PACKETS) * u64::from(MEMBERS);
    let give_up = Instant::now() + Duration::from_secs(60);
    while sink.totals().unwrap().packets < all && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(1));
    }
    let arrived = sink.totals().unwrap();
    let numbers = (arrived.sequence_missing, arrived.sequence_repeated);
    assert_eq!((arrived.packets, numbers), (all, (0, 0)));
}

/// What is lost with its device is not waited for.
#[test]
fn a_program_goes_though_a_packet_is_lost() {
    require_root!();
    let (_netns, mut ingress) = with_one_on_its_way(|| 0);
    let begin = Instant::now();
    ingress.detach();
    assert!(begin.elapsed() >= 2 * LEAVE_TIME, "it waits");
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "and not for ever"
    );
    assert_eq!(ingress.tables.controls.read(0).leaving, AT_ONCE);
    // Once is enough: who waits, waits at least so long.
    let begin = Instant::now();
    ingress.detach();
    assert!(begin.elapsed() < 2 * LEAVE_TIME);
}

/// What a busy machine keeps from its way is not lost: the next program is not let past it.
#[test]
fn a_program_waits_for_a_packet_that_is_slow() {
    require_root!();
    let (_netns, mut ingress) = with_one_on_its_way(monotonic_ns);
    assert!(!ingress.let_go(IN_ORDER));
    let mut running = ingress.tables.runnings.read(0);
    assert!(monotonic_ns() - running.at_ns > LOST_NS, "it waits");
    running.head = running.tail;
    ingress.tables.runnings.write(0, running);
    assert!(ingress.let_go(AT_ONCE));
    let (tenth, hurry) = (LEAVE_TIME + Duration::from_millis(1), LEAVE_PACKETS_MAX);
    assert!(!is_vain(tenth, LOST_NS, hurry - 1));
    assert!(is_vain(tenth, LOST_NS + 1, 0) && is_vain(tenth, 0, hurry));
    assert!(!is_vain(LEAVE_TIME, LOST_NS + 1, hurry));
    assert!(is_vain(LEAVE_TIME_MAX + tenth, 0, 0));
}

/// One packet on its way, which was seen at that time and is not seen again.
fn with_one_on_its_way(clock_ns: fn() -> u64) -> (Netns, Ingress) {
    let netns = Netns::new().unwrap();
    netns.tool("ip", ["link", "set", "lo", "up"]).unwrap();
    let mut ingress = netns.run(|| open_at_loopback(16));
    let mut running = ingress.tables.runnings.read(0);
    (running.head, running.tail, running.at_ns) = (0, 1, clock_ns());
    ingress.tables.runnings.write(0, running);
    (netns, ingress)
}

fn open_at_loopback(members_max: usize) -> Ingress {
    let taken = Taken {
        address: "127.0.0.1:5004".parse().unwrap(),
        sender: None,
        sender_kept_ns: 0,
    };
    Ingress::open(&taken, Some("lo"), members_max).unwrap()
}

/// The tag lies beside the packet by then, which looks like any other.
#[test]
fn what_is_tagged_for_another_network_passes() {
    require_root!();
    let testbed = Testbed::new(testbed::Options::default()).unwrap();
    let taken = Taken {
        address: (SND_IPV4, 5004).into(),
        sender: None,
        sender_kept_ns: 0,
    };
    let open = || Ingress::open(&taken, Some(SND_DEVICE), 4).unwrap();
    let mut ingress = testbed.snd.run(open);
    ingress.poll();
    let frames = r#"
import socket, struct, sys
device, source, to = sys.argv[1:]
def frame(payload, tag):
    udp = struct.pack("!HHHH", 4000, 5004, 8 + len(payload), 0)
    ip = lambda check: struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, check,
        socket.inet_aton(source), socket.inet_aton(to))
    check = sum(struct.unpack("!10H", ip(0)))
    check = (check & 0xffff) + (check >> 16)
    return b"\xff" * 6 + bytes(6) + tag + b"\x08\x00" + ip(~check & 0xffff) + udp + payload
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((device, 0))
s.send(frame(b"tagged", b"\x81\x00\x00\x64"))
s.send(frame(b"plain", b""))
"#;
    let [source, to] = [RCV_IPV4, SND_IPV4].map(|ip| ip.to_string());
    let script = ["-c", frames, RCV_DEVICE, &source, &to];
    testbed.rcv.tool("python3", script).unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    let heard = loop {
        let heard = ingress.heard().unwrap();
        if heard.datagrams > 0 || Instant::now() > give_up {
            break heard;
        }
    };
    assert_eq!((heard.datagrams, heard.bytes), (1, 5), "the second alone");
}

/// By routes of less than a device's MTU, and by a device of less than the one where packets come.
#[test]
fn what_exceeds_the_way_to_a_member_is_refused_to_it() {
    require_root!();
    let testbed = Testbed::new(testbed::Options::default()).unwrap();
    let peer = testbed.rcv.path();
    let (mac, to) = ("02:00:00:00:00:79", peer.display());
    for command in [
        format!("link add w0 mtu 1200 type veth peer name w1 address {mac} mtu 1500 netns {to}"),
        "addr add 10.78.0.1/24 dev w0".to_owned(),
        "link set w0 up".to_owned(),
        format!("neigh replace 10.78.0.2 lladdr {mac} dev w0 nud permanent"),
        format!("neigh replace 10.77.0.99 lladdr {RCV_MAC} dev {SND_DEVICE} nud permanent"),
        format!("route add {RCV_IPV4}/32 dev {SND_DEVICE} src {SND_IPV4} mtu 1000"),
    ] {
        testbed.snd.tool("ip", command.split(' ')).unwrap();
    }
    for command in [
        "addr add 10.78.0.2/24 dev w1".to_owned(),
        "link set w1 up".to_owned(),
        format!("addr add 10.77.0.99/24 dev {RCV_DEVICE}"),
    ] {
        testbed.rcv.tool("ip", command.split(' ')).unwrap();
    }
    let receivers = [RCV_IPV4, [10, 77, 0, 99].into(), [10, 78, 0, 2].into()];
    let receivers = receivers.map(|ip| testbed.rcv.run(|| UdpSocket::bind((ip, 0)).unwrap()));
    let members = receivers.each_ref().map(|it| it.local_addr().unwrap());
    let taken = Taken {
        address: (SND_IPV4, 5004).into(),
        sender: None,
        sender_kept_ns: 0,
    };
    let mut ingress = testbed.snd.run(|| {
        let mut ingress = Ingress::open(&taken, Some(SND_DEVICE), 16).unwrap();
        let outlet = ingress.outlet(UdpSocket::bind("0.0.0.0:0").unwrap());
        ingress.set_members(outlet.unwrap(), members);
        ingress
    });
    let give_up = Instant::now() + Duration::from_secs(60);
    while !ingress.is_settled() || !ingress.placed[ingress.half].unplaced.is_empty() {
        ingress.poll();
        assert!(Instant::now() < give_up, "a way to each is known");
    }
    let source = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0))).unwrap();
    for (packet_bytes, who) in [
        (1000, &[0, 1, 2][..]),
        (1001, &[1, 2]),
        (1200, &[1, 2]),
        (1201, &[1]),
    ] {
        let payload = vec![7; packet_bytes - 28];
        source.send_to(&payload, (SND_IPV4, 5004)).unwrap();
        for &number in who {
            let receiver = &receivers[number];
            receiver
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let length = receiver.recv(&mut [0; 2000]);
            assert_eq!(length.unwrap(), payload.len(), "receiver {number}");
        }
    }
    for receiver in &receivers {
        receiver.set_nonblocking(true).unwrap();
        assert!(receiver.recv(&mut [0; 1]).is_err());
    }
    let counters: HashMap<_, _> = ingress.member_counters(0).into_iter().collect();
    let counted = members.map(|it| (counters[&it].packets, counters[&it].refused));
    assert_eq!(counted, [(1, 3), (4, 0), (3, 1)]);
    for member in [members[0], members[2]] {
        assert_eq!(counters[&member].errno_last, libc::EMSGSIZE);
    }
    let heard = ingress.heard().unwrap();
    assert_eq!((heard.clones, heard.refused), (12, 4));
}

/// A router, or a host with containers: what is for another machine is not the relay's.
#[test]
fn what_is_only_forwarded_passes_a_wildcard() {
    require_root!();
    let (testbed, far) = (
        Testbed::new(testbed::Options::default()).unwrap(),
        Netns::new().unwrap(),
    );
    let to = far.path();
    let link = format!("link add w0 type veth peer name w1 netns {}", to.display());
    testbed.snd.tool("ip", link.split(' ')).unwrap();
    for (netns, device, number) in [(&far, "w1", 2), (&testbed.snd, "w0", 1)] {
        for command in [
            format!("addr add 10.78.0.{number}/24 dev {device}"),
            format!("addr add fd78::{number}/64 dev {device} nodad"),
            format!("link set {device} up"),
        ] {
            netns.tool("ip", command.split(' ')).unwrap();
        }
    }
    for (netns, command) in [
        (&far, format!("route add {RCV_IPV4} via 10.78.0.1")),
        (&far, format!("-6 route add {RCV_IPV6} via fd78::1")),
        (&testbed.rcv, format!("route add 10.78.0.2 via {SND_IPV4}")),
        (&testbed.rcv, format!("-6 route add fd78::2 via {SND_IPV6}")),
    ] {
        netns.tool("ip", command.split(' ')).unwrap();
    }
    testbed.snd.run(|| {
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{name}"), "1").unwrap();
        }
    });
    let taken = Taken {
        address: "[::]:5004".parse().unwrap(),
        sender: None,
        sender_kept_ns: 0,
    };
    let open = || Ingress::open(&taken, Some(SND_DEVICE), 4).unwrap();
    let mut ingress = testbed.snd.run(open);
    ingress.poll();
    for (near, other, local) in [
        (IpAddr::from(RCV_IPV4), "10.78.0.2", IpAddr::from(SND_IPV4)),
        (RCV_IPV6.into(), "fd78::2", SND_IPV6.into()),
    ] {
        let other = SocketAddr::new(other.parse().unwrap(), 5004);
        let receiver = far.run(|| UdpSocket::bind(other)).unwrap();
        let limit = Some(Duration::from_secs(60));
        receiver.set_read_timeout(limit).unwrap();
        let source = testbed.rcv.run(|| UdpSocket::bind((near, 0))).unwrap();
        let before = ingress.heard().unwrap().datagrams;
        source.send_to(b"for another", other).unwrap();
        assert_eq!(receiver.recv(&mut [0; 100]).unwrap(), 11);
        assert_eq!(ingress.heard().unwrap().datagrams, before);
        source.send_to(b"for us", (local, 5004)).unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while ingress.heard().unwrap().datagrams == before && Instant::now() < give_up {}
        let heard = ingress.heard().unwrap();
        assert_eq!(heard.datagrams, before + 1, "{near}");
        assert_eq!(heard.from.map(|from| from.ip()), Some(near));
    }
}

/// A virtual machine says how long the packets of a train are, and not how many.
#[test]
fn a_train_of_a_virtual_machine_counts_as_its_packets() {
    const MACHINE: &str = r#"
import fcntl, os, socket, struct, subprocess, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
# TUNSETIFF: IFF_TAP, IFF_NO_PI, IFF_VNET_HDR.
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH", b"t0", 0x5002) + bytes(22))
subprocess.run(["ip", "link", "set", "t0", "up"], check=True)
print("up", flush=True)
sys.stdin.readline()
payload = bytes(250)
source, to = socket.inet_aton("10.79.0.2"), socket.inet_aton("10.79.0.1")
def fold(sum):
    return (sum & 0xffff) + (sum >> 16)
pseudo = source + to + struct.pack("!HH", 17, 8 + len(payload))
pseudo = fold(sum(struct.unpack("!6H", pseudo)))
udp = struct.pack("!HHHH", 4000, 5004, 8 + len(payload), pseudo)
ip = lambda check: struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, check,
    source, to)
check = fold(sum(struct.unpack("!10H", ip(0))))
frame = b"\xff" * 6 + bytes(5) + b"\1\x08\x00" + ip(~check & 0xffff) + udp + payload
# struct virtio_net_hdr: NEEDS_CSUM, GSO_UDP_L4.
os.write(tap, struct.pack("=BBHHHH", 1, 5, 42, 100, 34, 6) + frame)
sys.stdin.readline()
"#;
    require_root!();
    let netns = Netns::new().unwrap();
    let mut machine = netns.command("python3");
    machine
        .args(["-c", MACHINE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut machine = machine.spawn().unwrap();
    let mut said = [0; 3];
    machine
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    let taken = Taken {
        address: "10.79.0.1:5004".parse().unwrap(),
        sender: None,
        sender_kept_ns: 0,
    };
    let mut ingress = netns.run(|| Ingress::open(&taken, Some("t0"), 4).unwrap());
    ingress.poll();
    let mut input = machine.stdin.take().unwrap();
    writeln!(input, "send").unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    while ingress.heard().unwrap().passes == 0 && Instant::now() < give_up {}
    let heard = ingress.heard().unwrap();
    let counted = (heard.passes, heard.datagrams, heard.bytes);
    assert_eq!(counted, (1, 3, 250));
    assert_eq!(ingress.tables.runnings.read(0).packets[ingress.half], 3);
    drop(input);
    assert!(machine.wait().unwrap().success());
}
