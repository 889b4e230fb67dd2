//! The folder of saved indexes: a file for each, which is there as a whole or not at all, and no
//! more bytes than allowed.
//!
//! A file each, not one for all: a film's index is written by one `rename`, nothing is read at the
//! start, damage stays with one film, and two servers that share the folder replace each other's
//! files and destroy nothing. What is not by its name one of ours is left alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};

use crate::library::identity::Identity;

/// Bytes of one saved index at the most. That of a film of two hours has 1.5 MB.
pub const SAVED_INDEX_BYTES_MAX: u64 = 64 << 20;

/// What a file takes of the file system at the least, and a multiple of which it takes.
const BLOCK_BYTES: u64 = 4096;

/// Of what is allowed, so much is free after room was made, and is written before what there is is
/// counted again: others may write too.
const SPARE_PARTS: u64 = 16;

/// What the names of files begin with that are not whole yet.
const UNFINISHED: &str = "new-";

/// What the names of those of elementary streams end with.
const ELEMENTARY: &str = ".tracks";

/// The name of the file by whose lock it is known whether others use the folder.
const LOCK: &str = "lock";

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked for as long as the folder is in use; `None` where there are no locks.
    _lock: Option<File>,
}

/// What is in a folder, as far as this process knows: for the one thread that writes.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: u64,
    /// What was there when it was counted, and what was written since.
    counted_bytes: u64,
    written_bytes: u64,
}

/// What became of an index that was to be written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Written {
    /// Whether it was.
    pub(super) is_written: bool,
    /// Others that were removed to make room.
    pub(super) removed: u64,
}

impl Folder {
    /// The folder at `path`, made if there is none; only this account may read it. What an earlier
    /// server did not write to its end is removed, unless another is at it.
    ///
    /// # Errors
    ///
    /// If it cannot be written to.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join(LOCK))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            for entry in fs::read_dir(path)?.flatten() {
                if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                    let _gone = fs::remove_file(entry.path());
                }
            }
        }
        let is_locked = flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
        Ok(Self {
            path: path.to_owned(),
            _lock: is_locked.then_some(lock),
        })
    }

    /// Where the index of a file is, whatever became of that file since.
    pub(super) fn path_of(&self, identity: &Identity, is_elementary: bool) -> PathBuf {
        self.path.join(name_of(identity, is_elementary))
    }

    /// The bytes of a saved index; `None` if there are none, or too many.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let length = file.metadata()?.len();
        if length > SAVED_INDEX_BYTES_MAX {
            return Ok(Some(Vec::new()));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.take(SAVED_INDEX_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// The index was of use: it goes after those that were not for longer.
    pub(super) fn used(path: &Path) {
        let file = OpenOptions::new().append(true).open(path);
        let _time = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Writes a saved index at its [place](Self::path_of), for which others go that were not used
    /// for longest.
    ///
    /// # Errors
    ///
    /// What the system says; then it is as before.
    pub(super) fn write(&self, place: &Path, bytes: &[u8], room: &mut Room) -> io::Result<Written> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let length = bytes.len() as u64;
        if length > SAVED_INDEX_BYTES_MAX || on_disk(length) > room.bytes_max {
            return Ok(Written::default());
        }
        let removed = room.make(self, on_disk(length))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{UNFINISHED}{}-{number}", std::process::id());
        let unfinished = self.path.join(name);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let replaced = fs::metadata(place).map_or(0, |file| on_disk(file.len()));
        // Not synchronized: after a power failure a checksum says what is whole.
        let written = options
            .open(&unfinished)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&unfinished, place));
        if let Err(error) = written {
            let _gone = fs::remove_file(&unfinished);
            return Err(error);
        }
        room.counted_bytes = room.counted_bytes.saturating_sub(replaced);
        room.written_bytes += on_disk(length);
        Ok(Written {
            is_written: true,
            removed,
        })
    }

    /// The saved indexes, with their bytes and when each was used last.
    fn entries(&self) -> io::Result<Vec<(SystemTime, u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if !is_name(&entry.file_name().to_string_lossy()) {
                continue;
            }
            // Another server may have removed it since.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((used, on_disk(metadata.len()), entry.path()));
        }
        Ok(found)
    }
}

impl Room {
    /// Room for `bytes_max`, of which so many are taken as are in `folder`.
    pub(super) fn in_folder(folder: &Folder, bytes_max: u64) -> Self {
        let entries = folder.entries().unwrap_or_default();
        Self {
            bytes_max,
            counted_bytes: entries.iter().map(|(_, bytes, _)| bytes).sum(),
            written_bytes: 0,
        }
    }

    /// Bytes that are taken.
    pub(super) fn bytes(&self) -> u64 {
        self.counted_bytes + self.written_bytes
    }

    /// Removes those that were not used for longest until there is room for `wanted` bytes. How
    /// many they were.
    fn make(&mut self, folder: &Folder, wanted: u64) -> io::Result<u64> {
        let spare = self.bytes_max / SPARE_PARTS;
        if self.bytes() + wanted <= self.bytes_max && self.written_bytes <= spare {
            return Ok(0);
        }
        let mut entries = folder.entries()?;
        entries.sort();
        let mut bytes: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        let is_full = bytes + wanted > self.bytes_max;
        let goal = self.bytes_max.saturating_sub(spare);
        let mut removed = 0;
        for (_, of_it, path) in entries {
            if !is_full || bytes == 0 || bytes + wanted <= goal {
                break;
            }
            match fs::remove_file(&path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            bytes -= of_it;
        }
        (self.counted_bytes, self.written_bytes) = (bytes, 0);
        Ok(removed)
    }
}

/// How many saved indexes a folder has, and how many bytes they take.
pub(super) fn held(path: &Path) -> io::Result<(usize, u64)> {
    let folder = Folder {
        path: path.to_owned(),
        _lock: None,
    };
    let entries = folder.entries()?;
    let bytes = entries.iter().map(|(_, bytes, _)| bytes);
    Ok((entries.len(), bytes.sum()))
}

/// What a file of so many bytes takes.
fn on_disk(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(BLOCK_BYTES)
}

/// By device and inode: the index of what the file is now takes the place of what it was. That of
/// its elementary streams is another one.
fn name_of(identity: &Identity, is_elementary: bool) -> String {
    let kind = if is_elementary { ELEMENTARY } else { "" };
    format!("{:x}-{:x}{kind}", identity.device, identity.inode)
}

fn is_name(name: &str) -> bool {
    let is_hex = |part: &str| u64::from_str_radix(part, 16).is_ok() && !part.starts_with('+');
    let parts = name
        .strip_suffix(ELEMENTARY)
        .unwrap_or(name)
        .split_once('-');
    parts.is_some_and(|(device, inode)| is_hex(device) && is_hex(inode))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn identity(inode: u64) -> Identity {
        Identity {
            device: 5,
            inode,
            file_bytes: 1,
            modified_ns: 1,
        }
    }

    fn names(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != LOCK).collect();
        names.sort();
        names
    }

    fn write(folder: &Folder, room: &mut Room, inode: u64, bytes: usize) -> Written {
        let path = folder.path_of(&identity(inode), false);
        let written = folder.write(&path, &vec![1; bytes], room).unwrap();
        // Apart in time by more than a file system tells.
        if let Ok(file) = File::options().append(true).open(path) {
            let long_ago = Duration::from_secs(1_000_000 - inode * 1000);
            file.set_modified(SystemTime::now() - long_ago).unwrap();
        }
        written
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let mut room = Room::in_folder(&folder, 8 * BLOCK_BYTES);
        fs::write(directory.path().join("foreign"), [0; 99]).unwrap();
        let all_written = Written {
            is_written: true,
            removed: 0,
        };
        for inode in 0..8 {
            assert_eq!(write(&folder, &mut room, inode, 4096), all_written);
        }
        assert_eq!(
            (names(directory.path()).len(), room.bytes()),
            (9, 8 * BLOCK_BYTES)
        );
        // Was used a moment ago.
        Folder::used(&folder.path_of(&identity(0), false));
        let written = write(&folder, &mut room, 8, 1);
        assert_eq!(written.removed, 2, "one for it, and one to spare");
        let names = names(directory.path());
        assert_eq!(
            names,
            ["5-0", "5-3", "5-4", "5-5", "5-6", "5-7", "5-8", "foreign"]
        );
        assert_eq!(room.bytes(), 7 * BLOCK_BYTES);
    }

    #[test]
    fn what_is_larger_than_all_room_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let mut room = Room::in_folder(&folder, 2 * BLOCK_BYTES);
        assert!(write(&folder, &mut room, 1, 8192).is_written);
        assert_eq!(write(&folder, &mut room, 2, 8193), Written::default());
        assert_eq!(names(directory.path()), ["5-1"]);
    }

    #[test]
    fn a_file_takes_the_place_of_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let mut room = Room::in_folder(&folder, 1 << 20);
        for bytes in [5000, 100, 9000] {
            write(&folder, &mut room, 7, bytes);
            let read = Folder::read(&folder.path_of(&identity(7), false))
                .unwrap()
                .unwrap();
            assert_eq!(read.len(), bytes);
        }
        assert_eq!(names(directory.path()), ["5-7"]);
        assert_eq!(Room::in_folder(&folder, 1 << 20).bytes(), 3 * BLOCK_BYTES);
        assert_eq!(
            Folder::read(&folder.path_of(&identity(8), false)).unwrap(),
            None
        );
    }

    /// Two servers: neither removes what the other is just writing, and what the other has written
    /// counts.
    #[test]
    fn servers_share_a_folder() {
        let directory = tempfile::tempdir().unwrap();
        let unfinished = directory.path().join("new-1-1");
        let one = Folder::open(directory.path()).unwrap();
        fs::write(&unfinished, b"half").unwrap();
        let other = Folder::open(directory.path()).unwrap();
        assert!(unfinished.exists(), "the first may be writing it");
        let mut rooms = [&one, &other].map(|folder| Room::in_folder(folder, 16 * BLOCK_BYTES));
        for inode in 0..100 {
            let (folder, room) = match inode % 2 {
                0 => (&one, &mut rooms[0]),
                _ => (&other, &mut rooms[1]),
            };
            assert!(write(folder, room, inode, 4096).is_written);
            let held = Room::in_folder(&one, 0).bytes();
            assert!(held <= 18 * BLOCK_BYTES, "{held}");
        }
        drop((one, other));
        let _alone = Folder::open(directory.path()).unwrap();
        assert!(!unfinished.exists(), "nobody is");
    }

    #[test]
    fn names_are_of_devices_and_inodes() {
        for is_elementary in [false, true] {
            assert!(is_name(&name_of(&identity(u64::MAX), is_elementary)));
        }
        for foreign in [
            "", "-", "5", "5-", "-5", "5-x", "lock", "new-1-1", "+5-5", "5-6-7", "5-6.x",
        ] {
            assert!(!is_name(foreign), "{foreign}");
        }
    }
}
