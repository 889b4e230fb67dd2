//! What a cache is allowed to keep, and what it has done with that.

#[cfg(doc)]
use crate::{Cache, SLOTS_MAX};

/// How much a cache keeps.
///
/// ```
/// use onrush_lock::{Budget, Keep};
///
/// let budget = Budget { keep: Keep::Sealed, entries_max: 1000, bytes_max: 64 << 20 };
/// assert!(budget.bytes_max / budget.entries_max > 64 << 10); // For messages of 64 KiB.
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Budget {
    /// Which memory.
    pub keep: Keep,
    /// Registrations, at most [`SLOTS_MAX`].
    pub entries_max: usize,
    /// Bytes pinned by registrations that are kept. Against RLIMIT_MEMLOCK it can be more: the
    /// kernel counts all of each huge page that they touch.
    pub bytes_max: usize,
}

/// Which memory's registrations are kept.
///
/// ```
/// use std::os::fd::AsFd;
/// use onrush_lock::{Budget, Cache, Keep, Uncached, bare, pages_around};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ring = bare::ring()?;
/// let budget = Budget { keep: Keep::Sealed, entries_max: 8, bytes_max: 1 << 20 };
/// let mut cache = Cache::new(ring.as_fd(), budget)?;
/// let ordinary = vec![0u8; 8192];
/// let loan = cache.acquire(pages_around(&ordinary))?; // It works, and will not be found again.
/// assert_eq!(loan.uncached(), Some(Uncached::NotSealed));
/// cache.release(loan);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// [`Sealed`](crate::Sealed) memory only: nothing that anybody does makes them stale.
    Sealed,
    /// Private and anonymous memory too, as long as nobody does in it what no watcher hears of: see
    /// [`Cache`].
    Watched,
}

/// What a cache has done.
///
/// ```
/// use onrush_lock::CacheCounters;
///
/// let counters = CacheCounters { hits: 99, misses: 1, ..CacheCounters::default() };
/// let asked = counters.hits + counters.misses;
/// println!("{} % found", counters.hits * 100 / asked);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CacheCounters {
    /// Requests that found a registration.
    pub hits: u64,
    /// Requests that had to register.
    pub misses: u64,
    /// Of the misses, those whose registration was not kept.
    pub uncached: u64,
    /// Registrations that went to make room.
    pub evictions: u64,
    /// Registrations that went because their memory did.
    pub invalidations: u64,
}
