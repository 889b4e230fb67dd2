//! The pages in a browser: folders and the player, by mouse and by keyboard, with nothing that
//! axe-core finds, and films in other people's players.
//!
//! What is done in the browser stands in [browser](browser), a script for each test here.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onrush_testkit::media::{age, counting_film, counting_mp4};
use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, skip};

use download_site::{LONG, ONRUSH, Site};

mod download_site;

const SECONDS: u64 = 30;

/// What a script does in all; on a machine that has other things to do, too.
const DEADLINE: Duration = Duration::from_secs(400);

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/browser");

/// Whether the modules are there that scripts stand on; else the test is a counted skip.
fn has_modules() -> bool {
    let has = Path::new(SCRIPTS)
        .join("node_modules/puppeteer-core")
        .exists();
    if !has {
        skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
    }
    has
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap();
    age(to).unwrap();
}

/// A film in two sizes, of which the larger one takes four times as much.
fn ladder(folder: &Path, low: &Path) {
    fs::create_dir(folder).unwrap();
    copy(low, &folder.join("low.mp4"));
    let high = folder.join("high.mp4");
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(low);
    command.args([
        "-vf",
        "scale=128:64:flags=neighbor,noise=alls=9",
        "-c:a",
        "copy",
    ]);
    command.args([
        "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
    ]);
    command.args([
        "-g",
        "25",
        "-keyint_min",
        "25",
        "-sc_threshold",
        "0",
        "-b:v",
        "400k",
    ]);
    assert!(command.arg(&high).status().unwrap().success());
    age(&high).unwrap();
}

/// The same film with sound that begins eight seconds later.
fn late(film: &Path, of: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(of);
    command.args(["-itsoffset", "8", "-i"]).arg(of);
    command.args(["-map", "0:v", "-map", "1:a", "-c", "copy", "-t", "30"]);
    assert!(command.arg(film).status().unwrap().success());
    age(film).unwrap();
}

/// The same film with pictures that begin eight seconds later.
fn begins_dark(film: &Path, of: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(of);
    command.args(["-ss", "8", "-itsoffset", "8", "-i"]).arg(of);
    command.args(["-map", "1:v", "-map", "0:a", "-c", "copy"]);
    assert!(command.arg(film).status().unwrap().success());
    age(film).unwrap();
}

/// A film with pictures, or sound, of its first ten seconds only.
fn ends_early(film: &Path, of: &Path, [whole, short]: [&str; 2]) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(of);
    command.args(["-t", "10", "-i"]).arg(of);
    command.args(["-map", whole, "-map", short, "-c", "copy"]);
    assert!(command.arg(film).status().unwrap().success());
    age(film).unwrap();
}

/// Its sound alone.
fn sound_alone(film: &Path, of: &Path) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(of);
    command.args(["-vn", "-c", "copy"]);
    assert!(command.arg(film).status().unwrap().success());
    age(film).unwrap();
}

/// The same film with sound in two languages, in AAC.
fn two_sounds(film: &Path, of: &Path) {
    two_codecs(film, of, ["aac", "aac"]);
}

/// The same, coded so.
fn two_codecs(film: &Path, of: &Path, [english, german]: [&str; 2]) {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(of);
    command.args(["-f", "lavfi", "-i", "sine=f=880:r=48000", "-t", "30"]);
    command.args(["-map", "0:v", "-map", "0:a", "-map", "1:a", "-c:v", "copy"]);
    command.args(["-c:a:0", english, "-c:a:1", german]);
    command.args([
        "-metadata:s:a:0",
        "language=eng",
        "-metadata:s:a:1",
        "language=deu",
    ]);
    assert!(command.arg(film).status().unwrap().success());
    age(film).unwrap();
}

/// A server of films whose pictures say in which second they are.
fn cinema(options: &[&str]) -> Site {
    Site::new(options, |root| {
        let (mp4, ts) = (
            counting_mp4(SECONDS).unwrap(),
            counting_film(SECONDS).unwrap(),
        );
        copy(&mp4, &root.join("counting.mp4"));
        copy(&ts, &root.join("counting.ts"));
        copy(
            &mp4,
            &root.join("Another film, with a name that is long (1999).mp4"),
        );
        fs::create_dir(root.join("in a folder")).unwrap();
        copy(&mp4, &root.join("in a folder/é #%.mp4"));
        let old = root.join(OsStr::from_bytes(b"z\xe9"));
        fs::create_dir(&old).unwrap();
        copy(&mp4, &old.join("counting.mp4"));
        fs::write(root.join("readme.txt"), "text").unwrap();
        let players = format!("{SCRIPTS}/players.html");
        fs::copy(players, root.join("players.html")).unwrap();
        ladder(&root.join("ladder.film"), &mp4);
        late(&root.join("late.mp4"), &mp4);
        begins_dark(&root.join("begins-dark.mp4"), &mp4);
        let long = counting_mp4(2 * SECONDS).unwrap();
        ends_early(&root.join("ends-silent.mp4"), &long, ["0:v", "1:a"]);
        ends_early(&root.join("ends-dark.mp4"), &long, ["0:a", "1:v"]);
        sound_alone(&root.join("sound.mp4"), &mp4);
        two_sounds(&root.join("languages.mp4"), &mp4);
        // A name of a film, and nothing that can be played.
        fs::write(root.join("broken.mp4"), "text").unwrap();
    })
}

/// Runs a script in a browser; all of its checks pass.
fn passes(url: &str, script: &str, browser: &str) {
    let mut command = Command::new("node");
    command.arg(format!("{SCRIPTS}/{script}"));
    command.arg(url).arg(browser);
    let (status, said) = Process::run(&mut command, DEADLINE).unwrap();
    assert!(status.success(), "{said}");
    assert!(said.contains("passed: "), "{said}");
}

#[test]
fn chromium_shows_folders_with_posters_and_searches() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if has_modules() {
        let site = cinema(&[]);
        passes(&site.url(""), "folder.mjs", "chromium");
    }
}

#[test]
fn each_control_of_the_player_works_in_chromium() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if has_modules() {
        let site = cinema(&[]);
        passes(&site.url(""), "player.mjs", "chromium");
    }
}

#[test]
fn the_modules_of_the_player_do_what_they_say() {
    require_programs!("node");
    let mut command = Command::new("node");
    command.arg("--test").arg(format!("{SCRIPTS}/modules.mjs"));
    let (status, said) = Process::run(&mut command, DEADLINE).unwrap();
    assert!(status.success() && said.contains("# fail 0"), "{said}");
}

#[test]
fn players_that_others_wrote_play_the_same() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if has_modules() {
        let site = cinema(&[]);
        passes(&site.url(""), "players.mjs", "chromium");
    }
}

/// What a browser does not decode is left out by our page and by others' players, whichever is the
/// film's default: the other is heard.
#[test]
fn chromium_hears_what_it_decodes() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if !has_modules() {
        return;
    }
    let site = Site::new(&[], |root| {
        let of = counting_mp4(SECONDS).unwrap();
        two_codecs(&root.join("ac3-first.mp4"), &of, ["ac3", "aac"]);
        two_codecs(&root.join("aac-first.mp4"), &of, ["aac", "ac3"]);
        let players = format!("{SCRIPTS}/players.html");
        fs::copy(players, root.join("players.html")).unwrap();
    });
    passes(&site.url(""), "sounds.mjs", "chromium");
}

/// AV1 and VP9 with Opus, and H.264 in Matroska with AAC and with Opus.
#[test]
fn chromium_plays_each_codec_that_it_has() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if !has_modules() {
        return;
    }
    let (opus, as_it_is) = (["-c:a", "libopus"], ["-c:v", "copy"]);
    // Encoders want more pixels than the film has.
    let larger = "-vf scale=128:128:flags=neighbor -pix_fmt yuv420p -g 25";
    let av1 = format!("{larger} -c:v libsvtav1 -preset 12");
    let vp9 = format!("{larger} -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -b:v 300k");
    let words = |text| str::split_whitespace(text).collect::<Vec<_>>();
    let films = [
        ("av1.mp4", [&words(&av1)[..], &opus].concat()),
        ("vp9.webm", [&words(&vp9)[..], &opus].concat()),
        ("h264.mkv", [&as_it_is[..], &["-c:a", "copy"]].concat()),
        ("h264-opus.mkv", [&as_it_is[..], &opus].concat()),
    ];
    let site = Site::new(&[], |root| {
        let of = counting_mp4(SECONDS).unwrap();
        for (name, arguments) in films {
            let mut command = Command::new("ffmpeg");
            command.args(["-nostdin", "-v", "error", "-i"]).arg(&of);
            command.args(arguments).arg(root.join(name));
            assert!(command.status().unwrap().success(), "{name}");
            age(&root.join(name)).unwrap();
        }
    });
    passes(&site.url(""), "codecs.mjs", "chromium");
}

/// What the script says of waits, with these arguments.
fn waits(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("python3");
    command.arg(format!("{SCRIPTS}/waits.py")).args(arguments);
    let (status, said) = Process::run(&mut command, DEADLINE).unwrap();
    (status.code(), said)
}

/// How good they are, a quiet machine tells.
#[test]
fn waits_of_viewers_are_kept_and_judged() {
    require_programs!("ffmpeg", "node", "python3", "chromium-headless-shell");
    if !has_modules() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let film = counting_mp4(SECONDS).unwrap();
    let few = ["--films=2", "--pictures=5", "--film"];
    let taken = [
        &["take", ONRUSH, &at(".")],
        &few[..],
        &[film.to_str().unwrap()],
    ];
    let (code, said) = waits(&taken.concat());
    assert!(matches!(code, Some(0 | 1)), "{said}");
    let of = |name: &str, expected: usize| {
        let document = fs::read_to_string(at(name)).unwrap();
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let samples = document["samples"].as_array().unwrap();
        assert_eq!(samples.len(), expected, "{document}");
        let all = samples.iter().map(|sample| sample["ms"].as_f64().unwrap());
        assert!(
            all.clone().all(|ms| ms > 0.0 && ms < 60_000.0),
            "{document}"
        );
        let cold = samples.iter().filter(|sample| sample["index"] == "cold");
        (all.fold(0.0, f64::max), cold.count())
    };
    let (_, cold) = of("first-frame.json", 4);
    assert_eq!(cold, 2);
    let (most_ms, _) = of("glass-to-glass.json", 5);
    let mut rows = said.lines();
    let row = rows.find(|line| line.starts_with("drawn to shown"));
    let last = row.and_then(|row| row.split_whitespace().last());
    let told_ms: f64 = last.unwrap().parse().unwrap();
    assert!((told_ms - most_ms).abs() < 1.0, "{most_ms}: {said}");

    let judged = |ms: &str| {
        let record = format!(r#"{{"schema_version":1,"samples":[{{"index":"warm","ms":{ms}}}]}}"#);
        fs::write(at("record.json"), record).unwrap();
        waits(&[&at("record.json")])
    };
    assert_eq!(judged("500").0, Some(0));
    let (code, said) = judged("501");
    assert_eq!(code, Some(1));
    assert!(said.contains("missed: click to first picture, warm index: 501 ms, bound 500 ms"));
    fs::write(at("record.json"), "{}").unwrap();
    assert_eq!(waits(&[&at("record.json")]).0, Some(2));
}

#[test]
fn chromium_plays_over_https_by_http_2() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if !has_modules() {
        return;
    }
    let site = Site::new(&["--https=127.0.0.1:0", "--tls=self-signed"], |root| {
        copy(&counting_mp4(SECONDS).unwrap(), &root.join("counting.mp4"));
        let cue = "1\n00:00:04,000 --> 00:00:05,000\nfour <i>and</i> more\n";
        fs::write(root.join("counting.en.srt"), cue).unwrap();
    });
    let line = site.server.wait_for_line("listening  https://", LONG);
    let line = line.unwrap();
    let url = format!("https://{}", line.rsplit("//").next().unwrap());
    passes(&url, "https.mjs", "chromium");
}

/// Its own Media Source, with our player: Debian's Firefox has no HLS of its own.
#[test]
fn each_control_of_the_player_works_in_firefox() {
    require_programs!("ffmpeg", "node", "firefox-esr");
    if has_modules() {
        let site = cinema(&[]);
        passes(&site.url(""), "player.mjs", "firefox");
    }
}

#[test]
fn the_dashboard_shows_and_ends_sessions() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if !has_modules() {
        return;
    }
    // It lasts for as long as the dashboard is looked at.
    let site = Site::new(&["--metrics=127.0.0.1:0"], |root| {
        let film = counting_mp4(LONG.as_secs() * 3).unwrap();
        copy(&film, &root.join("counting.mp4"));
    });
    let line = site.server.wait_for_line("metrics ", LONG).unwrap();
    let metrics = line
        .trim_end_matches("metrics")
        .rsplit("//")
        .next()
        .unwrap();
    let url = format!("rtsp://{}/counting.mp4", site.rtsp);
    let mut player = Command::new("ffmpeg");
    player.args(["-nostdin", "-v", "error", "-rtsp_transport", "tcp"]);
    let player = player.args(["-i", &url, "-c", "copy", "-f", "null", "-"]);
    let _player = Process::start(player).unwrap();
    passes(&format!("http://{metrics}"), "dashboard.mjs", "chromium");
}
