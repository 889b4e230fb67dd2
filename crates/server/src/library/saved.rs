//! Indexes that outlive the server: a film that was indexed once is not read again after a restart.
//!
//! Indexes of whole files are [saved](Index::save) in a folder, by a thread of its own, and looked
//! for there before a file is read. One is believed if it is of a file with the same device, inode,
//! length and time of change. Where another time tells that something else about the file has
//! changed (`st_ctime`: its name, its owner, or times that were put back), some of the file's bytes
//! are compared.
//!
//! Nothing here is needed: what is missing, broken or of another build is made anew, and what
//! cannot be written is not.

mod entry;
mod folder;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use onrush_wire::media::Index;
use tracing::{info, warn};

use super::identity::{Identity, differing};
use crate::store::Backing;
use entry::{EntryError, Key};
pub use folder::SAVED_INDEX_BYTES_MAX;
use folder::{Folder, Room};

/// Indexes that wait to be written, at the most; those beyond are not, until their film is indexed
/// another time.
pub const SAVING_MAX: usize = 16;

/// The folder in the state directory.
const FOLDER: &str = "indexes";

/// Places in a file that are compared where something about it has changed.
const PROBES_MAX: usize = 16;

/// How long a stop waits for what is being written.
const LAST_WRITE_MAX: Duration = Duration::from_secs(1);

/// What became of indexes that were looked for, and to be saved.
#[derive(Debug, Default)]
pub struct SavedCounters {
    /// Found, so that the file was not read.
    pub restored: AtomicU64,
    /// Looked for and not found.
    pub missed: AtomicU64,
    /// Found and thrown away: damaged, or of another build.
    pub thrown_away: AtomicU64,
    /// Written.
    pub saved: AtomicU64,
    /// Not written: no room, too many at once, or an error.
    pub unsaved: AtomicU64,
    /// Removed to make room.
    pub removed: AtomicU64,
    /// Bytes of all.
    pub bytes: AtomicU64,
}

/// Where indexes are saved.
#[derive(Debug)]
pub(super) struct SavedIndexes {
    folder: Arc<Folder>,
    fallback_bitrate: u64,
    counters: Arc<SavedCounters>,
    /// Gone when this is.
    jobs: Option<SyncSender<Job>>,
    /// Told when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

/// An index to be saved.
#[derive(Debug)]
struct Job {
    file: Arc<dyn Backing>,
    /// What the file was when it was indexed.
    identity: Identity,
    /// Whether the index is of its elementary streams.
    is_elementary: bool,
    index: Index,
}

/// What the thread that writes has.
#[derive(Debug)]
struct Writer {
    folder: Arc<Folder>,
    bytes_max: u64,
    fallback_bitrate: u64,
    counters: Arc<SavedCounters>,
    has_failed: bool,
}

/// Makes a state directory, if there is none, and says whether indexes can be saved there.
///
/// # Errors
///
/// Why they cannot.
pub fn prepare_state(state: &Path) -> io::Result<()> {
    Folder::open(&indexes_folder(state)).map(|_| ())
}

/// Where in a state directory indexes are saved.
#[must_use]
pub fn indexes_folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

/// How many indexes are saved in a state directory, and how many bytes they take.
///
/// # Errors
///
/// If it cannot be read.
pub fn saved_indexes(state: &Path) -> io::Result<(usize, u64)> {
    folder::held(&indexes_folder(state))
}

impl SavedIndexes {
    /// Those in this state directory, which has no more than `bytes_max` bytes of them.
    ///
    /// # Errors
    ///
    /// If nothing can be written there, or there is no thread to do so.
    pub(super) fn open(
        state: &Path,
        bytes_max: u64,
        fallback_bitrate: u64,
        counters: Arc<SavedCounters>,
    ) -> io::Result<Self> {
        let folder = Arc::new(Folder::open(&indexes_folder(state))?);
        let (jobs, waiting) = sync_channel(SAVING_MAX);
        let (alive, ended) = sync_channel(0);
        let mut writer = Writer {
            folder: Arc::clone(&folder),
            bytes_max,
            fallback_bitrate,
            counters: Arc::clone(&counters),
            has_failed: false,
        };
        thread::Builder::new()
            .name("onrush-saving".to_owned())
            .spawn(move || {
                let _alive: SyncSender<()> = alive;
                writer.run(&waiting);
            })?;
        Ok(Self {
            folder,
            fallback_bitrate,
            counters,
            jobs: Some(jobs),
            ended: Mutex::new(ended),
        })
    }

    /// The index of an open file that has this identity, or of its elementary streams, if there is
    /// one. Blocks.
    pub(super) fn find(
        &self,
        name: &str,
        file: &File,
        identity: Identity,
        is_elementary: bool,
    ) -> Option<Index> {
        let path = self.folder.path_of(&identity, is_elementary);
        let found = self.look_for(name, file, identity, &path);
        let counter = match found {
            Some(_) => &self.counters.restored,
            None => &self.counters.missed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn look_for(&self, name: &str, file: &File, identity: Identity, path: &Path) -> Option<Index> {
        let key = Key::of(&file.metadata().ok()?, self.fallback_bitrate);
        let bytes = match Folder::read(path) {
            Ok(bytes) => bytes?,
            Err(error) => {
                warn!("{name:?}: its saved index cannot be read: {error}");
                return None;
            }
        };
        let of = match entry::read(&bytes) {
            Ok((saved, index)) => {
                let same = Key {
                    changed_ns: saved.changed_ns,
                    ..key
                };
                // Another file by now, or of another setting: the next one takes its place.
                if saved != same || key.identity != identity {
                    return None;
                }
                let restored = Index::restore(index).map(|index| (saved, index));
                restored.map_err(|error| error.to_string())
            }
            Err(EntryError::OtherBuild) => {
                info!("{name:?} is indexed anew: another build of the server saved its index");
                self.throw_away(path);
                return None;
            }
            Err(error) => Err(error.to_string()),
        };
        let (saved, index) = match of {
            Ok(found) => found,
            Err(reason) => {
                warn!("{name:?} is indexed anew: its saved index is thrown away: {reason}");
                self.throw_away(path);
                return None;
            }
        };
        if saved.changed_ns != key.changed_ns && !is_same(file, &index) {
            return None;
        }
        Folder::used(path);
        Some(index)
    }

    fn throw_away(&self, path: &Path) {
        self.counters.thrown_away.fetch_add(1, Ordering::Relaxed);
        let _gone = std::fs::remove_file(path);
    }

    /// Has the index of a whole file saved, sooner or later. Does not wait.
    pub(super) fn keep(
        &self,
        file: Arc<dyn Backing>,
        identity: Identity,
        is_elementary: bool,
        index: Index,
    ) {
        let job = Job {
            file,
            identity,
            is_elementary,
            index,
        };
        let sent = self.jobs.as_ref().map(|jobs| jobs.try_send(job));
        if !matches!(sent, Some(Ok(()))) {
            self.counters.unsaved.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for SavedIndexes {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(LAST_WRITE_MAX) == Err(RecvTimeoutError::Timeout) {
            warn!("the last indexes may not be saved: writing them takes too long");
        }
    }
}

impl Writer {
    fn run(&mut self, waiting: &Receiver<Job>) {
        let mut room = Room::in_folder(&self.folder, self.bytes_max);
        self.count(&room);
        while let Ok(job) = waiting.recv() {
            if !self.save(&job, &mut room) {
                self.counters.unsaved.fetch_add(1, Ordering::Relaxed);
            }
            self.count(&room);
        }
    }

    fn count(&self, room: &Room) {
        self.counters.bytes.store(room.bytes(), Ordering::Relaxed);
    }

    /// Saves an index; whether it was.
    fn save(&mut self, job: &Job, room: &mut Room) -> bool {
        let Ok(metadata) = job.file.file().metadata() else {
            return false;
        };
        let key = Key::of(&metadata, self.fallback_bitrate);
        // It has changed since.
        let is_same = key.identity == job.identity;
        let Some(index) = job.index.save().filter(|_| is_same) else {
            return false;
        };
        let bytes = entry::to_bytes(key, &index);
        let place = self.folder.path_of(&job.identity, job.is_elementary);
        match self.folder.write(&place, &bytes, room) {
            Ok(written) => {
                let removed = &self.counters.removed;
                removed.fetch_add(written.removed, Ordering::Relaxed);
                let saved = &self.counters.saved;
                saved.fetch_add(written.is_written.into(), Ordering::Relaxed);
                written.is_written
            }
            Err(error) => {
                // Once: the next film's error is the same.
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!("indexes cannot be saved, and films are read anew later: {error}");
                }
                false
            }
        }
    }
}

/// Whether some of a file's bytes are those that were indexed.
fn is_same(file: &File, index: &Index) -> bool {
    let is_any = !index.probes(1).is_empty();
    is_any && differing(file, index, PROBES_MAX).is_none()
}

#[cfg(test)]
mod tests;
