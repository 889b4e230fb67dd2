//! Gives the targets of `tests/fuzz` to libFuzzer, with the mutations that know their formats.

use libfuzzer_sys::fuzzer_mutate;
use onrush_fuzz_targets::mutate::INPUT_BYTES_MAX;
use onrush_fuzz_targets::random::Random;
use onrush_fuzz_targets::{Target, target};

/// Makes a program that fuzzes the target of that name.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        libfuzzer_sys::fuzz_target!(|input: &[u8]| ($crate::find($name).run)(input));
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, size_max: usize, seed: u32| {
            $crate::mutate($crate::find($name), data, size, size_max, seed)
        });
    };
}

/// The target of that name.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn find(name: &str) -> &'static Target {
    target(name).expect("each program has a target")
}

/// Changes the `size` bytes that `data` begins with; how many they are then. Every other time as
/// libFuzzer does, which knows what the program compares.
pub fn mutate(target: &Target, data: &mut [u8], size: usize, size_max: usize, seed: u32) -> usize {
    let mut random = Random::new(seed.into());
    if random.is_one_in(2) {
        return fuzzer_mutate(data, size, size_max);
    }
    let mut input = data[..size].to_vec();
    for _ in 0..=random.below(3) {
        (target.mutate)(&mut input, &mut random);
    }
    let bytes = input.len().min(size_max).min(INPUT_BYTES_MAX);
    data[..bytes].copy_from_slice(&input[..bytes]);
    bytes
}
