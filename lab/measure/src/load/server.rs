//! What the server's process uses.

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind};

use rustix::io::Errno;
use rustix::param::{clock_ticks_per_second, page_size};
use serde::{Deserialize, Serialize};

use super::LoadError;

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

/// What a load says of a server whose process has ended meanwhile.
const HAS_ENDED: &str = "the server's process ended";

/// The server's process, which may end while the load goes on.
#[derive(Debug)]
pub(super) struct ServerProcess {
    pid: u32,
    /// What it had used when it was last looked at.
    usage: Cell<Usage>,
    has_ended: Cell<bool>,
}

impl ServerProcess {
    /// The process of that number, if there is one.
    pub(super) fn find(pid: Option<u32>) -> Result<Option<Self>, LoadError> {
        let Some(pid) = pid else { return Ok(None) };
        let usage = usage(pid).map_err(|source| LoadError::Pid { pid, source })?;
        Ok(Some(Self {
            pid,
            usage: Cell::new(usage),
            has_ended: Cell::new(false),
        }))
    }

    /// Its number, as long as it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        (!self.has_ended.get()).then_some(self.pid)
    }

    /// What it has used so far; once it has ended, what was seen last.
    pub(super) fn usage(&self) -> Usage {
        match self.pid().map(usage) {
            Some(Ok(usage)) => self.usage.set(usage),
            Some(Err(error)) => self.has_ended.set(is_gone(&error)),
            None => {}
        }
        self.usage.get()
    }

    /// What is to be told among what has failed.
    pub(super) fn failure(&self) -> Option<(String, u64)> {
        self.has_ended.get().then(|| (HAS_ENDED.to_owned(), 1))
    }
}

/// Whether there is no such process; a load that lacks descriptors fails otherwise.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
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
fn usage(pid: u32) -> io::Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    parse(&stat, &statm).ok_or_else(|| io::Error::from(ErrorKind::NotFound))
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
/// name, in brackets, and may hold anything. `None` also of a process that has ended, and that
/// nobody has waited for yet.
fn parse(stat: &str, statm: &str) -> Option<Usage> {
    let after_name = stat.rsplit_once(") ")?.1;
    let mut words = after_name.split_ascii_whitespace();
    if matches!(words.next()?, "Z" | "X") {
        return None;
    }
    let mut words = words.skip(10);
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
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0 100 1 1";
        let usage = parse(stat, "100 25 3 1 0 9 0").expect("it is well formed");
        assert_eq!(usage.cpu_ns, 42 * 1_000_000_000 / clock_ticks_per_second());
        assert_eq!(usage.memory_bytes, 25 * page_size() as u64);
        assert_eq!(parse("7 (a", "1"), None);
        assert_eq!(parse(stat, "1"), None);
        assert_eq!(parse(&stat.replace(") S", ") Z"), "0 0 0 0 0 0 0"), None);
    }

    #[test]
    fn of_a_process_that_has_ended_the_last_is_kept() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let server = ServerProcess::find(Some(child.id())).unwrap().unwrap();
        assert_eq!((server.pid(), server.failure()), (Some(child.id()), None));
        let last = server.usage();
        child.kill().unwrap();
        // Nobody waits for it, so that it is a zombie.
        let give_up = Instant::now() + Duration::from_secs(60);
        while server.failure().is_none() && Instant::now() < give_up {
            server.usage();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(server.failure(), Some((HAS_ENDED.to_owned(), 1)));
        child.wait().unwrap();
        assert!(server.usage().cpu_ns >= last.cpu_ns && server.pid().is_none());
        assert!(ServerProcess::find(Some(child.id())).is_err());
        assert!(ServerProcess::find(None).unwrap().is_none());
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
