//! A process that counts how much of a processor is left to it: it makes a cheap system call in a
//! loop, as the metering process of the paper on Cue did.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process;
use crate::switch;

/// The process. It ends when this is dropped.
#[derive(Debug)]
pub struct Meter {
    child: libc::pid_t,
    calls: Shared,
}

/// A number that this process and its child share.
#[derive(Debug)]
struct Shared(NonNull<AtomicU64>);

// SAFETY: what is shared is an atomic number, for threads as for processes.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Calls between two looks of others at the count.
const CALLS_A_ROUND: u64 = 64;

impl Meter {
    /// Starts it on processor `core`.
    ///
    /// # Errors
    ///
    /// If there is no process or memory to be had, or no such processor.
    pub fn start(core: usize) -> io::Result<Self> {
        let calls = Shared::new()?;
        let count = || {
            // Bare system calls only: the child of a program with threads may do no more.
            if onrush_sys::thread::pin_to(core).is_err() {
                return;
            }
            loop {
                for _ in 0..CALLS_A_ROUND {
                    // SAFETY: takes nothing.
                    std::hint::black_box(unsafe { libc::getppid() });
                }
                calls.number().fetch_add(CALLS_A_ROUND, Ordering::Relaxed);
            }
        };
        let child = switch::fork(count)?;
        Ok(Self { child, calls })
    }

    /// Calls that it has made so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.number().load(Ordering::Relaxed)
    }

    /// Its number.
    #[must_use]
    pub fn process(&self) -> u32 {
        process::pid(self.child)
            .as_raw_nonzero()
            .get()
            .unsigned_abs()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        switch::end(self.child);
    }
}

impl Shared {
    fn new() -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that there is.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<AtomicU64>(),
                protection,
                flags,
                -1,
                0,
            )
        };
        match NonNull::new(memory.cast()) {
            Some(number) if memory != libc::MAP_FAILED => Ok(Self(number)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page of zeroes, aligned, and stays until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference beyond `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_counts_until_it_is_dropped() {
        let core = onrush_sys::thread::allowed_cores()[0];
        let meter = Meter::start(core).unwrap();
        let began = Instant::now();
        while meter.calls() < 10 * CALLS_A_ROUND {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "it does not count"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let process = meter.process();
        drop(meter);
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
    }
}
