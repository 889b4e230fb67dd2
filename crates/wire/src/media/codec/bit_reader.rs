//! Fields of some bits each, the highest first, as decoder configurations and the headers of frames
//! have them.

use super::super::packetizer::CodecError;

/// Reads fields one behind the other. Bytes that are not there are an error, so that whatever a
/// file holds is read to its end at the most.
#[derive(Clone, Debug)]
pub(super) struct BitReader<'a> {
    codec: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Reads what is said of `codec`, whose name is for errors.
    pub(super) fn new(codec: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            codec,
            bytes,
            at: 0,
        }
    }

    /// The next `count` bits, 32 at the most.
    ///
    /// # Errors
    ///
    /// If there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Result<u32, CodecError> {
        debug_assert!(count <= 32);
        if self.left() < count {
            let bytes = self.bytes.len();
            let what = format!("{bytes} bytes are too few for what they begin with");
            return Err(self.error(what));
        }
        let bit = |at: usize| u32::from(self.bytes[at / 8] >> (7 - at % 8) & 1);
        let value = (self.at..self.at + count).fold(0, |value, at| value << 1 | bit(at));
        self.at += count;
        Ok(value)
    }

    /// The next bit.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn flag(&mut self) -> Result<bool, CodecError> {
        Ok(self.take(1)? == 1)
    }

    /// Leaves out `count` bits.
    ///
    /// # Errors
    ///
    /// If there are fewer.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), CodecError> {
        for at in (0..count).step_by(32) {
            self.take((count - at).min(32))?;
        }
        Ok(())
    }

    /// Leaves out what is left of a byte that is read in part.
    pub(super) fn align(&mut self) {
        self.at = self.at.next_multiple_of(8);
    }

    /// Bits that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() * 8 - self.at
    }

    /// An error about what was read.
    pub(super) fn error(&self, what: impl Into<std::borrow::Cow<'static, str>>) -> CodecError {
        CodecError::Configuration {
            codec: self.codec,
            what: what.into(),
        }
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
        assert_eq!(bits.take(0), Ok(0));
    }
}
