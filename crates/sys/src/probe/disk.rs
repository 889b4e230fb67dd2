//! Whether media can be read past the page cache.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::slice;

use super::Refused;
use super::memory::refused;
use onrush_lock::memory::Area;

/// Reads the beginning of a file in `folder` with `O_DIRECT`; `None` if there is no file to read.
///
/// The file system decides (overlayfs and tmpfs before Linux 6.6 refuse), so any file will do.
#[must_use]
pub fn direct_read(folder: &Path) -> Option<Result<(), Refused>> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let file = entries
        .map(|e| e.path())
        .find(|path| path.is_file() && fs::File::open(path).is_ok())?;
    Some(read(&file))
}

fn read(file: &Path) -> Result<(), Refused> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(file);
    let opened = opened.map_err(|error| Refused::new("open(O_DIRECT)", error))?;
    // A page is aligned to every logical block size that is in use.
    let area = Area::map(4096).map_err(refused)?;
    // SAFETY: the area is mapped, zeroed and as long as this, and this is the only reference into
    // it.
    let page = unsafe { slice::from_raw_parts_mut(area.base().as_ptr(), 4096) };
    opened
        .read_at(page, 0)
        .map_err(|error| Refused::new("pread(O_DIRECT)", error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_files_has_nothing_to_try() {
        let folder = tempfile::tempdir().unwrap();
        assert!(direct_read(folder.path()).is_none());
        fs::write(folder.path().join("clip.ts"), [0x47; 8192]).unwrap();
        assert!(direct_read(folder.path()).is_some());
    }

    #[test]
    fn a_file_system_without_direct_reads_is_a_refusal() {
        // Not a regular file system: procfs refuses O_DIRECT with EINVAL.
        let refused = read(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(
            refused.source.raw_os_error(),
            Some(libc::EINVAL),
            "{refused}"
        );
    }
}
