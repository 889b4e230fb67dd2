//! A service for tests: answers requests of HTTP, or HTTPS with a certificate of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Serves, and tells each request that came whole: one with JSON, or without content.
pub(super) fn serve(
    tls: Option<Arc<ServerConfig>>,
    answer: impl Fn(usize) -> String + Send + 'static,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (came, receiver) = channel();
    thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            let socket = socket.unwrap();
            let answer = answer(number);
            // Known before it is answered: who has the answer may count what came.
            let heard = |request| came.send(request).is_ok();
            let is_wanted = match &tls {
                None => exchange(socket, &answer, heard),
                Some(config) => {
                    let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                    exchange(StreamOwned::new(connection, socket), &answer, heard)
                }
            };
            // A client that trusts nobody leaves in the middle; a test that is done hears nothing.
            if is_wanted == Some(false) {
                return;
            }
        }
    });
    (address, receiver)
}

fn exchange(
    mut stream: impl Read + Write,
    answer: &str,
    heard: impl FnOnce(String) -> bool,
) -> Option<bool> {
    let mut text = Vec::new();
    let is_whole = |text: &[u8]| text.ends_with(b"}") || text.ends_with(b"\r\n\r\n");
    while !is_whole(&text) || text.starts_with(b"POST") && !text.ends_with(b"}") {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => text.extend(&bytes[..read]),
            _ => return None,
        }
    }
    let is_wanted = heard(String::from_utf8(text).unwrap());
    stream.write_all(answer.as_bytes()).ok()?;
    stream.flush().ok()?;
    Some(is_wanted)
}

/// A certificate for this machine, which is written to `file`.
pub(super) fn certificate(file: &Path) -> Arc<ServerConfig> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let own = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(file, own.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(own.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key);
    Arc::new(config.unwrap())
}

/// An answer that carries this.
pub(super) fn answer(status: &str, body: &str) -> String {
    let bytes = body.len();
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n{body}")
}
