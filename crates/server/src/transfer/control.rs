//! The hand on a transfer: stop for now, go on, give up.

use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio::sync::Notify;

const RUNNING: u8 = 0;
const PAUSED: u8 = 1;
const CANCELLED: u8 = 2;

/// Pauses, resumes and cancels the transfers that were given it, from any thread, and knows how far
/// they are. One can serve all transfers of a connection, one after the other.
#[derive(Debug, Default)]
pub struct Control {
    state: AtomicU8,
    sent_bytes: AtomicU64,
    changed: Notify,
}

impl Control {
    /// Nothing more is sent until [`Self::resume`]. Bytes that the kernel has taken still leave.
    pub fn pause(&self) {
        self.change(RUNNING, PAUSED);
    }

    /// Goes on after a pause.
    pub fn resume(&self) {
        self.change(PAUSED, RUNNING);
    }

    /// Ends the transfer, and all that are given this control later.
    pub fn cancel(&self) {
        self.state.store(CANCELLED, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Bytes that the kernel has taken, of all transfers so far.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.state.load(Ordering::Acquire) == RUNNING
    }

    /// Waits out a pause. Errors: it was cancelled.
    pub(super) async fn running(&self) -> Result<(), Cancelled> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the state is read, so that no change falls between.
            changed.as_mut().enable();
            match self.state.load(Ordering::Acquire) {
                RUNNING => return Ok(()),
                CANCELLED => return Err(Cancelled),
                _ => changed.await,
            }
        }
    }

    /// Does `wait`, unless it is cancelled meanwhile.
    pub(super) async fn unless_cancelled<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, Cancelled> {
        let mut wait = pin!(wait);
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state.load(Ordering::Acquire) == CANCELLED {
                return Err(Cancelled);
            }
            tokio::select! {
                done = wait.as_mut() => return Ok(done),
                () = changed => {}
            }
        }
    }

    fn change(&self, from: u8, to: u8) {
        let changed = self
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        if changed.is_ok() {
            self.changed.notify_waiters();
        }
    }
}

/// Somebody has given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cancelled;
