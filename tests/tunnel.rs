//! RTSP over HTTP: players that tunnel, and what becomes of halves of tunnels.

#![allow(
    clippy::print_stdout,
    reason = "what players say is for whoever reads the test's output"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onrush_testkit::media::age;
use onrush_testkit::process::Process;
use onrush_testkit::require_programs;

use download_site::{LONG, Site};

mod download_site;

const DEMO_MP4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.mp4");

/// A server, and where RTSP and HTTP over TLS are.
fn site() -> (Site, [SocketAddr; 2]) {
    let options = [
        "--tls=self-signed",
        "--rtsps=127.0.0.1:0",
        "--https=127.0.0.1:0",
    ];
    let site = Site::new(&options, |root| {
        fs::copy(DEMO_MP4, root.join("demo.mp4")).unwrap();
        age(&root.join("demo.mp4")).unwrap();
    });
    let addresses = ["rtsps", "https"].map(|scheme| {
        let begin = format!("listening  {scheme}://");
        let line = site.server.wait_for_line(&begin, LONG).unwrap();
        let address = line.rsplit("//").next().unwrap().trim_end_matches('/');
        address.parse().unwrap()
    });
    (site, addresses)
}

/// The hashes of the first pictures that ffmpeg gets.
fn pictures(transport: &str, url: &str) -> Vec<String> {
    let mut command = Command::new("timeout");
    command.args(["60", "ffmpeg", "-v", "error", "-rtsp_transport", transport]);
    command.args(["-i", url, "-map", "0:v:0", "-frames:v", "60", "-c", "copy"]);
    command.args(["-f", "framemd5", "-"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let hash = |line: &str| line.split(',').nth(5).unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(hash).collect()
}

#[test]
fn ffmpeg_gets_the_same_pictures_through_a_tunnel() {
    require_programs!("ffmpeg");
    let (site, [rtsps, https]) = site();
    let expected = pictures("tcp", &site.rtsp_url("demo.mp4"));
    assert_eq!(expected.len(), 60);
    for at in [site.rtsp, site.http] {
        let url = format!("rtsp://{at}/demo.mp4");
        assert_eq!(pictures("http", &url), expected, "{at}");
    }
    for at in [rtsps, https] {
        let url = format!("rtsp://{at}/demo.mp4");
        assert_eq!(pictures("https", &url), expected, "{at}");
    }
}

/// How GStreamer ends says nothing.
#[test]
fn gstreamer_plays_through_a_tunnel() {
    require_programs!("gst-launch-1.0");
    let (site, _) = site();
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc"]);
    command.arg(format!("location=rtsph://{}/demo.mp4", site.rtsp));
    command.args(["!", "rtph264depay", "!", "filesink", "buffer-mode=2"]);
    command.arg(format!("location={}", out.path().display()));
    let mut player = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    while out.as_file().metadata().unwrap().len() < 50_000 {
        let is_running = player.is_running().unwrap();
        assert!(
            is_running && Instant::now() < give_up,
            "{}",
            player.log_tail()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// One side of a tunnel.
struct Side(TcpStream);

impl Side {
    fn connect(to: SocketAddr) -> Self {
        let socket = TcpStream::connect(to).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self(socket)
    }

    fn open(to: SocketAddr, method: &str, cookie: &str) -> Self {
        Self::open_with(to, method, &format!("x-sessioncookie: {cookie}\r\n"))
    }

    /// The same with these header lines.
    fn open_with(to: SocketAddr, method: &str, lines: &str) -> Self {
        let mut side = Self::connect(to);
        let head = format!("{method} /demo.mp4 HTTP/1.0\r\n{lines}\r\n");
        side.0.write_all(head.as_bytes()).unwrap();
        side
    }

    /// What comes, to the end of a head.
    fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// Sends bytes one by one.
    fn drip(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0.write_all(&[byte]).unwrap();
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.0.read(&mut [0]).unwrap() == 0
    }
}

/// `OPTIONS * RTSP/1.0` with the number 1, in base64, and with the number 2.
const OPTIONS: [&str; 2] = [
    "T1BUSU9OUyAqIFJUU1AvMS4wDQpDU2VxOiAxDQoNCg==",
    "T1BUSU9OUyAqIFJUU1AvMS4wDQpDU2VxOiAyDQoNCg==",
];

/// Its head was read by another thread than the one that counts connections of RTSP.
#[test]
fn a_tunnel_beyond_all_connections_is_told_so() {
    let site = Site::plain(&["--connections-max=1"]);
    let mut only = Side::open(site.rtsp, "GET", "abc");
    assert!(only.head().starts_with("HTTP/1.0 200 OK\r\n"));
    for method in ["GET", "POST"] {
        let mut refused = Side::open(site.http, method, "other");
        assert!(refused.head().starts_with("HTTP/1.0 404 "), "{method}");
        assert!(refused.is_at_end());
    }
}

/// Behind a proxy on this machine HTTP comes from here, whoever has asked.
#[test]
fn without_users_nobody_publishes_through_a_tunnel() {
    let site = Site::plain(&[]);
    let sdp = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n\
        a=control:streamid=0\r\n";
    let announce = format!(
        "ANNOUNCE rtsp://h/live/cam RTSP/1.0\r\nCSeq: 1\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{sdp}",
        sdp.len()
    );
    for to in [site.http, site.rtsp] {
        let cookie = to.port().to_string();
        let mut get = Side::open(to, "GET", &cookie);
        assert!(get.head().starts_with("HTTP/1.0 200 OK\r\n"));
        let mut post = Side::open(to, "POST", &cookie);
        let text = STANDARD.encode(&announce);
        post.0.write_all(text.as_bytes()).unwrap();
        let answer = get.head();
        assert!(answer.starts_with("RTSP/1.0 403 "), "{to}: {answer}");
    }
    let mut own = Side::connect(site.rtsp);
    own.0.write_all(announce.as_bytes()).unwrap();
    let answer = own.head();
    assert!(answer.starts_with("RTSP/1.0 200 "), "{answer}");
}

/// A cookie is its client's, and clients have chosen the same before.
#[test]
fn clients_behind_a_proxy_have_tunnels_of_their_own() {
    let site = Site::plain(&["--trusted-proxies=127.0.0.1"]);
    let open = |method: &str, client: &str| {
        let lines = format!("x-sessioncookie: abc\r\nX-Forwarded-For: {client}\r\n");
        Side::open_with(site.http, method, &lines)
    };
    let clients = ["192.0.2.1", "192.0.2.2"];
    let gets = clients.map(|client| {
        let mut get = open("GET", client);
        let head = get.head();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{client}: {head}");
        get
    });
    for (client, mut get) in clients.into_iter().zip(gets) {
        let mut post = open("POST", client);
        post.drip(OPTIONS[0]);
        assert!(get.head().contains("CSeq: 1\r\n"), "{client}");
    }
}

#[test]
fn halves_of_tunnels_find_each_other_by_their_cookie() {
    let (site, _) = site();
    let to = site.rtsp;
    let mut get = Side::open(to, "GET", "abc");
    let head = get.head();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(head.contains("application/x-rtsp-tunnelled"), "{head}");
    // Nobody waits for that one, and that cookie is taken.
    for (method, cookie) in [("POST", "other"), ("GET", "abc")] {
        let mut refused = Side::open(to, method, cookie);
        assert!(refused.head().starts_with("HTTP/1.0 404 "), "{method}");
        assert!(refused.is_at_end());
    }
    let mut post = Side::open(to, "POST", "abc");
    post.drip(OPTIONS[0]);
    assert!(get.head().contains("CSeq: 1\r\n"));
    // One POST ends, and another goes on.
    drop(post);
    let mut post = Side::open(to, "POST", "abc");
    post.0.write_all(OPTIONS[1].as_bytes()).unwrap();
    assert!(get.head().contains("CSeq: 2\r\n"));
    // What cannot be understood ends the tunnel, and its cookie is free again.
    post.0.write_all(b"*!*!*!*!").unwrap();
    assert!(get.is_at_end());
    let mut get = Side::open(to, "GET", "abc");
    assert!(get.head().starts_with("HTTP/1.0 200 OK\r\n"));
    // HTTP's port is as good, for either half.
    for (port_of_get, port_of_post) in [(site.http, site.http), (to, site.http), (site.http, to)] {
        let mut get = Side::open(port_of_get, "GET", "by-http");
        assert!(get.head().starts_with("HTTP/1.0 200 OK\r\n"));
        let mut post = Side::open(port_of_post, "POST", "by-http");
        post.drip(OPTIONS[0]);
        assert!(get.head().contains("CSeq: 1\r\n"));
        drop(get);
        assert!(post.is_at_end());
    }
    let mut nobodys = Side::open(site.http, "POST", "other");
    assert!(nobodys.head().starts_with("HTTP/1.0 404 "));
    // Whoever hangs up the GET takes the POST with it.
    let mut post = Side::open(to, "POST", "abc");
    post.drip(OPTIONS[0]);
    assert!(get.head().contains("CSeq: 1\r\n"));
    drop(get);
    assert!(post.is_at_end());
}
