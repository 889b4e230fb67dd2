//! Replication where packets arrive: a program at tc ingress gives each to the members, and no process sees it.
//!
//! An [`Ingress`] takes the datagrams that come to one address and port at this machine's devices, addresses them anew
//! and clones them for each member, with the source that the member's outlet has. The members are placed by the routing
//! and neighbour tables, and anew whenever those or the members change: all are written into the half of the tables
//! that the program does not use, which it then changes to, so that a packet goes to the members of before or of
//! after. A member whose next hop is not known gets nothing, which is counted; its host is sent an empty datagram to
//! the discard port once a second, so that the kernel finds the way.
//!
//! Packets that come by IPv4 go to IPv4 members only, and so for IPv6. Fragments, IP options and VLAN tags pass by, to
//! the socket if there is one. A packet goes its way in slices, each a quarter of what the device's queue or
//! `net.core.netdev_max_backlog` takes, and one packet at a time; those that come meanwhile wait in the kernel's queue
//! of arrivals, and are counted as refused to everybody if that is full.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};
use std::thread::sleep;
use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};

use super::kernel::{KernelError, QUEUE_PART, backlog_packets_max};
use super::network::{LaneKey, Network};
use super::table::{Mapped, Slot};
use super::{MEMBERS_MAX, MemberCounters};
use crate::clock::monotonic_ns;

/// Lanes in a half, as in bpf/relay.bpf.c.
const LANES_MAX: usize = 64;

/// What is taken: datagrams to an address (the wildcard: to any of this machine's) and port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Taken {
    /// Where they are sent to; the IPv6 wildcard stands for both versions.
    pub address: SocketAddr,
    /// The only sender to be heard, if there is one.
    pub sender: Option<IpAddr>,
}

/// A program that replicates where packets arrive. It goes with this, or with the process.
pub struct Ingress {
    outlets: Vec<Outlet>,
    members_max: usize,
    tables: Tables,
    half: usize,
    /// By half: who is where, and what the half had been given when it was last entered.
    placed: [Placed; 2],
    counters: HashMap<(usize, SocketAddr), MemberCounters>,
    is_stale: bool,
    knocked_ns: u64,
    devices: Vec<String>,
    backlog_packets_max: u32,
    #[expect(dead_code, reason = "holds the program and its attachments")]
    ebpf: Ebpf,
}

/// Members that get packets from one address and port.
struct Outlet {
    socket: UdpSocket,
    port: u16,
    network: Network,
    members: BTreeSet<SocketAddr>,
}

struct Tables {
    controls: Mapped<Control>,
    runnings: Mapped<Running>,
    lanes: Mapped<Lane>,
    members: Mapped<Slot>,
    heards: Array<MapData, RawHeard>,
}

#[derive(Default)]
struct Placed {
    /// By slot: the outlet and the member.
    members: Vec<(usize, SocketAddr)>,
    /// Those who have no slot.
    unplaced: Vec<(usize, SocketAddr)>,
    packets_before: u64,
    overruns_before: u64,
}

/// What the program has heard and done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Their bytes, without UDP's and lower headers.
    pub bytes: u64,
    /// Those that were RTP.
    pub rtp: u64,
    /// Those that began as a transport packet does.
    pub transport_streams: u64,
    /// RTP sequence numbers that were jumped over.
    pub missing: u64,
    /// RTP packets that came again or out of order.
    pub behind: u64,
    /// Times that RTP's numbers began anew.
    pub restarts: u64,
    /// Times that the sender changed.
    pub source_changes: u64,
    /// Times that the RTP stream changed.
    pub ssrc_changes: u64,
    /// When the last came, on the monotonic clock.
    pub arrived_ns: u64,
    /// Passes: socket buffers that came, each a train or a single datagram.
    pub passes: u64,
    /// Packets that were cloned for members, refused ones among them.
    pub clones: u64,
    /// Packets that a device refused, or that could not go by the IP version they came by.
    pub refused: u64,
    /// Who sent the last.
    pub from: Option<SocketAddr>,
    /// Of the last RTP packet: payload type, SSRC and timestamp.
    pub last_rtp: Option<(u8, u32, u32)>,
}

/// `struct control` of bpf/relay.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Control {
    active: u32,
    lanes: [u32; 2],
    pad: u32,
}

/// `struct running`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Running {
    head: u32,
    tail: u32,
    half: u32,
    ports: u32,
    at_ns: u64,
    packets: [u64; 2],
    overruns: [u64; 2],
    skipped: [u8; 256],
}

/// `struct lane`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Lane {
    source: [u8; 16],
    port: [u8; 2],
    mac: [u8; 6],
    ifindex: u32,
    first: u32,
    count: u32,
    is_ipv6: u32,
    slice: u32,
    cuts: u32,
}

/// `struct heard`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct RawHeard {
    lock: u32,
    sequence_next: u16,
    payload_type: u8,
    is_rtp: u8,
    counts: [u64; 9],
    arrived_ns: u64,
    skbs: u64,
    clones: u64,
    refused: u64,
    ssrc: u32,
    timestamp: u32,
    from: [u8; 16],
    from_port: [u8; 2],
    from_is_ipv6: u16,
    pad: u32,
}

const _: () = assert!(size_of::<Control>() == 16);
const _: () = assert!(size_of::<Running>() == 312);
const _: () = assert!(size_of::<Lane>() == 48);
const _: () = assert!(size_of::<RawHeard>() == 144);
// A packet on its way has 17 bits for the next member.
const _: () = assert!(MEMBERS_MAX <= 1 << 17);

// SAFETY: Pod demands that every bit pattern is a value and that there is no padding to leak. All fields are
// integers, and the size above is the sum of theirs.
unsafe impl Pod for RawHeard {}

impl Ingress {
    /// Takes what `taken` says at `device`, or at every device that is there now, for so many members at the most.
    /// Nothing is taken before the first [`Ingress::poll`].
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
        let tables = Tables {
            controls: mapped(&mut ebpf, "controls")?,
            runnings: mapped(&mut ebpf, "runnings")?,
            lanes: mapped(&mut ebpf, "lanes")?,
            members: mapped(&mut ebpf, "members")?,
            heards: ebpf
                .take_map("heards")
                .expect("relay.bpf.c defines it")
                .try_into()?,
        };
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
            counters: HashMap::new(),
            is_stale: true,
            knocked_ns: 0,
            devices,
            backlog_packets_max: backlog_packets_max(),
            ebpf,
        })
    }

    /// Another outlet: its members get packets from the address and port of `socket`, which is kept.
    ///
    /// # Errors
    ///
    /// If the routing tables can not be read.
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

    /// Makes the members of an outlet these, from the next [`Ingress::poll`] on.
    pub fn set_members(&mut self, outlet: usize, members: impl IntoIterator<Item = SocketAddr>) {
        self.outlets[outlet].members = members.into_iter().collect();
        self.is_stale = true;
    }

    /// Adds a member to an outlet, from the next [`Ingress::poll`] on.
    pub fn add(&mut self, outlet: usize, member: SocketAddr) {
        self.is_stale |= self.outlets[outlet].members.insert(member);
    }

    /// Removes one, from the next [`Ingress::poll`] on.
    pub fn remove(&mut self, outlet: usize, member: SocketAddr) {
        self.is_stale |= self.outlets[outlet].members.remove(&member);
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

    /// Places the members anew, if they or the tables have changed. To be called every few milliseconds.
    pub fn poll(&mut self) {
        for outlet in &mut self.outlets {
            self.is_stale |= outlet.network.poll();
        }
        if self.is_stale && self.is_idle(1 - self.half) {
            self.place();
        }
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.knocked_ns) >= KNOCK_NS {
            self.knocked_ns = now_ns;
            for &(outlet, member) in &self.placed[self.half].unplaced {
                let mut discard = member;
                discard.set_port(9);
                // Whether it arrives is no matter: the way there is looked for.
                drop(self.outlets[outlet].socket.send_to(&[], discard));
            }
        }
    }

    /// What was heard and done so far.
    ///
    /// # Errors
    ///
    /// If the program's map can not be read.
    pub fn heard(&self) -> Result<Heard, KernelError> {
        let raw = self.tables.heards.get(&0, BPF_F_LOCK)?;
        let [
            datagrams,
            bytes,
            rtp,
            transport_streams,
            missing,
            behind,
            restarts,
            ..,
        ] = raw.counts;
        let [.., source_changes, ssrc_changes] = raw.counts;
        let port = u16::from_be_bytes(raw.from_port);
        let [a, b, c, d, ..] = raw.from;
        let ip: IpAddr = match raw.from_is_ipv6 {
            0 => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(raw.from).into(),
        };
        Ok(Heard {
            datagrams,
            bytes,
            rtp,
            transport_streams,
            missing,
            behind,
            restarts,
            source_changes,
            ssrc_changes,
            arrived_ns: raw.arrived_ns,
            passes: raw.skbs,
            clones: raw.clones,
            refused: raw.refused,
            from: (datagrams > 0).then_some(SocketAddr::new(ip, port)),
            last_rtp: (rtp > 0).then_some((raw.payload_type, raw.ssrc, raw.timestamp)),
        })
    }

    /// What each member of an outlet was given since it came.
    pub fn member_counters(&self, outlet: usize) -> Vec<(SocketAddr, MemberCounters)> {
        let mut counters = self.counters.clone();
        self.count(self.half, &mut counters);
        let of_outlet = |&member| {
            let counters = counters.get(&(outlet, member));
            (member, counters.copied().unwrap_or_default())
        };
        self.outlets[outlet].members.iter().map(of_outlet).collect()
    }

    /// Whether no packet is on its way in that half any more.
    fn is_idle(&self, half: usize) -> bool {
        for _ in 0..IDLE_TRIES {
            let running = self.tables.runnings.read(0);
            let age_ns = monotonic_ns().saturating_sub(running.at_ns);
            if running.head == running.tail || running.half != narrow(half) || age_ns > 2 * LOST_NS
            {
                return true;
            }
            sleep(Duration::from_micros(200));
        }
        false
    }

    /// Writes all members into the idle half, and changes to it.
    fn place(&mut self) {
        let (before, half) = (self.half, 1 - self.half);
        let mut lanes: Vec<(usize, LaneKey, Vec<Slot>, Vec<SocketAddr>)> = Vec::new();
        let mut numbers = HashMap::new();
        let mut placed = Placed::default();
        for (number, outlet) in self.outlets.iter_mut().enumerate() {
            outlet.network.lift_budget();
            for &member in &outlet.members {
                let Some(hop) = outlet.network.hop(member) else {
                    placed.unplaced.push((number, member));
                    continue;
                };
                let next = lanes.len();
                let lane = *numbers.entry((number, hop.lane)).or_insert(next);
                if lane == LANES_MAX {
                    numbers.remove(&(number, hop.lane));
                    placed.unplaced.push((number, member));
                    continue;
                }
                if lane == next {
                    lanes.push((number, hop.lane, Vec::new(), Vec::new()));
                }
                let ip = member.ip().to_canonical();
                let slot = Slot::new(ip, member.port(), hop.mac, hop.lane.ifindex);
                lanes[lane].2.push(slot);
                lanes[lane].3.push(member);
            }
        }
        let mut first = 0;
        for (number, (outlet, key, slots, members)) in lanes.into_iter().enumerate() {
            let room = self.members_max - first;
            let count = slots.len().min(room);
            let lane = self.lane(outlet, key, first, count);
            self.tables.lanes.write(half * LANES_MAX + number, lane);
            for (slot, position) in slots.into_iter().take(count).zip(first..) {
                let position = half * self.members_max + position;
                self.tables.members.write(position, slot);
            }
            let all = members.into_iter().map(|member| (outlet, member));
            let (inside, outside): (Vec<_>, Vec<_>) =
                all.enumerate().partition(|(i, _)| *i < count);
            placed
                .members
                .extend(inside.into_iter().map(|(_, member)| member));
            placed
                .unplaced
                .extend(outside.into_iter().map(|(_, member)| member));
            first += count;
        }
        let running = self.tables.runnings.read(0);
        placed.packets_before = running.packets[half];
        placed.overruns_before = running.overruns[half];
        let mut control = self.tables.controls.read(0);
        control.lanes[half] = narrow(numbers.len());
        self.tables.controls.write(0, control);
        // What the half holds is there before anybody enters it.
        fence(Ordering::SeqCst);
        control.active = narrow(half);
        self.tables.controls.write(0, control);
        fence(Ordering::SeqCst);
        self.placed[half] = placed;
        self.half = half;
        // Those who are still within are counted in; that they are many for long is no matter but for these counts.
        self.is_idle(before);
        let mut counters = std::mem::take(&mut self.counters);
        self.count(before, &mut counters);
        counters.retain(|(outlet, member), _| self.outlets[*outlet].members.contains(member));
        self.counters = counters;
        self.placed[before] = Placed::default();
        self.is_stale = false;
    }

    fn lane(&mut self, outlet: usize, key: LaneKey, first: usize, count: usize) -> Lane {
        let LaneKey { ifindex, source } = key;
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
            cuts: u32::from(!link.is_some_and(|link| link.segments)),
        }
    }

    /// Adds what the members of a half were given in it.
    fn count(&self, half: usize, counters: &mut HashMap<(usize, SocketAddr), MemberCounters>) {
        let placed = &self.placed[half];
        let running = self.tables.runnings.read(0);
        let packets = running.packets[half] - placed.packets_before;
        let overruns = running.overruns[half] - placed.overruns_before;
        let is_ipv6 = self
            .heard()
            .ok()
            .and_then(|heard| heard.from)
            .map(|from| from.is_ipv6());
        for (position, &key) in placed.members.iter().enumerate() {
            let slot = self.tables.members.read(half * self.members_max + position);
            let counter = counters.entry(key).or_default();
            let is_reached = is_ipv6 == Some(key.1.ip().to_canonical().is_ipv6());
            let refused = match is_reached {
                true => (u64::from(slot.refused) + overruns).min(packets),
                false => packets,
            };
            counter.packets += packets - refused;
            counter.refused += refused;
            if overruns > 0 {
                counter.errno_last = libc::ENOBUFS;
            }
            if slot.error != 0 {
                counter.errno_last = slot.error.abs();
            }
        }
        for key in &placed.unplaced {
            let counter = counters.entry(*key).or_default();
            counter.refused += packets;
            counter.errno_last = libc::EHOSTUNREACH;
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

fn load(taken: &Taken, members_max: usize) -> Result<Ebpf, KernelError> {
    let words = |ip: IpAddr| -> [u32; 4] {
        let bytes = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_compatible().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let word =
            |i: usize| u32::from_ne_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        match ip {
            IpAddr::V4(_) => [word(12), 0, 0, 0],
            IpAddr::V6(_) => [word(0), word(4), word(8), word(12)],
        }
    };
    let ip = taken.address.ip();
    let is_any = ip.is_unspecified();
    let (address, sender) = (words(ip), taken.sender.map_or([0; 4], words));
    let port = u32::from(taken.address.port().to_be());
    let is_ipv4 = u32::from(ip.is_ipv4() || is_any);
    let (is_ipv6, is_any) = (u32::from(ip.is_ipv6()), u32::from(is_any));
    let members = narrow(members_max);
    let slice = (backlog_packets_max() / QUEUE_PART).max(1);
    let mut loader = EbpfLoader::new();
    loader
        .override_global("MEMBERS_MAX", &members, true)
        .override_global("SLICE", &slice, true)
        .override_global("IS_IPV4", &is_ipv4, true)
        .override_global("IS_IPV6", &is_ipv6, true)
        .override_global("IS_ANY", &is_any, true)
        .override_global("PORT", &port, true)
        .map_max_entries("members", 2 * members);
    for (name, value) in ADDRESS_NAMES.iter().zip(&address) {
        loader.override_global(name, value, true);
    }
    for (name, value) in SENDER_NAMES.iter().zip(&sender) {
        loader.override_global(name, value, true);
    }
    Ok(loader.load(PROGRAM)?)
}

/// Attaches the program; which devices took it. All have to if `is_named`, one at least otherwise.
fn attach(
    ebpf: &mut Ebpf,
    devices: Vec<String>,
    is_named: bool,
) -> Result<Vec<String>, KernelError> {
    let program: &mut SchedClassifier = ebpf
        .program_mut("relay")
        .expect("relay.bpf.c defines it")
        .try_into()
        .expect("it is a classifier");
    let attach_error = |device: &str, source| KernelError::Attach {
        device: device.to_owned(),
        source,
    };
    program
        .load()
        .map_err(|source| attach_error("a device", source))?;
    let (mut taking, mut refused) = (Vec::new(), None);
    for device in devices {
        // Links of tcx, not filters: the kernel takes them away with the last descriptor, whatever ended us.
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        match program.attach_with_options(&device, TcAttachType::Ingress, options) {
            Ok(_) => taking.push(device),
            Err(error) if is_named => return Err(attach_error(&device, error)),
            Err(error) => refused = Some(attach_error(&device, error)),
        }
    }
    match refused {
        Some(error) if taking.is_empty() => Err(error),
        _ => Ok(taking),
    }
}

/// The devices of this thread's network namespace.
fn devices() -> io::Result<Vec<String>> {
    // SAFETY: it takes nothing, and gives null or an array that ends with an index of 0.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut names = Vec::new();
    let mut entry = list;
    loop {
        // SAFETY: `entry` is within the array, at its end at the most, whose index is 0.
        let found = unsafe { entry.read() };
        if found.if_index == 0 || found.if_name.is_null() {
            break;
        }
        // SAFETY: the name of an entry before the end is a string that ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(found.if_name) };
        names.push(name.to_string_lossy().into_owned());
        entry = entry.wrapping_add(1);
    }
    // SAFETY: `list` is from if_nameindex, and not used any more.
    unsafe { libc::if_freenameindex(list) };
    Ok(names)
}

/// The address of a device, in the network namespace of the socket.
fn mac_of(socket: &UdpSocket, ifindex: u32) -> Option<[u8; 6]> {
    // SAFETY: an ifreq is integers and bytes, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = i32::try_from(ifindex).ok()?;
    let fd = socket.as_raw_fd();
    // SAFETY: SIOCGIFNAME reads the index in the request and writes the name into it.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFNAME, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: SIOCGIFHWADDR reads the name in the request and writes the address into it.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFHWADDR, &raw mut request) } != 0 {
        return None;
    }
    // SAFETY: SIOCGIFHWADDR has just written this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let [a, b, c, d, e, f, ..] = address.sa_data.map(i8::cast_unsigned);
    Some([a, b, c, d, e, f])
}

fn mapped<T: Copy>(ebpf: &mut Ebpf, name: &str) -> Result<Mapped<T>, KernelError> {
    let Some(Map::Array(map)) = ebpf.map(name) else {
        unreachable!("relay.bpf.c defines it, as an array");
    };
    let info = map.info()?;
    Mapped::of(map.fd(), info.value_size(), info.max_entries()).map_err(KernelError::Mmap)
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("at most twice MEMBERS_MAX")
}

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/relay.o"));

const ADDRESS_NAMES: [&str; 4] = ["ADDRESS_0", "ADDRESS_1", "ADDRESS_2", "ADDRESS_3"];
const SENDER_NAMES: [&str; 4] = ["SENDER_0", "SENDER_1", "SENDER_2", "SENDER_3"];

/// Reads the counters whole, under their lock.
const BPF_F_LOCK: u64 = 4;
const KNOCK_NS: u64 = 1_000_000_000;
/// When a packet on its way counts as lost, as in bpf/relay.bpf.c.
const LOST_NS: u64 = 1_000_000_000;
/// Times 200 us: far longer than a packet's way to as many members as there may be.
const IDLE_TRIES: usize = 1000;
