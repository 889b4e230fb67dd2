//! `sendfile_tcp`: one `sendfile` of all that lies together in the file. Over TCP.

use std::io;
use std::os::fd::AsRawFd;

use super::{Job, Mechanism};

#[derive(Debug)]
pub(super) struct SendfileTcp;

impl Mechanism for SendfileTcp {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        while let Some(first) = job.next() {
            let (start, end, packets) = job.extent();
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
    }
}

impl Job<'_> {
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
