//! What becomes of a system call that the filter refuses: SIGSYS in the thread that made it, whose
//! handler writes a line to stderr, once for each call, and has the call return EPERM.

use std::io;

use seccompiler::SeccompAction;

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::action;

/// Where it is not known how a call's result is set in a handler, the kernel returns EPERM itself,
/// and what was refused stands nowhere.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn action() -> io::Result<SeccompAction> {
    Ok(SeccompAction::Errno(libc::EPERM.unsigned_abs()))
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::mem;
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{SeccompAction, io};

    /// More than there are calls.
    const NUMBERS: usize = 1024;

    /// A bit for each call that has been named.
    static NAMED: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

    /// SIGSYS for what is refused, with its handler in place.
    ///
    /// # Errors
    ///
    /// sigaction(2)'s.
    pub(in super::super) fn action() -> io::Result<SeccompAction> {
        // SAFETY: all zeroes are a sigaction: the default action, with an empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = refuse;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: `action` is initialised; its handler has the signature that SA_SIGINFO asks for,
        // and calls nothing but write(2), which is async-signal-safe (signal-safety(7)).
        let r = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) };
        match r {
            0 => Ok(SeccompAction::Trap),
            _ => Err(io::Error::last_os_error()),
        }
    }

    extern "C" fn refuse(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let context: *mut libc::ucontext_t = context.cast();
        // SAFETY: the kernel passes a handler with SA_SIGINFO the context of the thread that it
        // interrupted, which lies on this thread's stack until the handler returns.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        // The kernel has put back what the call was entered with (syscall_rollback()): its number.
        let result = &mut registers[libc::REG_RAX as usize];
        let number = usize::try_from(*result).unwrap_or(usize::MAX);
        *result = -i64::from(libc::EPERM);
        if let Some(named) = NAMED.get(number / 64)
            && named.fetch_or(1 << (number % 64), Ordering::Relaxed) >> (number % 64) & 1 == 0
        {
            name(number);
        }
    }

    /// Writes one line, without a lock or memory of its own.
    fn name(number: usize) {
        const BEFORE: &[u8] = b"WARN sandbox: system call ";
        const AFTER: &[u8] = b" was refused (EPERM); please report it\n";
        const DIGITS_MAX: usize = 4;
        let mut line = [0_u8; BEFORE.len() + DIGITS_MAX + AFTER.len()];
        line[..BEFORE.len()].copy_from_slice(BEFORE);
        let mut end = BEFORE.len();
        for power in [1000, 100, 10, 1] {
            if number >= power || power == 1 {
                let digit = u8::try_from(number / power % 10).unwrap_or(0);
                line[end] = b'0' + digit;
                end += 1;
            }
        }
        line[end..end + AFTER.len()].copy_from_slice(AFTER);
        let bytes = end + AFTER.len();
        // SAFETY: this takes no arguments; the place is this thread's own for as long as it runs.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: it points to this thread's errno, which nobody else writes.
        let before = unsafe { *errno };
        // SAFETY: this reads the local, which has so many bytes.
        unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), bytes) };
        // SAFETY: as above; whoever was interrupted finds its own.
        unsafe { *errno = before };
    }
}
