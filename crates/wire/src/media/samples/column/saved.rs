//! Columns as they are saved: the numbers as they are packed, without what follows from them.
//!
//! What is read back may be anything. So sums and places are counted again, and a column is only
//! made of numbers that could have been [pushed](Column::push).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{BLOCK, Block, Column, PACKED_MAX, VALUE_MAX};

/// A column without what follows from it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SavedColumn {
    /// Of each block the least number, how many bits each has beyond it, and how many there are.
    blocks: Vec<(i64, u8, u32)>,
    /// The words that these bits are in, the lowest byte first.
    words: Vec<u8>,
    tail: Vec<i64>,
}

/// What is said to be a column is none.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("no column of numbers: {0}")]
pub(in crate::media) struct NoColumn(&'static str);

/// Bits of the difference of two numbers at the most.
const BITS_MAX: u8 = 49;

/// A sum at the most: with room for those within a block.
const SUM_MAX: u64 = 1 << 62;

const WORD_BYTES: usize = size_of::<u64>();

impl From<Column> for SavedColumn {
    fn from(column: Column) -> Self {
        let block = |number: usize| {
            let block = &column.blocks[number];
            let count = u32::try_from(column.count(number)).expect("fewer than 2^32");
            let bits = u8::try_from(block.bits()).expect("six bits");
            (block.least, bits, count)
        };
        Self {
            blocks: (0..column.blocks.len()).map(block).collect(),
            words: column
                .words
                .iter()
                .flat_map(|it| it.to_le_bytes())
                .collect(),
            tail: column.tail,
        }
    }
}

impl TryFrom<SavedColumn> for Column {
    type Error = NoColumn;

    fn try_from(saved: SavedColumn) -> Result<Self, NoColumn> {
        let (words, rest) = saved.words.as_chunks::<WORD_BYTES>();
        if !rest.is_empty() || saved.tail.len() >= BLOCK {
            return Err(NoColumn("parts of blocks"));
        }
        let mut column = Self {
            blocks: Vec::with_capacity(saved.blocks.len()),
            words: words.iter().map(|it| u64::from_le_bytes(*it)).collect(),
            ..Self::default()
        };
        let mut place = 0;
        for (least, bits, count) in saved.blocks {
            place = column.add_saved(place, least, bits, count)?;
        }
        if place != column.words.len() {
            return Err(NoColumn("words that no block has"));
        }
        for &value in &saved.tail {
            if value.unsigned_abs() > VALUE_MAX.unsigned_abs() {
                return Err(NoColumn("a number beyond all bounds"));
            }
            column.tail_sum += value;
        }
        column.tail = saved.tail;
        Ok(column)
    }
}

impl Column {
    /// Appends a block whose words begin at `place`. Where the next one's do.
    fn add_saved(
        &mut self,
        place: usize,
        least: i64,
        bits: u8,
        count: u32,
    ) -> Result<usize, NoColumn> {
        let is_long_enough = match bits {
            0 => count as usize >= BLOCK,
            _ => count as usize == BLOCK && bits <= BITS_MAX,
        };
        if !is_long_enough || count > PACKED_MAX - self.packed {
            return Err(NoColumn("a block of a wrong length"));
        }
        let end = place + (usize::from(bits) * BLOCK).div_ceil(u64::BITS as usize);
        if end > self.words.len() || place >= 1 << 26 {
            return Err(NoColumn("a block without its words"));
        }
        let block = Block {
            least,
            before: self.packed_sum,
            first: self.packed,
            place: u32::try_from(place).expect("below 2^26") << 6 | u32::from(bits),
        };
        let is_number = |it: i64| it.unsigned_abs() <= VALUE_MAX.unsigned_abs();
        let sum = match (is_number(least), bits) {
            (false, _) => None,
            (true, 0) => least.checked_mul(count.into()),
            (true, _) => (0..BLOCK).try_fold(0, |sum, at| {
                let value = least + block.beyond(&self.words, at);
                is_number(value).then_some(sum + value)
            }),
        };
        let sum = sum.and_then(|sum| self.packed_sum.checked_add(sum));
        let sum = sum.filter(|it| it.unsigned_abs() <= SUM_MAX);
        self.packed_sum = sum.ok_or(NoColumn("numbers beyond all bounds"))?;
        self.packed += count;
        self.blocks.push(block);
        Ok(end)
    }
}
