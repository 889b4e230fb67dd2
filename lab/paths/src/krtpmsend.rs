//! `krtpmsend`, and without headers `kmsend`: `mmap` of the file, and a ring's SENDMSG_ZC of
//! headers and payloads by reference.
//!
//! The paper's calls send a mapped file whole, `krtpmsend` with headers from an engine in the
//! kernel. Here an entry in a ring refers to the plan's headers and to the mapped file, and a
//! crossing takes a batch of entries. Nothing is prepared and nothing shared, so that each client
//! can have headers of its own; but a send is of 17 pieces at most, and pages are pinned for each:
//! eight packets an entry at best.

use std::io;

use io_uring::{opcode, types};

use super::gather::{Bound, Pieces};
use super::kernel::message;
use super::ring::Ring;
use super::{Job, Mechanism, OpenError};
use onrush_sys::path::ring::REPORT_USAGE;
use onrush_sys::path::{BATCH_TRAINS_MAX, PathError};

pub(super) struct Krtpmsend {
    ring: Ring,
    /// What the entries of a batch refer to.
    messages: Box<[libc::msghdr]>,
    pieces: Vec<Pieces>,
}

impl Krtpmsend {
    pub(super) fn open() -> Result<Self, OpenError> {
        Ok(Self {
            ring: Ring::open(opcode::SendMsgZc::CODE, PathError::SendZc, false)?,
            messages: (0..BATCH_TRAINS_MAX).map(|_| message(&[])).collect(),
            pieces: (0..BATCH_TRAINS_MAX).map(|_| Pieces::default()).collect(),
        })
    }
}

impl Mechanism for Krtpmsend {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        job.with_map(|job, map| {
            let mut sent = Ok(());
            while sent.is_ok() && !job.packets.is_empty() {
                let mut packets = job.packets.clone();
                let places = self.messages.iter_mut().zip(&mut self.pieces);
                for (message_, pieces) in places {
                    if packets.is_empty() {
                        break;
                    }
                    let bound = Bound::Referenced;
                    let (count, _) = pieces.add_train(job, map, packets.clone(), bound);
                    *message_ = message(pieces.as_slice());
                    let usage = if self.ring.report_usage {
                        REPORT_USAGE
                    } else {
                        0
                    };
                    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                    let entry = opcode::SendMsgZc::new(types::Fd(job.socket), &raw const *message_)
                        .ioprio(usage)
                        .flags(flags.cast_unsigned())
                        .build();
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

impl std::fmt::Debug for Krtpmsend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Krtpmsend")
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}
