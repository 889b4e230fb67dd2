//! `uring`: `mmap` of the file, and a ring's SENDMSG of each packet: fewer crossings and nothing
//! else.

use std::io;

use io_uring::{opcode, types};

use super::gather::Pieces;
use super::kernel::message;
use super::ring::Ring;
use super::{Job, Mechanism, OpenError};
use onrush_sys::path::{BATCH_TRAINS_MAX, PathError};

pub(super) struct Uring {
    ring: Ring,
    /// What the entries of a batch refer to.
    messages: Box<[libc::msghdr]>,
    pieces: Vec<Pieces>,
}

impl Uring {
    pub(super) fn open() -> Result<Self, OpenError> {
        Ok(Self {
            ring: Ring::open(opcode::SendMsg::CODE, PathError::SendZc, false)?,
            messages: (0..BATCH_TRAINS_MAX).map(|_| message(&[])).collect(),
            pieces: (0..BATCH_TRAINS_MAX).map(|_| Pieces::default()).collect(),
        })
    }
}

impl Mechanism for Uring {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.calls.segment(job.socket, 0)?;
        job.with_map(|job, map| {
            while !job.packets.is_empty() {
                let places = self.messages.iter_mut().zip(&mut self.pieces);
                for (number, (message_, pieces)) in job.packets.clone().zip(places) {
                    pieces.clear();
                    pieces.add(map, &job.source.plan.packet(number));
                    *message_ = message(pieces.as_slice());
                    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                    let entry = opcode::SendMsg::new(types::Fd(job.socket), &raw const *message_)
                        .flags(flags.cast_unsigned())
                        .build();
                    // SAFETY: the message and its pieces are ours, and stay as they are until `run`
                    // returns.
                    unsafe { self.ring.push(entry, 1) };
                }
                self.ring.run(job)?;
            }
            Ok(())
        })
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}
