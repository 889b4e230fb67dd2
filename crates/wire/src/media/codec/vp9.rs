//! VP9 as RTP payload (RFC 9628).
//!
//! A sample is what is decoded at one time: a frame, or a superframe with frames that are not shown
//! in front of the one that is. It goes as one frame of the payload format, the index at its end
//! included, because receivers give a decoder what lies between the B and the E bit as it is.
//!
//! The payload descriptor is its mandatory byte alone, in non-flexible mode. Neither picture IDs,
//! which count frames, whereas a packetizer knows only the one that it is given; nor a scalability
//! structure, which would ask for picture IDs in every packet (section 4.2, the I bit).

mod payload;

use std::sync::Arc;

use super::descriptor;
use crate::media::colour::VideoRange;
use crate::media::packetizer::{Codec, CodecError, PacketSink, Packetizer, Unit};
use crate::media::track::Medium;

pub(crate) use self::payload::{Payload, is_key_frame};

/// Bits of the payload descriptor (RFC 9628, section 4.2): predicted from other pictures, start of
/// a frame, end of a frame.
const PREDICTED: u8 = 0x40;
const START: u8 = 0x08;
const END: u8 = 0x04;

/// What a track of VP9 amounts to. `vpcc` is the body of the box `vpcC` with its version and flags
/// ("VP Codec ISO Media File Format Binding"), if there is one: Matroska has none.
///
/// # Errors
///
/// If the configuration is broken.
pub(in crate::media) fn codec(vpcc: Option<&[u8]>) -> Result<Codec, CodecError> {
    let configuration = vpcc.map(Configuration::read).transpose()?;
    let profile_id = |read: &Configuration| format!("profile-id={}", read.profile);
    Ok(Codec {
        medium: Medium::Video,
        payload_type: None,
        encoding: "VP9",
        clock_hz: 90_000,
        channels: None,
        format_parameters: configuration.as_ref().map(profile_id),
        codec_string: configuration
            .as_ref()
            .map_or_else(|| "vp9".to_owned(), Configuration::codec_string),
        dimensions: None,
        video_range: configuration.and_then(|it| it.video_range),
        packetizer: Arc::new(Vp9),
    })
}

/// What is wanted of a `vpcC`.
#[derive(Debug)]
struct Configuration {
    profile: u8,
    level: u8,
    bit_depth: u8,
    /// If it is told.
    video_range: Option<VideoRange>,
}

impl Configuration {
    /// Reads a version 1; version 0 has these fields in the same places, but for the transfer
    /// characteristics, which it counts otherwise.
    fn read(vpcc: &[u8]) -> Result<Self, CodecError> {
        let &[
            version,
            _,
            _,
            _,
            profile,
            level,
            depth_and_more,
            ref colour @ ..,
        ] = vpcc
        else {
            return Err(broken(format!("a vpcC of {} bytes", vpcc.len())));
        };
        if version > 1 {
            return Err(broken(format!("version {version} of vpcC")));
        }
        if profile > 3 {
            return Err(broken(format!("profile {profile}")));
        }
        let bit_depth = depth_and_more >> 4;
        if !matches!(bit_depth, 8 | 10 | 12) {
            return Err(broken(format!("{bit_depth} bits a component")));
        }
        Ok(Self {
            profile,
            level,
            bit_depth,
            video_range: match (version, colour) {
                (1, &[_primaries, transfer, ..]) => VideoRange::of_transfer(transfer),
                _ => None,
            },
        })
    }

    fn codec_string(&self) -> String {
        let Self {
            profile,
            level,
            bit_depth,
            ..
        } = self;
        format!("vp09.{profile:02}.{level:02}.{bit_depth:02}")
    }
}

fn broken(what: String) -> CodecError {
    CodecError::Configuration {
        codec: "VP9",
        what: what.into(),
    }
}

#[derive(Debug)]
struct Vp9;

impl Packetizer for Vp9 {
    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        descriptor::packetize(unit, payload_bytes_max, sink, |piece| {
            flag(!unit.is_sync, PREDICTED) | flag(piece.is_first, START) | flag(piece.is_last, END)
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing;
    use super::super::testing::receivers::vp9 as depacketized;
    use super::*;

    #[test]
    fn a_frame_is_cut_to_one_size() {
        let frame: Vec<u8> = (0..=255).cycle().take(130).collect();
        let packets = testing::packets(&Vp9, &[&frame], false, 0, 64);
        let starts: Vec<_> = packets.iter().map(|it| it.payload[..2].to_vec()).collect();
        assert_eq!(starts, [[0x48, 0], [0x40, 63], [0x44, 126]]);
        let packets = testing::packets(&Vp9, &[&frame[..63]], true, 0, 64);
        assert_eq!(packets[0].payload[0], 0x0c);
        assert_eq!(packets.len(), 1);
    }

    /// As ffmpeg writes it: profile 0, level 1.0, 8 bits, 4:2:0, BT.709.
    const VPCC: [u8; 12] = [1, 0, 0, 0, 0, 10, 0x82, 1, 1, 1, 0, 0];

    #[test]
    fn the_media_description_tells_the_profile() {
        let told = codec(Some(&VPCC)).unwrap();
        assert_eq!((told.encoding, told.clock_hz), ("VP9", 90_000));
        assert_eq!(told.format_parameters.as_deref(), Some("profile-id=0"));
        assert_eq!(told.codec_string, "vp09.00.10.08");
        let mut deep = VPCC;
        (deep[4], deep[5], deep[6], deep[8]) = (2, 51, 0xa2, 18);
        let told = codec(Some(&deep)).unwrap();
        assert_eq!(told.format_parameters.as_deref(), Some("profile-id=2"));
        assert_eq!(told.codec_string, "vp09.02.51.10");
        assert_eq!(told.video_range, Some(VideoRange::Hlg));
        // A version that counts transfer characteristics otherwise, and none that is told.
        for (at, value) in [(0, 0), (8, 2)] {
            let mut untold = deep;
            untold[at] = value;
            assert_eq!(codec(Some(&untold)).unwrap().video_range, None);
        }
        assert_eq!(codec(Some(&VPCC[..8])).unwrap().video_range, None);
    }

    #[test]
    fn without_a_configuration_no_profile_is_told() {
        let told = codec(None).unwrap();
        assert_eq!(told.format_parameters, None);
        assert_eq!(told.codec_string, "vp9");
    }

    #[test]
    fn broken_configurations_are_told_in_words() {
        for (at, value, told) in [
            (0, 2, "VP9: version 2 of vpcC"),
            (4, 4, "VP9: profile 4"),
            (6, 0x92, "VP9: 9 bits a component"),
        ] {
            let mut broken = VPCC;
            broken[at] = value;
            assert_eq!(codec(Some(&broken)).unwrap_err().to_string(), told);
        }
        let short = codec(Some(&VPCC[..6])).unwrap_err();
        assert_eq!(short.to_string(), "VP9: a vpcC of 6 bytes");
        testing::break_configuration(&VPCC, |broken| drop(codec(Some(broken))));
    }

    proptest! {
        #[test]
        fn depacketizing_gives_the_frame_back(
            frame in prop::collection::vec(any::<u8>(), 1..5000),
            is_sync: bool,
            payload_bytes_max in 64_usize..1500,
        ) {
            let packets = testing::packets(&Vp9, &[&frame], is_sync, 0, payload_bytes_max);
            prop_assert_eq!(depacketized(&packets), (frame, !is_sync));
        }
    }
}
