//! What the cache keeps, finds and gives up, and what it costs.

use std::os::fd::AsRawFd;

use io_uring::IoUring;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::rig::{Rig, advise_raw, borrow, fill, map_fixed, read};
use super::*;
use crate::process::KeptFd;

const SMALL: Budget = Budget {
    keep: Keep::Sealed,
    entries_max: 8,
    bytes_max: 8 * PAGE,
};

#[test]
fn what_cannot_be_kept_says_why() {
    if !alone() {
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

/// What takes it away may have to wait for operations on the ring, so that no cache does.
#[test]
fn a_ring_keeps_the_table_of_a_cache_that_is_gone() {
    let ring = IoUring::new(1).unwrap();
    drop(Cache::new(borrow(&ring), SMALL).unwrap());
    let error = Cache::new(borrow(&ring), SMALL).unwrap_err();
    assert!(matches!(error, CacheError::Table { .. }), "{error}");
    assert!(error.to_string().contains("IORING_UNREGISTER_BUFFERS"));
    ring.submitter().unregister_buffers().unwrap();
    drop(Cache::new(borrow(&ring), SMALL).unwrap());
}

#[test]
fn each_of_a_hundred_rings_has_a_cache() {
    let open = || {
        let ring = IoUring::new(1).unwrap();
        let cache = Cache::new(borrow(&ring), SMALL).unwrap();
        (cache, ring)
    };
    let all: Vec<_> = (0..100).map(|_| open()).collect();
    assert!(all.iter().all(|(cache, _)| cache.kept() == 0));
}

#[test]
fn a_table_too_many_is_refused_by_their_number() {
    if !alone() {
        return;
    }
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    if files
        .maximum
        .is_some_and(|most| most < TABLES_MAX as u64 + 100)
    {
        return onrush_testkit::skip::record("needs more open files (ulimit -Hn)");
    }
    let ring = IoUring::new(1).unwrap();
    let file = File::open("/dev/null").unwrap();
    let keep = || KeptFd::new(file.try_clone().unwrap().into());
    let kept: Vec<_> = std::iter::from_fn(keep).collect();
    assert_eq!(kept.len(), TABLES_MAX);
    let error = Cache::new(borrow(&ring), SMALL).unwrap_err();
    assert!(
        matches!(error, CacheError::Lock(LockError::Tables)),
        "{error}"
    );
    assert!(error.to_string().contains(&TABLES_MAX.to_string()));
    let memory = Memory::anonymous(1);
    let error = manager().lock(memory.all(), Kind::Pinned).unwrap_err();
    assert!(matches!(error, LockError::Tables), "{error}");
    drop(kept);
    // What was refused has left the ring as it was.
    drop(Cache::new(borrow(&ring), SMALL).unwrap());
    drop(manager().lock(memory.all(), Kind::Pinned).unwrap());
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
fn a_registration_in_use_outlives_its_memory() {
    if !alone() {
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
    let mut below = random(5);
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
        if !alone() {
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
    if !alone() {
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
    if !alone() {
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
// SPECIFICATION.md: 53
#[test]
fn a_hit_enters_no_kernel() {
    if !alone() {
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
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
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
