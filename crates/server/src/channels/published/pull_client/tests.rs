//! A client of cameras, and cameras of all kinds.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::thread;

use onrush_wire::rtp::StaticPayload;

use super::*;

/// A source that says of so many nonces that they were too old, and has nothing then; how many
/// requests it had once its client has left.
fn source(stale: usize) -> (PullUrl, thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("rtsp://anna:secret@127.0.0.1:{port}/door");
    let serve = move || {
        let (mut socket, _) = listener.accept().unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let mut requests = 0;
        while let Some(cseq) = lines.find(|line| line.starts_with("CSeq:")) {
            assert_eq!(lines.find(String::is_empty).as_deref(), Some(""));
            let is_stale = if requests > 0 { ", stale=true" } else { "" };
            let digest = format!("Digest realm=\"door\", nonce=\"{requests}\"{is_stale}");
            let status = match requests <= stale {
                true => format!("401 Unauthorized\r\nWWW-Authenticate: {digest}"),
                false => "404 Not Found".to_owned(),
            };
            let answer = format!("RTSP/1.0 {status}\r\n{cseq}\r\n\r\n");
            socket.write_all(answer.as_bytes()).unwrap();
            requests += 1;
        }
        requests
    };
    (url.parse().unwrap(), thread::spawn(serve))
}

#[test]
fn a_nonce_may_be_too_old_twice() {
    for stale in [2, 3] {
        let (url, requests) = source(stale);
        let mut client = PullClient::connect(&url).unwrap();
        let error = client.describe().unwrap_err();
        match stale {
            2 => assert!(matches!(error, PullError::Refused { status: 404, .. })),
            _ => assert!(matches!(error, PullError::LogIn), "{error}"),
        }
        drop(client);
        assert_eq!(requests.join().unwrap(), 4, "{stale}");
    }
}

/// Bounds what takes a moment.
const LONG: Duration = Duration::from_secs(60);

/// A client that shows itself whenever it is asked to, and its camera.
fn pulled() -> (PullClient, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsp://{}/x", listener.local_addr().unwrap());
    let mut client = PullClient::connect(&url.parse().unwrap()).unwrap();
    client.timeout = Duration::ZERO;
    let (camera, _) = listener.accept().unwrap();
    camera.set_read_timeout(Some(LONG)).unwrap();
    (client, camera)
}

/// As a Hipcam does, which knows no GET_PARAMETER.
#[test]
fn a_camera_that_does_not_answer_is_asked_by_options() {
    let (mut client, mut camera) = pulled();
    let mut asked = BufReader::new(camera.try_clone().unwrap()).lines();
    for (method, is_answered) in [
        ("GET_PARAMETER", true),
        ("GET_PARAMETER", false),
        ("OPTIONS", true),
        ("OPTIONS", false),
    ] {
        client.keep_alive().unwrap();
        let mut head = asked.by_ref().map(Result::unwrap);
        let first = head.next().unwrap();
        assert_eq!(first.split(' ').next(), Some(method));
        assert!(head.any(|line| line.is_empty()));
        if is_answered {
            camera.write_all(b"RTSP/1.0 200 OK\r\n\r\n").unwrap();
            client.receive(LONG, |_, _| {}).unwrap();
        }
    }
}

/// For a source that counts nothing that it does not know this is what keeps the session.
#[test]
fn options_go_in_time_where_parameters_are_not_known() {
    let after = |client: &mut PullClient, seconds: u64| {
        let earlier = client.asked.checked_sub(Duration::from_secs(seconds));
        client.asked = earlier.unwrap();
        client.keep_alive().unwrap();
        client.cseq
    };
    for is_refused in [true, false] {
        let (mut client, mut camera) = pulled();
        client.timeout = Duration::from_secs(20);
        assert_eq!(after(&mut client, 5), 0);
        assert_eq!(after(&mut client, 5), 1);
        if is_refused {
            camera.write_all(b"RTSP/1.0 405 No\r\n\r\n").unwrap();
            client.receive(LONG, |_, _| {}).unwrap();
            assert_eq!(after(&mut client, 0), 2);
        } else {
            assert_eq!(after(&mut client, 2), 1);
            assert_eq!(after(&mut client, 3), 2);
        }
        assert_eq!(after(&mut client, 5), 2);
        drop(client);
        let lines = BufReader::new(camera).lines().map_while(Result::ok);
        let requests = lines.filter(|line| line.ends_with(" RTSP/1.0"));
        let methods: Vec<_> = requests
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(methods, ["GET_PARAMETER", "OPTIONS"], "{is_refused}");
    }
}

/// A client of a source that answers one SETUP after the other like that, and the transports that
/// it was asked for, once its client has left.
fn set_up_by(answers: &'static [&'static str]) -> (PullClient, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsp://{}/x", listener.local_addr().unwrap());
    let source = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let mut asked = Vec::new();
        for answer in answers {
            let transport = |line: String| Some(line.strip_prefix("Transport: ")?.to_owned());
            asked.extend(lines.find_map(transport));
            assert_eq!(lines.find(String::is_empty).as_deref(), Some(""));
            let answer = format!("RTSP/1.0 {answer}\r\n\r\n");
            socket.write_all(answer.as_bytes()).unwrap();
        }
        io::copy(&mut socket, &mut io::sink()).ok();
        asked
    });
    let client = PullClient::connect(&url.parse().unwrap()).unwrap();
    (client, source)
}

fn track(has_feedback: bool) -> Track {
    Track {
        track: StaticPayload::MP2T.into(),
        url: "rtsp://h/x/track1".to_owned(),
        has_feedback,
    }
}

/// As GStreamer's server is.
#[test]
fn a_source_with_feedback_is_asked_for_that() {
    let (mut client, source) = set_up_by(&[
        "461 Unsupported Transport",
        "200 OK\r\nTransport: RTP/AVPF/TCP;unicast;interleaved=0-1",
    ]);
    assert!(client.set_up(&[track(true)]).unwrap().is_empty());
    assert!(client.is_interleaved());
    drop(client);
    let way = "TCP;unicast;interleaved=0-1";
    let expected = ["RTP/AVP", "RTP/AVPF"].map(|profile| format!("{profile}/{way}"));
    assert_eq!(source.join().unwrap(), expected);
}

/// As OpenIPC is.
#[test]
fn a_source_need_not_say_where_it_sends_from() {
    let (mut client, source) = set_up_by(&[
        "461 Unsupported Transport",
        "200 OK\r\nTransport: RTP/AVP/UDP;unicast",
    ]);
    let mut sockets = client.set_up(&[track(false)]).unwrap();
    drop(client);
    let asked = source.join().unwrap();
    assert!(asked[1].starts_with("RTP/AVP;unicast;client_port="));
    let sockets = sockets.remove(0);
    let there = sockets.rtp.local_addr().unwrap();
    let [mut rtp, _] = sockets.into_inputs().unwrap();
    // Not from another address.
    for from in ["127.0.0.2:0", "127.0.0.1:0"] {
        let sender = UdpSocket::bind(from).unwrap();
        sender.send_to(from.as_bytes(), there).unwrap();
    }
    let (mut heard, give_up) = (Vec::new(), Instant::now() + LONG);
    while heard.is_empty() && Instant::now() < give_up {
        rtp.receive(|message| heard.push(message.bytes.to_vec()))
            .unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(heard, [b"127.0.0.1:0"]);
}

#[test]
fn what_a_camera_asks_is_answered() {
    let (mut client, mut camera) = pulled();
    let mut lines = BufReader::new(camera.try_clone().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let asked = b"HTTP/1.1 200 OK\r\n\r\nOPTIONS * RTSP/1.0\r\nCSeq: 7\r\n\r\n\
        TEARDOWN * RTSP/1.0\r\nCSeq: 8\r\n\r\n\
        REDIRECT * RTSP/1.0\r\nCSeq: 9\r\nLocation: rtsp://h/\r\n\r\n";
    camera.write_all(asked).unwrap();
    let sent_on = (0..4).find_map(|_| client.receive(LONG, |_, _| {}).unwrap());
    assert_eq!(sent_on.as_deref(), Some("rtsp://h/"));
    for (cseq, status) in [(7, "200 OK"), (8, "501 Not Implemented"), (9, "200 OK")] {
        let lines = [next(), next(), next()];
        assert_eq!(lines.join("|"), format!("RTSP/1.0 {status}|CSeq: {cseq}|"));
    }
    // While an answer is waited for, too.
    let asked = b"GET_PARAMETER * RTSP/1.0\r\nCSeq: 10\r\n\r\nRTSP/1.0 404 No\r\n\r\n";
    camera.write_all(asked).unwrap();
    client.describe().unwrap_err();
    while next() != "CSeq: 10" {}
}

/// What a source says that answers 401 with those headers, to a client with that user.
fn refusal(user: &str, challenges: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsp://{user}{}/x", listener.local_addr().unwrap());
    let source = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let answer = format!("RTSP/1.0 401 Unauthorized\r\n{challenges}\r\n");
        // To the first request, and to the one with an answer.
        socket.write_all(answer.repeat(2).as_bytes()).unwrap();
        io::copy(&mut socket, &mut io::sink()).ok();
    });
    let mut client = PullClient::connect(&url.parse().unwrap()).unwrap();
    let error = client.describe().unwrap_err();
    drop(client);
    source.join().unwrap();
    error.to_string()
}

#[test]
fn it_is_told_why_nobody_is_let_in() {
    let known = "WWW-Authenticate: Digest realm=\"x\", nonce=\"1\"\r\n";
    let other = "WWW-Authenticate: Digest realm=\"x\", nonce=\"1\", algorithm=SHA-512-256\r\n";
    for (user, challenges, expected) in [
        ("", known, PullError::NoUser),
        ("anna:x@", known, PullError::LogIn),
        (
            "anna:x@",
            other,
            PullError::Challenge("Digest SHA-512-256".to_owned()),
        ),
        ("anna:x@", "", PullError::Challenge(String::new())),
    ] {
        assert_eq!(refusal(user, challenges), expected.to_string());
    }
}

#[test]
fn bytes_between_frames_end_nothing() {
    let (mut client, mut camera) = pulled();
    client.channels = vec![Channels { rtp: 0, rtcp: 1 }];
    let sent = b"$\x00\x00\x02\x80\x60\xff$\x01\x00\x02\x80\xc9";
    camera.write_all(sent).unwrap();
    let mut taken = Vec::new();
    let take = |place, packet: Vec<u8>| taken.push((place, packet.len()));
    client.receive(LONG, take).unwrap();
    let expected = [(Some((0, false)), 2), (None, 0), (Some((0, true)), 2)];
    assert_eq!(taken, expected);
}
