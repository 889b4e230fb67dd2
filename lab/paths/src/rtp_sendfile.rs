//! `rtp_sendfile`: for each packet UDP_CORK, a `send` of the header, a `sendfile` of the payload,
//! and UDP_CORK off. The paper's best of the paths that existed.

use std::io;

use super::kernel::iovec;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct RtpSendfile;

impl Mechanism for RtpSendfile {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        while let Some(packet) = job.next() {
            job.corked(|job| {
                job.calls.send(job.socket, iovec(packet.header), 0)?;
                job.send_file_pieces(packet.pieces)
            })?;
            job.sent(1);
        }
        Ok(())
    }
}
