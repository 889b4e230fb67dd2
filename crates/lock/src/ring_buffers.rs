//! A ring's buffers that come one by one.
//!
//! A ring that sends must not wait until all memory that it will ever send from is there. So its
//! table of buffers is registered empty, and whoever owns the ring adds a buffer when its memory is
//! ready. A ring with one submitter (`IORING_SETUP_SINGLE_ISSUER`) takes buffers from that thread
//! alone, and any ring is locked meanwhile; so what is added should be pinned before, by another
//! thread and by the manager. Then the ring shares that pin: some microseconds, whatever the size.
//! Where the kernel cannot ([`rings_share_pins`](crate::rings_share_pins)) the ring pins for
//! itself, which takes as long as there are pages.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{PoisonError, TryLockError};

use super::held::{Held, Inner, Part};
use super::table::{self, BUFFER_BYTES_MAX, SLOTS_MAX};
use super::{Kind, LockError, LockedArea, Manager, error};

/// The buffers of a ring, counted by the manager. The ring has the memory until it is closed: let
/// go of this then.
///
/// ```
/// use std::os::fd::AsFd;
/// use onrush_lock::memory::page_bytes;
/// use onrush_lock::{Kind, Manager, RingBuffers, bare, pages_around};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = vec![7u8; 4 * page_bytes()];
/// let pages = pages_around(&memory);
/// let half = pages.start + 2 * page_bytes();
/// let ring = bare::ring()?;
/// let mut buffers = RingBuffers::new(ring.as_fd(), 2)?;
/// let mut pinned = Manager::of_process().lock(pages.start..half, Kind::Pinned)?;
/// buffers.push(ring.as_fd(), pages.start..half)?; // Buffer 0.
/// pinned.extend(half..pages.end)?;
/// buffers.push(ring.as_fd(), half..pages.end)?; // Buffer 1.
/// assert_eq!(buffers.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RingBuffers {
    slots: u16,
    taken: u16,
    handle: Option<LockedArea>,
}

impl RingBuffers {
    /// Gives `ring`, which must have no buffers, room for `slots` of them.
    ///
    /// # Errors
    ///
    /// EINVAL for none or more than [`SLOTS_MAX`], or before Linux 5.19; EBUSY if the ring has
    /// buffers; ENOMEM.
    pub fn new(ring: BorrowedFd<'_>, slots: usize) -> io::Result<Self> {
        let slots = u16::try_from(slots).ok();
        let slots = slots.filter(|slots| (1..=SLOTS_MAX).contains(slots));
        let slots = slots.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        table::register_empty(ring, slots)?;
        Ok(Self {
            slots,
            taken: 0,
            handle: None,
        })
    }

    /// Gives `ring` these bytes, at most [`BUFFER_BYTES_MAX`], as its next buffer. They begin where
    /// the last one ends.
    ///
    /// # Errors
    ///
    /// Those of [`Manager::lock`] for [`Kind::Pinned`] memory; then nothing has changed.
    ///
    /// # Panics
    /// If the bytes begin elsewhere, or there is no room.
    pub fn push(&mut self, ring: BorrowedFd<'_>, bytes: Range<usize>) -> Result<(), LockError> {
        let manager = Manager::of_process();
        self.put(manager, &mut manager.inner(), ring, bytes)
    }

    /// The same, without waiting for others who are locking memory: false if there are any.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    ///
    /// # Panics
    /// As [`Self::push`].
    pub fn try_push(
        &mut self,
        ring: BorrowedFd<'_>,
        bytes: Range<usize>,
    ) -> Result<bool, LockError> {
        let manager = Manager::of_process();
        let mut inner = match manager.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => PoisonError::into_inner(inner),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        self.put(manager, &mut inner, ring, bytes).map(|()| true)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.taken)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    fn put(
        &mut self,
        manager: &'static Manager,
        inner: &mut Inner,
        ring: BorrowedFd<'_>,
        bytes: Range<usize>,
    ) -> Result<(), LockError> {
        error::check(&bytes)?;
        assert!(bytes.len() <= BUFFER_BYTES_MAX, "a buffer is at most 1 GiB");
        assert!(self.taken < self.slots, "there is room for the buffer");
        if self.handle.is_none() {
            inner.areas.check_room()?;
        }
        if !inner.share_part(ring, self.taken, &bytes) {
            table::update(ring.as_raw_fd(), self.taken, &bytes)
                .map_err(|source| error::diagnose(&bytes, Kind::Pinned, source))?;
        }
        self.taken += 1;
        match &mut self.handle {
            Some(handle) => {
                inner.count_more(handle.name, &bytes, Vec::new())?;
                handle.bytes.end = bytes.end;
            }
            None => self.handle = Some(manager.count(inner, Held::new(bytes, Kind::Pinned))),
        }
        Ok(())
    }
}

impl Inner {
    /// Lets `ring` have, as its buffer `at`, the newest pin of exactly `bytes`; false if there is
    /// none or the kernel will not.
    fn share_part(&self, ring: BorrowedFd<'_>, at: u16, bytes: &Range<usize>) -> bool {
        let parts = self.areas.iter().filter_map(|held| held.part(bytes));
        let Some(&Part { buffer, .. }) = parts.max_by_key(|part| part.number) else {
            return false;
        };
        let table = &self.tables[usize::from(buffer.table)];
        table
            .share(buffer.slot, ring, u32::from(at), true)
            .inspect_err(|error| tracing::debug!(%error, "the ring pins for itself"))
            .is_ok()
    }
}
