//! Segments of a channel that memory is too small for: on a disk, in files without names.
//!
//! A file has no name from its beginning on (`O_TMPFILE`, or it loses it at once), so that what it
//! holds goes with the server, however that ends. Segments lie in it one behind the other; when a
//! file is long enough another is begun, and one is closed when the window has nothing in it any
//! more. Who sends a segment keeps its file open.
//!
//! A thread of each channel writes, so that a slow disk holds nobody up: while it writes, segments
//! wait in memory, within the bound of that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_wire::hls::live::{Leaving, Stored, Window};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};
use rustix::io::Errno;
use tracing::{info, warn};

use super::stats::{HlsStats, add};
use crate::random::random;

/// Of how many files the segments of a channel are in at the least, when all are full: a file is
/// freed as a whole.
const FILES: u64 = 32;

/// How long nothing is written after an error: each makes the window shorter.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What a file is called while it has a name.
const PREFIX: &str = ".onrush-hls-";

/// The folder of the files of all channels, which is held: one with nothing but files without names
/// looks empty, and is removed after a while where others are, too (/var/tmp).
#[derive(Debug)]
pub(super) struct StoreFolder {
    path: PathBuf,
    opened: Mutex<Option<Arc<OwnedFd>>>,
}

/// What a channel has on the disk.
#[derive(Debug)]
pub(super) struct DiskStore {
    folder: Arc<StoreFolder>,
    file_bytes: u64,
    files: Mutex<Files>,
    stats: Arc<HlsStats>,
    has_failed: Mutex<bool>,
}

#[derive(Debug, Default)]
struct Files {
    open: BTreeMap<u64, Arc<File>>,
    /// The number of the file that is written, and how long it is.
    newest: u64,
    length: u64,
}

impl StoreFolder {
    pub(super) fn new(path: &Path) -> Self {
        // If it cannot be opened, who writes tries again, and says why it cannot.
        let opened = open_locked(path).ok().map(Arc::new);
        Self {
            path: path.to_owned(),
            opened: Mutex::new(opened),
        }
    }

    /// A file in it without a name, whatever became of its path.
    fn without_name(&self) -> io::Result<File> {
        let opened = lock(&self.opened).clone();
        // What a file system says of one that was removed is its own affair, success included.
        let is_there = |it: &Arc<OwnedFd>| fstat(it).is_ok_and(|it| it.st_nlink > 0);
        if let Some(folder) = opened.filter(is_there) {
            match without_name(&folder) {
                Err(Errno::NOENT | Errno::STALE) => {}
                made => return Ok(made?),
            }
        }
        // It was removed, and may have been made anew.
        let folder = Arc::new(open_locked(&self.path)?);
        *lock(&self.opened) = Some(Arc::clone(&folder));
        Ok(without_name(&folder)?)
    }
}

impl DiskStore {
    /// Of a channel, in that folder, for so many bytes.
    pub(super) fn new(folder: &Arc<StoreFolder>, bytes_max: u64, stats: &Arc<HlsStats>) -> Self {
        Self {
            folder: Arc::clone(folder),
            file_bytes: (bytes_max / FILES).max(1),
            files: Mutex::default(),
            stats: Arc::clone(stats),
            has_failed: Mutex::new(false),
        }
    }

    /// The part of `bytes_max` that segments may have: the rest is for those that have left the
    /// window while others in their file have not.
    pub(super) fn segment_bytes_max(bytes_max: u64) -> u64 {
        bytes_max - bytes_max / 8
    }

    /// Writes a segment. Blocks.
    pub(super) fn write(&self, segment: &Leaving) -> io::Result<Stored> {
        let written = self.try_to_write(segment);
        let mut has_failed = lock(&self.has_failed);
        match &written {
            Ok(_) => {
                *has_failed = false;
                add(&self.stats.stores);
            }
            Err(error) => {
                add(&self.stats.stores_failed);
                if !std::mem::replace(&mut *has_failed, true) {
                    let folder = self.folder.path.display();
                    warn!(
                        "{folder}: a segment cannot be stored: {error}; the window of the channel \
                         gets shorter"
                    );
                }
            }
        }
        written
    }

    fn try_to_write(&self, segment: &Leaving) -> io::Result<Stored> {
        let (number, file, start) = self.end_of_newest()?;
        let mut at = start;
        for part in &segment.parts {
            file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        let mut files = self.files();
        files.length = at;
        Ok(Stored {
            file: number,
            start,
            bytes: at - start,
        })
    }

    /// The file that is written, and where it ends; one that is long enough is closed.
    fn end_of_newest(&self) -> io::Result<(u64, Arc<File>, u64)> {
        let mut files = self.files();
        let newest = files.newest;
        if files.length < self.file_bytes
            && let Some(file) = files.open.get(&newest)
        {
            return Ok((newest, Arc::clone(file), files.length));
        }
        let file = Arc::new(self.folder.without_name()?);
        let number = newest + 1;
        files.open.insert(number, Arc::clone(&file));
        (files.newest, files.length) = (number, 0);
        Ok((number, file, 0))
    }

    /// The file of that number, if it is there still.
    pub(super) fn file(&self, number: u64) -> Option<Arc<File>> {
        self.files().open.get(&number).map(Arc::clone)
    }

    /// The window, which is locked meanwhile, has nothing any more in files before this one. They
    /// are closed when what is returned is dropped: to free a long file takes time.
    #[must_use]
    pub(super) fn close_before(&self, first: Option<u64>) -> Vec<Arc<File>> {
        let mut files = self.files();
        // What is written may be in none of the window yet.
        let first = first.unwrap_or(u64::MAX).min(files.newest);
        let kept = files.open.split_off(&first);
        let closed = std::mem::replace(&mut files.open, kept);
        closed.into_values().collect()
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }
}

/// What a channel has that stores what leaves its window.
pub(super) trait Storing: Send + Sync + 'static {
    /// Where that goes; `None` if it stores nothing.
    fn store(&self) -> Option<&DiskStore>;
    /// What is kept of it.
    fn window(&self) -> MutexGuard<'_, Window>;
    /// Playlists say something else now.
    fn has_changed(&self);

    /// Lets others see a window that was changed, or only looked at; files in which it has nothing
    /// any more are closed.
    fn release(&self, window: MutexGuard<'_, Window>, is_changed: bool) {
        let store = self.store();
        let closed = store.map(|store| store.close_before(window.first_file()));
        // Before anybody sees it: who finds there what it waits for is not to get a text of before.
        if is_changed {
            self.has_changed();
        }
        drop(window);
        drop(closed);
    }
}

/// The thread of a channel that writes. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Writer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts it, if the channel stores anything.
    pub(super) fn start(channel: &Arc<impl Storing>) -> io::Result<Option<Self>> {
        if channel.store().is_none() {
            return Ok(None);
        }
        // One is enough: it looks for all that is to be written.
        let (wake, woken) = sync_channel(1);
        let channel = Arc::clone(channel);
        let thread = thread::Builder::new().name("onrush-hls-disk".to_owned());
        let thread = thread.spawn(move || write_all(&*channel, &woken))?;
        Ok(Some(Self {
            wake: Some(wake),
            thread: Some(thread),
        }))
    }

    /// There may be something to be written.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake {
            // If it has not looked since the last time, it will.
            let _full = wake.try_send(());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn write_all(channel: &impl Storing, woken: &Receiver<()>) {
    let Some(store) = channel.store() else { return };
    let mut waits_until = None;
    while woken.recv().is_ok() {
        if waits_until.is_some_and(|until| Instant::now() < until) {
            continue;
        }
        waits_until = None;
        while waits_until.is_none() {
            let leaving = channel.window().leaving();
            let Some(leaving) = leaving else { break };
            let written = store.write(&leaving);
            let mut window = channel.window();
            match written {
                Ok(stored) => window.has_stored(&leaving, stored),
                Err(_) => {
                    window.could_not_store();
                    waits_until = Some(Instant::now() + RETRY_AFTER);
                }
            }
            channel.release(window, true);
        }
    }
}

/// Makes the folder, and removes what a server may have left that was killed while a file had its
/// name.
///
/// # Errors
///
/// If nothing can be written there.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // Another server may have been quicker.
            drop(fs::remove_file(entry.path()));
        }
    }
    Ok(without_name(&open_locked(folder)?).map(drop)?)
}

/// The folder at `path`, locked until it is closed: systemd-tmpfiles leaves such a one alone
/// (tmpfiles.d(5)).
fn open_locked(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty())?;
    // Shared, because other servers may have it, too.
    if let Err(error) = flock(&folder, FlockOperation::NonBlockingLockShared) {
        let path = path.display();
        info!("{path} is not locked, and may be removed while it looks empty: {error}");
    }
    Ok(folder)
}

/// A file in that folder without a name.
fn without_name(folder: &OwnedFd) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(folder, ".", flags | OFlags::TMPFILE, mode) {
        // The file system has no such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random()));
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            let file = openat(folder, name.as_str(), flags, mode)?;
            unlinkat(folder, name.as_str(), AtFlags::empty())?;
            Ok(file.into())
        }
        made => Ok(made?.into()),
    }
}

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::stream::empty_window;
    use super::*;

    /// A channel that counts its changes, and wants nobody to see one before it is told.
    struct Counting {
        window: Mutex<Window>,
        changes: AtomicUsize,
    }

    impl Storing for Counting {
        fn store(&self) -> Option<&DiskStore> {
            None
        }

        fn window(&self) -> MutexGuard<'_, Window> {
            lock(&self.window)
        }

        fn has_changed(&self) {
            assert!(self.window.try_lock().is_err(), "somebody may see it");
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_change_is_told_before_anybody_sees_it() {
        let channel = Counting {
            window: Mutex::new(empty_window()),
            changes: AtomicUsize::new(0),
        };
        for (is_changed, expected) in [(false, 0), (true, 1), (true, 2)] {
            channel.release(channel.window(), is_changed);
            assert_eq!(channel.changes.load(Ordering::Relaxed), expected);
            assert!(channel.window.try_lock().is_ok());
        }
    }

    fn leaving(byte: u8, bytes: usize) -> Leaving {
        Leaving {
            rendition: 0,
            number: byte.into(),
            parts: vec![
                vec![byte; bytes / 2].into(),
                vec![byte; bytes - bytes / 2].into(),
            ],
        }
    }

    #[test]
    fn segments_lie_in_files_without_names_and_go_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let held = Arc::new(StoreFolder::new(folder.path()));
        let store = DiskStore::new(&held, 32 * 1000, &Arc::default());
        let stored: Vec<_> = (1..=10)
            .map(|byte| store.write(&leaving(byte, 300)).unwrap())
            .collect();
        // Four in each: a file is long enough from 1000 bytes on.
        let files: Vec<_> = stored.iter().map(|it| it.file).collect();
        assert_eq!(files, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let read = |at: &Stored, file: &File| {
            let mut bytes = vec![0; 300];
            file.read_exact_at(&mut bytes, at.start).unwrap();
            bytes
        };
        for (byte, at) in (1..=10).zip(&stored) {
            assert_eq!(read(at, &store.file(at.file).unwrap()), [byte; 300]);
        }
        let sending = store.file(1).unwrap();
        drop(store.close_before(Some(2)));
        assert!(store.file(1).is_none() && store.file(2).is_some());
        assert_eq!(read(&stored[2], &sending), [3; 300], "who sends it has it");
        drop(store.close_before(None));
        assert!(store.file(2).is_none() && store.file(3).is_some());
        let next = store.write(&leaving(11, 300)).unwrap();
        assert_eq!((next.file, next.start), (3, 600));
    }

    /// As systemd-tmpfiles, which removes what looks empty and is not locked.
    #[test]
    fn the_folder_is_held_and_outlives_its_path() {
        let root = tempfile::tempdir().unwrap();
        let [path, moved] = ["store", "moved"].map(|name| root.path().join(name));
        prepare(&path).unwrap();
        let held = Arc::new(StoreFolder::new(&path));
        let cleaner = File::open(&path).unwrap();
        let lock_alone = || flock(&cleaner, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock_alone(), Err(Errno::WOULDBLOCK));
        // Each in a file of its own.
        let store = DiskStore::new(&held, 32, &Arc::default());
        store.write(&leaving(1, 300)).unwrap();
        fs::rename(&path, &moved).unwrap();
        store.write(&leaving(2, 300)).unwrap();
        // Once that folder is gone, another is found at the path.
        fs::remove_dir(&moved).unwrap();
        assert!(store.write(&leaving(3, 300)).is_err());
        fs::create_dir(&path).unwrap();
        store.write(&leaving(4, 300)).unwrap();
        let cleaner = File::open(&path).unwrap();
        let locked = flock(&cleaner, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(locked, Err(Errno::WOULDBLOCK));
    }

    #[test]
    fn what_a_killed_server_has_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let within = folder.path().join("new");
        fs::create_dir(&within).unwrap();
        fs::write(within.join(format!("{PREFIX}0123456789abcdef")), "left").unwrap();
        fs::write(within.join("film.mp4"), "of somebody else").unwrap();
        prepare(&within).unwrap();
        let left: Vec<_> = fs::read_dir(&within).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert!(within.join("film.mp4").exists());
        assert!(prepare(&within.join("film.mp4")).is_err());
    }
}
