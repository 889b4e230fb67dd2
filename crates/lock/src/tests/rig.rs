//! Real sends by way of a cache, and what happens to memory in between.

use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicBool;

use io_uring::{IoUring, cqueue, opcode, types};

use super::*;

/// The planted fault: see `watch`.
pub(crate) static WATCHER_IS_DEAF: AtomicBool = AtomicBool::new(false);

/// A ring that sends to ourselves from registered memory.
pub(super) struct Rig {
    pub(super) cache: Cache,
    pub(super) ring: IoUring,
    from: UdpSocket,
    to: UdpSocket,
}

impl Rig {
    pub(super) fn new(budget: Budget) -> Self {
        let ring = IoUring::new(8).unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        let cache = Cache::new(borrow(&ring), budget).unwrap();
        Self {
            cache,
            ring,
            from,
            to,
        }
    }

    pub(super) fn roomy() -> Self {
        Self::new(Budget {
            keep: Keep::Watched,
            entries_max: 1000,
            bytes_max: 1 << 30,
        })
    }

    /// Sends `bytes` through the cache and returns what arrived.
    pub(super) fn send(&mut self, bytes: Range<usize>) -> Result<Vec<u8>, CacheError> {
        let loan = self.cache.acquire(bytes.clone())?;
        let fd = types::Fd(self.from.as_raw_fd());
        let length = u32::try_from(bytes.len()).unwrap();
        let entry = opcode::SendZc::new(fd, pointer(&bytes), length)
            .buf_index(Some(loan.buffer()))
            .build();
        // SAFETY: the buffer is registered, so its pages outlive the operation; it is waited for
        // below.
        unsafe { self.ring.submission().push(&entry) }.unwrap();
        self.ring.submit_and_wait(1).unwrap();
        loop {
            let Some(done) = self.ring.completion().next() else {
                self.ring.submit_and_wait(1).unwrap();
                continue;
            };
            if !cqueue::notif(done.flags()) {
                assert_eq!(done.result(), i32::try_from(length).unwrap());
            }
            if !cqueue::more(done.flags()) {
                break;
            }
        }
        self.cache.release(loan);
        let mut arrived = vec![0; bytes.len() + 1];
        let count = self.to.recv(&mut arrived).unwrap();
        arrived.truncate(count);
        Ok(arrived)
    }

    /// Why `bytes` would not be kept, now.
    pub(super) fn uncached(&mut self, bytes: Range<usize>) -> Option<Uncached> {
        let loan = self.cache.acquire(bytes).unwrap();
        let uncached = loan.uncached();
        self.cache.release(loan);
        uncached
    }

    pub(super) fn is_hit(&mut self, bytes: Range<usize>) -> bool {
        let before = self.cache.counters().hits;
        assert_eq!(self.uncached(bytes), None);
        self.cache.counters().hits > before
    }
}

pub(super) fn borrow(ring: &IoUring) -> BorrowedFd<'_> {
    // SAFETY: the ring lives as long as the borrow, and with it its descriptor.
    unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }
}

pub(super) fn fill(bytes: &Range<usize>, byte: u8) {
    for address in bytes.clone() {
        let address = ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: only called for memory of the test that is mapped and writable.
        unsafe { address.write_volatile(byte) };
    }
}

pub(super) fn read(bytes: &Range<usize>) -> Vec<u8> {
    let byte = |address| {
        let address = ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: only called for memory of the test that is mapped and readable.
        unsafe { address.read_volatile() }
    };
    bytes.clone().map(byte).collect()
}

/// A call to the kernel past libc, for its effect on the test's own memory.
pub(super) fn call(number: libc::c_long, arguments: [usize; 5]) -> isize {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the calls made here change mappings of the test, to which it holds no references.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, 0) };
    isize::try_from(result).unwrap()
}

pub(super) fn map_fixed(bytes: &Range<usize>) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: replaces memory of the test, to which it holds no references.
    let base = unsafe { libc::mmap(pointer(bytes).cast(), bytes.len(), protection, flags, -1, 0) };
    assert_eq!(base.addr(), bytes.start);
}

/// Writes while a child shares the pages.
pub(super) fn fork_and_write(bytes: &Range<usize>) {
    // SAFETY: the child only waits to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    fill(bytes, b'f');
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
}

pub(super) fn advise_raw(bytes: &Range<usize>, advice: i32) {
    let advice = usize::try_from(advice).unwrap();
    let result = call(libc::SYS_madvise, [bytes.start, bytes.len(), advice, 0, 0]);
    assert_eq!(result, 0);
}
