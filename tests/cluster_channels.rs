//! Channels of a cluster: ffmpeg publishes to one node, ffmpeg and GStreamer watch at the others,
//! and something is killed or cut off meanwhile.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_testkit::process::Process;
use onrush_testkit::{require_programs, require_root};
use rustix::process::Signal;
use serde_json::Value;

use cluster_site::{Cluster, FILMS, LONG_LIFE, NATS, SHORT_LIFE};
use common::{LONG, wait_until};

mod cluster_site;
mod common;

const CHANNEL: &str = "live/cam";
/// Twice as long and more as servers of NATS take to choose another leader.
const NATS_LIFE: &str = "30s";
/// How long they take for it, at the most.
const ELECTION_TIME: Duration = Duration::from_secs(12);
/// A server of NATS that comes back takes over what it has missed.
const CAUGHT_UP_TIME: Duration = Duration::from_secs(3);

fn url(cluster: &Cluster, node: usize) -> String {
    format!("rtsp://{}:8554/{CHANNEL}", cluster.nodes[node].host)
}

/// A moving picture and a tone, to that node.
fn publish(cluster: &Cluster, node: usize) -> Process {
    Process::start(&mut publisher(cluster, &url(cluster, node))).unwrap()
}

fn publisher(cluster: &Cluster, url: &str) -> Command {
    let mut command = cluster.namespace.command("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
    command.args(["-re", "-f", "lavfi", "-i", "testsrc=size=320x240:rate=25"]);
    command.args(["-re", "-f", "lavfi", "-i", "sine"]);
    command.args(["-pix_fmt", "yuv420p", "-c:v", "libx264", "-g", "25"]);
    command.args(["-preset", "ultrafast", "-tune", "zerolatency"]);
    command.args(["-c:a", "aac", "-f", "rtsp", "-rtsp_transport", "tcp"]);
    command.arg(url);
    command
}

/// What shows so many pictures of the channel at that node.
fn ffmpeg(cluster: &Cluster, node: usize, pictures: u32) -> Command {
    let mut command = cluster.namespace.command("ffmpeg");
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
    command.args(["-rtsp_transport", "tcp", "-i", &url(cluster, node)]);
    command.args(["-map", "0:v", "-frames:v", &pictures.to_string()]);
    command.args(["-f", "null", "-"]);
    command
}

fn gstreamer(cluster: &Cluster, node: usize) -> Command {
    let mut command = cluster.namespace.command("gst-launch-1.0");
    let location = format!("location={}", url(cluster, node));
    command.args(["-q", "rtspsrc", &location, "protocols=tcp", "latency=200"]);
    command.args(["name=in", "in.", "!", "application/x-rtp,media=video", "!"]);
    command.args(["rtph264depay", "!", "h264parse", "!", "openh264dec", "!"]);
    command.args(["identity", "error-after=60", "!", "fakesink", "sync=false"]);
    command.args(["in.", "!", "application/x-rtp,media=audio", "!"]);
    command.args(["fakesink", "async=false", "sync=false"]);
    command
}

fn assert_shows(cluster: &Cluster, mut command: Command) {
    let (status, said) = Process::run(&mut command, LONG).unwrap();
    // GStreamer's `identity` ends by an error that it was asked for.
    let is_done = status.success() || said.contains("Failed after iterations as requested");
    let logs: Vec<_> = cluster
        .nodes
        .iter()
        .map(|it| it.process.log_tail())
        .collect();
    assert!(is_done, "{command:?}: {said}\n{}", logs.join("\n--\n"));
    for complaint in ["missed", "concealing", "Invalid data", "non-existing PPS"] {
        assert!(!said.contains(complaint), "{command:?}: {said}");
    }
}

/// The channel as a node has it; null if it has not.
fn channel(cluster: &Cluster, node: usize) -> Value {
    let status = cluster.status(node);
    let channels = status["channels"].as_array().cloned().unwrap_or_default();
    let own = channels.into_iter().find(|it| it["name"] == CHANNEL);
    own.unwrap_or(Value::Null)
}

fn wait_for(cluster: &Cluster, node: usize, name: &str, value: u64) {
    let what = format!("{name} of node {} is {value}", node + 1);
    wait_until(&what, || cluster.of_cluster(node, name) == value);
}

/// Until that node has the channel's lease, and all others know of it.
fn wait_for_owner(cluster: &Cluster, owner: usize) {
    for node in 0..cluster.nodes.len() {
        wait_for(cluster, node, "channels_held", u64::from(node == owner));
        wait_for(cluster, node, "channels", 1);
    }
}

/// So many seconds of pictures, to be shown while other things happen.
fn start_viewer(cluster: &Cluster, node: usize, seconds: u32) -> Process {
    let viewer = Process::start(&mut ffmpeg(cluster, node, 25 * seconds)).unwrap();
    wait_for(cluster, node, "channels_pulled", 1);
    wait_until("it is shown", || {
        channel(cluster, node)["players"].as_u64() >= Some(1)
    });
    viewer
}

fn assert_ends_well(mut viewer: Process) {
    let status = viewer.wait(LONG).unwrap();
    let said = viewer.log();
    assert!(status.success(), "{said}");
    for complaint in ["missed", "concealing", "Invalid data"] {
        assert!(!said.contains(complaint), "{said}");
    }
}

#[test]
fn a_channel_is_played_at_every_node_and_taken_once() {
    require_root!();
    require_programs!("nats-server", "ffmpeg", "gst-launch-1.0");
    let cluster = Cluster::start(LONG_LIFE);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);

    // Two at one node, one at another, and one by HLS: to the first node these are two players.
    let viewers = [
        start_viewer(&cluster, 1, 8),
        start_viewer(&cluster, 1, 8),
        start_viewer(&cluster, 2, 8),
    ];
    wait_until("two watch at node 2", || {
        channel(&cluster, 1)["players"] == 2
    });
    assert_eq!(channel(&cluster, 0)["players"], 2, "one for each node");
    wait_until("what goes over TCP is counted", || {
        channel(&cluster, 0)["sent"]["bytes"].as_u64() > Some(0)
    });
    assert_shows(&cluster, gstreamer(&cluster, 2));
    let mut hls = cluster.namespace.command("ffmpeg");
    let list = format!(
        "http://{}:8080/{CHANNEL}/hls/index.m3u8",
        cluster.nodes[1].host
    );
    hls.args(["-nostdin", "-v", "error", "-i", &list, "-map", "0:v"]);
    hls.args(["-frames:v", "50", "-f", "null", "-"]);
    assert_shows(&cluster, hls);
    viewers.into_iter().for_each(assert_ends_well);
    assert_shows(&cluster, ffmpeg(&cluster, 0, 50));
    for node in 0..3 {
        let told = channel(&cluster, node);
        let missing = &told["received"]["missing"];
        assert!(missing.is_null() || missing == 0, "{told:#}");
    }

    // A second publisher is told who has it.
    let mut second = publish(&cluster, 2);
    let status = second.wait(LONG).unwrap();
    assert!(
        !status.success() && second.log().contains("403"),
        "{}",
        second.log()
    );
    let refused = "somebody else publishes under this name, at node \"node-1\" (127.0.0.11:8554)";
    let log = &cluster.nodes[2].process;
    assert!(log.wait_for_line(refused, LONG).is_some(), "{}", log.log());
    // A node that asks by another lease is not given what this one takes from elsewhere.
    let by_lease = |lease: u64| format!("{}?lease={lease}", url(&cluster, 1));
    assert_eq!(cluster.describe(1, &by_lease(1)).0, 404);
    let (code, said) = cluster.command(1, &["status"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("channel    live/cam: node node-1, lease "),
        "{said}"
    );

    // Nobody watches: it is left. Its publisher goes: it is given up.
    for node in 1..3 {
        wait_for(&cluster, node, "channels_pulled", 0);
    }
    source.interrupt(LONG).unwrap();
    for node in 0..3 {
        wait_for(&cluster, node, "channels", 0);
    }
    wait_until("nobody has it", || {
        cluster.describe(1, &url(&cluster, 1)).0 == 404
    });
}

/// Who watches goes on watching.
#[test]
fn a_publisher_may_come_back_at_another_node() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let cluster = Cluster::start(LONG_LIFE);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    let second = start_viewer(&cluster, 1, 20);
    let third = start_viewer(&cluster, 2, 20);
    let first = Process::start(&mut ffmpeg(&cluster, 0, 500)).unwrap();
    wait_until("three watch", || channel(&cluster, 0)["players"] == 3);
    source.interrupt(LONG).unwrap();
    wait_for(&cluster, 2, "channels", 0);
    // To a node that took the channel from the first one until now.
    let mut source = publish(&cluster, 2);
    wait_for_owner(&cluster, 2);
    for node in 0..2 {
        wait_for(&cluster, node, "channels_pulled", 1);
    }
    assert_eq!(cluster.of_cluster(2, "channels_pulled"), 0);
    for viewer in [first, second, third] {
        assert_ends_well(viewer);
    }
    source.interrupt(LONG).unwrap();
}

#[test]
fn a_killed_nodes_channel_is_taken_elsewhere() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::start(SHORT_LIFE);
    let mut source = publish(&cluster, 2);
    wait_for_owner(&cluster, 2);
    let viewer = start_viewer(&cluster, 1, 25);
    let mut killed = cluster.nodes.pop().unwrap();
    killed.process.signal(Signal::KILL).unwrap();
    killed.process.wait(LONG).unwrap();
    assert!(!source.wait(LONG).unwrap().success());
    // It may be alive, for all that the others know.
    let mut early = publish(&cluster, 0);
    assert!(!early.wait(LONG).unwrap().success());
    wait_for(&cluster, 0, "channels", 0);
    wait_for(&cluster, 1, "channels", 0);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    // Who watched elsewhere has waited.
    wait_for(&cluster, 1, "channels_pulled", 1);
    assert_ends_well(viewer);
    source.interrupt(LONG).unwrap();
}

#[test]
fn without_the_registry_channels_go_on() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::start(SHORT_LIFE);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    let viewer = start_viewer(&cluster, 1, 40);
    let mut nats = cluster.nats.take().unwrap();
    nats.process.signal(Signal::KILL).unwrap();
    nats.process.wait(LONG).unwrap();
    for node in 0..3 {
        wait_until("it is noticed", || !cluster.is_registered(node));
    }
    // Nobody else knows that it is there by now, but who has it keeps it.
    wait_for(&cluster, 1, "channels", 0);
    wait_for(&cluster, 0, "channels_held", 0);
    assert_eq!(cluster.of_cluster(1, "channels_pulled"), 1);
    assert_shows(&cluster, ffmpeg(&cluster, 0, 50));
    assert_shows(&cluster, ffmpeg(&cluster, 1, 50));
    cluster.nats = Some(cluster.start_nats());
    wait_for_owner(&cluster, 0);
    assert_shows(&cluster, ffmpeg(&cluster, 2, 50));
    assert_ends_well(viewer);
    let told = channel(&cluster, 1);
    assert_eq!(told["received"]["restarts"], 0, "{told:#}");
    assert!(source.is_running().unwrap());
    source.interrupt(LONG).unwrap();
}

/// Three nodes, whose channel takes a standby.
fn with_standby(life: &'static str) -> Cluster {
    let mut cluster = Cluster::prepare(life);
    // Longer than a busy machine keeps an encoder waiting, and less than a killed node's lease has.
    let more = ["--standby=live/*", "--standby-after=4s"].map(str::to_owned);
    for number in 1..=3 {
        let node = cluster.start_node_at(number, NATS, &more);
        cluster.nodes.push(node);
    }
    cluster.wait_for_nodes(3);
    cluster
}

/// A standby at that node, once it sends and its node has the standby's lease.
fn stand_by(cluster: &Cluster, node: usize) -> Process {
    let standby = publish(cluster, node);
    let log = &cluster.nodes[node].process;
    let said = log.wait_for_line("the standby of live/cam is here", LONG);
    assert!(said.is_some(), "{}", log.log());
    wait_until("it is there", || {
        channel(cluster, node)["publishers"]["standbys"] == 1
    });
    // So that it has sent a sync sample.
    thread::sleep(Duration::from_secs(2));
    standby
}

/// The token of the channel's lease, as that node knows it.
fn token(cluster: &Cluster, node: usize) -> u64 {
    let (_, said) = cluster.command(node, &["status"]);
    let (_, lease) = said.split_once("lease ").expect("a lease");
    let end = lease.find(|c: char| !c.is_ascii_digit());
    lease[..end.unwrap_or(lease.len())].parse().unwrap()
}

// SPECIFICATION.md: 72
#[test]
fn a_killed_nodes_channel_goes_on_with_the_standby_of_another() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = with_standby(SHORT_LIFE);
    let mut source = publish(&cluster, 2);
    wait_for_owner(&cluster, 2);
    let older = token(&cluster, 0);
    let mut standby = stand_by(&cluster, 1);
    let (_, said) = cluster.command(0, &["status"]);
    assert!(said.contains("standby at node node-2"), "{said}");
    // A third is told where the others are, whichever node it comes to.
    for node in 0..3 {
        let mut third = publish(&cluster, node);
        assert!(!third.wait(LONG).unwrap().success(), "{}", third.log());
    }
    let refused = "has a publisher at node \"node-3\" and a standby at node \"node-2\"";
    let log = &cluster.nodes[0].process;
    assert!(log.wait_for_line(refused, LONG).is_some(), "{}", log.log());
    let viewers = [start_viewer(&cluster, 0, 35), start_viewer(&cluster, 1, 35)];
    assert_eq!(cluster.of_cluster(1, "channels_held"), 0);
    let mut killed = cluster.nodes.pop().unwrap();
    killed.process.signal(Signal::KILL).unwrap();
    killed.process.wait(LONG).unwrap();
    assert!(!source.wait(LONG).unwrap().success());
    // Who watches at the standby's node does not wait for the lease.
    wait_until("it goes on for its own viewers", || {
        channel(&cluster, 1)["publishers"]["switches"] == 1
    });
    wait_for_owner(&cluster, 1);
    assert!(token(&cluster, 0) > older, "the fence is higher");
    wait_for(&cluster, 0, "channels_pulled", 1);
    wait_for(&cluster, 1, "channels_pulled", 0);
    assert!(standby.is_running().unwrap());
    viewers.into_iter().for_each(assert_ends_well);
    standby.interrupt(LONG).unwrap();
}

#[test]
fn a_silent_owners_channel_goes_on_at_the_standbys_node() {
    require_root!();
    require_programs!("nats-server", "ffmpeg", "gst-launch-1.0");
    let cluster = with_standby(LONG_LIFE);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    let mut standby = stand_by(&cluster, 1);
    let first = Process::start(&mut ffmpeg(&cluster, 0, 25 * 25)).unwrap();
    let second = start_viewer(&cluster, 1, 25);
    let third = start_viewer(&cluster, 2, 25);
    source.signal(Signal::STOP).unwrap();
    // Long before its publisher is let go.
    let given_up = "nothing comes of its publisher; another node's standby goes on";
    let log = &cluster.nodes[0].process;
    assert!(log.wait_for_line(given_up, LONG).is_some(), "{}", log.log());
    wait_for_owner(&cluster, 1);
    wait_for(&cluster, 0, "channels_pulled", 1);
    source.signal(Signal::CONT).unwrap();
    for viewer in [first, second, third] {
        assert_ends_well(viewer);
    }
    // It stands by from then on, and takes the channel when the other is killed.
    wait_until("it stands by", || {
        let (_, said) = cluster.command(2, &["status"]);
        said.contains("node node-2") && said.contains("standby at node node-1")
    });
    let viewer = start_viewer(&cluster, 2, 15);
    standby.signal(Signal::KILL).unwrap();
    standby.wait(LONG).unwrap();
    wait_for_owner(&cluster, 0);
    assert_ends_well(viewer);
    source.interrupt(LONG).unwrap();
}

/// Passes connections on to the registry, until it is cut.
struct Way {
    is_cut: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Way {
    fn open(cluster: &Cluster) -> Self {
        let is_cut = Arc::new(AtomicBool::new(false));
        let listen = || {
            let listener = TcpListener::bind("127.0.0.1:4300").unwrap();
            let (address, is_cut) = (listener.local_addr().unwrap(), Arc::clone(&is_cut));
            // A thread is in the namespace of the one that started it.
            thread::spawn(move || {
                for client in listener.incoming().flatten() {
                    if is_cut.load(Ordering::Acquire) {
                        continue;
                    }
                    let server = TcpStream::connect(NATS).unwrap();
                    for (from, to) in [(&client, &server), (&server, &client)] {
                        let ends = (from.try_clone().unwrap(), to.try_clone().unwrap());
                        let is_cut = Arc::clone(&is_cut);
                        thread::spawn(move || Self::pass(ends, &is_cut));
                    }
                }
            });
            address
        };
        let address = cluster.namespace.run(listen);
        Self { is_cut, address }
    }

    fn pass((mut from, mut to): (TcpStream, TcpStream), is_cut: &AtomicBool) {
        from.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let mut bytes = [0; 4096];
        while !is_cut.load(Ordering::Acquire) {
            match io::Read::read(&mut from, &mut bytes) {
                Ok(0) => break,
                Ok(read) if io::Write::write_all(&mut to, &bytes[..read]).is_ok() => {}
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        drop(from.shutdown(std::net::Shutdown::Both));
        drop(to.shutdown(std::net::Shutdown::Both));
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Release);
    }
}

/// The node whose lease is older steps down, and its viewers see what the other one gets.
// SPECIFICATION.md: 67
#[test]
fn after_a_partition_no_channel_has_two_owners() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::prepare(SHORT_LIFE);
    let way = Way::open(&cluster);
    cluster
        .nodes
        .push(cluster.start_node_at(1, way.address, &[]));
    for number in 2..=3 {
        cluster.nodes.push(cluster.start_node(number));
    }
    cluster.wait_for_nodes(3);
    let mut older = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    way.cut(true);
    for node in 1..3 {
        wait_for(&cluster, node, "channels", 0);
    }
    wait_for(&cluster, 0, "channels_held", 0);
    // Cut off, it goes on for those who watch there, and elsewhere another publisher is taken.
    let mut newer = publish(&cluster, 1);
    wait_for(&cluster, 1, "channels_held", 1);
    wait_for(&cluster, 2, "channels", 1);
    assert!(older.is_running().unwrap());
    let viewer = Process::start(&mut ffmpeg(&cluster, 0, 500)).unwrap();
    wait_until("it is shown", || channel(&cluster, 0)["players"] == 1);
    assert_shows(&cluster, ffmpeg(&cluster, 2, 50));
    way.cut(false);
    wait_for_owner(&cluster, 1);
    wait_for(&cluster, 0, "stepped_down", 1);
    let by_now = "channel live/cam is at node node-2 by now";
    let log = &cluster.nodes[0].process;
    assert!(log.wait_for_line(by_now, LONG).is_some(), "{}", log.log());
    assert!(!older.wait(LONG).unwrap().success());
    wait_for(&cluster, 0, "channels_pulled", 1);
    assert_ends_well(viewer);
    assert_shows(&cluster, ffmpeg(&cluster, 0, 50));
    assert!(newer.is_running().unwrap());
    newer.interrupt(LONG).unwrap();
}

/// Each of three servers of NATS goes once, the one that leads among them: nobody notices.
#[test]
fn each_of_three_servers_of_nats_may_go() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::prepare_films(NATS_LIFE);
    let folder = tempfile::tempdir().unwrap();
    let start = |cluster: &Cluster, number| cluster.start_nats_of_three(number, folder.path());
    let mut nats: Vec<_> = (0..3).map(|number| start(&cluster, number)).collect();
    let others = [4223, 4224].map(|port| format!("--cluster-nats=nats://127.0.0.1:{port}"));
    for number in 1..=3 {
        let node = cluster.start_node_at(number, NATS, &others);
        cluster.nodes.push(node);
    }
    cluster.wait_for_nodes(3);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    let homes: Vec<_> = (0..FILMS).map(|film| cluster.home(film)).collect();
    let viewer = start_viewer(&cluster, 1, 80);
    for number in 0..3 {
        let mut gone = nats.remove(usize::from(number));
        gone.signal(Signal::KILL).unwrap();
        gone.wait(LONG).unwrap();
        let written = || (0..3).all(|node| cluster.is_registered(node));
        let begin = Instant::now();
        while begin.elapsed() < ELECTION_TIME {
            for node in 0..3 {
                let log = || cluster.nodes[node].process.log();
                assert_eq!(cluster.of_cluster(node, "nodes"), 3, "{}", log());
            }
            thread::sleep(Duration::from_millis(200));
        }
        wait_until("all are registered", written);
        nats.insert(usize::from(number), start(&cluster, number));
        let ready = nats[usize::from(number)].wait_for_line("Server is ready", LONG);
        assert!(ready.is_some());
        // Catching up with the others it must be before one of these goes.
        let healthy = || {
            let log = nats[usize::from(number)].log();
            log.contains("JetStream cluster new metadata leader") || log.contains("caught up")
        };
        wait_until("it is one of three again", healthy);
        thread::sleep(CAUGHT_UP_TIME);
    }
    wait_for_owner(&cluster, 0);
    let now: Vec<_> = (0..FILMS).map(|film| cluster.home(film)).collect();
    assert_eq!(now, homes);
    assert_eq!(cluster.of_cluster(0, "stepped_down"), 0);
    assert_ends_well(viewer);
    assert!(source.is_running().unwrap());
    source.interrupt(LONG).unwrap();
}

/// Nodes know each other by the keys that all of them have for signing URLs.
#[test]
fn nodes_with_a_key_take_channels_from_each_other() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::prepare(LONG_LIFE);
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    let keys = folder.path().join("keys");
    fs::write(&keys, "0123456789abcdef0123456789abcdef\n").unwrap();
    let password = folder.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    let mut add = Command::new(common::ONRUSH);
    add.args(["user", "add"]).arg(&users).arg("anna");
    add.stdin(fs::File::open(&password).unwrap());
    assert!(add.status().unwrap().success());
    let mut text = fs::read_to_string(&users).unwrap();
    text.push_str("group everybody admin /admin\ngroup viewers publish /live/**\n");
    fs::write(&users, text).unwrap();
    let with_users = format!("--users={}", users.display());
    let with_keys = format!("--url-keys={}", keys.display());
    for number in 1..=3 {
        // The third has no key: it is a viewer without a name.
        let options = [with_users.clone(), with_keys.clone()];
        let options = &options[..if number == 3 { 1 } else { 2 }];
        let node = cluster.start_node_at(number, NATS, options);
        cluster.nodes.push(node);
    }
    cluster.wait_for_nodes(3);
    let named = |node: usize| url(&cluster, node).replace("rtsp://", "rtsp://anna:secret@");
    let mut source = Process::start(&mut publisher(&cluster, &named(0))).unwrap();
    wait_for_owner(&cluster, 0);
    let watch = |node: usize| {
        let mut command = cluster.namespace.command("ffmpeg");
        command.args(["-nostdin", "-hide_banner", "-loglevel", "error"]);
        command.args(["-rtsp_transport", "tcp", "-i", &named(node)]);
        command.args(["-map", "0:v", "-frames:v", "50", "-f", "null", "-"]);
        command
    };
    assert_shows(&cluster, watch(1));
    let log = &cluster.nodes[1].process;
    let pulled = log.wait_for_line("is pulled from", LONG).unwrap();
    for secret in ["signature", "proof"] {
        assert!(!pulled.contains(secret), "{pulled}");
    }
    // Who may watch is no node by that, and ends no node's connection.
    let viewer = Process::start(&mut watch(1)).unwrap();
    wait_for(&cluster, 0, "pulls_fed", 1);
    let pulls = || log.log().matches("is pulled from").count();
    let before = pulls();
    let mut sign = Command::new(common::ONRUSH);
    sign.args(["sign", &url(&cluster, 0), "--keys"]).arg(&keys);
    let signed = String::from_utf8(sign.output().unwrap().stdout).unwrap();
    let lease = token(&cluster, 0);
    let posing = format!("{}&lease={lease}&puller=node-2", signed.trim());
    assert_eq!(cluster.describe(0, &posing).0, 200);
    assert_ends_well(viewer);
    assert_eq!(pulls(), before, "{}", log.log());
    let (status, _) = Process::run(&mut watch(2), LONG).unwrap();
    assert!(!status.success());
    let refused = "all nodes need the same keys for URLs";
    let log = &cluster.nodes[2].process;
    assert!(log.wait_for_line(refused, LONG).is_some(), "{}", log.log());
    // Who has no name watches at none of them.
    for node in 0..2 {
        assert_eq!(cluster.describe(node, &url(&cluster, node)).0, 401);
    }
    source.interrupt(LONG).unwrap();
}

/// Three nodes of which each feeds one other: the third takes the channel from the second.
fn chain() -> (Cluster, Process) {
    let mut cluster = Cluster::prepare(LONG_LIFE);
    for number in 1..=3 {
        let one = ["--cluster-pulls-max=1".to_owned()];
        let node = cluster.start_node_at(number, NATS, &one);
        cluster.nodes.push(node);
    }
    cluster.wait_for_nodes(3);
    let source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    (cluster, source)
}

/// Until the two nodes that have viewers are fed as that says: by which node each is fed.
fn wait_for_sources(cluster: &Cluster, sources: [Option<&str>; 2]) {
    for (node, source) in (1..).zip(sources) {
        let Some(source) = source else { continue };
        let input = format!("node {source}");
        let what = format!("node {} takes it from {input}", node + 1);
        wait_until(&what, || channel(cluster, node)["input"] == input);
    }
}

// SPECIFICATION.md: 75
#[test]
fn a_node_feeds_no_more_than_it_may_and_leaves_go_on() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let (mut cluster, mut source) = chain();
    let inner = start_viewer(&cluster, 1, 60);
    wait_for_sources(&cluster, [Some("node-1"), None]);
    let leaf = start_viewer(&cluster, 2, 35);
    wait_for_sources(&cluster, [Some("node-1"), Some("node-2")]);
    assert_shows(&cluster, ffmpeg(&cluster, 1, 50));
    assert_shows(&cluster, ffmpeg(&cluster, 2, 50));
    for (node, fed) in [(0, 1), (1, 1), (2, 0)] {
        assert_eq!(cluster.of_cluster(node, "pulls_fed"), fed);
        assert!(channel(&cluster, node)["players"].as_u64() <= Some(2));
    }
    assert_eq!(cluster.of_cluster(0, "pulls_sent_on"), 1);
    let (_, said) = cluster.command(1, &["status"]);
    assert!(
        said.contains(", taken from node node-1, nodes fed from here: 1"),
        "{said}"
    );
    // Not fed is who asks itself, and who does not say who it is; a third is sent on.
    let asked = |query: &str| format!("{}?lease={}&{query}", url(&cluster, 1), token(&cluster, 1));
    assert_eq!(cluster.describe(1, &asked("puller=node-2")).0, 404);
    assert_eq!(cluster.describe(1, &asked("")).0, 404);
    let (status, there) = cluster.describe(1, &asked("puller=node-1"));
    assert_eq!((status, cluster.node_of(&there.unwrap())), (302, 2));

    // The node between dies: the leaf asks the first one, and goes on for its viewers.
    let mut killed = cluster.nodes.remove(1);
    killed.process.signal(Signal::KILL).unwrap();
    killed.process.wait(LONG).unwrap();
    wait_until("the leaf takes it from node 1", || {
        channel(&cluster, 1)["input"] == "node node-1"
    });
    assert_eq!(cluster.of_cluster(0, "pulls_fed"), 1);
    drop(inner);
    assert_ends_well(leaf);
    assert_shows(&cluster, ffmpeg(&cluster, 1, 50));
    source.interrupt(LONG).unwrap();
}

/// Those that it feeds find their way from the first node.
#[test]
fn a_node_that_drains_lets_those_go_that_it_feeds() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let (cluster, mut source) = chain();
    let inner = start_viewer(&cluster, 1, 12);
    wait_for_sources(&cluster, [Some("node-1"), None]);
    let leaf = start_viewer(&cluster, 2, 45);
    wait_for_sources(&cluster, [Some("node-1"), Some("node-2")]);
    assert_eq!(cluster.command(1, &["drain"]).0, Some(0));
    wait_for(&cluster, 1, "pulls_fed", 0);
    // Who watches there watches on, and it keeps its place until then.
    assert_ends_well(inner);
    wait_until("the leaf takes it from node 1", || {
        channel(&cluster, 2)["input"] == "node node-1"
    });
    assert_ends_well(leaf);
    source.interrupt(LONG).unwrap();
}

/// Whoever publishes decides when it goes, and until then there is no other place to have it from.
#[test]
fn a_node_that_drains_feeds_others_with_what_it_receives() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let cluster = Cluster::start(LONG_LIFE);
    let mut source = publish(&cluster, 0);
    wait_for_owner(&cluster, 0);
    // Where nobody listens.
    let sent_on = ["drain", "--to", "rtsp://127.0.0.1:9/"];
    for words in [&["drain"][..], &sent_on[..]] {
        assert_eq!(cluster.command(0, words).0, Some(0));
        for node in 1..3 {
            // So that it is taken anew.
            wait_for(&cluster, node, "channels_pulled", 0);
            assert_shows(&cluster, ffmpeg(&cluster, node, 50));
        }
        let (status, said) = Process::run(&mut ffmpeg(&cluster, 0, 50), LONG).unwrap();
        assert!(!status.success(), "a viewer is refused, or sent on: {said}");
    }
    source.interrupt(LONG).unwrap();
}

/// The channel comes to the node between by now: the leaf goes on.
#[test]
fn a_node_that_is_fed_may_become_the_one_that_feeds() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let (cluster, mut source) = chain();
    let inner = start_viewer(&cluster, 1, 30);
    wait_for_sources(&cluster, [Some("node-1"), None]);
    let leaf = start_viewer(&cluster, 2, 30);
    wait_for_sources(&cluster, [Some("node-1"), Some("node-2")]);
    source.interrupt(LONG).unwrap();
    wait_for(&cluster, 1, "channels", 0);
    for node in 0..3 {
        wait_for(&cluster, node, "pulls_fed", 0);
    }
    let mut source = publish(&cluster, 1);
    wait_for_owner(&cluster, 1);
    wait_for_sources(&cluster, [None, Some("node-2")]);
    assert_eq!(cluster.of_cluster(1, "pulls_fed"), 1);
    assert_ends_well(inner);
    assert_ends_well(leaf);
    source.interrupt(LONG).unwrap();
}

/// Three nodes are told to get it from one camera: one of them does, and the others from that one.
#[test]
fn a_camera_is_asked_by_one_node_alone() {
    require_root!();
    require_programs!("nats-server", "ffmpeg");
    let mut cluster = Cluster::prepare(SHORT_LIFE);
    // A server that is of no cluster is the camera.
    let mut command = cluster.namespace.command(common::ONRUSH);
    command.args(["serve", "--rtsp=127.0.0.9:8554", "--metrics=127.0.0.9:9554"]);
    command
        .args(["--state=off", "--cache=8MiB"])
        .arg(cluster.films.path());
    let camera = Process::start(&mut command).unwrap();
    assert!(camera.wait_for_line("stopping", LONG).is_some());
    let mut command = cluster.namespace.command("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-re", "-f", "lavfi"]);
    command.args(["-i", "testsrc=size=320x240:rate=25", "-pix_fmt", "yuv420p"]);
    command.args(["-c:v", "libx264", "-g", "25", "-preset", "ultrafast"]);
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp"]);
    command.arg("rtsp://127.0.0.9:8554/eye");
    let mut source = Process::start(&mut command).unwrap();
    assert!(camera.wait_for_line("is published by", LONG).is_some());
    let pull = ["--channel=cam=rtsp://127.0.0.9:8554/eye".to_owned()];
    for number in 1..=3 {
        let node = cluster.start_node_at(number, NATS, &pull);
        cluster.nodes.push(node);
    }
    cluster.wait_for_nodes(3);
    let held = |cluster: &Cluster| -> Vec<u64> {
        let nodes = 0..cluster.nodes.len();
        nodes
            .map(|it| cluster.of_cluster(it, "channels_held"))
            .collect()
    };
    let pulled = |cluster: &Cluster| -> u64 {
        let nodes = 0..cluster.nodes.len();
        nodes
            .map(|it| cluster.of_cluster(it, "channels_pulled"))
            .sum()
    };
    wait_until("two take it from the third", || {
        held(&cluster).iter().sum::<u64>() == 1 && pulled(&cluster) == 2
    });
    for node in 0..3 {
        assert_shows(&cluster, ffmpeg(&cluster, node, 25));
    }
    let owner = held(&cluster).iter().position(|held| *held == 1).unwrap();
    let mut gone = cluster.nodes.remove(owner);
    gone.process.signal(Signal::KILL).unwrap();
    gone.process.wait(LONG).unwrap();
    wait_until("another asks the camera", || {
        held(&cluster).iter().sum::<u64>() == 1 && pulled(&cluster) == 1
    });
    for node in 0..2 {
        assert_shows(&cluster, ffmpeg(&cluster, node, 25));
    }
    source.interrupt(LONG).unwrap();
}
