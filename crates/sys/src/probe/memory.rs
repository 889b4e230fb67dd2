//! How much memory can be locked, and in pages of what size.

use std::fs;

use super::Refused;
use onrush_lock::memory::{
    Area, HUGE_PAGE_BYTES, MemoryError, Pages, control_group_bytes, lockable_bytes, page_bytes,
};
use onrush_lock::{Kind, rings_share_pins};

/// No trial locks more than this; more may be possible.
pub const TRIAL_BYTES_MAX: usize = 64 << 20;

/// How much memory can be locked, and in pages of what size.
#[derive(Debug)]
pub struct Memory {
    /// What this process may lock by the rules: `u64::MAX` with CAP_IPC_LOCK in the initial user
    /// namespace, else RLIMIT_MEMLOCK.
    pub lockable_bytes: u64,
    /// What the control groups of this process let it have beyond what it has; `None` without a
    /// limit.
    pub control_group_bytes: Option<u64>,
    /// The most that `mlock` did lock, up to [`TRIAL_BYTES_MAX`].
    pub mlock_bytes: Result<usize, Refused>,
    /// Whether several rings account for pinned memory once (Linux 6.13).
    pub rings_share_pins: bool,
    /// What memory that asked for huge pages was made of.
    pub pages: Result<Pages, Refused>,
    /// Huge pages in the reserved pool (`vm.nr_hugepages`) that are free.
    pub huge_reserved_free: u64,
    /// Huge pages in the reserved pool.
    pub huge_reserved: u64,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`; empty if the kernel
    /// has none.
    pub huge_transparent: String,
    /// The processes of this machine that have locked memory, those with the most first.
    pub holders: Vec<Holder>,
}

/// A process that has locked memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name, as the kernel keeps it: 15 bytes.
    pub name: String,
    /// Bytes that `mlock` keeps resident (VmLck).
    pub resident_bytes: u64,
    /// Bytes that are pinned (VmPin).
    pub pinned_bytes: u64,
}

impl Memory {
    pub(super) fn probe() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            lockable_bytes: lockable_bytes(),
            control_group_bytes: control_group_bytes(),
            mlock_bytes: most(|area| area.lock(Kind::Resident).map_err(refused)),
            rings_share_pins: rings_share_pins(),
            pages: Area::map(HUGE_PAGE_BYTES)
                .map(|area| area.pages())
                .map_err(refused),
            huge_reserved_free: number_of(&meminfo, "HugePages_Free:").unwrap_or(0),
            huge_reserved: number_of(&meminfo, "HugePages_Total:").unwrap_or(0),
            huge_transparent: chosen(&setting.unwrap_or_default()).to_owned(),
            holders: holders(),
        }
    }
}

/// The largest power of two for which `attempt` succeeds on fresh memory; its refusal if none does.
pub(super) fn most(attempt: impl Fn(&mut Area) -> Result<(), Refused>) -> Result<usize, Refused> {
    let mut best = None;
    let mut bytes = page_bytes();
    while bytes <= TRIAL_BYTES_MAX {
        let attempted = Area::map(bytes)
            .map_err(refused)
            .and_then(|mut area| attempt(&mut area));
        match attempted {
            Ok(()) => best = Some(bytes),
            Err(refused) => return best.ok_or(refused),
        }
        bytes *= 2;
    }
    Ok(TRIAL_BYTES_MAX)
}

/// Who has locked memory. A process that ends meanwhile is left out.
fn holders() -> Vec<Holder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all: Vec<_> = processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            holder(pid, &fs::read_to_string(entry.path().join("status")).ok()?)
        })
        .collect();
    all.sort_by_key(|holder| std::cmp::Reverse(holder.resident_bytes + holder.pinned_bytes));
    all
}

/// Reads `/proc/<pid>/status`; `None` if nothing is locked.
fn holder(pid: u32, status: &str) -> Option<Holder> {
    let bytes = |field| number_of(status, field).unwrap_or(0) * 1024;
    let name = status.lines().find_map(|line| line.strip_prefix("Name:"))?;
    let (resident_bytes, pinned_bytes) = (bytes("VmLck:"), bytes("VmPin:"));
    (resident_bytes + pinned_bytes > 0).then(|| Holder {
        pid,
        name: name.trim().to_owned(),
        resident_bytes,
        pinned_bytes,
    })
}

pub(super) fn refused(error: MemoryError) -> Refused {
    match error {
        MemoryError::Lock(error) => Refused::other("mlock2", error.to_string()),
        MemoryError::Map { source, .. } => Refused::new("mmap", source),
        other => Refused::other("mmap", other.to_string()),
    }
}

/// The word in brackets in a setting such as `always [madvise] never`.
fn chosen(setting: &str) -> &str {
    setting
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(word, _)| word)
}

fn number_of(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen(""), "");
        assert_eq!(chosen("always madvise"), "");
    }

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let meminfo = "HugePages_Total:      12\nHugePages_Free:        3\n";
        assert_eq!(number_of(meminfo, "HugePages_Free:"), Some(3));
        assert_eq!(number_of(meminfo, "HugePages_Rsvd:"), None);
    }

    #[test]
    fn who_has_locked_nothing_holds_nothing() {
        let status = "Name:\tonrush\nVmLck:\t      12 kB\nVmPin:\t    2048 kB\n";
        let found = holder(7, status).unwrap();
        assert_eq!((found.pid, found.name.as_str()), (7, "onrush"));
        assert_eq!(
            (found.resident_bytes, found.pinned_bytes),
            (12 << 10, 2 << 20)
        );
        assert_eq!(holder(7, "Name:\tsh\nVmLck:\t0 kB\nVmPin:\t0 kB\n"), None);
        assert_eq!(holder(7, "Name:\tkthreadd\n"), None);
        let mut area = Area::map(page_bytes()).unwrap();
        area.lock(Kind::Pinned).unwrap();
        let ours = |holder: &Holder| holder.pid == std::process::id();
        assert!(holders().iter().any(ours));
    }

    #[test]
    fn the_most_is_the_last_that_was_granted() {
        let limit = 40 * page_bytes();
        let upto = |area: &mut Area| match area.bytes_total() <= limit {
            true => Ok(()),
            false => Err(Refused::other("mlock", "too much")),
        };
        assert_eq!(most(upto).unwrap(), 32 * page_bytes());
        assert!(most(|_| Err(Refused::other("mlock", "no"))).is_err());
        assert_eq!(most(|_| Ok(())).unwrap(), TRIAL_BYTES_MAX);
    }
}
