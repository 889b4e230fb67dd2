//! `mmap_writev`: `mmap` of the file and `writev` of each header and payload.

use std::io;

use super::gather::Pieces;
use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct MmapWritev;

impl Mechanism for MmapWritev {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.with_map(|job, map| {
            let mut pieces = Pieces::default();
            while let Some(packet) = job.next() {
                pieces.clear();
                pieces.add(map, &packet);
                job.calls.write_pieces(job.socket, pieces.as_slice())?;
                job.sent(1);
            }
            Ok(())
        })
    }
}
