//! `onrush-lab load` against our own server: what viewers see by sockets and by the sink, and what
//! they miss.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use onrush_measure::experiment::Record;
use onrush_measure::load::hls::{self, HlsRecord};
use onrush_measure::load::http::{self, HttpRecord};
use onrush_measure::load::{self, LoadRecord};
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::require_root;
use onrush_testkit::testbed::{Mode, RCV_DEVICE};

use common::{LONG, Site, clip};

#[path = "../../../tests/common.rs"]
mod common;
#[path = "../../../tests/download_site.rs"]
mod download_site;

const ONRUSH_LAB: &str = env!("CARGO_BIN_EXE_onrush-lab");

/// For so long a load generator is stopped.
const STALL: Duration = Duration::from_millis(1500);

/// Has `onrush-lab load` make a load at the site, and keeps its record.
fn load(site: &Site, name: &str, arguments: &[&str]) -> (Output, LoadRecord) {
    load_url(site, &site.url(name), arguments)
}

fn load_url(site: &Site, url: &str, arguments: &[&str]) -> (Output, LoadRecord) {
    let json = site.path("load.json");
    let mut command = site.testbed.rcv.command(ONRUSH_LAB);
    command.args(["load", "--time", "2s", "--ramp", "200ms", "--json"]);
    command.arg(&json).args(arguments).arg(url);
    let output = command.output().unwrap();
    let record = Record::read(&json, load::NAME)
        .unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    (output, record)
}

/// The same with a bound on lateness that only a machine which does something else is beyond: that
/// is tried again.
fn load_on_time(site: &Site, name: &str, arguments: &[&str]) -> (Output, LoadRecord) {
    load_url_on_time(site, &site.url(name), arguments)
}

fn load_url_on_time(site: &Site, url: &str, arguments: &[&str]) -> (Output, LoadRecord) {
    let arguments = [arguments, &["--lateness", "400ms", "--start-up-max", "30s"]].concat();
    for _ in 0..5 {
        let (output, record) = load_url(site, url, &arguments);
        let playouts = record.runs[0].playouts.as_ref().unwrap();
        if playouts.beyond(record.settings.buffer_ns.unwrap()) == 0 && playouts.missing == 0 {
            return (output, record);
        }
    }
    panic!("five loads were late");
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn sockets_and_the_sink_see_the_same_and_nothing_is_missing() {
    require_root!();
    // Shorter than the load: it is played again from its start.
    let site = Site::with_clip(&clip(1.5), Mode::Uso, &[]);
    let pid = site.server.id().to_string();
    for receive in [&[][..], &["--sink", RCV_DEVICE]] {
        let arguments = [&["-n", "8", "--pid", &pid], receive].concat();
        let (output, record) = load_on_time(&site, "clip.ts", &arguments);
        assert!(output.status.success(), "{}", said(&output));
        let run = &record.runs[0];
        assert_eq!((run.visits, run.played, run.watching), (8, 8, 8));
        assert_eq!((run.totals.lost, run.totals.repeated), (0, 0));
        assert_eq!((run.start_up_ns.len(), run.streams.len()), (8, 8));
        // At 1 Mbit/s 95 packets a second, of which at least one second's came.
        assert!(run.totals.packets > 8 * 95, "{:?}", run.totals);
        assert!(run.packets_steady > 0 && run.lateness.total() > 0);
        assert!(run.server.is_some_and(|usage| usage.memory_bytes > 0));
    }
    let json = site.path("load.json");
    let printed = Command::new(ONRUSH_LAB)
        .args(["load", "--from"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(said(&printed).contains("8 wanted, 8 watching at the end"));
}

/// A load over this transport whose generator is stopped for a while, and what it said.
fn stalled(site: &Site, transport: &str) -> (std::process::ExitStatus, String, LoadRecord) {
    let json = site.path("stalled.json");
    let mut command = site.testbed.rcv.command(ONRUSH_LAB);
    command.args([
        "load", "--time", "6s", "--ramp", "100ms", "-n", "2", "--json",
    ]);
    command
        .arg(&json)
        .args(["--transport", transport, "--lateness", "100ms"]);
    let mut generator = Process::start(command.arg(site.url("clip.ts"))).unwrap();
    let give_up = Instant::now() + LONG;
    let table = format!("/proc/{}/net/dev", generator.id());
    // Bytes that the device has received: the first number behind its name.
    let received = || -> u64 {
        let table = std::fs::read_to_string(&table).unwrap_or_default();
        let of_device = table
            .lines()
            .find_map(|line| line.trim().strip_prefix(RCV_DEVICE));
        let bytes = of_device.and_then(|line| line.split([':', ' ']).find(|word| !word.is_empty()));
        bytes.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    let before = received();
    // At 1 Mbit/s, half a second of what both play.
    while received() < before + 100_000 && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(10));
    }
    generator.signal(Signal::STOP).unwrap();
    std::thread::sleep(STALL);
    generator.signal(Signal::CONT).unwrap();
    let status = generator.wait(LONG).unwrap();
    let record = Record::read(&json, load::NAME).unwrap();
    (status, generator.log(), record)
}

/// What its viewers missed is void where it times packets itself; datagrams count from when they
/// came, however late it reads them.
#[test]
fn a_load_generator_that_stalls_blames_no_server() {
    require_root!();
    let site = Site::with_clip(&clip(20.0), Mode::Uso, &[]);
    let stall_ns = u64::try_from(STALL.as_nanos()).unwrap();
    let (status, said, record) = stalled(&site, "tcp");
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(
        said.contains("VOID") && said.contains("late itself"),
        "{said}"
    );
    let run = &record.runs[0];
    assert!(run.generator.unwrap().late_ns_max > stall_ns / 2, "{said}");
    assert!(
        run.playouts.as_ref().unwrap().needed_ns(1.0) > Some(stall_ns / 2),
        "{said}"
    );
    // A machine that holds the server up as long has more to do than this.
    let is_on_time = (0..5).any(|_| {
        let (_, _, record) = stalled(&site, "udp");
        let run = &record.runs[0];
        assert!(run.generator.unwrap().late_ns_max > stall_ns / 2);
        run.playouts.as_ref().unwrap().needed_ns(1.0) < Some(stall_ns / 2)
    });
    assert!(is_on_time);
}

/// A server of a film by HLS in segments of a second, its URL, and each segment that it has sent.
fn serve_segments() -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("hls://{}/index.m3u8", listener.local_addr().unwrap());
    let (sender, sent) = mpsc::channel();
    let segments = "#EXTINF:1,\ns\n".repeat(10);
    let playlist = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n{segments}#EXT-X-ENDLIST\n");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender, playlist) = (stream.unwrap(), sender.clone(), playlist.clone());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                while let Some(request) = lines.next() {
                    let head = lines.by_ref().take_while(|line| !line.is_empty());
                    head.for_each(drop);
                    let is_segment = request.starts_with("GET /s ");
                    let body = if is_segment { "x" } else { &playlist };
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                    (&stream).write_all(answer.as_bytes()).ok();
                    if is_segment {
                        sender.send(()).ok();
                    }
                }
            });
        }
    });
    (url, sent)
}

#[test]
fn a_player_that_stalls_itself_blames_no_server() {
    let (url, sent) = serve_segments();
    let mut command = Command::new(ONRUSH_LAB);
    command.args(["load", "-n", "1", "--time", "6s", "--buffer", "1s"]);
    let mut generator = Process::start(command.arg(&url)).unwrap();
    for _ in 0..3 {
        sent.recv_timeout(LONG).unwrap();
    }
    // It has two seconds at the most: what it buffers, and a segment.
    generator.signal(Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    generator.signal(Signal::CONT).unwrap();
    let status = generator.wait(LONG).unwrap();
    let said = generator.log();
    assert_eq!(status.code(), Some(2), "{said}");
    for part in ["VOID", "players stood still", "late itself"] {
        assert!(said.contains(part), "{said}");
    }
}

/// A server of a clip with TLS and a group, and its URL there.
fn tls_site() -> (Site, String) {
    let (testbed, media) = Site::prepare(Mode::Uso);
    // Groups are joined on the interface of the route to them.
    let route = ["route", "add", "224.0.0.0/4", "dev", RCV_DEVICE];
    testbed.rcv.tool("ip", route).unwrap();
    std::fs::write(media.path().join("clip.ts"), clip(1.5)).unwrap();
    let options = ["--tls=self-signed", "--multicast=239.77.20.0/24"];
    let site = Site::serve(testbed, media, &options);
    let url = site.url("clip.ts").replace("rtsp://", "rtsps://");
    (site, url.replace(":8554", ":8322"))
}

#[test]
fn viewers_see_the_same_over_every_transport() {
    require_root!();
    let (site, over_tls) = tls_site();
    let plain = site.url("clip.ts");
    for (transport, url) in [
        ("tcp", &plain),
        ("tls", &over_tls),
        ("srtp", &over_tls),
        ("multicast", &plain),
    ] {
        let arguments = ["-n", "6", "--inspected", "2", "--transport", transport];
        let (output, record) = load_url_on_time(&site, url, &arguments);
        assert!(output.status.success(), "{transport}: {}", said(&output));
        assert_eq!(record.settings.transport.name(), transport);
        let run = &record.runs[0];
        assert_eq!((run.visits, run.played, run.watching), (6, 6, 6));
        assert_eq!((run.totals.lost, run.totals.repeated), (0, 0));
        assert_eq!((run.start_up_ns.len(), run.streams.len()), (6, 6));
        assert!(run.streams.iter().all(|stream| stream.arrived.bytes > 0));
        let looking = run.streams.iter().filter(|it| it.arrived.packets > 0);
        let is_interleaved = run.connections.is_some();
        assert_eq!(is_interleaved, ["tcp", "tls"].contains(&transport));
        assert_eq!(looking.count(), if is_interleaved { 2 } else { 6 });
        if let Some(connections) = run.connections {
            assert!(connections.unread_bytes > connections.inspected_bytes);
            assert!(run.packets_of_all() > 2 * run.packets_steady);
        }
        assert!(said(&output).contains(transport), "{}", said(&output));
    }
}

/// Who looks at nothing asks, too, and hears no answer.
#[test]
fn viewers_jump_and_leave_on_their_connections() {
    require_root!();
    let (site, over_tls) = tls_site();
    for url in [&site.url("clip.ts"), &over_tls] {
        let transport = if *url == over_tls { "tls" } else { "tcp" };
        let arguments = [
            "-n",
            "6",
            "--inspected",
            "2",
            "--transport",
            transport,
            "--seek-every",
            "300ms",
            "--stay",
            "900ms",
        ];
        let (output, record) = load_url_on_time(&site, url, &arguments);
        assert!(output.status.success(), "{transport}: {}", said(&output));
        let run = &record.runs[0];
        assert!(run.acts.seeks > 0 && run.visits > 6, "{:?}", run.acts);
        assert_eq!((run.totals.lost, run.totals.repeated), (0, 0));
    }
}

#[test]
fn who_comes_and_goes_leaves_nothing_behind() {
    require_root!();
    let site = Site::with_clip(&clip(20.0), Mode::Uso, &[]);
    // The server keeps a file that was played open.
    load(&site, "clip.ts", &["-n", "1"]);
    let before = site.settled();
    let restless = [
        "-n",
        "6",
        "--stay",
        "400ms",
        "--seek-every",
        "300ms",
        "--pause-every",
        "900ms",
        "--arrival",
        "poisson",
        "--sink",
        RCV_DEVICE,
    ];
    let (output, record) = load_on_time(&site, "clip.ts", &restless);
    assert!(output.status.success(), "{}", said(&output));
    let run = &record.runs[0];
    assert!(run.visits > 6, "{}", run.visits);
    assert_eq!(run.visits, run.played);
    // Over all jumps the numbers went on.
    assert!(run.acts.seeks > 0, "{:?}", run.acts);
    assert_eq!((run.totals.lost, run.totals.repeated), (0, 0));
    site.assert_returns_to(before);
}

#[test]
fn numbers_that_begin_anew_after_a_jump_are_told_as_loss() {
    require_root!();
    let shared = ["--rtp-headers", "shared"];
    let site = Site::with_clip(&clip(20.0), Mode::Uso, &shared);
    for receive in [&[][..], &["--sink", RCV_DEVICE]] {
        let arguments = [&["-n", "6", "--seek-every", "300ms"], receive].concat();
        let (output, record) = load(&site, "clip.ts", &arguments);
        let run = &record.runs[0];
        assert!(run.acts.seeks >= run.acts.jumped && run.acts.jumped > 0);
        let wrong = run.totals.lost + run.totals.repeated;
        assert!(wrong > 0, "{}", said(&output));
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    }
}

#[test]
fn only_the_active_part_of_the_viewers_acts() {
    require_root!();
    let site = Site::with_clip(&clip(20.0), Mode::Uso, &[]);
    let arguments = |percent| ["-n", "6", "--stay", "300ms", "--active", percent];
    let visits = |percent| {
        let (_, record) = load(&site, "clip.ts", &arguments(percent));
        (record.runs[0].visits, record.runs[0].acts.leaves)
    };
    assert_eq!(visits("0"), (6, 0));
    let (visits, leaves) = visits("100");
    assert!(visits > 6 && leaves > 0, "{visits} {leaves}");
}

#[test]
fn what_is_refused_is_told_with_its_reason() {
    require_root!();
    let site = Site::with_clip(&clip(5.0), Mode::Uso, &["--sessions-max", "2"]);
    let (output, record) = load(&site, "clip.ts", &["-n", "3"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("SETUP was answered 453"),
        "{}",
        said(&output)
    );
    assert_eq!(record.runs[0].watching, 2);
    // Who asks for two is not told of the third; who asks for three misses one.
    let (output, _) = load(&site, "clip.ts", &["-n", "3", "--aim", "2"]);
    let refused = "SETUP was answered 453";
    assert!(!said(&output).contains(refused), "{}", said(&output));
    let (output, _) = load(&site, "clip.ts", &["-n", "3", "--aim", "3"]);
    assert_eq!(output.status.code(), Some(1));
    let missed = "of 3 viewers watched at the end";
    assert!(said(&output).contains(missed), "{}", said(&output));
    let (output, _) = load(&site, "none.ts", &["-n", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("DESCRIBE was answered 404"),
        "{}",
        said(&output)
    );
}

/// Has `onrush-lab load` download from a site of its own, which has a film of so many bytes, and
/// keeps its record.
fn download(arguments: &[&str], file: &str, bytes: usize) -> (Output, HttpRecord) {
    let site = download_site::Site::new(&[], |root| {
        std::fs::write(root.join("film.ts"), download_site::bytes(bytes)).unwrap();
    });
    let json = site.media.path().join("load.json");
    let mut command = Command::new(ONRUSH_LAB);
    command.args([
        "load", "--time", "2s", "--ramp", "100ms", "-n", "8", "--json",
    ]);
    command.arg(&json).args(arguments).arg(site.url(file));
    let output = command.output().unwrap();
    let html = site.media.path().join("load.html");
    let mut again = Command::new(ONRUSH_LAB);
    again
        .args(["load", "--from"])
        .arg(&json)
        .arg("--html")
        .arg(&html);
    assert_eq!(again.output().unwrap().stdout, output.stdout);
    assert!(
        std::fs::read_to_string(html)
            .unwrap()
            .contains("What downloading clients saw")
    );
    (output, Record::read(&json, http::NAME).unwrap())
}

#[test]
fn downloads_are_whole_and_counted() {
    // So few bytes that a slow machine gives each client a whole one.
    let (output, record) = download(&["--evenness-min", "0.2"], "film.ts", 300_000);
    assert!(output.status.success(), "{}", said(&output));
    let run = &record.runs[0];
    assert!(run.whole >= 8, "{run:?}");
    // Who is in the middle of a download when the load is over breaks it off.
    assert_eq!(run.whole + run.broken_off, run.requests);
    assert!(run.broken_off <= 8);
    assert!(run.bytes >= run.whole * 300_000);
    assert_eq!(
        (run.client_bytes.len(), run.first_byte_ns.len() as u64),
        (8, run.requests)
    );
}

#[test]
fn who_downloads_slowly_seeks_and_leaves_gets_what_he_asks_for() {
    // Nobody has a whole file within the load at this rate: what is whole is a range near its end.
    let restless = [
        "--rate",
        "4Mbit/s",
        "--seek-every",
        "300ms",
        "--stay",
        "500ms",
        "--pause-every",
        "1s",
    ];
    let (output, record) = download(&restless, "film.ts", 3_000_000);
    assert!(output.status.success(), "{}", said(&output));
    let run = &record.runs[0];
    // A seek asks twice: how long the file is, and for the range.
    assert!(
        run.broken_off > 8 && run.requests > run.whole + run.broken_off,
        "{run:?}"
    );
    // Eight clients of 500,000 bytes a second, also while they came, and a step of each request.
    let by_rate = 8 * (run.wall_ns + 200_000_000) / 2000;
    assert!(run.bytes < by_rate + run.requests * 66_000, "{run:?}");
}

#[test]
fn downloads_that_fail_are_told_with_their_reason() {
    let (output, _) = download(&[], "none.ts", 1000);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("GET was answered 404") && said.contains("nothing came"),
        "{said}"
    );
}

#[test]
fn an_interrupted_load_keeps_its_record() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("load.json");
    let mut command = Command::new(ONRUSH_LAB);
    command.args(["load", "-n", "1", "--time", "10m", "--json"]);
    command.arg(&json);
    command.arg(format!("http://{}/film", listener.local_addr().unwrap()));
    let mut load = Process::start(&mut command).unwrap();
    // A client is there, and waits for the rest.
    let (mut client, _) = listener.accept().unwrap();
    let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx";
    client.write_all(begun).unwrap();
    let status = load.interrupt(LONG).unwrap();
    assert!(status.code().is_some(), "{status}: {}", load.log());
    assert!(load.log().contains("1 broken off by the client"));
    let record: HttpRecord = Record::read(&json, http::NAME).unwrap();
    let run = &record.runs[0];
    assert_eq!((run.requests, run.broken_off), (1, 1));
    assert!(run.wall_ns < 600_000_000_000, "{run:?}");
}

/// Has `onrush-lab load` play from a site, and keeps its record.
fn play(site: &download_site::Site, path: &str, arguments: &[&str]) -> (Output, HlsRecord) {
    let json = site.media.path().join("play.json");
    let mut command = Command::new(ONRUSH_LAB);
    command
        .args(["load", "--ramp", "100ms", "--json"])
        .arg(&json);
    let url = format!("hls://{}/{path}", site.http);
    let output = command.args(arguments).arg(url).output().unwrap();
    (output, Record::read(&json, hls::NAME).unwrap())
}

#[test]
fn players_of_films_fetch_ahead_and_no_further() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media");
    let site = download_site::Site::new(&[], |root| {
        for name in ["demo.ts", "demo.mp4"] {
            std::fs::copy(format!("{demo}/{name}"), root.join(name)).unwrap();
            onrush_testkit::media::age(&root.join(name)).unwrap();
        }
    });
    for (name, renditions) in [("demo.ts", 1), ("demo.mp4", 2)] {
        let path = format!("{name}/hls/index.m3u8");
        // The clip is shorter than both buffers: it is fetched again.
        let of = |buffer| {
            let arguments = ["-n", "4", "--time", "2s", "--buffer", buffer];
            let (output, record) = play(&site, &path, &arguments);
            assert!(output.status.success(), "{}", said(&output));
            let run = record.runs.into_iter().next().unwrap();
            assert_eq!((run.visits, run.playing, run.stalls), (4, 4, 0), "{run:?}");
            assert_eq!((run.start_up_ns.len(), run.latency_ns.len()), (4, 0));
            run
        };
        let (little, much) = (of("20s"), of("200s"));
        assert!(little.segments >= 4 * renditions * 3, "{name}: {little:?}");
        assert!(much.segments > 4 * little.segments, "{name}: {much:?}");
    }
    let (output, record) = play(
        &site,
        "none.mp4/hls/index.m3u8",
        &["-n", "1", "--time", "1s"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("GET was answered 404"),
        "{}",
        said(&output)
    );
    assert_eq!(record.runs[0].playing, 0);
}

/// Publishes a channel with a sync sample each two seconds.
fn publish(site: &download_site::Site) -> Process {
    let mut sender = Command::new("ffmpeg");
    sender.args(["-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i"]);
    sender.args([
        "testsrc2=s=192x108:r=25",
        "-f",
        "lavfi",
        "-i",
        "sine=r=48000",
    ]);
    sender.args([
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-tune",
        "zerolatency",
    ]);
    sender.args([
        "-g", "50", "-pix_fmt", "yuv420p", "-c:a", "aac", "-f", "rtsp",
    ]);
    let sender = Process::start(sender.arg(site.rtsp_url("live/cam"))).unwrap();
    let give_up = Instant::now() + download_site::LONG;
    while site.get("/live/cam/hls/index.m3u8", "").status != 200 {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
        std::thread::sleep(Duration::from_millis(100));
    }
    sender
}

/// Who joins is sent at once what has come since the last sync sample: up to two seconds.
#[test]
fn viewers_who_join_a_channel_are_not_late() {
    onrush_testkit::require_programs!("ffmpeg");
    let site = download_site::Site::new(&[], |_| {});
    let _sender = publish(&site);
    let mut told = String::new();
    // They come all through these two seconds. A machine that does something else is late.
    let is_on_time = (0..5).any(|_| {
        let mut command = Command::new(ONRUSH_LAB);
        command.args(["load", "-n", "6", "--ramp", "2s", "--time", "2s"]);
        command.args(["--lateness", "400ms", "--start-up-max", "30s"]);
        let output = command.arg(site.rtsp_url("live/cam")).output().unwrap();
        told = said(&output);
        output.status.success()
    });
    assert!(is_on_time, "{told}");
    assert!(told.contains("6 wanted, 6 watching at the end"), "{told}");
}

#[test]
fn players_of_channels_stay_near_the_live_edge() {
    onrush_testkit::require_programs!("ffmpeg");
    let site = download_site::Site::new(&[], |_| {});
    let sender = publish(&site);
    let arguments = ["-n", "6", "--time", "6s", "--latency-max", "30s"];
    let (output, record) = play(&site, "live/cam/hls/index.m3u8", &arguments);
    let run = &record.runs[0];
    assert_eq!(run.visits, 6, "{}", said(&output));
    assert_eq!(
        (run.start_up_ns.len(), run.failures.len()),
        (6, 0),
        "{run:?}"
    );
    assert!(!run.latency_ns.is_empty(), "{run:?}");
    // Three parts a second, of pictures and of sound.
    assert!(run.parts > 6 * 2 * 6 && run.requests > run.parts, "{run:?}");
    // One that has ended, and one that stands still, are told of.
    drop(sender);
    let (output, record) = play(
        &site,
        "live/cam/hls/index.m3u8",
        &["-n", "1", "--time", "3s"],
    );
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(record.runs[0].playing, 0);
}
