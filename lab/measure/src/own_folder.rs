//! Folders of our own for the files of a measurement, gone when it is.
//!
//! Who is interrupted (Ctrl-C) removes nothing. So each folder has a file that is locked (flock(2))
//! for as long as its process lives, and whoever makes another one beside it first removes those
//! that nobody has locked.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

/// What the names of such folders begin with.
const PREFIX: &str = "onrush-measure-";

/// The file by whose lock it is known whether anybody uses a folder.
const LOCK: &str = ".lock";

/// A folder of our own.
#[derive(Debug)]
pub(crate) struct OwnFolder {
    /// Closed before the folder goes: NFS keeps what is open.
    _lock: File,
    folder: TempDir,
}

impl OwnFolder {
    /// Makes one where temporary files are.
    ///
    /// # Errors
    ///
    /// If nothing can be made there.
    pub(crate) fn new() -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    /// Makes one in `parent`, where those that interrupted processes have left are removed.
    ///
    /// # Errors
    ///
    /// If nothing can be made there.
    pub(crate) fn new_in(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        remove_leftovers(parent, fs::metadata(folder.path())?.uid());
        let unlocked = folder.path().join(".new");
        let lock = File::create(&unlocked)?;
        // It gets its name with its lock, so that nobody takes a new folder for one that was left.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::rename(&unlocked, folder.path().join(LOCK))?;
        }
        Ok(Self {
            _lock: lock,
            folder,
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of ours in `parent` that `owner` has and nobody uses.
fn remove_leftovers(parent: &Path, owner: u32) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let is_own = |found: fs::Metadata| found.is_dir() && found.uid() == owner;
        if !is_named || !entry.metadata().is_ok_and(is_own) {
            continue;
        }
        // NFS locks for itself alone what is open for writing.
        let lock = File::options().write(true).open(entry.path().join(LOCK));
        let is_free = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if lock.as_ref().is_ok_and(is_free) {
            // What cannot be removed stays; nobody came here for that.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_process_has_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = || OwnFolder::new_in(parent.path()).unwrap();
        let (used, interrupted) = (make(), make());
        fs::write(interrupted.path().join("film"), "bytes").unwrap();
        // As when a process ends, also if children have the file.
        flock(&interrupted._lock, FlockOperation::Unlock).unwrap();
        let left = interrupted.folder.keep();
        let others = ["onrush-measure-of-a-user", "films"].map(|name| parent.path().join(name));
        for other in &others {
            fs::create_dir(other).unwrap();
        }
        let next = make();
        assert!(!left.exists());
        assert!(used.path().exists() && next.path().exists());
        assert!(others.iter().all(|other| other.exists()));
        drop((used, next));
        assert_eq!(fs::read_dir(&parent).unwrap().count(), others.len());
    }
}
