//! The other way: what a connection has to a file. The kernel moves it through a pipe where the
//! connection is plain; what was opened here (TLS), or had a framing, is written.
//!
//! It is cut in time as what is sent is, by the same schedules, rates and turns. The file's disk is
//! waited for on another thread, with the pipe full and the socket filling up meanwhile.

use std::any::Any;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use onrush_sys::fs::{begin_to_write, device, free_bytes};
use onrush_sys::path::cue::pipe::{Moved, PIPE_BYTES, Pipe};
use onrush_wire::pace::schedule::Grant;
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::timeout;

use super::control::Cancelled;
use super::pacing::Pacing;
use super::{Control, Policy, Transfers};
use crate::engine::shared::{bump, drop_one};

/// Bytes that are gathered before they are written, of what is not moved by the kernel.
const GATHERED_BYTES: usize = 256 << 10;

/// Bytes of a file that its disk begins to write together, while more comes.
const EARLY_BYTES: u64 = 8 << 20;

/// Where what is stored comes from.
#[derive(Debug)]
pub struct Inlet<'a>(Kind<'a>);

#[derive(Debug)]
enum Kind<'a> {
    Socket(&'a TcpStream),
    /// And what broke them behind what was gathered last.
    Pieces(&'a mut dyn Pieces, Option<io::Error>),
}

/// What comes piece by piece, and has been in user space anyway.
pub trait Pieces: std::fmt::Debug {
    /// The next piece, which has no more than `most` bytes; none at the end.
    ///
    /// # Errors
    ///
    /// What broke the connection, or what is wrong with what came.
    fn poll_piece(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>>;
}

impl<'a> From<&'a TcpStream> for Inlet<'a> {
    fn from(socket: &'a TcpStream) -> Self {
        Self(Kind::Socket(socket))
    }
}

impl<'a> From<&'a mut dyn Pieces> for Inlet<'a> {
    fn from(pieces: &'a mut dyn Pieces) -> Self {
        Self(Kind::Pieces(pieces, None))
    }
}

/// Where it goes.
#[derive(Clone, Debug)]
pub struct StoredTo {
    /// The file.
    pub file: Arc<File>,
    /// Where in it.
    pub offset: u64,
    /// Where that ends; to the connection's end, if that is not known.
    pub end: Option<u64>,
    /// How long the file may become.
    pub file_bytes_max: u64,
    /// What is left free of its disk, unless room was set apart for it before.
    pub free_bytes_min: Option<u64>,
    /// Whether its disk begins to write while more comes: the kernel would keep a part of all
    /// memory before it does, and whoever waits for the disk at the end would wait for that.
    pub writes_early: bool,
    /// What is held while it is written to: a write that is under way when the future is dropped
    /// goes on, and then lets go of it on its own thread.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

/// Why not all was stored. What came before is in the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The client has gone, or sends what cannot be understood.
    #[error("the client has gone: {0}")]
    Peer(#[source] io::Error),
    /// The connection has ended before what was promised.
    #[error("the connection has ended before byte {promised}, which was promised")]
    CutShort {
        /// Where it was to end.
        promised: u64,
    },
    /// The client has sent nothing for too long.
    #[error("the client has sent nothing for too long")]
    Stalled,
    /// [`Control::cancel`] was called.
    #[error("the upload was cancelled")]
    Cancelled,
    /// The file cannot be written.
    #[error("cannot write the file at byte {offset}: {source}; look at the disk (dmesg)")]
    File {
        /// Where.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// It is longer than a file may become.
    #[error("longer than {file_bytes_max} bytes, which is all that an upload may have")]
    TooLarge {
        /// [`StoredTo::file_bytes_max`].
        file_bytes_max: u64,
    },
    /// The disk is full, as far as it may become.
    #[error("the disk has no room left for it")]
    NoSpace,
}

impl Transfers {
    /// Moves what a connection has to a file: to its end, or so much as is told. Nothing more is
    /// stored once the future is dropped. Runs as [`Transfers::cue`] does. How much was stored,
    /// also of what failed, `control` knows.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn store<'a>(
        &self,
        from: impl Into<Inlet<'a>>,
        to: &StoredTo,
        policy: &Policy,
        control: &Control,
    ) -> Result<(), StoreError> {
        bump(&self.stats.transfers, 1);
        bump(&self.stats.active, 1);
        let mut storing = Storing {
            transfers: self,
            inlet: from.into().0,
            to: to.clone(),
            control,
            pipe: None,
            pacing: Pacing::new(self, policy),
            at: to.offset,
            steps: 0,
        };
        let place = self.turns.join();
        while storing.to.end.is_none_or(|end| storing.at < end) {
            control.check()?;
            let taken = storing.advance(&place).await?;
            if taken == Some(0) {
                break;
            }
        }
        match storing.to.end {
            Some(promised) if storing.at < promised => Err(StoreError::CutShort { promised }),
            _ => Ok(()),
        }
    }
}

/// One that is stored now.
struct Storing<'a, 'i> {
    transfers: &'a Transfers,
    inlet: Kind<'i>,
    to: StoredTo,
    control: &'a Control,
    /// Made when it is first needed.
    pipe: Option<Arc<Pipe>>,
    pacing: Pacing<'a>,
    /// Where in the file the next byte goes.
    at: u64,
    steps: u32,
}

impl Drop for Storing<'_, '_> {
    fn drop(&mut self) {
        drop_one(&self.transfers.stats.active);
    }
}

/// What was taken of a connection, and is not in the file yet.
enum Taken {
    InPipe(Arc<Pipe>, u64),
    Here(Vec<u8>),
}

impl Taken {
    fn bytes(&self) -> u64 {
        match self {
            Self::InPipe(_, bytes) => *bytes,
            Self::Here(bytes) => bytes.len() as u64,
        }
    }
}

impl Storing<'_, '_> {
    /// Moves what is due and there; `None` if it was none of that, 0 at the connection's end.
    async fn advance(
        &mut self,
        place: &super::turns::RoundSlot<'_>,
    ) -> Result<Option<u64>, StoreError> {
        let left = self.to.end.map_or(u64::MAX, |end| end - self.at);
        // One byte more than may be tells that there is more.
        let room = (self.to.file_bytes_max + 1).saturating_sub(self.at);
        let most = left.min(room).min(self.transfers.step_bytes());
        let most = match self.pacing.grant(most) {
            Grant::Bytes(granted) => granted,
            Grant::Until(until_ns) => {
                self.sleep_until(until_ns).await?;
                return Ok(None);
            }
        };
        let most = self.pacing.slot_bytes(most);
        // Before it is anybody's turn: a client that is slow delays nobody.
        let here = self.come(most).await?;
        let slot = self.pacing.reserve(most);
        if let Some(begin_ns) = slot.begin_ns {
            self.sleep_until(begin_ns).await?;
        }
        if self.steps > 0 && self.transfers.turns.len() > 1 {
            self.control.unless_cancelled(place.turn()).await?;
        }
        let taken = match here {
            Some(bytes) => Ok(Some(Taken::Here(bytes))),
            None => self.take(most),
        };
        let bytes = match &taken {
            Ok(Some(taken)) => taken.bytes(),
            _ => 0,
        };
        place.spent(bytes);
        slot.spent(bytes);
        let Some(taken) = taken? else {
            return Ok(None);
        };
        self.pacing.spent(bytes);
        if bytes > 0 {
            self.write(taken, bytes).await?;
        }
        Ok(Some(bytes))
    }

    /// Waits until the connection has something, or its end: what has come, if that is here.
    async fn come(&mut self, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let stall_time_max = self.transfers.stall_time_max;
        match &mut self.inlet {
            Kind::Socket(socket) => {
                let readable = timeout(stall_time_max, socket.readable());
                let readable = self.control.unless_cancelled(readable).await?;
                let readable = readable.map_err(|_| StoreError::Stalled)?;
                readable.map_err(StoreError::Peer)?;
                Ok(None)
            }
            Kind::Pieces(pieces, broken) => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                let gathered = gather(*pieces, broken, most.min(GATHERED_BYTES));
                let gathered = timeout(stall_time_max, gathered);
                let gathered = self.control.unless_cancelled(gathered).await?;
                gathered.map_err(|_| StoreError::Stalled)?.map(Some)
            }
        }
    }

    /// Takes what the socket has; `None` if it turns out to have nothing.
    fn take(&mut self, most: u64) -> Result<Option<Taken>, StoreError> {
        let Kind::Socket(socket) = &self.inlet else {
            return Ok(None);
        };
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            none => {
                let offset = self.at;
                let made = Pipe::new().map_err(|source| StoreError::File { offset, source })?;
                none.insert(Arc::new(made))
            }
        };
        let fill = || pipe.fill(socket.as_fd(), most);
        match socket.try_io(Interest::READABLE, fill) {
            Ok(bytes) => Ok(Some(Taken::InPipe(Arc::clone(pipe), bytes))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(StoreError::Peer(error)),
        }
    }

    async fn write(&mut self, taken: Taken, bytes: u64) -> Result<(), StoreError> {
        let file_bytes_max = self.to.file_bytes_max;
        if self.at + bytes > file_bytes_max {
            return Err(StoreError::TooLarge { file_bytes_max });
        }
        let (to, offset) = (self.to.clone(), self.at);
        let permits = self.transfers.reads.of(device(&to.file));
        let permit = permits.acquire_owned().await;
        let write = move || {
            let moved = to.write(taken, offset);
            // Whoever reads from that disk does not wait for what follows.
            drop(permit);
            to.write_early(offset, bytes);
            moved
        };
        let written = spawn_blocking(write).await;
        let moved = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        let moved = moved.map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace,
            _ => StoreError::File { offset, source },
        })?;
        self.at += bytes;
        self.steps = self.steps.saturating_add(1);
        self.control.count(bytes);
        let stats = &self.transfers.stats;
        bump(&stats.stored_bytes, bytes);
        if moved == Moved::Copied {
            bump(&stats.stored_copied_bytes, bytes);
        }
        self.pacing.stepped(self.transfers.moved_bytes());
        // Whoever became ready meanwhile comes first.
        yield_now().await;
        Ok(())
    }

    async fn sleep_until(&self, until_ns: u64) -> Result<(), StoreError> {
        let sleep = super::pause_until(until_ns);
        self.control.unless_cancelled(sleep).await?;
        Ok(())
    }
}

impl StoredTo {
    /// On a thread that may wait.
    fn write(&self, taken: Taken, offset: u64) -> io::Result<Moved> {
        let bytes = taken.bytes();
        if let Some(kept) = self.free_bytes_min
            && free_bytes(&self.file)? < kept.saturating_add(bytes)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match taken {
            Taken::InPipe(pipe, bytes) => pipe.store(&self.file, offset, bytes),
            Taken::Here(bytes) => {
                self.file.write_all_at(&bytes, offset)?;
                Ok(Moved::Copied)
            }
        }
    }

    /// Likewise: has the disk write what is full with these bytes.
    fn write_early(&self, offset: u64, bytes: u64) {
        let Range { start, end } = filled(offset, bytes);
        if self.writes_early && start < end {
            begin_to_write(&self.file, start, end - start);
        }
    }
}

/// What the disk is to begin with once these bytes are in the file, if that is anything: all that
/// is written together is there then.
fn filled(offset: u64, bytes: u64) -> Range<u64> {
    let begin_of = |at: u64| at - at % EARLY_BYTES;
    begin_of(offset)..begin_of(offset + bytes)
}

/// What has come, up to `most` bytes: waits for the first of it alone; none at the end. What has
/// come before an error is kept, and the error for the next time.
async fn gather(
    pieces: &mut dyn Pieces,
    broken: &mut Option<io::Error>,
    most: usize,
) -> Result<Vec<u8>, StoreError> {
    if let Some(error) = broken.take() {
        return Err(StoreError::Peer(error));
    }
    let mut all = Vec::new();
    let gathered = poll_fn(|context| {
        while all.len() < most {
            match pieces.poll_piece(context, most - all.len()) {
                Poll::Ready(Ok(piece)) if piece.is_empty() => break,
                Poll::Ready(Ok(piece)) => all.extend_from_slice(&piece),
                Poll::Ready(Err(error)) if all.is_empty() => return Poll::Ready(Err(error)),
                Poll::Ready(Err(error)) => {
                    *broken = Some(error);
                    break;
                }
                Poll::Pending if all.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(()))
    });
    gathered.await.map_err(StoreError::Peer)?;
    Ok(all)
}

impl From<Cancelled> for StoreError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

const _: () = assert!(GATHERED_BYTES <= PIPE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Coming(Vec<io::Result<&'static [u8]>>);

    impl Pieces for Coming {
        fn poll_piece(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<Bytes>> {
            match self.0.is_empty() {
                true => Poll::Ready(Ok(Bytes::new())),
                false => Poll::Ready(self.0.remove(0).map(Bytes::from_static)),
            }
        }
    }

    #[test]
    fn the_disk_begins_with_what_is_full() {
        assert!(filled(0, EARLY_BYTES - 1).is_empty());
        assert_eq!(filled(EARLY_BYTES - 1, 1), 0..EARLY_BYTES);
        assert!(filled(EARLY_BYTES, 1).is_empty());
        // What was resumed within it.
        let begun = filled(EARLY_BYTES / 2, 2 * EARLY_BYTES);
        assert_eq!(begun, 0..2 * EARLY_BYTES);
    }

    /// Behind an error may stand what looks like an end.
    #[tokio::test]
    async fn what_came_before_an_error_is_kept_and_the_error_told() {
        let reset = Err(io::ErrorKind::ConnectionReset.into());
        let mut coming = Coming(vec![Ok(b"ab"), Ok(b"c"), reset]);
        let mut broken = None;
        assert_eq!(gather(&mut coming, &mut broken, 9).await.unwrap(), b"abc");
        let told = gather(&mut coming, &mut broken, 9).await;
        assert!(matches!(told, Err(StoreError::Peer(_))), "{told:?}");
        assert!(
            gather(&mut coming, &mut broken, 9)
                .await
                .unwrap()
                .is_empty()
        );
    }
}
