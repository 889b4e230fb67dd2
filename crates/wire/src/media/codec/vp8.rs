//! VP8 (RFC 6386) as RTP payload (RFC 7741).
//!
//! A sample is a frame, and needs no configuration. Its packets carry the mandatory byte of the
//! payload descriptor and nothing else: all are labelled with partition 0, which section 4.2 allows
//! and which needs no look into the frame. No picture IDs: they count frames, and a packetizer
//! knows only the frame that it is given; receivers go by sequence numbers then.

use std::sync::Arc;

use super::descriptor;
use crate::media::packetizer::{Codec, PacketSink, Packetizer, Unit};
use crate::media::track::Medium;

/// Start of a VP8 partition (RFC 7741, section 4.2): set on the first packet of a frame only.
const START: u8 = 0x10;

/// What VP8 amounts to, of which containers tell nothing.
pub(in crate::media) fn codec() -> Codec {
    Codec {
        medium: Medium::Video,
        payload_type: None,
        encoding: "VP8",
        clock_hz: 90_000,
        channels: None,
        format_parameters: None,
        codec_string: "vp8".to_owned(),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(Vp8),
    }
}

#[derive(Debug)]
struct Vp8;

impl Packetizer for Vp8 {
    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        descriptor::packetize(unit, payload_bytes_max, sink, |piece| {
            match piece.is_first {
                true => START,
                false => 0,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing;
    use super::super::testing::receivers::vp8 as depacketized;
    use super::*;

    #[test]
    fn a_frame_is_cut_to_one_size() {
        let frame: Vec<u8> = (0..=255).cycle().take(130).collect();
        let packets = testing::packets(&Vp8, &[&frame], true, 0, 64);
        let lengths: Vec<_> = packets.iter().map(|it| it.payload.len()).collect();
        assert_eq!(lengths, [64, 64, 5]);
        assert_eq!(packets[0].payload[..3], [0x10, 0, 1]);
        assert_eq!(packets[1].payload[..3], [0x00, 63, 64]);
        assert_eq!(depacketized(&packets), frame);
    }

    #[test]
    fn a_frame_that_fills_a_packet_is_one_packet() {
        let packets = testing::packets(&Vp8, &[&[1; 63]], true, 0, 64);
        assert_eq!(packets.len(), 1);
        let packets = testing::packets(&Vp8, &[&[1; 64]], true, 0, 64);
        assert_eq!(packets.len(), 2);
    }

    /// libvpx leaves out frames in that way.
    #[test]
    fn an_empty_sample_is_a_descriptor_alone() {
        let packets = testing::packets(&Vp8, &[&[]], false, 0, 64);
        assert_eq!(packets[0].payload, [START]);
        assert_eq!(packets.len(), 1);
    }

    #[test]
    fn the_media_description_is_that_of_the_rfc() {
        let codec = codec();
        assert_eq!((codec.encoding, codec.clock_hz), ("VP8", 90_000));
        assert_eq!(codec.format_parameters, None);
        assert_eq!(codec.codec_string, "vp8");
    }

    proptest! {
        #[test]
        fn depacketizing_gives_the_frame_back(
            frame in prop::collection::vec(any::<u8>(), 1..5000),
            is_sync: bool,
            payload_bytes_max in 64_usize..1500,
        ) {
            let packets = testing::packets(&Vp8, &[&frame], is_sync, 0, payload_bytes_max);
            prop_assert_eq!(depacketized(&packets), frame);
        }
    }
}
