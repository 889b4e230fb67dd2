//! A lane: members that one packet can be cloned for, by the program at their device.
//!
//! The sender arms a pass, which names members, and sends one packet to one of them; the program
//! sees that packet in the same system call and makes it one for each. Who is in which lane, and
//! what goes past lanes, is the [sender's](super::kernel) to say.

use std::net::{SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::RawFd;

use super::device::Table;
use super::direct::{Direct, Slots, send_to};
use super::lane_key::LaneKey;
use super::members::Members;
use super::network::Hop;
use super::table::{Mapped, Pass, Slot, narrow};
use super::{MemberCounters, Sent, Train};

/// Members that one packet can be cloned for.
pub(super) struct Lane {
    pub(super) key: LaneKey,
    /// Its members, as the program sees them.
    pub(super) slots: Table<Slot>,
    /// By position: the member's slot, and the lane's packets when it joined.
    pub(super) members: Vec<u32>,
    pub(super) joined: Vec<u64>,
    /// Sent to each member since the lane was made.
    pub(super) packets: u64,
    /// Whose turn it is to be sent the packet of a pass, so that every next hop is used at times.
    turn: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MemberPosition {
    Outside { position: u32 },
    Lane { lane: u32, position: u32 },
}

/// What became of a pass.
pub(super) enum ReplicationResult {
    /// Every member's packet was handed on, less those that were refused.
    Whole { refused: u64 },
    /// The program has not seen the packet; only the member at this position gets it.
    OnlyTo(usize),
    /// The packet was not sent at all.
    Refused,
}

impl Lane {
    pub(super) fn new(key: LaneKey, slots: Table<Slot>) -> Self {
        Self {
            key,
            slots,
            members: Vec::new(),
            joined: Vec::new(),
            packets: 0,
            turn: 0,
        }
    }

    /// Appends a member; its place in this lane, whose number is `lane`.
    pub(super) fn push(
        &mut self,
        address: SocketAddr,
        hop: Hop,
        slot: usize,
        lane: usize,
    ) -> MemberPosition {
        self.joined.push(self.packets);
        self.append(address, hop, slot, lane)
    }

    pub(super) fn append(
        &mut self,
        address: SocketAddr,
        hop: Hop,
        slot: usize,
        lane: usize,
    ) -> MemberPosition {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let position = self.members.len();
        self.slots
            .write(position, Slot::new(ip, port, hop.mac, hop.lane.ifindex));
        self.members.push(narrow(slot));
        MemberPosition::Lane {
            lane: narrow(lane),
            position: narrow(position),
        }
    }

    /// Appends members that differ from the last one in address and port alone, and their
    /// positions.
    pub(super) fn append_like_last(
        &mut self,
        addresses: impl Iterator<Item = SocketAddrV4>,
        positions: &mut Vec<MemberPosition>,
        lane: u32,
    ) {
        let like = self.slots.read(self.members.len() - 1);
        for address in addresses {
            let (slot, position) = (positions.len(), self.members.len());
            self.slots.write(position, like.at_ipv4(address));
            self.members.push(narrow(slot));
            positions.push(MemberPosition::Lane {
                lane,
                position: narrow(position),
            });
        }
    }

    pub(super) fn swap_remove(&mut self, position: usize) {
        let last = self.slots.read(self.members.len() - 1);
        self.slots.write(position, last);
        self.members.swap_remove(position);
        self.joined.swap_remove(position);
    }

    pub(super) fn counters(&self, position: usize) -> MemberCounters {
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

    pub(super) fn header_bytes(&self) -> usize {
        if self.key.source.is_ipv4() {
            20 + 8
        } else {
            40 + 8
        }
    }

    /// Sends one packet for these positions, in the group's pass.
    pub(super) fn replicate(
        &mut self,
        fd: RawFd,
        members: &Members,
        positions: Range<usize>,
        train: Train<'_>,
        passes: &mut Mapped<Pass>,
    ) -> ReplicationResult {
        let (first, count) = (positions.start, positions.len());
        self.turn = self.turn.wrapping_add(1);
        let position = first + self.turn % count;
        let seed = self.slots.read(position);
        let before = passes.read(0);
        let pass = Pass {
            armed: 1,
            first: narrow(first),
            count: narrow(count),
            is_ipv6: u32::from(self.key.source.is_ipv6()),
            address: seed.address,
            port: seed.port,
            lane: self.slots.lane_number(),
            ifindex: self.key.ifindex,
            ..before
        };
        passes.write(0, pass);
        let name = members.name(self.members[position] as usize);
        let errno = send_to(fd, train.bytes, &name);
        let mut after = passes.read(0);
        if after.armed == 0 {
            return ReplicationResult::Whole {
                refused: after.refused - before.refused,
            };
        }
        after.armed = 0;
        passes.write(0, after);
        if errno == 0 {
            ReplicationResult::OnlyTo(position)
        } else {
            ReplicationResult::Refused
        }
    }

    pub(super) fn send_directly(
        &mut self,
        direct: &mut Direct,
        fd: RawFd,
        members: &mut Members,
        positions: Range<usize>,
        train: Train<'_>,
    ) -> Sent {
        for joined in &mut self.joined[positions.clone()] {
            *joined += train.packets() as u64;
        }
        direct.send(fd, members, Slots::Of(&self.members[positions]), train)
    }
}
