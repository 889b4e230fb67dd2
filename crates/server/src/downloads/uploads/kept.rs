//! What there is of a file that comes, and what is left of it when that is broken off.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::Place;

/// A file that is not in its place yet. Each write to it holds this as well, and it is tidied up
/// when nobody does: one that is under way when the upload is dropped still counts, and nobody
/// waits for it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) at: Place,
    pub(super) file: Arc<File>,
    is_whole: AtomicBool,
}

impl Kept {
    pub(super) fn new(at: Place, file: File) -> Self {
        Self {
            at,
            file: Arc::new(file),
            is_whole: AtomicBool::new(false),
        }
    }

    /// It is in its place now.
    pub(super) fn set_whole(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_whole() {
            return;
        }
        // Of nothing nothing is kept; and no room that was set apart for what did not come.
        let bytes = self.file.metadata().map_or(0, |it| it.len());
        let tidied = match bytes {
            0 => self.at.folder.remove(&self.at.temporary),
            bytes => self.file.set_len(bytes),
        };
        if let Err(error) = tidied {
            warn!("uploads: {}: {error}", self.at.temporary.display());
        }
    }
}
