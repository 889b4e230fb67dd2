//! Where a member is, as seen from here: device, source address, next hop, MTU.
//!
//! The kernel's own tables are asked, once for each address, and its news are heard; what it has
//! told is forgotten when it may be wrong. So a [`Hop`] is right as of the last [`Network::poll`],
//! whoever changes routes, addresses, links or neighbours meanwhile. Changes of which there are no
//! news (a path MTU that a router reported) are found by asking again, a few addresses at each
//! poll.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::lane_key::LaneKey;
use super::netlink::{News, Questions, attribute, attributes, half, word};
use onrush_sys::probe::network::segments_udp;

type Table<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The way to an address, for a packet that leaves from the group's socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Hop {
    pub(super) lane: LaneKey,
    pub(super) mac: [u8; 6],
}

/// A device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) mtu_bytes: u32,
    /// Packets that its queue holds; 0 for none.
    pub(super) queue_packets: u32,
    /// Whether it cuts trains itself.
    pub(super) segments: bool,
    is_loopback: bool,
    /// Up, and of a kind whose frames begin as Ethernet's do.
    is_usable: bool,
}

/// The tables, as far as they were asked for.
#[derive(Debug)]
pub(super) struct Network {
    questions: Questions,
    news: News,
    /// To ask devices what they do in hardware.
    control: UdpSocket,
    /// What the tables below say of a member, until one of them says otherwise.
    hops: Table<Target, Option<Hop>>,
    /// The same for IPv4 addresses, shorter, because a group that is replaced asks for each of its
    /// members: by network of 256, numbers of `known_hops` from 1 on; 0 is not known.
    ipv4_hops: Table<u32, Box<[u8; 256]>>,
    /// Those that were given out, each once.
    known_hops: Vec<Hop>,
    routes: Table<Target, Option<Route>>,
    /// Targets in the order in which they are asked for again.
    round: VecDeque<Target>,
    neighbours: Table<NeighbourKey, Option<[u8; 6]>>,
    links: Table<u32, Option<Link>>,
    /// What the socket is bound to, and its mark.
    source: Option<IpAddr>,
    oif: u32,
    mark: u32,
    /// How many more routes may be asked for until the next poll.
    budget: usize,
    is_short: bool,
}

impl LaneKey {
    /// Bytes of the largest packet, from the IP header on, that reaches members by this device as
    /// it is. A larger one has to be fragmented, or refused.
    pub(super) fn packet_bytes_max(self, link: &Link) -> u32 {
        let of_route = self.mtu_bytes.unwrap_or(u32::MAX);
        of_route.min(link.mtu_bytes)
    }
}

impl Link {
    /// Packets that may go to it in one pass.
    pub(super) fn pass_packets(&self, backlog_packets_max: u32) -> u32 {
        let queue = match self.queue_packets {
            0 => backlog_packets_max,
            queue => backlog_packets_max.min(queue),
        };
        (queue / QUEUE_PART).max(1)
    }
}

/// A device and an address behind it.
type NeighbourKey = (u32, IpAddr);

/// An address, with the zone that a link-local one has.
type Target = (IpAddr, u32);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Route {
    lane: LaneKey,
    /// Who takes the packet from the device; `None` for local addresses.
    next: Option<IpAddr>,
}

impl Network {
    /// The network as it is for `socket`, in whose network namespace the calling thread is.
    pub(super) fn open(socket: &UdpSocket) -> io::Result<Self> {
        let news = News::open(NEWS_GROUPS)?;
        let control = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"))?;
        let source = socket.local_addr()?.ip();
        Ok(Self {
            questions: Questions::open()?,
            news,
            control,
            hops: Table::default(),
            ipv4_hops: Table::default(),
            known_hops: Vec::new(),
            routes: Table::default(),
            round: VecDeque::new(),
            neighbours: Table::default(),
            links: Table::default(),
            source: (!source.is_unspecified()).then_some(source),
            oif: option(socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX).unwrap_or(0),
            mark: option(socket, libc::SOL_SOCKET, libc::SO_MARK).unwrap_or(0),
            budget: 0,
            is_short: false,
        })
    }

    /// Hears the news; whether a hop that was given out may be another by now.
    pub(super) fn poll(&mut self) -> bool {
        let changed = self.hear();
        if changed {
            self.forget_hops();
        }
        changed
    }

    fn forget_hops(&mut self) {
        self.hops.clear();
        self.ipv4_hops.clear();
        self.known_hops.clear();
    }

    fn hear(&mut self) -> bool {
        let (mut routes_changed, mut changed) = (false, self.is_short);
        let (neighbours, links) = (&mut self.neighbours, &mut self.links);
        let complete = self.news.drain(|kind, body| match kind {
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                let Some((key, mac)) = neighbour_of(body) else {
                    return;
                };
                let mac = mac.filter(|_| kind == libc::RTM_NEWNEIGH);
                if let Some(known) = neighbours.get_mut(&key)
                    && *known != mac
                {
                    *known = mac;
                    changed = true;
                }
            }
            libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                links.remove(&word(body, 4));
                routes_changed = true;
            }
            _ => routes_changed = true,
        });
        if !complete {
            self.neighbours.clear();
            self.links.clear();
        }
        self.budget = ROUTES_AT_A_POLL_MAX;
        self.is_short = false;
        if routes_changed || !complete {
            self.routes.clear();
            self.round.clear();
            return true;
        }
        for _ in 0..ROUTES_AGAIN_AT_A_POLL.min(self.round.len()) {
            let target = self.round.pop_front().expect("there is one");
            let route = self.ask_route(target);
            self.round.push_back(target);
            changed |= self.routes.insert(target, route) != Some(route);
        }
        changed
    }

    /// Lets the next hops be asked for however many they are.
    pub(super) fn lift_budget(&mut self) {
        self.budget = usize::MAX;
    }

    /// The hop to a member; `None` if it is not known that a frame of ours would reach it.
    pub(super) fn hop(&mut self, member: SocketAddr) -> Option<Hop> {
        let target = target_of(member);
        if let Some(hop) = self.hops.get(&target) {
            return *hop;
        }
        let hop = self.find_hop(target);
        // Who could not be asked for is asked for again.
        if self.routes.contains_key(&target) {
            self.hops.insert(target, hop);
            if let ((IpAddr::V4(ip), 0), Some(hop)) = (target, hop) {
                self.remember_ipv4(ip, hop);
            }
        }
        hop
    }

    /// The device by which whoever was asked for last is reached, though its next hop may not be
    /// known.
    pub(super) fn device_to(&self, member: SocketAddr) -> Option<u32> {
        let route = self.routes.get(&target_of(member))?.as_ref()?;
        route.next.is_some().then_some(route.lane.ifindex)
    }

    fn remember_ipv4(&mut self, ip: Ipv4Addr, hop: Hop) {
        let network = ip.to_bits() >> 8;
        let is_full = self.ipv4_hops.len() == IPV4_NETWORKS_MAX;
        if is_full && !self.ipv4_hops.contains_key(&network) {
            return;
        }
        let known = self.known_hops.iter().position(|known| *known == hop);
        let number = match known {
            Some(number) => number,
            // Who has a next hop of its own is seldom like its neighbours.
            None if self.known_hops.len() == KNOWN_HOPS_MAX => return,
            None => {
                self.known_hops.push(hop);
                self.known_hops.len() - 1
            }
        };
        let numbers = self.ipv4_hops.entry(network);
        let numbers = numbers.or_insert_with(|| Box::new([0; 256]));
        numbers[usize::from(ip.octets()[3])] =
            u8::try_from(number + 1).expect("at most KNOWN_HOPS_MAX");
    }

    /// Whether an address is known to have the same hop as `first`, which has one. To be asked for
    /// as long as it says yes. An address of the same network as the one before costs no look-up.
    pub(super) fn ipv4_like(&self, first: Ipv4Addr) -> impl FnMut(Ipv4Addr) -> bool + '_ {
        let first = first.to_bits();
        let mut network = first >> 8;
        let mut numbers = self.ipv4_hops.get(&network);
        let number = numbers.map_or(0, |numbers| numbers[first as usize & 255]);
        move |next| {
            let next = next.to_bits();
            if next >> 8 != network {
                network = next >> 8;
                numbers = self.ipv4_hops.get(&network);
            }
            let is_known = number != 0 && numbers.is_some_and(|n| n[next as usize & 255] == number);
            is_known || next == first
        }
    }

    fn find_hop(&mut self, target: Target) -> Option<Hop> {
        let route = match self.routes.get(&target) {
            Some(route) => *route,
            None => self.new_route(target),
        }?;
        let Route { mut lane, next } = route;
        let link = self.link(lane.ifindex)?;
        if !link.is_usable {
            return None;
        }
        lane.mtu_bytes = lane.mtu_bytes.filter(|&of_route| of_route < link.mtu_bytes);
        let mac = match next {
            None if link.is_loopback => [0; 6],
            None => return None,
            Some(next) => self.neighbour(lane.ifindex, next)?,
        };
        Some(Hop { lane, mac })
    }

    /// A device, as it is now.
    pub(super) fn link(&mut self, ifindex: u32) -> Option<&Link> {
        if !self.links.contains_key(&ifindex) {
            let link = self.ask_link(ifindex);
            self.links.insert(ifindex, link);
        }
        self.links.get(&ifindex)?.as_ref()
    }

    fn new_route(&mut self, target: Target) -> Option<Route> {
        if self.budget == 0 {
            self.is_short = true;
            return None;
        }
        self.budget -= 1;
        if self.routes.len() == ROUTES_MAX {
            // Of members that have left, for the most part.
            self.forget_hops();
            self.routes.clear();
            self.round.clear();
            self.neighbours.clear();
        }
        let route = self.ask_route(target);
        self.routes.insert(target, route);
        self.round.push_back(target);
        route
    }

    fn neighbour(&mut self, ifindex: u32, ip: IpAddr) -> Option<[u8; 6]> {
        let key = (ifindex, ip);
        if let Some(known) = self.neighbours.get(&key) {
            return *known;
        }
        let mut body = vec![family_of(ip), 0, 0, 0];
        body.extend(ifindex.to_ne_bytes());
        body.extend([0; 4]);
        attribute(&mut body, NDA_DST, &bytes_of(ip));
        let answer = self.questions.ask(libc::RTM_GETNEIGH, &body);
        let mac = answer.ok().and_then(neighbour_of).and_then(|(_, mac)| mac);
        self.neighbours.insert(key, mac);
        mac
    }

    fn ask_route(&mut self, (ip, zone): Target) -> Option<Route> {
        // struct rtmsg: family, destination's and source's prefix, tos, table, protocol, scope,
        // type, flags.
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let source = self
            .source
            .filter(|source| source.is_ipv4() == ip.is_ipv4());
        let source_bits = if source.is_some() { bits } else { 0 };
        let mut body = vec![family_of(ip), bits, source_bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        attribute(&mut body, RTA_DST, &bytes_of(ip));
        if let Some(source) = source {
            attribute(&mut body, RTA_SRC, &bytes_of(source));
        }
        let oif = if zone != 0 { zone } else { self.oif };
        for (kind, value) in [(RTA_OIF, oif), (RTA_MARK, self.mark)] {
            if value != 0 {
                attribute(&mut body, kind, &value.to_ne_bytes());
            }
        }
        let answer = self.questions.ask(libc::RTM_GETROUTE, &body).ok()?;
        read_route(answer, ip, source)
    }

    fn ask_link(&mut self, ifindex: u32) -> Option<Link> {
        // struct ifinfomsg: family, type, index, flags, change.
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        let mut link = read_link(self.questions.ask(libc::RTM_GETLINK, &body).ok()?)?;
        link.segments = segments_udp(&self.control, &link.name);
        Some(link)
    }
}

/// A device, but for what it does in hardware.
fn read_link(answer: &[u8]) -> Option<Link> {
    let (kind, flags) = (half(answer, 2), word(answer, 8));
    let mut link = Link {
        name: String::new(),
        mtu_bytes: 0,
        queue_packets: 0,
        segments: false,
        is_loopback: kind == libc::ARPHRD_LOOPBACK,
        is_usable: flags & UP == UP && matches!(kind, libc::ARPHRD_LOOPBACK | libc::ARPHRD_ETHER),
    };
    for (kind, value) in attributes(answer.get(16..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                let name = value.split(|&b| b == 0).next().unwrap_or(&[]);
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            libc::IFLA_MTU => link.mtu_bytes = word(value, 0),
            libc::IFLA_TXQLEN => link.queue_packets = word(value, 0),
            _ => {}
        }
    }
    Some(link)
}

fn read_route(answer: &[u8], ip: IpAddr, bound: Option<IpAddr>) -> Option<Route> {
    let is_local = match *answer.get(7)? {
        libc::RTN_UNICAST => false,
        libc::RTN_LOCAL => true,
        _ => return None,
    };
    let (mut oif, mut source, mut next, mut mtu_bytes) = (0, bound, Some(ip), None);
    for (kind, value) in attributes(answer.get(12..)?) {
        match kind {
            RTA_OIF => oif = word(value, 0),
            RTA_PREFSRC => source = source.or_else(|| ip_of(value)),
            RTA_GATEWAY => next = ip_of(value),
            // A next hop of the other family: family, then the address.
            RTA_VIA => next = value.get(2..).and_then(ip_of),
            RTA_METRICS => {
                let mtu = attributes(value).find(|&(kind, _)| kind == RTAX_MTU);
                mtu_bytes = mtu.map(|(_, value)| word(value, 0));
            }
            // A tunnel without a device.
            RTA_ENCAP => return None,
            _ => {}
        }
    }
    Some(Route {
        lane: LaneKey {
            ifindex: oif,
            source: source?,
            mtu_bytes,
        },
        next: if is_local { None } else { Some(next?) },
    })
}

/// Whose neighbour entry it is, and the address behind it if it may be used as it is.
fn neighbour_of(body: &[u8]) -> Option<(NeighbourKey, Option<[u8; 6]>)> {
    // struct ndmsg: family, 3 of padding, ifindex, state, flags, type.
    let (ifindex, state) = (word(body, 4), half(body, 8));
    let (mut ip, mut mac) = (None, None);
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            NDA_DST => ip = ip_of(value),
            NDA_LLADDR => mac = value.try_into().ok(),
            _ => {}
        }
    }
    Some(((ifindex, ip?), mac.filter(|_| state & NUD_VALID != 0)))
}

fn target_of(member: SocketAddr) -> Target {
    match member {
        SocketAddr::V4(v4) => (IpAddr::V4(*v4.ip()), 0),
        SocketAddr::V6(v6) => (v6.ip().to_canonical(), v6.scope_id()),
    }
}

pub(super) fn netns_cookie(socket: &UdpSocket) -> Option<u64> {
    option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE)
}

/// A socket option of a plain type.
pub(super) fn option<T: Default>(socket: &UdpSocket, level: i32, name: i32) -> Option<T> {
    let mut value = T::default();
    let mut length = libc::socklen_t::try_from(size_of::<T>()).ok()?;
    let (fd, to) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: the value is writable for the length given, and an integer, as all callers' are.
    let done = unsafe { libc::getsockopt(fd, level, name, to, &raw mut length) };
    (done == 0).then_some(value)
}

fn family_of(ip: IpAddr) -> u8 {
    let family = if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    u8::try_from(family).expect("2 or 10")
}

fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// A pass fills this part of a queue at most: what the pass before left there, when a tick has
/// ended its softirq early, and what others put there, has to fit too.
pub(super) const QUEUE_PART: u32 = 4;

/// Addresses that are remembered, at most.
const ROUTES_MAX: usize = 2 * super::MEMBERS_MAX;
/// Next hops that are told apart by number, at most.
const KNOWN_HOPS_MAX: usize = 64;
/// Networks of 256 addresses of which they are, at most: a mebibyte.
const IPV4_NETWORKS_MAX: usize = 4096;
/// Routes asked for at a poll, at most, about a microsecond or two each. Who waits is sent to
/// directly.
const ROUTES_AT_A_POLL_MAX: usize = 256;
/// Routes asked for again at a poll.
const ROUTES_AGAIN_AT_A_POLL: usize = 4;

const RTMGRP_LINK: u32 = 1;
const RTMGRP_NEIGH: u32 = 4;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV4_RULE: u32 = 0x80;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;
const RTMGRP_IPV6_RULE: u32 = 0x40000;
const NEWS_GROUPS: u32 = RTMGRP_LINK
    | RTMGRP_NEIGH
    | RTMGRP_IPV4_IFADDR
    | RTMGRP_IPV4_ROUTE
    | RTMGRP_IPV4_RULE
    | RTMGRP_IPV6_IFADDR
    | RTMGRP_IPV6_ROUTE
    | RTMGRP_IPV6_RULE;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MARK: u16 = 16;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// PERMANENT, NOARP, REACHABLE, PROBE, STALE, DELAY (include/net/neighbour.h).
const NUD_VALID: u16 = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08;
/// IFF_UP and IFF_LOWER_UP.
const UP: u32 = 1 | 0x10000;
const SO_BINDTOIFINDEX: i32 = 62;
const SO_NETNS_COOKIE: i32 = 71;

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages about a VLAN of a device, laid out as rtnetlink(7) and `if_link.h` say.
    fn vlan_link(flags: u32) -> Vec<u8> {
        let mut body = vec![0; 16];
        body[2..4].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
        body[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        attribute(&mut body, libc::IFLA_IFNAME, b"eth0.100\0");
        attribute(&mut body, libc::IFLA_TXQLEN, &1000_u32.to_ne_bytes());
        attribute(&mut body, libc::IFLA_MTU, &1496_u32.to_ne_bytes());
        // What lies below is none of our business: the tag is put on behind the program.
        attribute(&mut body, libc::IFLA_LINK, &2_u32.to_ne_bytes());
        let mut info = Vec::new();
        attribute(&mut info, libc::IFLA_INFO_KIND, b"vlan\0");
        attribute(&mut body, libc::IFLA_LINKINFO | 0x8000, &info);
        body
    }

    #[test]
    fn a_vlan_is_a_device_of_its_own() {
        let link = read_link(&vlan_link(UP | 2)).unwrap();
        let expected = Link {
            name: "eth0.100".to_owned(),
            mtu_bytes: 1496,
            queue_packets: 1000,
            segments: false,
            is_loopback: false,
            is_usable: true,
        };
        assert_eq!(link, expected);
        assert!(!read_link(&vlan_link(1)).unwrap().is_usable, "no carrier");
        assert_eq!(link.pass_packets(4000), 250);
        assert_eq!(link.pass_packets(400), 100);
    }

    #[test]
    fn a_member_behind_a_vlan_is_in_its_lane() {
        let [member, gateway, source] =
            ["198.51.100.9", "192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut body = vec![2, 32, 0, 0, 254, 0, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
        attribute(&mut body, RTA_DST, &bytes_of(member));
        attribute(&mut body, RTA_OIF, &7_u32.to_ne_bytes());
        attribute(&mut body, RTA_PREFSRC, &bytes_of(source));
        attribute(&mut body, RTA_GATEWAY, &bytes_of(gateway));
        let route = read_route(&body, member, None).unwrap();
        let lane = LaneKey {
            ifindex: 7,
            source,
            mtu_bytes: None,
        };
        assert_eq!((route.lane, route.next), (lane, Some(gateway)));
        let mut metrics = Vec::new();
        attribute(&mut metrics, RTAX_MTU, &1400_u32.to_ne_bytes());
        attribute(&mut body, RTA_METRICS, &metrics);
        let route = read_route(&body, member, None).unwrap();
        assert_eq!(route.lane.mtu_bytes, Some(1400));
        // The neighbour is the VLAN's, not that of the device below.
        let mut body = vec![2, 0, 0, 0];
        body.extend(7_u32.to_ne_bytes());
        body.extend([0x02, 0, 0, 0]);
        attribute(&mut body, NDA_DST, &bytes_of(gateway));
        attribute(&mut body, NDA_LLADDR, &[2, 0, 0, 0, 0, 1]);
        let known = neighbour_of(&body).unwrap();
        assert_eq!(known, ((7, gateway), Some([2, 0, 0, 0, 0, 1])));
        // NUD_FAILED.
        body[8] = 0x20;
        assert_eq!(neighbour_of(&body).unwrap(), ((7, gateway), None));
    }
}
