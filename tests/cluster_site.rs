//! Three servers that are nodes of one cluster, and a server of NATS, in a namespace of their own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of test binaries, each of which uses a part of it"
)]

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use onrush_testkit::http_client;
use onrush_testkit::netns::Netns;
use onrush_testkit::process::Process;
use onrush_testkit::rtsp_client::Client;
use serde_json::Value;
use tempfile::TempDir;

use super::common::{LONG, ONRUSH, clip, wait_until};

pub const NATS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4222);
pub const FILMS: u8 = 8;
/// In one cluster, for tests in which nobody is to be missed; longer than any test takes to notice.
pub const LONG_LIFE: &str = "60s";
/// Three signs of life on a machine that is busy with other tests.
pub const SHORT_LIFE: &str = "10s";

/// A server of NATS with JetStream.
pub struct Nats {
    pub process: Process,
    _folder: TempDir,
}

/// A node, at an address of its own.
pub struct Node {
    pub process: Process,
    pub host: Ipv4Addr,
}

pub struct Cluster {
    pub namespace: Netns,
    pub films: TempDir,
    pub nats: Option<Nats>,
    pub nodes: Vec<Node>,
    pub life: &'static str,
    /// Whoever asks is another viewer each time.
    pub viewers: Cell<u32>,
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 10 + number)
}

impl Cluster {
    /// Three nodes that know each other.
    pub fn start(life: &'static str) -> Self {
        let mut cluster = Self::prepare(life);
        for number in 1..=3 {
            let node = cluster.start_node(number);
            cluster.nodes.push(node);
        }
        cluster.wait_for_nodes(3);
        cluster
    }

    /// The registry and the films, and no node yet.
    pub fn prepare(life: &'static str) -> Self {
        let mut cluster = Self::prepare_films(life);
        cluster.nats = Some(cluster.start_nats());
        cluster
    }

    /// The films, and no registry yet.
    pub fn prepare_films(life: &'static str) -> Self {
        let films = TempDir::with_prefix("onrush-cluster-").unwrap();
        let bytes = clip(6.0);
        for film in 0..FILMS {
            let film = films.path().join(format!("film-{film}.ts"));
            fs::write(&film, &bytes).unwrap();
            onrush_testkit::media::age(&film).unwrap();
        }
        Self {
            namespace: Netns::new().unwrap(),
            films,
            nats: None,
            nodes: Vec::new(),
            life,
            viewers: Cell::new(0),
        }
    }

    /// Servers of NATS that are one cluster; the `number`th listens at port 4222 + `number`.
    pub fn start_nats_of_three(&self, number: u16, folder: &Path) -> Process {
        let (port, routes) = (4222 + number, 6222 + number);
        let mut command = self.namespace.command("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]);
        command.arg(folder.join(format!("nats-{number}")));
        command.args(["-n", &format!("nats-{number}"), "--cluster_name", "c"]);
        command.args(["--cluster", &format!("nats://127.0.0.1:{routes}")]);
        command.args([
            "--routes",
            "nats://127.0.0.1:6222,nats://127.0.0.1:6223,nats://127.0.0.1:6224",
        ]);
        Process::start(&mut command).unwrap()
    }

    pub fn start_nats(&self) -> Nats {
        let folder = TempDir::with_prefix("onrush-nats-").unwrap();
        let mut command = self.namespace.command("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", "4222", "-sd"]);
        command.arg(folder.path());
        let process = Process::start(&mut command).unwrap();
        let ready = process.wait_for_line("Server is ready", LONG);
        assert!(ready.is_some(), "{}", process.log());
        Nats {
            process,
            _folder: folder,
        }
    }

    pub fn start_node(&self, number: u8) -> Node {
        self.start_node_at(number, NATS, &[])
    }

    /// The same, which finds the registry there, with more options.
    pub fn start_node_at(&self, number: u8, nats: SocketAddr, more: &[String]) -> Node {
        let mut command = self.node_command_at(number, nats);
        command.args(more);
        self.run_node(number, command)
    }

    /// What starts a node, which may be told more.
    pub fn node_command(&self, number: u8) -> Command {
        self.node_command_at(number, NATS)
    }

    fn node_command_at(&self, number: u8, nats: SocketAddr) -> Command {
        let host = host(number);
        let mut command = self.namespace.command(ONRUSH);
        command.arg("serve").arg(self.films.path());
        for (service, port) in [("rtsp", 8554), ("http", 8080), ("metrics", 9554)] {
            command.arg(format!("--{service}={host}:{port}"));
        }
        command.args(["--state=off", "--cache=8MiB", "--cluster=films"]);
        command.args([
            format!("--cluster-node=node-{number}"),
            format!("--cluster-host={host}"),
            format!("--cluster-nats=nats://{nats}"),
            format!("--cluster-life={}", self.life),
        ]);
        command
    }

    pub fn run_node(&self, number: u8, mut command: Command) -> Node {
        let process = Process::start(&mut command).unwrap();
        let ready = process.wait_for_line("stopping", LONG);
        assert!(ready.is_some(), "{}", process.log());
        let host = host(number);
        Node { process, host }
    }

    /// Until all nodes that run know of so many.
    pub fn wait_for_nodes(&self, count: u64) {
        for node in 0..self.nodes.len() {
            let what = format!("node {} knows of {count}", node + 1);
            wait_until(&what, || self.of_cluster(node, "nodes") == count);
        }
    }

    /// What the node answers at its metrics' address.
    pub fn told(&self, node: usize, target: &str) -> Vec<u8> {
        let address = SocketAddr::from((self.nodes[node].host, 9554));
        self.namespace.run(|| {
            let client = http_client::Client::connect(address).unwrap();
            client.get(target).unwrap()
        })
    }

    pub fn status(&self, node: usize) -> Value {
        let text = self.told(node, "/status");
        serde_json::from_slice(&text).unwrap()
    }

    /// A number of a node's part in the cluster.
    pub fn of_cluster(&self, node: usize, name: &str) -> u64 {
        let status = self.status(node);
        let value = &status["cluster"][name];
        let number = value.as_bool().map(u64::from).or(value.as_u64());
        number.unwrap_or_else(|| panic!("{name}: {status}"))
    }

    pub fn is_registered(&self, node: usize) -> bool {
        self.of_cluster(node, "is_registered") == 1
    }

    /// `onrush cluster` at a node: its exit code, and what it says.
    pub fn command(&self, node: usize, words: &[&str]) -> (Option<i32>, String) {
        let mut command = self.namespace.command(ONRUSH);
        let at = format!("{}:9554", self.nodes[node].host);
        command.args(["cluster", "--at", &at]).args(words);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    pub fn rtsp_url(&self, node: usize, film: u8) -> String {
        format!("rtsp://{}:8554/film-{film}.ts", self.nodes[node].host)
    }

    pub fn http_url(&self, node: usize, film: u8) -> String {
        format!("http://{}:8080/film-{film}.ts", self.nodes[node].host)
    }

    /// What a viewer that never came before is answered who asks for a film by RTSP.
    pub fn describe(&self, node: usize, url: &str) -> (u16, Option<String>) {
        self.viewers.set(self.viewers.get() + 1);
        let viewer = format!("viewer {}", self.viewers.get());
        let mut client = self.connect(node);
        let answer = client.request("DESCRIBE", url, &[("User-Agent", &viewer)]);
        let answer = answer.unwrap();
        let location = answer.header("Location").map(str::to_owned);
        (answer.status, location)
    }

    pub fn connect(&self, node: usize) -> Client {
        let address = SocketAddr::from((self.nodes[node].host, 8554));
        self.namespace.run(|| Client::connect(address)).unwrap()
    }

    /// The same by HTTP.
    pub fn get(&self, node: usize, target: &str, viewer: &str) -> (u16, Option<String>) {
        let host = self.nodes[node].host;
        let address = SocketAddr::from((host, 8080));
        let connect = || http_client::Client::connect(address);
        let mut client = self.namespace.run(connect).unwrap();
        let more = format!("User-Agent: {viewer}\r\n");
        let answer = client.request("GET", target, &more).unwrap();
        let location = answer.header("Location").map(str::to_owned);
        (answer.status, location)
    }

    /// The node that has the film at home, once all who are asked say the same: each hears of the
    /// others at a time of its own.
    pub fn home(&self, film: u8) -> usize {
        let mut homes = Vec::new();
        wait_until("all say the same home", || {
            let nodes = 0..self.nodes.len();
            homes = nodes.map(|node| self.told_home(node, film)).collect();
            homes.iter().all(|home| *home == homes[0])
        });
        homes[0]
    }

    /// Where the node sends a viewer of the film, or itself.
    pub fn told_home(&self, node: usize, film: u8) -> usize {
        match self.describe(node, &self.rtsp_url(node, film)) {
            (200, _) => node,
            (302, Some(location)) => self.node_of(&location),
            other => panic!("{other:?}"),
        }
    }

    pub fn node_of(&self, location: &str) -> usize {
        let is_there = |node: &Node| location.contains(&format!("//{}:", node.host));
        let node = self.nodes.iter().position(is_there);
        node.unwrap_or_else(|| panic!("{location}"))
    }

    /// A film of that node, as all know.
    pub fn film_of(&self, node: usize) -> u8 {
        let film = (0..FILMS).find(|film| self.home(*film) == node);
        film.unwrap_or_else(|| panic!("of {FILMS} films none is at node {}", node + 1))
    }

    /// Writes to the registry what no node would.
    pub fn publish(&self, key: &str, value: &[u8]) {
        let mut stream = self.namespace.run(|| TcpStream::connect(NATS)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let head = format!("PUB $KV.onrush-films.{key} {}\r\n", value.len());
        let connect = b"CONNECT {\"verbose\":false}\r\n";
        let text = [connect, head.as_bytes(), value, b"\r\nPING\r\n"].concat();
        stream.write_all(&text).unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"PONG\r\n") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&bytes[..count]);
        }
        assert!(!said.windows(4).any(|it| it == b"-ERR"));
    }
}
