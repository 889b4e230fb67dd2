//! What can be opened under the root, how often a file is read, and what becomes of files that change.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Duration;

use onrush_wire::media::synth::constant_rate;

use super::*;
use crate::config::Limits;

/// A media directory that goes with the value.
struct Fixture {
    directory: tempfile::TempDir,
    library: Arc<Library>,
}

impl Fixture {
    fn new(files_max: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let media_root = directory.path().join("media");
        fs::create_dir_all(&media_root).unwrap();
        let limits = Limits {
            files_max,
            ..Limits::default()
        };
        let config = Config {
            media_root,
            limits,
            ..Config::default()
        };
        let library = Arc::new(Library::new(&config).unwrap());
        Self { directory, library }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.library.root().join(name)
    }

    fn write(&self, name: &str, packets: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, constant_rate(packets, 0, 10_000)).unwrap();
    }

    async fn open(&self, name: &str) -> Result<Arc<Media>, OpenError> {
        self.library.open(name).await
    }
}

/// What failed once, for example because a disk did not answer, is not given up for ever.
#[tokio::test]
async fn a_file_that_failed_is_opened_anew() {
    let fixture = Fixture::new(9);
    fixture.write("film.ts", 100);
    let before = fixture.open("film.ts").await.unwrap();
    let source = before.source(7, 64 << 10).unwrap();
    source.fail("cannot be read".to_owned());
    let after = fixture.open("film.ts").await.unwrap();
    assert_eq!(after.source(7, 64 << 10).unwrap().failure(), None);
    assert!(Arc::ptr_eq(&after, &fixture.open("film.ts").await.unwrap()));
}

#[tokio::test]
async fn files_open_by_their_names_and_nothing_else_does() {
    let fixture = Fixture::new(9);
    fixture.write("a film.ts", 100);
    fixture.write("Ordner/übung.ts", 100);
    fixture.write(".hidden.ts", 100);
    fixture.write(".folder/x.ts", 100);
    fs::write(
        fixture.directory.path().join("secret.ts"),
        constant_rate(100, 0, 1),
    )
    .unwrap();
    symlink("../secret.ts", fixture.path("out.ts")).unwrap();
    symlink("a film.ts", fixture.path("link.ts")).unwrap();
    for name in ["a film.ts", "Ordner/übung.ts", "link.ts"] {
        let media = fixture.open(name).await.unwrap();
        assert_eq!((media.name(), media.index().ts_packets()), (name, 100));
        assert_eq!(media.check(), Ok(()));
    }
    let absolute = fixture.path("a film.ts");
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    assert_eq!((safe(&long), safe(&long[1..]).is_some()), (None, true));
    for name in [
        "../secret.ts",
        "Ordner/../../secret.ts",
        "Ordner/../a film.ts",
        "out.ts",
        "missing.ts",
        "a film.ts/x",
        "a film.ts\0",
        ".hidden.ts",
        ".folder/x.ts",
        absolute.to_str().unwrap(),
        &long,
        &long[1..],
    ] {
        let error = fixture.open(name).await.unwrap_err();
        assert!(
            matches!(error, OpenError::NotFound { .. }),
            "{name}: {error}"
        );
    }
    for name in ["Ordner", "Ordner/", ""] {
        let error = fixture.open(name).await.unwrap_err();
        assert!(
            matches!(error, OpenError::Directory { .. }),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn what_is_no_media_is_refused_with_the_reason() {
    let fixture = Fixture::new(9);
    fs::write(fixture.path("empty.ts"), "").unwrap();
    fs::write(fixture.path("text.ts"), "Hello there. ".repeat(1000)).unwrap();
    for (name, reason) in [
        ("empty.ts", "empty"),
        ("text.ts", "no MPEG transport stream"),
    ] {
        let error = fixture.open(name).await.unwrap_err();
        assert!(matches!(error, OpenError::NotMedia { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn all_who_ask_at_once_share_one_indexing() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 5000);
    let opens: Vec<_> = (0..20)
        .map(|_| {
            let library = Arc::clone(&fixture.library);
            tokio::spawn(async move { library.open("a.ts").await.unwrap() })
        })
        .collect();
    let first = fixture.open("a.ts").await.unwrap();
    for open in opens {
        assert!(Arc::ptr_eq(&first, &open.await.unwrap()));
    }
    assert!(Arc::ptr_eq(first.plan(7), first.plan(7)));
    assert_eq!(first.plan(3).rtp_packets(), 5000_u64.div_ceil(3));
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_waste_the_indexing() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 5000);
    // Nobody can index while these are held, so the client surely leaves before the end.
    let permits = fixture
        .library
        .indexing
        .acquire_many(u32::try_from(INDEXING_MAX).unwrap())
        .await
        .unwrap();
    let left = tokio::time::timeout(Duration::from_millis(50), fixture.open("a.ts")).await;
    assert!(left.is_err());
    drop(permits);
    let slot = Arc::clone(&fixture.library.entries.lock().unwrap().by_name["a.ts"].slot);
    for _ in 0..1000 {
        if slot.initialized() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the indexing went with the client");
}

#[tokio::test]
async fn a_changed_file_is_another_file_and_its_players_are_told() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 200);
    let old = fixture.open("a.ts").await.unwrap();
    let told = |media: &Media, what: &str| {
        let reason = media.check().unwrap_err();
        assert!(reason.contains(what), "{reason}");
    };
    let file = fs::OpenOptions::new()
        .append(true)
        .open(fixture.path("a.ts"))
        .unwrap();
    (&file).write_all(&constant_rate(100, 0, 1)).unwrap();
    told(&old, "modified");
    let grown = fixture.open("a.ts").await.unwrap();
    assert_eq!(
        (old.index().ts_packets(), grown.index().ts_packets()),
        (200, 300)
    );
    file.set_len(100 * 188).unwrap();
    told(&grown, "truncated from 56400 to 18800");
    let short = fixture.open("a.ts").await.unwrap();
    fixture.write("b.ts", 100);
    fs::rename(fixture.path("b.ts"), fixture.path("a.ts")).unwrap();
    told(&short, "replaced");
    let new = fixture.open("a.ts").await.unwrap();
    assert_eq!(new.check(), Ok(()));
    assert_ne!(new.origin(), old.origin());
    fs::remove_file(fixture.path("a.ts")).unwrap();
    told(&new, "removed");
}

#[tokio::test]
async fn files_in_use_stay_and_the_least_recently_used_of_others_goes() {
    let fixture = Fixture::new(3);
    for name in ["a.ts", "b.ts", "c.ts", "d.ts", "e.ts"] {
        fixture.write(name, 100);
    }
    let a = fixture.open("a.ts").await.unwrap();
    let b = Arc::downgrade(&fixture.open("b.ts").await.unwrap());
    let c = Arc::downgrade(&fixture.open("c.ts").await.unwrap());
    drop(fixture.open("b.ts").await.unwrap());
    // One more than fit: `a` is older than `c`, but in use.
    let d = fixture.open("d.ts").await.unwrap();
    assert_eq!((b.strong_count(), c.strong_count()), (1, 0));
    assert!(Arc::ptr_eq(&a, &fixture.open("a.ts").await.unwrap()));
    let b = fixture.open("b.ts").await.unwrap();
    let error = fixture.open("e.ts").await.unwrap_err();
    assert!(
        matches!(error, OpenError::TooMany { files_max: 3 }),
        "{error}"
    );
    drop((b, d));
    fixture.open("e.ts").await.unwrap();
}

#[tokio::test]
async fn a_sweep_lets_go_of_removed_files_that_nobody_plays() {
    let fixture = Fixture::new(9);
    for name in ["gone.ts", "played.ts", "there.ts"] {
        fixture.write(name, 100);
        drop(fixture.open(name).await.unwrap());
    }
    let _played = fixture.open("played.ts").await.unwrap();
    fs::remove_file(fixture.path("gone.ts")).unwrap();
    fs::remove_file(fixture.path("played.ts")).unwrap();
    fixture.library.sweep();
    let entries = fixture.library.entries.lock().unwrap();
    let mut names: Vec<_> = entries.by_name.keys().collect();
    names.sort();
    assert_eq!(names, ["played.ts", "there.ts"]);
}

#[tokio::test]
async fn indexing_ends_when_the_server_does() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 100);
    fixture.library.stop();
    let error = fixture.open("a.ts").await.unwrap_err();
    assert!(error.to_string().contains("stopping"), "{error}");
}

#[test]
fn names_lists_what_can_be_served() {
    let fixture = Fixture::new(9);
    for name in [
        "b.ts",
        "a/x.M2TS",
        "a/b/y.mts",
        ".no.ts",
        ".no/z.ts",
        "film.mp4",
    ] {
        fixture.write(name, 1);
    }
    fs::write(fixture.directory.path().join("secret.ts"), "").unwrap();
    symlink("../secret.ts", fixture.path("out.ts")).unwrap();
    symlink("b.ts", fixture.path("link.ts")).unwrap();
    symlink("..", fixture.path("a/up")).unwrap();
    let names = fixture.library.names(99).unwrap();
    assert_eq!(
        names,
        ["a/b/y.mts", "a/x.M2TS", "b.ts", "link.ts"].map(PathBuf::from)
    );
    assert_eq!(fixture.library.names(2).unwrap().len(), 2);
    // Eleven entries, hidden ones counted, but not what is in hidden folders.
    assert_eq!(fixture.library.walk(99, 11).unwrap().len(), 4);
    let deepest = vec!["d"; DEPTH_MAX].join("/");
    fixture.write(&format!("{deepest}/in.ts"), 1);
    fixture.write(&format!("{deepest}/d/too-deep.ts"), 1);
    let names = fixture.library.names(99).unwrap();
    let found = |name: &str| names.iter().any(|path| path.ends_with(name));
    assert_eq!((found("in.ts"), found("too-deep.ts")), (true, false));
}

#[test]
fn names_looks_at_only_so_many_entries() {
    let fixture = Fixture::new(9);
    for name in ["a.ts", "b.ts", "c.ts"] {
        fixture.write(name, 1);
    }
    assert_eq!(fixture.library.walk(99, 3).unwrap().len(), 3);
    assert_eq!(fixture.library.walk(99, 2).unwrap().len(), 2);
}

#[test]
fn a_root_that_is_no_directory_is_refused() {
    let media_root = PathBuf::from("/nonexistent/media");
    let config = Config {
        media_root,
        ..Config::default()
    };
    let error = Library::new(&config).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/media"), "{error}");
}
