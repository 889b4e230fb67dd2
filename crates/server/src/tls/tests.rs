//! The server's side of TLS against rustls's client: whatever is written comes whole, however its
//! records are cut on the way.

mod kernel;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_wire::tls::TLS_IDLE_RECORDS_MAX;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedCipherSuite};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::acceptor::Tls;
use super::certificates::{fingerprint, read_pair, self_signed};
use super::config::{CertificateFiles, TlsConfig, TlsLimits};
use super::stream::TlsStream;
use crate::byte_stream::ByteStream;
use crate::testing::block_on;

/// A folder with a pair for each of these names.
fn pairs(names: &[&str]) -> (TempDir, TlsConfig) {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &&str| self_signed(&folder.path().join(name), &[(*name).to_owned()]).unwrap();
    let certificates = names.iter().map(of).collect();
    let config = TlsConfig {
        certificates,
        ..TlsConfig::default()
    };
    (folder, config)
}

/// A client that trusts these certificates, and speaks one suite if it is named.
fn client_config(tls: &TlsConfig, suite: Option<SupportedCipherSuite>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for files in &tls.certificates {
        let pem = CertificateDer::from_pem_file(&files.certificate).unwrap();
        roots.add(pem).unwrap();
    }
    let mut provider = default_provider();
    if let Some(suite) = suite {
        provider.cipher_suites = vec![suite];
    }
    client_builder(provider)
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn client_builder(
    provider: CryptoProvider,
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let versions: &[_] = match provider.cipher_suites.as_slice() {
        [SupportedCipherSuite::Tls12(_)] => &[&rustls::version::TLS12],
        [SupportedCipherSuite::Tls13(_)] => &[&rustls::version::TLS13],
        _ => rustls::DEFAULT_VERSIONS,
    };
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
}

/// A socket that sends what it is given a few bytes at a time.
struct Cut {
    socket: TcpStream,
    state: u64,
}

impl Read for Cut {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }
}

impl Write for Cut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Often a few bytes, sometimes more than a record.
        let most = match self.state >> 60 {
            0..8 => 1 + (self.state >> 40) as usize % 16,
            _ => 1 + (self.state >> 40) as usize % 40_000,
        };
        self.socket.write(&bytes[..bytes.len().min(most)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Client = StreamOwned<ClientConnection, Cut>;

/// A client that does `what` in a thread of its own.
fn client<T: Send + 'static>(
    config: ClientConfig,
    (to, name): (SocketAddr, &str),
    seed: u64,
    what: impl FnOnce(Client) -> T + Send + 'static,
) -> JoinHandle<T> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    thread::spawn(move || {
        let socket = TcpStream::connect(to).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        what(StreamOwned::new(
            connection,
            Cut {
                socket,
                state: seed,
            },
        ))
    })
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Reads all until the end.
async fn read_to_end(stream: &mut TlsStream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut some = [0; 1000];
    loop {
        std::future::poll_fn(|context| stream.poll_read_ready(context)).await?;
        match stream.try_read(&mut some) {
            Ok(0) => return Ok(all),
            Ok(bytes) => all.extend_from_slice(&some[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..=250).cycle().take(bytes).collect()
}

const FAR: Duration = Duration::from_secs(60);

#[test]
fn bytes_come_whole_by_every_suite_however_records_are_cut() {
    let (_folder, config) = pairs(&["localhost"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        for (seed, &suite) in ALL_CIPHER_SUITES.iter().enumerate() {
            if format!("{suite:?}").contains("RSA") {
                continue; // The key is of another kind.
            }
            let (listener, at) = listen().await;
            let config = client_config(&config, Some(suite));
            let client = client(config, (at, "localhost"), seed as u64, |mut client| {
                client.write_all(&pattern(100_000)).unwrap();
                // TLS 1.2 has no such thing.
                drop(client.conn.refresh_traffic_keys());
                client.write_all(&pattern(50_000)).unwrap();
                client.conn.send_close_notify();
                client.flush().unwrap();
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap();
                all
            });
            let (socket, peer) = listener.accept().await.unwrap();
            let mut stream = tls.accept(socket, peer).await.unwrap();
            let received = read_to_end(&mut stream).await.unwrap();
            assert_eq!(received[..100_000], pattern(100_000), "{suite:?}");
            assert_eq!(received[100_000..], pattern(50_000), "{suite:?}");

            // An engine that takes no connection more gives it back.
            let sealer = stream.take_sealer().unwrap();
            stream.put_sealer_back(sealer);
            stream.send_all(&pattern(70_000), FAR).await.unwrap();
            // As an engine does: several pieces, longer than a record.
            let mut sealer = stream.take_sealer().unwrap();
            let pieces = [&pattern(12)[..], &pattern(20_000), &[], &pattern(7)];
            let mut sealed = sealer.seal(&pieces).unwrap();
            if let Ok(key) = stream.next_key() {
                sealed.extend(sealer.change_key(*key).unwrap());
            }
            sealed.extend(sealer.seal(&[b"last"]).unwrap());
            sealed.extend(sealer.close_notify().unwrap());
            let mut socket = stream.socket_mut();
            tokio::io::AsyncWriteExt::write_all(&mut socket, &sealed)
                .await
                .unwrap();
            tokio::io::AsyncWriteExt::shutdown(&mut socket)
                .await
                .unwrap();
            let expected = [&pattern(70_000), &pieces.concat(), &b"last"[..]].concat();
            assert!(client.join().unwrap() == expected, "{suite:?}");
        }
    });
}

/// On a data connection of FTP nothing else says that the file ends there. The other connections
/// end after a second of that.
#[test]
fn an_end_is_said_to_a_client_that_takes_nothing_for_a_while() {
    let (_folder, config) = pairs(&["localhost"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        let (listener, at) = listen().await;
        let config = client_config(&config, None);
        let client = client(config, (at, "localhost"), 7, |mut client| {
            client.flush().unwrap();
            thread::sleep(Duration::from_millis(1500));
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all)
        });
        let (socket, peer) = listener.accept().await.unwrap();
        let stream = tls.accept_data(socket, peer).await.unwrap();
        let (piece, mut pieces) = (pattern(50_000), 0);
        while stream.try_flush().unwrap() {
            stream.try_send(&piece).unwrap();
            pieces += 1;
        }
        let stream = ByteStream::Tls(Box::new(stream));
        stream.end(FAR).await.unwrap();
        drop(stream);
        let received = client.join().unwrap().unwrap();
        assert!(received == piece.repeat(pieces));
    });
}

/// Whatever is changed on the way, nothing of it is taken for data.
#[test]
fn a_record_with_any_byte_changed_is_refused() {
    let (_folder, config) = pairs(&["localhost"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    let of_ecdsa = |suite: &&SupportedCipherSuite| format!("{suite:?}").contains("ECDSA");
    let suites = [ALL_CIPHER_SUITES.iter().find(of_ecdsa).copied(), None];
    for suite in suites {
        for changed in 0..64 {
            block_on(async {
                let (listener, at) = listen().await;
                let config = client_config(&config, suite);
                let client = client(config, (at, "localhost"), 6, move |mut client| {
                    client.flush().unwrap();
                    client
                        .conn
                        .writer()
                        .write_all(b"a secret of some length")
                        .unwrap();
                    let mut record = Vec::new();
                    client.conn.write_tls(&mut record).unwrap();
                    if let Some(byte) = record.get_mut(changed) {
                        *byte ^= 1;
                    }
                    // The server may have hung up.
                    let socket = &mut client.sock.socket;
                    drop(socket.write_all(&record));
                    drop(socket.shutdown(std::net::Shutdown::Write));
                    drop(socket.read_to_end(&mut Vec::new()));
                    // Of a header the version is looked at by nobody (RFC 8446, section 5.1).
                    record.len() <= changed || [1, 2].contains(&changed)
                });
                let (socket, peer) = listener.accept().await.unwrap();
                let mut stream = tls.accept(socket, peer).await.unwrap();
                let read = read_to_end(&mut stream).await;
                drop(stream);
                let is_unchanged = client.join().unwrap();
                match read {
                    Ok(data) => assert_eq!(!data.is_empty(), is_unchanged, "{changed}: {data:?}"),
                    Err(error) => assert!(!is_unchanged, "{changed}: {error}"),
                }
            });
        }
    }
}

/// A client that was told of one new key opens nothing that the next one after it has sealed.
#[test]
fn several_wishes_for_a_new_key_have_one_answer() {
    let (_folder, config) = pairs(&["localhost"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        let (listener, at) = listen().await;
        let config = client_config(&config, None);
        let client = client(config, (at, "localhost"), 7, |mut client| {
            client.flush().unwrap();
            client.conn.refresh_traffic_keys().unwrap();
            client.conn.refresh_traffic_keys().unwrap();
            client.write_all(b"data").unwrap();
            client.conn.send_close_notify();
            client.flush().unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        let (socket, peer) = listener.accept().await.unwrap();
        let mut stream = tls.accept(socket, peer).await.unwrap();
        // An engine sends.
        let mut sealer = stream.take_sealer().unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"data");
        assert!(stream.is_key_asked_for());
        let key = stream.next_key().unwrap();
        assert!(!stream.is_key_asked_for());
        let mut sealed = sealer.change_key(*key).unwrap();
        sealed.extend(sealer.seal(&[b"by the new key"]).unwrap());
        sealed.extend(sealer.close_notify().unwrap());
        let mut socket = stream.socket_mut();
        tokio::io::AsyncWriteExt::write_all(&mut socket, &sealed)
            .await
            .unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut socket)
            .await
            .unwrap();
        assert_eq!(client.join().unwrap(), b"by the new key");
    });
}

#[test]
fn records_without_data_are_bounded() {
    let (_folder, config) = pairs(&["localhost"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    for more in [0, 1] {
        block_on(async {
            let (listener, at) = listen().await;
            let config = client_config(&config, None);
            let client = client(config, (at, "localhost"), 2, move |mut client| {
                client.flush().unwrap();
                for _ in 0..TLS_IDLE_RECORDS_MAX - 1 + more {
                    client.conn.refresh_traffic_keys().unwrap();
                    client.conn.write_tls(&mut client.sock).unwrap();
                    while client.conn.wants_write() {
                        client.conn.write_tls(&mut client.sock).unwrap();
                    }
                }
                client.conn.send_close_notify();
                // The server may be gone. What is not read would reset the connection.
                drop(client.flush());
                drop(client.sock.socket.read_to_end(&mut Vec::new()));
            });
            let (socket, peer) = listener.accept().await.unwrap();
            let mut stream = tls.accept(socket, peer).await.unwrap();
            assert_eq!(read_to_end(&mut stream).await.is_ok(), more == 0);
            drop(stream);
            client.join().unwrap();
        });
    }
}

#[test]
fn a_client_gets_the_certificate_of_the_name_it_asks_for() {
    let (_folder, config) = pairs(&["one.example", "two.example"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        for (asked, index) in [("one.example", 0), ("two.example", 1), ("TWO.example", 1)] {
            let (listener, at) = listen().await;
            let client = client(
                client_config(&config, None),
                (at, asked),
                3,
                |mut client| {
                    client.flush().unwrap();
                    client.conn.peer_certificates().unwrap()[0].to_vec()
                },
            );
            let (socket, peer) = listener.accept().await.unwrap();
            assert!(tls.accept(socket, peer).await.is_some());
            let expected = CertificateDer::from_pem_file(&config.certificates[index].certificate);
            assert_eq!(
                client.join().unwrap(),
                expected.unwrap().to_vec(),
                "{asked}"
            );
        }
    });
}

/// What the first bytes that are not TLS are answered with.
#[test]
fn plain_bytes_get_an_alert_and_no_connection() {
    let (_folder, config) = pairs(&["localhost"]);
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        for said in [
            &b"OPTIONS * RTSP/1.0\r\n\r\n"[..],
            b"\x16HTTP",
            b"\0",
            b"\x80\x2e\x01",
        ] {
            let (listener, at) = listen().await;
            let mut client = TcpStream::connect(at).unwrap();
            client.write_all(said).unwrap();
            let (socket, peer) = listener.accept().await.unwrap();
            assert!(tls.accept(socket, peer).await.is_none());
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            // The reset of what was not read may overtake the alert.
            drop(client.read_to_end(&mut answer));
            assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
        }
    });
    assert_eq!(
        tls.stats.failed.load(std::sync::atomic::Ordering::Relaxed),
        4
    );
}

/// Of clients at these addresses that say half of a ClientHello at once: those that were refused,
/// those that failed, and those that are left.
fn half_said(tls_handshakes_max: usize, peers: &[&str]) -> [u64; 3] {
    let (_folder, mut config) = pairs(&["localhost"]);
    config.limits = TlsLimits {
        tls_handshakes_max,
        tls_handshakes_per_address_max: 2,
        tls_handshake_time_max: Duration::from_millis(300),
    };
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        let (listener, at) = listen().await;
        let mut silent = Vec::new();
        let mut accepted = Vec::new();
        for _ in peers {
            let mut client = TcpStream::connect(at).unwrap();
            // The beginning of a ClientHello, whose rest never comes.
            client
                .write_all(b"\x16\x03\x01\x02\0\x01\0\x01\xfc")
                .unwrap();
            silent.push(client);
            accepted.push(listener.accept().await.unwrap().0);
        }
        let mut shaken = tokio::task::JoinSet::new();
        let tls = Arc::new(tls);
        for (socket, peer) in accepted.into_iter().zip(peers) {
            let tls = Arc::clone(&tls);
            let peer = peer.parse().unwrap();
            shaken.spawn(async move { tls.accept(socket, peer).await.is_none() });
        }
        while let Some(none) = shaken.join_next().await {
            assert!(none.unwrap());
        }
        let stats = &tls.stats;
        let counted = [&stats.refused, &stats.failed, &stats.in_progress];
        counted.map(|it| it.load(std::sync::atomic::Ordering::Relaxed))
    })
}

// SPECIFICATION.md: 25
#[test]
fn handshakes_are_bounded_in_number_and_time() {
    // Two of the first address, and one of the second.
    let peers = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:1"];
    assert_eq!(half_said(3, &peers), [1, 3, 0]);
    // One client has all addresses of its network.
    let peers = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"];
    assert_eq!(half_said(3, &peers), [1, 2, 0]);
}

// SPECIFICATION.md: 58
#[test]
fn a_changed_pair_is_shown_and_a_bad_one_is_not() {
    let (folder, config) = pairs(&["localhost"]);
    let other = self_signed(&folder.path().join("other"), &["localhost".to_owned()]).unwrap();
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    let shown = || {
        let trusted = TlsConfig {
            certificates: vec![other.clone(), config.certificates[0].clone()],
            ..TlsConfig::default()
        };
        let mut client_config = client_config(&trusted, None);
        client_config
            .dangerous()
            .set_certificate_verifier(Arc::new(Trusting));
        block_on(async {
            let (listener, at) = listen().await;
            let client = client(client_config, (at, "localhost"), 4, |mut client| {
                client.flush().unwrap();
                client.conn.peer_certificates().unwrap()[0].to_vec()
            });
            let (socket, peer) = listener.accept().await.unwrap();
            assert!(tls.accept(socket, peer).await.is_some());
            client.join().unwrap()
        })
    };
    let before = shown();
    let CertificateFiles { certificate, key } = &config.certificates[0];
    // A certificate without its key: what was shown stays.
    fs::copy(&other.certificate, certificate).unwrap();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(shown(), before);
    fs::copy(&other.key, key).unwrap();
    let after = CertificateDer::from_pem_file(&other.certificate).unwrap();
    let give_up = std::time::Instant::now() + FAR;
    while shown() != after.as_ref() {
        assert!(
            std::time::Instant::now() < give_up,
            "it is never read again"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn other_certificates_are_installed_or_nothing_changes() {
    let (folder, config) = pairs(&["localhost"]);
    let other = self_signed(&folder.path().join("other"), &["localhost".to_owned()]).unwrap();
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    let mixed = TlsConfig {
        certificates: vec![CertificateFiles {
            certificate: other.certificate.clone(),
            key: config.certificates[0].key.clone(),
        }],
        ..TlsConfig::default()
    };
    assert!(tls.prepare(&mixed).is_err(), "it is another's key");
    let others = TlsConfig {
        certificates: vec![other.clone()],
        ..TlsConfig::default()
    };
    let prepared = tls.prepare(&others).unwrap();
    tls.install(prepared);
    let trusted = client_config(&others, None);
    block_on(async {
        let (listener, at) = listen().await;
        let client = client(trusted, (at, "localhost"), 4, |mut client| {
            client.flush().unwrap()
        });
        let (socket, peer) = listener.accept().await.unwrap();
        assert!(tls.accept(socket, peer).await.is_some());
        client.join().unwrap();
    });
}

#[test]
fn a_pair_of_our_own_is_made_once_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let files = self_signed(folder.path(), &names).unwrap();
    let print = || fingerprint(&read_pair(&files).unwrap().cert[0]);
    let first = print();
    assert_eq!(first.len(), 32 * 3 - 1);
    let mode = fs::metadata(&files.key).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o600);
    assert_eq!(self_signed(folder.path(), &names).unwrap(), files);
    assert_eq!(print(), first);
    // What is broken is made again.
    fs::write(&files.key, "no key").unwrap();
    self_signed(folder.path(), &names).unwrap();
    assert_ne!(print(), first);
    // Without a folder it lives as long as the server.
    let config = TlsConfig {
        self_signed: Some(names.to_vec()),
        ..TlsConfig::default()
    };
    let in_folder = Tls::open(&config, Some(folder.path()), Arc::default())
        .unwrap()
        .unwrap();
    assert_eq!(in_folder.fingerprint, Some(print()));
    let in_memory = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    assert_ne!(in_memory.fingerprint, in_folder.fingerprint);
}

#[test]
fn a_client_without_a_certificate_is_refused_if_asked_for_one() {
    let (_folder, mut config) = pairs(&["localhost"]);
    config.client_ca = Some(config.certificates[0].certificate.clone());
    let tls = Tls::open(&config, None, Arc::default()).unwrap().unwrap();
    block_on(async {
        let (listener, at) = listen().await;
        let client = client(
            client_config(&config, None),
            (at, "localhost"),
            5,
            |mut client| {
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap_err().to_string()
            },
        );
        let (socket, peer) = listener.accept().await.unwrap();
        assert!(tls.accept(socket, peer).await.is_none());
        let said = client.join().unwrap();
        assert!(said.contains("CertificateRequired"), "{said}");
    });
}

/// Whoever it is.
#[derive(Debug)]
struct Trusting;

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
