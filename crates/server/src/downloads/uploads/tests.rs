//! Tests of [`super`].

use std::fs;

use super::*;
use crate::users::Login;

fn place(root: &Root, user: &str, name: &str) -> Place {
    let path = path_of(name).unwrap();
    let uploader = Login::User(user.to_owned()).uploader();
    Place::find(root, &path, temporary_name(&uploader, name), false).unwrap()
}

#[test]
fn what_was_broken_off_is_gone_on_with_by_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let (file, start) = place(&root, "anna", "a.ts").open(Some(0)).unwrap().unwrap();
    io::Write::write_all(&mut &file, b"12345").unwrap();
    let again = place(&root, "anna", "a.ts").open(Some(5)).unwrap();
    assert!(start == 0 && matches!(again, Err(None)), "it is written to");
    drop(file);
    let beyond = place(&root, "anna", "a.ts").open(Some(6)).unwrap();
    assert!(matches!(beyond, Err(Some(5))));
    let (file, start) = place(&root, "anna", "a.ts").open(None).unwrap().unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (5, 5));
    drop(file);
    let (file, start) = place(&root, "anna", "a.ts").open(Some(3)).unwrap().unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (3, 3));
    let another = place(&root, "bert", "a.ts").open(Some(3)).unwrap();
    assert!(matches!(another, Err(Some(0))));
}

#[test]
fn what_is_there_whole_is_gone_on_with_in_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.ts"), b"12345").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let at = place(&root, "anna", "a.ts");
    let (file, start) = at.open(None).unwrap().unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (5, 5));
    assert_eq!(fs::read(folder.path().join("a.ts")).unwrap(), b"12345");
}

#[test]
fn what_is_too_old_is_removed_unless_it_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    let root = Root::open(folder.path()).unwrap();
    for name in ["in/a", "in/b", "c"] {
        drop(place(&root, "anna", name).open(Some(0)).unwrap().unwrap());
    }
    let written = place(&root, "anna", "in/b").open(None).unwrap().unwrap();
    fs::write(folder.path().join(".other"), "").unwrap();
    let swept = |kept_time| sweep(&root, Path::new("."), kept_time, 1).unwrap();
    assert_eq!(swept(Duration::from_secs(60)), 0);
    assert_eq!(swept(Duration::ZERO), 2);
    drop(written);
    assert_eq!(swept(Duration::ZERO), 1);
    assert!(folder.path().join(".other").exists());
}

#[test]
fn hidden_names_and_the_root_itself_are_not_stored() {
    for name in ["", "/", ".a", "in/.a", "../a", "in/../a", "a\0"] {
        assert!(path_of(name).is_err(), "{name}");
    }
}
