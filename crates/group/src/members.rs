//! Who the members are, and what each was sent.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use super::{GroupError, MemberCounters};

/// The members in the order of their slots, and where each of them is.
#[derive(Debug)]
pub(super) struct Members {
    local: SocketAddr,
    members_max: usize,
    addresses: Vec<SocketAddr>,
    /// Made when something is counted; shorter than the members as long as that is nothing for the
    /// rest.
    counters: Vec<MemberCounters>,
    /// Made when somebody is looked for: a group that is replaced before every send needs none.
    slots: OnceCell<Index>,
}

type Index = HashMap<SocketAddr, usize, foldhash::fast::RandomState>;

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
            addresses: Vec::new(),
            counters: Vec::new(),
            slots: OnceCell::new(),
        }
    }

    pub(super) fn replace(&mut self, addresses: &[SocketAddr]) -> Result<(), GroupError> {
        let (local, members_max) = (self.local, self.members_max);
        let mut is_ascending = true;
        let mut before = None;
        for &address in addresses {
            reach(local, address)?;
            is_ascending &= before.is_none_or(|before| is_less(before, address));
            before = Some(address);
        }
        // What ascends is distinct; the rest is worth an index.
        let mut slots = OnceCell::new();
        if is_ascending && addresses.len() <= members_max {
            self.addresses.clear();
            self.addresses.extend_from_slice(addresses);
        } else {
            let mut index = Index::default();
            let mut distinct = Vec::with_capacity(addresses.len());
            for &address in addresses {
                if let Entry::Vacant(vacant) = index.entry(address) {
                    vacant.insert(distinct.len());
                    distinct.push(address);
                }
            }
            if distinct.len() > members_max {
                return Err(GroupError::MembersMax { members_max });
            }
            self.addresses = distinct;
            slots = OnceCell::from(index);
        }
        self.slots = slots;
        self.counters.clear();
        Ok(())
    }

    pub(super) fn add(&mut self, address: SocketAddr) -> Result<bool, GroupError> {
        reach(self.local, address)?;
        if self.slot_of(address).is_some() {
            return Ok(false);
        }
        let (slot, members_max) = (self.len(), self.members_max);
        if slot == members_max {
            return Err(GroupError::MembersMax { members_max });
        }
        self.index_mut().insert(address, slot);
        self.addresses.push(address);
        Ok(true)
    }

    /// Removes the member in that slot, which the last one takes.
    pub(super) fn remove(&mut self, slot: usize) {
        let address = self.addresses.swap_remove(slot);
        if !self.counters.is_empty() {
            self.counters
                .resize(self.addresses.len() + 1, MemberCounters::default());
            self.counters.swap_remove(slot);
        }
        let moved = self.addresses.get(slot).copied();
        let index = self.index_mut();
        index.remove(&address);
        if let Some(moved) = moved {
            index.insert(moved, slot);
        }
    }

    /// Counts for a member what was counted elsewhere.
    pub(super) fn keep(&mut self, slot: usize, counters: MemberCounters) {
        self.counters_mut(slot).add(counters);
    }

    pub(super) fn taken(&mut self, slot: usize, packets: u64) {
        self.counters_mut(slot).packets += packets;
    }

    pub(super) fn refused(&mut self, slot: usize, packets: u64, errno: i32) {
        let counters = self.counters_mut(slot);
        counters.refused += packets;
        counters.errno_last = errno;
    }

    pub(super) fn name(&self, slot: usize) -> Name {
        Name::new(self.addresses[slot], self.local.is_ipv6())
    }

    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(super) fn addresses(&self) -> impl ExactSizeIterator<Item = SocketAddr> + '_ {
        self.addresses.iter().copied()
    }

    /// The same, by slot.
    pub(super) fn all(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(super) fn address(&self, slot: usize) -> SocketAddr {
        self.addresses[slot]
    }

    pub(super) fn slot_of(&self, address: SocketAddr) -> Option<usize> {
        self.index().get(&address).copied()
    }

    pub(super) fn counters(&self, slot: usize) -> MemberCounters {
        self.counters.get(slot).copied().unwrap_or_default()
    }

    fn counters_mut(&mut self, slot: usize) -> &mut MemberCounters {
        if self.counters.len() <= slot {
            self.counters
                .resize(self.addresses.len(), MemberCounters::default());
        }
        &mut self.counters[slot]
    }

    fn index(&self) -> &Index {
        let make = || {
            (0..)
                .zip(&self.addresses)
                .map(|(slot, &a)| (a, slot))
                .collect()
        };
        self.slots.get_or_init(make)
    }

    fn index_mut(&mut self) -> &mut Index {
        self.index();
        self.slots.get_mut().expect("it has just been made")
    }
}

/// Whether the socket can send there. One that is bound to all of IPv6 reaches IPv4 too, unless it
/// was told not to, which the first send will show.
#[inline]
fn reach(local: SocketAddr, address: SocketAddr) -> Result<(), GroupError> {
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

/// As `<`, but for the case that matters quicker.
#[inline]
fn is_less(a: SocketAddr, b: SocketAddr) -> bool {
    let key = |v4: SocketAddrV4| u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port());
    match (a, b) {
        (SocketAddr::V4(a), SocketAddr::V4(b)) => key(a) < key(b),
        _ => a < b,
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
        // SAFETY: a `sockaddr_in` is smaller than the storage and needs no more alignment than it
        // has (the assertions below); nobody else sees the storage yet.
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
