//! How much memory can be locked, and in pages of what size.

use std::fs;

use super::Refused;
use crate::memory::{Area, HUGE_PAGE_BYTES, MemoryError, Pages, lockable_bytes, page_bytes};

/// No trial locks more than this; more may be possible.
pub const TRIAL_BYTES_MAX: usize = 64 << 20;

/// How much memory can be locked, and in pages of what size.
#[derive(Debug)]
pub struct Memory {
    /// What this process may lock by the rules: `u64::MAX` with CAP_IPC_LOCK, else RLIMIT_MEMLOCK.
    pub lockable_bytes: u64,
    /// The most that `mlock` did lock, up to [`TRIAL_BYTES_MAX`].
    pub mlock_bytes: Result<usize, Refused>,
    /// What memory that asked for huge pages was made of.
    pub pages: Result<Pages, Refused>,
    /// Huge pages in the reserved pool (`vm.nr_hugepages`) that are free.
    pub huge_reserved_free: u64,
    /// Huge pages in the reserved pool.
    pub huge_reserved: u64,
    /// The setting of transparent huge pages: `always`, `madvise` or `never`; empty if the kernel has
    /// none.
    pub huge_transparent: String,
}

impl Memory {
    pub(super) fn probe() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            lockable_bytes: lockable_bytes(),
            mlock_bytes: most(|area| area.lock().map_err(refused)),
            pages: Area::map(HUGE_PAGE_BYTES)
                .map(|area| area.pages())
                .map_err(refused),
            huge_reserved_free: number_of(&meminfo, "HugePages_Free:").unwrap_or(0),
            huge_reserved: number_of(&meminfo, "HugePages_Total:").unwrap_or(0),
            huge_transparent: chosen(&setting.unwrap_or_default()).to_owned(),
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
