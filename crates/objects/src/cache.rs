//! Which blocks of which objects are in their files, which are under way, and which may go.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_server::remote::RemoteStats;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::BLOCK_BYTES;
use crate::failure::Failure;

/// An object's number and a block's in it.
pub(crate) type Key = (u64, u64);

/// What became of a block that was under way.
pub(crate) type Outcome = Option<Result<(), Failure>>;

/// All blocks.
#[derive(Debug)]
pub(crate) struct Cache {
    blocks_max: usize,
    blocks: Mutex<Blocks>,
    /// Told when a block may go.
    freed: Notify,
    /// What has been done for the blocks so far.
    pub(crate) stats: RemoteStats,
}

#[derive(Debug, Default)]
struct Blocks {
    known: HashMap<Key, Block>,
    /// Those that nobody holds, by when they were used last.
    idle: BTreeMap<u64, Key>,
    uses: u64,
}

#[derive(Debug)]
struct Block {
    file: Arc<File>,
    /// `None` once it is there.
    coming: Option<watch::Receiver<Outcome>>,
    holders: usize,
    used: u64,
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
    /// There is no room: all others are held, or under way.
    Full,
}

/// Blocks that stay until this is dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    cache: Arc<Cache>,
    keys: Vec<Key>,
}

impl Cache {
    /// For so many blocks.
    pub(crate) fn new(blocks_max: usize) -> Self {
        Self {
            blocks_max,
            blocks: Mutex::default(),
            freed: Notify::new(),
            stats: RemoteStats::default(),
        }
    }

    /// Looks for a block of an object whose file this is. With `hold` it is held for the caller if
    /// it is there.
    pub(crate) fn find(&self, key: Key, file: &Arc<File>, hold: bool) -> Found {
        let mut blocks = self.lock();
        if let Some(block) = blocks.known.get(&key) {
            return match &block.coming {
                Some(coming) => Found::Coming(coming.clone()),
                None => {
                    if hold {
                        blocks.hold(key);
                    }
                    Found::Held
                }
            };
        }
        while blocks.known.len() >= self.blocks_max {
            if !blocks.evict() {
                return Found::Full;
            }
        }
        let (sender, receiver) = watch::channel(None);
        let block = Block {
            file: Arc::clone(file),
            coming: Some(receiver),
            holders: 0,
            used: 0,
        };
        blocks.known.insert(key, block);
        Found::Missing(sender)
    }

    /// Holds all of these blocks, if all are there.
    pub(crate) fn hold_all(self: &Arc<Self>, keys: Vec<Key>) -> Option<Pins> {
        let mut blocks = self.lock();
        let is_there = |key: &Key| {
            let block = blocks.known.get(key);
            block.is_some_and(|block| block.coming.is_none())
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

    /// A block that was under way is there, or is not to come.
    pub(crate) fn settle(&self, key: Key, is_there: bool) {
        let mut blocks = self.lock();
        if is_there {
            blocks.uses += 1;
            let used = blocks.uses;
            if let Some(block) = blocks.known.get_mut(&key) {
                (block.coming, block.used) = (None, used);
                blocks.idle.insert(used, key);
            }
        } else {
            blocks.known.remove(&key);
        }
        self.count(&blocks);
        drop(blocks);
        self.freed.notify_waiters();
    }

    /// An object is closed: its blocks are gone with its file.
    pub(crate) fn forget(&self, object: u64) {
        let mut blocks = self.lock();
        blocks.known.retain(|key, _| key.0 != object);
        blocks.idle.retain(|_, key| key.0 != object);
        self.count(&blocks);
        drop(blocks);
        self.freed.notify_waiters();
    }

    /// Waits until there may be room.
    pub(crate) fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.freed.notified()
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

    /// Lets go of the block that was not used for longest. Whether there was one.
    fn evict(&mut self) -> bool {
        let Some((_, key)) = self.idle.pop_first() else {
            return false;
        };
        if let Some(block) = self.known.remove(&key) {
            // Within the lock: nobody may write the block again before.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = fallocate(&block.file, flags, key.1 * BLOCK_BYTES, BLOCK_BYTES) {
                warn!("object cache: a block's room is not given back: {error}");
            }
        }
        true
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
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    fn brought(cache: &Cache, key: Key, file: &Arc<File>) {
        let found = cache.find(key, file, false);
        assert!(matches!(found, Found::Missing(_)), "{found:?}");
        let bytes = vec![7; usize::try_from(BLOCK_BYTES).unwrap()];
        file.write_all_at(&bytes, key.1 * BLOCK_BYTES).unwrap();
        cache.settle(key, true);
    }

    #[test]
    fn the_block_used_longest_ago_goes_and_its_room() {
        let cache = Arc::new(Cache::new(3));
        let file = Arc::new(tempfile::tempfile().unwrap());
        for block in 0..3 {
            brought(&cache, (1, block), &file);
        }
        // The first is used once more.
        drop(cache.hold_all(vec![(1, 0)]).unwrap());
        brought(&cache, (1, 3), &file);
        let there = [0, 1, 2, 3].map(|block| cache.knows((1, block)));
        assert_eq!(there, [true, false, true, true]);
        assert_eq!(file.metadata().unwrap().blocks() * 512, 3 * BLOCK_BYTES);
    }

    #[test]
    fn what_is_held_stays_and_what_comes_behind_waits() {
        let cache = Arc::new(Cache::new(2));
        let file = Arc::new(tempfile::tempfile().unwrap());
        brought(&cache, (1, 0), &file);
        brought(&cache, (2, 0), &file);
        let pins = cache.hold_all(vec![(1, 0), (2, 0)]).unwrap();
        assert!(matches!(cache.find((3, 0), &file, true), Found::Full));
        assert!(cache.hold_all(vec![(1, 0), (3, 0)]).is_none());
        drop(pins);
        let (found, again) = (
            cache.find((3, 0), &file, true),
            cache.find((3, 0), &file, true),
        );
        assert!(matches!(found, Found::Missing(_)) && matches!(again, Found::Coming(_)));
        cache.settle((3, 0), false);
        assert!(!cache.knows((3, 0)));
        cache.forget(2);
        assert!(!cache.knows((2, 0)));
    }
}
