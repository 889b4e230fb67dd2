//! Other people's players that jump within a film: they show the place they were told to go to, and
//! play on from there.
//!
//! What a player believes its position to be is not enough: the film's pictures say which second
//! they are of. Every wait is for what a player says; how long it takes is nobody's business but
//! for a bound.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::{FileExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::media::{COUNTING_PICTURE, age, counting_film, counting_mp4, second_shown};
use onrush_testkit::process::Process;
use onrush_testkit::testbed::{Mode, SND_IPV4};
use onrush_testkit::{require_programs, require_root, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

use common::{LONG, PYTHON, Site, has_python_gstreamer, wait_until};

mod common;

/// A server of `clip.ts`, which counts its seconds.
fn cinema(seconds: u64) -> Site {
    let film = fs::read(counting_film(seconds).unwrap()).unwrap();
    Site::with_clip(&film, Mode::Uso, &[])
}

/// The same with `clip.mp4` beside it, which counts as far.
fn cinema_of_both() -> Site {
    let site = cinema(FILM_S);
    let mp4 = site.path("clip.mp4");
    fs::copy(counting_mp4(FILM_S).unwrap(), &mp4).unwrap();
    age(&mp4).unwrap();
    site
}

/// A running mpv and the connection to its JSON IPC.
struct Mpv {
    process: Process,
    folder: TempDir,
    replies: BufReader<UnixStream>,
    requests: u64,
    /// Whether it has a place to go to, and at how many such places it has begun to play.
    is_seeking: bool,
    arrivals: u64,
    /// Whether libavformat hands on a picture of before a jump: of transport streams.
    keeps_last: bool,
}

impl Mpv {
    fn start(site: &Site, name: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ipc");
        let mut command = site.player("mpv");
        command.args([
            "--no-config",
            "--vo=null",
            "--ao=null",
            "--msg-level=all=warn",
        ]);
        command.arg(format!("--input-ipc-server={}", socket.display()));
        command.arg("--rtsp-transport=udp").args(options);
        let process = Process::start(command.arg(site.url(name))).unwrap();
        let mut connection = None;
        wait_until("mpv listens", || {
            connection = UnixStream::connect(&socket).ok();
            connection.is_some()
        });
        let connection = connection.unwrap();
        connection.set_read_timeout(Some(LONG)).unwrap();
        let mut mpv = Self {
            process,
            folder,
            replies: BufReader::new(connection),
            requests: 0,
            is_seeking: false,
            arrivals: 0,
            keeps_last: name.ends_with(".ts"),
        };
        wait_until("mpv plays", || mpv.position().is_some());
        mpv
    }

    /// A command's data, or what mpv says against it.
    fn ask(&mut self, command: &Value) -> Result<Value, String> {
        self.requests += 1;
        let request = json!({ "command": command, "request_id": self.requests });
        let sent = writeln!(self.replies.get_mut(), "{request}");
        assert!(sent.is_ok(), "mpv is gone: {}", self.process.log_tail());
        loop {
            let mut line = String::new();
            let read = self.replies.read_line(&mut line);
            let said: Value = match read {
                Ok(1..) => serde_json::from_str(&line).unwrap(),
                _ => panic!("mpv is gone or deaf: {read:?}\n{}", self.process.log_tail()),
            };
            match said["event"].as_str() {
                Some("seek") => self.is_seeking = true,
                // It also begins anew where it has lost its way: that is no arrival.
                Some("playback-restart") => {
                    self.arrivals += u64::from(self.is_seeking);
                    self.is_seeking = false;
                }
                Some("end-file") => panic!("mpv ends: {said}\n{}", self.process.log_tail()),
                _ if said["request_id"] != self.requests => {}
                _ if said["error"] == "success" => return Ok(said["data"].clone()),
                _ => return Err(said["error"].to_string()),
            }
        }
    }

    /// Where it says it is, in seconds.
    fn position(&mut self) -> Option<f64> {
        let position = self.ask(&json!(["get_property", "time-pos"]));
        position.ok()?.as_f64()
    }

    /// Jumps, and waits until mpv says that it has.
    fn ask_for_place(&mut self, what: &str, seconds: f64, how: &str) {
        let before = self.arrivals;
        self.ask(&json!(["seek", seconds, how])).unwrap();
        self.assert_arrives(what, before);
    }

    fn assert_arrives(&mut self, what: &str, before: u64) {
        if !self.arrives(before, LONG) {
            let position = self.position();
            let log = self.process.log_tail();
            panic!("{what}: it does not arrive, is at {position:?}\n{log}");
        }
    }

    /// Whether it says within a time that it has jumped, which it had so many times before.
    fn arrives(&mut self, before: u64, within: Duration) -> bool {
        let give_up = Instant::now() + within;
        // What happens is heard of beside an answer.
        while self.position().is_none() || self.arrivals == before || self.is_seeking {
            if Instant::now() > give_up {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }

    /// The second whose picture it shows, if it has one.
    fn shown(&mut self) -> Option<u64> {
        let picture = self.folder.path().join("shot.png");
        let to = picture.to_str().unwrap();
        self.ask(&json!(["screenshot-to-file", to, "video"])).ok()?;
        let mut decode = Command::new("ffmpeg");
        decode.args(["-nostdin", "-v", "error", "-i", to]);
        decode.args(["-f", "rawvideo", "-pix_fmt", "gray", "-"]);
        second_shown(&decode.output().unwrap().stdout)
    }

    /// Jumps, and checks that it arrives and plays on.
    fn seek(&mut self, seconds: f64, how: &str) {
        let what = format!("seek {seconds} {how}");
        let from_s = match how {
            "relative" => self.position().unwrap(),
            _ => 0.0,
        };
        self.ask_for_place(&what, seconds, how);
        self.assert_comes_to(&what, from_s + seconds);
    }

    /// Jumps while it holds on. It does not read then, and finds what came meanwhile when it has
    /// jumped.
    fn seek_from_pause(&mut self, second: f64) {
        let what = format!("seek {second} in a pause");
        self.set_pause(true);
        thread::sleep(Duration::from_secs(2));
        let before = self.arrivals;
        self.ask(&json!(["seek", second, "absolute"])).unwrap();
        // libavformat's parser of transport streams has kept the last picture of before. Where that
        // is a key frame, mpv takes it for the first of here, and waits for sound of there:
        // docs/rtsp.md. Whoever asks once more, and plays on, gets it.
        if self.keeps_last && !self.arrives(before, HELD_MAX) {
            self.ask(&json!(["seek", second, "absolute"])).unwrap();
        } else {
            self.assert_arrives(&what, before);
        }
        self.set_pause(false);
        self.assert_comes_to(&what, second);
    }

    /// It comes to a place, shows it, and plays on. What lay in its socket when it jumped it may
    /// show before.
    fn assert_comes_to(&mut self, what: &str, target_s: f64) {
        // It may go to the key frame before, a second away, but not to the one before that.
        self.wait_to_show(what, target_s - 1.5, target_s + 5.0);
        self.assert_plays_on(what);
    }

    fn assert_plays_on(&mut self, what: &str) {
        let from_s = self.position().unwrap();
        self.wait_to_show(what, from_s + 1.0, from_s + 10.0);
    }

    /// Waits until its position is between two times, and what it shows is of that position.
    fn wait_to_show(&mut self, what: &str, from_s: f64, to_s: f64) {
        let give_up = Instant::now() + LONG;
        loop {
            let before_s = self.position();
            let shown = self.shown();
            let after_s = self.position();
            if let (Some(before_s), Some(shown), Some(after_s)) = (before_s, shown, after_s)
                && (from_s..to_s).contains(&before_s)
                // A picture is of a whole second, and may be the one before.
                && (before_s - 1.5..after_s + 0.5).contains(&(shown as f64))
            {
                return;
            }
            let log = self.process.log_tail();
            assert!(
                Instant::now() < give_up,
                "{what}: it should be between {from_s} s and {to_s} s, says {before_s:?} and \
                 shows second {shown:?}\n{log}"
            );
            thread::sleep(POLL);
        }
    }

    /// Holds on, and goes on from there.
    fn pause(&mut self) {
        self.set_pause(true);
        let held_s = self.position().unwrap();
        thread::sleep(Duration::from_secs(1));
        let position_s = self.position().unwrap();
        assert!(
            (position_s - held_s).abs() < 0.5,
            "paused at {held_s} s, and then at {position_s} s"
        );
        self.set_pause(false);
        self.assert_plays_on("after a pause");
    }

    /// Jumps behind the end of the film, comes to that and holds on there, and back.
    fn seek_behind_the_end(&mut self) {
        self.ask(&json!(["set_property", "keep-open", "yes"]))
            .unwrap();
        let before = self.arrivals;
        self.ask(&json!(["seek", FILM_S + 1000, "absolute"]))
            .unwrap();
        self.assert_arrives("a seek behind the end", before);
        let has_ended = json!(["get_property", "eof-reached"]);
        wait_until("it is at the end", || {
            self.ask(&has_ended) == Ok(true.into())
        });
        self.ask_for_place("back from the end", 30.0, "absolute");
        self.set_pause(false);
        self.assert_comes_to("back from the end", 30.0);
    }

    fn set_pause(&mut self, on: bool) {
        self.ask(&json!(["set_property", "pause", on])).unwrap();
    }
}

fn mpv_goes_where_it_is_told(name: &str, options: &[&str]) {
    let site = cinema_of_both();
    let mut mpv = Mpv::start(&site, name, options);
    mpv.assert_plays_on("the start");
    for second in [100.0, 20.0, 60.0] {
        mpv.seek(second, "absolute");
    }
    mpv.seek(-10.0, "relative");
    mpv.seek(45.0, "relative");
    mpv.pause();
    for second in [5.0, 110.0, 40.0] {
        mpv.seek_from_pause(second);
    }
    // In a hurry: only the last of them counts.
    for second in [120, 30, 90] {
        mpv.ask(&json!(["seek", second, "absolute"])).unwrap();
    }
    mpv.seek(70.0, "absolute");
    mpv.seek_behind_the_end();
    drop(mpv);
    site.stop();
}

#[test]
fn mpv_goes_where_it_is_told_without_a_cache() {
    require_root!();
    require_programs!("mpv", "ffmpeg");
    mpv_goes_where_it_is_told("clip.ts", &["--cache=no"]);
}

#[test]
fn mpv_goes_where_it_is_told_as_it_is() {
    require_root!();
    require_programs!("mpv", "ffmpeg");
    mpv_goes_where_it_is_told("clip.ts", &[]);
}

#[test]
fn mpv_goes_where_it_is_told_in_an_mp4() {
    require_root!();
    require_programs!("mpv", "ffmpeg");
    mpv_goes_where_it_is_told("clip.mp4", &["--cache=no"]);
}

#[test]
fn mpv_goes_where_it_is_told_over_tcp() {
    require_root!();
    require_programs!("mpv", "ffmpeg");
    for name in ["clip.ts", "clip.mp4"] {
        mpv_goes_where_it_is_told(name, &["--rtsp-transport=tcp"]);
    }
}

#[test]
fn mpv_goes_where_it_is_told_in_elementary_streams() {
    require_root!();
    require_programs!("mpv", "ffmpeg");
    mpv_goes_where_it_is_told("clip.ts?tracks=elementary", &["--cache=no"]);
}

/// A running VLC and the connection to its remote control.
///
/// VLC as Debian builds it has no live555, and cannot seek by RTSP: it plays by HTTP.
struct Vlc {
    process: Process,
    folder: TempDir,
    replies: BufReader<UnixStream>,
}

impl Vlc {
    fn start(site: &Site, path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let [socket, pictures] = ["rc", PICTURES].map(|name| folder.path().join(name));
        // It does not run as root.
        let mut command = site.testbed.rcv.command("setpriv");
        let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        command.env("HOME", folder.path()).args(nobody);
        command.args(["--clear-groups", "cvlc", "--intf=oldrc", "--rc-fake-tty"]);
        command.arg(format!("--rc-unix={}", socket.display()));
        command.args(["--no-audio", "--vout=yuv", "--no-drop-late-frames"]);
        command.arg("--no-skip-frames");
        command.arg(format!("--yuv-file={}", pictures.display()));
        command.arg(format!("http://{}/{path}", http_address()));
        let process = Process::start(&mut command).unwrap();
        let mut connection = None;
        wait_until("VLC listens", || {
            connection = UnixStream::connect(&socket).ok();
            connection.is_some()
        });
        let connection = connection.unwrap();
        connection.set_read_timeout(Some(LONG)).unwrap();
        Self {
            process,
            folder,
            replies: BufReader::new(connection),
        }
    }

    fn tell(&mut self, command: &str) {
        let sent = writeln!(self.replies.get_mut(), "{command}");
        assert!(sent.is_ok(), "VLC is gone: {}", self.process.log_tail());
    }

    /// Where it says it is, in seconds. What happens it tells beside answers, in words.
    fn position(&mut self) -> u64 {
        self.tell("get_time");
        loop {
            let mut line = String::new();
            let read = self.replies.read_line(&mut line);
            assert!(matches!(read, Ok(1..)), "VLC is gone or deaf: {read:?}");
            if let Ok(second) = line.trim_start_matches(['>', ' ']).trim_end().parse() {
                return second;
            }
        }
    }

    /// The second whose picture it has shown last: it writes them behind each other, as YUV4MPEG2.
    fn shown(&self) -> Option<u64> {
        let file = File::open(self.folder.path().join(PICTURES)).ok()?;
        let mut head = [0; 256];
        let got = file.read_at(&mut head, 0).ok()?;
        let head_bytes = head[..got].iter().position(|&byte| byte == b'\n')? as u64 + 1;
        let (width, height) = COUNTING_PICTURE;
        let mark = b"FRAME\n";
        let mut picture = vec![0; mark.len() + width * height * 3 / 2];
        let stride = picture.len() as u64;
        let pictures = file.metadata().ok()?.len().checked_sub(head_bytes)? / stride;
        let last = head_bytes + pictures.checked_sub(1)? * stride;
        file.read_exact_at(&mut picture, last).ok()?;
        second_shown(&picture.strip_prefix(mark)?[..width * height])
    }

    /// Waits until it shows a picture of these seconds, and says that it is there.
    fn wait_to_show(&mut self, what: &str, seconds: Range<u64>) -> u64 {
        let give_up = Instant::now() + LONG;
        loop {
            let (position, shown) = (self.position(), self.shown());
            if let Some(shown) = shown.filter(|it| seconds.contains(it))
                && seconds.contains(&position)
            {
                return shown;
            }
            let log = self.process.log_tail();
            assert!(
                Instant::now() < give_up,
                "{what}: it should be in {seconds:?}, says {position} and shows {shown:?}\n{log}"
            );
            thread::sleep(POLL);
        }
    }

    /// Jumps, and checks that it arrives and plays on.
    fn seek(&mut self, path: &str, second: u64) {
        let what = format!("{path}: seek {second}");
        self.tell(&format!("seek {second}"));
        let at = self.wait_to_show(&what, second - 1..second + 30);
        self.wait_to_show(&what, at + 1..second + 45);
    }

    /// Holds on: for longer than a second's pictures are shown it shows the same, and then goes on
    /// from there.
    fn pause(&mut self, path: &str) {
        self.tell("pause");
        let give_up = Instant::now() + LONG;
        let mut held = (self.position(), self.shown());
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_secs(3) {
            assert!(Instant::now() < give_up, "{path}: it does not hold on");
            thread::sleep(POLL);
            let now = (self.position(), self.shown());
            if now != held {
                (held, since) = (now, Instant::now());
            }
        }
        let at = held.1.unwrap();
        self.tell("pause");
        self.wait_to_show(&format!("{path}: after a pause"), at + 1..at + 30);
    }
}

#[test]
fn vlc_goes_where_it_is_told_in_files_and_segments() {
    require_root!();
    require_programs!("cvlc", "setpriv", "ffmpeg");
    let (testbed, media) = Site::prepare(Mode::Uso);
    for (name, made) in [
        ("clip.mp4", counting_mp4(FILM_S)),
        ("clip.ts", counting_film(FILM_S)),
    ] {
        fs::copy(made.unwrap(), media.path().join(name)).unwrap();
    }
    let option = format!("--http={}", http_address());
    let site = Site::serve(testbed, media, &[&option]);
    thread::scope(|scope| {
        for path in [
            "clip.mp4",
            "clip.mp4/hls/index.m3u8",
            "clip.ts/hls/index.m3u8",
            "clip.mp4/dash/manifest.mpd",
        ] {
            let site = &site;
            scope.spawn(move || {
                let mut vlc = Vlc::start(site, path);
                vlc.wait_to_show(&format!("{path}: the start"), 1..40);
                for second in [100, 20, 60] {
                    vlc.seek(path, second);
                }
                vlc.pause(path);
            });
        }
    });
    site.stop();
}

/// Where films are played from by HTTP.
fn http_address() -> SocketAddr {
    (SND_IPV4, 8080).into()
}

#[test]
fn gstreamer_goes_where_it_is_told() {
    gstreamer_goes_where_it_is_told_by("rtspu");
}

#[test]
fn gstreamer_goes_where_it_is_told_over_tcp() {
    gstreamer_goes_where_it_is_told_by("rtspt");
}

/// Its `rtspsrc` and `decodebin` seek in tracks while they play, and nothing of them warns.
#[test]
fn gstreamer_goes_where_it_is_told_in_an_mp4() {
    for scheme in ["rtspu", "rtspt"] {
        gstreamer_goes(scheme, "clip.mp4", &["100", "20"]);
    }
}

fn gstreamer_goes_where_it_is_told_by(scheme: &str) {
    gstreamer_goes(scheme, "clip.ts", &["10", "3", "12", "1", "100", "20"]);
}

fn gstreamer_goes(scheme: &str, film: &str, places: &[&str]) {
    require_root!();
    require_programs!("ffmpeg");
    if !has_python_gstreamer() {
        return;
    }
    let site = cinema_of_both();
    let mut command = site.player(PYTHON);
    // That decoder shows pictures, too, of which it lacks what they stand on: of a stream that
    // begins with its tables there may be a part of one in front of the first that needs no other.
    // Over UDP `rtspsrc` hands it packets after a seek that came before it, which are numbered
    // below what RTP-Info says; docs/media.md has what was seen.
    command.env("GST_PLUGIN_FEATURE_RANK", "avdec_h264:NONE");
    command.arg(program("seek.py"));
    if film != "clip.ts" {
        command.arg("--strict");
    }
    command.arg(site.url(film).replacen("rtsp", scheme, 1));
    let said = run(command.args(places));
    let said: Vec<Vec<_>> = said.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(said.len(), 1 + places.len(), "{said:?}");
    for (line, place) in said.iter().zip(["0"].iter().chain(places)) {
        let place: u64 = place.parse().unwrap();
        let seen: Vec<u64> = line[1..].iter().map(|s| s.parse().unwrap()).collect();
        // From the key frame before, and on without a jump.
        let begins_near = seen.first().is_some_and(|first| first.abs_diff(place) <= 1);
        let goes_on = seen.windows(2).all(|pair| pair[1] == pair[0] + 1);
        assert!(
            begins_near && goes_on && seen.len() == 3,
            "{place} s: saw {seen:?} of {said:?}"
        );
    }
    site.stop();
}

#[test]
fn libavformat_goes_where_it_is_told() {
    libavformat_goes_where_it_is_told_by("udp");
}

#[test]
fn libavformat_goes_where_it_is_told_over_tcp() {
    libavformat_goes_where_it_is_told_by("tcp");
}

fn libavformat_goes_where_it_is_told_by(transport: &str) {
    require_root!();
    require_programs!("cc", "ffmpeg");
    let headers = [
        "-E",
        "-include",
        "libavformat/avformat.h",
        "-x",
        "c",
        "/dev/null",
    ];
    if !succeeds(Command::new("cc").args(headers)) {
        return skip::record("needs libavformat-dev installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let seek = folder.path().join("seek");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(&seek).arg(program("seek.c"));
    run(compiler.args(["-lavformat", "-lavcodec", "-lavutil"]));
    let site = cinema(FILM_S);
    let mut command = site.player(&seek);
    command.arg(transport).arg(site.url("clip.ts"));
    let said = run(command.args(["15", "2", "10", "0", "100", "20"]));
    let mut read = Vec::new();
    for line in said.lines().filter(|line| !line.starts_with('[')) {
        let numbers: Vec<f64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        let [place, key, last, packets, bytes, _elsewhere] = numbers[..] else {
            panic!("{line}")
        };
        // The key frame at or before the place, and whole: without its first packet it would be the
        // next.
        assert!(key <= place + 0.1 && key >= place - 1.1, "{line}\n{said}");
        assert!(
            last >= key + 1.5 && packets >= 35.0 && bytes > 0.0,
            "{line}\n{said}"
        );
        read.push(place);
    }
    assert_eq!(read, [0.0, 15.0, 2.0, 10.0, 0.0, 100.0, 20.0], "{said}");
    site.stop();
}

/// Runs a program to its end, which must be a good one; what it wrote.
fn run(command: &mut Command) -> String {
    let (status, said) = Process::run(command, VERY_LONG).unwrap();
    assert!(status.success(), "{command:?}: {status}\n{said}");
    said
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A program beside the tests.
fn program(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    tests.join("players").join(name)
}

const FILM_S: u64 = 160;
/// Debian's account without rights.
const NOBODY: u32 = 65534;
/// What VLC writes what it shows to.
const PICTURES: &str = "pictures";
const POLL: Duration = Duration::from_millis(50);
/// How long a player that holds is waited for.
const HELD_MAX: Duration = Duration::from_secs(10);
/// For a program that waits itself, place by place.
const VERY_LONG: Duration = Duration::from_secs(300);
