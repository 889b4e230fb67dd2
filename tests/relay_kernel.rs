//! `onrush relay --in-kernel`, built and in namespaces: whatever devices offload, however many the
//! members are, and whoever comes and goes.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_group::{Group, Options as GroupOptions, Way};
use onrush_testkit::require_root;
use onrush_testkit::testbed::{
    Options, RCV_DEVICE, RCV_IPV4, RCV_IPV6, SND_DEVICE, SND_IPV4, SND_IPV6, Testbed,
    stay_on_one_processor,
};

use common::{LONG, Viewer, wait_until};
use relay_site::{INPUT_PORT, Site, Stopper, assert_silent, received, rtp, send_all};

mod common;
mod relay_site;

/// More than veth's far end takes in one slice.
const MEMBERS: usize = 300;
/// For tests with several sources.
const OPTIONS: [&str; 5] = ["5004", "--rtsp", "off", "--in-kernel", "--from-anybody"];
const PATH: &str = "/sources/live/members";

/// What arrives and what leaves has its checksum in a different state each time, and comes back for
/// another slice.
#[test]
fn every_datagram_reaches_every_member_by_any_offloads() {
    require_root!();
    let all: &[&str] = &["tx", "on", "sg", "on", "tx-udp-segmentation", "on"];
    let none: &[&str] = &["tx", "off", "sg", "off"];
    let uncut: &[&str] = &["tx-udp-segmentation", "off"];
    for (arriving, leaving) in [
        (all, all),
        (all, uncut),
        (none, all),
        (all, none),
        (none, none),
    ] {
        let testbed = Testbed::new(Options::default()).unwrap();
        for (netns, device, features) in [
            (&testbed.rcv, RCV_DEVICE, arriving),
            (&testbed.snd, SND_DEVICE, leaving),
            // Else veth vouches for every checksum, and nobody looks.
            (&testbed.rcv, RCV_DEVICE, &["rx", "off"]),
        ] {
            let features = [&["-K", device], features].concat();
            netns.tool("ethtool", features).unwrap();
        }
        let relay = Site::relay(&testbed, &OPTIONS);
        let site = Site { relay, testbed };
        for is_ipv4 in [true, false] {
            let what = format!("arriving {arriving:?}, leaving {leaving:?}, IPv4 {is_ipv4}");
            check_exact(&site, is_ipv4, &what);
        }
        assert_eq!(site.testbed.snd.udp_counter("InDatagrams"), 0);
        site.stop();
    }
}

/// Of each eight two alone, and the others as a train. From one processor, as a flow arrives from a
/// network card: what two processors send across veth may pass each other.
fn send_trains(site: &Site, is_ipv4: bool, datagrams: &[Vec<u8>]) {
    stay_on_one_processor();
    let mut source = train_source(site, is_ipv4);
    for round in datagrams.chunks(8) {
        for single in &round[..2] {
            assert_eq!(source.send(single).unwrap().refused, 0);
        }
        let train = round[2..].concat();
        assert_eq!(source.send_train(&train, 1328).unwrap().refused, 0);
        // What a busy machine has not passed on yet fills the kernel's queue of arrivals.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Single datagrams and trains, to so many members: each gets each, once, with a right checksum.
fn check_exact(site: &Site, is_ipv4: bool, what: &str) {
    let members: Vec<_> = (0..MEMBERS).map(|_| site.member(is_ipv4)).collect();
    join(site, &members);
    let mut expected = Vec::new();
    for round in 0..10 {
        let singles = (0..2).map(|i| rtp(round * 10 + i, if i == 0 { 1328 } else { 77 }));
        expected.extend(singles.chain((2..8).map(|i| rtp(round * 10 + i, 1328))));
    }
    thread::scope(|scope| scope.spawn(|| send_trains(site, is_ipv4, &expected)).join()).unwrap();
    for member in &members {
        assert!(
            received(member, expected.len()) == expected,
            "{what}: {}",
            site.relay.log_tail()
        );
        assert_silent(member);
    }
    // What has arrived may not be counted yet.
    wait_until(what, || {
        let counters = site.ask("GET", PATH, "").1;
        let mut members = counters["members"].as_array().unwrap().iter();
        members.all(|member| {
            assert_eq!(member["refused"], 0, "{what}: {member}");
            member["packets"] == expected.len()
        })
    });
    let snmp6 = || std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
    let errors = site.testbed.rcv.run(snmp6);
    let mut errors = errors
        .lines()
        .filter(|line| line.starts_with("Udp6InCsumErrors"));
    let errors = errors.next().unwrap().split_whitespace().last();
    assert_eq!(errors, Some("0"), "{what}");
    assert_eq!(site.testbed.rcv.udp_counter("InCsumErrors"), 0, "{what}");
    let list = list_of(&members);
    assert_eq!(site.ask("DELETE", PATH, &list).0, 200);
    site.wait_for("nobody", |source| source["members"] == 0);
}

/// 500 others come, are replaced and go, again and again, while those who stay miss nothing.
#[test]
fn members_who_stay_miss_nothing_while_others_come_and_go() {
    require_root!();
    let site = Site::start(&["5004", "--rtsp", "off", "--in-kernel"]);
    let members: Vec<_> = (0..20).map(|_| site.member(true)).collect();
    join(&site, &members);
    let (source, stop) = (site.source(true), AtomicBool::new(false));
    let changes = AtomicU32::new(0);
    let others = |from: u16| {
        let others = (0..500).map(|i| format!("10.77.0.2:{}", from + i));
        serde_json::json!({ "members": others.collect::<Vec<_>>() }).to_string()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (method, from) in [
                    ("POST", 10_000),
                    ("POST", 11_000),
                    ("DELETE", 10_000),
                    ("DELETE", 11_000),
                ] {
                    assert_eq!(site.ask(method, PATH, &others(from)).0, 200);
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // A failure in here ends the coming and going too.
        let _stopper = Stopper(&stop);
        let (mut sequence, give_up) = (0_u16, Instant::now() + LONG);
        while changes.load(Ordering::Relaxed) < 40 {
            assert!(Instant::now() < give_up, "others change");
            let sent: Vec<_> = (0..20)
                .map(|i| rtp(sequence.wrapping_add(i), 1328))
                .collect();
            sequence = sequence.wrapping_add(20);
            send_all(&source, &sent);
            for member in &members {
                assert!(received(member, 20) == sent, "{}", site.relay.log_tail());
            }
        }
    });
    members.iter().for_each(assert_silent);
    site.stop();
}

/// Packets that arrive while another is on its way wait for it, and keep their order.
#[test]
fn in_the_kernel_sources_on_several_processors_take_turns() {
    require_root!();
    let site = Site::start(&OPTIONS);
    let members: Vec<_> = (0..MEMBERS).map(|_| site.member(true)).collect();
    join(&site, &members);
    let sources = [0, 1, 2].map(|_| site.source(true));
    for round in 0..10_u16 {
        let packets = |number: usize| -> Vec<_> {
            let first = u16::try_from(number).unwrap() * 20_000 + round * 10;
            (first..first + 10).map(|i| rtp(i, 500 + number)).collect()
        };
        thread::scope(|scope| {
            for (number, source) in sources.iter().enumerate() {
                let packets = packets(number);
                // Each from one processor, so that they are in order when they arrive.
                scope.spawn(move || send_all(source, &packets));
            }
        });
        // As it says itself: nobody was left out.
        let all = 30 * (u64::from(round) + 1) * MEMBERS as u64;
        site.wait_for("all", |source| source["sent"]["packets"] == all);
        for member in &members {
            let got = received(member, 30);
            for number in 0..3 {
                let of_source = got.iter().filter(|packet| packet.len() == 500 + number);
                assert!(of_source.eq(packets(number).iter()), "source {number}");
            }
        }
    }
    members.iter().for_each(assert_silent);
    site.stop();
}

#[test]
fn players_of_both_ip_versions_are_served_and_others_pass() {
    require_root!();
    let site = Site::start(&[
        "5004",
        "--in-kernel",
        "--from-anybody",
        "--rtsp=10.77.0.1:8554",
        "--rtsp=[fd77::1]:8554",
    ]);
    for (is_ipv4, server) in [(true, IpAddr::from(SND_IPV4)), (false, SND_IPV6.into())] {
        let source = site.source(is_ipv4);
        source.send(&rtp(1, 1328)).unwrap();
        site.wait_for("the source", |source| source["state"] == "live");
        let mut viewer = Viewer::setup_to(&site.testbed, "live/live", server);
        assert_eq!(viewer.ask("PLAY", &[]).status, 200);
        site.wait_for("the player", |source| source["players"] == 1);
        let sent: Vec<_> = (10..20).map(|i| rtp(i, 1328)).collect();
        send_all(&source, &sent);
        assert!(
            viewer
                .receiver
                .wait_until(LONG, |capture| capture.rtp.len() >= 10)
        );
        let got = viewer.receiver.take().rtp;
        assert!(
            got.iter().map(|datagram| &datagram.bytes).eq(&sent),
            "{server}"
        );
        // Another port is none of its business.
        let bind = || UdpSocket::bind((server, 5006));
        let other = site.testbed.snd.run(bind).unwrap();
        other.set_read_timeout(Some(LONG)).unwrap();
        source.send_to(b"passes", (server, 5006)).unwrap();
        assert_eq!(received(&other, 1)[0], b"passes");
        assert_eq!(viewer.ask("TEARDOWN", &[]).status, 200);
        site.wait_for("the end", |source| source["players"] == 0);
    }
    site.stop();
}

fn list_of(members: &[UdpSocket]) -> String {
    let list = members
        .iter()
        .map(|member| member.local_addr().unwrap().to_string());
    serde_json::json!({ "members": list.collect::<Vec<_>>() }).to_string()
}

fn join(site: &Site, members: &[UdpSocket]) {
    assert_eq!(site.ask("POST", PATH, &list_of(members)).0, 200);
    site.wait_for("members", |source| source["members"] == members.len());
}

/// A source that can send trains: a group whose only member is the relay.
fn train_source(site: &Site, is_ipv4: bool) -> Group {
    let (own, relay): (IpAddr, IpAddr) = match is_ipv4 {
        true => (RCV_IPV4.into(), SND_IPV4.into()),
        false => (RCV_IPV6.into(), SND_IPV6.into()),
    };
    let socket = site.testbed.rcv.run(|| UdpSocket::bind((own, 0))).unwrap();
    let options = GroupOptions {
        way: Some(Way::Sendmmsg),
        ..GroupOptions::default()
    };
    let mut group = Group::open(socket, &options).unwrap();
    group.set_members(&[(relay, INPUT_PORT).into()]).unwrap();
    group
}
