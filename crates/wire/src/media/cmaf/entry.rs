//! Sample entries: how a decoder is told of what a track's samples are, by the binding of each
//! codec to ISO BMFF.

use std::ops::Range;

use super::boxes::Writer;
use crate::media::codec::config::CodecConfig;
use crate::media::codec::dolby_vision::DolbyVision;
use crate::media::codec::first_frame::{self, FIRST_BYTES};
use crate::media::codec::vp9;
use crate::media::colour::{Colour, VideoRange};
use crate::media::sampled::SampledTrack;
use crate::media::track::Medium;

/// What a track is coded with, of what CMAF has a binding for that players know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Coding {
    /// ISO/IEC 14496-15.
    H264,
    H265,
    /// "AV1 Codec ISO Media File Format Binding".
    Av1,
    /// "VP Codec ISO Media File Format Binding".
    Vp9,
    /// ISO/IEC 14496-14.
    Aac,
    MpegAudio,
    /// "Encapsulation of Opus in ISO Base Media File Format".
    Opus,
    /// ETSI TS 102 366, annex F.
    Ac3,
    Eac3,
}

/// Object types of what `esds` tells of (ISO/IEC 14496-1, table 5).
const OBJECT_AAC: u8 = 0x40;
const OBJECT_MPEG_1_AUDIO: u8 = 0x6b;
const OBJECT_MPEG_2_AUDIO: u8 = 0x69;

/// Bytes of `OpusHead` that a `dOps` has, too, but for their order; without the table of channels.
const OPUS_HEAD_BYTES: usize = 19;

/// How a decoder is told of what a track's samples are.
#[derive(Clone, Debug)]
pub(in crate::media) struct Description {
    coding: Coding,
    /// Of each sample entry the codec's configuration, as its box has it.
    configurations: Vec<Box<[u8]>>,
    /// As in RFC 6381.
    pub(in crate::media) codec_string: String,
    /// The dynamic range of pictures: as the codec tells, else as the container does.
    pub(in crate::media) video_range: Option<VideoRange>,
    /// What the container tells of colours where the codec does not.
    colour: Option<Colour>,
    /// Of pictures that no other decoder can show.
    dolby_vision: Option<DolbyVision>,
}

impl Description {
    /// That of a track. `read` gives the bytes of a part of the file, where a configuration has to
    /// be made of those.
    ///
    /// # Errors
    ///
    /// Why there are no segments of the track.
    pub(in crate::media) fn of(
        track: &SampledTrack,
        read: &mut dyn FnMut(Range<u64>) -> Option<Vec<u8>>,
    ) -> Result<Self, String> {
        if !track.prefix.is_empty() {
            return Err("the start of each of its frames is not in the file".to_owned());
        }
        let coding = match track.codec.encoding {
            "H264" => Coding::H264,
            "H265" => Coding::H265,
            "AV1" => Coding::Av1,
            "VP9" => Coding::Vp9,
            "mpeg4-generic" => Coding::Aac,
            "MPA" => Coding::MpegAudio,
            "opus" => Coding::Opus,
            "ac3" => Coding::Ac3,
            "eac3" => Coding::Eac3,
            _ => return Err("players take no segments with this codec".to_owned()),
        };
        let config = track.config.as_deref();
        let mut configurations = config.map_or_else(Vec::new, CodecConfig::configurations);
        let mut codec_string = track.codec.codec_string.clone();
        let mut told = track.codec.video_range;
        if configurations.is_empty() && coding != Coding::MpegAudio {
            let made = made(coding, track, read)?;
            if coding == Coding::Vp9 {
                let codec = vp9::codec(Some(&made)).map_err(|it| it.to_string())?;
                (codec_string, told) = (codec.codec_string, codec.video_range);
            }
            configurations = vec![made.into()];
        }
        let dolby_vision = track.facts.dolby_vision.filter(|_| coding == Coding::H265);
        if let Some(dolby_vision) = dolby_vision {
            codec_string = dolby_vision.codec_string(codec_string.starts_with("hev1"));
            told = Some(VideoRange::Pq);
        }
        let untold = track.facts.colour.filter(|_| told.is_none());
        let colour = untold.filter(|it| it.video_range().is_some());
        let range = told.or_else(|| colour?.video_range());
        let is_video = track.codec.medium == Medium::Video;
        Ok(Self {
            coding,
            configurations,
            codec_string,
            video_range: is_video.then(|| range.unwrap_or_default()),
            colour,
            dolby_vision,
        })
    }
}

/// The configuration of a codec, of what a track's first sample says.
fn made(
    coding: Coding,
    track: &SampledTrack,
    read: &mut dyn FnMut(Range<u64>) -> Option<Vec<u8>>,
) -> Result<Vec<u8>, String> {
    let none = || "the file has no configuration for a decoder".to_owned();
    if !matches!(coding, Coding::Vp9 | Coding::Ac3 | Coding::Eac3) {
        return Err(none());
    }
    let sample = track.samples.get(0).ok_or_else(none)?;
    let bytes = u64::from(sample.bytes).min(FIRST_BYTES);
    let frame = read(sample.offset..sample.offset + bytes).ok_or_else(none)?;
    let made = match coding {
        Coding::Vp9 => {
            let samples = &track.samples;
            let ticks = samples.end_ticks().abs_diff(samples.decode_ticks(0)).max(1);
            let frames = (samples.len() as u64).saturating_mul(track.timescale.into());
            let told = first_frame::Vp9KeyFrame::read(&frame);
            let colour = track.facts.colour.unwrap_or_default();
            told.map(|it| it.vpcc(frames / ticks, colour))
        }
        Coding::Ac3 => first_frame::ac3(&frame),
        _ => first_frame::eac3(&frame, track.codec.clock_hz),
    };
    made.map_err(|error| error.to_string())
}

/// How many sample entries a track has: one for each of its configurations.
pub(super) fn count(description: &Description) -> usize {
    description.configurations.len().max(1)
}

/// Writes sample entry number `number`, from 0 on, of a track.
pub(super) fn write(
    track: &SampledTrack,
    description: &Description,
    number: usize,
    out: &mut Writer,
) {
    let configuration = description.configurations.get(number);
    let configuration = configuration.map_or(&[][..], |it| it);
    let codec_string = &description.codec_string;
    match description.coding {
        Coding::H264 => {
            let name = if codec_string.starts_with("avc3") {
                b"avc3"
            } else {
                b"avc1"
            };
            visual(track, name, (b"avcC", configuration), description, out);
        }
        Coding::H265 => {
            let name = match codec_string.get(..4) {
                Some("hev1") => b"hev1",
                Some("dvh1") => b"dvh1",
                Some("dvhe") => b"dvhe",
                _ => b"hvc1",
            };
            visual(track, name, (b"hvcC", configuration), description, out);
        }
        Coding::Av1 => visual(track, b"av01", (b"av1C", configuration), description, out),
        Coding::Vp9 => visual(track, b"vp09", (b"vpcC", configuration), description, out),
        Coding::Aac => sound(track, b"mp4a", out, |out| {
            esds(OBJECT_AAC, Some(configuration), out);
        }),
        Coding::MpegAudio => sound(track, b"mp4a", out, |out| {
            let object = match codec_string.ends_with("69") {
                true => OBJECT_MPEG_2_AUDIO,
                false => OBJECT_MPEG_1_AUDIO,
            };
            esds(object, None, out);
        }),
        Coding::Opus => sound(track, b"Opus", out, |out| {
            out.nest(b"dOps", |out| out.bytes(&dops(configuration)));
        }),
        Coding::Ac3 => sound(track, b"ac-3", out, |out| {
            out.nest(b"dac3", |out| out.bytes(configuration));
        }),
        Coding::Eac3 => sound(track, b"ec-3", out, |out| {
            out.nest(b"dec3", |out| out.bytes(configuration));
        }),
    }
}

/// `VisualSampleEntry` (ISO/IEC 14496-12, sections 12.1.3 to 12.1.5).
fn visual(
    track: &SampledTrack,
    name: &[u8; 4],
    (configuration_name, configuration): (&[u8; 4], &[u8]),
    description: &Description,
    out: &mut Writer,
) {
    let shown = track.facts.dimensions;
    let coded = track.coded_dimensions().unwrap_or((0, 0));
    let short = |pixels: u32| u16::try_from(pixels).unwrap_or(u16::MAX);
    out.nest(name, |out| {
        out.zeros(6);
        out.u16(1);
        out.zeros(16);
        out.u16(short(coded.0));
        out.u16(short(coded.1));
        // 72 dots an inch, one frame in each sample, no name of a coder, 24 bits a pixel.
        out.u32(72 << 16);
        out.u32(72 << 16);
        out.zeros(4);
        out.u16(1);
        out.zeros(32);
        out.u16(24);
        out.u16(0xffff);
        out.nest(configuration_name, |out| out.bytes(configuration));
        if let Some(dolby_vision) = &description.dolby_vision {
            out.nest(b"dvcC", |out| out.bytes(dolby_vision.record()));
        }
        if let Some(colour) = description.colour {
            out.nest(b"colr", |out| {
                out.bytes(b"nclx");
                for code in [colour.primaries, colour.transfer, colour.matrix] {
                    out.u16(code.into());
                }
                out.u8(u8::from(colour.is_full_range) << 7);
            });
        }
        if let Some((width, height)) = shown.filter(|&shown| shown != coded) {
            // How wide a pixel is to its height.
            let spacing = |one: u32, other: u32| one.saturating_mul(other);
            out.nest(b"pasp", |out| {
                out.u32(spacing(width, coded.1));
                out.u32(spacing(height, coded.0));
            });
        }
    });
}

/// `AudioSampleEntry` (ISO/IEC 14496-12, section 12.2.3).
fn sound(
    track: &SampledTrack,
    name: &[u8; 4],
    out: &mut Writer,
    configuration: impl FnOnce(&mut Writer),
) {
    let (rate_hz, channels) = track.facts.sound.unwrap_or((0, 0));
    let of_codec = track.codec.channels.unwrap_or(2);
    // MP4 files tend to say 2 of AAC whatever it has.
    let is_told = channels > 0 && track.codec.encoding != "mpeg4-generic";
    let channels = u16::try_from(channels).ok().filter(|_| is_told);
    let rate_hz = if rate_hz == 0 {
        track.codec.clock_hz
    } else {
        rate_hz
    };
    out.nest(name, |out| {
        out.zeros(6);
        out.u16(1);
        out.zeros(8);
        out.u16(channels.unwrap_or_else(|| of_codec.into()));
        out.u16(16);
        out.zeros(4);
        // It has no room for rates beyond 65,535; the configuration tells them.
        out.u16(u16::try_from(rate_hz).unwrap_or(0));
        out.u16(0);
        configuration(out);
    });
}

/// `ESDBox` with the descriptors of ISO/IEC 14496-1, section 7.2.6.5.
fn esds(object_type: u8, configuration: Option<&[u8]>, out: &mut Writer) {
    const SOUND: u8 = 5 << 2 | 1;
    let mut decoder = Writer::default();
    decoder.u8(object_type);
    decoder.u8(SOUND);
    // Its buffer, and its rates, are not known.
    decoder.zeros(11);
    if let Some(configuration) = configuration {
        descriptor(5, configuration, &mut decoder);
    }
    let mut stream = Writer::default();
    stream.u16(0);
    stream.u8(0);
    descriptor(4, &decoder.0, &mut stream);
    // Times are those of the file's format.
    descriptor(6, &[2], &mut stream);
    out.full(b"esds", 0, 0, |out| descriptor(3, &stream.0, out));
}

/// A descriptor, its length in four bytes of seven bits each.
fn descriptor(tag: u8, inside: &[u8], out: &mut Writer) {
    out.u8(tag);
    for shift in [21, 14, 7, 0] {
        let bits = u8::try_from(inside.len() >> shift & 0x7f).expect("seven bits");
        out.u8(if shift > 0 { bits | 0x80 } else { bits });
    }
    out.bytes(inside);
}

/// What is in a `dOps`: as it is in MP4, or of Matroska's `OpusHead` (RFC 7845, section 5.1), whose
/// numbers have their lowest byte first.
fn dops(configuration: &[u8]) -> Vec<u8> {
    let Some(head) = configuration.strip_prefix(b"OpusHead") else {
        return configuration.to_vec();
    };
    let mut head = head.to_vec();
    head.resize(head.len().max(OPUS_HEAD_BYTES - 8), 0);
    // The version of the box is 0. Pre-skip, rate and gain follow on the channels.
    head[0] = 0;
    head[2..4].reverse();
    head[4..8].reverse();
    head[8..10].reverse();
    head
}
