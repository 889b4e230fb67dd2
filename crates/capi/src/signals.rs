//! Signals are the program's: threads of the library's own get none.

/// All signals but those of faults, which this thread does not get as long as this lives. A thread
/// that is started meanwhile never gets them, nor one that is started by that.
///
/// Whoever writes to a connection that its peer has closed gets SIGPIPE, which ends the program
/// unless it has said otherwise, and sendfile(2), splice(2) and writev(2) have no flag against it.
/// And a handler of the program's may not expect to run on threads that it has not started.
pub(crate) struct BlockedSignals {
    before: libc::sigset_t,
}

/// What a thread raises by a fault of its own. Blocked, they would end the program at once, without
/// its handler (sigprocmask(2)).
const OF_FAULTS: [libc::c_int; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGSYS,
];

impl BlockedSignals {
    pub(crate) fn here() -> Self {
        // SAFETY: all zeros is a valid value of this plain C structure.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: it writes a set to its argument.
        unsafe { libc::sigfillset(&raw mut all) };
        for signal in OF_FAULTS {
            // SAFETY: it changes its argument, which is a set.
            unsafe { libc::sigdelset(&raw mut all, signal) };
        }
        // SAFETY: it reads the first set and writes the second; SIG_BLOCK is a way that there is,
        // so that it cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before) };
        Self { before }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let before = &raw const self.before;
        // SAFETY: it reads the set that this thread had before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What this thread has blocked.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let set = status.lines().find_map(|it| it.strip_prefix("SigBlk:"));
        u64::from_str_radix(set.unwrap().trim(), 16).unwrap()
    }

    #[test]
    fn threads_get_no_signal_but_those_of_faults() {
        let before = blocked();
        let signals = BlockedSignals::here();
        let there = std::thread::spawn(|| std::thread::spawn(blocked).join().unwrap());
        let there = there.join().unwrap();
        drop(signals);
        assert_eq!(blocked(), before);
        let has = |signal: libc::c_int| there >> (signal - 1) & 1 == 1;
        let others = [libc::SIGPIPE, libc::SIGTERM, libc::SIGCHLD, libc::SIGPROF];
        assert!(others.into_iter().all(has));
        assert!(!OF_FAULTS.into_iter().any(has));
    }
}
