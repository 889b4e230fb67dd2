//! A file that is read again when it has changed.
//!
//! A thread of its own looks once a second, so that a slow disk delays nobody. What cannot be read
//! or understood any more changes nothing: what was understood last stays.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use thiserror::Error;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::changes::Seen;

/// A file, and what it says.
#[derive(Debug)]
pub(super) struct Watched<T> {
    now: Arc<RwLock<Arc<T>>>,
    /// Ends the thread when it is dropped. It is not waited for: it may wait for a file server that
    /// is gone, and whoever drops this may be one that all others wait for.
    _stop: Sender<()>,
}

/// Why a file says nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {what}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// By which two states of a file are told apart.
pub(super) type Stamp = (u64, u64, u64, i64, i64, i64, i64);

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the file, of at most `bytes_max`, with `parse`, and again whenever it has changed.
    ///
    /// # Errors
    ///
    /// If it cannot be read or understood now.
    pub(super) fn open(
        path: &Path,
        bytes_max: usize,
        parse: fn(&str) -> Result<T, String>,
    ) -> Result<Self, ReadError> {
        let (first, stamp) = read(path, bytes_max, parse)?;
        let now = Arc::new(RwLock::new(Arc::new(first)));
        let (stop, stopped) = channel();
        let (path, to) = (path.to_owned(), Arc::clone(&now));
        let unreadable = path.clone();
        let look = move || {
            let mut seen = Seen::new(stamp);
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A file that is being replaced may be missing for a moment.
                let Ok(there) = fs::metadata(&path) else {
                    continue;
                };
                let read = || read(&path, bytes_max, parse);
                match seen.look(stamp_of(&there), read, ReadError::may_pass) {
                    None => {}
                    Some(Ok(read)) => {
                        *to.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read);
                        info!("{}: read again", path.display());
                    }
                    Some(Err(error)) => warn!("{error}; what it said before is still in force"),
                }
            }
        };
        let thread = thread::Builder::new().name("onrush-users".to_owned());
        thread.spawn(look).map_err(|source| ReadError::Read {
            path: unreadable,
            source,
        })?;
        Ok(Self { now, _stop: stop })
    }

    /// What it says.
    pub(super) fn now(&self) -> Arc<T> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }
}

impl ReadError {
    /// Whether it may be read later as it is now: not what is no text.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() != io::ErrorKind::InvalidData)
    }
}

pub(super) fn read<T>(
    path: &Path,
    bytes_max: usize,
    parse: fn(&str) -> Result<T, String>,
) -> Result<(T, Stamp), ReadError> {
    let content = |what: String| ReadError::Content {
        path: path.to_owned(),
        what,
    };
    let bytes = || {
        let file = File::open(path)?;
        let there = file.metadata()?;
        // With room for all: what it grew out of would not be wiped.
        let bytes = usize::try_from(there.len()).unwrap_or(usize::MAX);
        let room = bytes.min(bytes_max).saturating_add(1);
        let mut text = Zeroizing::new(String::with_capacity(room));
        file.take(bytes_max as u64 + 1).read_to_string(&mut text)?;
        Ok((text, there))
    };
    let (text, there) = bytes().map_err(|source| ReadError::Read {
        path: path.to_owned(),
        source,
    })?;
    if text.len() > bytes_max {
        return Err(content(format!("longer than {bytes_max} bytes")));
    }
    Ok((parse(&text).map_err(content)?, stamp_of(&there)))
}

fn stamp_of(there: &Metadata) -> Stamp {
    let changed = (there.ctime(), there.ctime_nsec());
    let modified = (there.mtime(), there.mtime_nsec());
    let (dev, ino, size) = (there.dev(), there.ino(), there.size());
    (dev, ino, size, changed.0, changed.1, modified.0, modified.1)
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    fn number(text: &str) -> Result<u32, String> {
        text.trim().parse().map_err(|_| "no number".to_owned())
    }

    /// As a disk that does not answer.
    static DISK: Mutex<()> = Mutex::new(());
    static WAITS: AtomicBool = AtomicBool::new(false);

    fn late(text: &str) -> Result<u32, String> {
        if text == "99" {
            WAITS.store(true, Ordering::Relaxed);
            drop(DISK.lock());
        }
        number(text)
    }

    #[test]
    fn a_thread_that_waits_for_a_disk_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "1").unwrap();
        let watched = Watched::open(&path, 4, late).unwrap();
        let disk = DISK.lock().unwrap();
        fs::write(&path, "99").unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while !WAITS.load(Ordering::Relaxed) {
            assert!(Instant::now() < give_up, "it is never read again");
            thread::sleep(Duration::from_millis(20));
        }
        let (tell, told) = channel();
        let dropping = move || {
            drop(watched);
            tell.send(())
        };
        thread::spawn(dropping);
        assert!(told.recv_timeout(Duration::from_secs(60)).is_ok());
        drop(disk);
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(Watched::open(&path, 4, number).is_err(), "it is not there");
        fs::write(&path, "x").unwrap();
        assert!(Watched::open(&path, 4, number).is_err(), "it is no number");
        fs::write(&path, "12345").unwrap();
        assert!(Watched::open(&path, 4, number).is_err(), "it is too long");
        fs::write(&path, "1234").unwrap();
        let watched = Watched::open(&path, 4, number).unwrap();
        assert_eq!(*watched.now(), 1234);
        // What is not understood, or is not there, changes nothing; the next one counts again.
        fs::write(&path, "none").unwrap();
        thread::sleep(2 * LOOK_EVERY);
        assert_eq!(*watched.now(), 1234);
        fs::remove_file(&path).unwrap();
        thread::sleep(2 * LOOK_EVERY);
        assert_eq!(*watched.now(), 1234);
        fs::write(&path, "7").unwrap();
        let give_up = Instant::now() + Duration::from_secs(60);
        while *watched.now() != 7 {
            assert!(Instant::now() < give_up, "it is never read again");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
