//! Bytes of our own to a socket: heads, pages, replies.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::byte_stream::ByteStream;
use crate::transfer::{Outlet, StreamBody};

/// Sends all of it. With `more` the kernel joins the last of it with what comes next, so that a
/// head does not travel alone.
///
/// # Errors
///
/// What the system says; `TimedOut` if the peer takes nothing for `stall_time_max`.
pub(crate) async fn send_all(
    socket: &TcpStream,
    mut bytes: &[u8],
    more: bool,
    stall_time_max: Duration,
) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    while !bytes.is_empty() {
        let send = || SockRef::from(socket).send_with_flags(bytes, flags);
        match socket.try_io(Interest::WRITABLE, send) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                timeout(stall_time_max, socket.writable()).await??;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// To a connection of its own, one answer after the other.
    Connection(&'a ByteStream),
    /// To a stream of a connection of HTTP/2.
    Stream(&'a StreamBody),
}

impl<'a> To<'a> {
    /// As [`send_all`]. On a connection with TLS what is sealed is one record, whatever follows.
    ///
    /// # Errors
    ///
    /// As [`send_all`].
    pub(crate) async fn send(
        self,
        bytes: &[u8],
        more: bool,
        stall_time_max: Duration,
    ) -> io::Result<()> {
        match self {
            Self::Connection(ByteStream::Plain(socket)) => {
                send_all(socket, bytes, more, stall_time_max).await
            }
            Self::Connection(ByteStream::Tls(stream)) => {
                stream.send_all(bytes, stall_time_max).await
            }
            Self::Stream(stream) => stream.send_all(bytes, stall_time_max).await,
        }
    }

    /// The same for transfers.
    pub(crate) fn outlet(self) -> Outlet<'a> {
        match self {
            Self::Connection(stream) => stream.into(),
            Self::Stream(stream) => stream.into(),
        }
    }

    /// The socket beneath, if it is for this answer alone.
    pub(crate) fn socket(self) -> Option<&'a TcpStream> {
        match self {
            Self::Connection(stream) => Some(stream.socket()),
            Self::Stream(_) => None,
        }
    }
}

/// Makes the end of a connection look like what it is: what is not sent yet never will be, and the
/// peer hears of a reset instead of an end.
pub(crate) fn abort(socket: &TcpStream) {
    // If it cannot be asked for, the peer sees a body that is too short, which says the same.
    drop(SockRef::from(socket).set_linger(Some(Duration::ZERO)));
}
