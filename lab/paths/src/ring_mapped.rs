//! `uring`, `krtpmsend`, and without headers `kmsend`: `mmap` of the file, and a ring's sends of
//! headers and payloads from it.
//!
//! `uring` is a SENDMSG of each packet: fewer crossings and nothing else. The paper's `krtpmsend`
//! and `kmsend` send a mapped file whole, the first with headers from an engine in the kernel. Here
//! an entry in a ring, SENDMSG_ZC, refers to the plan's headers and to the mapped file, and a
//! crossing takes a batch of entries. Nothing is prepared and nothing shared, so that each client
//! can have headers of its own; but a send is of 17 pieces at most, and pages are pinned for each:
//! eight packets an entry at best.

use std::io;

use io_uring::{opcode, types};

use super::gather::{Bound, Pieces};
use super::kernel::message;
use super::ring::Ring;
use super::{Job, Mechanism, OpenError};
use onrush_sys::path::BATCH_TRAINS_MAX;

pub(super) struct RingMapped {
    ring: Ring,
    /// Trains without a copy, or packets with one.
    is_zero_copy: bool,
    /// What the entries of a batch refer to.
    messages: Box<[libc::msghdr]>,
    pieces: Vec<Pieces>,
}

impl RingMapped {
    pub(super) fn open(is_zero_copy: bool) -> Result<Self, OpenError> {
        let opcode = match is_zero_copy {
            true => opcode::SendMsgZc::CODE,
            false => opcode::SendMsg::CODE,
        };
        Ok(Self {
            ring: Ring::open(opcode, false)?,
            is_zero_copy,
            messages: (0..BATCH_TRAINS_MAX).map(|_| message(&[])).collect(),
            pieces: (0..BATCH_TRAINS_MAX).map(|_| Pieces::default()).collect(),
        })
    }
}

impl Mechanism for RingMapped {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.cut(self.is_zero_copy)?;
        job.with_map(|job, map| {
            let mut sent = Ok(());
            while sent.is_ok() && !job.packets.is_empty() {
                let mut packets = job.packets.clone();
                for (message_, pieces) in self.messages.iter_mut().zip(&mut self.pieces) {
                    if packets.is_empty() {
                        break;
                    }
                    let count = match self.is_zero_copy {
                        true => pieces.set_train(job, map, packets.clone(), Bound::Referenced),
                        false => pieces.set(job, map, packets.start),
                    };
                    *message_ = message(pieces.as_slice());
                    let (fd, message) = (types::Fd(job.socket), &raw const *message_);
                    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).cast_unsigned();
                    let entry = match self.is_zero_copy {
                        true => opcode::SendMsgZc::new(fd, message)
                            .ioprio(self.ring.usage())
                            .flags(flags)
                            .build(),
                        false => opcode::SendMsg::new(fd, message).flags(flags).build(),
                    };
                    // SAFETY: the message and its pieces are ours, and stay as they are until `run`
                    // returns.
                    unsafe { self.ring.push(entry, count) };
                    packets.start += count;
                }
                sent = self.ring.run(job);
            }
            self.ring.finish(job.calls, sent)
        })
    }
}
