//! Fields of some bits each, as decoder configurations and the headers of frames of sound have
//! them: [`Bits`] with errors in words.

use std::borrow::Cow;

use super::super::packetizer::CodecError;
use super::bits::Bits;

/// Reads fields one behind the other. Bits that are not there are an error.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    codec: &'static str,
    /// Of all that is read.
    bytes: usize,
    bits: Bits<'a>,
}

impl<'a> BitReader<'a> {
    /// Reads what is said of `codec`, whose name is for errors.
    pub(super) fn new(codec: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            codec,
            bytes: bytes.len(),
            bits: Bits::new(bytes),
        }
    }

    /// The next `count` bits, 32 at the most.
    ///
    /// # Errors
    ///
    /// If there are fewer.
    pub(super) fn take(&mut self, count: u32) -> Result<u32, CodecError> {
        let number = self.bits.number(count);
        number.ok_or_else(|| self.too_few())
    }

    /// The next bit.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn flag(&mut self) -> Result<bool, CodecError> {
        let flag = self.bits.flag();
        flag.ok_or_else(|| self.too_few())
    }

    /// Leaves out `count` bits.
    ///
    /// # Errors
    ///
    /// If there are fewer.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), CodecError> {
        let skipped = self.bits.skip(count);
        skipped.ok_or_else(|| self.too_few())
    }

    /// Leaves out what is left of a byte that is read in part.
    pub(super) fn align(&mut self) {
        self.bits.align();
    }

    /// Bits that are behind.
    pub(super) fn at(&self) -> usize {
        self.bytes * 8 - self.left()
    }

    /// Bits that are left.
    pub(super) fn left(&self) -> usize {
        self.bits.left()
    }

    /// An error about what was read.
    pub(super) fn error(&self, what: impl Into<Cow<'static, str>>) -> CodecError {
        CodecError::Configuration {
            codec: self.codec,
            what: what.into(),
        }
    }

    fn too_few(&self) -> CodecError {
        let bytes = self.bytes;
        self.error(format!(
            "{bytes} bytes are too few for what they begin with"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cross_bytes_and_end_with_them() {
        let mut bits = BitReader::new("x", &[0b1010_0000, 0b0000_0011, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!((bits.take(3), bits.take(0)), (Ok(0b101), Ok(0)));
        assert_eq!(bits.take(13), Ok(3));
        bits.skip(2).unwrap();
        assert_eq!((bits.take(6), bits.left()), (Ok(0x3f), 24));
        assert_eq!(bits.take(1), Ok(1));
        bits.align();
        assert_eq!(bits.left(), 16);
        bits.skip(16).unwrap();
        let error = CodecError::Configuration {
            codec: "x",
            what: "6 bytes are too few for what they begin with".into(),
        };
        assert_eq!(bits.flag(), Err(error.clone()));
        assert_eq!(bits.skip(64), Err(error));
        assert_eq!((bits.take(0), bits.left()), (Ok(0), 0));
    }
}
