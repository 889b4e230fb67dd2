//! `mmap_send_rtp`: `mmap` of the file; for each packet UDP_CORK, a `send` of the header, a `send`
//! of the payload, and UDP_CORK off, which lets the datagram go.

use std::io;

use super::kernel::iovec;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct MmapSendRtp;

impl Mechanism for MmapSendRtp {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.with_map(|job, map| {
            while let Some(packet) = job.next() {
                job.corked(|job| {
                    job.calls.send(job.socket, iovec(packet.header), 0)?;
                    for &piece in packet.pieces {
                        job.calls.send(job.socket, map.place(piece), 0)?;
                    }
                    Ok(())
                })?;
                job.sent(1);
            }
            Ok(())
        })
    }
}
