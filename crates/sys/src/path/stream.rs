//! Sends over a connection: packets that are framed in a byte stream, and bytes between them.
//!
//! A datagram leaves whole or not at all; of a byte stream the kernel may take a part, and what
//! follows must wait for the rest. So a send of this kind is answered when the kernel has taken all
//! of it, however long that takes, or when the connection has failed. Sends that follow one another
//! on a connection are queued one behind the other, each but the last with
//! [`StreamSend::is_followed`]; one that fails takes those behind it with it (ECANCELED). No more
//! may be queued for that connection until all of them are answered.

use std::os::fd::RawFd;

use super::{OWN_HEADERS_PACKETS_MAX, TRAIN_BYTES_MAX};
use crate::pool::Pool;

/// Packets of one send over a connection, at most.
pub const STREAM_PACKETS_MAX: usize = OWN_HEADERS_PACKETS_MAX;

/// What leaves in one send over a connection.
#[derive(Debug)]
pub struct StreamSend {
    /// The connection's descriptor, which stays open until the send was answered.
    pub fd: RawFd,
    /// What leaves.
    pub data: StreamData,
    /// Its packets are copied at once, as those of a path that refers to none are.
    pub is_copied: bool,
    /// The send that is queued next is for the same connection, and comes after this one.
    pub is_followed: bool,
    /// Comes back with the completion.
    pub token: u32,
}

/// What leaves in one send over a connection.
#[derive(Debug)]
pub enum StreamData {
    /// Packets of the pool.
    Packets(FramedPackets),
    /// Bytes that the path holds until the kernel has taken them.
    Bytes(Box<[u8]>),
}

/// Images that lie one behind the other, each sent with other bytes in place of its first.
#[derive(Clone, Copy, Debug)]
pub struct FramedPackets {
    /// Where the first image starts in the pool's area.
    pub offset: usize,
    /// Bytes of all images; at most [`TRAIN_BYTES_MAX`], in at most [`STREAM_PACKETS_MAX`] of them.
    pub bytes: u32,
    /// Bytes of an image; the last may be shorter.
    pub stride: u16,
    /// Where what stands in front of the first starts in the pool's area, and of the others behind
    /// it; in the registered buffer in which the images are (see [`crate::pool::HeaderSlab`]).
    pub heads_offset: usize,
    /// Bytes of what stands in front of each.
    pub head_bytes: u8,
    /// Bytes of each image that are left out for it.
    pub replaced_bytes: u8,
}

impl FramedPackets {
    /// How many there are.
    #[must_use]
    pub fn packets(&self) -> usize {
        (self.bytes as usize).div_ceil(usize::from(self.stride).max(1))
    }

    /// Asserts what every path demands of them.
    pub(super) fn check(&self, pool: &Pool) {
        let (bytes, stride) = (self.bytes as usize, usize::from(self.stride));
        assert!(
            bytes > 0 && bytes <= TRAIN_BYTES_MAX && stride > 0,
            "a send has 1 to 65,507 bytes"
        );
        let packets = self.packets();
        assert!(
            packets <= STREAM_PACKETS_MAX,
            "a send has at most 8 packets"
        );
        let last_bytes = bytes - (packets - 1) * stride;
        assert!(
            usize::from(self.replaced_bytes) < last_bytes,
            "an image is longer than what is left out of it"
        );
        let area_bytes = pool.area().bytes_total();
        let heads_bytes = packets * usize::from(self.head_bytes);
        for (offset, bytes) in [(self.offset, bytes), (self.heads_offset, heads_bytes)] {
            let end = offset.checked_add(bytes);
            assert!(
                end.is_some_and(|end| end <= area_bytes),
                "a send lies within the area"
            );
        }
        assert_eq!(
            pool.buffer_at(self.heads_offset),
            pool.buffer_at(self.offset),
            "images and what stands before them are of one registered buffer"
        );
    }

    /// The pieces of the send: what stands in front and rest of the image by turns. How many there
    /// are.
    pub(super) fn gather(
        &self,
        base: *mut u8,
        pieces: &mut [libc::iovec; 2 * STREAM_PACKETS_MAX],
    ) -> usize {
        let (stride, bytes) = (usize::from(self.stride), self.bytes as usize);
        let head_bytes = usize::from(self.head_bytes);
        let replaced_bytes = usize::from(self.replaced_bytes);
        let packets = self.packets();
        for (packet, pair) in pieces.chunks_exact_mut(2).take(packets).enumerate() {
            let at = packet * stride;
            let head = base.wrapping_add(self.heads_offset + packet * head_bytes);
            pair[0].iov_base = head.cast();
            pair[0].iov_len = head_bytes;
            let rest = base.wrapping_add(self.offset + at + replaced_bytes);
            pair[1].iov_base = rest.cast();
            pair[1].iov_len = stride.min(bytes - at) - replaced_bytes;
        }
        2 * packets
    }
}

impl StreamSend {
    /// Bytes that leave.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        match &self.data {
            StreamData::Bytes(bytes) => bytes.len(),
            StreamData::Packets(packets) => {
                let (head_bytes, replaced_bytes) = (packets.head_bytes, packets.replaced_bytes);
                let count = packets.packets();
                packets.bytes as usize + count * usize::from(head_bytes)
                    - count * usize::from(replaced_bytes)
            }
        }
    }
}
