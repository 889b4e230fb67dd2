//! What can be opened under the root, how often a file is read, and what becomes of files that
//! change.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use onrush_sys::fs::Root;
use onrush_wire::media::ts::synth::constant_rate;

use super::*;
use crate::config::{LibraryConfig, LibraryPlace, Limits};
use crate::experiments::Faults;
use crate::remote::{RemoteEntry, RemoteFile, RemoteFiles, RemoteStats, Then};
use crate::store::Source;

use super::scan::{Read, Scanned, read};

/// A media directory that goes with the value.
struct Fixture {
    directory: tempfile::TempDir,
    library: Arc<Library>,
}

impl Fixture {
    fn new(files_max: usize) -> Self {
        Self::with(Limits {
            files_max,
            ..Limits::default()
        })
    }

    fn growing(growth_time_max: Duration) -> Self {
        Self::with(Limits {
            growth_time_max,
            ..Limits::default()
        })
    }

    fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let media_root = directory.path().join("media");
        fs::create_dir_all(&media_root).unwrap();
        let config = Config {
            media_root,
            limits,
            ..Config::default()
        };
        let library = Arc::new(Library::new(&config).unwrap());
        Self { directory, library }
    }

    /// What is found among so many entries.
    fn walk(&self, names_max: usize, entries_max: usize) -> io::Result<(Vec<PathBuf>, usize)> {
        let root = Root::open(&self.path(""))?;
        walk(&root, names_max, entries_max)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("media").join(name)
    }

    fn write(&self, name: &str, packets: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, constant_rate(packets, 0, 10_000)).unwrap();
        // Long ago, or it would count as being written.
        self.touch(name, Duration::from_secs(9999));
    }

    /// It was changed so long ago.
    fn touch(&self, name: &str, ago: Duration) {
        let file = self.to_append(name);
        file.set_modified(SystemTime::now() - ago).unwrap();
    }

    fn to_append(&self, name: &str) -> File {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .append(true)
            .open(self.path(name))
            .unwrap()
    }

    async fn open(&self, name: &str) -> Result<Arc<Media>, OpenError> {
        self.library.open(name).await
    }

    fn sweep(&self) {
        for device in self.library.devices() {
            self.library.sweep(device);
        }
    }

    fn descriptors(&self) -> usize {
        self.library.descriptors()
    }
}

/// As what a camera has written whose clock is wrong.
#[tokio::test]
async fn a_file_from_the_future_is_not_being_written() {
    let fixture = Fixture::new(9);
    fixture.write("film.ts", 100);
    let later = SystemTime::now() + Duration::from_secs(9999);
    let file = fixture.to_append("film.ts");
    file.set_modified(later).unwrap();
    assert!(!fixture.open("film.ts").await.unwrap().grows());
    // One of this very moment is.
    fixture.write("new.ts", 100);
    fixture.touch("new.ts", Duration::ZERO);
    assert!(fixture.open("new.ts").await.unwrap().grows());
}

/// What failed once, for example because a disk did not answer, is not given up for ever.
#[tokio::test]
async fn a_file_that_failed_is_opened_anew() {
    let fixture = Fixture::new(9);
    fixture.write("film.ts", 100);
    let before = fixture.open("film.ts").await.unwrap();
    let source = before.source(0, 7 * 188, 64 << 10).unwrap();
    source.change(9..10, "cannot be read".to_owned());
    let after = fixture.open("film.ts").await.unwrap();
    assert_eq!(after.source(0, 7 * 188, 64 << 10).unwrap().failure(), None);
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
    // Not UTF-8, as an old disk may have it.
    let other = OsStr::from_bytes(b"\xfcbung.ts");
    fs::copy(fixture.path("a film.ts"), fixture.path("").join(other)).unwrap();
    onrush_testkit::media::age(&fixture.path("").join(other)).unwrap();
    for name in [
        "a film.ts",
        "Ordner/übung.ts",
        "link.ts",
        "\u{10fffc}bung.ts",
    ] {
        let media = fixture.open(name).await.unwrap();
        assert_eq!((media.name(), ts_packets(&media)), (name, 100));
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

/// Neither waits for a FIFO's other end, and each is answered as what is not there.
#[tokio::test]
async fn what_is_no_file_is_not_found() {
    let fixture = Fixture::new(9);
    let _listener = UnixListener::bind(fixture.path("socket.ts")).unwrap();
    let fifo = std::process::Command::new("mkfifo")
        .arg(fixture.path("fifo.ts"))
        .status();
    assert!(fifo.unwrap().success());
    symlink("socket.ts", fixture.path("link.ts")).unwrap();
    for name in ["socket.ts", "fifo.ts", "link.ts"] {
        let error = fixture.open(name).await.unwrap_err();
        assert!(
            matches!(error, OpenError::NotFound { .. }),
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
        ("text.ts", "no MP4, Matroska or MPEG transport stream"),
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
    assert!(Arc::ptr_eq(
        &first.plan(0, 7 * 188).unwrap(),
        &first.plan(0, 7 * 188).unwrap()
    ));
    assert_eq!(
        first.plan(0, 3 * 188).unwrap().rtp_packets(),
        5000_u64.div_ceil(3)
    );
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_waste_the_indexing() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 5000);
    // Nobody can index while these are held, so the client surely leaves before the end.
    let device = fs::metadata(fixture.path("a.ts")).unwrap().dev();
    let permits = fixture.library.indexing.of(device);
    let all = u32::try_from(INDEXING_MAX).unwrap();
    let permits = permits.acquire_many_owned(all).await.unwrap();
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

/// Of a disk that does not answer, clients that hang up would take one thread each.
#[test]
fn a_look_has_its_turn_though_its_client_hangs_up() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let fixture = Fixture::new(9);
        fixture.write("a.ts", 100);
        let media = fixture.open("a.ts").await.unwrap();
        // Nobody can look while the only thread waits.
        let (answer, answers) = mpsc::channel::<()>();
        let waiting = tokio::task::spawn_blocking(move || answers.recv().is_err());
        let look = refreshed(Arc::clone(&media), None);
        let left = tokio::time::timeout(Duration::from_millis(50), look).await;
        assert!(left.is_err());
        assert!(media.refreshing.try_lock().is_err(), "it is still to come");
        drop(answer);
        assert!(waiting.await.unwrap());
        let over = tokio::time::timeout(Duration::from_secs(60), media.refreshing.lock()).await;
        assert!(over.is_ok());
    });
}

/// Packets like those of [`Fixture::write`], with other pictures in them.
fn another_film(packets: u64) -> Vec<u8> {
    let mut film = constant_rate(packets, 0, 10_000);
    for packet in film.chunks_exact_mut(188) {
        packet[187] ^= 1;
    }
    film
}

/// Transport packets of a media.
fn ts_packets(media: &Media) -> u64 {
    let index = media.index();
    index.as_ts().expect("a transport stream").ts_packets()
}

/// When one of them is due.
fn due_ns(media: &Media, ts_packet: u64) -> u64 {
    let index = media.index();
    index.as_ts().expect("a transport stream").due_ns(ts_packet)
}

/// A playing session, as far as its file knows.
fn source_of(media: &Media) -> Arc<Source> {
    Arc::clone(media.source(0, 7 * 188, 64 << 10).unwrap())
}

#[tokio::test]
async fn whatever_becomes_of_its_name_a_file_stays_what_was_opened() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 200);
    let old = fixture.open("a.ts").await.unwrap();
    let source = source_of(&old);
    let is_undisturbed = || {
        old.refresh(None);
        let whole = (source.rtp_packets(), source.grows()) == (29, false);
        assert!(whole && source.failure().is_none() && !source.is_changed(0));
        assert!(!old.is_outdated());
    };
    // Its time alone.
    fixture.touch("a.ts", Duration::from_secs(5000));
    is_undisturbed();
    assert!(Arc::ptr_eq(&old, &fixture.open("a.ts").await.unwrap()));
    // Its name.
    fs::rename(fixture.path("a.ts"), fixture.path("b.ts")).unwrap();
    is_undisturbed();
    assert!(fixture.open("a.ts").await.is_err());
    // Another in its place.
    fixture.write("new.ts", 300);
    fs::rename(fixture.path("new.ts"), fixture.path("a.ts")).unwrap();
    is_undisturbed();
    let new = fixture.open("a.ts").await.unwrap();
    assert_eq!(ts_packets(&new), 300);
    assert_ne!(new.origin(0), old.origin(0));
    // None at all.
    fs::remove_file(fixture.path("a.ts")).unwrap();
    fs::remove_file(fixture.path("b.ts")).unwrap();
    is_undisturbed();
    assert!(fixture.open("b.ts").await.is_err());
}

#[tokio::test]
async fn what_is_cut_off_is_not_played_any_more_and_all_before_is() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 200);
    let old = fixture.open("a.ts").await.unwrap();
    let source = source_of(&old);
    let file = fixture.to_append("a.ts");
    file.set_len(100 * 188 + 5).unwrap();
    old.refresh(None);
    // Packet 14 has the transport packets 98 to 104.
    assert!(
        (
            source.is_changed(13),
            source.is_changed(14),
            source.is_changed(99)
        ) == (false, true, true)
    );
    let reason = source.failure().unwrap();
    assert!(reason.contains("truncated from 37600 to 18805"), "{reason}");
    // Also for those who come by another path, and if it is cut again.
    file.set_len(50 * 188).unwrap();
    old.refresh(None);
    let other = old.source(0, 188, 64 << 10).unwrap();
    assert!((other.is_changed(49), other.is_changed(50)) == (false, true));
    fixture.touch("a.ts", Duration::from_secs(5000));
    let short = fixture.open("a.ts").await.unwrap();
    assert_eq!(ts_packets(&short), 50);
    assert_ne!(short.origin(0), old.origin(0));
}

#[tokio::test]
async fn what_is_written_over_is_not_played_any_more_and_all_else_is() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 256 * 40);
    let old = fixture.open("a.ts").await.unwrap();
    let source = source_of(&old);
    let other = another_film(256 * 10);
    // Not what appends: then pwrite does, too.
    fs::OpenOptions::new()
        .write(true)
        .open(fixture.path("a.ts"))
        .unwrap()
        .write_all_at(&other, 256 * 20 * 188)
        .unwrap();
    old.refresh(None);
    let changed = |ts_packet: u64| source.is_changed(ts_packet / 7);
    assert_eq!(
        [10, 19, 25, 31].map(|i| changed(256 * i + 9)),
        [false, false, true, false]
    );
    let reason = source.failure().unwrap();
    assert!(reason.contains("overwritten"), "{reason}");
    let new = fixture.open("a.ts").await.unwrap();
    assert_ne!(new.origin(0), old.origin(0));
}

#[tokio::test]
async fn a_film_copied_over_a_shorter_one_is_no_growth() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 1000);
    let old = fixture.open("a.ts").await.unwrap();
    let source = source_of(&old);
    fs::write(fixture.path("a.ts"), another_film(1500)).unwrap();
    let new = fixture.open("a.ts").await.unwrap();
    assert!(!Arc::ptr_eq(&old, &new));
    assert_eq!(ts_packets(&old), 1000);
    assert!(source.is_changed(0) && source.is_changed(100));
    assert!(ts_packets(&new) > 1400);
}

#[tokio::test]
async fn a_file_that_is_appended_to_goes_on_and_ends_when_it_rests() {
    let growth_time_max = Duration::from_millis(300);
    let fixture = Fixture::growing(growth_time_max);
    let film = constant_rate(2000, 0, 10_000);
    fixture.write("a.ts", 200);
    let media = fixture.open("a.ts").await.unwrap();
    let source = source_of(&media);
    assert!((media.grows(), source.grows(), source.rtp_packets()) == (false, false, 29));
    let before: Vec<_> = (0..200).map(|i| due_ns(&media, i)).collect();
    let mut file = fixture.to_append("a.ts");
    // In any pieces: the last one's end is in the middle of a packet.
    for end in [300 * 188 + 1, 300 * 188 + 50, 555 * 188, 1999 * 188 + 100] {
        let start = usize::try_from(file.metadata().unwrap().len()).unwrap();
        file.write_all(&film[start..end]).unwrap();
        tokio::time::sleep(REFRESH_EVERY).await;
        assert!(Arc::ptr_eq(&media, &fixture.open("a.ts").await.unwrap()));
        assert!(media.grows() && source.grows());
        let settled = ts_packets(&media);
        // References come every few packets.
        assert!(
            settled + 30 > end as u64 / 188 && settled <= end as u64 / 188,
            "{settled} of {end}"
        );
        assert_eq!(source.rtp_packets(), settled / 7);
        let now: Vec<_> = (0..200).map(|i| due_ns(&media, i)).collect();
        assert_eq!(now, before);
    }
    tokio::time::sleep(growth_time_max + REFRESH_EVERY).await;
    assert!(media.grows(), "nobody has looked");
    media.refresh(Some(0));
    assert!((media.grows(), source.grows()) == (false, false));
    assert_eq!((ts_packets(&media), source.rtp_packets()), (1999, 286));
    assert_eq!(source.plan().image_bytes(285), 12 + 4 * 188);
    // And once more, after all.
    file.write_all(&film[1999 * 188 + 100..]).unwrap();
    media.refresh(None);
    assert!(media.grows());
    tokio::time::sleep(growth_time_max + REFRESH_EVERY).await;
    media.refresh(None);
    assert!((media.grows(), ts_packets(&media)) == (false, 2000));
    assert_eq!(source.rtp_packets(), 286);
    assert_eq!(source.plan().image_bytes(285), 12 + 5 * 188);
    // It is called by then what a node calls it that has not seen it grow.
    let opened = identify(File::open(fixture.path("a.ts")).unwrap()).unwrap();
    assert_eq!(media.version(), version_of(&opened.0, opened.1));
}

/// So that what the playlist of one node names is found at another, which has a copy.
#[tokio::test]
async fn copies_with_the_same_time_have_the_same_version() {
    let (here, there) = (Fixture::new(9), Fixture::new(9));
    let time = SystemTime::now() - Duration::from_secs(9999);
    let date = |at: &Fixture, name: &str, time| at.to_append(name).set_modified(time).unwrap();
    here.write("film.ts", 1000);
    there.write("in/copy.ts", 1000);
    date(&here, "film.ts", time);
    date(&there, "in/copy.ts", time);
    let film = here.open("film.ts").await.unwrap();
    let copy = there.open("in/copy.ts").await.unwrap();
    assert_ne!(film.identity(), copy.identity());
    assert_eq!(film.version(), copy.version());
    // Another film in its place, as long and as old.
    fs::write(here.path("other.ts"), another_film(1000)).unwrap();
    date(&here, "other.ts", time);
    fs::rename(here.path("other.ts"), here.path("film.ts")).unwrap();
    let other = here.open("film.ts").await.unwrap();
    let (old, new) = (film.identity(), other.identity());
    assert_eq!(
        (old.file_bytes, old.modified_ns),
        (new.file_bytes, new.modified_ns)
    );
    assert!(!other.has_version(film.version()));
    // And the same bytes at another time.
    date(&there, "in/copy.ts", time + Duration::from_secs(1));
    let touched = there.open("in/copy.ts").await.unwrap();
    assert!(!touched.has_version(film.version()));
}

#[tokio::test]
async fn a_fresh_file_counts_as_growing_until_it_has_rested() {
    let growth_time_max = Duration::from_secs(60);
    let fixture = Fixture::growing(growth_time_max);
    fixture.write("old.ts", 500);
    fixture.write("fresh.ts", 500);
    fixture.touch("fresh.ts", Duration::ZERO);
    fixture.touch("old.ts", growth_time_max + Duration::from_secs(1));
    assert!(!fixture.open("old.ts").await.unwrap().grows());
    let fresh = fixture.open("fresh.ts").await.unwrap();
    assert!(fresh.grows());
    assert!(ts_packets(&fresh) > 450, "almost all is settled");
}

#[tokio::test]
async fn much_that_has_been_appended_is_read_a_part_at_a_time() {
    let fixture = Fixture::growing(Duration::ZERO);
    let film = constant_rate(3000, 0, 10_000);
    fixture.write("a.ts", 1000);
    let media = fixture.open("a.ts").await.unwrap();
    fixture
        .to_append("a.ts")
        .write_all(&film[1000 * 188..])
        .unwrap();
    // All of it is read again, since it had seemed complete; meanwhile its sessions wait at its
    // end.
    for _ in 0..2 {
        media.refresh(Some(1200 * 188));
        assert!((media.grows(), ts_packets(&media)) == (true, 1000));
        tokio::time::sleep(REFRESH_EVERY).await;
    }
    media.refresh(Some(1200 * 188));
    assert!(ts_packets(&media) > 2900);
}

/// Nor does anybody wait for that who opens it.
#[tokio::test]
async fn what_goes_on_after_it_had_ended_opens_as_it_is_known() {
    let fixture = Fixture::growing(Duration::ZERO);
    let film = constant_rate(26_000, 0, 10_000);
    fixture.write("a.ts", 25_000);
    let media = fixture.open("a.ts").await.unwrap();
    let more = &film[25_000 * 188..];
    fixture.to_append("a.ts").write_all(more).unwrap();
    let same = fixture.open("a.ts").await.unwrap();
    assert!(Arc::ptr_eq(&media, &same));
    assert!((media.grows(), ts_packets(&media)) == (true, 25_000));
    tokio::time::sleep(REFRESH_EVERY).await;
    drop(fixture.open("a.ts").await.unwrap());
    assert!(ts_packets(&media) > 25_900);
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
    fixture.sweep();
    let entries = fixture.library.entries.lock().unwrap();
    let mut names: Vec<_> = entries.by_name.keys().collect();
    names.sort();
    assert_eq!(names, ["played.ts", "there.ts"]);
}

/// As when a disk is mounted there after the start.
#[tokio::test]
async fn a_folder_in_its_place_is_served() {
    let fixture = Fixture::new(9);
    fixture.write("old.ts", 100);
    drop(fixture.open("old.ts").await.unwrap());
    let media_root = fixture.directory.path().join("media");
    fs::rename(&media_root, fixture.directory.path().join("before")).unwrap();
    fixture.write("new.ts", 200);
    let renew = || fixture.library.folders().iter().for_each(|it| it.renew());
    assert!(fixture.open("new.ts").await.is_err(), "nobody has looked");
    renew();
    assert_eq!(ts_packets(&fixture.open("new.ts").await.unwrap()), 200);
    let error = fixture.open("old.ts").await.unwrap_err();
    assert!(matches!(error, OpenError::NotFound { .. }), "{error}");
    fixture.sweep();
    let entries = fixture.library.entries.lock().unwrap();
    assert_eq!(entries.by_name.keys().collect::<Vec<_>>(), ["new.ts"]);
}

#[test]
fn films_leave_descriptors_to_others() {
    for (files_max, open_files, most) in [
        (4096, 1 << 20, 4096),
        (4096, 8 * 4096, 4096),
        (4096, 8 * 4096 - 1, 4095),
        (4096, 4000, 500),
        (3, 4000, 3),
        (4096, 0, 1),
        (usize::MAX, u64::MAX, usize::MAX / 8),
    ] {
        assert_eq!(films_max(files_max, open_files), most);
    }
    for code in [libc::EMFILE, libc::ENFILE] {
        assert!(lacks_descriptors(&io::Error::from_raw_os_error(code)));
    }
    assert!(!lacks_descriptors(&io::ErrorKind::NotFound.into()));
}

/// A film takes one, and another while it is read past the page cache, whatever is read of it.
#[tokio::test]
async fn descriptors_of_films_are_counted_and_let_go() {
    let fixture = Fixture::new(9);
    for name in ["played.ts", "idle.ts"] {
        fixture.write(name, 5000);
    }
    let played = fixture.open("played.ts").await.unwrap();
    let idle = fixture.open("idle.ts").await.unwrap();
    assert_eq!(fixture.descriptors(), 2);
    let store = crate::testing::store_of(64 << 10, 8, Faults::default());
    let shared = store.shared();
    for media in [&played, &idle] {
        // Two ways to cut it.
        for payload_bytes_max in [7 * 188, 188] {
            let source = media.source(0, payload_bytes_max, 64 << 10).unwrap();
            let pin = shared.fetch(source, 0, Duration::from_secs(60)).await;
            shared.pool().unpin(pin.expect("built"));
        }
    }
    // Not every file system can.
    let directly = match shared.counters().bytes_read_direct.load(Ordering::Relaxed) {
        0 => 0,
        _ => 1,
    };
    assert_eq!(fixture.descriptors(), 2 + 2 * directly);
    drop(idle);
    fixture.sweep();
    assert_eq!(fixture.descriptors(), 2 + directly);
    assert!(fixture.library.let_go_of_unused());
    // Who has built a chunk of it may be just about to let go of it, too.
    crate::testing::wait_until("one is left", || fixture.descriptors() == 1 + directly);
    assert!(!fixture.library.let_go_of_unused(), "it is played");
    drop((played, store));
    assert!(fixture.library.let_go_of_unused());
    assert_eq!(fixture.descriptors(), 0);
}

/// With a small limit all that is left for clients may be in idle films.
#[tokio::test]
async fn idle_films_make_room_for_clients_once_in_a_while() {
    let fixture = Fixture::new(9);
    for name in ["played.ts", "idle.ts"] {
        fixture.write(name, 100);
    }
    let played = fixture.open("played.ts").await.unwrap();
    let library = &fixture.library;
    let has_room = || library.has_descriptors(|| fixture.descriptors() < 2);
    assert!(has_room());
    drop(fixture.open("idle.ts").await.unwrap());
    assert_eq!(fixture.descriptors(), 2);
    assert!(has_room());
    assert_eq!(fixture.descriptors(), 1);
    drop(fixture.open("idle.ts").await.unwrap());
    let made = |at| library.entries.lock().unwrap().room_made = at;
    // Just now, however long this test has stood still.
    made(Some(Instant::now() + Duration::from_secs(3600)));
    assert!(!has_room(), "not so soon");
    made(None);
    assert!(has_room());
    drop(played);
}

#[tokio::test]
async fn a_sweep_ends_what_rests_and_drops_what_grew_unseen() {
    let growth_time_max = Duration::from_secs(3);
    let fixture = Fixture::growing(growth_time_max);
    for name in ["rested.ts", "grown.ts", "played.ts"] {
        fixture.write(name, 100);
        fixture.touch(name, Duration::ZERO);
    }
    let opened = fixture.open("rested.ts").await.unwrap();
    drop(fixture.open("grown.ts").await.unwrap());
    let played = fixture.open("played.ts").await.unwrap();
    assert!(opened.grows() && ts_packets(&opened) < 100);
    let version = opened.version();
    drop(opened);
    fixture.to_append("grown.ts").write_all(&[0x47]).unwrap();
    tokio::time::sleep(growth_time_max).await;
    fixture.sweep();
    {
        let entries = fixture.library.entries.lock().unwrap();
        let mut names: Vec<_> = entries.by_name.keys().collect();
        names.sort();
        assert_eq!(names, ["played.ts", "rested.ts"]);
    }
    // What rests has all that was held back, and its segments are found by the names that they had.
    let again = fixture.open("rested.ts").await.unwrap();
    assert_eq!((again.grows(), ts_packets(&again)), (false, 100));
    assert!(again.has_version(version) && again.version() != version);
    tokio::time::sleep(REFRESH_EVERY).await;
    played.refresh(None);
    assert_eq!((played.grows(), ts_packets(&played)), (false, 100));
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
        "film.doc",
    ] {
        fixture.write(name, 1);
    }
    fs::write(fixture.directory.path().join("secret.ts"), "").unwrap();
    symlink("../secret.ts", fixture.path("out.ts")).unwrap();
    symlink("b.ts", fixture.path("link.ts")).unwrap();
    symlink("..", fixture.path("a/up")).unwrap();
    let all = ["a/b/y.mts", "a/x.M2TS", "b.ts", "link.ts"].map(PathBuf::from);
    for names_max in [99, 4, 3, 2, 1, 0] {
        let (names, count) = fixture.library.names(names_max);
        assert_eq!(names, all[..names_max.min(4)]);
        assert_eq!(count, Some(4));
    }
    // Eleven entries, hidden ones counted, but not what is in hidden folders.
    assert_eq!(fixture.walk(99, 11).unwrap().0.len(), 4);
    let deepest = vec!["d"; DEPTH_MAX].join("/");
    fixture.write(&format!("{deepest}/in.ts"), 1);
    fixture.write(&format!("{deepest}/d/too-deep.ts"), 1);
    let (names, _) = fixture.library.names(99);
    let found = |name: &str| names.iter().any(|path| path.ends_with(name));
    assert_eq!((found("in.ts"), found("too-deep.ts")), (true, false));
}

/// A store that does not answer.
#[derive(Debug, Default)]
struct SilentStore(RemoteStats);

impl RemoteFiles for SilentStore {
    fn open(&self, _: &str, then: Then<RemoteFile>) {
        then(Err(io::ErrorKind::TimedOut.into()));
    }

    fn names(&self, _: usize) -> io::Result<(Vec<PathBuf>, usize)> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn list(&self, _: &str, _: usize, then: Then<(Vec<RemoteEntry>, bool)>) {
        then(Err(io::ErrorKind::TimedOut.into()));
    }

    fn let_go_of_unused(&self) -> bool {
        self.0.open_files.swap(0, Ordering::Relaxed) > 0
    }

    fn stats(&self) -> &RemoteStats {
        &self.0
    }
}

#[test]
fn files_of_a_store_are_counted_and_let_go() {
    let store = Arc::new(SilentStore::default());
    store.0.open_files.store(3, Ordering::Relaxed);
    let config = Config {
        remote: Some(Arc::<SilentStore>::clone(&store)),
        ..Config::default()
    };
    let library = Library::new(&config).unwrap();
    assert_eq!(library.descriptors(), 3);
    assert!(library.let_go_of_unused());
    assert_eq!(library.descriptors(), 0);
    assert!(!library.let_go_of_unused());
}

#[test]
fn a_silent_store_hides_no_other_library() {
    let fixture = Fixture::new(9);
    fixture.write("a.ts", 1);
    let library = |name: &str, place| LibraryConfig {
        name: name.to_owned(),
        place,
    };
    let store = LibraryPlace::Remote(Arc::new(SilentStore::default()));
    let films = LibraryPlace::Folder(fixture.path(""));
    let config = Config {
        libraries: vec![library("archive", store), library("films", films)],
        ..Config::default()
    };
    let found = Library::new(&config).unwrap().names(9);
    assert_eq!(found, (vec![PathBuf::from("films/a.ts")], None));
}

#[test]
fn names_looks_at_only_so_many_entries() {
    let fixture = Fixture::new(9);
    for name in ["a.ts", "b.ts", "c.ts"] {
        fixture.write(name, 1);
    }
    assert_eq!(fixture.walk(99, 3).unwrap().1, 3);
    assert_eq!(fixture.walk(99, 2).unwrap().1, 2);
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

/// A stream of half a minute at 10 Mbit/s, of which the first look takes in a part.
fn long_stream(fixture: &Fixture) -> Vec<u8> {
    // 188 bytes in 27 MHz ticks at 10 Mbit/s.
    let bytes = constant_rate(200_000, 0, 4061);
    fs::write(fixture.path("long.ts"), &bytes).unwrap();
    fixture.touch("long.ts", Duration::from_secs(9999));
    bytes
}

#[test]
fn a_long_file_is_played_before_all_of_it_is_read() {
    let fixture = Fixture::new(9);
    let bytes = long_stream(&fixture);
    let file = File::open(fixture.path("long.ts")).unwrap();
    let (file, identity) = identify(file).unwrap();
    let settings = fixture.library.settings.clone();
    let scanned = scan(&file, identity, &settings).unwrap().unwrap();
    let path = fixture.path("long.ts");
    let opened = Opened::new(path, file, &settings.reading.counters);
    let media = Media::new("long.ts".to_owned(), opened, scanned, settings).unwrap();
    let whole_ns = 200_000 * 4061 * 1000 / 27;
    assert!(media.is_partial() && media.goes_on() && !media.grows());
    let version = media.version();
    assert!(media.index().duration_ns() < whole_ns / 3);
    let estimate_ns = media.duration_ns();
    assert!(
        estimate_ns.abs_diff(whole_ns) < whole_ns / 1000,
        "{estimate_ns} {whole_ns}"
    );
    let source = Arc::clone(media.source(0, 7 * 188, 64 << 10).unwrap());
    let known = source.rtp_packets();
    assert!(source.grows() && known < 10_000);
    // Nobody plays it for a while.
    assert!(!media.is_gone());
    let mut turns = 1;
    while !media.read_behind(4 << 20) {
        turns += 1;
    }
    assert!(turns >= 7, "{turns}");
    let mut whole = onrush_wire::media::Scanner::default();
    whole.read(&bytes).unwrap();
    let whole = whole.finish().unwrap();
    assert_eq!(media.duration_ns(), whole.duration_ns());
    let packets = (source.rtp_packets(), source.grows(), media.goes_on());
    assert_eq!(packets, (200_000_u64.div_ceil(7), false, false));
    assert_eq!(media.version(), version);
}

#[test]
fn few_segments_of_a_film_are_listed_while_it_is_read() {
    let fixture = Fixture::new(9);
    long_stream(&fixture);
    let media = |growth_time_max| {
        let path = fixture.path("long.ts");
        let (file, identity) = identify(File::open(&path).unwrap()).unwrap();
        let mut settings = fixture.library.settings.clone();
        settings.growth_time_max = growth_time_max;
        let scanned = scan(&file, identity, &settings).unwrap().unwrap();
        let opened = Opened::new(path, file, &settings.reading.counters);
        Media::new("long.ts".to_owned(), opened, scanned, settings).unwrap()
    };
    let film = media(Duration::from_secs(1));
    let listed = film.listed_max(Duration::ZERO).unwrap();
    assert!(film.is_partial() && (3..10).contains(&listed), "{listed}");
    assert_eq!(film.listed_max(Duration::from_secs(999)), Some(3));
    // It was written a moment ago.
    let recording = media(Duration::from_secs(99_999));
    assert!(recording.is_partial());
    assert_eq!(recording.listed_max(Duration::ZERO), None);
}

/// Else a film whose samples lie over each other, of which little is read, would keep its turn.
#[test]
fn what_is_looked_at_in_memory_counts_too() {
    onrush_testkit::require_programs!("ffmpeg");
    let fixture = Fixture::new(9);
    let path = fixture.path("short.mp4");
    let encode = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -movflags faststart";
    let mut ffmpeg = std::process::Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-f", "lavfi", "-i"]);
    ffmpeg.arg("testsrc2=size=160x90:rate=25:duration=4");
    let made = ffmpeg.args(encode.split_whitespace()).arg(&path).status();
    assert!(made.unwrap().success());
    let (file, identity) = identify(File::open(&path).unwrap()).unwrap();
    let end = identity.file_bytes;
    assert!(end < 1 << 20, "{end} bytes are more than are read at once");
    let mut scanner = onrush_wire::media::Scanner::default();
    let reading = &fixture.library.settings.reading;
    // All of its bytes, and a look or two at what is in them.
    let mut turn = || read(&file, &mut scanner, end + 64, end, reading);
    assert_eq!(turn().unwrap().unwrap(), Read::Enough);
    while turn().unwrap().unwrap() == Read::Enough {}
    assert_eq!(scanner.finish().unwrap().known_ns(), 4_000_000_000);
}

/// As it is told to whoever asks before the rest is read, and stays then.
#[test]
fn how_long_fragments_last_is_told_at_once() {
    onrush_testkit::require_programs!("ffmpeg");
    let fixture = Fixture::new(9);
    let path = fixture.path("long.mp4");
    let film = "testsrc2=size=320x180:rate=25:duration=60,noise=alls=40:allf=t";
    let encode = "-c:v libx264 -preset ultrafast -qp 12 -pix_fmt yuv420p -g 50 \
        -movflags frag_keyframe+empty_moov";
    let mut ffmpeg = std::process::Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-f", "lavfi", "-i", film]);
    let made = ffmpeg.args(encode.split_whitespace()).arg(&path).status();
    assert!(made.unwrap().success());
    fixture.touch("long.mp4", Duration::from_secs(9999));
    let (file, identity) = identify(File::open(&path).unwrap()).unwrap();
    let settings = fixture.library.settings.clone();
    let scanned = scan(&file, identity, &settings).unwrap().unwrap();
    let opened = Opened::new(path, file, &settings.reading.counters);
    let media = Media::new("long.mp4".to_owned(), opened, scanned, settings).unwrap();
    let minute_ns = 60_000_000_000;
    assert!(media.is_partial());
    assert!(media.index().known_ns() < minute_ns * 3 / 4);
    assert_eq!(media.duration_ns(), minute_ns);
    while !media.read_behind(4 << 20) {
        assert_eq!(media.duration_ns(), minute_ns);
    }
    assert!(!media.is_partial());
    assert_eq!(
        (media.duration_ns(), media.index().known_ns()),
        (minute_ns, minute_ns)
    );
}

#[tokio::test]
async fn who_wants_a_place_not_read_yet_waits_for_it() {
    let fixture = Fixture::new(9);
    long_stream(&fixture);
    let media = fixture.open("long.ts").await.unwrap();
    assert!(
        media
            .known_to(29_000_000_000, Duration::from_secs(60))
            .await
    );
    assert!(media.index().known_ns() > 29_000_000_000);
    // Beyond the end there is nothing to wait for.
    assert!(media.known_to(u64::MAX, Duration::from_secs(60)).await);
    assert!(!media.is_partial());
}

/// What of a file of 50 GB stands between a PLAY and its first packet. At 500 MB/s, 16 MiB are
/// 34 ms.
const FIRST_BYTES_MAX: u64 = 16 << 20;
const LARGE_BYTES: u64 = 50 << 30;

/// What is known of a file when it can be played, and how many bytes were read for that.
fn first_known(fixture: &Fixture, name: &str) -> (Scanned, u64) {
    fixture.touch(name, Duration::from_secs(9999));
    let (file, identity) = identify(File::open(fixture.path(name)).unwrap()).unwrap();
    assert!(identity.file_bytes >= LARGE_BYTES);
    let settings = &fixture.library.settings;
    let scanned = scan(&file, identity, settings).unwrap().unwrap();
    let read = settings.reading.counters.bytes_read.load(Ordering::Relaxed);
    (scanned, read)
}

#[test]
fn of_a_large_stream_little_is_read_before_it_plays() {
    let fixture = Fixture::new(9);
    long_stream(&fixture);
    fixture.to_append("long.ts").set_len(LARGE_BYTES).unwrap();
    let (scanned, read) = first_known(&fixture, "long.ts");
    assert!(scanned.growth.is_some() && scanned.index.known_ns() >= 4_000_000_000);
    assert!(read < FIRST_BYTES_MAX, "{read}");
    // At 10 Mbit/s.
    let estimate_s = scanned.estimate_ns.unwrap() / 1_000_000_000;
    let expected_s = LARGE_BYTES * 8 / 10_000_000;
    assert!(
        estimate_s.abs_diff(expected_s) < expected_s / 50,
        "{estimate_s}"
    );
}

#[test]
fn of_a_large_mp4_little_is_read_before_it_plays() {
    onrush_testkit::require_programs!("ffmpeg");
    let fixture = Fixture::new(9);
    let path = fixture.path("large.mp4");
    let encode = "-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 50";
    let mut ffmpeg = std::process::Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-f", "lavfi", "-i"]);
    ffmpeg.arg("testsrc2=size=320x180:rate=25:duration=60");
    let made = ffmpeg.args(encode.split_whitespace()).arg(&path).status();
    assert!(made.unwrap().success());
    // Its tables are at its end: what it is large of lies in front of them.
    let film = fs::read(&path).unwrap();
    let tables = film.windows(4).rposition(|it| it == b"moov").unwrap() - 4;
    let mut large = fs::OpenOptions::new();
    let large = large.write(true).open(&path).unwrap();
    let hole = [&[0, 0, 0, 1][..], b"free", &LARGE_BYTES.to_be_bytes()].concat();
    let at = tables as u64;
    large.write_all_at(&hole, at).unwrap();
    large.set_len(at + LARGE_BYTES).unwrap();
    large
        .write_all_at(&film[tables..], at + LARGE_BYTES)
        .unwrap();
    let (scanned, read) = first_known(&fixture, "large.mp4");
    assert!(scanned.growth.is_none(), "all is known");
    assert_eq!(scanned.index.known_ns(), 60_000_000_000);
    assert!(read < FIRST_BYTES_MAX, "{read}");
}
