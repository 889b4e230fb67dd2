//! A cache by itself, and with the folder that another process left: by a kill, torn, damaged, of
//! another account, or still in use.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;

use super::*;
use crate::folder::NotTaken;

fn identity(path: &str, etag: &str, blocks: u64) -> Identity {
    Identity {
        store: "http://127.0.0.1/films".to_owned(),
        path: path.to_owned(),
        etag: etag.to_owned(),
        file_bytes: blocks * BLOCK_BYTES,
    }
}

fn taken(folder: &Path) -> Folder {
    Folder::take(folder).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A cache whose blocks end with it.
fn passing(blocks_max: usize) -> (TempDir, Arc<Cache>) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(blocks_max, folder.path().to_owned(), false).unwrap();
    (folder, Arc::new(cache))
}

/// A cache of the folder, as a process has it at its start.
fn lasting(folder: &Path, blocks_max: usize) -> Arc<Cache> {
    let cache = Cache::new(blocks_max, folder.to_owned(), false).unwrap();
    cache.adopt(taken(folder)).unwrap();
    Arc::new(cache)
}

/// Not quite the same for each block.
fn bytes(block: u64) -> Vec<u8> {
    let mut bytes = vec![7; usize::try_from(BLOCK_BYTES).unwrap()];
    bytes[5..13].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn brought(cache: &Cache, of: &Opened, block: u64) {
    let key = (of.number, block);
    let found = cache.find(key, false);
    assert!(matches!(found, Found::Missing(_)), "{found:?}");
    let checksum = cache.write(key, &of.file, &bytes(block)).unwrap();
    cache.settle(key, Some(checksum));
}

/// The blocks that are known, of so many.
fn there(cache: &Cache, of: &Opened, blocks: u64) -> Vec<u64> {
    (0..blocks)
        .filter(|&block| cache.knows((of.number, block)))
        .collect()
}

/// Whether a block of before is whole; it is there then.
fn checked(cache: &Arc<Cache>, of: &Opened, block: u64) -> bool {
    let key = (of.number, block);
    let Found::Unchecked(_, checksum) = cache.find(key, false) else {
        panic!("{block} is not of before");
    };
    assert!(cache.hold_all(vec![key]).is_none());
    let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    let read = crate::folder::whole(&of.file, range, checksum).unwrap();
    cache.settle(key, read.as_ref().map(|_| checksum));
    read.inspect(|read| assert_eq!(*read, bytes(block)))
        .is_some()
}

/// The cache's own files with that ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|it| it == ending))
        .collect()
}

fn room(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn the_block_used_longest_ago_goes_and_its_room() {
    let (_folder, cache) = passing(3);
    let film = cache.open(identity("a", "1", 4)).unwrap();
    for block in 0..3 {
        brought(&cache, &film, block);
    }
    // The first is used once more.
    drop(cache.hold_all(vec![(film.number, 0)]).unwrap());
    brought(&cache, &film, 3);
    assert_eq!(there(&cache, &film, 4), [0, 2, 3]);
    assert_eq!(room(&film.file), 3 * BLOCK_BYTES);
}

#[test]
fn what_is_held_stays_and_what_comes_behind_waits() {
    let (_folder, cache) = passing(2);
    let films = ["a", "b", "c"].map(|path| cache.open(identity(path, "1", 1)).unwrap());
    let [one, two, three] = films.each_ref().map(|film| (film.number, 0));
    brought(&cache, &films[0], 0);
    brought(&cache, &films[1], 0);
    let pins = cache.hold_all(vec![one, two]).unwrap();
    assert!(matches!(cache.find(three, true), Found::Full));
    assert!(!cache.make_room());
    assert!(cache.hold_all(vec![one, three]).is_none());
    drop(pins);
    let (found, again) = (cache.find(three, true), cache.find(three, true));
    assert!(matches!(found, Found::Missing(_)) && matches!(again, Found::Coming(_)));
    cache.settle(three, None);
    assert!(!cache.knows(three));
    cache.close(two.0);
    assert!(!cache.knows(two));
}

/// systemd-tmpfiles removes a folder that looks empty, unless it is locked; and files need no path.
#[test]
fn a_folder_is_locked_and_needs_no_path() {
    let folder = tempfile::tempdir().unwrap();
    let [path, moved] = ["blocks", "moved"].map(|name| folder.path().join(name));
    fs::create_dir(&path).unwrap();
    let cache = Cache::new(9, path.clone(), false).unwrap();
    let lock = |path: &Path| {
        let folder = File::open(path).unwrap();
        flock(&folder, FlockOperation::NonBlockingLockExclusive)
    };
    assert_eq!(lock(&path), Err(Errno::WOULDBLOCK));
    fs::rename(&path, &moved).unwrap();
    let film = cache.open(identity("a", "1", 1)).unwrap();
    brought(&cache, &film, 0);
    drop(cache);
    assert_eq!(lock(&moved), Ok(()));
}

#[test]
fn a_film_without_a_file_may_be_there_later() {
    let (folder, cache) = passing(1);
    let told = cache.no_file(io::ErrorKind::NotFound.into());
    assert_eq!(told.kind(), io::ErrorKind::HostUnreachable);
    let path = folder.path().to_str().unwrap();
    assert!(told.to_string().contains(path), "{told}");
    // For the library to see.
    let told = cache.no_file(Errno::MFILE.into());
    assert_eq!(told.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
}

#[test]
fn blocks_are_found_again_and_damaged_ones_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 4)).unwrap();
    for block in [0, 1, 3] {
        brought(&cache, &film, block);
    }
    // As of a process that was killed: nothing is closed, and nothing noted.
    drop(cache);
    let [file] = &*files(folder.path(), "blocks") else {
        panic!("not one file")
    };
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(&[8], BLOCK_BYTES + 99).unwrap();
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 4)).unwrap();
    assert_eq!(there(&cache, &film, 4), [0, 1, 3]);
    assert!(checked(&cache, &film, 0));
    assert!(!checked(&cache, &film, 1));
    assert!(checked(&cache, &film, 3));
    assert_eq!(there(&cache, &film, 4), [0, 3]);
    assert_eq!(room(&film.file), 2 * BLOCK_BYTES);
    assert!(cache.hold_all(vec![(film.number, 0)]).is_some());
    // It is brought anew, and the next process knows that too.
    brought(&cache, &film, 1);
    drop(cache);
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 4)).unwrap();
    assert!(checked(&cache, &film, 1));
}

#[test]
fn a_smaller_cache_keeps_what_was_used_last() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 9);
    let old = cache.open(identity("old", "1", 2)).unwrap();
    let film = cache.open(identity("film", "1", 4)).unwrap();
    for block in 0..2 {
        brought(&cache, &old, block);
    }
    for block in 0..4 {
        brought(&cache, &film, block);
    }
    for block in [1, 0] {
        drop(cache.hold_all(vec![(film.number, block)]).unwrap());
    }
    cache.note_uses();
    drop(cache);
    let cache = lasting(folder.path(), 3);
    assert_eq!(cache.stats.cached_bytes.load(Ordering::Relaxed), 3 << 20);
    assert_eq!(
        files(folder.path(), "index").len(),
        1,
        "the old one is gone"
    );
    let film = cache.open(identity("film", "1", 4)).unwrap();
    assert_eq!(there(&cache, &film, 4), [0, 1, 3]);
    assert_eq!(room(&film.file), 3 * BLOCK_BYTES);
    // And so it goes on: 3 was used before 1, and 1 before 0.
    brought(&cache, &film, 2);
    assert_eq!(there(&cache, &film, 4), [0, 1, 2]);
    let other = cache.open(identity("other", "1", 4)).unwrap();
    brought(&cache, &other, 0);
    assert_eq!(there(&cache, &film, 4), [0, 2]);
}

#[test]
fn a_closed_film_stays_until_its_last_block_goes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 2);
    let film = cache.open(identity("a", "1", 2)).unwrap();
    brought(&cache, &film, 0);
    brought(&cache, &film, 1);
    cache.close(film.number);
    let again = cache.open(identity("a", "1", 2)).unwrap();
    assert_eq!(there(&cache, &again, 2), [0, 1]);
    cache.close(again.number);
    let other = cache.open(identity("b", "1", 2)).unwrap();
    brought(&cache, &other, 0);
    assert_eq!(files(folder.path(), "blocks").len(), 2);
    brought(&cache, &other, 1);
    assert_eq!(files(folder.path(), "blocks").len(), 1);
    // One of which nothing came leaves nothing.
    let none = cache.open(identity("c", "1", 2)).unwrap();
    cache.close(none.number);
    assert_eq!(files(folder.path(), "index").len(), 1);
}

#[test]
fn another_version_takes_the_place_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 9);
    let closed = cache.open(identity("a", "1", 2)).unwrap();
    brought(&cache, &closed, 0);
    drop(cache);
    let cache = lasting(folder.path(), 9);
    let open = cache.open(identity("a", "2", 2)).unwrap();
    assert_eq!(cache.lock().known.len(), 0, "of the first version");
    brought(&cache, &open, 0);
    assert_eq!(files(folder.path(), "blocks").len(), 1);
    // Who has the second open has it to its end; there is no file of it any more.
    let third = cache.open(identity("a", "3", 2)).unwrap();
    assert!(cache.hold_all(vec![(open.number, 0)]).is_some());
    cache.close(open.number);
    assert!(!cache.knows((open.number, 0)));
    brought(&cache, &third, 0);
    // And of what is removed from the store nothing stays.
    cache.remove("http://127.0.0.1/films", "a");
    cache.close(third.number);
    assert_eq!(cache.lock().known.len(), 0);
    assert!(files(folder.path(), "blocks").is_empty());
}

#[test]
fn torn_indices_go_and_foreign_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 9);
    for path in ["torn", "short", "whole", "lost"] {
        let film = cache.open(identity(path, "1", 2)).unwrap();
        brought(&cache, &film, 0);
    }
    drop(cache);
    let path = |film: &str, ending| {
        let stem = identity(film, "1", 2).stem();
        folder.path().join(format!("{stem}.{ending}"))
    };
    let index = fs::read(path("torn", "index")).unwrap();
    fs::write(path("torn", "index"), &index[..30]).unwrap();
    fs::write(path("short", "blocks"), "short").unwrap();
    fs::remove_file(path("lost", "index")).unwrap();
    let foreign = ["film.mp4", "0123.index", "lost+found"].map(|it| folder.path().join(it));
    fs::write(&foreign[0], "film").unwrap();
    fs::write(&foreign[1], "index").unwrap();
    fs::create_dir(&foreign[2]).unwrap();
    let cache = lasting(folder.path(), 9);
    assert_eq!(cache.lock().known.len(), 1);
    let film = cache.open(identity("whole", "1", 2)).unwrap();
    assert!(checked(&cache, &film, 0));
    assert_eq!(files(folder.path(), "blocks"), [path("whole", "blocks")]);
    assert!(foreign.iter().all(|it| it.exists()));
}

/// A block that was written, and whose slot was not, counts nowhere.
#[test]
fn room_that_no_slot_tells_of_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 8)).unwrap();
    brought(&cache, &film, 3);
    for block in [0, 1, 4, 7] {
        film.file
            .write_all_at(&bytes(block), block * BLOCK_BYTES)
            .unwrap();
    }
    drop(cache);
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 8)).unwrap();
    assert_eq!(room(&film.file), BLOCK_BYTES);
    assert!(checked(&cache, &film, 3));
}

#[test]
fn one_process_has_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = taken(folder.path());
    let Err(NotTaken::InUse(process)) = Folder::take(folder.path()) else {
        panic!("it was had twice");
    };
    assert_eq!(process, std::process::id().to_string());
    drop(first);
    drop(taken(folder.path()));
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let Err(NotTaken::System(error)) = Folder::take(folder.path()) else {
        panic!("it was had");
    };
    assert!(error.to_string().contains("chmod o-w"), "{error}");
}

/// What this account may not read is left alone, and films are played all the same.
#[test]
fn files_of_another_account_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 2)).unwrap();
    brought(&cache, &film, 0);
    drop(cache);
    let [index] = &*files(folder.path(), "index") else {
        panic!("not one index")
    };
    fs::set_permissions(index, fs::Permissions::from_mode(0o000)).unwrap();
    // Of this thread alone.
    let mut mine = capabilities(None).unwrap();
    mine.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, mine).unwrap();
    let cache = lasting(folder.path(), 9);
    assert_eq!(cache.lock().known.len(), 0);
    assert!(index.exists());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let film = cache.open(identity("b", "1", 2));
    // The folder is closed for files of any kind.
    assert_eq!(film.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    let taken = Folder::take(folder.path());
    assert!(matches!(taken, Err(NotTaken::InUse(_))), "{taken:?}");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

/// While the process before it has the folder a successor reads there and writes elsewhere; then
/// all of it is its own, and the newer of what both have.
#[test]
fn a_successor_reads_the_folder_and_has_it_later() {
    let folder = tempfile::tempdir().unwrap();
    let old = lasting(folder.path(), 9);
    let film = old.open(identity("a", "1", 4)).unwrap();
    let other = old.open(identity("b", "1", 1)).unwrap();
    for block in [0, 1, 2] {
        brought(&old, &film, block);
    }
    brought(&old, &other, 0);
    let new = Arc::new(Cache::new(9, folder.path().to_owned(), true).unwrap());
    let again = new.open(identity("a", "1", 4)).unwrap();
    let donor = new.donor(again.number).unwrap();
    assert_eq!(donor.read(0), Some(bytes(0)));
    assert_eq!(donor.read(3), None);
    brought(&new, &again, 0);
    brought(&new, &again, 3);
    // What the old one damages or lets go of is not believed, and nothing of the new one changes.
    film.file.write_all_at(&[9], BLOCK_BYTES).unwrap();
    assert_eq!(donor.read(1), None);
    assert!(old.make_room());
    assert_eq!(donor.read(0), None);
    assert!(new.hold_all(vec![(again.number, 0)]).is_some());
    drop(donor);
    drop((film, other, old));
    new.adopt(taken(folder.path())).unwrap();
    assert_eq!(there(&new, &again, 4), [0, 2, 3]);
    assert!(new.donor(again.number).is_none());
    let mut read = vec![0; bytes(2).len()];
    again
        .file
        .read_exact_at(&mut read, 2 * BLOCK_BYTES)
        .unwrap();
    assert_eq!(read, bytes(2));
    let other = new.open(identity("b", "1", 1)).unwrap();
    assert!(checked(&new, &other, 0));
    // And the process behind it has all of that.
    drop((again, other, new));
    let cache = lasting(folder.path(), 9);
    let film = cache.open(identity("a", "1", 4)).unwrap();
    assert!([0, 2, 3].iter().all(|&block| checked(&cache, &film, block)));
}
