//! `mmap_send`, `mmap_writev`, `mmap_send_rtp`, `mmap_msend`, `mmap_rtpmsend`, `mmap_send_msend`,
//! `gso`: sends from the mapped file. Each maps what is left of the job, and unmaps it.

use std::io;

use super::gather::{Bound, even_parts};
use super::kernel::{Pipe, iovec};
use super::map::Map;
use super::{Job, Mechanism, OpenError, system};

/// `mmap_send`: `send` of each packet. Over TCP or UDP.
pub(super) fn mmap_send(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map(|job, map| {
        job.each_packet(map, |job, pieces| match pieces {
            [one] => job.calls.send_all(job.socket, *one),
            several if job.is_tcp => several
                .iter()
                .try_for_each(|&piece| job.calls.send_all(job.socket, piece)),
            several => job.calls.send_pieces(job.socket, several, 0).map(drop),
        })
    })
}

/// `mmap_writev`: `writev` of each header and payload.
pub(super) fn mmap_writev(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map(|job, map| {
        job.each_packet(map, |job, pieces| {
            job.calls.write_pieces(job.socket, pieces).map(drop)
        })
    })
}

/// `mmap_msend`: each packet by reference.
///
/// The paper's `msend` sends mapped file pages without copying them; today that is MSG_ZEROCOPY,
/// which pins the pages for the one send. (A ring's registration would pin them once, but the
/// kernel registers no mapping of a file that others can write: EFAULT on ext4 and xfs.) New is
/// that the kernel tells when it is done with them.
pub(super) fn mmap_msend(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map(|job, map| {
        job.with_notifications(|job, notifications| {
            job.each_packet(map, |job, pieces| {
                notifications.send(job.calls, job.socket, pieces)
            })
        })
    })
}

/// `mmap_rtpmsend`: `sendmsg` of headers and payloads by reference, a short train a call.
///
/// The paper's `rtpmsend` takes a header and a mapped payload. The program still writes each header
/// and may read each payload; but what a packet costs in the network stack, and in pinning pages,
/// is shared by as many as fit the 17 pieces of a send: eight at best.
pub(super) fn mmap_rtpmsend(job: &mut Job<'_>) -> io::Result<()> {
    job.segment()?;
    job.with_map(|job, map| {
        job.with_notifications(|job, notifications| {
            job.each_train(map, Bound::Referenced, |job, pieces| {
                notifications.send(job.calls, job.socket, pieces)
            })
        })
    })
}

/// `gso`: `sendmsg` of a train's headers and payloads with UDP_SEGMENT. One copy and one crossing
/// for up to 64 packets, each with a header of the client's own.
pub(super) fn gso(job: &mut Job<'_>) -> io::Result<()> {
    job.segment()?;
    job.with_map(|job, map| {
        job.each_train(map, Bound::Copied, |job, pieces| {
            job.calls.send_pieces(job.socket, pieces, 0).map(drop)
        })
    })
}

/// `mmap_send_rtp`: for each packet UDP_CORK, a `send` of the header, a `send` of the payload, and
/// UDP_CORK off, which lets the datagram go.
pub(super) fn mmap_send_rtp(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map(|job, map| {
        job.each_corked(map, |job, packet| {
            packet.pieces.iter().try_for_each(|&piece| {
                let payload = map.place(piece);
                job.calls.send(job.socket, payload, 0).map(drop)
            })
        })
    })
}

/// `mmap_send_msend`: as [`mmap_send_rtp`], the payload by reference.
///
/// The paper's `msend` appends mapped pages to the datagram that the cork holds back. MSG_ZEROCOPY
/// cannot: to what is not the first piece of a datagram the kernel adds its bytes by copying
/// (ip_output.c, `__ip_append_data`: zero copy needs CHECKSUM_PARTIAL, which only the first piece
/// gets). Spliced pages have no such condition, so `msend` is `vmsplice` to a pipe and `splice`
/// from it: one crossing more.
pub(super) struct MmapSendMsend {
    pipe: Pipe,
}

impl MmapSendMsend {
    pub(super) fn open() -> Result<Self, OpenError> {
        let pipe = Pipe::new().map_err(system("open a pipe for 32 pages"))?;
        Ok(Self { pipe })
    }

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

impl Mechanism for MmapSendMsend {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        job.with_map(|job, map| {
            job.each_corked(map, |job, packet| {
                let mut parts = packet.pieces.iter().flat_map(even_parts);
                parts.try_for_each(|part| self.msend(job, map.place(part)))
            })
        })
    }
}

impl Job<'_> {
    /// Sends each packet's header and then what `append` sends as one datagram.
    fn each_corked(
        &mut self,
        map: &Map,
        mut append: impl FnMut(&mut Self, &super::Packet<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        while let Some(packet) = self.next() {
            self.touch(map, self.packets.start..self.packets.start + 1);
            self.corked(|job| {
                job.calls.send(job.socket, iovec(packet.header), 0)?;
                append(job, &packet)
            })?;
            self.sent(1);
        }
        Ok(())
    }
}
