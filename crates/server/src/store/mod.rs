//! Packet images in locked, registered memory, built once and shared by all sessions of a file.
//!
//! A [`Source`] is a file cut one way. Its packets are grouped into chunks of fixed size; a chunk
//! that somebody reads, or will soon, lies in the pool as images one behind the other with the
//! table of their bursts behind them (see [`layout`]). How many packets a chunk has the plan says,
//! once for all: as many as fit even if each were as long as any may be. So the chunk of a packet
//! follows from its number, which is all that a seek needs, and packets that differ in size cost
//! some memory at a chunk's end. Builder threads make chunks on request, ahead of the readers; no
//! reader ever waits in a read. A source's table only *hints* at where a chunk is: the pool
//! decides, by the chunk's key.
//!
//! A file that grows fills its last chunk bit by bit. A chunk tells itself how much it holds; one
//! that has less than is wanted counts as not there, and is built anew beside the old one, which
//! whoever reads it keeps.
//!
//! The store does not know sessions, and it does not watch files: a change shows when a chunk is
//! built.

mod builder;
mod film_key;
mod lanes;
pub mod layout;
mod source;
mod table;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use onrush_sys::pool::{Pin, Pool};
use onrush_sys::thread::keep_off;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::experiments::Faults;
use crate::remote::{Held, RemoteBytes};
pub(crate) use builder::open_direct;
pub use film_key::{FILM_KEY_USES_MAX, FilmKey, ImageCipher};
use lanes::Lanes;
pub use source::Source;

/// Chunks that may be requested and not yet built, of those that are needed and of those that will
/// be; and of each disk that has all builders that it may have. A request beyond it is repeated by
/// the reader.
pub const REQUESTS_MAX: usize = 4096;

/// Threads that read files and build chunks.
pub const BUILDERS: usize = 4;

/// Those of them that read from one disk at once. The last that is free reads only from a disk that
/// has none, so that two that do not answer leave one to all others.
pub const DEVICE_BUILDERS_MAX: usize = 2;

// They are the bits of a number.
const _: () = assert!(BUILDERS <= 32);

/// Lists of those who wait for chunks: whoever waits is looked at for the chunks of its list alone.
/// A prime number of them, so that the source's number tells chunks apart as well as their own.
const WAITING_LISTS: u64 = 251;

/// How often whoever waits asks again: its request may have found no room.
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(200);

/// Parts of a file with holes of which one chunk is made, at the most.
pub const PARTS_MAX: usize = 1024;

/// Chunks of one source: 2^31 less the two marks of its table.
pub const CHUNKS_MAX: u64 = (1 << 31) - 2;

/// Of the pool's chunks, one in so many is kept for those who have just been let in: each holds two
/// while it plays, and takes the second only then.
const SPARE_SHARE: usize = 16;

/// A table entry: nobody has asked for the chunk, or it was not there the last time somebody
/// looked.
const ABSENT: u32 = 0;

/// A table entry: a builder has been asked, for somebody who will need the chunk.
const AHEAD: u32 = 1;

/// A table entry: a builder has been asked, for somebody who waits.
const NEEDED: u32 = 2;

/// A table entry: the chunk cannot be built.
const FAILED: u32 = 3;

/// Table entries from here on are pool chunk numbers.
const FOUND: u32 = 4;

/// The cache of packet images.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    builders: Vec<JoinHandle<()>>,
}

/// What readers and builders share.
#[derive(Debug)]
pub struct Shared {
    pool: Arc<Pool>,
    /// What somebody waits for is built before what somebody will.
    needed: ArrayQueue<Request>,
    ahead: ArrayQueue<Request>,
    /// For builders alone.
    lanes: Lanes,
    /// Builders that rest, by their numbers: a bit for each.
    resting: AtomicU32,
    /// Told of every request that was served, well or not: of each chunk one of the lists.
    built: Box<[Notify]>,
    stopping: AtomicBool,
    builder_threads: OnceLock<Box<[std::thread::Thread]>>,
    counters: Counters,
    faults: Faults,
}

#[derive(Debug)]
struct Request {
    source: Arc<Source>,
    chunk: u32,
    /// [`AHEAD`] or [`NEEDED`]. When the chunk's entry says something else, this request is served,
    /// or another is in its place.
    urgency: u32,
    /// Of a file with holes, what is held of it for this chunk.
    held: Option<Held>,
    /// Which parts these are.
    parts: Vec<Range<u64>>,
}

/// What the store has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Chunks that streams began to send from: those built and those that were there.
    pub chunks_read: AtomicU64,
    /// Chunks built.
    pub chunks_built: AtomicU64,
    /// Bytes read from files.
    pub bytes_read: AtomicU64,
    /// Of those, by direct input (O_DIRECT), past the page cache.
    pub bytes_read_direct: AtomicU64,
    /// Requests that found every chunk of the pool in use.
    pub pool_full: AtomicU64,
}

/// The file behind a source.
pub trait Backing: std::fmt::Debug + Send + Sync {
    /// The open file.
    fn file(&self) -> &File;

    /// The number of the device that its bytes are read from. Waits for nothing.
    fn device(&self) -> u64 {
        onrush_sys::fs::device(self.file())
    }

    /// The same open file once more, for direct input (O_DIRECT), if it can be read so.
    fn direct(&self) -> Option<Arc<File>> {
        None
    }

    /// What fills the file's holes, if it has any: whoever reads it holds what it reads.
    fn remote(&self) -> Option<&Arc<dyn RemoteBytes>> {
        None
    }

    /// What speaks against reading it, asked before each chunk. Of a file as such nothing does:
    /// whether its bytes are those that were indexed is seen when they are read.
    ///
    /// # Errors
    ///
    /// In words what has happened to it.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What a reader gets who asks for a chunk.
#[derive(Debug)]
pub enum Acquired {
    /// The chunk, pinned.
    Ready(Pin),
    /// It is being built, or will be: ask again.
    Wait,
    /// It never will be; see [`Source::failure`].
    Failed,
}

impl Store {
    /// Starts the builders of a pool. They keep off the processors `data_cores`, where there are
    /// others.
    ///
    /// # Errors
    ///
    /// EAGAIN if no thread can be made, or no memory for what it reads.
    pub fn start(pool: Arc<Pool>, data_cores: &[usize], faults: Faults) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(pool, faults));
        let builders = (0..BUILDERS)
            .map(|i| {
                let (shared, data_cores) = (Arc::clone(&shared), data_cores.to_owned());
                let buffer = builder::buffer().map_err(io::Error::other)?;
                std::thread::Builder::new()
                    .name(format!("onrush-build-{i}"))
                    .spawn(move || {
                        keep_off(&data_cores);
                        builder::run(&shared, i, buffer);
                    })
            })
            .collect::<io::Result<Vec<_>>>()?;
        let threads = builders.iter().map(|b| b.thread().clone()).collect();
        shared.builder_threads.set(threads).expect("set here alone");
        Ok(Self { shared, builders })
    }

    /// What readers hold.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for thread in self.shared.builder_threads.get().into_iter().flatten() {
            thread.unpark();
        }
        for builder in self.builders.drain(..) {
            // A builder that panicked has said so on its own; there is nothing to add.
            drop(builder.join());
        }
    }
}

impl Shared {
    /// A store that nobody builds for yet.
    fn new(pool: Arc<Pool>, faults: Faults) -> Self {
        Self {
            pool,
            needed: ArrayQueue::new(REQUESTS_MAX),
            ahead: ArrayQueue::new(REQUESTS_MAX),
            lanes: Lanes::default(),
            resting: AtomicU32::new(0),
            built: (0..WAITING_LISTS).map(|_| Notify::new()).collect(),
            stopping: AtomicBool::new(false),
            builder_threads: OnceLock::new(),
            counters: Counters::default(),
            faults,
        }
    }

    /// The chunk number `chunk` of `source`, pinned, or a promise. Enters the kernel at most to
    /// wake a builder, which happens once for a chunk however many ask for it. Allocates nothing.
    ///
    /// # Panics
    /// If the source has no such chunk.
    #[must_use]
    pub fn acquire(&self, source: &Arc<Source>, chunk: u32) -> Acquired {
        self.acquire_for(source, source.first_of(chunk))
    }

    /// The same for the chunk that holds `packet`, with that packet in it.
    ///
    /// # Panics
    /// If the source has no such chunk.
    #[must_use]
    pub fn acquire_for(&self, source: &Arc<Source>, packet: u64) -> Acquired {
        let chunk = source.chunk_of(packet);
        if let Some(pin) = self.held(source, packet) {
            return Acquired::Ready(pin);
        }
        if source.table.entry(chunk).load(Ordering::Acquire) == FAILED {
            return Acquired::Failed;
        }
        self.request(source, chunk, NEEDED);
        Acquired::Wait
    }

    /// The chunk that holds `packet`, pinned, if it is there with that packet in it; asks nobody
    /// for it.
    ///
    /// # Panics
    /// If the source has no such chunk.
    pub fn held(&self, source: &Source, packet: u64) -> Option<Pin> {
        let chunk = source.chunk_of(packet);
        let entry = source.table.entry(chunk);
        let seen = entry.load(Ordering::Acquire);
        let pin = self.pool.pin(seen.checked_sub(FOUND)?, source.key(chunk));
        let pin = pin.and_then(|pin| {
            if self.covers(source, &pin, packet) {
                return Some(pin);
            }
            self.pool.unpin(pin);
            None
        });
        if pin.is_none() {
            // Its place was given to another chunk, or the file has grown. Whoever notices first
            // takes the hint away; if another did, there is nothing left to do.
            entry
                .compare_exchange(seen, ABSENT, Ordering::Relaxed, Ordering::Relaxed)
                .ok();
        }
        pin
    }

    /// Whether a chunk holds this packet, and all of it: the last of a file may have been shorter
    /// when it was built.
    pub(crate) fn covers(&self, source: &Source, pin: &Pin, packet: u64) -> bool {
        let first = source.first_of(source.chunk_of(packet));
        let contents = layout::contents(self.pool.bytes(pin));
        match (first + u64::from(contents.images)).checked_sub(packet + 1) {
            None => false,
            Some(0) if contents.is_last_partial => {
                source.ends_with(packet, contents.last_image_bytes)
            }
            Some(_) => true,
        }
    }

    /// The chunk, pinned, if it is there; otherwise asks that it be when it is needed. What
    /// somebody waits for comes first, and if the pool is full nothing comes of it.
    ///
    /// # Panics
    /// If the source has no such chunk.
    pub fn prefetch(&self, source: &Arc<Source>, chunk: u32) -> Option<Pin> {
        self.prefetch_for(source, source.first_of(chunk))
    }

    /// The same for the chunk that holds `packet`, with that packet in it.
    ///
    /// # Panics
    /// If the source has no such chunk.
    pub fn prefetch_for(&self, source: &Arc<Source>, packet: u64) -> Option<Pin> {
        let pin = self.held(source, packet);
        if pin.is_none() {
            self.request(source, source.chunk_of(packet), AHEAD);
        }
        pin
    }

    /// Waits for the chunk. `None` if it cannot be built, or if the pool was full of chunks in use
    /// for `patience`.
    pub async fn fetch(&self, source: &Arc<Source>, chunk: u32, patience: Duration) -> Option<Pin> {
        self.fetch_for(source, source.first_of(chunk), patience)
            .await
    }

    /// The same for the chunk that holds `packet`, with that packet in it.
    pub async fn fetch_for(
        &self,
        source: &Arc<Source>,
        packet: u64,
        patience: Duration,
    ) -> Option<Pin> {
        let (chunk, since) = (source.chunk_of(packet), Instant::now());
        loop {
            // Made before it is asked: what is built from here on is not missed.
            let built = self.built(source, chunk).notified();
            match self.acquire_for(source, packet) {
                Acquired::Ready(pin) => return Some(pin),
                Acquired::Failed => return None,
                Acquired::Wait => {}
            }
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                return None;
            }
            drop(timeout(left.min(ASK_AGAIN_EVERY), built).await);
        }
    }

    /// Who is told when a request for this chunk was served.
    fn built(&self, source: &Source, chunk: u32) -> &Notify {
        let list = usize::try_from(source.key(chunk) % WAITING_LISTS);
        &self.built[list.expect("it is below 251")]
    }

    /// Whether so many chunks are in use that readers of one more file would take them from each
    /// other before they are read. Of a handful of chunks it is never said.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        let chunks = self.pool.chunks();
        self.pool.chunks_in_use() > chunks - chunks / SPARE_SHARE
    }

    /// The memory.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Of each source that has any chunks, by its number: how many there are, and how many of these
    /// are in use.
    pub(crate) fn held_of_sources(&self) -> HashMap<u32, (u64, u64)> {
        let mut held: HashMap<u32, (u64, u64)> = HashMap::new();
        for (key, pins) in self.pool.contents() {
            let (chunks, in_use) = held.entry(source::of_key(key)).or_default();
            *chunks += 1;
            *in_use += u64::from(pins > 0);
        }
        held
    }

    /// What the store has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A stream begins to send from a chunk. All engines count here, a few times a second for each
    /// stream: as seldom as they share the chunk's own counter of pins.
    pub(crate) fn count_read(&self) {
        self.counters.chunks_read.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks for the chunk, as [`AHEAD`] or as [`NEEDED`], unless it was asked for so already.
    fn request(&self, source: &Arc<Source>, chunk: u32, urgency: u32) {
        let entry = source.table.entry(chunk);
        let turn =
            |from, to| entry.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        let seen = entry.load(Ordering::Relaxed);
        if seen >= urgency || turn(seen, urgency).is_err() {
            return;
        }
        let request = Request {
            source: Arc::clone(source),
            chunk,
            urgency,
            held: None,
            parts: Vec::new(),
        };
        let queue = match urgency {
            NEEDED => &self.needed,
            _ => &self.ahead,
        };
        if queue.push(request).is_err() {
            // If a builder was at it already, it is there by now, and the entry says so.
            turn(urgency, seen).ok();
            return;
        }
        self.wake_builder();
    }

    /// Takes up a request again whose bytes are there by now.
    fn put_back(&self, request: Request) {
        let queue = match request.urgency {
            NEEDED => &self.needed,
            _ => &self.ahead,
        };
        if let Err(request) = queue.push(request) {
            self.settle(&request, ABSENT);
        }
        self.wake_builder();
    }

    /// The chunk cannot be built.
    fn fail(&self, request: &Request, reason: String) {
        if request.is_open() {
            request.source.fail(reason);
            self.settle(request, FAILED);
        }
    }

    /// Ends a request, unless another is in its place by now.
    fn settle(&self, request: &Request, as_entry: u32) {
        let entry = request.source.table.entry(request.chunk);
        let (from, order) = (request.urgency, Ordering::Release);
        // Of another the other will tell.
        entry
            .compare_exchange(from, as_entry, order, Ordering::Relaxed)
            .ok();
        self.built(&request.source, request.chunk).notify_waiters();
    }

    /// Wakes one of the builders that rest, if any does: for one request one is enough.
    fn wake_builder(&self) {
        // Behind the request. A builder says that it rests before it looks a last time: either it
        // sees the request, or it is seen here.
        fence(Ordering::SeqCst);
        let mut resting = self.resting.load(Ordering::Relaxed);
        while resting != 0 {
            let number = resting.trailing_zeros();
            let before = self.resting.fetch_and(!(1 << number), Ordering::Relaxed);
            if before & (1 << number) != 0 {
                if let Some(threads) = self.builder_threads.get() {
                    threads[number as usize].unpark();
                }
                return;
            }
            // Somebody else has woken that one.
            resting = before;
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod sequence;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
