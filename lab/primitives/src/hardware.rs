//! What a thread's processor counts of it, in user and kernel mode: perf_event_open(2).
//!
//! Many virtual machines show no such counters, and accounts without rights may not open them:
//! nobody may depend on them. Numbers of instructions hold on a busy host, where times do not.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Instructions that were executed, and memory accesses that no cache could serve.
#[derive(Debug)]
pub struct HardwareCounters([OwnedFd; 2]);

/// What was counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// Instructions.
    pub instructions: u64,
    /// Misses of the last cache.
    pub misses: u64,
}

impl HardwareCounters {
    /// Counts what the calling thread does from now on.
    ///
    /// # Errors
    ///
    /// ENOENT or EOPNOTSUPP where the processor shows none; EACCES without the right to it.
    pub fn open() -> io::Result<Self> {
        Ok(Self([
            open(TYPE_HARDWARE, INSTRUCTIONS)?,
            open(TYPE_HARDWARE, CACHE_MISSES)?,
        ]))
    }

    /// What was counted since it was opened.
    ///
    /// # Errors
    ///
    /// What the system says; `Unsupported` if the thread ran and nothing was counted.
    pub fn read(&self) -> io::Result<Counted> {
        let [[instructions, ..], [misses, ..]] = read_together(self.0.each_ref())?;
        Ok(Counted {
            instructions,
            misses,
        })
    }
}

/// What was counted of threads in one mode.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Events {
    /// Instructions.
    pub instructions: u64,
    /// Cycles of the processor's clock, as fast as it ran.
    pub cycles: u64,
    /// Misses of the last cache.
    pub misses: u64,
}

/// Counters of a thread and of those that it starts from then on, user and kernel mode apart.
#[derive(Debug)]
pub struct ThreadCounters {
    user: [OwnedFd; 3],
    kernel: [OwnedFd; 3],
}

impl ThreadCounters {
    /// Counts what thread `thread` does from now on; 0 is the caller.
    ///
    /// # Errors
    ///
    /// ENOENT or EOPNOTSUPP where the processor shows no counters; EACCES without the right to
    /// them; ESRCH if there is no such thread.
    pub fn open(thread: u32) -> io::Result<Self> {
        let events = [INSTRUCTIONS, CYCLES, CACHE_MISSES];
        Self::open_events(thread, events.map(|event| (TYPE_HARDWARE, event)))
    }

    fn open_events(thread: u32, [first, second, third]: [(u32, u64); 3]) -> io::Result<Self> {
        let number = i32::try_from(thread).map_err(io::Error::other)?;
        let any = -1;
        // Each alone: threads that are started later are counted of events alone, not of groups.
        let open = |(kind, config): (u32, u64), without: u64| {
            let attributes = Attributes {
                kind,
                config,
                read_format: TOTAL_TIMES,
                flags: INHERIT | without,
                ..Attributes::default()
            };
            open_with(attributes, number, any)
        };
        let all = |without: u64| {
            Ok::<_, io::Error>([
                open(first, without)?,
                open(second, without)?,
                open(third, without)?,
            ])
        };
        Ok(Self {
            user: all(EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)?,
            kernel: all(EXCLUDE_USER | EXCLUDE_HYPERVISOR)?,
        })
    }

    /// What was counted so far, in user and in kernel mode. Where more is counted than the
    /// processor has counters for, they take turns, and each count is what it would have been.
    ///
    /// # Errors
    ///
    /// What the system says; `Unsupported` if the thread ran and nothing was counted.
    pub fn read(&self) -> io::Result<[Events; 2]> {
        let ([a, b, c], [d, e, f]) = (&self.user, &self.kernel);
        let [a, b, c, d, e, f] = read_together([a, b, c, d, e, f])?.map(scaled);
        let of = |[instructions, cycles, misses]: [u64; 3]| Events {
            instructions,
            cycles,
            misses,
        };
        Ok([of([a, b, c]), of([d, e, f])])
    }
}

/// `struct perf_event_attr` as it was at first, which every kernel takes.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Attributes {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) sample_period: u64,
    pub(crate) sample_type: u64,
    pub(crate) read_format: u64,
    /// None: it counts at once, in both modes, that thread alone.
    pub(crate) flags: u64,
    pub(crate) wakeup_events: u32,
    pub(crate) breakpoint_type: u32,
    pub(crate) breakpoint_address: u64,
}

pub(crate) const TYPE_HARDWARE: u32 = 0;
const CYCLES: u64 = 0;
pub(crate) const INSTRUCTIONS: u64 = 1;
pub(crate) const CACHE_MISSES: u64 = 3;
/// As many bytes as the structure has in `PERF_ATTR_SIZE_VER0`.
const ATTRIBUTES_BYTES: u32 = 64;
/// Bits of `flags`, in their order: `inherit`, `exclude_user`, `exclude_kernel`, `exclude_hv`.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `PERF_FORMAT_TOTAL_TIME_RUNNING`.
const TOTAL_TIMES: u64 = 1 | 2;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_BYTES as usize);
const _: () = assert!(offset_of!(Attributes, flags) == 40);

fn open(kind: u32, config: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind,
        config,
        read_format: TOTAL_TIMES,
        ..Attributes::default()
    };
    let (this_thread, any) = (0, -1);
    open_with(attributes, this_thread, any)
}

/// Opens an event of a thread (0: the caller; -1: all) on a processor (-1: any).
pub(crate) fn open_with(mut attributes: Attributes, thread: i32, core: i32) -> io::Result<OwnedFd> {
    attributes.size = ATTRIBUTES_BYTES;
    let (call, no_group) = (libc::SYS_perf_event_open, -1);
    // SAFETY: the structure is readable for as many bytes as it says, and is only read.
    let fd = unsafe {
        libc::syscall(
            call,
            &raw const attributes,
            thread,
            core,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let Ok(fd @ 0..) = i32::try_from(fd) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: the descriptor is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What is read of events that were opened together: of each its count, for how long it was to
/// count, and for how long it did.
fn read_together<const EVENTS: usize>(
    events: [&OwnedFd; EVENTS],
) -> io::Result<[[u64; 3]; EVENTS]> {
    let mut read = [[0; 3]; EVENTS];
    for (read, event) in read.iter_mut().zip(events) {
        *read = read_words(event)?;
    }
    match is_uncounted(&read) {
        true => Err(io::ErrorKind::Unsupported.into()),
        false => Ok(read),
    }
}

/// Whether the thread ran and no event was counted for any of that time: on a machine with two
/// kinds of processors one kind may have no such counters.
fn is_uncounted(events: &[[u64; 3]]) -> bool {
    let has_run = events.iter().any(|[_, enabled_ns, _]| *enabled_ns > 0);
    has_run && events.iter().all(|[_, _, running_ns]| *running_ns == 0)
}

/// A count that was taken for a part of the time, as it would have been for all of it. What had no
/// turn counts as nothing.
fn scaled([count, enabled_ns, running_ns]: [u64; 3]) -> u64 {
    let whole = u128::from(count) * u128::from(enabled_ns);
    let scaled = whole.checked_div(u128::from(running_ns)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

fn read_words<const WORDS: usize>(fd: &OwnedFd) -> io::Result<[u64; WORDS]> {
    let mut words = [0_u64; WORDS];
    let bytes = size_of_val(&words);
    // SAFETY: as many bytes as are given are writable, and any bytes are numbers.
    let length = unsafe { libc::read(fd.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
    match usize::try_from(length) {
        Ok(length) if length == bytes => Ok(words),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of which no page was touched yet, in pages of 4 KB.
    struct Untouched(*mut u8, usize);

    impl Untouched {
        fn new(bytes: usize) -> Self {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let flags = flags | libc::MAP_ANONYMOUS;
            let at = std::ptr::null_mut();
            // SAFETY: new memory, which nobody has yet.
            let memory = unsafe { libc::mmap(at, bytes, protection, flags, -1, 0) };
            assert_ne!(memory, libc::MAP_FAILED);
            // SAFETY: it is what was mapped.
            let advised = unsafe { libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE) };
            assert_eq!(advised, 0);
            Self(memory.cast(), bytes)
        }

        /// Where each page begins.
        fn pages(&self) -> impl Iterator<Item = *mut u8> + '_ {
            (0..self.1).step_by(4096).map(|at| self.0.wrapping_add(at))
        }
    }

    impl Drop for Untouched {
        fn drop(&mut self) {
            // SAFETY: it was mapped with that length, and nobody has a pointer to it any more.
            unsafe { libc::munmap(self.0.cast(), self.1) };
        }
    }

    /// A counter of the kernel's own, which opens where the processor shows none.
    #[test]
    fn what_a_thread_does_is_counted() {
        const SOFTWARE: u32 = 1;
        const TASK_CLOCK: u64 = 1;
        let counter = match open(SOFTWARE, TASK_CLOCK) {
            Ok(counter) => counter,
            // Accounts without rights may be refused all of them.
            Err(error) => return assert!(error.raw_os_error().is_some(), "{error}"),
        };
        let count = || {
            let [[count, ..]] = read_together([&counter]).unwrap();
            count
        };
        let before = count();
        let sum: u64 = (0..1_000_000_u64).map(std::hint::black_box).sum();
        assert_eq!(sum, 499_999_500_000);
        assert!(count() > before);
    }

    /// Pages that are touched for the first time, by whom is told apart: an event of the kernel's
    /// own, which knows modes as the processor's do.
    #[test]
    fn modes_are_apart_and_threads_that_come_later_count() {
        const SOFTWARE: u32 = 1;
        const PAGE_FAULTS: u64 = 2;
        const PAGES: usize = 256;
        let touch_in_user_mode = || {
            let memory = Untouched::new(PAGES * 4096);
            memory.pages().for_each(|page| {
                // SAFETY: the page is mapped, writable, and nobody else's.
                unsafe { page.write_volatile(1) };
            });
        };
        let touch_in_kernel_mode = || {
            let memory = Untouched::new(PAGES * 4096);
            let zeros = std::fs::File::open("/dev/zero").unwrap();
            let all = memory.pages().next().unwrap();
            // SAFETY: as many bytes are mapped and writable.
            let read = unsafe { libc::read(zeros.as_raw_fd(), all.cast(), PAGES * 4096) };
            assert_eq!(usize::try_from(read).unwrap(), PAGES * 4096);
        };
        let faults = ThreadCounters::open_events(0, [(SOFTWARE, PAGE_FAULTS); 3]);
        let faults = match faults {
            Ok(faults) => faults,
            // Accounts without rights may be refused all of them.
            Err(error) => return assert!(error.raw_os_error().is_some(), "{error}"),
        };
        let seen = |work: &(dyn Fn() + Sync)| {
            let before = faults.read().unwrap();
            work();
            let after = faults.read().unwrap();
            [0, 1].map(|mode| after[mode].cycles - before[mode].cycles)
        };
        let many = u64::try_from(PAGES).unwrap();
        let few = many / 2;
        let [user, kernel] = seen(&touch_in_user_mode);
        assert!(user >= many && kernel < few, "{user} {kernel}");
        let [user, kernel] = seen(&touch_in_kernel_mode);
        assert!(kernel >= many && user < few, "{user} {kernel}");
        let [user, kernel] = seen(&|| {
            std::thread::scope(|scope| {
                scope.spawn(touch_in_user_mode);
            });
        });
        assert!(user >= many && kernel < few, "{user} {kernel}");
    }

    #[test]
    fn counts_of_a_part_of_the_time_are_told_of_all_of_it() {
        assert_eq!(scaled([100, 4000, 4000]), 100);
        assert_eq!(scaled([100, 4000, 1000]), 400);
        assert_eq!(scaled([0, 4000, 0]), 0);
        assert_eq!(scaled([u64::MAX, 4000, 1]), u64::MAX);
    }

    #[test]
    fn a_processor_that_counts_nothing_is_not_one_that_did_nothing() {
        // It ran where there are no counters for it.
        assert!(is_uncounted(&[[0, 4000, 0], [0, 4000, 0]]));
        // It has not run since; events take turns.
        assert!(!is_uncounted(&[[0, 0, 0], [0, 0, 0]]));
        assert!(!is_uncounted(&[[100, 4000, 4000], [0, 4000, 0]]));
    }

    #[test]
    fn processors_count_or_say_why_not() {
        match HardwareCounters::open() {
            Ok(counters) => assert!(counters.read().unwrap().instructions > 0),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
