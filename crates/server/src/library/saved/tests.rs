//! What is saved is found again, and nothing else is taken for it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Instant, SystemTime};

use onrush_wire::media::ts::synth::constant_rate;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::config::{Config, Limits};
use crate::library::{Library, Media};

const LONG_AGO: Duration = Duration::from_secs(9999);

/// A media directory and a state directory, and one library after the other that has both.
struct Fixture {
    directory: TempDir,
    runtime: Runtime,
    fallback_bitrate: u64,
    state_bytes_max: u64,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("media")).unwrap();
        Self {
            directory,
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            fallback_bitrate: 4_000_000,
            state_bytes_max: 1 << 20,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("media").join(name)
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// A file that was written long ago.
    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
        self.age(name, LONG_AGO);
    }

    fn age(&self, name: &str, age: Duration) {
        let file = File::options().append(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn library(&self) -> Arc<Library> {
        let config = Config {
            media_root: self.directory.path().join("media"),
            state: Some(self.state()),
            fallback_bitrate: self.fallback_bitrate,
            limits: Limits {
                state_bytes_max: self.state_bytes_max,
                ..Limits::default()
            },
            ..Config::default()
        };
        Arc::new(Library::new(&config).unwrap())
    }

    /// Opens a file as a server does that was started for that, and waits until it has saved what
    /// it saves.
    fn open(&self, name: &str) -> Seen {
        let library = self.library();
        let media = self.runtime.block_on(library.open(name)).unwrap();
        let read = self
            .runtime
            .block_on(media.known_to(u64::MAX, Duration::from_secs(30)));
        assert!(read, "{name} is not read to its end");
        let counters = library.counters();
        drop(library);
        // The last who has the settings, and so waits for what is being saved.
        let told = told(&media);
        let media = Arc::into_inner(media);
        let deadline = Instant::now() + Duration::from_secs(30);
        drop(media);
        while Arc::strong_count(&counters.saved) > 1 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Seen {
            told,
            bytes_read: count(&counters.bytes_read),
            restored: count(&counters.saved.restored),
            missed: count(&counters.saved.missed),
            thrown_away: count(&counters.saved.thrown_away),
            saved: count(&counters.saved.saved),
        }
    }

    /// The only file of a saved index.
    fn entry(&self) -> PathBuf {
        let mut found = fs::read_dir(self.state().join(FOLDER)).unwrap();
        let is_entry = |path: &PathBuf| !path.ends_with("lock");
        let entry = found.find_map(|entry| Some(entry.unwrap().path()).filter(is_entry));
        entry.expect("an index was saved")
    }
}

/// What a library did for one file.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Seen {
    told: String,
    bytes_read: u64,
    restored: u64,
    missed: u64,
    thrown_away: u64,
    saved: u64,
}

impl Seen {
    /// Read from end to end, and saved.
    fn is_new(&self) -> bool {
        self.bytes_read > 0 && (self.restored, self.missed, self.saved) == (0, 1, 1)
    }

    /// Not read.
    fn is_known(&self) -> bool {
        self.bytes_read == 0 && (self.restored, self.missed, self.saved) == (1, 0, 0)
    }
}

/// What clients are told of a file: the same of the same file.
fn told(media: &Media) -> String {
    let index = media.index();
    let plans = (0..media.tracks()).map(|track| media.plan(track, 1460).unwrap());
    let plans = plans.map(|plan| (plan.rtp_packets(), plan.due_ns(plan.rtp_packets())));
    let seeks = (0..20).map(|step| index.seek(step * 100_000_000));
    format!(
        "{:?} {} {:?} {:?}",
        index.tracks(),
        media.duration_ns(),
        plans.collect::<Vec<_>>(),
        seeks.collect::<Vec<_>>()
    )
}

/// Two seconds of pictures and sound in this container.
fn film(name: &str, options: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let sources = "-f lavfi -i testsrc=size=320x240:rate=25:duration=2 \
                   -f lavfi -i sine=frequency=440:sample_rate=48000:duration=2";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y", "-nostdin"]);
    ffmpeg.args(sources.split_whitespace());
    ffmpeg.args(["-c:v", "libx264", "-g", "25", "-c:a", "aac"]);
    let status = ffmpeg.args(options.split_whitespace()).arg(&path).status();
    assert!(status.expect("ffmpeg is installed").success(), "{name}");
    fs::read(path).unwrap()
}

#[test]
fn a_known_film_is_not_read_after_a_restart() {
    for (name, options) in [
        ("film.mp4", ""),
        ("fragments.mp4", "-movflags frag_keyframe+empty_moov"),
        ("film.mkv", ""),
        ("film.ts", ""),
    ] {
        let fixture = Fixture::new();
        fixture.write(name, &film(name, options));
        let first = fixture.open(name);
        assert!(first.is_new(), "{name}: {first:?}");
        for _ in 0..2 {
            let later = fixture.open(name);
            assert!(later.is_known(), "{name}: {later:?}");
            assert_eq!(later.told, first.told, "{name}");
        }
    }
}

/// What a transport stream is, and what its elementary streams are, stand beside each other.
#[test]
fn elementary_streams_are_not_read_after_a_restart() {
    let fixture = Fixture::new();
    let film = film("film.ts", "-c:v libx264 -g 25 -c:a aac");
    fixture.write("film.ts", &film);
    let names = ["film.ts", "film.ts/tracks=elementary"];
    let first = names.map(|name| fixture.open(name));
    assert!(first.iter().all(Seen::is_new), "{first:?}");
    let later = names.map(|name| fixture.open(name));
    assert!(later.iter().all(Seen::is_known), "{later:?}");
    assert_ne!(first[0].told, first[1].told);
    for (first, later) in first.iter().zip(&later) {
        assert_eq!(first.told, later.told);
    }
    assert_eq!(saved_indexes(&fixture.state()).unwrap().0, 2);
}

/// Its beginning is played while the rest is read; saved is what all of it says.
#[test]
fn a_film_that_was_read_behind_is_saved_whole() {
    let fixture = Fixture::new();
    // 12 MiB, with a clock reference in each tenth packet.
    fixture.write("film.ts", &constant_rate(66_000, 0, 10_152));
    let first = fixture.open("film.ts");
    assert!(first.is_new(), "{first:?}");
    assert!(first.bytes_read >= 66_000 * 188, "{first:?}");
    let later = fixture.open("film.ts");
    assert!(later.is_known(), "{later:?}");
    assert_eq!(later.told, first.told);
}

#[test]
fn a_file_that_may_still_be_written_is_not_saved() {
    let fixture = Fixture::new();
    fixture.write("film.ts", &constant_rate(500, 0, 10_152));
    fixture.age("film.ts", Duration::ZERO);
    let library = fixture.library();
    let media = fixture.runtime.block_on(library.open("film.ts")).unwrap();
    assert!(media.grows());
    let counters = library.counters();
    drop((library, media));
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let saved = &counters.saved;
    assert_eq!((count(&saved.saved), count(&saved.missed)), (0, 0));
    // Long after, it is.
    fixture.age("film.ts", LONG_AGO);
    assert!(fixture.open("film.ts").is_new());
    // And one that was known, and has been appended to, is another.
    let mut file = File::options()
        .append(true)
        .open(fixture.path("film.ts"))
        .unwrap();
    file.write_all(&constant_rate(50, 0, 10_152)).unwrap();
    fixture.age("film.ts", LONG_AGO);
    assert!(fixture.open("film.ts").is_new());
}

#[test]
fn other_times_or_settings_make_another_index() {
    let mut fixture = Fixture::new();
    fixture.write("film.ts", &constant_rate(500, 0, 10_152));
    assert!(fixture.open("film.ts").is_new());
    fixture.age("film.ts", 2 * LONG_AGO);
    assert!(fixture.open("film.ts").is_new(), "another time");
    assert!(fixture.open("film.ts").is_known());
    fixture.fallback_bitrate = 1_000_000;
    assert!(fixture.open("film.ts").is_new(), "another rate");
    assert!(fixture.open("film.ts").is_known());
}

/// Times can be put back where they were; that it was done cannot be hidden.
#[test]
fn a_film_written_over_with_its_time_put_back_is_read() {
    for (name, options) in [("film.mp4", ""), ("film.mkv", ""), ("film.ts", "")] {
        let fixture = Fixture::new();
        let bytes = film(name, options);
        fixture.write(name, &bytes);
        let path = fixture.path(name);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(fixture.open(name).is_new());
        // Owner, rights and name say nothing of the bytes.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        fs::rename(&path, fixture.path("other")).unwrap();
        fs::rename(fixture.path("other"), &path).unwrap();
        let known = fixture.open(name);
        assert!(known.is_known(), "{name}: {known:?}");
        let file = File::options().write(true).open(&path).unwrap();
        let other: Vec<_> = bytes.iter().rev().copied().collect();
        file.write_all_at(&other, 0).unwrap();
        file.set_modified(modified).unwrap();
        let library = fixture.library();
        let _none = fixture.runtime.block_on(library.open(name));
        let saved = &library.counters().saved;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(
            (count(&saved.restored), count(&saved.missed)),
            (0, 1),
            "{name}"
        );
    }
}

// SPECIFICATION.md: 33
#[test]
fn what_is_damaged_is_thrown_away_and_made_anew() {
    let fixture = Fixture::new();
    fixture.write("film.ts", &constant_rate(500, 0, 10_152));
    let first = fixture.open("film.ts");
    let entry = fixture.entry();
    let bytes = fs::read(&entry).unwrap();
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("cut", bytes[..bytes.len() / 2].to_vec()),
        ("foreign", b"#!/bin/sh\necho not ours\n".to_vec()),
        ("of a later version", changed(8)),
        ("of another build", changed(12)),
        ("with a bad checksum", changed(20)),
        ("with another key", changed(28)),
        ("with other numbers", changed(bytes.len() - 3)),
    ] {
        fs::write(&entry, bytes).unwrap();
        let seen = fixture.open("film.ts");
        assert!(seen.is_new() && seen.thrown_away == 1, "{what}: {seen:?}");
        assert_eq!(seen.told, first.told, "{what}");
        let seen = fixture.open("film.ts");
        assert!(seen.is_known() && seen.thrown_away == 0, "{what}: {seen:?}");
    }
    // Longer than any is read: not one byte of it is.
    let file = File::options().append(true).open(&entry).unwrap();
    file.set_len(SAVED_INDEX_BYTES_MAX + 1).unwrap();
    let seen = fixture.open("film.ts");
    assert!(seen.is_new() && seen.thrown_away == 1, "{seen:?}");
    // A folder in its place is left alone, and harms nobody.
    fs::remove_file(&entry).unwrap();
    fs::create_dir(&entry).unwrap();
    let seen = fixture.open("film.ts");
    assert_eq!((seen.missed, seen.saved, seen.told), (1, 0, first.told));
}

/// With the right checksum over wrong numbers, which no accident makes.
#[test]
fn an_index_that_no_file_has_is_thrown_away() {
    let fixture = Fixture::new();
    fixture.write("film.ts", &constant_rate(500, 0, 10_152));
    fixture.open("film.ts");
    let entry = fixture.entry();
    let bytes = fs::read(&entry).unwrap();
    let (key, index) = entry::read(&bytes).unwrap();
    let index = &index[..index.len() - 1];
    fs::write(&entry, entry::to_bytes(key, index)).unwrap();
    let seen = fixture.open("film.ts");
    assert!(seen.is_new() && seen.thrown_away == 1, "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Any byte changed: the same index, or none.
    #[test]
    fn a_changed_byte_gives_the_same_index_or_none(
        at in any::<prop::sample::Index>(),
        change in 1..=255_u8,
    ) {
        let index = onrush_wire::media::Scanner::default();
        let mut scanner = index;
        scanner.read(&constant_rate(300, 0, 10_152)).unwrap();
        let index = scanner.finish().unwrap().save().unwrap();
        let metadata = fs::metadata("/proc/self/exe").unwrap();
        let key = Key::of(&metadata, 5);
        let mut bytes = entry::to_bytes(key, &index);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        if let Ok((of, read)) = entry::read(&bytes) {
            prop_assert_eq!((of, read), (key, &index[..]));
        }
    }
}

// SPECIFICATION.md: 26
#[test]
fn the_state_directory_takes_no_more_than_allowed() {
    let mut fixture = Fixture::new();
    // Three of one block each.
    fixture.state_bytes_max = 3 * 4096;
    for film in 0..10 {
        let name = format!("{film}.ts");
        fixture.write(&name, &constant_rate(500, 0, 10_152));
        assert!(fixture.open(&name).is_new());
        let (count, bytes) = saved_indexes(&fixture.state()).unwrap();
        assert!(count <= 3 && bytes <= 3 * 4096, "{count} of {bytes}");
    }
    assert!(fixture.open("9.ts").is_known());
    assert!(fixture.open("0.ts").is_new());
}

#[test]
fn a_state_directory_that_cannot_be_is_told_of() {
    let fixture = Fixture::new();
    fs::write(fixture.state(), b"a file").unwrap();
    let config = Config {
        media_root: fixture.directory.path().join("media"),
        state: Some(fixture.state()),
        ..Config::default()
    };
    let error = Library::new(&config).unwrap_err().to_string();
    assert!(error.starts_with("state directory "), "{error}");
    assert!(prepare_state(&fixture.state()).is_err());
}

/// One that goes away while the server runs costs the indexes, and nothing else.
#[test]
fn without_its_folder_a_library_goes_on() {
    let fixture = Fixture::new();
    fixture.write("film.ts", &constant_rate(500, 0, 10_152));
    let library = fixture.library();
    fs::remove_dir_all(fixture.state()).unwrap();
    let media = fixture.runtime.block_on(library.open("film.ts")).unwrap();
    assert!(media.duration_ns() > 0);
    let counters = library.counters();
    drop((media, library));
    assert_eq!(counters.saved.unsaved.load(Ordering::Relaxed), 1);
}
