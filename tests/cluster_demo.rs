//! `packaging/cluster-demo`: three nodes, three servers of NATS, an S3 server, and six players that
//! watch while a node and a server of NATS are killed.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root, skip};
use serde_json::Value;

use common::{LONG, ONRUSH};

mod common;

/// It gives up by itself before.
const DEADLINE: Duration = Duration::from_secs(400);

/// Who watches the film is sent to its home, and goes on elsewhere when that is killed; who watches
/// the channel does, too.
#[test]
fn six_players_watch_on_when_a_node_is_killed() {
    require_root!();
    require_programs!(
        "nats-server",
        "ffmpeg",
        "gst-launch-1.0",
        "node",
        "chromium-headless-shell",
        "curl"
    );
    let tree = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if !tree.join("tests/browser/node_modules").is_dir() {
        skip::record("needs `npm ci --prefix tests/browser`, as ./test does it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("seen.json");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    let mut command = Command::new(tree.join("packaging/cluster-demo"));
    command.args(["--onrush", ONRUSH, "--json"]).arg(&json);
    command.env("CARGO_TARGET_DIR", target);
    let (status, said) = Process::run(&mut command, DEADLINE).unwrap();
    assert!(status.success(), "{said}");

    let seen: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let (home, viewers) = (&seen["home"], seen["viewers"].as_array().unwrap());
    assert_eq!(viewers.len(), 6, "{said}");
    for viewer in viewers {
        if viewer["of"] == "film" {
            let (asked, served_by) = (&viewer["asked"], &viewer["served_by"]);
            assert!(asked != home && served_by == home, "{viewer}");
        }
        let then = &viewer["then_by"];
        assert!(then.is_u64() && then != home, "{viewer}");
    }
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert!(!left.contains("onrush-demo-"), "{left}");
}

/// As by sudo, whose path has not the cargo of who calls it.
#[test]
fn what_is_not_built_is_told_before_anything_starts() {
    require_root!();
    require_programs!("nats-server", "ffmpeg", "gst-launch-1.0", "curl");
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let path = env::var_os("PATH").unwrap();
    for name in ["ip", "nats-server", "ffmpeg", "gst-launch-1.0", "curl"] {
        let mut folders = env::split_paths(&path);
        let found = folders.find_map(|it| Some(it.join(name)).filter(|it| it.is_file()));
        symlink(found.unwrap(), bin.join(name)).unwrap();
    }
    let mut python = Command::new("python3");
    // What is called so may be a script that looks for another.
    python.args(["-c", "import sys; print(sys.executable)"]);
    let python = String::from_utf8(python.output().unwrap().stdout).unwrap();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/cluster-demo");
    for (program, told) in [
        (ONRUSH, "cargo build --locked --manifest-path"),
        ("/nonexistent/onrush", "/nonexistent/onrush"),
    ] {
        let mut command = Command::new(python.trim());
        command.args([demo, "--onrush", program]).env("PATH", &bin);
        command.env("CARGO_TARGET_DIR", folder.path());
        let (status, said) = Process::run(&mut command, LONG).unwrap();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(told) && !said.contains("Traceback"), "{said}");
    }
}
