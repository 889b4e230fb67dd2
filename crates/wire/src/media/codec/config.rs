//! What a codec is made of, as the file told it: enough to make the same codec again later.
//!
//! Every container makes its codecs by [`CodecConfig::codec`], so that a saved index can do so too.

use serde::{Deserialize, Serialize};

use super::pcm::{self, ByteOrder};
use super::{
    aac, ac3, av1, eac3, h264, h265, jpeg, mpeg_audio, mpeg_video, mpeg4_visual, opus, vp8, vp9,
};
use crate::media::codec::text::TextKind;
use crate::media::packetizer::{Codec, CodecError};

/// A codec's name with its configuration: where there are several, one for each sample entry.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) enum CodecConfig {
    /// `avcC`.
    H264(Vec<Box<[u8]>>),
    /// Parameter sets, for samples that have lengths of four bytes.
    H264Sets(Vec<Box<[u8]>>),
    /// `hvcC`.
    H265(Vec<Box<[u8]>>),
    /// Parameter sets, for samples that have lengths of four bytes.
    H265Sets(Vec<Box<[u8]>>),
    /// `av1C`.
    Av1(Vec<Box<[u8]>>),
    Vp8,
    /// `vpcC`.
    Vp9(Option<Box<[u8]>>),
    /// A visual object sequence.
    Mpeg4Visual(Vec<Box<[u8]>>),
    /// A sequence header.
    MpegVideo(Vec<Box<[u8]>>),
    Jpeg,
    /// `AudioSpecificConfig`.
    Aac(Box<[u8]>),
    MpegAudio {
        rate_hz: u32,
    },
    /// `dOps`.
    OpusDops(Box<[u8]>),
    /// `OpusHead`.
    OpusHead(Box<[u8]>),
    Ac3 {
        rate_hz: u32,
        channels: u8,
    },
    /// `dac3`.
    Ac3Dac3(Box<[u8]>),
    Eac3 {
        rate_hz: u32,
        channels: u8,
    },
    /// `dec3`.
    Eac3Dec3(Box<[u8]>),
    MuLaw {
        rate_hz: u32,
        channels: u8,
    },
    ALaw {
        rate_hz: u32,
        channels: u8,
    },
    /// At 64 kbit/s.
    G722 {
        channels: u8,
    },
    Pcm {
        bits: u8,
        order: ByteOrder,
        rate_hz: u32,
        channels: u8,
    },
    /// Subtitles, with ns of a unit of their times where these lie beside them.
    Text {
        kind: TextKind,
        unit_ns: u64,
    },
}

impl CodecConfig {
    /// The codec.
    ///
    /// # Errors
    ///
    /// If it cannot be played so.
    pub(in crate::media) fn codec(&self) -> Result<Codec, CodecError> {
        let each = |list: &[Box<[u8]>], make: fn(&[&[u8]]) -> Result<Codec, CodecError>| {
            make(&list.iter().map(|it| &**it).collect::<Vec<_>>())
        };
        match self {
            Self::H264(list) => each(list, h264::codec),
            Self::H264Sets(sets) => h264::from_parameter_sets(sets),
            Self::H265(list) => each(list, h265::codec),
            Self::H265Sets(sets) => h265::from_parameter_sets(sets),
            Self::Av1(list) => each(list, av1::codec),
            Self::Vp8 => Ok(vp8::codec()),
            Self::Vp9(vpcc) => vp9::codec(vpcc.as_deref()),
            Self::Mpeg4Visual(list) => each(list, mpeg4_visual::codec),
            Self::MpegVideo(list) => each(list, mpeg_video::codec),
            Self::Jpeg => Ok(jpeg::codec()),
            Self::Aac(config) => aac::codec(config),
            Self::MpegAudio { rate_hz } => mpeg_audio::codec(*rate_hz),
            Self::OpusDops(dops) => opus::from_dops(dops),
            Self::OpusHead(head) => opus::from_opus_head(head),
            Self::Ac3 { rate_hz, channels } => ac3::codec(*rate_hz, *channels),
            Self::Ac3Dac3(dac3) => ac3::from_dac3(dac3),
            Self::Eac3 { rate_hz, channels } => eac3::codec(*rate_hz, *channels),
            Self::Eac3Dec3(dec3) => eac3::from_dec3(dec3),
            Self::MuLaw { rate_hz, channels } => pcm::mu_law(*rate_hz, *channels),
            Self::ALaw { rate_hz, channels } => pcm::a_law(*rate_hz, *channels),
            Self::G722 { channels } => pcm::g722(*channels),
            Self::Pcm {
                bits,
                order,
                rate_hz,
                channels,
            } => pcm::linear(*bits, *order, *rate_hz, *channels),
            Self::Text { kind, .. } => Ok(kind.codec()),
        }
    }

    /// What a decoder is told beforehand, as containers have it: of each sample entry the bytes,
    /// without a box's header. None where there are none, or the stream has them in itself.
    pub(in crate::media) fn configurations(&self) -> Vec<Box<[u8]>> {
        let all = match self {
            Self::H264(list)
            | Self::H265(list)
            | Self::Av1(list)
            | Self::Mpeg4Visual(list)
            | Self::MpegVideo(list) => list.clone(),
            Self::Vp9(Some(one))
            | Self::Aac(one)
            | Self::OpusDops(one)
            | Self::OpusHead(one)
            | Self::Ac3Dac3(one)
            | Self::Eac3Dec3(one) => vec![one.clone()],
            _ => Vec::new(),
        };
        match all.iter().any(|it| it.is_empty()) {
            true => Vec::new(),
            false => all,
        }
    }

    /// What `make` makes of the bytes of some configurations.
    pub(in crate::media) fn of_each(
        make: fn(Vec<Box<[u8]>>) -> Self,
        configurations: &[&[u8]],
    ) -> Self {
        make(configurations.iter().map(|&it| it.into()).collect())
    }
}
