//! `read_write`, `read_send_rtp`, `read_writev`: each payload by `pread` into a buffer, which holds
//! the largest packet.

use std::io;

use super::Job;
use super::kernel::iovec;

/// `read_write`: each packet by `pread` into a buffer and `write` from it. Over TCP or UDP. What
/// every program did before there was anything else: two crossings and two copies a packet.
pub(super) fn read_write(mut buffer: Vec<u8>) -> impl FnMut(&mut Job<'_>) -> io::Result<()> {
    move |job| {
        while let Some(packet) = job.next() {
            let bytes = job.read_payload(&packet, &mut buffer)?;
            job.calls.write_all(job.socket, &buffer[..bytes])?;
            job.sent(1);
        }
        Ok(())
    }
}

/// `read_send_rtp`: `pread` of the payload behind the header, and `send` of both from one buffer.
/// The paper's best of the paths with a copy in the program: the header costs no copy of its own.
pub(super) fn read_send_rtp(mut buffer: Vec<u8>) -> impl FnMut(&mut Job<'_>) -> io::Result<()> {
    move |job| {
        while let Some(packet) = job.next() {
            let (header, payload) = buffer.split_at_mut(packet.header.len());
            header.copy_from_slice(packet.header);
            job.read_payload(&packet, payload)?;
            let image = iovec(&buffer[..packet.bytes()]);
            job.calls.send(job.socket, image, 0)?;
            job.sent(1);
        }
        Ok(())
    }
}

/// `read_writev`: `pread` of the payload, and `writev` of the header's buffer and the payload's.
/// The straightforward way, to which the paper's figure 5 compares all others.
pub(super) fn read_writev(mut buffer: Vec<u8>) -> impl FnMut(&mut Job<'_>) -> io::Result<()> {
    move |job| {
        while let Some(packet) = job.next() {
            let bytes = job.read_payload(&packet, &mut buffer)?;
            let pieces = [iovec(packet.header), iovec(&buffer[..bytes])];
            job.calls.write_pieces(job.socket, &pieces)?;
            job.sent(1);
        }
        Ok(())
    }
}
