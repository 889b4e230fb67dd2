//! Libraries that outlive their server, and large ones: what was learned of films is there after a
//! kill, goes on without where nothing can be written, and grows with what is played alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use onrush_server::admin::status::{Indexes, Status};
use onrush_testkit::http_client;
use onrush_testkit::media::{age, film};
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::receiver::Capture;
use onrush_testkit::testbed::{Mode, Testbed};
use onrush_testkit::{require_programs, require_root};
use tempfile::TempDir;

use common::{LONG, ONRUSH, Site, Viewer, clip, serve_arguments, wait_until};

mod common;

const METRICS: &str = "--metrics=127.0.0.1:9554";
const FILMS: [(&str, &str); 4] = [
    (
        "film.mp4",
        "-c:v libx264 -preset veryfast -bf 2 -g 25 -c:a aac",
    ),
    (
        "fragments.mp4",
        "-c:v libx264 -preset veryfast -bf 2 -g 25 -c:a aac -movflags frag_keyframe+empty_moov",
    ),
    (
        "film.mkv",
        "-c:v libx264 -preset veryfast -bf 2 -g 25 -c:a aac",
    ),
    (
        "film.ts",
        "-c:v libx264 -preset veryfast -bf 2 -g 25 -c:a aac",
    ),
];

/// Serves `media`, whose files it leaves as they are, and keeps what it learns in `state`.
fn serve(testbed: Testbed, media: TempDir, state: &Path) -> Site {
    let mut command = testbed.snd.command(ONRUSH);
    let arguments = serve_arguments(media.path());
    command.args(arguments.iter().filter(|it| !it.starts_with("--state")));
    command.arg(format!("--state={}", state.display()));
    let server = Process::start(command.arg(METRICS)).unwrap();
    let ready = server.wait_for_line("rtsp://", LONG);
    assert!(ready.is_some(), "no server:\n{}", server.log_tail());
    Site {
        server,
        testbed,
        media,
    }
}

fn indexes(site: &Site) -> Indexes {
    let metrics = ([127, 0, 0, 1], 9554).into();
    let get = || {
        let client = http_client::Client::connect(metrics).unwrap();
        client.get("/status").unwrap()
    };
    let status: Status = serde_json::from_slice(&site.testbed.snd.run(get)).unwrap();
    status.indexes.expect("it serves files")
}

fn describe_all(site: &Site) {
    for (name, _) in FILMS {
        let answer = site.connect().request("DESCRIBE", &site.url(name), &[]);
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
    }
}

fn films() -> (Testbed, TempDir) {
    let (testbed, media) = Site::prepare(Mode::Uso);
    for (name, arguments) in FILMS {
        let path = media.path().join(name);
        fs::copy(film(name, arguments).unwrap(), &path).unwrap();
        age(&path).unwrap();
    }
    (testbed, media)
}

/// Nobody can write anything to its end then, so all that is there was whole before.
#[test]
fn a_server_that_was_killed_knows_its_films_when_it_is_back() {
    require_root!();
    require_programs!("ffmpeg");
    let (testbed, media) = films();
    let state = tempfile::tempdir().unwrap();
    let site = serve(testbed, media, state.path());
    describe_all(&site);
    let all = FILMS.len() as u64;
    wait_until("all indexes are saved", || indexes(&site).saved == all);
    let mut viewer = Viewer::setup(&site.testbed, "film.mp4");
    viewer.play(None);
    let plays = |capture: &Capture| capture.rtp.len() > 20;
    assert!(viewer.receiver.wait_until(LONG, plays));
    let Site {
        mut server,
        testbed,
        media,
    } = site;
    server.signal(Signal::KILL).unwrap();
    assert!(!server.wait(LONG).unwrap().success());
    drop(viewer);
    // It was in the midst of writing one.
    let unfinished = state.path().join("indexes/new-1-0");
    fs::write(&unfinished, "half an ind").unwrap();

    let site = serve(testbed, media, state.path());
    assert!(!unfinished.exists(), "what was not finished is there");
    describe_all(&site);
    let after = indexes(&site);
    let counted = (after.restored, after.missed, after.thrown_away);
    assert_eq!(counted, (all, 0, 0));
    assert_eq!(after.bytes_read, 0, "bytes of films were read again");
    let mut viewer = Viewer::setup(&site.testbed, "film.mkv");
    viewer.play(Some(2.0));
    assert!(viewer.finish().rtp.len() > 20);
    site.stop();
}

/// A file system of 64 KiB.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]);
        assert!(mount.arg(disk.0.path()).status().unwrap().success());
        disk
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let umount = Command::new("umount")
            .arg("--lazy")
            .arg(self.0.path())
            .status();
        drop(umount);
    }
}

#[test]
fn a_full_disk_for_indexes_costs_no_film() {
    require_root!();
    require_programs!("ffmpeg", "mount");
    let (testbed, media) = films();
    let disk = SmallDisk::new();
    let site = serve(testbed, media, disk.0.path());
    // After the start: until then something could be written.
    let rest = fs::write(disk.0.path().join("another's"), vec![0; 1 << 20]);
    assert!(rest.is_err(), "the disk is not full");
    describe_all(&site);
    wait_until("none is saved", || {
        indexes(&site).unsaved == FILMS.len() as u64
    });
    assert_eq!(indexes(&site).saved, 0);
    let viewer = Viewer::setup(&site.testbed, "film.mp4");
    let mut viewer = viewer;
    viewer.play(Some(2.0));
    assert!(viewer.finish().rtp.len() > 20);
    // It says so once, and leaves nothing behind that is not whole.
    let left = fs::read_dir(disk.0.path().join("indexes")).unwrap();
    let left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
    let log = site.stop();
    let said = log.matches("indexes cannot be saved").count();
    assert_eq!(said, 1, "{log}");
    assert!(log.contains("No space left on device"), "{log}");
}

/// Films of a large library, in so many folders.
const LARGE: usize = 100_000;
const FOLDERS: usize = 100;
/// Files that they are names of: ext4 lets one have 65,000.
const FILES: usize = 50;

/// Names of one small film, which is all that a library knows before somebody asks.
fn large_library(root: &Path) {
    let files: Vec<_> = (0..FILES).map(|it| root.join(format!("{it}.ts"))).collect();
    for file in &files {
        fs::write(file, clip(1.0)).unwrap();
        age(file).unwrap();
    }
    for folder in 0..FOLDERS {
        let path = root.join(format!("folder-{folder}"));
        fs::create_dir(&path).unwrap();
        for film in 0..LARGE / FOLDERS {
            let name = path.join(format!("{film}.ts"));
            fs::hard_link(&files[film % FILES], name).unwrap();
        }
    }
}

/// Calls that ask for a file by its name.
const BY_NAME: [&str; 7] = [
    "open",
    "openat",
    "openat2",
    "stat",
    "statx",
    "newfstatat",
    "access",
];

#[test]
fn a_hundred_thousand_films_cost_nothing_before_they_are_played() {
    require_root!();
    require_programs!("strace");
    let (testbed, media) = Site::prepare(Mode::Uso);
    large_library(media.path());
    let counted = tempfile::tempdir().unwrap();
    let table = counted.path().join("calls");
    let mut command = testbed.snd.command("strace");
    // The server stays the child that is told to stop.
    command
        .args(["-D", "-f", "-c", "-U", "calls,name", "-o"])
        .arg(&table);
    command.arg(ONRUSH).args(serve_arguments(media.path()));
    let site = Site::serve_by(testbed, media, command);
    // It has counted them, as far as it does.
    let found = site.server.wait_for_line(" more under ", LONG);
    assert!(found.is_some(), "{}", site.server.log_tail());
    let answer = site
        .connect()
        .request("DESCRIBE", &site.url("folder-7/77.ts"), &[]);
    assert_eq!(answer.unwrap().status, 200);
    site.stop();
    let written = || fs::metadata(&table).is_ok_and(|it| it.len() > 0);
    wait_until("strace has counted", written);
    let table = fs::read_to_string(table).unwrap();
    let calls: BTreeMap<_, u64> = table
        .lines()
        .filter_map(|line| {
            let (calls, name) = line.trim().split_once(' ')?;
            Some((name.trim(), calls.parse().ok()?))
        })
        .collect();
    let by_name: u64 = BY_NAME.iter().filter_map(|name| calls.get(name)).sum();
    assert!(by_name > FOLDERS as u64, "nothing was counted: {table}");
    // One for each folder, and what a program asks for at its start.
    assert!(by_name < LARGE as u64 / 50, "{by_name}: {table}");
}

#[test]
fn memory_is_bounded_by_the_films_in_use_and_not_by_all() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    large_library(media.path());
    let site = Site::serve(testbed, media, &["--files-max=64", "--cache=1MiB"]);
    let mut client = site.connect();
    let mut describe = |folder: usize, films: usize| {
        for film in 0..films {
            let url = site.url(&format!("folder-{folder}/{film}.ts"));
            let answer = client.request("DESCRIBE", &url, &[]).unwrap();
            assert_eq!(answer.status, 200, "{url}: {answer:?}");
        }
        site.server.holdings().unwrap()
    };
    let first = describe(0, 128);
    let last = (1..4).map(|folder| describe(folder, 500)).last().unwrap();
    assert!(
        last.descriptors <= first.descriptors + 8,
        "{first:?} {last:?}"
    );
    assert!(
        last.resident_bytes < first.resident_bytes + (16 << 20),
        "{first:?} {last:?}"
    );
    site.stop();
}
