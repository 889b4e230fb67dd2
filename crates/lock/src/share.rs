//! Rings that work with memory the manager has pinned.
//!
//! A ring needs registered buffers of its own to send from. A second registration pins and accounts
//! everything once more, for each ring; Linux 6.13 lets a ring have a part of another's table
//! instead, which costs nothing and counts once.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use io_uring::IoUring;

use super::bare::Private;
use super::held::{Held, Inner, parts};
use super::{Kind, LockError, LockedArea, Manager, error, table};

impl Manager {
    /// Gives `ring`, which must have no buffers, `bytes` as its buffers 0, 1, ..., the first ones
    /// [`BUFFER_BYTES_MAX`](super::BUFFER_BYTES_MAX) long.
    ///
    /// If exactly these bytes are [`Kind::Pinned`] already and the kernel can
    /// ([`rings_share_pins`]), the ring shares that pin, of several the newest, and nothing more is
    /// accounted; else it registers them for itself. So memory that was mapped anew is locked anew
    /// first, or the ring has what was there before. Either way a handle counts it. The ring has
    /// the memory until it is closed: let go of the handle then.
    ///
    /// ```
    /// use std::os::fd::{AsRawFd, BorrowedFd};
    ///
    /// use io_uring::IoUring;
    /// use onrush_lock::{Kind, Manager, pages_around};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memory = vec![7u8; 64 << 10];
    /// let manager = Manager::of_process();
    /// let pinned = manager.lock(pages_around(&memory), Kind::Pinned)?;
    /// let ring = IoUring::new(8)?;
    /// // SAFETY: the ring lives to the end of this example.
    /// let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    /// let theirs = manager.register(fd, pinned.bytes())?;
    /// assert_eq!(manager.areas()[0].counts.pinned, 2);
    /// // Send from `memory` with buf_index(0). Then:
    /// drop(ring);
    /// drop(theirs);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Manager::lock`] for [`Kind::Pinned`] memory; [`LockError::Os`] if the ring has
    /// buffers.
    pub fn register(
        &'static self,
        ring: BorrowedFd<'_>,
        bytes: Range<usize>,
    ) -> Result<LockedArea, LockError> {
        error::check(&bytes)?;
        let mut inner = self.inner();
        inner.areas.check_room()?;
        if !inner.share(ring, &bytes) {
            table::register_all(ring, parts(&bytes))
                .map_err(|source| error::diagnose(&bytes, Kind::Pinned, source))?;
        }
        Ok(self.count(&mut inner, Held::new(bytes, Kind::Pinned)))
    }
}

/// Whether a ring can share the pins of this process's manager. Tried once, with a page.
///
/// ```
/// use onrush_lock::rings_share_pins;
///
/// let rings = 4;
/// let pins = if rings_share_pins() { 1 } else { rings };
/// println!("64 MiB for {rings} rings count as {} MiB", 64 * pins);
/// ```
pub fn rings_share_pins() -> bool {
    static SHARE: OnceLock<bool> = OnceLock::new();
    *SHARE.get_or_init(|| {
        let (Ok(page), Ok(ring)) = (Private::map(1), IoUring::new(1)) else {
            return false;
        };
        let manager = Manager::of_process();
        let Ok(area) = manager.lock(page.bytes(), Kind::Pinned) else {
            return false;
        };
        // SAFETY: the ring lives to the end of this function, and with it its descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let shared = manager.inner().share(fd, &area.bytes());
        // Now: closed rings are taken apart a moment later, and the page would count until then.
        shared && table::unregister_all(fd).is_ok()
    })
}

impl Inner {
    /// Lets `ring` have the newest pin of exactly `bytes`; false if there is none or the kernel
    /// will not.
    fn share(&self, ring: BorrowedFd<'_>, bytes: &Range<usize>) -> bool {
        let pinned = self.areas.iter().filter(|held| held.first.is_some());
        let of_bytes = pinned.filter(|held| held.bytes == *bytes);
        let Some(held) = of_bytes.max_by_key(|held| held.number()) else {
            return false;
        };
        if !held.parts().map(|part| part.bytes.clone()).eq(parts(bytes)) {
            return false; // It has grown bit by bit.
        }
        let shared = held.parts().zip(0..).try_for_each(|(part, at)| {
            let table = &self.tables[usize::from(part.buffer.table)];
            let shared = table.share(part.buffer.slot, ring, at, at > 0);
            if shared.is_err() && at > 0 {
                // The first ones would be in the way of a registration of all. Not what the ring
                // had before.
                drop(table::unregister_all(ring));
            }
            shared
        });
        shared
            .inspect_err(|error| tracing::debug!(%error, "the ring pins for itself"))
            .is_ok()
    }
}
