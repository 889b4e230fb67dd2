//! Columns: many numbers in a few bits each.
//!
//! Tables of media files are long and regular: most frames last equally long, and their sizes
//! differ in the lower bits. A [`Column`] keeps its numbers in blocks, each the least of them and
//! as many bits beyond it as the largest needs (frame of reference), and the sum of all before each
//! block. A run of equal numbers is one block, however long.

pub(in crate::media) mod saved;

use serde::{Deserialize, Serialize};

use saved::SavedColumn;

/// Numbers of a block, unless all are equal.
const BLOCK: usize = 128;

/// Numbers that may be in blocks.
const PACKED_MAX: u32 = 1 << 31;

/// Numbers are between the negative of this and this.
pub(in crate::media) const VALUE_MAX: i64 = 1 << 47;

/// Many numbers, in order.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(into = "SavedColumn", try_from = "SavedColumn")]
pub(in crate::media) struct Column {
    blocks: Vec<Block>,
    words: Vec<u64>,
    /// What is behind the last block, and its sum.
    tail: Vec<i64>,
    tail_sum: i64,
    /// How many are in blocks, and the sum of those.
    packed: u32,
    packed_sum: i64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Block {
    least: i64,
    /// The sum of all numbers before it.
    before: i64,
    /// How many numbers are before it.
    first: u32,
    /// Where in `words` it begins, and in the lowest six bits how many bits a number has.
    place: u32,
}

impl Block {
    fn bits(&self) -> u32 {
        self.place & 63
    }

    /// What number `at` of the block has beyond the least.
    fn beyond(&self, words: &[u64], at: usize) -> i64 {
        let bits = self.bits();
        if bits == 0 {
            return 0;
        }
        let start = at * bits as usize;
        let word = (self.place >> 6) as usize + start / 64;
        let shift = start % 64;
        let low = words[word] >> shift;
        let high = match shift + bits as usize > 64 {
            true => words[word + 1] << (64 - shift),
            false => 0,
        };
        ((low | high) & ((1 << bits) - 1)).cast_signed()
    }
}

impl Column {
    /// How many numbers there are.
    pub(in crate::media) fn len(&self) -> usize {
        self.packed as usize + self.tail.len()
    }

    /// The sum of all.
    pub(in crate::media) fn sum(&self) -> i64 {
        self.packed_sum + self.tail_sum
    }

    /// Bytes of memory that it takes, about.
    #[cfg(test)]
    pub(in crate::media) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.words.capacity() * size_of::<u64>()
            + self.tail.capacity() * size_of::<i64>()
    }

    /// Appends a number.
    ///
    /// # Panics
    ///
    /// If it is beyond [`VALUE_MAX`]: callers check what comes from files.
    pub(in crate::media) fn push(&mut self, value: i64) {
        assert!(
            value.abs() <= VALUE_MAX,
            "callers check what comes from files"
        );
        if self.tail.is_empty() && self.extends_last(value) {
            self.packed += 1;
            self.packed_sum += value;
            return;
        }
        self.tail.push(value);
        self.tail_sum += value;
        if self.tail.len() == BLOCK {
            self.pack();
        }
    }

    /// Number `at`.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub(in crate::media) fn get(&self, at: usize) -> i64 {
        #[cfg(test)]
        note_look_up();
        match at.checked_sub(self.packed as usize) {
            Some(at) => self.tail[at],
            None => {
                let block = &self.blocks[self.block_of(at)];
                block.least + block.beyond(&self.words, at - block.first as usize)
            }
        }
    }

    /// The sum of the first `count`, or of all if there are not so many.
    pub(in crate::media) fn before(&self, count: usize) -> i64 {
        #[cfg(test)]
        note_look_up();
        if let Some(of_tail) = count.checked_sub(self.packed as usize) {
            let tail = &self.tail[..of_tail.min(self.tail.len())];
            return self.packed_sum + tail.iter().sum::<i64>();
        }
        let block = &self.blocks[self.block_of(count)];
        let of_block = count - block.first as usize;
        let mut sum = block.before + block.least * count_i64(of_block);
        if block.bits() > 0 {
            sum += (0..of_block)
                .map(|at| block.beyond(&self.words, at))
                .sum::<i64>();
        }
        sum
    }

    /// Which number the sum reaches beyond `sum` with: the first `at` for which
    /// `before(at + 1) > sum`; the length if there is none. Only of a column without negative
    /// numbers.
    pub(in crate::media) fn find(&self, sum: i64) -> usize {
        #[cfg(test)]
        note_look_up();
        if sum >= self.packed_sum {
            let mut left = sum - self.packed_sum;
            let past = self.tail.iter().position(|&value| {
                left -= value;
                left < 0
            });
            return self.packed as usize + past.unwrap_or(self.tail.len());
        }
        let number = self.blocks.partition_point(|block| block.before <= sum);
        // The sum may be before the first block that adds to it.
        let number = number.saturating_sub(1);
        let block = &self.blocks[number];
        let first = block.first as usize;
        let mut left = sum - block.before;
        if block.bits() == 0 && block.least > 0 {
            return first + usize::try_from(left / block.least).unwrap_or(0);
        }
        for at in 0..self.count(number) {
            left -= block.least + block.beyond(&self.words, at);
            if left < 0 {
                return first + at;
            }
        }
        first + self.count(number)
    }

    /// All of them from number `from` on.
    pub(in crate::media) fn iter_from(&self, from: usize) -> impl Iterator<Item = i64> + '_ {
        let mut at = from;
        let mut number = match from < self.packed as usize {
            true => self.block_of(from),
            false => self.blocks.len(),
        };
        std::iter::from_fn(move || {
            if at >= self.packed as usize {
                at += 1;
                return self.tail.get(at - 1 - self.packed as usize).copied();
            }
            let block = &self.blocks[number];
            let value = block.least + block.beyond(&self.words, at - block.first as usize);
            at += 1;
            if at == block.first as usize + self.count(number) {
                number += 1;
            }
            Some(value)
        })
    }

    /// Whether a number only makes the last block, of equal numbers, longer.
    fn extends_last(&self, value: i64) -> bool {
        let last = self.blocks.last();
        last.is_some_and(|last| last.bits() == 0 && last.least == value) && self.packed < PACKED_MAX
    }

    /// How many numbers block `number` has.
    fn count(&self, number: usize) -> usize {
        let next = self.blocks.get(number + 1);
        let end = next.map_or(self.packed, |next| next.first);
        (end - self.blocks[number].first) as usize
    }

    /// The block that has number `at`, which is in one.
    fn block_of(&self, at: usize) -> usize {
        let after = self
            .blocks
            .partition_point(|block| block.first as usize <= at);
        after - 1
    }

    fn pack(&mut self) {
        let least = self.tail.iter().copied().min().unwrap_or(0);
        let most = self.tail.iter().copied().max().unwrap_or(0);
        let bits = i64::BITS - (most - least).leading_zeros();
        let place = u32::try_from(self.words.len()).expect("a table is below 512 MiB");
        assert!(place < 1 << 26, "a table is below 512 MiB");
        self.blocks.push(Block {
            least,
            before: self.packed_sum,
            first: self.packed,
            place: place << 6 | bits,
        });
        let (mut word, mut used) = (0_u64, 0);
        for &value in self.tail.iter().filter(|_| bits > 0) {
            let beyond = (value - least).cast_unsigned();
            word |= beyond << used;
            used += bits;
            if used >= 64 {
                self.words.push(word);
                used -= 64;
                word = match used {
                    0 => 0,
                    _ => beyond >> (bits - used),
                };
            }
        }
        if used > 0 {
            self.words.push(word);
        }
        self.packed += u32::try_from(self.tail.len()).expect("a block is short");
        self.packed_sum += self.tail_sum;
        self.tail.clear();
        self.tail_sum = 0;
    }
}

fn count_i64(count: usize) -> i64 {
    i64::try_from(count).expect("a column has fewer than 2^32 numbers")
}

#[cfg(test)]
thread_local! {
    static LOOK_UPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn note_look_up() {
    LOOK_UPS.with(|it| it.set(it.get() + 1));
}

/// How often this thread has looked a number, or a sum, up in any column.
#[cfg(test)]
pub(in crate::media) fn look_ups() -> u64 {
    LOOK_UPS.with(std::cell::Cell::get)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs of equal numbers between such that differ by a few bits or by many.
    fn numbers() -> impl Strategy<Value = Vec<i64>> {
        let run = (
            0..400_usize,
            prop_oneof![0..5_i64, 0..100_000_i64, 0..VALUE_MAX / 1000],
        );
        let noise =
            prop::collection::vec(prop_oneof![0..3_i64, 0..300_i64, 0..1_i64 << 40], 0..300);
        let part = prop_oneof![run.prop_map(|(count, value)| vec![value; count]), noise];
        prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn a_column_tells_what_was_put_in(numbers in numbers(), sign in any::<bool>()) {
            let signed = |(at, &number): (usize, &i64)| match sign && at % 3 == 0 {
                true => -number,
                false => number,
            };
            let numbers: Vec<i64> = numbers.iter().enumerate().map(signed).collect();
            let mut column = Column::default();
            numbers.iter().for_each(|&number| column.push(number));
            prop_assert_eq!(column.len(), numbers.len());
            let mut sum = 0;
            for (at, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(column.get(at), number);
                prop_assert_eq!(column.before(at), sum);
                sum += number;
            }
            prop_assert_eq!(column.before(numbers.len() + 5), sum);
            prop_assert_eq!(column.sum(), sum);
            for from in [0, 1, numbers.len() / 2, numbers.len()] {
                let rest: Vec<_> = column.iter_from(from).collect();
                prop_assert_eq!(&rest[..], numbers.get(from..).unwrap_or_default());
            }
        }

        /// Also when any byte of it is another, or one is missing: then there may be none.
        #[test]
        fn a_saved_column_comes_back(numbers in numbers(), at in any::<prop::sample::Index>()) {
            let mut column = Column::default();
            numbers.iter().for_each(|&number| column.push(number));
            let mut bytes = postcard::to_allocvec(&column).unwrap();
            prop_assert_eq!(postcard::from_bytes(&bytes), Ok(column));
            prop_assert!(postcard::from_bytes::<Column>(&bytes[..bytes.len() - 1]).is_err());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << (at % 8);
            if let Ok(other) = postcard::from_bytes::<Column>(&bytes) {
                let numbers: Vec<_> = other.iter_from(0).collect();
                prop_assert_eq!(numbers.len(), other.len());
                prop_assert_eq!(other.before(other.len()), numbers.iter().sum::<i64>());
                prop_assert!(numbers.iter().all(|it| it.abs() <= VALUE_MAX));
            }
        }

        #[test]
        fn find_is_where_the_sum_passes(numbers in numbers(), share in 0.0..1.1_f64) {
            let mut column = Column::default();
            numbers.iter().for_each(|&number| column.push(number));
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "any")]
            let sum = (column.sum() as f64 * share) as i64;
            let mut before = 0;
            let expected = numbers.iter().position(|&number| {
                before += number;
                before > sum
            });
            prop_assert_eq!(column.find(sum), expected.unwrap_or(numbers.len()));
        }
    }

    #[test]
    fn equal_numbers_cost_one_block() {
        let mut column = Column::default();
        (0..1_000_000).for_each(|_| column.push(1024));
        assert!(column.memory_bytes() < 4096, "{}", column.memory_bytes());
        assert_eq!(
            (column.before(999_999), column.find(1024 * 5)),
            (1024 * 999_999, 5)
        );
    }

    #[test]
    fn numbers_of_ten_bits_cost_little_more() {
        let mut column = Column::default();
        (0..128_000_i64).for_each(|at| column.push(300 + at * 7919 % 1000));
        let bits = column.clone().memory_bytes() * 8 / 128_000;
        assert!(bits < 16, "{bits}");
    }
}
