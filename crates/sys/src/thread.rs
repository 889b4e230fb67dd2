//! Where a thread runs.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;

/// The processors this thread may run on, ascending.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    // SAFETY: a cpu_set_t is a bit array, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is valid for the size given; 0 means the calling thread.
    let r = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if r != 0 {
        return vec![0];
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: `core` is below CPU_SETSIZE, the number of bits in the set.
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect()
}

/// Binds the calling thread to processor `core`.
///
/// # Errors
///
/// EINVAL if this process may not use it.
pub fn pin_to(core: usize) -> io::Result<()> {
    bind_to(&[core])
}

/// Keeps the calling thread off these processors, if there are others for it; otherwise it stays
/// free.
pub fn keep_off(cores: &[usize]) {
    let mut others = allowed_cores();
    others.retain(|core| !cores.contains(core));
    if !others.is_empty() {
        // A refusal costs only that the kernel may place it badly.
        drop(bind_to(&others));
    }
}

/// Binds the calling thread to these processors.
///
/// # Errors
///
/// EINVAL if this process may use none of them.
pub fn bind_to(cores: &[usize]) -> io::Result<()> {
    if cores.iter().any(|&core| core >= libc::CPU_SETSIZE as usize) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is a bit array, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &core in cores {
        // SAFETY: `core` is below CPU_SETSIZE, the number of bits in the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: `set` is valid for the size given; 0 means the calling thread.
    let r = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if r == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets the calling thread run only when nobody else would (SCHED_IDLE). There is no way back
/// without a right (CAP_SYS_NICE).
///
/// # Errors
///
/// Those of sched_setscheduler(2).
pub fn run_when_idle() -> io::Result<()> {
    // SAFETY: a sched_param is integers; SCHED_IDLE demands a priority of 0.
    let param: libc::sched_param = unsafe { mem::zeroed() };
    // SAFETY: `param` is a valid sched_param; 0 means the calling thread.
    let r = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) };
    if r == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Lets others go first where they want the same processor: the calling thread gets a tenth of what
/// it would (setpriority(2), which in Linux is about a thread).
pub fn step_back() {
    // SAFETY: setpriority takes no pointers; 0 means the calling thread. It may always be more
    // patient than it was.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}

/// Processor time of a thread (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// In the program, in ns.
    pub user_ns: u64,
    /// In the kernel, in ns.
    pub system_ns: u64,
}

/// Processor time of the calling thread so far.
#[must_use]
pub fn usage() -> Usage {
    // SAFETY: an rusage is integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is writable. With a valid `who` there is nothing to refuse.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let nanos = |time: libc::timeval| {
        let us = time.tv_sec * 1_000_000 + time.tv_usec;
        u64::try_from(us).unwrap_or(0) * 1000
    };
    Usage {
        user_ns: nanos(usage.ru_utime),
        system_ns: nanos(usage.ru_stime),
    }
}

/// What the kernel counts of one thread's running and waiting to run: `/proc/<pid>/schedstat`.
#[derive(Debug)]
pub struct RunDelay(File);

impl RunDelay {
    /// That of the calling thread, whichever thread reads it later.
    ///
    /// # Errors
    ///
    /// If there is no `/proc`, or as [`Self::of`].
    pub fn of_this_thread() -> io::Result<Self> {
        Self::of(File::open("/proc/thread-self/schedstat")?)
    }

    /// That which a file of this kind tells.
    ///
    /// # Errors
    ///
    /// If it is none, or the kernel does not count (CONFIG_SCHED_INFO).
    pub fn of(file: File) -> io::Result<Self> {
        let delay = Self(file);
        // A thread that runs was let at least once; where nobody counts the kernel writes zeroes.
        match delay.numbers()? {
            [_, _, 0] => Err(io::ErrorKind::Unsupported.into()),
            _ => Ok(delay),
        }
    }

    /// So far: how long it ran, and how long it was ready to run while others did, in ns. The
    /// former is as of the last tick or switch.
    ///
    /// # Errors
    ///
    /// If the thread has ended.
    pub fn read(&self) -> io::Result<(u64, u64)> {
        let [ran_ns, delayed_ns, _] = self.numbers()?;
        Ok((ran_ns, delayed_ns))
    }

    fn numbers(&self) -> io::Result<[u64; 3]> {
        let mut text = [0; 64];
        let bytes = self.0.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..bytes]).unwrap_or_default();
        let numbers = text.split_ascii_whitespace().map(str::parse);
        let numbers: Result<Vec<u64>, _> = numbers.collect();
        let numbers = numbers.ok().and_then(|all| all.try_into().ok());
        numbers.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Raises the soft limit of open files to the hard one, and says what it is now.
pub fn raise_open_files_limit() -> u64 {
    let mut limit = open_files_limits();
    let soft = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit; a soft limit up to the hard one needs no privilege.
    let r = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if r == 0 { limit.rlim_cur } else { soft }
}

/// Files and sockets that this process may have open at the moment: the soft limit.
#[must_use]
pub fn open_files_limit() -> u64 {
    open_files_limits().rlim_cur
}

fn open_files_limits() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_when_idle_says_so() {
        std::thread::spawn(|| {
            run_when_idle().expect("nobody needs a right for less");
            // proc_pid_stat(5): the policy is field 41; the name, in parentheses, may hold spaces.
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
            let after_name = stat.rsplit(')').next().expect("a name");
            let policy = after_name.split_ascii_whitespace().nth(41 - 3);
            assert_eq!(policy, Some(libc::SCHED_IDLE.to_string().as_str()));
        })
        .join()
        .expect("idle");
    }

    #[test]
    fn a_thread_that_steps_back_does_so_alone() {
        // SAFETY: getpriority takes no pointers; 0 means the calling thread.
        let niceness = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = niceness();
        let there = std::thread::spawn(move || {
            step_back();
            niceness()
        });
        assert_eq!(there.join().expect("it steps back"), 10.max(before));
        assert_eq!(niceness(), before);
    }

    #[test]
    fn a_thread_can_be_bound_to_each_allowed_core_and_to_no_other() {
        std::thread::spawn(|| {
            let cores = allowed_cores();
            assert!(!cores.is_empty());
            for &core in &cores {
                pin_to(core).expect("an allowed core");
                assert_eq!(allowed_cores(), [core]);
            }
            keep_off(&cores);
            assert_eq!(
                allowed_cores(),
                [cores[cores.len() - 1]],
                "there is no other"
            );
            assert!(pin_to(libc::CPU_SETSIZE as usize - 1).is_err());
            assert!(pin_to(usize::MAX).is_err());
        })
        .join()
        .expect("bound");
    }

    #[test]
    fn a_thread_keeps_off_cores_where_there_are_others() {
        std::thread::spawn(|| {
            let cores = allowed_cores();
            keep_off(&cores[..1]);
            let expected = if cores.len() > 1 { &cores[1..] } else { &cores };
            assert_eq!(allowed_cores(), expected);
        })
        .join()
        .expect("kept off");
    }

    #[test]
    fn what_is_not_counted_is_not_taken_for_no_delay() {
        use std::io::Write;

        let of = |text: &str| {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(text.as_bytes()).expect("it is written");
            RunDelay::of(file).and_then(|delay| delay.read())
        };
        assert_eq!(of("7 8 1\n").expect("it is counted"), (7, 8));
        for wrong in ["0 0 0\n", "", "7 8\n", "7 8 9 10\n", "7 a 1\n", "-7 8 1\n"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_thread_that_shares_its_core_is_made_to_wait() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::time::{Duration, Instant};

        let core = *allowed_cores().last().expect("a core");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(core).expect("an allowed core");
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let looking = scope.spawn(|| {
                pin_to(core).expect("an allowed core");
                let delay = RunDelay::of_this_thread().expect("CONFIG_SCHED_INFO");
                let (began, first) = (Instant::now(), delay.read().expect("it lives"));
                let mut last = first;
                while last.1 - first.1 < 20_000_000 && began.elapsed() < Duration::from_secs(60) {
                    last = delay.read().expect("it lives");
                }
                (last.0 - first.0, last.1 - first.1)
            });
            let (ran_ns, delayed_ns) = looking.join().expect("it looks");
            is_over.store(true, Ordering::Relaxed);
            assert!(
                delayed_ns >= 20_000_000,
                "ran {ran_ns}, delayed {delayed_ns}"
            );
            assert!(ran_ns > 0);
        });
    }
}
