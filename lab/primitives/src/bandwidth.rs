//! Ways to read and write much memory, from one word at a time to the widest registers there are.
//!
//! Reading gives back the sum of all words, which the caller knows; writing leaves words that the
//! caller can look at. So nothing can be left out unseen.

use std::hint::black_box;

crate::named! {
    /// A way to go through memory once.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Way {
        /// A word at a time.
        ReadScalar = "read_scalar",
        /// Eight words a turn, into four sums.
        ReadUnrolled = "read_unrolled",
        /// The widest registers.
        ReadSimd = "read_simd",
        /// The same, asking for what comes next.
        ReadPrefetch = "read_prefetch",
        /// A word at a time.
        WriteScalar = "write_scalar",
        /// Eight words a turn.
        WriteUnrolled = "write_unrolled",
        /// The widest registers.
        WriteSimd = "write_simd",
        /// The same, past the caches.
        WriteNonTemporal = "write_non_temporal",
        /// By the C library's `memset`.
        WriteMemset = "write_memset",
        /// By the C library's `memcpy`, the first half to the second.
        CopyMemcpy = "copy_memcpy",
        /// By the processor's own string copy (`rep movsb`).
        CopyRep = "copy_rep",
    }
}

impl Way {
    /// Whether this processor has it.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            Self::ReadSimd | Self::ReadPrefetch | Self::WriteSimd | Self::WriteNonTemporal => {
                simd::is_here()
            }
            Self::CopyRep => cfg!(target_arch = "x86_64"),
            _ => true,
        }
    }

    /// Goes through `words` once. Reading gives the sum of all; writing fills with `value`; copying
    /// copies the first half to the second. The number of words must be a multiple of [`WORDS`].
    ///
    /// # Panics
    ///
    /// If it is not, or the way [is not here](Self::is_here).
    #[inline(never)]
    pub fn go(self, words: &mut [u64], value: u64) -> u64 {
        assert!(words.len().is_multiple_of(WORDS) && self.is_here());
        match self {
            Self::ReadScalar => return read_scalar(words),
            Self::ReadUnrolled => return read_unrolled(words),
            Self::ReadSimd => return simd::read(words),
            Self::ReadPrefetch => return simd::read_prefetch(words),
            Self::WriteScalar => write_scalar(words, value),
            Self::WriteUnrolled => write_unrolled(words, value),
            Self::WriteSimd => simd::write(words, value),
            Self::WriteNonTemporal => simd::write_non_temporal(words, value),
            Self::WriteMemset => words.fill_bytes(value),
            Self::CopyMemcpy => {
                let (from, to) = words.split_at_mut(words.len() / 2);
                to.copy_from_slice(black_box(from));
            }
            Self::CopyRep => copy_rep(words),
        }
        // Whoever may read the memory next is unknown to the compiler, so it has to be written.
        black_box(&mut *words);
        0
    }
}

/// The length of memory must be a multiple of so many words.
pub const WORDS: usize = 64;

trait FillBytes {
    fn fill_bytes(&mut self, value: u64);
}

impl FillBytes for [u64] {
    /// Fills with the lowest byte of `value`.
    fn fill_bytes(&mut self, value: u64) {
        let [byte, ..] = value.to_le_bytes();
        // SAFETY: any byte pattern is a u64; the count is the slice's own length.
        unsafe { self.as_mut_ptr().write_bytes(byte, self.len()) };
    }
}

fn read_scalar(words: &[u64]) -> u64 {
    let mut sum = 0_u64;
    for word in words {
        // Opaque to the compiler, or it would use wide registers by itself.
        sum = sum.wrapping_add(opaque(*word));
    }
    sum
}

fn read_unrolled(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 4];
    for eight in words.chunks_exact(8) {
        for (index, word) in eight.iter().enumerate() {
            sums[index % 4] = sums[index % 4].wrapping_add(opaque(*word));
        }
    }
    sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}

fn write_scalar(words: &mut [u64], value: u64) {
    for word in words {
        *word = opaque(value);
    }
}

fn write_unrolled(words: &mut [u64], value: u64) {
    for eight in words.chunks_exact_mut(8) {
        for word in eight {
            *word = opaque(value);
        }
    }
}

/// The same value, in a register; the compiler does not know.
#[inline(always)]
fn opaque(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!(
            "/* {0} */",
            inout(reg) value,
            options(pure, nomem, nostack, preserves_flags)
        )
    };
    value
}

#[cfg(target_arch = "x86_64")]
fn copy_rep(words: &mut [u64]) {
    let (from, to) = words.split_at_mut(words.len() / 2);
    // SAFETY: both halves are as long as the count, in bytes, and apart; the direction flag is
    // clear, as the calling convention demands.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") size_of_val(from) => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") to.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_rep(_words: &mut [u64]) {
    unreachable!("is_here says no");
}

#[cfg(target_arch = "x86_64")]
mod simd {
    //! AVX2: 32 bytes a register. Wider ones bring no more from memory, and are newer than our
    //! compiler.

    use std::arch::asm;
    use std::arch::x86_64::*;

    pub(super) fn is_here() -> bool {
        is_x86_feature_detected!("avx2")
    }

    pub(super) fn read(words: &[u64]) -> u64 {
        // SAFETY: `Way::go` asked `is_here`.
        unsafe { read_by(words, false) }
    }

    pub(super) fn read_prefetch(words: &[u64]) -> u64 {
        // SAFETY: as above.
        unsafe { read_by(words, true) }
    }

    pub(super) fn write(words: &mut [u64], value: u64) {
        // SAFETY: as above.
        unsafe { write_by(words, value) }
    }

    pub(super) fn write_non_temporal(words: &mut [u64], value: u64) {
        // SAFETY: as above.
        unsafe { stream(words, value) }
    }

    /// How far ahead is asked for, in bytes.
    const AHEAD: usize = 1024;
    /// Words of a register.
    const LANES: usize = 4;
    const LINE_BYTES: usize = 64;

    #[target_feature(enable = "avx2")]
    fn read_by(words: &[u64], ahead: bool) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 4];
        for turn in words.chunks_exact(4 * LANES) {
            if ahead {
                for line in (0..size_of_val(turn)).step_by(LINE_BYTES) {
                    let next = turn.as_ptr().cast::<u8>().wrapping_add(AHEAD + line);
                    // SAFETY: a hint about any address; none is accessed.
                    unsafe {
                        asm!("prefetcht0 [{}]", in(reg) next, options(nostack, preserves_flags))
                    };
                }
            }
            for (part, sum) in turn.chunks_exact(LANES).zip(&mut sums) {
                // SAFETY: `part` is as long as the register; loads need no alignment.
                let loaded = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
                *sum = _mm256_add_epi64(*sum, loaded);
            }
        }
        let mut lanes = [0_u64; 4 * LANES];
        for (part, sum) in lanes.chunks_exact_mut(LANES).zip(sums) {
            // SAFETY: `part` is as long as the register; stores need no alignment.
            unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), sum) };
        }
        lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
    }

    #[target_feature(enable = "avx2")]
    fn write_by(words: &mut [u64], value: u64) {
        let filled = _mm256_set1_epi64x(value.cast_signed());
        for part in words.chunks_exact_mut(LANES) {
            // SAFETY: `part` is as long as the register; stores need no alignment.
            unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), filled) };
        }
    }

    #[target_feature(enable = "avx2")]
    fn stream(words: &mut [u64], value: u64) {
        let filled = _mm256_set1_epi64x(value.cast_signed());
        assert!(words.as_ptr().cast::<__m256i>().is_aligned());
        for part in words.chunks_exact_mut(LANES) {
            // SAFETY: `part` is as long as the register, and aligned because the first one is.
            unsafe { _mm256_stream_si256(part.as_mut_ptr().cast(), filled) };
        }
        #[allow(unused_unsafe, reason = "the oldest compilers we take call it unsafe")]
        // SAFETY: every x86-64 has the instruction, which only orders stores.
        unsafe {
            _mm_sfence();
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod simd {
    //! NEON, which every aarch64 has; stores past the caches by `stnp`.

    use std::arch::aarch64::*;
    use std::arch::asm;

    pub(super) fn is_here() -> bool {
        true
    }

    pub(super) fn read(words: &[u64]) -> u64 {
        read_by(words, false)
    }

    pub(super) fn read_prefetch(words: &[u64]) -> u64 {
        read_by(words, true)
    }

    fn read_by(words: &[u64], ahead: bool) -> u64 {
        // SAFETY: NEON is part of the platform.
        let mut sums = [unsafe { vdupq_n_u64(0) }; 4];
        for turn in words.chunks_exact(8) {
            if ahead {
                let next = turn.as_ptr().cast::<u8>().wrapping_add(1024);
                // SAFETY: a hint about any address; none is accessed.
                unsafe {
                    asm!("prfm pldl1keep, [{}]", in(reg) next, options(nostack, preserves_flags))
                };
            }
            for (part, sum) in turn.chunks_exact(2).zip(&mut sums) {
                // SAFETY: two words are as long as the register.
                let loaded = unsafe { vld1q_u64(part.as_ptr()) };
                // SAFETY: NEON is part of the platform.
                *sum = unsafe { vaddq_u64(*sum, loaded) };
            }
        }
        // SAFETY: NEON is part of the platform.
        sums.into_iter()
            .fold(0, |sum, part| sum.wrapping_add(unsafe { vaddvq_u64(part) }))
    }

    pub(super) fn write(words: &mut [u64], value: u64) {
        // SAFETY: NEON is part of the platform.
        let filled = unsafe { vdupq_n_u64(value) };
        for part in words.chunks_exact_mut(2) {
            // SAFETY: two words are as long as the register.
            unsafe { vst1q_u64(part.as_mut_ptr(), filled) };
        }
    }

    pub(super) fn write_non_temporal(words: &mut [u64], value: u64) {
        for part in words.chunks_exact_mut(2) {
            // SAFETY: stores two words, which `part` is.
            unsafe {
                asm!("stnp {v}, {v}, [{at}]", v = in(reg) value, at = in(reg) part.as_mut_ptr(),
                     options(nostack, preserves_flags));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Memory, Pages};

    /// A page's alignment is what non-temporal stores need.
    fn with_words(act: impl FnOnce(&mut [u64])) {
        let mut memory = Memory::map(1 << 20, Pages::Base).unwrap();
        act(&mut memory.words_mut()[..8 * WORDS]);
    }

    #[test]
    fn every_way_to_read_sees_every_word() {
        with_words(|words| {
            for (index, word) in words.iter_mut().enumerate() {
                *word = u64::MAX - (index * index) as u64;
            }
            let sum = words
                .iter()
                .fold(0_u64, |sum, word| sum.wrapping_add(*word));
            for way in Way::ALL
                .into_iter()
                .filter(|way| way.name().starts_with("read") && way.is_here())
            {
                assert_eq!(way.go(words, 0), sum, "{way:?}");
            }
        });
    }

    #[test]
    fn every_way_to_write_and_copy_reaches_every_word() {
        with_words(|words| {
            for way in Way::ALL.into_iter().filter(|way| way.is_here()) {
                let half = words.len() / 2;
                words[..half].fill(0x5555_5555_5555_5555);
                words[half..].fill(0);
                way.go(words, 0x3333_3333_3333_3333);
                let expected = match way.name().split_once('_').unwrap().0 {
                    "read" => continue,
                    "write" => 0x3333_3333_3333_3333,
                    _ => 0x5555_5555_5555_5555,
                };
                assert!(words.iter().all(|&word| word == expected), "{way:?}");
            }
        });
    }

    #[test]
    #[should_panic(expected = "is_multiple_of")]
    fn a_length_that_would_leave_words_out_is_refused() {
        with_words(|words| {
            Way::ReadScalar.go(&mut words[..WORDS - 1], 0);
        });
    }
}
