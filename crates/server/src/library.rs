//! The files that are served: names to media, and nothing outside the root.
//!
//! A file is read through once, on a blocking thread, to index it; all that ask for it meanwhile wait for
//! that one reading, and so does the next one who asks, should they all hang up. A file that changes is
//! another file: it gets a new entry, and [`Media::check`] tells those who play the old one.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use onrush_sys::fs::{Root, advise_done, advise_sequential};
use onrush_wire::media::ts::{ScanOptions, Scanner};
use onrush_wire::media::{Index, Packetisation, Plan, RtpOrigin};
use thiserror::Error;
use tokio::sync::{OnceCell, Semaphore};

use crate::config::Config;
use crate::store::{Backing, Source};

/// Bytes of a name at the most: Linux's `PATH_MAX`.
pub const NAME_BYTES_MAX: usize = 4096;

/// Files that are being indexed at once; others wait. More would only make the disk seek.
pub const INDEXING_MAX: usize = 2;

/// How deep [`Library::names`] looks into folders.
pub const DEPTH_MAX: usize = 16;

/// How many entries of folders [`Library::names`] looks at.
pub const ENTRIES_MAX: usize = 100_000;

/// The directory that is served.
#[derive(Debug)]
pub struct Library {
    root: Arc<Root>,
    files_max: usize,
    fallback_bitrate: u64,
    burst_ns: u64,
    indexing: Semaphore,
    stopping: Arc<AtomicBool>,
    entries: Mutex<Entries>,
}

/// One file, indexed, with what all of its clients share.
#[derive(Debug)]
pub struct Media {
    name: String,
    opened: Arc<Opened>,
    index: Arc<Index>,
    origin: RtpOrigin,
    burst_ns: u64,
    plans: [OnceLock<Arc<Plan>>; 7],
    sources: [OnceLock<Option<Arc<Source>>>; 7],
}

/// The open file behind a media, for those who read it.
#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: File,
    identity: Identity,
}

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
}

/// Why a name could not be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, or it is not a regular file, or it lies outside the root.
    #[error("{name}: no such file under the media directory")]
    NotFound {
        /// The name asked for, decoded.
        name: String,
    },
    /// It is a directory.
    #[error("{name}: is a directory; ask for a file in it")]
    Directory {
        /// The name asked for, decoded.
        name: String,
    },
    /// The file can not be read.
    #[error("{name}: {source}")]
    Read {
        /// The name asked for, decoded.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no transport stream.
    #[error("{name}: {reason}")]
    NotMedia {
        /// The name asked for, decoded.
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
    /// The library of `config.media_root`.
    ///
    /// # Errors
    ///
    /// If that is not a directory that can be read.
    pub fn new(config: &Config) -> Result<Self, LibraryError> {
        let path = &config.media_root;
        let root = Root::open(path).map_err(|source| LibraryError::Root {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            root: Arc::new(root),
            files_max: config.limits.files_max,
            fallback_bitrate: config.fallback_bitrate,
            burst_ns: u64::try_from(config.burst.as_nanos())
                .unwrap_or(u64::MAX)
                .max(1),
            indexing: Semaphore::new(INDEXING_MAX),
            stopping: Arc::default(),
            entries: Mutex::default(),
        })
    }

    /// The directory served, without symbolic links.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The same, for others who open files in it.
    pub(crate) fn root_shared(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// The media at `name`: decoded, relative to the root, `/` between folders. Indexes the file the first
    /// time (which reads all of it, on a blocking thread). Call it within a tokio runtime. Dropping the
    /// future does not stop an indexing that has begun; its result serves the next caller.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]. Names with `..`, of hidden files and of files outside the root are not found.
    pub async fn open(self: &Arc<Self>, name: &str) -> Result<Arc<Media>, OpenError> {
        let not_found = || OpenError::NotFound {
            name: name.to_owned(),
        };
        let relative = safe(name).ok_or_else(not_found)?;
        let (root, path) = (Arc::clone(&self.root), relative.clone());
        let opened = blocking(move || open_file(&root, &path)).await;
        let (file, identity) = opened.map_err(|source| open_error(name, source))?;
        let slot = self.slot(name, identity)?;
        if slot.get().is_none() {
            let (library, slot) = (Arc::clone(self), Arc::clone(&slot));
            let name_owned = name.to_owned();
            // A task of its own, so that clients that hang up can not start one reading after another.
            let fill = tokio::spawn(async move {
                let fill = || library.load(name_owned, relative, file, identity);
                slot.get_or_try_init(fill).await.map(|_| ())
            });
            let filled = fill
                .await
                .unwrap_or_else(|failure| Err(io::Error::other(failure)));
            filled.map_err(|source| OpenError::Read {
                name: name.to_owned(),
                source,
            })?;
        }
        match slot.get() {
            Some(Ok(media)) => Ok(Arc::clone(media)),
            Some(Err(reason)) => Err(OpenError::NotMedia {
                name: name.to_owned(),
                reason: reason.clone(),
            }),
            None => Err(not_found()),
        }
    }

    /// Lets go of files that nobody plays and that are no longer what they were, so that a removed file's
    /// space is freed. Cheap enough for every few seconds; asks the file system, so it may block.
    pub fn sweep(&self) {
        let lock = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let idle: Vec<_> = lock()
            .by_name
            .iter()
            .filter(|(_, entry)| entry.is_unused())
            .filter_map(|(name, entry)| Some((name.clone(), entry.slot.get()?.clone().ok()?)))
            .collect();
        for (name, media) in idle {
            let is_stale = media.check().is_err();
            let identity = media.identity();
            drop(media);
            let mut entries = lock();
            let same = |entry: &Entry| entry.identity == identity && entry.is_unused();
            if is_stale && entries.by_name.get(&name).is_some_and(same) {
                entries.by_name.remove(&name);
            }
        }
    }

    /// Ends indexings that are under way; they fail. For a clean stop.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// The names of the regular files with a transport stream's ending, sorted, at most `names_max`,
    /// relative to the root. Hidden files, folders deeper than [`DEPTH_MAX`] and what links lead out to are
    /// left out. Reads the folders, so it may block.
    ///
    /// # Errors
    ///
    /// If the root can not be read; folders in it that can not are left out.
    pub fn names(&self, names_max: usize) -> io::Result<Vec<PathBuf>> {
        self.walk(names_max, ENTRIES_MAX)
    }

    fn walk(&self, names_max: usize, entries_max: usize) -> io::Result<Vec<PathBuf>> {
        let root = self.root.path();
        let mut names = Vec::new();
        let mut folders = vec![(fs::read_dir(root)?, 0)];
        let mut entries_left = entries_max;
        while let Some((mut entries, depth)) = folders.pop() {
            let Some(entry) = entries.next() else {
                continue;
            };
            folders.push((entries, depth));
            if entries_left == 0 {
                break;
            }
            entries_left -= 1;
            let Ok(entry) = entry else { continue };
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if is_hidden(&entry.file_name()) {
                continue;
            }
            let path = entry.path();
            if kind.is_dir() && depth < DEPTH_MAX {
                folders.extend(fs::read_dir(path).ok().map(|entries| (entries, depth + 1)));
            } else if has_media_ending(&path) && is_servable(root, &path, kind.is_symlink()) {
                names.extend(path.strip_prefix(root).map(Path::to_owned));
            }
        }
        names.sort();
        names.truncate(names_max);
        Ok(names)
    }

    /// The slot of this file, made anew if the file under that name was another before, or failed.
    fn slot(&self, name: &str, identity: Identity) -> Result<Arc<Slot>, OpenError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.uses += 1;
        let used = entries.uses;
        if let Some(entry) = entries.by_name.get_mut(name) {
            entry.used = used;
            if entry.identity != identity || entry.has_failed() {
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
        relative: PathBuf,
        file: File,
        identity: Identity,
    ) -> io::Result<Result<Arc<Media>, String>> {
        let _permit = self.indexing.acquire().await.map_err(io::Error::other)?;
        let options = ScanOptions {
            fallback_bitrate: self.fallback_bitrate,
        };
        let stopping = Arc::clone(&self.stopping);
        let (file, scanned) =
            blocking(move || scan(&file, identity, options, &stopping).map(|index| (file, index)))
                .await?;
        let index = match scanned {
            Ok(index) => Arc::new(index),
            Err(reason) => return Ok(Err(reason)),
        };
        let path = self.root.path().join(relative);
        let opened = Opened {
            path,
            file,
            identity,
        };
        let media = Media {
            name,
            opened: Arc::new(opened),
            index,
            origin: random_origin()?,
            burst_ns: self.burst_ns,
            plans: Default::default(),
            sources: Default::default(),
        };
        Ok(Ok(Arc::new(media)))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Media {
    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What made it this file when it was indexed.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.opened.identity
    }

    /// What the file holds.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// What its RTP headers count from: random, as RFC 3550 asks, and one for all clients.
    #[must_use]
    pub fn origin(&self) -> RtpOrigin {
        self.origin
    }

    /// The synchronisation source of all of the file's packets.
    #[must_use]
    pub fn ssrc(&self) -> u32 {
        self.origin.ssrc
    }

    /// The packets of this file with `ts_packets_per_rtp` transport packets each (1 to 7; what is beyond is
    /// taken as the nearest of these).
    #[must_use]
    pub fn plan(&self, ts_packets_per_rtp: u8) -> &Arc<Plan> {
        let ts_packets_per_rtp = ts_packets_per_rtp.clamp(1, 7);
        let burst_ns = self.burst_ns;
        self.plans[usize::from(ts_packets_per_rtp) - 1].get_or_init(|| {
            let packetisation = Packetisation {
                ts_packets_per_rtp,
                burst_ns,
            };
            Arc::new(Plan::new(Arc::clone(&self.index), packetisation))
        })
    }

    /// What the store makes images from: the plan with `ts_packets_per_rtp`, in chunks of `chunk_bytes`, which
    /// must be the same at every call. `None` if the file is too long for the chunks.
    #[must_use]
    pub fn source(&self, ts_packets_per_rtp: u8, chunk_bytes: usize) -> Option<&Arc<Source>> {
        let plan = self.plan(ts_packets_per_rtp);
        let place = &self.sources[usize::from(ts_packets_per_rtp.clamp(1, 7)) - 1];
        let source = place.get_or_init(|| {
            let backing: Arc<dyn Backing> = Arc::<Opened>::clone(&self.opened);
            Source::new(Arc::clone(plan), self.origin, backing, chunk_bytes).map(Arc::new)
        });
        source.as_ref()
    }

    /// Lets no more packets of it be made, because it is no longer what was indexed.
    pub fn fail(&self, reason: &str) {
        for source in self.sources.iter().filter_map(OnceLock::get).flatten() {
            source.fail(reason.to_owned());
        }
    }

    /// Whether packets of it could not be made, or [`Self::fail`] was told so.
    fn has_failed(&self) -> bool {
        let mut sources = self.sources.iter().filter_map(OnceLock::get).flatten();
        sources.any(|source| source.failure().is_some())
    }

    /// The sequence number of RTP packet `rtp_packet` of a plan.
    #[must_use]
    pub fn sequence(&self, rtp_packet: u64) -> u16 {
        self.origin.sequence_of(rtp_packet)
    }

    /// The RTP timestamp of media time `time_ns`.
    #[must_use]
    pub fn timestamp(&self, time_ns: u64) -> u32 {
        self.origin.timestamp_of(time_ns)
    }

    /// Whether the file still is what was indexed. Two system calls that do not read the file.
    ///
    /// # Errors
    ///
    /// In words what became of it: truncated, removed, replaced, modified, or what the system said.
    pub fn check(&self) -> Result<(), String> {
        self.opened.check()
    }
}

impl Backing for Opened {
    fn file(&self) -> &File {
        &self.file
    }

    fn check(&self) -> Result<(), String> {
        let now = self.file.metadata().map_err(|error| error.to_string())?;
        let (before, after) = (self.identity, Identity::of(&now));
        if after.file_bytes < before.file_bytes {
            return Err(format!(
                "the file was truncated from {} to {} bytes",
                before.file_bytes, after.file_bytes
            ));
        }
        if after != before {
            return Err("the file was modified while it was played".to_owned());
        }
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (before.device, before.inode) => Ok(()),
            Ok(_) => Err("the file was replaced by another".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("the file was removed".to_owned())
            }
            Err(error) => Err(format!("the file is out of reach: {error}")),
        }
    }
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
    /// Whether it is of no use any more, although the file may be what it was.
    fn has_failed(&self) -> bool {
        matches!(self.slot.get(), Some(Ok(media)) if media.has_failed())
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

/// How much is read at once while indexing.
const READ_BYTES: usize = 1 << 20;

/// Files up to this length may stay in the page cache once indexed; of longer ones the pages are let go,
/// since their packets are read past it.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Reads all of `file` and indexes it.
fn scan(
    file: &File,
    identity: Identity,
    options: ScanOptions,
    stopping: &AtomicBool,
) -> io::Result<Result<Index, String>> {
    advise_sequential(file);
    let mut scanner = Scanner::new(options);
    let mut buffer = vec![0; READ_BYTES];
    let mut at = 0;
    while at < identity.file_bytes {
        if stopping.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the server is stopping",
            ));
        }
        let left = usize::try_from(identity.file_bytes - at).unwrap_or(READ_BYTES);
        let read = match file.read_at(&mut buffer[..left.min(READ_BYTES)], at) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if let Err(error) = scanner.push(&buffer[..read]) {
            return Ok(Err(error.to_string()));
        }
        if identity.file_bytes > KEPT_BYTES_MAX {
            advise_done(file, at, read as u64);
        }
        at += read as u64;
    }
    if Identity::of(&file.metadata()?) != identity {
        return Err(io::Error::other(
            "the file changed while it was read; try again when it is complete",
        ));
    }
    Ok(scanner.finish().map_err(|error| error.to_string()))
}

/// Opens what is at `relative`, if that is a regular file.
fn open_file(root: &Root, relative: &Path) -> io::Result<(File, Identity)> {
    let file = root.open_beneath(relative)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok((file, Identity::of(&metadata)))
}

/// What a client is told when a file can not be opened. Not more than that it is not there, where more
/// would tell about what lies outside.
fn open_error(name: &str, source: io::Error) -> OpenError {
    use io::ErrorKind as Kind;
    let name = name.to_owned();
    match source.kind() {
        Kind::IsADirectory => OpenError::Directory { name },
        Kind::NotFound
        | Kind::NotADirectory
        | Kind::CrossesDevices
        | Kind::InvalidFilename
        | Kind::InvalidInput => OpenError::NotFound { name },
        _ if source.raw_os_error() == Some(libc::ELOOP) => OpenError::NotFound { name },
        _ => OpenError::Read { name, source },
    }
}

/// The name as a path, if it stays under the root by its own words and names nothing hidden.
pub(crate) fn safe(name: &str) -> Option<PathBuf> {
    if name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return None;
    }
    if name.is_empty() {
        return Some(PathBuf::from("."));
    }
    let path = Path::new(name);
    let plain = path.components().all(|component| match component {
        Component::Normal(part) => !is_hidden(part),
        _ => false,
    });
    plain.then(|| path.to_owned())
}

pub(crate) fn is_hidden(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Endings of files that hold transport streams.
const ENDINGS: [&str; 7] = ["ts", "m2ts", "mts", "m2t", "mpegts", "tp", "trp"];

fn has_media_ending(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| {
        ENDINGS
            .iter()
            .any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// Whether there is a regular file, under the root if a link leads to it.
fn is_servable(root: &Path, path: &Path, is_link: bool) -> bool {
    let beneath = !is_link || fs::canonicalize(path).is_ok_and(|target| target.starts_with(root));
    beneath && fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

fn random_origin() -> io::Result<RtpOrigin> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let [s0, s1, t0, t1, t2, t3, source @ ..] = random;
    Ok(RtpOrigin {
        sequence: u16::from_be_bytes([s0, s1]),
        timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
        ssrc: u32::from_be_bytes(source),
    })
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
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use onrush_wire::media::synth::constant_rate;

    use super::*;
    use crate::config::Limits;

    /// A media directory that goes with the value.
    struct Fixture {
        directory: tempfile::TempDir,
        library: Arc<Library>,
    }

    impl Fixture {
        fn new(files_max: usize) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let media_root = directory.path().join("media");
            fs::create_dir_all(&media_root).unwrap();
            let limits = Limits {
                files_max,
                ..Limits::default()
            };
            let config = Config {
                media_root,
                limits,
                ..Config::default()
            };
            let library = Arc::new(Library::new(&config).unwrap());
            Self { directory, library }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.library.root().join(name)
        }

        fn write(&self, name: &str, packets: u64) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, constant_rate(packets, 0, 10_000)).unwrap();
        }

        async fn open(&self, name: &str) -> Result<Arc<Media>, OpenError> {
            self.library.open(name).await
        }
    }

    /// What failed once, for example because a disk did not answer, is not given up for ever.
    #[tokio::test]
    async fn a_file_that_failed_is_opened_anew() {
        let fixture = Fixture::new(9);
        fixture.write("film.ts", 100);
        let before = fixture.open("film.ts").await.unwrap();
        let source = before.source(7, 64 << 10).unwrap();
        source.fail("can not be read".to_owned());
        let after = fixture.open("film.ts").await.unwrap();
        assert_eq!(after.source(7, 64 << 10).unwrap().failure(), None);
        assert!(Arc::ptr_eq(&after, &fixture.open("film.ts").await.unwrap()));
    }

    #[tokio::test]
    async fn files_open_by_their_names_and_nothing_else_does() {
        let fixture = Fixture::new(9);
        fixture.write("a film.ts", 100);
        fixture.write("Ordner/übung.ts", 100);
        fixture.write(".hidden.ts", 100);
        fixture.write(".folder/x.ts", 100);
        fs::write(
            fixture.directory.path().join("secret.ts"),
            constant_rate(100, 0, 1),
        )
        .unwrap();
        symlink("../secret.ts", fixture.path("out.ts")).unwrap();
        symlink("a film.ts", fixture.path("link.ts")).unwrap();
        for name in ["a film.ts", "Ordner/übung.ts", "link.ts"] {
            let media = fixture.open(name).await.unwrap();
            assert_eq!((media.name(), media.index().ts_packets()), (name, 100));
            assert_eq!(media.check(), Ok(()));
        }
        let absolute = fixture.path("a film.ts");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!((safe(&long), safe(&long[1..]).is_some()), (None, true));
        for name in [
            "../secret.ts",
            "Ordner/../../secret.ts",
            "Ordner/../a film.ts",
            "out.ts",
            "missing.ts",
            "a film.ts/x",
            "a film.ts\0",
            ".hidden.ts",
            ".folder/x.ts",
            absolute.to_str().unwrap(),
            &long,
            &long[1..],
        ] {
            let error = fixture.open(name).await.unwrap_err();
            assert!(
                matches!(error, OpenError::NotFound { .. }),
                "{name}: {error}"
            );
        }
        for name in ["Ordner", "Ordner/", ""] {
            let error = fixture.open(name).await.unwrap_err();
            assert!(
                matches!(error, OpenError::Directory { .. }),
                "{name}: {error}"
            );
        }
    }

    #[tokio::test]
    async fn what_is_no_media_is_refused_with_the_reason() {
        let fixture = Fixture::new(9);
        fs::write(fixture.path("empty.ts"), "").unwrap();
        fs::write(fixture.path("text.ts"), "Hello there. ".repeat(1000)).unwrap();
        for (name, reason) in [
            ("empty.ts", "empty"),
            ("text.ts", "no MPEG transport stream"),
        ] {
            let error = fixture.open(name).await.unwrap_err();
            assert!(matches!(error, OpenError::NotMedia { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn all_who_ask_at_once_share_one_indexing() {
        let fixture = Fixture::new(9);
        fixture.write("a.ts", 5000);
        let opens: Vec<_> = (0..20)
            .map(|_| {
                let library = Arc::clone(&fixture.library);
                tokio::spawn(async move { library.open("a.ts").await.unwrap() })
            })
            .collect();
        let first = fixture.open("a.ts").await.unwrap();
        for open in opens {
            assert!(Arc::ptr_eq(&first, &open.await.unwrap()));
        }
        assert!(Arc::ptr_eq(first.plan(7), first.plan(7)));
        assert_eq!(first.plan(3).rtp_packets(), 5000_u64.div_ceil(3));
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_does_not_waste_the_indexing() {
        let fixture = Fixture::new(9);
        fixture.write("a.ts", 5000);
        // Nobody can index while these are held, so the client surely leaves before the end.
        let permits = fixture
            .library
            .indexing
            .acquire_many(u32::try_from(INDEXING_MAX).unwrap())
            .await
            .unwrap();
        let left = tokio::time::timeout(Duration::from_millis(50), fixture.open("a.ts")).await;
        assert!(left.is_err());
        drop(permits);
        let slot = Arc::clone(&fixture.library.entries.lock().unwrap().by_name["a.ts"].slot);
        for _ in 0..1000 {
            if slot.initialized() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the indexing went with the client");
    }

    #[tokio::test]
    async fn a_changed_file_is_another_file_and_its_players_are_told() {
        let fixture = Fixture::new(9);
        fixture.write("a.ts", 200);
        let old = fixture.open("a.ts").await.unwrap();
        let told = |media: &Media, what: &str| {
            let reason = media.check().unwrap_err();
            assert!(reason.contains(what), "{reason}");
        };
        let file = fs::OpenOptions::new()
            .append(true)
            .open(fixture.path("a.ts"))
            .unwrap();
        (&file).write_all(&constant_rate(100, 0, 1)).unwrap();
        told(&old, "modified");
        let grown = fixture.open("a.ts").await.unwrap();
        assert_eq!(
            (old.index().ts_packets(), grown.index().ts_packets()),
            (200, 300)
        );
        file.set_len(100 * 188).unwrap();
        told(&grown, "truncated from 56400 to 18800");
        let short = fixture.open("a.ts").await.unwrap();
        fixture.write("b.ts", 100);
        fs::rename(fixture.path("b.ts"), fixture.path("a.ts")).unwrap();
        told(&short, "replaced");
        let new = fixture.open("a.ts").await.unwrap();
        assert_eq!(new.check(), Ok(()));
        assert_ne!(new.origin(), old.origin());
        fs::remove_file(fixture.path("a.ts")).unwrap();
        told(&new, "removed");
    }

    #[tokio::test]
    async fn files_in_use_stay_and_the_least_recently_used_of_others_goes() {
        let fixture = Fixture::new(3);
        for name in ["a.ts", "b.ts", "c.ts", "d.ts", "e.ts"] {
            fixture.write(name, 100);
        }
        let a = fixture.open("a.ts").await.unwrap();
        let b = Arc::downgrade(&fixture.open("b.ts").await.unwrap());
        let c = Arc::downgrade(&fixture.open("c.ts").await.unwrap());
        drop(fixture.open("b.ts").await.unwrap());
        // One more than fit: `a` is older than `c`, but in use.
        let d = fixture.open("d.ts").await.unwrap();
        assert_eq!((b.strong_count(), c.strong_count()), (1, 0));
        assert!(Arc::ptr_eq(&a, &fixture.open("a.ts").await.unwrap()));
        let b = fixture.open("b.ts").await.unwrap();
        let error = fixture.open("e.ts").await.unwrap_err();
        assert!(
            matches!(error, OpenError::TooMany { files_max: 3 }),
            "{error}"
        );
        drop((b, d));
        fixture.open("e.ts").await.unwrap();
    }

    #[tokio::test]
    async fn a_sweep_lets_go_of_removed_files_that_nobody_plays() {
        let fixture = Fixture::new(9);
        for name in ["gone.ts", "played.ts", "there.ts"] {
            fixture.write(name, 100);
            drop(fixture.open(name).await.unwrap());
        }
        let _played = fixture.open("played.ts").await.unwrap();
        fs::remove_file(fixture.path("gone.ts")).unwrap();
        fs::remove_file(fixture.path("played.ts")).unwrap();
        fixture.library.sweep();
        let entries = fixture.library.entries.lock().unwrap();
        let mut names: Vec<_> = entries.by_name.keys().collect();
        names.sort();
        assert_eq!(names, ["played.ts", "there.ts"]);
    }

    #[tokio::test]
    async fn indexing_ends_when_the_server_does() {
        let fixture = Fixture::new(9);
        fixture.write("a.ts", 100);
        fixture.library.stop();
        let error = fixture.open("a.ts").await.unwrap_err();
        assert!(error.to_string().contains("stopping"), "{error}");
    }

    #[test]
    fn names_lists_what_can_be_served() {
        let fixture = Fixture::new(9);
        for name in [
            "b.ts",
            "a/x.M2TS",
            "a/b/y.mts",
            ".no.ts",
            ".no/z.ts",
            "film.mp4",
        ] {
            fixture.write(name, 1);
        }
        fs::write(fixture.directory.path().join("secret.ts"), "").unwrap();
        symlink("../secret.ts", fixture.path("out.ts")).unwrap();
        symlink("b.ts", fixture.path("link.ts")).unwrap();
        symlink("..", fixture.path("a/up")).unwrap();
        let names = fixture.library.names(99).unwrap();
        assert_eq!(
            names,
            ["a/b/y.mts", "a/x.M2TS", "b.ts", "link.ts"].map(PathBuf::from)
        );
        assert_eq!(fixture.library.names(2).unwrap().len(), 2);
        // Eleven entries, hidden ones counted, but not what is in hidden folders.
        assert_eq!(fixture.library.walk(99, 11).unwrap().len(), 4);
        let deepest = vec!["d"; DEPTH_MAX].join("/");
        fixture.write(&format!("{deepest}/in.ts"), 1);
        fixture.write(&format!("{deepest}/d/too-deep.ts"), 1);
        let names = fixture.library.names(99).unwrap();
        let found = |name: &str| names.iter().any(|path| path.ends_with(name));
        assert_eq!((found("in.ts"), found("too-deep.ts")), (true, false));
    }

    #[test]
    fn names_looks_at_only_so_many_entries() {
        let fixture = Fixture::new(9);
        for name in ["a.ts", "b.ts", "c.ts"] {
            fixture.write(name, 1);
        }
        assert_eq!(fixture.library.walk(99, 3).unwrap().len(), 3);
        assert_eq!(fixture.library.walk(99, 2).unwrap().len(), 2);
    }

    #[test]
    fn a_root_that_is_no_directory_is_refused() {
        let media_root = PathBuf::from("/nonexistent/media");
        let config = Config {
            media_root,
            ..Config::default()
        };
        let error = Library::new(&config).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/media"), "{error}");
    }
}
