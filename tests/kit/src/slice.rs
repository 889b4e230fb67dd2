//! Software slicing: drops what one socket sends, at a point of its way through the stack.
//!
//! The paper's authors (Karsten and others) discarded packets at points of a kernel they had
//! changed. Here four eBPF programs do, at points where a stock kernel lets them. Other sockets
//! are not touched.

use std::fmt;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::PathBuf;

use aya::maps::{Array, MapError};
use aya::programs::tc::{self, NlOptions, TcAttachOptions};
use aya::programs::{
    CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, CgroupSockAddr, ProgramError,
    SchedClassifier, TcAttachType,
};
use aya::{Ebpf, EbpfError, EbpfLoader, include_bytes_aligned};
use thiserror::Error;

use crate::netns::Netns;

/// Where packets are dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Point {
    /// In the socket layer, before a route is looked up and a byte copied (cgroup/sendmsg4).
    Socket,
    /// Behind UDP and IP (cgroup_skb/egress).
    AfterIp,
    /// Before the device (tc egress).
    BeforeDevice,
    /// The same for IPv4 packets that no socket has, as the clones that a program made.
    Clones,
}

/// Drops as long as it lives.
pub struct Slice<'a> {
    dropped: Array<aya::maps::MapData, u64>,
    /// Holds the program and its attachment, which is taken away in that namespace.
    ebpf: Option<Ebpf>,
    netns: &'a Netns,
}

/// Why nothing is dropped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SliceError {
    /// There is no cgroup to attach to.
    #[error("the root of cgroup v2: {0}; mount it (mount -t cgroup2 none /sys/fs/cgroup)")]
    Cgroup(#[source] std::io::Error),
    /// The kernel did not take the programs.
    #[error("load the slicing programs (needs CAP_BPF and CAP_NET_ADMIN): {0}")]
    Load(#[from] EbpfError),
    /// One could not be attached.
    #[error("attach a slicing program (needs Linux 6.6): {0}")]
    Attach(#[from] ProgramError),
    /// The count cannot be read.
    #[error("the count of dropped packets: {0}")]
    Map(#[from] MapError),
}

impl<'a> Slice<'a> {
    /// Drops what `socket`, which sends through `device` of `netns`, sends from now on.
    pub fn attach(
        point: Point,
        socket: &UdpSocket,
        netns: &'a Netns,
        device: &str,
    ) -> Result<Self, SliceError> {
        let cookie = rustix::net::sockopt::socket_cookie(socket)
            .map_err(|errno| SliceError::Cgroup(errno.into()))?;
        let mut ebpf = EbpfLoader::new()
            .override_global("COOKIE", &cookie, true)
            .load(PROGRAM)?;
        let defined = "slice.bpf.c defines it";
        match point {
            // Links stand beside those of others, whatever the mode, which has to be this one.
            Point::Socket => {
                let program = ebpf.program_mut("socket_layer").expect(defined);
                let program: &mut CgroupSockAddr = program.try_into()?;
                program.load()?;
                program.attach(cgroup()?, CgroupAttachMode::Single)?;
            }
            Point::AfterIp => {
                let program = ebpf.program_mut("after_ip").expect(defined);
                let program: &mut CgroupSkb = program.try_into()?;
                program.load()?;
                let mode = CgroupAttachMode::Single;
                program.attach(cgroup()?, CgroupSkbAttachType::Egress, mode)?;
            }
            Point::BeforeDevice | Point::Clones => {
                let is_clones = point == Point::Clones;
                let name = if is_clones { "clones" } else { "before_device" };
                let program = ebpf.program_mut(name).expect(defined);
                let program: &mut SchedClassifier = program.try_into()?;
                program.load()?;
                // A filter, behind all programs of tcx, which know no verdict that says sent and
                // keeps the packet.
                let options = TcAttachOptions::Netlink(NlOptions::default());
                netns.run(|| {
                    drop(tc::qdisc_add_clsact(device));
                    program.attach_with_options(device, TcAttachType::Egress, options)
                })?;
            }
        }
        let dropped = ebpf.take_map(".bss").expect("its counter is there");
        Ok(Self {
            dropped: dropped.try_into()?,
            ebpf: Some(ebpf),
            netns,
        })
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> Result<u64, SliceError> {
        Ok(self.dropped.get(&0, 0)?)
    }
}

impl Drop for Slice<'_> {
    fn drop(&mut self) {
        let ebpf = self.ebpf.take();
        self.netns.run(|| drop(ebpf));
    }
}

impl fmt::Debug for Slice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice").finish_non_exhaustive()
    }
}

fn cgroup() -> Result<File, SliceError> {
    File::open(cgroup_root()?).map_err(SliceError::Cgroup)
}

/// The root of cgroup v2, wherever it is mounted.
pub fn cgroup_root() -> Result<PathBuf, SliceError> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(SliceError::Cgroup)?;
    let root = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let folder = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(folder))
    });
    root.ok_or_else(|| SliceError::Cgroup(std::io::ErrorKind::NotFound.into()))
}

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/slice.o"));

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testbed::{Options, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_point_drops_what_the_socket_sends_and_nothing_else() {
        crate::require_root!();
        let testbed = Testbed::new(Options::default()).unwrap();
        let [sliced, other] =
            [(); 2].map(|()| testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0))).unwrap());
        let receiver = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0))).unwrap();
        let to = receiver.local_addr().unwrap();
        let arrives = |limit: Duration| {
            receiver.set_read_timeout(Some(limit)).unwrap();
            let mut bytes = [0; 20];
            let length = receiver.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
        };
        for point in [Point::Socket, Point::AfterIp, Point::BeforeDevice] {
            let slice = Slice::attach(point, &sliced, &testbed.snd, SND_DEVICE).unwrap();
            // The upper two say EPERM.
            drop(sliced.send_to(b"dropped", to));
            other.send_to(b"passed", to).unwrap();
            // Behind what may have become free twice.
            let heard =
                std::iter::repeat_with(|| arrives(LONG)).find(|it| it.as_deref() != Some("free"));
            assert_eq!(heard.unwrap().as_deref(), Some("passed"), "{point:?}");
            assert_eq!(slice.dropped().unwrap(), 1, "{point:?}");
            drop(slice);
            // A link goes with its last descriptor, of which a command that another test starts may
            // have a copy.
            let is_free = (0..1000).any(|_| {
                sliced.send_to(b"free", to).ok();
                arrives(Duration::from_millis(50)).is_some()
            });
            assert!(is_free, "{point:?}");
        }
    }
}
