//! Multicast: one stream for all who have joined its group.

use std::net::SocketAddrV4;

use onrush_server::multicast::MulticastConfig;
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

const TRANSPORT: (&str, &str) = ("Transport", "RTP/AVP;multicast");

/// Sockets of one who has joined a group: for RTP and RTCP.
fn join(group: IpAddr, port: u16) -> [UdpSocket; 2] {
    [port, port + 1].map(|port| {
        let at = SocketAddr::new(group, port);
        let kind = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP));
        let socket = kind.unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&at.into()).unwrap();
        match group {
            IpAddr::V4(group) => socket
                .join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
                .unwrap(),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, 1).unwrap(),
        }
        socket.set_recv_buffer_size(4 << 20).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        socket.into()
    })
}

/// A server whose groups are those of this range; every test has one of its own, because all are on
/// one loopback.
fn fixture(range: &str, change: impl FnOnce(&mut Config)) -> Fixture {
    Fixture::with(|config| {
        config.multicast.ranges = vec![range.parse().unwrap()];
        change(config);
    })
}

/// A client with a session on a group.
struct Member {
    client: Client,
    url: String,
    session: String,
    transport: String,
}

impl Member {
    fn set_up(fixture: &Fixture, name: &str) -> Self {
        let mut client = fixture.connect();
        let url = fixture.url(name);
        let track = format!("{url}/track1");
        let answer = client.request("SETUP", &track, &[TRANSPORT]).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.session_id().unwrap().0.to_owned();
        let transport = answer.header("Transport").unwrap().to_owned();
        Self {
            client,
            url,
            session,
            transport,
        }
    }

    fn request(&mut self, method: &str, headers: &[(&str, &str)]) -> Response {
        let headers = [&[("Session", &*self.session)], headers].concat();
        self.client.request(method, &self.url, &headers).unwrap()
    }

    fn ask(&mut self, method: &str) -> Response {
        let answer = self.request(method, &[]);
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        answer
    }
}

/// Receives RTP until the sender says BYE.
fn receive_all([rtp, rtcp]: &[UdpSocket; 2]) -> Vec<Vec<u8>> {
    rtp.set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    rtcp.set_nonblocking(true).unwrap();
    let (started, mut packets, mut datagram) = (Instant::now(), Vec::new(), [0; 2048]);
    let mut is_over = false;
    loop {
        match rtp.recv(&mut datagram) {
            Ok(bytes) => packets.push(datagram[..bytes].to_vec()),
            Err(_) if is_over => return packets,
            Err(_) => {}
        }
        if let Ok(bytes) = rtcp.recv(&mut datagram) {
            is_over |= rtcp_types(&datagram[..bytes]).contains(&BYE);
        }
        let what = format!("no BYE after {} packets", packets.len());
        assert!(started.elapsed() < WAIT_MAX * 2, "{what}");
    }
}

#[test]
fn one_stream_is_for_all_who_join_its_group() {
    let fixture = fixture("239.77.1.0/24:20100", |_| {});
    let mut first = Member::set_up(&fixture, "short.ts");
    let expected = "RTP/AVP;multicast;destination=239.77.1.0;source=127.0.0.1;port=20100-20101;\
                    ttl=1;mode=\"PLAY\"";
    assert_eq!(first.transport, expected);
    let mut second = Member::set_up(&fixture, "short.ts");
    assert_eq!(second.transport, expected);
    let sockets = join([239, 77, 1, 0].into(), 20100);
    for _ in 0..2 {
        let started = first.ask("PLAY");
        let info = started.rtp_info().unwrap();
        // It joins what is on its way, from wherever that is.
        let joined = second.request("PLAY", &[("Range", "npt=0.000-")]);
        assert_eq!(joined.status, 200, "{joined:?}");
        assert_eq!(joined.header("Range"), Some("npt=now-"));
        assert!(joined.rtp_info().is_none(), "{joined:?}");
        let packets = receive_all(&sockets);
        assert_eq!(header(&packets[0]).sequence, info.sequence);
        assert_contiguous(&packets);
        assert_carries(&packets, &demo(1));
    }
    // The one that sends is the third.
    assert_eq!(fixture.server.sessions(), 3);
    first.ask("TEARDOWN");
    fixture.wait_for_sessions(2);
    second.ask("TEARDOWN");
    fixture.wait_for_sessions(0);
}

#[test]
fn a_film_goes_on_for_those_who_stay() {
    let fixture = fixture("239.77.2.0/24:20110", |_| {});
    let sockets = join([239, 77, 2, 0].into(), 20110);
    let mut first = Member::set_up(&fixture, "long.ts");
    first.ask("PLAY");
    let mut second = Member::set_up(&fixture, "long.ts");
    second.ask("PLAY");
    second.ask("PAUSE");
    first.ask("TEARDOWN");
    fixture.wait_for_sessions(2);
    let mut datagram = [0; 2048];
    for _ in 0..200 {
        sockets[0].recv(&mut datagram).unwrap();
    }
    // Without its connection it lives as long as its time-out; the stream ends with it.
    second.ask("TEARDOWN");
    fixture.wait_for_sessions(0);
    receive_all(&sockets);
}

#[test]
fn nobody_seeks_for_all() {
    let fixture = fixture("239.77.3.0/24:20120", |_| {});
    let mut member = Member::set_up(&fixture, "long.ts");
    for _ in 0..2 {
        for range in ["npt=5-", "npt=5-6"] {
            let answer = member.request("PLAY", &[("Range", range)]);
            assert_eq!(answer.status, 457, "{range}: {answer:?}");
        }
        member.ask("PLAY");
    }
    let point = member.request("PAUSE", &[("Range", "npt=5")]);
    assert_eq!(point.status, 457, "{point:?}");
}

#[test]
fn a_group_more_than_the_limit_is_refused() {
    let fixture = fixture("239.77.4.0/24:20130", |config| {
        config.multicast.groups_max = 2;
    });
    let mut members = ["long.ts", "short.ts"].map(|name| Member::set_up(&fixture, name));
    assert!(members[1].transport.contains("destination=239.77.4.1;"));
    let mut client = fixture.connect();
    let third = fixture.url("a%20folder/%C3%A9t%C3%A9.ts/track1");
    let answer = client.request("SETUP", &third, &[TRANSPORT]).unwrap();
    assert_eq!(answer.status, 453, "{answer:?}");
    // Who watches what is sent takes none.
    Member::set_up(&fixture, "long.ts").ask("TEARDOWN");
    members[0].ask("TEARDOWN");
    fixture.wait_for_sessions(2);
    let answer = client.request("SETUP", &third, &[TRANSPORT]).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    // Not the one that somebody may still hear.
    let transport = answer.header("Transport").unwrap();
    assert!(transport.contains("destination=239.77.4.2;"), "{transport}");
}

#[test]
fn a_range_that_is_used_up_is_refused() {
    let fixture = fixture("239.77.5.0/31:20140", |_| {});
    let _members = ["long.ts", "short.ts"].map(|name| Member::set_up(&fixture, name));
    let third = fixture.url("a%20folder/%C3%A9t%C3%A9.ts/track1");
    let answer = fixture.connect().request("SETUP", &third, &[TRANSPORT]);
    assert_eq!(answer.unwrap().status, 453);
}

#[test]
fn transports_do_not_mix_in_a_session() {
    let fixture = fixture("239.77.6.0/24:20150", |_| {});
    let mut client = fixture.connect();
    let url = fixture.url("long.ts/track1");
    let unicast = ("Transport", "RTP/AVP;unicast;client_port=6000-6001");
    for (first, second) in [(TRANSPORT, unicast), (unicast, TRANSPORT)] {
        let answer = client.request("SETUP", &url, &[first]).unwrap();
        let session = answer.session_id().unwrap().0.to_owned();
        let session = ("Session", &*session);
        let answer = client.request("SETUP", &url, &[session, second]).unwrap();
        assert_eq!(answer.status, 461, "{answer:?}");
        let answer = client.request("SETUP", &url, &[session, first]).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let both = (
        "Transport",
        "RTP/AVP;multicast,RTP/AVP;client_port=6002-6003",
    );
    let plain = Fixture::new();
    let url = plain.url("long.ts/track1");
    let answer = plain
        .connect()
        .request("SETUP", &url, &[TRANSPORT])
        .unwrap();
    assert_eq!(answer.status, 461, "{answer:?}");
    assert!(answer.reason.contains("no multicast groups"), "{answer:?}");
    let answer = plain.connect().request("SETUP", &url, &[both]).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_report_to_the_group_keeps_its_sender_alive() {
    let fixture = fixture("239.77.7.0/24:20160", |config| {
        config.limits.session_timeout = Duration::from_secs(4);
    });
    let mut member = Member::set_up(&fixture, "long.ts");
    member.ask("PLAY");
    let reporter = UdpSocket::bind((V4, 0)).unwrap();
    let ttl = socket2::SockRef::from(&reporter);
    ttl.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    // A receiver report of nothing.
    let report = [0x80, 201, 0, 1, 0, 0, 0, 7];
    for _ in 0..100 {
        let to = SocketAddrV4::new([239, 77, 7, 0].into(), 20161);
        reporter.send_to(&report, to).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(fixture.server.sessions(), 2);
    }
    // It says nothing more.
    fixture.wait_for_sessions(0);
}

#[test]
fn a_description_tells_of_the_group_if_it_is_asked_for() {
    let fixture = fixture("239.77.8.0/24:20170", |config| {
        config.multicast.ttl = 9;
        config.limits.session_timeout = Duration::from_secs(4);
    });
    let mut client = fixture.connect();
    let mut describe = |url: String| {
        let answer = client.request("DESCRIBE", &url, &[]).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        String::from_utf8(answer.body).unwrap()
    };
    let unicast = describe(fixture.url("long.ts"));
    assert!(unicast.contains("c=IN IP4 0.0.0.0\r\n") && unicast.contains("m=video 0 "));
    assert_eq!(fixture.server.sessions(), 0);
    let multicast = describe(fixture.url("long.ts?multicast"));
    for line in [
        "c=IN IP4 239.77.8.0/9\r\n",
        "a=source-filter: incl IN IP4 239.77.8.0 127.0.0.1\r\n",
        "m=video 20170 RTP/AVP 33\r\n",
    ] {
        assert!(multicast.contains(line), "{line} is not in {multicast}");
    }
    let mut member = Member::set_up(&fixture, "long.ts");
    assert!(member.transport.contains("239.77.8.0;") && member.transport.contains(";ttl=9;"));
    member.ask("TEARDOWN");
    // What was described and is not set up is not kept for ever.
    fixture.wait_for_sessions(0);
}

#[test]
fn what_is_always_sent_begins_by_itself_and_again() {
    let sockets = join([239, 77, 9, 0].into(), 20190);
    let fixture = fixture("239.77.9.0/24:20190", |config| {
        config.multicast = MulticastConfig {
            from: vec![V4],
            always: vec!["short.ts".to_owned()],
            ..config.multicast.clone()
        };
    });
    // Twice, without a gap between.
    let twice = demo(1).repeat(2);
    let (mut packets, mut datagram) = (Vec::new(), [0; 2048]);
    while packets.len() * (7 * 188) < twice.len() {
        let bytes = sockets[0].recv(&mut datagram).unwrap();
        packets.push(datagram[..bytes].to_vec());
    }
    assert_contiguous(&packets);
    assert!(payload(&packets).starts_with(&twice));
    let url = fixture.url("short.ts");
    let answer = fixture.connect().request("DESCRIBE", &url, &[]).unwrap();
    let described = String::from_utf8(answer.body).unwrap();
    assert!(
        described.contains("c=IN IP4 239.77.9.0/1\r\n"),
        "{described}"
    );
    let mut member = Member::set_up(&fixture, "short.ts");
    assert!(member.transport.contains("destination=239.77.9.0;"));
    member.ask("PLAY");
    member.ask("TEARDOWN");
    fixture.wait_for_sessions(1);
}
