//! Crossings into the kernel and back that do next to nothing, and what looks like one and is none.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Asks the kernel who our parent is: the paper's system call that nobody can answer from memory.
pub fn getppid(times: u64) -> i32 {
    let mut parent = 0;
    for _ in 0..times {
        // SAFETY: getppid takes nothing and cannot fail.
        parent = unsafe { libc::getppid() };
    }
    parent
}

/// Asks the kernel who we are. The C library kept the answer until its version 2.25; now it asks
/// each time.
pub fn getpid(times: u64) -> i32 {
    let mut process = 0;
    for _ in 0..times {
        // SAFETY: getpid takes nothing and cannot fail.
        process = unsafe { libc::getpid() };
    }
    process
}

/// Tells who we are from memory, as the C library did when the paper was written.
pub fn cached_getpid(times: u64) -> i32 {
    let mut process = 0;
    for _ in 0..times {
        process = cached();
    }
    process
}

#[inline(never)]
fn cached() -> i32 {
    let known = PROCESS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let process = getpid(1);
    PROCESS.store(process, Ordering::Relaxed);
    process
}

/// Asks the time through the vDSO: kernel code that runs without a crossing.
pub fn vdso_time(times: u64) {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    for _ in 0..times {
        // SAFETY: `now` is valid for a timespec to be written to.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    }
}

/// Asks the same by a real system call.
pub fn crossing_time(times: u64) {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    let (clock, at) = (libc::CLOCK_MONOTONIC, now.as_mut_ptr());
    for _ in 0..times {
        // SAFETY: as in `vdso_time`; clock_gettime takes these two arguments.
        unsafe { libc::syscall(libc::SYS_clock_gettime, clock, at) };
    }
}

/// A pipe to oneself: writes a byte and reads it back, which no switch is needed for.
pub fn pipe_alone(ends: &mut (io::PipeReader, io::PipeWriter), times: u64) -> io::Result<()> {
    use io::{Read, Write};
    let mut byte = [0_u8; 1];
    for _ in 0..times {
        ends.1.write_all(&byte)?;
        ends.0.read_exact(&mut byte)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_true() {
        assert_eq!(getpid(1), i32::try_from(std::process::id()).unwrap());
        assert_eq!(cached_getpid(3), getpid(2));
        assert_eq!(
            getppid(2),
            i32::try_from(std::os::unix::process::parent_id()).unwrap()
        );
        vdso_time(2);
        crossing_time(2);
        pipe_alone(&mut io::pipe().unwrap(), 3).unwrap();
    }
}
