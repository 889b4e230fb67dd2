//! What the codecs of Matroska are called (RFC 9559's companion, the Matroska codec
//! specifications), and which of ours each is.

use super::times::Period;
use super::tracks::{Entry, KIND_AUDIO, KIND_VIDEO};
use crate::media::codec::pcm::{self, ByteOrder};
use crate::media::codec::{
    aac, ac3, av1, eac3, h264, h265, jpeg, mpeg_audio, mpeg_video, mpeg4_visual, opus, vp8, vp9,
};
use crate::media::packetizer::{Codec, CodecError};

/// What a track of frames is.
#[derive(Debug)]
pub(super) struct Coded {
    pub(super) codec: Codec,
    /// Whether frames may lie in another order than they are shown in.
    pub(super) is_reordered: bool,
    /// How long each frame lasts, as a rule.
    pub(super) frame: Option<Period>,
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
        frame: None,
    };
    let reordered = |codec| Coded {
        codec,
        is_reordered: true,
        frame: None,
    };
    let framed = |codec: Codec, ticks| Coded {
        frame: Some(Period {
            ticks,
            hz: codec.clock_hz,
        }),
        ..in_order(codec)
    };
    let private = &entry.private[..];
    let (rate_hz, channels) = (whole_hz(entry.sampling_hz), channels(entry));
    let coded = match entry.codec_id.as_str() {
        "V_MPEG4/ISO/AVC" => h264::codec(&[private]).map(reordered),
        "V_MPEGH/ISO/HEVC" => h265::codec(&[private]).map(reordered),
        "V_AV1" => av1::codec(&[private]).map(in_order),
        "V_VP8" => Ok(in_order(vp8::codec())),
        "V_VP9" => vp9::codec(None).map(in_order),
        "V_MPEG1" | "V_MPEG2" => mpeg_video::codec(&[private]).map(reordered),
        "V_MPEG4/ISO/SP" | "V_MPEG4/ISO/ASP" | "V_MPEG4/ISO/AP" => {
            mpeg4_visual::codec(&[private]).map(reordered)
        }
        "V_MJPEG" => Ok(in_order(jpeg::codec())),
        "A_AAC" => aac::codec(private).map(|codec| framed(codec, 1024)),
        id if id.starts_with("A_AAC/") => aac_of(entry).map(|codec| framed(codec, 1024)),
        "A_OPUS" => opus::from_opus_head(private).map(in_order),
        "A_MPEG/L3" | "A_MPEG/L2" | "A_MPEG/L1" => mpeg_audio::codec(rate_hz).map(|codec| Coded {
            frame: mpeg_audio_frame(&entry.codec_id, rate_hz),
            ..in_order(codec)
        }),
        "A_AC3" => ac3::codec(rate_hz, channels).map(|codec| framed(codec, 1536)),
        "A_EAC3" => eac3::codec(rate_hz, channels).map(|codec| framed(codec, 1536)),
        "A_PCM/INT/BIG" => linear(entry, ByteOrder::Big).map(in_order),
        "A_PCM/INT/LIT" => linear(entry, ByteOrder::Little).map(in_order),
        "A_MS/ACM" => g711(private).map(in_order),
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
    let rate = (0..)
        .zip(RATES)
        .find(|&(_, rate)| rate == entry.sampling_hz);
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

/// How long a frame of MPEG audio lasts (ISO/IEC 11172-3 and 13818-3, sections 2.4.2.1).
fn mpeg_audio_frame(codec_id: &str, rate_hz: u32) -> Option<Period> {
    let ticks = match codec_id {
        "A_MPEG/L1" => 384,
        "A_MPEG/L3" if rate_hz < 32_000 => 576,
        _ => 1152,
    };
    (rate_hz > 0).then_some(Period { ticks, hz: rate_hz })
}

/// Samples a second, if that is a whole number; else 0.
fn whole_hz(hz: f64) -> u32 {
    let is_whole = hz.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&hz);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number of 32 bits"
    )]
    let whole = hz as u32;
    if is_whole { whole } else { 0 }
}

/// Channels; 0 if there are too many for any codec.
fn channels(entry: &Entry) -> u8 {
    u8::try_from(entry.channels).unwrap_or(0)
}

fn linear(entry: &Entry, order: ByteOrder) -> Result<Codec, CodecError> {
    let bits = entry.bit_depth.and_then(|bits| u8::try_from(bits).ok());
    let rate_hz = whole_hz(entry.sampling_hz);
    pcm::linear(bits.unwrap_or(16), order, rate_hz, channels(entry))
}

/// G.711, by what Windows tells of sound: a `WAVEFORMATEX`.
fn g711(format: &[u8]) -> Result<Codec, CodecError> {
    let broken = |what: &'static str| CodecError::Configuration {
        codec: "A_MS/ACM",
        what: what.into(),
    };
    let &[tag, tag_high, channels, channels_high, a, b, c, d, ..] = format else {
        return Err(broken("less than a WAVEFORMATEX"));
    };
    let channels = u16::from_le_bytes([channels, channels_high]);
    let channels = u8::try_from(channels).unwrap_or(0);
    let rate_hz = u32::from_le_bytes([a, b, c, d]);
    match u16::from_le_bytes([tag, tag_high]) {
        6 => pcm::a_law(rate_hz, channels),
        7 => pcm::mu_law(rate_hz, channels),
        _ => Err(broken("no payload format for this codec")),
    }
}
