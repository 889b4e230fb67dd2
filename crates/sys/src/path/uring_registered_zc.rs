//! `uring_registered_zc`: SEND_ZC from a registered buffer of packet images, with UDP_SEGMENT.
//!
//! The paper's `krtpsendfile` on a stock kernel: the images lie in memory that the ring has pinned,
//! so a send is a descriptor; one `io_uring_enter` hands over a whole batch and sleeps until the
//! next. It needs Linux 6.0 (SEND_ZC), 6.12 for a sleep to an absolute time in the same crossing,
//! and memory that may be registered (RLIMIT_MEMLOCK or CAP_IPC_LOCK).

mod trials;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};

use super::ring::{REPORT_USAGE, USAGE_COPIED, build_ring};
use super::unsent::{Reason, Unsent};
use super::vectored::{Means, Messages};
use super::{
    BATCH_TRAINS_MAX, Completion, Counters, IN_FLIGHT_TRAINS_MAX, Path, PathError, PathName, Sent,
    StreamData, StreamSend, To, Train, Vectored, check,
};
use crate::clock::monotonic_ns;
use crate::pool::{Pool, PoolUser};
use crate::thread::open_files_limit;
use crate::wake::Waker;
use onrush_lock::{LockError, RingBuffers};

/// Marks the completion of the wake-up poll; trains have tokens of 32 bits.
const WAKE: u64 = u64::MAX;

/// Set beside the place of a socket whose descriptor a completion brings.
const DESCRIPTOR: u64 = 1 << 35;

/// Marks the completions of a trial.
const TRIAL: u64 = 1 << 36;

/// Set beside the token of a train whose pieces the kernel gathers with a copy.
const GATHERED: u64 = 1 << 32;

/// Set beside the token of what is sent by reference, so that it comes back twice.
const REFERRED: u64 = 1 << 33;

/// Set beside the token of bytes that are held for a connection.
const HELD: u64 = 1 << 34;

/// Sockets of one table, at most (io_uring/rsrc.c, IORING_MAX_FIXED_FILES).
const FILES_MAX: u32 = 1 << 20;

/// DONTWAIT: a full socket must fail, not be tried again behind the session's next train.
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// WAITALL: what a full socket did not take follows when it has room, and only then comes the
/// answer (io_uring/net.c, `io_net_retry`). EOR: what follows begins a buffer of its own. The
/// kernel reckons memory that it refers to by the huge pages that it lies in, and bytes that were
/// copied behind it into the same buffer would have all of that charged to what TCP has on this
/// machine (net/ipv4/tcp.c, `tcp_downgrade_zcopy_pure`).
const STREAM_FLAGS: i32 = libc::MSG_WAITALL | libc::MSG_NOSIGNAL | libc::MSG_EOR;

pub(super) struct UringRegisteredZc {
    // The ring goes first, and with it what it has of the pool's memory; then its counting; then
    // the memory.
    ring: IoUring,
    buffers: RingBuffers,
    user: PoolUser,
    pool: Arc<Pool>,
    waker: Arc<Waker>,
    counters: Counters,
    queued: usize,
    in_flight: usize,
    wake_armed: bool,
    /// Whether a sleep can end at an absolute time (IORING_ENTER_ABS_TIMER).
    absolute_sleep: bool,
    /// Whether the kernel says if it copied, [`Self::tells_usage`].
    report_usage: bool,
    is_ordered: bool,
    /// Whether a socket that is kept can be had back (IORING_OP_FIXED_FD_INSTALL, Linux 6.8).
    gives_back: bool,
    /// Completions that arrived before a descriptor or the end of a trial, which was waited for.
    aside: VecDeque<cqueue::Entry>,
    /// The last train queued in order: whether it is linked is known when the next comes.
    held: Option<squeue::Entry>,
    /// How trains with headers of their own leave, and what their entries refer to.
    means: Means,
    /// Of each registered buffer, bytes of the pages that the kernel sees.
    page_bytes: Vec<usize>,
    messages: Messages,
    /// Bytes that go over connections, until the kernel has taken them, by token.
    held_bytes: HashMap<u32, Box<[u8]>>,
    unsent: Unsent,
}

/// A ring that sends without a copy, and what else it does.
pub(super) fn zero_copy_ring() -> Result<(IoUring, Probe), PathError> {
    // Two completions a train, so that the kernel never has to keep one back.
    let completions = to_u32(IN_FLIGHT_TRAINS_MAX * 2 + 2).next_power_of_two();
    let entries = to_u32(BATCH_TRAINS_MAX * 2);
    let ring = build_ring(entries, completions).map_err(PathError::Ring)?;
    let mut probe = Probe::new();
    let asked = ring.submitter().register_probe(&mut probe);
    asked.map_err(PathError::Ring)?;
    match probe.is_supported(opcode::SendZc::CODE) {
        true => Ok((ring, probe)),
        false => Err(PathError::SendZc),
    }
}

impl UringRegisteredZc {
    /// `is_ordered`: a train that fails takes those behind it, of the same submission, with it
    /// (ECANCELED).
    pub(super) fn open(
        pool: Arc<Pool>,
        waker: Arc<Waker>,
        is_ordered: bool,
    ) -> Result<Self, PathError> {
        let (ring, probe) = zero_copy_ring()?;
        // SAFETY: the ring lives longer than this borrow of its descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let buffers_max = pool.area().buffers().count();
        let buffers = RingBuffers::new(fd, buffers_max);
        let mut path = Self {
            buffers: buffers.map_err(PathError::Ring)?,
            user: PoolUser::join(&pool, &waker),
            ring,
            pool,
            waker,
            counters: Counters::default(),
            queued: 0,
            in_flight: 0,
            wake_armed: false,
            absolute_sleep: true,
            report_usage: true,
            is_ordered,
            gives_back: probe.is_supported(opcode::FixedFdInstall::CODE),
            aside: VecDeque::new(),
            held: None,
            means: Means::copying(),
            page_bytes: Vec::with_capacity(buffers_max),
            messages: Messages::new(),
            held_bytes: HashMap::new(),
            unsent: Unsent::new(),
        };
        path.take_all_memory()
            .map_err(|source| PathError::Register {
                bytes_total: path.pool.area().bytes_total(),
                source,
            })?;
        // Linux 6.12 sleeps to an absolute time; to others the flag is EINVAL.
        path.absolute_sleep = path.enter(1, Some(1)).is_ok();
        path.report_usage = path.tells_usage();
        if probe.is_supported(opcode::SendMsgZc::CODE) {
            path.find_means();
        }
        path.counters = Counters::default();
        Ok(path)
    }

    /// Registers all that is ready.
    fn take_all_memory(&mut self) -> Result<(), LockError> {
        while let Some(piece) = self.user.next() {
            let bytes = self.pool.area().addresses(piece.clone());
            // SAFETY: the ring lives longer than this borrow of its descriptor.
            let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
            self.buffers.push(ring, bytes)?;
            self.page_bytes.push(self.means.page_bytes);
            self.user.took(&piece);
        }
        Ok(())
    }

    /// The entry of a train that takes more than an address and a length to say.
    fn message_entry(&mut self, train: &Train, is_zero_copy: bool) -> squeue::Entry {
        let (area, flags) = (self.pool.area(), SEND_FLAGS);
        let buffer = self.buffer_of(train);
        self.messages
            .entry(train, area, buffer, flags, is_zero_copy)
    }

    /// The registered buffer that a train's memory is of.
    fn buffer_of(&self, train: &Train) -> u16 {
        self.buffer_at(train.offset)
    }

    fn buffer_at(&self, offset: usize) -> u16 {
        let buffer = self.pool.buffer_at(offset);
        u16::try_from(buffer).expect("a ring has room for all buffers")
    }

    /// The entry of a train whose packets are images as they lie.
    fn image_entry(&self, train: &Train) -> squeue::Entry {
        let start = self.pool.area().base().as_ptr().wrapping_add(train.offset);
        // One packet is copied. The kernel charges zero-copy memory from the start of its huge page
        // (io_uring/net.c, io_sg_from_iter: PAGE_ALIGN(bv_len + bv_offset)), up to 2 MiB.
        // Segmentation makes that good for the packets of a train, but a lone one keeps it into the
        // socket of a receiver on this machine, which then is full after one or two.
        if train.is_single() {
            let send = match train.to {
                To::Descriptor(fd) => opcode::Send::new(types::Fd(fd), start, train.bytes),
                To::RegisteredFile(place) => {
                    opcode::Send::new(types::Fixed(place), start, train.bytes)
                }
            };
            return send.flags(SEND_FLAGS).build();
        }
        let send_zc = match train.to {
            To::Descriptor(fd) => opcode::SendZc::new(types::Fd(fd), start, train.bytes),
            To::RegisteredFile(place) => {
                opcode::SendZc::new(types::Fixed(place), start, train.bytes)
            }
        };
        send_zc
            .buf_index(Some(self.buffer_of(train)))
            .flags(SEND_FLAGS)
            .zc_flags(if self.report_usage { REPORT_USAGE } else { 0 })
            .build()
    }

    /// One crossing: submits what is queued, then waits for `want` completions or the time.
    fn enter(&mut self, want: usize, sleep_ns: Option<u64>) -> io::Result<()> {
        if let Some(last) = self.held.take() {
            self.push(&last);
        }
        let mut flags = EnterFlags::GETEVENTS;
        let time = types::Timespec::from(Duration::from_nanos(sleep_ns.unwrap_or(0)));
        let args = types::SubmitArgs::new().timespec(&time);
        if sleep_ns.is_some() {
            flags |= EnterFlags::EXT_ARG;
            flags.set(EnterFlags::ABS_TIMER, self.absolute_sleep);
        }
        self.counters.crossings += 1;
        let (queued, want) = (to_u32(self.queued), to_u32(want));
        let submitter = self.ring.submitter();
        // SAFETY: the entries in the ring were made by `push`, whose conditions hold (see there).
        // EXT_ARG makes the kernel read the argument as `io_uring_getevents_arg`, which SubmitArgs
        // is; it and the time it points to live until the call returns. Without EXT_ARG none is
        // passed.
        let result =
            unsafe { submitter.enter(queued, want, flags.bits(), sleep_ns.map(|_| &args)) };
        // What the kernel did not take this time stays in the ring for the next entry.
        self.queued = self.ring.submission().len();
        if self.queued == 0 {
            // What is linked is sent later than it is taken.
            self.messages.clear(!self.is_ordered || self.in_flight == 0);
        }
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time is up, a signal came, or completions wait to be reaped first: all are
                // returns.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Polls the waker by the ring, so that a sleep without a deadline ends when somebody wakes it.
    fn arm_wake(&mut self) {
        if !self.wake_armed {
            let fd = types::Fd(self.waker.as_raw_fd());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.push(&poll.user_data(WAKE));
            self.wake_armed = true;
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: a poll has no buffer, and neither has the wish for a descriptor. A send's buffers
        // lie in the pool's area, which the ring has registered, so that its pages outlive even the
        // mapping; bytes for a connection lie in `held_bytes` until their completion has come, and
        // for ever if it does not; a message and the list of its pieces lie in `messages`,
        // untouched until the kernel has taken every entry, and of linked ones has answered every
        // one. A socket that is closed by now is an error, not undefined.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("the ring has room for a batch and a poll");
        self.queued += 1;
    }
}

impl Path for UringRegisteredZc {
    fn name(&self) -> PathName {
        PathName::UringRegisteredZc
    }

    fn room(&self) -> usize {
        let queued = self.queued + usize::from(self.held.is_some());
        let batch = BATCH_TRAINS_MAX.saturating_sub(queued);
        let batch = batch.min(self.messages.room());
        batch.min(IN_FLIGHT_TRAINS_MAX - self.in_flight)
    }

    fn has_memory_to_take(&self) -> bool {
        self.user.next().is_some()
    }

    fn take_memory(&mut self) {
        let Some(piece) = self.user.next() else {
            return;
        };
        let bytes = self.pool.area().addresses(piece.clone());
        // SAFETY: the ring lives longer than this borrow of its descriptor.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        match self.buffers.try_push(ring, bytes) {
            Ok(true) => {
                let page_bytes = self.page_bytes_of(&piece);
                self.page_bytes.push(page_bytes);
                self.user.took(&piece);
            }
            Ok(false) => {}
            Err(error) => self.user.refuse(error),
        }
    }

    fn vectored(&self) -> Vectored {
        match self.means.is_zero_copy {
            true => Vectored::ZeroCopy,
            false => Vectored::Copied,
        }
    }

    fn own_headers_packets(&self, offset: usize, stride: u16) -> usize {
        let means = match self.page_bytes.get(self.pool.buffer_at(offset)) {
            Some(&page_bytes) => Means {
                page_bytes,
                ..self.means
            },
            None => self.means,
        };
        means.packets(offset, stride)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn register_files(&mut self, places: u32) -> u32 {
        if !self.gives_back {
            return 0;
        }
        // io_uring/rsrc.c, io_sqe_files_register: EMFILE beyond RLIMIT_NOFILE or a table's size.
        let places = u64::from(places.min(FILES_MAX)).min(open_files_limit());
        let places = u32::try_from(places).expect("no more than asked for");
        let made = self.ring.submitter().register_files_sparse(places);
        made.map_or(0, |()| places)
    }

    fn install_file(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (submitter, fd) = (self.ring.submitter(), socket.as_raw_fd());
        submitter.register_files_update(place, &[fd]).map(drop)
    }

    fn release_file(&mut self, place: u32) {
        let emptied = self.ring.submitter().register_files_update(place, &[-1]);
        // Emptying a place of the table asks the kernel for nothing that it could lack.
        debug_assert!(emptied.is_ok(), "{emptied:?}");
    }

    fn descriptor(&mut self, place: u32) -> io::Result<OwnedFd> {
        let wish = opcode::FixedFdInstall::new(types::Fixed(place), 0);
        let of_place = DESCRIPTOR | u64::from(place);
        self.push(&wish.build().user_data(of_place));
        loop {
            self.enter(1, None)?;
            while let Some(entry) = self.ring.completion().next() {
                if entry.user_data() == of_place {
                    return installed(&entry);
                }
                self.aside.push_back(entry);
            }
        }
    }

    fn queue(&mut self, train: Train) {
        assert!(self.room() > 0, "there is room for the train");
        check(&train, &self.pool);
        let is_single = train.is_single();
        let is_own_segments = train.segments_of_send().is_some();
        let is_message = train.headers.is_some() || is_own_segments;
        let is_gathered = is_message && !self.means.is_zero_copy;
        let is_zero_copy = !is_single && !is_gathered;
        let entry = match is_message {
            true => self.message_entry(&train, is_zero_copy),
            false => self.image_entry(&train),
        };
        self.counters.trains_own_headers += u64::from(train.headers.is_some());
        self.counters.trains_own_segments += u64::from(is_own_segments);
        let mark = mark(is_single, is_zero_copy);
        let entry = entry.user_data(u64::from(train.token) | mark);
        if !self.is_ordered {
            self.push(&entry);
        } else if let Some(before) = self.held.replace(entry) {
            self.push(&before.flags(squeue::Flags::IO_LINK));
        }
        self.in_flight += 1;
        self.counters.trains += 1;
    }

    fn sends_streams(&self) -> bool {
        true
    }

    fn queue_stream(&mut self, send: StreamSend) {
        assert!(self.room() > 0, "there is room for the send");
        debug_assert!(!self.is_ordered, "links are what makes order here");
        let StreamSend { fd, data, .. } = send;
        let (entry, mark) = match data {
            StreamData::Bytes(bytes) => {
                let length = u32::try_from(bytes.len()).expect("a message is below 4 GiB");
                let send_bytes = opcode::Send::new(types::Fd(fd), bytes.as_ptr(), length);
                let before = self.held_bytes.insert(send.token, bytes);
                assert!(before.is_none(), "a token is of one send");
                (send_bytes.flags(STREAM_FLAGS).build(), HELD)
            }
            StreamData::Packets(packets) => {
                packets.check(&self.pool);
                self.counters.trains += 1;
                self.counters.trains_framed += 1;
                // A lone packet is copied, as everywhere.
                let is_single = packets.packets() == 1;
                let refers = self.means.is_zero_copy && !send.is_copied;
                let is_zero_copy = refers && !is_single;
                let buffer = is_zero_copy.then(|| self.buffer_at(packets.offset));
                let (area, flags) = (self.pool.area(), STREAM_FLAGS);
                let entry = self
                    .messages
                    .stream_entry(fd, &packets, area, flags, buffer);
                (entry, mark(is_single, is_zero_copy))
            }
        };
        let links = match send.is_followed {
            true => squeue::Flags::IO_LINK,
            false => squeue::Flags::empty(),
        };
        self.push(&entry.flags(links).user_data(u64::from(send.token) | mark));
        self.in_flight += 1;
    }

    fn submit(&mut self) -> io::Result<()> {
        self.enter(0, None)
    }

    fn submit_and_wait(&mut self, completions: usize) -> io::Result<()> {
        // What was put aside has arrived.
        self.enter(completions.saturating_sub(self.aside.len()), None)
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let Some(deadline_ns) = deadline_ns else {
            self.arm_wake();
            return self.submit_and_wait(1);
        };
        // More completions than can be outstanding, so that only time ends the sleep.
        let want = IN_FLIGHT_TRAINS_MAX * 2 + 2;
        if self.absolute_sleep {
            return self.enter(want, Some(deadline_ns));
        }
        // A relative time would run from before the sends were made: send first, then see what is
        // left.
        if self.queued > 0 {
            self.enter(0, None)?;
        }
        self.enter(want, Some(deadline_ns.saturating_sub(monotonic_ns())))
    }

    fn completion(&mut self) -> Option<Completion> {
        loop {
            let entry = match self.aside.pop_front() {
                Some(entry) => entry,
                None => self.ring.completion().next()?,
            };
            if entry.user_data() == WAKE {
                self.wake_armed = false;
                self.waker.clear();
                continue;
            }
            let is = |mark| entry.user_data() & mark != 0;
            // Given up, because entering the kernel failed: nobody waits for it any more.
            if is(TRIAL | DESCRIPTOR) {
                drop(is(DESCRIPTOR).then(|| installed(&entry)));
                continue;
            }
            let token = entry.user_data() & u64::from(u32::MAX);
            let token = u32::try_from(token).expect("tokens have 32 bits");
            if is(HELD) {
                self.held_bytes.remove(&token);
            }
            if cqueue::notif(entry.flags()) {
                let unsent = self.unsent.take(token);
                if unsent == Some(Reason::NeverBegun) {
                    continue;
                }
                let copied = entry.result() & USAGE_COPIED != 0;
                let is_told = unsent.is_none() && (copied || self.report_usage);
                self.counters.trains_copied += u64::from(is_told && copied);
                self.counters.trains_zero_copy += u64::from(is_told && !copied);
                self.counters.trains_other += u64::from(!is_told);
                self.in_flight -= 1;
                return Some(Completion {
                    token,
                    sent: None,
                    released: true,
                    referred: Some(!copied),
                });
            }
            let released = !cqueue::more(entry.flags());
            self.in_flight -= usize::from(released);
            match (released, entry.result()) {
                (true, errno) if errno == -libc::ECANCELED && is(REFERRED) => {
                    self.unsent.push(token, Reason::NeverBegun);
                }
                (false, ..0) => self.unsent.push(token, Reason::Refused),
                _ => {}
            }
            // Sent, and nothing to wait for: copied, because it is a single packet or cannot be
            // gathered otherwise.
            let is_copied = released && entry.result() >= 0 && !is(HELD);
            self.counters.trains_single += u64::from(is_copied && !is(GATHERED));
            self.counters.trains_copied += u64::from(is_copied && is(GATHERED));
            let is_refused = released && entry.result() < 0 && !is(HELD);
            self.counters.trains_other += u64::from(is_refused);
            return Some(Completion {
                token,
                sent: Some(Sent {
                    bytes: u32::try_from(entry.result()).unwrap_or(0),
                    errno: -entry.result().min(0),
                }),
                released,
                referred: None,
            });
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl Drop for UringRegisteredZc {
    /// A send that waits for room may still read its bytes while the kernel takes the ring down,
    /// which it does in its own time.
    fn drop(&mut self) {
        self.held_bytes
            .drain()
            .for_each(|(_, bytes)| mem::forget(bytes));
    }
}

/// What stands beside a token, by how its send leaves.
const fn mark(is_single: bool, is_zero_copy: bool) -> u64 {
    match (is_zero_copy, is_single) {
        (true, _) => REFERRED,
        (false, true) => 0,
        (false, false) => GATHERED,
    }
}

impl fmt::Debug for UringRegisteredZc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringRegisteredZc")
            .field("queued", &self.queued)
            .field("in_flight", &self.in_flight)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The descriptor that a completion brings.
fn installed(entry: &cqueue::Entry) -> io::Result<OwnedFd> {
    match entry.result() {
        // SAFETY: the kernel has just made this descriptor, for us alone.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).expect("the limits on batches and flight fit 32 bits")
}
