//! The whole server on loopback, spoken to by a client that does as it is told.
//!
//! Nothing here asserts how long something takes, only what comes and in which order: every wait is
//! for an event and ends the test if that never comes. Where a time-out is tested it is set short.

mod files;
mod interleaved;
mod multicast;
mod redirect;
mod requests;
mod sessions;
mod srtp;
mod srtp_live;
mod srtp_shared;
mod tls;

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use onrush_server::config::{Config, Limits};
use onrush_server::server::{Server, StartError};
use onrush_testkit::media::age;
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
        for name in ["short.ts", "a folder/été.ts", "long.ts"] {
            age(&root.path().join(name)).unwrap();
        }
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

    /// Writes a file that counts as complete.
    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.root.path().join(name);
        fs::write(&path, bytes).unwrap();
        age(&path).unwrap();
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

    /// The same, with the datagram that the BYE is in. Reads both sockets all the time: what is not
    /// read is dropped when the buffer is full.
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
fn a_file_is_played_to_its_end_twice_and_torn_down() {
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
fn several_addresses_and_what_cannot_be_listened_to() {
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
