//! One message, many TCP connections: sent to all of them from registered memory in one crossing.
//!
//! Karsten and others left transports other than UDP to future work. TCP gives each receiver bytes
//! of its own, so nothing can be cloned; what can be shared is the crossing and the copy. A
//! [`StreamGroup`] has an area of registered memory and hands the kernel one zero-copy send for
//! each connection, all at once. What a connection has no room for follows when it has; meanwhile
//! the others go on. A message stays in use until the last of its receivers has acknowledged it or
//! is given up. Not here: who the receivers are, framing, and reading what they say.

use std::collections::VecDeque;
use std::fmt;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::STREAMS_MAX;
use super::error::StreamError;
use super::unacknowledged::Unacknowledged;
use super::uring::{UringError, usage_flag};
use onrush_lock::memory::Area;

/// What can be chosen about a group of streams.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StreamOptions {
    /// Connections at once, at most; up to [`STREAMS_MAX`].
    pub streams_max: usize,
    /// Bytes of the memory that is sent from.
    pub area_bytes: usize,
    /// Messages that a connection may not have acknowledged yet; one that is further behind is
    /// reset when the next is sent.
    pub behind_max: usize,
}

/// TCP connections that all get the same.
pub struct StreamGroup {
    // First, so that the ring, and with it the registration, goes before the memory.
    ring: IoUring,
    area: Area,
    streams: Vec<Option<Stream>>,
    free: Vec<u32>,
    messages: Vec<Message>,
    behind_max: usize,
    streams_max: usize,
    /// What a send asks to be told whether it was copied; 0 where the kernel says nothing.
    usage_flag: u16,
    /// Sends and waits that the kernel has not let go of.
    in_flight: usize,
    ended: Vec<(StreamId, StreamEnd)>,
    counters: StreamCounters,
}

/// Which connection of a group. Not given to another as long as the group lives.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct StreamId {
    slot: u32,
    turn: u32,
}

/// Why a connection is none of the group's any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamEnd {
    /// It was too far behind, and was reset.
    Behind,
    /// The kernel refused, with this errno: the peer has gone, for the most part.
    Refused(i32),
}

/// What a group of streams has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StreamCounters {
    /// Messages.
    pub messages: u64,
    /// Bytes that connections have taken.
    pub bytes: u64,
    /// Entries into the kernel.
    pub crossings: u64,
    /// Sends that took less than they were given, or nothing, and were gone on with later.
    pub partial: u64,
    /// Sends without a copy, as the kernel has reported so far.
    pub zero_copy: u64,
    /// Sends that it copied all the same.
    pub copied: u64,
}

struct Stream {
    socket: Option<TcpStream>,
    turn: u32,
    /// What is left to be sent: the message, and from where on.
    queue: VecDeque<(u32, usize)>,
    /// What its next step waits for.
    busy: Option<Busy>,
    /// Sends and waits of its own that the kernel has not let go of.
    in_flight: usize,
    unacknowledged: Unacknowledged,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Busy {
    Sending,
    WaitingForRoom,
}

/// A part of the area, as long as somebody needs it.
struct Message {
    range: Range<usize>,
    needed: usize,
}

impl StreamGroup {
    /// A group without connections.
    ///
    /// # Errors
    ///
    /// If there is no ring, no memory, or none that can be registered.
    pub fn open(options: &StreamOptions) -> Result<Self, StreamError> {
        let StreamOptions {
            streams_max,
            area_bytes,
            behind_max,
        } = *options;
        if streams_max == 0 || streams_max > STREAMS_MAX {
            return Err(StreamError::StreamsMax { streams_max });
        }
        let entries = u32::try_from(streams_max.next_power_of_two()).expect("at most STREAMS_MAX");
        let mut builder = IoUring::builder();
        builder.setup_submit_all();
        builder.setup_cqsize(entries.max(64) * 4);
        let mut ring = builder.build(entries.max(64)).map_err(UringError::Ring)?;
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe);
        probed.map_err(UringError::Ring)?;
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(UringError::SendZc.into());
        }
        let area = Area::map(area_bytes.max(1))?;
        let buffer = libc::iovec {
            iov_base: area.base().as_ptr().cast(),
            iov_len: area.bytes_total(),
        };
        // SAFETY: the buffer is an area that this value owns; the registration pins its pages, and
        // the ring is dropped before it.
        unsafe { ring.submitter().register_buffers(&[buffer]) }.map_err(UringError::Register)?;
        Ok(Self {
            usage_flag: usage_flag(&mut ring)?,
            ring,
            area,
            streams: Vec::new(),
            free: Vec::new(),
            messages: Vec::new(),
            behind_max: behind_max.max(1),
            streams_max,
            in_flight: 0,
            ended: Vec::new(),
            counters: StreamCounters::default(),
        })
    }

    /// Adds a connection, which gets every message from now on. Nobody else should write to it.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn add(&mut self, socket: TcpStream) -> Result<StreamId, StreamError> {
        if self.len() == self.streams_max {
            let streams_max = self.streams_max;
            return Err(StreamError::StreamsMax { streams_max });
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.streams.push(None);
            u32::try_from(self.streams.len() - 1).expect("at most STREAMS_MAX, and those that end")
        });
        let before = self.streams[slot as usize].take();
        let turn = before.map_or(0, |before| before.turn.wrapping_add(1));
        self.streams[slot as usize] = Some(Stream {
            socket: Some(socket),
            turn,
            queue: VecDeque::new(),
            busy: None,
            in_flight: 0,
            unacknowledged: Unacknowledged::default(),
        });
        Ok(StreamId { slot, turn })
    }

    /// Takes a connection out and gives it back, if it is one of the group's. It may have got a
    /// part of a message; what was handed over is still sent.
    pub fn remove(&mut self, id: StreamId) -> Option<TcpStream> {
        // A send names its socket by a number, which is the caller's in a moment.
        self.enter_if_asked();
        let stream = self.streams.get_mut(id.slot as usize)?.as_mut()?;
        if stream.turn != id.turn {
            return None;
        }
        let socket = stream.socket.take()?;
        self.forget_queue(id.slot);
        self.free_slot(id.slot);
        Some(socket)
    }

    /// Part of the area, to be written.
    ///
    /// # Errors
    ///
    /// If the area has no such bytes, or somebody has not acknowledged what lies there.
    pub fn area_mut(&mut self, range: Range<usize>) -> Result<&mut [u8], StreamError> {
        self.check(&range)?;
        self.take_completions();
        self.enter_if_asked();
        let Range { start, end } = range;
        let meets = |it: &Message| it.needed > 0 && it.range.start < end && start < it.range.end;
        if self.messages.iter().any(meets) {
            return Err(StreamError::InUse { start, end });
        }
        let base = self.area.base().as_ptr().wrapping_add(start);
        // SAFETY: `check` has seen that the range lies within the area, which is mapped writable
        // and lives as long as `self`, whose only handle it is; the kernel reads none of it, as no
        // message there is needed.
        Ok(unsafe { std::slice::from_raw_parts_mut(base, end - start) })
    }

    /// Sends part of the area to all connections, behind what they have not been sent yet.
    ///
    /// # Errors
    ///
    /// If the area has no such bytes. What goes wrong with a connection ends that connection.
    pub fn send(&mut self, range: Range<usize>) -> Result<(), StreamError> {
        self.check(&range)?;
        self.take_completions();
        self.counters.messages += 1;
        let number = match self.messages.iter().position(|message| message.needed == 0) {
            Some(number) => number,
            None => {
                self.messages.push(Message {
                    range: 0..0,
                    needed: 0,
                });
                self.messages.len() - 1
            }
        };
        self.messages[number] = Message {
            range: range.clone(),
            // Ours, until all have been told.
            needed: 1,
        };
        let message = u32::try_from(number).expect("fewer than streams times behind_max");
        for slot in 0..self.streams.len() {
            let slot = u32::try_from(slot).expect("at most STREAMS_MAX");
            let stream = self.streams[slot as usize].as_mut();
            let Some(stream) = stream.filter(|stream| stream.socket.is_some()) else {
                continue;
            };
            if stream.messages_behind() >= self.behind_max {
                self.end(slot, StreamEnd::Behind);
                continue;
            }
            stream.queue.push_back((message, range.start));
            self.messages[number].needed += 1;
            self.step(slot);
        }
        self.messages[number].needed -= 1;
        self.enter_if_asked();
        self.take_completions();
        // What some had no room for waits for it: that is handed over, too.
        self.enter_if_asked();
        Ok(())
    }

    /// Goes on with what connections had no room for, and hears who has acknowledged what. To be
    /// called when [`StreamGroup::as_fd`] is readable, or now and then.
    pub fn poll(&mut self) {
        // What is asked for is handed over before this returns: of what the kernel does not know
        // the descriptor tells nothing.
        for _ in 0..POLL_ROUNDS_MAX {
            self.take_completions();
            if !self.enter_if_asked() {
                return;
            }
        }
    }

    /// Connections that have ended since the last call, and why.
    pub fn ended(&mut self) -> Vec<(StreamId, StreamEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// How many connections it has.
    #[must_use]
    pub fn len(&self) -> usize {
        let streams = self.streams.iter().flatten();
        streams.filter(|stream| stream.socket.is_some()).count()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> StreamCounters {
        self.counters
    }

    fn check(&self, range: &Range<usize>) -> Result<(), StreamError> {
        let (start, end, area_bytes) = (range.start, range.end, self.area.bytes_total());
        if start >= end || end > area_bytes {
            return Err(StreamError::Outside {
                start,
                end,
                area_bytes,
            });
        }
        Ok(())
    }

    /// Asks the kernel for the next step of a connection that has something to be sent.
    fn step(&mut self, slot: u32) {
        let Some(stream) = &mut self.streams[slot as usize] else {
            return;
        };
        let (Some(socket), Some(&(message, from))) = (&stream.socket, stream.queue.front()) else {
            return;
        };
        if stream.busy.is_some() {
            return;
        }
        let end = self.messages[message as usize].range.end;
        let start = self.area.base().as_ptr().wrapping_add(from).cast_const();
        let length = u32::try_from(end - from).unwrap_or(u32::MAX / 2);
        let entry = opcode::SendZc::new(types::Fd(socket.as_raw_fd()), start, length)
            .buf_index(Some(0))
            .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            .zc_flags(self.usage_flag)
            .build()
            .user_data(SEND | u64::from(message) << 24 | u64::from(slot));
        (stream.busy, stream.in_flight) = (Some(Busy::Sending), stream.in_flight + 1);
        self.in_flight += 1;
        self.messages[message as usize].needed += 1;
        self.push(&entry);
    }

    /// Waits for room in a connection.
    fn wait_for_room(&mut self, slot: u32) {
        let Some(stream) = &mut self.streams[slot as usize] else {
            return;
        };
        let Some(socket) = &stream.socket else {
            return;
        };
        let events = u32::from(libc::POLLOUT.cast_unsigned());
        let entry = opcode::PollAdd::new(types::Fd(socket.as_raw_fd()), events)
            .build()
            .user_data(ROOM | u64::from(slot));
        (stream.busy, stream.in_flight) = (Some(Busy::WaitingForRoom), stream.in_flight + 1);
        self.in_flight += 1;
        self.push(&entry);
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: a send reads registered memory that the ring pins, and that is not written as
        // long as its message is needed; a poll has no memory. The kernel holds the socket.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter();
        }
    }

    /// Whether anything was asked for.
    fn enter_if_asked(&mut self) -> bool {
        let queue = self.ring.submission();
        let is_asked = !queue.is_empty() || queue.cq_overflow();
        drop(queue);
        if is_asked {
            self.enter();
        }
        is_asked
    }

    /// Hands over what was asked for.
    fn enter(&mut self) {
        self.counters.crossings += 1;
        match self.ring.submit() {
            Ok(_) => {}
            // A signal, or a full completion queue: what there is is taken next.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                self.take_completions();
            }
            Err(error) => panic!("a ring that was set up takes its entries: {error}"),
        }
    }

    fn take_completions(&mut self) {
        loop {
            let entry = self.ring.completion().next();
            let Some(entry) = entry else {
                return;
            };
            let what = entry.user_data();
            let slot = u32::try_from(what & 0xff_ffff).expect("24 bits");
            if what == CANCEL {
                continue;
            }
            if what & ROOM != 0 {
                self.let_go(slot);
                self.is_free_again(slot);
                continue;
            }
            let message = u32::try_from(what >> 24 & 0xffff_ffff).expect("32 bits");
            if cqueue::notif(entry.flags()) {
                let is_copied = entry.result() & USAGE_COPIED != 0;
                let is_told = self.usage_flag != 0;
                self.counters.copied += u64::from(is_told && is_copied);
                self.counters.zero_copy += u64::from(is_told && !is_copied);
                self.needed_less(message);
                if let Some(stream) = &mut self.streams[slot as usize] {
                    stream.unacknowledged.acknowledged(message);
                }
                self.let_go(slot);
                continue;
            }
            if cqueue::more(entry.flags())
                && let Some(stream) = &mut self.streams[slot as usize]
            {
                stream.unacknowledged.sent(message);
            }
            if !cqueue::more(entry.flags()) {
                self.needed_less(message);
                self.let_go(slot);
            }
            self.took(slot, entry.result());
        }
    }

    /// A connection has taken so many bytes, or none for that reason.
    fn took(&mut self, slot: u32, result: i32) {
        let Some(stream) = &mut self.streams[slot as usize] else {
            return;
        };
        stream.busy = None;
        let bytes = match usize::try_from(result) {
            Ok(bytes) => bytes,
            Err(_) if matches!(-result, libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => 0,
            Err(_) => return self.end(slot, StreamEnd::Refused(-result)),
        };
        self.counters.bytes += bytes as u64;
        let Some((message, from)) = stream.queue.front_mut() else {
            return;
        };
        let (message, at) = (*message, *from + bytes);
        *from = at;
        if at == self.messages[message as usize].range.end {
            stream.queue.pop_front();
            self.needed_less(message);
            self.step(slot);
        } else {
            self.counters.partial += 1;
            self.wait_for_room(slot);
        }
    }

    fn is_free_again(&mut self, slot: u32) {
        if let Some(stream) = &mut self.streams[slot as usize] {
            stream.busy = None;
        }
        self.step(slot);
    }

    fn needed_less(&mut self, message: u32) {
        self.messages[message as usize].needed -= 1;
    }

    fn let_go(&mut self, slot: u32) {
        self.in_flight -= 1;
        if let Some(stream) = &mut self.streams[slot as usize] {
            stream.in_flight -= 1;
        }
        self.free_slot(slot);
    }

    /// Ends a connection with a reset: what it has not acknowledged is needed no more.
    fn end(&mut self, slot: u32, why: StreamEnd) {
        // As in `remove`: the number is another socket's before long.
        self.enter_if_asked();
        let Some(stream) = &mut self.streams[slot as usize] else {
            return;
        };
        let turn = stream.turn;
        let Some(socket) = stream.socket.take() else {
            return;
        };
        if why == StreamEnd::Behind {
            reset(&socket);
        }
        drop(socket);
        self.ended.push((StreamId { slot, turn }, why));
        self.forget_queue(slot);
        self.free_slot(slot);
    }

    /// What a connection was still to be sent is needed no more, and it waits for no room.
    fn forget_queue(&mut self, slot: u32) {
        let Some(stream) = &mut self.streams[slot as usize] else {
            return;
        };
        for (message, _) in std::mem::take(&mut stream.queue) {
            self.messages[message as usize].needed -= 1;
        }
        if stream.busy == Some(Busy::WaitingForRoom) {
            let entry = opcode::PollRemove::new(ROOM | u64::from(slot)).build();
            self.push(&entry.user_data(CANCEL));
            self.enter();
        }
    }

    /// A slot is another's when the kernel has let go of all that was the one's.
    fn free_slot(&mut self, slot: u32) {
        let stream = self.streams[slot as usize].as_ref();
        let is_over = |stream: &Stream| stream.socket.is_none() && stream.in_flight == 0;
        if stream.is_some_and(is_over) && !self.free.contains(&slot) {
            self.free.push(slot);
        }
    }
}

impl Stream {
    /// Messages that it has not acknowledged.
    fn messages_behind(&self) -> usize {
        let first = self.queue.front().map(|(message, _)| *message);
        self.queue.len() + self.unacknowledged.messages_behind(first)
    }
}

/// Has the connection end with a reset, also while sends hold it.
fn reset(socket: &TcpStream) {
    // SAFETY: a sockaddr is integers, for which zero is a value.
    let mut nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
    nobody.sa_family = libc::sa_family_t::try_from(libc::AF_UNSPEC).expect("0");
    let length = libc::socklen_t::try_from(size_of_val(&nobody)).expect("16");
    // SAFETY: an address of the length given; connecting to nobody disconnects TCP at once.
    unsafe { libc::connect(socket.as_raw_fd(), &raw const nobody, length) };
}

impl AsFd for StreamGroup {
    /// Readable when there is something to be heard: see [`StreamGroup::poll`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring, and so its descriptor, lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for StreamGroup {
    /// What was handed over is in the sockets; the ring has pinned it until it has left.
    fn drop(&mut self) {
        for slot in 0..self.streams.len() {
            self.streams[slot] = None;
        }
    }
}

impl fmt::Debug for StreamGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamGroup")
            .field("streams", &self.len())
            .field("in_flight", &self.in_flight)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            streams_max: 1024,
            area_bytes: 4 << 20,
            behind_max: 16,
        }
    }
}

/// How often a poll goes on with what it has brought about itself; the rest is the next one's.
const POLL_ROUNDS_MAX: usize = 4;

/// The answer to IORING_SEND_ZC_REPORT_USAGE: IORING_NOTIF_USAGE_ZC_COPIED.
const USAGE_COPIED: i32 = i32::MIN;
/// Kinds of what is asked of the kernel; the slot lies below, and the message of a send.
const SEND: u64 = 1 << 62;
const ROOM: u64 = 1 << 63;
const CANCEL: u64 = 1 << 61;
