//! The body of an answer on a stream of HTTP/2 (RFC 9113, section 5): one of many on a connection.
//!
//! A stream takes no more than its client has room for, and than [`STREAM_BYTES_MAX`] that wait for
//! the connection; all streams of a connection together no more than [`STREAMS_BYTES_MAX`]
//! ([`StreamBudget`]): so a client that reads nothing holds no more memory, whatever its windows
//! allow and however many streams it has.

use std::cell::RefCell;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use onrush_sys::path::cue::{Step, StepEnd};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of a stream that wait to be sent, at the most: what is read of a file at once.
pub const STREAM_BYTES_MAX: usize = 64 << 10;

/// Bytes of all streams of a connection that wait to be sent, at the most.
pub const STREAMS_BYTES_MAX: usize = 256 << 10;

/// What a stream waits for when nothing is left of its connection's budget: a frame, so that many
/// streams on a slow line have their turns soon.
const SHARE_BYTES: u32 = 16 << 10;

/// What all streams of a connection may still have waiting to be sent: one permit for each byte.
/// The bytes carry their permits, which are free when the last of them is in the socket.
#[derive(Clone, Debug)]
pub(crate) struct StreamBudget(Arc<Semaphore>);

impl Default for StreamBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS_BYTES_MAX)))
    }
}

/// Bytes that wait to be sent.
struct Charged {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The sending side of a stream.
#[derive(Debug)]
pub(crate) struct StreamBody {
    stream: RefCell<SendStream<Bytes>>,
    budget: StreamBudget,
    /// What was waited for of the budget, and not used yet.
    share: RefCell<Option<OwnedSemaphorePermit>>,
}

impl StreamBody {
    /// Of a stream whose head has been sent and whose end has not, on the connection that has this
    /// budget.
    pub(crate) fn new(stream: SendStream<Bytes>, budget: &StreamBudget) -> Self {
        Self {
            stream: RefCell::new(stream),
            budget: budget.clone(),
            share: RefCell::default(),
        }
    }

    /// Says that nothing follows on what was sent.
    ///
    /// # Errors
    ///
    /// If the stream has ended otherwise.
    pub(crate) fn end(self) -> io::Result<()> {
        let mut stream = self.stream.into_inner();
        stream.send_data(Bytes::new(), true).map_err(broken)
    }

    /// Ends the stream so that what was sent is not taken for a whole body.
    pub(crate) fn cut(self) {
        let mut stream = self.stream.into_inner();
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
            if let Some(permit) = self.take_room(bytes.len()) {
                let (some, rest) = bytes.split_at(permit.num_permits());
                self.push(some.to_vec(), permit)?;
                bytes = rest;
            }
        }
        Ok(())
    }

    /// Waits until it takes something: its client's windows, and its connection.
    pub(super) async fn writable(&self) -> io::Result<()> {
        loop {
            self.window_open().await?;
            if self.share.borrow().is_some() {
                return Ok(());
            }
            let share = Arc::clone(&self.budget.0).acquire_many_owned(SHARE_BYTES);
            let share = share.await.map_err(io::Error::other)?;
            // A client may have closed its window meanwhile; then others have the share.
            if self.room() > 0 {
                *self.share.borrow_mut() = Some(share);
            }
        }
    }

    /// Waits until the client's windows have room.
    async fn window_open(&self) -> io::Result<()> {
        poll_fn(|context| {
            let stream = &mut *self.stream.borrow_mut();
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
            return Ok(Step::NOTHING);
        };
        let left = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
        let Some(mut permit) = self.take_room(left) else {
            return Ok(Step::FULL);
        };
        let mut read = vec![0; permit.num_permits()];
        let sent = file.read_at(&mut read, piece.start)?;
        read.truncate(sent);
        if sent == 0 {
            return Ok(Step {
                end: StepEnd::EndOfFile,
                ..Step::NOTHING
            });
        }
        drop(permit.split(permit.num_permits() - sent));
        self.push(read, permit)?;
        Ok(Step {
            sent_bytes: sent as u64,
            end: StepEnd::Done,
        })
    }

    fn room(&self) -> usize {
        self.stream.borrow().capacity().min(STREAM_BYTES_MAX)
    }

    /// Room for up to so many bytes, one at the least, of what was waited for and of what is left
    /// of the connection's budget; `None` if there is none.
    fn take_room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let wanted = self.room().min(bytes);
        let mut permit = self.share.borrow_mut().take();
        let has = permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if has > wanted {
            drop(permit.as_mut().and_then(|it| it.split(has - wanted)));
        } else if let Ok(missing) = u32::try_from(wanted - has)
            && let Ok(more) = Arc::clone(&self.budget.0).try_acquire_many_owned(missing)
        {
            match &mut permit {
                Some(permit) => permit.merge(more),
                None => permit = Some(more),
            }
        }
        permit.filter(|it| it.num_permits() > 0)
    }

    fn push(&self, bytes: Vec<u8>, permit: OwnedSemaphorePermit) -> io::Result<()> {
        let bytes = Bytes::from_owner(Charged {
            bytes,
            _permit: permit,
        });
        let stream = &mut *self.stream.borrow_mut();
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
