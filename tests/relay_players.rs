//! Players of what `onrush relay` relays: other people's, while members come and go, and RTSP by
//! the letter.

use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onrush_testkit::process::Process;
use onrush_testkit::receiver::Capture;
use onrush_testkit::testbed::SND_IPV4;
use onrush_testkit::testbed::SND_IPV6;
use onrush_testkit::{require_programs, require_root};
use onrush_wire::rtp::Header;

use common::{LONG, Viewer, bars, gst_packets};
use relay_site::{Site, Stopper, rtp, send_all, transport_stream};

mod common;
mod relay_site;

#[test]
fn ffmpeg_reaches_all_players_while_others_come_and_go() {
    require_root!();
    require_programs!("ffmpeg", "ffprobe", "gst-launch-1.0");
    let rtp = "rtp_mpegts rtp://10.77.0.1:5004?pkt_size=1328";
    let ts = "mpegts udp://10.77.0.1:5004?pkt_size=1316";
    for (output, how) in [
        (rtp, "--delay=0ms"),
        (ts, "--delay=0ms"),
        (rtp, "--in-kernel"),
    ] {
        let site = Site::start(&["5004", "--rtsp", "10.77.0.1:8554", how]);
        let (format, to) = output.split_once(' ').unwrap();
        let _source = bars(&site.testbed, format, to);
        site.wait_for("the source", |source| source["state"] == "live");
        let url = "rtsp://10.77.0.1:8554/live/live";
        // Two ports that nobody has; not both at once, or they were one.
        let plain = [0, 1].map(|_| site.member(true));
        let [port, gst_port] = plain.map(|plain| plain.local_addr().unwrap().port());
        let is_rtp = output.starts_with("rtp");
        let plain_url = match is_rtp {
            true => format!("rtp://10.77.0.2:{port}"),
            false => format!("udp://10.77.0.2:{port}"),
        };
        // Members that nobody listens at, so that only numbers count: each is refused by ICMP.
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let churn = scope.spawn(|| come_and_go(&site, &stop));
            // A failure in here ends the coming and going too.
            let _stopper = Stopper(&stop);
            let body = format!("{{\"members\": [\"10.77.0.2:{port}\", \"10.77.0.2:{gst_port}\"]}}");
            assert_eq!(site.ask("POST", "/sources/live/members", &body).0, 200);
            let players = [
                scope.spawn(|| probe(&site, &["-rtsp_transport", "udp", url])),
                scope.spawn(|| {
                    if is_rtp {
                        probe_rtp(&site, port)
                    } else {
                        probe(&site, &[&plain_url])
                    }
                }),
            ];
            let rtsp = [
                "rtspsrc",
                &format!("location={url}"),
                "protocols=udp",
                "latency=200",
            ];
            let mut got = vec![gst_packets(&site.testbed, &rtsp, 30)];
            if is_rtp {
                let caps = "caps=application/x-rtp,media=video,clock-rate=90000,\
                    encoding-name=MP2T,payload=33";
                got.push(gst_packets(
                    &site.testbed,
                    &["udpsrc", &format!("port={gst_port}"), caps],
                    30,
                ));
            }
            for player in players {
                let said = player.join().unwrap();
                assert!(
                    said.contains("mpeg2video") && said.contains("128x96"),
                    "{output}: {said}"
                );
            }
            stop.store(true, Ordering::Relaxed);
            churn.join().unwrap();
            assert!(
                got.iter().all(|&packets| packets > 20),
                "{output}: gst-launch got {got:?} transport packets"
            );
        });
        let answer = site.wait_for("players gone", |source| source["players"] == 0);
        assert_eq!(answer["received"]["missing"], 0, "{answer:#}");
        site.stop();
    }
}

/// 500 members, all of whom come, are replaced and go, again and again.
fn come_and_go(site: &Site, stop: &AtomicBool) {
    let list = |from: u16| -> String {
        let members = (0..500).map(|i| format!("10.77.0.2:{}", from + i));
        serde_json::json!({ "members": members.collect::<Vec<_>>() }).to_string()
    };
    let mut rounds = 0;
    // Twice at least, however soon the others have seen enough.
    while !stop.load(Ordering::Relaxed) || rounds < 2 {
        let path = "/sources/live/members";
        let sent = site.ask("GET", "/sources/live", "").1["sent"]["packets"].as_u64();
        assert_eq!(site.ask("POST", path, &list(30_000)).0, 200);
        let all_got = |source: &serde_json::Value| {
            source["sent"]["packets"].as_u64() >= sent.map(|n| n + 500)
        };
        site.wait_for("all 500 got something", all_got);
        assert_eq!(site.ask("DELETE", path, &list(30_000)).0, 200);
        for from in [31_000, 32_000] {
            assert_eq!(site.ask("POST", path, &list(from)).0, 200);
        }
        for from in [31_000, 32_000] {
            assert_eq!(site.ask("DELETE", path, &list(from)).0, 200);
        }
        rounds += 1;
    }
}

/// What ffprobe says of a stream.
fn probe(site: &Site, input: &[&str]) -> String {
    let mut command = site.testbed.rcv.command("ffprobe");
    command.args([
        "-hide_banner",
        "-analyzeduration",
        "2000000",
        "-protocol_whitelist",
        "file,tcp,udp,rtp,rtsp",
    ]);
    let (status, said) = Process::run(command.args(input), LONG).unwrap();
    let log = site.relay.log_tail();
    assert!(status.success(), "{input:?}: {said}\n{log}");
    said
}

/// The same of plain RTP at a port.
fn probe_rtp(site: &Site, port: u16) -> String {
    let mut sdp = tempfile::NamedTempFile::with_suffix(".sdp").unwrap();
    let text = format!(
        "v=0\no=- 1 1 IN IP4 10.77.0.1\ns=-\nc=IN IP4 10.77.0.2\nt=0 0\nm=video {port} RTP/AVP 33\n"
    );
    sdp.write_all(text.as_bytes()).unwrap();
    probe(site, &[sdp.path().to_str().unwrap()])
}

#[test]
fn players_get_rtp_headers_of_their_own_or_those_of_the_source() {
    require_root!();
    let site = Site::start(&[
        "5004",
        "--rtsp",
        "10.77.0.1:8554",
        "--rtsp",
        "[fd77::1]:8554",
    ]);
    let (mut client, url) = (
        common::connect(&site.testbed, SND_IPV4.into()),
        "rtsp://10.77.0.1:8554/live/live",
    );
    let early = client.request("DESCRIBE", url, &[]).unwrap();
    assert_eq!(early.status, 503, "{early:?}");
    let nobody = client
        .request("DESCRIBE", "rtsp://10.77.0.1:8554/live/other", &[])
        .unwrap();
    assert_eq!(nobody.status, 404, "{nobody:?}");
    let source = site.source(true);
    source.send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    for (is_ipv4, server) in [(true, IpAddr::from(SND_IPV4)), (false, SND_IPV6.into())] {
        let mut viewer = Viewer::setup_to(&site.testbed, "live/live", server);
        let answer = viewer.ask("PLAY", &[("Range", "npt=0.000-")]);
        assert_eq!(
            (answer.status, answer.header("Range")),
            (200, Some("npt=now-")),
            "{answer:?}"
        );
        site.wait_for("the player", |source| source["players"] == 1);
        // Once as it is, once with headers of ours.
        let sent: Vec<_> = (10..20).map(|i| rtp(i, 1328)).collect();
        send_all(&source, &sent);
        let has_both = |capture: &Capture| capture.rtp.len() >= 10 && !capture.rtcp.is_empty();
        assert!(
            viewer.receiver.wait_until(LONG, has_both),
            "packets and a sender report"
        );
        let got = viewer.receiver.take().rtp;
        assert!(
            got.iter().map(|datagram| &datagram.bytes).eq(&sent),
            "ipv4 {is_ipv4}"
        );
        let ts = transport_stream(3);
        send_all(&source, &vec![ts.clone(); 10]);
        assert!(
            viewer
                .receiver
                .wait_until(LONG, |capture| capture.rtp.len() >= 10)
        );
        let capture = viewer.receiver.take();
        let headers = capture
            .rtp
            .iter()
            .map(|datagram| Header::read(&datagram.bytes).unwrap());
        let first = Header::read(&capture.rtp[0].bytes).unwrap();
        for (i, header) in (0..).zip(headers) {
            assert_eq!((header.payload_type, header.ssrc), (33, first.ssrc));
            assert_eq!(header.sequence, first.sequence.wrapping_add(i));
        }
        assert!(
            capture
                .rtp
                .iter()
                .all(|datagram| datagram.bytes[12..] == ts)
        );
        assert_eq!(viewer.ask("PAUSE", &[]).status, 200);
        site.wait_for("the pause", |source| source["players"] == 0);
        assert_eq!(viewer.ask("PLAY", &[]).status, 200);
        site.wait_for("the player", |source| source["players"] == 1);
        assert_eq!(viewer.ask("TEARDOWN", &[]).status, 200);
        site.wait_for("the end", |source| source["players"] == 0);
    }
    site.stop();
}

/// H.264 with payload type 96, which means nothing by itself: players are told what --sdp says.
#[test]
fn players_get_a_dynamic_payload_type_that_is_described() {
    require_root!();
    require_programs!("ffmpeg", "ffprobe");
    let mut sdp = tempfile::NamedTempFile::with_suffix(".sdp").unwrap();
    let text = "v=0\no=- 1 1 IN IP4 10.77.0.2\ns=-\nt=0 0\nm=video 5004 RTP/AVP 96\n\
        a=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n";
    sdp.write_all(text.as_bytes()).unwrap();
    let described = format!("--sdp={}", sdp.path().display());
    let url = "rtsp://10.77.0.1:8554/live/live";
    for how in ["--delay=0ms", "--in-kernel"] {
        for described in [None, Some(&*described)] {
            let options = ["5004", "--rtsp", "10.77.0.1:8554", how];
            let options: Vec<_> = options.into_iter().chain(described).collect();
            let site = Site::start(&options);
            let mut command = site.testbed.rcv.command("ffmpeg");
            command.args(["-hide_banner", "-loglevel", "error", "-re", "-f", "lavfi"]);
            command.args(["-i", "testsrc=size=128x96:rate=25", "-c:v", "libx264"]);
            command.args(["-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "5"]);
            command.args(["-payload_type", "96", "-f", "rtp", "rtp://10.77.0.1:5004"]);
            let _source = Process::start(&mut command).unwrap();
            site.wait_for("the source", |source| source["state"] == "live");
            let mut client = common::connect(&site.testbed, SND_IPV4.into());
            let answer = client.request("DESCRIBE", url, &[]).unwrap();
            let is_described = described.is_some();
            let status = if is_described { 200 } else { 415 };
            assert_eq!(answer.status, status, "{how}: {answer:?}");
            if is_described {
                let said = probe(&site, &["-rtsp_transport", "udp", url]);
                let is_it = said.contains("h264") && said.contains("128x96");
                assert!(is_it, "{how}: {said}");
            }
            site.stop();
        }
    }
}

#[test]
fn a_vanished_player_leaves_at_its_time_out() {
    require_root!();
    let site = Site::start(&[
        "5004",
        "--rtsp",
        "10.77.0.1:8554",
        "--session-timeout",
        "5s",
    ]);
    site.source(true).send(&rtp(1, 1328)).unwrap();
    site.wait_for("the source", |source| source["state"] == "live");
    let mut vanishing = Viewer::setup(&site.testbed, "live/live");
    assert_eq!(vanishing.ask("PLAY", &[]).status, 200);
    site.wait_for("the player", |source| source["players"] == 1);
    // The connection stays open and the ports too: nothing but silence tells.
    site.wait_for("the time-out", |source| source["players"] == 0);
    assert_eq!(vanishing.ask("GET_PARAMETER", &[]).status, 454);
    let mut viewer = Viewer::setup(&site.testbed, "live/live");
    assert_eq!(viewer.ask("PLAY", &[]).status, 200);
    site.wait_for("the player", |source| source["players"] == 1);
    let log = site.stop();
    assert!(
        viewer
            .receiver
            .wait_until(LONG, |capture| capture.has_bye()),
        "{log}"
    );
    assert!(log.contains("players served: 2"), "{log}");
}
