//! The program as it is typed: its pages, its errors, its exit codes.

use std::fs::{self, File};
use std::io::{Write, pipe};
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use onrush_testkit::process::Process;
use onrush_testkit::program::{COLUMNS, Program, text};
use rustix::process::Signal;

const ONRUSH: &str = env!("CARGO_BIN_EXE_onrush");
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.ts");
const DEMO_MP4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.mp4");
const PROGRAM: Program = Program {
    path: ONRUSH,
    version: concat!("onrush ", env!("CARGO_PKG_VERSION")),
    commands: &[
        "serve",
        "relay",
        "group",
        "top",
        "inspect",
        "doctor",
        "user",
        "sign",
        "check",
        "config",
        "ctl",
        "reload",
        "cluster",
        "completions",
    ],
};
/// Bounds every wait for something that takes moments; never a measure.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn short_help_fits_a_screen_and_long_help_is_a_manual() {
    PROGRAM.check_help(&["user add", "group serve"]);
    for said in [
        "--sessions-max",
        "Limits (",
        "RUST_LOG",
        "ffplay",
        "Exit codes:",
    ] {
        assert!(PROGRAM.help("serve", "--help").contains(said), "{said}");
    }
}

// SPECIFICATION.md: 59
#[test]
fn what_cannot_run_ends_with_2_and_says_why() {
    PROGRAM.check_refusals(&[
        (&["--no-such"][..], "--no-such"),
        (&["serv"], "'serve'"),
        (&["serve", "--burst", "20"], "as in 20ms"),
        (&["serve", "--cache", "1000"], "as in 512MiB"),
        (&["group", "serve", "--cgroup", "/"], "mount -t cgroup2"),
        (&["serve", "--cache", "1EiB"], "B, KiB, MiB, GiB, TiB"),
        (&["serve", "--fallback-bitrate", "4"], "as in 4Mbit/s"),
        (&["serve", "--rtsp", "nowhere"], "as in 127.0.0.1:8554"),
        (&["serve", "--cores", "x"], "as in 0,2-3"),
        (&["serve", "--rtp-ports", "5"], "FIRST even"),
        (&["serve", "--log-format", "xml"], "text, json"),
        (&["serve", "--channel", "5004"], "write NAME=5004"),
        (&["serve", "--delay", "20ms"], "--channel <CHANNEL>"),
        (&["completions", "tcsh"], "bash"),
    ]);
}

/// One line, what was tried, on what, what the system said.
#[test]
fn what_cannot_be_served_is_one_line_and_2() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let folder = folder.path().to_str().unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let free = free.unwrap().to_string();
    let channel = format!("--channel=a={free}");
    let local = "--rtsp=127.0.0.1:0";
    for (arguments, said) in [
        (
            &["serve", "/no/such/directory", "--rtsp", "127.0.0.1:0"][..],
            &["/no/such/directory", "No such file", "check the name"][..],
        ),
        (
            &["serve", DEMO, "--rtsp", "127.0.0.1:0"],
            &["demo.ts", "Not a directory", "that it is in"],
        ),
        (
            &["serve", folder, "--rtsp", &taken],
            &[&taken, "in use", "--rtsp"],
        ),
        (
            &["serve", folder, "--rtsp", "203.0.113.9:0"],
            &["203.0.113.9", "assign", "no such address (yet)"],
        ),
        (
            &["serve", folder, "--rtsp", "127.0.0.1:0", "--cores", "1023"],
            &["1023"],
        ),
        (
            &["serve", folder, local, &channel, "--api", &taken],
            &[&taken, "in use", "--api"],
        ),
        (
            &["serve", folder, local, &channel, "--to", &free],
            &[&free, "round for ever", "leave this member out"],
        ),
        (
            &["inspect", "/no/such/file.ts"],
            &["/no/such/file.ts", "No such file"],
        ),
    ] {
        let output = onrush(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        let lines: Vec<_> = error
            .lines()
            .filter(|line| line.starts_with("onrush: "))
            .collect();
        assert_eq!(lines.len(), 1, "{arguments:?}: {error}");
        for word in said {
            assert!(lines[0].contains(word), "{arguments:?}: {word} in: {error}");
        }
    }
}

#[test]
fn a_log_level_that_is_none_is_refused() {
    let output = Command::new(ONRUSH)
        .args(["serve", "--rtsp", "127.0.0.1:0"])
        .env("RUST_LOG", "info,onrush_server=loud")
        .output()
        .unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for said in ["RUST_LOG", "onrush_server=loud", "error, warn, info"] {
        assert!(error.contains(said), "{said} in: {error}");
    }
}

#[test]
fn inspect_tells_files_from_noise() {
    let output = onrush(&["inspect", DEMO]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json = onrush(&["inspect", "--json", DEMO]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        report["packets"]["total"],
        3_001_420 / 188,
        "all of the demo's packets"
    );
    let output = onrush(&["inspect", DEMO_MP4]);
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        "MP4",
        "track 1  video  avc1.",
        "640x360, 25 frames/s",
        "track 2  audio  mp4a.40.2",
    ] {
        assert!(page.contains(part), "{part} in:\n{page}");
    }
    let json = onrush(&["inspect", "--json", DEMO_MP4]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&report["format"], &report["schema_version"]),
        (&"MP4".into(), &3.into())
    );
    let (pictures, sound) = (&report["tracks"][0], &report["tracks"][1]);
    // A picture in 40 ms, and one to start at each second; 1024 moments of sound a sample.
    assert_eq!(
        (&pictures["samples"], &pictures["sync"]["samples"]),
        (&600.into(), &24.into())
    );
    assert_eq!(
        (&sound["sample_rate_hz"], &sound["channels"]),
        (&48_000.into(), &2.into())
    );
    assert_eq!(report["left_out"], serde_json::json!([]));
    let noise = onrush(&[
        "inspect",
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
    ]);
    assert_eq!(noise.status.code(), Some(2));
    assert!(text(&noise.stderr).starts_with("onrush: "));
}

#[test]
fn doctor_says_the_same_to_people_and_to_programs() {
    let (page, json) = (onrush(&["doctor"]), onrush(&["doctor", "--json"]));
    let page_text = text(&page.stdout);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["schema_version"], 1);
    let path = document["data_path"]["name"].as_str().unwrap();
    assert!(
        page_text.contains(&format!("\ndata path: {path}")),
        "{page_text}"
    );
    let is_best = document["data_path"]["passed_over"]
        .as_array()
        .unwrap()
        .is_empty();
    for output in [&page, &json] {
        assert_eq!(output.status.code(), Some(if is_best { 0 } else { 1 }));
    }
    for row in document["rows"].as_array().unwrap() {
        assert!(page_text.contains(row["what"].as_str().unwrap()), "{row}");
        assert!(row["state"] != "lacks" || row["means"] != "", "{row}");
    }
    assert!(
        page_text
            .lines()
            .all(|line| line.chars().count() <= COLUMNS),
        "{page_text}"
    );
}

/// Takes features away from a real kernel.
#[test]
fn doctor_names_what_is_missing_and_what_is_left() {
    onrush_testkit::require_programs!("strace");
    for (refused, lacking, path) in [
        (
            &["io_uring_setup:error=ENOSYS"][..],
            "io_uring",
            "sendmmsg_gso",
        ),
        (
            &["io_uring_register:error=EFAULT"],
            "io_uring",
            "sendmmsg_gso",
        ),
        (
            &["io_uring_setup:error=EPERM", "setsockopt:error=EIO"],
            "UDP_SEGMENT",
            "sendmmsg",
        ),
    ] {
        let mut command = Command::new("strace");
        command.args(["--follow-forks", "--output=/dev/null"]);
        command.arg("--trace=io_uring_setup,io_uring_register,setsockopt");
        command.args(refused.iter().map(|call| format!("--inject={call}")));
        let output = command.args([ONRUSH, "doctor", "--json"]).output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            document["data_path"]["name"], path,
            "{refused:?}: {document:#}"
        );
        assert_eq!(output.status.code(), Some(1), "checked, and found wanting");
        let rows = document["rows"].as_array().unwrap();
        let lacks = |row: &serde_json::Value| row["state"] == "lacks" && row["what"] == lacking;
        assert!(rows.iter().any(lacks), "{document:#}");
    }
}

#[test]
fn limits_are_listed_to_people_and_to_programs() {
    let page = text(&onrush(&["doctor", "--limits"]).stdout);
    assert!(
        page.lines().all(|line| line.chars().count() <= COLUMNS),
        "{page}"
    );
    let json = onrush(&["doctor", "--limits", "--json"]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let limits = document["limits"].as_array().unwrap();
    assert!(limits.iter().any(|limit| limit["name"] == "sessions_max"));
    for limit in limits {
        let name = [&limit["option"], &limit["name"]]
            .iter()
            .find_map(|v| v.as_str())
            .unwrap();
        assert!(page.contains(name), "{name}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    PROGRAM.check_completions(&["session-timeout"]);
    let mut bash = Command::new("bash")
        .args(["-n"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin
        .take()
        .unwrap()
        .write_all(&onrush(&["completions", "bash"]).stdout)
        .unwrap();
    assert!(bash.wait().unwrap().success(), "bash can read its script");
}

#[test]
fn a_closed_pipe_is_a_quiet_success() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["doctor", "--limits"],
        &["doctor", "--limits", "--json"],
        &["inspect", DEMO],
        &["inspect", "--json", DEMO],
        &["completions", "bash"],
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = Command::new(ONRUSH)
            .args(arguments)
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
    // What is no closed pipe is an error: this device is always full.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(ONRUSH)
        .args(["doctor", "--limits"])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("No space left"));
}

#[test]
fn a_server_says_how_to_play_and_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(DEMO, folder.path().join("a film.ts")).unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = Command::new(ONRUSH);
        command.args([
            "serve",
            "--rtsp=127.0.0.1:0",
            "--rtsp=[::1]:0",
            "--cache=4MiB",
            "--state=off",
        ]);
        let mut server = Process::start(command.arg(folder.path())).unwrap();
        let play = server
            .wait_for_line("a%20film.ts", LONG)
            .unwrap_or_else(|| server.log());
        let url = play.split_whitespace().last().unwrap();
        let address = url
            .strip_prefix("rtsp://")
            .unwrap()
            .split('/')
            .next()
            .unwrap();
        assert!(
            address.starts_with("127.0.0.1:") && !address.ends_with(":0"),
            "{play}"
        );
        std::net::TcpStream::connect(address).unwrap();
        assert!(
            server.wait_for_line("rtsp://[::1]:", LONG).is_some(),
            "{}",
            server.log()
        );
        server.signal(signal).unwrap();
        let status = server.wait(LONG).unwrap();
        let log = server.log();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(
            log.contains("sessions served: 0; 0 packets in 0 bursts, 0 of them joined"),
            "{log}"
        );
    }
}

#[test]
fn without_a_directory_the_demo_is_served() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut command = Command::new(ONRUSH);
    command
        .args(["serve", "--rtsp=127.0.0.1:0", "--cache=4MiB", "--state=off"])
        .current_dir(root);
    let mut server = Process::start(&mut command).unwrap();
    assert!(
        server.wait_for_line("/demo.mp4", LONG).is_some(),
        "{}",
        server.log()
    );
    assert!(
        server.wait_for_line("/demo.ts", LONG).is_some(),
        "{}",
        server.log()
    );
    assert_eq!(
        server.interrupt(LONG).unwrap().code(),
        Some(0),
        "{}",
        server.log()
    );
}

/// 0: it is right. 1: it has mistakes, each with its place. 2: it cannot be read.
#[test]
fn a_configuration_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onrush.toml");
    let path = path.to_str().unwrap();
    fs::write(path, onrush(&["config", "--default"]).stdout).unwrap();
    let right = onrush(&["check", path]);
    assert_eq!(
        (right.status.code(), text(&right.stdout)),
        (Some(0), String::new())
    );
    fs::write(path, "[server]\nburts = 1\ncache = \"1\"\n").unwrap();
    let wrong = onrush(&["check", path]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = text(&wrong.stdout);
    let places = said.lines().map(|line| line.strip_prefix(path).unwrap());
    let places: Vec<_> = places.map(|line| &line[..5]).collect();
    assert_eq!(places, [":2:1:", ":3:9:"], "{said}");
    let refused = onrush(&["serve", "--config", path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains(":2:1: server.burts: "));
    fs::write(path, "[server]\ncache = \"1GiB\"\n").unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_onrush"));
    let checked = check.args(["check", path]).env("ONRUSH_BURST", "2s");
    let checked = checked.output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stdout).starts_with("ONRUSH_BURST: is \"2s\": "));
    let missing = onrush(&["check", "/no/such"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("No such file"));
}

/// What the file says holds, what a variable says before it, and an option before both.
#[test]
fn a_server_is_told_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(DEMO, folder.path().join("film.ts")).unwrap();
    let path = folder.path().join("onrush.toml");
    let config = format!(
        "[library]\nfolder = {:?}\nstate = \"off\"\n[listen]\nrtsp = \"127.0.0.1:0\"\n\
         [server]\nburst = \"5ms\"\ncache = \"8MiB\"\npath = \"sendmmsg\"\n",
        folder.path()
    );
    fs::write(&path, config).unwrap();
    let mut command = Command::new(ONRUSH);
    command.args(["serve", "--config", path.to_str().unwrap()]);
    command
        .args(["--path", "sendto"])
        .env("ONRUSH_BURST", "6ms");
    let mut server = Process::start(&mut command).unwrap();
    let ready = server.wait_for_line("stopping", LONG);
    let said = server.log();
    assert!(ready.is_some(), "{said}");
    assert!(
        said.contains("by sendto, in bursts of 6ms, from 8MiB"),
        "{said}"
    );
    assert!(said.contains("film.ts"), "{said}");
    assert_eq!(server.interrupt(LONG).unwrap().code(), Some(0));
}

fn onrush(arguments: &[&str]) -> Output {
    PROGRAM.run(arguments)
}
