//! A server that drains and sends its clients on to another.

use onrush_server::config::DrainConfig;
use onrush_testkit::interleaved::InterleavedClient;
use onrush_testkit::message::Head;

use super::interleaved::Watcher;
use super::tls::bridge;
use super::*;

const OTHER: &str = "192.0.2.8:8600";

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

/// Asserts that it is a REDIRECT of `url`, and where to; its CSeq.
#[track_caller]
fn redirected(request: &Head, url: &str, location: &str) -> String {
    assert_eq!(request.first_line, format!("REDIRECT {url} RTSP/1.0"));
    assert_eq!(request.header("Location"), Some(location), "{request:?}");
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
    let cseq = redirected(&of_watcher, &watcher.url, &there("long.ts"));
    let position = of_watcher.header("Range").unwrap();
    let position = position.strip_prefix("npt=").unwrap().strip_suffix('-');
    let position: f64 = position.unwrap().parse().unwrap();
    assert!((0.5..10.0).contains(&position), "{position}");
    let of_apart = apart.server_request().unwrap();
    let asked = format!("{url}?k=v");
    let other = redirected(&of_apart, &asked, &there("short.ts?k=v"));
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
        assert_eq!(answer.header("Location"), Some(&*location));
    }
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
    redirected(&request, &watcher.url, &location);
    watcher.packets(20);
}
