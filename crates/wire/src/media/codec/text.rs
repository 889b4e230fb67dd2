//! Subtitles: not carried by RTP here, and so without packets. `media::text` reads what is in them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::media::packetizer::{Codec, PacketSink, Packetizer, Unit};
use crate::media::track::Medium;

/// How a text track's samples are written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) enum TextKind {
    /// 3GPP timed text (`tx3g`, 3GPP TS 26.245) and QuickTime's `text`: a length and the text.
    Timed,
    /// WebVTT in MP4 (`wvtt`, ISO/IEC 14496-30): boxes.
    BoxedWebVtt,
    /// Matroska's `S_TEXT/UTF8`: the text of SubRip.
    SubRip,
    /// Matroska's `S_TEXT/WEBVTT`.
    WebVtt,
    /// Matroska's `S_TEXT/ASS` and `S_TEXT/SSA`: the fields of an event.
    Ass,
    /// WebM's `D_WEBVTT`, which ffmpeg writes into Matroska, too: a line with the cue's identifier,
    /// one with its settings, and the text.
    WebMVtt,
}

impl TextKind {
    /// What a text track amounts to. It is no track of RTP's.
    pub(in crate::media) fn codec(self) -> Codec {
        Codec {
            medium: Medium::Application,
            payload_type: None,
            encoding: "",
            clock_hz: 1000,
            channels: None,
            format_parameters: None,
            codec_string: self.name().to_owned(),
            dimensions: None,
            video_range: None,
            packetizer: Arc::new(NoPackets),
        }
    }

    /// Its name for people.
    pub(in crate::media) fn name(self) -> &'static str {
        match self {
            Self::Timed => "tx3g",
            Self::BoxedWebVtt => "wvtt",
            Self::SubRip => "S_TEXT/UTF8",
            Self::WebVtt => "S_TEXT/WEBVTT",
            Self::Ass => "S_TEXT/ASS",
            Self::WebMVtt => "D_WEBVTT",
        }
    }

    /// Whether a sample's end is not in its table: Matroska has it behind the block.
    pub(in crate::media) fn is_of_matroska(self) -> bool {
        matches!(
            self,
            Self::SubRip | Self::WebVtt | Self::Ass | Self::WebMVtt
        )
    }
}

/// A track that nobody asks for packets.
#[derive(Debug)]
struct NoPackets;

impl Packetizer for NoPackets {
    fn packetize(&self, _: &Unit<'_>, _: usize, _: &mut dyn PacketSink) {}
}
