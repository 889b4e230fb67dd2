//! The manager against the kernel's own account of what is locked.

use super::*;

/// What the manager says of `memory`; other tests lock theirs at the same time.
fn areas(memory: &Memory) -> Vec<Interval> {
    let inside = |i: &Interval| i.bytes.start < memory.0.end && memory.0.start < i.bytes.end;
    manager().areas().into_iter().filter(inside).collect()
}

#[test]
fn the_kernel_locks_what_the_handles_say_after_every_step() {
    const PAGES: usize = 40;
    let memory = Memory::anonymous(PAGES);
    let mut out: Vec<LockedArea> = Vec::new();
    let mut below = random(17);
    for step in 0..600 {
        if out.is_empty() || (out.len() < 12 && below(2) == 0) {
            let start = below(PAGES);
            let end = start + 1 + below(PAGES - start);
            let kind = [Kind::Resident, Kind::OnFault, Kind::Pinned][below(3)];
            out.push(manager().lock(memory.pages(start..end), kind).unwrap());
        } else {
            drop(out.swap_remove(below(out.len())));
        }
        let mut model = vec![false; PAGES];
        for area in out.iter().filter(|a| a.kind != Kind::Pinned) {
            let first = (area.bytes.start - memory.0.start) / PAGE;
            model[first..first + area.bytes.len() / PAGE].fill(true);
        }
        assert_eq!(memory.locked(), model, "step {step}");
    }
    drop(out);
    assert_eq!(memory.locked_count(), 0);
    assert_eq!(areas(&memory), []);
}

#[test]
fn pins_nest_and_end_with_their_last_handle() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(16);
    let before = status_kib("VmPin:");
    let pinned = || (status_kib("VmPin:") - before) / 4;
    let outer = manager().lock(memory.all(), Kind::Pinned).unwrap();
    let inner = manager().lock(memory.pages(4..8), Kind::Pinned).unwrap();
    assert_eq!(pinned(), 20);
    drop(outer);
    assert_eq!(pinned(), 4);
    assert_eq!(manager().totals().pinned_bytes, 4 * PAGE);
    drop(inner);
    assert_eq!(pinned(), 0);
    assert_eq!(manager().totals(), Totals::default());
}

#[test]
fn intervals_are_listed_with_their_counts() {
    let memory = Memory::anonymous(8);
    let lock = |pages, kind| manager().lock(memory.pages(pages), kind).unwrap();
    let held = [
        lock(0..4, Kind::Resident),
        lock(2..8, Kind::Resident),
        lock(2..3, Kind::OnFault),
        lock(6..8, Kind::Pinned),
    ];
    let listed: Vec<_> = areas(&memory)
        .into_iter()
        .map(|i| {
            let page = |address| (address - memory.0.start) / PAGE;
            let Counts {
                resident,
                on_fault,
                pinned,
            } = i.counts;
            (
                page(i.bytes.start)..page(i.bytes.end),
                [resident, on_fault, pinned],
            )
        })
        .collect();
    let expected = [
        (0..2, [1, 0, 0]),
        (2..3, [2, 1, 0]),
        (3..4, [2, 0, 0]),
        (4..6, [1, 0, 0]),
        (6..8, [1, 0, 1]),
    ];
    assert_eq!(listed, expected);
    drop(held);
    assert_eq!(areas(&memory), []);
}

#[test]
fn impossible_ranges_are_refused_by_name() {
    let memory = Memory::anonymous(1);
    let start = memory.0.start;
    for kind in [Kind::Resident, Kind::OnFault, Kind::Pinned] {
        let refused = |bytes| manager().lock(bytes, kind).unwrap_err();
        assert!(matches!(refused(start..start), LockError::Empty { .. }));
        let overflow = start..start.wrapping_add(usize::MAX);
        assert!(matches!(refused(overflow), LockError::Overflow { .. }));
        let ends = [start + 1..start + PAGE, start..start + PAGE - 1];
        for bytes in ends {
            let error = refused(bytes);
            assert!(matches!(error, LockError::Alignment { .. }), "{error}");
            assert!(error.to_string().contains("pages_around"), "{error}");
        }
    }
}

#[test]
fn a_hole_is_named_and_nothing_is_locked() {
    let memory = Memory::anonymous(9);
    memory.unmap(4..6);
    let full = manager().lock(memory.pages(0..1), Kind::Resident).unwrap();
    let lazy = manager().lock(memory.pages(1..2), Kind::OnFault).unwrap();
    for kind in [Kind::Resident, Kind::OnFault, Kind::Pinned] {
        let (locked, listed) = (memory.locked(), areas(&memory));
        let hole = memory.pages(4..6);
        match manager().lock(memory.all(), kind).unwrap_err() {
            LockError::PartlyMapped { start, end } => assert_eq!(start..end, hole),
            error => panic!("{kind:?}: {error}"),
        }
        match manager().lock(hole.clone(), kind).unwrap_err() {
            LockError::Unmapped { start, end } => assert_eq!(start..end, hole),
            error => panic!("{kind:?}: {error}"),
        }
        assert_eq!(
            (memory.locked(), areas(&memory)),
            (locked, listed),
            "{kind:?}"
        );
    }
    // What was locked on fault still is, and no more than that.
    assert_eq!(memory.on_fault()[..2], [false, true]);
    drop((full, lazy));
    assert_eq!(memory.locked_count(), 0);
}

#[test]
fn forbidden_memory_is_refused_by_name() {
    let none = Memory::map(2, libc::PROT_NONE, None);
    for kind in [Kind::Resident, Kind::Pinned] {
        let error = manager().lock(none.all(), kind).unwrap_err();
        assert!(
            matches!(error, LockError::NoAccess { .. }),
            "{kind:?}: {error}"
        );
    }
    assert_eq!(none.locked_count(), 0);

    let read_only = Memory::map(2, libc::PROT_READ, None);
    let error = manager().lock(read_only.all(), Kind::Pinned).unwrap_err();
    assert!(matches!(error, LockError::ReadOnly { .. }), "{error}");
    let resident = manager().lock(read_only.all(), Kind::Resident);
    assert_eq!(resident.map(|a| a.bytes()).unwrap(), read_only.all());

    // In the source tree, because a temporary directory may be memory, which can be pinned.
    let mut path = std::env::current_exe().unwrap();
    path.set_extension(format!("lock-{}", std::process::id()));
    let options = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = options.unwrap();
    fs::remove_file(&path).unwrap();
    file.set_len(2 * PAGE as u64).unwrap();
    let mapped = Memory::map(2, libc::PROT_READ | libc::PROT_WRITE, Some(&file));
    let error = manager().lock(mapped.all(), Kind::Pinned).unwrap_err();
    assert!(matches!(error, LockError::File { .. }), "{error}");
    let resident = manager().lock(mapped.all(), Kind::Resident).unwrap();
    assert_eq!(mapped.locked_count(), 2);
    drop(resident);

    // A mapping that reaches beyond the end of its file cannot be brought in.
    let beyond = Memory::map(4, libc::PROT_READ | libc::PROT_WRITE, Some(&file));
    let error = manager().lock(beyond.all(), Kind::Resident).unwrap_err();
    assert!(matches!(error, LockError::Os { .. }), "{error}");
    assert_eq!(beyond.locked_count(), 0);
}

#[test]
fn a_lock_on_fault_takes_nothing_from_a_resident_one() {
    let memory = Memory::anonymous(6);
    let resident = manager().lock(memory.pages(1..3), Kind::Resident).unwrap();
    let lazy = manager().lock(memory.all(), Kind::OnFault).unwrap();
    assert_eq!(memory.locked_count(), 6);
    assert_eq!(memory.on_fault(), [true, false, false, true, true, true]);
    drop(resident);
    assert_eq!(memory.locked_count(), 6);
    drop(lazy);
    assert_eq!(memory.locked_count(), 0);
}

/// No watcher is told of guards. Who holds watched memory resident, too, need not fear them.
#[test]
fn the_kernel_puts_no_guards_into_resident_memory() {
    const GUARD_INSTALL: libc::c_int = 102;
    let memory = Memory::anonymous(2);
    // SAFETY: the range is our own mapping, to which no reference exists.
    let install =
        || unsafe { libc::madvise(pointer(&memory.pages(0..1)).cast(), PAGE, GUARD_INSTALL) };
    let area = Manager::of_process().lock(memory.pages(0..2), Kind::OnFault);
    let area = area.expect("two pages can be locked");
    assert_eq!(install(), -1);
    assert_eq!(
        io::Error::last_os_error().raw_os_error(),
        Some(libc::EINVAL)
    );
    area.unlock();
    if install() != 0 {
        onrush_testkit::skip::record("this kernel knows no guards (Linux 6.13)");
    }
}

#[test]
fn a_part_unmapped_while_locked_does_not_keep_the_rest_locked() {
    let memory = Memory::anonymous(6);
    let area = manager().lock(memory.all(), Kind::Resident).unwrap();
    memory.unmap(2..3);
    assert_eq!(memory.locked_count(), 5);
    drop(area);
    assert_eq!(memory.locked_count(), 0);
}

#[test]
fn memory_mapped_anew_is_locked_anew() {
    let memory = Memory::anonymous(4);
    let old = manager().lock(memory.all(), Kind::Resident).unwrap();
    memory.unmap(0..4);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let (at, bytes) = (pointer(&memory.0).cast(), memory.0.len());
    // SAFETY: at the address just given back, and only if nobody else has taken it.
    let again = unsafe { libc::mmap(at, bytes, libc::PROT_READ, flags, -1, 0) };
    assert_eq!(again.addr(), memory.0.start);
    assert_eq!(memory.locked_count(), 0);
    let new = manager().lock(memory.all(), Kind::Resident).unwrap();
    assert_eq!(memory.locked_count(), 4);
    drop(old);
    assert_eq!(memory.locked_count(), 4);
    drop(new);
    assert_eq!(memory.locked_count(), 0);
}

#[test]
fn a_cleanup_unlocks_everything_and_handles_know_it() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(8);
    let resident = manager().lock(memory.pages(0..6), Kind::Resident).unwrap();
    let pinned = manager().lock(memory.pages(2..8), Kind::Pinned).unwrap();
    assert_eq!(manager().totals().areas, 2);
    manager().cleanup();
    assert_eq!(manager().totals(), Totals::default());
    assert_eq!((memory.locked_count(), status_kib("VmPin:")), (0, 0));
    assert!(!resident.is_held() && !pinned.is_held());
    assert!(matches!(pinned.pages(), Err(LockError::Released)));
    // A handle that lost its memory does not unlock that of another.
    let again = manager().lock(memory.all(), Kind::Resident).unwrap();
    drop((resident, pinned));
    assert_eq!(memory.locked_count(), 8);
    drop(again);
}

#[test]
fn frames_and_blocks_say_where_pages_are() {
    let memory = Memory::anonymous(64);
    for kind in [Kind::Pinned, Kind::Resident, Kind::OnFault] {
        let area = manager().lock(memory.all(), kind).unwrap();
        let frames = match area.pages() {
            Err(LockError::FramesHidden) if !has_frames() => return,
            frames => frames.unwrap(),
        };
        assert_eq!(frames.len(), 64);
        let mut distinct = frames.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 64, "every page has a frame of its own");
        assert!(!frames.contains(&0));
        let spread: Vec<u64> = area
            .blocks()
            .unwrap()
            .iter()
            .flat_map(|b| b.frame..b.frame + b.frames as u64)
            .collect();
        assert_eq!(spread, frames);
    }
}

/// The paper's distinction, as far as one process can show it: who writes after a fork gets other
/// frames, unless they are pinned.
// SPECIFICATION.md: 50
#[test]
fn a_fork_and_a_write_move_resident_pages_and_not_pinned_ones() {
    let moved = |kind| {
        let memory = Memory::anonymous(16);
        (0..16).for_each(|page| memory.write(page, 1));
        let area = manager().lock(memory.all(), kind).unwrap();
        let before = area.pages()?;
        // SAFETY: the child sleeps until it is killed below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: waits for a signal; nothing else happens in the child.
                unsafe { libc::pause() };
            }
        }
        (0..16).for_each(|page| memory.write(page, 2));
        let after = area.pages();
        // SAFETY: the child is ours and has not been waited for.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        Ok(before.iter().zip(after?).filter(|(a, b)| **a != *b).count())
    };
    match moved(Kind::Pinned) {
        Err(LockError::FramesHidden) if !has_frames() => return,
        pinned => assert_eq!(pinned.unwrap(), 0),
    }
    assert!(moved(Kind::Resident).unwrap() > 0, "residency is no pin");
}

#[test]
fn a_forked_child_inherits_no_lock_and_undoes_none() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(8);
    let mut areas =
        [Kind::Resident, Kind::Pinned].map(|k| Some(manager().lock(memory.all(), k).unwrap()));
    let rings = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let ring = |e: &fs::DirEntry| {
            fs::read_link(e.path()).is_ok_and(|l| l.to_string_lossy().contains("io_uring"))
        };
        links.filter(|e| e.as_ref().is_ok_and(ring)).count()
    };
    assert_eq!(rings(), 1);
    let code = forked(|| {
        assert_eq!(manager().totals(), Totals::default());
        let [resident, pinned] = areas.each_mut().map(|a| a.take().unwrap());
        assert!(!resident.is_held() && !pinned.is_held());
        assert_eq!(
            rings(),
            0,
            "the parent's pins would last as long as the child"
        );
        let own = manager().lock(memory.pages(0..2), Kind::Pinned).unwrap();
        assert_eq!(status_kib("VmPin:"), 8);
        drop((resident, pinned));
        assert_eq!(
            status_kib("VmPin:"),
            8,
            "the copies have not touched the child's own"
        );
        assert_eq!(rings(), 1);
        assert_eq!(manager().totals().areas, 1);
        drop(own);
        0
    });
    assert_eq!(code, 0);
    assert_eq!(manager().totals().areas, 2);
    assert_eq!(memory.locked_count(), 8);
    assert_eq!(status_kib("VmPin:"), 32);
}

#[test]
fn a_child_made_past_libc_lets_go_at_its_first_use() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(2);
    let _area = manager().lock(memory.all(), Kind::Pinned).unwrap();
    let rings = || {
        let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
        links
            .filter(|to| to.to_string_lossy().contains("io_uring"))
            .count()
    };
    assert_eq!(rings(), 1);
    // SAFETY: as fork, but that no handler is called; the child only looks and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let before = rings();
        let empty = manager().areas().is_empty();
        let code = if before == 1 && empty && rings() == 0 {
            0
        } else {
            1
        };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: our own child; `status` is writable.
    unsafe { libc::waitpid(i32::try_from(child).unwrap(), &raw mut status, 0) };
    assert_eq!((status, rings()), (0, 1));
}

#[test]
fn more_slots_than_a_table_has_open_another_table() {
    if !alone() {
        return;
    }
    if !has_capability(CAP_IPC_LOCK) {
        return;
    }
    let memory = Memory::anonymous(1);
    let lock = || manager().lock(memory.all(), Kind::Pinned).unwrap();
    let held: Vec<_> = (0..SLOTS_MAX).map(|_| lock()).collect();
    assert_eq!(manager().inner().tables.len(), 1);
    let one_more = lock();
    assert_eq!(manager().inner().tables.len(), 2);
    drop(one_more);
    drop(held);
    let _again: Vec<_> = (0..=SLOTS_MAX).map(|_| lock()).collect();
    assert_eq!(manager().inner().tables.len(), 2, "slots are used again");
}

#[test]
fn one_handle_more_than_the_limit_is_refused() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(1);
    let lock = || manager().lock(memory.all(), Kind::OnFault);
    let mut held: Vec<_> = (0..AREAS_MAX).map(|_| lock().unwrap()).collect();
    let error = lock().unwrap_err();
    assert!(matches!(error, LockError::Areas), "{error}");
    assert_eq!(areas(&memory)[0].counts.on_fault as usize, AREAS_MAX);
    held.pop();
    held.push(lock().unwrap());
}

#[test]
fn a_forbidden_cut_of_mappings_is_named() {
    if !alone() {
        return;
    }
    let mappings_max: usize = fs::read_to_string("/proc/sys/vm/max_map_count")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    if mappings_max > AREAS_MAX {
        return;
    }
    let memory = Memory::anonymous(2 * mappings_max);
    let mut held = Vec::new();
    let error = loop {
        let page = held.len() * 2;
        match manager().lock(memory.pages(page..page + 1), Kind::OnFault) {
            Ok(area) => held.push(area),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LockError::Mappings { .. }), "{error}");
    assert!(held.len() > mappings_max / 4);
    assert_eq!(areas(&memory).len(), held.len());
}

#[test]
fn without_rights_locks_work_up_to_the_limit() {
    if !alone_without_rights() {
        return;
    }
    assert!(!has_capability(CAP_IPC_LOCK));
    let page_limit = 256;
    set_memlock((page_limit * PAGE) as u64);
    let memory = Memory::anonymous(page_limit + 1);
    for kind in [Kind::Resident, Kind::OnFault, Kind::Pinned] {
        let most = manager()
            .lock(memory.pages(0..page_limit - 16), kind)
            .unwrap();
        match most.pages() {
            Err(error @ LockError::FramesHidden) => {
                assert!(error.to_string().contains("CAP_SYS_ADMIN"));
            }
            other => panic!("{other:?}"),
        }
        let error = manager().lock(memory.all(), kind).unwrap_err();
        assert!(
            matches!(error, LockError::Limit { .. }),
            "{kind:?}: {error}"
        );
        assert!(error.to_string().contains("RLIMIT_MEMLOCK"));
        drop(most);
        assert_eq!(areas(&memory), []);
        assert_eq!(memory.locked_count(), 0);
    }
    set_memlock(0);
    for kind in [Kind::Resident, Kind::Pinned] {
        let error = manager().lock(memory.pages(0..1), kind).unwrap_err();
        assert!(
            matches!(error, LockError::NotPermitted),
            "{kind:?}: {error}"
        );
        assert!(error.to_string().contains("CAP_IPC_LOCK"));
        assert!(error.is_permission());
    }
}
