//! `uring`: a batch of zero-copy sends from registered memory, each with the address of a member.
//!
//! The ring has registered the group's area, and one of its own into which other bytes are copied
//! once; a send for a member is then an address and a descriptor. What the kernel still needs may
//! not be written again: it says so in a second completion, for which [`Uring::settle`] waits.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use thiserror::Error;

use super::direct::{Direct, Slots};
use super::members::{Members, Name};
use super::{GroupError, Sent, Train};
use onrush_lock::memory::{Area, MemoryError};
use onrush_sys::path::TRAIN_BYTES_MAX;

/// Sends handed over in one crossing.
const BATCH_SENDS_MAX: usize = 256;

/// Buffers for bytes that do not lie in the area: that many sends may be under way before one has
/// to wait.
const COPIES: usize = 8;

/// Sends by the ring.
pub(super) struct Uring {
    // First, so that the ring, and with it the registration, goes before the memory.
    pub(super) sends: RingSends,
    pub(super) direct: Direct,
    pub(super) area: Option<Area>,
    copies: Area,
    copy: usize,
}

/// A ring, and the sends from its registered memory that are under way.
pub(super) struct RingSends {
    pub(super) ring: IoUring,
    /// Names that the entries of a batch point to.
    names: Vec<Name>,
    /// Sends whose memory the kernel may still need.
    in_flight: usize,
    pub(super) crossings: u64,
    pub(super) zero_copy: u64,
    pub(super) copied: u64,
}

/// A train, or a single packet, in registered memory.
#[derive(Clone, Copy)]
pub(super) struct RegisteredTrain {
    pub(super) start: *const u8,
    pub(super) bytes: usize,
    pub(super) packets: usize,
}

/// Why no ring sends here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UringError {
    /// io_uring cannot be used.
    #[error(
        "io_uring is not available: {0} (it needs Linux 6.2, kernel.io_uring_disabled=0 and no \
         seccomp filter against it)"
    )]
    Ring(#[source] io::Error),
    /// The kernel has no zero-copy send.
    #[error("this kernel has no IORING_OP_SEND_ZC (Linux 6.0)")]
    SendZc,
    /// The memory cannot be registered.
    #[error(
        "cannot register the group's memory with io_uring: {0}; raise RLIMIT_MEMLOCK (ulimit -l)"
    )]
    Register(#[source] io::Error),
    /// There is no memory to send from.
    #[error("memory to send from: {0}")]
    Memory(#[from] MemoryError),
}

impl Uring {
    /// A ring that has registered `area` and some memory of its own.
    pub(super) fn open(direct: Direct, area: Option<Area>) -> Result<Self, UringError> {
        let sends = RingSends::open()?;
        // Base pages: zero-copy memory is charged from the start of its page (io_uring/net.c).
        let copies = Area::map_base(COPIES * COPY_BYTES)?;
        let buffers: Vec<_> = [Some(&copies), area.as_ref()]
            .into_iter()
            .flatten()
            .map(|area| libc::iovec {
                iov_base: area.base().as_ptr().cast(),
                iov_len: area.bytes_total(),
            })
            .collect();
        // SAFETY: the buffers are areas that this value owns; the registration pins their pages,
        // and the ring is dropped before them.
        unsafe { sends.ring.submitter().register_buffers(&buffers) }
            .map_err(UringError::Register)?;
        Ok(Self {
            sends,
            direct,
            area,
            copies,
            copy: 0,
        })
    }

    pub(super) fn send(&mut self, fd: RawFd, members: &mut Members, train: Train<'_>) -> Sent {
        let all = Slots::All(members.len());
        // One member gains nothing from a ring, and an empty datagram is no range of a buffer.
        if members.len() < 2
            || train.bytes.is_empty()
            || self.direct.set_segment(fd, train).is_err()
        {
            return self.direct.send(fd, members, all, train);
        }
        let (start, buffer) = self.registered(train);
        let registered = RegisteredTrain {
            start,
            bytes: train.bytes.len(),
            packets: train.packets(),
        };
        let before = self.sends.crossings;
        let sent = self.sends.send(fd, buffer, [registered], members);
        self.direct.crossings += self.sends.crossings - before;
        sent
    }

    /// Waits until the kernel needs no memory of ours any more.
    pub(super) fn settle(&mut self) {
        self.sends.settle();
    }

    /// Where the train lies in registered memory, and in which buffer; copied there if need be.
    fn registered(&mut self, train: Train<'_>) -> (*const u8, u16) {
        let start = train.bytes.as_ptr();
        if let Some(area) = &self.area {
            let base = area.base().as_ptr().addr();
            if (base..base + area.bytes_total()).contains(&start.addr()) {
                return (start, 1);
            }
        }
        self.copy += 1;
        if self.copy.is_multiple_of(COPIES) {
            // Round once: the first copies may still be under way.
            self.settle();
        }
        let offset = self.copy % COPIES * COPY_BYTES;
        let to = self.copies.base().as_ptr().wrapping_add(offset);
        // SAFETY: the train is at most TRAIN_BYTES_MAX, and so fits the copy, which lies in the
        // area of ours that nobody else knows; the two do not overlap. The kernel has no use for
        // the copy's old bytes: they were sent before the last `settle`.
        unsafe { std::ptr::copy_nonoverlapping(start, to, train.bytes.len()) };
        (to.cast_const(), 0)
    }
}

impl RingSends {
    pub(super) fn open() -> Result<Self, UringError> {
        let mut builder = IoUring::builder();
        builder.setup_submit_all().setup_coop_taskrun();
        builder.setup_cqsize(u32::try_from(BATCH_SENDS_MAX * 4).expect("a small number"));
        let entries = u32::try_from(BATCH_SENDS_MAX).expect("a small number");
        let ring = builder.build(entries).map_err(UringError::Ring)?;
        let mut probe = Probe::new();
        ring.submitter()
            .register_probe(&mut probe)
            .map_err(UringError::Ring)?;
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(UringError::SendZc);
        }
        Ok(Self {
            ring,
            names: Vec::with_capacity(BATCH_SENDS_MAX),
            in_flight: 0,
            crossings: 0,
            zero_copy: 0,
            copied: 0,
        })
    }

    /// Sends each of the trains, which lie in that registered buffer, to every member.
    pub(super) fn send(
        &mut self,
        fd: RawFd,
        buffer: u16,
        trains: impl IntoIterator<Item = RegisteredTrain>,
        members: &mut Members,
    ) -> Sent {
        let mut sent = Sent::default();
        for train in trains {
            let length = u32::try_from(train.bytes).expect("at most 65,507");
            for slot in 0..members.len() {
                // Within the capacity: names do not move while entries point to them.
                self.names.push(members.name(slot));
                let name = &self.names[self.names.len() - 1];
                let entry = opcode::SendZc::new(types::Fd(fd), train.start, length)
                    .buf_index(Some(buffer))
                    .dest_addr(name.as_ptr())
                    .dest_addr_len(name.length())
                    .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                    .zc_flags(REPORT_USAGE)
                    .build()
                    .user_data((train.packets as u64) << 32 | slot as u64);
                push(&mut self.ring, &entry);
                if self.names.len() == BATCH_SENDS_MAX {
                    sent.add(self.hand_over(members));
                }
            }
        }
        if !self.names.is_empty() {
            sent.add(self.hand_over(members));
        }
        sent
    }

    /// Waits until the kernel needs none of the memory any more.
    pub(super) fn settle(&mut self) {
        while self.in_flight > 0 {
            self.reap(None, 1);
        }
    }

    /// Submits a batch and takes the answers, of which each send has one.
    fn hand_over(&mut self, members: &mut Members) -> Sent {
        let count = self.names.len();
        self.in_flight += count;
        self.crossings += 1;
        let mut sent = Sent::default();
        let mut answers = 0;
        let mut want = count;
        while answers < count {
            let mut judge = |what: u64, errno: i32| {
                answers += 1;
                let packets = what >> 32;
                let slot = usize::try_from(what & u64::from(u32::MAX)).expect("it was a slot");
                if errno == 0 {
                    members.taken(slot, packets);
                    sent.packets += packets;
                } else {
                    members.refused(slot, packets, errno);
                    sent.refused += packets;
                }
            };
            self.reap(Some(&mut judge), want);
            want = 1;
        }
        self.names.clear();
        sent
    }

    /// Enters the kernel and takes what is complete.
    fn reap(&mut self, mut judge: Option<&mut dyn FnMut(u64, i32)>, want: usize) {
        match self.ring.submit_and_wait(want) {
            Ok(_) => {}
            // A signal, or a full completion queue: what there is is taken below.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(error) => panic!("a ring that was set up takes its entries: {error}"),
        }
        for entry in self.ring.completion() {
            if cqueue::notif(entry.flags()) {
                let copied = entry.result() & USAGE_COPIED != 0;
                self.copied += u64::from(copied);
                self.zero_copy += u64::from(!copied);
                self.in_flight -= 1;
                continue;
            }
            self.in_flight -= usize::from(!cqueue::more(entry.flags()));
            if let Some(judge) = &mut judge {
                judge(entry.user_data(), -entry.result().min(0));
            }
        }
    }
}

impl Drop for RingSends {
    fn drop(&mut self) {
        self.settle();
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.sends.in_flight)
            .finish_non_exhaustive()
    }
}

impl From<UringError> for GroupError {
    fn from(error: UringError) -> Self {
        Self::Uring(error)
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: the buffer is registered memory, which the ring pins, and whose owner waits for the
    // ring before it goes; the name it points to stays in `names` until the batch was submitted and
    // answered.
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.expect("the ring has room for a batch");
}

/// A whole number of pages.
const COPY_BYTES: usize = 64 << 10;
const _: () = assert!(TRAIN_BYTES_MAX <= COPY_BYTES);

/// IORING_SEND_ZC_REPORT_USAGE, Linux 6.2.
const REPORT_USAGE: u16 = 8;
/// The answer to it, in a notification's result: IORING_NOTIF_USAGE_ZC_COPIED.
const USAGE_COPIED: i32 = i32::MIN;
