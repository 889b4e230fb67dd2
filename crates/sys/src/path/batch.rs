//! `sendmmsg_gso`, `sendmmsg` and `sendto`: the copying paths, for kernels and accounts without the
//! best.
//!
//! The kernel copies during the call, so a train's memory is free as soon as its answer is there.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use super::segment_control::SegmentControl;
use super::stream_queue::StreamQueue;
use super::{
    BATCH_TRAINS_MAX, Completion, Counters, IN_FLIGHT_TRAINS_MAX, OWN_HEADERS_PACKETS_MAX,
    OwnHeaders, Path, PathName, Sent, StreamData, StreamSend, TRAIN_PACKETS_MAX, To, Train, check,
    gather,
};
use crate::clock::monotonic_ns;
use crate::pool::Pool;
use crate::wake::Waker;

/// How often a socket that was full is tried again, where nothing else is to be done.
const AGAIN_NS: u64 = 5_000_000;

const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

#[derive(Debug)]
pub(super) struct Batch {
    name: PathName,
    pool: Arc<Pool>,
    waker: Arc<Waker>,
    queued: Vec<Train>,
    streams: StreamQueue,
    done: VecDeque<Completion>,
    counters: Counters,
    is_ordered: bool,
}

impl Batch {
    /// `is_ordered`: a train that fails takes those behind it, of the same submission, with it
    /// (ECANCELED).
    pub(super) fn open(
        name: PathName,
        pool: Arc<Pool>,
        waker: Arc<Waker>,
        is_ordered: bool,
    ) -> Self {
        Self {
            name,
            is_ordered,
            pool,
            waker,
            queued: Vec::with_capacity(BATCH_TRAINS_MAX),
            streams: StreamQueue::default(),
            done: VecDeque::with_capacity(BATCH_TRAINS_MAX),
            counters: Counters::default(),
        }
    }

    /// Sends one train: the packets that the kernel took, and the errno of what it refused first,
    /// or 0.
    fn send(&mut self, train: &Train) -> (usize, i32) {
        let To::Descriptor(fd) = train.to else {
            unreachable!("this path has no places, and `queue` has seen that none was named");
        };
        if let Some(headers) = train.headers {
            return self.send_gathered(fd, train, headers);
        }
        let start = self.pool.area().base().as_ptr().wrapping_add(train.offset);
        let bytes = train.bytes as usize;
        let piece_bytes = if self.name.segments() {
            bytes
        } else {
            usize::from(train.stride)
        };
        // SAFETY: an iovec is an address and a length, for which all zeroes is valid (and empty).
        let mut pieces: [libc::iovec; TRAIN_PACKETS_MAX] = unsafe { mem::zeroed() };
        let count = bytes.div_ceil(piece_bytes);
        for (i, piece) in pieces.iter_mut().take(count).enumerate() {
            let offset = i * piece_bytes;
            piece.iov_base = start.wrapping_add(offset).cast();
            piece.iov_len = piece_bytes.min(bytes - offset);
        }
        let (sent, errno) = if self.name == PathName::Sendto {
            self.send_singly(fd, &pieces[..count])
        } else {
            let control = self.segment_control(train);
            self.send_together(fd, &mut pieces[..count], control)
        };
        // A train that the kernel cuts is one piece.
        let is_whole = self.name.segments() && sent > 0;
        let packets = bytes.div_ceil(usize::from(train.stride));
        (if is_whole { packets } else { sent }, errno)
    }

    /// The same with headers of the train's own: in one message if the kernel cuts it, else in one
    /// a packet.
    fn send_gathered(
        &mut self,
        fd: libc::c_int,
        train: &Train,
        headers: OwnHeaders,
    ) -> (usize, i32) {
        // SAFETY: an iovec is an address and a length, for which all zeroes is valid (and empty).
        let mut pieces: [libc::iovec; 2 * OWN_HEADERS_PACKETS_MAX] = unsafe { mem::zeroed() };
        let count = gather(
            train,
            headers,
            self.pool.area().base().as_ptr(),
            &mut pieces,
        );
        let packets = count / 2;
        let pieces_per_message = if self.name.segments() { count } else { 2 };
        // SAFETY: an mmsghdr is addresses, lengths and flags, for which all zeroes is valid (and
        // empty).
        let mut messages: [libc::mmsghdr; OWN_HEADERS_PACKETS_MAX] = unsafe { mem::zeroed() };
        let messages_count = count / pieces_per_message;
        let parts = pieces[..count].chunks_mut(pieces_per_message);
        for (message, part) in messages.iter_mut().zip(parts) {
            message.msg_hdr.msg_iov = part.as_mut_ptr();
            message.msg_hdr.msg_iovlen = part.len() as _;
        }
        let mut control = self.segment_control(train);
        if let Some(control) = &mut control {
            control.attach_to(&mut messages[0].msg_hdr);
        }
        let at_once = if self.name == PathName::Sendto {
            1
        } else {
            messages_count
        };
        let (sent, errno) = self.send_messages(fd, &mut messages[..messages_count], at_once);
        let is_whole = self.name.segments() && sent > 0;
        (if is_whole { packets } else { sent }, errno)
    }

    /// What has the kernel cut this train, if its socket says another length. A train that the
    /// kernel cuts is one message.
    fn segment_control(&self, train: &Train) -> Option<SegmentControl> {
        let segment_bytes = train.segments_of_send().filter(|_| self.name.segments());
        segment_bytes.map(SegmentControl::new)
    }

    fn send_together(
        &mut self,
        fd: libc::c_int,
        pieces: &mut [libc::iovec],
        mut control: Option<SegmentControl>,
    ) -> (usize, i32) {
        // SAFETY: an mmsghdr is addresses, lengths and flags, for which all zeroes is valid (and
        // empty).
        let mut messages: [libc::mmsghdr; TRAIN_PACKETS_MAX] = unsafe { mem::zeroed() };
        for (message, piece) in messages.iter_mut().zip(&mut *pieces) {
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        if let Some(control) = &mut control {
            control.attach_to(&mut messages[0].msg_hdr);
        }
        self.send_messages(fd, &mut messages[..pieces.len()], pieces.len())
    }

    /// Sends messages, at most so many at once: how many the kernel took, and the errno of the
    /// first that it refused, or 0. They point to iovecs and control messages of the caller's, and
    /// the iovecs into the pool's area.
    fn send_messages(
        &mut self,
        fd: libc::c_int,
        messages: &mut [libc::mmsghdr],
        at_once: usize,
    ) -> (usize, i32) {
        let mut done = 0;
        while done < messages.len() {
            let rest = &mut messages[done..];
            let count = u32::try_from(rest.len().min(at_once)).expect("at most 64 packets");
            self.counters.crossings += 1;
            // SAFETY: each message points to iovecs that the caller keeps, which point into the
            // pool's area (`check` has seen that), and perhaps to a control message that it keeps,
            // too; the caller's pin keeps others from writing to the area meanwhile.
            let sent = unsafe { libc::sendmmsg(fd, rest.as_mut_ptr(), count, SEND_FLAGS as _) };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => done += sent,
                _ => return (done, last_errno()),
            }
        }
        (done, 0)
    }

    fn send_singly(&mut self, fd: libc::c_int, pieces: &[libc::iovec]) -> (usize, i32) {
        for (number, piece) in pieces.iter().enumerate() {
            self.counters.crossings += 1;
            // SAFETY: the piece lies within the pool's area (`check` has seen that); the caller's
            // pin keeps others from writing there meanwhile. A connected socket needs no address.
            let sent = unsafe {
                libc::sendto(
                    fd,
                    piece.iov_base,
                    piece.iov_len,
                    SEND_FLAGS,
                    ptr::null(),
                    0,
                )
            };
            if sent < 0 {
                return (number, last_errno());
            }
        }
        (pieces.len(), 0)
    }

    /// Sleeps until the time, or without one until the waker wakes it.
    fn sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let timeout = deadline_ns.map(|deadline_ns| {
            let left_ns = deadline_ns.saturating_sub(monotonic_ns());
            libc::timespec {
                tv_sec: libc::time_t::try_from(left_ns / 1_000_000_000)
                    .unwrap_or(libc::time_t::MAX),
                tv_nsec: libc::c_long::try_from(left_ns % 1_000_000_000).unwrap_or(0),
            }
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // With a deadline only time ends the sleep, as on the ring: work is taken at the tick.
        let watched = libc::nfds_t::from(deadline_ns.is_none());
        let mut poll = libc::pollfd {
            fd: self.waker.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        self.counters.crossings += 1;
        // SAFETY: `poll` is one valid pollfd, of which `watched` (0 or 1) are used; the time-out is
        // null or valid; no signal mask is given.
        let ready = unsafe { libc::ppoll(&raw mut poll, watched, timeout, ptr::null()) };
        if ready < 0 && last_errno() != libc::EINTR {
            return Err(io::Error::last_os_error());
        }
        if poll.revents != 0 {
            self.waker.clear();
        }
        Ok(())
    }
}

impl Path for Batch {
    fn name(&self) -> PathName {
        self.name
    }

    fn room(&self) -> usize {
        let batch = BATCH_TRAINS_MAX.saturating_sub(self.queued.len() + self.done.len());
        batch.min(IN_FLIGHT_TRAINS_MAX.saturating_sub(self.in_flight()))
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.streams.len() + self.done.len()
    }

    fn queue(&mut self, train: Train) {
        assert!(self.room() > 0, "there is room for the train");
        check(&train, &self.pool);
        assert!(matches!(train.to, To::Descriptor(_)), "it has no places");
        self.queued.push(train);
        self.counters.trains += 1;
        self.counters.trains_copied += 1;
        self.counters.trains_own_headers += u64::from(train.headers.is_some());
        let has_control = self.segment_control(&train).is_some();
        self.counters.trains_own_segments += u64::from(has_control);
    }

    fn sends_streams(&self) -> bool {
        true
    }

    fn queue_stream(&mut self, send: StreamSend) {
        assert!(self.room() > 0, "there is room for the send");
        if matches!(send.data, StreamData::Packets(_)) {
            self.counters.trains += 1;
            self.counters.trains_copied += 1;
            self.counters.trains_framed += 1;
        }
        self.streams.push(send, &self.pool);
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut failed = false;
        for i in 0..self.queued.len() {
            let train = self.queued[i];
            let (packets, errno) = if failed && self.is_ordered {
                (0, libc::ECANCELED)
            } else {
                self.send(&train)
            };
            failed |= errno != 0;
            let taken = packets * usize::from(train.stride);
            let bytes = u32::try_from(taken).map_or(train.bytes, |taken| taken.min(train.bytes));
            self.done.push_back(Completion {
                token: train.token,
                sent: Some(Sent { bytes, errno }),
                released: true,
                referred: None,
            });
        }
        self.queued.clear();
        let done = &mut self.done;
        let answer = |completion| done.push_back(completion);
        self.counters.crossings += self.streams.advance(&self.pool, answer);
        Ok(())
    }

    fn submit_and_wait(&mut self, _completions: usize) -> io::Result<()> {
        self.submit()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.submit()?;
        if deadline_ns.is_none() && !self.done.is_empty() {
            return Ok(());
        }
        if deadline_ns.is_none() && self.streams.len() > 0 {
            return self.sleep(Some(monotonic_ns() + AGAIN_NS));
        }
        self.sleep(deadline_ns)
    }

    fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

fn last_errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}
