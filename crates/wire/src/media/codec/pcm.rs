//! Sound without frames as RFC 3551 and RFC 3190 carry it: linear PCM, G.711 and G.722.
//!
//! What follows in a packet is sample by sample what is in the file; so linear PCM has to be in
//! network byte order there already.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::packetizer::{
    Aggregation, Codec, CodecError, PAYLOAD_BYTES_MIN, PacketSink, Packetizer, Unit,
};
use super::super::track::Medium;
use crate::rtp::StaticPayload;

/// How the bytes of a number are ordered in a file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) enum ByteOrder {
    /// The highest first, as on the network.
    Big,
    /// The lowest first.
    Little,
}

/// G.711, mu-law (RFC 3551, section 4.5.14).
///
/// # Errors
///
/// If there are no channels, or too many for a packet, or no samples a second.
pub(in crate::media) fn mu_law(rate_hz: u32, channels: u8) -> Result<Codec, CodecError> {
    Sound::new("G.711", "PCMU", "ulaw", 1).codec(rate_hz, channels)
}

/// G.711, A-law (RFC 3551, section 4.5.14).
///
/// # Errors
///
/// As [`mu_law`].
pub(in crate::media) fn a_law(rate_hz: u32, channels: u8) -> Result<Codec, CodecError> {
    Sound::new("G.711", "PCMA", "alaw", 1).codec(rate_hz, channels)
}

/// G.722 at 64 kbit/s (RFC 3551, section 4.5.2). A byte has two samples of 16 kHz, and the clock
/// counts bytes: it is called 8 kHz.
///
/// # Errors
///
/// If there are no channels, or too many for a packet.
pub(in crate::media) fn g722(channels: u8) -> Result<Codec, CodecError> {
    Sound::new("G.722", "G722", "g722", 1).codec(8000, channels)
}

/// Linear PCM: of 8 bits, unsigned, of 16 (RFC 3551, sections 4.5.10 and 4.5.11), or of 24 (RFC
/// 3190, section 4), signed; channels interleaved.
///
/// # Errors
///
/// If it is of other sizes, in little-endian order, or as [`mu_law`].
pub(in crate::media) fn linear(
    bits: u8,
    order: ByteOrder,
    rate_hz: u32,
    channels: u8,
) -> Result<Codec, CodecError> {
    let sound = match bits {
        8 => Sound::new("PCM", "L8", "pcm-u8", 1),
        16 => Sound::new("PCM", "L16", "pcm-s16", 2),
        24 => Sound::new("PCM", "L24", "pcm-s24", 3),
        _ => {
            return Err(error(
                "PCM",
                format!("{bits} bits have no RTP payload format"),
            ));
        }
    };
    if bits > 8 && order == ByteOrder::Little {
        let what = "it is in little-endian order, and sent as it lies in the file: RTP wants big";
        return Err(error("PCM", what.to_owned()));
    }
    sound.codec(rate_hz, channels)
}

/// What all of them say of themselves.
struct Sound {
    name: &'static str,
    encoding: &'static str,
    codec_string: &'static str,
    /// Bytes of one channel in a tick of the clock.
    channel_bytes: usize,
}

impl Sound {
    fn new(
        name: &'static str,
        encoding: &'static str,
        codec_string: &'static str,
        channel_bytes: usize,
    ) -> Self {
        Self {
            name,
            encoding,
            codec_string,
            channel_bytes,
        }
    }

    fn codec(self, rate_hz: u32, channels: u8) -> Result<Codec, CodecError> {
        let frame_bytes = self.channel_bytes * usize::from(channels);
        if rate_hz == 0 {
            return Err(error(self.name, "no samples a second".to_owned()));
        }
        if frame_bytes == 0 || frame_bytes > PAYLOAD_BYTES_MIN {
            let what = format!("{channels} channels: none, or more than a small packet holds");
            return Err(error(self.name, what));
        }
        let channels = (channels > 1).then_some(channels);
        let is_this = |payload: &StaticPayload| {
            (payload.encoding, payload.clock_hz) == ((self.encoding, channels), rate_hz)
        };
        let payload = (0..96).filter_map(StaticPayload::of).find(is_this);
        Ok(Codec {
            medium: Medium::Audio,
            payload_type: payload.map(|payload| payload.payload_type),
            encoding: self.encoding,
            clock_hz: rate_hz,
            channels,
            format_parameters: None,
            codec_string: self.codec_string.to_owned(),
            dimensions: None,
            video_range: None,
            packetizer: Arc::new(Pcm { frame_bytes }),
        })
    }
}

fn error(codec: &'static str, what: String) -> CodecError {
    CodecError::Configuration {
        codec,
        what: what.into(),
    }
}

/// Bytes as they are, cut only where a sample of each channel is complete; what is cut off is
/// stamped later by as many ticks as there are samples in front of it.
#[derive(Debug)]
struct Pcm {
    /// Bytes of a sample of each channel; not more than the smallest packet.
    frame_bytes: usize,
}

impl Packetizer for Pcm {
    fn aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation {
            packet_bytes: 0,
            sample_bytes: 0,
            samples_max: usize::MAX,
        })
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        if let [sample] = unit.samples
            && sample.bytes as usize > payload_bytes_max
        {
            let frames = payload_bytes_max / self.frame_bytes;
            let bytes = sample.bytes as usize;
            for start in (0..bytes).step_by(frames * self.frame_bytes) {
                sink.sample(0, start..bytes.min(start + frames * self.frame_bytes));
                // The marker begins a talkspurt, which stored sound has none of.
                sink.end(false);
                sink.advance(u32::try_from(frames).unwrap_or(u32::MAX));
            }
            return;
        }
        for (at, sample) in unit.samples.iter().enumerate() {
            sink.sample(at, 0..sample.bytes as usize);
        }
        sink.end(false);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::super::super::packetizer::UnitSample;
    use super::super::testing::packets_of_all;
    use super::*;

    /// Of each packet its bytes, and by how many ticks it is later than the unit.
    #[derive(Debug, Default)]
    struct Stamped {
        bytes: usize,
        ticks: u32,
        packets: Vec<(usize, u32)>,
    }

    impl PacketSink for Stamped {
        fn literal(&mut self, _bytes: &[u8]) {
            panic!("nothing is added");
        }

        fn sample(&mut self, _sample: usize, part: Range<usize>) {
            self.bytes += part.len();
        }

        fn end(&mut self, marker: bool) {
            assert!(!marker);
            self.packets
                .push((std::mem::take(&mut self.bytes), self.ticks));
        }

        fn advance(&mut self, ticks: u32) {
            self.ticks += ticks;
        }
    }

    fn stamped(frame_bytes: usize, sample_bytes: u32, limit: usize) -> Vec<(usize, u32)> {
        let sample = UnitSample {
            bytes: sample_bytes,
            parts: &[],
            data: None,
        };
        let unit = Unit {
            samples: &[sample],
            is_sync: true,
            entry: 0,
        };
        let mut sink = Stamped::default();
        Pcm { frame_bytes }.packetize(&unit, limit, &mut sink);
        sink.packets
    }

    proptest! {
        #[test]
        fn bytes_come_back_in_order(
            frame_bytes in 1..=64_usize,
            samples in prop::collection::vec((1..300_usize, any::<u8>()), 1..20),
            limit in 64..1500_usize,
        ) {
            let sample = |&(frames, seed): &(usize, u8)| -> Vec<u8> {
                (0..=255).cycle().take(frames * frame_bytes).map(|at: u8| seed ^ at).collect()
            };
            let samples: Vec<_> = samples.iter().map(sample).collect();
            let slices: Vec<_> = samples.iter().map(Vec::as_slice).collect();
            // The rules want packets to be full; of whole samples they are, to the last of these.
            let limit = limit / frame_bytes * frame_bytes;
            prop_assume!(limit >= PAYLOAD_BYTES_MIN);
            let packets = packets_of_all(&Pcm { frame_bytes }, &slices, limit);
            prop_assert!(packets.iter().all(|it| it.payload.len() % frame_bytes == 0));
            let payloads: Vec<_> = packets.into_iter().map(|it| it.payload).collect();
            prop_assert_eq!(payloads.concat(), samples.concat());
        }

        #[test]
        fn what_is_cut_off_is_stamped_later(
            frame_bytes in 1..=64_usize, sample_bytes in 1..20_000_u32, limit in 64..1500_usize,
        ) {
            let packets = stamped(frame_bytes, sample_bytes, limit);
            let mut before = 0;
            for (at, &(bytes, ticks)) in packets.iter().enumerate() {
                prop_assert!((1..=limit).contains(&bytes));
                prop_assert_eq!(ticks as usize * frame_bytes, before);
                if at + 1 < packets.len() {
                    prop_assert_eq!(bytes, packets[0].0);
                    prop_assert!(bytes + frame_bytes > limit);
                }
                before += bytes;
            }
            prop_assert_eq!(before, sample_bytes as usize);
        }
    }

    #[test]
    fn a_sample_of_all_channels_is_never_cut() {
        // 20 ms of L24, stereo, 48 kHz, in packets of 1400 bytes: 233 frames each.
        let expected = [(1398, 0), (1398, 233), (1398, 466), (1398, 699), (168, 932)];
        assert_eq!(stamped(6, 5760, 1400), expected);
        assert_eq!(stamped(1, 160, 1400), [(160, 0)]);
        // The last bytes of a file may be less than a frame.
        assert_eq!(stamped(6, 7, 64), [(7, 0)]);
    }

    #[test]
    fn static_payload_types_are_those_of_rfc_3551() {
        let of = |codec: Result<Codec, CodecError>| {
            let codec = codec.unwrap();
            assert_eq!((codec.format_parameters, codec.dimensions), (None, None));
            (
                codec.payload_type,
                codec.encoding,
                codec.clock_hz,
                codec.channels,
            )
        };
        let big = |bits, rate_hz, channels| of(linear(bits, ByteOrder::Big, rate_hz, channels));
        assert_eq!(of(mu_law(8000, 1)), (Some(0), "PCMU", 8000, None));
        assert_eq!(of(mu_law(16_000, 1)), (None, "PCMU", 16_000, None));
        assert_eq!(of(a_law(8000, 1)), (Some(8), "PCMA", 8000, None));
        assert_eq!(of(a_law(8000, 2)), (None, "PCMA", 8000, Some(2)));
        assert_eq!(of(g722(1)), (Some(9), "G722", 8000, None));
        assert_eq!(big(16, 44_100, 2), (Some(10), "L16", 44_100, Some(2)));
        assert_eq!(big(16, 44_100, 1), (Some(11), "L16", 44_100, None));
        assert_eq!(big(16, 48_000, 2), (None, "L16", 48_000, Some(2)));
        assert_eq!(big(24, 48_000, 6), (None, "L24", 48_000, Some(6)));
        let eight = linear(8, ByteOrder::Little, 22_050, 1);
        assert_eq!(of(eight), (None, "L8", 22_050, None));
        assert_eq!(mu_law(8000, 1).unwrap().codec_string, "ulaw");
    }

    #[test]
    fn what_rtp_cannot_carry_is_refused_in_words() {
        let of = |codec: Result<Codec, CodecError>| codec.unwrap_err().to_string();
        let little = linear(16, ByteOrder::Little, 48_000, 2);
        let words = "it is in little-endian order, and sent as it lies in the file: RTP wants big";
        assert_eq!(of(little), format!("PCM: {words}"));
        let float = linear(32, ByteOrder::Big, 48_000, 2);
        assert_eq!(of(float), "PCM: 32 bits have no RTP payload format");
        assert_eq!(of(mu_law(0, 1)), "G.711: no samples a second");
        let channels = "channels: none, or more than a small packet holds";
        assert_eq!(of(g722(0)), format!("G.722: 0 {channels}"));
        assert!(linear(24, ByteOrder::Big, 48_000, 21).is_ok());
        let many = linear(24, ByteOrder::Big, 48_000, 22);
        assert_eq!(of(many), format!("PCM: 22 {channels}"));
    }
}
