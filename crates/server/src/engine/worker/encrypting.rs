//! Packets that only one client can read: copied into a slot of registered memory and encrypted
//! there, which is the one copy that is made of them. From there the kernel sends them by
//! reference, as it does images.
//!
//! What is encrypted is a copy, so the chunk that it was made of is free at once. Packets of a
//! train are encrypted several at once, which costs less than one by one.

use onrush_sys::path::Train;
use onrush_wire::rtp::HEADER_BYTES;
use onrush_wire::srtp::PACKETS_AT_ONCE;

use super::super::flights::Flight;
use super::super::reader::Span;
use super::super::srtp::StreamSrtp;
use super::entry::StreamEntry;
use super::transmitter::Transmitter;
use crate::store::layout::Images;

impl Transmitter {
    /// Queues these images, encrypted, as one train.
    pub(super) fn queue_encrypted(
        &mut self,
        stream: &StreamEntry,
        number: u32,
        srtp: &StreamSrtp,
        span: Span,
        images: &Images,
    ) {
        let tag_bytes = srtp.tag_bytes();
        let bytes = span.bytes + images.count * u32::from(tag_bytes);
        let slot = self.packets.take(|slot| {
            let mut left = &mut slot[..];
            let (mut copied, mut count) = ([(); PACKETS_AT_ONCE].map(|()| (0, &mut [][..])), 0);
            for image in stream.reader.images(&self.store, images) {
                let packet_bytes = image.len() + usize::from(tag_bytes);
                let (packet, rest) = left.split_at_mut(packet_bytes);
                left = rest;
                let (header, payload) = image.split_first_chunk().expect("it has a header");
                packet[..HEADER_BYTES].copy_from_slice(&stream.numbering.header(header));
                packet[HEADER_BYTES..image.len()].copy_from_slice(payload);
                copied[count].1 = packet;
                count += 1;
                if count == PACKETS_AT_ONCE {
                    srtp.protect_each(&mut copied);
                    count = 0;
                }
            }
            srtp.protect_each(&mut copied[..count]);
        });
        self.store.pool().unpin(span.pin);
        let stride = images.segment_bytes + tag_bytes;
        let offset = slot.offset();
        let token = self.flights.take(Flight {
            stream: Some(number),
            connection: None,
            packets: images.count,
            bytes: span.bytes,
            stride: images.segment_bytes,
            padding_bytes: images.padding_bytes,
            frame_bytes: tag_bytes,
            pin: None,
            headers: None,
            encrypted: Some(slot),
        });
        self.queue_train(Train {
            to: stream.to(number),
            offset,
            bytes,
            stride,
            segments: stream.segments(images),
            headers: None,
            token,
        });
    }
}
