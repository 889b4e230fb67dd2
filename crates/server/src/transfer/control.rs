//! The hand on a transfer: how far it is, and giving it up.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Cancels the transfers that were given it, from any thread, and knows how far they are. One can
/// serve all transfers of a connection, one after the other.
#[derive(Debug, Default)]
pub struct Control {
    is_cancelled: AtomicBool,
    sent_bytes: AtomicU64,
    cancelled: Notify,
}

impl Control {
    /// Ends the transfer, and all that are given this control later. Bytes that the kernel has
    /// taken still leave.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
        self.cancelled.notify_waiters();
    }

    /// Bytes that the kernel has taken, of all transfers so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes that the kernel has taken.
    pub(crate) fn count(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Errors: it was cancelled.
    pub(super) fn check(&self) -> Result<(), Cancelled> {
        match self.is_cancelled.load(Ordering::Acquire) {
            true => Err(Cancelled),
            false => Ok(()),
        }
    }

    /// Does `wait`, unless it is cancelled meanwhile.
    pub(super) async fn unless_cancelled<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, Cancelled> {
        let mut cancelled = pin!(self.cancelled.notified());
        // Before the flag is read, so that no cancel falls between.
        cancelled.as_mut().enable();
        self.check()?;
        tokio::select! {
            done = wait => Ok(done),
            () = cancelled => Err(Cancelled),
        }
    }
}

/// Somebody has given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cancelled;
