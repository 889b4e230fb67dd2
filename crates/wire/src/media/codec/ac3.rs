//! AC-3 (ETSI TS 102 366, ATSC A/52) as RFC 4184 carries it.

use std::sync::Arc;

use super::super::packetizer::{
    Aggregation, Codec, CodecError, PAYLOAD_BYTES_MIN, PacketSink, Packetizer, Unit,
};
use super::super::track::Medium;
use super::bit_reader::BitReader;
use super::frames::{self, Carried};

const NAME: &str = "AC-3";

/// Bytes in front of the frames of a packet.
pub(super) const HEADER_BYTES: usize = 2;

/// Bytes of a sample at the most: eight bits count its fragments, however small packets are.
#[allow(clippy::cast_possible_truncation, reason = "16 bits hold it")]
pub(super) const SAMPLE_BYTES_MAX: u32 = 255 * (PAYLOAD_BYTES_MIN - HEADER_BYTES) as u32;

/// What a stream of such frames is, as far as a container knows it that has no configuration of it.
///
/// # Errors
///
/// If there are no frames of that rate, or channels.
pub(in crate::media) fn codec(rate_hz: u32, channels: u8) -> Result<Codec, CodecError> {
    let error = |what: String| CodecError::Configuration {
        codec: NAME,
        what: what.into(),
    };
    // bsid 9 and 10 are of half and a quarter of the usual rates.
    let is_rate = (0..3).any(|it| RATES_HZ.iter().any(|usual| usual >> it == rate_hz));
    if !is_rate {
        return Err(error(format!("no frames are of {rate_hz} Hz")));
    }
    if !matches!(channels, 1..=6) {
        return Err(error(format!("no frames have {channels} channels")));
    }
    Ok(told(("ac3", "ac-3"), rate_hz, channels, Ac3))
}

/// What is told of a stream by its names, which are those of its payload format and of RFC 6381.
/// E-AC-3 says no more of itself.
pub(super) fn told(
    (encoding, codec_string): (&'static str, &str),
    rate_hz: u32,
    channels: u8,
    packetizer: impl Packetizer + 'static,
) -> Codec {
    Codec {
        medium: Medium::Audio,
        payload_type: None,
        encoding,
        clock_hz: rate_hz,
        channels: Some(channels),
        format_parameters: None,
        codec_string: codec_string.to_owned(),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(packetizer),
    }
}

/// What a stream is that an `AC3SpecificBox` describes (`dac3`, without its box header; ETSI TS 102
/// 366, section F.4).
///
/// # Errors
///
/// If it is broken.
pub(in crate::media) fn from_dac3(dac3: &[u8]) -> Result<Codec, CodecError> {
    let mut bits = BitReader::new(NAME, dac3);
    let rate_code = bits.take(2)?;
    let stream_id = bits.take(5)?;
    bits.skip(3)?;
    let channels = take_channels(&mut bits)?;
    codec(rate_hz(&bits, rate_code, stream_id)?, channels)
}

/// What a stream is whose frames begin with such a header.
///
/// # Errors
///
/// If [`FrameHeader::parse`] refuses it.
#[cfg(any(test, feature = "testing"))]
pub(in crate::media) fn from_frame(header: &[u8]) -> Result<Codec, CodecError> {
    let header = FrameHeader::parse(header)?;
    codec(header.rate_hz, header.channels)
}

/// The begin of a frame (`syncinfo` and `bsi`; ETSI TS 102 366, sections 4.3.1 and 4.3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct FrameHeader {
    /// PCM samples a second; a frame has 1536 of each channel.
    pub(in crate::media) rate_hz: u32,
    /// One to six.
    pub(in crate::media) channels: u8,
    /// Bytes from this header to the next.
    pub(in crate::media) frame_bytes: usize,
}

impl FrameHeader {
    /// Reads it from the first eight bytes of a frame, or more of them.
    ///
    /// # Errors
    ///
    /// If it is none, or one of E-AC-3.
    pub(in crate::media) fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut bits = after_sync_word(NAME, bytes)?;
        bits.skip(16)?;
        let rate_code = bits.take(2)?;
        let size_code = bits.take(6)?;
        let stream_id = bits.take(5)?;
        bits.skip(3)?;
        let rate_hz = rate_hz(&bits, rate_code, stream_id)?;
        let Some(&rate_kbps) = RATES_KBPS.get(size_code as usize / 2) else {
            return Err(bits.error(format!("frame size code {size_code} is reserved")));
        };
        // Words of 16 bits: 1536 samples at the usual rate, rounded down, and one more where 44.1
        // kHz want it (table 4.13).
        let words = 96 * 1000 * rate_kbps / RATES_HZ[rate_code as usize];
        let more = if rate_code == 1 { size_code % 2 } else { 0 };
        let mode = bits.take(3)?;
        for is_there in [mode & 1 == 1 && mode != 1, mode & 4 == 4, mode == 2] {
            bits.skip(if is_there { 2 } else { 0 })?;
        }
        let channels = CHANNELS[mode as usize] + u8::from(bits.flag()?);
        Ok(Self {
            rate_hz,
            channels,
            frame_bytes: 2 * (words + more) as usize,
        })
    }
}

/// What a frame begins with.
pub(super) const SYNC_WORD: u32 = 0x0b77;

/// A frame's header, behind what each begins with.
pub(super) fn after_sync_word<'a>(
    codec: &'static str,
    bytes: &'a [u8],
) -> Result<BitReader<'a>, CodecError> {
    let mut bits = BitReader::new(codec, bytes);
    match bits.take(16)? {
        SYNC_WORD => Ok(bits),
        _ => Err(bits.error("a frame does not begin with its sync word")),
    }
}

/// By `fscod`.
pub(super) const RATES_HZ: [u32; 3] = [48_000, 44_100, 32_000];

/// By `acmod`: without the one for effects.
const CHANNELS: [u8; 8] = [2, 1, 2, 3, 3, 4, 4, 5];

/// By `frmsizecod` in pairs.
const RATES_KBPS: [u32; 19] = [
    32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640,
];

/// `acmod` and `lfeon`, where they are one behind the other.
pub(super) fn take_channels(bits: &mut BitReader<'_>) -> Result<u8, CodecError> {
    Ok(CHANNELS[bits.take(3)? as usize] + u8::from(bits.flag()?))
}

fn rate_hz(bits: &BitReader<'_>, rate_code: u32, stream_id: u32) -> Result<u32, CodecError> {
    let Some(rate_hz) = RATES_HZ.get(rate_code as usize) else {
        return Err(bits.error("its sampling frequency is reserved"));
    };
    match stream_id {
        0..=8 => Ok(*rate_hz),
        9 | 10 => Ok(rate_hz >> (stream_id - 8)),
        _ => Err(bits.error(format!(
            "bit stream identification {stream_id} is not of AC-3"
        ))),
    }
}

/// RFC 4184, section 4.1: what follows, in two bits, how many frames or fragments, and these.
#[derive(Debug)]
struct Ac3;

impl Packetizer for Ac3 {
    fn check_sample(&self, bytes: u32) -> Result<(), CodecError> {
        check_sample(NAME, bytes)
    }

    fn aggregation(&self) -> Option<Aggregation> {
        Some(AGGREGATION)
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        frames::packetize(
            unit,
            payload_bytes_max,
            sink,
            true,
            |carried| match carried {
                Carried::Whole(frames) => [0, byte(*frames)],
                Carried::Fragment {
                    part,
                    of_bytes,
                    packets,
                } => {
                    // Whoever has the first five eighths of a frame can decode a part of it.
                    let frame_type = match (part.start, part.end * 8 >= of_bytes * 5) {
                        (0, true) => 1,
                        (0, false) => 2,
                        _ => 3,
                    };
                    [frame_type, byte(*packets)]
                }
            },
        );
    }
}

/// How frames go together, of E-AC-3 too.
pub(super) const AGGREGATION: Aggregation = Aggregation {
    packet_bytes: HEADER_BYTES,
    sample_bytes: 0,
    samples_max: 255,
};

/// A number of frames or fragments, which is more than eight bits can say only of what
/// [`check_sample`] refuses.
pub(super) fn byte(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

/// Whether eight bits can count the fragments of a sample.
pub(super) fn check_sample(codec: &'static str, bytes: u32) -> Result<(), CodecError> {
    match bytes <= SAMPLE_BYTES_MAX {
        true => Ok(()),
        false => Err(CodecError::SampleOfCodec {
            codec,
            bytes,
            bytes_max: SAMPLE_BYTES_MAX,
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::receivers::ac3 as depacketize;
    use super::super::testing::{break_configuration, packets, packets_of_all};
    use super::*;

    proptest! {
        #[test]
        fn frames_come_back_in_order(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3841), 1..20),
            payload_bytes_max in 64..1500_usize,
        ) {
            let slices: Vec<_> = frames.iter().map(Vec::as_slice).collect();
            let found = depacketize(&packets_of_all(&Ac3, &slices, payload_bytes_max));
            let mut left = &frames[..];
            for (count, bytes) in found {
                prop_assert_eq!(left[..count].concat(), bytes);
                left = &left[count..];
            }
            prop_assert!(left.is_empty());
        }

        #[test]
        fn any_header_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..10)) {
            drop(FrameHeader::parse(&[&[0x0b, 0x77], &bytes[..]].concat()));
            drop(from_dac3(&bytes));
        }
    }

    #[test]
    fn the_first_fragment_tells_whether_it_has_5_eighths() {
        let heads = |bytes, limit| -> Vec<_> {
            let packets = packets(&Ac3, &[&vec![7; bytes]], true, 0, limit);
            packets
                .iter()
                .map(|it| (it.payload[0], it.payload[1]))
                .collect()
        };
        assert_eq!(heads(160, 102), [(1, 2), (3, 2)]);
        assert_eq!(heads(161, 102), [(2, 2), (3, 2)]);
        assert_eq!(heads(100, 102), [(0, 1)]);
    }

    #[test]
    fn a_frame_of_too_many_fragments_is_refused() {
        assert_eq!(Ac3.check_sample(15_810), Ok(()));
        assert_eq!(
            packets(&Ac3, &[&[7; 15_810]], true, 0, 64)[0].payload[1],
            255
        );
        let words = Ac3.check_sample(15_811).unwrap_err().to_string();
        assert_eq!(words, "AC-3: a sample of 15811 bytes, more than 15810");
        assert_eq!(packets(&Ac3, &[&[7; 20_000]], true, 0, 64).len(), 323);
    }

    /// Of ffmpeg: 48 kHz, stereo, 192 kbit/s; and the box that it writes of the same.
    const FRAME: [u8; 8] = [0x0b, 0x77, 0xfe, 0x95, 0x14, 0x40, 0x43, 0xe1];
    const DAC3: [u8; 3] = [0x10, 0x11, 0x40];

    #[test]
    fn configuration_and_frames_tell_the_same() {
        for codec in [from_dac3(&DAC3), from_frame(&FRAME), codec(48_000, 2)] {
            let codec = codec.unwrap();
            let told = (codec.encoding, codec.clock_hz, codec.channels);
            assert_eq!(told, ("ac3", 48_000, Some(2)));
            assert_eq!((codec.payload_type, codec.format_parameters), (None, None));
            assert_eq!(codec.codec_string, "ac-3");
        }
        break_configuration(&DAC3, |broken| drop(from_dac3(broken)));
        break_configuration(&FRAME, |broken| drop(from_frame(broken)));
    }

    #[test]
    fn headers_tell_channels_and_length() {
        let of = |rate_and_size: u8, stream_id: u8, mode: [u8; 2]| {
            let header = [
                0x0b,
                0x77,
                0,
                0,
                rate_and_size,
                stream_id << 3,
                mode[0],
                mode[1],
            ];
            let header = FrameHeader::parse(&header).unwrap();
            (header.rate_hz, header.channels, header.frame_bytes)
        };
        assert_eq!(of(20, 8, [0x40, 0]), (48_000, 2, 768));
        // 44.1 kHz, 128 kbit/s, short and long; 32 kHz at the highest rate; mono; 5.1; half the
        // rate.
        assert_eq!(of(0x40 | 16, 8, [0x40, 0]), (44_100, 2, 556));
        assert_eq!(of(0x40 | 17, 8, [0x40, 0]), (44_100, 2, 558));
        assert_eq!(of(0x80 | 37, 8, [0x40, 0]), (32_000, 2, 3840));
        assert_eq!(of(8, 8, [0x20, 0]), (48_000, 1, 256));
        assert_eq!(of(30, 8, [0xe0 | 0b1, 0]), (48_000, 6, 1792));
        assert_eq!(of(20, 9, [0x40, 0]), (24_000, 2, 768));
    }

    #[test]
    fn what_is_not_ac3_is_refused_in_words() {
        let of = |header: &[u8]| from_frame(header).unwrap_err().to_string();
        assert_eq!(
            of(&[0x0b, 0x78]),
            "AC-3: a frame does not begin with its sync word"
        );
        assert_eq!(
            of(&FRAME[..4]),
            "AC-3: 4 bytes are too few for what they begin with"
        );
        let with = |at: usize, byte: u8| {
            let mut header = FRAME;
            header[at] = byte;
            of(&header)
        };
        assert_eq!(with(4, 0xc0), "AC-3: its sampling frequency is reserved");
        assert_eq!(with(4, 38), "AC-3: frame size code 38 is reserved");
        assert_eq!(
            with(5, 16 << 3),
            "AC-3: bit stream identification 16 is not of AC-3"
        );
        let of = |rate_hz, channels| codec(rate_hz, channels).unwrap_err().to_string();
        assert_eq!(of(96_000, 2), "AC-3: no frames are of 96000 Hz");
        assert_eq!(of(48_000, 7), "AC-3: no frames have 7 channels");
        assert_eq!(of(48_000, 0), "AC-3: no frames have 0 channels");
    }
}
