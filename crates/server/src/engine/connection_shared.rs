//! What control and an engine both see of a connection that packets leave on.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::tls::record::NewKey;

/// What control gives an engine to be sent on a connection, whole.
#[derive(Debug)]
pub(crate) enum Message {
    /// An answer, a report.
    Bytes(Box<[u8]>),
    /// That a new key of TLS begins.
    NewKey(Box<NewKey>),
    /// That nothing more comes; on a connection without TLS it is nothing.
    CloseNotify,
}

/// What both sides see of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionShared {
    /// Messages that control has given, and those that are with the kernel, or never will be.
    pub(super) given: AtomicU64,
    pub(super) answered: AtomicU64,
    /// Bytes of all that control has given.
    pub(super) given_bytes: AtomicU64,
    /// Bytes of those that are not.
    pub(super) waiting_bytes: AtomicUsize,
    /// Why nothing leaves on it any more; 0 while something may.
    errno: AtomicU32,
    /// Its key has sealed so much that another is to be given.
    pub(super) is_worn: AtomicBool,
    pub(super) changed: Notify,
}

impl Message {
    /// Bytes of it, before anything is sealed.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::NewKey(_) | Self::CloseNotify => 0,
        }
    }
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
