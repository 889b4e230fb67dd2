//! The handshake of one connection, from its first byte to keys for both directions.
//!
//! rustls reads one record at a time of what has come, so that what follows the handshake stays
//! here for the [`TlsStream`]. The arithmetic is done on another thread: a flood of handshakes
//! takes processors, but not the one thread that answers everybody.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::tls::{is_record, record_bytes};
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::kernel::KernelTls;
use super::record::{Opener, Sealer};
use super::stream::TlsStream;

/// Bytes of a handshake that are waited for together, at most: more is refused.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// How long a peer that cannot be served may take nothing of the reason.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// HTTP/2, as ALPN names it (RFC 9113, section 3.2).
pub(super) const ALPN_HTTP2: &[u8] = b"h2";

/// A connection on its way to keys.
struct Handshake {
    connection: UnbufferedServerConnection,
    received: Vec<u8>,
    /// What of it rustls has seen: whole records.
    shown: usize,
    /// To be sent.
    answer: Vec<u8>,
}

/// What is to be done next.
enum Next {
    /// There is no more to decide without more of the peer's bytes.
    Receive,
    Done,
    /// It has failed; the answer says so to the peer.
    Failed(io::Error),
}

/// Carries out a handshake. `turn` bounds how many are reckoned at one time. The kernel, if it is
/// given, may be asked to encrypt what is sent later.
///
/// # Errors
///
/// Why there is no connection. The peer has been told, if it could be.
pub(super) async fn shake(
    (config, kernel): (Arc<ServerConfig>, Option<Arc<KernelTls>>),
    mut socket: TcpStream,
    turn: &Semaphore,
) -> io::Result<TlsStream> {
    let connection = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
    let mut handshake = Handshake {
        connection,
        received: Vec::new(),
        shown: 0,
        answer: Vec::new(),
    };
    loop {
        receive_record(&socket, &mut handshake).await?;
        let turn = turn.acquire().await.map_err(io::Error::other)?;
        let reckoned = spawn_blocking(move || {
            let next = handshake.advance();
            (handshake, next)
        });
        let next;
        (handshake, next) = reckoned.await.map_err(io::Error::other)?;
        drop(turn);
        let answer = mem::take(&mut handshake.answer);
        match next {
            Next::Receive => socket.write_all(&answer).await?,
            Next::Done => {
                socket.write_all(&answer).await?;
                return handshake.into_stream(socket, kernel);
            }
            Next::Failed(error) => {
                let told = timeout(FAREWELL_TIME_MAX, farewell(&mut socket, &answer)).await;
                // Whether it is heard is the peer's business.
                drop(told);
                return Err(error);
            }
        }
    }
}

/// Waits for the next record.
async fn receive_record(socket: &TcpStream, handshake: &mut Handshake) -> io::Result<()> {
    loop {
        let rest = &handshake.received[handshake.shown..];
        if !rest.is_empty() && !is_record(rest) {
            // An alert of whoever speaks no TLS would be the first byte of a text.
            drop(socket.try_write(&PLAIN_ALERT));
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it speaks no TLS",
            ));
        }
        match record_bytes(rest) {
            Ok(Some(bytes)) if bytes <= rest.len() => {
                handshake.shown += bytes;
                return Ok(());
            }
            Ok(_) => {}
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
        if handshake.received.len() > HANDSHAKE_BYTES_MAX {
            let what = "its handshake is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        socket.readable().await?;
        let mut bytes = [0; 4096];
        match socket.try_read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => handshake.received.extend_from_slice(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// A fatal alert, `protocol_version`, as a record without a key.
const PLAIN_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

async fn farewell(socket: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    socket.write_all(answer).await?;
    crate::listening::close(socket).await
}

impl Handshake {
    /// Goes on as far as what has come allows.
    fn advance(&mut self) -> Next {
        let mut failed = None;
        loop {
            let shown = &mut self.received[..self.shown];
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(shown);
            let (mut is_blocked, mut is_ready) = (false, false);
            match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let at = self.answer.len();
                    let mut encoded = data.encode(&mut []);
                    if let Err(EncodeError::InsufficientSize(size)) = encoded {
                        self.answer.resize(at + size.required_size, 0);
                        encoded = data.encode(&mut self.answer[at..]);
                    }
                    if let Err(error) = encoded {
                        failed.get_or_insert_with(|| io::Error::other(error));
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(_)) => is_ready = true,
                Ok(ConnectionState::BlockedHandshake) => is_blocked = true,
                Ok(_) => {
                    failed.get_or_insert_with(|| io::ErrorKind::ConnectionAborted.into());
                    is_blocked = true;
                }
                // What it has to say about that comes after it.
                Err(error) => {
                    is_blocked = failed.is_some();
                    failed.get_or_insert_with(|| io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
            drop(self.received.drain(..discard));
            self.shown -= discard;
            match failed.take_if(|_| is_blocked || is_ready) {
                Some(error) => return Next::Failed(error),
                None if is_ready && !self.connection.is_handshaking() => return Next::Done,
                None if is_ready || is_blocked => return Next::Receive,
                None => {}
            }
        }
    }

    fn into_stream(
        self,
        socket: TcpStream,
        kernel: Option<Arc<KernelTls>>,
    ) -> io::Result<TlsStream> {
        let is_http2 = self.connection.alpn_protocol() == Some(ALPN_HTTP2);
        // Its frames are made of what is read here anyway.
        let kernel = kernel.filter(|_| !is_http2);
        let (secrets, keys) = self
            .connection
            .dangerous_into_kernel_connection()
            .map_err(io::Error::other)?;
        let suite = keys.negotiated_cipher_suite();
        let opener = Opener::new(suite, secrets.rx)?;
        let sealer = Sealer::new(suite, secrets.tx, kernel.is_some())?;
        let mut stream = TlsStream::new(socket, (opener, sealer), keys, self.received);
        stream.may_use(kernel);
        stream.is_http2 = is_http2;
        Ok(stream)
    }
}
