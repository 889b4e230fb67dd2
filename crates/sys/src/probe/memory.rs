//! How much memory can be locked, and in pages of what size.

use std::fs;
use std::io;
use std::ptr;
use std::ptr::NonNull;
use std::slice;

use super::Refused;

/// No trial locks more than this; more may be possible.
pub const TRIAL_BYTES_MAX: usize = 64 << 20;

/// How much memory can be locked, and in pages of what size.
#[derive(Debug)]
pub struct Memory {
    /// The size of an ordinary page.
    pub page_bytes: usize,
    /// What the soft `RLIMIT_MEMLOCK` allows; `None` is no limit.
    pub lockable_bytes: Option<u64>,
    /// What an ordinary user may raise it to; `None` is no limit.
    pub lockable_bytes_hard: Option<u64>,
    /// The most that `mlock` locked, up to [`TRIAL_BYTES_MAX`].
    pub mlock_bytes: Result<usize, Refused>,
    /// Pages of 2 MiB.
    pub huge: HugePages,
}

/// The two kinds of huge pages.
#[derive(Debug)]
pub struct HugePages {
    /// The size of a page of the pool, and of a transparent one.
    pub page_bytes: usize,
    /// Pages in the pool (`vm.nr_hugepages`) that are free.
    pub pool_free: u64,
    /// Pages in the pool.
    pub pool_total: u64,
    /// The transparent pages' setting: `always`, `madvise`, `never`, or empty if the kernel has none.
    pub transparent: String,
    /// Whether memory that asked for huge pages got one.
    pub got_transparent: Result<(), Refused>,
}

impl Memory {
    pub(super) fn probe() -> Self {
        let (soft, hard) = memlock_limit();
        Self {
            page_bytes: page_bytes(),
            lockable_bytes: soft,
            lockable_bytes_hard: hard,
            mlock_bytes: most(|area| {
                // SAFETY: the range is exactly the mapping, which outlives the lock.
                match unsafe { libc::mlock(area.base.as_ptr(), area.bytes) } {
                    0 => Ok(()),
                    _ => Err(Refused::last("mlock")),
                }
            }),
            huge: HugePages::probe(),
        }
    }
}

impl HugePages {
    fn probe() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let field = |name: &str| number_of(&meminfo, name).unwrap_or(0);
        let page_bytes = usize::try_from(field("Hugepagesize:") << 10)
            .unwrap_or(0)
            .max(2 << 20);
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            page_bytes,
            pool_free: field("HugePages_Free:"),
            pool_total: field("HugePages_Total:"),
            transparent: chosen(&setting.unwrap_or_default()).to_owned(),
            got_transparent: transparent(page_bytes),
        }
    }
}

/// Whether an aligned area that asks for huge pages becomes one.
fn transparent(page_bytes: usize) -> Result<(), Refused> {
    // Twice the size, so that an aligned page lies within.
    let mut area = Area::map(2 * page_bytes)?;
    // SAFETY: the range is exactly the mapping, and the advice changes no contents.
    if unsafe { libc::madvise(area.base.as_ptr(), area.bytes, libc::MADV_HUGEPAGE) } != 0 {
        return Err(Refused::last("madvise(MADV_HUGEPAGE)"));
    }
    area.bytes_mut().fill(1);
    let smaps =
        fs::read_to_string("/proc/self/smaps").map_err(|e| Refused::new("read smaps", e))?;
    match huge_bytes_at(&smaps, area.base.addr().get() + page_bytes) {
        0 => Err(Refused::other(
            "madvise(MADV_HUGEPAGE)",
            "accepted, but the pages stayed small",
        )),
        _ => Ok(()),
    }
}

/// The `AnonHugePages` of the mapping that holds `address`.
fn huge_bytes_at(smaps: &str, address: usize) -> u64 {
    let holds = |line: &str| {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        range.is_some_and(|(from, to)| {
            let from = usize::from_str_radix(from, 16).unwrap_or(usize::MAX);
            (from..usize::from_str_radix(to, 16).unwrap_or(0)).contains(&address)
        })
    };
    let fields = smaps.lines().skip_while(|line| !holds(line));
    let row = fields
        .map(|line| line.strip_prefix("AnonHugePages:"))
        .find_map(|row| row);
    row.and_then(|row| row.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        << 10
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
        .find_map(|l| l.strip_prefix(name))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn memlock_limit() -> (Option<u64>, Option<u64>) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable and of the type that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0 {
        return (None, None);
    }
    let finite = |bytes| (bytes != libc::RLIM_INFINITY).then_some(bytes);
    (finite(limit.rlim_cur), finite(limit.rlim_max))
}

fn page_bytes() -> usize {
    // SAFETY: sysconf only reads its argument.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The largest power of two for which `attempt` succeeds on fresh memory; its refusal if none does.
pub(super) fn most(attempt: impl Fn(&Area) -> Result<(), Refused>) -> Result<usize, Refused> {
    let mut best = None;
    let mut bytes = page_bytes();
    while bytes <= TRIAL_BYTES_MAX {
        match Area::map(bytes).and_then(|area| attempt(&area)) {
            Ok(()) => best = Some(bytes),
            Err(refused) => return best.ok_or(refused),
        }
        bytes *= 2;
    }
    Ok(TRIAL_BYTES_MAX)
}

/// Zeroed memory of this process alone, page by page as it is touched.
#[derive(Debug)]
pub(super) struct Area {
    base: NonNull<libc::c_void>,
    bytes: usize,
}

impl Area {
    pub(super) fn map(bytes: usize) -> Result<Self, Refused> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        match NonNull::new(base) {
            Some(base) if base.as_ptr() != libc::MAP_FAILED => Ok(Self { base, bytes }),
            _ => Err(Refused::new("mmap", io::Error::last_os_error())),
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `bytes` long, readable, writable, zeroed, and ours alone; `&mut self`
        // keeps every other reference away.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().cast(), self.bytes) }
    }

    /// The whole area as the kernel wants it named.
    pub(super) fn iovec(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.base.as_ptr(),
            iov_len: self.bytes,
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping made by `map`, and no reference outlives `self`.
        // Pages that the kernel still holds (pinned, in flight) stay alive until it lets go.
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
    }
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
    fn huge_bytes_are_those_of_the_mapping_that_holds_the_address() {
        let smaps = "1000-2000 rw-p 0 00:00 0\nAnonHugePages:      10 kB\nVmFlags: rd\n\
                     2000-3000 rw-p 0 00:00 0\nAnonHugePages:    2048 kB\nVmFlags: rd\n";
        assert_eq!(huge_bytes_at(smaps, 0x1fff), 10 << 10);
        assert_eq!(huge_bytes_at(smaps, 0x2000), 2 << 20);
        assert_eq!(huge_bytes_at(smaps, 0x3000), 0);
    }

    #[test]
    fn the_most_is_the_last_that_was_granted() {
        let limit = 40 * page_bytes();
        let upto = |area: &Area| match area.bytes <= limit {
            true => Ok(()),
            false => Err(Refused::other("mlock", "too much")),
        };
        assert_eq!(most(upto).unwrap(), 32 * page_bytes());
        assert!(most(|_| Err(Refused::other("mlock", "no"))).is_err());
        assert_eq!(most(|_| Ok(())).unwrap(), TRIAL_BYTES_MAX);
    }
}
