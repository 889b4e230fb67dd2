//! One version of an object, and the file with what was brought of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use object_store::path::Path;
use onrush_server::remote::{Held, RemoteBytes, RemoteFile, Then};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::bucket::Bucket;
use crate::cache::{Found, Key, Opened, Outcome, Pins};
use crate::failure::Failure;
use crate::{AHEAD_MAX, BLOCK_BYTES, RETRY_TIME_MAX};

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Object {
    /// For those who are called back.
    this: Weak<Self>,
    pub(crate) number: u64,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) path: Path,
    pub(crate) etag: String,
    pub(crate) file_bytes: u64,
    modified_ns: i128,
    pub(crate) file: Arc<File>,
    pub(crate) is_replaced: AtomicBool,
    runtime: Handle,
}

impl Object {
    /// To be called in the runtime that brings its blocks.
    pub(crate) fn new(
        bucket: &Arc<Bucket>,
        path: Path,
        (etag, file_bytes, modified_ns): (String, u64, i128),
        Opened { number, file }: Opened,
    ) -> Arc<Self> {
        let stats = &bucket.cache.stats;
        stats.open_files.fetch_add(1, Ordering::Relaxed);
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            number,
            bucket: Arc::clone(bucket),
            path,
            etag,
            file_bytes,
            modified_ns,
            file,
            is_replaced: AtomicBool::new(false),
            runtime: Handle::current(),
        })
    }

    pub(crate) fn remote_file(self: &Arc<Self>) -> RemoteFile {
        RemoteFile {
            file: Arc::clone(&self.file),
            version: fnv(self.etag.as_bytes()),
            file_bytes: self.file_bytes,
            modified_ns: self.modified_ns,
            bytes: Arc::<Self>::clone(self),
        }
    }

    /// The blocks of these parts.
    fn blocks(&self, parts: &[Range<u64>]) -> BTreeSet<u64> {
        let of = |part: &Range<u64>| {
            let end = part.end.min(self.file_bytes);
            match part.start < end {
                true => part.start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES),
                false => 0..0,
            }
        };
        parts.iter().flat_map(of).collect()
    }

    pub(crate) fn key(&self, block: u64) -> Key {
        (self.number, block)
    }

    async fn held(self: Arc<Self>, blocks: BTreeSet<u64>) -> Result<Pins, Failure> {
        // All are under way before one is waited for.
        for &block in &blocks {
            let found = self.bucket.cache.find(self.key(block), false);
            self.start(block, found);
        }
        self.read_ahead(&blocks);
        let mut pins = Pins::new(&self.bucket.cache);
        for block in blocks {
            self.one(block).await?;
            pins.push(self.key(block));
        }
        Ok(pins)
    }

    /// Waits until the block is there, and holds it.
    async fn one(self: &Arc<Self>, block: u64) -> Result<(), Failure> {
        let cache = &self.bucket.cache;
        loop {
            let freed = cache.freed();
            let found = cache.find(self.key(block), true);
            match found {
                Found::Held => return Ok(()),
                Found::Coming(coming) => outcome(coming).await?,
                Found::Missing(_) | Found::Unchecked(..) => self.start(block, found),
                Found::Full => timeout(RETRY_TIME_MAX, freed).await.map_err(|_| {
                    Failure::unknown(
                        "every block of the object cache is in use; make it larger with \
                         --object-cache-size",
                    )
                })?,
            }
        }
    }

    /// Brings a block that is missing, or that nobody has looked at since the server began.
    fn start(self: &Arc<Self>, block: u64, found: Found) {
        let (sender, checksum) = match found {
            Found::Missing(sender) => (sender, None),
            Found::Unchecked(sender, checksum) => (sender, Some(checksum)),
            Found::Held | Found::Coming(_) | Found::Full => return,
        };
        let object = Arc::clone(self);
        self.runtime.spawn(async move {
            let brought = object.bring(block, checksum).await;
            let cache = &object.bucket.cache;
            cache.settle(object.key(block), brought.as_ref().ok().copied());
            // All who waited may have gone.
            sender.send_replace(Some(brought.map(drop)));
        });
    }

    /// There is another object by the name of this one, or none.
    pub(crate) fn replace(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
        self.bucket.cache.replace(self.number);
    }

    /// Somebody who reads one block behind the other finds the next ones there.
    fn read_ahead(self: &Arc<Self>, blocks: &BTreeSet<u64>) {
        let (Some(&first), Some(&last)) = (blocks.first(), blocks.last()) else {
            return;
        };
        let before = first.checked_sub(1).map(|block| self.key(block));
        if !before.is_some_and(|key| self.bucket.cache.knows(key)) {
            return;
        }
        let end = self.file_bytes.div_ceil(BLOCK_BYTES);
        for block in (last + 1..end).take(AHEAD_MAX) {
            let found = self.bucket.cache.find(self.key(block), false);
            self.start(block, found);
        }
    }
}

impl RemoteBytes for Object {
    fn try_hold(&self, parts: &[Range<u64>]) -> Option<Held> {
        let this = self.this.upgrade()?;
        let blocks = self.blocks(parts);
        let keys = blocks.iter().map(|&it| self.key(it)).collect();
        let pins = self.bucket.cache.hold_all(keys)?;
        this.read_ahead(&blocks);
        Some(Held::new((pins, this)))
    }

    fn hold(&self, parts: &[Range<u64>], then: Then<Held>) {
        let blocks = self.blocks(parts);
        let Some(this) = self.this.upgrade() else {
            return;
        };
        self.runtime.spawn(async move {
            let pins = Arc::clone(&this).held(blocks).await;
            then(pins.map(|pins| Held::new((pins, this))).map_err(Into::into));
        });
    }

    fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let cache = &self.bucket.cache;
        cache.close(self.number);
        cache.stats.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn outcome(mut coming: watch::Receiver<Outcome>) -> Result<(), Failure> {
    let settled = coming.wait_for(Option::is_some).await;
    let settled = settled.map(|outcome| outcome.clone());
    let stopped = || Err(Failure::unknown("the server is stopping"));
    settled.ok().flatten().unwrap_or_else(stopped)
}

/// FNV-1a: the same on every machine.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
