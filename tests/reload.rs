//! A server takes a changed file while it plays, all of it or nothing; and its API, which can ask
//! it to.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use onrush_testkit::http_client;
use onrush_testkit::interleaved::InterleavedClient;
use onrush_testkit::process::Process;
use onrush_testkit::rtsp_client::Client;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use common::{DEMO, LONG, ONRUSH};

mod common;

/// A server, and the file that it is told by.
struct Site {
    server: Process,
    file: PathBuf,
    folder: TempDir,
    rtsp: SocketAddr,
    metrics: SocketAddr,
    reloads: usize,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("films")).unwrap();
        fs::copy(DEMO, folder.path().join("films/demo.ts")).unwrap();
        // Nobody but those that it names may do anything.
        fs::write(folder.path().join("users"), "realm films\n").unwrap();
        let file = folder.path().join("onrush.toml");
        fs::write(&file, text(&folder, "")).unwrap();
        let mut command = Command::new(ONRUSH);
        command.args(["serve", "--config"]).arg(&file);
        let server = Process::start(&mut command).unwrap();
        let address = |begin: &str| {
            let line = server.wait_for_line(begin, LONG);
            let line = line.unwrap_or_else(|| panic!("{}", server.log()));
            let address = line.split("//").nth(1).unwrap().split('/').next().unwrap();
            address.parse().unwrap()
        };
        let rtsp = address("listening  rtsp://");
        let metrics = address("metrics    http://");
        server.wait_for_line("stopping", LONG).unwrap();
        Self {
            server,
            file,
            folder,
            rtsp,
            metrics,
            reloads: 0,
        }
    }

    /// Writes the file with `more` in it, has it read, and gives the line that the log has of it.
    fn reload(&mut self, more: &str) -> String {
        fs::write(&self.file, text(&self.folder, more)).unwrap();
        self.reloads += 1;
        self.server.signal(Signal::HUP).unwrap();
        let lines = self.server.wait_for_lines("reload: ", self.reloads, LONG);
        lines.last().unwrap().clone()
    }

    /// The exit code of `onrush ctl`, and what it prints.
    fn ctl(&self, words: &[&str]) -> (i32, String) {
        let at = self.metrics.to_string();
        let mut command = Command::new(ONRUSH);
        let output = command
            .args(["ctl", "--at", &at])
            .args(words)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), said + &error)
    }

    fn json(&self, words: &[&str]) -> Value {
        let (code, said) = self.ctl(words);
        assert_eq!(code, 0, "{words:?}: {said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"))
    }

    fn ask(&self, method: &str, target: &str, more: &str) -> http_client::Response {
        let mut client = http_client::Client::connect(self.metrics).unwrap();
        let host = self.metrics;
        let text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
        client.connection.send(text).unwrap();
        client.response(false).unwrap()
    }

    fn describe(&self) -> u16 {
        let mut client = Client::connect(self.rtsp).unwrap();
        let url = format!("rtsp://{}/demo.ts", self.rtsp);
        client.request("DESCRIBE", &url, &[]).unwrap().status
    }
}

fn text(folder: &TempDir, more: &str) -> String {
    let films = folder.path().join("films");
    let more = more.replace("FOLDER", folder.path().to_str().unwrap());
    format!(
        "[library]\nfolder = {films:?}\nstate = \"off\"\n[server]\ncache = \"8MiB\"\n\
         [listen]\nrtsp = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\n{more}"
    )
}

/// A session over TCP that plays.
fn play(rtsp: SocketAddr) -> InterleavedClient {
    let mut client = InterleavedClient::connect(rtsp).unwrap();
    let url = format!("rtsp://{rtsp}/demo.ts");
    let described = client.request("DESCRIBE", &url, &[]).unwrap();
    assert_eq!(described.status, 200, "{described:?}");
    let transport = "RTP/AVP/TCP;unicast;interleaved=0-1";
    client.set_up(&format!("{url}/track1"), transport).unwrap();
    let played = client.request("PLAY", &url, &[]).unwrap();
    assert_eq!(played.status, 200, "{played:?}");
    client
}

// SPECIFICATION.md: 63
#[test]
fn a_changed_file_is_taken_while_sessions_play() {
    let mut site = Site::start();
    let mut playing = play(site.rtsp);
    playing.frame().unwrap();

    let taken = site.reload("[users]\nfile = \"FOLDER/users\"\n[limits]\nsessions_max = 3\n");
    assert!(
        taken.contains("changed: users.file, limits.sessions_max"),
        "{taken}"
    );
    assert_eq!(site.describe(), 403, "what is new counts for who comes");
    for _ in 0..100 {
        playing.frame().unwrap();
    }

    // All, or nothing: users would be let in again.
    let refused = site.reload("http = \"127.0.0.1:0\"\n");
    assert!(
        refused.contains("needs a restart: listen.http"),
        "{refused}"
    );
    assert_eq!(site.describe(), 403);
    let refused = site.reload("[limits]\nsesions_max = 3\n");
    assert!(
        refused.contains("onrush.toml:10:1: limits.sesions_max"),
        "{refused}"
    );
    assert_eq!(site.describe(), 403);
    let refused = site.reload("[users]\nfile = \"FOLDER/nobody\"\n");
    assert!(refused.contains("nobody: No such file"), "{refused}");
    assert_eq!(site.describe(), 403);
    let refused = site.reload("[limits]\nsessions_max = 20000\n");
    assert!(refused.contains("more need a restart"), "{refused}");
    assert_eq!(site.describe(), 403);

    let taken = site.reload("");
    assert!(
        taken.contains("changed: users.file, limits.sessions_max"),
        "{taken}"
    );
    assert_eq!(site.describe(), 200);
    playing.frame().unwrap();
    assert_eq!(site.server.interrupt(LONG).unwrap().code(), Some(0));
}

#[test]
fn a_lower_limit_is_for_who_comes() {
    let mut site = Site::start();
    let mut playing = play(site.rtsp);
    site.reload("[limits]\nsessions_max = 1\n");
    let mut client = InterleavedClient::connect(site.rtsp).unwrap();
    let url = format!("rtsp://{}/demo.ts/track1", site.rtsp);
    let transport = [("Transport", "RTP/AVP/TCP;unicast;interleaved=0-1")];
    assert_eq!(
        client.request("SETUP", &url, &transport).unwrap().status,
        453
    );
    playing.frame().unwrap();
    site.reload("");
    assert_eq!(
        client.request("SETUP", &url, &transport).unwrap().status,
        200
    );
}

#[test]
fn channels_that_are_pulled_come_and_go() {
    let mut site = Site::start();
    let camera = |name: &str, port: u16| {
        format!("[[channel]]\nname = \"{name}\"\ninput = \"rtsp://127.0.0.1:{port}/x\"\n")
    };
    let (door, yard) = (camera("door", 9), camera("yard", 9));
    let taken = site.reload(&format!("{door}{yard}"));
    assert!(taken.contains("changed: channel.input"), "{taken}");
    // Nobody is there, which is said once for each.
    site.server
        .wait_for_line("channel live/door: rtsp://127.0.0.1:9", LONG)
        .unwrap();
    site.server
        .wait_for_line("channel live/yard: rtsp://127.0.0.1:9", LONG)
        .unwrap();
    site.reload(&format!("{door}{}", camera("yard", 7)));
    site.server
        .wait_for_line("channel live/yard: rtsp://127.0.0.1:7", LONG)
        .unwrap();
    let log = site.server.log();
    assert_eq!(
        log.matches("channel live/door: rtsp://").count(),
        1,
        "{log}"
    );
    let refused = site.reload("[[channel]]\nname = \"tv\"\ninput = 5004\n");
    assert!(
        refused.contains("needs a restart: channel.input of what comes by UDP"),
        "{refused}"
    );
    site.reload("");
}

/// The server is its own camera.
#[test]
fn a_pulled_channel_that_is_let_go_is_asked_again() {
    let mut site = Site::start();
    let url = format!("rtsp://{}/demo.ts", site.rtsp);
    // Some have their password in the query.
    let channel = format!("[[channel]]\nname = \"door\"\ninput = \"{url}?password=hidden\"\n");
    let taken = site.reload(&channel);
    assert!(taken.contains("changed: channel.input"), "{taken}");
    let pulled = format!("channel live/door is pulled from {url}?...");
    let once = site.server.wait_for_line(&pulled, LONG);
    assert!(once.is_some(), "{}", site.server.log());
    assert_eq!(site.ctl(&["dismiss", "live/door"]), (0, String::new()));
    // Not because the film is over, and nothing comes of it.
    let let_go = format!("channel live/door: {url}?...: it is let go");
    let let_go = site.server.wait_for_line(&let_go, LONG);
    assert!(let_go.is_some(), "{}", site.server.log());
    let twice = site.server.wait_for_lines(&pulled, 2, LONG);
    assert_eq!(twice.len(), 2, "{}", site.server.log());
    let (_, channels) = site.ctl(&["channels"]);
    assert!(channels.contains("/demo.ts?..."), "{channels}");
    for said in [channels, site.server.log()] {
        assert!(!said.contains("hidden"), "{said}");
    }
}

/// No path is described that is not there, and none answers a method that it is not said to.
#[test]
fn the_api_answers_all_that_it_describes() {
    let site = Site::start();
    let description = site.json(&["api"]);
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() >= 8, "{description}");
    for (path, methods) in paths {
        let target = path.replace("{id}", "0").replace("{channel}", "live/none");
        for method in ["get", "put", "post", "delete"] {
            let answer = site.ask(&method.to_uppercase(), &target, "X-Onrush: 1\r\n");
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            let is_described = methods.get(method).is_some();
            assert_eq!(
                answer.status != 405,
                is_described,
                "{method} {path}: {said}"
            );
            assert_eq!(answer.header("Allow").is_some(), answer.status == 405);
            let is_error = !matches!(answer.status, 200 | 204);
            assert!(
                !is_error || said.contains("\"error\""),
                "{method} {path}: {said}"
            );
        }
    }
    // Another site's page cannot; and a program reads why in the same form as all else.
    let own = "X-Onrush: 1\r\n";
    for (method, target, lines, status) in [
        ("PUT", "/api/v1/drain", "", 403),
        ("GET", "/api/v1/sessions?first=x", "", 400),
        ("GET", "/api/v1/nothing", "", 404),
        ("DELETE", "/api/v1/sessions/%ff", own, 400),
        ("DELETE", "/api/v1/publishers/live/%ff", own, 400),
        ("DELETE", "/api/v1/cluster/%ff", own, 400),
        ("POST", "/api/v1/limits", own, 405),
    ] {
        let answer = site.ask(method, target, lines);
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(answer.header("Content-Type"), Some("application/json"));
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(said["error"].is_string(), "{said}");
    }
}

#[test]
fn sessions_are_listed_and_ended_by_the_api() {
    let site = Site::start();
    let mut playing = play(site.rtsp);
    let listed = site.json(&["sessions"]);
    assert_eq!((&listed["all"], &listed["found"]), (&1.into(), &1.into()));
    assert_eq!(site.json(&["sessions", "no such film"])["found"], 0);
    assert_eq!(site.json(&["limits"])["sessions_max"], 16_384);
    assert_eq!(site.json(&["channels"])["channels"], serde_json::json!([]));
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    assert_eq!(site.ctl(&["end", id]), (0, String::new()));
    while playing.frame().is_ok() {}
    let (code, said) = site.ctl(&["end", "0"]);
    assert!(code == 1 && said.contains("no such session"), "{said}");
    let (code, said) = site.ctl(&["dismiss", "live/none"]);
    assert!(
        code == 1 && said.contains("nobody publishes this"),
        "{said}"
    );
}

#[test]
fn a_server_that_drains_says_when_it_is_empty() {
    let site = Site::start();
    let mut playing = play(site.rtsp);
    let drained = site.json(&["drain"]);
    assert_eq!(
        (&drained["is_draining"], &drained["sessions"]),
        (&true.into(), &1.into())
    );
    let mut client = InterleavedClient::connect(site.rtsp).unwrap();
    let url = format!("rtsp://{}/demo.ts/track1", site.rtsp);
    let transport = [("Transport", "RTP/AVP/TCP;unicast;interleaved=0-1")];
    assert_eq!(
        client.request("SETUP", &url, &transport).unwrap().status,
        453
    );
    playing.frame().unwrap();
    let film = format!("rtsp://{}/demo.ts", site.rtsp);
    playing.request("TEARDOWN", &film, &[]).unwrap();
    drop(playing);
    assert_eq!(site.json(&["drain", "--wait"])["is_empty"], true);
    assert_eq!(site.json(&["drain", "--stop"])["is_draining"], false);
    assert_eq!(
        client.request("SETUP", &url, &transport).unwrap().status,
        200
    );
}

#[test]
fn a_reload_can_be_asked_for() {
    let site = Site::start();
    fs::write(
        &site.file,
        text(&site.folder, "[limits]\nsessions_max = 7\n"),
    )
    .unwrap();
    let changed = site.json(&["reload"]);
    assert_eq!(
        changed["changed"],
        serde_json::json!(["limits.sessions_max"])
    );
    assert_eq!(site.json(&["limits"])["sessions_max"], 7);
    fs::write(&site.file, text(&site.folder, "ftp = 0\n")).unwrap();
    let (code, said) = site.ctl(&["reload"]);
    assert!(
        code == 1 && said.contains("needs a restart: listen.ftp"),
        "{said}"
    );
    assert_eq!(site.json(&["limits"])["sessions_max"], 7);
}

/// Where there is no API nobody asks, again and again.
#[test]
fn without_an_api_a_signal_reloads_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("films")).unwrap();
    let file = folder.path().join("onrush.toml");
    fs::write(&file, text(&folder, "")).unwrap();
    let mut command = Command::new(ONRUSH);
    command
        .args(["serve", "--metrics=off", "--config"])
        .arg(&file);
    let mut server = Process::start(&mut command).unwrap();
    assert!(
        server.wait_for_line("stopping", LONG).is_some(),
        "{}",
        server.log()
    );
    server.signal(Signal::HUP).unwrap();
    assert!(
        server
            .wait_for_line("reload: what is said is as before", LONG)
            .is_some()
    );
    assert_eq!(server.interrupt(LONG).unwrap().code(), Some(0));
    let log = server.log();
    assert_eq!(log.matches("reload: ").count(), 1, "{log}");
}
