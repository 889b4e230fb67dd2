//! What several paths do with a job: map its part of the file, read a payload, hold a datagram
//! back, and list headers and payloads as pieces for one send.

use std::io;
use std::os::fd::AsRawFd;

use super::kernel::iovec;
use super::map::Map;
use super::notifications::Notifications;
use super::plan::{Packet, Piece};
use super::touch::Touch;
use super::{Job, Range};
use onrush_lock::memory::page_bytes;

/// Pieces of memory that one send without a copy is made of, at the most (linux/skbuff_ref.h,
/// MAX_SKB_FRAGS).
pub(super) const FRAGMENTS_MAX: usize = 17;

/// Pieces that one call is given, at the most (linux/uio.h, UIO_MAXIOV).
const PIECES_MAX: usize = 1024;

/// As much as `sendmsg` takes at all, and more than a datagram holds.
static TOO_LONG: [u8; 65_535] = [0; 65_535];

/// Headers and payloads for one send, in order. Keeps its memory when cleared.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: Vec<libc::iovec>,
    /// Pages that they touch.
    fragments: usize,
}

/// What bounds a gathered train, beside its packets being equal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Bound {
    /// The kernel copies: only the number of pieces.
    Copied,
    /// The kernel refers to pages, a piece of a send each.
    Referenced,
}

impl Pieces {
    fn clear(&mut self) {
        self.pieces.clear();
        self.fragments = 0;
    }

    /// Packet `number` alone, touched, and so many.
    pub(super) fn set(&mut self, job: &mut Job<'_>, map: &Map, number: usize) -> usize {
        self.clear();
        self.add(map, &job.source.plan.packet(number));
        job.touch(map, number..number + 1);
        1
    }

    /// Adds a packet. Payloads that lie together become one piece where no header is between them.
    fn add(&mut self, map: &Map, packet: &Packet<'_>) {
        if !packet.header.is_empty() {
            self.push(iovec(packet.header));
        }
        for &piece in packet.pieces {
            self.push(map.place(piece));
        }
    }

    /// As many packets as leave as one train, touched, and how many.
    pub(super) fn set_train(
        &mut self,
        job: &mut Job<'_>,
        map: &Map,
        packets: Range<usize>,
        bound: Bound,
    ) -> usize {
        let first = packets.start;
        let count = self.gather(job, map, packets, bound);
        job.touch(map, first..first + count);
        count
    }

    fn gather(&mut self, job: &Job<'_>, map: &Map, packets: Range<usize>, bound: Bound) -> usize {
        self.clear();
        let longest = job.train(packets.clone(), onrush_sys::path::TRAIN_PACKETS_MAX);
        for nth in 0..longest {
            let packet = job.source.plan.packet(packets.start + nth);
            let before = (
                self.pieces.len(),
                self.fragments,
                self.pieces.last().copied(),
            );
            self.add(map, &packet);
            let is_full = match bound {
                Bound::Copied => self.pieces.len() > PIECES_MAX,
                Bound::Referenced => self.fragments > FRAGMENTS_MAX,
            };
            if is_full && nth > 0 {
                self.pieces.truncate(before.0);
                self.fragments = before.1;
                if let (Some(last), Some(was)) = (self.pieces.last_mut(), before.2) {
                    *last = was;
                }
                return nth;
            }
        }
        longest
    }

    pub(super) fn as_slice(&self) -> &[libc::iovec] {
        &self.pieces
    }

    fn push(&mut self, piece: libc::iovec) {
        if let Some(last) = self.pieces.last_mut() {
            let end = last.iov_base.wrapping_byte_add(last.iov_len);
            if end == piece.iov_base {
                self.fragments -= pages_of(last);
                last.iov_len += piece.iov_len;
                self.fragments += pages_of(last);
                return;
            }
        }
        self.fragments += pages_of(&piece);
        self.pieces.push(piece);
    }
}

/// Pages that a piece of a file touches in the page cache.
pub(super) fn fragments_of_file(piece: &Piece) -> usize {
    let page = page_bytes() as u64;
    let last = piece.offset + u64::from(piece.bytes) - 1;
    usize::try_from(last / page - piece.offset / page + 1).expect("a packet is below 64 KiB")
}

fn pages_of(piece: &libc::iovec) -> usize {
    let start = piece.iov_base.addr();
    let last = start + piece.iov_len.max(1) - 1;
    last / page_bytes() - start / page_bytes() + 1
}

impl Job<'_> {
    /// Maps what is left of the job for as long as `send` sends it. All is counted.
    pub(super) fn with_map(
        &mut self,
        send: impl FnOnce(&mut Self, &Map) -> io::Result<()>,
    ) -> io::Result<()> {
        let range = self.source.plan.file_range(self.packets.clone());
        let is_changed = self.touched.touch().changes();
        let map = Map::new(self.calls, &self.source.file, &range, is_changed)?;
        let sent = send(self, &map);
        map.unmap(self.calls);
        sent
    }

    /// Maps what is left of the job while `send` sends it by other means, if it is to be touched.
    pub(super) fn with_map_to_touch(
        &mut self,
        send: impl FnOnce(&mut Self, Option<&Map>) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.touched.touch() {
            Touch::None => send(self, None),
            _ => self.with_map(|job, map| send(job, Some(map))),
        }
    }

    /// Touches these packets where they are mapped, those that were not in this send.
    pub(super) fn touch(&mut self, map: &Map, packets: Range<usize>) {
        for number in packets {
            let pieces = self.source.plan.packet(number).pieces;
            self.touched.once(number, |pass| {
                pieces.iter().for_each(|&piece| map.touch(piece, pass));
            });
        }
    }

    /// Sends as [`Self::with_map`] does, by reference: until the kernel has let go of everything.
    pub(super) fn with_notifications(
        &mut self,
        send: impl FnOnce(&mut Self, &mut Notifications) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut notifications = Notifications::enable(self.calls, self.socket)?;
        let sent = send(self, &mut notifications);
        notifications.finish(self.calls, self.socket, sent)
    }

    /// Sends what is left, a packet at a time.
    pub(super) fn each_packet(
        &mut self,
        map: &Map,
        mut send: impl FnMut(&mut Self, &[libc::iovec]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut pieces = Pieces::default();
        while !self.packets.is_empty() {
            pieces.set(self, map, self.packets.start);
            send(self, pieces.as_slice())?;
            self.sent(1);
        }
        Ok(())
    }

    /// Sends what is left, a train at a time.
    pub(super) fn each_train(
        &mut self,
        map: &Map,
        bound: Bound,
        mut send: impl FnMut(&mut Self, &[libc::iovec]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut pieces = Pieces::default();
        while !self.packets.is_empty() {
            let count = pieces.set_train(self, map, self.packets.clone(), bound);
            send(self, pieces.as_slice())?;
            self.sent(count);
        }
        Ok(())
    }

    /// Reads the next packet's payload to the start of `buffer`, and touches it; its bytes.
    pub(super) fn read_payload(
        &mut self,
        packet: &Packet<'_>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut at = 0;
        for piece in packet.pieces {
            let place = &mut buffer[at..][..piece.bytes as usize];
            self.calls.read(&self.source.file, place, piece.offset)?;
            at += piece.bytes as usize;
        }
        let number = self.packets.start;
        self.touched.once(number, |pass| pass.go(&mut buffer[..at]));
        Ok(at)
    }

    /// Holds back what `append` sends, and lets it go as one datagram or train.
    ///
    /// A call that fails takes with it all that was held back before (udp.c, `udp_sendmsg`: an
    /// error flushes what is pending). So a signal or a full socket in the middle is answered by
    /// beginning anew, and after an error nothing is left for the next packet to stick to.
    pub(super) fn corked(
        &mut self,
        mut append: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            self.calls.cork(self.socket, true)?;
            self.calls.is_corked = true;
            let appended = append(self);
            self.calls.is_corked = false;
            let error = match appended {
                Ok(()) => return self.calls.cork(self.socket, false),
                Err(error) => error,
            };
            // Too long for any datagram, so that what is pending goes, should the kernel not have
            // seen the error.
            drop(self.calls.send(self.socket, iovec(&TOO_LONG), 0));
            self.calls.cork(self.socket, false)?;
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => self.calls.wait(self.socket, libc::POLLOUT)?,
                _ => return Err(error),
            }
        }
    }

    /// Appends pieces of the file to a datagram that is held back, or sends one piece as a
    /// datagram. A file that ends before the piece does is an error.
    pub(super) fn send_file_pieces(&mut self, pieces: &[Piece]) -> io::Result<()> {
        let file = self.source.file.as_raw_fd();
        for part in pieces.iter().flat_map(even_parts) {
            let bytes = u64::from(part.bytes);
            let sent = self
                .calls
                .send_file(self.socket, file, part.offset, bytes)?;
            if (sent as u64) < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// A piece in parts of which each may be spliced to a datagram by itself: where it begins at an odd
/// place of a page and goes on to the next, what is on the first is a part.
///
/// The kernel sums the pages of one splice as if all of them stood where the first does (skbuff.c,
/// `skb_splice_csum_page`), which is the same only behind an even number of bytes. Otherwise the
/// datagram leaves with a wrong checksum and its receiver drops it. Seen on Linux 6.18, where
/// UDP_SEGMENT does not leave sums to the device.
pub(super) fn even_parts(piece: &Piece) -> impl Iterator<Item = Piece> + use<> {
    let page = page_bytes() as u64;
    let on_page = u32::try_from(page - piece.offset % page).expect("a page is small");
    let first_bytes = match piece.offset % 2 == 1 && on_page < piece.bytes {
        true => on_page,
        false => piece.bytes,
    };
    let first = Piece {
        bytes: first_bytes,
        ..*piece
    };
    let rest = Piece {
        offset: piece.offset + u64::from(first_bytes),
        bytes: piece.bytes - first_bytes,
    };
    std::iter::once(first).chain((rest.bytes > 0).then_some(rest))
}
