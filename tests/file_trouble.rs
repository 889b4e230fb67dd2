//! Files that change while they are served: whose bytes change ends its sessions with a reason when
//! they come to them, whose name changes goes on, and nobody else notices.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

use onrush_testkit::checker::Start;
use onrush_testkit::disk::FailingDisk;
use onrush_testkit::media::age;
use onrush_testkit::receiver::Capture;
use onrush_testkit::testbed::Mode;
use onrush_testkit::{require_programs, require_root};
use onrush_wire::rtp::Header;
use tempfile::TempDir;

use common::{LONG, Site, Viewer, clip, expected, watch};

mod common;

/// Plays `victim.ts`, does `harm` to the file when some of it has arrived, and waits for the
/// session's early end: the reason that the log gives. A session of another file beside it must
/// lose nothing.
fn reason_after(harm: impl FnOnce(&Site)) -> String {
    let good = clip(6.0);
    let ts: Arc<[u8]> = Arc::from(&*good);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &good).unwrap();
    fs::write(media.path().join("victim.ts"), clip(24.0)).unwrap();
    // As small as it may be, so that most of the file is read after the harm is done.
    let site = Site::serve(testbed, media, &["--cache=1MiB"]);
    thread::scope(|scope| {
        let session = scope.spawn(|| watch(&site.testbed, "clip.ts", &ts, None));
        let mut victim = Viewer::setup(&site.testbed, "victim.ts");
        victim.play(None);
        assert!(
            victim
                .receiver
                .wait_until(LONG, |capture| capture.rtp.len() > 50)
        );
        harm(&site);
        assert!(
            victim.receiver.wait_until(LONG, Capture::has_bye),
            "{}",
            site.server.log_tail()
        );
        let got = victim.receiver.take().rtp.len();
        assert!(
            got < clip(24.0).len() / (7 * 188),
            "all {got} packets were sent"
        );
        session.join().unwrap();
    });
    // And the server serves on.
    watch(&site.testbed, "clip.ts", &ts, Some(4.0));
    let log = site.stop();
    let line = log
        .lines()
        .find(|line| line.contains(" ends (") && line.contains("victim.ts"));
    let reason = line.and_then(|line| line.split_once(" ends (")?.1.split_once("):"));
    reason.unwrap_or_else(|| panic!("{log}")).0.to_owned()
}

#[test]
fn a_truncated_file_ends_its_session() {
    require_root!();
    let reason = reason_after(|site| {
        let file = OpenOptions::new()
            .write(true)
            .open(site.path("victim.ts"))
            .unwrap();
        file.set_len(188 * 700).unwrap();
    });
    assert!(reason.contains("truncated"), "{reason}");
}

// SPECIFICATION.md: 32
#[test]
fn a_file_written_over_ends_its_session() {
    require_root!();
    let bytes = clip(24.0).iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
    let reason = reason_after(|site| fs::write(site.path("victim.ts"), bytes).unwrap());
    // Which comes first depends on when it is read: emptied, in part written, or of another time.
    let reasons = ["overwritten", "truncated", "changed since it was indexed"];
    let is_told = reasons.iter().any(|told| reason.contains(told));
    assert!(is_told, "{reason}");
}

/// What becomes of its name does not matter to those who play a file: they get all of it, from the
/// disk.
// SPECIFICATION.md: 31
#[test]
fn a_file_that_loses_its_name_is_played_to_its_end() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let film: Arc<[u8]> = Arc::from(clip(6.0));
    let names = ["touched.ts", "renamed.ts", "replaced.ts", "deleted.ts"];
    for name in names {
        fs::write(media.path().join(name), &film).unwrap();
    }
    let site = Site::serve(testbed, media, &["--cache=1MiB"]);
    let viewers = names.map(|name| {
        let mut viewer = Viewer::setup(&site.testbed, name);
        let info = viewer.play(None);
        let has_begun = |capture: &Capture| capture.rtp.len() > 50;
        assert!(viewer.receiver.wait_until(LONG, has_begun));
        (viewer, expected(&film, Start::At(0), &info))
    });
    let touched = OpenOptions::new()
        .append(true)
        .open(site.path("touched.ts"));
    touched.unwrap().set_modified(SystemTime::now()).unwrap();
    fs::rename(site.path("renamed.ts"), site.path("other.ts")).unwrap();
    fs::write(site.path("new"), clip(2.0)).unwrap();
    fs::rename(site.path("new"), site.path("replaced.ts")).unwrap();
    fs::remove_file(site.path("deleted.ts")).unwrap();
    thread::scope(|scope| {
        for (viewer, expected) in viewers {
            scope.spawn(move || viewer.judged(&expected));
        }
    });
    // Who comes now gets what is there now.
    watch(&site.testbed, "replaced.ts", &Arc::from(clip(2.0)), None);
    let log = site.stop();
    let ends: Vec<_> = log
        .lines()
        .filter(|line| line.contains(" ends ("))
        .collect();
    assert_eq!(ends.len(), names.len() + 1, "{ends:#?}");
    assert!(
        ends.iter().all(|end| end.contains(" ends (teardown)")),
        "{ends:#?}"
    );
}

/// A way in which a film is kept and played.
#[derive(Clone, Copy)]
struct Kind {
    file: &'static str,
    /// What is asked for behind the file's name.
    parameter: &'static str,
    /// For ffmpeg.
    arguments: &'static str,
    /// Whether it plays while it is written.
    grows: bool,
}

const fn kind(file: &'static str, arguments: &'static str, grows: bool) -> Kind {
    Kind {
        file,
        parameter: "",
        arguments,
        grows,
    }
}

const KINDS: [Kind; 6] = [
    kind("film.mp4", "", false),
    kind("front.mov", "-movflags faststart", false),
    kind("fragments.mp4", "-movflags frag_keyframe+empty_moov", true),
    kind("film.mkv", "", true),
    kind("film.ts", "", true),
    Kind {
        parameter: "/tracks=elementary",
        ..kind("elementary.ts", "", true)
    },
];

/// What becomes of a film while it is played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Harm {
    Nothing,
    Removed,
    Renamed,
    Replaced,
    Cut,
    WrittenOver,
}

const HARMS: [Harm; 6] = [
    Harm::Nothing,
    Harm::Removed,
    Harm::Renamed,
    Harm::Replaced,
    Harm::Cut,
    Harm::WrittenOver,
];

impl Harm {
    fn name(self, kind: Kind) -> String {
        format!("{self:?}-{}", kind.file)
    }

    fn ends_it(self) -> bool {
        matches!(self, Self::Cut | Self::WrittenOver)
    }

    fn happen(self, path: &Path) {
        let bytes = fs::read(path).unwrap();
        let beside = path.with_extension("other");
        match self {
            Self::Nothing => {}
            Self::Removed => fs::remove_file(path).unwrap(),
            Self::Renamed => fs::rename(path, beside).unwrap(),
            Self::Replaced => {
                fs::write(&beside, clip(1.0)).unwrap();
                fs::rename(beside, path).unwrap();
            }
            Self::Cut => {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(bytes.len() as u64 / 4).unwrap();
            }
            Self::WrittenOver => {
                let others: Vec<_> = bytes.iter().map(|byte| byte ^ 1).collect();
                fs::write(path, others).unwrap();
            }
        }
    }
}

/// Eight seconds of 3 Mbit/s in each of the containers: more than the smallest cache holds.
fn made() -> (TempDir, [PathBuf; KINDS.len()]) {
    let folder = tempfile::tempdir().unwrap();
    let ffmpeg = |arguments: &str, to: &Path| {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error"]);
        command.args(arguments.split_whitespace()).arg(to);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
    };
    let source = folder.path().join("source.mkv");
    ffmpeg(
        "-f lavfi -i testsrc2=size=320x180:rate=25,noise=alls=30:allf=t -f lavfi \
         -i sine=sample_rate=48000 -t 8 -c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25 \
         -b:v 3M -minrate 3M -maxrate 3M -bufsize 1M -c:a aac",
        &source,
    );
    let paths = KINDS.map(|kind| {
        let path = folder.path().join(kind.file);
        let from = format!("-i {} -c copy {}", source.display(), kind.arguments);
        ffmpeg(&from, &path);
        path
    });
    (folder, paths)
}

/// Viewers of the first tracks of films, which have begun to play, all at about the same time.
fn begun<const N: usize>(site: &Site, films: [(String, Kind); N]) -> [Viewer; N] {
    let mut viewers = films.map(|(name, kind)| {
        let name = format!("{name}{}", kind.parameter);
        Viewer::setup(&site.testbed, &name)
    });
    for viewer in &mut viewers {
        viewer.play(None);
    }
    for viewer in &viewers {
        let plays = |capture: &Capture| capture.rtp.len() > 50;
        assert!(viewer.receiver.wait_until(LONG, plays), "{}", viewer.url);
    }
    viewers
}

/// The payloads of all packets that came, which miss none.
fn payloads(what: &str, viewer: Viewer) -> Vec<Vec<u8>> {
    let capture = viewer.finish();
    let mut next = None;
    let payload = |bytes: &[u8]| {
        let sequence = Header::read(bytes).expect("an RTP header").sequence;
        let expected = *next.get_or_insert(sequence);
        assert_eq!(sequence, expected, "{what}: packets are missing");
        next = Some(sequence.wrapping_add(1));
        bytes[12..].to_vec()
    };
    capture
        .rtp
        .iter()
        .map(|it| &*it.bytes)
        .map(payload)
        .collect()
}

/// Its name may do what it wants; where its bytes go, its session ends, and nothing of what is
/// there then was sent.
// SPECIFICATION.md: 32
#[test]
fn what_happens_to_films_of_any_container_ends_only_these() {
    require_root!();
    require_programs!("ffmpeg");
    let (_folder, made) = made();
    let (testbed, media) = Site::prepare(Mode::Uso);
    for (kind, from) in KINDS.iter().zip(&made) {
        for harm in HARMS {
            fs::copy(from, media.path().join(harm.name(*kind))).unwrap();
        }
    }
    let site = Site::serve(testbed, media, &["--cache=1MiB"]);
    // Two at a time: more would be a test of this machine.
    for kinds in KINDS.chunks(2) {
        thread::scope(|scope| {
            for kind in kinds {
                scope.spawn(|| harmed(&site, *kind));
            }
        });
    }
    let log = site.stop();
    for (kind, harm) in KINDS.iter().flat_map(|kind| HARMS.map(|harm| (kind, harm))) {
        let name = harm.name(*kind);
        let of_it = |line: &&str| line.contains(" ends (") && line.contains(&name);
        let line = log
            .lines()
            .find(of_it)
            .unwrap_or_else(|| panic!("{name}: {log}"));
        let reasons = ["truncated", "overwritten", "was changed"];
        let is_told = reasons.iter().any(|reason| line.contains(reason));
        assert_eq!(is_told, harm.ends_it(), "{line}");
    }
}

fn harmed(site: &Site, kind: Kind) {
    let viewers = begun(site, HARMS.map(|harm| (harm.name(kind), kind)));
    for harm in HARMS {
        harm.happen(&site.path(&harm.name(kind)));
    }
    let came = viewers.map(|viewer| payloads(&viewer.url.clone(), viewer));
    assert_eq!(site.overflows(), 0, "sockets were full");
    let whole = &came[0];
    for (harm, came) in HARMS.iter().zip(&came) {
        let (got, all) = (came.len(), whole.len());
        let name = harm.name(kind);
        assert!(
            whole.starts_with(came),
            "{name}: others among {got} packets"
        );
        assert_eq!(got < all, harm.ends_it(), "{name}: {got} of {all} packets");
    }
}

/// Of those that can be played while they are written all comes that was written meanwhile; what is
/// appended to others does no harm.
#[test]
fn films_of_any_container_may_grow_while_they_play() {
    require_root!();
    require_programs!("ffmpeg");
    let (_folder, made) = made();
    let (testbed, media) = Site::prepare(Mode::Uso);
    for (kind, from) in KINDS.iter().zip(&made) {
        fs::copy(from, media.path().join(Harm::Nothing.name(*kind))).unwrap();
    }
    let site = Site::serve(testbed, media, &["--cache=4MiB", "--growth-time-max=20s"]);
    thread::scope(|scope| {
        for (kind, from) in KINDS.into_iter().zip(&made) {
            let site = &site;
            scope.spawn(move || {
                let bytes = fs::read(from).unwrap();
                let (front, back) = match kind.grows {
                    true => bytes.split_at(bytes.len() / 2),
                    false => (&*bytes, &b"\0\0\0\x10freeappended"[..]),
                };
                let name = format!("grows-{}", kind.file);
                fs::write(site.path(&name), front).unwrap();
                let other = Harm::Nothing.name(kind);
                let viewers = begun(site, [(name.clone(), kind), (other, kind)]);
                let mut file = OpenOptions::new()
                    .append(true)
                    .open(site.path(&name))
                    .unwrap();
                file.write_all(back).unwrap();
                let came = viewers.map(|viewer| payloads(&viewer.url.clone(), viewer));
                let [grows, whole] = came;
                let (got, all) = (grows.len(), whole.len());
                assert!(grows == whole, "{name}: {got} packets and not {all}");
            });
        }
    });
    assert_eq!(site.overflows(), 0, "sockets were full");
    site.stop();
}

/// A file system of films on a disk that may fail; not there any more once dropped.
struct Mounted {
    at: PathBuf,
    disk: FailingDisk,
}

impl Mounted {
    fn new(at: PathBuf, films: &[PathBuf]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [content, image] = ["content", "image"].map(|name| folder.path().join(name));
        fs::create_dir(&content).unwrap();
        for film in films {
            let copy = content.join(film.file_name().unwrap());
            fs::copy(film, &copy).unwrap();
            age(&copy).unwrap();
        }
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-b", "4096", "-O", "^has_journal", "-d"]);
        succeed(mkfs.arg(content).arg(&image).arg("64M"));
        let image = fs::read(image).unwrap();
        let disk = FailingDisk::new(&image, image.len() as u64).unwrap();
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        succeed(mount.args(["-o", "ro"]).arg(disk.path()).arg(&at));
        Self { at, disk }
    }

    /// Whatever is asked of the disk fails from now on; what of the films was in memory is not.
    fn fail(&self, films: &[PathBuf]) {
        self.disk.fail_from(0).unwrap();
        for film in films {
            let path = self.at.join(film.file_name().unwrap());
            let mut drop_cache = Command::new("dd");
            drop_cache.arg(format!("if={}", path.display()));
            succeed(drop_cache.args(["iflag=nocache", "count=0"]));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever still has a file of it open keeps it until then.
        drop(Command::new("umount").arg("--lazy").arg(&self.at).status());
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

// SPECIFICATION.md: 30
#[test]
fn a_disk_that_fails_ends_films_of_any_container_on_it() {
    require_root!();
    require_programs!("ffmpeg", "losetup", "mkfs.ext4", "mount");
    let (_folder, made) = made();
    let good = clip(6.0);
    let ts: Arc<[u8]> = Arc::from(&*good);
    let (testbed, media) = Site::prepare(Mode::Uso);
    fs::write(media.path().join("clip.ts"), &good).unwrap();
    let disk = Mounted::new(media.path().join("disk"), &made);
    let site = Site::serve(testbed, media, &["--cache=1MiB"]);
    thread::scope(|scope| {
        let session = scope.spawn(|| watch(&site.testbed, "clip.ts", &ts, None));
        let films = KINDS.map(|kind| (format!("disk/{}", kind.file), kind));
        let viewers = begun(&site, films);
        disk.fail(&made);
        for viewer in viewers {
            viewer.finish();
        }
        session.join().unwrap();
    });
    watch(&site.testbed, "clip.ts", &ts, Some(4.0));
    let log = site.stop();
    for kind in KINDS {
        let of_it = |line: &&str| line.contains(" ends (") && line.contains(kind.file);
        let line = log.lines().find(of_it).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains("os error 5"), "{line}");
    }
}
