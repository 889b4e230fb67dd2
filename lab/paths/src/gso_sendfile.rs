//! `gso_sendfile`: `sendfile` of trains of packet images that lie in a memfd, with UDP_SEGMENT.
//!
//! No copy, one crossing a train, and neither a ring nor lockable memory: the best that an account
//! without rights gets. The kernel does not say when it is done with the pages; images that are
//! written while packets are in flight would change them, so each window of images is a memfd of
//! its own.

use std::io;

use super::images::Images;
use super::{Job, Mechanism, OpenError, Plan};

#[derive(Debug)]
pub(super) struct GsoSendfile {
    images: Images,
}

impl GsoSendfile {
    pub(super) fn open(plan: &Plan, image_bytes_max: usize) -> Result<Self, OpenError> {
        let images = Images::in_file(plan, image_bytes_max)?;
        Ok(Self { images })
    }
}

impl Mechanism for GsoSendfile {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        while !job.packets.is_empty() {
            let ready = self.images.ensure(job)?;
            while job.packets.start < ready.end {
                let packets = job.packets.start..ready.end;
                let count = job.train(packets.clone(), onrush_sys::path::TRAIN_PACKETS_MAX);
                let bytes = job.source.plan.bytes(packets.start..packets.start + count);
                let offset = self.images.offset(packets.start) as u64;
                let file = self.images.file().expect("they were put into one");
                job.calls.send_file(job.socket, file, offset, bytes)?;
                job.sent(count);
            }
        }
        Ok(())
    }

    fn prepare(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        self.images.ensure(job).map(drop)
    }

    fn forget(&mut self) {
        self.images.forget();
    }
}
