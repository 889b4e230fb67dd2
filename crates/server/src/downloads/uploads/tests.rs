//! Tests of [`super`].

use std::fs;

use super::*;
use crate::users::Login;

fn place(root: &Root, user: &str, name: &str) -> Place {
    let path = path_of(name).unwrap();
    let uploader = Login::User(user.to_owned()).uploader();
    Place::find(root, &path, temporary_name(&uploader, name), false).unwrap()
}

fn open(at: &Place, start: Option<u64>) -> Result<(File, u64), Option<u64>> {
    let opened = at.open(start, None, 0).unwrap();
    opened.map(|opened| (opened.file, opened.start))
}

fn names(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|it| it.unwrap().file_name()).collect()
}

#[test]
fn what_was_broken_off_is_gone_on_with_by_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let open = |user, start| open(&place(&root, user, "a.ts"), start);
    let (file, start) = open("anna", Some(0)).unwrap();
    io::Write::write_all(&mut &file, b"12345").unwrap();
    let again = open("anna", Some(5));
    assert!(start == 0 && matches!(again, Err(None)), "it is written to");
    drop(file);
    assert!(matches!(open("anna", Some(6)), Err(Some(5))));
    let (file, start) = open("anna", None).unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (5, 5));
    drop(file);
    let (file, start) = open("anna", Some(3)).unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (3, 3));
    assert!(matches!(open("bert", Some(3)), Err(Some(0))));
}

#[test]
fn what_is_there_whole_is_gone_on_with_in_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.ts"), b"12345").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let (file, start) = open(&place(&root, "anna", "a.ts"), None).unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (5, 5));
    assert_eq!(fs::read(folder.path().join("a.ts")).unwrap(), b"12345");
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("whole"), b"12345").unwrap();
    std::os::unix::fs::symlink("whole", folder.path().join("a.ts")).unwrap();
    let root = Root::open(folder.path()).unwrap();
    let at = place(&root, "anna", "a.ts");
    for start in [None, Some(5)] {
        let error = at.open(start, None, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        assert_eq!(names(folder.path()).len(), 2, "nothing is left over");
    }
    assert!(open(&at, Some(0)).is_ok(), "it is replaced");
}

#[test]
fn no_copy_is_made_where_there_is_no_room() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.ts"), b"12345").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let opened = place(&root, "anna", "a.ts").open(None, None, u64::MAX);
    assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(names(folder.path()), ["a.ts"]);
}

/// A process ended between the two steps of a rename that replaces nothing.
#[test]
fn what_is_in_its_place_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let at = place(&root, "anna", "a.ts");
    let (file, _) = open(&at, Some(0)).unwrap();
    io::Write::write_all(&mut &file, b"12345").unwrap();
    drop(file);
    let path = folder.path().join("a.ts");
    fs::hard_link(folder.path().join(&at.temporary), &path).unwrap();
    let (file, start) = open(&at, None).unwrap();
    assert_eq!(start, 5, "of a copy");
    io::Write::write_all(&mut &file, b"6").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"12345");
}

#[test]
fn a_name_that_is_too_long_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    for name in ["x".repeat(256), format!("{}/a", "x".repeat(256))] {
        let path = path_of(&name).unwrap();
        let found = Place::find(&root, &path, OsString::from("t"), true);
        let error = UploadError::from(found.unwrap_err());
        assert!(matches!(error, UploadError::LongName), "{error:?}");
    }
}

#[test]
fn what_is_too_old_is_removed_unless_it_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    let root = Root::open(folder.path()).unwrap();
    for name in ["in/a", "in/b", "c"] {
        drop(open(&place(&root, "anna", name), Some(0)).unwrap());
    }
    let written = open(&place(&root, "anna", "in/b"), None).unwrap();
    fs::write(folder.path().join(".other"), "").unwrap();
    let swept = |kept_time| sweep(&root, Path::new("."), kept_time, 1).unwrap();
    assert_eq!(swept(Duration::from_secs(60)), 0);
    assert_eq!(swept(Duration::ZERO), 2);
    drop(written);
    assert_eq!(swept(Duration::ZERO), 1);
    assert!(folder.path().join(".other").exists());
}

#[test]
fn a_folder_of_leftovers_has_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let within = root.folder(Path::new(".")).unwrap();
    let has_only = || has_only_leftovers(&within).unwrap();
    drop(open(&place(&root, "anna", "a"), Some(0)).unwrap());
    assert!(has_only());
    let written = open(&place(&root, "anna", "b"), Some(0)).unwrap();
    assert!(!has_only(), "it is written to");
    drop(written);
    assert!(has_only());
    fs::write(folder.path().join("film"), "").unwrap();
    assert!(!has_only());
}

#[test]
fn hidden_names_and_the_root_itself_are_not_stored() {
    for name in ["", "/", ".a", "in/.a", "../a", "in/../a", "a\0"] {
        assert!(path_of(name).is_err(), "{name}");
    }
}
