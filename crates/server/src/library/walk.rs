//! The names of what is played in a folder and those below it.

use std::collections::BinaryHeap;
use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};

use onrush_sys::fs::Root;
use onrush_wire::media::has_media_ending;

use super::is_hidden;

/// How deep it is looked into folders.
pub const DEPTH_MAX: usize = 16;

/// How many entries of folders are looked at.
pub const ENTRIES_MAX: usize = 100_000;

/// The first names, at most `names_max` and sorted, relative to `root`, and how many were found
/// among `entries_max` entries.
///
/// # Errors
///
/// If the root cannot be read; folders in it that cannot are left out.
pub(super) fn walk(
    root: &Root,
    names_max: usize,
    entries_max: usize,
) -> io::Result<(Vec<PathBuf>, usize)> {
    let root = root.path();
    // Only the first are kept: sorting a hundred thousand paths takes longer than finding them.
    let (mut first, mut all) = (BinaryHeap::new(), 0);
    let mut folders = vec![(fs::read_dir(root)?, 0)];
    let mut entries_left = entries_max;
    while let Some((mut entries, depth)) = folders.pop() {
        let Some(entry) = entries.next() else {
            continue;
        };
        folders.push((entries, depth));
        if entries_left == 0 {
            break;
        }
        entries_left -= 1;
        let Ok(entry) = entry else { continue };
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let name = entry.file_name();
        if is_hidden(&name) {
            continue;
        }
        if kind.is_dir() && depth < DEPTH_MAX {
            let folder = fs::read_dir(entry.path()).ok();
            folders.extend(folder.map(|entries| (entries, depth + 1)));
        } else if has_media_ending(&name.to_string_lossy()) {
            let path = entry.path();
            if !is_servable(root, &path, kind) {
                continue;
            }
            all += 1;
            let name = path.strip_prefix(root).unwrap_or(&path);
            let is_full = first.len() >= names_max;
            if !is_full || first.peek().is_some_and(|last: &PathBuf| name < last) {
                first.push(name.to_owned());
            }
            if first.len() > names_max {
                first.pop();
            }
        }
    }
    Ok((first.into_sorted_vec(), all))
}

/// Whether there is a regular file, under the root if a link leads to it. Only of links the file
/// system is asked: of a hundred thousand files it would take seconds.
fn is_servable(root: &Path, path: &Path, kind: FileType) -> bool {
    if !kind.is_symlink() {
        return kind.is_file();
    }
    fs::canonicalize(path).is_ok_and(|target| target.starts_with(root))
        && fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
