//! Random numbers that are the same on every machine.

use std::fs::File;
use std::io::{self, Write};

/// A file of so many bytes on a disk, and in the page cache, that goes with its descriptor.
pub(crate) fn film(bytes: u64) -> io::Result<File> {
    // Not in memory alone, as temporary files may be: cold runs read it from a disk.
    let mut file = tempfile::tempfile_in("/var/tmp")?;
    Random::new(1).write(&mut file, bytes)?;
    file.sync_all()?;
    Ok(file)
}

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..bound`, by the remainder: for small bounds as good as even.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// The same for numbers of things in memory.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("less than the bound")
    }

    /// Writes so many bytes that repeat nowhere.
    pub(crate) fn write(&mut self, mut to: impl Write, bytes: u64) -> io::Result<()> {
        let mut block = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            for word in block.chunks_mut(8) {
                word.copy_from_slice(&self.next().to_le_bytes());
            }
            let part = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
            to.write_all(&block[..part])?;
            left -= part as u64;
        }
        Ok(())
    }

    /// From 0 to 1, without 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Waiting time for what happens every `mean_ns` on average, without memory.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of a run"
    )]
    pub(crate) fn exponential_ns(&mut self, mean_ns: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean_ns as f64) as u64
    }
}
