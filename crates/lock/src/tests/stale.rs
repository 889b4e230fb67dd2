//! Whatever happens to memory, the cache never sends what used to be there.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::rig::{Rig, WATCHER_IS_DEAF, advise_raw, call, fill, fork_and_write, map_fixed, read};
use super::*;

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

// SPECIFICATION.md: 52
#[test]
fn after_every_event_the_new_bytes_are_sent_or_none() {
    if !alone() {
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
    if alone_without_rights() {
        for event in EVENTS {
            assert_eq!(wrong_send(event, 0..4), None);
        }
    }
}

#[test]
fn a_deaf_watcher_is_noticed_after_every_event_that_matters() {
    if !alone() {
        return;
    }
    WATCHER_IS_DEAF.store(true, Ordering::Relaxed);
    for event in EVENTS {
        let found = wrong_send(event, 0..4);
        assert_eq!(found.is_some(), event.makes_stale(), "{event:?}: {found:?}");
    }
}

#[test]
fn random_sequences_of_events_and_sends_never_send_the_old() {
    if !alone() {
        return;
    }
    for seed in 1..=6 {
        wander(seed, 500);
    }
}

fn wander(seed: u64, steps: usize) {
    const PAGES: usize = 24;
    let mut below = random(seed);
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

/// Caches of several threads keep the same memory, and all of them change it. Whoever changes a
/// region or sends it has it alone meanwhile; what happens to the others goes on.
#[test]
fn threads_that_change_memory_and_send_never_send_the_old() {
    const REGIONS: usize = 6;
    const THREADS: u64 = 4;
    if !alone() {
        return;
    }
    let regions: Vec<_> = (0..REGIONS)
        .map(|_| Mutex::new(Memory::anonymous(3)))
        .collect();
    let give_up = Instant::now() + Duration::from_secs(4);
    let counters = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let regions = &regions;
                scope.spawn(move || change_and_send(thread, regions, give_up))
            })
            .collect();
        let counters = threads.into_iter().map(|it| it.join().unwrap());
        counters.collect::<Vec<_>>()
    });
    for counters in counters {
        assert!(
            counters.hits > 0 && counters.invalidations > 0,
            "{counters:?}"
        );
    }
}

/// So many rounds, or less on a machine that is slow.
fn change_and_send(thread: u64, regions: &[Mutex<Memory>], give_up: Instant) -> CacheCounters {
    const ROUNDS: usize = 2000;
    // Not those after which nothing is kept for a while.
    const CHANGES: [Event; 5] = [
        Event::Munmap,
        Event::RawMapFixed,
        Event::MremapAway,
        Event::MremapOver,
        Event::ForkAndWrite,
    ];
    let mut below = random(100 + thread);
    let mut rig = Rig::roomy();
    let mut loans = Vec::new();
    for round in 0..ROUNDS {
        // Few rounds are enough to have seen every change.
        if round > 50 && Instant::now() > give_up {
            break;
        }
        let memory = regions[below(regions.len())].lock().unwrap();
        let bytes = memory.all();
        match below(12) {
            0 => {
                let byte = u8::try_from(below(251)).unwrap();
                if !CHANGES[below(CHANGES.len())].happen(&bytes) {
                    map_fixed(&bytes);
                }
                fill(&bytes, byte);
            }
            // One that outlives what happens to its memory.
            1 if loans.len() < 8 => loans.push(rig.cache.acquire(bytes).unwrap()),
            2 if !loans.is_empty() => {
                let loan = loans.swap_remove(below(loans.len()));
                rig.cache.release(loan);
            }
            _ => {
                let sent = rig.send(bytes.clone()).unwrap();
                assert!(sent == read(&bytes), "thread {thread}, round {round}");
            }
        }
    }
    loans.into_iter().for_each(|loan| rig.cache.release(loan));
    rig.cache.counters()
}

/// The announcement is made before the caller goes on: no moment is left in which a look finds all
/// quiet.
#[test]
fn an_event_is_known_when_the_call_returns() {
    if !alone() {
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
    if !alone() {
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
    if !alone() {
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
