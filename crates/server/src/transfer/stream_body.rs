//! The body of an answer on a stream of HTTP/2 (RFC 9113, section 5): one of many on a connection.
//!
//! A stream takes no more than its client has room for, and than [`STREAM_BYTES_MAX`] that wait for
//! the connection: so a client that reads nothing holds no more memory.

use std::cell::RefCell;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use onrush_sys::path::cue::{Step, StepEnd};
use tokio::time::timeout;

use super::steps::{FULL, NOTHING};

/// Bytes of a stream that wait to be sent, at the most: what is read of a file at once.
pub const STREAM_BYTES_MAX: usize = 64 << 10;

/// The sending side of a stream.
#[derive(Debug)]
pub(crate) struct StreamBody(RefCell<SendStream<Bytes>>);

impl StreamBody {
    /// Of a stream whose head has been sent and whose end has not.
    pub(crate) fn new(stream: SendStream<Bytes>) -> Self {
        Self(RefCell::new(stream))
    }

    /// Says that nothing follows on what was sent.
    ///
    /// # Errors
    ///
    /// If the stream has ended otherwise.
    pub(crate) fn end(self) -> io::Result<()> {
        let mut stream = self.0.into_inner();
        stream.send_data(Bytes::new(), true).map_err(broken)
    }

    /// Ends the stream so that what was sent is not taken for a whole body.
    pub(crate) fn cut(self) {
        let mut stream = self.0.into_inner();
        stream.send_reset(h2::Reason::INTERNAL_ERROR);
    }

    /// Sends all of these bytes.
    ///
    /// # Errors
    ///
    /// If the stream or its connection has ended; `TimedOut` if the client takes nothing for
    /// `stall_time_max`.
    pub(crate) async fn send_all(
        &self,
        mut bytes: &[u8],
        stall_time_max: Duration,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            timeout(stall_time_max, self.writable()).await??;
            let taken = self.room().min(bytes.len());
            let (some, rest) = bytes.split_at(taken);
            self.push(Bytes::copy_from_slice(some))?;
            bytes = rest;
        }
        Ok(())
    }

    /// Waits until it takes something.
    pub(super) async fn writable(&self) -> io::Result<()> {
        poll_fn(|context| {
            let stream = &mut *self.0.borrow_mut();
            stream.reserve_capacity(STREAM_BYTES_MAX);
            loop {
                if stream.capacity() > 0 {
                    return std::task::Poll::Ready(Ok(()));
                }
                match std::task::ready!(stream.poll_capacity(context)) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return std::task::Poll::Ready(Err(broken(error))),
                    None => return std::task::Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                }
            }
        })
        .await
    }

    /// Moves what it takes of the first of these pieces of a file.
    pub(super) fn step(
        &self,
        file: &File,
        mut pieces: impl Iterator<Item = Range<u64>>,
    ) -> io::Result<Step> {
        let Some(piece) = pieces.next() else {
            return Ok(NOTHING);
        };
        let room = self.room();
        if room == 0 {
            return Ok(FULL);
        }
        let left = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
        let mut read = vec![0; left.min(room)];
        let sent = file.read_at(&mut read, piece.start)?;
        read.truncate(sent);
        if sent == 0 {
            let end = StepEnd::EndOfFile;
            return Ok(Step { end, ..NOTHING });
        }
        self.push(read.into())?;
        Ok(Step {
            sent_bytes: sent as u64,
            end: StepEnd::Done,
        })
    }

    fn room(&self) -> usize {
        self.0.borrow().capacity().min(STREAM_BYTES_MAX)
    }

    fn push(&self, bytes: Bytes) -> io::Result<()> {
        let stream = &mut *self.0.borrow_mut();
        stream.send_data(bytes, false).map_err(broken)
    }
}

/// The stream has ended, or its connection.
fn broken(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error
            .into_io()
            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()),
        false => io::Error::new(io::ErrorKind::BrokenPipe, error),
    }
}
