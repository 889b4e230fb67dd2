//! The whole server on loopback, spoken to by a client that does as it is told.
//!
//! Nothing here asserts how long something takes, only what comes and in which order: every wait is for an
//! event and ends the test if that never comes. Where a time-out is tested it is set short.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use onrush_server::config::{Config, Limits};
use onrush_server::server::{Server, StartError};
use onrush_testkit::rtsp_client::{
    Client, Ports, Response, Session, WAIT_MAX, rtcp_types, uninterrupted,
};
use onrush_wire::rtp::{HEADER_BYTES, Header};
use tempfile::TempDir;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// RTCP packet types (RFC 3550, section 12.1).
const SR: u8 = 200;
const SDES: u8 = 202;
const BYE: u8 = 203;

/// A server with files of its own.
struct Fixture {
    server: Server,
    root: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir(root.path().join("a folder")).unwrap();
        fs::write(root.path().join("short.ts"), demo(1)).unwrap();
        fs::write(root.path().join("a folder/été.ts"), demo(1)).unwrap();
        fs::write(root.path().join("long.ts"), demo(10)).unwrap();
        fs::write(
            root.path().join("text.ts"),
            "not a transport stream\n".repeat(100),
        )
        .unwrap();
        fs::write(root.path().join("empty.ts"), "").unwrap();
        let mut config = Config {
            media_root: root.path().to_owned(),
            rtsp_addresses: vec![(V4, 0).into()],
            cache_bytes: 16 << 20,
            ..Config::default()
        };
        change(&mut config);
        let server = Server::start(config).unwrap();
        Self { server, root }
    }

    fn limited(change: impl FnOnce(&mut Limits)) -> Self {
        Self::with(|config| change(&mut config.limits))
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    fn connect(&self) -> Client {
        Client::connect(self.address()).unwrap()
    }

    fn url(&self, name: &str) -> String {
        format!("rtsp://{}/{name}", self.address())
    }

    /// A client with a session of long.ts.
    fn set_up(&self) -> Viewer {
        self.set_up_file("long.ts")
    }

    fn set_up_file(&self, name: &str) -> Viewer {
        self.set_up_from(self.address().ip(), name)
    }

    fn set_up_from(&self, local: IpAddr, name: &str) -> Viewer {
        let mut client = Client::connect_from(local, self.address()).unwrap();
        let ports = Ports::bind(local).unwrap();
        let url = self.url(name);
        let session = client.set_up(&url, &ports).unwrap();
        Viewer {
            client,
            ports,
            session,
            url,
        }
    }

    fn wait_for_sessions(&self, sessions: usize) {
        wait_until(&format!("{sessions} sessions"), || {
            self.server.sessions() == sessions
        });
    }
}

/// A client with a session.
struct Viewer {
    client: Client,
    ports: Ports,
    session: Session,
    url: String,
}

impl Viewer {
    fn request(&mut self, method: &str, headers: &[(&str, &str)]) -> Response {
        let mut all = vec![("Session", self.session.id.as_str())];
        all.extend(headers);
        self.client.request(method, &self.url, &all).unwrap()
    }

    fn play(&mut self, range: Option<&str>) -> (u16, u32) {
        let info = self
            .client
            .play(&self.url, &self.session.id, range)
            .unwrap();
        assert_eq!(info.url, format!("{}/track1", self.url));
        (info.sequence, info.timestamp)
    }

    /// Receives to the BYE, and what is there then.
    fn to_the_end(&self) -> Vec<Vec<u8>> {
        self.to_the_bye().0
    }

    /// The same, with the datagram that the BYE is in. Reads both sockets all the time: what is not read
    /// is dropped when the buffer is full.
    fn to_the_bye(&self) -> (Vec<Vec<u8>>, Vec<u8>) {
        let Ports { rtp, rtcp } = &self.ports;
        rtp.set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        rtcp.set_nonblocking(true).unwrap();
        let started = Instant::now();
        let mut packets = Vec::new();
        let mut datagram = [0; 2048];
        let bye = loop {
            assert!(
                started.elapsed() < WAIT_MAX * 2,
                "no BYE after {} packets",
                packets.len()
            );
            if let Ok(bytes) = rtp.recv(&mut datagram) {
                packets.push(datagram[..bytes].to_vec());
            }
            match rtcp.recv(&mut datagram) {
                Ok(bytes) if rtcp_types(&datagram[..bytes]).contains(&BYE) => {
                    break datagram[..bytes].to_vec();
                }
                _ => {}
            }
        };
        rtcp.set_nonblocking(false).unwrap();
        packets.extend(self.drain());
        (packets, bye)
    }

    /// What has arrived and was not read.
    fn drain(&self) -> Vec<Vec<u8>> {
        let rtp = &self.ports.rtp;
        rtp.set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut packets = Vec::new();
        let mut datagram = [0; 2048];
        while let Ok(bytes) = uninterrupted(|| rtp.recv(&mut datagram)) {
            packets.push(datagram[..bytes].to_vec());
        }
        rtp.set_read_timeout(Some(WAIT_MAX)).unwrap();
        packets
    }
}

#[test]
fn a_file_is_described_set_up_played_to_its_end_again_and_torn_down() {
    let fixture = Fixture::new();
    let mut client = fixture.connect();
    let options = client.request("OPTIONS", "*", &[]).unwrap();
    assert!(options.header("Public").unwrap().contains("PLAY"));
    assert!(options.header("Server").unwrap().starts_with("onrush/"));
    assert!(options.header("Date").unwrap().ends_with(" GMT"));

    let url = fixture.url("a%20folder/%C3%A9t%C3%A9.ts");
    let description = client
        .request("DESCRIBE", &format!("{url}?x=y"), &[])
        .unwrap();
    assert_eq!(
        description.header("Content-Base"),
        Some(format!("{url}/").as_str())
    );
    let with_slash = client.request("DESCRIBE", &format!("{url}/"), &[]).unwrap();
    assert_eq!(
        with_slash.header("Content-Base"),
        description.header("Content-Base")
    );
    let sdp = String::from_utf8(description.body).unwrap();
    assert!(sdp.contains("\r\ns=a folder/été.ts\r\n") && sdp.contains("IN IP4 127.0.0.1\r\n"));
    assert!(sdp.contains("\r\na=range:npt=0-"));
    drop(client);

    let mut viewer = fixture.set_up_file("a%20folder/%C3%A9t%C3%A9.ts");
    assert_eq!(viewer.session.server_ports.0 % 2, 0);
    assert_eq!(
        viewer.session.server_ports.1,
        viewer.session.server_ports.0 + 1
    );
    for _ in 0..2 {
        let (sequence, timestamp) = viewer.play(None);
        let report = viewer.ports.rtcp(|_| true).unwrap();
        assert_eq!(
            rtcp_types(&report),
            [SR, SDES],
            "the first report comes with the first packet"
        );
        assert_eq!(report[4..8], viewer.session.ssrc.to_be_bytes());
        let (packets, bye) = viewer.to_the_bye();
        let first = header(&packets[0]);
        assert_eq!((first.sequence, first.timestamp), (sequence, timestamp));
        assert_eq!(first.ssrc, viewer.session.ssrc);
        assert_contiguous(&packets);
        assert_carries(&packets, &demo(1));
        // RFC 3550, section 6.4.1: what was sent, without headers, and when it is.
        assert_eq!(rtcp_types(&bye), [SR, SDES, BYE]);
        let counted = |at: usize| u32::from_be_bytes(bye[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(counted(20) % packets.len(), 0);
        assert_eq!(counted(24) % demo(1).len(), 0);
    }
    // At the end PAUSE may have crossed the BYE; afterwards the session is as ready as before.
    assert_eq!(viewer.request("PAUSE", &[]).status, 200);
    assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
    assert_eq!(viewer.request("OPTIONS", &[]).status, 454);
    assert_eq!(fixture.server.sessions(), 0);
    let (rtp, rtcp) = viewer.session.server_ports;
    wait_until("free ports", || {
        UdpSocket::bind((V4, rtp)).is_ok() && UdpSocket::bind((V4, rtcp)).is_ok()
    });
}

#[test]
fn reports_tell_the_time_of_the_packets() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let (_, timestamp) = viewer.play(Some("npt=2-3"));
    let start = viewer.ports.rtcp(|_| true).unwrap();
    let bye = viewer
        .ports
        .rtcp(|datagram| rtcp_types(datagram).contains(&BYE))
        .unwrap();
    let field =
        |report: &[u8], at: usize| u32::from_be_bytes(report[at..at + 4].try_into().unwrap());
    let ticks = |report: &[u8]| field(report, 16).wrapping_sub(timestamp);
    // Between them both clocks went on by the same time, to what a report waits for its turn.
    let ntp = |report: &[u8]| f64::from(field(report, 8)) + f64::from(field(report, 12)) / 4.295e9;
    let seconds = f64::from(ticks(&bye)) / 90e3 - f64::from(ticks(&start)) / 90e3;
    assert!(
        ticks(&start) < 2 * 90_000,
        "{} ticks behind the first packet",
        ticks(&start)
    );
    assert!((ntp(&bye) - ntp(&start) - seconds).abs() < 1.5, "{seconds}");
    assert!(seconds > 0.1);
}

#[test]
fn every_mistake_has_its_answer() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("/etc/passwd", fixture.root.path().join("out.ts")).unwrap();
    let mut viewer = fixture.set_up();
    let session = format!("Session: {}", viewer.session.id);
    let long = viewer.url.clone();
    let transport = "Transport: RTP/AVP;unicast;client_port=9000-9001";
    let file = |name| fixture.url(name);
    for (line, headers, expected) in [
        (format!("DESCRIBE {} RTSP/1.0", file("none.ts")), "", 404),
        (format!("DESCRIBE {} RTSP/1.0", file("a%20folder")), "", 404),
        (format!("DESCRIBE {} RTSP/1.0", file("")), "", 404),
        (
            format!("DESCRIBE {} RTSP/1.0", file("../etc/passwd")),
            "",
            404,
        ),
        (
            format!("DESCRIBE {} RTSP/1.0", file("%2e%2e/%2e%2e/etc/passwd")),
            "",
            404,
        ),
        (
            format!(
                "DESCRIBE {} RTSP/1.0",
                file("a%20folder%2f%C3%A9t%C3%A9.ts")
            ),
            "",
            404,
        ),
        (format!("DESCRIBE {} RTSP/1.0", file("out.ts")), "", 404),
        (format!("DESCRIBE {} RTSP/1.0", file("text.ts")), "", 415),
        (format!("DESCRIBE {} RTSP/1.0", file("empty.ts")), "", 415),
        (format!("DESCRIBE {} RTSP/1.0", file("%zz")), "", 400),
        (
            format!("DESCRIBE {long} RTSP/1.0"),
            "Accept: text/html",
            406,
        ),
        (format!("DESCRIBE {long} RTSP/2.0"), "", 505),
        (
            format!("DESCRIBE {long} RTSP/1.0"),
            "Require: play.scale",
            551,
        ),
        (format!("RECORD {long} RTSP/1.0"), session.as_str(), 405),
        (format!("DANCE {long} RTSP/1.0"), "", 501),
        (
            format!("SETUP {}/track1 RTSP/1.0", file("none.ts")),
            transport,
            404,
        ),
        (format!("SETUP {long} RTSP/1.0"), transport, 459),
        (format!("SETUP {long}/track1 RTSP/1.0"), "", 400),
        (
            format!("SETUP {long}/track1 RTSP/1.0"),
            "Transport: RTP/AVP/TCP;interleaved=0-1",
            461,
        ),
        (
            format!("SETUP {long}/track1 RTSP/1.0"),
            "Transport: RTP/AVP;client_port=0-1",
            461,
        ),
        (
            format!("SETUP {long}/track1 RTSP/1.0"),
            "Transport: RTP/AVP;client_port=65535",
            461,
        ),
        (
            format!("SETUP {long}/track1 RTSP/1.0"),
            "Transport: RTP/AVP;client_port=70000-70001",
            400,
        ),
        (format!("PLAY {long} RTSP/1.0"), "", 454),
        (format!("PLAY {long} RTSP/1.0"), "Session: 0123", 454),
        (
            format!("PLAY {long}/track1 RTSP/1.0"),
            session.as_str(),
            460,
        ),
        (
            format!("PLAY {} RTSP/1.0", file("short.ts")),
            session.as_str(),
            459,
        ),
        (
            format!("PLAY {long} RTSP/1.0"),
            &format!("{session}\r\nRange: npt=9999-"),
            457,
        ),
        (
            format!("PLAY {long} RTSP/1.0"),
            &format!("{session}\r\nRange: npt=5-4"),
            457,
        ),
        (
            format!("PLAY {long} RTSP/1.0"),
            &format!("{session}\r\nRange: clock=now-"),
            457,
        ),
        (format!("PAUSE {long} RTSP/1.0"), session.as_str(), 455),
        (
            format!("GET_PARAMETER {long} RTSP/1.0"),
            &format!("{session}\r\nContent-Length: 6"),
            451,
        ),
        (
            format!("GET_PARAMETER {long} RTSP/1.0"),
            session.as_str(),
            200,
        ),
        ("OPTIONS * RTSP/1.0".to_owned(), "", 200),
    ] {
        let headers = if headers.is_empty() {
            String::new()
        } else {
            format!("{headers}\r\n")
        };
        let body = if expected == 451 { "jitter" } else { "" };
        let request = format!("{line}\r\nCSeq: 77\r\n{headers}\r\n{body}");
        viewer.client.send_raw(request.as_bytes()).unwrap();
        let response = viewer.client.response().unwrap();
        assert_eq!(response.status, expected, "{request}: {response:?}");
        assert_eq!(response.header("CSeq"), Some("77"), "{request}");
        assert_eq!(
            response.header("Allow").is_some(),
            matches!(expected, 405 | 455 | 501)
        );
    }
    viewer
        .client
        .send_raw(b"OPTIONS * RTSP/1.0\r\nCSeq: x\r\n\r\n")
        .unwrap();
    assert_eq!(viewer.client.response().unwrap().status, 400);
    // None of it did the session any harm.
    viewer.play(None);
    viewer.ports.receive(3).unwrap();
}

#[test]
fn bytes_that_are_no_request_end_the_connection_with_an_answer() {
    let fixture = Fixture::limited(|limits| {
        limits.request_head_bytes_max = 300;
        limits.request_headers_max = 3;
        limits.request_body_bytes_max = 10;
    });
    let head = |bytes: usize| {
        let rest = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: \r\n\r\n".len();
        format!(
            "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: {}\r\n\r\n",
            "x".repeat(bytes - rest)
        )
    };
    let headers = |count| {
        format!(
            "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n{}\r\n",
            "X: y\r\n".repeat(count)
        )
    };
    let body = |bytes| format!("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: {bytes}\r\n\r\n");
    for (request, expected) in [
        (head(300), 200),
        (head(301), 400),
        (headers(2), 200),
        (headers(3), 400),
        (format!("{}{}", body(10), " ".repeat(10)), 200),
        (body(11), 413),
        ("x".repeat(301), 414),
        ("\u{16}\u{3}\u{1}".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("RTSP/1.0 200 OK\r\n\r\n".to_owned(), 400),
    ] {
        let mut client = fixture.connect();
        client.send_raw(request.as_bytes()).unwrap();
        let response = client.response().unwrap();
        assert_eq!(response.status, expected, "{request:?}: {response:?}");
        if expected == 200 {
            client.request("OPTIONS", "*", &[]).unwrap();
        } else {
            assert!(client.is_closed(), "{request:?}");
        }
    }
}

#[test]
fn requests_may_come_together_or_byte_by_byte() {
    let fixture = Fixture::new();
    let mut client = fixture.connect();
    let describe = format!(
        "DESCRIBE {} RTSP/1.0\r\nCSeq: 2\r\n\r\n",
        fixture.url("short.ts")
    );
    let all = format!(
        "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n$\u{0}\u{0}\u{2}xx{describe}\r\n\
         GET_PARAMETER * RTSP/1.0\nCSeq: 3\nContent-Length: 2\n\n  OPTIONS * RTSP/1.0\r\nCSeq: 4\r\n\r\n"
    );
    let answers = |client: &mut Client| -> Vec<String> {
        let mut answer = || {
            client
                .response()
                .unwrap()
                .header("CSeq")
                .unwrap()
                .to_owned()
        };
        (0..4).map(|_| answer()).collect()
    };
    client.send_raw(all.as_bytes()).unwrap();
    assert_eq!(answers(&mut client), ["1", "2", "3", "4"]);
    for byte in all.as_bytes() {
        client.send_raw(&[*byte]).unwrap();
    }
    assert_eq!(answers(&mut client), ["1", "2", "3", "4"]);
    // One that says more than it may, and closes, still gets the reason.
    let mut hasty = fixture.connect();
    let noise = [&b"\0"[..], &[b'x'; 100_000]].concat();
    hasty.send_raw(&noise).unwrap();
    assert_eq!(hasty.response().unwrap().status, 400);
    let mut last = fixture.connect();
    last.request("OPTIONS", "*", &[("Connection", "close")])
        .unwrap();
    assert!(last.is_closed());
    // A client that says no more still gets its answers.
    client.send_raw(all.as_bytes()).unwrap();
    client.shut_down().unwrap();
    assert_eq!(answers(&mut client), ["1", "2", "3", "4"]);
    assert!(client.is_closed());
}

#[test]
fn half_a_request_and_silence_have_their_time() {
    let fixture = Fixture::limited(|limits| {
        limits.request_time_max = Duration::from_secs(2);
        limits.idle_time_max = Duration::from_secs(2);
    });
    let mut half = fixture.connect();
    half.send_raw(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: ")
        .unwrap();
    let response = half.response().unwrap();
    assert_eq!(response.status, 408);
    assert!(half.is_closed());

    let mut silent = fixture.connect();
    assert!(silent.is_closed());
    let mut blank = fixture.connect();
    blank.request("OPTIONS", "*", &[]).unwrap();
    assert!(blank.is_closed());

    // One with a session may be silent for as long as that lives.
    let mut viewer = fixture.set_up();
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(viewer.request("OPTIONS", &[]).status, 200);
    viewer.request("TEARDOWN", &[]);
    assert!(viewer.client.is_closed());
    wait_until("no connections", || fixture.server.connections() == 0);
}

#[test]
fn a_client_that_does_not_read_its_answers_is_let_go() {
    let fixture = Fixture::limited(|limits| limits.request_time_max = Duration::from_millis(300));
    let mut client = fixture.connect();
    let requests = "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".repeat(1000);
    let refused = (0..1_000_000).find_map(|_| client.send_raw(requests.as_bytes()).err());
    let kind = refused.expect("no buffer is endless").kind();
    assert!(
        matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{kind}"
    );
    wait_until("no connections", || fixture.server.connections() == 0);
}

#[test]
fn there_are_no_more_connections_than_there_may_be() {
    let fixture = Fixture::limited(|limits| {
        limits.connections_max = 3;
        limits.connections_per_address_max = 2;
    });
    let answer = |client: &mut Client| client.request("OPTIONS", "*", &[]).map(|r| r.status);
    let refused = |mut client: Client| {
        assert_eq!(client.response().unwrap().status, 503);
        assert!(client.is_closed());
    };
    let mut two = [fixture.connect(), fixture.connect()];
    for client in &mut two {
        assert_eq!(answer(client).unwrap(), 200);
    }
    refused(fixture.connect());
    let other = |last| {
        let local = IpAddr::from([127, 0, 0, last]);
        Client::connect_from(local, fixture.address()).unwrap()
    };
    let mut third = other(2);
    assert_eq!(answer(&mut third).unwrap(), 200);
    refused(other(3));
    assert_eq!(fixture.server.connections(), 3);
    drop(two);
    wait_until("one connection", || fixture.server.connections() == 1);
    assert_eq!(answer(&mut other(3)).unwrap(), 200);
    drop(third);
}

#[test]
fn a_flood_of_silent_connections_leaves_nothing_behind() {
    let fixture = Fixture::limited(|limits| {
        limits.connections_max = 100;
        limits.idle_time_max = Duration::from_secs(3);
    });
    let mut viewer = fixture.set_up_file("short.ts");
    viewer.play(None);
    let flood: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(fixture.address()).unwrap())
        .collect();
    let packets = viewer.to_the_end();
    assert_carries(&packets, &demo(1));
    wait_until("one connection", || fixture.server.connections() == 1);
    drop(flood);
    fixture.connect().request("OPTIONS", "*", &[]).unwrap();
}

#[test]
fn there_are_no_more_sessions_than_there_may_be() {
    let fixture = Fixture::limited(|limits| limits.sessions_max = 2);
    let mut first = fixture.set_up();
    let _second = fixture.set_up();
    let third = || {
        let ports = Ports::bind(V4).unwrap();
        let transport = ports.transport().unwrap();
        let headers = [("Transport", transport.as_str())];
        let url = format!("{}/track1", fixture.url("long.ts"));
        fixture.connect().request("SETUP", &url, &headers).unwrap()
    };
    let refused = third();
    assert_eq!(refused.status, 453);
    assert!(refused.reason.contains("2 sessions"), "{}", refused.reason);
    assert_eq!(fixture.server.sessions(), 2);
    first.request("TEARDOWN", &[]);
    wait_until("a free place", || third().status == 200);
}

#[test]
fn a_session_belongs_to_the_address_that_made_it() {
    let fixture = Fixture::new();
    let viewer = fixture.set_up();
    let headers = [("Session", viewer.session.id.as_str())];
    let local = IpAddr::from([127, 0, 0, 2]);
    let mut other = Client::connect_from(local, fixture.address()).unwrap();
    for method in ["PLAY", "TEARDOWN", "OPTIONS"] {
        assert_eq!(
            other.request(method, &viewer.url, &headers).unwrap().status,
            454
        );
    }
    let elsewhere = "RTP/AVP;unicast;client_port=9000-9001;destination=127.0.0.1";
    let url = format!("{}/track1", viewer.url);
    let response = other
        .request("SETUP", &url, &[("Transport", elsewhere)])
        .unwrap();
    assert_eq!(response.status, 461, "{response:?}");
    assert_eq!(fixture.server.sessions(), 1);
}

#[test]
fn a_session_outlives_its_connection_while_its_client_listens() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    viewer.play(None);
    let first = viewer.ports.receive(1).unwrap();
    viewer.client = fixture.connect();
    wait_until("one connection", || fixture.server.connections() == 1);
    // The report that looks whether anybody is there, and packets, still come.
    viewer
        .ports
        .rtcp(|datagram| rtcp_types(datagram) == [SR, SDES])
        .unwrap();
    let more = viewer.ports.receive(20).unwrap();
    assert_contiguous(&[first, more].concat());
    assert_eq!(viewer.request("PAUSE", &[]).status, 200);
}

#[test]
fn a_client_that_has_died_is_not_sent_to() {
    let fixture = Fixture::new();
    // From an address of its own, where no other test takes over the ports of the dead.
    let local = IpAddr::V4(Ipv4Addr::new(127, 83, 0, 1));
    let mut viewer = fixture.set_up_from(local, "long.ts");
    viewer.play(None);
    viewer.ports.receive(1).unwrap();
    // Its session would live for a minute; ICMP says that nobody is there.
    drop(viewer);
    fixture.wait_for_sessions(0);
    // Also one that never played.
    drop(fixture.set_up_from(local, "long.ts"));
    fixture.wait_for_sessions(0);
}

#[test]
fn a_client_that_is_not_heard_of_loses_its_session() {
    let fixture = Fixture::limited(|limits| limits.session_timeout = Duration::from_secs(3));
    let mut viewer = fixture.set_up();
    viewer.play(None);
    viewer.to_the_end();
    fixture.wait_for_sessions(0);
    assert_eq!(viewer.request("OPTIONS", &[]).status, 454);
}

#[test]
fn reports_and_requests_keep_a_session() {
    let timeout = Duration::from_secs(3);
    let fixture = Fixture::limited(|limits| limits.session_timeout = timeout);
    let mut by_request = fixture.set_up();
    let mut by_report = fixture.set_up();
    let _by_nothing = fixture.set_up();
    let server = SocketAddr::new(V4, by_report.session.server_ports.1);
    let started = Instant::now();
    while started.elapsed() < timeout * 2 {
        assert_eq!(by_request.request("GET_PARAMETER", &[]).status, 200);
        // An empty receiver report.
        by_report
            .ports
            .rtcp
            .send_to(b"\x80\xc9\x00\x01\x00\x00\x00\x01", server)
            .unwrap();
        std::thread::sleep(timeout / 30);
    }
    fixture.wait_for_sessions(2);
    assert_eq!(by_report.request("OPTIONS", &[]).status, 200);
}

#[test]
fn two_clients_of_a_file_get_the_same() {
    let fixture = Fixture::new();
    let mut viewers = [
        fixture.set_up_file("short.ts"),
        fixture.set_up_file("short.ts"),
    ];
    assert_ne!(viewers[0].session.id, viewers[1].session.id);
    for viewer in &mut viewers {
        viewer.play(None);
    }
    let packets = std::thread::scope(|scope| {
        let receiving = viewers
            .each_ref()
            .map(|viewer| scope.spawn(|| viewer.to_the_end()));
        receiving.map(|thread| thread.join().unwrap())
    });
    assert_carries(&packets[0], &demo(1));
    assert!(packets[0] == packets[1], "the two differ");
}

#[test]
fn a_seek_while_playing_goes_on_from_the_new_place() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let (start, _) = viewer.play(None);
    viewer.ports.receive(5).unwrap();
    let (sequence, timestamp) = viewer.play(Some("npt=6-7"));
    let packets = viewer.to_the_end();
    let after = packets
        .iter()
        .position(|p| header(p).sequence == sequence)
        .unwrap();
    let (old, new) = packets.split_at(after);
    assert!(sequence.wrapping_sub(start) > 100, "{start} to {sequence}");
    assert_eq!(header(&new[0]).timestamp, timestamp);
    assert_contiguous(new);
    assert!(old.is_empty() || contiguous(old));
    // What comes is the file's from there on.
    let ts_packet = usize::from(sequence.wrapping_sub(start)) * 7;
    assert_carries(new, &demo(10)[ts_packet * 188..][..payload(new).len()]);
    // A range that can not be played changes nothing.
    viewer.play(Some("npt=0-"));
    let response = viewer.request("PLAY", &[("Range", "npt=999-")]);
    assert_eq!(response.status, 457);
    viewer.ports.receive(20).unwrap();
    // Nor does a PLAY that asks for what it already gets.
    let response = viewer.request("PLAY", &[("Scale", "2.0")]);
    assert_eq!((response.status, response.header("RTP-Info")), (200, None));
    assert_eq!(response.header("Scale"), Some("1"));
}

#[test]
fn after_a_pause_comes_exactly_the_next_packet() {
    let fixture = Fixture::new();
    // Longer than a slow machine takes to ask for four pauses.
    fs::write(fixture.root.path().join("middle.ts"), demo(4)).unwrap();
    let mut viewer = fixture.set_up_file("middle.ts");
    let mut all = Vec::new();
    let mut first_sequences = Vec::new();
    for _ in 0..4 {
        let (sequence, timestamp) = viewer.play(None);
        let packets = viewer.ports.receive(3).unwrap();
        let first = header(&packets[0]);
        assert_eq!((first.sequence, first.timestamp), (sequence, timestamp));
        first_sequences.push(sequence);
        all.extend(packets);
        assert_eq!(viewer.request("PAUSE", &[]).status, 200);
        all.extend(viewer.drain());
        assert_eq!(viewer.drain(), [[0; 0]; 0], "nothing is sent in a pause");
        assert_eq!(viewer.request("PAUSE", &[]).status, 455);
    }
    viewer.play(None);
    all.extend(viewer.to_the_end());
    assert_contiguous(&all);
    assert_carries(&all, &demo(4));
    // After the end it starts from the beginning, wherever it was paused before.
    assert_eq!(viewer.play(None).0, first_sequences[0]);
}

#[test]
fn a_new_end_does_not_disturb_what_plays() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    viewer.play(None);
    let mut all = viewer.ports.receive(20).unwrap();
    for range in ["npt=now-8", "npt=-2"] {
        viewer.play(Some(range));
    }
    all.extend(viewer.to_the_end());
    assert_contiguous(&all);
    assert!(
        payload(&all).len() < demo(3).len(),
        "it goes on to the old end"
    );
}

#[test]
fn closed_ports_end_no_session_whose_connection_is_open() {
    let fixture = Fixture::new();
    // From an address of its own, where no other test takes over the ports while they are closed.
    let local = IpAddr::V4(Ipv4Addr::new(127, 83, 0, 2));
    let mut viewer = fixture.set_up_from(local, "long.ts");
    let (rtp, rtcp) = (&viewer.ports.rtp, &viewer.ports.rtcp);
    let addresses = [rtp, rtcp].map(|socket| socket.local_addr().unwrap());
    viewer.ports = Ports::bind(local).unwrap();
    viewer.play(None);
    for _ in 0..20 {
        assert_eq!(viewer.request("GET_PARAMETER", &[]).status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
    let [rtp, rtcp] = addresses.map(|address| UdpSocket::bind(address).unwrap());
    viewer.ports = Ports { rtp, rtcp };
    viewer.ports.rtp.set_read_timeout(Some(WAIT_MAX)).unwrap();
    viewer.ports.receive(10).unwrap();
}

#[test]
fn a_client_without_a_connection_that_says_goodbye_is_believed() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let server = SocketAddr::new(V4, viewer.session.server_ports.1);
    let goodbye = b"\x80\xc9\x00\x01\x00\x00\x00\x01\x81\xcb\x00\x01\x00\x00\x00\x01";
    viewer.ports.rtcp.send_to(goodbye, server).unwrap();
    for _ in 0..10 {
        assert_eq!(viewer.request("GET_PARAMETER", &[]).status, 200);
    }
    let other = fixture.connect();
    drop(std::mem::replace(&mut viewer.client, other));
    wait_until("one connection", || fixture.server.connections() == 1);
    viewer.ports.rtcp.send_to(goodbye, server).unwrap();
    fixture.wait_for_sessions(0);
}

#[test]
fn a_session_can_be_given_another_transport_while_it_does_not_play() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up_file("short.ts");
    let ports = Ports::bind(V4).unwrap();
    let transport = ports.transport().unwrap();
    let track = format!("{}/track1", viewer.url);
    let id = viewer.session.id.clone();
    let headers = [("Session", id.as_str()), ("Transport", transport.as_str())];
    viewer.play(None);
    assert_eq!(
        viewer
            .client
            .request("SETUP", &track, &headers)
            .unwrap()
            .status,
        455
    );
    viewer.request("PAUSE", &[]);
    let response = viewer.client.request("SETUP", &track, &headers).unwrap();
    assert_eq!(response.session().unwrap().id, id);
    viewer.ports = ports;
    viewer.play(None);
    assert_carries(&viewer.to_the_end(), &demo(1));
    assert_eq!(fixture.server.sessions(), 1);
}

#[test]
fn a_file_that_is_replaced_ends_its_sessions_and_no_others() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let mut other = fixture.set_up_file("short.ts");
    viewer.play(None);
    viewer.ports.receive(1).unwrap();
    let new = fixture.root.path().join("new");
    fs::write(&new, demo(1)).unwrap();
    fs::rename(&new, fixture.root.path().join("long.ts")).unwrap();
    viewer.to_the_end();
    fixture.wait_for_sessions(1);
    other.play(None);
    assert_carries(&other.to_the_end(), &demo(1));
    // And the new file is served.
    let mut viewer = fixture.set_up();
    viewer.play(None);
    assert_carries(&viewer.to_the_end(), &demo(1));
}

#[test]
fn a_stop_says_goodbye_to_all_and_leaves_nothing() {
    let fixture = Fixture::new();
    let mut playing = fixture.set_up();
    playing.play(None);
    let ready = fixture.set_up();
    let silent = TcpStream::connect(fixture.address()).unwrap();
    let address = fixture.address();
    fixture.server.shutdown();
    for viewer in [&playing, &ready] {
        viewer
            .ports
            .rtcp(|datagram| rtcp_types(datagram) == [SR, SDES, BYE])
            .unwrap();
    }
    assert!(playing.client.is_closed());
    assert_eq!(
        TcpStream::connect(address).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    drop(silent);
}

#[test]
fn ipv6_and_ipv4_at_one_address() {
    if UdpSocket::bind((V6, 0)).is_err() {
        onrush_testkit::skip::record("this kernel has no IPv6");
        return;
    }
    let everywhere = SocketAddr::from(([0_u16; 8], 0));
    let fixture = Fixture::with(|config| config.rtsp_addresses = vec![everywhere]);
    let port = fixture.address().port();
    for (ip, family) in [(V6, "IP6 ::1"), (V4, "IP4 127.0.0.1")] {
        let address = SocketAddr::new(ip, port);
        let mut client = Client::connect(address).unwrap();
        let url = format!("rtsp://{address}/short.ts");
        let sdp = client.request("DESCRIBE", &url, &[]).unwrap().body;
        let sdp = String::from_utf8(sdp).unwrap();
        assert!(sdp.contains(&format!("IN {family}\r\n")), "{sdp}");
        let ports = Ports::bind(ip).unwrap();
        let session = client.set_up(&url, &ports).unwrap();
        let mut viewer = Viewer {
            client,
            ports,
            session,
            url,
        };
        viewer.play(None);
        assert_carries(&viewer.to_the_end(), &demo(1));
    }
}

#[test]
fn several_addresses_and_what_can_not_be_listened_to() {
    let fixture = Fixture::with(|config| {
        let other = IpAddr::from([127, 0, 0, 5]);
        config.rtsp_addresses = vec![(V4, 0).into(), (other, 0).into()];
    });
    for &address in fixture.server.addresses() {
        let mut client = Client::connect(address).unwrap();
        assert_eq!(client.request("OPTIONS", "*", &[]).unwrap().status, 200);
    }
    let config = |rtsp_addresses, root: &Path| Config {
        rtsp_addresses,
        media_root: root.to_owned(),
        cache_bytes: 16 << 20,
        ..Config::default()
    };
    let taken = Server::start(config(vec![fixture.address()], fixture.root.path()));
    assert!(matches!(taken, Err(StartError::Listen { .. })), "{taken:?}");
    let nowhere = Server::start(config(Vec::new(), fixture.root.path()));
    assert!(matches!(nowhere, Err(StartError::NoAddress)), "{nowhere:?}");
    let no_root = Server::start(config(vec![(V4, 0).into()], Path::new("/does/not/exist")));
    assert!(
        matches!(no_root, Err(StartError::Library(_))),
        "{no_root:?}"
    );
}

/// The first seconds of the demo clip, whole transport packets of it.
fn demo(seconds: usize) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../media/demo.ts");
    let bytes = fs::read(path).expect("the clip is in the tree");
    // 24 seconds at a constant rate.
    let packets = bytes.len() / 188 * seconds / 24;
    bytes[..packets * 188].to_vec()
}

fn header(packet: &[u8]) -> Header {
    Header::read(packet).expect("an RTP packet")
}

fn payload(packets: &[Vec<u8>]) -> Vec<u8> {
    packets
        .iter()
        .flat_map(|packet| &packet[HEADER_BYTES..])
        .copied()
        .collect()
}

fn contiguous(packets: &[Vec<u8>]) -> bool {
    let sequence = |packet: &Vec<u8>| header(packet).sequence;
    packets
        .windows(2)
        .all(|pair| sequence(&pair[1]) == sequence(&pair[0]).wrapping_add(1))
}

#[track_caller]
fn assert_contiguous(packets: &[Vec<u8>]) {
    let sequences: Vec<_> = packets
        .iter()
        .map(|packet| header(packet).sequence)
        .collect();
    assert!(!packets.is_empty() && contiguous(packets), "{sequences:?}");
}

/// Compares, and does not print what nobody wants to read.
#[track_caller]
fn assert_carries(packets: &[Vec<u8>], bytes: &[u8]) {
    let carried = payload(packets);
    let differs = carried.iter().zip(bytes).position(|(a, b)| a != b);
    assert_eq!((carried.len(), differs), (bytes.len(), None));
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WAIT_MAX, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
