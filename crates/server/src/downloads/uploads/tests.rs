//! Tests of [`super`].

use std::fs;
use std::os::unix::fs::{FileExt, symlink};

use super::renamed::endings;
use super::*;
use crate::downloads::Downloads;
use crate::downloads::testing::site;
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
    let (file, start) = open("anna", Some(5)).unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (5, 5));
    drop(file);
    // What may be all of it is not for the client: something must be left to send.
    let (file, start) = open("anna", None).unwrap();
    assert_eq!((start, file.metadata().unwrap().len()), (4, 4));
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
    symlink("whole", folder.path().join("a.ts")).unwrap();
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

/// As one does that waits for a disk when its client goes.
#[tokio::test]
async fn a_write_that_outlasts_its_upload_counts() {
    let (site, _root) = site(Downloads {
        uploads: Some(UploadsConfig {
            free_bytes_min: 0,
            ..UploadsConfig::default()
        }),
        ..Downloads::default()
    });
    let uploads = site.uploads.as_ref().unwrap();
    let uploader = Login::User("anna".to_owned()).uploader();
    let wanted = Wanted {
        uploader: &uploader,
        name: "a.ts",
        start: Some(0),
        total_bytes: None,
        makes_folders: false,
    };
    for (written, kept) in [(&b"12345"[..], Some(4)), (b"", None)] {
        let upload = uploads.begin(&site, wanted).await.unwrap();
        let write = upload.to(None);
        drop(upload);
        write.file.write_all_at(written, 0).unwrap();
        drop(write);
        assert_eq!(uploads.unfinished(&uploader, "a.ts").await, kept);
    }
}

#[test]
fn what_the_disk_did_not_take_is_begun_anew() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let (file, _) = open(&place(&root, "anna", "a"), Some(0)).unwrap();
    for (written, left) in [(Ok(()), 5), (Err(libc::EIO), 0)] {
        file.write_all_at(b"12345", 0).unwrap();
        let is_written = written.is_ok();
        let told = forget_unless_written(&file, written.map_err(io::Error::from_raw_os_error));
        assert_eq!(told.is_ok(), is_written);
        assert_eq!(file.metadata().unwrap().len(), left);
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
    let swept = |kept_time| sweep(&root, Path::new("."), kept_time, 1).removed;
    assert_eq!(swept(Duration::from_secs(60)), 0);
    assert_eq!(swept(Duration::ZERO), 2);
    drop(written);
    assert_eq!(swept(Duration::ZERO), 1);
    assert!(folder.path().join(".other").exists());
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // No file, so that not even root removes it as one.
    let stuck = format!("{PREFIX}stuck");
    for name in ["a", "b", "c"] {
        fs::create_dir_all(at(name).join(&stuck)).unwrap();
        fs::write(at(name).join(format!("{PREFIX}old")), "").unwrap();
    }
    let root = Root::open(folder.path()).unwrap();
    let swept = sweep(&root, Path::new("."), Duration::ZERO, 1);
    assert_eq!(swept.removed, 3);
    assert!(swept.failed.is_some_and(|it| it.0.ends_with(&stuck)));
    let mut left = names(&at("a"));
    left.extend(names(&at("c")));
    assert_eq!(left, [&*stuck; 2]);
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

/// It may be a copy of what its uploader could not read in the one, and can in the other.
#[test]
fn what_is_begun_is_none_of_a_renamed_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("in")).unwrap();
    fs::write(at("in/a"), b"12345").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let (file, start) = open(&place(&root, "anna", "in/a"), None).unwrap();
    assert_eq!(start, 5);
    drop(file);
    fs::rename(at("in"), at("out")).unwrap();
    fs::remove_file(at("out/a")).unwrap();
    let (_file, start) = open(&place(&root, "anna", "out/a"), None).unwrap();
    assert_eq!(start, 0);
}

#[tokio::test]
async fn nothing_comes_into_a_folder_that_is_renamed() {
    let (site, root) = site(Downloads {
        uploads: Some(UploadsConfig {
            free_bytes_min: 0,
            ..UploadsConfig::default()
        }),
        ..Downloads::default()
    });
    fs::create_dir_all(root.path().join("in/d")).unwrap();
    fs::write(root.path().join("secret"), "").unwrap();
    let uploads = site.uploads.as_ref().unwrap();
    let uploader = Login::User("anna".to_owned()).uploader();
    let wanted = |name: &'static str| Wanted {
        uploader: &uploader,
        name,
        start: Some(0),
        total_bytes: None,
        makes_folders: false,
    };
    let is_busy = |it: Option<UploadError>| matches!(it, Some(UploadError::Busy(_)));
    let upload = uploads.begin(&site, wanted("in/d/a")).await.unwrap();
    assert!(is_busy(uploads.moving("in", "out").err()), "it is sent to");
    drop(upload);
    let moving = uploads.moving("/in/", "out").unwrap();
    for (from, to) in [("secret", "in/d/secret"), ("in/d", "d"), ("in", "other")] {
        assert!(is_busy(uploads.moving(from, to).err()), "{from} {to}");
    }
    let begun = uploads.begin(&site, wanted("in/d/b")).await;
    assert!(is_busy(begun.err()));
    assert!(uploads.moving("secret", "inner").is_ok());
    assert_eq!(moving.all().await.unwrap(), ["", "/d"]);
    moving.done().await.unwrap();
    drop(moving);
    assert!(root.path().join("out/d").exists());
    assert!(uploads.moving("out", "in").is_ok());
}

#[test]
fn what_is_renamed_with_a_folder_is_known_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("in/deeper/empty")).unwrap();
    for name in ["in/a.ts", "in/.hidden", "in/deeper/b.ts", "other.ts"] {
        fs::write(at(name), "").unwrap();
    }
    symlink("../other.ts", at("in/link.ts")).unwrap();
    symlink("/usr", at("in/outside")).unwrap();
    let root = Root::open(folder.path()).unwrap();
    let found = |name: &str, entries_max| {
        let found = endings(&root, Path::new(name), entries_max).unwrap();
        found.map(|mut all| {
            all.sort();
            all.join(" ")
        })
    };
    let all = " /a.ts /deeper /deeper/b.ts /deeper/empty /link.ts /outside";
    assert_eq!(found("in", 7).as_deref(), Some(all));
    assert_eq!(found("in", 6), None);
    assert_eq!(found("other.ts", 0).as_deref(), Some(""));
    assert!(endings(&root, Path::new("none"), 7).is_err());
    // What is in there has names that nobody sees here.
    symlink("../deeper", at("in/deeper/again")).unwrap();
    symlink("in", at("link")).unwrap();
    for name in ["in", "link"] {
        assert_eq!(found(name, 100), None, "{name}");
    }
}

#[test]
fn hidden_names_and_the_root_itself_are_not_stored() {
    for name in ["", "/", ".a", "in/.a", "../a", "in/../a", "a\0"] {
        assert!(path_of(name).is_err(), "{name}");
    }
}
