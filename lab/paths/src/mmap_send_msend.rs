//! `mmap_send_msend`: as [`mmap_send_rtp`](super::mmap_send_rtp), the payload by reference.
//!
//! The paper's `msend` appends mapped pages to the datagram that the cork holds back. MSG_ZEROCOPY
//! cannot: to what is not the first piece of a datagram the kernel adds its bytes by copying
//! (ip_output.c, `__ip_append_data`: zero copy needs CHECKSUM_PARTIAL, which only the first piece
//! gets). Spliced pages have no such condition, so `msend` is `vmsplice` to a pipe and `splice`
//! from it: one crossing more.

use std::io;

use super::gather::even_parts;
use super::kernel::{Pipe, iovec};
use super::{Job, Mechanism, OpenError, system};

#[derive(Debug)]
pub(super) struct MmapSendMsend {
    pipe: Pipe,
}

impl MmapSendMsend {
    pub(super) fn open() -> Result<Self, OpenError> {
        let pipe = Pipe::new().map_err(system("open a pipe for 32 pages"))?;
        Ok(Self { pipe })
    }
}

impl Mechanism for MmapSendMsend {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.with_map(|job, map| {
            while let Some(packet) = job.next() {
                job.corked(|job| {
                    job.calls.send(job.socket, iovec(packet.header), 0)?;
                    for part in packet.pieces.iter().flat_map(even_parts) {
                        self.msend(job, map.place(part))?;
                    }
                    Ok(())
                })?;
                job.sent(1);
            }
            Ok(())
        })
    }
}

impl MmapSendMsend {
    /// Appends mapped bytes by reference.
    fn msend(&mut self, job: &mut Job<'_>, bytes: libc::iovec) -> io::Result<()> {
        let lent = job.calls.lend(&self.pipe, bytes)?;
        let moved = job.calls.drain(&self.pipe, job.socket, lent);
        if !matches!(moved, Ok(moved) if moved == bytes.iov_len) {
            // What was lent and not taken must not be in front of the next packet.
            self.pipe = Pipe::new()?;
        }
        match moved? {
            moved if moved == bytes.iov_len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
