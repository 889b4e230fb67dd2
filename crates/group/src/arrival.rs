//! The program at tc ingress: what it takes, what it has heard, and the tables that it shares with
//! the process.
//!
//! It is attached by links, which go with the last descriptor. Who the members are, and where each
//! is, is the [`Ingress`](super::Ingress)'s to say.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use aya::maps::{Array, Map, MapData};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};

use super::MEMBERS_MAX;
use super::error::KernelError;
use super::kernel::backlog_packets_max;
use super::network::QUEUE_PART;
use super::table::narrow;
use super::table::{Mapped, Slot};

/// Lanes in a half, as in bpf/relay.bpf.c.
pub(super) const LANES_MAX: usize = 64;

/// As the error of a member whom no packet has found yet, as in bpf/relay.bpf.c.
pub(super) const FRESH: i32 = -4096;

/// What is taken: datagrams to an address (the wildcard: to any of this machine's) and port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Taken {
    /// Where they are sent to; the IPv6 wildcard stands for both versions.
    pub address: SocketAddr,
    /// The only sender to be heard, if there is one.
    pub sender: Option<IpAddr>,
    /// For how long the one who sends may be silent before another may send, in ns; 0 lets
    /// everybody send.
    pub sender_kept_ns: u64,
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
    /// Datagrams that were refused because another sender is kept.
    pub from_others: u64,
    /// Who sent the first of them, since the sender came that is kept.
    pub other: Option<SocketAddr>,
    /// The last RTP packet.
    pub last_rtp: Option<RtpPacket>,
}

/// What an RTP packet says of itself (RFC 3550, section 5.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtpPacket {
    /// Its payload type.
    pub payload_type: u8,
    /// Its synchronisation source.
    pub ssrc: u32,
    /// Its timestamp.
    pub timestamp: u32,
}

/// `struct control` of bpf/relay.bpf.c.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Control {
    pub(super) active: u32,
    pub(super) lanes: [u32; 2],
    pub(super) members: [u32; 2],
    pub(super) leaving: u32,
}

/// `struct running`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Running {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) half: u32,
    pub(super) ports: u32,
    pub(super) at_ns: u64,
    pub(super) packets: [u64; 2],
    pub(super) overruns: [u64; 2],
    pub(super) skipped: [u8; 256],
}

/// `struct lane`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Lane {
    pub(super) source: [u8; 16],
    pub(super) port: [u8; 2],
    pub(super) mac: [u8; 6],
    pub(super) ifindex: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) is_ipv6: u32,
    pub(super) slice: u32,
    pub(super) cuts: u32,
    pub(super) members: u32,
    pub(super) mtu_bytes: u32,
}

/// `struct since`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Since {
    pub(super) packets: u64,
    pub(super) overruns: u64,
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
    from: RawAddress,
    is_stream: u32,
    from_others: u64,
    other: RawAddress,
    has_other: u32,
}

/// An address and a port of `struct heard`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct RawAddress {
    ip: [u8; 16],
    port: [u8; 2],
    is_ipv6: u16,
}

impl RawAddress {
    fn read(self) -> SocketAddr {
        let [a, b, c, d, ..] = self.ip;
        let ip: IpAddr = match self.is_ipv6 {
            0 => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(self.ip).into(),
        };
        SocketAddr::new(ip, u16::from_be_bytes(self.port))
    }
}

const _: () = assert!(size_of::<Control>() == 24);
const _: () = assert!(size_of::<Running>() == 312);
const _: () = assert!(size_of::<Lane>() == 56);
const _: () = assert!(size_of::<Since>() == 16);
const _: () = assert!(size_of::<RawHeard>() == 176);
// A packet on its way has 17 bits for the next member.
const _: () = assert!(MEMBERS_MAX <= 1 << 17);

// SAFETY: Pod demands that every bit pattern is a value and that there is no padding to leak. All
// fields are integers, and the size above is the sum of theirs.
unsafe impl Pod for RawHeard {}

/// What the program and the process share.
pub(super) struct Tables {
    pub(super) controls: Mapped<Control>,
    pub(super) runnings: Mapped<Running>,
    pub(super) lanes: Mapped<Lane>,
    pub(super) members: Mapped<Slot>,
    pub(super) sinces: Mapped<Since>,
    heards: Array<MapData, RawHeard>,
}

impl Tables {
    pub(super) fn of(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Ok(Self {
            controls: mapped(ebpf, "controls")?,
            runnings: mapped(ebpf, "runnings")?,
            lanes: mapped(ebpf, "lanes")?,
            members: mapped(ebpf, "members")?,
            sinces: mapped(ebpf, "sinces")?,
            heards: ebpf
                .take_map("heards")
                .expect("relay.bpf.c defines it")
                .try_into()?,
        })
    }

    pub(super) fn heard(&self) -> Result<Heard, KernelError> {
        let raw = self.heards.get(&0, BPF_F_LOCK)?;
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
            from: (datagrams > 0).then(|| raw.from.read()),
            from_others: raw.from_others,
            other: (raw.has_other != 0).then(|| raw.other.read()),
            last_rtp: (rtp > 0).then_some(RtpPacket {
                payload_type: raw.payload_type,
                ssrc: raw.ssrc,
                timestamp: raw.timestamp,
            }),
        })
    }
}

pub(super) fn load(taken: &Taken, members_max: usize) -> Result<Ebpf, KernelError> {
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
        .override_global("SENDER_KEPT_NS", &taken.sender_kept_ns, true)
        .map_max_entries("members", 2 * members)
        .map_max_entries("sinces", 2 * members);
    for (name, value) in ADDRESS_NAMES.iter().zip(&address) {
        loader.override_global(name, value, true);
    }
    for (name, value) in SENDER_NAMES.iter().zip(&sender) {
        loader.override_global(name, value, true);
    }
    Ok(loader.load(PROGRAM)?)
}

/// Attaches the program; which devices took it. All have to if `is_named`, one at least otherwise.
pub(super) fn attach(
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
        // Links of tcx, not filters: the kernel takes them away with the last descriptor, whatever
        // ended us.
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
pub(super) fn devices() -> io::Result<Vec<String>> {
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
pub(super) fn mac_of(socket: &UdpSocket, ifindex: u32) -> Option<[u8; 6]> {
    hardware_of(socket, ifindex).map(|(_, mac)| mac)
}

/// Its ARPHRD_* kind, and its address.
pub(super) fn hardware_of(socket: &UdpSocket, ifindex: u32) -> Option<(u16, [u8; 6])> {
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
    // Characters are signed on some processors and not on others.
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte.to_ne_bytes()[0]);
    Some((address.sa_family, [a, b, c, d, e, f]))
}

fn mapped<T: Copy>(ebpf: &mut Ebpf, name: &str) -> Result<Mapped<T>, KernelError> {
    let Some(Map::Array(map)) = ebpf.map(name) else {
        unreachable!("relay.bpf.c defines it, as an array");
    };
    let info = map.info()?;
    Mapped::of(map.fd(), info.value_size(), info.max_entries()).map_err(KernelError::Mmap)
}

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/relay.o"));

const ADDRESS_NAMES: [&str; 4] = ["ADDRESS_0", "ADDRESS_1", "ADDRESS_2", "ADDRESS_3"];
const SENDER_NAMES: [&str; 4] = ["SENDER_0", "SENDER_1", "SENDER_2", "SENDER_3"];

/// Reads the counters whole, under their lock.
const BPF_F_LOCK: u64 = 4;
