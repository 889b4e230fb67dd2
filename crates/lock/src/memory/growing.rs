//! An area that becomes ready piece by piece, while what is ready is in use.
//!
//! Making pages takes its time: a quarter of a second for a gigabyte, several on a machine whose
//! own host has to find them first. So a large area is mapped at once and made ready from the front
//! on, by a thread that has nothing else to do. A piece is touched in steps, because the kernel
//! holds the process's memory map (`mmap_lock`) during each, and then locked as a whole. What
//! cannot be had leaves what is ready as it is.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::SLOTS_MAX;

use super::{
    Area, BUFFER_BYTES_MAX, HUGE_PAGE_BYTES, Kind, Manager, MemoryError, Pages, available_bytes,
    map_aligned, map_anonymous, page_bytes,
};

/// Bytes of a piece, which is one buffer of a ring.
///
/// The first one is what a server waits for when it starts: 3 to 130 ms, as measured. A ring that
/// cannot share a pin takes 0.2 ms for a piece of huge pages and about 1 ms for one of base pages;
/// one that can, 4 to 7 us for any size. Of smaller pieces a larger part would be set aside for
/// headers (each has all senders' slots), and they reach less far: a ring has 16,384 buffers.
pub const PIECE_BYTES: usize = 32 << 20;

impl Area {
    /// Maps `bytes_total` bytes, rounded up as [`Self::map`] does. They are made ready by
    /// [`Self::grow`], and locked as `kind` says. `is_huge`: of huge pages, if there are any.
    ///
    /// None of them is touched before, but for the first piece of reserved huge pages: a control
    /// group (`hugetlb.2MB.max`) may refuse that, and then the area is of other pages.
    ///
    /// ```
    /// use onrush_lock::Kind;
    /// use onrush_lock::memory::{Area, PIECE_BYTES};
    ///
    /// # fn main() -> Result<(), onrush_lock::memory::MemoryError> {
    /// let area = Area::reserve(PIECE_BYTES + 1, true, None)?;
    /// assert_eq!(area.ready_bytes(), 0);
    /// assert_eq!(area.grow(|| false)?, PIECE_BYTES);
    /// assert_eq!(area.grow(|| false)?, area.bytes_total());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if there are no so many addresses, or the machine has not that much memory
    /// to spare at the moment.
    pub fn reserve(
        bytes_total: usize,
        is_huge: bool,
        kind: Option<Kind>,
    ) -> Result<Self, MemoryError> {
        Self::reserve_in_pieces(bytes_total, is_huge, kind, PIECE_BYTES)
    }

    /// The same where the machine has not that much memory to spare yet, because a process has it
    /// that is about to end. Of each piece [`Self::grow`] says whether it can be had.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`], whatever memory there is.
    pub fn reserve_ahead(
        bytes_total: usize,
        is_huge: bool,
        kind: Option<Kind>,
    ) -> Result<Self, MemoryError> {
        Self::reserve_in(bytes_total, is_huge, kind, PIECE_BYTES, || u64::MAX)
    }

    /// As [`Self::reserve`], in pieces of another size: a power of two, at least a page. A ring has
    /// to have room for all of them, so of a very large area they are larger.
    ///
    /// # Errors
    ///
    /// As [`Self::reserve`].
    ///
    /// # Panics
    /// If it is no such size.
    pub fn reserve_in_pieces(
        bytes_total: usize,
        is_huge: bool,
        kind: Option<Kind>,
        piece_bytes_min: usize,
    ) -> Result<Self, MemoryError> {
        Self::reserve_in(bytes_total, is_huge, kind, piece_bytes_min, available_bytes)
    }

    fn reserve_in(
        bytes_total: usize,
        is_huge: bool,
        kind: Option<Kind>,
        piece_bytes_min: usize,
        available_bytes: fn() -> u64,
    ) -> Result<Self, MemoryError> {
        let is_size = piece_bytes_min.is_power_of_two();
        assert!(is_size && (page_bytes()..=BUFFER_BYTES_MAX).contains(&piece_bytes_min));
        let unit = match is_huge && bytes_total >= HUGE_PAGE_BYTES {
            true => HUGE_PAGE_BYTES,
            false => page_bytes(),
        };
        let rounded = bytes_total
            .checked_next_multiple_of(unit)
            .filter(|&b| b > 0 && isize::try_from(b).is_ok())
            .ok_or(MemoryError::Size { bytes_total })?;
        let no_memory = |source| MemoryError::Map {
            bytes_total: rounded,
            source,
        };
        let buffer_bytes = piece_bytes_min.max(piece_bytes(rounded));
        let first_piece = 0..rounded.min(buffer_bytes);
        // The kernel sets reserved pages aside for the mapping, or there is none (hugetlbfs).
        let reserved = match unit {
            HUGE_PAGE_BYTES => map_anonymous(rounded, libc::MAP_HUGETLB).ok(),
            _ => None,
        };
        let reserved = reserved.map(|base| Self::own(base, rounded, Pages::HugeReserved));
        // A control group may refuse what was set aside; then there are other pages. Where it gives
        // the first piece and refuses a later one, `grow` says so.
        let reserved = reserved.filter(|area| area.touch(&first_piece, || false).is_ok());
        let mut area = match reserved {
            Some(area) => area,
            None if rounded as u64 > available_bytes() => {
                return Err(no_memory(io::Error::from_raw_os_error(libc::ENOMEM)));
            }
            None => {
                let base = map_aligned(rounded, unit).map_err(no_memory)?;
                let area = Self::own(base, rounded, Pages::Base);
                area.advise_pages(unit);
                area
            }
        };
        area.buffer_bytes = buffer_bytes;
        let state = area.state_mut();
        (state.kind, state.is_huge) = (kind, unit == HUGE_PAGE_BYTES);
        Ok(area)
    }

    /// Makes the next piece ready, unless `stop` says so between two steps. Returns how many bytes
    /// are ready then, from the front on; all of them, when there is nothing left to do. One thread
    /// does this; another waits for it, and makes the piece behind.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Piece`] if the machine has not that much memory to spare,
    /// [`MemoryError::Lock`] if it may not be locked. What was ready still is.
    pub fn grow(&self, stop: impl Fn() -> bool) -> Result<usize, MemoryError> {
        // What one gives back because it failed, another might have made ready meanwhile.
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let ready_bytes = self.ready_bytes();
        let piece = ready_bytes..self.bytes_total.min(ready_bytes + self.buffer_bytes);
        if piece.is_empty() || stop() {
            return Ok(ready_bytes);
        }
        match self.make_ready(&piece, stop) {
            Ok(true) => Ok(piece.end),
            Ok(false) => Ok(ready_bytes),
            Err(error) => {
                self.discard(&piece);
                Err(error)
            }
        }
    }

    /// Bytes from the front that are ready.
    #[must_use]
    pub fn ready_bytes(&self) -> usize {
        // Acquire: pairs with the release in `make_ready`.
        self.ready_bytes.load(Ordering::Acquire)
    }

    /// Bytes of a buffer that a ring gets of it; the last may be shorter.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The buffers that a ring gets of it, ready or not.
    pub fn buffers(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (bytes_total, buffer_bytes) = (self.bytes_total, self.buffer_bytes);
        let starts = (0..bytes_total).step_by(buffer_bytes);
        starts.map(move |start| start..bytes_total.min(start.saturating_add(buffer_bytes)))
    }

    /// False if it was stopped.
    fn make_ready(
        &self,
        piece: &Range<usize>,
        stop: impl Fn() -> bool,
    ) -> Result<bool, MemoryError> {
        let no_memory = |source| MemoryError::Piece {
            ready_bytes: piece.start,
            piece_bytes: piece.len(),
            source,
        };
        let is_reserved = self.pages() == Pages::HugeReserved;
        // Asked before, because touching memory that is not there wakes the out-of-memory killer;
        // and a quarter is left to others.
        if !is_reserved && piece.len() as u64 > available_bytes() / 4 * 3 {
            return Err(no_memory(io::Error::from_raw_os_error(libc::ENOMEM)));
        }
        if !self.touch(piece, stop).map_err(no_memory)? {
            return Ok(false);
        }
        let mut state = self.state();
        let addresses = self.addresses(piece.clone());
        match (state.kind, &mut state.lock) {
            (None, _) => {}
            (Some(_), Some(lock)) => lock.extend(addresses)?,
            (Some(kind), lock @ None) => *lock = Some(Manager::of_process().lock(addresses, kind)?),
        }
        // Release: whoever sees it ready finds its pages there.
        self.ready_bytes.store(piece.end, Ordering::Release);
        // Not asked for each: the kernel looks through all pages for it.
        let is_end = piece.start == 0 || piece.end == self.bytes_total;
        if is_end && !is_reserved && state.is_huge {
            state.pages = match self.is_transparent() {
                true => Pages::HugeTransparent,
                false => Pages::Base,
            };
        }
        Ok(true)
    }

    /// Touches a piece in steps. False if it was stopped between two.
    fn touch(&self, piece: &Range<usize>, stop: impl Fn() -> bool) -> io::Result<bool> {
        for start in piece.clone().step_by(STEP_BYTES) {
            if stop() {
                return Ok(false);
            }
            self.populate(start..piece.end.min(start + STEP_BYTES))?;
        }
        Ok(true)
    }

    /// Gives back what was touched of a piece that is not to be.
    fn discard(&self, piece: &Range<usize>) {
        let start = self.base.as_ptr().wrapping_add(piece.start);
        // SAFETY: the range is our own mapping, and nobody uses it: it was never said to be ready.
        // A refusal costs only memory.
        unsafe { libc::madvise(start.cast(), piece.len(), libc::MADV_DONTNEED) };
    }
}

/// Bytes of a piece of an area of so many bytes at the least, so that a ring has room for twice as
/// many.
fn piece_bytes(bytes_total: usize) -> usize {
    let pieces_max = usize::from(SLOTS_MAX) / 2;
    let least = bytes_total.div_ceil(pieces_max).next_power_of_two();
    least.min(BUFFER_BYTES_MAX)
}

/// Bytes that are touched in one call.
const STEP_BYTES: usize = HUGE_PAGE_BYTES;

const _: () = assert!(PIECE_BYTES.is_power_of_two() && PIECE_BYTES.is_multiple_of(HUGE_PAGE_BYTES));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages_in_memory;

    #[test]
    fn an_area_grows_by_pieces_and_stops_at_its_end() {
        let area = Area::reserve(2 * PIECE_BYTES + 1, true, Some(Kind::Resident));
        let area = area.expect("66 MiB can be mapped");
        assert_eq!(area.bytes_total(), 2 * PIECE_BYTES + HUGE_PAGE_BYTES);
        let sizes: Vec<_> = area.buffers().map(|bytes| bytes.len()).collect();
        assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, HUGE_PAGE_BYTES]);
        assert_eq!((area.ready_bytes(), area.locked()), (0, None));
        for ready_bytes in [PIECE_BYTES, 2 * PIECE_BYTES, area.bytes_total()] {
            assert_eq!(area.grow(|| false).expect("a piece"), ready_bytes);
            assert_eq!(area.ready_bytes(), ready_bytes);
            assert_eq!(area.locked(), Some(Kind::Resident));
        }
        assert_eq!(area.grow(|| false).expect("all"), area.bytes_total());
    }

    #[test]
    fn more_than_there_is_can_be_reserved_ahead() {
        let bytes = usize::try_from(available_bytes()).expect("an address") + PIECE_BYTES;
        let area = Area::reserve_ahead(bytes, false, None).expect("addresses");
        assert!(area.bytes_total() >= bytes);
        assert_eq!(area.grow(|| false).expect("a piece"), PIECE_BYTES);
    }

    #[test]
    fn what_is_not_ready_has_no_memory() {
        let area = Area::reserve(2 * PIECE_BYTES, false, None).expect("64 MiB");
        // Not smaps: what another thread maps beside it is one mapping with it there.
        let addresses = area.addresses(0..area.bytes_total());
        let resident = || pages_in_memory(&addresses).expect("it is mapped") * page_bytes();
        assert_eq!(resident(), 0);
        area.grow(|| false).expect("a piece");
        assert_eq!(resident(), PIECE_BYTES);
        // Stopped half way.
        let steps = std::cell::Cell::new(0);
        let stop = || steps.replace(steps.get() + 1) == 3;
        assert_eq!(area.grow(stop).expect("no error"), PIECE_BYTES);
        assert_eq!(area.ready_bytes(), PIECE_BYTES);
    }

    #[test]
    fn two_threads_make_a_piece_each() {
        let area = Area::reserve(2 * PIECE_BYTES, false, None).expect("64 MiB");
        let both = std::sync::Barrier::new(2);
        let grow = || {
            both.wait();
            area.grow(|| false).expect("a piece")
        };
        let mut ready: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(grow));
            threads.map(|it| it.join().expect("no panic")).into()
        });
        ready.sort_unstable();
        assert_eq!(ready, [PIECE_BYTES, 2 * PIECE_BYTES]);
        assert_eq!(area.ready_bytes(), 2 * PIECE_BYTES);
    }

    #[test]
    fn a_ring_has_room_for_all_pieces() {
        let most = usize::from(SLOTS_MAX) / 2 * PIECE_BYTES;
        assert_eq!(piece_bytes(1), 1);
        assert_eq!(piece_bytes(most), PIECE_BYTES);
        assert_eq!(piece_bytes(most + 1), 2 * PIECE_BYTES);
        assert_eq!(piece_bytes(usize::MAX / 2), BUFFER_BYTES_MAX);
    }

    #[test]
    fn small_areas_are_one_piece() {
        let area = Area::reserve(1, true, None).expect("a page");
        assert_eq!(area.bytes_total(), page_bytes());
        assert_eq!(area.grow(|| false).expect("a page"), page_bytes());
        assert!(matches!(
            Area::reserve(0, true, None),
            Err(MemoryError::Size { .. })
        ));
        assert!(matches!(
            Area::reserve(1 << 46, true, None),
            Err(MemoryError::Map { .. })
        ));
    }
}
