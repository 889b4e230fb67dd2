//! What a send costs by `SO_SETSENDGRP`, as an unmodified program uses it.
//!
//! The paper's own interface: setsockopt(2) names the members, then a plain send reaches all of
//! them. The agent serves the control group in which this process is, and the sending namespace,
//! for the length of a run only: its programs at the device would cost the other ways something.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use onrush_group::{Agent, AgentOptions, SOCKET_MEMBERS_MAX};
use onrush_primitives::sendgrp::{packets, set_members};
use onrush_sys::path::{PathName, prepare_socket};
use onrush_testkit::slice::cgroup_root;
use onrush_testkit::testbed::{Mode, SND_IPV4, Testbed};

use super::{Change, Load};
use crate::error::ExperimentError;
use crate::setup::system;

/// How often the agent looks after what the first members ask for.
const POLLS: usize = 20;
const POLL_TIME: Duration = Duration::from_millis(1);

/// A socket whose sends go to its members, and who sees to it.
pub(super) struct Served {
    socket: UdpSocket,
    #[expect(dead_code, reason = "the programs go with it")]
    agent: Agent,
}

/// Whether that can be asked of a socket: the option takes so many members at the most, one send
/// fills what lets packets wait behind the device, and no option changes one member for another.
pub(super) fn is_possible(mode: Mode, load: Load, members: u16, change: Change) -> bool {
    let skbs = match mode {
        Mode::Uso => 1,
        Mode::SoftwareGso => load.packets,
    };
    let fits = skbs * usize::from(members) <= backlog_packets_max();
    fits && u32::from(members) <= SOCKET_MEMBERS_MAX && change != Change::One
}

/// Packets that the far end of a veth pair lets wait; the rest of a send it drops.
fn backlog_packets_max() -> usize {
    let text = fs::read_to_string("/proc/sys/net/core/netdev_max_backlog");
    let read = text.ok().and_then(|text| text.trim().parse().ok());
    read.unwrap_or(1000)
}

impl Served {
    /// The members are the first of these lists; the next hops of all are known.
    pub(super) fn open(
        testbed: &Testbed,
        load: Load,
        lists: &[Vec<SocketAddr>],
    ) -> Result<Self, ExperimentError> {
        let options = AgentOptions {
            packets_per_second_max: 0,
            ..AgentOptions::default()
        };
        let cgroup = cgroup_of_process()?;
        let subject = |error| ExperimentError::Subject(Box::new(error));
        let agent = testbed.snd.run(|| Agent::start(&cgroup, &options));
        let mut agent = agent.map_err(subject)?;
        let socket = testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
        let socket = socket.map_err(system("open a socket"))?;
        let (name, stride) = match load.packets {
            1 => (PathName::Sendto, 0),
            _ => (PathName::SendmmsgGso, load.bytes),
        };
        let stride = u16::try_from(stride).expect("a packet fits a frame");
        let prepared = prepare_socket(name, socket.as_raw_fd(), stride);
        prepared.map_err(system("ready a socket for trains"))?;
        let connected = socket.connect(lists[0][0]);
        connected.map_err(system("connect a socket"))?;
        for members in lists.iter().rev() {
            set_members(&socket, members).map_err(system("set the members of a socket"))?;
            for _ in 0..POLLS {
                agent.poll(POLL_TIME).map_err(subject)?;
            }
        }
        Ok(Self { socket, agent })
    }

    /// Other members take their place.
    pub(super) fn replace(&self, members: &[SocketAddr]) -> Result<(), ExperimentError> {
        Ok(
            set_members(&self.socket, members)
                .map_err(system("replace the members of a socket"))?,
        )
    }

    /// Packets that its members were given.
    pub(super) fn packets(&self) -> Result<u64, ExperimentError> {
        let read = packets(&self.socket);
        Ok(read.map_err(system("read what a socket's members were given"))?)
    }

    /// To all of them, by one call.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), ExperimentError> {
        Ok(self.socket.send(bytes).map(drop).map_err(system("send"))?)
    }
}

/// Where the control group of this process is.
fn cgroup_of_process() -> Result<PathBuf, ExperimentError> {
    let root = cgroup_root().map_err(|error| ExperimentError::Subject(Box::new(error)))?;
    let own = fs::read_to_string("/proc/self/cgroup");
    let own = own.map_err(system("read /proc/self/cgroup"))?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    Ok(root.join(own.unwrap_or_default()))
}
