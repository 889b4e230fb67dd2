//! OBUs: their headers and sizes in a sample (AV1 Bitstream & Decoding Process Specification,
//! sections 4.10.5 and 5.3), and what of that an index keeps.

use std::borrow::Cow;

use crate::media::packetizer::{CodecError, SAMPLE_BYTES_MAX};

/// Bytes of a leb128 at the most.
const LEB128_BYTES_MAX: u32 = 8;

/// Bytes of an OBU in front of its payload at the most: header, extension, size.
pub(super) const HEAD_BYTES_MAX: usize = 2 + LEB128_BYTES_MAX as usize;

/// Bits of the first byte.
pub(super) const FORBIDDEN: u8 = 0x80;
pub(super) const HAS_EXTENSION: u8 = 0x04;
pub(super) const HAS_SIZE: u8 = 0x02;

/// Types of OBUs (section 6.2.2).
const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const TILE_LIST: u8 = 8;
const PADDING: u8 = 15;

/// What packets have to know of an OBU's header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// It is left out: a temporal delimiter, which RTP timestamps stand for; a tile list, which the
    /// payload format does not support; padding.
    LeftOut,
    /// A sequence header without an extension.
    SequenceHeader,
    /// Anything else without an extension.
    Plain,
    /// Anything with an extension: of this spatial layer.
    Layer(u8),
}

/// An OBU in a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Obu {
    /// All of it: header, extension, size, payload. At most [`SAMPLE_BYTES_MAX`].
    pub(super) bytes: u32,
    /// How many of these are its size field, which is left out of packets. At most 8.
    pub(super) size_bytes: u32,
    pub(super) kind: Kind,
}

impl Obu {
    /// The OBU that begins with `head`, of which a sample, or a configuration, has `left` bytes
    /// left. `head` is [`HEAD_BYTES_MAX`] bytes, or all that is left. One without a size field
    /// takes all that is left.
    pub(super) fn read(head: &[u8], left: u32) -> Result<Self, CodecError> {
        let Some(&first) = head.first() else {
            return Err(beyond(1, left));
        };
        if first & FORBIDDEN != 0 {
            return Err(broken("an OBU with its forbidden bit set"));
        }
        let header_bytes = match first & HAS_EXTENSION {
            0 => 1,
            _ => 2,
        };
        let size_field = head.get(header_bytes..);
        let size_field = size_field.ok_or_else(|| beyond(header_bytes as u64, left))?;
        let kind = Kind::of(first, head[header_bytes - 1]);
        if first & HAS_SIZE == 0 {
            return Ok(Self {
                bytes: bounded(left.into(), left)?,
                size_bytes: 0,
                kind,
            });
        }
        let (payload_bytes, size_bytes) = leb128(size_field)?;
        let bytes = header_bytes as u64 + u64::from(size_bytes) + u64::from(payload_bytes);
        Ok(Self {
            bytes: bounded(bytes, left)?,
            size_bytes,
            kind,
        })
    }

    /// A plain OBU of so many bytes whose size field is no longer than need be.
    pub(super) fn usual(bytes: u32) -> Option<Self> {
        let sizes = 1..=LEB128_BYTES_MAX;
        let is_least = |&size_bytes: &u32| {
            let payload_bytes = bytes.checked_sub(1 + size_bytes);
            payload_bytes
                .is_some_and(|payload| leb128_bytes(payload as usize) == size_bytes as usize)
        };
        sizes.into_iter().find(is_least).map(|size_bytes| Self {
            bytes,
            size_bytes,
            kind: Kind::Plain,
        })
    }

    /// What an index keeps of it: all of it.
    pub(super) fn number(self) -> u32 {
        self.bytes << 7 | self.size_bytes << 3 | self.kind.number()
    }

    /// Its bytes, if it has as many as its header and its size field take.
    pub(super) fn checked_bytes(self) -> Option<u32> {
        let header_bytes = match self.kind {
            Kind::Layer(_) => 2,
            Kind::LeftOut | Kind::SequenceHeader | Kind::Plain => 1,
        };
        let fits = self.size_bytes <= 8 && self.bytes >= header_bytes + self.size_bytes;
        fits.then_some(self.bytes)
    }

    /// The one with this number.
    pub(super) fn of_number(number: u32) -> Self {
        Self {
            bytes: number >> 7,
            size_bytes: number >> 3 & 15,
            kind: Kind::of_number(number & 7),
        }
    }

    /// Its bytes in packets.
    pub(super) fn packed_bytes(self) -> usize {
        self.bytes.saturating_sub(self.size_bytes) as usize
    }
}

// The number has 25 bits for the bytes, 4 for those of the size, 3 for the kind.
const _: () = assert!(SAMPLE_BYTES_MAX < 1 << 25 && LEB128_BYTES_MAX < 1 << 4);

impl Kind {
    pub(super) fn of(first: u8, extension: u8) -> Self {
        match first >> 3 & 15 {
            TEMPORAL_DELIMITER | TILE_LIST | PADDING => Self::LeftOut,
            _ if first & HAS_EXTENSION != 0 => Self::Layer(extension >> 3 & 3),
            SEQUENCE_HEADER => Self::SequenceHeader,
            _ => Self::Plain,
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::LeftOut => 0,
            Self::SequenceHeader => 1,
            Self::Plain => 2,
            Self::Layer(layer) => 4 + u32::from(layer & 3),
        }
    }

    fn of_number(number: u32) -> Self {
        match number {
            0 => Self::LeftOut,
            1 => Self::SequenceHeader,
            2 | 3 => Self::Plain,
            layer => Self::Layer((layer & 3) as u8),
        }
    }

    /// Bytes of the header, with its extension.
    pub(super) fn header_bytes(self) -> usize {
        match self {
            Self::LeftOut | Self::SequenceHeader | Self::Plain => 1,
            Self::Layer(_) => 2,
        }
    }

    /// The spatial layer that it belongs to, if it tells.
    pub(super) fn layer(self) -> Option<u8> {
        match self {
            Self::LeftOut | Self::SequenceHeader | Self::Plain => None,
            Self::Layer(layer) => Some(layer),
        }
    }
}

/// A number at the start of `bytes`, and how many of them it takes.
pub(super) fn leb128(bytes: &[u8]) -> Result<(u32, u32), CodecError> {
    let mut value = 0_u64;
    for (&byte, at) in bytes.iter().zip(0..LEB128_BYTES_MAX) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value);
            let value = value.map_err(|_| broken("an OBU of more than 2^32 bytes"))?;
            return Ok((value, at + 1));
        }
    }
    Err(broken(match bytes.len() < LEB128_BYTES_MAX as usize {
        true => "a sample that ends within the size of an OBU",
        false => "the size of an OBU takes more than 8 bytes",
    }))
}

/// How many bytes a number takes.
pub(super) fn leb128_bytes(value: usize) -> usize {
    (value.max(1).ilog2() / 7 + 1) as usize
}

/// A number, and how many bytes of the array it takes.
pub(super) fn to_leb128(value: usize) -> ([u8; 10], usize) {
    let (mut bytes, used) = ([0; 10], leb128_bytes(value));
    for (at, byte) in bytes[..used].iter_mut().enumerate() {
        let more = if at + 1 < used { 0x80 } else { 0 };
        *byte = (value >> (7 * at)).to_le_bytes()[0] & 0x7f | more;
    }
    (bytes, used)
}

fn bounded(bytes: u64, left: u32) -> Result<u32, CodecError> {
    match u32::try_from(bytes) {
        Ok(bytes) if bytes > left => Err(beyond(bytes.into(), left)),
        Ok(bytes) if bytes <= SAMPLE_BYTES_MAX => Ok(bytes),
        Ok(_) => Err(CodecError::Sample { bytes }),
        Err(_) => Err(beyond(bytes, left)),
    }
}

fn beyond(bytes: u64, left: u32) -> CodecError {
    CodecError::PartBeyondSample {
        bytes,
        left: left.into(),
    }
}

pub(super) fn broken(what: impl Into<Cow<'static, str>>) -> CodecError {
    CodecError::Configuration {
        codec: "AV1",
        what: what.into(),
    }
}
