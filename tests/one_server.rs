//! One server plays files and live channels, to other people's players, at the same time.

use std::net::UdpSocket;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::http_client;
use onrush_testkit::process::Process;
use onrush_testkit::testbed::{Mode, RCV_IPV4, Testbed};
use onrush_testkit::{require_programs, require_root};

use common::{LONG, ONRUSH, Site, bars, clip, gst_packets, serve_arguments, url, watch};
use relay_site::{assert_silent, received, rtp, send_all};

mod common;
mod relay_site;

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

/// A page of the server's metrics address.
fn page(testbed: &Testbed, target: &str) -> String {
    let metrics = ([127, 0, 0, 1], 9554).into();
    let client = testbed.snd.run(|| http_client::Client::connect(metrics));
    String::from_utf8(client.unwrap().get(target).unwrap()).unwrap()
}

/// From the command line, from a file and from the control API; and what all pages say of them.
#[test]
fn a_channel_beside_files_has_members_and_counters() {
    require_root!();
    let (testbed, media) = Site::prepare(Mode::Uso);
    let (list, status) = (media.path().join("list"), media.path().join("status"));
    std::fs::write(&list, "10.77.0.2:6002 # kitchen\n").unwrap();
    let mut command = testbed.snd.command(ONRUSH);
    command.args(serve_arguments(media.path())).args([
        "--channel=live=10.77.0.1:5004",
        "--channel=other=10.77.0.1:5006",
        "--to=live=10.77.0.2:6001",
        &format!("--members=live={}", list.display()),
        "--api=8555",
        "--metrics=9554",
        &format!("--status-at-exit={}", status.display()),
    ]);
    let server = Process::start(&mut command).unwrap();
    assert!(
        server.wait_for_line("stopping", LONG).is_some(),
        "{}",
        server.log_tail()
    );
    let site = relay_site::Site {
        relay: server,
        testbed,
    };
    let bind = |port: u16| {
        let socket = site
            .testbed
            .rcv
            .run(|| UdpSocket::bind((RCV_IPV4, port)))
            .unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    };
    let members = [bind(6001), bind(6002), bind(6003)];
    let added = r#"{"members": ["10.77.0.2:6003"]}"#;
    let (code, answer) = site.ask("POST", "/sources/live/members", added);
    assert_eq!((code, &answer["members"]), (200, &3.into()), "{answer}");
    site.wait_for("three members", |source| source["members"] == 3);
    // As many as fit into a socket's buffer.
    let sent: Vec<_> = (0..50).map(|i| rtp(i, 1328)).collect();
    send_all(&site.source(true), &sent);
    for member in &members {
        assert!(
            received(member, sent.len()) == sent,
            "{}",
            site.relay.log_tail()
        );
        assert_silent(member);
    }
    let source = site.wait_for("150 packets", |source| source["sent"]["packets"] == 150);
    let metrics = page(&site.testbed, "/metrics");
    for line in [
        "onrush_channel_members{channel=\"live\"} 3",
        "onrush_channel_packets_total{channel=\"live\"} 150",
        "onrush_channel_received_datagrams_total{channel=\"live\"} 50",
        "onrush_channel_state{channel=\"live\",state=\"live\"} 1",
        "onrush_channel_packets_total{channel=\"other\"} 0",
        "onrush_channel_state{channel=\"other\",state=\"waiting\"} 1",
    ] {
        assert!(
            metrics.contains(&format!("\n{line}\n")),
            "{line}: {metrics}"
        );
    }
    let of_channels = |json: &str| {
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        let names = json["channels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].clone());
        assert_eq!(names.collect::<Vec<_>>(), ["live", "other"]);
        json["channels"][0]["sent"].clone()
    };
    assert_eq!(of_channels(&page(&site.testbed, "/status")), source["sent"]);
    let log = site.stop();
    assert!(log.contains("source live: 50 datagrams came"), "{log}");
    let status = std::fs::read_to_string(&status).unwrap();
    assert_eq!(of_channels(&status)["packets"], 150, "{status}");
}
