//! A group of receivers of one IP version, and the socket that it is sent from.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::AddAssign;

use onrush_group::{Group, GroupError, Options, Sent, Way};
use onrush_wire::live::Train;
use socket2::{Domain, Protocol, Socket, Type};

use super::channel::MemberCounts;
use super::members::MEMBERS_MAX;

/// Receivers that are sent to together.
#[derive(Debug)]
pub(super) struct Outlet {
    group: Group,
    bytes: u64,
}

/// What left through an outlet, or to a single viewer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) refused: u64,
    pub(super) crossings: u64,
}

impl Counts {
    /// A packet of that length left.
    pub(super) fn count(&mut self, packet_bytes: usize) {
        self.packets += 1;
        self.bytes += packet_bytes as u64;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.refused += other.refused;
        self.crossings += other.crossings;
    }
}

impl Outlet {
    /// One without receivers, which sends by `way`, or by the best there is.
    pub(super) fn open(socket: UdpSocket, way: Option<Way>) -> Result<Self, GroupError> {
        let options = Options {
            way,
            members_max: MEMBERS_MAX,
            ..Options::default()
        };
        let group = Group::open(socket, &options)?;
        Ok(Self { group, bytes: 0 })
    }

    pub(super) fn set(&mut self, members: &[SocketAddr]) -> Result<(), GroupError> {
        self.group.set_members(members)
    }

    pub(super) fn add(&mut self, member: SocketAddr) -> Result<(), GroupError> {
        self.group.add(member).map(drop)
    }

    pub(super) fn remove(&mut self, member: SocketAddr) {
        self.group.remove(member);
    }

    pub(super) fn len(&self) -> usize {
        self.group.len()
    }

    /// How it sends, and why so.
    pub(super) fn way(&self) -> (Way, &str) {
        (self.group.way(), self.group.reason())
    }

    /// Gives a train to every receiver. What goes wrong with one is counted.
    pub(super) fn send(&mut self, train: &Train<'_>) {
        let Sent { packets, .. } = self
            .group
            .send_train(train.bytes, train.stride)
            .expect("trains are formed within the group's bounds");
        // Whole trains, nearly always; where some packets were refused, so much of it on average.
        self.bytes += packets * train.bytes.len() as u64 / train.packets().max(1) as u64;
    }

    pub(super) fn counts(&self) -> Counts {
        let counters = self.group.counters();
        Counts {
            packets: counters.packets,
            bytes: self.bytes,
            refused: counters.refused,
            crossings: counters.crossings,
        }
    }

    pub(super) fn count_members(&self) -> impl Iterator<Item = MemberCounts> {
        self.group.members().filter_map(|address| {
            let counters = self.group.member_counters(address)?;
            Some(MemberCounts {
                address,
                packets: counters.packets,
                refused: counters.refused,
            })
        })
    }
}

/// A socket that sends from any address of this machine of that IP version.
pub(super) fn wildcard(is_ipv4: bool) -> io::Result<UdpSocket> {
    bind(unspecified(is_ipv4))
}

/// Any address of this machine of that IP version.
pub(super) fn unspecified(is_ipv4: bool) -> SocketAddr {
    if is_ipv4 {
        SocketAddr::from(([0_u8; 4], 0))
    } else {
        SocketAddr::from(([0_u16; 8], 0))
    }
}

/// A socket to send from alone: what comes to it is dropped at the door.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_recv_buffer_size(1)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
