//! Segments: memory that several processes map.
//!
//! Each process attaches a segment where it likes and locks what it likes through its own
//! [`Manager`](super::Manager); the frames behind the pages are the same for all, so one receive
//! into pinned shared memory serves them all. Nothing here locks.
//!
//! ```
//! use onrush_lock::{Kind, Manager, Segment};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ours = Segment::sysv(64 << 10)?;
//! let id = ours.sysv_id().expect("it is a SysV segment"); // Told to another process.
//! let theirs = Segment::attach_sysv(id)?;
//! let area = Manager::of_process().lock(theirs.bytes(), Kind::Pinned)?;
//! assert_eq!(area.bytes().len(), ours.bytes().len());
//! # Ok(())
//! # }
//! ```

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;

use thiserror::Error;

use super::{SEALED_MAX, pointer};
use crate::memory::page_bytes;

/// A mapping of memory that other processes may map too. Dropping it detaches it; locks on it do
/// not keep it, but pinned pages stay until their handle is dropped.
///
/// ```
/// use onrush_lock::{Segment, memfd};
///
/// # fn main() -> Result<(), onrush_lock::SegmentError> {
/// let file = memfd(8192)?;
/// let one = Segment::map(&file, 8192)?;
/// let other = Segment::map(&file, 8192)?; // As another process would that has the descriptor.
/// assert!(one.bytes() != other.bytes() && one.sysv_id().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Segment {
    bytes: Range<usize>,
    sysv_id: Option<i32>,
}

/// Why there is no segment.
///
/// ```
/// use onrush_lock::{Segment, SegmentError};
///
/// assert!(matches!(Segment::sysv(0), Err(SegmentError::Size { bytes_total: 0 })));
/// let error = Segment::attach_sysv(-1).unwrap_err();
/// assert!(error.to_string().contains("does its maker still run"));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Zero bytes, or more than an address space holds.
    #[error("{bytes_total} bytes are no size for a segment")]
    Size {
        /// The size asked for.
        bytes_total: usize,
    },
    /// No new SysV segment.
    #[error(
        "cannot make a SysV segment of {bytes_total} bytes: {source}; see kernel.shmmax, shmall \
         and shmmni"
    )]
    Create {
        /// The size asked for.
        bytes_total: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The SysV segment cannot be attached.
    #[error("cannot attach SysV segment {id}: {source}; does its maker still run and let us?")]
    Attach {
        /// Its number.
        id: i32,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel does not seal mappings.
    #[error(
        "cannot seal {bytes_total} bytes of memory: {source}; Linux 6.10 is needed, of 64 bits"
    )]
    Seal {
        /// The size asked for.
        bytes_total: usize,
        /// What the system said.
        source: io::Error,
    },
    /// As much sealed memory as there may be.
    #[error(
        "there are {SEALED_MAX} pieces of sealed memory, the most there may be; take fewer, larger \
         ones"
    )]
    Sealed,
    /// The file cannot be made, sized, or mapped.
    #[error("cannot {action} {bytes_total} bytes of shared memory: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The size asked for.
        bytes_total: usize,
        /// What the system said.
        source: io::Error,
    },
}

impl Segment {
    /// Makes a SysV segment and attaches it. It exists as long as somebody has it attached,
    /// whatever becomes of this process.
    ///
    /// ```
    /// use onrush_lock::Segment;
    ///
    /// # fn main() -> Result<(), onrush_lock::SegmentError> {
    /// let segment = Segment::sysv(10_000)?;
    /// assert!(segment.bytes().len() >= 10_000 && segment.sysv_id().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What shmget(2) and shmat(2) say: ENOSPC and EINVAL beyond kernel.shmmni, shmall and shmmax.
    pub fn sysv(bytes_total: usize) -> Result<Self, SegmentError> {
        check(bytes_total)?;
        let flags = libc::IPC_CREAT | 0o600;
        // SAFETY: shmget has no preconditions.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, bytes_total, flags) };
        if id < 0 {
            let source = io::Error::last_os_error();
            return Err(SegmentError::Create {
                bytes_total,
                source,
            });
        }
        let segment = Self::attach_sysv(id);
        // Linux lets others attach a segment that is marked for removal, as long as it is attached
        // somewhere. SAFETY: IPC_RMID takes no argument.
        unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
        segment
    }

    /// Attaches the SysV segment that another process, or this one, has made.
    ///
    /// ```
    /// use onrush_lock::Segment;
    ///
    /// # fn main() -> Result<(), onrush_lock::SegmentError> {
    /// let ours = Segment::sysv(4096)?;
    /// let id = ours.sysv_id().expect("SysV segments have one");
    /// // Told to another process, which does:
    /// let theirs = Segment::attach_sysv(id)?;
    /// assert_eq!(theirs.bytes().len(), ours.bytes().len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What shmat(2) says: EINVAL if there is none of that number, EACCES if it is closed to this
    /// process.
    pub fn attach_sysv(id: i32) -> Result<Self, SegmentError> {
        let failed = |source| SegmentError::Attach { id, source };
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: IPC_STAT writes a shmid_ds to the argument.
        if unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) } != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        // SAFETY: attached at an address of the kernel's choice, it touches nothing of ours.
        let base = unsafe { libc::shmat(id, ptr::null(), 0) };
        if base.addr() == usize::MAX {
            return Err(failed(io::Error::last_os_error()));
        }
        let start = base.expose_provenance();
        Ok(Self {
            bytes: start..start + status.shm_segsz.next_multiple_of(page_bytes()),
            sysv_id: Some(id),
        })
    }

    /// Maps the first `bytes_total` bytes of a file, a memfd or POSIX shared memory, shared and
    /// writable.
    ///
    /// ```
    /// use std::fs::File;
    /// use onrush_lock::Segment;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = tempfile::tempfile()?;
    /// file.set_len(8192)?;
    /// // May be resident; pinned only if it is in memory (tmpfs).
    /// let segment = Segment::map(&file, 8192)?;
    /// assert_eq!(segment.bytes().len(), 8192);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What mmap(2) says, or that the file is shorter.
    pub fn map(file: &File, bytes_total: usize) -> Result<Self, SegmentError> {
        check(bytes_total)?;
        let bytes_total = bytes_total.next_multiple_of(page_bytes());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes_total, protection, shared, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(file_error("map", bytes_total));
        }
        let start = base.expose_provenance();
        Ok(Self {
            bytes: start..start + bytes_total,
            sysv_id: None,
        })
    }

    /// Its addresses in this process, whole pages.
    #[must_use]
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// The number by which others attach it, if it is a SysV segment.
    #[must_use]
    pub fn sysv_id(&self) -> Option<i32> {
        self.sysv_id
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let base = pointer(&self.bytes);
        if self.sysv_id.is_some() {
            // SAFETY: the address is that of our own attachment. Who keeps pointers into it was
            // told that it ends here.
            unsafe { libc::shmdt(base.cast()) };
        } else {
            // SAFETY: as above, for our own mapping.
            unsafe { libc::munmap(base.cast(), self.bytes.len()) };
        }
    }
}

/// A new anonymous file of `bytes_total` bytes in memory, for [`Segment::map`]; whoever gets its
/// descriptor can map it too.
///
/// ```
/// use onrush_lock::{Kind, Manager, Segment, memfd};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Segment::map(&memfd(64 << 10)?, 64 << 10)?;
/// let area = Manager::of_process().lock(segment.bytes(), Kind::Pinned)?;
/// assert!(area.is_held());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What memfd_create(2) and ftruncate(2) say.
pub fn memfd(bytes_total: usize) -> Result<File, SegmentError> {
    check(bytes_total)?;
    // SAFETY: the name is a C string; memfd_create has no other preconditions.
    let fd = unsafe { libc::memfd_create(c"onrush".as_ptr(), libc::MFD_CLOEXEC) };
    sized(fd, bytes_total)
}

/// POSIX shared memory of this name, made if there is none, `bytes_total` bytes long.
/// [`unlink_posix`] takes the name away again.
///
/// ```
/// use onrush_lock::{Segment, posix, unlink_posix};
///
/// # fn main() -> Result<(), onrush_lock::SegmentError> {
/// let name = format!("/onrush-example-{}", std::process::id());
/// let ours = Segment::map(&posix(&name, 8192)?, 8192)?;
/// let theirs = Segment::map(&posix(&name, 8192)?, 8192)?; // By name, in any process.
/// unlink_posix(&name)?;
/// assert_eq!(ours.bytes().len(), theirs.bytes().len());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What shm_open(3) says: EEXIST if there is one of that name, EINVAL if it is no name.
pub fn posix(name: &str, bytes_total: usize) -> Result<File, SegmentError> {
    check(bytes_total)?;
    let flags = libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC;
    let name = c_string(name, bytes_total)?;
    // SAFETY: the name is a C string; shm_open has no other preconditions.
    let fd = unsafe { libc::shm_open(name.as_ptr(), flags, 0o600) };
    sized(fd, bytes_total)
}

/// Takes the name of POSIX shared memory away; who has mapped it keeps it.
///
/// ```
/// use onrush_lock::{posix, unlink_posix};
///
/// # fn main() -> Result<(), onrush_lock::SegmentError> {
/// let name = format!("/onrush-example-name-{}", std::process::id());
/// let file = posix(&name, 4096)?;
/// unlink_posix(&name)?;
/// assert!(unlink_posix(&name).is_err());
/// // Still there for those who have it.
/// assert_eq!(file.metadata().map(|m| m.len()).ok(), Some(4096));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// What shm_unlink(3) says: ENOENT if there is none of that name.
pub fn unlink_posix(name: &str) -> Result<(), SegmentError> {
    let name = c_string(name, 0)?;
    // SAFETY: the name is a C string.
    if unsafe { libc::shm_unlink(name.as_ptr()) } != 0 {
        return Err(file_error("unlink", 0));
    }
    Ok(())
}

pub(super) fn check(bytes_total: usize) -> Result<(), SegmentError> {
    if bytes_total == 0 || isize::try_from(bytes_total).is_err() {
        return Err(SegmentError::Size { bytes_total });
    }
    Ok(())
}

fn c_string(name: &str, bytes_total: usize) -> Result<CString, SegmentError> {
    CString::new(name).map_err(|source| SegmentError::File {
        action: "name",
        bytes_total,
        source: source.into(),
    })
}

fn sized(fd: libc::c_int, bytes_total: usize) -> Result<File, SegmentError> {
    if fd < 0 {
        return Err(file_error("make", bytes_total));
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let file = unsafe { File::from_raw_fd(fd) };
    let result = file.set_len(bytes_total as u64);
    result.map_err(|source| SegmentError::File {
        action: "reserve",
        bytes_total,
        source,
    })?;
    Ok(file)
}

fn file_error(action: &'static str, bytes_total: usize) -> SegmentError {
    let source = io::Error::last_os_error();
    SegmentError::File {
        action,
        bytes_total,
        source,
    }
}
