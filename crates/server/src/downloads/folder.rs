//! What is in a folder, as far as it may be told of.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use onrush_sys::fs::Root;
use onrush_wire::http::Entry;
use onrush_wire::name::from_bytes;

use super::clock::Clock;
use crate::library::{Named, Place, Places, blocking, is_hidden};
use crate::remote::{RemoteEntry, asked};

/// Entries of a folder that are looked at for a listing; of one that is renamed, with those of all
/// folders in it.
pub const FOLDER_ENTRIES_MAX: usize = 10_000;

/// Entries of a folder whose names are looked at for those of subtitles. Only of what is found it
/// is asked what it is, which costs more.
pub const FOLDER_NAMES_MAX: usize = 1_000_000;

/// A listing of more entries than these is written on another thread: 10,000 take milliseconds, in
/// which nobody else would get anything.
const WRITTEN_HERE: usize = 100;

/// How long ago a folder has to have changed, for a later change to show. File systems tell the
/// time in steps, of up to two seconds.
const SETTLED_S: i64 = 3;

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
            let sort = |found: Vec<RemoteEntry>| {
                let mut entries: Vec<_> = found.into_iter().filter_map(told).collect();
                Entry::sort(&mut entries);
                entries
            };
            let entries = written(found.len(), move || sort(found)).await?;
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

/// What was found of a folder.
#[derive(Debug)]
pub(crate) struct Sought {
    /// Sorted.
    pub(crate) entries: Vec<Entry>,
    /// There is more that was not looked at.
    pub(crate) is_cut: bool,
    /// What the folder was, if another name in it would change that.
    pub(crate) stamp: Option<Stamp>,
}

/// What a folder is while the same names are in it: its device, its number there, and when it
/// changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    place: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Of a folder of this machine the files and folders whose names `fit`, hidden ones left out.
/// `None` if it is still what is `known`.
///
/// # Errors
///
/// As [`list`].
pub(crate) async fn seek(
    places: &Places,
    name: &str,
    known: Option<Stamp>,
    fit: impl Fn(&str) -> bool + Send + 'static,
) -> io::Result<Option<Sought>> {
    let Some(Named::Path(folder, relative)) = places.named(name) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let sought = move |root: &Root| read_sought(root, &relative, known, (FOLDER_NAMES_MAX, fit));
    folder.look_up(sought).await
}

/// What `write` makes of a list of so many entries, written where it keeps nobody waiting.
///
/// # Errors
///
/// If it panics.
pub(super) async fn written<T: Send + 'static>(
    entries: usize,
    write: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    match entries {
        0..=WRITTEN_HERE => Ok(write()),
        _ => blocking(move || Ok(write())).await,
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
    let mut found = names(&folder)?;
    let mut entries = Vec::new();
    for entry in found.by_ref().take(entries_max) {
        // An entry that has gone meanwhile is not there.
        entries.extend(entry.ok().and_then(|entry| listed(root, relative, &entry)));
    }
    Entry::sort(&mut entries);
    Ok((entries, found.next().is_some()))
}

fn read_sought(
    root: &Root,
    relative: &Path,
    known: Option<Stamp>,
    (names_max, fit): (usize, impl Fn(&str) -> bool),
) -> io::Result<Option<Sought>> {
    let folder = root.open_beneath(relative)?;
    // Before it is read: what comes meanwhile shows the next time.
    let stamp = Stamp::of(&folder.metadata()?);
    if known == Some(stamp) {
        return Ok(None);
    }
    let is_settled = stamp.is_settled(Clock::now_ms() / 1000);
    let mut found = names(&folder)?;
    let mut entries = Vec::new();
    for entry in found.by_ref().take(names_max) {
        let fits = |entry: &fs::DirEntry| fit(&from_bytes(entry.file_name().as_bytes()));
        let Some(entry) = entry.ok().filter(fits) else {
            continue;
        };
        entries.extend(listed(root, relative, &entry));
        if entries.len() >= FOLDER_ENTRIES_MAX {
            break;
        }
    }
    Entry::sort(&mut entries);
    Ok(Some(Sought {
        entries,
        is_cut: found.next().is_some(),
        stamp: is_settled.then_some(stamp),
    }))
}

/// What is in a folder, by its descriptor: its name may lead elsewhere by now.
fn names(folder: &File) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn is_settled(&self, now_s: u64) -> bool {
        let since = self.changed.0.saturating_add(SETTLED_S);
        i64::try_from(now_s).is_ok_and(|now_s| now_s > since)
    }
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
    use std::thread;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::testing::block_on;

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

    #[test]
    fn names_are_sought_until_the_folder_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("in");
        fs::create_dir(&path).unwrap();
        for name in ["a.srt", "b.srt", ".a.srt"] {
            fs::write(path.join(name), "text").unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        let sought = |known, names_max| {
            let fit = |name: &str| name.contains('a');
            read_sought(&root, Path::new("in"), known, (names_max, fit)).unwrap()
        };
        let all = sought(None, 3).unwrap();
        let names: Vec<_> = all.entries.iter().map(|it| &*it.name).collect();
        assert_eq!((names, all.is_cut), (vec!["a.srt"], false));
        assert!(sought(None, 2).unwrap().is_cut, "there are three");
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        assert!(sought(Some(stamp), 3).is_none(), "it is the same");
        let folder = File::open(&path).unwrap();
        folder.set_modified(UNIX_EPOCH).unwrap();
        assert!(sought(Some(stamp), 3).is_some(), "it has changed");
        // Right after a change the next one may have the same time.
        let changed_s = stamp.changed.0.cast_unsigned();
        let settled = [0, 3, 4].map(|after| stamp.is_settled(changed_s + after));
        assert_eq!(settled, [false, false, true]);
    }

    #[test]
    fn long_lists_are_written_on_another_thread() {
        let on = |entries| block_on(written(entries, || thread::current().id())).unwrap();
        assert_eq!(on(WRITTEN_HERE), thread::current().id());
        assert_ne!(on(WRITTEN_HERE + 1), thread::current().id());
    }
}
