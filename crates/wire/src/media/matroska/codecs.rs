//! What the codecs of Matroska are called (RFC 9559's companion, the Matroska codec
//! specifications), and which of ours each is.

use super::tracks::{Entry, KIND_AUDIO, KIND_VIDEO};
use crate::media::codec::{aac, h264, vp8, vp9};
use crate::media::packetizer::{Codec, CodecError};

/// What a track of frames is.
#[derive(Debug)]
pub(super) struct Coded {
    pub(super) codec: Codec,
    /// Whether frames may lie in another order than they are shown in.
    pub(super) is_reordered: bool,
}

/// What kind of a track it is, for people.
pub(super) fn description(entry: &Entry) -> String {
    let kind = match entry.kind {
        KIND_VIDEO => "video",
        KIND_AUDIO => "audio",
        0x11 => "subtitles",
        0x12 => "buttons",
        0x20 => "control",
        0x21 => "metadata",
        _ => "of an unknown kind",
    };
    format!("{kind} ({})", entry.codec_id)
}

/// How the frames of a track are coded.
///
/// # Errors
///
/// Why it cannot be played.
pub(super) fn coded(entry: &Entry) -> Result<Coded, String> {
    if let Some(encoded) = entry.encoded {
        return Err(encoded.to_owned());
    }
    let in_order = |codec| Coded {
        codec,
        is_reordered: false,
    };
    let reordered = |codec| Coded {
        codec,
        is_reordered: true,
    };
    let private = &entry.private[..];
    let coded = match entry.codec_id.as_str() {
        "V_MPEG4/ISO/AVC" => h264::codec(&[private]).map(reordered),
        "V_VP8" => Ok(in_order(vp8::codec())),
        "V_VP9" => vp9::codec(None).map(in_order),
        "A_AAC" => aac::codec(private).map(in_order),
        id if id.starts_with("A_AAC/") => aac_of(entry).map(in_order),
        _ => {
            return Err(match entry.kind {
                KIND_VIDEO | KIND_AUDIO => "no payload format for this codec".to_owned(),
                _ => "only pictures and sound are played".to_owned(),
            });
        }
    };
    coded.map_err(|error| error.to_string())
}

/// AAC of an old file, whose codec's name says what its configuration would.
fn aac_of(entry: &Entry) -> Result<Codec, CodecError> {
    const RATES: [f64; 13] = [
        96000.0, 88200.0, 64000.0, 48000.0, 44100.0, 32000.0, 24000.0, 22050.0, 16000.0, 12000.0,
        11025.0, 8000.0, 7350.0,
    ];
    if !entry.private.is_empty() {
        return aac::codec(&entry.private);
    }
    // AudioSpecificConfig, ISO/IEC 14496-3, section 1.6.2.1.
    let object_type: u16 = match () {
        () if entry.codec_id.contains("/MAIN") => 1,
        () if entry.codec_id.contains("/SSR") => 3,
        () if entry.codec_id.contains("/LTP") => 4,
        () => 2,
    };
    let rate = (0..).zip(RATES).find(|&(_, rate)| rate == entry.sampling_hz);
    let (rate, channels) = (rate.map(|(at, _)| at), u16::try_from(entry.channels).ok());
    let (Some(rate), Some(channels @ 1..8)) = (rate, channels) else {
        return Err(CodecError::Configuration {
            codec: "AAC",
            what: "neither a configuration nor a rate and channels that it has".into(),
        });
    };
    let config: u16 = object_type << 11 | rate << 7 | channels << 3;
    aac::codec(&config.to_be_bytes())
}
