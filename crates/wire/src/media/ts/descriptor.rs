//! What descriptors tell of a stream and of a service: codec, language, names.
//!
//! A stream type says what a stream carries, unless it says that this is private; then a descriptor
//! or a registered format does. Whatever is not known is named by its number: nothing here fails.

use std::borrow::Cow;

use mpeg2ts_reader::descriptor::{Descriptor, DescriptorError, DescriptorIter};

use serde::{Deserialize, Serialize};

/// What an elementary stream is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Moving pictures.
    Video,
    /// Sound.
    Audio,
    /// Subtitles or teletext.
    Subtitles,
    /// Anything else.
    Data,
}

/// The tag of a registration descriptor (ISO/IEC 13818-1, section 2.6.8).
const REGISTRATION: u8 = 0x05;

/// A descriptor as it is in the stream: the reader's own enum knows MPEG's tags, not DVB's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub(super) tag: u8,
    pub(super) bytes: &'a [u8],
}

impl<'a> Descriptor<'a> for Raw<'a> {
    fn from_bytes(buffer: &'a [u8]) -> Result<Self, DescriptorError> {
        match buffer {
            [tag, _, bytes @ ..] => Ok(Self { tag: *tag, bytes }),
            _ => Err(DescriptorError::BufferTooShort {
                buflen: buffer.len(),
            }),
        }
    }
}

pub(super) fn descriptors(bytes: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    DescriptorIter::new(bytes).flatten()
}

/// ISO 639 descriptor, or the first language of subtitles or teletext.
pub(super) fn language(descriptors: &[Raw<'_>]) -> Option<String> {
    let found = descriptors
        .iter()
        .find(|d| matches!(d.tag, 0x0a | 0x56 | 0x59))?;
    let code = found.bytes.get(..3)?;
    code.iter()
        .all(u8::is_ascii_alphanumeric)
        .then(|| code.iter().map(|byte| char::from(*byte)).collect())
}

/// Kind and name of a stream, from its type and, where that is private, from the descriptors.
pub(super) fn codec(
    stream_type: u8,
    own: &[Raw<'_>],
    of_program: &[Raw<'_>],
) -> (Kind, Cow<'static, str>) {
    // A stream may have a registration of its own besides: that of its codec.
    let is_hdmv = |it: &Raw<'_>| it.tag == REGISTRATION && it.bytes.starts_with(b"HDMV");
    let blu_ray = own.iter().chain(of_program).any(is_hdmv);
    let (kind, name) = match stream_type {
        0x01 => (Kind::Video, "MPEG-1 video"),
        0x02 => (Kind::Video, "MPEG-2 video"),
        0x03 => (Kind::Audio, "MPEG-1 audio"),
        0x04 => (Kind::Audio, "MPEG-2 audio"),
        0x05 => (Kind::Data, "private sections"),
        0x0a..=0x0d => (Kind::Data, "DSM-CC"),
        0x0f => (Kind::Audio, "AAC (ADTS)"),
        0x10 => (Kind::Video, "MPEG-4 visual"),
        0x11 => (Kind::Audio, "AAC (LATM)"),
        0x15 => (Kind::Data, "timed metadata"),
        0x1b | 0x1f | 0x20 => (Kind::Video, "H.264"),
        0x1c => (Kind::Audio, "MPEG-4 audio"),
        0x21 => (Kind::Video, "JPEG 2000"),
        0x24 | 0x25 => (Kind::Video, "HEVC"),
        0x33 => (Kind::Video, "VVC"),
        0x42 => (Kind::Video, "AVS"),
        0x80 if blu_ray => (Kind::Audio, "LPCM"),
        0x81 => (Kind::Audio, "AC-3"),
        0x82 if blu_ray => (Kind::Audio, "DTS"),
        0x83 if blu_ray => (Kind::Audio, "TrueHD"),
        0x84 if blu_ray => (Kind::Audio, "E-AC-3"),
        0x85 | 0x86 if blu_ray => (Kind::Audio, "DTS-HD"),
        0x86 => (Kind::Data, "SCTE-35"),
        0x87 => (Kind::Audio, "E-AC-3"),
        0x90 if blu_ray => (Kind::Subtitles, "PGS"),
        0xd1 => (Kind::Video, "Dirac"),
        0xd2..=0xd4 => (Kind::Video, "AVS2 or AVS3"),
        0xea => (Kind::Video, "VC-1"),
        0x06 | 0x80..=0xff => return private(stream_type, own, registration(own)),
        _ => return (Kind::Data, format!("type 0x{stream_type:02x}").into()),
    };
    (kind, name.into())
}

/// What descriptors say of private data (EN 300 468, table 12, and registered formats).
fn private(
    stream_type: u8,
    own: &[Raw<'_>],
    registered: Option<[u8; 4]>,
) -> (Kind, Cow<'static, str>) {
    let by_descriptor = own.iter().find_map(|descriptor| match descriptor.tag {
        0x56 => Some((Kind::Subtitles, "teletext")),
        0x59 => Some((Kind::Subtitles, "DVB subtitles")),
        0x6a => Some((Kind::Audio, "AC-3")),
        0x7a => Some((Kind::Audio, "E-AC-3")),
        0x7b => Some((Kind::Audio, "DTS")),
        0x7c => Some((Kind::Audio, "AAC")),
        // An extension; its first byte is the tag. Of Opus the next tells how many channels there
        // are, and one stream has two at the most.
        0x7f if descriptor.bytes.first() == Some(&0x80) => match descriptor.bytes.get(1) {
            Some(1 | 2) => Some((Kind::Audio, "Opus")),
            _ => Some((Kind::Audio, "Opus (several streams)")),
        },
        0x7f if descriptor.bytes.first() == Some(&0x15) => Some((Kind::Audio, "AC-4")),
        0x7f if descriptor.bytes.first() == Some(&0x0e) => Some((Kind::Audio, "DTS-HD")),
        _ => None,
    });
    let by_registration = || match &registered? {
        b"AC-3" => Some((Kind::Audio, "AC-3")),
        b"EAC3" => Some((Kind::Audio, "E-AC-3")),
        b"AC-4" => Some((Kind::Audio, "AC-4")),
        b"Opus" => Some((Kind::Audio, "Opus")),
        b"BSSD" => Some((Kind::Audio, "SMPTE 302M")),
        b"DTS1" | b"DTS2" | b"DTS3" => Some((Kind::Audio, "DTS")),
        b"HEVC" => Some((Kind::Video, "HEVC")),
        b"AV01" => Some((Kind::Video, "AV1")),
        b"VC-1" => Some((Kind::Video, "VC-1")),
        b"drac" => Some((Kind::Video, "Dirac")),
        b"KLVA" => Some((Kind::Data, "KLV")),
        b"CUEI" => Some((Kind::Data, "SCTE-35")),
        b"ID3 " => Some((Kind::Data, "ID3")),
        _ => None,
    };
    if let Some((kind, name)) = by_descriptor.or_else(by_registration) {
        return (kind, name.into());
    }
    let format = registered.filter(|format| format.iter().all(u8::is_ascii_graphic));
    match format {
        Some(format) => (
            Kind::Data,
            format!("private ({})", format.escape_ascii()).into(),
        ),
        None if stream_type == 0x06 => (Kind::Data, "private data".into()),
        None => (Kind::Data, format!("private 0x{stream_type:02x}").into()),
    }
}

fn registration(descriptors: &[Raw<'_>]) -> Option<[u8; 4]> {
    descriptors
        .iter()
        .find(|d| d.tag == REGISTRATION)?
        .bytes
        .first_chunk()
        .copied()
}

/// A byte that counts, what it counts, and the rest.
pub(super) fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*count))
}

/// DVB text (EN 300 468, annex A) as far as names need it: UTF-8 where it says so, else Latin
/// letters. Control characters are left out, so that a name can go to a terminal.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let decoded: String = match bytes {
        [0x15, utf8 @ ..] => String::from_utf8_lossy(utf8).into_owned(),
        [0x10, _, _, rest @ ..] | [0x01..=0x14, rest @ ..] | rest => match str::from_utf8(rest) {
            Ok(utf8) => utf8.to_owned(),
            Err(_) => rest.iter().map(|byte| char::from(*byte)).collect(),
        },
    };
    let clean: String = decoded.chars().filter(|c| !c.is_control()).collect();
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of which streams have registrations of their codecs.
    #[test]
    fn streams_of_a_blu_ray_are_named_as_its_own() {
        let [hdmv, ac3] = [&b"HDMV"[..], b"AC-3"].map(|bytes| [Raw { tag: 5, bytes }]);
        let name = |own: &[Raw<'_>], of_program: &[Raw<'_>]| codec(0x83, own, of_program).1;
        assert_eq!(name(&ac3, &hdmv), "TrueHD");
        assert_eq!(name(&hdmv, &ac3), "TrueHD");
        assert_eq!(name(&ac3, &[]), "AC-3");
        assert_eq!(codec(0x86, &[], &[]).1, "SCTE-35");
    }
}
