//! Memory whose pages are exchanged behind its addresses, as a registration cache has to notice.

use std::io;

use onrush_lock::bare::Private;

named! {
    /// How its pages are exchanged. The ways past libc are those of programs that make system calls
    /// themselves: Go's runtime, rustix, allocators.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Change {
        /// By libc's `mmap` with MAP_FIXED.
        Replaced = "replaced",
        /// By the system call.
        ReplacedPastLibc = "replaced-by-a-system-call",
        /// By libc's `madvise` with MADV_DONTNEED.
        Discarded = "discarded",
        /// By the system call.
        DiscardedPastLibc = "discarded-by-a-system-call",
    }
}

impl Change {
    /// Exchanges all pages of the memory for zeroed ones.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn make(self, memory: &mut Private) -> io::Result<()> {
        let (at, bytes) = (memory.bytes().start, memory.bytes().len());
        let pointer = std::ptr::with_exposed_provenance_mut::<libc::c_void>(at);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let is_done = match self {
            Self::Replaced => {
                // SAFETY: the range is the memory's own, which `&mut` says nobody else refers to;
                // it is mapped afterwards as it was before, with zeroes in it.
                let mapped = unsafe { libc::mmap(pointer, bytes, protection, flags, -1, 0) };
                mapped == pointer
            }
            Self::ReplacedPastLibc => {
                let call = libc::SYS_mmap;
                // SAFETY: as above.
                let mapped = unsafe { libc::syscall(call, at, bytes, protection, flags, -1, 0) };
                usize::try_from(mapped) == Ok(at)
            }
            Self::Discarded => {
                // SAFETY: as above: private memory reads as zeroes afterwards.
                unsafe { libc::madvise(pointer, bytes, libc::MADV_DONTNEED) == 0 }
            }
            Self::DiscardedPastLibc => {
                let (call, advice) = (libc::SYS_madvise, libc::MADV_DONTNEED);
                // SAFETY: as above.
                unsafe { libc::syscall(call, at, bytes, advice) == 0 }
            }
        };
        if is_done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_memory_is_there_and_zeroed() {
        let mut memory = Private::map(3 * 4096).unwrap();
        for change in Change::ALL {
            memory.write(7);
            assert_eq!(memory[4096], 7);
            change.make(&mut memory).unwrap();
            assert!(memory.iter().all(|&byte| byte == 0), "{change}");
        }
    }
}
