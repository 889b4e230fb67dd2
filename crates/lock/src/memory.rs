//! Areas: page-aligned memory that packet images live in.
//!
//! An [`Area`] is mapped once, on huge pages where the kernel has them, touched once so that no
//! page fault can happen later, and locked by the locked memory manager ([`crate`]), through which
//! rings get it as their buffers too. A large one can be made ready piece by piece
//! ([`Area::reserve`]). An area does not say who may write which part of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use crate::{BUFFER_BYTES_MAX, Kind, LockError, LockedArea, Manager};
pub use available::{available_bytes, control_group_bytes, machine_bytes};
pub use growing::PIECE_BYTES;
pub use rights::{CAP_IPC_LOCK, CAP_NET_ADMIN, has_capability, lockable_bytes};
pub(crate) use rights::{may_lock_all, memlock_limit_bytes};

mod available;
mod growing;
mod rights;

/// Bytes of a huge page on the machines we know; an area is a whole number of them.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory of our own, page-aligned, readable and writable, never moved and never forked.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    bytes_total: usize,
    /// Of a buffer that a ring gets of it; the last may be shorter.
    buffer_bytes: usize,
    /// Those from the front that can be used: touched, and locked if that was asked for.
    ready_bytes: AtomicUsize,
    /// Held by who makes a piece ready.
    growing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pages: Pages,
    lock: Option<LockedArea>,
    /// How pieces are locked when they are made ready.
    kind: Option<Kind>,
    /// Whether it asked for transparent huge pages.
    is_huge: bool,
}

/// An area that one owner reads and writes.
///
/// ```
/// use onrush_lock::Kind;
/// use onrush_lock::memory::Buffer;
///
/// # fn main() -> Result<(), onrush_lock::memory::MemoryError> {
/// let mut buffer = Buffer::map(1 << 16)?;
/// buffer.lock(Kind::Resident)?; // No page of it is ever waited for.
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(buffer.len(), 1 << 16);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer(Area);

/// What an area's pages are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pages {
    /// From the reserved pool (`vm.nr_hugepages`).
    HugeReserved,
    /// Transparent huge pages, for at least nine tenths of the area.
    HugeTransparent,
    /// Ordinary pages of the base size.
    Base,
}

/// Why there is no such area.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Zero bytes, or more than an address space holds.
    #[error("{bytes_total} bytes are no size for an area")]
    Size {
        /// The size asked for.
        bytes_total: usize,
    },
    /// The system has not that much memory.
    #[error("cannot map {bytes_total} bytes: {source}; ask for less")]
    Map {
        /// The size asked for.
        bytes_total: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A piece of it found no memory.
    #[error(
        "no memory for {piece_bytes} bytes behind the first {ready_bytes}: {source}; free memory, \
         raise the control group's limit, or ask for less"
    )]
    Piece {
        /// What is ready.
        ready_bytes: usize,
        /// What was to be.
        piece_bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The memory may not be locked.
    #[error("{0}")]
    Lock(#[from] LockError),
}

// SAFETY: an `Area` is a mapping, owned by this value alone; nothing about it is tied to a thread.
unsafe impl Send for Area {}
// SAFETY: through `&Area` only the mapping's address and size can be read; who may touch the bytes
// behind them is decided by `Pool`, which is the only one that makes references to them.
unsafe impl Sync for Area {}

impl Area {
    /// Maps and touches `bytes_total` bytes, rounded up to [`HUGE_PAGE_BYTES`] (to the base page if
    /// less).
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if there is not so much.
    pub fn map(bytes_total: usize) -> Result<Self, MemoryError> {
        let is_small = bytes_total < HUGE_PAGE_BYTES;
        let unit = if is_small {
            page_bytes()
        } else {
            HUGE_PAGE_BYTES
        };
        Self::map_in(bytes_total, unit, available_bytes)
    }

    /// The same of base pages, whatever the kernel has.
    ///
    /// # Errors
    ///
    /// As [`Self::map`].
    pub fn map_base(bytes_total: usize) -> Result<Self, MemoryError> {
        Self::map_in(bytes_total, page_bytes(), available_bytes)
    }

    fn map_in(
        bytes_total: usize,
        unit: usize,
        available_bytes: fn() -> u64,
    ) -> Result<Self, MemoryError> {
        let rounded = bytes_total
            .checked_next_multiple_of(unit)
            .filter(|&b| b > 0 && isize::try_from(b).is_ok())
            .ok_or(MemoryError::Size { bytes_total })?;
        // First: the reserved pages are no part of what the system calls available.
        if unit == HUGE_PAGE_BYTES
            && let Ok(base) = map_anonymous(rounded, libc::MAP_HUGETLB)
        {
            let area = Self::own(base, rounded, Pages::HugeReserved);
            if area.populate(0..rounded).is_ok() {
                return Ok(area.all_ready());
            }
            // Set aside for us, and not to be had: a control group (hugetlb.2MB.max) or the nodes
            // that this process may use have none. A touch would be SIGBUS (hugetlbpage.rst).
        }
        // Asked before, because touching memory that is not there wakes the out-of-memory killer.
        if rounded as u64 > available_bytes() {
            let source = io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(MemoryError::Map {
                bytes_total: rounded,
                source,
            });
        }
        let base = map_aligned(rounded, unit).map_err(|source| MemoryError::Map {
            bytes_total: rounded,
            source,
        })?;
        let area = Self::own(base, rounded, Pages::Base);
        area.advise_pages(unit);
        area.populate(0..rounded)
            .map_err(|source| MemoryError::Map {
                bytes_total: rounded,
                source,
            })?;
        let mut area = area.all_ready();
        if unit == HUGE_PAGE_BYTES && area.is_transparent() {
            area.state_mut().pages = Pages::HugeTransparent;
        }
        Ok(area)
    }

    /// Asks for huge pages or for none: said both ways, because the system's setting may be
    /// `always`.
    fn advise_pages(&self, unit: usize) {
        self.advise(if unit == HUGE_PAGE_BYTES {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        });
    }

    /// Whether at least nine tenths of what is ready are transparent huge pages. Nobody else's are
    /// counted: see [`map_aligned`].
    fn is_transparent(&self) -> bool {
        let huge_kib = smaps_kib(self.base.as_ptr().addr(), "AnonHugePages:").unwrap_or(0);
        huge_kib >= (self.ready_bytes() / 10 * 9 / 1024) as u64
    }

    fn all_ready(mut self) -> Self {
        *self.ready_bytes.get_mut() = self.bytes_total;
        self
    }

    /// Locks all of it into memory, instead of in the way it was locked before.
    ///
    /// # Errors
    ///
    /// [`MemoryError`]: the limit on locked memory (RLIMIT_MEMLOCK), or no memory. Then it is not
    /// locked at all.
    pub fn lock(&mut self, kind: Kind) -> Result<(), MemoryError> {
        let bytes = self.bytes();
        self.state_mut().lock = Some(Manager::of_process().lock(bytes, kind)?);
        *self.ready_bytes.get_mut() = self.bytes_total;
        Ok(())
    }

    /// Gives `ring` all of it as its buffers, counted by the manager: see [`Manager::register`]. Of
    /// an area that is made ready piece by piece it gets [`RingBuffers`](crate::RingBuffers).
    ///
    /// # Errors
    ///
    /// Those of [`Manager::register`].
    pub fn register(&self, ring: BorrowedFd<'_>) -> Result<LockedArea, LockError> {
        Manager::of_process().register(ring, self.bytes())
    }

    /// Where it starts. Valid as long as the area lives.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its size.
    #[must_use]
    pub fn bytes_total(&self) -> usize {
        self.bytes_total
    }

    /// What its pages are.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.state().pages
    }

    /// How [`Area::lock`] has locked it, or what of it is ready.
    #[must_use]
    pub fn locked(&self) -> Option<Kind> {
        let state = self.state();
        let held = state.lock.as_ref().filter(|lock| lock.is_held());
        held.map(LockedArea::kind)
    }

    fn bytes(&self) -> Range<usize> {
        self.addresses(0..self.bytes_total)
    }

    /// Where these of its bytes are.
    #[must_use]
    pub fn addresses(&self, bytes: Range<usize>) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start + bytes.start..start + bytes.end
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(base: NonNull<u8>, bytes_total: usize, pages: Pages) -> Self {
        let area = Self {
            base,
            bytes_total,
            buffer_bytes: BUFFER_BYTES_MAX,
            ready_bytes: AtomicUsize::new(0),
            growing: Mutex::default(),
            state: Mutex::new(State {
                pages,
                lock: None,
                kind: None,
                is_huge: false,
            }),
        };
        // A forked child would get copies of pinned pages at once (KERNEL: copy_page_range), a
        // gigabyte of them; and a core dump has no use for a cache.
        area.advise(libc::MADV_DONTFORK);
        area.advise(libc::MADV_DONTDUMP);
        area
    }

    /// Advice may be refused (a kernel without the feature); the area is right without it.
    fn advise(&self, advice: libc::c_int) {
        if cfg!(miri) {
            // It knows no madvise.
            return;
        }
        // SAFETY: the range is our own mapping; none of the advice used here discards its contents.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes_total, advice) };
    }

    /// Touches every page of these bytes. MADV_POPULATE_WRITE (5.14) reports a lack of memory where
    /// a touch would kill.
    fn populate(&self, bytes: Range<usize>) -> io::Result<()> {
        self.populate_by(bytes, libc::MADV_POPULATE_WRITE)
    }

    fn populate_by(&self, bytes: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        let (start, length) = (self.base.as_ptr().wrapping_add(bytes.start), bytes.len());
        // SAFETY: the range is our own mapping; populating it does not change its contents, and
        // `advice` is to do that, or none that a kernel has.
        let r = unsafe { libc::madvise(start.cast(), length, advice) };
        if r == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // A kernel without that advice says nothing before SIGBUS of reserved pages that a control
        // group refuses, so they are not for it.
        let may_be_touched = self.pages() != Pages::HugeReserved;
        if !may_be_touched || error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        for offset in (0..length).step_by(page_bytes()) {
            // SAFETY: `offset` is within the mapping, of which nobody else uses these bytes yet.
            unsafe { ptr::write_volatile(start.wrapping_add(offset), 0) };
        }
        Ok(())
    }
}

impl Buffer {
    /// Maps and touches `bytes_total` bytes of base pages, rounded up to whole ones.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if there is not so much.
    pub fn map(bytes_total: usize) -> Result<Self, MemoryError> {
        Area::map_base(bytes_total).map(Self)
    }

    /// Locks all of it, as [`Area::lock`] does.
    ///
    /// # Errors
    ///
    /// As [`Area::lock`].
    pub fn lock(&mut self, kind: Kind) -> Result<(), MemoryError> {
        self.0.lock(kind)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the area is mapped, readable, zeroed when it was mapped, and known to this value
        // alone, which is borrowed for as long as the slice is.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.bytes_total) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; it is writable, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.bytes_total) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // First, while the addresses are ours: another mapping may come to lie there.
        self.state_mut().lock = None;
        // SAFETY: the mapping is ours, made with this size, and no reference into it outlives the
        // area (`Pool` owns its area). Pages that a ring still has registered stay pinned by the
        // ring.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes_total) };
    }
}

/// The base page size.
#[must_use]
pub fn page_bytes() -> usize {
    1 << page_shift()
}

/// The base page size as a power of two: dividing by what is not known to be one takes ten times as
/// long as shifting, and a lock divides six times.
pub(crate) fn page_shift() -> u32 {
    // Asked once: it is wanted several times in every lock, which can take less than 300 ns in all.
    static SHIFT: AtomicU32 = AtomicU32::new(0);
    match SHIFT.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let shift = u32::try_from(bytes).unwrap_or(4096).trailing_zeros();
            SHIFT.store(shift, Ordering::Relaxed);
            shift
        }
        shift => shift,
    }
}

fn map_anonymous(bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches nothing
    // of ours.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A mapping that starts on a multiple of `alignment`: more is mapped, and both ends are given
/// back. Each is a page at least, so that no two of them touch: the kernel would make one mapping
/// of them, and tell what both have together.
fn map_aligned(bytes: usize, alignment: usize) -> io::Result<NonNull<u8>> {
    // Miri gives no part of a mapping back.
    let gap = if cfg!(miri) { 0 } else { page_bytes() };
    let slack = alignment - page_bytes() + 2 * gap;
    let wide = map_anonymous(bytes + slack, 0)?;
    let head = gap + wide.as_ptr().wrapping_add(gap).align_offset(alignment);
    // SAFETY: `head` is at most `slack`, so the result lies within the mapping.
    let base = unsafe { wide.add(head) };
    let unmap = |start: *mut u8, length: usize| {
        if length > 0 {
            // SAFETY: both calls give back a part of `wide` that lies outside `base..base + bytes`.
            unsafe { libc::munmap(start.cast(), length) };
        }
    };
    unmap(wide.as_ptr(), head);
    unmap(base.as_ptr().wrapping_add(bytes), slack - head);
    Ok(base)
}

/// A figure of the mapping that holds `address`, in KiB, from `/proc/self/smaps`.
fn smaps_kib(address: usize, field: &str) -> Option<u64> {
    let smaps = File::open("/proc/self/smaps").ok()?;
    let mut inside = false;
    for line in BufReader::new(smaps).lines().map_while(Result::ok) {
        if let Some((start, end)) = mapping_bounds(&line) {
            inside = (start..end).contains(&address);
        } else if inside && let Some(rest) = line.strip_prefix(field) {
            return rest.trim().strip_suffix(" kB")?.parse().ok();
        }
    }
    None
}

fn mapping_bounds(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((
        usize::from_str_radix(start, 16).ok()?,
        usize::from_str_radix(end, 16).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_aligned_zeroed_and_as_large_as_asked() {
        let area = Area::map(3 * HUGE_PAGE_BYTES - 1).expect("6 MiB can be mapped");
        assert_eq!(area.bytes_total(), 3 * HUGE_PAGE_BYTES);
        assert_eq!(area.base().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
        // SAFETY: the area is mapped, readable and ours alone.
        let bytes = unsafe { std::slice::from_raw_parts(area.base().as_ptr(), area.bytes_total()) };
        assert!(bytes.iter().all(|&b| b == 0));
    }

    #[test]
    fn small_areas_are_whole_base_pages() {
        let area = Area::map(1).expect("a page can be mapped");
        assert_eq!(area.bytes_total(), page_bytes());
        assert_eq!(area.pages(), Pages::Base);
    }

    #[test]
    fn base_pages_are_to_be_had_in_any_amount() {
        let area = Area::map_base(2 * HUGE_PAGE_BYTES + 1).expect("4 MiB can be mapped");
        assert_eq!(area.bytes_total(), 2 * HUGE_PAGE_BYTES + page_bytes());
        assert_eq!(area.pages(), Pages::Base);
        let huge_kib = smaps_kib(area.base().as_ptr().addr(), "AnonHugePages:");
        assert_eq!(huge_kib, Some(0));
    }

    #[test]
    fn a_buffer_is_whole_pages_and_the_kernel_counts_it_as_locked() {
        let mut buffer = Buffer::map(page_bytes() + 1).expect("two pages");
        assert!(buffer.len() == 2 * page_bytes() && buffer.iter().all(|&b| b == 0));
        buffer
            .lock(Kind::Resident)
            .expect("two pages can be locked");
        buffer.fill(7);
        assert_eq!(buffer[2 * page_bytes() - 1], 7);
        let kib = smaps_kib(buffer.as_ptr().addr(), "Locked:").expect("smaps has the mapping");
        assert_eq!(kib * 1024, buffer.len() as u64);
    }

    #[test]
    fn areas_are_mappings_of_their_own() {
        let areas = [(); 8].map(|()| Area::map_base(1).expect("a page can be mapped"));
        let maps = std::fs::read_to_string("/proc/self/maps").expect("they can be read");
        let mappings: Vec<_> = maps.lines().filter_map(mapping_bounds).collect();
        for bytes in areas.each_ref().map(Area::bytes) {
            assert!(mappings.contains(&(bytes.start, bytes.end)), "{maps}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused_by_name() {
        assert!(matches!(
            Area::map(0),
            Err(MemoryError::Size { bytes_total: 0 })
        ));
        assert!(matches!(
            Area::map(usize::MAX),
            Err(MemoryError::Size { .. })
        ));
        assert!(matches!(Area::map(1 << 46), Err(MemoryError::Map { .. })));
    }

    #[test]
    fn the_kernel_counts_a_locked_area_as_locked() {
        let mut area = Area::map(page_bytes()).expect("a page can be mapped");
        assert_eq!(area.locked(), None);
        area.lock(Kind::Resident).expect("a page can be locked");
        assert_eq!(area.locked(), Some(Kind::Resident));
        let start = area.base().as_ptr().addr();
        let kib = || smaps_kib(start, "Locked:").expect("smaps has the mapping");
        assert_eq!(kib() * 1024, page_bytes() as u64);
        area.lock(Kind::Pinned).expect("a page can be pinned");
        assert_eq!((area.locked(), kib()), (Some(Kind::Pinned), 0));
    }

    #[test]
    fn reserved_pages_are_not_touched_where_that_may_be_fatal() {
        for (pages, is_touched) in [(Pages::HugeReserved, false), (Pages::Base, true)] {
            let base = map_anonymous(HUGE_PAGE_BYTES, 0).expect("2 MiB can be mapped");
            let area = Area::own(base, HUGE_PAGE_BYTES, pages);
            // Advice that no kernel knows, as older ones do not know that to populate.
            let populated = area.populate_by(0..HUGE_PAGE_BYTES, -1);
            assert_eq!(populated.is_ok(), is_touched, "{pages:?}");
        }
    }

    #[test]
    fn reserved_pages_are_taken_though_nothing_else_is_available() {
        const POOL: &str = "/proc/sys/vm/nr_hugepages";
        let reserved = || std::fs::read_to_string(POOL).map(|text| text.trim().parse::<u32>());
        let before = reserved()
            .expect("a kernel with huge pages")
            .expect("a number");
        let map = || Area::map_in(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, || 0);
        if std::fs::write(POOL, (before + 4).to_string()).is_err() {
            assert!(matches!(map(), Err(MemoryError::Map { .. })));
            return;
        }
        // Other tests may take some of the pages meanwhile, and give them back; and where memory
        // lies in pieces the kernel may not find all of them at the first attempt.
        let mapped = (0..2000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            std::fs::write(POOL, (before + 4).to_string()).ok()?;
            map().ok()
        });
        std::fs::write(POOL, before.to_string()).expect("as before");
        assert_eq!(mapped.map(|area| area.pages()), Some(Pages::HugeReserved));
        assert!(matches!(
            Area::map_in(HUGE_PAGE_BYTES, page_bytes(), || 0),
            Err(MemoryError::Map { .. })
        ));
    }
}
