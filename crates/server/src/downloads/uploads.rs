//! Files that come: written beside the place where they are to be, under a name that nobody sees,
//! and put there in one step when they are whole.
//!
//! What was broken off stays for a time, for the uploader whose it is to go on with. Its name is
//! made of the uploader's and the file's, so that it is found again, also after a restart; whoever
//! writes to it holds a lock, so that two do not, also not two processes of which one succeeds the
//! other. What waits for a disk does so on another thread.

mod error;
mod kept;
mod leftovers;
mod renamed;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::{File, FileTimes};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use onrush_sys::fs::{Folder, Root, free_bytes, lock, set_apart};
use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tracing::{info, warn};

pub(crate) use self::error::UploadError;
use self::kept::Kept;
use self::leftovers::{PREFIX, Swept, has_only_leftovers, remove_leftovers, sweep};
pub(crate) use self::renamed::Moving;
use super::Site;
use super::admission::FileSlot;
use super::config::{UploadSync, UploadsConfig};
use crate::engine::shared::{bump, drop_one};
use crate::library::{DEPTH_MAX, blocking, safe};
use crate::transfer::StoredTo;
use crate::users::Uploader;

/// Uploads, for the one thread that takes them.
#[derive(Debug)]
pub(crate) struct Uploads {
    root: Arc<Root>,
    pub(crate) config: UploadsConfig,
    active: Cell<usize>,
    /// What this process writes to: folder and name.
    written: RefCell<HashSet<(String, OsString)>>,
    /// What is about to have another name.
    moving: RefCell<Vec<String>>,
}

/// What is to be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Whose it is.
    pub(crate) uploader: &'a Uploader,
    /// The file, below the root.
    pub(crate) name: &'a str,
    /// Where in the file what comes begins; if that is not said, behind all of one that is whole,
    /// and else where [`Uploads::unfinished`] says.
    pub(crate) start: Option<u64>,
    /// How long the file is to be, if that is known.
    pub(crate) total_bytes: Option<u64>,
    /// Whether folders that there are not are made.
    pub(crate) makes_folders: bool,
}

/// A file that comes. Dropped before it is finished, it can be gone on with.
#[derive(Debug)]
pub(crate) struct Upload {
    kept: Arc<Kept>,
    start: u64,
    is_set_apart: bool,
    held: Held,
}

/// Where a file is to be, and is written.
#[derive(Debug)]
struct Place {
    folder: Folder,
    target: OsString,
    temporary: OsString,
}

/// What is written to, open, locked, and with what is kept of it.
#[derive(Debug)]
struct Opened {
    file: File,
    /// Where what comes begins.
    start: u64,
    is_set_apart: bool,
}

/// A place among those who write, given back when dropped.
#[derive(Debug)]
struct Held {
    site: Rc<Site>,
    key: (String, OsString),
    _files: [FileSlot; 3],
}

impl Uploads {
    pub(crate) fn new(root: Arc<Root>, config: UploadsConfig) -> Self {
        Self {
            root,
            config,
            active: Cell::new(0),
            written: RefCell::default(),
            moving: RefCell::default(),
        }
    }

    /// Begins to store a file, or goes on with one.
    ///
    /// # Errors
    ///
    /// See [`UploadError`].
    pub(crate) async fn begin(
        &self,
        site: &Rc<Site>,
        wanted: Wanted<'_>,
    ) -> Result<Upload, UploadError> {
        let UploadsConfig {
            upload_bytes_max,
            free_bytes_min,
            ..
        } = self.config;
        let begin = wanted
            .start
            .unwrap_or(0)
            .max(wanted.total_bytes.unwrap_or(0));
        if begin > upload_bytes_max {
            return Err(UploadError::TooLarge(upload_bytes_max));
        }
        let held = self.hold(site, wanted)?;
        let (root, temporary) = (Arc::clone(&self.root), held.key.1.clone());
        let (path, makes_folders) = (path_of(wanted.name)?, wanted.makes_folders);
        let (start, total_bytes) = (wanted.start, wanted.total_bytes);
        let opened = blocking(move || {
            let at = Place::find(&root, &path, temporary, makes_folders)?;
            let opened = at.open(start, total_bytes, free_bytes_min)?;
            Ok(opened.map(|opened| (at, opened)))
        });
        match opened.await {
            Ok(Ok((at, opened))) => Ok(Upload {
                kept: Arc::new(Kept::new(at, opened.file)),
                start: opened.start,
                is_set_apart: opened.is_set_apart,
                held,
            }),
            Ok(Err(offset)) => Err(match offset {
                Some(bytes) => UploadError::Offset(bytes),
                None => UploadError::Busy("somebody is sending this file now; try later"),
            }),
            Err(error) => {
                let error = UploadError::from(error);
                if matches!(error, UploadError::NoSpace) {
                    bump(&site.stats.uploads_refused, 1);
                }
                Err(error)
            }
        }
    }

    /// A place among those who write.
    fn hold(&self, site: &Rc<Site>, wanted: Wanted<'_>) -> Result<Held, UploadError> {
        let refused = |note| {
            bump(&site.stats.uploads_refused, 1);
            UploadError::Busy(note)
        };
        if self.active.get() >= self.config.upload_files_max {
            return Err(refused("too many files are sent here now; try later"));
        }
        let name = wanted.name.trim_matches('/');
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.check_stays(folder)?;
        let key = (folder.to_owned(), temporary_name(wanted.uploader, name));
        if self.written.borrow().contains(&key) {
            return Err(UploadError::Busy(
                "somebody is sending this file now; try later",
            ));
        }
        // The file, and a pipe.
        let files = [(); 3].map(|()| FileSlot::take(site));
        let [Some(a), Some(b), Some(c)] = files else {
            return Err(refused("too many files are open; try later"));
        };
        self.written.borrow_mut().insert(key.clone());
        self.active.set(self.active.get() + 1);
        bump(&site.stats.uploads, 1);
        Ok(Held {
            site: Rc::clone(site),
            key,
            _files: [a, b, c],
        })
    }

    /// From which byte on what that uploader was sending is gone on with, if it was broken off.
    pub(crate) async fn unfinished(&self, uploader: &Uploader, name: &str) -> Option<u64> {
        let path = path_of(name).ok()?;
        let temporary = temporary_name(uploader, name.trim_matches('/'));
        let root = Arc::clone(&self.root);
        let length = blocking(move || {
            let folder = root.folder(&beneath(path.parent().unwrap_or_else(|| Path::new(""))))?;
            let metadata = folder.open(&temporary)?.metadata()?;
            match is_in_its_place(metadata.nlink()) {
                true => Err(io::ErrorKind::NotFound.into()),
                false => Ok(resumed_at(metadata.len())),
            }
        });
        length.await.ok()
    }

    /// Does something to what is at a name.
    async fn change(
        &self,
        name: &str,
        change: impl FnOnce(&Folder, &OsStr) -> io::Result<()> + Send + 'static,
    ) -> Result<(), UploadError> {
        let (root, path) = (Arc::clone(&self.root), path_of(name)?);
        let is_synced = self.config.sync == UploadSync::All;
        let changed = blocking(move || {
            let (folder, name) = folder_of(&root, &path)?;
            change(&folder, &name)?;
            if is_synced { folder.sync() } else { Ok(()) }
        });
        Ok(changed.await?)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// See [`UploadError`].
    pub(crate) async fn remove(&self, name: &str) -> Result<(), UploadError> {
        self.change(name, Folder::remove).await
    }

    /// Makes a folder.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub(crate) async fn make_folder(&self, name: &str) -> Result<(), UploadError> {
        self.change(name, Folder::make_folder).await
    }

    /// Removes a folder that has nothing in it but what was broken off.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub(crate) async fn remove_folder(&self, name: &str) -> Result<(), UploadError> {
        let (root, path) = (Arc::clone(&self.root), path_of(name)?);
        let remove = move |folder: &Folder, name: &OsStr| {
            let removed = folder.remove_folder(name);
            if !removed
                .as_ref()
                .is_err_and(|it| it.kind() == io::ErrorKind::DirectoryNotEmpty)
            {
                return removed;
            }
            let within = root.folder(&path)?;
            if !has_only_leftovers(&within)? {
                return removed;
            }
            let (swept, _) = remove_leftovers(&within, &path, Duration::ZERO);
            match swept.failed {
                Some((_, error)) => Err(error),
                None => folder.remove_folder(name),
            }
        };
        self.change(name, remove).await
    }

    /// Whether there is a file or a folder at a name, to be changed.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub(crate) async fn is_there(&self, name: &str) -> Result<(), UploadError> {
        let stat = |folder: &Folder, name: &OsStr| folder.stat(name).map(drop);
        self.change(name, stat).await
    }

    /// Says that a file last changed then.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub(crate) async fn set_modified(&self, name: &str, at_s: i64) -> Result<(), UploadError> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at_s.max(0).cast_unsigned());
        let touch = move |folder: &Folder, name: &OsStr| {
            let times = FileTimes::new().set_modified(at);
            folder.open(name)?.set_times(times)
        };
        self.change(name, touch).await
    }

    /// Removes what was broken off and is too old, at the start and then again and again.
    pub(crate) async fn sweeping(self: Rc<Self>) {
        let every = (self.config.kept_time_max / 4).clamp(SWEEP_EVERY.0, SWEEP_EVERY.1);
        loop {
            let (root, kept_time) = (Arc::clone(&self.root), self.config.kept_time_max);
            let swept =
                blocking(move || Ok(sweep(&root, Path::new("."), kept_time, DEPTH_MAX))).await;
            // It ends badly only if the process does.
            let Swept { removed, failed } = swept.unwrap_or_default();
            if removed > 0 {
                info!("uploads: {removed} that were broken off are removed");
            }
            if let Some((at, error)) = failed {
                let at = at.strip_prefix(".").unwrap_or(&at).display();
                warn!("uploads: what was broken off cannot be removed: {at}: {error}");
            }
            sleep(every).await;
        }
    }
}

impl Upload {
    /// Where in the file what comes begins.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Where it is stored, up to that byte of the file if that is known.
    pub(crate) fn to(&self, end: Option<u64>) -> StoredTo {
        let config = &self.held.uploads().config;
        let kept = Arc::clone(&self.kept);
        StoredTo {
            file: Arc::clone(&kept.file),
            offset: self.start,
            end,
            file_bytes_max: config.upload_bytes_max,
            free_bytes_min: (!self.is_set_apart).then_some(config.free_bytes_min),
            writes_early: config.sync == UploadSync::All,
            held: Some(kept),
        }
    }

    /// It is whole: puts it in its place. Whether nothing was there; that fails where something is
    /// that is not to be replaced.
    ///
    /// # Errors
    ///
    /// See [`UploadError`]: then it can be gone on with, unless its disk did not take it.
    pub(crate) async fn finish(self, replaces: bool) -> Result<bool, UploadError> {
        let sync = self.held.uploads().config.sync;
        let kept = Arc::clone(&self.kept);
        let finished = blocking(move || {
            let Kept { at, file, .. } = &*kept;
            // What was set apart for more than came is given back.
            file.set_len(file.metadata()?.len())?;
            if sync == UploadSync::All {
                forget_unless_written(file, file.sync_all())?;
            }
            let is_new = at.folder.stat(&at.target).is_err();
            let to = (&at.folder, &*at.target);
            at.folder.rename(&at.temporary, to, replaces)?;
            if sync == UploadSync::All {
                at.folder.sync()?;
            }
            kept.set_whole();
            Ok(is_new)
        });
        let is_new = finished.await?;
        bump(&self.held.site.stats.uploaded, 1);
        Ok(is_new)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.kept.is_whole() {
            bump(&self.held.site.stats.uploads_broken, 1);
        }
    }
}

impl Held {
    fn uploads(&self) -> &Uploads {
        let uploads = self.site.uploads.as_ref();
        uploads.expect("who uploads does so where files are taken")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let uploads = self.uploads();
        uploads.written.borrow_mut().remove(&self.key);
        uploads.active.set(uploads.active.get() - 1);
        drop_one(&self.site.stats.uploads);
    }
}

impl Place {
    fn find(
        root: &Root,
        path: &Path,
        temporary: OsString,
        makes_folders: bool,
    ) -> io::Result<Self> {
        let target = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        let folder = match makes_folders {
            true => root.folder_made(&beneath(parent))?,
            false => root.folder(&beneath(parent))?,
        };
        let target = target.to_owned();
        match folder.stat(&target) {
            Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFDIR => {
                Err(io::ErrorKind::IsADirectory.into())
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Self {
                folder,
                target,
                temporary,
            }),
        }
    }

    /// Opens what is written to. Without that: how much there is, if what comes would leave a hole;
    /// nothing, if somebody else writes to it.
    fn open(
        &self,
        start: Option<u64>,
        total_bytes: Option<u64>,
        free_bytes_min: u64,
    ) -> io::Result<Result<Opened, Option<u64>>> {
        let is_there = self.is_begun()?;
        let file = self.folder.open_or_make(&self.temporary)?;
        // Whoever had it may have put it in its place meanwhile.
        let is_own = |file: &File| {
            let stat = self.folder.stat(&self.temporary);
            let inode = file.metadata().map(|it| it.ino());
            stat.is_ok_and(|stat| inode.is_ok_and(|inode| inode == stat.st_ino))
        };
        if !lock(&file)? || !is_own(&file) {
            return Ok(Err(None));
        }
        let begun = self.go_on_with(&file, is_there, (start, total_bytes), free_bytes_min);
        // Of nothing nothing is kept, nor of a copy.
        if !matches!(begun, Ok(Ok(_))) && (!is_there || file.metadata()?.len() == 0) {
            self.folder.remove(&self.temporary)?;
        }
        Ok(match begun? {
            Ok((start, is_set_apart)) => Ok(Opened {
                file,
                start,
                is_set_apart,
            }),
            Err(there) => Err(Some(there)),
        })
    }

    /// Whether something was broken off. What is in its place already loses its first name.
    fn is_begun(&self) -> io::Result<bool> {
        match self.folder.stat(&self.temporary) {
            Ok(stat) if is_in_its_place(stat.st_nlink) => {
                self.folder.remove(&self.temporary).map(|()| false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            stat => stat.map(|_| true),
        }
    }

    /// Has in `file` what is kept: where what comes begins then, and whether its room is set apart;
    /// or how much there is, if it would leave a hole.
    fn go_on_with(
        &self,
        file: &File,
        is_there: bool,
        (start, total_bytes): (Option<u64>, Option<u64>),
        free_bytes_min: u64,
    ) -> io::Result<Result<(u64, bool), u64>> {
        // Of what was not broken off the file itself is gone on with. One that cannot be read now
        // is not nothing: what comes would replace it by its own end.
        let target = match (is_there, start) {
            (true, _) | (false, Some(0)) => None,
            (false, _) => match self.folder.open(&self.target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                target => Some(target?),
            },
        };
        let there = target.as_ref().unwrap_or(file).metadata()?.len();
        let start = match (start, is_there) {
            (Some(start), _) => start,
            (None, true) => resumed_at(there),
            (None, false) => there,
        };
        if start > there {
            return Ok(Err(there));
        }
        let missing = total_bytes.map_or(0, |total| total.saturating_sub(start));
        match target {
            None => file.set_len(start)?,
            Some(target) => {
                check_room(file, start.saturating_add(missing), free_bytes_min)?;
                let mut into = file;
                if io::copy(&mut target.take(start), &mut into)? < start {
                    // Somebody has made it shorter meanwhile.
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        let is_set_apart = room_for(file, (start, missing), free_bytes_min)?;
        Ok(Ok((start, is_set_apart)))
    }
}

/// Whether a file that is called as one that is not whole has another name, too, and so is whole:
/// a process that ended before it could take the first name away ([`Folder::rename`]). Whoever
/// wrote to it would change what others read.
fn is_in_its_place(links: impl Into<u64>) -> bool {
    links.into() > 1
}

/// Where so many bytes that were broken off are gone on with: the last of them comes again. Clients
/// of FTP send nothing more of a file that is as long here as there (curl, `FileZilla`), and it may
/// have come whole and not be in its place: with that byte it is put there.
const fn resumed_at(bytes: u64) -> u64 {
    bytes.saturating_sub(1)
}

/// Empties the file, so that it is begun anew, if it could not be written: the kernel takes that
/// for written from then on (fsync(2)), and what is gone on with would have holes.
fn forget_unless_written(file: &File, written: io::Result<()>) -> io::Result<()> {
    if written.is_err() {
        file.set_len(0)?;
    }
    written
}

/// Fails if there is no room for so many bytes.
fn check_room(file: &File, bytes: u64, free_bytes_min: u64) -> io::Result<()> {
    match free_bytes(file)? < free_bytes_min.saturating_add(bytes) {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}

/// Whether room for so many bytes could be set apart; fails if there is none.
fn room_for(file: &File, (start, bytes): (u64, u64), free_bytes_min: u64) -> io::Result<bool> {
    check_room(file, bytes, free_bytes_min)?;
    Ok(bytes > 0 && set_apart(file, start, bytes)?)
}

/// The name as a path, if files can have it here.
fn path_of(name: &str) -> Result<PathBuf, UploadError> {
    let path = safe(name.trim_matches('/')).ok_or(UploadError::BadName)?;
    match path.file_name() {
        Some(_) => Ok(path),
        None => Err(UploadError::NoPlace("a folder is there")),
    }
}

/// The root itself, where there is no folder.
fn beneath(parent: &Path) -> PathBuf {
    Path::new(".").join(parent)
}

/// The folder that a name is in, and its last part.
fn folder_of(root: &Root, path: &Path) -> io::Result<(Folder, OsString)> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    Ok((root.folder(&beneath(parent))?, name.to_owned()))
}

/// What a file is called until it is whole. It is by its whole name: what is begun in a folder may
/// be a copy of what its uploader may not read, and is none of the folder's by another name.
fn temporary_name(uploader: &Uploader, name: &str) -> OsString {
    let mut hash = Sha256::new();
    hash.update(uploader.as_bytes());
    hash.update([0]);
    hash.update(name.as_bytes());
    let mut text = PREFIX.to_owned();
    for byte in &hash.finalize()[..16] {
        write!(text, "{byte:02x}").expect("writing to memory does not fail");
    }
    text.into()
}

/// How often it is looked for what is too old.
const SWEEP_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

#[cfg(test)]
mod tests;
