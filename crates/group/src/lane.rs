//! A lane: members that one packet can be cloned for, and the program at their device that does.
//!
//! The sender arms a pass, which names members, and sends one packet to one of them; the program
//! sees that packet in the same system call and makes it one for each. Who is in which lane, and
//! what goes past lanes, is the [sender's](super::kernel) to say.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use aya::maps::{Map, MapData, ProgramArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use super::direct::{Direct, Slots, send_to};
use super::error::KernelError;
use super::members::Members;
use super::network::{Hop, LaneKey};
use super::table::{Mapped, Pass, Slot, narrow};
use super::{MemberCounters, Sent, Train};

/// Members that one packet can be cloned for.
pub(super) struct Lane {
    pub(super) key: LaneKey,
    pub(super) passes: Mapped<Pass>,
    pub(super) slots: Mapped<Slot>,
    /// By position: the member's slot, and the lane's packets when it joined.
    pub(super) members: Vec<u32>,
    pub(super) joined: Vec<u64>,
    /// Sent to each member since the lane was made.
    pub(super) packets: u64,
    /// Whose turn it is to be sent the packet of a pass, so that every next hop is used at times.
    turn: usize,
    #[expect(
        dead_code,
        reason = "holds the programs and their attachment, which go with it"
    )]
    programs: Programs,
}

/// What keeps a lane's programs in the kernel.
pub(super) struct Programs {
    #[expect(
        dead_code,
        reason = "the kernel empties the array when nobody holds it"
    )]
    next: ProgramArray<MapData>,
    #[expect(dead_code, reason = "holds the attachment")]
    ebpf: Ebpf,
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
    pub(super) fn make(key: LaneKey, members_max: u32, device: &str) -> Result<Self, KernelError> {
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

    /// Appends members that differ from the last one in their ports alone, and their positions.
    pub(super) fn append_like_last(
        &mut self,
        ports: impl Iterator<Item = u16>,
        positions: &mut Vec<MemberPosition>,
        lane: u32,
    ) {
        let like = self.slots.read(self.members.len() - 1);
        for port in ports {
            let (slot, position) = (positions.len(), self.members.len());
            self.slots.write(position, like.at_port(port));
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

    /// Sends one packet for `count` members from `first` on.
    pub(super) fn replicate(
        &mut self,
        fd: RawFd,
        members: &Members,
        first: usize,
        count: usize,
        train: Train<'_>,
        cookie: u64,
    ) -> ReplicationResult {
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
            return ReplicationResult::Whole {
                refused: after.refused - before.refused,
            };
        }
        after.armed = 0;
        self.passes.write(0, after);
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
        positions: std::ops::Range<usize>,
        train: Train<'_>,
    ) -> Sent {
        for joined in &mut self.joined[positions.clone()] {
            *joined += train.packets() as u64;
        }
        direct.send(fd, members, Slots::Of(&self.members[positions]), train)
    }
}

/// Loads the program for so many members, and attaches it to a device of this thread's network
/// namespace.
pub(super) fn load(
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
    // Links of tcx, not filters: the kernel takes them away with the last descriptor, whatever
    // ended us.
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

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/group.o"));
