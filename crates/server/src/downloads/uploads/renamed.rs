//! What gets another name with a folder that is renamed: all that is in it.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onrush_sys::fs::Root;
use onrush_wire::name::from_bytes;

use super::leftovers::entries;
use super::{beneath, folder_of};
use crate::library::is_hidden;

/// What the names of all that is at `path` have behind that: nothing, and in a folder `/a.ts`.
/// Hidden ones are left out, by which nothing is served. `None` if not all of them are known: there
/// are more entries than that, or a link to a folder, which is not followed. Blocks.
pub(super) fn endings(
    root: &Root,
    path: &Path,
    entries_max: usize,
) -> io::Result<Option<Vec<String>>> {
    let leads_to_folder = |at: &Path| root.folder(&beneath(at)).is_ok();
    let (folder, name) = folder_of(root, path)?;
    let (mut all, mut folders) = (vec![String::new()], Vec::new());
    match folder.stat(&name)?.st_mode & libc::S_IFMT {
        libc::S_IFDIR => folders.push(PathBuf::new()),
        libc::S_IFLNK if leads_to_folder(path) => return Ok(None),
        _ => {}
    }
    let mut looked_at = 0;
    while let Some(within) = folders.pop() {
        let folder = root.folder(&beneath(&path.join(&within)))?;
        for entry in entries(&folder)? {
            let entry = entry?;
            looked_at += 1;
            if looked_at > entries_max {
                return Ok(None);
            }
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            if is_hidden(&name) {
                continue;
            }
            let at = within.join(name);
            if kind.is_symlink() && leads_to_folder(&path.join(&at)) {
                return Ok(None);
            }
            all.push(format!("/{}", from_bytes(at.as_os_str().as_bytes())));
            if kind.is_dir() {
                folders.push(at);
            }
        }
    }
    Ok(Some(all))
}
