//! Memory that several processes lock: whatever one of them does, the others keep what is theirs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use crate::memory::{CAP_IPC_LOCK, has_capability};

const PAGES: usize = 32;

/// How processes come to share memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sharing {
    SysV,
    Posix,
    Memfd,
    File,
}

const ALL: [Sharing; 4] = [Sharing::SysV, Sharing::Posix, Sharing::Memfd, Sharing::File];

/// What another process needs to map the same memory.
enum Name {
    Id(i32),
    File(File),
}

impl Sharing {
    fn make(self) -> (Segment, Name) {
        let bytes = PAGES * PAGE;
        let file = match self {
            Self::SysV => {
                let segment = Segment::sysv(bytes).unwrap();
                let id = segment.sysv_id().unwrap();
                return (segment, Name::Id(id));
            }
            Self::Posix => {
                let name = format!("/onrush-test-{}", std::process::id());
                let file = posix(&name, bytes).unwrap();
                unlink_posix(&name).unwrap();
                file
            }
            Self::Memfd => memfd(bytes).unwrap(),
            Self::File => {
                let mut path = std::env::current_exe().unwrap();
                path.set_extension(format!("shared-{}", std::process::id()));
                let mut options = File::options();
                let file = options.read(true).write(true).create_new(true).open(&path);
                fs::remove_file(&path).unwrap();
                let file = file.unwrap();
                file.set_len(bytes as u64).unwrap();
                file
            }
        };
        (Segment::map(&file, bytes).unwrap(), Name::File(file))
    }

    /// Pages of a file on disk cannot be pinned.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::File => &[Kind::Resident, Kind::OnFault],
            _ => &[Kind::Resident, Kind::OnFault, Kind::Pinned],
        }
    }
}

impl Name {
    fn attach(&self) -> Segment {
        match self {
            Self::Id(id) => Segment::attach_sysv(*id).unwrap(),
            Self::File(file) => Segment::map(file, PAGES * PAGE).unwrap(),
        }
    }
}

/// A forked process that we talk with, a number at a time.
struct Peer {
    pid: libc::pid_t,
    stream: UnixStream,
}

impl Peer {
    fn start(body: impl FnOnce(&mut UnixStream)) -> Self {
        let (stream, mut theirs) = UnixStream::pair().unwrap();
        // SAFETY: this process has one busy thread (see `alone`); the child leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop(stream);
            let body = std::panic::AssertUnwindSafe(|| body(&mut theirs));
            let code = i32::from(std::panic::catch_unwind(body).is_err());
            // SAFETY: leaves without running what belongs to the parent.
            unsafe { libc::_exit(code) };
        }
        Self { pid, stream }
    }

    fn kill(self) {
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.wait();
    }

    fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child; `status` may be written to.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(waited, self.pid);
        status
    }
}

fn tell(stream: &mut UnixStream, number: u64) {
    stream.write_all(&number.to_le_bytes()).unwrap();
}

fn hear(stream: &mut UnixStream) -> u64 {
    let mut number = [0; 8];
    stream.read_exact(&mut number).unwrap();
    u64::from_le_bytes(number)
}

fn part(segment: &Segment, pages: Range<usize>) -> Range<usize> {
    let start = segment.bytes().start;
    start + pages.start * PAGE..start + pages.end * PAGE
}

#[test]
fn segments_of_impossible_sizes_are_refused() {
    assert!(matches!(Segment::sysv(0), Err(SegmentError::Size { .. })));
    assert!(matches!(memfd(usize::MAX), Err(SegmentError::Size { .. })));
    assert!(matches!(
        posix("/onrush-none", 0),
        Err(SegmentError::Size { .. })
    ));
    assert!(matches!(
        Segment::attach_sysv(-1),
        Err(SegmentError::Attach { id: -1, .. })
    ));
    let unnamed = posix("/a\0b", PAGE).unwrap_err();
    assert!(unnamed.to_string().contains("name"), "{unnamed}");
}

#[test]
fn a_sysv_segment_lasts_until_its_last_user_detaches() {
    let ours = Segment::sysv(PAGE).unwrap();
    let id = ours.sysv_id().unwrap();
    let theirs = Segment::attach_sysv(id).unwrap();
    drop(ours);
    let third = Segment::attach_sysv(id).unwrap();
    drop((theirs, third));
    let error = Segment::attach_sysv(id).unwrap_err();
    assert!(matches!(error, SegmentError::Attach { .. }), "{error}");
}

#[test]
fn the_first_use_of_a_segment_is_told_from_later_ones() {
    if !alone() {
        return;
    }
    for sharing in ALL {
        let (segment, name) = sharing.make();
        let in_memory = || pages_in_memory(&segment.bytes()).unwrap();
        assert_eq!(in_memory(), 0, "{sharing:?}");
        let peer = Peer::start(|_| {
            let theirs = name.attach();
            let half = part(&theirs, 0..PAGES / 2);
            drop(manager().lock(half, Kind::Resident).unwrap());
        });
        assert_eq!(peer.wait(), 0);
        assert!(in_memory() >= PAGES / 2, "{sharing:?}: others have used it");
        drop(manager().lock(segment.bytes(), Kind::Resident).unwrap());
        assert_eq!(in_memory(), PAGES, "{sharing:?}");
    }
    let (segment, _) = Sharing::Memfd.make();
    let odd = segment.bytes().start + 1..segment.bytes().end;
    assert!(matches!(
        pages_in_memory(&odd),
        Err(LockError::Alignment { .. })
    ));
}

/// The paper's figure 1: what is received into one mapping is there in the other, in the same
/// frames.
#[test]
fn two_processes_pin_the_same_frames() {
    if !alone() || !has_frames() {
        return;
    }
    for sharing in [Sharing::SysV, Sharing::Posix, Sharing::Memfd] {
        let (segment, name) = sharing.make();
        let ours = manager().lock(segment.bytes(), Kind::Pinned).unwrap();
        let mut peer = Peer::start(|stream| {
            let theirs = name.attach();
            let area = manager().lock(theirs.bytes(), Kind::Pinned).unwrap();
            area.pages().unwrap().iter().for_each(|f| tell(stream, *f));
        });
        let theirs: Vec<u64> = (0..PAGES).map(|_| hear(&mut peer.stream)).collect();
        assert_eq!(peer.wait(), 0);
        assert_eq!(ours.pages().unwrap(), theirs, "{sharing:?}");
    }
}

// SPECIFICATION.md: 51
#[test]
fn one_processs_unlock_exit_or_kill_releases_only_its_own() {
    if !alone() {
        return;
    }
    for sharing in ALL {
        for &kind in sharing.kinds() {
            for end in ["unlock", "exit", "kill"] {
                let (segment, name) = sharing.make();
                let ours = manager().lock(part(&segment, 8..24), kind).unwrap();
                let frames = ours.pages().ok();
                let state = || {
                    let locked = locked_pages(&segment.bytes());
                    (locked, manager().areas(), status_kib("VmPin:"))
                };
                let before = state();
                let mut peer = Peer::start(|stream| {
                    let theirs = name.attach();
                    let wide = manager().lock(theirs.bytes(), kind).unwrap();
                    let narrow = manager().lock(part(&theirs, 20..28), kind).unwrap();
                    if end == "unlock" {
                        drop((wide, narrow));
                        tell(stream, manager().totals().areas as u64);
                        hear(stream);
                    } else {
                        tell(stream, manager().totals().areas as u64);
                        hear(stream);
                        // SAFETY: leaves without dropping the handles.
                        unsafe { libc::_exit(0) };
                    }
                });
                let held = hear(&mut peer.stream);
                assert_eq!(held, if end == "unlock" { 0 } else { 2 });
                assert_eq!(state(), before, "{sharing:?} {kind:?} {end}");
                if end == "kill" {
                    peer.kill();
                } else {
                    tell(&mut peer.stream, 0);
                    assert_eq!(peer.wait(), 0);
                }
                assert_eq!(state(), before, "{sharing:?} {kind:?} {end}");
                if kind == Kind::Pinned {
                    assert_eq!(ours.pages().ok(), frames, "{sharing:?} {kind:?} {end}");
                }
            }
        }
    }
}

/// Pinned memory counts against the account's RLIMIT_MEMLOCK, whichever process pinned it. So what
/// a killed process held has been given back when another process of the account can pin as much.
#[test]
fn what_a_killed_process_pinned_is_given_back() {
    if !alone_without_rights() {
        return;
    }
    assert!(!has_capability(CAP_IPC_LOCK));
    set_memlock((PAGES * PAGE + PAGE * PAGES / 2) as u64);
    let (segment, name) = Sharing::SysV.make();
    let mut peer = Peer::start(|stream| {
        let theirs = name.attach();
        let _area = manager().lock(theirs.bytes(), Kind::Pinned).unwrap();
        tell(stream, 1);
        hear(stream);
    });
    assert_eq!(hear(&mut peer.stream), 1);
    let lock = || manager().lock(segment.bytes(), Kind::Pinned);
    let error = lock().unwrap_err();
    assert!(matches!(error, LockError::Limit { .. }), "{error}");
    peer.kill();
    // The kernel takes a dead process's rings apart a little later.
    let again = (0..6000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        lock().ok()
    });
    assert!(again.is_some(), "a minute later it is still pinned");
}

/// Processes that lock and unlock overlapping parts at random, each against its own model; some are
/// killed.
#[test]
fn processes_that_lock_at_random_keep_all_frames() {
    if !alone() {
        return;
    }
    for sharing in ALL {
        let (segment, name) = sharing.make();
        let held = match sharing {
            Sharing::File => None,
            _ => Some(
                manager()
                    .lock(part(&segment, 10..20), Kind::Pinned)
                    .unwrap(),
            ),
        };
        let frames = held.as_ref().and_then(|area| area.pages().ok());
        let mut peers: Vec<Peer> = (1..=4)
            .map(|seed| {
                Peer::start(|stream| {
                    let theirs = name.attach();
                    wander(sharing, &theirs, seed, 150, || tell(stream, 1));
                })
            })
            .collect();
        // Two are killed in the middle, wherever that is.
        for (count, mut peer) in [(20, peers.remove(0)), (60, peers.remove(0))] {
            (0..count).for_each(|_| assert_eq!(hear(&mut peer.stream), 1));
            peer.kill();
        }
        wander(sharing, &segment, 9, 60, || ());
        for mut peer in peers {
            (0..150).for_each(|_| assert_eq!(hear(&mut peer.stream), 1));
            assert_eq!(peer.wait(), 0, "{sharing:?}");
        }
        assert_eq!(
            held.as_ref().and_then(|area| area.pages().ok()),
            frames,
            "{sharing:?}"
        );
        let bytes = held.as_ref().map_or(0, |area| area.bytes().len());
        assert_eq!(manager().totals().pinned_bytes, bytes);
        assert!(locked_pages(&segment.bytes()).iter().all(|locked| !locked));
    }
}

fn wander(sharing: Sharing, segment: &Segment, seed: u64, steps: usize, mut done: impl FnMut()) {
    let mut below = random(seed);
    let mut out: Vec<LockedArea> = Vec::new();
    for step in 0..steps {
        if out.is_empty() || (out.len() < 8 && below(2) == 0) {
            let start = below(PAGES);
            let pages = start..start + 1 + below(PAGES - start);
            let kind = sharing.kinds()[below(sharing.kinds().len())];
            out.push(manager().lock(part(segment, pages), kind).unwrap());
        } else {
            drop(out.swap_remove(below(out.len())));
        }
        let mut model = vec![false; PAGES];
        for area in out.iter().filter(|a| a.kind() != Kind::Pinned) {
            let first = (area.bytes().start - segment.bytes().start) / PAGE;
            model[first..first + area.bytes().len() / PAGE].fill(true);
        }
        assert_eq!(
            locked_pages(&segment.bytes()),
            model,
            "seed {seed}, step {step}"
        );
        done();
    }
}
