//! The calls that the manager makes, by themselves: what experiments compare it with.
//!
//! Nothing here counts or undoes anything. Programs take the [`Manager`](super::Manager).

use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use io_uring::IoUring;

use super::error::LockError;
use super::intervals::Residency;
use super::resident::mlock2;
use super::table::Table;
use super::{Kind, frames, pointer};
use crate::memory::page_bytes;

/// Private memory on pages of the base size, zeroed and untouched.
///
/// ```
/// use onrush_lock::bare::Private;
///
/// # fn main() -> Result<(), std::io::Error> {
/// let mut memory = Private::map(10_000)?;
/// memory.write(7);
/// assert_eq!(memory.bytes().len(), 12_288); // With pages of 4 KiB.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Private {
    bytes: Range<usize>,
}

impl Private {
    /// Maps `bytes_total`, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn map(bytes_total: usize) -> io::Result<Self> {
        let bytes_total = bytes_total.next_multiple_of(page_bytes());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private anonymous mapping touches nothing of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes_total, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range was just mapped; the advice changes no contents. A kernel without huge
        // pages refuses it, and needs it not.
        unsafe { libc::madvise(base, bytes_total, libc::MADV_NOHUGEPAGE) };
        let start = base.expose_provenance();
        Ok(Self {
            bytes: start..start + bytes_total,
        })
    }

    /// Its addresses.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// Writes to every page.
    pub fn write(&mut self, byte: u8) {
        for address in self.bytes().step_by(page_bytes()) {
            // SAFETY: the address lies in our own mapping, and `&mut self` is the only way to its
            // bytes.
            unsafe { ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(byte) };
        }
    }

    /// Gives every other page back to the system: memory in holes, for compaction to work on.
    pub fn perforate(&mut self) {
        for address in self.bytes().step_by(2 * page_bytes()) {
            let page = address..address + page_bytes();
            // SAFETY: the page is our own, and what it holds is not needed.
            unsafe { libc::madvise(pointer(&page).cast(), page.len(), libc::MADV_DONTNEED) };
        }
    }

    /// Writes to every page while a forked child shares them.
    ///
    /// # Errors
    ///
    /// If there can be no child.
    pub fn write_beside_a_child(&mut self, byte: u8) -> io::Result<()> {
        // SAFETY: the child only waits for its end.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        if child == 0 {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        self.write(byte);
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above; its status is not wanted.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        Ok(())
    }
}

impl Deref for Private {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = ptr::with_exposed_provenance(self.bytes.start);
        // SAFETY: our own mapping, readable as a whole, zeroed by the kernel; only `&mut self`
        // writes to it, and it lives as long as `self`.
        unsafe { std::slice::from_raw_parts(start, self.bytes.len()) }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no references exist.
        unsafe { libc::munmap(pointer(&self.bytes).cast(), self.bytes.len()) };
    }
}

/// A ring with a table of buffers and nothing else.
///
/// ```
/// use onrush_lock::bare::{BareRing, Private};
///
/// # fn main() -> Result<(), std::io::Error> {
/// let (ring, memory) = (BareRing::open()?, Private::map(4096)?);
/// ring.register(&memory.bytes())?; // Nobody counts this.
/// ring.unregister()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct BareRing(Table);

impl BareRing {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open() -> io::Result<Self> {
        let table = Table::on_own_ring()?;
        table
            .map(Self)
            .ok_or_else(|| io::Error::other(LockError::Tables))
    }

    /// Registers memory as the first buffer, in place of what is there.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn register(&self, bytes: &Range<usize>) -> io::Result<()> {
        self.0.update(0, bytes)
    }

    /// Ends that registration.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn unregister(&self) -> io::Result<()> {
        self.0.update(0, &(0..0))
    }
}

/// A ring without a table, for a [`Cache`](super::Cache) to make one.
///
/// ```
/// use onrush_lock::bare;
///
/// # fn main() -> Result<(), std::io::Error> {
/// let ring = bare::ring()?;
/// println!("{ring:?} has no buffers yet");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What the system says.
pub fn ring() -> io::Result<OwnedFd> {
    let ring = IoUring::new(1)?;
    // SAFETY: the ring lives to the end of this function, and with it its descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    fd.try_clone_to_owned()
}

/// `mlock`.
///
/// ```
/// use onrush_lock::bare::{self, Private};
///
/// # fn main() -> Result<(), std::io::Error> {
/// let memory = Private::map(8192)?;
/// bare::mlock(&memory.bytes())?;
/// bare::mlock(&memory.bytes())?;
/// bare::munlock(&memory.bytes())?; // It does not nest: this ends both.
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What the system says.
pub fn mlock(bytes: &Range<usize>) -> io::Result<()> {
    mlock2(bytes, Residency::Resident)
}

/// `munlock`.
///
/// ```
/// use onrush_lock::bare::{self, Private};
///
/// # fn main() -> Result<(), std::io::Error> {
/// let memory = Private::map(8192)?;
/// bare::munlock(&memory.bytes())?; // What is not locked is no error.
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What the system says.
pub fn munlock(bytes: &Range<usize>) -> io::Result<()> {
    // SAFETY: munlock takes any range, changes no contents, and reports what is not mapped.
    checked(unsafe { libc::munlock(pointer(bytes).cast(), bytes.len()) })
}

/// SHM_LOCK of a whole SysV segment.
///
/// ```
/// use onrush_lock::{Segment, bare};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Segment::sysv(8192)?;
/// // In memory from now on, for everybody.
/// bare::shm_lock(segment.sysv_id().expect("it is a SysV segment"))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What the system says.
pub fn shm_lock(id: i32) -> io::Result<()> {
    // SAFETY: SHM_LOCK takes no argument.
    checked(unsafe { libc::shmctl(id, libc::SHM_LOCK, ptr::null_mut()) })
}

/// Asks the kernel to reclaim memory now (MADV_PAGEOUT).
///
/// ```
/// use onrush_lock::bare::{self, Private};
///
/// # fn main() -> Result<(), std::io::Error> {
/// let mut memory = Private::map(8192)?;
/// memory.write(7);
/// bare::page_out(&memory.bytes())?; // To swap, if there is any; the contents stay.
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What the system says.
pub fn page_out(bytes: &Range<usize>) -> io::Result<()> {
    // SAFETY: reclaim changes no contents; what is not mapped is an error.
    checked(unsafe { libc::madvise(pointer(bytes).cast(), bytes.len(), libc::MADV_PAGEOUT) })
}

/// Writes to no page, and reads the frame of each, locked or not.
///
/// ```
/// use onrush_lock::bare::{self, Private};
///
/// # fn main() -> Result<(), std::io::Error> {
/// let mut memory = Private::map(8192)?;
/// memory.write(7);
/// if let Ok(frames) = bare::frames(&memory.bytes()) {
///     assert_eq!(frames.len(), 2);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`LockError::FramesHidden`] without CAP_SYS_ADMIN.
pub fn frames(bytes: &Range<usize>) -> Result<Vec<u64>, LockError> {
    frames::read(bytes, Kind::Resident)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
