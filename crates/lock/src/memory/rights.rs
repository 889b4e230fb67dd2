//! What this process may lock: by its capabilities, where these count, and by its limit.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};

/// How much memory this process may lock: `u64::MAX` with CAP_IPC_LOCK in the initial user
/// namespace, else the soft RLIMIT_MEMLOCK.
#[must_use]
pub fn lockable_bytes() -> u64 {
    if may_lock_all() {
        u64::MAX
    } else {
        memlock_limit_bytes()
    }
}

/// Whether no limit holds for what this thread locks. The kernel asks for the capability in the
/// initial user namespace (`capable`, as in mm/mlock.c and io_uring/io_uring.c); root of another
/// one has it in its own alone.
pub(crate) fn may_lock_all() -> bool {
    has_capability(CAP_IPC_LOCK)
        && match fs::read_to_string("/proc/self/uid_map") {
            Ok(map) => is_of_initial_namespace(&map),
            // A kernel without user namespaces.
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
}

/// Whether this is the `uid_map` of a process that is in no user namespace but the initial one
/// (user_namespaces(7)).
fn is_of_initial_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// CAP_NET_ADMIN of capabilities(7).
pub const CAP_NET_ADMIN: u32 = 12;

/// CAP_IPC_LOCK of capabilities(7).
pub const CAP_IPC_LOCK: u32 = 14;

/// Whether this thread's effective set holds capability number `capability` (capabilities(7)).
#[must_use]
pub fn has_capability(capability: u32) -> bool {
    let Ok(status) = File::open("/proc/thread-self/status") else {
        return false;
    };
    BufReader::new(status)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .is_some_and(|set| set >> capability & 1 == 1)
}

pub(crate) fn memlock_limit_bytes() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `capable` is asked of the initial namespace, whatever `/proc/self/status` says.
    #[test]
    fn root_of_a_user_namespace_has_the_limit() {
        assert!(is_of_initial_namespace(
            "         0          0 4294967295\n"
        ));
        let others = [
            "",
            "         0          0          1\n",
            "         0     100000      65536\n",
            "         0       1000          1\n         1     100000      65536\n",
        ];
        assert!(!others.into_iter().any(is_of_initial_namespace));
    }
}
