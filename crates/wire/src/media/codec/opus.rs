//! Opus (RFC 6716) as RFC 7587 carries it: one Opus packet, which is a sample, is one RTP packet.
//!
//! Not here: streams of more than two channels, which have no payload format, and the gain that a
//! file may want to be applied, which RTP cannot say.

use std::sync::Arc;

use super::super::packetizer::{Codec, CodecError, PacketSink, Packetizer, Unit};
use super::super::track::Medium;

const NAME: &str = "Opus";

/// What a stream of so many channels is. Its clock is 48 kHz and its channels are called two
/// whatever they are (RFC 7587, section 7).
///
/// # Errors
///
/// If there are none or more than two, or they are spread over several streams as a mapping family
/// other than 0 allows (RFC 7845, section 5.1.1).
pub(in crate::media) fn codec(channels: u8, mapping_family: u8) -> Result<Codec, CodecError> {
    if !matches!((channels, mapping_family), (1..=2, 0)) {
        return Err(error(format!(
            "{channels} channels by mapping family {mapping_family} have no RTP payload format"
        )));
    }
    Ok(Codec {
        medium: Medium::Audio,
        payload_type: None,
        encoding: "opus",
        clock_hz: 48_000,
        channels: Some(2),
        format_parameters: (channels == 2).then(|| "sprop-stereo=1".to_owned()),
        codec_string: "opus".to_owned(),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(Opus),
    })
}

/// What a stream is that an `OpusSpecificBox` describes (`dOps`, without its box header).
///
/// # Errors
///
/// If it is broken, or [`codec`] refuses its channels.
pub(in crate::media) fn from_dops(dops: &[u8]) -> Result<Codec, CodecError> {
    match *dops {
        [0, channels, _, _, _, _, _, _, _, _, mapping_family, ..] => {
            codec(channels, mapping_family)
        }
        [version, ..] if version > 0 => Err(error(format!("dOps of version {version}"))),
        _ => Err(error(format!("dOps of {} bytes", dops.len()))),
    }
}

/// What a stream is that an identification header describes (RFC 7845, section 5.1): the
/// `CodecPrivate` of Matroska.
///
/// # Errors
///
/// If it is broken, or [`codec`] refuses its channels.
pub(in crate::media) fn from_opus_head(head: &[u8]) -> Result<Codec, CodecError> {
    match head.strip_prefix(b"OpusHead") {
        // The upper half of the version is for changes that nobody understands who does not know.
        Some(
            &[
                version,
                channels,
                _,
                _,
                _,
                _,
                _,
                _,
                _,
                _,
                mapping_family,
                ..,
            ],
        ) => match version {
            0..16 => codec(channels, mapping_family),
            _ => Err(error(format!("OpusHead of version {version}"))),
        },
        Some(_) => Err(error(format!("OpusHead of {} bytes", head.len()))),
        None => Err(error("its configuration is no OpusHead".to_owned())),
    }
}

/// An Opus packet in a transport stream, behind its control header ("Opus in MPEG-TS", Xiph.Org).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct TsPacket {
    /// Bytes in front of the Opus packet.
    pub(in crate::media) header_bytes: usize,
    /// Bytes from this header to the next.
    pub(in crate::media) frame_bytes: usize,
    /// How long it lasts, at 48 kHz.
    pub(in crate::media) ticks: u32,
    is_stereo: bool,
}

impl TsPacket {
    /// Reads it; `None` if that takes more bytes than these.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(in crate::media) fn parse(bytes: &[u8]) -> Result<Option<Self>, CodecError> {
        let &[first, second, ..] = bytes else {
            return Ok(None);
        };
        if (first, second >> 5) != (0x7f, 7) {
            return Err(error(
                "a control header does not begin with its prefix".to_owned(),
            ));
        }
        let (mut at, mut packet_bytes) = (2, 0);
        loop {
            let Some(&more) = bytes.get(at) else {
                return Ok(None);
            };
            (at, packet_bytes) = (at + 1, packet_bytes + usize::from(more));
            if packet_bytes > TS_PACKET_BYTES_MAX {
                let what = format!("a packet of more than {TS_PACKET_BYTES_MAX} bytes");
                return Err(error(what));
            }
            if more < 255 {
                break;
            }
        }
        // What decoders leave out at the start and at the end.
        at += [0x10, 0x08]
            .map(|flag| usize::from(second & flag > 0) * 2)
            .iter()
            .sum::<usize>();
        if second & 0x04 > 0 {
            let Some(&extension_bytes) = bytes.get(at) else {
                return Ok(None);
            };
            at += 1 + usize::from(extension_bytes);
        }
        let Some(&toc) = bytes.get(at) else {
            return Ok(None);
        };
        // A second byte says how many frames there are where the first does not.
        let head_bytes = if toc & 3 == 3 { 2 } else { 1 };
        if packet_bytes < head_bytes {
            return Err(error(format!("a packet of {packet_bytes} bytes")));
        }
        let Some(&frames) = bytes.get(at + head_bytes - 1) else {
            return Ok(None);
        };
        let ticks = frame_ticks(toc) * u32::from(frame_count(toc, frames));
        if !(1..=TS_TICKS_MAX).contains(&ticks) {
            return Err(error(format!("a packet that lasts {ticks} ticks")));
        }
        Ok(Some(Self {
            header_bytes: at,
            frame_bytes: at + packet_bytes,
            ticks,
            is_stereo: toc & 4 > 0,
        }))
    }

    /// The `dOps` of a stream that begins with it.
    pub(in crate::media) fn dops(&self) -> [u8; 11] {
        let mut dops = [0; 11];
        dops[1] = 1 + u8::from(self.is_stereo);
        dops[4..8].copy_from_slice(&48_000_u32.to_be_bytes());
        dops
    }
}

/// Bytes of an Opus packet at the most: 48 frames, each with its length (RFC 6716, section 3.4).
const TS_PACKET_BYTES_MAX: usize = 48 * (1275 + 2) + 2;

/// How long a packet may last: 120 ms (RFC 6716, section 3.2.5).
const TS_TICKS_MAX: u32 = 5760;

/// How long a frame lasts, at 48 kHz (RFC 6716, table 2).
fn frame_ticks(toc: u8) -> u32 {
    let size = usize::from(toc >> 3 & 3);
    match toc >> 3 {
        0..12 => [480, 960, 1920, 2880][size],
        12..16 => [480, 960][size & 1],
        _ => [120, 240, 480, 960][size],
    }
}

/// How many frames a packet has that begins with these two bytes (RFC 6716, section 3.2).
fn frame_count(toc: u8, second: u8) -> u8 {
    match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => second & 0x3f,
    }
}

fn error(what: String) -> CodecError {
    CodecError::Configuration {
        codec: NAME,
        what: what.into(),
    }
}

/// RFC 7587, section 4.2: nothing but the Opus packet, which cannot be cut. One that is larger than
/// an RTP packet may be is told as lost: as many frames as it has, of no bytes (RFC 6716, section
/// 3.2.1). Decoders conceal these, and what follows is in its place.
#[derive(Debug)]
struct Opus;

impl Packetizer for Opus {
    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        for (at, sample) in unit.samples.iter().enumerate() {
            let bytes = sample.bytes as usize;
            match bytes <= payload_bytes_max {
                true => sink.sample(at, 0..bytes),
                false => sink.literal(&lost(unit.byte(at, 0), unit.byte(at, 1))),
            }
            sink.end(false);
        }
    }
}

/// A packet of code 3, of frames that all have the same size, which is 0: in place of one that
/// begins with these two bytes (RFC 6716, sections 3.1 and 3.2.5).
fn lost(first: u8, second: u8) -> [u8; 2] {
    // A number that no packet may have would make of this one that decoders refuse: 48 frames of
    // 2.5 ms are the most.
    [first | 3, frame_count(first, second).clamp(1, 48)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{break_configuration, packets, packets_of_all};
    use super::*;

    const DOPS: [u8; 11] = [0, 2, 1, 56, 0, 0, 187, 128, 0, 0, 0];

    fn head(version: u8, channels: u8) -> Vec<u8> {
        [
            b"OpusHead",
            &[version, channels, 56, 1, 128, 187, 0, 0, 0, 0, 0][..],
        ]
        .concat()
    }

    proptest! {
        #[test]
        fn opus_packets_come_back_or_are_told_as_lost(
            samples in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..2000), 1..20),
            payload_bytes_max in 64..1500_usize,
        ) {
            let slices: Vec<_> = samples.iter().map(Vec::as_slice).collect();
            let packets = packets_of_all(&Opus, &slices, payload_bytes_max);
            prop_assert_eq!(packets.len(), samples.len());
            for (packet, sample) in packets.iter().zip(&samples) {
                prop_assert!(!packet.marker);
                match sample.len() <= payload_bytes_max {
                    true => prop_assert_eq!(&packet.payload, sample),
                    false => {
                        // The same mode and channels, and a number of frames of no bytes.
                        prop_assert_eq!(packet.payload[0], sample[0] | 3);
                        prop_assert!((1..=48).contains(&packet.payload[1]));
                        prop_assert_eq!(packet.payload.len(), 2);
                    }
                }
            }
        }

        #[test]
        fn any_bytes_as_configuration_are_answered(
            bytes in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            drop(from_dops(&bytes));
            drop(from_opus_head(&[b"OpusHead", &bytes[..]].concat()));
        }
    }

    #[test]
    fn a_packet_told_as_lost_lasts_as_long() {
        let lost = |first, second| {
            let sample = [&[first, second][..], &[0; 98]].concat();
            packets(&Opus, &[&sample], true, 0, 99)
                .swap_remove(0)
                .payload
        };
        assert_eq!(lost(0xfc, 9), [0xff, 1]);
        assert_eq!(lost(0xf9, 9), [0xfb, 2]);
        assert_eq!(lost(0xfa, 9), [0xfb, 2]);
        assert_eq!(lost(0xf3, 0x80 | 6), [0xf3, 6]);
        assert_eq!(lost(0xf3, 0), [0xf3, 1]);
        assert_eq!(lost(0xf3, 63), [0xf3, 48]);
        let sample = [7; 99];
        assert_eq!(packets(&Opus, &[&sample], true, 0, 99)[0].payload, sample);
    }

    #[test]
    fn a_packet_of_a_transport_stream_may_have_one_byte() {
        let of = |packet_bytes, packet: &[u8]| {
            TsPacket::parse(&[&[0x7f, 0xe0, packet_bytes][..], packet].concat())
        };
        // Silence (DTX): one frame of no bytes, of 20 ms.
        let silence = of(1, &[0xf8]).unwrap().unwrap();
        assert_eq!((silence.header_bytes, silence.frame_bytes), (3, 4));
        assert_eq!(silence.ticks, 960);
        // How many frames there are stands in a second byte.
        assert_eq!(of(2, &[0xfb, 3]).unwrap().unwrap().ticks, 3 * 960);
        assert_eq!(of(2, &[0xfb]), Ok(None));
        assert!(of(1, &[0xfb, 3]).is_err() && of(0, &[0xf8]).is_err());
    }

    #[test]
    fn a_stream_is_called_stereo_at_48_khz() {
        // As ffmpeg says of the same.
        for codec in [from_dops(&DOPS), from_opus_head(&head(1, 2))] {
            let codec = codec.unwrap();
            let told = (codec.encoding, codec.clock_hz, codec.channels);
            assert_eq!(told, ("opus", 48_000, Some(2)));
            assert_eq!(codec.format_parameters.as_deref(), Some("sprop-stereo=1"));
            assert_eq!((codec.payload_type, &*codec.codec_string), (None, "opus"));
        }
        let mono = from_opus_head(&head(1, 1)).unwrap();
        assert_eq!((mono.channels, mono.format_parameters), (Some(2), None));
    }

    #[test]
    fn what_has_no_payload_format_is_refused_in_words() {
        let of = |made: Result<Codec, CodecError>| made.unwrap_err().to_string();
        let none = "have no RTP payload format";
        let mut dops = DOPS;
        dops[1] = 6;
        assert_eq!(
            of(from_dops(&dops)),
            format!("Opus: 6 channels by mapping family 0 {none}")
        );
        (dops[1], dops[10]) = (2, 1);
        assert_eq!(
            of(from_dops(&dops)),
            format!("Opus: 2 channels by mapping family 1 {none}")
        );
        assert_eq!(
            of(codec(0, 0)),
            format!("Opus: 0 channels by mapping family 0 {none}")
        );
        dops[0] = 1;
        assert_eq!(of(from_dops(&dops)), "Opus: dOps of version 1");
        assert_eq!(of(from_dops(&DOPS[..10])), "Opus: dOps of 10 bytes");
        assert_eq!(
            of(from_opus_head(&head(16, 2))),
            "Opus: OpusHead of version 16"
        );
        assert_eq!(of(from_opus_head(b"OpusHead")), "Opus: OpusHead of 8 bytes");
        assert_eq!(
            of(from_opus_head(&DOPS)),
            "Opus: its configuration is no OpusHead"
        );
        break_configuration(&DOPS, |broken| drop(from_dops(broken)));
        break_configuration(&head(1, 2), |broken| drop(from_opus_head(broken)));
    }
}
