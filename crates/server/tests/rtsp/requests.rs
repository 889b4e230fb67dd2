//! What is asked and how, and what connections may do.

use super::*;

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
        (format!("RECORD {long} RTSP/1.0"), session.as_str(), 455),
        (format!("DANCE {long} RTSP/1.0"), "", 501),
        (
            format!("SETUP {}/track1 RTSP/1.0", file("none.ts")),
            transport,
            404,
        ),
        (format!("SETUP {long}/track1 RTSP/1.0"), "", 400),
        (
            format!("SETUP {long}/track1 RTSP/1.0"),
            "Transport: RTP/AVP/TCP;multicast;interleaved=0-1",
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

/// What VLC without live555 sends: its SAT>IP access describes nothing, sets up the film itself,
/// and appends `stream=0` to the base.
#[test]
fn a_film_is_set_up_and_played_without_its_track_being_named() {
    let fixture = Fixture::new();
    let mut client = fixture.connect();
    let ports = Ports::bind(V4).unwrap();
    let url = fixture.url("short.ts");
    let transport = ports.transport().unwrap();
    let answer = client
        .request(
            "SETUP",
            &format!("{url}?x=y"),
            &[("Transport", transport.as_str())],
        )
        .unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let base = format!("{url}/");
    assert_eq!(answer.header("Content-Base"), Some(base.as_str()));
    let mut viewer = Viewer {
        client,
        ports,
        session: answer.session().unwrap(),
        url: format!("{base}stream=0"),
    };
    let answer = viewer.request("PLAY", &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_carries(&viewer.to_the_end(), &demo(1));
    for (method, tail) in [
        ("OPTIONS", "stream=0"),
        ("GET_PARAMETER", "%zz"),
        ("PAUSE", "track1"),
        ("PLAY", ""),
        ("PAUSE", "?x=y"),
        ("TEARDOWN", "stream=0"),
    ] {
        viewer.url = format!("{base}{tail}");
        assert_eq!(viewer.request(method, &[]).status, 200, "{method} {tail}");
    }
    // Who names the track needs no base, and gets none.
    let track = [("Transport", transport.as_str())];
    let track = viewer
        .client
        .request("SETUP", &format!("{url}/track1"), &track);
    assert_eq!(track.unwrap().header("Content-Base"), None);
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
        ("RTSP/1.0 2 OK\r\n\r\n".to_owned(), 400),
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
         GET_PARAMETER * RTSP/1.0\nCSeq: 3\nContent-Length: 2\n\n  OPTIONS * RTSP/1.0\r\nCSeq: \
         4\r\n\r\n"
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
        limits.request_time_max = Duration::from_secs(4);
        limits.idle_time_max = Duration::from_secs(4);
    });
    let [mut half, mut silent, mut blank] = [(); 3].map(|()| fixture.connect());
    half.send_raw(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nX: ")
        .unwrap();
    blank.request("OPTIONS", "*", &[]).unwrap();
    let response = half.response().unwrap();
    assert_eq!(response.status, 408);
    assert!(half.is_closed());
    assert!(silent.is_closed());
    assert!(blank.is_closed());

    // One with a session may be silent for as long as that lives.
    let mut viewer = fixture.set_up();
    std::thread::sleep(Duration::from_secs(6));
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

/// RFC 2326, section 12.7.
#[test]
fn packets_are_as_short_as_blocksize_says() {
    let fixture = Fixture::new();
    let url = fixture.url("short.ts");
    let set_up = |client: &mut Client, ports: &Ports, blocksize| {
        let transport = ports.transport().unwrap();
        let headers = [("Transport", &*transport), ("Blocksize", blocksize)];
        let track = format!("{url}/track1");
        client.request("SETUP", &track, &headers).unwrap()
    };
    for (blocksize, longest) in [
        ("400", 2 * 188),
        ("1", 188),
        ("1400", 7 * 188),
        ("99999999999999999999", 7 * 188),
    ] {
        let (mut client, ports) = (fixture.connect(), Ports::bind(V4).unwrap());
        let answer = set_up(&mut client, &ports, blocksize);
        let mut viewer = Viewer {
            client,
            ports,
            session: answer.session().expect(blocksize),
            url: url.clone(),
        };
        viewer.play(None);
        let packets = viewer.to_the_end();
        assert_contiguous(&packets);
        assert_carries(&packets, &demo(1));
        let bytes = packets.iter().map(|packet| packet.len() - HEADER_BYTES);
        assert_eq!(bytes.max(), Some(longest), "{blocksize}");
    }
    let (mut client, ports) = (fixture.connect(), Ports::bind(V4).unwrap());
    for nonsense in ["", "0", "000", "-1", "1400.5", "large"] {
        let answer = set_up(&mut client, &ports, nonsense);
        assert_eq!(answer.status, 400, "{nonsense:?}: {answer:?}");
        assert!(answer.reason.contains("as 1400"), "{answer:?}");
    }
}
