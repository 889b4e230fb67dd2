//! Locks by the kernel's own account of them, and what the tests of that share.

mod cache;
mod frames;
mod lent;
mod manager;
mod rig;
mod sealed;
mod share;
mod shared;
mod stale;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::memory::{CAP_IPC_LOCK, has_capability};

pub(super) use rig::WATCHER_IS_DEAF;
pub(super) use sealed::SEALS_ARE_FORGOTTEN;

const PAGE: usize = 4096;
const CAP_SYS_ADMIN: u32 = 21;

/// Whether the kernel shows frame numbers to this process.
fn has_frames() -> bool {
    has_capability(CAP_SYS_ADMIN)
}

/// Where the next mapping of a test goes, far from what the kernel chooses. No two tests ever have
/// the same addresses: the watcher may hear of one's unmapping when another's mapping has taken the
/// place, and rightly forgets that.
static NEXT_ADDRESS: AtomicUsize = AtomicUsize::new(0x1000_0000_0000);

/// A mapping that goes away at the end of the test.
struct Memory(Range<usize>);

impl Memory {
    fn anonymous(pages: usize) -> Self {
        Self::map(pages, libc::PROT_READ | libc::PROT_WRITE, None)
    }

    fn map(pages: usize, protection: libc::c_int, file: Option<&File>) -> Self {
        let bytes = pages * PAGE;
        let flags = match file {
            Some(_) => libc::MAP_SHARED,
            None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        };
        let flags = flags | libc::MAP_FIXED_NOREPLACE;
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        // The page between two keeps the kernel from joining them.
        let at = NEXT_ADDRESS.fetch_add(bytes + PAGE, Ordering::Relaxed);
        let at = ptr::without_provenance_mut(at);
        // SAFETY: the kernel refuses an address at which something is mapped, so that a new mapping
        // touches nothing of ours.
        let base = unsafe { libc::mmap(at, bytes, protection, flags, fd, 0) };
        assert_eq!(base, at, "{}", io::Error::last_os_error());
        // Huge pages would make neighbours share their fate.
        // SAFETY: the range was just mapped; the advice changes no contents.
        unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
        let start = base.expose_provenance();
        Self(start..start + bytes)
    }

    fn pages(&self, pages: Range<usize>) -> Range<usize> {
        self.0.start + pages.start * PAGE..self.0.start + pages.end * PAGE
    }

    fn all(&self) -> Range<usize> {
        self.0.clone()
    }

    fn unmap(&self, pages: Range<usize>) {
        let part = self.pages(pages);
        // SAFETY: a part of our own mapping, to which there are no references.
        let result = unsafe { libc::munmap(pointer(&part).cast(), part.len()) };
        assert_eq!(result, 0);
    }

    fn write(&self, page: usize, byte: u8) {
        let address = pointer(&self.pages(page..page + 1));
        // SAFETY: the page is mapped, writable, and known to this test only.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(address.addr()).write_volatile(byte) };
    }

    /// Which pages the kernel says are locked.
    fn locked(&self) -> Vec<bool> {
        locked_pages(&self.0)
    }

    /// Which pages the kernel says are locked only once they are touched.
    fn on_fault(&self) -> Vec<bool> {
        flagged_pages(&self.0, "lf")
    }

    fn locked_count(&self) -> usize {
        self.locked().into_iter().filter(|&l| l).count()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which there are no references.
        unsafe { libc::munmap(pointer(&self.0).cast(), self.0.len()) };
    }
}

/// Which pages the kernel says are locked (VM_LOCKED).
fn locked_pages(bytes: &Range<usize>) -> Vec<bool> {
    flagged_pages(bytes, "lo")
}

/// The pages whose mapping has a flag (proc_pid_smaps(5), VmFlags).
fn flagged_pages(bytes: &Range<usize>, flag: &str) -> Vec<bool> {
    let mut flagged = vec![false; bytes.len() / PAGE];
    let mut pages = 0..0;
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = flags.split_ascii_whitespace().any(|f| f == flag);
            flagged[pages.clone()].fill(has);
        } else if let Some((start, end)) = line.split(' ').next().unwrap().split_once('-') {
            let page = |hex| {
                let address = usize::from_str_radix(hex, 16).unwrap_or(0);
                address.clamp(bytes.start, bytes.end) / PAGE - bytes.start / PAGE
            };
            pages = page(start)..page(end);
        }
    }
    flagged
}

fn manager() -> &'static Manager {
    Manager::of_process()
}

/// Runs the rest of the test that asks in a process of its own: what is accounted is accounted to a
/// process. True in that process.
fn alone() -> bool {
    alone_as(|_| ())
}

/// The same, as an account that may do nothing special.
fn alone_without_rights() -> bool {
    alone_as(|command| {
        if has_capability(CAP_SYS_ADMIN) {
            // What an account has pinned is counted for all its processes together: one for each
            // test.
            let account = 60_000 + test_name().bytes().map(u32::from).sum::<u32>() % 5000;
            command.uid(account).gid(account);
        }
    })
}

fn alone_as(account: impl FnOnce(&mut Command)) -> bool {
    const MARK: &str = "ONRUSH_TEST_ALONE";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let name = test_name();
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", &name, "--nocapture"])
        .env(MARK, "1");
    account(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{name} was not run: {text}");
    false
}

/// The harness names a test's thread after it.
fn test_name() -> String {
    let name = std::thread::current().name().map(str::to_owned);
    name.expect("a test has a thread of its own")
}

/// Runs `body` in a forked child and returns its exit code; 101 if it panicked.
fn forked(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` and leaves by `_exit`; glibc lets it allocate.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: leaves without running what belongs to the parent.
        unsafe { libc::_exit(result.unwrap_or(101)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child and writes to `status`.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WEXITSTATUS(status)
}

/// Lowers the soft RLIMIT_MEMLOCK of this process.
fn set_memlock(bytes: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    assert!(bytes <= limit.rlim_max);
    limit.rlim_cur = bytes;
    // SAFETY: `limit` is a valid rlimit to read.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(result, 0);
}

/// The value of a line of `/proc/self/status`, in KiB.
fn status_kib(field: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with(field)).unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Numbers below a limit, the same for the same seed.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |limit| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1442);
        usize::try_from(state >> 33).unwrap() % limit
    }
}
