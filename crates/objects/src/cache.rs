//! Which blocks of which versions are in their files, which are under way, and which may go.
//!
//! A version that an [`Object`](crate::object::Object) has open has its file open here. With a
//! [`Folder`] its file has a name, and what is in it outlives the object and the process: such
//! blocks are known from the start, and [`Found::Unchecked`] until somebody wants them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onrush_server::remote::RemoteStats;
use rustix::io::Errno;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::BLOCK_BYTES;
use crate::failure::Failure;
use crate::folder::{Donor, Folder, is_full, open_locked, punch, unnamed};
use crate::index::{self, Identity, Slot};

mod restart;

/// Between two lines of the log about one trouble.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A version's number and a block's in it.
pub(crate) type Key = (u64, u64);

/// What became of a block that was under way.
pub(crate) type Outcome = Option<Result<(), Failure>>;

/// All blocks.
#[derive(Debug)]
pub(crate) struct Cache {
    blocks_max: usize,
    /// Where files are.
    path: PathBuf,
    /// The same folder, for files without a name, whatever becomes of its path.
    opened: OwnedFd,
    /// Has their names, if they have any.
    folder: OnceLock<Folder>,
    /// Whether another process has the folder, and leaves it to this one.
    is_successor: bool,
    blocks: Mutex<Blocks>,
    /// Told when a block may go.
    freed: Notify,
    told: Mutex<Option<Instant>>,
    /// What has been done for the blocks so far.
    pub(crate) stats: RemoteStats,
}

#[derive(Debug)]
struct Blocks {
    known: HashMap<Key, Block>,
    /// Those that nobody holds, by when they were used last.
    idle: BTreeMap<u64, Key>,
    /// When the last was used: a time, in ns since 1970, when the process began; one more for each
    /// use. So it grows across processes too.
    uses: u64,
    /// What `uses` was at first.
    began: u64,
    /// Up to then the indices know when blocks were used.
    noted: u64,
    versions: HashMap<u64, Version>,
    /// Those whose files have names.
    named: BTreeMap<Arc<Identity>, u64>,
    next: u64,
}

#[derive(Debug)]
struct Version {
    identity: Arc<Identity>,
    /// While an object has it open.
    file: Option<Arc<File>>,
    is_open: bool,
    is_named: bool,
    /// Whether the object is as it was, as far as is known.
    is_current: bool,
    /// What another process has of it.
    donor: Option<Arc<Donor>>,
    /// Those that are known.
    blocks: u64,
}

#[derive(Debug)]
struct Block {
    state: State,
    checksum: u64,
    holders: usize,
    used: u64,
}

#[derive(Debug)]
enum State {
    There,
    /// By its slot it is there.
    Unchecked,
    Coming(watch::Receiver<Outcome>),
}

/// What there is of a block.
#[derive(Debug)]
pub(crate) enum Found {
    /// It is there, and held.
    Held,
    /// It is under way.
    Coming(watch::Receiver<Outcome>),
    /// It is for the caller to bring, and to tell here.
    Missing(watch::Sender<Outcome>),
    /// The same, but it may be in the file: if what is there has this checksum.
    Unchecked(watch::Sender<Outcome>, u64),
    /// There is no room: all others are held, or under way.
    Full,
}

/// A version that was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
}

/// Blocks that stay until this is dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    cache: Arc<Cache>,
    keys: Vec<Key>,
}

impl Cache {
    /// For so many blocks, in files at `path`.
    pub(crate) fn new(blocks_max: usize, path: PathBuf, is_successor: bool) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let uses = now.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(0));
        // Also by a clock that was never set there are numbers for all that was used before.
        let uses = uses.max(1 << 40);
        Ok(Self {
            blocks_max,
            opened: open_locked(&path)?,
            path,
            folder: OnceLock::new(),
            is_successor,
            blocks: Mutex::new(Blocks {
                known: HashMap::new(),
                idle: BTreeMap::new(),
                uses,
                began: uses,
                noted: uses,
                versions: HashMap::new(),
                named: BTreeMap::new(),
                next: 0,
            }),
            freed: Notify::new(),
            told: Mutex::default(),
            stats: RemoteStats::default(),
        })
    }

    /// Opens a version. What is there of others of its object goes.
    pub(crate) fn open(&self, identity: Identity) -> io::Result<Opened> {
        let identity = Arc::new(identity);
        if let Some(folder) = self.folder.get()
            && let Some(opened) = self.reopened(folder, &identity)
        {
            return Ok(opened);
        }
        let file = Arc::new(self.new_file(identity.file_bytes)?);
        let named = self.folder.get().map(|it| it.name(&file, &identity, &[]));
        if let Some(Err(error)) = &named {
            let path = &identity.path;
            warn!("object {path:?}: what is here of it ends with this process: {error}");
        }
        let may_give = self.is_successor && named.is_none();
        let donor = may_give.then(|| Donor::open(&self.path, &identity).ok());
        let mut blocks = self.lock();
        let number = blocks.add(Version {
            identity,
            file: Some(Arc::clone(&file)),
            is_open: true,
            is_named: matches!(named, Some(Ok(()))),
            is_current: true,
            donor: donor.flatten().map(Arc::new),
            blocks: 0,
        });
        Ok(Opened { number, file })
    }

    /// The same of one that has been here.
    fn reopened(&self, folder: &Folder, identity: &Arc<Identity>) -> Option<Opened> {
        let number = {
            let mut blocks = self.lock();
            let object = (&*identity.store, &*identity.path);
            for number in blocks.versions_of(object) {
                let version = &blocks.versions[&number];
                if version.identity != *identity || version.is_open {
                    self.retire(&mut blocks, number);
                }
            }
            let number = *blocks.named.get(identity)?;
            // Its last block may go, and it stays.
            blocks.versions.get_mut(&number)?.is_open = true;
            number
        };
        let opened = folder.open(identity);
        let mut blocks = self.lock();
        let version = blocks.versions.get_mut(&number)?;
        match opened {
            Ok(file) => {
                let file = Arc::new(file);
                version.file = Some(Arc::clone(&file));
                Some(Opened { number, file })
            }
            Err(error) => {
                let path = &identity.path;
                warn!("object {path:?}: what was here of it is gone: {error}");
                version.is_open = false;
                self.retire(&mut blocks, number);
                None
            }
        }
    }

    /// A file without a name, if need be in the room of others.
    pub(crate) fn new_file(&self, file_bytes: u64) -> io::Result<File> {
        loop {
            let made = unnamed(&self.opened, file_bytes);
            match made {
                Err(error) if is_full(&error) && self.make_room() => {}
                made => return made,
            }
        }
    }

    /// What those are told who want a film for whose blocks there can be no file: not what the
    /// system says, which may read as if there were no such film.
    pub(crate) fn no_file(&self, error: io::Error) -> io::Error {
        // The library has other films closed for it, here and in its stores, and asks again.
        if let Some(Errno::MFILE | Errno::NFILE) = Errno::from_io_error(&error) {
            return error;
        }
        let text = format!("no file for blocks in {}: {error}", self.path.display());
        self.tell(|| warn!("object cache: {text}"));
        Failure::unknown(text).into()
    }

    /// There is no such object any more: what is here of it ends with those who have it open.
    pub(crate) fn remove(&self, store: &str, path: &str) {
        let mut blocks = self.lock();
        for number in blocks.versions_of((store, path)) {
            self.retire(&mut blocks, number);
        }
        self.count(&blocks);
    }

    /// There is another by the name of this version.
    pub(crate) fn replace(&self, number: u64) {
        self.retire(&mut self.lock(), number);
    }

    /// Takes a version's name, and all of it if nobody has it open.
    fn retire(&self, blocks: &mut Blocks, number: u64) {
        let Some(version) = blocks.versions.get_mut(&number) else {
            return;
        };
        version.is_current = false;
        if version.is_named {
            version.is_named = false;
            blocks.named.remove(&version.identity);
            if let Some(folder) = self.folder.get() {
                folder.remove(&version.identity);
            }
        }
        if !version.is_open {
            blocks.forget(number);
        }
    }

    /// Nobody has the version open any more. Without a name its blocks are gone with its file.
    pub(crate) fn close(&self, number: u64) {
        let mut blocks = self.lock();
        if let Some(version) = blocks.versions.get_mut(&number) {
            (version.file, version.donor, version.is_open) = (None, None, false);
            if !version.is_named || version.blocks == 0 {
                self.retire(&mut blocks, number);
            }
        }
        self.count(&blocks);
        drop(blocks);
        self.freed.notify_waiters();
    }

    /// Looks for a block of a version that is open. With `hold` it is held for the caller if it is
    /// there.
    pub(crate) fn find(&self, key: Key, hold: bool) -> Found {
        let mut blocks = self.lock();
        if let Some(block) = blocks.known.get_mut(&key) {
            match &block.state {
                State::Coming(coming) => return Found::Coming(coming.clone()),
                State::There if hold => blocks.hold(key),
                State::There => {}
                State::Unchecked => {
                    let (sender, receiver) = watch::channel(None);
                    block.state = State::Coming(receiver);
                    let (used, checksum) = (block.used, block.checksum);
                    blocks.idle.remove(&used);
                    return Found::Unchecked(sender, checksum);
                }
            }
            return Found::Held;
        }
        while blocks.known.len() >= self.blocks_max {
            if !self.evict(&mut blocks) {
                return Found::Full;
            }
        }
        let (sender, receiver) = watch::channel(None);
        let coming = Block {
            state: State::Coming(receiver),
            checksum: 0,
            holders: 0,
            used: 0,
        };
        blocks.insert(key, coming);
        Found::Missing(sender)
    }

    /// Holds all of these blocks, if all are there.
    pub(crate) fn hold_all(self: &Arc<Self>, keys: Vec<Key>) -> Option<Pins> {
        let mut blocks = self.lock();
        let is_there = |key: &Key| {
            let block = blocks.known.get(key);
            block.is_some_and(|block| matches!(block.state, State::There))
        };
        if !keys.iter().all(is_there) {
            return None;
        }
        for &key in &keys {
            blocks.hold(key);
        }
        let cache = Arc::clone(self);
        Some(Pins { cache, keys })
    }

    /// Whether the block is there or under way.
    pub(crate) fn knows(&self, key: Key) -> bool {
        self.lock().known.contains_key(&key)
    }

    /// Writes a block that is under way; its checksum then.
    pub(crate) fn write(&self, (number, block): Key, file: &File, bytes: &[u8]) -> io::Result<u64> {
        let checksum = index::checksum(bytes);
        file.write_all_at(bytes, block * BLOCK_BYTES)?;
        let (identity, used) = {
            let blocks = self.lock();
            let version = blocks.versions.get(&number).filter(|it| it.is_named);
            (version.map(|it| Arc::clone(&it.identity)), blocks.uses)
        };
        if let (Some(folder), Some(identity)) = (self.folder.get(), identity) {
            let slot = (block, Some(Slot { checksum, used }));
            if let Err(error) = folder.note(&identity, [slot]) {
                self.tell(|| warn!("object cache: a block ends with this process: {error}"));
            }
        }
        Ok(checksum)
    }

    /// A block that was under way is there, with this checksum, or is not to come.
    pub(crate) fn settle(&self, key: Key, checksum: Option<u64>) {
        let mut blocks = self.lock();
        if let Some(checksum) = checksum {
            blocks.uses += 1;
            let used = blocks.uses;
            if let Some(block) = blocks.known.get_mut(&key) {
                (block.state, block.checksum, block.used) = (State::There, checksum, used);
                blocks.idle.insert(used, key);
            }
        } else {
            self.let_go(&mut blocks, key);
        }
        self.count(&blocks);
        drop(blocks);
        self.freed.notify_waiters();
    }

    /// Lets go of one block for the sake of others. Whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        let mut blocks = self.lock();
        let is_made = self.evict(&mut blocks);
        self.count(&blocks);
        is_made
    }

    /// Whether what is here outlives the process.
    pub(crate) fn has_folder(&self) -> bool {
        self.folder.get().is_some()
    }

    /// Waits until there may be room.
    pub(crate) fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.freed.notified()
    }

    /// What another process may have of a version.
    pub(crate) fn donor(&self, number: u64) -> Option<Arc<Donor>> {
        self.lock().versions.get(&number)?.donor.clone()
    }

    /// Says something, but not each time when there is much of it.
    pub(crate) fn tell(&self, say: impl FnOnce()) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|it| it.elapsed() > TOLD_EVERY) {
            *told = Some(Instant::now());
            say();
        }
    }

    /// Lets go of the block that was not used for longest. Whether there was one.
    fn evict(&self, blocks: &mut Blocks) -> bool {
        let Some((_, key)) = blocks.idle.pop_first() else {
            return false;
        };
        self.let_go(blocks, key);
        true
    }

    /// Gives a block's room back. Within the lock: nobody may write the block again before.
    fn let_go(&self, blocks: &mut Blocks, key: Key) {
        let (number, block) = key;
        if blocks.known.remove(&key).is_none() {
            return;
        }
        let Some(version) = blocks.versions.get_mut(&number) else {
            return;
        };
        version.blocks -= 1;
        if !version.is_open && version.blocks == 0 {
            self.retire(blocks, number);
            return;
        }
        let folder = self.folder.get().filter(|_| version.is_named);
        let punched = match (&version.file, folder) {
            (Some(file), _) => punch(file, [block].into_iter()),
            (None, Some(folder)) => folder
                .open(&version.identity)
                .and_then(|file| punch(&file, [block].into_iter())),
            (None, None) => Ok(()),
        };
        let noted = folder.map_or(Ok(()), |it| it.note(&version.identity, [(block, None)]));
        if let Err(error) = punched.and(noted) {
            warn!("object cache: a block's room is not given back: {error}");
        }
    }

    /// The last block of a film counts as a whole one.
    fn count(&self, blocks: &Blocks) {
        let bytes = blocks.known.len() as u64 * BLOCK_BYTES;
        self.stats.cached_bytes.store(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    fn add(&mut self, version: Version) -> u64 {
        let number = self.next;
        self.next += 1;
        if version.is_named {
            self.named.insert(Arc::clone(&version.identity), number);
        }
        self.versions.insert(number, version);
        number
    }

    /// The versions of an object whose files have names.
    fn versions_of(&self, (store, path): (&str, &str)) -> Vec<u64> {
        let first = Identity {
            store: store.to_owned(),
            path: path.to_owned(),
            etag: String::new(),
            file_bytes: 0,
        };
        let from_there = self.named.range(first..);
        let are_of_it = from_there.take_while(|(it, _)| it.store == store && it.path == path);
        are_of_it.map(|(_, &number)| number).collect()
    }

    fn insert(&mut self, key: Key, block: Block) {
        if let Some(version) = self.versions.get_mut(&key.0) {
            version.blocks += 1;
        }
        self.known.insert(key, block);
    }

    /// A version is gone with all of its blocks.
    fn forget(&mut self, number: u64) {
        let Some(version) = self.versions.remove(&number) else {
            return;
        };
        for block in 0..version.identity.blocks() {
            if let Some(block) = self.known.remove(&(number, block)) {
                self.idle.remove(&block.used);
            }
        }
    }

    fn hold(&mut self, key: Key) {
        let block = self.known.get_mut(&key).expect("the caller has seen it");
        if block.holders == 0 {
            self.idle.remove(&block.used);
        }
        block.holders += 1;
    }

    fn release(&mut self, key: Key) {
        self.uses += 1;
        let Some(block) = self.known.get_mut(&key) else {
            return;
        };
        block.holders -= 1;
        if block.holders == 0 {
            block.used = self.uses;
            self.idle.insert(self.uses, key);
        }
    }
}

impl Pins {
    /// None yet.
    pub(crate) fn new(cache: &Arc<Cache>) -> Self {
        let cache = Arc::clone(cache);
        let keys = Vec::new();
        Self { cache, keys }
    }

    /// One more, which the caller has [`Found::Held`].
    pub(crate) fn push(&mut self, key: Key) {
        self.keys.push(key);
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut blocks = self.cache.lock();
        for &key in &self.keys {
            blocks.release(key);
        }
        drop(blocks);
        self.cache.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
