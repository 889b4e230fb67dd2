//! The data plane: memory, store and engines, sized and started as the settings say.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use onrush_lock::memory::{
    Area, HUGE_PAGE_BYTES, MemoryError, control_group_bytes, lockable_bytes, machine_bytes,
};
use onrush_lock::{Kind, rings_share_pins};
use onrush_sys::path::{self, PathName};
use onrush_sys::pool::Pool;
use onrush_wire::media::TRACKS_MAX;
use thiserror::Error;
use tracing::{info, warn};

use crate::config::Config;
use crate::engine::{
    Destination, EngineConfig, EngineError, EngineStartError, Engines, Stream, StreamSpec,
};
use crate::filling::{AGAIN_EVERY, Filling, Retry, mib};
use crate::library::Media;
use crate::store::{self, Source, Store};

/// Bytes of a chunk of the cache, unless the cache is small.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of a chunk of a small cache: more readers, each with less ahead.
const CHUNK_BYTES_SMALL: usize = 64 << 10;

/// Bytes below which a cache is small.
const CACHE_BYTES_SMALL: usize = 64 << 20;

/// The smallest cache that serves anybody.
pub const CACHE_BYTES_MIN: usize = 1 << 20;

/// The least send buffer with which a fast stream can have trains from huge pages under way:
/// sixteen, a megabyte of packets.
const HUGE_SEND_BUFFER_BYTES_MIN: usize = 16 * HUGE_PAGE_BYTES;

/// How often a cache that becomes ready is looked at by those who wait for it.
const READY_EVERY: Duration = Duration::from_millis(5);

/// Streams that may be on their way out while all sessions are taken.
const STREAMS_SPARE: usize = 256;

/// Tracks of each session whose sockets need no descriptor: picture and sound.
const TRACKS_KEPT: usize = 2;

const MEMLOCK_REMEDY: &str = "raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) for more, or grant \
    CAP_IPC_LOCK, which counts outside of user namespaces";

const GROUP_LEAVES: &str = "its control group leaves no more, with a quarter kept for the rest of \
    the server; raise its memory.max or memory.high (MemoryMax=, MemoryHigh= of a unit) for more";

/// Bytes of a cache that cannot be locked, at most: it is of use, but it may be swapped out.
const UNLOCKED_BYTES_MAX: usize = 256 << 20;

/// Memory for packet images, the threads that fill it and the threads that send from it.
#[derive(Debug)]
pub struct Data {
    // First: it stops what waits for the engines.
    _filling: Option<Filling>,
    // The engines go before the store: they give the chunks back that its threads look for.
    engines: Engines,
    store: Store,
    cores: Vec<usize>,
}

/// Why the data plane did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no memory for the cache.
    #[error("cache: {0}")]
    Memory(#[from] MemoryError),
    /// The cache is too small for anybody.
    #[error("a cache of {cache_bytes} bytes is too small; it takes 1 MiB or more")]
    Cache {
        /// The size asked for.
        cache_bytes: usize,
    },
    /// No threads for the store.
    #[error("cannot start the store: {0}")]
    Store(#[source] io::Error),
    /// No thread to make the rest of the cache ready.
    #[error("cannot start the thread that makes the cache ready: {0}")]
    Filling(#[source] io::Error),
    /// No engines.
    #[error(transparent)]
    Engines(#[from] EngineStartError),
}

impl Data {
    /// Takes the memory and starts the threads. Of a large cache the first piece is ready then, and
    /// the others follow while it is in use. What is missing on this machine is logged, with
    /// what it costs, and the next best is taken.
    ///
    /// # Errors
    ///
    /// See [`DataError`]; then nothing is left of it.
    pub fn start(config: &Config) -> Result<Self, DataError> {
        Self::start_beside(config, false)
    }

    /// The same for a server that may be a successor. Of the cache there is as much at first as its
    /// predecessor leaves, and the rest follows when that one has ended.
    pub(crate) fn start_beside(config: &Config, is_successor: bool) -> Result<Self, DataError> {
        if config.cache_bytes < CACHE_BYTES_MIN {
            return Err(DataError::Cache {
                cache_bytes: config.cache_bytes,
            });
        }
        let engine_config = engine_config(config);
        let area = cache_area(config.cache_bytes, rings(&engine_config), is_successor)?;
        let small = area.bytes_total() < CACHE_BYTES_SMALL;
        let chunk_bytes = if small {
            CHUNK_BYTES_SMALL
        } else {
            CHUNK_BYTES
        };
        // For headers of sessions' own, and for what stands before packets in connections.
        let slabs = engine_config.cores.len();
        let pool = Arc::new(Pool::with_slabs(area, chunk_bytes, slabs));
        let store = Store::start(
            Arc::clone(&pool),
            &engine_config.cores,
            config.experiments.faults(),
        )
        .map_err(DataError::Store)?;
        let engines = Engines::start(&engine_config, store.shared(), |name, error| {
            let next = name.next().map_or("none", PathName::as_str);
            warn!("data path {name} is not available: {error}; trying {next}");
        })?;
        let retry = is_successor.then_some(Retry {
            time_max: config.drain.time_max,
            every: AGAIN_EVERY,
        });
        let filling =
            Filling::start(pool, &engine_config.cores, retry).map_err(DataError::Filling)?;
        Ok(Self {
            _filling: filling,
            engines,
            store,
            cores: engine_config.cores,
        })
    }

    /// One whose engines and store somebody moves by hand.
    #[cfg(test)]
    pub(crate) fn by_hand(engines: Engines, store: Store) -> Self {
        Self {
            _filling: None,
            engines,
            store,
            cores: Vec::new(),
        }
    }

    /// Opens a stream of a track of `media`, in packets of at most so many bytes behind their RTP
    /// headers, for the client at `to`.
    ///
    /// # Errors
    ///
    /// [`EngineError::Media`] if the file cannot be cut for packets of that size, and those of
    /// [`Engines::open`].
    pub fn open(
        &self,
        media: &Media,
        track: usize,
        payload_bytes_max: usize,
        to: Destination,
    ) -> Result<Stream, EngineError> {
        let chunk_bytes = self.store.shared().pool().chunk_bytes();
        let source = media.source(track, payload_bytes_max, chunk_bytes);
        let source = source.ok_or_else(|| EngineError::Media {
            reason: "the file cannot be cut into packets, or is too long to be cut into chunks"
                .to_owned(),
        })?;
        self.open_source(Arc::clone(source), to)
    }

    /// Opens a stream of that source for the client at `to`.
    ///
    /// # Errors
    ///
    /// Those of [`Engines::open`].
    pub fn open_source(&self, source: Arc<Source>, to: Destination) -> Result<Stream, EngineError> {
        self.engines.open(StreamSpec { source, to })
    }

    /// Bytes of a chunk of sources.
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.store.shared().pool().chunk_bytes()
    }

    /// Waits until all of the cache is ready, or what can be had of it: for experiments and tests,
    /// which want nothing else to go on.
    pub fn wait_until_ready(&self) {
        let pool = self.store.shared().pool();
        while pool.chunks() < pool.chunks_planned() {
            thread::sleep(READY_EVERY);
        }
    }

    /// The processors that the engines run on. What else the server does keeps off them where it
    /// can.
    #[must_use]
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }

    /// The data path in use.
    #[must_use]
    pub fn path(&self) -> PathName {
        self.engines.path()
    }

    /// The engines.
    #[must_use]
    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<store::Shared> {
        self.store.shared()
    }
}

fn engine_config(config: &Config) -> EngineConfig {
    let default = EngineConfig::default();
    // A session has a stream for each of its tracks, and gives them back a tick after it has ended.
    let streams = |tracks: usize| {
        let of_sessions = config.limits.sessions_max.saturating_mul(tracks);
        u32::try_from(of_sessions.saturating_add(STREAMS_SPARE)).unwrap_or(u32::MAX - 1)
    };
    EngineConfig {
        cores: if config.cores.is_empty() {
            default.cores.clone()
        } else {
            config.cores.clone()
        },
        streams_max: streams(TRACKS_MAX),
        files_max: streams(TRACKS_KEPT),
        burst: config.burst,
        phase: config.experiments.phase(),
        headers: config.rtp_headers,
        load_max_permille: config.load_max_permille,
        path: config.path,
        faults: config.experiments.faults(),
        unacknowledged_bytes_max: config.limits.unacknowledged_bytes_max,
        stall_time_max: config.limits.stall_time_max,
        ..default
    }
}

/// Rings that send from the cache without a copy, and need it locked: one an engine, or none.
fn rings(config: &EngineConfig) -> usize {
    match config.path {
        PathName::UringRegisteredZc if opens(config.path) => config.cores.len(),
        _ => 0,
    }
}

/// Whether a path can be opened here. A thread of its own tries it: one that has had a ring is
/// interrupted in what it waits for when the kernel takes the ring apart (`io_ring_exit_work`).
fn opens(path: PathName) -> bool {
    thread::scope(|scope| {
        let tries = scope.spawn(|| path::probe(path).is_ok());
        tries.join().unwrap_or(false)
    })
}

/// The cache's memory: as large as asked, as far as it may be locked and is there, or may be there
/// when the predecessor of a successor has ended. Its first piece is ready.
fn cache_area(cache_bytes: usize, rings: usize, is_successor: bool) -> Result<Area, MemoryError> {
    if is_successor {
        match area_within(None, cache_bytes, rings) {
            Ok(area) => return Ok(area),
            Err(error) => warn!("cache: it does not grow when there is more memory: {error}"),
        }
    }
    let (machine, group) = (machine_bytes(), control_group_bytes().unwrap_or(u64::MAX));
    let why_no_more = match group < machine {
        true => GROUP_LEAVES,
        false => "the machine has no more to spare",
    };
    let available = saturated(machine.min(group) / 4 * 3);
    area_within(Some((available, why_no_more)), cache_bytes, rings)
}

/// The same within what memory is available, and why there is no more; without, there may be more
/// later.
fn area_within(
    room: Option<(usize, &'static str)>,
    cache_bytes: usize,
    rings: usize,
) -> Result<Area, MemoryError> {
    let reserve: fn(usize, bool, Option<Kind>) -> Result<Area, MemoryError> = match room {
        Some(_) => Area::reserve,
        None => Area::reserve_ahead,
    };
    let (available, why_no_more) = room.unwrap_or((usize::MAX, ""));
    let lockable = lockable_bytes();
    // Pinned once for all rings, or else by each ring; and a little for the rings themselves.
    let shared = rings > 0 && rings_share_pins();
    let pins = if shared { 1 } else { rings.max(1) };
    let registrable = saturated(lockable / pins as u64 / 16 * 15);
    let may_lock = format!(
        "this account may lock {}; {MEMLOCK_REMEDY}",
        mib(saturated(lockable))
    );
    let swappable = unlocked(cache_bytes, available);
    let without_locks = |why: &dyn Display| {
        warn!(
            "cache: {} that can be swapped out, and are sent with a copy: {why}",
            mib(swappable)
        );
        begun(reserve(swappable, true, None)?)
    };
    if !is_locked(registrable, rings, swappable) {
        return without_locks(&may_lock);
    }
    let bytes = whole_pages(cache_bytes.min(available).min(registrable));
    if bytes < whole_pages(cache_bytes) {
        let why = match available < registrable {
            true => why_no_more,
            false => &may_lock,
        };
        warn!(
            "cache: {} instead of {}: {why}",
            mib(bytes),
            mib(cache_bytes)
        );
    }
    let send_buffer_bytes = path::send_buffer_bytes().unwrap_or(0);
    let is_huge = send_buffer_bytes >= HUGE_SEND_BUFFER_BYTES_MIN;
    if !is_huge {
        info!(
            "cache: of base pages, because a socket may have {} under way and a train from a huge \
             page counts as up to 2 MiB; raise net.core.wmem_max or grant CAP_NET_ADMIN for huge \
             pages",
            mib(send_buffer_bytes)
        );
    }
    // A pin of ours that the rings cannot share would be accounted besides theirs.
    let kind = if shared { Kind::Pinned } else { Kind::Resident };
    match begun(reserve(bytes, is_huge, Some(kind))?) {
        // What may be locked bounds nothing that is not.
        Err(MemoryError::Lock(error)) => without_locks(&error),
        area => area,
    }
}

/// The same area with its first piece ready.
fn begun(area: Area) -> Result<Area, MemoryError> {
    area.grow(|| false)?;
    Ok(area)
}

/// Whether a cache is locked, where so much of it may be and so much could be had without. Rings
/// send from locked memory alone. Others lose nothing by memory that is not, but where it is
/// swapped out; so they have it locked unless that makes it smaller.
fn is_locked(lockable: usize, rings: usize, swappable: usize) -> bool {
    match rings {
        0 => lockable >= swappable,
        _ => lockable >= CACHE_BYTES_MIN,
    }
}

/// Bytes of a cache that cannot be locked.
fn unlocked(cache_bytes: usize, available: usize) -> usize {
    cache_bytes.min(available).min(UNLOCKED_BYTES_MAX)
}

/// Rounded down to whole huge pages, if it is more than one: an area is rounded up, and a limit is
/// to be stayed under.
fn whole_pages(bytes: usize) -> usize {
    if bytes > HUGE_PAGE_BYTES {
        bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    } else {
        bytes
    }
}

fn saturated(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people_and_pages_are_whole() {
        assert_eq!(mib(8 << 20), "8.0 MiB");
        assert_eq!(mib((1 << 20) + (512 << 10)), "1.5 MiB");
        assert_eq!(mib(0), "0.0 MiB");
        assert_eq!(whole_pages((8 << 20) / 16 * 15), 6 << 20);
        assert_eq!(whole_pages(2 << 20), 2 << 20);
        assert_eq!(whole_pages(1 << 20), 1 << 20);
    }

    #[cfg(feature = "experiments")]
    #[test]
    fn engines_run_as_they_are_told_to() {
        for phase in crate::engine::phase::Phase::ALL {
            let mut config = Config::default();
            config.experiments.phase = phase;
            assert_eq!(engine_config(&config).phase, phase);
        }
    }

    #[test]
    fn each_session_may_have_all_tracks_of_its_film() {
        let mut config = Config::default();
        for sessions_max in [1, 600, 16_384] {
            config.limits.sessions_max = sessions_max;
            let engine_config = engine_config(&config);
            let tracks = sessions_max * TRACKS_MAX;
            assert!(engine_config.streams_max as usize > tracks);
            assert!((engine_config.files_max as usize) < tracks + STREAMS_SPARE);
        }
        config.limits.sessions_max = usize::MAX;
        assert_eq!(engine_config(&config).streams_max, u32::MAX - 1);
    }

    #[test]
    fn a_cache_that_cannot_be_locked_is_no_larger_than_its_limit() {
        let most = UNLOCKED_BYTES_MAX;
        assert_eq!(unlocked(most, usize::MAX), most);
        assert_eq!(unlocked(most + 1, usize::MAX), most);
        assert_eq!(unlocked(most - 1, usize::MAX), most - 1);
        assert_eq!(unlocked(usize::MAX, most - 1), most - 1);
    }

    /// What may be locked is no reason for a small cache where nothing is sent from locked memory.
    #[test]
    fn a_cache_is_locked_for_rings_or_as_a_whole() {
        let (small, most) = (6 << 20, UNLOCKED_BYTES_MAX);
        assert!(is_locked(small, 1, most) && !is_locked(small, 0, most));
        assert!(is_locked(most, 0, most) && !is_locked(most - 1, 0, most));
        assert!(!is_locked(CACHE_BYTES_MIN - 1, 4, most) && is_locked(usize::MAX, 0, most));
        let config = |path| EngineConfig {
            path,
            cores: vec![0, 1],
            ..EngineConfig::default()
        };
        assert_eq!(rings(&config(PathName::SendmmsgGso)), 0);
        let has_ring = path::probe(PathName::UringRegisteredZc).is_ok();
        let expected = if has_ring { 2 } else { 0 };
        assert_eq!(rings(&config(PathName::UringRegisteredZc)), expected);
    }

    #[test]
    fn a_cache_for_nobody_is_refused() {
        let config = |cache_bytes| Config {
            cache_bytes,
            ..Config::default()
        };
        let refused = Data::start(&config(CACHE_BYTES_MIN - 1));
        assert!(
            matches!(refused, Err(DataError::Cache { .. })),
            "{refused:?}"
        );
        let least = Data::start(&config(CACHE_BYTES_MIN)).expect("the least cache");
        assert_eq!(least.store().pool().area().bytes_total(), CACHE_BYTES_MIN);
    }
}
