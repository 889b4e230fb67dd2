//! `mmap_send`: `mmap` of the file and `send` of each packet from it. Over TCP or UDP.

use std::io;

use super::gather::Pieces;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct MmapSend;

impl Mechanism for MmapSend {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.with_map(|job, map| {
            let mut pieces = Pieces::default();
            while let Some(packet) = job.next() {
                pieces.clear();
                pieces.add(map, &packet);
                match pieces.as_slice() {
                    [one] => job.calls.send_all(job.socket, *one)?,
                    several if job.is_tcp => several
                        .iter()
                        .try_for_each(|&piece| job.calls.send_all(job.socket, piece))?,
                    several => drop(job.calls.send_pieces(job.socket, several, 0)?),
                }
                job.sent(1);
            }
            Ok(())
        })
    }
}
