//! Blocks of a remote file, each asked for and waited for: in order, and mixed.

use std::io;

use super::method::Method;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 4096;
/// What the number of a block is multiplied by: in order, and mixed.
pub(super) const ORDERS: [u64; 2] = [1, 2_654_435_761];

/// The next block of a file, and the next.
pub(super) struct Order {
    blocks: u64,
    factor: u64,
    next: u64,
}

impl Order {
    pub(super) fn new(file_bytes: u64, factor: u64) -> Self {
        let blocks = file_bytes / BLOCK_BYTES as u64;
        Self {
            blocks,
            factor,
            next: 0,
        }
    }

    /// Nanoseconds of each `read`, which is given where its block begins.
    pub(super) fn measure(
        mut self,
        method: &Method,
        time_ms: u64,
        mut read: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<Vec<f64>> {
        method.try_per_act(method.time(time_ms), |times| {
            (0..times).try_for_each(|_| {
                let block = self.next.wrapping_mul(self.factor) % self.blocks;
                self.next += 1;
                read(block * BLOCK_BYTES as u64)
            })
        })
    }
}
