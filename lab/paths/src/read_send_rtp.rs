//! `read_send_rtp`: `pread` of the payload behind the header, and `send` of both from one buffer.
//!
//! The paper's best of the paths with a copy in the program: the header costs no copy of its own.

use std::io;

use super::kernel::iovec;
use super::{Job, Mechanism, Plan};

#[derive(Debug)]
pub(super) struct ReadSendRtp {
    buffer: Vec<u8>,
}

impl ReadSendRtp {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            buffer: vec![0; plan.packet_bytes_max()],
        }
    }
}

impl Mechanism for ReadSendRtp {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        while let Some(packet) = job.next() {
            let (header, payload) = self.buffer.split_at_mut(packet.header.len());
            header.copy_from_slice(packet.header);
            job.read_payload(&packet, payload)?;
            let image = iovec(&self.buffer[..packet.bytes()]);
            job.calls.send(job.socket, image, 0)?;
            job.sent(1);
        }
        Ok(())
    }
}
