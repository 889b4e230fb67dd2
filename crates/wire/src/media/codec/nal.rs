//! NAL units in RTP packets, as far as H.264 (RFC 6184) and H.265 (RFC 7798) do the same.
//!
//! A sample is NAL units with their lengths in front. Each packet has one of them, several small
//! ones that follow on each other, or a fragment of a large one. In front of a sync sample go the
//! parameter sets of its configuration, unless it brings its own, so that whoever joins there can
//! decode; an access unit delimiter stays first.
//!
//! The number of a part is the length of its NAL unit, times four, and what [`Kind`] it is: how
//! many packets there are depends on no more.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::super::packetizer::{CodecError, PacketSink, Packetizer, Part, Parts, Unit};

/// Bytes of all parameter sets of one configuration at the most: they go in front of each sync
/// sample, and into the session description. Those of usual files have less than 200.
pub(super) const PARAMETER_SETS_BYTES_MAX: usize = 8192;

/// Bytes of a NAL unit's length in an aggregation packet.
const SIZE_BYTES: usize = 2;

/// Bits of a part's number that are its [`Kind`].
const KIND_BITS: u32 = 2;

/// What is particular about a NAL unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Nothing.
    Ordinary = 0,
    /// It is an access unit delimiter, in front of which nothing may be.
    Delimiter = 1,
    /// It is a parameter set that makes those of the configuration unnecessary.
    ParameterSet = 2,
    /// Its type means something else in RTP, so that it cannot be sent.
    LeftOut = 3,
}

/// What a NAL unit is to the access unit that has it, where no container tells of access units.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) enum NalRole {
    /// A parameter set. Encoders write those of sequences in front of pictures at which a decoder
    /// can start, and nowhere else.
    ParameterSet {
        /// Whether it says that a decoder can start there.
        is_sync: bool,
    },
    /// Of a picture.
    Picture {
        /// Whether a decoder can start there.
        is_sync: bool,
    },
    /// Anything else.
    Other {
        /// Whether it says that a decoder can start there.
        is_sync: bool,
    },
}

/// The first bytes of a NAL unit; H.264 has one alone.
pub(super) type NalHeader = [u8; 2];

/// What the codecs differ in.
pub(super) trait Format: fmt::Debug + Send + Sync + 'static {
    /// Bytes of a NAL unit's header. One that has fewer in all is not sent.
    const HEADER_BYTES: usize;
    /// A NAL unit that decoders pass over, for an access unit that has none.
    const FILLER: &'static [u8];

    /// What kind of NAL unit begins with that byte.
    fn kind(first: u8) -> Kind;
    /// What an aggregation packet begins with that has NAL units with these headers; as long as a
    /// NAL unit's header.
    fn aggregation_header(header: NalHeader, next: NalHeader) -> NalHeader;
    /// What a fragment begins with, in place of its NAL unit's header: the payload header, and the
    /// fragment's.
    fn fragment_header(header: NalHeader, is_first: bool, is_last: bool) -> (NalHeader, u8);
}

/// Makes packets of samples of NAL units.
#[derive(Debug)]
pub(super) struct NalPacketizer<F> {
    length_bytes: usize,
    /// The parameter sets of each sample entry.
    entries: Vec<Vec<Vec<u8>>>,
    format: PhantomData<F>,
}

/// What of a decoder configuration record both codecs want.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    /// Bytes of the length in front of each NAL unit.
    pub(super) length_bytes: usize,
    /// Parameter sets in the order in which a decoder wants them.
    pub(super) parameter_sets: Vec<Vec<u8>>,
}

impl Configuration {
    /// Without parameter sets, for NAL units whose lengths have so many bytes.
    ///
    /// # Errors
    ///
    /// If lengths cannot have so many (ISO/IEC 14496-15, section 5.3.3.1.2).
    pub(super) fn new(length_bytes: u8) -> Result<Self, Cow<'static, str>> {
        match length_bytes {
            1 | 2 | 4 => Ok(Self {
                length_bytes: length_bytes.into(),
                parameter_sets: Vec::new(),
            }),
            _ => Err(format!("lengths of NAL units of {length_bytes} bytes").into()),
        }
    }

    /// Keeps one parameter set more.
    ///
    /// # Errors
    ///
    /// If all together have more than [`PARAMETER_SETS_BYTES_MAX`] bytes.
    pub(super) fn push(&mut self, parameter_set: &[u8]) -> Result<(), Cow<'static, str>> {
        let bytes = self.parameter_sets.iter().map(Vec::len).sum::<usize>();
        if bytes + parameter_set.len() > PARAMETER_SETS_BYTES_MAX {
            let max = PARAMETER_SETS_BYTES_MAX;
            return Err(format!("parameter sets of more than {max} bytes").into());
        }
        self.parameter_sets.push(parameter_set.to_vec());
        Ok(())
    }
}

/// So many bytes as the first two say.
pub(super) fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = rest.split_off(..2)?;
    let bytes = u16::from_be_bytes([bytes[0], bytes[1]]);
    rest.split_off(..usize::from(bytes))
}

/// Parameter sets as session descriptions have them (RFC 6184, section 8.1; RFC 7798, section 7.1).
pub(super) fn in_base64<'a>(parameter_sets: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
    let sets = parameter_sets.into_iter();
    let sets: Vec<_> = sets.map(|set| BASE64_STANDARD.encode(set)).collect();
    sets.join(",")
}

impl<F: Format> NalPacketizer<F> {
    /// For samples that have one of these configurations, by the number of their entry.
    ///
    /// # Errors
    ///
    /// If there is none, or if two have lengths of different sizes: parts of samples are read by
    /// their track, whichever entry they have.
    pub(super) fn new(entries: Vec<Configuration>) -> Result<Self, &'static str> {
        let first = entries.first().ok_or("no configuration")?;
        let length_bytes = first.length_bytes;
        if entries.iter().any(|it| it.length_bytes != length_bytes) {
            return Err("sample entries whose NAL units have lengths of different sizes");
        }
        let entries = entries.into_iter().map(|it| it.parameter_sets);
        Ok(Self {
            length_bytes,
            entries: entries.collect(),
            format: PhantomData,
        })
    }

    fn nals<'a>(&'a self, unit: &'a Unit<'a>) -> Nals<'a, F> {
        let parts = unit.samples[0].parts;
        let own = |&number: &u32| number & KIND_MASK == Kind::ParameterSet as u32;
        let wanted = unit.is_sync && !parts.iter().any(own);
        let sets = self.entries.get(usize::from(unit.entry));
        let sets = sets.filter(|_| wanted).map_or(&[][..], Vec::as_slice);
        Nals {
            unit,
            length_bytes: self.length_bytes,
            at: 0,
            parts: parts.iter(),
            sets: sets.iter(),
            format: PhantomData,
        }
    }
}

const KIND_MASK: u32 = (1 << KIND_BITS) - 1;

impl<F: Format> Packetizer for NalPacketizer<F> {
    fn parts(&self) -> Parts {
        let head_bytes = self.length_bytes + 1;
        Parts::Chained { head_bytes }
    }

    fn part(&self, head: &[u8], left: u32) -> Result<Part, CodecError> {
        let left = u64::from(left);
        let beyond = |bytes| CodecError::PartBeyondSample { bytes, left };
        let length = head.get(..self.length_bytes);
        let length = length.ok_or_else(|| beyond(self.length_bytes as u64))?;
        let number = |bytes: u64, &byte: &u8| bytes << 8 | u64::from(byte);
        let nal_bytes = length.iter().fold(0, number);
        let bytes = self.length_bytes as u64 + nal_bytes;
        if bytes > left {
            return Err(beyond(bytes));
        }
        let first = head.get(self.length_bytes);
        let first = first.filter(|_| nal_bytes >= F::HEADER_BYTES as u64);
        let kind = first.map_or(Kind::Ordinary, |&first| F::kind(first));
        let told = |bytes: u64| u32::try_from(bytes).expect("no more than are left");
        Ok(Part {
            number: told(nal_bytes) << KIND_BITS | kind as u32,
            bytes: told(bytes),
        })
    }

    fn part_bytes(&self, number: u32) -> Option<u32> {
        let length_bytes = u32::try_from(self.length_bytes).expect("four at most");
        Some(length_bytes + (number >> KIND_BITS))
    }

    fn only_part(&self, bytes: u32) -> Option<u32> {
        let length_bytes = u32::try_from(self.length_bytes).expect("four at most");
        Some(bytes.checked_sub(length_bytes)? << KIND_BITS | Kind::Ordinary as u32)
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let mut nals = self.nals(unit);
        let mut any = false;
        while let Some(nal) = nals.next() {
            any = true;
            if nal.bytes > payload_bytes_max {
                let is_last = nals.is_empty();
                nal.fragment::<F>(payload_bytes_max, is_last, sink);
                continue;
            }
            match aggregation(&nal, nals.clone(), payload_bytes_max) {
                (0, _) => nal.tell(0..nal.bytes, sink),
                (more, header) => {
                    sink.literal(&header[..F::HEADER_BYTES]);
                    nal.tell_sized(sink);
                    let more = nals.by_ref().take(more);
                    more.for_each(|nal| nal.tell_sized(sink));
                }
            }
            sink.end(nals.is_empty());
        }
        if !any {
            sink.literal(F::FILLER);
            sink.end(true);
        }
    }
}

/// How many of the NAL units `next` fit into one packet with `first`, and what that begins with.
fn aggregation<F: Format>(
    first: &Nal<'_>,
    next: Nals<'_, F>,
    payload_bytes_max: usize,
) -> (usize, NalHeader) {
    let mut bytes = F::HEADER_BYTES + SIZE_BYTES + first.bytes;
    let fitting = next.take_while(|nal| {
        bytes = bytes.saturating_add(SIZE_BYTES + nal.bytes);
        bytes <= payload_bytes_max && nal.bytes <= u16::MAX.into()
    });
    let header = F::aggregation_header(first.header, first.header);
    fitting.fold((0, header), |(count, header), nal| {
        (count + 1, F::aggregation_header(header, nal.header))
    })
}

/// The NAL units of a unit as they are sent.
#[derive(Debug)]
struct Nals<'a, F> {
    unit: &'a Unit<'a>,
    length_bytes: usize,
    /// Bytes of the sample behind.
    at: usize,
    parts: slice::Iter<'a, u32>,
    sets: slice::Iter<'a, Vec<u8>>,
    format: PhantomData<F>,
}

impl<F> Clone for Nals<'_, F> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
            sets: self.sets.clone(),
            ..*self
        }
    }
}

impl<F: Format> Nals<'_, F> {
    fn is_empty(&self) -> bool {
        self.clone().next().is_none()
    }
}

impl<'a, F: Format> Iterator for Nals<'a, F> {
    type Item = Nal<'a>;

    fn next(&mut self) -> Option<Nal<'a>> {
        loop {
            let kind = self
                .parts
                .as_slice()
                .first()
                .map(|number| number & KIND_MASK);
            if kind != Some(Kind::Delimiter as u32)
                && let Some(set) = self.sets.next()
            {
                return Some(Nal::of_configuration(set));
            }
            let &number = self.parts.next()?;
            let bytes = (number >> KIND_BITS) as usize;
            let start = self.at + self.length_bytes;
            self.at = start + bytes;
            if bytes >= F::HEADER_BYTES && number & KIND_MASK != Kind::LeftOut as u32 {
                let header = [start, start + 1].map(|at| self.unit.byte(0, at));
                return Some(Nal {
                    header,
                    bytes,
                    from: Source::Sample(start),
                });
            }
        }
    }
}

/// A NAL unit that is sent.
#[derive(Debug)]
struct Nal<'a> {
    /// Zeros while the bytes are not at hand.
    header: NalHeader,
    bytes: usize,
    from: Source<'a>,
}

#[derive(Debug)]
enum Source<'a> {
    Configuration(&'a [u8]),
    /// Where in the sample it begins.
    Sample(usize),
}

impl<'a> Nal<'a> {
    fn of_configuration(bytes: &'a [u8]) -> Self {
        let header = [0, 1].map(|at| bytes.get(at).copied().unwrap_or(0));
        Self {
            header,
            bytes: bytes.len(),
            from: Source::Configuration(bytes),
        }
    }

    fn tell(&self, part: Range<usize>, sink: &mut dyn PacketSink) {
        match self.from {
            Source::Configuration(bytes) => sink.literal(&bytes[part]),
            Source::Sample(start) => sink.sample(0, start + part.start..start + part.end),
        }
    }

    fn tell_sized(&self, sink: &mut dyn PacketSink) {
        let size = u16::try_from(self.bytes).expect("what is larger is not aggregated");
        sink.literal(&size.to_be_bytes());
        self.tell(0..self.bytes, sink);
    }

    /// Tells the packets of a NAL unit that is larger than one.
    fn fragment<F: Format>(
        &self,
        payload_bytes_max: usize,
        is_last: bool,
        sink: &mut dyn PacketSink,
    ) {
        let room = payload_bytes_max - F::HEADER_BYTES - 1;
        let mut at = F::HEADER_BYTES;
        while at < self.bytes {
            let end = self.bytes.min(at + room);
            let (is_start, is_end) = (at == F::HEADER_BYTES, end == self.bytes);
            let (header, fragment) = F::fragment_header(self.header, is_start, is_end);
            sink.literal(&header[..F::HEADER_BYTES]);
            sink.literal(&[fragment]);
            self.tell(at..end, sink);
            sink.end(is_end && is_last);
            at = end;
        }
    }
}
