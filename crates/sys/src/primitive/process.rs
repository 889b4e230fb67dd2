//! Processes that are made, do nothing, and are gone.
//!
//! A child of a program with threads may only do what is safe in a signal handler, and these do less: they
//! leave, or become another program.

use std::ffi::CStr;
use std::io;
use std::ptr;

/// Forks a child that leaves at once, and waits for it: the paper's process creation.
pub fn fork_and_wait() -> io::Result<()> {
    // SAFETY: the child makes one async-signal-safe call and is gone.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: `_exit` runs nothing of ours; it does not return.
        0 => unsafe { libc::_exit(0) },
        child => wait(child),
    }
}

/// The same without an address space of its own (CLONE_VM, CLONE_VFORK): what `vfork` does.
pub fn vfork_and_wait() -> io::Result<()> {
    extern "C" fn leave(_: *mut libc::c_void) -> i32 {
        0
    }
    // On its own stack the child can not disturb ours, which is the trap of `vfork` itself.
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `top` is the aligned end of memory that outlives the child, because CLONE_VFORK stops us until
    // the child has left; `leave` touches nothing and its return is `_exit`.
    match unsafe { libc::clone(leave, top, flags, ptr::null_mut()) } {
        -1 => Err(io::Error::last_os_error()),
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
        child => wait(child),
    }
}

/// Starts the program at `path` by `posix_spawn`, which does not copy our address space, and waits for it.
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
        0 => wait(child),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Waits for a child and takes it away. An error if it did not end with 0.
pub(super) fn wait(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid to write to; only our own child is waited for.
        let r = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if r == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match status {
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
    fn a_program_that_is_not_there_is_an_error() {
        assert!(spawn_and_wait(c"/no/such").is_err());
        let error = fork_exec_and_wait(c"/no/such").unwrap_err().to_string();
        assert!(error.contains("0x7f00"), "{error}");
    }
}
