//! Peers that err, lie, stall or vanish: each gets an answer or is hung up on, a well-behaved
//! session beside them loses nothing, and nothing is left of them afterwards.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use onrush_testkit::checker::Start;
use onrush_testkit::rtsp_client::Client;
use onrush_testkit::testbed::{Mode, SND_IPV4, SND_IPV6};
use onrush_testkit::{require_root, skip};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::{LONG, RTSP_PORT, Site, Viewer, clip, expected, wait_until, watch};

mod common;

/// Runs `mischief` while a well-behaved session plays beside it, which must lose nothing. Then the
/// server must hold what it held before, and stop cleanly. Its log comes back.
fn beside_a_good_session(arguments: &[&str], mischief: impl FnOnce(&Site) + Send) -> String {
    beside_a_session_of(4.0, arguments, mischief)
}

/// The same with a clip of so many seconds.
fn beside_a_session_of(
    seconds: f64,
    arguments: &[&str],
    mischief: impl FnOnce(&Site) + Send,
) -> String {
    let good = clip(seconds);
    let ts = Arc::from(&*good);
    let site = Site::with_clip(&good, Mode::Uso, arguments);
    // Once before, so that what a first session leaves for the next ones is there already.
    watch(&site.testbed, "clip.ts", &ts, Some(seconds - 1.0));
    let before = site.settled();
    thread::scope(|scope| {
        let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
        let expected = expected(&ts, Start::At(0), &viewer.play(None));
        let session = scope.spawn(move || viewer.judged(&expected));
        mischief(&site);
        session.join().unwrap();
    });
    site.assert_returns_to(before);
    watch(&site.testbed, "clip.ts", &ts, Some(seconds - 1.0));
    site.stop()
}

/// Sends bytes on a connection of their own; the status of the answer, or `None` for a hang-up.
fn status(site: &Site, bytes: impl AsRef<[u8]>) -> Option<u16> {
    let mut client = site.connect();
    // The server may hang up before it has read all of an endless request.
    drop(client.send_raw(bytes.as_ref()));
    match client.response() {
        Ok(response) => Some(response.status),
        Err(error) if is_hang_up(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether the server closes the connection; answers before that are passed over.
fn hangs_up(client: &mut Client) -> bool {
    loop {
        if let Err(error) = client.response() {
            return is_hang_up(&error);
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
    )
}

fn request(line: &str, headers: &str) -> String {
    format!("{line} RTSP/1.0\r\n{headers}\r\n")
}

#[test]
fn requests_that_are_no_requests_are_refused() {
    require_root!();
    beside_a_good_session(&[], |site| {
        let url = site.url("clip.ts");
        let long = "x".repeat(100_000);
        let many = "X-Header: 1\r\n".repeat(5_000);
        let noise: Vec<u8> = (0..20_000_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let refused = |what: &str, bytes: &[u8]| {
            let status = status(site, bytes);
            assert!(
                status.is_none_or(|status| (400..600).contains(&status)),
                "{what}: {status:?}"
            );
        };
        refused(
            "long line",
            request(&format!("OPTIONS {url}{long}"), "CSeq: 1\r\n").as_bytes(),
        );
        refused("endless line", long.as_bytes());
        let header = format!("CSeq: 1\r\nX-Long: {long}\r\n");
        refused(
            "long header",
            request(&format!("OPTIONS {url}"), &header).as_bytes(),
        );
        refused(
            "many headers",
            request(&format!("OPTIONS {url}"), &format!("CSeq: 1\r\n{many}")).as_bytes(),
        );
        refused("noise", &noise);
        refused("zeros", &[0; 70_000]);
        refused("line feeds and colons", &b":\n".repeat(40_000));
        refused("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        refused(
            "a TLS hello",
            &[&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &noise[..500]].concat(),
        );
        refused("interleaved data", &[&b"$\0\xff\xff"[..], &noise].concat());
        let body = |length: &str| {
            request(
                &format!("SET_PARAMETER {url}"),
                &format!("CSeq: 1\r\nContent-Length: {length}\r\n"),
            )
        };
        for length in [
            "-1",
            "99999999999999999999",
            "1e3",
            "4294967296",
            "0x10",
            "",
        ] {
            refused(&format!("length {length}"), body(length).as_bytes());
        }
    });
}

#[test]
fn requests_with_wrong_fields_get_their_status() {
    require_root!();
    beside_a_good_session(&[], |site| {
        let url = site.url("clip.ts");
        let track = format!("{url}/track1");
        let one = "CSeq: 1\r\n";
        let cases: &[(u16, String)] = &[
            (400, request(&format!("OPTIONS {url}"), "")),
            (400, request(&format!("OPTIONS {url}"), "CSeq: one\r\n")),
            (400, request(&format!("OPTIONS {url}"), "CSeq: -1\r\n")),
            (404, request(&format!("DESCRIBE {url}x"), one)),
            (455, request(&format!("RECORD {url}"), one)),
            (501, request(&format!("BREW {url}"), one)),
            (505, format!("OPTIONS {url} RTSP/2.0\r\n{one}\r\n")),
            (
                551,
                request(&format!("OPTIONS {url}"), "CSeq: 1\r\nRequire: funky\r\n"),
            ),
            (
                454,
                request(
                    &format!("PLAY {url}"),
                    "CSeq: 1\r\nSession: 0123456789abcdef\r\n",
                ),
            ),
            (454, request(&format!("PLAY {url}"), one)),
            (
                454,
                request(
                    &format!("TEARDOWN {url}"),
                    "CSeq: 1\r\nSession: ../../etc\r\n",
                ),
            ),
            (
                406,
                request(
                    &format!("DESCRIBE {url}"),
                    "CSeq: 1\r\nAccept: text/html\r\n",
                ),
            ),
        ];
        for (expected, bytes) in cases {
            assert_eq!(status(site, bytes), Some(*expected), "{bytes}");
        }
        let transports = [
            "RTP/AVP;unicast",
            "RTP/AVP;unicast;client_port=0-1",
            "RTP/AVP;unicast;client_port=65535",
            "RTP/AVP;unicast;client_port=65535-65536",
            "RTP/AVP;unicast;client_port=99999-100000",
            "RTP/AVP;unicast;client_port=-2--1",
            "RTP/AVP;multicast;client_port=5000-5001",
            "RTP/AVP/TCP;unicast;interleaved=0-256",
            "RTP/AVP/TCP;unicast;interleaved=1-1",
            "RTP/AVP/TCP;unicast;interleaved=x",
            "RAW/RAW/UDP;unicast;client_port=5000-5001",
            ";;;;",
        ];
        for transport in transports {
            let bytes = request(
                &format!("SETUP {track}"),
                &format!("CSeq: 1\r\nTransport: {transport}\r\n"),
            );
            let status = status(site, bytes);
            assert!(matches!(status, Some(400 | 461)), "{transport}: {status:?}");
        }
    });
}

#[test]
fn senseless_ranges_are_refused_and_the_session_lives_on() {
    require_root!();
    beside_a_good_session(&[], |site| {
        let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
        for range in [
            "npt=1000-",
            "npt=3-1",
            "npt=-5-",
            "npt=x",
            "bytes=0-",
            "npt=99999999999999999999-",
        ] {
            let answer = viewer.ask("PLAY", &[("Range", range)]);
            assert!(matches!(answer.status, 400 | 457), "{range}: {answer:?}");
        }
        let answer = viewer.ask("SETUP", &[("Transport", "RTP/AVP/TCP;interleaved=1-1")]);
        assert_eq!(answer.status, 461, "{answer:?}");
        viewer.play(Some(2.0));
        assert!(
            viewer
                .receiver
                .wait_until(LONG, |capture| capture.rtp.len() > 10)
        );
        assert_eq!(viewer.ask("TEARDOWN", &[]).status, 200);
        assert_eq!(viewer.ask("PLAY", &[]).status, 454);
    });
}

// SPECIFICATION.md: 40
#[test]
fn nothing_but_media_under_the_root_is_served() {
    require_root!();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.ts"), clip(1.0)).unwrap();
    beside_a_good_session(&[], |site| {
        symlink(outside.path().join("secret.ts"), site.path("link.ts")).unwrap();
        symlink(outside.path(), site.path("folder-link")).unwrap();
        symlink("loop.ts", site.path("loop.ts")).unwrap();
        fs::create_dir(site.path("folder.ts")).unwrap();
        fs::write(site.path("empty.ts"), b"").unwrap();
        fs::write(
            site.path("text.ts"),
            "No transport stream, only words.\n".repeat(2_000),
        )
        .unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(site.path("pipe.ts"))
            .status()
            .unwrap();
        assert!(made.success());
        drop(UnixListener::bind(site.path("socket.ts")).unwrap());
        let secret = outside.path().join("secret.ts");
        let secret = secret.to_str().unwrap().trim_start_matches('/');
        let up = "../".repeat(12);
        let names = [
            format!("{up}{secret}"),
            format!("{}{secret}", up.replace("..", "%2e%2e")),
            format!("{}{secret}", up.replace("../", "%2e%2e%2f")),
            format!("{}{secret}", up.replace("../", "..%5c")),
            format!("folder.ts/../{up}{secret}"),
            format!("/{secret}"),
            format!("%2f{secret}"),
            "link.ts".into(),
            "folder-link/secret.ts".into(),
            "loop.ts".into(),
            "folder.ts".into(),
            String::new(),
            "empty.ts".into(),
            "text.ts".into(),
            "pipe.ts".into(),
            "socket.ts".into(),
            "clip.ts%00.txt".into(),
            "clip.ts/clip.ts".into(),
            "%ff%fe.ts".into(),
            "%zz.ts".into(),
            "x".repeat(5_000),
        ];
        for name in names {
            let bytes = request(&format!("DESCRIBE {}", site.url(&name)), "CSeq: 1\r\n");
            let status = status(site, bytes);
            assert!(
                status.is_some_and(|status| (400..500).contains(&status)),
                "{name}: {status:?}"
            );
        }
    });
}

// SPECIFICATION.md: 24
#[test]
fn half_a_request_and_silence_are_cut_off_in_time() {
    require_root!();
    beside_a_good_session(&["--request-time-max=4s", "--idle-time-max=4s"], |site| {
        let mut half = site.connect();
        half.send_raw(b"OPTIONS * RTSP/1.0\r\nCSeq").unwrap();
        let mut silent = site.connect();
        // A byte now and then must not buy more time.
        let mut dripping = site.connect();
        let mut closed = false;
        for byte in "DESCRIBE rtsp://10.77.0.1:8554/clip.ts RTSP/1.0\r\nX: "
            .bytes()
            .cycle()
            .take(160)
        {
            closed |= dripping.send_raw(&[byte]).is_err();
            thread::sleep(Duration::from_millis(50));
        }
        assert!(closed, "8 s of dripping got through a bound of 4 s");
        assert!(hangs_up(&mut half));
        assert!(hangs_up(&mut silent));
    });
}

/// Connections of RTSP that the server says it has.
fn connections_of(site: &Site) -> u64 {
    let mut curl = site.testbed.snd.command("curl");
    let output = curl.args(["-s", "http://127.0.0.1:9554/metrics"]).output();
    let page = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut lines = page.lines().filter_map(|it| it.split_once(' '));
    let (_, value) = lines
        .find(|(name, _)| *name == "onrush_rtsp_connections")
        .expect(&page);
    value.parse().unwrap()
}

// SPECIFICATION.md: 23
#[test]
fn ten_thousand_silent_connections_do_no_harm() {
    require_root!();
    const CONNECTIONS: u64 = 10_000;
    // Both ends need one for each, and some for themselves.
    let descriptors = raise_descriptor_limit();
    if descriptors < CONNECTIONS + 1_000 {
        skip::record("needs 11,000 descriptors (ulimit -Hn)");
        return;
    }
    let arguments = [
        "--connections-per-address-max=16384",
        "--metrics=127.0.0.1:9554",
    ];
    beside_a_good_session(&arguments, |site| {
        let address = SocketAddr::from((SND_IPV4, RTSP_PORT));
        let connections: Vec<_> = site.testbed.rcv.run(|| {
            (0..CONNECTIONS)
                .map(|_| TcpStream::connect_timeout(&address, LONG).unwrap())
                .collect()
        });
        // The server keeps some apart, for films and downloads.
        let most = CONNECTIONS.min(descriptors - 4_000);
        wait_until("all are open together", || connections_of(site) >= most);
        // One more still gets an answer.
        assert_eq!(status(site, request("OPTIONS *", "CSeq: 1\r\n")), Some(200));
        drop(connections);
    });
}

// SPECIFICATION.md: 21
#[test]
fn connections_and_sessions_beyond_their_limits_are_refused() {
    require_root!();
    // It plays for as long as this takes, and holds its connection.
    beside_a_session_of(
        12.0,
        &[
            "--connections-max=8",
            "--sessions-max=3",
            "--session-timeout=5s",
        ],
        |site| {
            // The good session holds one of each.
            let mut viewers: Vec<_> = (0..2)
                .map(|_| Viewer::setup(&site.testbed, "clip.ts"))
                .collect();
            let mut client = site.connect();
            let transport = [("Transport", "RTP/AVP;unicast;client_port=5000-5001")];
            let track = format!("{}/track1", site.url("clip.ts"));
            assert_eq!(
                client.request("SETUP", &track, &transport).unwrap().status,
                453
            );
            assert_eq!(viewers[0].ask("TEARDOWN", &[]).status, 200);
            // The engine gives the place back in its next tick.
            let free = (0..1_000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                client.request("SETUP", &track, &transport).unwrap().status == 200
            });
            assert!(free);
            let mut others: Vec<_> = (0..4).map(|_| site.connect()).collect();
            // Eight are open: the ninth is told so. It says nothing, so that no reset for what
            // was not read takes the answer away.
            assert_eq!(site.connect().response().unwrap().status, 503);
            assert_eq!(others[0].request("OPTIONS", "*", &[]).unwrap().status, 200);
        },
    );
}

/// By default it has a quarter of all connections.
// SPECIFICATION.md: 22
#[test]
fn one_address_does_not_take_all_connections() {
    require_root!();
    beside_a_session_of(12.0, &["--connections-max=260"], |site| {
        // The good session holds one of 65.
        let mut last = None;
        let mut connections: Vec<_> = (0..64).map(|_| site.connect()).collect();
        for client in &mut connections {
            last = Some(client.request("OPTIONS", "*", &[]).unwrap().status);
        }
        assert_eq!(last, Some(200));
        assert_eq!(site.connect().response().unwrap().status, 503);
        let mut other = common::connect(&site.testbed, SND_IPV6.into());
        assert_eq!(other.request("OPTIONS", "*", &[]).unwrap().status, 200);
    });
}

// SPECIFICATION.md: 29
#[test]
fn a_client_that_died_stops_receiving_within_the_time_out() {
    require_root!();
    // A time-out that a client keeps on a busy machine too, and a clip of twice that.
    let log = beside_a_session_of(8.0, &["--session-timeout=4s"], |site| {
        let mut viewer = Viewer::setup(&site.testbed, "clip.ts");
        viewer.play(None);
        assert!(
            viewer
                .receiver
                .wait_until(LONG, |capture| !capture.rtp.is_empty())
        );
        let Viewer {
            client, receiver, ..
        } = viewer;
        // The connection is lost too, as when a cable is pulled; the receiver only counts.
        drop(client);
        assert!(receiver.wait_until(LONG, |capture| capture.has_bye()));
        let capture = receiver.finish();
        let whole = clip(8.0).len().div_ceil(7 * 188);
        assert!(
            capture.rtp.len() < whole,
            "all {whole} packets went to a dead client"
        );
    });
    assert!(log.contains("time"), "{log}");
}

/// As many descriptors as this process may have.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}
