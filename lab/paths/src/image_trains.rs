//! `gso_sendfile` and `gso_zerocopy`: trains of packet images, with UDP_SEGMENT and without a ring.
//!
//! `gso_sendfile` has its images in a memfd and sends them by `sendfile`: no copy, one crossing a
//! train, and neither a ring nor lockable memory, the best that an account without rights gets. The
//! kernel does not say when it is done with the pages; images that are written while packets are in
//! flight would change them, so each window of images is a memfd of its own. `gso_zerocopy` sends
//! from memory by `send` with MSG_ZEROCOPY, of which the kernel does say so.

use std::io;
use std::os::fd::RawFd;

use super::images::Images;
use super::{Job, Mechanism, Range};
use onrush_sys::path::TRAIN_PACKETS_MAX;

/// Where the images are decides how they are sent.
pub(super) struct ImageTrains(pub(super) Images);

impl ImageTrains {
    /// Sends the images up to `end`, a train at a time.
    fn trains(
        &self,
        job: &mut Job<'_>,
        end: usize,
        mut send: impl FnMut(&mut Job<'_>, Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        while job.packets.start < end {
            let first = job.packets.start;
            let count = job.train(first..end, TRAIN_PACKETS_MAX);
            send(job, first..first + count)?;
            job.sent(count);
        }
        Ok(())
    }

    fn send_file(&self, job: &mut Job<'_>, file: RawFd, end: usize) -> io::Result<()> {
        self.trains(job, end, |job, train| {
            let offset = self.0.offset(train.start) as u64;
            let bytes = job.source.plan.bytes(train);
            job.calls
                .send_file(job.socket, file, offset, bytes)
                .map(drop)
        })
    }
}

impl Mechanism for ImageTrains {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        while !job.packets.is_empty() {
            let end = self.0.ensure(job)?.end;
            match self.0.file() {
                Some(file) => self.send_file(job, file, end)?,
                None => job.with_notifications(|job, notifications| {
                    self.trains(job, end, |job, train| {
                        let train = self.0.place(job, train);
                        notifications.send(job.calls, job.socket, &[train])
                    })
                })?,
            }
        }
        Ok(())
    }

    fn images(&mut self) -> Option<&mut Images> {
        Some(&mut self.0)
    }
}
