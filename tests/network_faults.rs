//! Faults of the network while a film plays: whoever can be served again is, at the place where it
//! would be by then, and every packet is counted as sent or as refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use onrush_testkit::checker::Start;
use onrush_testkit::receiver::Capture;
use onrush_testkit::require_root;
use onrush_testkit::testbed::{Mode, SND_DEVICE, SND_IPV4};
use onrush_wire::rtp::Header;

use common::{
    LONG, ONRUSH, RTSP_PORT, Site, Viewer, clip, expected, serve_arguments, wait_until, watch,
};

mod common;

/// A server of a clip of so many seconds, whose metrics are on loopback.
fn serve(seconds: f64) -> Site {
    let arguments = ["--metrics=127.0.0.1:9554", "--cache=16MiB"];
    Site::with_clip(&clip(seconds), Mode::Uso, &arguments)
}

/// The sums over all engines of what the kernel took, what it refused, and what a machine that is
/// too busy left out, in packets.
fn sent_and_not(site: &Site) -> [u64; 3] {
    let mut curl = site.testbed.snd.command("curl");
    let output = curl.args(["-s", "http://127.0.0.1:9554/status"]).output();
    let status: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let engines = status["engines"].as_array().unwrap();
    let sum = |name: &str| engines.iter().map(|it| it[name].as_u64().unwrap()).sum();
    ["packets", "packets_refused", "packets_skipped"].map(sum)
}

/// Each fault of the document has a test that there is, or says that it has none.
#[test]
fn the_table_of_faults_names_tests_that_there_are() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = fs::read_to_string(format!("{root}/docs/reliability.md")).unwrap();
    let (mut faults, mut wrong) = (0, Vec::new());
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let test = line.split('|').rev().nth(1).unwrap().trim();
        if matches!(test, "test" | "---") {
            continue;
        }
        faults += 1;
        let names: Vec<_> = test.split('`').skip(1).step_by(2).collect();
        let is_there = match names[..] {
            [file, name] => fs::read_to_string(format!("{root}/{file}"))
                .is_ok_and(|text| text.contains(&format!("fn {name}()"))),
            _ => test == "**no test yet**",
        };
        if !is_there {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty() && faults > 30, "{faults}: {wrong:#?}");
}

fn ip(site: &Site, words: &str) {
    site.testbed.snd.tool("ip", words.split(' ')).unwrap();
}

/// Packets that a gap in the numbers says did not come; they come in order.
fn missing(capture: &Capture) -> u64 {
    let numbers = capture
        .rtp
        .iter()
        .map(|it| Header::read(&it.bytes).unwrap().sequence);
    let numbers: Vec<_> = numbers.collect();
    let gaps = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    gaps.map(|gap| u64::from(gap) - 1).sum()
}

/// Plays a clip of so many seconds to its end, with `harm` done when it has begun. What came, what
/// was refused and what went missing add up to the whole.
fn survives(seconds: f64, harm: impl FnOnce(&Site)) -> u64 {
    survives_as(seconds, true, harm)
}

/// The same by a client that keeps its connection, or has lost it before.
fn survives_as(seconds: f64, is_connected: bool, harm: impl FnOnce(&Site)) -> u64 {
    let site = serve(seconds);
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    viewer.play(None);
    let has_begun = |capture: &Capture| capture.rtp.len() > 50;
    assert!(viewer.receiver.wait_until(LONG, has_begun));
    let Viewer {
        client, receiver, ..
    } = viewer;
    let client = Some(client).filter(|_| is_connected);
    harm(&site);
    let after = receiver.wait_until(LONG, Capture::has_bye);
    assert!(after, "{}", site.server.log_tail());
    let [sent, refused, skipped] = sent_and_not(&site);
    let capture = receiver.finish();
    drop(client);
    let whole = clip(seconds).len().div_ceil(7 * 188) as u64;
    let came = capture.rtp.len() as u64;
    assert_eq!(
        sent + refused + skipped,
        whole,
        "{}",
        site.server.log_tail()
    );
    assert_eq!(came, sent, "what the kernel took has come");
    assert_eq!(
        missing(&capture),
        refused,
        "all else was refused, and counted"
    );
    site.stop();
    refused
}

// SPECIFICATION.md: 65
#[test]
fn a_network_down_for_ten_seconds_ends_no_session() {
    require_root!();
    let refused = survives(16.0, down_for_ten_seconds);
    assert!(refused > 500, "{refused} of ten seconds' packets");
}

/// It was lost before, so that nothing but the film goes over that network.
// SPECIFICATION.md: 65
#[test]
fn a_network_down_ends_no_session_without_a_connection() {
    require_root!();
    let refused = survives_as(16.0, false, down_for_ten_seconds);
    assert!(refused > 500, "{refused} of ten seconds' packets");
}

fn down_for_ten_seconds(site: &Site) {
    ip(site, &format!("link set {SND_DEVICE} down"));
    thread::sleep(Duration::from_secs(10));
    ip(site, &format!("link set {SND_DEVICE} up"));
}

#[test]
fn an_address_removed_and_added_ends_no_session() {
    require_root!();
    let refused = survives(12.0, |site| {
        ip(site, &format!("addr del {SND_IPV4}/24 dev {SND_DEVICE}"));
        thread::sleep(Duration::from_secs(2));
        ip(site, &format!("addr add {SND_IPV4}/24 dev {SND_DEVICE}"));
    });
    assert!(refused > 50, "{refused} of two seconds' packets");
}

#[test]
fn a_route_that_comes_and_goes_ends_no_session() {
    require_root!();
    let refused = survives(12.0, |site| {
        for _ in 0..8 {
            ip(site, "route add unreachable 10.77.0.2/32");
            thread::sleep(Duration::from_millis(100));
            ip(site, "route del unreachable 10.77.0.2/32");
            thread::sleep(Duration::from_millis(100));
        }
    });
    assert!(refused > 0, "nothing was refused");
}

/// Packets that fitted when the session was set up never will again: it ends at once, with the
/// reason, and who comes now gets smaller ones.
#[test]
fn a_lower_mtu_ends_sessions_that_no_longer_fit() {
    require_root!();
    let film = clip(8.0);
    let site = serve(8.0);
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    viewer.play(None);
    let has_begun = |capture: &Capture| capture.rtp.len() > 50;
    assert!(viewer.receiver.wait_until(LONG, has_begun));
    ip(&site, &format!("link set {SND_DEVICE} mtu 1300"));
    let ended = viewer.receiver.wait_until(LONG, Capture::has_bye);
    assert!(ended, "{}", site.server.log_tail());
    let line = site.server.wait_for_line(" ends (", LONG).unwrap();
    assert!(line.contains("too long"), "{line}");
    let whole = film.len().div_ceil(7 * 188);
    assert!(viewer.receiver.take().rtp.len() < whole);
    let mut second = Viewer::setup(&site.testbed, "clip.ts");
    second.play(Some(4.0));
    let capture = second.finish();
    let longest = capture.rtp.iter().map(|it| it.bytes.len()).max().unwrap();
    assert!(longest <= 1300 - 28, "{longest} bytes");
    assert_eq!(missing(&capture), 0);
    site.stop();
}

/// From then on the kernel cuts trains, or the server sends packets singly: nothing is lost.
#[test]
fn a_device_that_loses_its_offloads_loses_no_packet() {
    require_root!();
    let film: Arc<[u8]> = Arc::from(clip(8.0));
    let site = serve(8.0);
    let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
    let expected = expected(&film, Start::At(0), &viewer.play(None));
    for (number, names) in [(50, "tx-udp-segmentation"), (150, "tx-checksum-ip-generic")] {
        let so_far = |capture: &Capture| capture.rtp.len() > number;
        assert!(viewer.receiver.wait_until(LONG, so_far));
        site.testbed.switch(&[names], false).unwrap();
    }
    viewer.judged(&expected);
    site.stop();
}

/// A session plays while others do what they like; how often they could is what comes back.
fn beside(site: &Site, film: &Arc<[u8]>, attack: impl Fn(&AtomicU64) + Sync) -> u64 {
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    site.testbed.rcv.run(|| attack(&count));
                }
            });
        }
        watch(&site.testbed, "clip.ts", film, None);
        is_over.store(true, Ordering::Relaxed);
    });
    count.load(Ordering::Relaxed)
}

/// As many a second as two threads can; a connection that is refused is one, too.
#[test]
fn a_flood_of_connections_disturbs_nobody() {
    require_root!();
    let film: Arc<[u8]> = Arc::from(clip(6.0));
    let site = serve(6.0);
    let address = SocketAddr::from((SND_IPV4, RTSP_PORT));
    // What is held for the film stays.
    watch(&site.testbed, "clip.ts", &film, Some(5.0));
    let before = site.settled();
    let connections = beside(&site, &film, |count| {
        for _ in 0..50 {
            // Ports run out in a minute's waiting (TIME_WAIT): a reset leaves none.
            if let Ok(stream) = TcpStream::connect_timeout(&address, LONG) {
                let socket = socket2::SockRef::from(&stream);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(connections > 200, "{connections} connections");
    let mut client = site.connect();
    assert_eq!(client.request("OPTIONS", "*", &[]).unwrap().status, 200);
    drop(client);
    site.assert_returns_to(before);
    site.stop();
}

/// One connection on which request follows request, without waiting for an answer.
#[test]
fn a_flood_of_requests_disturbs_nobody() {
    require_root!();
    const AT_ONCE: u64 = 500;
    let film: Arc<[u8]> = Arc::from(clip(6.0));
    let site = serve(6.0);
    let address = SocketAddr::from((SND_IPV4, RTSP_PORT));
    let requests: String = (1..=AT_ONCE)
        .map(|number| format!("OPTIONS * RTSP/1.0\r\nCSeq: {number}\r\n\r\n"))
        .collect();
    let answered = beside(&site, &film, |count| {
        let mut stream = TcpStream::connect_timeout(&address, LONG).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        let mut answers = Vec::new();
        let last = format!("CSeq: {AT_ONCE}\r\n");
        let mut piece = [0; 16 << 10];
        while !answers.windows(last.len()).any(|it| it == last.as_bytes()) {
            let bytes = stream.read(&mut piece).unwrap();
            assert_ne!(bytes, 0, "{}", String::from_utf8_lossy(&answers));
            // The last answer's number stands in what came last.
            answers.drain(..answers.len().saturating_sub(last.len()));
            answers.extend_from_slice(&piece[..bytes]);
        }
        count.fetch_add(AT_ONCE, Ordering::Relaxed);
    });
    assert!(answered > 500, "{answered} requests");
    site.stop();
}

/// What a connection is told that sends this; nothing, if it is closed without a word.
fn told(stream: &mut TcpStream, request: &str) -> String {
    stream.set_read_timeout(Some(LONG)).unwrap();
    // It may be closed already.
    drop(stream.write_all(request.as_bytes()));
    let mut answer = [0; 64];
    let bytes = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..bytes]).into_owned()
}

/// The server keeps some descriptors apart: those that come beyond the others are refused in words,
/// and those that play go on.
#[test]
fn connections_beyond_the_descriptors_are_refused() {
    require_root!();
    let film = clip(8.0);
    let ts: Arc<[u8]> = Arc::from(&*film);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &film).unwrap();
    let mut command = testbed.snd.command("prlimit");
    command.args(["--nofile=820:820", ONRUSH]);
    command
        .args(serve_arguments(media.path()))
        .arg("--cache=16MiB");
    let site = Site::serve_by(testbed, media, command);
    let address = SocketAddr::from((SND_IPV4, RTSP_PORT));
    watch(&site.testbed, "clip.ts", &ts, Some(6.0));
    let before = site.settled();
    thread::scope(|scope| {
        let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
        let expected = expected(&ts, Start::At(0), &viewer.play(None));
        let viewer = scope.spawn(move || viewer.judged(&expected));
        let connect = || TcpStream::connect_timeout(&address, LONG).unwrap();
        let mut held: Vec<_> = site
            .testbed
            .rcv
            .run(|| (0..200).map(|_| connect()).collect());
        let answer = told(&mut held[0], "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n");
        assert!(answer.contains(" 200 "), "there was room for one");
        // Of many at once a few are told; and one that says nothing is told for certain.
        wait_until("one more is told that there are too many", || {
            let mut one_more = site.testbed.rcv.run(connect);
            told(&mut one_more, "").starts_with("RTSP/1.0 503 ")
        });
        viewer.join().unwrap();
    });
    site.assert_returns_to(before);
    watch(&site.testbed, "clip.ts", &ts, Some(6.0));
    site.stop();
}
