//! How samples are coded: which codec, by whichever of its names, and where its configuration lies.
//!
//! Nothing is known here of what is in a configuration; that the functions of `media::codec` read.

use super::boxes::{Boxes, Fields, Name, spelled};
use crate::media::codec::config::CodecConfig;
use crate::media::codec::pcm::ByteOrder;

/// What a sample entry tells of sound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sound {
    pub(super) channels: u32,
    pub(super) rate_hz: u32,
    pub(super) bits: u32,
    /// Of QuickTime's version 2, what numbers are like: floating, highest byte first, signed.
    flags: u32,
}

/// The codings that are played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    H264,
    H265,
    Av1,
    Vp8,
    Vp9,
    Mpeg4,
    MpegVideo,
    Jpeg,
    Aac,
    MpegAudio,
    Opus,
    Ac3,
    Eac3,
    MuLaw,
    ALaw,
    G722,
    Pcm { bits: u8, order: ByteOrder },
}

/// A coding, and the configuration of samples that are coded so.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Coded<'a> {
    pub(super) coding: Coding,
    pub(super) configuration: Option<&'a [u8]>,
}

impl Coding {
    /// Whether its codec takes a configuration for each sample entry.
    pub(super) fn takes_several(self) -> bool {
        matches!(
            self,
            Self::H264 | Self::H265 | Self::Av1 | Self::Mpeg4 | Self::MpegVideo
        )
    }

    /// Bytes of a moment of sound, if samples are such.
    pub(super) fn frame_bytes(self, sound: Sound) -> Option<u32> {
        let bytes = match self {
            Self::MuLaw | Self::ALaw => 1,
            Self::Pcm { bits, .. } => u32::from(bits / 8),
            _ => return None,
        };
        bytes.checked_mul(sound.channels).filter(|&it| it > 0)
    }
}

impl<'a> Coded<'a> {
    /// How samples of an entry of that name are coded, which has `inside` in it.
    ///
    /// # Errors
    ///
    /// Why they cannot be played.
    pub(super) fn read(name: &Name, inside: &Boxes<'a>, sound: &Sound) -> Result<Self, String> {
        let plain = |coding| {
            Ok(Self {
                coding,
                configuration: None,
            })
        };
        // QuickTime has the boxes of sound in one more.
        let first = |name: &Name| inside.first(name).or_else(|| inside.at(&[b"wave", name]));
        let configured = |coding, in_box: &Name| match first(in_box) {
            Some(bytes) => Ok(Self {
                coding,
                configuration: Some(bytes),
            }),
            None => Err(format!("its sample entry has no {}", spelled(in_box))),
        };
        let either = |coding, in_box: &Name| {
            Ok(Self {
                coding,
                configuration: first(in_box),
            })
        };
        let linear = |bits: u32, order| match u8::try_from(bits) {
            Ok(bits) => plain(Coding::Pcm { bits, order }),
            Err(_) => Err(format!("PCM of {bits} bits")),
        };
        match name {
            b"avc1" | b"avc2" | b"avc3" | b"avc4" | b"dva1" | b"dvav" => {
                configured(Coding::H264, b"avcC")
            }
            b"hvc1" | b"hev1" | b"dvh1" | b"dvhe" => configured(Coding::H265, b"hvcC"),
            b"av01" => configured(Coding::Av1, b"av1C"),
            b"vp08" => plain(Coding::Vp8),
            b"vp09" => either(Coding::Vp9, b"vpcC"),
            b"mp4a" | b"mp4v" => elementary(first(b"esds")),
            b"m1v " | b"m1v1" | b"m2v1" | b"mp1v" | b"mp2v" | b"mpg2" => plain(Coding::MpegVideo),
            [b'h', b'd', b'v', _] | [b'x', b'd', b'v', _] | [b'x', b'd', b'5', _] => {
                plain(Coding::MpegVideo)
            }
            b"jpeg" | b"mjpa" => plain(Coding::Jpeg),
            b".mp3" | b"ms\0\x55" | b"ms\0\x50" | b".mp2" => plain(Coding::MpegAudio),
            b"Opus" => configured(Coding::Opus, b"dOps"),
            b"ac-3" | b"sac3" => either(Coding::Ac3, b"dac3"),
            b"ec-3" => either(Coding::Eac3, b"dec3"),
            b"ulaw" => plain(Coding::MuLaw),
            b"alaw" => plain(Coding::ALaw),
            // By the number that it has in WAVE files.
            b"ms\x02\x8f" if sound.rate_hz == 16_000 => plain(Coding::G722),
            b"twos" if sound.bits == 16 => linear(16, ByteOrder::Big),
            b"sowt" if sound.bits == 16 => linear(16, ByteOrder::Little),
            b"twos" | b"sowt" => Err(format!("signed PCM of {} bits", sound.bits)),
            b"raw " if sound.bits == 8 => linear(8, ByteOrder::Big),
            b"in24" => linear(24, byte_order(first(b"enda"))),
            b"lpcm" => match sound.flags & 7 {
                6 => linear(sound.bits, ByteOrder::Big),
                4 => linear(sound.bits, ByteOrder::Little),
                0 | 2 if sound.bits == 8 => linear(8, ByteOrder::Big),
                _ => Err("PCM of floating or unsigned numbers".to_owned()),
            },
            b"ipcm" => match first(b"pcmC") {
                // Version and flags; whether the lowest byte is first; the size.
                Some(&[_, _, _, _, little, bits, ..]) if bits > 8 => match little & 1 {
                    0 => linear(bits.into(), ByteOrder::Big),
                    _ => linear(bits.into(), ByteOrder::Little),
                },
                _ => Err("its pcmC is broken, or tells of signed numbers of 8 bits".to_owned()),
            },
            _ => Err("there is no way to send it".to_owned()),
        }
    }

    /// What the codec is made of for samples with these configurations, which are those of several
    /// sample entries if it takes them, and of sound like this.
    pub(super) fn config(&self, configurations: &[&[u8]], sound: Sound) -> CodecConfig {
        let rate_hz = sound.rate_hz;
        let channels = u8::try_from(sound.channels).unwrap_or(u8::MAX);
        let first = self.configuration;
        let each = |make| CodecConfig::of_each(make, configurations);
        match self.coding {
            Coding::H264 => each(CodecConfig::H264),
            Coding::H265 => each(CodecConfig::H265),
            Coding::Av1 => each(CodecConfig::Av1),
            Coding::Vp8 => CodecConfig::Vp8,
            Coding::Vp9 => CodecConfig::Vp9(first.map(Into::into)),
            Coding::Mpeg4 => each(CodecConfig::Mpeg4Visual),
            Coding::MpegVideo => each(CodecConfig::MpegVideo),
            Coding::Jpeg => CodecConfig::Jpeg,
            Coding::Aac => CodecConfig::Aac(first.unwrap_or_default().into()),
            Coding::MpegAudio => CodecConfig::MpegAudio { rate_hz },
            Coding::Opus => CodecConfig::OpusDops(first.unwrap_or_default().into()),
            Coding::Ac3 => match first {
                Some(dac3) => CodecConfig::Ac3Dac3(dac3.into()),
                None => CodecConfig::Ac3 { rate_hz, channels },
            },
            Coding::Eac3 => match first {
                Some(dec3) => CodecConfig::Eac3Dec3(dec3.into()),
                None => CodecConfig::Eac3 { rate_hz, channels },
            },
            Coding::MuLaw => CodecConfig::MuLaw { rate_hz, channels },
            Coding::ALaw => CodecConfig::ALaw { rate_hz, channels },
            Coding::G722 => CodecConfig::G722 { channels },
            Coding::Pcm { bits, order } => CodecConfig::Pcm {
                bits,
                order,
                rate_hz,
                channels,
            },
        }
    }
}

/// The order that QuickTime's `enda` tells; without one, the highest byte is first.
fn byte_order(enda: Option<&[u8]>) -> ByteOrder {
    match enda {
        Some([_, 1, ..]) => ByteOrder::Little,
        _ => ByteOrder::Big,
    }
}

/// How samples are coded that `esds` tells of (ISO/IEC 14496-1, section 7.2.6.6, and the register
/// of object types).
fn elementary(esds: Option<&[u8]>) -> Result<Coded<'_>, String> {
    let esds = esds.ok_or("its sample entry has no esds")?;
    let stream = elementary_stream(esds).ok_or("its esds is broken")?;
    let (object_type, configuration) = stream;
    let coding = match object_type {
        0x20 => Coding::Mpeg4,
        0x40 | 0x66..=0x68 => Coding::Aac,
        0x60..=0x65 | 0x6a => Coding::MpegVideo,
        0x69 | 0x6b => Coding::MpegAudio,
        0x6c => Coding::Jpeg,
        0xa5 => Coding::Ac3,
        0xa6 => Coding::Eac3,
        other => return Err(format!("there is no way to send object type 0x{other:02x}")),
    };
    let configuration = match coding {
        Coding::Aac => Some(configuration.ok_or("its esds has no configuration")?),
        // What is here is not what these have elsewhere.
        Coding::MpegAudio | Coding::Jpeg | Coding::Ac3 | Coding::Eac3 => None,
        _ => configuration,
    };
    Ok(Coded {
        coding,
        configuration,
    })
}

/// The object type that a stream's descriptor tells, and the decoder's configuration in it.
fn elementary_stream(esds: &[u8]) -> Option<(u8, Option<&[u8]>)> {
    const STREAM: u8 = 3;
    const DECODER: u8 = 4;
    const CONFIGURATION: u8 = 5;
    let mut fields = Fields(esds.get(4..)?);
    let mut stream = Fields(descriptor(&mut fields, STREAM)?);
    stream.u16()?;
    let flags = stream.u8()?;
    if flags & 0x80 != 0 {
        stream.u16()?;
    }
    if flags & 0x40 != 0 {
        let url_bytes = stream.u8()?;
        stream.bytes(url_bytes.into())?;
    }
    if flags & 0x20 != 0 {
        stream.u16()?;
    }
    let mut decoder = Fields(descriptor(&mut stream, DECODER)?);
    let object_type = decoder.u8()?;
    // The kind of stream, its buffer, and its rates.
    decoder.bytes(12)?;
    Some((object_type, descriptor(&mut decoder, CONFIGURATION)))
}

/// What is in the next descriptor with that tag, of those that follow (section 8.3.3: lengths are
/// of seven bits a byte, in four bytes at the most).
fn descriptor<'a>(fields: &mut Fields<'a>, wanted: u8) -> Option<&'a [u8]> {
    loop {
        let tag = fields.u8()?;
        let mut bytes = 0;
        for _ in 0..4 {
            let byte = fields.u8()?;
            bytes = bytes << 7 | usize::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let inside = fields.bytes(bytes.min(fields.0.len()))?;
        if tag == wanted {
            return Some(inside);
        }
    }
}

impl Sound {
    /// What an entry for sound tells, and the boxes in it. `version` is that of `stsd`: where it is
    /// 1, entries are ISO's and have the form of QuickTime's version 0, whatever they say.
    pub(super) fn read(bytes: &[u8], version: u8) -> Option<(Self, &[u8])> {
        let mut fields = Fields(bytes);
        fields.bytes(8)?;
        let form = fields.u16()?;
        fields.bytes(6)?;
        let channels = fields.u16()?.into();
        let bits = fields.u16()?.into();
        fields.bytes(4)?;
        let rate_hz = fields.u32()? >> 16;
        let mut sound = Self {
            channels,
            rate_hz,
            bits,
            flags: 0,
        };
        match form {
            1 if version == 0 => {
                fields.bytes(16)?;
            }
            2 if version == 0 => {
                fields.bytes(4)?;
                let rate = f64::from_bits(fields.u64()?);
                sound.rate_hz = whole(rate);
                sound.channels = fields.u32()?;
                fields.bytes(4)?;
                sound.bits = fields.u32()?;
                sound.flags = fields.u32()?;
                fields.bytes(8)?;
            }
            _ => {}
        }
        Some((sound, fields.0))
    }
}

/// A rate as a whole number; 0 if it is none.
fn whole(rate: f64) -> u32 {
    let bits = rate.max(0.0).min(f64::from(u32::MAX)).round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number between 0 and the largest, or not a number, which becomes 0"
    )]
    let rate = bits as u32;
    rate
}
