//! Multicast to other people's players, and to several receivers of one send.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::process::Process;
use onrush_testkit::rtsp_client::{Client, Response, rtcp_types};
use onrush_testkit::testbed::{
    Mode, RCV_DEVICE, RCV_IPV4, SND_DEVICE, SND_IPV4, SND_IPV6, Testbed,
};
use onrush_testkit::{require_programs, require_root};
use socket2::{Domain, Protocol, Socket, Type};

use common::{LONG, Site, bars, clip, url, wait_until};

mod common;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 20, 0);
const PORT: u16 = 5004;
const BYE: u8 = 203;
const DEMO: &[u8] = include_bytes!("../media/demo.mp4");

/// A server with a film that sends to groups.
fn serve(film: (&str, &[u8]), arguments: &[&str]) -> Site {
    let (testbed, media) = Site::prepare(Mode::Uso);
    // Players join on the interface of the route to a group.
    let route = ["route", "add", "224.0.0.0/4", "dev", RCV_DEVICE];
    assert!(testbed.rcv.tool("ip", route).unwrap().status.success());
    fs::write(media.path().join(film.0), film.1).unwrap();
    let ranges = ["--multicast=239.77.20.0/24", "--multicast=ff15::7720/124"];
    Site::serve(testbed, media, &[&ranges, arguments].concat())
}

/// Receivers of a group, each with a socket for RTP and one for RTCP.
fn join(testbed: &Testbed, group: IpAddr) -> [UdpSocket; 2] {
    let bind = |port| {
        let at = SocketAddr::new(group, port);
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP));
        let socket = socket.unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.bind(&at.into()).unwrap();
        match group {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &RCV_IPV4).unwrap(),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, 0).unwrap(),
        }
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        socket.into()
    };
    testbed.rcv.run(|| [PORT, PORT + 1].map(bind))
}

/// What has come to a receiver until the sender says BYE.
fn receive([rtp, rtcp]: &[UdpSocket; 2]) -> Vec<Vec<u8>> {
    rtcp.set_nonblocking(true).unwrap();
    let (mut packets, mut datagram, mut is_over) = (Vec::new(), [0; 2048], false);
    wait_until("the sender says BYE", || {
        while let Ok(bytes) = rtp.recv(&mut datagram) {
            packets.push(datagram[..bytes].to_vec());
        }
        let is_last = is_over;
        while let Ok(bytes) = rtcp.recv(&mut datagram) {
            is_over |= rtcp_types(&datagram[..bytes]).contains(&BYE);
        }
        is_last
    });
    packets
}

fn ask(client: &mut Client, method: &str, url: &str, headers: &[(&str, &str)]) -> Response {
    let answer = client.request(method, url, headers).unwrap();
    assert_eq!(answer.status, 200, "{method}: {answer:?}");
    answer
}

/// Sets a film of one track up, and says its session.
fn set_up(client: &mut Client, url: &str) -> String {
    let headers = [("Transport", "RTP/AVP;multicast")];
    let answer = ask(client, "SETUP", &format!("{url}/track1"), &headers);
    answer.session_id().unwrap().0.to_owned()
}

/// Bytes that have left the sender, headers of trains counted once.
fn sent(testbed: &Testbed) -> usize {
    let said = testbed.snd.tool("cat", ["/proc/net/dev"]).unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let device = format!("{SND_DEVICE}:");
    let counters = said
        .lines()
        .find_map(|line| line.trim().strip_prefix(&device));
    // Eight counters of what was received stand before it.
    let bytes = counters.and_then(|it| it.split_whitespace().nth(8));
    bytes.unwrap().parse().unwrap()
}

/// Each receiver has every byte of the film, and each byte left the device once.
#[test]
fn two_receivers_share_one_send() {
    require_root!();
    for (server, group) in [
        (IpAddr::from(SND_IPV4), IpAddr::from(GROUP)),
        (
            SND_IPV6.into(),
            Ipv6Addr::from([0xff15, 0, 0, 0, 0, 0, 0, 0x7720]).into(),
        ),
    ] {
        let film = clip(4.0);
        let site = serve(("clip.ts", &film), &[]);
        let receivers = [(); 2].map(|()| join(&site.testbed, group));
        let url = url(server, "clip.ts");
        let mut clients = [(); 2].map(|()| common::connect(&site.testbed, server));
        let sessions = clients.each_mut().map(|client| set_up(client, &url));
        let before = sent(&site.testbed);
        for (client, session) in clients.iter_mut().zip(&sessions) {
            ask(client, "PLAY", &url, &[("Session", session)]);
        }
        let received = receivers.each_ref().map(receive);
        let after = sent(&site.testbed);
        for packets in &received {
            let payload: Vec<u8> = packets.iter().flat_map(|it| it[12..].to_vec()).collect();
            assert!(payload == film, "{} bytes of {}", payload.len(), film.len());
        }
        let left = after - before;
        assert!(
            left > film.len() && left < film.len() / 2 * 3,
            "{left} of {}",
            film.len()
        );
        for (client, session) in clients.iter_mut().zip(&sessions) {
            ask(client, "TEARDOWN", &url, &[("Session", session)]);
        }
        let log = site.stop();
        assert!(log.contains("path multicast"), "{log}");
    }
}

/// Runs players at once; all of them must show what they were asked for.
fn assert_show(site: &Site, commands: Vec<(&str, Command)>) {
    thread::scope(|scope| {
        for (what, mut command) in commands {
            scope.spawn(move || {
                let (status, said) = Process::run(&mut command, LONG).unwrap();
                let log = site.server.log_tail();
                assert!(status.success(), "{what}: {said}\n{log}");
            });
        }
    });
}

/// ffmpeg decodes so many pictures of a URL that it hears on a group.
fn ffmpeg(site: &Site, url: &str, pictures: u32) -> Command {
    let mut command = site.testbed.rcv.command("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "warning", "-xerror"]);
    command.args(["-rtsp_transport", "udp_multicast", "-i", url]);
    command.args(["-frames:v", &pictures.to_string(), "-f", "null", "-"]);
    command
}

/// GStreamer takes so many buffers of sound of a URL that it hears on a group.
fn gstreamer(site: &Site, url: &str) -> Command {
    let mut command = site.testbed.rcv.command("gst-launch-1.0");
    command.args([
        "-q",
        "rtspsrc",
        &format!("location={url}"),
        "protocols=udp-mcast",
    ]);
    command.args(["name=in", "in.", "!", "application/x-rtp,media=audio", "!"]);
    command.args(["fakesink", "num-buffers=60", "sync=false"]);
    command.args(["in.", "!", "application/x-rtp,media=video", "!"]);
    command.args(["fakesink", "async=false", "sync=false"]);
    command
}

/// An MP4 has a pair of ports for each of its tracks.
#[test]
fn players_share_a_film_of_several_tracks() {
    require_root!();
    require_programs!("ffmpeg", "gst-launch-1.0");
    let site = serve(("film.mp4", DEMO), &[]);
    let url = url(SND_IPV4.into(), "film.mp4");
    let players = vec![
        ("ffmpeg", ffmpeg(&site, &url, 50)),
        ("GStreamer", gstreamer(&site, &url)),
        ("another ffmpeg", ffmpeg(&site, &url, 50)),
    ];
    assert_show(&site, players);
    let log = site.stop();
    let sent = log.matches(": 239.77.20.0 plays").count();
    assert_eq!(sent, 2, "one for each track: {log}");
}

#[test]
fn players_share_a_live_channel() {
    require_root!();
    require_programs!("ffmpeg");
    let always = ["--multicast-always=live/bars", "--multicast-from=10.77.0.1"];
    let channel = ["--channel=bars=10.77.0.1:6004"];
    let site = serve(("film.mp4", DEMO), &[&always[..], &channel].concat());
    let source = "rtp://10.77.0.1:6004?pkt_size=1328";
    let _source = bars(&site.testbed, "rtp_mpegts", source);
    // It is sent before anybody asks.
    let receiver = join(&site.testbed, GROUP.into());
    let mut datagram = [0; 2048];
    let give_up = Instant::now() + LONG;
    while receiver[0].recv(&mut datagram).is_err() {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
    }
    let url = url(SND_IPV4.into(), "live/bars");
    let players = vec![
        ("ffmpeg", ffmpeg(&site, &url, 25)),
        ("another ffmpeg", ffmpeg(&site, &url, 25)),
    ];
    assert_show(&site, players);
    site.stop();
}

#[test]
fn players_share_a_published_channel() {
    require_root!();
    require_programs!("ffmpeg");
    let site = serve(("film.mp4", DEMO), &["--rtsp=127.0.0.1:8554"]);
    let url = url(SND_IPV4.into(), "live/cam");
    // From elsewhere it would need a user.
    let at_home = "rtsp://127.0.0.1:8554/live/cam";
    let mut command = site.testbed.snd.command("ffmpeg");
    command.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-re",
        "-stream_loop",
        "-1",
    ]);
    command.arg("-i").arg(site.media.path().join("film.mp4"));
    command.args([
        "-c",
        "copy",
        "-f",
        "rtsp",
        "-rtsp_transport",
        "tcp",
        at_home,
    ]);
    let _publisher = Process::start(&mut command).unwrap();
    wait_until("it is published", || {
        site.connect()
            .request("DESCRIBE", &url, &[])
            .unwrap()
            .status
            == 200
    });
    let players = vec![
        ("ffmpeg", ffmpeg(&site, &url, 25)),
        ("another ffmpeg", ffmpeg(&site, &url, 25)),
    ];
    assert_show(&site, players);
    site.stop();
}

#[test]
fn why_nothing_is_sent_from_the_start_is_said_once() {
    require_root!();
    // Of another machine.
    let options = ["--multicast-from=192.0.2.99", "--multicast-always=film.mp4"];
    let site = serve(("film.mp4", DEMO), &options);
    let said = "is not sent to a group from 192.0.2.99: 461 ";
    let line = site.server.wait_for_line(said, LONG);
    let line = line.expect("it says why");
    assert!(line.contains("film.mp4") && line.contains("WARN"), "{line}");
    // It has been tried again by then.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(site.server.log().matches(said).count(), 1);
    let add = ["addr", "add", "192.0.2.99/32", "dev", SND_DEVICE];
    assert!(site.testbed.snd.tool("ip", add).unwrap().status.success());
    let said = "is sent to a group from 192.0.2.99 by now";
    assert!(site.server.wait_for_line(said, LONG).is_some());
    site.stop();
}
