//! Real players across the veth pair: what arrives is, byte for byte, what is in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use onrush_testkit::checker::TS_BYTES;
use onrush_testkit::media::{Expectation, age, awkward_files};
use onrush_testkit::process::Process;
use onrush_testkit::testbed::{Mode, SND_IPV6};
use onrush_testkit::{require_programs, require_root};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempDir;

use common::{LONG, Site, clip, watch, watch_from};

mod common;

/// A file, and the transport packets that players must get of it.
struct Film {
    /// In the media directory.
    path: PathBuf,
    /// In URLs.
    name: String,
    ts: Arc<[u8]>,
}

/// A server of the demo clip and every awkward file that is to be served, in folders and under
/// names that need escapes.
fn cinema() -> (Site, Vec<Film>) {
    let (testbed, media) = Site::prepare(Mode::Uso);
    let mut films = vec![film(&media, "demo.ts", &clip(4.0), &clip(4.0))];
    for file in awkward_files().unwrap() {
        if file.expectation == Expectation::Served {
            let bytes = fs::read(&file.path).unwrap();
            let name = format!("100% d\u{e9}j\u{e0} vu/#?+/{}", file.name);
            films.push(film(&media, &name, &bytes, &file.packets().unwrap()));
        }
    }
    assert!(films.len() > 8, "of every kind one");
    (Site::serve(testbed, media, &[]), films)
}

fn film(media: &TempDir, path: &str, bytes: &[u8], ts: &[u8]) -> Film {
    let name = utf8_percent_encode(path, PATH_ESCAPES).to_string();
    let path = media.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    // Else it might still grow, and has no end yet.
    age(&path).unwrap();
    Film {
        path,
        name,
        ts: Arc::from(ts),
    }
}

/// Runs `act` for each item, a few at a time: all at once would be a test of this machine.
fn each<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    act(item);
                }
            });
        }
    });
}

// SPECIFICATION.md: 1
#[test]
fn every_byte_comes_from_the_start_and_from_seek_points() {
    require_root!();
    let (site, films) = cinema();
    let starts = [None, Some(0.0), Some(0.4), Some(0.9)];
    let plays: Vec<_> = films
        .iter()
        .flat_map(|film| starts.map(|at| (film, at)))
        .collect();
    each(&plays, |(film, at)| {
        let npt = at.map(|at: f64| at * duration_s(&site, &film.name));
        let report = watch(&site.testbed, &film.name, &film.ts, npt);
        let all = (film.ts.len() / TS_BYTES) as u64;
        let (name, start) = (&film.name, report.start.unwrap());
        assert_eq!(report.ts_packets, all - start, "{name} from {npt:?}");
        if at.is_none() && !name.ends_with("no-pcr.ts") {
            // Whatever their clocks did in the middle, all films play for four seconds.
            let span_s = report.span_ticks as f64 / 90_000.0;
            assert!((3.7..4.3).contains(&span_s), "{name} takes {span_s} s");
            assert!(
                report.pcrs > 10,
                "{name}: {} clock references were compared",
                report.pcrs
            );
        }
    });
    site.stop();
}

// SPECIFICATION.md: 3
#[test]
fn a_seek_lands_on_the_last_random_access_point_before_it() {
    require_root!();
    let demo = clip(5.0);
    let ts = Arc::from(&*demo);
    let site = Site::with_clip(&demo, Mode::Uso, &[]);
    // The demo clip has a constant rate and a key frame every second, so a place is a time.
    let second = clip(1.0).len() / TS_BYTES;
    each(&[0.0, 1.5, 2.999, 4.2], |&npt| {
        let report = watch(&site.testbed, "clip.ts", &ts, Some(npt));
        let start_s = report.start.unwrap() as f64 / second as f64;
        assert!(
            start_s <= npt && start_s > npt - 1.3,
            "{npt} s lands at {start_s} s"
        );
    });
    site.stop();
}

#[test]
fn our_receiver_gets_every_byte_over_ipv6() {
    require_root!();
    let demo = clip(3.0);
    let ts = Arc::from(&*demo);
    let site = Site::with_clip(&demo, Mode::Uso, &[]);
    watch_from(&site.testbed, "clip.ts", &ts, None, SND_IPV6.into());
    site.stop();
}

/// What `ffprobe` and `ffmpeg` are told of the way that packets come.
const TRANSPORTS: [&str; 2] = ["udp", "tcp"];

#[test]
fn ffprobe_sees_the_streams_of_the_file() {
    require_root!();
    require_programs!("ffprobe");
    let (site, films) = cinema();
    each(&films, |film| {
        let probe = |source: &str, options: &[&str]| {
            let mut command = player(&site, "ffprobe");
            command.args(["-v", "quiet", "-of", "csv", "-show_entries"]);
            command.arg("stream=index,codec_type,codec_name,width,height,sample_rate,channels");
            command.args(options).arg(source);
            output(&mut command)
        };
        let in_file = probe(film.path.to_str().unwrap(), &[]);
        assert!(!in_file.is_empty());
        for transport in TRANSPORTS {
            let served = probe(&site.url(&film.name), &["-rtsp_transport", transport]);
            assert_eq!(served, in_file, "{} over {transport}", film.name);
        }
    });
    site.stop();
}

#[test]
fn ffmpeg_copies_the_frames_of_the_file() {
    require_root!();
    require_programs!("ffmpeg");
    let (site, films) = cinema();
    // What garbage and cut packets do to ffmpeg's reading of a file is no part of the comparison.
    let clean = tempfile::tempdir().unwrap();
    let numbered: Vec<_> = films.iter().enumerate().collect();
    for (number, film) in &numbered {
        fs::write(clean.path().join(number.to_string()), &film.ts).unwrap();
    }
    each(&numbered, |(number, film)| {
        let frames = |source: &str, options: &[&str]| {
            let mut command = player(&site, "ffmpeg");
            command
                .args(["-nostdin", "-v", "error"])
                .args(options)
                .args(["-i", source]);
            command.args([
                "-map",
                "0",
                "-c",
                "copy",
                "-f",
                "framehash",
                "-hash",
                "md5",
                "-",
            ]);
            frames(&output(&mut command))
        };
        let in_file = frames(clean.path().join(number.to_string()).to_str().unwrap(), &[]);
        assert!(!in_file.is_empty());
        for transport in TRANSPORTS {
            let served = frames(&site.url(&film.name), &["-rtsp_transport", transport]);
            let (film, full) = (&film.name, site.overflows());
            let name = format!("{film} over {transport}, {full} sockets full,");
            assert_copied(&name, &served, &in_file);
        }
    });
    site.stop();
}

/// A PES packet ends where the next begins. On a stream that just stops ffmpeg never sees the last
/// one's end, may cut the frame before, and several audio frames share one.
fn assert_copied(name: &str, served: &Frames, in_file: &Frames) {
    assert!(served.keys().eq(in_file.keys()), "{name}");
    for (stream, in_file) in in_file {
        let served = &served[stream];
        let missing = in_file.len().saturating_sub(served.len());
        let pairs = served.iter().zip(in_file);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let (got, all) = (served.len(), in_file.len());
        assert!(
            same + 1 >= got && missing <= 8,
            "{name} stream {stream}: {same} of {got} of {all} frames"
        );
    }
}

#[test]
fn files_that_are_no_films_are_refused_with_a_reason() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let mut files = awkward_files().unwrap();
    files.retain(|file| matches!(file.expectation, Expectation::Refused { .. }));
    for file in &files {
        fs::copy(&file.path, media.path().join(file.name)).unwrap();
    }
    let site = Site::serve(testbed, media, &[]);
    for file in &files {
        let Expectation::Refused { reason } = file.expectation else {
            continue;
        };
        let answer = site
            .connect()
            .request("DESCRIBE", &site.url(file.name), &[])
            .unwrap();
        assert_eq!(answer.status, 415, "{}: {answer:?}", file.name);
        assert!(answer.reason.contains(reason), "{}: {answer:?}", file.name);
    }
    assert!(files.len() >= 3);
    site.stop();
}

#[test]
fn gstreamer_gets_every_byte() {
    require_root!();
    require_programs!("gst-launch-1.0");
    let (site, films) = cinema();
    let folder = tempfile::tempdir().unwrap();
    let numbered: Vec<_> = films.iter().enumerate().collect();
    each(&numbered, |(number, film)| {
        let out = folder.path().join(format!("{number}.ts"));
        let mut command = player(&site, "gst-launch-1.0");
        let location = format!("location={}", site.url(&film.name));
        // Deep enough that a busy machine is not taken for a lossy network.
        command.args(["-q", "rtspsrc", &location, "protocols=udp", "latency=3000"]);
        // Sinks drop what they take to be behind the end that SDP tells, and go by when packets
        // have arrived: on a busy machine that is the film's last tenths of a second.
        command.args(["!", "rtpmp2tdepay", "!", "identity", "single-segment=true"]);
        command.args(["!", "filesink", &format!("location={}", out.display())]);
        // Its status is not asked for: now and then it still sends PAUSE after its own TEARDOWN,
        // and complains that it cannot.
        let (_, said) = run(&mut command);
        let got = fs::read(&out).unwrap();
        let same = got
            .iter()
            .zip(&*film.ts)
            .take_while(|(a, b)| a == b)
            .count();
        let (name, all) = (&film.name, film.ts.len());
        let overflows = site.overflows();
        assert!(
            same == all && got.len() == all,
            "{name}: {same} bytes of {} of {all}, {overflows} sockets were full: {said}",
            got.len()
        );
    });
    site.stop();
}

/// VLC as Debian builds it has no live555, and plays by its SAT>IP access: it describes nothing,
/// sets up the film's own URL, and takes two seconds without a packet for the end.
#[test]
fn vlc_shows_the_pictures_and_says_when_it_stops() {
    require_root!();
    require_programs!("cvlc", "setpriv");
    let site = Site::with_clip(&clip(3.0), Mode::Uso, &[]);
    fs::write(site.path("long.ts"), clip(20.0)).unwrap();
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let pictures = home.path().join("pictures.yuv");
    let vlc = |film: &str, options: &[&str]| {
        // It does not run as root. And it does not go first, as the others do: waiting for packets
        // it takes all of a processor.
        let mut command = site.testbed.rcv.command("setpriv");
        let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        command.env("HOME", home.path()).args(nobody);
        command.args(["--clear-groups", "cvlc", "--no-audio", "--vout=yuv"]);
        command.arg(format!("--yuv-file={}", pictures.display()));
        command.args(["--no-drop-late-frames", "--no-skip-frames"]);
        command.args(options).arg(site.url(film)).arg("vlc://quit");
        output(&mut command)
    };
    let ends = |count| {
        let ends = site.server.wait_for_lines("ends (teardown)", count, LONG);
        assert_eq!(ends.len(), count, "{}", site.server.log_tail());
    };
    let said = vlc("clip.ts", &["-vv"]);
    ends(1);
    let shown = fs::read(&pictures).unwrap();
    // Of 75 at 640 x 360, in 4:2:0; it may show one more than once.
    let different: BTreeSet<_> = shown.chunks(640 * 360 * 3 / 2).collect();
    assert!(different.len() > 25, "{} pictures: {said}", different.len());
    vlc("long.ts", &["--run-time=2"]);
    ends(2);
    site.stop();
}

fn player(site: &Site, program: &str) -> Command {
    site.player(program)
}

/// Runs a player to its end: how it ended, and what it wrote to stdout and stderr.
fn run(command: &mut Command) -> (ExitStatus, String) {
    Process::run(command, LONG).unwrap()
}

/// What a player wrote, which must have ended well.
fn output(command: &mut Command) -> String {
    let (status, output) = run(command);
    assert!(status.success(), "{command:?}: {status}\n{output}");
    output
}

/// Of each stream, sizes and hashes of its frames.
type Frames = BTreeMap<u32, Vec<(String, String)>>;

/// The frames in ffmpeg's framehash format.
fn frames(text: &str) -> Frames {
    let mut frames = Frames::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // Stream, dts, pts, duration, size, hash: the times of a live source begin elsewhere.
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let [stream, _, _, _, size, hash, ..] = fields[..] else {
            panic!("{line}")
        };
        let frame = (size.to_owned(), hash.to_owned());
        frames
            .entry(stream.parse().unwrap())
            .or_default()
            .push(frame);
    }
    frames
}

/// As the description of the file says.
fn duration_s(site: &Site, name: &str) -> f64 {
    let described = site
        .connect()
        .request("DESCRIBE", &site.url(name), &[])
        .unwrap();
    let description = String::from_utf8(described.body).unwrap();
    let range = description
        .lines()
        .find_map(|line| line.strip_prefix("a=range:npt=0-"));
    range
        .unwrap_or_else(|| panic!("{description}"))
        .parse()
        .unwrap()
}

/// What a path keeps as it is.
const PATH_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_');
/// Debian's account without rights.
const NOBODY: u32 = 65534;
/// Players that run beside each other.
const AT_ONCE: usize = 6;
