//! The file's side of a transfer: the bytes that come next are brought into memory, while others
//! are sent.
//!
//! What is sent are pieces of the file. Those that lie in order with little between them are one
//! stretch, which is brought into memory as a whole: what lies between them is read, too, and not
//! sent.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use onrush_sys::clock::monotonic_ns;
use onrush_sys::fs::device;
use onrush_sys::path::cue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

use super::TransferError;
use super::resident::{Resident, STRETCH_BYTES};
use crate::devices::DevicePermits;
use crate::remote::{FilmFile, Held, RemoteBytes, asked};

/// Bytes that are read from the disk at once, and again ahead of them, unless it is arranged
/// otherwise.
const WINDOW_BYTES: u64 = 1 << 20;

/// Between two pieces of a stretch there are no more bytes than these.
const GAP_BYTES_MAX: u64 = 256 << 10;

/// What is sent from: a file, whole or with holes.
#[derive(Clone, Copy, Debug)]
pub struct SentFile<'a> {
    file: &'a Arc<File>,
    remote: Option<&'a Arc<dyn RemoteBytes>>,
    check: Option<Check<'a>>,
}

/// Whether a file still is what it was when its bytes were promised.
#[derive(Clone, Copy)]
struct Check<'a>(&'a dyn Fn(&File) -> bool);

impl fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

impl<'a> SentFile<'a> {
    /// The same, of which the last bytes leave only while `is_same` says that the file still is
    /// what it was: it is asked right before them and once more behind them.
    pub(crate) fn while_same(self, is_same: &'a dyn Fn(&File) -> bool) -> Self {
        let check = Some(Check(is_same));
        Self { check, ..self }
    }
}

impl<'a> From<&'a Arc<File>> for SentFile<'a> {
    fn from(file: &'a Arc<File>) -> Self {
        Self {
            file,
            remote: None,
            check: None,
        }
    }
}

impl<'a> From<&'a FilmFile> for SentFile<'a> {
    fn from(of: &'a FilmFile) -> Self {
        Self {
            file: &of.file,
            remote: of.remote.as_ref(),
            check: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Reader<'a> {
    file: Arc<File>,
    /// What fills the file's holes, if it has any.
    remote: Option<&'a Arc<dyn RemoteBytes>>,
    check: Option<Check<'a>>,
    /// What is held of such a file, and to where.
    held: Option<(Held, u64)>,
    /// The pieces that are not sent whole yet.
    pieces: &'a [Range<u64>],
    /// Bytes of them that are still to be sent.
    left_bytes: u64,
    /// The first byte of the file that no piece reaches.
    pub(super) last: u64,
    /// The next byte to be sent.
    pub(super) offset: u64,
    /// Where its stretch ends.
    end: u64,
    /// All before this were in memory when they were looked at.
    ready_to: u64,
    /// The read that is under way, and to where.
    ahead: Option<Read>,
    /// Bytes before this were read ahead.
    ahead_to: u64,
    /// What is read at once.
    pub(super) window_bytes: u64,
    /// A disk had to be waited for.
    is_cold: bool,
    /// What its reads need, with all others of that disk; looked for at the first of them.
    permits: Option<Arc<Semaphore>>,
    /// How often the kernel was asked what is in memory.
    pub(super) asked: u64,
}

#[derive(Debug)]
struct Read {
    to: u64,
    done: JoinHandle<io::Result<()>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(of: SentFile<'a>, pieces: &'a [Range<u64>]) -> Self {
        let lengths = pieces.iter().map(|it| it.end.saturating_sub(it.start));
        let mut reader = Self {
            file: Arc::clone(of.file),
            remote: of.remote,
            check: of.check,
            held: None,
            pieces,
            left_bytes: lengths.sum(),
            last: pieces.iter().map(|it| it.end).max().unwrap_or(0),
            offset: 0,
            end: 0,
            ready_to: 0,
            ahead: None,
            ahead_to: 0,
            window_bytes: WINDOW_BYTES,
            is_cold: false,
            permits: None,
            asked: 0,
        };
        reader.begin_stretch();
        reader
    }

    /// The next piece is the first of a stretch.
    fn begin_stretch(&mut self) {
        let Some(first) = self.pieces.first() else {
            return;
        };
        let follows = |pair: &&[Range<u64>]| {
            let gap = pair[1].start.checked_sub(pair[0].end);
            gap.is_some_and(|gap| gap <= GAP_BYTES_MAX)
        };
        let more = self.pieces.windows(2).take_while(follows).count();
        self.offset = first.start;
        self.end = self.pieces[more].end;
        self.ready_to = first.start;
        self.ahead_to = first.start;
        self.held = None;
    }

    /// So many bytes were sent.
    pub(super) fn advance(&mut self, mut bytes: u64) {
        self.left_bytes -= bytes;
        while let [piece, rest @ ..] = self.pieces {
            let of_piece = bytes.min(piece.end.saturating_sub(self.offset));
            self.offset += of_piece;
            bytes -= of_piece;
            if self.offset < piece.end {
                return;
            }
            self.pieces = rest;
            match rest.first() {
                // The next of the stretch, behind a gap.
                Some(next) if next.start >= self.offset && next.end <= self.end => {
                    self.offset = next.start;
                }
                _ => self.begin_stretch(),
            }
        }
    }

    /// Where the next `bytes` bytes of this stretch lie.
    pub(super) fn next(&self, bytes: u64) -> impl Iterator<Item = Range<u64>> + 'a {
        let (mut left, mut begin, end) = (bytes, Some(self.offset), self.end);
        let pieces = self.pieces.iter().map_while(move |piece| {
            let start = begin.take().unwrap_or(piece.start);
            let bytes = piece.end.saturating_sub(start).min(left);
            left -= bytes;
            let is_of_it = start < end && start + bytes <= end && bytes > 0;
            is_of_it.then(|| start..start + bytes)
        });
        let mut last = self.offset;
        pieces.take_while(move |it| std::mem::replace(&mut last, it.end) <= it.start)
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether the file still is what it was, if that matters.
    pub(super) fn is_same(&self) -> bool {
        self.check.is_none_or(|Check(is_same)| is_same(&self.file))
    }

    /// Bytes that are still to be sent.
    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Bytes that a step may have: those of one stretch, and of a file that comes from a disk, no
    /// more than is read at once.
    pub(super) fn step_bytes(&self, most: u64) -> u64 {
        let most = most.min(self.left_bytes);
        let most = match self.is_cold {
            true => most.min(self.window_bytes),
            false => most,
        };
        self.next(most).map(|it| it.end - it.start).sum()
    }

    /// Where in the file the next `bytes` bytes end.
    fn reach(&self, bytes: u64) -> u64 {
        self.next(bytes).last().map_or(self.offset, |it| it.end)
    }

    /// Whether the next `bytes` bytes can be sent without waiting for a disk.
    pub(super) fn is_ready(
        &mut self,
        bytes: u64,
        resident: &Resident,
        reads: &DevicePermits,
    ) -> bool {
        let to = self.reach(bytes);
        if !self.is_held(to) {
            return false;
        }
        while to > self.ready_to {
            let from = self.ready_to.max(self.offset);
            // Of a whole stretch others of the same file may know, or can be told.
            let stretch = from..(from / STRETCH_BYTES + 1)
                .saturating_mul(STRETCH_BYTES)
                .min(self.end);
            let now_ns = monotonic_ns();
            if resident.has(&self.file, &stretch, now_ns) {
                self.ready_to = stretch.end;
            } else if self.is_in_memory(&stretch) {
                resident.found(&self.file, &stretch, now_ns);
                self.ready_to = stretch.end;
            } else if to < stretch.end && self.is_in_memory(&(from..to)) {
                // What is asked for, if not all of the stretch.
                self.ready_to = to;
            } else {
                return false;
            }
        }
        if self.is_cold {
            self.read_ahead(reads);
        }
        true
    }

    /// Whether the file has no hole before `to`, and gets none.
    fn is_held(&mut self, to: u64) -> bool {
        let Some(remote) = self.remote else {
            return true;
        };
        if self
            .held
            .as_ref()
            .is_some_and(|(_, held_to)| *held_to >= to)
        {
            return true;
        }
        let held = remote.try_hold(std::slice::from_ref(&(self.offset..to)));
        self.held = held.map(|held| (held, to));
        self.held.is_some()
    }

    /// Waits until that is so.
    async fn make_held(&mut self, to: u64) -> Result<(), TransferError> {
        let Some(remote) = self.remote.filter(|_| !self.is_held(to)) else {
            return Ok(());
        };
        let part = self.offset..to;
        let held = asked(|then| remote.hold(std::slice::from_ref(&part), then)).await;
        let held = held.map_err(|source| TransferError::File {
            offset: part.start,
            source,
        })?;
        self.held = Some((held, to));
        Ok(())
    }

    fn is_in_memory(&mut self, range: &Range<u64>) -> bool {
        self.asked += 1;
        cue::is_resident(&self.file, range.start, range.end - range.start)
    }

    /// Waits until the next `bytes` bytes can be sent.
    pub(super) async fn make_ready(
        &mut self,
        bytes: u64,
        reads: &DevicePermits,
    ) -> Result<(), TransferError> {
        if !self.is_cold {
            self.is_cold = true;
            cue::leave_reading_to_warm(&self.file);
        }
        let to = self.reach(bytes);
        self.make_held(to).await?;
        if self.ahead.as_ref().is_none_or(|read| read.to < to) {
            let permit = self.permits(reads).acquire_owned().await;
            let permit = permit.expect("nobody closes it");
            let window_end = match self.remote {
                None => to.max(self.offset + self.window_bytes).min(self.end),
                // What comes behind it may be a hole yet.
                Some(_) => to,
            };
            self.start(self.offset..window_end, permit);
        }
        let Some(read) = &mut self.ahead else {
            return Ok(());
        };
        let done = (&mut read.done)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        // What was read is taken for ready, even if it is gone already: asking again might go on
        // for ever.
        self.ready_to = self.ready_to.max(read.to);
        self.ahead = None;
        done.map_err(|source| TransferError::File {
            offset: self.offset,
            source,
        })?;
        self.read_ahead(reads);
        Ok(())
    }

    /// Starts the read after the last one, unless one is under way, or far enough ahead, or too
    /// many are.
    fn read_ahead(&mut self, reads: &DevicePermits) {
        if self
            .ahead
            .as_ref()
            .is_some_and(|read| !read.done.is_finished())
        {
            return;
        }
        // What it said is met again by who comes there.
        self.ahead = None;
        if self.remote.is_some() {
            // Whoever fills its holes does so ahead.
            return;
        }
        let begin = self.ahead_to.max(self.offset);
        let end = (begin + self.window_bytes).min(self.end);
        if begin >= end || begin > self.offset + self.window_bytes {
            return;
        }
        if let Ok(permit) = self.permits(reads).try_acquire_owned() {
            self.start(begin..end, permit);
        }
    }

    fn permits(&mut self, reads: &DevicePermits) -> Arc<Semaphore> {
        let own = self
            .permits
            .get_or_insert_with(|| reads.of(device(&self.file)));
        Arc::clone(own)
    }

    fn start(&mut self, window: Range<u64>, permit: OwnedSemaphorePermit) {
        let file = Arc::clone(&self.file);
        self.ahead_to = window.end;
        self.ahead = Some(Read {
            to: window.end,
            done: spawn_blocking(move || {
                let done = cue::warm(&file, window.start, window.end - window.start);
                drop(permit);
                done
            }),
        });
    }
}
