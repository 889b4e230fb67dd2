//! `onrush relay`, built and in namespaces: what comes in goes out, to everybody, as it was,
//! whatever happens to some.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use onrush_testkit::require_root;
use onrush_testkit::testbed::{Options, RCV_IPV4, RCV_IPV6, SND_IPV4, Testbed};
use rustix::net::netdevice::name_to_index;
use rustix::process::Signal;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use common::{LONG, wait_until};
use relay_site::{INPUT_PORT, MembersFile, Site, assert_silent, received, rtp, send_all};

mod common;
mod relay_site;

// SPECIFICATION.md: 8
#[test]
fn every_member_gets_every_datagram_once_and_unchanged() {
    require_root!();
    for (how, count) in [
        ("--delay=0ms", 500),
        ("--delay=20ms", 500),
        ("--in-kernel", 500),
    ] {
        let site = Site::start(&["5004", "--rtsp", "off", how]);
        let in_kernel = how == "--in-kernel";
        // What comes by one IP version leaves by it, in the kernel.
        let members: Vec<_> = (0..40)
            .map(|i| site.member(in_kernel || i % 2 == 0))
            .collect();
        let list: Vec<_> = members
            .iter()
            .map(|member| member.local_addr().unwrap().to_string())
            .collect();
        let body = serde_json::json!({ "members": list }).to_string();
        let (status, answer) = site.ask("POST", "/sources/live/members", &body);
        assert_eq!((status, &answer["members"]), (200, &40.into()), "{answer}");
        site.wait_for("members", |source| source["members"] == 40);
        let source = site.source(true);
        // Of several sizes, and some that are neither RTP nor a transport stream.
        let sent: Vec<_> = (0..count)
            .map(|i: u16| match i % 50 {
                48 => rtp(i, 900),
                49 => format!("no stream at all, number {i}").into_bytes(),
                _ => rtp(i, 1328),
            })
            .collect();
        send_all(&source, &sent);
        for member in &members {
            assert!(
                received(member, sent.len()) == sent,
                "{how}: {}",
                site.relay.log_tail()
            );
            assert_silent(member);
        }
        let packets = 40 * u64::from(count);
        let answer = site.wait_for("counters", |source| source["sent"]["packets"] == packets);
        assert_eq!(answer["sent"]["refused"], 0, "{answer:#}");
        assert_eq!(answer["received"]["datagrams"], count, "{answer:#}");
        let (_, each) = site.ask("GET", "/sources/live/members", "");
        for member in each["members"].as_array().unwrap() {
            assert_eq!(
                (&member["packets"], &member["refused"]),
                (&count.into(), &0.into()),
                "{member}"
            );
        }
        let taken_in = site.testbed.snd.udp_counter("InDatagrams");
        assert_eq!(taken_in, if in_kernel { 0 } else { count.into() }, "{how}");
        assert_eq!(site.testbed.rcv.udp_counter("InCsumErrors"), 0, "{how}");
        let log = site.stop();
        assert!(log.contains(&format!("{packets} packets left")), "{log}");
    }
}

#[test]
fn dead_and_unreachable_members_delay_nobody() {
    require_root!();
    let site = Site::start(&["5004", "--rtsp", "off"]);
    let member = site.member(true);
    let mut list = vec![member.local_addr().unwrap().to_string()];
    // A port that nobody listens at (ICMP), neighbours that do not exist, and no way at all.
    list.push("10.77.0.2:9".to_owned());
    list.extend((100..150).map(|host| format!("10.77.0.{host}:5004")));
    list.push("172.31.255.1:5004".to_owned());
    list.push("[2001:db8::1]:5004".to_owned());
    let body = serde_json::json!({ "members": list }).to_string();
    assert_eq!(site.ask("POST", "/sources/live/members", &body).0, 200);
    site.wait_for("members", |source| source["members"] == list.len());
    let source = site.source(true);
    let sent: Vec<_> = (0..2000).map(|i| rtp(i, 1328)).collect();
    for packets in sent.chunks(20) {
        send_all(&source, packets);
        // One step after the other: this is about the others, not about this socket's buffer.
        assert!(
            received(&member, packets.len()) == packets,
            "{}",
            site.relay.log_tail()
        );
    }
    // What has arrived may not be counted yet, nor sent to those behind.
    let all = 2000 * list.len() as u64;
    site.wait_for("counters", |source| {
        let sent = &source["sent"];
        sent["packets"]
            .as_u64()
            .zip(sent["refused"].as_u64())
            .map(|(a, b)| a + b)
            == Some(all)
    });
    let (_, answer) = site.ask("GET", "/sources/live/members", "");
    let of = |address: &str| {
        let members = answer["members"].as_array().unwrap().iter();
        let member = members.clone().find(|member| member["address"] == address);
        member
            .unwrap_or_else(|| panic!("{address} in {answer:#}"))
            .clone()
    };
    assert_eq!(of(&list[0])["packets"], 2000);
    assert_eq!(of(&list[0])["refused"], 0);
    assert_eq!(of("172.31.255.1:5004")["refused"], 2000, "{answer:#}");
    assert_eq!(of("[2001:db8::1]:5004")["refused"], 2000);
    site.stop();
}

#[test]
fn the_members_file_is_followed_and_a_bad_one_ignored() {
    require_root!();
    let members = MembersFile::new("10.77.0.2:6001 # kitchen\n");
    let site = Site::start(&["5004", "--rtsp", "off", "--members", members.name()]);
    site.wait_for("the first list", |source| source["members"] == 1);
    members.write("10.77.0.2:6001\n10.77.0.2:6002\n[fd77::2]:6003\n");
    site.wait_for("three", |source| source["members"] == 3);
    members.write("10.77.0.2:6001\nnot a member\n\n10.77.0.2:0\n");
    let said = site.relay.wait_for_line("the members stay", LONG).unwrap();
    assert!(
        said.contains("line 2: ") && said.contains("line 4: "),
        "{said}"
    );
    std::fs::remove_file(&members.path).unwrap();
    site.relay.wait_for_line("No such file", LONG).unwrap();
    site.wait_for("still three", |source| source["members"] == 3);
    // In place, as some editors do.
    std::fs::write(&members.path, "10.77.0.2:6004\n").unwrap();
    site.wait_for("another one", |source| source["members"] == 1);
    let (_, answer) = site.ask("GET", "/sources/live/members", "");
    assert_eq!(answer["members"][0]["address"], "10.77.0.2:6004");
    assert_eq!(answer["members"][0]["stands"], serde_json::json!(["file"]));
    let (status, why) = site.ask(
        "DELETE",
        "/sources/live/members",
        r#"{"members": ["10.77.0.2:6004"]}"#,
    );
    assert_eq!(status, 409, "{why}");
    site.stop();
}

#[test]
fn the_api_refuses_what_is_wrong_and_goes_on() {
    require_root!();
    let site = Site::start(&["5004", "--rtsp", "off"]);
    let members = "/sources/live/members";
    for (method, path, body, status) in [
        ("GET", "/", "", 404),
        ("GET", "/sources/other", "", 404),
        ("PATCH", members, "{}", 405),
        ("POST", members, "", 400),
        ("POST", members, "{\"members\": [", 400),
        ("POST", members, "{\"members\": 7}", 422),
        ("POST", members, "{\"members\": [], \"more\": 1}", 422),
        ("POST", members, "{\"members\": [\"10.0.0.1\"]}", 422),
        (
            "POST",
            members,
            "{\"members\": [\"10.0.0.1:1\", \"239.0.0.1:1\"]}",
            422,
        ),
        ("DELETE", members, "{\"members\": [\"10.0.0.1:1\"]}", 404),
        ("GET", "/health", "", 503),
    ] {
        let (got, answer) = site.ask(method, path, body);
        assert_eq!(got, status, "{method} {path} {body}: {answer}");
    }
    for head in [
        "",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Basic eDp5\r\n",
    ] {
        for (method, path) in [("GET", "/sources"), ("POST", members), ("GET", members)] {
            assert_eq!(
                site.ask_raw(method, path, head, b"").0,
                401,
                "{head} {path}"
            );
        }
        // Health is for those who only look.
        assert_eq!(site.ask_raw("GET", "/health", head, b"").0, 503);
    }
    let too_long = vec![b' '; (4 << 20) + 1];
    assert_eq!(
        site.ask("POST", members, std::str::from_utf8(&too_long).unwrap())
            .0,
        413
    );
    // Who says nothing, half of it, or nonsense.
    let mut idle = Vec::new();
    for begun in ["", "GET /sour", "\r\n\r\n\0\0\0", "GET / HTTP/9.9\r\n\r\n"] {
        let mut client = site.connect();
        client.connection.send(begun).unwrap();
        idle.push(client);
    }
    site.wait_for("nobody", |source| source["members"] == 0);
    site.source(true).send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    assert_eq!(site.ask("GET", "/health", "").0, 200);
    site.stop();
}

#[test]
fn anomalies_of_a_source_are_counted_and_passed_on() {
    require_root!();
    let site = Site::start(&["5004", "--rtsp", "off", "--silence", "1s", "--from-anybody"]);
    let member = site.member(true);
    let body = format!("{{\"members\": [\"{}\"]}}", member.local_addr().unwrap());
    assert_eq!(site.ask("POST", "/sources/live/members", &body).0, 200);
    site.wait_for("the member", |source| source["members"] == 1);
    let (one, other) = (site.source(true), site.source(true));
    let mut sent = Vec::new();
    for (socket, sequence) in [
        (&one, 1),
        (&one, 2),
        (&one, 5),
        (&other, 6),
        (&one, 4),
        (&one, 9000),
    ] {
        sent.push(rtp(sequence, 1328));
        socket.send(&sent[sent.len() - 1]).unwrap();
        // In this order: two sockets are two queues.
        assert_eq!(received(&member, 1)[0], sent[sent.len() - 1]);
    }
    let answer = site.wait_for("silence", |source| source["state"] == "silent");
    let counts = &answer["received"];
    assert_eq!(counts["missing"], 2, "{answer:#}");
    assert_eq!(counts["behind"], 1);
    assert_eq!(counts["restarts"], 1);
    assert_eq!(counts["source_changes"], 2);
    assert_eq!(site.ask("GET", "/health", "").0, 503);
    // It is live for no longer than the next look at it may take.
    let answer = site.wait_for("the end of it", |source| {
        one.send(&rtp(9001, 1328)).unwrap();
        source["state"] == "live"
    });
    assert!(answer["received"]["silences"].as_u64() >= Some(1));
    let log = site.stop();
    for said in [
        "comes from 10.77.0.2:",
        "is silent for",
        "back after",
        "2 packets are missing",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn a_group_is_joined_and_of_one_source_only_if_so_said() {
    require_root!();
    let mut testbed = Testbed::new(Options::default()).unwrap();
    for namespace in [&testbed.snd, &testbed.rcv] {
        let device = if std::ptr::eq(namespace, &testbed.snd) {
            "v0"
        } else {
            "v1"
        };
        for group in ["224.0.0.0/4", "ff00::/8"] {
            let family = if group.contains(':') { "-6" } else { "-4" };
            let route = [family, "route", "replace", group, "dev", device];
            namespace.tool("ip", route).unwrap();
        }
    }
    for (input, group, is_heard) in [
        ("239.1.2.3:5004%v0", "239.1.2.3", true),
        ("10.77.0.2@232.1.2.3:5004%v0", "232.1.2.3", true),
        ("10.77.0.9@232.1.2.4:5004%v0", "232.1.2.4", false),
        ("[ff15::1:3]:5004%v0", "ff15::1:3", true),
        ("[fd77::2]@[ff35::1:3]:5004%v0", "ff35::1:3", true),
    ] {
        let relay = Site::relay(&testbed, &[input, "--rtsp", "off"]);
        let mut site = Site { relay, testbed };
        let group: IpAddr = group.parse().unwrap();
        let own: IpAddr = if group.is_ipv4() {
            RCV_IPV4.into()
        } else {
            RCV_IPV6.into()
        };
        let source = site.testbed.rcv.run(|| UdpSocket::bind((own, 0))).unwrap();
        source.send_to(&rtp(1, 1328), (group, INPUT_PORT)).unwrap();
        if is_heard {
            site.wait_for(input, |source| source["state"] == "live");
        } else {
            // The next goes the same way, and comes to a group that hears everybody.
            let other = Site::relay(
                &site.testbed,
                &["239.9.9.9:5005%v0", "--rtsp", "off", "--api", "off"],
            );
            source.send_to(&rtp(1, 1328), ("239.9.9.9", 5005)).unwrap();
            other.wait_for_line("comes from", LONG).unwrap();
            site.wait_for("nothing", |source| source["state"] == "waiting");
        }
        site.relay.interrupt(LONG).unwrap();
        testbed = site.testbed;
    }
}

/// The kernel gives what comes to a group of IPv6 to all who have joined it, wherever.
#[test]
fn a_group_of_ipv6_is_heard_on_its_interface_alone() {
    require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    add_devices(&testbed);
    let add = ["addr", "add", "fd79::2/64", "dev", "w1", "nodad"];
    assert!(testbed.rcv.tool("ip", add).unwrap().status.success());
    let group: Ipv6Addr = "ff15::1:3".parse().unwrap();
    let elsewhere = testbed.snd.run(|| {
        let kind = (Domain::IPV6, Type::DGRAM, Some(Protocol::UDP));
        let socket = Socket::new(kind.0, kind.1, kind.2).unwrap();
        socket.set_reuse_address(true).unwrap();
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, INPUT_PORT));
        socket.bind(&everywhere.into()).unwrap();
        let device = name_to_index(&socket, "w0").unwrap();
        socket.join_multicast_v6(&group, device).unwrap();
        UdpSocket::from(socket)
    });
    let soon = Some(Duration::from_millis(50));
    elsewhere.set_read_timeout(soon).unwrap();
    let relay = Site::relay(&testbed, &["[ff15::1:3]:5004%v0", "--rtsp", "off"]);
    let site = Site { relay, testbed };
    let source = |own: Ipv6Addr, device: &str| {
        site.testbed.rcv.run(|| {
            let socket = UdpSocket::bind((own, 0)).unwrap();
            let device = name_to_index(&socket, device).unwrap();
            let out = SockRef::from(&socket);
            out.set_multicast_if_v6(device).unwrap();
            socket
        })
    };
    let other = source("fd79::2".parse().unwrap(), "w1");
    wait_until("it comes by the other interface", || {
        // The devices may not be ready yet.
        other.send_to(&rtp(1, 1328), (group, INPUT_PORT)).ok();
        elsewhere.recv(&mut [0; 2048]).is_ok()
    });
    let own = source(RCV_IPV6, "v1");
    own.send_to(&rtp(2, 1328), (group, INPUT_PORT)).unwrap();
    site.wait_for("its own", |source| source["state"] == "live");
    // What was sent before has been taken by then, if it is at all.
    std::thread::sleep(Duration::from_millis(300));
    let (_, source) = site.ask("GET", "/sources/live", "");
    assert_eq!(source["received"]["datagrams"], 1, "{source:#}");
    site.stop();
}

/// A device that is removed takes memberships along, and no other brings them back.
#[test]
fn a_group_is_joined_anew_where_its_device_was_made_anew() {
    require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    add_devices(&testbed);
    let relay = Site::relay(&testbed, &["239.1.2.3:5004%w0", "--rtsp", "off"]);
    let site = Site { relay, testbed };
    let datagrams = || {
        let (_, source) = site.ask("GET", "/sources/live", "");
        source["received"]["datagrams"].as_u64().unwrap()
    };
    for is_first in [true, false] {
        if !is_first {
            let gone = site.testbed.snd.tool("ip", ["link", "del", "w0"]);
            gone.unwrap();
            add_devices(&site.testbed);
        }
        let bind = || UdpSocket::bind(("10.79.0.2", 0));
        let source = site.testbed.rcv.run(bind).unwrap();
        let before = datagrams();
        wait_until("the group is heard", || {
            // The devices may not be ready yet.
            source
                .send_to(&rtp(1, 1328), ("239.1.2.3", INPUT_PORT))
                .ok();
            datagrams() > before
        });
    }
    let log = site.stop();
    assert!(log.contains("is heard anew"), "{log}");
}

/// A pair of devices beside the testbed's: w0 and w1.
fn add_devices(testbed: &Testbed) {
    let peer = testbed.rcv.path();
    let pair = format!(
        "link add w0 type veth peer name w1 netns {}",
        peer.display()
    );
    testbed.snd.tool("ip", pair.split(' ')).unwrap();
    for (side, device, address) in [
        (&testbed.snd, "w0", "10.79.0.1/24"),
        (&testbed.rcv, "w1", "10.79.0.2/24"),
    ] {
        let add = ["addr", "add", address, "dev", device];
        side.tool("ip", add).unwrap();
        side.tool("ip", ["link", "set", device, "up"]).unwrap();
    }
}

// SPECIFICATION.md: 36
#[test]
fn after_a_kill_nothing_is_left_and_a_second_relay_starts() {
    require_root!();
    for how in ["--delay=0ms", "--in-kernel"] {
        let arguments = ["5004", "--rtsp", "10.77.0.1:8554", how];
        let mut site = Site::start(&arguments);
        site.source(true).send(&rtp(1, 1328)).unwrap();
        site.wait_for("the source", |source| source["state"] == "live");
        site.relay.signal(Signal::KILL).unwrap();
        site.relay.wait(LONG).unwrap();
        // A program that had stayed would take what is for this socket.
        let other = site
            .testbed
            .snd
            .run(|| UdpSocket::bind((SND_IPV4, INPUT_PORT)));
        let other = other.unwrap();
        other.set_read_timeout(Some(LONG)).unwrap();
        site.source(true).send(&rtp(2, 1328)).unwrap();
        assert!(received(&other, 1)[0] == rtp(2, 1328), "{how}");
        drop(other);
        // A command that another test is about to start may have a copy of the socket, and with it
        // the port.
        let port = format!(":{INPUT_PORT:04X} ");
        wait_until("the port is free", || {
            let read = || std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
            !site.testbed.snd.run(read).contains(&port)
        });
        site.relay = Site::relay(&site.testbed, &arguments);
        site.source(true).send(&rtp(3, 1328)).unwrap();
        site.wait_for("the source", |source| source["state"] == "live");
        site.stop();
    }
}
