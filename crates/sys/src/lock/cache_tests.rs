//! The cache by what it is for: real sends, of what the memory holds now.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicBool;

use io_uring::{IoUring, cqueue, opcode, types};

use super::tests::{Memory, PAGE, alone, flagged_pages, forked, status_kib};
use super::*;

/// The planted fault: see [`super::watch`].
pub(super) static WATCHER_IS_DEAF: AtomicBool = AtomicBool::new(false);

/// A ring that sends to ourselves from registered memory.
pub(super) struct Rig {
    pub(super) cache: Cache,
    ring: IoUring,
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
        // SAFETY: the buffer is registered, so its pages outlive the operation; it is waited for below.
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

fn borrow(ring: &IoUring) -> BorrowedFd<'_> {
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

fn advise_raw(bytes: &Range<usize>, advice: i32) {
    let advice = usize::try_from(advice).unwrap();
    let result = call(libc::SYS_madvise, [bytes.start, bytes.len(), advice, 0, 0]);
    assert_eq!(result, 0);
}

/// What can happen to private memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Event {
    Munmap,
    RawMunmap,
    MapFixed,
    RawMapFixed,
    MremapAway,
    MremapDontUnmap,
    MremapOver,
    DontNeed,
    RawDontNeed,
    DontNeedLocked,
    Free,
    ProtectAndBack,
    ForkAndWrite,
    PageOut,
}

const EVENTS: [Event; 14] = [
    Event::Munmap,
    Event::RawMunmap,
    Event::MapFixed,
    Event::RawMapFixed,
    Event::MremapAway,
    Event::MremapDontUnmap,
    Event::MremapOver,
    Event::DontNeed,
    Event::RawDontNeed,
    Event::DontNeedLocked,
    Event::Free,
    Event::ProtectAndBack,
    Event::ForkAndWrite,
    Event::PageOut,
];

impl Event {
    /// Makes it happen; false if there is no memory afterwards.
    fn happen(self, bytes: &Range<usize>) -> bool {
        let (at, length) = (pointer(bytes).cast(), bytes.len());
        match self {
            Self::Munmap => {
                // SAFETY: memory of the test, to which it holds no references.
                assert_eq!(unsafe { libc::munmap(at, length) }, 0);
            }
            Self::RawMunmap => {
                let result = call(libc::SYS_munmap, [bytes.start, length, 0, 0, 0]);
                assert_eq!(result, 0);
            }
            Self::MapFixed => map_fixed(bytes),
            Self::RawMapFixed => {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let flags = usize::try_from(flags).unwrap();
                let result = call(libc::SYS_mmap, [bytes.start, length, 3, flags, usize::MAX]);
                assert_eq!(result.unsigned_abs(), bytes.start);
            }
            Self::MremapAway | Self::MremapDontUnmap => {
                let elsewhere = Memory::anonymous(length / PAGE);
                let mut flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                if self == Self::MremapDontUnmap {
                    flags |= libc::MREMAP_DONTUNMAP;
                }
                // SAFETY: both ranges are the test's own, and it holds no references to them.
                let moved =
                    unsafe { libc::mremap(at, length, length, flags, pointer(&elsewhere.all())) };
                assert_eq!(moved.addr(), elsewhere.all().start);
            }
            Self::MremapOver => {
                let other = Memory::anonymous(length / PAGE);
                fill(&other.all(), b'm');
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                let from = pointer(&other.all()).cast();
                std::mem::forget(other);
                // SAFETY: both ranges are the test's own, and it holds no references to them.
                let moved = unsafe { libc::mremap(from, length, length, flags, at) };
                assert_eq!(moved.addr(), bytes.start);
            }
            Self::DontNeed => {
                // SAFETY: memory of the test, to which it holds no references.
                assert_eq!(unsafe { libc::madvise(at, length, libc::MADV_DONTNEED) }, 0);
            }
            Self::RawDontNeed => advise_raw(bytes, libc::MADV_DONTNEED),
            Self::DontNeedLocked => advise_raw(bytes, 24),
            Self::Free => advise_raw(bytes, libc::MADV_FREE),
            Self::PageOut => advise_raw(bytes, libc::MADV_PAGEOUT),
            Self::ProtectAndBack => {
                for protection in [0, 3] {
                    let result = call(libc::SYS_mprotect, [bytes.start, length, protection, 0, 0]);
                    assert_eq!(result, 0);
                }
            }
            Self::ForkAndWrite => fork_and_write(bytes),
        }
        !matches!(self, Self::Munmap | Self::RawMunmap | Self::MremapAway)
    }

    /// Whether the ring's frames are no longer the memory's afterwards.
    fn makes_stale(self) -> bool {
        use Event::{ForkAndWrite, Free, PageOut, ProtectAndBack};
        // MADV_FREE only allows the kernel to take the pages, and a write takes that back.
        !matches!(self, Free | ProtectAndBack | ForkAndWrite | PageOut)
    }
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

/// Caches a range, lets `event` happen to a part of it, and sends. `None` if all sends were right.
fn wrong_send(event: Event, part: Range<usize>) -> Option<String> {
    let mut rig = Rig::roomy();
    let memory = Memory::anonymous(4);
    fill(&memory.all(), b'o');
    assert_eq!(rig.send(memory.all()).unwrap(), read(&memory.all()));
    assert!(rig.is_hit(memory.all()), "it is cached");
    let is_mapped = event.happen(&memory.pages(part));
    for byte in [None, Some(b'n')] {
        if let (Some(byte), true) = (byte, is_mapped) {
            fill(&memory.all(), byte);
        }
        match (rig.send(memory.all()), is_mapped) {
            (Ok(sent), true) if sent == read(&memory.all()) => {}
            (Err(CacheError::Lock(_)), false) => {}
            (Ok(sent), _) => return Some(format!("{event:?}, then {byte:?}: sent {}", sent[0])),
            (Err(error), _) => return Some(format!("{event:?}, then {byte:?}: {error}")),
        }
    }
    None
}

#[test]
fn after_every_event_the_new_bytes_are_sent_or_none() {
    if !alone(
        "cache_tests::after_every_event_the_new_bytes_are_sent_or_none",
        false,
    ) {
        return;
    }
    for event in EVENTS {
        for part in [0..4, 0..1, 3..4, 1..3] {
            assert_eq!(wrong_send(event, part.clone()), None, "{part:?}");
        }
    }
}

#[test]
fn it_works_without_rights() {
    if alone("cache_tests::it_works_without_rights", true) {
        for event in EVENTS {
            assert_eq!(wrong_send(event, 0..4), None);
        }
    }
}

#[test]
fn a_deaf_watcher_is_noticed_after_every_event_that_matters() {
    const NAME: &str = "cache_tests::a_deaf_watcher_is_noticed_after_every_event_that_matters";
    if !alone(NAME, false) {
        return;
    }
    WATCHER_IS_DEAF.store(true, std::sync::atomic::Ordering::Relaxed);
    for event in EVENTS {
        let found = wrong_send(event, 0..4);
        assert_eq!(found.is_some(), event.makes_stale(), "{event:?}: {found:?}");
    }
}

#[test]
fn random_sequences_of_events_and_sends_never_send_the_old() {
    if !alone(
        "cache_tests::random_sequences_of_events_and_sends_never_send_the_old",
        false,
    ) {
        return;
    }
    for seed in 1..=6 {
        wander(seed, 500);
    }
}

fn wander(seed: u64, steps: usize) {
    const PAGES: usize = 24;
    let mut random = seed;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1442);
        usize::try_from(random >> 33).unwrap() % limit
    };
    let mut rig = Rig::new(Budget {
        keep: Keep::Watched,
        entries_max: 6,
        bytes_max: 16 * PAGE,
    });
    let memory = Memory::anonymous(PAGES);
    let mut mapped = [true; PAGES];
    // Even seeds leave the discards out, after which nothing is kept for a while.
    let events = if seed.is_multiple_of(2) {
        &EVENTS[..7]
    } else {
        &EVENTS[..]
    };
    for step in 0..steps {
        let first = below(PAGES);
        let pages = first..(first + 1 + below(6)).min(PAGES);
        let is_whole = mapped[pages.clone()].iter().all(|m| *m);
        let bytes = memory.pages(pages.clone());
        match below(8) {
            0 if is_whole => {
                let event = events[below(events.len())];
                // The kernel moves only what is one mapping.
                let one = matches!(event, Event::MremapAway | Event::MremapDontUnmap);
                let end = if one { first + 1 } else { pages.end };
                let is_mapped = event.happen(&memory.pages(first..end));
                mapped[first..end].fill(is_mapped);
            }
            0 => {
                map_fixed(&bytes);
                mapped[pages].fill(true);
            }
            1 | 2 if is_whole => fill(&bytes, u8::try_from(step % 251).unwrap()),
            _ => match rig.send(bytes.clone()) {
                Ok(sent) => assert!(is_whole && sent == read(&bytes), "seed {seed}, step {step}"),
                Err(error) => assert!(!is_whole, "seed {seed}, step {step}: {error}"),
            },
        }
    }
    let counters = rig.cache.counters();
    assert!(
        counters.hits > 10 && counters.invalidations > 10,
        "{counters:?}"
    );
    assert!(counters.evictions > 0, "{counters:?}");
}

/// The announcement is made before the caller goes on: no moment is left in which a look finds all quiet.
#[test]
fn an_event_is_known_when_the_call_returns() {
    if !alone(
        "cache_tests::an_event_is_known_when_the_call_returns",
        false,
    ) {
        return;
    }
    let mut rig = Rig::roomy();
    let memory = Memory::anonymous(1);
    for round in 0..2000u32 {
        let byte = u8::try_from(round % 250).unwrap();
        map_fixed(&memory.all());
        fill(&memory.all(), byte);
        assert_eq!(rig.send(memory.all()).unwrap()[0], byte, "round {round}");
    }
    assert_eq!(rig.cache.counters().invalidations, 1999);
}

#[test]
fn shared_memory_is_sent_right_and_not_kept() {
    if !alone(
        "cache_tests::shared_memory_is_sent_right_and_not_kept",
        false,
    ) {
        return;
    }
    let mut rig = Rig::roomy();
    let bytes = 4 * PAGE;
    let file = memfd(bytes).unwrap();
    let segment = Segment::map(&file, bytes).unwrap();
    let mut check = |byte| {
        fill(&segment.bytes(), byte);
        assert_eq!(rig.send(segment.bytes()).unwrap(), read(&segment.bytes()));
        assert_eq!(rig.uncached(segment.bytes()), Some(Uncached::Shared));
    };
    check(b'a');
    // A hole punched by the descriptor, here and in another process.
    let punch = || {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let length = libc::off_t::try_from(bytes).unwrap();
        // SAFETY: the file's pages are mapped by the test, which holds no references to them.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) }
    };
    assert_eq!(punch(), 0);
    check(b'b');
    assert_eq!(forked(punch), 0);
    check(b'c');
    // Cut and made longer again.
    file.set_len(0).unwrap();
    file.set_len(bytes as u64).unwrap();
    check(b'd');
    // Discarded through another mapping.
    let other = Segment::map(&file, bytes).unwrap();
    advise_raw(&other.bytes(), libc::MADV_REMOVE);
    check(b'e');
    file.set_len(0).unwrap();
    assert!(matches!(
        rig.send(segment.bytes()),
        Err(CacheError::Lock(_))
    ));
}

#[test]
fn a_detached_segment_is_never_sent() {
    if !alone("cache_tests::a_detached_segment_is_never_sent", false) {
        return;
    }
    let mut rig = Rig::roomy();
    for raw in [false, true] {
        let segment = Segment::sysv(2 * PAGE).unwrap();
        let bytes = segment.bytes();
        fill(&bytes, b's');
        assert_eq!(rig.send(bytes.clone()).unwrap(), read(&bytes));
        assert_eq!(rig.uncached(bytes.clone()), Some(Uncached::Shared));
        if raw {
            std::mem::forget(segment);
            assert_eq!(call(libc::SYS_shmdt, [bytes.start, 0, 0, 0, 0]), 0);
        } else {
            drop(segment);
        }
        let error = rig.send(bytes.clone()).unwrap_err();
        assert!(
            matches!(error, CacheError::Lock(LockError::Unmapped { .. })),
            "{error}"
        );
        map_fixed(&bytes);
        fill(&bytes, b'p');
        assert_eq!(rig.send(bytes.clone()).unwrap(), read(&bytes));
    }
}

#[test]
fn what_can_not_be_kept_says_why() {
    if !alone("cache_tests::what_can_not_be_kept_says_why", false) {
        return;
    }
    let mut rig = Rig::new(Budget {
        keep: Keep::Watched,
        entries_max: 1,
        bytes_max: 4 * PAGE,
    });
    let memory = Memory::anonymous(8);
    assert_eq!(rig.uncached(memory.pages(0..4)), None);
    assert_eq!(rig.uncached(memory.pages(0..5)), Some(Uncached::Budget));
    let held = rig.cache.acquire(memory.pages(0..4)).unwrap();
    assert_eq!(rig.uncached(memory.pages(6..7)), Some(Uncached::Budget));
    rig.cache.release(held);
    advise_raw(&memory.pages(6..7), libc::MADV_DONTNEED);
    assert_eq!(rig.uncached(memory.pages(6..7)), None, "it was not watched");
    advise_raw(&memory.pages(6..7), libc::MADV_DONTNEED);
    assert_eq!(rig.uncached(memory.pages(6..7)), Some(Uncached::Discarded));
    // A private mapping of a file.
    let file = memfd(PAGE).unwrap();
    let (private, fd) = (libc::MAP_PRIVATE, file.as_raw_fd());
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let base = unsafe { libc::mmap(ptr::null_mut(), PAGE, 3, private, fd, 0) };
    assert_eq!(
        rig.uncached(base.addr()..base.addr() + PAGE),
        Some(Uncached::File)
    );
}

#[test]
fn impossible_requests_are_refused_by_name() {
    let ring = IoUring::new(1).unwrap();
    for entries_max in [0, usize::from(SLOTS_MAX) + 1] {
        let budget = Budget {
            keep: Keep::Watched,
            entries_max,
            bytes_max: 1,
        };
        let error = Cache::new(borrow(&ring), budget).unwrap_err();
        assert!(matches!(error, CacheError::Budget { .. }), "{error}");
    }
    let budget = Budget {
        keep: Keep::Watched,
        entries_max: SLOTS_MAX.into(),
        bytes_max: usize::MAX,
    };
    let mut cache = Cache::new(borrow(&ring), budget).unwrap();
    let error = Cache::new(borrow(&ring), budget).unwrap_err();
    assert!(matches!(error, CacheError::Table { .. }), "{error}");
    let mut refused = |bytes| cache.acquire(bytes).unwrap_err();
    let error = refused(8..8);
    assert!(
        matches!(error, CacheError::Lock(LockError::Empty { address: 8 })),
        "{error}"
    );
    let error = refused(8..usize::MAX);
    assert!(
        matches!(error, CacheError::Lock(LockError::Overflow { .. })),
        "{error}"
    );
    let error = refused(PAGE..PAGE + BUFFER_BYTES_MAX + 1);
    assert!(matches!(error, CacheError::TooLong { .. }), "{error}");
    let error = refused(PAGE..2 * PAGE);
    assert!(
        matches!(error, CacheError::Lock(LockError::Unmapped { .. })),
        "{error}"
    );
    let none = Memory::map(1, libc::PROT_NONE, None);
    let error = refused(none.all());
    assert!(
        matches!(error, CacheError::Lock(LockError::NoAccess { .. })),
        "{error}"
    );
}

#[test]
fn exact_and_covered_ranges_hit_and_overlapping_ones_become_one() {
    let mut rig = Rig::roomy();
    let memory = Memory::anonymous(16);
    assert!(!rig.is_hit(memory.pages(2..6)));
    let start = memory.pages(2..3).start;
    for (from, to) in [
        (0, 4 * PAGE),
        (1, 5),
        (PAGE - 1, PAGE + 1),
        (3 * PAGE, 4 * PAGE),
    ] {
        assert!(rig.is_hit(start + from..start + to), "{from} to {to}");
    }
    assert!(!rig.is_hit(memory.pages(8..10)));
    assert!(
        !rig.is_hit(start + 4 * PAGE - 1..start + 4 * PAGE + 1),
        "a byte beyond"
    );
    assert_eq!((rig.cache.kept(), rig.cache.kept_bytes()), (2, 7 * PAGE));
    assert!(!rig.is_hit(memory.pages(5..9)));
    assert_eq!((rig.cache.kept(), rig.cache.kept_bytes()), (1, 8 * PAGE));
    assert!(rig.is_hit(memory.pages(2..10)));
    assert!(!rig.is_hit(memory.pages(0..16)));
    assert_eq!((rig.cache.kept(), rig.cache.kept_bytes()), (1, 16 * PAGE));
}

#[test]
fn a_registration_in_use_outlives_its_memory_and_is_not_lent_again() {
    if !alone(
        "cache_tests::a_registration_in_use_outlives_its_memory_and_is_not_lent_again",
        false,
    ) {
        return;
    }
    let mut rig = Rig::roomy();
    let memory = Memory::anonymous(2);
    let pinned = status_kib("VmPin:");
    let old = rig.cache.acquire(memory.all()).unwrap();
    map_fixed(&memory.all());
    let new = rig.cache.acquire(memory.all()).unwrap();
    assert_ne!(old.buffer(), new.buffer());
    assert_eq!(status_kib("VmPin:") - pinned, 16);
    rig.cache.release(old);
    assert_eq!(status_kib("VmPin:") - pinned, 8);
    rig.cache.release(new);
    assert!(rig.is_hit(memory.all()));
    memory.unmap(0..2);
    rig.cache.sweep();
    assert_eq!((rig.cache.kept(), status_kib("VmPin:")), (0, pinned));
}

/// Against a list that does what "least recently used, never one in use" says.
#[test]
fn the_least_recently_used_go_first_and_none_in_use() {
    const ROOM: usize = 5;
    let mut rig = Rig::new(Budget {
        keep: Keep::Watched,
        entries_max: ROOM,
        bytes_max: usize::MAX,
    });
    let memory = Memory::anonymous(24);
    let mut idle: Vec<usize> = Vec::new();
    let mut out: Vec<(usize, Loan)> = Vec::new();
    let mut random = 5u64;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1442);
        usize::try_from(random >> 33).unwrap() % limit
    };
    for step in 0..4000 {
        if !out.is_empty() && (out.len() > 7 || below(2) == 0) {
            let (page, loan) = out.swap_remove(below(out.len()));
            let is_kept = loan.uncached().is_none();
            rig.cache.release(loan);
            let in_use = out
                .iter()
                .any(|(p, l)| *p == page && l.uncached().is_none());
            if is_kept && !in_use {
                idle.push(page);
            }
            continue;
        }
        let page = below(12) * 2;
        let kept_in_use = |p: usize| out.iter().any(|(q, l)| *q == p && l.uncached().is_none());
        let mut in_use: Vec<usize> = (0..24).filter(|p| kept_in_use(*p)).collect();
        let is_hit = idle.contains(&page) || in_use.contains(&page);
        let hits = rig.cache.counters().hits;
        let loan = rig.cache.acquire(memory.pages(page..page + 1)).unwrap();
        assert_eq!(rig.cache.counters().hits > hits, is_hit, "step {step}");
        if is_hit {
            idle.retain(|p| *p != page);
        } else if idle.len() + in_use.len() == ROOM {
            let is_full = idle.is_empty();
            assert_eq!(loan.uncached().is_some(), is_full, "step {step}");
            if !is_full {
                idle.remove(0);
            }
        }
        out.push((page, loan));
        in_use = (0..24)
            .filter(|p| out.iter().any(|(q, l)| q == p && l.uncached().is_none()))
            .collect();
        assert_eq!(rig.cache.kept(), idle.len() + in_use.len(), "step {step}");
    }
    assert!(rig.cache.counters().evictions > 100);
    assert!(rig.cache.counters().uncached > 10);
}

#[test]
fn bytes_are_bounded_too() {
    let mut rig = Rig::new(Budget {
        keep: Keep::Watched,
        entries_max: 100,
        bytes_max: 4 * PAGE,
    });
    let memory = Memory::anonymous(12);
    for pages in [0..2, 3..5, 6..7] {
        assert!(!rig.is_hit(memory.pages(pages)));
    }
    assert_eq!(rig.cache.kept_bytes(), 3 * PAGE);
    assert!(rig.is_hit(memory.pages(3..5)) && !rig.is_hit(memory.pages(0..2)));
    assert_eq!(rig.cache.counters().evictions, 2);
}

#[test]
fn a_reader_that_lags_behind_forgets_everything() {
    for (events, is_kept) in [(EVENTS_MAX, true), (EVENTS_MAX + 1, false)] {
        if !alone(
            "cache_tests::a_reader_that_lags_behind_forgets_everything",
            false,
        ) {
            return;
        }
        let mut rig = Rig::roomy();
        let memory = Memory::anonymous(4);
        assert!(!rig.is_hit(memory.pages(0..1)) && !rig.is_hit(memory.pages(2..3)));
        for _ in 0..events {
            advise_raw(&memory.pages(2..3), libc::MADV_DONTNEED);
        }
        rig.cache.sweep();
        assert_eq!(rig.cache.kept(), usize::from(is_kept), "{events}");
    }
}

#[test]
fn two_caches_hear_of_the_same_memory() {
    let mut first = Rig::roomy();
    let mut second = Rig::roomy();
    let memory = Memory::anonymous(4);
    for rig in [&mut first, &mut second] {
        assert!(!rig.is_hit(memory.all()) && rig.is_hit(memory.all()));
    }
    drop(first);
    assert!(second.is_hit(memory.all()));
    map_fixed(&memory.pages(1..2));
    assert!(
        !second.is_hit(memory.all()),
        "the other cache's end did not end the watch"
    );
}

#[test]
fn a_forked_child_has_no_cache_and_can_make_one() {
    if !alone(
        "cache_tests::a_forked_child_has_no_cache_and_can_make_one",
        false,
    ) {
        return;
    }
    let mut rig = Rig::roomy();
    let memory = Memory::anonymous(2);
    fill(&memory.all(), b'p');
    assert!(!rig.is_hit(memory.all()));
    let held = rig.cache.acquire(memory.all()).unwrap();
    let mut held = Some(held);
    let code = forked(|| {
        let error = rig.cache.acquire(memory.all()).unwrap_err();
        assert!(matches!(error, CacheError::Forked), "{error}");
        rig.cache.release(held.take().unwrap());
        assert_eq!(status_kib("VmPin:"), 0);
        let mut own = Rig::roomy();
        fill(&memory.all(), b'c');
        assert_eq!(own.send(memory.all()).unwrap(), read(&memory.all()));
        assert!(own.is_hit(memory.all()));
        map_fixed(&memory.all());
        assert_eq!(own.send(memory.all()).unwrap(), read(&memory.all()));
        0
    });
    assert_eq!(code, 0);
    assert!(rig.is_hit(memory.all()));
    assert_eq!(rig.send(memory.all()).unwrap(), read(&memory.all()));
    rig.cache.release(held.take().unwrap());
}

#[test]
fn nothing_is_pinned_or_watched_when_a_cache_is_gone() {
    if !alone(
        "cache_tests::nothing_is_pinned_or_watched_when_a_cache_is_gone",
        false,
    ) {
        return;
    }
    let memory = Memory::anonymous(8);
    let mut rig = Rig::roomy();
    assert!(!rig.is_hit(memory.pages(0..4)));
    let _held = rig.cache.acquire(memory.pages(5..6)).unwrap();
    let watched = flagged_pages(&memory.all(), "uw");
    assert_eq!(watched, [true, true, true, true, false, true, false, false]);
    // One whose memory is gone, in use.
    let _retired = rig.cache.acquire(memory.pages(7..8)).unwrap();
    map_fixed(&memory.pages(7..8));
    rig.cache.sweep();
    assert_eq!((rig.cache.kept(), status_kib("VmPin:")), (2, 24));
    // The ring outlives the cache.
    let Rig { cache, ring, .. } = rig;
    drop(cache);
    assert_eq!(status_kib("VmPin:"), 0);
    assert_eq!(flagged_pages(&memory.all(), "uw"), [false; 8]);
    drop(ring);
}

/// Strict seccomp kills who enters the kernel other than to read, write or leave.
#[test]
fn a_hit_enters_no_kernel() {
    if !alone("cache_tests::a_hit_enters_no_kernel", false) {
        return;
    }
    let enter_after_hits = |extra: bool| {
        let (reader, writer) = io::pipe().unwrap();
        // SAFETY: the child ends by a signal: its own, or ours.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut rig = Rig::roomy();
            let memory = Memory::anonymous(64);
            let part = |page: usize| memory.pages(page * 2..page * 2 + 1);
            (0..32).for_each(|page| assert!(!rig.is_hit(part(page))));
            // SAFETY: from here on this thread may only read and write.
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
            (0..1000).for_each(|turn| assert!(rig.is_hit(part(turn % 32))));
            if extra {
                // SAFETY: has no preconditions, and is forbidden here.
                unsafe { libc::getppid() };
            }
            // SAFETY: one readable byte.
            unsafe { libc::write(writer.as_raw_fd(), [1u8].as_ptr().cast(), 1) };
            // SAFETY: ends this thread; the parent ends the process.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        drop(writer);
        // The thread ends in any case, the process does not: its watcher goes on.
        let has_ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
            stat.rsplit(')')
                .next()
                .unwrap()
                .trim_start()
                .starts_with('Z')
        };
        let waits = (0..2000).take_while(|_| !has_ended());
        waits.for_each(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
        let mut poll = libc::pollfd {
            fd: reader.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `poll` is one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        poll.revents & libc::POLLIN != 0
    };
    assert!(enter_after_hits(false), "a thousand hits without a call");
    assert!(!enter_after_hits(true), "a call would have been noticed");
}
