//! AV1 as RTP payload (AOM, "RTP Payload Format For AV1", v1.0).
//!
//! A sample is a temporal unit: OBUs, one behind the other. Packets carry them without their size
//! fields and without those OBUs that mean nothing in RTP; a packet is filled up with as many as
//! fit in whole and the beginning of the next. At most three go into one packet, which so needs no
//! length for the last (the W field).
//!
//! Of each OBU an index keeps how long it is and a few bits of its header ([`obu`]), so that
//! packets can be counted without the file. In front of a sync sample go the OBUs of the track's
//! configuration, unless it begins with a sequence header of its own.

mod configuration;
mod obu;
mod packed;
mod sequence;

use std::ops::Range;
use std::sync::Arc;

use self::configuration::Configuration;
use self::obu::{HAS_EXTENSION, HAS_SIZE, HEAD_BYTES_MAX, Kind, Obu, leb128_bytes, to_leb128};
use crate::media::packetizer::{Codec, CodecError, PacketSink, Packetizer, Part, Parts, Unit};
use crate::media::track::Medium;

pub(in crate::media) use self::packed::{ObuRole, PackedObu, element};
pub(in crate::media) use self::sequence::Sequence;

/// The aggregation header (section 4.4): goes on from the packet before, goes on in the next, one
/// more element in the packet, starts a coded video sequence.
const CONTINUES: u8 = 0x80;
const IS_CONTINUED: u8 = 0x40;
const ELEMENT: u8 = 0x10;
const NEW_SEQUENCE: u8 = 0x08;

/// Bytes of the aggregation header.
const AGGREGATION_BYTES: usize = 1;

/// Elements in a packet at the most, so that their number fits the W field.
const ELEMENTS_MAX: usize = 3;

/// An OBU is begun in a packet with no fewer bytes than its header may have: libavformat does not
/// put one together that is cut behind its first byte.
const START_BYTES_MIN: usize = 2;

/// A temporal delimiter without a size field, which receivers ignore (section 5): for a sample of
/// which nothing else is left.
const TEMPORAL_DELIMITER: &[u8] = &[0x10];

/// What a track of AV1 amounts to. `configurations` are the bodies of the boxes `av1C`, one for
/// each sample entry, or Matroska's `CodecPrivate`, which is the same.
///
/// # Errors
///
/// If there is none, or one is broken.
pub(in crate::media) fn codec(configurations: &[&[u8]]) -> Result<Codec, CodecError> {
    let read = configurations.iter().map(|it| Configuration::read(it));
    let configurations = read.collect::<Result<Vec<_>, _>>()?;
    let Some(first) = configurations.first() else {
        return Err(obu::broken("no av1C"));
    };
    // What a receiver has to be able to do for all of them.
    let most = |of: fn(&Configuration) -> u8| configurations.iter().map(of).max().unwrap_or(0);
    let format_parameters = format!(
        "profile={};level-idx={};tier={}",
        most(|it| it.profile),
        most(|it| it.level),
        most(|it| it.tier)
    );
    let sequences = || configurations.iter().map(Configuration::sequence);
    let video_range = sequences().filter_map(|it| it?.video_range).max();
    let dimensions = sequences().next().flatten().map(|it| it.dimensions);
    Ok(Codec {
        medium: Medium::Video,
        payload_type: None,
        encoding: "AV1",
        clock_hz: 90_000,
        channels: None,
        format_parameters: Some(format_parameters),
        codec_string: first.codec_string(),
        dimensions,
        video_range,
        packetizer: Arc::new(Av1 { configurations }),
    })
}

#[derive(Debug)]
struct Av1 {
    configurations: Vec<Configuration>,
}

impl Packetizer for Av1 {
    fn parts(&self) -> Parts {
        Parts::Chained {
            head_bytes: HEAD_BYTES_MAX,
        }
    }

    fn part(&self, head: &[u8], left: u32) -> Result<Part, CodecError> {
        let obu = Obu::read(head, left)?;
        Ok(Part {
            number: obu.number(),
            bytes: obu.bytes,
        })
    }

    fn part_bytes(&self, number: u32) -> Option<u32> {
        Obu::of_number(number).checked_bytes()
    }

    fn only_part(&self, bytes: u32) -> Option<u32> {
        Obu::usual(bytes).map(Obu::number)
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let room_max = payload_bytes_max - AGGREGATION_BYTES;
        let mut elements = self.elements(unit);
        let first = elements.next();
        // The element that comes next, and how many of its bytes are behind.
        let mut next = Some((
            first.unwrap_or_else(|| Element::stored(TEMPORAL_DELIMITER)),
            0,
        ));
        let mut sequence = if unit.is_sync { NEW_SEQUENCE } else { 0 };
        let mut pieces = Vec::with_capacity(ELEMENTS_MAX);
        while next.is_some() {
            pieces.clear();
            let (mut room, mut layer) = (room_max, None);
            while let Some((element, start)) = next {
                let left = element.bytes - start;
                let end = start + left.min(room);
                pieces.push(Piece {
                    element,
                    range: start..end,
                });
                if end < element.bytes {
                    next = Some((element, end));
                    break;
                }
                next = elements.next().map(|element| (element, 0));
                layer = layer.or(element.layer);
                let bytes = leb128_bytes(left) + left;
                let is_full = pieces.len() == ELEMENTS_MAX || bytes + START_BYTES_MIN > room;
                if is_full || next.is_some_and(|(next, _)| next.is_apart(layer)) {
                    break;
                }
                room -= bytes;
            }
            write(&pieces, sequence, unit, sink);
            sink.end(next.is_none());
            sequence = 0;
        }
    }
}

/// Tells `sink` the aggregation header and elements of a packet: all but the last have their
/// lengths in front.
fn write(pieces: &[Piece<'_>], sequence: u8, unit: &Unit<'_>, sink: &mut dyn PacketSink) {
    let Some((last, others)) = pieces.split_last() else {
        return;
    };
    let mut header = pieces.iter().fold(sequence, |header, _| header + ELEMENT);
    if pieces[0].range.start > 0 {
        header |= CONTINUES;
    }
    if last.range.end < last.element.bytes {
        header |= IS_CONTINUED;
    }
    sink.literal(&[header]);
    for piece in others {
        let (length, length_bytes) = to_leb128(piece.range.len());
        sink.literal(&length[..length_bytes]);
        piece.element.write(piece.range.clone(), unit, sink);
    }
    last.element.write(last.range.clone(), unit, sink);
}

impl Av1 {
    /// The OBUs of a unit that go into packets, in order.
    fn elements<'a>(&'a self, unit: &Unit<'a>) -> impl Iterator<Item = Element<'a>> {
        let obus = unit.samples.first().map_or(&[][..], |sample| sample.parts);
        let obus = obus.iter().map(|&number| Obu::of_number(number));
        let brings_header = || obus.clone().any(|it| it.kind == Kind::SequenceHeader);
        let configuration = self.configurations.get(usize::from(unit.entry));
        let configuration = configuration.filter(|_| unit.is_sync && !brings_header());
        let in_front = configuration.map_or(&[][..], |it| &it.obus);
        let in_sample = obus.scan(0, |at, obu| {
            let start = *at;
            *at += obu.bytes as usize;
            Some(Element {
                bytes: obu.packed_bytes(),
                layer: obu.kind.layer(),
                source: Source::Sample { start, obu },
            })
        });
        let is_left_out = |element: &Element<'_>| match element.source {
            Source::Sample { obu, .. } => obu.kind == Kind::LeftOut,
            Source::Stored(_) => false,
        };
        let in_front = in_front.iter().map(|obu| Element::stored(obu));
        in_front.chain(in_sample.filter(move |it| !is_left_out(it)))
    }
}

/// An OBU as it goes into packets.
#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    /// Its bytes there.
    bytes: usize,
    /// The spatial layer, if it tells.
    layer: Option<u8>,
    source: Source<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// It begins at `start` of the sample.
    Sample { start: usize, obu: Obu },
    /// These are its bytes.
    Stored(&'a [u8]),
}

impl<'a> Element<'a> {
    fn stored(bytes: &'a [u8]) -> Self {
        let layer = match *bytes {
            [first, extension, ..] if first & HAS_EXTENSION != 0 => Some(extension >> 3 & 3),
            _ => None,
        };
        Self {
            bytes: bytes.len(),
            layer,
            source: Source::Stored(bytes),
        }
    }

    /// Whether it cannot go into one packet with an OBU of this spatial layer (section 5).
    fn is_apart(&self, layer: Option<u8>) -> bool {
        matches!((self.layer, layer), (Some(own), Some(other)) if own != other)
    }

    /// Tells `sink` the bytes `range` of it.
    fn write(&self, range: Range<usize>, unit: &Unit<'_>, sink: &mut dyn PacketSink) {
        let (start, obu) = match self.source {
            Source::Stored(bytes) => return sink.literal(&bytes[range]),
            Source::Sample { start, obu } => (start, obu),
        };
        if range.contains(&0) {
            sink.literal(&[unit.byte(0, start) & !HAS_SIZE]);
        }
        let mut tell = |of: Range<usize>, skipped: usize| {
            let (from, to) = (range.start.max(of.start), range.end.min(of.end));
            if from < to {
                sink.sample(0, start + skipped + from..start + skipped + to);
            }
        };
        let header_bytes = obu.kind.header_bytes();
        tell(1..header_bytes, 0);
        tell(header_bytes..self.bytes, obu.size_bytes as usize);
    }
}

/// A piece of an element in a packet.
#[derive(Clone, Debug)]
struct Piece<'a> {
    element: Element<'a>,
    range: Range<usize>,
}

#[cfg(test)]
mod tests;
