//! A client's connection, plain or over TLS: bytes in and out, and nothing else of the difference.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use onrush_sys::path::cue::unacknowledged_bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::listening::{close, linger};
use crate::network::canonical;
use crate::tls::record::{NewKey, Sealer};
use crate::tls::stream::{Reattach, TlsStream};

/// A connection.
#[derive(Debug)]
pub(crate) enum ByteStream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// A connection that belongs to no thread's runtime.
pub(crate) struct Detached {
    socket: std::net::TcpStream,
    /// What makes one of TLS of it.
    tls: Option<Reattach>,
}

impl std::fmt::Debug for Detached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Detached of {:?}", self.socket)
    }
}

impl Detached {
    /// The connection, in the runtime of this thread.
    ///
    /// # Errors
    ///
    /// If that cannot wait for one more.
    pub(crate) fn attach(self) -> io::Result<ByteStream> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(match self.tls {
            None => ByteStream::Plain(socket),
            Some(reattach) => ByteStream::Tls(Box::new(reattach(socket))),
        })
    }
}

impl ByteStream {
    /// Takes it off the runtime of this thread, to go on in another's.
    ///
    /// # Errors
    ///
    /// If the runtime does not let go of it.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        let (socket, tls) = match self {
            Self::Plain(socket) => (socket, None),
            Self::Tls(stream) => {
                let (socket, reattach) = stream.detach();
                (socket, Some(reattach))
            }
        };
        let socket = socket.into_std()?;
        Ok(Detached { socket, tls })
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether client and server have agreed on HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_http2(),
        }
    }

    /// As [`tokio::io::AsyncWrite::poll_write`].
    pub(crate) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => std::pin::Pin::new(socket).poll_write(context, bytes),
            Self::Tls(stream) => stream.poll_write(context, bytes),
        }
    }

    /// As [`tokio::io::AsyncWrite::poll_flush`].
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => std::pin::Pin::new(socket).poll_flush(context),
            Self::Tls(stream) => stream.poll_flush(context),
        }
    }

    /// The socket beneath, for its options and its state.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// The address at this end. The kernel is asked each time: only some requests need it, and who
    /// watches keeps no memory for it.
    pub(crate) fn local(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        self.socket().local_addr().map_or(unknown, canonical)
    }

    /// The same as the server's name in a URL: the zone of a link-local address is nobody else's
    /// business (RFC 6874, section 4).
    pub(crate) fn local_in_url(&self) -> String {
        let local = self.local();
        SocketAddr::new(local.ip(), local.port()).to_string()
    }

    /// Whether a read may bring something.
    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_read_ready(context),
            Self::Tls(stream) => stream.poll_read_ready(context),
        }
    }

    /// Reads what is there; 0 at the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing is there; else why the connection must end.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read(into),
            Self::Tls(stream) => stream.try_read(into),
        }
    }

    /// Whether an end that was read is what the client meant: in the clear anybody may say so.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(stream) => stream.has_ended(),
        }
    }

    /// As [`AsyncRead::poll_read`].
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => std::pin::Pin::new(socket).poll_read(context, into),
            Self::Tls(stream) => stream.poll_read(context, into),
        }
    }

    /// Sends all of it, however long that takes; who calls it bounds that.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes).await,
            Self::Tls(stream) => stream.send_all(bytes, Duration::MAX).await,
        }
    }

    /// Takes the key to send with away, for an engine that sends on this connection from now on.
    pub(crate) fn take_sealer(&self) -> Option<Sealer> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.take_sealer(),
        }
    }

    /// Gives it back, if no engine sends on this connection after all.
    pub(crate) fn put_sealer_back(&self, sealer: Sealer) {
        if let Self::Tls(stream) = self {
            stream.put_sealer_back(sealer);
        }
    }

    /// Whether the client waits for a new key.
    pub(crate) fn is_key_asked_for(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_key_asked_for(),
        }
    }

    /// A key that whoever has the sealer is to go on with; `None` if there is none in this
    /// protocol.
    pub(crate) fn next_key(&self) -> Option<Box<NewKey>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => stream.next_key().ok(),
        }
    }

    /// Whether a body of so many bytes can be sent whole with the key that it has.
    pub(crate) fn can_seal(&self, body_bytes: u64) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(stream) => stream.can_seal(body_bytes),
        }
    }

    /// Whether it should end before another answer, for want of a new key.
    pub(crate) fn is_key_due(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_key_due(),
        }
    }

    /// Says that nothing more comes, and waits a moment for the client to say so, too; see
    /// [`close`].
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => close(socket).await,
            Self::Tls(stream) => {
                say_end(stream).await?;
                close(stream.socket_mut()).await
            }
        }
    }

    /// As [`Self::close`], where the client still sends what nobody wants; see [`linger`].
    pub(crate) async fn linger(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => linger(socket).await,
            Self::Tls(stream) => {
                say_end(stream).await?;
                linger(stream.socket_mut()).await
            }
        }
    }

    /// Says that nothing more comes, where only that makes what came a whole, and waits for nothing
    /// else: it is dropped next.
    ///
    /// # Errors
    ///
    /// What the system says; `TimedOut` if the peer takes nothing for `stall_time_max`: it has not
    /// heard that then.
    pub(crate) async fn end(&self, stall_time_max: Duration) -> io::Result<()> {
        let Self::Tls(stream) = self else {
            return Ok(());
        };
        let left_bytes = || unacknowledged_bytes(stream.socket().as_fd());
        let mut said = pin!(stream.close_notify());
        loop {
            let before_bytes = left_bytes();
            match timeout(stall_time_max, said.as_mut()).await {
                Ok(said) => return said,
                // On a slow line it is longer until the socket has room.
                Err(_) if left_bytes() < before_bytes => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn say_end(stream: &TlsStream) -> io::Result<()> {
    // A client that takes nothing any more misses it.
    let said = timeout(FAREWELL_TIME_MAX, stream.close_notify());
    said.await.unwrap_or(Ok(()))
}

/// How long a client may take for the last record.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);
