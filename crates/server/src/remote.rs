//! Films that lie elsewhere than on a disk of this machine: in an object store.
//!
//! One seam for all who read a film's bytes. Each such film has a file of this machine, as long as
//! the film and with holes; whoever wants to read a part of it asks that the part be held, and
//! reads the file as any other while it is. So whatever reads files, within the kernel or not,
//! reads these too, and a file of a disk costs nothing more than the question whether it is one.
//! What brings the bytes is not known here: see [`RemoteFiles`].

use std::any::Any;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

/// What is called once, with what was asked for, on a thread that must not wait.
pub type Then<T> = Box<dyn FnOnce(io::Result<T>) + Send>;

/// Parts of a film that stay in its file until this is dropped.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "kept for what its end does")] Box<dyn Any + Send>);

impl Held {
    /// Held until `pins` is dropped.
    #[must_use]
    pub fn new(pins: impl Any + Send) -> Self {
        Self(Box::new(pins))
    }
}

/// Where films lie: names to files. An answer comes within a bounded time.
pub trait RemoteFiles: Debug + Send + Sync {
    /// The film at `name`: `/` between folders, without any that is hidden or `..`. An error of
    /// [`io::ErrorKind::NotFound`] says that there is none, any other that nobody can tell now.
    fn open(&self, name: &str, then: Then<RemoteFile>);

    /// The first names, at most `names_max` and sorted, of what has the ending of a file that is
    /// played, and how many were found in as much of the list as was looked at. Blocks.
    ///
    /// # Errors
    ///
    /// If the list cannot be had.
    fn names(&self, names_max: usize) -> io::Result<(Vec<PathBuf>, usize)>;

    /// The first files and folders, so many at the most, in the folder at `name`, and whether there
    /// are more. An error of [`io::ErrorKind::NotFound`] says that there is no such folder.
    fn list(&self, name: &str, entries_max: usize, then: Then<(Vec<RemoteEntry>, bool)>);

    /// Lets go of the files of films that nobody has, which are counted in
    /// [`RemoteStats::open_files`]. Whether there were any.
    fn let_go_of_unused(&self) -> bool;

    /// What has been done so far.
    fn stats(&self) -> &RemoteStats;
}

/// A file or a folder that lies elsewhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RemoteEntry {
    /// Its name in its folder.
    pub name: String,
    /// Whether others are in it; it has no length and no time then.
    pub is_folder: bool,
    /// How long it is.
    pub file_bytes: u64,
    /// When it was stored, in seconds since 1970.
    pub modified_s: i64,
}

/// What has been asked of a store that lies elsewhere, as it is counted.
#[derive(Debug, Default)]
pub struct RemoteStats {
    /// Requests of all kinds, those that were asked again or twice among them.
    pub requests: AtomicU64,
    /// Those that are under way.
    pub in_flight: AtomicU64,
    /// Bytes of films that came.
    pub bytes: AtomicU64,
    /// Requests that were asked again because they had failed.
    pub retries: AtomicU64,
    /// Requests that were asked a second time because they took long.
    pub hedges: AtomicU64,
    /// Those of which the second answer came first.
    pub hedges_won: AtomicU64,
    /// Blocks that could not be had.
    pub failures: AtomicU64,
    /// Blocks of the process before this one that were whole.
    pub kept: AtomicU64,
    /// Those that were not, and were asked for again.
    pub damaged: AtomicU64,
    /// Bytes of films that are on this machine.
    pub cached_bytes: AtomicU64,
    /// Files of this machine that are open for films, those that nobody has among them.
    pub open_files: AtomicU64,
}

impl RemoteStats {
    /// What has been asked of all of these.
    pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let sum = Self::default();
        for one in all {
            for (counter, more) in sum.counters().into_iter().zip(one.counters()) {
                counter.fetch_add(more.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        sum
    }

    fn counters(&self) -> [&AtomicU64; 11] {
        // In full, so that none is forgotten.
        let Self {
            requests,
            in_flight,
            bytes,
            retries,
            hedges,
            hedges_won,
            failures,
            kept,
            damaged,
            cached_bytes,
            open_files,
        } = self;
        [
            requests,
            in_flight,
            bytes,
            retries,
            hedges,
            hedges_won,
            failures,
            kept,
            damaged,
            cached_bytes,
            open_files,
        ]
    }
}

/// The bytes of one film, which never change: another film under its name is another of these.
pub trait RemoteBytes: Debug + Send + Sync {
    /// Holds these parts, if all of them are in the file.
    fn try_hold(&self, parts: &[Range<u64>]) -> Option<Held>;

    /// Brings these parts into the file and holds them.
    fn hold(&self, parts: &[Range<u64>], then: Then<Held>);

    /// Whether there is another film under its name by now, or none.
    fn is_replaced(&self) -> bool;
}

/// A film that lies elsewhere.
#[derive(Clone, Debug)]
pub struct RemoteFile {
    /// Its file on this machine, with holes.
    pub file: Arc<File>,
    /// A number for the version of its bytes, the same on whatever machine.
    pub version: u64,
    /// How long it is.
    pub file_bytes: u64,
    /// When it was stored, in ns since 1970.
    pub modified_ns: i128,
    /// Fills the holes.
    pub bytes: Arc<dyn RemoteBytes>,
}

/// The file of a film, with what fills its holes if it has any.
#[derive(Clone, Debug)]
pub(crate) struct FilmFile {
    pub(crate) file: Arc<File>,
    pub(crate) remote: Option<Arc<dyn RemoteBytes>>,
}

impl FilmFile {
    /// Holds a part, once it is there; at once of a file that has no holes.
    pub(crate) async fn hold(&self, parts: &[Range<u64>]) -> io::Result<Option<Held>> {
        let Some(remote) = &self.remote else {
            return Ok(None);
        };
        if let Some(held) = remote.try_hold(parts) {
            return Ok(Some(held));
        }
        asked(|then| remote.hold(parts, then)).await.map(Some)
    }

    /// The same for a thread that may wait.
    pub(crate) fn hold_blocking(&self, part: Range<u64>) -> io::Result<Option<Held>> {
        let Some(remote) = &self.remote else {
            return Ok(None);
        };
        let (sender, receiver) = oneshot::channel();
        let then = |held| drop(sender.send(held));
        remote.hold(std::slice::from_ref(&part), Box::new(then));
        let held = receiver.blocking_recv();
        held.unwrap_or_else(|_| Err(stopped())).map(Some)
    }

    /// As [`FileExt::read_at`]. Blocks.
    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let _held = self.hold_blocking(offset..offset + bytes.len() as u64)?;
        self.file.read_at(bytes, offset)
    }

    /// As [`FileExt::read_exact_at`]. Blocks.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let _held = self.hold_blocking(offset..offset + bytes.len() as u64)?;
        self.file.read_exact_at(bytes, offset)
    }
}

impl From<RemoteFile> for FilmFile {
    fn from(of: RemoteFile) -> Self {
        let (file, remote) = (of.file, Some(of.bytes));
        Self { file, remote }
    }
}

impl From<File> for FilmFile {
    fn from(file: File) -> Self {
        let file = Arc::new(file);
        Self { file, remote: None }
    }
}

/// Waits for what is asked for with a [`Then`].
pub(crate) async fn asked<T: Send + 'static>(ask: impl FnOnce(Then<T>)) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    // Whoever has hung up meanwhile wants it no more.
    ask(Box::new(|answer| drop(sender.send(answer))));
    receiver.await.unwrap_or_else(|_| Err(stopped()))
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the server is stopping")
}
