//! `onrush-lab bench cluster`: three real nodes and the simulation of them, small.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root, skip};
use serde_json::Value;

const ONRUSH_LAB: &str = env!("CARGO_BIN_EXE_onrush-lab");
/// It takes half a minute on a machine that does nothing else.
const DEADLINE: Duration = Duration::from_secs(300);

/// What a busy machine cannot break: who is sent on, where to, and that each packet that a node
/// sent is counted at the other end. The figures are judged where it is measured.
#[test]
fn three_nodes_share_viewers_and_each_packet_is_counted() {
    require_root!();
    require_programs!("nats-server");
    let onrush = Path::new(ONRUSH_LAB).with_file_name("onrush");
    if !knows_clusters(&onrush) {
        skip::record("needs `cargo build -p onrush --features cluster`");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut command = Command::new(ONRUSH_LAB);
    command
        .args(["bench", "cluster", "--quick", "--json"])
        .arg(&json);
    let (status, said) = Process::run(&mut command, DEADLINE).unwrap();
    assert!(matches!(status.code(), Some(0 | 1)), "{said}");
    let record: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let run = &record["runs"][0];
    assert_eq!(run["failed"], 0, "{said}");
    let visits = run["visits"].as_array().unwrap();
    assert!(visits.len() > 180, "{said}");
    let redirects = |visit: &Value| visit["redirects"].as_u64().unwrap();
    for visit in visits {
        assert!(redirects(visit) <= 2, "{visit}");
        if redirects(visit) == 0 {
            assert_eq!(visit["asked"], visit["served"], "{visit}");
        }
    }
    let followed: u64 = visits.iter().map(redirects).sum();
    assert!(followed > 0, "{said}");
    assert_eq!(run["sent_on"], followed, "{said}");
    assert_eq!(run["sessions"], visits.len(), "{said}");
    assert_eq!(run["refused"], 0, "{said}");
    assert_eq!(run["packets_sent"], run["packets_sunk"], "{said}");
    assert_eq!(run["sequence_missing"], 0, "{said}");
    for node in 0..3 {
        let served = visits
            .iter()
            .filter(|visit| visit["served"] == node)
            .count();
        // A third each, roughly.
        assert!(
            served * 6 > visits.len(),
            "node {node} served {served}: {said}"
        );
    }
    // What is printed later is what was seen.
    let mut again = Command::new(ONRUSH_LAB);
    again.args(["bench", "cluster", "--from"]).arg(&json);
    let (again, printed) = Process::run(&mut again, DEADLINE).unwrap();
    assert_eq!(again.code(), status.code(), "{printed}");
    assert!(
        printed.contains("where the simulation has them"),
        "{printed}"
    );
}

/// The program beside this one refuses credentials that are not there, or clusters.
fn knows_clusters(onrush: &Path) -> bool {
    let mut command = Command::new(onrush);
    command.args([
        "serve",
        "--rtsp=127.0.0.1:0",
        "--cluster=c",
        "--cluster-host=a",
    ]);
    command.args(["--cluster-nats=nats://a", "--cluster-credentials=/nowhere"]);
    let (_, said) = Process::run(&mut command, DEADLINE).unwrap();
    said.contains("cannot read the credentials")
}
