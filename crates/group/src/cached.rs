//! Sends from any memory of the program, of any length, without a copy: a [`Cache`] finds its
//! registration again.
//!
//! The paper on locked memory (Seifert, Rehm: *Reliably Locking System V Shared Memory*) advises to
//! keep registrations for zero-copy protocols; this is that, under a group's sends. A ring of its
//! own has the cache's registrations, and every send returns when the kernel needs the memory no
//! more: until then the loan is out. Not here: what may be kept, which is the cache's to say.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::direct::{Direct, Slots};
use super::members::Members;
use super::uring::{CALLER, Registered, RegisteredTrain, RingSends};
use super::{Group, GroupError, Sender, Sent, Train};
use onrush_lock::{Budget, Cache, CacheCounters, CacheError, Keep, SLOTS_MAX};
use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};

/// A ring that registers what it sends from.
pub(super) struct Cached {
    sends: RingSends,
    cache: Cache,
}

impl Group {
    /// Sends a message of any length to every member, from wherever it lies: in trains of packets
    /// of `stride` bytes, of which the last may be shorter.
    ///
    /// By [`Way::Uring`](super::Way::Uring) without a copy: the memory is registered, or its
    /// registration found in the group's cache, which keeps [`Sealed`](onrush_lock::Sealed) memory
    /// and, if [`Group::set_cache`] says so, other private memory. It returns when the kernel needs
    /// the message no more: after some 3 s if a member is on the link and its address does not
    /// resolve. By the other ways the kernel copies it, as [`Group::send_train`] does, and nobody
    /// waits.
    ///
    /// # Errors
    ///
    /// If no packet is that long, or the memory cannot be registered: then nothing was sent.
    pub fn send_cached(&mut self, message: &[u8], stride: usize) -> Result<Sent, GroupError> {
        if stride == 0 || stride > TRAIN_BYTES_MAX {
            let bytes = message.len();
            return Err(GroupError::Train { bytes, stride });
        }
        let train_bytes = TRAIN_PACKETS_MAX.min(TRAIN_BYTES_MAX / stride) * stride;
        let fd = self.socket.as_raw_fd();
        let mut sent = Sent::default();
        match &mut self.sender {
            Sender::Uring(uring) if !message.is_empty() => {
                let cached = match &mut self.cached {
                    Some(cached) => cached,
                    none => none.insert(Box::new(Cached::open(self.cache_budget)?)),
                };
                let direct = &mut uring.direct;
                sent = cached.send(fd, direct, &mut self.members, message, stride, train_bytes)?;
            }
            sender => {
                let whole = message.chunks(train_bytes);
                for bytes in whole.chain(message.is_empty().then_some(message)) {
                    let train = Train { bytes, stride };
                    sent.add(sender.send(&self.socket, &mut self.members, train));
                }
            }
        }
        self.sends += 1;
        self.sent.add(sent);
        Ok(sent)
    }

    /// What [`Group::send_cached`] may keep registered, from now on; all that is kept is given up.
    /// At first sealed memory alone, 1024 registrations of 256 MiB together.
    ///
    /// With [`Keep::Watched`] the program must spare its memory what no watcher hears of: see
    /// [`Cache`].
    ///
    /// # Errors
    ///
    /// If no cache keeps so many.
    pub fn set_cache(&mut self, budget: Budget) -> Result<(), GroupError> {
        let entries_max = budget.entries_max;
        if entries_max == 0 || entries_max > usize::from(SLOTS_MAX) {
            return Err(CacheError::Budget { entries_max }.into());
        }
        self.cache_budget = budget;
        self.cached = None;
        Ok(())
    }

    /// What the cache of [`Group::send_cached`] has done; nothing before the first such send.
    #[must_use]
    pub fn cache_counters(&self) -> CacheCounters {
        let cached = self.cached.as_ref();
        cached.map_or_else(CacheCounters::default, |cached| cached.cache.counters())
    }
}

impl Cached {
    fn open(budget: Budget) -> Result<Self, GroupError> {
        let sends = RingSends::open().map_err(GroupError::Uring)?;
        // SAFETY: the ring is open, and stays so to the end of this block.
        let ring = unsafe { BorrowedFd::borrow_raw(sends.ring.as_raw_fd()) };
        let cache = Cache::new(ring.as_fd(), budget)?;
        Ok(Self { sends, cache })
    }

    fn send(
        &mut self,
        fd: RawFd,
        direct: &mut Direct,
        members: &mut Members,
        message: &[u8],
        stride: usize,
        train_bytes: usize,
    ) -> Result<Sent, GroupError> {
        let first = Train {
            bytes: &message[..message.len().min(train_bytes)],
            stride,
        };
        let start = message.as_ptr().addr();
        let loan = self.cache.acquire(start..start + message.len())?;
        if direct.set_segment(fd, first).is_err() {
            // Each way says the same, and counts it.
            self.cache.release(loan);
            let all = Slots::All(members.len());
            return Ok(direct.send(fd, members, all, first));
        }
        let trains = message.chunks(train_bytes).map(|bytes| RegisteredTrain {
            start: bytes.as_ptr(),
            train: Train { bytes, stride },
        });
        let trains: Vec<_> = trains.collect();
        let (buffer, holder) = (loan.buffer(), CALLER);
        let from = Registered { buffer, holder };
        let sent = self.sends.send(fd, from, &trains, members, direct);
        self.sends.settle();
        self.cache.release(loan);
        Ok(sent)
    }

    /// Sends that the kernel made without a copy, and those that it copied all the same.
    pub(super) fn usage(&self) -> (u64, u64) {
        (self.sends.zero_copy, self.sends.copied)
    }
}

/// What is kept if nobody says otherwise.
pub(super) const BUDGET: Budget = Budget {
    keep: Keep::Sealed,
    entries_max: 1024,
    bytes_max: 256 << 20,
};
