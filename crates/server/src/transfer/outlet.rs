//! Where a transfer goes: a socket, to which the kernel moves bytes of the file itself, a
//! connection with TLS, for which the kernel does the same and seals them or they are read, sealed
//! and sent here, or a stream of HTTP/2, for which they are read.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use onrush_sys::path::cue::{Step, StepEnd, unacknowledged_bytes};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::mapping::{Destination, FileEnd, Mappings};
use super::stream_body::StreamBody;
use crate::byte_stream::ByteStream;
use crate::tls::stream::TlsStream;

/// Bytes that are read and sealed together for a connection with TLS: all that a connection holds
/// in memory for a client that takes nothing, and a few more for each record.
pub const TLS_SEALED_BYTES_MAX: usize = 64 << 10;

/// Where a transfer goes.
#[derive(Clone, Copy, Debug)]
pub struct Outlet<'a>(Kind<'a>);

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Plain(&'a TcpStream),
    Tls(&'a TlsStream),
    KernelTls(&'a TlsStream, &'a TcpStream),
    Stream(&'a StreamBody),
}

impl<'a> From<&'a TcpStream> for Outlet<'a> {
    fn from(socket: &'a TcpStream) -> Self {
        Self(Kind::Plain(socket))
    }
}

impl<'a> From<&'a ByteStream> for Outlet<'a> {
    fn from(stream: &'a ByteStream) -> Self {
        Self(match stream {
            ByteStream::Plain(socket) => Kind::Plain(socket),
            ByteStream::Tls(stream) => tls(stream),
        })
    }
}

/// A connection with TLS, as it stands.
fn tls(stream: &TlsStream) -> Kind<'_> {
    match stream.kernel_socket() {
        Some(socket) => Kind::KernelTls(stream, socket),
        None => Kind::Tls(stream),
    }
}

impl<'a> From<&'a StreamBody> for Outlet<'a> {
    fn from(stream: &'a StreamBody) -> Self {
        Self(Kind::Stream(stream))
    }
}

impl<'a> Outlet<'a> {
    /// Has the kernel seal a body of so many bytes, if it can and that is worth it. `None` if what
    /// was sealed before must have left first.
    pub(super) fn with_kernel(self, body_bytes: u64) -> io::Result<Option<Self>> {
        match self.0 {
            Kind::Tls(stream) if stream.may_ask_kernel(body_bytes) => {
                let is_asked = stream.try_ask_kernel(body_bytes)?;
                Ok(is_asked.then(|| Self(tls(stream))))
            }
            _ => Ok(Some(self)),
        }
    }

    /// Waits until something can be sent.
    pub(super) async fn writable(self) -> io::Result<()> {
        match self.0 {
            Kind::Plain(socket) | Kind::KernelTls(_, socket) => socket.writable().await,
            Kind::Tls(stream) => stream.socket().writable().await,
            Kind::Stream(stream) => stream.writable().await,
        }
    }

    /// Bytes that the peer has not acknowledged, if that says how this transfer goes on.
    pub(super) fn unacknowledged_bytes(self) -> u64 {
        match self.0 {
            Kind::Plain(socket) | Kind::KernelTls(_, socket) => {
                unacknowledged_bytes(socket.as_fd())
            }
            Kind::Tls(stream) => unacknowledged_bytes(stream.socket().as_fd()),
            Kind::Stream(_) => 0,
        }
    }

    /// Sends what waits to be sent. Whether nothing is left.
    pub(super) fn flush(self) -> io::Result<bool> {
        match self.0 {
            Kind::Plain(_) | Kind::Stream(_) => Ok(true),
            Kind::Tls(stream) | Kind::KernelTls(stream, _) => stream.try_flush(),
        }
    }

    /// Moves what the connection takes of these pieces of the file.
    pub(super) fn step(
        self,
        file: &Arc<File>,
        pieces: impl Iterator<Item = Range<u64>>,
        mappings: &Mappings,
    ) -> io::Result<Step> {
        match self.0 {
            Kind::Plain(socket) => moved(file, pieces, (Destination::plain(socket), mappings)),
            Kind::KernelTls(stream, socket) => {
                stream.check_kernel_key()?;
                let mut count = 0;
                let pieces = pieces.inspect(|_| count += 1);
                let step = moved(file, pieces, (Destination::sealed(socket), mappings))?;
                stream.has_sent_file(step.sent_bytes, count);
                Ok(step)
            }
            Kind::Tls(stream) => sealed(file, pieces, stream),
            Kind::Stream(stream) => stream.step(file, pieces),
        }
    }
}

/// A step that the kernel makes.
fn moved(
    file: &Arc<File>,
    pieces: impl Iterator<Item = Range<u64>>,
    (to, mappings): (Destination<'_>, &Mappings),
) -> io::Result<Step> {
    let mut stepped = None;
    let outcome = to.socket.try_io(Interest::WRITABLE, || {
        let step = step_over(file, pieces, (to, mappings))?;
        stepped = Some(step);
        match step.end {
            // The reactor must not take it for writable any longer; the edge will come.
            StepEnd::Full => Err(io::ErrorKind::WouldBlock.into()),
            StepEnd::Done | StepEnd::EndOfFile => Ok(()),
        }
    });
    match (stepped, outcome) {
        (Some(step), _) => Ok(step),
        // The reactor has not heard yet that it is writable.
        (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(Step::FULL),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => unreachable!("a step that went well was kept"),
    }
}

fn step_over(
    file: &Arc<File>,
    pieces: impl Iterator<Item = Range<u64>>,
    (to, mappings): (Destination<'_>, &Mappings),
) -> io::Result<Step> {
    let (mut all, mut end) = (Step::NOTHING, FileEnd::default());
    let mut pieces = pieces.peekable();
    while let Some(first) = pieces.next() {
        let stepped = mappings.step((file, &mut end), first, &mut pieces, to);
        let (step, bytes) = match stepped {
            Ok(stepped) => stepped,
            // It is met again by the next step.
            Err(_) if all.sent_bytes > 0 => break,
            Err(error) => return Err(error),
        };
        all.sent_bytes += step.sent_bytes;
        all.end = step.end;
        if step.sent_bytes < bytes || step.end == StepEnd::EndOfFile {
            break;
        }
    }
    if !end.is_still_beyond(file) {
        all.end = StepEnd::EndOfFile;
    }
    Ok(all)
}

fn sealed(
    file: &File,
    pieces: impl Iterator<Item = Range<u64>>,
    stream: &TlsStream,
) -> io::Result<Step> {
    thread_local! {
        static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; TLS_SEALED_BYTES_MAX].into());
    }
    READ.with_borrow_mut(|buffer| {
        let mut all = Step::NOTHING;
        for mut piece in pieces {
            while !piece.is_empty() {
                if !stream.try_flush()? {
                    return Ok(Step {
                        end: StepEnd::Full,
                        ..all
                    });
                }
                let left = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
                let most = left.min(buffer.len());
                let read = match file.read_at(&mut buffer[..most], piece.start) {
                    Ok(read) => read,
                    // It is met again by the next step.
                    Err(_) if all.sent_bytes > 0 => return Ok(all),
                    Err(error) => return Err(error),
                };
                if read == 0 {
                    return Ok(Step {
                        end: StepEnd::EndOfFile,
                        ..all
                    });
                }
                stream.try_send(&buffer[..read])?;
                all.sent_bytes += read as u64;
                piece.start += read as u64;
            }
        }
        // What is sealed counts as sent; a full socket is met before more is.
        Ok(all)
    })
}
