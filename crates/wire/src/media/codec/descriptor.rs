//! Frames behind descriptors of one byte: what the payload formats of VP8 and VP9 have in common.
//!
//! A frame is cut wherever a packet is full, and each piece has one byte in front that says whether
//! it is the first or the last. How long packets are follows from the frame's size alone.

use crate::media::packetizer::{PacketSink, Unit};

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: usize = 1;

/// Which piece of its frame a packet carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

/// Tells `sink` the packets of the frame that is the only sample of `unit`, each behind the byte
/// that `descriptor` has for it. The marker is set on the last packet.
pub(super) fn packetize(
    unit: &Unit<'_>,
    payload_bytes_max: usize,
    sink: &mut dyn PacketSink,
    descriptor: impl Fn(Piece) -> u8,
) {
    let step = payload_bytes_max.saturating_sub(DESCRIPTOR_BYTES).max(1);
    let bytes = unit.bytes();
    let mut start = 0;
    loop {
        let end = bytes.min(start + step);
        let piece = Piece {
            is_first: start == 0,
            is_last: end == bytes,
        };
        sink.literal(&[descriptor(piece)]);
        sink.sample(0, start..end);
        sink.end(piece.is_last);
        if piece.is_last {
            break;
        }
        start = end;
    }
}
