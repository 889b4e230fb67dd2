//! Hot standby: two publishers of one channel, of which viewers get one, and go on with the other
//! when that ends or is silent.

use std::process::Command;
use std::thread;
use std::time::Duration;

use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root};
use rustix::process::Signal;
use serde_json::Value;

use common::{LONG, Site};
use publish_site::{Eyes, Hand, SDP, channel, serve};

mod common;
mod publish_site;

const LOOPBACK: &str = "rtsp://127.0.0.1:8554/live/cam";
const STANDBY: [&str; 2] = ["--standby=live/cam", "--standby-after=1s"];

/// A moving picture and a tone by ffmpeg, from the server's own machine.
fn publish(site: &Site, transport: &str) -> Process {
    let mut command = site.testbed.snd.command("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
    command.args(["-re", "-f", "lavfi", "-i", "testsrc=size=320x240:rate=25"]);
    command.args(["-re", "-f", "lavfi", "-i", "sine"]);
    command.args(["-pix_fmt", "yuv420p", "-c:v", "libx264", "-g", "50"]);
    command.args(["-preset", "ultrafast", "-tune", "zerolatency"]);
    command.args(["-c:a", "aac", "-f", "rtsp", "-rtsp_transport", transport]);
    Process::start(command.arg(LOOPBACK)).unwrap()
}

/// What shows so many pictures of the channel by ffmpeg.
fn ffmpeg(site: &Site, transport: &str, pictures: u32) -> Process {
    let mut command = site.player("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
    command.args(["-rtsp_transport", transport, "-i", &site.url("live/cam")]);
    command.args(["-map", "0:v", "-frames:v", &pictures.to_string()]);
    Process::start(command.args(["-f", "null", "-"])).unwrap()
}

fn gstreamer(site: &Site, pictures: u32) -> Process {
    let mut command = site.player("gst-launch-1.0");
    let location = format!("location={}", site.url("live/cam"));
    command.args(["-q", "rtspsrc", &location, "protocols=tcp", "latency=200"]);
    command.args(["name=in", "in.", "!", "application/x-rtp,media=video", "!"]);
    command.args(["rtph264depay", "!", "h264parse", "!", "openh264dec", "!"]);
    let error_after = format!("error-after={pictures}");
    command.args(["identity", &error_after, "!", "fakesink", "sync=false"]);
    command.args(["in.", "!", "application/x-rtp,media=audio", "!"]);
    command.args(["fakesink", "async=false", "sync=false"]);
    Process::start(&mut command).unwrap()
}

fn hls(site: &Site, pictures: u32) -> Process {
    let mut command = site.player("ffmpeg");
    let list = "http://10.77.0.1:8080/live/cam/hls/index.m3u8";
    command.args(["-nostdin", "-v", "error", "-i", list, "-map", "0:v"]);
    command.args(["-frames:v", &pictures.to_string(), "-f", "null", "-"]);
    Process::start(&mut command).unwrap()
}

/// It has shown all that it was to, of one connection, without a complaint.
fn assert_ends_well(what: &str, mut viewer: Process, site: &Site) {
    let status = viewer.wait(LONG).unwrap();
    let said = viewer.log();
    // GStreamer's `identity` ends by an error that it was asked for.
    let is_done = status.success() || said.contains("Failed after iterations as requested");
    assert!(is_done, "{what}: {said}\n{}", site.server.log_tail());
    for complaint in [
        "missed",
        "concealing",
        "Invalid data",
        "non-existing PPS",
        "error while decoding",
    ] {
        assert!(!said.contains(complaint), "{what}: {said}");
    }
    // Reports of a busy machine move pictures by some; a step back is as long as what was kept.
    for (_, step) in said
        .match_indices("in stream 0: ")
        .map(|(at, it)| said.split_at(at + it.len()))
    {
        let (last, next) = step.lines().next().unwrap().split_once(" >= ").unwrap();
        let [last, next] = [last, next].map(|it| it.parse::<i64>().unwrap());
        assert!(last - next < 10, "{what}: {said}");
    }
}

/// A publisher and its standby, both sending.
fn publish_twice(site: &Site, transports: [&str; 2]) -> [Process; 2] {
    let first = publish(site, transports[0]);
    channel(site, "the first", |it| received(it) > 50);
    let second = publish(site, transports[1]);
    channel(site, "the second", |it| it["publishers"]["standbys"] == 1);
    // So that it has sent a sync sample.
    let line = site.server.wait_for_line("as a standby", LONG);
    assert!(line.is_some(), "{}", site.server.log());
    thread::sleep(Duration::from_secs(1));
    [first, second]
}

fn received(channel: &Value) -> u64 {
    channel["received"]["rtp"].as_u64().unwrap_or(0)
}

fn publishers(site: &Site) -> Value {
    channel(site, "the publishers", |_| true)["publishers"].clone()
}

fn wait_for_switches(site: &Site, switches: u64) -> Value {
    let is_so = |it: &Value| it["publishers"]["switches"].as_u64() == Some(switches);
    channel(site, "it switches", is_so)["publishers"].clone()
}

/// What the encoder of the first has begun is left; viewers notice no more of it.
// SPECIFICATION.md: 71
#[test]
fn viewers_go_on_with_the_standby_of_a_killed_publisher() {
    require_root!();
    require_programs!("ffmpeg", "gst-launch-1.0", "curl");
    for transports in [["tcp", "tcp"], ["tcp", "udp"]] {
        let site = serve(&[STANDBY[0], "--standby-after=10s", "--http=10.77.0.1:8080"]);
        let [mut first, mut second] = publish_twice(&site, transports);
        let before = publishers(&site);
        let viewers = [
            ("ffmpeg tcp", ffmpeg(&site, "tcp", 350)),
            ("ffmpeg udp", ffmpeg(&site, "udp", 350)),
            ("GStreamer", gstreamer(&site, 300)),
            ("HLS", hls(&site, 200)),
        ];
        channel(&site, "they watch", |it| it["players"] == 3);
        thread::sleep(Duration::from_secs(5));
        first.signal(Signal::KILL).unwrap();
        first.wait(LONG).unwrap();
        let after = wait_for_switches(&site, 1);
        assert_eq!(after["active"], before["standby"], "{after}");
        assert!(after["standby"].is_null(), "{after}");
        // It comes back, and stands by.
        let mut third = publish(&site, transports[0]);
        let is_there = |it: &Value| it["publishers"]["standbys"] == 1;
        let told = channel(&site, "it is back", is_there);
        assert_eq!(told["publishers"]["active"], after["active"], "{told:#}");
        for (what, viewer) in viewers {
            assert_ends_well(what, viewer, &site);
        }
        assert_eq!(publishers(&site)["switches"], 1);
        third.interrupt(LONG).unwrap();
        second.interrupt(LONG).unwrap();
        channel(&site, "the end", Value::is_null);
        let log = site.stop();
        let said = "channel live/cam goes on with its standby: the other publisher has gone";
        assert!(log.contains(said), "{log}");
    }
}

#[test]
fn viewers_go_on_with_the_standby_of_a_silent_publisher() {
    require_root!();
    require_programs!("ffmpeg", "gst-launch-1.0", "curl");
    // Longer than a busy machine keeps an encoder waiting: the other is not to be taken for silent.
    let site = serve(&[STANDBY[0], "--standby-after=4s"]);
    let [mut first, mut second] = publish_twice(&site, ["tcp", "tcp"]);
    let before = publishers(&site);
    let viewers = [
        ("ffmpeg tcp", ffmpeg(&site, "tcp", 350)),
        ("GStreamer", gstreamer(&site, 300)),
    ];
    channel(&site, "they watch", |it| it["players"] == 2);
    first.signal(Signal::STOP).unwrap();
    let after = wait_for_switches(&site, 1);
    assert_eq!(after["active"], before["standby"], "{after}");
    // It goes on, and stands by, though it sends: nobody flaps.
    first.signal(Signal::CONT).unwrap();
    let is_there = |it: &Value| it["publishers"]["standbys"] == 1;
    channel(&site, "it stands by", is_there);
    for (what, viewer) in viewers {
        assert_ends_well(what, viewer, &site);
    }
    let told = publishers(&site);
    assert_eq!(
        (&told["switches"], &told["active"]),
        (&1.into(), &after["active"])
    );
    assert_eq!(told["standby"], before["active"], "{told}");
    first.interrupt(LONG).unwrap();
    second.interrupt(LONG).unwrap();
    let log = site.stop();
    let said = "its standby: nothing comes of the other publisher";
    assert!(log.contains(said), "{log}");
}

/// By hand: the numbers and the times, and where it begins.
#[test]
fn numbers_and_times_go_on_from_the_kept_sync_sample() {
    require_root!();
    require_programs!("curl");
    // Only its end makes the first give way.
    let site = serve(&[STANDBY[0], "--standby-after=10s"]);
    let mut first = Hand::publish(&site, SDP);
    first.picture(1000, true);
    channel(&site, "the first", |it| received(it) == 1);
    let mut second = Hand::publish(&site, SDP);
    second.sequence = 40_000;
    let mut eyes = Eyes::set_up(&site);
    eyes.play();
    let (header, _) = eyes.next();
    let (sequence, timestamp) = (header.sequence, header.timestamp);
    // Of the standby nothing is sent on; what came before its sync sample is of no use.
    second.picture(500_000, false);
    second.picture(503_600, true);
    second.picture(507_200, false);
    // An answer shows what came before it.
    assert_eq!(second.ask("GET_PARAMETER"), 200);
    first.picture(4600, false);
    let (header, _) = eyes.next();
    assert_eq!(header.sequence, sequence.wrapping_add(1));
    assert_eq!(header.timestamp, timestamp.wrapping_add(3600));
    let last = header.timestamp;
    assert_eq!(first.ask("TEARDOWN"), 200);
    let (header, nal) = eyes.next();
    assert_eq!((header.sequence, nal), (sequence.wrapping_add(2), 0x65));
    let passed = header.timestamp.wrapping_sub(last);
    assert!((1..90_000).contains(&passed), "{passed}");
    let begun = header.timestamp;
    let (header, nal) = eyes.next();
    assert_eq!((header.sequence, nal), (sequence.wrapping_add(3), 0x41));
    assert_eq!(header.timestamp, begun.wrapping_add(3600));
    second.picture(510_800, false);
    let (header, _) = eyes.next();
    assert_eq!(header.sequence, sequence.wrapping_add(4));
    assert_eq!(header.timestamp, begun.wrapping_add(7200));
    assert_eq!(wait_for_switches(&site, 1)["standbys"], 0);
    site.stop();
}

#[test]
fn who_cannot_stand_by_is_told_why() {
    require_root!();
    require_programs!("curl");
    let site = serve(&STANDBY);
    let first = Hand::publish(&site, SDP);
    let announce = |sdp: &str| Hand::connect(&site, false).announce(sdp);
    let other = announce(&SDP.replace("H264", "H265"));
    assert_eq!(other.status, 415, "{other:?}");
    let second = Hand::publish(&site, SDP);
    let third = announce(SDP);
    assert_eq!(third.status, 403, "{third:?}");
    let log = &site.server;
    for said in [
        "track 1 is H265/90000 as 96 and not H264/90000 as 96",
        "a third is not taken until one of them ends",
    ] {
        assert!(log.wait_for_line(said, LONG).is_some(), "{}", log.log());
    }
    // The standby ends: the channel goes on, and takes another.
    drop(second);
    channel(&site, "it ends", |it| it["publishers"]["standbys"] == 0);
    let second = Hand::publish(&site, SDP);
    channel(&site, "another", |it| it["publishers"]["standbys"] == 1);
    assert_eq!(publishers(&site)["switches"], 0);
    drop((first, second));
    channel(&site, "the end", Value::is_null);
    site.stop();

    // Another channel of the same server has none.
    let site = serve(&["--standby=live/other"]);
    let _first = Hand::publish(&site, SDP);
    let second = Hand::connect(&site, false).announce(SDP);
    assert_eq!(second.status, 403, "{second:?}");
    site.stop();
}

/// A standby that sends nothing does not replace one that is silent; the first that is heard does.
#[test]
fn a_silent_standby_takes_nothing_over() {
    require_root!();
    require_programs!("curl");
    let site = serve(&STANDBY);
    let mut first = Hand::publish(&site, SDP);
    first.picture(1000, true);
    channel(&site, "the first", |it| received(it) == 1);
    let mut second = Hand::publish(&site, SDP);
    channel(&site, "the second", |it| it["publishers"]["standbys"] == 1);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(publishers(&site)["switches"], 0);
    second.picture(1000, true);
    wait_for_switches(&site, 1);
    // By hand, too: who is let go is the active one.
    let mut command: Command = site.testbed.snd.command("curl");
    command.args(["-s", "-X", "DELETE", "-H", "X-Onrush: 1"]);
    command.arg("http://127.0.0.1:9554/api/v1/publishers/live/cam");
    let (status, said) = Process::run(&mut command, LONG).unwrap();
    assert!(status.success(), "{said}");
    first.picture(5000, true);
    second.picture(5000, true);
    wait_for_switches(&site, 2);
    site.stop();
}
