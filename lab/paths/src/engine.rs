//! `krtpsendfile`, `ksendfile`, `uring_vectored_zc`, `sendmmsg_gso`, `sendmmsg`, `sendto`: packet
//! images by the engine's paths.
//!
//! The paper's `krtpsendfile` is one call after which the kernel reads the file, adds RTP headers
//! from an engine of its own, and sends. Here the headers are written before, once for all who send
//! the file; what is left is an entry in a ring for each train and a crossing for each batch of
//! them. `ksendfile` is the same without headers. `uring_vectored_zc` leaves the headers in the
//! images aside and takes others from a slab, which are each client's own. The copying paths serve
//! where there is no ring, and to compare.

use std::io;
use std::sync::Arc;

use super::images::Images;
use super::kernel::plant;
use super::{Job, Mechanism, OpenError, Plan, Range, system};
use onrush_sys::path::{
    self as path, Completion, OWN_HEADERS_PACKETS_MAX, OwnHeaders, Path, PathError, PathName,
    Segments, TRAIN_PACKETS_MAX, To, Train, Vectored,
};
use onrush_sys::pool::{HeaderSlab, HeaderSlot, SLOT_BYTES};
use onrush_sys::wake::Waker;

pub(super) struct Engine {
    path: Box<dyn Path>,
    images: Images,
    /// Where headers are that are not those of the images.
    slab: Option<HeaderSlab>,
    /// The trains of a batch, and what became of each.
    batch: Vec<Handed>,
    /// The token of the batch's first train; no two trains have the same, as far as 32 bits go.
    token_first: u32,
}

struct Handed {
    bytes: u32,
    stride: u16,
    headers: Option<HeaderSlot>,
    /// Packets that were taken, and the errno that ended it.
    sent: Option<(usize, i32)>,
    /// What a test wants to be answered; 0 for nothing.
    planted: i32,
}

impl Engine {
    pub(super) fn open(name: PathName, images: Images) -> Result<Self, OpenError> {
        Self::of(name, images, None)
    }

    /// With headers apart from the images.
    pub(super) fn open_vectored(plan: &Plan, image_bytes_max: usize) -> Result<Self, OpenError> {
        let bytes = plan.header_bytes();
        if bytes > SLOT_BYTES / OWN_HEADERS_PACKETS_MAX {
            return Err(PathError::Headers { bytes }.into());
        }
        let (images, slab) = Images::with_slab(plan, image_bytes_max)?;
        let engine = Self::of(PathName::UringRegisteredZc, images, Some(slab))?;
        match engine.path.vectored() {
            Vectored::ZeroCopy => Ok(engine),
            _ => Err(PathError::Vectored.into()),
        }
    }

    fn of(name: PathName, images: Images, slab: Option<HeaderSlab>) -> Result<Self, OpenError> {
        let pool = images.pool().expect("in memory means in a pool");
        let waker = Waker::new().map_err(system("make an event"))?;
        Ok(Self {
            path: path::open_ordered(name, pool, &Arc::new(waker))?,
            images,
            slab,
            batch: Vec::with_capacity(path::BATCH_TRAINS_MAX),
            token_first: 0,
        })
    }

    /// The headers of a train in a slot of the slab, if they are apart from the images.
    fn headers(&mut self, plan: &Plan, packets: Range<usize>) -> Option<HeaderSlot> {
        let offset = self.images.offset(packets.start);
        let slab = self.slab.as_mut()?;
        Some(slab.take(offset, |slot| {
            let places = slot.chunks_exact_mut(plan.header_bytes());
            for (packet, place) in packets.zip(places) {
                place.copy_from_slice(plan.packet(packet).header);
            }
        }))
    }

    /// How many of these packets, from the first, leave as a train.
    fn train_packets(&self, job: &Job<'_>, packets: Range<usize>) -> usize {
        let plan = &job.source.plan;
        let (first, bytes) = (packets.start, plan.packet_bytes(packets.start));
        let count = match self.path.name().segments() {
            true => job.train(packets, TRAIN_PACKETS_MAX),
            // Images lie one behind the other only where they are as long as their stride.
            false if bytes == plan.packet_bytes_max() => plan.train(packets, TRAIN_PACKETS_MAX),
            false => 1,
        };
        if self.slab.is_none() {
            return count;
        }
        let stride = u16::try_from(bytes).expect("a packet is below 64 KiB");
        let offset = self.images.offset(first);
        count.min(self.path.own_headers_packets(offset, stride).max(1))
    }

    /// Hands over as many trains as go at once, and waits until the kernel has let go of them. The
    /// errno of the first that failed.
    fn batch(&mut self, job: &mut Job<'_>, ready: Range<usize>) -> io::Result<i32> {
        let handed = u32::try_from(self.batch.len()).expect("a batch is small");
        self.token_first = self.token_first.wrapping_add(handed);
        for handed in self.batch.drain(..) {
            if let (Some(slab), Some(slot)) = (&mut self.slab, handed.headers) {
                slab.give_back(slot);
            }
        }
        let mut packets = ready;
        while !packets.is_empty() && self.path.room() > 0 {
            let offset = self.images.offset(packets.start);
            let slab = self.slab.as_ref();
            if slab.is_some_and(|slab| slab.room(offset) == 0) {
                break;
            }
            let count = self.train_packets(job, packets.clone());
            let train = packets.start..packets.start + count;
            let slot = self.headers(&job.source.plan, train.clone());
            let bytes = job.source.plan.bytes(train.clone());
            let bytes = u32::try_from(bytes).expect("a train is below 64 KiB");
            let stride = job.source.plan.packet_bytes(train.start);
            let stride = u16::try_from(stride).expect("a packet is below 64 KiB");
            let planted = plant::refusal();
            self.path.queue(Train {
                // To no socket: it fails, and what is behind it stays.
                to: To::Descriptor(if planted == 0 { job.socket } else { -1 }),
                offset,
                bytes,
                stride,
                segments: Segments::OfSocket,
                headers: slot.as_ref().map(|slot| OwnHeaders {
                    offset: slot.offset(),
                    bytes: u8::try_from(job.source.plan.header_bytes()).expect("at most 16"),
                }),
                token: self
                    .token_first
                    .wrapping_add(u32::try_from(self.batch.len()).expect("a batch is small")),
            });
            self.batch.push(Handed {
                bytes,
                stride,
                headers: slot,
                sent: None,
                planted,
            });
            packets.start += count;
        }
        // The memory may be released before the answer is there.
        while self.path.in_flight() > 0 || self.batch.iter().any(|handed| handed.sent.is_none()) {
            self.path.submit_and_wait(self.path.in_flight().max(1))?;
            while let Some(completion) = self.path.completion() {
                self.completed(completion);
            }
        }
        Ok(self.account(job))
    }

    fn completed(&mut self, completion: Completion) {
        let place = completion.token.wrapping_sub(self.token_first);
        let handed = &mut self.batch[place as usize];
        if let Some(sent) = completion.sent {
            let packets = sent.packets(handed.bytes, handed.stride);
            handed.sent = Some((packets as usize, sent.errno));
        }
    }

    /// Tells the job what was taken, up to the first failure; its errno, or 0.
    fn account(&self, job: &mut Job<'_>) -> i32 {
        for handed in &self.batch {
            let (packets, errno) = handed.sent.expect("every train is answered");
            if packets > 0 {
                job.sent(packets);
            }
            if errno != 0 {
                return if handed.planted == 0 {
                    errno
                } else {
                    handed.planted
                };
            }
        }
        0
    }
}

impl Mechanism for Engine {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.cut(self.path.name().segments())?;
        job.calls.widen(job.socket)?;
        while !job.packets.is_empty() {
            let ready = self.images.ensure(job)?;
            let before = self.path.counters();
            let sent = self.batch(job, ready);
            job.add(before, self.path.counters());
            match sent? {
                0 | libc::EINTR | libc::ECANCELED => {}
                libc::EAGAIN => job.calls.wait(job.socket, libc::POLLOUT)?,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(())
    }

    fn images(&mut self) -> Option<&mut Images> {
        Some(&mut self.images)
    }
}

impl Job<'_> {
    /// Counts what the engine's path did between two moments.
    fn add(&mut self, before: path::Counters, after: path::Counters) {
        let counters = &mut self.calls.counters;
        counters.crossings += after.crossings - before.crossings;
        counters.sends_zero_copy += after.trains_zero_copy - before.trains_zero_copy;
        counters.sends_copied += after.trains_copied - before.trains_copied;
        counters.sends_single += after.trains_single - before.trains_single;
    }
}
