//! Encrypted packets with one key for all viewers of a film, by clients that decrypt them and see
//! which key stream each packet has taken.

use std::collections::HashMap;

use onrush_server::tls::{SrtpKeys, SrtpOffer, TlsConfig};
use onrush_wire::srtp::{MasterKey, RtcpReceiver, RtpReceiver, parse_key_mgmt};

use super::srtp::{describe, savp, sets_up};
use super::tls::bridge;
use super::*;

/// A server that has TLS, shares keys, and gives them without TLS, too; and where TLS is.
fn fixture() -> (Fixture, SocketAddr) {
    let fixture = Fixture::with(|config| {
        config.rtsps_addresses = vec![(V4, 0).into()];
        config.tls = TlsConfig {
            self_signed: Some(vec!["localhost".to_owned()]),
            srtp: SrtpOffer::Plain,
            srtp_keys: SrtpKeys::Shared,
            ..TlsConfig::default()
        };
    });
    let at = bridge(fixture.server.rtsps_addresses()[0]);
    (fixture, at)
}

/// What was encrypted with one key, by SSRC and by what stands for the index: only so many packets
/// come that none of an SSRC wraps.
#[derive(Default)]
struct KeyStreams {
    rtp: HashMap<(u32, u16), Vec<u8>>,
    rtcp: HashMap<(u32, Vec<u8>), Vec<u8>>,
}

/// One viewer's means to decrypt.
struct Receivers {
    key: MasterKey,
    rtp: HashMap<u32, RtpReceiver>,
    rtcp: HashMap<u32, RtcpReceiver>,
}

fn ssrc_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Receivers {
    fn new(key: MasterKey) -> Self {
        Self {
            key,
            rtp: HashMap::new(),
            rtcp: HashMap::new(),
        }
    }

    /// Decrypts what comes to the BYE: as it came, and in the clear. No key stream may have been
    /// taken for something else.
    fn take_all(&mut self, viewer: &Viewer, used: &mut KeyStreams) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let Ports { rtp, rtcp } = &viewer.ports;
        rtp.set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        rtcp.set_nonblocking(true).unwrap();
        let (mut sealed, mut all, mut datagram) = (Vec::new(), Vec::new(), [0; 2048]);
        let (started, mut is_over) = (Instant::now(), false);
        while !is_over {
            assert!(
                started.elapsed() < WAIT_MAX * 2,
                "no BYE after {}",
                all.len()
            );
            if let Ok(bytes) = rtcp.recv(&mut datagram) {
                let ssrc = ssrc_at(&datagram, 4);
                let index = datagram[bytes - 14..bytes - 10].to_vec();
                let receiver = self.rtcp.entry(ssrc);
                let receiver = receiver.or_insert_with(|| RtcpReceiver::new(&self.key));
                let report = receiver.unprotect(&datagram[..bytes]).unwrap();
                is_over = rtcp_types(&report).contains(&BYE);
                let before = used.rtcp.insert((ssrc, index), report.clone());
                assert!(
                    before.is_none_or(|it| it == report),
                    "a report's key stream"
                );
            }
            while let Ok(bytes) = rtp.recv(&mut datagram) {
                sealed.push(datagram[..bytes].to_vec());
                let ssrc = ssrc_at(&datagram, 8);
                let receiver = self.rtp.entry(ssrc);
                let receiver = receiver.or_insert_with(|| RtpReceiver::new(&self.key));
                let packet = receiver.unprotect(&mut datagram[..bytes]).unwrap().to_vec();
                let at = (ssrc, header(&packet).sequence);
                let before = used.rtp.insert(at, packet.clone());
                assert!(
                    before.is_none_or(|it| it == packet),
                    "a key stream twice: {at:?}"
                );
                all.push(packet);
            }
        }
        (sealed, all)
    }
}

#[test]
fn two_viewers_get_the_same_bytes_encrypted_once() {
    let (fixture, at) = fixture();
    for query in ["srtp", "srtp=gcm"] {
        let [mut one, mut two] = [0, 1].map(|_| {
            let mut client = Client::connect(at).unwrap();
            let (url, key) = describe(&fixture, &mut client, query);
            (sets_up(client, &url, &key), key)
        });
        assert_eq!(one.1, two.1, "a film has one key");
        assert_eq!(one.0.session.ssrc, two.0.session.ssrc);
        let mut used = KeyStreams::default();
        let [first, second] = [&mut one, &mut two].map(|(viewer, key)| {
            let (sequence, timestamp) = viewer.play(None);
            let (sealed, packets) = Receivers::new(key.clone()).take_all(viewer, &mut used);
            assert_carries(&packets, &demo(1));
            assert_contiguous(&packets);
            let first = header(&packets[0]);
            assert_eq!((first.sequence, first.timestamp), (sequence, timestamp));
            assert_eq!(first.ssrc, viewer.session.ssrc);
            assert!(sequence < 1 << 14, "far from where numbers wrap");
            sealed
        });
        assert!(first == second, "byte for byte");
    }
}

#[test]
fn no_key_stream_is_used_twice_over_jumps() {
    let (fixture, at) = fixture();
    let mut used = KeyStreams::default();
    let mut ssrcs = Vec::new();
    for ranges in [
        &["npt=0-", "npt=0-", "npt=0.5-", "npt=0-"][..],
        &["npt=0-0.5", "npt=0-", "npt=0-"],
        &["npt=0.5-", "npt=0-"],
    ] {
        let mut client = Client::connect(at).unwrap();
        let (url, key) = describe(&fixture, &mut client, "srtp");
        let mut viewer = sets_up(client, &url, &key);
        let mut receivers = Receivers::new(key);
        for range in ranges {
            let (sequence, timestamp) = viewer.play(Some(range));
            let (_, packets) = receivers.take_all(&viewer, &mut used);
            let first = header(&packets[0]);
            assert_eq!((first.sequence, first.timestamp), (sequence, timestamp));
            assert_contiguous(&packets);
            if *range == "npt=0-" {
                assert_carries(&packets, &demo(1));
            }
            ssrcs.push((first.ssrc, viewer.session.ssrc));
        }
        assert_eq!(viewer.request("TEARDOWN", &[]).status, 200);
    }
    let is_shared: Vec<_> = ssrcs.iter().map(|(ssrc, shared)| ssrc == shared).collect();
    let (first, again) = (true, false);
    assert_eq!(
        is_shared,
        [
            first, again, again, again, first, again, again, first, again
        ]
    );
    let own: std::collections::HashSet<_> = ssrcs.iter().map(|(ssrc, _)| ssrc).collect();
    assert_eq!(own.len(), 4, "the images', and one of each session's");
    assert!(!used.rtcp.is_empty());
}

#[test]
fn the_films_key_is_told_over_tls_alone() {
    let (fixture, at) = fixture();
    let mut client = Client::connect(at).unwrap();
    let (url, shared) = describe(&fixture, &mut client, "srtp");
    let mut plain = fixture.connect();
    let (_, own) = describe(&fixture, &mut plain, "srtp");
    let (_, other) = describe(&fixture, &mut plain, "srtp");
    assert!(
        own != shared && own != other,
        "who reads along knows no other's"
    );
    // Whoever claims to have it, without TLS, or has it of a film that is another by now, is given
    // one of its own.
    let ports = Ports::bind(V4).unwrap();
    let (track, transport) = (format!("{url}/track1"), savp(&ports));
    let response = plain.request("SETUP", &track, &[("Transport", &transport)]);
    let told = parse_key_mgmt(response.unwrap().header("KeyMgmt").unwrap()).unwrap();
    assert!(told.key != shared && told.key != own);
    // It grows: new viewers share nothing then, and what others were told does for packets of their
    // own.
    let ssrc = sets_up(Client::connect(at).unwrap(), &url, &shared)
        .session
        .ssrc;
    fixture.write("short.ts", &demo(2));
    let (_, anew) = describe(&fixture, &mut client, "srtp");
    assert_ne!(anew, shared, "more of it has another key");
    let viewer = sets_up(Client::connect(at).unwrap(), &url, &shared);
    assert_ne!(viewer.session.ssrc, ssrc);
    // It is another file.
    fs::remove_file(fixture.root.path().join("short.ts")).unwrap();
    fixture.write("short.ts", &demo(1));
    let (_, anew) = describe(&fixture, &mut client, "srtp");
    assert_ne!(anew, shared, "another file has another key");
    let ports = Ports::bind(V4).unwrap();
    let response = client.request("SETUP", &track, &[("Transport", &savp(&ports))]);
    let told = parse_key_mgmt(response.unwrap().header("KeyMgmt").unwrap()).unwrap();
    assert!(told.key != shared && told.key != anew);
}
