//! `mmap_rtpmsend`: `mmap` of the file, and `sendmsg` of headers and payloads by reference, a short
//! train a call.
//!
//! The paper's `rtpmsend` takes a header and a mapped payload. The program still writes each header
//! and may read each payload; but what a packet costs in the network stack, and in pinning pages,
//! is shared by as many as fit the 17 pieces of a send: eight at best.

use std::io;

use super::gather::{Bound, Pieces};
use super::notifications::Notifications;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct MmapRtpmsend;

impl Mechanism for MmapRtpmsend {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        job.with_map(|job, map| {
            let mut notifications = Notifications::enable(job.calls, job.socket)?;
            let mut pieces = Pieces::default();
            let mut sent = Ok(());
            while !job.packets.is_empty() {
                let packets = job.packets.clone();
                let (count, _) = pieces.add_train(job, map, packets, Bound::Referenced);
                sent = notifications.send(job.calls, job.socket, pieces.as_slice());
                if sent.is_err() {
                    break;
                }
                job.sent(count);
            }
            notifications.finish(job.calls, job.socket, sent)
        })
    }
}
