//! What is noted on the way through a file, beside its samples: what is wrong with it, and some of
//! its bytes, by which it is known again.

use crate::media::container::Probe;

/// Blocks that are remembered, at the most; and bytes of each.
const PROBES_MAX: usize = 1024;
const PROBE_BYTES: usize = 24;

#[derive(Clone, Debug)]
pub(super) struct Notes {
    /// The first bytes of blocks.
    pub(super) probes: Vec<Probe>,
    /// Every so many-th block is remembered, and how many there were.
    every: u64,
    blocks: u64,
    /// How many places are damaged, and where the first is.
    damages: u64,
    first_damage: u64,
    /// Blocks that are left out.
    pub(super) broken_blocks: u64,
    /// Why the file was gone through no further.
    over: Option<String>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            probes: Vec::new(),
            every: 1,
            blocks: 0,
            damages: 0,
            first_damage: 0,
            broken_blocks: 0,
            over: None,
        }
    }
}

impl Notes {
    pub(super) fn damage(&mut self, offset: u64) {
        if self.damages == 0 {
            self.first_damage = offset;
        }
        self.damages += 1;
    }

    pub(super) fn end(&mut self, offset: u64, reason: &str) {
        self.over = Some(format!("from byte {offset} on: {reason}"));
    }

    /// Remembers a block's first bytes; when there are many, every other one is forgotten.
    pub(super) fn block(&mut self, offset: u64, bytes: &[u8]) {
        let number = self.blocks;
        self.blocks += 1;
        if !number.is_multiple_of(self.every) {
            return;
        }
        if self.probes.len() == PROBES_MAX {
            let mut number = 0;
            self.probes.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
        let bytes = &bytes[..bytes.len().min(PROBE_BYTES)];
        self.probes.extend(Probe::of(offset, bytes));
    }

    /// In words.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.damages > 0 {
            problems.push(format!(
                "{} places are damaged, the first at byte {}: what follows is left out up to the \
                 next cluster",
                self.damages, self.first_damage
            ));
        }
        if self.broken_blocks > 0 {
            let blocks = self.broken_blocks;
            problems.push(format!("{blocks} blocks are broken, and left out"));
        }
        problems.extend(self.over.clone());
        problems
    }
}
