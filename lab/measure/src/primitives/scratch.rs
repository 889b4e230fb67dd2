//! Files of our own on the file system that is measured, gone when the measurement is, or when the
//! next one begins there.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::own_folder::OwnFolder;
use crate::page_cache;

/// A folder of our own.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: OwnFolder,
}

impl Scratch {
    /// Makes one in `parent`.
    ///
    /// # Errors
    ///
    /// If nothing can be made there; the error says where and what to do.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        let folder = OwnFolder::new_in(parent).map_err(|error| helped(parent, &error))?;
        Ok(Self { folder })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of `bytes`, no two blocks alike, and waits until the disk has it.
    ///
    /// # Errors
    ///
    /// If the disk is full, with how much was wanted.
    pub(super) fn file(&self, name: &str, bytes: u64) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        let written = File::create(&path).and_then(|mut file| {
            let mut block = vec![0_u8; CHUNK_BYTES];
            for (index, byte) in block.iter_mut().enumerate() {
                *byte = index.to_le_bytes()[0] ^ index.to_le_bytes()[1];
            }
            let mut left = bytes;
            while left > 0 {
                block[..8].copy_from_slice(&left.to_le_bytes());
                let now = usize::try_from(left)
                    .unwrap_or(CHUNK_BYTES)
                    .min(CHUNK_BYTES);
                file.write_all(&block[..now])?;
                left -= now as u64;
            }
            file.sync_all()
        });
        match written {
            Ok(()) => Ok(path),
            Err(error) => {
                std::fs::remove_file(&path).ok();
                Err(helped(
                    &path,
                    &io::Error::new(error.kind(), format!("{bytes} bytes: {error}")),
                ))
            }
        }
    }
}

const CHUNK_BYTES: usize = 1 << 20;

fn helped(path: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "{}: {error}; name another directory with --dir",
        path.display()
    );
    io::Error::new(error.kind(), text)
}

/// Makes the page cache forget a file, and makes sure that it did.
///
/// # Errors
///
/// If pages stay, with what to do.
pub(super) fn make_cold(file: &File, bytes: usize) -> io::Result<()> {
    let advice = |error| {
        let text = format!("{error}; name a directory on a disk with --dir");
        io::Error::other(text)
    };
    page_cache::make_cold(file, bytes).map_err(advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_as_long_as_asked_and_goes_with_its_folder() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(parent.path()).unwrap();
        let path = scratch.file("a", (1 << 20) + 5).unwrap();
        assert_eq!(path.metadata().unwrap().len(), (1 << 20) + 5);
        drop(scratch);
        assert_eq!(parent.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_named_with_what_to_do() {
        let error = Scratch::new(Path::new("/proc/self"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/proc/self") && error.contains("--dir"),
            "{error}"
        );
    }
}
