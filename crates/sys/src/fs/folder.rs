//! A folder under a [`Root`], and what is changed in it: by its descriptor, so that nothing that is
//! renamed or linked meanwhile leads elsewhere. A name in it is one part of a path; links are
//! replaced, renamed and removed themselves, and never followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, Stat, fallocate, flock,
    fstatvfs, linkat, mkdirat, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::Root;

/// A folder, open.
#[derive(Debug)]
pub struct Folder(File);

impl Root {
    /// Opens the folder at `relative`.
    ///
    /// # Errors
    ///
    /// As [`Root::open_beneath`]; `ENOTDIR` if it is none.
    pub fn folder(&self, relative: &Path) -> io::Result<Folder> {
        let file = self.open_beneath(relative)?;
        match file.metadata()?.is_dir() {
            true => Ok(Folder(file)),
            false => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        }
    }

    /// The same, and makes what there is not of it.
    ///
    /// # Errors
    ///
    /// As [`Self::folder`].
    pub fn folder_made(&self, relative: &Path) -> io::Result<Folder> {
        match self.folder(relative) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (mut at, mut folder) = (PathBuf::from("."), self.folder(Path::new("."))?);
        for part in relative.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            match folder.make_folder(name) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => at.push(name),
            }
            folder = self.folder(&at)?;
        }
        Ok(folder)
    }
}

impl Folder {
    /// Opens a file to write to and to read, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// What the system says; `ELOOP` for a link.
    pub fn open_or_make(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        self.open_by(name, flags)
    }

    /// Opens a file to read.
    ///
    /// # Errors
    ///
    /// As [`Self::open_or_make`].
    pub fn open(&self, name: &OsStr) -> io::Result<File> {
        self.open_by(name, OFlags::RDONLY)
    }

    /// Opens a file that is there, to write to and to read.
    ///
    /// # Errors
    ///
    /// As [`Self::open_or_make`].
    pub fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        self.open_by(name, OFlags::RDWR)
    }

    fn open_by(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(0o666);
        Ok(File::from(openat(&self.0, name, flags, mode)?))
    }

    /// What is at a name.
    ///
    /// # Errors
    ///
    /// What the system says: `NotFound` if nothing is.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes a folder.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.0, name, Mode::from_raw_mode(0o777))?)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    ///
    /// What the system says; `EISDIR` for a folder.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes a folder that is empty.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Gives what is at a name another, in the same step taking away what is there if that is
    /// replaced. Where the file system cannot rename without replacing, as NFS, a file has both
    /// names for a moment, and a process that ends then leaves it so.
    ///
    /// # Errors
    ///
    /// What the system says; `AlreadyExists` if something is there that is not to be replaced.
    pub fn rename(
        &self,
        from: &OsStr,
        (folder, to): (&Self, &OsStr),
        replaces: bool,
    ) -> io::Result<()> {
        let flags = match replaces {
            true => RenameFlags::empty(),
            false => RenameFlags::NOREPLACE,
        };
        match renameat_with(&self.0, from, &folder.0, to, flags) {
            // The file system does not know the flag (rename(2)).
            Err(Errno::INVAL) if !replaces => self.relink(from, (folder, to)),
            renamed => Ok(renamed?),
        }
    }

    /// Gives a file another name where nothing is, and takes away the one that it had.
    fn relink(&self, from: &OsStr, (folder, to): (&Self, &OsStr)) -> io::Result<()> {
        linkat(&self.0, from, &folder.0, to, AtFlags::empty())?;
        match unlinkat(&self.0, from, AtFlags::empty()) {
            // Somebody else has done it.
            Err(Errno::NOENT) => Ok(()),
            unlinked => Ok(unlinked?),
        }
    }

    /// Waits until what was made, renamed and removed here is on the disk.
    ///
    /// # Errors
    ///
    /// What the disk says.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    /// The folder itself, to read its entries.
    #[must_use]
    pub fn as_file(&self) -> &File {
        &self.0
    }
}

/// Bytes that ordinary accounts may still write where `file` is.
///
/// # Errors
///
/// What the system says.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let of = fstatvfs(file)?;
    Ok(of.f_bavail.saturating_mul(of.f_frsize))
}

/// Sets the disk's space for these bytes of `file` apart, without making it longer. Whether that
/// was done: not every file system can.
///
/// # Errors
///
/// `ENOSPC` and what else the disk says.
pub fn set_apart(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes `file` this process's, as far as processes ask: whether nobody else has it.
///
/// # Errors
///
/// What the system says.
pub fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_changed_lies_under_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root");
        fs::create_dir(&path).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        symlink("..", path.join("out")).unwrap();
        symlink("../secret", path.join("link")).unwrap();
        let root = Root::open(&path).unwrap();
        assert!(root.folder(Path::new("out")).is_err());
        assert!(root.folder_made(Path::new("out/x")).is_err());
        assert!(root.folder(Path::new("a/b")).is_err());
        let folder = root.folder_made(Path::new("a/b")).unwrap();
        assert!(path.join("a/b").is_dir());
        let name = OsStr::new;
        drop(folder.open_or_make(name("new")).unwrap());
        let top = root.folder(Path::new(".")).unwrap();
        // Links are not followed: the name is what changes.
        assert!(top.open_or_make(name("link")).is_err());
        let kept = folder.rename(name("new"), (&top, name("link")), false);
        assert_eq!(kept.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        folder
            .rename(name("new"), (&top, name("link")), true)
            .unwrap();
        assert!(fs::symlink_metadata(path.join("link")).unwrap().is_file());
        let secret = fs::read_to_string(directory.path().join("secret")).unwrap();
        assert_eq!(secret, "secret");
        top.remove(name("link")).unwrap();
        assert!(top.remove_folder(name("a")).is_err(), "it is not empty");
        assert!(folder.stat(name("new")).is_err());
    }

    /// As on NFS.
    #[test]
    fn a_file_is_linked_where_nothing_is() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("new"), "new").unwrap();
        fs::write(at("old"), "old").unwrap();
        let root = Root::open(directory.path()).unwrap();
        let folder = root.folder(Path::new(".")).unwrap();
        let relink = |to: &str| folder.relink(OsStr::new("new"), (&folder, OsStr::new(to)));
        let kept = relink("old").unwrap_err();
        assert_eq!(kept.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(at("old")).unwrap(), b"old");
        relink("free").unwrap();
        assert_eq!(fs::read(at("free")).unwrap(), b"new");
        assert!(!at("new").exists());
    }

    #[test]
    fn a_file_is_one_holders_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let folder = root.folder(Path::new(".")).unwrap();
        let open = || folder.open_or_make(OsStr::new("a")).unwrap();
        let (first, second) = (open(), open());
        assert!(lock(&first).unwrap() && !lock(&second).unwrap());
        drop(first);
        assert!(lock(&second).unwrap());
        assert!(free_bytes(&second).unwrap() > 0);
        set_apart(&second, 0, 4096).unwrap();
        assert_eq!(second.metadata().unwrap().len(), 0);
    }
}
