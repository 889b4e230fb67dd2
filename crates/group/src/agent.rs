//! `SO_SETSENDGRP` for programs that know nothing of this library: setsockopt(2) gives a socket of
//! a control group its members, and what it sends goes to all of them.
//!
//! An [`Agent`] attaches programs to a control group (version 2) and to the devices of the network
//! namespace that it was started in; sockets of others have no such options. They do the rest in
//! the kernel: a socket's list lies in the socket's own storage, and goes with it. All that is left
//! to do here is to tell the next hops of members, to attach to devices that come, and to hold
//! everything: it goes with the agent, whatever ends that, and sockets then send to whom they name.
//!
//! Programs need no capability for it. So that nobody makes the machine flood others, a control
//! group has [quotas](AgentOptions), and members can be asked for their consent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::maps::{HashMap as BpfHashMap, MapData, ProgramArray, RingBuf};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{
    CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, CgroupSock, CgroupSockopt, LinkOrder,
    ProgramError, SchedClassifier, TcAttachType,
};
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};
use onrush_sys::clock::monotonic_ns;

use super::arrival::{devices, hardware_of};
use super::error::{AgentError, OPTMEM_BYTES, chain};
use super::netns::in_netns_of;
use super::network::{Hop, Network, netns_cookie};
use super::serving::lock_cgroup;
use super::targets::Targets;

/// Members of a socket's group.
pub const SOCKET_MEMBERS_MAX: u32 = 1024;
/// Addresses whose next hops are known at once. For one more, the oldest is forgotten.
pub const TARGETS_MAX: usize = 65_536;

/// What programs may do. Each limit is for one control group, the agent's own and those below it
/// apart.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Sockets that have members. Twice as many may have lists of members in the kernel, 128 KiB
    /// each: some have members staged only, or lost theirs a moment ago.
    pub groups_max: u64,
    /// Members of all of them.
    pub members_max: u64,
    /// Packets a second to all members; a send that would be more is dropped whole. 0 for no limit.
    pub packets_per_second_max: u64,
    /// Whether a member must have sent to the socket before.
    pub needs_consent: bool,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            groups_max: 1000,
            members_max: 10_000,
            packets_per_second_max: 1_000_000,
            needs_consent: false,
        }
    }
}

/// Gives the sockets of a control group `SO_SETSENDGRP`. It goes with this, or with the process.
pub struct Agent {
    path: PathBuf,
    cgroup_id: u64,
    attached: Attached,
    wanted: RingBuf<MapData>,
    /// By the kernel's own tables, as in [`Group`](super::Group).
    network: Network,
    socket: UdpSocket,
    hops: BpfHashMap<MapData, Target, NextHop>,
    /// What `hops` has of whom was asked for.
    targets: Targets<NextHop>,
    devices: BpfHashMap<MapData, u32, Device>,
    /// What `devices` has.
    told: HashMap<u32, Device>,
    looked_ns: u64,
    ebpf: Ebpf,
    #[expect(
        dead_code,
        reason = "the kernel empties the array when nobody holds it"
    )]
    next: ProgramArray<MapData>,
    #[expect(dead_code, reason = "it keeps a second agent away")]
    lock: File,
}

/// Devices by name, with their indexes.
#[derive(Debug, Default)]
struct Attached {
    devices: BTreeMap<String, (u32, SchedClassifierLink)>,
    /// Those that took no program.
    refused: BTreeMap<String, u32>,
}

impl Agent {
    /// Serves the control group of that folder, and those below it.
    ///
    /// # Errors
    ///
    /// If the folder is none of cgroup2, if another agent serves it, or if the kernel refuses the
    /// programs.
    pub fn start(cgroup: &Path, options: &AgentOptions) -> Result<Self, AgentError> {
        let (folder, cgroup_id) = open_cgroup(cgroup)?;
        check_optmem()?;
        let lock = lock_cgroup(cgroup)?;
        let any = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"));
        let socket = any.map_err(AgentError::Network)?;
        // No namespace has 0, which stands for a kernel that does not tell.
        let netns = netns_cookie(&socket).unwrap_or(0);
        let (consent, per_second) = (
            u32::from(options.needs_consent),
            options.packets_per_second_max,
        );
        let mut ebpf = EbpfLoader::new()
            .override_global("needs_consent", &consent, true)
            .override_global("groups_max", &options.groups_max, true)
            .override_global("members_max", &options.members_max, true)
            .override_global("packets_per_second_max", &per_second, true)
            .override_global("netns_cookie", &netns, true)
            .load(PROGRAM)?;
        let next = load_fan(&mut ebpf)?;
        attach_cgroup(&mut ebpf, &folder, options)?;
        let wanted = ebpf.take_map("wanted").expect("sendgrp.bpf.c defines it");
        let hops = ebpf.take_map("hops").expect("sendgrp.bpf.c defines it");
        let devices = ebpf.take_map("devices").expect("sendgrp.bpf.c defines it");
        let mut agent = Self {
            path: cgroup.to_owned(),
            cgroup_id,
            attached: Attached::default(),
            wanted: wanted.try_into()?,
            network: Network::open(&socket).map_err(AgentError::Network)?,
            socket,
            hops: hops.try_into()?,
            targets: Targets::new(TARGETS_MAX),
            devices: devices.try_into()?,
            told: HashMap::new(),
            looked_ns: 0,
            ebpf,
            next,
            lock,
        };
        match agent.look_for_devices()? {
            Some((device, source)) if agent.attached.devices.is_empty() => {
                Err(AgentError::Device { device, source })
            }
            _ => Ok(agent),
        }
    }

    /// Waits for so long until something is to be done, and does it: tells next hops that programs
    /// have asked for, follows what changes in the network, and once a second attaches to devices
    /// that have come. To be called again and again; between two calls packets to new members are
    /// dearer, and changes of the network are not followed.
    ///
    /// # Errors
    ///
    /// If the control group was removed.
    pub fn poll(&mut self, wait: Duration) -> Result<(), AgentError> {
        self.wait(wait);
        // What has changed is heard first, so that what is asked for now is as it is now.
        if self.network.poll() {
            self.tell_all();
        }
        // Not all: a program can ask faster than it is told.
        for _ in 0..ASKED_AT_A_POLL_MAX {
            let Some(ip) = self.wanted.next().and_then(|event| Target::read(&event)) else {
                break;
            };
            self.tell(ip);
        }
        let now_ns = monotonic_ns();
        if now_ns >= self.looked_ns + LOOK_NS {
            match std::fs::metadata(&self.path) {
                Ok(found) if found.ino() == self.cgroup_id => {}
                _ => return Err(AgentError::Gone(self.path.clone())),
            }
            self.look_for_devices()?;
        }
        Ok(())
    }

    /// Until a program asks for something, but not for longer than changes may go unnoticed.
    fn wait(&self, wait: Duration) {
        let wait = wait.min(WAIT_MAX).as_millis();
        let mut asked = libc::pollfd {
            fd: self.wanted.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let wait_ms = libc::c_int::try_from(wait).expect("at most WAIT_MAX");
        // SAFETY: one descriptor is waited for, in a structure that is writable.
        unsafe { libc::poll(&raw mut asked, 1, wait_ms) };
    }

    /// Tells the program all anew that may be another by now.
    fn tell_all(&mut self) {
        self.tell_devices();
        let known: Vec<_> = self.targets.addresses().collect();
        for ip in known {
            self.tell(ip);
        }
    }

    /// Tells the program an address's next hop as it is now.
    fn tell(&mut self, ip: IpAddr) {
        if let Some(oldest) = self.targets.make_room_for(ip) {
            self.hops.remove(&Target::of(oldest)).ok();
        }
        self.network.lift_budget();
        let member = SocketAddr::new(ip, 0);
        let next = match self.network.hop(member) {
            Some(hop) => NextHop::of(hop),
            None => self.unknown_at(self.network.device_to(member)),
        };
        if next.ifindex != NO_DEVICE && !self.told.contains_key(&next.ifindex) {
            self.tell_device(next.ifindex);
        }
        if self.targets.insert(ip, next) == Some(next) {
            return;
        }
        if let Err(error) = self.hops.insert(Target::of(ip), next, 0) {
            tracing::warn!(%error, %ip, "the next hop is left to the stack");
        }
    }

    /// Whose neighbour entry is not there yet is sent to by way of the stack, which makes one: the
    /// program at the device sees to that. Where there is no program, or no route, nothing is sent:
    /// left to the stack, a packet would go by the device that it is at, and not by the tunnel,
    /// say, that is to encrypt it.
    fn unknown_at(&self, ifindex: Option<u32>) -> NextHop {
        let mut attached = self.attached.devices.values();
        let ifindex = ifindex.filter(|at| attached.any(|(index, _)| index == at));
        NextHop {
            ifindex: ifindex.unwrap_or(NO_DEVICE),
            mac: NOBODY,
            pad: 0,
        }
    }

    /// Tells the program the devices at which it is, and those by which members are reached.
    fn tell_devices(&mut self) {
        let mut all = self.attached.indexes();
        all.extend(self.told.keys());
        all.into_iter().for_each(|index| self.tell_device(index));
    }

    fn tell_device(&mut self, ifindex: u32) {
        let mtu_bytes = self.network.link(ifindex).map(|link| link.mtu_bytes);
        let mac = hardware_of(&self.socket, ifindex).map(|(_, mac)| mac);
        let told = match mtu_bytes.zip(mac) {
            Some((mtu_bytes, mac)) => {
                let device = Device {
                    mac,
                    pad: 0,
                    mtu_bytes,
                };
                if self.told.insert(ifindex, device) == Some(device) {
                    return;
                }
                self.devices.insert(ifindex, device, 0)
            }
            // Whether it was there is no matter.
            None => {
                self.told.remove(&ifindex);
                self.devices.remove(&ifindex).or(Ok(()))
            }
        };
        if let Err(error) = told {
            tracing::warn!(%error, ifindex, "members behind this device get nothing");
        }
    }

    /// The devices at which packets become many.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &str> {
        self.attached.devices.keys().map(String::as_str)
    }

    /// In the network namespace that it was started in, whatever thread this is. A device that took
    /// no program, if one has come.
    fn look_for_devices(&mut self) -> Result<Option<(String, ProgramError)>, AgentError> {
        self.looked_ns = monotonic_ns();
        let before = self.attached.indexes();
        let (socket, ebpf, attached) = (&self.socket, &mut self.ebpf, &mut self.attached);
        let looked = in_netns_of(socket, || Ok(attached.look(socket, ebpf)));
        let looked = looked.map_err(|error| AgentError::Devices(io::Error::other(error)))?;
        let refused = looked.map_err(AgentError::Devices)?;
        match self.attached.indexes() == before {
            true => self.tell_devices(),
            // Who is behind a device that has a program now can be sent to.
            false => self.tell_all(),
        }
        Ok(refused)
    }
}

impl Attached {
    fn indexes(&self) -> BTreeSet<u32> {
        self.devices.values().map(|&(index, _)| index).collect()
    }

    fn look(
        &mut self,
        socket: &UdpSocket,
        ebpf: &mut Ebpf,
    ) -> io::Result<Option<(String, ProgramError)>> {
        let mut refused = None;
        let there: BTreeMap<_, _> = devices()?
            .into_iter()
            .filter_map(|name| index_of(&name).map(|index| (name, index)))
            .filter(|&(_, index)| frames_like_ethernet(socket, index))
            .collect();
        // A device of that name may be another one by now.
        self.devices
            .retain(|name, (index, _)| there.get(name) == Some(index));
        self.refused
            .retain(|name, index| there.get(name) == Some(index));
        for (name, index) in there {
            if self.devices.contains_key(&name) || self.refused.contains_key(&name) {
                continue;
            }
            match attach_device(ebpf, &name) {
                Ok(link) => {
                    self.devices.insert(name, (index, link));
                }
                Err(error) => {
                    let why = chain(&error);
                    tracing::warn!(error = why, device = name, "sends through it stay single");
                    self.refused.insert(name.clone(), index);
                    refused = Some((name, error));
                }
            }
        }
        Ok(refused)
    }
}

/// Whether the headers that the program writes to are where it expects them.
fn frames_like_ethernet(socket: &UdpSocket, ifindex: u32) -> bool {
    let kind = hardware_of(socket, ifindex);
    matches!(kind, Some((libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK, _)))
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("path", &self.path)
            .field("attached", &self.attached)
            .finish_non_exhaustive()
    }
}

fn open_cgroup(path: &Path) -> Result<(File, u64), AgentError> {
    let refused = |source| AgentError::Cgroup {
        path: path.to_owned(),
        source,
    };
    let folder = File::open(path).map_err(refused)?;
    // Every control group of version 2 has this file; others do not.
    std::fs::metadata(path.join("cgroup.type"))
        .or_else(|_| std::fs::metadata(path.join("cgroup.controllers")))
        .map_err(refused)?;
    let id = folder.metadata().map_err(refused)?.ino();
    Ok((folder, id))
}

fn check_optmem() -> Result<(), AgentError> {
    let text = std::fs::read_to_string("/proc/sys/net/core/optmem_max").unwrap_or_default();
    // Of some kernels it is not told to network namespaces other than the first.
    match text.trim().parse() {
        Ok(found) if found < OPTMEM_BYTES => Err(AgentError::Optmem { found }),
        _ => Ok(()),
    }
}

fn load_fan(ebpf: &mut Ebpf) -> Result<ProgramArray<MapData>, AgentError> {
    let refused = |source| AgentError::Attach {
        program: "sendgrp_fan",
        source,
    };
    let next = ebpf.take_map("next").expect("sendgrp.bpf.c defines it");
    let mut next: ProgramArray<_> = next.try_into()?;
    let fan: &mut SchedClassifier = program(ebpf, "sendgrp_fan");
    fan.load().map_err(refused)?;
    next.set(0, fan.fd().map_err(refused)?, 0)?;
    let entry: &mut SchedClassifier = program(ebpf, ENTRY);
    entry.load().map_err(refused)?;
    Ok(next)
}

/// Links, not attachments of the old kind: the kernel takes them away with the last descriptor.
/// They leave room for those of others without being told to.
fn attach_cgroup(ebpf: &mut Ebpf, cgroup: &File, options: &AgentOptions) -> Result<(), AgentError> {
    let mode = CgroupAttachMode::Single;
    for name in ["sendgrp_set", "sendgrp_get"] {
        let refused = |source| AgentError::Attach {
            program: name,
            source,
        };
        let option: &mut CgroupSockopt = program(ebpf, name);
        option.load().map_err(refused)?;
        option.attach(cgroup, mode).map_err(refused)?;
    }
    let refused = |source| AgentError::Attach {
        program: "sendgrp_release",
        source,
    };
    let release: &mut CgroupSock = program(ebpf, "sendgrp_release");
    release.load().map_err(refused)?;
    release.attach(cgroup, mode).map_err(refused)?;
    if options.needs_consent {
        let refused = |source| AgentError::Attach {
            program: "sendgrp_hear",
            source,
        };
        let hear: &mut CgroupSkb = program(ebpf, "sendgrp_hear");
        hear.load().map_err(refused)?;
        let way = CgroupSkbAttachType::Ingress;
        hear.attach(cgroup, way, mode).map_err(refused)?;
    }
    Ok(())
}

fn attach_device(ebpf: &mut Ebpf, device: &str) -> Result<SchedClassifierLink, ProgramError> {
    let entry: &mut SchedClassifier = program(ebpf, ENTRY);
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let link = entry.attach_with_options(device, TcAttachType::Egress, options)?;
    entry.take_link(link)
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).expect("sendgrp.bpf.c defines it");
    program.try_into().expect("it is of that kind")
}

fn index_of(device: &str) -> Option<u32> {
    let name = std::ffi::CString::new(device).ok()?;
    // SAFETY: the name is a string that ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// `struct target` of bpf/sendgrp.bpf.c.
#[derive(Clone, Copy)]
#[repr(C)]
struct Target {
    family: u32,
    address: [u8; 16],
}

/// `struct hop`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
struct NextHop {
    ifindex: u32,
    mac: [u8; 6],
    pad: u16,
}

/// `struct device`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
struct Device {
    mac: [u8; 6],
    pad: u16,
    mtu_bytes: u32,
}

// SAFETY: made of integers alone, without bytes between or behind them (4 and 16, 4 and 6 and 2,
// 6 and 2 and 4), so that all of their bytes are initialised and any bytes are a value.
unsafe impl Pod for Target {}
// SAFETY: as above.
unsafe impl Pod for Device {}
// SAFETY: as above.
unsafe impl Pod for NextHop {}

impl Target {
    fn of(ip: IpAddr) -> Self {
        let (mut address, family) = ([0; 16], if ip.is_ipv4() { AF_INET } else { AF_INET6 });
        match ip {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address = ip.octets(),
        }
        Self { family, address }
    }

    fn read(event: &[u8]) -> Option<IpAddr> {
        let (family, address) = event.split_first_chunk::<4>()?;
        match u32::from_ne_bytes(*family) {
            AF_INET => Some(Ipv4Addr::from(*address.first_chunk::<4>()?).into()),
            AF_INET6 => Some(Ipv6Addr::from(*address.first_chunk::<16>()?).into()),
            _ => None,
        }
    }
}

impl NextHop {
    fn of(hop: Hop) -> Self {
        Self {
            ifindex: hop.lane.ifindex,
            mac: hop.mac,
            pad: 0,
        }
    }
}

/// The index that no device has: nothing is sent by it.
const NO_DEVICE: u32 = 0;
/// `nobody` of bpf/sendgrp.bpf.c: whoever is sent to there, the stack finds its next hop.
const NOBODY: [u8; 6] = *b"\x02onrsh";
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const ENTRY: &str = "onrush_sendgrp";
/// As long a change of the network may go unnoticed.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Next hops that are told at a poll, at most: about as many as `wanted` holds, a few microseconds
/// each.
const ASKED_AT_A_POLL_MAX: usize = 2048;
/// How often devices are looked for.
const LOOK_NS: u64 = 1_000_000_000;

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/sendgrp.o"));
