//! A server that drains and sends its clients on to another: by the API, by SIGTERM, and what real
//! players make of it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::Duration;

use onrush_testkit::http_client;
use onrush_testkit::interleaved::InterleavedClient;
use onrush_testkit::process::Process;
use onrush_testkit::require_programs;
use onrush_testkit::rtsp_client::Client;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use common::{DEMO, LONG, ONRUSH, clip, gst_plays_to_the_end, wait_until};

mod common;

/// A server on loopback with a clip of some seconds.
struct Server {
    process: Process,
    _films: TempDir,
    rtsp: SocketAddr,
    http: SocketAddr,
    metrics: SocketAddr,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        Self::start_by(Command::new(ONRUSH), more)
    }

    fn start_by(mut command: Command, more: &[&str]) -> Self {
        let films = tempfile::tempdir().unwrap();
        let film = films.path().join("clip.ts");
        fs::write(&film, clip(6.0)).unwrap();
        onrush_testkit::media::age(&film).unwrap();
        command.arg("serve").arg(films.path()).args(more);
        for service in ["rtsp", "http", "metrics"] {
            command.arg(format!("--{service}=127.0.0.1:0"));
        }
        command.args(["--state=off", "--cache=8MiB"]);
        let process = Process::start(&mut command).unwrap();
        let address = |begin: &str| {
            let line = process.wait_for_line(begin, LONG);
            let line = line.unwrap_or_else(|| panic!("{}", process.log()));
            let address = line.split("//").nth(1).unwrap().split('/').next().unwrap();
            address.parse().unwrap()
        };
        Self {
            rtsp: address("listening  rtsp://"),
            http: address("listening  http://"),
            metrics: address("metrics    http://"),
            process,
            _films: films,
        }
    }

    fn url(&self) -> String {
        format!("rtsp://{}/clip.ts", self.rtsp)
    }

    /// The exit code of `onrush ctl`, and what it prints.
    fn ctl(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(ONRUSH);
        command.args(["ctl", "--at", &self.metrics.to_string()]);
        let output = command.args(words).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    /// Begins a drain, or ends it; the server that clients are sent on to.
    fn drain(&self, words: &[&str]) -> Value {
        let (code, said) = self.ctl(&[&["drain"], words].concat());
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_str::<Value>(&said).unwrap()["to"].take()
    }

    fn describe(&self) -> (u16, Option<String>) {
        let mut client = Client::connect(self.rtsp).unwrap();
        let url = format!("{}?x=y", self.url());
        let answer = client.request("DESCRIBE", &url, &[]).unwrap();
        let location = answer.header("Location").map(str::to_owned);
        (answer.status, location)
    }

    fn get(&self, target: &str) -> (u16, Option<String>) {
        let mut client = http_client::Client::connect(self.http).unwrap();
        let text = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.http);
        client.connection.send(text).unwrap();
        let answer = client.response(false).unwrap();
        // What players load they follow from pages of other sites, too.
        let is_open = answer.header("Access-Control-Allow-Origin") == Some("*");
        assert_eq!(is_open, target.contains("/hls/"), "{target}");
        let location = answer.header("Location").map(str::to_owned);
        (answer.status, location)
    }

    /// The path of the film's first segment, as its playlist says.
    fn segment(&self) -> String {
        let client = http_client::Client::connect(self.http).unwrap();
        let playlist = client.get("/clip.ts/hls/stream/index.m3u8").unwrap();
        let playlist = String::from_utf8(playlist).unwrap();
        let first = playlist.lines().find(|line| !line.starts_with('#'));
        format!("/clip.ts/hls/stream/{}", first.unwrap())
    }

    /// Sessions that there are and that there were.
    fn sessions(&self) -> (u64, u64) {
        let client = http_client::Client::connect(self.metrics).unwrap();
        let status: Value = serde_json::from_slice(&client.get("/status").unwrap()).unwrap();
        let of = |name: &str| status["sessions"][name].as_u64().unwrap();
        (of("now"), of("total"))
    }
}

/// A session over TCP that plays.
fn play(server: &Server) -> InterleavedClient {
    let mut client = InterleavedClient::connect(server.rtsp).unwrap();
    let url = server.url();
    let transport = "RTP/AVP/TCP;unicast;interleaved=0-1";
    client.set_up(&format!("{url}/track1"), transport).unwrap();
    assert_eq!(client.request("PLAY", &url, &[]).unwrap().status, 200);
    client.frame().unwrap();
    client
}

/// Where a viewer is sent, without what it is called there; and that.
fn traced(location: Option<String>) -> (String, String) {
    let location = location.expect("it is sent on");
    let (before, trace) = location.split_once("trace=").expect(&location);
    assert!(trace.len() == 16, "{location}");
    (before[..before.len() - 1].to_owned(), trace.to_owned())
}

fn assert_told(server: &Server, trace: &str, words: &[&str]) {
    let is_told = || {
        let log = server.process.log();
        let mut lines = log.lines().filter(|line| line.contains(trace));
        lines.any(|line| words.iter().all(|word| line.contains(word)))
    };
    wait_until(&format!("{trace} {words:?}"), is_told);
}

#[test]
fn the_api_sends_clients_on() {
    let server = Server::start(&[]);
    let segment = server.segment();
    assert_eq!(
        server.drain(&["--to", "rtsp://192.0.2.8:8600/"]),
        "rtsp://192.0.2.8:8600/"
    );
    let (status, location) = server.describe();
    assert_eq!(status, 302);
    let (location, trace) = traced(location);
    assert_eq!(location, "rtsp://192.0.2.8:8600/clip.ts?x=y");
    assert_told(&server, &trace, &["\"clip.ts\"", "rtsp://192.0.2.8:8600/"]);
    for target in ["/clip.ts?x=y", "/clip.ts/hls/index.m3u8?x=y"] {
        let (status, location) = server.get(target);
        assert_eq!(status, 307);
        let there = format!("http://192.0.2.8:{}{target}", server.http.port());
        assert_eq!(traced(location).0, there);
    }
    // Who has a number keeps it; what is no viewer has none.
    let playlist = "/clip.ts/hls/stream/index.m3u8";
    for target in ["/clip.ts?trace=00000000000000af", playlist, "/"] {
        let there = format!("http://192.0.2.8:{}{target}", server.http.port());
        assert_eq!(server.get(target), (307, Some(there)));
    }
    // What a playlist from here names is here: the other server may have another copy.
    assert_eq!(server.get(&segment), (200, None));
    let of_another = "/clip.ts/hls/stream/0123456789abcdef/1.ts";
    assert_eq!(server.get(of_another), (404, None));
    assert_eq!(server.get("/health"), (503, None));
    // Without a place it is a drain as ever, and none where nothing is said any more.
    assert_eq!(server.drain(&[]), Value::Null);
    assert_eq!((server.describe().0, server.get("/clip.ts").0), (200, 503));
    assert_eq!(server.drain(&["--stop"]), Value::Null);
    assert_eq!((server.describe().0, server.get("/clip.ts").0), (200, 200));
    assert_eq!(server.get("/health").0, 200);

    for to in ["http://b/", "rtsp://b/film.mp4", "rtsp://u:p@b/", "b"] {
        let (code, said) = server.ctl(&["drain", "--to", to]);
        assert_eq!(code, Some(2), "{to}: {said}");
        assert!(said.contains("write rtsp://HOST[:PORT]/"), "{said}");
        let mut client = http_client::Client::connect(server.metrics).unwrap();
        let target = format!("/api/v1/drain?to={to}");
        let host = server.metrics;
        let lines = format!("Host: {host}\r\nX-Onrush: test\r\n");
        let text = format!("PUT {target} HTTP/1.1\r\n{lines}\r\n");
        client.connection.send(text).unwrap();
        let answer = client.response(false).unwrap();
        assert_eq!(answer.status, 400, "{to}: {}", answer.text());
        assert!(answer.text().contains("write rtsp://HOST[:PORT]/"));
    }
    assert_eq!(server.describe().0, 200, "what is refused changes nothing");
}

/// TLS may end at a proxy in front.
#[test]
fn clients_keep_a_scheme_that_ends_before_the_server() {
    let server = Server::start(&["--trusted-proxies=127.0.0.1"]);
    server.drain(&["--to", "rtsp://192.0.2.8:8600/"]);
    let mut client = Client::connect(server.rtsp).unwrap();
    let url = "rtsps://films.example/clip.ts";
    let answer = client.request("DESCRIBE", url, &[]).unwrap();
    let location = answer.header("Location").map(str::to_owned);
    assert_eq!(traced(location).0, "rtsps://192.0.2.8/clip.ts");
    let ask = |at: SocketAddr, head: &str| {
        let mut client = http_client::Client::connect(at).unwrap();
        client.connection.send(format!("{head}\r\n")).unwrap();
        client.response(false).unwrap()
    };
    let get = "GET /clip.ts HTTP/1.1\r\nHost: films.example\r\n";
    for (lines, scheme) in [("", "http"), ("X-Forwarded-Proto: https\r\n", "https")] {
        let answer = ask(server.http, &format!("{get}{lines}"));
        let location = answer.header("Location").map(str::to_owned);
        let there = format!("{scheme}://192.0.2.8/clip.ts");
        assert_eq!((answer.status, traced(location).0), (307, there));
    }
    // Whose clients a proxy of the API's has, nobody knows.
    let host = server.metrics;
    let end = format!("DELETE /api/v1/drain HTTP/1.1\r\nHost: {host}\r\nX-Onrush: test\r\n");
    let through = ask(host, &format!("{end}Via: 1.1 proxy\r\n"));
    assert_eq!(through.status, 403, "{}", through.text());
    assert_eq!(ask(host, &end).status, 200);
}

#[test]
fn a_signal_sends_clients_on_and_waits_for_them() {
    for is_impatient in [false, true] {
        let mut server = Server::start(&["--drain-to", "rtsp://192.0.2.8/"]);
        let mut viewer = play(&server);
        server.process.signal(Signal::TERM).unwrap();
        let request = viewer.server_request().unwrap();
        let there = "rtsp://192.0.2.8/clip.ts";
        let location = request.header("Location").map(str::to_owned);
        let (location, trace) = traced(location);
        assert_eq!(location, there);
        assert_told(&server, &trace, &["is sent on for \"clip.ts\""]);
        let (status, location) = server.describe();
        assert_eq!((status, traced(location).0), (302, format!("{there}?x=y")));
        assert!(server.process.is_running().unwrap());
        match is_impatient {
            true => server.process.signal(Signal::TERM).unwrap(),
            false => {
                let answer = viewer.request("TEARDOWN", &server.url(), &[]);
                assert_eq!(answer.unwrap().status, 200);
            }
        }
        let status = server.process.wait(LONG).unwrap();
        assert_eq!(status.code(), Some(0), "{}", server.process.log());
    }
}

/// It asks for nothing between two of them.
#[test]
fn who_watches_in_segments_gets_them_after_a_signal() {
    let mut server = Server::start(&["--drain-to", "rtsp://192.0.2.8/"]);
    let segment = server.segment();
    assert_eq!(server.get(&segment), (200, None));
    server.process.signal(Signal::TERM).unwrap();
    let told = server.process.wait_for_line("sending clients on", LONG);
    assert!(told.is_some(), "{}", server.process.log());
    // Five times a second it looks whether anybody is left.
    thread::sleep(Duration::from_secs(2));
    assert!(server.process.is_running().unwrap());
    assert_eq!(server.get(&segment), (200, None));
    server.process.signal(Signal::TERM).unwrap();
    let status = server.process.wait(LONG).unwrap();
    assert_eq!(status.code(), Some(0), "{}", server.process.log());
}

/// Also of more than 71 minutes, in a number of more than 32 bits: else the server is killed early.
#[test]
fn a_service_manager_hears_how_long_clients_may_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(LONG)).unwrap();
    let next = || {
        let mut said = [0; 4096];
        let bytes = heard.recv(&mut said).expect("the server says something");
        String::from_utf8(said[..bytes].to_vec()).unwrap()
    };
    let mut command = Command::new(ONRUSH);
    command.env("NOTIFY_SOCKET", &path);
    let to = ["--drain-to", "rtsp://192.0.2.8/", "--drain-time-max", "2h"];
    let server = Server::start_by(command, &to);
    let ready = next();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    server.process.signal(Signal::TERM).unwrap();
    // Two hours, and the goodbye.
    assert_eq!(next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=7220000000\n");
}

/// Nobody waits for an answer that does not come, and what is not heard is in the log.
#[test]
fn while_clients_are_sent_on_nothing_is_reloaded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onrush.toml");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let server = Server::start(&["--drain-to", "rtsp://192.0.2.8/", "--config", file]);
    let (code, said) = server.ctl(&["reload"]);
    assert_eq!(code, Some(0), "{said}");
    let mut viewer = play(&server);
    server.process.signal(Signal::TERM).unwrap();
    viewer.server_request().unwrap();
    let (code, said) = server.ctl(&["reload"]);
    assert!(code == Some(1) && said.contains("drains"), "{said}");
    server.process.signal(Signal::HUP).unwrap();
    let line = server.process.wait_for_line("SIGHUP: ", LONG);
    assert!(line.is_some(), "{}", server.process.log());
}

/// `ffmpeg` counts the pictures that it gets from there.
fn ffmpeg(transport: &str, url: &str) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-rtsp_transport", transport]);
    command.args(["-i", url, "-c", "copy", "-progress", "-", "-f", "null", "-"]);
    command
}

fn pictures(log: &str) -> u64 {
    let last = log
        .lines()
        .rev()
        .find_map(|line| line.split("frame=").nth(1));
    last.unwrap_or_else(|| panic!("{log}"))
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn players_follow_to_the_other_server() {
    require_programs!("ffmpeg", "gst-launch-1.0");
    let (server, other) = (Server::start(&[]), Server::start(&[]));
    server.drain(&["--to", &format!("rtsp://{}/", other.rtsp)]);
    for transport in ["tcp", "udp"] {
        let (status, log) = Process::run(&mut ffmpeg(transport, &server.url()), LONG).unwrap();
        assert!(status.success() && pictures(&log) > 10, "{log}");
    }
    let mut gst = Command::new("gst-launch-1.0");
    gst.args(["-q", "rtspsrc", "protocols=tcp"]);
    gst.arg(format!("location={}", server.url()));
    gst.args(["!", "rtpmp2tdepay", "!", "fakesink"]);
    gst_plays_to_the_end(&mut gst);
    let log = server.process.log();
    let mut traces = log.lines().filter_map(|line| line.split_once(" trace "));
    let (_, of_first) = traces.next().expect(&log);
    assert_told(&other, &of_first[..16], &["session ", " starts: "]);
    assert_eq!((server.sessions().1, other.sessions().1), (0, 3));
}

#[test]
fn players_that_know_no_redirect_play_on() {
    require_programs!("ffmpeg");
    let server = Server::start(&[]);
    let count = |is_drained: bool| {
        let before = server.sessions().1;
        let mut player = Process::start(&mut ffmpeg("tcp", &server.url())).unwrap();
        wait_until("it plays", || {
            server.sessions().1 > before && server.ctl(&["sessions"]).1.contains("\"playing\"")
        });
        if is_drained {
            server.drain(&["--to", "rtsp://192.0.2.8/"]);
        }
        assert!(player.wait(LONG).unwrap().success(), "{}", player.log());
        pictures(&player.log())
    };
    let undisturbed = count(false);
    assert_eq!(count(true), undisturbed);
}

#[test]
fn a_publisher_that_knows_no_redirect_goes_on() {
    require_programs!("ffmpeg");
    let server = Server::start(&[]);
    let url = format!("rtsp://{}/live/cam", server.rtsp);
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-stream_loop", "-1", "-re"]);
    command
        .arg("-i")
        .arg(DEMO)
        .args(["-map", "0:v", "-c", "copy"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp", &url]);
    let mut publisher = Process::start(&mut command).unwrap();
    let taken = || {
        let client = http_client::Client::connect(server.metrics).unwrap();
        let status: Value = serde_json::from_slice(&client.get("/status").unwrap()).unwrap();
        status["channels"][0]["received"]["rtp"]
            .as_u64()
            .unwrap_or(0)
    };
    wait_until("it publishes", || taken() > 100);
    server.drain(&["--to", "rtsp://192.0.2.8/"]);
    // Far more than was on its way.
    let told_at = taken();
    wait_until("it goes on", || taken() > told_at + 500);
    assert!(publisher.is_running().unwrap(), "{}", publisher.log());
    let mut client = Client::connect(server.rtsp).unwrap();
    let answer = client.request("DESCRIBE", &url, &[]).unwrap();
    let location = answer.header("Location").map(str::to_owned);
    assert_eq!(traced(location).0, "rtsp://192.0.2.8/live/cam");
}
