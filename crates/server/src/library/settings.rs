//! How files are read, and what reading them has cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

use onrush_wire::media::ScanOptions;
use onrush_wire::rtsp::ELEMENTARY;

use super::saved::{SavedCounters, SavedIndexes};

/// How files are read.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) options: ScanOptions,
    pub(super) burst_ns: u64,
    /// A file that has not grown for so long is complete.
    pub(super) growth_time_max: Duration,
    pub(super) reading: Arc<Reading>,
    /// Where indexes outlive the server, if they do.
    pub(super) saved: Option<Arc<SavedIndexes>>,
}

impl Settings {
    /// Those for what is asked for by this name, and the name of its file.
    pub(super) fn of<'a>(&self, name: &'a str) -> (Self, &'a str) {
        let mut settings = self.clone();
        match name.strip_suffix(ELEMENTARY) {
            Some(file) => {
                settings.options.is_elementary = true;
                (settings, file)
            }
            None => (settings, name),
        }
    }

    /// The same for a film that lies elsewhere: it is whole from the moment that there is one, and
    /// what is saved is known by a file of this machine.
    pub(super) fn of_remote(self) -> Self {
        Self {
            growth_time_max: Duration::ZERO,
            saved: None,
            ..self
        }
    }
}

/// What those have in common who read files to index them.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// They are to end.
    pub(super) stopping: AtomicBool,
    pub(super) counters: Arc<Counters>,
}

/// What a library has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes that were read from files to index them.
    pub bytes_read: AtomicU64,
    /// Descriptors that films take now: those known, and those that are played on after another has
    /// their name. The files of a store's films are counted there.
    pub descriptors: AtomicUsize,
    /// What became of indexes that outlive the server.
    pub saved: Arc<SavedCounters>,
}
