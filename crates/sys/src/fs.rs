//! Files under a directory, and nothing outside it.
//!
//! The kernel resolves the name (`openat2` with `RESOLVE_BENEATH`, Linux 5.6), so that no rename or
//! link planted between a check and the open can lead out. Where it cannot, the name is resolved
//! first and compared with what was opened after.

mod folder;

pub use folder::{Folder, free_bytes, lock, set_apart};

use std::ffi::{CString, c_long};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{AtFlags, StatxFlags, fstatfs, makedev, statx};

// Never the controlling terminal; and never waiting for the other end of a FIFO.
const OPEN_FLAGS: i32 = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;

/// How often the kernel is asked to open a name that others disturb.
const OPEN_ATTEMPTS: usize = 8;

/// A directory that names are looked up in.
#[derive(Debug)]
pub struct Root {
    /// Another one once [`Self::renew`] has found it.
    directory: RwLock<Arc<Directory>>,
    path: PathBuf,
}

#[derive(Debug)]
struct Directory {
    file: File,
    /// Files are opened by asking a server, or another process.
    asks_others: bool,
    device: u64,
    /// The number of its inode. No other gets it on that device, as long as the directory is open.
    inode: u64,
}

impl Root {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    ///
    /// What the system says; `ENOTDIR` if it is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let directory = RwLock::new(Arc::new(Directory::open(&path)?));
        Ok(Self { directory, path })
    }

    /// Looks whether another directory is at its path by now, because one was mounted or moved
    /// there, and if so looks names up in that one from now on. Whether it is so. What was opened
    /// before stays open. Where nothing is at the path any more, the directory stays. May wait for
    /// a disk.
    ///
    /// # Errors
    ///
    /// Why the other one cannot be opened: the directory stays, too.
    pub fn renew(&self) -> io::Result<bool> {
        let Ok(there) = fs::metadata(&self.path) else {
            return Ok(false);
        };
        let before = self.directory();
        // It is not asked what it is: were its file system dead, it would answer `ENOTCONN` (FUSE),
        // `ESTALE` (NFS), or never.
        if (there.dev(), there.ino()) == (before.device, before.inode) {
            return Ok(false);
        }
        let directory = Arc::new(Directory::open(&self.path)?);
        let mut own = self
            .directory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *own = directory;
        Ok(true)
    }

    /// The directory's path, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the device that the directory lies on, as [`device`] has it.
    #[must_use]
    pub fn device(&self) -> u64 {
        self.directory().device
    }

    /// When what is in it was last added, renamed or removed, in seconds since 1970; 0 if the
    /// system does not tell.
    #[must_use]
    pub fn modified_s(&self) -> i64 {
        let metadata = self.directory().file.metadata();
        metadata.map_or(0, |it| it.mtime())
    }

    /// Opens `relative` for reading. Symbolic links are followed as long as they stay under the
    /// root.
    ///
    /// What is opened may be anything: a directory, a FIFO, a device. Ask its metadata before
    /// reading.
    ///
    /// # Errors
    ///
    /// `EXDEV` if the name leads out of the root, `ENXIO` if it is neither a file nor a directory
    /// and does not open (a socket, a device without a medium); else what the system says.
    pub fn open_beneath(&self, relative: &Path) -> io::Result<File> {
        self.open_any(relative).map_err(|error| {
            let names_nothing = matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ENOTDIR | libc::EXDEV | libc::ELOOP | libc::ENAMETOOLONG)
            );
            if !names_nothing && self.is_special(relative) {
                return io::Error::from_raw_os_error(libc::ENXIO);
            }
            error
        })
    }

    fn open_any(&self, relative: &Path) -> io::Result<File> {
        let answer = self.open_undisturbed(relative);
        match answer.as_ref().err().and_then(io::Error::raw_os_error) {
            // An absolute link leads out for the kernel, even one to a place under the root.
            Some(libc::EXDEV) => self.open_undisturbed(&self.resolve(relative)?),
            // Missing (before Linux 5.6), forbidden by a container's seccomp filter, or disturbed
            // each time.
            Some(libc::ENOSYS | libc::EPERM | libc::EAGAIN) => self.open_resolved(relative),
            _ => answer,
        }
    }

    /// Opens `relative` by the kernel, again where a rename or a mount came between: of `..`, which
    /// links may have, it says EAGAIN then, wherever on the machine that was (openat2(2)).
    fn open_undisturbed(&self, relative: &Path) -> io::Result<File> {
        for _ in 1..OPEN_ATTEMPTS {
            match self.openat2(relative, 0) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                answer => return answer,
            }
        }
        self.openat2(relative, 0)
    }

    /// Opens `relative` as [`Self::open_beneath`] does, if that takes no disk: all of the name must
    /// be in the kernel's cache, and on the root's own file system. `None` if it is not, or if only
    /// `open_beneath` can tell.
    #[must_use]
    pub fn open_cached(&self, relative: &Path) -> Option<File> {
        // The name may be in the cache, but NFS, FUSE and their like ask all the same to open the
        // file (`nfs4_file_open`), for ever if nobody answers.
        if self.directory().asks_others {
            return None;
        }
        // Linux 5.12; before that EINVAL, and `open_beneath` does it all.
        let resolve = libc::RESOLVE_CACHED | libc::RESOLVE_NO_XDEV;
        self.openat2(relative, resolve).ok()
    }

    /// Whether `relative` is neither a file nor a directory, as far as can be told.
    fn is_special(&self, relative: &Path) -> bool {
        // Asked of the name, since it does not open. Nothing is told of it that would matter
        // outside the root.
        let metadata = fs::metadata(self.path.join(relative));
        metadata.is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    }

    /// The name of `relative` without symbolic links, still relative to the root.
    fn resolve(&self, relative: &Path) -> io::Result<PathBuf> {
        let resolved = fs::canonicalize(self.path.join(relative))?;
        let beneath = resolved.strip_prefix(&self.path);
        beneath
            .map(Path::to_owned)
            .map_err(|_| io::Error::from_raw_os_error(libc::EXDEV))
    }

    fn open_resolved(&self, relative: &Path) -> io::Result<File> {
        let path = self.path.join(self.resolve(relative)?);
        let flags = OPEN_FLAGS | libc::O_NOFOLLOW;
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path)?;
        // A folder on the way may have become a link since it was resolved.
        let opened = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if opened == path {
            Ok(file)
        } else {
            Err(io::Error::from_raw_os_error(libc::EXDEV))
        }
    }

    fn directory(&self) -> Arc<Directory> {
        let directory = self.directory.read();
        Arc::clone(&directory.unwrap_or_else(PoisonError::into_inner))
    }

    fn openat2(&self, relative: &Path, resolve: u64) -> io::Result<File> {
        let directory = self.directory();
        let name = CString::new(relative.as_os_str().as_bytes())?;
        // SAFETY: `open_how` is integers only, for which all-zero is a value, and it is how the
        // kernel wants fields of later versions.
        let mut how: libc::open_how = unsafe { std::mem::zeroed() };
        how.flags = u64::from(OPEN_FLAGS.cast_unsigned());
        how.resolve = resolve | libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
        // SAFETY: the descriptor is open as long as `directory` lives; `name` ends in NUL and `how`
        // is an initialised `open_how` of the size given; all outlive the call, which keeps none.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                directory.file.as_raw_fd(),
                name.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        let fd = i32::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just made this descriptor for us, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(File::from(fd))
    }
}

impl Directory {
    fn open(path: &Path) -> io::Result<Self> {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(OPEN_FLAGS | libc::O_DIRECTORY)
            .open(path)?;
        let kind = fstatfs(&file).map_or(0, |it| it.f_type);
        let asks_others = ASKING_OTHERS.contains(&kind);
        let metadata = file.metadata()?;
        Ok(Self {
            file,
            asks_others,
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// File systems that ask others to open a file: NFS, SMB (three numbers), Ceph, AFS, 9P and FUSE
/// (include/uapi/linux/magic.h).
const ASKING_OTHERS: [c_long; 8] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x6b41_4653,
    0x0102_1997,
    0x6573_5546,
];

/// The number of the device that `file` lies on, as `stat` has it; 0 if the system does not tell.
/// Waits neither for a disk nor for the server of a network file system.
#[must_use]
pub fn device(file: &File) -> u64 {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = statx(file, "", flags, StatxFlags::empty());
    told.map_or(0, |it| makedev(it.stx_dev_major, it.stx_dev_minor))
}

/// What the kernel has in memory of an open file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CachedMetadata {
    /// The number of its device, as [`device`] has it.
    pub device: u64,
    /// Its number on that.
    pub inode: u64,
    /// Its length.
    pub file_bytes: u64,
    /// When its bytes last changed, in ns since 1970.
    pub modified_ns: i128,
    /// Whether it is a regular file.
    pub is_file: bool,
}

/// What the kernel has in memory of `file`. Waits neither for a disk nor for the server of a
/// network file system: of that it has what the server told last.
///
/// # Errors
///
/// What the system says.
pub fn cached_metadata(file: &File) -> io::Result<CachedMetadata> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MTIME;
    let told = statx(file, "", flags, wanted)?;
    let seconds = i128::from(told.stx_mtime.tv_sec) * 1_000_000_000;
    Ok(CachedMetadata {
        device: makedev(told.stx_dev_major, told.stx_dev_minor),
        inode: told.stx_ino,
        file_bytes: told.stx_size,
        modified_ns: seconds + i128::from(told.stx_mtime.tv_nsec),
        is_file: u32::from(told.stx_mode) & libc::S_IFMT == libc::S_IFREG,
    })
}

/// Tells the kernel that `file` will be read once, from front to back.
pub fn advise_sequential(file: &File) {
    advise(file, 0, 0, libc::POSIX_FADV_SEQUENTIAL);
}

/// Tells the kernel that these bytes of `file` will not be read again soon.
pub fn advise_done(file: &File, offset: u64, bytes: u64) {
    advise(file, offset, bytes, libc::POSIX_FADV_DONTNEED);
}

/// Has the kernel begin to write these bytes of `file` to its disk, which it does by itself only
/// once there is much to write. Does not wait for them, but may wait until the disk takes more. It
/// tells no error: `fsync` tells what could not be written, and writes what was not begun here.
pub fn begin_to_write(file: &File, offset: u64, bytes: u64) {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
        return;
    };
    let how = libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes no pointers.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, how) };
}

/// Advice may be refused or ignored; then things are slower, not wrong. So its failure is no error.
fn advise(file: &File, offset: u64, bytes: u64, advice: i32) {
    let (Ok(offset), Ok(bytes)) = (libc::off_t::try_from(offset), libc::off_t::try_from(bytes))
    else {
        return;
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, advice) };
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    /// A root with a file in a folder, a file outside, and links of all kinds.
    fn tree() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("folder")).unwrap();
        fs::write(root.join("folder/inside"), "inside").unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        symlink("folder/inside", root.join("relative")).unwrap();
        symlink(root.join("folder/inside"), root.join("absolute")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(directory.path().join("secret"), root.join("out-absolute")).unwrap();
        symlink("..", root.join("folder-out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let root = Root::open(&root).unwrap();
        (directory, root)
    }

    fn read(file: io::Result<File>) -> Result<String, Option<i32>> {
        let mut text = String::new();
        file.map_err(|error| error.raw_os_error())?
            .read_to_string(&mut text)
            .unwrap();
        Ok(text)
    }

    #[test]
    fn names_under_the_root_open_and_others_do_not() {
        let (_directory, root) = tree();
        type Open = fn(&Root, &Path) -> io::Result<File>;
        // Both roads, because a kernel has only one of them.
        for open in [Root::open_beneath as Open, Root::open_resolved as Open] {
            let open = |name: &str| read(open(&root, Path::new(name)));
            assert_eq!(open("folder/inside").unwrap(), "inside");
            assert_eq!(open("relative").unwrap(), "inside");
            assert_eq!(open("absolute").unwrap(), "inside");
            for out in ["out", "out-absolute", "folder-out/secret", "../secret"] {
                assert_eq!(open(out), Err(Some(libc::EXDEV)), "{out}");
            }
            assert_eq!(open("loop"), Err(Some(libc::ELOOP)));
            assert_eq!(open("missing"), Err(Some(libc::ENOENT)));
            assert_eq!(open("folder/inside/deeper"), Err(Some(libc::ENOTDIR)));
        }
    }

    /// Some of ten thousand opens meet a rename, which need not be of the same folder.
    #[test]
    fn links_with_dots_open_while_others_rename() {
        let (directory, root) = tree();
        symlink("../folder/inside", root.path().join("folder/dots")).unwrap();
        let names = ["one", "other"].map(|name| directory.path().join(name));
        fs::write(&names[0], "").unwrap();
        let is_done = AtomicBool::new(false);
        let failed: Vec<_> = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs::rename(&names[0], &names[1]).unwrap();
                    fs::rename(&names[1], &names[0]).unwrap();
                }
            });
            let open = |_| root.open_beneath(Path::new("folder/dots")).err();
            let failed = (0..10_000).filter_map(open).collect();
            is_done.store(true, Ordering::Relaxed);
            failed
        });
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn the_cache_opens_what_was_open_and_nothing_outside() {
        let (_directory, root) = tree();
        drop(root.open_beneath(Path::new("folder/inside")).unwrap());
        let file = root.open_cached(Path::new("folder/inside"));
        assert_eq!(
            read(file.ok_or_else(io::Error::last_os_error)).unwrap(),
            "inside"
        );
        for out in [
            "out",
            "out-absolute",
            "folder-out/secret",
            "../secret",
            "missing",
        ] {
            drop(root.open_beneath(Path::new(out)));
            assert!(root.open_cached(Path::new(out)).is_none(), "{out}");
        }
    }

    #[test]
    fn a_directory_in_its_place_takes_its_place() {
        let (directory, root) = tree();
        assert!(!root.renew().unwrap(), "it is still there");
        fs::rename(root.path(), directory.path().join("before")).unwrap();
        assert!(!root.renew().unwrap(), "nothing is there");
        assert_eq!(
            read(root.open_beneath(Path::new("relative"))).unwrap(),
            "inside"
        );
        fs::write(root.path(), "").unwrap();
        let error = root.renew().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
        fs::remove_file(root.path()).unwrap();
        fs::create_dir(root.path()).unwrap();
        fs::write(root.path().join("new"), "new").unwrap();
        let new = Path::new("new");
        assert_eq!(read(root.open_beneath(new)), Err(Some(libc::ENOENT)));
        assert!(root.renew().unwrap());
        assert_eq!(read(root.open_beneath(new)).unwrap(), "new");
        let before = root.open_beneath(Path::new("relative"));
        assert_eq!(read(before), Err(Some(libc::ENOENT)));
        assert!(!root.renew().unwrap(), "it is known");
    }

    #[test]
    fn a_file_has_its_folders_device() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(device(&file), file.metadata().unwrap().dev());
        let (directory, root) = tree();
        assert_eq!(root.device(), directory.path().metadata().unwrap().dev());
    }

    #[test]
    fn what_is_cached_of_a_file_is_what_it_is() {
        let (_directory, root) = tree();
        let path = root.path().join("folder/inside");
        let file = File::options().write(true).open(&path).unwrap();
        for bytes in [6, 1000, 3] {
            file.set_len(bytes).unwrap();
            let (cached, told) = (cached_metadata(&file).unwrap(), file.metadata().unwrap());
            let modified_ns = i128::from(told.mtime()) * 1_000_000_000;
            let expected = CachedMetadata {
                device: told.dev(),
                inode: told.ino(),
                file_bytes: bytes,
                modified_ns: modified_ns + i128::from(told.mtime_nsec()),
                is_file: true,
            };
            assert_eq!(cached, expected);
        }
        let folder = root.open_beneath(Path::new("folder")).unwrap();
        assert!(!cached_metadata(&folder).unwrap().is_file);
    }

    #[test]
    fn a_socket_is_no_such_device() {
        let (_directory, root) = tree();
        let _listener = UnixListener::bind(root.path().join("socket")).unwrap();
        symlink("socket", root.path().join("link")).unwrap();
        for name in ["socket", "link"] {
            let opened = root.open_beneath(Path::new(name));
            assert_eq!(read(opened), Err(Some(libc::ENXIO)), "{name}");
            assert!(root.open_cached(Path::new(name)).is_none(), "{name}");
            assert!(root.is_special(Path::new(name)), "{name}");
        }
        for name in ["folder", "folder/inside", "missing", "loop"] {
            assert!(!root.is_special(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_fifo_opens_without_waiting_for_a_writer() {
        let (_directory, root) = tree();
        let fifo = root.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: `name` ends in NUL and outlives the call, which keeps no pointer.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let file = root.open_beneath(Path::new("fifo")).unwrap();
        assert!(!file.metadata().unwrap().is_file());
    }

    #[test]
    fn a_file_is_no_root() {
        let (_directory, root) = tree();
        let error = Root::open(&root.path().join("folder/inside")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    }
}
