//! Parts of a file whose bytes are remembered, to see later whether it still is what it was.

use crate::media::Probe;

/// How many are remembered at the most.
const PROBES_MAX: usize = 128;

/// Bytes of a part that are remembered, at the most.
const PROBE_BYTES_MAX: usize = 64;

/// Some of the parts of a file that were read: at first all, then every second, and so on.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    pub(super) kept: Vec<Probe>,
    seen: u32,
    /// One of 2 to this many is kept.
    seldom: u32,
}

impl Probes {
    /// Perhaps remembers bytes that lie at `offset` in the file.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(PROBE_BYTES_MAX)];
        let is_due = self.seen.trailing_zeros() >= self.seldom;
        self.seen = self.seen.wrapping_add(1);
        let Some(probe) = Probe::of(offset, bytes).filter(|_| is_due) else {
            return;
        };
        self.kept.push(probe);
        if self.kept.len() >= PROBES_MAX {
            let mut number = 0_u32;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.seldom += 1;
        }
    }
}
