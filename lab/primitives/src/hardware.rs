//! What a thread's processor counts of it, in user and kernel mode: perf_event_open(2).
//!
//! Many virtual machines show no such counters, and accounts without rights may not open them:
//! nobody may depend on them.

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
    /// What the system says.
    pub fn read(&self) -> io::Result<Counted> {
        let [instructions, misses] = &self.0;
        Ok(Counted {
            instructions: read(instructions)?,
            misses: read(misses)?,
        })
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
    /// None: it counts at once, in both modes, this thread alone.
    pub(crate) flags: u64,
    pub(crate) wakeup_events: u32,
    pub(crate) breakpoint_type: u32,
    pub(crate) breakpoint_address: u64,
}

pub(crate) const TYPE_HARDWARE: u32 = 0;
pub(crate) const INSTRUCTIONS: u64 = 1;
pub(crate) const CACHE_MISSES: u64 = 3;
/// As many bytes as the structure has in `PERF_ATTR_SIZE_VER0`.
const ATTRIBUTES_BYTES: u32 = 64;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_BYTES as usize);
const _: () = assert!(offset_of!(Attributes, flags) == 40);

fn open(kind: u32, config: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind,
        config,
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

fn read(fd: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    // SAFETY: as many bytes as are given are writable.
    let length = unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    match usize::try_from(length) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let before = read(&counter).unwrap();
        let sum: u64 = (0..1_000_000_u64).map(std::hint::black_box).sum();
        assert_eq!(sum, 499_999_500_000);
        assert!(read(&counter).unwrap() > before);
    }

    #[test]
    fn processors_count_or_say_why_not() {
        match HardwareCounters::open() {
            Ok(counters) => assert!(counters.read().unwrap().instructions > 0),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
