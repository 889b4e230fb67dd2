//! Rings that share the manager's pins, by what the kernel accounts and by what they can write.

use std::io;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use io_uring::{IoUring, opcode, types};

use super::*;
use crate::memory::{Area, MemoryError};

fn borrow(ring: &IoUring) -> BorrowedFd<'_> {
    // SAFETY: the ring lives as long as the borrow, and with it its descriptor.
    unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) }
}

/// Writes a byte of registered memory into a pipe and returns what arrived, or the errno.
fn write_fixed(ring: &mut IoUring, buffer: u16, address: usize) -> Result<u8, i32> {
    let (mut reader, writer) = io::pipe().unwrap();
    let from = ptr::without_provenance(address);
    let entry = opcode::WriteFixed::new(types::Fd(writer.as_raw_fd()), from, 1, buffer).build();
    // SAFETY: the kernel checks that the byte lies in the buffer, whose pages the ring has pinned.
    unsafe { ring.submission().push(&entry) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    let result = ring.completion().next().unwrap().result();
    if result != 1 {
        return Err(-result);
    }
    drop(OwnedFd::from(writer));
    let mut arrived = Vec::new();
    reader.read_to_end(&mut arrived).unwrap();
    Ok(arrived[0])
}

#[test]
fn a_ring_shares_a_pin_that_counts_twice_and_costs_once() {
    if !alone() {
        return;
    }
    assert!(rings_share_pins(), "Linux 6.13");
    let memory = Memory::anonymous(4);
    memory.write(3, b's');
    let pinned = manager().lock(memory.all(), Kind::Pinned).unwrap();
    let mut rings = [IoUring::new(4).unwrap(), IoUring::new(4).unwrap()];
    let theirs: Vec<_> = rings
        .iter()
        .map(|r| manager().register(borrow(r), memory.all()).unwrap())
        .collect();
    assert_eq!(status_kib("VmPin:"), 16, "accounted once for all three");
    assert_eq!(manager().areas()[0].counts.pinned, 3);
    assert_eq!(manager().totals().pinned_bytes, 4 * PAGE);
    let last = memory.pages(3..4).start;
    for ring in &mut rings {
        assert_eq!(write_fixed(ring, 0, last), Ok(b's'));
    }
    // A second table is refused and changes nothing.
    let error = manager()
        .register(borrow(&rings[0]), memory.all())
        .unwrap_err();
    assert!(matches!(error, LockError::Os { .. }), "{error}");
    assert_eq!(manager().areas()[0].counts.pinned, 3);
    // Who shares a pin does not depend on who made it.
    drop(pinned);
    assert_eq!(status_kib("VmPin:"), 16);
    assert_eq!(write_fixed(&mut rings[1], 0, last), Ok(b's'));
    drop(theirs);
    assert!(manager().areas().is_empty());
}

/// A handle from before the memory was mapped anew pins pages that lie at no address any more.
#[test]
fn a_ring_shares_the_newest_pin_of_its_addresses() {
    if !alone() {
        return;
    }
    assert!(rings_share_pins(), "Linux 6.13");
    let memory = Memory::anonymous(4);
    memory.write(0, b'o');
    let _stale = manager().lock(memory.all(), Kind::Pinned).unwrap();
    rig::map_fixed(&memory.all());
    memory.write(0, b'n');
    let _fresh = manager().lock(memory.all(), Kind::Pinned).unwrap();
    let mut rings = [IoUring::new(4).unwrap(), IoUring::new(4).unwrap()];
    let _whole = manager().register(borrow(&rings[0]), memory.all()).unwrap();
    let mut buffers = RingBuffers::new(borrow(&rings[1]), 1).unwrap();
    buffers.push(borrow(&rings[1]), memory.all()).unwrap();
    for ring in &mut rings {
        assert_eq!(write_fixed(ring, 0, memory.all().start), Ok(b'n'));
    }
    assert_eq!(status_kib("VmPin:"), 32, "both share");
}

#[test]
fn a_ring_registers_for_itself_what_nobody_has_pinned() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(4);
    memory.write(1, b'o');
    let _wider = manager().lock(memory.all(), Kind::Pinned).unwrap();
    let mut ring = IoUring::new(4).unwrap();
    let part = memory.pages(0..2);
    let area = manager().register(borrow(&ring), part.clone()).unwrap();
    assert_eq!(status_kib("VmPin:"), 16 + 8);
    assert_eq!((area.kind(), area.bytes()), (Kind::Pinned, part));
    assert_eq!(
        write_fixed(&mut ring, 0, memory.pages(1..2).start),
        Ok(b'o')
    );
    let refused = manager()
        .register(borrow(&IoUring::new(1).unwrap()), 0..PAGE)
        .unwrap_err();
    assert!(matches!(refused, LockError::Unmapped { .. }), "{refused}");
    drop(area);
    assert_eq!(manager().totals().areas, 1);
}

/// The same 2 MiB of memory, mapped over and over: addresses cost nothing.
fn repeated(bytes: usize) -> Memory {
    const UNIT: usize = 2 << 20;
    let file = memfd(UNIT).unwrap();
    let memory = Memory::map(bytes / PAGE, libc::PROT_NONE, None);
    for start in memory.all().step_by(UNIT) {
        let length = UNIT.min(memory.all().end - start);
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
        );
        let at = ptr::without_provenance_mut(start);
        // SAFETY: replaces a part of the test's own mapping, to which it holds no references.
        let base = unsafe { libc::mmap(at, length, protection, flags, file.as_raw_fd(), 0) };
        assert_eq!(base.addr(), start);
    }
    memory
}

#[test]
fn what_is_longer_than_a_buffer_is_registered_as_several() {
    if !alone() {
        return;
    }
    for (bytes, is_two) in [(BUFFER_BYTES_MAX, false), (BUFFER_BYTES_MAX + PAGE, true)] {
        let memory = repeated(bytes);
        let last = memory.all().end - 1;
        memory.write(0, b'f');
        memory.write(bytes / PAGE - 1, b'l');
        let last_page = last / PAGE * PAGE;
        // Once by a pin of the ring's own, once by the manager's.
        let mut pinned = None;
        for is_shared in [false, true] {
            if is_shared {
                pinned = Some(manager().lock(memory.all(), Kind::Pinned).unwrap());
            }
            let mut ring = IoUring::new(4).unwrap();
            let area = manager().register(borrow(&ring), memory.all()).unwrap();
            let buffer = u16::from(is_two);
            assert_eq!(write_fixed(&mut ring, buffer, last_page), Ok(b'l'));
            assert_eq!(
                write_fixed(&mut ring, buffer + 1, last_page),
                Err(libc::EFAULT)
            );
            assert_eq!(
                write_fixed(&mut ring, 0, last_page).is_err(),
                is_two,
                "the first buffer ends where the second begins"
            );
            drop(area);
        }
        drop(pinned);
    }
}

#[test]
fn a_rings_buffers_come_one_by_one_and_are_pinned_once() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(6);
    let mut ring = IoUring::new(4).unwrap();
    let mut buffers = RingBuffers::new(borrow(&ring), 3).unwrap();
    let mut pinned: Option<LockedArea> = None;
    for (number, pages) in [0..1, 1..3, 3..6].into_iter().enumerate() {
        let (bytes, last) = (memory.pages(pages.clone()), pages.end - 1);
        memory.write(last, b'0' + u8::try_from(number).unwrap());
        let before = write_fixed(&mut ring, u16::try_from(number).unwrap(), bytes.start);
        assert_eq!(before, Err(libc::EFAULT), "no such buffer yet");
        match &mut pinned {
            Some(pinned) => pinned.extend(bytes.clone()).unwrap(),
            None => pinned = Some(manager().lock(bytes.clone(), Kind::Pinned).unwrap()),
        }
        assert!(buffers.try_push(borrow(&ring), bytes).unwrap());
        // What came before is still there.
        for (number, last) in [0, 2, 5].into_iter().take(number + 1).enumerate() {
            let buffer = u16::try_from(number).unwrap();
            let address = memory.pages(last..last + 1).start;
            let expected = b'0' + u8::try_from(number).unwrap();
            assert_eq!(write_fixed(&mut ring, buffer, address), Ok(expected));
        }
        assert_eq!(status_kib("VmPin:"), 4 * pages.end, "accounted once");
        let [area] = &manager().areas()[..] else {
            panic!("one interval, held by two");
        };
        assert_eq!(
            (area.bytes.end, area.counts.pinned),
            (memory.pages(pages).end, 2)
        );
    }
    assert_eq!((buffers.len(), manager().totals().areas), (3, 2));
    drop((ring, buffers, pinned));
    assert!(manager().areas().is_empty());
    for slots in [0, usize::from(SLOTS_MAX) + 1] {
        let ring = IoUring::new(1).unwrap();
        assert!(RingBuffers::new(borrow(&ring), slots).is_err());
    }
}

#[test]
fn a_ring_pins_for_itself_what_is_only_resident() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(4);
    memory.write(3, b'r');
    let mut resident = manager().lock(memory.pages(0..2), Kind::Resident).unwrap();
    resident.extend(memory.pages(2..4)).unwrap();
    assert_eq!(memory.locked_count(), 4);
    let mut ring = IoUring::new(4).unwrap();
    let mut buffers = RingBuffers::new(borrow(&ring), 2).unwrap();
    for pages in [0..2, 2..4] {
        buffers.push(borrow(&ring), memory.pages(pages)).unwrap();
    }
    assert_eq!(status_kib("VmPin:"), 16);
    assert_eq!(
        write_fixed(&mut ring, 1, memory.pages(3..4).start),
        Ok(b'r')
    );
    drop(resident);
    assert_eq!(memory.locked_count(), 0);
}

#[test]
fn nobody_waits_to_give_a_ring_its_buffers() {
    if !alone() {
        return;
    }
    let memory = Memory::anonymous(1);
    let ring = IoUring::new(1).unwrap();
    let mut buffers = RingBuffers::new(borrow(&ring), 1).unwrap();
    let others = manager().inner();
    assert!(!buffers.try_push(borrow(&ring), memory.all()).unwrap());
    drop(others);
    assert!(buffers.try_push(borrow(&ring), memory.all()).unwrap());
}

#[test]
fn at_its_limit_an_area_stays_as_it_is() {
    const PIECE: usize = 1 << 20;
    if !alone_without_rights() {
        return;
    }
    for (kind, field) in [(Kind::Pinned, "VmPin:"), (Kind::Resident, "VmLck:")] {
        set_memlock((PIECE + PIECE / 2) as u64);
        let area = Area::reserve_in_pieces(3 * PIECE, false, Some(kind), PIECE).unwrap();
        assert_eq!(area.grow(|| false).unwrap(), PIECE);
        for _ in 0..2 {
            let error = area.grow(|| false).unwrap_err();
            assert!(
                matches!(error, MemoryError::Lock(LockError::Limit { .. })),
                "{error}"
            );
            assert!(error.to_string().contains("RLIMIT_MEMLOCK"));
            assert_eq!((area.ready_bytes(), area.locked()), (PIECE, Some(kind)));
            assert_eq!(status_kib(field), PIECE >> 10);
            // What was touched for nothing is given back.
            let after = addresses(&page_numbers(&area.addresses(PIECE..2 * PIECE)));
            assert!(resident_pages(&after).iter().all(|&there| !there));
        }
        set_memlock((3 * PIECE) as u64);
        assert_eq!(area.grow(|| false).unwrap(), 2 * PIECE);
    }
}

/// Which pages are in memory: mincore(2).
fn resident_pages(bytes: &Range<usize>) -> Vec<bool> {
    let mut there = vec![0u8; bytes.len() / PAGE];
    // SAFETY: the vector has a byte for each page; mincore changes nothing else.
    let result = unsafe { libc::mincore(pointer(bytes).cast(), bytes.len(), there.as_mut_ptr()) };
    assert_eq!(result, 0);
    there.into_iter().map(|byte| byte & 1 == 1).collect()
}
