//! The calls of bpf(2) that find what another process has attached, as far as the library that
//! loads programs has none for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A program that is attached to a device, and what attaches it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Attached {
    pub(super) program_id: u32,
    pub(super) link_id: u32,
}

/// Programs at the egress of a device of this thread's network namespace (CAP_NET_ADMIN).
pub(super) fn at_egress(ifindex: u32) -> io::Result<Vec<Attached>> {
    let (mut program_ids, mut link_ids) = ([0_u32; PROGRAMS_MAX], [0_u32; PROGRAMS_MAX]);
    let mut query = ProgQuery {
        ifindex,
        attach_type: BPF_TCX_EGRESS,
        program_ids: program_ids.as_mut_ptr() as u64,
        count: u32::try_from(PROGRAMS_MAX).expect("a small number"),
        link_ids: link_ids.as_mut_ptr() as u64,
        ..ProgQuery::default()
    };
    bpf(BPF_PROG_QUERY, &mut query)?;
    let count = query.count as usize;
    let both = program_ids.into_iter().zip(link_ids).take(count);
    let attached = both.map(|(program_id, link_id)| Attached {
        program_id,
        link_id,
    });
    Ok(attached.collect())
}

/// A descriptor of what attaches a program: it stays attached as long as one is open
/// (CAP_SYS_ADMIN).
pub(super) fn link(id: u32) -> io::Result<OwnedFd> {
    let fd = bpf(
        BPF_LINK_GET_FD_BY_ID,
        &mut ById {
            id,
            ..ById::default()
        },
    )?;
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The program that is first in an array of programs, by its id.
pub(super) fn first_program(array: BorrowedFd<'_>) -> io::Result<u32> {
    let (key, mut value) = (0_u32, 0_u32);
    let mut element = Element {
        map_fd: array.as_raw_fd().cast_unsigned(),
        key: (&raw const key) as u64,
        value: (&raw mut value) as u64,
        ..Element::default()
    };
    bpf(BPF_MAP_LOOKUP_ELEM, &mut element)?;
    Ok(value)
}

fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: `attributes` is what bpf(2) reads and writes for the command, of the size given; what
    // it points to is the caller's, alive and as long as it says.
    let done = unsafe {
        let attributes = (attributes as *mut T).cast::<libc::c_void>();
        libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>())
    };
    match libc::c_int::try_from(done) {
        Ok(done) if done >= 0 => Ok(done),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `union bpf_attr`, of BPF_PROG_QUERY.
#[derive(Default)]
#[repr(C)]
struct ProgQuery {
    ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    program_ids: u64,
    count: u32,
    pad: u32,
    program_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// The same, of BPF_LINK_GET_FD_BY_ID.
#[derive(Default)]
#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The same, of BPF_MAP_LOOKUP_ELEM.
#[derive(Default)]
#[repr(C)]
struct Element {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// More than the kernel attaches to a device (include/linux/bpf_mprog.h, BPF_MPROG_MAX is 64).
const PROGRAMS_MAX: usize = 64;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_TCX_EGRESS: u32 = 47;
