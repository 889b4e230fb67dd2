//! Live channels by HLS and DASH: what is published and what comes as a transport stream, in
//! players, and with requests that wait for what comes next.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::fs::advise_done;
use onrush_sys::thread::raise_open_files_limit;
use onrush_testkit::disk::FailingDisk;
use onrush_testkit::media::age;
use onrush_testkit::ports::free_udp_port;
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::{require_programs, require_root, skip};

use download_site::{LONG, Raw, Site};

mod download_site;

/// A channel of pictures and sound that is published, and one that comes as a transport stream.
struct Live {
    site: Site,
    senders: [Process; 2],
}

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/browser");

/// Who runs what does not run as root.
const NOBODY: u32 = 65_534;

fn live(options: &[&str]) -> Live {
    let port = free_udp_port();
    let channel = format!("--channel=ts=127.0.0.1:{port}");
    let options = [&[&*channel], options].concat();
    let site = Site::new(&options, |root| {
        fs::copy(format!("{SCRIPTS}/players.html"), root.join("players.html")).unwrap();
    });
    let published = format!("rtsp://{}/live/cam", site.rtsp);
    let senders = [
        send(&["-tune", "zerolatency"], "rtsp", &published),
        send(
            &[],
            "mpegts",
            &format!("udp://127.0.0.1:{port}?pkt_size=1316"),
        ),
    ];
    Live { site, senders }
}

fn send(options: &[&str], format: &str, to: &str) -> Process {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i"]);
    command.args([
        "testsrc2=s=192x108:r=25",
        "-f",
        "lavfi",
        "-i",
        "sine=r=48000",
    ]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "50"]);
    command
        .args(options)
        .args(["-pix_fmt", "yuv420p", "-c:a", "aac"]);
    Process::start(command.args(["-t", "900", "-f", format, to])).unwrap()
}

/// Asks on a connection of its own; what comes, head and body, as text.
fn ask(site: &Site, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(site.http).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn told(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn get(site: &Site, path: &str) -> String {
    told(ask(site, path))
}

/// The playlist at that path, once there is one.
fn playlist(site: &Site, path: &str) -> String {
    let give_up = Instant::now() + LONG;
    loop {
        let answer = get(site, path);
        if answer.starts_with("HTTP/1.1 200") {
            return answer;
        }
        assert!(
            Instant::now() < give_up,
            "{answer}\n{}",
            site.server.log_tail()
        );
        thread::sleep(Duration::from_millis(200));
    }
}

/// The number of the segment that is written.
fn newest(playlist: &str) -> u64 {
    let hint = playlist
        .lines()
        .find(|line| line.starts_with("#EXT-X-PRELOAD-HINT"));
    let name = hint.unwrap().rsplit('/').next().unwrap();
    name.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn ffmpeg_plays_channels_by_hls() {
    require_programs!("ffmpeg");
    let live = live(&[]);
    for path in ["live/cam/hls/index.m3u8", "live/ts/hls/index.m3u8"] {
        playlist(&live.site, &format!("/{path}"));
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-i", &live.site.url(path)]);
        // In a transport stream the sound behind a picture is of earlier, so that pictures begin
        // later than sound: seven of them were missing from the first three seconds.
        command.args(["-t", "4", "-f", "framecrc", "-"]);
        let (status, said) = Process::run(&mut command, 3 * LONG).unwrap();
        let frames = |track: &str| said.lines().filter(|it| it.starts_with(track)).count();
        assert!(
            status.success() && frames("0,") >= 85 && frames("1,") >= 150,
            "{path}: {said}"
        );
    }
}

/// Its datagrams are of 1,472 bytes, and begin and end within transport packets.
#[test]
fn what_ffmpeg_sends_if_nobody_tells_it_otherwise_plays() {
    require_programs!("ffmpeg");
    let port = free_udp_port();
    let site = Site::new(&[&*format!("--channel=ts=127.0.0.1:{port}")], |_| {});
    let _sender = send(&[], "mpegts", &format!("udp://127.0.0.1:{port}"));
    playlist(&site, "/live/ts/hls/index.m3u8");
    for (url, frames_min) in [
        (site.url("live/ts/hls/index.m3u8"), 85),
        (site.rtsp_url("live/ts"), 60),
    ] {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-i", &url]);
        command.args(["-t", "4", "-f", "framecrc", "-"]);
        let (status, said) = Process::run(&mut command, 3 * LONG).unwrap();
        let frames = said.lines().filter(|it| it.starts_with("0,")).count();
        assert!(status.success() && frames >= frames_min, "{url}: {said}");
    }
    let said = site.server.wait_for_lines("pkt_size=1316", 1, LONG);
    assert!(said.len() == 1 && said[0].contains("source ts"), "{said:?}");
    let log = site.server.log_tail();
    assert!(!log.contains("packets are missing"), "{log}");
}

/// A film of AV1 that another server sends, because neither ffmpeg nor GStreamer of Debian 12 sends
/// AV1 by RTP; its pictures are all different.
fn av1_film() -> Site {
    Site::new(&[], |root| {
        let film = root.join("av1.mp4");
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-v", "error", "-f", "lavfi", "-i"]);
        command.args([
            "testsrc2=s=192x108:r=25",
            "-f",
            "lavfi",
            "-i",
            "sine=r=48000",
        ]);
        command.args([
            "-t",
            "180",
            "-pix_fmt",
            "yuv420p",
            "-g",
            "50",
            "-c:v",
            "libaom-av1",
        ]);
        command.args(["-usage", "realtime", "-cpu-used", "8", "-c:a", "libopus"]);
        assert!(command.arg(&film).status().unwrap().success());
        age(&film).unwrap();
    })
}

/// AV1 that is pulled, and VP9 as ffmpeg and as GStreamer publish it.
fn others(films: &Site) -> (Site, [Process; 2]) {
    let pulled = format!("--channel=av1={}", films.rtsp_url("av1.mp4"));
    let site = Site::new(&[&*pulled], |root| {
        fs::copy(format!("{SCRIPTS}/players.html"), root.join("players.html")).unwrap();
    });
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i"]);
    ffmpeg.args([
        "testsrc2=s=192x108:r=25",
        "-f",
        "lavfi",
        "-i",
        "sine=r=48000",
        "-g",
        "50",
    ]);
    ffmpeg.args([
        "-c:v",
        "libvpx-vp9",
        "-deadline",
        "realtime",
        "-cpu-used",
        "8",
    ]);
    ffmpeg.args([
        "-pix_fmt",
        "yuv420p",
        "-strict",
        "experimental",
        "-c:a",
        "libopus",
    ]);
    ffmpeg.args(["-t", "900", "-f", "rtsp", &site.rtsp_url("live/vp9")]);
    let location = format!("location={}", site.rtsp_url("live/gst"));
    let pipeline = format!(
        "rtspclientsink name=out latency=0 protocols=tcp {location} videotestsrc is-live=true ! \
         video/x-raw,format=I420,width=320,height=240,framerate=25/1 ! \
         vp9enc deadline=1 cpu-used=8 keyframe-max-dist=50 ! video/x-vp9,profile=(string)0 ! out. \
         audiotestsrc is-live=true ! audioconvert ! opusenc ! out."
    );
    let mut gstreamer = Command::new("gst-launch-1.0");
    gstreamer.arg("-q").args(pipeline.split_whitespace());
    let senders = [&mut ffmpeg, &mut gstreamer].map(|it| Process::start(it).unwrap());
    (site, senders)
}

/// The hashes of pictures that ffmpeg decodes of this.
fn pictures(input: &str, more: &[&str]) -> Vec<String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i", input, "-map", "0:v"]);
    command.args(more).args(["-f", "framemd5", "-"]);
    let (status, said) = Process::run(&mut command, 3 * LONG).unwrap();
    assert!(status.success(), "{input}: {said}");
    let lines = said.lines().filter(|it| !it.starts_with('#'));
    let hashes = lines.filter_map(|it| it.rsplit(',').next());
    hashes.map(|it| it.trim().to_owned()).collect()
}

#[test]
fn channels_of_av1_and_vp9_are_cut() {
    require_programs!("ffmpeg", "gst-launch-1.0");
    let films = av1_film();
    let (site, _senders) = others(&films);
    for (name, codec, resolution) in [
        ("av1", "av01.0.", "192x108"),
        ("vp9", "vp09.00.", "192x108"),
        ("gst", "vp09.00.", "320x240"),
    ] {
        let path = format!("live/{name}/hls/index.m3u8");
        let main = playlist(&site, &format!("/{path}"));
        assert!(
            main.contains(&format!("CODECS=\"{codec}"))
                && main.contains(&format!("RESOLUTION={resolution}"))
                && main.contains("opus"),
            "{name}: {main}"
        );
        let shown = pictures(&site.url(&path), &["-frames:v", "100"]);
        assert_eq!(shown.len(), 100, "{name}");
        let manifest = site.url(&format!("live/{name}/dash/manifest.mpd"));
        assert_eq!(
            pictures(&manifest, &["-frames:v", "50"]).len(),
            50,
            "{name}"
        );
        if name == "av1" {
            // All of them, and as they are in the film.
            let film = pictures(films.path("av1.mp4").to_str().unwrap(), &[]);
            let at = film.iter().position(|it| *it == shown[0]);
            let at = at.expect("its first picture is one of the film's");
            assert!(film[at..at + 100] == shown, "from picture {at} on");
        }
    }
}

/// It takes LATM for it, and tells what decoders want to know and nothing else.
#[test]
fn aac_that_gstreamer_publishes_is_heard() {
    require_programs!("ffmpeg", "gst-launch-1.0");
    let site = Site::new(&[], |_| {});
    let location = format!("location={}", site.rtsp_url("live/gst"));
    let pipeline = format!(
        "rtspclientsink name=out latency=0 protocols=tcp {location} \
         audiotestsrc is-live=true ! audioconvert ! avenc_aac ! out."
    );
    let mut gstreamer = Command::new("gst-launch-1.0");
    gstreamer.arg("-q").args(pipeline.split_whitespace());
    let _sender = Process::start(&mut gstreamer).unwrap();
    let path = "live/gst/hls/index.m3u8";
    let main = playlist(&site, &format!("/{path}"));
    assert!(main.contains("CODECS=\"mp4a.40.2\""), "{main}");
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i", &site.url(path)]);
    command.args(["-t", "3", "-f", "framecrc", "-"]);
    let (status, said) = Process::run(&mut command, 3 * LONG).unwrap();
    let frames = said.lines().filter(|it| it.starts_with("0,")).count();
    assert!(status.success() && frames >= 100, "{said}");
}

/// What many ask for is sent to them from one file in memory, and a playlist by one call.
#[test]
fn what_many_ask_for_of_a_channel_is_not_copied() {
    require_programs!("ffmpeg", "strace");
    let site = Site::new(&["--metrics=127.0.0.1:0"], |_| {});
    let large = ["-tune", "zerolatency", "-qp", "2"];
    let published = format!("rtsp://{}/live/large", site.rtsp);
    let _sender = send(&large, "rtsp", &published);
    let folder = "/live/large/hls/video";
    let text = playlist(&site, &format!("{folder}/index.m3u8"));
    let whole = text.lines().rfind(|it| it.ends_with(".m4s"));
    let target = format!("{folder}/{}", whole.expect("a segment"));
    let mut raw = site.connect();
    let first = raw.request("GET", &target, "");
    assert!(
        first.status == 200 && first.body.len() > 100_000,
        "{target}"
    );
    let ask = |raw: &mut Raw| raw.request("GET", &target, "").body == first.body;
    assert!((0..8).all(|_| ask(&mut raw)));
    let sent = || metric(&site, "onrush_hls_sent_bytes_total");
    let before = sent();
    let calls = site.server.count_system_calls_while(|| {
        assert!((0..100).all(|_| ask(&mut raw)));
        for _ in 0..100 {
            let target = format!("{folder}/index.m3u8");
            assert_eq!(raw.request("GET", &target, "").status, 200);
        }
        // The last answer is here before its call has returned, and may not be counted.
        assert!(ask(&mut raw));
    });
    let calls = calls.unwrap();
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    assert!(of("sendfile") >= 100, "{calls:?}");
    // A head for each segment and a playlist with its head; the rest is that of other threads.
    let sends = of("sendto") + of("sendmsg");
    assert!((200..250).contains(&sends), "{sends}: {calls:?}");
    let (sent, segment) = (sent() - before, first.body.len() as u64);
    assert!((100 * segment..200 * segment).contains(&sent), "{sent}");
    let mut part = |range: &str| {
        let lines = format!("Range: bytes={range}\r\n");
        raw.request("GET", &target, &lines).body
    };
    assert!(part("70000-99999") == first.body[70_000..100_000]);
    assert!(part("-5") == first.body[first.body.len() - 5..]);
}

/// Both kinds of channel, in players that follow playlists by code of their own.
#[test]
fn gstreamer_and_vlc_play_channels() {
    require_root!();
    require_programs!("ffmpeg", "gst-launch-1.0", "cvlc", "setpriv");
    let live = live(&[]);
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    for path in ["live/cam/hls/index.m3u8", "live/ts/hls/index.m3u8"] {
        playlist(&live.site, &format!("/{path}"));
        let url = live.site.url(path);
        let pipeline = format!(
            "uridecodebin3 name=film uri={url} caps=video/x-raw(ANY) film. ! \
             identity eos-after=150 ! fakesink"
        );
        let mut gst = Command::new("gst-launch-1.0");
        let ran = Process::run(gst.arg("-q").args(pipeline.split_whitespace()), 2 * LONG);
        let (status, said) = ran.unwrap();
        assert!(status.success(), "{path}: {said}");
        let pictures = home.path().join(path.replace('/', "-"));
        // It does not run as root.
        let mut vlc = Command::new("setpriv");
        let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        vlc.env("HOME", home.path()).args(nobody);
        vlc.args(["--clear-groups", "cvlc", "--no-audio", "--vout=yuv"]);
        vlc.args(["--no-drop-late-frames", "--no-skip-frames"]);
        vlc.arg(format!("--yuv-file={}", pictures.display()));
        let vlc = Process::start_group(vlc.arg(url)).unwrap();
        let give_up = Instant::now() + 2 * LONG;
        while different(&pictures) < 30 {
            let shown = different(&pictures);
            assert!(
                Instant::now() < give_up,
                "{path}: {shown}: {}",
                vlc.log_tail()
            );
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// How many pictures are in a file of them that differ.
fn different(pictures: &Path) -> usize {
    let shown = fs::read(pictures).unwrap_or_default();
    let different: BTreeSet<_> = shown.chunks_exact(192 * 108 * 3 / 2).collect();
    different.len()
}

/// Each that waits is bounded in time and in number, and holds hardly anything.
#[test]
fn thousands_of_half_open_reloads_do_no_harm() {
    const COUNT: u64 = 2000;
    require_programs!("ffmpeg");
    raise_open_files_limit();
    let most = format!("--hls-waiting-max={COUNT}");
    // All from one address.
    let of_address = "--download-connections-per-address-max=16384";
    let site = Site::new(&["--metrics=127.0.0.1:0", &most, of_address], |_| {});
    let published = format!("rtsp://{}/live/cam", site.rtsp);
    // Segments of ten seconds, of which three may be waited for.
    let sender = send(&["-g", "250", "-keyint_min", "250"], "rtsp", &published);
    let path = "/live/cam/hls/video/index.m3u8";
    playlist(&site, path);
    sender.signal(Signal::STOP).unwrap();
    let next = format!("{path}?_HLS_msn={}", newest(&get(&site, path)) + 1);
    let resident = || metric(&site, "process_resident_memory_bytes");
    let before = resident();
    let mut waiting: Vec<_> = (0..COUNT).map(|_| ask(&site, &next)).collect();
    wait_for_metric(&site, "onrush_hls_waiting", COUNT);
    assert!(get(&site, &next).contains("too many wait"));
    assert!(get(&site, "/").starts_with("HTTP/1.1 200"));
    let each = resident().saturating_sub(before) / COUNT;
    assert!(each < 32 << 10, "each holds {each} bytes");
    // Half of them go without a word.
    let left = usize::try_from(COUNT).unwrap() / 2;
    waiting.truncate(left);
    wait_for_metric(&site, "onrush_hls_waiting", COUNT / 2);
    // The others are told after three segments' time that nothing comes.
    for stream in waiting {
        let answer = told(stream);
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    wait_for_metric(&site, "onrush_hls_waiting", 0);
    assert_eq!(metric(&site, "onrush_hls_waits_left_total"), COUNT / 2);
}

/// What a channel's playlists say after half a minute, with parts, reports and deltas.
#[test]
fn a_parser_of_others_finds_no_fault_in_channels() {
    require_programs!("ffmpeg", "node");
    if !Path::new(SCRIPTS).join("node_modules/hls-parser").exists() {
        skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
        return;
    }
    let live = live(&[]);
    let site = &live.site;
    let (main, stream) = ("/live/cam/hls/index.m3u8", "/live/ts/hls/index.m3u8");
    playlist(site, main);
    playlist(site, stream);
    let delta = "/live/cam/hls/video/index.m3u8?_HLS_skip=YES";
    let give_up = Instant::now() + 3 * LONG;
    while !get(site, delta).contains("#EXT-X-SKIP:") {
        assert!(Instant::now() < give_up, "{}", get(site, delta));
        thread::sleep(Duration::from_millis(500));
    }
    let mut command = Command::new("node");
    command.arg(format!("{SCRIPTS}/validate.mjs"));
    let urls = [main, delta, stream].map(|path| site.url(path.trim_start_matches('/')));
    let (status, said) = Process::run(command.args(urls), LONG).unwrap();
    assert!(status.success() && said.starts_with("passed: "), "{said}");
    assert!(!said.contains(" 0 parts"), "{said}");
}

#[test]
fn ffmpeg_plays_channels_by_dash() {
    require_programs!("ffmpeg");
    let live = live(&[]);
    let path = "live/cam/dash/manifest.mpd";
    // With one segment listed, ffmpeg 5.1 asks for the next before it is there.
    let give_up = Instant::now() + LONG;
    while playlist(&live.site, "/live/cam/hls/video/index.m3u8")
        .matches("#EXTINF")
        .count()
        < 5
    {
        assert!(Instant::now() < give_up, "{}", live.site.server.log_tail());
        thread::sleep(Duration::from_millis(200));
    }
    let manifest = playlist(&live.site, &format!("/{path}"));
    assert!(
        manifest.contains("Content-Type: application/dash+xml\r\n"),
        "{manifest}"
    );
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i", &live.site.url(path)]);
    command.args(["-t", "8", "-f", "framecrc", "-"]);
    let (status, said) = Process::run(&mut command, 3 * LONG).unwrap();
    let frames = |track: &str| said.lines().filter(|it| it.starts_with(track)).count();
    assert!(
        status.success() && frames("0,") >= 190 && frames("1,") >= 350,
        "{said}"
    );
    let transport = get(&live.site, "/live/ts/dash/manifest.mpd");
    assert!(transport.starts_with("HTTP/1.1 404"), "{transport}");
    assert!(transport.contains("hls/index.m3u8"), "{transport}");
    let time = get(&live.site, "/live/cam/dash/time.txt");
    assert!(time.contains("Cache-Control: no-store\r\n"), "{time}");
    let now = time.rsplit("\r\n").next().unwrap();
    assert!(now.len() == 24 && now.ends_with('Z'), "{time}");
}

/// At the end of what is listed ffmpeg waits for what comes next: it plays nothing twice, and
/// leaves nothing out.
#[test]
fn ffmpeg_plays_each_segment_of_a_manifest_once() {
    require_programs!("ffmpeg", "ffprobe");
    let live = live(&[]);
    let segments = || playlist(&live.site, "/live/cam/hls/video/index.m3u8");
    let give_up = Instant::now() + LONG;
    while segments().matches("#EXTINF").count() < 2 {
        assert!(Instant::now() < give_up, "{}", live.site.server.log_tail());
        thread::sleep(Duration::from_millis(100));
    }
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-read_intervals", "%+12"]);
    command.args(["-show_entries", "packet=stream_index,pts_time"]);
    command.args(["-of", "csv=p=0"]);
    command.arg(live.site.url("live/cam/dash/manifest.mpd"));
    let (status, said) = Process::run(&mut command, 3 * LONG).unwrap();
    assert!(status.success(), "{said}");
    for stream in ["0", "1"] {
        let rows = said.lines().filter_map(|it| it.split_once(','));
        let own = rows.filter(|it| it.0 == stream);
        let times = own.filter_map(|it| it.1.split(',').next()?.trim().parse().ok());
        let times: Vec<f64> = times.collect();
        let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let is_even = steps.clone().all(|step| step > 0.0 && step < 0.5);
        let lasts = steps.sum::<f64>();
        assert!(is_even && lasts > 10.0, "{stream}: {lasts} s: {times:?}");
    }
}

/// A publisher that comes back begins a period, and what was listed before stays as it was.
#[test]
fn a_publisher_that_comes_back_begins_a_period() {
    require_programs!("ffmpeg");
    let mut live = live(&[]);
    let path = "/live/cam/dash/manifest.mpd";
    let before = playlist(&live.site, path);
    assert_eq!(before.matches("<Period ").count(), 1, "{before}");
    let period = |text: &str| {
        let rest = text.split_once("<Period ").unwrap().1;
        rest.split_once('>').unwrap().0.to_owned()
    };
    let published = format!("rtsp://{}/live/cam", live.site.rtsp);
    live.senders[0].signal(Signal::TERM).unwrap();
    live.senders[0].wait(LONG).unwrap();
    let again = || send(&["-tune", "zerolatency"], "rtsp", &published);
    live.senders[0] = again();
    let give_up = Instant::now() + LONG;
    let after = loop {
        let after = get(&live.site, path);
        if after.matches("<Period ").count() == 2 {
            break after;
        }
        // It may have come before the one before had gone.
        if !live.senders[0].is_running().unwrap() {
            live.senders[0] = again();
        }
        assert!(
            Instant::now() < give_up,
            "{after}\n{}",
            live.site.server.log_tail()
        );
        thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(period(&before), period(&after));
    assert_eq!(after.matches("<AdaptationSet ").count(), 4, "{after}");
}

#[test]
fn reloads_wait_and_are_bounded() {
    require_programs!("ffmpeg");
    let live = live(&["--hls-waiting-max=5"]);
    let site = &live.site;
    let path = "/live/cam/hls/video/index.m3u8";
    let now = newest(&playlist(site, path));
    // One that waits gets what it waits for.
    let later = get(site, &format!("{path}?_HLS_msn={now}"));
    assert!(later.starts_with("HTTP/1.1 200"), "{later}");
    assert!(later.contains("Cache-Control: max-age="), "{later}");
    assert!(later.contains(&format!("/{now}.m4s\n")), "{later}");
    for query in [
        "_HLS_msn=18446744073709551616",
        "_HLS_part=1",
        "_HLS_msn=1x",
    ] {
        let answer = get(site, &format!("{path}?{query}"));
        assert!(answer.starts_with("HTTP/1.1 400"), "{query}: {answer}");
    }
    // As many as may wait, of whom nobody reads; one more is told so.
    let next = newest(&get(site, path)) + 1;
    let next = format!("{path}?_HLS_msn={next}");
    let waiting: Vec<_> = (0..5).map(|_| ask(site, &next)).collect();
    let give_up = Instant::now() + LONG;
    let one_more = loop {
        let answer = get(site, &next);
        if answer.starts_with("HTTP/1.1 503") || Instant::now() > give_up {
            break answer;
        }
    };
    assert!(one_more.contains("too many wait"), "{one_more}");
    for stream in waiting {
        assert!(told(stream).starts_with("HTTP/1.1 200"));
    }
    let answer = get(site, path);
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "there is room again: {answer}"
    );
}

/// A number of the server's metrics.
fn metric(site: &Site, name: &str) -> u64 {
    let line = site.server.wait_for_line("metrics ", LONG).unwrap();
    let address = line.trim_end_matches("/metrics").rsplit("//").next();
    let address = address.unwrap().parse().unwrap();
    let text = Raw::connect(address).request("GET", "/metrics", "").text();
    let begin = format!("{name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&begin));
    value
        .unwrap_or_else(|| panic!("{name}: {text}"))
        .parse()
        .unwrap()
}

/// Waits until a number of the metrics is this.
fn wait_for_metric(site: &Site, name: &str, expected: u64) {
    let give_up = Instant::now() + LONG;
    while metric(site, name) != expected {
        let now = metric(site, name);
        assert!(Instant::now() < give_up, "{name} is {now}, not {expected}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Those who wait for a segment that is not to come: the channel's publisher stands still.
#[test]
fn who_leaves_while_it_waits_gives_its_place_back() {
    require_programs!("ffmpeg", "curl");
    let options = ["--hls-waiting-max=3", "--metrics=127.0.0.1:0"];
    let tls = ["--https=127.0.0.1:0", "--tls=self-signed"];
    let live = live(&[&options[..], &tls].concat());
    let site = &live.site;
    let path = "/live/cam/hls/video/index.m3u8";
    playlist(site, path);
    live.senders
        .iter()
        .for_each(|it| it.signal(Signal::STOP).unwrap());
    // What was sent before is cut, however late a thread is.
    let (mut before, mut looks) = (0, 0);
    while looks < 3 {
        thread::sleep(Duration::from_millis(500));
        let now = newest(&get(site, path));
        looks = if now == before { looks + 1 } else { 1 };
        before = now;
    }
    let next = format!("{path}?_HLS_msn={}", before + 1);
    let https = site
        .server
        .wait_for_line("listening  https://", LONG)
        .unwrap();
    let https = https
        .rsplit("//")
        .next()
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let by_curl = |version: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sSk", version, "-o", "/dev/null"]);
        Process::start(curl.arg(format!("https://{https}{next}"))).unwrap()
    };
    let waits = metric(site, "onrush_hls_waits_total");
    for round in 1..=2 {
        let plain = ask(site, &next);
        // It says more, which is kept for later.
        (&plain).write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let others = [by_curl("--http1.1"), by_curl("--http2")];
        wait_for_metric(site, "onrush_hls_waiting", 3);
        assert!(get(site, &next).contains("too many wait"));
        drop(plain);
        drop(others);
        wait_for_metric(site, "onrush_hls_waiting", 0);
        assert_eq!(metric(site, "onrush_hls_waits_left_total"), 3 * round);
        assert_eq!(metric(site, "onrush_hls_waits_refused_total"), round);
    }
    assert_eq!(metric(site, "onrush_hls_waits_total"), waits + 6);
    assert_eq!(metric(site, "onrush_hls_channels"), 1);
    let made = [
        "segments_total",
        "parts_total",
        "made_bytes_total",
        "kept_bytes",
    ];
    for name in made {
        assert!(metric(site, &format!("onrush_hls_{name}")) > 0, "{name}");
    }
    live.senders
        .iter()
        .for_each(|it| it.signal(Signal::CONT).unwrap());
    let later = get(site, &next);
    assert!(later.starts_with("HTTP/1.1 200"), "{later}");
}

/// A file system in memory that is full soon; not there any more once dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(size: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        assert!(mount.arg(folder.path()).status().unwrap().success());
        Self(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(
            Command::new("umount")
                .arg("--lazy")
                .arg(self.0.path())
                .status(),
        );
    }
}

/// What memory is too small for is sent from the disk, byte for byte the same; when the disk is
/// full the window gets shorter, and all else goes on.
#[test]
fn a_window_goes_on_on_a_disk_until_it_is_full() {
    require_root!();
    require_programs!("ffmpeg", "mount");
    let disk = SmallDisk::new("4M");
    let port = free_udp_port();
    let store = format!("--hls-store={}", disk.0.path().display());
    let channel = format!("--channel=ts=127.0.0.1:{port}");
    let options = [
        "--hls-max=8MiB",
        "--hls-stored-max=64MiB",
        "--hls-window=1h",
    ];
    let more = ["--metrics=127.0.0.1:0", &store, &channel];
    let site = Site::new(&[&options[..], &more].concat(), |_| {});
    // Empty packets make it 4 Mbit/s.
    let to = format!("udp://127.0.0.1:{port}?pkt_size=1316");
    let _sender = send(&["-muxrate", "4M"], "mpegts", &to);
    let path = "/live/ts/hls/stream/index.m3u8";
    let first_of = |text: &str| {
        let name = text.lines().find(|line| line.ends_with(".ts")).unwrap();
        format!("/live/ts/hls/stream/{name}")
    };
    let first = first_of(&playlist(&site, path));
    let body = |path: &str| {
        let answer = site.get(path, "");
        assert_eq!(answer.status, 200, "{path}\n{}", site.server.log_tail());
        answer.body
    };
    let in_memory = body(&first);
    let give_up = Instant::now() + 2 * LONG;
    // It is there still, and from now on it is on the disk.
    while metric(&site, "onrush_hls_stores_total") == 0 {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
        get(&site, path);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(first_of(&get(&site, path)), first);
    assert!(body(&first) == in_memory, "other bytes from the disk");
    let part = site.get(&first, "Range: bytes=1000-2999\r\n");
    assert_eq!((part.status, &part.body[..]), (206, &in_memory[1000..3000]));
    assert_eq!(
        fs::read_dir(disk.0.path()).unwrap().count(),
        0,
        "no file has a name"
    );

    // The disk is full: the first one goes, and what is listed is there.
    while first_of(&get(&site, path)) == first {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
        thread::sleep(Duration::from_millis(100));
    }
    assert!(metric(&site, "onrush_hls_stores_failed_total") > 0);
    let told = site
        .server
        .wait_for_line("a segment cannot be stored: ", LONG);
    assert!(told.is_some_and(|line| line.contains("gets shorter")));
    let now = get(&site, path);
    assert!(!body(&first_of(&now)).is_empty());
    let next = format!("{path}?_HLS_msn={}", newest(&now) + 1);
    assert!(get(&site, &next).starts_with("HTTP/1.1 200"));
}

/// A disk that gives up while it has segments: only answers that need it are cut off, and seen to
/// be.
#[test]
fn a_store_that_cannot_be_read_cuts_off_nothing_else() {
    require_root!();
    require_programs!("ffmpeg", "mount", "losetup", "mkfs.ext4");
    let disk = StoreDisk::new();
    let port = free_udp_port();
    let store = format!("--hls-store={}", disk.mounted.path().display());
    let channel = format!("--channel=ts=127.0.0.1:{port}");
    let options = ["--hls-max=8MiB", "--hls-window=1h", "--metrics=127.0.0.1:0"];
    let site = Site::new(&[&options[..], &[&*store, &channel]].concat(), |_| {});
    let to = format!("udp://127.0.0.1:{port}?pkt_size=1316");
    let sender = send(&["-muxrate", "4M"], "mpegts", &to);
    let path = "/live/ts/hls/stream/index.m3u8";
    let listed = || {
        let text = playlist(&site, path);
        let names = text.lines().filter(|line| line.ends_with(".ts"));
        let paths = names.map(|name| format!("/live/ts/hls/stream/{name}"));
        paths.collect::<Vec<_>>()
    };
    let first = listed()[0].clone();
    let expected = site.get(&first, "").body;
    let give_up = Instant::now() + 2 * LONG;
    while metric(&site, "onrush_hls_stores_total") == 0 {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
        get(&site, path);
        thread::sleep(Duration::from_millis(100));
    }

    sender.signal(Signal::STOP).unwrap();
    disk.fail(&site.server);
    // What is not on its way to the disk any more leaves memory when it is asked to.
    let cut = loop {
        disk.forget(&site.server);
        let mut raw = site.connect();
        raw.send(format!(
            "GET {first} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        ));
        while raw.receive() > 0 {}
        let head = raw.received.windows(4).position(|it| it == b"\r\n\r\n");
        let Some(head) = head else {
            break Vec::new();
        };
        let body = raw.received.split_off(head + 4);
        if body.len() < expected.len() {
            break body;
        }
        assert!(body == expected, "other bytes");
        assert!(Instant::now() < give_up, "it is in memory still");
        thread::sleep(Duration::from_millis(100));
    };
    assert!(cut == expected[..cut.len()], "other bytes");
    let told = site
        .server
        .wait_for_line("cannot read the file at byte", LONG);
    assert!(told.is_some_and(|line| line.contains("os error 5")));

    let newest_segment = listed().pop().unwrap();
    assert_eq!(site.get(&newest_segment, "").status, 200);
    sender.signal(Signal::CONT).unwrap();
    let next = format!("{path}?_HLS_msn={}", newest(&playlist(&site, path)) + 1);
    assert!(get(&site, &next).starts_with("HTTP/1.1 200"));
}

/// A file system on a disk that ends when it is told to; not there any more once dropped.
struct StoreDisk {
    mounted: tempfile::TempDir,
    disk: FailingDisk,
}

impl StoreDisk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-b", "4096", "-O", "^has_journal"]);
        assert!(make.arg(&image).arg("48M").status().unwrap().success());
        let disk = FailingDisk::writable(&fs::read(&image).unwrap()).unwrap();
        let mounted = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-o", "noatime"]).arg(disk.path());
        assert!(mount.arg(mounted.path()).status().unwrap().success());
        Self { mounted, disk }
    }

    /// The files that a server has there, which have no names.
    fn files(&self, server: &Process) -> Vec<fs::File> {
        let open = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
        let open = open.map(|it| it.unwrap().path());
        let of_it = open.filter(|it| {
            let file = fs::read_link(it);
            file.is_ok_and(|file| {
                file.starts_with(self.mounted.path()) && file != *self.mounted.path()
            })
        });
        of_it.filter_map(|it| fs::File::open(it).ok()).collect()
    }

    /// Nothing of it can be read or written from now on.
    fn fail(&self, server: &Process) {
        for file in self.files(server) {
            file.sync_all().unwrap();
        }
        self.disk.end_at(4096).unwrap();
    }

    /// What of it is in memory is so no longer, if it needs not be written.
    fn forget(&self, server: &Process) {
        for file in self.files(server) {
            advise_done(&file, 0, 0);
        }
    }
}

impl Drop for StoreDisk {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        drop(umount.arg("--lazy").arg(self.mounted.path()).status());
    }
}

#[test]
fn a_store_that_cannot_be_is_told_at_the_start() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(download_site::ONRUSH);
    command.arg("serve").arg(folder.path());
    command.args(["--rtsp=127.0.0.1:0", "--http=127.0.0.1:0", "--state=off"]);
    command.arg(format!("--hls-store={}", file.path().display()));
    let (status, said) = Process::run(&mut command, LONG).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(
        said.contains("cannot keep segments in ")
            && said.contains("; name another with --hls-store"),
        "{said}"
    );
}

#[test]
fn a_channel_that_nobody_asks_for_is_not_cut() {
    require_programs!("ffmpeg");
    let live = live(&["--hls-idle-time-max=1s"]);
    playlist(&live.site, "/live/ts/hls/index.m3u8");
    let log = |what: &str| live.site.server.wait_for_line(what, LONG);
    assert!(log("live/ts: segments are made of it no longer").is_some());
    // What comes under these URLs later is not kept from players by caches.
    for path in [
        "/live/none/hls/index.m3u8",
        "/live/ts/hls/stream/0000000000000000/1.ts",
    ] {
        let none = get(&live.site, path);
        assert!(none.starts_with("HTTP/1.1 404"), "{none}");
        assert!(none.contains("\r\nCache-Control: no-store\r\n"), "{none}");
    }
}

#[test]
fn channels_of_av1_and_vp9_play_in_chromium() {
    require_programs!(
        "ffmpeg",
        "gst-launch-1.0",
        "node",
        "chromium-headless-shell"
    );
    if !Path::new(SCRIPTS)
        .join("node_modules/puppeteer-core")
        .exists()
    {
        return skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
    }
    let films = av1_film();
    let (site, _senders) = others(&films);
    for name in ["av1", "vp9", "gst"] {
        playlist(&site, &format!("/live/{name}/hls/index.m3u8"));
    }
    let mut command = Command::new("node");
    command.arg(format!("{SCRIPTS}/live.mjs"));
    command.args([&site.url(""), "chromium", "av1", "vp9", "gst"]);
    let (status, said) = Process::run(&mut command, Duration::from_secs(400)).unwrap();
    assert!(status.success(), "{said}\n{}", site.server.log_tail());
    assert!(said.contains("passed: our page, gst"), "{said}");
}

#[test]
fn channels_play_in_chromium_with_low_latency() {
    require_programs!("ffmpeg", "node", "chromium-headless-shell");
    if !Path::new(SCRIPTS)
        .join("node_modules/puppeteer-core")
        .exists()
    {
        return skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
    }
    let live = live(&[]);
    playlist(&live.site, "/live/cam/hls/index.m3u8");
    let mut command = Command::new("node");
    command.arg(format!("{SCRIPTS}/live.mjs"));
    command.args([&live.site.url(""), "chromium"]);
    let (status, said) = Process::run(&mut command, Duration::from_secs(400)).unwrap();
    assert!(status.success(), "{said}\n{}", live.site.server.log_tail());
}
