//! SHA-1 (FIPS 180-4) of several messages at once, by the processor's own instructions.
//!
//! One message is hashed as fast as each of its rounds waits for the one before, which leaves most
//! of a processor idle: rounds of up to four messages fill it, and take hardly longer than those of
//! one. Here is the compression of whole blocks alone; padding, and what hashes are for, is the
//! caller's.

/// Messages that are hashed at once, at the most.
pub const LANES: usize = 4;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64;

/// What was hashed of a message so far.
pub type State = [u32; 5];

/// Hashes messages, of as many whole blocks each, into their states.
pub type CompressEach = fn(&mut [State], &[&[u8]]);

/// What does so on this processor; `None` if it has no such instructions.
///
/// It panics unless there are as many messages as states, at most [`LANES`], of one length that is
/// a multiple of [`BLOCK_BYTES`].
#[must_use]
pub fn compress_each() -> Option<CompressEach> {
    #[cfg(target_arch = "x86_64")]
    return x86::is_available().then_some(x86::compress_each as CompressEach);
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::is_x86_feature_detected;
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_extract_epi32, _mm_loadu_si128, _mm_set_epi32, _mm_set_epi64x,
        _mm_setzero_si128, _mm_sha1msg1_epu32, _mm_sha1msg2_epu32, _mm_sha1nexte_epu32,
        _mm_sha1rnds4_epu32, _mm_shuffle_epi8, _mm_xor_si128,
    };
    use std::array;

    use super::{BLOCK_BYTES, State};

    /// Bytes of a register: four words.
    const REGISTER_BYTES: usize = 16;

    /// Each in its own register.
    type Lanes<const N: usize> = [__m128i; N];

    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1")
    }

    pub(super) fn compress_each(states: &mut [State], messages: &[&[u8]]) {
        match messages.len() {
            1 => compress::<1>(states, messages),
            2 => compress::<2>(states, messages),
            3 => compress::<3>(states, messages),
            4 => compress::<4>(states, messages),
            other => panic!("{other} messages at once"),
        }
    }

    fn compress<const N: usize>(states: &mut [State], messages: &[&[u8]]) {
        let states: &mut [State; N] = states.try_into().expect("a state for each message");
        let messages: [&[u8]; N] = messages.try_into().expect("as many as it is called for");
        let blocks = messages.map(|message| {
            let (blocks, rest) = message.as_chunks();
            assert!(rest.is_empty(), "{} bytes are no block", rest.len());
            blocks
        });
        let is_alike = blocks.iter().all(|these| these.len() == blocks[0].len());
        assert!(is_alike, "messages of one length");
        assert!(is_available(), "the processor has no instructions for it");
        // SAFETY: the processor has the features that the function is compiled for: that was
        // asserted just now. SSE2 and SSSE3 are part of SSE4.1.
        unsafe { compress_blocks(states, blocks) }
    }

    /// Four rounds, in which $wk is added: $a are the first four words of the state, $e what the
    /// fifth is made of; $e becomes the next $a.
    macro_rules! rounds {
        ($a:ident, $e:ident, $wk:expr, $kind:literal) => {
            for lane in 0..N {
                let e = _mm_sha1nexte_epu32($e[lane], $wk[lane]);
                $e[lane] = _mm_sha1rnds4_epu32::<$kind>($a[lane], e);
            }
        };
    }

    /// Four rounds more, after the next four words of the schedule were made of the last sixteen,
    /// in place of the first of them.
    ///
    /// Registers have names, and lanes take turns: with words in an array, or a loop for each step,
    /// the compiler moves registers to memory and back, and four messages cost as much as three.
    macro_rules! scheduled_rounds {
        ($a:ident, $e:ident, [$w0:ident, $w1:ident, $w2:ident, $w3:ident], $kind:literal) => {
            for lane in 0..N {
                let part = _mm_sha1msg1_epu32($w0[lane], $w1[lane]);
                let part = _mm_xor_si128(part, $w2[lane]);
                $w0[lane] = _mm_sha1msg2_epu32(part, $w3[lane]);
                let e = _mm_sha1nexte_epu32($e[lane], $w0[lane]);
                $e[lane] = _mm_sha1rnds4_epu32::<$kind>($a[lane], e);
            }
        };
    }

    #[target_feature(enable = "sha,sse2,ssse3,sse4.1")]
    fn compress_blocks<const N: usize>(
        states: &mut [State; N],
        messages: [&[[u8; BLOCK_BYTES]]; N],
    ) {
        let mut abcd: Lanes<N> = array::from_fn(|lane| {
            let [a, b, c, d, _] = states[lane].map(u32::cast_signed);
            _mm_set_epi32(a, b, c, d)
        });
        let mut e: Lanes<N> =
            array::from_fn(|lane| _mm_set_epi32(states[lane][4].cast_signed(), 0, 0, 0));
        for (block, _) in messages[0].iter().enumerate() {
            let (mut w0, mut w1) = ([_mm_setzero_si128(); N], [_mm_setzero_si128(); N]);
            let (mut w2, mut w3) = (w0, w1);
            for lane in 0..N {
                let (parts, _) = messages[lane][block].as_chunks();
                w0[lane] = words(&parts[0]);
                w1[lane] = words(&parts[1]);
                w2[lane] = words(&parts[2]);
                w3[lane] = words(&parts[3]);
            }
            let (mut x, mut y) = (abcd, [_mm_setzero_si128(); N]);
            for lane in 0..N {
                let first = _mm_add_epi32(e[lane], w0[lane]);
                y[lane] = _mm_sha1rnds4_epu32::<0>(x[lane], first);
            }
            rounds!(y, x, w1, 0);
            rounds!(x, y, w2, 0);
            rounds!(y, x, w3, 0);
            scheduled_rounds!(x, y, [w0, w1, w2, w3], 0);
            scheduled_rounds!(y, x, [w1, w2, w3, w0], 1);
            scheduled_rounds!(x, y, [w2, w3, w0, w1], 1);
            scheduled_rounds!(y, x, [w3, w0, w1, w2], 1);
            scheduled_rounds!(x, y, [w0, w1, w2, w3], 1);
            scheduled_rounds!(y, x, [w1, w2, w3, w0], 1);
            scheduled_rounds!(x, y, [w2, w3, w0, w1], 2);
            scheduled_rounds!(y, x, [w3, w0, w1, w2], 2);
            scheduled_rounds!(x, y, [w0, w1, w2, w3], 2);
            scheduled_rounds!(y, x, [w1, w2, w3, w0], 2);
            scheduled_rounds!(x, y, [w2, w3, w0, w1], 2);
            scheduled_rounds!(y, x, [w3, w0, w1, w2], 3);
            scheduled_rounds!(x, y, [w0, w1, w2, w3], 3);
            scheduled_rounds!(y, x, [w1, w2, w3, w0], 3);
            scheduled_rounds!(x, y, [w2, w3, w0, w1], 3);
            scheduled_rounds!(y, x, [w3, w0, w1, w2], 3);
            for lane in 0..N {
                abcd[lane] = _mm_add_epi32(abcd[lane], x[lane]);
                e[lane] = _mm_sha1nexte_epu32(y[lane], e[lane]);
            }
        }
        for (lane, state) in states.iter_mut().enumerate() {
            let abcd = abcd[lane];
            *state = [
                _mm_extract_epi32::<3>(abcd),
                _mm_extract_epi32::<2>(abcd),
                _mm_extract_epi32::<1>(abcd),
                _mm_extract_epi32::<0>(abcd),
                _mm_extract_epi32::<3>(e[lane]),
            ]
            .map(i32::cast_unsigned);
        }
    }

    /// Four words, of which the first is in the highest place.
    #[target_feature(enable = "sse2,ssse3")]
    fn words(bytes: &[u8; REGISTER_BYTES]) -> __m128i {
        let order = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
        // SAFETY: it reads 16 bytes, of any alignment, and that many are lent.
        let register = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        _mm_shuffle_epi8(register, order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a hash begins (FIPS 180-4, section 5.3.1).
    const BEGIN: State = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];

    /// What is there; nothing only where the kernel knows of no such instructions either.
    fn available() -> Option<CompressEach> {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let has_them = cpus.split_ascii_whitespace().any(|flag| flag == "sha_ni");
        assert_eq!(compress_each().is_some(), has_them);
        compress_each()
    }

    /// Section 6.1.2, word for word.
    fn model(state: &mut State, block: &[u8]) {
        let mut w: Vec<u32> = block
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        for t in 16..80 {
            w.push((w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16]).rotate_left(1));
        }
        let [mut a, mut b, mut c, mut d, mut e] = *state;
        for (t, word) in w.into_iter().enumerate() {
            let (f, k) = match t / 20 {
                0 => ((b & c) ^ (!b & d), 0x5a82_7999_u32),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) ^ (b & d) ^ (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let sum = a.rotate_left(5).wrapping_add(f).wrapping_add(e);
            let sum = sum.wrapping_add(k).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (old, new) in state.iter_mut().zip([a, b, c, d, e]) {
            *old = old.wrapping_add(new);
        }
    }

    /// A message of three letters, padded (FIPS 180-2, appendix A.1).
    #[test]
    fn the_standards_example_of_one_block() {
        let Some(compress_each) = available() else {
            return;
        };
        let mut block = [0; BLOCK_BYTES];
        block[..4].copy_from_slice(b"abc\x80");
        block[63] = 24;
        let expected = [
            0xa999_3e36,
            0x4706_816a,
            0xba3e_2571,
            0x7850_c26c,
            0x9cd0_d89d,
        ];
        for messages in 1..=LANES {
            let mut states = [BEGIN; LANES];
            compress_each(&mut states[..messages], &[&block[..]; LANES][..messages]);
            assert_eq!(states[..messages], [expected; LANES][..messages]);
        }
    }

    #[test]
    fn each_lane_is_its_own() {
        let Some(compress_each) = available() else {
            return;
        };
        for blocks in 0..5 {
            let message = |lane: usize| -> Vec<u8> {
                let bytes = 0..blocks * BLOCK_BYTES;
                let byte = |at: usize| (at * 31 + lane * 97 + 5).to_le_bytes()[0];
                bytes.map(byte).collect()
            };
            let messages: [_; LANES] = std::array::from_fn(message);
            let mut expected = [1, 2, 3, 4].map(|number| BEGIN.map(|word| word ^ number));
            for lanes in 1..=LANES {
                let mut states = expected;
                let of: Vec<_> = messages[..lanes].iter().map(|it| &it[..]).collect();
                compress_each(&mut states[..lanes], &of);
                for (lane, state) in states[..lanes].iter().enumerate() {
                    let mut one = expected[lane];
                    let whole = messages[lane].chunks(BLOCK_BYTES);
                    whole.for_each(|block| model(&mut one, block));
                    assert_eq!(*state, one, "lane {lane} of {lanes}, {blocks} blocks");
                }
            }
            expected.rotate_left(1);
        }
    }

    #[test]
    fn what_cannot_be_hashed_together_is_refused() {
        let Some(compress_each) = available() else {
            return;
        };
        let (block, short) = ([0_u8; BLOCK_BYTES], [0_u8; BLOCK_BYTES - 1]);
        let refused = |states: usize, messages: &[&[u8]]| {
            let mut states = vec![BEGIN; states];
            let hashed = || compress_each(&mut states, messages);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(hashed)).is_err()
        };
        assert!(!refused(1, &[&block]));
        assert!(refused(0, &[]), "nothing");
        assert!(refused(1, &[&block, &block]), "a state is missing");
        assert!(refused(2, &[&block, &[]]), "of two lengths");
        assert!(refused(1, &[&short]), "no whole block");
        assert!(refused(LANES + 1, &[&block[..]; LANES + 1]), "too many");
    }
}
