//! What control and an engine both see of a connection that packets leave on.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// What both sides see of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionShared {
    /// Messages that control has given, and those that are with the kernel, or never will be.
    pub(super) given: AtomicU64,
    pub(super) answered: AtomicU64,
    /// Bytes of those that are not.
    pub(super) waiting_bytes: AtomicUsize,
    /// Why nothing leaves on it any more; 0 while something may.
    errno: AtomicU32,
    pub(super) changed: Notify,
}

impl ConnectionShared {
    /// For the worker: a message of so many bytes is with the kernel, or never will be.
    pub(super) fn answer(&self, bytes: usize) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// For the worker: nothing leaves any more. The first reason stays.
    pub(super) fn fail(&self, errno: i32) {
        if self.errno.load(Ordering::Relaxed) == 0 {
            self.errno.store(errno.unsigned_abs(), Ordering::Relaxed);
        }
        self.changed.notify_waiters();
    }

    pub(super) fn failure(&self) -> Option<io::Error> {
        let errno = self.errno.load(Ordering::Relaxed);
        let errno = i32::try_from(errno).unwrap_or(libc::EIO);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }
}
