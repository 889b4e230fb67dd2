//! Bytes of our own to a socket: heads, pages, replies.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::Duration;

use onrush_sys::path::cue::{self, StepEnd};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::byte_stream::ByteStream;
use crate::transfer::{Outlet, STEP_BYTES_MAX, StreamBody};

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
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                timeout(stall_time_max, socket.writable()).await??;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends a head and its body, by one call where the socket takes both.
///
/// # Errors
///
/// As [`send_all`].
async fn send_both(
    socket: &TcpStream,
    head: &[u8],
    body: &[u8],
    stall_time_max: Duration,
) -> io::Result<()> {
    let pieces = [IoSlice::new(head), IoSlice::new(body)];
    let send = || SockRef::from(socket).send_vectored_with_flags(&pieces, libc::MSG_NOSIGNAL);
    let sent = match socket.try_io(Interest::WRITABLE, send) {
        Ok(sent) => sent,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
        Err(error) => return Err(error),
    };
    let of_head = sent.min(head.len());
    send_all(socket, &head[of_head..], true, stall_time_max).await?;
    send_all(socket, &body[sent - of_head..], false, stall_time_max).await
}

/// Sends a part of a file that is in memory, by `sendfile`.
///
/// # Errors
///
/// As [`send_all`]; `UnexpectedEof` if the file ends before.
async fn send_file(
    socket: &TcpStream,
    file: &File,
    part: Range<u64>,
    stall_time_max: Duration,
) -> io::Result<()> {
    let mut at = part.start;
    while at < part.end {
        let bytes = (part.end - at).min(STEP_BYTES_MAX);
        let mut end = StepEnd::Full;
        let moved = socket.try_io(Interest::WRITABLE, || {
            let step = cue::step(file.as_fd(), at, bytes, socket.as_fd())?;
            at += step.sent_bytes;
            end = step.end;
            match step.end {
                // The reactor must not take it for writable any longer; the edge will come.
                StepEnd::Full => Err(ErrorKind::WouldBlock.into()),
                StepEnd::Done | StepEnd::EndOfFile => Ok(()),
            }
        });
        match (moved, end) {
            (Ok(()), StepEnd::EndOfFile) => return Err(ErrorKind::UnexpectedEof.into()),
            // Whoever became ready meanwhile comes first.
            (Ok(()), _) if at < part.end => tokio::task::yield_now().await,
            (Ok(()), _) => {}
            (Err(error), _) if error.kind() == ErrorKind::WouldBlock => {
                timeout(stall_time_max, socket.writable()).await??;
            }
            (Err(error), _) => return Err(error),
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

    /// Sends a head and its body, as [`Self::send`] does one after the other.
    ///
    /// # Errors
    ///
    /// As [`send_all`].
    pub(crate) async fn send_both(
        self,
        head: &[u8],
        body: &[u8],
        stall_time_max: Duration,
    ) -> io::Result<()> {
        if let Some(socket) = self.plain() {
            return send_both(socket, head, body, stall_time_max).await;
        }
        self.send(head, true, stall_time_max).await?;
        self.send(body, false, stall_time_max).await
    }

    /// The socket beneath, if it is for this answer alone and nothing is sealed for it.
    pub(crate) fn plain(self) -> Option<&'a TcpStream> {
        match self {
            Self::Connection(ByteStream::Plain(socket)) => Some(socket),
            Self::Connection(ByteStream::Tls(_)) | Self::Stream(_) => None,
        }
    }

    /// Whether parts of files go to it without passing through memory of ours.
    pub(crate) fn takes_files(self) -> bool {
        match self {
            Self::Connection(ByteStream::Plain(_)) => true,
            Self::Connection(ByteStream::Tls(stream)) => stream.kernel_socket().is_some(),
            Self::Stream(_) => false,
        }
    }

    /// Has the kernel seal a body of so many bytes that comes next, if it is to be sealed and the
    /// kernel can.
    ///
    /// # Errors
    ///
    /// As [`send_all`].
    pub(crate) async fn ask_kernel(
        self,
        body_bytes: u64,
        stall_time_max: Duration,
    ) -> io::Result<()> {
        match self {
            Self::Connection(ByteStream::Tls(stream)) => {
                stream.ask_kernel(body_bytes, stall_time_max).await
            }
            Self::Connection(ByteStream::Plain(_)) | Self::Stream(_) => Ok(()),
        }
    }

    /// As [`send_file`], to what [`Self::takes_files`].
    ///
    /// # Errors
    ///
    /// As [`send_file`].
    pub(crate) async fn send_file(
        self,
        file: &File,
        part: Range<u64>,
        stall_time_max: Duration,
    ) -> io::Result<()> {
        let socket = self.socket().filter(|_| self.takes_files());
        let socket = socket.ok_or(ErrorKind::Unsupported)?;
        let bytes = part.end.saturating_sub(part.start);
        if let Self::Connection(ByteStream::Tls(stream)) = self {
            stream.check_kernel_key()?;
            stream.has_sent_file(bytes, bytes / STEP_BYTES_MAX);
            send_file(socket, file, part, stall_time_max).await?;
            return stream.flush(stall_time_max).await;
        }
        send_file(socket, file, part, stall_time_max).await
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
