//! What was broken off and is too old: found by its name, and removed unless somebody writes to it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onrush_sys::fs::{Folder, Root, lock};

/// What became of what was broken off.
#[derive(Debug, Default)]
pub(super) struct Swept {
    pub(super) removed: usize,
    /// The first that could not be looked at or removed, below the root, and why.
    pub(super) failed: Option<(PathBuf, io::Error)>,
}

impl Swept {
    fn fail(&mut self, at: PathBuf, error: io::Error) {
        // Somebody else may have been quicker.
        if error.kind() != io::ErrorKind::NotFound {
            self.failed.get_or_insert((at, error));
        }
    }

    fn add(&mut self, more: Self) {
        self.removed += more.removed;
        self.failed = self.failed.take().or(more.failed);
    }
}

/// Removes what was broken off that long ago in a folder and in those in it. What cannot be removed
/// keeps nothing else there.
pub(super) fn sweep(root: &Root, at: &Path, kept_time: Duration, depth: usize) -> Swept {
    let Ok(folder) = root.folder(at) else {
        // It has gone, or is not for this account.
        return Swept::default();
    };
    let (mut swept, folders) = remove_leftovers(&folder, at, kept_time);
    for name in folders.into_iter().filter(|_| depth > 0) {
        swept.add(sweep(root, &at.join(name), kept_time, depth - 1));
    }
    swept
}

/// The same in one folder alone, which is at that path; and which folders are in it.
pub(super) fn remove_leftovers(
    folder: &Folder,
    at: &Path,
    kept_time: Duration,
) -> (Swept, Vec<OsString>) {
    let (mut swept, mut folders) = (Swept::default(), Vec::new());
    let entries = match entries(folder) {
        Ok(entries) => entries,
        Err(error) => {
            swept.fail(at.to_owned(), error);
            return (swept, folders);
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(b".") {
            let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
            folders.extend(is_folder.then_some(name));
        } else if name.as_bytes().starts_with(PREFIX.as_bytes()) && is_old(folder, &name, kept_time)
        {
            match folder.remove(&name) {
                Ok(()) => swept.removed += 1,
                Err(error) => swept.fail(at.join(&name), error),
            }
        }
    }
    (swept, folders)
}

/// Whether there is nothing else in a folder, and nobody writes to any of it.
pub(super) fn has_only_leftovers(folder: &Folder) -> io::Result<bool> {
    for entry in entries(folder)? {
        let name = entry?.file_name();
        let is_leftover = name.as_bytes().starts_with(PREFIX.as_bytes());
        if !is_leftover || !is_old(folder, &name, Duration::ZERO) {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn entries(folder: &Folder) -> io::Result<fs::ReadDir> {
    let fd = folder.as_file().as_raw_fd();
    fs::read_dir(format!("/proc/self/fd/{fd}"))
}

/// Whether nobody writes to it, and nobody has for so long.
fn is_old(folder: &Folder, name: &OsStr, kept_time: Duration) -> bool {
    let age = |file: &File| -> io::Result<Duration> {
        let modified = file.metadata()?.modified()?;
        Ok(modified.elapsed().unwrap_or_default())
    };
    // NFS locks for itself alone what is open for writing (flock(2)); what belongs to another
    // account may be for reading only.
    let file = folder.open_to_write(name);
    let file = file.or_else(|_| folder.open(name));
    let is_old = |file: File| -> io::Result<bool> { Ok(age(&file)? >= kept_time && lock(&file)?) };
    file.and_then(is_old).unwrap_or(false)
}

/// What the names of files begin with that are not whole.
pub(super) const PREFIX: &str = ".onrush-upload-";
