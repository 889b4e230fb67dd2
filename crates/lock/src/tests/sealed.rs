//! Sealed memory against everything that makes registrations stale, by real sends of what it holds
//! now.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::rig::{Rig, call, fill, fork_and_write, map_fixed, read};
use super::*;

/// The planted fault: see `sealed`.
pub(crate) static SEALS_ARE_FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// What somebody may try. Each is a call past libc, so that nothing of ours is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Attempt {
    Munmap,
    MapFixed,
    MremapAway,
    MremapOver,
    MremapDontUnmap,
    AttachOver,
    ProtectAndBack,
    DontNeed,
    DontNeedLocked,
    Free,
    Remove,
    Guard,
    UnlockAndGuard,
    PageOut,
    Collapse,
    RemapPages,
    PunchHole,
    Truncate,
    ForkAndWrite,
}

use Attempt::{
    AttachOver, Collapse, DontNeed, DontNeedLocked, ForkAndWrite, Free, Guard, MapFixed,
    MremapAway, MremapDontUnmap, MremapOver, Munmap, PageOut, ProtectAndBack, PunchHole,
    RemapPages, Remove, Truncate, UnlockAndGuard,
};

const ATTEMPTS: [Attempt; 19] = [
    Munmap,
    MapFixed,
    MremapAway,
    MremapOver,
    MremapDontUnmap,
    AttachOver,
    ProtectAndBack,
    DontNeed,
    DontNeedLocked,
    Free,
    Remove,
    Guard,
    UnlockAndGuard,
    PageOut,
    Collapse,
    RemapPages,
    PunchHole,
    Truncate,
    ForkAndWrite,
];

impl Attempt {
    /// Tries it on whole pages, which lie in `piece`. Where it succeeds in taking the memory away,
    /// other memory is mapped there.
    fn happen(self, bytes: &Range<usize>, piece: &Range<usize>) {
        let (at, length) = (bytes.start, bytes.len());
        let advise = |advice| call(libc::SYS_madvise, [at, length, advice, 0, 0]) == 0;
        let mremap =
            |from, to, flags| call(libc::SYS_mremap, [from, length, length, flags, to]) >= 0;
        match self {
            Munmap => {
                if call(libc::SYS_munmap, [at, length, 0, 0, 0]) == 0 {
                    map_fixed(bytes);
                }
            }
            MapFixed => _ = call(libc::SYS_mmap, [at, length, 3, 0x32, usize::MAX]),
            MremapAway | MremapDontUnmap => {
                let elsewhere = Memory::anonymous(length / PAGE);
                let flags = if self == MremapAway { 3 } else { 7 };
                if mremap(at, elsewhere.all().start, flags) && self == MremapAway {
                    map_fixed(bytes);
                }
            }
            MremapOver => {
                let other = Memory::anonymous(length / PAGE);
                fill(&other.all(), b'm');
                if mremap(other.all().start, at, 3) {
                    std::mem::forget(other);
                }
            }
            AttachOver => {
                let segment = Segment::sysv(length).unwrap();
                fill(&segment.bytes(), b's');
                let id = usize::try_from(segment.sysv_id().unwrap()).unwrap();
                let remap = 0o40000;
                call(libc::SYS_shmat, [id, at, remap, 0, 0]);
            }
            ProtectAndBack => {
                for protection in [0, 3] {
                    call(libc::SYS_mprotect, [at, length, protection, 0, 0]);
                }
            }
            DontNeed => _ = advise(4),
            DontNeedLocked => _ = advise(24),
            Free => _ = advise(8),
            Remove => _ = advise(9),
            Guard | UnlockAndGuard => {
                if self == UnlockAndGuard {
                    call(libc::SYS_munlock, [at, length, 0, 0, 0]);
                }
                advise(102);
                advise(103);
            }
            PageOut => _ = advise(21),
            Collapse => _ = advise(25),
            RemapPages => _ = call(libc::SYS_remap_file_pages, [at, length, 0, 1, 0]),
            PunchHole | Truncate => self.change_file(bytes, piece),
            ForkAndWrite => fork_and_write(bytes),
        }
    }

    /// By the descriptor that root can have of any mapping's file.
    fn change_file(self, bytes: &Range<usize>, piece: &Range<usize>) {
        let path = format!("/proc/self/map_files/{:x}-{:x}", piece.start, piece.end);
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else {
            return;
        };
        if self == Truncate {
            if file.set_len(0).is_ok() {
                file.set_len(piece.len() as u64).unwrap();
            }
            return;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let offset = libc::off_t::try_from(bytes.start - piece.start).unwrap();
        let length = libc::off_t::try_from(bytes.len()).unwrap();
        // SAFETY: the file's pages are the test's, which holds no references to them.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) };
    }

    /// Whether it makes registrations stale where nothing is sealed.
    fn makes_stale(self) -> bool {
        matches!(
            self,
            Munmap
                | MapFixed
                | MremapAway
                | MremapOver
                | AttachOver
                | Remove
                | PunchHole
                | Truncate
                | RemapPages
        )
    }
}

fn rig() -> Rig {
    Rig::new(Budget {
        keep: Keep::Sealed,
        entries_max: 6,
        bytes_max: 16 * PAGE,
    })
}

fn pages(piece: &Range<usize>, pages: Range<usize>) -> Range<usize> {
    piece.start + pages.start * PAGE..piece.start + pages.end * PAGE
}

/// Caches sealed memory, lets somebody try something on a part of it, and sends. `None` if all was
/// right.
fn wrong_send(attempt: Attempt, part: Range<usize>) -> Option<String> {
    let mut rig = rig();
    // Not dropped: where the seals are forgotten, it is not what it was.
    let memory = std::mem::ManuallyDrop::new(Sealed::map(4 * PAGE).unwrap());
    let piece = memory.bytes();
    fill(&piece, b'o');
    assert_eq!(rig.send(piece.clone()).unwrap(), read(&piece));
    assert!(rig.is_hit(piece.clone()), "it is kept");
    attempt.happen(&pages(&piece, part), &piece);
    for byte in [None, Some(b'n')] {
        if let Some(byte) = byte {
            fill(&piece, byte);
        }
        let sent = rig.send(piece.clone()).unwrap();
        if sent != read(&piece) {
            return Some(format!("{attempt:?}, then {byte:?}: sent {}", sent[0]));
        }
    }
    assert_eq!(rig.cache.counters().misses, 1, "and stays kept");
    None
}

#[test]
fn whatever_is_tried_the_bytes_sent_are_the_memorys() {
    if alone() {
        for attempt in ATTEMPTS {
            for part in [0..4, 0..1, 3..4, 1..3] {
                assert_eq!(wrong_send(attempt, part.clone()), None, "{part:?}");
            }
        }
    }
}

#[test]
fn seals_need_no_rights() {
    if alone_without_rights() {
        for attempt in ATTEMPTS {
            assert_eq!(wrong_send(attempt, 0..4), None);
        }
    }
}

#[test]
fn forgotten_seals_are_noticed_after_every_attempt_that_matters() {
    if alone() {
        SEALS_ARE_FORGOTTEN.store(true, Ordering::Relaxed);
        for attempt in ATTEMPTS {
            let found = wrong_send(attempt, 0..2);
            assert_eq!(
                found.is_some(),
                attempt.makes_stale(),
                "{attempt:?}: {found:?}"
            );
        }
    }
}

#[test]
fn random_sequences_of_attempts_never_send_the_old() {
    if !alone() {
        return;
    }
    let mut below = random(9);
    let mut rig = rig();
    let memory = Sealed::map(24 * PAGE).unwrap();
    let piece = memory.bytes();
    for step in 0..3000 {
        let first = below(24);
        let bytes = pages(&piece, first..(first + 1 + below(6)).min(24));
        match below(8) {
            0 => ATTEMPTS[below(ATTEMPTS.len())].happen(&bytes, &piece),
            1 | 2 => fill(&bytes, u8::try_from(step % 251).unwrap()),
            _ => assert_eq!(
                rig.send(bytes.clone()).unwrap(),
                read(&bytes),
                "step {step}"
            ),
        }
    }
    let counters = rig.cache.counters();
    assert!(
        counters.hits > 10 && counters.evictions > 10,
        "{counters:?}"
    );
    assert_eq!(counters.uncached, 0);
}

#[test]
fn what_is_not_sealed_is_not_kept() {
    if !alone() {
        return;
    }
    let mut rig = rig();
    let (private, sealed) = (Memory::anonymous(4), Sealed::map(2 * PAGE).unwrap());
    assert_eq!(rig.uncached(private.all()), Some(Uncached::NotSealed));
    assert!(!rig.is_hit(sealed.bytes()) && rig.is_hit(sealed.bytes()));
    let Range { start, end } = sealed.bytes();
    let covers = |bytes: Range<usize>| Manager::of_process().sealed.covers(&bytes);
    assert!(covers(start..end) && covers(end - 1..end));
    assert!(!covers(start - 1..end) && !covers(start..end + 1));
    let large = Sealed::map(17 * PAGE).unwrap();
    assert_eq!(rig.uncached(large.bytes()), Some(Uncached::Budget));
    assert!(!rig.is_hit(pages(&large.bytes(), 0..14)));
}

#[test]
fn dropped_memory_is_handed_out_empty_and_no_child_has_it() {
    if !alone() {
        return;
    }
    let mut first = Sealed::map(3 * PAGE - 1).unwrap();
    first.fill(b'x');
    let bytes = first.bytes();
    let other = Sealed::map(3 * PAGE).unwrap();
    assert_ne!(other.bytes(), bytes);
    drop(first);
    let again = Sealed::map(3 * PAGE).unwrap();
    assert_eq!(again.bytes(), bytes);
    assert!(again.iter().all(|&byte| byte == 0));
    let code = forked(|| {
        let mut rig = rig();
        map_fixed(&bytes);
        assert_eq!(rig.uncached(bytes.clone()), Some(Uncached::NotSealed));
        0
    });
    assert_eq!(code, 0);
}

#[test]
fn so_many_pieces_are_sealed_and_no_more() {
    if !alone() {
        return;
    }
    let mut pieces: Vec<_> = (0..SEALED_MAX).map(|_| Sealed::map(1).unwrap()).collect();
    assert!(matches!(Sealed::map(1), Err(SegmentError::Sealed)));
    pieces.pop();
    assert!(
        matches!(Sealed::map(PAGE + 1), Err(SegmentError::Sealed)),
        "of another size"
    );
    assert_eq!(Sealed::map(1).unwrap().len(), PAGE);
    for bytes_total in [0, usize::MAX] {
        assert!(matches!(
            Sealed::map(bytes_total),
            Err(SegmentError::Size { .. })
        ));
    }
}
