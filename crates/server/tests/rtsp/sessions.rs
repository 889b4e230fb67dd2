//! What becomes of sessions: whose they are, how they go on, and what ends them.

use super::*;

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

/// However few connections it has.
#[test]
fn an_address_has_no_more_sessions_than_it_may_have() {
    let fixture = Fixture::limited(|limits| limits.sessions_per_address_max = 2);
    let url = format!("{}/track1", fixture.url("long.ts"));
    let mut ports = Vec::new();
    let mut set_up = |client: &mut Client, ip: IpAddr| {
        ports.push(Ports::bind(ip).unwrap());
        let transport = ports.last().unwrap().transport().unwrap();
        let headers = [("Transport", transport.as_str())];
        client.request("SETUP", &url, &headers).unwrap()
    };
    let mut client = fixture.connect();
    let first = set_up(&mut client, V4);
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(set_up(&mut client, V4).status, 200);
    let refused = set_up(&mut client, V4);
    assert_eq!(refused.status, 453);
    assert!(refused.reason.contains("one address"), "{refused:?}");
    let local = IpAddr::from([127, 0, 0, 2]);
    let mut other = Client::connect_from(local, fixture.address()).unwrap();
    assert_eq!(set_up(&mut other, local).status, 200);
    assert_eq!(fixture.server.sessions(), 3);
    let (session, _) = first.session_id().unwrap();
    let headers = [("Session", session)];
    let answer = client.request("TEARDOWN", &url, &headers).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(set_up(&mut client, V4).status, 200);
}

// SPECIFICATION.md: 42
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
    let fixture = Fixture::limited(|limits| limits.session_timeout = Duration::from_secs(4));
    let mut viewer = fixture.set_up();
    viewer.play(None);
    viewer.to_the_end();
    fixture.wait_for_sessions(0);
    assert_eq!(viewer.request("OPTIONS", &[]).status, 454);
}

#[test]
fn reports_and_requests_keep_a_session() {
    let timeout = Duration::from_secs(4);
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
fn a_client_is_told_once_that_its_stream_is_over() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up_file("short.ts");
    // What was sent before an answer has come before it.
    let reports = |viewer: &Viewer| {
        let rtcp = &viewer.ports.rtcp;
        rtcp.set_nonblocking(true).unwrap();
        let mut datagram = [0; 2048];
        let mut reports = Vec::new();
        while let Ok(bytes) = rtcp.recv(&mut datagram) {
            reports.push(rtcp_types(&datagram[..bytes]));
        }
        rtcp.set_nonblocking(false).unwrap();
        reports
    };
    viewer.play(None);
    viewer.to_the_end();
    viewer.request("PAUSE", &[]);
    viewer.play(None);
    viewer.to_the_end();
    assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
    assert_eq!(reports(&viewer), [[0_u8; 0]; 0]);
    // Who plays again after the end is told again.
    let mut viewer = fixture.set_up_file("short.ts");
    viewer.play(None);
    viewer.to_the_end();
    viewer.play(None);
    viewer.request("PAUSE", &[]);
    assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
    let said = reports(&viewer);
    assert_eq!(said.last().unwrap(), &[SR, SDES, BYE], "{said:?}");
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
    assert_eq!(usize::from(sequence.wrapping_sub(start)), 5 + old.len());
    assert_eq!(header(&new[0]).timestamp, timestamp);
    // Old and new are one run of numbers, and no stamp steps back.
    assert_contiguous(&packets);
    // What comes is the file's from there on: 5 s, of which only the first packets were sent.
    let demo = demo(10);
    let new = payload(new);
    let place = demo
        .windows(new.len())
        .step_by(188)
        .position(|part| part == new);
    let place = place.expect("it is a part of the file");
    assert!(place * 188 > demo.len() / 2, "{place}");
    // A range that cannot be played changes nothing.
    viewer.play(Some("npt=0-"));
    let response = viewer.request("PLAY", &[("Range", "npt=999-")]);
    assert_eq!(response.status, 457);
    viewer.ports.receive(20).unwrap();
    // Nor does a PLAY that asks for what it already gets.
    let response = viewer.request("PLAY", &[("Scale", "1.0")]);
    assert_eq!((response.status, response.header("RTP-Info")), (200, None));
    assert_eq!(response.header("Scale"), Some("1"));
}

// SPECIFICATION.md: 5
#[test]
fn after_a_pause_comes_exactly_the_next_packet() {
    let fixture = Fixture::new();
    // Longer than a slow machine takes to ask for four pauses.
    fixture.write("middle.ts", &demo(4));
    let mut viewer = fixture.set_up_file("middle.ts");
    let mut all = Vec::new();
    for _ in 0..4 {
        let (sequence, timestamp) = viewer.play(None);
        let packets = viewer.ports.receive(3).unwrap();
        let first = header(&packets[0]);
        assert_eq!((first.sequence, first.timestamp), (sequence, timestamp));
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
    // After the end it starts from the beginning, wherever it was paused before, with the next
    // numbers.
    let last = header(&all[all.len() - 1]).sequence;
    assert_eq!(viewer.play(None).0, last.wrapping_add(1));
    assert_carries(&viewer.to_the_end(), &demo(4));
}

/// RFC 2326, section 10.6: PAUSE with a Range is answered at once, and stops what plays when it
/// comes there.
#[test]
fn a_pause_point_stops_what_plays_when_it_comes_there() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let (_, first_ticks) = viewer.play(None);
    let ticks = |packet: &[u8]| header(packet).timestamp.wrapping_sub(first_ticks);
    let pause = |viewer: &mut Viewer, at: &str| viewer.request("PAUSE", &[("Range", at)]).status;
    let mut all = viewer.ports.receive(20).unwrap();
    // What is over, what comes after the end, what is a span, and what is no time, is not
    // understood and stops nothing.
    for range in ["npt=0-", "npt=99-", "npt=3-4", "npt=-3", "clock=now"] {
        assert_eq!(pause(&mut viewer, range), 457, "{range}");
    }
    // The later one counts.
    for range in ["npt=9-", "npt=3-"] {
        assert_eq!(pause(&mut viewer, range), 200, "{range}");
    }
    // Packets are 10.5 ms apart.
    while ticks(all.last().unwrap()) < 3 * 90_000 - 950 {
        all.extend(viewer.ports.receive(1).unwrap());
    }
    // Of what is over it is said so, as long as it plays.
    wait_until_ready(&mut viewer);
    all.extend(viewer.drain());
    assert!(
        ticks(all.last().unwrap()) < 3 * 90_000,
        "nothing from there on"
    );
    let (sequence, timestamp) = viewer.play(None);
    assert!(timestamp.wrapping_sub(first_ticks) >= 3 * 90_000);
    assert_eq!(
        sequence,
        header(all.last().unwrap()).sequence.wrapping_add(1)
    );
    all.extend(viewer.ports.receive(20).unwrap());
    // PLAY and PAUSE take a point back.
    assert_eq!(pause(&mut viewer, "npt=6-"), 200);
    viewer.play(None);
    assert_eq!(pause(&mut viewer, "npt=6.1"), 200);
    assert_eq!(viewer.request("PAUSE", &[]).status, 200);
    viewer.play(None);
    while ticks(all.last().unwrap()) < 6 * 90_000 + 20_000 {
        all.extend(viewer.ports.receive(1).unwrap());
    }
    assert_contiguous(&all);
    assert_carries(&all, &demo(10)[..payload(&all).len()]);
    // Nobody was told that it is over: there were reports only.
    viewer.request("PAUSE", &[]);
    viewer.ports.rtcp.set_nonblocking(true).unwrap();
    let mut datagram = [0; 2048];
    while let Ok(bytes) = viewer.ports.rtcp.recv(&mut datagram) {
        assert_eq!(rtcp_types(&datagram[..bytes]), [SR, SDES]);
    }
}

#[test]
fn a_pause_point_lies_in_what_is_played() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up_file("short.ts");
    assert_eq!(
        viewer.request("PAUSE", &[("Range", "npt=0.5-")]).status,
        455
    );
    viewer.play(Some("npt=0-0.5"));
    assert_eq!(
        viewer.request("PAUSE", &[("Range", "npt=0.5-")]).status,
        457
    );
    viewer.to_the_end();
    assert_eq!(
        viewer.request("PAUSE", &[("Range", "npt=0.4-")]).status,
        457
    );
    // One behind the last packet is the end.
    fixture.write("middle.ts", &demo(3));
    let mut viewer = fixture.set_up_file("middle.ts");
    let described = viewer.client.request("DESCRIBE", &viewer.url, &[]).unwrap();
    let description = String::from_utf8(described.body).unwrap();
    let (_, end) = description.split_once("a=range:npt=0-").unwrap();
    let end: f64 = end.lines().next().unwrap().parse().unwrap();
    let range = format!("npt={:.6}-", end - 0.000_1);
    viewer.play(None);
    assert_eq!(viewer.request("PAUSE", &[("Range", &range)]).status, 200);
    let (packets, bye) = viewer.to_the_bye();
    assert_carries(&packets, &demo(3));
    assert!(bye.windows(12).any(|said| said == b"end of media"));
}

/// Behind the last packet of a film that grows, more may come.
#[test]
fn a_pause_point_at_the_end_of_a_growing_film_is_no_end() {
    let fixture = Fixture::new();
    fs::write(fixture.root.path().join("grows.ts"), demo(3)).unwrap();
    let mut viewer = fixture.set_up_file("grows.ts");
    viewer.play(None);
    // The last that is known of, to a thousandth.
    let is_taken = |ms: &u32| {
        let range = format!("npt={}.{:03}-", ms / 1000, ms % 1000);
        viewer.request("PAUSE", &[("Range", &range)]).status == 200
    };
    (0..3500).rev().find(is_taken).expect("it plays");
    wait_until_ready(&mut viewer);
}

/// Waits until nothing plays any more: until then a pause point that is over is refused for that.
fn wait_until_ready(viewer: &mut Viewer) {
    let started = Instant::now();
    loop {
        match viewer.request("PAUSE", &[("Range", "npt=0-")]).status {
            455 => return,
            status => assert_eq!(status, 457),
        }
        assert!(started.elapsed() < WAIT_MAX, "it plays on");
        std::thread::sleep(Duration::from_millis(10));
    }
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
fn a_session_that_does_not_play_takes_another_transport() {
    let fixture = Fixture::new();
    // It is not over before the other transport is asked for.
    fixture.write("middle.ts", &demo(4));
    let mut viewer = fixture.set_up_file("middle.ts");
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
    assert_carries(&viewer.to_the_end(), &demo(4));
    assert_eq!(fixture.server.sessions(), 1);
}

// SPECIFICATION.md: 39
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

/// Players on libavformat send no PLAY again where one was refused. Others are told that there is
/// no such place.
#[test]
fn libavformat_comes_to_the_end_it_seeks_behind() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let mut play = |range: &str, agent: &str| {
        let headers = [("Range", range), ("User-Agent", agent)];
        let response = viewer.request("PLAY", &headers);
        let range = response.header("Range").map(ToOwned::to_owned);
        (response.status, range)
    };
    // Stamps begin at 1.4 s.
    let last = play("npt=11.399-", "Lavf59.27.100");
    assert_eq!(last.0, 200);
    // While that plays, and from its end.
    for range in ["npt=11.5-", "npt=99-"] {
        assert_eq!(play(range, "LibVLC/3.0"), (457, None), "{range}");
        assert_eq!(play(range, "Lavf59.27.100"), last, "{range}");
    }
    assert_eq!(play("npt=1.4-", "Lavf59.27.100").0, 200);
}

/// Players on libavformat name places by the stamps in the stream, which begin at 1.4 s here and
/// anywhere in a recording. Others name media time, unless it is behind the end.
#[test]
fn places_are_found_by_the_stamps_that_libavformat_names() {
    let fixture = Fixture::new();
    let mut viewer = fixture.set_up();
    let mut begins = |range: &str, agent: &str| {
        let headers = [("Range", range), ("User-Agent", agent)];
        let response = viewer.request("PLAY", &headers);
        assert_eq!(response.status, 200, "{range} {agent}");
        let said = response.header("Range").unwrap().to_owned();
        let begin = said
            .strip_prefix("npt=")
            .unwrap()
            .split('-')
            .next()
            .unwrap()
            .to_owned();
        begin.parse::<f64>().unwrap().round()
    };
    let by_time = begins("npt=6.9-", "LibVLC/3.0");
    for agent in ["Lavf59.27.100", "libmpv", "mpv 0.35"] {
        assert_eq!(begins("npt=6.9-", agent), by_time - 1.0, "{agent}");
        assert_eq!(
            begins("npt=0-", agent),
            0.0,
            "what is before the start is the start"
        );
    }
    // The file lasts 10 s; behind that only a stamp can be meant.
    assert_eq!(begins("npt=10.9-", "LibVLC/3.0"), 9.0);
    assert_eq!(viewer.request("PLAY", &[("Range", "npt=99-")]).status, 457);
}
