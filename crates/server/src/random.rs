//! Random numbers.

/// Random bytes from the kernel.
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("Linux has had random numbers for all since 3.17");
    bytes
}
