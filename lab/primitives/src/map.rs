//! Mappings that are measured: fresh memory of a chosen page size, and files.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::slice;

use onrush_lock::memory::{HUGE_PAGE_BYTES, page_bytes};
use rustix::fs::{Advice, fadvise};

/// Private memory of our own, zeroed, not touched yet.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
}

/// A file, mapped to be read.
#[derive(Debug)]
pub struct Mapped {
    mapping: Mapping,
}

/// What its pages are to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pages {
    /// Of the base size, 4 KB on most machines.
    Base,
    /// Huge, as far as the kernel can.
    Huge,
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    /// Maps `bytes` (rounded up to huge pages), aligned to a huge page; nothing is touched.
    pub fn map(bytes: usize, pages: Pages) -> io::Result<Self> {
        let bytes = bytes
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapping = Mapping::map(
            bytes + HUGE_PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
        )?;
        let mapping = mapping.aligned(bytes);
        let advice = match pages {
            Pages::Base => libc::MADV_NOHUGEPAGE,
            Pages::Huge => libc::MADV_HUGEPAGE,
        };
        // A kernel without huge pages refuses, and then has only base pages to give.
        mapping.advise(advice).ok();
        Ok(Self { mapping })
    }

    /// The same of base pages that are shared, as with other processes: the kernel keeps them when
    /// they are [released](Self::release), and a fault finds them as they were.
    pub fn map_shared(bytes: usize) -> io::Result<Self> {
        let bytes = bytes
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|&bytes| bytes > 0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapping = Mapping::map(bytes + HUGE_PAGE_BYTES, access, flags, -1)?.aligned(bytes);
        mapping.advise(libc::MADV_NOHUGEPAGE).ok();
        Ok(Self { mapping })
    }

    /// Lets the kernel fault all pages in, in one call, to be written to (MADV_POPULATE_WRITE,
    /// Linux 5.14; as MAP_POPULATE does when memory is mapped).
    pub fn populate(&mut self) -> io::Result<()> {
        self.mapping.advise(libc::MADV_POPULATE_WRITE)
    }

    /// Touches every page of the first `bytes`, one write each. Says how many.
    pub fn touch(&mut self, bytes: usize) -> usize {
        let page = page_bytes();
        let pages = bytes.min(self.mapping.bytes) / page;
        for index in 0..pages {
            // SAFETY: `index * page` is below the mapping's size, and the mapping is writable.
            let at = unsafe { self.mapping.base.as_ptr().add(index * page) };
            // SAFETY: inside the mapping, which is ours alone (`&mut`).
            unsafe { at.write_volatile(1) };
        }
        pages
    }

    /// Gives every page back: the next touch is a page fault again. Shared ones keep what is in
    /// them.
    pub fn release(&mut self) -> io::Result<()> {
        self.mapping.advise(libc::MADV_DONTNEED)
    }

    /// How much it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    /// Where it begins, aligned to a huge page.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base
    }

    /// How much of it lies on huge pages, in bytes; `None` if the kernel does not tell.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let start = self.mapping.base.addr().get();
        let ours = start..start + self.mapping.bytes;
        Some(huge_bytes_in(&smaps, &ours))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, zeroed or written, lives as long as `self`, and is
        // borrowed.
        unsafe { slice::from_raw_parts(self.mapping.base.as_ptr(), self.mapping.bytes) }
    }

    /// All of it, as words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping is readable, zeroed or written, aligned to a page, lives as long as
        // `self`, and is borrowed; a huge page is a whole number of words.
        unsafe { slice::from_raw_parts(self.mapping.base.as_ptr().cast(), self.mapping.bytes / 8) }
    }

    /// All of it, as words to write.
    #[must_use]
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, writable, and borrowed by nobody else.
        unsafe {
            slice::from_raw_parts_mut(self.mapping.base.as_ptr().cast(), self.mapping.bytes / 8)
        }
    }
}

impl Mapped {
    /// Maps the first `bytes` of `file`, shared, to be read. The file must not become shorter
    /// meanwhile, nor be written by anybody.
    pub fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::map(bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok(Self { mapping })
    }

    /// Reads the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If that is beyond the mapping.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize) -> u8 {
        assert!(
            offset < self.mapping.bytes,
            "{offset} is beyond the mapping"
        );
        // SAFETY: inside the mapping, as was just checked.
        let at = unsafe { self.mapping.base.as_ptr().add(offset) };
        // SAFETY: the page is part of a file that is as long (the caller of `map` sees to that).
        unsafe { at.read_volatile() }
    }

    /// Its bytes. Who reads a page that the file has no more of gets SIGBUS: see [`Self::map`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, lives as long as `self`, and is borrowed; the file is
        // as long and nobody writes it (the caller of `map` sees to that).
        unsafe { slice::from_raw_parts(self.mapping.base.as_ptr(), self.mapping.bytes) }
    }

    /// Says that no page will be read because its neighbour was: the kernel then reads none ahead.
    pub fn expect_no_order(&self) -> io::Result<()> {
        self.mapping.advise(libc::MADV_RANDOM)
    }

    /// Lets the kernel fault all pages in, in one call, as it does for itself when it takes
    /// references to pages that a program has not touched (MADV_POPULATE_READ, Linux 5.14).
    pub fn populate(&self) -> io::Result<()> {
        self.mapping.advise(libc::MADV_POPULATE_READ)
    }

    /// Which of its pages are in the file cache, asked without touching them.
    pub fn resident(&self) -> io::Result<Vec<bool>> {
        let mut found = vec![0_u8; self.mapping.bytes.div_ceil(page_bytes())];
        let (at, bytes) = (self.mapping.base.as_ptr().cast(), self.mapping.bytes);
        // SAFETY: the range is the mapping; `found` has a byte for each of its pages.
        match unsafe { libc::mincore(at, bytes, found.as_mut_ptr()) } {
            0 => Ok(found.iter().map(|page| page & 1 == 1).collect()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Mapping {
    fn map(bytes: usize, protection: i32, flags: i32, file: i32) -> io::Result<Self> {
        // SAFETY: no address is demanded, so nothing that exists is replaced; wrong arguments are
        // errors.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("mmap gives no page at 0 unless asked");
        Ok(Self { base, bytes })
    }

    /// The part of it that begins at a huge page; the rest is unmapped.
    fn aligned(self, bytes: usize) -> Self {
        let start = self.base.addr().get();
        let before = start.next_multiple_of(HUGE_PAGE_BYTES) - start;
        // SAFETY: a huge page more than `bytes` was mapped, so `before + bytes` is inside.
        let base = unsafe { self.base.add(before) };
        let (head, whole) = (self.base, self.bytes);
        std::mem::forget(self);
        // SAFETY: as above; what follows the part is inside the mapping or empty.
        let tail = unsafe { base.add(bytes) };
        for (at, length) in [(head, before), (tail, whole - before - bytes)] {
            if length > 0 {
                drop(Self {
                    base: at,
                    bytes: length,
                });
            }
        }
        Self { base, bytes }
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is the mapping. MADV_DONTNEED on private memory makes it zero, which
        // every reference that could exist is excluded from by `&mut` at the one caller.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped and not given away; nobody has a reference to it any
        // more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: a mapping is owned by its value; nothing about it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference it is only read.
unsafe impl Sync for Mapping {}

/// How much of `ours` lies on huge pages, by proc_pid_smaps(5). The kernel may have made one
/// mapping of it and what lies beside it: of that no more counts than is ours.
fn huge_bytes_in(smaps: &str, ours: &Range<usize>) -> u64 {
    let (mut our_bytes, mut huge_bytes) = (0, 0);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let address = |hex: &str| {
                let address = usize::from_str_radix(hex, 16).unwrap_or(0);
                address.clamp(ours.start, ours.end)
            };
            our_bytes = address(end).saturating_sub(address(start)) as u64;
        } else if let Some(kib) = line.strip_prefix("AnonHugePages:") {
            let kib = kib.trim().trim_end_matches(" kB").parse::<u64>();
            huge_bytes += our_bytes.min(kib.unwrap_or(0) << 10);
        }
    }
    huge_bytes
}

/// Page faults of the calling thread so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Faults {
    /// Served without a disk.
    pub minor: u64,
    /// Served from a disk.
    pub major: u64,
}

impl Faults {
    /// Those of the calling thread.
    #[must_use]
    pub fn of_thread() -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is valid for a rusage to be written to; RUSAGE_THREAD exists since Linux
        // 2.6.26.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        // SAFETY: zeroed integers are a rusage, whether it was written or not.
        let usage = unsafe { usage.assume_init() };
        Self {
            minor: u64::try_from(usage.ru_minflt).unwrap_or(0),
            major: u64::try_from(usage.ru_majflt).unwrap_or(0),
        }
    }
}

/// Makes the file cache forget a file. What is dirty must have been synced before, or it stays.
pub fn forget(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_faults_once_until_it_is_released() {
        let mut memory = Memory::map(HUGE_PAGE_BYTES, Pages::Base).unwrap();
        assert_eq!(memory.base().addr().get() % HUGE_PAGE_BYTES, 0);
        let pages = (HUGE_PAGE_BYTES / page_bytes()) as u64;
        let touch = |memory: &mut Memory| {
            let before = Faults::of_thread().minor;
            memory.touch(HUGE_PAGE_BYTES);
            Faults::of_thread().minor - before
        };
        assert!(touch(&mut memory) >= pages);
        // Where another test forks this process, each page that is written to faults once more.
        assert!((0..20).any(|_| touch(&mut memory) < pages / 2));
        memory.release().unwrap();
        assert!(memory.words().iter().all(|&word| word == 0));
    }

    #[test]
    fn huge_pages_of_a_mapping_with_a_neighbour_are_counted() {
        // One that begins below ours and has three huge pages, and one that is another's.
        let smaps = "400000-c00000 rw-p 00000000 00:00 0 \n\
                     AnonHugePages:      6144 kB\nVmFlags: rd wr mr mw me ac hg \n\
                     c00000-e00000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\n";
        let huge_pages = |start: usize, end: usize| {
            let bytes = huge_bytes_in(smaps, &(start..end));
            bytes / HUGE_PAGE_BYTES as u64
        };
        assert_eq!(huge_pages(0x80_0000, 0xc0_0000), 2);
        assert_eq!(huge_pages(0x40_0000, 0xc0_0000), 3);
        assert_eq!(huge_pages(0x80_0000, 0xe0_0000), 3);
        assert_eq!(huge_pages(0xe0_0000, 0x100_0000), 0);
    }

    #[test]
    fn shared_pages_fault_again_and_keep_what_is_in_them() {
        let mut memory = Memory::map_shared(HUGE_PAGE_BYTES).unwrap();
        let pages = (HUGE_PAGE_BYTES / page_bytes()) as u64;
        memory.touch(HUGE_PAGE_BYTES);
        memory.release().unwrap();
        let before = Faults::of_thread().minor;
        memory.touch(HUGE_PAGE_BYTES);
        assert!(Faults::of_thread().minor - before >= pages);
        memory.words_mut()[0] = 9;
        memory.release().unwrap();
        assert_eq!(memory.words()[0], 9);
    }

    #[test]
    fn populated_memory_faults_no_more() {
        let mut memory = Memory::map(HUGE_PAGE_BYTES, Pages::Base).unwrap();
        memory.populate().unwrap();
        let before = Faults::of_thread().minor;
        let pages = memory.touch(HUGE_PAGE_BYTES) as u64;
        assert!(Faults::of_thread().minor - before < pages / 2);
    }

    #[test]
    fn what_was_read_is_in_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, vec![7; 4 * page_bytes()]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let mapped = Mapped::map(&file, 4 * page_bytes()).unwrap();
        assert_eq!(mapped.read(page_bytes()), 7);
        let resident = mapped.resident().unwrap();
        assert_eq!(resident.len(), 4);
        assert!(resident[1]);
    }

    #[test]
    fn what_is_populated_faults_no_more() {
        let pages = 1024;
        let file = onrush_lock::memfd(pages * page_bytes()).unwrap();
        let faults = |is_populated: bool| {
            let mapped = Mapped::map(&file, pages * page_bytes()).unwrap();
            if is_populated {
                mapped.populate().unwrap();
            }
            let before = Faults::of_thread().minor;
            let sum: u8 = (0..pages)
                .map(|page| mapped.read(page * page_bytes()))
                .sum();
            assert_eq!(sum, 0);
            Faults::of_thread().minor - before
        };
        // The kernel faults sixteen pages in at once if it has them; some faults are the test's
        // own.
        let populated = faults(true);
        let touched = faults(false);
        assert!(populated < 16 && touched >= 32, "{populated}, {touched}");
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn nothing_beyond_a_mapping_is_read() {
        let file = File::open("/proc/self/exe").unwrap();
        let _byte = Mapped::map(&file, 1).unwrap().read(1);
    }
}
