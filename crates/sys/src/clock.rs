//! The clock that deadlines are told in, and the clocks of threads.

use std::ptr;

/// Nanoseconds of CLOCK_MONOTONIC, the clock of the ring's and of `ppoll`'s time-outs.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// The same as of the last tick of the kernel's, a few milliseconds ago: a tenth of the price.
#[must_use]
pub fn monotonic_coarse_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC_COARSE)
}

/// Processor time of the calling thread, in ns.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time so far of thread `thread` of this process, in ns, exact also while it runs.
/// `None` if there is no such thread.
#[must_use]
pub fn cpu_ns_of(thread: u32) -> Option<u64> {
    let thread = libc::pid_t::try_from(thread).ok()?;
    // The kernel's own encoding of a thread's clock (include/linux/posix-timers.h,
    // make_thread_cpuclock): the inverted number over three bits, CPUCLOCK_PERTHREAD_MASK (4) and
    // CPUCLOCK_SCHED (2). The C library offers it for a pthread_t only, which the thread of
    // somebody else's making is not.
    try_read_ns((!thread) << 3 | 4 | 2)
}

/// Processor time so far of process `process`, of all its threads, those that have ended too, in
/// ns. `None` if there is no such process.
#[must_use]
pub fn cpu_ns_of_process(process: u32) -> Option<u64> {
    let process = libc::pid_t::try_from(process).ok()?;
    // As above, without CPUCLOCK_PERTHREAD_MASK: what clock_getcpuclockid(3) computes.
    try_read_ns((!process) << 3 | 2)
}

/// Sleeps until `deadline_ns` of [`monotonic_ns`]; returns at once if that is past.
pub fn sleep_until_ns(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: libc::time_t::try_from(deadline_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(deadline_ns % 1_000_000_000).unwrap_or(0),
    };
    let (clock, absolute) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
    // SAFETY: `deadline` is a valid timespec; an absolute sleep reports no rest, so none is asked
    // for.
    while unsafe { libc::clock_nanosleep(clock, absolute, &raw const deadline, ptr::null_mut()) }
        == libc::EINTR
    {}
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    try_read_ns(clock).expect("both clocks exist on every Linux")
}

fn try_read_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec to write to; an unknown clock is an error.
    let r = unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).ok().filter(|_| r == 0)?;
    Some(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).ok()?)
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

    #[test]
    fn another_threads_processor_time_is_its_own() {
        let (worked, is_worked) = std::sync::mpsc::channel();
        let (finish, is_finished) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            while thread_cpu_ns() < 20_000_000 {}
            let me = std::fs::read_link("/proc/thread-self").expect("a thread knows its number");
            let me = me.file_name().and_then(|name| name.to_str()?.parse().ok());
            worked
                .send((me.expect("a number"), thread_cpu_ns()))
                .expect("heard");
            is_finished.recv().ok();
        });
        let (number, own_ns) = is_worked.recv().expect("it works");
        let seen_ns = cpu_ns_of(number).expect("it is there");
        assert!(seen_ns >= own_ns, "{seen_ns} {own_ns}");
        drop(finish);
        worker.join().expect("it ends");
        // Joined, it may take the kernel a moment more to forget it.
        let gone = (0..1000).any(|_| {
            sleep_until_ns(monotonic_ns() + 1_000_000);
            cpu_ns_of(number).is_none()
        });
        assert!(gone);
        assert_eq!(cpu_ns_of(u32::MAX), None);
    }

    #[test]
    fn a_process_has_used_no_less_than_its_threads() {
        while thread_cpu_ns() < 5_000_000 {}
        let own_ns = thread_cpu_ns();
        assert!(cpu_ns_of_process(std::process::id()).expect("we are here") >= own_ns);
        assert_eq!(cpu_ns_of_process(u32::MAX), None);
    }

    #[test]
    fn a_sleep_is_not_shorter_than_asked() {
        let until_ns = monotonic_ns() + 2_000_000;
        sleep_until_ns(until_ns);
        assert!(monotonic_ns() >= until_ns);
        sleep_until_ns(0);
    }
}
