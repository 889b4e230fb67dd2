//! `sendfile_udp`: `sendfile` of each packet; the kernel makes one datagram of what one call moves.
//!
//! If the file ends within a packet, a shorter one has left when the call says so.

use std::io;

use super::gather::even_parts;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct SendfileUdp;

impl Mechanism for SendfileUdp {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        while let Some(packet) = job.next() {
            if packet.pieces.iter().flat_map(even_parts).count() == 1 {
                job.send_file_pieces(packet.pieces)?;
            } else {
                job.corked(|job| job.send_file_pieces(packet.pieces))?;
            }
            job.sent(1);
        }
        Ok(())
    }
}
