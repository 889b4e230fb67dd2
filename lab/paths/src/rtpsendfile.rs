//! `rtpsendfile`: the header by `send` and the payload by `sendfile`, with one cork for up to seven
//! packets.
//!
//! The paper's call takes a header and a place in a file, and saves three of the four calls of
//! [`rtp_sendfile`](super::rtp_sendfile). Here the two calls of a packet stay, and what is saved is
//! the cork of each packet and, by UDP_SEGMENT, its way through the network stack, which costs
//! more. UDP_SEGMENT also leaves the checksum to the device: without it the processor sums every
//! spliced page (ip_output.c, `__ip_append_data`). Headers and payloads are pieces of their own, of
//! which a send holds 17 (MAX_SKB_FRAGS): seven packets, each a header and a payload of up to two
//! pages, the copied headers sharing pages.

use std::io;

use super::gather::{FRAGMENTS_MAX, fragments_of_file};
use super::kernel::iovec;
use super::{Job, Mechanism};

/// The longest train, if its payloads touch few pages.
const PACKETS_MAX: usize = 7;

#[derive(Debug)]
pub(super) struct Rtpsendfile;

impl Mechanism for Rtpsendfile {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        while !job.packets.is_empty() {
            let count = job.train_of_files();
            job.corked(|job| {
                for number in job.packets.start..job.packets.start + count {
                    let packet = job.source.plan.packet(number);
                    job.calls.send(job.socket, iovec(packet.header), 0)?;
                    job.send_file_pieces(packet.pieces)?;
                }
                Ok(())
            })?;
            job.sent(count);
        }
        Ok(())
    }
}

impl Job<'_> {
    /// How many of the next packets fit one train when each header and each page of payload is a
    /// piece.
    fn train_of_files(&self) -> usize {
        let count = self.train(self.packets.clone(), PACKETS_MAX);
        let mut fragments = 0;
        for nth in 0..count {
            let packet = self.source.plan.packet(self.packets.start + nth);
            // One for the header: copied bytes go to a page of the socket's, which is one piece
            // until it ends.
            fragments += 1 + packet.pieces.iter().map(fragments_of_file).sum::<usize>();
            if fragments > FRAGMENTS_MAX {
                return nth.max(1);
            }
        }
        count
    }
}
