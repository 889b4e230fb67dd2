//! Blocks (RFC 9559, section 10): of which track, when, and where its frames lie.

use std::ops::Range;

use super::ebml::{self, Malformed};
use crate::media::packetizer::SAMPLE_BYTES_MAX;

/// Whether a decoder can start at a `SimpleBlock`.
const KEYFRAME: u8 = 0x80;

/// How the frames of a block lie together.
const LACING: u8 = 0x06;
const XIPH: u8 = 0x02;
const FIXED: u8 = 0x04;

/// What stands in front of a block's frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    /// The number of its track.
    pub(super) track: u64,
    /// How much later it is than its cluster.
    pub(super) timestamp: i16,
    flags: u8,
    /// Bytes of all this.
    bytes: usize,
}

impl Head {
    /// The head that `data` begins with; `None` if more of it is to come.
    pub(super) fn read(data: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((track, bytes)) = ebml::vint(data)? else {
            return Ok(None);
        };
        let Some(&[a, b, flags]) = data.get(bytes..bytes + 3) else {
            return Ok(None);
        };
        Ok(Some(Self {
            track,
            timestamp: i16::from_be_bytes([a, b]),
            flags,
            bytes: bytes + 3,
        }))
    }

    /// Whether a decoder can start there, if it is a `SimpleBlock`.
    pub(super) fn is_keyframe(&self) -> bool {
        self.flags & KEYFRAME != 0
    }

    /// Where its frames are, from the start of a block of `block_bytes` on that begins with `data`,
    /// one behind the other; `None` if more of it is to come. Without those that have no bytes.
    pub(super) fn frames(
        &self,
        data: &[u8],
        block_bytes: u64,
        out: &mut Vec<Range<u64>>,
    ) -> Result<Option<()>, Malformed> {
        out.clear();
        let head_bytes = self.bytes as u64;
        if self.flags & LACING == 0 {
            out.push(head_bytes..block_bytes);
            return if head_bytes < block_bytes {
                Ok(Some(()))
            } else {
                Err(Malformed)
            };
        }
        let Some(&more) = data.get(self.bytes) else {
            return if head_bytes < block_bytes {
                Ok(None)
            } else {
                Err(Malformed)
            };
        };
        let mut lace = Lace {
            data: &data[self.bytes + 1..],
            before: head_bytes + 1,
            sum: 0,
            limit: block_bytes.min(head_bytes + 256 * u64::from(SAMPLE_BYTES_MAX)),
        };
        let mut sizes = [0; 255];
        let sizes = &mut sizes[..more.into()];
        let read = match self.flags & LACING {
            XIPH => lace.xiph(sizes)?,
            FIXED => lace.fixed(sizes, block_bytes)?,
            _ => lace.ebml(sizes)?,
        };
        if read.is_none() {
            return Ok(None);
        }
        let mut at = lace.before;
        for &bytes in &*sizes {
            out.push(at..at + bytes);
            at += bytes;
        }
        out.push(at..block_bytes);
        if at > block_bytes {
            return Err(Malformed);
        }
        out.retain(|frame| !frame.is_empty());
        Ok(Some(()))
    }
}

/// The sizes of frames in front of them.
struct Lace<'a> {
    data: &'a [u8],
    /// Bytes of the block that are read.
    before: u64,
    /// Of the sizes so far.
    sum: u64,
    /// What both may come to.
    limit: u64,
}

impl Lace<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.data.split_first()?;
        self.data = rest;
        self.before += 1;
        Some(first)
    }

    fn add(&mut self, bytes: u64) -> Result<(), Malformed> {
        self.sum = self.sum.checked_add(bytes).ok_or(Malformed)?;
        match self.sum <= self.limit && self.before <= self.limit - self.sum {
            true => Ok(()),
            false => Err(Malformed),
        }
    }

    /// RFC 9559, section 10.3.2.
    fn xiph(&mut self, sizes: &mut [u64]) -> Result<Option<()>, Malformed> {
        for size in sizes {
            loop {
                let Some(byte) = self.byte() else {
                    return Ok(None);
                };
                *size += u64::from(byte);
                self.add(byte.into())?;
                if byte < 255 {
                    break;
                }
            }
        }
        Ok(Some(()))
    }

    /// Section 10.3.3: a size, and then by how much each differs from the one before.
    fn ebml(&mut self, sizes: &mut [u64]) -> Result<Option<()>, Malformed> {
        let mut last = None;
        for size in sizes {
            let Some((number, bytes)) = ebml::vint(self.data)? else {
                return Ok(None);
            };
            self.data = &self.data[bytes..];
            self.before += bytes as u64;
            *size = match last {
                None => number,
                Some(last) => {
                    let zero = (1_i64 << (7 * bytes - 1)) - 1;
                    let step = number.cast_signed() - zero;
                    u64::checked_add_signed(last, step).ok_or(Malformed)?
                }
            };
            self.add(*size)?;
            last = Some(*size);
        }
        Ok(Some(()))
    }

    /// Section 10.3.4.
    fn fixed(&mut self, sizes: &mut [u64], block_bytes: u64) -> Result<Option<()>, Malformed> {
        let all = block_bytes.checked_sub(self.before).ok_or(Malformed)?;
        let frames = sizes.len() as u64 + 1;
        sizes.fill(all / frames);
        match all % frames {
            0 => self.add(all).map(Some),
            _ => Err(Malformed),
        }
    }
}
