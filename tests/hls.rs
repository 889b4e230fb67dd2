//! Films by HLS and DASH: what other people's players get of them, and each resource byte by byte.
//!
//! ffmpeg and GStreamer play every film by its playlist, and decode what they decode of the file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::http_client::{Client, Response};
use onrush_testkit::media::{age, film};
use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root, skip};
use socket2::{Domain, Socket, Type};

use download_site::{LONG, Raw, Site, bytes, run};

mod download_site;

const H264: &str = "-t 20 -c:v libx264 -preset veryfast -bf 2 -g 50 -pix_fmt yuv420p \
     -c:a aac -aac_pns 0";

/// Films of twenty seconds, and how they are made: of each container and codec one.
const FILMS: [(&str, &str); 8] = [
    ("h264.mp4", H264),
    ("h264.mkv", H264),
    ("h264.ts", H264),
    (
        "h264.m2ts",
        "-t 20 -c:v libx264 -preset veryfast -bf 2 -g 50 -pix_fmt yuv420p -c:a aac -aac_pns 0 \
         -mpegts_m2ts_mode 1",
    ),
    (
        "fragments.mp4",
        "-t 20 -c:v libx264 -preset veryfast -bf 2 -g 50 -pix_fmt yuv420p -c:a aac -aac_pns 0 \
         -movflags frag_keyframe+empty_moov+default_base_moof+delay_moov",
    ),
    (
        "h265.mp4",
        "-t 20 -c:v libx265 -preset ultrafast -bf 2 -g 50 -pix_fmt yuv420p -tag:v hvc1 \
         -x265-params log-level=none:pools=1 -c:a aac -aac_pns 0",
    ),
    (
        "vp9.webm",
        "-t 20 -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 50 -b:v 500k \
         -pix_fmt yuv420p -c:a libopus",
    ),
    (
        "av1.mp4",
        "-t 20 -c:v libsvtav1 -preset 12 -g 50 -pix_fmt yuv420p -c:a libopus",
    ),
];

/// One whose pictures are so large that they are not copied.
const LARGE: (&str, &str) = (
    "large.mp4",
    "-t 20 -c:v libx264 -preset veryfast -bf 2 -g 50 -qp 6 -pix_fmt yuv420p -c:a aac",
);

/// One of a single segment, which is longer than what sockets hold.
const NOISE: (&str, &str) = (
    "noise.ts",
    "-t 8 -vf scale=640:360,noise=alls=20:allf=t -c:v libx264 -preset ultrafast -g 1000 \
     -sc_threshold 0 -qp 6 -pix_fmt yuv420p -c:a aac",
);

/// One whose pictures are of several pages each.
const DETAILED: (&str, &str) = (
    "detailed.mp4",
    "-t 4 -vf scale=640:360,noise=alls=20:allf=t -c:v libx264 -preset veryfast -bf 2 -g 50 -qp 34 \
     -pix_fmt yuv420p -c:a aac",
);

const PICTURES: usize = 500;

/// Who runs what does not run as root.
const NOBODY: u32 = 65_534;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/browser");

/// A server of these films, none of which is written any more.
fn cinema(names: &[&str]) -> Site {
    cinema_with(&[], names)
}

fn cinema_with(options: &[&str], names: &[&str]) -> Site {
    Site::new(&[&["--metrics=127.0.0.1:0"], options].concat(), |root| {
        for name in names {
            copy(name, &root.join(name));
        }
    })
}

/// Whether it is a transport stream, with four bytes between its packets or without.
fn is_stream(name: &str) -> bool {
    name.ends_with("ts")
}

fn copy(name: &str, to: &Path) {
    let mut all = FILMS.iter().chain([&LARGE, &NOISE, &DETAILED]);
    let made = all.find(|it| it.0 == name).unwrap();
    fs::copy(film(made.0, made.1).unwrap(), to).unwrap();
    age(to).unwrap();
}

/// What `ffmpeg` decodes of one of a film's media: of each frame the hash.
fn decoded(site: &Site, input: &str, from: Option<f64>, medium: &str) -> Vec<String> {
    let from = from.map(|it| it.to_string());
    let mut arguments = vec!["-nostdin", "-v", "error", "-xerror"];
    arguments.extend(from.iter().flat_map(|it| ["-ss", it]));
    let map = format!("0:{medium}:0");
    arguments.extend(["-i", input, "-map", &map, "-f", "framemd5", "-"]);
    let output = run(site.media.path(), "ffmpeg", &arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "", "{input}");
    hashes(output.stdout)
}

/// The hash of each frame in what ffmpeg's `framemd5` wrote.
fn hashes(written: Vec<u8>) -> Vec<String> {
    let text = String::from_utf8(written).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let hash = |line: &str| line.rsplit(',').next().map(|it| it.trim().to_owned());
    lines.filter_map(hash).collect()
}

/// All of the pictures and the sound of the file, from the start and, if it `seeks`, from two other
/// places.
fn plays_by_ffmpeg(site: &Site, name: &str, playlist: &str, seeks: bool) {
    let file = site.path(name);
    let file = file.to_str().unwrap();
    let url = site.url(&format!("{name}/{playlist}"));
    let pictures = decoded(site, file, None, "v");
    assert_eq!(pictures.len(), PICTURES, "{name}");
    let places = [None, Some(7.4), Some(15.0)];
    for from in places.into_iter().filter(|it| seeks || it.is_none()) {
        let served = decoded(site, &url, from, "v");
        let first = PICTURES.checked_sub(served.len()).unwrap_or(PICTURES);
        assert_eq!(served[..], pictures[first..], "{url} from {from:?}");
        // By HLS ffmpeg goes on to the next picture that it can start with, which there is every
        // two seconds.
        let beyond = first as f64 - from.map_or(0.0, |from| from * 25.0);
        let is_near = (-1.0..=50.0).contains(&beyond);
        assert!(is_near, "{url} from {from:?}: begins with picture {first}");
    }
    let mut sound = decoded(site, file, None, "a");
    let served = decoded(site, &url, None, "a");
    // Of a file in one piece ffmpeg leaves out the frame in front of its edit list's start, and of
    // Matroska it cuts off what the last frame has too much.
    sound.pop();
    let first = served.len() - sound.len() - 1;
    assert!(first <= 1 && sound.len() > 900, "{url}: {first}");
    assert_eq!(served[first..first + sound.len()], sound, "{url}");
}

#[test]
fn ffmpeg_plays_every_film_by_hls_frame_for_frame() {
    require_programs!("ffmpeg");
    let names = [&FILMS.map(|it| it.0)[..], &[LARGE.0]].concat();
    let site = cinema(&names);
    for name in names {
        // ffmpeg 5.1 loses its place when it seeks in fragmented MP4 by HLS, also in what it has
        // written itself.
        plays_by_ffmpeg(&site, name, "hls/index.m3u8", is_stream(name));
    }
}

/// What its playlist of pictures names of a transport stream are whole pictures, and no others.
#[test]
fn ffmpeg_shows_the_pictures_of_a_stream_alone() {
    require_programs!("ffmpeg");
    let site = cinema(&["h264.ts"]);
    let file = decoded(&site, site.path("h264.ts").to_str().unwrap(), None, "v");
    let main = text(&site.connect().request("GET", "/h264.ts/hls/index.m3u8", ""));
    let told = main
        .lines()
        .filter(|it| it.starts_with("#EXT-X-I-FRAME-STREAM-INF:"));
    let told: Vec<_> = told.collect();
    assert!(
        matches!(&told[..], [one] if one.contains("URI=\"stream/iframes.m3u8\"")),
        "{main}"
    );
    let url = site.url("h264.ts/hls/stream/iframes.m3u8");
    // Counters jump from one to the next, which it takes for damage.
    let arguments = ["-nostdin", "-v", "fatal", "-i", &url, "-map", "0:v:0"];
    let format = ["-fps_mode", "passthrough", "-f", "framemd5", "-"];
    let output = run(
        site.media.path(),
        "ffmpeg",
        &[&arguments[..], &format].concat(),
    );
    let pictures = hashes(output.stdout);
    let syncs: Vec<_> = file.into_iter().step_by(50).collect();
    assert_eq!(pictures, syncs);
}

#[test]
fn ffmpeg_plays_every_film_by_dash_frame_for_frame() {
    require_programs!("ffmpeg");
    let names = [&FILMS.map(|it| it.0)[..], &[LARGE.0]].concat();
    let site = cinema(&names);
    for name in names.into_iter().filter(|it| !is_stream(it)) {
        plays_by_ffmpeg(&site, name, "dash/manifest.mpd", true);
    }
}

/// What GStreamer decodes of the pictures at a URI.
fn pictures_by_gstreamer(site: &Site, uri: &str) -> Vec<u8> {
    let out = site.media.path().join("pictures");
    let (uri, location) = (format!("uri={uri}"), format!("location={}", out.display()));
    let arguments = [
        "-q",
        "uridecodebin3",
        "name=film",
        &uri,
        "caps=video/x-raw(ANY)",
        "film.",
        "!",
        "videoconvert",
        "!",
        "video/x-raw,format=I420",
        "!",
        "filesink",
        &location,
    ];
    run(site.media.path(), "gst-launch-1.0", &arguments);
    fs::read(out).unwrap()
}

#[test]
fn gstreamer_decodes_of_playlists_what_it_does_of_files() {
    require_programs!("ffmpeg", "gst-launch-1.0");
    let names = ["h264.mp4", "h264.ts", "h264.m2ts", "h265.mp4", "vp9.webm"];
    let site = cinema(&names);
    for name in names {
        let file = format!("file://{}", site.path(name).display());
        let file = pictures_by_gstreamer(&site, &file);
        assert_eq!(file.len(), PICTURES * 320 * 180 * 3 / 2, "{name}");
        for playlist in ["hls/index.m3u8", "dash/manifest.mpd"] {
            if is_stream(name) && playlist.starts_with("dash") {
                continue;
            }
            let served = pictures_by_gstreamer(&site, &site.url(&format!("{name}/{playlist}")));
            assert!(served == file, "{name}/{playlist}: {} bytes", served.len());
        }
    }
}

/// Of films of each container and of several files, and with subtitles.
#[test]
fn a_parser_of_others_finds_no_fault_in_playlists() {
    require_programs!("ffmpeg", "node");
    if !Path::new(SCRIPTS).join("node_modules/hls-parser").exists() {
        skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
        return;
    }
    let names = ["h264.mp4", "h264.ts", "h264.m2ts", "vp9.webm", "av1.mp4"];
    let site = Site::new(&[], |root| {
        for name in names {
            copy(name, &root.join(name));
        }
        let cues = "WEBVTT\n\n00:01.000 --> 00:02.000\none\n";
        fs::write(root.join("h264.en.vtt"), cues).unwrap();
        renditions(root);
    });
    let mut command = Command::new("node");
    command.arg(format!("{SCRIPTS}/validate.mjs"));
    let several = ["ladder.film", "other.film", "x.film.json"];
    for name in names.into_iter().chain(several) {
        command.arg(site.url(&format!("{name}/hls/index.m3u8")));
    }
    let (status, said) = Process::run(&mut command, LONG).unwrap();
    assert!(status.success() && said.starts_with("passed: "), "{said}");
}

fn text(response: &Response) -> String {
    assert_eq!(response.status, 200, "{response:?}");
    String::from_utf8(response.body.clone()).unwrap()
}

/// The URIs in a playlist at `folder`, relative to the server.
fn uris(folder: &str, playlist: &str) -> Vec<String> {
    let lines = playlist.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{folder}/{line}")).collect()
}

#[test]
fn resources_are_answered_as_their_kind_wants() {
    require_programs!("ffmpeg");
    let site = cinema(&["large.mp4", "h264.ts"]);
    let mut raw = site.connect();
    let video = raw.request("GET", "/large.mp4/hls/video/index.m3u8", "");
    let segment = &uris("/large.mp4/hls/video", &text(&video))[1];
    let version = segment.rsplit('/').nth(1).unwrap();
    let init = format!("/large.mp4/hls/video/{version}/init.mp4");
    let sound = format!("/large.mp4/hls/audio/{version}/1.m4s");
    let picture = format!("/large.mp4/hls/video/{version}/i2.m4s");
    let stream = &uris(
        "/h264.ts/hls/stream",
        &text(&raw.request("GET", "/h264.ts/hls/stream/index.m3u8", "")),
    )[0];
    let (never, asks) = ("max-age=31536000, immutable", "no-cache");
    let playlist = "application/vnd.apple.mpegurl";
    for (target, media_type, cache) in [
        ("/large.mp4/hls/index.m3u8", playlist, asks),
        ("/large.mp4/hls/audio/index.m3u8", playlist, asks),
        ("/large.mp4/hls/video/iframes.m3u8", playlist, asks),
        ("/h264.ts/hls/stream/iframes.m3u8", playlist, asks),
        ("/large.mp4/dash/manifest.mpd", "application/dash+xml", asks),
        (&init, "video/mp4", never),
        (segment, "video/mp4", never),
        (&picture, "video/mp4", never),
        (&sound, "audio/mp4", never),
        (stream, "video/mp2t", never),
    ] {
        let whole = raw.request("GET", target, "");
        assert_eq!(whole.status, 200, "{target}");
        let headers = [
            ("Content-Type", media_type),
            ("Cache-Control", cache),
            ("Access-Control-Allow-Origin", "*"),
            ("Accept-Ranges", "bytes"),
        ];
        for (name, value) in headers {
            assert_eq!(whole.header(name), Some(value), "{target}");
        }
        answers_parts_of(&mut raw, target, &whole);
    }
    let options = raw.request("OPTIONS", segment, "Access-Control-Request-Method: GET\r\n");
    assert_eq!(options.header("Access-Control-Allow-Origin"), Some("*"));
    let asked_with = options.header("Access-Control-Allow-Headers").unwrap();
    assert!(asked_with.contains("Range") && asked_with.contains("Authorization"));
    errors_are_read_by_all_origins(&mut raw, segment);
}

/// A player on another site sees why it gets nothing; what no player loads stays closed to it.
fn errors_are_read_by_all_origins(raw: &mut Raw, segment: &str) {
    let beyond = segment.replace("/2.", "/7000.");
    for (method, target, lines, status, is_open) in [
        ("GET", &*beyond, "", 404, true),
        ("GET", "/none.mp4/hls/index.m3u8", "", 404, true),
        ("GET", "/none.mp4/dash/manifest.mpd", "", 404, true),
        ("GET", segment, "Range: bytes=999999999-\r\n", 416, true),
        ("GET", segment, "If-Match: \"x\"\r\n", 412, true),
        ("GET", "/none.mp4/hls/index.html", "", 404, false),
        ("GET", "/large.mp4/hls/index.html", "", 200, false),
        ("GET", "/none.mp4", "", 404, false),
        ("HEAD", "/large.mp4", "", 200, false),
    ] {
        let answer = raw.request(method, target, lines);
        let allowed = answer.header("Access-Control-Allow-Origin");
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(allowed, is_open.then_some("*"), "{target}");
    }
}

/// HEAD, ranges and conditions.
fn answers_parts_of(raw: &mut Raw, target: &str, whole: &Response) {
    let bytes = whole.body.len();
    let head = raw.request("HEAD", target, "");
    assert_eq!(head.header("Content-Length"), Some(&bytes.to_string()[..]));
    let etag = whole.header("ETag").unwrap();
    assert_eq!(head.header("ETag"), Some(etag));
    let known = raw.request("GET", target, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((known.status, known.body.len()), (304, 0), "{target}");
    let last = bytes - 1;
    for (from, to) in [
        (0, 0),
        (10, 99),
        (bytes / 3, bytes / 2),
        (last, last),
        (1, last),
    ] {
        let lines = format!("Range: bytes={from}-{to}\r\nIf-Range: {etag}\r\n");
        let part = raw.request("GET", target, &lines);
        assert_eq!(part.status, 206, "{target} {from}-{to}");
        assert!(
            part.body == whole.body[from..=to.min(last)],
            "{target} {from}-{to}"
        );
    }
    let two = raw.request("GET", target, "Range: bytes=0-9,500-509\r\n");
    let of = |text: &[u8]| two.body.windows(text.len()).any(|it| it == text);
    assert!(two.status == 206 && of(&whole.body[..10]), "{target}");
    let beyond = raw.request("GET", target, &format!("Range: bytes={bytes}-\r\n"));
    assert_eq!(beyond.status, 416, "{target}");
}

#[test]
fn what_there_is_not_is_404() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        copy("h264.mp4", &root.join("h264.mp4"));
        copy("h264.ts", &root.join("h264.ts"));
        fs::write(root.join("notes.txt"), "no film").unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        fs::create_dir_all(root.join("cut.mp4/hls")).unwrap();
        fs::write(root.join("cut.mp4/hls/index.m3u8"), "of somebody else").unwrap();
    });
    let mut raw = site.connect();
    let main = text(&raw.request("GET", "/h264.mp4/hls/video/index.m3u8", ""));
    let segment = &uris("/h264.mp4/hls/video", &main)[0];
    let folder = segment.strip_suffix("1.m4s").unwrap();
    for number in [
        "0",
        "5",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        for target in [
            format!("{folder}{number}.m4s"),
            format!("{folder}i{number}0.m4s"),
        ] {
            assert_eq!(raw.request("GET", &target, "").status, 404, "{target}");
        }
    }
    let long = format!("{folder}{}.m4s", "9".repeat(1000));
    for target in [
        &long,
        &segment.replace(".m4s", ".ts"),
        &segment.replace("/video/", "/audio-2/"),
        // Of a channel, by when it begins.
        &format!("{folder}t0.m4s"),
        "/h264.mp4/hls/video/0123456789abcdef/1.m4s",
        "/h264.mp4/hls/audio/iframes.m3u8",
        "/h264.mp4/hls/other/index.m3u8",
        "/h264.ts/dash/manifest.mpd",
        "/none.mp4/hls/index.m3u8",
        "/notes.txt/hls/index.m3u8",
        "/folder/hls/index.m3u8",
        "/h264.mp4/hls/index.m3u8/",
        "/hls/index.m3u8",
    ] {
        assert_eq!(raw.request("GET", target, "").status, 404, "{target}");
    }
    // What lies there goes first.
    let own = raw.request("GET", "/cut.mp4/hls/index.m3u8", "");
    assert_eq!(text(&own), "of somebody else");
}

// SPECIFICATION.md: 10
#[test]
fn a_changed_film_never_sends_bytes_for_the_old_one() {
    require_programs!("ffmpeg");
    let site = cinema(&["h264.mp4"]);
    let mut raw = site.connect();
    let target = "/h264.mp4/hls/video/index.m3u8";
    let first = raw.request("GET", target, "");
    let old = uris("/h264.mp4/hls/video", &text(&first));
    assert_eq!(raw.request("GET", &old[0], "").status, 200);
    // Another film takes its place; then what is there is written over.
    let other = site.path("other.mp4");
    copy("h265.mp4", &other);
    fs::rename(&other, site.path("h264.mp4")).unwrap();
    let second = raw.request("GET", target, "");
    assert_ne!(first.header("ETag"), second.header("ETag"));
    assert_eq!(raw.request("GET", &old[0], "").status, 404);
    let new = uris("/h264.mp4/hls/video", &text(&second));
    assert_eq!(raw.request("GET", &new[0], "").status, 200);
    let file = File::options().write(true).open(site.path("h264.mp4"));
    file.unwrap().write_all(&bytes(5000)).unwrap();
    assert_eq!(raw.request("GET", &new[0], "").status, 404);
    fs::write(site.path("h264.mp4"), "short").unwrap();
    assert_eq!(raw.request("GET", &new[0], "").status, 404);
    assert_eq!(raw.request("GET", target, "").status, 404);
    fs::remove_file(site.path("h264.mp4")).unwrap();
    assert_eq!(raw.request("GET", &new[0], "").status, 404);
}

/// Its client, which reads slowly, has the head and some of it when its film is written over.
// SPECIFICATION.md: 10
#[test]
fn a_segment_of_two_versions_never_comes_whole() {
    require_programs!("ffmpeg");
    let site = cinema(&["noise.ts"]);
    let folder = "/noise.ts/hls/stream";
    let playlist = text(&site.get(&format!("{folder}/index.m3u8"), ""));
    let segments = uris(folder, &playlist);
    let segment = &segments[0];
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.connect(&site.http.into()).unwrap();
    let mut client = Client::over(socket.into()).unwrap();
    let whole = client.begin(segment, "").unwrap();
    assert!(whole > 8 << 20, "sockets may hold all of {whole} bytes");
    let path = site.path("noise.ts");
    let middle = fs::metadata(&path).unwrap().len() / 2;
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&bytes(188_000), middle).unwrap();
    drop(file);
    let ended = client.connection.skip(whole).unwrap_err().kind();
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&ended), "{ended}");
    let line = site.server.wait_for_line("was changed while it", LONG);
    assert!(line.is_some(), "{}", site.server.log_tail());
    assert_eq!(site.get(segment, "").status, 404);
}

#[test]
fn names_of_all_kinds_have_playlists() {
    require_programs!("ffmpeg");
    let long = format!("{}.mp4", "long ".repeat(50));
    let names = [
        "a b#%25+é&?.mp4",
        "in/hls/index.m3u8",
        "\"quoted\"<x>.mp4",
        "hls",
        "100%.mp4",
        "a line\nand another\r\tone.mp4",
        "it's; a \\ $(name), = {of} `kinds`.mp4",
        "\u{1f3ac}\u{202e}.mp4",
        &long,
        "odd #%?\n\"&.film",
    ];
    // What is no UTF-8 has its bytes in its URL all the same.
    let no_text = OsStr::from_bytes(b"\xff\xfe.mp4");
    let site = Site::new(&[], |root| {
        fs::create_dir_all(root.join("in/hls")).unwrap();
        for name in names {
            let mut path = root.join(name);
            if name.ends_with(".film") {
                fs::create_dir(&path).unwrap();
                path = path.join("a rendition #%?\n\"&.mp4");
            }
            copy("h264.mp4", &path);
        }
        copy("h264.mp4", &root.join(no_text));
    });
    let expected = decoded(&site, site.path("hls").to_str().unwrap(), None, "v");
    assert_eq!(expected.len(), PICTURES);
    let all = names.iter().map(|name| name.as_bytes());
    for name in all.chain([no_text.as_bytes()]) {
        let encoded: String = name.iter().map(|it| format!("%{it:02x}")).collect();
        let encoded = encoded.replace("%2f", "/");
        for playlist in ["hls/index.m3u8", "dash/manifest.mpd"] {
            let url = site.url(&format!("{encoded}/{playlist}"));
            assert!(
                decoded(&site, &url, None, "v") == expected,
                "{encoded}: {playlist}"
            );
        }
    }
    let mut raw = site.connect();
    let target = "/%ff.film/dash/manifest.mpd";
    assert_eq!(raw.request("GET", target, "").status, 404);
    let page = text(&raw.request("GET", "/", ""));
    assert!(
        page.contains("100%.mp4") && page.contains("%FF%FE.mp4"),
        "{page}"
    );
}

/// VLC, which follows playlists and manifests by code of its own, shows pictures of each container.
#[test]
fn vlc_shows_films() {
    require_root!();
    require_programs!("ffmpeg", "cvlc", "setpriv");
    let names = ["h264.mp4", "h264.ts", "h264.mkv", "h265.mp4", "av1.mp4"];
    let site = cinema(&names);
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let all = names.iter().flat_map(|name| {
        let dash = (!is_stream(name)).then(|| format!("{name}/dash/manifest.mpd"));
        [format!("{name}/hls/index.m3u8")].into_iter().chain(dash)
    });
    for (number, path) in all.enumerate() {
        let file = home.path().join(number.to_string());
        // It does not run as root.
        let mut vlc = Command::new("setpriv");
        let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        vlc.env("HOME", home.path()).args(nobody);
        vlc.args(["--clear-groups", "cvlc", "--no-audio", "--vout=yuv"]);
        vlc.args(["--no-drop-late-frames", "--no-skip-frames"]);
        vlc.arg(format!("--yuv-file={}", file.display()));
        let vlc = Process::start_group(vlc.arg(site.url(&path))).unwrap();
        let deadline = Instant::now() + LONG;
        let picture_bytes = 320 * 180 * 3 / 2;
        let different = || {
            let shown = fs::read(&file).unwrap_or_default();
            shown
                .chunks_exact(picture_bytes)
                .collect::<BTreeSet<_>>()
                .len()
        };
        while different() < 30 {
            assert!(
                Instant::now() < deadline,
                "{path}: {}: {}",
                different(),
                vlc.log_tail()
            );
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A rendition that is broken is left out, whatever is wrong with it, and the log names it; the
/// others play.
#[test]
fn a_broken_rendition_is_left_out() {
    require_programs!("ffmpeg");
    let site = Site::new(&[], |root| {
        let folder = root.join("broken.film");
        fs::create_dir(&folder).unwrap();
        copy("h264.mp4", &folder.join("good.mp4"));
        let whole = fs::read(folder.join("good.mp4")).unwrap();
        let mut damaged = whole.clone();
        // Its tables are there, and say what cannot be: those of pictures and of sound.
        let tables = whole.windows(4).enumerate();
        let tables = tables.filter(|(_, it)| it == b"stsz");
        for (at, _) in tables {
            damaged[at + 8..at + 64].fill(0xff);
        }
        let files: [(&str, &[u8]); 5] = [
            ("cut.mp4", &whole[..whole.len() / 2]),
            ("damaged.mp4", &damaged),
            ("empty.mp4", &[]),
            ("noise.mp4", &bytes(100_000)),
            ("two\nlines.mp4", &bytes(1000)),
        ];
        for (name, content) in files {
            fs::write(folder.join(name), content).unwrap();
            age(&folder.join(name)).unwrap();
        }
        fs::create_dir(folder.join("folder.mp4")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("lost.mp4")).unwrap();
    });
    let mut raw = site.connect();
    let main = text(&raw.request("GET", "/broken.film/hls/index.m3u8", ""));
    let variants = main.lines().filter(|it| it.contains("STREAM-INF:"));
    // And that of its pictures that can be shown alone.
    assert_eq!(variants.count(), 2, "{main}");
    let manifest = text(&raw.request("GET", "/broken.film/dash/manifest.mpd", ""));
    assert_eq!(manifest.matches("<Representation").count(), 2, "{manifest}");
    let file = site.path("broken.film/good.mp4");
    let expected = decoded(&site, file.to_str().unwrap(), None, "v");
    for playlist in ["hls/index.m3u8", "dash/manifest.mpd"] {
        let url = site.url(&format!("broken.film/{playlist}"));
        assert!(decoded(&site, &url, None, "v") == expected, "{playlist}");
    }
    let names = ["cut.mp4", "damaged.mp4", "empty.mp4", "noise.mp4"];
    for name in names.into_iter().chain(["two\\nlines.mp4"]) {
        let told = format!("broken.film/{name}\" is left out: ");
        assert!(
            site.server.wait_for_line(&told, LONG).is_some(),
            "{name}: {}",
            site.server.log_tail()
        );
    }
    // Whoever names a file writes no line of the log.
    let log = site.server.log();
    assert!(!log.lines().any(|it| it.starts_with("lines.mp4")), "{log}");
    // Where nothing is left, it is said.
    fs::remove_file(&file).unwrap();
    let answer = raw.request("GET", "/broken.film/hls/index.m3u8", "");
    assert_eq!(answer.status, 404, "{}", text(&answer));
}

fn metrics(site: &Site) -> SocketAddr {
    let line = site.server.wait_for_line("metrics ", LONG).unwrap();
    let address = line.trim_end_matches("/metrics").rsplit("//").next();
    address.unwrap().parse().unwrap()
}

fn metric(metrics: SocketAddr, name: &str) -> u64 {
    let page = Client::connect(metrics).unwrap().get("/metrics").unwrap();
    let page = String::from_utf8(page).unwrap();
    let mut lines = page.lines().filter_map(|it| it.split_once(' '));
    let (_, value) = lines.find(|(it, _)| *it == name).expect(name);
    value.parse().unwrap()
}

fn transferred(metrics: SocketAddr) -> u64 {
    metric(metrics, "onrush_transfer_bytes_total")
}

/// All of the pictures that segments carry, the kernel has taken from the file; and of the sound,
/// whose pieces are a few hundred bytes each, nothing.
#[test]
fn pictures_leave_within_the_kernel() {
    require_programs!("ffmpeg");
    let site = cinema(&["large.mp4"]);
    let metrics = metrics(&site);
    let mut raw = site.connect();
    for (rendition, is_sent) in [("video", true), ("audio", false)] {
        let folder = format!("/large.mp4/hls/{rendition}");
        let playlist = text(&raw.request("GET", &format!("{folder}/index.m3u8"), ""));
        let (before, mut data) = (transferred(metrics), 0);
        for target in uris(&folder, &playlist) {
            let body = raw.request("GET", &target, "").body;
            let at = body.windows(4).position(|it| it == b"mdat").unwrap();
            data += (body.len() - at - 4) as u64;
        }
        let expected = if is_sent { data } else { 0 };
        assert_eq!(
            transferred(metrics) - before,
            expected,
            "{rendition}: {data}"
        );
    }
}

/// Pictures that lie between sound are neither read nor sent one by one, where nothing is kept.
#[test]
fn pictures_between_sound_are_sent_many_at_once() {
    require_programs!("ffmpeg", "strace");
    let site = cinema_with(&["--download-segments-max=0B"], &["large.mp4"]);
    let folder = "/large.mp4/hls/video";
    let mut raw = site.connect();
    let playlist = text(&raw.request("GET", &format!("{folder}/index.m3u8"), ""));
    let segments = uris(folder, &playlist);
    // What is computed once is.
    let mut fetch = || {
        let bodies = segments.iter().map(|it| raw.request("GET", it, "").body);
        bodies.map(|it| it.len()).sum::<usize>()
    };
    let bytes = fetch();
    let calls = site
        .server
        .count_system_calls_while(|| assert_eq!(fetch(), bytes));
    let calls = calls.unwrap();
    let of = |names: &[&str]| names.iter().filter_map(|it| calls.get(*it)).sum::<u64>();
    let (reads, sends) = (
        of(&["pread64", "preadv"]),
        of(&["sendmsg", "sendfile", "splice"]),
    );
    let few = 4 * segments.len() as u64;
    // A socket that is full takes the rest later: how often, its client decides.
    let most = few + bytes as u64 / (128 << 10);
    assert!(
        reads <= few && sends <= most,
        "{most}: {bytes} bytes by {calls:?}"
    );
    assert!(most < PICTURES as u64 / 2, "too large to tell: {bytes}");
    assert_eq!(metric(metrics(&site), "onrush_segments_gathered_total"), 0);
}

/// And no byte of them is copied, unless TCP spaces out what it sends in loopback's large packets.
#[test]
fn pictures_between_sound_are_sent_as_they_lie() {
    require_root!();
    require_programs!("ffmpeg", "strace");
    let cases = [
        ("reno", 65_536, true),
        ("bbr", 65_536, false),
        ("bbr", 1500, true),
    ];
    for (control, mtu_bytes, is_lent) in cases {
        let namespace = Netns::new().unwrap();
        let has_it = namespace
            .run(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", control).is_ok());
        if !has_it {
            assert_ne!(control, "reno", "each kernel has it");
            continue;
        }
        let _inside = namespace.enter().unwrap();
        let mtu = mtu_bytes.to_string();
        run(Path::new("/"), "ip", &["link", "set", "lo", "mtu", &mtu]);
        let site = cinema_with(&["--download-segments-max=0B"], &[DETAILED.0]);
        let mut raw = site.connect();
        let mut came = header(&mut raw, DETAILED.0);
        let segments = Segments::of(&mut raw, DETAILED.0);
        let calls = site.server.count_system_calls_while(|| {
            for target in &segments.targets {
                came.extend(raw.request("GET", target, "").body);
            }
        });
        let joined = site.path("joined.mp4");
        fs::write(&joined, came).unwrap();
        let [of_file, of_segments] = [site.path(DETAILED.0), joined]
            .map(|it| decoded(&site, it.to_str().unwrap(), None, "v"));
        assert_eq!(of_segments, of_file, "{control}, {mtu}");
        let calls = calls.unwrap();
        let of = |name| calls.get(name).copied().unwrap_or(0);
        let lent = (of("vmsplice") > 0, of("sendmsg") == 0);
        assert_eq!(lent, (is_lent, is_lent), "{control}, {mtu}: {calls:?}");
    }
}

/// What stands in front of all segments of a film's pictures.
fn header(raw: &mut Raw, film: &str) -> Vec<u8> {
    let folder = format!("/{film}/hls/video");
    let playlist = text(&raw.request("GET", &format!("{folder}/index.m3u8"), ""));
    let (_, behind) = playlist.split_once("#EXT-X-MAP:URI=\"").unwrap();
    let (name, _) = behind.split_once('"').unwrap();
    raw.request("GET", &format!("{folder}/{name}"), "").body
}

/// Segments of pictures, as they come when nothing of them is kept yet.
struct Segments {
    targets: Vec<String>,
    bodies: Vec<Vec<u8>>,
}

impl Segments {
    fn of(raw: &mut Raw, film: &str) -> Self {
        let folder = format!("/{film}/hls/video");
        let playlist = text(&raw.request("GET", &format!("{folder}/index.m3u8"), ""));
        let targets = uris(&folder, &playlist);
        let bodies = targets.iter().map(|it| raw.request("GET", it, "").body);
        Self {
            bodies: bodies.collect(),
            targets,
        }
    }

    /// Asks for all until so many were put into memory since the start.
    fn are_gathered(&self, raw: &mut Raw, metrics: SocketAddr, total: u64) {
        let deadline = Instant::now() + LONG;
        while metric(metrics, "onrush_segments_gathered_total") < total {
            let failed = metric(metrics, "onrush_segments_failed_total");
            let no_room = metric(metrics, "onrush_segments_no_room_total");
            assert!(
                Instant::now() < deadline,
                "{total} are never gathered; {failed} failed, {no_room} had no room"
            );
            self.come_again(raw);
            // A connection has a bound on its requests.
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn come_again(&self, raw: &mut Raw) {
        for (target, body) in self.targets.iter().zip(&self.bodies) {
            let again = raw.request("GET", target, "");
            assert!(again.status == 200 && again.body == *body, "{target}");
        }
    }
}

/// What was gathered once is sent as a file is, and nothing is read, copied or held back for it.
#[test]
fn segments_that_are_asked_for_again_are_sent_as_files() {
    require_programs!("ffmpeg", "strace");
    let site = cinema(&["large.mp4"]);
    let (metrics, mut raw) = (metrics(&site), site.connect());
    let segments = Segments::of(&mut raw, "large.mp4");
    let count = segments.targets.len() as u64;
    let hits = || metric(metrics, "onrush_segment_hits_total");
    assert_eq!(hits(), 0, "nobody has asked twice");
    assert_eq!(metric(metrics, "onrush_segment_misses_total"), count);
    segments.are_gathered(&mut raw, metrics, count);
    let bytes: usize = segments.bodies.iter().map(Vec::len).sum();
    let kept = metric(metrics, "onrush_segments_kept_bytes");
    assert_eq!(kept, bytes as u64);
    let before = hits();
    let calls = site
        .server
        .count_system_calls_while(|| segments.come_again(&mut raw));
    let calls = calls.unwrap();
    assert_eq!(hits() - before, count);
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    // A socket that is full takes the rest later: how often, its client decides.
    let most = count + bytes as u64 / (128 << 10);
    assert!(
        (count..=most).contains(&of("sendfile")),
        "{most}: {calls:?}"
    );
    for none in ["sendmsg", "pread64", "setsockopt", "mmap"] {
        assert_eq!(of(none), 0, "{none}: {calls:?}");
    }
    for target in &segments.targets {
        let whole = raw.request("GET", target, "");
        answers_parts_of(&mut raw, target, &whole);
    }
}

/// What was gathered for one client is what those on TLS and HTTP/2 get, whole and in part.
#[test]
fn gathered_segments_come_over_tls_and_http_2() {
    require_programs!("ffmpeg", "curl");
    let options = ["--https=127.0.0.1:0", "--tls=self-signed"];
    let site = cinema_with(&options, &["large.mp4"]);
    let line = site.server.wait_for_line("listening  https://", LONG);
    let line = line.unwrap();
    let https = line.rsplit("//").next().unwrap().trim_end_matches('/');
    let (metrics, mut raw) = (metrics(&site), site.connect());
    let segments = Segments::of(&mut raw, "large.mp4");
    let count = segments.targets.len() as u64;
    segments.are_gathered(&mut raw, metrics, count);
    let curl = |arguments: &[&str], target: &str| {
        let url = format!("https://{https}{target}");
        let arguments = [&["-sSk", "--fail"], arguments, &[&*url]].concat();
        run(site.media.path(), "curl", &arguments).stdout
    };
    for version in ["--http1.1", "--http2"] {
        let before = metric(metrics, "onrush_segment_hits_total");
        for (target, body) in segments.targets.iter().zip(&segments.bodies) {
            assert!(curl(&[version], target) == *body, "{version} {target}");
            let part = curl(&[version, "--range", "70000-199999"], target);
            assert!(part == body[70_000..200_000], "{version} {target}");
        }
        let hits = metric(metrics, "onrush_segment_hits_total") - before;
        assert_eq!(hits, 2 * count, "{version}");
    }
}

#[test]
fn a_changed_film_is_not_sent_from_memory() {
    require_programs!("ffmpeg");
    let site = cinema(&["large.mp4"]);
    let (metrics, mut raw) = (metrics(&site), site.connect());
    let old = Segments::of(&mut raw, "large.mp4");
    let count = old.targets.len() as u64;
    old.are_gathered(&mut raw, metrics, count);
    // What is there is written over in its middle, where only pictures are.
    let path = site.path("large.mp4");
    let middle = fs::metadata(&path).unwrap().len() / 2;
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&bytes(5000), middle).unwrap();
    drop(file);
    age(&path).unwrap();
    for target in &old.targets {
        assert_eq!(raw.request("GET", target, "").status, 404, "{target}");
    }
    let new = Segments::of(&mut raw, "large.mp4");
    assert!(new.targets[0] != old.targets[0] && new.bodies != old.bodies);
    for _ in 0..3 {
        new.come_again(&mut raw);
    }
}

/// One segment takes an eighth of the memory at the most; a longer one is sent all the same.
#[test]
fn segments_that_are_too_long_for_memory_are_sent() {
    require_programs!("ffmpeg");
    let lengths = |segments: &Segments| -> Vec<u64> {
        let bodies = segments.bodies.iter();
        bodies.map(|it| it.len() as u64).collect()
    };
    let site = cinema(&["large.mp4"]);
    let of_all = lengths(&Segments::of(&mut site.connect(), "large.mp4"));
    let longest = of_all.iter().max().unwrap();
    let max_kib = 8 * longest / 1024 - 1;
    let is_short = |it: &&u64| **it <= max_kib * 1024 / 8;
    let option = format!("--download-segments-max={max_kib}KiB");
    let site = cinema_with(&[&option], &["large.mp4"]);
    let (metrics, mut raw) = (metrics(&site), site.connect());
    let segments = Segments::of(&mut raw, "large.mp4");
    assert_eq!(lengths(&segments), of_all);
    let short: Vec<_> = of_all.iter().filter(is_short).collect();
    assert!(
        !short.is_empty() && short.len() < of_all.len(),
        "{of_all:?}"
    );
    segments.are_gathered(&mut raw, metrics, short.len() as u64);
    for _ in 0..3 {
        segments.come_again(&mut raw);
    }
    let kept = metric(metrics, "onrush_segments_kept_bytes");
    assert_eq!(kept, short.into_iter().sum::<u64>());
}

#[test]
fn a_film_that_is_written_still_says_that_more_follows() {
    require_programs!("ffmpeg");
    let site = cinema(&["fragments.mp4"]);
    let whole = fs::read(site.path("fragments.mp4")).unwrap();
    let mut file = File::create(site.path("grows.mp4")).unwrap();
    file.write_all(&whole[..whole.len() * 2 / 3]).unwrap();
    let mut raw = site.connect();
    let target = "/grows.mp4/hls/video/index.m3u8";
    let before = text(&raw.request("GET", target, ""));
    assert!(before.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n"), "{before}");
    let first = uris("/grows.mp4/hls/video", &before);
    let segment = raw.request("GET", &first[0], "");
    assert_eq!(segment.status, 200);
    file.write_all(&whole[whole.len() * 2 / 3..]).unwrap();
    // It is looked at twice a second.
    let more = (0..200).map(|_| {
        thread::sleep(Duration::from_millis(100));
        uris(
            "/grows.mp4/hls/video",
            &text(&raw.request("GET", target, "")),
        )
    });
    let after: Vec<_> = more.filter(|it| it.len() > first.len()).take(1).collect();
    assert!(after[0].starts_with(&first), "{after:?}");
    let again = site.connect().request("GET", &first[0], "");
    assert!(again.body == segment.body);
}

/// A film in two sizes, cut alike, with sound in the larger one alone; and another whose pictures
/// can be begun with at other times.
fn renditions(root: &Path) {
    let of = |size: &str, group: u32, rate: &str, sound: &str| {
        format!(
            "-t 20 -c:v libx264 -preset veryfast -g {group} -keyint_min {group} -sc_threshold 0 \
             -b:v {rate} -s {size} -pix_fmt yuv420p {sound}"
        )
    };
    let high = of("320x180", 50, "600k", "-c:a aac");
    let low = of("160x90", 50, "100k", "-an");
    let other = of("160x90", 80, "100k", "-c:a aac");
    for folder in ["ladder.film", "other.film", "list"] {
        fs::create_dir(root.join(folder)).unwrap();
    }
    for (name, made) in [
        ("ladder.film/a low.mp4", &low),
        ("ladder.film/high.mp4", &high),
        ("other.film/a.mp4", &high),
        ("other.film/b.mkv", &other),
        ("list/high.mp4", &high),
        ("list/low.mp4", &low),
    ] {
        let file = film(&name.replace('/', "-"), made).unwrap();
        fs::copy(file, root.join(name)).unwrap();
        age(&root.join(name)).unwrap();
    }
    fs::write(root.join("ladder.film/notes.txt"), "no film").unwrap();
    fs::write(root.join("ladder.film/broken.mp4"), "no film").unwrap();
    let list = r#"{"renditions": ["list/low.mp4", "list/high.mp4"]}"#;
    fs::write(root.join("x.film.json"), list).unwrap();
    fs::write(root.join("wrong.film.json"), "{").unwrap();
}

#[test]
fn files_of_one_film_are_its_renditions() {
    require_programs!("ffmpeg");
    let site = Site::new(&["--metrics=127.0.0.1:0"], renditions);
    let mut raw = site.connect();
    for name in ["ladder.film", "x.film.json"] {
        let main = text(&raw.request("GET", &format!("/{name}/hls/index.m3u8"), ""));
        let variants: Vec<_> = main
            .lines()
            .filter(|it| it.contains("STREAM-INF"))
            .collect();
        let of = |at: usize, what: &str| variants[at].contains(what);
        assert!(
            variants.len() == 4 && !main.contains("other times"),
            "{main}"
        );
        assert!(
            of(0, "RESOLUTION=320x180") && of(1, "RESOLUTION=160x90"),
            "{main}"
        );
        for variant in 0..2 {
            assert!(
                of(variant, "FRAME-RATE=25.000") && of(variant, "mp4a.40.2"),
                "{main}"
            );
        }
        // Both are fetched and played, with the sound of the one.
        let url = site.url(&format!("{name}/hls/index.m3u8"));
        for (stream, width) in [("v:0", 320), ("v:1", 160)] {
            let shown = ["-v", "error", "-select_streams", stream, "-count_packets"];
            let entries = [
                "-show_entries",
                "stream=width,nb_read_packets",
                "-of",
                "csv=p=0",
            ];
            let probe = [&shown[..], &entries, &[&url]].concat();
            let told = run(site.media.path(), "ffprobe", &probe).stdout;
            let told = String::from_utf8(told).unwrap();
            let line = format!("{width},{PICTURES}");
            assert!(told.lines().any(|it| it.trim() == line), "{told}");
        }
        let manifest = text(&raw.request("GET", &format!("/{name}/dash/manifest.mpd"), ""));
        assert_eq!(manifest.matches("<AdaptationSet").count(), 2, "{manifest}");
        assert_eq!(manifest.matches("<Representation").count(), 3, "{manifest}");
        assert!(
            !manifest.contains("segmentAlignment=\"false\""),
            "{manifest}"
        );
    }
    // What cannot be aligned says so.
    let main = text(&raw.request("GET", "/other.film/hls/index.m3u8", ""));
    assert!(
        main.contains("# video-2: its segments begin at other times"),
        "{main}"
    );
    let manifest = text(&raw.request("GET", "/other.film/dash/manifest.mpd", ""));
    assert!(
        manifest.contains("segmentAlignment=\"false\""),
        "{manifest}"
    );
    // The segments of one are not those of another.
    let low = text(&raw.request("GET", "/ladder.film/hls/video-2/index.m3u8", ""));
    let segment = &uris("/ladder.film/hls/video-2", &low)[0];
    assert_eq!(raw.request("GET", segment, "").status, 200);
    let exchanged = segment.replace("/video-2/", "/video/");
    assert_eq!(raw.request("GET", &exchanged, "").status, 404);
    assert_eq!(
        raw.request("GET", "/wrong.film.json/hls/index.m3u8", "")
            .status,
        404
    );
    let page = text(&raw.request("GET", "/", ""));
    assert!(
        page.contains("data-play=\"ladder.film/hls/index.html\""),
        "{page}"
    );
    assert!(
        page.contains("data-play=\"x.film.json/hls/index.html\""),
        "{page}"
    );
}

/// Films of other colours and shapes of pixels, how they are made, what playlists tell of their
/// range, and what ffprobe sees in their segments.
const COLOURED: [(&str, &str, Option<&str>, &str); 3] = [
    (
        "pq.mp4",
        "-t 4 -c:v libx265 -preset ultrafast -g 50 -pix_fmt yuv420p10le -tag:v hvc1 -an \
         -x265-params \
         log-level=none:pools=1:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc",
        Some("PQ"),
        "320,180,1:1,smpte2084",
    ),
    (
        "hlg.webm",
        "-t 4 -vf scale=720:576,setsar=64/45 -c:v libvpx-vp9 -profile:v 2 -deadline realtime \
         -cpu-used 8 -g 50 -b:v 500k -pix_fmt yuv420p10le -an -color_primaries bt2020 \
         -color_trc arib-std-b67 -colorspace bt2020nc",
        Some("HLG"),
        "720,576,64:45,arib-std-b67",
    ),
    (
        "wide.mkv",
        "-t 4 -vf scale=720:576,setsar=64/45 -c:v libsvtav1 -preset 12 -g 50 -pix_fmt yuv420p -an",
        None,
        "720,576,64:45,unknown",
    ),
];

#[test]
fn dynamic_ranges_and_shapes_of_pixels_are_told() {
    require_programs!("ffmpeg", "ffprobe");
    let site = Site::new(&[], |root| {
        for (name, made, ..) in COLOURED {
            fs::copy(film(name, made).unwrap(), root.join(name)).unwrap();
            age(&root.join(name)).unwrap();
        }
    });
    let mut raw = site.connect();
    for (name, _, range, seen) in COLOURED {
        let main = text(&raw.request("GET", &format!("/{name}/hls/index.m3u8"), ""));
        let variants = main.lines().filter(|it| it.contains("STREAM-INF:"));
        let told = range.map(|it| format!(",VIDEO-RANGE={it},"));
        for variant in variants {
            let is_told = told.as_ref().is_some_and(|it| variant.contains(it));
            assert_eq!(is_told, variant.contains("VIDEO-RANGE"), "{main}");
            assert_eq!(is_told, range.is_some(), "{main}");
        }
        let manifest = text(&raw.request("GET", &format!("/{name}/dash/manifest.mpd"), ""));
        let is_told = manifest.contains("cicp:TransferCharacteristics");
        assert_eq!(is_told, range.is_some(), "{manifest}");
        let folder = format!("/{name}/hls/video");
        let media = text(&raw.request("GET", &format!("{folder}/index.m3u8"), ""));
        let init = media.split('"').nth(1).unwrap();
        let mut all = raw.request("GET", &format!("{folder}/{init}"), "").body;
        all.extend(raw.request("GET", &uris(&folder, &media)[0], "").body);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), all).unwrap();
        let path = file.path().to_str().unwrap();
        let entries = "stream=width,height,sample_aspect_ratio,color_transfer";
        let probe = [
            "-v",
            "error",
            "-show_entries",
            entries,
            "-of",
            "csv=p=0",
            path,
        ];
        let told = run(site.media.path(), "ffprobe", &probe).stdout;
        assert_eq!(String::from_utf8(told).unwrap().trim(), seen, "{name}");
    }
}

#[test]
fn signed_urls_lead_to_segments_that_are_allowed() {
    require_programs!("ffmpeg");
    let keys = tempfile::NamedTempFile::new().unwrap();
    fs::write(keys.path(), "0123456789abcdef0123456789abcdef\n").unwrap();
    let keys = keys.path().to_str().unwrap();
    let site = Site::new(&["--url-keys", keys], |root| {
        copy("h264.mp4", &root.join("h264.mp4"));
        copy("h264.ts", &root.join("h264.ts"));
        renditions(root);
    });
    let mut raw = site.connect();
    for (film, first) in [
        ("h264.mp4", "hls/index.m3u8"),
        ("h264.ts", "hls/index.m3u8"),
        ("ladder.film", "hls/index.m3u8"),
    ] {
        let url = site.url(&format!("{film}/{first}"));
        let signed = run(
            site.media.path(),
            download_site::ONRUSH,
            &["sign", &url, "--keys", keys],
        );
        let signed = String::from_utf8(signed.stdout).unwrap();
        let target = &signed.trim()[site.url("").len() - 1..];
        let query = target.split_once('?').unwrap().1;
        assert_ne!(
            raw.request("GET", &target.replace(query, "x=y"), "").status,
            200
        );
        let mut left = vec![target.to_owned()];
        let (mut seen, mut segments) = (0, 0);
        while let Some(target) = left.pop() {
            let found = raw.request("GET", &target, "");
            assert_eq!(found.status, 200, "{target}");
            seen += 1;
            assert!(target.ends_with(query) && seen < 99, "{target}");
            if !target.contains(".m3u8") {
                segments += 1;
                continue;
            }
            let folder = target
                .split('?')
                .next()
                .unwrap()
                .rsplit_once('/')
                .unwrap()
                .0;
            let found = text(&found);
            let quoted = found
                .split("URI=\"")
                .skip(1)
                .filter_map(|it| it.split('"').next());
            let lines = found.lines().filter(|line| !line.starts_with('#'));
            left.extend(quoted.chain(lines).map(|it| format!("{folder}/{it}")));
        }
        assert!(segments >= 3, "{film}: {segments}");
        // Nothing else is allowed by it.
        assert_ne!(
            raw.request("GET", &format!("/list/low.mp4?{query}"), "")
                .status,
            200
        );
    }
    let url = site.url("h264.mp4/dash/manifest.mpd");
    let signed = run(
        site.media.path(),
        download_site::ONRUSH,
        &["sign", &url, "--keys", keys],
    );
    let signed = String::from_utf8(signed.stdout).unwrap();
    assert_eq!(decoded(&site, signed.trim(), None, "v").len(), PICTURES);
}

#[test]
fn texts_are_compressed_for_those_who_like_it() {
    require_programs!("ffmpeg");
    let site = cinema(&["h264.mp4"]);
    let mut raw = site.connect();
    let likes = "Accept-Encoding: gzip\r\n";
    for target in [
        "/h264.mp4/dash/manifest.mpd",
        "/h264.mp4/hls/index.html",
        "/.onrush/player.js",
    ] {
        let plain = raw.request("GET", target, "");
        let packed = raw.request("GET", target, likes);
        assert_eq!((plain.status, packed.status), (200, 200), "{target}");
        assert_eq!(packed.header("Content-Encoding"), Some("gzip"), "{target}");
        assert_eq!(plain.header("Content-Encoding"), None, "{target}");
        for answer in [&plain, &packed] {
            assert_eq!(answer.header("Vary"), Some("Accept-Encoding"), "{target}");
        }
        assert_ne!(plain.header("ETag"), packed.header("ETag"), "{target}");
        let file = site.media.path().join("packed.gz");
        fs::write(&file, &packed.body).unwrap();
        let unpacked = run(site.media.path(), "gzip", &["-dc", "packed.gz"]).stdout;
        assert!(unpacked == plain.body, "{target}");
        let etag = packed.header("ETag").unwrap();
        let known = format!("{likes}If-None-Match: {etag}\r\n");
        assert_eq!(raw.request("GET", target, &known).status, 304, "{target}");
        let part = raw.request("GET", target, &format!("{likes}Range: bytes=2-9\r\n"));
        assert!(
            part.status == 206 && part.body == packed.body[2..10],
            "{target}"
        );
    }
    // Zstandard is smaller, and goes first where both are liked as much.
    let target = "/h264.mp4/dash/manifest.mpd";
    let plain = raw.request("GET", target, "");
    let packed = raw.request("GET", target, "Accept-Encoding: gzip, zstd\r\n");
    assert_eq!(packed.header("Content-Encoding"), Some("zstd"));
    assert!(packed.header("ETag").unwrap().ends_with("-zstd\""));
    assert!(
        packed.body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) && packed.body.len() < plain.body.len()
    );
    let rather = "Accept-Encoding: gzip, zstd;q=0.5\r\n";
    let packed = raw.request("GET", target, rather);
    assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
    // What fits into a packet is sent as it is; pictures are compressed already.
    let short = raw.request("GET", "/h264.mp4/hls/video/iframes.m3u8", likes);
    assert_eq!(short.header("Content-Encoding"), None);
    assert_eq!(short.header("Vary"), Some("Accept-Encoding"));
    let list = text(&raw.request("GET", "/h264.mp4/hls/video/index.m3u8", ""));
    let segment = &uris("/h264.mp4/hls/video", &list)[0];
    assert_eq!(
        raw.request("GET", segment, likes)
            .header("Content-Encoding"),
        None
    );
}
