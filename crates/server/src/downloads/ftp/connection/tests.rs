//! Tests of [`super`].

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;
use crate::downloads::Downloads;
use crate::downloads::admission::Protocol;
use crate::downloads::testing::site;

/// Bounds every wait; never a measure.
const LONG: Duration = Duration::from_secs(120);

/// A control connection, and its client's end.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Sends until nothing more is taken; how many bytes.
async fn fill(socket: &TcpStream) -> usize {
    let mut bytes = 0;
    let quiet = Duration::from_millis(200);
    while timeout(quiet, socket.writable()).await.is_ok() {
        bytes += socket.try_write(&[b'x'; 1 << 16]).unwrap_or(0);
    }
    bytes
}

fn slot(site: &Rc<Site>) -> ConnectionSlot {
    ConnectionSlot::take(site, Protocol::Ftp, [127, 0, 0, 1].into()).unwrap()
}

fn connection<'a>(
    site: &'a Rc<Site>,
    place: &'a ConnectionSlot,
    socket: TcpStream,
) -> Connection<'a> {
    let local = socket.local_addr().unwrap();
    Connection {
        site,
        tls: None,
        socket: ByteStream::Plain(socket),
        peer: local.ip(),
        local,
        policy: Policy::default(),
        place,
        lines: Lines::default(),
        received: Vec::new(),
        session: Session::new(local.ip(), false),
        login: Login::Nobody,
        secret: None,
        data: Data::Unknown,
    }
}

/// It may be its turn, for which all other transfers wait.
#[tokio::test]
async fn a_transfer_goes_on_beside_a_reply_that_is_not_read() {
    let (site, _root) = site(Downloads::default());
    let (near, mut client) = pair().await;
    let filled = fill(&near).await;
    client.write_all(b"NOOP\r\n").await.unwrap();
    near.readable().await.unwrap();
    let slot = slot(&site);
    let mut connection = connection(&site, &slot, near);
    let (moved, has_moved) = oneshot::channel();
    let moving = async {
        yield_now().await;
        moved.send(()).unwrap();
        Outcome::Done
    };
    let reading = async {
        has_moved.await.expect("it goes on while nobody reads");
        let reply = Reply::new(200, "still at it").to_bytes();
        let mut read = vec![0; filled + reply.len()];
        client.read_exact(&mut read).await.unwrap();
        assert!(read.ends_with(&reply));
    };
    let control = Control::default();
    let transfer = connection.beside_commands(moving, &control);
    let both = async { tokio::join!(transfer, reading) };
    let (outcome, ()) = timeout(LONG, both).await.expect("it takes too long");
    assert!(matches!(outcome, Ok(Outcome::Done)));
}

/// Otherwise all of it would be read first, and its end taken for the client's.
#[tokio::test]
async fn a_transfer_goes_on_beside_a_flood_of_commands() {
    let (site, _root) = site(Downloads::default());
    let (near, mut client) = pair().await;
    let commands = "NOOP\r\n".repeat(1000);
    client.write_all(commands.as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    near.readable().await.unwrap();
    let slot = slot(&site);
    let mut connection = connection(&site, &slot, near);
    let control = Control::default();
    let transfer = connection.beside_commands(async { Outcome::Done }, &control);
    let outcome = timeout(LONG, transfer).await.expect("it takes too long");
    assert!(matches!(outcome, Ok(Outcome::Done)));
}
