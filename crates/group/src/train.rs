//! What a group sends.

use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};

use super::GroupError;

/// What is to be sent: one datagram or several of equal size, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) stride: usize,
}

impl<'a> Train<'a> {
    pub(super) fn new(bytes: &'a [u8], stride: usize) -> Result<Self, GroupError> {
        let train = Self { bytes, stride };
        if stride == 0 || bytes.len() > TRAIN_BYTES_MAX || train.packets() > TRAIN_PACKETS_MAX {
            let bytes = bytes.len();
            return Err(GroupError::Train { bytes, stride });
        }
        Ok(train)
    }

    /// One packet is sent also when it is empty.
    pub(super) fn packets(&self) -> usize {
        self.bytes.len().div_ceil(self.stride).max(1)
    }
}
