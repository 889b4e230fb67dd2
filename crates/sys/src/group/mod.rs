//! Group unicast: one send, the same bytes to every member of a group.
//!
//! The paper (Karsten, Song, Kwok, Brecht: *Efficient Operating System Support for Group Unicast*) gave the
//! kernel a socket option, `SO_SETSENDGRP`, and let `send` replicate. A stock kernel has neither, but it has
//! what both are made of. A [`Group`] owns a UDP socket and a list of members; what is sent goes to each of
//! them once, by one of four ways that keep one contract:
//!
//! | way | who replicates | crossings a send |
//! |---|---|---|
//! | [`Way::Kernel`] | an eBPF program at the device, which clones the packet | one for many members |
//! | [`Way::Uring`] | the ring, from registered memory | one for a batch of members |
//! | [`Way::Sendmmsg`] | the kernel's loop over messages | one for a batch of members |
//! | [`Way::Loop`] | ours over `sendto`: the paper's user-groupcast | one a member and packet |
//!
//! A group is changed and sent to through `&mut`, so a send sees the old group or the new one and never a
//! mixture. A member that can not be sent to is counted, with its error, and keeps nobody waiting: every send
//! is `MSG_DONTWAIT`. Not here: who the members are, pace, retransmission, and any answer from a member.

mod direct;
mod members;

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;

use thiserror::Error;

use crate::memory::{Area, MemoryError};
use crate::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use direct::Direct;
use members::Members;

/// Members that a group may be opened for.
pub const MEMBERS_MAX: usize = 131_072;

/// A UDP socket whose sends go to every member.
pub struct Group {
    socket: UdpSocket,
    way: Way,
    reason: String,
    members: Members,
    direct: Direct,
    area: Option<Area>,
    sends: u64,
}

/// A way to replicate, best first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Way {
    /// A program at the sending device clones one packet for all members behind that device.
    Kernel,
    /// A batch of zero-copy sends from registered memory.
    Uring,
    /// `sendmmsg`, with UDP_SEGMENT for trains.
    Sendmmsg,
    /// `sendto` for each member and packet.
    Loop,
}

/// What can be chosen about a group.
#[derive(Clone, Debug)]
pub struct Options {
    /// This way, or none: a way asked for by name runs as itself or not at all. `None` takes the best.
    pub way: Option<Way>,
    /// Members at once, at most; up to [`MEMBERS_MAX`].
    pub members_max: usize,
    /// Bytes of the area that [`Group::send_registered`] sends from; 0 for none.
    pub area_bytes: usize,
}

/// What became of a send, in packets: a train counts each of its own, for each member.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sent {
    /// Taken by the kernel.
    pub packets: u64,
    /// Refused; [`Group::member_counters`] tells for whom and why.
    pub refused: u64,
}

/// What a group has done so far, members that have left included.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Calls of [`Group::send`] and its like.
    pub sends: u64,
    /// Packets taken by the kernel.
    pub packets: u64,
    /// Packets refused by it.
    pub refused: u64,
    /// Entries into the kernel that sent.
    pub crossings: u64,
    /// Trains that were refused whole and sent as single packets instead.
    pub trains_cut: u64,
}

/// What was sent to a member since it joined.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemberCounters {
    /// Packets taken by the kernel.
    pub packets: u64,
    /// Packets refused by it.
    pub refused: u64,
    /// The errno of the last that was refused; 0 if none was.
    pub errno_last: i32,
}

/// Why there is no such group, or why it can not send that.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The socket can not be used.
    #[error("can not set up the group's socket: {0}")]
    Socket(#[source] io::Error),
    /// The kernel does not cut trains.
    #[error("this kernel has no UDP_SEGMENT (Linux 4.18): {0}; ask for the way loop")]
    UdpSegment(#[source] io::Error),
    /// The way that was asked for is not built into this version.
    #[error("the way {0} is not available")]
    Way(Way),
    /// There is no memory for the area.
    #[error("the group's area: {0}")]
    Area(#[from] MemoryError),
    /// More members than the group was opened for.
    #[error("the group has room for {members_max} members; open it with a larger members_max")]
    MembersMax {
        /// How many it may have.
        members_max: usize,
    },
    /// More members asked for than any group may have.
    #[error("a group has at most {MEMBERS_MAX} members; {members_max} were asked for")]
    OptionMembersMax {
        /// How many were asked for.
        members_max: usize,
    },
    /// The socket can not reach addresses of that kind.
    #[error(
        "{address} can not be reached from a socket bound to {local}; bind it to the other family"
    )]
    Family {
        /// The member.
        address: SocketAddr,
        /// The socket.
        local: SocketAddr,
    },
    /// No datagram or train is that long.
    #[error(
        "{bytes} bytes in packets of {stride} are no train: at most {TRAIN_BYTES_MAX} bytes in at most \
         {TRAIN_PACKETS_MAX} packets"
    )]
    Train {
        /// Bytes in all.
        bytes: usize,
        /// Bytes of a packet.
        stride: usize,
    },
    /// The area does not reach that far.
    #[error(
        "bytes {start} to {end} lie outside the area of {area_bytes}; open the group with a larger one"
    )]
    Outside {
        /// The first byte asked for.
        start: usize,
        /// Behind the last.
        end: usize,
        /// The area's size.
        area_bytes: usize,
    },
}

/// What is to be sent: one datagram or several of equal size, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
struct Train<'a> {
    bytes: &'a [u8],
    stride: usize,
}

impl Group {
    /// A group without members on `socket`, which it owns from now on: nobody else should send on it.
    ///
    /// # Errors
    ///
    /// If the way that `options` asks for is not available here, or the socket can not be used. Without a
    /// way asked for, [`Way::Loop`] always is.
    pub fn open(socket: UdpSocket, options: &Options) -> Result<Self, GroupError> {
        let members_max = options.members_max;
        if members_max > MEMBERS_MAX {
            return Err(GroupError::OptionMembersMax { members_max });
        }
        let local = socket.local_addr().map_err(GroupError::Socket)?;
        let members = Members::new(local, members_max);
        let area = match options.area_bytes {
            0 => None,
            bytes => Some(Area::map(bytes)?),
        };
        let (way, reason, direct) = choose(&socket, options.way)?;
        Ok(Self {
            socket,
            way,
            reason,
            members,
            direct,
            area,
            sends: 0,
        })
    }

    /// Replaces the whole group in one step. Who is named twice is a member once. All counters of members
    /// begin at nothing.
    ///
    /// # Errors
    ///
    /// If there are too many or one can not be reached from this socket's family; the old group stays.
    pub fn set_members(&mut self, addresses: &[SocketAddr]) -> Result<(), GroupError> {
        self.members.replace(addresses)
    }

    /// Adds a member; whether it was none before.
    ///
    /// # Errors
    ///
    /// As [`Group::set_members`].
    pub fn add(&mut self, address: SocketAddr) -> Result<bool, GroupError> {
        self.members.add(address)
    }

    /// Removes a member; whether it was one.
    pub fn remove(&mut self, address: SocketAddr) -> bool {
        self.members.remove(address).is_some()
    }

    /// Sends one datagram to every member.
    ///
    /// # Errors
    ///
    /// If no datagram is that long. What goes wrong with a member is counted, not returned.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Sent, GroupError> {
        self.send_train(bytes, bytes.len().max(1))
    }

    /// Sends a train to every member: packets of `stride` bytes, the last may be shorter.
    ///
    /// # Errors
    ///
    /// As [`Group::send`].
    pub fn send_train(&mut self, bytes: &[u8], stride: usize) -> Result<Sent, GroupError> {
        let train = Train::new(bytes, stride)?;
        self.sends += 1;
        Ok(self.direct.send(&self.socket, &mut self.members, train))
    }

    /// Sends a train that lies in the area, without a copy where the way can.
    ///
    /// # Errors
    ///
    /// As [`Group::send`], and if the area has no such bytes.
    pub fn send_registered(
        &mut self,
        range: Range<usize>,
        stride: usize,
    ) -> Result<Sent, GroupError> {
        let area = self.area.as_ref();
        let bytes = area_bytes(area, &range)?;
        let train = Train::new(bytes, stride)?;
        self.sends += 1;
        Ok(self.direct.send(&self.socket, &mut self.members, train))
    }

    /// Part of the area, to be written. It waits until the kernel has let go of it.
    ///
    /// # Errors
    ///
    /// If the area has no such bytes.
    pub fn area_mut(&mut self, range: Range<usize>) -> Result<&mut [u8], GroupError> {
        let bytes = area_bytes(self.area.as_ref(), &range)?;
        let (start, length) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: `area_bytes` has seen that the range lies within the area, which is mapped writable and
        // lives as long as `self`. The group has the area's only handle and gives out references to it
        // through `&mut self` alone, so that this one is alone as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, length) })
    }

    /// The way it sends.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// Why it sends that way, in words.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How many members it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    /// The members, in no order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = SocketAddr> + '_ {
        self.members.addresses()
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Sent { packets, refused } = self.members.sent();
        Counters {
            sends: self.sends,
            packets,
            refused,
            crossings: self.direct.crossings,
            trains_cut: self.direct.trains_cut,
        }
    }

    /// What was sent to a member since it joined; `None` if it is none.
    #[must_use]
    pub fn member_counters(&self, address: SocketAddr) -> Option<MemberCounters> {
        self.members.counters(address)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("socket", &self.socket)
            .field("way", &self.way)
            .field("members", &self.members.len())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl<'a> Train<'a> {
    fn new(bytes: &'a [u8], stride: usize) -> Result<Self, GroupError> {
        let train = Self { bytes, stride };
        if stride == 0 || bytes.len() > TRAIN_BYTES_MAX || train.packets() > TRAIN_PACKETS_MAX {
            let bytes = bytes.len();
            return Err(GroupError::Train { bytes, stride });
        }
        Ok(train)
    }

    /// One packet is sent also when it is empty.
    fn packets(&self) -> usize {
        self.bytes.len().div_ceil(self.stride).max(1)
    }
}

impl Sent {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.refused += other.refused;
    }
}

impl Way {
    /// All, best first.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Uring, Self::Sendmmsg, Self::Loop];

    /// Its name everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Uring => "uring",
            Self::Sendmmsg => "sendmmsg",
            Self::Loop => "loop",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|way| way.as_str() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::as_str).join(", ");
                format!("no way is named {name:?}; there are {names}")
            })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            way: None,
            members_max: 16_384,
            area_bytes: 0,
        }
    }
}

fn choose(socket: &UdpSocket, wanted: Option<Way>) -> Result<(Way, String, Direct), GroupError> {
    let mut reason = String::new();
    for way in Way::ALL {
        if wanted.is_some_and(|wanted| wanted != way) {
            continue;
        }
        match open_way(socket, way) {
            Ok(direct) => {
                if wanted.is_some() {
                    "asked for".clone_into(&mut reason);
                } else if reason.is_empty() {
                    "the best there is".clone_into(&mut reason);
                }
                return Ok((way, reason, direct));
            }
            Err(error) if wanted.is_some() => return Err(error),
            Err(error) => {
                let but = if reason.is_empty() { "" } else { "; " };
                reason += &format!("{but}not {way}: {error}");
            }
        }
    }
    unreachable!("the way loop needs nothing and is always available")
}

fn open_way(socket: &UdpSocket, way: Way) -> Result<Direct, GroupError> {
    match way {
        Way::Kernel | Way::Uring => Err(GroupError::Way(way)),
        Way::Sendmmsg => Direct::sendmmsg(socket.as_raw_fd()),
        Way::Loop => Direct::by_loop(socket.as_raw_fd()),
    }
}

fn area_bytes<'a>(area: Option<&'a Area>, range: &Range<usize>) -> Result<&'a [u8], GroupError> {
    let area_bytes = area.map_or(0, Area::bytes_total);
    let (start, end) = (range.start, range.end);
    let Some(area) = area.filter(|_| start <= end && end <= area_bytes) else {
        return Err(GroupError::Outside {
            start,
            end,
            area_bytes,
        });
    };
    let base = area.base().as_ptr().wrapping_add(start);
    // SAFETY: the range lies within the area, which is mapped, initialised (zeroed by the kernel) and lives
    // as long as the borrow of it; writes go through `Group::area_mut`, which borrows the group mutably.
    Ok(unsafe { std::slice::from_raw_parts(base, end - start) })
}

#[cfg(test)]
mod tests;
