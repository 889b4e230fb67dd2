//! E-AC-3 (ETSI TS 102 366, annex E) as RFC 4598 carries it.
//!
//! A sample of ISO BMFF has the frames of all substreams of its time. They go into one packet,
//! which says how many they are; where a packet does not hold them they are cut as if they were one
//! frame, and receivers, which put fragments together without looking into them, get them whole.

use super::super::packetizer::{Aggregation, Codec, CodecError, PacketSink, Packetizer, Unit};
use super::ac3::{
    AGGREGATION, RATES_HZ, SYNC_WORD, after_sync_word, byte, check_sample, take_channels, told,
};
use super::bit_reader::BitReader;
use super::frames::{self, Carried};

const NAME: &str = "E-AC-3";

/// What a stream of such frames is, as far as a container knows it that has no configuration of it.
///
/// # Errors
///
/// If there are no frames of that rate, or no channels.
pub(in crate::media) fn codec(rate_hz: u32, channels: u8) -> Result<Codec, CodecError> {
    let error = |what: String| CodecError::Configuration {
        codec: NAME,
        what: what.into(),
    };
    if !(RATES_HZ.iter()).any(|&usual| usual == rate_hz || usual / 2 == rate_hz) {
        return Err(error(format!("no frames are of {rate_hz} Hz")));
    }
    if channels == 0 {
        return Err(error("no channels".to_owned()));
    }
    Ok(told(("eac3", "ec-3"), rate_hz, channels, Eac3))
}

/// What a stream is that an `EC3SpecificBox` describes (`dec3`, without its box header; ETSI TS 102
/// 366, section F.6): its first program with what other substreams add to that.
///
/// # Errors
///
/// If it is broken, or does not tell the rate.
pub(in crate::media) fn from_dec3(dec3: &[u8]) -> Result<Codec, CodecError> {
    let mut bits = BitReader::new(NAME, dec3);
    // data_rate, num_ind_sub.
    bits.skip(13 + 3)?;
    let rate_code = bits.take(2)?;
    // bsid, reserved, asvc, bsmod.
    bits.skip(5 + 1 + 1 + 3)?;
    let mut channels = take_channels(&mut bits)?;
    bits.skip(3)?;
    if bits.take(4)? > 0 {
        // chan_loc, the lowest bit first: pairs, and one above or behind or for effects.
        let places = [2, 2, 1, 1, 2, 2, 2, 1, 1];
        let locations = bits.take(9)?;
        let added = places.iter().enumerate();
        let added = added.filter(|&(at, _)| locations >> at & 1 == 1);
        channels += added.map(|(_, &channels)| channels).sum::<u8>();
    }
    match RATES_HZ.get(rate_code as usize) {
        Some(&rate_hz) => codec(rate_hz, channels),
        None => Err(bits.error("its configuration does not tell the sampling frequency")),
    }
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

/// The begin of a frame (`syncinfo` and `bsi`; ETSI TS 102 366, sections E.1.2.1 and E.1.2.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct FrameHeader {
    /// Whether it begins a program on its own, and not what adds channels to the one in front.
    pub(in crate::media) is_independent: bool,
    /// The number of its substream: of independent ones, 0 begins a new time.
    pub(in crate::media) substream: u8,
    /// PCM samples a second.
    pub(in crate::media) rate_hz: u32,
    /// Of this frame alone.
    pub(in crate::media) channels: u8,
    /// Bytes from this header to the next.
    pub(in crate::media) frame_bytes: usize,
    /// PCM samples of a channel.
    pub(in crate::media) frame_samples: u32,
}

impl FrameHeader {
    /// Reads it from the first six bytes of a frame, or more of them.
    ///
    /// # Errors
    ///
    /// If it is none, or one of AC-3.
    pub(in crate::media) fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut bits = after_sync_word(NAME, bytes)?;
        let is_independent = match bits.take(2)? {
            1 => false,
            0 | 2 => true,
            _ => return Err(bits.error("a frame is of a reserved type")),
        };
        let substream = byte(bits.take(3)? as usize);
        let words = bits.take(11)? + 1;
        let rate_code = bits.take(2)? as usize;
        let second_code = bits.take(2)? as usize;
        let (rate_hz, blocks) = match (RATES_HZ.get(rate_code), RATES_HZ.get(second_code)) {
            (Some(&rate_hz), _) => (rate_hz, [1, 2, 3, 6][second_code]),
            (None, Some(rate_hz)) => (rate_hz / 2, 6),
            (None, None) => return Err(bits.error("its sampling frequency is reserved")),
        };
        let channels = take_channels(&mut bits)?;
        let stream_id = bits.take(5)?;
        if !matches!(stream_id, 11..=16) {
            let what = format!("bit stream identification {stream_id} is not of E-AC-3");
            return Err(bits.error(what));
        }
        Ok(Self {
            is_independent,
            substream,
            rate_hz,
            channels,
            frame_bytes: 2 * words as usize,
            frame_samples: 256 * blocks,
        })
    }
}

/// RFC 4598, section 4.1: whether a fragment follows, how many frames or fragments, and these.
#[derive(Debug)]
struct Eac3;

impl Packetizer for Eac3 {
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
                Carried::Whole(samples) => {
                    let frames = (0..*samples).map(|sample| frames_of(unit, sample));
                    [0, byte(frames.sum())]
                }
                Carried::Fragment { packets, .. } => [1, byte(*packets)],
            },
        );
    }
}

/// How many frames a sample has; 1 if it is not as it should be, or its bytes are not at hand.
fn frames_of(unit: &Unit<'_>, sample: usize) -> usize {
    let bytes = unit.samples[sample].bytes as usize;
    let (mut at, mut frames) = (0, 0);
    // At least two bytes on with each; a packet says that it has 255 frames at the most.
    while at < bytes && frames < 255 {
        let word = |at: usize| {
            u32::from_be_bytes([0, 0, unit.byte(sample, at), unit.byte(sample, at + 1)])
        };
        if word(at) != SYNC_WORD {
            break;
        }
        // frmsiz, in words of 16 bits.
        at += 2 * ((word(at + 2) & 0x7ff) as usize + 1);
        frames += 1;
    }
    frames.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::receivers::eac3 as depacketize;
    use super::super::testing::{break_configuration, packets, packets_of_all};
    use super::*;

    /// A frame of 2 to 4096 bytes, whose first byte behind the header is `seed`.
    fn frame(words: usize, seed: u8) -> Vec<u8> {
        let [high, low] = u16::try_from(words - 1).unwrap().to_be_bytes();
        let mut frame = vec![seed; words * 2];
        let head = [0x0b, 0x77, high, low];
        let bytes = head.len().min(frame.len());
        frame[..bytes].copy_from_slice(&head[..bytes]);
        frame
    }

    proptest! {
        #[test]
        fn frames_come_back_in_order(
            samples in prop::collection::vec(
                (prop::collection::vec((2..300_usize, any::<u8>()), 1..4), 1..5_usize),
                1..12,
            ),
            payload_bytes_max in 64..1500_usize,
        ) {
            let of_sample = |(frames, factor): &(Vec<(usize, u8)>, usize)| {
                let frames = frames.iter().map(|&(words, seed)| frame(words * factor, seed));
                frames.collect::<Vec<_>>().concat()
            };
            let bytes: Vec<_> = samples.iter().map(of_sample).collect();
            let slices: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
            let packets = packets_of_all(&Eac3, &slices, payload_bytes_max);
            let (found, counts) = depacketize(&packets);
            prop_assert_eq!(found, bytes.concat());
            // What is cut counts as one frame.
            let room = payload_bytes_max - 2;
            let expected = samples.iter().zip(&bytes);
            let expected = expected.map(|(it, bytes)| match bytes.len() > room {
                true => 1,
                false => it.0.len(),
            });
            prop_assert_eq!(counts.iter().sum::<usize>(), expected.sum::<usize>());
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 1..12)) {
            let frame = [&[0x0b, 0x77], &bytes[..]].concat();
            drop(FrameHeader::parse(&frame));
            drop(from_dec3(&bytes));
            packets(&Eac3, &[&frame], true, 0, 64);
            packets(&Eac3, &[&bytes], true, 0, 64);
        }
    }

    #[test]
    fn a_packet_says_how_many_frames_it_has() {
        let of =
            |samples: &[&[u8]]| packets(&Eac3, samples, true, 0, 1400)[0].payload[..2].to_vec();
        let (two, one) = ([frame(40, 1), frame(30, 2)].concat(), frame(50, 3));
        assert_eq!(of(&[&two]), [0, 2]);
        assert_eq!(of(&[&two, &one]), [0, 3]);
        assert_eq!(of(&[&[9; 70]]), [0, 1]);
        // 300 frames of four bytes are more than can be said.
        assert_eq!(of(&[&vec![frame(2, 0); 300].concat()]), [0, 255]);
    }

    #[test]
    fn a_sample_of_too_many_fragments_is_refused() {
        assert_eq!(Eac3.check_sample(15_810), Ok(()));
        let words = Eac3.check_sample(15_811).unwrap_err().to_string();
        assert_eq!(words, "E-AC-3: a sample of 15811 bytes, more than 15810");
    }

    /// Of ffmpeg: 48 kHz, 5.1, 448 kbit/s; and the box that it writes of the same.
    const FRAME: [u8; 6] = [0x0b, 0x77, 0x03, 0x7f, 0x3f, 0x80];
    const DEC3: [u8; 5] = [0x0e, 0x00, 0x20, 0x0f, 0x00];

    #[test]
    fn configuration_and_frames_tell_the_same() {
        for codec in [from_dec3(&DEC3), from_frame(&FRAME), codec(48_000, 6)] {
            let codec = codec.unwrap();
            let told = (codec.encoding, codec.clock_hz, codec.channels);
            assert_eq!(told, ("eac3", 48_000, Some(6)));
            assert_eq!((codec.payload_type, codec.format_parameters), (None, None));
            assert_eq!(codec.codec_string, "ec-3");
        }
        // 7.1: a dependent substream adds a pair behind.
        let seven = from_dec3(&[0x0e, 0x00, 0x20, 0x0f, 0x02, 0x02]).unwrap();
        assert_eq!(seven.channels, Some(8));
        break_configuration(&DEC3, |broken| drop(from_dec3(broken)));
        break_configuration(&FRAME, |broken| drop(from_frame(broken)));
    }

    #[test]
    fn headers_tell_length_and_duration() {
        let header = FrameHeader::parse(&FRAME).unwrap();
        assert!(header.is_independent && header.substream == 0);
        assert_eq!((header.frame_bytes, header.frame_samples), (1792, 1536));
        // Dependent, 44.1 kHz, one block; 24 kHz.
        let header = FrameHeader::parse(&[0x0b, 0x77, 0x40, 0x09, 0x44, 0x80]).unwrap();
        assert!(!header.is_independent);
        let told = (
            header.rate_hz,
            header.channels,
            header.frame_bytes,
            header.frame_samples,
        );
        assert_eq!(told, (44_100, 2, 20, 256));
        let header = FrameHeader::parse(&[0x0b, 0x77, 0x08, 0x09, 0xc4, 0x80]).unwrap();
        assert_eq!((header.rate_hz, header.frame_samples), (24_000, 1536));
        assert_eq!(header.substream, 1);
    }

    #[test]
    fn what_is_not_eac3_is_refused_in_words() {
        let with = |at: usize, byte: u8| {
            let mut header = FRAME;
            header[at] = byte;
            from_frame(&header).unwrap_err().to_string()
        };
        assert_eq!(
            with(0, 0),
            "E-AC-3: a frame does not begin with its sync word"
        );
        assert_eq!(with(2, 0xc0), "E-AC-3: a frame is of a reserved type");
        assert_eq!(with(4, 0xf4), "E-AC-3: its sampling frequency is reserved");
        assert_eq!(
            with(5, 0x40),
            "E-AC-3: bit stream identification 8 is not of E-AC-3"
        );
        let words = from_dec3(&[0x0e, 0, 0xe0, 0x0f, 0])
            .unwrap_err()
            .to_string();
        assert_eq!(
            words,
            "E-AC-3: its configuration does not tell the sampling frequency"
        );
        assert_eq!(
            codec(8000, 2).unwrap_err().to_string(),
            "E-AC-3: no frames are of 8000 Hz"
        );
        assert_eq!(
            codec(48_000, 0).unwrap_err().to_string(),
            "E-AC-3: no channels"
        );
    }
}
