//! Cue: files to TCP sockets and back, many at once on one thread, none in another's way.
//!
//! A transfer is a future. It asks its schedule how much is due, whether the bytes are in memory,
//! and whose turn it is; then one `sendfile` moves what the socket takes, and never sleeps. A full
//! socket, a pause, a disk are waited for in the future, so a slow reader or a cold file holds up
//! nobody else. A small file that is in memory leaves in the first step, at once: no timer, no
//! turn, no allocation.
//!
//! What was promised is the range. A file that grows sends no more of it; one that has become
//! shorter, or another where that was asked, is an error after which the connection must be closed,
//! because nothing else tells the peer.

mod arranger;
mod control;
mod limit;
mod mapping;
mod neighbour;
mod outlet;
mod pacing;
mod reader;
mod resident;
mod storing;
mod stream_body;
#[cfg(test)]
mod tests;
mod turns;

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_sys::fs::cached_metadata;
use onrush_sys::path::cue::{Step, StepEnd};
use onrush_wire::pace::schedule::{Grant, Rate, Schedule};
use thiserror::Error;
use tokio::time::{sleep, timeout};

use arranger::Arranger;
use control::Cancelled;
pub use control::Control;
pub use limit::Limit;
pub use mapping::MAPPED_BYTES_MAX;
use mapping::Mappings;
pub(crate) use mapping::PIECE_BYTES_MAX;
use neighbour::Neighbour;
pub use outlet::{Outlet, TLS_SEALED_BYTES_MAX};
use pacing::Pacing;
use reader::Reader;
pub use reader::SentFile;
use resident::Resident;
pub use storing::{Inlet, Pieces, StoreError, StoredTo};
pub use stream_body::{STREAM_BYTES_MAX, STREAMS_BYTES_MAX};
pub(crate) use stream_body::{StreamBody, StreamBudget};
use turns::{RoundSlot, Turns};

use crate::devices::DevicePermits;
use crate::engine::shared::{bump, drop_one};

/// Bytes that one step moves at the most. A step of so much takes some 100 us of the thread, for
/// which all others wait; half of it costs the processor a tenth more a byte.
pub const STEP_BYTES_MAX: u64 = 2 << 20;

/// Bytes that a step may have however many transfers there are.
pub const STEP_BYTES_MIN: u64 = 128 << 10;

/// Bytes of a round of all transfers, while their steps are not at their least.
const ROUND_BYTES: u64 = 128 << 20;

/// Reads from a disk at once; others wait for one of them to end.
pub const READS_MAX: usize = 16;

/// The part of the processor that adaptive transfers leave to others, unless told. With it they
/// still move no less than as many user-driven ones, which leave hardly any (docs/cue.md).
pub const LEFT_TO_OTHERS: f64 = 0.33;

/// The part that those leave which yield only to somebody who waits, unless told: it costs nothing
/// otherwise.
pub const YIELDED_TO_OTHERS: f64 = 0.75;

/// What holds for all transfers of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What all of them together may send.
    pub rate_max: Option<Rate>,
    /// The part of the thread's processor that adaptive transfers leave to others, below 1.
    pub left_to_others: f64,
    /// How long a peer may take nothing, not even acknowledge, before it is given up.
    pub stall_time_max: Duration,
}

/// What holds for one transfer.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// How it is cut in time.
    pub schedule: Schedule,
    /// A rate that it shares with others, those of the same client for example.
    pub limit: Option<Limit>,
}

/// What transfers share, on the one thread that they all run on.
#[derive(Debug)]
pub struct Transfers {
    stall_time_max: Duration,
    total: Option<Limit>,
    arranger: Arranger,
    neighbour: Neighbour,
    turns: Turns,
    reads: DevicePermits,
    resident: Resident,
    mappings: Mappings,
    stats: Arc<Stats>,
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Transfers that were begun.
    pub transfers: u64,
    /// Bytes that the kernel has taken.
    pub sent_bytes: u64,
    /// `sendfile` calls' worth of steps.
    pub steps: u64,
    /// How often a full socket was waited for.
    pub full: u64,
    /// How often a disk was waited for.
    pub cold: u64,
    /// How often the kernel was asked what of a file is in memory.
    pub asked: u64,
    /// Bytes of connections that were stored in files.
    pub stored_bytes: u64,
    /// Those of them that were in user space: they were sealed, or framed.
    pub stored_copied_bytes: u64,
    /// Pauses that were made because somebody else waited for the processor.
    pub yields: u64,
    /// How long the thread was seen to wait for the processor while others ran, in ns. Looked at
    /// only by schedules that yield.
    pub delayed_ns: u64,
}

/// What the thread of transfers tells the others: written by it alone.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    active: AtomicU64,
    transfers: AtomicU64,
    sent_bytes: AtomicU64,
    steps: AtomicU64,
    full: AtomicU64,
    cold: AtomicU64,
    asked: AtomicU64,
    stored_bytes: AtomicU64,
    stored_copied_bytes: AtomicU64,
    yields: AtomicU64,
    delayed_ns: AtomicU64,
}

/// A transfer that has ended well.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sent {
    /// Bytes of it: the range's.
    pub bytes: u64,
}

/// Why a transfer ended early. The connection cannot be used any more, except after
/// [`Self::Cancelled`] by somebody who knows what to do with a body that is cut off.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The file has become shorter than was promised.
    #[error(
        "the file ends before byte {promised}, which was promised: it was cut while it was sent; \
         close the connection"
    )]
    Truncated {
        /// Where the range ends.
        promised: u64,
    },
    /// The file is not what was promised any more.
    #[error("the file was changed while it was sent; close the connection")]
    Changed,
    /// The file cannot be read.
    #[error("cannot read the file at byte {offset}: {source}; look at the disk (dmesg)")]
    File {
        /// Where.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The peer has gone.
    #[error("the peer has gone: {0}")]
    Peer(#[source] io::Error),
    /// The peer has taken nothing for too long.
    #[error("the peer has taken nothing for {stall_time_max:?}")]
    Stalled {
        /// [`Settings::stall_time_max`].
        stall_time_max: Duration,
    },
    /// [`Control::cancel`] was called.
    #[error("the transfer was cancelled")]
    Cancelled,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_max: None,
            left_to_others: LEFT_TO_OTHERS,
            stall_time_max: Duration::from_secs(60),
        }
    }
}

impl Transfers {
    /// Transfers that share this.
    #[must_use]
    pub fn new(settings: Settings) -> Rc<Self> {
        Self::with_stats(settings, Arc::default())
    }

    /// As [`Self::new`], with counters that others look at.
    pub(crate) fn with_stats(settings: Settings, stats: Arc<Stats>) -> Rc<Self> {
        Rc::new(Self {
            stall_time_max: settings.stall_time_max,
            total: settings.rate_max.map(Limit::new),
            arranger: Arranger::new(settings.left_to_others),
            neighbour: Neighbour::new(Arc::clone(&stats)),
            turns: Turns::default(),
            reads: DevicePermits::new(READS_MAX),
            resident: Resident::default(),
            mappings: Mappings::default(),
            stats,
        })
    }

    /// Sends `range` of `file` on a connection. Nothing is sent once the future is dropped. Runs
    /// within a tokio runtime of one thread, with time and network.
    ///
    /// # Errors
    ///
    /// See [`TransferError`]. How much was sent of a transfer that failed, `control` knows.
    pub async fn cue<'a>(
        &self,
        file: impl Into<SentFile<'a>>,
        range: Range<u64>,
        to: impl Into<Outlet<'a>>,
        policy: &Policy,
        control: &Control,
    ) -> Result<Sent, TransferError> {
        let pieces = std::slice::from_ref(&range);
        self.gather(file, pieces, to, policy, control).await
    }

    /// The same of several pieces of `file`, one behind the other, as one transfer.
    ///
    /// # Errors
    ///
    /// As [`Self::cue`].
    pub async fn gather<'a>(
        &self,
        file: impl Into<SentFile<'a>>,
        pieces: &[Range<u64>],
        to: impl Into<Outlet<'a>>,
        policy: &Policy,
        control: &Control,
    ) -> Result<Sent, TransferError> {
        bump(&self.stats.transfers, 1);
        let mut transfer = Transfer::new(self, file.into(), pieces, to.into(), policy, control);
        let bytes = transfer.reader.left_bytes();
        transfer.ask_kernel(bytes).await?;
        while transfer.reader.left_bytes() > 0 {
            transfer.advance().await?;
        }
        while !transfer.outlet.flush().map_err(TransferError::Peer)? {
            transfer.writable().await?;
        }
        transfer.check_whole()?;
        Ok(Sent { bytes })
    }

    /// Transfers that run now.
    #[must_use]
    pub fn active(&self) -> usize {
        self.turns.len()
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.stats.counters()
    }

    /// Lets go of what is kept of files that are closed, or that nobody has asked for lately. To be
    /// called now and then.
    pub fn sweep(&self) {
        self.mappings.sweep();
    }

    /// Bytes that were moved, whichever way.
    fn moved_bytes(&self) -> u64 {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        of(&self.stats.sent_bytes) + of(&self.stats.stored_bytes)
    }

    /// Bytes of a step: the fewer transfers there are, the more.
    fn step_bytes(&self) -> u64 {
        (ROUND_BYTES / self.turns.len().max(1) as u64).clamp(STEP_BYTES_MIN, STEP_BYTES_MAX)
    }
}

impl Stats {
    /// What has been done so far.
    pub(crate) fn counters(&self) -> Counters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            transfers: of(&self.transfers),
            sent_bytes: of(&self.sent_bytes),
            steps: of(&self.steps),
            full: of(&self.full),
            cold: of(&self.cold),
            asked: of(&self.asked),
            stored_bytes: of(&self.stored_bytes),
            stored_copied_bytes: of(&self.stored_copied_bytes),
            yields: of(&self.yields),
            delayed_ns: of(&self.delayed_ns),
        }
    }

    /// Transfers that run now.
    pub(crate) fn active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }
}

/// One transfer under way.
struct Transfer<'a> {
    transfers: &'a Transfers,
    outlet: Outlet<'a>,
    control: &'a Control,
    place: RoundSlot<'a>,
    reader: Reader<'a>,
    pacing: Pacing<'a>,
    steps: u32,
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        drop_one(&self.transfers.stats.active);
    }
}

impl<'a> Transfer<'a> {
    fn new(
        transfers: &'a Transfers,
        file: SentFile<'a>,
        pieces: &'a [Range<u64>],
        outlet: Outlet<'a>,
        policy: &'a Policy,
        control: &'a Control,
    ) -> Self {
        bump(&transfers.stats.active, 1);
        Self {
            transfers,
            outlet,
            control,
            place: transfers.turns.join(),
            reader: Reader::new(file, pieces),
            pacing: Pacing::new(transfers, policy),
            steps: 0,
        }
    }

    /// Has the kernel seal what is sent, if it is to be sealed and the kernel can.
    async fn ask_kernel(&mut self, bytes: u64) -> Result<(), TransferError> {
        loop {
            let asked = self.outlet.with_kernel(bytes);
            if let Some(outlet) = asked.map_err(TransferError::Peer)? {
                self.outlet = outlet;
                return Ok(());
            }
            self.writable().await?;
        }
    }

    /// Moves what is due next, once all that must be waited for is there.
    async fn advance(&mut self) -> Result<(), TransferError> {
        self.control.check()?;
        let most = self.reader.step_bytes(self.transfers.step_bytes());
        let bytes = match self.pacing.grant(most) {
            Grant::Bytes(granted) => granted,
            Grant::Until(until_ns) => return self.sleep_until(until_ns).await,
        };
        let Transfers {
            resident, reads, ..
        } = self.transfers;
        let asked = self.reader.asked;
        let is_ready = self.reader.is_ready(bytes, resident, reads);
        let asked = self.reader.asked - asked;
        bump(&self.transfers.stats.asked, asked);
        if !is_ready {
            return self.disk(bytes).await;
        }
        let bytes = self.pacing.slot_bytes(bytes);
        let slot = self.pacing.reserve(bytes);
        if let Some(begin_ns) = slot.begin_ns {
            self.sleep_until(begin_ns).await?;
        }
        // The first step goes at once: a small file is all in it.
        if self.steps > 0 && self.transfers.turns.len() > 1 {
            self.control.unless_cancelled(self.place.turn()).await?;
        }
        self.control.check()?;
        self.check_same(bytes)?;
        let step = self.step(bytes)?;
        slot.spent(step.sent_bytes);
        self.account(step);
        self.after(step).await
    }

    /// Waits until the disk has brought what comes next.
    async fn disk(&mut self, bytes: u64) -> Result<(), TransferError> {
        bump(&self.transfers.stats.cold, 1);
        let begin_ns = monotonic_ns();
        let arranger = self.pacing.arranger();
        if let Some(arranger) = arranger {
            self.reader.window_bytes = arranger.arranged().ahead_bytes;
        }
        let ready = self.reader.make_ready(bytes, &self.transfers.reads);
        self.control.unless_cancelled(ready).await??;
        if let Some(arranger) = arranger {
            arranger.waited(monotonic_ns() - begin_ns);
        }
        Ok(())
    }

    /// One step, and whose fault it is if it fails.
    fn step(&self, bytes: u64) -> Result<Step, TransferError> {
        let pieces = self.reader.next(bytes);
        let mappings = &self.transfers.mappings;
        let stepped = self.outlet.step(self.reader.file(), pieces, mappings);
        stepped.map_err(|source| match is_of_the_peer(&source) {
            true => TransferError::Peer(source),
            false => TransferError::File {
                offset: self.reader.offset,
                source,
            },
        })
    }

    fn account(&mut self, step: Step) {
        self.steps += 1;
        self.reader.advance(step.sent_bytes);
        self.control.count(step.sent_bytes);
        self.place.spent(step.sent_bytes);
        self.pacing.spent(step.sent_bytes);
        let stats = &self.transfers.stats;
        bump(&stats.steps, 1);
        bump(&stats.sent_bytes, step.sent_bytes);
        bump(&stats.full, u64::from(step.end == StepEnd::Full));
        self.pacing.stepped(self.transfers.moved_bytes());
    }

    /// What a step leaves to be waited for.
    async fn after(&self, step: Step) -> Result<(), TransferError> {
        match step.end {
            StepEnd::EndOfFile => Err(self.truncated()),
            StepEnd::Full => self.writable().await,
            StepEnd::Done if self.reader.left_bytes() == 0 => Ok(()),
            StepEnd::Done => {
                // Whoever became ready meanwhile comes first.
                tokio::task::yield_now().await;
                Ok(())
            }
        }
    }

    /// Waits until the socket takes something again. The kernel says so when a third of its buffer
    /// is free; on a slow line that may take longer than a peer may be silent, so what it
    /// acknowledges counts as well.
    async fn writable(&self) -> Result<(), TransferError> {
        let stall_time_max = self.transfers.stall_time_max;
        loop {
            let before_bytes = self.outlet.unacknowledged_bytes();
            let writable = timeout(stall_time_max, self.outlet.writable());
            match self.control.unless_cancelled(writable).await? {
                Ok(writable) => return writable.map_err(TransferError::Peer),
                Err(_) if self.outlet.unacknowledged_bytes() < before_bytes => {}
                Err(_) => return Err(TransferError::Stalled { stall_time_max }),
            }
        }
    }

    async fn sleep_until(&self, until_ns: u64) -> Result<(), TransferError> {
        self.control.unless_cancelled(pause_until(until_ns)).await?;
        Ok(())
    }

    /// Asked right before a step that may be the last one: without that step's bytes a peer never
    /// takes those of two versions of a file for a whole.
    fn check_same(&self, bytes: u64) -> Result<(), TransferError> {
        match bytes < self.reader.left_bytes() || self.reader.is_same() {
            true => Ok(()),
            false => Err(TransferError::Changed),
        }
    }

    /// The last word on a transfer, of a file that must be the same or in several steps: bytes that
    /// were cut off after the kernel had taken them left as zeroes.
    fn check_whole(&self) -> Result<(), TransferError> {
        if !self.reader.is_same() {
            return Err(TransferError::Changed);
        }
        if self.steps < 2 {
            return Ok(());
        }
        match cached_metadata(self.reader.file()) {
            Ok(it) if it.is_file && it.file_bytes < self.reader.last => Err(self.truncated()),
            _ => Ok(()),
        }
    }

    fn truncated(&self) -> TransferError {
        TransferError::Truncated {
            promised: self.reader.last,
        }
    }
}

async fn pause_until(until_ns: u64) {
    let left_ns = until_ns.saturating_sub(monotonic_ns());
    if left_ns > 0 {
        sleep(Duration::from_nanos(left_ns)).await;
    }
}

impl From<Cancelled> for TransferError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// `sendfile` reports errors of both of its ends.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EPIPE
                | libc::ECONNRESET
                | libc::ECONNABORTED
                | libc::ENOTCONN
                | libc::ETIMEDOUT
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::ENETRESET
                | libc::EPERM
                | libc::EACCES
                // Of TLS, whose key has sealed as much as it may.
                | libc::EKEYEXPIRED
        )
    )
}
