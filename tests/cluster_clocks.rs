//! Nodes of one cluster whose clocks differ, by minutes and by a day, and one whose clock is set
//! while it runs: a library that is loaded before the C library adds what the test says to
//! CLOCK_REALTIME. The clock of the machine is not touched, nor that of NATS.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use onrush_testkit::http_client;
use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root};
use rustix::process::Signal;
use tempfile::TempDir;

use cluster_site::{Cluster, SHORT_LIFE};
use common::wait_until;

mod cluster_site;
mod common;

const MINUTE_S: i64 = 60;
const DAY_S: i64 = 24 * 60 * MINUTE_S;

/// How long an entry lives, as `SHORT_LIFE` says.
const LIFE: Duration = Duration::from_secs(10);

/// The file of `CLOCK` says how many seconds are added.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CLOCK");
    int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) seconds = at;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && seconds && clock == CLOCK_REALTIME) now->tv_sec += *seconds;
    return failed;
}
"#;

/// The nodes' clocks.
struct Clocks(TempDir);

impl Clocks {
    fn new() -> Self {
        let folder = TempDir::with_prefix("onrush-clocks-").unwrap();
        fs::write(folder.path().join("clock.c"), LIBRARY).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]);
        compiler.args(["-o", "clock.so", "clock.c"]);
        let compiled = compiler.current_dir(folder.path()).output().unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        Self(folder)
    }

    fn of(&self, node: u8) -> PathBuf {
        self.0.path().join(node.to_string())
    }

    /// What the node's clock is ahead from now on.
    fn set(&self, node: u8, ahead_s: i64) {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false);
        let file = file.open(self.of(node)).unwrap();
        file.write_all_at(&ahead_s.to_ne_bytes(), 0).unwrap();
    }

    fn start_node(&self, cluster: &mut Cluster, node: u8, ahead_s: i64) {
        self.set(node, ahead_s);
        let mut command = cluster.node_command(node);
        command.env("LD_PRELOAD", self.0.path().join("clock.so"));
        command.env("CLOCK", self.of(node));
        let node = cluster.run_node(node, command);
        cluster.nodes.push(node);
    }
}

/// That a node believes it is so much later than it is; half a minute may be the machine's.
fn assert_ahead(cluster: &Cluster, node: usize, ahead_s: i64) {
    let address = SocketAddr::from((cluster.nodes[node].host, 8080));
    let connect = || http_client::Client::connect(address);
    let mut client = cluster.namespace.run(connect).unwrap();
    let answer = client.request("HEAD", "/", "").unwrap();
    let mut date = Command::new("date");
    date.args([
        "+%s",
        "--date",
        answer.header("Date").expect("it tells the time"),
    ]);
    let told = String::from_utf8(date.output().unwrap().stdout).unwrap();
    let told: i64 = told.trim().parse().unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_secs()).unwrap();
    let error_s = told - now - ahead_s;
    assert!(error_s.abs() < 30, "node {}: {error_s} s", node + 1);
}

fn publish(cluster: &Cluster, node: usize) -> Process {
    let mut command = cluster.namespace.command("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
    command.args(["-re", "-f", "lavfi", "-i", "testsrc=size=320x240:rate=25"]);
    command.args(["-pix_fmt", "yuv420p", "-c:v", "libx264", "-g", "25"]);
    command.args(["-preset", "ultrafast", "-tune", "zerolatency"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp", &url(cluster, node)]);
    Process::start(&mut command).unwrap()
}

fn url(cluster: &Cluster, node: usize) -> String {
    format!("rtsp://{}:8554/live/cam", cluster.nodes[node].host)
}

/// Which node has the channel, and by which lease, as `node` knows.
fn owner(cluster: &Cluster, node: usize) -> Option<(String, u64)> {
    let (_, said) = cluster.command(node, &["status"]);
    let behind = said.split_once("channel    live/cam: node ")?.1;
    // Behind its own name a node says so.
    let (owner, behind) = behind.split_once(',')?;
    let (_, behind) = behind.split_once("lease ")?;
    let digits = behind.find(|c: char| !c.is_ascii_digit());
    let lease = behind[..digits.unwrap_or(behind.len())].parse().ok()?;
    Some((owner.to_owned(), lease))
}

/// Until all nodes say that `node` has the channel, by the same lease.
fn wait_for_owner(cluster: &Cluster, node: &str) -> u64 {
    let mut lease = 0;
    wait_until("all nodes know the channel's owner", || {
        let told: Vec<_> = (0..cluster.nodes.len())
            .map(|it| owner(cluster, it).filter(|(owner, _)| owner == node))
            .collect();
        lease = told[0].as_ref().map_or(0, |(_, lease)| *lease);
        told[0].is_some() && told.iter().all(|it| *it == told[0])
    });
    lease
}

/// What a node that watches the channel shows of it.
fn assert_shown(cluster: &Cluster, node: usize) {
    let mut command = cluster.namespace.command("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
    command.args(["-rtsp_transport", "tcp", "-i", &url(cluster, node)]);
    command.args(["-frames:v", "25", "-f", "null", "-"]);
    let (status, said) = Process::run(&mut command, common::LONG).unwrap();
    assert!(status.success(), "{said}");
}

/// Nothing is forgotten that is alive, no lease changes, and what is dead is forgotten in time.
#[test]
fn entries_and_leases_live_whatever_the_nodes_clocks_say() {
    require_root!();
    require_programs!("nats-server", "ffmpeg", "cc", "date");
    let clocks = Clocks::new();
    let mut cluster = Cluster::prepare(SHORT_LIFE);
    let ahead_s = [DAY_S, -3 * MINUTE_S, 0];
    for (node, ahead_s) in (1..).zip(ahead_s) {
        clocks.start_node(&mut cluster, node, ahead_s);
    }
    cluster.wait_for_nodes(3);
    for (node, ahead_s) in ahead_s.into_iter().enumerate() {
        assert_ahead(&cluster, node, ahead_s);
    }
    let mut source = publish(&cluster, 0);
    let lease = wait_for_owner(&cluster, "node-1");
    assert_shown(&cluster, 1);

    // Longer than anything lives that is not written again; then clocks are set, of the node that
    // has the lease and of another, and once more.
    for moved_s in [[DAY_S, -3 * MINUTE_S], [-DAY_S, DAY_S]] {
        clocks.set(1, moved_s[0]);
        clocks.set(2, moved_s[1]);
        thread::sleep(LIFE + LIFE / 2);
        assert_ahead(&cluster, 0, moved_s[0]);
        assert_ahead(&cluster, 1, moved_s[1]);
        assert_eq!(wait_for_owner(&cluster, "node-1"), lease);
        for node in 0..3 {
            assert_eq!(cluster.of_cluster(node, "nodes"), 3);
            assert_eq!(cluster.of_cluster(node, "stepped_down"), 0);
            let log = cluster.nodes[node].process.log();
            for said in ["nothing was heard of", "is ignored", "is given up"] {
                assert!(!log.contains(said), "{said}: {log}");
            }
        }
        assert_shown(&cluster, 2);
    }

    // A node that is a day behind by now dies: the others, a day ahead and right, notice.
    cluster.nodes[0].process.signal(Signal::KILL).unwrap();
    source.wait(common::LONG).unwrap();
    let dead = cluster.nodes.remove(0);
    drop(dead);
    cluster.wait_for_nodes(2);
    wait_until("the lease's time is over", || {
        (0..2).all(|node| owner(&cluster, node).is_none())
    });
    let _source = publish(&cluster, 0);
    assert!(wait_for_owner(&cluster, "node-2") > lease);
    assert_shown(&cluster, 1);
}
