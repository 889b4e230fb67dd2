//! MPEG-2 and MPEG-1 video (ISO/IEC 13818-2, 11172-2) by RFC 2250, section 3.
//!
//! A packet has whole slices, or a fragment of one; headers stand at its start alone. In front of
//! each packet are four bytes about its picture, so that others can be decoded when one is lost.
//! The sequence header goes in front of sync samples that bring none, if the file keeps it apart.
//!
//! The number of a part is its length, times four, and what [`Kind`] it is. Slices so small that
//! they fit any packet together are one part, because there are many in an easy picture.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::packetizer::{
    Codec, CodecError, PAYLOAD_BYTES_MIN, PacketSink, Packetizer, Part, Parts, Unit,
};
use super::super::track::Medium;
use super::bits::Bits;

/// Bytes of a configuration at the most: those of a sequence header with its extensions and two
/// matrices are less than 300.
const CONFIGURATION_BYTES_MAX: usize = 1024;

/// Bytes of the header that RFC 2250, section 3.4, puts in front of each payload.
const HEADER_BYTES: usize = 4;

/// Slices that have so many bytes together are one part.
const SLICES_BYTES_MAX: usize = PAYLOAD_BYTES_MIN - HEADER_BYTES;

/// Bits of a part's number that are its [`Kind`].
const KIND_BITS: u32 = 2;

/// Last bytes of start codes (ISO/IEC 13818-2, table 6-1).
pub(in crate::media) const PICTURE: u8 = 0x00;
pub(in crate::media) const SEQUENCE: u8 = 0xb3;
pub(in crate::media) const EXTENSION: u8 = 0xb5;
const SEQUENCE_END: u8 = 0xb7;
pub(in crate::media) const GROUP: u8 = 0xb8;

/// What a part of a sample is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// One slice, or several small ones.
    Slices = 0,
    /// Headers of anything else, up to the next slice.
    Headers = 1,
    /// The same, with that of a sequence.
    Sequence = 2,
}

impl Kind {
    fn of(number: u32) -> Self {
        match number & ((1 << KIND_BITS) - 1) {
            0 => Self::Slices,
            1 => Self::Headers,
            _ => Self::Sequence,
        }
    }
}

/// What samples are that `configurations` describe: of each sample entry a sequence header and its
/// extensions, or nothing where these are in the samples.
///
/// # Errors
///
/// If a configuration has no sequence header, or more than [`CONFIGURATION_BYTES_MAX`] bytes.
pub(in crate::media) fn codec(configurations: &[&[u8]]) -> Result<Codec, CodecError> {
    for configuration in configurations {
        if configuration.len() > CONFIGURATION_BYTES_MAX {
            let max = CONFIGURATION_BYTES_MAX;
            return Err(broken(format!("a configuration of more than {max} bytes")));
        }
        if !configuration.is_empty() && sequence(configuration).is_none() {
            return Err(broken("a configuration without a sequence header"));
        }
    }
    let first = configurations.first().and_then(|it| sequence(it));
    Ok(Codec {
        medium: Medium::Video,
        // Of RFC 3551, section 6.
        payload_type: Some(32),
        encoding: "MPV",
        clock_hz: 90_000,
        channels: None,
        format_parameters: None,
        codec_string: format!("mp4v.{:x}", object_type(first)),
        dimensions: first.and_then(dimensions),
        video_range: None,
        packetizer: Arc::new(MpegVideo {
            configurations: configurations.iter().map(|it| it.to_vec()).collect(),
        }),
    })
}

fn broken(what: impl Into<Cow<'static, str>>) -> CodecError {
    CodecError::Configuration {
        codec: "MPEG video",
        what: what.into(),
    }
}

/// Start codes, from `from` on: where each begins, and its last byte.
fn codes(bytes: &[u8], from: usize) -> impl Iterator<Item = (usize, u8)> {
    let windows = bytes.get(from..).unwrap_or_default().windows(4);
    let found = windows.enumerate().filter(|(_, it)| it[..3] == [0, 0, 1]);
    found.map(move |(at, it)| (from + at, it[3]))
}

/// What follows the first start code whose last byte is `code`.
fn after_code(bytes: &[u8], code: u8) -> Option<&[u8]> {
    let (at, _) = codes(bytes, 0).find(|&(_, found)| found == code)?;
    Some(&bytes[at + 4..])
}

fn sequence(configuration: &[u8]) -> Option<&[u8]> {
    after_code(configuration, SEQUENCE)
}

/// What `sequence_extension()` tells (ISO/IEC 13818-2, section 6.2.2.3), without which a stream is
/// of MPEG-1.
fn extension(sequence: &[u8]) -> Option<&[u8]> {
    const SEQUENCE_EXTENSION: u8 = 1;
    let extension = after_code(sequence, EXTENSION);
    extension.filter(|it| {
        it.first()
            .is_some_and(|first| first >> 4 == SEQUENCE_EXTENSION)
    })
}

/// `objectTypeIndication` (ISO/IEC 14496-1, table 5), which is the name of a codec in RFC 6381.
fn object_type(sequence: Option<&[u8]>) -> u8 {
    const MAIN: u8 = 0x61;
    let Some(sequence) = sequence else {
        return MAIN;
    };
    let Some(extension) = extension(sequence) else {
        return 0x6a;
    };
    let profile = Bits::new(extension).number(8).unwrap_or(0);
    match (profile >> 3 & 1, profile & 7) {
        (1, _) => 0x65,
        (_, 1) => 0x64,
        (_, 2) => 0x63,
        (_, 3) => 0x62,
        (_, 5) => 0x60,
        _ => MAIN,
    }
}

/// Width and height that a sequence header and its extension tell, in pixels.
fn dimensions(sequence: &[u8]) -> Option<(u32, u32)> {
    let mut bits = Bits::new(sequence);
    let (mut width, mut height) = (bits.number(12)?, bits.number(12)?);
    if let Some(extension) = extension(sequence) {
        let mut bits = Bits::new(extension);
        bits.skip(15)?;
        width |= bits.number(2)? << 12;
        height |= bits.number(2)? << 12;
    }
    (width > 0 && height > 0).then_some((width, height))
}

/// Whether an access unit is a picture that needs no other, as its first header tells; of two
/// fields, if the first one is.
pub(in crate::media) fn is_intra(unit: &[u8]) -> bool {
    const INTRA: u8 = 1;
    let header = after_code(unit, PICTURE).unwrap_or_default();
    header.get(1).is_some_and(|byte| byte >> 3 & 7 == INTRA)
}

/// The sequence header of an access unit with its extensions, if it has one: what [`codec`] wants
/// as a configuration.
pub(in crate::media) fn sequence_of(unit: &[u8]) -> Option<&[u8]> {
    let (start, _) = codes(unit, 0).find(|&(_, code)| code == SEQUENCE)?;
    let end = codes(unit, start + 4).find(|&(_, code)| code != EXTENSION);
    Some(&unit[start..end.map_or(unit.len(), |(end, _)| end)])
}

/// What `picture_coding_extension()` (ISO/IEC 13818-2, section 6.2.3.1) tells that begins so behind
/// its start code: whether the picture is a field; `None` of another extension.
pub(in crate::media) fn is_field(extension: &[u8]) -> Option<bool> {
    const PICTURE_CODING: u8 = 8;
    const FRAME: u8 = 3;
    let &[first, _, third, ..] = extension else {
        return None;
    };
    (first >> 4 == PICTURE_CODING).then_some(third & 3 != FRAME)
}

/// Makes packets of MPEG-1 and MPEG-2 video.
#[derive(Debug)]
struct MpegVideo {
    /// Of each sample entry what goes in front of sync samples without a sequence header.
    configurations: Vec<Vec<u8>>,
}

/// Whether that start code begins a slice.
pub(in crate::media) fn is_slice(code: u8) -> bool {
    (0x01..=0xaf).contains(&code)
}

impl Packetizer for MpegVideo {
    fn parts(&self) -> Parts {
        Parts::Searched
    }

    fn part(&self, head: &[u8], left: u32) -> Result<Part, CodecError> {
        let is_slices = codes(head, 0)
            .next()
            .is_some_and(|(at, code)| at == 0 && is_slice(code));
        let (kind, end) = match is_slices {
            true => (Kind::Slices, slices_end(head)),
            false => headers_end(head),
        };
        let bytes = u32::try_from(end).unwrap_or(left).clamp(1, left);
        Ok(Part {
            number: bytes << KIND_BITS | kind as u32,
            bytes,
        })
    }

    fn part_bytes(&self, number: u32) -> Option<u32> {
        Some(number >> KIND_BITS)
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let sample = &unit.samples[0];
        let data = sample.data.unwrap_or_default();
        let brings_own = sample
            .parts
            .iter()
            .any(|&it| Kind::of(it) == Kind::Sequence);
        let mut packets = Packets {
            room: payload_bytes_max - HEADER_BYTES,
            pieces: Vec::new(),
            bytes: 0,
            picture: 0,
            sink,
        };
        let configuration = self.configurations.get(usize::from(unit.entry));
        let wanted = configuration.filter(|it| unit.is_sync && !brings_own && !it.is_empty());
        if let Some(configuration) = wanted {
            let source = Source::Configuration(configuration);
            packets.push(Kind::Sequence, configuration.len(), source, picture(data));
        }
        let mut at = 0;
        for &number in sample.parts {
            let (kind, bytes) = (Kind::of(number), (number >> KIND_BITS) as usize);
            let headers = data.get(at..at + bytes).filter(|_| kind != Kind::Slices);
            packets.push(kind, bytes, Source::Sample(at), headers.and_then(picture));
            at += bytes;
        }
        packets.end(true);
    }
}

/// How far the slices reach that `head` begins with: one, or as many as are small.
fn slices_end(head: &[u8]) -> usize {
    let mut end = None;
    let limits = codes(head, 4).filter(|&(_, code)| code != SEQUENCE_END);
    let limits = limits.chain([(head.len(), SEQUENCE_END)]);
    for (at, code) in limits {
        if at > SLICES_BYTES_MAX {
            return end.unwrap_or(at);
        }
        if !is_slice(code) {
            return at;
        }
        end = Some(at);
    }
    head.len()
}

/// How far headers reach that `head` begins with.
fn headers_end(head: &[u8]) -> (Kind, usize) {
    let mut kind = Kind::Headers;
    for (at, code) in codes(head, 0) {
        if is_slice(code) {
            return (kind, at);
        }
        if code == SEQUENCE {
            kind = Kind::Sequence;
        }
    }
    (kind, head.len())
}

/// What the header of RFC 2250 says of the picture that these headers begin, if they do: temporal
/// reference, type, and of the vectors what its type has.
fn picture(headers: &[u8]) -> Option<u32> {
    const P: u32 = 2;
    const B: u32 = 3;
    let mut bits = Bits::new(after_code(headers, PICTURE)?);
    let (temporal_reference, picture_type) = (bits.number(10)?, bits.number(3)?);
    bits.skip(16)?;
    let (mut forward, mut backward) = (0, 0);
    if matches!(picture_type, P | B) {
        forward = bits.number(4)?;
    }
    if picture_type == B {
        backward = bits.number(4)?;
    }
    Some(temporal_reference << 16 | picture_type << 8 | backward << 4 | forward)
}

/// A part, or a fragment of it, in a packet.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    kind: Kind,
    /// Whether it begins as the part does, and ends as it does.
    is_start: bool,
    is_end: bool,
    from: Source<'a>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Configuration(&'a [u8]),
    /// Where in the sample it begins.
    Sample(usize),
}

/// Packets, and the one that is being filled.
struct Packets<'a, 's> {
    /// Bytes behind the header of RFC 2250.
    room: usize,
    pieces: Vec<Piece<'a>>,
    /// Those of the pieces.
    bytes: usize,
    /// What the header says of the picture.
    picture: u32,
    sink: &'s mut dyn PacketSink,
}

impl<'a> Packets<'a, '_> {
    /// Adds a part to the open packet, or to new ones. `picture` is what they say of it from there.
    fn push(&mut self, kind: Kind, bytes: usize, from: Source<'a>, picture: Option<u32>) {
        let fits = self.bytes + bytes <= self.room;
        let has_slices = self.pieces.iter().any(|it| it.kind == Kind::Slices);
        let has_tail = self.pieces.iter().any(|it| !it.is_start);
        let joins = match kind {
            Kind::Slices if has_slices => fits && !has_tail,
            // Several small ones stay together, or one would stand behind a fragment of another.
            Kind::Slices if bytes <= SLICES_BYTES_MAX => fits,
            // The first slice begins behind headers even if it is a fragment then.
            Kind::Slices => self.bytes < self.room,
            Kind::Headers | Kind::Sequence => fits && !has_slices,
        };
        if !joins && !self.pieces.is_empty() {
            self.end(false);
        }
        self.picture = picture.unwrap_or(self.picture);
        let mut start = 0;
        loop {
            let end = bytes.min(start + self.room - self.bytes);
            self.bytes += end - start;
            self.pieces.push(Piece {
                kind,
                is_start: start == 0,
                is_end: end == bytes,
                from,
                start,
                end,
            });
            if end == bytes {
                break;
            }
            self.end(false);
            start = end;
        }
    }

    /// Ends the open packet.
    fn end(&mut self, marker: bool) {
        let flag = |is: bool, bit: u32| u32::from(is) << bit;
        let mut slices = self.pieces.iter().filter(|it| it.kind == Kind::Slices);
        let begins = slices.next().is_some_and(|it| it.is_start);
        let last = self.pieces.last().filter(|it| it.kind == Kind::Slices);
        let ends = last.is_some_and(|it| it.is_end);
        let mut pieces = self.pieces.iter();
        let has_sequence = pieces.any(|it| it.kind == Kind::Sequence && it.is_start);
        let header = self.picture | flag(has_sequence, 13) | flag(begins, 12) | flag(ends, 11);
        self.sink.literal(&header.to_be_bytes());
        for piece in self.pieces.drain(..) {
            match piece.from {
                Source::Configuration(bytes) => self.sink.literal(&bytes[piece.start..piece.end]),
                Source::Sample(at) => self.sink.sample(0, at + piece.start..at + piece.end),
            }
        }
        self.bytes = 0;
        self.sink.end(marker);
    }
}

#[cfg(test)]
mod tests;
