//! SysV segments, where a measurement undoes what it did.

use std::io;
use std::ptr;

/// SHM_UNLOCK of a whole SysV segment: its pages may be reclaimed again.
///
/// # Errors
///
/// What the system says.
pub fn shm_unlock(id: i32) -> io::Result<()> {
    // SAFETY: SHM_UNLOCK takes no argument.
    match unsafe { libc::shmctl(id, libc::SHM_UNLOCK, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
