//! Memory is asked for before it is needed, where the processor can be told so.

use std::ptr;

/// Bytes of a line of the caches, or a part of one: of x86-64 and most of AArch64.
const LINE_BYTES: usize = 64;

/// Begins to bring `value` into the processor's caches, and does not wait for it: worth it where
/// values that are far apart are needed one after the other, and it is known which are next. It
/// changes nothing. What is behind pointers in `value` is not asked for. On processors other than
/// x86-64 and AArch64 it does nothing.
#[inline]
pub fn prefetch<T>(value: &T) {
    let first = ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE_BYTES) {
        prefetch_line(first.wrapping_add(offset));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    // SAFETY: PREFETCHT0 is of SSE, which x86-64 has; it reads nothing that a program sees, and
    // faults at no address (Intel's manual, volume 2, PREFETCHh).
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn prefetch_line(at: *const u8) {
    // SAFETY: PRFM reads nothing that a program sees, and faults at no address (Arm's manual,
    // C6.2, PRFM).
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn prefetch_line(_at: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_changed_whatever_the_size() {
        let (none, odd, long) = ((), [7_u8; 65], vec![[9_u64; 100]; 3]);
        prefetch(&none);
        prefetch(&odd);
        long.iter().for_each(prefetch);
        assert_eq!((none, odd), ((), [7; 65]));
        assert!(long.iter().flatten().all(|&word| word == 9));
    }
}
