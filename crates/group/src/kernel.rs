//! `kernel`: the [program](super::device) at the sending device clones one packet for all members
//! behind that device.
//!
//! Members are sorted into lanes: those whose packets leave by the same device from the same source
//! address, and so differ in nothing but their destination. For a lane the sender arms a pass,
//! which names members, and sends one packet to one of them; the program makes it one for each.
//! What would not be exact that way is sent directly, member by member: to members whose next hop
//! is not known at the moment (the kernel then finds it out, and the news of it brings them into
//! their lane), whose device frames otherwise than Ethernet, whose device or route has an MTU that
//! the packet exceeds, and to the only member of a lane. A lane is [made beside the
//! sender](super::making), unless the whole group is set. A group has no lanes before it has two
//! members: no program is at a device for a group of one, whose send is a `sendto`.
//!
//! A pass that its packet did not reach stays armed, which is seen at once: the packet waits for an
//! address to be resolved, or somebody's rule has taken it. Then all but its member are sent to
//! directly.
//!
//! Clones skip what the stack does between socket and device: packet filters, NAT, IPsec and the
//! socket's send buffer see one packet of a pass. A queue that refuses a clone is counted as the
//! member's refusal. Who drops later cannot be seen from here: veth and loopback, when more than
//! net.core.netdev_max_backlog packets wait (a pass is shorter than that), count in the device's
//! tx_dropped.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::device::{GroupPass, try_it};
use super::direct::{Direct, Slots};
use super::error::KernelError;
use super::lane::{Lane, MemberPosition, ReplicationResult};
use super::lane_key::LaneKey;
use super::making::{LaneMaking, LaneOrder};
use super::members::Members;
use super::netns::in_netns_of;
use super::network::{Hop, Network, netns_cookie, option};
use super::table::narrow;
use super::{MemberCounters, Sent, Train};
use onrush_sys::clock::monotonic_coarse_ns;

/// Lanes of a group: devices times source addresses. Members of further ones are sent to directly.
pub const LANES_MAX: usize = 64;

/// Sends by way of the devices.
pub(super) struct Kernel {
    pub(super) direct: Direct,
    network: Network,
    lanes: Vec<Lane>,
    /// Where each member is, by its slot.
    positions: Vec<MemberPosition>,
    /// Members of no lane, by their slots.
    outside: Vec<u32>,
    /// Lanes that could not be made.
    refused: Vec<LaneKey>,
    /// The one that is being made. Its members are outside until it is there.
    making: Option<LaneMaking>,
    pass: GroupPass,
    members_max: u32,
    backlog_packets_max: u32,
    polled_ns: u64,
    /// Until then no pass is armed.
    suspended_until_ns: u64,
    pub(super) passes: u64,
    pub(super) passes_missed: u64,
}

impl Kernel {
    pub(super) fn open(
        socket: &UdpSocket,
        direct: Direct,
        members_max: usize,
    ) -> Result<Self, KernelError> {
        let members_max = u32::try_from(members_max.max(1)).expect("at most MEMBERS_MAX");
        let cookie = option(socket, libc::SOL_SOCKET, libc::SO_COOKIE).unwrap_or(0);
        let (network, pass) = in_netns_of(socket, || {
            // So that a group knows at once whether there is a program.
            try_it(netns_cookie(socket))?;
            let network = Network::open(socket).map_err(KernelError::Network)?;
            Ok((network, GroupPass::new(cookie)?))
        })?;
        Ok(Self {
            direct,
            network,
            lanes: Vec::new(),
            positions: Vec::new(),
            outside: Vec::new(),
            refused: Vec::new(),
            making: None,
            pass,
            members_max,
            backlog_packets_max: backlog_packets_max(),
            polled_ns: 0,
            suspended_until_ns: 0,
            passes: 0,
            passes_missed: 0,
        })
    }

    /// Takes all members anew, and makes their lanes before it returns.
    pub(super) fn replace(&mut self, socket: &UdpSocket, members: &Members) {
        if let Some(making) = self.making.take() {
            let (key, device) = (making.key, making.device.clone());
            self.made(key, &device, making.wait());
        }
        for lane in &mut self.lanes {
            lane.members.clear();
            lane.joined.clear();
        }
        self.outside.clear();
        self.positions.clear();
        self.network.lift_budget();
        let all = members.all();
        while let Some(&address) = all.get(self.positions.len()) {
            let slot = self.positions.len();
            let hop = self.hop(members, address);
            let place = self.place_at(socket, address, hop, slot, Making::Here);
            self.positions.push(place);
            if let (MemberPosition::Lane { lane, .. }, SocketAddr::V4(first)) = (place, address) {
                // Neighbours in the list are often reached by the same next hop.
                let mut like_first = self.network.ipv4_like(*first.ip());
                let rest = all[slot + 1..].iter().map_while(|next| match next {
                    SocketAddr::V4(next) if like_first(*next.ip()) => Some(*next),
                    _ => None,
                });
                self.lanes[lane as usize].append_like_last(rest, &mut self.positions, lane);
            }
        }
        for lane in &mut self.lanes {
            lane.joined.clear();
            lane.joined.resize(lane.members.len(), lane.packets);
        }
    }

    /// Takes the member that was added last. A lane that it needs is made beside the sender.
    pub(super) fn add(&mut self, socket: &UdpSocket, members: &Members) {
        self.network.lift_budget();
        self.join(socket, members, members.len() - 1);
    }

    /// Lets go of a member, whose slot the last one will take.
    pub(super) fn remove(&mut self, members: &mut Members, slot: usize) {
        self.leave(members, slot);
        self.positions.swap_remove(slot);
        match self.positions.get(slot) {
            Some(&MemberPosition::Outside { position }) => {
                self.outside[position as usize] = narrow(slot)
            }
            Some(&MemberPosition::Lane { lane, position }) => {
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
        let now_ns = monotonic_coarse_ns();
        if now_ns >= self.polled_ns + POLL_NS {
            self.polled_ns = now_ns;
            self.refresh(socket, members);
        }
        if self.making.is_some() {
            self.take_made(socket, members);
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
        match self.positions[slot] {
            MemberPosition::Outside { .. } => MemberCounters::default(),
            MemberPosition::Lane { lane, position } => {
                self.lanes[lane as usize].counters(position as usize)
            }
        }
    }

    /// Packets cloned, and members that are in lanes.
    pub(super) fn clones(&self) -> (u64, usize) {
        let clones = self.pass.pass.read(0).clones;
        (clones, self.positions.len() - self.outside.len())
    }

    /// Hears what has changed, and moves members accordingly.
    pub(super) fn refresh(&mut self, socket: &UdpSocket, members: &mut Members) {
        if !self.network.poll() {
            return;
        }
        // A device may have made room, or come back.
        self.refused.clear();
        self.place_anew(socket, members);
    }

    /// Takes the lane that was being made, if it is there.
    fn take_made(&mut self, socket: &UdpSocket, members: &mut Members) {
        let Some(result) = self.making.as_ref().and_then(LaneMaking::poll) else {
            return;
        };
        if let Some(LaneMaking { key, device, .. }) = self.making.take() {
            self.made(key, &device, result);
        }
        self.network.lift_budget();
        self.place_anew(socket, members);
    }

    /// Moves the members whose place is another by now.
    fn place_anew(&mut self, socket: &UdpSocket, members: &mut Members) {
        for slot in 0..members.len() {
            let hop = self.hop(members, members.address(slot));
            let stays = match self.positions[slot] {
                MemberPosition::Outside { .. } => {
                    let making = self.making.as_ref().map(|making| making.key);
                    hop.is_none_or(|hop| {
                        Some(hop.lane) == making || self.refused.contains(&hop.lane)
                    })
                }
                MemberPosition::Lane { lane, position } => {
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
                let address = members.address(slot);
                let place = self.place_at(socket, address, hop, slot, Making::Beside);
                self.positions[slot] = place;
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
        // Who is alone is not worth a look at the device.
        let passes = lane.members.len() > 1 && now_ns >= self.suspended_until_ns;
        let link = passes.then(|| self.network.link(lane.key.ifindex));
        let pass_members_max = match link.flatten() {
            Some(link)
                if train.bytes.len().min(train.stride) + lane.header_bytes()
                    <= lane.key.packet_bytes_max(link) as usize =>
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
            let positions = first..first + count;
            let pass = &mut self.pass.pass;
            let passed = lane.replicate(fd, members, positions, train, pass);
            self.direct.crossings += 1;
            match passed {
                ReplicationResult::Whole { refused } => {
                    self.passes += 1;
                    sent.packets += (count * packets) as u64 - refused;
                    sent.refused += refused;
                }
                ReplicationResult::OnlyTo(position) => {
                    self.passes_missed += 1;
                    // As long as a packet may wait for an address to be resolved, and some: it must
                    // not be taken for that of a later pass.
                    self.suspended_until_ns = now_ns + SUSPENDED_NS;
                    sent.packets += packets as u64;
                    let seed = position..position + 1;
                    for rest in [first..seed.start, seed.end..first + count] {
                        sent.add(lane.send_directly(&mut self.direct, fd, members, rest, train));
                    }
                }
                ReplicationResult::Refused => {
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
        let hop = self.hop(members, address);
        let place = self.place_at(socket, address, hop, slot, Making::Beside);
        self.positions.push(place);
    }

    /// The hop to a member; `None` if it is sent to directly.
    fn hop(&mut self, members: &Members, address: SocketAddr) -> Option<Hop> {
        if self.lanes.is_empty() && members.len() < LANE_MEMBERS_MIN {
            return None;
        }
        self.network.hop(address)
    }

    fn place_at(
        &mut self,
        socket: &UdpSocket,
        address: SocketAddr,
        hop: Option<Hop>,
        slot: usize,
        making: Making,
    ) -> MemberPosition {
        if let Some(hop) = hop
            && let Some(lane) = self.lane(socket, hop.lane, making)
        {
            return self.lanes[lane].push(address, hop, slot, lane);
        }
        self.outside.push(narrow(slot));
        MemberPosition::Outside {
            position: narrow(self.outside.len() - 1),
        }
    }

    /// Takes a member out of its place; its own place is the caller's to mend.
    fn leave(&mut self, members: &mut Members, slot: usize) {
        match self.positions[slot] {
            MemberPosition::Outside { position } => {
                self.outside.swap_remove(position as usize);
                if let Some(&moved) = self.outside.get(position as usize) {
                    self.positions[moved as usize] = MemberPosition::Outside { position };
                }
            }
            MemberPosition::Lane {
                lane: index,
                position,
            } => {
                let lane = &mut self.lanes[index as usize];
                members.keep(slot, lane.counters(position as usize));
                lane.swap_remove(position as usize);
                if let Some(&moved) = lane.members.get(position as usize) {
                    self.positions[moved as usize] = MemberPosition::Lane {
                        lane: index,
                        position,
                    };
                }
            }
        }
    }

    /// The lane of that key, made if need be and possible. `None` as long as it is being made.
    fn lane(&mut self, socket: &UdpSocket, key: LaneKey, making: Making) -> Option<usize> {
        if let Some(index) = self.lanes.iter().position(|lane| lane.key == key) {
            return Some(index);
        }
        if self.refused.contains(&key) || self.making.is_some() {
            return None;
        }
        let others = self.lanes.iter().filter(|it| !it.members.is_empty());
        if !key.has_room(others.map(|it| it.key), LANES_MAX) {
            self.refused.push(key);
            return None;
        }
        let device = self.network.link(key.ifindex)?.name.clone();
        let order = match self.order(socket, key, &device) {
            Ok(order) => order,
            Err(error) => return self.made(key, &device, Err(error)),
        };
        if let Making::Beside = making {
            match order.begin() {
                Ok(making) => self.making = Some(making),
                Err(error) => _ = self.made(key, &device, Err(KernelError::Network(error))),
            }
            return None;
        }
        let made = order.make();
        self.made(key, &device, made)
    }

    /// Takes a lane that was made, or writes down that it cannot be.
    fn made(
        &mut self,
        key: LaneKey,
        device: &str,
        made: Result<Lane, KernelError>,
    ) -> Option<usize> {
        match made {
            Ok(lane) => {
                // An MTU that is no more does not come again as a device does.
                let is_spent = |it: &Lane| it.members.is_empty() && it.key.mtu_bytes.is_some();
                let is_full = self.lanes.len() >= LANES_MAX;
                let is_empty = |it: &Lane| is_full && it.members.is_empty();
                let place = self
                    .lanes
                    .iter()
                    .position(|it| is_spent(it) || is_empty(it));
                match place {
                    Some(place) => {
                        self.lanes[place] = lane;
                        Some(place)
                    }
                    None if is_full => {
                        self.refused.push(key);
                        None
                    }
                    None => {
                        self.lanes.push(lane);
                        Some(self.lanes.len() - 1)
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, device, "members behind this device are sent to one by one");
                self.refused.push(key);
                None
            }
        }
    }

    fn order(
        &self,
        socket: &UdpSocket,
        key: LaneKey,
        device: &str,
    ) -> Result<LaneOrder, KernelError> {
        let of_device = |lane: &&Lane| lane.key.ifindex == key.ifindex;
        let known = self.lanes.iter().find(of_device);
        let is_free = |number: &u16| {
            self.lanes
                .iter()
                .all(|it| it.slots.lane_number() != *number)
        };
        let number = (0..=u16::MAX)
            .find(is_free)
            .expect("there are at most LANES_MAX");
        Ok(LaneOrder {
            socket: socket.try_clone().map_err(KernelError::Network)?,
            key,
            device: device.to_owned(),
            known: known.map(|lane| Arc::clone(lane.slots.at())),
            pass: self.pass.entry(),
            number,
            members_max: self.members_max,
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Its entries have the socket's cookie: those of the next group on the same socket would go
        // with them.
        if let Some(making) = self.making.take() {
            drop(making.wait());
        }
    }
}

/// Who makes a lane that a member needs.
#[derive(Clone, Copy)]
enum Making {
    /// The caller, who waits for it.
    Here,
    /// Another thread, while the member is sent to directly.
    Beside,
}

/// Packets that the far end of a veth pair, or of loopback, lets wait.
pub(super) fn backlog_packets_max() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/net/core/netdev_max_backlog");
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1000)
}

/// Members of a group that may have lanes.
const LANE_MEMBERS_MIN: usize = 2;
/// How often news are heard, at most. A syscall at each send would cost a small group a tenth.
const POLL_NS: u64 = 10_000_000;
/// Longer than the kernel tries to resolve an address (3 s: mcast_solicit times retrans_time).
const SUSPENDED_NS: u64 = 5_000_000_000;
