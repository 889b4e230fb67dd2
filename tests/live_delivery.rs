//! How live channels reach their viewers: from the last sync sample, over TCP as over UDP, after a
//! pause, and where a viewer is slow.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::interleaved::{Frame, InterleavedClient};
use onrush_testkit::require_programs;
use onrush_testkit::require_root;
use onrush_testkit::testbed::SND_IPV4;
use onrush_wire::rtp::{HEADER_BYTES, Header};

use common::{LONG, Viewer};
use publish_site::{Eyes, Hand, SDP, channel, nth_channel, serve};
use relay_site::{Stopper, rtp};

mod common;
mod publish_site;
mod relay_site;

const RELAYED: &str = "rtsp://10.77.0.1:8554/live/live";

/// An RTP packet of a transport stream, which begins with a picture that a decoder can start at if
/// it `is_sync`.
fn transport(sequence: u16, is_sync: bool) -> Vec<u8> {
    let ts = |pid: u16, start: u8, flags: u8, payload: &[u8]| {
        let [high, low] = pid.to_be_bytes();
        let mut ts = vec![0x47, start | high, low, 0x30, 1, flags];
        ts.extend_from_slice(payload);
        ts.resize(188, sequence.to_le_bytes()[0]);
        ts
    };
    let head = rtp(sequence, HEADER_BYTES);
    let packets = match is_sync {
        true => [
            ts(0, 0x40, 0, &[0]),
            ts(0x100, 0x40, 0x40, &[0, 0, 1, 0xe0]),
        ],
        false => [ts(0x100, 0, 0, &[]), ts(0x100, 0, 0, &[])],
    };
    [head, packets.concat()].concat()
}

/// The next RTP packet.
fn next(client: &mut InterleavedClient) -> Vec<u8> {
    loop {
        let Frame { channel, packet } = client.frame().unwrap();
        if channel == 0 {
            return packet;
        }
    }
}

#[test]
fn a_relay_sends_from_the_last_sync_sample_by_tcp_and_udp() {
    require_root!();
    let site = relay_site::Site::start(&["5004", "--rtsp", "10.77.0.1:8554"]);
    let source = site.source(true);
    let send = |sequences: std::ops::RangeInclusive<u16>, sync: u16| {
        for sequence in sequences {
            source.send(&transport(sequence, sequence == sync)).unwrap();
        }
    };
    send(1..=10, 7);
    site.wait_for("the source", |it| it["received"]["rtp"] == 10);
    let connect = || InterleavedClient::connect((SND_IPV4, 8554).into());
    let mut client = site.testbed.rcv.run(connect).unwrap();
    let track = format!("{RELAYED}/track1");
    client
        .set_up(&track, "RTP/AVP/TCP;unicast;interleaved=0-1")
        .unwrap();
    let answer = client.request("PLAY", RELAYED, &[]).unwrap();
    let info = answer.header("RTP-Info").expect("it is known");
    assert!(info.contains("seq=7;rtptime=2100"), "{info}");
    let mut viewer = Viewer::setup(&site.testbed, "live/live");
    let info = viewer.play(None);
    assert_eq!((info.sequence, info.timestamp), (7, 2100));
    send(11..=12, 0);
    for sequence in 7..=12 {
        assert_eq!(
            next(&mut client),
            transport(sequence, sequence == 7),
            "{sequence}"
        );
    }
    assert!(viewer.receiver.wait_until(LONG, |it| it.rtp.len() >= 6));
    let got = viewer.receiver.take().rtp;
    let sent = (7..=12).map(|sequence| transport(sequence, sequence == 7));
    assert!(got.into_iter().map(|datagram| datagram.bytes).eq(sent));
    // What is there after a pause goes on by a packet and by about a picture.
    assert_eq!(client.request("PAUSE", RELAYED, &[]).unwrap().status, 200);
    assert_eq!(viewer.ask("PAUSE", &[]).status, 200);
    site.wait_for("the pause", |it| it["players"] == 0);
    send(13..=29, 25);
    site.wait_for("the source", |it| it["received"]["rtp"] == 29);
    let answer = client.request("PLAY", RELAYED, &[]).unwrap();
    let info = answer.header("RTP-Info").expect("it is known");
    assert!(info.contains("seq=13;rtptime=7200"), "{info}");
    assert_eq!(viewer.play(None).sequence, 13);
    send(30..=30, 0);
    let own = |sequence: u16| {
        let mut packet = transport(sequence + 12, sequence == 13);
        packet[2..4].copy_from_slice(&sequence.to_be_bytes());
        let timestamp = 12 * 300 + 3600 + 300 * u32::from(sequence - 13);
        packet[4..8].copy_from_slice(&timestamp.to_be_bytes());
        packet
    };
    assert_eq!(next(&mut client), own(13));
    assert!(viewer.receiver.wait_until(LONG, |it| it.rtp.len() >= 6));
    let got = viewer.receiver.take().rtp;
    assert!(got.into_iter().map(|it| it.bytes).eq((13..=18).map(own)));
    let log = site.stop();
    assert!(
        log.contains("players on TCP are sent to by an engine"),
        "{log}"
    );
}

#[test]
fn a_paused_viewer_of_a_publisher_goes_on_without_a_gap() {
    require_root!();
    require_programs!("curl");
    let site = serve(&[]);
    let mut hand = Hand::publish(&site, SDP);
    let picture =
        |hand: &mut Hand, number: u32| hand.picture(number * 3600, number.is_multiple_of(10));
    (0..15).for_each(|number| picture(&mut hand, number));
    channel(&site, "pictures", |it| it["received"]["rtp"] == 15);
    let mut eyes = Eyes::set_up(&site);
    eyes.play();
    let mut last = eyes.next().0;
    assert_eq!(last.sequence, 10);
    for _ in 11..15 {
        last = eyes.next().0;
    }
    let url = eyes.url.clone();
    // At once, what was shown is shown again; later, much has passed.
    for sent in [15..16_u32, 16..58] {
        assert_eq!(eyes.client.request("PAUSE", &url, &[]).unwrap().status, 200);
        let end = sent.end;
        sent.for_each(|number| picture(&mut hand, number));
        channel(&site, "pictures", |it| {
            it["received"]["rtp"] == u64::from(end)
        });
        let answer = eyes.play();
        let (first, nal) = eyes.next();
        assert_eq!(nal, 0x65, "a sync sample");
        let (sequence, step) = (last.sequence + 1, first.timestamp - last.timestamp);
        assert_eq!(
            (first.sequence, step, first.ssrc),
            (sequence, 3600, last.ssrc)
        );
        let told = format!("seq={sequence};rtptime={}", first.timestamp);
        let info = answer.header("RTP-Info").expect("it is known");
        assert!(info.contains(&told), "{info}: {told}");
        let rest = end - end / 10 * 10 - 1;
        last = first;
        for _ in 0..rest {
            let (next, _) = eyes.next();
            assert_eq!(
                (next.sequence, next.timestamp),
                (last.sequence + 1, last.timestamp + 3600)
            );
            last = next;
        }
    }
    site.stop();
}

/// Without `--next-sync` and with it; the queries of who waits, and of who does not.
#[test]
fn a_viewer_begins_where_its_url_or_the_server_says() {
    require_root!();
    require_programs!("curl");
    let of_server: [(&[&str], _, _); 2] = [
        (&[], "?sync=next", ""),
        (&["--next-sync"], "", "?sync=last"),
    ];
    for (options, waits, begins_at_once) in of_server {
        let site = serve(options);
        let mut hand = Hand::publish(&site, SDP);
        let picture = |hand: &mut Hand, number: u32| {
            hand.picture(number * 3600, number.is_multiple_of(4));
        };
        (0..7).for_each(|number| picture(&mut hand, number));
        channel(&site, "pictures", |it| it["received"]["rtp"] == 7);
        let mut eyes = [waits, begins_at_once].map(|query| {
            let mut eyes = Eyes::set_up_as_described(&site, query);
            let told = eyes.play().header("RTP-Info").map(str::to_owned);
            (eyes, told.unwrap_or_default())
        });
        assert!(!eyes[0].1.contains("seq="), "{}", eyes[0].1);
        assert!(eyes[1].1.contains("seq=4;"), "{}", eyes[1].1);
        (7..10).for_each(|number| picture(&mut hand, number));
        for ((eyes, _), first) in eyes.iter_mut().zip([8, 4]) {
            let (header, nal) = eyes.next();
            assert_eq!((header.sequence, nal), (first, 0x65), "{options:?}");
            for sequence in first + 1..10 {
                assert_eq!(eyes.next().0.sequence, sequence);
            }
        }
        site.stop();
    }
}

#[test]
fn a_publisher_on_tcp_is_told_how_its_packets_arrive() {
    require_root!();
    require_programs!("curl");
    let site = serve(&[]);
    let mut hand = Hand::publish(&site, SDP);
    hand.picture(0, true);
    hand.sequence += 1;
    // Until a report is due, which is so every five seconds while something comes.
    let give_up = Instant::now() + LONG;
    let mut number = 0;
    let report = loop {
        assert!(Instant::now() < give_up, "no report");
        for _ in 0..150 {
            number += 1;
            hand.picture(number * 3600, false);
            thread::sleep(Duration::from_millis(40));
        }
        // An answer shows what came before it.
        assert_eq!(hand.ask("GET_PARAMETER"), 200);
        if let Some(frame) = hand.client.take_early().pop() {
            break frame;
        }
    };
    assert_eq!(report.channel, 1);
    let word = |at: usize| {
        let bytes = report.packet[at..].first_chunk().unwrap();
        u32::from_be_bytes(*bytes)
    };
    // RFC 3550, section 6.4.2: RR with one block, about the SSRC; one packet lost in all.
    assert_eq!(report.packet[..2], [0x81, 201]);
    assert_eq!((word(8), word(12) & 0xff_ffff), (7, 1));
    assert!(word(16) <= u32::from(hand.sequence), "{report:?}");
    site.stop();
}

/// A packet of noise, now and then with what looks like the head of a NAL unit, a fragment or an
/// aggregate; the same ones in each run.
fn noise(hand: &mut Hand, state: &mut u32) -> (u8, Vec<u8>) {
    let mut next = || {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        *state
    };
    let of_sound = next() % 4 == 0;
    let heads = [0x65, 0x67, 0x68, 0x7c, 0x78, 0x41, 0x00, 0xff];
    let head = heads[next() as usize % heads.len()];
    let (timestamp, bytes) = (next() % 900_000, next() as usize % 1400);
    if next() % 50 == 0 {
        hand.sequence = hand.sequence.wrapping_add(300);
    }
    let payload_type = if of_sound { 97 } else { 96 };
    let mut packet = hand.packet(7, payload_type, timestamp, head);
    packet.truncate(HEADER_BYTES + 1);
    packet.extend((0..bytes).map(|_| next().to_le_bytes()[1]));
    (if of_sound { 2 } else { 0 }, packet)
}

#[test]
fn a_publisher_of_noise_disturbs_nobody_else() {
    const PACKETS: u32 = 3000;
    require_root!();
    require_programs!("curl");
    let site = serve(&["--http=127.0.0.1:8080", "--cache=16MiB"]);
    let mut hand = Hand::publish(&site, SDP);
    hand.picture(0, true);
    channel(&site, "a picture", |it| it["received"]["rtp"] == 1);
    let mut eyes = Eyes::set_up(&site);
    eyes.play();
    assert_eq!(eyes.next().0.sequence, 0);
    let mut liar = Hand::connect(&site, false);
    liar.url = "rtsp://127.0.0.1:8554/live/liar".to_owned();
    let mut liar = liar.record(SDP);
    // Somebody asks for it by HLS, so that its pictures are looked for.
    let mut command = site.testbed.snd.command("curl");
    command.args(["-s", "-m", "40", "-o", "/dev/null", "-w", "%{http_code}"]);
    command.arg("http://127.0.0.1:8080/live/liar/hls/index.m3u8");
    let asking = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut state = 1;
    for number in 1..=PACKETS {
        let (channel, packet) = noise(&mut liar, &mut state);
        liar.client.send_frame(channel, &packet).unwrap();
        if number % 10 == 0 {
            let number = number / 10;
            hand.picture(number * 3600, number.is_multiple_of(10));
            assert_eq!(u32::from(eyes.next().0.sequence), number);
        }
    }
    let told = nth_channel(&site, (1, "noise"), |it| it["received"]["rtp"] == PACKETS);
    assert_eq!(told["name"], "live/liar");
    let received = &told["received"];
    for count in ["unannounced", "foreign", "strays"] {
        assert_eq!(received[count], 0, "{told:#}");
    }
    assert_eq!(liar.ask("TEARDOWN"), 200);
    let status = asking.wait_with_output().unwrap().stdout;
    assert_ne!(status, b"000", "it is answered");
    let log = site.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// A camera that gives this answer and hangs up.
fn camera(listener: &TcpListener, answer: &str) {
    let (mut socket, _) = listener.accept().unwrap();
    let mut request = [0; 4096];
    assert!(socket.read(&mut request).unwrap() > 0);
    socket.write_all(answer.as_bytes()).unwrap();
}

#[test]
fn a_camera_that_answers_nonsense_has_a_row_that_says_so() {
    require_root!();
    require_programs!("curl");
    let site = serve(&["--channel=door=rtsp://anna:secret@127.0.0.1:9555/x"]);
    let told = channel(&site, "nobody there", |it| it["error"].is_string());
    let words = ["name", "input", "state"].map(|field| told[field].as_str().unwrap());
    assert_eq!(
        words,
        ["live/door", "rtsp://127.0.0.1:9555/x", "connecting"]
    );
    assert!(
        told["error"].as_str().unwrap().contains("refused"),
        "{told:#}"
    );
    let bind = || TcpListener::bind("127.0.0.1:9555");
    let listener = site.testbed.snd.run(bind).unwrap();
    let answers = [
        "\0\u{1}nonsense\r\n\r\n",
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 99999999999\r\n\r\n",
        "RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 9\r\n\r\nno sdp :(",
    ];
    let mut last = told["error"].clone();
    for answer in answers {
        camera(&listener, answer);
        let told = channel(&site, answer, |it| it["error"] != last);
        assert_eq!(told["state"], "connecting", "{told:#}");
        last = told["error"].clone();
    }
    let log = site.stop();
    assert!(!log.contains("secret"), "{log}");
}

/// The next request of whoever pulls a camera; the channels of frames before it are noted.
fn request(socket: &mut TcpStream, channels: &mut Vec<u8>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        if head.is_empty() && byte[0] == b'$' {
            let mut prefix = [0; 3];
            socket.read_exact(&mut prefix).unwrap();
            let length = u16::from_be_bytes([prefix[1], prefix[2]]);
            socket.read_exact(&mut vec![0; length.into()]).unwrap();
            channels.push(prefix[0]);
        } else {
            head.push(byte[0]);
        }
    }
    String::from_utf8(head).unwrap()
}

fn reply(socket: &mut TcpStream, request: &str, status: &str, rest: &str) {
    let mut lines = request.lines();
    let cseq = lines.find(|line| line.starts_with("CSeq")).unwrap();
    let text = format!("RTSP/1.0 {status}\r\n{cseq}\r\n{rest}\r\n");
    socket.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_camera_may_choose_channels_and_change_its_nonce() {
    require_root!();
    require_programs!("curl");
    let site = serve(&["--channel=door=rtsp://anna:secret@127.0.0.1:9555/x"]);
    let bind = || TcpListener::bind("127.0.0.1:9555");
    let listener = site.testbed.snd.run(bind).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut reports = Vec::new();
    let challenge = |nonce: &str, more: &str| {
        format!("WWW-Authenticate: Digest realm=\"door\", nonce=\"{nonce}\"{more}\r\n")
    };
    let asked = request(&mut socket, &mut reports);
    reply(
        &mut socket,
        &asked,
        "401 Unauthorized",
        &challenge("one", ""),
    );
    let session = "Session: 7;timeout=4\r\n";
    let transport =
        |channels| format!("{session}Transport: RTP/AVP/TCP;unicast;interleaved={channels}\r\n");
    // A track that only its maker's programs understand is not asked for.
    let described = format!("{SDP}m=application/X 0 RTP/AVP smart/1/90000\r\na=control:x\r\n");
    let description = format!("Content-Length: {}\r\n\r\n{described}", described.len());
    let answers = [
        // The end of the head is in it.
        ("DESCRIBE", description.trim_end_matches("\r\n").to_owned()),
        ("SETUP", transport("10-11")),
        ("SETUP", transport("4-7")),
        ("PLAY", session.to_owned()),
    ];
    for (method, rest) in answers {
        let asked = request(&mut socket, &mut reports);
        assert!(asked.starts_with(method), "{asked}");
        assert!(asked.contains("nonce=\"one\""), "{asked}");
        reply(&mut socket, &asked, "200 OK", &rest);
    }
    for (channel, payload_type) in [(10, 96), (4, 97), (0, 96), (10, 96)] {
        let header = Header {
            marker: true,
            payload_type,
            sequence: 1,
            timestamp: 0,
            ssrc: channel.into(),
        };
        let packet = [&header.to_bytes()[..], &[0x65, 1, 2, 3]].concat();
        let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
        let prefix = [b'$', channel, length[0], length[1]];
        // Some cameras send bytes between frames that are none.
        let between: &[u8] = if channel == 4 { b"\0\xff" } else { b"" };
        let frame = [between, &prefix[..], &packet[..]].concat();
        socket.write_all(&frame).unwrap();
    }
    let told = channel(&site, "packets", |it| it["received"]["rtp"] == 3);
    let received = &told["received"];
    assert_eq!(
        (&received["strays"], &received["foreign"]),
        (&2.into(), &0.into())
    );
    // OPTIONS comes when nothing has answered for two seconds, as on a machine that stands still.
    let is_sign = |asked: &str| asked.starts_with("GET_PARAMETER") || asked.starts_with("OPTIONS");
    let asked = request(&mut socket, &mut reports);
    assert!(is_sign(&asked), "{asked}");
    let stale = challenge("two", ", stale=true");
    reply(&mut socket, &asked, "401 Unauthorized", &stale);
    // Its reports are on the channels that it has chosen.
    let give_up = Instant::now() + LONG;
    while ![11, 7].iter().all(|channel| reports.contains(channel)) {
        assert!(Instant::now() < give_up, "{reports:?}");
        let asked = request(&mut socket, &mut reports);
        assert!(is_sign(&asked), "{asked}");
        assert!(asked.contains("nonce=\"two\""), "{asked}");
        reply(&mut socket, &asked, "200 OK", session);
    }
    assert!(
        reports.iter().all(|channel| [11, 7].contains(channel)),
        "{reports:?}"
    );
    site.stop();
}

/// Packets of a picture, and bytes of one.
const PICTURE_PACKETS: u16 = 8;
const PACKET_BYTES: usize = 1400;

/// Publishes a picture of several packets, every 25th a sync sample.
fn publish_picture(hand: &mut Hand, number: u32) {
    let nal = if number.is_multiple_of(25) {
        0x65
    } else {
        0x41
    };
    for _ in 0..PICTURE_PACKETS {
        let mut packet = hand.packet(7, 96, number * 3600, nal);
        packet.resize(PACKET_BYTES, nal);
        hand.client.send_frame(0, &packet).unwrap();
    }
    // So that it is a stream, and not a flood.
    thread::sleep(Duration::from_millis(1));
}

/// Publishes until it is told to stop, and no faster than somebody reads; how many packets.
fn publish_until(stop: &AtomicBool, got: &AtomicU64, mut hand: Hand) -> u64 {
    let mut pictures = 0;
    while !stop.load(Ordering::Relaxed) {
        let sent = u64::from(pictures) * u64::from(PICTURE_PACKETS);
        if sent > got.load(Ordering::Relaxed) + 1000 {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        publish_picture(&mut hand, pictures);
        pictures += 1;
    }
    u64::from(pictures) * u64::from(PICTURE_PACKETS)
}

/// Reads all that comes; nothing may be missing.
fn read_all(client: &mut InterleavedClient, got: &AtomicU64) {
    while let Ok(Frame { channel, packet }) = client.frame() {
        if channel == 0 {
            let header = Header::read(&packet).unwrap();
            let sequence = u64::from(header.sequence);
            let expected = got.fetch_add(1, Ordering::Relaxed);
            assert_eq!(sequence, expected % 65_536, "who reads misses nothing");
        }
    }
}

/// Reads what a slow viewer is left with, until there was a gap: units are whole, and behind a gap
/// there is a sync sample.
fn read_over_a_gap(eyes: &mut Eyes) {
    let (mut last, mut of_unit, mut gaps) = (None::<Header>, 0, 0);
    while gaps == 0 || of_unit < PICTURE_PACKETS {
        let (header, nal) = eyes.next();
        if last.is_some_and(|last| last.timestamp == header.timestamp) {
            of_unit += 1;
        } else {
            assert!(
                last.is_none() || of_unit == PICTURE_PACKETS,
                "{of_unit} of a unit"
            );
            of_unit = 1;
        }
        if last.is_some_and(|last| last.sequence.wrapping_add(1) != header.sequence) {
            assert_eq!((nal, of_unit), (0x65, 1), "behind a gap");
            gaps += 1;
        }
        last = Some(header);
    }
}

#[test]
fn a_slow_viewer_on_tcp_loses_pictures_and_nobody_else_does() {
    require_root!();
    require_programs!("curl");
    // Long enough for what is to be dropped while the slow one does not read.
    let site = serve(&["--stall-time-max=40s", "--cache=16MiB"]);
    let mut hand = Hand::publish(&site, SDP);
    hand.picture(0, true);
    channel(&site, "a picture", |it| it["received"]["rtp"] == 1);
    let (mut slow, mut prompt) = (Eyes::set_up(&site), Eyes::set_up(&site));
    slow.play();
    prompt.play();
    let first = slow.next().0;
    assert_eq!(first.sequence, 0);
    let before = resident_bytes(&site);
    let (stop, got) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| read_all(&mut prompt.client, &got));
        let publishing = scope.spawn(|| publish_until(&stop, &got, hand));
        let _stopper = Stopper(&stop);
        let dropped = |it: &serde_json::Value| it["sent"]["dropped"].as_u64();
        channel(&site, "much is dropped", |it| dropped(it) > Some(6000));
        let grown = resident_bytes(&site).saturating_sub(before);
        // 4 MiB wait for it, as much was freed of those, and 512 KiB are under way.
        assert!(grown < 24 << 20, "{grown} bytes for one viewer");
        read_over_a_gap(&mut slow);
        // Now it reads no more, and loses its session for that; the other plays on.
        let told = channel(&site, "the end", |it| it["sent"]["stalled_out"] == 1);
        assert_eq!(
            (&told["players"], &told["received"]["overflows"]),
            (&1.into(), &0.into())
        );
        stop.store(true, Ordering::Relaxed);
        let sent = 1 + publishing.join().unwrap();
        let give_up = Instant::now() + LONG;
        while got.load(Ordering::Relaxed) < sent {
            assert!(Instant::now() < give_up, "{sent}");
            thread::sleep(Duration::from_millis(20));
        }
        let why = "takes nothing of what is sent";
        assert!(site.server.wait_for_line(why, LONG).is_some());
        site.stop();
    });
}

/// Of the server's process.
fn resident_bytes(site: &common::Site) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}
