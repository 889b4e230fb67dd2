//! What becomes of a source that is pulled, for those who look: also before it has answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A pulled channel's source.
#[derive(Debug)]
pub(crate) struct PullState {
    path: String,
    source: Mutex<String>,
    is_asked: AtomicBool,
    error: Mutex<Option<String>>,
}

impl PullState {
    /// Of the channel of that name; the source is shown as it is, so without a password or a query.
    pub(super) fn new(path: String, source: String) -> Self {
        Self {
            path,
            source: Mutex::new(source),
            is_asked: AtomicBool::new(false),
            error: Mutex::default(),
        }
    }

    /// The channel's name, as a path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Its URL, or the node that it is.
    pub(crate) fn source(&self) -> String {
        let source = self.source.lock();
        source.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_source(&self, source: String) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
    }

    /// Whether it is asked for now, or will be again after a pause.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Why it could not be had last, until it is.
    pub(crate) fn error(&self) -> Option<String> {
        let error = self.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_asked(&self, is_asked: bool) {
        self.is_asked.store(is_asked, Ordering::Relaxed);
    }

    pub(super) fn set_error(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}
