//! `mmap_msend`: `mmap` of the file, and each packet from it by reference.
//!
//! The paper's `msend` sends mapped file pages without copying them; today that is MSG_ZEROCOPY,
//! which pins the pages for the one send. (A ring's registration would pin them once, but the
//! kernel registers no mapping of a file that others can write: EFAULT on ext4 and xfs.) New is
//! that the kernel tells when it is done with them.

use std::io;

use super::gather::Pieces;
use super::notifications::Notifications;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct MmapMsend;

impl Mechanism for MmapMsend {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.with_map(|job, map| {
            let mut notifications = Notifications::enable(job.calls, job.socket)?;
            let mut pieces = Pieces::default();
            let mut sent = Ok(());
            while let Some(packet) = job.next() {
                pieces.clear();
                pieces.add(map, &packet);
                sent = notifications.send(job.calls, job.socket, pieces.as_slice());
                if sent.is_err() {
                    break;
                }
                job.sent(1);
            }
            notifications.finish(job.calls, job.socket, sent)
        })
    }
}
