//! The registration cache: memory that was registered before is found again without entering the
//! kernel.
//!
//! A registration pins frames, not addresses. When the address is unmapped, mapped anew or its
//! contents discarded, the ring still has the old frames, and a send by them sends what used to be
//! there. So a cache keeps only what cannot become stale, or what it is told of:
//!
//! | memory | [`Keep::Sealed`] | [`Keep::Watched`] | because |
//! |---|---|---|---|
//! | [`Sealed`](super::Sealed) | yes | yes | the kernel refuses every call that would change it |
//! | private and anonymous | no | yes | most calls that change it are reported before they return |
//! | SysV segments | no | no | `shmdt` and `shmat` report nothing |
//! | memfd, POSIX and other shared memory | no | no | any process with the descriptor can cut it |
//! | file mappings | no | no | the same, and most file systems forbid long-term pins |
//!
//! Memory that is not kept is registered when asked for and released when given back; the loan says
//! why ([`Loan::uncached`]). Four things no watcher hears of in time, so that memory which is
//! merely watched must be spared them: `shmat` with SHM_REMAP over it; MADV_GUARD_INSTALL in it; a
//! send from a new mapping while another thread's `munmap` of the same addresses has not returned;
//! and a discard that takes longer than [`DISCARD_MAX`] from its announcement. Sealed memory knows
//! none of them.
//!
//! Kept registrations never overlap: a range that reaches over some is registered as one with them.
//! So the one that covers a range is found by one look into an ordered map, or, if it was asked for
//! before, into a table.
//!
//! A cache is one thread's, like the ring that it registers with. `fork` gives the child none: what
//! it copied refuses ([`CacheError::Forked`]).
//!
//! ```
//! use std::os::fd::{AsRawFd, BorrowedFd};
//!
//! use io_uring::IoUring;
//! use onrush_lock::{Budget, Cache, Keep, Sealed};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ring = IoUring::new(8)?;
//! // SAFETY: the ring lives to the end of this example.
//! let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
//! let budget = Budget { keep: Keep::Sealed, entries_max: 1000, bytes_max: 64 << 20 };
//! let mut cache = Cache::new(fd, budget)?;
//! let message = Sealed::map(10_000)?;
//! for _ in 0..3 {
//!     let loan = cache.acquire(message.bytes())?;
//!     // Send from `message` with buf_index(loan.buffer()), and wait for it to be sent. Then:
//!     cache.release(loan);
//! }
//! assert_eq!(cache.counters().hits, 2);
//! # Ok(())
//! # }
//! ```

mod budget;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::entries::Entries;
use super::error::{LockError, diagnose};
use super::maps::{self, Backing};
use super::table::{BUFFER_BYTES_MAX, SLOTS_MAX, Table};
use super::watch::{Change, EVENTS_MAX, News, Position, Watch};
use super::{Kind, Manager, process};
use crate::memory::page_bytes;
pub use budget::{Budget, CacheCounters, Keep};

/// How long a discard may take from when the kernel tells of it. Until then memory is not kept.
pub const DISCARD_MAX: Duration = Duration::from_secs(1);

/// Registrations of one ring, by address.
///
/// The ring keeps an empty table of buffers when the cache is gone: whoever wants another cache on
/// it, or registers buffers itself, takes that away first (`IORING_UNREGISTER_BUFFERS`). A cache
/// does not, because up to Linux 6.12 this waits for what is under way on the ring.
///
/// ```
/// use std::os::fd::AsFd;
/// use onrush_lock::{Budget, Cache, Keep, Sealed, bare};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ring = bare::ring()?;
/// let budget = Budget { keep: Keep::Sealed, entries_max: 2, bytes_max: 1 << 20 };
/// let mut cache = Cache::new(ring.as_fd(), budget)?;
/// let messages = [Sealed::map(4096)?, Sealed::map(4096)?, Sealed::map(4096)?];
/// for message in &messages {
///     let loan = cache.acquire(message.bytes())?;
///     cache.release(loan);
/// }
/// // The third made room for itself.
/// assert_eq!((cache.kept(), cache.kept_bytes(), cache.counters().evictions), (2, 8192, 1));
/// # Ok(())
/// # }
/// ```
pub struct Cache {
    table: Table,
    budget: Budget,
    /// The process that made it, and where to look whether it is still that one.
    owner: *const Manager,
    process: &'static AtomicPtr<Manager>,
    /// `None` where there is no userfaultfd, or nothing is to be watched.
    watch: Option<&'static Watch>,
    position: Position,
    /// Discards that were announced not long ago.
    discards: Vec<(Range<usize>, Instant)>,
    entries: Entries,
    counters: CacheCounters,
}

/// The right to use registered memory in operations of the cache's ring, until it is given back
/// with [`Cache::release`]. One that is forgotten keeps its registration for ever. Of
/// [`Sealed`](super::Sealed) memory it keeps the memory, too: nobody else gets it before.
///
/// ```
/// use std::os::fd::AsFd;
/// use onrush_lock::{Budget, Cache, Keep, Sealed, bare};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ring = bare::ring()?;
/// let budget = Budget { keep: Keep::Sealed, entries_max: 8, bytes_max: 1 << 20 };
/// let mut cache = Cache::new(ring.as_fd(), budget)?;
/// let message = Sealed::map(8192)?;
/// let whole = cache.acquire(message.bytes())?;
/// let start = message.bytes().start;
/// let part = cache.acquire(start + 100..start + 200)?; // Covered by the same.
/// assert_eq!(whole.buffer(), part.buffer());
/// cache.release(part);
/// cache.release(whole);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a loan that is not given back keeps its registration for ever"]
pub struct Loan {
    entry: u32,
    slot: u16,
    uncached: Option<Uncached>,
}

/// Why a registration is not kept.
///
/// ```
/// use onrush_lock::{Loan, Uncached};
///
/// fn advise(loan: &Loan) -> &'static str {
///     match loan.uncached() {
///         None => "found again for nothing",
///         Some(Uncached::NotSealed) => "take Sealed memory, or Keep::Watched",
///         Some(Uncached::Budget) => "a larger budget would help",
///         Some(_) => "registered for each use",
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Uncached {
    /// The cache keeps [`Keep::Sealed`] memory only, and this is not.
    NotSealed,
    /// This kernel or its settings offer no userfaultfd.
    NoWatcher,
    /// Another userfaultfd has the range.
    WatchedByOthers,
    /// Shared memory: other processes, holders of its descriptor and `shmdt` change it unreported.
    Shared,
    /// A private mapping of a file: cutting the file changes it unreported.
    File,
    /// Its contents were discarded (MADV_DONTNEED, MADV_FREE) less than [`DISCARD_MAX`] ago. The
    /// kernel tells of a discard before it does it, so another thread may be at it still.
    Discarded,
    /// It is more than the budget, or everything that is kept is in use.
    Budget,
}

/// Why memory was not registered.
///
/// ```
/// use std::os::fd::AsFd;
/// use onrush_lock::{Budget, Cache, CacheError, Keep, bare};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ring = bare::ring()?;
/// let budget = Budget { keep: Keep::Sealed, entries_max: 0, bytes_max: 1 };
/// let refused = Cache::new(ring.as_fd(), budget);
/// assert!(matches!(refused, Err(CacheError::Budget { entries_max: 0 })));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// This is a copy of the parent's cache.
    #[error("a cache does not outlive a fork; make a new ring and a new cache in the child")]
    Forked,
    /// The budget makes no sense.
    #[error("a cache of {entries_max} registrations cannot be; choose 1 to {SLOTS_MAX}")]
    Budget {
        /// The number asked for.
        entries_max: usize,
    },
    /// All slots are out on loan.
    #[error("all {SLOTS_MAX} registrations of the ring are in use; give some back first")]
    Full,
    /// More than one registration can hold.
    #[error(
        "{bytes} bytes are more than one registration holds ({BUFFER_BYTES_MAX}); send parts of it"
    )]
    TooLong {
        /// The size of the range.
        bytes: usize,
    },
    /// The ring takes no table.
    #[error(
        "cannot make a buffer table: {source}; Linux 5.19 is needed, and the ring must have no \
         buffers, nor the table of an earlier cache (IORING_UNREGISTER_BUFFERS takes it away)"
    )]
    Table {
        /// What the system said.
        source: io::Error,
    },
    /// The memory cannot be pinned.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl Cache {
    /// A cache that registers with `ring`, which must have no registered buffers, nor the empty
    /// table that an earlier cache has left. If the ring was made for a single issuer, that thread
    /// must be the one that uses the cache.
    ///
    /// # Errors
    ///
    /// [`CacheError`], if the kernel has no sparse tables of buffers, the ring has one already, or
    /// this process has [`TABLES_MAX`](super::TABLES_MAX).
    pub fn new(ring: BorrowedFd<'_>, budget: Budget) -> Result<Self, CacheError> {
        let Budget { entries_max, .. } = budget;
        if entries_max == 0 || entries_max > usize::from(SLOTS_MAX) {
            return Err(CacheError::Budget { entries_max });
        }
        let table = Table::on(ring, SLOTS_MAX).map_err(|source| CacheError::Table { source })?;
        let table = table.ok_or(LockError::Tables)?;
        let manager = Manager::of_process();
        let watch = match budget.keep {
            Keep::Sealed => None,
            Keep::Watched => manager.watch(),
        };
        Ok(Self {
            table,
            budget,
            owner: manager,
            process: process::word(),
            watch,
            position: watch.map_or_else(Position::default, Watch::position),
            discards: Vec::new(),
            entries: Entries::new(entries_max),
            counters: CacheCounters::default(),
        })
    }

    /// Lends the registration of `bytes`, any addresses of this process, registering them if need
    /// be.
    ///
    /// If a registration is kept that covers them, no kernel is entered, unless watched memory has
    /// changed since the last call.
    ///
    /// # Errors
    ///
    /// Those of [`Manager::lock`] for [`Kind::Pinned`] memory, and those of the cache itself.
    pub fn acquire(&mut self, bytes: Range<usize>) -> Result<Loan, CacheError> {
        if !self.is_ours() {
            return Err(CacheError::Forked);
        }
        if let Some(watch) = self.watch
            && !watch.is_quiet(self.position)
        {
            self.take_in(watch);
        }
        let Some(entry) = self.entries.find(&bytes) else {
            return self.register(bytes);
        };
        self.counters.hits += 1;
        Ok(Loan {
            entry,
            slot: self.entries.lend(entry),
            uncached: None,
        })
    }

    /// Takes a loan back, when the last operation that used it has completed (and notified, for
    /// SEND_ZC).
    pub fn release(&mut self, loan: Loan) {
        if !self.is_ours() {
            return;
        }
        if let Some(slot) = self.entries.take_back(loan.entry, loan.slot) {
            self.table.unpin(slot);
        }
    }

    /// Gives up what is no longer valid now, instead of at the next request: pages of unmapped
    /// memory stay in memory until then.
    pub fn sweep(&mut self) {
        if let Some(watch) = self.watch
            && self.is_ours()
            && !watch.is_quiet(self.position)
        {
            self.take_in(watch);
        }
    }

    /// What has been done so far.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        self.counters
    }

    /// Registrations that are kept, in use or not.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.entries.kept()
    }

    /// Bytes that they pin.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.entries.kept_bytes()
    }

    fn is_ours(&self) -> bool {
        ptr::eq(self.process.load(Ordering::Relaxed), self.owner)
    }

    fn register(&mut self, bytes: Range<usize>) -> Result<Loan, CacheError> {
        let pages = whole_pages(&bytes)?;
        if pages.len() > BUFFER_BYTES_MAX {
            let bytes = bytes.len();
            return Err(CacheError::TooLong { bytes });
        }
        self.counters.misses += 1;
        match self.secure(&pages) {
            Ok((wide, watch)) => match self.pin(&wide) {
                Ok(slot) => {
                    let lent = Manager::of_process().sealed.lent(&wide);
                    Ok(Loan {
                        entry: self.entries.keep(wide, slot, lent, watch),
                        slot,
                        uncached: None,
                    })
                }
                Err(error) => {
                    if let Some(watch) = watch {
                        watch.unwatch(&wide);
                    }
                    Err(error)
                }
            },
            Err(why) => {
                let slot = self.pin(&pages)?;
                self.counters.uncached += 1;
                let lent = Manager::of_process().sealed.lent(&pages);
                Ok(Loan {
                    entry: self.entries.add(pages, slot, lent),
                    slot,
                    uncached: Some(why),
                })
            }
        }
    }

    /// Sees that a registration of `pages` together with the kept ones that they meet, which are
    /// given up, cannot become stale unnoticed: by its seals, or else by the watcher that is
    /// returned.
    fn secure(
        &mut self,
        pages: &Range<usize>,
    ) -> Result<(Range<usize>, Option<&'static Watch>), Uncached> {
        let met = self.entries.meeting(pages);
        let mut wide = pages.clone();
        for &entry in &met {
            let bytes = self.entries.bytes(entry);
            wide = wide.start.min(bytes.start)..wide.end.max(bytes.end);
        }
        if wide.len() > self.budget.bytes_max.min(BUFFER_BYTES_MAX) {
            wide = pages.clone();
        }
        if Manager::of_process().sealed.covers(&wide) {
            self.make_room(&met, wide.len())?;
            return Ok((wide, None));
        }
        let watch = self.watch.ok_or(match self.budget.keep {
            Keep::Sealed => Uncached::NotSealed,
            Keep::Watched => Uncached::NoWatcher,
        })?;
        if wide.len() > self.budget.bytes_max {
            return Err(Uncached::Budget);
        }
        if self.is_being_discarded(&wide) {
            return Err(Uncached::Discarded);
        }
        // Watched first and looked at then: what changes in between is reported.
        if let Err(error) = watch.watch(&wide) {
            return Err(match (error.raw_os_error(), maps::backing(&wide)) {
                (Some(libc::EBUSY), _) => Uncached::WatchedByOthers,
                (_, Ok(Backing::Shared)) => Uncached::Shared,
                _ => Uncached::File,
            });
        }
        let result = match maps::backing(&wide) {
            Ok(Backing::PrivateAnonymous) => self.make_room(&met, wide.len()),
            Ok(Backing::Shared) => Err(Uncached::Shared),
            Ok(Backing::PrivateFile) | Err(_) => Err(Uncached::File),
        };
        match result {
            Ok(()) => Ok((wide, Some(watch))),
            Err(why) => {
                watch.unwatch(&wide);
                Err(why)
            }
        }
    }

    /// Gives up `met`, and then the least recently used until there is room for `bytes` more.
    fn make_room(&mut self, met: &[u32], bytes: usize) -> Result<(), Uncached> {
        if bytes > self.budget.bytes_max {
            return Err(Uncached::Budget);
        }
        for &entry in met {
            self.forget(entry);
        }
        let Budget {
            entries_max,
            bytes_max,
            ..
        } = self.budget;
        while self.entries.kept() >= entries_max || self.entries.kept_bytes() + bytes > bytes_max {
            if !self.evict() {
                return Err(Uncached::Budget);
            }
        }
        Ok(())
    }

    /// Pins `bytes`, giving up what nobody uses if a limit is in the way.
    fn pin(&mut self, bytes: &Range<usize>) -> Result<u16, CacheError> {
        loop {
            let error = match self.table.pin(bytes) {
                Some(Ok(slot)) => return Ok(slot),
                Some(Err(error)) => Some(error),
                None => None,
            };
            let is_limit = error
                .as_ref()
                .is_none_or(|e| e.raw_os_error() == Some(libc::ENOMEM));
            if !(is_limit && self.evict()) {
                let error = error.map(|e| diagnose(bytes, Kind::Pinned, e));
                return Err(error.map_or(CacheError::Full, CacheError::Lock));
            }
        }
    }

    /// Takes in what the watcher has heard.
    #[cold]
    fn take_in(&mut self, watch: &'static Watch) {
        let changes = match watch.news(&mut self.position) {
            News::Changes(changes) => changes,
            News::Everything => vec![Change {
                start: 0,
                end: usize::MAX,
                is_ahead: true,
            }],
        };
        for Change {
            start,
            end,
            is_ahead,
        } in changes
        {
            let mut met = self.entries.meeting(&(start..end));
            met.retain(|&entry| self.entries.is_watched(entry));
            for entry in met {
                self.counters.invalidations += 1;
                self.forget(entry);
            }
            if is_ahead {
                self.discards.push((start..end, Instant::now()));
            }
        }
        if self.discards.len() > EVENTS_MAX {
            self.discards = vec![(0..usize::MAX, Instant::now())];
        }
    }

    /// Whether `pages` are perhaps being discarded just now by another thread. Registered before
    /// that is done, they would be stale when it is, and nothing would tell.
    fn is_being_discarded(&mut self, pages: &Range<usize>) -> bool {
        self.discards
            .retain(|(_, heard)| heard.elapsed() < DISCARD_MAX);
        let meets = |(r, _): &(Range<usize>, Instant)| r.start < pages.end && pages.start < r.end;
        self.discards.iter().any(meets)
    }

    /// Gives up the least recently used registration; false if all that is kept is in use.
    fn evict(&mut self) -> bool {
        let Some(entry) = self.entries.oldest() else {
            return false;
        };
        self.counters.evictions += 1;
        self.forget(entry);
        true
    }

    fn forget(&mut self, entry: u32) {
        if let Some(slot) = self.entries.forget(entry) {
            self.table.unpin(slot);
        }
    }
}

impl Loan {
    /// The registered buffer's number, for an operation's `buf_index`.
    #[must_use]
    pub fn buffer(&self) -> u16 {
        self.slot
    }

    /// Why the registration will not be found again, if so.
    #[must_use]
    pub fn uncached(&self) -> Option<Uncached> {
        self.uncached
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        for slot in self.entries.end() {
            self.table.unpin(slot);
        }
    }
}

// SAFETY: the pointer to the owner is compared and never followed; everything else may be sent.
unsafe impl Send for Cache {}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("budget", &self.budget)
            .field("kept", &self.kept())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

fn whole_pages(bytes: &Range<usize>) -> Result<Range<usize>, LockError> {
    let Range { start, end } = *bytes;
    if end < start {
        return Err(LockError::Overflow { start, end });
    }
    if start == end {
        return Err(LockError::Empty { address: start });
    }
    let page_bytes = page_bytes();
    let pages = end.checked_next_multiple_of(page_bytes);
    let end = pages.ok_or(LockError::Overflow { start, end })?;
    Ok(start / page_bytes * page_bytes..end)
}
