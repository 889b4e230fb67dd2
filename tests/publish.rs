//! Publishing by ANNOUNCE and RECORD: other people's publishers and viewers, and RTSP by the
//! letter.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use onrush_testkit::media::age;
use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root};
use onrush_wire::auth::{Algorithm, ha1};
use onrush_wire::rtp::Header;

use common::{LONG, ONRUSH, Site};
use publish_site::{Eyes, Hand, SDP, channel, serve};

mod common;
mod publish_site;

/// Where a publisher needs no user.
const LOOPBACK: &str = "rtsp://127.0.0.1:8554/live/cam";

/// A moving picture and a tone by ffmpeg, from the server's own machine.
fn ffmpeg(site: &Site, transport: &str, codec: &[&str]) -> Process {
    publisher(&site.testbed.snd, codec, transport, LOOPBACK)
}

fn publisher(side: &Netns, codec: &[&str], transport: &str, url: &str) -> Process {
    let mut command = side.command("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-re", "-f", "lavfi"]);
    command.args([
        "-i",
        "testsrc=size=320x240:rate=25",
        "-f",
        "lavfi",
        "-i",
        "sine",
    ]);
    command.args(["-pix_fmt", "yuv420p"]).args(codec);
    command.args(["-f", "rtsp", "-rtsp_transport", transport, url]);
    Process::start(&mut command).unwrap()
}

/// The same by GStreamer, whose pictures these elements encode.
fn gstreamer(site: &Site, transport: &str, encoder: &[&str]) -> Process {
    let mut command = site.testbed.snd.command("gst-launch-1.0");
    command.args(["-q", "rtspclientsink", "name=out", "latency=0"]);
    command.args([
        &format!("location={LOOPBACK}"),
        &format!("protocols={transport}"),
    ]);
    command.args([
        "videotestsrc",
        "is-live=true",
        "!",
        "video/x-raw,format=I420,width=320,height=240",
        "!",
    ]);
    command.args(encoder).args(["!", "out."]);
    command.args([
        "audiotestsrc",
        "is-live=true",
        "!",
        "audioconvert",
        "!",
        "opusenc",
        "!",
        "out.",
    ]);
    Process::start(&mut command).unwrap()
}

const H264: &[&str] = &[
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-tune",
    "zerolatency",
    "-g",
    "50",
    "-c:a",
    "aac",
];

/// Shows so many pictures of the channel by ffmpeg; what it complains about.
fn watch(site: &Site, transport: &str, pictures: u32) -> Command {
    let mut command = site.player("ffmpeg");
    command.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-rtsp_transport",
        transport,
    ]);
    command.args([
        "-i",
        &site.url("live/cam"),
        "-frames:v",
        &pictures.to_string(),
    ]);
    command.args(["-f", "null", "-"]);
    command
}

/// GStreamer shows so many pictures.
fn watch_by_gstreamer(site: &Site, protocols: &str) -> Command {
    let mut command = site.player("gst-launch-1.0");
    let location = format!("location={}", site.url("live/cam"));
    command.args([
        "-q",
        "rtspsrc",
        &location,
        &format!("protocols={protocols}"),
        "latency=200",
    ]);
    command.args(["name=in", "in.", "!", "application/x-rtp,media=video", "!"]);
    command.args(["rtph264depay", "!", "h264parse", "!", "openh264dec", "!"]);
    command.args(["identity", "error-after=60", "!", "fakesink", "sync=false"]);
    command.args(["in.", "!", "application/x-rtp,media=audio", "!"]);
    command.args(["fakesink", "async=false", "sync=false"]);
    command
}

fn assert_shows(site: &Site, what: &str, mut command: Command) {
    let (status, said) = Process::run(&mut command, LONG).unwrap();
    // GStreamer's `identity` ends by an error that it was asked for.
    let is_done = status.success() || said.contains("Failed after iterations as requested");
    let log = site.server.log_tail();
    assert!(is_done, "{what}: {said}\n{log}");
    for complaint in ["missed", "concealing", "Invalid data", "non-existing PPS"] {
        assert!(!said.contains(complaint), "{what}: {said}\n{log}");
    }
}

#[test]
fn publishers_reach_viewers_of_each_transport() {
    require_root!();
    require_programs!("ffmpeg", "gst-launch-1.0", "mpv", "curl");
    let site = serve(&[]);
    for publisher in ["ffmpeg udp", "ffmpeg tcp", "gst udp", "gst tcp"] {
        let (program, transport) = publisher.split_once(' ').unwrap();
        let mut source = match program {
            "ffmpeg" => ffmpeg(&site, transport, H264),
            _ => gstreamer(
                &site,
                transport,
                &["openh264enc", "gop-size=50", "!", "h264parse"],
            ),
        };
        channel(&site, publisher, |it| {
            it["received"]["rtp"].as_u64() > Some(100)
        });
        for transport in ["udp", "tcp", "http"] {
            let what = format!("{publisher}, ffmpeg {transport}");
            assert_shows(&site, &what, watch(&site, transport, 60));
        }
        let what = format!("{publisher}, GStreamer");
        assert_shows(&site, &what, watch_by_gstreamer(&site, "udp"));
        let mut mpv = site.player("mpv");
        mpv.args([
            "--no-config",
            "--vo=null",
            "--ao=null",
            "--no-terminal",
            "--length=2",
        ]);
        mpv.args(["--rtsp-transport=tcp", &site.url("live/cam")]);
        assert_shows(&site, &format!("{publisher}, mpv"), mpv);
        let told = channel(&site, publisher, |it| it["players"] == 0);
        let received = &told["received"];
        for count in ["missing", "unannounced", "foreign", "strays", "overflows"] {
            assert_eq!(received[count], 0, "{publisher} {count}: {told:#}");
        }
        source.interrupt(LONG).unwrap();
        channel(&site, "the end", serde_json::Value::is_null);
    }
    let log = site.stop();
    assert!(log.contains("is no longer published by"), "{log}");
}

#[test]
fn other_codecs_are_passed_through() {
    require_root!();
    require_programs!("ffmpeg", "ffprobe", "curl");
    let site = serve(&[]);
    for (name, codec) in [
        (
            "hevc",
            &["-c:v", "libx265", "-preset", "ultrafast", "-g", "25", "-an"][..],
        ),
        (
            "vp8",
            &[
                "-c:v",
                "libvpx",
                "-deadline",
                "realtime",
                "-g",
                "25",
                "-c:a",
                "libopus",
            ],
        ),
        (
            "vp9",
            &[
                "-c:v",
                "libvpx-vp9",
                "-deadline",
                "realtime",
                "-cpu-used",
                "8",
                "-g",
                "25",
                "-strict",
                "experimental",
                "-an",
            ],
        ),
        (
            "mjpeg",
            &[
                "-c:v",
                "mjpeg",
                "-pix_fmt",
                "yuvj420p",
                "-huffman",
                "default",
                "-force_duplicated_matrix",
                "1",
                "-c:a",
                "pcm_mulaw",
                "-ar",
                "8000",
            ],
        ),
    ] {
        let mut source = ffmpeg(&site, "tcp", codec);
        channel(&site, name, |it| it["received"]["rtp"].as_u64() > Some(30));
        for transport in ["tcp", "udp", "http"] {
            let what = format!("{name} by {transport}");
            assert_shows(&site, &what, watch(&site, transport, 30));
        }
        source.interrupt(LONG).unwrap();
        channel(&site, "the end", serde_json::Value::is_null);
    }
    site.stop();
}

#[test]
fn other_codecs_of_gstreamer_are_passed_through() {
    require_root!();
    require_programs!("gst-launch-1.0", "ffmpeg", "curl");
    let site = serve(&[]);
    // Beside a payloader that names profiles, encoders of libvpx choose none by themselves.
    for (transport, encoder) in [
        (
            "udp",
            "x265enc speed-preset=ultrafast key-int-max=25 ! h265parse",
        ),
        (
            "tcp",
            "vp8enc deadline=1 keyframe-max-dist=25 ! video/x-vp8,profile=(string)0",
        ),
        (
            "udp",
            "vp9enc deadline=1 cpu-used=8 keyframe-max-dist=25 ! video/x-vp9,profile=(string)0",
        ),
    ] {
        let encoder: Vec<_> = encoder.split(' ').collect();
        let what = encoder[0];
        let mut source = gstreamer(&site, transport, &encoder);
        channel(&site, what, |it| it["received"]["rtp"].as_u64() > Some(100));
        // Each comes late, and has nothing to complain about.
        for transport in ["tcp", "udp"] {
            assert_shows(
                &site,
                &format!("{what} by {transport}"),
                watch(&site, transport, 30),
            );
        }
        source.interrupt(LONG).unwrap();
        channel(&site, "the end", serde_json::Value::is_null);
    }
    site.stop();
}

#[test]
fn a_transport_stream_is_published() {
    require_root!();
    require_programs!("gst-launch-1.0", "ffmpeg", "curl");
    let site = serve(&[]);
    for transport in ["udp", "tcp"] {
        let mut command = site.testbed.snd.command("gst-launch-1.0");
        command.args(["-q", "mpegtsmux", "name=mux", "alignment=7", "!"]);
        let (location, protocols) = (
            format!("location={LOOPBACK}"),
            format!("protocols={transport}"),
        );
        command.args(["rtspclientsink", "latency=0", &location, &protocols]);
        let pictures = "videotestsrc is-live=true ! \
            video/x-raw,format=I420,width=320,height=240 ! \
            openh264enc gop-size=50 ! h264parse ! mux.";
        command.args(pictures.split_whitespace());
        let mut source = Process::start(&mut command).unwrap();
        channel(&site, transport, |it| {
            it["received"]["rtp"].as_u64() > Some(200)
        });
        // All come late, and begin with a picture that is whole; where it lies between its program
        // tables, is another place each time.
        for viewer in ["tcp", "udp"].repeat(3) {
            let what = format!("a transport stream of {transport} by {viewer}");
            assert_shows(&site, &what, watch(&site, viewer, 30));
        }
        source.interrupt(LONG).unwrap();
        channel(&site, "the end", serde_json::Value::is_null);
    }
    site.stop();
}

/// AV1 by RTP is more than ffmpeg and GStreamer of Debian 12 know: the server itself sends a film
/// of it, and pulls that.
#[test]
fn late_viewers_of_av1_start_at_a_sync_sample() {
    require_root!();
    require_programs!("ffmpeg");
    let site = serve(&["--channel=cam=rtsp://127.0.0.1:8554/av1.mp4", "--on-demand"]);
    let film = site.path("av1.mp4");
    let mut command = Command::new("ffmpeg");
    command.args([
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc=size=128x96:rate=25",
        "-t",
        "30",
    ]);
    command.args([
        "-pix_fmt",
        "yuv420p",
        "-c:v",
        "libaom-av1",
        "-usage",
        "realtime",
    ]);
    command.args(["-cpu-used", "8", "-g", "25"]).arg(&film);
    let (status, said) = Process::run(&mut command, LONG).unwrap();
    assert!(status.success(), "{said}");
    age(&film).unwrap();
    let begins = |(header, aggregation): (Header, u8)| {
        assert_eq!(aggregation & 0x08, 0x08, "a new coded video sequence");
        header
    };
    let mut first = Eyes::set_up(&site);
    first.play();
    let mut last = begins(first.next());
    for _ in 0..2 {
        // Between two sync samples, of which one is long ago.
        let later = last.timestamp.wrapping_add(90_000 / 25 * 35);
        while last.timestamp.wrapping_sub(later) > 1 << 31 {
            let (next, _) = first.next();
            assert_eq!(next.sequence, last.sequence.wrapping_add(1));
            last = next;
        }
        let mut late = Eyes::set_up(&site);
        late.play();
        let start = begins(late.next());
        assert_eq!(
            (start.ssrc, start.payload_type),
            (last.ssrc, last.payload_type)
        );
        let from_start = start.timestamp.wrapping_sub(later);
        assert!(
            from_start.wrapping_add(90_000 * 2) < 90_000 * 20,
            "{start:?} {later}"
        );
    }
    site.stop();
}

// SPECIFICATION.md: 7, 34
#[test]
fn a_viewer_starts_at_the_last_sync_sample_without_a_gap() {
    require_root!();
    require_programs!("curl");
    let site = serve(&[]);
    let mut hand = Hand::publish(&site, SDP);
    for picture in 0..10 {
        hand.picture(picture * 3600, picture % 4 == 0);
    }
    channel(&site, "pictures", |it| it["received"]["rtp"] == 10);
    let mut eyes = Eyes::set_up(&site);
    let answer = eyes.play();
    let info = answer.header("RTP-Info").expect("it is known").to_owned();
    let (first, nal) = eyes.next();
    // The third sync sample is the ninth picture.
    assert_eq!((nal, first.sequence, first.timestamp), (0x65, 8, 8 * 3600));
    assert!(info.contains("seq=8;rtptime=28800"), "{info}");
    for picture in 10..20 {
        hand.picture(picture * 3600, false);
    }
    for sequence in 9..20 {
        assert_eq!(eyes.next().0.sequence, sequence);
    }
    // The publisher goes without a word, and comes back with other numbers and another SSRC.
    drop(hand);
    let mut hand = Hand::publish(&site, SDP);
    hand.sequence = 40_000;
    let packet = hand.packet(8, 96, 5, 0x65);
    hand.client.send_frame(0, &packet).unwrap();
    let (next, _) = eyes.next();
    assert_eq!((next.sequence, next.ssrc), (20, first.ssrc));
    assert!(
        next.timestamp.wrapping_sub(19 * 3600) < 90_000 * 120,
        "time has passed"
    );
    // One with other tracks ends it.
    drop(hand);
    let other = SDP.replace("opus/48000/2", "L16/48000/2");
    let _hand = Hand::publish(&site, &other);
    let give_up = Instant::now() + LONG;
    while eyes
        .client
        .request("OPTIONS", &eyes.url.clone(), &[])
        .unwrap()
        .status
        != 454
    {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
    }
    let log = site.stop();
    assert!(log.contains("with other tracks"), "{log}");
}

#[test]
fn a_publisher_that_misbehaves_is_answered_and_counted() {
    require_root!();
    require_programs!("curl");
    let site = serve(&[]);
    let mut hand = Hand::connect(&site, false);
    assert_eq!(hand.ask("RECORD"), 455, "before ANNOUNCE");
    assert_eq!(hand.announce("nonsense").status, 400);
    assert_eq!(
        hand.announce(&SDP.replace("opus/48000/2", "opus")).status,
        400
    );
    let many = "m=audio 0 RTP/AVP 0\r\na=control:x\r\n".repeat(9);
    assert_eq!(
        hand.announce(&format!(
            "v=0\r\no=- 0 0 IN IP4 1.1.1.1\r\ns=-\r\nt=0 0\r\n{many}"
        ))
        .status,
        400
    );
    drop(hand);
    let mut hand = Hand::publish(&site, SDP);
    let mut second = Hand::connect(&site, false);
    let refused = second.announce(SDP);
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(hand.announce(SDP).status, 455, "twice");
    hand.picture(0, true);
    // Another's SSRC, another payload type, channels that nobody set up, no RTP at all.
    let foreign = hand.packet(9, 96, 0, 0x65);
    hand.client.send_frame(0, &foreign).unwrap();
    let other = hand.packet(7, 99, 0, 0x65);
    hand.client.send_frame(0, &other).unwrap();
    hand.client.send_frame(0, b"").unwrap();
    hand.client.send_frame(77, &foreign).unwrap();
    hand.client.send_frame(1, b"no report").unwrap();
    hand.client.send_frame(0, &vec![0; 65_535]).unwrap();
    let told = channel(&site, "counts", |it| it["received"]["unannounced"] == 3);
    let received = &told["received"];
    let counts = ["rtp", "foreign", "strays"].map(|name| received[name].as_u64());
    assert_eq!(counts, [Some(1); 3], "{told:#}");
    assert_eq!(hand.ask("TEARDOWN"), 200);
    assert_eq!(second.announce(SDP).status, 200, "the name is free again");
    drop(second);
    channel(&site, "nobody", serde_json::Value::is_null);
    site.stop();
}

// SPECIFICATION.md: 46
#[test]
fn only_who_may_publishes_from_elsewhere() {
    require_root!();
    let site = serve(&[]);
    let refused = Hand::connect(&site, true).announce(SDP);
    assert_eq!(refused.status, 403, "{refused:?}");
    let log = site.stop();
    assert!(log.contains("may not publish \"live/cam\": 403"), "{log}");
    let users = tempfile::NamedTempFile::new().unwrap();
    let hash = ha1(Algorithm::Md5, "anna", "onrush", "secret");
    let file = "group editors play,publish /live/**\ngroup everybody play /**\n";
    fs::write(
        users.path(),
        format!("{file}user anna editors md5={hash}\n"),
    )
    .unwrap();
    let site = serve(&[&format!("--users={}", users.path().display())]);
    let refused = Hand::connect(&site, true).announce(SDP);
    assert_eq!(refused.status, 401, "{refused:?}");
    let mut wrong = publisher(
        &site.testbed.rcv,
        H264,
        "tcp",
        "rtsp://anna:x@10.77.0.1:8554/live/cam",
    );
    let give_up = Instant::now() + LONG;
    while wrong.is_running().unwrap() {
        assert!(Instant::now() < give_up, "{}", wrong.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let url = "rtsp://anna:secret@10.77.0.1:8554/live/cam";
    let _source = publisher(&site.testbed.rcv, H264, "tcp", url);
    channel(&site, "the channel", |it| {
        it["received"]["rtp"].as_u64() > Some(10)
    });
    let log = site.stop();
    assert!(log.contains("may not publish \"live/cam\": 401"), "{log}");
    assert!(!log.contains("secret"), "{log}");
}

// SPECIFICATION.md: 34
#[test]
fn a_channel_is_pulled_and_comes_back() {
    require_root!();
    require_programs!("ffmpeg", "curl");
    let users = tempfile::NamedTempFile::new().unwrap();
    let hash = ha1(Algorithm::Md5, "anna", "onrush", "secret");
    let file = "group editors play,publish /**\n";
    fs::write(
        users.path(),
        format!("{file}user anna editors md5={hash}\n"),
    )
    .unwrap();
    let camera = serve(&[&format!("--users={}", users.path().display())]);
    let url = "rtsp://anna:secret@127.0.0.1:8554/live/cam";
    let source = publisher(&camera.testbed.snd, H264, "tcp", url);
    channel(&camera, "the camera", |it| {
        it["received"]["rtp"].as_u64() > Some(10)
    });
    // A second server, on the receiving side, which asks the first for its channel.
    let media = tempfile::tempdir().unwrap();
    let start = |more: &[&str]| {
        let mut command = camera.testbed.rcv.command(ONRUSH);
        command.args(["serve", media.path().to_str().unwrap(), "--state=off"]);
        command.args(["--rtsp=127.0.0.1:8554", "--metrics=127.0.0.1:9554"]);
        command.args(["--channel=far=rtsp://anna:secret@10.77.0.1:8554/live/cam"]);
        let server = Process::start(command.args(more)).unwrap();
        let ready = server.wait_for_line("rtsp://", LONG);
        assert!(ready.is_some(), "{}", server.log_tail());
        server
    };
    let shows = |server: &Process, transport: &str| {
        let mut command = camera.testbed.rcv.command("ffmpeg");
        command.args([
            "-hide_banner",
            "-loglevel",
            "error",
            "-rtsp_transport",
            transport,
        ]);
        command.args(["-i", "rtsp://127.0.0.1:8554/live/far", "-frames:v", "40"]);
        let (status, said) = Process::run(command.args(["-f", "null", "-"]), LONG).unwrap();
        assert!(
            status.success(),
            "{transport}: {said}\n{}",
            server.log_tail()
        );
    };
    let mut server = start(&["--on-demand"]);
    shows(&server, "tcp");
    assert!(
        server.wait_for_line("nobody watches", LONG).is_some(),
        "{}",
        server.log_tail()
    );
    shows(&server, "udp");
    server.interrupt(LONG).unwrap();
    let mut server = start(&[]);
    assert!(
        server.wait_for_line("is pulled from", LONG).is_some(),
        "{}",
        server.log_tail()
    );
    drop(source);
    assert!(
        server.wait_for_line("tried again", LONG).is_some(),
        "{}",
        server.log_tail()
    );
    let _source = publisher(&camera.testbed.snd, H264, "udp", url);
    shows(&server, "tcp");
    server.interrupt(LONG).unwrap();
    let log = server.log();
    assert!(!log.contains("secret") && !log.contains("anna"), "{log}");
    camera.stop();
}

/// A page of another site can neither send the header of its own nor be reached by an address.
#[test]
fn the_dashboard_alone_ends_a_publisher() {
    require_root!();
    require_programs!("curl");
    let site = serve(&[]);
    let mut hand = Hand::publish(&site, SDP);
    let post = |path: &str, lines: &[&str]| {
        let mut command = site.testbed.snd.command("curl");
        command.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST"]);
        for line in lines {
            command.args(["-H", line]);
        }
        let url = format!("http://127.0.0.1:9554/admin/publishers/{path}");
        String::from_utf8(command.arg(url).output().unwrap().stdout).unwrap()
    };
    let (own, other) = ("X-Onrush: 1", "Host: pages.example:9554");
    assert_eq!(post("live/cam", &[]), "403");
    assert_eq!(post("live/cam", &[other]), "403");
    assert_eq!(post("live/cam", &[own, other]), "403");
    assert_eq!(post("live/none", &[own]), "404");
    hand.picture(0, true);
    assert_eq!(hand.ask("OPTIONS"), 200);
    assert_eq!(post("live/cam", &[own]), "204");
    let ended = (0..1000).any(|at| {
        let packet = hand.packet(7, 96, at, 0x41);
        std::thread::sleep(Duration::from_millis(10));
        hand.client.send_frame(0, &packet).is_err()
    });
    assert!(ended, "{}", site.server.log_tail());
    let log = site.server.log_tail();
    assert!(log.contains("let go from the dashboard"), "{log}");
    // It may come again.
    Hand::publish(&site, SDP);
}
