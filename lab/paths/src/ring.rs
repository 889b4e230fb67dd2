//! A ring for the sends of one socket: batches of entries, each linked to the next, so that what
//! comes behind a failed one does not leave before it.
//!
//! A send without a copy has two answers, the result and later the notification that its memory is
//! free, and the kernel wakes who waits by their number, whichever they are. Where it is our own
//! sleep that carries entries out, results come first, and who waits for as many is woken once. A
//! thread of the kernel mixes the two: who waits for the results is woken when half of them are
//! there, for half of the rest when half of those are, and so on. So there all answers that the
//! batch can have are waited for together.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::squeue::Flags;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::kernel::{Calls, plant};
use super::{Job, OpenError};
use onrush_sys::path::ring::{REPORT_USAGE, USAGE_COPIED, build_ring, kernel_at_least};
use onrush_sys::path::{BATCH_TRAINS_MAX, PathError};

/// How long the kernel's thread looks for entries before it sleeps.
const SQPOLL_IDLE_MS: u32 = 100;

/// How long one wait lasts at the most. A send that the kernel refused before it looked at it (it
/// has no memory for the notification) has one answer, and who waits for two looks then, and waits
/// for what is certain.
const WAIT: Duration = Duration::from_secs(1);

pub(super) struct Ring {
    ring: IoUring,
    is_polled: bool,
    /// Answers that a send has at the most.
    answers_max: usize,
    /// Entries handed to the kernel that are not answered.
    unanswered: usize,
    /// Answered sends whose memory the kernel still refers to.
    unreleased: usize,
    /// Sends that were never begun. The kernel says of those too that it has let go of their
    /// memory, though it did not say that it would (io_uring/net.c, `io_send_zc_cleanup`).
    cancelled: Vec<u64>,
    /// The mark of the batch's first entry; each entry ever has its own.
    mark_first: u64,
    batch: Vec<Handed>,
    /// Its entries. The kernel sees them all at once, or its thread would take a part of the chain
    /// for the whole.
    entries: Vec<squeue::Entry>,
    /// Whether the kernel says if it copied.
    report_usage: bool,
}

/// An entry of the batch.
#[derive(Clone, Copy, Debug)]
struct Handed {
    packets: usize,
    answer: Option<i32>,
    /// What a test wants to be answered; 0 for nothing.
    planted: i32,
}

impl Ring {
    pub(super) fn open(opcode: u8, is_polled: bool) -> Result<Self, OpenError> {
        let entries = u32::try_from(BATCH_TRAINS_MAX).expect("a batch is small");
        let ring = if is_polled {
            let mut builder = IoUring::builder();
            builder.setup_sqpoll(SQPOLL_IDLE_MS).setup_submit_all();
            builder.setup_cqsize(entries * 4).build(entries)
        } else {
            build_ring(entries, entries * 4)
        };
        let ring = ring.map_err(PathError::Ring)?;
        let mut probe = Probe::new();
        let asked = ring.submitter().register_probe(&mut probe);
        asked.map_err(PathError::Ring)?;
        if !probe.is_supported(opcode) {
            return Err(PathError::SendZc.into());
        }
        Ok(Self {
            ring,
            is_polled,
            answers_max: match opcode {
                opcode::SendZc::CODE | opcode::SendMsgZc::CODE => 2,
                _ => 1,
            },
            unanswered: 0,
            unreleased: 0,
            cancelled: Vec::with_capacity(BATCH_TRAINS_MAX),
            mark_first: 0,
            batch: Vec::with_capacity(BATCH_TRAINS_MAX),
            entries: Vec::with_capacity(BATCH_TRAINS_MAX),
            report_usage: kernel_at_least(6, 2),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring lives as long as this borrow of its descriptor.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// The flags of a send that make the kernel say if it copied, as far as it can.
    pub(super) fn usage(&self) -> u16 {
        if self.report_usage { REPORT_USAGE } else { 0 }
    }

    /// Entries that still go into the batch.
    pub(super) fn room(&self) -> usize {
        BATCH_TRAINS_MAX - self.batch.len()
    }

    /// Adds a send of so many packets to the batch.
    ///
    /// # Safety
    ///
    /// What the entry refers to stays valid until [`Self::run`] has returned.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry, packets: usize) {
        assert!(self.room() > 0, "there is room for the entry");
        let planted = plant::refusal();
        let entry = match planted {
            0 => entry,
            // To no socket: it fails, and ends the chain.
            _ => opcode::Send::new(types::Fd(-1), std::ptr::null(), 0).build(),
        };
        let entry = entry.user_data(self.mark_first + self.batch.len() as u64);
        self.batch.push(Handed {
            packets,
            answer: None,
            planted,
        });
        self.entries.push(entry.flags(Flags::IO_LINK));
    }

    /// Hands the batch over, and waits for all answers. Tells the job what was taken, waits for
    /// room if that was missing, and fails with what else ended the batch.
    pub(super) fn run(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        self.queue();
        // Those of sends that copy are never heard of again.
        let kept = self.cancelled.len().min(BATCH_TRAINS_MAX);
        self.cancelled.drain(..self.cancelled.len() - kept);
        self.unanswered = self.batch.len();
        let mut want = self.first_wait();
        while self.unanswered > 0 {
            self.enter(job.calls, want)?;
            self.take(job.calls);
            want = self.unanswered;
        }
        let mut failed = 0;
        self.mark_first += self.batch.len() as u64;
        for handed in self.batch.drain(..) {
            match handed.answer.expect("every entry is answered") {
                0.. => job.sent(handed.packets),
                errno => {
                    failed = if handed.planted == 0 {
                        -errno
                    } else {
                        handed.planted
                    };
                    break;
                }
            }
        }
        match failed {
            0 | libc::EINTR | libc::ECANCELED => Ok(()),
            libc::EAGAIN => job.calls.wait(job.socket, libc::POLLOUT),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits until the kernel refers to nothing any more, and returns `sent`, or why that cannot be
    /// known.
    pub(super) fn finish(&mut self, calls: &mut Calls, sent: io::Result<()>) -> io::Result<()> {
        while self.unreleased > 0 {
            self.enter(calls, self.unreleased)?;
            self.take(calls);
        }
        sent
    }

    fn queue(&mut self) {
        if let Some(last) = self.entries.last_mut() {
            *last = last.clone().clear_flags();
        }
        // SAFETY: what the entries refer to is valid, by `push`'s condition.
        let pushed = unsafe { self.ring.submission().push_multiple(&self.entries) };
        pushed.expect("the ring has room for a batch");
        self.entries.clear();
    }

    /// How many answers to wait for once the batch is handed over.
    fn first_wait(&self) -> usize {
        if !self.is_polled {
            return self.unanswered;
        }
        let of = |handed: &Handed| match handed.planted {
            0 => self.answers_max,
            _ => 1,
        };
        self.batch.iter().map(of).sum::<usize>() + self.unreleased
    }

    /// One crossing: hands over what is queued, and waits until so many answers are there, or for a
    /// while.
    fn enter(&mut self, calls: &mut Calls, want: usize) -> io::Result<()> {
        let wait = Timespec::from(WAIT);
        let args = SubmitArgs::new().timespec(&wait);
        let submitter = self.ring.submitter();
        let entered = calls.make(None, || match submitter.submit_with_args(want, &args) {
            Ok(count) => count.cast_signed(),
            Err(_) => -1,
        });
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EBUSY | libc::EAGAIN | libc::ETIME) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes what has arrived.
    fn take(&mut self, calls: &mut Calls) {
        for entry in self.ring.completion() {
            let mark = entry.user_data();
            if cqueue::notif(entry.flags()) {
                if let Some(place) = self.cancelled.iter().position(|&it| it == mark) {
                    self.cancelled.swap_remove(place);
                    continue;
                }
                let is_copied = entry.result() & USAGE_COPIED != 0;
                calls.counters.sends_copied += u64::from(is_copied);
                calls.counters.sends_zero_copy += u64::from(self.report_usage && !is_copied);
                self.unreleased -= 1;
                continue;
            }
            self.unanswered -= 1;
            let has_more = cqueue::more(entry.flags());
            self.unreleased += usize::from(has_more);
            if entry.result() == -libc::ECANCELED && !has_more {
                self.cancelled.push(mark);
            }
            let place = usize::try_from(mark - self.mark_first).expect("a place in the batch");
            self.batch[place].answer = Some(entry.result());
        }
    }
}
