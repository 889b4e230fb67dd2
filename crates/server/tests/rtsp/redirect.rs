//! A server that drains and sends its clients on to another.

use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use onrush_server::channels::config::PullConfig;
use onrush_server::config::DrainConfig;
use onrush_server::users::HookConfig;
use onrush_testkit::http_client;
use onrush_testkit::interleaved::{InterleavedClient, Received};
use onrush_testkit::message::Head;

use super::interleaved::Watcher;
use super::tls::bridge;
use super::*;

const OTHER: &str = "192.0.2.8:8600";

/// How a publisher sends frames of its connection.
const BY_FRAMES: &str = "RTP/AVP/TCP;unicast;interleaved=0-1;mode=record";

/// A server that is to send its clients to [`OTHER`], and those who stay may stay so long.
fn fixture(time_max: Duration) -> Fixture {
    Fixture::with(|config| {
        // Who gets packets beside its connection is told when that is looked at.
        config.limits.idle_time_max = Duration::from_secs(5);
        config.drain = DrainConfig {
            to: Some(format!("rtsp://{OTHER}/").parse().unwrap()),
            time_max,
        };
    })
}

/// Where a viewer is sent, without the number that it has in its URL from there on.
#[track_caller]
fn untraced(location: Option<&str>) -> &str {
    let location = location.expect("it is sent on");
    let (before, trace) = location.split_once("trace=").expect(location);
    assert_eq!(trace.len(), 16, "{location}");
    &before[..before.len() - 1]
}

/// Asserts that it is a REDIRECT of `url`; its CSeq.
#[track_caller]
fn redirected(request: &Head, url: &str) -> String {
    assert_eq!(request.first_line, format!("REDIRECT {url} RTSP/1.0"));
    assert_eq!(request.header("Session").map(str::len), Some(32));
    request.header("CSeq").unwrap().to_owned()
}

#[test]
fn each_session_is_told_once_and_plays_on() {
    let fixture = fixture(WAIT_MAX * 60);
    let mut watcher = Watcher::set_up_at(fixture.address(), &fixture, "long.ts");
    watcher.play("npt=2-");
    watcher.packets(1);
    let mut apart = InterleavedClient::connect(fixture.address()).unwrap();
    let url = fixture.url("short.ts");
    let ports = Ports::bind(V4).unwrap();
    let transport = ports.transport().unwrap();
    apart
        .set_up(&format!("{url}/track1?k=v"), &transport)
        .unwrap();

    fixture.server.send_on();
    let of_watcher = watcher.client.server_request().unwrap();
    let there = |name: &str| format!("rtsp://{OTHER}/{name}");
    let cseq = redirected(&of_watcher, &watcher.url);
    assert_eq!(untraced(of_watcher.header("Location")), there("long.ts"));
    let position = of_watcher.header("Range").unwrap();
    let position = position.strip_prefix("npt=").unwrap().strip_suffix('-');
    let position: f64 = position.unwrap().parse().unwrap();
    assert!((0.5..10.0).contains(&position), "{position}");
    let of_apart = apart.server_request().unwrap();
    let asked = format!("{url}?k=v");
    let other = redirected(&of_apart, &asked);
    assert_eq!(untraced(of_apart.header("Location")), there("short.ts?k=v"));
    assert_ne!(cseq, other, "numbers of the server's own");
    assert_eq!(of_apart.header("Range"), Some("npt=0.000000-"));

    // Whatever they answer, they are served on; and nothing is said twice, for each of these would
    // find it.
    let answer = format!("RTSP/1.0 501 Not Implemented\r\nCSeq: {cseq}\r\n\r\n");
    watcher.client.send_raw(answer.as_bytes()).unwrap();
    apart
        .send_raw(b"RTSP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx")
        .unwrap();
    fixture.server.send_on();
    for _ in 0..3 {
        watcher.packets(20);
        assert_eq!(watcher.request("GET_PARAMETER", &[]).status, 200);
        assert_eq!(apart.request("OPTIONS", &url, &[]).unwrap().status, 200);
    }
    assert_eq!(watcher.request("TEARDOWN", &[]).status, 200);
    assert_eq!(apart.request("TEARDOWN", &url, &[]).unwrap().status, 200);
    fixture.wait_for_sessions(0);
}

/// Nothing of the file moves yet, and the server is not to end all the same.
#[test]
fn a_request_that_waits_for_its_answer_is_left() {
    let hook = TcpListener::bind((V4, 0)).unwrap();
    let url = format!("http://{}/", hook.local_addr().unwrap());
    let fixture = Fixture::with(|config| {
        config.downloads.http_addresses = vec![(V4, 0).into()];
        config.users.hook = Some(HookConfig {
            url,
            cache_time: Duration::ZERO,
            time_max: WAIT_MAX,
        });
    });
    let (tell, told) = mpsc::channel();
    let service = std::thread::spawn(move || {
        let (mut asked, _) = hook.accept().unwrap();
        told.recv().unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        asked.write_all(answer).unwrap();
        asked
    });
    let http = fixture.server.http_addresses()[0];
    let mut client = http_client::Client::connect(http).unwrap();
    let left = || fixture.server.left();
    wait_until("a connection", || left().connections == 1);
    assert_eq!(left().downloads, 0);
    client.ask("GET", "/short.ts", "").unwrap();
    wait_until("a request", || left().downloads == 1);
    tell.send(()).unwrap();
    assert!(client.response(false).unwrap().body == demo(1));
    wait_until("its end", || left().downloads == 0);
    drop(service.join());
}

#[test]
fn who_comes_is_sent_on() {
    let fixture = fixture(WAIT_MAX * 60);
    let mut client = fixture.connect();
    let url = fixture.url("long.ts");
    assert_eq!(client.request("DESCRIBE", &url, &[]).unwrap().status, 200);
    fixture.server.send_on();
    let transport = ("Transport", "RTP/AVP;unicast;client_port=9-10");
    for (method, of, path) in [
        ("DESCRIBE", "long.ts?x=y", "long.ts?x=y"),
        ("DESCRIBE", "no/such", "no/such"),
        ("SETUP", "long.ts/track1", "long.ts/track1"),
        ("ANNOUNCE", "live/x", "live/x"),
    ] {
        let answer = client.request(method, &fixture.url(of), &[transport]);
        let answer = answer.unwrap();
        let location = format!("rtsp://{OTHER}/{path}");
        assert_eq!(answer.status, 302, "{method} {of}: {answer:?}");
        match method {
            "ANNOUNCE" => assert_eq!(answer.header("Location"), Some(&*location)),
            _ => assert_eq!(untraced(answer.header("Location")), location),
        }
    }
    // live555 puts the track behind the query, and the next server looks for it there.
    let behind = fixture.url("long.ts?k=v/track1");
    let answer = client.request("SETUP", &behind, &[transport]).unwrap();
    let location = answer.header("Location").unwrap();
    let location = location.strip_suffix("/track1").expect(location);
    let there = format!("rtsp://{OTHER}/long.ts?k=v");
    assert_eq!(untraced(Some(location)), there);
    assert_eq!(client.request("OPTIONS", &url, &[]).unwrap().status, 200);
    // Not in a circle: it is told what a server without another one tells.
    let here = format!("rtsp://{OTHER}/long.ts/track1");
    assert_eq!(
        client.request("SETUP", &here, &[transport]).unwrap().status,
        453
    );
}

#[test]
fn who_does_not_go_is_let_go_in_the_end() {
    let fixture = fixture(Duration::ZERO);
    let mut watcher = Watcher::set_up_at(fixture.address(), &fixture, "long.ts");
    watcher.play("npt=0-");
    watcher.packets(1);
    fixture.server.send_on();
    watcher.client.server_request().unwrap();
    watcher.receive_all();
    fixture.wait_for_sessions(0);
}

#[test]
fn who_came_over_tls_is_sent_to_where_there_is_tls() {
    let fixture = Fixture::with(|config| {
        config.rtsps_addresses = vec![(V4, 0).into()];
        config.tls.self_signed = Some(vec!["localhost".to_owned()]);
        config.drain.to = Some(format!("rtsp://{OTHER}/").parse().unwrap());
    });
    let near = bridge(fixture.server.rtsps_addresses()[0]);
    let mut watcher = Watcher::set_up_at(near, &fixture, "long.ts");
    watcher.play("npt=0-");
    watcher.packets(1);
    fixture.server.send_on();
    let request = watcher.client.server_request().unwrap();
    let port = fixture.address().port();
    let location = format!("rtsps://192.0.2.8:{port}/long.ts");
    redirected(&request, &watcher.url);
    assert_eq!(untraced(request.header("Location")), location);
    watcher.packets(20);
}

#[test]
fn who_publishes_is_told_and_goes_on() {
    let fixture = fixture(WAIT_MAX * 60);
    let url = fixture.url("live/cam");
    let mut publisher = Publisher::announce(&fixture);
    fixture.server.send_on();
    let request = publisher.client.server_request().unwrap();
    let location = format!("rtsp://{OTHER}/live/cam");
    let cseq = redirected(&request, &url);
    assert_eq!(request.header("Location"), Some(&*location));
    assert_eq!(
        request.header("Range"),
        None,
        "it has no place to go on from"
    );
    // As FFmpeg answers it.
    let answer = format!("RTSP/1.0 501 Not Implemented\r\nCSeq: {cseq}\r\n\r\n");
    publisher.client.send_raw(answer.as_bytes()).unwrap();
    // What it had begun goes on, and nobody tells it once more.
    publisher.record();
    for method in ["OPTIONS", "GET_PARAMETER", "PAUSE", "RECORD"] {
        let answer = publisher.client.request(method, &url, &[]).unwrap();
        assert_eq!(answer.status, 200, "{method}");
    }
    // Who watches is told when it comes, and a publisher that comes again, too.
    let mut client = fixture.connect();
    let answer = client.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(untraced(answer.header("Location")), location);
    let answer = client.request("ANNOUNCE", &url, &[]).unwrap();
    assert_eq!(answer.header("Location"), Some(&*location));
    let answer = publisher.client.request("TEARDOWN", &url, &[]).unwrap();
    assert_eq!(answer.status, 200);
}

/// Where one listener takes both IP versions the kernel shows IPv4 addresses as IPv6 ones.
#[test]
fn a_publisher_by_ipv4_is_called_by_ipv4() {
    let fixture = Fixture::with(|config| {
        config.rtsp_addresses = vec![(Ipv6Addr::UNSPECIFIED, 0).into()];
        config.limits.idle_time_max = Duration::from_secs(5);
        config.drain = DrainConfig {
            to: Some(format!("rtsp://{OTHER}/").parse().unwrap()),
            time_max: WAIT_MAX * 60,
        };
    });
    let address = SocketAddr::new(V4, fixture.address().port());
    let mut publisher = Publisher::announce_to(address, "live/cam", BY_FRAMES);
    publisher.record();
    let from = publisher.client.stream().local_addr().unwrap().to_string();
    wait_until(&format!("{from} publishes"), || {
        let channels = fixture.server.status().channels;
        let mut active = channels.iter().map(|it| it.publishers.active.as_deref());
        active.any(|it| it == Some(&*from))
    });
    fixture.server.send_on();
    let request = publisher.client.server_request().unwrap();
    redirected(&request, &publisher.url);
    let location = format!("rtsp://{OTHER}/live/cam");
    assert_eq!(request.header("Location"), Some(&*location));
}

#[test]
fn a_publisher_that_does_not_go_is_let_go_in_the_end() {
    let fixture = fixture(Duration::ZERO);
    let mut publisher = Publisher::announce(&fixture);
    publisher.record();
    fixture.server.send_on();
    // It is not silent, for which it would be let go, too.
    let started = Instant::now();
    while publisher.try_send().is_ok() {
        assert!(started.elapsed() < WAIT_MAX, "it is not let go");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// It comes again to the server that has this one's place, and need not be silent before.
#[test]
fn publishers_are_let_go_at_once_for_a_successor() {
    let mut fixture = Fixture::new();
    let ports = Ports::bind(V4).unwrap();
    let by_ports = format!("{};mode=record", ports.transport().unwrap());
    let mut publishers: Vec<_> = [("live/ports", &*by_ports), ("live/frames", BY_FRAMES)]
        .map(|(path, transport)| {
            let mut publisher = Publisher::announce_at(&fixture, path, transport);
            publisher.record();
            publisher
        })
        .into();
    fixture.server.drain();
    for publisher in &mut publishers {
        // Less than it takes until a connection looks whether its publisher is silent.
        let stream = publisher.client.stream();
        let wait_max = Duration::from_secs(4);
        stream.set_read_timeout(Some(wait_max)).unwrap();
        let error = publisher.client.receive().unwrap_err();
        let is_closed = matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
        );
        assert!(is_closed, "{}: {error}", publisher.url);
    }
}

#[test]
fn a_pulled_channel_follows_its_source() {
    let far = Fixture::new();
    let _far = Publishing::start(&far);
    let there = format!("rtsp://{}/", far.address()).parse().unwrap();
    let old = Fixture::with(|config| {
        config.drain.to = Some(there);
        config.drain.time_max = WAIT_MAX * 60;
    });
    let publishing = Publishing::start(&old);
    let pull = |name: &str| PullConfig {
        name: name.to_owned(),
        url: old.url("live/cam").parse().unwrap(),
        is_on_demand: false,
    };
    let near = |name| Fixture::with(|config| config.channels.pulls = vec![pull(name)]);
    let played = near("played");
    old.wait_for_sessions(1);
    let mut client = played.connect();
    let url = played.url("live/played");
    let describe = |client: &mut Client| client.request("DESCRIBE", &url, &[]).unwrap();
    let started = Instant::now();
    while describe(&mut client).status != 200 {
        assert!(started.elapsed() < WAIT_MAX, "it is not pulled");
        std::thread::sleep(Duration::from_millis(50));
    }
    let transport = "RTP/AVP/TCP;unicast;interleaved=0-1";
    let mut viewer = InterleavedClient::connect(played.address()).unwrap();
    viewer.set_up(&format!("{url}/track1"), transport).unwrap();
    let answer = viewer.request("PLAY", &url, &[]).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    viewer.frame().unwrap();

    // One that plays goes when it is told, and one that comes is told at once.
    old.server.send_on();
    far.wait_for_sessions(1);
    old.wait_for_sessions(0);
    let comes = near("comes");
    far.wait_for_sessions(2);
    drop(publishing);
    for _ in 0..200 {
        viewer.frame().unwrap();
    }
    drop(comes);
}

/// A thread that publishes live/cam until this is dropped.
struct Publishing {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Publishing {
    fn start(fixture: &Fixture) -> Self {
        let mut publisher = Publisher::announce(fixture);
        publisher.record();
        let is_ended = Arc::<AtomicBool>::default();
        let ended = Arc::clone(&is_ended);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) && publisher.try_send().is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self {
            is_ended,
            thread: Some(thread),
        }
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// One who publishes live/cam, over TCP.
struct Publisher {
    client: InterleavedClient,
    url: String,
    sequence: u16,
}

impl Publisher {
    fn announce(fixture: &Fixture) -> Self {
        Self::announce_at(fixture, "live/cam", BY_FRAMES)
    }

    fn announce_at(fixture: &Fixture, path: &str, transport: &str) -> Self {
        Self::announce_to(fixture.address(), path, transport)
    }

    fn announce_to(server: SocketAddr, path: &str, transport: &str) -> Self {
        let mut client = InterleavedClient::connect(server).unwrap();
        let url = format!("rtsp://{server}/{path}");
        let sdp = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 0 RTP/AVP 0\r\n\
                   a=control:streamid=0\r\n";
        let length = sdp.len().to_string();
        let headers = [
            ("Content-Type", "application/sdp"),
            ("Content-Length", &length),
        ];
        client.send("ANNOUNCE", &url, &headers).unwrap();
        client.send_raw(sdp.as_bytes()).unwrap();
        let answer = client.receive().unwrap();
        assert!(matches!(answer, Received::Response(answer) if answer.status == 200));
        let track = format!("{url}/streamid=0");
        client.set_up(&track, transport).unwrap();
        Self {
            client,
            url,
            sequence: 0,
        }
    }

    fn record(&mut self) {
        let answer = self.client.request("RECORD", &self.url, &[]);
        assert_eq!(answer.unwrap().status, 200);
    }

    fn try_send(&mut self) -> std::io::Result<()> {
        let header = Header {
            marker: false,
            payload_type: 0,
            sequence: self.sequence,
            timestamp: u32::from(self.sequence) * 800,
            ssrc: 7,
        };
        self.sequence += 1;
        let packet = [&header.to_bytes()[..], b"sound"].concat();
        self.client.send_frame(0, &packet)
    }
}
