//! Interleaved packets over TLS. The clients of the other tests speak through a bridge, which has a
//! connection with TLS for each of theirs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::thread;

use onrush_server::tls::TlsConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use socket2::SockRef;

use super::interleaved::{Watcher, fast_film};
use super::*;

/// Takes connections, each of which is one over TLS to `server`. It takes no more from that than
/// its client takes from it.
pub(super) fn bridge(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for near in listener.incoming() {
            let far = TcpStream::connect(server).unwrap();
            // So that little lies in it of what its client does not take.
            let small = |socket: &TcpStream| SockRef::from(socket).set_send_buffer_size(16 << 10);
            small(near.as_ref().unwrap()).unwrap();
            thread::spawn(move || {
                // Either side may hang up.
                drop(carry(&near.unwrap(), &far));
            });
        }
    });
    address
}

fn carry(mut near: &TcpStream, far: &TcpStream) -> io::Result<()> {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut far = rustls::StreamOwned::new(tls, far.try_clone()?);
    far.conn.complete_io(&mut far.sock)?;
    near.set_nodelay(true)?;
    let mut bytes = [0; 4096];
    loop {
        near.set_nonblocking(true)?;
        far.sock.set_nonblocking(true)?;
        let said = near.read(&mut bytes);
        near.set_nonblocking(false)?;
        match said {
            Ok(0) => return far.sock.shutdown(Shutdown::Both),
            Ok(said) => {
                far.sock.set_nonblocking(false)?;
                far.write_all(&bytes[..said])?;
                far.flush()?;
                continue;
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            Err(_) => {}
        }
        match far.read(&mut bytes) {
            Ok(0) => return near.shutdown(Shutdown::Both),
            Ok(heard) => near.write_all(&bytes[..heard])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                near.shutdown(Shutdown::Both)?;
                return Err(error);
            }
        }
    }
}

/// A server with TLS, and where the bridge to that is.
fn fixture(change: impl FnOnce(&mut Limits)) -> (Fixture, SocketAddr) {
    let fixture = Fixture::with(|config| {
        change(&mut config.limits);
        config.rtsps_addresses = vec![(V4, 0).into()];
        config.tls = TlsConfig {
            self_signed: Some(vec!["localhost".to_owned()]),
            ..TlsConfig::default()
        };
    });
    let at = bridge(fixture.server.rtsps_addresses()[0]);
    (fixture, at)
}

#[test]
fn a_file_plays_over_tls_byte_for_byte_from_every_place() {
    let (fixture, at) = fixture(|_| {});
    let mut watcher = Watcher::set_up_at(at, &fixture, "short.ts");
    for _ in 0..2 {
        let (sequence, timestamp) = watcher.play("npt=0-");
        let packets = watcher.receive_all();
        let header = header(&packets[0]);
        assert_eq!((header.sequence, header.timestamp), (sequence, timestamp));
        assert_contiguous(&packets);
        assert_carries(&packets, &demo(1));
    }
    assert_eq!(watcher.request("TEARDOWN", &[]).status, 200);
    let mut watcher = Watcher::set_up_at(at, &fixture, "long.ts");
    watcher.play("npt=2-");
    let mut all = watcher.packets(20);
    for range in ["npt=8-", "npt=1-", "npt=6-"] {
        let (sequence, _) = watcher.play(range);
        let early = watcher.client.take_early().into_iter();
        all.extend(early.filter(|it| it.channel == 0).map(|it| it.packet));
        let packets = watcher.packets(20);
        assert_eq!(header(&packets[0]).sequence, sequence);
        all.extend(packets);
    }
    assert_contiguous(&all);
}

/// What waits for a client that reads nothing is a record, of memory that no other wants.
#[test]
fn a_client_of_tls_that_reads_nothing_holds_up_itself_alone() {
    let (fixture, at) = fixture(|limits| {
        // The one that reads may be held up as well, by a busy machine.
        limits.stall_time_max = Duration::from_secs(5);
        limits.unacknowledged_bytes_max = 64 << 10;
    });
    fixture.write("fast.ts", &fast_film());
    let mut deaf: Vec<_> = (0..8)
        .map(|_| Watcher::set_up_at(at, &fixture, "fast.ts"))
        .collect();
    for watcher in &mut deaf {
        let url = watcher.url.clone();
        watcher.client.send("PLAY", &url, &[]).unwrap();
    }
    let mut watcher = Watcher::set_up_at(at, &fixture, "fast.ts");
    watcher.play("npt=0-");
    let packets = watcher.receive_all();
    assert_contiguous(&packets);
    assert_carries(&packets, &fast_film());
    fixture.wait_for_sessions(1);
    drop((deaf, watcher));
    fixture.wait_for_sessions(0);
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert_eq!(engine.stalled_out, 8, "{engine:?}");
    assert_eq!(engine.in_flight, 0, "{engine:?}");
}

/// The mechanism: the records of many connections leave in one crossing, several packets in each.
// SPECIFICATION.md: 15
#[test]
fn records_of_many_connections_leave_in_one_crossing() {
    const WATCHERS: usize = 20;
    let (fixture, at) = fixture(|_| {});
    fixture.write("fast.ts", &fast_film());
    let mut watchers: Vec<_> = (0..WATCHERS)
        .map(|_| Watcher::set_up_at(at, &fixture, "fast.ts"))
        .collect();
    for watcher in &mut watchers {
        watcher.play("npt=0-");
    }
    let reading = watchers.into_iter();
    let reading = reading.map(|mut watcher| thread::spawn(move || watcher.receive_all()));
    for packets in reading.collect::<Vec<_>>() {
        assert_carries(&packets.join().unwrap(), &fast_film());
    }
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert!(engine.packets > 16 * engine.crossings, "{engine:?}");
    // None of it is sent as it lies.
    assert_eq!(engine.trains, 0, "{engine:?}");
}

#[test]
fn udp_is_answered_461_over_tls() {
    let (fixture, at) = fixture(|_| {});
    let mut client = Client::connect(at).unwrap();
    let track = format!("{}/track1", fixture.url("long.ts"));
    let mut set_up = |transport: &str| {
        let answer = client.request("SETUP", &track, &[("Transport", transport)]);
        answer.unwrap().status
    };
    assert_eq!(set_up("RTP/AVP;unicast;client_port=5000-5001"), 461);
    // What can be had first is taken.
    assert_eq!(
        set_up("RTP/AVP;unicast;client_port=5000-5001,RTP/AVP/TCP"),
        200
    );
}

#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
