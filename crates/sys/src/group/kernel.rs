//! `kernel`: a program at the sending device clones one packet for all members behind that device.
//!
//! Members are sorted into lanes: those whose packets leave by the same device from the same source address,
//! and so differ in nothing but their destination. For a lane the sender arms a pass, which names members,
//! and sends one packet to one of them; the program makes it one for each. What would not be exact that
//! way is sent directly, member by member: to members whose next hop is not known at the moment (the
//! kernel then finds it out, and the news of it brings them into their lane), whose device frames
//! otherwise than Ethernet or has an MTU that the packet exceeds, and to the only member of a lane.
//!
//! A pass that its packet did not reach stays armed, which is seen at once: the packet waits for an address to
//! be resolved, or somebody's rule has taken it. Then all but its member are sent to directly.
//!
//! Clones skip what the stack does between socket and device: packet filters, NAT, IPsec and the socket's send
//! buffer see one packet of a pass. A queue that refuses a clone is counted as the member's refusal. Who drops
//! later can not be seen from here: veth and loopback, when more than net.core.netdev_max_backlog packets
//! wait (a pass is shorter than that), count in the device's tx_dropped.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use aya::maps::{Map, MapData, MapError, ProgramArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, EbpfLoader, include_bytes_aligned};
use thiserror::Error;

use super::direct::{Direct, Slots, send_to};
use super::members::Members;
use super::network::{Hop, LaneKey, Network, netns_cookie, option};
use super::table::{Mapped, Pass, Slot};
use super::{GroupError, MemberCounters, Sent, Train};
use crate::clock::monotonic_ns;

/// Lanes of a group: devices times source addresses. Members of further ones are sent to directly.
pub const LANES_MAX: usize = 64;

/// Sends by way of the devices.
pub(super) struct Kernel {
    pub(super) direct: Direct,
    network: Network,
    lanes: Vec<Lane>,
    /// Where each member is, by its slot.
    places: Vec<Place>,
    /// Members of no lane, by their slots.
    outside: Vec<u32>,
    /// Lanes that could not be made.
    refused: Vec<LaneKey>,
    cookie: u64,
    members_max: u32,
    backlog_packets_max: u32,
    polled_ns: u64,
    /// Until then no pass is armed.
    suspended_until_ns: u64,
    pub(super) passes: u64,
    pub(super) passes_missed: u64,
}

/// Why no program replicates here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The routing tables can not be read.
    #[error("rtnetlink: {0}")]
    Network(#[source] io::Error),
    /// The kernel did not take the program.
    #[error("load the eBPF program (needs CAP_BPF, CAP_NET_ADMIN and Linux 5.17): {0}")]
    Load(#[from] EbpfError),
    /// The program was not verified, or not attached.
    #[error(
        "attach the eBPF program to {device} (needs CAP_NET_ADMIN and Linux 6.6, tcx): {source}"
    )]
    Attach {
        /// The device.
        device: String,
        /// What the system said.
        source: ProgramError,
    },
    /// Its maps can not be used.
    #[error("the maps of the eBPF program: {0}")]
    Map(#[from] MapError),
    /// Its maps can not be mapped.
    #[error("map the memory of the eBPF program: {0}")]
    Mmap(#[source] io::Error),
}

/// Members that one packet can be cloned for.
struct Lane {
    key: LaneKey,
    passes: Mapped<Pass>,
    slots: Mapped<Slot>,
    /// By position: the member's slot, and the lane's packets when it joined.
    members: Vec<u32>,
    joined: Vec<u64>,
    /// Sent to each member since the lane was made.
    packets: u64,
    /// Whose turn it is to be sent the packet of a pass, so that every next hop is used at times.
    turn: usize,
    #[expect(
        dead_code,
        reason = "holds the programs and their attachment, which go with it"
    )]
    programs: Programs,
}

/// What keeps a lane's programs in the kernel.
struct Programs {
    #[expect(
        dead_code,
        reason = "the kernel empties the array when nobody holds it"
    )]
    next: ProgramArray<MapData>,
    #[expect(dead_code, reason = "holds the attachment")]
    ebpf: Ebpf,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Outside { position: u32 },
    Lane { lane: u32, position: u32 },
}

impl Kernel {
    pub(super) fn open(
        socket: &UdpSocket,
        direct: Direct,
        members_max: usize,
    ) -> Result<Self, KernelError> {
        let members_max = u32::try_from(members_max.max(1)).expect("at most MEMBERS_MAX");
        let network = in_netns_of(socket, || {
            // Tried where it harms nobody, so that a group knows at once.
            drop(load(1, "lo")?);
            Network::open(socket).map_err(KernelError::Network)
        })?;
        Ok(Self {
            direct,
            network,
            lanes: Vec::new(),
            places: Vec::new(),
            outside: Vec::new(),
            refused: Vec::new(),
            cookie: option(socket, libc::SOL_SOCKET, libc::SO_COOKIE).unwrap_or(0),
            members_max,
            backlog_packets_max: backlog_packets_max(),
            polled_ns: 0,
            suspended_until_ns: 0,
            passes: 0,
            passes_missed: 0,
        })
    }

    /// Takes all members anew.
    pub(super) fn replace(&mut self, socket: &UdpSocket, members: &Members) {
        for lane in &mut self.lanes {
            lane.members.clear();
            lane.joined.clear();
        }
        self.outside.clear();
        self.places.clear();
        self.network.lift_budget();
        let all = members.all();
        while let Some(&address) = all.get(self.places.len()) {
            let slot = self.places.len();
            let hop = self.network.hop(address);
            let place = self.place_at(socket, address, hop, slot);
            self.places.push(place);
            if let (Place::Lane { lane, .. }, SocketAddr::V4(first)) = (place, address) {
                // Neighbours in the list often share what lies before the port.
                let rest = all[slot + 1..].iter().map_while(|next| match next {
                    SocketAddr::V4(next) if next.ip() == first.ip() => Some(next.port()),
                    _ => None,
                });
                self.lanes[lane as usize].append_like_last(rest, &mut self.places, lane);
            }
        }
        for lane in &mut self.lanes {
            lane.joined.clear();
            lane.joined.resize(lane.members.len(), lane.packets);
        }
    }

    /// Takes the member that was added last.
    pub(super) fn add(&mut self, socket: &UdpSocket, members: &Members) {
        self.network.lift_budget();
        self.join(socket, members, members.len() - 1);
    }

    /// Lets go of a member, whose slot the last one will take.
    pub(super) fn remove(&mut self, members: &mut Members, slot: usize) {
        self.leave(members, slot);
        self.places.swap_remove(slot);
        match self.places.get(slot) {
            Some(&Place::Outside { position }) => self.outside[position as usize] = narrow(slot),
            Some(&Place::Lane { lane, position }) => {
                self.lanes[lane as usize].members[position as usize] = narrow(slot);
            }
            None => {}
        }
    }

    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        members: &mut Members,
        train: Train<'_>,
    ) -> Sent {
        let now_ns = monotonic_ns();
        if now_ns >= self.polled_ns + POLL_NS {
            self.polled_ns = now_ns;
            self.refresh(socket, members);
        }
        let mut sent = Sent::default();
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].members.is_empty() {
                sent.add(self.send_lane(socket.as_raw_fd(), members, lane, train, now_ns));
            }
        }
        let outside = Slots::Of(&self.outside);
        sent.add(
            self.direct
                .send(socket.as_raw_fd(), members, outside, train),
        );
        sent
    }

    /// What was sent to a member by lanes since it joined the one where it is.
    pub(super) fn counters(&self, slot: usize) -> MemberCounters {
        match self.places[slot] {
            Place::Outside { .. } => MemberCounters::default(),
            Place::Lane { lane, position } => self.lanes[lane as usize].counters(position as usize),
        }
    }

    /// Packets cloned, and members that are in lanes.
    pub(super) fn clones(&self) -> (u64, usize) {
        let clones = self
            .lanes
            .iter()
            .map(|lane| lane.passes.read(0).clones)
            .sum();
        (clones, self.places.len() - self.outside.len())
    }

    /// Hears what has changed, and moves members accordingly.
    pub(super) fn refresh(&mut self, socket: &UdpSocket, members: &mut Members) {
        if !self.network.poll() {
            return;
        }
        // A device may have made room, or come back.
        self.refused.clear();
        for slot in 0..members.len() {
            let hop = self.network.hop(members.address(slot));
            let stays = match self.places[slot] {
                Place::Outside { .. } => hop.is_none(),
                Place::Lane { lane, position } => {
                    let lane = &self.lanes[lane as usize];
                    let mac = lane.slots.read(position as usize).mac;
                    hop == Some(Hop {
                        lane: lane.key,
                        mac,
                    })
                }
            };
            if !stays {
                self.leave(members, slot);
                let place = self.place_at(socket, members.address(slot), hop, slot);
                self.places[slot] = place;
            }
        }
    }

    fn send_lane(
        &mut self,
        fd: RawFd,
        members: &mut Members,
        index: usize,
        train: Train<'_>,
        now_ns: u64,
    ) -> Sent {
        let (lane, packets) = (&mut self.lanes[index], train.packets());
        let pass_members_max = match self.network.link(lane.key.ifindex) {
            _ if lane.members.len() == 1 || now_ns < self.suspended_until_ns => 0,
            Some(link)
                if train.bytes.len().min(train.stride) + lane.header_bytes()
                    <= link.mtu_bytes as usize =>
            {
                let skbs = if link.segments { 1 } else { packets };
                link.pass_packets(self.backlog_packets_max) as usize / skbs
            }
            _ => 0,
        };
        if pass_members_max < 2 || self.direct.set_segment(fd, train).is_err() {
            lane.joined
                .iter_mut()
                .for_each(|joined| *joined += packets as u64);
            lane.packets += packets as u64;
            return self
                .direct
                .send(fd, members, Slots::Of(&lane.members), train);
        }
        lane.packets += packets as u64;
        let (mut sent, mut first) = (Sent::default(), 0);
        while first < lane.members.len() {
            let count = pass_members_max.min(lane.members.len() - first);
            let passed = lane.pass(fd, members, first, count, train, self.cookie);
            self.direct.crossings += 1;
            match passed {
                Passed::Whole { refused } => {
                    self.passes += 1;
                    sent.packets += (count * packets) as u64 - refused;
                    sent.refused += refused;
                }
                Passed::OnlyTo(position) => {
                    self.passes_missed += 1;
                    // As long as a packet may wait for an address to be resolved, and some: it must not
                    // be taken for that of a later pass.
                    self.suspended_until_ns = now_ns + SUSPENDED_NS;
                    sent.packets += packets as u64;
                    let seed = position..position + 1;
                    for rest in [first..seed.start, seed.end..first + count] {
                        sent.add(lane.send_directly(&mut self.direct, fd, members, rest, train));
                    }
                }
                Passed::Refused => {
                    let all = first..first + count;
                    sent.add(lane.send_directly(&mut self.direct, fd, members, all, train));
                }
            }
            first += count;
        }
        sent
    }

    fn join(&mut self, socket: &UdpSocket, members: &Members, slot: usize) {
        let address = members.address(slot);
        let hop = self.network.hop(address);
        let place = self.place_at(socket, address, hop, slot);
        self.places.push(place);
    }

    fn place_at(
        &mut self,
        socket: &UdpSocket,
        address: SocketAddr,
        hop: Option<Hop>,
        slot: usize,
    ) -> Place {
        if let Some(hop) = hop
            && let Some(lane) = self.lane(socket, hop.lane)
        {
            return self.lanes[lane].push(address, hop, slot, lane);
        }
        self.outside.push(narrow(slot));
        Place::Outside {
            position: narrow(self.outside.len() - 1),
        }
    }

    /// Takes a member out of its place; its own place is the caller's to mend.
    fn leave(&mut self, members: &mut Members, slot: usize) {
        match self.places[slot] {
            Place::Outside { position } => {
                self.outside.swap_remove(position as usize);
                if let Some(&moved) = self.outside.get(position as usize) {
                    self.places[moved as usize] = Place::Outside { position };
                }
            }
            Place::Lane {
                lane: index,
                position,
            } => {
                let lane = &mut self.lanes[index as usize];
                members.keep(slot, lane.counters(position as usize));
                lane.swap_remove(position as usize);
                if let Some(&moved) = lane.members.get(position as usize) {
                    self.places[moved as usize] = Place::Lane {
                        lane: index,
                        position,
                    };
                }
            }
        }
    }

    /// The lane of that key, made if need be and possible.
    fn lane(&mut self, socket: &UdpSocket, key: LaneKey) -> Option<usize> {
        if let Some(index) = self.lanes.iter().position(|lane| lane.key == key) {
            return Some(index);
        }
        if self.refused.contains(&key) {
            return None;
        }
        let device = self.network.link(key.ifindex)?.name.clone();
        let members_max = self.members_max;
        match in_netns_of(socket, || Lane::make(key, members_max, &device)) {
            Ok(lane) if self.lanes.len() < LANES_MAX => {
                self.lanes.push(lane);
                Some(self.lanes.len() - 1)
            }
            Ok(lane) => {
                let empty = self.lanes.iter().position(|lane| lane.members.is_empty())?;
                self.lanes[empty] = lane;
                Some(empty)
            }
            Err(error) => {
                tracing::warn!(%error, device, "members behind this device are sent to one by one");
                self.refused.push(key);
                None
            }
        }
    }
}

/// What became of a pass.
enum Passed {
    /// Every member's packet was handed on, less those that were refused.
    Whole { refused: u64 },
    /// The program has not seen the packet; only the member at this position gets it.
    OnlyTo(usize),
    /// The packet was not sent at all.
    Refused,
}

impl Lane {
    fn make(key: LaneKey, members_max: u32, device: &str) -> Result<Self, KernelError> {
        let (programs, passes, slots) = load(members_max, device)?;
        Ok(Self {
            key,
            passes,
            slots,
            members: Vec::new(),
            joined: Vec::new(),
            packets: 0,
            turn: 0,
            programs,
        })
    }

    /// Appends a member; its place in this lane, whose number is `lane`.
    fn push(&mut self, address: SocketAddr, hop: Hop, slot: usize, lane: usize) -> Place {
        self.joined.push(self.packets);
        self.append(address, hop, slot, lane)
    }

    fn append(&mut self, address: SocketAddr, hop: Hop, slot: usize, lane: usize) -> Place {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let position = self.members.len();
        self.slots
            .write(position, Slot::new(ip, port, hop.mac, hop.lane.ifindex));
        self.members.push(narrow(slot));
        Place::Lane {
            lane: narrow(lane),
            position: narrow(position),
        }
    }

    /// Appends members that differ from the last one in their ports alone, and their places.
    fn append_like_last(
        &mut self,
        ports: impl Iterator<Item = u16>,
        places: &mut Vec<Place>,
        lane: u32,
    ) {
        let like = self.slots.read(self.members.len() - 1);
        for port in ports {
            let (slot, position) = (places.len(), self.members.len());
            self.slots.write(position, like.at_port(port));
            self.members.push(narrow(slot));
            places.push(Place::Lane {
                lane,
                position: narrow(position),
            });
        }
    }

    fn swap_remove(&mut self, position: usize) {
        let last = self.slots.read(self.members.len() - 1);
        self.slots.write(position, last);
        self.members.swap_remove(position);
        self.joined.swap_remove(position);
    }

    fn counters(&self, position: usize) -> MemberCounters {
        let slot = self.slots.read(position);
        let refused = u64::from(slot.refused);
        MemberCounters {
            packets: self.packets - self.joined[position] - refused,
            refused,
            // NET_XMIT_DROP and NET_XMIT_CN are positive: a queue was full.
            errno_last: if slot.error > 0 {
                libc::ENOBUFS
            } else {
                -slot.error
            },
        }
    }

    fn header_bytes(&self) -> usize {
        if self.key.source.is_ipv4() {
            20 + 8
        } else {
            40 + 8
        }
    }

    /// Sends one packet for `count` members from `first` on.
    fn pass(
        &mut self,
        fd: RawFd,
        members: &Members,
        first: usize,
        count: usize,
        train: Train<'_>,
        cookie: u64,
    ) -> Passed {
        self.turn = self.turn.wrapping_add(1);
        let position = first + self.turn % count;
        let seed = self.slots.read(position);
        let before = self.passes.read(0);
        let pass = Pass {
            cookie,
            armed: 1,
            first: narrow(first),
            count: narrow(count),
            is_ipv6: u32::from(self.key.source.is_ipv6()),
            address: seed.address,
            port: seed.port,
            ..before
        };
        self.passes.write(0, pass);
        let name = members.name(self.members[position] as usize);
        let errno = send_to(fd, train.bytes, &name);
        let mut after = self.passes.read(0);
        if after.armed == 0 {
            return Passed::Whole {
                refused: after.refused - before.refused,
            };
        }
        after.armed = 0;
        self.passes.write(0, after);
        if errno == 0 {
            Passed::OnlyTo(position)
        } else {
            Passed::Refused
        }
    }

    fn send_directly(
        &mut self,
        direct: &mut Direct,
        fd: RawFd,
        members: &mut Members,
        positions: std::ops::Range<usize>,
        train: Train<'_>,
    ) -> Sent {
        for joined in &mut self.joined[positions.clone()] {
            *joined += train.packets() as u64;
        }
        direct.send(fd, members, Slots::Of(&self.members[positions]), train)
    }
}

/// Loads the program for so many members, and attaches it to a device of this thread's network namespace.
fn load(
    members_max: u32,
    device: &str,
) -> Result<(Programs, Mapped<Pass>, Mapped<Slot>), KernelError> {
    let mut ebpf = EbpfLoader::new()
        .map_max_entries("members", members_max)
        .load(PROGRAM)?;
    let attach = |source| KernelError::Attach {
        device: device.to_owned(),
        source,
    };
    fan(&mut ebpf, "fan").load().map_err(attach)?;
    let map = ebpf.take_map("next").expect("group.bpf.c defines it");
    let mut next: ProgramArray<_> = map.try_into()?;
    next.set(0, fan(&mut ebpf, "fan").fd().map_err(attach)?, 0)?;
    let group = fan(&mut ebpf, "group");
    group.load().map_err(attach)?;
    // Links of tcx, not filters: the kernel takes them away with the last descriptor, whatever ended us.
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    group
        .attach_with_options(device, TcAttachType::Egress, options)
        .map_err(attach)?;
    let (passes, slots) = (mapped(&mut ebpf, "passes")?, mapped(&mut ebpf, "members")?);
    Ok((Programs { next, ebpf }, passes, slots))
}

fn fan<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    let program = ebpf.program_mut(name).expect("group.bpf.c defines it");
    program.try_into().expect("it is a classifier")
}

fn mapped<T: Copy>(ebpf: &mut Ebpf, name: &str) -> Result<Mapped<T>, KernelError> {
    let Some(Map::Array(map)) = ebpf.map(name) else {
        unreachable!("group.bpf.c defines it, as an array");
    };
    let info = map.info()?;
    Mapped::of(map.fd(), info.value_size(), info.max_entries()).map_err(KernelError::Mmap)
}

/// Does something in the socket's network namespace: here, or if this thread is in another, on a thread that
/// goes there.
fn in_netns_of<T: Send>(
    socket: &UdpSocket,
    act: impl FnOnce() -> Result<T, KernelError> + Send,
) -> Result<T, KernelError> {
    let probe = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"));
    let here = probe.as_ref().ok().and_then(netns_cookie);
    if here == netns_cookie(socket) {
        return act();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter_netns_of(socket).map_err(KernelError::Network)?;
            act()
        });
        thread.join().expect("loading and asking do not panic")
    })
}

fn enter_netns_of(socket: &UdpSocket) -> io::Result<()> {
    // SAFETY: SIOCGSKNS takes no argument and answers with a new descriptor.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    let netns = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: a descriptor and a flag. Only the calling thread moves, and it was made for that.
    if unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Packets that the far end of a veth pair, or of loopback, lets wait.
pub(super) fn backlog_packets_max() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/net/core/netdev_max_backlog");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1000)
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("at most MEMBERS_MAX")
}

impl From<KernelError> for GroupError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/group.o"));

/// A pass fills this part of a queue at most: what the pass before left there, when a tick has ended its
/// softirq early, and what others put there, has to fit too.
pub(super) const QUEUE_PART: u32 = 4;
/// How often news are heard, at most. A syscall at each send would cost a small group a tenth.
const POLL_NS: u64 = 10_000_000;
/// Longer than the kernel tries to resolve an address (3 s: mcast_solicit times retrans_time).
const SUSPENDED_NS: u64 = 5_000_000_000;
const SIOCGSKNS: libc::c_ulong = 0x894C;
