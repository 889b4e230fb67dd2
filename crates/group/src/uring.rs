//! `uring`: a batch of zero-copy sends from registered memory, each with the address of a member.
//!
//! The ring has registered the group's area, and one of its own into which other bytes are copied
//! once; a send for a member is then an address and a descriptor. What the kernel still needs may
//! not be written again: it says so in a second completion. That may take seconds for a member
//! whose address is not resolved; so a send waits for none, and what finds no free copy goes by
//! [`Direct`]. Only [`Uring::settle`] waits, where the caller wants its own memory back.

use std::fmt;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use thiserror::Error;

use super::direct::{Direct, Slots, is_refused_whole};
use super::members::{Members, Name};
use super::{GroupError, Sent, Train};
use onrush_lock::memory::{Area, MemoryError};
use onrush_sys::path::TRAIN_BYTES_MAX;

/// Sends handed over in one crossing.
const BATCH_SENDS_MAX: usize = 256;

/// Buffers for bytes that do not lie in the area: that many trains may be under way before one
/// leaves without the ring.
const COPIES: usize = 8;

/// Sends by the ring.
pub(super) struct Uring {
    // First, so that the ring, and with it the registration, goes before the memory.
    pub(super) sends: RingSends,
    pub(super) direct: Direct,
    pub(super) area: Option<Area>,
    copies: Area,
    /// The copy that was used last.
    copy: usize,
}

/// A ring, and the sends from its registered memory that are under way.
pub(super) struct RingSends {
    pub(super) ring: IoUring,
    /// Names that the entries of a batch point to.
    names: Vec<Name>,
    /// Sends whose memory the kernel may still need, by [`Registered::holder`].
    in_flight: [usize; HOLDERS],
    /// Sends of trains that the kernel refused whole, by their number in the call.
    refused_whole: Vec<usize>,
    /// [`REPORT_USAGE`] if the kernel knows it.
    zc_flags: u16,
    /// Entries into the kernel that only waited for it to let go of memory.
    waits: u64,
    pub(super) crossings: u64,
    pub(super) zero_copy: u64,
    pub(super) copied: u64,
}

/// Registered memory to send from.
#[derive(Clone, Copy)]
pub(super) struct Registered {
    pub(super) buffer: u16,
    /// Whose sends are counted together: [`CALLER`]'s, or those of a copy.
    pub(super) holder: usize,
}

/// A train, or a single packet, and where its bytes lie in registered memory.
#[derive(Clone, Copy)]
pub(super) struct RegisteredTrain<'a> {
    pub(super) start: *const u8,
    pub(super) train: Train<'a>,
}

/// Why no ring sends here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UringError {
    /// io_uring cannot be used.
    #[error(
        "io_uring is not available: {0} (it needs Linux 6.0, kernel.io_uring_disabled=0 and no \
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
        let Some((start, from)) = self.registered(train) else {
            return self.direct.send(fd, members, all, train);
        };
        let trains = [RegisteredTrain { start, train }];
        self.sends
            .send(fd, from, &trains, members, &mut self.direct)
    }

    /// Waits until the kernel does not need the area any more.
    pub(super) fn settle(&mut self) {
        self.sends.settle();
    }

    /// Where the train lies in registered memory; copied there if need be, and none if the kernel
    /// still needs every copy.
    fn registered(&mut self, train: Train<'_>) -> Option<(*const u8, Registered)> {
        let start = train.bytes.as_ptr();
        if let Some(area) = &self.area {
            let base = area.base().as_ptr().addr();
            if (base..base + area.bytes_total()).contains(&start.addr()) {
                let (buffer, holder) = (1, CALLER);
                return Some((start, Registered { buffer, holder }));
            }
        }
        self.copy = self.free_copy()?;
        let offset = self.copy * COPY_BYTES;
        let to = self.copies.base().as_ptr().wrapping_add(offset);
        // SAFETY: the train is at most TRAIN_BYTES_MAX, and so fits the copy, which lies in the
        // area of ours that nobody else knows; the two do not overlap. The kernel has no use for
        // the copy's old bytes: no send from it is in flight.
        unsafe { std::ptr::copy_nonoverlapping(start, to, train.bytes.len()) };
        let (buffer, holder) = (0, self.copy);
        Some((to.cast_const(), Registered { buffer, holder }))
    }

    /// A copy that no send is under way from, of these the one that was used longest ago.
    fn free_copy(&mut self) -> Option<usize> {
        let next = (self.copy + 1) % COPIES;
        if self.sends.in_flight[next] > 0 {
            self.sends.take_completions();
        }
        let in_order = (0..COPIES).map(|ahead| (next + ahead) % COPIES);
        let mut free = in_order.filter(|&copy| self.sends.in_flight[copy] == 0);
        free.next()
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
        let mut sends = Self {
            ring,
            names: Vec::with_capacity(BATCH_SENDS_MAX),
            in_flight: [0; HOLDERS],
            refused_whole: Vec::new(),
            zc_flags: 0,
            waits: 0,
            crossings: 0,
            zero_copy: 0,
            copied: 0,
        };
        sends.zc_flags = usage_flag(&mut sends.ring)?;
        Ok(sends)
    }

    /// Sends each of the trains, which lie in that registered memory, to every member. A train that
    /// the kernel does not cut for a member leaves as single packets, as by `sendmmsg`.
    pub(super) fn send(
        &mut self,
        fd: RawFd,
        from: Registered,
        trains: &[RegisteredTrain<'_>],
        members: &mut Members,
        direct: &mut Direct,
    ) -> Sent {
        let mut sent = Sent::default();
        let (count, before) = (members.len(), self.crossings);
        let mut first = 0;
        for (number, slot) in (0..trains.len()).flat_map(|it| (0..count).map(move |s| (it, s))) {
            let RegisteredTrain { start, train } = trains[number];
            let length = u32::try_from(train.bytes.len()).expect("at most 65,507");
            // Within the capacity: names do not move while entries point to them.
            self.names.push(members.name(slot));
            let name = &self.names[self.names.len() - 1];
            let what = (from.holder as u64) << HOLDER_SHIFT | (self.names.len() - 1) as u64;
            let entry = opcode::SendZc::new(types::Fd(fd), start, length)
                .buf_index(Some(from.buffer))
                .dest_addr(name.as_ptr())
                .dest_addr_len(name.length())
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .zc_flags(self.zc_flags)
                .build()
                .user_data(what);
            push(&mut self.ring, &entry);
            if self.names.len() == BATCH_SENDS_MAX {
                sent.add(self.hand_over(from.holder, first, trains, members));
                first = number * count + slot + 1;
            }
        }
        if !self.names.is_empty() {
            sent.add(self.hand_over(from.holder, first, trains, members));
        }
        direct.crossings += self.crossings - before;
        // Behind all others, because the socket's UDP_SEGMENT changes with them.
        for place in self.refused_whole.drain(..) {
            let train = trains[place / count].train;
            sent.add(direct.send_cut(fd, members, place % count, train));
        }
        sent
    }

    /// Waits until the kernel needs none of the caller's memory any more.
    pub(super) fn settle(&mut self) {
        self.take_completions();
        while self.in_flight[CALLER] > 0 {
            self.waits += 1;
            self.reap(None, 1);
        }
    }

    /// Submits a batch, whose first is the send of that number, and takes the answers, of which
    /// each send has one.
    fn hand_over(
        &mut self,
        holder: usize,
        first: usize,
        trains: &[RegisteredTrain<'_>],
        members: &mut Members,
    ) -> Sent {
        let (count, of_train) = (self.names.len(), members.len());
        self.in_flight[holder] += count;
        self.crossings += 1;
        let (mut sent, mut answers, mut want) = (Sent::default(), 0, count);
        let mut refused_whole = std::mem::take(&mut self.refused_whole);
        while answers < count {
            let mut judge = |place: usize, errno: i32| {
                answers += 1;
                let place = first + place;
                let (slot, train) = (place % of_train, trains[place / of_train].train);
                let packets = train.packets() as u64;
                if errno == 0 {
                    members.taken(slot, packets);
                    sent.packets += packets;
                } else if is_refused_whole(packets, errno) {
                    refused_whole.push(place);
                } else {
                    members.refused(slot, packets, errno);
                    sent.refused += packets;
                }
            };
            self.reap(Some(&mut judge), want);
            want = 1;
        }
        self.refused_whole = refused_whole;
        self.names.clear();
        sent
    }

    /// Enters the kernel and takes what is complete.
    fn reap(&mut self, judge: Option<&mut dyn FnMut(usize, i32)>, want: usize) {
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
        self.take(judge);
    }

    /// Takes what is complete, and waits for nothing.
    fn take_completions(&mut self) {
        if self.ring.submission().cq_overflow() {
            // The kernel holds more back, which it gives to who enters.
            return self.reap(None, 0);
        }
        self.take(None);
    }

    fn take(&mut self, mut judge: Option<&mut dyn FnMut(usize, i32)>) {
        for entry in self.ring.completion() {
            let what = entry.user_data();
            let holder = usize::try_from(what >> HOLDER_SHIFT).expect("it was a holder");
            if cqueue::notif(entry.flags()) {
                let is_told = self.zc_flags == REPORT_USAGE;
                let copied = entry.result() & USAGE_COPIED != 0;
                self.copied += u64::from(is_told && copied);
                self.zero_copy += u64::from(is_told && !copied);
                self.in_flight[holder] -= 1;
                continue;
            }
            self.in_flight[holder] -= usize::from(!cqueue::more(entry.flags()));
            if let Some(judge) = &mut judge {
                let place = what & ((1 << HOLDER_SHIFT) - 1);
                let place = usize::try_from(place).expect("it was a place");
                judge(place, -entry.result().min(0));
            }
        }
    }
}

/// What a send asks to be told whether it was copied, [`REPORT_USAGE`] or 0. The wish is EINVAL
/// before Linux 6.2, but for some releases of 6.1; so it is tried with a datagram that has no
/// address, and is refused for that everywhere else.
pub(super) fn usage_flag(ring: &mut IoUring) -> Result<u16, UringError> {
    static BYTE: [u8; 1] = [0];
    let bound = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"));
    let Ok(socket) = bound else {
        return Ok(0);
    };
    let entry = opcode::SendZc::new(types::Fd(socket.as_raw_fd()), BYTE.as_ptr(), 1)
        .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        .zc_flags(REPORT_USAGE)
        .build();
    push(ring, &entry);
    let (mut errno, mut is_over) = (None, false);
    while errno.is_none() || !is_over {
        match ring.submit_and_wait(1) {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => {
                return Err(UringError::Ring(error));
            }
            _ => {}
        }
        for entry in ring.completion() {
            match cqueue::notif(entry.flags()) {
                true => is_over = true,
                false => {
                    errno = Some(-entry.result());
                    is_over |= !cqueue::more(entry.flags());
                }
            }
        }
    }
    Ok(match errno {
        Some(libc::EINVAL) => 0,
        _ => REPORT_USAGE,
    })
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.sends.in_flight)
            .field("waits", &self.sends.waits)
            .finish_non_exhaustive()
    }
}

impl From<UringError> for GroupError {
    fn from(error: UringError) -> Self {
        Self::Uring(error)
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) {
    // SAFETY: the buffer is static, or registered memory, whose pages the kernel has pinned until
    // the send is over, whether ring and mapping are still there or not; the name it points to
    // stays in `names` until the batch was submitted and answered.
    let pushed = unsafe { ring.submission().push(entry) };
    pushed.expect("the ring has room for a batch");
}

/// A whole number of pages.
const COPY_BYTES: usize = 64 << 10;
const _: () = assert!(TRAIN_BYTES_MAX <= COPY_BYTES);

/// Those who hold memory in flight: the copies, by number, and the caller.
const HOLDERS: usize = COPIES + 1;
/// Whoever owns what is sent from, and wants it back.
pub(super) const CALLER: usize = COPIES;
/// Above a send's place in its batch its answers have the holder.
const HOLDER_SHIFT: u32 = 32;
const _: () = assert!(BATCH_SENDS_MAX <= 1 << HOLDER_SHIFT);

/// IORING_SEND_ZC_REPORT_USAGE, Linux 6.2.
const REPORT_USAGE: u16 = 8;
/// The answer to it, in a notification's result: IORING_NOTIF_USAGE_ZC_COPIED.
const USAGE_COPIED: i32 = i32::MIN;
