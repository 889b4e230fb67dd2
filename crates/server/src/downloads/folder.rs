//! What is in a folder, as far as it may be told of.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use onrush_sys::fs::Root;
use onrush_wire::http::Entry;
use onrush_wire::name::from_bytes;

use crate::downloads::Site;
use crate::library::{blocking, is_hidden, safe};
use crate::remote::{RemoteEntry, asked};

/// Entries of a folder that are looked at for a listing.
pub const FOLDER_ENTRIES_MAX: usize = 10_000;

/// As [`list`], of the library wherever it lies. What is in a folder of a store comes in the
/// store's order, so that of a folder with more entries than are looked at, the first are shown.
///
/// # Errors
///
/// As [`list`]; [`io::ErrorKind::HostUnreachable`] if a store does not tell now.
pub(crate) async fn list_of(site: &Site, name: &str) -> io::Result<(Vec<Entry>, bool)> {
    let Some(remote) = site.library.remote() else {
        return list(&site.root, name).await;
    };
    safe(name).ok_or(io::ErrorKind::NotFound)?;
    let name = name.trim_matches('/');
    let (found, is_cut) = asked(|then| remote.list(name, FOLDER_ENTRIES_MAX, then)).await?;
    let mut entries: Vec<_> = found.into_iter().filter_map(told).collect();
    Entry::sort(&mut entries);
    Ok((entries, is_cut))
}

fn told(entry: RemoteEntry) -> Option<Entry> {
    let RemoteEntry {
        name,
        is_folder,
        file_bytes,
        modified_s,
    } = entry;
    (!is_hidden(name.as_ref())).then_some(Entry {
        name,
        is_folder,
        file_bytes,
        modified_s,
    })
}

/// The files and folders in the folder `name`, sorted, and whether there are more than were looked
/// at. Hidden ones and what links lead out to are left out.
///
/// # Errors
///
/// What the system says; `NotFound` for a name that cannot be one.
pub(crate) async fn list(root: &Arc<Root>, name: &str) -> io::Result<(Vec<Entry>, bool)> {
    let (root, name) = (Arc::clone(root), name.to_owned());
    blocking(move || read(&root, &name, FOLDER_ENTRIES_MAX)).await
}

fn read(root: &Root, name: &str, entries_max: usize) -> io::Result<(Vec<Entry>, bool)> {
    let relative = safe(name).ok_or(io::ErrorKind::NotFound)?;
    let folder = root.open_beneath(&relative)?;
    // By its descriptor: its name may lead elsewhere by now.
    let mut found = fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    let mut entries = Vec::new();
    for entry in found.by_ref().take(entries_max) {
        // An entry that has gone meanwhile is not there.
        entries.extend(entry.ok().and_then(|entry| listed(root, &relative, &entry)));
    }
    Entry::sort(&mut entries);
    Ok((entries, found.next().is_some()))
}

fn listed(root: &Root, folder: &Path, entry: &fs::DirEntry) -> Option<Entry> {
    let name = entry.file_name();
    if is_hidden(&name) {
        return None;
    }
    // Not followed here: a link's target is asked through the root.
    let mut metadata = entry.metadata().ok()?;
    if metadata.is_symlink() {
        let file = root.open_beneath(&folder.join(&name)).ok()?;
        metadata = file.metadata().ok()?;
    }
    let is_told = metadata.is_file() || metadata.is_dir();
    is_told.then(|| Entry {
        name: from_bytes(name.as_bytes()),
        is_folder: metadata.is_dir(),
        file_bytes: metadata.len(),
        modified_s: metadata.mtime(),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_tells_of_files_folders_and_links_that_stay_inside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root/in");
        fs::create_dir_all(path.join("deeper")).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        fs::write(path.join("B.ts"), "film").unwrap();
        fs::write(path.join(".hidden"), "").unwrap();
        fs::write(path.join(OsStr::from_bytes(b"\xff.ts")), "").unwrap();
        symlink("B.ts", path.join("a link.ts")).unwrap();
        symlink("../../secret", path.join("out")).unwrap();
        symlink("none", path.join("dangling")).unwrap();
        let root = Root::open(&directory.path().join("root")).unwrap();
        let names = |entries_max| {
            let (entries, is_cut) = read(&root, "in", entries_max).unwrap();
            let names: Vec<_> = entries
                .into_iter()
                .map(|e| (e.name, e.is_folder, e.file_bytes))
                .collect();
            (names, is_cut)
        };
        let (all, is_cut) = names(7);
        let bytes = all[0].2;
        let expected = [
            ("deeper", true, bytes),
            ("a link.ts", false, 4),
            ("B.ts", false, 4),
            ("\u{10ffff}.ts", false, 0),
        ];
        assert_eq!(
            all,
            expected.map(|(name, is_folder, bytes)| (name.to_owned(), is_folder, bytes))
        );
        assert!(!is_cut);
        assert!(names(6).1, "there are seven");
        for none in ["none", "..", "in/../..", ".hidden", "in/B.ts", "in/out"] {
            assert!(read(&root, none, 7).is_err(), "{none}");
        }
    }
}
