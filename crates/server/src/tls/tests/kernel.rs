//! Whom the kernel is asked for, and what becomes of a connection whose key it does not take. They
//! hold on a kernel with TLS and on one without; that the former seals is tried by
//! `tests/kernels/run`.

use std::sync::atomic::Ordering;

use onrush_sys::kernel_tls::ciphers;
use tokio::sync::Semaphore;

use super::*;
use crate::tls::certificates::server_config;
use crate::tls::config::KernelTlsUse;
use crate::tls::handshake::{ALPN_HTTP2, shake};
use crate::tls::kernel::{KERNEL_TLS_BODY_BYTES_MIN, KernelTls, KernelTlsState};
use crate::tls::stats::TlsStats;

const LONG: u64 = KERNEL_TLS_BODY_BYTES_MIN + 1;

/// A connection of a server that takes its kernel for one with TLS.
async fn accepted(
    config: &TlsConfig,
    listener: &TcpListener,
    kernel: Option<Arc<KernelTls>>,
) -> TlsStream {
    let mut server = server_config(config, None).unwrap();
    server.alpn_protocols = vec![ALPN_HTTP2.to_vec(), b"http/1.1".to_vec()];
    let (socket, _) = listener.accept().await.unwrap();
    let turn = Semaphore::new(1);
    shake((Arc::new(server), kernel), socket, &turn)
        .await
        .unwrap()
}

fn counted(stats: &TlsStats) -> (u64, u64) {
    let [taken, refused] = [&stats.kernel, &stats.kernel_refused];
    (
        taken.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed),
    )
}

#[test]
fn bytes_come_whole_whether_the_kernel_takes_the_key_or_not() {
    let (_folder, config) = pairs(&["localhost"]);
    for (seed, &suite) in ALL_CIPHER_SUITES.iter().enumerate() {
        if format!("{suite:?}").contains("RSA") {
            continue; // The key is of another kind.
        }
        let stats = Arc::default();
        let kernel = KernelTls::new(&stats);
        block_on(async {
            let (listener, at) = listen().await;
            let client_config = client_config(&config, Some(suite));
            let client = client(
                client_config,
                (at, "localhost"),
                seed as u64,
                |mut client| {
                    client.flush().unwrap();
                    let mut all = Vec::new();
                    client.read_to_end(&mut all).unwrap();
                    all
                },
            );
            let mut stream = accepted(&config, &listener, Some(kernel)).await;
            stream.send_all(&pattern(300), FAR).await.unwrap();
            for _ in 0..2 {
                stream.ask_kernel(LONG, FAR).await.unwrap();
                stream.send_all(&pattern(1_000_000), FAR).await.unwrap();
            }
            assert!(!stream.is_key_due());
            stream.close_notify().await.unwrap();
            tokio::io::AsyncWriteExt::shutdown(stream.socket_mut())
                .await
                .unwrap();
            let expected = [pattern(300), pattern(1_000_000), pattern(1_000_000)].concat();
            assert!(client.join().unwrap() == expected, "{suite:?}");
            // Once for a connection, however often there is a reason.
            let expected = if ciphers().is_ok() { (1, 0) } else { (0, 1) };
            assert_eq!(counted(&stats), expected, "{suite:?}");
        });
    }
}

#[test]
fn the_kernel_is_asked_for_long_bodies_of_http_1_1_alone() {
    let (_folder, config) = pairs(&["localhost"]);
    let stats = Arc::default();
    for (kernel, alpn, bytes, is_asked) in [
        (true, &b"http/1.1"[..], LONG, true),
        (true, b"http/1.1", LONG - 1, false),
        (true, b"", LONG, true),
        (true, ALPN_HTTP2, LONG, false),
        // RTSP, and --ktls off.
        (false, b"", LONG, false),
    ] {
        block_on(async {
            let (listener, at) = listen().await;
            let mut client_config = client_config(&config, None);
            client_config
                .alpn_protocols
                .extend(Some(alpn.to_vec()).filter(|alpn| !alpn.is_empty()));
            let client = client(client_config, (at, "localhost"), 9, |mut client| {
                client.flush().unwrap();
                drop(client.read_to_end(&mut Vec::new()));
            });
            let kernel = kernel.then(|| KernelTls::new(&stats));
            let stream = accepted(&config, &listener, kernel).await;
            assert_eq!(stream.may_ask_kernel(bytes), is_asked, "{alpn:?}, {bytes}");
            drop(stream);
            client.join().unwrap();
        });
    }
}

/// A new key is told to the client in a record that the server seals.
#[test]
fn the_kernel_is_not_asked_while_a_new_key_is_due() {
    let (_folder, config) = pairs(&["localhost"]);
    let stats = Arc::default();
    block_on(async {
        let (listener, at) = listen().await;
        let client_config = client_config(&config, None);
        let client = client(client_config, (at, "localhost"), 4, |mut client| {
            client.flush().unwrap();
            // It asks for one of the server's, too.
            client.conn.refresh_traffic_keys().unwrap();
            client.write_all(b"x").unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        let kernel = Some(KernelTls::new(&stats));
        let mut stream = accepted(&config, &listener, kernel).await;
        let mut read = [0; 8];
        let read = loop {
            std::future::poll_fn(|context| stream.poll_read_ready(context))
                .await
                .unwrap();
            match stream.try_read(&mut read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => break read.unwrap(),
            }
        };
        assert_eq!(read, 1);
        assert!(!stream.may_ask_kernel(LONG));
        stream.send_all(b"a head", FAR).await.unwrap();
        assert!(stream.may_ask_kernel(LONG));
        stream.ask_kernel(LONG, FAR).await.unwrap();
        stream.send_all(b" and a body", FAR).await.unwrap();
        stream.close_notify().await.unwrap();
        drop(stream);
        assert_eq!(client.join().unwrap(), b"a head and a body");
    });
}

#[test]
fn a_server_says_who_encrypts() {
    let (_folder, mut config) = pairs(&["localhost"]);
    let state = |config: &TlsConfig| {
        let tls = Tls::open(config, None, Arc::default()).unwrap().unwrap();
        format!("{:?}", tls.kernel_state)
    };
    match ciphers() {
        Ok(_) => assert!(state(&config).starts_with("Used")),
        Err(_) => assert!(state(&config).starts_with("Refused(Refused { call: \"TCP_ULP\"")),
    }
    config.kernel = KernelTlsUse::Off;
    assert_eq!(state(&config), format!("{:?}", KernelTlsState::Off));
}
