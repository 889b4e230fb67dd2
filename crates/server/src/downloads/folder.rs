//! What is in a folder, as far as it may be told of.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use onrush_sys::fs::Root;
use onrush_wire::http::Entry;
use onrush_wire::name::from_bytes;

use crate::library::{Named, Place, Places, is_hidden};
use crate::remote::{RemoteEntry, asked};

/// Entries of a folder that are looked at for a listing; of one that is renamed, with those of all
/// folders in it.
pub const FOLDER_ENTRIES_MAX: usize = 10_000;

/// The files and folders in the folder `name`, wherever it lies, sorted, and whether there are more
/// than were looked at. Hidden ones and what links lead out to are left out. What is in a folder of
/// a store comes in the store's order, so that of a folder with more entries than are looked at,
/// the first are shown. Several libraries are the folders at the top.
///
/// # Errors
///
/// What the system says; [`io::ErrorKind::NotFound`] for a name that cannot be one, and
/// [`io::ErrorKind::HostUnreachable`] if a store does not tell now.
pub(crate) async fn list(places: &Places, name: &str) -> io::Result<(Vec<Entry>, bool)> {
    match places.named(name).ok_or(io::ErrorKind::NotFound)? {
        Named::Libraries(all) => {
            let mut entries: Vec<_> = all.iter().map(library).collect();
            Entry::sort(&mut entries);
            Ok((entries, false))
        }
        Named::Path(folder, relative) => {
            let list = move |root: &Root| read(root, &relative, FOLDER_ENTRIES_MAX);
            folder.look_up(list).await
        }
        Named::Object(remote, name) => {
            let listed = asked(|then| remote.list(name, FOLDER_ENTRIES_MAX, then)).await;
            let (found, is_cut) = listed?;
            let mut entries: Vec<_> = found.into_iter().filter_map(told).collect();
            Entry::sort(&mut entries);
            Ok((entries, is_cut))
        }
    }
}

/// The same of a folder of this machine, and of no other: where each list would be a request.
///
/// # Errors
///
/// As [`list`].
pub(crate) async fn list_here(places: &Places, name: &str) -> io::Result<(Vec<Entry>, bool)> {
    match places.named(name) {
        Some(Named::Path(..)) => list(places, name).await,
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// A library as a folder.
fn library((name, place): (&String, &Place)) -> Entry {
    let modified_s = match place {
        // The root is open: asking it takes no disk.
        Place::Folder(root) => root.modified_s(),
        Place::Store(_) => 0,
    };
    Entry {
        name: name.clone(),
        is_folder: true,
        file_bytes: 0,
        modified_s,
    }
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

fn read(root: &Root, relative: &Path, entries_max: usize) -> io::Result<(Vec<Entry>, bool)> {
    let folder = root.open_beneath(relative)?;
    // By its descriptor: its name may lead elsewhere by now.
    let mut found = fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    let mut entries = Vec::new();
    for entry in found.by_ref().take(entries_max) {
        // An entry that has gone meanwhile is not there.
        entries.extend(entry.ok().and_then(|entry| listed(root, relative, &entry)));
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
            let (entries, is_cut) = read(&root, Path::new("in"), entries_max).unwrap();
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
        for none in ["none", "..", "in/../..", "in/B.ts", "in/out"] {
            assert!(read(&root, Path::new(none), 7).is_err(), "{none}");
        }
    }
}
