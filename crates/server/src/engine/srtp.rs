//! What the packets of a stream are encrypted with that only its own client can read (RFC 3711).
//!
//! Its key is one session's, or its SSRC is with a key that others have, too; so its numbers are
//! its own from the start, or from when it leaves the images that all share. What is here goes with
//! the stream from engine to engine: one has it at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use onrush_sys::pool::PACKETS_BYTES;
use onrush_sys::sha1;
use onrush_wire::rtp::{Numbering, Position};
use onrush_wire::srtp::{
    CompressEach, MasterKey, PACKETS_AT_ONCE, RtpKeys, compress_one_by_one, next_index,
};

use super::trains::images_per_train;
use crate::random::random;

// What one hashes together fits into the other.
const _: () = assert!(PACKETS_AT_ONCE <= sha1::LANES);

/// The key of a stream, and how far it was used.
#[derive(Debug)]
pub struct StreamSrtp {
    keys: RtpKeys,
    /// What makes the tags of several packets at once on this processor.
    compress: CompressEach,
    /// No other stream has it with that key.
    ssrc: u32,
    /// Index of the last packet: how often sequence numbers have wrapped, and its own. Written by
    /// the worker that has the stream.
    last_index: AtomicU64,
}

impl StreamSrtp {
    /// Of that master key, which nothing else is encrypted with under that SSRC.
    #[must_use]
    pub fn new(master: &MasterKey, ssrc: u32) -> Self {
        Self {
            keys: RtpKeys::new(master),
            compress: sha1::compress_each().unwrap_or(compress_one_by_one),
            ssrc,
            last_index: AtomicU64::new(0),
        }
    }

    /// Bytes that a packet is longer by.
    pub(super) fn tag_bytes(&self) -> u16 {
        u16::try_from(self.keys.tag_bytes()).expect("16 at most")
    }

    /// Encrypts packets, behind each of which there is room for its tag, and which come after those
    /// before. What stands beside each does not matter: its index will.
    pub(super) fn protect_each(&self, packets: &mut [(u64, &mut [u8])]) {
        let mut last = self.last_index.load(Ordering::Relaxed);
        for (index, packet) in packets.iter_mut() {
            last = next_index(u16::from_be_bytes([packet[2], packet[3]]), last);
            *index = last;
        }
        self.last_index.store(last, Ordering::Relaxed);
        let protected = self.keys.protect_each(packets, self.compress);
        protected.expect("an image is a packet, and 2^48 of them take thousands of years");
    }

    /// How many images of that size a train has.
    pub(super) fn images_per_train(&self, segment_bytes: u16) -> u32 {
        let bytes = segment_bytes.saturating_add(self.tag_bytes());
        let fitting = u32::try_from(PACKETS_BYTES / usize::from(bytes)).unwrap_or(u32::MAX);
        images_per_train(bytes).min(fitting)
    }

    /// Numbers of its own, where the images' begin with `first_sequence`. The first are in the
    /// lower half, so that a client which misses some of them knows whether they have wrapped (RFC
    /// 3711, section 3.3.1).
    pub(super) fn numbering(&self, first_sequence: u16) -> Numbering {
        self.numbering_at(first_sequence, u32::from_be_bytes(random()))
    }

    /// Likewise, with so much added to timestamps.
    pub(super) fn numbering_at(&self, first_sequence: u16, timestamp: u32) -> Numbering {
        let [high, low] = random();
        let sequence = u16::from_be_bytes([high & 0x7f, low]);
        let offset = Position {
            sequence: sequence.wrapping_sub(first_sequence),
            timestamp,
        };
        Numbering::own(offset, self.ssrc)
    }
}
