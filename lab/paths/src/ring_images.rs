//! `uring_zc`, `uring_registered`, `uring_sqpoll`: packet images by a ring's SEND_ZC.
//!
//! The first two send each packet by itself, from memory that is pinned for each send or once for
//! all: they show what is left when copies and crossings are gone and trains are not. Their images
//! lie in base pages, because the kernel charges a lone packet from a huge page up to 2 MiB
//! (io_uring/net.c, `io_sg_from_iter`). The third sends trains, as [`krtpsendfile`](super::engine)
//! does, but a thread of the kernel looks for entries, so that sending needs no crossing at all and
//! costs a processor instead.

use std::io;

use io_uring::{opcode, types};

use super::images::Images;
use super::ring::Ring;
use super::{Job, Mechanism, OpenError};
use onrush_lock::{BUFFER_BYTES_MAX, LockedArea};
use onrush_sys::path::{PathError, TRAIN_PACKETS_MAX};

pub(super) struct RingImages {
    // The ring goes first, and with it what it has of the images' memory; then its counting; then
    // the memory.
    ring: Ring,
    registered: Option<LockedArea>,
    images: Images,
    is_train: bool,
}

impl RingImages {
    pub(super) fn open(
        images: Images,
        is_registered: bool,
        is_train: bool,
    ) -> Result<Self, OpenError> {
        let ring = Ring::open(opcode::SendZc::CODE, is_train)?;
        let registered = is_registered.then(|| {
            let area = images.pool().expect("in memory means in a pool").area();
            let bytes_total = area.bytes_total();
            let refused = |source| PathError::Register {
                bytes_total,
                source,
            };
            area.register(ring.fd()).map_err(refused)
        });
        Ok(Self {
            registered: registered.transpose()?,
            ring,
            images,
            is_train,
        })
    }

    fn batch(&mut self, job: &mut Job<'_>, end: usize) -> io::Result<()> {
        let mut packets = job.packets.start..end;
        while !packets.is_empty() && self.ring.room() > 0 {
            let longest = if self.is_train { TRAIN_PACKETS_MAX } else { 1 };
            let count = job.train(packets.clone(), longest);
            let train = self.images.place(job, packets.start..packets.start + count);
            let bytes = u32::try_from(train.iov_len).expect("a train is below 64 KiB");
            let buffer = self.images.offset(packets.start) / BUFFER_BYTES_MAX;
            let buffer = u16::try_from(buffer).expect("an area is under 64 TiB");
            let start = train.iov_base.cast_const().cast();
            let entry = opcode::SendZc::new(types::Fd(job.socket), start, bytes)
                .buf_index(self.registered.is_some().then_some(buffer))
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .zc_flags(self.ring.usage())
                .build();
            // SAFETY: the images stay as they are until `finish` has returned: only `ensure` writes
            // them.
            unsafe { self.ring.push(entry, count) };
            packets.start += count;
        }
        self.ring.run(job)
    }
}

impl Mechanism for RingImages {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.cut(self.is_train)?;
        while !job.packets.is_empty() {
            let ready = self.images.ensure(job)?;
            let mut sent = Ok(());
            while sent.is_ok() && job.packets.start < ready.end {
                sent = self.batch(job, ready.end);
            }
            self.ring.finish(job.calls, sent)?;
        }
        Ok(())
    }

    fn images(&mut self) -> Option<&mut Images> {
        Some(&mut self.images)
    }
}
