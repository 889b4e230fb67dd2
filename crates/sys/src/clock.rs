//! The clock that deadlines are told in.

/// Nanoseconds of CLOCK_MONOTONIC, the clock of the ring's and of `ppoll`'s time-outs.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread, in ns.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec to write to; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_go_back() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        assert!(wall > 0);
        assert!(monotonic_ns() >= wall);
        assert!(thread_cpu_ns() >= cpu);
    }
}
