//! `gso`: `mmap` of the file, and `sendmsg` of a train's headers and payloads with UDP_SEGMENT.
//!
//! One copy and one crossing for up to 64 packets, each with a header of the client's own.

use std::io;

use super::gather::{Bound, Pieces};
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct Gso;

impl Mechanism for Gso {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.segment()?;
        job.with_map(|job, map| {
            let mut pieces = Pieces::default();
            while !job.packets.is_empty() {
                let packets = job.packets.clone();
                let (count, _) = pieces.add_train(job, map, packets, Bound::Copied);
                job.calls.send_pieces(job.socket, pieces.as_slice(), 0)?;
                job.sent(count);
            }
            Ok(())
        })
    }
}
