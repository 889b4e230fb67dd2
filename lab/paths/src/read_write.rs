//! `read_write`: each packet by `pread` into a buffer and `write` from it. Over TCP or UDP.
//!
//! What every program did before there was anything else: two crossings and two copies a packet.

use std::io;

use super::{Job, Mechanism, Plan};

#[derive(Debug)]
pub(super) struct ReadWrite {
    buffer: Vec<u8>,
}

impl ReadWrite {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            buffer: vec![0; plan.packet_bytes_max()],
        }
    }
}

impl Mechanism for ReadWrite {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        while let Some(packet) = job.next() {
            let bytes = job.read_payload(&packet, &mut self.buffer)?;
            job.calls.write_all(job.socket, &self.buffer[..bytes])?;
            job.sent(1);
        }
        Ok(())
    }
}
