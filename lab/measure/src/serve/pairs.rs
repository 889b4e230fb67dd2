//! The two ends of each session: what a contestant sends to, and what is received there.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use onrush_testkit::testbed::{RCV_IPV4, SND_IPV4, Testbed};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConnection, ServerConfig, ServerConnection};

use super::receiver::ReceivingEnd;
use crate::tls_peer;

/// The name that the certificate of an experiment has.
const NAME: &str = "localhost";

/// A sending end, and the keys of its connection.
pub(super) type SealedEnd = (TcpStream, ServerConnection);

/// Datagram sockets in the sending namespace, each connected to a port of the receiving one.
pub(super) fn datagrams(
    testbed: &Testbed,
    count: u32,
    port_first: u16,
) -> io::Result<Vec<UdpSocket>> {
    testbed.snd.run(|| {
        let sockets = (0..count).map(|number| {
            let number = u16::try_from(number).expect("checked against SESSIONS_MAX");
            let socket = UdpSocket::bind((SND_IPV4, 0))?;
            socket.connect((RCV_IPV4, port_first + number))?;
            Ok(socket)
        });
        sockets.collect()
    })
}

/// Connections between the two namespaces: the sending ends, and the others.
pub(super) fn connections(
    testbed: &Testbed,
    count: u32,
) -> io::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let listener = testbed.rcv.run(|| TcpListener::bind((RCV_IPV4, 0)))?;
    let to = listener.local_addr()?;
    let connect = || (0..count).map(|_| Ok((TcpStream::connect(to)?, listener.accept()?.0)));
    let pairs: io::Result<Vec<_>> = testbed.snd.run(|| connect().collect());
    Ok(pairs?.into_iter().unzip())
}

/// Ends that nothing seals.
pub(super) fn plain(ends: Vec<TcpStream>) -> Vec<ReceivingEnd> {
    let ends = ends.into_iter();
    ends.map(|socket| ReceivingEnd { socket, tls: None })
        .collect()
}

/// Both ends of each connection, with keys for it. The handshake takes place in memory, so that the
/// connections carry packets alone.
pub(super) fn sealed(
    (sending, receiving): (Vec<TcpStream>, Vec<TcpStream>),
) -> io::Result<(Vec<SealedEnd>, Vec<ReceivingEnd>)> {
    let (server, client) = (server_config()?, tls_peer::client_config()?);
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let mut both = Vec::with_capacity(sending.len());
    for (sender, socket) in sending.into_iter().zip(receiving) {
        let made = ServerConnection::new(Arc::clone(&server));
        let mut server = made.map_err(io::Error::other)?;
        let made = ClientConnection::new(Arc::clone(&client), name.clone());
        let mut client = made.map_err(io::Error::other)?;
        shake_hands(&mut server, &mut client)?;
        let tls = Some(client);
        both.push(((sender, server), ReceivingEnd { socket, tls }));
    }
    Ok(both.into_iter().unzip())
}

fn shake_hands(server: &mut ServerConnection, client: &mut ClientConnection) -> io::Result<()> {
    while server.is_handshaking() || client.is_handshaking() || server.wants_write() {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_tls(&mut up)?;
        }
        let mut up = &up[..];
        while !up.is_empty() {
            server.read_tls(&mut up)?;
            server.process_new_packets().map_err(io::Error::other)?;
        }
        while server.wants_write() {
            server.write_tls(&mut down)?;
        }
        tls_peer::open(client, &down, &mut Vec::new())?;
    }
    Ok(())
}

fn server_config() -> io::Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]);
    let rcgen::CertifiedKey { cert, signing_key } = made.map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(io::Error::other)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = builder.with_no_client_auth();
    let mut config = builder
        .with_single_cert(vec![cert.der().clone()], key)
        .map_err(io::Error::other)?;
    config.enable_secret_extraction = true;
    // They would come behind the handshake.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
