//! The locked memory manager: locks on memory that nest, overlap, and hold.
//!
//! `mlock` does not nest: one `munlock` undoes every earlier `mlock` of a page. It keeps pages in
//! memory, not at their address: compaction moves them, `fork` and a write replace them. A buffer
//! registered with a ring stays at its address, and nobody counts who else wants it there. The
//! [`Manager`] gives out a [`LockedArea`] for every lock, also for the same range again; a page
//! stays locked, in the way asked for, until the last handle on it is gone.
//!
//! | kind | by | the page | costs against RLIMIT_MEMLOCK |
//! |---|---|---|---|
//! | [`Kind::Resident`] | `mlock2` | is in memory; may be moved | once, however often locked |
//! | [`Kind::OnFault`] | `mlock2(MLOCK_ONFAULT)` | stays in memory once touched | once |
//! | [`Kind::Pinned`] | ring registration | is in memory, at its frame | every handle |
//!
//! Pinned, a page of a huge page counts there as all of it.
//!
//! There is one manager in a process, because there is one `munlock`. After a `fork` the child has
//! another, empty one: it inherits neither locks nor pins, and handles copied from the parent do
//! nothing there. Memory shared with other processes ([`Segment`]) needs no more than that. The
//! kernel keeps a page while any process locks or pins it, so each one counts for itself, and what
//! a killed process held is given back. The first lock of a segment finds no pages and makes them;
//! [`pages_in_memory`] tells whether others did.
//!
//! A data ring takes its buffers through the manager too ([`Manager::register`]): the same pin,
//! counted. A [`Cache`] finds registrations of a ring again without entering the kernel. It keeps
//! those of [`Sealed`] memory, which nobody can unmap, replace or discard; other private memory it
//! can be told to watch.
//!
//! A lock belongs to the memory that was mapped when it was taken. Unmapping a locked range ends
//! residency; pinned pages stay pinned but are no longer what the address shows. Locking the range
//! again is always right, because every lock goes to the kernel.
//!
//! ```
//! use onrush_lock::{Kind, Manager, pages_around};
//!
//! # fn main() -> Result<(), onrush_lock::LockError> {
//! let buffer = vec![7u8; 64 << 10];
//! let manager = Manager::of_process();
//! let outer = manager.lock(pages_around(&buffer), Kind::Pinned)?;
//! let inner = manager.lock(pages_around(&buffer[..4096]), Kind::Pinned)?;
//! drop(outer); // The first page stays where it is.
//! assert_eq!(manager.areas().len(), 1);
//! inner.unlock();
//! assert!(manager.areas().is_empty());
//! # Ok(())
//! # }
//! ```

#![warn(clippy::missing_errors_doc)]

pub mod bare;
mod cache;
mod entries;
mod error;
mod frames;
mod held;
mod intervals;
mod maps;
pub mod memory;
mod process;
mod resident;
mod ring_buffers;
mod sealed;
mod segment;
mod share;
mod table;
mod watch;

use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub use cache::{Budget, Cache, CacheCounters, CacheError, DISCARD_MAX, Keep, Loan, Uncached};
pub use error::LockError;
pub use frames::{Block, pages_in_memory};
use held::{Held, Inner};
pub use intervals::Counts;
pub use process::TABLES_MAX;
pub use ring_buffers::RingBuffers;
use sealed::SealedMemory;
pub use sealed::{SEALED_MAX, Sealed};
pub use segment::{Segment, SegmentError, memfd, posix, unlink_posix};
pub use share::rings_share_pins;
pub use table::{BUFFER_BYTES_MAX, SLOTS_MAX};
pub use watch::EVENTS_MAX;
use watch::Watch;

use crate::memory::{page_bytes, page_shift};

/// Handles that can be out at a time.
pub const AREAS_MAX: usize = 1 << 18;

/// In what way memory is locked.
///
/// ```
/// use onrush_lock::{Kind, Manager, pages_around};
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// let buffer = vec![0u8; 8192];
/// let manager = Manager::of_process();
/// // No page fault in here; but the kernel may move the pages.
/// let resident = manager.lock(pages_around(&buffer), Kind::Resident)?;
/// // Nor that: a device may have their addresses.
/// let pinned = manager.lock(pages_around(&buffer), Kind::Pinned)?;
/// assert_eq!((resident.kind(), pinned.kind()), (Kind::Resident, Kind::Pinned));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// All pages are brought in and stay in memory; the kernel may move them (`mlock2`).
    Resident,
    /// Pages stay in memory from when they are first touched (`mlock2` with `MLOCK_ONFAULT`).
    OnFault,
    /// All pages are brought in and stay at their physical address (a `FOLL_LONGTERM` pin).
    Pinned,
}

/// All locks of this process.
///
/// ```
/// use onrush_lock::{Kind, Manager, pages_around};
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// let buffer = vec![0u8; 8192];
/// let area = Manager::of_process().lock(pages_around(&buffer), Kind::Resident)?;
/// println!("{:?}", Manager::of_process()); // How much is locked.
/// drop(area);
/// assert_eq!(Manager::of_process().totals().areas, 0);
/// # Ok(())
/// # }
/// ```
pub struct Manager {
    inner: Mutex<Inner>,
    /// What it has mapped for good.
    sealed: SealedMemory,
    /// Started for the first cache that is to watch.
    watch: OnceLock<Option<&'static Watch>>,
}

/// A handle on locked memory. Dropping it unlocks what no other handle holds.
///
/// ```
/// use onrush_lock::{Kind, LockedArea, Manager, pages_around};
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// struct Message {
///     // Before the memory: what is declared first is dropped first.
///     lock: LockedArea,
///     bytes: Vec<u8>,
/// }
///
/// let bytes = vec![7u8; 4096];
/// let lock = Manager::of_process().lock(pages_around(&bytes), Kind::Pinned)?;
/// let message = Message { lock, bytes };
/// assert!(message.lock.is_held() && message.bytes[0] == 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the handle unlocks the memory"]
pub struct LockedArea {
    manager: &'static Manager,
    /// Its number and place among the manager's areas.
    name: (u64, usize),
    bytes: Range<usize>,
    kind: Kind,
}

/// Memory with the same locks on every page: the paper's locked memory area.
///
/// ```
/// use onrush_lock::{Kind, Manager, pages_around};
/// use onrush_lock::memory::page_bytes;
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// let buffer = vec![0u8; 8 * page_bytes()];
/// let pages = pages_around(&buffer);
/// let half = pages.start..pages.start + 4 * page_bytes();
/// let manager = Manager::of_process();
/// let _whole = manager.lock(pages.clone(), Kind::Resident)?;
/// let _half = manager.lock(half.clone(), Kind::Resident)?;
/// let [first, second] = &manager.areas()[..] else {
///     panic!("two intervals");
/// };
/// assert_eq!((&first.bytes, first.counts.resident), (&half, 2));
/// assert_eq!((&second.bytes, second.counts.resident), (&(half.end..pages.end), 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interval {
    /// Its addresses.
    pub bytes: Range<usize>,
    /// How many handles hold each of its pages.
    pub counts: Counts,
}

/// How much is locked.
///
/// ```
/// use onrush_lock::{Kind, Manager, pages_around};
///
/// # fn main() -> Result<(), onrush_lock::LockError> {
/// let buffer = vec![0u8; 8192];
/// let pages = pages_around(&buffer);
/// let manager = Manager::of_process();
/// let _once = manager.lock(pages.clone(), Kind::Pinned)?;
/// let _twice = manager.lock(pages.clone(), Kind::Pinned)?;
/// let totals = manager.totals();
/// assert_eq!((totals.areas, totals.pinned_bytes, totals.resident_bytes), (2, pages.len(), 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Handles that are out.
    pub areas: usize,
    /// Bytes that at least one [`Kind::Resident`] or [`Kind::OnFault`] handle holds.
    pub resident_bytes: usize,
    /// Bytes that at least one [`Kind::Pinned`] handle holds.
    pub pinned_bytes: usize,
}

/// The whole pages that `memory` lies in: what can be locked of it.
///
/// ```
/// use onrush_lock::pages_around;
/// use onrush_lock::memory::page_bytes;
///
/// let numbers = [1u64, 2, 3];
/// let pages = pages_around(&numbers);
/// assert!(pages.start % page_bytes() == 0 && pages.len() % page_bytes() == 0);
/// assert!(pages.contains(&numbers.as_ptr().addr()));
/// ```
pub fn pages_around<T>(memory: &[T]) -> Range<usize> {
    let page_bytes = page_bytes();
    let Range { start, end } = memory.as_ptr_range();
    let start = start.addr() / page_bytes * page_bytes;
    start..end.addr().next_multiple_of(page_bytes)
}

impl Manager {
    /// The manager of this process. A child of `fork` gets one of its own.
    #[must_use]
    pub fn of_process() -> &'static Self {
        process::manager()
    }

    /// Locks `bytes`, whole pages at addresses of this process, until the handle is dropped.
    ///
    /// ```
    /// use onrush_lock::{Kind, LockError, Manager, pages_around};
    ///
    /// # fn main() -> Result<(), onrush_lock::LockError> {
    /// let buffer = vec![0u8; 10_000];
    /// let area = Manager::of_process().lock(pages_around(&buffer), Kind::Resident)?;
    /// assert!(area.bytes().len() >= buffer.len());
    /// let refused = Manager::of_process().lock(1..2, Kind::Resident);
    /// assert!(matches!(refused, Err(LockError::Alignment { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A failed lock changes nothing, and its error says what would help. [`Kind::Pinned`] needs
    /// memory that is writable and that its file system, if it has one, lets be pinned: anonymous
    /// memory, memfd, POSIX and SysV shared memory, huge pages.
    pub fn lock(&'static self, bytes: Range<usize>, kind: Kind) -> Result<LockedArea, LockError> {
        error::check(&bytes)?;
        let mut inner = self.inner();
        inner.areas.check_room()?;
        let held = match kind {
            Kind::Resident | Kind::OnFault => {
                resident::make_resident(&mut inner.intervals, &bytes, kind)?;
                Held::new(bytes.clone(), kind)
            }
            Kind::Pinned => inner.pin(&bytes)?,
        };
        Ok(self.count(&mut inner, held))
    }

    /// Unlocks everything. Handles that are still out hold nothing any more.
    ///
    /// ```
    /// use onrush_lock::{Kind, Manager, pages_around};
    ///
    /// # fn main() -> Result<(), onrush_lock::LockError> {
    /// let buffer = vec![0u8; 8192];
    /// let area = Manager::of_process().lock(pages_around(&buffer), Kind::Pinned)?;
    /// Manager::of_process().cleanup();
    /// assert!(!area.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cleanup(&self) {
        let mut inner = self.inner();
        for held in inner.areas.take_all() {
            inner.release(&held);
        }
    }

    /// What is locked and how often, by address.
    ///
    /// ```
    /// use onrush_lock::{Kind, Manager, pages_around};
    ///
    /// # fn main() -> Result<(), onrush_lock::LockError> {
    /// let buffer = vec![0u8; 8192];
    /// let area = Manager::of_process().lock(pages_around(&buffer), Kind::Resident)?;
    /// for interval in Manager::of_process().areas() {
    ///     println!("{:#x?}: {:?}", interval.bytes, interval.counts);
    /// }
    /// assert_eq!(Manager::of_process().areas()[0].bytes, area.bytes());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn areas(&self) -> Vec<Interval> {
        let inner = self.inner();
        let intervals = inner.intervals.iter().map(|(pages, counts)| Interval {
            bytes: addresses(&pages),
            counts,
        });
        intervals.collect()
    }

    /// How much is locked.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let inner = self.inner();
        Totals {
            areas: inner.areas.len(),
            resident_bytes: inner.intervals.resident_pages() << page_shift(),
            pinned_bytes: inner.intervals.pinned_pages() << page_shift(),
        }
    }

    fn new() -> Self {
        Self {
            inner: Mutex::default(),
            sealed: SealedMemory::default(),
            watch: OnceLock::new(),
        }
    }

    fn watch(&self) -> Option<&'static Watch> {
        *self.watch.get_or_init(|| {
            Watch::start()
                .inspect_err(
                    |error| tracing::info!(%error, "no userfaultfd: registrations are not cached"),
                )
                .ok()
        })
    }

    /// Gives out a handle for what has just been locked.
    fn count(&'static self, inner: &mut Inner, held: Held) -> LockedArea {
        let (bytes, kind) = (held.bytes.clone(), held.kind);
        inner.intervals.add(page_numbers(&bytes), kind);
        LockedArea {
            manager: self,
            name: inner.areas.insert(held),
            bytes,
            kind,
        }
    }

    fn release(&self, name: (u64, usize)) {
        let mut inner = self.inner();
        if let Some(held) = inner.areas.remove(name) {
            inner.release(&held);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedArea {
    /// Gives the lock back, as dropping does.
    pub fn unlock(self) {}

    /// Locks `bytes` too, which begin where the locked ones end, in the same way: one handle for
    /// memory that becomes more. Pinned, they are buffers of their own: a ring gets them one by one
    /// ([`RingBuffers`]).
    ///
    /// ```
    /// use onrush_lock::memory::page_bytes;
    /// use onrush_lock::{Kind, Manager, pages_around};
    ///
    /// # fn main() -> Result<(), onrush_lock::LockError> {
    /// let buffer = vec![0u8; 8 * page_bytes()];
    /// let pages = pages_around(&buffer);
    /// let half = pages.start + 4 * page_bytes();
    /// let mut area = Manager::of_process().lock(pages.start..half, Kind::Pinned)?;
    /// area.extend(half..pages.end)?;
    /// assert_eq!(area.bytes(), pages);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Manager::lock`], which leave the handle as it was; [`LockError::Released`].
    ///
    /// # Panics
    /// If `bytes` begin elsewhere.
    pub fn extend(&mut self, bytes: Range<usize>) -> Result<(), LockError> {
        error::check(&bytes)?;
        assert_eq!(self.bytes.end, bytes.start, "a handle grows at its end");
        if !self.is_ours() {
            return Err(LockError::Released);
        }
        self.manager.inner().extend(self.name, &bytes)?;
        self.bytes.end = bytes.end;
        Ok(())
    }

    /// The locked addresses.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// How they are locked.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of the physical frame behind every page, in order, after touching it. Only those
    /// of [`Kind::Pinned`] memory stay what they are.
    ///
    /// They are the frames of what lies at the addresses now. Of a pinned range that was discarded
    /// (MADV_DONTNEED) or mapped anew since these are other frames than the pinned ones; of one
    /// that was unmapped, or moved by `mremap`, there are none. The pinned ones stay pinned, and
    /// nothing shows them any more but the ring: lock the range again.
    ///
    /// ```
    /// use onrush_lock::{Kind, LockError, Manager, pages_around};
    /// use onrush_lock::memory::page_bytes;
    ///
    /// # fn main() -> Result<(), onrush_lock::LockError> {
    /// let buffer = vec![0u8; 8192];
    /// let area = Manager::of_process().lock(pages_around(&buffer), Kind::Pinned)?;
    /// match area.pages() {
    ///     Ok(frames) => assert_eq!(frames.len(), area.bytes().len() / page_bytes()),
    ///     Err(LockError::FramesHidden) => println!("only for those with CAP_SYS_ADMIN"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`LockError::FramesHidden`] without CAP_SYS_ADMIN, never a zero for an address; and
    /// [`LockError::Unmapped`] or [`LockError::PartlyMapped`] where nothing is mapped any more.
    pub fn pages(&self) -> Result<Vec<u64>, LockError> {
        if !self.is_held() {
            return Err(LockError::Released);
        }
        frames::read(&self.bytes, self.kind)
    }

    /// The runs of consecutive frames, in order: the entries of a scatter/gather map.
    ///
    /// ```
    /// use onrush_lock::{Kind, Manager, pages_around};
    ///
    /// # fn main() -> Result<(), onrush_lock::LockError> {
    /// let buffer = vec![0u8; 64 << 10];
    /// let area = Manager::of_process().lock(pages_around(&buffer), Kind::Pinned)?;
    /// if let Ok(blocks) = area.blocks() {
    ///     let pages: usize = blocks.iter().map(|block| block.frames).sum();
    ///     // Fewer entries than pages, where frames follow one another.
    ///     assert!(blocks.len() <= pages);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`LockedArea::pages`].
    pub fn blocks(&self) -> Result<Vec<Block>, LockError> {
        Ok(frames::blocks(&self.pages()?))
    }

    /// Whether it still holds its memory: not after [`Manager::cleanup`], nor in a child of `fork`.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_ours() && self.manager.inner().areas.contains(self.name)
    }

    /// A copy of a handle in a child of `fork` names a manager that is the parent's.
    fn is_ours(&self) -> bool {
        ptr::eq(self.manager, Manager::of_process())
    }
}

impl Drop for LockedArea {
    fn drop(&mut self) {
        if self.is_ours() {
            self.manager.release(self.name);
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}

/// A pointer for the kernel, never followed here.
fn pointer(bytes: &Range<usize>) -> *mut u8 {
    ptr::without_provenance_mut(bytes.start)
}

fn page_numbers(bytes: &Range<usize>) -> Range<usize> {
    let shift = page_shift();
    bytes.start >> shift..bytes.end >> shift
}

fn addresses(pages: &Range<usize>) -> Range<usize> {
    let shift = page_shift();
    pages.start << shift..pages.end << shift
}

#[cfg(test)]
mod tests;

/// The example of the README is compiled and run with the other doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
