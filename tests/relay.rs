//! `onrush relay`, built and in namespaces: what comes in goes out, to everybody, as it was, whatever happens to some.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use onrush_testkit::receiver::Capture;
use onrush_testkit::testbed::{Mode, Options, RCV_IPV4, RCV_IPV6, SND_IPV4, SND_IPV6, Testbed};
use onrush_testkit::{require_programs, require_root};
use onrush_wire::rtp::Header;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::process::Signal;

use common::{LONG, ONRUSH, Viewer};

mod common;

/// A relay in the sending side of a testbed; sources and members are on the other side.
struct Site {
    relay: Process,
    testbed: Testbed,
}

impl Site {
    fn start(arguments: &[&str]) -> Self {
        let testbed = Testbed::new(Options {
            mode: Mode::Uso,
            ..Options::default()
        })
        .unwrap();
        let relay = Self::relay(&testbed, arguments);
        Self { relay, testbed }
    }

    fn relay(testbed: &Testbed, arguments: &[&str]) -> Process {
        let mut command = testbed.snd.command(ONRUSH);
        let relay = Process::start(command.arg("relay").args(arguments)).unwrap();
        let ready = relay.wait_for_line("stopping", LONG);
        assert!(ready.is_some(), "no relay:\n{}", relay.log_tail());
        relay
    }

    /// A socket on the far side that sends to the relay's port 5004.
    fn source(&self, is_ipv4: bool) -> UdpSocket {
        let (own, relay): (IpAddr, IpAddr) = match is_ipv4 {
            true => (RCV_IPV4.into(), SND_IPV4.into()),
            false => (RCV_IPV6.into(), SND_IPV6.into()),
        };
        let socket = self.testbed.rcv.run(|| UdpSocket::bind((own, 0))).unwrap();
        socket.connect((relay, INPUT_PORT)).unwrap();
        socket
    }

    /// A receiver on the far side.
    fn member(&self, is_ipv4: bool) -> UdpSocket {
        let own: IpAddr = if is_ipv4 {
            RCV_IPV4.into()
        } else {
            RCV_IPV6.into()
        };
        let socket = self.testbed.rcv.run(|| UdpSocket::bind((own, 0))).unwrap();
        set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    fn stop(mut self) -> String {
        let status = self.relay.interrupt(LONG).unwrap();
        let log = self.relay.log();
        assert_eq!(status.code(), Some(0), "{}", self.relay.log_tail());
        assert!(!log.contains("panicked"), "{log}");
        log
    }

    /// A request to the control API, with the token that the relay printed.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let line = self.relay.wait_for_line("Bearer", LONG).unwrap();
        let token = line.split("Bearer ").nth(1).unwrap();
        let token = token.split('\'').next().unwrap();
        let head = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        let (status, body) = self.ask_raw(method, path, &head, body.as_bytes());
        let body = serde_json::from_slice(&body);
        (status, body.unwrap_or(serde_json::Value::Null))
    }

    fn ask_raw(&self, method: &str, path: &str, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let connect = || TcpStream::connect(("127.0.0.1", 8555));
        let mut stream = self.testbed.snd.run(connect).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let bytes = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n{head}Content-Length: {bytes}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // Refused before it is read, it may be cut off.
        stream.write_all(body).ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    /// Asks for the counters of the only source until they are as they should be.
    fn wait_for(
        &self,
        what: &str,
        is_so: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let give_up = Instant::now() + LONG;
        loop {
            let (status, source) = self.ask("GET", "/sources/live", "");
            assert_eq!(status, 200, "{source}");
            if is_so(&source) {
                return source;
            }
            let log = self.relay.log_tail();
            assert!(Instant::now() < give_up, "{what}: {source:#}\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A counter of UDP over IPv4 in a namespace.
fn udp_counter(netns: &Netns, name: &str) -> u64 {
    let snmp = netns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap();
    let mut udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
    let column = names.split(' ').position(|n| n == name).unwrap();
    values.split(' ').nth(column).unwrap().parse().unwrap()
}

/// An RTP packet that no other is like.
fn rtp(sequence: u16, bytes: usize) -> Vec<u8> {
    let header = Header {
        marker: false,
        payload_type: 33,
        sequence,
        timestamp: u32::from(sequence) * 300,
        ssrc: 7,
    };
    let mut packet = header.to_bytes().to_vec();
    packet.extend((0..bytes - packet.len()).map(|i| (i ^ usize::from(sequence)).to_le_bytes()[0]));
    packet
}

/// What arrives, in order, until so many have.
fn received(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let one = |_| {
        let bytes = socket.recv(&mut buffer).expect("it comes");
        buffer[..bytes].to_vec()
    };
    (0..count).map(one).collect()
}

fn assert_silent(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let nothing = socket.recv(&mut [0; 1]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

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
        for packet in &sent {
            source.send(packet).unwrap();
        }
        for member in &members {
            assert!(
                received(member, sent.len()) == sent,
                "{how}: {}",
                site.relay.log_tail()
            );
            assert_silent(member);
        }
        let packets = 40 * u64::from(count);
        let told = site.wait_for("counters", |source| source["sent"]["packets"] == packets);
        assert_eq!(told["sent"]["refused"], 0, "{told:#}");
        assert_eq!(told["received"]["datagrams"], count, "{told:#}");
        let (_, each) = site.ask("GET", "/sources/live/members", "");
        for member in each["members"].as_array().unwrap() {
            assert_eq!(
                (&member["packets"], &member["refused"]),
                (&count.into(), &0.into()),
                "{member}"
            );
        }
        let taken_in = udp_counter(&site.testbed.snd, "InDatagrams");
        assert_eq!(taken_in, if in_kernel { 0 } else { count.into() }, "{how}");
        assert_eq!(udp_counter(&site.testbed.rcv, "InCsumErrors"), 0, "{how}");
        let log = site.stop();
        assert!(log.contains(&format!("{packets} packets left")), "{log}");
    }
}

#[test]
fn ffmpeg_plays_to_players_and_plain_receivers_while_others_come_and_go() {
    require_root!();
    require_programs!("ffmpeg", "ffprobe", "gst-launch-1.0");
    for output in [
        "rtp_mpegts rtp://10.77.0.1:5004?pkt_size=1328",
        "mpegts udp://10.77.0.1:5004?pkt_size=1316",
    ] {
        let site = Site::start(&["5004", "--rtsp", "10.77.0.1:8554"]);
        let _source = ffmpeg(&site, output);
        site.wait_for("the source", |source| source["state"] == "live");
        let url = "rtsp://10.77.0.1:8554/live/live";
        let plain = site.member(true);
        let port = plain.local_addr().unwrap().port();
        drop(plain);
        let is_rtp = output.starts_with("rtp");
        let plain_url = match is_rtp {
            true => format!("rtp://10.77.0.2:{port}"),
            false => format!("udp://10.77.0.2:{port}"),
        };
        // Members that nobody listens at, so that only numbers count: each is refused by ICMP.
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let churn = scope.spawn(|| come_and_go(&site, &stop));
            // A failure in here ends the coming and going too.
            let _stopper = Stopper(&stop);
            let body = format!("{{\"members\": [\"10.77.0.2:{port}\"]}}");
            assert_eq!(site.ask("POST", "/sources/live/members", &body).0, 200);
            let players = [
                scope.spawn(|| probe(&site, &["-rtsp_transport", "udp", url])),
                scope.spawn(|| {
                    if is_rtp {
                        probe_rtp(&site, port)
                    } else {
                        probe(&site, &[&plain_url])
                    }
                }),
            ];
            let got = gst(&site, url);
            for player in players {
                let said = player.join().unwrap();
                assert!(
                    said.contains("mpeg2video") && said.contains("128x96"),
                    "{output}: {said}"
                );
            }
            stop.store(true, Ordering::Relaxed);
            let rounds = churn.join().unwrap();
            assert!(rounds >= 2, "{rounds} rounds");
            assert!(got > 20, "{output}: gst-launch got {got} transport packets");
        });
        let told = site.wait_for("players gone", |source| source["players"] == 0);
        assert_eq!(told["received"]["missing"], 0, "{told:#}");
        site.stop();
    }
}

/// Stops those who come and go when it is dropped.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A live source for as long as it is held.
fn ffmpeg(site: &Site, output: &str) -> Process {
    let (format, url) = output.split_once(' ').unwrap();
    let mut command = site.testbed.rcv.command("ffmpeg");
    command.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-re",
        "-f",
        "lavfi",
        "-i",
    ]);
    command.args([
        "testsrc=size=128x96:rate=25",
        "-c:v",
        "mpeg2video",
        "-g",
        "5",
        "-b:v",
        "300k",
    ]);
    Process::start(command.args(["-f", format, url])).unwrap()
}

/// 500 members, all of whom come, are replaced and go, again and again. How often they did.
fn come_and_go(site: &Site, stop: &AtomicBool) -> u32 {
    let list = |from: u16| -> String {
        let members = (0..500).map(|i| format!("10.77.0.2:{}", from + i));
        serde_json::json!({ "members": members.collect::<Vec<_>>() }).to_string()
    };
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let path = "/sources/live/members";
        let sent = site.ask("GET", "/sources/live", "").1["sent"]["packets"].as_u64();
        assert_eq!(site.ask("POST", path, &list(30_000)).0, 200);
        let all_got = |source: &serde_json::Value| {
            source["sent"]["packets"].as_u64() >= sent.map(|n| n + 500)
        };
        site.wait_for("all 500 got something", all_got);
        assert_eq!(site.ask("DELETE", path, &list(30_000)).0, 200);
        for from in [31_000, 32_000] {
            assert_eq!(site.ask("POST", path, &list(from)).0, 200);
        }
        for from in [31_000, 32_000] {
            assert_eq!(site.ask("DELETE", path, &list(from)).0, 200);
        }
        rounds += 1;
    }
    rounds
}

/// What ffprobe says of a stream.
fn probe(site: &Site, input: &[&str]) -> String {
    let mut command = site.testbed.rcv.command("ffprobe");
    command.args([
        "-hide_banner",
        "-analyzeduration",
        "2000000",
        "-protocol_whitelist",
        "file,tcp,udp,rtp,rtsp",
    ]);
    let mut ffprobe = Process::start(command.args(input)).unwrap();
    let status = ffprobe.wait(LONG).unwrap();
    drop(ffprobe.wait_for_line("\0", LONG));
    assert!(
        status.success(),
        "{input:?}: {}\n{}",
        ffprobe.log(),
        site.relay.log_tail()
    );
    ffprobe.log()
}

/// The same of plain RTP at a port.
fn probe_rtp(site: &Site, port: u16) -> String {
    let mut sdp = tempfile::NamedTempFile::with_suffix(".sdp").unwrap();
    let text = format!(
        "v=0\no=- 1 1 IN IP4 10.77.0.1\ns=-\nc=IN IP4 10.77.0.2\nt=0 0\nm=video {port} RTP/AVP 33\n"
    );
    sdp.write_all(text.as_bytes()).unwrap();
    probe(site, &[sdp.path().to_str().unwrap()])
}

/// Transport packets that GStreamer gets in a while.
fn gst(site: &Site, url: &str) -> usize {
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut command = site.testbed.rcv.command("gst-launch-1.0");
    command.args([
        "-q",
        "rtspsrc",
        &format!("location={url}"),
        "protocols=udp",
        "latency=200",
    ]);
    command.args(["!", "rtpmp2tdepay", "!", "filesink", "buffer-mode=2"]);
    command.arg(format!("location={}", out.path().display()));
    let mut player = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    let bytes = || out.as_file().metadata().unwrap().len();
    while bytes() < 30 * 188 {
        assert!(
            player.is_running().unwrap() && Instant::now() < give_up,
            "{}",
            player.log()
        );
        thread::sleep(Duration::from_millis(20));
    }
    player.interrupt(LONG).unwrap();
    let ts = std::fs::read(out.path()).unwrap();
    assert!(
        ts.chunks(188).all(|ts| ts[0] == 0x47),
        "whole transport packets"
    );
    ts.len() / 188
}

#[test]
fn players_get_headers_where_there_are_none_and_their_own_where_there_are() {
    require_root!();
    let site = Site::start(&[
        "5004",
        "--rtsp",
        "10.77.0.1:8554",
        "--rtsp",
        "[fd77::1]:8554",
    ]);
    let (mut client, url) = (
        common::connect(&site.testbed, SND_IPV4.into()),
        "rtsp://10.77.0.1:8554/live/live",
    );
    let early = client.request("DESCRIBE", url, &[]).unwrap();
    assert_eq!(early.status, 503, "{early:?}");
    let nobody = client
        .request("DESCRIBE", "rtsp://10.77.0.1:8554/live/other", &[])
        .unwrap();
    assert_eq!(nobody.status, 404, "{nobody:?}");
    let source = site.source(true);
    source.send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    for (is_ipv4, server) in [(true, IpAddr::from(SND_IPV4)), (false, SND_IPV6.into())] {
        let mut viewer = Viewer::setup_to(&site.testbed, "live/live", server);
        let answer = viewer.ask("PLAY", &[("Range", "npt=0.000-")]);
        assert_eq!(
            (answer.status, answer.header("Range")),
            (200, Some("npt=now-")),
            "{answer:?}"
        );
        site.wait_for("the player", |source| source["players"] == 1);
        // Once as it is, once with headers of ours.
        let sent: Vec<_> = (10..20).map(|i| rtp(i, 1328)).collect();
        for packet in &sent {
            source.send(packet).unwrap();
        }
        let has_both = |capture: &Capture| capture.rtp.len() >= 10 && !capture.rtcp.is_empty();
        assert!(
            viewer.receiver.wait_until(LONG, has_both),
            "packets and a sender report"
        );
        let got = viewer.receiver.take().rtp;
        assert!(
            got.iter().map(|datagram| &datagram.bytes).eq(&sent),
            "ipv4 {is_ipv4}"
        );
        let ts = transport_stream(3);
        for _ in 0..10 {
            source.send(&ts).unwrap();
        }
        assert!(
            viewer
                .receiver
                .wait_until(LONG, |capture| capture.rtp.len() >= 10)
        );
        let capture = viewer.receiver.take();
        let headers = capture
            .rtp
            .iter()
            .map(|datagram| Header::read(&datagram.bytes).unwrap());
        let first = Header::read(&capture.rtp[0].bytes).unwrap();
        for (i, header) in (0..).zip(headers) {
            assert_eq!((header.payload_type, header.ssrc), (33, first.ssrc));
            assert_eq!(header.sequence, first.sequence.wrapping_add(i));
        }
        assert!(
            capture
                .rtp
                .iter()
                .all(|datagram| datagram.bytes[12..] == ts)
        );
        assert_eq!(viewer.ask("PAUSE", &[]).status, 200);
        site.wait_for("the pause", |source| source["players"] == 0);
        assert_eq!(viewer.ask("PLAY", &[]).status, 200);
        site.wait_for("the player", |source| source["players"] == 1);
        assert_eq!(viewer.ask("TEARDOWN", &[]).status, 200);
        site.wait_for("the end", |source| source["players"] == 0);
    }
    site.stop();
}

#[test]
fn a_player_that_vanishes_leaves_at_its_time_out_and_a_stop_is_told() {
    require_root!();
    let site = Site::start(&[
        "5004",
        "--rtsp",
        "10.77.0.1:8554",
        "--session-timeout",
        "1s",
    ]);
    site.source(true).send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    let mut vanishing = Viewer::setup(&site.testbed, "live/live");
    assert_eq!(vanishing.ask("PLAY", &[]).status, 200);
    site.wait_for("the player", |source| source["players"] == 1);
    // The connection stays open and the ports too: nothing but silence tells.
    site.wait_for("the time-out", |source| source["players"] == 0);
    assert_eq!(vanishing.ask("GET_PARAMETER", &[]).status, 454);
    let mut viewer = Viewer::setup(&site.testbed, "live/live");
    assert_eq!(viewer.ask("PLAY", &[]).status, 200);
    site.wait_for("the player", |source| source["players"] == 1);
    let log = site.stop();
    assert!(
        viewer
            .receiver
            .wait_until(LONG, |capture| capture.has_bye()),
        "{log}"
    );
    assert!(log.contains("players served: 2"), "{log}");
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
        for packet in packets {
            source.send(packet).unwrap();
        }
        // One step after the other: this is about the others, not about this socket's buffer.
        assert!(
            received(&member, packets.len()) == packets,
            "{}",
            site.relay.log_tail()
        );
    }
    let (_, told) = site.ask("GET", "/sources/live/members", "");
    let of = |address: &str| {
        let members = told["members"].as_array().unwrap().iter();
        let member = members.clone().find(|member| member["address"] == address);
        member
            .unwrap_or_else(|| panic!("{address} in {told:#}"))
            .clone()
    };
    assert_eq!(of(&list[0])["packets"], 2000);
    assert_eq!(of(&list[0])["refused"], 0);
    assert_eq!(of("172.31.255.1:5004")["refused"], 2000, "{told:#}");
    assert_eq!(of("[2001:db8::1]:5004")["refused"], 2000);
    site.stop();
}

#[test]
fn the_file_of_members_is_followed_and_a_bad_one_changes_nothing() {
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("members");
    let write = |text: &str| {
        let beside = folder.path().join("beside");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, &path).unwrap();
    };
    write("10.77.0.2:6001 # kitchen\n");
    let site = Site::start(&["5004", "--rtsp", "off", "--members", path.to_str().unwrap()]);
    site.wait_for("the first list", |source| source["members"] == 1);
    write("10.77.0.2:6001\n10.77.0.2:6002\n[fd77::2]:6003\n");
    site.wait_for("three", |source| source["members"] == 3);
    write("10.77.0.2:6001\nnot a member\n\n10.77.0.2:0\n");
    let said = site.relay.wait_for_line("the members stay", LONG).unwrap();
    assert!(
        said.contains("line 2: ") && said.contains("line 4: "),
        "{said}"
    );
    std::fs::remove_file(&path).unwrap();
    site.relay.wait_for_line("No such file", LONG).unwrap();
    site.wait_for("still three", |source| source["members"] == 3);
    // In place, as some editors do.
    std::fs::write(&path, "10.77.0.2:6004\n").unwrap();
    site.wait_for("another one", |source| source["members"] == 1);
    let (_, told) = site.ask("GET", "/sources/live/members", "");
    assert_eq!(told["members"][0]["address"], "10.77.0.2:6004");
    assert_eq!(told["members"][0]["stands"], serde_json::json!(["file"]));
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
        let connect = || TcpStream::connect(("127.0.0.1", 8555));
        let mut stream = site.testbed.snd.run(connect).unwrap();
        stream.write_all(begun.as_bytes()).unwrap();
        idle.push(stream);
    }
    site.wait_for("nobody", |source| source["members"] == 0);
    site.source(true).send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    assert_eq!(site.ask("GET", "/health", "").0, 200);
    site.stop();
}

#[test]
fn what_is_odd_about_a_source_is_told_counted_and_passed_on() {
    require_root!();
    let site = Site::start(&["5004", "--rtsp", "off", "--silence", "100ms"]);
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
    let told = site.wait_for("silence", |source| source["state"] == "silent");
    let counts = &told["received"];
    assert_eq!(counts["missing"], 2, "{told:#}");
    assert_eq!(counts["behind"], 1);
    assert_eq!(counts["restarts"], 1);
    assert_eq!(counts["source_changes"], 2);
    assert_eq!(site.ask("GET", "/health", "").0, 503);
    one.send(&rtp(9001, 1328)).unwrap();
    let told = site.wait_for("the end of it", |source| source["state"] == "live");
    assert!(told["received"]["silences"].as_u64() >= Some(1));
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

#[test]
fn after_a_kill_nothing_is_left_and_a_second_relay_starts_at_once() {
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
        site.relay = Site::relay(&site.testbed, &arguments);
        site.source(true).send(&rtp(3, 1328)).unwrap();
        site.wait_for("the source", |source| source["state"] == "live");
        site.stop();
    }
}

#[test]
fn in_the_kernel_players_and_both_ip_versions_are_served_and_others_pass() {
    require_root!();
    let site = Site::start(&[
        "5004",
        "--in-kernel",
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
        for packet in &sent {
            source.send(packet).unwrap();
        }
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

/// Whole transport packets of one PID, which count on where they left off.
fn transport_stream(packets: u8) -> Vec<u8> {
    let packet = |i| {
        let mut ts = vec![i; 188];
        ts[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        ts
    };
    (0..packets).flat_map(packet).collect()
}

/// Where the relay takes its source in.
const INPUT_PORT: u16 = 5004;
