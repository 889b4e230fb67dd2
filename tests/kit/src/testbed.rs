//! Two namespaces and a veth pair between them: the only network that tests and experiments send
//! on.
//!
//! ```text
//! snd: v0 10.77.0.1 fd77::1  <--- veth --->  rcv: v1 10.77.0.2 fd77::2
//! ```
//!
//! Neighbours are static, so nothing but the test's own packets crosses. Who cuts trains into
//! packets is a [`Mode`] of `v0`, read back from the kernel whenever it is set. Everything goes
//! with the [`Netns`]: there is nothing to clean up.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::probe::network::Features;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::netns::{Netns, NetnsError};

/// The sending and the receiving side, connected.
#[derive(Debug)]
pub struct Testbed {
    /// Where the server or the sender under test runs.
    pub snd: Netns,
    /// Where clients, receivers or the sink are.
    pub rcv: Netns,
    mode: Mode,
}

/// Who cuts a train into packets. In files it has its [name](Mode::name).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The device does, or here nobody: the veth pair passes trains whole.
    Uso,
    /// The kernel does, in software, before the device: a network card without UDP segmentation.
    SoftwareGso,
}

/// What can be chosen about a testbed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Who cuts trains.
    pub mode: Mode,
    /// Of both ends, in bytes.
    pub mtu_bytes: u32,
    /// Packets the sending device may queue; 0 for none, as veth has by default.
    pub queue_packets: u32,
}

/// Why there is no testbed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A namespace or a device could not be made.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A device that was brought up does not send and receive.
    #[error("{device} is up, but for {} s the kernel has not let it send and \
     receive", ACTIVE_TIME_MAX.as_secs())]
    NotActive {
        /// The device.
        device: &'static str,
    },
    /// The device could not be asked for its features, or told to change them.
    #[error("{SND_DEVICE}: its features cannot be asked for or changed: {0}")]
    Features(#[source] io::Error),
    /// The kernel reported success, but the device says otherwise.
    #[error("{SND_DEVICE}: tx-udp-segmentation stays {found} after it was switched {wanted}")]
    ModeNotTaken {
        /// What was asked for: on or off.
        wanted: &'static str,
        /// What the device reports.
        found: &'static str,
    },
}

impl TestbedError {
    /// Whether root is all that is missing.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::Netns(error) if error.is_not_permitted())
    }
}

impl Testbed {
    /// Builds a testbed.
    pub fn new(options: Options) -> Result<Self, TestbedError> {
        let Options {
            mode,
            mtu_bytes,
            queue_packets,
        } = options;
        let (snd, rcv) = (Netns::new()?, Netns::new()?);
        let peer = rcv.path();
        let pair = format!(
            "link add {SND_DEVICE} address {SND_MAC} mtu {mtu_bytes} txqueuelen {queue_packets} \
             type veth peer name {RCV_DEVICE} address {RCV_MAC} mtu {mtu_bytes} netns {}",
            peer.display()
        );
        snd.tool("ip", pair.split(' '))?;
        furnish(&snd, SND_DEVICE, [SND_IPV4.into(), SND_IPV6.into()])?;
        furnish(&rcv, RCV_DEVICE, [RCV_IPV4.into(), RCV_IPV6.into()])?;
        neighbours(
            &snd,
            SND_DEVICE,
            RCV_MAC,
            [RCV_IPV4.into(), RCV_IPV6.into()],
        )?;
        neighbours(
            &rcv,
            RCV_DEVICE,
            SND_MAC,
            [SND_IPV4.into(), SND_IPV6.into()],
        )?;
        wait_until_active(&snd, SND_DEVICE, SND_IPV6)?;
        wait_until_active(&rcv, RCV_DEVICE, RCV_IPV6)?;
        let mut testbed = Self { snd, rcv, mode };
        testbed.set_mode(mode)?;
        Ok(testbed)
    }

    /// Switches who cuts trains from now on, and checks that the device agreed.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), TestbedError> {
        let wanted = if mode == Mode::Uso { "on" } else { "off" };
        let features = self.switch(&[UDP_SEGMENTATION], mode == Mode::Uso)?;
        let found = if features.any(&[UDP_SEGMENTATION]) {
            "on"
        } else {
            "off"
        };
        if found != wanted {
            return Err(TestbedError::ModeNotTaken { wanted, found });
        }
        self.mode = mode;
        Ok(())
    }

    /// Switches those of these features that the sending device knows, and says what it has then.
    ///
    /// # Errors
    ///
    /// If the device cannot be asked or told.
    pub fn switch(&self, names: &[&str], is_on: bool) -> Result<Features, TestbedError> {
        let features = self.snd.run(|| {
            let socket = UdpSocket::bind((SND_IPV4, 0))?;
            Features::switch(&socket, SND_DEVICE, names, is_on)
        });
        features.map_err(TestbedError::Features)
    }

    /// What the sending device does in hardware, or here in nobody's.
    ///
    /// # Errors
    ///
    /// If the device cannot be asked.
    pub fn features(&self) -> Result<Features, TestbedError> {
        let features = self.snd.run(|| {
            let socket = UdpSocket::bind((SND_IPV4, 0))?;
            Features::ask(&socket, SND_DEVICE)
        });
        features.map_err(TestbedError::Features)
    }

    /// Has all that arrives at `rcv` wait in the queue of one processor, whichever sent it: then it
    /// is received in the order in which the device sent it, also where a qdisc sends for others,
    /// or a thread of the kernel that runs where it likes. By receive packet steering
    /// (Documentation/networking/scaling.rst); see [`stay_on_one_processor`] for less.
    pub fn receive_on_one_processor(&self) -> Result<(), TestbedError> {
        // The device is seen in a sysfs that was mounted in its namespace.
        let steer = format!(
            "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/{RCV_DEVICE}/queues/rx-0/rps_cpus"
        );
        self.rcv.tool("unshare", ["--mount", "sh", "-c", &steer])?;
        Ok(())
    }

    /// Who cuts trains.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Packets and trains that found no room behind the sending device. All that arrives on a
    /// processor shares one queue (net.core.netdev_max_backlog), whatever namespace it is for:
    /// others can fill it.
    ///
    /// # Panics
    ///
    /// If the kernel does not tell.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let devices = self
            .snd
            .run(|| fs::read_to_string("/proc/thread-self/net/dev"));
        let devices = devices.expect("procfs");
        let line = devices
            .lines()
            .find_map(|line| line.trim().strip_prefix(SND_DEVICE)?.strip_prefix(":"));
        // Eight columns of what was received, then bytes, packets, errors and drops of what was
        // sent.
        let dropped = line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok());
        dropped.expect("a device has its line")
    }
}

impl Mode {
    /// The name it has in every report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uso => "uso",
            Self::SoftwareGso => "software-gso",
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Uso,
            mtu_bytes: 1500,
            queue_packets: 1000,
        }
    }
}

/// Has the calling thread run where it runs now from here on, and who is started by it. What a
/// thread sends before and after the scheduler moved it, or two processors send, may pass each
/// other on its way across veth: a test that looks at the order sends from one.
///
/// # Panics
///
/// If the kernel does not let a thread stay where it is.
pub fn stay_on_one_processor() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).expect("it runs there");
}

fn furnish(netns: &Netns, device: &str, addresses: [IpAddr; 2]) -> Result<(), NetnsError> {
    for address in addresses {
        let add = match address {
            IpAddr::V4(address) => format!("addr add {address}/24 dev {device}"),
            // Without duplicate detection, so that it can be used at once.
            IpAddr::V6(address) => format!("addr add {address}/64 dev {device} nodad"),
        };
        netns.tool("ip", add.split(' '))?;
    }
    netns.tool("ip", ["link", "set", device, "up"])?;
    Ok(())
}

/// A device that is up, and has its addresses, neither sends nor receives before two work items of
/// the kernel's have had their turn. Of two that are joined the one that was up first hears of the
/// other by `linkwatch_do_dev` (net/core/link_watch.c); until then its queue is `noop`, which drops
/// what is sent and reports it as sent. And an IPv6 address is a local one from `addrconf_dad_work`
/// on (net/ipv6/addrconf.c), also where nobody else may have it.
fn wait_until_active(
    netns: &Netns,
    device: &'static str,
    ip: Ipv6Addr,
) -> Result<(), TestbedError> {
    let says = |command: &str, what: &str| {
        let shown = netns.tool("ip", command.split(' '))?.stdout;
        Ok::<_, NetnsError>(String::from_utf8_lossy(&shown).contains(what))
    };
    let link = format!("link show {device}");
    let routes = format!("-6 route show table local dev {device}");
    let is_local = format!("local {ip} ");
    let give_up = Instant::now() + ACTIVE_TIME_MAX;
    while !(says(&link, " state UP ")? && says(&routes, &is_local)?) {
        if Instant::now() > give_up {
            return Err(TestbedError::NotActive { device });
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn neighbours(
    netns: &Netns,
    device: &str,
    mac: &str,
    peers: [IpAddr; 2],
) -> Result<(), NetnsError> {
    for peer in peers {
        let add = format!("neigh replace {peer} lladdr {mac} dev {device} nud permanent");
        netns.tool("ip", add.split(' '))?;
    }
    Ok(())
}

/// The device in `snd`.
pub const SND_DEVICE: &str = "v0";
/// The device in `rcv`.
pub const RCV_DEVICE: &str = "v1";
/// The sender's IPv4 address.
pub const SND_IPV4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The receiver's IPv4 address.
pub const RCV_IPV4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The sender's IPv6 address.
pub const SND_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// The receiver's IPv6 address.
pub const RCV_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

/// Far more than a busy machine takes.
const ACTIVE_TIME_MAX: Duration = Duration::from_secs(60);

const SND_MAC: &str = "02:00:00:77:00:01";
/// The receiver's link-layer address.
pub const RCV_MAC: &str = "02:00:00:77:00:02";
const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_cross_over_both_protocols_in_both_directions() {
        crate::require_root!();
        let testbed = Testbed::new(Options::default()).unwrap();
        let pairs: [(IpAddr, IpAddr); 2] = [
            (SND_IPV4.into(), RCV_IPV4.into()),
            (SND_IPV6.into(), RCV_IPV6.into()),
        ];
        for (near, far) in pairs {
            let a = testbed.snd.run(|| UdpSocket::bind((near, 0))).unwrap();
            let b = testbed.rcv.run(|| UdpSocket::bind((far, 0))).unwrap();
            for (from, to) in [(&a, &b), (&b, &a)] {
                to.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                from.send_to(b"across", to.local_addr().unwrap()).unwrap();
                let (bytes, source) = to.recv_from(&mut [0; 16]).unwrap();
                assert_eq!((bytes, source), (6, from.local_addr().unwrap()));
            }
        }
    }

    #[test]
    fn the_mtu_is_the_one_asked_for() {
        crate::require_root!();
        let testbed = Testbed::new(Options {
            mtu_bytes: 1280,
            ..Options::default()
        })
        .unwrap();
        for (netns, device) in [(&testbed.snd, SND_DEVICE), (&testbed.rcv, RCV_DEVICE)] {
            let link = netns.tool("ip", ["link", "show", device]).unwrap().stdout;
            assert!(String::from_utf8_lossy(&link).contains("mtu 1280"));
        }
    }

    #[test]
    fn the_mode_can_be_switched_back_and_forth() {
        crate::require_root!();
        let mut testbed = Testbed::new(Options::default()).unwrap();
        assert_eq!(testbed.mode(), Mode::Uso);
        testbed.set_mode(Mode::SoftwareGso).unwrap();
        assert_eq!(testbed.mode().name(), "software-gso");
        testbed.set_mode(Mode::Uso).unwrap();
    }

    #[test]
    fn devices_go_with_their_namespace() {
        crate::require_root!();
        let Testbed { snd, rcv, .. } = Testbed::new(Options::default()).unwrap();
        snd.tool("ip", ["link", "show", SND_DEVICE]).unwrap();
        drop(rcv);
        // The kernel takes a namespace down on a worker of its own, and with it the pair.
        let gone = (0..5000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            snd.tool("ip", ["link", "show", SND_DEVICE]).is_err()
        });
        assert!(gone);
    }
}
