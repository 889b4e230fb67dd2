//! Encrypted packets, by a client that decrypts them. It speaks without TLS, which the server is
//! told to take, so that both ends are seen here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrush_server::tls::{SrtpOffer, TlsConfig};
use onrush_wire::srtp::{
    CryptoSession, MasterKey, MikeyMessage, RtcpReceiver, RtcpSender, RtpReceiver, key_mgmt_header,
    parse_crypto_attribute, parse_key_mgmt,
};

use super::*;

const RECEIVER_REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 7];

fn fixture(offer: SrtpOffer, change: impl FnOnce(&mut Limits)) -> Fixture {
    Fixture::with(|config| {
        change(&mut config.limits);
        config.tls = TlsConfig {
            srtp: offer,
            ..TlsConfig::default()
        };
    })
}

/// What a description says: where its parts are, and the key of its first track.
pub(super) fn describe(fixture: &Fixture, client: &mut Client, query: &str) -> (String, MasterKey) {
    let url = format!("{}?{query}", fixture.url("short.ts"));
    let response = client.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(response.status, 200);
    let base = response.header("Content-Base").unwrap().to_owned();
    let text = response.text();
    assert!(text.contains("m=video 0 RTP/SAVP 33\r\n"), "{text}");
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
    };
    let key = parse_crypto_attribute(value("a=crypto:")).unwrap();
    let message = STANDARD.decode(value("a=key-mgmt:mikey ")).unwrap();
    assert_eq!(MikeyMessage::parse(&message).unwrap().key, key);
    (base.trim_end_matches('/').to_owned(), key)
}

pub(super) fn savp(ports: &Ports) -> String {
    ports.transport().unwrap().replace("RTP/AVP", "RTP/SAVP")
}

/// A viewer of an encrypted file, which tells a key of its own, and the server's.
fn set_up(fixture: &Fixture, query: &str) -> (Viewer, MasterKey, MasterKey) {
    let mut client = fixture.connect();
    let (url, key) = describe(fixture, &mut client, query);
    (sets_up(client, &url, &key), key.clone(), own_key(&key))
}

fn own_key(of: &MasterKey) -> MasterKey {
    let suite = of.suite();
    MasterKey::new(suite, &vec![0x5a; suite.master_bytes()]).unwrap()
}

/// Sets up what was described so.
pub(super) fn sets_up(mut client: Client, url: &str, key: &MasterKey) -> Viewer {
    let message = MikeyMessage {
        bundle: 1,
        sessions: vec![CryptoSession {
            ssrc: 7,
            rollover: 0,
        }],
        ntp: 0,
        random: vec![1; 16],
        key: own_key(key),
    };
    let ports = Ports::bind(V4).unwrap();
    let (transport, header) = (savp(&ports), key_mgmt_header(&message, url));
    let headers = [("Transport", &*transport), ("KeyMgmt", &*header)];
    let track = format!("{url}/track1");
    let response = client.request("SETUP", &track, &headers).unwrap();
    assert!(
        response
            .header("Transport")
            .unwrap()
            .starts_with("RTP/SAVP;")
    );
    assert_eq!(response.header("KeyMgmt"), None, "the client has the key");
    let session = response.session().unwrap();
    Viewer {
        client,
        ports,
        session,
        url: url.to_owned(),
    }
}

/// Decrypts what comes, to the BYE.
fn to_the_bye(viewer: &Viewer, rtp: &mut RtpReceiver, rtcp: &mut RtcpReceiver) -> Vec<Vec<u8>> {
    let Ports {
        rtp: packets,
        rtcp: reports,
    } = &viewer.ports;
    packets
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    reports.set_nonblocking(true).unwrap();
    let (started, mut all, mut datagram) = (Instant::now(), Vec::new(), [0; 2048]);
    let mut is_over = false;
    while !is_over {
        assert!(
            started.elapsed() < WAIT_MAX * 2,
            "no BYE after {}",
            all.len()
        );
        if let Ok(bytes) = reports.recv(&mut datagram) {
            let report = rtcp.unprotect(&datagram[..bytes]).unwrap();
            assert_eq!(rtcp_types(&report)[..2], [SR, SDES]);
            is_over = rtcp_types(&report).contains(&BYE);
        }
        while let Ok(bytes) = packets.recv(&mut datagram) {
            let packet = rtp.unprotect(&mut datagram[..bytes]).unwrap();
            all.push(packet.to_vec());
        }
    }
    all
}

#[test]
fn a_file_plays_encrypted_byte_for_byte_over_jumps() {
    let fixture = fixture(SrtpOffer::Plain, |_| {});
    for query in ["srtp", "srtp=gcm"] {
        let (mut viewer, key, _) = set_up(&fixture, query);
        let (mut rtp, mut rtcp) = (RtpReceiver::new(&key), RtcpReceiver::new(&key));
        let mut all = Vec::new();
        for range in ["npt=0-", "npt=0-", "npt=0.5-"] {
            let (sequence, timestamp) = viewer.play(Some(range));
            let packets = to_the_bye(&viewer, &mut rtp, &mut rtcp);
            let header = header(&packets[0]);
            assert_eq!((header.sequence, header.timestamp), (sequence, timestamp));
            assert_eq!(header.ssrc, viewer.session.ssrc);
            if range == "npt=0-" {
                assert_carries(&packets, &demo(1));
            }
            all.extend(packets);
        }
        // No number is used twice, whatever is sought.
        assert_contiguous(&all);
        assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
    }
}

#[test]
fn no_two_sessions_have_a_key_stream_in_common() {
    let fixture = fixture(SrtpOffer::Plain, |_| {});
    let (one, key, _) = set_up(&fixture, "srtp");
    let (two, other, _) = set_up(&fixture, "srtp");
    assert_ne!(key, other, "each description has a key of its own");
    assert_ne!(one.session.ssrc, two.session.ssrc);
    // Of one description, too.
    let ports = Ports::bind(V4).unwrap();
    let mut client = fixture.connect();
    let (url, transport) = (format!("{}/track1", one.url), savp(&ports));
    let response = client.request("SETUP", &url, &[("Transport", &transport)]);
    assert_ne!(response.unwrap().session().unwrap().ssrc, one.session.ssrc);
}

#[test]
fn who_has_no_description_is_told_the_key_by_setup() {
    let fixture = fixture(SrtpOffer::Plain, |_| {});
    let ports = Ports::bind(V4).unwrap();
    let mut client = fixture.connect();
    let (url, transport) = (fixture.url("short.ts"), savp(&ports));
    let track = format!("{url}/track1");
    let response = client.request("SETUP", &track, &[("Transport", &transport)]);
    let response = response.unwrap();
    let session = response.session().unwrap();
    let told = parse_key_mgmt(response.header("KeyMgmt").unwrap()).unwrap();
    assert_eq!(told.sessions[0].ssrc, session.ssrc);
    let mut viewer = Viewer {
        client,
        ports,
        session,
        url,
    };
    viewer.play(None);
    let (mut rtp, mut rtcp) = (RtpReceiver::new(&told.key), RtcpReceiver::new(&told.key));
    assert_carries(&to_the_bye(&viewer, &mut rtp, &mut rtcp), &demo(1));
}

#[test]
fn a_key_is_not_told_to_who_reads_along() {
    for (offer, query, status) in [
        (SrtpOffer::Asked, "?srtp", 461),
        (SrtpOffer::Always, "?srtp", 461),
        (SrtpOffer::Always, "", 200),
        (SrtpOffer::Plain, "", 200),
    ] {
        let fixture = fixture(offer, |_| {});
        let mut client = fixture.connect();
        let url = fixture.url("short.ts");
        let described = client.request("DESCRIBE", &format!("{url}{query}"), &[]);
        let described = described.unwrap();
        assert_eq!(described.status, status, "{offer:?} {query}");
        assert!(!described.text().contains("crypto"), "{offer:?} {query}");
        if offer != SrtpOffer::Plain {
            let (ports, track) = (Ports::bind(V4).unwrap(), format!("{url}/track1"));
            let transport = savp(&ports);
            let response = client.request("SETUP", &track, &[("Transport", &transport)]);
            let response = response.unwrap();
            assert_eq!(response.status, 461, "{offer:?}");
            assert!(response.reason.contains("rtsps"), "{}", response.reason);
        }
    }
}

#[test]
fn what_cannot_be_agreed_on_is_refused() {
    let fixture = fixture(SrtpOffer::Plain, |_| {});
    let mut client = fixture.connect();
    let (url, _) = describe(&fixture, &mut client, "srtp");
    let (ports, track) = (Ports::bind(V4).unwrap(), format!("{url}/track1"));
    let (savp, tcp) = (savp(&ports), "RTP/AVP/TCP;interleaved=0-1");
    for (headers, status) in [
        (&[("Transport", tcp)][..], 461),
        (
            &[
                ("Transport", &*savp),
                ("KeyMgmt", "prot=mikey;data=\"AQID\""),
            ],
            466,
        ),
        (&[("Transport", &*savp), ("KeyMgmt", "prot=sdes")], 466),
    ] {
        let response = client.request("SETUP", &track, headers).unwrap();
        assert_eq!(response.status, status, "{headers:?}");
    }
    // FFmpeg asks for RTP/AVP, whatever the description says, and decrypts what comes.
    let avp = ports.transport().unwrap();
    let response = client.request("SETUP", &track, &[("Transport", &avp)]);
    assert_eq!(response.unwrap().status, 200);
}

/// A report beside the first packet crashes GStreamer, in about one of thirty starts of a channel.
#[test]
fn the_first_report_is_well_behind_the_first_packet() {
    let fixture = fixture(SrtpOffer::Plain, |_| {});
    let (mut viewer, key, _) = set_up(&fixture, "srtp");
    let asked = Instant::now();
    viewer.play(None);
    let report = viewer.ports.rtcp(|_| true).unwrap();
    assert!(asked.elapsed() >= Duration::from_millis(300));
    let report = RtcpReceiver::new(&key).unprotect(&report).unwrap();
    assert_eq!(rtcp_types(&report)[..2], [SR, SDES]);
}

/// So nobody keeps another's session alive, or ends it.
#[test]
fn reports_in_the_clear_are_nobodys() {
    let timeout = Duration::from_secs(6);
    let fixture = fixture(SrtpOffer::Plain, |limits| limits.session_timeout = timeout);
    let (mut plain, ..) = set_up(&fixture, "srtp");
    let (mut sealed, _, own) = set_up(&fixture, "srtp");
    let mut sender = RtcpSender::new(&own);
    for viewer in [&mut plain, &mut sealed] {
        viewer.request("PAUSE", &[]);
    }
    let started = Instant::now();
    while fixture.server.sessions() == 2 {
        assert!(started.elapsed() < WAIT_MAX, "no session ends");
        let server = |viewer: &Viewer| (V4, viewer.session.server_ports.1);
        let rtcp = |viewer: &Viewer, report: &[u8]| {
            viewer.ports.rtcp.send_to(report, server(viewer)).unwrap()
        };
        rtcp(&plain, &RECEIVER_REPORT);
        rtcp(&sealed, &sender.protect(&RECEIVER_REPORT).unwrap());
        std::thread::sleep(Duration::from_millis(100));
    }
    let pings = |viewer: &mut Viewer| viewer.request("GET_PARAMETER", &[]).status;
    assert_eq!((pings(&mut plain), pings(&mut sealed)), (454, 200));
}
