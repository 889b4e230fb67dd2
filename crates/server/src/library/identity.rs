//! What makes a file the same file, and how files are read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_wire::media::ScanOptions;
use onrush_wire::rtsp::ELEMENTARY;

/// What makes a file the same file as before.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Identity {
    /// The file system's device number.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
    /// Its length.
    pub file_bytes: u64,
    /// When its bytes last changed, in ns since 1970.
    pub modified_ns: i128,
}

impl Identity {
    /// The identity of the file with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let seconds = i128::from(metadata.mtime()) * 1_000_000_000;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            file_bytes: metadata.size(),
            modified_ns: seconds + i128::from(metadata.mtime_nsec()),
        }
    }

    /// How long ago its bytes last changed; not at all for a time that is still to come.
    pub(super) fn age(&self) -> Duration {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ns = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX);
        let age_ns = u64::try_from(now_ns.saturating_sub(self.modified_ns)).unwrap_or(0);
        Duration::from_nanos(age_ns)
    }
}

/// How files are read.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) options: ScanOptions,
    pub(super) burst_ns: u64,
    /// A file that has not grown for so long is complete.
    pub(super) growth_time_max: Duration,
    pub(super) stopping: Arc<AtomicBool>,
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
}
