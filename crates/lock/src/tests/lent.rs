//! Sealed memory that is on loan: nobody else gets it while the kernel may still send it.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, types};

use super::rig::{Rig, borrow};
use super::*;

const LONG: Duration = Duration::from_secs(60);

fn budget(bytes_max: usize) -> Budget {
    Budget {
        keep: Keep::Sealed,
        entries_max: 4,
        bytes_max,
    }
}

#[test]
fn memory_on_loan_is_not_handed_out_anew() {
    if !alone() {
        return;
    }
    // Of the first size the registration is kept, of the second it is not.
    for (pages, uncached) in [(2, None), (5, Some(Uncached::Budget))] {
        let mut rig = Rig::new(budget(4 * PAGE));
        let memory = Sealed::map(pages * PAGE).unwrap();
        let bytes = memory.bytes();
        let whole = rig.cache.acquire(bytes.clone()).unwrap();
        assert_eq!(whole.uncached(), uncached);
        let part = rig.cache.acquire(bytes.start + 10..bytes.start + 20);
        let part = part.unwrap();
        drop(memory);
        let mut others = Vec::new();
        let mut next = || {
            others.push(Sealed::map(pages * PAGE).unwrap());
            others[others.len() - 1].bytes()
        };
        assert_ne!(next(), bytes);
        rig.cache.release(whole);
        assert_ne!(next(), bytes, "a part of it is on loan");
        rig.cache.release(part);
        assert_eq!(next(), bytes);
        assert_ne!(next(), bytes, "it is somebody's again");
    }
}

#[test]
fn a_loan_of_two_pieces_keeps_both() {
    if !alone() {
        return;
    }
    let pieces: Vec<_> = (0..8).map(|_| Sealed::map(PAGE).unwrap()).collect();
    // The kernel maps them next to each other, mostly.
    let mut bytes: Vec<_> = pieces.iter().map(Sealed::bytes).collect();
    bytes.sort_by_key(|it| it.start);
    let pair = bytes.windows(2).find(|pair| pair[0].end == pair[1].start);
    let pair = pair.expect("two of eight are neighbours");
    let mut rig = Rig::new(budget(4 * PAGE));
    let loan = rig.cache.acquire(pair[0].start..pair[1].end).unwrap();
    drop(pieces);
    let again: Vec<_> = (0..6).map(|_| Sealed::map(PAGE).unwrap()).collect();
    assert!(again.iter().all(|it| !pair.contains(&it.bytes())));
    assert!(!pair.contains(&Sealed::map(PAGE).unwrap().bytes()));
    rig.cache.release(loan);
    // The seventh came back at once.
    let last: Vec<_> = (0..3).map(|_| Sealed::map(PAGE).unwrap()).collect();
    let back = last.iter().filter(|it| pair.contains(&it.bytes()));
    assert_eq!(back.count(), 2);
}

#[test]
fn a_forgotten_loan_keeps_its_memory() {
    if !alone() {
        return;
    }
    let memory = Sealed::map(PAGE).unwrap();
    let bytes = memory.bytes();
    let mut rig = Rig::new(budget(4 * PAGE));
    let _forgotten = rig.cache.acquire(bytes.clone()).unwrap();
    drop((rig, memory));
    assert_ne!(Sealed::map(PAGE).unwrap().bytes(), bytes);
}

/// Bytes that wait in a connection whose receiver does not read lie in the memory itself.
#[test]
fn what_waits_to_be_sent_is_not_wiped() {
    const BYTES: usize = 512 << 10;
    if !alone() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_buffer(&listener, libc::SO_RCVBUF, 4096);
    let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    set_buffer(&from, libc::SO_SNDBUF, 8 << 20);
    let (mut to, _) = listener.accept().unwrap();
    to.set_read_timeout(Some(LONG)).unwrap();

    let mut ring = IoUring::new(8).unwrap();
    let mut cache = Cache::new(borrow(&ring), budget(1 << 20)).unwrap();
    let mut memory = Sealed::map(BYTES).unwrap();
    memory.fill(b'k');
    let loan = cache.acquire(memory.bytes()).unwrap();
    let length = u32::try_from(BYTES).unwrap();
    let entry = opcode::SendZc::new(
        types::Fd(from.as_raw_fd()),
        pointer(&memory.bytes()),
        length,
    );
    let entry = entry.buf_index(Some(loan.buffer()));
    let entry = entry.flags(libc::MSG_WAITALL).build();
    // SAFETY: the buffer is registered, so its pages outlive the operation.
    unsafe { ring.submission().push(&entry) }.unwrap();
    ring.submit_and_wait(1).unwrap();
    let done = ring.completion().next().unwrap();
    assert_eq!(done.result(), i32::try_from(length).unwrap());
    assert!(cqueue::more(done.flags()), "it is told when all has left");
    assert!(ring.completion().next().is_none(), "and has not yet");

    drop(memory);
    let mut others: Vec<_> = (0..3).map(|_| Sealed::map(BYTES).unwrap()).collect();
    others.iter_mut().for_each(|other| other.fill(b'x'));
    let mut arrived = vec![0; BYTES];
    to.read_exact(&mut arrived).unwrap();
    let wrong = arrived.iter().filter(|byte| **byte != b'k').count();
    assert_eq!(wrong, 0, "of {BYTES} bytes");
    ring.submit_and_wait(1).unwrap();
    assert!(cqueue::notif(ring.completion().next().unwrap().flags()));
    cache.release(loan);
}

fn set_buffer(socket: &impl AsRawFd, option: libc::c_int, bytes: libc::c_int) {
    let size = libc::socklen_t::try_from(size_of_val(&bytes)).unwrap();
    let value = (&raw const bytes).cast();
    let fd = socket.as_raw_fd();
    // SAFETY: the option is a number, which the kernel reads from `bytes`.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, value, size) };
    assert_eq!(result, 0);
}
