//! Users, by other people's programs: players and downloaders log in by Digest and Basic, over
//! RTSP, HTTP and FTP; signed URLs; a service that decides; and floods of wrong passwords.

#![allow(
    clippy::print_stdout,
    reason = "what players say, and what is measured, is for whoever reads the test's output"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onrush_server::admin::status::{Status, Users};
use onrush_testkit::http_client::{self, Response};
use onrush_testkit::media::age;
use onrush_testkit::process::Process;
use onrush_testkit::rtsp_client::{self, Ports};
use onrush_testkit::testbed::Mode;
use onrush_testkit::{require_programs, require_root};
use onrush_wire::auth::{Algorithm, Answering, Challenge, Credentials, ha1};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use common::{DEMO, gst_plays_to_the_end};
use download_site::{LONG, ONRUSH, Raw, Site, Tokens, bytes, run};

mod common;
mod download_site;

const PASSWORD: &str = "open: se%same";
const PASSWORD_IN_URL: &str = "open%3A%20se%25same";
const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Of `onrush user`, with the password on stdin.
fn user(arguments: &[&str], password: &str) -> Output {
    let mut command = Command::new(ONRUSH);
    command.arg("user").args(arguments).stdin(Stdio::piped());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let line = format!("{password}\n");
    // A command that refuses may not have read it.
    let _written = child.stdin.take().unwrap().write_all(line.as_bytes());
    child.wait_with_output().unwrap()
}

/// A file of anna, who may all, and of tom, whose password is kept by Argon2; everybody may have
/// what is in `open/`.
fn users_file(folder: &Path) -> PathBuf {
    let file = folder.join("users");
    let name = file.to_str().unwrap();
    for arguments in [
        &["add", name, "anna"][..],
        &["add", name, "tom", "--keep=argon2"],
    ] {
        let output = user(arguments, PASSWORD);
        assert!(output.status.success(), "{output:?}");
    }
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "group everybody play,download /open/**\n").unwrap();
    file
}

fn fill(root: &Path) {
    fs::create_dir(root.join("open")).unwrap();
    for name in ["film.ts", "open/film.ts"] {
        let demo = fs::read(DEMO).unwrap();
        fs::write(root.join(name), &demo[..188 * 4000]).unwrap();
        age(&root.join(name)).unwrap();
    }
    fs::write(root.join("data"), bytes(100_000)).unwrap();
}

/// A server of that file, on loopback.
fn site(options: &[&str]) -> (Site, TempDir, SocketAddr) {
    let folder = tempfile::tempdir().unwrap();
    let users = format!("--users={}", users_file(folder.path()).display());
    let options = [&[&*users, "--metrics=127.0.0.1:0"], options].concat();
    let (site, metrics) = site_of(&options);
    (site, folder, metrics)
}

fn site_of(options: &[&str]) -> (Site, SocketAddr) {
    site_by(Command::new(ONRUSH), options)
}

/// The same, by a command that starts the server.
fn site_by(command: Command, options: &[&str]) -> (Site, SocketAddr) {
    let site = Site::by(command, options, fill);
    let line = site.server.wait_for_line("/metrics", LONG).unwrap();
    let address = line.split("http://").nth(1).unwrap();
    let metrics = address.split('/').next().unwrap().parse().unwrap();
    (site, metrics)
}

fn counted(metrics: SocketAddr) -> Users {
    let status = Raw::connect(metrics).request("GET", "/status", "").body;
    serde_json::from_slice::<Status>(&status).unwrap().users
}

/// Whether a program ends well; what it says is in the test's output.
fn is_well(command: &mut Command) -> bool {
    let output = command.output().unwrap();
    println!("{command:?}: {output:?}");
    output.status.success()
}

/// ffprobe, which must find pictures; with what it says otherwise.
fn probe(url: &str) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.args(["60", "ffprobe", "-v", "error", "-rtsp_transport", "udp"]);
    command.args(["-show_entries", "stream=codec_name", url]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() && said.contains("h264") {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Whether GStreamer gets a hundred transport packets. How it ends says nothing: it now and then
/// fails to say PAUSE.
fn gst_plays(source: &[&str]) -> bool {
    let out = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("gst-launch-1.0");
    command
        .args(["-q", "rtspsrc", "protocols=udp"])
        .args(source);
    command.args(["!", "rtpmp2tdepay", "!", "filesink", "buffer-mode=2"]);
    command.arg(format!("location={}", out.path().display()));
    let mut player = Process::start(&mut command).unwrap();
    let give_up = Instant::now() + LONG;
    while out.as_file().metadata().unwrap().len() < 100 * 188 {
        if !player.is_running().unwrap() || Instant::now() > give_up {
            println!("{source:?}: {}", player.log_tail());
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    player.interrupt(LONG).unwrap();
    true
}

#[test]
fn players_log_in_by_digest() {
    require_programs!("ffprobe", "ffmpeg");
    let (site, _folder, metrics) = site(&[]);
    let rtsp = site.rtsp;
    let url = |user: &str| format!("rtsp://{user}{rtsp}/film.ts");
    let right = format!("anna:{PASSWORD_IN_URL}@");
    assert_eq!(probe(&url(&right)), Ok(()));
    let after = counted(metrics);
    assert!(after.challenged > 0 && after.allowed > 0, "{after:?}");
    for wrong in ["anna:x@", "", "nobody:x@"] {
        let said = probe(&url(wrong)).unwrap_err();
        assert!(said.contains("401"), "{wrong}: {said}");
    }
    assert_eq!(counted(metrics).allowed, after.allowed);
    // No password where everybody may; and Basic, which is all that tom has.
    assert_eq!(probe(&format!("rtsp://{rtsp}/open/film.ts")), Ok(()));
    let mut whole = Command::new("timeout");
    whole.args([
        "60",
        "ffmpeg",
        "-v",
        "error",
        "-rtsp_transport",
        "udp",
        "-i",
    ]);
    whole.args([&url(&right), "-t", "1", "-f", "null", "-"]);
    assert!(is_well(&mut whole));
}

/// What `onrush ctl limits` prints, and whether it ends well.
fn ctl(at: &str, (variable, value): (&str, &str)) -> (bool, String) {
    let mut command = Command::new(ONRUSH);
    command.args(["ctl", "--at", at, "limits"]);
    let output = command.env(variable, value).output().unwrap();
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.success(), said.concat())
}

/// Takes a connection for each of these answers, and gives the heads of what was asked.
fn answering(answers: Vec<String>) -> (SocketAddr, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = move || {
        let answered = answers.into_iter().map(|answer| {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(LONG)).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            socket.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(head).unwrap()
        });
        answered.collect::<Vec<_>>()
    };
    (address, thread::spawn(asked))
}

/// The credentials in a head.
fn credentials(head: &str) -> Option<Credentials> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let (_, value) = lines.find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?;
    Some(Credentials::parse(value).unwrap())
}

/// As a server asks from afar, where it takes no password itself.
#[test]
fn ctl_logs_in_by_digest_and_by_token() {
    let head = |status: &str| format!("HTTP/1.1 {status}\r\nConnection: close\r\n");
    let challenge = Challenge::Digest {
        algorithm: Algorithm::Sha256,
        realm: "films",
        nonce: "abc",
        is_stale: false,
    };
    let asks = format!("WWW-Authenticate: {challenge}\r\nContent-Length: 0\r\n\r\n");
    let takes = "Content-Length: 2\r\n\r\n{}";
    let (at, asked) = answering(vec![
        head("401 Unauthorized") + &asks,
        head("200 OK") + takes,
        head("200 OK") + takes,
    ]);
    let (is_well, said) = ctl(&format!("http://b%40t@{at}"), ("ONRUSH_PASSWORD", PASSWORD));
    assert!(is_well, "{said}");
    let (is_well, said) = ctl(&at.to_string(), ("ONRUSH_TOKEN", "a.b.c"));
    assert!(is_well, "{said}");
    let heads = asked.join().unwrap();
    assert_eq!(credentials(&heads[0]), None);
    let Some(Credentials::Digest(digest)) = credentials(&heads[1]) else {
        panic!("{heads:?}");
    };
    assert_eq!((&*digest.user, &*digest.uri), ("b@t", "/api/v1/limits"));
    let known = ha1(Algorithm::Sha256, "b@t", "films", PASSWORD);
    assert!(digest.proves(&known, "GET"), "{heads:?}");
    let token = Credentials::Bearer("a.b.c".to_owned());
    assert_eq!(credentials(&heads[2]), Some(token));
}

/// Also those whose password is kept by Argon2, and whose name is not plain in a URL.
#[test]
fn ctl_logs_in_whoever_may() {
    let folder = tempfile::tempdir().unwrap();
    let file = users_file(folder.path());
    let output = user(&["add", file.to_str().unwrap(), "b@t"], PASSWORD);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "group viewers admin /admin\n").unwrap();
    let users = format!("--users={}", file.display());
    let (_site, metrics) = site_of(&[&users, "--metrics=127.0.0.1:0"]);
    for user in ["anna", "tom", "b%40t"] {
        let at = format!("http://{user}@{metrics}");
        let (is_well, said) = ctl(&at, ("ONRUSH_PASSWORD", PASSWORD));
        assert!(is_well && said.contains("sessions_max"), "{user}: {said}");
        let (is_well, said) = ctl(&at, ("ONRUSH_PASSWORD", "wrong"));
        assert!(!is_well && said.contains("is wrong"), "{user}: {said}");
    }
}

#[test]
fn gstreamer_logs_in_by_digest() {
    require_programs!("gst-launch-1.0");
    let (site, _folder, metrics) = site(&[]);
    let location = format!("location=rtsp://{}/film.ts", site.rtsp);
    let password = format!("user-pw={PASSWORD}");
    let plays = |password: &str| gst_plays(&[&location, "user-id=anna", password]);
    assert!(plays(&password));
    let after = counted(metrics);
    assert!(after.challenged > 0 && after.allowed >= 2, "{after:?}");
    assert!(!plays("user-pw=wrong"));
    assert_eq!(counted(metrics).allowed, after.allowed);
}

#[test]
fn mpv_logs_in_by_digest() {
    require_programs!("mpv");
    let (site, _folder, metrics) = site(&[]);
    let plays = |password: &str| {
        let url = format!("rtsp://anna:{password}@{}/film.ts", site.rtsp);
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "mpv",
            "--no-config",
            "--rtsp-transport=udp",
            "--vo=null",
        ]);
        command.args(["--ao=null", "--untimed", "--frames=10", &url]);
        is_well(&mut command)
    };
    assert!(plays(PASSWORD_IN_URL));
    let after = counted(metrics);
    assert!(after.challenged > 0 && after.allowed > 0, "{after:?}");
    assert!(!plays("wrong"));
    assert_eq!(counted(metrics).allowed, after.allowed);
}

#[test]
fn downloaders_log_in_by_http() {
    require_programs!("curl", "wget", "lftp");
    let (site, folder, metrics) = site(&[]);
    let folder = folder.path();
    let url = site.url("data");
    let is_data = |name: &str| {
        assert!(
            fs::read(folder.join(name)).unwrap() == bytes(100_000),
            "{name}"
        );
        fs::remove_file(folder.join(name)).unwrap();
    };
    let curl = |user: &str, how: &[&str]| {
        let user = format!("{user}:{PASSWORD}");
        let fixed = [
            "-sS",
            "--fail",
            "--max-time",
            "60",
            "-o",
            "curl",
            "-u",
            &*user,
        ];
        run(folder, "curl", &[&fixed, how, &[&*url]].concat());
        is_data("curl");
    };
    for (user, how) in [
        ("anna", "--digest"),
        ("anna", "--basic"),
        ("anna", "--anyauth"),
        ("tom", "--basic"),
    ] {
        curl(user, &[how]);
    }
    let refused = Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--digest",
            "-u",
            "anna:x",
            &url,
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "401");
    let password = format!("--password={PASSWORD}");
    run(
        folder,
        "wget",
        &["-q", "-O", "wget", "--user=anna", &password, &url],
    );
    is_data("wget");
    let from = format!("http://anna:{PASSWORD_IN_URL}@{}/data", site.http);
    let script = format!("set net:max-retries 2; set net:timeout 20; get {from} -o lftp");
    run(folder, "lftp", &["-c", &script]);
    is_data("lftp");
    let after = counted(metrics);
    assert!(after.allowed >= 6 && after.wrong == 1, "{after:?}");
}

#[test]
fn ftp_takes_users_and_what_is_everybodys() {
    require_programs!("curl", "lftp");
    let (site, folder, _) = site(&[]);
    let folder = folder.path();
    let url = site.ftp_url("data");
    for name in ["anna", "tom"] {
        let user = format!("{name}:{PASSWORD}");
        run(
            folder,
            "curl",
            &["-sS", "--fail", "-u", &user, "-o", "curl", &url],
        );
        assert!(fs::read(folder.join("curl")).unwrap() == bytes(100_000));
    }
    let script = format!("get ftp://anna:{PASSWORD_IN_URL}@{}/data -o lftp", site.ftp);
    run(folder, "lftp", &["-c", &script]);
    assert!(fs::read(folder.join("lftp")).unwrap() == bytes(100_000));
    let wrong = ["-sS", "--fail", "-u", "anna:x", &url];
    // CURLE_LOGIN_DENIED
    assert_eq!(
        Command::new("curl")
            .args(wrong)
            .output()
            .unwrap()
            .status
            .code(),
        Some(67)
    );
    // As anonymous, which curl is by itself.
    run(
        folder,
        "curl",
        &["-sS", "--fail", "-o", "open", &site.ftp_url("open/film.ts")],
    );
    let mut raw = Raw::connect(site.ftp);
    assert_eq!(raw.reply().0, 220);
    for (line, code) in [
        ("PWD", 530),
        ("USER anonymous", 331),
        ("PASS a@b", 230),
        ("SIZE open/film.ts", 213),
        ("SIZE data", 530),
        ("CWD open", 250),
        ("USER anna", 331),
        ("PASS wrong", 530),
        ("SIZE open/film.ts", 530),
        ("USER anna", 331),
        (&format!("PASS {PASSWORD}"), 230),
        ("SIZE /data", 213),
        ("SIZE /none", 550),
    ] {
        assert_eq!(raw.command(line), code, "{line}");
    }
}

#[test]
fn a_signed_url_plays_and_downloads() {
    require_programs!("ffprobe", "curl", "gst-launch-1.0");
    let keys = tempfile::NamedTempFile::new().unwrap();
    fs::write(keys.path(), "a key of which there is no other\n").unwrap();
    let keys = keys.path().to_str().unwrap();
    let (site, _folder, _) = site(&["--url-keys", keys]);
    let sign = |url: &str, more: &[&str]| {
        let arguments = [&["sign", url, "--keys", keys], more].concat();
        let output = Command::new(ONRUSH).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let signed = sign(&format!("rtsp://{}/film.ts", site.rtsp), &[]);
    assert_eq!(probe(&signed), Ok(()));
    let location = format!("location={signed}");
    assert!(gst_plays(&[&location]));
    assert_eq!(probe(&format!("{signed}&tracks=elementary")), Ok(()));
    // Of another path, it is none.
    let other = signed.replace("/film.ts", "/open/../film.ts");
    assert!(probe(&other).is_err());
    let status = |url: &str| Raw::connect(site.http).request("GET", url, "").status;
    let target = |url: &str| url.split_once(&site.http.to_string()).unwrap().1.to_owned();
    let signed = target(&sign(&site.url("data"), &["--rights=download"]));
    assert_eq!(status(&signed), 200);
    assert_eq!(status(&signed.replace("/data", "/film.ts")), 403);
    assert_eq!(
        status(&target(&sign(&site.url("data"), &["--rights=play"]))),
        401
    );
    let short = target(&sign(&site.url("data"), &["--expires=1s"]));
    thread::sleep(Duration::from_secs(2));
    assert_eq!(status(&short), 403);
    let by_ftp = |url: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "-o", "-", url]);
        command.output().unwrap().stdout == bytes(100_000)
    };
    let url = site.ftp_url("data");
    let signed = sign(&url, &["--rights=download"]);
    assert!(by_ftp(&signed));
    assert!(!by_ftp(&url));
    assert!(!by_ftp(&signed.replace("/data", "/film.ts")));
    assert!(!by_ftp(&sign(&url, &["--rights=play"])));
    let mut raw = Raw::connect(site.ftp);
    assert_eq!(raw.reply().0, 220);
    assert_eq!(raw.command("USER anonymous"), 331);
    assert_eq!(raw.command("PASS a@b"), 230);
    assert_eq!(raw.command("SIZE data"), 530);
    let query = signed.split_once("/data%3F").unwrap().1;
    assert_eq!(raw.command(&format!("SIZE data?{query}")), 213);
    let forged = query.replace("expires=", "expires=1");
    assert_eq!(raw.command(&format!("SIZE data?{forged}")), 550);
}

/// A service that lets whoever knows the password have what is not forbidden.
fn service() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut text = Vec::new();
            let question: serde_json::Value = loop {
                let mut read = [0; 4096];
                let count = socket.read(&mut read).unwrap();
                text.extend(&read[..count]);
                let body = text.windows(4).position(|four| four == b"\r\n\r\n");
                let json = body.map(|at| serde_json::from_slice(&text[at + 4..]));
                if let Some(Ok(json)) = json {
                    break json;
                }
                assert!(count > 0);
            };
            let status = match (&question["path"], &question["user"], &question["password"]) {
                (path, _, _) if path == "film.ts" => "403 Forbidden",
                (_, user, password) if user == "eva" && password == PASSWORD => "200 OK",
                (_, user, _) if user.is_null() => "401 Unauthorized",
                _ => "401 Unauthorized",
            };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn a_hook_decides_for_all_protocols() {
    require_programs!("ffprobe", "curl");
    let hook = format!("--auth-hook=http://{}/may", service());
    let (site, _) = site_of(&[&hook, "--metrics=127.0.0.1:0"]);
    let folder = tempfile::tempdir().unwrap();
    let user = format!("eva:{PASSWORD}");
    for url in [site.url("data"), site.ftp_url("data")] {
        run(
            folder.path(),
            "curl",
            &["-sS", "--fail", "-u", &user, "-o", "x", &url],
        );
        assert!(fs::read(folder.path().join("x")).unwrap() == bytes(100_000));
    }
    let play =
        |name: &str, password: &str| probe(&format!("rtsp://eva:{password}@{}/{name}", site.rtsp));
    assert_eq!(play("open/film.ts", PASSWORD_IN_URL), Ok(()));
    assert!(play("open/film.ts", "x").unwrap_err().contains("401"));
    for name in ["film.ts", "film.ts?tracks=elementary"] {
        assert!(play(name, PASSWORD_IN_URL).unwrap_err().contains("403"));
    }
}

// SPECIFICATION.md: 58
#[test]
fn a_changed_file_of_users_counts_at_once() {
    let (site, folder, _) = site(&[]);
    let status_of = |basic: &str| {
        let basic = format!("Authorization: Basic {basic}\r\n");
        let mut raw = Raw::connect(site.http);
        raw.request("GET", "/data", &basic).status
    };
    let status = || status_of("ZXZhOng=");
    assert_eq!(status(), 401);
    let file = folder.path().join("users");
    let name = file.to_str().unwrap();
    assert!(user(&["add", name, "eva"], "x").status.success());
    let wait_for = |basic: &str| {
        let give_up = Instant::now() + LONG;
        while status_of(basic) != 200 {
            assert!(Instant::now() < give_up, "{}", site.server.log_tail());
            // Not more than an address may send.
            thread::sleep(Duration::from_secs(1));
        }
    };
    wait_for("ZXZhOng=");
    let mut raw = Raw::connect(site.ftp);
    assert_eq!(raw.reply().0, 220);
    for (line, code) in [("USER eva", 331), ("PASS x", 230), ("SIZE data", 213)] {
        assert_eq!(raw.command(line), code, "{line}");
    }
    let listed = user(&["list", name], "");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed, "anna\tviewers\neva\tviewers\ntom\tviewers\n");
    assert!(user(&["remove", name, "eva"], "").status.success());
    assert_eq!(user(&["remove", name, "eva"], "").status.code(), Some(2));
    let give_up = Instant::now() + LONG;
    while status() != 401 {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
        thread::sleep(Duration::from_millis(100));
    }
    // Whoever is logged in by the old password is so no more.
    assert!(user(&["add", name, "eva"], "y").status.success());
    wait_for("ZXZhOnk=");
    for (line, code) in [
        ("SIZE data", 530),
        ("USER eva", 331),
        ("PASS y", 230),
        ("SIZE data", 213),
    ] {
        assert_eq!(raw.command(line), code, "{line}");
    }
}

// SPECIFICATION.md: 43
#[test]
fn passwords_in_the_clear_are_for_loopback_and_tls() {
    require_root!();
    require_programs!("curl", "ffprobe");
    let (testbed, media) = common::Site::prepare(Mode::Uso);
    fill(media.path());
    let folder = tempfile::tempdir().unwrap();
    let users = format!("--users={}", users_file(folder.path()).display());
    let options = [
        &*users,
        "--http=10.77.0.1:8080",
        "--ftp=10.77.0.1:2121",
        "--tls=self-signed",
    ];
    let site = common::Site::serve(testbed, media, &options);
    let user = format!("anna:{PASSWORD}");
    let curl = |how: &str, to: &str| {
        let mut command = site.testbed.rcv.command("curl");
        command.args([
            "-sk",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--max-time",
            "60",
        ]);
        command.args(["-u", &user, how, &format!("{to}/data")]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for (to, by_basic) in [
        ("http://10.77.0.1:8080", "401"),
        ("https://10.77.0.1:8443", "200"),
    ] {
        assert_eq!(curl("--basic", to), by_basic, "{to}");
        assert_eq!(curl("--digest", to), "200", "{to}");
    }
    for (how, code) in [("--ipv4", "530"), ("--ssl-reqd", "226")] {
        assert_eq!(curl(how, "ftp://10.77.0.1:2121"), code, "{how}");
    }
    let url = format!("rtsp://anna:{PASSWORD_IN_URL}@10.77.0.1:8554/film.ts");
    let mut command = site.testbed.rcv.command("timeout");
    command.args([
        "60",
        "ffprobe",
        "-v",
        "error",
        "-rtsp_transport",
        "udp",
        &url,
    ]);
    assert!(is_well(&mut command));
    site.stop();
}

#[test]
fn a_relay_has_users_too() {
    let folder = tempfile::tempdir().unwrap();
    let users = format!("--users={}", users_file(folder.path()).display());
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let mut command = Command::new(ONRUSH);
    command.args(["relay", &port.unwrap().to_string(), "--rtsp=127.0.0.1:0"]);
    let relay = Process::start(command.args(["--api=off", &users])).unwrap();
    let line = relay.wait_for_line("rtsp://127.0.0.1:", LONG).unwrap();
    let url = line.split_once("rtsp://").unwrap().1;
    let address = url.split('/').next().unwrap().parse().unwrap();
    let url = format!("rtsp://{address}/live/live");
    let mut viewer = Viewer::connect(LOOPBACK, address);
    assert_eq!(viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0, 401);
    // Nothing has come yet.
    assert_eq!(viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0, 503);
    assert_eq!(viewer.ask("DESCRIBE", &url, "wrong", &[]).0, 401);
}

/// A client of RTSP that logs in by Digest.
struct Viewer {
    client: rtsp_client::Client,
    nonce: String,
    count: u32,
}

impl Viewer {
    fn connect(from: IpAddr, server: SocketAddr) -> Self {
        Self {
            client: rtsp_client::Client::connect_from(from, server).unwrap(),
            nonce: String::new(),
            count: 0,
        }
    }

    /// The status of a request, and of what came with it the session; a new nonce is remembered.
    fn ask(
        &mut self,
        method: &str,
        uri: &str,
        password: &str,
        more: &[(&str, &str)],
    ) -> (u16, Option<String>) {
        let realm = "onrush";
        self.count += 1;
        let hash = |a: &str, b: &str, c: &str| ha1(Algorithm::Sha256, a, b, c);
        let (scheme, rest) = uri.split_once(':').unwrap();
        let (ha1, ha2) = (hash("anna", realm, password), hash(method, scheme, rest));
        let (nonce, count) = (&self.nonce, self.count);
        let response = hash(&ha1, nonce, &format!("{count:08x}:c:auth:{ha2}"));
        let value = format!(
            "Digest username=\"anna\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", \
             algorithm=SHA-256, qop=auth, nc={count:08x}, cnonce=\"c\", response=\"{response}\""
        );
        let mut headers = vec![("Authorization", &*value)];
        headers.extend(more);
        let response = self.client.request(method, uri, &headers).unwrap();
        if let Some(challenge) = response.header("WWW-Authenticate") {
            self.nonce = challenge.split('"').nth(3).unwrap().to_owned();
            self.count = 0;
        }
        let session = response.header("Session");
        let session = session.map(|session| session.split(';').next().unwrap().to_owned());
        (response.status, session)
    }

    /// Sets a session up; its name.
    fn set_up(&mut self, url: &str, ports: &Ports) -> String {
        let (track, transport) = (format!("{url}/track1"), ports.transport().unwrap());
        let (status, session) = self.ask("SETUP", &track, PASSWORD, &[("Transport", &transport)]);
        assert_eq!(status, 200);
        session.unwrap()
    }
}

/// What was signed for DESCRIBE counts for SETUP for as long as it counts.
#[test]
fn a_signature_counts_for_no_setup_when_it_is_over() {
    let keys = tempfile::NamedTempFile::new().unwrap();
    fs::write(keys.path(), "a key of which there is no other\n").unwrap();
    let file = keys.path().to_str().unwrap();
    let (site, _) = site_of(&["--url-keys", file, "--metrics=127.0.0.1:0"]);
    let film = site.rtsp_url("film.ts");
    let mut sign = Command::new(ONRUSH);
    let signed = sign.args(["sign", &film, "--keys", file]).output().unwrap();
    assert!(signed.status.success(), "{signed:?}");
    let signed = String::from_utf8(signed.stdout).unwrap();
    let mut client = rtsp_client::Client::connect_from(LOOPBACK, site.rtsp).unwrap();
    let described = client.request("DESCRIBE", signed.trim(), &[]).unwrap();
    assert_eq!(described.status, 200);
    let ports = Ports::bind(LOOPBACK).unwrap();
    let (track, transport) = (format!("{film}/track1"), ports.transport().unwrap());
    let mut set_up = || {
        let headers = [("Transport", &*transport)];
        client.request("SETUP", &track, &headers).unwrap().status
    };
    assert_eq!(set_up(), 200);
    fs::write(keys.path(), "another key, which has signed nothing\n").unwrap();
    let give_up = Instant::now() + LONG;
    loop {
        match set_up() {
            403 => break,
            status => assert!(status == 200 && Instant::now() < give_up, "{status}"),
        }
        thread::sleep(Duration::from_millis(500));
    }
}

/// Whoever hears a request with its proof cannot send it once more: not on the same connection, nor
/// on one of its own, nor from another address, and not for something else. Who has made the proof
/// goes on.
// SPECIFICATION.md: 45
#[test]
fn a_proof_that_was_heard_is_refused_the_second_time() {
    let (site, _folder, metrics) = site(&[]);
    let rtsp = |from: [u8; 4]| {
        let mut client = rtsp_client::Client::connect_from(from.into(), site.rtsp).unwrap();
        let ask: Box<Ask<'_>> = Box::new(move |method, uri, proof| {
            let headers = proof.map(|proof| ("Authorization", proof));
            client.request(method, uri, headers.as_slice()).unwrap()
        });
        ask
    };
    let http = |from: [u8; 4]| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&site.http.into()).unwrap();
        let mut client = http_client::Client::over(socket.into()).unwrap();
        let ask: Box<Ask<'_>> = Box::new(move |method, uri, proof| {
            let line = proof.map(|proof| format!("Authorization: {proof}\r\n"));
            let line = line.unwrap_or_default();
            client.request(method, uri, &line).unwrap()
        });
        ask
    };
    let film = site.rtsp_url("film.ts");
    let before = counted(metrics);
    cannot_be_repeated(&rtsp, ("DESCRIBE", &film, &site.rtsp_url("other.ts")));
    cannot_be_repeated(&http, ("GET", "/data", "/film.ts"));
    let after = counted(metrics);
    let grown = [
        after.allowed - before.allowed,
        after.stale - before.stale,
        after.wrong - before.wrong,
    ];
    assert_eq!(grown, [4, 6, 2], "{before:?} {after:?}");
}

/// Asks, with or without an Authorization header, and has the answer.
type Ask<'a> = dyn FnMut(&str, &str, Option<&str>) -> Response + 'a;

/// Connections are made from an address of loopback.
fn cannot_be_repeated<'a>(
    connect: &dyn Fn([u8; 4]) -> Box<Ask<'a>>,
    (method, uri, elsewhere): (&str, &str, &str),
) {
    let mut client = connect([127, 0, 0, 1]);
    let mut anna = Answering::new("anna", PASSWORD);
    let challenged = client(method, uri, None);
    assert_eq!(challenged.status, 401);
    assert!(anna.challenged(challenges(&challenged)));
    let heard = anna.authorization(method, uri, "c").unwrap();
    assert_eq!(client(method, uri, Some(&heard)).status, 200);
    let mut last = None;
    for from in [None, Some([127, 0, 0, 1]), Some([127, 0, 0, 2])] {
        let again = match from {
            None => client(method, uri, Some(&heard)),
            Some(from) => connect(from)(method, uri, Some(&heard)),
        };
        assert_eq!(again.status, 401, "{from:?}: {again:?}");
        // Not that the password is wrong: a client answers that without asking anybody.
        assert!(is_stale(&again), "{from:?}: {again:?}");
        last = last.or(Some(again));
    }
    let next = anna.authorization(method, uri, "c").unwrap();
    let other = client(method, elsewhere, Some(&next));
    assert_eq!((other.status, is_stale(&other)), (401, false), "{other:?}");
    assert!(
        anna.challenged(challenges(&last.unwrap())),
        "a nonce to go on with"
    );
    let next = anna.authorization(method, uri, "c").unwrap();
    assert_eq!(client(method, uri, Some(&next)).status, 200);
}

fn challenges(response: &Response) -> impl Iterator<Item = &str> {
    let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("WWW-Authenticate");
    let headers = response.headers.iter().filter(named);
    headers.map(|(_, value)| value.as_str())
}

/// Whether each challenge of Digest says so (RFC 7616, section 3.3).
fn is_stale(response: &Response) -> bool {
    let mut digests = challenges(response).filter(|it| it.starts_with("Digest"));
    let first = digests.next().expect("a challenge");
    [first]
        .into_iter()
        .chain(digests)
        .all(|it| it.contains("stale=true"))
}

/// A nonce that a server does not know, as those are that are too old or were made before it was
/// started anew, is exchanged by players without a word. Between player and server stands somebody
/// who takes the player to another server, as a restart would, when it has logged in.
#[test]
fn players_go_on_where_their_nonce_is_not_known_any_more() {
    require_programs!("ffmpeg", "gst-launch-1.0");
    for player in ["ffmpeg", "gst-launch-1.0"] {
        let (first, _of_first, of_first) = site(&[]);
        let (second, _of_second, of_second) = site(&[]);
        let between = restart_at_setup(first.rtsp, second.rtsp);
        let mut command = Command::new("timeout");
        command.args(["60", player]);
        if player == "ffmpeg" {
            let url = format!("rtsp://anna:{PASSWORD_IN_URL}@{between}/film.ts");
            command.args(["-v", "error", "-rtsp_transport", "tcp", "-i", &url]);
            command.args(["-frames:v", "5", "-f", "null", "-"]);
        } else {
            let location = format!("location=rtsp://{between}/film.ts");
            let password = format!("user-pw={PASSWORD}");
            command.args(["-q", "rtspsrc", "protocols=tcp", "user-id=anna", &password]);
            command.args([&location, "!", "identity", "eos-after=20", "!", "fakesink"]);
        }
        match player {
            "ffmpeg" => assert!(is_well(&mut command)),
            _ => gst_plays_to_the_end(&mut command),
        }
        let (first, second) = (counted(of_first), counted(of_second));
        assert!(first.allowed > 0 && first.stale == 0, "{player}: {first:?}");
        assert!(
            second.allowed > 0 && second.stale > 0,
            "{player}: {second:?}"
        );
        assert_eq!((first.wrong, second.wrong), (0, 0), "{player}");
    }
}

/// Takes one client to a server, and from its first SETUP with a proof on to another.
fn restart_at_setup(first: SocketAddr, second: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        let mut server = TcpStream::connect(first).unwrap();
        loop {
            let request = message(&mut client);
            let text = String::from_utf8_lossy(&request);
            if text.starts_with("SETUP") && text.contains("Authorization") {
                server = TcpStream::connect(second).unwrap();
                server.write_all(&request).unwrap();
                break;
            }
            server.write_all(&request).unwrap();
            client.write_all(&message(&mut server)).unwrap();
        }
        let mut back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut back.0, &mut back.1));
        io::copy(&mut client, &mut server)
    });
    address
}

/// The next request or response on a connection, byte by byte.
fn message(from: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
    }
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    from.read_exact(&mut body).unwrap();
    bytes.extend(body);
    bytes
}

// SPECIFICATION.md: 44
#[test]
fn ten_thousand_wrong_passwords_disturb_nobody() {
    let (site, _folder, metrics) = site(&[]);
    let url = format!("rtsp://{}/film.ts", site.rtsp);
    let ports = Ports::bind(LOOPBACK).unwrap();
    let mut viewer = Viewer::connect(LOOPBACK, site.rtsp);
    assert_eq!(
        viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0,
        401,
        "it has no nonce yet"
    );
    assert_eq!(viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0, 200);
    let mut answers = [0; 3];
    let mut wrong = Viewer::connect([127, 0, 0, 2].into(), site.rtsp);
    for _ in 0..10_000 {
        match wrong.ask("DESCRIBE", &url, "wrong", &[]).0 {
            401 => answers[0] += 1,
            503 => answers[1] += 1,
            _ => answers[2] += 1,
        }
    }
    // A slow machine forgives some meanwhile.
    assert!(
        answers[0] >= 31 && answers[1] > 5000 && answers[2] == 0,
        "{answers:?}"
    );
    let session = viewer.set_up(&url, &ports);
    let playing = viewer.ask("PLAY", &url, PASSWORD, &[("Session", &session)]);
    assert_eq!(playing.0, 200);
    ports.receive(100).unwrap();
    let after = counted(metrics);
    assert_eq!(after.allowed, 2, "{after:?}");
    assert_eq!(after.slowed, answers[1], "{after:?}");
}

/// What an address has used up by one protocol it has used up for all; and others have not.
#[test]
fn ten_thousand_wrong_passwords_count_for_all_protocols() {
    let (site, _folder, metrics) = site(&[]);
    let wrong = "Authorization: Basic YW5uYTp3cm9uZw==\r\n";
    let mut raw = Raw::connect(site.http);
    let (mut looked_at, mut slowed) = (0, 0);
    for _ in 0..10_000 {
        match raw.request("GET", "/data", wrong).status {
            401 => looked_at += 1,
            429 => slowed += 1,
            other => panic!("{other}"),
        }
    }
    // A slow machine forgives some meanwhile.
    assert!(looked_at >= 30 && slowed > 5000, "{looked_at} {slowed}");
    let url = format!("rtsp://{}/film.ts", site.rtsp);
    let rtsp = |from: [u8; 4]| {
        let mut viewer = Viewer::connect(from.into(), site.rtsp);
        viewer.ask("DESCRIBE", &url, PASSWORD, &[]);
        viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0
    };
    // Again, because one is forgiven in three seconds, and of a connection no more are answered.
    let mut raw = Raw::connect(site.http);
    for _ in 0..100 {
        raw.request("GET", "/data", wrong);
    }
    assert_eq!(rtsp([127, 0, 0, 1]), 503);
    assert_eq!(rtsp([127, 0, 0, 2]), 200);
    let mut ftp = Raw::connect(site.ftp);
    assert_eq!(ftp.reply().0, 220);
    assert_eq!(ftp.command("USER anna"), 331);
    assert_eq!(ftp.command(&format!("PASS {PASSWORD}")), 530);
    let after = counted(metrics);
    assert!(after.slowed >= slowed, "{after:?}");
    assert!(after.wrong <= looked_at + 10, "{after:?}");
}

// SPECIFICATION.md: 43
#[test]
fn wrong_passwords_count_for_who_is_behind_a_proxy() {
    let (site, _folder, _) = site(&["--trusted-proxies=127.0.0.0/8"]);
    let wrong = "Authorization: Basic YW5uYTp3cm9uZw==\r\n";
    let mut raw = Raw::connect(site.http);
    let mut ask = |client: &str, lines: &str| {
        // What stands before has been written by the client.
        let lines = format!("{lines}X-Forwarded-For: 127.0.0.1, {client}\r\n");
        raw.request("GET", "/data", &lines).status
    };
    let over_tls = |lines: &str| format!("{lines}X-Forwarded-Proto: https\r\n");
    for _ in 0..100 {
        ask("192.0.2.1", &over_tls(wrong));
    }
    // One is forgiven in three seconds: a wrong one takes that up.
    assert!((0..10).any(|_| {
        ask("192.0.2.1", &over_tls(wrong));
        ask("192.0.2.1:4711", &over_tls(ANNA)) == 429
    }));
    assert_eq!(ask("192.0.2.2", &over_tls(ANNA)), 200);
    assert_eq!(ask("2001:db8::1", &over_tls(ANNA)), 200);
    // Nobody is on this machine because its proxy is.
    assert_eq!(ask("192.0.2.3", ANNA), 401);
    assert_eq!(ask("unknown", ANNA), 401);
    assert_eq!(raw.request("GET", "/data", ANNA).status, 200);
}

/// What a page has a browser send is counted apart: its user may know nothing of it.
#[test]
fn wrong_passwords_of_a_page_lock_nobody_out() {
    let (site, _folder, _) = site(&[]);
    let mut raw = Raw::connect(site.http);
    let mut ask = |lines: &str| raw.request("GET", "/data", lines).status;
    let of_page = |lines: &str| format!("{lines}Origin: http://pages.example\r\n");
    let wrong = "Authorization: Basic YW5uYTp3cm9uZw==\r\n";
    assert_eq!(ask(&of_page(ANNA)), 200);
    for _ in 0..100 {
        ask(&of_page(wrong));
    }
    // One is forgiven in three seconds.
    assert!((0..10).any(|_| ask(&of_page(wrong)) == 429));
    for _ in 0..10 {
        assert_eq!(ask(ANNA), 200);
    }
}

/// A file may be called as a part of a film is: it is downloaded, and nothing is played.
#[test]
fn a_file_called_as_a_playlist_is_downloaded() {
    require_programs!("curl");
    let folder = tempfile::tempdir().unwrap();
    let users = users_file(folder.path());
    let text = fs::read_to_string(&users).unwrap();
    let rights = "group everybody play /shown/**\ngroup everybody download /had/**\n";
    fs::write(&users, text + rights).unwrap();
    let site = Site::new(&[&format!("--users={}", users.display())], |root| {
        fill(root);
        for name in ["shown", "had"] {
            fs::create_dir_all(root.join(name).join("hls")).unwrap();
            fs::write(root.join(name).join("hls/index.m3u8"), "#EXTM3U\n").unwrap();
        }
    });
    let got = site.get("/had/hls/index.m3u8", "");
    assert_eq!((got.status, &*got.body), (200, &b"#EXTM3U\n"[..]));
    assert_eq!(site.get("/had/hls/1/index.m3u8", "").status, 401);
    assert_eq!(site.get("/shown/hls/index.m3u8", "").status, 401);
    assert_eq!(site.get("/shown/hls/index.m3u8", ANNA).status, 200);
    // A player hears that there is no such film, and needs not log in for that.
    assert_eq!(site.get("/shown/film.ts/hls/index.m3u8", "").status, 404);
    assert_eq!(site.get("/open/film.ts/hls/index.m3u8", "").status, 200);
    // The answer to a challenge counts once.
    let mut curl = Command::new("curl");
    let user = format!("anna:{PASSWORD}");
    curl.args(["-sS", "--digest", "-u", &user, "-o", "/dev/null"]);
    curl.args(["-w", "%{http_code}", &site.url("shown/hls/index.m3u8")]);
    let output = curl.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200", "{output:?}");
}

/// A token that openssl has signed is for players, which carry it in URLs, and for downloaders.
#[test]
fn a_token_plays_and_downloads_what_it_names() {
    require_programs!("ffprobe", "curl", "openssl");
    let tokens = Tokens::new();
    let token = |claims: &str| tokens.sign(claims);
    let (folder, keys) = (&tokens.folder, tokens.option());
    let (site, _) = site_of(&[&keys, "--jwt-audience=films", "--metrics=127.0.0.1:0"]);
    let claims =
        r#"{"exp":4e9,"aud":"films","onrush_rights":["play,download /data","play /film.ts"]}"#;
    let good = token(claims);
    assert_eq!(
        probe(&format!("{}?token={good}", site.rtsp_url("film.ts"))),
        Ok(())
    );
    let bearer = format!("Authorization: Bearer {good}");
    run(
        folder.path(),
        "curl",
        &["-sS", "--fail", "-H", &bearer, "-o", "x", &site.url("data")],
    );
    assert!(fs::read(folder.path().join("x")).unwrap() == bytes(100_000));
    let status = |target: &str| site.get(target, "").status;
    assert_eq!(status(&format!("/data?token={good}")), 200);
    assert_eq!(status("/data"), 401);
    assert_eq!(
        status(&format!("/film.ts?token={good}")),
        403,
        "it may play it"
    );
    let playlist = site.get(&format!("/film.ts/hls/index.m3u8?token={good}"), "");
    assert_eq!(playlist.status, 200);
    let text = String::from_utf8(playlist.body).unwrap();
    assert!(text.contains(&format!("?token={good}")), "{text}");
    // It would stand behind each URL, though the header is what counts.
    let long = format!("/film.ts/hls/index.m3u8?token={}", "a".repeat(3000));
    assert_eq!(site.get(&long, &format!("{bearer}\r\n")).status, 414);
    let old = token(&claims.replace("4e9", "1e9"));
    assert_eq!(status(&format!("/data?token={old}")), 401);
    let error = probe(&format!("{}?token={old}", site.rtsp_url("film.ts"))).unwrap_err();
    assert!(error.contains("401"), "{error}");
    // By FTP it is the password of a user of that name.
    let mut raw = Raw::connect(site.ftp);
    assert_eq!(raw.reply().0, 220);
    for (token, logged_in) in [(&old, 530), (&good, 230)] {
        assert_eq!(raw.command("USER token"), 331);
        assert_eq!(raw.command(&format!("PASS {token}")), logged_in);
    }
    assert_eq!(raw.command("SIZE data"), 213);
    assert_eq!(raw.command("SIZE film.ts"), 550, "it may play it");
    let user = format!("token:{good}");
    let url = site.ftp_url("data");
    let arguments = ["-sS", "--fail", "-u", &user, "-o", "y", &url];
    run(folder.path(), "curl", &arguments);
    assert!(fs::read(folder.path().join("y")).unwrap() == bytes(100_000));
}

/// A playlist would be as long as whoever asks likes.
#[test]
fn what_opens_nothing_is_not_carried_on() {
    let (site, _) = site_of(&["--metrics=127.0.0.1:0"]);
    for query in [
        format!("token={}", "a".repeat(100)),
        format!("token={}", "a".repeat(8000)),
        "rights=play&expires=9999999999&signature=AAAA".to_owned(),
    ] {
        let playlist = site.get(&format!("/film.ts/hls/index.m3u8?{query}"), "");
        assert_eq!(playlist.status, 200, "{query}");
        assert!(!playlist.body.contains(&b'?'), "{query}");
    }
}

/// What a token in the URL of a channel's playlist or manifest opened, it opens to the last
/// segment.
#[test]
fn a_token_leads_to_the_segments_of_a_channel() {
    require_programs!("ffmpeg", "openssl");
    let tokens = Tokens::new();
    let users = users_file(tokens.folder.path());
    let text = fs::read_to_string(&users).unwrap();
    fs::write(&users, text + "group everybody publish /live/cam\n").unwrap();
    let users = format!("--users={}", users.display());
    let (site, _) = site_of(&[&tokens.option(), &users, "--metrics=127.0.0.1:0"]);
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i"]);
    command.args(["testsrc2=s=192x108:r=25", "-c:v", "libx264", "-g", "25"]);
    command.args(["-preset", "ultrafast", "-tune", "zerolatency"]);
    command.args(["-pix_fmt", "yuv420p", "-t", "900", "-f", "rtsp"]);
    let to = site.rtsp_url("live/cam");
    let _publisher = Process::start(command.arg(to)).unwrap();
    let token = tokens.sign(r#"{"exp":4e9,"onrush_rights":["play /live/cam"]}"#);
    let query = format!("?token={token}");
    let get = |target: &str| {
        let found = site.get(target, "");
        (
            found.status,
            String::from_utf8_lossy(&found.body).into_owned(),
        )
    };
    let give_up = Instant::now() + LONG;
    let main = format!("/live/cam/hls/index.m3u8{query}");
    while get(&main).0 != 200 {
        assert!(Instant::now() < give_up, "{}", site.server.log_tail());
        thread::sleep(Duration::from_millis(100));
    }

    let mut left = vec![main];
    let mut segments = 0;
    while let Some(target) = left.pop() {
        let (path, asked) = target.split_once('?').unwrap_or((&target, ""));
        assert_eq!(asked, &query[1..], "{target}");
        assert_eq!(get(path).0, 401, "{path}");
        let (status, text) = get(&target);
        assert_eq!(status, 200, "{target}");
        if !path.ends_with(".m3u8") {
            segments += 1;
            continue;
        }
        let folder = path.rsplit_once('/').unwrap().0;
        let quoted = text.split("URI=\"").skip(1);
        let quoted = quoted.filter_map(|it| it.split('"').next());
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let named = quoted.chain(lines).filter(|it| !it.is_empty());
        left.extend(named.map(|it| format!("{folder}/{it}")));
    }
    assert!(segments >= 3, "{segments}");

    let (status, manifest) = get(&format!("/live/cam/dash/manifest.mpd{query}"));
    assert_eq!(status, 200);
    for url in ["init.mp4", "$Time$.m4s", "time.txt"] {
        assert!(
            manifest.contains(&format!("{url}{query}\"")),
            "{url}: {manifest}"
        );
    }
}

/// Session after session on one connection. What each costs the server's processor, and so how many
/// could be set up in a second on one, is told and not judged: `--nocapture` shows it.
#[test]
fn sessions_are_set_up_with_digest_and_without() {
    let count = |site: &Site, metrics: SocketAddr, name: &str| {
        let url = format!("rtsp://{}/{name}", site.rtsp);
        let ports = Ports::bind(LOOPBACK).unwrap();
        let cpu_ns = || {
            let status = Raw::connect(metrics).request("GET", "/status", "").body;
            serde_json::from_slice::<Status>(&status)
                .unwrap()
                .process
                .cpu_ns
        };
        let mut viewer = Viewer::connect(LOOPBACK, site.rtsp);
        viewer.ask("DESCRIBE", &url, PASSWORD, &[]);
        let (begun, before_ns) = (Instant::now(), cpu_ns());
        for _ in 0..SESSIONS {
            assert_eq!(viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0, 200);
            let session = viewer.set_up(&url, &ports);
            let end = viewer.ask("TEARDOWN", &url, PASSWORD, &[("Session", &session)]);
            assert_eq!(end.0, 200);
        }
        let cost_ns = (cpu_ns() - before_ns) / SESSIONS;
        let a_second = 1_000_000_000 / cost_ns.max(1);
        let took = begun.elapsed();
        println!("{name}: {cost_ns} ns a session, {a_second} a second of processor; {took:?}");
    };
    let (site, _folder, metrics) = site(&[]);
    for _ in 0..3 {
        count(&site, metrics, "film.ts");
        count(&site, metrics, "open/film.ts");
    }
}

/// Credentials are judged by arithmetic and tables in memory: no file, no random number, no thread.
#[test]
fn digest_adds_no_system_calls_to_a_set_up() {
    require_root!();
    require_programs!("strace");
    let (site, _folder, _) = site(&[]);
    let ports = Ports::bind(LOOPBACK).unwrap();
    let calls_of = |name: &str| {
        let url = format!("rtsp://{}/{name}", site.rtsp);
        let mut viewer = Viewer::connect(LOOPBACK, site.rtsp);
        viewer.ask("DESCRIBE", &url, PASSWORD, &[]);
        let mut sessions = |count| {
            for _ in 0..count {
                assert_eq!(viewer.ask("DESCRIBE", &url, PASSWORD, &[]).0, 200);
                let session = viewer.set_up(&url, &ports);
                let session = [("Session", &*session)];
                assert_eq!(viewer.ask("TEARDOWN", &url, PASSWORD, &session).0, 200);
            }
        };
        sessions(8);
        let count = || sessions(SESSIONS);
        let mut calls = site.server.count_system_calls_while(count).unwrap();
        // How often it waits is chance.
        for wait in ["epoll_wait", "futex", "io_uring_enter", "restart_syscall"] {
            calls.remove(wait);
        }
        println!("{name}: {calls:?}");
        calls.values().sum::<u64>() / SESSIONS
    };
    let (digest, open) = (calls_of("film.ts"), calls_of("open/film.ts"));
    assert!(digest <= open + 1, "{digest} with Digest, {open} without");
}

const SESSIONS: u64 = 300;

/// What does not belong here is refused at the start, and says why.
#[test]
fn what_cannot_be_used_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "user a b\n").unwrap();
    let name = file.to_str().unwrap();
    for (option, said) in [
        (format!("--users={name}"), "line 1"),
        ("--users=/no/such/file".to_owned(), "No such file"),
        (format!("--url-keys={name}"), "16 bytes"),
        ("--auth-hook=ftp://example.org".to_owned(), "http://"),
        (format!("--jwt-keys={name}"), "JWK set"),
        (
            "--jwt-keys=http://id.example.org/keys".to_owned(),
            "https://",
        ),
        (
            format!("--auth-hook=https://[::1]:9 --auth-ca={name}"),
            "no certificate",
        ),
    ] {
        let mut command = Command::new(ONRUSH);
        command.args(["serve", "--rtsp=127.0.0.1:0", "--cache=1MiB"]);
        command.args(option.split(' '));
        let (status, log) = Process::run(command.arg(folder.path()), LONG).unwrap();
        assert_eq!(status.code(), Some(2), "{option}: {log}");
        assert!(log.contains(said), "{option}: {log}");
    }
}

/// The user and the password of each in base64.
const ANNA: &str = "Authorization: Basic YW5uYTpvcGVuOiBzZSVzYW1l\r\n";
const TOM: &str = "Authorization: Basic dG9tOm9wZW46IHNlJXNhbWU=\r\n";

/// A query may be all that says who asks, or a user in front of the host; also in a log that tells
/// more than most.
#[test]
fn the_dashboard_shows_no_token_of_who_was_refused() {
    let mut command = Command::new(ONRUSH);
    command.env("RUST_LOG", "debug");
    let options = ["--sessions-max=1", "--metrics=127.0.0.1:0"];
    let (site, metrics) = site_by(command, &options);
    let mut client = rtsp_client::Client::connect_from(LOOPBACK, site.rtsp).unwrap();
    let described = format!("rtsp://anna:hushhush@{}/film.ts?token=x.y.z", site.rtsp);
    let answer = client.request("DESCRIBE", &described, &[]).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let line = site.server.wait_for_line("\"DESCRIBE\"", LONG).unwrap();
    assert!(line.contains("/film.ts?...\": 200"), "{line}");
    let transport = Ports::bind(LOOPBACK).unwrap().transport().unwrap();
    let track = site.rtsp_url("film.ts/track1");
    for (uri, status) in [(track.clone(), 200), (format!("{track}?token=x.y.z"), 453)] {
        let headers = [("Transport", &*transport)];
        let answer = client.request("SETUP", &uri, &headers).unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let mut events = Raw::connect(metrics);
    events.send("GET /admin/events HTTP/1.1\r\nHost: h\r\n\r\n");
    let refused = loop {
        assert!(events.receive() > 0, "the events end");
        let text = String::from_utf8_lossy(&events.received).into_owned();
        let refused = text.split("\"refused\":[").nth(1);
        if let Some((refused, _)) = refused.and_then(|it| it.split_once("\"hls\":")) {
            break refused.to_owned();
        }
    };
    assert!(refused.contains("/film.ts/track1"), "{refused}");
    let (told, log) = (String::from_utf8_lossy(&events.received), site.server.log());
    assert!(told.contains("DESCRIBE"), "{told}");
    for said in [&*told, &*log] {
        assert!(
            !said.contains("x.y.z") && !said.contains("hushhush"),
            "{said}"
        );
    }
}

/// The option of a file by which tom has the right to the dashboard, and anna has not.
fn staff(folder: &Path) -> String {
    let users = users_file(folder);
    let text = fs::read_to_string(&users).unwrap();
    let text = text.replace("user tom viewers", "user tom staff");
    fs::write(&users, text + "group staff admin /admin\n").unwrap();
    format!("--users={}", users.display())
}

#[test]
fn the_dashboard_knows_who_is_behind_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let users = staff(folder.path());
    let proxies = "--trusted-proxies=127.0.0.0/8";
    let (_site, metrics) = site_of(&[&users, "--metrics=127.0.0.1:0", proxies]);
    // Each by a connection of its own: one does not live as long as slow hashes may take.
    let ask = |client: &str, scheme: &str, lines: &str| {
        let lines = format!("{lines}X-Forwarded-For: {client}\r\nX-Forwarded-Proto: {scheme}\r\n");
        Raw::connect(metrics).request("GET", "/admin", &lines)
    };
    let wrong = "Authorization: Basic YW5uYTp3cm9uZw==\r\n";
    for _ in 0..100 {
        ask("192.0.2.1", "https", wrong);
    }
    // One is forgiven in three seconds: a wrong one takes that up.
    assert!((0..10).any(|_| {
        ask("192.0.2.1", "https", wrong);
        ask("192.0.2.1", "https", TOM).status == 429
    }));
    assert_eq!(ask("192.0.2.2", "https", TOM).status, 200);
    // Nobody is on this machine because its proxy is.
    let refused = ask("192.0.2.3", "http", TOM);
    assert_eq!(refused.status, 401);
    assert!(!challenges(&refused).any(|it| it.starts_with("Basic")));
    let mut raw = Raw::connect(metrics);
    assert_eq!(raw.request("GET", "/admin", TOM).status, 200);
}

#[test]
fn the_dashboard_is_for_those_with_the_right_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let users = staff(folder.path());
    let (_site, metrics) = site_of(&[&users, "--metrics=127.0.0.1:0"]);
    let mut raw = Raw::connect(metrics);
    let mut status = |method, target, lines: &str| raw.request(method, target, lines).status;
    for target in ["/admin", "/admin/dashboard.js", "/admin/sessions"] {
        assert_eq!(status("GET", target, ""), 401, "{target}");
        assert_eq!(status("GET", target, ANNA), 403, "{target}");
        assert_eq!(status("GET", target, TOM), 200, "{target}");
    }
    assert_eq!(status("GET", "/admin/events", ""), 401);
    assert_eq!(status("GET", "/admin/events", ANNA), 403);
    let end = "/admin/sessions/0123456789abcdef/end";
    let own = |lines: &str| format!("{lines}X-Onrush: 1\r\n");
    assert_eq!(status("POST", end, &own("")), 401);
    assert_eq!(status("POST", end, &own(ANNA)), 403);
    assert_eq!(status("POST", end, TOM), 403, "not from the page");
    assert_eq!(status("POST", end, &own(TOM)), 404);
    assert_eq!(status("POST", "/admin/sessions/x/end", &own(TOM)), 404);
    // What programs read stays as it is.
    assert_eq!(status("GET", "/status", ""), 200);
    // Who is to log in may ask by any name: a proxy here may pass it on.
    raw.send("GET /admin HTTP/1.1\r\nHost: films.example\r\n\r\n");
    assert_eq!(raw.response(false).status, 401);
}
