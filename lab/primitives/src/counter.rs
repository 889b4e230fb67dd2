//! Counters of time that can be read in a few nanoseconds, in step with the code around them.
//!
//! A processor reads its counter early or late unless it is told not to. [`Counter::begin`] waits
//! for what was before it and holds back what follows; [`Counter::end`] waits for all that was
//! measured. Ticks are not cycles: the counter's pace is constant, the processor's is not.

use std::io;
use std::mem::MaybeUninit;

/// What ticks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counter {
    /// The time stamp counter of x86, where it ticks evenly (invariant) and `rdtscp` exists.
    Tsc,
    /// The virtual counter of aarch64.
    Cntvct,
    /// `CLOCK_MONOTONIC_RAW`, which every Linux has; ticks are nanoseconds.
    MonotonicRaw,
}

impl Counter {
    /// The finest that this processor has.
    #[must_use]
    pub fn best() -> Self {
        if has_tsc() {
            Self::Tsc
        } else if cfg!(target_arch = "aarch64") {
            Self::Cntvct
        } else {
            Self::MonotonicRaw
        }
    }

    /// Reads it before what is measured.
    #[inline]
    #[must_use]
    pub fn begin(self) -> u64 {
        match self {
            Self::Tsc => tsc_begin(),
            Self::Cntvct => cntvct(),
            Self::MonotonicRaw => monotonic_raw_ns(),
        }
    }

    /// Reads it after what is measured.
    #[inline]
    #[must_use]
    pub fn end(self) -> u64 {
        match self {
            Self::Tsc => tsc_end(),
            Self::Cntvct => cntvct(),
            Self::MonotonicRaw => monotonic_raw_ns(),
        }
    }

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsc => "the time stamp counter (lfence, rdtsc; rdtscp, lfence)",
            Self::Cntvct => "the virtual counter (isb, cntvct_el0)",
            Self::MonotonicRaw => "CLOCK_MONOTONIC_RAW",
        }
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC_RAW`, which nobody steers.
#[must_use]
pub fn monotonic_raw_ns() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `now` is valid for a timespec to be written to; the clock exists since Linux 2.6.28.
    let r = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, now.as_mut_ptr()) };
    assert_eq!(r, 0, "{}", io::Error::last_os_error());
    // SAFETY: the call succeeded, so it was written.
    let now = unsafe { now.assume_init() };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

#[cfg(target_arch = "x86_64")]
fn has_tsc() -> bool {
    use std::arch::x86_64::__cpuid;
    const EXTENDED: u32 = 0x8000_0000;
    const RDTSCP: u32 = 1 << 27;
    const INVARIANT: u32 = 1 << 8;
    // Leaf 0x80000007 says whether the pace is constant in every state of the processor (Intel SDM,
    // volume 3, "Invariant TSC"); a hypervisor may hide it, but passes the counter on evenly when
    // Linux believes it.
    #[allow(unused_unsafe, reason = "the oldest compilers we take call it unsafe")]
    // SAFETY: every x86-64 has the instruction, which changes nothing but registers.
    let leaf = |leaf| unsafe { __cpuid(leaf) };
    let highest = leaf(EXTENDED).eax;
    let has_rdtscp = highest > EXTENDED && leaf(EXTENDED + 1).edx & RDTSCP != 0;
    let is_invariant = highest >= EXTENDED + 7 && leaf(EXTENDED + 7).edx & INVARIANT != 0;
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = std::fs::read_to_string(source).unwrap_or_default();
    has_rdtscp && (is_invariant || matches!(source.trim(), "tsc" | "kvm-clock"))
}

#[cfg(not(target_arch = "x86_64"))]
fn has_tsc() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn tsc_begin() -> u64 {
    use std::arch::asm;
    let (low, high): (u64, u64);
    // SAFETY: reads a register; `has_tsc` found the instruction, and Linux lets programs use it. It
    // touches no memory and no stack; that nothing moves across it is the point, so it does not say
    // `nomem`.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high, options(nostack));
    }
    high << 32 | low
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn tsc_end() -> u64 {
    use std::arch::asm;
    let (low, high): (u64, u64);
    // SAFETY: as in `tsc_begin`; `rdtscp` also writes rcx, which is named.
    unsafe {
        asm!("rdtscp", "lfence", out("rax") low, out("rdx") high, out("rcx") _, options(nostack));
    }
    high << 32 | low
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_begin() -> u64 {
    monotonic_raw_ns()
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_end() -> u64 {
    monotonic_raw_ns()
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn cntvct() -> u64 {
    use std::arch::asm;
    let ticks: u64;
    // SAFETY: reads a register that Linux lets programs read (arch_timer); the barriers keep the
    // code around it in its place. No stack is touched.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks, options(nostack)) };
    ticks
}

#[cfg(not(target_arch = "aarch64"))]
fn cntvct() -> u64 {
    monotonic_raw_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_goes_forward() {
        for counter in [Counter::best(), Counter::MonotonicRaw] {
            let begin = counter.begin();
            let mut end = counter.end();
            // One that stands still would time out; CLOCK_MONOTONIC_RAW may need a moment to move.
            for _ in 0..1_000_000 {
                if end > begin {
                    break;
                }
                end = counter.end();
            }
            assert!(end > begin, "{counter:?}");
        }
    }

    #[test]
    fn what_the_processor_says_is_used() {
        let flags = std::fs::read_to_string("/proc/cpuinfo").expect("procfs");
        let is_whole = flags.contains(" rdtscp ") && flags.contains(" nonstop_tsc ");
        if is_whole {
            assert_eq!(Counter::best(), Counter::Tsc);
        }
        if cfg!(target_arch = "aarch64") {
            assert_eq!(Counter::best(), Counter::Cntvct);
        }
    }
}
