//! What the server's process uses.

use std::fs;
use std::io::{self, ErrorKind};

use rustix::param::{clock_ticks_per_second, page_size};
use serde::{Deserialize, Serialize};

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// Processor time, in ns; steps of a clock tick, 10 ms on most machines.
    pub cpu_ns: u64,
    /// Memory in use, in bytes, at its highest when looked at.
    pub memory_bytes: u64,
}

/// What process `pid` has used so far.
pub(super) fn usage(pid: u32) -> io::Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    parse(&stat, &statm).ok_or_else(|| io::Error::from(ErrorKind::InvalidData))
}

impl Usage {
    /// What was used since `earlier`; memory is the larger of the two.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            memory_bytes: self.memory_bytes.max(earlier.memory_bytes),
        }
    }
}

/// Reads proc_pid_stat(5) and proc_pid_statm(5). The second word of the first is the program's name, in
/// brackets, and may hold anything.
fn parse(stat: &str, statm: &str) -> Option<Usage> {
    let after_name = stat.rsplit_once(") ")?.1;
    let mut words = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = words.next()?.parse().ok()?;
    let kernel: u64 = words.next()?.parse().ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Usage {
        cpu_ns: (user + kernel) * (1_000_000_000 / clock_ticks_per_second()),
        memory_bytes: pages * page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0 100 1 1";
        let usage = parse(stat, "100 25 3 1 0 9 0").expect("it is well formed");
        assert_eq!(usage.cpu_ns, 42 * 1_000_000_000 / clock_ticks_per_second());
        assert_eq!(usage.memory_bytes, 25 * page_size() as u64);
        assert_eq!(parse("7 (a", "1"), None);
        assert_eq!(parse(stat, "1"), None);
    }

    #[test]
    fn we_use_memory_and_nobody_uses_none() {
        let own = usage(std::process::id()).expect("this process");
        assert!(own.memory_bytes > 0);
        assert!(usage(u32::MAX).is_err());
    }
}
