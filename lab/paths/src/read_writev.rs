//! `read_writev`: `pread` of the payload, and `writev` of the header's buffer and the payload's.
//!
//! The straightforward way, to which the paper's figure 5 compares all others.

use std::io;

use super::kernel::iovec;
use super::{Job, Mechanism, Plan};

#[derive(Debug)]
pub(super) struct ReadWritev {
    buffer: Vec<u8>,
}

impl ReadWritev {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            buffer: vec![0; plan.packet_bytes_max()],
        }
    }
}

impl Mechanism for ReadWritev {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        while let Some(packet) = job.next() {
            let bytes = job.read_payload(&packet, &mut self.buffer)?;
            let pieces = [iovec(packet.header), iovec(&self.buffer[..bytes])];
            job.calls.write_pieces(job.socket, &pieces)?;
            job.sent(1);
        }
        Ok(())
    }
}
