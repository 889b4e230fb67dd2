//! Films of Onrush that lie in an object store (S3 and what speaks like it).
//!
//! Each film that is played has a sparse file in a folder of this machine, as long as the object.
//! Whoever reads a part of it has the blocks of that part brought first, by ranged requests that
//! name the object's entity tag: each block once, however many want it, again after a failure for
//! as long as [`RETRY_TIME_MAX`], and never of another version. Blocks that nobody reads go when
//! the folder has as many as it may, those first that were not used for longest. A request that
//! takes longer than nearly all before it is asked a second time, and the first answer taken.
//!
//! Files of a folder that is kept have names, and an index each of the blocks that are there with
//! their checksums. So the next process finds them, and believes what has its checksum alone.
//!
//! It does not write objects, and it does not list more of a bucket than people are shown.

mod bucket;
mod cache;
mod failure;
mod fetch;
mod folder;
mod hedge;
mod index;
mod listing;
mod object;
mod store;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_server::remote::{RemoteEntry, RemoteFile, RemoteFiles, RemoteStats, Then};
use thiserror::Error;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use bucket::Bucket;
pub use bucket::Location;
use cache::Cache;
use folder::{Folder, NotTaken};
use store::Store;

/// Bytes of a block: what one request brings, and what is kept or let go of as a whole.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Requests to the store that are under way at once; others wait.
pub const REQUESTS_MAX: usize = 64;

/// Blocks that are brought ahead of somebody who reads one behind the other.
pub const AHEAD_MAX: usize = 4;

/// Requests that are asked a second time, beside the first, at once.
pub const HEDGES_MAX: usize = 8;

/// Lists of folders that are asked for at once; others wait.
pub const LISTS_MAX: usize = 8;

/// How long a block is asked for again before those who wait for it are told that it cannot be had.
pub const RETRY_TIME_MAX: Duration = Duration::from_secs(20);

/// How long one request may take.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a film is looked for before whoever asks is told to come again.
pub const OPEN_TIME_MAX: Duration = Duration::from_secs(5);

/// Names that are known at once.
pub const NAMES_MAX: usize = 4096;

/// Objects that are looked at for the names that people are shown.
pub const LISTED_MAX: usize = 2000;

/// The least that a cache has, so that a few films are played at once.
pub const CACHE_BYTES_MIN: u64 = 64 << 20;

/// How often it is written down when blocks were used, for the process after this one.
const NOTE_EVERY: Duration = Duration::from_secs(30);

/// How often a successor looks whether the folder is free.
const TAKE_EVERY: Duration = Duration::from_secs(1);

/// What there is to be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the films are.
    pub location: Location,
    /// The folder of the blocks, which exists.
    pub folder: PathBuf,
    /// Whether blocks are to outlive the process. Without it nothing in the folder has a name;
    /// with it one process has the folder.
    pub is_kept: bool,
    /// Whether another process has the folder and serves until nobody is left there. Meanwhile its
    /// blocks are read, and the folder is taken when it is free. Without it a folder that is in use
    /// is an error.
    pub is_successor: bool,
    /// Bytes of blocks at the most, at least [`CACHE_BYTES_MIN`].
    pub cache_bytes: u64,
    /// Where the store answers, `http://HOST:PORT` or `https://HOST:PORT`; if it does not say,
    /// the variable `AWS_ENDPOINT_URL` does, and else it is Amazon's.
    pub endpoint: Option<String>,
}

/// Why films of an object store cannot be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ObjectsError {
    /// It is no such URL.
    #[error("{url}: {reason}; write s3://BUCKET or s3://BUCKET/FOLDER")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What was said of the store does not suffice, or contradicts itself.
    #[error("{location}: {source}; look at the variables AWS_... of the server")]
    Settings {
        /// Where the films are.
        location: Location,
        /// What is wrong.
        source: object_store::Error,
    },
    /// The store lets nobody in.
    #[error(
        "{location}: {reason}; look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and \
         AWS_ENDPOINT_URL"
    )]
    Refused {
        /// Where the films are.
        location: Location,
        /// What the store said.
        reason: String,
    },
    /// There can be no file in the folder.
    #[error("{}: {source}; name a folder of a local disk with --object-cache", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the folder.
    #[error(
        "{}: process {process} keeps its blocks here; end it, or name another folder with \
         --object-cache", folder.display()
    )]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
        /// The process.
        process: String,
    },
    /// There are no threads.
    #[error("object store: {0}")]
    Threads(#[source] io::Error),
}

/// The films of an object store.
pub struct Objects {
    store: Arc<Store>,
    runtime: Handle,
    /// Ends the thread that drives the runtime when it is dropped. What is under way is of no use
    /// any more then; whoever waits for it is told.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Objects {
    /// Asks the store whether there is such a bucket, by credentials of the environment
    /// (`AWS_ACCESS_KEY_ID` and so on, `AWS_ENDPOINT_URL` for one that is not Amazon's), a web
    /// identity, or the machine's own. Blocks; not to be called in an asynchronous context.
    ///
    /// # Errors
    ///
    /// See [`ObjectsError`]. That the store does not answer is none: it may later.
    pub fn connect(settings: Settings) -> Result<Self, ObjectsError> {
        // If the process has one, that is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        // Of one thread: with a scheduler of several every socket and timer of the whole program
        // would be larger.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(REQUESTS_MAX)
            .thread_name("onrush-objects")
            .enable_all()
            .build()
            .map_err(ObjectsError::Threads)?;
        let folder = settings.folder.clone();
        let waits = settings.is_kept && settings.is_successor;
        let store = {
            let _inside = runtime.enter();
            Store::new(Bucket::new(settings)?)
        };
        runtime.block_on(store.check())?;
        let cache = Arc::clone(&store.bucket.cache);
        if waits && !cache.has_folder() {
            runtime.spawn(take_when_free(Arc::clone(&cache), folder));
        }
        runtime.spawn(note_uses(Arc::clone(&cache)));
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new()
            .name("onrush-objects".to_owned())
            .spawn(move || {
                // Nothing is ever sent.
                let _over: Result<Infallible, _> = runtime.block_on(stopped);
                cache.note_uses();
                runtime.shutdown_background();
            })
            .map_err(ObjectsError::Threads)?;
        Ok(Self {
            store: Arc::new(store),
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Has the folder when the process before this one has ended.
async fn take_when_free(cache: Arc<Cache>, folder: PathBuf) {
    loop {
        let (with, path) = (Arc::clone(&cache), folder.clone());
        let tried = spawn_blocking(move || match Folder::take(&path) {
            Ok(taken) => with.adopt(taken).map(|()| true),
            Err(NotTaken::InUse(_)) => Ok(false),
            Err(NotTaken::System(error)) => Err(error),
        });
        match tried.await {
            Ok(Ok(false)) => sleep(TAKE_EVERY).await,
            Ok(Ok(true)) => {
                info!("object cache: {} is this process's now", folder.display());
                return;
            }
            Err(_) => return,
            Ok(Err(error)) => {
                let path = folder.display();
                warn!("object cache: {path}: blocks end with this process: {error}");
                return;
            }
        }
    }
}

async fn note_uses(cache: Arc<Cache>) {
    loop {
        sleep(NOTE_EVERY).await;
        let cache = Arc::clone(&cache);
        if spawn_blocking(move || cache.note_uses()).await.is_err() {
            return;
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        drop(self.stop.take());
        // What it calls back may be what drops this.
        let is_another = |it: &JoinHandle<()>| it.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_another) {
            drop(thread.join());
        }
    }
}

impl RemoteFiles for Objects {
    fn open(&self, name: &str, then: Then<RemoteFile>) {
        let (store, name) = (Arc::clone(&self.store), name.to_owned());
        self.runtime
            .spawn(async move { then(store.open(&name).await) });
    }

    fn names(&self, names_max: usize) -> io::Result<(Vec<PathBuf>, usize)> {
        self.runtime.block_on(self.store.bucket.names(names_max))
    }

    fn list(&self, name: &str, entries_max: usize, then: Then<(Vec<RemoteEntry>, bool)>) {
        let (store, name) = (Arc::clone(&self.store), name.to_owned());
        self.runtime
            .spawn(async move { then(store.bucket.list(&name, entries_max).await) });
    }

    fn let_go_of_unused(&self) -> bool {
        self.store.let_go_of_unused()
    }

    fn stats(&self) -> &RemoteStats {
        &self.store.bucket.cache.stats
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.store.bucket.location)
    }
}
