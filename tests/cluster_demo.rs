//! `packaging/cluster-demo`: three nodes, three servers of NATS, an S3 server, and six players that
//! watch while a node and a server of NATS are killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root, skip};
use serde_json::Value;

use common::ONRUSH;

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
