//! Who the members are, and what each was sent.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{GroupError, MemberCounters, Sent};

/// The members in the order of their slots, and where each of them is.
#[derive(Debug)]
pub(super) struct Members {
    local: SocketAddr,
    members_max: usize,
    names: Vec<Name>,
    addresses: Vec<SocketAddr>,
    counters: Vec<MemberCounters>,
    slots: HashMap<SocketAddr, usize, foldhash::fast::RandomState>,
    /// Of members that have left.
    left: Sent,
}

/// An address as the kernel takes it from this socket.
#[derive(Clone, Copy)]
pub(super) struct Name {
    // Large enough, and aligned, for both; an IPv4 address lies in its beginning.
    storage: libc::sockaddr_in6,
    length: libc::socklen_t,
}

impl Members {
    pub(super) fn new(local: SocketAddr, members_max: usize) -> Self {
        Self {
            local,
            members_max,
            names: Vec::new(),
            addresses: Vec::new(),
            counters: Vec::new(),
            slots: HashMap::default(),
            left: Sent::default(),
        }
    }

    pub(super) fn replace(&mut self, addresses: &[SocketAddr]) -> Result<(), GroupError> {
        for &address in addresses {
            self.reach(address)?;
        }
        if addresses.len() > self.members_max {
            self.check_room_for_distinct(addresses)?;
        }
        self.left = self.sent();
        self.names.clear();
        self.addresses.clear();
        self.counters.clear();
        self.slots.clear();
        for &address in addresses {
            self.push(address);
        }
        Ok(())
    }

    pub(super) fn add(&mut self, address: SocketAddr) -> Result<bool, GroupError> {
        self.reach(address)?;
        if self.slots.contains_key(&address) {
            return Ok(false);
        }
        if self.len() == self.members_max {
            let members_max = self.members_max;
            return Err(GroupError::MembersMax { members_max });
        }
        self.push(address);
        Ok(true)
    }

    /// Removes a member; the last one takes its slot, which is returned.
    pub(super) fn remove(&mut self, address: SocketAddr) -> Option<usize> {
        let slot = self.slots.remove(&address)?;
        let counters = self.counters.swap_remove(slot);
        self.left.add(counters.sent());
        self.names.swap_remove(slot);
        self.addresses.swap_remove(slot);
        if let Some(moved) = self.addresses.get(slot) {
            self.slots.insert(*moved, slot);
        }
        Some(slot)
    }

    pub(super) fn taken(&mut self, slot: usize, packets: u64) {
        self.counters[slot].packets += packets;
    }

    pub(super) fn refused(&mut self, slot: usize, packets: u64, errno: i32) {
        self.counters[slot].refused += packets;
        self.counters[slot].errno_last = errno;
    }

    pub(super) fn names(&self) -> &[Name] {
        &self.names
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn addresses(&self) -> impl ExactSizeIterator<Item = SocketAddr> + '_ {
        self.addresses.iter().copied()
    }

    pub(super) fn counters(&self, address: SocketAddr) -> Option<MemberCounters> {
        self.slots.get(&address).map(|&slot| self.counters[slot])
    }

    /// What was sent to all, those who left included.
    pub(super) fn sent(&self) -> Sent {
        let mut sum = self.left;
        for counters in &self.counters {
            sum.add(counters.sent());
        }
        sum
    }

    fn push(&mut self, address: SocketAddr) {
        // Named before: it keeps its place.
        if let Entry::Vacant(vacant) = self.slots.entry(address) {
            vacant.insert(self.names.len());
            self.names.push(Name::new(address, self.local.is_ipv6()));
            self.addresses.push(address);
            self.counters.push(MemberCounters::default());
        }
    }

    /// Whether the socket can send there. One that is bound to all of IPv6 reaches IPv4 too, unless it was
    /// told not to, which the first send will show.
    fn reach(&self, address: SocketAddr) -> Result<(), GroupError> {
        let local = self.local;
        let reaches = match local.ip() {
            IpAddr::V4(_) => address.is_ipv4(),
            IpAddr::V6(ip) if ip.is_unspecified() => true,
            IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some() == address.is_ipv4(),
        };
        if reaches {
            Ok(())
        } else {
            Err(GroupError::Family { address, local })
        }
    }

    fn check_room_for_distinct(&self, addresses: &[SocketAddr]) -> Result<(), GroupError> {
        let distinct: HashSet<_> = addresses.iter().collect();
        let members_max = self.members_max;
        if distinct.len() > members_max {
            return Err(GroupError::MembersMax { members_max });
        }
        Ok(())
    }
}

impl MemberCounters {
    fn sent(&self) -> Sent {
        Sent {
            packets: self.packets,
            refused: self.refused,
        }
    }
}

impl Name {
    fn new(address: SocketAddr, socket_is_ipv6: bool) -> Self {
        match address {
            SocketAddr::V4(v4) if !socket_is_ipv6 => Self::of_ipv4(*v4.ip(), v4.port()),
            SocketAddr::V4(v4) => Self::of_ipv6(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
            SocketAddr::V6(v6) => Self::of_ipv6(*v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()),
        }
    }

    fn of_ipv4(ip: Ipv4Addr, port: u16) -> Self {
        let name = libc::sockaddr_in {
            sin_family: AF_INET,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr {
                s_addr: u32::from_ne_bytes(ip.octets()),
            },
            sin_zero: [0; 8],
        };
        // SAFETY: both are plain integers, for which all zeroes is a value.
        let mut storage: libc::sockaddr_in6 = unsafe { mem::zeroed() };
        // SAFETY: a `sockaddr_in` is smaller than the storage and needs no more alignment than it has (the
        // assertions below); nobody else sees the storage yet.
        unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
        Self {
            storage,
            length: length_of::<libc::sockaddr_in>(),
        }
    }

    fn of_ipv6(ip: Ipv6Addr, port: u16, flowinfo: u32, scope_id: u32) -> Self {
        let storage = libc::sockaddr_in6 {
            sin6_family: AF_INET6,
            sin6_port: port.to_be(),
            sin6_flowinfo: flowinfo,
            sin6_addr: libc::in6_addr {
                s6_addr: ip.octets(),
            },
            sin6_scope_id: scope_id,
        };
        Self {
            storage,
            length: length_of::<libc::sockaddr_in6>(),
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(super) fn length(&self) -> libc::socklen_t {
        self.length
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name({} bytes)", self.length)
    }
}

const _: () = assert!(size_of::<libc::sockaddr_in>() <= size_of::<libc::sockaddr_in6>());
const _: () = assert!(align_of::<libc::sockaddr_in>() <= align_of::<libc::sockaddr_in6>());

#[allow(clippy::cast_possible_truncation, reason = "2 and 10")]
const AF_INET: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;
#[allow(clippy::cast_possible_truncation, reason = "2 and 10")]
const AF_INET6: libc::sa_family_t = libc::AF_INET6 as libc::sa_family_t;

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("an address is a few bytes")
}
