//! Numbers that follow from a seed, so that an input alone decides all that a target does with it.

/// A generator of numbers that look random (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// One that begins with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One whose seed is the last eight bytes of `input`: a fuzzer that changes others changes
    /// nothing about how the input is read.
    #[must_use]
    pub fn of(input: &[u8]) -> Self {
        let last = &input[input.len().saturating_sub(8)..];
        Self(
            last.iter()
                .fold(0, |seed, &byte| seed << 8 | u64::from(byte)),
        )
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number().checked_rem(bound).unwrap_or(0)
    }

    /// An index into what has `length` items; 0 if it has none.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One time in so many.
    pub fn is_one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these, of which there is at least one.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// How many bytes come at once: one, a few, or many, but at least one and at most `left`.
    pub fn piece(&mut self, left: usize) -> usize {
        let most = *self.pick(&[1, 8, 190, 1500, usize::MAX]);
        1 + self.index(left.min(most))
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }
}
