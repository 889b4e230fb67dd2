//! The registry and the nodes, as processes in a namespace.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use onrush_server::admin::status::Status;
use onrush_simulate::{film_path, node_name};
use onrush_testkit::http_client::Client;
use onrush_testkit::process::Process;
use onrush_testkit::testbed::{SND_DEVICE, Testbed};
use tempfile::TempDir;

use super::record::Settings;
use crate::error::ExperimentError;
use crate::film_kind::FilmKind;
use crate::setup::system;

/// How long a program may take until it is ready.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// Packets that are ready to be sent: films that a node plays are read once.
const CACHE: &str = "256MiB";
/// RTP's ports: each node has a part of them.
const RTP_PORTS: (u32, u32) = (16_384, 65_535);
const RTSP_PORT: u16 = 8554;
const STATUS_PORT: u16 = 9554;

/// All that was started; it ends with this.
pub(super) struct Nodes {
    nodes: Vec<Process>,
    _nats: Process,
    _folder: TempDir,
}

/// Where a node is.
pub(super) fn host(node: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 10 + u8::try_from(node).unwrap_or(0))
}

/// Where it answers RTSP.
pub(super) fn rtsp(node: u32) -> SocketAddr {
    SocketAddr::from((host(node), RTSP_PORT))
}

impl Nodes {
    /// Starts the registry and all nodes, and waits until each knows the others.
    pub(super) fn start(
        testbed: &Testbed,
        onrush: &Path,
        settings: &Settings,
    ) -> Result<Self, ExperimentError> {
        let folder = TempDir::with_prefix("onrush-cluster-").map_err(system("make a folder"))?;
        let media = folder.path().join("media");
        films(&media, settings)?;
        let mut nats = testbed.snd.command("nats-server");
        nats.args(["-js", "-a", "127.0.0.1", "-p", "4222", "-sd"]);
        nats.arg(folder.path().join("nats"));
        let nats = Process::start(&mut nats).map_err(system("start nats-server"))?;
        ready(&nats, "Server is ready")?;
        let mut nodes = Vec::new();
        for node in 0..settings.simulated.nodes {
            let address = format!("{}/24", host(node));
            let words = ["address", "add", &address, "dev", SND_DEVICE];
            testbed.snd.tool("ip", words)?;
            let mut command = testbed.snd.command(onrush);
            command.arg("serve").arg(&media);
            command.args(options(node, settings));
            let process = Process::start(&mut command).map_err(system("start onrush"))?;
            ready(&process, "stopping")?;
            nodes.push(process);
        }
        let started = Self {
            nodes,
            _nats: nats,
            _folder: folder,
        };
        started.wait_for_all(testbed)?;
        Ok(started)
    }

    fn wait_for_all(&self, testbed: &Testbed) -> Result<(), ExperimentError> {
        let give_up = Instant::now() + READY_TIME_MAX;
        loop {
            let known = self.statuses(testbed)?;
            let knows_all = |status: &Status| {
                let cluster = status.cluster.as_ref();
                cluster.is_some_and(|it| it.is_registered && it.nodes == self.nodes.len() as u64)
            };
            if known.iter().all(knows_all) {
                return Ok(());
            }
            if Instant::now() >= give_up {
                let words = "nodes do not find each other; is nats-server's JetStream at work?";
                return Err(ExperimentError::subject(words));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What each counts.
    pub(super) fn statuses(&self, testbed: &Testbed) -> Result<Vec<Status>, ExperimentError> {
        let count = u32::try_from(self.nodes.len()).unwrap_or(0);
        let asked = testbed.snd.run(|| {
            let of = |node| {
                let client = Client::connect(SocketAddr::from((host(node), STATUS_PORT)))?;
                Ok(serde_json::from_slice(&client.get("/status")?)?)
            };
            (0..count).map(of).collect::<std::io::Result<Vec<_>>>()
        });
        Ok(asked.map_err(system("ask a node for its status"))?)
    }
}

/// Films of one content, at the paths that the simulation has: where a film is at home follows
/// from its path.
fn films(media: &Path, settings: &Settings) -> Result<(), ExperimentError> {
    let write = || {
        fs::create_dir_all(media.join("films"))?;
        let first = media.join(film_path(0));
        let simulated = &settings.simulated;
        FilmKind::Ts.write(
            &first,
            simulated.rate_bps,
            u64::from(settings.film_s) * 1000,
        )?;
        for film in 0..simulated.films {
            let path = media.join(film_path(film));
            if film > 0 {
                fs::copy(&first, &path)?;
            }
            onrush_testkit::media::age(&path)?;
        }
        // What is read past the page cache must not first be written from there.
        rustix::fs::sync();
        Ok(())
    };
    Ok(write().map_err(system("write the films"))?)
}

fn options(node: u32, settings: &Settings) -> Vec<String> {
    let (host, name) = (host(node), node_name(node));
    let simulated = &settings.simulated;
    let each = ((RTP_PORTS.1 - RTP_PORTS.0) / simulated.nodes) & !1;
    let first = RTP_PORTS.0 + node * each;
    let life_s = simulated.tell_s * 3;
    let most = simulated.viewers.saturating_mul(2);
    vec![
        format!("--rtsp={host}:{RTSP_PORT}"),
        format!("--metrics={host}:{STATUS_PORT}"),
        format!("--rtp-ports={first}-{}", first + each - 1),
        format!("--cache={CACHE}"),
        // What it can play, as it is in the simulation: a node knows its sessions at once, and what
        // it sends a second later.
        format!("--sessions-max={}", simulated.node_viewers()),
        format!("--sessions-per-address-max={}", simulated.node_viewers()),
        format!("--connections-max={most}"),
        format!("--connections-per-address-max={most}"),
        // Nodes share processors here, so that none knows by its own what it may take.
        "--load-max=0".to_owned(),
        "--state=off".to_owned(),
        "--cluster=bench".to_owned(),
        format!("--cluster-node={name}"),
        format!("--cluster-host={host}"),
        "--cluster-nats=nats://127.0.0.1:4222".to_owned(),
        format!("--cluster-life={life_s}s"),
        format!("--cluster-capacity={}bit/s", simulated.node_bps),
    ]
}

fn ready(process: &Process, line: &str) -> Result<(), ExperimentError> {
    match process.wait_for_line(line, READY_TIME_MAX) {
        Some(_) => Ok(()),
        None => Err(ExperimentError::subject(process.log_tail())),
    }
}
