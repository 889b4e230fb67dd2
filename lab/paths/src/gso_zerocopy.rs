//! `gso_zerocopy`: `send` with MSG_ZEROCOPY and UDP_SEGMENT of trains of packet images.

use std::io;

use super::images::Images;
use super::notifications::Notifications;
use super::{Job, Mechanism, OpenError, Plan};

#[derive(Debug)]
pub(super) struct GsoZerocopy {
    images: Images,
}

impl GsoZerocopy {
    pub(super) fn open(plan: &Plan, image_bytes_max: usize) -> Result<Self, OpenError> {
        let images = Images::in_memory(plan, image_bytes_max, true)?;
        Ok(Self { images })
    }
}

impl Mechanism for GsoZerocopy {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        while !job.packets.is_empty() {
            let ready = self.images.ensure(job)?;
            let mut notifications = Notifications::enable(job.calls, job.socket)?;
            let mut sent = Ok(());
            while sent.is_ok() && job.packets.start < ready.end {
                let packets = job.packets.start..ready.end;
                let count = job.train(packets.clone(), onrush_sys::path::TRAIN_PACKETS_MAX);
                let train = self.images.place(job, packets.start..packets.start + count);
                sent = notifications.send(job.calls, job.socket, &[train]);
                if sent.is_ok() {
                    job.sent(count);
                }
            }
            notifications.finish(job.calls, job.socket, sent)?;
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
