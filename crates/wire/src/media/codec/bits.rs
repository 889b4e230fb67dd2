//! Reading the bits of headers: fixed lengths, and the codes of variable length that H.264 and
//! H.265 share (ISO/IEC 14496-10 and 23008-2, section 9: Exp-Golomb).
//!
//! Fifty lines of our own, because the crates that read such headers know one codec each, and what
//! is wanted of each codec is a picture's size. Whatever the bits are, each read ends, and what
//! lies beyond the end is `None`.

/// Bits from a header's first on.
#[derive(Clone, Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits behind.
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next bit.
    pub(super) fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    /// The next `count` bits as a number; at most 32.
    pub(super) fn number(&mut self, count: u32) -> Option<u32> {
        debug_assert!(count <= 32, "{count} bits do not fit");
        (0..count).try_fold(0, |number: u32, _| {
            Some(number << 1 | u32::from(self.flag()?))
        })
    }

    /// Passes over `count` bits.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count)?;
        (self.at <= self.bytes.len() * 8).then_some(())
    }

    /// Passes over what is left of a byte that is read in part.
    pub(super) fn align(&mut self) {
        self.at = self.at.next_multiple_of(8);
    }

    /// Bits that are left.
    pub(super) fn left(&self) -> usize {
        (self.bytes.len() * 8).saturating_sub(self.at)
    }

    /// A number of the code `ue(v)`, below 2^32 - 1.
    pub(super) fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let above = (1_u32 << zeros) - 1;
        Some(above + self.number(zeros)?)
    }

    /// A number of the code `se(v)`.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let code = i64::from(self.unsigned()?);
        Some(if code % 2 == 1 {
            (code + 1) / 2
        } else {
            -(code / 2)
        })
    }
}

/// The bytes that a NAL unit's header or payload has without those that keep it free of start codes
/// (`emulation_prevention_three_byte`).
pub(super) fn without_emulation_prevention(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut zeros = 0;
    for &byte in bytes {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of ISO/IEC 14496-10, section 9.1, and the longest code.
    #[test]
    fn codes_are_those_of_the_standard() {
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0010, 0b1001_1000]);
        let read: Vec<_> = (0..5).map(|_| bits.unsigned().unwrap()).collect();
        assert_eq!(read, [0, 1, 2, 3, 4]);
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0010, 0b1001_1000]);
        let read: Vec<_> = (0..5).map(|_| bits.signed().unwrap()).collect();
        assert_eq!(read, [0, 1, -1, 2, -2]);
        let mut longest = vec![0, 0, 0, 1];
        longest.extend([0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Bits::new(&longest).unsigned(), Some(u32::MAX - 1));
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(Bits::new(&[]).flag(), None);
        assert_eq!(Bits::new(&[0xff]).number(9), None);
        assert_eq!(Bits::new(&[0; 100]).unsigned(), None);
        assert_eq!(Bits::new(&[0, 1]).unsigned(), None);
        assert_eq!(Bits::new(&[0xff]).skip(8), Some(()));
        assert_eq!(Bits::new(&[0xff]).skip(9), None);
        assert_eq!(Bits::new(&[0xff]).skip(usize::MAX), None);
    }

    #[test]
    fn emulation_prevention_is_taken_out() {
        let bytes = without_emulation_prevention(&[0, 0, 3, 1, 0, 0, 3, 0, 0, 3, 3, 0, 3]);
        assert_eq!(bytes, [0, 0, 1, 0, 0, 0, 0, 3, 0, 3]);
    }
}
