//! Processes that are made, do nothing, and are gone.
//!
//! A child of a program with threads may only do what is safe in a signal handler, and these do
//! less: they leave, or become another program.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

/// Forks a child that leaves at once, and waits for it: the paper's process creation.
pub fn fork_and_wait() -> io::Result<()> {
    // SAFETY: the child makes one async-signal-safe call and is gone.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: `_exit` runs nothing of ours; it does not return.
        0 => unsafe { libc::_exit(0) },
        child => wait_at_most(child, CHILD_SECONDS_MAX * 1000),
    }
}

/// The same without an address space of its own (CLONE_VM, CLONE_VFORK): what `vfork` does.
pub fn vfork_and_wait() -> io::Result<()> {
    extern "C" fn leave(_: *mut libc::c_void) -> i32 {
        0
    }
    // On its own stack the child cannot disturb ours, which is the trap of `vfork` itself.
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `top` is the aligned end of memory that outlives the child, because CLONE_VFORK stops
    // us until the child has left; `leave` touches nothing and its return is `_exit`.
    match unsafe { libc::clone(leave, top, flags, ptr::null_mut()) } {
        -1 => Err(io::Error::last_os_error()),
        // It has ended already.
        child => wait(child),
    }
}

const STACK_BYTES: usize = 64 << 10;

/// Forks a child that becomes the program at `path`, and waits for that to end.
pub fn fork_exec_and_wait(path: &CStr) -> io::Result<()> {
    let arguments = [path.as_ptr(), ptr::null()];
    let environment: [*const libc::c_char; 1] = [ptr::null()];
    // SAFETY: the child makes async-signal-safe calls only.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: strings and both lists end with zero and are the child's own copy.
            unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
            // SAFETY: only reached if there is no such program; does not return.
            unsafe { libc::_exit(127) }
        }
        child => wait_at_most(child, CHILD_SECONDS_MAX * 1000),
    }
}

/// Starts the program at `path` by `posix_spawn`, which does not copy our address space, and waits
/// for it.
pub fn spawn_and_wait(path: &CStr) -> io::Result<()> {
    let arguments = [path.as_ptr().cast_mut(), ptr::null_mut()];
    let environment: [*mut libc::c_char; 1] = [ptr::null_mut()];
    let mut child = 0;
    // SAFETY: the strings and both lists end with zero; no actions and no attributes are given.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut child,
            path.as_ptr(),
            ptr::null(),
            ptr::null(),
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    };
    match error {
        0 => wait_at_most(child, CHILD_SECONDS_MAX * 1000),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// How long a child may take, in seconds, before it is killed and the wait is an error.
pub const CHILD_SECONDS_MAX: i32 = 10;

/// Waits for a child so many milliseconds, then kills it. An error if that was so, or if it did not
/// end with 0.
pub(super) fn wait_at_most(child: libc::pid_t, milliseconds: i32) -> io::Result<()> {
    // Before Linux 5.3 there are no such handles: no bound is better than no measurement.
    let Ok(handle) = pidfd_open(pid(child), PidfdFlags::empty()) else {
        return wait(child);
    };
    if ends_within(
        &handle,
        Duration::from_millis(milliseconds.unsigned_abs().into()),
    )? {
        return wait(child);
    }
    // Nobody has waited for it, so that its number is still its own.
    kill_process(pid(child), Signal::KILL)?;
    wait(child).ok();
    let text = format!("a child did not end within {milliseconds} ms, and was killed");
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Whether there is something to be read, or somebody has ended, within a time.
pub(super) fn ends_within(file: impl AsFd, time: Duration) -> io::Result<bool> {
    let time = time.try_into().map_err(io::Error::other)?;
    Ok(poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&time))? > 0)
}

pub(super) fn pid(child: libc::pid_t) -> Pid {
    Pid::from_raw(child).expect("a child has a number above 0")
}

/// Waits for a child and takes it away. An error if it did not end with 0.
pub(super) fn wait(child: libc::pid_t) -> io::Result<()> {
    let ended = loop {
        match waitpid(Some(pid(child)), WaitOptions::empty()) {
            Err(Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(error.into()),
            Ok(Some((_, status))) => break status.as_raw(),
        }
    };
    match ended {
        0 => Ok(()),
        status => Err(io::Error::other(format!(
            "the child ended with status {status:#x}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_come_and_go() {
        fork_and_wait().unwrap();
        vfork_and_wait().unwrap();
        fork_exec_and_wait(c"/bin/true").unwrap();
        spawn_and_wait(c"/bin/true").unwrap();
    }

    #[test]
    fn a_child_that_is_stuck_is_killed() {
        // SAFETY: the child makes async-signal-safe calls only, and never returns to our code.
        let stuck = super::super::switch::fork(|| unsafe {
            libc::sleep(1000);
        });
        let stuck = stuck.unwrap();
        let error = wait_at_most(stuck, 50).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        // SAFETY: takes integers; signal 0 only asks.
        let asked = unsafe { libc::kill(stuck, 0) };
        assert_ne!(asked, 0, "it is gone and taken away");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(spawn_and_wait(c"/no/such").is_err());
        let error = fork_exec_and_wait(c"/no/such").unwrap_err().to_string();
        assert!(error.contains("0x7f00"), "{error}");
    }
}
