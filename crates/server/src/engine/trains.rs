//! How long trains are.

use onrush_sys::path::{
    OWN_HEADERS_PACKETS_MAX, OWN_HEADERS_PACKETS_MIN, STREAM_PACKETS_MAX, TRAIN_BYTES_MAX,
    TRAIN_PACKETS_MAX,
};

/// Packets of a train with headers of its own, at most, and in any case.
pub(super) const OWN_HEADERS_PACKETS: u32 = 8;
pub(super) const OWN_HEADERS_PACKETS_LEAST: u32 = 5;

const _: () = assert!(OWN_HEADERS_PACKETS as usize == OWN_HEADERS_PACKETS_MAX);
const _: () = assert!(OWN_HEADERS_PACKETS_LEAST as usize == OWN_HEADERS_PACKETS_MIN);

/// Images of one send over a connection: as many as there are pieces for, and as fit.
pub(super) fn images_per_framed_send(segment_bytes: u16) -> u32 {
    let images = u32::try_from(STREAM_PACKETS_MAX).expect("eight");
    images.min(images_per_train(segment_bytes))
}

/// Images of one train: as many as the kernel cuts, and as fit the largest datagram.
pub(super) fn images_per_train(segment_bytes: u16) -> u32 {
    let images = (TRAIN_BYTES_MAX / usize::from(segment_bytes)).min(TRAIN_PACKETS_MAX);
    u32::try_from(images).expect("at most 64")
}
