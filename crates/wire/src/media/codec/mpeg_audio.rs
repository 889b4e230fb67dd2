//! MPEG audio (ISO/IEC 11172-3, 13818-3), layers I to III, as RFC 2250 carries it.
//!
//! Not here: the format of RFC 5219, which takes the frames of layer III apart.

use std::sync::Arc;

use super::super::packetizer::{Aggregation, Codec, CodecError, PacketSink, Packetizer, Unit};
use super::super::track::Medium;
use super::bit_reader::BitReader;
use super::frames::{self, Carried};

const NAME: &str = "MPEG audio";

/// What a stream of frames at `rate_hz` is: all that a container needs to say, as the rate tells
/// the version of the standard and frames tell the rest.
///
/// # Errors
///
/// If no version has that rate.
pub(in crate::media) fn codec(rate_hz: u32) -> Result<Codec, CodecError> {
    // ISO/IEC 11172-3, or 13818-3 and its extension to still lower rates (RFC 6381, section 3.3).
    let object_type = match rate_hz {
        32_000 | 44_100 | 48_000 => "6B",
        16_000 | 22_050 | 24_000 | 8_000 | 11_025 | 12_000 => "69",
        _ => {
            return Err(CodecError::Configuration {
                codec: NAME,
                what: format!("no frames are of {rate_hz} Hz").into(),
            });
        }
    };
    Ok(Codec {
        medium: Medium::Audio,
        payload_type: Some(14),
        encoding: "MPA",
        clock_hz: 90_000,
        channels: None,
        format_parameters: None,
        codec_string: format!("mp4a.{object_type}"),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(Mpa),
    })
}

/// What a stream is whose frames begin with such a header.
///
/// # Errors
///
/// If [`FrameHeader::parse`] refuses it.
#[cfg(any(test, feature = "testing"))]
pub(in crate::media) fn from_frame(header: &[u8]) -> Result<Codec, CodecError> {
    codec(FrameHeader::parse(header)?.rate_hz)
}

/// The header of a frame (ISO/IEC 11172-3, section 2.4.1.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct FrameHeader {
    /// I, II or III.
    pub(in crate::media) layer: u8,
    /// PCM samples a second.
    pub(in crate::media) rate_hz: u32,
    /// One or two.
    pub(in crate::media) channels: u8,
    /// Bytes from this header to the next.
    pub(in crate::media) frame_bytes: usize,
    /// PCM samples of a channel.
    pub(in crate::media) frame_samples: u32,
}

/// Bit rates in kbit/s by index from 1 on: layers I, II and III of MPEG-1, layer I and the others
/// of MPEG-2.
const RATES_KBPS: [[u32; 14]; 5] = [
    [
        32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448,
    ],
    [
        32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
    ],
    [
        32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    ],
    [
        32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256,
    ],
    [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

impl FrameHeader {
    /// Reads it from the first four bytes of a frame, or more of them.
    ///
    /// # Errors
    ///
    /// If it is none, or does not tell the frame's length.
    pub(in crate::media) fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut bits = BitReader::new(NAME, bytes);
        if bits.take(11)? != 0x7ff {
            return Err(bits.error("a frame does not begin with its sync word"));
        }
        // MPEG-1, MPEG-2 and what is called MPEG-2.5 have a rate, a half and a quarter of it.
        let halvings = match bits.take(2)? {
            3 => 0,
            2 => 1,
            0 => 2,
            _ => return Err(bits.error("a frame is of a reserved version")),
        };
        let (layer, row) = match (bits.take(2)?, halvings) {
            (3, 0) => (1, 0),
            (2, 0) => (2, 1),
            (1, 0) => (3, 2),
            (3, _) => (1, 3),
            (2, _) => (2, 4),
            (1, _) => (3, 4),
            _ => return Err(bits.error("a frame is of a reserved layer")),
        };
        bits.skip(1)?;
        let bit_rate_index = bits.take(4)? as usize;
        let rate_index = bits.take(2)? as usize;
        let padding = bits.take(1)?;
        bits.skip(1)?;
        let channels = if bits.take(2)? == 3 { 1 } else { 2 };
        let Some(rate_hz) = [44_100, 48_000, 32_000].get(rate_index) else {
            return Err(bits.error("a frame is of a reserved sampling frequency"));
        };
        let bit_rate = bit_rate_index.checked_sub(1);
        let Some(&rate_kbps) = bit_rate.and_then(|at| RATES_KBPS[row].get(at)) else {
            return Err(bits.error("a frame does not tell its bit rate"));
        };
        let rate_hz = rate_hz >> halvings;
        let frame_samples = match layer {
            1 => 384,
            3 if halvings > 0 => 576,
            _ => 1152,
        };
        // Layer I counts slots of four bytes.
        let slot_bytes = if layer == 1 { 4 } else { 1 };
        let slots = frame_samples / 8 * rate_kbps * 1000 / rate_hz / slot_bytes;
        Ok(Self {
            layer,
            rate_hz,
            channels,
            frame_bytes: ((slots + padding) * slot_bytes) as usize,
            frame_samples,
        })
    }
}

/// RFC 2250, section 3.5: sixteen bits that are 0, sixteen that say where in its frame a fragment
/// begins, and frames or a fragment of one.
#[derive(Debug)]
struct Mpa;

impl Packetizer for Mpa {
    fn check_sample(&self, bytes: u32) -> Result<(), CodecError> {
        match u16::try_from(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(CodecError::SampleOfCodec {
                codec: NAME,
                bytes,
                bytes_max: u16::MAX.into(),
            }),
        }
    }

    fn aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation {
            packet_bytes: 4,
            sample_bytes: 0,
            samples_max: usize::MAX,
        })
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        // The marker begins a talkspurt, which stored sound has none of.
        frames::packetize(unit, payload_bytes_max, sink, false, |carried| {
            let offset = match carried {
                Carried::Whole(_) => 0,
                Carried::Fragment { part, .. } => part.start,
            };
            let [high, low] = u16::try_from(offset).unwrap_or(u16::MAX).to_be_bytes();
            [0, 0, high, low]
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::receivers::mpeg_audio as depacketize;
    use super::super::testing::{packets, packets_of_all};
    use super::*;

    proptest! {
        #[test]
        fn frames_come_back_in_order(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2500), 1..20),
            payload_bytes_max in 64..1500_usize,
        ) {
            let slices: Vec<_> = frames.iter().map(Vec::as_slice).collect();
            let packets = packets_of_all(&Mpa, &slices, payload_bytes_max);
            let lengths: Vec<_> = frames.iter().map(Vec::len).collect();
            prop_assert_eq!(depacketize(&packets, &lengths), frames);
        }

        #[test]
        fn any_header_is_answered(header in any::<[u8; 4]>(), bytes in 0..5_usize) {
            drop(FrameHeader::parse(&header[..bytes.min(4)]));
            let [_, second, third, fourth] = header;
            if let Ok(header) = FrameHeader::parse(&[0xff, second | 0xe0, third, fourth]) {
                prop_assert!((24..=2881).contains(&header.frame_bytes), "{:?}", header);
                prop_assert!(codec(header.rate_hz).is_ok());
            }
        }
    }

    #[test]
    fn fragments_say_where_they_begin() {
        let packets = packets(&Mpa, &[&[7; 150]], true, 0, 64);
        let heads: Vec<_> = packets.iter().map(|it| &it.payload[..4]).collect();
        assert_eq!(heads, [[0; 4], [0, 0, 0, 60], [0, 0, 0, 120]]);
    }

    #[test]
    fn a_frame_beyond_16_bits_is_refused() {
        assert_eq!(Mpa.check_sample(65_535), Ok(()));
        let words = Mpa.check_sample(65_536).unwrap_err().to_string();
        assert_eq!(
            words,
            "MPEG audio: a sample of 65536 bytes, more than 65535"
        );
        // Whoever does not ask gets packets nevertheless.
        assert_eq!(packets(&Mpa, &[&[7; 70_000]], true, 0, 1004).len(), 70);
    }

    #[test]
    fn a_stream_has_its_static_payload_type() {
        let codec = codec(44_100).unwrap();
        assert_eq!((codec.encoding, codec.clock_hz), ("MPA", 90_000));
        assert_eq!((codec.payload_type, codec.channels), (Some(14), None));
        assert_eq!(
            (&*codec.codec_string, codec.format_parameters),
            ("mp4a.6B", None)
        );
        assert_eq!(super::codec(11_025).unwrap().codec_string, "mp4a.69");
        let words = super::codec(96_000).unwrap_err().to_string();
        assert_eq!(words, "MPEG audio: no frames are of 96000 Hz");
    }

    #[test]
    fn headers_tell_length_and_duration() {
        let of = |header: [u8; 4]| {
            let header = FrameHeader::parse(&header).unwrap();
            let FrameHeader {
                layer,
                rate_hz,
                channels,
                frame_bytes,
                frame_samples,
            } = header;
            (layer, rate_hz, channels, frame_bytes, frame_samples)
        };
        // Layer III at 128 kbit/s without padding and with it; mono; layer II of broadcasts.
        assert_eq!(of([0xff, 0xfb, 0x90, 0x64]), (3, 44_100, 2, 417, 1152));
        assert_eq!(of([0xff, 0xfb, 0x92, 0x64]), (3, 44_100, 2, 418, 1152));
        assert_eq!(of([0xff, 0xfb, 0x94, 0xc4]), (3, 48_000, 1, 384, 1152));
        assert_eq!(of([0xff, 0xfd, 0xa4, 0x04]), (2, 48_000, 2, 576, 1152));
        // MPEG-2 and 2.5, layer III; layer II of MPEG-2; layer I, whose padding is of four bytes.
        assert_eq!(of([0xff, 0xf3, 0x80, 0xc4]), (3, 22_050, 1, 208, 576));
        assert_eq!(of([0xff, 0xe3, 0x48, 0xc4]), (3, 8_000, 1, 288, 576));
        assert_eq!(of([0xff, 0xf5, 0x84, 0x04]), (2, 24_000, 2, 384, 1152));
        assert_eq!(of([0xff, 0xff, 0xc2, 0x04]), (1, 44_100, 2, 420, 384));
        assert_eq!(of([0xff, 0xf7, 0xe4, 0x04]), (1, 24_000, 2, 512, 384));
        assert!(from_frame(&[0xff, 0xfb, 0x90, 0x64]).is_ok());
    }

    #[test]
    fn headers_that_are_none_are_refused_in_words() {
        let of = |header: &[u8]| from_frame(header).unwrap_err().to_string();
        let frame = "MPEG audio: a frame";
        assert_eq!(
            of(&[0xfe, 0, 0, 0]),
            format!("{frame} does not begin with its sync word")
        );
        assert_eq!(
            of(&[0xff, 0xeb, 0x90, 0]),
            format!("{frame} is of a reserved version")
        );
        assert_eq!(
            of(&[0xff, 0xf9, 0x90, 0]),
            format!("{frame} is of a reserved layer")
        );
        assert_eq!(
            of(&[0xff, 0xfb, 0xf0, 0]),
            format!("{frame} does not tell its bit rate")
        );
        assert_eq!(
            of(&[0xff, 0xfb, 0, 0]),
            format!("{frame} does not tell its bit rate")
        );
        let reserved = "is of a reserved sampling frequency";
        assert_eq!(of(&[0xff, 0xfb, 0x9c, 0]), format!("{frame} {reserved}"));
        let short = "MPEG audio: 3 bytes are too few for what they begin with";
        assert_eq!(of(&[0xff, 0xfb, 0x90]), short);
    }
}
