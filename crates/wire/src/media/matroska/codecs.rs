//! What the codecs of Matroska are called (RFC 9559's companion, the Matroska codec
//! specifications), and which of ours each is.

use super::times::Period;
use super::tracks::{Entry, KIND_AUDIO, KIND_VIDEO};
use crate::media::codec::config::CodecConfig;
use crate::media::codec::mpeg4_visual;
use crate::media::codec::pcm::ByteOrder;
use crate::media::codec::text::TextKind;
use crate::media::packetizer::Codec;

/// What a track of frames is.
#[derive(Debug)]
pub(super) struct Coded {
    pub(super) codec: Codec,
    /// What the codec was made of.
    pub(super) config: CodecConfig,
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
pub(super) fn coded(entry: &Entry, unit_ns: u64) -> Result<Coded, String> {
    if let Some(encoded) = entry.encoded {
        return Err(encoded.to_owned());
    }
    let private = || Box::from(&entry.private[..]);
    let list = || vec![private()];
    let text = |kind| CodecConfig::Text { kind, unit_ns };
    let (rate_hz, channels) = (whole_hz(entry.sampling_hz), channels(entry));
    let config = match entry.codec_id.as_str() {
        "V_MPEG4/ISO/AVC" => CodecConfig::H264(list()),
        "V_MPEGH/ISO/HEVC" => CodecConfig::H265(list()),
        "V_AV1" => CodecConfig::Av1(list()),
        "V_VP8" => CodecConfig::Vp8,
        "V_VP9" => CodecConfig::Vp9(None),
        "V_MPEG1" | "V_MPEG2" => CodecConfig::MpegVideo(list()),
        "V_MPEG4/ISO/SP" | "V_MPEG4/ISO/ASP" | "V_MPEG4/ISO/AP" => CodecConfig::Mpeg4Visual(list()),
        "V_MJPEG" => CodecConfig::Jpeg,
        "V_MS/VFW/FOURCC" => pictures_of_windows(&entry.private)?,
        "A_AAC" => CodecConfig::Aac(private()),
        id if id.starts_with("A_AAC/") => aac_of(entry)?,
        "A_OPUS" => CodecConfig::OpusHead(private()),
        "A_MPEG/L3" | "A_MPEG/L2" | "A_MPEG/L1" => CodecConfig::MpegAudio { rate_hz },
        "A_AC3" => CodecConfig::Ac3 { rate_hz, channels },
        "A_EAC3" => CodecConfig::Eac3 { rate_hz, channels },
        "A_PCM/INT/BIG" => linear(entry, ByteOrder::Big),
        "A_PCM/INT/LIT" => linear(entry, ByteOrder::Little),
        "A_MS/ACM" => sound_of_windows(&entry.private)?,
        "S_TEXT/UTF8" | "S_TEXT/ASCII" => text(TextKind::SubRip),
        "S_TEXT/WEBVTT" => text(TextKind::WebVtt),
        "D_WEBVTT/SUBTITLES" | "D_WEBVTT/CAPTIONS" | "D_WEBVTT/DESCRIPTIONS" => {
            text(TextKind::WebMVtt)
        }
        "S_TEXT/ASS" | "S_TEXT/SSA" | "S_ASS" | "S_SSA" => text(TextKind::Ass),
        _ => {
            return Err(match entry.kind {
                KIND_VIDEO | KIND_AUDIO => "no payload format for this codec".to_owned(),
                _ => "only pictures and sound are played".to_owned(),
            });
        }
    };
    let codec = config.codec().map_err(|error| error.to_string())?;
    let of_codec = |ticks| {
        let hz = codec.clock_hz;
        Some(Period { ticks, hz })
    };
    let frame = match &config {
        CodecConfig::Aac(_) => of_codec(1024),
        CodecConfig::Ac3 { .. } | CodecConfig::Eac3 { .. } => of_codec(1536),
        CodecConfig::MpegAudio { .. } => mpeg_audio_frame(&entry.codec_id, rate_hz),
        _ => None,
    };
    let is_reordered = matches!(
        config,
        CodecConfig::H264(_)
            | CodecConfig::H265(_)
            | CodecConfig::MpegVideo(_)
            | CodecConfig::Mpeg4Visual(_)
    );
    Ok(Coded {
        codec,
        config,
        is_reordered,
        frame,
    })
}

/// AAC of an old file, whose codec's name says what its configuration would.
fn aac_of(entry: &Entry) -> Result<CodecConfig, String> {
    const RATES: [f64; 13] = [
        96000.0, 88200.0, 64000.0, 48000.0, 44100.0, 32000.0, 24000.0, 22050.0, 16000.0, 12000.0,
        11025.0, 8000.0, 7350.0,
    ];
    if !entry.private.is_empty() {
        return Ok(CodecConfig::Aac(entry.private[..].into()));
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
        return Err("AAC: neither a configuration nor a rate and channels that it has".to_owned());
    };
    let config: u16 = object_type << 11 | rate << 7 | channels << 3;
    Ok(CodecConfig::Aac(config.to_be_bytes().into()))
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

fn linear(entry: &Entry, order: ByteOrder) -> CodecConfig {
    let bits = entry.bit_depth.and_then(|bits| u8::try_from(bits).ok());
    CodecConfig::Pcm {
        bits: bits.unwrap_or(16),
        order,
        rate_hz: whole_hz(entry.sampling_hz),
        channels: channels(entry),
    }
}

/// MPEG-4 part 2, by what Windows tells of pictures: a `BITMAPINFOHEADER`, and the configuration
/// behind it. Times are those of AVI, which are of decoding: they are right where no picture is
/// shown later than it is decoded.
fn pictures_of_windows(format: &[u8]) -> Result<CodecConfig, String> {
    const HEADER_BYTES: usize = 40;
    let broken = |what: &str| format!("V_MS/VFW/FOURCC: {what}");
    let Some((header, configuration)) = format.split_at_checked(HEADER_BYTES) else {
        return Err(broken("less than a BITMAPINFOHEADER"));
    };
    let fourcc = header[16..20].to_ascii_uppercase();
    let is_mpeg4 = matches!(&fourcc[..], b"XVID" | b"DIVX" | b"DX50" | b"FMP4");
    match (is_mpeg4, mpeg4_visual::is_in_order(configuration)) {
        (true, true) => Ok(CodecConfig::Mpeg4Visual(vec![configuration.into()])),
        (true, false) => Err(broken("when pictures are shown is not told")),
        (false, _) => Err(broken("this codec is not played under its Windows name")),
    }
}

/// G.711 and G.722, by what Windows tells of sound: a `WAVEFORMATEX`.
fn sound_of_windows(format: &[u8]) -> Result<CodecConfig, String> {
    let broken = |what: &str| format!("A_MS/ACM: {what}");
    let &[tag, tag_high, channels, channels_high, a, b, c, d, ..] = format else {
        return Err(broken("less than a WAVEFORMATEX"));
    };
    let channels = u16::from_le_bytes([channels, channels_high]);
    let channels = u8::try_from(channels).unwrap_or(0);
    let rate_hz = u32::from_le_bytes([a, b, c, d]);
    match u16::from_le_bytes([tag, tag_high]) {
        6 => Ok(CodecConfig::ALaw { rate_hz, channels }),
        7 => Ok(CodecConfig::MuLaw { rate_hz, channels }),
        0x28f if rate_hz == 16_000 => Ok(CodecConfig::G722 { channels }),
        _ => Err(broken("no payload format for this codec")),
    }
}
