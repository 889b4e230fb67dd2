//! Waking a thread that sleeps in its data path.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// An eventfd: written by whoever has work for a thread, waited for by the thread.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// Those of eventfd(2): EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Wakes the thread, or lets its next sleep end at once. May be called from any thread.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: the eight bytes of `one` are readable. A full counter (EAGAIN) is awake already.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Forgets the wakes so far.
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: the eight bytes of `count` are writable. EAGAIN means there was nothing to
        // forget.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
