//! A ring's table of registered buffers: what pins memory for long.
//!
//! A registration takes a `FOLL_LONGTERM` pin on every page of a buffer. Pins nest in the kernel,
//! so every handle has a registration of its own and nobody has to count. The table is registered
//! once, empty (`IORING_RSRC_REGISTER_SPARSE`, Linux 5.19), and its slots are filled and emptied
//! one at a time.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::IoUring;

use super::process::KeptFd;

/// Buffers a table can hold (io_uring/rsrc.h, IORING_MAX_REG_BUFFERS).
pub const SLOTS_MAX: u16 = 1 << 14;

/// Bytes of one buffer (io_uring/rsrc.c, io_buffer_validate: SZ_1G).
pub const BUFFER_BYTES_MAX: usize = 1 << 30;

/// The table of one ring.
#[derive(Debug)]
pub(super) struct Table {
    fd: KeptFd,
    slots: u16,
    /// Slots below this have been used before.
    fresh: u16,
    free: Vec<u16>,
}

impl Table {
    /// A table on a ring of its own, which exists for nothing else; `None` as of [`Self::on`].
    pub(super) fn on_own_ring() -> io::Result<Option<Self>> {
        let ring = IoUring::new(1)?;
        // SAFETY: the ring lives to the end of this function, and with it its descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        Self::on(fd, SLOTS_MAX)
    }

    /// A table on somebody's ring, which must have none yet; `None` if this process has
    /// [`TABLES_MAX`](super::TABLES_MAX). The ring lives until both let go of it.
    pub(super) fn on(ring: BorrowedFd<'_>, slots: u16) -> io::Result<Option<Self>> {
        let slots = slots.min(SLOTS_MAX);
        let Some(fd) = KeptFd::new(ring.try_clone_to_owned()?) else {
            return Ok(None);
        };
        // Last: the ring would keep it, and refuse the next one, if anything failed behind it.
        register_empty(ring, slots)?;
        Ok(Some(Self {
            fd,
            slots,
            fresh: 0,
            free: Vec::new(),
        }))
    }

    /// Pins `bytes` of memory at addresses and returns the slot. At most [`BUFFER_BYTES_MAX`];
    /// `None` if no slot is free.
    pub(super) fn pin(&mut self, bytes: &Range<usize>) -> Option<io::Result<u16>> {
        let slot = self.free.pop().or_else(|| {
            let slot = self.fresh;
            (slot < self.slots).then(|| {
                self.fresh += 1;
                slot
            })
        })?;
        let result = self.update(slot, bytes);
        if result.is_err() {
            self.free.push(slot);
        }
        Some(result.map(|()| slot))
    }

    /// Gives the slot back. The pages stay pinned until the last operation that uses them has
    /// ended.
    pub(super) fn unpin(&mut self, slot: u16) {
        let result = self.update(slot, &(0..0));
        // The kernel refuses it only if there is no such slot or no memory for an empty one. The
        // slot is not given out again then, so the worst is that its pages stay where they are.
        match result {
            Ok(()) => self.free.push(slot),
            Err(error) => tracing::error!(slot, %error, "a registered buffer stays registered"),
        }
    }

    /// Registers `bytes` in place of what the slot holds; nothing, if they are none, at address 0.
    pub(super) fn update(&self, slot: u16, bytes: &Range<usize>) -> io::Result<()> {
        update(self.fd.as_raw_fd(), slot, bytes)
    }

    /// Lets `ring` have what the slot holds as its buffer number `at`: the same pin, accounted once
    /// (Linux 6.13). Both rings must be accounted to the same user. `has_table`: whether the ring
    /// has buffers, or room for them, already.
    pub(super) fn share(
        &self,
        slot: u16,
        ring: BorrowedFd<'_>,
        at: u32,
        has_table: bool,
    ) -> io::Result<()> {
        let argument = CloneBuffers {
            src_fd: self.fd.as_raw_fd().unsigned_abs(),
            flags: if has_table { REGISTER_DST_REPLACE } else { 0 },
            src_off: u32::from(slot),
            dst_off: at,
            nr: 1,
            pad: [0; 3],
        };
        let argument = (&raw const argument).cast();
        // SAFETY: the operation reads one argument of the kernel's layout, and no memory of ours.
        unsafe { register_any(ring.as_raw_fd(), REGISTER_CLONE_BUFFERS, argument, 1) }
    }
}

/// Gives `ring`, which must have no buffers, room for so many.
pub(super) fn register_empty(ring: BorrowedFd<'_>, slots: u16) -> io::Result<()> {
    let argument = RsrcRegister {
        nr: u32::from(slots),
        flags: REGISTER_SPARSE,
        ..RsrcRegister::default()
    };
    // SAFETY: a sparse registration reads the argument, which has the layout and size of the
    // kernel's, and no buffers.
    unsafe { register(ring.as_raw_fd(), REGISTER_BUFFERS2, &argument) }
}

/// Registers `bytes` with a ring in place of what the slot holds; nothing, if they are none, at
/// address 0.
pub(super) fn update(ring: RawFd, slot: u16, bytes: &Range<usize>) -> io::Result<()> {
    let buffer = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(bytes.start),
        iov_len: bytes.len(),
    };
    let argument = RsrcUpdate2 {
        offset: u32::from(slot),
        data: (&raw const buffer).addr() as u64,
        nr: 1,
        ..RsrcUpdate2::default()
    };
    // SAFETY: the argument has the layout and size of the kernel's and names one iovec, which
    // lives for the call. Memory that is not there is an error; memory that goes away stays
    // pinned.
    unsafe { register(ring, REGISTER_BUFFERS_UPDATE, &argument) }
}

/// Registers `parts`, each at most [`BUFFER_BYTES_MAX`] of memory at addresses, as the buffers 0,
/// 1, ... of `ring`, which must have none.
pub(super) fn register_all(
    ring: BorrowedFd<'_>,
    parts: impl Iterator<Item = Range<usize>>,
) -> io::Result<()> {
    let buffers: Vec<_> = parts
        .map(|part| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(part.start),
            iov_len: part.len(),
        })
        .collect();
    let argument = buffers.as_ptr().cast();
    // SAFETY: the operation reads as many iovecs as it is told. Memory that is not there is an
    // error; memory that goes away stays pinned.
    unsafe { register_any(ring.as_raw_fd(), REGISTER_BUFFERS, argument, buffers.len()) }
}

/// Takes all buffers from `ring`.
pub(super) fn unregister_all(ring: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the operation reads no argument. Operations under way keep what they use.
    unsafe { register_any(ring.as_raw_fd(), UNREGISTER_BUFFERS, std::ptr::null(), 0) }
}

/// `struct io_uring_rsrc_register`.
#[derive(Default)]
#[repr(C)]
struct RsrcRegister {
    nr: u32,
    flags: u32,
    resv2: u64,
    data: u64,
    tags: u64,
}

/// `struct io_uring_rsrc_update2`.
#[derive(Default)]
#[repr(C)]
struct RsrcUpdate2 {
    offset: u32,
    resv: u32,
    data: u64,
    tags: u64,
    nr: u32,
    resv2: u32,
}

/// `struct io_uring_clone_buffers`.
#[repr(C)]
struct CloneBuffers {
    src_fd: u32,
    flags: u32,
    src_off: u32,
    dst_off: u32,
    nr: u32,
    pad: [u32; 3],
}

const _: () = assert!(
    size_of::<RsrcRegister>() == 32
        && size_of::<RsrcUpdate2>() == 32
        && size_of::<CloneBuffers>() == 32
);

const REGISTER_BUFFERS: libc::c_uint = 0;
const UNREGISTER_BUFFERS: libc::c_uint = 1;
const REGISTER_BUFFERS2: libc::c_uint = 15;
const REGISTER_BUFFERS_UPDATE: libc::c_uint = 16;
const REGISTER_CLONE_BUFFERS: libc::c_uint = 30;
const REGISTER_SPARSE: u32 = 1;
const REGISTER_DST_REPLACE: u32 = 2;

/// # Safety
///
/// `argument` must be what the operation expects, if its size is what it expects last.
unsafe fn register<T>(fd: RawFd, operation: libc::c_uint, argument: &T) -> io::Result<()> {
    let argument = std::ptr::from_ref(argument);
    // SAFETY: `argument` is readable for its size; what it says is the caller's promise.
    unsafe { register_any(fd, operation, argument.cast(), size_of::<T>()) }
}

/// # Safety
///
/// `argument` and `count` must be what the operation expects.
unsafe fn register_any(
    fd: RawFd,
    operation: libc::c_uint,
    argument: *const libc::c_void,
    count: usize,
) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, argument, count) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
