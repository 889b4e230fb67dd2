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

/// What the memory of a process is, and what it has open.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Memory {
    /// All that is in memory of what it has mapped, in bytes; reserved huge pages included.
    pub resident_bytes: u64,
    /// The same, with what others have mapped too as their part of it.
    pub proportional_bytes: u64,
    /// Of what is resident: mappings of huge pages and locked ones, which is where our server keeps
    /// packets.
    pub arena_bytes: u64,
    /// Of what is resident: anonymous memory that is none of these, which is the heap and stacks.
    pub heap_bytes: u64,
    /// The tables by which all that is found; they are the kernel's, and not resident in this
    /// sense.
    pub page_table_bytes: u64,
    /// Open files and sockets; 0 where the kernel does not tell (before Linux 6.2).
    pub descriptors: u64,
}

/// What process `pid` has at the moment.
pub(super) fn memory(pid: u32) -> io::Result<Memory> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let page_tables = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPTE:"))
        .and_then(kilobytes);
    Ok(Memory {
        page_table_bytes: page_tables.unwrap_or(0),
        // The directory's size is their number (fs/proc/fd.c, proc_fd_getattr).
        descriptors: fs::metadata(format!("/proc/{pid}/fd"))?.len(),
        ..parse_smaps(&smaps)
    })
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

/// Reads proc_pid_stat(5) and proc_pid_statm(5). The second word of the first is the program's
/// name, in brackets, and may hold anything.
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

/// Reads proc_pid_smaps(5): a head for each mapping, fields, and last its flags.
fn parse_smaps(smaps: &str) -> Memory {
    let mut memory = Memory::default();
    let (mut is_anonymous, mut resident_bytes) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else {
            continue;
        };
        let field = first.strip_suffix(':');
        let bytes = || kilobytes(&line[first.len()..]).unwrap_or(0);
        match field {
            // The head: range, rights, offset, device, inode, and a name, if it has one.
            None => {
                let name = words.nth(4);
                is_anonymous =
                    name.is_none_or(|name| name.starts_with("[heap") || name.starts_with("[anon"));
                resident_bytes = 0;
            }
            Some("Rss" | "Private_Hugetlb" | "Shared_Hugetlb") => resident_bytes += bytes(),
            Some("Pss") => memory.proportional_bytes += bytes(),
            Some("VmFlags") => {
                memory.resident_bytes += resident_bytes;
                // Huge pages by advice, reserved huge pages, or locked.
                let is_arena = words.any(|flag| matches!(flag, "hg" | "ht" | "lo"));
                if is_arena {
                    memory.arena_bytes += resident_bytes;
                } else if is_anonymous {
                    memory.heap_bytes += resident_bytes;
                }
            }
            _ => {}
        }
    }
    memory
}

/// `   12 kB`, in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    let number = text.trim().strip_suffix(" kB")?;
    Some(number.trim().parse::<u64>().ok()? << 10)
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

    #[test]
    fn mappings_are_told_apart() {
        let mapping = |head: &str, rss: u64, flags: &str| {
            // Reserved huge pages are not in Rss: proc_pid_smaps(5).
            let huge = if flags.contains("ht") {
                [2048, 4096]
            } else {
                [0, 0]
            };
            format!(
                "{head}\nSize: 99 kB\nRss: {rss} kB\nPss: 1 kB\nShared_Hugetlb: {} \
                 kB\nPrivate_Hugetlb: {} kB\nVmFlags: {flags}\n",
                huge[0], huge[1]
            )
        };
        let smaps = [
            mapping("55-56 rw-p 00000000 00:00 0    [heap]", 10, "rd wr mr"),
            mapping("57-58 rw-p 00000000 00:00 0 ", 20, "rd wr mr"),
            mapping("58-59 rw-p 00000000 00:00 0 ", 400, "rd wr hg"),
            mapping("59-60 rw-p 00000000 00:00 0 ", 800, "rd wr lo"),
            mapping("60-61 r-xp 00000000 fe:00 1234    /usr/bin/a b", 5, "rd ex"),
            mapping("61-62 rw-p 00000000 00:00 0    [anon:pool]", 40, "rd wr mr"),
            mapping(
                "62-63 rw-s 00000000 00:0f 99   /anon_hugepage",
                0,
                "rd wr ht",
            ),
        ];
        let memory = parse_smaps(&smaps.concat());
        let expected = Memory {
            resident_bytes: (1275 + 6144) << 10,
            proportional_bytes: 7 << 10,
            arena_bytes: (1200 + 6144) << 10,
            heap_bytes: 70 << 10,
            ..Memory::default()
        };
        assert_eq!(memory, expected);
    }

    #[test]
    fn what_is_taken_is_seen() {
        const BYTES: usize = 64 << 20;
        let before = memory(std::process::id()).expect("this process");
        let taken = std::hint::black_box(vec![1_u8; BYTES]);
        let after = memory(std::process::id()).expect("this process");
        // Other tests may give some back meanwhile.
        assert!(
            after.heap_bytes > before.heap_bytes + BYTES as u64 / 2,
            "{before:?} {after:?}"
        );
        assert!(
            after.resident_bytes > after.heap_bytes && after.page_table_bytes > 0,
            "{after:?}"
        );
        assert!(after.proportional_bytes > 0 && after.proportional_bytes <= after.resident_bytes);
        drop(taken);
        assert!(memory(u32::MAX).is_err());
    }
}
