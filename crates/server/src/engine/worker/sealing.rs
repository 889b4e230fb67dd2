//! Packets that leave on a connection with TLS: gathered and sealed into a record, which is the one
//! copy that is made of them.
//!
//! What is sealed is a copy, so the chunk that it was made of is free at once: a client that takes
//! nothing pins none. A record is memory of its own, taken when it is made and given back when the
//! kernel has taken it; of a connection there are as many bytes of it as its limits say.

use onrush_sys::path::STREAM_PACKETS_MAX;
use onrush_wire::rtp::HEADER_BYTES;

use super::super::Framing;
use super::super::flights::Flight;
use super::super::reader::Span;
use super::entry::StreamEntry;
use super::transmitter::{FRAME_HEAD_BYTES, PREFIX_BYTES, Transmitter, frame_head};
use crate::store::layout::Images;

impl Transmitter {
    /// Queues these images as frames of a connection with TLS, whose [gate](Self::gate) is open.
    pub(super) fn queue_sealed(
        &mut self,
        stream: &mut StreamEntry,
        number: u32,
        framing: Framing,
        span: Span,
        images: &Images,
    ) {
        let mut heads = [[0; FRAME_HEAD_BYTES as usize]; STREAM_PACKETS_MAX];
        let of_page = stream.reader.images(&self.store, images);
        for (image, head) in of_page.zip(&mut heads) {
            *head = frame_head(stream, framing.channel, image);
        }
        let mut pieces: [&[u8]; 2 * STREAM_PACKETS_MAX] = Default::default();
        let of_page = stream.reader.images(&self.store, images);
        let (pairs, _) = pieces.as_chunks_mut::<2>();
        for ((image, head), pair) in of_page.zip(&heads).zip(pairs) {
            *pair = [head, &image[HEADER_BYTES..]];
        }
        let sealed = self.connections.seal(framing.connection, &pieces);
        let bytes = span.bytes;
        self.store.pool().unpin(span.pin);
        let Some(sealed) = sealed else {
            // Its streams end when they look at the gate.
            stream.trains -= 1;
            return;
        };
        let token = self.flights.take(Flight {
            stream: Some(number),
            connection: Some(framing.connection),
            packets: images.count,
            bytes,
            stride: images.segment_bytes,
            padding_bytes: images.padding_bytes,
            frame_bytes: PREFIX_BYTES,
            pin: None,
            headers: None,
            encrypted: None,
        });
        let now_ns = self.remote.clock.now_ns();
        self.connections
            .queue_sealed(framing.connection, (sealed, bytes), token, now_ns);
    }
}
