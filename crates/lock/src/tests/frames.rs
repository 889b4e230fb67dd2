//! What frames are told of memory that was changed under a pin, and whom signals find.

use super::rig::{Rig, advise_raw, call, fill, map_fixed};
use super::*;

/// The pin stays what it is; what is told is what the addresses show.
#[test]
fn frames_are_those_that_the_addresses_show_now() {
    if !alone() || !has_frames() {
        return;
    }
    let memory = Memory::anonymous(4);
    fill(&memory.all(), b'a');
    let area = manager().lock(memory.all(), Kind::Pinned).unwrap();
    let pinned = area.pages().unwrap();
    assert_eq!(area.pages().unwrap(), pinned);

    advise_raw(&memory.pages(0..2), libc::MADV_DONTNEED);
    let shown = area.pages().unwrap();
    assert_eq!(shown[2..], pinned[2..]);
    fill(&memory.pages(0..2), b'b');
    let written = area.pages().unwrap();
    assert_eq!(written[2..], pinned[2..]);
    for frame in shown[..2].iter().chain(&written[..2]) {
        // The pin holds the old frames, so that no page gets one of them.
        assert!(!pinned.contains(frame));
    }

    let elsewhere = Memory::anonymous(1);
    let (from, to) = (memory.pages(3..4).start, elsewhere.all().start);
    assert_eq!(
        call(libc::SYS_mremap, [from, PAGE, PAGE, 3, to]).unsigned_abs(),
        to
    );
    match area.pages() {
        Err(LockError::PartlyMapped { start, .. }) => assert_eq!(start, from),
        other => panic!("{other:?}"),
    }
    let moved = manager().lock(elsewhere.all(), Kind::Pinned).unwrap();
    assert_eq!(moved.pages().unwrap(), pinned[3..], "the page has moved");

    map_fixed(&memory.all());
    fill(&memory.all(), b'c');
    let anew = area.pages().unwrap();
    assert!(anew.iter().all(|frame| !pinned.contains(frame)));
    assert!(area.is_held(), "the pin is");
    memory.unmap(0..4);
    assert!(matches!(area.pages(), Err(LockError::Unmapped { .. })));
}

/// More pages than the kernel is asked about at once.
#[test]
fn pages_of_large_memory_are_all_counted() {
    const PAGES: usize = (1 << 16) + 3;
    let memory = Memory::anonymous(PAGES);
    for page in [0, 7, (1 << 16) - 1, 1 << 16, PAGES - 1] {
        memory.write(page, 1);
    }
    assert_eq!(pages_in_memory(&memory.all()).unwrap(), 5);
    assert_eq!(pages_in_memory(&memory.pages(1..PAGES - 1)).unwrap(), 3);
}

/// The allocator would end the program if it were asked for a byte for each page.
#[test]
fn a_length_that_cannot_be_is_an_error_of_the_range() {
    let memory = Memory::anonymous(1);
    let Range { start, end } = memory.all();
    let longest = start..start + (1 << 63) - PAGE;
    match pages_in_memory(&longest) {
        Err(LockError::PartlyMapped { start, .. }) => assert_eq!(start, end),
        other => panic!("{other:?}"),
    }
}

/// A handler that unmaps watched memory would wait for the watcher, were it to run there.
#[test]
fn no_signal_finds_the_watcher() {
    if !alone() {
        return;
    }
    let blocked = |status: String| {
        let line = status.lines().find_map(|it| it.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    let ours = || blocked(fs::read_to_string("/proc/thread-self/status").unwrap());
    let before = ours();
    let _rig = Rig::roomy();
    assert_eq!(ours(), before, "the others get theirs as ever");
    let mut threads = fs::read_dir("/proc/self/task").unwrap();
    let watcher = threads.find_map(|thread| {
        let path = thread.unwrap().path();
        let name = fs::read_to_string(path.join("comm")).unwrap();
        (name.trim() == "onrush-watch").then_some(path)
    });
    let status = fs::read_to_string(watcher.unwrap().join("status")).unwrap();
    let theirs = blocked(status);
    // Two cannot be blocked; two are the C library's own.
    let others = [libc::SIGKILL, libc::SIGSTOP, 32, 33];
    for signal in (1..=64).filter(|signal| !others.contains(signal)) {
        assert!(theirs >> (signal - 1) & 1 == 1, "signal {signal}");
    }
}
