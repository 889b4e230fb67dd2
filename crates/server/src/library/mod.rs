//! The files that are served: names to media, and nothing outside the libraries.
//!
//! A file is read through once, on a blocking thread, to index it; all that ask for it meanwhile
//! wait for that one reading, and so does the next one who asks, should they all hang up. Each who
//! asks has the name looked up anew, at once where the kernel has it in its cache, and else on a
//! blocking thread. A file that grows goes on as the same; one that was replaced or changed in
//! place is another: it gets a new entry, and those who play the old one keep what they have
//! opened.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use onrush_sys::fs::Root;
use onrush_sys::thread::raise_open_files_limit;
use onrush_wire::media::ScanOptions;
use onrush_wire::name::shown;
#[cfg(doc)]
use onrush_wire::rtsp::ELEMENTARY;
use thiserror::Error;
use tokio::sync::{OnceCell, Semaphore};
use tracing::{error, warn};

use crate::config::Config;
use crate::devices::DevicePermits;
use crate::remote::{FilmFile, asked};

mod film_keys;
mod identity;
mod media;
mod names;
mod places;
mod saved;
mod scan;
mod settings;
mod tricks;
mod upkeep;
mod walk;

pub use film_keys::FilmKeys;
pub(crate) use film_keys::{is_marked, marked};
pub use identity::Identity;
use identity::{identified, identify};
pub use media::Media;
use media::Opened;
pub(crate) use media::plans::planned;
#[cfg(test)]
pub(crate) use media::plans::tell_of_plans;
pub(crate) use media::segments::version_of;
pub use media::{REFRESH_BYTES_MAX, REFRESH_EVERY};
pub use names::NAME_BYTES_MAX;
pub(crate) use names::{is_hidden, safe};
pub(crate) use places::{Folder, Named, Place, Places};
pub use places::{LIBRARIES_MAX, LOOKUPS_MAX, check_library_name, check_library_names};
use saved::SavedIndexes;
pub use saved::{
    SAVED_INDEX_BYTES_MAX, SAVING_MAX, SavedCounters, indexes_folder, prepare_state, saved_indexes,
};
pub use scan::read_whole;
use scan::{restored, scan};
pub use settings::Counters;
use settings::{Reading, Settings};
pub use tricks::TRICKS_MAX;
use walk::walk;
pub use walk::{DEPTH_MAX, ENTRIES_MAX};

/// Files of a disk that are being indexed at once; others wait. More would only make it seek.
pub const INDEXING_MAX: usize = 2;

/// Files of a disk that are read behind those who play them at once; they take turns.
const READING_BEHIND_MAX: usize = 1;

/// What is read of such a file in one turn.
const BEHIND_BYTES: u64 = 32 << 20;

/// The files that are served, of one library or of several.
#[derive(Debug)]
pub struct Library {
    places: Arc<Places>,
    files_max: usize,
    settings: Settings,
    indexing: DevicePermits,
    /// Held for a part of a file that is read behind those who play it.
    behind: DevicePermits,
    entries: Mutex<Entries>,
}

/// Why there is no library.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The root is no directory that can be read.
    #[error("media directory {}: {source}", path.display())]
    Root {
        /// The root as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Several libraries whose names cannot be told apart, or that are too many.
    #[error("libraries: {reason}")]
    Names {
        /// What is wrong, and what to write instead.
        reason: String,
    },
    /// Nothing can be written to the state directory.
    #[error("state directory {}: {source}", path.display())]
    State {
        /// The directory as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a name could not be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, or it is not a regular file, or it lies outside the root.
    #[error("{name}: no such file under the media directory")]
    NotFound {
        /// The name asked for, decoded, for people.
        name: String,
    },
    /// It is a directory.
    #[error("{name}: is a directory; ask for a file in it")]
    Directory {
        /// The name asked for, decoded, for people.
        name: String,
    },
    /// The file cannot be read.
    #[error("{name}: {source}")]
    Read {
        /// The name asked for, decoded, for people.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is none that can be played.
    #[error("{name}: {reason}")]
    NotMedia {
        /// The name asked for, decoded, for people.
        name: String,
        /// What was wrong with it.
        reason: String,
    },
    /// `Limits::files_max` files are open and in use.
    #[error("{files_max} files are in use already")]
    TooMany {
        /// The limit.
        files_max: usize,
    },
}

/// The files known, each under the name it was asked for by.
#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<String, Entry>,
    /// Counts the uses, to know which entry has not been used for longest.
    uses: u64,
    /// When those that nobody used were let go of last, for clients that lacked descriptors.
    room_made: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    slot: Arc<Slot>,
    used: u64,
}

/// Filled by whoever comes first: with the media, or with what is wrong with the file's bytes.
type Slot = OnceCell<Result<Arc<Media>, String>>;

impl Library {
    /// The library, or all libraries, of these settings.
    ///
    /// # Errors
    ///
    /// If a folder is no directory that can be read, the state directory none that can be written
    /// to, or the names of several libraries are not what they may be.
    pub fn new(config: &Config) -> Result<Self, LibraryError> {
        let places = Places::open(config)?;
        let reading = Reading::default();
        // What a state directory has of a film it knows by its file.
        let has_folders = places
            .all()
            .iter()
            .any(|it| matches!(it.1, Place::Folder(_)));
        let state = config.state.as_ref().filter(|_| has_folders);
        let saved = state.map(|path| {
            let (bytes_max, bitrate) = (config.limits.state_bytes_max, config.fallback_bitrate);
            let counters = Arc::clone(&reading.counters.saved);
            SavedIndexes::open(path, bytes_max, bitrate, counters).map_err(|source| {
                let path = path.clone();
                LibraryError::State { path, source }
            })
        });
        Ok(Self {
            places: Arc::new(places),
            files_max: films_max(config.limits.files_max, raise_open_files_limit()),
            settings: Settings {
                options: ScanOptions {
                    fallback_bitrate: config.fallback_bitrate,
                    is_elementary: false,
                },
                burst_ns: u64::try_from(config.burst.as_nanos())
                    .unwrap_or(u64::MAX)
                    .max(1),
                growth_time_max: config.limits.growth_time_max,
                reading: Arc::new(reading),
                saved: saved.transpose()?.map(Arc::new),
            },
            indexing: DevicePermits::new(INDEXING_MAX),
            behind: DevicePermits::new(READING_BEHIND_MAX),
            entries: Mutex::default(),
        })
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.settings.reading.counters)
    }

    /// Where its files lie, for others who open files in it.
    pub(crate) fn places(&self) -> Arc<Places> {
        Arc::clone(&self.places)
    }

    /// The media at `name`: decoded, `/` between folders, of several libraries with
    /// that one's name as the first part, and with
    /// [`ELEMENTARY`] behind it the same as tracks of its elementary streams. Indexes the file
    /// the first time (which reads all of it, on a blocking thread). Call it within a tokio
    /// runtime. Dropping the future does not stop an indexing that has begun; its result serves the
    /// next caller.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]. Names with `..`, of hidden files and of files outside the root are not
    /// found.
    pub async fn open(self: &Arc<Self>, name: &str) -> Result<Arc<Media>, OpenError> {
        let (media, found) = self.find(name).await?;
        if !media.grows() && media.identity() == found {
            return Ok(media);
        }
        let media = refreshed(media, None).await;
        // What looked as if it had grown may be another film, written over this one.
        match media.is_outdated() {
            true => self.find(name).await.map(|(media, _)| media),
            false => Ok(media),
        }
    }

    /// The media of the file under this name, and what that file is like now.
    async fn find(self: &Arc<Self>, name: &str) -> Result<(Arc<Media>, Identity), OpenError> {
        let not_found = || OpenError::NotFound {
            name: shown(name).into_owned(),
        };
        // Apart, so that whoever asks for a file keeps no room for it.
        let (mut path, mut opened) = Box::pin(self.look_up(name)).await.ok_or_else(not_found)?;
        if opened.as_ref().is_err_and(lacks_descriptors) && self.let_go_of_unused() {
            (path, opened) = Box::pin(self.look_up(name)).await.ok_or_else(not_found)?;
        }
        let (file, identity) = opened.map_err(|source| open_error(name, source))?;
        let slot = self.slot(name, identity)?;
        if slot.get().is_none() {
            let (library, slot) = (Arc::clone(self), Arc::clone(&slot));
            let name_owned = name.to_owned();
            // A task of its own, so that clients that hang up cannot start one reading after
            // another.
            let fill = tokio::spawn(async move {
                let fill = || library.load(name_owned, path, file, identity);
                slot.get_or_try_init(fill).await.map(|_| ())
            });
            let filled = fill
                .await
                .unwrap_or_else(|failure| Err(io::Error::other(failure)));
            filled.map_err(|source| OpenError::Read {
                name: shown(name).into_owned(),
                source,
            })?;
        }
        match slot.get() {
            Some(Ok(media)) => Ok((Arc::clone(media), identity)),
            Some(Err(reason)) => Err(OpenError::NotMedia {
                name: shown(name).into_owned(),
                reason: reason.clone(),
            }),
            None => Err(not_found()),
        }
    }

    /// What is opened by this name, and where it lies; `None` if that can be nothing.
    async fn look_up(&self, name: &str) -> Option<(PathBuf, io::Result<(FilmFile, Identity)>)> {
        let (_, file_name) = self.settings.of(name);
        Some(match self.places.named(file_name)? {
            Named::Libraries(_) => (PathBuf::new(), Err(io::ErrorKind::IsADirectory.into())),
            Named::Object(remote, name) => {
                let opened = asked(|then| remote.open(name, then)).await;
                (name.into(), opened.map(identified))
            }
            Named::Path(folder, relative) => {
                let path = folder.path().join(&relative);
                let opened = match folder.open_cached(&relative) {
                    Some(file) => identify(file),
                    None => {
                        let open =
                            move |root: &Root| root.open_beneath(&relative).and_then(identify);
                        folder.look_up(open).await
                    }
                };
                (path, opened)
            }
        })
    }

    /// Ends indexings that are under way; they fail. For a clean stop.
    pub fn stop(&self) {
        self.settings
            .reading
            .stopping
            .store(true, Ordering::Relaxed);
    }

    /// The first names, at most `names_max` and sorted, of the regular files with the ending of one
    /// that is played, as clients ask for them, and how many there are. Hidden files, folders
    /// deeper than [`DEPTH_MAX`] and what links lead out to are left out, and folders and libraries
    /// that cannot be read: of such a library the log says so, and nobody knows how many files
    /// there are. Reads the folders, so it may block.
    pub fn names(&self, names_max: usize) -> (Vec<PathBuf>, Option<usize>) {
        let (mut first, mut all) = (Vec::new(), Some(0));
        for (begin, place) in self.places.all() {
            let (at, found) = match place {
                Place::Store(remote) => (format!("{remote:?}"), remote.names(names_max)),
                Place::Folder(root) => (
                    root.path().display().to_string(),
                    walk(root, names_max, ENTRIES_MAX),
                ),
            };
            match found {
                Ok((names, count)) => {
                    first.extend(names.iter().map(|name| begin.join(name)));
                    all = all.map(|all| all + count);
                }
                Err(error) => {
                    warn!("{at}: what can be played is not shown: {error}");
                    all = None;
                }
            }
        }
        first.sort();
        first.truncate(names_max);
        (first, all)
    }

    /// The slot of this file, made anew if the file under that name was another before, or failed.
    fn slot(&self, name: &str, identity: Identity) -> Result<Arc<Slot>, OpenError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.uses += 1;
        let used = entries.uses;
        if let Some(entry) = entries.by_name.get_mut(name) {
            entry.used = used;
            if !entry.may_serve(identity) {
                *entry = Entry {
                    identity,
                    slot: Arc::default(),
                    used,
                };
            }
            return Ok(Arc::clone(&entry.slot));
        }
        if entries.by_name.len() >= self.files_max && !entries.evict() {
            return Err(OpenError::TooMany {
                files_max: self.files_max,
            });
        }
        let slot = Arc::default();
        let entry = Entry {
            identity,
            slot: Arc::clone(&slot),
            used,
        };
        entries.by_name.insert(name.to_owned(), entry);
        Ok(slot)
    }

    /// Indexes an open file. The outer error is of reading and may pass; the inner is of the bytes.
    async fn load(
        &self,
        name: String,
        path: PathBuf,
        file: FilmFile,
        identity: Identity,
    ) -> io::Result<Result<Arc<Media>, String>> {
        let permits = self.indexing.of(identity.device);
        let _permit = permits.acquire_owned().await.map_err(io::Error::other)?;
        let (mut settings, _) = self.settings.of(&name);
        if file.remote.is_some() {
            settings = settings.of_remote();
        }
        let of = name.clone();
        let read = move || {
            if let Some(index) = restored(&shown(&of), &file, identity, &settings) {
                return Ok((file, settings, true, Ok(index)));
            }
            let scanned = scan(&file, identity, &settings)?;
            Ok((file, settings, false, scanned))
        };
        let (file, settings, is_restored, scanned) = blocking(read).await?;
        let scanned = match scanned {
            Ok(scanned) => scanned,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Some(doubt) = scanned.index.doubt() {
            let name = shown(&name);
            warn!("{name:?}: {doubt}; it is sent by these; ffmpeg -i IN -c copy OUT.ts repairs it");
        }
        let opened = Opened::new(path, file, &settings.reading.counters);
        let media = Media::new(name, opened, scanned, settings)?;
        let media = Arc::new(media);
        if !is_restored && !media.goes_on() {
            media.keep(&media.index());
        }
        if media.is_partial() {
            let behind = self.behind.of(identity.device);
            tokio::spawn(read_behind(behind, Arc::downgrade(&media)));
        }
        Ok(Ok(media))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Entries {
    /// Drops the entry that has not been used for longest, of those that nobody uses now.
    fn evict(&mut self) -> bool {
        let unused = self.by_name.iter().filter(|(_, entry)| entry.is_unused());
        let oldest = unused
            .min_by_key(|(_, entry)| entry.used)
            .map(|(name, _)| name.clone());
        oldest.is_some_and(|name| self.by_name.remove(&name).is_some())
    }
}

impl Entry {
    /// Whether it is for the file that is found under its name now, as far as can be told without
    /// reading that.
    fn may_serve(&self, found: Identity) -> bool {
        let own = self.identity;
        match self.slot.get() {
            Some(Ok(media)) => !media.is_outdated() && media.may_be(found),
            Some(Err(_)) => own == found,
            // It is being read, and may grow meanwhile.
            None => {
                (own.device, own.inode) == (found.device, found.inode)
                    && own.file_bytes <= found.file_bytes
            }
        }
    }

    fn is_unused(&self) -> bool {
        let media_unused = match self.slot.get() {
            Some(Ok(media)) => Arc::strong_count(media) == 1,
            Some(Err(_)) | None => true,
        };
        // A slot that others hold is being filled, or about to be read.
        media_unused && Arc::strong_count(&self.slot) == 1
    }
}

/// Reads the rest of a file, in turn with others, for as long as somebody has its media.
async fn read_behind(turns: Arc<Semaphore>, media: Weak<Media>) {
    loop {
        let Ok(_turn) = turns.acquire().await else {
            return;
        };
        let Some(media) = media.upgrade() else {
            return;
        };
        let read = tokio::task::spawn_blocking(move || media.read_behind(BEHIND_BYTES));
        match read.await {
            Ok(false) => {}
            Ok(true) => return,
            Err(failure) => return error!("reading a file: {failure}"),
        }
    }
}

/// The media, after a look at what has become of its file, as [`Media::refresh`] says.
pub(crate) async fn refreshed(media: Arc<Media>, bytes_max: Option<u64>) -> Arc<Media> {
    let turn = match bytes_max {
        None => Some(Arc::clone(&media.refreshing).lock_owned().await),
        Some(_) => None,
    };
    let looked = Arc::clone(&media);
    let look = tokio::task::spawn_blocking(move || {
        // The thread's, not the client's: a disk may keep the one when the other has gone.
        let _turn = turn;
        looked.refresh(bytes_max);
    });
    if let Err(failure) = look.await {
        error!("looking at {:?}: {failure}", media.name());
    }
    media
}

/// Films that may be known where this process may have so many files open: an eighth of these at
/// the most, as downloads keep.
fn films_max(files_max: usize, open_files: u64) -> usize {
    let most = usize::try_from(open_files / 8).unwrap_or(usize::MAX);
    files_max.min(most.max(1))
}

/// Whether a file could not be opened because too many are.
fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What a client is told when a file cannot be opened. Not more than that it is not there, where
/// more would tell about what lies outside.
fn open_error(name: &str, source: io::Error) -> OpenError {
    let name = shown(name).into_owned();
    match source.kind() {
        io::ErrorKind::IsADirectory => OpenError::Directory { name },
        _ if names_nothing(&source) => OpenError::NotFound { name },
        _ => OpenError::Read { name, source },
    }
}

/// Whether this error of opening a name means that nothing is there that may be served.
pub(crate) fn names_nothing(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound
        | Kind::NotADirectory
        | Kind::CrossesDevices
        | Kind::InvalidFilename
        | Kind::InvalidInput => true,
        // A circle of links; a socket, or a device without a driver.
        _ => matches!(
            error.raw_os_error(),
            Some(libc::ELOOP | libc::ENXIO | libc::ENODEV)
        ),
    }
}

/// Runs what may wait for a disk where waiting is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|failure| Err(io::Error::other(failure)))
}

#[cfg(test)]
mod tests;
