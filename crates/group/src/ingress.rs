//! Replication where packets arrive: a program at tc ingress gives each to the members, and no
//! process sees it.
//!
//! An [`Ingress`] takes the datagrams that come to one address and port at this machine's devices,
//! addresses them anew and clones them for each member, with the source that the member's outlet
//! has. The members are placed by the routing and neighbour tables, and anew whenever those change
//! or a list replaces another: all are written into the half of the tables that the program does
//! not use, which it then changes to, so that a packet goes to the members of before or of after.
//! Who joins or leaves alone has its [place](super::placed) in the half that is used, and nothing
//! else is written. A member whose next hop is not known gets nothing, which is counted; its host
//! is sent an empty datagram to the discard port once a second, so that the kernel finds the way.
//!
//! What exceeds the MTU of a member's route or device is not sent to it, and counted as refused to
//! it (EMSGSIZE). Packets that come by IPv4 go to IPv4 members only, and so for IPv6. Fragments, IP
//! options and VLAN tags pass by, to the socket if there is one. A packet goes its way in slices,
//! each a quarter of what the device's queue or `net.core.netdev_max_backlog` takes, and one packet
//! at a time; those that come meanwhile wait in the kernel's queue of arrivals, and are counted as
//! refused to everybody if that is full.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use aya::Ebpf;

use super::arrival::{
    Control, FRESH, Heard, LANES_MAX, Lane, Running, Since, Tables, Taken, attach, devices, load,
    mac_of,
};
use super::error::KernelError;
use super::kernel::backlog_packets_max;
use super::lane_key::LaneKey;
use super::network::Network;
use super::placed::{Member, Placed, PlacedLane};
use super::table::Slot;
use super::table::narrow;
use super::{MEMBERS_MAX, MemberCounters};
use onrush_sys::clock::monotonic_ns;

/// A program that replicates where packets arrive. It goes with this, or with the process.
pub struct Ingress {
    outlets: Vec<Outlet>,
    members_max: usize,
    tables: Tables,
    half: usize,
    /// By half: who is where.
    placed: [Placed; 2],
    /// The half that packets were still in when it was left: what it gave is not in `counters` yet.
    left: Option<usize>,
    counters: HashMap<Member, MemberCounters>,
    is_stale: bool,
    /// How often all members were placed anew.
    placings: u64,
    knocked_ns: u64,
    devices: Vec<String>,
    backlog_packets_max: u32,
    /// Holds the program and its attachments, until it is detached.
    ebpf: Option<Ebpf>,
}

/// Members that get packets from one address and port.
struct Outlet {
    socket: UdpSocket,
    port: u16,
    network: Network,
    members: BTreeSet<SocketAddr>,
}

/// A lane: its outlet, what it is, and its members.
type Sorted = (usize, LaneKey, Vec<Slot>, Vec<SocketAddr>);

impl Ingress {
    /// Takes what `taken` says at `device`, or at every device that is there now, for so many
    /// members at the most. Nothing is taken before the first [`Ingress::poll`].
    ///
    /// # Errors
    ///
    /// If the kernel does not take the program, or no device does.
    pub fn open(
        taken: &Taken,
        device: Option<&str>,
        members_max: usize,
    ) -> Result<Self, KernelError> {
        let members_max = members_max.clamp(1, MEMBERS_MAX);
        let mut ebpf = load(taken, members_max)?;
        let tables = Tables::of(&mut ebpf)?;
        let devices = match device {
            Some(device) => vec![device.to_owned()],
            None => devices().map_err(KernelError::Network)?,
        };
        let devices = attach(&mut ebpf, devices, device.is_some())?;
        Ok(Self {
            outlets: Vec::new(),
            members_max,
            tables,
            half: 0,
            placed: Default::default(),
            left: None,
            counters: HashMap::new(),
            is_stale: true,
            placings: 0,
            knocked_ns: 0,
            devices,
            backlog_packets_max: backlog_packets_max(),
            ebpf: Some(ebpf),
        })
    }

    /// Another outlet: its members get packets from the address and port of `socket`, which is
    /// kept.
    ///
    /// # Errors
    ///
    /// If the routing tables cannot be read.
    pub fn outlet(&mut self, socket: UdpSocket) -> io::Result<usize> {
        let outlet = Outlet {
            port: socket.local_addr()?.port(),
            network: Network::open(&socket)?,
            socket,
            members: BTreeSet::new(),
        };
        self.outlets.push(outlet);
        Ok(self.outlets.len() - 1)
    }

    /// Makes the members of an outlet these, all at once, at the next [`Ingress::poll`].
    pub fn set_members(&mut self, outlet: usize, members: impl IntoIterator<Item = SocketAddr>) {
        self.outlets[outlet].members = members.into_iter().collect();
        self.is_stale = true;
    }

    /// Adds a member to an outlet: at once, which takes as long however many there are; or at the
    /// next [`Ingress::poll`] if it is the first of its device and source address, or if all are
    /// placed anew then anyway.
    pub fn add(&mut self, outlet: usize, member: SocketAddr) {
        if self.outlets[outlet].members.insert(member) {
            self.is_stale |= !self.join((outlet, member));
        }
    }

    /// Removes one, as [`Ingress::add`] adds one.
    pub fn remove(&mut self, outlet: usize, member: SocketAddr) {
        if self.outlets[outlet].members.remove(&member) {
            self.is_stale |= !self.leave((outlet, member));
        }
    }

    /// Takes no packet more. Those that are on their way go to all members first, and what comes
    /// meanwhile waits for its turn; once there are none what comes is for the next program at the
    /// device, if another process has attached one behind this. Where packets come so fast that
    /// there are always some, the next program gets them after 64, and no sooner than after a tenth
    /// of a second, and may be ahead with them. What was counted can still be read, and all of it.
    pub fn detach(&mut self) {
        if self.ebpf.is_some() {
            let is_empty = self.let_go(IN_ORDER);
            if !is_empty {
                // One that its device has lost is never seen again.
                self.let_go(AT_ONCE);
            }
        }
        self.ebpf = None;
    }

    /// Leaves packets to the next program in that way; whether none is on its way any more.
    fn let_go(&mut self, leaving: u32) -> bool {
        let at = offset_of!(Control, leaving);
        self.tables.controls.write_word(0, at, leaving);
        fence(Ordering::SeqCst);
        let (begin, head) = (Instant::now(), self.tables.runnings.read(0).head);
        loop {
            let running = self.tables.runnings.read(0);
            if running.head == running.tail {
                return true;
            }
            let age_ns = monotonic_ns().saturating_sub(running.at_ns);
            if is_vain(begin.elapsed(), age_ns, running.head.wrapping_sub(head)) {
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// How often all members were placed anew, since it was opened.
    #[must_use]
    pub fn placings(&self) -> u64 {
        self.placings
    }

    /// Members of all outlets.
    #[must_use]
    pub fn len(&self, outlet: usize) -> usize {
        self.outlets[outlet].members.len()
    }

    /// The devices at which it takes packets.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// Places the members anew, if they or the tables have changed. To be called every few
    /// milliseconds; it never waits for a packet that is on its way, but leaves that to the next
    /// call.
    pub fn poll(&mut self) {
        for outlet in &mut self.outlets {
            self.is_stale |= outlet.network.poll();
        }
        self.count_left();
        if self.is_stale && self.left.is_none() {
            self.place();
            self.count_left();
        }
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.knocked_ns) >= KNOCK_NS {
            self.knocked_ns = now_ns;
            for &(outlet, member) in self.placed[self.half].unplaced.keys() {
                let mut discard = member;
                discard.set_port(9);
                // Whether it arrives is no matter: the way there is looked for.
                drop(self.outlets[outlet].socket.send_to(&[], discard));
            }
        }
    }

    /// Whether packets that come from now on find the members as they were asked for.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.is_stale
    }

    /// What was heard and done so far.
    ///
    /// # Errors
    ///
    /// If the program's map cannot be read.
    pub fn heard(&self) -> Result<Heard, KernelError> {
        self.tables.heard()
    }

    /// What each member of an outlet was given since it came.
    pub fn member_counters(&self, outlet: usize) -> Vec<(SocketAddr, MemberCounters)> {
        let mut counters = self.counters.clone();
        for half in self.left.into_iter().chain([self.half]) {
            self.count(half, &mut counters);
        }
        let of_outlet = |&member| {
            let counters = counters.get(&(outlet, member));
            (member, counters.copied().unwrap_or_default())
        };
        self.outlets[outlet].members.iter().map(of_outlet).collect()
    }

    /// Whether no packet is on its way in that half any more.
    fn is_idle(&self, half: usize) -> bool {
        let running = self.tables.runnings.read(0);
        let age_ns = monotonic_ns().saturating_sub(running.at_ns);
        running.head == running.tail || running.half != narrow(half) || age_ns > 2 * LOST_NS
    }

    /// Gives a new member a place in the half that is used; whether there was one, and all others
    /// stay where they are.
    fn join(&mut self, member: Member) -> bool {
        if self.is_stale {
            return false;
        }
        let ((outlet, address), half) = (member, self.half);
        let running = self.tables.runnings.read(0);
        let (placed, network) = (&mut self.placed[half], &mut self.outlets[outlet].network);
        network.lift_budget();
        let Some(hop) = network.hop(address) else {
            placed.unplaced.insert(member, running.since(half));
            return true;
        };
        let Some(number) = placed.lane(outlet, hop.lane) else {
            let lanes = placed.lanes.iter().filter(|it| it.has_members());
            let lanes = lanes.map(|it| it.key);
            if hop.lane.has_room(lanes, LANES_MAX) {
                return false;
            }
            placed.unplaced.insert(member, running.since(half));
            return true;
        };
        let Some(slot) = placed.lanes[number].take(running.head) else {
            return false;
        };
        placed.slots.insert(member, (narrow(number), slot));
        let (ip, ifindex) = (address.ip().to_canonical(), hop.lane.ifindex);
        let entry = Slot {
            ifindex: 0,
            error: FRESH,
            ..Slot::new(ip, address.port(), hop.mac, ifindex)
        };
        let at = half * self.members_max + slot as usize;
        self.tables.sinces.write(at, running.since(half));
        self.tables.members.write(at, entry);
        fence(Ordering::SeqCst);
        // It is there when its device is, and is looked at when the lane counts it.
        let members = &mut self.tables.members;
        members.write_word(at, offset_of!(Slot, ifindex), ifindex);
        self.count_in_lane(number);
        true
    }

    /// Takes a member's place from it, likewise.
    fn leave(&mut self, member: Member) -> bool {
        if self.is_stale {
            return false;
        }
        let half = self.half;
        // Should it come back, it begins anew.
        self.counters.remove(&member);
        let before = &mut self.placed[1 - half];
        before.slots.remove(&member);
        before.unplaced.remove(&member);
        let placed = &mut self.placed[half];
        if placed.unplaced.remove(&member).is_some() {
            return true;
        }
        let Some((number, slot)) = placed.slots.remove(&member) else {
            return false;
        };
        let at = half * self.members_max + slot as usize;
        let members = &mut self.tables.members;
        members.write_word(at, offset_of!(Slot, ifindex), 0);
        // Packets that come from now on do not find it.
        let tail = self.tables.runnings.read(0).tail;
        let lane = &mut placed.lanes[number as usize];
        lane.give_back(slot, tail);
        let is_worn = lane.is_worn();
        self.count_in_lane(number as usize);
        !is_worn
    }

    /// Tells the program how many there are in a lane of the half that is used.
    fn count_in_lane(&mut self, number: usize) {
        let half = self.half;
        let placed = &self.placed[half];
        let (lane, at) = (&placed.lanes[number], half * LANES_MAX + number);
        let lanes = &mut self.tables.lanes;
        lanes.write_word(at, offset_of!(Lane, count), lane.count);
        lanes.write_word(at, offset_of!(Lane, members), lane.members());
        let of_half = offset_of!(Control, members) + half * size_of::<u32>();
        let members = narrow(placed.slots.len());
        self.tables.controls.write_word(0, of_half, members);
    }

    /// Writes all members into the idle half, and changes to it.
    fn place(&mut self) {
        let (before, half) = (self.half, 1 - self.half);
        let since = self.tables.runnings.read(0).since(half);
        let mut placed = std::mem::take(&mut self.placed[half]);
        placed.clear();
        let lanes = self.sort(&mut placed, since);
        let count = lanes.len();
        let wanted: usize = lanes.iter().map(|(_, _, slots, _)| slots.len()).sum();
        // What is left is for those who join.
        let room = self.members_max.saturating_sub(wanted) / count.max(1);
        let mut first = 0;
        for (number, (outlet, key, slots, members)) in lanes.into_iter().enumerate() {
            let count = slots.len().min(self.members_max - first);
            let lane = self.lane(outlet, key, first, count);
            self.tables.lanes.write(half * LANES_MAX + number, lane);
            let lane = PlacedLane::new(outlet, key, first, count, count + room);
            placed.lanes.push(lane);
            for (position, (slot, address)) in slots.into_iter().zip(members).enumerate() {
                if position >= count {
                    placed.unplaced.insert((outlet, address), since);
                    continue;
                }
                let at = half * self.members_max + first + position;
                self.tables.members.write(at, slot);
                self.tables.sinces.write(at, since);
                let place = (narrow(number), narrow(first + position));
                placed.slots.insert((outlet, address), place);
            }
            first += count + room;
        }
        let mut control = self.tables.controls.read(0);
        control.lanes[half] = narrow(count);
        control.members[half] = narrow(placed.slots.len());
        self.tables.controls.write(0, control);
        // What the half holds is there before anybody enters it.
        fence(Ordering::SeqCst);
        control.active = narrow(half);
        self.tables.controls.write(0, control);
        fence(Ordering::SeqCst);
        self.placed[half] = placed;
        self.half = half;
        self.left = Some(before);
        self.is_stale = false;
        self.placings += 1;
    }

    /// Counts what the half gave that was left, once no packet is in it any more. Until then it is
    /// not written anew.
    fn count_left(&mut self) {
        let Some(left) = self.left.filter(|&half| self.is_idle(half)) else {
            return;
        };
        let mut counters = std::mem::take(&mut self.counters);
        self.count(left, &mut counters);
        counters.retain(|(outlet, member), _| self.outlets[*outlet].members.contains(member));
        self.counters = counters;
        self.placed[left].clear();
        self.left = None;
    }

    /// The members by lanes; those who are in none are written down as unplaced.
    fn sort(&mut self, placed: &mut Placed, since: Since) -> Vec<Sorted> {
        let mut lanes: Vec<Sorted> = Vec::new();
        let mut numbers = HashMap::new();
        for (number, outlet) in self.outlets.iter_mut().enumerate() {
            outlet.network.lift_budget();
            for &member in &outlet.members {
                let Some(hop) = outlet.network.hop(member) else {
                    placed.unplaced.insert((number, member), since);
                    continue;
                };
                let known = numbers.get(&(number, hop.lane)).copied();
                let keys = || lanes.iter().map(|it| it.1);
                if known.is_none() && !hop.lane.has_room(keys(), LANES_MAX) {
                    placed.unplaced.insert((number, member), since);
                    continue;
                }
                let lane = known.unwrap_or(lanes.len());
                if known.is_none() {
                    numbers.insert((number, hop.lane), lane);
                    lanes.push((number, hop.lane, Vec::new(), Vec::new()));
                }
                let ip = member.ip().to_canonical();
                let slot = Slot::new(ip, member.port(), hop.mac, hop.lane.ifindex);
                lanes[lane].2.push(slot);
                lanes[lane].3.push(member);
            }
        }
        lanes
    }

    fn lane(&mut self, outlet: usize, key: LaneKey, first: usize, count: usize) -> Lane {
        let LaneKey {
            ifindex, source, ..
        } = key;
        let link = self.outlets[outlet].network.link(ifindex).cloned();
        let mut bytes = [0; 16];
        match source {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes = ip.octets(),
        }
        let Outlet { socket, port, .. } = &self.outlets[outlet];
        Lane {
            source: bytes,
            port: port.to_be_bytes(),
            mac: mac_of(socket, ifindex).unwrap_or_default(),
            ifindex,
            first: narrow(first),
            count: narrow(count),
            is_ipv6: u32::from(source.is_ipv6()),
            slice: link
                .as_ref()
                .map_or(1, |link| link.pass_packets(self.backlog_packets_max)),
            cuts: u32::from(!link.as_ref().is_some_and(|link| link.segments)),
            members: narrow(count),
            mtu_bytes: link.map_or(0, |link| key.packet_bytes_max(&link)),
        }
    }

    /// Adds what the members of a half were given in it.
    fn count(&self, half: usize, counters: &mut HashMap<Member, MemberCounters>) {
        let placed = &self.placed[half];
        let running = self.tables.runnings.read(0);
        let is_ipv6 = self
            .heard()
            .ok()
            .and_then(|heard| heard.from)
            .map(|from| from.is_ipv6());
        for (&key, &(_, slot)) in &placed.slots {
            let at = half * self.members_max + slot as usize;
            let (slot, since) = (self.tables.members.read(at), self.tables.sinces.read(at));
            let counter = counters.entry(key).or_default();
            let is_reached = is_ipv6 == Some(key.1.ip().to_canonical().is_ipv6());
            if slot.error == FRESH && is_reached {
                continue;
            }
            let packets = running.packets[half] - since.packets;
            let overruns = running.overruns[half] - since.overruns;
            let refused = match is_reached {
                true => (u64::from(slot.refused) + overruns).min(packets),
                false => packets,
            };
            counter.packets += packets - refused;
            counter.refused += refused;
            if overruns > 0 {
                counter.errno_last = libc::ENOBUFS;
            }
            if slot.error != 0 && slot.error != FRESH {
                counter.errno_last = slot.error.abs();
            }
        }
        for (key, since) in &placed.unplaced {
            let counter = counters.entry(*key).or_default();
            counter.refused += running.packets[half] - since.packets;
            counter.errno_last = libc::EHOSTUNREACH;
        }
    }
}

impl Running {
    /// What a half has been given so far.
    fn since(&self, half: usize) -> Since {
        Since {
            packets: self.packets[half],
            overruns: self.overruns[half],
        }
    }
}

impl fmt::Debug for Ingress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingress")
            .field("devices", &self.devices)
            .field("outlets", &self.outlets.len())
            .finish_non_exhaustive()
    }
}

/// Whether a program that is to go, and has waited so long since, waits no longer: for a packet of
/// that age, after so many others. A short time alone says nothing: a busy machine may have left
/// the program none to look in, or the packet none to go on in.
fn is_vain(elapsed: Duration, age_ns: u64, packets: u32) -> bool {
    let is_lost_or_one_of_many = age_ns > LOST_NS || packets >= LEAVE_PACKETS_MAX;
    (elapsed > LEAVE_TIME && is_lost_or_one_of_many) || elapsed > LEAVE_TIME_MAX
}

/// How long an [`Ingress`] that is detached waits for packets that are on their way at least, while
/// there are some.
const LEAVE_TIME: Duration = Duration::from_millis(100);
/// And for how many: twice what may wait.
const LEAVE_PACKETS_MAX: u32 = 64;
/// And at the most.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);
/// Between two looks at whether some are.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// What is left to the next program, as in bpf/relay.bpf.c.
const IN_ORDER: u32 = 1;
const AT_ONCE: u32 = 2;

const KNOCK_NS: u64 = 1_000_000_000;
/// When a packet on its way counts as lost, as in bpf/relay.bpf.c.
const LOST_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
