//! Packet images in locked, registered memory, built once and shared by all sessions of a file.
//!
//! A [`Source`] is a file cut one way. Its packets are grouped into chunks of fixed size; a chunk that
//! somebody reads, or will soon, lies in the pool as images at constant stride with the table of its bursts
//! behind them (see [`layout`]). Builder threads make chunks on request, ahead of the readers; no reader ever
//! waits in a read. A source's table only *hints* at where a chunk is: the pool decides, by the chunk's key.
//!
//! The store does not know sessions, and it does not watch files: a change shows when a chunk is built.

mod builder;
pub mod layout;

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use onrush_sys::pool::{Pin, Pool};
use onrush_sys::thread::keep_off;
use onrush_wire::media::{Plan, RtpOrigin};
use tokio::sync::Notify;

use crate::faults::Faults;

/// Chunks that may be requested and not yet built, of those that are needed and of those that will be. A request
/// beyond it is repeated by the reader.
pub const REQUESTS_MAX: usize = 4096;

/// Threads that read files and build chunks.
pub const BUILDERS: usize = 2;

/// Chunks of one source: 2^31 less the two marks of its table.
pub const CHUNKS_MAX: u64 = (1 << 31) - 2;

/// Of the pool's chunks, one in so many is kept for those who have just been let in: each holds two while it plays,
/// and takes the second only then.
const SPARE_SHARE: usize = 16;

/// A table entry: nobody has asked for the chunk, or it was not there the last time somebody looked.
const ABSENT: u32 = 0;

/// A table entry: a builder has been asked, for somebody who will need the chunk.
const AHEAD: u32 = 1;

/// A table entry: a builder has been asked, for somebody who waits.
const NEEDED: u32 = 2;

/// Table entries from here on are pool chunk numbers.
const FOUND: u32 = 3;

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
    /// Told of every request that was served, well or not.
    built: Notify,
    stopping: AtomicBool,
    builder_threads: OnceLock<Box<[std::thread::Thread]>>,
    counters: Counters,
    faults: Faults,
}

#[derive(Debug)]
struct Request {
    source: Arc<Source>,
    chunk: u32,
    /// [`AHEAD`] or [`NEEDED`]. When the chunk's entry says something else, this request is served, or another is in
    /// its place.
    urgency: u32,
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

    /// Whether it is still what it was when it was indexed; otherwise what happened to it.
    fn check(&self) -> Result<(), String>;
}

/// A file cut one way: what images of it look like, and where they may be found.
#[derive(Debug)]
pub struct Source {
    id: u32,
    plan: Arc<Plan>,
    origin: RtpOrigin,
    backing: Arc<dyn Backing>,
    direct: OnceLock<Option<File>>,
    packets_per_chunk: u64,
    table: Box<[AtomicU32]>,
    failure: OnceLock<String>,
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
    /// Starts the builders of a pool. They keep off the processors `data_cores`, where there are others.
    /// Errors: EAGAIN if no thread can be made, or no memory for what it reads.
    pub fn start(pool: Arc<Pool>, data_cores: &[usize], faults: Faults) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            pool,
            needed: ArrayQueue::new(REQUESTS_MAX),
            ahead: ArrayQueue::new(REQUESTS_MAX),
            built: Notify::new(),
            stopping: AtomicBool::new(false),
            builder_threads: OnceLock::new(),
            counters: Counters::default(),
            faults,
        });
        let builders = (0..BUILDERS)
            .map(|i| {
                let (shared, data_cores) = (Arc::clone(&shared), data_cores.to_owned());
                let buffer = builder::buffer().map_err(io::Error::other)?;
                std::thread::Builder::new()
                    .name(format!("onrush-build-{i}"))
                    .spawn(move || {
                        keep_off(&data_cores);
                        builder::run(&shared, buffer);
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
        self.shared.wake_builders();
        for builder in self.builders.drain(..) {
            // A builder that panicked has said so on its own; there is nothing to add.
            drop(builder.join());
        }
    }
}

impl Shared {
    /// The chunk number `chunk` of `source`, pinned, or a promise. Enters the kernel at most to wake a
    /// builder, which happens once for a chunk however many ask for it. Allocates nothing.
    ///
    /// # Panics
    /// If the source has no such chunk.
    #[must_use]
    pub fn acquire(&self, source: &Arc<Source>, chunk: u32) -> Acquired {
        if let Some(pin) = self.held(source, chunk) {
            return Acquired::Ready(pin);
        }
        if source.failure.get().is_some() {
            return Acquired::Failed;
        }
        self.request(source, chunk, NEEDED);
        Acquired::Wait
    }

    /// The chunk, pinned, if it is there; asks nobody for it.
    ///
    /// # Panics
    /// If the source has no such chunk.
    pub fn held(&self, source: &Source, chunk: u32) -> Option<Pin> {
        let entry = &source.table[chunk as usize];
        let seen = entry.load(Ordering::Acquire);
        let pin = self.pool.pin(seen.checked_sub(FOUND)?, source.key(chunk));
        if pin.is_none() {
            // Its place was given to another chunk. Whoever notices first takes the hint away; if another did, there
            // is nothing left to do.
            entry
                .compare_exchange(seen, ABSENT, Ordering::Relaxed, Ordering::Relaxed)
                .ok();
        }
        pin
    }

    /// The chunk, pinned, if it is there; otherwise asks that it be when it is needed. What somebody waits for comes
    /// first, and if the pool is full nothing comes of it.
    ///
    /// # Panics
    /// If the source has no such chunk.
    pub fn prefetch(&self, source: &Arc<Source>, chunk: u32) -> Option<Pin> {
        let pin = self.held(source, chunk);
        if pin.is_none() && source.failure.get().is_none() {
            self.request(source, chunk, AHEAD);
        }
        pin
    }

    /// Waits for the chunk. `None` if the source failed, or if the pool was full of chunks in use for
    /// `patience`.
    pub async fn fetch(
        &self,
        source: &Arc<Source>,
        chunk: u32,
        patience: std::time::Duration,
    ) -> Option<Pin> {
        let wait = async {
            loop {
                let built = self.built.notified();
                match self.acquire(source, chunk) {
                    Acquired::Ready(pin) => return Some(pin),
                    Acquired::Failed => return None,
                    Acquired::Wait => built.await,
                }
            }
        };
        tokio::time::timeout(patience, wait).await.ok().flatten()
    }

    /// Whether so many chunks are in use that readers of one more file would take them from each other before they
    /// are read. Of a handful of chunks it is never said.
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

    /// What the store has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A stream begins to send from a chunk. All engines count here, a few times a second for each stream: as
    /// seldom as they share the chunk's own counter of pins.
    pub(crate) fn count_read(&self) {
        self.counters.chunks_read.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks for the chunk, as [`AHEAD`] or as [`NEEDED`], unless it was asked for so already.
    fn request(&self, source: &Arc<Source>, chunk: u32, urgency: u32) {
        let entry = &source.table[chunk as usize];
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
        self.wake_builders();
    }

    fn wake_builders(&self) {
        for thread in self.builder_threads.get().into_iter().flatten() {
            thread.unpark();
        }
    }
}

impl Source {
    /// A source for chunks of `chunk_bytes`. `None` if it would have more than [`CHUNKS_MAX`] chunks, or if
    /// not even one packet fits a chunk.
    #[must_use]
    pub fn new(
        plan: Arc<Plan>,
        origin: RtpOrigin,
        backing: Arc<dyn Backing>,
        chunk_bytes: usize,
    ) -> Option<Self> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let packets_per_chunk = layout::packets_per_chunk(chunk_bytes, plan.stride()) as u64;
        if packets_per_chunk == 0 {
            return None;
        }
        let chunks = chunks(plan.rtp_packets(), packets_per_chunk)?;
        let table = (0..chunks).map(|_| AtomicU32::new(ABSENT)).collect();
        // Ids come back after 2^32 sources; by then the chunks of the first are long gone.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (direct, failure) = (OnceLock::new(), OnceLock::new());
        Some(Self {
            id,
            plan,
            origin,
            backing,
            direct,
            packets_per_chunk,
            table,
            failure,
        })
    }

    /// How the file is cut.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What its RTP headers count from.
    #[must_use]
    pub fn origin(&self) -> RtpOrigin {
        self.origin
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.table.len()).expect("a source has fewer than 2^31 chunks")
    }

    /// The chunk that holds RTP packet `packet`.
    #[must_use]
    pub fn chunk_of(&self, packet: u64) -> u32 {
        u32::try_from(packet / self.packets_per_chunk).expect("a source has fewer than 2^31 chunks")
    }

    /// The RTP packets of a chunk.
    #[must_use]
    pub fn packets_of(&self, chunk: u32) -> std::ops::Range<u64> {
        let first = u64::from(chunk) * self.packets_per_chunk;
        first..(first + self.packets_per_chunk).min(self.plan.rtp_packets())
    }

    /// Why no more chunks of it can be built: the file was truncated, replaced or cannot be read.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Lets no more chunks be built; the first reason stays.
    pub fn fail(&self, reason: String) {
        drop(self.failure.set(reason));
    }

    fn key(&self, chunk: u32) -> u64 {
        u64::from(self.id) << 32 | u64::from(chunk)
    }
}

/// How many chunks so many packets fill, if those are not too many.
fn chunks(packets: u64, packets_per_chunk: u64) -> Option<usize> {
    let chunks = packets.div_ceil(packets_per_chunk);
    usize::try_from(chunks)
        .ok()
        .filter(|_| chunks <= CHUNKS_MAX)
}

#[cfg(test)]
mod tests;
