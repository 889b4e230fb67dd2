//! What the tests of all packetizers share: sinks that collect packets, and the rules that every
//! packetizer keeps, whatever its codec.
//!
//! [`packets`] makes the packets of a unit as the rest of the program does: parts first, then
//! lengths without bytes, then bytes. It panics where a rule of [`Packetizer`] is broken. Whether
//! the payloads are as the RFC says is for the depacketizer in each codec's tests.

pub(in crate::media) mod fuzz;
pub(in crate::media) mod receivers;

use std::ops::Range;

#[cfg(test)]
use super::super::packetizer::Part;
use super::super::packetizer::{
    CodecError, PARTS_MAX, PAYLOAD_BYTES_MIN, PacketSink, Packetizer, Parts, Unit, UnitSample,
};

/// A packet behind its RTP header.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::media) struct Packet {
    /// Its bytes.
    pub(in crate::media) payload: Vec<u8>,
    /// The marker of its RTP header.
    pub(in crate::media) marker: bool,
}

/// Collects lengths, as an index does that has no bytes.
#[derive(Debug, Default)]
pub(in crate::media) struct Lengths {
    open: usize,
    /// Of each packet.
    pub(in crate::media) ended: Vec<usize>,
}

impl PacketSink for Lengths {
    fn literal(&mut self, bytes: &[u8]) {
        self.open += bytes.len();
    }

    fn sample(&mut self, _sample: usize, part: Range<usize>) {
        self.open += part.len();
    }

    fn end(&mut self, _marker: bool) {
        self.ended.push(std::mem::take(&mut self.open));
    }
}

/// Collects packets, and of each where in the samples its bytes were.
#[derive(Debug)]
pub(in crate::media) struct Packets<'a> {
    samples: &'a [&'a [u8]],
    open: Vec<u8>,
    open_pieces: Vec<(usize, Range<usize>)>,
    /// Of each packet.
    pub(in crate::media) ended: Vec<Packet>,
    /// Of each packet, samples by number and which of their bytes it has.
    pub(in crate::media) pieces: Vec<Vec<(usize, Range<usize>)>>,
}

impl<'a> Packets<'a> {
    /// Of a unit of these samples.
    pub(in crate::media) fn new(samples: &'a [&'a [u8]]) -> Self {
        Self {
            samples,
            open: Vec::new(),
            open_pieces: Vec::new(),
            ended: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

impl PacketSink for Packets<'_> {
    fn literal(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    fn sample(&mut self, sample: usize, part: Range<usize>) {
        let bytes = self.samples[sample].get(part.clone());
        let bytes = bytes.expect("a packetizer tells of bytes that the sample has");
        self.open.extend_from_slice(bytes);
        self.open_pieces.push((sample, part));
    }

    fn end(&mut self, marker: bool) {
        let payload = std::mem::take(&mut self.open);
        self.ended.push(Packet { payload, marker });
        self.pieces.push(std::mem::take(&mut self.open_pieces));
    }
}

/// The parts of a sample, as an index learns them: of each its number, and where it begins.
pub(in crate::media) fn parts(
    packetizer: &dyn Packetizer,
    sample: &[u8],
) -> Result<Vec<(u32, usize)>, CodecError> {
    let head_bytes_max = match packetizer.parts() {
        Parts::None => return Ok(Vec::new()),
        Parts::Chained { head_bytes } => head_bytes,
        Parts::Searched => usize::MAX,
    };
    let (mut parts, mut rest) = (Vec::new(), sample);
    while !rest.is_empty() {
        if parts.len() == PARTS_MAX {
            return Err(CodecError::Parts);
        }
        let head = &rest[..rest.len().min(head_bytes_max)];
        let left = u32::try_from(rest.len()).expect("a sample is below 16 MiB");
        let part = packetizer.part(head, left)?;
        assert!((1..=left).contains(&part.bytes), "{part:?} of {left} bytes");
        parts.push((part.number, sample.len() - rest.len()));
        rest = &rest[part.bytes as usize..];
    }
    Ok(parts)
}

/// The packets of a unit of these samples, which `entry` configures.
///
/// # Panics
///
/// If one of its parts is refused, or a rule of [`Packetizer`] is broken: the lengths without bytes
/// are not those with them, a packet is empty or too large, a sample's bytes are out of order, or a
/// part is cut into packets that are not as large as they may be.
pub(in crate::media) fn packets(
    packetizer: &dyn Packetizer,
    samples: &[&[u8]],
    is_sync: bool,
    entry: u16,
    payload_bytes_max: usize,
) -> Vec<Packet> {
    assert!(payload_bytes_max >= PAYLOAD_BYTES_MIN);
    let found: Result<Vec<_>, _> = samples.iter().map(|it| parts(packetizer, it)).collect();
    let found = found.expect("the parts of the sample are refused");
    let numbers: Vec<Vec<u32>> = found.iter().map(|it| numbers_of(it)).collect();
    let pack = |with_data: bool, sink: &mut dyn PacketSink| {
        let samples = samples
            .iter()
            .zip(&numbers)
            .map(|(&data, parts)| UnitSample {
                bytes: u32::try_from(data.len()).expect("a sample is below 16 MiB"),
                parts,
                data: with_data.then_some(data),
            });
        let samples: Vec<_> = samples.collect();
        let unit = Unit {
            samples: &samples,
            is_sync,
            entry,
        };
        packetizer.packetize(&unit, payload_bytes_max, sink);
    };
    let mut lengths = Lengths::default();
    pack(false, &mut lengths);
    assert_eq!(lengths.open, 0, "the last packet is not ended");
    let mut packets = Packets::new(samples);
    pack(true, &mut packets);
    assert!(packets.open.is_empty(), "the last packet is not ended");
    let bytes: Vec<_> = packets.ended.iter().map(|it| it.payload.len()).collect();
    assert_eq!(lengths.ended, bytes, "lengths without bytes and with them");
    assert!(!bytes.is_empty(), "a unit is one packet at least");
    let bound = 1..=payload_bytes_max;
    assert!(
        bytes.iter().all(|it| bound.contains(it)),
        "{bytes:?} not within {bound:?}"
    );
    assert_order(&packets.pieces);
    assert_full(&packets, &found, payload_bytes_max);
    assert_aggregated(packetizer, samples, packets.ended.len(), payload_bytes_max);
    packets.ended
}

/// The packets of these samples of sound, in units of as many as fit one packet.
///
/// # Panics
///
/// As [`packets`] does.
pub(in crate::media) fn packets_of_all(
    packetizer: &dyn Packetizer,
    samples: &[&[u8]],
    payload_bytes_max: usize,
) -> Vec<Packet> {
    let aggregation = packetizer.aggregation();
    let fits = |samples: &[&[u8]]| {
        let Some(aggregation) = aggregation else {
            return samples.len() == 1;
        };
        let each = samples.iter().map(|it| it.len() + aggregation.sample_bytes);
        samples.len() <= aggregation.samples_max
            && aggregation.packet_bytes + each.sum::<usize>() <= payload_bytes_max
    };
    let (mut made, mut rest) = (Vec::new(), samples);
    while !rest.is_empty() {
        let count = (1..=rest.len()).take_while(|&it| fits(&rest[..it])).last();
        let (unit, behind) = rest.split_at(count.unwrap_or(1));
        made.extend(packets(packetizer, unit, true, 0, payload_bytes_max));
        rest = behind;
    }
    made
}

fn numbers_of(parts: &[(u32, usize)]) -> Vec<u32> {
    parts.iter().map(|&(number, _)| number).collect()
}

/// Bytes of samples come in their order, and none twice.
fn assert_order(packets: &[Vec<(usize, Range<usize>)>]) {
    let mut behind = (0, 0);
    for (sample, part) in packets.iter().flatten() {
        assert!(
            part.start <= part.end && behind <= (*sample, part.start),
            "{packets:?}"
        );
        behind = (*sample, part.end);
    }
}

/// Where a part goes on in the next packet, the packet is as large as it may be.
fn assert_full(packets: &Packets<'_>, parts: &[Vec<(u32, usize)>], payload_bytes_max: usize) {
    let part_of = |&(sample, at): &(usize, usize)| {
        let starts = parts[sample].iter();
        (sample, starts.filter(|&&(_, start)| start <= at).count())
    };
    let with_bytes = packets
        .pieces
        .iter()
        .zip(&packets.ended)
        .map(|(pieces, packet)| {
            let mut pieces = pieces.iter().filter(|(_, part)| !part.is_empty());
            let first = pieces.next().cloned();
            let last = pieces.next_back().cloned().or_else(|| first.clone());
            let first = first.map(|(sample, part)| (sample, part.start));
            (
                first,
                last.map(|(sample, part)| (sample, part.end - 1)),
                packet.payload.len(),
            )
        });
    let with_bytes: Vec<_> = with_bytes.collect();
    for pair in with_bytes.windows(2) {
        let (&(_, Some(last), bytes), &(Some(first), ..)) = (&pair[0], &pair[1]) else {
            continue;
        };
        if part_of(&last) == part_of(&first) {
            assert_eq!(
                bytes, payload_bytes_max,
                "a fragment that something follows"
            );
        }
    }
}

/// Samples that fit one packet are in one.
fn assert_aggregated(
    packetizer: &dyn Packetizer,
    samples: &[&[u8]],
    packets: usize,
    payload_bytes_max: usize,
) {
    let Some(aggregation) = packetizer.aggregation() else {
        return assert_eq!(
            samples.len(),
            1,
            "units of several samples are of sound alone"
        );
    };
    assert!(samples.len() <= aggregation.samples_max);
    let each = samples.iter().map(|it| it.len() + aggregation.sample_bytes);
    if aggregation.packet_bytes + each.sum::<usize>() <= payload_bytes_max {
        assert_eq!(packets, 1, "samples that fit one packet");
    } else {
        assert_eq!(
            samples.len(),
            1,
            "units are cut so that they fit one packet"
        );
    }
}

/// Gives `make` what broken files have in place of `configuration`: each beginning of it, and each
/// of its bytes as another. Whatever `make` answers is well, as long as it answers.
#[cfg(test)]
pub(in crate::media) fn break_configuration(configuration: &[u8], make: impl Fn(&[u8])) {
    for end in 0..configuration.len() {
        make(&configuration[..end]);
    }
    for at in 0..configuration.len() {
        let mut broken = configuration.to_vec();
        for bits in [0x01, 0x80, 0xff, configuration[at], !configuration[at]] {
            broken[at] = configuration[at] ^ bits;
            make(&broken);
        }
    }
}

/// The bytes that are written as hexadecimal digits.
#[cfg(test)]
pub(in crate::media) fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A sample of these NAL units, each with its length of so many bytes in front.
#[cfg(test)]
pub(in crate::media) fn nal_sample(nals: &[Vec<u8>], length_bytes: usize) -> Vec<u8> {
    let one = |nal: &Vec<u8>| {
        let length = u32::try_from(nal.len()).expect("a sample is below 16 MiB");
        [&length.to_be_bytes()[4 - length_bytes..], nal].concat()
    };
    nals.iter().flat_map(one).collect()
}

/// A packetizer of parts of a hundred bytes, with one thing wrong.
#[cfg(test)]
#[derive(Debug)]
struct Wrong(&'static str);

#[cfg(test)]
impl Packetizer for Wrong {
    fn parts(&self) -> Parts {
        Parts::Chained { head_bytes: 1 }
    }

    fn part(&self, _head: &[u8], left: u32) -> Result<Part, CodecError> {
        let bytes = left.min(100);
        Ok(Part {
            number: bytes,
            bytes,
        })
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let wrong = |what: &str| self.0 == what;
        let mut at = 0;
        for &bytes in unit.samples[0].parts {
            let end = at + bytes as usize;
            while at < end {
                let mut limit = payload_bytes_max;
                limit -= usize::from(wrong("short"));
                limit += usize::from(wrong("large"));
                let next = end.min(at + limit);
                if wrong("empty") {
                    sink.end(false);
                }
                if wrong("length") && unit.samples[0].data.is_none() {
                    sink.literal(&[0]);
                }
                let back = if wrong("order") && at > 0 { 1 } else { 0 };
                sink.sample(0, at - back..next - back);
                at = next;
                sink.end(at == unit.bytes());
            }
        }
        if wrong("open") {
            sink.literal(&[0]);
        }
    }
}

#[test]
fn a_packetizer_that_keeps_the_rules_passes() {
    let packets = packets(&Wrong(""), &[&[7; 130]], true, 0, 64);
    let lengths: Vec<_> = packets.iter().map(|it| it.payload.len()).collect();
    assert_eq!(lengths, [64, 36, 30]);
    let markers: Vec<_> = packets.iter().map(|it| it.marker).collect();
    assert_eq!(markers, [false, false, true]);
}

#[test]
fn each_broken_rule_is_found() {
    for what in ["short", "large", "empty", "length", "order", "open"] {
        let found = std::panic::catch_unwind(|| packets(&Wrong(what), &[&[7; 130]], true, 0, 64));
        assert!(found.is_err(), "{what} is not found");
    }
}
