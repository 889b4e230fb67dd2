//! One server plays files and live channels, to other people's players, at the same time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::testbed::{Mode, Testbed};
use onrush_testkit::{require_programs, require_root};

use common::{LONG, Site, bars, clip, gst_packets, url, watch};

mod common;

const SERVER: &str = "10.77.0.1";

/// What ffprobe says of a URL, once it can be played.
fn probe(testbed: &Testbed, url: &str) -> String {
    let give_up = Instant::now() + LONG;
    loop {
        let mut command = testbed.rcv.command("ffprobe");
        command.args(["-hide_banner", "-analyzeduration", "2000000"]);
        let output = command
            .args(["-rtsp_transport", "udp", url])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Nothing has come of the channel yet: 503.
        if output.status.success() || !said.contains("503") || Instant::now() > give_up {
            assert!(output.status.success(), "{url}: {said}");
            return said;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until GStreamer has a hundred transport packets of a URL.
fn gst(testbed: &Testbed, url: &str) {
    let location = format!("location={url}");
    gst_packets(testbed, &["rtspsrc", &location, "protocols=udp"], 100);
}

#[test]
fn a_file_and_a_channel_play_at_once() {
    require_root!();
    require_programs!("ffmpeg", "ffprobe", "gst-launch-1.0");
    let clip = clip(20.0);
    let site = Site::with_clip(&clip, Mode::Uso, &["--channel", "bars=10.77.0.1:5004"]);
    let said = site.server.wait_for_line("live/bars", LONG);
    assert!(said.is_some_and(|line| line.starts_with("play")));
    let _source = bars(
        &site.testbed,
        "rtp_mpegts",
        "rtp://10.77.0.1:5004?pkt_size=1328",
    );
    let live = format!("rtsp://{SERVER}:8554/live/bars");
    let file = url([10, 77, 0, 1].into(), "clip.ts");
    let said = probe(&site.testbed, &live);
    assert!(
        said.contains("mpeg2video") && said.contains("128x96"),
        "{said}"
    );
    thread::scope(|scope| {
        let players = [
            scope.spawn(|| gst(&site.testbed, &live)),
            scope.spawn(|| gst(&site.testbed, &file)),
            scope.spawn(|| {
                let said = probe(&site.testbed, &file);
                assert!(said.contains("h264"), "{said}");
            }),
            // Byte for byte, while the channel plays.
            scope.spawn(|| {
                watch(&site.testbed, "clip.ts", &Arc::from(&*clip), Some(15.0));
            }),
        ];
        for player in players {
            player.join().unwrap();
        }
    });
    let log = site.stop();
    assert!(
        log.contains("source bars:") && log.contains("path relay"),
        "{log}"
    );
}

/// What is under `live/` and no channel is a file; without either the answer is 404.
#[test]
fn channels_and_files_share_one_name_space() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    std::fs::create_dir(media.path().join("live")).unwrap();
    let clip = clip(3.0);
    std::fs::write(media.path().join("live/clip.ts"), &clip).unwrap();
    onrush_testkit::media::age(&media.path().join("live/clip.ts")).unwrap();
    let site = Site::serve(testbed, media, &["--channel=bars=10.77.0.1:5004"]);
    watch(&site.testbed, "live/clip.ts", &Arc::from(&*clip), None);
    let mut client = common::connect(&site.testbed, [10, 77, 0, 1].into());
    for (name, status) in [("live/bars", 503), ("live/none", 404), ("bars", 404)] {
        let url = url([10, 77, 0, 1].into(), name);
        let answer = client.request("DESCRIBE", &url, &[]).unwrap();
        assert_eq!(answer.status, status, "{name}: {answer:?}");
    }
    site.stop();
}
