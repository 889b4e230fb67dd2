//! `sendfile_tcp`, `sendfile_udp`, `rtp_sendfile`, `rtpsendfile`: payloads by `sendfile`.

use std::io;
use std::os::fd::AsRawFd;

use super::Job;
use super::gather::{FRAGMENTS_MAX, even_parts, fragments_of_file};
use super::map::Map;

/// The longest train of `rtpsendfile`, if its payloads touch few pages.
const PACKETS_MAX: usize = 7;

/// `sendfile_tcp`: one `sendfile` of all that lies together in the file. Over TCP.
pub(super) fn sendfile_tcp(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map_to_touch(|job, map| {
        while let Some(first) = job.next() {
            let (start, end, packets) = job.extent();
            job.touch_next(map, packets.max(1));
            if packets > 0 {
                job.send_extent(start, end)?;
                job.sent(packets);
                continue;
            }
            for piece in first.pieces {
                job.send_extent(piece.offset, piece.offset + u64::from(piece.bytes))?;
            }
            job.sent(1);
        }
        Ok(())
    })
}

/// `sendfile_udp`: `sendfile` of each packet; the kernel makes one datagram of what one call moves.
/// If the file ends within a packet, a shorter one has left when the call says so.
pub(super) fn sendfile_udp(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map_to_touch(|job, map| {
        while let Some(packet) = job.next() {
            job.touch_next(map, 1);
            if packet.pieces.iter().flat_map(even_parts).count() == 1 {
                job.send_file_pieces(packet.pieces)?;
            } else {
                job.corked(|job| job.send_file_pieces(packet.pieces))?;
            }
            job.sent(1);
        }
        Ok(())
    })
}

/// `rtp_sendfile`: for each packet UDP_CORK, a `send` of the header, a `sendfile` of the payload,
/// and UDP_CORK off. The paper's best of the paths that existed.
pub(super) fn rtp_sendfile(job: &mut Job<'_>) -> io::Result<()> {
    job.with_map_to_touch(|job, map| {
        while !job.packets.is_empty() {
            job.touch_next(map, 1);
            job.send_files_corked(1)?;
        }
        Ok(())
    })
}

/// `rtpsendfile`: the header by `send` and the payload by `sendfile`, with one cork for up to seven
/// packets.
///
/// The paper's call takes a header and a place in a file, and saves three of the four calls of
/// [`rtp_sendfile`]. Here the two calls of a packet stay, and what is saved is the cork of each
/// packet and, by UDP_SEGMENT, its way through the network stack, which costs more. UDP_SEGMENT
/// also leaves the checksum to the device: without it the processor sums every spliced page
/// (ip_output.c, `__ip_append_data`). Headers and payloads are pieces of their own, of which a send
/// holds 17 (MAX_SKB_FRAGS): seven packets, each a header and a payload of up to two pages, the
/// copied headers sharing pages.
pub(super) fn rtpsendfile(job: &mut Job<'_>) -> io::Result<()> {
    job.segment()?;
    job.with_map_to_touch(|job, map| {
        while !job.packets.is_empty() {
            let count = job.train_of_files();
            job.touch_next(map, count);
            job.send_files_corked(count)?;
        }
        Ok(())
    })
}

impl Job<'_> {
    /// Touches the next `count` packets, if the file is mapped for that.
    fn touch_next(&mut self, map: Option<&Map>, count: usize) {
        if let Some(map) = map {
            self.touch(map, self.packets.start..self.packets.start + count);
        }
    }

    /// Sends the next `count` packets as one datagram or train.
    fn send_files_corked(&mut self, count: usize) -> io::Result<()> {
        self.corked(|job| {
            for number in job.packets.start..job.packets.start + count {
                let packet = job.source.plan.packet(number);
                let header = super::kernel::iovec(packet.header);
                job.calls.send(job.socket, header, 0)?;
                job.send_file_pieces(packet.pieces)?;
            }
            Ok(())
        })?;
        self.sent(count);
        Ok(())
    }

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

    fn send_extent(&mut self, mut start: u64, end: u64) -> io::Result<()> {
        let file = self.source.file.as_raw_fd();
        while start < end {
            start += self
                .calls
                .send_file(self.socket, file, start, end - start)? as u64;
        }
        Ok(())
    }

    /// Where in the file the next packets are that lie in it one behind the other, and how many
    /// they are: none, if the pieces of the first lie apart.
    fn extent(&self) -> (u64, u64, usize) {
        let plan = &self.source.plan;
        let start = plan.packet(self.packets.start).pieces[0].offset;
        let (mut end, mut count) = (start, 0);
        for number in self.packets.clone() {
            let mut packet_end = end;
            for piece in plan.packet(number).pieces {
                if piece.offset != packet_end {
                    return (start, end, count);
                }
                packet_end += u64::from(piece.bytes);
            }
            end = packet_end;
            count += 1;
        }
        (start, end, count)
    }
}
